/*
 * lease_checkpoint.c
 *	  Write what the journal has into the lock table.
 *
 * A checkpoint writes what this run has appended since the last one, when that is much or
 * old.  Few calls should meet one: the longer a checkpoint took, the later the next one
 * begins.  A lease that was taken and given back in between never gets a row.
 *
 * Nothing is granted while the library's one connection writes.  So a checkpoint is written
 * in pieces, each a transaction, and a batch is made in between.  When it begins, the journal
 * has rows up to some number, and some names differ from the table.  Each piece writes some
 * of these names as they are by then.  The last one also deletes the journal's rows up to
 * that number: each of their changes is in the table now, or was carried forward, or another
 * that came later is in its place.
 *
 * Until then the table is ahead of the journal, which does no harm.  A reader of the
 * journal (a take-over, the view lease_state, a look at a replica) goes through all
 * changes of a lease that the table may already have.  The last one that puts it decides.
 * A later renewal of all leases of an owner applies as it did at first: if the table has
 * a lease with such a renewal, the lease was not over at any earlier one.
 * t/mysql/image_model.c tries this at random, doc/model/journal.pml in all orders.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_checkpoint.h"

#include <stdlib.h>

#include "dlock_call.h"
#include "image.h"
#include "image_marks.h"
#include "lease_dirty.h"
#include "lease_log.h"
#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_renewals.h"
#include "lease_server.h"
#include "lease_tenure.h"
#include "udf_text.h"

/* After how long of failing the error log is told. */
#define FAILING_US		10000000

/*
 * The work of a piece, if little else goes on.  A name counts 1; each lease that it has,
 * and each row that the table has of it, counts 2.
 */
#ifndef PIECE_WORK
#define PIECE_WORK		1000
#endif

/* The work of a lease with its name and a row, and its bytes in the journal, about. */
#define LEASE_WORK		5
#define LEASE_BYTES		300

/* Of the checkpoint that is under way: */
static uint64_t last_name;		/* number of the last name that it concerns */
static uint64_t seen_names;		/* image_last_dirtied() at the last piece */
static size_t seen_bytes;		/* tenure->journal_bytes at the last piece */

/* Check that this run may append, and find out which rows are locked. */
static lease_status
probe(size_t ndirty)
{
	connection *c = lease_server_connection();
	table_rows	rows = {0};
	size_t		n;
	size_t		nrows;
	lease_bytes *names = lease_dirty_names(ndirty, &n, &nrows);
	lease_status status;

	if (names == NULL)
		return connection_no_memory(c);
	lease_ask();
	status = table_probe(c, names, n, nrows, &rows);
	if (status == LEASE_STATUS_OK)
		status = table_check_head(c, lease_run());
	(void) lease_resume();
	if (status == LEASE_STATUS_OK)
		status = lease_dirty_locks(names, n, &rows, false);
	free(names);
	table_free_rows(&rows);
	return status;
}

/*
 * The work of the next piece: more than has come since the last one.  So the journal does
 * not grow for ever, however many leases each batch changes.
 */
static size_t
get_work(void)
{
	size_t		names = image_last_dirtied() - seen_names;
	size_t		leases = (tenure->journal_bytes - seen_bytes) / LEASE_BYTES;

	seen_names += names;
	seen_bytes = tenure->journal_bytes;
	return PIECE_WORK + LEASE_WORK * (names > leases ? names : leases);
}

/* How many names the next piece has; *is_last says whether no other follows. */
static size_t
get_piece(bool *is_last)
{
	const image_name *name = image_first_dirty();
	size_t		most = get_work();
	size_t		work = 0;
	size_t		n = 0;

	for (; name != NULL && name->dirtied <= last_name && work < most;
		 name = name->next_dirty)
	{
		work += 1 + 2 * (name->count + name->nrows);
		n++;
	}
	*is_last = name == NULL || name->dirtied > last_name;
	return n;
}

/* Write the next piece of a checkpoint into the table. */
static lease_status
write_piece(void)
{
	static table_changes changes;
	static journal_writer carried;
	connection *c = lease_server_connection();
	int64_t		began_us = lease_now();
	bool		is_last;
	size_t		ndirty = get_piece(&is_last);
	lease_status status = probe(ndirty);

	if (status != LEASE_STATUS_OK)
		return status;
	lease_dirty_write(ndirty, is_last, &changes, &carried);
	lease_ask();
	status = table_execute(c, &changes);
	if (status == LEASE_STATUS_OK && is_last)
		status = table_delete_journal(c, lease_run(), tenure->checkpoint.up_to,
									  tenure->checkpoint.up_to - lease_applied(),
									  &changes.as_expected);
	if (status == LEASE_STATUS_OK && !changes.as_expected)
		status = connection_edited(c);
	if (status == LEASE_STATUS_OK)
		status = table_append(c, lease_run(), tenure->number + 1, &carried);
	if (status == LEASE_STATUS_OK)
		status = connection_commit(c);
	(void) lease_resume();
	if (status != LEASE_STATUS_OK)
		return status;
	lease_note_piece(lease_now() - began_us, !journal_is_empty(&carried));
	if (!lease_dirty_written(ndirty, &carried))
		lease_forget();			/* it is written, and the image could not note it */
	else if (is_last)
	{
		for (uint32_t i = 0; i < LEASE_BUCKETS; i++)
			image_mark_read(i, image_mark(i));
		lease_renewals_forget_old();
		lease_note_applied();
	}
	return LEASE_STATUS_OK;
}

/*
 * A piece was tried: tell the error log, once, if none has succeeded for a while.
 * The journal grows until one does, and an operator has to mend what is in the way.
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
			lease_log("dlock: dlock.lease_table can be written again\n");
		failing_since_us = 0;
		warned = false;
		return;
	}
	if (failing_since_us == 0)
		failing_since_us = now_us;
	if (warned || now_us < failing_since_us + FAILING_US)
		return;
	warned = true;
	lease_log("dlock: dlock.lease_table cannot be written: %s; leases are kept in "
			  "dlock.journal, which grows\n",
			  dlock_show(shown, dlock_bytes_of(lease_server_connection()->error)));
}

/*
 * Write a piece of what the journal has into the table, if it has anything.  The mutex is
 * held, and released meanwhile.
 */
lease_status
lease_checkpoint(void)
{
	static bool was_gone = false;	/* at the last try */
	lease_status status;
	bool		is_gone;

	if (!tenure->has_taken_over || tenure->journal_rows == 0)
		return LEASE_STATUS_OK;
	lease_ask();
	status = lease_server_prepare();
	(void) lease_resume();
	if (!tenure->has_taken_over)
		return status;			/* all has been forgotten meanwhile */
	if (tenure->checkpoint.up_to == 0)
	{
		lease_begin_checkpoint();
		lease_renewals_age();
		last_name = seen_names = image_last_dirtied();
		seen_bytes = tenure->journal_bytes;
	}
	lease_checkpoint_now();
	if (status == LEASE_STATUS_OK)
		status = write_piece();
	note_checkpoint(status);

	/* that an idle connection was closed says nothing about the table */
	is_gone = status == LEASE_STATUS_CONFLICT &&
		lease_server_connection()->mysql == NULL;
	if (status != LEASE_STATUS_OK && (!is_gone || was_gone))
		lease_checkpoint_later();
	was_gone = is_gone;
	if (status == LEASE_STATUS_FENCED)
		lease_forget();
	if (status == LEASE_STATUS_LOST)
		lease_doubt();
	return status;
}
