/*
 * stuck.h
 *	  The search for those who are stuck: who waits for each other in a circle.
 *
 * An owner stands for one thread of control.  It cannot go on while one of its
 * waiters waits, and it gives up what it has only while it can go on.  A guard
 * goes with its transaction, which can go on neither while its own connection
 * waits, whoever that waits for, nor while its owner does.
 *
 * A waiter is "stuck" if it could not be served although all who can go on gave
 * up all that they have.  So at first all are taken for stuck.  Then each is
 * struck out that could be served, again and again, until nobody is left who
 * could.  That counts permits as they are: a waiter for one of three is not
 * stuck while one of the three holders can go on.  A waiter for any of several
 * names is stuck if it is for each of them.
 *
 * Who remains cannot be resolved but by a deadline.  A circle is closed by the
 * last of its waiters to join, since a lease is only ever granted to somebody
 * who stops waiting by it.  So it is enough that each newcomer asks whether it
 * is stuck, and in a circle.  One that is stuck without being in a circle waits
 * for others that are.
 *
 * Like lease.h, this is pure: it reads no clock, allocates nothing, does no I/O
 * and keeps no state.  The engine gives numbers, from 0 without gaps, to the
 * names, owners (an owner string together with its principal) and waiters that
 * it has found, and leaves out what is over, and what need not be asked about.
 * Time and memory are linear in what is passed where every name has few leases
 * and waiters; the time is quadratic at worst.
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
	uint32_t	acts_for;		/* another owner whose leases it takes for its own;
								 * or STUCK_NONE */
} stuck_waiter;

/*
 * A waiter's wait for one name.  Those that stand in line for a name come in
 * the line's order; the array is in no order otherwise.
 */
typedef struct stuck_wait
{
	uint32_t	waiter;
	uint32_t	name;
	lease_mode	mode;
	uint32_t	limit;			/* LEASE_PERMIT: of how many permits ... */
	uint32_t	permits;		/* ... it wants so many at once */
	bool		in_line;		/* else it watches, behind all of the line and in
								 * nobody's way */
} stuck_wait;

/* A lease on a name: a holder that is live, or whose guards are left. */
typedef struct stuck_lease
{
	uint32_t	name;
	uint32_t	owner;
	lease_mode	mode;
	uint32_t	held;			/* holds, or permits; 0: only guards are left */
	bool		bound;			/* to a connection: not in the way of its own
								 * owner's waiters while that can go on */
	uint32_t	waiter;			/* bound: that connection, or STUCK_NONE if it does
								 * not wait */
} stuck_lease;

/* A guard of a lease.  It is in nobody's way to whom the lease belongs. */
typedef struct stuck_guard
{
	uint32_t	lease;			/* index of the lease */
	uint32_t	waiter;			/* the connection whose transaction guards, or
								 * STUCK_NONE if that does not wait */
	lease_mode	mode;
	uint32_t	pinned;			/* holds, or permits */
} stuck_guard;

/* All that the search goes by. */
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

/* A step of a circle: who waits, and what is in its way. */
typedef struct stuck_step
{
	uint32_t	wait;			/* index of the wait */
	uint32_t	lease;			/* that is held or guarded; STUCK_NONE: */
	uint32_t	ahead;			/* the wait ahead of it in the line */
} stuck_step;

/* How many numbers the functions below need for their work. */
extern size_t stuck_work_size(const stuck_facts *facts);

/*
 * Find out who is stuck: sets stuck[] for each waiter.  "work" has room for
 * stuck_work_size() numbers.
 */
extern void stuck_search(const stuck_facts *facts, bool *stuck,
						 uint32_t *work);

/*
 * Find a shortest circle of owners through a waiter that is stuck, after
 * stuck_search() with the same facts and work.  "steps" has room for as many as
 * there are waiters; the first is the newcomer's own, and what is in the way at
 * each belongs to who waits at the next, at the last to the newcomer.  Returns
 * their number, or 0 if there is no such circle: then the newcomer is not stuck,
 * or waits for a circle that is not its own.
 */
extern uint32_t stuck_find_circle(const stuck_facts *facts, const bool *stuck,
								  uint32_t newcomer, uint32_t *work,
								  stuck_step *steps);

#endif							/* DLOCK_STUCK_H */
