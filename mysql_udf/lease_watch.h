/*
 * lease_watch.h
 *	  How the engine learns that a connection with session leases has ended.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_WATCH_H
#define DLOCK_LEASE_WATCH_H

#include <stdint.h>

/* lease_watch.c */
extern const char *lease_watch(const char **sqlstate);

#endif							/* DLOCK_LEASE_WATCH_H */
