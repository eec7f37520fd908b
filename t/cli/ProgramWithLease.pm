# ProgramWithLease.pm: a program that holds a lease by "dlock hold", and shows what that says.
#
#   program(COMMAND...)                 the program, for a command "dlock hold ..."
#   writer_with_lease($file, COMMAND...)   one that becomes a writer (WriterOfTokens.pm) when
#                                       the lease is held, and ignores SIGTERM from then on
#
# The first prints the number of the process that it has started, each line that this prints,
# and in the end its status.  It does what it reads, line by line: "release", "chatter" and
# "close" are for dlock; "leave" has another process inherit the pipes, whose number it prints;
# "stubborn" ignores SIGTERM; "exit" ends it with status 3, and the end of its standard input
# with 0.

package ProgramWithLease;

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename qw(dirname);
use POSIX ();

our @EXPORT = qw(program writer_with_lease);

my $folder = abs_path(dirname(__FILE__));

sub program
{
	my @command = @_;
	return ($^X, '-I', $folder, '-e', 'require ProgramWithLease; ProgramWithLease::work(@ARGV)', @command);
}

sub writer_with_lease
{
	my ($file, @command) = @_;
	return ($^X, '-I', $folder, '-e', 'require ProgramWithLease; ProgramWithLease::write_with_lease(@ARGV)', $file, @command);
}

# Start a command; its process, and the pipes to and from it.
sub start
{
	my (@command) = @_;
	pipe(my $in, my $to) && pipe(my $from, my $out) or die "pipe: $!\n";
	my $pid = fork() // die "fork: $!\n";
	if ($pid == 0)
	{
		close($_) for $to, $from;
		POSIX::dup2(fileno $in, 0);
		POSIX::dup2(fileno $out, 1);
		exec { $command[0] } @command or POSIX::_exit(99);
	}
	return ($pid, $to, $from);
}

sub work
{
	my ($pid, $to, $from) = start(@_);
	my ($orders, $bits) = ('', '');
	my %do = (
		release => sub { syswrite($to, "release\n") },
		# near to the word, and in pieces
		chatter => sub { syswrite($to, $_) for "releases\n", " release\n", "\n", 'x' x 2000, "release\n", 'rele' },
		close => sub { close($to) },
		stubborn => sub { $SIG{TERM} = 'IGNORE' },
		exit => sub { POSIX::_exit(3) },
		leave => sub {
			my $heir = fork() // die "fork: $!\n";
			if ($heir == 0)
			{
				POSIX::setsid();
				sleep 1 while 1;
			}
			syswrite(STDOUT, "heir $heir\n");
		});
	$SIG{PIPE} = 'IGNORE';
	syswrite(STDOUT, "process $pid\n");
	vec($bits, 0, 1) = 1;
	vec($bits, fileno $from, 1) = 1;
	while (1)
	{
		next if select(my $ready = $bits, undef, undef, undef) < 0;
		if (vec($ready, fileno $from, 1))
		{
			if (sysread($from, my $said, 65536)) { syswrite(STDOUT, $said) }
			else
			{
				vec($bits, fileno $from, 1) = 0;
				waitpid($pid, 0);
				syswrite(STDOUT, 'status ' . ($? & 127 ? 'signal ' . ($? & 127) : $? >> 8) . "\n");
			}
		}
		next unless vec($ready, 0, 1);
		sysread(STDIN, $orders, 65536, length $orders) or return;
		while ($orders =~ s/\A(.*)\n//)
		{
			syswrite(STDOUT, "does $1\n");
			$do{$1}->();
		}
	}
	return;
}

sub write_with_lease
{
	my ($file, @command) = @_;
	# the pipes stay open when this becomes the writer
	local $^F = 1000;
	my (undef, $to, $from) = start(@command);
	my $line = <$from> // exit 1;
	($ENV{DLOCK_TOKEN}) = $line =~ /"token": (\d+)/;
	$SIG{TERM} = 'IGNORE';
	require WriterOfTokens;
	my @writer = WriterOfTokens::writer($file);
	exec { $writer[0] } @writer or die "exec: $!\n";
}

1;
