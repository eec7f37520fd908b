/*
 * lease_watch.c
 *	  How the engine learns that a connection with session leases has ended.
 *
 * lease_connections.c has the two servers' ways.
 *
 * Where MariaDB's plugin is not active, the batcher looks at the list of connections
 * instead, once a second.  That is so after a reinstallation while there are
 * connections from before.  MariaDB does not say when such a plugin goes silent: it
 * deactivates it after the last of these connections.  So lease_upkeep.c asks.
 *
 * The functions here take the engine's mutex themselves, unless a comment says otherwise.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_watch.h"

#include <stdlib.h>
#include <unistd.h>

#include "lease_connections.h"
#include "lease_guards.h"
#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_pace.h"
#include "lease_session.h"
#include "lease_upkeep.h"
#include "server_abi.h"

/* How long a connection's first session lease waits for the list of connections. */
#define LIST_PATIENCE_US	3000000

/* A connection has ended, or has changed its user. */
void
dlock_connection_ended(uint64_t connection_id)
{
	lease_lock();
	lease_session_end(connection_id);
	lease_guards_remove(connection_id);
	lease_wake_before(lease_session_due_us());
	lease_unlock();
}

/*
 * Have a connection's end reported to us: false if that cannot be done just now.
 * *failed is set if memory is short.
 */
static bool
watch(uint64_t connection_id, bool *failed)
{
	lease_calls ended = {0};
	bool		is_mysql = dlock_server_kind() == DLOCK_SERVER_MYSQL;
	bool		is_kept;
	bool		watched;

	lease_lock();
	watched = lease_session_is_alive(connection_id);
	lease_unlock();
	if (watched)
		return true;
	is_kept = is_mysql && connection_id != 0 && lease_connections_keep(connection_id);
	lease_lock();
	watched = is_mysql ? is_kept : connection_id != 0 && lease_session_is_heard();
	if (watched)
	{
		*failed = !lease_session_open(connection_id, &ended);
		lease_pace_submit_all(&ended);
	}
	else
	{
		/* so that the batcher reads the list of connections, if it is needed */
		lease_upkeep_look_soon();
		lease_wake();
	}
	lease_unlock();
	return watched;
}

/*
 * Have dlock_connection_ended() called when the calling connection ends.  Returns NULL, or the
 * message of an error, with its SQLSTATE in *sqlstate.  The batcher runs.
 */
const char *
lease_watch(const char **sqlstate)
{
	uint64_t	connection_id = dlock_caller_connection_id();
	int64_t		end_us = lease_now() + LIST_PATIENCE_US;
	bool		failed = false;

	*sqlstate = "55000";
	/* an event's thread ends without telling audit plugins */
	if (dlock_caller_is_event())
		return "cannot be told when this connection ends; an event cannot take session leases";
	while (!watch(connection_id, &failed))
	{
		if (dlock_server_kind() != DLOCK_SERVER_MARIADB ||
			lease_now() >= end_us || dlock_thd_killed(dlock_caller_thd()))
			return "cannot be told when this connection ends; run install.sql again";
		dlock_wait_begin();
		usleep(LEASE_LOOK_INTERVAL_US);
		dlock_wait_end();
	}
	if (!failed)
		return NULL;
	*sqlstate = "53200";
	return "out of memory";
}
