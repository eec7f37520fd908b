/*
 * lease_rows.c
 *	  Read the rows of the lock table.
 *
 * Rows are read twice in a statement each: locked, passing over those that
 * another transaction has locked, then as committed.  What only the second
 * finds is locked by somebody, most likely by a guard.
 *
 * Rows to be changed are always looked for by their key.  In a small table the
 * server would rather look at all, and wait for those that others have locked.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_table_parts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
find_name(const lease_bytes *names, size_t n, lease_bytes name)
{
	for (size_t i = 0; i < n; i++)
		if (lease_same(names[i], name))
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
		return lease_table_failed(table);
	while ((columns = mysql_fetch_row(result)) != NULL)
	{
		const unsigned long *lengths = mysql_fetch_lengths(result);
		size_t		i = find_name(names, n, (lease_bytes) {
			columns[0], lengths[0]
		});
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
	size_t		i = find_name(to->names, to->n, name);

	if (i < to->n)
		lease_rows_add(&to->rows[i], row);
}

/*
 * Fetch the journal: who has written it, and under which number; its leases are
 * visited, if they are wanted.
 */
lease_status
lease_table_fetch_journal(lease_table *table, uint64_t *changes,
						  uint64_t *writer, lease_journal_visitor visit,
						  void *context)
{
	MYSQL_RES  *result = mysql_store_result(table->connection);
	MYSQL_ROW	columns;
	bool		exists;
	bool		whole = false;

	if (result == NULL)
		return lease_table_failed(table);
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
	return lease_table_give_up(table, LEASE_STATUS_FAILED, "XX001", exists ?
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
		return lease_table_failed(table);
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
			return lease_table_give_up(table, LEASE_STATUS_FAILED, "XX001",
									   "table dlock.lease_mark lacks rows; run install.sql again");
	return LEASE_STATUS_OK;
}

/* Go on to the next of several answers. */
static lease_status
next_result(lease_table *table)
{
	return mysql_next_result(table->connection) == 0 ? LEASE_STATUS_OK :
		lease_table_failed(table);
}

/* Add the query for the rows of names. */
static void
add_select(lease_text *query, const lease_bytes *names, size_t n)
{
	lease_text_add(query, "SELECT " LEASE_ROW_COLUMNS
			 " FROM dlock.lease_table FORCE INDEX (PRIMARY) WHERE name IN (");
	for (size_t i = 0; i < n; i++)
	{
		if (i > 0)
			lease_text_add(query, ",");
		lease_text_add_bytes(query, names[i].data, names[i].length);
	}
	lease_text_add(query, ") ORDER BY name, slot");
}

lease_status
lease_table_read(lease_table *table, const lease_bytes *names, size_t n,
				 lease_rows *rows, uint64_t *marks, bool lock, bool move)
{
	lease_text *query = &table->query;
	name_rows	journaled = {names, n, rows};
	uint64_t	changes = 0;
	uint64_t	writer = 0;
	bool		begins;
	lease_status status;

	/* in a cluster it is of no use, but to those who do not know it */
	bool		looks = table->alone || !table->knows_journal;

	lease_table_rollback(table);
	for (size_t i = 0; i < n; i++)
		rows[i].count = 0;
	if (table->connection == NULL)
		return LEASE_STATUS_LOST;
	if (lock && (status = lease_table_refuse_if_read_only(table)) != LEASE_STATUS_OK)
		return status;

	assert(table->knows_journal || !move);
	if (move)
		lease_table_move_journal(table);
	else
		lease_journal_visit(table->journal, add_journaled, &journaled);
	lease_text_clear(query);
	begins = !lease_journal_is_changed(table->journal);
	if (begins)
		lease_text_add(query, "START TRANSACTION;");
	else if ((status = lease_table_begin(table)) != LEASE_STATUS_OK ||
			 (status = lease_table_write_new(table)) != LEASE_STATUS_OK)
		return status;
	if (lock)
	{
		add_select(query, names, n);
		lease_text_add(query, " FOR UPDATE SKIP LOCKED;");
	}
	add_select(query, names, n);
	if (looks)
		lease_text_add(query, ";" SELECT_JOURNAL);
	lease_text_add(query, ";SELECT bucket, mark FROM dlock.lease_mark"
			 " WHERE bucket IN (");
	for (size_t i = 0; i < n; i++)
		lease_text_add(query, "%s%" PRIu32, i > 0 ? "," : "",
				 lease_table_bucket(names[i]));
	lease_text_add(query, ")");

	table->in_transaction = true;
	if (mysql_real_query(table->connection, query->data, query->length) != 0)
		return lease_table_failed(table);
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
		status = lease_table_fetch_journal(table, &changes, &writer,
										   table->knows_journal ? NULL :
										   add_journaled, &journaled);
		if (status != LEASE_STATUS_OK ||
			(status = next_result(table)) != LEASE_STATUS_OK)
			return status;
		if (table->knows_journal &&
			(changes != table->changes + table->sends_journal ||
			 writer != table->writer))
			return lease_table_fail_for_change(table);
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
		return lease_table_failed(table);
	result = mysql_store_result(table->connection);
	if (result == NULL)
		return lease_table_failed(table);
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
	lease_text_clear(&table->query);
	lease_text_add(&table->query, "SELECT " LEASE_ROW_COLUMNS
			 " FROM dlock.lease_table WHERE owner = ");
	lease_text_add_bytes(&table->query, owner.data, owner.length);
	lease_text_add(&table->query, " AND account_user = ");
	lease_text_add_bytes(&table->query, caller->user, strlen(caller->user));
	lease_text_add(&table->query, " AND account_host = ");
	lease_text_add_bytes(&table->query, caller->host, strlen(caller->host));
	lease_text_add(&table->query, " ORDER BY name");
	return visit(table, visitor, context);
}

/* Visit rows that this run has written and whose deadline has come. */
lease_status
lease_table_visit_due(lease_table *table, int64_t due_us, size_t limit,
					  lease_row_visitor visitor, void *context)
{
	lease_text_clear(&table->query);
	lease_text_add(&table->query, "SELECT " LEASE_ROW_COLUMNS
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
	lease_text_clear(&table->query);
	lease_text_add(&table->query, "SELECT " LEASE_ROW_COLUMNS
			 " FROM dlock.lease_table WHERE writer <> %" PRIu64
			 " AND (name > ", table->writer);
	lease_text_add_bytes(&table->query, after_name.data, after_name.length);
	lease_text_add(&table->query, " OR name = ");
	lease_text_add_bytes(&table->query, after_name.data, after_name.length);
	lease_text_add(&table->query, " AND slot > %" PRIu32
			 ") ORDER BY name, slot LIMIT %zu", after_slot, limit);
	return visit(table, visitor, context);
}
