/*
 * calls.c
 *	  What a call of each kind decides, and what becomes of the waiters.
 *
 * calls_make() decides a call on the image, in the thread of its caller, or of whoever
 * decides it anew after an append has failed.  Then the call is answered, once what the
 * answer rests on is durable (buffer_answer()); or it waits, in the queue of a name; or
 * it has failed.
 *
 * Each change of a name may free it: calls_attend() grants it to those who wait, the
 * first first, in the thread of whoever changed it.  Calls that wait for several names
 * are woken, and made again from the beginning, before the mutex is released:
 * calls_make_woken().
 *
 * All of it is under the engine's mutex.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "udf_text.h"

/*
 * Most leases of an owner that are changed at once, and most that are looked at for that.
 */
#define SLICE_MOST		2000
#define SLICE_LOOKS		(16 * SLICE_MOST)

/* Most leases that are reaped at once. */
#define REAP_MOST		1000

/* How long a lease that is over, and is kept by something else, is left alone. */
#define REAP_AGAIN_US	1000000

static lease_moment moment;		/* of the call that is being made */
static call *woken = NULL;		/* calls to be made again */
static call **woken_end = &woken;

static party
party_of(const call *c)
{
	return (party) {c->account, c->asked->caller->connection_id};
}

/* ----------------------------------------------------------------
 * Lists
 * ----------------------------------------------------------------
 */

/* Put a call at the end of a list. */
void
call_list_append(call_list *list, call *c)
{
	c->list = list;
	c->next = NULL;
	c->prev = list->tail;
	if (list->tail != NULL)
		list->tail->next = c;
	else
		list->head = c;
	list->tail = c;
	list->count++;
}

/* Take a call out of the list that it is in. */
void
call_list_remove(call *c)
{
	call_list  *list = c->list;

	if (list == NULL)
		return;
	if (c->prev != NULL)
		c->prev->next = c->next;
	else
		list->head = c->next;
	if (c->next != NULL)
		c->next->prev = c->prev;
	else
		list->tail = c->prev;
	list->count--;
	c->list = NULL;
}

/* Take the first call out of a list; NULL: there is none. */
call *
call_list_take(call_list *list)
{
	call	   *c = list->head;

	if (c != NULL)
		call_list_remove(c);
	return c;
}

/* Move all calls of a list behind those of another. */
void
call_list_move(call_list *from, call_list *to)
{
	call	   *c;

	while ((c = call_list_take(from)) != NULL)
		call_list_append(to, c);
}

/* ----------------------------------------------------------------
 * Answers
 * ----------------------------------------------------------------
 */

/* A call is answered: from now on it is its thread's alone, and may be gone at once. */
static void
end_call(call *c)
{
	sem_t	   *semaphore = c->woken;

	call_list_remove(c);
	queue_end(c);
	c->answered = true;
	engine_post(semaphore);
}

/* Answer a call with an error, at once. */
void
calls_refuse(call *c, const char *sqlstate, const char *format,...)
{
	va_list		arguments;

	snprintf(c->answer->sqlstate, sizeof(c->answer->sqlstate), "%s", sqlstate);
	va_start(arguments, format);
	vsnprintf(c->answer->message, sizeof(c->answer->message), format, arguments);
	va_end(arguments);
	end_call(c);
}

static void
refuse_by_memory(call *c)
{
	calls_refuse(c, "53200", "out of memory");
}

static void
refuse_by_leases(call *c)
{
	calls_refuse(c, "53400",
				 "too many leases; increase \"max_leases\" in dlock.settings, or try again later");
}

static void
note_decision(call *c, const decision *d)
{
	c->answer->outcome = d->outcome;
	c->answer->token = d->token;
	c->answer->count = d->ended;
	c->answer->held_mode = d->held_mode;
	c->answer->held_kind = d->held_kind;
}

/*
 * Until which buffer the answers about a name rest on the log.  Without copies all of it is
 * durable, and "changed_in" may be a buffer that came to nothing.
 */
static uint64_t
position_of_name(const state_name *name)
{
	return name != NULL && name->copies != NULL ? name->changed_in : 0;
}

static uint64_t
position_of(lease_bytes bytes)
{
	return position_of_name(state_find_name(bytes));
}

/*
 * Answer a call when what was decided about its names is durable.  A grant rests on this
 * run's having taken over; a refusal, on what the log has.
 */
static void
answer(call *c)
{
	/* a repeated acquire may have changed nothing */
	uint64_t	position = c->asked->kind != DLOCK_CALL_WAIT &&
		lease_is_granted(c->answer->outcome);

	for (size_t i = 0; i < c->asked->nnames; i++)
	{
		uint64_t	one = position_of(c->asked->names[i]);

		if (one > position)
			position = one;
	}
	buffer_answer(c, position);
}

/* A call has ended leases by force: have a line written to the server's log. */
static void
note_forced(const call *c)
{
	char		name[DLOCK_SHOWN_SIZE];
	char		owner[DLOCK_SHOWN_SIZE];
	char		user[DLOCK_SHOWN_SIZE];
	char		host[DLOCK_SHOWN_SIZE];

	upkeep_log("dlock: %llu lease%s on \"%s\" released by force%s%s%s; account '%s'@'%s', connection %llu",
			   (unsigned long long) c->answer->count, c->answer->count == 1 ? "" : "s",
			   dlock_show(name, c->asked->names[0]),
			   c->request.owner.length > 0 ? ", of owner \"" : "",
			   c->request.owner.length > 0 ? dlock_show(owner, c->request.owner) : "",
			   c->request.owner.length > 0 ? "\"" : "",
			   dlock_show(user, c->account->user), dlock_show(host, c->account->host),
			   (unsigned long long) c->asked->caller->connection_id);
}

/* What is counted for a call whose answer is durable. */
static void
count(const call *c)
{
	const dlock_answer *a = c->answer;
	size_t		n = c->asked->nnames;

	if (c->asked->kind == DLOCK_CALL_APPLY)
		switch (a->outcome)
		{
			case LEASE_GRANTED:
				lease_count(LEASE_COUNT_acquired, 1);
				break;
			case LEASE_REENTERED:
			case LEASE_REPLAYED:
				lease_count(LEASE_COUNT_reentered, 1);
				break;
			case LEASE_RENEWED:
				lease_count(LEASE_COUNT_renewed, 1);
				break;
			case LEASE_RELEASED:
				if (c->request.op == LEASE_EVICT)
				{
					lease_count(LEASE_COUNT_forced, a->count);
					if (a->count > 0)
						note_forced(c);
				}
				else
					lease_count(LEASE_COUNT_released, 1);
				break;
			default:
				if (c->request.op == LEASE_RENEW)
					lease_count(LEASE_COUNT_renewals_lost, 1);
				break;
		}
	else if (c->asked->kind == DLOCK_CALL_APPLY_ALL)
		lease_count(c->request.op == LEASE_RENEW ? LEASE_COUNT_renewed :
					LEASE_COUNT_released, a->count);
	else if (c->asked->kind == DLOCK_CALL_APPLY_EACH)
		for (size_t i = 0; i < n; i++)
			lease_count(c->request.op == LEASE_RELEASE ?
						LEASE_COUNT_released : a->done[i] ?
						LEASE_COUNT_renewed : LEASE_COUNT_renewals_lost,
						c->request.op == LEASE_RENEW || a->done[i]);
	else if (c->outcomes != NULL)
		for (size_t i = 0; i < n; i++)
			if (lease_is_granted((lease_outcome) c->outcomes[i]))
				lease_count(c->outcomes[i] == LEASE_GRANTED ?
							LEASE_COUNT_acquired : LEASE_COUNT_reentered, 1);
	if (c->answer->outcome == LEASE_BUSY && c->request.op == LEASE_ACQUIRE &&
		c->asked->kind != DLOCK_CALL_WAIT)
		lease_count(c->asked->wait_us == 0 ? LEASE_COUNT_refused :
					LEASE_COUNT_timed_out, 1);
	if (c->waiting_since_us != 0 && c->asked->kind != DLOCK_CALL_WAIT)
		lease_count_wait(lease_now() - c->start_us);
}

/*
 * What a call's answer rests on is durable: answer it.  A grant that is over by now is
 * decided again; but only once, since a ttl may be shorter than an append takes.  A call
 * for all leases of an owner goes on with the next slice, in its own thread.
 */
void
calls_finish(call *c)
{
	if (c->over_us != 0 && c->over_us <= lease_now() && !c->was_late)
	{
		c->was_late = true;
		calls_make(c);
		return;
	}
	if (c->next_slice != 0)
	{
		c->slice = c->next_slice;
		c->before = c->answer->count;
		c->continues = true;
		engine_post(c->woken);
		return;
	}
	count(c);
	end_call(c);
}

/* ----------------------------------------------------------------
 * Waiting
 * ----------------------------------------------------------------
 */

static bool
has_line(lease_bytes bytes)
{
	const state_name *name = state_find_name(bytes);

	return name != NULL && name->queue != NULL && name->queue->line.head != NULL;
}

/* Say whether a call may wait; if not, it has failed. */
static bool
may_wait(call *c)
{
	const char *what = NULL;

	if (c->waiting_since_us == 0 && account_share(settings->max_waiters, queue_waiters(), c->account->waiters) == 0)
		what = "connections wait for leases";
	else if (c->asked->kind == DLOCK_CALL_ACQUIRE_ANY && c->nplaces == 0 &&
			 !queue_has_places_for(c, c->asked->nnames - 1))
		what = "names are waited for";
	if (what != NULL)
	{
		calls_refuse(c, "53400",
					 "too many %s; an account can have half of what others leave: increase \"max_waiters\" in dlock.settings, or try again later",
					 what);
		return false;
	}
	if (c->waiting_since_us == 0)
		c->waiting_since_us = moment.wall_us;
	return true;
}

/* A call waits now: it fails if it closes a circle of owners. */
static void
check_deadlock(call *c)
{
	lease_text	message = {0};
	lease_text	unmasked = {0};

	if (!deadlock_find(c, &moment, &message, &unmasked) || message.failed ||
		unmasked.failed)
		refuse_by_memory(c);
	else if (message.length > 0)
	{
		lease_count(LEASE_COUNT_deadlocks, 1);
		/* whether its caller is an operator can be asked only in the caller's thread */
		if (strcmp(unmasked.data, message.data) != 0)
		{
			c->answer->unmasked = unmasked.data;
			unmasked.data = NULL;
		}
		calls_refuse(c, "40P01", "%s", message.data);
	}
	lease_text_free(&message);
	lease_text_free(&unmasked);
}

/* Let a call wait for a name, or for any; "retry_us" is when time may change something. */
static void
wait_for(call *c, int64_t retry_us)
{
	bool		any = c->asked->kind == DLOCK_CALL_ACQUIRE_ANY;
	size_t		first = any ? 0 : c->waits_for;

	if (buffer_needs_tail(c))
	{
		tail_ask(c);
		return;
	}
	if (!may_wait(c))
		return;
	if (buffer_reads_tail())
		tail_wake();			/* from now on it is looked at often */
	if (!queue_join(c, first, any ? c->asked->nnames : first + 1, retry_us))
		refuse_by_memory(c);
	else if (c->asked->kind != DLOCK_CALL_WAIT)
		check_deadlock(c);
}

/* An acquire was not granted: let it wait, if it may and has time left; else answer it. */
static void
wait_or_refuse(call *c, int64_t retry_us)
{
	if (c->answer->outcome == LEASE_BUSY && c->asked->wait_us != 0 &&
		moment.now_us < c->end_us)
		wait_for(c, retry_us);
	else
	{
		queue_leave(c);
		answer(c);
	}
}

/* ----------------------------------------------------------------
 * One name
 * ----------------------------------------------------------------
 */

/*
 * A guard: before it locks its row it is announced; afterwards, the lease must still be
 * held, and the guard be there.
 */
static void
make_guard(call *c)
{
	lease_bytes name = c->asked->names[0];
	held	   *h;

	c->request.op = LEASE_RENEW;
	h = decide_find(name, &c->request, party_of(c), &moment);
	c->answer->yes = h != NULL;
	if (h != NULL && c->asked->kind == DLOCK_CALL_BEGIN_GUARD)
	{
		if (!decide_guard(h, party_of(c), &moment, &c->answer->count))
		{
			buffer_undo(c);
			return;
		}
	}
	else if (h != NULL)
	{
		guard	   *g = h->guards;

		while (g != NULL && g->connection_id != c->asked->caller->connection_id)
			g = g->next;
		c->answer->yes = g != NULL;
		if (g != NULL)
			g->checks++;
	}
	answer(c);
}

/*
 * Say whether a call first has to know which guards of its names have ended; then it is
 * made again when that is known.
 */
static bool
probes(call *c)
{
	if (c->probed)
		return false;
	for (size_t i = 0; i < c->asked->nnames; i++)
		if (state_has_guards(c->asked->names[i]))
		{
			guards_probe(c);
			return true;
		}
	return false;
}

/*
 * Decide about an acquire of one name.  False: it would take a lease more than the account
 * may have, and has failed.
 */
static bool
decide_acquire(call *c, lease_bytes name, decision *d)
{
	bool		has_room = state_room_for(c->account) > 0;

	*d = decide(name, &c->request, party_of(c), &moment, !has_room);
	if (has_room || d->failed || !lease_is_granted(d->outcome))
		return true;
	if (d->outcome == LEASE_GRANTED)
	{
		refuse_by_leases(c);
		return false;
	}
	*d = decide(name, &c->request, party_of(c), &moment, false);
	return true;
}

/*
 * Say whether an acquire that does not wait is refused for what is durable: that can be
 * answered whatever becomes of an append.
 */
bool
calls_is_refused(call *c)
{
	const state_name *name = c->asked->kind == DLOCK_CALL_APPLY &&
		c->request.op == LEASE_ACQUIRE && c->asked->wait_us == 0 ?
		state_find_name(c->asked->names[0]) : NULL;

	if (name == NULL || position_of_name(name) > buffer_durable() ||
		has_line(c->asked->names[0]))
		return false;
	moment = lease_moment_now(false);
	c->request.behind = false;
	return decide(c->asked->names[0], &c->request, party_of(c), &moment,
				  true).outcome == LEASE_BUSY;
}

/* Take a lease on a name, or wait for it. */
static void
make_acquire(call *c)
{
	lease_bytes name = c->asked->names[0];
	decision	d;

	if (has_line(name))
		calls_attend(name, false);
	c->request.behind = has_line(name);
	if (!decide_acquire(c, name, &d))
		return;
	if (d.failed)
	{
		buffer_undo(c);
		return;
	}
	note_decision(c, &d);
	c->over_us = d.over_us;
	if (!lease_is_granted(d.outcome))
	{
		if (d.outcome != LEASE_BUSY || !probes(c))
			wait_or_refuse(c, d.retry_us);
		return;
	}
	answer(c);
	calls_attend(name, true);
}

/* Renew, release, downgrade, or evict. */
static void
make_change(call *c)
{
	lease_bytes name = c->asked->names[0];
	decision	d = decide(name, &c->request, party_of(c), &moment, false);

	if (d.failed)
	{
		buffer_undo(c);
		return;
	}
	note_decision(c, &d);
	if (d.is_early)
		calls_finish(c);
	else
		answer(c);
	if (d.changed)
		calls_attend(name, true);
}

/* Say whether the holds that a call waits for have ended; if so, it is answered. */
static bool
have_ended(call *c, const state_name *name, int64_t *next_us)
{
	c->answer->yes = name == NULL ||
		decide_have_ended(name, c->youngest, &moment, next_us);
	return c->answer->yes;
}

/* Remember the holds that are there, and wait for them to end. */
static void
make_wait(call *c)
{
	const state_name *name = state_find_name(c->asked->names[0]);
	int64_t		next_us = INT64_MAX;

	if (buffer_needs_tail(c))
	{
		tail_ask(c);
		return;
	}
	if (c->youngest == 0 && name != NULL)
		c->youngest = decide_youngest(name, &moment);
	if (have_ended(c, name, &next_us) || c->asked->wait_us == 0 ||
		moment.now_us >= c->end_us)
		answer(c);
	else
		wait_for(c, next_us);
}

/* ----------------------------------------------------------------
 * Several names
 * ----------------------------------------------------------------
 */

/* Serve the lines of all names of a call, and clear its outcomes. */
static void
begin_names(call *c)
{
	c->over_us = 0;
	for (size_t i = 0; i < c->asked->nnames; i++)
	{
		if (has_line(c->asked->names[i]))
			calls_attend(c->asked->names[i], false);
		c->outcomes[i] = LEASE_BUSY;
		c->answer->tokens[i] = 0;
	}
}

/* Decide about one of the names of a call; "only_try" as in decide(). */
static decision
decide_nth(call *c, size_t i, bool only_try)
{
	decision	d;

	c->request.behind = has_line(c->asked->names[i]);
	d = decide(c->asked->names[i], &c->request, party_of(c), &moment, only_try);
	if (!only_try && lease_is_granted(d.outcome))
	{
		c->outcomes[i] = (uint8_t) d.outcome;
		c->answer->tokens[i] = d.token;
		if (c->over_us == 0 || d.over_us < c->over_us)
			c->over_us = d.over_us;
	}
	return d;
}

/* A call has got what it wanted, or some of it. */
static void
answer_several(call *c)
{
	c->answer->outcome = LEASE_GRANTED;
	queue_leave(c);
	answer(c);
	for (size_t i = 0; i < c->asked->nnames; i++)
		if (lease_is_granted((lease_outcome) c->outcomes[i]))
			calls_attend(c->asked->names[i], false);
}

/* Take all names of a call, or none: each is only tried first. */
static void
make_acquire_all(call *c)
{
	decision	d = {.outcome = LEASE_GRANTED};
	size_t		n = 0;
	size_t		added = 0;

	if (probes(c))
		return;
	begin_names(c);
	for (; n < c->asked->nnames && lease_is_granted(d.outcome) && !d.failed; n++)
	{
		d = decide_nth(c, n, true);
		added += d.outcome == LEASE_GRANTED;
	}
	if (!lease_is_granted(d.outcome) && !d.failed)
	{
		c->waits_for = c->answer->failed_name = n - 1;
		note_decision(c, &d);
		queue_leave(c);
		wait_or_refuse(c, d.retry_us);
		return;
	}
	if (added > state_room_for(c->account) && !d.failed)
	{
		refuse_by_leases(c);
		return;
	}
	for (n = 0; n < c->asked->nnames && !d.failed; n++)
		d = decide_nth(c, n, false);
	if (d.failed)
	{
		buffer_undo(c);
		return;
	}
	note_decision(c, &d);
	answer_several(c);
}

/*
 * Say which name of a call is misuse, so that none may be taken; or that memory is short.
 * The names that are free are tried in their order, or only those that were taken under
 * this request id.
 */
static bool
find_misuse(call *c, bool only_repeated, size_t *wanted, decision *d)
{
	c->request.only_repeated = only_repeated;
	for (size_t i = 0; i < c->asked->nnames && *wanted > 0; i++)
	{
		if (lease_is_granted((lease_outcome) c->outcomes[i]))
			continue;
		*d = decide_nth(c, i, true);
		if (d->failed)
			return true;
		if (lease_is_granted(d->outcome))
		{
			c->outcomes[i] = (uint8_t) d->outcome;
			--*wanted;
		}
		else if (d->outcome != LEASE_BUSY)
		{
			c->answer->failed_name = i;
			return true;
		}
	}
	return false;
}

/* Take some of a call's names: those that are free. */
static void
make_acquire_any(call *c)
{
	decision	d = {.outcome = LEASE_BUSY};
	int64_t		retry_us = INT64_MAX;
	size_t		wanted = c->asked->wanted;
	size_t		added = 0;
	bool		any = false;

	if (probes(c))
		return;
	begin_names(c);
	/* a repeated call is to answer the same, whatever has come free meanwhile */
	if ((c->request.request.length > 0 && find_misuse(c, true, &wanted, &d)) ||
		find_misuse(c, false, &wanted, &d))
	{
		if (d.failed)
		{
			buffer_undo(c);
			return;
		}
		for (size_t i = 0; i < c->asked->nnames; i++)
			c->outcomes[i] = LEASE_BUSY;
		note_decision(c, &d);
		queue_leave(c);
		answer(c);
		return;
	}
	for (size_t i = 0; i < c->asked->nnames; i++)
		added += c->outcomes[i] == LEASE_GRANTED;
	if (added > state_room_for(c->account))
	{
		refuse_by_leases(c);
		return;
	}
	for (size_t i = 0; i < c->asked->nnames; i++)
	{
		bool		takes = lease_is_granted((lease_outcome) c->outcomes[i]);

		d = decide_nth(c, i, !takes);
		if (d.failed)
		{
			buffer_undo(c);
			return;
		}
		any |= takes;
		if (!takes)
			retry_us = lease_earlier(retry_us, d.retry_us);
	}
	if (any)
		answer_several(c);
	else
	{
		c->answer->outcome = LEASE_BUSY;
		wait_or_refuse(c, retry_us);
	}
}

/* Renew or release the leases on the names, each as in a call of its own. */
static void
make_apply_each(call *c)
{
	uint64_t	position = 0;

	/* only a release of one lease is answered while somebody locks the server */
	if (buffer_is_shut())
	{
		calls_refuse(c, "55P03", LOCKED_MESSAGE);
		return;
	}
	for (size_t i = 0; i < c->asked->nnames; i++)
	{
		lease_bytes name = c->asked->names[i];
		decision	d;

		c->request.token = c->asked->tokens != NULL ? c->asked->tokens[i] : 0;
		d = decide(name, &c->request, party_of(c), &moment, false);
		if (d.failed)
		{
			buffer_undo(c);
			return;
		}
		c->answer->done[i] = d.outcome == LEASE_RENEWED ||
			d.outcome == LEASE_RELEASED;
		if (!d.is_early && position_of(name) > position)
			position = position_of(name);
	}
	buffer_answer(c, position);
	for (size_t i = 0; i < c->asked->nnames; i++)
		if (c->answer->done[i])
			calls_attend(c->asked->names[i], true);
}

/*
 * The lease with which a slice begins.  If that is not known, the call begins again; what
 * it has dropped is gone, and what it has renewed is passed over, and counts.
 */
static held *
begin_slice(call *c)
{
	held	   *h = c->slice != 0 && c->shuffles == state_shuffles() ?
		state_find(c->slice) : NULL;

	if (h == NULL)
	{
		if (c->request.op == LEASE_RENEW)
			c->before = 0;
		h = state_owned(c->request.owner, c->account, NULL);
	}
	c->shuffles = state_shuffles();
	c->next_slice = 0;
	return h;
}

/* Say whether a lease has been renewed since a call began, as it asks. */
static bool
is_renewed(const held *h, const call *c)
{
	return c->request.op == LEASE_RENEW && !h->leaving && !h->gone &&
		h->ttl_us == c->request.ttl_us &&
		h->deadline_us >= c->start_us + c->request.ttl_us;
}

/*
 * Renew or drop all that an owner has: one slice of it, on which the call then rests.
 * Others are let in between slices, and a buffer gets only so much of a call.
 */
static void
make_apply_all(call *c)
{
	state_name *waited[SLICE_MOST];
	size_t		nwaited = 0;
	size_t		left = SLICE_MOST;
	size_t		looks = SLICE_LOOKS;
	uint64_t	position = 0;
	held	   *h = begin_slice(c);
	held	   *next;

	c->answer->count = c->before;
	for (; h != NULL; h = next)
	{
		state_name *name = h->name;
		decision	d = {.changed = true};

		if (left == 0 || looks-- == 0)
		{
			c->next_slice = h->token;
			break;
		}
		next = state_owned(c->request.owner, c->account, h);
		if (!is_renewed(h, c))
		{
			d = decide_one(h, &c->request, party_of(c), &moment);
			if (d.failed)
			{
				buffer_undo(c);
				return;
			}
			left--;
			if (d.changed && name->queue != NULL)
				waited[nwaited++] = name;
		}
		c->answer->count += d.changed;
		if (position_of_name(name) > position)
			position = position_of_name(name);
	}
	buffer_answer(c, position);
	/* what was changed has a copy, so the names are still there */
	for (size_t i = 0; i < nwaited; i++)
		calls_attend(state_name_bytes(waited[i]), true);
}

/* ----------------------------------------------------------------
 * Making calls
 * ----------------------------------------------------------------
 */

/* Refuse a call if its caller may make none: true.  It may still be an operator. */
bool
calls_refuse_caller(call *c)
{
	bool		refuses = !c->asked->is_operator && !upkeep_lists(c->account);

	if (refuses)
		calls_refuse(c, "42501", "permission denied for account '%s'@'%s': it is not in dlock.callers",
					 c->account->user.data, c->account->host.data);
	return refuses;
}

/* Make a call, from the beginning. */
void
calls_make(call *c)
{
	if (calls_refuse_caller(c))
		return;
	moment = lease_moment_now(false);
	c->over_us = 0;
	switch (c->asked->kind)
	{
		case DLOCK_CALL_APPLY:
			if (c->request.op == LEASE_ACQUIRE)
				make_acquire(c);
			else
				make_change(c);
			break;
		case DLOCK_CALL_ACQUIRE_ALL:
			make_acquire_all(c);
			break;
		case DLOCK_CALL_ACQUIRE_ANY:
			make_acquire_any(c);
			break;
		case DLOCK_CALL_APPLY_EACH:
			make_apply_each(c);
			break;
		case DLOCK_CALL_APPLY_ALL:
			make_apply_all(c);
			break;
		case DLOCK_CALL_WAIT:
			make_wait(c);
			break;
		case DLOCK_CALL_READ:
			if (buffer_reads_tail() && !c->has_tail)
			{
				tail_ask(c);
				break;
			}
			if (probes(c))
				break;
			if (!look_at(c->asked, c->answer))
				refuse_by_memory(c);
			else
				calls_finish(c);
			break;
		case DLOCK_CALL_BEGIN_GUARD:
		case DLOCK_CALL_CHECK_GUARD:
			make_guard(c);
			break;
	}
}

/* Have a call that waits for several names made again. */
static void
wake_call(call *c)
{
	if (c->is_woken)
		return;
	c->is_woken = true;
	c->next_woken = NULL;
	*woken_end = c;
	woken_end = &c->next_woken;
}

/* Make the calls that were woken, and those that these wake. */
void
calls_make_woken(void)
{
	while (woken != NULL)
	{
		call	   *c = woken;

		woken = c->next_woken;
		if (woken == NULL)
			woken_end = &woken;
		c->is_woken = false;
		/* one that has got what it wanted waits no more, and one in a list is made later */
		if (c->nplaces == 0 || c->list != NULL)
			continue;
		lease_count(LEASE_COUNT_woken, 1);
		calls_make(c);
	}
}

/*
 * Serve the waiters in line for a name, from the head on, as far as that is possible now.
 * Returns when to look again.
 */
static int64_t
serve(lease_bytes bytes)
{
	while (has_line(bytes))
	{
		call	   *head = state_find_name(bytes)->queue->line.head->call;
		decision	d;

		head->request.behind = false;
		if (!decide_acquire(head, bytes, &d))
			continue;
		if (d.failed)
		{
			buffer_undo(head);
			return moment.now_us;
		}
		if (d.outcome == LEASE_BUSY)
			return d.retry_us;
		lease_count(LEASE_COUNT_woken, 1);
		note_decision(head, &d);
		head->over_us = d.over_us;
		head->from_line = lease_is_granted(d.outcome);
		queue_leave(head);
		answer(head);
	}
	return INT64_MAX;
}

/*
 * Let the watchers of a name look: those that want several names only if the name has
 * changed, or their time has come, so that two of them do not wake each other for ever.
 * Returns when to look again.
 */
static int64_t
tell_watchers(state_name *name, bool changed)
{
	int64_t		again_us = INT64_MAX;
	place	   *next;

	for (place *p = name->queue != NULL ? name->queue->watchers.head : NULL;
		 p != NULL; p = next)
	{
		call	   *c = p->call;
		int64_t		next_us;

		next = p->next;
		if (c->asked->kind != DLOCK_CALL_WAIT)
		{
			if (changed || p->retry_us <= moment.now_us)
				wake_call(c);
			else
				again_us = lease_earlier(again_us, p->retry_us);
		}
		else if (have_ended(c, name, &next_us))
		{
			lease_count(LEASE_COUNT_woken, 1);
			queue_leave(c);
			answer(c);
			if (next == NULL)
				break;			/* the queue may be gone */
		}
		else
			again_us = lease_earlier(again_us, next_us);
	}
	return again_us;
}

/* Serve those who wait for a name, which has changed, or whose queue is due. */
void
calls_attend(lease_bytes bytes, bool changed)
{
	state_name *name = state_find_name(bytes);
	char		copy[LEASE_STRING_MAX];
	lease_moment old = moment;
	int64_t		again_us;

	if (name == NULL || name->queue == NULL)
		return;
	/* a queue that becomes empty is gone, and so may be its name */
	memcpy(copy, bytes.data, bytes.length);
	bytes.data = copy;
	moment = lease_moment_now(false);
	again_us = serve(bytes);
	name = state_find_name(bytes);
	if (name != NULL && name->queue != NULL)
		again_us = lease_earlier(again_us, tell_watchers(name, changed));
	name = state_find_name(bytes);
	if (name != NULL && name->queue != NULL)
		queue_set_due(name->queue, again_us);
	moment = old;
}

/* ----------------------------------------------------------------
 * Given up by its caller, and reaped
 * ----------------------------------------------------------------
 */

/* Give back holds that a call was granted and its caller will not learn of. */
static void
give_back(const call *c, lease_bytes name, uint64_t token, lease_outcome outcome)
{
	lease_request request = {
		.op = LEASE_RELEASE, .owner = c->request.owner, .token = token,
		.holds = lease_holds_added(&c->request, outcome),
		.unless_repeated = c->request.request.length > 0
	};
	const held *h = state_find(token);
	held		was = {0};
	decision	d;

	if (request.holds == 0 || h == NULL)
		return;
	was = *h;
	moment = lease_moment_now(false);
	d = decide(name, &request, party_of(c), &moment, false);
	/* like a release that was answered, it is decided again if the append fails */
	if (d.changed && !d.is_early && !d.failed)
		d.failed = !buffer_owe(&was, request.holds, party_of(c));
	if (d.failed)
		buffer_undo(NULL);
	else if (d.changed)
		calls_attend(name, true);
}

/* The same for all that it was granted. */
void
calls_give_back(call *c)
{
	if (c->asked->kind == DLOCK_CALL_APPLY && c->request.op == LEASE_ACQUIRE)
		give_back(c, c->asked->names[0], c->answer->token, c->answer->outcome);
	else if (c->outcomes != NULL)
		for (size_t i = 0; i < c->asked->nnames; i++)
			give_back(c, c->asked->names[i], c->answer->tokens[i],
					  (lease_outcome) c->outcomes[i]);
}

/* End leases that are over, some at a time.  Returns when there may be more; 0: now. */
int64_t
calls_reap(void)
{
	lease_request request = {.op = LEASE_REAP};
	size_t		left = REAP_MOST;
	held	   *h;

	moment = lease_moment_now(false);
	while ((h = state_first_due()) != NULL && left-- > 0)
	{
		char		name[LEASE_STRING_MAX];
		lease_bytes bytes = {name, h->name->length};
		int64_t		due_us = h->due.due_us > INT64_MAX - moment.delay_us || h->leaving ?
			h->due.due_us : h->due.due_us + moment.delay_us;
		decision	d;

		if (due_us > moment.now_us)
			return due_us;
		memcpy(name, h->name->data, h->name->length);
		d = decide_one(h, &request, (party) {0}, &moment);
		if (d.failed)
		{
			buffer_undo(NULL);
			return moment.now_us + REAP_AGAIN_US;
		}
		if (!d.changed)
			state_put_off(h, moment.now_us + REAP_AGAIN_US);
		lease_count(LEASE_COUNT_reaped, d.changed);
		calls_attend(bytes, true);
		calls_make_woken();
	}
	return h == NULL ? INT64_MAX : 0;
}
