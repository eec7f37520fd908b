/*
 * load.c
 *	  Reading the log: what has come behind a position, and all of it.
 *
 * One SELECT sees the table as it was at one moment.  Numbers without a gap and each row's
 * word of who wrote the one before show that nothing is missing.
 *
 * A loader begins with the row from which the last row says that the log is complete.  A
 * change of a lease that it has not met is nothing then: the lease was in an older row, and
 * comes again in a later one, carried, if it still lives.  But behind the first row that
 * says what the last row says, all is known, and such a change means that the log is
 * damaged.  (doc/model/carry.pml)
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "log_table.h"

#include <inttypes.h>
#include <stdio.h>

/* The most rows that are read, and held in memory, at once. */
#define FOLLOW_MOST		500

/* What a loader knows of the rows that it has read. */
typedef struct log_loading
{
	log_position at;			/* the last of them; number 0: none */
	uint64_t	said;			/* the first row that said what that one does of
								 * "complete from" */
	uint64_t	unknown;		/* the last row with something unknown; 0: none */
} log_loading;

/* Read a row that has to follow another one, or to be the first, and have it visited. */
static log_result
visit_row(log_connection *c, log_loading *loading, const log_raw *raw,
		  log_visitor visit, void *context)
{
	log_row		row;

	if (loading->at.number > 0 && raw->number != loading->at.number + 1)
		return LOG_HOLE;
	if (!log_read_row(&row, raw->number, raw->writer, raw->data, raw->length) ||
		(loading->at.number > 0 && row.before != loading->at.writer))
		return log_damaged(c, raw->number);
	switch (visit(context, &row))
	{
		case LOG_VISITED:
			break;
		case LOG_VISIT_UNKNOWN:
			loading->unknown = row.number;
			break;
		case LOG_VISIT_DAMAGED:
			return log_damaged(c, row.number);
		case LOG_VISIT_NO_MEMORY:
			return LOG_NO_MEMORY;
	}
	if (loading->at.number == 0 || row.from != loading->at.from)
		loading->said = row.number;
	loading->at = (log_position) {row.number, row.writer, row.from};
	return LOG_OK;
}

/*
 * Read the rows behind a position, which becomes the last that was visited.  LOG_HOLE: the
 * next is missing, and later ones are there.
 */
log_result
log_follow(log_connection *c, log_position *position, log_visitor visit,
		   void *context)
{
	char		query[160];
	MYSQL_RES  *result;
	log_raw		raw;
	log_result	answer;
	size_t		rows;

	do
	{
		log_loading loading = {.at = *position};

		snprintf(query, sizeof(query), LOG_SELECT "WHERE number >= %" PRIu64
				 " ORDER BY number LIMIT %d", position->number, FOLLOW_MOST);
		result = log_query(c, query, false);
		if (result == NULL)
			return LOG_LOST;
		answer = log_fetch(result, &raw) && log_is_at(&raw, position) ?
			LOG_OK : LOG_GONE;
		for (rows = 1; answer == LOG_OK && log_fetch(result, &raw); rows++)
		{
			answer = visit_row(c, &loading, &raw, visit, context);
			/* who has loaded the log knows all that it holds */
			if (answer == LOG_OK && loading.unknown > 0)
				answer = log_damaged(c, raw.number);
			if (answer == LOG_OK)
				*position = loading.at;
		}
		mysql_free_result(result);
	} while (answer == LOG_OK && rows == FOLLOW_MOST);
	return answer;
}

/* Read from which row on the log is complete, as its last row says. */
static log_result
read_from(log_connection *c, uint64_t last, uint64_t *from)
{
	char		query[160];
	MYSQL_RES  *result;
	log_raw		raw;
	log_row		row;
	log_result	answer;

	snprintf(query, sizeof(query), LOG_SELECT "WHERE number <= %" PRIu64
			 " ORDER BY number DESC LIMIT 1", last);
	result = log_query(c, query, false);
	if (result == NULL)
		return LOG_LOST;
	if (!log_fetch(result, &raw))
		answer = LOG_EMPTY;
	else if (!log_read_row(&row, raw.number, raw.writer, raw.data, raw.length))
		answer = log_damaged(c, raw.number);
	else
	{
		*from = row.from;
		answer = LOG_OK;
	}
	mysql_free_result(result);
	return answer;
}

/* Have all rows visited, from one on; it is known to be there.  *loading is empty. */
static log_result
visit_rows(log_connection *c, uint64_t from, uint64_t last, log_visitor visit,
		   void *context, log_loading *loading)
{
	char		query[160];
	MYSQL_RES  *result;
	log_raw		raw;
	log_result	answer = LOG_OK;

	snprintf(query, sizeof(query), LOG_SELECT "WHERE number >= %" PRIu64
			 " AND number <= %" PRIu64 " ORDER BY number", from, last);
	result = log_query(c, query, true);
	if (result == NULL)
		return LOG_LOST;
	while (answer == LOG_OK && log_fetch(result, &raw))
		answer = loading->at.number == 0 && raw.number != from ? LOG_GONE :
			visit_row(c, loading, &raw, visit, context);
	if (answer == LOG_OK && mysql_errno(c->mysql) != 0)
	{
		log_note_failed(c);
		answer = LOG_LOST;
	}
	mysql_free_result(result);
	/* maybe the table was replaced meanwhile */
	if (answer == LOG_OK &&
		(loading->at.number == 0 || loading->at.from < from))
		answer = LOG_GONE;
	return answer;
}

/*
 * Visit all rows that are needed to know what is held, up to number "last", which is
 * UINT64_MAX for all.  The position becomes the last of them.  Unless it is LOG_OK, what was
 * visited means nothing.  LOG_GONE: the table was changed meanwhile, begin again.
 * LOG_HOLE: a row is missing; the position's number is the one before it, up to which the
 * log may be loaded.
 */
log_result
log_load(log_connection *c, log_position *position, uint64_t last,
		 log_visitor visit, void *context)
{
	log_loading loading = {.at = {0, 0, 0}};
	uint64_t	from = 0;
	uint64_t	again = 0;
	log_result	answer = read_from(c, last, &from);

	if (answer == LOG_OK)
		answer = visit_rows(c, from, last, visit, context, &loading);
	/* if the first row has been deleted since, the log is complete from a later one */
	if (answer == LOG_GONE && loading.at.number == 0 &&
		read_from(c, last, &again) == LOG_OK && again == from)
		answer = LOG_HOLE;
	if (answer == LOG_OK && loading.unknown > loading.said)
		answer = log_damaged(c, loading.unknown);
	if (answer == LOG_OK || answer == LOG_HOLE)
		*position = loading.at;
	return answer;
}
