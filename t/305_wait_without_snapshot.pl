# A call that waits as a statement of its own costs the database nothing: it has no snapshot
# meanwhile.  So VACUUM removes what has died, and an index is built concurrently.  Whatever
# else of its connection has a snapshot keeps its rows.  In other statements nothing changes.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Poll;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;
use Wire;

my $node = PostgreSQL::Test::Cluster->new('snapshots');
$node->init;
$node->append_conf('postgresql.conf', q{
autovacuum = off
synchronous_commit = off
dlock.log_expired = off
});
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION dlock;
	CREATE TABLE t (i integer);
	INSERT INTO t VALUES (1);
	CREATE TABLE dying (i integer);
	CREATE FUNCTION wrapper(name text, owner text) RETURNS bigint LANGUAGE sql AS
		$$ SELECT dlock_acquire(name, owner, 60, -1) $$;
	CREATE FUNCTION in_sql() RETURNS bigint LANGUAGE sql AS $$ SELECT 1; SELECT dlock_acquire('a', 'w', 60, -1) $$;
	CREATE FUNCTION in_plpgsql() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN dlock_acquire('a', 'w', 60, -1); END $$;
	CREATE FUNCTION by_cursor() RETURNS bigint LANGUAGE plpgsql AS $$
		DECLARE c refcursor; r bigint;
		BEGIN OPEN c FOR SELECT dlock_acquire('a', 'w', 60, -1); FETCH c INTO r; RETURN r; END $$;
	CREATE PROCEDURE committing() LANGUAGE plpgsql AS $$
		DECLARE r record;
		BEGIN COMMIT; FOR r IN SELECT dlock_acquire('a', 'w', 60, -1) AS a LOOP COMMIT; END LOOP; END $$;
});
my $timeout = $PostgreSQL::Test::Utils::timeout_default;
my $sessions = Sessions->new($node);
my $watcher = $sessions->{watcher};
my ($holder) = $sessions->open('holder');
my $token = qr/^\d{10,}$/;

# How many dead rows VACUUM has to leave, of those that die now.
sub dead_rows_kept
{
	$watcher->query('INSERT INTO dying SELECT generate_series(1, 1000)');
	$watcher->query('DELETE FROM dying');
	return vacuum('dying');
}

sub vacuum
{
	my ($table) = @_;
	$watcher->query("VACUUM (VERBOSE) $table");
	return $watcher->error =~ /(\d+) are dead but not yet removable/ ? $1 : 'VACUUM does not say';
}

# Until nothing is kept: a call that wakes looks into the catalogs now and then.
sub nothing_kept
{
	my $kept;
	Poll::until($timeout, sub { ($kept = dead_rows_kept()) eq '0' });
	return $kept;
}

# How many sessions hold back what dies.
sub have_snapshots
{
	return $sessions->until(q{SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL
		AND application_name LIKE 'w%' AND application_name <> 'watcher'}, '0');
}

# What the log has only if the references to snapshots are not in balance, or worse.
my $leak = qr/leak|still active|seem to remain|was not closed|TRAP|PANIC|terminated by signal/;

sub hold { like($holder->query("SELECT dlock_acquire('$_[0]', 'holder', 3600)"), $token, "$_[0] is held"); return }
sub release { $holder->query("SELECT dlock_release('$_[0]', 'holder')"); return }

# Each statement, the name it waits for, and its answer.
my @calls = (
	[ q{dlock_acquire('a', ME, 60, -1)}, 'a', $token ],
	[ q{dlock_acquire('a', ME, 60, -1)::text}, 'a', $token ],
	[ q{dlock_acquire_all('{free, d}', ME, 60, -1)::text}, 'd', qr/^\{\d+,\d+\}$/ ],
	[ q{dlock_acquire('a' || '', ME, '1 min', 3600, 'id ' || ME)}, 'a', $token ],
	[ q{dlock_acquire_shared('b', ME, 60, -1)}, 'b', $token ],
	[ q{dlock_acquire_permit('c', ME, 60, 2, -1)}, 'c', $token ],
	[ q{dlock_acquire_permits('c', ME, 60, 2, 2, -1)}, 'c', $token ],
	[ q{dlock_acquire_all(ARRAY['free', 'd'], ME, 60, -1)}, 'd', qr/^\{\d+,\d+\}$/ ],
	[ q{dlock_acquire_any(ARRAY['e', 'd'], ME, 60, 2, -1)}, 'e', qr/^\(e,\d+\)$/ ],
	[ q{* FROM dlock_acquire_any(ARRAY['f', 'd'], ME, 60, 2, -1)}, 'f', qr/^f\|\d+$/ ],
	[ q{token, x.name FROM dlock_acquire_any(ARRAY['g', 'd'], ME, 60, 2, -1) AS x}, 'g', qr/^\d+\|g$/ ],
	[ q{* FROM dlock_acquire('h', ME, 60, -1)}, 'h', $token ],
	[ q{dlock_acquire_session('i', ME, 60, -1)}, 'i', $token ],
	[ q{dlock_acquire_session_shared('j', ME, 60, -1)}, 'j', $token ],
	[ q{dlock_acquire_xact('k', ME, 60, -1)}, 'k', $token ],
	[ q{dlock_acquire_xact_shared('l', ME, 60, -1)}, 'l', $token ],
	[ q{wrapper('n', ME)}, 'n', $token ],
	[ q{dlock_wait('m', -1)}, 'm', qr/^t$/ ]);
my %names = map { $_->[1] => 1 } @calls;
my $log = -s $node->logfile;

# A waiter of each kind at once.
hold($_) for sort keys %names;
my @waiters;
for my $i (0 .. $#calls)
{
	my ($waiter) = $sessions->open("w$i");
	push @waiters, $waiter;
	$waiter->send('SELECT ' . $calls[$i][0] =~ s/ME/'w$i'/gr);
	is($sessions->until("SELECT count(*) FROM (SELECT DISTINCT pid FROM dlock.waiters WHERE pid = $waiter->{pid}) p", 1), 1,
		"waits: $calls[$i][0]");
}
is(have_snapshots(), 0, 'none of them has a snapshot');
is(nothing_kept(), 0, 'VACUUM removes all dead rows');
$watcher->query("SET statement_timeout = '${timeout}s'");
is($watcher->query('CREATE INDEX CONCURRENTLY t_i ON t (i)'), '', 'an index is built concurrently');
is($watcher->query(q{SELECT indisvalid FROM pg_index WHERE indexrelid = 't_i'::regclass}), 't', '... and is valid');
is($watcher->query('REINDEX INDEX CONCURRENTLY t_i'), '', '... and built again');
is($watcher->query('DROP INDEX CONCURRENTLY t_i'), '', '... and dropped');
$watcher->query('RESET statement_timeout');
is($watcher->query(q{SELECT count(DISTINCT pid) FROM dlock.waiters}), scalar @calls, 'all of them still wait');

# They wake for nothing, hundreds of times: a renewal wakes watchers, a signal anybody.
my %woken = map { $_->{pid} => 1 } @waiters;
for my $round (1 .. 300)
{
	$holder->query('SELECT ' . join(', ', map { "dlock_renew('$_', 'holder', 3600)" } sort keys %names));
	kill 'HUP', keys %woken if $round % 10 == 0;
}
is(have_snapshots(), 0, 'after many wakes none of them has a snapshot');
is(nothing_kept(), 0, '... and VACUUM removes all dead rows');

# They get the names, and their sessions go on.
for my $i (reverse 0 .. $#calls)
{
	my ($call, $name, $answer) = @{ $calls[$i] };
	my $before = grep { $calls[$_][1] eq $name } 0 .. $i - 1;
	next if $before;
	release($name);
	for my $j (grep { $calls[$_][1] eq $name } 0 .. $#calls)
	{
		like($waiters[$j]->answer, $calls[$j][2], "granted: $calls[$j][0]");
		is($waiters[$j]->query('SELECT i FROM t'), 1, '... and its session reads rows');
		is($waiters[$j]->query("SELECT dlock_release_all('w$j') >= 0"), 't', '... and can go on');
	}
}
$_->quit for @waiters;
unlike(slurp_file($node->logfile, $log), $leak, 'no snapshot was lost');

# A prepared statement, with a plan of its own and a generic one; and a wait in vain.
my ($waiter) = $sessions->open('waiter');
my %client = (path => $node->host . '/.s.PGSQL.' . $node->port, user => $watcher->query('SELECT current_user'), database => 'postgres');
my $wire = Wire::Postgres->new(%client);
for my $mode ('force_custom_plan', 'force_generic_plan')
{
	$log = -s $node->logfile;
	hold('a');
	$wire->query("SET plan_cache_mode = $mode");
	$wire->pipeline([ 'p', q{SELECT dlock_acquire('a', 'wire', 60, -1)} ], ['p']);
	$sessions->waiting('wire');
	is(nothing_kept(), 0, "prepared, $mode: VACUUM removes all dead rows");
	release('a');
	like($wire->answer->{rows}[0][0], $token, '... and it is granted');
	$wire->query(q{SELECT dlock_release('a', 'wire')});
	unlike(slurp_file($node->logfile, $log), $leak, '... and no snapshot was lost');
}
hold('a');
for my $call (
	q{dlock_acquire('a', 'w', 60, 1)}, q{dlock_acquire_all(ARRAY['a'], 'w', 60, 1)},
	q{* FROM dlock_acquire_any(ARRAY['a'], 'w', 60, 1, 1)})
{
	is($waiter->query("SELECT $call"), '', "in vain: $call");
}
is($waiter->query(q{SELECT dlock_wait('a', 1)}), 'f', q{in vain: dlock_wait('a', 1)});
is($waiter->query('SELECT count(*) FROM t'), 1, '... and the session goes on');
unlike(slurp_file($node->logfile, $log), $leak, '... and no snapshot was lost');

# What ends a wait otherwise.
sub ends
{
	my ($title, $settings, $call, $end, $error) = @_;
	my ($session) = $sessions->open('w');
	my $from = -s $node->logfile;
	$session->query($settings) if $settings ne '';
	$session->send("SELECT $call");
	if (defined $end)
	{
		$sessions->waiting('w');
		is(nothing_kept(), 0, "$title: VACUUM removes all dead rows");
		$end->($session);
	}
	is($session->answer, $error, "$title: $call ends");
	if ($error ne 'gone' && $title !~ /client/)
	{
		$session->query('RESET statement_timeout');
		is($session->query('SELECT count(*) FROM t'), 1, '... and its session goes on');
		is($session->query(q{SELECT dlock_acquire_all(ARRAY['y'], 'w', 60) IS NOT NULL}), 't', '... takes a lease at once');
		is($session->query(q{SELECT name FROM dlock_acquire_any(ARRAY['v'], 'w', 60, 1)}), 'v', '... or any');
		is($session->query(q{SELECT dlock_release_all('w')}), 2, '... and gives them back');
		is($session->query(q{BEGIN; SAVEPOINT s; SELECT 1; ROLLBACK TO s; COMMIT}), 1, '... in blocks, too');
	}
	$session->quit;
	is($sessions->until('SELECT count(*) FROM dlock.waiters', 0), 0, '... and nobody waits');
	unlike(slurp_file($node->logfile, $from), $leak, '... and no snapshot was lost');
	return;
}

for my $call (
	q{dlock_acquire('a', 'w', 60, -1)}, q{dlock_acquire_all(ARRAY['x', 'a'], 'w', 60, -1)},
	q{* FROM dlock_acquire_any(ARRAY['a'], 'w', 60, 1, -1)}, q{dlock_wait('a', -1)})
{
	ends('cancel', '', $call, sub { $watcher->query("SELECT pg_cancel_backend($_[0]{pid})") }, '57014');
	ends('terminate', '', $call, sub { $watcher->query("SELECT pg_terminate_backend($_[0]{pid})") }, 'gone');
	ends('client', '', $call, sub { $_[0]->kill }, 'gone');
	ends('statement_timeout', q{SET statement_timeout = '1s'}, $call, undef, '57014');
	ends('lock_timeout', q{SET lock_timeout = '1s'}, $call, undef, '55P03');
}

# A deadlock, found by the one that comes last.
$waiter->query(q{SELECT dlock_acquire('z', 'waiter', 60)});
$waiter->send(q{SELECT dlock_acquire('a', 'waiter', 60, -1)});
$sessions->waiting('waiter');
is($holder->query(q{SELECT dlock_acquire('z', 'holder', 60, -1)}), '40P01', 'a deadlock is told');
is(nothing_kept(), 0, '... while the other waits without a snapshot');
release('a');
like($waiter->answer, $token, '... and is granted');
is($waiter->query(q{SELECT dlock_release_all('waiter')}), 2, '... and goes on');
unlike(slurp_file($node->logfile, $log), $leak, '... and no snapshot was lost');

# A portal that was bound before keeps its rows, whether or not it was begun.
for my $begun (0, 1)
{
	for my $how ('dlock_acquire(\'a\', \'wire\', 60, -1)', '* FROM dlock_acquire_any(ARRAY[\'a\'], \'wire\', 60, 1, -1)')
	{
		my $title = $begun ? 'suspended' : 'bound';
		$log = -s $node->logfile;
		hold('a');
		is($watcher->query('INSERT INTO t SELECT generate_series(2, 1000)'), '', 'there are 1,000 rows');
		$wire->pipeline([ 'rows', 'SELECT i FROM t' ], $begun ? [ 'rows', 10 ] : (), [ 'wait', "SELECT $how" ], ['wait']);
		$sessions->waiting('wire');
		$watcher->query('DELETE FROM t WHERE i > 1');
		is(vacuum('t'), 999, "$title: VACUUM keeps the rows of a portal before $how");
		release('a');
		$wire->pipeline(['rows']);
		is(scalar @{ $wire->answer->{rows} }, 1001, '... which gets them all');
		is(vacuum('t'), 0, '... and then they are removed');
		$wire->query(q{SELECT dlock_release_all('wire')});
		unlike(slurp_file($node->logfile, $log), $leak, '... and no snapshot was lost');
	}
}

# The call's own portal is suspended behind its row, and another one waits behind it.
$log = -s $node->logfile;
hold('a');
$wire->pipeline([ 'wait', q{SELECT dlock_acquire('a', 'wire', 60, -1)} ], [ 'rows', 'SELECT i FROM t' ], [ 'wait', 1 ]);
$sessions->waiting('wire');
release('a');
$wire->pipeline(['wait'], ['rows']);
is(scalar @{ $wire->answer->{rows} }, 2, 'the portal of the call is suspended, and runs to its end');
$wire->query(q{SELECT dlock_release_all('wire')});
unlike(slurp_file($node->logfile, $log), $leak, '... and no snapshot was lost');
$wire->close;

# Where others may need the snapshot, it stays.
my $copy = $node->basedir . '/copy';
my @others = (
	[ 'BEGIN', q{SELECT dlock_acquire('a', 'w', 60, -1)}, $token, 'COMMIT' ],
	[ 'BEGIN; SAVEPOINT s', q{SELECT dlock_acquire('a', 'w', 60, -1)}, $token, 'COMMIT' ],
	[ 'BEGIN READ ONLY', q{SELECT dlock_wait('a', -1)}, qr/^t$/, 'COMMIT' ],
	[ q{BEGIN; DECLARE c CURSOR FOR SELECT dlock_acquire('a', 'w', 60, -1)}, 'FETCH c', $token, 'COMMIT' ],
	[ q{SET default_transaction_isolation = 'repeatable read'}, q{SELECT dlock_acquire('a', 'w', 60, -1)}, $token,
		'RESET default_transaction_isolation' ],
	[ q{SET default_transaction_isolation = 'serializable'}, q{SELECT dlock_wait('a', -1)}, qr/^t$/,
		'RESET default_transaction_isolation' ],
	[ '', q{SELECT abs(dlock_acquire('a', 'w', 60, -1))}, $token, '' ],
	[ '', q{SELECT dlock_acquire('a', 'w', 60, -1), (SELECT count(*) FROM t)}, qr/^\d{10,}\|1$/, '' ],
	[ '', q{SELECT dlock_acquire((SELECT 'a' FROM t), 'w', 60, -1)}, $token, '' ],
	[ '', q{SELECT dlock_acquire('a', 'w', 60, -1) FROM t}, $token, '' ],
	[ '', q{SELECT dlock_acquire('a', 'w', 60, -1) WHERE (SELECT count(*) FROM t) = 1}, $token, '' ],
	[ '', q{SELECT name FROM dlock_acquire_any(ARRAY['a'], 'w', 60, 1, -1) WHERE EXISTS (SELECT FROM t)}, qr/^a$/, '' ],
	[ '', q{SELECT x.name FROM dlock_acquire_any(ARRAY['a'], 'w', 60, 1, -1) x, t}, qr/^a$/, '' ],
	[ '', q{SELECT in_sql()}, $token, '' ],
	[ '', q{SELECT in_plpgsql()}, $token, '' ],
	[ '', q{SELECT by_cursor()}, $token, '' ],
	[ '', q{SELECT 1 \; SELECT dlock_acquire('a', 'w', 60, -1)}, qr/^1?\n?\d{10,}$/, '' ],
	[ '', q{DO $$ BEGIN PERFORM dlock_acquire('a', 'w', 60, -1); END $$}, qr/^$/, '' ],
	[ '', q{DO $$ BEGIN PERFORM dlock_acquire('a', 'w', 60, -1); EXCEPTION WHEN others THEN NULL; END $$}, qr/^$/, '' ],
	[ q{PREPARE p AS SELECT dlock_acquire('a', 'w', 60, -1)}, 'EXECUTE p', $token, 'DEALLOCATE p' ],
	[ '', q{EXPLAIN (ANALYZE, TIMING off, SUMMARY off) SELECT dlock_acquire('a', 'w', 60, -1)}, qr/^Result/, '' ],
	[ '', qq{COPY (SELECT dlock_acquire('a', 'w', 60, -1)) TO '$copy'}, qr/^$/, '' ],
	[ '', q{CREATE TABLE made AS SELECT dlock_acquire('a', 'w', 60, -1)}, qr/^$/, 'DROP TABLE made' ],
	[ '', q{DECLARE c CURSOR WITH HOLD FOR SELECT dlock_acquire('a', 'w', 60, -1)}, qr/^$/, 'CLOSE c' ]);
for my $other (@others)
{
	my ($before, $statement, $answer, $after) = @$other;
	my ($session) = $sessions->open('w');
	my $from = -s $node->logfile;
	hold('a');
	$session->query($before) if $before ne '';
	$session->send($statement);
	$sessions->waiting('w');
	is(dead_rows_kept(), 1000, "VACUUM keeps rows beside $before; $statement");
	release('a');
	like($session->answer, $answer, '... which is granted');
	is($session->query("$after; SELECT dlock_release_all('w') >= 0") =~ s/^.*\n//sr, 't', '... and its session goes on');
	$session->quit;
	unlike(slurp_file($node->logfile, $from), $leak, '... and no snapshot was lost');
}

# After its COMMIT a procedure has no snapshot of its own.
hold('a');
$log = -s $node->logfile;
$waiter->send('CALL committing()');
$sessions->waiting('waiter');
release('a');
is($waiter->answer, '', 'a procedure loops over the call, and commits');
unlike(slurp_file($node->logfile, $log), $leak, '... and no snapshot was lost');

$_->quit for $waiter, $holder, $watcher;
$node->stop;
done_testing();
