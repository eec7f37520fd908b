/*
 * lease_session.h
 *	  Connections that have session leases, and their ends.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_SESSION_H
#define DLOCK_LEASE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

/*
 * See to it that dlock_engine_end_connection() is called when the calling
 * connection ends.  NULL, or the message of an error, and its SQLSTATE: the server will
 * not tell us, say.  The batcher runs.
 */
extern const char *lease_session_watch(const char **sqlstate);

/* MariaDB: the plugin is about to be uninstalled, and may tell us nothing more. */
extern void lease_session_unplug(void);

/* Say whether a watched connection is there. */
extern bool lease_session_is_alive(uint64_t connection_id);

#endif							/* DLOCK_LEASE_SESSION_H */
