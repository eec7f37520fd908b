/*
 * stuck.h
 *	  Find waiters that are stuck: they wait for each other in a circle, or for
 *	  waiters that do.
 *
 * An owner stands for one thread of control.  It cannot go on while one of its
 * waiters waits, and it gives up what it has only while it can go on.  A guard
 * ends with its transaction, which cannot go on while its connection waits, for
 * whatever owner, nor while the owner of the guarded lease cannot go on.
 *
 * A waiter is "stuck" if it could not be served even if every owner that can go
 * on gave up all that it has.  The search first takes all waiters for stuck,
 * then strikes out those that could be served, again and again, until none is
 * left that could.  This counts permits correctly: a waiter for one of three
 * permits is not stuck while one of the three holders can go on.  A waiter for
 * any of several names is stuck only if it is stuck for each of them.
 *
 * Only a deadline can free the waiters that remain.  The last waiter to join a
 * circle closes it, since a waiter that is granted a lease stops waiting.  So it
 * is enough that each newcomer asks whether it is stuck, and in a circle.  A
 * newcomer that is stuck but in no circle waits for others that are in one.
 * (Only among several waiters of one owner may a grant close a circle, and then
 * the connection that was granted the lease can go on and give it up.)
 *
 * Like lease.h, this is pure: it reads no clock, allocates nothing, does no I/O
 * and keeps no state.  The engine gives numbers, from 0 without gaps, to the
 * names, owners (an owner string together with its principal) and waiters that
 * it has found, and leaves out what is over or of no concern.  Time and memory
 * are linear in what is passed if every name has few leases and waiters; the
 * time is quadratic at worst.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_STUCK_H
#define DLOCK_STUCK_H

#include "lease.h"

/* In place of a number: there is none. */
#define STUCK_NONE		UINT32_MAX

/* A connection that waits, for one name or for any of several. */
typedef struct stuck_waiter
{
	uint32_t	owner;
	uint32_t	acts_for;		/* another owner whose leases count as its own;
								 * or STUCK_NONE */
} stuck_waiter;

/*
 * A waiter's wait for one name.  Those that stand in line for a name come in
 * the line's order; the array is in no order otherwise.  A line lets nobody
 * pass, not even another waiter of the same owner.
 */
typedef struct stuck_wait
{
	uint32_t	waiter;
	uint32_t	name;
	lease_mode	mode;
	uint32_t	limit;			/* LEASE_PERMIT: of how many permits ... */
	uint32_t	permits;		/* ... it wants so many at once */
	bool		in_line;		/* else it watches, behind the whole line and in
								 * nobody's way */
} stuck_wait;

/* A lease on a name: a holder that is live, or whose guards are left. */
typedef struct stuck_lease
{
	uint32_t	name;
	uint32_t	owner;
	lease_mode	mode;
	uint32_t	held;			/* holds, or permits; 0: only guards are left */
	bool		bound;			/* to a connection: in the way of its owner's own
								 * waiters only while that connection cannot go
								 * on */
	uint32_t	waiter;			/* bound: that connection, or STUCK_NONE if it does
								 * not wait */
} stuck_lease;

/* A guard of a lease. */
typedef struct stuck_guard
{
	uint32_t	lease;			/* index of the lease */
	uint32_t	waiter;			/* the connection whose transaction guards, or
								 * STUCK_NONE if that does not wait */
	lease_mode	mode;
	uint32_t	pinned;			/* holds, or permits */
	bool		bound;			/* the lease is of that transaction: the guard is
								 * in the way of its owner's other connections
								 * while this one cannot go on.  Other guards are
								 * never in their owner's way */
} stuck_guard;

/* All that the search looks at. */
typedef struct stuck_facts
{
	uint32_t	nnames;
	uint32_t	nowners;
	uint32_t	nwaiters;
	uint32_t	nwaits;
	uint32_t	nleases;
	uint32_t	nguards;
	const stuck_waiter *waiters;
	const stuck_wait *waits;
	const stuck_lease *leases;
	const stuck_guard *guards;
} stuck_facts;

/* A step of a circle: a wait, and what is in its way. */
typedef struct stuck_step
{
	uint32_t	wait;			/* index of the wait */
	uint32_t	lease;			/* the lease in its way, held or guarded; else
								 * STUCK_NONE, and then: */
	uint32_t	ahead;			/* the wait ahead of it in the line */
} stuck_step;

/* How many numbers the functions below need for their work. */
extern size_t stuck_work_size(const stuck_facts *facts);

/*
 * Find out which waiters are stuck: sets stuck[] for each. "work" has room for
 * stuck_work_size() numbers; it is not NULL.
 */
extern void stuck_search(const stuck_facts *facts, bool *stuck,
						 uint32_t *work);

/*
 * Find a shortest circle of owners through a waiter that is stuck, after
 * stuck_search() with the same facts and work. "steps" has room for as many as
 * there are waiters.  The first step is the newcomer's.  The obstacle of each
 * belongs to the waiter of the next, that of the last to the newcomer.  Returns
 * their number, or 0 if there is no such circle: then the newcomer is not
 * stuck, or waits for a circle that it is not in.
 */
extern uint32_t stuck_find_circle(const stuck_facts *facts, const bool *stuck,
								  uint32_t newcomer, uint32_t *work,
								  stuck_step *steps);

#endif							/* DLOCK_STUCK_H */
