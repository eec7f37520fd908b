/*
 * lease_statements.c
 *	  The statements that most calls need, prepared once for a connection.
 *
 * A grant writes the journal or inserts a row, and a release deletes it.  Parsing
 * and planning that costs the server about as much as doing it, so it does it
 * once.  A statement has room for a fixed number of rows; each is prepared when
 * it is first needed.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_statements.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many names a DELETE may have. */
static const size_t delete_names[] = {1, 8, 32, LEASE_DELETE_NAMES};

#define DELETES			(sizeof(delete_names) / sizeof(delete_names[0]))

#define COLUMNS			17

/* Parameters of the first row that the others do not have. */
#define EXTRA			2

struct lease_statements
{
	MYSQL	   *connection;
	uint64_t	writer;

	/* of one execution; too much for a caller's stack */
	MYSQL_BIND	binds[LEASE_INSERT_ROWS * COLUMNS + EXTRA];
	int64_t		small[LEASE_INSERT_ROWS][4];
	MYSQL_STMT *insert[LEASE_INSERT_ROWS + 1];	/* by their number of rows */
	MYSQL_STMT *delete[DELETES];	/* by delete_names[] */
	MYSQL_STMT *journal;
	MYSQL_STMT *failed;			/* could not be prepared */
};

lease_statements *
lease_statements_create(MYSQL *connection, uint64_t writer)
{
	lease_statements *statements = calloc(1, sizeof(lease_statements));

	if (statements == NULL)
		abort();
	statements->connection = connection;
	statements->writer = writer;
	return statements;
}

static void
close_statement(MYSQL_STMT *statement)
{
	if (statement != NULL)
		mysql_stmt_close(statement);
}

/* Before the connection is closed. */
void
lease_statements_free(lease_statements *statements)
{
	if (statements == NULL)
		return;
	for (size_t i = 0; i <= LEASE_INSERT_ROWS; i++)
		close_statement(statements->insert[i]);
	for (size_t i = 0; i < DELETES; i++)
		close_statement(statements->delete[i]);
	close_statement(statements->journal);
	close_statement(statements->failed);
	free(statements);
}

/*
 * A prepared statement, or NULL; the connection has the error.  It would lose
 * it if the statement was closed at once.
 */
static MYSQL_STMT *
prepare(lease_statements *statements, const char *query, size_t length)
{
	MYSQL_STMT *statement = mysql_stmt_init(statements->connection);

	if (statement == NULL)
		abort();
	close_statement(statements->failed);
	statements->failed = NULL;
	if (mysql_stmt_prepare(statement, query, length) == 0)
		return statement;
	statements->failed = statement;
	return NULL;
}

static void
bind_number(MYSQL_BIND *bind, const void *value)
{
	bind->buffer_type = MYSQL_TYPE_LONGLONG;
	bind->buffer = (void *) value;
}

static void
bind_bytes(MYSQL_BIND *bind, const char *data, size_t length)
{
	bind->buffer_type = MYSQL_TYPE_BLOB;
	bind->buffer = (void *) data;
	bind->buffer_length = length;
}

static bool
execute(MYSQL_STMT *statement, MYSQL_BIND *binds)
{
	return mysql_stmt_bind_param(statement, binds) == 0 &&
		mysql_stmt_execute(statement) == 0;
}

/*
 * The INSERT for some rows.  In the first, the token is NULL, which is an error,
 * if it matters who has raised the marks and it was another run: that run may
 * have granted higher ones.
 */
static MYSQL_STMT *
get_insert(lease_statements *statements, size_t n)
{
	static const char first[] = "(?,?,?,?,?,?,?,?,IF(? OR (SELECT writer"
		" FROM dlock.lease_mark WHERE bucket = 0) = ?,?,NULL),"
		"?,?,?,?,?,?,?,?)";
	static const char row[] = "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
	static const char start[] = "INSERT INTO dlock.lease_table ("
		LEASE_ROW_COLUMNS ") VALUES ";
	char		query[sizeof(start) + sizeof(first) +
					  LEASE_INSERT_ROWS * sizeof(row)];
	size_t		length;

	if (statements->insert[n] == NULL)
	{
		length = (size_t) sprintf(query, "%s%s", start, first);
		for (size_t i = 1; i < n; i++)
			length += (size_t) sprintf(query + length, ",%s", row);
		statements->insert[n] = prepare(statements, query, length);
	}
	return statements->insert[n];
}

/*
 * Insert rows: false if that fails, and the connection has the error.  "alone"
 * says that the marks were raised ahead of the tokens, and must still be ours.
 */
bool
lease_statements_insert(lease_statements *statements,
						const lease_new_row *rows, size_t n, bool alone)
{
	int64_t		any_writer = !alone;

	while (n > 0)
	{
		size_t		some = n < LEASE_INSERT_ROWS ? n : LEASE_INSERT_ROWS;
		MYSQL_STMT *statement = get_insert(statements, some);
		MYSQL_BIND *bind = statements->binds;

		if (statement == NULL)
			return false;
		memset(statements->binds, 0, sizeof(statements->binds));
		for (size_t i = 0; i < some; i++)
		{
			/* in the order of LEASE_ROW_COLUMNS */
			const lease_row *row = rows[i].row;
			int64_t    *small = statements->small[i];

			small[0] = row->slot;
			small[1] = (int64_t) row->mode;
			small[2] = (int64_t) row->kind;
			small[3] = row->version;
			bind_bytes(bind++, rows[i].name.data, rows[i].name.length);
			bind_number(bind++, &small[0]);
			bind_bytes(bind++, row->owner, row->owner_length);
			bind_bytes(bind++, row->user, strlen(row->user));
			bind_bytes(bind++, row->host, strlen(row->host));
			bind_number(bind++, &small[1]);
			bind_number(bind++, &small[2]);
			bind_number(bind++, &small[3]);
			if (i == 0)
			{
				bind_number(bind++, &any_writer);
				bind->is_unsigned = 1;	/* may be above 2^63 */
				bind_number(bind++, &statements->writer);
			}
			bind_number(bind++, &row->token);
			bind_bytes(bind++, row->request, row->request_length);
			bind_number(bind++, &row->ttl_us);
			bind_number(bind++, &row->writes);
			bind->is_unsigned = 1;
			bind_number(bind++, &row->writer);
			bind_number(bind++, &row->deadline_us);
			bind_number(bind++, &row->connection_id);
			bind_number(bind++, &row->acquired_us);
			bind_number(bind++, &row->expires_us);
		}
		if (!execute(statement, statements->binds))
			return false;
		rows += some;
		n -= some;
	}
	return true;
}

/*
 * The DELETE for so many names, or somewhat more, "room".  "0 +": this is no
 * condition to look for rows by.
 */
static MYSQL_STMT *
get_delete(lease_statements *statements, size_t n, size_t *room)
{
	char		query[200 + 2 * LEASE_DELETE_NAMES];
	size_t		length;
	size_t		size = 0;

	while (delete_names[size] < n)
		size++;
	*room = delete_names[size];
	if (statements->delete[size] == NULL)
	{
		length = (size_t) sprintf(query, "DELETE FROM dlock.lease_table"
								  " USING dlock.lease_table"
								  " FORCE INDEX (PRIMARY) WHERE name IN (?");
		for (size_t i = 1; i < *room; i++)
			length += (size_t) sprintf(query + length, ",?");
		length += (size_t) sprintf(query + length,
								   ") AND slot = 0 AND 0 + writer = ?");
		statements->delete[size] = prepare(statements, query, length);
	}
	return statements->delete[size];
}

/*
 * Delete the rows of names in slot 0 that this run has written; "deleted" is
 * how many there were.  False if that fails, and the connection has the error.
 */
bool
lease_statements_delete(lease_statements *statements, const lease_bytes *names,
						size_t n, uint64_t *deleted)
{
	MYSQL_BIND *binds = statements->binds;

	static_assert(LEASE_INSERT_ROWS * COLUMNS + EXTRA > LEASE_DELETE_NAMES,
				  "there is room for all names, and the writer");
	*deleted = 0;
	while (n > 0)
	{
		size_t		some = n < LEASE_DELETE_NAMES ? n : LEASE_DELETE_NAMES;
		size_t		room;
		MYSQL_STMT *statement = get_delete(statements, some, &room);

		if (statement == NULL)
			return false;
		memset(binds, 0, (room + 1) * sizeof(MYSQL_BIND));
		for (size_t i = 0; i < room; i++)
		{
			/* the last one again and again */
			const lease_bytes *name = &names[i < some ? i : some - 1];

			bind_bytes(&binds[i], name->data, name->length);
		}
		binds[room].is_unsigned = 1;
		bind_number(&binds[room], &statements->writer);
		if (!execute(statement, binds))
			return false;
		*deleted += mysql_stmt_affected_rows(statement);
		names += some;
		n -= some;
	}
	return true;
}

/*
 * Replace the journal, if it is what this run has written last, as its number
 * "from"; "written" says whether it was.  False if that fails, and the
 * connection has the error.
 */
bool
lease_statements_journal(lease_statements *statements, uint64_t from,
						 const char *leases, size_t length, bool *written)
{
	static const char query[] = "UPDATE dlock.lease_journal"
		" SET changes = ?, leases = ?"
		" WHERE place = 0 AND changes = ? AND writer = ?";
	MYSQL_BIND	binds[4] = {0};
	uint64_t	to = from + 1;

	if (statements->journal == NULL)
		statements->journal = prepare(statements, query, strlen(query));
	if (statements->journal == NULL)
		return false;
	for (size_t i = 0; i < 4; i++)
		binds[i].is_unsigned = 1;
	bind_number(&binds[0], &to);
	bind_bytes(&binds[1], leases, length);
	bind_number(&binds[2], &from);
	bind_number(&binds[3], &statements->writer);
	if (!execute(statements->journal, binds))
		return false;
	*written = mysql_stmt_affected_rows(statements->journal) == 1;
	return true;
}
