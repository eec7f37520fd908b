# A storm on few names: exclusive leases guard a counter exactly, permits never
# exceed their limit, and no session ever sees two holders that exclude each other,
# while the table grows, dead leases are reaped and all sessions scan.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $clients = 8;
my $rounds = 250;

my $node = PostgreSQL::Test::Cluster->new('storm');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
max_worker_processes = 16
synchronous_commit = off
dlock.log_expired = off
dlock.reap_interval = '10ms'
log_statement = none
});
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION dlock;
	CREATE TABLE counter (name text, n int);
	INSERT INTO counter SELECT 'c' || i, 0 FROM generate_series(0, 2) i;
	CREATE TABLE granted (name text, token bigint);
	CREATE TABLE inside (who int, name text, most int);

	-- keep trying, for as long as it takes
	CREATE PROCEDURE take(name text, who text, OUT token bigint) LANGUAGE plpgsql AS $$
	BEGIN
		LOOP
			token := dlock_acquire(name, who, 36000);
			EXIT WHEN token IS NOT NULL;
			COMMIT;
		END LOOP;
	END $$;

	-- read the counter and write it back in transactions of their own
	CREATE PROCEDURE count_up(who text, rounds int) LANGUAGE plpgsql AS $$
	DECLARE
		lock text;
		t bigint;
		old int;
	BEGIN
		FOR i IN 1..rounds LOOP
			lock := 'c' || (i + length(who)) % 3;
			CALL take(lock, who, t);
			COMMIT;
			SELECT n INTO STRICT old FROM counter WHERE counter.name = lock;
			COMMIT;
			UPDATE counter SET n = old + 1 WHERE counter.name = lock;
			INSERT INTO granted VALUES (lock, t);
			COMMIT;
			IF dlock_release(lock, who, t) IS DISTINCT FROM true THEN
				RAISE 'lost the lease on %', lock;
			END IF;
		END LOOP;
	END $$;

	-- three at a time, counted by advisory locks, which end with the session
	CREATE PROCEDURE take_permits(who int, rounds int, most int) LANGUAGE plpgsql AS $$
	DECLARE
		others int;
	BEGIN
		FOR i IN 1..rounds LOOP
			IF dlock_acquire_permit('permits', 'p' || who, 36000, most) IS NOT NULL THEN
				PERFORM pg_advisory_lock(1000 + who);
				SELECT count(*) INTO others FROM pg_locks
					WHERE locktype = 'advisory' AND objid BETWEEN 1000 AND 1999 AND granted;
				INSERT INTO inside VALUES (who, 'permits', others);
				PERFORM pg_advisory_unlock(1000 + who);
				PERFORM dlock_release('permits', 'p' || who);
			END IF;
			COMMIT;
		END LOOP;
	END $$;

	-- readers and writers: an advisory lock shows who is in; in the last four rounds, of which a
	-- session writes in one, everybody waits for the turn, so that both kinds have been there
	CREATE PROCEDURE read_and_write(who int, rounds int) LANGUAGE plpgsql AS $$
	DECLARE
		me text := 'rw' || who;
		conflicts int;
		wait int := 0;
	BEGIN
		FOR i IN 1..rounds LOOP
			IF i > rounds - 4 THEN
				wait := -1;
			END IF;
			IF (i + who) % 4 = 0 THEN
				IF dlock_acquire('rw', me, 36000, wait) IS NOT NULL THEN
					PERFORM pg_advisory_lock(2000 + who);
					SELECT count(*) INTO conflicts FROM pg_locks
						WHERE locktype = 'advisory' AND objid BETWEEN 2000 AND 3999 AND objid <> 2000 + who;
					INSERT INTO inside VALUES (who, 'writer', conflicts);
					PERFORM pg_advisory_unlock(2000 + who);
					PERFORM dlock_release('rw', me);
				END IF;
			ELSIF dlock_acquire_shared('rw', me, 36000, wait) IS NOT NULL THEN
				PERFORM pg_advisory_lock(3000 + who);
				SELECT count(*) INTO conflicts FROM pg_locks
					WHERE locktype = 'advisory' AND objid BETWEEN 2000 AND 2999;
				INSERT INTO inside VALUES (who, 'reader', conflicts);
				PERFORM pg_advisory_unlock(3000 + who);
				PERFORM dlock_release('rw', me);
			END IF;
			COMMIT;
		END LOOP;
	END $$;

	-- the table grows and leases die, all the time
	CREATE PROCEDURE grow(who int, rounds int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1..rounds LOOP
			PERFORM dlock_acquire('kept ' || who || ' ' || i || ' ' || j, 'keeper', 36000),
				dlock_acquire('dying ' || who || ' ' || i || ' ' || j, 'mayfly ' || j, 0.001)
			FROM generate_series(1, 10) j;
			COMMIT;
		END LOOP;
	END $$;

	-- whoever looks sees no two that exclude each other; kept rows show once
	CREATE PROCEDURE look(rounds int) LANGUAGE plpgsql AS $$
	DECLARE
		wrong text;
		kept bigint;
		different bigint;
		previous bigint := 0;
	BEGIN
		FOR i IN 1..rounds LOOP
			SELECT string_agg(s.name, ' ') INTO wrong FROM (SELECT l.name FROM dlock.locks l
				WHERE l.name !~ '^(kept|dying)' GROUP BY l.name
				HAVING count(*) > 1 AND bool_or(l.mode = 'exclusive')
					OR count(DISTINCT l.mode) > 1
					OR sum(l.version) FILTER (WHERE l.mode = 'permit') > 3) s
				WHERE EXISTS (SELECT FROM dlock_holders(s.name) h
					HAVING count(*) > 1 AND bool_or(h.mode = 'exclusive')
						OR count(DISTINCT h.mode) > 1 OR sum(h.version) FILTER (WHERE h.mode = 'permit') > 3);
			IF wrong IS NOT NULL THEN
				RAISE 'two holders of %', wrong;
			END IF;
			SELECT count(*), count(DISTINCT name) INTO kept, different FROM dlock.locks
				WHERE name LIKE 'kept%';
			IF kept < previous OR kept <> different THEN
				RAISE 'rows come and go: % after %, % different', kept, previous, different;
			END IF;
			previous := kept;
			COMMIT;
		END LOOP;
	END $$;
});

# Sessions that run at the same time, one statement each.
my @statements = (
	(map { "CALL count_up('" . 'w' x $_ . "', $rounds)" } 1 .. $clients),
	(map { "CALL take_permits($_, $rounds, 3)" } 1 .. 5),
	(map { "CALL read_and_write($_, $rounds)" } 1 .. 5),
	(map { "CALL grow($_, $rounds)" } 1 .. 2),
	(map { "CALL look(60)" } 1 .. 2));
my @sessions = map {
	my %session = (statement => $_, out => '', error => '');
	$session{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', $_ ],
		'<', \undef, '>', \$session{out}, '2>', \$session{error},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	\%session;
} @statements;
for my $session (@sessions)
{
	$session->{run}->finish;
	is($session->{error}, '', $session->{statement} =~ s/w{2,}/w.../r);
}

is($node->safe_psql('postgres', 'SELECT sum(n) FROM counter'), $clients * $rounds,
	'the counters are exact');
is($node->safe_psql('postgres', q{SELECT count(*) - count(DISTINCT (name, token)) FROM granted}),
	0, 'no token was given twice');
cmp_ok($node->safe_psql('postgres', q{SELECT max(most) FROM inside WHERE name = 'permits'}),
	'<=', 3, 'never more permits than the limit');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM inside WHERE name = 'permits'}),
	'>', 0, '... though some were taken');
is($node->safe_psql('postgres', q{SELECT max(most) FROM inside WHERE name IN ('reader', 'writer')}),
	0, 'a writer was always alone');
is($node->safe_psql('postgres', q{SELECT count(DISTINCT name) FROM inside WHERE name <> 'permits'}),
	2, '... and there were readers and writers');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM dlock.locks WHERE name LIKE 'dying%'}),
	'all the dead were reaped');
my $kept = 2 * $rounds * 10;
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT name) FROM dlock.locks'),
	"$kept|$kept", 'what was to stay is there');

# Parallel scans, which the planner tries if it is let.
$node->safe_psql('postgres', 'ALTER TABLE dlock_private.lease_table RESET (parallel_workers)');
my $parallel = q{SET max_parallel_workers_per_gather = 4; SET parallel_setup_cost = 0;
	SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;};
like($node->safe_psql('postgres', "$parallel EXPLAIN SELECT count(*), count(DISTINCT name) FROM dlock_private.lease_table"),
	qr/Parallel Seq Scan/, 'a parallel scan is planned');
my $adding = $node->background_psql('postgres');
$adding->query_until(qr/started/, q{\echo started
SELECT count(dlock_acquire('late ' || i, 'late', 36000)) FROM generate_series(1, 100000) i;
\echo finished
});
my $wrong = 0;
for (1 .. 20)
{
	my $seen = $node->safe_psql('postgres', qq{$parallel
		SELECT count(*) FILTER (WHERE name LIKE 'kept%'), count(DISTINCT name) FILTER (WHERE name LIKE 'kept%'),
			count(*) - count(DISTINCT name) FROM dlock_private.lease_table});
	$wrong++ if $seen ne "$kept|$kept|0";
}
is($wrong, 0, 'parallel scans show each row once while the table grows');
$adding->query_until(qr/finished/, '');
$adding->quit;
is($node->safe_psql('postgres', "$parallel SELECT count(*), count(DISTINCT name) FROM dlock_private.lease_table"),
	join('|', ($kept + 100000) x 2), '... and afterwards');

$node->stop;
done_testing();
