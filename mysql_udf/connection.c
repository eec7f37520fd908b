/*
 * connection.c
 *	  The library's connection to its own server.
 *
 * A function must not change anything in its caller's transaction: a rollback would undo
 * the lease, and its row would stay locked until the end.  So the library is a client of
 * its own server.  It logs in over the Unix socket, as an account that only the server's
 * own operating system user can use.
 *
 * The isolation is READ COMMITTED: only rows are locked, no gaps, so that names do not
 * get into each other's way.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "connection.h"

#include <fcntl.h>
#ifdef LIBMARIADB
#include <mysql/plugin_auth.h>
#endif
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "mysql_compat.h"

/* How often, and after which pause, to check whether a lost connection has ended. */
#define END_LOST_TRIES	10
#define END_LOST_PAUSE_NS	5000000

/* KILL of a connection that has ended. */
#define ERROR_NO_SUCH_THREAD	1094

/* The connection is gone; ERROR_GONE: it was before the statement was sent. */
#define ERROR_GONE				2006
#define ERROR_SHUTDOWN			1053
#define ERROR_KILLED			1927	/* MariaDB */

#define ERROR_NO_TABLE			1146
#define ERROR_IN_COMMIT			1180	/* Group Replication, and others */
#define ERROR_EXPELLED			3796	/* Group Replication: nobody to wait for */

/* What other errors of the server mean. */
typedef enum error_kind
{
	ERROR_OTHER,
	ERROR_REFUSAL,				/* the server may only be read */
	ERROR_MISSING,				/* there is no such database, table or column */
	ERROR_FULL,					/* there is no room */
	ERROR_LOCKED,				/* a lock was waited for in vain: try again */
	ERROR_CONFLICT,				/* try again */
	ERROR_FENCED				/* a mark is no longer what was read */
} error_kind;

static const struct
{
	unsigned int code;
	error_kind	kind;
}			errors[] = {
	{1036, ERROR_REFUSAL},		/* of a table; MariaDB's innodb_read_only */
	{1290, ERROR_REFUSAL},		/* read_only, super_read_only */
	{1792, ERROR_REFUSAL},		/* of a transaction */
	{1836, ERROR_REFUSAL},		/* InnoDB is read-only: its version differs */
	{1874, ERROR_REFUSAL},		/* innodb_read_only */
	{ERROR_EXPELLED, ERROR_REFUSAL},
	{3989, ERROR_REFUSAL},		/* MySQL: the database dlock is read-only */
	{4219, ERROR_REFUSAL},		/* MariaDB: the whole server is read-only */
	{ERROR_NO_TABLE, ERROR_MISSING},
	{1054, ERROR_MISSING},		/* no such column */
	{1049, ERROR_MISSING},		/* no such database */
	{1114, ERROR_FULL},			/* of a table */
	{1021, ERROR_FULL},			/* of a disk */
	{1205, ERROR_LOCKED},
	{1213, ERROR_CONFLICT},		/* a deadlock */
	{1062, ERROR_CONFLICT},		/* a duplicate key */
	{3101, ERROR_CONFLICT},		/* Group Replication, at commit */
	{1020, ERROR_CONFLICT},		/* MariaDB: the row has changed */
	{1317, ERROR_CONFLICT},		/* KILL QUERY */
	{3572, ERROR_CONFLICT},		/* MySQL: NOWAIT */
	{1615, ERROR_CONFLICT},		/* the table has changed again */
	{1048, ERROR_FENCED}		/* NULL */
};

static void
disconnect(connection *c)
{
	if (c->append != NULL)
		mysql_stmt_close(c->append);
	c->append = NULL;
	if (c->mysql != NULL)
	{
		mysql_close(c->mysql);
		connection_interrupt(c);	/* our descriptor keeps the socket open */
	}
	c->mysql = NULL;
	c->in_transaction = false;
}

/* Say whether connection_interrupt() could cut the connection. */
bool
connection_can_be_interrupted(const connection *c)
{
	return c->wire >= 0;
}

/*
 * Cut the connection: the statement that another thread waits for fails.  We have a
 * descriptor of our own, which is only replaced when the batcher connects.  The client
 * library may close its own at any time, and then its number may be another file's.
 */
void
connection_interrupt(const connection *c)
{
	if (c->wire >= 0)
		shutdown(c->wire, SHUT_RDWR);
}

/* Remember an error.  The client library may say that there is one, and not which. */
static void
remember_error(connection *c, const char *what, const char *sqlstate,
			   const char *error)
{
	snprintf(c->sqlstate, sizeof(c->sqlstate), "%s",
			 strcmp(sqlstate, "00000") == 0 ? "HY000" : sqlstate);
	snprintf(c->error, sizeof(c->error), "%s: %s", what,
			 *error == '\0' ? "unknown error" : error);
}

static error_kind
kind_of(unsigned int code)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (code == errors[i].code)
			return errors[i].kind;
	return ERROR_OTHER;
}

/* Note an error: what it means.  The transaction is over. */
static lease_status
note_error(connection *c, unsigned int code, const char *sqlstate,
		   const char *error)
{
	error_kind	kind = kind_of(code);

	remember_error(c, "could not use the lock table", sqlstate, error);
	c->is_refusal = kind == ERROR_REFUSAL;
	c->is_expelled = code == ERROR_EXPELLED;
	c->is_missing = kind == ERROR_MISSING;
	c->is_full = kind == ERROR_FULL;
	c->is_locked = kind == ERROR_LOCKED;
	c->is_shut = false;
	if (c->is_refusal)
		strcpy(c->sqlstate, "25006");
	if (c->is_locked)
		strcpy(c->sqlstate, "55P03");
	if ((code >= 2000 && code < 3000) || code == ERROR_SHUTDOWN ||
		code == ERROR_KILLED)
	{
		if (code != ERROR_GONE && c->lost_id == 0)
			c->lost_id = mysql_thread_id(c->mysql);
		disconnect(c);
		return code == ERROR_GONE ? LEASE_STATUS_CONFLICT :
			LEASE_STATUS_LOST;
	}
	connection_rollback(c);
	if (kind == ERROR_FENCED)
		return LEASE_STATUS_FENCED;
	/* the change of another member has rolled ours back */
	if (code == ERROR_IN_COMMIT && strstr(c->error, "error 149 ") != NULL)
		return LEASE_STATUS_CONFLICT;
	return kind == ERROR_LOCKED || kind == ERROR_CONFLICT ?
		LEASE_STATUS_CONFLICT : LEASE_STATUS_FAILED;
}

/* Note the error of the last statement that was sent as text. */
lease_status
connection_failed(connection *c)
{
	return note_error(c, mysql_errno(c->mysql), mysql_sqlstate(c->mysql),
					  mysql_error(c->mysql));
}

/*
 * The same of the prepared statement, which is closed.  The client library may note an
 * error that it finds itself for the statement alone.
 */
lease_status
connection_append_failed(connection *c)
{
	lease_status status = mysql_stmt_errno(c->append) == 0 ?
		connection_failed(c) :
		note_error(c, mysql_stmt_errno(c->append),
				   mysql_stmt_sqlstate(c->append),
				   mysql_stmt_error(c->append));

	/* only now: that clears the error; and a lost connection has closed it already */
	if (c->append != NULL)
		mysql_stmt_close(c->append);
	c->append = NULL;
	return status;
}

/* Give up: the connection was closed, maybe when a transaction was rolled back. */
lease_status
connection_closed(connection *c)
{
	return connection_give_up(c, LEASE_STATUS_CONFLICT, "08003",
							  "could not use the lock table: the connection to it was lost");
}

/* Execute a statement that has no answer. */
static lease_status
execute(connection *c, const char *query)
{
	if (c->mysql == NULL)
		return connection_closed(c);
	return mysql_query(c->mysql, query) == 0 ? LEASE_STATUS_OK :
		connection_failed(c);
}

/*
 * Send statements together, none of which changes a table, and drop their answers.  *done
 * becomes how many have succeeded.
 */
lease_status
connection_execute_all(connection *c, lease_text *statements, size_t *done)
{
	lease_status status = LEASE_STATUS_OK;
	int			more;

	*done = 0;
	if (statements->failed)
		status = connection_no_memory(c);
	else if (c->mysql == NULL)
		status = connection_closed(c);
	else
	{
		more = mysql_real_query(c->mysql, statements->data, statements->length);
		for (; more == 0; ++*done)
		{
			mysql_free_result(mysql_store_result(c->mysql));
			more = mysql_next_result(c->mysql);
		}
		if (more > 0)
			status = connection_failed(c);
	}
	lease_text_free(statements);
	return status;
}

/*
 * The same as execute() for a statement of a transaction.
 *
 * A Galera node may have to roll a transaction back for another node's that was certified
 * before.  The next statement would then be a transaction of its own.  Each answer tells
 * whether there is still a transaction.  If there is none, nobody knows what has taken
 * effect.  For the same reason statements that change something are never sent together:
 * the node goes on with the second if the first was rolled back (wsrep_mysql_parse() in
 * MariaDB's sql/sql_parse.cc).
 */
static lease_status
execute_inside(connection *c, const char *query)
{
	if (c->in_galera && c->mysql != NULL &&
		!(c->mysql->server_status & SERVER_STATUS_IN_TRANS))
	{
		connection_rollback(c);
		return LEASE_STATUS_LOST;
	}
	return execute(c, query);
}

/* Execute a statement of the transaction under way. */
lease_status
connection_execute(connection *c, const lease_text *statement)
{
	return statement->failed ? connection_no_memory(c) :
		execute_inside(c, statement->data);
}

/* Begin a transaction. */
lease_status
connection_begin(connection *c)
{
	c->in_transaction = true;
	return execute(c, "START TRANSACTION");
}

/* Give up, with an error that is not the server's. */
lease_status
connection_give_up(connection *c, lease_status status,
				   const char *sqlstate, const char *message)
{
	connection_rollback(c);
	c->is_refusal = strcmp(sqlstate, "25006") == 0;
	c->is_expelled = c->is_missing = c->is_full = c->is_locked = c->is_shut = false;
	snprintf(c->sqlstate, sizeof(c->sqlstate), "%s", sqlstate);
	snprintf(c->error, sizeof(c->error), "%s", message);
	return status;
}

/* Give up: there is not enough memory for a statement, or an answer. */
lease_status
connection_no_memory(connection *c)
{
	return connection_give_up(c, LEASE_STATUS_FAILED, "53200",
							  "out of memory");
}

/* Give up: another run has written, or an operator has edited the tables. */
lease_status
connection_edited(connection *c)
{
	return connection_give_up(c, LEASE_STATUS_FENCED, "40001",
							  "could not use the lock table: somebody else has changed it");
}

/*
 * Send a query, and get its answer, or the first of its answers.  The text of the query
 * is freed.
 */
lease_status
connection_query(connection *c, lease_text *query, MYSQL_RES **result)
{
	lease_status status = LEASE_STATUS_OK;

	*result = NULL;
	if (query->failed)
		status = connection_no_memory(c);
	else if (c->mysql == NULL)
		status = connection_closed(c);
	else if (mysql_real_query(c->mysql, query->data, query->length) != 0 ||
			 (*result = mysql_store_result(c->mysql)) == NULL)
		status = connection_failed(c);
	lease_text_free(query);
	return status;
}

/* Get the next answer. */
lease_status
connection_next(connection *c, MYSQL_RES **result)
{
	*result = NULL;
	if (mysql_next_result(c->mysql) != 0 ||
		(*result = mysql_store_result(c->mysql)) == NULL)
		return connection_failed(c);
	return LEASE_STATUS_OK;
}

/* The rows that a query of ours answers; NULL if it fails. */
static MYSQL_RES *
fetch(connection *c, const char *query)
{
	return mysql_query(c->mysql, query) == 0 ? mysql_store_result(c->mysql) :
		NULL;
}

/*
 * Check whether the server shows that the connection that was lost executes a statement,
 * or commits one.
 */
static lease_status
is_at_work(connection *c, bool *at_work)
{
	char		query[120];
	MYSQL_RES  *result;

	sprintf(query, "SELECT 1 FROM information_schema.PROCESSLIST"
			" WHERE ID = %lu AND COMMAND <> 'Sleep'", c->lost_id);
	result = fetch(c, query);
	if (result == NULL)
		return connection_failed(c);
	*at_work = mysql_num_rows(result) > 0;
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}

/*
 * See that the connection that was lost has ended: LEASE_STATUS_CONFLICT if it still goes
 * on.  A server that has not noticed its end, or a commit that was killed, could still
 * change rows after we have read them.
 *
 * Only KILL tells for sure, since the server shows no connection whose socket is closed.
 * But a statement at work is left alone: it ends by itself, since it waits for a lock for
 * a second at most.  And a commit must not be killed: MySQL shuts down if the commit waits
 * for room for the binary log (binlog_error_action).
 */
lease_status
connection_end_lost(connection *c)
{
	const struct timespec pause = {.tv_nsec = END_LOST_PAUSE_NS};
	char		query[40];
	size_t		length = (size_t) sprintf(query, "KILL %lu", c->lost_id);

	for (int i = 0; c->lost_id != 0 && i < END_LOST_TRIES; i++)
	{
		bool		at_work = false;
		lease_status status = is_at_work(c, &at_work);

		if (status != LEASE_STATUS_OK)
			return status;
		if (at_work || mysql_real_query(c->mysql, query, length) == 0)
			nanosleep(&pause, NULL);	/* it was still there */
		else if (mysql_errno(c->mysql) == ERROR_NO_SUCH_THREAD)
			c->lost_id = 0;
		else
			return connection_failed(c);
	}
	if (c->lost_id == 0)
		return LEASE_STATUS_OK;
	return connection_give_up(c, LEASE_STATUS_CONFLICT, "55000",
							  "could not use the lock table: a statement of the connection that was lost goes on");
}

/* The settings of its session that the library needs. */
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
	/*
	 * All that we send is ASCII.  The server escapes what a row of the journal says,
	 * for its logs, which takes it several times as long where a character may have
	 * several bytes.
	 */
	"SET SESSION character_set_client = ascii, character_set_connection = ascii",
	/* the table or a row may be locked; we try again */
	"SET SESSION innodb_lock_wait_timeout = 1",
	"SET SESSION lock_wait_timeout = 1",
};

/* Settings that a server may not have. */
static const char *const optional[] = {
	/* MariaDB with Galera: wait for other nodes only in table_catch_up() */
	"SET SESSION wsrep_sync_wait = 0",
	/* MySQL with Group Replication: the same */
	"SET SESSION group_replication_consistency = 'EVENTUAL'",
	"SET SESSION binlog_format = 'ROW'",
	/* MariaDB: a long list of names is to be looked up in the index, too */
	"SET SESSION in_predicate_conversion_threshold = 0",
	/* MySQL, MariaDB: the same, however much memory it takes */
	"SET SESSION range_optimizer_max_mem_size = 0",
	"SET SESSION optimizer_max_sel_arg_weight = 0",
	/* MariaDB, MySQL: limits that are meant for users' statements */
	"SET SESSION max_session_mem_used = 9223372036854775807",
	"SET SESSION max_statement_time = 0",
	"SET SESSION max_execution_time = 0",
	/* errors go into ours, and some are told apart by their text */
	"SET SESSION lc_messages = 'en_US'",
	/* MySQL: the account needed a role only to log in; see install.sql */
	"/*!80000 SET ROLE NONE */",
};

#ifdef LIBMARIADB
/*
 * How to log in to a MySQL: say who we are, and nothing else, because the server asks the
 * operating system.  MariaDB's library begins with the method that the server prefers for
 * passwords.  For MySQL's method it needs a file, which conflicts with Debian's MySQL and
 * is missing elsewhere.  Without the file it sends a packet that MySQL does not expect.
 */
static int
send_name(MYSQL_PLUGIN_VIO *vio, MYSQL *mysql)
{
	return vio->write_packet(vio, (const unsigned char *) "", 0) ? CR_ERROR : CR_OK;
}

/* A plugin of the client library.  Its header cannot be used: it includes one we lack. */
static struct
{
	int			type;
	unsigned int interface_version;
	const char *name;
	const char *author;
	const char *description;
	unsigned int version[3];
	const char *license;
	void	   *mysql_api;
	int			(*init) (char *, size_t, int, va_list);
	int			(*deinit) (void);
	int			(*options) (const char *, const void *);
	int			(*authenticate_user) (MYSQL_PLUGIN_VIO *vio, MYSQL *mysql);
}			login_plugin =
{
	.type = 2,					/* authentication */
	.interface_version = 0x0100,
	.name = "dlock_socket",
	.license = "PostgreSQL",
	.authenticate_user = send_name
};

static pthread_once_t login_once = PTHREAD_ONCE_INIT;

static void
register_login(void)
{
	MYSQL	   *mysql = mysql_init(NULL);

	if (mysql == NULL)
		return;
	mysql_client_register_plugin(mysql, (struct st_mysql_client_plugin *) &login_plugin);
	mysql_close(mysql);
}

/* Have a connection to MySQL log in in this way. */
static void
choose_login(MYSQL *mysql)
{
	if (dlock_server_kind() != DLOCK_SERVER_MYSQL)
		return;
	pthread_once(&login_once, register_login);
	mysql_options(mysql, MYSQL_DEFAULT_AUTH, login_plugin.name);
}
#else
/* MySQL's own library has what it needs inside. */
static void
choose_login(MYSQL *mysql)
{
	(void) mysql;
}
#endif

/*
 * Check that the server that has let us in is our own: another one may have put its socket
 * in the place of ours.  No two servers that run have the same data directory.
 */
static lease_status
check_is_own(connection *c)
{
	/* as bytes, whatever the session's character set */
	MYSQL_RES  *result = fetch(c, "SELECT CAST(@@datadir AS BINARY)");
	MYSQL_ROW	columns;
	bool		is_own;

	if (result == NULL)
		return connection_failed(c);
	columns = mysql_fetch_row(result);
	is_own = columns != NULL && columns[0] != NULL &&
		dlock_server_has_data_in(columns[0]);
	mysql_free_result(result);
	return is_own ? LEASE_STATUS_OK :
		connection_give_up(c, LEASE_STATUS_FAILED, "08001",
						   "could not connect to the server by its socket: another server listens there");
}

/*
 * Log in, as the account of the server's own user, see install.sql.  A statement of a
 * connection that was lost may still go on: see connection_end_lost().
 */
lease_status
connection_open(connection *c)
{
	unsigned int timeout = CONNECTION_TIMEOUT;
	unsigned int protocol = MYSQL_PROTOCOL_SOCKET;
	const char *path = dlock_server_socket();
	char		user[256];
	lease_status status;

	disconnect(c);
	/* the client library would go to where some other server may listen */
	if (path == NULL)
		return connection_give_up(c, LEASE_STATUS_FAILED, "08001",
								  "could not connect to the server by its socket: it has none");
	c->mysql = mysql_init(NULL);
	if (c->mysql == NULL)
		return connection_no_memory(c);
	mysql_options(c->mysql, MYSQL_OPT_PROTOCOL, &protocol);
	mysql_options(c->mysql, MYSQL_OPT_CONNECT_TIMEOUT, &timeout);
	mysql_options(c->mysql, MYSQL_OPT_READ_TIMEOUT, &timeout);
	mysql_options(c->mysql, MYSQL_OPT_WRITE_TIMEOUT, &timeout);
	choose_login(c->mysql);
	if (!dlock_server_user(user, sizeof(user)))
		user[0] = '\0';
	if (mysql_real_connect(c->mysql, NULL, user, NULL, NULL, 0,
						   path, CLIENT_MULTI_STATEMENTS) == NULL)
	{
		remember_error(c, "could not connect to the server by its socket",
					   mysql_sqlstate(c->mysql), mysql_error(c->mysql));
		disconnect(c);
		return LEASE_STATUS_FAILED;
	}
	if (c->wire >= 0)
		close(c->wire);
	c->wire = fcntl(c->mysql->net.fd, F_DUPFD_CLOEXEC, 0);
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (execute(c, needed[i]) != LEASE_STATUS_OK)
		{
			disconnect(c);
			return LEASE_STATUS_FAILED;
		}
	for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
		if (mysql_query(c->mysql, optional[i]) == 0)
			while (mysql_next_result(c->mysql) == 0)
				;
	c->in_transaction = false;
	c->max_packet = 0;
	status = check_is_own(c);
	if (status == LEASE_STATUS_OK)
		status = connection_look(c);
	if (status != LEASE_STATUS_OK)
		disconnect(c);			/* one that is open has been looked at */
	return status;
}

#ifndef DLOCK_LOG
/*
 * Say whether the server applies the changes of a source, which may change the same
 * tables at any time; true if it does not tell.
 */
static bool
is_following(connection *c)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;
	bool		follows;

	if (mysql_query(c->mysql, dlock_appliers_query()) != 0)
		return mysql_errno(c->mysql) != ERROR_NO_TABLE; /* that of 1.0 */
	result = mysql_store_result(c->mysql);
	if (result == NULL)
		return true;
	columns = mysql_fetch_row(result);
	follows = columns == NULL || columns[1] == NULL ||
		strcmp(columns[1], "0") != 0;
	mysql_free_result(result);
	return follows;
}
#endif

/* Say whether a variable of the server is on, as it tells. */
static bool
is_on(const char *value)
{
	return strcmp(value, "OFF") != 0 && strcmp(value, "0") != 0;
}

/*
 * Check whether the server may be written to, and whether others may write the same
 * tables at the same time.
 */
lease_status
connection_look(connection *c)
{
	MYSQL_ROW	columns;
	MYSQL_RES  *result = fetch(c, "SHOW GLOBAL VARIABLES WHERE Variable_name IN"
							   " ('read_only', 'innodb_read_only',"
							   " 'innodb_force_recovery', 'wsrep_provider',"
							   " 'max_allowed_packet',"
							   " 'group_replication_group_name')");

	if (result == NULL)
		return connection_failed(c);
	c->in_galera = c->is_clustered = c->is_following = c->is_read_only = false;
	while ((columns = mysql_fetch_row(result)) != NULL)
		if (strcmp(columns[0], "read_only") == 0 ||
			strcmp(columns[0], "innodb_read_only") == 0)
			c->is_read_only |= is_on(columns[1]);
		else if (strcmp(columns[0], "innodb_force_recovery") == 0)
			c->is_read_only |= strtoul(columns[1], NULL, 10) >=
				dlock_read_only_recovery();
		else if (strcmp(columns[0], "wsrep_provider") == 0)
			c->is_clustered = c->in_galera = columns[1][0] != '\0' &&
				strcmp(columns[1], "none") != 0;
		else if (strcmp(columns[0], "max_allowed_packet") == 0)
		{
			/* a changed value counts for later connections */
			if (c->max_packet == 0)
				c->max_packet = strtoull(columns[1], NULL, 10);
		}
		else
			c->is_clustered = true; /* Group Replication is loaded */
	mysql_free_result(result);
#ifndef DLOCK_LOG
	if (!c->is_read_only && !c->is_clustered)
		c->is_clustered = c->is_following = is_following(c);
#endif
	return LEASE_STATUS_OK;
}

/* Commit. */
lease_status
connection_commit(connection *c)
{
	lease_status status = execute_inside(c, "COMMIT");

	/* it waits for no row */
	if (status != LEASE_STATUS_OK)
		c->is_shut = c->is_locked;
	c->in_transaction = false;
	return status;
}

/* Roll back a transaction under way; if that fails, the connection is closed. */
void
connection_rollback(connection *c)
{
	if (c->mysql != NULL && c->in_transaction &&
		mysql_query(c->mysql, "ROLLBACK") != 0)
		disconnect(c);
	c->in_transaction = false;
}

/*
 * Look at the server, and give up if it is read-only.  Such a server still lets accounts
 * write that have the privilege, and on MariaDB ours has it by default.  So the library
 * has to refuse.
 */
lease_status
connection_look_refusing(connection *c)
{
	lease_status status = connection_look(c);

	return status == LEASE_STATUS_OK && c->is_read_only ?
		connection_give_up(c, LEASE_STATUS_FAILED, "25006",
						   "could not use the lock table: the server is read-only") :
		status;
}

/* The same, if the last look found the server read-only. */
lease_status
connection_refuse_if_read_only(connection *c)
{
	return c->is_read_only ? connection_look_refusing(c) : LEASE_STATUS_OK;
}

/* Say whether the account has the privilege to see all connections. */
static bool
may_see_connections(connection *c)
{
	MYSQL_RES  *result = fetch(c, "SHOW GRANTS");
	MYSQL_ROW	columns;
	bool		may = false;

	if (result == NULL)
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

/* Without the privilege the server would show only our own connections, and no error. */
lease_status
connection_visit_all(connection *c, connection_visitor visit)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;

	if (!may_see_connections(c))
		return LEASE_STATUS_FAILED;
	result = fetch(c, "SELECT ID FROM information_schema.PROCESSLIST");
	if (result == NULL)
		return connection_failed(c);
	while ((columns = mysql_fetch_row(result)) != NULL)
		visit(strtoull(columns[0], NULL, 10));
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}

/* Say whether our plugin on MariaDB is active: it hears of connections from now on. */
lease_status
connection_ask_plugin(connection *c, bool *active)
{
	MYSQL_RES  *result = fetch(c, "SELECT 1 FROM information_schema.PLUGINS "
							   "WHERE PLUGIN_NAME = 'dlock'"
							   " AND PLUGIN_STATUS = 'ACTIVE'");

	if (result == NULL)
		return connection_failed(c);
	*active = mysql_num_rows(result) > 0;
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}
