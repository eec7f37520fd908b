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

#include "lease_cache.h"
#include "lease_foreign.h"
#include "lease_marks.h"
#include "lease_session.h"
#include "udf_text.h"

/* How often to look at the server, the settings and the sessions. */
#define SESSIONS_INTERVAL_US	1000000

/* When to read the settings again, if they could not be read. */
#define SETTINGS_PAUSE_US	10000000

/* Rows to look at in one round of the reaper. */
#define REAP_ROWS		200
#define FOREIGN_ROWS	1000

/* What DBAs can set in dlock.settings, see install.sql. */
enum
{
	LOCK_DELAY, REAP_INTERVAL, LOCK_TIMEOUT, MAX_TTL, MAX_WAITERS, LOG_EXPIRED
};
static struct
{
	const char *name;
	double		least;
	double		most;
	double		standard;		/* if the table has none, or a wrong one */
	double		value;
	bool		is_whole;		/* no fractions */
	bool		is_wrong;		/* as it was last read, */
	char		wrong[40];		/* with this value: it was complained of */
}			settings[] = {
	{.name = "lock_delay",.least = 0,.most = 86400,.standard = 0},
	{.name = "reap_interval",.least = 0.1,.most = 3600,.standard = 1},
	{.name = "lock_timeout",.least = 0.1,.most = 3600,.standard = 5},
	{.name = "max_ttl",.least = 1,.most = LEASE_TTL_MAX_US / 1e6,.standard = LEASE_MAX_TTL_DEFAULT,.is_whole = true},
	{.name = "max_waiters",.least = 0,.most = 1000000,.standard = 1000,.is_whole = true},
	{.name = "log_expired",.least = 0,.most = 1,.standard = 1,.is_whole = true},
};
#define SETTINGS		(sizeof(settings) / sizeof(settings[0]))

static bool has_settings = false;
static int64_t settings_us = 0; /* not to be read before */

/* Names that were found in the table. */
typedef struct name_list
{
	lease_bytes *names;
	size_t		count;
	size_t		room;
	int64_t		delay_us;
	size_t		visited;
} name_list;

/* Connections that are there. */
typedef struct id_list
{
	uint64_t   *ids;
	size_t		count;
	size_t		room;
} id_list;

/* Where the reaper's walk over foreign rows is. */
static char foreign_name[LEASE_STRING_MAX];
static size_t foreign_name_length = 0;
static uint32_t foreign_slot = 0;

/* Read a setting's value: a number from least to most; false if it is none. */
static bool
read_value(size_t setting, const char *text, double *value)
{
	char	   *end;

	*value = strtod(text, &end);
	return end != text && *end == '\0' &&
		*value >= settings[setting].least && *value <= settings[setting].most &&
		(!settings[setting].is_whole || *value == (double) (int64_t) *value);
}

/*
 * A setting was read.  A wrong one has its default, and the error log is told of
 * it once.  Other names may be those of another version.
 */
static void
take_setting(const char *name, const char *text, void *context)
{
	char		shown[DLOCK_SHOWN_SIZE];
	double		value;

	for (size_t i = 0; i < SETTINGS; i++)
	{
		if (strcmp(name, settings[i].name) != 0)
			continue;
		if (read_value(i, text, &value))
		{
			settings[i].value = value;
			settings[i].is_wrong = false;
			continue;
		}
		if (settings[i].is_wrong &&
			strncmp(settings[i].wrong, text, sizeof(settings[i].wrong) - 1) == 0)
			continue;
		settings[i].is_wrong = true;
		snprintf(settings[i].wrong, sizeof(settings[i].wrong), "%s", text);
		fprintf(stderr, "dlock: setting \"%s\" in dlock.settings must be a "
				"%snumber from %.10g to %.10g, and is \"%s\"; using the default\n",
				name, settings[i].is_whole ? "whole " : "", settings[i].least,
				settings[i].most, dlock_show(shown, (lease_bytes) {
					text, strlen(text)
				}));
	}
}

/*
 * Read the settings; those that are missing or wrong have their defaults.  The
 * mutex is not held.  If they cannot be read, they stay as they are.
 */
static void
read_settings(void)
{
	if (lease_now() < settings_us)
		return;
	for (size_t i = 0; i < SETTINGS; i++)
		settings[i].value = settings[i].standard;
	if (lease_table_visit_settings(batcher.table, take_setting, NULL) !=
		LEASE_STATUS_OK)
	{
		/* somebody may have locked the table */
		settings_us = lease_now() + SETTINGS_PAUSE_US;
		return;
	}
	has_settings = true;
	atomic_store(&engine.max_ttl_us, (int64_t) (settings[MAX_TTL].value * 1e6));
	pthread_mutex_lock(&engine.mutex);
	engine.settings = (lease_settings) {
		.lock_delay_us = (int64_t) (settings[LOCK_DELAY].value * 1e6),
		.reap_interval_us = (int64_t) (settings[REAP_INTERVAL].value * 1e6),
		.lock_timeout_us = (int64_t) (settings[LOCK_TIMEOUT].value * 1e6),
		.max_waiters = (size_t) settings[MAX_WAITERS].value,
		.log_expired = settings[LOG_EXPIRED].value != 0,
	};
	pthread_mutex_unlock(&engine.mutex);
}

/* See to it that there is a connection; read the settings, if that is due. */
static lease_status
prepare(bool due)
{
	if (!lease_table_is_connected(batcher.table))
	{
		lease_status status = lease_table_connect(batcher.table);

		if (status != LEASE_STATUS_OK)
			return status;
	}
	if (due)
		read_settings();
	return lease_table_is_connected(batcher.table) ? LEASE_STATUS_OK :
		LEASE_STATUS_LOST;
}

/* See to it that there is a connection, with all that is done once. */
lease_status
lease_upkeep_prepare(void)
{
	return prepare(!has_settings);
}

/* Say whether the settings have been read since the library was loaded. */
bool
lease_upkeep_has_settings(void)
{
	return has_settings;
}

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
 * Raise all marks: before the first grant of this run, and again when the table may have
 * been written by others.  If the clock is not there yet, it says when it will be.
 */
static lease_status
raise_marks(void)
{
	lease_takeover takeover;
	lease_status status = lease_table_raise_marks(batcher.table, lease_wall() -
												  LEASE_MARKS_EPOCH_US,
												  &takeover);

	batcher.early_until_us = 0;
	if (status != LEASE_STATUS_OK)
		return status;
	if (takeover.wait_us > 0)
	{
		batcher.early_until_us = lease_now() + takeover.wait_us;
		return LEASE_STATUS_EARLY;
	}
	if (takeover.clock_is_behind)
		warn_of_clock();
	batcher.has_marks = true;
	return LEASE_STATUS_OK;
}

/* See to it that the journal is this run's.  The mutex is not held. */
static lease_status
take_journal(void)
{
	if (lease_table_knows_journal(batcher.table))
		return LEASE_STATUS_OK;
	return lease_table_take_over(batcher.table, !batcher.has_marks);
}

/*
 * See to it that this run has taken over: before anything is written.  The mutex
 * is not held.
 */
lease_status
lease_upkeep_take_over(void)
{
	lease_status status = take_journal();

	return status == LEASE_STATUS_OK && !batcher.has_marks ? raise_marks() :
		status;
}

/*
 * See to it that all leases have rows, for somebody to read them, or to lock
 * them: only those in the lock table count then.  On a server that cannot be
 * written they stay as they are.  The mutex is not held.
 */
lease_status
lease_upkeep_show(void)
{
	lease_status status;
	const char *sqlstate;
	bool		any;

	if (lease_table_knows_journal(batcher.table))
		status = lease_table_settle(batcher.table);
	else
	{
		status = lease_table_find_journal(batcher.table, &any);
		if (status == LEASE_STATUS_OK && any &&
			!lease_table_is_read_only(batcher.table))
			status = take_journal();
	}
	return status == LEASE_STATUS_FAILED &&
		lease_is_read_only_error(lease_table_error(batcher.table, &sqlstate)) ?
		LEASE_STATUS_OK : status;
}

/*
 * The leases of the journal are to get rows.  The mutex is held, and released
 * meanwhile.
 */
void
lease_upkeep_move(void)
{
	lease_status status;

	lease_batch_ask();
	status = lease_upkeep_prepare();
	if (status == LEASE_STATUS_OK)
		status = lease_table_settle(batcher.table);
	(void) lease_batch_resume();
	if (status != LEASE_STATUS_OK)
		lease_batch_note_failure(status);
}

static void
append_name(name_list *list, lease_bytes name)
{
	char	   *copy = malloc(name.length + 1);

	if (list->count == list->room)
		list->names = lease_grow(list->names, &list->room,
								 sizeof(lease_bytes));
	if (copy == NULL)
		abort();
	memcpy(copy, name.data, name.length);
	list->names[list->count++] = (lease_bytes) {copy, name.length};
}

/* The same, unless it is there. */
static void
list_name(name_list *list, lease_bytes name)
{
	for (size_t i = list->count; i-- > 0;)
		if (lease_same(list->names[i], name))
			return;
	append_name(list, name);
}

static void
free_list(name_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free((char *) list->names[i].data);
	free(list->names);
	memset(list, 0, sizeof(*list));
}

static void
visit_owned(lease_bytes name, const lease_row *row, void *context)
{
	name_list  *list = context;

	(void) row;
	if (list->count == 0 ||
		!lease_same(list->names[list->count - 1], name))
		append_name(list, name);
}

static void
visit_due(lease_bytes name, const lease_row *row, void *context)
{
	(void) row;
	list_name(context, name);
}

/* A row of another run: note when we first saw it, and whether it is over. */
static void
visit_foreign(lease_bytes name, const lease_row *row, void *context)
{
	name_list  *list = context;
	int64_t		now_us = lease_now();	/* reading may have taken long */

	list->visited++;
	memcpy(foreign_name, name.data, name.length);
	foreign_name_length = name.length;
	foreign_slot = row->slot;
	if (lease_foreign_deadline(name, row, now_us) + list->delay_us <= now_us)
		list_name(list, name);
}

/* Give a call the names of a list, or the first of them. */
static void
set_names(lease_call *call, const name_list *list, size_t most)
{
	size_t		count = list->count < most ? list->count : most;
	char	   *data;

	free(call->names);
	call->names = calloc(1, count * (sizeof(lease_bytes) +
									 LEASE_STRING_MAX) + 1);
	if (call->names == NULL)
		abort();
	data = (char *) &call->names[count];
	for (size_t i = 0; i < count; i++)
	{
		memcpy(data, list->names[i].data, list->names[i].length);
		call->names[i] = (lease_bytes) {data, list->names[i].length};
		data += LEASE_STRING_MAX;
	}
	call->nnames = count;
}

/*
 * Look up the names of an owner for a call that concerns all of them, which is
 * the first of the list.  The mutex is held, and released meanwhile.
 */
void
lease_upkeep_find_leases(lease_call *call)
{
	name_list	list = {0};
	lease_status status;

	lease_calls_remove(call);
	call->place = LEASE_PLACE_BATCH;
	lease_batch_ask();
	status = lease_upkeep_prepare();
	if (status == LEASE_STATUS_OK)
		status = lease_upkeep_show();
	if (status == LEASE_STATUS_OK)
		status = lease_table_visit_owner(batcher.table, call->request.owner,
										 &call->caller, visit_owned, &list);
	(void) lease_batch_resume();
	if (status != LEASE_STATUS_OK)
	{
		lease_batch_note_failure(status);
		lease_call_after_failure(call, status, false);
	}
	else if (list.count == 0 && engine.read_only)
	{
		lease_call_fail(call, "25006",
						"could not use the lock table: the server is read-only");
		lease_call_finish(call);
	}
	else if (list.count == 0)
		lease_call_answer_now(call);
	else
	{
		set_names(call, &list, list.count);
		lease_call_put_back(call);
	}
	free_list(&list);
}

static void
list_connection(uint64_t connection_id, void *context)
{
	id_list    *list = context;

	if (list->count == list->room)
		list->ids = lease_grow(list->ids, &list->room, sizeof(uint64_t));
	list->ids[list->count++] = connection_id;
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
	lease_batch_ask();
	status = lease_upkeep_prepare();
	if (status == LEASE_STATUS_OK)
		status = lease_table_visit_connections(batcher.table, list_connection,
											   &list);
	(void) lease_batch_resume();
	for (size_t i = 0; status == LEASE_STATUS_OK && i < list.count; i++)
		lease_session_list(list.ids[i]);
	lease_session_end_list(status == LEASE_STATUS_OK);
	free(list.ids);
}

/*
 * Another server may have written the table, or may do so now: forget what was
 * believed.
 */
static void
forget_beliefs(void)
{
	lease_cache_forget_all();
	lease_marks_forget();
}

/*
 * The server could not be written, and another one may have been: what was
 * believed is forgotten, and this run takes over again before the next grant.
 * The mutex is held.
 */
void
lease_upkeep_note_read_only(void)
{
	engine.read_only = true;
	batcher.has_marks = false;
	lease_table_forget_journal(batcher.table);
	forget_beliefs();
}

/*
 * Look whether this server may be written, and is a member of a cluster.  The
 * mutex is held, and released meanwhile.  Should that fail, it counts as in a
 * cluster, and may have been read-only.
 */
static void
look_at_server(void)
{
	lease_status status;
	bool		is_read_only;
	bool		is_clustered;
	int64_t		began_us = lease_now();

	lease_batch_ask();
	status = prepare(true);
	if (status == LEASE_STATUS_OK)
		status = lease_table_look(batcher.table, &is_read_only, &is_clustered);
	(void) lease_batch_resume();
	if (batcher.reap_us > lease_now() + engine.settings.reap_interval_us)
		batcher.reap_us = 0;	/* the interval has become shorter */
	if (status != LEASE_STATUS_OK)
	{
		lease_call_fail_late();
		batcher.has_marks = false;
		batcher.clustered = true;
		lease_table_forget_journal(batcher.table);
		forget_beliefs();
		return;
	}
	engine.read_only = is_read_only;
	batcher.looked_us = began_us;
	if (is_read_only)
		lease_upkeep_note_read_only();
	if (is_clustered != batcher.clustered)
	{
		lease_table_forget_journal(batcher.table);
		forget_beliefs();
	}
	batcher.clustered = is_clustered;
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

/* Look for what is over.  The mutex is held, and released meanwhile. */
void
lease_upkeep_reap(int64_t now_us)
{
	name_list	list = {.delay_us = engine.settings.lock_delay_us};
	lease_status status;

	lease_batch_ask();
	status = lease_upkeep_prepare();
	if (status == LEASE_STATUS_OK && !lease_table_knows_journal(batcher.table))
		status = lease_upkeep_show();
	if (status == LEASE_STATUS_OK)
		status = lease_table_visit_due(batcher.table, now_us - list.delay_us,
									   REAP_ROWS, visit_due, &list);
	if (status == LEASE_STATUS_OK)
	{
		status = lease_table_visit_foreign(batcher.table, (lease_bytes) {
			foreign_name, foreign_name_length
		}, foreign_slot, FOREIGN_ROWS, visit_foreign, &list);
		if (list.visited < FOREIGN_ROWS)
		{
			foreign_name_length = 0;
			foreign_slot = 0;
			lease_foreign_forget(now_us - INT64_C(3600) * 1000000);
		}
	}
	(void) lease_batch_resume();
	if (status != LEASE_STATUS_OK)
	{
		lease_batch_note_failure(status);
		lease_call_fail_late();
	}
	batcher.reap_us = lease_now() + engine.settings.reap_interval_us;
	if (list.count > 0)
	{
		lease_call *call;

		call = lease_call_create(0);
		set_names(call, &list, LEASE_BATCH_NAMES / 2);
		call->internal = LEASE_INTERNAL_REAP;
		call->request.op = LEASE_REAP;
		call->answered = true;
		lease_engine_submit(call);
	}
	free_list(&list);
}
