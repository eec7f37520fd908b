/*
 * lease_wait.c
 *	  Sleep until a lease is granted, or a hold has ended.
 *
 * A waiter sleeps on its latch and holds no lock meanwhile, not on the lock
 * table either, so that nothing waits for it.  It wakes
 *
 * - when it has been answered;
 * - at the head of the queue, when the holder's deadline has come: then it
 *   serves the queue itself, and finds the name free or the lease renewed;
 * - once a second, to see whether its client is still there, and whether the
 *   queue has been due for longer than its head should need.
 *
 * Whatever ends the wait otherwise (time is up, cancel, terminate, a lost
 * client, an error) leaves the queue first.  If the lease was granted at the
 * same moment it is kept when time was up, and else given back.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_authid.h"
#include "lease_deadlock.h"
#include "lease_session.h"
#include "lease_store.h"
#include "lease_wait.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

/* This backend's place to wait in, or NULL. */
static LeaseWaiter *my_waiter = NULL;

/* The name it waits for. */
static char my_name[LEASE_STRING_MAX + 1];
static size_t my_name_length = 0;

/* ----------------------------------------------------------------
 * Beginning and end
 * ----------------------------------------------------------------
 */

/* Start the time of a wait; a negative one has no end. */
void
lease_wait_start(LeaseWaitTime *time, int64 wait_us)
{
	time->start_us = lease_clock_boot();
	time->end_us = wait_us < 0 ? PG_INT64_MAX : time->start_us + wait_us;
	time->start_time = GetCurrentTimestamp();
	time->logged = false;
}

/* Say whether the time of a wait is up. */
bool
lease_wait_is_over(const LeaseWaitTime *time)
{
	return lease_clock_boot() >= time->end_us;
}

static uint8
put_string(char *to, lease_bytes from)
{
	if (from.length > 0)
		memcpy(to, from.data, from.length);
	return (uint8) from.length;
}

/*
 * A place to wait in for a call's request, to be given to lease_queue_join().
 * Raises an error if there is none.  lease_wait_in_line() gives it back, and
 * lease_wait_finish() if it has not come to that.
 */
LeaseWaiter *
lease_wait_begin(const LeaseCall *call, LeaseWaitRole role_in_queue)
{
	lease_bytes application = {
		application_name, application_name ? strlen(application_name) : 0
	};
	LeaseWaiter *waiter;

	lease_wait_finish();
	lease_session_watch();
	waiter = lease_queue_allocate_waiter();
	my_waiter = waiter;
	my_name_length = put_string(my_name, call->name);

	waiter->role_in_queue = role_in_queue;
	waiter->latch = MyLatch;
	waiter->woken = &call->db->woken;
	waiter->since = GetCurrentTimestamp();
	waiter->pid = MyProcPid;
	waiter->role = call->requester.role;
	waiter->acts_for = InvalidOid;
	waiter->stamp = call->requester.stamp;
	waiter->mode = call->request.mode;
	waiter->kind = call->request.kind;
	waiter->limit = call->request.limit;
	waiter->ttl_us = call->request.ttl_us;
	waiter->owner_length = put_string(waiter->owner, call->request.owner);
	waiter->request_length = put_string(waiter->request,
										call->request.request);
	waiter->application_length = put_string(waiter->application, application);
	waiter->address_length = put_string(waiter->address,
										lease_rows_client_address());
	return waiter;
}

/* The same to watch a name, for a wait that may have begun long ago. */
LeaseWaiter *
lease_wait_begin_watch(const LeaseCall *call, LeaseWaitRole role_in_queue,
					   const LeaseWaitTime *time)
{
	LeaseWaiter *waiter = lease_wait_begin(call, role_in_queue);

	waiter->since = time->start_time;
	return waiter;
}

/* Leave the queue, if there is one, and give the place back. */
void
lease_wait_finish(void)
{
	LeaseUnclaimed unclaimed;

	(void) lease_wait_abandon(&unclaimed);
}

/*
 * The same; and if a hold was granted that nobody has learnt of, say which.
 * Its strings stay until the next wait.
 */
bool
lease_wait_abandon(LeaseUnclaimed *unclaimed)
{
	static char owner[LEASE_STRING_MAX];
	LeaseWaiter *waiter = my_waiter;
	LeaseAnswer answer;
	XLogRecPtr	lsn;
	bool		granted = false;

	if (waiter == NULL)
		return false;
	my_waiter = NULL;
	if (waiter->joined && lease_queue_leave(waiter, &answer, &lsn))
		granted = answer.outcome == LEASE_GRANTED ||
			answer.outcome == LEASE_REENTERED;
	if (granted)
	{
		memcpy(owner, waiter->owner, waiter->owner_length);
		*unclaimed = (LeaseUnclaimed) {
			.name = {my_name, my_name_length},
			.owner = {owner, waiter->owner_length},
			.role = waiter->role,
			.token = answer.token,
		};
	}
	lease_queue_free_waiter(waiter);
	return granted;
}

/*
 * Give back what was granted to a waiter that has left.  If somebody has locked
 * the table, for which whoever leaves cannot wait, the lease is left to its time
 * to live.
 */
void
lease_wait_give_back(const LeaseUnclaimed *unclaimed)
{
	lease_request request = {
		.op = LEASE_RELEASE, .owner = unclaimed->owner,
		.token = unclaimed->token
	};
	Relation	rel = lease_store_open_at_exit();

	if (rel == NULL)
		return;
	lease_store_give_back(rel, unclaimed->name, unclaimed->role, &request,
						  false);
	relation_close(rel, RowExclusiveLock);
}

/*
 * After an error in a wait: leave the queue, and give back what was granted.
 * The transaction is still good for that.
 */
static void
give_up(void)
{
	LeaseUnclaimed unclaimed;

	if (!lease_wait_abandon(&unclaimed))
		return;
	HOLD_INTERRUPTS();
	lease_wait_give_back(&unclaimed);
	RESUME_INTERRUPTS();
}

/* ----------------------------------------------------------------
 * Deadlocks
 * ----------------------------------------------------------------
 */

/* Say whether the caller may see the owners and clients of a role's leases. */
bool
lease_wait_may_see(Oid role)
{
	return has_privs_of_role(GetUserId(), role) ||
		has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

static const char *
visible(const char *owner, Oid role)
{
	return lease_wait_may_see(role) ? owner : LEASE_MASK;
}

/* Raise the error of a waiter that closes a cycle, having left the queue. */
static void
raise_deadlock(LeaseDatabase *db, List *cycle)
{
	StringInfoData detail;
	bool		is_alone = list_length(cycle) == 1;
	ListCell   *cell;

	lease_count(db, LEASE_COUNT_DEADLOCKS, 1);
	initStringInfo(&detail);
	foreach(cell, cycle)
	{
		LeaseCycleStep *step = lfirst(cell);

		if (detail.len > 0)
			appendStringInfoChar(&detail, '\n');
		appendStringInfo(&detail, step->in_queue ?
						 _("Owner \"%s\" waits for \"%s\"; queued behind owner \"%s\".") :
						 _("Owner \"%s\" waits for \"%s\"; held by owner \"%s\"."),
						 visible(step->owner, step->role), step->name,
						 visible(step->blocker, step->blocker_role));
	}
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 errmsg("deadlock detected"),
			 errdetail_internal("%s", detail.data),
			 is_alone ?
			 errhint("The owner holds what it waits for. Release it first.") :
			 errhint("Acquire leases in the same order everywhere, or together with dlock_acquire_all().")));
}

/*
 * Raise an error if this waiter, which has joined, closes a cycle.  An owner
 * that waits for more permits may wait for its own.
 */
static void
check_deadlock(LeaseDatabase *db)
{
	Relation	rel;
	List	   *cycle;
	LeaseAnswer answer;
	XLogRecPtr	lsn;

	if (my_waiter->mode != LEASE_PERMIT &&
		my_waiter->role_in_queue == LEASE_WAIT_IN_LINE &&
		!lease_queue_may_deadlock(my_waiter))
		return;
	rel = lease_store_open(AccessShareLock);
	LWLockAcquire(lease_queue_deadlock_lock(), LW_EXCLUSIVE);
	cycle = lease_deadlock_find(db, rel, my_waiter);
	if (cycle != NIL && lease_queue_leave(my_waiter, &answer, &lsn))
		cycle = NIL;			/* granted after all */
	LWLockRelease(lease_queue_deadlock_lock());
	relation_close(rel, AccessShareLock);
	if (cycle != NIL)
		raise_deadlock(db, cycle);
}

/* ----------------------------------------------------------------
 * Sleeping
 * ----------------------------------------------------------------
 */

/* End this backend if its client has gone away. */
static void
check_client(void)
{
	if (MyProcPort == NULL)
		return;
	if (!pq_check_connection())
	{
		ClientConnectionLost = true;
		InterruptPending = true;
	}
	/* it may have reset the latch that a signal set */
	CHECK_FOR_INTERRUPTS();
}

/* Tell the log of a long wait, as the server does for its own locks. */
static void
log_wait(const LeaseWaitTime *time, const char *what)
{
	int64		waited_us = lease_clock_boot() - time->start_us;

	ereport(LOG,
			(errmsg("process %d %s lease on \"%s\" after %lld.%03d ms",
					MyProcPid, what, pnstrdup(my_name, my_name_length),
					(long long) (waited_us / 1000),
					(int) (waited_us % 1000)),
			 my_waiter != NULL && my_waiter->owner_length > 0 ?
			 errdetail("Owner \"%s\".", pnstrdup(my_waiter->owner,
												 my_waiter->owner_length)) : 0));
}

/* Tell the log that a wait is over that it was told of. */
void
lease_wait_stop(const LeaseWaitTime *time)
{
	if (time->logged)
		log_wait(time, "stopped waiting for");
}

/* What a sleeper remembers from one look to the next. */
typedef struct Sleeper
{
	LeaseWaitTime *time;
	int64		look_us;		/* boot clock: the next regular look */
} Sleeper;

/*
 * Sleep once, until the latch is set or something is due: at the latest at the
 * next regular look.  Handles interrupts, the client and the log.  Returns
 * whether the regular look has come.
 */
static bool
sleep_once(Sleeper *sleeper, int64 until_us)
{
	int64		log_us = sleeper->time->start_us + DeadlockTimeout * INT64CONST(1000);
	bool		logs = log_lock_waits && !sleeper->time->logged;
	int64		now_us;

	/* what came before may have reset the latch that a signal set */
	CHECK_FOR_INTERRUPTS();
	until_us = Min(until_us, sleeper->look_us);
	until_us = Min(until_us, sleeper->time->end_us);
	if (logs)
		until_us = Min(until_us, log_us);
	if (LockTimeout > 0)
		enable_timeout_at(LOCK_TIMEOUT,
						  TimestampTzPlusMilliseconds(sleeper->time->start_time,
													  LockTimeout));
	now_us = lease_clock_boot();
	if (until_us > now_us)
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) ((until_us - now_us + 999) / 1000),
						 lease_queue_wait_event());
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();

	now_us = lease_clock_boot();
	if (logs && now_us >= log_us)
	{
		log_wait(sleeper->time, "still waiting for");
		sleeper->time->logged = true;
	}
	if (now_us < sleeper->look_us)
		return false;
	sleeper->look_us = now_us + LEASE_LOOK_INTERVAL_US;
	check_client();
	return true;
}

/* A moment of the lease clock on the boot clock. */
static int64
boot_time(LeaseDatabase *db, int64 lease_us)
{
	if (lease_us == PG_INT64_MAX)
		return PG_INT64_MAX;
	return lease_us - (int64) pg_atomic_read_u64(&db->clock_offset_us);
}

/* Sleep in the queue until there is an answer: true; or time is up. */
static bool
sleep_in_line(const LeaseCall *call, LeaseWaitTime *time)
{
	Sleeper		sleeper = {
		.time = time, .look_us = time->start_us + LEASE_LOOK_INTERVAL_US
	};
	LeaseQueueView view;
	bool		regular = false;

	for (;;)
	{
		bool		due;

		lease_queue_look(my_waiter, &view);
		if (view.answered || lease_wait_is_over(time))
			break;
		due = view.due_us <= lease_clock_now(call->db);
		if (due && (view.is_head || regular || view.due_us == 0))
		{
			lease_store_serve_name(call->name, call->hash);
			regular = false;
			continue;
		}
		regular = sleep_once(&sleeper, view.is_head ?
							 boot_time(call->db, view.due_us) : PG_INT64_MAX);
	}
	/* who has gone since the last look gives back what he was granted */
	if (view.answered)
		check_client();
	lease_wait_stop(time);
	return view.answered;
}

/* End the timers of a wait; one that has just run out says so to the error. */
static void
stop_timers(void)
{
	if (LockTimeout > 0)
		disable_timeout(LOCK_TIMEOUT, true);
}

/*
 * Wait for the answer of a call that has joined the queue; LEASE_BUSY when the
 * time is up.  *lsn is what the answer depends on.
 */
void
lease_wait_in_line(LeaseCall *call, int64 wait_us, LeaseAnswer *answer,
				   XLogRecPtr *lsn)
{
	MemoryContext memory = CurrentMemoryContext;
	LeaseWaitTime time;
	volatile bool answered = false;

	lease_wait_start(&time, wait_us);
	PG_TRY();
	{
		lease_rows_report_expired(call);
		check_deadlock(call->db);
		answered = sleep_in_line(call, &time);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		LWLockReleaseAll();
		MemoryContextSwitchTo(memory);
		error = CopyErrorData();
		FlushErrorState();
		stop_timers();
		give_up();
		ReThrowError(error);
	}
	PG_END_TRY();
	stop_timers();

	if (answered)
	{
		/* seen under the partition's lock, so nobody else is at it any more */
		*answer = my_waiter->answer;
		*lsn = my_waiter->lsn;
	}
	else if (!lease_queue_leave(my_waiter, answer, lsn))
	{
		memset(answer, 0, sizeof(*answer));
		answer->outcome = LEASE_BUSY;
		*lsn = InvalidXLogRecPtr;
		lease_count(call->db, LEASE_COUNT_TIMED_OUT, 1);
	}
	lease_queue_free_waiter(my_waiter);
	my_waiter = NULL;
	lease_count_wait(call->db, lease_clock_boot() - time.start_us);
}

/*
 * Sleep as a watcher that has joined until a hold on the name ends, the lease
 * clock reaches due_us, time is up, or a second has passed.
 */
void
lease_wait_watch(LeaseDatabase *db, LeaseWaitTime *time, int64 due_us)
{
	Sleeper		sleeper = {
		.time = time,
		.look_us = lease_clock_boot() + LEASE_LOOK_INTERVAL_US,
	};

	PG_TRY();
	{
		if (my_waiter->owner_length > 0)
			check_deadlock(db);
		(void) sleep_once(&sleeper, boot_time(db, due_us));
	}
	PG_CATCH();
	{
		LWLockReleaseAll();
		stop_timers();
		lease_wait_finish();
		PG_RE_THROW();
	}
	PG_END_TRY();
	stop_timers();
}
