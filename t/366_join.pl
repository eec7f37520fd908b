# Between a caller's look at a name and its joining the queue, all waiters there may
# leave, and a guard may end.  A caller that joins then must look again: the obstacle
# is gone, and nobody else will tell it.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrashPoints;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('join', install_path => CrashPoints::build() =~ s{/bin$}{}r);
$node->init;
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'dlock'
# nothing reaps: waiters look for themselves
dlock.reap_interval = '1h'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

# A session in which a call has begun, and its process.
sub session
{
	my ($call, @settings) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query('SELECT pg_backend_pid()');

	$session->query("SET $_") for @settings;
	$session->query_until(qr/begins/, "\\echo begins\nSELECT $call;\n");
	return ($session, $pid);
}

# A session with a call that stops before it joins.
sub stopped_session
{
	my ($call, $point) = @_;
	my ($session, $pid) = session($call, "dlock.crash_point = '$point'", 'dlock.crash_stop = on');

	Processes::until_stopped($pid);
	return ($session, $pid);
}

# Let it go on: what it says.
sub go_on
{
	my ($session, $pid) = @_;

	kill 'CONT', $pid or die 'the call is gone';
	return scalar $session->query('SELECT');
}

# One shares the name for long, one waits for it alone, and one who would share it
# stands behind him.
$node->safe_psql('postgres', q{SELECT dlock_acquire_shared('n', 'holder', 3600)});
my ($first, $first_pid) = session(q{dlock_acquire('n', 'first', 60, -1)});
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM dlock.waiters}) or die 'nobody waits';
my ($second, $second_pid) = stopped_session(q{'token ' || dlock_acquire_shared('n', 'second', 600, 600)},
	'queue: about to join');

$node->safe_psql('postgres', "SELECT pg_cancel_backend($first_pid)");
$first->query('SELECT');
like($first->{stderr}, qr/canceling statement/, 'the first has left');
my $answer = go_on($second, $second_pid);
like($answer, qr/^token \d+$/m, 'the second finds nobody before him, and shares the lease');
$_->quit for $first, $second;

# A transaction guards a name whose lease it has released, and ends.
sub guarded
{
	my ($name) = @_;
	my $guard = $node->background_psql('postgres');

	$guard->query_safe('BEGIN');
	$guard->query_safe("SELECT dlock_guard('$name', 'guard', dlock_acquire('$name', 'guard', 3600))");
	$guard->query_safe("SELECT dlock_release('$name', 'guard')");
	return $guard;
}

my $guard = guarded('g');
my ($waiter, $waiter_pid) = stopped_session(q{'token ' || dlock_acquire('g', 'waiter', 600, 600)}, 'queue: about to join');
$guard->query_safe('COMMIT');
$answer = go_on($waiter, $waiter_pid);
like($answer, qr/^token \d+$/m, 'a guard ends before a waiter joins, which finds the name free');
$_->quit for $guard, $waiter;

# The same with one that watches: it looks again instead of joining.
$guard = guarded('h');
($waiter, $waiter_pid) = stopped_session(q{'tokens ' || dlock_acquire_all('{h}', 'all', 600, 600)::text},
	'all: about to watch');
$guard->query_safe('COMMIT');
$answer = go_on($waiter, $waiter_pid);
like($answer, qr/^tokens \{\d+\}$/m, 'a guard ends before a call for all watches, which takes the name');
$_->quit for $guard, $waiter;

$node->stop;
done_testing();
