/*
 * lease_waiters.h
 *	  The waiters, by name.
 *
 * The engine's mutex protects everything here.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_WAITERS_H
#define DLOCK_LEASE_WAITERS_H

#include "lease_call.h"
#include "lease_name.h"

/* An owner: the string and the account. */
typedef struct lease_party
{
	lease_bytes owner;
	lease_bytes user;
	lease_bytes host;
} lease_party;

/* A holder in the way of the waiters; maybe one of thousands. */
typedef struct lease_blocker
{
	lease_bytes owner;			/* its bytes are behind all blockers of the queue */
	const image_account *account;
	lease_mode	mode;
	uint32_t	held;			/* holds, or permits */
	int64_t		over_us;		/* when the lease is over; INT64_MAX: when its
								 * session is */
	bool		bound;			/* it is a session's lease; */
	uint64_t	session;		/* of that connection of this server; 0: of none */
	bool		guarded;		/* a transaction has locked the row, */
	uint32_t	pinned;			/* pins so many holds, */
	lease_mode	guard_mode;		/* and is in the way like a holder in this mode */
} lease_blocker;

/* A name with waiters. */
typedef struct lease_queue
{
	struct lease_queue *next;	/* of the same hash */
	lease_bytes name;
	char		data[LEASE_STRING_MAX];
	lease_calls line;
	lease_calls watchers;
	int64_t		due_us;			/* when to look at the name again */
	lease_blocker *blockers;	/* as of the last look */
	size_t		nblockers;
	size_t		blockers_size;	/* of their memory */
	bool		unknown;		/* there was no memory for them */
	uint64_t	search;			/* as in lease_call */
	uint32_t	number;
} lease_queue;

/* lease_waiters.c */
extern bool lease_waiters_begin(void);
extern lease_queue *lease_queue_find(lease_bytes name);
extern void lease_queue_look(lease_queue *queue, const lease_name *name,
							 const lease_moment *moment);
extern void lease_queue_look_at(lease_queue *queue, int64_t at_us);
extern size_t lease_queue_due(int64_t now_us, lease_queue **queues,
							  size_t room, int64_t *next_us);
extern bool lease_waiter_join(lease_call *call);
extern bool lease_waiter_has_places(const lease_call *call);
extern void lease_waiter_leave(lease_call *call);
extern size_t lease_waiters_count(void);
extern size_t lease_waiters_connections(void);
extern lease_call *lease_waiter_of(lease_party party, const lease_call *after);
extern lease_call *lease_waiter_of_connection(uint64_t connection_id);

/* Gets a waiter for a name, and its position; 0: it has none. */
typedef void lease_waiters_visitor(const lease_call *call, lease_bytes name,
								   size_t position, void *context);

/* Call a function for every waiter, queue by queue, in the queue's order. */
extern void lease_waiters_visit(lease_waiters_visitor *visit, void *context);

#endif							/* DLOCK_LEASE_WAITERS_H */
