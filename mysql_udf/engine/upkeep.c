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

#include <time.h>

#include "connection.h"

#define INTERVAL_US		1000000

static connection own = {.wire = -1};

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

/* The thread. */
void *
upkeep_main(void *argument)
{
	struct timespec second = {.tv_sec = 1};
	log_cleaning cleaning = {0};
	log_connection wire = {0};

	for (;;)
	{
		log_position at;
		bool		known;

		if (own.mysql == NULL && connection_open(&own) == LEASE_STATUS_OK)
			wire = (log_connection) {.mysql = own.mysql};
		if (own.mysql != NULL)
			(void) read_settings(&own);
		engine_lock();
		at = buffer_position();
		known = buffer_is_known();
		engine_unlock();
		if (own.mysql != NULL && known && at.number > 0 &&
			log_clean(&wire, &cleaning, &at, lease_now()) == LOG_LOST)
		{
			log_disconnected(&wire);
			own.mysql = NULL;
		}
		nanosleep(&second, NULL);
	}
	return NULL;
}
