/*
 * lease_area.h
 *	  The shared memory of dlock.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_AREA_H
#define DLOCK_LEASE_AREA_H

#include "compat.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

/*
 * What tells one form of the area from another.  Whoever changes the form, or what its
 * fields mean, makes this larger: a session whose library has another number gets an
 * error.  Not within a minor version, so that its updates need no restart.
 */
#ifndef LEASE_AREA_LAYOUT
#define LEASE_AREA_LAYOUT	1
#endif

/* A place in the area: the distance from its start.  0: none. */
typedef Size LeasePlace;

/* What the sizes of the area follow, as it was when the area was made. */
typedef struct LeaseAreaSizes
{
	int			databases;
	int			waiters;		/* that can wait, in one place each */
	int			guards;			/* but the first of each transaction */
} LeaseAreaSizes;

/* dlock.max_databases and so on; what counts is lease_area_sizes */
extern int	lease_max_databases;
extern int	lease_max_waiters;
extern int	lease_max_guards;

/* this process's; NULL as long as it has not attached */
extern char *lease_area_start;
extern const LeaseAreaSizes *lease_area_sizes;

/* PgReloadTime of the settings that this process has told the others; 0: none yet */
extern TimestampTz lease_area_told;

/* lease_area.c */
extern void lease_area_attach_now(void);
extern bool lease_area_attach_if_made(void);
extern void lease_area_init_lock(LWLock *lock);

/*
 * Attach to the area, which is made if need be.  Each call does this before it uses any
 * of shared memory, with no lock held: it may fail.  If the server's settings were read in
 * this process since the last call, this tells all others.
 */
static inline void
lease_area_attach(void)
{
	if (unlikely(lease_area_start == NULL || lease_area_told != PgReloadTime))
		lease_area_attach_now();
}

static inline void *
lease_area_at(LeasePlace place)
{
	return place == 0 ? NULL : lease_area_start + place;
}

static inline LeasePlace
lease_area_place(const void *address)
{
	return (LeasePlace) ((const char *) address - lease_area_start);
}

#endif							/* DLOCK_LEASE_AREA_H */
