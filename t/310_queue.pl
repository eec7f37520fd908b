# The queue of a name: first come, first served, nobody overtakes, one wake-up
# for each grant, readers together, permits as they come free; and what
# dlock.waiters and dlock_blocking_pids() show of it.  Scenarios 9, 10, 11, 12
# and 14.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('queue');
$node->init;
$node->append_conf('postgresql.conf', q{
synchronous_commit = off
dlock.log_expired = off
dlock.reap_interval = '1h'
# of which one role can have nine
dlock.max_waiters = 17
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
my $all = Sessions->new($node);
my ($a, $b, $c, $d, @more) = $all->open('a', 'b', 'c', 'd', map { "w$_" } 1 .. 8);
my $watcher = $all->{watcher};
my $token = qr/^\d{10,}$/;

sub holds
{
	my ($session, $call) = @_;
	like($session->query("SELECT $call"), $token, "$session->{name} takes $call");
	return;
}

# Start waiting, behind those who do.
sub queue_up
{
	my ($call, @sessions) = @_;
	my @waiting = split / /, $watcher->query(q{SELECT string_agg(application_name, ' '
		ORDER BY waiting_since, "position") FROM dlock.waiters});
	for my $session (@sessions)
	{
		$session->send('SELECT ' . $call =~ s/ME/'$session->{name}'/r);
		push @waiting, $session->{name};
		$all->waiting(@waiting);
	}
	return;
}

sub holders
{
	return $watcher->query(q{SELECT coalesce(string_agg(owner, ' ' ORDER BY owner), '') FROM dlock_holders('job')});
}

# What is seen of a queue.
my $began = $watcher->query('SELECT clock_timestamp()');
holds($a, q{dlock_acquire('job', 'a', 600)});
queue_up(q{dlock_acquire('job', ME, 600, -1)}, $b, $c);
queue_up(q{dlock_acquire_shared('job', ME, 600, -1)}, $d);
is($watcher->query(qq{SELECT name, owner, mode, "position", role, pid, application_name, client_addr,
	waiting_since BETWEEN '$began' AND clock_timestamp() FROM dlock.waiters ORDER BY "position"}),
	join("\n", map { "job|$_->[0]->{name}|$_->[1]|$_->[2]|" . $watcher->query('SELECT current_user') . "|$_->[0]->{pid}|$_->[0]->{name}|"
		. $watcher->query('SELECT client_addr FROM pg_stat_activity WHERE pid = pg_backend_pid()') . '|t' }
		[ $b, 'exclusive', 1 ], [ $c, 'exclusive', 2 ], [ $d, 'shared', 3 ]),
	'dlock.waiters shows all about the waiters');
is($watcher->query('SELECT waiters FROM dlock.stats'), 3, 'dlock.stats shows how many');
is($watcher->query("SELECT dlock_blocking_pids($b->{pid})"), "{$a->{pid}}", 'the first waits for the holder');
is($watcher->query("SELECT $a->{pid} = ANY (dlock_blocking_pids($c->{pid})) OR $b->{pid} = ANY (dlock_blocking_pids($c->{pid}))"),
	't', 'the second for those before it');
is($watcher->query("SELECT dlock_blocking_pids($a->{pid})"), '{}', 'the holder for nobody');
# while it sleeps: once a second it looks about
my $event = $node->pg_version >= 17 ? 'Extension DlockLease' : 'Extension Extension';
is($all->until("SELECT wait_event_type || ' ' || wait_event FROM pg_stat_activity
	WHERE wait_event_type IS NOT NULL AND pid = $b->{pid}", $event), $event, 'a waiter has a wait event');
# a stranger sees that they wait, not who
is($watcher->query(q{CREATE ROLE stranger; SET ROLE stranger;
	SELECT name, owner, mode, "position", pid, application_name, client_addr FROM dlock.waiters WHERE "position" = 1; RESET ROLE}),
	'job|<insufficient privilege>|exclusive|1||<insufficient privilege>|<insufficient privilege>',
	'owners and clients are hidden from strangers');

# No barging: a newcomer's single try is refused although the name is free for a
# moment, whatever its mode; also the old holder's.  The holder itself re-enters.
is($a->query(q{SELECT dlock_acquire('job', 'a', 600) IS NOT NULL, dlock_release('job', 'a'), dlock_release('job', 'a')}),
	't|t|t', 'a re-enters past the queue, and leaves');
like($b->answer, $token, 'b is served first');
$all->waiting('c', 'd');
is($a->query(q{SELECT dlock_acquire('job', 'a', 600)}), '', 'a would be behind c');
is($b->query(q{SELECT dlock_release('job', 'b')}), 't', 'b releases');
like($c->answer, $token, 'c is served second');
is($c->query(q{SELECT dlock_release('job', 'c')}), 't', 'c releases');
like($d->answer, $token, 'd is served last');
is($d->query(q{SELECT dlock_release('job', 'd')}), 't', 'd releases');

# scenario 12: readers share; a queued writer holds back new readers
holds($a, q{dlock_acquire_shared('job', 'a', 600)});
holds($b, q{dlock_acquire_shared('job', 'b', 600)});
queue_up(q{dlock_acquire('job', ME, 600, -1)}, $c);
is($d->query(q{SELECT dlock_acquire_shared('job', 'd', 600)}), '', 'a new reader does not overtake the writer');
is($a->query(q{SELECT dlock_acquire_shared('job', 'a', 600) IS NOT NULL, dlock_release('job', 'a')}), 't|t', 'an old one may re-enter');
queue_up(q{dlock_acquire_shared('job', ME, 600, -1)}, $d, $more[0]);
queue_up(q{dlock_acquire('job', ME, 600, -1)}, $more[1]);
queue_up(q{dlock_acquire_shared('job', ME, 600, -1)}, $more[2]);
is($a->query(q{SELECT dlock_release('job', 'a')}), 't', 'one reader leaves');
$all->waiting('c', 'd', 'w1', 'w2', 'w3');
is($b->query(q{SELECT dlock_release('job', 'b')}), 't', 'the last reader leaves');
like($c->answer, $token, 'the writer is in');
is(holders(), 'c', '... alone');
my $woken = $watcher->query('SELECT woken FROM dlock.stats');
is($c->query(q{SELECT dlock_release('job', 'c')}), 't', 'the writer leaves');
like($_->answer, $token, "$_->{name} reads") for $d, $more[0];
$all->waiting('w2', 'w3');
is(holders(), 'd w1', 'the readers at the head came in together, those behind the next writer did not');
is($watcher->query('SELECT woken FROM dlock.stats') - $woken, 2, '... with one wake-up each');
# a writer that gives up lets the readers behind it in
$watcher->query("SELECT pg_cancel_backend($more[1]->{pid})");
is($more[1]->answer, '57014', 'the next writer gives up');
like($more[2]->answer, $token, '... and the reader behind it comes in at once');
is(holders(), 'd w1 w3', '... beside the others');
is($watcher->query(q{SELECT dlock_force_release('job')}), 3, 'all are evicted');

# scenario 14: permits, as they come free
holds($a, q{dlock_acquire_permit('job', 'a', 600, 2)});
holds($b, q{dlock_acquire_permit('job', 'b', 600, 2)});
queue_up(q{dlock_acquire_permit('job', ME, 600, 2, -1)}, $c, $d);
is($more[0]->query(q{SELECT dlock_acquire_permit('job', 'w1', 600, 9)}), '', 'even with a higher limit nobody overtakes');
is($a->query(q{SELECT dlock_release('job', 'a')}), 't', 'one is given back');
like($c->answer, $token, 'c has it');
$all->waiting('d');
is($b->query(q{SELECT dlock_renew('job', 'b', 0.01)}), 't', 'one is about to expire');
like($d->answer, $token, 'd has it');
# a holder of a permit queues for one more
queue_up(q{dlock_acquire_permit('job', ME, 600, 2, -1)}, $c);
is($d->query(q{SELECT dlock_release('job', 'd')}), 't', 'd gives its back');
like($c->answer, $token, 'c has two');
is($watcher->query(q{SELECT version FROM dlock_holders('job')}), 2, '... of one holder');
# a raised limit counts: the waiter with the higher limit, at the head, is let in
queue_up(q{dlock_acquire_permit('job', ME, 600, 2, -1)}, $a);
queue_up(q{dlock_acquire_permit('job', ME, 600, 3, -1)}, $b);
$watcher->query("SELECT pg_cancel_backend($a->{pid})");
is($a->answer, '57014', 'the one with the lower limit gives up');
like($b->answer, $token, 'the next has a higher limit and is let in');
is($watcher->query(q{SELECT dlock_force_release('job')}), 2, 'both are evicted');

# scenario 11: many wait, one release: one wakes
holds($a, q{dlock_acquire('job', 'a', 600)});
queue_up(q{dlock_acquire('job', ME, 600, -1)}, @more);
$woken = $watcher->query('SELECT woken FROM dlock.stats');
is($a->query(q{SELECT dlock_release('job', 'a')}), 't', 'one releases');
like($more[0]->answer, $token, 'one is served');
$all->waiting(map { $_->{name} } @more[ 1 .. 7 ]);
is($watcher->query('SELECT woken FROM dlock.stats') - $woken, 1, '... and one was woken, of eight');
is(join(' ', grep { $_->answered } @more[ 1 .. 7 ]), '', '... the others sleep on');
for my $i (0 .. 6)
{
	$more[$i]->query("SELECT dlock_release('job', 'w" . ($i + 1) . "')");
	like($more[ $i + 1 ]->answer, $token, 'w' . ($i + 2) . ' is next');
}
is($watcher->query('SELECT woken FROM dlock.stats') - $woken, 8, '... eight were woken in all');
is($more[7]->query(q{SELECT dlock_release('job', 'w8')}), 't', 'the last one leaves');

# scenario 10: nobody releases: served in the order of arrival, each at the
# deadline of the one before
holds($a, q{dlock_acquire('job', 'a', 600)});
queue_up(q{dlock_acquire('job', ME, 0.2, -1)}, @more);
is($a->query(q{SELECT dlock_renew('job', 'a', 0.2)}), 't', 'the first lease is to end');
my @tokens = map { $_->answer } @more;
is(scalar(grep { $_ =~ $token } @tokens), 8, 'eight are served without a release');
is_deeply([ sort @tokens ], \@tokens, '... in the order in which they came');

# scenario 9: the head dies, the next is not forgotten
is($watcher->query(q{SELECT dlock_wait('job', -1)}), 't', 'all have expired');
holds($a, q{dlock_acquire('job', 'a', 600)});
queue_up(q{dlock_acquire('job', ME, 600, -1)}, $b, $c, $d);
$watcher->query("SELECT pg_terminate_backend($c->{pid})");
is($c->answer, 'gone', 'the second is killed');
$watcher->query("SELECT pg_terminate_backend($b->{pid})");
is($b->answer, 'gone', 'the first is killed');
$all->waiting('d');
is($watcher->query('SELECT "position" FROM dlock.waiters'), 1, 'the third is first now');
is($a->query(q{SELECT dlock_release('job', 'a')}), 't', 'the holder releases');
like($d->answer, $token, 'the third is served');
is($d->query(q{SELECT dlock_release('job', 'd')}), 't', '... and leaves');
($b, $c) = $all->open('b', 'c');

# queues of different names have nothing to do with each other
holds($a, q{dlock_acquire('job', 'a', 600)});
holds($a, q{dlock_acquire('job 2', 'a', 600)});
queue_up(q{dlock_acquire('job', ME, 600, -1)}, $b);
queue_up(q{dlock_acquire('job 2', ME, 600, -1)}, $c);
is($watcher->query(q{SELECT string_agg(name || ' ' || "position", ', ' ORDER BY name) FROM dlock.waiters}),
	'job 1, job 2 1', 'each is first in its queue');
is($a->query(q{SELECT dlock_release('job 2', 'a')}), 't', 'one name is released');
like($c->answer, $token, 'its waiter is served');
$all->waiting('b');
is($a->query(q{SELECT dlock_release('job', 'a')}), 't', 'the other is released');
like($b->answer, $token, 'its waiter is served');
is($b->query(q{SELECT dlock_release('job', 'b')}), 't', 'b leaves');
is($c->query(q{SELECT dlock_release('job 2', 'c')}), 't', 'c leaves');

# A lock delay that is changed reaches those who wait already, both ways.
sub set_delay
{
	my ($delay) = @_;

	$node->append_conf('postgresql.conf', "dlock.lock_delay = $delay");
	$node->reload;
	$all->until('SHOW dlock.lock_delay', $delay eq '0' ? '0' : '1h');
	return;
}

sub expire
{
	my ($session, $name) = @_;

	is($session->query("SELECT dlock_renew('$name', '$session->{name}', 0.01)"), 't', "the lease on $name is to end");
	is($all->until("SELECT expires_at < clock_timestamp() FROM dlock_holders('$name')", 't'), 't', '... and does');
	return;
}

# The waiter knows when the lease will be over, and is told of the delay before.  On a busy
# machine that may come too late: then the lease gets more.
my $in_time = 0;
for (my $ttl = 1; !$in_time; $ttl *= 2)
{
	set_delay('0');
	holds($a, q{dlock_acquire('job', 'a', 600)});
	queue_up(q{dlock_acquire('job', ME, 600, -1)}, $b);
	is($a->query("SELECT dlock_renew('job', 'a', $ttl)"), 't', 'a lease is to end');
	set_delay('1h');
	$in_time = $watcher->query(q{SELECT owner = 'a' AND expires_at > clock_timestamp() FROM dlock_holders('job')}) eq 't';
	next if $in_time;
	set_delay('0');
	$b->answer;
	$b->query(q{SELECT dlock_release('job', 'b')});
}
is($all->until(q{SELECT expires_at < clock_timestamp() FROM dlock_holders('job')}, 't'), 't', 'the lease ends');
is($c->query(q{SELECT dlock_acquire('job', 'c', 600)}), '', 'delayed: a newcomer is refused');
# knows the longer delay from its beginning
holds($c, q{dlock_acquire('job 2', 'c', 600)});
$d->query(q{LOAD 'dlock'});
is($d->query('SHOW dlock.lock_delay'), '1h', 'another knows the delay from the start');
$d->send(q{SELECT dlock_acquire('job 2', 'd', 600, -1)});
$all->waiting('b', 'd');
expire($c, 'job 2');
$all->waiting('b', 'd');
# all leases that are delayed are over for the reaper too, once nothing delays
holds($c, q{dlock_acquire('job 3', 'c', 0.01)});
is($all->until(q{SELECT expires_at < clock_timestamp() FROM dlock_holders('job 3')}, 't'), 't', 'one more is over');
my $reload = $watcher->query('SELECT clock_timestamp()');
set_delay('0');
for my $session ($b, $d)
{
	like($session->answer, $token, 'the end of the delay wakes a waiter');
	is( $watcher->query("SELECT acquired_at > '$reload' FROM dlock.locks WHERE owner = '$session->{name}'"),
		't', '... which was not served before');
}
$node->append_conf('postgresql.conf', 'dlock.reap_interval = 20ms');
$node->reload;
is($all->until(q{SELECT count(*) FROM dlock_holders('job 3')}, 0), 0, 'the reaper removes what is no longer delayed');
is($b->query(q{SELECT dlock_release('job', 'b')}), 't', 'one gives it back');
is($d->query(q{SELECT dlock_release('job 2', 'd')}), 't', 'the other too');
$node->append_conf('postgresql.conf', 'dlock.reap_interval = 1h');
$node->reload;

# too many: 53400, and nobody loses a place
holds($a, q{dlock_acquire('job', 'a', 600)});
queue_up(q{dlock_acquire('job', ME, 600, -1)}, @more, $b);
is($c->query(q{SELECT dlock_acquire('job', 'c', 600, -1)}), '53400', 'the tenth waiter of nine is refused');
like($c->error, qr/too many sessions wait for leases.*HINT:.*dlock\.max_waiters/s, '... with a hint');
is($c->query(q{SELECT dlock_wait('job', -1)}), '53400', 'so is dlock_wait()');
is($c->query(q{SELECT dlock_acquire_all('{free,job}', 'c', 600, -1), dlock_is_free('free')}), '53400', 'and dlock_acquire_all()');
is($c->query(q{SELECT dlock_acquire('job', 'c', 600)}), '', 'a single try is answered');
holds($c, q{dlock_acquire('other', 'c', 600, -1)});
$all->waiting((map { $_->{name} } @more), 'b');
is($a->query(q{SELECT dlock_release('job', 'a')}), 't', 'the holder releases');
for my $session (@more, $b)
{
	like($session->answer, $token, "$session->{name} is served");
	is($session->query("SELECT dlock_release('job', '$session->{name}')"), 't', '... and leaves');
}
is($c->query(q{SELECT dlock_release('other', 'c')}), 't', 'the last lease is given back');
is($watcher->query('SELECT (SELECT count(*) FROM dlock.waiters), (SELECT waiters FROM dlock.stats), (SELECT count(*) FROM dlock.locks)'),
	'0|0|0', 'nothing is left');

$_->quit for $a, $b, $c, $d, @more, $watcher;
$node->stop;
done_testing();
