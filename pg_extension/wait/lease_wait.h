/*
 * lease_wait.h
 *	  Waiting: the queues of names, the sleep, the search for deadlocks.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_WAIT_H
#define DLOCK_WAIT_H

#include "compat.h"
#include "fmgr.h"
#include "lease.h"
#include "nodes/pg_list.h"
#include "server/lease_server.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

/* ----------------------------------------------------------------
 * The waiters of a name, and its guards.
 * ----------------------------------------------------------------
 */

#define LEASE_QUEUE_PARTITIONS	32

/* The answer to a request on one name. */
typedef struct LeaseAnswer
{
	lease_outcome outcome;
	uint64		token;
	bool		gone;			/* the requester's holder was removed */
	Oid			role;			/* of the requester's holder: it may act for others */
	uint64		ended;			/* holders removed by an eviction */
	lease_mode	held_mode;		/* LEASE_UPGRADE, LEASE_MIXED, ... */
	lease_kind	held_kind;		/* LEASE_MIXED_KINDS, ...: as it is held */
	int64		retry_us;		/* LEASE_BUSY: see lease_result */
} LeaseAnswer;

/* The key of a queue; the unused end of the name is zero. */
typedef struct LeaseQueueKey
{
	Oid			database;
	uint32		hash;			/* of the name, as the lock table has it */
	uint32		length;
	char		name[LEASE_STRING_MAX];
} LeaseQueueKey;

/* A name with waiters or guards.  Under its partition's lock. */
typedef struct LeaseQueue
{
	LeaseQueueKey key;
	LeasePlace	chain;			/* the next queue whose hash is like this one's */
	LeaseLink	link;			/* among those of its partition, or the free ones */
	LeaseLink	waiters;		/* first come, first served */
	LeaseLink	watchers;		/* woken whenever a hold ends */
	LeaseLink	guards;
	int			nwaiters;

	/*
	 * Lease clock: when to look at the head again, if nothing happens before.
	 * 0: now.
	 */
	int64		due_us;
} LeaseQueue;

/* How often each waiter looks around at least. */
#define LEASE_LOOK_INTERVAL_US	USECS_PER_SEC

/* How a backend waits. */
typedef enum LeaseWaitRole
{
	LEASE_WAIT_IN_LINE,			/* in the queue, to be granted a lease */
	LEASE_WAIT_ALL,				/* dlock_acquire_all(): watching one name */
	LEASE_WAIT_ANY,				/* dlock_acquire_any(): watching each name */
	LEASE_WAIT_WATCH			/* dlock_wait(): watching, takes nothing */
} LeaseWaitRole;

/*
 * A waiting backend.  All but "link", "queue" and the answer are written by
 * that backend before it joins a queue, and do not change until it has left.
 */
typedef struct LeaseWaiter
{
	LeaseLink	link;			/* in the queue, or in the free list */
	LeasePlace	queue;			/* 0: in none; under the partition's lock */

	bool		joined;			/* has been in a queue, in this partition: */
	uint32		partition;
	uint64		join_number;	/* grows with each that joins a queue */
	LeaseWaitRole role_in_queue;
	bool		further;		/* not the first place of its call */
	uint32		places;			/* that its call has, LEASE_WAIT_ANY: several */
	Latch	   *latch;
	LeasePlace	db;				/* its LeaseDatabase */
	uint64		serial;			/* tells this wait from all others */
	TimestampTz since;
	int			pid;
	Oid			role;
	Oid			acts_for;		/* the role whose row, of the same owner, it acts
								 * for */
	LeaseStamp	stamp;
	lease_mode	mode;
	lease_kind	kind;
	uint32		limit;
	uint32		permits;		/* see lease_request */
	int64		ttl_us;
	uint8		owner_length;	/* 0: LEASE_WAIT_WATCH */
	uint8		request_length;
	uint8		application_length;
	uint8		address_length;
	char		owner[LEASE_STRING_MAX];
	char		request[LEASE_STRING_MAX];
	char		application[LEASE_APPLICATION_MAX];
	char		address[LEASE_ADDRESS_MAX];

	/* under the partition's lock */
	volatile bool answered;
	LeaseAnswer answer;
	XLogRecPtr	lsn;			/* what the answer depends on */
} LeaseWaiter;

/* The requester: the calling backend, or a waiter on whose behalf it acts. */
typedef struct LeaseRequester
{
	Oid			role;
	int			pid;
	lease_bytes application;
	lease_bytes address;
	LeaseStamp	stamp;			/* for a request that is not plain */
	bool		alone;			/* acts for no other role */
	const LeaseWaiter *waiter;	/* NULL: the calling backend */
} LeaseRequester;

/* A lease that a transaction has pinned. */
typedef struct LeaseGuard
{
	LeaseLink	link;			/* in the queue, or in the free list */
	LeasePlace	queue;
	Oid			role;			/* of the holder */
	lease_mode	mode;
	bool		is_transactions;	/* the lease ends with the guarding transaction */
	uint32		version;		/* holds it pins */
	uint64		token;
	TimestampTz acquired_at;	/* when the lease was */
	uint8		owner_length;
	char		owner[LEASE_STRING_MAX];

	/* the backend that guards */
	int			pid;
	Oid			guarding_role;
	uint8		application_length;
	uint8		address_length;
	char		application[LEASE_APPLICATION_MAX];
	char		address[LEASE_ADDRESS_MAX];
} LeaseGuard;

/* A waiter as it was at some moment. */
typedef struct LeaseWaiterCopy
{
	LeaseWaiter waiter;
	LeaseQueueKey key;
	int			position;		/* 1 is the head; 0: watches */
} LeaseWaiterCopy;

/* What a waiter sees when it looks around. */
typedef struct LeaseQueueView
{
	bool		answered;
	bool		is_head;
	int64		due_us;
} LeaseQueueView;

/* The queue that a waiter is in, or NULL; under the partition's lock. */
static inline LeaseQueue *
lease_queue_of(const LeaseWaiter *waiter)
{
	return lease_area_at(waiter->queue);
}

/* lease_queue.c */
extern Size lease_queue_size(void);
extern void lease_queue_attach(char *start, bool make);
extern uint32 lease_queue_wait_event(void);

/* names */
extern bool lease_queue_is_used(Oid database, uint32 hash);
extern uint32 lease_queue_pokes(Oid database, uint32 hash);
extern LeaseQueue *lease_queue_lock(Oid database, uint32 hash,
									lease_bytes name, LWLockMode mode);
extern void lease_queue_unlock(Oid database, uint32 hash);
extern LeaseWaiter *lease_queue_head(LeaseQueue *queue);
extern LeaseWaiter *lease_queue_second(LeaseQueue *queue);
extern void lease_queue_set_due(LeaseQueue *queue, int64 due_us,
								int64 soon_us);
extern void lease_queue_make_due(Oid database, uint32 hash,
								 lease_bytes name);
extern void lease_queue_wake_watchers(LeaseQueue *queue);
extern void lease_queue_poke_database(Oid database);

/* waiters */
extern LeaseWaiter *lease_queue_allocate_waiter(Oid role, bool further);
extern void lease_queue_free_waiter(LeaseWaiter *waiter);
extern bool lease_queue_join(LeaseWaiter *waiter, Oid database, uint32 hash,
							 lease_bytes name, int64 due_us, uint32 pokes);
extern bool lease_queue_leave(LeaseWaiter *waiter, LeaseAnswer *answer,
							  XLogRecPtr *lsn);
extern Latch *lease_queue_answer(LeaseQueue *queue, LeaseWaiter *waiter,
								 const LeaseAnswer *answer, XLogRecPtr lsn,
								 int64 due_us, int64 soon_us);
extern void lease_queue_look(LeaseWaiter *waiter, LeaseQueueView *view);
extern bool lease_queue_is_only_line(const LeaseWaiter *waiter);
extern bool lease_queue_owner_waits(lease_bytes owner);
extern bool lease_queue_key_of(const LeaseWaiter *waiter, LeaseQueueKey *key);
extern LeaseWaiterCopy *lease_queue_copy(Oid database, int *count);

/* guards */
extern bool lease_queue_guard(Oid database, uint32 hash, lease_bytes name,
							  const LeaseGuard *template);
pg_noreturn extern void lease_queue_raise_no_guard(void);
extern List *lease_queue_copy_guards(Oid database, uint32 hash,
									 lease_bytes name);
extern LeaseQueueKey *lease_queue_guarded_names(Oid database, int *count);
extern int	lease_queue_other_guard(Oid database);
extern bool lease_queue_has_guards(void);
extern void lease_queue_end_guards(void);

/* ----------------------------------------------------------------
 * This backend as a waiter: its places in queues.
 * ----------------------------------------------------------------
 */

/* Most names that one call can watch. */
#define LEASE_WAITER_PLACES_MAX	100

/* lease_waiter.c */
extern LeaseWaiter *lease_waiter_begin(LeaseDatabase *db, lease_bytes name,
									   const LeaseRequester *requester,
									   const lease_request *request,
									   LeaseWaitRole role_in_queue);
extern LeaseWaiter *lease_waiter_add(LeaseDatabase *db,
									 const LeaseRequester *requester,
									 const lease_request *request,
									 LeaseWaitRole role_in_queue);
extern LeaseWaiter *lease_waiter_mine(void);
extern LeaseWaiter *lease_waiter_last(void);
extern lease_bytes lease_waiter_name(void);
extern bool lease_waiter_leave(void);
extern void lease_waiter_leave_name(uint32 hash, lease_bytes name);
extern void lease_waiter_finish(void);
extern bool lease_waiter_abandon(LeaseWaiter *granted);

/* ----------------------------------------------------------------
 * Sleep until a lease is granted, or a hold has ended.
 * ----------------------------------------------------------------
 */

/* When a wait began and when it is to end, on the boot clock. */
typedef struct LeaseWaitTime
{
	int64		start_us;
	int64		end_us;			/* PG_INT64_MAX: no limit */
	TimestampTz start_time;
	bool		logged;			/* the log has been told that it is long */
} LeaseWaitTime;

/* What a sleeper remembers from one look to the next. */
typedef struct LeaseSleeper
{
	LeaseWaitTime *time;
	int64		look_us;		/* boot clock: the next regular look */
} LeaseSleeper;

/* How a sleep has ended. */
typedef enum LeaseSleepEnd
{
	LEASE_SLEEP_ENDED,			/* look around */
	LEASE_SLEEP_ENDED_REGULARLY,	/* the regular look has come */
	LEASE_SLEEP_INTERRUPTED,	/* lease_wait_raise() */
	LEASE_SLEEP_ANSWERED,		/* in line: there is no need to sleep */
	LEASE_SLEEP_TIME_IS_UP		/* likewise */
} LeaseSleepEnd;

/* lease_wait.c */
extern void lease_wait_start(LeaseWaitTime *time, int64 wait_us);
extern bool lease_wait_is_over(const LeaseWaitTime *time);
extern void lease_wait_check_deadlock(LeaseDatabase *db);
extern LeaseSleepEnd lease_wait_sleep(LeaseDatabase *db, LeaseSleeper *sleeper,
									  int64 due_us);
extern void lease_wait_watch(LeaseDatabase *db, LeaseWaitTime *time,
							 int64 due_us);
extern void lease_wait_stop(const LeaseWaitTime *time);
extern void lease_wait_check_client(void);
extern bool lease_wait_must_end(void);
pg_noreturn extern void lease_wait_raise(void);

/* lease_snapshot.c */
extern void lease_snapshot_begin(FunctionCallInfo fcinfo, bool may_wait);
extern void lease_snapshot_give_up(void);
extern void lease_snapshot_take_back(void);

/* ----------------------------------------------------------------
 * Find out whether a waiter closes a circle of owners.
 * ----------------------------------------------------------------
 */

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

#endif							/* DLOCK_WAIT_H */
