-- What every role may do, and what only roles may that were granted it.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS dlock;
CREATE EXTENSION IF NOT EXISTS pgtap;
BEGIN;
SELECT plan(19);
CREATE ROLE regress_dlock_anyone;

SELECT schema_privs_are('dlock', 'regress_dlock_anyone', ARRAY['USAGE'], 'schema dlock: to look up, not to create');
SELECT schema_privs_are('dlock_private', 'regress_dlock_anyone', ARRAY[]::text[], 'schema dlock_private: nothing');
SELECT table_privs_are('dlock', 'locks', 'regress_dlock_anyone', ARRAY['SELECT'], 'dlock.locks: to read');
SELECT table_privs_are('dlock', 'waiters', 'regress_dlock_anyone', ARRAY['SELECT'], 'dlock.waiters: to read');
SELECT table_privs_are('dlock', 'stats', 'regress_dlock_anyone', ARRAY['SELECT'], 'dlock.stats: to read');
SELECT table_privs_are('dlock_private', 'lease_table', 'regress_dlock_anyone', ARRAY[]::text[], 'dlock_private.lease_table: nothing');
SELECT is_empty($$
	SELECT attname FROM pg_attribute
	WHERE attrelid IN ('dlock_private.lease_table'::regclass, 'dlock.locks'::regclass, 'dlock.waiters'::regclass, 'dlock.stats'::regclass) AND attacl IS NOT NULL
$$, 'no column has privileges of its own');

-- every function but these is everybody's
SELECT bag_eq($$
	SELECT p.proname::text FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
	WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
		AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dlock')
		AND NOT has_function_privilege('regress_dlock_anyone', p.oid, 'EXECUTE')
$$, ARRAY['dlock_force_release', 'dlock_force_release', 'dlock_stats_reset', 'grant_only_to'], 'functions that must be granted');
SELECT is_empty($$
	SELECT p.proname FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
	WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
		AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dlock') AND p.prosecdef
$$, 'none runs with its owner''s privileges');
SELECT type_owner_is('dlock_duration', (SELECT rolname FROM pg_extension e JOIN pg_roles r ON r.oid = extowner WHERE extname = 'dlock'),
	'dlock_duration belongs to the extension''s owner');
SELECT is(has_type_privilege('regress_dlock_anyone', 'dlock_duration', 'USAGE'), true, 'dlock_duration: to use');

SET ROLE regress_dlock_anyone;
SELECT throws_ok('SELECT public.dlock_force_release(''x'')', '42501', NULL, 'force-release is refused');
SELECT throws_ok('SELECT name FROM dlock_private.lease_table', '42501', NULL, 'reading the table is refused');
RESET ROLE;

-- What only two roles may, one of which has a name that needs quotes.
CREATE ROLE "regress_dlock-app";
CREATE ROLE regress_dlock_other;
CALL dlock.grant_only_to('regress_dlock-app', 'regress_dlock_other');
SELECT set_eq($$
	SELECT p.proname::text FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
	WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND p.pronamespace = 'public'::regnamespace
		AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dlock')
		AND has_function_privilege('regress_dlock_anyone', p.oid, 'EXECUTE')
$$, ARRAY[]::text[], 'then nothing is everybody''s');
SELECT table_privs_are('dlock', 'locks', 'regress_dlock_anyone', ARRAY[]::text[], 'nor are the views');
SELECT set_eq(format($$
	SELECT p.proname::text FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
	WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
		AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dlock')
		AND NOT has_function_privilege(%L, p.oid, 'EXECUTE')
$$, role), ARRAY['dlock_force_release', 'dlock_stats_reset', 'grant_only_to'], role || ' may what everybody might')
FROM unnest(ARRAY['regress_dlock-app', 'regress_dlock_other']) AS role;
SELECT table_privs_are('dlock', 'locks', 'regress_dlock-app', ARRAY['SELECT'], 'and may read the views');
SET ROLE "regress_dlock-app";
SELECT throws_ok($$CALL dlock.grant_only_to('regress_dlock_anyone')$$, '42501', NULL, 'but not pass it on');
RESET ROLE;

SELECT * FROM finish();
ROLLBACK;
