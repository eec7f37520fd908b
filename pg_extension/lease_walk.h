/*
 * lease_walk.h
 *	  Walks over the buckets: all leases of an owner, and all leases that are
 *	  over.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_WALK_H
#define DLOCK_LEASE_WALK_H

#include "compat.h"
#include "lease.h"
#include "lease_state.h"

/* lease_walk.c */
extern uint64 lease_walk_owner(const lease_request *request);
extern bool lease_walk_reap(Relation rel, LeaseDatabase *db,
							BlockNumber *next, int max_pages, bool all);

#endif							/* DLOCK_LEASE_WALK_H */
