/*
 * lease_call.h
 *	  A call while the engine has it, and lists of calls.
 *
 * The engine's mutex protects everything here, except "references" and "done".
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_CALL_H
#define DLOCK_LEASE_CALL_H

#include <semaphore.h>
#include <stdatomic.h>

#include "dlock_call.h"
#include "hash.h"

/* Calls that the engine makes itself. */
typedef enum lease_internal
{
	LEASE_INTERNAL_NONE,
	LEASE_INTERNAL_GIVE_BACK,	/* a grant of which no caller has learnt */
	LEASE_INTERNAL_END_SESSION, /* the lease of a connection that is gone */
	LEASE_INTERNAL_KEEP,		/* write that a session lease lives */
	LEASE_INTERNAL_REAP,		/* remove what is over */
	LEASE_INTERNAL_SETTLE,		/* write what was answered */
	LEASE_INTERNAL_SETTINGS		/* read the settings, if they never were */
} lease_internal;

/* Where a call is. */
typedef enum lease_place
{
	LEASE_PLACE_LIST,			/* in a list of the engine's, to be made */
	LEASE_PLACE_BATCH,			/* the batcher works on it */
	LEASE_PLACE_LINE,			/* in a queue */
	LEASE_PLACE_NONE			/* done */
} lease_place;

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
	lease_internal internal;

	int64_t		wait_us;
	int64_t		start_us;
	int64_t		end_us;			/* when it has waited for long enough */
	int64_t		retry_us;		/* when to try again: something is in the way */

	bool		answered;
	bool		abandoned;		/* its caller does not wait for the answer any more */
	bool		unwritten;		/* an answered release that nothing keeps from being
								 * written: lease_call_set_unwritten() */
	bool		from_line;		/* granted to it as a waiter */
	dlock_answer answer;

	/* of an answered release */
	uint64_t	seen_writes;	/* how often its lease was written before */
	bool		may_be_written; /* its commit was lost: lease_owed_is_written() */
	bool		ends;			/* if unwritten: nothing is left of the lease */
	hash_link	by_lease;		/* while it is owed: lease_calls_owed() */

	/* of a waiter */
	struct lease_queue *queue;
	bool		watches;		/* DLOCK_CALL_WAIT, DLOCK_CALL_ACQUIRE_ALL,
								 * DLOCK_CALL_ACQUIRE_ANY */
	size_t		waits_for;		/* which of its names */
	int64_t		waiting_since_us;	/* since 1970 */
	uint64_t	youngest;		/* DLOCK_CALL_WAIT: the largest token that it waits
								 * for; 0: not known yet */

	/* DLOCK_CALL_ACQUIRE_ANY waits for several names, for each by a call that
	 * stands in that name's queue for it: */
	struct lease_call **places; /* those calls; NULL: it has not waited */
	struct lease_call *stands_for;	/* the call that one of them stands for, else NULL */

	/* while it is in a queue, and waits for an owner */
	hash_link	by_owner;
	hash_link	by_connection;

	/* of a waiter, not of a call that stands for another */
	uint64_t	search;			/* the last search for deadlocks that has met it */
	uint32_t	number;			/* its number there */

	/* DLOCK_CALL_ACQUIRE_ALL, _ACQUIRE_ANY: what became of each name, as a
	 * lease_outcome */
	uint8_t    *outcomes;
	uint32_t	wanted;			/* DLOCK_CALL_ACQUIRE_ANY: how many names */
	size_t		slice;			/* DLOCK_CALL_APPLY_ALL: how many names, from
								 * "waits_for" on, are in this batch, */
	uint64_t	changed;		/* and how many leases it changes there */
	bool		renews_all;		/* DLOCK_CALL_APPLY_ALL: by one entry of the
								 * journal */
	uint64_t	settles;		/* LEASE_INTERNAL_SETTLE: up to this row of the
								 * journal; 0: that is not known yet */
	uint64_t	replays;		/* of its names, see lease_replays.c */
} lease_call;

typedef struct lease_calls
{
	lease_call *head;
	lease_call *tail;
	size_t		count;
} lease_calls;

/* lease_call.c */
extern void lease_call_copy(lease_bytes *to, char *room, lease_bytes from);
extern lease_call *lease_call_create(size_t nnames);
extern lease_call *lease_call_create_own(lease_op op, uint64_t token,
										 lease_bytes owner, lease_bytes name,
										 const dlock_caller *caller);
extern void lease_call_unref(lease_call *call);
extern void lease_call_answer(lease_call *call);
extern void lease_call_fail(lease_call *call, const char *sqlstate,
							const char *format,...)
			__attribute__((format(printf, 3, 4)));

extern bool lease_call_is_acquire(const lease_call *call);
extern bool lease_call_is_of_several(const lease_call *call);
extern bool lease_call_is_look(const lease_call *call);
extern bool lease_call_is_of_owner(const lease_call *call);
extern lease_outcome lease_call_outcome(const lease_call *call, size_t i);
extern bool lease_call_is_granted(const lease_call *call);

extern void lease_calls_append(lease_calls *list, lease_call *call);
extern void lease_calls_push(lease_calls *list, lease_call *call);
extern void lease_calls_remove(lease_call *call);
extern bool lease_calls_concern(const lease_calls *list, lease_bytes name);

#endif							/* DLOCK_LEASE_CALL_H */
