/*
 * lease_checkpoint.c
 *	  Take the tables over, and write what the journal has into the lock table.
 *
 * The journal is appended to by one run at a time.  Whoever finds that this is not
 * itself, or that it does not know what the tables hold, takes over: it reads
 * table and journal, writes into the table what the journal has, empties the
 * journal, raises the marks of tokens, and puts its name into the head, all in one
 * transaction.  From then on it knows all there is.
 *
 * A checkpoint does the same for what this run has appended since: when that is much,
 * or old.  Nothing is granted meanwhile, so it is the less often, the longer the last one
 * took: few calls are to meet one.  What was taken and given back since the last one never gets a row.  Rows
 * that a transaction has locked stay as they are, and what is to become of them is
 * carried forward: it is appended anew.
 *
 * In a cluster nothing is appended, and a run takes over but once, for what the
 * journal may have had.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_checkpoint.h"

#include <stdio.h>
#include <stdlib.h>

#include "image_marks.h"
#include "lease_guards.h"
#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_owed.h"
#include "lease_renewals.h"
#include "lease_server.h"
#include "lease_tenure.h"
#include "table.h"
#include "udf_text.h"

/* When to try again what somebody else kept from being done. */
#define RETRY_US		1000000

/* How often to ask whether a statement that was lost goes on. */
#define ASK_LOST_US		50000

/* After how long the error log is told that it fails. */
#define FAILING_US		10000000

/* Tokens count from 2020-01-01 00:00 UTC, if they are taken from the clock. */
#define TOKENS_EPOCH_US	INT64_C(1577836800000000)

/* ----------------------------------------------------------------
 * Writing names
 * ----------------------------------------------------------------
 */

/* Say whether a lease is in a slot; a guess where it is. */
static bool
is_slot_used(const image_name *name, uint32_t slot, size_t likely)
{
	if (likely < name->count && name->members[likely].slot == slot &&
		!name->members[likely].gone)
		return true;
	for (size_t i = 0; i < name->count; i++)
		if (name->members[i].slot == slot && !name->members[i].gone)
			return true;
	return false;
}

/*
 * Write a name as it is; what needs a row that is locked is carried forward, if that
 * can be done.
 */
static void
write_name(const image_name *name, table_changes *changes,
		   journal_writer *carried, int64_t now_us, int64_t wall_us)
{
	for (size_t i = 0; i < name->nrows; i++)
	{
		const image_row *row = &name->rows[i];

		if (is_slot_used(name, row->slot, i))
			continue;
		if (row->locked)
			journal_remove(carried, name->name, row->token);
		else
			table_delete(changes, name->name, row->slot);
	}
	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];
		const image_row *before = image_row_at(name, member->slot);
		lease_row	row;

		if (member->gone || image_is_in_table(name, member))
			continue;
		row = image_row_of(name, member, now_us, wall_us);
		if (before == NULL || !before->locked)
		{
			table_put(changes, &row, before != NULL);
			continue;
		}
		if (before->token != row.token)
			journal_remove(carried, name->name, before->token);
		journal_put(carried, &row);
	}
}

/* Add all names that the table has otherwise. */
static void
write_dirty(table_changes *changes, journal_writer *carried)
{
	int64_t		now_us = lease_now();
	int64_t		wall_us = lease_wall();

	for (size_t i = 0; i < image_ndirty(); i++)
		write_name(image_dirty(i), changes, carried, now_us, wall_us);
}

/* They were written: false if memory is short. */
static bool
note_written(void)
{
	for (size_t i = image_ndirty(); i-- > 0;)
		if (!image_written(image_dirty(i)))
			return false;
	return true;
}

/* Something was carried forward, perhaps. */
static void
note_carried(const journal_writer *carried)
{
	if (journal_is_empty(carried))
		return;
	lease_note_appended(carried->rows.count, journal_bytes(carried));
	lease_checkpoint_at(lease_now() + RETRY_US);
}

/* ----------------------------------------------------------------
 * Which rows are locked
 * ----------------------------------------------------------------
 */

/* The names that the table has otherwise, and not without rows; NULL: no memory. */
static lease_bytes *
dirty_names(size_t *n)
{
	lease_bytes *names = malloc((image_ndirty() + 1) * sizeof(lease_bytes));

	*n = 0;
	for (size_t i = 0; names != NULL && i < image_ndirty(); i++)
		if (image_dirty(i)->nrows > 0)
			names[(*n)++] = image_dirty(i)->name;
	return names;
}

/*
 * Their rows have been read: note which are locked.  At a take-over these may be
 * guarded, although the journal says that their leases have ended.
 */
static lease_status
note_locks(const lease_bytes *names, size_t n, const table_rows *rows,
		   bool takes)
{
	connection *c = lease_server_connection();
	int64_t		now_us = lease_now();

	for (size_t i = 0; i < n; i++)
	{
		image_name *name = image_find(names[i]);
		size_t		count;
		size_t		first = table_find_rows(rows, names[i], &count);

		lease_guards_lock(rows->rows + first, count, now_us);
		if (!image_probe(name, rows->rows + first, count))
			return connection_edited(c);
		if (takes && !image_keep_guarded(name, rows->rows + first, count,
										 now_us))
			return connection_no_memory(c);
	}
	return LEASE_STATUS_OK;
}

/* ----------------------------------------------------------------
 * Taking over
 * ----------------------------------------------------------------
 */

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
 * Where the tokens of this run start: above all that may have been granted and lost,
 * by another run or by a server that follows another history.
 *
 * If this run has taken over last, and nobody else can write the tables, then no token
 * of this history is unknown, and there is nothing to wait for.  They are raised to the
 * clock all the same: another server may have been promoted meanwhile, and lost, before
 * this one had any of its history.
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

	/* the core adds what may be lost */
	takeover = lease_take_over(last > LEASE_TOKENS_PER_SECOND ?
							   last - LEASE_TOKENS_PER_SECOND : 0, wall_us);
	if (takeover.clock_is_behind)
		takeover = (lease_takeover) {.floor = last};
	return takeover;
}

/* Read the rows that a journal's entries concern, where not all rows were read. */
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
 * leases were not taken since newer ones exclude them.  The mutex is held.
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

/* Take over by what was read.  The mutex is not held. */
static lease_status
take(table_state *state, image_filter **filter)
{
	static table_changes changes;
	static journal_writer carried;
	connection *c = lease_server_connection();
	table_rows	rows = {0};
	lease_bytes *names;
	size_t		n;
	bool		direct = c->is_clustered || !state->has_journal;
	lease_takeover takeover = get_floor(state, !c->is_clustered);
	bool		raises;
	bool		done;
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
	raises = !state->is_own || takeover.floor > state->last_mark;
	if (!state->is_complete)
		status = read_concerned(state);
	if (status == LEASE_STATUS_OK && !state->is_complete && !direct)
	{
		*filter = image_filter_create();
		status = *filter == NULL ? connection_no_memory(c) :
			table_visit_names(c, count_name, *filter);
	}
	if (status != LEASE_STATUS_OK)
		return status;

	lease_lock();
	image_forget();
	image_begin(lease_now(), tenure->is_kept && state->is_own);
	done = make_image(state, lease_now(), &ndropped);
	lease_owed_mark();
	names = dirty_names(&n);
	lease_unlock();

	if (!done || names == NULL)
		status = connection_no_memory(c);
	/* in a cluster nothing can be carried forward */
	else if (!direct)
		status = table_read_locks(c, names, n, &rows);

	lease_lock();
	if (status == LEASE_STATUS_OK && !direct)
		status = note_locks(names, n, &rows, true);
	table_begin(&changes, c->max_packet / 2);
	journal_begin(&carried, lease_run(), c->max_packet / 4);
	write_dirty(&changes, &carried);
	journal_end(&carried);
	for (uint32_t i = 0; i < LEASE_BUCKETS; i++)
		if (image_mark(i) > state->marks.marks[i])
			table_raise_mark(&changes, i, image_mark(i));
	if (status == LEASE_STATUS_OK && !direct)
	{
		/* what was read is so, whenever our own changes are committed */
		image_end(*filter);
		*filter = NULL;
	}
	lease_unlock();

	free(names);
	table_free_rows(&rows);
	if (status == LEASE_STATUS_OK)
		status = table_execute(c, &changes);
	if (status == LEASE_STATUS_OK)
		status = table_take(c, lease_run(), state, raises ?
							takeover.floor : 0, tenure->number + 1, &carried);
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
		image_mark_read(i, lease_merge_marks(lease_merge_marks(image_mark(i),
															  state->marks.marks[i]),
											 raises ? takeover.floor : 0));
	lease_note_tables(state->has_journal, direct);
	lease_renewals_forget();
	if (direct)
		lease_forget();
	else
	{
		if (!note_written())
		{
			lease_unlock();
			return connection_no_memory(c);
		}
		note_carried(&carried);
	}
	lease_note_taken_over();
	lease_unlock();
	return LEASE_STATUS_OK;
}

/* Take over, before anything else is written.  The mutex is not held. */
lease_status
lease_take_tables(void)
{
	table_state state = {0};
	image_filter *filter = NULL;
	lease_status status;

	status = table_read_state(lease_server_connection(), lease_run(),
							  lease_server_connection()->is_clustered ? 0 :
							  IMAGE_LEASES_MAX, &state);
	if (status == LEASE_STATUS_OK)
		status = take(&state, &filter);
	if (status != LEASE_STATUS_OK)
	{
		lease_lock();
		lease_take_over_anew();
		if (status == LEASE_STATUS_LOST)
			lease_doubt();
		else
			image_forget();
		lease_unlock();
	}
	image_filter_free(filter);
	table_free_state(&state);
	return status;
}

/*
 * Ask whether a statement that was lost goes on; when it has ended, take over, for the
 * image is still as it was before.  If the server cannot be asked, its error is what
 * those are told who wait.  The mutex is held, and released meanwhile.
 */
void
lease_take_over_lost(void)
{
	lease_status status;

	lease_ask();
	status = lease_server_prepare();
	if (status == LEASE_STATUS_OK)
		status = lease_take_tables();
	(void) lease_resume();
	lease_ask_lost_at(lease_now() + ASK_LOST_US);
	if (status == LEASE_STATUS_FAILED)
	{
		lease_end_doubt();
		lease_forget();
	}
}

/* ----------------------------------------------------------------
 * A checkpoint
 * ----------------------------------------------------------------
 */

/* See to it that this run may append, and find out which rows are locked. */
static lease_status
probe(void)
{
	connection *c = lease_server_connection();
	table_rows	rows = {0};
	size_t		n;
	lease_bytes *names = dirty_names(&n);
	size_t		nrows = 0;
	lease_status status;

	if (names == NULL)
		return connection_no_memory(c);
	for (size_t i = 0; i < image_ndirty(); i++)
		nrows += image_dirty(i)->nrows;
	lease_ask();
	status = table_probe(c, names, n, nrows, &rows);
	if (status == LEASE_STATUS_OK)
		status = table_check_head(c, lease_run());
	(void) lease_resume();
	if (status == LEASE_STATUS_OK)
		status = note_locks(names, n, &rows, false);
	free(names);
	table_free_rows(&rows);
	return status;
}

/* Write what the journal has into the table. */
static lease_status
write_journal(void)
{
	static table_changes changes;
	static journal_writer carried;
	connection *c = lease_server_connection();
	uint64_t	number = tenure->number;
	lease_status status = probe();

	if (status == LEASE_STATUS_OK)
	{
		table_begin(&changes, c->max_packet / 2);
		journal_begin(&carried, lease_run(), c->max_packet / 4);
		write_dirty(&changes, &carried);
		for (uint32_t i = 0; i < LEASE_BUCKETS; i++)
			if (image_mark(i) > image_mark_stored(i))
				table_raise_mark(&changes, i, image_mark(i));
		journal_end(&carried);
		lease_ask();
		status = table_execute(c, &changes);
		if (status == LEASE_STATUS_OK)
			status = table_delete_journal(c, lease_run(), number,
										  tenure->journal_rows,
										  &changes.as_expected);
		if (status == LEASE_STATUS_OK && !changes.as_expected)
			status = connection_edited(c);
		if (status == LEASE_STATUS_OK)
			status = table_append(c, lease_run(), number + 1, &carried);
		if (status == LEASE_STATUS_OK)
			status = connection_commit(c);
		(void) lease_resume();
	}
	if (status != LEASE_STATUS_OK)
		return status;
	for (uint32_t i = 0; i < LEASE_BUCKETS; i++)
		image_mark_read(i, image_mark(i));
	lease_note_applied();
	lease_renewals_forget();
	note_carried(&carried);
	if (!note_written())
		lease_forget();			/* it is done, but not known to be */
	return LEASE_STATUS_OK;
}

/*
 * A checkpoint has ended: tell the error log, once, if none has succeeded for a while.
 * The journal grows until one does, and somebody has to mend what is in the way.
 */
static void
note_checkpoint(lease_status status)
{
	static int64_t failing_since_us = 0;
	static bool warned = false;
	int64_t		now_us = lease_now();
	char		shown[DLOCK_SHOWN_SIZE];

	if (status == LEASE_STATUS_OK)
	{
		if (warned)
			fprintf(stderr, "dlock: dlock.lease_table can be written again\n");
		failing_since_us = 0;
		warned = false;
		return;
	}
	if (failing_since_us == 0)
		failing_since_us = now_us;
	if (warned || now_us < failing_since_us + FAILING_US)
		return;
	warned = true;
	fprintf(stderr, "dlock: dlock.lease_table cannot be written: %s; leases are kept in "
			"dlock.journal, which grows\n",
			dlock_show(shown, dlock_bytes_of(lease_server_connection()->error)));
}

/*
 * The server was found to be locked against writing: a checkpoint would only find the
 * same, and take a second in which nobody is answered.
 */
void
lease_checkpoint_put_off(void)
{
	int64_t		later_us = lease_now() + RETRY_US;

	if (tenure->checkpoint_us < later_us)
		lease_checkpoint_at(later_us);
}

/*
 * Write what the journal has into the table, if it has anything.  The mutex is held,
 * and released meanwhile.
 */
lease_status
lease_checkpoint(void)
{
	lease_status status;
	int64_t		began_us = lease_now();

	if (!tenure->has_taken_over || tenure->journal_rows == 0)
		return LEASE_STATUS_OK;
	lease_checkpoint_want(false);
	lease_ask();
	status = lease_server_prepare();
	(void) lease_resume();
	if (!tenure->has_taken_over)
		return status;			/* all has been forgotten meanwhile */
	if (status == LEASE_STATUS_OK)
		status = write_journal();
	note_checkpoint(status);
	lease_note_checkpoint(lease_now() - began_us);
	if (status != LEASE_STATUS_OK)
		lease_checkpoint_at(lease_now() + RETRY_US);
	if (status == LEASE_STATUS_FENCED)
		lease_forget();
	if (status == LEASE_STATUS_LOST)
		lease_doubt();
	return status;
}
