/*
 * lease_waiters.c
 *	  Calls, and who of them stands in line for which name.
 *
 * A call is in one list at a time, and all lists are protected by the engine's
 * mutex.  A queue exists as long as somebody waits for its name.
 *
 * Deadlocks.  An owner (with its account) is stuck if a call of its waits that
 * nobody can serve but somebody who is stuck too; permits are counted.  The search
 * assumes at first that all who wait are stuck, and then strikes out those that can
 * go on, until nothing changes.  Whoever remains is in a deadlock or behind one.
 * Holds that are over do not count.  One that waits for any of several names has a
 * place for each, and can go on if it can at one of them.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_waiters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lease_batch.h"
#include "udf_text.h"

#define QUEUE_SLOTS		LEASE_BUCKETS

static lease_queue *queues[QUEUE_SLOTS];
static size_t nwaiters = 0;
static size_t nothers = 0;		/* of these, places of one that has others too */

/* The same by a hash of the owner. */
#define OWNER_SLOTS		4096
static size_t nwaiters_of[OWNER_SLOTS];

/* ----------------------------------------------------------------
 * Lists
 * ----------------------------------------------------------------
 */

/* Put a call at the end of a list. */
void
lease_calls_append(lease_calls *list, lease_call *call)
{
	call->list = list;
	call->next = NULL;
	call->prev = list->tail;
	if (list->tail != NULL)
		list->tail->next = call;
	else
		list->head = call;
	list->tail = call;
	list->count++;
}

/* Put a call at the beginning of a list. */
void
lease_calls_push(lease_calls *list, lease_call *call)
{
	call->list = list;
	call->prev = NULL;
	call->next = list->head;
	if (list->head != NULL)
		list->head->prev = call;
	else
		list->tail = call;
	list->head = call;
	list->count++;
}

/* Take a call out of its list. */
void
lease_calls_remove(lease_call *call)
{
	lease_calls *list = call->list;

	if (list == NULL)
		return;
	if (call->prev != NULL)
		call->prev->next = call->next;
	else
		list->head = call->next;
	if (call->next != NULL)
		call->next->prev = call->prev;
	else
		list->tail = call->prev;
	list->count--;
	call->list = NULL;
	call->next = call->prev = NULL;
}

/* ----------------------------------------------------------------
 * Queues
 * ----------------------------------------------------------------
 */

/* The queue of a name, or NULL. */
lease_queue *
lease_queue_find(lease_bytes name)
{
	lease_queue *queue = queues[lease_table_bucket(name)];

	while (queue != NULL && !lease_same(queue->name, name))
		queue = queue->next;
	return queue;
}

/* The queue of a name, made if need be. */
lease_queue *
lease_queue_get(lease_bytes name)
{
	lease_queue *queue = lease_queue_find(name);
	uint32_t	slot = lease_table_bucket(name);

	if (queue != NULL)
		return queue;
	queue = calloc(1, sizeof(lease_queue));
	if (queue == NULL)
		abort();
	memcpy(queue->data, name.data, name.length);
	queue->name = (lease_bytes) {queue->data, name.length};
	queue->due_us = INT64_MAX;
	queue->next = queues[slot];
	queues[slot] = queue;
	return queue;
}

void
lease_queue_drop_if_unused(lease_queue *queue)
{
	lease_queue **place = &queues[lease_table_bucket(queue->name)];

	if (queue->line.count > 0 || queue->watchers.count > 0)
		return;
	while (*place != queue)
		place = &(*place)->next;
	*place = queue->next;
	free(queue->blockers);
	free(queue);
}

/*
 * Note who is in the way of those who wait, as it is now.  Whose lease is over is not,
 * although a lock delay may keep the name: that ends whatever its owner does.
 */
void
lease_queue_look(lease_queue *queue, const lease_name *name,
				 const lease_moment *moment)
{
	queue->nblockers = 0;
	if (queue->blockers_room < name->count)
	{
		queue->blockers_room = name->count * 2;
		queue->blockers = realloc(queue->blockers, queue->blockers_room *
								  sizeof(lease_blocker));
		if (queue->blockers == NULL)
			abort();
	}
	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];
		lease_blocker *blocker = &queue->blockers[queue->nblockers];

		if (member->gone && !member->row.locked)
			continue;
		blocker->owner_length = member->row.owner_length;
		memcpy(blocker->owner, member->row.owner, member->row.owner_length);
		strcpy(blocker->user, member->row.user);
		strcpy(blocker->host, member->row.host);
		blocker->mode = member->row.mode;
		blocker->permits = member->row.version;
		blocker->over_us = member->gone ? 0 :
			member->life == LEASE_BOUND ? INT64_MAX : member->deadline_us;
		blocker->end_us = member->row.locked ||
			member->life == LEASE_BOUND ? INT64_MAX : member->deadline_us;
		if (blocker->end_us > moment->now_us)
			queue->nblockers++;
	}
}

/*
 * Collect the queues to look at now, and say when the next one is due, be it
 * now for want of room.
 */
size_t
lease_queue_due(int64_t now_us, lease_queue **due, size_t room,
				int64_t *next_us)
{
	size_t		n = 0;

	*next_us = INT64_MAX;
	if (nwaiters == 0)
		return 0;
	for (size_t i = 0; i < QUEUE_SLOTS; i++)
		for (lease_queue *queue = queues[i]; queue != NULL;
			 queue = queue->next)
			if (queue->due_us <= now_us && n < room)
				due[n++] = queue;
			else if (queue->due_us < *next_us)
				*next_us = queue->due_us;
	return n;
}

/* ----------------------------------------------------------------
 * Waiters
 * ----------------------------------------------------------------
 */

/* How many wait as an owner, or as another one of the same hash. */
static size_t *
waiters_of(const char *owner, size_t length)
{
	return &nwaiters_of[lease_hash((lease_bytes) {owner, length}, 0) %
						OWNER_SLOTS];
}

void
lease_waiter_join(lease_call *call, lease_queue *queue)
{
	call->queue = queue;
	call->place = LEASE_PLACE_LINE;
	lease_calls_append(call->watches ? &queue->watchers : &queue->line, call);
	++*waiters_of(call->request.owner.data, call->request.owner.length);
	nwaiters++;
}

/* Give up all the places of a call that waits for any of several names. */
static void
leave_places(lease_call *call)
{
	nothers -= call->nnames - 1;
	for (size_t i = 0; i < call->nnames; i++)
		lease_waiter_leave(call->places[i]);
}

/*
 * Take a waiter out of its queue, or queues, which may be gone after that.  Whoever
 * was behind it is looked at.
 */
void
lease_waiter_leave(lease_call *call)
{
	lease_queue *queue = call->queue;

	if (call->places != NULL)
	{
		leave_places(call);
		return;
	}
	if (call->list == &queue->line && queue->line.head == call)
		queue->due_us = 0;
	lease_calls_remove(call);
	call->queue = NULL;
	--*waiters_of(call->request.owner.data, call->request.owner.length);
	nwaiters--;
	lease_queue_drop_if_unused(queue);
}

/* Make the calls that stand for a call which waits for any of its names. */
static void
make_places(lease_call *call)
{
	call->places = malloc(call->nnames * sizeof(lease_call *));
	if (call->places == NULL)
		abort();
	for (size_t i = 0; i < call->nnames; i++)
	{
		lease_call *place = lease_call_create_own(LEASE_ACQUIRE, 0,
												  call->request.owner,
												  call->names[i],
												  &call->caller);

		place->kind = call->kind;
		place->request.mode = call->request.mode;
		place->request.claim = call->request.claim;
		place->stands_for = call;
		place->watches = true;
		place->waiting_since_us = call->waiting_since_us;
		call->places[i] = place;
	}
}

/* Say whether a call waits for any of several names, or is about to look at them again. */
bool
lease_waiter_has_places(const lease_call *call)
{
	return call->places != NULL && call->places[0]->queue != NULL;
}

/* Let a call wait for any of its names; it stays where it waits already. */
void
lease_waiter_join_all(lease_call *call)
{
	bool		joins = !lease_waiter_has_places(call);

	if (call->places == NULL)
		make_places(call);
	for (size_t i = 0; i < call->nnames; i++)
	{
		call->places[i]->retry_us = call->retry_us;
		if (joins)
			lease_waiter_join(call->places[i],
							  lease_queue_get(call->names[i]));
	}
	call->place = LEASE_PLACE_LINE;
	if (joins)
		nothers += call->nnames - 1;
}

/* How many places there are in all queues. */
size_t
lease_waiters_count(void)
{
	return nwaiters;
}

/* How many wait. */
size_t
lease_waiters_connections(void)
{
	return nwaiters - nothers;
}

void
lease_waiters_visit(void (*visit) (const lease_call *call, size_t position,
								   void *context),
					void *context)
{
	for (size_t i = 0; i < QUEUE_SLOTS; i++)
		for (lease_queue *queue = queues[i]; queue != NULL;
			 queue = queue->next)
		{
			size_t		position = 0;

			for (lease_call *c = queue->line.head; c != NULL; c = c->next)
				visit(c, ++position, context);
			for (lease_call *c = queue->watchers.head; c != NULL; c = c->next)
				visit(c, 0, context);
		}
}

/* ----------------------------------------------------------------
 * Deadlocks
 * ----------------------------------------------------------------
 */

static bool
same_party(const char *owner, size_t length, const char *user,
		   const char *host, const lease_call *call)
{
	return lease_same((lease_bytes) {owner, length}, call->request.owner) &&
		strcmp(user, call->caller.user) == 0 &&
		strcmp(host, call->caller.host) == 0;
}

/* Somebody who keeps a waiter from being served. */
typedef struct obstacle
{
	const char *owner;
	size_t		owner_length;
	const char *user;
	const char *host;
	bool		in_queue;
} obstacle;

/* Who waits, by a hash of the owner; only while deadlocks are looked for. */
static lease_call **parties = NULL;
static size_t nparties = 0;

static size_t
hash_party(const char *owner, size_t length)
{
	return lease_hash((lease_bytes) {owner, length}, 0) % nparties;
}

/* The waiter of an obstacle that is stuck, or NULL. */
static lease_call *
stuck_call(const obstacle *what)
{
	for (lease_call *c = parties[hash_party(what->owner, what->owner_length)];
		 c != NULL; c = c->same)
		if (c->stuck && same_party(what->owner, what->owner_length, what->user,
								   what->host, c))
			return c;
	return NULL;
}

/* Begin with everybody stuck who has an owner. */
static void
assume_stuck(void)
{
	if (nparties < 2 * nwaiters)
	{
		nparties = 4 * nwaiters;
		parties = realloc(parties, nparties * sizeof(*parties));
		if (parties == NULL)
			abort();
	}
	memset(parties, 0, nparties * sizeof(*parties));
	for (size_t i = 0; i < QUEUE_SLOTS; i++)
		for (lease_queue *q = queues[i]; q != NULL; q = q->next)
			for (int l = 0; l < 2; l++)
				for (lease_call *c = l == 0 ? q->line.head : q->watchers.head;
					 c != NULL; c = c->next)
				{
					size_t		h = hash_party(c->request.owner.data,
											   c->request.owner.length);

					c->stuck = c->request.owner.length > 0;
					c->same = parties[h];
					parties[h] = c;
				}
}

/*
 * Say whether a waiter can be served if all who are not stuck give up what they hold,
 * and if not, what is in its way.  One that wants permits can be served beside so many
 * that all are within its limit, all others need all holders to go on.  "ahead" is the first
 * before it in its line that is stuck, or NULL.
 */
static bool
can_go_on(const lease_call *call, const lease_call *ahead, int64_t now_us,
		  obstacle *what)
{
	const lease_queue *queue = call->queue;
	bool		permit = call->request.mode == LEASE_PERMIT && !call->watches;
	uint64_t	permits = 0;	/* of those who are stuck */
	obstacle	first = {0};	/* of them */

	for (size_t i = 0; i < queue->nblockers; i++)
	{
		const lease_blocker *b = &queue->blockers[i];
		obstacle	o = {b->owner, b->owner_length, b->user, b->host, false};

		if (b->end_us <= now_us)
			continue;
		if (permit && b->mode == LEASE_PERMIT)
		{
			/* its own that is over, and guarded, is not in its way */
			if (stuck_call(&o) == NULL ||
				(b->over_us <= now_us &&
				 same_party(b->owner, b->owner_length, b->user, b->host, call)))
				continue;
			if (permits == 0)
				first = o;
			permits += b->permits;
			continue;
		}
		if (lease_modes_are_compatible(b->mode, call->request.mode))
			continue;
		/* what it has itself it enters again, or gives back elsewhere */
		if (!call->request.claim &&
			same_party(b->owner, b->owner_length, b->user, b->host, call))
			continue;
		if (stuck_call(&o) != NULL)
		{
			*what = o;
			return false;
		}
	}
	if (permit &&
		permits + lease_holds_asked(&call->request) > call->request.limit)
	{
		*what = first;
		return false;
	}
	if (ahead == NULL)
		return true;
	*what = (obstacle) {
		ahead->request.owner.data, ahead->request.owner.length,
		ahead->caller.user, ahead->caller.host, true
	};
	return false;
}

/* Say whether a call is stuck, with all its places. */
static void
set_stuck(lease_call *call, bool stuck)
{
	const lease_call *all = call->stands_for;

	call->stuck = stuck;
	for (size_t i = 0; all != NULL && i < all->nnames; i++)
		all->places[i]->stuck = stuck;
}

/* Strike out who can go on: true if there was anybody. */
static bool
strike_out(lease_queue *queue, int64_t now_us)
{
	const lease_call *ahead = NULL;
	bool		any = false;
	obstacle	what;

	for (lease_call *c = queue->line.head; c != NULL; c = c->next)
	{
		if (c->stuck && can_go_on(c, ahead, now_us, &what))
		{
			c->stuck = false;
			any = true;
		}
		if (c->stuck && ahead == NULL)
			ahead = c;
	}
	for (lease_call *c = queue->watchers.head; c != NULL; c = c->next)
		if (c->stuck && can_go_on(c, ahead, now_us, &what))
		{
			set_stuck(c, false);
			any = true;
		}
	return any;
}

/* The first in a call's line that is stuck and before it, or NULL. */
static const lease_call *
first_ahead(const lease_call *call)
{
	const lease_call *c = call->queue->line.head;

	while (c != NULL && c != call && !c->stuck)
		c = c->next;
	return c != call ? c : NULL;
}

/* An owner, if whoever is told may know it. */
static void
add_owner(char *text, size_t size, const obstacle *what,
		  const lease_call *victim)
{
	size_t		length = strlen(text);
	char		shown[DLOCK_SHOWN_SIZE];
	bool		known = victim->caller.is_operator ||
		(strcmp(what->user, victim->caller.user) == 0 &&
		 strcmp(what->host, victim->caller.host) == 0);

	snprintf(text + length, size - length, "owner \"%s\"",
			 known ? dlock_show(shown, (lease_bytes) {
				 what->owner, what->owner_length
			 }) : DLOCK_MASK);
}

/* Strike out until nobody is left who can go on. */
static void
settle(int64_t now_us)
{
	bool		changed = true;

	while (changed)
	{
		changed = false;
		for (size_t i = 0; i < QUEUE_SLOTS; i++)
			for (lease_queue *q = queues[i]; q != NULL; q = q->next)
				changed |= strike_out(q, now_us);
	}
}

/* Assume that those are stuck who were found not to be, and nobody else. */
static void
invert(void)
{
	for (size_t i = 0; i < QUEUE_SLOTS; i++)
		for (lease_queue *q = queues[i]; q != NULL; q = q->next)
			for (int l = 0; l < 2; l++)
				for (lease_call *c = l == 0 ? q->line.head : q->watchers.head;
					 c != NULL; c = c->next)
					c->stuck = c->request.owner.length > 0 && !c->stuck;
}

/*
 * Say whether a call, in one place, is certain to be served if those go on who do not
 * wait for anything: nobody is before it, and whoever holds the name does not wait.
 */
static bool
is_certain(const lease_call *call, int64_t now_us)
{
	const lease_queue *queue = call->queue;

	if (queue->line.head != NULL && queue->line.head != call)
		return false;
	for (size_t i = 0; i < queue->nblockers; i++)
		if (queue->blockers[i].end_us > now_us &&
			*waiters_of(queue->blockers[i].owner,
						queue->blockers[i].owner_length) > 0)
			return false;
	return true;
}

/* The same in any of its places. */
static bool
can_wait(const lease_call *call, int64_t now_us)
{
	const lease_call *all = call->stands_for;

	if (all == NULL)
		return is_certain(call, now_us);
	for (size_t i = 0; i < all->nnames; i++)
		if (is_certain(all->places[i], now_us))
			return true;
	return false;
}

/*
 * Say whether a call that has joined a queue closes a cycle; the message tells
 * of it.
 *
 * Others may be in a cycle already: an owner who waits in two connections, and
 * is granted the lease in one of them, waits for himself then.  Whoever comes
 * later is not to be blamed for that.  So those who are stuck without this call
 * are found first, and then whether it is stuck without them.
 */
bool
lease_waiter_deadlock(lease_call *call, int64_t now_us, char *message,
					  size_t size)
{
	obstacle	what = {0};
	lease_call *at = call;

	if ((nwaiters == 1 && call->request.mode != LEASE_PERMIT &&
		 !call->request.claim) || can_wait(call, now_us))
		return false;
	assume_stuck();
	settle(now_us);
	if (!call->stuck)
		return false;
	assume_stuck();
	set_stuck(call, false);
	settle(now_us);
	invert();
	settle(now_us);
	if (!call->stuck)
		return false;

	/* follow what is in the way until we come back, or have seen enough */
	snprintf(message, size, "deadlock detected: ");
	for (size_t step = 0; step <= nwaiters; step++)
	{
		obstacle	self = {
			at->request.owner.data, at->request.owner.length,
			at->caller.user, at->caller.host, false
		};
		char		shown[DLOCK_SHOWN_SIZE];
		size_t		length;

		if (can_go_on(at, first_ahead(at), now_us, &what))
			break;
		if (step > 0)
			strncat(message, "; ", size - strlen(message) - 1);
		add_owner(message, size, &self, call);
		length = strlen(message);
		snprintf(message + length, size - length, " waits for \"%s\", %s ",
				 dlock_show(shown, at->queue->name),
				 what.in_queue ? "queued behind" : "held by");
		add_owner(message, size, &what, call);
		if (same_party(what.owner, what.owner_length, what.user, what.host,
					   call))
			return true;
		at = stuck_call(&what);
		if (at == NULL)
			break;
	}

	/*
	 * Some way leads back, if not the one that was followed: nobody of these was
	 * stuck before this call, so all who are depend on it.
	 */
	return true;
}
