/*
 * lease_wait.c
 *	  Sleep until a lease is granted, or a hold has ended.
 *
 * A waiter sleeps on its latch.  It holds no lock meanwhile, not even on the
 * lock table, so that nothing waits for it.  It wakes
 *
 * - when it has been answered;
 * - at the head of the queue, when the holder's deadline has come: then it
 *   serves the queue itself, and finds the name free or the lease renewed;
 * - once a second, to see whether its client is still there, and whether the
 *   queue has been due for longer than its head should need.
 *
 * If something else ends the wait (time is up, cancel, terminate, a lost
 * client, an error), the waiter first leaves the queue.  If the lease was
 * granted at that moment, it keeps it when time was up, and else gives it back
 * (lease_protect.c).
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "lease_bond.h"
#include "lease_clock.h"
#include "lease_deadlock.h"
#include "lease_order.h"
#include "lease_privilege.h"
#include "lease_relation.h"
#include "lease_snapshot.h"
#include "lease_store.h"
#include "lease_wait.h"
#include "lease_waiter.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

/* ----------------------------------------------------------------
 * The time of a wait
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

/*
 * A place in which to watch a call's name, for a wait that may have begun long
 * ago: see lease_waiter_begin().
 */
LeaseWaiter *
lease_wait_begin_watch(const LeaseCall *call, LeaseWaitRole role_in_queue,
					   const LeaseWaitTime *time)
{
	LeaseWaiter *waiter = lease_waiter_begin(call, role_in_queue);

	waiter->since = time->start_time;
	return waiter;
}

/* ----------------------------------------------------------------
 * Deadlocks
 * ----------------------------------------------------------------
 */

/* Raise the error of a waiter that closes a circle, having left the queue. */
static void
raise_deadlock(LeaseDatabase *db, List *circle)
{
	StringInfoData detail;
	LeaseCircleStep *first = linitial(circle);
	const char *hint;
	ListCell   *cell;

	lease_count(db, LEASE_COUNT_DEADLOCKS, 1);
	initStringInfo(&detail);
	foreach(cell, circle)
	{
		LeaseCircleStep *step = lfirst(cell);

		if (detail.len > 0)
			appendStringInfoChar(&detail, '\n');
		appendStringInfo(&detail, step->in_queue ?
						 _("Owner \"%s\" waits for \"%s\"; queued behind owner \"%s\".") :
						 _("Owner \"%s\" waits for \"%s\"; held by owner \"%s\"."),
						 lease_privilege_show(step->owner, step->role),
						 lease_privilege_show_name(step->name, step->role),
						 lease_privilege_show(step->blocker, step->blocker_role));
	}
	if (list_length(circle) > 1)
		hint = _("Acquire leases in the same order everywhere, or together with dlock_acquire_all().");
	else if (first->role == first->blocker_role &&
			 strcmp(first->owner, first->blocker) == 0)
		hint = _("The owner holds what it waits for. Release it first.");
	else
		hint = _("This transaction guards what it waits for. End it first.");
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 errmsg("deadlock detected"),
			 errdetail_internal("%s", detail.data),
			 errhint("%s", hint)));
}

/*
 * Raise an error if this waiter, which has joined, closes a circle.  A waiter
 * cannot close one if it waits for no permits, its session has no leases, its
 * transaction guards nothing, all waiters stand in the same line, and none of
 * the others, nor a guard, has its owner.  Then nobody in the line waits for it:
 * its owner does not hold the name, or the call would have been answered at
 * once.  (A lease that another session of its owner has is in its way only if it
 * wants one for its own session.)
 */
void
lease_wait_check_deadlock(LeaseDatabase *db)
{
	const LeaseWaiter *waiter = lease_waiter_last();
	bool		guards = lease_queue_has_guards();
	Relation	rel;
	List	   *circle = NIL;

	if (!guards && !lease_bond_is_used(LEASE_SESSION) &&
		waiter->mode != LEASE_PERMIT &&
		waiter->role_in_queue == LEASE_WAIT_IN_LINE &&
		lease_queue_is_only_line(waiter))
		return;
	rel = lease_relation_open(AccessShareLock);
	if (guards || lease_deadlock_is_possible(db, rel, waiter))
		circle = lease_deadlock_find(db, rel, waiter);
	if (circle != NIL && lease_waiter_leave())
		circle = NIL;			/* granted after all */
	relation_close(rel, AccessShareLock);
	if (circle != NIL)
		raise_deadlock(db, circle);
}

/* ----------------------------------------------------------------
 * Sleeping
 * ----------------------------------------------------------------
 */

/*
 * End this backend if its client has gone away, or raise the error of a cancel.
 */
void
lease_wait_check_client(void)
{
	if (MyProcPort != NULL && !pq_check_connection())
	{
		ClientConnectionLost = true;
		InterruptPending = true;
	}
	/* the check may have reset the latch that a signal set */
	CHECK_FOR_INTERRUPTS();
}

/* Tell the log of a long wait, as the server does for its own locks. */
static void
log_wait(const LeaseWaitTime *time, const char *what)
{
	int64		waited_us = lease_clock_boot() - time->start_us;
	lease_bytes name = lease_waiter_name();
	const LeaseWaiter *waiter = lease_waiter_mine();

	ereport(LOG,
			(errmsg("process %d %s lease on \"%s\" after %lld.%03d ms",
					MyProcPid, what, pnstrdup(name.data, name.length),
					(long long) (waited_us / 1000),
					(int) (waited_us % 1000)),
			 waiter != NULL && waiter->owner_length > 0 ?
			 errdetail("Owner \"%s\".", pnstrdup(waiter->owner,
												 waiter->owner_length)) : 0));
}

/* If the log was told of a wait, tell it that the wait is over. */
void
lease_wait_stop(const LeaseWaitTime *time)
{
	if (time->logged)
		log_wait(time, "stopped waiting for");
}

/* When lock_timeout ends a wait, if that comes before the end of its time. */
static int64
lock_timeout_us(const LeaseWaitTime *time)
{
	int64		timeout_us = time->start_us + LockTimeout * INT64CONST(1000);

	return LockTimeout > 0 && timeout_us < time->end_us ? timeout_us :
		PG_INT64_MAX;
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
 *
 * lock_timeout is our own look at the boot clock.  The server's timer goes by the
 * wall clock, which may be set; and when set anew for each sleep it forgets that
 * it has just run out, and the error is that of a cancel.
 */
static bool
sleep_once(Sleeper *sleeper, int64 until_us)
{
	int64		log_us = sleeper->time->start_us + DeadlockTimeout * INT64CONST(1000);
	int64		timeout_us = lock_timeout_us(sleeper->time);
	bool		logs = log_lock_waits && !sleeper->time->logged;
	int64		now_us;

	Assert(lease_may_wait());

	/* earlier steps may have reset the latch that a signal set */
	CHECK_FOR_INTERRUPTS();
	until_us = Min(until_us, sleeper->look_us);
	until_us = Min(until_us, sleeper->time->end_us);
	until_us = Min(until_us, timeout_us);
	if (logs)
		until_us = Min(until_us, log_us);
	now_us = lease_clock_boot();
	lease_snapshot_give_up();
	if (until_us > now_us)
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) ((until_us - now_us + 999) / 1000),
						 lease_queue_wait_event());
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();

	now_us = lease_clock_boot();
	if (now_us >= timeout_us)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("canceling statement due to lock timeout")));
	if (logs && now_us >= log_us)
	{
		log_wait(sleeper->time, "still waiting for");
		sleeper->time->logged = true;
	}
	if (now_us < sleeper->look_us)
		return false;
	sleeper->look_us = now_us + LEASE_LOOK_INTERVAL_US;
	lease_wait_check_client();
	return true;
}

/* Convert a time of the lease clock to the boot clock. */
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
	int64		delay_us = call->request.delay_us;
	bool		regular = false;

	for (;;)
	{
		bool		due;

		lease_queue_look(lease_waiter_mine(), &view);
		if (view.answered || lease_wait_is_over(time))
			break;
		/* the lock delay changes what is due; a reload sets our latch */
		due = view.due_us <= lease_clock_now(call->db) ||
			lease_lock_delay_us() != delay_us;
		if (due && (view.is_head || regular || view.due_us == 0))
		{
			delay_us = lease_lock_delay_us();
			lease_store_serve_name(call->name, call->hash);
			regular = false;
			continue;
		}
		regular = sleep_once(&sleeper, view.is_head ?
							 boot_time(call->db, view.due_us) : PG_INT64_MAX);
	}
	lease_wait_stop(time);
	return view.answered;
}

/*
 * Wait for the answer of a call that has joined the queue; LEASE_BUSY when the
 * time is up. *lsn is what the answer depends on.  A hold that was granted is
 * noted as not claimed.
 */
void
lease_wait_in_line(LeaseCall *call, int64 wait_us, LeaseAnswer *answer,
				   XLogRecPtr *lsn)
{
	LeaseWaitTime time;

	lease_wait_start(&time, wait_us);
	lease_rows_report_expired(call);
	lease_wait_check_deadlock(call->db);
	if (sleep_in_line(call, &time))
	{
		/* seen under the partition's lock, so nobody else changes it any more */
		*answer = lease_waiter_mine()->answer;
		*lsn = lease_waiter_mine()->lsn;
	}
	else if (!lease_queue_leave(lease_waiter_mine(), answer, lsn))
	{
		memset(answer, 0, sizeof(*answer));
		answer->outcome = LEASE_BUSY;
		*lsn = InvalidXLogRecPtr;
		lease_count(call->db, LEASE_COUNT_TIMED_OUT, 1);
	}
	lease_waiter_finish();
	lease_count_wait(call->db, lease_clock_boot() - time.start_us);
	if (OidIsValid(answer->role))
		lease_privilege_check_acts(call->requester.role, answer->role);
}

/*
 * Sleep as a watcher that has joined until a hold on a name ends, the lease
 * clock reaches due_us, time is up, or a second has passed.
 */
void
lease_wait_watch(LeaseDatabase *db, LeaseWaitTime *time, int64 due_us)
{
	Sleeper		sleeper = {
		.time = time,
		.look_us = lease_clock_boot() + LEASE_LOOK_INTERVAL_US,
	};

	(void) sleep_once(&sleeper, boot_time(db, due_us));
}
