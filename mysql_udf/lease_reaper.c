/*
 * lease_reaper.c
 *	  Find leases that are over, and have them removed.
 *
 * The image knows the first deadline of each of its names.  If it does not have all
 * leases, the reaper looks through the table as well: for this run's leases by the index
 * of writer and deadline, and for those of other runs bit by bit.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_reaper.h"

#include <string.h>

#include "image.h"
#include "lease_call_end.h"
#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_names.h"
#include "lease_pace.h"
#include "lease_server.h"
#include "lease_settings.h"
#include "lease_tenure.h"
#include "table.h"

/* Rows of other runs to look at in one round of the reaper. */
#define FOREIGN_ROWS	1000

static int64_t reaped_us = 0;	/* when the reaper last ran, or was put off */

/*
 * Some rows that the table says are over are not, by the journal, and more may be behind
 * them: look again when the journal has been applied up to this row.  0: there are none.
 */
static uint64_t look_after = 0;

/* Where the reaper's walk over foreign rows is. */
static char foreign_name[LEASE_STRING_MAX];
static size_t foreign_name_length = 0;
static uint32_t foreign_slot = 0;

/* When to reap next. */
int64_t
lease_reap_due_us(void)
{
	return look_after > 0 && lease_applied() >= look_after ? INT64_MIN :
		reaped_us + settings->reap_interval_us;
}

/* Reap an interval later. */
void
lease_reap_put_off(int64_t now_us)
{
	reaped_us = now_us;
	look_after = 0;
}

/* Reap again now: more leases may be over. */
void
lease_reap_soon(void)
{
	reaped_us = INT64_MIN / 2;
}

/* The server could not be asked for what is over. */
static void
note_reap_failure(lease_status status)
{
	lease_note_failure(status);
	lease_call_fail_late();
}

/* Say whether the lease of a row is over: the image may know better, by the journal. */
static bool
is_due(const lease_row *row, int64_t due_us)
{
	const lease_member *member = image_lease(row->name, row->token);

	return !image_is_known(row->name) ||
		(member != NULL && member->deadline_us <= due_us);
}

/*
 * The image does not have all leases: find some in the table that are over.  False if
 * there may be more behind rows that the journal is yet to change.  The mutex is held,
 * and released meanwhile.
 */
static bool
find_due(int64_t due_us, lease_names *list)
{
	bool		any_stale = false;
	table_rows	own = {0};
	table_rows	foreign = {0};
	size_t		seen = 0;
	lease_status status;

	lease_ask();
	status = lease_server_prepare();
	if (status == LEASE_STATUS_OK)
		status = table_read_due(lease_server_connection(), lease_run(), due_us,
								LEASE_REAP_NAMES, &own);
	if (status == LEASE_STATUS_OK)
		status = table_read_foreign(lease_server_connection(), lease_run(),
									(lease_bytes) {
			foreign_name, foreign_name_length
		}, foreign_slot, FOREIGN_ROWS, &foreign);
	(void) lease_resume();
	if (status != LEASE_STATUS_OK)
		note_reap_failure(status);
	for (size_t i = 0; status == LEASE_STATUS_OK && i < own.count; i++)
		if (is_due(&own.rows[i], due_us))
			lease_names_add(list, own.rows[i].name);
		else
			any_stale = true;
	any_stale &= own.count == LEASE_REAP_NAMES;
	for (; status == LEASE_STATUS_OK && seen < foreign.count &&
		 list->count < LEASE_REAP_NAMES; seen++)
	{
		const lease_row *row = &foreign.rows[seen];

		memcpy(foreign_name, row->name.data, row->name.length);
		foreign_name_length = row->name.length;
		foreign_slot = row->slot;
		if (image_see(row, lease_now()) <= due_us)
			lease_names_add(list, row->name);
	}
	if (seen == foreign.count && foreign.count < FOREIGN_ROWS)
		foreign_name_length = foreign_slot = 0;
	table_free_rows(&own);
	table_free_rows(&foreign);
	return !any_stale;
}

/* Look for what is over.  The mutex is held, and released meanwhile. */
void
lease_reap(int64_t now_us)
{
	lease_names	list = {0};
	int64_t		due_us = now_us - settings->lock_delay_us;
	int64_t		again_us = now_us + settings->reap_interval_us;
	bool		looks_again = look_after > 0 && lease_applied() >= look_after;
	image_name *name;
	lease_call *call;

	look_after = 0;
	if (tenure->doubt_us != 0)
	{
		reaped_us = now_us;		/* nothing can be written */
		return;
	}
	while (list.count < LEASE_REAP_NAMES &&
		   (name = image_due(due_us, again_us)) != NULL)
		lease_names_add(&list, name->name);
	if (!image_is_complete() && list.count < LEASE_REAP_NAMES &&
		!find_due(due_us, &list) && !looks_again && !lease_is_settled())
	{
		look_after = tenure->number;
		lease_checkpoint_now();
	}
	lease_names_sort(&list);
	reaped_us = lease_now();

	/* a server that is read-only only looks, to know how long others have had their leases */
	call = list.count > 0 && !tenure->read_only ? lease_call_create(0) : NULL;
	if (call != NULL && lease_names_give(&list, LEASE_REAP_NAMES, call))
	{
		call->internal = LEASE_INTERNAL_REAP;
		call->request.op = LEASE_REAP;
		call->answered = true;
		lease_pace_submit(call);
	}
	else if (call != NULL)
		lease_call_unref(call);
	lease_names_free(&list);
}
