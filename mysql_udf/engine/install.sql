-- engine/install.sql: what the engine of the log has instead of the lock table and the
-- journal.  Feed it after ../install.sql and ../log/log.sql.
--
-- SPDX-License-Identifier: PostgreSQL

DROP TABLE IF EXISTS dlock.lease_table, dlock.journal, dlock.journal_head, dlock.lease_mark;

INSERT IGNORE INTO dlock.settings (name, value, description) VALUES
	('write_on_replicas', '0', 'whether leases are granted where changes of another server are applied: 1, for two sources of which one is used at a time, or 0');

-- MySQL: what the library asks of its server.  On MariaDB any account may see that.
SET @dlock_mariadb = @@version LIKE '%MariaDB%';
SET @dlock_statement = IF(@dlock_mariadb, 'DO 0',
	'GRANT SELECT ON performance_schema.replication_group_members TO ''dlock''@''localhost''');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = IF(@dlock_mariadb, 'DO 0',
	'GRANT SELECT ON performance_schema.replication_group_member_stats TO ''dlock''@''localhost''');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;
SET @dlock_statement = IF(@dlock_mariadb, 'DO 0',
	'CREATE OR REPLACE DEFINER = ''dlock''@''localhost'' SQL SECURITY DEFINER
	VIEW dlock.server AS
	SELECT '''' AS member, ''appliers'' AS what, CAST(COUNT(*) AS CHAR) AS value
	FROM performance_schema.replication_applier_status
	WHERE SERVICE_STATE = ''ON'' AND LEFT(CHANNEL_NAME, 18) <> ''group_replication_''
	UNION ALL
	SELECT MEMBER_ID, ''state'', MEMBER_STATE FROM performance_schema.replication_group_members
	UNION ALL
	SELECT MEMBER_ID, ''role'', MEMBER_ROLE FROM performance_schema.replication_group_members
	UNION ALL
	SELECT MEMBER_ID, ''view'', VIEW_ID FROM performance_schema.replication_group_member_stats');
PREPARE dlock_statement FROM @dlock_statement;
EXECUTE dlock_statement;

-- The guards: each has locked its row.
CREATE TABLE IF NOT EXISTS dlock.guards (
	number BIGINT UNSIGNED NOT NULL PRIMARY KEY,
	token BIGINT UNSIGNED NOT NULL
		COMMENT 'of the lease',
	changes BIGINT UNSIGNED NOT NULL DEFAULT 0
		COMMENT 'by dlock.guard()'
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
	COMMENT='transactions that guard leases';

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
		-- A join looks the row up by its key.  How an UPDATE of one table finds its
		-- rows depends on settings of the session, and it may lock all that there are.
		/*M!101108 SET STATEMENT innodb_snapshot_isolation = OFF FOR */
		UPDATE (SELECT 1 AS one) AS one
			STRAIGHT_JOIN dlock.guards AS g FORCE INDEX (PRIMARY)
		SET g.changes = g.changes + 1
		WHERE g.number = guard_number;
		SET changed = ROW_COUNT();
	END IF;
END//
DELIMITER ;

-- All leases, as the library has them.  Let nobody else read it, for it masks nothing.
CREATE OR REPLACE DEFINER = 'dlock'@'localhost' SQL SECURITY INVOKER
VIEW dlock.lease_state AS
SELECT
	UNHEX(l.name_hex) AS name, UNHEX(l.owner_hex) AS owner,
	UNHEX(l.user_hex) AS account_user, UNHEX(l.host_hex) AS account_host,
	l.mode, l.kind, l.version, l.token, l.ttl_us, l.connection_id, l.acquired_us,
	l.expires_us
FROM (SELECT dlock.all_unwritten() AS json LIMIT 1) AS j,
JSON_TABLE(j.json, '$[*]' COLUMNS (
	name_hex VARCHAR(510) CHARACTER SET ascii PATH '$.name',
	owner_hex VARCHAR(510) CHARACTER SET ascii PATH '$.owner',
	user_hex VARCHAR(1024) CHARACTER SET ascii PATH '$.user',
	host_hex VARCHAR(510) CHARACTER SET ascii PATH '$.host',
	mode INT PATH '$.mode',
	kind INT PATH '$.kind',
	version BIGINT PATH '$.version',
	token BIGINT UNSIGNED PATH '$.token',
	ttl_us BIGINT PATH '$.ttl_us',
	connection_id BIGINT UNSIGNED PATH '$.connection_id',
	acquired_us BIGINT PATH '$.acquired_us',
	expires_us BIGINT PATH '$.expires_us'
)) AS l;
