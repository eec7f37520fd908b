# What a call waits for besides a lease can be canceled too: that another makes the lock
# table ready, while the disk does not answer; and the pages that a search for deadlocks
# reads.  No search waits for another's, and a session that ends waits for neither.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrashPoints;
use Poll;
use PostgreSQL::Test::Cluster;
use HeldFlush;
use PostgreSQL::Test::Utils;
use Processes;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main', install_path => CrashPoints::build() =~ s{/bin$}{}r);
$node->init;

# No worker comes first, and no commit but the calls' own flushes.
$node->append_conf(
	'postgresql.conf', q{
max_worker_processes = 1
max_logical_replication_workers = 0
autovacuum = off
fsync = on
synchronous_commit = off
lock_timeout = 0
});
my $held = HeldFlush->start_postgres($node);
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

my $sessions = Sessions->new($node);
my ($a, $b, $c, $leaving) = $sessions->open('a', 'b', 'c', 'leaving');
my $watcher = $sessions->{watcher};
my $token = qr/^\d{10,}$/;

sub until_true
{
	my ($condition, $complaint) = @_;
	is($sessions->until("SELECT $condition", 't'), 't', $complaint);
	return;
}

# Is a session canceled while something else goes on?
sub is_canceled
{
	my ($session, $what) = @_;
	$watcher->query("SELECT pg_cancel_backend($session->{pid})");
	Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { $session->answered })
	  or die "$session->{name} is not canceled $what\n";
	is($session->answer, '57014', "... and is canceled $what");
	return;
}

# ----------------------------------------------------------------
# The table is made ready
# ----------------------------------------------------------------

# Has a session begun to wait for the disk, itself or behind another?
sub until_stuck
{
	my ($session) = @_;
	until_true("lower(wait_event) IN ('walsync', 'walwrite') FROM pg_stat_activity WHERE pid = $session->{pid}", 'a call makes the table ready, and waits for the disk');
	ok(Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { my @stuck = glob "$held->{hold}.*"; @stuck }), '... which does not answer');
	return;
}

$held->hold;
$a->send(q{SELECT dlock_acquire('x', 'a', 600)});
until_stuck($a);
$b->send(q{SELECT dlock_acquire('y', 'b', 600)});
until_true("wait_event_type IN ('Lock', 'LWLock') FROM pg_stat_activity WHERE pid = $b->{pid}", 'another waits for that');
is_canceled($b, 'meanwhile');
$c->query(q{SET lock_timeout = '10ms'});
is($c->query(q{SELECT dlock_acquire('z', 'c', 600)}), '55P03', 'so does one with lock_timeout');
ok(!$a->answered, '... and the disk has not answered');
$held->let_go;
like($a->answer, $token, 'the first has its lease');
like($b->query(q{SELECT dlock_acquire('y', 'b', 600)}), $token, 'and the table is ready for others');

# A new file of the table: whoever ends leaves his leases to the worker.
like($leaving->query(q{SELECT dlock_acquire_session('s', 'leaving', 600)}), $token, 'a session has a lease');
is($watcher->query('VACUUM FULL dlock_private.lease_table'), '', 'the table moves');
$held->hold;
$a->send(q{SELECT dlock_acquire('z', 'a', 600)});
until_stuck($a);
$leaving->type("\\q\n");
until_true("NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $leaving->{pid})", 'a session ends meanwhile');
ok(!$a->answered, '... and the disk has not answered');
$held->let_go;
like($a->answer, $token, 'the call has its lease');
like($b->query(q{SELECT dlock_acquire('s', 'b', 600)}), $token, 'the lease of the session that ended is over');
$_->query("SELECT dlock_release_all('$_->{name}')") for $a, $b;

# ----------------------------------------------------------------
# The search for deadlocks
# ----------------------------------------------------------------

# A circle that b would close, and one that c would.
$c->query('RESET lock_timeout');
my ($d) = $sessions->open('d');
like($_->query("SELECT dlock_acquire('$_->{name}', '$_->{name}', 600)"), $token, "$_->{name} takes a lease") for $a, $b, $c, $d;
$a->send(q{SELECT dlock_acquire('b', 'a', 600, -1)});
$sessions->waiting('a');
$d->send(q{SELECT dlock_acquire('c', 'd', 600, -1)});
$sessions->waiting('a', 'd');
$b->query(q{SET dlock.crash_point = 'deadlock: name read'});
$b->query('SET dlock.crash_stop = on');
$b->send(q{SELECT dlock_acquire('a', 'b', 600, -1)});
Processes::until_stopped($b->{pid});
$c->send(q{SELECT dlock_acquire('d', 'c', 600, -1)});
ok(Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { $c->answered }), 'while one searches, another does');
is($c->answer, '40P01', '... and finds its circle');
$watcher->query("SELECT pg_cancel_backend($b->{pid})");
kill 'CONT', $b->{pid};
is($b->answer, '57014', 'the search ends with the next page when it is canceled');
$sessions->waiting('a', 'd');
is($b->query(q{SELECT dlock_acquire('a', 'b', 600, -1)}), '40P01', 'the next one ends as it should');

# A name with many holders is on many pages.  A caller that is to wait has read them before
# it joins.  It is canceled just then, and the look at the holders that follows ends with
# its first page.
my $readers = q{SELECT count(dlock_acquire_shared('crowd', 'reader ' || i || repeat('r', 240), 600)) FROM generate_series(1, 3000) i};
is($watcher->query($readers), 3000, 'a name with many holders');

# How many pages a call has read.
sub pages
{
	my ($call) = @_;
	my $read = q{SELECT heap_blks_hit + heap_blks_read FROM pg_statio_all_tables WHERE relname = 'lease_table'};
	$c->query('SELECT pg_stat_force_next_flush()');
	my $before = $watcher->query($read);
	$call->();
	$c->query('SELECT pg_stat_force_next_flush()');
	return $watcher->query($read) - $before;
}

my $all = pages(sub { is($c->query(q{SELECT dlock_wait('crowd')}), 'f', 'a look at all holders') });
my $try = pages(sub { is($c->query(q{SELECT dlock_acquire('crowd', 'c', 600)}), '', 'a try') });
my $wait = pages(sub {
	$c->query(q{SET dlock.crash_point = 'queue: about to join'});
	$c->query('SET dlock.crash_stop = on');
	$c->send(q{SELECT dlock_acquire('crowd', 'c', 600, -1)});
	Processes::until_stopped($c->{pid});
	$watcher->query("SELECT pg_cancel_backend($c->{pid})");
	kill 'CONT', $c->{pid};
	is($c->answer, '57014', 'a wait that is canceled as it begins');
});
note "$all pages for all holders, $try for a try, $wait for a wait";
cmp_ok($wait, '<', $try + $all / 2, '... does not read all holders for it once more');

$watcher->query("SELECT pg_cancel_backend($_->{pid})") for $a, $d;
is($_->answer, '57014', 'who waits gives up') for $a, $d;
$_->query("SELECT dlock_release_all('$_->{name}')") for $a, $b, $c, $d;

$_->quit for $a, $b, $c, $d, $watcher;
$node->stop;
done_testing();
