# A guarded lease and its waiters: they are served when the outcome of the guarding
# transaction is visible, not before, however the lease was lost.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('guard');
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', q{
synchronous_commit = off
# never there: a commit that waits for it does not end
synchronous_standby_names = 'nobody'
dlock.log_expired = off
dlock.max_guards = 8
});
$node->start;
$node->safe_psql('postgres', q{CREATE EXTENSION dlock; CREATE TABLE work (n int); INSERT INTO work VALUES (0)});
my $all = Sessions->new($node);
my ($holder, $waiter) = $all->open('a', 'b');
my $watcher = $all->{watcher};
my $token = qr/^\d{10,}$/;

# Loses the guarded lease in some way, ends the transaction in some way; returns
# what the waiter sees of it once it is served.
sub guarded
{
	my ($what, $lose, $end, $seen) = @_;
	my $n = $watcher->query('SELECT n FROM work');
	my $t = $holder->query(q{SELECT dlock_acquire('job', 'a', 600)});
	is($holder->query("BEGIN; SELECT dlock_guard('job', 'a', $t); UPDATE work SET n = n + 1"), '', "$what: guarded");
	$lose->();
	$waiter->send(q{SELECT dlock_acquire('job', 'b', 600, -1)});
	$all->waiting('b');
	is($watcher->query(q{SELECT dlock_acquire('job', 'c', 600)}), '', '... a single try is refused');
	is($watcher->query("SELECT dlock_blocking_pids($waiter->{pid})"), "{$holder->{pid}}", '... the waiter waits for the guard');
	is($watcher->query(q{SELECT dlock_acquire('another', 'c', 600) IS NOT NULL, dlock_release('another', 'c')}), 't|t',
		'... another name is not delayed');
	$all->until(q{SELECT clock_timestamp() > waiting_since + '0.3 s' FROM dlock.waiters}, 't');
	is($waiter->answered, 0, '... the waiter still waits');
	$end->();
	like($waiter->answer, $token, '... it is served at the end');
	is($waiter->query('SELECT n FROM work'), $n + $seen, '... and sees the outcome');
	is($waiter->query(q{SELECT dlock_release('job', 'b')}), 't', '... and leaves');
	return;
}
my %lose = (
	'expired' => sub { $holder->query(q{SELECT dlock_renew('job', 'a', 0.01), dlock_wait('job', -1)}) },
	'released' => sub { $holder->query(q{SELECT dlock_release('job', 'a')}) },
	'released by another connection' => sub { $watcher->query(q{SELECT dlock_release('job', 'a')}) },
	'all released' => sub { $holder->query(q{SELECT dlock_release_all('a')}) },
	'force-released' => sub { $watcher->query(q{SELECT dlock_force_release('job')}) });
my %end = (
	'commit' => [ sub { $holder->query('COMMIT') }, 1 ],
	'rollback' => [ sub { $holder->query('ROLLBACK') }, 0 ],
	'error' => [ sub { $holder->query('SELECT 1 / 0'); $holder->query('ROLLBACK') }, 0 ],
	'cancel' => [ sub {
		$holder->send('SELECT pg_sleep(600)');
		$all->until("SELECT wait_event FROM pg_stat_activity WHERE pid = $holder->{pid}", 'PgSleep');
		$watcher->query("SELECT pg_cancel_backend($holder->{pid})");
		$holder->answer;
		$holder->query('ROLLBACK') }, 0 ],
	'terminate' => [ sub {
		$watcher->query("SELECT pg_terminate_backend($holder->{pid})");
		$holder->quit;
		($holder) = $all->open('a') }, 0 ]);
guarded("$_, then commit", $lose{$_}, @{ $end{commit} }) for sort keys %lose;
guarded("released, then $_", $lose{released}, @{ $end{$_} }) for sort grep { $_ ne 'commit' } keys %end;

# A reader does not wait for another reader's guard, but for the writer ahead of it.
{
	my ($reader) = $all->open('c');
	my $t = $holder->query(q{SELECT dlock_acquire_shared('job', 'a', 600)});
	is($holder->query("BEGIN; SELECT dlock_guard('job', 'a', $t)"), '', 'a reader guards');
	for my $lost (0, 1)
	{
		$holder->query(q{SELECT dlock_release('job', 'a')}) if $lost;
		$waiter->send(q{SELECT dlock_acquire('job', 'b', 600, -1)});
		$all->waiting('b');
		$reader->send(q{SELECT dlock_acquire_shared('job', 'c', 600, -1)});
		$all->waiting('b', 'c');
		is($watcher->query("SELECT dlock_blocking_pids($waiter->{pid})"), "{$holder->{pid}}", '... a writer waits for it');
		is($watcher->query("SELECT dlock_blocking_pids($reader->{pid})"), "{$waiter->{pid}}", '... a reader for that writer only');
		$watcher->query("SELECT pg_cancel_backend($waiter->{pid})");
		$waiter->answer;
		like($reader->answer, $token, '... and has it when the writer leaves');
		is($reader->query(q{SELECT dlock_release('job', 'c')}), 't', '... and leaves');
	}
	$holder->query('COMMIT');
	$reader->quit;
}

# dlock_acquire_xact(): served at the transaction's end, and sees the outcome
for my $how ('COMMIT', 'ROLLBACK')
{
	my $n = $watcher->query('SELECT n FROM work');
	like($holder->query(q{BEGIN; SELECT dlock_acquire_xact('job', 'a', 0.01)}), $token, 'a transaction\'s lease');
	$holder->query('UPDATE work SET n = n + 1');
	$waiter->send(q{SELECT dlock_acquire('job', 'b', 600, -1)});
	$all->waiting('b');
	$all->until(q{SELECT clock_timestamp() > waiting_since + '0.3 s' FROM dlock.waiters}, 't');
	is($waiter->answered, 0, 'the waiter waits beyond the time to live');
	$holder->query($how);
	like($waiter->answer, $token, "it is served at the $how");
	is($waiter->query('SELECT n FROM work'), $n + ($how eq 'COMMIT' ? 1 : 0), '... and sees the outcome');
	is($waiter->query(q{SELECT dlock_release('job', 'b')}), 't', '... and leaves');
}
is($holder->query(q{SELECT dlock_acquire_xact('job', 'a', 600) IS NULL, dlock_is_free('job')}), 'f|f', 'in a statement of its own');
is($watcher->query(q{SELECT dlock_is_free('job')}), 't', '... until it ends');

# A transaction's lease while its commit cannot be seen yet: other transactions of the same
# owner wait for that too, and so does dlock_wait(), however the lease ended.
{
	my %early = (
		'it commits' => '',
		'it has released' => q{SELECT dlock_release('job', 'a');},
		'it was evicted' => q{SELECT dlock_force_release('job');});
	my ($acquirer, $sharer) = $all->open('acquirer', 'sharer');

	for my $what (sort keys %early)
	{
		my $n = $watcher->query('SELECT n FROM work');

		like($holder->query(q{BEGIN; SELECT dlock_acquire_xact('job', 'a', 600)}), $token, "$what: a transaction\'s lease");
		is($watcher->query(q{SELECT dlock_wait('job')}), 'f', '... has not ended');
		$holder->query("UPDATE work SET n = n + 1; $early{$what} SET LOCAL synchronous_commit = on");
		$holder->send('COMMIT');
		$all->until("SELECT wait_event FROM pg_stat_activity WHERE pid = $holder->{pid}", 'SyncRep');
		is($watcher->query(q{SELECT dlock_acquire('job', 'a', 600)}), '', '... the same owner does not get it');
		is($watcher->query(q{SELECT dlock_acquire_xact('job', 'a', 600)}), '', '... nor in a transaction');
		is($watcher->query(q{SELECT * FROM dlock_acquire_any('{job,other}', 'a', 600, 2)}) =~ /job/ ? 1 : 0, 0, '... nor with others');
		is($watcher->query(q{SELECT dlock_renew('job', 'a', 600) IS NULL}), 't', '... and nobody can renew it');
		is($watcher->query(q{SELECT dlock_release_all('a')}), 1, '... the other is released');
		$_->query('BEGIN') for $acquirer, $sharer;
		$acquirer->send(q{SELECT dlock_acquire_xact('job', 'a', 600, -1)});
		$all->waiting('acquirer');
		$sharer->send(q{SELECT dlock_acquire_xact_shared('job', 'a', 600, -1)});
		$waiter->send(q{SELECT dlock_wait('job', -1)});
		$all->until('SELECT count(*) FROM dlock.waiters', 3);
		is($watcher->query("SELECT dlock_blocking_pids($acquirer->{pid})"), "{$holder->{pid}}", '... an acquire waits for the commit');
		ok($watcher->query("SELECT dlock_blocking_pids($sharer->{pid})") =~ /\b$holder->{pid}\b/, '... so does a shared one');
		$all->until(q{SELECT max(clock_timestamp() - waiting_since) > '0.3 s' FROM dlock.waiters}, 't');
		is($_->answered, 0, "... $_->{name} still waits") for $acquirer, $sharer, $waiter;
		$watcher->query("SELECT pg_cancel_backend($holder->{pid})");
		is($holder->answer, '', '... the commit ends');
		like($acquirer->answer, $token, '... it is served at the end');
		is($acquirer->query('SELECT n FROM work'), $n + 1, '... and sees the outcome');
		is($waiter->answer, 't', '... dlock_wait() too');
		is($waiter->query('SELECT n FROM work'), $n + 1, '... and sees the outcome');
		is($acquirer->query('COMMIT'), '', '... it leaves');
		like($sharer->answer, $token, '... the next is served');
		is($sharer->query('COMMIT'), '', '... and leaves');
	}
	$_->quit for $acquirer, $sharer;
}
# its own transaction is not in its own way
is($holder->query(q{BEGIN; SELECT dlock_acquire_xact('job', 'a', 600) > 0, dlock_release('job', 'a'), dlock_wait('job'),
	dlock_acquire_xact('job', 'a', 600) > 0; COMMIT}), 't|t|t|t', 'a transaction takes again what it has released');

# Counting under transaction leases, read and written in one transaction: exact, for
# several owners and for one.
$watcher->query(q{
	CREATE PROCEDURE count_up(who text, rounds int) LANGUAGE plpgsql AS $$
	DECLARE
		old int;
	BEGIN
		FOR i IN 1..rounds LOOP
			IF dlock_acquire_xact('counter', who, 0.001, -1) IS NULL THEN RAISE 'not taken'; END IF;
			SELECT n INTO STRICT old FROM work;
			UPDATE work SET n = old + 1;
			IF i % 7 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
		END LOOP;
	END $$});
my @workers = $all->open(map { "w$_" } 1 .. 4);
for my $owner (undef, 'one')
{
	$watcher->query('UPDATE work SET n = 0');
	$_->send(sprintf("CALL count_up('%s', 140)", $owner // $_->{name})) for @workers;
	is($_->answer, '', "$_->{name} has counted") for @workers;
	is($watcher->query('SELECT n FROM work'), 4 * 120, 'the counter is exact');
}

# scenarios 22 and 23: holders that lose their lease all the time, in
# transactions that guard: what was committed was counted.  Every other time
# they have it for long enough, on a slow server too.
$watcher->query('UPDATE work SET n = 0');
my ($committed, $lost) = (0, 0);
for my $round (1 .. 60)
{
	my @take = @workers[ 0, 1 ];
	my $ttl = $round % 2 ? 0.004 : 60;
	for my $session (@take)
	{
		$session->send(qq{SELECT dlock_acquire('counter', '$session->{name}', $ttl, -1) AS t, pg_sleep(random() * 0.008) AS z \\gset
BEGIN;
SELECT dlock_guard('counter', '$session->{name}', :t);
SELECT n AS old, pg_sleep(random() * 0.008) AS z FROM work \\gset
UPDATE work SET n = :old + 1;
\\if :ERROR
\\else
SELECT dlock_release('counter', '$session->{name}', :t) AS r \\gset
\\endif
COMMIT;
SELECT :'ERROR'});
	}
	for my $session (@take)
	{
		$session->answer;
		$session->error =~ /no longer holds/ ? $lost++ : $committed++;
	}
}
is($watcher->query('SELECT n FROM work'), $committed, 'every transaction that committed is counted');
cmp_ok($committed, '>', 0, "some committed ($committed)");
cmp_ok($lost, '>', 0, "some had lost their lease ($lost)");

# too many guards: 53400, and the transaction can go on without
$holder->query(q{SELECT dlock_acquire('g' || i, 'a', 600) FROM generate_series(1, 6) i});
is($holder->query(q{BEGIN; SAVEPOINT s; SELECT count(dlock_guard(name, owner, token)::text) FROM dlock.locks WHERE name ~ '^g\d'}),
	'53400', 'six guards where a role can have half of eight, and a transaction\'s first');
like($holder->error, qr/too many leases are guarded.*HINT:.*dlock\.max_guards/s, '... with a hint');
is($holder->query(q{ROLLBACK TO s; SELECT dlock_owner('g1')}), 'a', 'nothing is lost');
is($holder->query(q{COMMIT; BEGIN; SELECT count(dlock_guard(name, owner, token)::text) FROM dlock.locks WHERE name ~ '^g[1-5]'; COMMIT}),
	'5', 'five are possible after the transaction\'s end');
is($holder->query(q{SELECT dlock_release_all('a')}), 6, 'all are released');

# A table with a guard is not dropped: the next would know nothing of the guard.
for my $way ('EXTENSION dlock', 'EXTENSION dlock CASCADE')
{
	$watcher->query('BEGIN');
	$holder->query('BEGIN');
	is($holder->query(q{SELECT dlock_guard('old', 'a', dlock_acquire('old', 'a', 600))}), '', 'guarded');
	is($holder->query(q{SELECT dlock_release('old', 'a')}), 't', '... and given back');
	is($watcher->query("DROP $way"), '55006', "DROP $way is refused");
	like($watcher->error, qr/DETAIL:\s+Process $holder->{pid} does\./, '... and says who guards');
	is($watcher->query(q{ROLLBACK; SELECT dlock_is_free('old')}), 'f', 'the guard stands');
	is($holder->query(q{COMMIT; SELECT dlock_is_free('old')}), 't', '... and ends');
}
# its own goes with the table
$holder->query('BEGIN');
is($holder->query(q{SELECT dlock_guard('old', 'a', dlock_acquire('old', 'a', 600))}), '', 'guarded');
is($holder->query('DROP EXTENSION dlock; CREATE EXTENSION dlock; COMMIT'), '', 'a transaction may drop what it guards');
is($watcher->query(q{SELECT dlock_is_free('old'), count(*), (SELECT count(*) FROM dlock_holders('old')) FROM dlock.locks}),
	't|0|0', 'with a new table it is shown nowhere');
# other databases have tables of their own
$watcher->query('CREATE DATABASE other_one TEMPLATE template0');
my ($other) = Sessions->new($node, 'other_one')->{watcher};
is($other->query('CREATE EXTENSION dlock'), '', 'another database has it');
$holder->query('BEGIN');
is($holder->query(q{SELECT dlock_guard('old', 'a', dlock_acquire('old', 'a', 600))}), '', 'guarded');
is($other->query('DROP EXTENSION dlock'), '', 'and drops it');
is($holder->query('COMMIT'), '', 'the guard ends');
$other->quit;

$_->quit for $holder, $waiter, @workers, $watcher;
$node->stop;
done_testing();
