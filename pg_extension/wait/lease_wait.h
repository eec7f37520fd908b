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

/* The answer to a request on one name. */
typedef struct LeaseAnswer
{
	lease_outcome outcome;
	uint64		token;
	Oid			role;			/* of the requester's holder: it may act for others */
	uint64		ended;			/* holders removed by an eviction */
	lease_mode	held_mode;		/* LEASE_UPGRADE, LEASE_MIXED, ... */
	lease_kind	held_kind;		/* LEASE_MIXED_KINDS, ...: as it is held */
	int64		retry_us;		/* LEASE_BUSY: see lease_result */
} LeaseAnswer;

/* The key of a queue.  The unused end of the name is zero: memcmp() compares keys. */
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
 * that backend before or when it joins a queue, and do not change until it has left.
 */
typedef struct LeaseWaiter
{
	LeaseLink	link;			/* in the queue, or in the free list */
	LeasePlace	queue;			/* 0: in none; under the partition's lock */

	LeaseQueueKey key;			/* of the queue that it has joined; length 0: none */
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
	LeaseStamp	stamp;			/* for a request that is not plain */
	List	   *acts_for;		/* roles that it may act for, as far as asked */
	List	   *strangers;		/* roles that it may not */
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

/* What a waiter sees when it looks around. */
typedef struct LeaseQueueView
{
	bool		answered;
	bool		is_head;
	int64		due_us;
} LeaseQueueView;

/* lease_queue.c */
extern void lease_queue_attach(bool make);

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
extern void lease_queue_wake_database(Oid database);

/* waiters */
extern LeaseWaiter *lease_queue_allocate_waiter(Oid role, bool further);
extern void lease_queue_free_waiter(LeaseWaiter *waiter);
extern bool lease_queue_join(LeaseWaiter *waiter, Oid database, uint32 hash,
							 lease_bytes name, int64 due_us, uint32 pokes);
extern bool lease_queue_leave(LeaseWaiter *waiter);
extern Latch *lease_queue_answer(LeaseQueue *queue, LeaseWaiter *waiter,
								 const LeaseAnswer *answer, XLogRecPtr lsn,
								 int64 due_us, int64 soon_us);
extern void lease_queue_look(LeaseWaiter *waiter, LeaseQueueView *view);
extern bool lease_queue_owner_waits(lease_bytes owner);
extern List *lease_queue_copy_waiters(Oid database);

/* guards */
extern bool lease_queue_guard(Oid database, uint32 hash, lease_bytes name,
							  const LeaseGuard *template);
pg_noreturn extern void lease_queue_raise_no_guard(void);
extern List *lease_queue_copy_guards(Oid database, uint32 hash,
									 lease_bytes name);
extern List *lease_queue_guarded_names(Oid database);
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
extern LeaseWaiter *lease_waiter_begin(LeaseDatabase *db,
									   const LeaseRequester *requester,
									   const lease_request *request,
									   LeaseWaitRole role_in_queue,
									   bool further);
extern LeaseWaiter *lease_waiter_mine(void);
extern LeaseWaiter *lease_waiter_last(void);
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
	int64		look_us;		/* the next regular look of one that sleeps */
	TimestampTz start_time;
	char	   *logged;			/* the name that the log was told of; NULL: it was
								 * not told yet */
} LeaseWaitTime;

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
extern LeaseSleepEnd lease_wait_sleep(LeaseDatabase *db, LeaseWaitTime *time,
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

/* lease_deadlock.c */
extern void lease_deadlock_check(LeaseDatabase *db);

#endif							/* DLOCK_WAIT_H */
