/*
 * lease_server.h
 *	  The batcher's connection to the server.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_SERVER_H
#define DLOCK_LEASE_SERVER_H

#include "connection.h"

/* lease_server.c */
extern connection *lease_server_connection(void);
extern lease_status lease_server_prepare_to_look(void);
extern lease_status lease_server_prepare(void);
extern lease_status lease_server_look(void);

#endif							/* DLOCK_LEASE_SERVER_H */
