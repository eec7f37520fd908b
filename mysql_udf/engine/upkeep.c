/*
 * upkeep.c
 *	  What happens each second, on a connection of its own: settings and who may call, the
 *	  state of the server, and the deletion of old rows of the log; and the lines for the
 *	  server's log.
 *
 * It never stands in the way of an append.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "engine.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "connection.h"
#include "lease_connections.h"

#define INTERVAL_US		1000000
#define STEP_US			50000

/* Bytes of lines for the server's log; more are left out. */
#define LINES_MOST		(1 << 20)

static connection own = {.wire = -1};
static atomic_bool hurries = false;

/* Whoever reads the settings; taken before the engine's mutex. */
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

/* With the engine's mutex. */
static lease_text lines;		/* for the server's log, each with its end mark */
static size_t left_out = 0;		/* for which there was no room */
static uint64_t listing = 0;	/* the accounts of the last list have this number; */
static bool lists_any = false;	/* it was not empty */

/* ----------------------------------------------------------------
 * What operators set
 * ----------------------------------------------------------------
 */

/* Send a query to the library's own tables. */
static lease_status
ask(connection *c, const char *text, MYSQL_RES **result)
{
	lease_text	query = {0};

	lease_text_add(&query, "%s", text);
	return connection_query(c, &query, result);
}

/* The list of those who may call has been read; NULL: there is none. */
static void
use_callers(MYSQL_RES *result)
{
	MYSQL_ROW	row;

	listing++;
	lists_any = result != NULL && mysql_num_rows(result) > 0;
	while (result != NULL && (row = mysql_fetch_row(result)) != NULL)
	{
		const account *a = image_account_get(dlock_bytes_of(row[0]),
											 dlock_bytes_of(row[1]));

		if (a != NULL)
			((account *) a)->listed = listing;
	}
}

/* Say whether an account may call: if it is in the list, or nobody is. */
bool
upkeep_lists(const account *account)
{
	return !lists_any || account->listed == listing;
}

/* Read the settings, and who may call. */
static void
read_settings(connection *c)
{
	MYSQL_RES  *values;
	MYSQL_RES  *callers;
	MYSQL_ROW	row;
	int64_t		before_us;

	if (ask(c, "SELECT name, value FROM dlock.settings", &values) != LEASE_STATUS_OK)
		return;
	if (ask(c, "SELECT CAST(user AS BINARY), CAST(host AS BINARY) FROM dlock.callers",
			&callers) == LEASE_STATUS_OK || c->is_missing)
	{
		pthread_mutex_lock(&reading);
		lease_settings_forget();
		while ((row = mysql_fetch_row(values)) != NULL)
			lease_settings_take(row[0], row[1]);
		engine_lock();
		before_us = settings->reap_interval_us;
		use_callers(callers);
		lease_settings_use();
		if (settings->reap_interval_us < before_us)
			buffer_wake_before(0);
		engine_unlock();
		pthread_mutex_unlock(&reading);
		mysql_free_result(callers);
	}
	mysql_free_result(values);
}

/*
 * Read them for the first time, if they never were: false if that fails.  Nobody calls
 * before that: who may not would be let in.
 */
bool
upkeep_read_settings(connection *c)
{
	if (!lease_settings_are_read())
		read_settings(c);
	return lease_settings_are_read();
}

/* ----------------------------------------------------------------
 * The server's log
 * ----------------------------------------------------------------
 */

/*
 * Have a line written to the server's log, by upkeep: the log's disk, or whoever reads the
 * log, may stand still.
 */
void
upkeep_log(const char *format,...)
{
	va_list		arguments;

	if (lines.length > LINES_MOST)
	{
		left_out++;
		return;
	}
	va_start(arguments, format);
	lease_text_add_list(&lines, format, arguments);
	va_end(arguments);
	lease_text_put(&lines, "", 1);
}

static void
write_log(void)
{
	lease_text	text;
	size_t		more;
	char		line[64];

	engine_lock();
	text = lines;
	more = left_out;
	lines = (lease_text) {0};
	left_out = 0;
	engine_unlock();
	for (size_t at = 0; at < text.length; at += strlen(text.data + at) + 1)
		dlock_log(text.data + at);
	if (more > 0)
	{
		snprintf(line, sizeof(line), "dlock: %zu more lines were left out here", more);
		dlock_log(line);
	}
	lease_text_free(&text);
}

/* ----------------------------------------------------------------
 * The server
 * ----------------------------------------------------------------
 */

/* A connection is there. */
static void
list_connection(uint64_t connection_id)
{
	engine_lock();
	session_list(connection_id);
	engine_unlock();
}

/* Find out which connections have ended, if the server does not tell. */
static void
look_for_connections(void)
{
	bool		needs_plugin;
	bool		needs_list;
	bool		active;
	lease_status status;

	engine_lock();
	needs_plugin = session_needs_plugin();
	needs_list = session_begin_list();
	engine_unlock();
	if (needs_plugin && connection_ask_plugin(&own, &active) == LEASE_STATUS_OK)
		dlock_connections_told(active);
	if (!needs_list || own.mysql == NULL)
		return;
	status = connection_visit_all(&own, list_connection);
	engine_lock();
	session_end_list(status == LEASE_STATUS_OK);
	engine_unlock();
}

/* Delete old rows of the log. */
static void
clean(log_connection *wire)
{
	static log_cleaning cleaning;
	log_position at;
	log_result	result;
	bool		known;

	engine_lock();
	at = buffer_position();
	known = buffer_may_clean();
	engine_unlock();
	result = known ? log_clean(wire, &cleaning, &at, lease_now()) : LOG_OK;
	if (result == LOG_LOST && wire->code >= 2000)
	{
		log_disconnected(wire);
		wire->mysql = NULL;
	}
	else if (result == LOG_GONE)
	{
		/* a dump was restored, say */
		engine_lock();
		buffer_reload();
		engine_unlock();
	}
}

/* Look whether the log is still there, if somebody waits; otherwise nobody would be told. */
static void
look_for_log(void)
{
	MYSQL_RES  *result;
	bool		awaited;

	engine_lock();
	awaited = queue_waiters() > 0;
	engine_unlock();
	if (!awaited)
		return;
	if (ask(&own, "SELECT 1 FROM dlock.log LIMIT 1", &result) == LEASE_STATUS_OK)
		mysql_free_result(result);
	else if (own.is_missing)
	{
		engine_lock();
		queue_refuse_all(own.sqlstate, own.error);
		engine_unlock();
	}
}

/* Look whether the server may be written to, and by whom. */
static void
look_at_server(void)
{
	server_state state;

	if (!server_look(&own, &state))
		return;
	engine_lock();
	buffer_note_server(&state);
	engine_unlock();
}

/* Have upkeep come soon. */
void
upkeep_hurry(void)
{
	hurries = true;
}

/* The thread. */
void *
upkeep_main(void *argument)
{
	const struct timespec pause = {.tv_nsec = STEP_US * 1000};
	log_connection wire = {0};

	for (;;)
	{
		if ((own.mysql == NULL || wire.mysql == NULL) && connection_open(&own) == LEASE_STATUS_OK)
			wire = (log_connection) {.mysql = own.mysql};
		if (own.mysql != NULL)
			read_settings(&own);
		if (own.mysql != NULL)
			look_at_server();
		if (own.mysql != NULL)
			look_for_log();
		if (own.mysql != NULL)
			look_for_connections();
		if (own.mysql != NULL)
			clean(&wire);
		hurries = false;
		for (int64_t us = 0; us < INTERVAL_US && !hurries; us += STEP_US)
		{
			nanosleep(&pause, NULL);
			engine_lock();
			buffer_watch();
			engine_unlock();
			write_log();
		}
	}
	return NULL;
}
