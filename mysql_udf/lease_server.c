/*
 * lease_server.c
 *	  The batcher's connection to the server, and what it tells of the server and the
 *	  settings.
 *
 * Only the batcher uses it, or the caller to which the batcher has lent its work.
 * Statements are sent without the engine's mutex.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_server.h"

#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_settings.h"
#include "lease_tenure.h"
#include "table.h"

/* How long not to read the settings again, if they could not be read. */
#define SETTINGS_PAUSE_US	10000000

static connection own = {.wire = -1};
static int64_t settings_us = 0; /* when to read the settings at the earliest */

/* The connection, open or not. */
connection *
lease_server_connection(void)
{
	return &own;
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
	lease_settings_forget();
	if (table_visit_settings(&own, lease_settings_take) != LEASE_STATUS_OK)
	{
		/* a session may have locked the table */
		if (own.mysql != NULL)
			settings_us = lease_now() + SETTINGS_PAUSE_US;
		return;
	}
	lease_lock();
	lease_settings_use();
	lease_unlock();
}

/*
 * Open the connection if need be; read the settings if that is "due".  If this finds that
 * the connection was closed while it was idle, it opens another one.  The mutex is not
 * held.
 */
static lease_status
prepare(bool due)
{
	for (int tries = 0; tries < 2; tries++)
	{
		if (own.mysql == NULL)
		{
			lease_status status = connection_open(&own);

			if (status != LEASE_STATUS_OK)
				return status;
		}
		if (due)
			read_settings();
		if (own.mysql != NULL)
			return LEASE_STATUS_OK;
	}
	return LEASE_STATUS_LOST;
}

/* Prepare the connection for looks.  Before anything is written: lease_server_prepare(). */
lease_status
lease_server_prepare_to_look(void)
{
	return prepare(!lease_settings_are_read());
}

/*
 * Prepare the connection for all else: end what still goes on in a connection that was
 * lost.  After that the tables tell what has become of its commit.
 */
lease_status
lease_server_prepare(void)
{
	lease_status status = lease_server_prepare_to_look();

	if (status == LEASE_STATUS_OK)
		status = connection_end_lost(&own);
	if (status == LEASE_STATUS_OK && tenure->doubt_us != 0)
	{
		lease_lock();
		lease_end_doubt();
		lease_unlock();
	}
	return status;
}

/*
 * Check whether this server may be written to, and is a member of a cluster.  If that
 * fails, the server counts as in a cluster.  If another run has the journal, that is no
 * failure: this run takes over anew.  The mutex is held, and released meanwhile.
 */
lease_status
lease_server_look(void)
{
	connection *c = &own;
	lease_status status;
	int64_t		began_us = lease_now();
	bool		has_journal = tenure->has_journal;

	lease_ask();
	status = prepare(true);
	if (status == LEASE_STATUS_OK)
		status = connection_look(c);
	/* install.sql may have made the journal, or uninstall.sql dropped it */
	if (status == LEASE_STATUS_OK && tenure->has_taken_over)
		status = table_look(c, tenure->direct ? 0 : lease_run(),
							&has_journal);
	(void) lease_resume();
	if (status == LEASE_STATUS_FENCED)
		lease_forget();
	else if (status != LEASE_STATUS_OK)
	{
		lease_note_not_looked();
		return status;
	}
	/* the last: this run may have taken over since the last look, for another kind of server */
	if (c->is_clustered != tenure->clustered ||
		has_journal != tenure->has_journal ||
		(tenure->has_taken_over &&
		 tenure->direct != (c->is_clustered || !has_journal)))
		lease_forget();
	lease_note_looked(c->is_clustered, c->is_read_only, began_us);
	return LEASE_STATUS_OK;
}
