/*
 * lease_clock.h
 *	  The lease clock of a database, and the boot's clock that carries it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_CLOCK_H
#define DLOCK_LEASE_CLOCK_H

#include "compat.h"
#include "lease_page.h"
#include "lease_state.h"

/* How old the worker lets the clock's mark become while leases are held. */
#define LEASE_MARK_AGE_US	(10 * USECS_PER_SEC)

extern char *lease_boot_id;		/* dlock.boot_id */

/* lease_clock.c */
extern Size lease_clock_size(void);
extern void lease_clock_attach(char *start, bool make);
extern int64 lease_clock_boot(void);
extern bool lease_clock_is_past(int64 start_us, int milliseconds);
extern LeaseBoot lease_clock_identity(void);
extern int64 lease_clock_server_start(void);
extern int64 lease_clock_now(LeaseDatabase *db);
extern int64 lease_clock_read(Relation rel);
extern void lease_clock_mark(Relation rel, LeaseDatabase *db, int64 age_us);

#endif							/* DLOCK_LEASE_CLOCK_H */
