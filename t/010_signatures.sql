-- Every function of the extension, as it is declared; there is none that is not
-- listed here, and none without a comment.  A function that is added to the extension
-- fails this test until it is added here.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS dlock;
CREATE EXTENSION IF NOT EXISTS pgtap;
BEGIN;
SELECT plan(4);

-- what CREATE EXTENSION made, apart from the types of arrays and rows
CREATE TEMP VIEW members AS
SELECT classid, objid, pg_describe_object(classid, objid, 0) AS what
FROM pg_depend
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
	AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dlock')
	AND NOT (classid = 'pg_type'::regclass AND objid IN
		(SELECT oid FROM pg_type WHERE typcategory = 'A' OR typrelid <> 0));

SELECT bag_eq('SELECT what FROM members WHERE classid <> ''pg_proc''::regclass', ARRAY[
	'schema dlock',
	'schema dlock_private',
	'type dlock_duration',
	'cast from smallint to dlock_duration',
	'cast from integer to dlock_duration',
	'cast from bigint to dlock_duration',
	'cast from numeric to dlock_duration',
	'cast from real to dlock_duration',
	'cast from double precision to dlock_duration',
	'cast from interval to dlock_duration',
	'cast from text to dlock_duration',
	'cast from character varying to dlock_duration',
	'cast from dlock_duration to interval',
	'access method dlock',
	'table dlock_private.lease_table',
	'view dlock.locks',
	'view dlock.waiters',
	'view dlock.stats'
], 'types, casts and relations');

SELECT bag_eq($$
	SELECT concat_ws(' ',
		CASE pronamespace WHEN 'dlock_private'::regnamespace THEN 'dlock_private.' ELSE '' END || proname
			|| '(' || pg_get_function_arguments(p.oid) || ')',
		pg_get_function_result(p.oid), l.lanname,
		CASE provolatile WHEN 'v' THEN 'volatile' WHEN 's' THEN 'stable' ELSE 'immutable' END,
		CASE proparallel WHEN 'u' THEN 'unsafe' WHEN 'r' THEN 'restricted' ELSE 'safe' END,
		CASE WHEN proisstrict THEN 'strict' END,
		CASE WHEN prosecdef THEN 'definer' END,
		CASE WHEN proleakproof THEN 'leakproof' END)
	FROM members JOIN pg_proc p ON p.oid = objid JOIN pg_language l ON l.oid = prolang
	WHERE classid = 'pg_proc'::regclass
$$, ARRAY[
	-- leases: called on NULL, so that it is an error
	'dlock_acquire(name text, owner text, ttl dlock_duration, wait dlock_duration DEFAULT ''0''::dlock_duration, request text DEFAULT NULL::text) bigint c volatile unsafe',
	'dlock_acquire_shared(name text, owner text, ttl dlock_duration, wait dlock_duration DEFAULT ''0''::dlock_duration, request text DEFAULT NULL::text) bigint c volatile unsafe',
	'dlock_acquire_permit(name text, owner text, ttl dlock_duration, "limit" integer, wait dlock_duration DEFAULT ''0''::dlock_duration, request text DEFAULT NULL::text) bigint c volatile unsafe',
	'dlock_acquire_all(names text[], owner text, ttl dlock_duration, wait dlock_duration DEFAULT ''0''::dlock_duration, request text DEFAULT NULL::text) bigint[] c volatile unsafe',
	'dlock_acquire_permits(name text, owner text, ttl dlock_duration, "limit" integer, permits integer, wait dlock_duration DEFAULT ''0''::dlock_duration, request text DEFAULT NULL::text) bigint c volatile unsafe',
	'dlock_acquire_any(names text[], owner text, ttl dlock_duration, count integer, wait dlock_duration DEFAULT ''0''::dlock_duration, request text DEFAULT NULL::text, OUT name text, OUT token bigint) SETOF record c volatile unsafe',
	'dlock_acquire_session_shared(name text, owner text, ttl dlock_duration, wait dlock_duration DEFAULT ''0''::dlock_duration) bigint c volatile unsafe',
	'dlock_acquire_session(name text, owner text, ttl dlock_duration, wait dlock_duration DEFAULT ''0''::dlock_duration) bigint c volatile unsafe',
	'dlock_acquire_xact(name text, owner text, ttl dlock_duration, wait dlock_duration DEFAULT ''0''::dlock_duration) bigint c volatile unsafe',
	'dlock_acquire_xact_shared(name text, owner text, ttl dlock_duration, wait dlock_duration DEFAULT ''0''::dlock_duration) bigint c volatile unsafe',
	'dlock_guard(name text, owner text, token bigint) void c volatile unsafe',
	'dlock_wait(name text, wait dlock_duration DEFAULT ''0''::dlock_duration) boolean c volatile unsafe',
	'dlock_renew(name text, owner text, ttl dlock_duration, token bigint DEFAULT NULL::bigint) boolean c volatile unsafe',
	'dlock_renew_all(owner text, ttl dlock_duration) bigint c volatile unsafe',
	'dlock_renew_many(names text[], owner text, ttl dlock_duration, tokens bigint[] DEFAULT NULL::bigint[]) SETOF text c volatile unsafe',
	'dlock_release_many(names text[], owner text, tokens bigint[] DEFAULT NULL::bigint[]) SETOF text c volatile unsafe',
	'dlock_release(name text, owner text, token bigint, holds integer) boolean c volatile unsafe',
	'dlock_release_after(name text, owner text, after dlock_duration, token bigint DEFAULT NULL::bigint) boolean c volatile unsafe',
	'dlock_downgrade(name text, owner text, token bigint DEFAULT NULL::bigint) boolean c volatile unsafe',
	'dlock_release(name text, owner text, token bigint DEFAULT NULL::bigint) boolean c volatile unsafe',
	'dlock_release_all(owner text) bigint c volatile unsafe',
	'dlock_owner(name text) text c volatile safe',
	'dlock_is_free(name text) boolean c volatile safe',
	'dlock_remaining(name text, owner text, token bigint DEFAULT NULL::bigint) double precision c volatile restricted',
	'dlock_holders(name text) TABLE(name text, owner text, mode text, version integer, token bigint, acquired_at timestamp with time zone, expires_at timestamp with time zone, remaining double precision, guarded boolean, leaving boolean, role name, pid integer, application_name text, client_addr text) c volatile safe',
	'dlock_blocking_pids(pid integer) integer[] c volatile safe strict',
	'dlock_force_release(name text) bigint c volatile unsafe',
	'dlock_force_release(name text, owner text) bigint c volatile unsafe',
	'dlock_stats_reset() void c volatile unsafe strict',
	-- durations; reading one is stable, as reading an interval is
	'dlock_duration_in(cstring) dlock_duration c stable safe strict',
	'dlock_duration_out(dlock_duration) cstring c immutable safe strict',
	'dlock_duration_recv(internal) dlock_duration c immutable safe strict',
	'dlock_duration_send(dlock_duration) bytea c immutable safe strict',
	'dlock_private.duration(integer) dlock_duration c immutable safe strict',
	'dlock_private.duration(bigint) dlock_duration c immutable safe strict',
	'dlock_private.duration(double precision) dlock_duration c immutable safe strict',
	'dlock_private.duration(interval) dlock_duration c immutable safe strict',
	'dlock_private.duration(real) dlock_duration c immutable safe strict',
	'dlock_private.to_interval(dlock_duration) interval c immutable safe strict',
	'grant_only_to(VARIADIC roles name[]) plpgsql volatile unsafe',
	-- behind the relations
	'dlock_private.table_handler(internal) table_am_handler c volatile unsafe strict',
	'dlock_private.refuse_change() trigger c volatile unsafe',
	'dlock_private.read_waiters(OUT name text, OUT owner text, OUT mode text, OUT "position" integer, OUT waiting_since timestamp with time zone, OUT role name, OUT pid integer, OUT application_name text, OUT client_addr text) SETOF record c volatile safe strict',
	'dlock_private.read_stats(OUT acquired bigint, OUT reentered bigint, OUT refused bigint, OUT timed_out bigint, OUT deadlocks bigint, OUT released bigint, OUT renewed bigint, OUT renewals_lost bigint, OUT expired bigint, OUT reaped bigint, OUT forced bigint, OUT woken bigint, OUT held bigint, OUT waiters integer, OUT wait_histogram bigint[], OUT stats_reset timestamp with time zone) record c volatile safe strict'
], 'functions');

SELECT is_empty($$
	SELECT what FROM members
	WHERE classid = 'pg_proc'::regclass AND obj_description(objid, 'pg_proc') IS NULL
$$, 'every function has a comment');
SELECT is_empty($$
	SELECT what FROM members
	WHERE classid IN ('pg_class'::regclass, 'pg_type'::regclass, 'pg_am'::regclass)
		AND obj_description(objid, classid::regclass::name) IS NULL
$$, 'every relation, type and access method has a comment');

SELECT * FROM finish();
ROLLBACK;
