-- The lock delay: a pause between the expiry of a lease and its next holder,
-- for holders that might still be writing.
\pset null '<NULL>'
-- A session takes notice of a new setting between statements: run many, which
-- sleep until it has.  It knows the settings once it has loaded the library.
LOAD 'dlock';
SHOW dlock.lock_delay;
SET dlock.lock_delay = '1 h';
\echo :SQLSTATE
-- a name whose holder expires is free without it
SELECT dlock_acquire('job', 'a', 0.01) IS NOT NULL AS taken, dlock_acquire('job', 'b', 600, -1) IS NOT NULL AS taken, dlock_release('job', 'b');

ALTER SYSTEM SET dlock.lock_delay = '1 h';
SELECT pg_reload_conf();
\set value '1h'
\set ECHO none
SELECT format($q$DO $do$ BEGIN IF current_setting('dlock.lock_delay') <> %L THEN PERFORM pg_sleep(0.1); END IF; END $do$ $q$, :'value') FROM generate_series(1, 600) \gexec
\set ECHO all
SELECT dlock_acquire('job', 'a', 0.01) AS t1 \gset
SELECT pg_sleep(0.05);
-- expired: the holder has lost it, and nobody else gets it
SELECT dlock_renew('job', 'a', 60, :t1), dlock_release('job', 'a', :t1);
SELECT dlock_acquire('job', 'b', 60), dlock_acquire('job', 'b', 60, 0.01), dlock_acquire_shared('job', 'b', 60), dlock_acquire_permit('job', 'b', 60, 2), dlock_acquire_all('{x,job}', 'b', 60);
SELECT dlock_acquire_session('job', 'b', 60), dlock_acquire_xact('job', 'b', 60);
SELECT dlock_owner('job'), dlock_is_free('job');
SELECT dlock_wait('job', 0.01);
SELECT name, owner, expires_at < clock_timestamp() AS expired FROM dlock_holders('job');
SELECT name, owner, expires_at < clock_timestamp() AS expired FROM dlock.locks;
BEGIN;
SELECT dlock_guard('job', 'a', :t1);
\echo :SQLSTATE
ROLLBACK;
-- the same holder does not wait
SELECT dlock_acquire('job', 'a', 600) > :t1 AS new_token;
-- not after a release, and not after a force-release
SELECT dlock_release('job', 'a'), dlock_is_free('job');
SELECT dlock_acquire('job', 'b', 600) IS NOT NULL AS taken;
SELECT dlock_force_release('job');
SELECT dlock_acquire('job', 'a', 600) IS NOT NULL AS taken, dlock_release_all('a');
-- an operator ends the pause
SELECT dlock_acquire('job', 'a', 0.01) IS NOT NULL AS taken;
SELECT pg_sleep(0.05);
SELECT dlock_acquire('job', 'b', 60);
SELECT dlock_force_release('job') >= 0 AS done, dlock_acquire('job', 'b', 60) IS NOT NULL AS taken, dlock_release('job', 'b');
-- shared: each reader has its own pause; other readers may share meanwhile
SELECT dlock_acquire_shared('doc', 'a', 0.01) IS NOT NULL AS reading;
SELECT pg_sleep(0.05);
SELECT dlock_acquire('doc', 'b', 60), dlock_acquire_shared('doc', 'b', 60) IS NOT NULL AS reading;
SELECT dlock_release_all('b');
-- permits: one that expired still counts
SELECT dlock_acquire_permit('pool', 'a', 0.01, 1) IS NOT NULL AS working;
SELECT pg_sleep(0.05);
SELECT dlock_acquire_permit('pool', 'b', 60, 1), dlock_acquire_permit('pool', 'b', 60, 2) IS NOT NULL AS second;
SELECT dlock_release_all('b');
-- a session lease: a pause after the session's end, none after DISCARD ALL
SELECT dlock_acquire_session('s', 'a', 600) IS NOT NULL AS taken;
DISCARD ALL;
SELECT dlock_is_free('s');
SELECT dlock_acquire_session('s', 'a', 600) IS NOT NULL AS taken, pg_backend_pid() AS pid \gset
\c
DO $$ BEGIN
	WHILE dlock_owner('s') IS NOT NULL LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT dlock_is_free('s'), dlock_acquire('s', 'b', 60);

-- without it all are free at once
ALTER SYSTEM RESET dlock.lock_delay;
SELECT pg_reload_conf();
\set value '0'
\set ECHO none
SELECT format($q$DO $do$ BEGIN IF current_setting('dlock.lock_delay') <> %L THEN PERFORM pg_sleep(0.1); END IF; END $do$ $q$, :'value') FROM generate_series(1, 600) \gexec
\set ECHO all
SELECT dlock_is_free('s'), dlock_is_free('doc'), dlock_is_free('pool');
SELECT dlock_acquire('s', 'b', 60) IS NOT NULL AS taken, dlock_release('s', 'b');
DO $$ BEGIN
	PERFORM dlock_force_release(name) FROM (SELECT DISTINCT name FROM dlock.locks) l;
END $$;
