/*
 * deadlock.c
 *	  Find out whether a waiter closes a circle of owners.
 *
 * core/stuck.c decides.  This file gathers the facts: all names, waiters, holders and
 * guards on which the newcomer's wait depends, directly or by way of other owners.
 * Waiters elsewhere cost nothing.
 *
 * The last waiter to join a circle closes it.  Each newcomer searches after it has
 * joined, and if it is in a circle it leaves before the next one comes.  All of this is
 * under the engine's mutex, so the facts are of one moment.
 *
 * Most newcomers need not search.  If no holder of the name waits, these can go on and
 * give it up to the waiters in line, and in the end to the newcomer.  No circle is
 * missed: the newcomer has joined, so in a circle it finds a holder that waits.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "engine.h"

#include <assert.h>
#include <stdlib.h>

#include "array.h"
#include "stuck.h"
#include "udf_text.h"

/*
 * The facts.  Names, owners and waiters are numbered in the order in which they were met.
 * Of each, and of waits, there are at most as many as places in all queues.
 */
typedef struct search
{
	uint64_t	number;			/* of the search; a waiter or queue that was met has it */
	const lease_moment *moment;
	stuck_facts facts;
	queue	  **names;
	const place **owners;		/* a place of each */
	stuck_waiter *waiters;
	stuck_wait *waits;
	const place **places;		/* of each wait */
	stuck_lease *leases;
	stuck_guard *guards;
	size_t		lease_room;
	size_t		guard_room;
	bool		failed;			/* for want of memory */
} search;

/* Say whether a lease is live, and its owner can end it. */
static bool
is_live(const held *h, const lease_moment *moment)
{
	lease_holder holder;

	decide_describe(h, (party) {0}, moment, &holder);
	return lease_is_owned(&holder, moment->now_us);
}

/* Say whether it is in the way by itself or by its guards. */
static bool
is_blocker(const held *h, const lease_moment *moment)
{
	return h->guards != NULL || is_live(h, moment);
}

/* ----------------------------------------------------------------
 * The facts
 * ----------------------------------------------------------------
 */

/* Meet a name. */
static void
reach_name(search *s, queue *q)
{
	if (q->search == s->number)
		return;
	q->search = s->number;
	q->number = s->facts.nnames;
	s->names[s->facts.nnames++] = q;
}

/* Add a wait of a waiter that was met. */
static void
add_wait(search *s, const place *p)
{
	s->places[s->facts.nwaits] = p;
	s->waits[s->facts.nwaits++] = (stuck_wait) {
		.waiter = p->call->number,
		.name = p->queue->number,
		.mode = p->call->request.mode,
		.limit = p->call->request.limit,
		.permits = lease_holds_asked(&p->call->request),
		.in_line = !p->call->watches,
	};
}

/*
 * Meet a place of a waiter.  A watcher is in nobody's way, so its wait is added at once.
 * The wait of a waiter in line is added by visit_name(), in the line's order.
 */
static void
reach_place(search *s, const place *p, uint32_t owner)
{
	if (p->call->search != s->number)
	{
		p->call->search = s->number;
		p->call->number = s->facts.nwaiters;
		s->waiters[s->facts.nwaiters++] = (stuck_waiter) {owner, STUCK_NONE};
	}
	reach_name(s, p->queue);
	if (p->call->watches)
		add_wait(s, p);
}

/* Meet an owner, with all its waiters: its number, or STUCK_NONE if it has none. */
static uint32_t
reach_owner(search *s, lease_bytes owner, const account *account)
{
	const place *first = queue_place_of(owner, account, NULL);
	uint32_t	number = s->facts.nowners;

	if (first == NULL)
		return STUCK_NONE;
	if (first->call->search == s->number)
		return s->waiters[first->call->number].owner;
	s->owners[s->facts.nowners++] = first;
	for (const place *p = first; p != NULL; p = queue_place_of(owner, account, p))
		reach_place(s, p, number);
	return number;
}

/* Meet a connection: the number of its waiter, or STUCK_NONE if it does not wait. */
static uint32_t
reach_connection(search *s, uint64_t connection_id)
{
	const call *c = queue_waiter_of(connection_id);

	if (c == NULL)
		return STUCK_NONE;
	(void) reach_owner(s, c->request.owner, c->account);
	return c->number;
}

/* Add a holder that is in the way on a name, and its guards, if its owner waits. */
static void
add_blocker(search *s, uint32_t name, const held *h)
{
	uint32_t	owner;
	uint32_t	waiter = STUCK_NONE;
	bool		live = is_live(h, s->moment);
	bool		is_here = h->server == lease_run();
	bool		is_bound = live && h->kind == LEASE_SESSION &&
		(is_here || buffer_server()->is_member);

	if (!is_blocker(h, s->moment))
		return;
	owner = reach_owner(s, held_owner(h), h->account);
	if (owner == STUCK_NONE)
		return;
	if (is_bound && is_here)
		waiter = reach_connection(s, h->connection_id);
	for (const guard *g = h->guards; g != NULL && !s->failed; g = g->next)
	{
		s->failed = !array_reserve(&s->guards, &s->guard_room, s->facts.nguards + 1,
								   sizeof(stuck_guard));
		if (!s->failed)
			s->guards[s->facts.nguards++] = (stuck_guard) {
				s->facts.nleases, reach_connection(s, g->connection_id), g->mode,
				g->version, false
			};
	}
	s->failed |= !array_reserve(&s->leases, &s->lease_room, s->facts.nleases + 1,
								sizeof(stuck_lease));
	if (!s->failed)
		s->leases[s->facts.nleases++] = (stuck_lease) {
			name, owner, h->mode, live ? h->version : 0, is_bound, waiter
		};
}

/* Go through the waiters in line for a name, and the holders that are in their way. */
static void
visit_name(search *s, uint32_t name)
{
	const queue *q = s->names[name];

	for (const place *p = q->line.head; p != NULL; p = p->next)
	{
		(void) reach_owner(s, p->call->request.owner, p->call->account);
		add_wait(s, p);
	}
	for (const held *h = q->name->leases; h != NULL && !s->failed; h = h->next)
		add_blocker(s, name, h);
}

/* Gather all that a newcomer's wait depends on; false if there is no memory. */
static bool
gather(search *s, const call *newcomer)
{
	size_t		places = queue_places();

	s->names = malloc(places * sizeof(*s->names));
	s->owners = malloc(places * sizeof(*s->owners));
	s->waiters = calloc(places, sizeof(*s->waiters));
	s->waits = malloc(places * sizeof(*s->waits));
	s->places = malloc(places * sizeof(*s->places));
	if (s->names == NULL || s->owners == NULL || s->waiters == NULL ||
		s->waits == NULL || s->places == NULL)
		return false;
	(void) reach_owner(s, newcomer->request.owner, newcomer->account);
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

/* Add a waiter's owner; if "told" is not NULL, only one of that account is named. */
static void
add_owner(lease_text *message, const place *p, const account *told)
{
	char		shown[DLOCK_SHOWN_SIZE];

	lease_text_add(message, "owner \"%s\"",
				   told == NULL || p->call->account == told ?
				   dlock_show(shown, p->call->request.owner) : DLOCK_MASK);
}

/* Describe the circle, with owners as add_owner() does. */
static void
describe(lease_text *message, const search *s, const stuck_step *steps,
		 uint32_t length, const account *told)
{
	for (uint32_t i = 0; i < length; i++)
	{
		const place *p = s->places[steps[i].wait];
		bool		in_queue = steps[i].lease == STUCK_NONE;
		char		shown[DLOCK_SHOWN_SIZE];

		assert(in_queue || s->leases != NULL);
		lease_text_add(message, i == 0 ? "deadlock detected: " : "; ");
		add_owner(message, p, told);
		lease_text_add(message, " waits for \"%s\", %s ",
					   dlock_show(shown, state_name_bytes(p->queue->name)),
					   in_queue ? "queued behind" : "held by");
		add_owner(message, in_queue ? s->places[steps[i].ahead] :
				  s->owners[s->leases[steps[i].lease].owner], told);
	}
}

/* ----------------------------------------------------------------
 * The search
 * ----------------------------------------------------------------
 */

/* Say whether a holder that is in the way on a name waits. */
static bool
is_held_by_waiter(const state_name *name, const lease_moment *moment)
{
	for (const held *h = name->leases; h != NULL; h = h->next)
		if (queue_place_of(held_owner(h), h->account, NULL) != NULL &&
			is_blocker(h, moment))
			return true;
	return false;
}

/*
 * Say whether a waiter, which has joined, can possibly close a circle.  A waiter that is
 * not stuck for one of several names is not stuck.
 */
static bool
is_possible(const call *newcomer, const lease_moment *moment)
{
	for (size_t i = 0; i < newcomer->nplaces; i++)
		if (!is_held_by_waiter(newcomer->places[i].queue->name, moment))
			return false;
	return true;
}

/* Have the core decide, and describe the circle in the messages. */
static bool
find_circle(const search *s, const call *newcomer, lease_text *message,
			lease_text *unmasked)
{
	const stuck_facts *facts = &s->facts;
	bool	   *stuck = malloc(facts->nwaiters * sizeof(bool));
	uint32_t   *work = malloc(stuck_work_size(facts) * sizeof(uint32_t));
	stuck_step *steps = malloc(facts->nwaiters * sizeof(stuck_step));
	bool		done = stuck != NULL && work != NULL && steps != NULL;

	if (done)
	{
		uint32_t	length;

		stuck_search(facts, stuck, work);
		length = stuck_find_circle(facts, stuck, newcomer->number, work, steps);
		describe(message, s, steps, length, newcomer->account);
		describe(unmasked, s, steps, length, NULL);
	}
	free(stuck);
	free(work);
	free(steps);
	return done;
}

/*
 * Find out whether a call that has joined a queue, or the queues of all its names, closes
 * a circle; if so, the messages, which are empty, get a description of it: one for any
 * caller, and one for operators, with the owners of all accounts.  False if memory was
 * short.
 */
bool
deadlock_find(call *newcomer, const lease_moment *moment, lease_text *message,
			  lease_text *unmasked)
{
	static uint64_t searches = 0;
	search		s = {.moment = moment};
	bool		done;

	if (!is_possible(newcomer, moment))
		return true;
	s.number = ++searches;
	done = gather(&s, newcomer) && find_circle(&s, newcomer, message, unmasked);
	forget(&s);
	return done;
}
