/*
 * lease_connections.h
 *	  How the server tells that a connection has ended.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_CONNECTIONS_H
#define DLOCK_LEASE_CONNECTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "dlock_call.h"

/* lease_connections.c: MySQL's way, for the calling connection; false: it cannot */
extern bool lease_connections_keep(uint64_t connection_id);

/* lease_connections.c: MariaDB's account that has logged in, as far as is known */
extern bool lease_connections_login(uint64_t connection_id,
									dlock_caller *caller, bool *is_operator);

/*
 * Of the engine; called without its mutex.  A connection has ended, or has changed its
 * user; and MariaDB tells of ends from now on, or does no more.
 */
extern void dlock_connection_ended(uint64_t connection_id);
extern void dlock_connections_told(bool told);

#endif							/* DLOCK_LEASE_CONNECTIONS_H */
