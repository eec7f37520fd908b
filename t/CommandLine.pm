# CommandLine.pm: a command line client, such as psql or mysql, that a session is typed
# into.  What is typed, and what it prints, goes through pipes.  A test that waits for an
# answer sleeps until there is one: most of what the tests do is to ask and to wait.
#
# Sessions::Session and Scenarios::Client are such clients.  In the fields "in", "out" and
# "err" is what is still to be typed, and what the client has printed.

package CommandLine;

use strict;
use warnings;

use Errno qw(EAGAIN);
use IO::Handle;
use POSIX ();

# Start a client.
sub start
{
	my ($self, @command) = @_;
	my (%ours, %theirs);
	pipe($theirs{in}, $ours{in}) && pipe($ours{out}, $theirs{out}) && pipe($ours{err}, $theirs{err})
	  or die "could not make a pipe: $!\n";
	$self->{process} = fork() // die "could not fork: $!\n";
	if ($self->{process} == 0)
	{
		my @names = qw(in out err);
		POSIX::dup2(fileno $theirs{ $names[$_] }, $_) // POSIX::_exit(127) for 0 .. $#names;
		# the other ends are closed by exec
		no warnings 'exec';
		exec { $command[0] } @command;
		POSIX::_exit(127);
	}
	$_->blocking(0) for values %ours;
	$self->{pipes} = \%ours;
	$self->{$_} = '' for qw(in out err);
	return $self;
}

# Move bytes to and from the client, after sleeping until there are some, for so many
# seconds at most; false if the client has closed its output: it has ended.
sub pump
{
	my ($self, $seconds) = @_;
	my $pipes = $self->{pipes};
	return 0 unless $self->_is_open;
	local $SIG{PIPE} = 'IGNORE';

	my ($reads, $writes) = ('', '');
	exists $pipes->{$_} && (vec($reads, fileno $pipes->{$_}, 1) = 1) for qw(out err);
	vec($writes, fileno $pipes->{in}, 1) = 1 if exists $pipes->{in} && length $self->{in};
	return 1 if select($reads, $writes, undef, $seconds) <= 0;
	if (exists $pipes->{in} && length $self->{in})
	{
		my $count = syswrite($pipes->{in}, $self->{in});
		if (defined $count) { substr($self->{in}, 0, $count) = '' }
		elsif ($! != EAGAIN) { delete $pipes->{in} }
	}
	for my $name (grep { exists $pipes->{$_} && vec($reads, fileno $pipes->{$_}, 1) } qw(out err))
	{
		my $count;
		1 while $count = sysread($pipes->{$name}, $self->{$name}, 65536, length $self->{$name});
		# at its end
		delete $pipes->{$name} if defined $count || $! != EAGAIN;
	}
	return $self->_is_open;
}

sub _is_open
{
	my ($self) = @_;
	return $self->{pipes} && (exists $self->{pipes}{out} || exists $self->{pipes}{err}) ? 1 : 0;
}

# Type something.
sub type
{
	my ($self, $text) = @_;
	$self->{in} .= $text;
	# what it prints meanwhile may be more than a pipe holds
	1 while length $self->{in} && exists $self->{pipes}{in} && $self->pump(1);
	return;
}

# Wait for the client's end: it is told nothing more.
sub reap
{
	my ($self) = @_;
	return unless defined $self->{process};
	local $?;
	delete $self->{pipes}{in};
	1 while $self->pump(60);
	waitpid($self->{process}, 0);
	delete @$self{qw(process pipes)};
	return;
}

# End the client as when it dies.
sub kill_client
{
	my ($self) = @_;
	kill 'KILL', $self->{process} if defined $self->{process};
	$self->reap;
	return;
}

1;
