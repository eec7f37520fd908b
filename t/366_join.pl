# Between a caller's look at a name and its joining the queue, all waiters there may
# leave, and a guard may end.  A caller that joins then must look again: the obstacle
# is gone, and nobody else will tell it.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrashPoints;
use Poll;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('join', install_path => CrashPoints::build() =~ s{/bin$}{}r);
$node->init;
$node->append_conf(
	'postgresql.conf', q{
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

# A call for all finds its own lease, and before it takes that the deadline passes: the
# first in line has it then, and the call takes nothing.
my $lasts = 3;
my ($name, $all, $all_pid);
for my $try (1 .. 20)
{
	$name = "all-$try";
	$node->safe_psql('postgres', "SELECT dlock_acquire('$name', 'all', $lasts)");
	($waiter) = session("'token ' || dlock_acquire('$name', 'waiter', 600, 600)");
	$node->poll_query_until('postgres', "SELECT count(*) = 1 OR dlock_owner('$name') = 'waiter' FROM dlock.waiters") or die 'nobody waits';
	($all, $all_pid) = session("'tokens ' || coalesce(dlock_acquire_all('{$name,free}', 'all', 600)::text, 'none')",
		q{dlock.crash_point = 'all: about to take'}, 'dlock.crash_stop = on');
	# on a busy machine the deadline may have passed before
	my $has_ended = "SELECT count(*) FROM pg_stat_activity WHERE pid = $all_pid AND query ~ 'acquire_all' AND state = 'idle'";
	Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { Processes::is_stopped($all_pid) || $node->safe_psql('postgres', $has_ended) })
	  or die 'the call neither stops nor ends';
	last if Processes::is_stopped($all_pid);
	$_->quit for $all, $waiter;
}
sleep $lasts;
like(go_on($all, $all_pid), qr/^tokens none$/m, 'a deadline passes before a call for all takes its own lease, and it takes nothing');
like($waiter->query('SELECT'), qr/^token \d+$/m, 'the first in line has it');
is($node->safe_psql('postgres', "SELECT dlock_owner('$name'), dlock_is_free('free')"), 'waiter|t', 'and nobody else anything');
$_->quit for $all, $waiter;

$node->stop;
done_testing();
