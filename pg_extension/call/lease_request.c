/*
 * lease_request.c
 *	  One request on one name, from its SQL function to its answer.
 *
 * An attempt goes: lock the name's bucket, gather the name's holders, read the
 * clock, let the core decide, write the changed rows back, log, serve the name's
 * waiters, unlock.  It starts over if it had to give up the lock: to make room, or
 * to ask the catalogs.  An acquire that may wait ends with a place in the queue,
 * with which it sleeps (lease_wait.c) once the bucket is unlocked.  Then the call
 * makes durable what the caller is to be told, and answers.  Requests on many
 * names take the same steps, with several buckets locked or one after another
 * (lease_many.c, lease_walk.c).
 *
 * Every change to a name happens under its bucket's exclusive content lock,
 * which makes concurrent requests on the name take turns.  While a backend
 * holds that, it waits for nothing but the partition of the name's queue
 * (lease_queue.c) and pages further down the lock order (lease_trie.c).
 *
 * A call that makes or finds a name free grants it to the head of the queue, on
 * the waiter's behalf: with its role, its owner, and its time to live from then
 * on.  The waiter makes the grant durable for itself when it wakes.
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
 * After a crash, each record's change was made or not, and what was granted stays
 * until its deadline.  A caller that had its answer finds it made; one that had
 * none asks again.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "call/lease_call.h"
#include "lease_crash.h"
#include "miscadmin.h"

/* How many waiters one call serves; the next one serves the others. */
#define SERVE_MAX		64

/* How old the clock's mark may be before a call writes a new one. */
#define MARK_AGE_US		USECS_PER_SEC

/* How an attempt at a request ended. */
typedef enum Attempt
{
	ATTEMPT_AGAIN,				/* start over */
	ATTEMPT_STUCK,				/* the same, after lease_call_prepare() */
	ATTEMPT_ANSWERED,
	ATTEMPT_JOINED				/* the waiter stands in line */
} Attempt;

/* ----------------------------------------------------------------
 * A call's begin and end
 * ----------------------------------------------------------------
 */

/* Open and activate the table for a call by the current role. */
void
lease_call_begin(LeaseCall *call, lease_bytes name,
				  const lease_request *request)
{
	Relation	rel = lease_relation_open(RowExclusiveLock);
	LeaseDatabase *db = lease_activate(rel);

	lease_clock_mark(rel, db, MARK_AGE_US);
	lease_rows_init(call, rel, db, request);
	lease_call_set_name(call, name);
}

/* Go on with another name. */
void
lease_call_set_name(LeaseCall *call, lease_bytes name)
{
	call->name = name;
	call->hash = lease_trie_hash(call->rel, name);
}

/*
 * Raise an error unless a call still uses the table that it has begun to wait in:
 * "hash" is what a name had there.
 */
void
lease_call_check_table(const LeaseCall *call, uint32 hash)
{
	if (call->hash != hash)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the lock table was replaced while waiting for a lease")));
}

/* Close the table, and log what was found dead. */
void
lease_call_end(LeaseCall *call)
{
	relation_close(call->rel, RowExclusiveLock);
	lease_rows_end(call);
}

/* Count the outcome of a request. */
void
lease_call_count(const LeaseCall *call, const LeaseAnswer *answer)
{
	LeaseDatabase *db = call->db;

	switch (answer->outcome)
	{
		case LEASE_GRANTED:
			lease_count(db, LEASE_COUNT_ACQUIRED, 1);
			break;
		case LEASE_REENTERED:
		case LEASE_REPLAYED:
			lease_count(db, LEASE_COUNT_REENTERED, 1);
			break;
		case LEASE_BUSY:
			lease_count(db, LEASE_COUNT_REFUSED, 1);
			break;
		case LEASE_RENEWED:
			lease_count(db, LEASE_COUNT_RENEWED, 1);
			break;
		case LEASE_RELEASED:
			lease_count(db, LEASE_COUNT_FORCED, answer->ended);
			if (answer->ended == 0)
				lease_count(db, LEASE_COUNT_RELEASED, 1);
			break;
		case LEASE_NOT_YOURS:
		case LEASE_NOT_HELD:
			if (call->request.op == LEASE_RENEW)
				lease_count(db, LEASE_COUNT_RENEWALS_LOST, 1);
			break;
		default:				/* what ends later counts when it is removed */
			break;
	}
}

/* Make a call's changes durable, at once or soon, as its operation needs. */
void
lease_call_make_durable(lease_op op, XLogRecPtr lsn)
{
	DLOCK_CRASH_POINT("call: not flushed");
	if (lease_must_be_durable(op))
		lease_wal_flush(lsn);
	else
		lease_wal_flush_later(lsn);
	DLOCK_CRASH_POINT("call: not answered");
}

/* ----------------------------------------------------------------
 * The steps of an attempt, under the lock of the bucket
 * ----------------------------------------------------------------
 */

/*
 * Gather the rows and guards of the call's name.  False if the catalogs must be
 * asked: the caller unlocks all that it has locked, calls
 * lease_rows_resolve_role() and starts over.
 */
bool
lease_call_gather(LeaseCall *call, Buffer bucket)
{
	Oid			database = call->db->database;
	bool		locks = lease_queue_is_used(database, call->hash) ||
		lease_trie_has_chain(bucket, call->hash);
	LeaseQueue *queue = NULL;

	call->pokes = lease_queue_pokes(database, call->hash);
	if (locks)
		queue = lease_queue_lock(database, call->hash, call->name, LW_SHARED);
	queue = lease_rows_gather(call, bucket, queue, LW_SHARED);
	call->request.behind = queue != NULL && lease_queue_head(queue) != NULL;
	if (locks)
		lease_queue_unlock(database, call->hash);
	return !OidIsValid(call->unknown_role);
}

/*
 * Let the core decide on the rows gathered from a bucket, which is locked
 * exclusively.
 */
lease_result
lease_call_decide(LeaseCall *call, Buffer bucket, LeaseAnswer *answer)
{
	LeasePageSpecial *special = lease_page_special(BufferGetPage(bucket));
	lease_result result;
	size_t		mine;

	memset(answer, 0, sizeof(*answer));
	call->request.next_token =
		lease_next_token(special->mark, pg_atomic_read_u64(&call->db->floor));
	mine = lease_find(&call->request, call->holders, call->count,
					  call->now_us);
	if (mine < call->count)
	{
		answer->held_mode = call->holders[mine].mode;
		answer->held_kind = call->holders[mine].kind;
		answer->role = call->places[mine].role;
	}
	result = lease_apply(&call->request, call->holders, call->count,
						 call->now_us);
	answer->outcome = result.outcome;
	answer->token = result.token;
	answer->ended = call->request.op == LEASE_EVICT ? result.changed : 0;
	answer->retry_us = result.retry_us;

	/* a session may end and be unable to wake the waiters */
	for (size_t i = 0; i < call->count; i++)
		if (call->holders[i].life == LEASE_BOUND)
			answer->retry_us = Min(answer->retry_us,
								   call->now_us + LEASE_LOOK_INTERVAL_US);
	/* a repetition is answered when what it repeats is durable */
	if (result.outcome == LEASE_REPLAYED || result.outcome == LEASE_WILL_END)
		call->lsn = Max(call->lsn, call->places[mine].lsn);
	return result;
}

/*
 * Tell the bucket's summary of what was written.  It may be made anew, for which all
 * of the bucket's rows are read: that may fail.
 */
static void
tell_summary(LeaseCall *call, Buffer bucket, const lease_result *result)
{
	if (result->changed == 0)
		return;
	for (size_t i = 0; i < result->count; i++)
		if (call->holders[i].token == result->token &&
			!lease_is_removed(call->holders[i].change) &&
			call->holders[i].life != LEASE_PINNED)
			lease_trie_note(call->rel, bucket, call->holders[i].deadline_us,
							call->request.owner);
}

/*
 * Write what the core decided, and tell the bucket's summary.  False when there
 * is no room: see lease_rows_write().
 */
bool
lease_call_write(LeaseCall *call, Buffer bucket, const lease_result *result)
{
	if (result->changed > 0 && !lease_rows_write(call, bucket, result))
		return false;
	tell_summary(call, bucket, result);
	return true;
}

/*
 * When to look at the waiter behind the head, which has been answered: 0, at
 * once, unless the head now keeps everybody else out until its deadline.
 */
static int64
due_after(const LeaseCall *call, LeaseQueue *queue, const LeaseAnswer *answer)
{
	LeaseWaiter *next = lease_queue_second(queue);
	int64		end_us;

	if (next == NULL)
		return PG_INT64_MAX;
	if (lease_leaves_room(&call->request, answer->outcome, (lease_bytes) {
			next->owner, next->owner_length
		}))
		return 0;
	end_us = lease_end_us(&call->holders[call->count], call->request.delay_us);
	return end_us < PG_INT64_MAX ? end_us :
		call->now_us + LEASE_LOOK_INTERVAL_US;
}

/*
 * Go through the line of the call's name, from its head on.  "call" is given to
 * each waiter in turn; what it was for is lost.
 */
static bool
serve_line(LeaseCall *call, Buffer bucket, bool only_if_due)
{
	Oid			database = call->db->database;
	int			served = 0;
	LeaseQueue *queue = lease_queue_lock(database, call->hash, call->name,
										 LW_EXCLUSIVE);

	if (queue != NULL && !only_if_due)
		lease_queue_wake_watchers(queue);
	else if (queue != NULL && queue->due_us > lease_clock_now(call->db))
		queue = NULL;
	while (queue != NULL)
	{
		LeaseWaiter *head = lease_queue_head(queue);
		LeaseWaiter waiter;
		LeaseAnswer answer;
		lease_result result;
		int64		due_us;
		Latch	   *latch;

		if (head == NULL)
		{
			queue->due_us = PG_INT64_MAX;
			break;
		}

		/* a copy: once it is answered, or leaves, the place may be another's */
		waiter = *head;
		call->request = lease_rows_request(&waiter);
		call->requester = (LeaseRequester) {
			.role = waiter.role,
			.pid = waiter.pid,
			.stamp = waiter.stamp,
			.alone = true,
			.waiter = &waiter,
		};
		call->lsn = InvalidXLogRecPtr;
		queue = lease_rows_gather(call, bucket, queue, LW_EXCLUSIVE);
		head = queue == NULL ? NULL : lease_queue_head(queue);
		if (head == NULL || head->serial != waiter.serial)
			continue;
		result = lease_call_decide(call, bucket, &answer);
		if (answer.outcome == LEASE_BUSY)
		{
			lease_queue_set_due(queue, answer.retry_us,
								call->now_us + LEASE_LOOK_INTERVAL_US);
			break;
		}
		if (result.changed > 0 && !lease_rows_write(call, bucket, &result))
		{
			lease_queue_set_due(queue, 0, call->now_us);
			lease_queue_unlock(database, call->hash);
			return false;
		}

		DLOCK_CRASH_POINT("queue: granted, not answered");

		/*
		 * At once, and before the summary: after an error in between it would be
		 * granted again.
		 */
		due_us = due_after(call, queue, &answer);
		served++;
		latch = lease_queue_answer(queue, head, &answer, call->lsn, due_us,
								   due_us == 0 && served < SERVE_MAX ? 0 :
								   call->now_us + LEASE_LOOK_INTERVAL_US);
		lease_queue_unlock(database, call->hash);
		if (latch != NULL)
			SetLatch(latch);
		lease_call_count(call, &answer);
		tell_summary(call, bucket, &result);
		if (due_us > 0 || served == SERVE_MAX)
			return true;
		queue = lease_queue_lock(database, call->hash, call->name,
								 LW_EXCLUSIVE);
	}
	lease_queue_unlock(database, call->hash);
	return true;
}

/*
 * Answer the waiters of the call's name that can be answered: the head, and
 * those behind it that can be granted together with it.  The bucket is locked
 * exclusively.  "only_if_due": do nothing unless the queue is due.  The rows that
 * the call has gathered are forgotten.
 *
 * False if room is missing for the head's row: the head is awake then, and
 * makes the room itself.  A caller that wants the name unlocks all other
 * buckets, makes "missing_room", and starts over.  A caller that has ended a hold
 * does no more: making room may fail, on a full disk, and that is not its concern.
 */
bool
lease_call_serve(LeaseCall *call, Buffer bucket, bool only_if_due)
{
	lease_request request;
	LeaseRequester requester;
	XLogRecPtr	lsn;
	bool		had_room;

	if (!lease_queue_is_used(call->db->database, call->hash))
		return true;
	request = call->request;
	requester = call->requester;
	lsn = call->lsn;
	had_room = serve_line(call, bucket, only_if_due);
	call->request = request;
	call->requester = requester;
	call->lsn = lsn;
	return had_room;
}

/*
 * Serve the queue of the call's name, whose bucket is not locked.  With
 * "make_room", makes the room that is missing, else leaves that to the head.
 */
void
lease_call_serve_queue(LeaseCall *call, bool make_room)
{
	for (;;)
	{
		Buffer		bucket = lease_trie_lock(call->rel, call->hash,
											 BUFFER_LOCK_EXCLUSIVE);

		if (lease_call_serve(call, bucket, false) || !make_room)
		{
			UnlockReleaseBuffer(bucket);
			return;
		}
		lease_trie_make_room(call->rel, bucket, call->hash,
							 call->missing_room);
		CHECK_FOR_INTERRUPTS();
	}
}

/* ----------------------------------------------------------------
 * Attempts
 * ----------------------------------------------------------------
 */

/* Move entries to have room for a row, if that helps; unlocks the bucket. */
static Attempt
find_room(LeaseCall *call, Buffer bucket)
{
	bool		found = lease_trie_compact(call->rel, bucket, call->hash,
										   call->missing_room);

	UnlockReleaseBuffer(bucket);
	return found ? ATTEMPT_AGAIN : ATTEMPT_STUCK;
}

/*
 * One attempt at a request on one name.  An acquire that may wait and finds the
 * name taken joins the queue.
 */
static Attempt
try_apply(LeaseCall *call, LeaseAnswer *answer, bool may_wait)
{
	Oid			database = call->db->database;
	bool		acquire = call->request.op == LEASE_ACQUIRE;
	Buffer		bucket = lease_trie_lock(call->rel, call->hash,
										 BUFFER_LOCK_EXCLUSIVE);
	Attempt		attempt = ATTEMPT_ANSWERED;
	lease_result result;

	if (acquire && !lease_call_serve(call, bucket, true))
		return find_room(call, bucket);
	if (!lease_call_gather(call, bucket))
	{
		UnlockReleaseBuffer(bucket);
		return ATTEMPT_STUCK;
	}
	result = lease_call_decide(call, bucket, answer);

	/* If we fail before we have served the queue, it is due. */
	if (!acquire && result.changed > 0 &&
		lease_queue_is_used(database, call->hash))
		lease_queue_make_due(database, call->hash, call->name);
	if (!lease_call_write(call, bucket, &result))
		return find_room(call, bucket);
	if (acquire && lease_is_granted(answer->outcome))
		lease_waiter_leave_name(call->hash, call->name);
	if (may_wait && answer->outcome == LEASE_BUSY)
	{
		LeaseWaiter *waiter = lease_waiter_begin(call->db, &call->requester,
												 &call->request,
												 LEASE_WAIT_IN_LINE, false);

		if (call->requester.acts_for != NIL)
			waiter->acts_for = linitial_oid(call->requester.acts_for);
		DLOCK_CRASH_POINT("queue: about to join");

		/* if the obstacle has gone since, we look again at once */
		(void) lease_queue_join(waiter, database, call->hash, call->name,
								answer->retry_us, call->pokes);
		attempt = ATTEMPT_JOINED;
	}
	if (!acquire && result.changed > 0)
		(void) lease_call_serve(call, bucket, false);
	UnlockReleaseBuffer(bucket);
	return attempt;
}

/* Attempt until there is an answer, or we have joined the queue: true. */
bool
lease_call_attempt(LeaseCall *call, LeaseAnswer *answer, bool may_wait)
{
	Attempt		attempt;

	while ((attempt = try_apply(call, answer, may_wait)) < ATTEMPT_ANSWERED)
		if (attempt == ATTEMPT_STUCK)
			lease_call_prepare(call);
	return attempt == ATTEMPT_JOINED;
}

/*
 * The same, without joining.  False: there is no answer before
 * lease_call_prepare(), which may fail, or take long.
 */
bool
lease_call_attempt_once(LeaseCall *call, LeaseAnswer *answer)
{
	Attempt		attempt;

	while ((attempt = try_apply(call, answer, false)) == ATTEMPT_AGAIN)
		;
	/* it may have been decided, but it was not written */
	if (attempt != ATTEMPT_ANSWERED)
		answer->outcome = LEASE_BUSY;
	return attempt == ATTEMPT_ANSWERED;
}

/* Add the page that is missing, or ask the catalogs about a role. */
void
lease_call_prepare(LeaseCall *call)
{
	if (OidIsValid(call->unknown_role))
		lease_rows_resolve_role(call);
	else
		lease_trie_make_room(call->rel,
							 lease_trie_lock(call->rel, call->hash,
											 BUFFER_LOCK_EXCLUSIVE),
							 call->hash, call->missing_room);
	lease_rows_report_expired(call);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Give back holds, or end what a session or transaction that ends has taken.
 * "role" is the lease's role.  The table is open; the answer need not be
 * durable.  Never waits.
 */
void
lease_call_give_back(Relation rel, lease_bytes name, Oid role,
						const lease_request *request)
{
	LeaseDatabase *db = lease_activate_at_once(rel);
	LeaseCall	call;
	LeaseAnswer answer;

	/*
	 * A new table, and the lease is gone with the one that it was taken in; or
	 * a new file, and what has ended with its session or transaction is left
	 * to the worker.
	 */
	if (db == NULL)
		return;
	lease_rows_init(&call, rel, db, request);
	call.requester.role = role;
	call.requester.alone = true;
	lease_call_set_name(&call, name);
	(void) lease_call_attempt(&call, &answer, false);
	lease_call_count(&call, &answer);
	lease_rows_end(&call);
	lease_wal_flush_later(call.lsn);
}

/*
 * Give back what a role's acquire was granted and its caller will not learn of.
 * "rel" may be NULL; then nothing is done if somebody has locked the table, since
 * a call that was cancelled cannot wait for that, and the hold stays until its
 * deadline.  It also stays if a call has repeated its request id meanwhile: that
 * call was answered with the hold.  The row says so.
 */
void
lease_call_undo(Relation rel, lease_bytes name, Oid role,
				   const lease_request *request, const LeaseAnswer *answer)
{
	lease_request release = {
		.op = LEASE_RELEASE,
		.owner = request->owner,
		.token = answer->token,
		.holds = lease_holds_added(request, answer->outcome),
		.unless_repeated = request->request.length > 0,
	};
	Relation	opened = NULL;

	if (release.holds == 0)
		return;
	HOLD_INTERRUPTS();
	if (rel == NULL)
		rel = opened = lease_relation_open_at_exit();
	if (rel != NULL)
		lease_call_give_back(rel, name, OidIsValid(answer->role) ?
								answer->role : role, &release);
	if (opened != NULL)
		relation_close(opened, RowExclusiveLock);
	RESUME_INTERRUPTS();
}

/* ----------------------------------------------------------------
 * Waiting in line, and the answer
 * ----------------------------------------------------------------
 */

/* Serve the queue of a name that has a waiter, if its table is still there. */
static void
serve_name(lease_bytes name, uint32 hash)
{
	lease_request request = {.op = LEASE_REAP};
	LeaseCall	call;

	lease_call_begin(&call, name, &request);
	lease_call_check_table(&call, hash);
	HOLD_CANCEL_INTERRUPTS();	/* it may be granted what it waits for */
	lease_call_serve_queue(&call, true);
	lease_call_end(&call);
	RESUME_CANCEL_INTERRUPTS();
}

/* Sleep in the queue until something ends that. */
static LeaseSleepEnd
sleep_in_line(const LeaseCall *call, LeaseWaitTime *time)
{
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
			serve_name(call->name, call->hash);
			end = LEASE_SLEEP_ENDED;
			continue;
		}
		end = lease_wait_sleep(call->db, time,
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
	lease_deadlock_check(call->db);
	end = sleep_in_line(call, &time);
	lease_wait_stop(&time);
	if (end == LEASE_SLEEP_ANSWERED || lease_waiter_leave())
	{
		/* seen under the partition's lock, so nobody else changes it any more */
		*answer = lease_waiter_mine()->answer;
		*lsn = lease_waiter_mine()->lsn;
	}
	else
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
		lease_call_undo(NULL, call->name, call->requester.role,
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
	lease_call_begin(&call, name, request);
	waited = lease_call_attempt(&call, &answer, wait_us != 0);
	relation_close(call.rel, RowExclusiveLock);
	if (waited)
		wait_in_line(&call, wait_us, &answer, &lsn);
	else
	{
		/* the backend that serves a waiter counts its grant */
		lease_call_count(&call, &answer);
		lsn = call.lsn;
	}
	lease_call_make_durable(request->op, lsn);
	lease_rows_end(&call);
	if (waited)
	{
		lease_wait_check_client();
		lease_snapshot_take_back();
	}
	if (lease_is_granted(answer.outcome) && lease_wait_must_end())
	{
		lease_call_undo(NULL, name, call.requester.role, request, &answer);
		lease_wait_raise();
	}
	return answer;
}
