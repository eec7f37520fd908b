-- dlock_guard(): an error unless the lease is held, with that token.  What it
-- keeps others from is tested in t/.
\pset null '<NULL>'
SELECT dlock_acquire('job', 'a', 600) AS t1 \gset

BEGIN;
SELECT dlock_guard('job', 'a', :t1);
-- any number of times
SELECT dlock_guard('job', 'a', :t1);
COMMIT;
SELECT dlock_owner('job');

-- outside a transaction block it would end at once: an error
SELECT dlock_guard('job', 'a', :t1);
\echo :SQLSTATE
-- a function or DO block is no transaction block
DO $$ BEGIN PERFORM dlock_guard('job', 'a', 1); END $$;
\echo :SQLSTATE

-- not held, never held, a stranger's: 55L01; the error names the present holder to
-- roles that may know it
CREATE FUNCTION guarded(name text, owner text, token bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	fact text;
BEGIN
	PERFORM dlock_guard(name, owner, token);
	RETURN 'guarded';
EXCEPTION WHEN SQLSTATE '55L01' THEN
	GET STACKED DIAGNOSTICS fact = PG_EXCEPTION_DETAIL;
	RETURN format('%s: %s %s', SQLSTATE, SQLERRM, regexp_replace(fact, '\d{10,}', 'nnn'));
END $$;
BEGIN;
SELECT guarded('job', 'a', :t1);
SELECT guarded('job', 'a', :t1 - 1);
SELECT guarded('job', 'a', 0);
SELECT guarded('job', 'a', -9223372036854775808);
SELECT guarded('job', 'b', :t1);
SELECT guarded('nothing', 'a', :t1);
COMMIT;
-- after a release
SELECT dlock_release('job', 'a');
BEGIN;
SELECT dlock_guard('job', 'a', :t1);
ROLLBACK;
-- scenario 23: after the deadline, with and without a row, and a new holder
SELECT dlock_acquire('short', 'a', 0.01) AS t2 \gset
SELECT dlock_wait('short', -1);
BEGIN;
SELECT dlock_guard('short', 'a', :t2);
\echo :SQLSTATE
ROLLBACK;
SELECT dlock_acquire('short', 'a', 60) > :t2 AS newer;
SELECT dlock_release('short', 'a');

-- a role that may not know is told less
CREATE ROLE regress_dlock_stranger;
SELECT dlock_acquire('job', 'secret owner', 600) AS t3 \gset
SET ROLE regress_dlock_stranger;
-- even with the right owner and token it is another holder
BEGIN;
SELECT guarded('job', 'secret owner', :t3);
ROLLBACK;
RESET ROLE;
-- one that has its privileges may guard it
GRANT regress_dlock_stranger TO CURRENT_USER;
SET ROLE regress_dlock_stranger;
SELECT dlock_acquire('theirs', 'x', 600) AS t4 \gset
RESET ROLE;
BEGIN;
SELECT dlock_guard('theirs', 'x', :t4);
COMMIT;
SELECT dlock_release('theirs', 'x'), dlock_release('job', 'secret owner');
DROP ROLE regress_dlock_stranger;

-- a shared lease, a permit, a session lease
SELECT dlock_acquire_shared('doc', 'a', 600) AS t5, dlock_acquire_permit('pool', 'a', 600, 2) AS t6, dlock_acquire_session('s', 'a', 600) AS t7 \gset
BEGIN;
SELECT dlock_guard('doc', 'a', :t5), dlock_guard('pool', 'a', :t6), dlock_guard('s', 'a', :t7);
COMMIT;
-- a READ ONLY transaction, savepoints
BEGIN READ ONLY;
SAVEPOINT x;
SELECT dlock_guard('doc', 'a', :t5);
ROLLBACK TO x;
SELECT dlock_guard('doc', 'a', :t5);
COMMIT;

-- guarded: the holder may still release, and even an expiry does not let others
-- in before the end
BEGIN;
SELECT dlock_guard('pool', 'a', :t6);
SELECT dlock_release('pool', 'a', :t6), dlock_guard('doc', 'a', :t5);
SELECT dlock_owner('pool'), dlock_acquire('pool', 'a', 600) IS NOT NULL AS own;
SELECT dlock_release('pool', 'a');
COMMIT;

-- a guarded lease is shown as guarded; when only the guard is left it has a row of its
-- own: with what the lease was, and who guards
SET application_name = 'guarding';
SELECT dlock_acquire('gone', 'a', 600) AS gone, dlock_acquire_permit('gone pool', 'b', 600, 9) AS pool \gset
SELECT dlock_acquire_permit('gone pool', 'b', 600, 9) = :pool AS same, dlock_acquire_permit('gone pool', 'c', 600, 9) > :pool AS other;
BEGIN;
SELECT dlock_guard('gone', 'a', :gone), dlock_guard('gone pool', 'b', :pool);
SELECT name, owner, guarded, remaining > 500 AS live FROM dlock.locks WHERE name ~ '^gone' ORDER BY name, owner;
SELECT owner, guarded, remaining > 500 AS live FROM dlock_holders('gone pool') ORDER BY owner;
SET application_name = 'something else';
SELECT dlock_release('gone', 'a'), dlock_force_release('gone pool', 'b');
SELECT name, owner, mode, version, token IN (:gone, :pool) AS same, acquired_at < clock_timestamp() AS acquired, expires_at, remaining, guarded,
	role = current_user AS by_me, pid = pg_backend_pid() AS by_me, application_name
FROM dlock.locks WHERE name ~ '^gone' AND remaining = 0 ORDER BY name;
SELECT name, owner, guarded FROM dlock.locks WHERE name ~ '^gone' ORDER BY name, owner;
SELECT count(*), bool_and(l = h) AS same FROM dlock.locks l LEFT JOIN dlock_holders(l.name) h USING (token) WHERE l.name ~ '^gone' AND l.remaining = 0;
SELECT owner, guarded FROM dlock_holders('gone');
SELECT request, name FROM dlock_private.lease_table WHERE name = 'gone';
SELECT dlock_is_free('gone'), dlock_owner('gone'), dlock_remaining('gone', 'a');
SELECT held = (SELECT count(*) FROM dlock_private.lease_table WHERE remaining > 0) AS not_held FROM dlock.stats;
-- taken anew by its owner: two rows
SELECT dlock_acquire('gone', 'a', 600) > :gone AS newer;
SELECT owner, token = :gone AS old, remaining > 0 AS live, guarded FROM dlock_holders('gone') ORDER BY token;
SELECT dlock_release('gone', 'a'), dlock_release('gone pool', 'c');
-- a parallel scan shows each once
ALTER TABLE dlock_private.lease_table RESET (parallel_workers);
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SELECT count(*) FROM dlock_private.lease_table WHERE guarded;
-- roles that may not see a role's leases see neither the owner nor who guards
CREATE ROLE regress_dlock_guard_stranger;
SET LOCAL ROLE regress_dlock_guard_stranger;
SELECT owner, mode, token = :gone AS same, guarded, remaining, pid, application_name, client_addr FROM dlock_holders('gone');
SELECT owner, mode, token = :gone AS same, guarded, remaining, pid, application_name, client_addr FROM dlock.locks WHERE name = 'gone';
RESET ROLE;
ROLLBACK;
SELECT count(*) FROM dlock.locks WHERE name ~ '^gone';
RESET application_name;

-- PREPARE TRANSACTION is refused: 0A000
BEGIN;
SELECT dlock_guard('doc', 'a', :t5);
PREPARE TRANSACTION 'regress_dlock';
\echo :SQLSTATE
BEGIN;
SELECT dlock_guard('doc', 'a', :t5), dlock_release('doc', 'a');
PREPARE TRANSACTION 'regress_dlock';
\echo :SQLSTATE
SELECT count(*) FROM pg_prepared_xacts;
-- a failed guard leaves nothing behind
BEGIN;
SAVEPOINT x;
SELECT dlock_guard('nothing', 'a', 1);
ROLLBACK TO x;
PREPARE TRANSACTION 'regress_dlock';
ROLLBACK PREPARED 'regress_dlock';
-- many at once, gone at the end
SELECT count(dlock_acquire('g' || i, 'a', 600)) FROM generate_series(1, 200) i;
BEGIN;
SELECT count(dlock_guard(name, owner, token)::text) FROM dlock.locks WHERE name ~ '^g\d';
COMMIT;
SELECT dlock_release_all('a');
DROP FUNCTION guarded;
SELECT count(*) FROM dlock.locks WHERE NOT dlock_is_free(name);
