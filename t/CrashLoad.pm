# CrashLoad.pm: what is done to a PostgreSQL while clients are at work (Torture.pm): the
# whole of it is killed, one backend, or a background worker, each of which ends all
# sessions; and processes are stopped for a moment, which ends nothing.
#
#   CrashLoad::play($torture, $node);

package CrashLoad;

use strict;
use warnings;

use Files;
use Poll;
use PostgreSQL::Test::Utils;
use Processes;
use Time::HiRes qw(usleep);

my $client = qr/^postgres: .*\[local\]/;

# One of the server's processes whose title matches.
sub one_of
{
	my ($node, $pattern) = @_;
	my @pids = grep { Processes::title($_) =~ $pattern } Processes::children(Processes::postmaster($node));
	return @pids ? $pids[ rand @pids ] : undef;
}

sub kill_server
{
	my ($node) = @_;
	Processes::kill_postgres($node);
	$node->start;
	return 1;
}

# Kill one process, if there is one; the server ends the others and starts them anew.
sub kill_one
{
	my ($node, $pattern) = @_;
	my $pid = one_of($node, $pattern) // return;

	# one that is at its end already ends nothing else: only what can be stopped is alive
	kill 'STOP', $pid or return;
	Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { slurp("/proc/$pid/stat") !~ /\) [RSD] / })
	  or die "process $pid does not stop\n";
	Processes::is_stopped($pid) or return;
	Processes::crash_postgres($node, $pid);
	return 1;
}

# Stop processes, and let them go on.
sub stop_for_a_moment
{
	my @pids = @_;
	my $stopped = kill 'STOP', @pids;
	usleep(int rand 700_000) if $stopped;
	kill 'CONT', @pids;
	return $stopped;
}

# So many kills and pauses, the first of the whole server.
sub some_kills
{
	my ($torture, $node, $count) = @_;
	my @workers = $torture->{kind} eq 'plain' ? () : (worker => 1);
	for my $number (1 .. $count)
	{
		$torture->let_work(1.5);
		my $what = $number == 1 ? 'server' : $torture->pick(server => 2, backend => 3, @workers, pause => 2, 'pause of a backend' => 3);
		if ($what eq 'server')
		{
			$torture->disturb($what, sub { kill_server($node) });
		}
		elsif ($what eq 'backend' || $what eq 'worker')
		{
			$torture->disturb($what, sub { kill_one($node, $what eq 'worker' ? qr/^postgres: .*dlock/ : $client) });
		}
		else
		{
			my $postmaster = Processes::postmaster($node);
			my @pids = $what eq 'pause' ? ($postmaster, Processes::children($postmaster)) : one_of($node, $client) // ();
			$torture->disturb($what, sub { stop_for_a_moment(@pids) }, kills => 0);
		}
	}
	$torture->let_work(1.5);
	return;
}

# Rounds of them, and one in which nothing is durable.
sub play
{
	my ($torture, $node) = @_;
	$torture->rounds(2, sub { some_kills($torture, $node, $ENV{TORTURE_MINUTES} ? 30 : 6) });

	# Leases may be lost here, but nothing else may be.
	$torture->{lossy} = 1;
	$torture->{connection} .= " options='-c synchronous_commit=off'";
	$torture->rounds(1, sub { some_kills($torture, $node, 4) }) if !$ENV{TORTURE_MINUTES};
	$torture->summary;
	return;
}

1;
