-- A hostile search_path: functions, operators, types and relations that shadow
-- the system's own are never called, in the functions or behind the views.
\pset null '<NULL>'
CREATE SCHEMA regress_evil;
SET search_path = regress_evil;
CREATE FUNCTION trap() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'caught'; END $$;
CREATE FUNCTION pg_get_userbyid(oid) RETURNS name LANGUAGE sql AS $$ SELECT regress_evil.trap()::text::name $$;
CREATE FUNCTION may_see(oid) RETURNS boolean LANGUAGE sql AS $$ SELECT regress_evil.trap() $$;
CREATE FUNCTION has_privs_of_role(oid, oid) RETURNS boolean LANGUAGE sql AS $$ SELECT regress_evil.trap() $$;
CREATE FUNCTION read_stats() RETURNS boolean LANGUAGE sql AS $$ SELECT regress_evil.trap() $$;
CREATE FUNCTION texteq(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT regress_evil.trap() $$;
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT regress_evil.trap()::text::timestamptz $$;
CREATE FUNCTION now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT regress_evil.trap()::text::timestamptz $$;
CREATE FUNCTION hash_any(text) RETURNS integer LANGUAGE sql AS $$ SELECT regress_evil.trap()::integer $$;
CREATE OPERATOR = (LEFTARG = text, RIGHTARG = text, FUNCTION = regress_evil.texteq);
CREATE FUNCTION oideq(oid, oid) RETURNS boolean LANGUAGE sql AS $$ SELECT regress_evil.trap() $$;
CREATE OPERATOR = (LEFTARG = oid, RIGHTARG = oid, FUNCTION = regress_evil.oideq);
CREATE TYPE interval AS (x integer);
CREATE TYPE text AS (x integer);
CREATE DOMAIN dlock_duration AS pg_catalog.text CHECK (trap());
CREATE TABLE lease_table (name pg_catalog.text, owner pg_catalog.text);
CREATE VIEW locks AS SELECT trap();
CREATE TABLE pg_class ();
CREATE TABLE pg_extension ();
RESET search_path;

-- evil first, the system's catalog last, the extension's schema by name
SET search_path = regress_evil, pg_catalog;
SELECT public.dlock_acquire('job', 'a', 60) IS NOT NULL AS taken;
SELECT public.dlock_acquire('job', 'a', '1 minute', '0', 'r') IS NOT NULL AS taken;
SELECT public.dlock_acquire_shared('doc', 'a', 60) IS NOT NULL AS taken;
SELECT public.dlock_acquire_permit('pool', 'a', pg_catalog.make_interval(secs => 60), 1) IS NOT NULL AS taken;
SELECT public.dlock_renew('job', 'a', '30 s'), public.dlock_renew_all('a', '60 s');
SELECT public.dlock_owner('job'), public.dlock_is_free('job');
SELECT name, owner, mode, role OPERATOR(pg_catalog.=) current_user AS mine FROM public.dlock_holders('job');
SELECT name, owner, mode, role OPERATOR(pg_catalog.=) current_user AS mine FROM dlock.locks ORDER BY name;
SELECT waiters FROM dlock.stats;
SELECT public.dlock_release('job', 'a'), public.dlock_force_release('doc'), public.dlock_release_all('a');
\set VERBOSITY sqlstate
DELETE FROM dlock_private.lease_table;
SELECT public.dlock_acquire('', 'a', 60);
\set VERBOSITY default

-- the shadows work: a query that does look them up calls them
\set VERBOSITY sqlstate
SELECT 'a'::pg_catalog.text = 'a'::pg_catalog.text;
\set VERBOSITY default

-- the extension is not misled when it is created either
DROP EXTENSION dlock;
CREATE EXTENSION dlock SCHEMA public;
SELECT public.dlock_acquire('job', 'a', 60) IS NOT NULL AS taken, public.dlock_release('job', 'a');
SELECT atttypid::regtype FROM pg_catalog.pg_attribute
WHERE attrelid OPERATOR(pg_catalog.=) 'dlock_private.lease_table'::regclass::oid AND attname::pg_catalog.text OPERATOR(pg_catalog.=) 'name'::pg_catalog.text;

-- an empty path, and the path of a stranger's temporary schema
SET search_path = '';
SELECT public.dlock_acquire('job', 'a', 60) IS NOT NULL AS taken, public.dlock_release_all('a');
SET search_path = pg_temp, public;
CREATE TEMP TABLE locks (name pg_catalog.text);
SELECT dlock_acquire('job', 'a', '60 s') IS NOT NULL AS taken;
SELECT count(*), dlock_release_all('a') FROM dlock.locks;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA regress_evil CASCADE;
RESET client_min_messages;
SELECT count(*) FROM dlock.locks;
