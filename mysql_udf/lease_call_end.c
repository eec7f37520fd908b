/*
 * lease_call_end.c
 *	  How a call ends: answered, put off, put back, failed, or given up.
 *
 * All of this is with the engine's mutex held.  Only the batcher does it, except that a
 * caller may give its call up, and return a grant that it will not learn of.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_call_end.h"

#include "lease_lists.h"
#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_owed.h"
#include "lease_pace.h"
#include "lease_replays.h"
#include "lease_server.h"
#include "lease_session.h"
#include "lease_settings.h"
#include "lease_stats.h"
#include "lease_tenure.h"
#include "udf_text.h"

/* Tell a call that the table failed. */
void
lease_call_fail_by_table(lease_call *call)
{
	const connection *c = lease_server_connection();

	lease_call_fail(call, c->sqlstate, "%s", c->error);
	lease_call_finish(call);
}

/* Tell a call that there is no memory for it. */
void
lease_call_fail_by_memory(lease_call *call)
{
	lease_call_fail(call, "53200", "out of memory");
	lease_call_finish(call);
}

/* The engine is done with a call. */
void
lease_call_finish(lease_call *call)
{
	lease_waiter_leave(call);
	lease_list_done(call);
	lease_owe_nothing(call);
	lease_call_unref(call);
}

/* Answer a call that needs no commit. */
void
lease_call_answer_now(lease_call *call)
{
	lease_call_answer(call);
	lease_call_finish(call);
}

/* ----------------------------------------------------------------
 * Given up by its caller
 * ----------------------------------------------------------------
 */

/*
 * Take a call back from wherever it is, before it is answered.  False if the
 * batcher is at it.
 */
bool
lease_call_withdraw(lease_call *call)
{
	switch (call->place)
	{
		case LEASE_PLACE_LIST:
			break;
		case LEASE_PLACE_LINE:
			lease_wake();
			break;
		case LEASE_PLACE_BATCH:
			return false;
		case LEASE_PLACE_NONE:
			return true;
	}
	lease_waiter_leave(call);
	lease_list_done(call);
	/* the engine's reference, which is not the last */
	atomic_fetch_sub(&call->references, 1);
	return true;
}

/* The message of a call that was given up, with the SQLSTATE LEASE_GIVEN_UP. */
const char *
lease_given_up(bool gone)
{
	return gone ? "canceled because the client is gone" :
		"canceled while waiting for a lease";
}

/*
 * Give a call up, with an error, for instance because its statement was killed or its
 * client is gone.
 */
void
lease_call_give_up(lease_call *call, const char *sqlstate, const char *message)
{
	if (call->answered)
		return;
	if (!lease_call_withdraw(call))
		call->abandoned = true;
	lease_call_fail(call, sqlstate, "%s", message);
}

/* ----------------------------------------------------------------
 * Put off, or put back
 * ----------------------------------------------------------------
 */

/* When a call that cannot be made is given up. */
static int64_t
give_up_us(const lease_call *call)
{
	int64_t		us = call->start_us + settings->lock_timeout_us;

	if (call->wait_us < 0)
		return INT64_MAX;
	return call->wait_us > 0 && call->end_us > us ? call->end_us : us;
}

/* Try a call again later, when the transaction that is in the way may have ended. */
void
lease_call_stall(lease_call *call, int64_t pause_us)
{
	int64_t		now_us = lease_now();
	char		shown[DLOCK_SHOWN_SIZE];

	if (call->abandoned)
	{
		lease_call_finish(call);
		return;
	}
	if (now_us >= give_up_us(call))
	{
		if (call->nnames == 0)
			lease_call_fail(call, "55P03",
							"could not write what was given back: the lock table is locked");
		else
			lease_call_fail(call, "55P03",
							"could not change the lease on \"%s\": a transaction has locked it",
							dlock_show(shown, call->names[call->waits_for]));
		lease_call_finish(call);
		return;
	}
	lease_list_stalled(call, now_us + pause_us);
}

/* Put off a release that was answered. */
void
lease_call_defer(lease_call *call, int64_t until_us)
{
	lease_owe(call);
	lease_list_deferred(call, until_us);
}

/* Put a call back where it came from, to be made again. */
void
lease_call_put_back(lease_call *call)
{
	if (call->from_line)
	{
		call->from_line = false;
		if (!lease_waiter_join(call))
		{
			lease_call_fail_by_memory(call);
			return;
		}
		lease_calls_push(&call->queue->line, call);
		lease_queue_look_at(call->queue, 0);
	}
	else
		lease_list_incoming_first(call);
}

/* Have holds released that a call was granted and its caller will not learn of. */
static void
give_back(const lease_call *call, lease_bytes name, uint64_t token,
		  uint32_t holds)
{
	lease_call *undo = lease_call_create_own(LEASE_RELEASE, token,
											 call->request.owner, name,
											 &call->caller);

	if (undo == NULL)
		return;					/* the lease stays for its time to live */
	undo->internal = LEASE_INTERNAL_GIVE_BACK;
	undo->request.holds = holds;
	lease_call_copy(&undo->request.request, undo->request_id,
					call->request.request);
	lease_replays_note(undo);

	/*
	 * Before what its caller may have asked for since.  A retry that is being made
	 * already finds the hold, though, and keeps it: was_found_again().
	 */
	lease_list_incoming_first(undo);
}

/*
 * The same for all that a call was granted.  If nobody knows whether that was
 * committed, a hold that was added to others stays: otherwise, if the commit
 * failed, one of the others would be given back.
 */
static void
give_back_grants(const lease_call *call, bool committed)
{
	bool		several = lease_call_is_of_several(call);

	if (!several && !lease_call_is_acquire(call))
		return;
	if (committed && lease_replays_have(call))
		return;					/* a retry with its request id has it */

	for (size_t i = 0; i < call->nnames; i++)
	{
		lease_outcome outcome = lease_call_outcome(call, i);
		uint32_t	holds = lease_holds_added(&call->request, outcome);

		if (holds > 0 && (outcome == LEASE_GRANTED || committed))
			give_back(call, call->names[i], several ?
					  call->answer.tokens[i] : call->answer.token, holds);
	}
}

/*
 * Give back what an answered call was granted.  The caller does this if its statement was
 * killed or its client is gone, and then wakes the batcher.
 */
void
lease_call_return(lease_call *call)
{
	lease_replays_forget(call);
	give_back_grants(call, true);
}

/* Say whether a call waits until there is room in the table again. */
static bool
waits_for_room(const lease_call *call)
{
	return lease_server_connection()->is_full && call->kind == DLOCK_CALL_APPLY_ALL;
}

/*
 * Say whether a call is made again however late it is: it came too early, or met an image
 * that is no longer valid; or it waits in line, and times out there.
 */
static bool
is_made_again(const lease_call *call, lease_status status)
{
	return status == LEASE_STATUS_EARLY || status == LEASE_STATUS_FENCED ||
		(status != LEASE_STATUS_FAILED && call->from_line);
}

/* The table could not be read or written: what becomes of a call. */
void
lease_call_after_failure(lease_call *call, const lease_failure *failure)
{
	lease_status status = failure->status;
	bool		in_commit = failure->in_commit;
	int64_t		now_us = lease_now();

	if (call->abandoned)
	{
		/* the lost commit may have granted it something */
		if (in_commit && status == LEASE_STATUS_LOST)
			give_back_grants(call, false);
		lease_call_finish(call);
	}
	else if (call->answered)
	{
		call->may_be_written |= in_commit && status == LEASE_STATUS_LOST;
		if (call->internal == LEASE_INTERNAL_KEEP &&
			(status == LEASE_STATUS_CONFLICT ||
			 status == LEASE_STATUS_FENCED || status == LEASE_STATUS_EARLY))
			lease_session_unwritten(call);
		if (call->internal == LEASE_INTERNAL_KEEP ||
			call->internal == LEASE_INTERNAL_REAP)
			lease_call_finish(call);
		else
		{
			/* before what was answered since */
			lease_owe(call);
			lease_list_deferred_first(call, now_us + lease_pause_of(status));
		}
	}
	else if (status == LEASE_STATUS_LOST && in_commit)
	{
		lease_call_fail(call, "08007",
						"the connection to the lock table was lost; the lease may have been changed; retry with the same request id, or release");
		lease_call_finish(call);
	}
	else if (failure->is_shut && call->internal == LEASE_INTERNAL_NONE &&
			 call->kind != DLOCK_CALL_APPLY_ALL && call->kind != DLOCK_CALL_WAIT)
	{
		/* that session may be waiting for the very statement that has called us */
		lease_call_fail(call, "55P03",
						"could not write the lease: the server or dlock's tables are locked against writing");
		lease_call_finish(call);
	}
	else if (!is_made_again(call, status) &&
			 (now_us >= give_up_us(call) ||
			  (status == LEASE_STATUS_FAILED && !waits_for_room(call))))
		lease_call_fail_by_table(call);
	else if (!is_made_again(call, status) &&
			 (status == LEASE_STATUS_FAILED || failure->is_alone))
		lease_call_stall(call, LEASE_CULPRIT_PAUSE_US);
	else
		lease_call_put_back(call);
}

/* Tell the waiters for a name that the table failed. */
void
lease_call_fail_waiters(lease_bytes name)
{
	lease_queue *queue;

	while ((queue = lease_queue_find(name)) != NULL)
	{
		lease_call *call = queue->line.head != NULL ?
			queue->line.head : queue->watchers.head;

		if (call->stands_for != NULL)
			call = call->stands_for;
		lease_call_fail_by_table(call);
	}
}

/* Fail the calls that are to be made: all, or those whose time has run out. */
static void
fail_unmade(bool all, void (*fail) (lease_call *call))
{
	const lease_calls *const unmade[] = {&lists->incoming, &lists->stalled};
	lease_call *next;

	for (size_t i = 0; i < sizeof(unmade) / sizeof(unmade[0]); i++)
		for (lease_call *call = unmade[i]->head; call != NULL; call = next)
		{
			next = call->next;
			if (!call->answered && (all || lease_now() >= give_up_us(call)))
				fail(call);
		}
}

/*
 * After a look at the server that failed: fail the calls whose time has run out.  A look
 * at a member of a group that has lost the others may take all of CONNECTION_TIMEOUT,
 * each time.
 */
void
lease_call_fail_late(void)
{
	fail_unmade(false, lease_call_fail_by_table);
}

/* Memory is too short to make any call: fail all. */
void
lease_call_fail_all_by_memory(void)
{
	fail_unmade(true, lease_call_fail_by_memory);
}

/*
 * Say whether a call has waited, has left the queue because the name came free, and is
 * not answered yet: what it is granted is to be committed, or it is to be made again from
 * the beginning.  Until then it counts as a waiter.
 */
static bool
is_served(const lease_call *call)
{
	return call->waiting_since_us != 0 && !call->answered &&
		!call->abandoned && !lease_waiter_has_places(call);
}

/*
 * Visit each of them with each of its names, without a position, unless "visit" is NULL.
 * Returns how many calls these are.
 */
size_t
lease_calls_visit_served(lease_waiters_visitor *visit, void *context)
{
	const lease_calls *const all[] = {
		&lists->incoming, &lists->stalled, &lists->taken, &lists->at_commit
	};
	size_t		count = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		for (const lease_call *call = all[i]->head; call != NULL;
			 call = call->next)
		{
			bool		any = call->kind == DLOCK_CALL_ACQUIRE_ANY;

			if (!is_served(call))
				continue;
			count++;
			for (size_t n = any ? 0 : call->waits_for; visit != NULL &&
				 n <= (any ? call->nnames - 1 : call->waits_for); n++)
				visit(call, call->names[n], 0, context);
		}
	return count;
}

/* A grant was committed: count it, and note a session's lease; or give it back. */
static void
note_grant(lease_call *call)
{
	lease_calls calls = {0};

	for (size_t i = 0; i < call->nnames; i++)
		if (lease_call_outcome(call, i) == LEASE_GRANTED)
			lease_count(LEASE_COUNT_acquired, 1);
		else if (lease_is_granted(lease_call_outcome(call, i)))
			lease_count(LEASE_COUNT_reentered, 1);
	if (call->abandoned)
	{
		give_back_grants(call, true);
		return;
	}
	if (call->request.kind == LEASE_SESSION &&
		!lease_session_add(call, &calls))
	{
		give_back_grants(call, true);
		lease_call_fail(call, "53200", "out of memory");
	}
	lease_pace_submit_all(&calls);
}

/* Count the names for which a call has renewed a lease, and those for which not. */
void
lease_count_renewals(const lease_call *call)
{
	uint64_t	renewed = 0;

	for (size_t i = 0; i < call->nnames; i++)
		renewed += call->answer.done[i];
	lease_count(LEASE_COUNT_renewed, renewed);
	lease_count(LEASE_COUNT_renewals_lost, call->nnames - renewed);
}

/* Answer a call whose change has been committed. */
void
lease_call_answer_committed(lease_call *call)
{
	if (call->internal == LEASE_INTERNAL_NONE)
		switch (call->kind)
		{
			case DLOCK_CALL_APPLY:
				if (call->request.op == LEASE_ACQUIRE)
					note_grant(call);
				else if (call->request.op == LEASE_RENEW)
					lease_count(LEASE_COUNT_renewed, 1);
				else
					lease_count(LEASE_COUNT_forced, call->answer.count);
				break;
			case DLOCK_CALL_ACQUIRE_ALL:
			case DLOCK_CALL_ACQUIRE_ANY:
				note_grant(call);
				break;
			case DLOCK_CALL_APPLY_EACH:
				lease_count_renewals(call);
				break;
			case DLOCK_CALL_APPLY_ALL:
				call->answer.count += call->changed;
				lease_count(call->request.op == LEASE_RENEW ?
							LEASE_COUNT_renewed : LEASE_COUNT_released,
							call->changed);
				call->waits_for += call->slice;
				if (call->waits_for < call->nnames && !call->abandoned)
				{
					/* behind the calls that have come meanwhile */
					lease_list_incoming(call);
					return;
				}
				break;
			case DLOCK_CALL_WAIT:
			case DLOCK_CALL_READ:
			case DLOCK_CALL_BEGIN_GUARD:
			case DLOCK_CALL_CHECK_GUARD:
				break;
		}
	lease_call_answer_now(call);
}
