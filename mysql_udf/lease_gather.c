/*
 * lease_gather.c
 *	  Wait for those who were just answered, so that callers share commits.
 *
 * What came during a commit could go into the next one at once, but then two halves
 * of the callers would take turns, each waiting for the other's commit, too.  Who was
 * just answered may well call again soon; if that takes less than a commit, it is
 * worth to wait for it.  So they are waited for as long as the commit took, and if not
 * nearly all of them have come by then, the next batches do not wait: the processor is
 * what is short, or they have something else to do.
 *
 * MySQL's binlog_group_commit_sync_delay and PostgreSQL's commit_delay do the same,
 * with a time that is set.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_batcher.h"

/*
 * How long those who were just answered are waited for at most, and for how many
 * batches not, once they have not come; twice as many the next time, up to the most.
 */
#define GATHER_MAX_US	5000
#define GATHER_REST		8
#define GATHER_REST_MAX	512

/* What the next batch waits for. */
static struct
{
	size_t		enough;			/* calls in the list; 0: it does not wait */
	int64_t		until_us;		/* but no longer than that */
	unsigned	rest;			/* batches to come that do not wait */
	unsigned	next_rest;		/* should they not come */
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
 * A batch has been committed, which took a time, and so many callers were answered:
 * wait for them.  The mutex is held, as for all that is here.
 */
void
lease_gather_begin(size_t answered, int64_t commit_us)
{
	size_t		came = lists->incoming.count;
	size_t		enough = came + answered - answered / 8;

	if (gathering.rest > 0)
	{
		gathering.rest--;
		return;
	}
	gathering.until_us = lease_now() +
		(commit_us < GATHER_MAX_US ? commit_us : GATHER_MAX_US);
	for (const lease_call *call = lists->incoming.head; call != NULL;
		 call = call->next)
		if (!can_gather(call, gathering.until_us))
			return;
	if (enough > LEASE_BATCH_CALLS)
		enough = LEASE_BATCH_CALLS;
	/* unless nobody is to come, or nobody else */
	gathering.enough = enough > came && enough > 1 ? enough : 0;
}

/*
 * A batch begins: have those come who were waited for?  Until its end nobody is, so
 * that whatever it puts into the list does not wait.
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
		/* it has waited in vain */
		gathering.rest = gathering.next_rest;
		if (gathering.next_rest < GATHER_REST_MAX)
			gathering.next_rest *= 2;
	}
	gathering.enough = 0;
}

/* When the calls that have come are to be made. */
int64_t
lease_gather_due_us(void)
{
	return lists->incoming.count < gathering.enough ? gathering.until_us : 0;
}

/*
 * A call has been put into the list: wake the batcher, if it sleeps too long.  If the
 * call is not to wait, nobody is.
 */
void
lease_gather_wake(const lease_call *call)
{
	if (!can_gather(call, gathering.until_us) &&
		call->start_us < gathering.until_us)
		gathering.until_us = call->start_us;
	if (batcher.lent_to == NULL)
		lease_wake_before(lease_gather_due_us());
}
