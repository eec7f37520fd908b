/*
 * lease_deadlock.c
 *	  Find out whether a waiter closes a circle of owners.
 *
 * core/stuck.c decides.  This file gathers the facts: all names, waiters, holders and
 * guards on which the newcomer's wait depends, directly or by way of other owners.
 * Waiters elsewhere cost nothing.
 *
 * The last waiter to join a circle closes it.  Each newcomer searches after it has
 * joined, and if it is in a circle it leaves before the next one comes.  All of this is
 * under the engine's mutex, so the facts are of one moment.  Only the holders in the way
 * are as of the last look at the name (lease_queue_look()), which follows each change
 * that this server makes.
 *
 * Most newcomers need not search.  If no holder or guard of the name waits, these can go on
 * and give it up to the waiters in line, and in the end to the newcomer.  No circle is
 * missed: the newcomer has joined, so in a circle it finds a holder that waits.
 *
 * It is not known whose transaction has locked a row.  It counts as a transaction that
 * goes on with the lease's owner, in a connection that does not wait.
 *
 * A name whose holders could not be noted, for want of memory, may be part of any
 * circle.  A search that meets such a name answers LEASE_DEADLOCK_UNKNOWN.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_deadlock.h"

#include <assert.h>
#include <stdlib.h>

#include "array.h"
#include "lease_session.h"
#include "stuck.h"
#include "udf_text.h"

/*
 * The facts.  Names, owners and waiters are numbered in the order in which they were met.
 * Of each, and of waits, there are at most as many as places in all queues.
 */
typedef struct search
{
	uint64_t	number;			/* of the search; a waiter or queue that was met has it */
	int64_t		now_us;
	stuck_facts facts;
	lease_queue **names;
	const lease_call **owners;	/* a waiter of each */
	stuck_waiter *waiters;
	stuck_wait *waits;
	const lease_call **places;	/* of each wait */
	stuck_lease *leases;
	stuck_guard *guards;
	size_t		lease_room;
	size_t		guard_room;
	bool		failed;			/* for want of memory */
} search;

/* ----------------------------------------------------------------
 * Parties
 * ----------------------------------------------------------------
 */

static lease_party
party_of_call(const lease_call *call)
{
	return (lease_party) {
		call->request.owner, dlock_caller_user(&call->caller),
		dlock_caller_host(&call->caller)
	};
}

static lease_party
party_of_blocker(const lease_blocker *blocker)
{
	return (lease_party) {
		blocker->owner, blocker->account->user, blocker->account->host
	};
}

/* The waiter that has a place. */
static lease_call *
waiter_in(lease_call *place)
{
	return place->stands_for != NULL ? place->stands_for : place;
}

/* Say whether the lease of a holder in the way is live. */
static bool
is_live(const lease_blocker *blocker, int64_t now_us)
{
	return blocker->over_us > now_us &&
		(blocker->session == 0 || lease_session_is_alive(blocker->session));
}

/* Say whether a holder is in the way, by its lease or by its guards. */
static bool
is_in_the_way(const lease_blocker *blocker, int64_t now_us)
{
	return blocker->guarded || is_live(blocker, now_us);
}

/* ----------------------------------------------------------------
 * The facts
 * ----------------------------------------------------------------
 */

/* Meet a name. */
static void
reach_name(search *s, lease_queue *queue)
{
	if (queue->search == s->number)
		return;
	queue->search = s->number;
	queue->number = s->facts.nnames;
	s->names[s->facts.nnames++] = queue;
}

/* Add a wait of a waiter that was met. */
static void
add_wait(search *s, lease_call *place)
{
	s->places[s->facts.nwaits] = place;
	s->waits[s->facts.nwaits++] = (stuck_wait) {
		.waiter = waiter_in(place)->number,
		.name = place->queue->number,
		.mode = place->request.mode,
		.limit = place->request.limit,
		.permits = lease_holds_asked(&place->request),
		.in_line = !place->watches,
	};
}

/*
 * Meet a place of a waiter.  A watcher is in nobody's way, so its wait is added at once.
 * The wait of a waiter in line is added by visit_name(), in the line's order.
 */
static void
reach_place(search *s, lease_call *place, uint32_t owner)
{
	lease_call *waiter = waiter_in(place);

	if (waiter->search != s->number)
	{
		waiter->search = s->number;
		waiter->number = s->facts.nwaiters;
		s->waiters[s->facts.nwaiters++] = (stuck_waiter) {owner, STUCK_NONE};
	}
	reach_name(s, place->queue);
	if (place->watches)
		add_wait(s, place);
}

/* Meet an owner, with all its waiters: its number, or STUCK_NONE if it has none. */
static uint32_t
reach_owner(search *s, lease_party party)
{
	lease_call *first = lease_waiter_of(party, NULL);
	uint32_t	owner = s->facts.nowners;

	if (first == NULL)
		return STUCK_NONE;
	if (waiter_in(first)->search == s->number)
		return s->waiters[waiter_in(first)->number].owner;
	s->owners[s->facts.nowners++] = first;
	for (lease_call *place = first; place != NULL;
		 place = lease_waiter_of(party, place))
		reach_place(s, place, owner);
	return owner;
}

/* Meet a connection: the number of its waiter, or STUCK_NONE if it does not wait. */
static uint32_t
reach_connection(search *s, uint64_t connection_id)
{
	lease_call *place = lease_waiter_of_connection(connection_id);

	if (place == NULL)
		return STUCK_NONE;
	(void) reach_owner(s, party_of_call(place));
	return waiter_in(place)->number;
}

/* Make room for one more lease, and a guard: false if memory is short. */
static bool
make_room(search *s)
{
	return array_reserve(&s->leases, &s->lease_room, s->facts.nleases + 1, sizeof(stuck_lease)) &&
		array_reserve(&s->guards, &s->guard_room, s->facts.nguards + 1, sizeof(stuck_guard));
}

/* Add a holder that is in the way on a name, if its owner waits. */
static void
add_blocker(search *s, uint32_t name, const lease_blocker *blocker)
{
	uint32_t	owner;
	uint32_t	waiter = STUCK_NONE;
	bool		live = is_live(blocker, s->now_us);

	if (!is_in_the_way(blocker, s->now_us))
		return;
	owner = reach_owner(s, party_of_blocker(blocker));
	if (owner == STUCK_NONE)
		return;
	if (!make_room(s))
	{
		s->failed = true;
		return;
	}
	if (live && blocker->session != 0)
		waiter = reach_connection(s, blocker->session);
	if (blocker->guarded)
		s->guards[s->facts.nguards++] = (stuck_guard) {
			s->facts.nleases, STUCK_NONE, blocker->guard_mode, blocker->pinned,
			false
		};
	s->leases[s->facts.nleases++] = (stuck_lease) {
		name, owner, blocker->mode, live ? blocker->held : 0,
		blocker->bound, waiter
	};
}

/* Go through the waiters in line for a name, and the holders that are in their way. */
static void
visit_name(search *s, uint32_t name)
{
	const lease_queue *queue = s->names[name];

	for (lease_call *call = queue->line.head; call != NULL; call = call->next)
	{
		(void) reach_owner(s, party_of_call(call));
		add_wait(s, call);
	}
	for (size_t i = 0; i < queue->nblockers && !s->failed; i++)
		add_blocker(s, name, &queue->blockers[i]);
	s->failed |= queue->unknown;
}

/* Gather all that a newcomer's wait depends on; false if there is no memory. */
static bool
gather(search *s, const lease_call *newcomer)
{
	size_t		places = lease_waiters_count();

	s->names = malloc(places * sizeof(*s->names));
	s->owners = malloc(places * sizeof(*s->owners));
	s->waiters = calloc(places, sizeof(*s->waiters));
	s->waits = malloc(places * sizeof(*s->waits));
	s->places = malloc(places * sizeof(*s->places));
	if (s->names == NULL || s->owners == NULL || s->waiters == NULL ||
		s->waits == NULL || s->places == NULL)
		return false;
	(void) reach_owner(s, party_of_call(newcomer));
	assert(s->facts.nwaiters > 0);	/* the newcomer */
	for (uint32_t name = 0; name < s->facts.nnames && !s->failed; name++)
		visit_name(s, name);
	s->facts.waiters = s->waiters;
	s->facts.waits = s->waits;
	s->facts.leases = s->leases;
	s->facts.guards = s->guards;
	return !s->failed;
}

static void
forget(search *s)
{
	free(s->names);
	free(s->owners);
	free(s->waiters);
	free(s->waits);
	free(s->places);
	free(s->leases);
	free(s->guards);
}

/* ----------------------------------------------------------------
 * The message
 * ----------------------------------------------------------------
 */

/* Add an owner; if "told" is not NULL, only one of that caller's account is named. */
static void
add_owner(lease_text *message, lease_party party, const dlock_caller *told)
{
	char		shown[DLOCK_SHOWN_SIZE];

	lease_text_add(message, "owner \"%s\"",
				   told == NULL || dlock_is_caller(told, party.user, party.host) ?
				   dlock_show(shown, party.owner) : DLOCK_MASK);
}

/* Add a step of the circle, with owners as add_owner() does. */
static void
add_step(lease_text *message, const search *s, const stuck_step *step,
		 const dlock_caller *told)
{
	const lease_call *place = s->places[step->wait];
	const lease_call *blocker;
	bool		in_queue = step->lease == STUCK_NONE;
	char		shown[DLOCK_SHOWN_SIZE];

	assert(in_queue || s->leases != NULL);
	blocker = in_queue ? s->places[step->ahead] :
		s->owners[s->leases[step->lease].owner];

	add_owner(message, party_of_call(place), told);
	lease_text_add(message, " waits for \"%s\", %s ",
				   dlock_show(shown, place->queue->name),
				   in_queue ? "queued behind" : "held by");
	add_owner(message, party_of_call(blocker), told);
}

/* ----------------------------------------------------------------
 * The search
 * ----------------------------------------------------------------
 */

/* Say whether a holder that is in the way on a name may wait. */
static bool
is_held_by_waiter(const lease_queue *queue, int64_t now_us)
{
	for (size_t i = 0; i < queue->nblockers; i++)
		if (is_in_the_way(&queue->blockers[i], now_us) &&
			lease_waiter_of(party_of_blocker(&queue->blockers[i]), NULL) != NULL)
			return true;
	return queue->unknown;
}

/*
 * Say whether a waiter, which has joined, can possibly close a circle.  A waiter that is
 * not stuck for one of several names is not stuck.
 */
static bool
is_possible(const lease_call *newcomer, int64_t now_us)
{
	if (newcomer->places == NULL)
		return is_held_by_waiter(newcomer->queue, now_us);
	for (size_t i = 0; i < newcomer->nnames; i++)
		if (!is_held_by_waiter(newcomer->places[i]->queue, now_us))
			return false;
	return true;
}

/* Describe the circle; see add_owner(). */
static void
describe(lease_text *message, const search *s, const stuck_step *steps,
		 uint32_t length, const dlock_caller *told)
{
	for (uint32_t i = 0; i < length; i++)
	{
		lease_text_add(message, i == 0 ? "deadlock detected: " : "; ");
		add_step(message, s, &steps[i], told);
	}
}

/* Have the core decide, and describe the circle in the messages. */
static lease_deadlock
find_circle(const search *s, const lease_call *newcomer, lease_text *message,
			lease_text *unmasked)
{
	const stuck_facts *facts = &s->facts;
	bool	   *stuck = malloc(facts->nwaiters * sizeof(bool));
	uint32_t   *work = malloc(stuck_work_size(facts) * sizeof(uint32_t));
	stuck_step *steps = malloc(facts->nwaiters * sizeof(stuck_step));
	lease_deadlock found = LEASE_DEADLOCK_UNKNOWN;

	if (stuck != NULL && work != NULL && steps != NULL)
	{
		uint32_t	length;

		stuck_search(facts, stuck, work);
		length = stuck_find_circle(facts, stuck, newcomer->number, work,
								   steps);
		describe(message, s, steps, length, &newcomer->caller);
		describe(unmasked, s, steps, length, NULL);
		found = length == 0 ? LEASE_DEADLOCK_NONE : message->failed ?
			LEASE_DEADLOCK_UNKNOWN : LEASE_DEADLOCK_FOUND;
	}
	free(stuck);
	free(work);
	free(steps);
	return found;
}

/*
 * Say whether a call that has joined a queue, or the queues of all its names, closes a
 * circle; if so, the messages, which are empty, get a description of it: one for any
 * caller, and one for operators, with the owners of all accounts.
 */
lease_deadlock
lease_deadlock_find(const lease_call *newcomer, int64_t now_us,
					lease_text *message, lease_text *unmasked)
{
	static uint64_t searches = 0;
	search		s = {.now_us = now_us};
	lease_deadlock found = LEASE_DEADLOCK_UNKNOWN;

	if (!is_possible(newcomer, now_us))
		return LEASE_DEADLOCK_NONE;
	s.number = ++searches;
	if (gather(&s, newcomer))
		found = find_circle(&s, newcomer, message, unmasked);
	forget(&s);
	return found;
}
