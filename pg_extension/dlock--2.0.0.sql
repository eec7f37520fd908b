/* dlock--2.0.0.sql: the objects of the PostgreSQL extension */

\echo Use "CREATE EXTENSION dlock" to load this file. \quit

-- The functions go to the target schema, the views to schema dlock, and what only they
-- use to dlock_private, which nobody else may use: without USAGE no role can name the lock
-- table, and so lock it, so that all calls wait.
--
-- A schema that is there already, as a migration tool may have made it, is used if
-- nobody but the extension's owner can have put anything into it, or can later.
DO $$
DECLARE
	name text;
	schema record;
	problem text;
BEGIN
	FOREACH name IN ARRAY '{dlock, dlock_private}'::pg_catalog.text[] LOOP
		SELECT n.oid, n.nspowner, n.nspacl INTO schema
		FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.=) name;
		IF NOT FOUND THEN
			EXECUTE pg_catalog.format('CREATE SCHEMA %I', name);
			CONTINUE;
		END IF;
		problem := CASE
			WHEN pg_catalog.to_regclass('dlock_private.request') IS NOT NULL
				THEN 'It is what plain/dlock.sql has made: run plain/uninstall.sql first.'
			WHEN schema.nspowner OPERATOR(pg_catalog.<>) (SELECT e.extowner
				FROM pg_catalog.pg_extension e WHERE e.extname OPERATOR(pg_catalog.=) 'dlock')
				THEN 'It belongs to another role.'
			WHEN EXISTS (SELECT FROM pg_catalog.aclexplode(schema.nspacl) a
				WHERE (a.privilege_type OPERATOR(pg_catalog.=) 'CREATE' OR name OPERATOR(pg_catalog.=) 'dlock_private')
					AND a.grantee OPERATOR(pg_catalog.<>) schema.nspowner)
				THEN 'Other roles may use it.'
			WHEN EXISTS (SELECT FROM pg_catalog.pg_depend d
				WHERE d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass
					AND d.refobjid OPERATOR(pg_catalog.=) schema.oid)
				THEN 'It is not empty.'
			END;
		IF problem IS NOT NULL THEN
			RAISE EXCEPTION 'schema "%" already exists', name
				USING ERRCODE = 'duplicate_schema', DETAIL = problem,
					HINT = 'The extension needs it for itself. Drop it, or make it an empty schema of your own.';
		END IF;
		EXECUTE pg_catalog.format('ALTER EXTENSION dlock ADD SCHEMA %I', name);
	END LOOP;
END $$;
GRANT USAGE ON SCHEMA dlock TO PUBLIC;

----------------------------------------------------------------------
-- dlock_duration: a span of time in seconds, kept in microseconds
----------------------------------------------------------------------

CREATE TYPE dlock_duration;

-- stable, because the input of interval is
CREATE FUNCTION dlock_duration_in(cstring) RETURNS dlock_duration
AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION dlock_duration_out(dlock_duration) RETURNS cstring
AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION dlock_duration_recv(internal) RETURNS dlock_duration
AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION dlock_duration_send(dlock_duration) RETURNS bytea
AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE TYPE dlock_duration (
	INPUT = dlock_duration_in,
	OUTPUT = dlock_duration_out,
	RECEIVE = dlock_duration_recv,
	SEND = dlock_duration_send,
	LIKE = bigint
);
COMMENT ON TYPE dlock_duration IS
'a span of time: a number of seconds, an interval, or text that is either';

-- The functions of casts are no functions of the target schema's.  A cast needs the
-- right to execute its function, not to name it.  So whoever takes all functions of
-- that schema from a role takes no form of a ttl from it.
CREATE FUNCTION dlock_private.duration(bigint) RETURNS dlock_duration
AS 'MODULE_PATHNAME', 'dlock_duration_from_int8'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION dlock_private.duration(double precision) RETURNS dlock_duration
AS 'MODULE_PATHNAME', 'dlock_duration_from_float8'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION dlock_private.duration(interval) RETURNS dlock_duration
AS 'MODULE_PATHNAME', 'dlock_duration_from_interval'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION dlock_private.duration(integer) RETURNS dlock_duration
AS 'MODULE_PATHNAME', 'dlock_duration_from_int4'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION dlock_private.duration(real) RETURNS dlock_duration
AS 'MODULE_PATHNAME', 'dlock_duration_from_float4'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION dlock_private.to_interval(dlock_duration) RETURNS interval
AS 'MODULE_PATHNAME', 'dlock_duration_to_interval'
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

CREATE CAST (smallint AS dlock_duration) WITH INOUT AS IMPLICIT;
CREATE CAST (integer AS dlock_duration)
	WITH FUNCTION dlock_private.duration(integer) AS IMPLICIT;
CREATE CAST (bigint AS dlock_duration)
	WITH FUNCTION dlock_private.duration(bigint) AS IMPLICIT;
CREATE CAST (numeric AS dlock_duration) WITH INOUT AS IMPLICIT;
CREATE CAST (real AS dlock_duration)
	WITH FUNCTION dlock_private.duration(real) AS IMPLICIT;
CREATE CAST (double precision AS dlock_duration)
	WITH FUNCTION dlock_private.duration(double precision) AS IMPLICIT;
CREATE CAST (interval AS dlock_duration)
	WITH FUNCTION dlock_private.duration(interval) AS IMPLICIT;
CREATE CAST (text AS dlock_duration) WITH INOUT AS IMPLICIT;
CREATE CAST (varchar AS dlock_duration) WITH INOUT AS IMPLICIT;
CREATE CAST (dlock_duration AS interval)
	WITH FUNCTION dlock_private.to_interval(dlock_duration);

COMMENT ON FUNCTION dlock_duration_in(cstring) IS 'I/O';
COMMENT ON FUNCTION dlock_duration_out(dlock_duration) IS 'I/O';
COMMENT ON FUNCTION dlock_duration_recv(internal) IS 'I/O';
COMMENT ON FUNCTION dlock_duration_send(dlock_duration) IS 'I/O';
COMMENT ON FUNCTION dlock_private.duration(integer) IS 'convert seconds';
COMMENT ON FUNCTION dlock_private.duration(bigint) IS 'convert seconds';
COMMENT ON FUNCTION dlock_private.duration(real) IS 'convert seconds';
COMMENT ON FUNCTION dlock_private.duration(double precision) IS 'convert seconds';
COMMENT ON FUNCTION dlock_private.duration(interval) IS
'convert an interval; a month is 30 days, a day 24 hours';
COMMENT ON FUNCTION dlock_private.to_interval(dlock_duration) IS
'convert to an interval of hours, minutes and seconds';

----------------------------------------------------------------------
-- The lock table
----------------------------------------------------------------------

CREATE FUNCTION dlock_private.table_handler(internal) RETURNS table_am_handler
AS 'MODULE_PATHNAME', 'dlock_table_handler' LANGUAGE C STRICT;
COMMENT ON FUNCTION dlock_private.table_handler(internal) IS
'handler of access method dlock';
CREATE ACCESS METHOD dlock TYPE TABLE HANDLER dlock_private.table_handler;
COMMENT ON ACCESS METHOD dlock IS
'storage of dlock_private.lease_table; only dlock''s functions change it';

CREATE TABLE dlock_private.lease_table (
	name text,
	owner text,
	mode text,
	version integer,
	token bigint,
	acquired_at timestamptz,
	expires_at timestamptz,
	remaining double precision,
	guarded boolean,
	leaving boolean,
	role oid,
	pid integer,
	application_name text,
	client_addr text,
	request text
) USING dlock WITH (parallel_workers = 0);
COMMENT ON TABLE dlock_private.lease_table IS
'the leases of this database; read it through dlock.locks';

CREATE FUNCTION dlock_private.refuse_change() RETURNS trigger
AS 'MODULE_PATHNAME', 'dlock_refuse_change' LANGUAGE C;
COMMENT ON FUNCTION dlock_private.refuse_change() IS
'trigger: only dlock''s functions change the lock table';
CREATE TRIGGER refuse_change
	BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON dlock_private.lease_table
	FOR EACH STATEMENT EXECUTE FUNCTION dlock_private.refuse_change();
-- also under session_replication_role = replica
ALTER TABLE dlock_private.lease_table ENABLE ALWAYS TRIGGER refuse_change;

----------------------------------------------------------------------
-- Inspection
----------------------------------------------------------------------

-- the access method has masked what the reader may not see
CREATE VIEW dlock.locks AS
SELECT name, owner, mode, version, token, acquired_at, expires_at, remaining,
	guarded, leaving, pg_catalog.pg_get_userbyid(role) AS role, pid,
	application_name, client_addr
FROM ONLY dlock_private.lease_table;
COMMENT ON VIEW dlock.locks IS
'one row per holder of a lease, or guard that has lost its lease; expired rows show until reaped';
GRANT SELECT ON dlock.locks TO PUBLIC;

CREATE FUNCTION dlock_private.read_waiters(
	OUT name text, OUT owner text, OUT mode text, OUT "position" integer,
	OUT waiting_since timestamptz, OUT role name, OUT pid integer,
	OUT application_name text, OUT client_addr text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dlock_read_waiters' LANGUAGE C STRICT PARALLEL SAFE
ROWS 10;
COMMENT ON FUNCTION dlock_private.read_waiters() IS
'the rows of dlock.waiters, for those who may read that';
CREATE VIEW dlock.waiters AS SELECT * FROM dlock_private.read_waiters();
COMMENT ON VIEW dlock.waiters IS
'one row per connection that waits for a lease; position 1 is served next';
GRANT SELECT ON dlock.waiters TO PUBLIC;

CREATE FUNCTION dlock_private.read_stats(
	OUT acquired bigint, OUT reentered bigint, OUT refused bigint,
	OUT timed_out bigint, OUT deadlocks bigint, OUT released bigint,
	OUT renewed bigint, OUT renewals_lost bigint, OUT expired bigint,
	OUT reaped bigint, OUT forced bigint, OUT woken bigint,
	OUT held bigint, OUT waiters integer, OUT wait_histogram bigint[],
	OUT stats_reset timestamptz)
RETURNS record
AS 'MODULE_PATHNAME', 'dlock_read_stats' LANGUAGE C STRICT PARALLEL SAFE;
COMMENT ON FUNCTION dlock_private.read_stats() IS
'the row of dlock.stats, for those who may read that';
CREATE VIEW dlock.stats AS SELECT * FROM dlock_private.read_stats();
COMMENT ON VIEW dlock.stats IS
'counters of this database since the server started or dlock_stats_reset()';
GRANT SELECT ON dlock.stats TO PUBLIC;

CREATE FUNCTION dlock_stats_reset() RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
REVOKE EXECUTE ON FUNCTION dlock_stats_reset() FROM PUBLIC;
COMMENT ON FUNCTION dlock_stats_reset() IS
'set the counters of dlock.stats to zero';

----------------------------------------------------------------------
-- Leases
--
-- Volatile and parallel unsafe: they change shared state at once.  Called on
-- NULL, so that a NULL argument is an error and not a silent NULL answer.
----------------------------------------------------------------------

CREATE FUNCTION dlock_acquire(name text, owner text, ttl dlock_duration,
	wait dlock_duration DEFAULT '0', request text DEFAULT NULL)
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_acquire(text, text, dlock_duration, dlock_duration, text) IS
'take an exclusive lease: its fencing token, or NULL when it is not free';

CREATE FUNCTION dlock_acquire_shared(name text, owner text, ttl dlock_duration,
	wait dlock_duration DEFAULT '0', request text DEFAULT NULL)
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_acquire_shared(text, text, dlock_duration, dlock_duration, text) IS
'take a shared lease: its fencing token, or NULL when it is not free';

CREATE FUNCTION dlock_acquire_permit(name text, owner text, ttl dlock_duration,
	"limit" integer, wait dlock_duration DEFAULT '0',
	request text DEFAULT NULL)
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_acquire_permit(text, text, dlock_duration, integer, dlock_duration, text) IS
'take one of "limit" permits: its fencing token, or NULL when none is free';

CREATE FUNCTION dlock_acquire_permits(name text, owner text,
	ttl dlock_duration, "limit" integer, permits integer,
	wait dlock_duration DEFAULT '0', request text DEFAULT NULL)
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_acquire_permits(text, text, dlock_duration, integer, integer, dlock_duration, text) IS
'take several of "limit" permits or none: their fencing token, or NULL';

CREATE FUNCTION dlock_acquire_all(names text[], owner text,
	ttl dlock_duration, wait dlock_duration DEFAULT '0',
	request text DEFAULT NULL)
RETURNS bigint[] AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_acquire_all(text[], text, dlock_duration, dlock_duration, text) IS
'take all of up to 100 exclusive leases or none: their tokens, or NULL';

CREATE FUNCTION dlock_acquire_any(names text[], owner text,
	ttl dlock_duration, count integer, wait dlock_duration DEFAULT '0',
	request text DEFAULT NULL, OUT name text, OUT token bigint)
RETURNS SETOF record AS 'MODULE_PATHNAME' LANGUAGE C ROWS 10;
COMMENT ON FUNCTION dlock_acquire_any(text[], text, dlock_duration, integer, dlock_duration, text) IS
'take up to count of the exclusive leases that are free: their names and tokens';

CREATE FUNCTION dlock_acquire_session(name text, owner text,
	ttl dlock_duration, wait dlock_duration DEFAULT '0')
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_acquire_session(text, text, dlock_duration, dlock_duration) IS
'take an exclusive lease that lives as long as this connection';

CREATE FUNCTION dlock_acquire_session_shared(name text, owner text,
	ttl dlock_duration, wait dlock_duration DEFAULT '0')
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_acquire_session_shared(text, text, dlock_duration, dlock_duration) IS
'take a shared lease that lives as long as this connection';

CREATE FUNCTION dlock_acquire_xact(name text, owner text, ttl dlock_duration,
	wait dlock_duration DEFAULT '0')
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_acquire_xact(text, text, dlock_duration, dlock_duration) IS
'take an exclusive lease, guarded, that lives as long as this transaction';

CREATE FUNCTION dlock_acquire_xact_shared(name text, owner text,
	ttl dlock_duration, wait dlock_duration DEFAULT '0')
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_acquire_xact_shared(text, text, dlock_duration, dlock_duration) IS
'take a shared lease, guarded, that lives as long as this transaction';

CREATE FUNCTION dlock_guard(name text, owner text, token bigint)
RETURNS void AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_guard(text, text, bigint) IS
'raise an error unless the lease is held; pin it until the transaction ends';

CREATE FUNCTION dlock_wait(name text, wait dlock_duration DEFAULT '0')
RETURNS boolean AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_wait(text, dlock_duration) IS
'wait until every hold on a name that is there now has ended; take nothing';

CREATE FUNCTION dlock_renew(name text, owner text, ttl dlock_duration,
	token bigint DEFAULT NULL)
RETURNS boolean AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_renew(text, text, dlock_duration, bigint) IS
'set the deadline to ttl from now; false: held by another; NULL: not held';

CREATE FUNCTION dlock_renew_many(names text[], owner text,
	ttl dlock_duration, tokens bigint[] DEFAULT NULL)
RETURNS SETOF text AS 'MODULE_PATHNAME' LANGUAGE C ROWS 10;
COMMENT ON FUNCTION dlock_renew_many(text[], text, dlock_duration, bigint[]) IS
'set the deadlines of many leases to ttl from now: the names for which it was done';

CREATE FUNCTION dlock_renew_all(owner text, ttl dlock_duration)
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_renew_all(text, dlock_duration) IS
'renew every lease of an owner: how many';

CREATE FUNCTION dlock_release(name text, owner text,
	token bigint DEFAULT NULL)
RETURNS boolean AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_release(text, text, bigint) IS
'give one hold back; false: held by another; NULL: not held';

-- without defaults, so that no call with fewer arguments is ambiguous
CREATE FUNCTION dlock_release(name text, owner text, token bigint,
	holds integer)
RETURNS boolean AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_release(text, text, bigint, integer) IS
'give so many holds back, or none if there are fewer';

CREATE FUNCTION dlock_release_after(name text, owner text,
	after dlock_duration, token bigint DEFAULT NULL)
RETURNS boolean AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_release_after(text, text, dlock_duration, bigint) IS
'give all holds back when so much time has passed; false: held by another; NULL: not held';

CREATE FUNCTION dlock_release_many(names text[], owner text,
	tokens bigint[] DEFAULT NULL)
RETURNS SETOF text AS 'MODULE_PATHNAME' LANGUAGE C ROWS 10;
COMMENT ON FUNCTION dlock_release_many(text[], text, bigint[]) IS
'give one hold on each of many names back: the names for which it was done';

CREATE FUNCTION dlock_downgrade(name text, owner text,
	token bigint DEFAULT NULL)
RETURNS boolean AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_downgrade(text, text, bigint) IS
'make the exclusive lease a shared one; false: held by another; NULL: not held';

CREATE FUNCTION dlock_release_all(owner text)
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_release_all(text) IS
'drop every lease of an owner, whatever its hold count: how many';

CREATE FUNCTION dlock_owner(name text)
RETURNS text AS 'MODULE_PATHNAME' LANGUAGE C PARALLEL SAFE;
COMMENT ON FUNCTION dlock_owner(text) IS
'the owner of the exclusive lease on a name, or NULL';

CREATE FUNCTION dlock_is_free(name text)
RETURNS boolean AS 'MODULE_PATHNAME' LANGUAGE C PARALLEL SAFE;
COMMENT ON FUNCTION dlock_is_free(text) IS
'is the name held by nobody';

-- restricted, because a session's own lease comes before others of the same owner
CREATE FUNCTION dlock_remaining(name text, owner text,
	token bigint DEFAULT NULL)
RETURNS double precision AS 'MODULE_PATHNAME' LANGUAGE C PARALLEL RESTRICTED;
COMMENT ON FUNCTION dlock_remaining(text, text, bigint) IS
'how many seconds are left of the caller''s lease, or NULL';

-- with columns of its own: a row of dlock.locks's type could not be shown any more
-- once the extension has been dropped and created anew
CREATE FUNCTION dlock_holders(name text)
RETURNS TABLE (name text, owner text, mode text, version integer, token bigint,
	acquired_at timestamptz, expires_at timestamptz, remaining double precision,
	guarded boolean, leaving boolean, role name, pid integer,
	application_name text, client_addr text)
AS 'MODULE_PATHNAME' LANGUAGE C ROWS 1 PARALLEL SAFE;
COMMENT ON FUNCTION dlock_holders(text) IS
'the rows of dlock.locks with this name, without scanning the table';

CREATE FUNCTION dlock_blocking_pids(pid integer)
RETURNS integer[] AS 'MODULE_PATHNAME' LANGUAGE C STRICT PARALLEL SAFE;
COMMENT ON FUNCTION dlock_blocking_pids(integer) IS
'the processes that a process waits for in dlock; 0 for those that have ended or may not be seen';

-- Two functions, so that an owner that happens to be NULL evicts nobody.
CREATE FUNCTION dlock_force_release(name text)
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
REVOKE EXECUTE ON FUNCTION dlock_force_release(text) FROM PUBLIC;
COMMENT ON FUNCTION dlock_force_release(text) IS
'evict all holders of a name: how many';

CREATE FUNCTION dlock_force_release(name text, owner text)
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
REVOKE EXECUTE ON FUNCTION dlock_force_release(text, text) FROM PUBLIC;
COMMENT ON FUNCTION dlock_force_release(text, text) IS
'evict the holders of a name that one owner is: how many';

-- What is behind the casts and the views is everybody's, also where default privileges
-- give nobody anything.
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA dlock_private TO PUBLIC;

----------------------------------------------------------------------
-- Privileges
----------------------------------------------------------------------

CREATE PROCEDURE dlock.grant_only_to(VARIADIC roles name[])
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	what record;
BEGIN
	FOR what IN
		SELECT 'EXECUTE' AS privilege, 'FUNCTION ' || p.oid::regprocedure AS object
		FROM pg_extension e JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass
			AND d.refobjid = e.oid AND d.deptype = 'e' AND d.classid = 'pg_proc'::regclass
		JOIN pg_proc p ON p.oid = d.objid AND p.pronamespace = e.extnamespace
		WHERE e.extname = 'dlock' AND p.proname NOT IN ('dlock_force_release', 'dlock_stats_reset')
		UNION ALL
		SELECT 'SELECT', 'TABLE dlock.' || v FROM unnest(ARRAY['locks', 'waiters', 'stats']) AS v
	LOOP
		EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', what.object);
		EXECUTE format('GRANT %s ON %s TO %s', what.privilege, what.object,
			(SELECT string_agg(quote_ident(r), ', ') FROM unnest(roles) AS r));
	END LOOP;
END $$;
REVOKE EXECUTE ON PROCEDURE dlock.grant_only_to(name[]) FROM PUBLIC;
COMMENT ON PROCEDURE dlock.grant_only_to(name[]) IS
'let these roles, and PUBLIC no more, call dlock and read its views';
