/*
 * lease_belief.c
 *	  Make calls without reading the table, where that is safe.
 *
 * What this run has written, it knows (lease_cache.c).  While no other server
 * can write the table, an acquire of a name that is believed free is only written
 * to the journal (lease_journal.c) or inserted, and a release of a lease that is
 * known is answered in the caller's own thread, and written with what comes
 * next.  Should the belief be wrong, the write fails, and the next attempt
 * reads.  Who only tries for a lease that is known to be held is refused in his
 * own thread, too.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_batcher.h"

#include <stdlib.h>
#include <string.h>

#include "lease_cache.h"
#include "lease_marks.h"
#include "lease_stats.h"

/* How old the last look at the server may be. */
#define LOOK_MAX_AGE_US	2500000

/*
 * How old may be what a refusal goes by.  No INSERT will check it, and the table
 * may have been replaced.
 */
#define REFUSE_MAX_AGE_US	1000000

/*
 * Say whether nobody else writes the table, as far as is known: a look that
 * hangs tells nothing.
 */
static bool
is_alone(void)
{
	return !batcher.clustered && !engine.read_only &&
		lease_now() < batcher.looked_us + LOOK_MAX_AGE_US;
}

/* Say whether a call can be made without reading its name.  The mutex is held. */
bool
lease_belief_suffices(const lease_call *call)
{
	const lease_cached *cached;

	if (call->internal == LEASE_INTERNAL_SETTLE ||
		call->internal == LEASE_INTERNAL_SETTINGS)
		return true;
	if (call->internal != LEASE_INTERNAL_NONE ||
		call->kind != DLOCK_CALL_APPLY ||
		lease_queue_find(call->names[0]) != NULL)
		return false;
	cached = lease_cache_find(call->names[0]);
	if (call->request.op == LEASE_RELEASE)
		return call->answered && !call->may_be_written && cached != NULL &&
			cached->has_row && cached->released &&
			cached->row.token == call->request.token;
	return call->request.op == LEASE_ACQUIRE &&
		(cached == NULL || cached->released) &&
		lease_marks_are_known(call->names[0]);
}

/* Say whether all calls of a list can be made so. */
static bool
all_suffice(const lease_calls *list)
{
	for (const lease_call *call = list->head; call != NULL; call = call->next)
		if (!lease_belief_suffices(call))
			return false;
	return true;
}

/* Say whether anything is known without reading. */
static bool
knows(void)
{
	return is_alone() && batcher.has_marks &&
		lease_table_is_connected(batcher.table) &&
		lease_table_is_alone(batcher.table) &&
		lease_table_knows_journal(batcher.table);
}

/*
 * Say whether a call can be made, with all that was put off, in its caller's own
 * thread.  The mutex is held, and the batcher sleeps.
 */
bool
lease_belief_is_lendable(const lease_call *call)
{
	return !batcher.must_read && knows() && lease_upkeep_has_settings() &&
		lease_table_can_be_interrupted(batcher.table) &&
		lease_call_is_acquire(call) && lease_belief_suffices(call) &&
		all_suffice(&engine.deferred);
}

/* Say whether the whole batch can be made so.  The mutex is held. */
bool
lease_belief_holds(void)
{
	if (batcher.must_read)
	{
		batcher.must_read = false;
		return false;
	}
	if (!knows())
		return false;
	for (size_t i = 0; i < batch.nnames; i++)
		if (lease_queue_find(batch.bytes[i]) != NULL)
			return false;
	return all_suffice(&batch.calls);
}

/* Take what is believed for what was read. */
void
lease_belief_load(void)
{
	for (size_t i = 0; i < batch.nnames; i++)
	{
		const lease_cached *cached = lease_cache_find(batch.bytes[i]);

		batch.rows[i].count = 0;
		if (cached != NULL && cached->has_row)
			lease_rows_add(&batch.rows[i], &cached->row);
	}
}

/* After a batch: remember what the table holds now.  The mutex is held. */
void
lease_belief_remember(bool committed)
{
	for (size_t i = 0; i < batch.nnames; i++)
	{
		const lease_name *name = batch.names[i];
		const lease_row *row = committed ? lease_name_only_row(name) : NULL;
		lease_cached *cached = lease_cache_find(name->name);

		if (row != NULL && row->writer == engine.writer)
			lease_cache_put(name->name, row);
		else if (committed ? lease_name_has_rows(name) :
				 batch.rows[i].count > 0)
		{
			/* what is cached may be the very row that was read */
			if (committed || cached == NULL || !cached->has_row ||
				name->guarding ||
				batch.rows[i].count != 1 || batch.rows[i].rows[0].locked ||
				batch.rows[i].rows[0].token != cached->row.token ||
				batch.rows[i].rows[0].writes != cached->row.writes)
				lease_cache_put_other(name->name,
									  name->guarding || name->has_locked);
			else if (!batch.believed)
				cached->seen_us = batch.moment.now_us;
		}
		else
			lease_cache_forget(name->name);
	}
}

/* The only lease of a name, if it is known and nothing is under way; else NULL. */
static lease_cached *
known_lease(lease_bytes name)
{
	lease_cached *cached = is_alone() ? lease_cache_find(name) : NULL;

	return cached != NULL && cached->has_row && !cached->released &&
		cached->row.kind == LEASE_PLAIN && lease_queue_find(name) == NULL &&
		lease_batch_find(name) == NULL ? cached : NULL;
}

/*
 * What a request would come to if the lease that is known had been read, and
 * whether that would leave no row.
 */
static lease_outcome
decide(const lease_cached *cached, lease_bytes bytes, lease_request request,
	   const dlock_caller *caller, int64_t now_us, bool *empty)
{
	lease_rows	rows = {0};
	lease_name	name;
	lease_outcome outcome;
	lease_moment moment = {
		.now_us = now_us,
		.delay_us = engine.settings.lock_delay_us,
		.writer = engine.writer,
	};

	request.behind = false;
	if (request.request.length == 0)
		request.request.data = "";	/* is copied, as a lease_call's is */
	lease_rows_add(&rows, &cached->row);
	lease_name_init(&name, bytes);
	lease_name_load(&name, &rows, 0, &moment);
	outcome = lease_name_apply(&name, &request, caller, &moment).outcome;
	*empty = !lease_name_has_rows(&name);
	lease_name_free(&name);
	free(rows.rows);
	return outcome;
}

/*
 * Answer a release at once if the cache knows the lease, and it ends: true.  The
 * batcher writes it with what comes next.  The mutex is held.
 */
bool
lease_belief_release(const dlock_call *request, dlock_answer *answer)
{
	int64_t		now_us = lease_now();
	lease_cached *cached;
	lease_call *call;
	bool		empty;

	if (request->kind != DLOCK_CALL_APPLY ||
		request->request.op != LEASE_RELEASE)
		return false;
	cached = known_lease(request->names[0]);
	if (cached == NULL ||
		decide(cached, request->names[0], request->request, request->caller,
			   now_us, &empty) != LEASE_RELEASED || !empty)
		return false;

	cached->released = true;
	call = lease_call_create_own(LEASE_RELEASE, cached->row.token,
								 request->request.owner, request->names[0],
								 request->caller);
	call->request.holds = request->request.holds;
	call->seen_writes = cached->row.writes;
	call->unwritten = true;
	engine.unwritten++;
	lease_call_defer(call, now_us + lease_defer_us());
	if (batcher.sleeps_until_us > lease_due_us(call))
		pthread_cond_signal(&engine.work);
	lease_count(LEASE_COUNT_released, 1);
	answer->outcome = LEASE_RELEASED;
	answer->token = call->request.token;
	return true;
}

/*
 * Refuse an acquire that does not wait, if the cache knows a lease that is in its
 * way: true.  All else is the batcher's to make.
 */
static bool
refuse(dlock_call_kind kind, const lease_bytes *names, lease_request request,
	   int64_t wait_us, const dlock_caller *caller, dlock_answer *answer)
{
	int64_t		now_us = lease_now();
	const lease_cached *cached;
	bool		empty;

	if (kind != DLOCK_CALL_APPLY || request.op != LEASE_ACQUIRE || wait_us != 0)
		return false;
	cached = known_lease(names[0]);
	if (cached == NULL || cached->seen_us + REFUSE_MAX_AGE_US < now_us ||
		decide(cached, names[0], request, caller, now_us, &empty) != LEASE_BUSY)
		return false;
	lease_count(LEASE_COUNT_refused, 1);
	answer->outcome = LEASE_BUSY;
	return true;
}

/* Refuse a request at once, in the caller's thread: true.  The mutex is held. */
bool
lease_belief_refuse(const dlock_call *request, dlock_answer *answer)
{
	return refuse(request->kind, request->names, request->request,
				  request->wait_us, request->caller, answer);
}

/*
 * The same for a call that has come to the batcher: the lease may have been
 * granted since the call began.
 */
bool
lease_belief_refuse_call(lease_call *call)
{
	if (call->internal != LEASE_INTERNAL_NONE || call->answered ||
		!refuse(call->kind, call->names, call->request, call->wait_us,
				&call->caller, &call->answer))
		return false;
	lease_call_answer_now(call);
	return true;
}
