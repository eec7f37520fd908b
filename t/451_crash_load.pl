# Many clients while the server is killed, again and again: the whole of it, one
# backend, or a background worker, each of which ends all sessions; and while
# processes are stopped for a moment, which ends nothing.  The histories of the
# clients keep to the rules.  "make torture" makes it long.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use Files;
use Poll;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Test::More;
use Time::HiRes qw(usleep);
use Torture;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
restart_after_crash = on
shared_buffers = 4MB
dlock.reap_interval = '200ms'
dlock.log_expired = off
log_statement = none
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

# One of the server's processes whose title matches.
sub one_of
{
	my ($pattern) = @_;
	my @pids = grep { Processes::title($_) =~ $pattern } Processes::children(Processes::postmaster($node));
	return @pids ? $pids[ rand @pids ] : undef;
}

sub kill_server
{
	Processes::kill_postgres($node);
	$node->start;
	return 1;
}

# Kill one process, if there is one; the server ends the others and starts them anew.
sub kill_one
{
	my ($pattern) = @_;
	my $pid = one_of($pattern) // return;

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

my $torture = Torture->new(
	kind => 'postgres',
	connection => $node->connstr('postgres'),
	# cancelled; ended by an administrator, by a crash; shutting down, starting
	allowed => qr/^((guard )?(57014|57P01|57P02|57P03|lost)|40P01)$/);
my $client = qr/^postgres: .*\[local\]/;

sub some_kills
{
	my ($count) = @_;
	for my $number (1 .. $count)
	{
		$torture->let_work(1.5);
		my $what = $number == 1 ? 'server' : $torture->pick(server => 2, backend => 3, worker => 1, pause => 2, 'pause of a backend' => 3);
		if ($what eq 'server')
		{
			$torture->disturb($what, \&kill_server);
		}
		elsif ($what eq 'backend' || $what eq 'worker')
		{
			$torture->disturb($what, sub { kill_one($what eq 'worker' ? qr/^postgres: .*dlock/ : $client) });
		}
		else
		{
			my $postmaster = Processes::postmaster($node);
			my @pids = $what eq 'pause' ? ($postmaster, Processes::children($postmaster)) : one_of($client) // ();
			$torture->disturb($what, sub { stop_for_a_moment(@pids) }, kills => 0);
		}
	}
	$torture->let_work(1.5);
	return;
}

$torture->rounds(2, sub { some_kills($ENV{TORTURE_MINUTES} ? 30 : 6) });

# Leases may be lost here, but nothing else may be.
$torture->{lossy} = 1;
$torture->{connection} .= " options='-c synchronous_commit=off'";
$torture->rounds(1, sub { some_kills(4) }) if !$ENV{TORTURE_MINUTES};
$torture->summary;

$node->stop;
done_testing();
