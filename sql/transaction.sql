-- Autonomy: what a call did stays, whatever becomes of the transaction, and
-- it sees the true state whatever the snapshot.  Scenario 17.
\pset null '<NULL>'

-- BEGIN; acquire; ROLLBACK: still held; likewise renewed and released
BEGIN;
SELECT dlock_acquire('job', 'a', 60) AS t1 \gset
ROLLBACK;
SELECT dlock_owner('job'), token = :t1 AS same_token FROM dlock_holders('job');
BEGIN;
SELECT dlock_renew('job', 'a', 600);
ROLLBACK;
SELECT expires_at > clock_timestamp() + '500 s' AS renewed FROM dlock_holders('job');
BEGIN;
SELECT dlock_release('job', 'a');
ROLLBACK;
SELECT dlock_is_free('job');

-- savepoints
BEGIN;
SAVEPOINT s;
SELECT dlock_acquire('job', 'a', 60) IS NOT NULL AS taken;
ROLLBACK TO s;
SELECT dlock_owner('job');
SELECT dlock_acquire('job', 'a', 60) > :t1 AS taken;
RELEASE s;
COMMIT;
SELECT version, dlock_release_all('a') FROM dlock_holders('job');

-- an error in the same statement, caught or not
DO $$ BEGIN PERFORM dlock_acquire('job', 'a', 60); RAISE EXCEPTION 'failed after the acquire'; END $$;
DO $$ BEGIN PERFORM dlock_acquire('job', 'a', 60); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END $$;
SELECT version, dlock_release_all('a') FROM dlock_holders('job');

-- a failed transaction takes no more calls, and the lease stays
BEGIN;
SELECT dlock_acquire('job', 'a', 60) IS NOT NULL AS taken;
SELECT dlock_acquire('', 'a', 60);
SELECT dlock_release('job', 'a');
ROLLBACK;
SELECT dlock_owner('job'), dlock_release('job', 'a');

-- a READ ONLY transaction may use them, and none needs a transaction id
BEGIN READ ONLY;
SELECT dlock_acquire('job', 'a', 60) IS NOT NULL AS taken;
SELECT dlock_renew('job', 'a', 60), dlock_renew_all('a', 60);
SELECT dlock_acquire_shared('doc', 'a', 60) IS NOT NULL AS taken;
SELECT dlock_acquire_permit('pool', 'a', 60, 1) IS NOT NULL AS taken;
SELECT dlock_release('job', 'a'), dlock_force_release('doc'), dlock_release_all('a');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_id;
COMMIT;
SET default_transaction_read_only = on;
SELECT dlock_acquire('job', 'a', 60) IS NOT NULL AS taken, dlock_release('job', 'a');
RESET default_transaction_read_only;
BEGIN;
SELECT dlock_acquire('job', 'a', 60) IS NOT NULL AS taken, dlock_release('job', 'a');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_id;
COMMIT;

-- a snapshot does not hide what happened after it was taken
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM dlock.locks;
SELECT dlock_acquire('job', 'a', 60) IS NOT NULL AS taken;
SELECT dlock_owner('job'), (SELECT count(*) FROM dlock_holders('job')) AS holders, (SELECT count(*) FROM dlock.locks) AS locks;
SELECT dlock_acquire('job', 'b', 60), dlock_release('job', 'a'), dlock_acquire('job', 'b', 60) IS NOT NULL AS taken;
SELECT dlock_owner('job');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT dlock_owner('job'), dlock_release('job', 'b'), dlock_is_free('job');
COMMIT;
SELECT dlock_is_free('job');

-- an aged transaction still gets its full ttl: now() is not the clock
BEGIN;
SELECT now() < clock_timestamp() AS begun, pg_sleep(0.3) IS NOT NULL AS aged;
SELECT dlock_acquire('job', 'a', 600) IS NOT NULL AS taken;
SELECT acquired_at > now() + '0.2 s' AS acquired, expires_at > now() + '600.2 s' AS full_ttl FROM dlock_holders('job');
SELECT pg_sleep(0.3) IS NOT NULL AS aged, dlock_renew('job', 'a', 600);
SELECT expires_at > now() + '600.5 s' AS full_ttl FROM dlock_holders('job');
COMMIT;
SELECT dlock_release('job', 'a');

-- in a function, a procedure that commits, a cursor, a trigger
CREATE FUNCTION twice(name text) RETURNS bigint LANGUAGE sql AS
	$$ SELECT dlock_acquire(name, 'a', 60); SELECT dlock_acquire(name, 'a', 60) $$;
SELECT twice('job') IS NOT NULL AS taken;
SELECT version, dlock_release_all('a') FROM dlock_holders('job');
DO $$ BEGIN
	PERFORM dlock_acquire('job', 'a', 60);
	ROLLBACK;
	PERFORM dlock_acquire('job', 'a', 60);
	COMMIT;
	PERFORM dlock_release('job', 'a');
	ROLLBACK;
END $$;
SELECT version, dlock_release_all('a') FROM dlock_holders('job');
BEGIN;
DECLARE c CURSOR FOR SELECT dlock_acquire('job', 'a', 60) > 0 AS taken FROM generate_series(1, 3);
FETCH 2 FROM c;
ROLLBACK;
SELECT version, dlock_release_all('a') FROM dlock_holders('job');
CREATE TABLE jobs (name text);
CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN PERFORM dlock_acquire(new.name, 'a', 60); RETURN new; END $$;
CREATE TRIGGER take BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION take();
BEGIN;
INSERT INTO jobs VALUES ('job');
ROLLBACK;
SELECT dlock_owner('job'), dlock_release('job', 'a'), (SELECT count(*) FROM jobs) AS jobs;
DROP TABLE jobs;
DROP FUNCTION twice, take;

-- never in a parallel plan: refused, not lost
CREATE FUNCTION careless(name text) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS
	$$ BEGIN RETURN dlock_acquire(name, 'a', 60); END $$;
-- the setting's name up to version 15, and since
SELECT set_config(name, 'on', false) AS forced FROM pg_settings
WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
\set VERBOSITY sqlstate
SELECT careless('job');
\set VERBOSITY default
SELECT dlock_owner('job'), dlock_is_free('job');
SELECT dlock_acquire('job', 'a', 60) IS NOT NULL AS taken;
SELECT dlock_owner('job'), dlock_is_free('job'), (SELECT count(*) FROM dlock_holders('job')) AS holders;
SELECT set_config(name, 'off', false) AS forced FROM pg_settings
WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
SELECT dlock_release('job', 'a');
DROP FUNCTION careless;

SELECT count(*) FROM dlock.locks;
