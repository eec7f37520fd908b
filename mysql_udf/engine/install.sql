-- install.sql: everything that dlock has in a MySQL or MariaDB server.
--
-- Put dlock.so (make mysql) where SELECT @@plugin_dir says, readable by the
-- server; then, as an administrator,
--
--	mysql < mysql_udf/engine/install.sql		(or mariadb)
--
-- Running it again is harmless: leases and settings stay.  uninstall.sql undoes
-- it.  In a cluster, or with replicas: first put the library on every server.  What
-- this file does is replicated, except for plugins.  So every other server needs
-- INSTALL SONAME 'dlock' afterwards (MariaDB), or plugin-load-add=auth_socket.so
-- among its options beforehand (MySQL).
--
-- It makes the functions dlock_...(), which every account may call, unless dlock.callers
-- names those who may; database dlock, with the log of leases, the views locks, waiters and
-- stats, and the procedure guard; the accounts of the library, see "Accounts" below, and the
-- plugin that lets it in; and on MariaDB a plugin of dlock's own, which notices that
-- connections begin and end.
--
-- It deletes rows of the server's own tables only where a restored dump, or a start
-- without the library, has left entries that this server has not loaded, and which are in
-- the way: of mysql.func those of dlock.so, of mysql.plugin those of dlock.so and of the
-- plugin for the socket.
--
-- At first only administrators can see the views or use dlock.guard().  An
-- application needs the first of these, an account that only watches the others:
--
--	GRANT EXECUTE ON dlock.* TO 'app'@'%';
--	GRANT SELECT ON dlock.locks TO 'watcher'@'%';
--	GRANT SELECT ON dlock.waiters TO 'watcher'@'%';
--	GRANT SELECT ON dlock.stats TO 'watcher'@'%';
--
-- MariaDB can grant to PUBLIC instead.  Grant no SELECT ON dlock.*: nobody should read tables.
--
-- SPDX-License-Identifier: PostgreSQL

-- what the client's option file or the server may have set otherwise
SET @dlock_old_sql_mode = @@SESSION.sql_mode, @dlock_old_safe_updates = @@SESSION.sql_safe_updates,
	@dlock_old_group_concat_max_len = @@SESSION.group_concat_max_len;
SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION';
SET NAMES utf8mb4;
SET SESSION autocommit = 1, SESSION sql_safe_updates = 0, SESSION group_concat_max_len = 1048576;
SET SESSION TRANSACTION READ WRITE;
SET @dlock_mariadb = @@version LIKE '%MariaDB%';

-- ---------------------------------------------------------------------
-- Functions.  If there is an error here, nothing has been done, except that database
-- dlock may be new, and empty.  1126, 1127: the library is not in the server's plugin
-- directory, or cannot be read by the server, or is not this version.  1026, or 1305
-- further down: dlock was installed, and the server was started while the library was
-- missing: put it there and restart the server.
-- ---------------------------------------------------------------------

CREATE DATABASE IF NOT EXISTS dlock DEFAULT CHARACTER SET utf8mb4;
DROP PROCEDURE IF EXISTS dlock.install_if;
DROP PROCEDURE IF EXISTS dlock.install_look;
DELIMITER //
-- Execute a statement, if that is to be done.
CREATE PROCEDURE dlock.install_if(IN is_needed BOOLEAN, IN statement LONGTEXT)
	SQL SECURITY INVOKER
BEGIN
	IF is_needed THEN
		SET @dlock_statement = statement;
		PREPARE dlock_statement FROM @dlock_statement;
		EXECUTE dlock_statement;
		DEALLOCATE PREPARE dlock_statement;
	END IF;
END//
CREATE PROCEDURE dlock.install_look()
	SQL SECURITY INVOKER
BEGIN
	DECLARE EXIT HANDLER FOR SQLEXCEPTION SET @dlock_loaded = FALSE;
	SET @dlock_loaded = dlock_version() IS NOT NULL;
END//
DELIMITER ;
CALL dlock.install_look();
DROP PROCEDURE dlock.install_look;
DELETE FROM mysql.func WHERE dl = 'dlock.so' AND NOT @dlock_loaded;

CREATE FUNCTION IF NOT EXISTS dlock_acquire RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_shared RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_permit RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_permits RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_all RETURNS STRING SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_any RETURNS STRING SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_session RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_session_shared RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_renew RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_renew_all RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_renew_many RETURNS STRING SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_release RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_release_after RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_downgrade RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_release_all RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_release_many RETURNS STRING SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_wait RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_owner RETURNS STRING SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_is_free RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_remaining RETURNS REAL SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_holders RETURNS STRING SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_force_release RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_stats_reset RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_reload RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_version RETURNS STRING SONAME 'dlock.so';

-- for the views and procedures below, and uninstall.sql, only
CREATE FUNCTION IF NOT EXISTS dlock_os_user RETURNS STRING SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_settle RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_drain RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_reader RETURNS STRING SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_view_pages RETURNS STRING SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_view_page RETURNS STRING SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_view_waiters RETURNS STRING SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_view_stats RETURNS STRING SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_guard_begin RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_guard_ticket RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_guard_check RETURNS INTEGER SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_guard_lost RETURNS INTEGER SONAME 'dlock.so';

-- MariaDB's plugin
SET @dlock_needed = @dlock_mariadb AND NOT EXISTS (
	SELECT * FROM information_schema.PLUGINS
	WHERE PLUGIN_LIBRARY = 'dlock.so' AND PLUGIN_STATUS = 'ACTIVE');
DELETE FROM mysql.plugin WHERE dl = 'dlock.so' AND @dlock_needed;
CALL dlock.install_if(@dlock_needed, 'INSTALL SONAME ''dlock''');

-- ---------------------------------------------------------------------
-- Tables.  Only the library writes them, but for the settings and the callers.
-- ---------------------------------------------------------------------

CREATE TABLE IF NOT EXISTS dlock.settings (
	name VARCHAR(64) CHARACTER SET ascii NOT NULL PRIMARY KEY,
	value VARCHAR(255) CHARACTER SET ascii NOT NULL,
	description VARCHAR(255) CHARACTER SET ascii NOT NULL DEFAULT ''
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
	COMMENT='settings of dlock; times are in seconds';
INSERT IGNORE INTO dlock.settings (name, value, description) VALUES
	('lock_delay', '0', 'pause between the expiry of a lease, or the loss of its session, and its grant to another holder'),
	('max_ttl', '86400', 'the longest time, to live or to wait, that a call may ask for'),
	('max_waiters', '1000', 'how many connections of one server can wait for leases at a time; an account can have half of what others leave'),
	('max_leases', '1000000', 'how many leases there can be; an account can have half of what others leave'),
	('reap_interval', '1', 'how often expired leases are removed'),
	('log_expired', '1', 'whether the server''s error log is told of leases that have expired: 1 or 0'),
	('lock_timeout', '5', 'how long the library waits for the table when somebody has locked it'),
	('write_on_replicas', '0', 'whether leases are granted where changes of another server are applied: 1, for two sources of which one is used at a time, or 0');
CREATE TABLE IF NOT EXISTS dlock.callers (
	user VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	host VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'as CURRENT_USER() shows it',
	PRIMARY KEY (user, host)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
	COMMENT='the accounts that may call the functions; empty: all; operators always may';
-- The guards: each has locked its row.
CREATE TABLE IF NOT EXISTS dlock.guards (
	number BIGINT UNSIGNED NOT NULL PRIMARY KEY,
	token BIGINT UNSIGNED NOT NULL COMMENT 'of the lease',
	changes BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'by dlock.guard()'
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
	COMMENT='transactions that guard leases';
-- What uninstall.sql has to undo of the library's account.
CREATE TABLE IF NOT EXISTS dlock.library_account (
	account VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY
		COMMENT 'quoted',
	created BOOLEAN NOT NULL COMMENT 'by install.sql',
	process BOOLEAN NOT NULL COMMENT 'the privilege was granted by install.sql',
	connection_admin BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'the same'
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
	COMMENT='the accounts that the library uses';
-- The log: each row is a batch of changes of leases, and what the bytes mean is in
-- log/encode.c.  An entry is never so long that a row leaves its page.  The first row says
-- nothing; without a row the log is damaged, and the library grants nothing.
CREATE TABLE IF NOT EXISTS dlock.log (
	number BIGINT UNSIGNED NOT NULL PRIMARY KEY COMMENT 'no number is left out',
	writer BIGINT UNSIGNED NOT NULL COMMENT 'the run of the library that wrote it',
	entries VARBINARY(7040) NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
	COMMENT='the leases: all changes, in their order';
INSERT INTO dlock.log (number, writer, entries)
SELECT 1, 0, x'011394FC030000000000000000000000000000000001000000000000000000000000000000'
FROM DUAL WHERE NOT EXISTS (SELECT * FROM dlock.log);

-- ---------------------------------------------------------------------
-- Accounts
--
-- The library logs in to its own server by the Unix socket, as the account that is called
-- like the server's user in the operating system, usually 'mysql'@'localhost'.  The plugin
-- auth_socket (MySQL) or unix_socket (MariaDB) lets in that user and no other; MariaDB's
-- under no other name, so the library cannot have an account of its own.  An account of
-- that name that exists already keeps what it has, and gets the rights; if it cannot log
-- in by the socket, dlock's functions say so.
--
-- Nobody logs in as 'dlock'@'localhost': the views and dlock.guard_row() have its
-- rights.  If there is one that is not locked, it belongs to somebody else and must
-- not get these rights: error 1396.
-- ---------------------------------------------------------------------

SET @dlock_plugin = IF(@dlock_mariadb, 'unix_socket', 'auth_socket');
SET @dlock_needed = NOT EXISTS (
	SELECT * FROM information_schema.PLUGINS
	WHERE PLUGIN_NAME = @dlock_plugin AND PLUGIN_STATUS = 'ACTIVE');
DELETE FROM mysql.plugin WHERE name = @dlock_plugin AND @dlock_needed;
CALL dlock.install_if(@dlock_needed, IF(@dlock_mariadb, 'INSTALL SONAME ''auth_socket''',
	'INSTALL PLUGIN auth_socket SONAME ''auth_socket.so'''));

-- The account, unless it is there and locked; or somebody does it on another node.
DROP PROCEDURE IF EXISTS dlock.install_locked;
DELIMITER //
CREATE PROCEDURE dlock.install_locked(IN name VARCHAR(64))
	SQL SECURITY INVOKER
BEGIN
	CALL dlock.install_if(TRUE, CONCAT('SELECT COUNT(*) INTO @dlock_locked FROM ',
		IF(@dlock_mariadb,
			'mysql.global_priv WHERE JSON_CONTAINS(Priv, ''true'', ''$.account_locked'')',
			'mysql.user WHERE account_locked = ''Y'''),
		' AND User = ''', name, ''' AND Host = ''localhost'''));
	CALL dlock.install_if(@dlock_locked = 0, CONCAT('CREATE USER ',
		IF(EXISTS (SELECT * FROM information_schema.USER_PRIVILEGES
			WHERE GRANTEE = CONCAT('''', name, '''@''localhost''')), '', 'IF NOT EXISTS '),
		'''', name, '''@''localhost'' IDENTIFIED WITH ', @dlock_plugin, ' ACCOUNT LOCK'));
END//
DELIMITER ;
CALL dlock.install_locked('dlock');
GRANT SELECT, UPDATE, EXECUTE ON dlock.* TO 'dlock'@'localhost';
-- to a view's definer it has to be granted what everybody may read; and the library asks about
-- replication and the group, which on MariaDB any account may see
/*!80000 GRANT SELECT ON performance_schema.session_status TO 'dlock'@'localhost' */;
/*!80000 GRANT SELECT ON performance_schema.replication_applier_status TO 'dlock'@'localhost' */;
/*!80000 GRANT SELECT ON performance_schema.replication_group_members TO 'dlock'@'localhost' */;
/*!80000 GRANT SELECT ON performance_schema.replication_group_member_stats TO 'dlock'@'localhost' */;
/*!80000 CREATE OR REPLACE DEFINER = 'dlock'@'localhost' SQL SECURITY DEFINER
VIEW dlock.server AS
SELECT '' AS member, 'appliers' AS what, CAST(COUNT(*) AS CHAR) AS value
FROM performance_schema.replication_applier_status
WHERE SERVICE_STATE = 'ON' AND LEFT(CHANNEL_NAME, 18) <> 'group_replication_'
UNION ALL SELECT MEMBER_ID, 'state', MEMBER_STATE FROM performance_schema.replication_group_members
UNION ALL SELECT MEMBER_ID, 'role', MEMBER_ROLE FROM performance_schema.replication_group_members
UNION ALL SELECT MEMBER_ID, 'view', VIEW_ID FROM performance_schema.replication_group_member_stats */;

SET @dlock_account = CONCAT(QUOTE(dlock_os_user()), '@''localhost''');
SET @dlock_created = NOT EXISTS (
	SELECT * FROM information_schema.USER_PRIVILEGES WHERE GRANTEE = @dlock_account);
SET @dlock_process = @dlock_mariadb AND NOT EXISTS (
	SELECT * FROM information_schema.USER_PRIVILEGES
	WHERE GRANTEE = @dlock_account AND PRIVILEGE_TYPE = 'PROCESS');
INSERT INTO dlock.library_account (account, created, process) VALUES
	(@dlock_account, @dlock_created, @dlock_process)
ON DUPLICATE KEY UPDATE
	created = created OR @dlock_created, process = process OR @dlock_process;
CALL dlock.install_if(TRUE, CONCAT('CREATE USER IF NOT EXISTS ', @dlock_account,
	' IDENTIFIED WITH ', @dlock_plugin));
CALL dlock.install_if(TRUE, CONCAT(
	'GRANT SELECT, INSERT, UPDATE, DELETE ON dlock.* TO ', @dlock_account));
-- on MariaDB, to see which connections have ended while dlock's plugin is
-- not active, as after a reinstallation
CALL dlock.install_if(@dlock_mariadb, CONCAT('GRANT PROCESS ON *.* TO ', @dlock_account));

-- ---------------------------------------------------------------------
-- Views
--
-- Looking never writes, and reads no table: the views show what the library has in its
-- memory.
--
-- It must be possible to restore a logical dump where the library is missing.  So the
-- views name no loadable functions, but stored functions that call these.  The stored
-- functions have the rights of the caller: in the views that is the views' definer, and for
-- everybody else they are of no use.
--
-- Names and owners are text that compares byte for byte.  One that is not UTF-8 shows
-- as its bytes, 0x....  Times are in the session's zone.  "LIMIT" stands where something
-- is to be asked for once, not for every row.
-- ---------------------------------------------------------------------

DROP FUNCTION IF EXISTS dlock.lease_pages;
DROP FUNCTION IF EXISTS dlock.lease_page;
DROP FUNCTION IF EXISTS dlock.all_waiters;
DROP FUNCTION IF EXISTS dlock.all_stats;
CREATE DEFINER = 'dlock'@'localhost' FUNCTION dlock.lease_pages()
	RETURNS LONGTEXT CHARACTER SET utf8mb4 NO SQL SQL SECURITY INVOKER COMMENT 'for the view lease_state'
	RETURN dlock_view_pages();
CREATE DEFINER = 'dlock'@'localhost' FUNCTION dlock.lease_page(page VARCHAR(64) CHARACTER SET ascii)
	RETURNS LONGTEXT CHARACTER SET utf8mb4 NO SQL SQL SECURITY INVOKER COMMENT 'for the view lease_state'
	RETURN dlock_view_page(page);
CREATE DEFINER = 'dlock'@'localhost' FUNCTION dlock.all_waiters()
	RETURNS LONGTEXT CHARACTER SET utf8mb4 NO SQL SQL SECURITY INVOKER COMMENT 'for the view waiters'
	RETURN dlock_view_waiters();
CREATE DEFINER = 'dlock'@'localhost' FUNCTION dlock.all_stats()
	RETURNS LONGTEXT CHARACTER SET utf8mb4 NO SQL SQL SECURITY INVOKER COMMENT 'for the view stats'
	RETURN dlock_view_stats();

-- Which account reads a view, and whether it may see everything: udf_reader.c says how that
-- is known.  Where it is not known whether it may, it is looked up what the account has been
-- granted itself: GRANTEE is '...'@'...' with nothing escaped.
/*M! CREATE OR REPLACE DEFINER = 'dlock'@'localhost' FUNCTION dlock.who_reads()
	RETURNS TEXT CHARACTER SET utf8mb4 NO SQL SQL SECURITY INVOKER COMMENT 'for the views'
	RETURN dlock_reader() */;
CREATE OR REPLACE DEFINER = 'dlock'@'localhost' SQL SECURITY INVOKER
VIEW dlock.reader AS
SELECT
	v.value LIKE '1 %'
		/*!80000 OR (v.value LIKE '? %' AND EXISTS (
			SELECT * FROM information_schema.USER_PRIVILEGES AS p
			WHERE p.PRIVILEGE_TYPE = 'CONNECTION_ADMIN' AND CAST(p.GRANTEE AS BINARY) = CONCAT(
				x'27', UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(v.value, ' ', 2), ' ', -1)), x'274027',
				UNHEX(SUBSTRING_INDEX(v.value, ' ', -1)), x'27'))) */
		AS everything,
	CONCAT(UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(v.value, ' ', 2), ' ', -1)), '@',
		UNHEX(SUBSTRING_INDEX(v.value, ' ', -1))) AS account
FROM (
	SELECT
		/*!80000 (SELECT VARIABLE_VALUE FROM performance_schema.session_status
			WHERE VARIABLE_NAME = 'dlock_reader') */
		/*M! dlock.who_reads() */ AS value
	LIMIT 1) AS v
LIMIT 1;

-- All leases, page by page, so that no answer is long.  Let nobody read this, for it masks
-- nothing.  Because of the last LIMIT it is made once, and whole: servers sort the rows of a
-- join by where they are in JSON_TABLE's own table, which is emptied for each page.
CREATE OR REPLACE DEFINER = 'dlock'@'localhost' SQL SECURITY INVOKER
VIEW dlock.lease_state AS
SELECT l.*
FROM (SELECT dlock.lease_pages() AS json LIMIT 1) AS j
	STRAIGHT_JOIN JSON_TABLE(j.json, '$[*]' COLUMNS (
		page VARCHAR(64) CHARACTER SET ascii PATH '$')) AS p
	STRAIGHT_JOIN JSON_TABLE(dlock.lease_page(p.page), '$[*]' COLUMNS (
		name VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[0]',
		owner VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[1]',
		account VARCHAR(400) CHARACTER SET utf8mb4 PATH '$[2]',
		mode INT PATH '$[3]', kind INT PATH '$[4]', leaving INT PATH '$[5]',
		version BIGINT PATH '$[6]', token BIGINT PATH '$[7]', ttl_us BIGINT PATH '$[8]',
		connection_id BIGINT UNSIGNED PATH '$[9]', acquired_us BIGINT PATH '$[10]',
		expires_us BIGINT PATH '$[11]')) AS l
LIMIT 18446744073709551615;

-- One row per holder; expired rows show until reaped.  MariaDB's FROM_UNIXTIME() ends
-- in 2038; later times are converted as if it were 28 or 56 years earlier, when
-- the calendar is the same.  "remaining" of a session's lease is its time to live.
-- dlock_holders() says whether a lease is guarded.
CREATE OR REPLACE DEFINER = 'dlock'@'localhost' SQL SECURITY DEFINER
VIEW dlock.locks AS
SELECT
	l.name COLLATE /*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */ AS name,
	IF(r.everything OR CAST(l.account AS BINARY) = r.account, l.owner, '<insufficient privilege>')
		COLLATE /*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */ AS owner,
	CONVERT(ELT(l.mode, 'exclusive', 'shared', 'permit') USING utf8mb4)
		COLLATE /*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */ AS mode,
	l.version, l.token,
	FROM_UNIXTIME(l.acquired_us * 0.000001) AS acquired_at,
	CASE
		WHEN l.expires_us < 2147483647000000 THEN FROM_UNIXTIME(l.expires_us * 0.000001)
		WHEN l.expires_us < 3031096447000000 THEN
			FROM_UNIXTIME((l.expires_us - 883612800000000) * 0.000001) + INTERVAL 10227 DAY
		ELSE FROM_UNIXTIME((l.expires_us - 1767225600000000) * 0.000001) + INTERVAL 20454 DAY
	END AS expires_at,
	GREATEST(0, 0.000001e0 * IF(l.kind = 2, l.ttl_us, l.expires_us
		- TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))) AS remaining,
	l.leaving,
	CAST(NULL AS SIGNED) AS guarded,
	l.account,
	IF(r.everything OR CAST(l.account AS BINARY) = r.account, l.connection_id, NULL) AS connection_id
FROM dlock.reader AS r STRAIGHT_JOIN dlock.lease_state AS l;

-- One row per connection that waits for a lease in this server; dlock_acquire_any() has
-- a row for each of its names.  Position 1 is served next.  NULL: owner, mode and
-- position of dlock_wait(); position of dlock_acquire_all() and dlock_acquire_any(), and
-- of a waiter whose grant is yet to be committed.
CREATE OR REPLACE DEFINER = 'dlock'@'localhost' SQL SECURITY DEFINER
VIEW dlock.waiters AS
SELECT
	w.name COLLATE /*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */ AS name,
	IF(w.owner IS NULL OR r.everything OR CAST(w.account AS BINARY) = r.account, w.owner,
		'<insufficient privilege>')
		COLLATE /*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */ AS owner,
	w.mode COLLATE /*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */ AS mode,
	w.position,
	FROM_UNIXTIME(w.waiting_since_us * 0.000001) AS waiting_since,
	w.account,
	IF(r.everything OR CAST(w.account AS BINARY) = r.account, w.connection_id, NULL) AS connection_id
FROM dlock.reader AS r,
(SELECT dlock.all_waiters() AS json LIMIT 1) AS j,
JSON_TABLE(j.json, '$[*]' COLUMNS (
	name VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[0]',
	owner VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[1]',
	mode VARCHAR(9) CHARACTER SET utf8mb4 PATH '$[2]', position INT UNSIGNED PATH '$[3]',
	waiting_since_us BIGINT PATH '$[4]', account VARCHAR(400) CHARACTER SET utf8mb4 PATH '$[5]',
	connection_id BIGINT UNSIGNED PATH '$[6]')) AS w;

-- One row: counters of this server since stats_reset, and what it holds.
CREATE OR REPLACE DEFINER = 'dlock'@'localhost' SQL SECURITY DEFINER
VIEW dlock.stats AS
SELECT
	c.acquired, c.reentered, c.refused, c.timed_out, c.deadlocks, c.released,
	c.renewed, c.renewals_lost, c.expired, c.reaped, c.forced, c.woken,
	c.held, c.waiters, c.wait_histogram,
	FROM_UNIXTIME(c.stats_reset_us * 0.000001) AS stats_reset
FROM (SELECT dlock.all_stats() AS json LIMIT 1) AS j,
JSON_TABLE(j.json, '$' COLUMNS (
	acquired BIGINT PATH '$.acquired', reentered BIGINT PATH '$.reentered',
	refused BIGINT PATH '$.refused', timed_out BIGINT PATH '$.timed_out',
	deadlocks BIGINT PATH '$.deadlocks', released BIGINT PATH '$.released',
	renewed BIGINT PATH '$.renewed', renewals_lost BIGINT PATH '$.renewals_lost',
	expired BIGINT PATH '$.expired', reaped BIGINT PATH '$.reaped',
	forced BIGINT PATH '$.forced', woken BIGINT PATH '$.woken',
	held BIGINT PATH '$.held', waiters INT PATH '$.waiters',
	wait_histogram JSON PATH '$.wait_histogram', stats_reset_us BIGINT PATH '$.stats_reset_us')) AS c;

-- ---------------------------------------------------------------------
-- The guard: CALL dlock.guard(name, owner, token)
--
-- Raise an error unless the caller holds the lease with this token.  From then
-- on, until the caller's transaction has ended, nobody else is granted the lease.
-- Names and owners are bytes here: a client whose character set is not utf8mb4
-- has to convert what is not ASCII.  udf_guard.c says why there are three steps,
-- and why the error of a lost lease is raised again.  The row may have been
-- written since the transaction looked first: that must be no error by MariaDB's
-- innodb_snapshot_isolation.
-- ---------------------------------------------------------------------

DROP PROCEDURE IF EXISTS dlock.guard;
DROP PROCEDURE IF EXISTS dlock.guard_row;

DELIMITER //
CREATE DEFINER = 'dlock'@'localhost' PROCEDURE dlock.guard_row(
	IN lease_name VARBINARY(1024), IN lease_token BIGINT, OUT changed INT)
	MODIFIES SQL DATA
	SQL SECURITY DEFINER
	COMMENT 'a part of dlock.guard(), and of no use without it'
BEGIN
	DECLARE guard_number BIGINT UNSIGNED;
	SET guard_number = dlock_guard_ticket(lease_name, lease_token);
	SET changed = 0;
	IF guard_number IS NOT NULL THEN
		-- A join looks the row up by its key.  How an UPDATE of one table finds its rows
		-- depends on settings of the session, and it may lock all that there are.
		/*M!101108 SET STATEMENT innodb_snapshot_isolation = OFF FOR */
		UPDATE (SELECT 1 AS one) AS one
			STRAIGHT_JOIN dlock.guards AS g FORCE INDEX (PRIMARY)
		SET g.changes = g.changes + 1
		WHERE g.number = guard_number;
		SET changed = ROW_COUNT();
	END IF;
END//

CREATE DEFINER = 'dlock'@'localhost' PROCEDURE dlock.guard(
	IN lease_name VARBINARY(1024), IN lease_owner VARBINARY(1024),
	IN lease_token BIGINT)
	MODIFIES SQL DATA
	SQL SECURITY INVOKER
	COMMENT 'pin a lease until the transaction ends, or raise an error'
BEGIN
	DECLARE done INT;
	DECLARE changed INT;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION
	BEGIN
		IF dlock_guard_lost() = 1 THEN
			RESIGNAL SQLSTATE '55L01';
		END IF;
		RESIGNAL;
	END;
	SET done = dlock_guard_begin(lease_name, lease_owner, lease_token);
	CALL dlock.guard_row(lease_name, lease_token, changed);
	SET done = dlock_guard_check(lease_name, lease_owner, lease_token, changed);
END//
DELIMITER ;

-- ---------------------------------------------------------------------
-- The server must let the library in whatever init_connect does, and on MySQL also
-- in offline_mode: that takes the privilege CONNECTION_ADMIN.  On MySQL this also
-- lets an account write while the server is read_only.  So there a default role has
-- the privilege, and the library lays the role aside as soon as it is let in.
--
-- This comes last, because it is an error if the administrator may not grant that
-- privilege, or (1396) if 'dlock_login'@'localhost' is somebody else's, being not locked.
-- All else is there then, but init_connect and offline_mode are for the library as for
-- others.
-- ---------------------------------------------------------------------

/*!80000 CALL dlock.install_locked('dlock_login') */;
/*!80000 GRANT CONNECTION_ADMIN ON *.* TO 'dlock_login'@'localhost' */;
CALL dlock.install_if(NOT @dlock_mariadb,
	CONCAT('GRANT ''dlock_login''@''localhost'' TO ', @dlock_account));
-- beside the default roles that the account may have
CALL dlock.install_if(NOT @dlock_mariadb,
	'SELECT GROUP_CONCAT(CONCAT(QUOTE(DEFAULT_ROLE_USER), ''@'', QUOTE(DEFAULT_ROLE_HOST)))
	INTO @dlock_roles FROM mysql.default_roles
	WHERE USER = dlock_os_user() AND HOST = ''localhost''
		AND NOT (DEFAULT_ROLE_USER = ''dlock_login'' AND DEFAULT_ROLE_HOST = ''localhost'')');
CALL dlock.install_if(NOT @dlock_mariadb, CONCAT('ALTER USER ', @dlock_account,
	' DEFAULT ROLE ', CONCAT_WS(',', '''dlock_login''@''localhost''', @dlock_roles)));

SET @dlock_needed = @dlock_mariadb AND NOT EXISTS (
	SELECT * FROM information_schema.USER_PRIVILEGES
	WHERE GRANTEE = @dlock_account AND PRIVILEGE_TYPE = 'CONNECTION ADMIN');
CALL dlock.install_if(@dlock_needed, CONCAT('GRANT CONNECTION ADMIN ON *.* TO ', @dlock_account));
UPDATE dlock.library_account SET connection_admin = TRUE
WHERE account = @dlock_account AND @dlock_needed;
DROP PROCEDURE dlock.install_locked;
DROP PROCEDURE dlock.install_if;

SET SESSION sql_mode = @dlock_old_sql_mode, SESSION sql_safe_updates = @dlock_old_safe_updates,
	SESSION group_concat_max_len = @dlock_old_group_concat_max_len;
