/*
 * lease_upkeep.c
 *	  What the batcher does unasked: connect, read settings, look after sessions
 *	  and reap; and what takes a look through the table.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_batcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lease_session.h"
#include "udf_text.h"

/* How often to look at the server, the settings and the sessions. */
#define SESSIONS_INTERVAL_US	1000000

/* How often to ask whether a statement that was lost goes on. */
#define ASK_LOST_US		50000

/* When to read the settings again, if they could not be read. */
#define SETTINGS_PAUSE_US	10000000

/* Rows of other runs to look at in one round of the reaper. */
#define FOREIGN_ROWS	1000

static int64_t settings_us = 0; /* not to be read before */

/* Names that were found. */
typedef struct name_list
{
	lease_bytes *names;			/* copies */
	size_t		count;
	size_t		room;
	bool		failed;			/* memory was short */
} name_list;

/* Connections that are there. */
typedef struct id_list
{
	uint64_t   *ids;
	size_t		count;
	size_t		room;
	bool		failed;			/* memory was short */
} id_list;

/* Where the reaper's walk over foreign rows is. */
static char foreign_name[LEASE_STRING_MAX];
static size_t foreign_name_length = 0;
static uint32_t foreign_slot = 0;

/*
 * Read the settings; those that are missing or wrong have their defaults.  The
 * mutex is not held.  If they cannot be read, they stay as they are.
 */
static void
read_settings(void)
{
	if (lease_now() < settings_us)
		return;
	lease_settings_forget();
	if (table_visit_settings(&batcher.connection, lease_settings_take, NULL) !=
		LEASE_STATUS_OK)
	{
		/* somebody may have locked the table */
		settings_us = lease_now() + SETTINGS_PAUSE_US;
		return;
	}
	lease_lock();
	lease_settings_use();
	lease_unlock();
}

/*
 * See to it that there is a connection; read the settings, if that is due.  The mutex
 * is not held.
 */
static lease_status
prepare(bool due)
{
	if (batcher.connection.mysql == NULL)
	{
		lease_status status = connection_open(&batcher.connection);

		if (status != LEASE_STATUS_OK)
			return status;
	}
	if (due)
		read_settings();
	return batcher.connection.mysql != NULL ? LEASE_STATUS_OK :
		LEASE_STATUS_LOST;
}

/* The same, with what is done once: by it one can look, but not write. */
lease_status
lease_upkeep_prepare_to_look(void)
{
	return prepare(!lease_settings_are_read());
}

/*
 * The same, and see to it that nothing goes on of a connection that was lost: now the
 * tables say what has become of that.
 */
lease_status
lease_upkeep_prepare(void)
{
	lease_status status = lease_upkeep_prepare_to_look();

	if (status == LEASE_STATUS_OK)
		status = connection_end_lost(&batcher.connection);
	if (status == LEASE_STATUS_OK && tenure->doubt_us != 0)
	{
		lease_lock();
		lease_end_doubt();
		lease_take_over_anew();
		lease_unlock();
	}
	return status;
}

/*
 * Ask whether a statement that was lost goes on; when it has ended, take over, for the
 * image is still as it was before.  If the server cannot be asked, its error is what
 * those are told who wait.  The mutex is held, and released meanwhile.
 */
void
lease_upkeep_ask_lost(void)
{
	lease_status status;

	lease_ask();
	status = lease_upkeep_prepare();
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

/* Make room for one more element, of a size, in an array: false if there is none. */
static bool
grow(void *array, size_t count, size_t *room, size_t size)
{
	size_t		more = *room > 0 ? *room * 2 : 16;
	void	   *larger;

	if (count < *room)
		return true;
	larger = realloc(*(void **) array, more * size);
	if (larger == NULL)
		return false;
	*(void **) array = larger;
	*room = more;
	return true;
}

static void
append_name(name_list *list, lease_bytes name)
{
	char	   *copy = malloc(name.length + 1);

	if (copy == NULL ||
		!grow(&list->names, list->count, &list->room, sizeof(lease_bytes)))
	{
		free(copy);
		list->failed = true;
		return;
	}
	memcpy(copy, name.data, name.length);
	list->names[list->count++] = (lease_bytes) {copy, name.length};
}

static void
free_list(name_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free((char *) list->names[i].data);
	free(list->names);
	memset(list, 0, sizeof(*list));
}

/* Put them in order, each once. */
static void
sort_list(name_list *list)
{
	size_t		n = 0;

	if (list->count == 0)
		return;
	qsort(list->names, list->count, sizeof(lease_bytes), lease_compare);
	for (size_t i = 1; i < list->count; i++)
		if (lease_same(list->names[n], list->names[i]))
			free((char *) list->names[i].data);
		else
			list->names[++n] = list->names[i];
	list->count = n + 1;
}

/* Give a call the names of a list, or the first of them: false if memory is short. */
static bool
set_names(lease_call *call, const name_list *list, size_t most)
{
	size_t		count = list->count < most ? list->count : most;
	size_t		bytes = 0;
	lease_bytes *names;
	char	   *data;

	for (size_t i = 0; i < count; i++)
		bytes += list->names[i].length;
	names = malloc(count * sizeof(lease_bytes) + bytes + 1);
	if (names == NULL || list->failed)
	{
		free(names);
		return false;
	}
	data = (char *) &names[count];
	for (size_t i = 0; i < count; i++)
	{
		memcpy(data, list->names[i].data, list->names[i].length);
		names[i] = (lease_bytes) {data, list->names[i].length};
		data += list->names[i].length;
	}
	free(call->names);
	call->names = names;
	call->nnames = count;
	return true;
}

/* Find the names of an owner's leases in the image. */
static void
find_in_image(const lease_call *call, name_list *list)
{
	const image_account *account = lease_account_of(&call->caller);
	image_holder *holder = NULL;

	list->failed |= account == NULL;
	while (account != NULL &&
		   (holder = image_owned(call->request.owner, account,
								 holder)) != NULL)
		append_name(list, holder->name->name);
}

/* The same in the table.  The mutex is held, and released meanwhile. */
static lease_status
find_in_table(const lease_call *call, name_list *list)
{
	table_rows	rows = {0};
	journal_changes changes = {0};
	lease_status status;

	lease_ask();
	status = lease_upkeep_prepare();
	if (status == LEASE_STATUS_OK && !tenure->has_taken_over)
		status = table_read_journals(&batcher.connection, &changes);
	if (status == LEASE_STATUS_OK)
		status = table_read_owner(&batcher.connection, call->request.owner,
								  dlock_caller_user(&call->caller),
								  dlock_caller_host(&call->caller), &rows);
	(void) lease_resume();
	for (size_t i = 0; status == LEASE_STATUS_OK && i < rows.count; i++)
		append_name(list, rows.rows[i].name);
	for (size_t i = 0; status == LEASE_STATUS_OK && i < changes.count; i++)
		if (changes.changes[i].kind == JOURNAL_PUT &&
			lease_same(changes.changes[i].row.owner, call->request.owner))
			append_name(list, changes.changes[i].row.name);
	journal_free(&changes);
	table_free_rows(&rows);
	return status;
}

/*
 * Look up the names of an owner for a call that concerns all of them, which is
 * the first of the list.  The mutex is held, and released meanwhile.
 */
void
lease_upkeep_find_leases(lease_call *call)
{
	name_list	list = {0};
	lease_status status = LEASE_STATUS_OK;

	lease_list_none(call);
	if (!image_is_complete())
		status = find_in_table(call, &list);
	if (image_is_valid())
		find_in_image(call, &list);
	sort_list(&list);
	if (status != LEASE_STATUS_OK)
	{
		lease_batch_note_failure(status);
		lease_call_after_failure(call, status, false);
	}
	else if (list.count == 0 && tenure->read_only)
	{
		lease_call_fail(call, "25006",
						"could not use the lock table: the server is read-only");
		lease_call_finish(call);
	}
	else if (list.count == 0 && !list.failed)
		lease_call_answer_now(call);
	else if (!set_names(call, &list, list.count))
	{
		lease_call_fail(call, "53200", "out of memory");
		lease_call_finish(call);
	}
	else
		lease_call_put_back(call);
	free_list(&list);
}

static void
list_connection(uint64_t connection_id, void *context)
{
	id_list    *list = context;

	if (grow(&list->ids, list->count, &list->room, sizeof(uint64_t)))
		list->ids[list->count++] = connection_id;
	else
		list->failed = true;
}

/*
 * Look which connections have ended, if the server cannot tell us.  The mutex is
 * held, and released meanwhile.
 */
static void
look_for_connections(void)
{
	id_list		list = {0};
	lease_status status;

	if (!lease_session_begin_list())
		return;
	lease_ask();
	status = lease_upkeep_prepare_to_look();
	if (status == LEASE_STATUS_OK)
		status = connection_visit_all(&batcher.connection, list_connection,
									  &list);
	(void) lease_resume();
	if (list.failed)
		status = LEASE_STATUS_FAILED;
	for (size_t i = 0; status == LEASE_STATUS_OK && i < list.count; i++)
		lease_session_list(list.ids[i]);
	lease_session_end_list(status == LEASE_STATUS_OK);
	free(list.ids);
}

/* There may be more that is over. */
void
lease_upkeep_reap_soon(void)
{
	batcher.reap_us = 0;
}

/* Have the server and its connections looked at. */
void
lease_upkeep_look_soon(void)
{
	batcher.sessions_us = 0;
}

/*
 * Look whether this server may be written, and is a member of a cluster.  The
 * mutex is held, and released meanwhile.  Should that fail, it counts as in a
 * cluster, and may have been read-only.  That another run has the journal is no
 * failure: this one takes over again.
 */
static void
look_at_server(void)
{
	connection *c = &batcher.connection;
	lease_status status;
	int64_t		began_us = lease_now();
	bool		has_journal = tenure->has_journal;

	lease_ask();
	status = prepare(true);
	if (status == LEASE_STATUS_OK)
		status = connection_look(c);
	/* install.sql may have made it, or uninstall.sql taken it away */
	if (status == LEASE_STATUS_OK && tenure->has_taken_over)
		status = table_look(c, tenure->direct ? 0 : lease_run(),
							&has_journal);
	(void) lease_resume();
	if (batcher.reap_us > lease_now() + settings->reap_interval_us)
		batcher.reap_us = 0;	/* the interval has become shorter */
	if (status == LEASE_STATUS_FENCED)
		lease_forget();
	else if (status != LEASE_STATUS_OK)
	{
		lease_call_fail_late();
		lease_note_not_looked();
		return;
	}
	if (c->is_clustered != tenure->clustered ||
		has_journal != tenure->has_journal)
		lease_forget();
	lease_note_looked(c->is_clustered, c->is_read_only, began_us);
}

/*
 * Put off what is done every second: the server is being shut down.  A member
 * of a group leaves it first of all, and then waits for a minute for those who
 * wait for the group.
 */
void
lease_upkeep_put_off(int64_t now_us)
{
	batcher.sessions_us = now_us + SESSIONS_INTERVAL_US;
	batcher.reap_us = now_us + SESSIONS_INTERVAL_US;
}

/* Look after sessions.  The mutex is held, and released meanwhile. */
void
lease_upkeep_sessions(void)
{
	look_at_server();
	look_for_connections();

	/* from now on: the server may have taken its time, and others wait */
	batcher.sessions_us = lease_now() + SESSIONS_INTERVAL_US;
}

/* The server could not be asked for what is over. */
static void
note_reap_failure(lease_status status)
{
	lease_batch_note_failure(status);
	lease_call_fail_late();
}

/* Say whether the lease of a row is over: the journal may have it otherwise. */
static bool
is_due(const lease_row *row, int64_t due_us)
{
	const lease_member *member = image_lease(row->name, row->token);

	return image_is_known(row->name) ?
		member != NULL && member->deadline_us <= due_us : true;
}

/*
 * Where the image does not have all leases: find some that are over in the table.  False
 * if what the journal is yet to change is in the way of others.
 */
static bool
find_due(int64_t due_us, name_list *list)
{
	bool		any_stale = false;
	table_rows	own = {0};
	table_rows	foreign = {0};
	size_t		seen = 0;
	lease_status status;

	lease_ask();
	status = lease_upkeep_prepare();
	if (status == LEASE_STATUS_OK)
		status = table_read_due(&batcher.connection, lease_run(), due_us,
								LEASE_REAP_NAMES, &own);
	if (status == LEASE_STATUS_OK)
		status = table_read_foreign(&batcher.connection, lease_run(),
									(lease_bytes) {
			foreign_name, foreign_name_length
		}, foreign_slot, FOREIGN_ROWS, &foreign);
	(void) lease_resume();
	if (status != LEASE_STATUS_OK)
		note_reap_failure(status);
	for (size_t i = 0; status == LEASE_STATUS_OK && i < own.count; i++)
		if (is_due(&own.rows[i], due_us))
			append_name(list, own.rows[i].name);
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
			append_name(list, row->name);
	}
	if (seen == foreign.count && foreign.count < FOREIGN_ROWS)
		foreign_name_length = foreign_slot = 0;
	table_free_rows(&own);
	table_free_rows(&foreign);
	return !any_stale;
}

/* Look for what is over.  The mutex is held, and released meanwhile. */
void
lease_upkeep_reap(int64_t now_us)
{
	name_list	list = {0};
	int64_t		due_us = now_us - settings->lock_delay_us;
	int64_t		again_us = now_us + settings->reap_interval_us;
	image_name *name;
	lease_call *call;

	if (tenure->doubt_us != 0)
	{
		batcher.reap_us = again_us; /* nothing can be written */
		return;
	}
	while (list.count < LEASE_REAP_NAMES &&
		   (name = image_due(due_us, again_us)) != NULL)
		append_name(&list, name->name);
	if (!image_is_complete() && list.count < LEASE_REAP_NAMES &&
		!find_due(due_us, &list))
	{
		lease_status status = lease_checkpoint();

		if (status != LEASE_STATUS_OK)
			note_reap_failure(status);
		else if (!image_is_complete())
			(void) find_due(due_us, &list);
	}
	sort_list(&list);
	batcher.reap_us = lease_now() + settings->reap_interval_us;
	call = list.count > 0 ? lease_call_create(0) : NULL;
	if (call != NULL && set_names(call, &list, LEASE_REAP_NAMES))
	{
		call->internal = LEASE_INTERNAL_REAP;
		call->request.op = LEASE_REAP;
		call->answered = true;
		lease_engine_submit(call);
	}
	else if (call != NULL)
		lease_call_unref(call);
	free_list(&list);
}
