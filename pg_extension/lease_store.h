/*
 * lease_store.h
 *	  What the SQL functions and the reaper do to the lock table.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_STORE_H
#define DLOCK_LEASE_STORE_H

#include "compat.h"
#include "lease.h"
#include "lease_page.h"
#include "lease_state.h"

extern bool lease_log_expired;	/* dlock.log_expired */

/* What a request on one name came to. */
typedef struct LeaseAnswer
{
	lease_outcome outcome;
	uint64		token;
	uint64		ended;			/* holders removed by an eviction */
	lease_mode	held_mode;		/* LEASE_UPGRADE, LEASE_MIXED: as it is held */
} LeaseAnswer;

/* lease_store.c */
extern Relation lease_store_open(LOCKMODE mode);
extern LeaseAnswer lease_store_apply(lease_bytes name,
									 const lease_request *request);
extern uint64 lease_store_apply_all(const lease_request *request);
extern List *lease_store_read(lease_bytes name, int64 *now_us);
extern bool lease_store_is_readable(Relation rel);
extern bool lease_store_reap(Relation rel, LeaseDatabase *db,
							 BlockNumber *next, int max_pages);

#endif							/* DLOCK_LEASE_STORE_H */
