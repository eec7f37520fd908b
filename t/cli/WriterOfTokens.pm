# WriterOfTokens.pm: a command that shows when it ran, and under which token.
#
#   writer($file, OPTION...)   the command, to be run with DLOCK_TOKEN
#   boot_time()                the time, by its clock
#
# It appends a line "token time pid" to the file, again and again: for SECONDS, an OPTION, or
# until it is killed.  With "stubborn" it ignores SIGTERM, and so does another process
# that it starts, which has a session of its own and no environment.  A line "BESIDE pid" is
# a process of another token that lived when it began.

package WriterOfTokens;

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter 'import';
use Fcntl;
use File::Basename qw(dirname);
use POSIX ();
use Time::HiRes qw(sleep);

our @EXPORT = qw(writer boot_time);

my $folder = abs_path(dirname(__FILE__));

# Goes on while a machine is suspended, as a lease does.
sub boot_time { return Time::HiRes::clock_gettime(7) }

sub writer
{
	my ($file, @options) = @_;
	return ($^X, '-I', $folder, '-e', 'require WriterOfTokens; WriterOfTokens::write_tokens(@ARGV)', $file, @options);
}

# The processes that have written under other tokens and still live.
sub others
{
	my ($path, $token) = @_;
	my %pids;
	open(my $file, '<', $path) or return;
	while (my $line = <$file>)
	{
		$pids{$2} = 1 if $line =~ /^(\d+) \S+ (\d+)$/ && $1 != $token;
	}
	return grep {
		open(my $stat, '<', "/proc/$_/stat");
		open(my $command, '<', "/proc/$_/cmdline");
		# another process may have the number by now
		($stat && <$stat> // '') =~ /\) [^ZX] /s && ($command && <$command> // '') =~ /\Q$path\E/;
	} keys %pids;
}

sub write_tokens
{
	my ($path, @options) = @_;
	my $token = $ENV{DLOCK_TOKEN};
	my $stubborn = grep { $_ eq 'stubborn' } @options;
	my ($seconds) = grep { /^[\d.]+$/ } @options;
	my $child;

	sysopen(my $file, $path, O_WRONLY | O_APPEND | O_CREAT) or die "$path: $!\n";
	syswrite($file, "BESIDE $_\n") for others($path, $token);
	if ($stubborn)
	{
		$SIG{TERM} = 'IGNORE';
		$child = fork();
		if ($child == 0)
		{
			POSIX::setsid();
			delete @ENV{ grep { /^DLOCK/ } keys %ENV };
		}
	}
	my $end = defined $seconds ? boot_time() + $seconds : 9**9**9;
	while ((my $now = boot_time()) < $end)
	{
		syswrite($file, sprintf("%d %.6f %d\n", $token, $now, $$));
		sleep 0.005;
	}
	# what a command that ends by itself leaves in another session may outlive the lease
	waitpid($child, 0) if $child;
	return;
}

1;
