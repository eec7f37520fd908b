-- Roles: another role with the same owner string is another holder, a role
-- acts for those whose privileges it has, and sees no more than it may.
\pset null '<NULL>'
CREATE ROLE regress_app;
CREATE ROLE regress_other;
CREATE ROLE regress_lead;
CREATE ROLE regress_member;
CREATE ROLE regress_outer NOINHERIT;
CREATE ROLE regress_monitor;
GRANT regress_app TO regress_member, regress_outer;
GRANT pg_read_all_stats TO regress_monitor;

-- the holder is the current role and the owner together
SET ROLE regress_app;
SELECT dlock_acquire('job', 'worker', 600) AS t1 \gset
SELECT role = current_user AS mine, dlock_owner('job') FROM dlock.locks;

-- a stranger is refused, answered false, told nothing
SET ROLE regress_other;
SELECT dlock_acquire('job', 'worker', 60);
SELECT dlock_acquire_shared('job', 'worker', 60), dlock_acquire_permit('job', 'worker', 60, 9);
SELECT dlock_renew('job', 'worker', 60), dlock_renew('job', 'worker', 60, :t1);
SELECT dlock_release('job', 'worker'), dlock_release('job', 'worker', :t1);
SELECT dlock_renew_all('worker', 60), dlock_release_all('worker');
SELECT dlock_owner('job'), dlock_is_free('job');
SELECT name, owner, mode, version, token = :t1 AS token, role, pid, application_name, client_addr FROM dlock_holders('job');
SELECT name, owner, mode, version, token = :t1 AS token, role, pid, application_name, client_addr FROM dlock.locks;
-- no function in its WHERE sees what is behind the mask
CREATE FUNCTION pg_temp.peek(text) RETURNS boolean COST 0.0001 LANGUAGE plpgsql AS
	$$ BEGIN RAISE NOTICE 'saw %', $1; RETURN true; END $$;
SELECT count(*) FROM dlock.locks WHERE pg_temp.peek(owner) AND pg_temp.peek(application_name);
SELECT count(*) FROM dlock.locks WHERE owner = 'worker';
DROP FUNCTION pg_temp.peek;
-- as a reader beside it, it is a holder of its own
RESET ROLE;
SELECT version, expires_at > clock_timestamp() + '500 s' AS untouched, dlock_release('job', 'worker', token) FROM dlock_holders('job');
SET ROLE regress_app;
SELECT dlock_acquire_shared('doc', 'worker', 600) AS t1 \gset
SET ROLE regress_other;
SELECT dlock_acquire_shared('doc', 'worker', 600) AS t2 \gset
SELECT :t2 > :t1 AS own_token;
SELECT owner, role, version FROM dlock_holders('doc') ORDER BY token;
SELECT dlock_renew('doc', 'worker', 60, :t1), dlock_release('doc', 'worker', :t1);
SELECT dlock_release_all('worker'), dlock_release('doc', 'worker');
RESET ROLE;
SELECT dlock_release_all('worker');

-- a member acts for the role, without a SET ROLE; one that does not inherit is a stranger
SET ROLE regress_app;
SELECT dlock_acquire('job', 'worker', 600) AS t1 \gset
SET ROLE regress_member;
SELECT dlock_owner('job'), dlock_acquire('job', 'worker', 600) = :t1 AS reentered;
SELECT owner, role, version, pid = pg_backend_pid() AS pid FROM dlock.locks;
SELECT dlock_renew('job', 'worker', 600), dlock_renew_all('worker', 600), dlock_release('job', 'worker', :t1);
SET ROLE regress_outer;
SELECT dlock_owner('job'), dlock_acquire('job', 'worker', 600), dlock_release('job', 'worker'), dlock_renew_all('worker', 600);
-- not the other way round: the role does not have its member's privileges
SET ROLE regress_member;
SELECT dlock_release_all('worker'), dlock_acquire('job', 'worker', 600) IS NOT NULL AS taken;
SET ROLE regress_app;
SELECT dlock_owner('job'), dlock_release('job', 'worker'), dlock_release_all('worker');
SET ROLE regress_member;
SELECT dlock_release('job', 'worker');

-- its own come first
SELECT dlock_acquire_shared('doc', 'worker', 600) AS t1 \gset
SET ROLE regress_app;
SELECT dlock_acquire_shared('doc', 'worker', 600) AS t2 \gset
SELECT :t2 > :t1 AS own_token;
SET ROLE regress_member;
SELECT dlock_acquire_shared('doc', 'worker', 600) = :t1 AS own;
SELECT dlock_release('doc', 'worker'), dlock_release('doc', 'worker');
SELECT role FROM dlock_holders('doc');
SELECT dlock_release('doc', 'worker'), dlock_release('doc', 'worker');
-- whichever is older
SET ROLE regress_app;
SELECT dlock_acquire_shared('doc', 'worker', 600) AS t1 \gset
SET ROLE regress_lead;
SELECT dlock_acquire_shared('doc', 'worker', 600) AS t2 \gset
RESET ROLE;
GRANT regress_app TO regress_lead;
SET ROLE regress_lead;
SELECT dlock_renew('doc', 'worker', 60);
SELECT token = :t2 AS mine, expires_at < clock_timestamp() + '61 s' AS renewed FROM dlock_holders('doc') ORDER BY token;
SELECT dlock_release('doc', 'worker', :t1), dlock_release_all('worker');
RESET ROLE;

-- masks: pg_read_all_stats, membership and superuser see through, nobody else
SET ROLE regress_app;
SELECT dlock_acquire('job', 'secret', 600) IS NOT NULL AS taken;
SET ROLE regress_monitor;
SELECT owner, pid = pg_backend_pid() AS pid, application_name <> '<insufficient privilege>' AS application FROM dlock.locks;
SELECT dlock_owner('job'), owner FROM dlock_holders('job');
SELECT dlock_release('job', 'secret'), dlock_acquire('job', 'secret', 60);
SET ROLE regress_member;
SELECT dlock_owner('job'), h.owner, l.owner FROM dlock_holders('job') h, dlock.locks l;
SET ROLE regress_outer;
SELECT dlock_owner('job'), h.owner, l.owner FROM dlock_holders('job') h, dlock.locks l;
RESET ROLE;
SELECT dlock_owner('job'), h.owner, l.owner FROM dlock_holders('job') h, dlock.locks l;

-- whoever may read the table itself, in whatever way, sees no more than that
CREATE ROLE regress_reader;
GRANT pg_read_all_data TO regress_reader;
SET ROLE regress_app;
SELECT dlock_acquire('retried', 'secret', 600, request => 'secret') IS NOT NULL AS taken;
SET ROLE regress_reader;
SELECT name, owner, pid, application_name, client_addr, request FROM dlock_private.lease_table ORDER BY name;
COPY dlock_private.lease_table (owner, pid, application_name, client_addr, request) TO stdout;
SELECT count(*) FROM dlock_private.lease_table WHERE owner = 'secret' OR request = 'secret';
SELECT dlock_acquire('own', 'mine', 600, request => 'mine') IS NOT NULL AS taken;
-- also when one role after the other reads one cursor
BEGIN;
DECLARE crossed CURSOR FOR SELECT owner, request FROM dlock_private.lease_table WHERE name = 'own';
RESET ROLE;
DECLARE crossed_too CURSOR FOR SELECT owner, request FROM dlock_private.lease_table WHERE name = 'own';
FETCH crossed;
SET ROLE regress_other;
FETCH crossed_too;
COMMIT;
RESET ROLE;
SELECT name, owner, pid = pg_backend_pid() AS pid, application_name = current_setting('application_name') AS application, request
FROM dlock_private.lease_table ORDER BY name;
SELECT dlock_release_all('mine'), dlock_force_release('retried');
DROP ROLE regress_reader;

-- what is revoked is revoked for every way to look: the functions answer what their view would
REVOKE SELECT ON dlock.locks, dlock.waiters, dlock.stats FROM PUBLIC;
GRANT SELECT ON dlock.locks, dlock.waiters, dlock.stats TO regress_monitor;
SET ROLE regress_other;
SELECT count(*) FROM dlock.locks;
SELECT count(*) FROM dlock_holders('job');
SELECT count(*) FROM dlock.waiters;
SELECT count(*) FROM dlock_private.read_waiters();
SELECT acquired > 0 AS readable FROM dlock.stats;
SELECT acquired > 0 AS readable FROM dlock_private.read_stats();
SET ROLE regress_monitor;
SELECT count(*), (SELECT count(*) FROM dlock.waiters), (SELECT count(*) FROM dlock.stats) FROM dlock.locks;
SELECT owner FROM dlock_holders('job');
RESET ROLE;
GRANT SELECT (name, mode) ON dlock.locks TO regress_other;
GRANT SELECT (name, "position") ON dlock.waiters TO regress_other;
GRANT SELECT (acquired, waiters) ON dlock.stats TO regress_other;
SET ROLE regress_other;
SELECT name, mode FROM dlock.locks;
SELECT role FROM dlock.locks;
SELECT * FROM dlock_holders('job');
SELECT name, "position" FROM dlock.waiters;
SELECT role FROM dlock.waiters;
SELECT acquired > 0 AS acquired, waiters FROM dlock.stats;
SELECT acquired > 0 AS acquired, released, waiters, wait_histogram, stats_reset FROM dlock_private.read_stats();
RESET ROLE;
REVOKE SELECT (name, mode) ON dlock.locks FROM regress_other;
REVOKE SELECT (name, "position") ON dlock.waiters FROM regress_other;
REVOKE SELECT (acquired, waiters) ON dlock.stats FROM regress_other;
REVOKE SELECT ON dlock.locks, dlock.waiters, dlock.stats FROM regress_monitor;
GRANT SELECT ON dlock.locks, dlock.waiters, dlock.stats TO PUBLIC;
REVOKE USAGE ON SCHEMA dlock FROM PUBLIC;
SET ROLE regress_other;
SELECT count(*) FROM dlock.locks;
SELECT count(*) FROM dlock_holders('job');
SELECT dlock_is_free('job');
RESET ROLE;
GRANT USAGE ON SCHEMA dlock TO PUBLIC;

-- force-release, the counters' reset and the table are not for everyone
SET ROLE regress_other;
\set VERBOSITY sqlstate
SELECT dlock_force_release('job');
SELECT dlock_force_release('job', 'secret');
SELECT dlock_stats_reset();
SELECT * FROM dlock_private.lease_table;
SELECT count(*) FROM dlock_private.lease_table;
COPY dlock_private.lease_table TO stdout;
INSERT INTO dlock_private.lease_table (name) VALUES ('x');
DELETE FROM dlock_private.lease_table;
TRUNCATE dlock_private.lease_table;
BEGIN;
LOCK TABLE dlock_private.lease_table;
ROLLBACK;
VACUUM dlock_private.lease_table;
CREATE TABLE dlock.mine ();
DELETE FROM dlock.locks;
CREATE TEMP TABLE mine (name text) USING dlock;
\set VERBOSITY default
SELECT acquired > 0 AS readable FROM dlock.stats;
RESET ROLE;
GRANT EXECUTE ON FUNCTION dlock_force_release(text), dlock_force_release(text, text) TO regress_other;
SET ROLE regress_other;
SELECT dlock_force_release('job', 'other'), dlock_force_release('job', 'secret'), dlock_is_free('job');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION dlock_force_release(text), dlock_force_release(text, text) FROM regress_other;

-- a SECURITY DEFINER function takes the lease as its definer
CREATE FUNCTION take_as_definer() RETURNS boolean LANGUAGE sql SECURITY DEFINER
	AS $$ SELECT dlock_acquire('job', 'worker', 60) IS NOT NULL $$;
ALTER FUNCTION take_as_definer OWNER TO regress_app;
SET ROLE regress_other;
SELECT take_as_definer();
SELECT role, owner, dlock_release('job', 'worker') FROM dlock.locks;
SET ROLE regress_app;
SELECT role = current_user AS mine, owner, dlock_release('job', 'worker') FROM dlock.locks;
RESET ROLE;
DROP FUNCTION take_as_definer;
-- session and current role: the current one counts
SET SESSION AUTHORIZATION regress_member;
SELECT dlock_acquire('job', 'worker', 60) IS NOT NULL AS taken;
SET ROLE regress_app;
SELECT role, dlock_release('job', 'worker') FROM dlock.locks;
RESET ROLE;
SELECT role, dlock_release('job', 'worker') FROM dlock.locks;
RESET SESSION AUTHORIZATION;

-- a dropped role leaves its leases to the operator
CREATE ROLE regress_gone;
SET ROLE regress_gone;
SELECT dlock_acquire('job', 'worker', 600) IS NOT NULL AS taken;
RESET ROLE;
DROP ROLE regress_gone;
SELECT role ~ '^unknown \(OID=\d+\)$' AS unknown, dlock_is_free('job') FROM dlock.locks;
SET ROLE regress_other;
SELECT owner, dlock_owner('job'), dlock_release('job', 'worker') FROM dlock_holders('job');
RESET ROLE;
SELECT dlock_force_release('job');

REVOKE regress_app FROM regress_member, regress_outer, regress_lead;
DROP ROLE regress_app, regress_other, regress_lead, regress_member, regress_outer, regress_monitor;
SELECT count(*) FROM dlock.locks;
