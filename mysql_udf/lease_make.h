/*
 * lease_make.h
 *	  Make calls: decide each, and serve the waiters.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_MAKE_H
#define DLOCK_LEASE_MAKE_H

#include "lease_name.h"

/* The batch, whose calls are in a list (lease_lists.h). */
typedef struct lease_to_make
{
	image_name **names;			/* all of them are known; they get drafts */
	size_t		nnames;
	bool		direct;			/* changes go into the table at once */
	bool		can_grant;		/* else it has only looks, and no queue is served */
	bool		read_only;		/* nothing can be written */
	bool		is_blind;		/* the rows were read without locks: it is not known
								 * which are guarded */
	bool		is_stale;		/* what other members of a cluster have committed is not
								 * there */
} lease_to_make;

/* Its result. */
typedef struct lease_made
{
	lease_moment moment;		/* at which it was made */
	bool		needs_commit;	/* although no call may wait for that */
	uint64_t	reaped;
	bool		reaps_more;		/* there may be more leases that are over */
} lease_made;

/* lease_make.c */
extern bool lease_make_batch(const lease_to_make *to_make, lease_made *result);

#endif							/* DLOCK_LEASE_MAKE_H */
