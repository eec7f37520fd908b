/*
 * lease_waiters.h
 *	  Calls, and who of them stands in line for which name.
 *
 * Everything here is protected by the engine's mutex.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_WAITERS_H
#define DLOCK_LEASE_WAITERS_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "lease_engine.h"
#include "lease_name.h"

/* Where a call is. */
typedef enum lease_place
{
	LEASE_PLACE_LIST,			/* in a list of the engine's, to be made */
	LEASE_PLACE_BATCH,			/* the batcher is at it */
	LEASE_PLACE_LINE,			/* in a queue */
	LEASE_PLACE_NONE			/* done */
} lease_place;

/* By what those who wait are found. */
typedef enum lease_waiters_index
{
	LEASE_WAITERS_BY_OWNER,
	LEASE_WAITERS_BY_CONNECTION,
	LEASE_WAITERS_NINDEXES
} lease_waiters_index;

/* A waiter's place in the list of those with the same hash. */
typedef struct lease_waiter_link
{
	struct lease_call *next;
	struct lease_call **here;	/* what points to it */
} lease_waiter_link;

/* A call while the engine has it. */
typedef struct lease_call
{
	struct lease_call *next;	/* in the list or queue that it is in */
	struct lease_call *prev;
	struct lease_calls *list;
	lease_place place;
	atomic_int	references;		/* the caller, and the engine */
	sem_t		done;			/* posted when it is answered */

	dlock_call_kind kind;
	lease_request request;		/* its strings are in the next two */
	char		owner[LEASE_STRING_MAX];
	char		request_id[LEASE_STRING_MAX];
	lease_bytes *names;			/* of the call, and its bytes */
	size_t		nnames;
	uint64_t   *match;			/* DLOCK_CALL_APPLY_EACH: tokens to match, or
								 * NULL */
	dlock_caller caller;
	int			internal;		/* 0, or an enum lease_internal */

	int64_t		wait_us;
	int64_t		start_us;
	int64_t		end_us;			/* when it has waited for long enough */
	int64_t		retry_us;		/* when to try again what is in the way */

	bool		answered;
	bool		abandoned;		/* nobody waits for the answer any more */
	bool		unwritten;		/* answered, and not yet in the table */
	bool		from_line;		/* granted to it as a waiter */
	dlock_answer answer;

	/* of an answered release: what it gives back, and how often that was
	 * written, should nobody know whether its commit succeeded */
	uint64_t	seen_writes;
	bool		may_be_written;
	bool		is_owed;		/* found by its lease: lease_calls_owed() */
	hash_link	by_lease;

	/* of a waiter */
	struct lease_queue *queue;
	bool		watches;		/* DLOCK_CALL_WAIT, DLOCK_CALL_ACQUIRE_ALL,
								 * DLOCK_CALL_ACQUIRE_ANY */
	size_t		waits_for;		/* which of its names */
	int64_t		waiting_since_us;	/* since 1970 */
	bool		has_seen;		/* DLOCK_CALL_WAIT: it has seen ... */
	uint64_t	youngest;		/* ... no token that was larger */

	/* DLOCK_CALL_ACQUIRE_ANY waits for several names, for each by a call that
	 * stands in that name's queue for it: */
	struct lease_call **places; /* those calls; NULL: it has not waited */
	struct lease_call *stands_for;	/* whom one of them stands for, else NULL */

	/* while it is in a queue, and waits for an owner */
	lease_waiter_link links[LEASE_WAITERS_NINDEXES];

	/* of whoever waits, not of a call that stands for another */
	uint64_t	search;			/* the last search for deadlocks that has met it */
	uint32_t	number;			/* its number there */

	/* DLOCK_CALL_ACQUIRE_ALL, _ACQUIRE_ANY: what became of each name, as a
	 * lease_outcome */
	uint8_t    *outcomes;
	uint32_t	wanted;			/* DLOCK_CALL_ACQUIRE_ANY: how many names */
	bool		renews_all;		/* DLOCK_CALL_APPLY_ALL: by one entry of the
								 * journal */
	uint64_t	replays;		/* of its names, see lease_make.c */
} lease_call;

typedef struct lease_calls
{
	lease_call *head;
	lease_call *tail;
	size_t		count;
} lease_calls;

/* An owner: the string and the account. */
typedef struct lease_party
{
	lease_bytes owner;
	lease_bytes user;
	lease_bytes host;
} lease_party;

/* Somebody in the way of those who wait; of thousands, maybe. */
typedef struct lease_blocker
{
	lease_bytes owner;			/* behind all of the queue's */
	const image_account *account;
	lease_mode	mode;
	uint32_t	held;			/* holds, or permits */
	int64_t		over_us;		/* when the lease is over; INT64_MAX: when its
								 * session is */
	uint64_t	session;		/* its connection; 0: it is of none */
	bool		guarded;		/* a transaction has locked the row, whoever's
								 * that is ... */
	uint32_t	pinned;			/* ... pins so many holds */
	lease_mode	guard_mode;		/* ... and is in the way as if it held so */
} lease_blocker;

/* A name that somebody waits for. */
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
	uint64_t	search;			/* as of a call */
	uint32_t	number;
} lease_queue;

/* lease_waiters.c */
extern void lease_calls_append(lease_calls *list, lease_call *call);
extern void lease_calls_push(lease_calls *list, lease_call *call);
extern void lease_calls_remove(lease_call *call);

extern lease_queue *lease_queue_find(lease_bytes name);
extern lease_queue *lease_queue_get(lease_bytes name);
extern bool lease_queue_look(lease_queue *queue, const lease_name *name,
							 const lease_moment *moment);
extern size_t lease_queue_due(int64_t now_us, lease_queue **queues,
							  size_t room, int64_t *next_us);
extern void lease_waiter_join(lease_call *call, lease_queue *queue);
extern bool lease_waiter_join_all(lease_call *call);
extern bool lease_waiter_has_places(const lease_call *call);
extern void lease_waiter_leave(lease_call *call);
extern size_t lease_waiters_count(void);
extern size_t lease_waiters_connections(void);
extern lease_call *lease_waiter_of(lease_party party, const lease_call *after);
extern lease_call *lease_waiter_of_connection(uint64_t connection_id);

/* Told who waits for a name, and in which position; 0: in none. */
typedef void lease_waiters_visitor(const lease_call *call, lease_bytes name,
								   size_t position, void *context);

/* Call a function for everybody who is in a queue, queue by queue in its order. */
extern void lease_waiters_visit(lease_waiters_visitor *visit, void *context);

#endif							/* DLOCK_LEASE_WAITERS_H */
