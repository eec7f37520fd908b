-- uninstall.sql: undo install.sql, as an administrator.
--
--	mysql < mysql_udf/uninstall.sql			(or mariadb)
--
-- All leases are lost, and what tokens there were is forgotten: new ones start
-- from the system clock, which is above the old ones as long as that is not set
-- back.  Running it again is harmless.  The library stays in the server's
-- memory until that stops, and its file where it is.  What stays as well: the
-- plugin auth_socket or unix_socket, which may be in use, and the account that
-- the library logged in with, if it has any other privileges, or if the library
-- is not there to say which it was.
--
-- SPDX-License-Identifier: PostgreSQL

SET @dlock_mariadb = @@version LIKE '%MariaDB%';

-- The library's account, if the library is there to be asked.
SET @dlock_account = NULL;
CREATE DATABASE IF NOT EXISTS dlock;
DROP PROCEDURE IF EXISTS dlock.find_account;
DROP PROCEDURE IF EXISTS dlock.end_calls;
DELIMITER //
CREATE PROCEDURE dlock.find_account()
BEGIN
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
	SET @dlock_account = CONCAT(QUOTE(dlock_os_user()), '@''localhost''');
END//
CREATE PROCEDURE dlock.end_calls()
BEGIN
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
	SET @dlock_drained = dlock_drain();
END//
DELIMITER ;
CALL dlock.find_account();

-- Whoever waits is told that the table is gone.
DROP TABLE IF EXISTS dlock.lease_table;
CALL dlock.end_calls();

DROP FUNCTION IF EXISTS dlock_acquire;
DROP FUNCTION IF EXISTS dlock_acquire_shared;
DROP FUNCTION IF EXISTS dlock_acquire_permit;
DROP FUNCTION IF EXISTS dlock_acquire_all;
DROP FUNCTION IF EXISTS dlock_acquire_session;
DROP FUNCTION IF EXISTS dlock_renew;
DROP FUNCTION IF EXISTS dlock_renew_all;
DROP FUNCTION IF EXISTS dlock_release;
DROP FUNCTION IF EXISTS dlock_release_all;
DROP FUNCTION IF EXISTS dlock_wait;
DROP FUNCTION IF EXISTS dlock_owner;
DROP FUNCTION IF EXISTS dlock_is_free;
DROP FUNCTION IF EXISTS dlock_holders;
DROP FUNCTION IF EXISTS dlock_force_release;
DROP FUNCTION IF EXISTS dlock_stats_reset;
DROP FUNCTION IF EXISTS dlock_version;
DROP FUNCTION IF EXISTS dlock_os_user;
DROP FUNCTION IF EXISTS dlock_settle;
DROP FUNCTION IF EXISTS dlock_drain;
DROP FUNCTION IF EXISTS dlock_may_see;
DROP FUNCTION IF EXISTS dlock_waiters_json;
DROP FUNCTION IF EXISTS dlock_stats_json;
DROP FUNCTION IF EXISTS dlock_guard_begin;
DROP FUNCTION IF EXISTS dlock_guard_ticket;
DROP FUNCTION IF EXISTS dlock_guard_check;

-- MariaDB's plugin; connections that know it keep it in the list as DELETED
SET @dlock_statement = IF(EXISTS (
		SELECT * FROM information_schema.PLUGINS
		WHERE PLUGIN_LIBRARY = 'dlock.so' AND PLUGIN_STATUS = 'ACTIVE'),
	'UNINSTALL SONAME ''dlock''', 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;

-- what is left of them when the server was started without the library
DELETE FROM mysql.func WHERE dl = 'dlock.so';
DELETE FROM mysql.plugin WHERE dl = 'dlock.so';

DROP DATABASE IF EXISTS dlock;
DROP USER IF EXISTS 'dlock'@'localhost';

SET @dlock_statement = IF(EXISTS (
		SELECT * FROM information_schema.SCHEMA_PRIVILEGES
		WHERE GRANTEE = @dlock_account AND TABLE_SCHEMA = 'dlock'),
	CONCAT('REVOKE SELECT, INSERT, UPDATE, DELETE ON dlock.* FROM ',
		@dlock_account), 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = IF(@dlock_account IS NULL OR EXISTS (
		SELECT * FROM information_schema.USER_PRIVILEGES
		WHERE GRANTEE = @dlock_account
			-- the second is from install.sql
			AND PRIVILEGE_TYPE NOT IN ('USAGE', 'PROCESS')
	) OR EXISTS (
		SELECT * FROM information_schema.SCHEMA_PRIVILEGES
		WHERE GRANTEE = @dlock_account
	) OR EXISTS (
		SELECT * FROM information_schema.TABLE_PRIVILEGES
		WHERE GRANTEE = @dlock_account
	),
	'DO 0', CONCAT('DROP USER IF EXISTS ', @dlock_account));
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
DEALLOCATE PREPARE dlock_statement;
