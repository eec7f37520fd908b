/*
 * lease_waiters.c
 *	  The waiters of each name.
 *
 * The engine's mutex protects all of it.  A queue exists as long as its name has waiters.
 *
 * The search for deadlocks (lease_deadlock.c) finds waiters by owner and by connection.
 * It also has to know which holders are in the way of the waiters.  So each queue
 * remembers these, as of the last look.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_waiters.h"

#include <stdlib.h>
#include <string.h>

#define QUEUE_SLOTS		LEASE_BUCKETS

static lease_queue *queues[QUEUE_SLOTS];
static size_t nwaiters = 0;
static size_t nothers = 0;		/* of these, without the first place of each waiter */

/* Waiters that wait on behalf of an owner. */
static hash_table by_owner;
static hash_table by_connection;

/* ----------------------------------------------------------------
 * Queues
 * ----------------------------------------------------------------
 */

/* The queue of a name, or NULL. */
lease_queue *
lease_queue_find(lease_bytes name)
{
	lease_queue *queue = queues[lease_bucket(name)];

	while (queue != NULL && !lease_same(queue->name, name))
		queue = queue->next;
	return queue;
}

/* The queue of a name, made if need be; NULL if memory is short. */
static lease_queue *
get_queue(lease_bytes name)
{
	lease_queue *queue = lease_queue_find(name);
	uint32_t	slot = lease_bucket(name);

	if (queue != NULL)
		return queue;
	queue = calloc(1, sizeof(lease_queue));
	if (queue == NULL)
		return NULL;
	memcpy(queue->data, name.data, name.length);
	queue->name = (lease_bytes) {queue->data, name.length};
	queue->due_us = INT64_MAX;
	queue->next = queues[slot];
	queues[slot] = queue;
	return queue;
}

static void
drop_if_unused(lease_queue *queue)
{
	lease_queue **place = &queues[lease_bucket(queue->name)];

	if (queue->line.count > 0 || queue->watchers.count > 0)
		return;
	while (*place != queue)
		place = &(*place)->next;
	*place = queue->next;
	free(queue->blockers);
	free(queue);
}

/*
 * Make room for the holders that are in the way, and say where their owners' bytes go;
 * NULL if memory is short.
 */
static char *
make_room(lease_queue *queue, const lease_name *name)
{
	size_t		size = name->count * sizeof(lease_blocker) + 1;

	for (size_t i = 0; i < name->count; i++)
		size += name->members[i].holder->owner.length;
	if (size > queue->blockers_size)
	{
		free(queue->blockers);
		queue->blockers = malloc(size * 2);
		queue->blockers_size = queue->blockers != NULL ? size * 2 : 0;
	}
	return queue->blockers == NULL ? NULL :
		(char *) &queue->blockers[name->count];
}

/*
 * Note which holders are in the way of the waiters now.  A holder whose lease is over is
 * not, although a lock delay may keep the name: the delay ends whatever its owner does.
 * If memory is short, the holders are "unknown" until the next look.
 */
void
lease_queue_look(lease_queue *queue, const lease_name *name,
				 const lease_moment *moment)
{
	char	   *owners = make_room(queue, name);

	queue->nblockers = 0;
	queue->unknown = owners == NULL;
	for (size_t i = 0; i < name->count && !queue->unknown; i++)
	{
		const lease_member *member = &name->members[i];
		lease_blocker *blocker = &queue->blockers[queue->nblockers];
		bool		is_here = !member->gone && member->life == LEASE_BOUND;

		if (!lease_member_is_live(member, moment) && !member->locked)
			continue;
		blocker->owner = (lease_bytes) {owners, member->holder->owner.length};
		memcpy(owners, member->holder->owner.data, blocker->owner.length);
		owners += blocker->owner.length;
		blocker->account = member->holder->account;
		blocker->mode = member->mode;
		blocker->held = member->version;
		blocker->over_us = member->gone ? 0 :
			is_here ? INT64_MAX : member->deadline_us;
		blocker->bound = lease_member_is_bound(member, moment);
		blocker->session = is_here ? member->holder->connection_id : 0;
		blocker->guarded = member->locked;
		blocker->pinned = member->guarded;
		/* where changes go into the table at once, none of the name can be
		 * written while its first row is locked */
		blocker->guard_mode = name->anchor_locked && moment->direct ?
			LEASE_EXCLUSIVE : member->guard_mode;
		queue->nblockers++;
	}
}

/* Set when to look at a queue, whatever was set before. */
void
lease_queue_look_at(lease_queue *queue, int64_t at_us)
{
	queue->due_us = at_us;
}

/*
 * Collect the queues to look at now, at most "room" of them, and say when the next
 * one is due, which is now if one more was left out.
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

/* Make room for the first waiter: false if memory is short.  More can always be added. */
bool
lease_waiters_begin(void)
{
	return hash_reserve(&by_owner) && hash_reserve(&by_connection);
}

/* Have a waiter found by a key. */
static void
add_link(hash_table *table, hash_link *link, uint64_t hash)
{
	(void) hash_reserve(table);
	hash_add(table, link, hash);
}

/*
 * The first waiter of an owner, or the next after one; NULL: there is none.  A waiter for
 * several names is found by its places.
 */
lease_call *
lease_waiter_of(lease_party party, const lease_call *after)
{
	hash_link  *link = after != NULL ? hash_next(&after->by_owner) :
		hash_first(&by_owner, hash_bytes(party.owner, 0));

	for (; link != NULL; link = hash_next(link))
	{
		lease_call *call = hash_object(lease_call, by_owner, link);

		if (lease_same(call->request.owner, party.owner) &&
			dlock_is_caller(&call->caller, party.user, party.host))
			return call;
	}
	return NULL;
}

/* The waiter of a connection, if it waits on behalf of an owner, or NULL. */
lease_call *
lease_waiter_of_connection(uint64_t connection_id)
{
	hash_link  *link = hash_first(&by_connection, connection_id);

	return link == NULL ? NULL : hash_object(lease_call, by_connection, link);
}

/* Let a call join the queue of a name: false if there is no memory. */
static bool
join(lease_call *call, lease_bytes name)
{
	lease_queue *queue = get_queue(name);

	if (queue == NULL)
		return false;
	call->queue = queue;
	call->place = LEASE_PLACE_LINE;
	lease_calls_append(call->watches ? &queue->watchers : &queue->line, call);
	if (call->request.owner.length > 0)
	{
		add_link(&by_owner, &call->by_owner,
				 hash_bytes(call->request.owner, 0));
		add_link(&by_connection, &call->by_connection,
				 call->caller.connection_id);
	}
	nwaiters++;
	return true;
}

/*
 * Take a waiter out of its queue, or queues, if it is in any; after that a queue may be
 * gone.  If the waiter was at the head, the queue is due.
 */
void
lease_waiter_leave(lease_call *call)
{
	lease_queue *queue = call->queue;

	if (lease_waiter_has_places(call))
	{
		nothers -= call->nnames - 1;
		for (size_t i = 0; i < call->nnames; i++)
			lease_waiter_leave(call->places[i]);
		return;
	}
	if (queue == NULL)
		return;
	if (call->list == &queue->line && queue->line.head == call)
		queue->due_us = 0;
	lease_calls_remove(call);
	call->queue = NULL;
	if (call->by_owner.place != NULL)
	{
		hash_remove(&by_owner, &call->by_owner);
		hash_remove(&by_connection, &call->by_connection);
	}
	nwaiters--;
	drop_if_unused(queue);
}

/* Make the call that stands in a name's queue for one that waits for any of its names. */
static lease_call *
make_place(lease_call *call, size_t i)
{
	lease_call *place = lease_call_create_own(LEASE_ACQUIRE, 0,
											  call->request.owner,
											  call->names[i],
											  &call->caller);

	if (place == NULL)
		return NULL;
	place->kind = call->kind;
	place->request.mode = call->request.mode;
	place->request.claim = call->request.claim;
	place->stands_for = call;
	place->watches = true;
	place->waiting_since_us = call->waiting_since_us;
	return place;
}

/* Make such a call for each of the names: false if memory is short. */
static bool
make_places(lease_call *call)
{
	size_t		i = 0;

	call->places = calloc(call->nnames, sizeof(lease_call *));
	if (call->places == NULL)
		return false;
	while (i < call->nnames && (call->places[i] = make_place(call, i)) != NULL)
		i++;
	if (i == call->nnames)
		return true;
	while (i-- > 0)
		lease_call_unref(call->places[i]);
	free(call->places);
	call->places = NULL;
	return false;
}

/* Say whether a call waits for any of several names, or is about to look at them again. */
bool
lease_waiter_has_places(const lease_call *call)
{
	return call->places != NULL && call->places[0]->queue != NULL;
}

/* Let a call join the queues of all its names: false if there is no memory. */
static bool
join_all(lease_call *call)
{
	for (size_t i = 0; i < call->nnames; i++)
		if (!join(call->places[i], call->names[i]))
		{
			while (i-- > 0)
				lease_waiter_leave(call->places[i]);
			return false;
		}
	nothers += call->nnames - 1;
	return true;
}

/*
 * Let a call wait for its name, or for any of its names; it stays where it waits already.
 * False if memory is short; then it waits for none.
 */
bool
lease_waiter_join(lease_call *call)
{
	if (call->kind != DLOCK_CALL_ACQUIRE_ANY)
		return join(call, call->names[call->waits_for]);
	if (call->places == NULL && !make_places(call))
		return false;
	if (!lease_waiter_has_places(call) && !join_all(call))
		return false;
	for (size_t i = 0; i < call->nnames; i++)
		call->places[i]->retry_us = call->retry_us;
	lease_calls_remove(call);
	call->place = LEASE_PLACE_LINE;
	return true;
}

/* How many places in queues the waiters have. */
size_t
lease_waiters_count(void)
{
	return nwaiters;
}

/* How many waiters there are. */
size_t
lease_waiters_connections(void)
{
	return nwaiters - nothers;
}

void
lease_waiters_visit(lease_waiters_visitor *visit, void *context)
{
	for (size_t i = 0; i < QUEUE_SLOTS; i++)
		for (lease_queue *queue = queues[i]; queue != NULL;
			 queue = queue->next)
		{
			size_t		position = 0;

			for (lease_call *c = queue->line.head; c != NULL; c = c->next)
				visit(c, queue->name, ++position, context);
			for (lease_call *c = queue->watchers.head; c != NULL; c = c->next)
				visit(c, queue->name, 0, context);
		}
}
