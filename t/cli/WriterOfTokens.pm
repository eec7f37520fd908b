# WriterOfTokens.pm: a command that shows when it ran, and under which token; see
# writer() in CommandCases.pm.

package WriterOfTokens;

use strict;
use warnings;

use Fcntl;
use POSIX ();
use Time::HiRes qw(sleep);

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

	sysopen(my $file, $path, O_WRONLY | O_APPEND | O_CREAT) or die "$path: $!\n";
	syswrite($file, "BESIDE $_\n") for others($path, $token);
	if ($stubborn)
	{
		$SIG{TERM} = 'IGNORE';
		if (fork() == 0)
		{
			POSIX::setsid();
			delete @ENV{ grep { /^DLOCK/ } keys %ENV };
		}
	}
	my $end = defined $seconds ? Time::HiRes::clock_gettime(7) + $seconds : 9**9**9;
	while ((my $now = Time::HiRes::clock_gettime(7)) < $end)
	{
		syswrite($file, sprintf("%d %.6f %d\n", $token, $now, $$));
		sleep 0.005;
	}
	return;
}

1;
