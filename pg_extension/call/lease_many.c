/*
 * lease_many.c
 *	  One request on many names, one after another: claim, renew, release.
 *
 * A worker that takes jobs from a list wants any of them, as many as it can
 * have, and not all or none (lease_all.c).  So this goes through the names in
 * the caller's order, with one bucket locked at a time, each as in a call of
 * its own.  They share only the opening of the table and, at the end, one
 * flush.
 *
 * A claim that may wait goes through the names once.  If all are taken, it
 * joins the watchers of every name, and goes through them again each time a
 * hold on one of them ends or a deadline comes, until it has one.  It joins
 * before it looks, so no end of a hold escapes it.  A watcher is in nobody's
 * way: the call has no place in any line, and skips names for which others
 * stand in line.
 *
 * An error gives back what a claim has taken.  From the first name that it takes
 * until it answers, a claim keeps interrupts away, and looks itself for one that
 * is to end it, after which it gives back and lets the interrupt go
 * (lease_request.c).  It also gives back, and starts over, before it makes room
 * or asks the catalogs: the one may fail, on a full disk, the other take long.
 * Only a page that cannot be read leaves, until their deadlines, the names that
 * were taken before.
 *
 * What a renewal or a release has done before an error stays done.  A crash
 * leaves each name as after a call of its own that was not answered.
 *
 * Lock order: a bucket, then its partition, as for any request.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "call/lease_call.h"
#include "lease_crash.h"
#include "miscadmin.h"

/* A claim, over all its rounds. */
typedef struct Claim
{
	const lease_bytes *names;
	int			count;
	int			wanted;
	LeaseCall	call;
	LeaseAnswer *answers;		/* of each name, this round */
	int			taken;
	int			failed;			/* the name with misuse; -1: none */
	int64		retry_us;		/* when time next frees a name */
} Claim;

/* Begin a round: nothing is taken. */
static void
begin_round(Claim *claim)
{
	for (int i = 0; i < claim->count; i++)
		claim->answers[i] = (LeaseAnswer) {.outcome = LEASE_BUSY};
	claim->taken = 0;
	claim->failed = -1;
	claim->retry_us = PG_INT64_MAX;
}

/* Give back what was taken, and handle interrupts again. */
static void
give_back_claim(Claim *claim)
{
	LeaseCall  *call = &claim->call;

	if (claim->taken == 0)
		return;
	DLOCK_CRASH_POINT("many: about to give back");
	for (int i = 0; i < claim->count; i++)
		lease_attempt_undo(call->rel, claim->names[i], call->requester.role,
						   &call->request, &claim->answers[i]);
	claim->taken = 0;
	RESUME_INTERRUPTS();
}

/* If an interrupt is to end the call, give back, and let it. */
static void
look_for_interrupts(Claim *claim)
{
	if (lease_wait_must_end())
	{
		give_back_claim(claim);
		lease_wait_raise();
	}
}

/*
 * Take the names that are free, in their order, until there are enough; or only
 * those that were taken under this request id before.  False: start over,
 * nothing is taken.
 */
static bool
claim_names(Claim *claim, bool only_repeated)
{
	LeaseCall  *call = &claim->call;

	call->request.only_repeated = only_repeated;
	for (int i = 0; i < claim->count && claim->taken < claim->wanted; i++)
	{
		LeaseAnswer *answer = &claim->answers[i];

		if (lease_is_granted(answer->outcome))
			continue;
		look_for_interrupts(claim);
		CHECK_FOR_INTERRUPTS();
		lease_store_set_name(call, claim->names[i]);
		while (!lease_attempt_once(call, answer))
		{
			if (claim->taken == 0)
			{
				lease_attempt_prepare(call);
				continue;
			}
			give_back_claim(claim);
			/* what has come free is for the names before this one */
			call->missing_room = LEASE_PAGE_MORE;
			lease_attempt_prepare(call);
			return false;
		}
		if (lease_is_granted(answer->outcome))
		{
			if (claim->taken++ == 0)
				HOLD_INTERRUPTS();
			lease_store_count(call, answer);
			DLOCK_CRASH_POINT("many: name taken");
		}
		else if (answer->outcome == LEASE_BUSY)
			claim->retry_us = Min(claim->retry_us, answer->retry_us);
		else
		{
			claim->failed = i;
			break;
		}
		lease_rows_report_expired(call);
	}
	return true;
}

/* The same of all names, twice if need be. */
static bool
claim_all(Claim *claim)
{
	/* a repeated call answers the same, whatever has come free meanwhile */
	if (claim->call.request.request.length > 0 && !claim_names(claim, true))
		return false;
	return claim->failed >= 0 || claim_names(claim, false);
}

/*
 * Take one round through the names, and make durable what was taken; true: it was
 * the last.  A client may have died while the call waited.  An error that ends
 * the wait for a synchronous standby leaves the leases: that standby may have
 * them.
 */
static bool
take_round(Claim *claim, bool waited)
{
	do
		begin_round(claim);
	while (!claim_all(claim));
	if (claim->failed >= 0)
	{
		give_back_claim(claim);
		return true;
	}
	if (claim->taken == 0)
		return false;
	lease_waiter_finish();
	DLOCK_CRASH_POINT("many: not flushed");
	lease_wal_flush(claim->call.lsn);
	if (waited)
		lease_wait_check_client();
	look_for_interrupts(claim);
	RESUME_INTERRUPTS();
	return true;
}

/*
 * Join the watchers of all names; the table is open.  There are no more than
 * LEASE_WAITER_PLACES_MAX.
 */
static void
watch_all(Claim *claim, const LeaseWaitTime *time)
{
	LeaseCall  *call = &claim->call;

	for (int i = 0; i < claim->count; i++)
	{
		LeaseWaiter *waiter;
		Buffer		bucket;

		lease_store_set_name(call, claim->names[i]);
		waiter = i == 0 ?
			lease_waiter_begin(call->db, call->name, &call->requester,
							   &call->request, LEASE_WAIT_ANY) :
			lease_waiter_add(call->db, &call->requester, &call->request,
							 LEASE_WAIT_ANY);
		waiter->since = time->start_time;
		waiter->places = claim->count;
		bucket = lease_trie_lock(call->rel, call->hash, BUFFER_LOCK_SHARE);
		/* it looks after it has joined */
		(void) lease_queue_join(waiter, call->db->database, call->hash,
								call->name, 0, 0);
		UnlockReleaseBuffer(bucket);
	}
}

/*
 * Claim up to "wanted" of the names for one owner: their tokens in the caller's
 * order, 0 for those not claimed.  The answer is LEASE_GRANTED; LEASE_BUSY if
 * none was free; or that of a name whose request was misuse, with its place in
 * *failed: then nothing is taken.  Waits like lease_request_apply(), until it
 * has one.
 */
LeaseAnswer
lease_many_claim(const lease_bytes *names, int count,
				 const lease_request *request, int wanted, int64 wait_us,
				 uint64 *tokens, int *failed)
{
	Claim		claim = {.names = names, .count = count, .wanted = wanted};
	LeaseAnswer answer = {.outcome = LEASE_BUSY};
	LeaseWaitTime time;
	LeaseDatabase *db;
	uint32		hash = 0;
	bool		waited = false;
	bool		watching = false;
	bool		over;

	claim.answers = palloc(count * sizeof(LeaseAnswer));
	lease_wait_start(&time, wait_us);
	if (wait_us != 0)
		lease_session_watch();
	for (;; waited = true)
	{
		bool		joins = waited && !watching;

		lease_store_begin(&claim.call, names[0], request);
		db = claim.call.db;
		if (joins)
		{
			hash = claim.call.hash;
			watch_all(&claim, &time);
			watching = true;
		}
		else if (watching)
			lease_store_check_table(&claim.call, hash);
		over = take_round(&claim, waited);
		lease_store_end(&claim.call);
		if (over || wait_us == 0 || lease_wait_is_over(&time))
			break;
		if (!watching)
			continue;
		if (joins)
			lease_wait_check_deadlock(db);
		lease_wait_watch(db, &time, claim.retry_us);
	}
	lease_waiter_finish();
	if (waited)
		lease_count_wait(db, lease_clock_boot() - time.start_us);
	lease_wait_stop(&time);

	if (claim.failed >= 0)
	{
		*failed = claim.failed;
		return claim.answers[claim.failed];
	}
	if (claim.taken == 0)
		lease_count(db, wait_us == 0 ? LEASE_COUNT_REFUSED :
					LEASE_COUNT_TIMED_OUT, 1);
	else
		answer.outcome = LEASE_GRANTED;
	for (int i = 0; i < count; i++)
		tokens[i] = lease_is_granted(claim.answers[i].outcome) ?
			claim.answers[i].token : 0;
	return answer;
}

/*
 * Renew or release the leases of one owner on the names: "done" says for which
 * names it worked.  "tokens", unless NULL, are those to match, 0 for any.
 */
void
lease_many_change(const lease_bytes *names, int count,
				  const lease_request *request, const uint64 *tokens,
				  bool *done)
{
	LeaseCall	call;

	lease_store_begin(&call, names[0], request);
	for (int i = 0; i < count; i++)
	{
		LeaseAnswer answer;

		CHECK_FOR_INTERRUPTS();
		lease_store_set_name(&call, names[i]);
		call.request.token = tokens == NULL ? 0 : tokens[i];
		(void) lease_attempt(&call, &answer, false);
		lease_store_count(&call, &answer);
		if (answer.gone)
			lease_session_gave(names[i], request->owner, answer.role,
							   answer.token);
		done[i] = answer.outcome == LEASE_RENEWED ||
			answer.outcome == LEASE_RELEASED;
		lease_rows_report_expired(&call);
		DLOCK_CRASH_POINT("many: name done");
	}
	lease_store_make_durable(request->op, call.lsn);
	lease_store_end(&call);
}
