/*
 * append.c
 *	  Compare and append.
 *
 * A row is inserted behind row N by a statement that locks row N, and finds it only if its
 * writer is the one that is known: row N is there, as it is known, from the moment at which
 * the statement looks until it commits.  Without the lock a statement that stood still
 * between the two was appended onto a log that had been deleted meanwhile.  Two statements
 * that append the same number get each other's duplicate key.
 *
 * An error of the statement says little: it may have been lost on its way, or have been
 * committed, or go on in the server without its connection.  So none is looked at, but for
 * those that say that the statement was not even begun.  The
 * tail tells what has happened, and if it does not, the same rows are appended again: if an
 * earlier attempt takes place after all, the later one fails, and the tail has these rows.
 *
 * Nobody kills an append: MariaDB reports that as a success.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE				/* asprintf() */
#include "log_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APPEND \
	"INSERT INTO dlock.log (number, writer, entries)" \
	" SELECT number + 1, ?, ? FROM dlock.log WHERE number = ? AND writer = ?" \
	" AND " LOG_IS_WRITABLE " LOCK IN SHARE MODE"

/* Note an error. */
static void
note_error(log_connection *c, unsigned int code, const char *sqlstate,
		   const char *error)
{
	c->code = code;
	snprintf(c->sqlstate, sizeof(c->sqlstate), "%s", sqlstate);
	snprintf(c->error, sizeof(c->error), "%s", *error == '\0' ? "unknown error" : error);
}

/* Note the error of the last statement. */
void
log_note_failed(log_connection *c)
{
	note_error(c, mysql_errno(c->mysql), mysql_sqlstate(c->mysql),
			   mysql_error(c->mysql));
}

static void
clear_error(log_connection *c)
{
	c->code = 0;
	c->sqlstate[0] = c->error[0] = '\0';
}

/* Note that a row cannot be read. */
log_result
log_damaged(log_connection *c, uint64_t number)
{
	char		error[sizeof(c->error)];

	snprintf(error, sizeof(error), "row %" PRIu64 " of dlock.log cannot be read",
			 number);
	note_error(c, 0, "XX001", error);
	return LOG_DAMAGED;
}

/* Execute a statement that has no answer. */
bool
log_execute(log_connection *c, const char *statement, size_t length)
{
	if (c->mysql == NULL)
		note_error(c, 0, "08003", "there is no connection to the server");
	else if (mysql_real_query(c->mysql, statement, length) != 0)
		log_note_failed(c);
	else
		return true;
	return false;
}

/* Send a query for rows of the log: NULL if it fails.  Streamed, they are not stored. */
MYSQL_RES *
log_query(log_connection *c, const char *query, bool streamed)
{
	MYSQL_RES  *result;

	if (!log_execute(c, query, strlen(query)))
		return NULL;
	result = streamed ? mysql_use_result(c->mysql) : mysql_store_result(c->mysql);
	if (result == NULL)
		log_note_failed(c);
	return result;
}

/* Get the next row of an answer: false if there is none, which may be an error. */
bool
log_fetch(MYSQL_RES *result, log_raw *raw)
{
	MYSQL_ROW	columns = mysql_fetch_row(result);
	unsigned long *lengths;

	if (columns == NULL)
		return false;
	lengths = mysql_fetch_lengths(result);
	*raw = (log_raw) {
		.number = columns[0] != NULL ? strtoull(columns[0], NULL, 10) : 0,
		.writer = columns[1] != NULL ? strtoull(columns[1], NULL, 10) : 0,
		.data = columns[2],
		.length = columns[2] != NULL ? lengths[2] : 0,
	};
	return true;
}

/* Roll back the transaction under way.  If that fails, the connection is of no use. */
void
log_rollback(log_connection *c)
{
	if (c->in_transaction && c->mysql != NULL)
		mysql_query(c->mysql, "ROLLBACK");
	c->in_transaction = false;
}

/* Forget the prepared statement: the connection is about to be closed, or was lost. */
void
log_disconnected(log_connection *c)
{
	if (c->append != NULL)
		mysql_stmt_close(c->append);
	c->append = NULL;
	c->in_transaction = false;
}

/* Note the error of the prepared statement, which may be the client library's own. */
static bool
append_failed(log_connection *c)
{
	if (mysql_stmt_errno(c->append) != 0)
		note_error(c, mysql_stmt_errno(c->append),
				   mysql_stmt_sqlstate(c->append),
				   mysql_stmt_error(c->append));
	else
		log_note_failed(c);
	return false;
}

/* Prepare the statement, once: parsing and planning it costs the server a fifth of it. */
static bool
prepare_append(log_connection *c)
{
	if (c->append != NULL)
		return true;
	c->append = mysql_stmt_init(c->mysql);
	if (c->append == NULL)
	{
		note_error(c, 0, "53200", "out of memory");
		return false;
	}
	if (mysql_stmt_prepare(c->append, APPEND, strlen(APPEND)) == 0)
		return true;
	append_failed(c);
	mysql_stmt_close(c->append);
	c->append = NULL;
	return false;
}

/*
 * Append a row behind another one.  False, without an error, if that was not there, or the
 * server is read-only.
 */
static bool
append_row(log_connection *c, uint64_t number, uint64_t writer, uint64_t me,
		   const log_slot *slot)
{
	unsigned long length = (unsigned long) slot->draft.length;
	MYSQL_BIND	binds[4] = {
		{.buffer_type = MYSQL_TYPE_LONGLONG, .buffer = &me, .is_unsigned = 1},
		{.buffer_type = MYSQL_TYPE_BLOB, .buffer = (void *) slot->data,
		.buffer_length = length, .length = &length},
		{.buffer_type = MYSQL_TYPE_LONGLONG, .buffer = &number, .is_unsigned = 1},
		{.buffer_type = MYSQL_TYPE_LONGLONG, .buffer = &writer, .is_unsigned = 1},
	};

	if (!prepare_append(c))
		return false;
	if (mysql_stmt_bind_param(c->append, binds) != 0 ||
		mysql_stmt_execute(c->append) != 0)
		return append_failed(c);
	return mysql_stmt_affected_rows(c->append) == 1;
}

/*
 * Say whether the transaction is still there.  A node of Galera may have rolled it back for
 * another node's; what came then would be a transaction of its own.
 */
static bool
is_in_transaction(const log_connection *c)
{
	return (c->mysql->server_status & SERVER_STATUS_IN_TRANS) != 0;
}

/* Append the rows, and what goes with them: true if all was committed. */
static bool
append_all(log_connection *c, const log_position *position, uint64_t me,
		   const log_batch *batch, const lease_bytes *also, size_t nalso)
{
	bool		is_one = batch->count == 1 && nalso == 0 && !c->in_transaction;

	if (!is_one && !c->in_transaction)
	{
		if (!LOG_EXECUTE(c, "START TRANSACTION"))
			return false;
		c->in_transaction = true;
	}
	for (size_t i = 0; i < batch->count; i++)
		if (!append_row(c, position->number + i,
						i == 0 ? position->writer : me, me, &batch->slots[i]))
			return false;
	if (is_one)
		return true;
	for (size_t i = 0; i < nalso; i++)
		if (!is_in_transaction(c) ||
			!log_execute(c, also[i].data, also[i].length))
			return false;
	if (!is_in_transaction(c) || !LOG_EXECUTE(c, "COMMIT"))
		return false;
	c->in_transaction = false;
	return true;
}

/* Read what is behind a position: what has become of a batch? */
static log_result
read_tail(log_connection *c, const log_position *position, uint64_t me,
		  const log_batch *batch)
{
	const log_slot *slot = &batch->slots[0];
	log_connection asked = *c;	/* the append's error is the one to be kept */
	char		query[160];
	MYSQL_RES  *result;
	log_raw		raw;
	log_result	answer;

	snprintf(query, sizeof(query), LOG_SELECT "WHERE number >= %" PRIu64
			 " ORDER BY number LIMIT 2", position->number);
	result = log_query(&asked, query, false);
	if (result == NULL)
	{
		if (c->error[0] == '\0')
			*c = asked;
		return LOG_LOST;
	}
	if (!log_fetch(result, &raw) || !log_is_at(&raw, position))
		answer = LOG_GONE;
	else if (!log_fetch(result, &raw))
		answer = LOG_NOTHING;
	else if (raw.number == position->number + 1 && raw.writer == me &&
			 raw.length == slot->draft.length &&
			 memcmp(raw.data, slot->data, raw.length) == 0)
		answer = LOG_FOUND;
	else
		answer = LOG_OTHERS;
	mysql_free_result(result);
	return answer;
}

/* Say whether an error is one of a statement that was not even begun: what it names is missing. */
static bool
is_not_executed(unsigned int code)
{
	return code == 1146 || code == 1049 || code == 1054;
}

/*
 * Append a sealed batch behind a position, as the run "me", and execute the statements in
 * "also" in the same transaction, which may be one that is under way.  Unless the batch was
 * appended, the transaction is gone, and what was locked in it is not locked any more.
 */
log_result
log_append(log_connection *c, const log_position *position, uint64_t me,
		   const log_batch *batch, const lease_bytes *also, size_t nalso)
{
	log_result	result;

	clear_error(c);
	if (append_all(c, position, me, batch, also, nalso))
		return LOG_APPENDED;
	log_rollback(c);
	if (is_not_executed(c->code))
		return LOG_NOTHING;
	result = read_tail(c, position, me, batch);
	/* whatever has gone wrong, it was no conflict: begin with a new statement */
	if (result == LOG_NOTHING && c->append != NULL)
	{
		mysql_stmt_close(c->append);
		c->append = NULL;
	}
	return result;
}

/* Read rows of guards, and say how many there are: false if that has failed. */
static bool
count_guards(log_connection *c, const char *numbers, const char *how, uint64_t *count)
{
	char	   *query = NULL;
	int			length = asprintf(&query, "SELECT number FROM dlock.guards WHERE number IN (%s)%s",
								  numbers, how);
	MYSQL_RES  *result;

	if (length < 0)
		return false;
	result = log_query(c, query, false);
	free(query);
	*count = result != NULL ? mysql_num_rows(result) : 0;
	mysql_free_result(result);
	return result != NULL;
}

/*
 * Begin the transaction of an append that ends guards, by locking their rows.  Who has locked
 * one guards all the same: then nothing may be appended.  LOG_OK: append now.
 */
log_result
log_lock_guards(log_connection *c, const char *numbers)
{
	uint64_t	locked;
	uint64_t	all;
	bool		known;

	clear_error(c);
	c->in_transaction = LOG_EXECUTE(c, "START TRANSACTION");
	known = c->in_transaction &&
		count_guards(c, numbers, " FOR UPDATE SKIP LOCKED", &locked) &&
		count_guards(c, numbers, "", &all);
	if (known && locked == all)
		return LOG_OK;
	log_rollback(c);
	return known ? LOG_GUARDED : c->code >= 2000 && c->code < 3000 ? LOG_LOST : LOG_NOTHING;
}

/* The rows of a batch have been appended, or found: it is the position now. */
void
log_passed(log_position *position, uint64_t me, const log_batch *batch)
{
	position->number += batch->count;
	position->writer = me;
	position->from = log_from_of(&batch->slots[batch->count - 1]);
}
