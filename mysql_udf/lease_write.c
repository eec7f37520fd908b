/*
 * lease_write.c
 *	  Collect what is to be written, write it, and commit.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_table_parts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lease_present.h"

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

/* Forget what was to be written. */
void
lease_table_forget_changes(lease_table *table)
{
	lease_text_clear(&table->puts);
	table->ninserts = 0;
	table->ninserted = 0;
	lease_text_clear(&table->deletes);
	table->nowns = 0;
	lease_text_clear(&table->touches);
	lease_text_clear(&table->advances);
	lease_text_clear(&table->advanced);
	table->nremoved = 0;
	table->duplicate = false;
	table->moves_journal = false;
	table->sends_journal = false;
	lease_journal_undo(table->journal);
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
		return lease_table_failed(table);
	return written ? LEASE_STATUS_OK : lease_table_fail_for_change(table);
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
void
lease_table_move_journal(lease_table *table)
{
	lease_journal_visit(table->journal, add_insert, table);
	lease_journal_remove_all(table->journal);
	table->moves_journal = lease_journal_is_changed(table->journal);
}

/* Insert the rows that were collected, and replace the journal. */
lease_status
lease_table_write_new(lease_table *table)
{
	lease_status status = LEASE_STATUS_OK;

	if (!lease_statements_insert(table->statements,
								 table->inserts + table->ninserted,
								 table->ninserts - table->ninserted,
								 table->alone))
		return lease_table_failed(table);
	table->ninserted = table->ninserts;
	if (lease_journal_is_changed(table->journal) && !table->sends_journal)
		status = write_journal(table);
	return status;
}

/* Add "(name = ... AND slot = ...)". */
static void
add_condition(lease_text *t, lease_bytes name, uint32_t slot)
{
	lease_text_add(t, "%s(name = ", t->length > 0 ? " OR " : "");
	lease_text_add_bytes(t, name.data, name.length);
	lease_text_add(t, " AND slot = %" PRIu32 ")", slot);
}

/* Add a name to an array. */
static void
add_name(lease_bytes **names, size_t *n, size_t *room, lease_bytes name)
{
	if (*n == *room)
		*names = lease_grow(*names, room, sizeof(lease_bytes));
	(*names)[(*n)++] = name;
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
	lease_text *t = &table->puts;

	assert(kind == LEASE_WRITE_GRANT || kind == LEASE_WRITE_INSERT ||
		   kind == LEASE_WRITE_DELETE_OWN ||
		   !lease_journal_has(table->journal, name));
	switch (kind)
	{
		case LEASE_WRITE_DELETE:
			add_name(&table->removed, &table->nremoved, &table->removed_room,
					 name);
			lease_text_add(&table->deletes,
					 "DELETE FROM dlock.lease_table WHERE name = ");
			lease_text_add_bytes(&table->deletes, name.data, name.length);
			lease_text_add(&table->deletes, " AND slot = %" PRIu32 ";", row->slot);
			return;
		case LEASE_WRITE_DELETE_OWN:
			if (!lease_journal_remove(table->journal, name))
				add_name(&table->owns, &table->nowns, &table->owns_room, name);
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
	lease_text_add(t, t->length > 0 ? ",(" : "(");
	lease_text_add_bytes(t, name.data, name.length);
	lease_text_add(t, ",%" PRIu32 ",", row->slot);
	lease_text_add_bytes(t, row->owner, row->owner_length);
	lease_text_add(t, ",");
	lease_text_add_bytes(t, row->user, strlen(row->user));
	lease_text_add(t, ",");
	lease_text_add_bytes(t, row->host, strlen(row->host));
	lease_text_add(t, ",%d,%d,%" PRIu32 ",%" PRIu64 ",", (int) row->mode,
			 (int) row->kind, row->version, row->token);
	lease_text_add_bytes(t, row->request, row->request_length);
	lease_text_add(t, ",%" PRId64 ",%" PRIu64 ",%" PRIu64 ",%" PRId64 ",%" PRIu64
			 ",%" PRId64 ",%" PRId64 ")", row->ttl_us, row->writes,
			 row->writer, row->deadline_us, row->connection_id,
			 row->acquired_us, row->expires_us);
}

/* Set a mark that is believed to be "from": a conflict if it is not. */
void
lease_table_advance_mark(lease_table *table, uint32_t bucket, uint64_t from,
						 uint64_t mark)
{
	lease_text_add(&table->advances, " WHEN bucket = %" PRIu32
				   " AND mark = %" PRIu64 " THEN %" PRIu64, bucket, from,
				   mark);
	lease_text_add(&table->advanced, "%s%" PRIu32,
				   table->advanced.length > 0 ? "," : "", bucket);
}

/* Write what was collected of rows that were read. */
lease_status
lease_table_write_changes(lease_table *table)
{
	lease_text *query = &table->query;

	if (table->deletes.length == 0 && table->puts.length == 0)
		return LEASE_STATUS_OK;
	lease_text_clear(query);
	lease_text_add(query, "%s", table->deletes.data);
	if (table->puts.length > 0)
		lease_text_add(query, "INSERT INTO dlock.lease_table (" LEASE_ROW_COLUMNS
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
	return lease_table_execute_all(table, query);
}

/* Write what was collected of other rows, and commit. */
static lease_status
write_rest(lease_table *table)
{
	lease_text *query = &table->query;

	lease_text_clear(query);
	if (table->touches.length > 0)
		lease_text_add(query, "UPDATE dlock.lease_table FORCE INDEX (PRIMARY)"
				 " SET guards = guards + 1"
				 " WHERE %s;", table->touches.data);
	if (table->advances.length > 0)
		lease_text_add(query, "UPDATE dlock.lease_mark FORCE INDEX (PRIMARY)"
				 " SET mark = CASE%s END"
				 " WHERE bucket IN (%s);", table->advances.data,
				 table->advanced.data);
	lease_text_add(query, "COMMIT");
	return lease_table_execute_all(table, query);
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
		return lease_table_refuse(table);
	if (table->duplicate)
	{
		/* as if it was a row */
		lease_table_rollback(table);
		table->marks_differ = false;
		return LEASE_STATUS_CONFLICT;
	}
	if (lease_journal_is_full(table->journal))
		lease_table_move_journal(table);
	if (!table->in_transaction && !is_one_statement(table) &&
		(status = lease_table_begin(table)) != LEASE_STATUS_OK)
		return status;
	if (!lease_statements_delete(table->statements, table->owns, table->nowns,
								 &deleted))
		return lease_table_failed(table);
	*missed = deleted < table->nowns;
	if ((status = lease_table_write_changes(table)) != LEASE_STATUS_OK)
		return status;
	if ((status = lease_table_write_new(table)) != LEASE_STATUS_OK)
		return status;
	if (table->in_transaction &&
		(status = write_rest(table)) != LEASE_STATUS_OK)
		return status;
	table->in_transaction = false;
	note_committed(table, *missed);
	lease_table_rollback(table);
	return LEASE_STATUS_OK;
}
