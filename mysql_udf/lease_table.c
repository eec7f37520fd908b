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
 * Rows are read twice in a statement each: locked, passing over those that
 * another transaction has locked, then as committed.  What only the second
 * finds is locked by somebody, most likely by a guard.
 *
 * All values are bound, or written as numbers, as binary strings of harmless
 * ASCII, or as hexadecimal literals, which mean the same in every character set
 * and SQL mode.
 *
 * The isolation is READ COMMITTED: nothing but the rows themselves is locked,
 * no gaps, so that names do not get into each other's way.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_statements.h"

#include <assert.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lease_journal.h"
#include "lease_present.h"

/* Seconds until an unresponsive server counts as gone. */
#define IO_TIMEOUT		30

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

#define SELECT_JOURNAL \
	"SELECT changes, writer, leases FROM dlock.lease_journal WHERE place = 0"

/* So many rows can be counted when a run takes over. */
#define COUNT_MAX		100000

typedef struct text
{
	char	   *data;
	size_t		length;
	size_t		room;
} text;

struct lease_table
{
	uint64_t	writer;
	MYSQL	   *connection;
	unsigned long lost_id;		/* a connection that was lost in a statement,
								 * which may go on; 0: none */
	lease_statements *statements;
	bool		in_transaction;
	bool		in_galera;		/* the server is a node of a Galera cluster */
	bool		alone;			/* nobody else can write the table */
	bool		marks_differ;	/* why the last statement failed */
	bool		read_only;		/* the server is not to be written */
	char		sqlstate[6];
	char		error[512];
	text		query;
	text		puts;			/* rows of an INSERT that replaces */
	lease_new_row *inserts;		/* for one that does not */
	size_t		ninserts;
	size_t		inserts_room;
	size_t		ninserted;		/* of these, in this transaction */
	text		deletes;		/* statements; a condition with OR would be
								 * looked up in all rows */
	lease_bytes *owns;			/* names of another, of rows of this run */
	size_t		nowns;
	size_t		owns_room;
	text		touches;		/* conditions of an UPDATE */
	text		advances;		/* cases of an UPDATE, which sets NULL and so
								 * fails where a mark is another than was
								 * believed */
	text		advanced;		/* the buckets concerned */
	lease_bytes *removed;		/* names whose rows "deletes" has */
	size_t		nremoved;
	size_t		removed_room;
	bool		duplicate;		/* an insert of what the journal has */
	lease_journal *journal;
	uint64_t	changes;		/* the number of what it has */
	bool		knows_journal;	/* it is what this run has written last */
	bool		moves_journal;	/* this transaction moves what it has */
	bool		sends_journal;	/* another was sent in this transaction */
};

/* ----------------------------------------------------------------
 * Text
 * ----------------------------------------------------------------
 */

static void
text_reserve(text *t, size_t more)
{
	if (t->length + more + 1 <= t->room)
		return;
	t->room = (t->length + more + 1) * 2;
	t->data = realloc(t->data, t->room);
	if (t->data == NULL)
		abort();				/* the server does the same */
}

static void
text_clear(text *t)
{
	t->length = 0;
	text_reserve(t, 0);
	t->data[0] = '\0';
}

static void text_add(text *t, const char *format,...)
			__attribute__((format(printf, 2, 3)));

static void
text_add(text *t, const char *format,...)
{
	va_list		arguments;
	int			length;

	text_reserve(t, 200);
	va_start(arguments, format);
	length = vsnprintf(t->data + t->length, t->room - t->length, format,
					   arguments);
	va_end(arguments);
	if ((size_t) length >= t->room - t->length)
	{
		text_reserve(t, (size_t) length);
		va_start(arguments, format);
		vsnprintf(t->data + t->length, t->room - t->length, format, arguments);
		va_end(arguments);
	}
	t->length += (size_t) length;
}

/*
 * Say whether bytes mean the same in quotes, whatever the server's settings, and
 * end no statement.
 */
static bool
is_plain(const char *data, size_t length)
{
	static const char others[] = "-_./:@# ";

	for (size_t i = 0; i < length; i++)
		if (!((data[i] >= 'a' && data[i] <= 'z') ||
			  (data[i] >= 'A' && data[i] <= 'Z') ||
			  (data[i] >= '0' && data[i] <= '9') ||
			  (data[i] != '\0' && strchr(others, data[i]) != NULL)))
			return false;
	return true;
}

/* Add bytes as a literal, in hexadecimal unless that is needless. */
static void
text_add_bytes(text *t, const char *data, size_t length)
{
	static const char digits[] = "0123456789abcdef";

	text_reserve(t, length * 2 + 10);
	if (is_plain(data, length))
	{
		t->length += (size_t) sprintf(t->data + t->length, "_binary'%.*s'",
									  (int) length, data);
		return;
	}
	t->data[t->length++] = 'x';
	t->data[t->length++] = '\'';
	for (size_t i = 0; i < length; i++)
	{
		t->data[t->length++] = digits[(unsigned char) data[i] >> 4];
		t->data[t->length++] = digits[(unsigned char) data[i] & 15];
	}
	t->data[t->length++] = '\'';
	t->data[t->length] = '\0';
}

/* ----------------------------------------------------------------
 * The connection
 * ----------------------------------------------------------------
 */

lease_table *
lease_table_create(uint64_t writer)
{
	lease_table *table = calloc(1, sizeof(lease_table));

	if (table == NULL)
		return NULL;
	table->writer = writer;
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
		mysql_close(table->connection);
	table->connection = NULL;
	table->in_transaction = false;
}

static void
remember_error(lease_table *table, const char *what)
{
	snprintf(table->sqlstate, sizeof(table->sqlstate), "%s",
			 mysql_sqlstate(table->connection));
	snprintf(table->error, sizeof(table->error), "%s: %s", what,
			 mysql_error(table->connection));
}

static void forget_changes(lease_table *table);

/* What the error of the last statement means; the transaction is over. */
static lease_status
failed(lease_table *table)
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
		forget_changes(table);
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
static lease_status
execute(lease_table *table, const char *query, size_t length)
{
	int			more;

	if (mysql_real_query(table->connection, query, length) != 0)
		return failed(table);
	while ((more = mysql_next_result(table->connection)) == 0)
		;
	return more > 0 ? failed(table) : LEASE_STATUS_OK;
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
static lease_status
execute_all(lease_table *table, const text *query)
{
	const char *statement = query->data;
	lease_status status = LEASE_STATUS_OK;

	if (!table->in_galera)
		return execute(table, query->data, query->length);
	while (status == LEASE_STATUS_OK && *statement != '\0')
	{
		size_t		length = strcspn(statement, ";");

		if (!(table->connection->server_status & SERVER_STATUS_IN_TRANS))
		{
			lease_table_rollback(table);
			return LEASE_STATUS_LOST;
		}
		status = execute(table, statement, length);
		statement += length + (statement[length] == ';');
	}
	return status;
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
			return failed(table);
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
		/* MariaDB, MySQL: a limit that is meant for others */
		"SET SESSION max_statement_time = 0",
		"SET SESSION max_execution_time = 0",
	};
	unsigned int timeout = IO_TIMEOUT;
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
	status = end_lost(table);
	if (status != LEASE_STATUS_OK)
	{
		lease_table_disconnect(table);
		return status;
	}
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
	{
		if (execute(table, needed[i], strlen(needed[i])) != LEASE_STATUS_OK)
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

/* Forget what was to be written. */
static void
forget_changes(lease_table *table)
{
	text_clear(&table->puts);
	table->ninserts = 0;
	table->ninserted = 0;
	text_clear(&table->deletes);
	table->nowns = 0;
	text_clear(&table->touches);
	text_clear(&table->advances);
	text_clear(&table->advanced);
	table->nremoved = 0;
	table->duplicate = false;
	table->moves_journal = false;
	table->sends_journal = false;
	lease_journal_undo(table->journal);
}

void
lease_table_rollback(lease_table *table)
{
	if (table->connection != NULL && table->in_transaction &&
		mysql_query(table->connection, "ROLLBACK") != 0)
		lease_table_disconnect(table);
	table->in_transaction = false;
	forget_changes(table);
}

/* ----------------------------------------------------------------
 * Transactions
 * ----------------------------------------------------------------
 */

static lease_status
begin(lease_table *table)
{
	static const char query[] = "START TRANSACTION";

	table->in_transaction = true;
	return execute(table, query, strlen(query));
}

/* Another run, or whoever has restored the table, has changed the journal. */
static lease_status
fail_for_change(lease_table *table)
{
	lease_table_forget_journal(table);
	lease_table_rollback(table);
	table->marks_differ = true;
	snprintf(table->sqlstate, sizeof(table->sqlstate), "40001");
	snprintf(table->error, sizeof(table->error),
			 "could not use the lock table: somebody else has changed it");
	return LEASE_STATUS_CONFLICT;
}

/* Replace the journal by what it is to be. */
static lease_status
write_journal(lease_table *table)
{
	bool		written;
	size_t		length;
	const char *leases = lease_journal_encode(table->journal, &length);

	table->sends_journal = true;
	if (!lease_statements_journal(table->statements, table->changes, leases,
								  length, &written))
		return failed(table);
	return written ? LEASE_STATUS_OK : fail_for_change(table);
}

static void
add_insert(lease_bytes name, const lease_row *row, void *context)
{
	lease_table *table = context;

	if (table->ninserts == table->inserts_room)
		table->inserts = lease_grow(table->inserts, &table->inserts_room,
									sizeof(lease_new_row));
	table->inserts[table->ninserts++] = (lease_new_row) {name, row};
}

/* Let all that the journal has, and will have, become rows. */
static void
move_journal(lease_table *table)
{
	lease_journal_visit(table->journal, add_insert, table);
	lease_journal_remove_all(table->journal);
	table->moves_journal = true;
}

/* Insert the rows that were collected, and replace the journal. */
static lease_status
write_new(lease_table *table)
{
	lease_status status = LEASE_STATUS_OK;

	if (!lease_statements_insert(table->statements,
								 table->inserts + table->ninserted,
								 table->ninserts - table->ninserted,
								 table->alone))
		return failed(table);
	table->ninserted = table->ninserts;
	if (lease_journal_is_changed(table->journal) && !table->sends_journal)
		status = write_journal(table);
	return status;
}

/* ----------------------------------------------------------------
 * Reading
 * ----------------------------------------------------------------
 */

/*
 * These are the columns that are read.
 *
 * Rows to be changed are always looked for by their key.  In a small table the
 * server would rather look at all, and wait for those that others have locked.
 */
static uint64_t
number(const char *value)
{
	return value != NULL ? strtoull(value, NULL, 10) : 0;
}

static int64_t
signed_number(const char *value)
{
	return value != NULL ? strtoll(value, NULL, 10) : 0;
}

/* Copy a column of bytes; what does not fit is not ours. */
static size_t
copy_bytes(char *to, size_t size, const char *value, unsigned long length)
{
	if (value == NULL || length > size)
		return 0;
	memcpy(to, value, length);
	return length;
}

static void
copy_text(char *to, size_t size, const char *value, unsigned long length)
{
	to[copy_bytes(to, size - 1, value, length)] = '\0';
}

/* Make a row of the columns in LEASE_ROW_COLUMNS. */
static void
read_row(lease_row *row, MYSQL_ROW columns, const unsigned long *lengths)
{
	row->slot = (uint32_t) number(columns[1]);
	row->owner_length = (uint8_t) copy_bytes(row->owner, sizeof(row->owner),
											 columns[2], lengths[2]);
	copy_text(row->user, sizeof(row->user), columns[3], lengths[3]);
	copy_text(row->host, sizeof(row->host), columns[4], lengths[4]);
	row->mode = (lease_mode) number(columns[5]);
	row->kind = (lease_kind) number(columns[6]);
	row->version = (uint32_t) number(columns[7]);
	row->token = number(columns[8]);
	row->request_length = (uint8_t) copy_bytes(row->request,
											   sizeof(row->request),
											   columns[9], lengths[9]);
	row->ttl_us = signed_number(columns[10]);
	row->writes = number(columns[11]);
	row->writer = number(columns[12]);
	row->deadline_us = signed_number(columns[13]);
	row->connection_id = number(columns[14]);
	row->acquired_us = signed_number(columns[15]);
	row->expires_us = signed_number(columns[16]);
	row->locked = false;
}

/* Which mark counts for a name: FNV-1a, folded. */
uint32_t
lease_table_bucket(lease_bytes name)
{
	uint32_t	hash = 2166136261u;

	for (size_t i = 0; i < name.length; i++)
		hash = (hash ^ (unsigned char) name.data[i]) * 16777619u;
	return (hash ^ (hash >> 16)) % LEASE_BUCKETS;
}

/*
 * A hash of bytes and a number, for what is kept in memory: FNV-1a of 64 bits,
 * folded.
 */
uint64_t
lease_hash(lease_bytes bytes, uint64_t number)
{
	uint64_t	hash = UINT64_C(14695981039346656037) ^ number;

	for (size_t i = 0; i < bytes.length; i++)
		hash = (hash ^ (unsigned char) bytes.data[i]) *
			UINT64_C(1099511628211);
	return hash ^ (hash >> 32);
}

static lease_row *
add_row(lease_rows *rows)
{
	if (rows->count == rows->room)
	{
		rows->room = rows->room ? rows->room * 2 : 4;
		rows->rows = realloc(rows->rows, rows->room * sizeof(lease_row));
		if (rows->rows == NULL)
			abort();
	}
	return &rows->rows[rows->count++];
}

void
lease_rows_add(lease_rows *rows, const lease_row *row)
{
	*add_row(rows) = *row;
}

static size_t
find_name(const lease_bytes *names, size_t n, const char *data, size_t length)
{
	for (size_t i = 0; i < n; i++)
		if (names[i].length == length &&
			memcmp(names[i].data, data, length) == 0)
			return i;
	return n;
}

/* Fetch rows; in the second round only those that the first did not find. */
static lease_status
fetch_rows(lease_table *table, const lease_bytes *names, size_t n,
		   lease_rows *rows, bool second)
{
	MYSQL_RES  *result = mysql_store_result(table->connection);
	MYSQL_ROW	columns;

	if (result == NULL)
		return failed(table);
	while ((columns = mysql_fetch_row(result)) != NULL)
	{
		const unsigned long *lengths = mysql_fetch_lengths(result);
		size_t		i = find_name(names, n, columns[0], lengths[0]);
		uint32_t	slot = (uint32_t) number(columns[1]);
		bool		known = false;
		lease_row  *row;

		if (i == n)
			continue;
		for (size_t r = 0; second && r < rows[i].count; r++)
			known |= rows[i].rows[r].slot == slot;
		if (known)
			continue;
		row = add_row(&rows[i]);
		read_row(row, columns, lengths);
		row->locked = second;
	}
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}

/* Names, and their rows. */
typedef struct name_rows
{
	const lease_bytes *names;
	size_t		n;
	lease_rows *rows;
} name_rows;

static void
add_journaled(lease_bytes name, const lease_row *row, void *context)
{
	name_rows  *to = context;
	size_t		i = find_name(to->names, to->n, name.data, name.length);

	if (i < to->n)
		lease_rows_add(&to->rows[i], row);
}

static lease_status
fail_for_damage(lease_table *table, const char *what)
{
	lease_table_rollback(table);
	table->marks_differ = false;
	snprintf(table->sqlstate, sizeof(table->sqlstate), "XX001");
	snprintf(table->error, sizeof(table->error), "%s", what);
	return LEASE_STATUS_FAILED;
}

/*
 * Fetch the journal: who has written it, and under which number; its leases are
 * visited, if they are wanted.
 */
static lease_status
fetch_journal(lease_table *table, uint64_t *changes, uint64_t *writer,
			  lease_journal_visitor visit, void *context)
{
	MYSQL_RES  *result = mysql_store_result(table->connection);
	MYSQL_ROW	columns;
	bool		exists;
	bool		whole = false;

	if (result == NULL)
		return failed(table);
	columns = mysql_fetch_row(result);
	exists = columns != NULL;
	if (exists)
	{
		*changes = number(columns[0]);
		*writer = number(columns[1]);
		whole = visit == NULL ||
			lease_journal_decode(columns[2], mysql_fetch_lengths(result)[2],
								 *writer, visit, context);
	}
	mysql_free_result(result);
	if (whole)
		return LEASE_STATUS_OK;
	return fail_for_damage(table, exists ?
						   "table dlock.lease_journal is damaged" :
						   "table dlock.lease_journal lacks its row; run install.sql again");
}

/* Fetch marks.  Without one there can be no tokens that grow. */
static lease_status
fetch_marks(lease_table *table, const lease_bytes *names, size_t n,
			uint64_t *marks)
{
	MYSQL_RES  *result = mysql_store_result(table->connection);
	MYSQL_ROW	columns;

	if (result == NULL)
		return failed(table);
	for (size_t i = 0; i < n; i++)
		marks[i] = UINT64_MAX;
	while ((columns = mysql_fetch_row(result)) != NULL)
	{
		uint32_t	bucket = (uint32_t) number(columns[0]);
		uint64_t	mark = number(columns[1]);

		for (size_t i = 0; i < n; i++)
			if (bucket == lease_table_bucket(names[i]))
				marks[i] = mark;
	}
	mysql_free_result(result);
	for (size_t i = 0; i < n; i++)
		if (marks[i] == UINT64_MAX)
			return fail_for_damage(table,
								   "table dlock.lease_mark lacks rows; run install.sql again");
	return LEASE_STATUS_OK;
}

/* Go on to the next of several answers. */
static lease_status
next_result(lease_table *table)
{
	return mysql_next_result(table->connection) == 0 ? LEASE_STATUS_OK :
		failed(table);
}

/* Add the query for the rows of names. */
static void
add_select(text *query, const lease_bytes *names, size_t n)
{
	text_add(query, "SELECT " LEASE_ROW_COLUMNS
			 " FROM dlock.lease_table FORCE INDEX (PRIMARY) WHERE name IN (");
	for (size_t i = 0; i < n; i++)
	{
		if (i > 0)
			text_add(query, ",");
		text_add_bytes(query, names[i].data, names[i].length);
	}
	text_add(query, ") ORDER BY name, slot");
}

static lease_status
refuse(lease_table *table)
{
	lease_table_rollback(table);
	table->marks_differ = false;
	snprintf(table->sqlstate, sizeof(table->sqlstate), "25006");
	snprintf(table->error, sizeof(table->error),
			 "could not use the lock table: the server is read-only");
	return LEASE_STATUS_FAILED;
}

/*
 * A server that is read-only lets those write all the same who have the
 * privilege, as the account that we log in as does by default on MariaDB.  So
 * this is ours to refuse.
 */
static lease_status
refuse_if_read_only(lease_table *table)
{
	bool		read_only;
	bool		clustered;
	lease_status status;

	if (!table->read_only)
		return LEASE_STATUS_OK;
	status = lease_table_look(table, &read_only, &clustered);
	return status == LEASE_STATUS_OK && read_only ? refuse(table) : status;
}

lease_status
lease_table_read(lease_table *table, const lease_bytes *names, size_t n,
				 lease_rows *rows, uint64_t *marks, bool lock, bool move)
{
	text	   *query = &table->query;
	name_rows	journaled = {names, n, rows};
	uint64_t	changes;
	uint64_t	writer;
	lease_status status;

	bool		begins;

	/* in a cluster it is of no use, but to those who do not know it */
	bool		looks = table->alone || !table->knows_journal;

	lease_table_rollback(table);
	for (size_t i = 0; i < n; i++)
		rows[i].count = 0;
	if (table->connection == NULL)
		return LEASE_STATUS_LOST;
	if (lock && (status = refuse_if_read_only(table)) != LEASE_STATUS_OK)
		return status;

	assert(table->knows_journal || !move);
	if (move)
		move_journal(table);
	else
		lease_journal_visit(table->journal, add_journaled, &journaled);
	text_clear(query);
	begins = !lease_journal_is_changed(table->journal);
	if (begins)
		text_add(query, "START TRANSACTION;");
	else if ((status = begin(table)) != LEASE_STATUS_OK ||
			 (status = write_new(table)) != LEASE_STATUS_OK)
		return status;
	if (lock)
	{
		add_select(query, names, n);
		text_add(query, " FOR UPDATE SKIP LOCKED;");
	}
	add_select(query, names, n);
	if (looks)
		text_add(query, ";" SELECT_JOURNAL);
	text_add(query, ";SELECT bucket, mark FROM dlock.lease_mark"
			 " WHERE bucket IN (");
	for (size_t i = 0; i < n; i++)
		text_add(query, "%s%" PRIu32, i > 0 ? "," : "",
				 lease_table_bucket(names[i]));
	text_add(query, ")");

	table->in_transaction = true;
	if (mysql_real_query(table->connection, query->data, query->length) != 0)
		return failed(table);
	if (begins && (status = next_result(table)) != LEASE_STATUS_OK)
		return status;
	if (lock &&
		((status = fetch_rows(table, names, n, rows, false)) != LEASE_STATUS_OK ||
		 (status = next_result(table)) != LEASE_STATUS_OK))
		return status;
	if ((status = fetch_rows(table, names, n, rows, lock)) != LEASE_STATUS_OK ||
		(status = next_result(table)) != LEASE_STATUS_OK)
		return status;
	if (looks)
	{
		status = fetch_journal(table, &changes, &writer,
							   table->knows_journal ? NULL : add_journaled,
							   &journaled);
		if (status != LEASE_STATUS_OK ||
			(status = next_result(table)) != LEASE_STATUS_OK)
			return status;
		if (table->knows_journal &&
			(changes != table->changes + table->sends_journal ||
			 writer != table->writer))
			return fail_for_change(table);
	}
	return fetch_marks(table, names, n, marks);
}

/* Read rows for a visitor, outside of any transaction. */
static lease_status
visit(lease_table *table, lease_row_visitor visitor, void *context)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;

	if (mysql_real_query(table->connection, table->query.data,
						 table->query.length) != 0)
		return failed(table);
	result = mysql_store_result(table->connection);
	if (result == NULL)
		return failed(table);
	while ((columns = mysql_fetch_row(result)) != NULL)
	{
		const unsigned long *lengths = mysql_fetch_lengths(result);
		lease_row	row;

		read_row(&row, columns, lengths);
		visitor((lease_bytes) {columns[0], lengths[0]}, &row, context);
	}
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}

/* Visit the rows of an owner, of the caller's account, in the order of names. */
lease_status
lease_table_visit_owner(lease_table *table, lease_bytes owner,
						const dlock_caller *caller, lease_row_visitor visitor,
						void *context)
{
	text_clear(&table->query);
	text_add(&table->query, "SELECT " LEASE_ROW_COLUMNS
			 " FROM dlock.lease_table WHERE owner = ");
	text_add_bytes(&table->query, owner.data, owner.length);
	text_add(&table->query, " AND account_user = ");
	text_add_bytes(&table->query, caller->user, strlen(caller->user));
	text_add(&table->query, " AND account_host = ");
	text_add_bytes(&table->query, caller->host, strlen(caller->host));
	text_add(&table->query, " ORDER BY name");
	return visit(table, visitor, context);
}

/* Visit rows that this run has written and whose deadline has come. */
lease_status
lease_table_visit_due(lease_table *table, int64_t due_us, size_t limit,
					  lease_row_visitor visitor, void *context)
{
	text_clear(&table->query);
	text_add(&table->query, "SELECT " LEASE_ROW_COLUMNS
			 " FROM dlock.lease_table WHERE writer = %" PRIu64
			 " AND deadline_us <= %" PRId64
			 " ORDER BY writer, deadline_us LIMIT %zu",
			 table->writer, due_us, limit);
	return visit(table, visitor, context);
}

/*
 * Visit rows, in the order of their keys and after a given one, that another
 * run has written.  The rows of a name that lies between are read too.
 */
lease_status
lease_table_visit_foreign(lease_table *table, lease_bytes after_name,
						  uint32_t after_slot, size_t limit,
						  lease_row_visitor visitor, void *context)
{
	text_clear(&table->query);
	text_add(&table->query, "SELECT " LEASE_ROW_COLUMNS
			 " FROM dlock.lease_table WHERE writer <> %" PRIu64
			 " AND (name > ", table->writer);
	text_add_bytes(&table->query, after_name.data, after_name.length);
	text_add(&table->query, " OR name = ");
	text_add_bytes(&table->query, after_name.data, after_name.length);
	text_add(&table->query, " AND slot > %" PRIu32
			 ") ORDER BY name, slot LIMIT %zu", after_slot, limit);
	return visit(table, visitor, context);
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
		return failed(table);
	while ((columns = mysql_fetch_row(result)) != NULL)
		visit(number(columns[0]), context);
	mysql_free_result(result);
	return LEASE_STATUS_OK;
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
		return failed(table);
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
		return failed(table);
	while ((columns = mysql_fetch_row(result)) != NULL)
		if (columns[0] != NULL && columns[1] != NULL)
			visitor(columns[0], columns[1], context);
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}

/* ----------------------------------------------------------------
 * Writing
 * ----------------------------------------------------------------
 */

/* Add "(name = ... AND slot = ...)". */
static void
add_condition(text *t, lease_bytes name, uint32_t slot)
{
	text_add(t, "%s(name = ", t->length > 0 ? " OR " : "");
	text_add_bytes(t, name.data, name.length);
	text_add(t, " AND slot = %" PRIu32 ")", slot);
}

/* Make room for more elements, of a size, in an array. */
void *
lease_grow(void *array, size_t *room, size_t size)
{
	*room = *room > 0 ? *room * 2 : 16;
	array = realloc(array, *room * size);
	if (array == NULL)
		abort();
	return array;
}

/*
 * Say whether a new lease can go into the journal.  Session leases last for long,
 * and of those other servers may have to know.
 */
static bool
may_journal(const lease_table *table, lease_bytes name, const lease_row *row)
{
	return table->alone && table->knows_journal && row->kind == LEASE_PLAIN &&
		lease_present_is_absent(name);
}

void
lease_table_write(lease_table *table, lease_write_kind kind, lease_bytes name,
				  const lease_row *row)
{
	text	   *t = &table->puts;

	assert(kind == LEASE_WRITE_GRANT || kind == LEASE_WRITE_INSERT ||
		   kind == LEASE_WRITE_DELETE_OWN || !lease_journal_has(table->journal, name));
	switch (kind)
	{
		case LEASE_WRITE_DELETE:
			if (table->nremoved == table->removed_room)
				table->removed = lease_grow(table->removed,
											&table->removed_room,
											sizeof(lease_bytes));
			table->removed[table->nremoved++] = name;
			text_add(&table->deletes,
					 "DELETE FROM dlock.lease_table WHERE name = ");
			text_add_bytes(&table->deletes, name.data, name.length);
			text_add(&table->deletes, " AND slot = %" PRIu32 ";", row->slot);
			return;
		case LEASE_WRITE_DELETE_OWN:
			if (lease_journal_remove(table->journal, name))
				return;
			if (table->nowns == table->owns_room)
				table->owns = lease_grow(table->owns, &table->owns_room,
										 sizeof(lease_bytes));
			table->owns[table->nowns++] = name;
			return;
		case LEASE_WRITE_TOUCH:
			add_condition(&table->touches, name, row->slot);
			return;
		case LEASE_WRITE_GRANT:
		case LEASE_WRITE_INSERT:
			table->duplicate |= lease_journal_has(table->journal, name);
			if (kind == LEASE_WRITE_GRANT && may_journal(table, name, row))
				lease_journal_add(table->journal, name, row);
			else
				add_insert(name, row, table);
			return;
		case LEASE_WRITE_PUT:
			break;
	}
	text_add(t, t->length > 0 ? ",(" : "(");
	text_add_bytes(t, name.data, name.length);
	text_add(t, ",%" PRIu32 ",", row->slot);
	text_add_bytes(t, row->owner, row->owner_length);
	text_add(t, ",");
	text_add_bytes(t, row->user, strlen(row->user));
	text_add(t, ",");
	text_add_bytes(t, row->host, strlen(row->host));
	text_add(t, ",%d,%d,%" PRIu32 ",%" PRIu64 ",", (int) row->mode,
			 (int) row->kind, row->version, row->token);
	text_add_bytes(t, row->request, row->request_length);
	text_add(t, ",%" PRId64 ",%" PRIu64 ",%" PRIu64 ",%" PRId64 ",%" PRIu64
			 ",%" PRId64 ",%" PRId64 ")", row->ttl_us, row->writes,
			 row->writer, row->deadline_us, row->connection_id,
			 row->acquired_us, row->expires_us);
}

/* Set a mark that is believed to be "from": a conflict if it is not. */
void
lease_table_advance_mark(lease_table *table, uint32_t bucket, uint64_t from,
						 uint64_t mark)
{
	text_add(&table->advances, " WHEN bucket = %" PRIu32 " AND mark = %" PRIu64
			 " THEN %" PRIu64, bucket, from, mark);
	text_add(&table->advanced, "%s%" PRIu32,
			 table->advanced.length > 0 ? "," : "", bucket);
}

/* Write what was collected of rows that were read. */
static lease_status
write_changes(lease_table *table)
{
	text	   *query = &table->query;

	if (table->deletes.length == 0 && table->puts.length == 0)
		return LEASE_STATUS_OK;
	text_clear(query);
	text_add(query, "%s", table->deletes.data);
	if (table->puts.length > 0)
		text_add(query, "INSERT INTO dlock.lease_table (" LEASE_ROW_COLUMNS
				 ") VALUES %s ON DUPLICATE KEY UPDATE owner = VALUES(owner),"
				 "account_user = VALUES(account_user),"
				 "account_host = VALUES(account_host),"
				 "mode = VALUES(mode), kind = VALUES(kind),"
				 "version = VALUES(version), token = VALUES(token),"
				 "request = VALUES(request), ttl_us = VALUES(ttl_us),"
				 "writes = VALUES(writes), writer = VALUES(writer),"
				 "deadline_us = VALUES(deadline_us),"
				 "connection_id = VALUES(connection_id),"
				 "acquired_us = VALUES(acquired_us),"
				 "expires_us = VALUES(expires_us);", table->puts.data);
	return execute_all(table, query);
}

/* Write what was collected of other rows, and commit. */
static lease_status
write_rest(lease_table *table)
{
	text	   *query = &table->query;

	text_clear(query);
	if (table->touches.length > 0)
		text_add(query, "UPDATE dlock.lease_table FORCE INDEX (PRIMARY)"
				 " SET guards = guards + 1"
				 " WHERE %s;", table->touches.data);
	if (table->advances.length > 0)
		text_add(query, "UPDATE dlock.lease_mark FORCE INDEX (PRIMARY)"
				 " SET mark = CASE%s END"
				 " WHERE bucket IN (%s);", table->advances.data,
				 table->advanced.data);
	text_add(query, "COMMIT");
	return execute_all(table, query);
}

/* Say whether all that was collected goes into one statement. */
static bool
is_one_statement(const lease_table *table)
{
	int			statements = lease_journal_is_changed(table->journal);

	statements += (int) ((table->ninserts + LEASE_INSERT_ROWS - 1) /
						 LEASE_INSERT_ROWS);
	statements += (int) ((table->nowns + LEASE_DELETE_NAMES - 1) /
						 LEASE_DELETE_NAMES);
	return statements <= 1 &&
		table->deletes.length == 0 && table->puts.length == 0 &&
		table->touches.length == 0 && table->advances.length == 0;
}

/* After a commit: what the journal has, and which names have rows. */
static void
note_committed(lease_table *table, bool missed)
{
	for (size_t i = 0; i < table->ninserts; i++)
		lease_present_added(table->inserts[i].name);
	for (size_t i = 0; i < table->nremoved; i++)
		lease_present_removed(table->removed[i]);
	for (size_t i = 0; i < table->nowns && !missed; i++)
		lease_present_removed(table->owns[i]);
	table->changes += table->sends_journal;
	lease_journal_keep(table->journal);
}

/*
 * Write what was collected, and commit.  "missed" is set to whether a row was
 * not found that LEASE_WRITE_DELETE_OWN was to delete.
 */
lease_status
lease_table_commit(lease_table *table, bool *missed)
{
	uint64_t	deleted;
	lease_status status;

	if (table->read_only)
		return refuse(table);
	if (table->duplicate)
	{
		/* as if it was a row */
		lease_table_rollback(table);
		table->marks_differ = false;
		return LEASE_STATUS_CONFLICT;
	}
	if (lease_journal_is_full(table->journal))
		move_journal(table);
	if (!table->in_transaction && !is_one_statement(table) &&
		(status = begin(table)) != LEASE_STATUS_OK)
		return status;
	if (!lease_statements_delete(table->statements, table->owns, table->nowns,
								 &deleted))
		return failed(table);
	*missed = deleted < table->nowns;
	if ((status = write_changes(table)) != LEASE_STATUS_OK)
		return status;
	if ((status = write_new(table)) != LEASE_STATUS_OK)
		return status;
	if (table->in_transaction &&
		(status = write_rest(table)) != LEASE_STATUS_OK)
		return status;
	table->in_transaction = false;
	note_committed(table, *missed);
	lease_table_rollback(table);
	return LEASE_STATUS_OK;
}

/* ----------------------------------------------------------------
 * The journal
 * ----------------------------------------------------------------
 */

/* Say whether it is what this run has written last, as far as is known. */
bool
lease_table_knows_journal(const lease_table *table)
{
	return table->knows_journal;
}

/* Say whether the transaction under way has moved something. */
bool
lease_table_has_moved(const lease_table *table)
{
	return table->sends_journal;
}

/* Say whether it is known to have nothing. */
bool
lease_table_is_settled(const lease_table *table)
{
	return table->knows_journal &&
		lease_journal_due_us(table->journal) == INT64_MAX;
}

/*
 * What is known of the journal, and of the names that have rows, may not be so:
 * take over before anything else is written.
 */
void
lease_table_forget_journal(lease_table *table)
{
	table->knows_journal = false;
	lease_journal_clear(table->journal);
	lease_present_forget();
}

/* When it is to be moved into the lock table. */
int64_t
lease_table_journal_due_us(const lease_table *table)
{
	return lease_journal_due_us(table->journal);
}

/* Move what the journal has into the lock table, in a transaction of its own. */
lease_status
lease_table_settle(lease_table *table)
{
	bool		missed;

	lease_table_rollback(table);
	move_journal(table);
	return lease_journal_is_changed(table->journal) ?
		lease_table_commit(table, &missed) : LEASE_STATUS_OK;
}

static void
put_journaled(lease_bytes name, const lease_row *row, void *context)
{
	/* should somebody have made a row for it, by hand: this is newer */
	lease_table_write(context, LEASE_WRITE_PUT, name, row);
}

static void
note_journaled(lease_bytes name, const lease_row *row, void *context)
{
	(void) name;
	(void) row;
	*(bool *) context = true;
}

/* Look whether there is anything in the journal, whoever wrote it. */
lease_status
lease_table_find_journal(lease_table *table, bool *any)
{
	uint64_t	changes;
	uint64_t	writer;

	*any = false;
	if (mysql_query(table->connection, SELECT_JOURNAL) != 0)
		return failed(table);
	return fetch_journal(table, &changes, &writer, note_journaled, any);
}

/* Count the rows of all names, unless there are too many. */
static lease_status
count_rows(lease_table *table)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;

	text_clear(&table->query);
	text_add(&table->query, "SELECT name FROM dlock.lease_table LIMIT %d",
			 COUNT_MAX + 1);
	if (mysql_real_query(table->connection, table->query.data,
						 table->query.length) != 0 ||
		(result = mysql_store_result(table->connection)) == NULL)
		return failed(table);
	lease_present_begin();
	while ((columns = mysql_fetch_row(result)) != NULL)
		lease_present_count((lease_bytes) {
			columns[0], mysql_fetch_lengths(result)[0]
		});
	lease_present_end(mysql_num_rows(result) <= COUNT_MAX);
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}

/*
 * Take over the lock table: what is in the journal becomes rows, and the journal
 * is this run's from then on.
 *
 * "raise" says that another run may have granted leases.  Then all marks are
 * raised, for all tokens to be larger than what may have been granted and lost:
 * to "least", and by "step" at least.  They are this run's then; that they still
 * are, lease_statements_insert() checks.  Without, and where nobody else can write
 * the table, it is a conflict if the journal is another's.
 */
lease_status
lease_table_take_over(lease_table *table, bool raise, uint64_t least,
					  uint64_t step)
{
	text	   *query = &table->query;
	uint64_t	changes = 0;
	uint64_t	writer = 0;
	lease_status status = refuse_if_read_only(table);

	if (status != LEASE_STATUS_OK)
		return status;
	lease_table_forget_journal(table);
	lease_table_rollback(table);
	if ((status = begin(table)) != LEASE_STATUS_OK)
		return status;
	if (mysql_query(table->connection, SELECT_JOURNAL " FOR UPDATE") != 0)
		return failed(table);
	status = fetch_journal(table, &changes, &writer, put_journaled, table);
	if (status != LEASE_STATUS_OK)
		return status;
	if (!raise && table->alone && writer != table->writer)
		return fail_for_change(table);
	if ((status = write_changes(table)) != LEASE_STATUS_OK ||
		(table->alone && (status = count_rows(table)) != LEASE_STATUS_OK))
		return status;
	text_clear(query);
	if (raise)
		text_add(query, "UPDATE dlock.lease_mark SET mark ="
				 " GREATEST(mark + %" PRIu64 ", %" PRIu64 "), writer = %" PRIu64
				 ";", step, least, table->writer);
	text_add(query, "UPDATE dlock.lease_journal SET changes = %" PRIu64
			 ", writer = %" PRIu64 ", leases = '' WHERE place = 0;COMMIT",
			 changes + 1, table->writer);
	if ((status = execute_all(table, query)) != LEASE_STATUS_OK)
	{
		lease_present_forget();
		return status;
	}
	table->in_transaction = false;
	table->changes = changes + 1;
	table->knows_journal = true;
	lease_table_rollback(table);
	return LEASE_STATUS_OK;
}
