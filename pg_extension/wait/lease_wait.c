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
 * - once a second, to see whether the queue has been due for longer than its
 *   head should need;
 * - when its client goes away, where the platform tells.
 *
 * An interrupt that ends the call (a cancel, a timeout, a terminate, a lost
 * client) raises its error only after the waiter has left the queue.  If the
 * lease was granted by then, the waiter gives it back in its transaction, which
 * is sound, and then lets the interrupt go.  So sleepers look at the flags of the
 * core, as SyncRepWaitForLSN() does, and handle other interrupts with cancels
 * held.  A terminate that comes in just then, or while the waiter waits for a
 * lock, is left to the exit of the backend, which gives back as well
 * (lease_session.c).
 *
 * Any other error (a page that cannot be read, no memory, a lock on the table
 * that a cancelled call waited for) leaves the queue in the callbacks of the
 * abort.  They cannot give back what was granted before that: it stays until
 * its deadline, like what any call took that ended in an error.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "lease_crash.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "wait/lease_wait.h"

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
	HOLD_CANCEL_INTERRUPTS();	/* see lease_deadlock_find() */
	if (guards || lease_deadlock_is_possible(db, rel, waiter))
		circle = lease_deadlock_find(db, rel, waiter);
	if (circle != NIL && lease_waiter_leave())
		circle = NIL;			/* granted after all */
	RESUME_CANCEL_INTERRUPTS();
	relation_close(rel, AccessShareLock);
	if (circle != NIL)
		raise_deadlock(db, circle);
}

/* ----------------------------------------------------------------
 * Sleeping
 * ----------------------------------------------------------------
 */

/* Note that the client has gone away. */
static void
lose_client(void)
{
	ClientConnectionLost = true;
	InterruptPending = true;
}

/*
 * If the client has gone away, note that this backend must end.  May reset the
 * latch that a signal has set.
 */
void
lease_wait_check_client(void)
{
	if (MyProcPort != NULL && !pq_check_connection())
		lose_client();
}

/*
 * Say whether an interrupt is pending that ends the call: then the caller gives
 * back what it was granted, and calls lease_wait_raise(), which does not return.
 */
bool
lease_wait_must_end(void)
{
	if (!INTERRUPTS_PENDING_CONDITION())
		return false;
	if (CheckClientConnectionPending)
		lease_wait_check_client();
	return QueryCancelPending || ProcDiePending || ClientConnectionLost ||
		compat_transaction_timed_out();
}

/* Raise the error of the interrupt that ends the call, or of lock_timeout. */
void
lease_wait_raise(void)
{
	CHECK_FOR_INTERRUPTS();
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("canceling statement due to lock timeout")));
}

/*
 * Handle the interrupts that do not end the call.  True: another one is
 * pending.
 */
static bool
handle_interrupts(void)
{
	if (lease_wait_must_end())
		return true;
	DLOCK_CRASH_POINT("wait: about to handle interrupts");
	HOLD_CANCEL_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();
	RESUME_CANCEL_INTERRUPTS();
	return lease_wait_must_end();
}

/*
 * Tell the log of a long wait, as the server does for its own locks.  The log
 * would handle interrupts, of one that may have been granted what it waits for.
 */
static void
log_wait(const LeaseWaitTime *time, const char *what)
{
	int64		waited_us = lease_clock_boot() - time->start_us;
	lease_bytes name = lease_waiter_name();
	const LeaseWaiter *waiter = lease_waiter_mine();

	HOLD_INTERRUPTS();
	ereport(LOG,
			(errmsg("process %d %s lease on \"%s\" after %lld.%03d ms",
					MyProcPid, what, pnstrdup(name.data, name.length),
					(long long) (waited_us / 1000),
					(int) (waited_us % 1000)),
			 waiter != NULL && waiter->owner_length > 0 ?
			 errdetail("Owner \"%s\".", pnstrdup(waiter->owner,
												 waiter->owner_length)) : 0));
	RESUME_INTERRUPTS();
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

/*
 * Wait for the latch, or for the client to go away: the server's own set of
 * events has both.  Not every platform tells of the latter, nor has every
 * process a client.
 */
static void
wait_for_latch(long timeout_ms)
{
	WaitEvent	events[COMPAT_CLIENT_EVENTS];
	int			count;

	if (MyProcPort == NULL || !WaitEventSetCanReportClosed())
	{
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 timeout_ms, lease_queue_wait_event());
		return;
	}
	ModifyWaitEvent(FeBeWaitSet, COMPAT_CLIENT_SOCKET, WL_SOCKET_CLOSED, NULL);
	count = WaitEventSetWait(FeBeWaitSet, timeout_ms, events,
							 lengthof(events), lease_queue_wait_event());
	for (int i = 0; i < count; i++)
	{
		if (events[i].events & WL_SOCKET_CLOSED)
			lose_client();
		if (events[i].events & WL_POSTMASTER_DEATH)
			proc_exit(1);
	}
}

/* Convert a time of the lease clock to the boot clock. */
static int64
boot_time(LeaseDatabase *db, int64 lease_us)
{
	if (lease_us == PG_INT64_MAX)
		return PG_INT64_MAX;
	return lease_us - (int64) pg_atomic_read_u64(&db->clock_offset_us);
}

/*
 * Sleep once, until the latch is set or something is due: at the latest at the
 * next regular look, or when the lease clock reaches due_us.  Handles the log, and interrupts that do not end the call.
 *
 * lock_timeout is our own look at the boot clock.  The server's timer goes by the
 * wall clock, which may be set; and when set anew for each sleep it forgets that
 * it has just run out, and the error is that of a cancel.
 */
LeaseSleepEnd
lease_wait_sleep(LeaseDatabase *db, LeaseSleeper *sleeper, int64 due_us)
{
	int64		until_us = boot_time(db, due_us);
	int64		log_us = sleeper->time->start_us + DeadlockTimeout * INT64CONST(1000);
	int64		timeout_us = lock_timeout_us(sleeper->time);
	bool		logs = log_lock_waits && !sleeper->time->logged;
	int64		now_us;

	Assert(lease_may_wait());

	/* earlier steps may have reset the latch that a signal set */
	if (handle_interrupts())
		return LEASE_SLEEP_INTERRUPTED;
	until_us = Min(until_us, sleeper->look_us);
	until_us = Min(until_us, sleeper->time->end_us);
	until_us = Min(until_us, timeout_us);
	if (logs)
		until_us = Min(until_us, log_us);
	now_us = lease_clock_boot();
	lease_snapshot_give_up();
	if (until_us > now_us)
		wait_for_latch((long) ((until_us - now_us + 999) / 1000));
	ResetLatch(MyLatch);
	if (handle_interrupts())
		return LEASE_SLEEP_INTERRUPTED;

	now_us = lease_clock_boot();
	if (now_us >= timeout_us)
		return LEASE_SLEEP_INTERRUPTED;
	if (logs && now_us >= log_us)
	{
		log_wait(sleeper->time, "still waiting for");
		sleeper->time->logged = true;
	}
	if (now_us < sleeper->look_us)
		return LEASE_SLEEP_ENDED;
	sleeper->look_us = now_us + LEASE_LOOK_INTERVAL_US;
	return LEASE_SLEEP_ENDED_REGULARLY;
}

/*
 * Sleep as a watcher that has joined until a hold on a name ends, the lease
 * clock reaches due_us, time is up, or a second has passed.
 */
void
lease_wait_watch(LeaseDatabase *db, LeaseWaitTime *time, int64 due_us)
{
	LeaseSleeper sleeper = {
		.time = time,
		.look_us = lease_clock_boot() + LEASE_LOOK_INTERVAL_US,
	};

	if (lease_wait_sleep(db, &sleeper, due_us) == LEASE_SLEEP_INTERRUPTED)
		lease_wait_raise();
}
