/*
 * clean.c
 *	  Keeping the log short: how much to carry, and deleting what is needed no more.
 *
 * Leases of the oldest rows are carried with each append while the log is more than twice
 * what lives, about as many bytes as the append has itself.  That is enough: while all that
 * lives is written once more, as much that will not live is written beside it.  So the cost
 * is spread, and nothing that has ended is written twice.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "log_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#ifndef CLEAN_LEAST				/* tests have less patience */

/* Bytes that the log may have whatever lives. */
#define LOG_BYTES_LEAST		262144

/* Rows are deleted if there are so many, in pieces, */
#define CLEAN_LEAST			1000
#define CLEAN_PIECE			1000

/*
 * and if they were not needed so long ago: a run that has fallen behind by less follows the
 * log, and one that loads it is done by then.
 */
#define CLEAN_AGE_US		3000000
#endif

/*
 * How many bytes of entries to carry with a batch: 0, or so many, or a little more.
 * "log_bytes" are those of the rows from where the log is complete, "live_bytes" those of
 * the entries of leases that live.  The batch gets one more row by that only if rows were
 * so full for long that there was no room.
 */
size_t
log_carry_most(uint64_t log_bytes, uint64_t live_bytes, const log_batch *batch)
{
	size_t		bytes = log_batch_bytes(batch);
	size_t		most = bytes + bytes / 2;
	uint64_t	least = LOG_BYTES_LEAST;
	size_t		left;

	if (batch->count == 0 || log_bytes <= 2 * live_bytes + least)
		return 0;
	if (log_bytes > 3 * live_bytes + 2 * least)
		return most;
	left = log_row_most(batch) - batch->slots[batch->count - 1].draft.length;
	left -= left < LOG_ENTRY_MOST ? left : LOG_ENTRY_MOST;
	return most < left ? most : left;
}

/* Read which row is the first. */
static log_result
read_first(log_connection *c, uint64_t *first)
{
	MYSQL_RES  *result = log_query(c, LOG_SELECT "ORDER BY number LIMIT 1", false);
	log_raw		raw;

	if (result == NULL)
		return LOG_LOST;
	*first = log_fetch(result, &raw) ? raw.number : 0;
	mysql_free_result(result);
	return *first > 0 ? LOG_OK : LOG_GONE;
}

/*
 * Delete rows, if the row of the position is as it is known: otherwise another log may have
 * taken the place of this one.  Both bounds are named: without the lower one the server
 * would go through all rows that were deleted and that an old snapshot still sees.
 */
static log_result
delete_rows(log_connection *c, const log_position *position, uint64_t first,
			uint64_t below)
{
	char		statement[320];
	MYSQL_RES  *result;
	log_raw		raw;
	bool		is_known;

	if (!LOG_EXECUTE(c, "START TRANSACTION"))
		return LOG_LOST;
	c->in_transaction = true;
	snprintf(statement, sizeof(statement), LOG_SELECT "WHERE number = %" PRIu64
			 " AND writer = %" PRIu64 " AND " LOG_IS_WRITABLE " LOCK IN SHARE MODE",
			 position->number, position->writer);
	result = log_query(c, statement, false);
	if (result == NULL)
		return LOG_LOST;
	is_known = log_fetch(result, &raw);
	mysql_free_result(result);
	if (!is_known)
		return LOG_GONE;
	snprintf(statement, sizeof(statement), "DELETE FROM dlock.log WHERE number >= %"
			 PRIu64 " AND number < %" PRIu64, first, below);
	if (!log_execute(c, statement, strlen(statement)) || !LOG_EXECUTE(c, "COMMIT"))
		return LOG_LOST;
	c->in_transaction = false;
	return LOG_OK;
}

/*
 * Delete what was needed no more some time ago, from the first row on.  The position is one
 * of this run's own, known to be durable.  LOG_GONE: the log is not as it is known, or the
 * server is read-only; LOG_LOST: try again later.
 */
log_result
log_clean(log_connection *c, log_cleaning *cleaning, const log_position *position,
		  int64_t now_us)
{
	log_result	result = LOG_OK;

	/* the log may have been replaced by one that is complete from an earlier row on */
	if (cleaning->from > position->from)
	{
		cleaning->from = position->from;
		cleaning->first = 0;
	}
	if (cleaning->first == 0)
		result = read_first(c, &cleaning->first);
	if (now_us - cleaning->since_us < CLEAN_AGE_US)
		return result;
	while (result == LOG_OK && cleaning->from >= cleaning->first + CLEAN_LEAST)
	{
		uint64_t	below = cleaning->first + CLEAN_PIECE;

		result = delete_rows(c, position, cleaning->first, below);
		log_rollback(c);
		if (result == LOG_OK)
			cleaning->first = below;
	}
	cleaning->from = position->from;
	cleaning->since_us = now_us;
	return result;
}
