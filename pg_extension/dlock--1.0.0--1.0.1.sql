/* dlock--1.0.0--1.0.1.sql: what 1.0.1 changes of the objects of 1.0.0 */

\echo Use "ALTER EXTENSION dlock UPDATE" to load this file. \quit

-- The view relies on the new library's mask.  The old library does not know
-- the handler by this name, so this fails unless the server has been restarted.
CREATE OR REPLACE FUNCTION dlock.table_handler(internal)
RETURNS table_am_handler
AS 'MODULE_PATHNAME', 'dlock_masking_table_handler' LANGUAGE C STRICT;

CREATE OR REPLACE VIEW dlock.locks AS
SELECT name, owner, mode, version, token, acquired_at, expires_at,
	pg_catalog.pg_get_userbyid(role) AS role, pid, application_name, client_addr
FROM ONLY dlock.lease_table;
DROP FUNCTION dlock.may_see(oid);

COMMENT ON FUNCTION dlock.read_waiters() IS
'the rows of dlock.waiters, for those who may read that';
COMMENT ON FUNCTION dlock.read_stats() IS
'the row of dlock.stats, for those who may read that';
COMMENT ON FUNCTION dlock_blocking_pids(integer) IS
'the processes that a process waits for in dlock; 0 for those that have ended or may not be seen';
