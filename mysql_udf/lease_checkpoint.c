/*
 * lease_checkpoint.c
 *	  Write what the journal has into the lock table.
 *
 * A checkpoint writes what this run has appended since the last one, when that is much or
 * old.  Nothing is granted meanwhile, and few calls are to meet one: the longer a
 * checkpoint took, the later the next one is.  A lease that was taken and given back in
 * between never gets a row.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_checkpoint.h"

#include <stdio.h>
#include <stdlib.h>

#include "dlock_call.h"
#include "image_marks.h"
#include "lease_dirty.h"
#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_server.h"
#include "lease_tenure.h"
#include "udf_text.h"

/* After how long the error log is told that it fails. */
#define FAILING_US		10000000

/* See to it that this run may append, and find out which rows are locked. */
static lease_status
probe(void)
{
	connection *c = lease_server_connection();
	table_rows	rows = {0};
	size_t		n;
	size_t		nrows;
	lease_bytes *names = lease_dirty_names(&n, &nrows);
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

/* Write what the journal has into the table. */
static lease_status
write_journal(void)
{
	static table_changes changes;
	static journal_writer carried;
	connection *c = lease_server_connection();
	uint64_t	number = tenure->number;
	lease_status status = probe();

	if (status != LEASE_STATUS_OK)
		return status;
	lease_dirty_write(&changes, &carried);
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
	if (status != LEASE_STATUS_OK)
		return status;
	for (uint32_t i = 0; i < LEASE_BUCKETS; i++)
		image_mark_read(i, image_mark(i));
	lease_note_applied();
	if (!lease_dirty_written(&carried))
		lease_forget();			/* it is done, but not known to be */
	return LEASE_STATUS_OK;
}

/*
 * A checkpoint has ended: tell the error log, once, if none has succeeded for a while.
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
 * The server is locked against writing: put the next checkpoint off.  It would find the
 * same, after a second in which nobody is answered.
 */
void
lease_checkpoint_put_off(void)
{
	int64_t		later_us = lease_now() + LEASE_DIRTY_RETRY_US;

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
		lease_checkpoint_at(lease_now() + LEASE_DIRTY_RETRY_US);
	if (status == LEASE_STATUS_FENCED)
		lease_forget();
	if (status == LEASE_STATUS_LOST)
		lease_doubt();
	return status;
}
