/*
 * lease_pace.c
 *	  When the batcher does what: gathering, deferring, lending, pauses.
 *
 * Gathering.  The calls that came during a commit could go into the next one at once.  But
 * then two halves of the callers would take turns, each waiting for the other's commit,
 * too.  A caller that was just answered may well call again soon.  If that takes less than
 * a commit, it is worth waiting for.  So the batcher waits for these callers as long as
 * the commit took.  If not nearly all of them have come by then, the next batches do not
 * wait: the processor is busy, or the callers have something else to do.
 *
 * MySQL's binlog_group_commit_sync_delay and PostgreSQL's commit_delay do the same,
 * with a time that is set.
 *
 * Deferring.  If no other call needs a commit, an answered release is put off for a moment,
 * so that several of them go into one commit.
 *
 * Lending.  Where few call at a time, a caller makes the batch in its own thread: see
 * lease_batch_lend().
 *
 * Pauses.  After a conflict, or an error, nothing is tried for a while.  After a conflict
 * the next batches have one call each, because one of them may be in the way of all
 * others.
 *
 * All of it is with the engine's mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_pace.h"

#include "lease_lists.h"
#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_owed.h"
#include "lease_server.h"
#include "lease_session.h"
#include "lease_tenure.h"
#include "lease_waiters.h"

/* ----------------------------------------------------------------
 * Pauses
 * ----------------------------------------------------------------
 */

/* How long to pause after a conflict, and after an error. */
#define CONFLICT_PAUSE_US	2000
#define ERROR_PAUSE_US		100000

static size_t careful = 0;		/* batches to come that have one call each,
								 * after one that had a conflict */
static int64_t pause_until_us = 0;	/* after a conflict or an error */
static int64_t called_us = 0;	/* when a caller called last */
static bool is_lent = false;	/* a caller makes the batch */
static bool had_company = false;	/* the last batch had more than one call, or
									 * others had come when it ended */

/* How long to pause after a failure. */
int64_t
lease_pause_of(lease_status status)
{
	return status == LEASE_STATUS_FAILED ? ERROR_PAUSE_US :
		CONFLICT_PAUSE_US;
}

/* Until when the batcher pauses. */
int64_t
lease_pause_until_us(void)
{
	return pause_until_us;
}

/* The server could not be read or written: pause, and note what that means. */
void
lease_note_failure(lease_status status)
{
	const connection *c = lease_server_connection();

	pause_until_us = status == LEASE_STATUS_FENCED ? 0 :
		lease_now() + lease_pause_of(status);
	if (status == LEASE_STATUS_LOST)
	{
		lease_note_slow();
		lease_doubt();
	}
	if (status == LEASE_STATUS_FENCED)
		lease_forget();
	if (status == LEASE_STATUS_FAILED && c->is_refusal)
		lease_note_read_only();
	if (status == LEASE_STATUS_FAILED && c->is_missing)
		lease_forget();
}

/* Let so many batches have one call each: one may be in the way of all others. */
void
lease_be_careful(size_t batches)
{
	careful = batches;
}

/* How many calls that were not answered the next batch may have. */
size_t
lease_most_calls(void)
{
	if (careful == 0)
		return LEASE_BATCH_CALLS;
	careful--;
	return 1;
}

/* ----------------------------------------------------------------
 * Gathering
 * ----------------------------------------------------------------
 */

/*
 * How long a batch waits at most for the callers that were just answered.  If they do not
 * come, so many batches do not wait; twice as many the next time, up to the maximum.
 */
#define GATHER_MAX_US	5000
#define GATHER_REST		8
#define GATHER_REST_MAX	512

/* What the next batch waits for. */
static struct
{
	size_t		enough;			/* calls in the list; 0: it does not wait */
	int64_t		until_us;		/* when it waits no longer */
	unsigned	rest;			/* batches to come that do not wait */
	unsigned	next_rest;		/* what "rest" becomes if the callers do not come */
}			gathering = {.next_rest = GATHER_REST};

/*
 * Say whether a call may wait for others to come, so that they share a commit: it is
 * new, and its answer most likely needs one.
 */
static bool
can_gather(const lease_call *call, int64_t until_us)
{
	return call->kind == DLOCK_CALL_APPLY &&
		call->internal == LEASE_INTERNAL_NONE && !call->answered &&
		(call->request.op == LEASE_ACQUIRE || call->request.op == LEASE_RENEW) &&
		call->waiting_since_us == 0 && call->end_us > until_us;
}

/*
 * A batch has been committed, and so many callers were answered: wait for them, at most
 * as long as the commit took.
 */
void
lease_gather_begin(size_t answered, int64_t commit_us)
{
	size_t		came = lists->incoming.count;
	size_t		enough = came + answered - answered / 8;

	if (careful > 0)
		return;
	if (gathering.rest > 0)
	{
		gathering.rest--;
		return;
	}
	gathering.until_us = lease_now() +
		lease_earlier(commit_us, GATHER_MAX_US);
	for (const lease_call *call = lists->incoming.head; call != NULL;
		 call = call->next)
		if (!can_gather(call, gathering.until_us))
			return;
	if (enough > LEASE_BATCH_CALLS)
		enough = LEASE_BATCH_CALLS;
	/* not if no caller would come, or only one */
	gathering.enough = enough > came && enough > 1 ? enough : 0;
}

/*
 * A batch begins: note whether the callers have come for which it waited.  Gathering is
 * off until it ends, so that no call that the batch itself puts into the list waits.
 */
void
lease_gather_end(int64_t now_us)
{
	const lease_call *first = lists->incoming.head;

	if (gathering.enough == 0)
		return;
	if (lists->incoming.count >= gathering.enough)
	{
		if (gathering.next_rest > GATHER_REST)
			gathering.next_rest /= 2;
	}
	else if (first != NULL && first->start_us < gathering.until_us &&
			 gathering.until_us <= now_us)
	{
		/* the batch has waited in vain */
		gathering.rest = gathering.next_rest;
		if (gathering.next_rest < GATHER_REST_MAX)
			gathering.next_rest *= 2;
	}
	gathering.enough = 0;
}

/* When the calls that have come are to be made. */
static int64_t
gather_due_us(void)
{
	return lists->incoming.count < gathering.enough ? gathering.until_us : 0;
}

/* ----------------------------------------------------------------
 * Calls that come
 * ----------------------------------------------------------------
 */

/*
 * Hand a call to the batcher, with a reference, and wake the batcher if it would sleep
 * too long; while its work is lent, the borrower does that later.  If this call must not
 * wait for company, the others do not either.
 */
void
lease_pace_submit(lease_call *call)
{
	lease_list_incoming(call);
	if (!can_gather(call, gathering.until_us) &&
		call->start_us < gathering.until_us)
		gathering.until_us = call->start_us;
	if (!is_lent)
		lease_wake_before(gather_due_us());
}

/* The same for all calls of a list. */
void
lease_pace_submit_all(lease_calls *calls)
{
	while (calls->head != NULL)
		lease_pace_submit(calls->head);
}

/* Let the calls that have come not wait for company. */
void
lease_pace_hurry(void)
{
	gathering.until_us = 0;
	if (!is_lent)
		lease_wake_before(0);
}

/* Note that a caller has called. */
void
lease_pace_note_caller(int64_t now_us)
{
	called_us = now_us;
}

/* ----------------------------------------------------------------
 * Deferring
 * ----------------------------------------------------------------
 */

/*
 * How many answered releases may wait for company, and how long; and how long
 * if nobody calls, or in a cluster, where other servers may wait for them.
 */
#define DEFER_MAX		96
#define DEFER_US		20000
#define DEFER_IDLE_US	5000

/* How long an answered release may wait for company. */
int64_t
lease_defer_us(void)
{
	return tenure->clustered ? DEFER_IDLE_US : DEFER_US;
}

/* When a release that was put off is to be tried. */
int64_t
lease_due_us(const lease_call *call)
{
	return !call->unwritten ? call->retry_us :
		lease_earlier(call->retry_us, called_us + DEFER_IDLE_US);
}

/*
 * Say whether releases that were put off are to be written now: because it is
 * time for one of them, or there are many, or a caller waits for that.
 */
bool
lease_must_write(int64_t now_us)
{
	if (lease_owed_unwritten() > DEFER_MAX)
		return true;
	for (const lease_call *call = lists->deferred.head; call != NULL;
		 call = call->next)
		if (call->unwritten && lease_due_us(call) <= now_us)
			return true;
	for (const lease_call *call = lists->incoming.head; call != NULL;
		 call = call->next)
		if (call->internal == LEASE_INTERNAL_SETTLE)
			return true;
	return false;
}

/* ----------------------------------------------------------------
 * What is next
 * ----------------------------------------------------------------
 */

/*
 * Say whether a call can be made although nothing can be granted: it looks, and
 * what it looks at was not given back by a release that is yet to be written.
 */
bool
lease_can_be_early(const lease_call *call)
{
	return call->internal == LEASE_INTERNAL_SETTINGS || (lease_call_is_look(call) &&
		(call->nnames > 0 ?
		 !lease_calls_concern(&lists->deferred, call->names[0]) :
		 lease_owed_unwritten() == 0));
}

/*
 * When the batcher has something to do; the work that no call asks for is due at
 * "unasked_us".
 */
int64_t
lease_next_us(int64_t now_us, int64_t unasked_us)
{
	int64_t		next_us = unasked_us;
	int64_t		queue_us;

	if (lease_is_early(now_us) || lease_is_in_doubt())
	{
		int64_t		end_us = lease_is_in_doubt() ? tenure->ask_lost_us :
			tenure->early_until_us;

		for (const lease_call *call = lists->incoming.head; call != NULL;
			 call = call->next)
			if (lease_can_be_early(call))
				return now_us < pause_until_us ? pause_until_us : now_us;
		return lease_earlier(end_us, next_us);
	}
	if (lists->incoming.head != NULL)
		next_us = lease_earlier(next_us, gather_due_us());
	(void) lease_queue_due(now_us, NULL, 0, &queue_us);
	next_us = lease_earlier(next_us, queue_us);
	next_us = lease_earlier(next_us, lease_session_due_us());
	next_us = lease_earlier(next_us, lease_checkpoint_due_us());

	/* a caller's next release may come soon, and need not wake us then */
	if (called_us + DEFER_IDLE_US > now_us)
		next_us = lease_earlier(next_us, called_us + DEFER_IDLE_US);
	for (const lease_call *call = lists->deferred.head; call != NULL;
		 call = call->next)
		next_us = lease_earlier(next_us, lease_due_us(call));
	for (const lease_call *call = lists->stalled.head; call != NULL;
		 call = call->next)
		next_us = lease_earlier(next_us, call->retry_us);
	return next_us < pause_until_us ? pause_until_us : next_us;
}

/* ----------------------------------------------------------------
 * Lending
 * ----------------------------------------------------------------
 */

/* For how long no work is lent to callers after the server was slow. */
#define LEND_PAUSE_US	2000000

/* A batch has ended: note whether it had company. */
void
lease_pace_note_company(bool company)
{
	had_company = company;
}

/* Say whether the batcher sleeps, has nothing to do, and the server is quick. */
bool
lease_can_lend(int64_t now_us, int64_t unasked_us)
{
	return !is_lent && lease_sleeps_until_us() != 0 && !had_company &&
		lists->incoming.head == NULL && lists->stalled.head == NULL &&
		lease_waiters_count() == 0 && careful == 0 &&
		pause_until_us <= now_us &&
		lease_next_us(now_us, unasked_us) > now_us &&
		(lease_slow_us() == 0 || now_us >= lease_slow_us() + LEND_PAUSE_US);
}

/* A caller makes the batch from now on, or not any more. */
void
lease_pace_lend(bool lent)
{
	is_lent = lent;
}
