/*
 * lease_takeover.c
 *	  The journal's transactions: moving what it has, and taking over.
 *
 * lease_journal.c says what for.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_table_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lease_present.h"

/* So many rows can be counted when a run takes over. */
#define COUNT_MAX		100000

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

/* Say whether it has leases of a name. */
bool
lease_table_is_journaled(const lease_table *table, lease_bytes name)
{
	return lease_journal_has(table->journal, name);
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
	lease_table_move_journal(table);
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
	uint64_t	changes = 0;
	uint64_t	writer = 0;

	*any = false;
	if (mysql_query(table->connection, SELECT_JOURNAL) != 0)
		return lease_table_failed(table);
	return lease_table_fetch_journal(table, &changes, &writer, note_journaled,
									 any);
}

/* Count the rows of all names, unless there are too many. */
static lease_status
count_rows(lease_table *table)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;

	lease_text_clear(&table->query);
	lease_text_add(&table->query, "SELECT name FROM dlock.lease_table LIMIT %d",
			 COUNT_MAX + 1);
	if (mysql_real_query(table->connection, table->query.data,
						 table->query.length) != 0 ||
		(result = mysql_store_result(table->connection)) == NULL)
		return lease_table_failed(table);
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
 * Take over the journal: what is in it becomes rows, and it is this run's from then
 * on.  "others" says that it may be another run's; otherwise, and where nobody else
 * can write the table, it is a conflict if it is.
 */
lease_status
lease_table_take_over(lease_table *table, bool others)
{
	lease_text *query = &table->query;
	uint64_t	changes = 0;
	uint64_t	writer = 0;
	lease_status status = lease_table_refuse_if_read_only(table);

	if (status != LEASE_STATUS_OK)
		return status;
	lease_table_forget_journal(table);
	lease_table_rollback(table);
	if ((status = lease_table_begin(table)) != LEASE_STATUS_OK)
		return status;
	if (mysql_query(table->connection, SELECT_JOURNAL " FOR UPDATE") != 0)
		return lease_table_failed(table);
	status = lease_table_fetch_journal(table, &changes, &writer, put_journaled,
									   table);
	if (status != LEASE_STATUS_OK)
		return status;
	if (!others && table->alone && writer != table->writer)
		return lease_table_fail_for_change(table);
	if ((status = lease_table_write_changes(table)) != LEASE_STATUS_OK ||
		(table->alone && (status = count_rows(table)) != LEASE_STATUS_OK))
		return status;
	lease_text_clear(query);
	lease_text_add(query, "UPDATE dlock.lease_journal SET changes = %" PRIu64
			 ", writer = %" PRIu64 ", leases = '' WHERE place = 0;COMMIT",
			 changes + 1, table->writer);
	if ((status = lease_table_execute_all(table, query)) != LEASE_STATUS_OK)
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

/*
 * Read the largest mark, and whether this run has raised all marks last, in a
 * transaction that keeps them as they are.
 */
static lease_status
read_marks(lease_table *table, uint64_t *last, bool *own)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;

	lease_text_clear(&table->query);
	lease_text_add(&table->query, "SELECT COALESCE(MAX(mark), 0),"
				   " COUNT(*) = SUM(writer = %" PRIu64 ")"
				   " FROM dlock.lease_mark FOR UPDATE", table->writer);
	if (mysql_real_query(table->connection, table->query.data,
						 table->query.length) != 0 ||
		(result = mysql_store_result(table->connection)) == NULL)
		return lease_table_failed(table);
	columns = mysql_fetch_row(result);
	*last = columns != NULL ? strtoull(columns[0], NULL, 10) : 0;
	*own = columns != NULL && columns[1] != NULL && columns[1][0] == '1';
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}

/*
 * Raise all marks, for all tokens to be larger than any that may have been granted and
 * lost, by another run or by a server that follows another history: to where the core
 * says that the tokens start, unless that is to wait.  They are this run's then; that
 * they still are, lease_statements_insert() checks.
 *
 * If this run has raised them last, and nobody else can write the table, then no token
 * of this history is unknown, and there is nothing to wait for.  They are raised to the
 * clock all the same: another server may have been promoted meanwhile, and lost, before
 * this one had any of its history.
 */
lease_status
lease_table_raise_marks(lease_table *table, int64_t wall_us,
						lease_takeover *takeover)
{
	uint64_t	last = 0;
	bool		own = false;
	lease_status status = lease_table_refuse_if_read_only(table);

	if (status != LEASE_STATUS_OK)
		return status;
	lease_table_rollback(table);
	if ((status = lease_table_begin(table)) != LEASE_STATUS_OK ||
		(status = read_marks(table, &last, &own)) != LEASE_STATUS_OK)
		return status;
	if (own && table->alone)
	{
		/* the core adds what may be lost */
		*takeover = lease_take_over(last > LEASE_TOKENS_PER_SECOND ?
									last - LEASE_TOKENS_PER_SECOND : 0, wall_us);
		if (takeover->clock_is_behind)
			*takeover = (lease_takeover) {.floor = last};
	}
	else
		*takeover = lease_take_over(last, wall_us);
	if (takeover->wait_us > 0 || (own && takeover->floor == last))
	{
		lease_table_rollback(table);
		return LEASE_STATUS_OK;
	}
	lease_text_clear(&table->query);
	lease_text_add(&table->query, "UPDATE dlock.lease_mark SET mark ="
				   " GREATEST(mark, %" PRIu64 "), writer = %" PRIu64 ";COMMIT",
				   takeover->floor, table->writer);
	status = lease_table_execute_all(table, &table->query);
	if (status != LEASE_STATUS_OK)
		return status;
	table->in_transaction = false;
	lease_table_rollback(table);
	return LEASE_STATUS_OK;
}
