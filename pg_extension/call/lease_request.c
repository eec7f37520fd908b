/*
 * lease_request.c
 *	  One request on one name, from its SQL function to its answer.
 *
 * The attempts are lease_attempt.c's.  This file waits if need be, makes
 * durable what the caller is to be told, and answers.  A guard, and a wait for
 * the present holders, are requests too; they change no row.
 *
 * Between a grant and its answer, nothing handles interrupts.  At the end the
 * call looks for one that is to end it, and gives back what it was granted
 * before it lets the interrupt go: the executor could not give it back.
 *
 * Any other error in between leaves the hold until its deadline, as a caller
 * must expect of an error: one that ends the wait for a synchronous standby,
 * since that standby may have the hold; a page that cannot be read when the
 * bucket's summary is made anew; no memory for the snapshot or the answer.
 *
 * Called by the SQL functions, with nothing locked.  A crash before the answer
 * leaves what was granted until its deadline.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "call/lease_call.h"
#include "miscadmin.h"

/* Sleep in the queue until something ends that. */
static LeaseSleepEnd
sleep_in_line(const LeaseCall *call, LeaseWaitTime *time)
{
	LeaseSleeper sleeper = {
		.time = time, .look_us = time->start_us + LEASE_LOOK_INTERVAL_US
	};
	LeaseQueueView view;
	int64		delay_us = call->request.delay_us;
	LeaseSleepEnd	end = LEASE_SLEEP_ENDED;

	while (end != LEASE_SLEEP_INTERRUPTED)
	{
		bool		due;

		lease_queue_look(lease_waiter_mine(), &view);
		if (view.answered)
			return LEASE_SLEEP_ANSWERED;
		if (lease_wait_is_over(time))
			return LEASE_SLEEP_TIME_IS_UP;
		/* the lock delay changes what is due; a reload sets our latch */
		due = view.due_us <= lease_clock_now(call->db) ||
			lease_lock_delay_us() != delay_us;
		if (due && (view.is_head || end == LEASE_SLEEP_ENDED_REGULARLY ||
					view.due_us == 0))
		{
			delay_us = lease_lock_delay_us();
			lease_store_serve_name(call->name, call->hash);
			end = LEASE_SLEEP_ENDED;
			continue;
		}
		end = lease_wait_sleep(call->db, &sleeper,
							   view.is_head ? view.due_us : PG_INT64_MAX);
	}
	return end;
}

/*
 * Wait for the answer of a call that has joined the queue; LEASE_BUSY when the
 * time is up. *lsn is what the answer depends on.  Where it raises an error, it
 * has given back what was granted, if the head of lease_wait.c does not
 * say otherwise.
 */
static void
wait_in_line(LeaseCall *call, int64 wait_us, LeaseAnswer *answer,
			 XLogRecPtr *lsn)
{
	LeaseWaitTime time;
	LeaseSleepEnd	end;
	bool		may_act;

	lease_wait_start(&time, wait_us);
	lease_rows_report_expired(call);
	lease_wait_check_deadlock(call->db);
	end = sleep_in_line(call, &time);
	lease_wait_stop(&time);
	if (end == LEASE_SLEEP_ANSWERED)
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
		if (end == LEASE_SLEEP_TIME_IS_UP)
			lease_count(call->db, LEASE_COUNT_TIMED_OUT, 1);
	}
	/* from here on nobody but us gives back what was granted */
	HOLD_INTERRUPTS();
	lease_waiter_finish();
	may_act = !OidIsValid(answer->role) ||
		lease_privilege_may_act(call->requester.role, answer->role);
	if (!may_act || end == LEASE_SLEEP_INTERRUPTED)
		lease_attempt_undo(NULL, call->name, call->requester.role,
						   &call->request, answer);
	RESUME_INTERRUPTS();
	if (end == LEASE_SLEEP_INTERRUPTED)
		lease_wait_raise();
	if (!may_act)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to act for the holder of the lease"),
				 errdetail("The privileges of the holder's role were revoked while the call waited.")));
	lease_count_wait(call->db, lease_clock_boot() - time.start_us);
}

/*
 * Apply a request to the holders of one name, and return the answer.  The
 * request's strings and times have been checked; its next_token is filled in
 * here.
 *
 * An acquire waits for wait_us microseconds if need be, without limit if that
 * is negative.
 */
LeaseAnswer
lease_request_apply(lease_bytes name, const lease_request *request,
					int64 wait_us)
{
	LeaseCall	call;
	LeaseAnswer answer;
	bool		waited;
	XLogRecPtr	lsn;

	if (wait_us != 0)
		lease_session_watch();
	lease_store_begin(&call, name, request);
	waited = lease_attempt(&call, &answer, wait_us != 0);
	relation_close(call.rel, RowExclusiveLock);
	if (waited)
		wait_in_line(&call, wait_us, &answer, &lsn);
	else
	{
		/* the backend that serves a waiter counts its grant */
		lease_store_count(&call, &answer);
		lsn = call.lsn;
	}
	lease_store_make_durable(request->op, lsn);
	lease_rows_report_expired(&call);
	if (waited)
	{
		lease_wait_check_client();
		lease_snapshot_take_back();
	}
	if (lease_is_granted(answer.outcome) && lease_wait_must_end())
	{
		lease_attempt_undo(NULL, name, call.requester.role, request, &answer);
		lease_wait_raise();
	}
	lease_rows_end(&call);
	return answer;
}

/*
 * A place in which to watch a call's name, for a wait that may have begun long
 * ago: see lease_waiter_begin().
 */
LeaseWaiter *
lease_request_begin_watch(const LeaseCall *call, LeaseWaitRole role_in_queue,
						  const LeaseWaitTime *time)
{
	LeaseWaiter *waiter = lease_waiter_begin(call->db, call->name,
											 &call->requester, &call->request,
											 role_in_queue);

	waiter->since = time->start_time;
	return waiter;
}

/*
 * Pin a lease until the end of this transaction.  Returns whether the caller
 * holds it with this token and it is pinned; if not, there is no place for a
 * guard, "*full", or *holder is a copy of the entry of a live holder, or NULL.
 */
bool
lease_request_guard(lease_bytes name, lease_bytes owner, uint64 token,
					LeaseEntry **holder, bool *full)
{
	lease_request request = {
		.op = LEASE_RENEW, .owner = owner, .token = token
	};
	LeaseCall	call;
	Buffer		bucket;
	size_t		mine;
	bool		held;
	LeaseGuard	guard = {.token = token};

	*full = false;
	lease_store_begin(&call, name, &request);
	for (;;)
	{
		bucket = lease_trie_lock(call.rel, call.hash, BUFFER_LOCK_SHARE);
		if (lease_store_gather(&call, bucket))
			break;
		UnlockReleaseBuffer(bucket);
		lease_rows_resolve_role(&call);
	}
	mine = lease_find(&call.request, call.holders, call.count, call.now_us);
	held = mine < call.count;
	if (held)
	{
		LeaseEntry *entry = lease_rows_entry(&call, bucket, mine);

		guard.role = entry->role;
		guard.acquired_at = entry->acquired_at;
		pfree(entry);
		guard.guarding_role = call.requester.role;
		guard.application_length =
			LEASE_PUT_STRING(guard.application, lease_client_application());
		guard.address_length =
			LEASE_PUT_STRING(guard.address, lease_client_address());
		guard.mode = call.holders[mine].mode;
		guard.is_transactions = call.holders[mine].kind == LEASE_TRANSACTION &&
			!call.holders[mine].elsewhere;
		guard.version = call.holders[mine].version;
		guard.owner_length = LEASE_PUT_STRING(guard.owner, owner);
		held = lease_queue_guard(call.db->database, call.hash, name, &guard);
		*full = !held;
	}
	else
	{
		*holder = NULL;
		call.apart = true;
		(void) lease_store_gather(&call, bucket);
		call.unknown_role = InvalidOid;
		for (size_t i = 0; i < call.count; i++)
			if (!lease_is_over(&call.holders[i], call.now_us) &&
				*holder == NULL)
				*holder = lease_rows_entry(&call, bucket, i);
	}
	UnlockReleaseBuffer(bucket);
	lease_store_end(&call);
	return held;
}

/*
 * Wait until every hold that a name has now has ended: true; false if wait_us
 * runs out before.
 */
bool
lease_request_wait(lease_bytes name, int64 wait_us)
{
	lease_request request = {.op = LEASE_REAP};
	LeaseWaitTime time;
	uint64		youngest = 0;
	bool		ended = false;

	lease_wait_start(&time, wait_us);
	if (wait_us != 0)
		lease_session_watch();
	for (bool first = true; !ended; first = false)
	{
		LeaseCall	call;
		LeaseWaiter *waiter;
		Buffer		bucket;
		int64		next_us;
		bool		sleeps;

		lease_store_begin(&call, name, &request);
		/* without a wait, no place to wait in is needed */
		waiter = first || wait_us == 0 || lease_wait_is_over(&time) ? NULL :
			lease_request_begin_watch(&call, LEASE_WAIT_WATCH, &time);
		bucket = lease_trie_lock(call.rel, call.hash, BUFFER_LOCK_SHARE);
		/* with the guards: a transaction's lease ends with its guard */
		(void) lease_store_gather(&call, bucket);
		call.unknown_role = InvalidOid;
		if (first)
			youngest = lease_youngest(call.holders, call.count, call.now_us);
		ended = lease_have_ended(call.holders, call.count, youngest,
								 call.now_us, &next_us);
		/* rows change under the bucket's lock, but a guard may have ended meanwhile */
		sleeps = !ended && waiter != NULL &&
			lease_queue_join(waiter, call.db->database, call.hash, name, 0,
							 call.pokes);
		UnlockReleaseBuffer(bucket);
		lease_store_end(&call);
		if (sleeps)
			lease_wait_watch(call.db, &time, next_us);
		lease_waiter_finish();
		if (waiter == NULL && (!first || wait_us == 0))
			break;
	}
	lease_wait_stop(&time);
	lease_snapshot_take_back();
	return ended;
}
