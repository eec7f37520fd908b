-- Waiting: how long, how it ends, and that it leaves nothing behind.  What others
-- do meanwhile is tested in specs/ and t/.
\pset null '<NULL>'
SELECT dlock_acquire('busy', 'a', 600) AS busy \gset

-- scenario 7: the time runs out: NULL, and no place in the queue is left
SELECT dlock_acquire('busy', 'b', 60, 0.01);
SELECT dlock_acquire_shared('busy', 'b', 60, 0.01);
SELECT dlock_acquire_permit('busy', 'b', 60, 5, 0.01);
SELECT dlock_acquire_all(ARRAY['free', 'busy'], 'b', 60, 0.01);
SELECT dlock_acquire_session('busy', 'b', 60, 0.01);
SELECT dlock_acquire_xact('busy', 'b', 60, 0.01);
SELECT dlock_wait('busy', 0.01);
SELECT count(*) FROM dlock.waiters;
SELECT name, owner, token = :busy AS same_token FROM dlock.locks;

-- every form of a time
CREATE TABLE form (i serial, value text);
INSERT INTO form (value) VALUES
	('0'), ('0::smallint'), ('0::bigint'), ('0::numeric'), ('0.0'), ('0.01'), ('0.01::real'),
	('0.01::float8'), ('0.01::numeric'), ('''0'''), ('''0.01'''), ('''10 ms'''), ('''10 ms''::text'),
	('''10 ms''::varchar'), ('interval ''10 ms'''), ('''00:00:00.01'''), ('''0 s'''),
	('0.000001'), ('0.00000001'), ('0.01::dlock_duration');
CREATE FUNCTION answers(call text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	f record;
	answer text;
BEGIN
	FOR f IN SELECT value FROM form ORDER BY i LOOP
		EXECUTE format(call, f.value) INTO answer;
		RETURN NEXT format('wait %s: %s', f.value, coalesce(answer, 'NULL'));
	END LOOP;
END $$;
SELECT answers('SELECT dlock_acquire(''busy'', ''b'', 60, %s)');
SELECT DISTINCT split_part(answers, ': ', 2) FROM answers('SELECT dlock_acquire_permit(''busy'', ''b'', 60, 1, %s)') answers;
SELECT DISTINCT split_part(answers, ': ', 2) FROM answers('SELECT dlock_acquire_all(''{busy}'', ''b'', 60, %s)') answers;
SELECT DISTINCT split_part(answers, ': ', 2) FROM answers('SELECT dlock_wait(''busy'', %s)') answers;

-- a free name is taken at once, whatever the wait; negative: without limit
TRUNCATE form;
INSERT INTO form (value) VALUES
	('0'), ('86400'), ('-1'), ('-1::smallint'), ('-1::bigint'), ('-0.5'), ('-0.5::real'), ('-1.5::float8'), ('''-1'''),
	('''-10 min'''), ('interval ''-1 day'''), ('''-1 year''::text'), ('-0.000001'), ('-1000000000000');
SELECT answers('SELECT dlock_acquire(''free'', ''b'', 60, %s) IS NOT NULL AND dlock_release(''free'', ''b'')');
SELECT answers('SELECT dlock_wait(''free'', %s)');

-- the same times on a name whose holder is about to expire: waited for, not
-- refused; scenario 2
DELETE FROM form WHERE value = '0';
CREATE FUNCTION outlive(wait text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	t1 bigint := dlock_acquire('short', 'a', 0.005);
	t2 bigint;
BEGIN
	EXECUTE 'SELECT dlock_acquire(''short'', ''b'', 60, ' || wait || ')' INTO t2;
	RETURN t2 > t1 AND dlock_owner('short') = 'b' AND dlock_release('short', 'b', t2);
END $$;
SELECT value, outlive(value) FROM form ORDER BY i;
-- the time to live runs from the grant
SELECT dlock_acquire('short', 'a', 0.2) IS NOT NULL AS taken;
SELECT clock_timestamp() AS before \gset
SELECT dlock_acquire('short', 'b', 60, -1) IS NOT NULL AS taken;
SELECT expires_at > acquired_at + '59.9 s' AS ttl, acquired_at > :'before' AS acquired, expires_at > :'before'::timestamptz + '60 s' AS expires FROM dlock_holders('short');
SELECT dlock_release('short', 'b');
-- dlock_wait() sees what it waited for end, and takes nothing
SELECT dlock_acquire('short', 'a', 0.005) IS NOT NULL AS taken;
SELECT dlock_wait('short', -1), dlock_is_free('short');
SELECT dlock_acquire_shared('short', r, 0.005) IS NOT NULL AS taken FROM unnest('{a,b,c}'::text[]) r;
SELECT dlock_wait('short', '1 min'), dlock_is_free('short');

-- re-entry, a replayed request and one's own shared lease never wait
SELECT dlock_acquire('busy', 'a', 600, -1) = :busy AS same;
SELECT dlock_acquire('busy', 'a', 600, -1, 'r1') = :busy AS same;
SELECT dlock_acquire('busy', 'a', 600, -1, 'r1') = :busy AS same;
SELECT dlock_acquire_shared('busy', 'a', 600, -1) = :busy AS same;
SELECT version FROM dlock_holders('busy');
-- misuse is told at once; scenario 13
SELECT dlock_acquire_permit('busy', 'a', 600, 3, -1);
SELECT dlock_acquire_shared('doc', 'a', 600) IS NOT NULL AS reading;
SELECT dlock_acquire('doc', 'a', 600, -1);
\echo :SQLSTATE
SELECT dlock_release('doc', 'a');
-- a permit holder waits like a newcomer: here for itself, which is a deadlock
SELECT dlock_acquire_permit('pool', 'a', 600, 1, -1) IS NOT NULL AS taken;
SELECT dlock_acquire_permit('pool', 'a', 600, 1, -1);
\echo :SQLSTATE
SELECT dlock_acquire_permit('pool', 'a', 600, 1, 5);
\echo :SQLSTATE
-- but not when it does not wait
SELECT dlock_acquire_permit('pool', 'a', 600, 1);
SELECT dlock_release('pool', 'a');
SELECT dlock_acquire_permit('pool', 'a', 600, 2, -1) IS NOT NULL AND dlock_acquire_permit('pool', 'a', 600, 2, -1) IS NOT NULL AS two;
SELECT dlock_release_all('a');
SELECT dlock_acquire('busy', 'a', 600) AS busy \gset

-- the server's own limits end a wait, and nothing is left of it
-- (SET LOCAL, whose end needs no statement that the limit could end)
BEGIN;
SET LOCAL statement_timeout = '20 ms';
SELECT dlock_acquire('busy', 'b', 60, -1);
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SET LOCAL statement_timeout = '20 ms';
SELECT dlock_wait('busy', -1);
\echo :SQLSTATE
ROLLBACK;
BEGIN;
SET LOCAL statement_timeout = '20 ms';
SELECT dlock_acquire_all('{free,busy}', 'b', 60, -1);
\echo :SQLSTATE
ROLLBACK;
SET lock_timeout = '20 ms';
SELECT dlock_acquire('busy', 'b', 60, -1);
\echo :SQLSTATE
SELECT dlock_acquire_permit('busy', 'b', 60, 4, '1 h');
\echo :SQLSTATE
SELECT dlock_wait('busy', -1);
\echo :SQLSTATE
SELECT dlock_acquire_session('busy', 'b', 60, -1);
\echo :SQLSTATE
RESET lock_timeout;
SELECT count(*) FROM dlock.waiters;
SELECT name, owner FROM dlock.locks WHERE NOT dlock_is_free(name);
-- a savepoint catches it, and the transaction goes on
BEGIN;
SET LOCAL lock_timeout = '10 ms';
SAVEPOINT s;
SELECT dlock_acquire('busy', 'b', 60, -1);
ROLLBACK TO s;
SELECT dlock_acquire('free', 'b', 60, -1) IS NOT NULL AS taken;
SELECT dlock_release('free', 'b');
COMMIT;
-- a READ ONLY transaction and an old snapshot may wait too
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT count(*) >= 1 AS read FROM dlock.locks;
SELECT dlock_acquire('short', 'a', 0.005) IS NOT NULL AS taken;
SELECT dlock_acquire('short', 'b', 60, -1) IS NOT NULL AS taken;
SELECT dlock_release('short', 'b');
COMMIT;

-- what is counted
SELECT dlock_stats_reset();
SELECT dlock_acquire('busy', 'b', 60);
SELECT dlock_acquire('busy', 'b', 60, 0.01);
SELECT dlock_acquire('busy', 'b', 60, 0.01);
SELECT dlock_acquire('short', 'a', 0.5) IS NOT NULL AS taken,
	dlock_acquire('short', 'b', 60, -1) IS NOT NULL AS taken_after;
SELECT dlock_acquire_permit('pool', 'a', 600, 1, -1) IS NOT NULL AS taken;
SELECT dlock_acquire_permit('pool', 'a', 600, 1, -1);
SELECT acquired, refused, timed_out, deadlocks, waiters, (SELECT sum(n) FROM unnest(wait_histogram) n) AS waits FROM dlock.stats;
SELECT dlock_blocking_pids(pg_backend_pid()), dlock_blocking_pids(0), dlock_blocking_pids(-1), dlock_blocking_pids(NULL);

SELECT dlock_release_all('a'), dlock_release_all('b');
DROP FUNCTION answers, outlive;
DROP TABLE form;
