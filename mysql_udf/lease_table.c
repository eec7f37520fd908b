/*
 * lease_table.c
 *	  The InnoDB lock table, over a loopback connection.
 *
 * A function must not change anything in its caller's transaction: the lease
 * would go with a rollback, and its row's lock would stay until the end.  So
 * the library is a client of its own server.  It logs in over the Unix socket,
 * as an account that only the server's own operating system user can use.
 *
 * One row is one holder.  (name, slot) is the key; the rows of a name use the
 * smallest slots there are, and slot 0 exists whenever any does.  Every change
 * to a name changes the row of slot 0, or touches it.  That makes slot 0 the
 * point where concurrent changes of a name on two servers of a cluster meet, so
 * that one of them is refused when it commits.
 *
 * Leases that this run has granted lately may be in the journal instead, see
 * lease_journal.c.
 *
 * The isolation is READ COMMITTED: nothing but the rows themselves is locked,
 * no gaps, so that names do not get into each other's way.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_table_parts.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* How often to look whether a connection that was lost has ended, and when. */
#define END_LOST_TRIES	200
#define END_LOST_PAUSE_NS	5000000

/* Errors of the server that mean "try again". */
#define ERROR_LOCK_WAIT_TIMEOUT			1205
#define ERROR_DEADLOCK					1213
#define ERROR_DUPLICATE					1062
#define ERROR_CONFLICT_AT_COMMIT		3101	/* Group Replication */
#define ERROR_RECORD_CHANGED			1020	/* MariaDB */
#define ERROR_NULL						1048	/* marks are others than believed */
#define ERROR_INTERRUPTED				1317	/* KILL QUERY */
#define ERROR_IN_COMMIT					1180	/* Group Replication, and others */
#define ERROR_REPREPARE					1615	/* the table has changed again */

/* KILL of a connection that has ended. */
#define ERROR_NO_SUCH_THREAD			1094

/* Errors that mean that the connection is gone; GONE: before we sent anything. */
#define ERROR_GONE						2006
#define ERROR_SHUTDOWN					1053
#define ERROR_KILLED					1927	/* MariaDB */
#define ERROR_LOCKED					3572	/* MySQL: NOWAIT */

lease_table *
lease_table_create(uint64_t writer)
{
	lease_table *table = calloc(1, sizeof(lease_table));

	if (table == NULL)
		return NULL;
	table->writer = writer;
	table->wire = -1;
	table->journal = lease_journal_create();
	if (table->journal == NULL)
		abort();
	return table;
}

bool
lease_table_is_connected(const lease_table *table)
{
	return table->connection != NULL;
}

/* Say whether nobody else could write the table when it was looked at last. */
bool
lease_table_is_alone(const lease_table *table)
{
	return table->alone;
}

/* Say whether the server was not to be written when it was looked at last. */
bool
lease_table_is_read_only(const lease_table *table)
{
	return table->read_only;
}

/* What the last LEASE_STATUS_FAILED, or failed connect, was about. */
const char *
lease_table_error(const lease_table *table, const char **sqlstate)
{
	*sqlstate = table->sqlstate;
	return table->error;
}

/* Say whether the last conflict was that the marks are not what they were. */
bool
lease_table_marks_differ(const lease_table *table)
{
	return table->marks_differ;
}

void
lease_table_disconnect(lease_table *table)
{
	lease_statements_free(table->statements);
	table->statements = NULL;
	if (table->connection != NULL)
	{
		mysql_close(table->connection);
		lease_table_interrupt(table);	/* for the server to see the end */
	}
	table->connection = NULL;
	table->in_transaction = false;
}

/* Say whether its connection, if it has one, could be cut. */
bool
lease_table_can_be_interrupted(const lease_table *table)
{
	return table->wire >= 0;
}

/*
 * Cut the connection, so that a statement that another thread waits for fails
 * there.  The descriptor is our own, which is only replaced when the batcher
 * connects: that of the client library it may close at any time, and the number be
 * somebody else's then.
 */
void
lease_table_interrupt(const lease_table *table)
{
	if (table->wire >= 0)
		shutdown(table->wire, SHUT_RDWR);
}

static void
remember_error(lease_table *table, const char *what)
{
	snprintf(table->sqlstate, sizeof(table->sqlstate), "%s",
			 mysql_sqlstate(table->connection));
	snprintf(table->error, sizeof(table->error), "%s: %s", what,
			 mysql_error(table->connection));
}

/* What the error of the last statement means; the transaction is over. */
lease_status
lease_table_failed(lease_table *table)
{
	unsigned int code = mysql_errno(table->connection);

	remember_error(table, "could not use the lock table");
	table->marks_differ = code == ERROR_NULL;

	/* what was written may be, or what was to be moved is not what it was */
	if (table->sends_journal || table->moves_journal ||
		(table->alone && table->ninserts > 0 && code != ERROR_DUPLICATE))
		lease_table_forget_journal(table);
	if ((code >= 2000 && code < 3000) || code == ERROR_SHUTDOWN ||
		code == ERROR_KILLED)
	{
		if (code != ERROR_GONE && table->lost_id == 0)
			table->lost_id = mysql_thread_id(table->connection);
		lease_table_disconnect(table);
		lease_table_forget_changes(table);
		lease_table_forget_journal(table);
		return code == ERROR_GONE ? LEASE_STATUS_CONFLICT :
			LEASE_STATUS_LOST;
	}
	lease_table_rollback(table);
	switch (code)
	{
		case ERROR_LOCK_WAIT_TIMEOUT:
		case ERROR_DEADLOCK:
		case ERROR_DUPLICATE:
		case ERROR_CONFLICT_AT_COMMIT:
		case ERROR_RECORD_CHANGED:
		case ERROR_NULL:
		case ERROR_INTERRUPTED:
		case ERROR_LOCKED:
		case ERROR_REPREPARE:
			return LEASE_STATUS_CONFLICT;
		case ERROR_IN_COMMIT:
			/* a change of another member's has rolled ours back */
			return strstr(table->error, "error 149 ") != NULL ?
				LEASE_STATUS_CONFLICT : LEASE_STATUS_FAILED;
		default:
			return LEASE_STATUS_FAILED;
	}
}

/* Execute statements without an answer. */
lease_status
lease_table_execute(lease_table *table, const char *query, size_t length)
{
	int			more;

	if (mysql_real_query(table->connection, query, length) != 0)
		return lease_table_failed(table);
	while ((more = mysql_next_result(table->connection)) == 0)
		;
	return more > 0 ? lease_table_failed(table) : LEASE_STATUS_OK;
}

/*
 * Execute statements of a transaction, with a semicolon between them, which no
 * literal has: is_plain().
 *
 * A Galera node gets them one by one.  It may have to roll a transaction back for
 * another node's that was certified before.  If that happens at the end of one of
 * several statements that were sent together, the node goes on with the next: for
 * wsrep_mysql_parse(), in MariaDB's sql/sql_parse.cc, makes an error of it only if
 * the statement was a transaction of its own.  Those that follow are, and take
 * effect, some twice; and what is reported of all is a deadlock, or nothing.
 *
 * SELECTs are sent together all the same: they change nothing, and as they are not
 * repeated, one of them ends in an error.
 *
 * Each answer tells whether there is still a transaction.  If there was none, nobody
 * would know what has taken effect.
 */
lease_status
lease_table_execute_all(lease_table *table, const lease_text *query)
{
	const char *statement = query->data;
	lease_status status = LEASE_STATUS_OK;

	if (!table->in_galera)
		return lease_table_execute(table, query->data, query->length);
	while (status == LEASE_STATUS_OK && *statement != '\0')
	{
		size_t		length = strcspn(statement, ";");

		if (!(table->connection->server_status & SERVER_STATUS_IN_TRANS))
		{
			lease_table_rollback(table);
			return LEASE_STATUS_LOST;
		}
		status = lease_table_execute(table, statement, length);
		statement += length + (statement[length] == ';');
	}
	return status;
}

/* Begin a transaction. */
lease_status
lease_table_begin(lease_table *table)
{
	static const char query[] = "START TRANSACTION";

	table->in_transaction = true;
	return lease_table_execute(table, query, strlen(query));
}

/* Give up, with an error that is not the server's. */
lease_status
lease_table_give_up(lease_table *table, lease_status status,
					const char *sqlstate, const char *message)
{
	lease_table_rollback(table);
	table->marks_differ = false;
	snprintf(table->sqlstate, sizeof(table->sqlstate), "%s", sqlstate);
	snprintf(table->error, sizeof(table->error), "%s", message);
	return status;
}

/* Another run, or whoever has restored the table, has changed the journal. */
lease_status
lease_table_fail_for_change(lease_table *table)
{
	lease_table_forget_journal(table);
	lease_table_give_up(table, LEASE_STATUS_CONFLICT, "40001",
						"could not use the lock table: somebody else has changed it");
	table->marks_differ = true;
	return LEASE_STATUS_CONFLICT;
}

/* The name of the server's user in the operating system; "" if it has none. */
static void
get_os_user(char *name, size_t size)
{
	char		room[4096];
	struct passwd entry;
	struct passwd *found;

	name[0] = '\0';
	if (getpwuid_r(geteuid(), &entry, room, sizeof(room), &found) == 0 &&
		found != NULL)
		snprintf(name, size, "%s", found->pw_name);
}

/*
 * See to it that what was lost does not go on.  A server that has not noticed
 * that we are gone, or that was killed in a commit, would change rows when we
 * have read them.
 */
static lease_status
end_lost(lease_table *table)
{
	const struct timespec pause = {.tv_nsec = END_LOST_PAUSE_NS};
	char		query[40];
	size_t		length = (size_t) sprintf(query, "KILL %lu", table->lost_id);

	for (int i = 0; table->lost_id != 0 && i < END_LOST_TRIES; i++)
	{
		if (mysql_real_query(table->connection, query, length) == 0)
			nanosleep(&pause, NULL);	/* it was still there */
		else if (mysql_errno(table->connection) == ERROR_NO_SUCH_THREAD)
			table->lost_id = 0;
		else
			return lease_table_failed(table);
	}
	if (table->lost_id == 0)
		return LEASE_STATUS_OK;
	snprintf(table->sqlstate, sizeof(table->sqlstate), "55000");
	snprintf(table->error, sizeof(table->error),
			 "could not use the lock table: a statement of the connection that was lost goes on");
	return LEASE_STATUS_CONFLICT;
}

/*
 * Log in, as the account of the server's own user, see install.sql.  What a
 * server does not know of the session's settings is left out.
 */
lease_status
lease_table_connect(lease_table *table)
{
	static const char *const needed[] = {
		"SET SESSION sql_mode = 'STRICT_ALL_TABLES'",
		"SET SESSION autocommit = 1",
		"SET SESSION completion_type = 0",
		"SET SESSION sql_select_limit = 18446744073709551615",
		"SET SESSION sql_safe_updates = 0",
		"SET SESSION sql_big_selects = 1",
		"SET SESSION wait_timeout = 31536000",
		"SET SESSION unique_checks = 1",
		"SET SESSION TRANSACTION READ WRITE",
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		/* somebody may have locked the table or a row; we try again */
		"SET SESSION innodb_lock_wait_timeout = 1",
		"SET SESSION lock_wait_timeout = 1",
	};
	static const char *const optional[] = {
		/* MariaDB with Galera: see what the other nodes have committed */
		"SET SESSION wsrep_sync_wait = 15",
		/* MySQL with Group Replication: the same */
		"SET SESSION group_replication_consistency = 'BEFORE'",
		"SET SESSION binlog_format = 'ROW'",
		/* MariaDB: a long list of names is to be looked up in the index, too */
		"SET SESSION in_predicate_conversion_threshold = 0",
		/* MariaDB, MySQL: a limit that is meant for others */
		"SET SESSION max_statement_time = 0",
		"SET SESSION max_execution_time = 0",
		/* MySQL: of a role that was needed to be let in; see install.sql */
		"/*!80000 SET ROLE NONE */",
	};
	unsigned int timeout = LEASE_TABLE_TIMEOUT;
	unsigned int protocol = MYSQL_PROTOCOL_SOCKET;
	char		user[256];
	bool		read_only;
	bool		clustered;
	lease_status status;

	lease_table_disconnect(table);
	table->connection = mysql_init(NULL);
	if (table->connection == NULL)
	{
		snprintf(table->sqlstate, sizeof(table->sqlstate), "HY001");
		snprintf(table->error, sizeof(table->error), "out of memory");
		return LEASE_STATUS_FAILED;
	}
	mysql_options(table->connection, MYSQL_OPT_PROTOCOL, &protocol);
	mysql_options(table->connection, MYSQL_OPT_CONNECT_TIMEOUT, &timeout);
	mysql_options(table->connection, MYSQL_OPT_READ_TIMEOUT, &timeout);
	mysql_options(table->connection, MYSQL_OPT_WRITE_TIMEOUT, &timeout);
	get_os_user(user, sizeof(user));
	if (mysql_real_connect(table->connection, NULL, user, NULL, NULL, 0,
						   dlock_server_socket(), CLIENT_MULTI_STATEMENTS) == NULL)
	{
		remember_error(table, "could not connect to the server by its socket");
		lease_table_disconnect(table);
		return LEASE_STATUS_FAILED;
	}
	if (table->wire >= 0)
		close(table->wire);
	table->wire = fcntl(table->connection->net.fd, F_DUPFD_CLOEXEC, 0);
	status = end_lost(table);
	if (status != LEASE_STATUS_OK)
	{
		lease_table_disconnect(table);
		return status;
	}
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
	{
		if (lease_table_execute(table, needed[i], strlen(needed[i])) != LEASE_STATUS_OK)
		{
			lease_table_disconnect(table);
			return LEASE_STATUS_FAILED;
		}
	}
	for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
		if (mysql_query(table->connection, optional[i]) == 0)
			while (mysql_next_result(table->connection) == 0)
				;
	table->in_transaction = false;
	table->statements = lease_statements_create(table->connection,
												table->writer);
	return lease_table_look(table, &read_only, &clustered);
}

/*
 * Look whether the server may be written, and whether others may write the same
 * table at the same time.
 */
lease_status
lease_table_look(lease_table *table, bool *read_only, bool *clustered)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;

	*read_only = *clustered = false;
	if (mysql_query(table->connection, "SHOW GLOBAL VARIABLES WHERE"
					" Variable_name IN ('read_only', 'wsrep_provider',"
					" 'group_replication_group_name')") != 0 ||
		(result = mysql_store_result(table->connection)) == NULL)
		return lease_table_failed(table);
	table->in_galera = false;
	while ((columns = mysql_fetch_row(result)) != NULL)
		if (strcmp(columns[0], "read_only") == 0)
			*read_only = strcmp(columns[1], "OFF") != 0 &&
				strcmp(columns[1], "0") != 0;
		else if (strcmp(columns[0], "wsrep_provider") == 0)
			*clustered = table->in_galera = columns[1][0] != '\0' &&
				strcmp(columns[1], "none") != 0;
		else
			*clustered = true;	/* Group Replication is loaded */
	mysql_free_result(result);
	table->alone = !*clustered;
	table->read_only = *read_only;
	return LEASE_STATUS_OK;
}

/* Visit the settings that have a value. */
lease_status
lease_table_visit_settings(lease_table *table, lease_setting_visitor visitor,
						   void *context)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;

	if (mysql_query(table->connection,
					"SELECT name, value FROM dlock.settings") != 0 ||
		(result = mysql_store_result(table->connection)) == NULL)
		return lease_table_failed(table);
	while ((columns = mysql_fetch_row(result)) != NULL)
		if (columns[0] != NULL && columns[1] != NULL)
			visitor(columns[0], columns[1], context);
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}

void
lease_table_rollback(lease_table *table)
{
	if (table->connection != NULL && table->in_transaction &&
		mysql_query(table->connection, "ROLLBACK") != 0)
		lease_table_disconnect(table);
	table->in_transaction = false;
	lease_table_forget_changes(table);
}

/* The server is not to be written. */
lease_status
lease_table_refuse(lease_table *table)
{
	return lease_table_give_up(table, LEASE_STATUS_FAILED, "25006",
							   "could not use the lock table: the server is read-only");
}

/*
 * A server that is read-only lets those write all the same who have the
 * privilege, as the account that we log in as does by default on MariaDB.  So
 * this is ours to refuse.
 */
lease_status
lease_table_refuse_if_read_only(lease_table *table)
{
	bool		read_only;
	bool		clustered;
	lease_status status;

	if (!table->read_only)
		return LEASE_STATUS_OK;
	status = lease_table_look(table, &read_only, &clustered);
	return status == LEASE_STATUS_OK && read_only ?
		lease_table_refuse(table) : status;
}

/* Say whether the account has the privilege to see all connections. */
static bool
may_see_connections(lease_table *table)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;
	bool		may = false;

	if (mysql_query(table->connection, "SHOW GRANTS") != 0 ||
		(result = mysql_store_result(table->connection)) == NULL)
		return false;
	while ((columns = mysql_fetch_row(result)) != NULL)
	{
		const char *on = strstr(columns[0], " ON *.* ");

		if (on == NULL)
			continue;
		*(char *) on = '\0';
		may |= strstr(columns[0], "PROCESS") != NULL ||
			strstr(columns[0], "ALL PRIVILEGES") != NULL;
	}
	mysql_free_result(result);
	return may;
}

/* Without the privilege the server would show us our own, and no error. */
lease_status
lease_table_visit_connections(lease_table *table,
							  lease_connection_visitor visit, void *context)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;

	if (!may_see_connections(table))
		return LEASE_STATUS_FAILED;
	if (mysql_query(table->connection,
					"SELECT ID FROM information_schema.PROCESSLIST") != 0 ||
		(result = mysql_store_result(table->connection)) == NULL)
		return lease_table_failed(table);
	while ((columns = mysql_fetch_row(result)) != NULL)
		visit(strtoull(columns[0], NULL, 10), context);
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}
