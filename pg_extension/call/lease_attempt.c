/*
 * lease_attempt.c
 *	  Attempts at a request on one name.
 *
 * An attempt takes all steps of lease_store.c under the lock of the name's
 * bucket.  It starts over if it had to give up the lock: to make room, or to
 * ask the catalogs.  An acquire that may wait ends with a place in the queue,
 * with which it sleeps (lease_wait.c) once the bucket is unlocked.
 *
 * What was granted to a call that will not answer is given back by a release
 * (lease_attempt_undo).
 *
 * The bucket is the first lock.  After a crash the request was carried out if
 * its one record was logged.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "call/lease_call.h"
#include "lease_crash.h"
#include "miscadmin.h"

/* How an attempt at a request ended. */
typedef enum Attempt
{
	ATTEMPT_AGAIN,				/* start over */
	ATTEMPT_STUCK,				/* the same, after lease_attempt_prepare() */
	ATTEMPT_ANSWERED,
	ATTEMPT_JOINED				/* the waiter stands in line */
} Attempt;

/* The role of a row that a request may act for without being that role. */
static Oid
find_acts_for(LeaseCall *call)
{
	for (int i = 0; i < call->nverdicts; i++)
		if (call->verdicts[i].acts_for)
			return call->verdicts[i].role;
	return InvalidOid;
}

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
	bool		used = lease_queue_is_used(database, call->hash);
	bool		serve = false;
	Attempt		attempt = ATTEMPT_ANSWERED;
	lease_result result;

	if (used && acquire && !lease_store_serve(call, bucket, true))
		return find_room(call, bucket);
	if (!lease_store_gather(call, bucket))
	{
		UnlockReleaseBuffer(bucket);
		return ATTEMPT_STUCK;
	}
	result = lease_store_decide(call, bucket, answer);

	/* If we fail before we have served the queue, it is due. */
	if (used && !acquire && result.changed > 0)
	{
		lease_queue_make_due(database, call->hash, call->name);
		serve = true;
	}
	if (!lease_store_write(call, bucket, &result))
		return find_room(call, bucket);
	if (acquire && lease_is_granted(answer->outcome))
		lease_waiter_leave_name(call->hash, call->name);
	if (may_wait && answer->outcome == LEASE_BUSY)
	{
		LeaseWaiter *waiter = lease_waiter_begin(call->db, call->name,
												 &call->requester,
												 &call->request,
												 LEASE_WAIT_IN_LINE);

		waiter->acts_for = find_acts_for(call);
		DLOCK_CRASH_POINT("queue: about to join");

		/* if the obstacle has gone since, we look again at once */
		(void) lease_queue_join(waiter, database, call->hash, call->name,
								answer->retry_us, call->pokes);
		attempt = ATTEMPT_JOINED;
	}
	if (serve)
		(void) lease_store_serve(call, bucket, false);
	UnlockReleaseBuffer(bucket);
	return attempt;
}

/* Attempt until there is an answer, or we have joined the queue: true. */
bool
lease_attempt(LeaseCall *call, LeaseAnswer *answer, bool may_wait)
{
	Attempt		attempt;

	while ((attempt = try_apply(call, answer, may_wait)) < ATTEMPT_ANSWERED)
		if (attempt == ATTEMPT_STUCK)
			lease_attempt_prepare(call);
	return attempt == ATTEMPT_JOINED;
}

/*
 * The same, without joining.  False: there is no answer before
 * lease_attempt_prepare(), which may fail, or take long.
 */
bool
lease_attempt_once(LeaseCall *call, LeaseAnswer *answer)
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
lease_attempt_prepare(LeaseCall *call)
{
	if (OidIsValid(call->unknown_role))
		lease_rows_resolve_role(call);
	else
		lease_rows_make_room(call, lease_trie_lock(call->rel, call->hash,
												   BUFFER_LOCK_EXCLUSIVE));
	lease_rows_report_expired(call);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Give back holds, or end what a session or transaction that ends has taken.
 * "role" is the lease's role.  The table is open; the answer need not be
 * durable.  Never waits.
 */
void
lease_attempt_give_back(Relation rel, lease_bytes name, Oid role,
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
	lease_store_begin_open(&call, rel, db, request);
	call.requester.role = role;
	call.requester.alone = true;
	lease_store_set_name(&call, name);
	(void) lease_attempt(&call, &answer, false);
	lease_store_count(&call, &answer);
	lease_rows_report_expired(&call);
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
lease_attempt_undo(Relation rel, lease_bytes name, Oid role,
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
		lease_attempt_give_back(rel, name, OidIsValid(answer->role) ?
								answer->role : role, &release);
	if (opened != NULL)
		relation_close(opened, RowExclusiveLock);
	RESUME_INTERRUPTS();
}
