# Session leases and their waiters, which are served when the session ends, in
# whatever way.  And two calls that wait without a place of their own: dlock_wait(),
# and dlock_acquire_all() for the names that are busy.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('sessions');
$node->init;
$node->append_conf('postgresql.conf', q{
synchronous_commit = off
restart_after_crash = on
dlock.log_expired = off
dlock.reap_interval = '1h'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
my $all = Sessions->new($node);
my ($holder, $waiter, $other) = $all->open('a', 'b', 'c');
my $watcher = $all->{watcher};
my $token = qr/^\d{10,}$/;

# A session lease with a short time to live is waited for until the session ends.
sub ends
{
	my ($what, $end) = @_;
	my $t = $holder->query(q{SELECT dlock_acquire_session('job', 'a', 0.01)});
	like($t, $token, "$what: a session's lease");
	$waiter->send(q{SELECT dlock_acquire('job', 'b', 600, -1)});
	$all->waiting('b');
	$all->until(q{SELECT clock_timestamp() > waiting_since + '0.3 s' FROM dlock.waiters}, 't');
	is($waiter->answered, 0, '... is waited for beyond its time to live');
	is($watcher->query("SELECT dlock_blocking_pids($waiter->{pid})"), "{$holder->{pid}}", '... the waiter waits for that session');
	$end->();
	my $t2 = $waiter->answer;
	like($t2, $token, '... the waiter is served at its end');
	cmp_ok($t2, '>', $t, '... with a larger token');
	is($watcher->query(qq{SELECT dlock_renew('job', 'a', 600, $t), dlock_release('job', 'b')}), 'f|t', '... the old holder has lost it');
	($holder) = $all->open('a');
	return;
}
ends('quit', sub { $holder->quit });
ends('terminate', sub { $watcher->query("SELECT pg_terminate_backend($holder->{pid})") });
ends('client gone', sub { $holder->kill });
ends('release', sub { $holder->query(q{SELECT dlock_release('job', 'a')}) });
ends('release by another connection', sub { $watcher->query(q{SELECT dlock_release('job', 'a')}) });
ends('DISCARD ALL', sub { $holder->query('DISCARD ALL') });
ends('force-release', sub { $watcher->query(q{SELECT dlock_force_release('job')}) });
ends('quit in a transaction', sub { $holder->query('BEGIN; SELECT 1'); $holder->quit });

# waiting for a session lease, and the waiter's session takes it for itself
like($holder->query(q{SELECT dlock_acquire('job', 'a', 600)}), $token, 'a plain lease');
$waiter->send(q{SELECT dlock_acquire_session('job', 'b', 0.01, -1)});
$all->waiting('b');
is($holder->query(q{SELECT dlock_release('job', 'a')}), 't', 'is released');
like($waiter->answer, $token, 'the waiting session is served');
$other->send(q{SELECT dlock_acquire('job', 'c', 600, -1)});
$all->waiting('c');
$all->until(q{SELECT clock_timestamp() > waiting_since + '0.3 s' FROM dlock.waiters}, 't');
is($other->answered, 0, '... its lease lives as long as it does');
$waiter->quit;
like($other->answer, $token, '... and ends with it');
is($other->query(q{SELECT dlock_release('job', 'c')}), 't', 'c leaves');
($waiter) = $all->open('b');

# the waiter for a session lease dies while it waits: nothing is left
like($holder->query(q{SELECT dlock_acquire('job', 'a', 600)}), $token, 'a plain lease');
$waiter->send(q{SELECT dlock_acquire_session('job', 'b', 600, -1)});
$all->waiting('b');
$watcher->query("SELECT pg_terminate_backend($waiter->{pid})");
is($waiter->answer, 'gone', 'the waiting session dies');
$all->waiting();
is($holder->query(q{SELECT dlock_release('job', 'a'), dlock_is_free('job')}), 't|t', 'the name is free');
($waiter) = $all->open('b');

# dlock_wait(): every hold that was there at the call, and no other
$holder->query(q{SELECT dlock_acquire_shared('doc', 'r1', 600), dlock_acquire_shared('doc', 'r2', 600)});
$waiter->send(q{SELECT dlock_wait('doc', -1)});
$all->until('SELECT waiters FROM dlock.stats', 1);
is($holder->query(q{SELECT dlock_acquire_shared('doc', 'r3', 600) IS NOT NULL, dlock_release('doc', 'r1')}), 't|t',
	'one of two ends, a third comes');
is($holder->query(q{SELECT dlock_renew('doc', 'r2', 600)}), 't', 'the second renews');
is($waiter->answered, 0, 'dlock_wait() still waits');
is($holder->query(q{SELECT dlock_release('doc', 'r2')}), 't', 'the second ends');
is($waiter->answer, 't', '... and dlock_wait() is done, although the name is held');
is($watcher->query(q{SELECT dlock_is_free('doc'), dlock_release('doc', 'r3')}), 'f|t', '... by the third');
for my $case (
	[ 'eviction', sub { $watcher->query(q{SELECT dlock_force_release('job')}) }, 't' ],
	[ 'shortened and expired', sub { $holder->query(q{SELECT dlock_renew('job', 'a', 0.01)}) }, 't' ],
	[ 'cancel', sub { $watcher->query("SELECT pg_cancel_backend($waiter->{pid})") }, '57014' ])
{
	my ($what, $act, $answer) = @$case;
	like($holder->query(q{SELECT dlock_acquire('job', 'a', 600)}), $token, 'held');
	$waiter->send(q{SELECT dlock_wait('job', -1)});
	$all->until('SELECT waiters FROM dlock.stats', 1);
	is($holder->query(q{SELECT dlock_acquire('job', 'a', 600) IS NOT NULL, dlock_release('job', 'a')}), 't|t', 'one of two holds is given back');
	is($waiter->answered, 0, 'dlock_wait() still waits');
	$act->();
	is($waiter->answer, $answer, "dlock_wait(), $what");
	is($all->until('SELECT waiters FROM dlock.stats', 0), 0, '... waits no longer');
	$holder->query(q{SELECT dlock_release('job', 'a')});
}
# a queue passes it by: the name goes to the waiter, dlock_wait() is done
like($holder->query(q{SELECT dlock_acquire('job', 'a', 600)}), $token, 'held');
$waiter->send(q{SELECT dlock_wait('job', -1)});
$all->until('SELECT waiters FROM dlock.stats', 1);
$other->send(q{SELECT dlock_acquire('job', 'c', 600, -1)});
$all->until('SELECT waiters FROM dlock.stats', 2);
is($holder->query(q{SELECT dlock_release('job', 'a')}), 't', 'released');
like($other->answer, $token, 'the queue is served');
is($waiter->answer, 't', 'and dlock_wait() is done');
is($other->query(q{SELECT dlock_release('job', 'c')}), 't', 'c leaves');

# dlock_acquire_all() waits for one busy name at a time, holding nothing
like($holder->query(q{SELECT dlock_acquire(n, 'a', 600) FROM unnest('{x,y}'::text[]) n OFFSET 1}), $token, 'two names are busy');
$waiter->send(q{SELECT array_length(dlock_acquire_all('{w,x,y,z}', 'b', 600, -1), 1)});
$all->until('SELECT waiters FROM dlock.stats', 1);
is($watcher->query(q{SELECT dlock_is_free('w'), dlock_is_free('z')}), 't|t', 'nothing is held while waiting');
is($watcher->query(q{SELECT dlock_acquire('z', 'w', 600) IS NOT NULL, dlock_release('z', 'w')}), 't|t', '... and others may take that');
is($holder->query(q{SELECT dlock_release('x', 'a')}), 't', 'one is released');
is($all->until(q{SELECT name FROM dlock.waiters}, 'y'), 'y', '... now it waits for the other');
is($watcher->query(q{SELECT dlock_is_free('w'), dlock_is_free('x'), dlock_is_free('z')}), 't|t|t', '... holding nothing');
is($holder->query(q{SELECT dlock_release('y', 'a')}), 't', 'the other is released');
is($waiter->answer, 4, 'all are taken');
is($watcher->query(q{SELECT count(*) FROM dlock.locks WHERE owner = 'b' AND version = 1}), 4, '... once each');
is($waiter->query(q{SELECT dlock_release_all('b')}), 4, '... and released');
# cancelled while it waits: none is taken
like($holder->query(q{SELECT dlock_acquire('y', 'a', 600)}), $token, 'one name is busy');
$waiter->send(q{SELECT dlock_acquire_all('{w,x,y,z}', 'b', 600, -1)});
$all->until('SELECT waiters FROM dlock.stats', 1);
$watcher->query("SELECT pg_cancel_backend($waiter->{pid})");
is($waiter->answer, '57014', 'cancelled while it waits');
is($watcher->query(q{SELECT name, owner FROM dlock.locks}), 'y|a', 'nothing is taken');
is($holder->query(q{SELECT dlock_release('y', 'a')}), 't', 'released');

# one backend is killed, the server starts again: waiters are gone, plain leases
# stay, and a session lease ends by its time to live
like($holder->query(q{SELECT dlock_acquire_session('short', 'a', 0.5)}), $token, 'a session lease with a short time to live');
like($holder->query(q{SELECT dlock_acquire_session('long', 'a', 600)}), $token, '... and one with a long one');
like($holder->query(q{SELECT dlock_acquire('plain', 'a', 600)}), $token, '... and a plain lease');
$holder->query('SELECT pg_switch_wal()');
$waiter->send(q{SELECT dlock_acquire('plain', 'b', 600, -1)});
$all->waiting('b');
Processes::crash_postgres($node, $other->{pid});
is($waiter->answer, 'gone', 'the server goes down');
$_->quit for $holder, $other, $watcher;
$all = Sessions->new($node);
$watcher = $all->{watcher};
is($watcher->query('SELECT count(*) FROM dlock.waiters'), 0, 'nobody waits');
is($watcher->query(q{SELECT dlock_owner('plain')}), 'a', 'the plain lease is held');
like($watcher->query(q{SELECT dlock_acquire('short', 'c', 600, -1)}), $token, 'the short one ends by its time to live');
is($watcher->query(q{SELECT dlock_owner('long'), dlock_acquire('long', 'c', 600)}), 'a|', 'the long one is held for its time to live');

$watcher->quit;
$node->stop;
done_testing();
