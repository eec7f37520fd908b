# Agent.pm: a program that holds a lease by a client library, and does what a test tells
# it.
#
# There is one in each language, t/clients/LANGUAGE/agent.*.  Its arguments are a driver
# and the port of the server; what else it needs is in the environment, as for the programs
# of t/drivers.  It reads from its standard input, and answers on its output, a line each:
#
#   lease NAME[,NAME] TTL WAIT [OPTION=VALUE]...
#       begin a block that holds a lease: "held TOKEN[,TOKEN] TIME", or
#       "failed CLASS CODE".  The options are shared=1, permits=N, owner=X, list=1 for a
#       list of names, connect_timeout=SECONDS, keep_at_least=SECONDS.
#   check               ask whether the lease is held: "check ok" or "check CLASS"
#   guard               guard in a transaction, and commit: "guard ok" or "guard CLASS CODE"
#   guard-outside       guard without a transaction: the same
#   cancel              cancel the wait: "failed canceled -"
#   end                 leave the block: "ended", or "ended CLASS" if that is an error
#   raise               leave it by an exception: "raised", if just that comes out
#   exit                end the process in an orderly way, in the middle of a block or not
#
# And it says "lost TIME" when it is told so.  CLASS is busy, lost, misuse or unavailable,
# CODE the SQLSTATE or the number, or "-", TIME seconds of the client's own clock.
#
# Its input and output are UTF-8.  TTL and WAIT are given to the client as numbers if they look so, else as text.  More options:
# events=1 to say "event KIND NAME SECONDS" for each event, and unknown=1 to give the client an
# option that it does not have, where the language lets a program do that.
#
# A client object that holds many leases; its commands may be given while there is a block:
#
#   many PREFIX COUNT TTL WAIT [OPTION=VALUE]...
#       make the client if there is none, and acquire PREFIX1 to PREFIXCOUNT by it, ten at a time:
#       "many COUNT", of how many leases it has got, or "many CLASS CODE" of the first error.  The
#       options are shared=1, connect_timeout=SECONDS, keep_at_least=SECONDS, and, when the client
#       is made, owner=X and events=1.
#   many-held           "many-held COUNT": of how many are held, by their own word
#   many-release NAME   release one: "many-release 1" if the server has confirmed it, else 0
#   many-close          close the client: "many-close"
#
# and it says "lost-one NAME TIME" when one of them is told so.
#
# With DLOCK_ODD=1 in the environment, connections for leases are as odd as the driver lets a
# program make them: rows as dictionaries or objects, booleans, numbers and arrays parsed into
# text, the session's client encoding latin1, its sql_mode NO_BACKSLASH_ESCAPES and ANSI_QUOTES.

package Agent;

use strict;
use warnings;

use IO::Handle;
use IO::Select;
use Time::HiRes qw(time);

my $patience = 180;
my @running;

sub start
{
	my ($class, @command) = @_;
	pipe(my $in, my $input) && pipe(my $output, my $out) or die "no pipe: $!\n";
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		close $_ for $input, $output;
		open(STDIN, '<&', $in) && open(STDOUT, '>&', $out) && exec @command;
		die "could not run $command[0]: $!\n";
	}
	close $_ for $in, $out;
	$input->autoflush(1);
	my $self = bless { pid => $pid, owner => $$, input => $input, output => $output, text => '', said => [] }, $class;
	push @running, $self;
	return $self;
}

# A busy machine has more time to connect than the ten seconds that a client has by itself.
sub tell
{
	my ($self, @lines) = @_;
	local $SIG{PIPE} = 'IGNORE';
	print { $self->{input} } map { /^lease / && !/ connect_timeout=/ ? "$_ connect_timeout=$patience\n" : "$_\n" } @lines;
	return;
}

# Its next line; undef if none comes within so many seconds, or ever.
sub line
{
	my ($self, $seconds) = @_;
	my $until = time + $seconds;
	my $select = IO::Select->new($self->{output});
	my $end;
	while (($end = index($self->{text}, "\n")) < 0)
	{
		my $left = $until - time;
		return if !$select->can_read($left > 0 ? $left : 0);
		return if !sysread($self->{output}, $self->{text}, 65536, length $self->{text});
	}
	my $line = substr($self->{text}, 0, $end + 1, '');
	chomp $line;
	return $line;
}

# The next line that matches; those before it stay for others to ask for.
sub says
{
	my ($self, $regex) = @_;
	my $until = time + $patience;
	for my $i (0 .. $#{ $self->{said} })
	{
		return splice(@{ $self->{said} }, $i, 1) if $self->{said}[$i] =~ $regex;
	}
	while (defined(my $line = $self->line($until - time)))
	{
		return $line if $line =~ $regex;
		push @{ $self->{said} }, $line;
	}
	return 'silence after: ' . join('; ', @{ $self->{said} });
}

# Its answer to a command.
sub ask
{
	my ($self, $command, $regex) = @_;
	my ($word) = split / /, $command;
	$self->tell($command);
	return $self->says($regex // qr/^\Q$word\E /);
}

# Whether it has said so already.
sub has_said
{
	my ($self, $regex) = @_;
	while (defined(my $line = $self->line(0))) { push @{ $self->{said} }, $line }
	return scalar grep { $_ =~ $regex } @{ $self->{said} };
}

sub signal
{
	my ($self, $signal) = @_;
	kill $signal, $self->{pid};
	return;
}

# Wait until its process has ended; returns its exit status.
sub await_end
{
	my ($self) = @_;
	@running = grep { $_ != $self } @running;
	waitpid($self->{pid}, 0);
	return $?;
}

sub kill
{
	my ($self) = @_;
	$self->signal('KILL');
	return $self->await_end;
}

# End it, in an orderly way.
sub quit
{
	my ($self) = @_;
	$self->tell('exit');
	my $until = time + $patience;
	# it cannot end while nobody reads its output
	1 while time < $until && defined $self->line($until - time);
	return $self->kill;
}

END
{
	my $status = $?;
	$_->kill for grep { $_->{owner} == $$ } @running;
	$? = $status;
}

1;
