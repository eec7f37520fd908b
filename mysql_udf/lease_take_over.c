/*
 * lease_take_over.c
 *	  Take the tables over, before anything is granted.
 *
 * One run at a time appends to the journal.  A run that finds that another one does, or
 * that does not know what the tables hold, takes over.  It reads table and journal,
 * writes into the table what the journal has, empties the journal, raises the marks of
 * tokens, and puts its name into the head, all in one transaction.  From then on it knows
 * all there is.
 *
 * In a cluster nothing is appended.  A run takes over for what the journal may have had.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_take_over.h"

#include <stdio.h>
#include <stdlib.h>

#include "image.h"
#include "image_marks.h"
#include "lease_dirty.h"
#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_owed.h"
#include "lease_renewals.h"
#include "lease_server.h"
#include "lease_tenure.h"

/* How often to ask whether a statement that was lost goes on. */
#define ASK_LOST_US		50000

/* Tokens count from 2020-01-01 00:00 UTC, if they are taken from the clock. */
#define TOKENS_EPOCH_US	INT64_C(1577836800000000)

/* Tell the error log, once, that the clock is behind the tokens. */
static void
warn_of_clock(void)
{
	static bool warned = false;

	if (warned)
		return;
	warned = true;
	fprintf(stderr, "dlock: the system clock is behind the tokens that were granted; "
			"tokens go on growing, but a server that lost the newest of them may grant "
			"smaller ones; set the clock of whichever server is wrong\n");
}

/*
 * Say where the tokens of this run start: above all that another run, or a server with
 * another history, may have granted and lost.
 *
 * If this run was the last to take over, and is "alone" in writing the tables, it knows
 * all tokens of this history, and need not wait for the clock.  It still raises the marks
 * to the clock: another server may have been promoted meanwhile, and lost before this one
 * had any of its history.
 */
static lease_takeover
get_floor(const table_state *state, bool alone)
{
	uint64_t	last = state->last_mark;
	int64_t		wall_us = lease_wall() - TOKENS_EPOCH_US;
	lease_takeover takeover;

	for (size_t i = 0; i < state->changes.count; i++)
		if (state->changes.changes[i].kind == JOURNAL_PUT)
			last = lease_merge_marks(last, state->changes.changes[i].row.token);
	if (!state->is_own || !alone)
		return lease_take_over(last, wall_us);

	/* the core adds the tokens that may be lost; here none are */
	takeover = lease_take_over(last > LEASE_TOKENS_PER_SECOND ?
							   last - LEASE_TOKENS_PER_SECOND : 0, wall_us);
	if (takeover.clock_is_behind)
		takeover = (lease_takeover) {.floor = last};
	return takeover;
}

/* Not all rows were read: read those of the names and owners that the journal has. */
static lease_status
read_concerned(table_state *state)
{
	connection *c = lease_server_connection();
	const journal_changes *changes = &state->changes;
	lease_status status = LEASE_STATUS_OK;
	table_rows	owned = {0};
	lease_bytes *names;
	size_t		n = 0;

	for (size_t i = 0; i < changes->count && status == LEASE_STATUS_OK; i++)
		if (changes->changes[i].kind == JOURNAL_RENEW_ALL)
			status = table_read_owner(c, changes->changes[i].row.owner,
									  changes->changes[i].row.user,
									  changes->changes[i].row.host, &owned);
	names = malloc((changes->count + owned.count + 1) * sizeof(lease_bytes));
	if (names == NULL)
		status = connection_no_memory(c);
	else if (status == LEASE_STATUS_OK)
	{
		for (size_t i = 0; i < changes->count; i++)
			if (changes->changes[i].kind != JOURNAL_RENEW_ALL)
				names[n++] = changes->changes[i].row.name;
		for (size_t i = 0; i < owned.count; i++)
			names[n++] = owned.rows[i].name;
		status = table_read(c, names, n, false, &state->rows);
	}
	free(names);
	table_free_rows(&owned);
	return status;
}

static void
count_name(lease_bytes name, void *context)
{
	image_filter_add(context, name);
}

/* The same, and count the rows of all names, unless nothing stays known ("direct"). */
static lease_status
read_more(table_state *state, bool direct, image_filter **filter)
{
	connection *c = lease_server_connection();
	lease_status status = read_concerned(state);

	if (status != LEASE_STATUS_OK || direct)
		return status;
	*filter = image_filter_create();
	return *filter == NULL ? connection_no_memory(c) :
		table_visit_names(c, count_name, *filter);
}

/* Apply a change of the journal to the image: false if memory is short. */
bool
lease_apply_change(const journal_change *change, int64_t now_us)
{
	const lease_row *row = &change->row;

	switch (change->kind)
	{
		case JOURNAL_PUT:
			return image_put(row, now_us);
		case JOURNAL_REMOVE:
			image_remove(row->name, row->token);
			break;
		case JOURNAL_RENEW_ALL:
			return image_renew_all(row->owner, row->user, row->host,
								   row->writer, change->at_us, row->ttl_us,
								   now_us);
	}
	return true;
}

/*
 * Make the image of what was read: false if memory is short.  "ndropped" says how many
 * leases were dropped because newer ones exclude them.  The mutex is held.
 */
static bool
make_image(const table_state *state, int64_t now_us, size_t *ndropped)
{
	const table_rows *rows = &state->rows;
	size_t		end;

	for (size_t i = 0; i < rows->count; i = end)
	{
		image_name *name = image_get(rows->rows[i].name);

		for (end = i + 1; end < rows->count &&
			 lease_same(rows->rows[end].name, rows->rows[i].name); end++)
			;
		if (name == NULL ||
			!image_know(name, rows->rows + i, end - i, false, now_us))
			return false;
	}
	for (size_t i = 0; i < state->changes.count; i++)
		if (!lease_apply_change(&state->changes.changes[i], now_us))
			return false;
	return image_settle(ndropped);
}

/*
 * Make the image, and find out which of the rows to be written are locked.  With
 * "direct", nothing can be carried forward, and nothing stays known.  The mutex is not
 * held.
 */
static lease_status
learn(const table_state *state, bool direct, image_filter **filter,
	  size_t *ndropped)
{
	connection *c = lease_server_connection();
	lease_status status = LEASE_STATUS_OK;
	table_rows	rows = {0};
	lease_bytes *names;
	size_t		n;
	size_t		nrows;
	bool		done;

	lease_lock();
	image_forget();
	image_begin(lease_now(), tenure->is_kept && state->is_own);
	for (uint32_t i = 0; i < LEASE_BUCKETS; i++)
		image_mark_read(i, state->marks.marks[i]);
	done = make_image(state, lease_now(), ndropped);
	lease_owed_mark();
	names = lease_dirty_names(image_ndirty(), &n, &nrows);
	lease_unlock();
	if (!done || names == NULL)
		status = connection_no_memory(c);
	else if (!direct)
	{
		status = table_read_locks(c, names, n, &rows);
		lease_lock();
		if (status == LEASE_STATUS_OK)
			status = lease_dirty_locks(names, n, &rows, true);
		if (status == LEASE_STATUS_OK)
		{
			/* what was read stays true: our own changes only write it down */
			image_end(*filter);
			*filter = NULL;
		}
		lease_unlock();
	}
	free(names);
	table_free_rows(&rows);
	return status;
}

/* Take over by the state that was read.  The mutex is not held. */
static lease_status
take(table_state *state, image_filter **filter)
{
	static table_changes changes;
	static journal_writer carried;
	connection *c = lease_server_connection();
	bool		direct = c->is_clustered || !state->has_journal;
	lease_takeover takeover = get_floor(state, !c->is_clustered);
	uint64_t	floor = takeover.floor;
	size_t		ndropped = 0;
	lease_status status = LEASE_STATUS_OK;

	if (takeover.wait_us > 0)
	{
		lease_lock();
		lease_note_clock_behind(lease_now() + takeover.wait_us);
		lease_unlock();
		connection_rollback(c);
		return LEASE_STATUS_EARLY;
	}
	if (state->is_own && floor <= state->last_mark)
		floor = 0;				/* no mark is to be raised */
	if (!state->is_complete)
		status = read_more(state, direct, filter);
	if (status == LEASE_STATUS_OK)
		status = learn(state, direct, filter, &ndropped);
	if (status != LEASE_STATUS_OK)
		return status;

	lease_lock();
	lease_dirty_write(image_ndirty(), true, &changes, &carried);
	lease_unlock();
	status = table_execute(c, &changes);
	if (status == LEASE_STATUS_OK)
		status = table_take(c, lease_run(), state, floor, tenure->number + 1,
							&carried);
	if (status != LEASE_STATUS_OK)
		return status;
	if (takeover.clock_is_behind)
		warn_of_clock();
	if (ndropped > 0)
		fprintf(stderr, "dlock: dropped %zu of the leases in database dlock, for newer ones "
				"exclude them: two servers have granted them, or somebody has changed the tables\n",
				ndropped);

	lease_lock();
	for (uint32_t i = 0; i < LEASE_BUCKETS; i++)
		image_mark_read(i, lease_merge_marks(image_mark(i), floor));
	if (direct)
		lease_forget();
	lease_renewals_forget();
	if (lease_dirty_written(image_ndirty(), &carried))
		lease_note_taken_over(state->has_journal, direct);
	else
		status = connection_no_memory(c);
	lease_unlock();
	return status;
}

/* Read the tables, and take over by what was read.  The mutex is not held. */
lease_status
lease_take_tables(void)
{
	connection *c = lease_server_connection();
	table_state state = {0};
	image_filter *filter = NULL;
	lease_status status = table_read_state(c, lease_run(), c->is_clustered ? 0 :
										   IMAGE_LEASES_MAX, &state);

	if (status == LEASE_STATUS_OK)
		status = take(&state, &filter);
	if (status != LEASE_STATUS_OK)
	{
		lease_lock();
		if (status == LEASE_STATUS_LOST)
			lease_doubt();
		else
			lease_forget();
		lease_unlock();
	}
	image_filter_free(filter);
	table_free_state(&state);
	return status;
}

/* Take over without a call that asks for it.  The mutex is held, and released meanwhile. */
lease_status
lease_take_over_unasked(void)
{
	lease_status status;

	lease_ask();
	status = lease_server_prepare();
	if (status == LEASE_STATUS_OK)
		status = lease_take_tables();
	(void) lease_resume();
	return status;
}

/*
 * Ask whether a statement that was lost goes on.  When it has ended, take over, for the
 * image is still as it was before.  If that fails, the image is forgotten, and the next
 * batch tries again.  The mutex is held, and released meanwhile.
 */
void
lease_take_over_lost(void)
{
	lease_status status = lease_take_over_unasked();

	lease_ask_lost_at(lease_now() + ASK_LOST_US);
	if (status == LEASE_STATUS_FAILED)
	{
		lease_end_doubt();
		lease_forget();
	}
}
