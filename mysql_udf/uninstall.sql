-- uninstall.sql: undo install.sql, as an administrator.
--
--	mysql < mysql_udf/uninstall.sql			(or mariadb)
--
-- All leases are lost, and what tokens there were is forgotten: new ones start
-- from the system clock, which is above the old ones as long as that is not set
-- back.  Running it again is harmless.  The library stays in the server's
-- memory until that stops, and its file where it is.  What stays as well: the
-- plugin auth_socket or unix_socket, which may be in use; the account that the
-- library logged in with, if it was there before dlock or has got other
-- privileges; and what was granted to other accounts on database dlock.
--
-- SPDX-License-Identifier: PostgreSQL

SET @dlock_old_safe_updates = @@SESSION.sql_safe_updates;
SET @dlock_old_group_concat_max_len = @@SESSION.group_concat_max_len;
SET SESSION sql_safe_updates = 0, SESSION group_concat_max_len = 1048576;
SET SESSION TRANSACTION READ WRITE;
SET @dlock_mariadb = @@version LIKE '%MariaDB%';

CREATE DATABASE IF NOT EXISTS dlock;
DROP PROCEDURE IF EXISTS dlock.end_calls;
DELIMITER //
CREATE PROCEDURE dlock.end_calls()
BEGIN
	-- the library is not there
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
	SET @dlock_drained = dlock_drain();
END//
DELIMITER ;

-- Whoever waits is told that the table is gone, and the library that its plugin
-- goes.
DROP TABLE IF EXISTS dlock.log;
DROP TABLE IF EXISTS dlock.lease_table;
CALL dlock.end_calls();

DROP FUNCTION IF EXISTS dlock_acquire;
DROP FUNCTION IF EXISTS dlock_acquire_shared;
DROP FUNCTION IF EXISTS dlock_acquire_permit;
DROP FUNCTION IF EXISTS dlock_acquire_permits;
DROP FUNCTION IF EXISTS dlock_acquire_all;
DROP FUNCTION IF EXISTS dlock_acquire_any;
DROP FUNCTION IF EXISTS dlock_acquire_session;
DROP FUNCTION IF EXISTS dlock_acquire_session_shared;
DROP FUNCTION IF EXISTS dlock_renew;
DROP FUNCTION IF EXISTS dlock_renew_all;
DROP FUNCTION IF EXISTS dlock_renew_many;
DROP FUNCTION IF EXISTS dlock_release;
DROP FUNCTION IF EXISTS dlock_downgrade;
DROP FUNCTION IF EXISTS dlock_release_all;
DROP FUNCTION IF EXISTS dlock_release_many;
DROP FUNCTION IF EXISTS dlock_wait;
DROP FUNCTION IF EXISTS dlock_owner;
DROP FUNCTION IF EXISTS dlock_is_free;
DROP FUNCTION IF EXISTS dlock_remaining;
DROP FUNCTION IF EXISTS dlock_holders;
DROP FUNCTION IF EXISTS dlock_force_release;
DROP FUNCTION IF EXISTS dlock_stats_reset;
DROP FUNCTION IF EXISTS dlock_reload;
DROP FUNCTION IF EXISTS dlock_version;
DROP FUNCTION IF EXISTS dlock_os_user;
DROP FUNCTION IF EXISTS dlock_settle;
DROP FUNCTION IF EXISTS dlock_drain;
DROP FUNCTION IF EXISTS dlock_reader;
DROP FUNCTION IF EXISTS dlock_unwritten;
-- of the engine of the log
DROP FUNCTION IF EXISTS dlock_release_after;
DROP FUNCTION IF EXISTS dlock_view_pages;
DROP FUNCTION IF EXISTS dlock_view_page;
DROP FUNCTION IF EXISTS dlock_view_waiters;
DROP FUNCTION IF EXISTS dlock_view_stats;
-- of 1.0.0
DROP FUNCTION IF EXISTS dlock_may_see;
DROP FUNCTION IF EXISTS dlock_waiters_json;
DROP FUNCTION IF EXISTS dlock_stats_json;
DROP FUNCTION IF EXISTS dlock_guard_begin;
DROP FUNCTION IF EXISTS dlock_guard_ticket;
DROP FUNCTION IF EXISTS dlock_guard_check;
DROP FUNCTION IF EXISTS dlock_guard_lost;

-- MySQL keeps a function that is dropped until nobody calls it any more.  Was it
-- created again by then, the end of such a call takes the new one away, until the
-- server is started again (or this file and install.sql are run again).  So all
-- statements that began before are waited for; longer ones than ten seconds are
-- not.
DROP PROCEDURE IF EXISTS dlock.await_calls;
DELIMITER //
CREATE PROCEDURE dlock.await_calls()
BEGIN
	DECLARE seconds INT DEFAULT 0;		-- that have passed, at least
	WHILE seconds < 10 AND (seconds = 0 OR EXISTS (
		SELECT * FROM information_schema.PROCESSLIST
		WHERE COMMAND IN ('Query', 'Execute') AND USER <> 'system user'
			AND ID <> CONNECTION_ID() AND TIME >= seconds))
	DO
		DO SLEEP(1);
		SET seconds = seconds + 1;
	END WHILE;
END//
DELIMITER ;
SET @dlock_statement = IF(@dlock_mariadb, 'DO 0', 'CALL dlock.await_calls()');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;

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

-- The library's account, or accounts, if the server's user has changed: as they
-- were before, or gone if there was none.  The table is there if dlock is.
CREATE TABLE IF NOT EXISTS dlock.library_account (
	account VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,
	created BOOLEAN, process BOOLEAN);
SELECT GROUP_CONCAT(account) INTO @dlock_accounts FROM dlock.library_account
WHERE account IN (
	SELECT GRANTEE FROM information_schema.SCHEMA_PRIVILEGES
	WHERE TABLE_SCHEMA = 'dlock');
SET @dlock_statement = COALESCE(CONCAT(
	'REVOKE SELECT, INSERT, UPDATE, DELETE ON dlock.* FROM ', @dlock_accounts), 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SELECT GROUP_CONCAT(account) INTO @dlock_accounts FROM dlock.library_account
WHERE process AND account IN (
	SELECT GRANTEE FROM information_schema.USER_PRIVILEGES
	WHERE PRIVILEGE_TYPE = 'PROCESS');
SET @dlock_statement = COALESCE(CONCAT(
	'REVOKE PROCESS ON *.* FROM ', @dlock_accounts), 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
-- 1.0.0 had no such column
SET @dlock_accounts = NULL;
SET @dlock_statement = IF(EXISTS (
		SELECT * FROM information_schema.COLUMNS
		WHERE TABLE_SCHEMA = 'dlock' AND TABLE_NAME = 'library_account'
			AND COLUMN_NAME = 'connection_admin'),
	'SELECT GROUP_CONCAT(account) INTO @dlock_accounts FROM dlock.library_account
	WHERE connection_admin AND account IN (
		SELECT GRANTEE FROM information_schema.USER_PRIVILEGES
		WHERE PRIVILEGE_TYPE = ''CONNECTION ADMIN'')', 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = COALESCE(CONCAT(
	'REVOKE CONNECTION ADMIN ON *.* FROM ', @dlock_accounts), 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SELECT GROUP_CONCAT(account) INTO @dlock_accounts FROM dlock.library_account
WHERE created AND account IN (
	SELECT GRANTEE FROM information_schema.USER_PRIVILEGES)
AND account NOT IN (
	SELECT GRANTEE FROM information_schema.USER_PRIVILEGES
	WHERE PRIVILEGE_TYPE <> 'USAGE'
	UNION SELECT GRANTEE FROM information_schema.SCHEMA_PRIVILEGES
	UNION SELECT GRANTEE FROM information_schema.TABLE_PRIVILEGES);
SET @dlock_statement = COALESCE(CONCAT(
	'DROP USER IF EXISTS ', @dlock_accounts), 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;

DROP DATABASE IF EXISTS dlock;

-- One that is not locked is not ours.
SET @dlock_statement = CONCAT('SELECT COUNT(*) INTO @dlock_locked FROM ',
	IF(@dlock_mariadb,
		'mysql.global_priv WHERE JSON_CONTAINS(Priv, ''true'', ''$.account_locked'')',
		'mysql.user WHERE account_locked = ''Y'''),
	' AND User = ''dlock'' AND Host = ''localhost''');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = IF(@dlock_locked > 0,
	'DROP USER ''dlock''@''localhost''', 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_locked = 0;
SET @dlock_statement = IF(@dlock_mariadb, 'DO 0',
	'SELECT COUNT(*) INTO @dlock_locked FROM mysql.user
	WHERE account_locked = ''Y'' AND User = ''dlock_login'' AND Host = ''localhost''');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = IF(@dlock_locked > 0,
	'DROP USER ''dlock_login''@''localhost''', 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
DEALLOCATE PREPARE dlock_statement;

SET SESSION sql_safe_updates = @dlock_old_safe_updates,
	SESSION group_concat_max_len = @dlock_old_group_concat_max_len;
