# A transaction has taken so many of PostgreSQL's own locks that its shared memory
# for locks is full.  Calls of dlock then answer correctly or raise 53200; no call
# grants a name that is not free, and all places to wait in and guards that are
# configured are usable.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Poll;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $out_of_memory = '53200';
my $is_token = qr/^\d{10,}$/;
my $places = 3;
my $guards = $places;    # besides the first of each transaction

my $node = PostgreSQL::Test::Cluster->new('locks_full');
$node->init;
$node->append_conf(
	'postgresql.conf', qq{
autovacuum = off
max_connections = 20
max_locks_per_transaction = 10
max_prepared_transactions = 0
dlock.reap_interval = '20ms'
# of which one role can have half
dlock.max_waiters = @{[2 * $places - 1]}
dlock.max_guards = $guards
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

# A backend has 16 places of its own for locks on tables that hardly anybody
# wants for himself; more than that go where all other locks are.
my $tables = 20;
$node->safe_psql('postgres', "CREATE TABLE t$_ ()") for 1 .. $tables;

# A new connection takes a lock too, so all are made now.
my $sessions = Sessions->new($node);
my ($hoarder, $client, $other) = $sessions->open(qw(hoarder client other));
my @many = $sessions->open(map { "s$_" } 1 .. $places + 1);
# one role may have two of three guards, and another the third
$client->query('CREATE ROLE another SUPERUSER');
$many[2]->query('SET ROLE another');

my $rows = q{SELECT string_agg(concat_ws(' ', name, owner, mode, kind, token, version), ', ' ORDER BY name, owner)
	FROM dlock_private.lease_table};

# dlock's workers, without a look at a table that all databases share
my $workers = q{SELECT count(*) FROM pg_stat_get_activity(NULL) WHERE backend_type = 'dlock worker'};

# Every kind of call once: what a session has not read yet of the catalogs that all
# databases share, it could not read without a lock.
sub warm_up
{
	my ($session) = @_;

	$session->query($_)
	  for q{SELECT dlock_acquire_all(ARRAY['x', 'y'], 'warm', 60)},
	  'BEGIN', q{SELECT dlock_guard(name, owner, token) FROM dlock.locks WHERE name = 'x'}, 'COMMIT',
	  q{SELECT dlock_renew('x', 'warm', 60), dlock_acquire('x', 'cold', 60)},
	  q{SELECT dlock_acquire('x', 'cold', 60, 0.001), dlock_wait('x', 0.001)},
	  q{SELECT dlock_release('x', 'warm'), dlock_release_all('warm')},
	  q{SELECT dlock_acquire_session('x', 'warm', 60), dlock_release('x', 'warm')},
	  q{SELECT dlock_acquire_xact('x', 'warm', 60)},
	  q{SELECT dlock_is_free('x'), dlock_owner('x')},
	  'SELECT count(*) FROM dlock.waiters', 'SELECT count(*) FROM dlock.stats',
	  q{SELECT string_agg(name, ' ' ORDER BY token, substr(name, 2)) FROM dlock.locks WHERE name ~ '^n\d'},
	  $workers, $rows;
	return;
}

# Take locks until there is no room for one more, but take none of dlock's.  The
# error is caught; locks of the session stay all the same.  dlock's worker takes a lock
# again and again for a moment, whose place must not come free later: if there is no room
# it ends, so more are taken until it is gone.
sub hoard
{
	$hoarder->query("LOCK TABLE t$_ IN ACCESS SHARE MODE") for 1 .. $tables;
	for (my ($round, $gone) = (1, 0); ; $round++)
	{
		is( $hoarder->query("
				DO \$\$
				BEGIN
					FOR i IN 1 .. 1000000 LOOP
						PERFORM pg_advisory_lock($round, i);
					END LOOP;
				EXCEPTION WHEN out_of_memory THEN
					NULL;
				END
				\$\$"), '', 'locks are taken until there is no room for more');
		last if $gone;
		$gone = Poll::until(2, sub { $client->query($workers) == 0 });
	}
	# a place may have come free, which is taken then
	my ($key, $answer) = (0, 't');
	$answer = $client->query('SELECT pg_try_advisory_lock(0, ' . ++$key . ')') while $answer eq 't' && $key < 100;
	is($answer, $out_of_memory, '... for others neither');
	return;
}

# ----------------------------------------------------------------
# Before
# ----------------------------------------------------------------

my %token;
for my $name (qw(mine kept extra))
{
	$token{$name} = $hoarder->query("SELECT dlock_acquire('$name', 'hoarder', 3600)");
	like($token{$name}, $is_token, "a lease on $name");
}
like($client->query(q{SELECT dlock_acquire_session('session', 'client', 3600)}), $is_token, 'one of a session');
$client->query("SELECT dlock_acquire('g$_', 'a', 3600), dlock_acquire('h$_', 'a', 3600), dlock_acquire('w$_', 'a', 3600)") for 1 .. $places + 1;
my $reaped = $client->query('SELECT reaped FROM dlock.stats');
warm_up($_) for $client, $other, @many, $sessions->{watcher};
$many[2]->query($_) for 'BEGIN', q{SELECT dlock_guard(name, owner, token) FROM dlock.locks WHERE name = 'g3'}, 'COMMIT';

is($sessions->until($workers, 1), 1, 'the worker is there');
$hoarder->query('BEGIN');
$hoarder->query(q{SELECT dlock_acquire_xact('transaction', 'hoarder', 3600)});
hoard();
my $before = $client->query($rows);

# ----------------------------------------------------------------
# The transaction itself
# ----------------------------------------------------------------

for my $call (
	q{dlock_acquire('new', 'hoarder', 3600)},
	q{dlock_acquire('w1', 'hoarder', 3600)},
	q{dlock_acquire('w1', 'hoarder', 3600, -1)},
	q{dlock_acquire('mine', 'hoarder', 3600)},
	q{dlock_acquire_shared('new', 'hoarder', 3600)},
	q{dlock_acquire_permit('new', 'hoarder', 3600, 2)},
	q{dlock_acquire_all(ARRAY['new', 'newer'], 'hoarder', 3600)},
	q{dlock_acquire_session('new', 'hoarder', 3600)},
	q{dlock_acquire_xact('new', 'hoarder', 3600)},
	qq{dlock_guard('mine', 'hoarder', $token{mine})},
	q{dlock_wait('mine', -1)},
	q{dlock_renew('mine', 'hoarder', 7200)},
	q{dlock_renew_all('hoarder', 7200)},
	q{dlock_release('mine', 'hoarder')},
	q{dlock_release_all('hoarder')},
	q{dlock_force_release('mine')},
	q{dlock_owner('mine')},
	q{dlock_is_free('mine')})
{
	$hoarder->query('SAVEPOINT s');
	is($hoarder->query("SELECT $call"), $out_of_memory, "its own $call: an error");
	$hoarder->query('ROLLBACK TO s');
}
is($client->query($rows), $before, 'which has changed nothing');
is($client->query('SELECT count(*) FROM dlock.waiters'), 0, 'nobody waits');

# ----------------------------------------------------------------
# Other sessions
# ----------------------------------------------------------------

my $token = $client->query(q{SELECT dlock_acquire('new', 'client', 3600)});
like($token, $is_token, 'another session: acquire');
is($other->query(q{SELECT dlock_acquire('new', 'other', 3600)}), '', 'another session: what is held is refused');
is($other->query(q{SELECT dlock_acquire('transaction', 'other', 3600)}), '', 'another session: what the transaction has is refused');
is($client->query("SELECT dlock_renew('new', 'client', 7200, $token)"), 't', 'another session: renew');
$client->query('BEGIN');
is($client->query("SELECT dlock_guard('new', 'client', $token)"), '', 'another session: guard');
is($client->query(q{SELECT dlock_release('new', 'client')}), 't', 'another session: release');
is($other->query(q{SELECT dlock_acquire('new', 'other', 3600)}), '', 'another session: what is guarded is refused');
$other->send(q{SELECT dlock_acquire('new', 'other', 3600, -1)});
$sessions->waiting('other');
is($client->query('COMMIT'), '', 'another session: commit');
my $next = $other->answer;
like($next, $is_token, 'another session: who waits is granted the lease');
cmp_ok($next, '>', $token, '... with a larger token');
$client->send(q{SELECT dlock_wait('new', -1)});
$sessions->waiting('client');
is($other->query(q{SELECT dlock_release('new', 'other')}), 't', 'another session: released while another one looks on');
is($client->answer, 't', 'another session: wait');
like($client->query(q{SELECT dlock_acquire_xact('new', 'client', 3600)}), $is_token, 'another session: a lease of a transaction');
is($other->query(q{SELECT dlock_is_free('new')}), 't', '... ends with it');
like($client->query(q{SELECT dlock_acquire_all(ARRAY['new', 'newer'], 'client', 3600)}), qr/^\{\d+,\d+\}$/, 'another session: many at once');
# a walk over the table takes a lock of PostgreSQL's to learn its length
my $walked = $client->query($rows);
is($client->query(q{SELECT dlock_release_all('client')}), $out_of_memory, 'another session: release all, an error');
is($client->query(q{SELECT dlock_renew_all('client', 60)}), $out_of_memory, 'another session: renew all, an error');
is($client->query($rows), $walked, '... which have changed nothing');
is($client->query(q{SELECT dlock_release('new', 'client'), dlock_release('newer', 'client')}), 't|t', 'another session: release');
is($other->query(q{SELECT dlock_is_free('new') AND dlock_is_free('newer')}), 't', '... which are free');

# The lock table grows under a lock of PostgreSQL's.
my %count;
my @held;
for my $i (1 .. 800)
{
	my $answer = $client->query("SELECT dlock_acquire('n$i', rpad('o', 250, '-'), 3600, request => rpad('r', 250, '-'))");
	push @held, "n$i" if $answer =~ $is_token;
	$count{ $answer =~ $is_token ? 'granted' : $answer }++;
	last if ($count{$out_of_memory} // 0) == 5;
}
is(join(' ', sort keys %count), "$out_of_memory granted", 'where the table has to grow: an error');
is(join(' ', sort split / /, $client->query(q{SELECT string_agg(name, ' ') FROM dlock.locks WHERE name ~ '^n\d'})),
	join(' ', sort @held), '... and no lease');

# As many places and guards as are configured, each on a name of its own.
for my $i (1 .. $places)
{
	$many[ $i - 1 ]->query('BEGIN');
	is($many[ $i - 1 ]->query("SELECT dlock_guard(name, owner, token) FROM dlock.locks WHERE name = '$_$i'"), '', "guard $_$i") for 'g', 'h';
}
$many[2]->query('RESET ROLE');
$many[$places]->query('BEGIN');
is($many[$places]->query("SELECT dlock_guard(name, owner, token) FROM dlock.locks WHERE name = 'g4'"), '', 'the first guard of a transaction');
is($many[$places]->query("SELECT dlock_guard(name, owner, token) FROM dlock.locks WHERE name = 'h4'"), '53400', 'one guard too many');
$many[$places]->query('ROLLBACK');
for my $i (1 .. $places)
{
	$many[ $i - 1 ]->send("SELECT dlock_acquire('w$i', 's$i', 3600, -1)");
	$sessions->waiting(map { "s$_" } 1 .. $i);
}
is($many[$places]->query("SELECT dlock_acquire('w4', 's4', 3600, -1)"), '53400', 'one waiter too many');
for my $i (1 .. $places)
{
	is($client->query("SELECT dlock_release('w$i', 'a')"), 't', "what waiter $i wants is given back");
	like($many[ $i - 1 ]->answer, $is_token, "... and granted to waiter $i");
	is($many[ $i - 1 ]->query('COMMIT'), '', "guard $i ends");
}

# ----------------------------------------------------------------
# The end of the transaction, which has no room even for a lock on the lock table
# ----------------------------------------------------------------

# it commits, or fails like anything else that needs a lock then
like($hoarder->query('COMMIT'), qr/^(?:|$out_of_memory)$/, 'the transaction ends');
is($other->query(q{SELECT dlock_is_free('transaction')}), 't', 'and so its lease ends');
$token = $other->query(q{SELECT dlock_acquire('transaction', 'other', 3600)});
like($token, $is_token, 'and can be granted to another');

# A session that ends then.
like($many[0]->query(q{SELECT dlock_acquire_session('session 1', 's1', 3600)}), $is_token, 'a lease of a session');
$many[0]->quit;
is($sessions->until(q{SELECT dlock_is_free('session 1')}, 't'), 't', 'which ends with it');

# ----------------------------------------------------------------
# Afterwards
# ----------------------------------------------------------------

is($hoarder->query('SELECT pg_advisory_unlock_all()'), '', 'the locks are given back');
$hoarder->query('BEGIN');
is($hoarder->query("SELECT dlock_guard('mine', 'hoarder', $token{mine})"), '', 'room again: guard');
is($hoarder->query('COMMIT'), '', 'room again: commit');
is($hoarder->query(q{SELECT dlock_renew_all('hoarder', 3600)}), 3, 'room again: renew all');
is($hoarder->query(q{SELECT dlock_release('mine', 'hoarder')}), 't', 'room again: release');
like($client->query(q{SELECT dlock_acquire('mine', 'client', 3600)}), $is_token, 'room again: acquire');
is( $client->query(q{SELECT count(dlock_acquire('n' || i, rpad('o', 250, '-'), 3600, request => rpad('r', 250, '-')))
		FROM generate_series(1, 800) i}),
	800, 'room again: the table grows');
is($node->safe_psql('postgres', 'SELECT count(*) FROM dlock_private.lease_table WHERE name ~ \'^n\d\''), 800, 'room again: one can connect');
$client->query(q{SELECT dlock_acquire('brief', 'o', 0.001)});
is($sessions->until("SELECT reaped > $reaped FROM dlock.stats", 't'), 't', 'room again: the worker is at work');

$_->quit for $hoarder, $client, $other, @many[ 1 .. $places ], $sessions->{watcher};
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|no place for a queue|terminated by signal/, 'nothing has crashed');
done_testing();
