-- Leases that live as long as the transaction.
\pset null '<NULL>'

-- until commit, and until rollback
BEGIN;
SELECT dlock_acquire_xact('job', 'a', 60) AS t1 \gset
SELECT owner, mode, version, token = :t1 AS same_token, pid = pg_backend_pid() AS here FROM dlock_holders('job');
COMMIT;
SELECT dlock_is_free('job'), dlock_release('job', 'a', :t1);
BEGIN;
SELECT dlock_acquire_xact('job', 'a', 60) AS t2 \gset
SELECT :t2 > :t1 AS newer, dlock_owner('job');
ROLLBACK;
SELECT dlock_is_free('job'), dlock_renew('job', 'a', 60, :t2);
BEGIN;
SELECT dlock_acquire_xact('job', 'a', 60) IS NOT NULL AS taken;
SELECT 1 / 0;
SELECT dlock_owner('job');
ROLLBACK;
SELECT dlock_is_free('job');
-- in a statement of its own: until that statement ends
SELECT dlock_acquire_xact('job', 'a', 60) IS NOT NULL AND dlock_owner('job') = 'a' AS taken;
SELECT dlock_is_free('job');
DO $$ BEGIN
	IF dlock_acquire_xact('job', 'a', 60) IS NULL THEN RAISE 'busy'; END IF;
	IF dlock_is_free('job') THEN RAISE 'not held'; END IF;
END $$;
SELECT dlock_is_free('job');
-- a procedure that commits ends it there
DO $$ BEGIN
	PERFORM dlock_acquire_xact('job', 'a', 60);
	COMMIT;
	IF NOT dlock_is_free('job') THEN RAISE 'still held'; END IF;
	PERFORM dlock_acquire_xact('job', 'b', 60);
	ROLLBACK;
	IF NOT dlock_is_free('job') THEN RAISE 'still held'; END IF;
END $$;

-- many of them, with plain and session leases, which stay
BEGIN;
SELECT count(dlock_acquire_xact('x' || i, 'a' || i, 60)) FROM generate_series(1, 50) i;
SELECT dlock_acquire('plain', 'a', 60) IS NOT NULL AS plain, dlock_acquire_session('session', 'a', 60) IS NOT NULL AS session;
SELECT count(*) FROM dlock.locks WHERE NOT dlock_is_free(name);
COMMIT;
SELECT name FROM dlock.locks WHERE NOT dlock_is_free(name) ORDER BY name;
SELECT dlock_release_all('a');

-- its deadline does not end it while the transaction is open
BEGIN;
SELECT dlock_acquire_xact('job', 'a', 0.01) IS NOT NULL AS taken;
SELECT pg_sleep(0.05);
SELECT dlock_owner('job'), dlock_acquire('job', 'b', 60);
-- another owner would wait for this very transaction
SAVEPOINT s1;
SELECT dlock_acquire('job', 'b', 60, 0.01);
\echo :SQLSTATE
ROLLBACK TO s1;
SELECT dlock_owner('job');
COMMIT;
SELECT dlock_is_free('job');

-- re-entry: one lease, all holds end with the transaction
BEGIN;
SELECT dlock_acquire_xact('job', 'a', 60) AS t3 \gset
SELECT dlock_acquire_xact('job', 'a', 60, -1) = :t3 AS same;
SELECT version FROM dlock_holders('job');
COMMIT;
SELECT dlock_is_free('job');
-- given back before the end
BEGIN;
SELECT dlock_acquire_xact('job', 'a', 60) IS NOT NULL AS taken, dlock_release('job', 'a'), dlock_release('job', 'a');
SELECT dlock_acquire_xact('job', 'a', 60) IS NOT NULL AS again;
COMMIT;
SELECT dlock_is_free('job');

-- savepoints play no part: what was taken after one stays until the end
BEGIN;
SAVEPOINT s1;
SELECT dlock_acquire_xact('job', 'a', 60) AS t4 \gset
ROLLBACK TO s1;
SELECT owner, token = :t4 AS same_token FROM dlock_holders('job');
SELECT dlock_acquire('job', 'b', 60);
RELEASE s1;
SELECT dlock_owner('job');
COMMIT;
SELECT dlock_is_free('job');
BEGIN;
SAVEPOINT s1;
SELECT dlock_acquire_xact('job', 'a', 60) IS NOT NULL AS taken;
SELECT 1 / 0;
ROLLBACK TO s1;
SELECT dlock_owner('job');
ROLLBACK;
SELECT dlock_is_free('job');
DO $$ BEGIN
	BEGIN
		PERFORM dlock_acquire_xact('job', 'a', 60);
		RAISE 'undone';
	EXCEPTION WHEN raise_exception THEN
		IF dlock_owner('job') IS DISTINCT FROM 'a' THEN RAISE 'lost'; END IF;
	END;
END $$;
SELECT dlock_is_free('job');

-- PREPARE TRANSACTION is refused, also when it is released again or was taken
-- in a savepoint that was rolled back; the lease ends with that
BEGIN;
SELECT dlock_acquire_xact('job', 'a', 60) IS NOT NULL AS taken;
PREPARE TRANSACTION 'regress_dlock';
\echo :SQLSTATE
SELECT dlock_is_free('job');
BEGIN;
SELECT dlock_acquire_xact('job', 'a', 60) IS NOT NULL AS taken, dlock_release('job', 'a');
PREPARE TRANSACTION 'regress_dlock';
\echo :SQLSTATE
BEGIN;
SAVEPOINT s1;
SELECT dlock_acquire_xact('job', 'a', 60) IS NOT NULL AS taken;
ROLLBACK TO s1;
PREPARE TRANSACTION 'regress_dlock';
\echo :SQLSTATE
SELECT dlock_is_free('job'), (SELECT count(*) FROM pg_prepared_xacts);
-- a plain lease does not prevent it
BEGIN;
SELECT dlock_acquire('job', 'a', 60) IS NOT NULL AS taken;
PREPARE TRANSACTION 'regress_dlock';
ROLLBACK PREPARED 'regress_dlock';
SELECT dlock_release('job', 'a');

-- busy: NULL, nothing to guard, and the transaction is as good as before
SELECT dlock_acquire('job', 'b', 60) IS NOT NULL AS taken;
BEGIN;
SELECT dlock_acquire_xact('job', 'a', 60), dlock_acquire_xact('job', 'a', 60, 0.01);
COMMIT;
BEGIN;
SELECT dlock_acquire_xact('job', 'a', 60), dlock_acquire_xact_shared('job', 'a', 60, 0.01);
SAVEPOINT s1;
SELECT dlock_acquire_xact('job', 'b', 60);
ROLLBACK TO s1;
PREPARE TRANSACTION 'regress_dlock';
ROLLBACK PREPARED 'regress_dlock';
SELECT dlock_owner('job');
-- mixing kinds: 55000, and the lease that was there stays
SELECT dlock_acquire_xact('job', 'b', 60);
\echo :SQLSTATE
BEGIN;
SELECT dlock_acquire_xact('x', 'b', 60) IS NOT NULL AS taken;
SAVEPOINT s1;
SELECT dlock_acquire('x', 'b', 60);
ROLLBACK TO s1;
SELECT dlock_acquire_session('x', 'b', 60);
\echo :SQLSTATE
ROLLBACK;
SELECT dlock_owner('job'), dlock_is_free('x');
SELECT dlock_release('job', 'b');
-- a READ ONLY transaction may
BEGIN READ ONLY;
SELECT dlock_acquire_xact('job', 'a', 60) IS NOT NULL AS taken;
COMMIT;
-- DISCARD ALL cannot run in a transaction, so it changes nothing here
BEGIN;
SELECT dlock_acquire_xact('job', 'a', 60) IS NOT NULL AS taken;
DISCARD ALL;
ROLLBACK;
-- nothing is left
SELECT count(*) FROM dlock.locks WHERE NOT dlock_is_free(name);
