/*
 * upkeep.c
 *	  What happens each second, on a connection of its own: settings, the state of the
 *	  server, and the deletion of old rows of the log.
 *
 * It never stands in the way of an append.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "engine.h"

#include <stdatomic.h>
#include <time.h>

#include "connection.h"
#include "lease_connections.h"

#define INTERVAL_US		1000000
#define STEP_US			50000

static connection own = {.wire = -1};
static atomic_bool hurries = false;

/* A setting was read. */
static lease_status
read_settings(connection *c)
{
	lease_text	query = {0};
	MYSQL_RES  *result;
	MYSQL_ROW	row;
	lease_status status;

	lease_text_add(&query, "SELECT name, value FROM dlock.settings");
	status = connection_query(c, &query, &result);
	if (status != LEASE_STATUS_OK)
		return status;
	engine_lock();
	lease_settings_forget();
	while ((row = mysql_fetch_row(result)) != NULL)
		lease_settings_take(row[0], row[1]);
	lease_settings_use();
	engine_unlock();
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}

/* Read the settings for the first time, if they never were. */
void
upkeep_read_settings(connection *c)
{
	if (!lease_settings_are_read())
		(void) read_settings(c);
}

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
			(void) read_settings(&own);
		if (own.mysql != NULL)
			look_at_server();
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
		}
	}
	return NULL;
}
