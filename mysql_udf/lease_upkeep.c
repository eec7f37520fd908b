/*
 * lease_upkeep.c
 *	  What the batcher does every second, unasked: look at the server, and, where the
 *	  server does not tell, which connections have ended; and take over anew if this run
 *	  has left something in the journal.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_upkeep.h"

#include "lease_call_end.h"
#include "lease_connections.h"
#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_pace.h"
#include "lease_reaper.h"
#include "lease_server.h"
#include "lease_session.h"
#include "lease_take_over.h"
#include "lease_tenure.h"

/* How often to look at the server, the settings and the sessions. */
#define INTERVAL_US		1000000

/* How long not to take over again after that has failed. */
#define TAKE_OVER_PAUSE_US	10000000

static int64_t look_us = 0;		/* when to look next */
static int64_t take_over_us = 0;	/* when to take over at the earliest */

/* A connection is there. */
static void
list_connection(uint64_t connection_id)
{
	lease_lock();
	lease_session_list(connection_id);
	lease_unlock();
}

/*
 * Find out whether MariaDB tells us of the ends of connections.  If the plugin has been
 * uninstalled, it is silent for connections that have come since.  The mutex is held, and
 * released meanwhile.
 */
static void
look_for_plugin(void)
{
	bool		active;
	lease_status status;

	if (!lease_session_needs_plugin())
		return;
	lease_ask();
	status = lease_server_prepare_to_look();
	if (status == LEASE_STATUS_OK)
		status = connection_ask_plugin(lease_server_connection(), &active);
	(void) lease_resume();
	if (status == LEASE_STATUS_OK)
		dlock_connections_told(active);
}

/*
 * Look which connections have ended, if the server cannot tell us.  The mutex is
 * held, and released meanwhile.
 */
static void
look_for_connections(void)
{
	lease_status status;

	if (!lease_session_begin_list())
		return;
	lease_ask();
	status = lease_server_prepare_to_look();
	if (status == LEASE_STATUS_OK)
		status = connection_visit_all(lease_server_connection(),
									  list_connection);
	(void) lease_resume();
	lease_session_end_list(status == LEASE_STATUS_OK);
}

/*
 * If what this run knew was forgotten, it takes over with the next call.  No call may come
 * for long, and what it has left in the journal is to be written into the table all the
 * same.  The mutex is held, and released meanwhile.
 */
static void
take_over_again(void)
{
	lease_status status;
	int64_t		now_us = lease_now();

	if (!tenure->unapplied || tenure->read_only || lease_is_in_doubt() ||
		lease_is_early(now_us) || now_us < take_over_us)
		return;
	status = lease_take_over_unasked();
	if (status != LEASE_STATUS_OK)
		take_over_us = lease_now() + TAKE_OVER_PAUSE_US;
	if (status != LEASE_STATUS_OK && status != LEASE_STATUS_EARLY)
		lease_note_failure(status);
}

/* Have the batcher look at the server and its connections as soon as it is awake. */
void
lease_upkeep_look_soon(void)
{
	look_us = 0;
}

/*
 * Put off what is done every second, because the server is being shut down.  A member of
 * a group first leaves the group, and then waits a minute for sessions that wait for it.
 */
void
lease_upkeep_put_off(int64_t now_us)
{
	look_us = now_us + INTERVAL_US;
	lease_reap_put_off(now_us);
}

/*
 * Look at the server and its connections, and take over anew if need be.  The mutex is
 * held, and released meanwhile.
 */
void
lease_upkeep(void)
{
	if (lease_server_look() != LEASE_STATUS_OK)
		lease_call_fail_late();
	else
		take_over_again();
	look_for_plugin();
	look_for_connections();

	/* counted from now: the server may have been slow, and callers wait */
	look_us = lease_now() + INTERVAL_US;
}

/* When lease_upkeep() is due. */
int64_t
lease_upkeep_due_us(void)
{
	return look_us;
}
