/* dlock--1.0.1--1.1.0.sql: what 1.1.0 changes of the objects of 1.0.1 */

\echo Use "ALTER EXTENSION dlock UPDATE" to load this file. \quit

-- The table gets columns that only the new library can fill in.  The old one does
-- not know the handler by this name, so this fails unless the server has been
-- restarted.
CREATE OR REPLACE FUNCTION dlock.table_handler(internal)
RETURNS table_am_handler
AS 'MODULE_PATHNAME', 'dlock_table_handler_1_1' LANGUAGE C STRICT;
ALTER TABLE dlock.lease_table
	ADD COLUMN remaining double precision,
	ADD COLUMN guarded boolean;
CREATE OR REPLACE VIEW dlock.locks AS
SELECT name, owner, mode, version, token, acquired_at, expires_at,
	pg_catalog.pg_get_userbyid(role) AS role, pid, application_name, client_addr,
	remaining, guarded
FROM ONLY dlock.lease_table;
COMMENT ON VIEW dlock.locks IS
'one row per holder of a lease, or guard that has lost its lease; expired rows show until reaped';

-- restricted, because a session's own lease comes before others of the same owner
CREATE FUNCTION dlock_remaining(name text, owner text,
	token bigint DEFAULT NULL)
RETURNS double precision AS 'MODULE_PATHNAME' LANGUAGE C PARALLEL RESTRICTED;
COMMENT ON FUNCTION dlock_remaining(text, text, bigint) IS
'how many seconds are left of the caller''s lease, or NULL';

-- Two columns more.  The view stays, with the privileges that it has: while its
-- function is replaced it stands on nothing.
CREATE OR REPLACE VIEW dlock.stats AS
SELECT NULL::bigint AS acquired, NULL::bigint AS reentered,
	NULL::bigint AS refused, NULL::bigint AS timed_out,
	NULL::bigint AS deadlocks, NULL::bigint AS released,
	NULL::bigint AS renewed, NULL::bigint AS expired, NULL::bigint AS reaped,
	NULL::bigint AS forced, NULL::bigint AS woken, NULL::integer AS waiters,
	NULL::bigint[] AS wait_histogram, NULL::timestamptz AS stats_reset;
DROP FUNCTION dlock.read_stats();
CREATE FUNCTION dlock.read_stats(
	OUT acquired bigint, OUT reentered bigint, OUT refused bigint,
	OUT timed_out bigint, OUT deadlocks bigint, OUT released bigint,
	OUT renewed bigint, OUT expired bigint, OUT reaped bigint,
	OUT forced bigint, OUT woken bigint, OUT waiters integer,
	OUT wait_histogram bigint[],
	OUT stats_reset timestamptz, OUT renewals_lost bigint, OUT held bigint)
RETURNS record
AS 'MODULE_PATHNAME', 'dlock_read_stats' LANGUAGE C STRICT PARALLEL SAFE;
COMMENT ON FUNCTION dlock.read_stats() IS
'the row of dlock.stats, for those who may read that';
CREATE OR REPLACE VIEW dlock.stats AS SELECT * FROM dlock.read_stats();
----------------------------------------------------------------------
-- New functions
----------------------------------------------------------------------

CREATE FUNCTION dlock_acquire_permits(name text, owner text,
	ttl dlock_duration, "limit" integer, permits integer,
	wait dlock_duration DEFAULT '0', request text DEFAULT NULL)
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_acquire_permits(text, text, dlock_duration, integer, integer, dlock_duration, text) IS
'take several of "limit" permits or none: their fencing token, or NULL';

CREATE FUNCTION dlock_acquire_any(names text[], owner text,
	ttl dlock_duration, count integer, wait dlock_duration DEFAULT '0',
	request text DEFAULT NULL, OUT name text, OUT token bigint)
RETURNS SETOF record AS 'MODULE_PATHNAME' LANGUAGE C ROWS 10;
COMMENT ON FUNCTION dlock_acquire_any(text[], text, dlock_duration, integer, dlock_duration, text) IS
'take up to count of the exclusive leases that are free: their names and tokens';

CREATE FUNCTION dlock_acquire_session_shared(name text, owner text,
	ttl dlock_duration, wait dlock_duration DEFAULT '0')
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_acquire_session_shared(text, text, dlock_duration, dlock_duration) IS
'take a shared lease that lives as long as this connection';

CREATE FUNCTION dlock_acquire_xact_shared(name text, owner text,
	ttl dlock_duration, wait dlock_duration DEFAULT '0')
RETURNS bigint AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_acquire_xact_shared(text, text, dlock_duration, dlock_duration) IS
'take a shared lease, guarded, that lives as long as this transaction';

CREATE FUNCTION dlock_renew_many(names text[], owner text,
	ttl dlock_duration, tokens bigint[] DEFAULT NULL)
RETURNS SETOF text AS 'MODULE_PATHNAME' LANGUAGE C ROWS 10;
COMMENT ON FUNCTION dlock_renew_many(text[], text, dlock_duration, bigint[]) IS
'set the deadlines of many leases to ttl from now: the names for which it was done';

-- without defaults, so that no call with fewer arguments is ambiguous
CREATE FUNCTION dlock_release(name text, owner text, token bigint,
	holds integer)
RETURNS boolean AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON FUNCTION dlock_release(text, text, bigint, integer) IS
'give so many holds back, or none if there are fewer';

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

----------------------------------------------------------------------
-- Privileges
--
-- Where the privileges of an old function were changed, the new ones of its kind
-- get the same: what was revoked must not come back by another name.  For pg_dump
-- they are changed privileges too, and not the ones that CREATE EXTENSION gives.
----------------------------------------------------------------------

DO $$
DECLARE
	func record;
	priv record;
BEGIN
	FOR func IN
		SELECT k.new::pg_catalog.regprocedure AS new, p.proacl, p.proowner
		FROM (VALUES
			('dlock_acquire_permits(text, text, dlock_duration, integer, integer, dlock_duration, text)',
				'dlock_acquire_permit(text, text, dlock_duration, integer, dlock_duration, text)'),
			('dlock_acquire_any(text[], text, dlock_duration, integer, dlock_duration, text)',
				'dlock_acquire_all(text[], text, dlock_duration, dlock_duration, text)'),
			('dlock_acquire_session_shared(text, text, dlock_duration, dlock_duration)',
				'dlock_acquire_session(text, text, dlock_duration, dlock_duration)'),
			('dlock_acquire_xact_shared(text, text, dlock_duration, dlock_duration)',
				'dlock_acquire_xact(text, text, dlock_duration, dlock_duration)'),
			('dlock_renew_many(text[], text, dlock_duration, bigint[])',
				'dlock_renew(text, text, dlock_duration, bigint)'),
			('dlock_release(text, text, bigint, integer)',
				'dlock_release(text, text, bigint)'),
			('dlock_release_many(text[], text, bigint[])',
				'dlock_release(text, text, bigint)'),
			('dlock_downgrade(text, text, bigint)',
				'dlock_release(text, text, bigint)'),
			('dlock_remaining(text, text, bigint)', 'dlock_owner(text)')
		) AS k (new, old)
		JOIN pg_catalog.pg_proc p
			ON p.oid OPERATOR(pg_catalog.=) k.old::pg_catalog.regprocedure
		WHERE p.proacl IS NOT NULL
	LOOP
		EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', func.new);
		FOR priv IN
			SELECT a.grantee, a.is_grantable FROM pg_catalog.aclexplode(func.proacl) a
			WHERE a.grantee OPERATOR(pg_catalog.<>) func.proowner
		LOOP
			EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO %s%s', func.new,
				CASE WHEN priv.grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC'
				ELSE priv.grantee::pg_catalog.regrole::pg_catalog.text END,
				CASE WHEN priv.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
		END LOOP;
		DELETE FROM pg_catalog.pg_init_privs i
		WHERE i.classoid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
			AND i.objoid OPERATOR(pg_catalog.=) func.new;
		-- 17 and later note which roles are named there
		DELETE FROM pg_catalog.pg_shdepend d
		WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
			AND d.objid OPERATOR(pg_catalog.=) func.new
			AND d.deptype OPERATOR(pg_catalog.=) 'i'
			AND d.dbid OPERATOR(pg_catalog.=) (SELECT b.oid FROM pg_catalog.pg_database b
				WHERE b.datname OPERATOR(pg_catalog.=) pg_catalog.current_database());
	END LOOP;
END $$;
