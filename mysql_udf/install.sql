-- install.sql: everything that dlock has in a MySQL or MariaDB server.
--
-- Put dlock.so (make mysql) where SELECT @@plugin_dir says, readable by the
-- server; then, as an administrator,
--
--	mysql < mysql_udf/install.sql			(or mariadb)
--
-- Running it again is harmless: leases and settings stay.  uninstall.sql undoes
-- it.
--
-- In a cluster, or with replicas: first put the library on every server.  What
-- this file does is replicated, except for plugins.  So every other server needs
-- INSTALL SONAME 'dlock' afterwards (MariaDB), or plugin-load-add=auth_socket.so
-- among its options beforehand (MySQL).
--
-- This file makes
--
-- - the functions dlock_...(), which every account may call;
-- - database dlock: the lock table and what belongs to it, the views locks,
--	waiters and stats, and the procedure guard;
-- - the account that the library uses, see "Accounts" below; where it is
--	missing, the plugin that lets it in; and on MariaDB a plugin of dlock's
--	own, which notices that connections end.
--
-- At first only administrators can see the views or use dlock.guard().  An
-- application needs the first of these, an account that only watches the others:
--
--	GRANT EXECUTE ON dlock.* TO 'app'@'%';
--	GRANT SELECT ON dlock.locks TO 'watcher'@'%';
--	GRANT SELECT ON dlock.waiters TO 'watcher'@'%';
--	GRANT SELECT ON dlock.stats TO 'watcher'@'%';
--
-- MariaDB can grant to PUBLIC instead.  Let nobody read the tables: grant no
-- SELECT ON dlock.*.
--
-- On MariaDB the statement DO hides the errors of functions; use SELECT, SET or
-- CALL.
--
-- SPDX-License-Identifier: PostgreSQL

SET @dlock_old_sql_mode = @@SESSION.sql_mode;
SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION';
SET NAMES utf8mb4;
SET SESSION autocommit = 1;
-- what the client's option file or the server may have set otherwise
SET @dlock_old_safe_updates = @@SESSION.sql_safe_updates;
SET @dlock_old_group_concat_max_len = @@SESSION.group_concat_max_len;
SET SESSION sql_safe_updates = 0, SESSION group_concat_max_len = 1048576;
SET SESSION TRANSACTION READ WRITE;
SET @dlock_mariadb = @@version LIKE '%MariaDB%';

-- ---------------------------------------------------------------------
-- Functions.  If there is an error here, nothing has been done, except that database
-- dlock may be new, and empty:
--
--	1126, 1127	the library is not in the server's plugin directory, or cannot
--				be read by the server, or is not this version
--	1026, or 1305 further down
--				dlock was installed, and the server was started while the
--				library was missing: put it there and restart the server
-- ---------------------------------------------------------------------

CREATE DATABASE IF NOT EXISTS dlock DEFAULT CHARACTER SET utf8mb4;

-- A restored dump may have entries for functions that this server has not loaded.
-- They are in the way of loading these.
DROP PROCEDURE IF EXISTS dlock.look_for_functions;
DELIMITER //
CREATE PROCEDURE dlock.look_for_functions()
BEGIN
	DECLARE EXIT HANDLER FOR SQLEXCEPTION SET @dlock_loaded = FALSE;
	SET @dlock_loaded = dlock_version() IS NOT NULL;
END//
DELIMITER ;
CALL dlock.look_for_functions();
DROP PROCEDURE dlock.look_for_functions;
DELETE FROM mysql.func WHERE dl = 'dlock.so' AND NOT @dlock_loaded;

CREATE FUNCTION IF NOT EXISTS dlock_acquire RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_shared RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_permit RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_permits RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_all RETURNS STRING
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_any RETURNS STRING
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_session RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_acquire_session_shared RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_renew RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_renew_all RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_renew_many RETURNS STRING
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_release RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_downgrade RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_release_all RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_release_many RETURNS STRING
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_wait RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_owner RETURNS STRING
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_is_free RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_remaining RETURNS REAL
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_holders RETURNS STRING
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_force_release RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_stats_reset RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_reload RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_version RETURNS STRING
	SONAME 'dlock.so';

-- for the views and procedures below only
CREATE FUNCTION IF NOT EXISTS dlock_os_user RETURNS STRING
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_settle RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_drain RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_reader RETURNS STRING
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_unwritten RETURNS STRING
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_view_waiters RETURNS STRING
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_view_stats RETURNS STRING
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_guard_begin RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_guard_ticket RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_guard_check RETURNS INTEGER
	SONAME 'dlock.so';
CREATE FUNCTION IF NOT EXISTS dlock_guard_lost RETURNS INTEGER
	SONAME 'dlock.so';

-- MariaDB's plugin.  If the server was started without the library, an old entry
-- is in the way.
SET @dlock_statement = IF(@dlock_mariadb AND NOT EXISTS (
		SELECT * FROM information_schema.PLUGINS
		WHERE PLUGIN_LIBRARY = 'dlock.so' AND PLUGIN_STATUS = 'ACTIVE'),
	'DELETE FROM mysql.plugin WHERE dl = ''dlock.so''', 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = IF(@dlock_mariadb AND NOT EXISTS (
		SELECT * FROM information_schema.PLUGINS
		WHERE PLUGIN_LIBRARY = 'dlock.so' AND PLUGIN_STATUS = 'ACTIVE'),
	'INSTALL SONAME ''dlock''', 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;

-- ---------------------------------------------------------------------
-- Tables.  Only the library writes them, but for the settings.
-- ---------------------------------------------------------------------

CREATE TABLE IF NOT EXISTS dlock.lease_mark (
	bucket SMALLINT UNSIGNED NOT NULL PRIMARY KEY
		COMMENT 'of names',
	mark BIGINT UNSIGNED NOT NULL
		COMMENT 'no token of the bucket was higher',
	writer BIGINT UNSIGNED NOT NULL DEFAULT 0
		COMMENT 'the run of a server that has raised all marks last'
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
	COMMENT='what keeps tokens growing';

-- Marks that are there stay: the library may be at work on them.  New ones are the
-- system clock of a second ago, in seconds since 2020, times 2^20.  Before the first
-- grant the library raises them to the clock; from a later time it would have to
-- wait.  So the tokens of a new table are above those of an earlier table.
SELECT COUNT(*) INTO @dlock_marks FROM dlock.lease_mark;
SET @dlock_statement = IF(@dlock_marks >= 256, 'DO 0', '
INSERT IGNORE INTO dlock.lease_mark (bucket, mark)
WITH RECURSIVE buckets (bucket) AS (
	SELECT 0 UNION ALL SELECT bucket + 1 FROM buckets WHERE bucket < 255
)
SELECT bucket,
	(TIMESTAMPDIFF(SECOND, ''2020-01-01'', UTC_TIMESTAMP()) - 1) * 1048576
FROM buckets');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;

CREATE TABLE IF NOT EXISTS dlock.settings (
	name VARCHAR(64) CHARACTER SET ascii NOT NULL PRIMARY KEY,
	value VARCHAR(255) CHARACTER SET ascii NOT NULL,
	description VARCHAR(255) CHARACTER SET ascii NOT NULL DEFAULT ''
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
	COMMENT='settings of dlock; times are in seconds';

INSERT IGNORE INTO dlock.settings (name, value, description) VALUES
	('lock_delay', '0', 'pause between the expiry of a lease, or the loss of its session, and its grant to another holder'),
	('max_ttl', '86400', 'the longest time, to live or to wait, that a call may ask for'),
	('max_waiters', '1000', 'how many connections of one server can wait for leases at a time'),
	('reap_interval', '1', 'how often expired leases are removed'),
	('log_expired', '1', 'whether the server''s error log is told of leases that have expired: 1 or 0'),
	('lock_timeout', '5', 'how long the library waits for the table when somebody has locked it');

-- The journal: changes that lease_table does not have yet.  Above dlock.lease_state,
-- below, stands what its rows mean.  (1.0 had another journal, lease_journal; the library
-- empties it, and nothing else needs it.)  A library at work writes the journal as soon
-- as it finds one of these tables, so both appear at once.
CREATE TABLE IF NOT EXISTS dlock.new_journal_head (
	place TINYINT UNSIGNED NOT NULL PRIMARY KEY,
	writer BIGINT UNSIGNED NOT NULL
		COMMENT 'the run of a server that may append to the journal'
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
	COMMENT='who writes the journal';
INSERT IGNORE INTO dlock.new_journal_head VALUES (0, 0);

CREATE TABLE IF NOT EXISTS dlock.new_journal (
	writer BIGINT UNSIGNED NOT NULL
		COMMENT 'the run of a server that wrote it',
	number BIGINT UNSIGNED NOT NULL
		COMMENT 'says the order',
	changes MEDIUMTEXT CHARACTER SET ascii NOT NULL
		COMMENT 'JSON',
	PRIMARY KEY (writer, number)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
	COMMENT='changes of leases that are not in lease_table yet';

SET @dlock_statement = (
	SELECT CONCAT('RENAME TABLE ', GROUP_CONCAT(CONCAT('dlock.new_', n.name, ' TO dlock.', n.name)))
	FROM (SELECT 'journal_head' AS name UNION ALL SELECT 'journal') AS n
	WHERE NOT EXISTS (
		SELECT * FROM information_schema.TABLES AS t
		WHERE t.TABLE_SCHEMA = 'dlock' AND t.TABLE_NAME = n.name));
SET @dlock_statement = COALESCE(@dlock_statement, 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
DROP TABLE IF EXISTS dlock.new_journal_head, dlock.new_journal, dlock.closed_journal_head;
INSERT IGNORE INTO dlock.journal_head VALUES (0, 0);

-- What uninstall.sql has to undo of the library's account.
CREATE TABLE IF NOT EXISTS dlock.library_account (
	account VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY
		COMMENT 'quoted',
	created BOOLEAN NOT NULL
		COMMENT 'by install.sql',
	process BOOLEAN NOT NULL
		COMMENT 'the privilege was granted by install.sql',
	connection_admin BOOLEAN NOT NULL DEFAULT FALSE
		COMMENT 'the same'
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
	COMMENT='the accounts that the library uses';
-- the table of 1.0.0 lacks a column
SET @dlock_statement = IF(EXISTS (
		SELECT * FROM information_schema.COLUMNS
		WHERE TABLE_SCHEMA = 'dlock' AND TABLE_NAME = 'library_account'
			AND COLUMN_NAME = 'connection_admin'), 'DO 0',
	'ALTER TABLE dlock.library_account ADD COLUMN
		connection_admin BOOLEAN NOT NULL DEFAULT FALSE COMMENT ''the same''');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;

-- A row is a holder.  Names and the like are bytes.  This table comes last, because
-- without it the library grants nothing.
CREATE TABLE IF NOT EXISTS dlock.lease_table (
	name VARBINARY(255) NOT NULL,
	slot INT UNSIGNED NOT NULL
		COMMENT 'tells the holders of one name apart',
	owner VARBINARY(255) NOT NULL,
	account_user VARBINARY(512) NOT NULL,
	account_host VARBINARY(255) NOT NULL,
	mode TINYINT UNSIGNED NOT NULL
		COMMENT '1 exclusive, 2 shared, 3 permit',
	kind TINYINT UNSIGNED NOT NULL
		COMMENT '1 plain, 2 session',
	version INT UNSIGNED NOT NULL
		COMMENT 'holds or permits',
	token BIGINT UNSIGNED NOT NULL,
	request VARBINARY(255) NOT NULL
		COMMENT 'id of the last acquire; empty: none',
	ttl_us BIGINT NOT NULL
		COMMENT 'time to live when it was written, in microseconds',
	writes BIGINT UNSIGNED NOT NULL
		COMMENT 'grows with every change',
	writer BIGINT UNSIGNED NOT NULL
		COMMENT 'the run of a server that wrote it',
	deadline_us BIGINT NOT NULL
		COMMENT 'on the clock of the run of a server named by writer',
	guards BIGINT UNSIGNED NOT NULL DEFAULT 0
		COMMENT 'changed by dlock.guard()',
	connection_id BIGINT UNSIGNED NOT NULL
		COMMENT 'the connection that took it',
	acquired_us BIGINT NOT NULL
		COMMENT 'microseconds since 1970 UTC',
	expires_us BIGINT NOT NULL
		COMMENT 'the same, as the wall clock will show it; to be shown only',
	PRIMARY KEY (name, slot),
	KEY owner (owner),
	KEY deadline (writer, deadline_us)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
	COMMENT='the leases; read them through dlock.locks';

-- ---------------------------------------------------------------------
-- Accounts
--
-- The library logs in to its own server by the Unix socket, as the account that
-- is called like the server's user in the operating system, usually
-- 'mysql'@'localhost'.  The plugin auth_socket (MySQL) or unix_socket (MariaDB)
-- lets in that user and no other.  An account of that name that exists already
-- keeps what it has, and gets the rights; if it cannot log in by the socket,
-- dlock's functions say so.
--
-- Nobody logs in as 'dlock'@'localhost': the views and dlock.guard_row() have its
-- rights.  If there is one that is not locked, it belongs to somebody else and must
-- not get these rights: error 1396.
-- ---------------------------------------------------------------------

SET @dlock_plugin = IF(@dlock_mariadb, 'unix_socket', 'auth_socket');
-- an entry of a restored dump is in the way, too
DELETE FROM mysql.plugin WHERE name = @dlock_plugin AND NOT EXISTS (
	SELECT * FROM information_schema.PLUGINS
	WHERE PLUGIN_NAME = @dlock_plugin AND PLUGIN_STATUS = 'ACTIVE');
SET @dlock_statement = IF(EXISTS (
		SELECT * FROM information_schema.PLUGINS
		WHERE PLUGIN_NAME = @dlock_plugin AND PLUGIN_STATUS = 'ACTIVE'),
	'DO 0',
	IF(@dlock_mariadb, 'INSTALL SONAME ''auth_socket''',
		'INSTALL PLUGIN auth_socket SONAME ''auth_socket.so'''));
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;

SET @dlock_statement = CONCAT('SELECT COUNT(*) INTO @dlock_locked FROM ',
	IF(@dlock_mariadb,
		'mysql.global_priv WHERE JSON_CONTAINS(Priv, ''true'', ''$.account_locked'')',
		'mysql.user WHERE account_locked = ''Y'''),
	' AND User = ''dlock'' AND Host = ''localhost''');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = IF(@dlock_locked > 0, 'DO 0',
	CONCAT('CREATE USER ',
		-- on another server of a cluster, somebody may be doing the same
		IF(EXISTS (
			SELECT * FROM information_schema.USER_PRIVILEGES
			WHERE GRANTEE = '''dlock''@''localhost'''), '', 'IF NOT EXISTS '),
		'''dlock''@''localhost'' IDENTIFIED WITH ', @dlock_plugin, ' ACCOUNT LOCK'));
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
GRANT SELECT, UPDATE, EXECUTE ON dlock.* TO 'dlock'@'localhost';
-- everybody may read it, but to a view's definer it has to be granted
SET @dlock_statement = IF(@dlock_mariadb, 'DO 0',
	'GRANT SELECT ON performance_schema.session_status TO ''dlock''@''localhost''');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
-- the library asks whether the server follows another one: on MariaDB any account may
SET @dlock_statement = IF(@dlock_mariadb, 'DO 0',
	'GRANT SELECT ON performance_schema.replication_applier_status TO ''dlock''@''localhost''');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = IF(@dlock_mariadb, 'DO 0',
	'CREATE OR REPLACE DEFINER = ''dlock''@''localhost'' SQL SECURITY DEFINER
	VIEW dlock.appliers AS
	SELECT ''appliers'' AS what, COUNT(*) AS appliers
	FROM performance_schema.replication_applier_status WHERE SERVICE_STATE = ''ON''');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;

SET @dlock_account = CONCAT(QUOTE(dlock_os_user()), '@''localhost''');
SET @dlock_created = NOT EXISTS (
	SELECT * FROM information_schema.USER_PRIVILEGES
	WHERE GRANTEE = @dlock_account);
SET @dlock_process = @dlock_mariadb AND NOT EXISTS (
	SELECT * FROM information_schema.USER_PRIVILEGES
	WHERE GRANTEE = @dlock_account AND PRIVILEGE_TYPE = 'PROCESS');
INSERT INTO dlock.library_account (account, created, process) VALUES
	(@dlock_account, @dlock_created, @dlock_process)
ON DUPLICATE KEY UPDATE
	created = created OR @dlock_created, process = process OR @dlock_process;
SET @dlock_statement = CONCAT('CREATE USER IF NOT EXISTS ', @dlock_account,
	' IDENTIFIED WITH ', @dlock_plugin);
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = CONCAT(
	'GRANT SELECT, INSERT, UPDATE, DELETE ON dlock.* TO ', @dlock_account);
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
-- on MariaDB, to see which connections have ended while dlock's plugin is
-- not active, as after a reinstallation
SET @dlock_statement = IF(@dlock_mariadb,
	CONCAT('GRANT PROCESS ON *.* TO ', @dlock_account), 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;

-- ---------------------------------------------------------------------
-- Views
--
-- Looking never writes: the views read what is committed, in the reader's own
-- snapshot, and ask the library only for what is in its memory.
--
-- It must be possible to restore a logical dump where the library is missing.  So the
-- views name no loadable functions, but stored functions that call these.  On MariaDB
-- a stored function cannot tell who reads, see below: there locks and waiters name
-- dlock_reader().  It has no arguments, because a call with arguments is dumped in a
-- way that cannot even be parsed without the function.
--
-- Names and owners are text that compares byte for byte.  One that is not UTF-8 shows
-- as its bytes, 0x..., whatever character set HEX() answers in.  Times are in the
-- session's zone.
--
-- A status variable, or on MariaDB a function, tells who reads a view and what the
-- reader may see; udf_reader.c says why, and how.  "LIMIT" stands where something is
-- to be asked for once, not for every row.
--
-- Where the variable does not know whether the reader may see everything, it is to be
-- looked up what the account has been granted itself.  GRANTEE is '...'@'...' with
-- nothing escaped; a host has no @.
-- ---------------------------------------------------------------------

-- These have the rights of the caller: in the views that is the views' definer, and
-- for everybody else they are of no use.  The first was one of 1.0.
/*!80000 DROP FUNCTION IF EXISTS dlock.settled */;
DROP FUNCTION IF EXISTS dlock.all_unwritten;
DROP FUNCTION IF EXISTS dlock.all_waiters;
DROP FUNCTION IF EXISTS dlock.all_stats;
DROP FUNCTION IF EXISTS dlock.all_held;

DELIMITER //
CREATE DEFINER = 'dlock'@'localhost' FUNCTION dlock.all_unwritten()
	RETURNS LONGTEXT CHARACTER SET utf8mb4
	NO SQL
	SQL SECURITY INVOKER
	COMMENT 'for the view lease_state'
BEGIN
	-- Without the library nothing is unwritten, and there is no such function: 1305, of
	-- which MySQL makes 1356 while it opens a view.
	DECLARE EXIT HANDLER FOR 1305, 1356 RETURN '[]';
	RETURN dlock_unwritten();
END//
DELIMITER ;

CREATE DEFINER = 'dlock'@'localhost' FUNCTION dlock.all_waiters()
	RETURNS LONGTEXT CHARACTER SET utf8mb4
	NO SQL
	SQL SECURITY INVOKER
	COMMENT 'for the view waiters'
	RETURN dlock_view_waiters();

CREATE DEFINER = 'dlock'@'localhost' FUNCTION dlock.all_stats()
	RETURNS LONGTEXT CHARACTER SET utf8mb4
	NO SQL
	SQL SECURITY INVOKER
	COMMENT 'for the view stats'
	RETURN dlock_view_stats();

CREATE DEFINER = 'dlock'@'localhost' FUNCTION dlock.all_held() RETURNS BIGINT
	READS SQL DATA
	SQL SECURITY INVOKER
	COMMENT 'for the view stats'
	RETURN (SELECT COUNT(*) FROM dlock.lease_state);

-- The leases as they are: the rows of lease_table with the journal applied, without
-- those whose release the library has answered and not written yet.  This view is for
-- the views below, which ask with their own rights.  Let nobody else read it, for it
-- masks nothing.  (If it had the rights of its definer, the view locks could not be
-- restored from a dump before FLUSH PRIVILEGES.)
--
-- A row of the journal is a JSON array of changes, each an array that begins with a
-- number; strings are in hexadecimal digits.  The changes are in the order of (writer,
-- number), and within a row in that of the array.  Name and token identify a lease.
--
--	[1, name, slot, owner, account_user, account_host, mode, kind, version, token,
--		request, ttl_us, writes, deadline_us, connection_id, acquired_us, expires_us]
--				put this lease in place of what there is of it; its writer is that of
--				the journal's row
--	[2, name, token]
--				remove this lease; not if another run than that of the journal's row
--				has taken over last, see read_journals() in table.c
--	[3, owner, account_user, account_host, at_us, ttl_us, expires_us]
--				renew all plain leases of this owner and account that the same writer
--				has put and that end after at_us: at_us + ttl_us is their deadline
--
-- An owner's renewals leave no gap: a lease that one of them has renewed is not over when
-- the next is made.  So a lease is renewed if it was not over at the first renewal after
-- it was put, and then the last renewal counts.
--
-- How it is joined.  The table may be large, so it is not copied, as a UNION would do.  It
-- is read once, and each row looks up what the journal has of it.  One more row of "part"
-- has the leases that the journal puts.  The tables that are made of the journal are small
-- and get keys.  Both servers choose worse plans where they may:
--
-- - The range of names is all of them for part 0 and none for part 1; as it depends on
--	the row of "part", MySQL cannot make a hash of the table.
-- - "put".part is a column and no condition, so that it is a key.
-- - The account of a renewal is within IF(), for MariaDB makes no key that long.  The
--	number of a renewal is compared with a value that depends on the lease, for a
--	constant is not part of a key.
-- - Every window begins with the first row, and none has MIN(): others would take time
--	that grows with the square of the rows, on either server.
-- - Because of the LIMIT in "entry", MySQL makes a table of it.  Otherwise MySQL's
--	hypergraph optimizer, which any session may choose, sorts the rows for the windows by
--	where they are in JSON_TABLE's own table.  MySQL empties that table for each row of
--	the journal.  So most leases were missing, and the server wrote where it must not,
--	and crashed.
CREATE OR REPLACE DEFINER = 'dlock'@'localhost' SQL SECURITY INVOKER
VIEW dlock.lease_state AS
WITH entry AS (
	SELECT
		j.writer, j.number, e.place, e.what,
		UNHEX(IF(e.what = 3, NULL, e.item1)) AS name,
		CASE e.what WHEN 1 THEN e.item9 WHEN 2 THEN CAST(e.item2 AS UNSIGNED) END AS token,
		UNHEX(CASE e.what WHEN 1 THEN e.item3 WHEN 3 THEN e.item1 END) AS owner,
		UNHEX(CASE e.what WHEN 1 THEN e.item4 WHEN 3 THEN e.item2 END) AS account_user,
		UNHEX(CASE e.what WHEN 1 THEN e.item5 WHEN 3 THEN e.item3 END) AS account_host,
		e.item6 AS mode,
		e.item7 AS kind,
		e.item8 AS version,
		e.item11 AS ttl_us,
		e.item13 AS deadline_us,
		e.item14 AS connection_id,
		e.item15 AS acquired_us,
		IF(e.what = 3, e.item6, e.item16) AS expires_us,
		IF(e.what = 3, CAST(e.item4 AS SIGNED), NULL) AS at_us
	FROM dlock.journal AS j,
	JSON_TABLE(j.changes, '$[*]' COLUMNS (
		place FOR ORDINALITY,
		what INT PATH '$[0]',
		item1 VARCHAR(510) CHARACTER SET ascii PATH '$[1]',
		item2 VARCHAR(1024) CHARACTER SET ascii PATH '$[2]',
		item3 VARCHAR(510) CHARACTER SET ascii PATH '$[3]',
		item4 VARCHAR(1024) CHARACTER SET ascii PATH '$[4]',
		item5 VARCHAR(510) CHARACTER SET ascii PATH '$[5]',
		item6 BIGINT PATH '$[6]',
		item7 INT PATH '$[7]',
		item8 INT UNSIGNED PATH '$[8]',
		item9 BIGINT UNSIGNED PATH '$[9]',
		item11 BIGINT PATH '$[11]',
		item13 BIGINT PATH '$[13]',
		item14 BIGINT UNSIGNED PATH '$[14]',
		item15 BIGINT PATH '$[15]',
		item16 BIGINT PATH '$[16]'
	)) AS e
	WHERE e.what <> 2 OR j.writer = (SELECT m.writer FROM dlock.lease_mark AS m WHERE m.bucket = 0)
	/*!80000 LIMIT 18446744073709551615 */
),
-- leases of which holds were given back, and how many are left
unwritten AS (
	SELECT DISTINCT UNHEX(u.name_hex) AS name, u.token, COALESCE(u.version, 0) AS version
	FROM JSON_TABLE(dlock.all_unwritten(), '$[*]' COLUMNS (
		name_hex VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		token BIGINT UNSIGNED PATH '$[1]',
		version INT UNSIGNED PATH '$[2]'
	)) AS u
),
-- The leases of which the row in lease_table does not count.  The library comes first:
-- it knows the releases that were written after the reader's snapshot for a second, and
-- to read a long journal may take longer.
replaced AS (
	SELECT name, token FROM unwritten WHERE version = 0
	UNION
	SELECT name, token FROM entry WHERE what IN (1, 2)
),
-- the renewals of each owner, numbered; expires_us is that of the last one
renewal AS (
	SELECT
		writer, owner, account_user, account_host, at_us,
		ROW_NUMBER() OVER (
			PARTITION BY writer, owner, account_user, account_host
			ORDER BY number, place) AS nth,
		FIRST_VALUE(expires_us) OVER (
			PARTITION BY writer, owner, account_user, account_host
			ORDER BY number DESC, place DESC
			ROWS UNBOUNDED PRECEDING) AS expires_us
	FROM entry
	WHERE what = 3
),
-- The leases that the journal puts: 1 as their part if nothing later says otherwise,
-- and how many renewals of their owner are before them.
put AS (
	SELECT
		writer, name, owner, account_user, account_host, mode, kind, version, token,
		ttl_us, deadline_us, connection_id, acquired_us, expires_us,
		COUNT(at_us) OVER (
			PARTITION BY writer, owner, account_user, account_host
			ORDER BY number, place
			ROWS UNBOUNDED PRECEDING) AS renewals,
		IF(what = 1 AND ROW_NUMBER() OVER (
				PARTITION BY name, token
				ORDER BY writer DESC, number DESC, place DESC) = 1,
			1, NULL) AS part
	FROM entry
)
SELECT
	IF(s.part = 0, t.name, p.name) AS name,
	IF(s.part = 0, t.owner, p.owner) AS owner,
	IF(s.part = 0, t.account_user, p.account_user) AS account_user,
	IF(s.part = 0, t.account_host, p.account_host) AS account_host,
	IF(s.part = 0, t.mode, p.mode) AS mode,
	IF(s.part = 0, t.kind, p.kind) AS kind,
	COALESCE(w.version, u.version, IF(s.part = 0, t.version, p.version)) AS version,
	IF(s.part = 0, t.token, p.token) AS token,
	IF(s.part = 0, t.ttl_us, p.ttl_us) AS ttl_us,
	IF(s.part = 0, t.connection_id, p.connection_id) AS connection_id,
	IF(s.part = 0, t.acquired_us, p.acquired_us) AS acquired_us,
	COALESCE(n.expires_us, m.expires_us, IF(s.part = 0, t.expires_us, p.expires_us))
		AS expires_us
FROM JSON_TABLE('[0, 1]', '$[*]' COLUMNS (part INT PATH '$')) AS s
	LEFT JOIN dlock.lease_table AS t FORCE INDEX (PRIMARY)
		ON t.name >= IF(s.part = 0, '', REPEAT(0xFF, 256))
	LEFT JOIN replaced AS o
		ON o.name = t.name AND o.token = t.token
	LEFT JOIN renewal AS n
		ON n.writer = t.writer AND n.owner = t.owner
			AND n.nth = IF(t.kind = 1, 1, NULL)
			AND IF(n.account_user = t.account_user AND n.account_host = t.account_host,
				t.deadline_us > n.at_us, FALSE)
	LEFT JOIN put AS p
		ON p.part = s.part
	LEFT JOIN renewal AS m
		ON m.writer = p.writer AND m.owner = p.owner
			AND m.nth = IF(p.kind = 1, p.renewals + 1, NULL)
			AND IF(m.account_user = p.account_user AND m.account_host = p.account_host,
				p.deadline_us > m.at_us, FALSE)
	LEFT JOIN unwritten AS w
		ON w.name = t.name AND w.token = t.token
	LEFT JOIN unwritten AS u
		ON u.name = p.name AND u.token = p.token
WHERE (t.name IS NOT NULL AND o.name IS NULL)
	OR (p.name IS NOT NULL AND COALESCE(u.version, 1) > 0);

-- One row per holder; expired rows show until reaped.  MariaDB's FROM_UNIXTIME() ends
-- in 2038; later times are converted as if it were 28 or 56 years earlier, when
-- the calendar is the same.  "remaining" of a session's lease is its time to live.
-- A view cannot ask who has locked a row: dlock_holders() says whether it is guarded.
CREATE OR REPLACE DEFINER = 'dlock'@'localhost' SQL SECURITY DEFINER
VIEW dlock.locks AS
SELECT
	COALESCE(
		CASE WHEN CAST(CONVERT(l.name USING utf8mb4) AS BINARY) = l.name
			THEN CONVERT(l.name USING utf8mb4) END,
		CONCAT('0x', CONVERT(HEX(l.name) USING utf8mb4)))
		COLLATE /*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */ AS name,
	IF(r.everything OR (l.account_user = r.user AND l.account_host = r.host),
		COALESCE(
			CASE WHEN CAST(CONVERT(l.owner USING utf8mb4) AS BINARY) = l.owner
				THEN CONVERT(l.owner USING utf8mb4) END,
			CONCAT('0x', CONVERT(HEX(l.owner) USING utf8mb4))),
		'<insufficient privilege>')
		COLLATE /*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */ AS owner,
	CONVERT(ELT(l.mode, 'exclusive', 'shared', 'permit') USING utf8mb4)
		COLLATE /*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */ AS mode,
	l.version,
	CAST(l.token AS SIGNED) AS token,
	FROM_UNIXTIME(l.acquired_us * 0.000001) AS acquired_at,
	CASE
		WHEN l.expires_us < 2147483647000000 THEN FROM_UNIXTIME(l.expires_us * 0.000001)
		WHEN l.expires_us < 3031096447000000 THEN
			FROM_UNIXTIME((l.expires_us - 883612800000000) * 0.000001)
				+ INTERVAL 10227 DAY
		ELSE
			FROM_UNIXTIME((l.expires_us - 1767225600000000) * 0.000001)
				+ INTERVAL 20454 DAY
	END AS expires_at,
	GREATEST(0, 0.000001e0 * IF(l.kind = 2, l.ttl_us, l.expires_us
		- TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))) AS remaining,
	CAST(NULL AS SIGNED) AS guarded,
	CONVERT(CONCAT(l.account_user, '@', l.account_host) USING utf8mb4)
		AS account,
	IF(r.everything OR (l.account_user = r.user AND l.account_host = r.host),
		l.connection_id, NULL) AS connection_id
FROM (
		SELECT v.value LIKE '1 %'
			/*!80000 OR (v.value LIKE '? %' AND EXISTS (
				SELECT * FROM information_schema.USER_PRIVILEGES AS p
				WHERE p.PRIVILEGE_TYPE = 'CONNECTION_ADMIN' AND CAST(p.GRANTEE AS BINARY) = CONCAT(
					x'27', UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(v.value, ' ', 2), ' ', -1)), x'274027',
					UNHEX(SUBSTRING_INDEX(v.value, ' ', -1)), x'27'))) */
				AS everything,
			UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(v.value, ' ', 2), ' ', -1)) AS user,
			UNHEX(SUBSTRING_INDEX(v.value, ' ', -1)) AS host
		FROM (
			SELECT
				/*!80000 (SELECT VARIABLE_VALUE FROM performance_schema.session_status
					WHERE VARIABLE_NAME = 'dlock_reader') */
				/*M! dlock_reader() */ AS value
			LIMIT 1) AS v
		LIMIT 1) AS r
	STRAIGHT_JOIN dlock.lease_state AS l;

-- One row per connection that waits for a lease in this server; dlock_acquire_any() has
-- a row for each of its names.  Position 1 is served next.  NULL: owner, mode and
-- position of dlock_wait(); position of dlock_acquire_all() and dlock_acquire_any(), and
-- of a waiter whose grant is yet to be committed.
CREATE OR REPLACE DEFINER = 'dlock'@'localhost' SQL SECURITY DEFINER
VIEW dlock.waiters AS
SELECT
	COALESCE(
		CASE WHEN CAST(CONVERT(UNHEX(w.name_hex) USING utf8mb4) AS BINARY) = UNHEX(w.name_hex)
			THEN CONVERT(UNHEX(w.name_hex) USING utf8mb4) END,
		CONCAT('0x', CONVERT(HEX(UNHEX(w.name_hex)) USING utf8mb4)))
		COLLATE /*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */ AS name,
	CASE
		WHEN w.owner_hex IS NULL THEN NULL
		WHEN r.everything OR (UNHEX(w.user_hex) = r.user AND UNHEX(w.host_hex) = r.host) THEN COALESCE(
			CASE WHEN CAST(CONVERT(UNHEX(w.owner_hex) USING utf8mb4) AS BINARY) = UNHEX(w.owner_hex)
				THEN CONVERT(UNHEX(w.owner_hex) USING utf8mb4) END,
			CONCAT('0x', CONVERT(HEX(UNHEX(w.owner_hex)) USING utf8mb4)))
		ELSE '<insufficient privilege>'
	END
		COLLATE /*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */ AS owner,
	w.mode COLLATE /*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */ AS mode,
	w.position,
	FROM_UNIXTIME(w.waiting_since_us * 0.000001) AS waiting_since,
	w.account,
	IF(r.everything OR (UNHEX(w.user_hex) = r.user AND UNHEX(w.host_hex) = r.host),
		w.connection_id, NULL) AS connection_id
FROM (
		SELECT v.value LIKE '1 %'
			/*!80000 OR (v.value LIKE '? %' AND EXISTS (
				SELECT * FROM information_schema.USER_PRIVILEGES AS p
				WHERE p.PRIVILEGE_TYPE = 'CONNECTION_ADMIN' AND CAST(p.GRANTEE AS BINARY) = CONCAT(
					x'27', UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(v.value, ' ', 2), ' ', -1)), x'274027',
					UNHEX(SUBSTRING_INDEX(v.value, ' ', -1)), x'27'))) */
				AS everything,
			UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(v.value, ' ', 2), ' ', -1)) AS user,
			UNHEX(SUBSTRING_INDEX(v.value, ' ', -1)) AS host
		FROM (
			SELECT
				/*!80000 (SELECT VARIABLE_VALUE FROM performance_schema.session_status
					WHERE VARIABLE_NAME = 'dlock_reader') */
				/*M! dlock_reader() */ AS value
			LIMIT 1) AS v
		LIMIT 1) AS r,
(SELECT dlock.all_waiters() AS json LIMIT 1) AS j,
JSON_TABLE(j.json, '$[*]' COLUMNS (
	name_hex VARCHAR(510) CHARACTER SET ascii PATH '$.name_hex',
	owner_hex VARCHAR(510) CHARACTER SET ascii PATH '$.owner_hex',
	user_hex VARCHAR(1024) CHARACTER SET ascii PATH '$.user_hex',
	host_hex VARCHAR(510) CHARACTER SET ascii PATH '$.host_hex',
	mode VARCHAR(9) CHARACTER SET utf8mb4 PATH '$.mode',
	position INT UNSIGNED PATH '$.position',
	waiting_since_us BIGINT PATH '$.waiting_since_us',
	account VARCHAR(400) CHARACTER SET utf8mb4 PATH '$.account',
	connection_id BIGINT UNSIGNED PATH '$.connection_id'
)) AS w;

-- One row: counters of this server since stats_reset.  "held" is no counter: each query
-- that has this column counts the leases.
CREATE OR REPLACE DEFINER = 'dlock'@'localhost' SQL SECURITY DEFINER
VIEW dlock.stats AS
SELECT
	c.acquired, c.reentered, c.refused, c.timed_out, c.deadlocks, c.released,
	c.renewed, c.renewals_lost, c.expired, c.reaped, c.forced, c.woken,
	dlock.all_held() AS held,
	c.waiters, c.wait_histogram,
	FROM_UNIXTIME(c.stats_reset_us * 0.000001) AS stats_reset
FROM (SELECT dlock.all_stats() AS json LIMIT 1) AS j,
JSON_TABLE(j.json, '$' COLUMNS (
	acquired BIGINT PATH '$.acquired',
	reentered BIGINT PATH '$.reentered',
	refused BIGINT PATH '$.refused',
	timed_out BIGINT PATH '$.timed_out',
	deadlocks BIGINT PATH '$.deadlocks',
	released BIGINT PATH '$.released',
	renewed BIGINT PATH '$.renewed',
	renewals_lost BIGINT PATH '$.renewals_lost',
	expired BIGINT PATH '$.expired',
	reaped BIGINT PATH '$.reaped',
	forced BIGINT PATH '$.forced',
	woken BIGINT PATH '$.woken',
	waiters INT PATH '$.waiters',
	wait_histogram JSON PATH '$.wait_histogram',
	stats_reset_us BIGINT PATH '$.stats_reset_us'
)) AS c;

-- Functions of the views of 1.0.0.  Everybody could call them, and see who waits for
-- what.
DROP FUNCTION IF EXISTS dlock_may_see;
DROP FUNCTION IF EXISTS dlock_waiters_json;
DROP FUNCTION IF EXISTS dlock_stats_json;

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
-- Errors: 55L01 if the lease is not held, 25P01 outside a transaction, 22004,
-- 22023.
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
	DECLARE lease_slot INT UNSIGNED;
	SET lease_slot = dlock_guard_ticket(lease_name, lease_token);
	SET changed = 0;
	IF lease_slot IS NOT NULL THEN
		-- A join looks the row up by its key.  How an UPDATE of one table finds its
		-- rows depends on settings of the session, and it may lock all that there are.
		/*M!101108 SET STATEMENT innodb_snapshot_isolation = OFF FOR */
		UPDATE (SELECT 1 AS one) AS one
			STRAIGHT_JOIN dlock.lease_table AS l FORCE INDEX (PRIMARY)
		SET l.guards = l.guards + 1
		WHERE l.name = lease_name AND l.slot = lease_slot AND l.token = lease_token;
		SET changed = ROW_COUNT();
		IF changed = 0 THEN
			/*M!101108 SET STATEMENT innodb_snapshot_isolation = OFF FOR */
			UPDATE (SELECT 1 AS one) AS one
				STRAIGHT_JOIN dlock.lease_table AS l FORCE INDEX (PRIMARY)
			SET l.guards = l.guards + 1
			WHERE l.name = lease_name AND l.token = lease_token;
			SET changed = ROW_COUNT();
		END IF;
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
-- privilege, or (1396) if there is an account 'dlock_login'@'localhost' that is not
-- locked: that belongs to somebody else and must not get it.  All else is there then,
-- but init_connect and offline_mode are for the library as for others.
-- ---------------------------------------------------------------------

SET @dlock_statement = IF(@dlock_mariadb, 'DO 0',
	'SELECT COUNT(*) INTO @dlock_locked FROM mysql.user
	WHERE account_locked = ''Y'' AND User = ''dlock_login'' AND Host = ''localhost''');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = IF(@dlock_mariadb OR @dlock_locked > 0, 'DO 0',
	CONCAT('CREATE USER ',
		IF(EXISTS (
			SELECT * FROM information_schema.USER_PRIVILEGES
			WHERE GRANTEE = '''dlock_login''@''localhost'''), '', 'IF NOT EXISTS '),
		'''dlock_login''@''localhost'' IDENTIFIED WITH auth_socket ACCOUNT LOCK'));
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = IF(@dlock_mariadb, 'DO 0',
	'GRANT CONNECTION_ADMIN ON *.* TO ''dlock_login''@''localhost''');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = IF(@dlock_mariadb, 'DO 0',
	CONCAT('GRANT ''dlock_login''@''localhost'' TO ', @dlock_account));
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
-- beside the default roles that the account may have
SET @dlock_statement = IF(@dlock_mariadb, 'DO 0',
	'SELECT GROUP_CONCAT(CONCAT(QUOTE(DEFAULT_ROLE_USER), ''@'', QUOTE(DEFAULT_ROLE_HOST)))
	INTO @dlock_roles FROM mysql.default_roles
	WHERE USER = dlock_os_user() AND HOST = ''localhost''
		AND NOT (DEFAULT_ROLE_USER = ''dlock_login'' AND DEFAULT_ROLE_HOST = ''localhost'')');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = IF(@dlock_mariadb, 'DO 0',
	CONCAT('ALTER USER ', @dlock_account, ' DEFAULT ROLE ',
		CONCAT_WS(',', '''dlock_login''@''localhost''', @dlock_roles)));
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;

SET @dlock_connection_admin = @dlock_mariadb AND NOT EXISTS (
	SELECT * FROM information_schema.USER_PRIVILEGES
	WHERE GRANTEE = @dlock_account AND PRIVILEGE_TYPE = 'CONNECTION ADMIN');
SET @dlock_statement = IF(@dlock_connection_admin,
	CONCAT('GRANT CONNECTION ADMIN ON *.* TO ', @dlock_account), 'DO 0');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
UPDATE dlock.library_account SET connection_admin = TRUE
WHERE account = @dlock_account AND @dlock_connection_admin;
DEALLOCATE PREPARE dlock_statement;

SET SESSION sql_mode = @dlock_old_sql_mode, SESSION sql_safe_updates = @dlock_old_safe_updates,
	SESSION group_concat_max_len = @dlock_old_group_concat_max_len;
