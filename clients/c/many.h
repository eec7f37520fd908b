/*
 * many.h
 *	  How one connection keeps many leases alive and gives them back.
 *
 * The arithmetic of "Many leases, one connection" in clients/CONTRACT.md is here
 * and nowhere else.  Like keep.c, which acquires each lease, it is a pure function
 * of its input: no clock, no I/O, no memory.  Times are as in keep.h.
 *
 * The driver (client.c) has the leases that are held, one connection, and at most
 * one call on it.  It asks many_next() what to do, does it, and reports:
 *
 *		MANY_CONNECT				many_connected() or many_failed()
 *		MANY_RENEW, _RELEASE,
 *		MANY_LEAVE					an answer for each lease of the call, and
 *									many_answered(); or many_failed()
 *		MANY_DROP					nothing: close the connection
 *		MANY_AWAIT					until until_us, or until there is a report
 *
 * A call has to be sent after many_next() has returned it: deadlines count from the
 * time that was given to it.
 *
 * Invariants, before and after every call:
 * 1. A lease's deadline_us = s + ttl for a time s at which a request was returned
 *    that the server has granted, or has answered for this lease.  So it is never
 *    later than the server's.  Requests that end or shorten the hold are made only in
 *    state KEEP_ENDED.
 * 2. In state KEEP_HELD, lost_at_us = deadline_us - margin, and the state is left at
 *    the first call with that time or a later one, before anything else.
 * 3. A call is answered for the leases that it was made for, and for none else: the
 *    driver forgets a lease in the call by many_forget(), and a lease never changes
 *    its names and tokens.
 * 4. A lease that fails each call keeps no other from being renewed: calls that fail
 *    are halved until it is alone, and then it comes after all others.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_MANY_H
#define DLOCK_MANY_H

#include <stddef.h>

#include "keep.h"

/* The most names in a call. */
#define MANY_NAMES_MAX		1000

/* A lease, from its grant on.  The caller fills the first part, and zeros. */
typedef struct many_lease
{
	int64_t		ttl_us;
	int64_t		keep_at_least_us;
	int64_t		deadline_us;
	int64_t		held_us;		/* when the program was told */
	unsigned	names;			/* 1 to MANY_NAMES_MAX */
	bool		alone;			/* a release of it is a call of its own */

	keep_state	state;			/* KEEP_HELD, KEEP_LOST or KEEP_ENDED */
	int64_t		lost_at_us;
	/* After a call for it alone that failed; 0: none has, or one was answered since. */
	int64_t		pause_us;
	int64_t		pause_until_us;
	unsigned	largest;		/* leases in a call with it; 0: no limit */
	bool		called;			/* the call under way is for it */
	bool		pending;		/* it is to be given back, until work_until_us */
	bool		once;			/* by one attempt */
	bool		rest;			/* lost, and the server may still have it */
	bool		ended_there;	/* lost because the server said so */
	bool		given_back;
	bool		done;			/* nothing will ever be done */
	int64_t		work_until_us;
	/* Until when the server may have it although it is done; 0: it has not. */
	int64_t		left_until_us;
	keep_answer answer;			/* the driver's, before many_answered() */
	/* What to tell: 1 << KEEP_TELL_RENEWED, _LOST, _RELEASED. */
	unsigned	tells;
} many_lease;

typedef enum many_action_kind
{
	MANY_AWAIT,
	MANY_DROP,
	MANY_CONNECT,
	MANY_RENEW,					/* the leases of the call, for for_us */
	MANY_RELEASE,
	MANY_LEAVE,					/* give the one back in for_us */
} many_action_kind;

typedef struct many_action
{
	many_action_kind kind;
	int64_t		until_us;
	int64_t		for_us;
} many_action;

typedef struct many
{
	bool		owner_is_ours;	/* nobody else has this owner */
	bool		connected;
	int64_t		now_us;
	many_action_kind asked;		/* the attempt under way; else MANY_AWAIT */
	int64_t		sent_us;
	int64_t		attempt_until_us;
	int64_t		for_us;
	int64_t		pause_us;
	int64_t		pause_until_us;
	/* The same for leases for which a call has failed with an error, alone. */
	int64_t		retry_pause_us;
	int64_t		retry_until_us;
	bool		renewed_last;	/* then a release comes before a renewal */
	/* The leases of the call; NULL for one that was forgotten. */
	size_t		ncall;
	many_lease *call[MANY_NAMES_MAX];
} many;

/* Take a lease that was just granted. */
extern void many_add(many *m, many_lease *lease, int64_t now_us);

/* Give a lease back; harmless in any state. */
extern void many_release(many *m, many_lease *lease, int64_t now_us);

/* The driver is about to free a lease. */
extern void many_forget(many *m, const many_lease *lease);

/* Say what to do next; "leases" are all those that were not forgotten. */
extern many_action many_next(many *m, many_lease *const *leases, size_t n,
							 int64_t now_us);

extern void many_connected(many *m, int64_t now_us);

/* Report the answers that are in the leases of the call. */
extern void many_answered(many *m, int64_t now_us);

/*
 * Report that an attempt has failed: whether the server itself said so, whether
 * it always will, and whether there is still a connection.
 */
extern void many_failed(many *m, bool said, bool misuse, bool connected,
						int64_t now_us);

/* Say whether a lease is held at that time. */
extern bool many_is_held(const many_lease *lease, int64_t now_us);

#endif							/* DLOCK_MANY_H */
