-- Installing: what CREATE EXTENSION makes and where, that DROP EXTENSION
-- leaves nothing behind, and that both follow their transaction.
\pset null '<NULL>'
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS dlock;
RESET client_min_messages;

-- the functions go to the target schema, the relations to schema dlock
CREATE SCHEMA regress_locks;
CREATE EXTENSION dlock SCHEMA regress_locks;
SELECT extnamespace::regnamespace, extrelocatable
FROM pg_extension WHERE extname = 'dlock';
SELECT DISTINCT n.nspname, p.proname
FROM pg_depend d
JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'dlock'
JOIN pg_proc p ON p.oid = d.objid
JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
	AND d.refclassid = 'pg_extension'::regclass
	AND p.proname !~ '^dlock_duration'
ORDER BY 1, 2;
SELECT c.relname, c.relkind, a.amname, c.relfrozenxid, c.relminmxid,
	c.reltoastrelid
FROM pg_class c LEFT JOIN pg_am a ON a.oid = c.relam
WHERE c.relnamespace IN ('dlock'::regnamespace, 'dlock_private'::regnamespace)
ORDER BY 1;

-- they work from there, with and without the schema on the path
SELECT regress_locks.dlock_acquire('job', 'worker-1', 3600) IS NOT NULL AS taken;
SET search_path = regress_locks;
SELECT dlock_owner('job'), dlock_renew('job', 'worker-1', '1 hour');
RESET search_path;
SELECT name, owner, mode, version FROM dlock.locks;

-- it cannot be moved or taken apart
\set VERBOSITY sqlstate
ALTER EXTENSION dlock SET SCHEMA public;
DROP SCHEMA regress_locks;
DROP SCHEMA dlock;
DROP SCHEMA dlock_private;
DROP TABLE dlock_private.lease_table;
DROP ACCESS METHOD dlock;
DROP FUNCTION regress_locks.dlock_owner(text);

-- a rolled back DROP keeps the leases
BEGIN;
DROP EXTENSION dlock;
SELECT count(*) FROM pg_proc WHERE proname LIKE 'dlock%';
ROLLBACK;
SELECT regress_locks.dlock_owner('job');

-- nor can it be prepared: sessions that wait would not hear of the commit; that
-- of another extension can
BEGIN;
DROP EXTENSION dlock;
PREPARE TRANSACTION 'regress_dlock';
ROLLBACK PREPARED 'regress_dlock';
SELECT regress_locks.dlock_owner('job');
BEGIN;
ALTER EXTENSION dlock DROP PROCEDURE dlock.grant_only_to(name[]);
DROP PROCEDURE dlock.grant_only_to;
DROP EXTENSION plpgsql;
PREPARE TRANSACTION 'regress_dlock';
ROLLBACK PREPARED 'regress_dlock';

-- nothing is left
DROP EXTENSION dlock;
DROP SCHEMA regress_locks;
SELECT count(*) FROM pg_proc WHERE proname LIKE 'dlock%';
SELECT to_regnamespace('dlock') AS schema, to_regnamespace('dlock_private') AS private, to_regtype('dlock_duration') AS type,
	(SELECT count(*) FROM pg_am WHERE amname = 'dlock') AS access_methods;

-- a rolled back CREATE leaves nothing either, and the transaction that
-- creates the table cannot use it yet: a lease must not be rolled back
BEGIN;
CREATE EXTENSION dlock;
SELECT count(*) FROM dlock.locks;
SELECT dlock_acquire('job', 'worker-1', 3600);
ROLLBACK;
SELECT to_regnamespace('dlock') AS schema;

-- an empty schema of that name is used, and goes with the extension; what others
-- have put into the target schema is not called
CREATE FUNCTION trap(oid, regclass) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
CREATE OPERATOR = (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = trap);
CREATE SCHEMA dlock;
CREATE SCHEMA dlock_private;
CREATE EXTENSION dlock;
DROP OPERATOR = (oid, regclass);
DROP FUNCTION trap(oid, regclass);
DROP SCHEMA dlock;
SELECT dlock_acquire('job', 'worker-1', 3600) IS NOT NULL AS taken, has_schema_privilege('public', 'dlock', 'USAGE'), has_schema_privilege('public', 'dlock_private', 'USAGE');
DROP EXTENSION dlock;
SELECT to_regnamespace('dlock') AS schema, to_regnamespace('dlock_private') AS private;

-- a schema into which somebody has put something, or can, is refused
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE SCHEMA dlock;
CREATE FUNCTION dlock.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$;
CREATE EXTENSION dlock;
\echo :SQLSTATE
DROP FUNCTION dlock.refuse_change();
CREATE ROLE regress_dlock_nobody;
GRANT CREATE ON SCHEMA dlock TO regress_dlock_nobody;
CREATE EXTENSION dlock;
REVOKE CREATE ON SCHEMA dlock FROM regress_dlock_nobody;
GRANT CREATE ON SCHEMA dlock TO PUBLIC;
CREATE EXTENSION dlock;
REVOKE CREATE ON SCHEMA dlock FROM PUBLIC;
ALTER SCHEMA dlock OWNER TO regress_dlock_nobody;
CREATE EXTENSION dlock;
ALTER SCHEMA dlock OWNER TO CURRENT_USER;
ALTER DEFAULT PRIVILEGES IN SCHEMA dlock GRANT ALL ON TABLES TO regress_dlock_nobody;
CREATE EXTENSION dlock;
ALTER DEFAULT PRIVILEGES IN SCHEMA dlock REVOKE ALL ON TABLES FROM regress_dlock_nobody;
CREATE EXTENSION dlock SCHEMA dlock;
CREATE SCHEMA dlock_private;
GRANT USAGE ON SCHEMA dlock_private TO regress_dlock_nobody;
CREATE EXTENSION dlock;
REVOKE USAGE ON SCHEMA dlock_private FROM regress_dlock_nobody;
GRANT USAGE ON SCHEMA dlock TO regress_dlock_nobody;
CREATE EXTENSION dlock;
DROP EXTENSION dlock;
\set VERBOSITY sqlstate
\set SHOW_CONTEXT errors

-- not everybody may install it
SET ROLE regress_dlock_nobody;
CREATE EXTENSION dlock;
RESET ROLE;
DROP ROLE regress_dlock_nobody;

-- the leases of before are gone with the table; the tests that follow use this
CREATE EXTENSION dlock;
SELECT dlock_is_free('job'), (SELECT count(*) FROM dlock.locks) AS leases;
