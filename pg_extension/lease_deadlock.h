/*
 * lease_deadlock.h
 *	  Find out whether a waiter closes a circle of owners.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_DEADLOCK_H
#define DLOCK_LEASE_DEADLOCK_H

#include "compat.h"
#include "lease_queue.h"
#include "nodes/pg_list.h"

/* One owner of a circle, waiting for the next. */
typedef struct LeaseCircleStep
{
	char	   *name;			/* what it waits for */
	char	   *owner;			/* the owner that waits */
	Oid			role;
	bool		in_queue;		/* the next one waits ahead; else it holds */
	char	   *blocker;		/* owner of the lease or wait in the way */
	Oid			blocker_role;
} LeaseCircleStep;

/* lease_deadlock.c */
extern bool lease_deadlock_is_possible(LeaseDatabase *db, Relation rel,
									   const LeaseWaiter *waiter);
extern List *lease_deadlock_find(LeaseDatabase *db, Relation rel,
								 const LeaseWaiter *waiter);

#endif							/* DLOCK_LEASE_DEADLOCK_H */
