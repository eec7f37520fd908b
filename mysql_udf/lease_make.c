/*
 * lease_make.c
 *	  Make calls: what becomes of each, and of the waiters.
 *
 * The names of the batch are known.  The calls are made in their order, the answered
 * ones first; the core decides, and drafts are changed, in memory only.
 *
 * Waiters.  A call that finds its name taken joins the name's queue (lease_waiters.c).
 * Each time a call has changed a name, and when its queue is due, the waiters are served
 * from the head on, in the same batch.
 *
 * Where changes go into the table at once, rows that a transaction has locked, by a
 * guard say, cannot be changed.  A release of such a row is answered and put off
 * until the row is free.  Other calls that would change it are put off unanswered,
 * until lock_timeout.  Calls for other names are not delayed.
 *
 * All of this is part of a batch (lease_batch.c), with the mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_make.h"

#include <assert.h>

#include "lease_call_end.h"
#include "lease_deadlock.h"
#include "lease_early.h"
#include "lease_guards.h"
#include "lease_lists.h"
#include "lease_owed.h"
#include "lease_pace.h"
#include "lease_renewals.h"
#include "lease_replays.h"
#include "lease_session.h"
#include "lease_settings.h"
#include "lease_stats.h"
#include "lease_tenure.h"

/*
 * How often to look at a name that has waiters, whatever is known of it: another server
 * may have changed it, or the table may be gone.
 */
#define LOOK_US			1000000

/*
 * All calls that wait for any of several names may together have so many names, besides
 * the first of each; or "max_waiters", if that is more.
 */
#define OTHERS_MIN		1024

/* The batch that is being made, and what has come of it. */
static const lease_to_make *batch;
static lease_made *made;

/* The draft of a name that the batch has. */
static lease_name *
find_draft(lease_bytes bytes)
{
	return image_find(bytes)->draft;
}

/*
 * Answer a call that needs no commit.  If memory was short for one of its names, what
 * would have become of it is not known: it fails, as the batch is about to.
 */
static void
answer_now(lease_call *call)
{
	for (size_t i = 0; i < call->nnames; i++)
	{
		const image_name *name = image_find(call->names[i]);

		if (name == NULL || name->draft == NULL || !name->draft->failed)
			continue;
		lease_call_fail_by_memory(call);
		return;
	}
	lease_call_answer_now(call);
}

static void
note_outcome(lease_call *call, const lease_name_answer *answer)
{
	call->answer.outcome = answer->outcome;
	call->answer.token = answer->token;
	call->answer.count = answer->ended;
	call->answer.held_mode = answer->held_mode;
	call->answer.held_kind = answer->held_kind;
}

/* An acquire was granted, and is to be answered when that has been committed. */
static void
answer_grant(lease_call *call)
{
	lease_replays_add(call);
	lease_list_at_commit(call);
}

/* Apply what a call requests to a name. */
static lease_name_answer
apply(lease_call *call, lease_name *name)
{
	return lease_name_apply(name, &call->request, &call->caller,
							&made->moment);
}

/*
 * The same, but undo changes that need a row that a transaction has locked; then the
 * answer says "cannot_write".
 */
static lease_name_answer
apply_unless_locked(lease_call *call, lease_name *name)
{
	lease_name_answer answer;

	if (name->has_locked)
		lease_name_save(name);
	answer = apply(call, name);
	if (answer.cannot_write)
		lease_name_restore(name);
	return answer;
}

/* When a waiter looks at a name again: at a time, or after a while if that is sooner. */
static int64_t
look_again_us(const lease_name *name, int64_t retry_us)
{
	return lease_earlier(retry_us, made->moment.now_us +
						 (name->has_locked ? LEASE_LOCKED_RETRY_US : LOOK_US));
}

static bool
has_line(const lease_name *name)
{
	const lease_queue *queue = lease_queue_find(name->name);

	return queue != NULL && queue->line.count > 0;
}

/*
 * Serve the waiters in line for a name, from the head on, as far as that is possible
 * now.  Returns when to look again.
 */
static int64_t
serve(lease_name *name)
{
	const lease_queue *queue;

	while ((queue = lease_queue_find(name->name)) != NULL &&
		   queue->line.head != NULL)
	{
		lease_call *head = queue->line.head;
		lease_name_answer answer;

		head->request.behind = false;
		answer = apply_unless_locked(head, name);
		if (answer.outcome == LEASE_BUSY || answer.cannot_write)
			return look_again_us(name, answer.retry_us);
		lease_count(LEASE_COUNT_woken, 1);
		note_outcome(head, &answer);
		lease_waiter_leave(head);
		if (lease_is_granted(answer.outcome))
		{
			head->from_line = true;
			answer_grant(head);
		}
		else
			answer_now(head);
	}
	return INT64_MAX;
}

/*
 * Say whether the holds that a call waits for have ended; if not, when to look again.
 * Where it is not known which rows are locked, a guard may still pin those that are over.
 */
static bool
have_ended(const lease_call *call, lease_name *name, int64_t *next_us)
{
	if (batch->is_stale)
	{
		*next_us = INT64_MAX;	/* another member may have renewed them */
		return false;
	}
	if (!lease_name_have_ended(name, call->youngest, &made->moment, next_us))
		return false;
	if (!batch->is_blind || name->entry->unguarded)
		return true;
	for (size_t i = 0; i < name->count; i++)
		if (!name->members[i].gone && name->members[i].holder->token <= call->youngest)
		{
			*next_us = made->moment.now_us + LEASE_LOCKED_RETRY_US;
			return false;
		}
	return true;
}

/*
 * The holds that a call waits for have ended: answer it, now or when what has ended them
 * is committed.
 */
static void
answer_ended(lease_call *call, const lease_name *name)
{
	call->answer.yes = true;
	if (lease_early_have_ended(name->entry, call->youngest, &made->moment))
		answer_now(call);
	else
		lease_list_at_commit(call);
}

/*
 * Let the watchers of a name look: the calls that wait for its holds to end, and those
 * that want it together with others.  Returns when to look again.
 */
static int64_t
tell_watchers(lease_name *name)
{
	const lease_queue *queue = lease_queue_find(name->name);
	int64_t		next_us = INT64_MAX;
	lease_call *next;

	for (lease_call *call = queue == NULL ? NULL : queue->watchers.head;
		 call != NULL; call = next)
	{
		next = call->next;
		if (call->kind == DLOCK_CALL_WAIT)
		{
			int64_t		end_us;

			if (!have_ended(call, name, &end_us))
			{
				next_us = lease_earlier(next_us, end_us);
				continue;
			}
			lease_count(LEASE_COUNT_woken, 1);
			lease_waiter_leave(call);
			answer_ended(call, name);
		}
		else if (call->retry_us <= made->moment.now_us)
		{
			/* from the beginning, in a batch of its own */
			if (call->stands_for == NULL)
				lease_waiter_leave(call);
			else if (call->stands_for->place != LEASE_PLACE_LINE)
				continue;		/* it is about to be made anyway */
			else
				call = call->stands_for;
			lease_list_incoming(call);
		}
		else
			next_us = lease_earlier(next_us, call->retry_us);
	}
	return next_us;
}

/* A name has changed: its watchers are to look now, not at their own time. */
static void
wake_watchers(const lease_queue *queue)
{
	for (lease_call *call = queue->watchers.head; call != NULL;
		 call = call->next)
		call->retry_us = 0;
}

/* Serve the waiters of a name that has "changed", or whose queue is due. */
static void
attend(lease_name *name, bool changed)
{
	lease_queue *queue = lease_queue_find(name->name);
	int64_t		line_us;
	int64_t		watch_us;

	if (queue == NULL)
		return;
	if (changed)
		wake_watchers(queue);
	line_us = serve(name);
	watch_us = tell_watchers(name);
	queue = lease_queue_find(name->name);
	if (queue == NULL)
		return;
	lease_queue_look(queue, name, &made->moment);
	lease_queue_look_at(queue, lease_earlier(made->moment.now_us + LOOK_US,
											 lease_earlier(line_us, watch_us)));
}

/*
 * The same after an answered call has changed a name, but later in this batch: other
 * answered calls may follow, and the waiters must not be served before these.
 */
static void
attend_later(const lease_name *name)
{
	lease_queue *queue = lease_queue_find(name->name);

	if (queue == NULL)
		return;
	wake_watchers(queue);
	lease_queue_look_at(queue, 0);
}

/* Say whether a call may wait; if not, it has been finished, with an error. */
static bool
may_wait(lease_call *call)
{
	size_t		connections = lease_waiters_connections();
	size_t		others = lease_waiters_count() - connections;
	size_t		most = settings->max_waiters;
	const char *what = NULL;

	if (call->abandoned)
	{
		lease_call_finish(call);
		return false;
	}
	if (connections >= most)
		what = "connections wait for leases";
	else if (call->kind == DLOCK_CALL_ACQUIRE_ANY &&
			 others + call->nnames - 1 > (most > OTHERS_MIN ? most : OTHERS_MIN))
		what = "names are waited for";
	if (what != NULL)
	{
		lease_call_fail(call, "53400",
						"too many %s; increase \"max_waiters\" in dlock.settings, or try again later",
						what);
		lease_call_finish(call);
		return false;
	}
	if (call->waiting_since_us == 0)
		call->waiting_since_us = made->moment.wall_us;
	return true;
}

/* A waiter has joined the queue of a name: note which holders are in its way. */
static void
note_waiter(const lease_name *name, int64_t retry_us)
{
	lease_queue *queue = lease_queue_find(name->name);

	lease_queue_look_at(queue, lease_earlier(queue->due_us, retry_us));
	lease_queue_look(queue, name, &made->moment);
}

/*
 * A call waits now: fail it if it closes a circle of owners, or if memory is too short to
 * find out.
 */
static void
check_deadlock(lease_call *call)
{
	lease_text	message = {0};
	lease_text	unmasked = {0};
	lease_deadlock found = lease_deadlock_find(call, made->moment.now_us,
											   &message, &unmasked);

	if (found == LEASE_DEADLOCK_FOUND)
	{
		lease_count(LEASE_COUNT_deadlocks, 1);
		/* whether its caller is an operator can be asked only in the caller's thread */
		if (!unmasked.failed && strcmp(unmasked.data, message.data) != 0)
		{
			call->answer.unmasked = unmasked.data;
			unmasked.data = NULL;
		}
		lease_call_fail(call, "40P01", "%s", message.data);
		lease_call_finish(call);
	}
	else if (found == LEASE_DEADLOCK_UNKNOWN)
		lease_call_fail_by_memory(call);
	lease_text_free(&message);
	lease_text_free(&unmasked);
}

/*
 * Let a call wait for a name, or for any of its names, in whose queues it may have places
 * already; "retry_us" is when time alone may change something.
 */
static void
wait_for(lease_call *call, int64_t retry_us)
{
	bool		any = call->kind == DLOCK_CALL_ACQUIRE_ANY;
	size_t		first = any ? 0 : call->waits_for;
	size_t		end = any ? call->nnames : first + 1;

	if ((call->abandoned || !lease_waiter_has_places(call)) &&
		!may_wait(call))
		return;
	for (size_t i = first; i < end; i++)
		retry_us = look_again_us(find_draft(call->names[i]), retry_us);
	call->retry_us = retry_us;
	if (!lease_waiter_join(call))
	{
		lease_call_fail_by_memory(call);
		return;
	}
	for (size_t i = first; i < end; i++)
		note_waiter(find_draft(call->names[i]), retry_us);
	if (call->kind != DLOCK_CALL_WAIT)
		check_deadlock(call);
}

/*
 * An acquire was not granted: let it wait, if it may and has time left; else answer it.
 */
static void
wait_or_refuse(lease_call *call, int64_t retry_us)
{
	if (call->answer.outcome == LEASE_BUSY && call->wait_us != 0 &&
		made->moment.now_us < call->end_us)
	{
		wait_for(call, retry_us);
		return;
	}
	if (call->answer.outcome == LEASE_BUSY)
		lease_count(call->wait_us == 0 ? LEASE_COUNT_refused :
					LEASE_COUNT_timed_out, 1);
	answer_now(call);
}

/*
 * Say whether a transaction keeps a holder's acquire from being written, so that it is to
 * be tried again.  A new grant that cannot be written counts as busy instead.
 */
static bool
is_kept_from(lease_name_answer *answer)
{
	if (!answer->cannot_write || answer->outcome != LEASE_GRANTED)
		return answer->cannot_write;
	answer->outcome = LEASE_BUSY;
	answer->retry_us = made->moment.now_us + LEASE_LOCKED_RETRY_US;
	return false;
}

/* Take a lease on a name, or wait for it. */
static void
make_acquire(lease_call *call, lease_name *name)
{
	lease_name_answer answer;

	if (has_line(name))
		attend(name, false);
	call->request.behind = has_line(name);
	answer = apply_unless_locked(call, name);
	if (is_kept_from(&answer))
	{
		lease_call_stall(call, LEASE_LOCKED_RETRY_US);
		return;
	}
	note_outcome(call, &answer);
	if (lease_is_granted(answer.outcome))
	{
		answer_grant(call);
		attend(name, true);
	}
	else
		wait_or_refuse(call, answer.retry_us);
}

/* The lease that a call speaks for by its token, also one that has ended, or NULL. */
static lease_member *
find_own(lease_name *name, const lease_call *call)
{
	return lease_name_find_own(name, call->request.owner, &call->caller,
							   call->request.token);
}

/* A release, answered before or now, that is to be written. */
static void
make_release(lease_call *call, lease_name *name)
{
	lease_name_answer answer;
	lease_member *member = find_own(name, call);
	bool		was_answered = call->answered;
	bool		writes = made->moment.direct &&
		lease_name_will_write(name, &made->moment);
	int64_t		over_us = 0;	/* the deadline, if it has passed */

	if (member != NULL && member->gone)
		member = NULL;
	if (lease_owed_is_written(call, member))
	{
		lease_call_finish(call);
		return;
	}
	call->may_be_written = false;

	/* the hold was given back in time, although that is written only now */
	if (was_answered && member != NULL && member->life == LEASE_TIMED &&
		member->deadline_us <= made->moment.now_us)
	{
		over_us = member->deadline_us;
		member->deadline_us = made->moment.now_us + 1;
	}
	if (writes)
		lease_name_save(name);
	answer = apply(call, name);
	/* this release must not keep what other calls have changed from being written */
	if (writes && answer.cannot_write && !lease_name_will_write(name, &made->moment))
		lease_name_restore(name);

	/* but the holds that are left are over */
	if (over_us != 0)
		member->deadline_us = over_us;
	call->seen_writes = answer.seen_writes;
	if (!call->answered)
	{
		note_outcome(call, &answer);
		if (answer.outcome != LEASE_RELEASED)
		{
			if (batch->is_stale)
				lease_list_at_commit(call); /* which fails */
			else
				answer_now(call);
			return;
		}
		lease_count(LEASE_COUNT_released, 1);
		call->request.token = answer.token;
		lease_call_answer(call);
	}
	else if (!answer.changed && !name->failed)
	{
		lease_call_finish(call);			/* another call has ended the lease */
		return;
	}
	/* if that ends the lease, the image says so */
	member = find_own(name, call);
	call->ends = member == NULL || member->gone;
	if (member != NULL && member->gone &&
		member < &name->members[name->nknown])
		image_set_released(member->holder, true);

	/* if the row is locked, its transaction decides when this can be written */
	lease_call_set_unwritten(call, !answer.cannot_write);
	if (answer.cannot_write)
		lease_call_defer(call, made->moment.now_us + LEASE_LOCKED_RETRY_US);
	else
		lease_list_early(call);
	if (was_answered)
		attend_later(name);
	else
		attend(name, true);
}

/* A renewal or an eviction. */
static void
make_change(lease_call *call, lease_name *name)
{
	lease_name_answer answer = apply_unless_locked(call, name);

	if (answer.cannot_write)
	{
		lease_call_stall(call, LEASE_LOCKED_RETRY_US);
		return;
	}
	note_outcome(call, &answer);
	if (!answer.changed)
	{
		if (call->request.op == LEASE_RENEW)
			lease_count(LEASE_COUNT_renewals_lost, 1);
		answer_now(call);
		return;
	}
	lease_list_at_commit(call);
	attend(name, true);
}

/* End a session's lease, or write that it lives. */
static void
make_session_change(lease_call *call, lease_name *name)
{
	lease_member *member = lease_name_find(name, call->request.token);
	bool		keep = call->internal == LEASE_INTERNAL_KEEP;

	if (member == NULL || member->kind != LEASE_SESSION ||
		member->writer != made->moment.writer)
		lease_call_finish(call);
	else if (member->locked && made->moment.direct)
	{
		if (keep)
		{
			lease_session_unwritten(call);
			lease_call_finish(call);
		}
		else
			lease_call_defer(call, made->moment.now_us + LEASE_LOCKED_RETRY_US);
	}
	else if (keep)
	{
		if (member->life == LEASE_BOUND)
			lease_member_extend(member, &made->moment);
		lease_list_early(call);
		made->needs_commit = true;
	}
	else
	{
		lease_name_save(name);
		/* with a lock delay the lease expires, else it is given back */
		if (made->moment.delay_us > 0)
			lease_member_lose(member, &made->moment);
		else
		{
			member->gone = true;
			member->changed = true;
		}
		if (name->has_locked && made->moment.direct &&
			!lease_name_will_write(name, &made->moment))
		{
			lease_name_restore(name);
			lease_call_defer(call, made->moment.now_us + LEASE_LOCKED_RETRY_US);
			return;
		}
		lease_list_early(call);
		made->needs_commit = true;
		attend_later(name);
	}
}

static void
make_read(lease_call *call, lease_name *name)
{
	if (!lease_early_fill(name, &call->request, &call->caller, &made->moment,
						  batch->is_blind, &call->answer))
		name->failed = true;
	answer_now(call);
}

/*
 * Say whether a guard of a lease can lock a row, and pin what it says: all that the lease
 * is, and no more.  A row that is locked stays as it is; it may say more.
 */
static bool
can_pin(const image_row *row, const lease_member *member)
{
	if (row == NULL || row->token != member->holder->token)
		return false;
	if (row->mode != member->mode)
		return row->locked && row->mode == LEASE_EXCLUSIVE;
	return member->mode != LEASE_PERMIT || row->version == member->version ||
		(row->locked && row->version > member->version);
}

/*
 * A guard, before and after it locks its row.  Before, it must be told of a row that is
 * in the table, and will stay in its slot.  No checkpoint can write what another
 * transaction has locked.
 */
static void
make_guard(lease_call *call, lease_name *name)
{
	lease_member *member = find_own(name, call);
	const image_row *row;

	lease_guards_remove(call->caller.connection_id);
	call->answer.yes = member != NULL &&
		lease_member_is_live(member, &made->moment);
	if (call->kind == DLOCK_CALL_BEGIN_GUARD && call->answer.yes)
	{
		row = image_row_at(name->entry, member->slot);
		if (!can_pin(row, member) ||
			(made->moment.direct &&
			 lease_name_will_write(name, &made->moment)))
		{
			made->needs_commit = true;
			if (row == NULL || !row->locked)
			{
				image_hurry(name->entry);
				lease_checkpoint_now();
			}
			lease_call_stall(call, call->retry_us == 0 ? 0 :
							 LEASE_LOCKED_RETRY_US);
			return;
		}
		lease_name_lock(name, member);
		image_note_guard(name->entry, (size_t) (member - name->members));
		if (!lease_guards_add(call->caller.connection_id, name->name,
							  member->slot, made->moment.now_us))
			name->failed = true;
		call->answer.count = member->slot;
	}
	/* the guard has locked its row by now, whatever was read since it was announced */
	if (call->kind == DLOCK_CALL_CHECK_GUARD && call->answer.yes)
		image_note_guard(name->entry, (size_t) (member - name->members));
	answer_now(call);
}

/* Remember the holds that are there, and wait for them to end. */
static void
make_wait(lease_call *call, lease_name *name)
{
	int64_t		next_us;

	if (call->youngest == 0)
		call->youngest = lease_name_youngest(name, &made->moment);
	call->answer.yes = have_ended(call, name, &next_us);
	if (call->answer.yes)
		answer_ended(call, name);
	else if (call->wait_us == 0)
		answer_now(call);
	else
		wait_for(call, next_us);
}

/* Undo what a call has done to all its names, and clear its outcomes. */
static void
restore_names(lease_call *call)
{
	for (size_t i = 0; i < call->nnames; i++)
	{
		lease_name_restore(find_draft(call->names[i]));
		call->outcomes[i] = LEASE_BUSY;
		call->answer.tokens[i] = 0;
	}
}

/* Begin with all names of a call: serve their waiters in line, and save the drafts. */
static void
begin_names(lease_call *call)
{
	for (size_t i = 0; i < call->nnames; i++)
	{
		lease_name *name = find_draft(call->names[i]);

		if (has_line(name))
			attend(name, false);
		lease_name_save(name);
	}
	restore_names(call);
}

/* Take all names of a call, or none. */
static void
make_acquire_all(lease_call *call)
{
	lease_name_answer answer = {.outcome = LEASE_GRANTED};
	size_t		n = 0;
	bool		is_kept;

	begin_names(call);
	for (; n < call->nnames; n++)
	{
		lease_name *name = find_draft(call->names[n]);

		call->request.behind = has_line(name);
		answer = apply(call, name);
		call->answer.tokens[n] = answer.token;
		call->outcomes[n] = (uint8_t) answer.outcome;
		if (!lease_is_granted(answer.outcome) || answer.cannot_write)
			break;
	}
	if (n == call->nnames)
	{
		note_outcome(call, &answer);
		call->answer.outcome = LEASE_GRANTED;
		answer_grant(call);
		for (size_t i = 0; i < call->nnames; i++)
			attend(find_draft(call->names[i]), true);
		return;
	}
	restore_names(call);
	call->waits_for = n;
	call->answer.failed_name = n;
	is_kept = is_kept_from(&answer);
	note_outcome(call, &answer);
	if (is_kept)
		lease_call_stall(call, LEASE_LOCKED_RETRY_US);
	else
		wait_or_refuse(call, answer.retry_us);
}

/*
 * Take the names that are free, in their order, until there are enough; or only those
 * that were taken under this request id before.  *failed becomes the name that stops
 * this: by misuse, or because a transaction has locked a row that is to be answered
 * again.  *retry_us is brought forward to when time next frees a name.
 */
static lease_name_answer
claim_names(lease_call *call, bool only_repeated, size_t *taken,
			size_t *failed, int64_t *retry_us)
{
	lease_name_answer answer = {.outcome = LEASE_BUSY};

	call->request.only_repeated = only_repeated;
	for (size_t i = 0; i < call->nnames && *taken < call->wanted; i++)
	{
		lease_name *name = find_draft(call->names[i]);

		if (lease_is_granted((lease_outcome) call->outcomes[i]))
			continue;
		call->request.behind = has_line(name);
		answer = apply_unless_locked(call, name);
		if (is_kept_from(&answer) ||
			(!lease_is_granted(answer.outcome) &&
			 answer.outcome != LEASE_BUSY))
		{
			*failed = i;
			break;
		}
		if (lease_is_granted(answer.outcome))
		{
			call->outcomes[i] = (uint8_t) answer.outcome;
			call->answer.tokens[i] = answer.token;
			++*taken;
		}
		else
			*retry_us = lease_earlier(*retry_us, answer.retry_us);
	}
	return answer;
}

/* Take some of a call's names: those that are free. */
static void
make_acquire_any(lease_call *call)
{
	lease_name_answer answer = {.outcome = LEASE_BUSY};
	size_t		taken = 0;
	size_t		failed = SIZE_MAX;
	int64_t		retry_us = INT64_MAX;

	begin_names(call);

	/* a repeated call is to answer the same, whatever has come free meanwhile */
	if (call->request.request.length > 0)
		answer = claim_names(call, true, &taken, &failed, &retry_us);
	if (failed == SIZE_MAX)
		answer = claim_names(call, false, &taken, &failed, &retry_us);
	if (failed != SIZE_MAX)
	{
		restore_names(call);
		note_outcome(call, &answer);
		call->answer.failed_name = failed;
		call->waits_for = failed;
		if (lease_is_granted(answer.outcome))
			lease_call_stall(call, LEASE_LOCKED_RETRY_US);
		else
			answer_now(call);
	}
	else if (taken > 0)
	{
		call->answer.outcome = LEASE_GRANTED;
		lease_waiter_leave(call);
		answer_grant(call);
		for (size_t i = 0; i < call->nnames; i++)
			if (lease_is_granted((lease_outcome) call->outcomes[i]))
				attend(find_draft(call->names[i]), false);
	}
	else
	{
		call->answer.outcome = LEASE_BUSY;
		wait_or_refuse(call, retry_us);
	}
}

/* The token to match for a name of a call; 0: any. */
static uint64_t
token_to_match(const lease_call *call, size_t i)
{
	return call->match == NULL ? 0 : call->match[i];
}

/*
 * Release the leases on the names, each by a call of its own for which nobody waits.
 * Those that can be written go with this batch, and the others are put off.
 */
static void
make_release_each(lease_call *call)
{
	for (size_t i = 0; i < call->nnames; i++)
	{
		lease_call *one = lease_call_create_own(LEASE_RELEASE,
												token_to_match(call, i),
												call->request.owner,
												call->names[i], &call->caller);

		if (one == NULL)
		{
			find_draft(call->names[i])->failed = true;
			break;				/* the batch fails, and so does the call */
		}
		one->answered = false;
		one->references++;
		make_release(one, find_draft(call->names[i]));
		call->answer.done[i] = one->answer.outcome == LEASE_RELEASED;
		lease_call_unref(one);
	}
	answer_now(call);
}

/*
 * Renew the leases on the names.  While a transaction has locked one of them, the call
 * is not answered, and the others are renewed again at each try, so that their holder
 * does not lose them.
 */
static void
make_renew_each(lease_call *call)
{
	bool		any = false;
	bool		any_locked = false;

	for (size_t i = 0; i < call->nnames; i++)
	{
		lease_name *name = find_draft(call->names[i]);
		lease_name_answer answer;

		call->request.token = token_to_match(call, i);
		answer = apply_unless_locked(call, name);
		call->answer.done[i] = answer.outcome == LEASE_RENEWED &&
			!answer.cannot_write;
		if (answer.cannot_write)
		{
			call->waits_for = i;
			any_locked = true;
		}
		any |= call->answer.done[i];
	}
	for (size_t i = 0; i < call->nnames; i++)
		if (call->answer.done[i])
			attend(find_draft(call->names[i]), true);
	if (any_locked)
	{
		made->needs_commit |= any;
		lease_call_stall(call, LEASE_CULPRIT_PAUSE_US);
	}
	else if (any)
		lease_list_at_commit(call);
	else
	{
		lease_count_renewals(call);
		answer_now(call);
	}
}

/*
 * Say whether a call for all leases of an owner has the names of all that the image has:
 * the owner may have taken more since they were looked up.
 */
static bool
has_all_names(const lease_call *call)
{
	const image_account *account = lease_account_of(&call->caller);
	size_t		count = 0;

	if (account == NULL)
		return false;
	for (size_t i = 0; i < call->nnames; i++)
	{
		const image_name *name = image_find(call->names[i]);

		for (const lease_member *own = NULL;
			 (own = image_own(name, call->request.owner, account,
							  own)) != NULL;)
			count++;
	}
	for (const image_holder *holder = NULL;
		 (holder = image_owned(call->request.owner, account,
							   holder)) != NULL;)
		if (count-- == 0)
			return false;
	return true;
}

/*
 * Renew or drop what an owner has; the names have been looked up.  A renewal of all at
 * once takes one entry of the journal, however many there are: see journal.h.
 */
static void
make_apply_all(lease_call *call)
{
	size_t		end = call->waits_for + call->slice;
	uint64_t	count = 0;

	call->renews_all = call->request.op == LEASE_RENEW &&
		!made->moment.direct && end - call->waits_for == call->nnames &&
		has_all_names(call) &&
		lease_renewal_may_be_one(call, made->moment.now_us);
	for (size_t i = call->waits_for; i < end; i++)
		lease_name_save(find_draft(call->names[i]));
	for (size_t i = call->waits_for; i < end; i++)
	{
		lease_name *name = find_draft(call->names[i]);
		lease_name_answer answer = apply(call, name);

		if (answer.cannot_write)
		{
			for (size_t r = call->waits_for; r <= i; r++)
				lease_name_restore(find_draft(call->names[r]));
			lease_call_stall(call, LEASE_LOCKED_RETRY_US);
			return;
		}
		if (call->renews_all && answer.changed && answer.was_ours)
		{
			lease_member *member = lease_name_find(name, answer.token);

			if (member->kind == LEASE_PLAIN)
			{
				member->changed = false;
				member->renewed = true;
			}
		}
		count += answer.changed;
	}
	call->changed = count;
	lease_list_at_commit(call);
	for (size_t i = call->waits_for; i < end; i++)
		attend(find_draft(call->names[i]), true);
}

/* Remove what is over from the names, except rows that are locked. */
static void
make_reap(lease_call *call)
{
	bool		any = false;

	for (size_t i = 0; i < call->nnames; i++)
	{
		lease_name *name = find_draft(call->names[i]);
		lease_name_answer answer = apply_unless_locked(call, name);

		if (answer.changed && !answer.cannot_write)
		{
			any = true;
			made->reaped += answer.expired;
			made->needs_commit = true;
			attend_later(name);
		}
	}
	/* not if all that is over is locked: it would be found again at once */
	made->reaps_more |= call->nnames >= LEASE_REAP_NAMES / 2 && any;
	answer_now(call);
}

/* The name of a call that has one. */
static lease_name *
only_name(const lease_call *call)
{
	assert(call->nnames == 1);
	return find_draft(call->names[0]);
}

/*
 * Say whether a retry with the same request id may have been answered with what a call is
 * to give back.  Retries on this server are counted; a retry may have been made before
 * this call although it came later.  A retry on another server of a cluster has written
 * the lease (see describe() in lease_name.c); what is committed first counts for both.
 */
static bool
was_found_again(const lease_call *call, lease_name *name)
{
	const lease_member *member;

	if (lease_replays_have(call))
		return true;
	if (!made->moment.direct || call->request.request.length == 0)
		return false;
	member = find_own(name, call);
	return member != NULL && member->writer != made->moment.writer &&
		member->request != NULL &&
		lease_same(member->request->bytes, call->request.request);
}

/*
 * Say whether the answer to a call depends on what other members of a cluster have done.
 * A look tells what there was; and a lease that is given back ends, if it is still there.
 */
static bool
must_be_current(const lease_call *call)
{
	return call->internal == LEASE_INTERNAL_NONE && call->kind != DLOCK_CALL_READ &&
		!(call->kind == DLOCK_CALL_APPLY && call->request.op == LEASE_RELEASE);
}

/* Make one call. */
static void
make(lease_call *call)
{
	/* its caller has given it up, and was told so */
	if (call->abandoned)
	{
		lease_call_finish(call);
		return;
	}
	if (batch->read_only && !call->answered && call->kind != DLOCK_CALL_READ &&
		call->internal != LEASE_INTERNAL_SETTLE &&
		call->internal != LEASE_INTERNAL_SETTINGS)
	{
		lease_call_fail_by_table(call);
		return;
	}
	if (batch->is_stale && must_be_current(call))
	{
		if (call->waiting_since_us != 0)
			lease_call_stall(call, LOOK_US);
		else
			lease_list_at_commit(call); /* which fails */
		return;
	}
	switch (call->internal)
	{
		case LEASE_INTERNAL_NONE:
			break;
		case LEASE_INTERNAL_GIVE_BACK:
			if (was_found_again(call, only_name(call)))
				lease_call_finish(call);
			else
				make_release(call, only_name(call));
			return;
		case LEASE_INTERNAL_END_SESSION:
		case LEASE_INTERNAL_KEEP:
			make_session_change(call, only_name(call));
			return;
		case LEASE_INTERNAL_REAP:
			make_reap(call);
			return;
		case LEASE_INTERNAL_SETTLE:
			lease_list_at_commit(call);
			return;
		case LEASE_INTERNAL_SETTINGS:
			answer_now(call);
			return;
	}
	switch (call->kind)
	{
		case DLOCK_CALL_APPLY:
			if (call->request.op == LEASE_ACQUIRE)
				make_acquire(call, only_name(call));
			else if (call->request.op == LEASE_RELEASE)
				make_release(call, only_name(call));
			else
				make_change(call, only_name(call));
			break;
		case DLOCK_CALL_ACQUIRE_ALL:
			make_acquire_all(call);
			break;
		case DLOCK_CALL_ACQUIRE_ANY:
			make_acquire_any(call);
			break;
		case DLOCK_CALL_APPLY_EACH:
			if (call->request.op == LEASE_RELEASE)
				make_release_each(call);
			else
				make_renew_each(call);
			break;
		case DLOCK_CALL_APPLY_ALL:
			make_apply_all(call);
			break;
		case DLOCK_CALL_WAIT:
			make_wait(call, only_name(call));
			break;
		case DLOCK_CALL_READ:
			make_read(call, only_name(call));
			break;
		case DLOCK_CALL_BEGIN_GUARD:
		case DLOCK_CALL_CHECK_GUARD:
			make_guard(call, only_name(call));
			break;
	}
}

/*
 * Make the calls that the batch has taken, whose names are known; *result says what has
 * come of them.  False if memory is short.
 */
bool
lease_make_batch(const lease_to_make *to_make, lease_made *result)
{
	lease_call *call;

	batch = to_make;
	made = result;
	*made = (lease_made) {.moment = lease_moment_now(batch->direct)};
	for (size_t i = 0; i < batch->nnames; i++)
	{
		image_set_draft(batch->names[i],
						lease_name_create(batch->names[i], &made->moment));
		if (batch->names[i]->draft == NULL)
			return false;
	}

	/* what was answered comes before all that was not */
	while ((call = lists->taken.head) != NULL && call->answered)
		make(call);
	for (size_t i = 0; i < batch->nnames; i++)
	{
		lease_queue *queue = lease_queue_find(batch->names[i]->name);

		/* a server that has become read-only grants nothing */
		if (batch->read_only)
			lease_call_fail_waiters(batch->names[i]->name);
		else if (queue != NULL && queue->due_us <= made->moment.now_us &&
				 batch->can_grant)
			attend(batch->names[i]->draft, false);
	}
	while ((call = lists->taken.head) != NULL)
		make(call);
	for (size_t i = 0; i < batch->nnames; i++)
		if (batch->names[i]->draft->failed)
			return false;
	return true;
}
