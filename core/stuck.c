/*
 * stuck.c
 *	  The search for waiters that are stuck; stuck.h says what that means.
 *
 * Waiters are struck out name by name.  To "sweep" a name is to sum up what is
 * in the way on it, and to look at its waiters in the order of the line.  If a
 * waiter is struck out, so that its owner or transaction can go on, the names
 * on which these have leases or guards are swept again.  A name is swept once,
 * and then at most once for each lease, guard and wait on it; a sweep takes as
 * many steps as there are of these.  So the time is quadratic at worst, and
 * linear in a chain.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "stuck.h"

/* For each thing, the list of its members; a list ends with STUCK_NONE. */
typedef struct index_list
{
	uint32_t   *first;			/* of each thing: its first member */
	uint32_t   *next;			/* of each member: the one after it */
} index_list;

/* What the search works with, all of it in the caller's memory. */
typedef struct search
{
	const stuck_facts *facts;
	index_list	waits_of_name;
	index_list	waits_of_waiter;
	index_list	leases_of_name;
	index_list	leases_of_owner;
	index_list	waiters_of_owner;
	index_list	guards_of_lease;
	index_list	guards_of_waiter;
	index_list	bound_to_waiter;
	index_list	own_leases;		/* of each owner, on the name being swept */
	uint32_t   *nstuck;			/* waiters of each owner that are stuck */
	uint32_t   *todo;			/* names to sweep; waiters, in a circle */
	uint32_t   *is_due;			/* of each name: it is in todo */
	uint32_t   *came_from;		/* of each waiter: the one before it */
	uint32_t   *by_wait;		/* ... whose wait this is, */
	uint32_t   *by_lease;		/* and what is in its way: see stuck_step */
	uint32_t   *by_ahead;
} search;

/* How far a lease is in the way of a waiter. */
typedef struct obstacle
{
	bool		modes[LEASE_MODE_LAST + 1];	/* in which modes it is held or
											 * guarded */
	uint32_t	permits;
} obstacle;

/* ----------------------------------------------------------------
 * Lists
 * ----------------------------------------------------------------
 */

/* The caller's memory; or none, to count how much is needed. */
typedef struct room
{
	bool		is_counted;		/* there is no memory yet */
	uint32_t   *numbers;
	size_t		used;
} room;

/* Take numbers from the caller's memory, or count them. */
static uint32_t *
take_numbers(room *work, size_t count)
{
	uint32_t   *taken = work->is_counted ? NULL : work->numbers + work->used;

	work->used += count;
	return taken;
}

static index_list
take_list(room *work, size_t owners, size_t members)
{
	index_list	list;

	list.first = take_numbers(work, owners);
	list.next = take_numbers(work, members);
	return list;
}

/* Lay the search out. */
static void
lay_out(search *s, const stuck_facts *f, room *work)
{
	s->facts = f;
	s->waits_of_name = take_list(work, f->nnames, f->nwaits);
	s->waits_of_waiter = take_list(work, f->nwaiters, f->nwaits);
	s->leases_of_name = take_list(work, f->nnames, f->nleases);
	s->leases_of_owner = take_list(work, f->nowners, f->nleases);
	s->waiters_of_owner = take_list(work, f->nowners, f->nwaiters);
	s->guards_of_lease = take_list(work, f->nleases, f->nguards);
	s->guards_of_waiter = take_list(work, f->nwaiters, f->nguards);
	s->bound_to_waiter = take_list(work, f->nwaiters, f->nleases);
	s->own_leases = take_list(work, f->nowners, f->nleases);
	s->nstuck = take_numbers(work, f->nowners);
	s->todo = take_numbers(work, f->nnames > f->nwaiters ? f->nnames : f->nwaiters);
	s->is_due = take_numbers(work, f->nnames);
	s->came_from = take_numbers(work, f->nwaiters);
	s->by_wait = take_numbers(work, f->nwaiters);
	s->by_lease = take_numbers(work, f->nwaiters);
	s->by_ahead = take_numbers(work, f->nwaiters);
}

/* Empty the lists of "count" things. */
static void
empty_lists(const index_list *list, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		list->first[i] = STUCK_NONE;
}

/* Put a member at the head of a list. */
static void
push(const index_list *list, uint32_t of, uint32_t member)
{
	list->next[member] = list->first[of];
	list->first[of] = member;
}

/* Fill all lists, in the order of the arrays. */
static void
fill_lists(const search *s)
{
	const stuck_facts *f = s->facts;

	empty_lists(&s->waits_of_name, f->nnames);
	empty_lists(&s->waits_of_waiter, f->nwaiters);
	empty_lists(&s->leases_of_name, f->nnames);
	empty_lists(&s->leases_of_owner, f->nowners);
	empty_lists(&s->waiters_of_owner, f->nowners);
	empty_lists(&s->guards_of_lease, f->nleases);
	empty_lists(&s->guards_of_waiter, f->nwaiters);
	empty_lists(&s->bound_to_waiter, f->nwaiters);
	empty_lists(&s->own_leases, f->nowners);
	for (uint32_t i = f->nwaits; i-- > 0;)
	{
		push(&s->waits_of_name, f->waits[i].name, i);
		push(&s->waits_of_waiter, f->waits[i].waiter, i);
	}
	for (uint32_t i = f->nleases; i-- > 0;)
	{
		push(&s->leases_of_name, f->leases[i].name, i);
		push(&s->leases_of_owner, f->leases[i].owner, i);
		if (f->leases[i].bound && f->leases[i].waiter != STUCK_NONE)
			push(&s->bound_to_waiter, f->leases[i].waiter, i);
	}
	for (uint32_t i = f->nwaiters; i-- > 0;)
		push(&s->waiters_of_owner, f->waiters[i].owner, i);
	for (uint32_t i = f->nguards; i-- > 0;)
	{
		push(&s->guards_of_lease, f->guards[i].lease, i);
		if (f->guards[i].waiter != STUCK_NONE)
			push(&s->guards_of_waiter, f->guards[i].waiter, i);
	}
}

/* ----------------------------------------------------------------
 * What is in the way
 * ----------------------------------------------------------------
 */

/* The waiter of a wait if a lease is its own, and otherwise STUCK_NONE. */
static uint32_t
its_own(const stuck_facts *f, const stuck_wait *wait, uint32_t l)
{
	const stuck_waiter *waiter = &f->waiters[wait->waiter];
	uint32_t	owner = f->leases[l].owner;

	return owner == waiter->owner || owner == waiter->acts_for ?
		wait->waiter : STUCK_NONE;
}

/*
 * Say whether the hold of a lease stays in the way of others, or of the waiter
 * "own", to which it is its own.
 */
static bool
hold_stays(const search *s, const bool *stuck, const stuck_lease *lease,
		   uint32_t own)
{
	if (lease->held == 0 || s->nstuck[lease->owner] == 0)
		return false;
	return own == STUCK_NONE || !lease->bound ||
		(lease->waiter != STUCK_NONE && stuck[lease->waiter]);
}

/*
 * Say whether a guard stays in the way of others, or of the waiter "own", to
 * which the lease is its own.
 */
static bool
guard_stays(const search *s, const bool *stuck, const stuck_guard *guard,
			uint32_t own)
{
	if (own != STUCK_NONE)
		return guard->bound && guard->waiter != STUCK_NONE &&
			guard->waiter != own && stuck[guard->waiter];
	return s->nstuck[s->facts->leases[guard->lease].owner] > 0 ||
		(guard->waiter != STUCK_NONE && stuck[guard->waiter]);
}

/* An unknown mode, from a later version or written by hand, keeps everybody out. */
static lease_mode
known_mode(lease_mode mode)
{
	return mode >= LEASE_MODE_FIRST && mode <= LEASE_MODE_LAST ? mode :
		LEASE_EXCLUSIVE;
}

/*
 * How far a lease, with its guards, stays in the way of the waiters of others,
 * or in that of the waiter "own", to which it is its own.
 */
static obstacle
what_stays(const search *s, const bool *stuck, uint32_t l, uint32_t own)
{
	const stuck_lease *lease = &s->facts->leases[l];
	obstacle	stays = {{false}, 0};

	if (hold_stays(s, stuck, lease, own))
	{
		stays.modes[known_mode(lease->mode)] = true;
		stays.permits = lease->held;
	}
	for (uint32_t g = s->guards_of_lease.first[l]; g != STUCK_NONE;
		 g = s->guards_of_lease.next[g])
	{
		const stuck_guard *guard = &s->facts->guards[g];

		if (!guard_stays(s, stuck, guard, own))
			continue;
		stays.modes[known_mode(guard->mode)] = true;
		if (guard->pinned > stays.permits)
			stays.permits = guard->pinned;
	}
	return stays;
}

/* All that stays in the way on a name. */
typedef struct obstacles
{
	uint32_t	leases[LEASE_MODE_LAST + 1];	/* how many, of each mode */
	uint64_t	permits;
	uint32_t	ahead;			/* the first in the line, or STUCK_NONE */
	bool		ahead_others;	/* other waiters stand there too */
} obstacles;

/* Add the obstacles of a lease, or take them out. */
static void
count_obstacle(obstacles *all, const obstacle *one, bool add)
{
	for (int mode = LEASE_MODE_FIRST; mode <= LEASE_MODE_LAST; mode++)
		if (one->modes[mode])
			all->leases[mode] += add ? 1 : UINT32_MAX;
	if (add)
		all->permits += one->permits;
	else
		all->permits -= one->permits;
}

/*
 * Replace an owner's leases, as counted for others, by what they are to the
 * waiter "own", to which they are its own.
 */
static void
make_own(const search *s, const bool *stuck, uint32_t owner, uint32_t own,
		 obstacles *all)
{
	for (uint32_t l = s->own_leases.first[owner]; l != STUCK_NONE;
		 l = s->own_leases.next[l])
	{
		obstacle	for_others = what_stays(s, stuck, l, STUCK_NONE);
		obstacle	for_own = what_stays(s, stuck, l, own);

		count_obstacle(all, &for_others, false);
		count_obstacle(all, &for_own, true);
	}
}

/* Say whether a wait could end if all that can go on gave up what they have. */
static bool
could_end(const search *s, const bool *stuck, const stuck_wait *wait,
		  const obstacles *on_name)
{
	const stuck_waiter *waiter = &s->facts->waiters[wait->waiter];
	obstacles	all = *on_name;

	if (all.ahead != STUCK_NONE &&
		(all.ahead != wait->waiter || all.ahead_others))
		return false;
	make_own(s, stuck, waiter->owner, wait->waiter, &all);
	if (waiter->acts_for != STUCK_NONE && waiter->acts_for != waiter->owner)
		make_own(s, stuck, waiter->acts_for, wait->waiter, &all);
	for (int mode = LEASE_MODE_FIRST; mode <= LEASE_MODE_LAST; mode++)
		if (all.leases[mode] > 0 &&
			!lease_modes_are_compatible((lease_mode) mode, wait->mode))
			return false;
	return wait->mode != LEASE_PERMIT ||
		all.permits + wait->permits <= wait->limit;
}

/* ----------------------------------------------------------------
 * Striking out
 * ----------------------------------------------------------------
 */

/* Note that a name is to be swept. */
static void
make_due(const search *s, uint32_t name, uint32_t *ntodo)
{
	if (s->is_due[name])
		return;
	s->is_due[name] = 1;
	s->todo[(*ntodo)++] = name;
}

/* Strike a waiter out; the names that this may free are to be swept. */
static void
strike_out(const search *s, bool *stuck, uint32_t w, uint32_t *ntodo)
{
	const stuck_facts *f = s->facts;
	uint32_t	owner = f->waiters[w].owner;

	stuck[w] = false;
	for (uint32_t g = s->guards_of_waiter.first[w]; g != STUCK_NONE;
		 g = s->guards_of_waiter.next[g])
		make_due(s, f->leases[f->guards[g].lease].name, ntodo);
	for (uint32_t l = s->bound_to_waiter.first[w]; l != STUCK_NONE;
		 l = s->bound_to_waiter.next[l])
		make_due(s, f->leases[l].name, ntodo);
	for (uint32_t v = s->waits_of_waiter.first[w]; v != STUCK_NONE;
		 v = s->waits_of_waiter.next[v])
		if (f->waits[v].in_line)
			make_due(s, f->waits[v].name, ntodo);
	if (--s->nstuck[owner] > 0)
		return;
	for (uint32_t l = s->leases_of_owner.first[owner]; l != STUCK_NONE;
		 l = s->leases_of_owner.next[l])
		make_due(s, f->leases[l].name, ntodo);
}

/* Look at all waits for a name. */
static void
sweep(const search *s, bool *stuck, uint32_t name, uint32_t *ntodo)
{
	const stuck_facts *f = s->facts;
	obstacles	all = {{0}, 0, STUCK_NONE, false};

	for (uint32_t l = s->leases_of_name.first[name]; l != STUCK_NONE;
		 l = s->leases_of_name.next[l])
	{
		obstacle	one = what_stays(s, stuck, l, STUCK_NONE);

		count_obstacle(&all, &one, true);
		push(&s->own_leases, f->leases[l].owner, l);
	}

	/*
	 * The line, then those that watch.  If obstacles go away meanwhile, the sum
	 * is too large, and the name is due again.
	 */
	for (int watching = 0; watching < 2; watching++)
		for (uint32_t v = s->waits_of_name.first[name]; v != STUCK_NONE;
			 v = s->waits_of_name.next[v])
		{
			const stuck_wait *wait = &f->waits[v];

			if (!stuck[wait->waiter] || wait->in_line == (watching == 1))
				continue;
			if (could_end(s, stuck, wait, &all))
				strike_out(s, stuck, wait->waiter, ntodo);
			else if (wait->in_line && all.ahead == STUCK_NONE)
				all.ahead = wait->waiter;
			else if (wait->in_line && all.ahead != wait->waiter)
				all.ahead_others = true;
		}

	for (uint32_t l = s->leases_of_name.first[name]; l != STUCK_NONE;
		 l = s->leases_of_name.next[l])
		s->own_leases.first[f->leases[l].owner] = STUCK_NONE;
}

size_t
stuck_work_size(const stuck_facts *facts)
{
	search		s;
	room		needed = {.is_counted = true};

	lay_out(&s, facts, &needed);
	return needed.used;
}

void
stuck_search(const stuck_facts *facts, bool *stuck, uint32_t *work)
{
	search		s;
	room		given = {.numbers = work};
	uint32_t	ntodo = 0;

	lay_out(&s, facts, &given);
	fill_lists(&s);
	for (uint32_t i = 0; i < facts->nowners; i++)
		s.nstuck[i] = 0;
	for (uint32_t i = 0; i < facts->nwaiters; i++)
	{
		stuck[i] = true;
		s.nstuck[facts->waiters[i].owner]++;
	}
	for (uint32_t i = 0; i < facts->nnames; i++)
		s.is_due[i] = 0;
	for (uint32_t i = facts->nnames; i-- > 0;)
		make_due(&s, i, &ntodo);
	while (ntodo > 0)
	{
		uint32_t	name = s.todo[--ntodo];

		s.is_due[name] = 0;
		sweep(&s, stuck, name, &ntodo);
	}
}

/* ----------------------------------------------------------------
 * The circle
 * ----------------------------------------------------------------
 */

/* The search for a way back to the newcomer. */
typedef struct path
{
	const search *s;
	const bool *stuck;
	uint32_t	newcomer;
	uint32_t	at;				/* the waiter that the search is at */
	uint32_t	ntodo;			/* waiters found: todo has them in this order */
	stuck_step	step;			/* the step that is taken from it */
	bool		closed;			/* the step leads to the newcomer */
} path;

/* Step to a waiter. */
static void
reach_waiter(path *way, uint32_t w)
{
	const search *s = way->s;

	if (w == way->newcomer)
		way->closed = true;
	if (!way->stuck[w] || s->came_from[w] != STUCK_NONE)
		return;
	s->came_from[w] = way->at;
	s->by_wait[w] = way->step.wait;
	s->by_lease[w] = way->step.lease;
	s->by_ahead[w] = way->step.ahead;
	s->todo[way->ntodo++] = w;
}

/* Step to all waiters of an owner. */
static void
reach_owner(path *way, uint32_t owner)
{
	const search *s = way->s;

	for (uint32_t w = s->waiters_of_owner.first[owner];
		 w != STUCK_NONE && !way->closed; w = s->waiters_of_owner.next[w])
		reach_waiter(way, w);
}

/* Say whether the permits that stay keep a wait from ending. */
static bool
too_few_permits(const path *way, const stuck_wait *wait)
{
	const search *s = way->s;
	uint64_t	permits = 0;

	if (wait->mode != LEASE_PERMIT)
		return false;
	for (uint32_t l = s->leases_of_name.first[wait->name]; l != STUCK_NONE;
		 l = s->leases_of_name.next[l])
		permits += what_stays(s, way->stuck, l,
							  its_own(s->facts, wait, l)).permits;
	return permits + wait->permits > wait->limit;
}

/* Say whether what stays in this mode is in the way of a wait. */
static bool
keeps_out(lease_mode mode, const stuck_wait *wait, bool few)
{
	return !lease_modes_are_compatible(mode, wait->mode) ||
		(mode == LEASE_PERMIT && few);
}

/*
 * Step to all waiters that keep a lease in the way of a wait. "few": there are
 * too few permits.
 */
static void
reach_by_lease(path *way, uint32_t l, const stuck_wait *wait, bool few)
{
	const search *s = way->s;
	const stuck_lease *lease = &s->facts->leases[l];
	uint32_t	own = its_own(s->facts, wait, l);

	way->step.lease = l;
	way->step.ahead = STUCK_NONE;
	if (hold_stays(s, way->stuck, lease, own) &&
		keeps_out(lease->mode, wait, few))
	{
		if (own != STUCK_NONE && lease->bound)
			reach_waiter(way, lease->waiter);
		else
			reach_owner(way, lease->owner);
	}
	for (uint32_t g = s->guards_of_lease.first[l];
		 g != STUCK_NONE && !way->closed; g = s->guards_of_lease.next[g])
	{
		const stuck_guard *guard = &s->facts->guards[g];

		if (!guard_stays(s, way->stuck, guard, own) ||
			!keeps_out(guard->mode, wait, few))
			continue;
		if (guard->waiter != STUCK_NONE)
			reach_waiter(way, guard->waiter);
		if (own == STUCK_NONE && !way->closed)
			reach_owner(way, lease->owner);
	}
}

/* Step to all waiters in the way of a wait, until the circle is closed. */
static void
reach_by_wait(path *way, uint32_t v)
{
	const search *s = way->s;
	const stuck_facts *f = s->facts;
	const stuck_wait *wait = &f->waits[v];
	uint32_t	owner = f->waiters[wait->waiter].owner;
	bool		few = too_few_permits(way, wait);

	way->step.wait = v;
	for (uint32_t l = s->leases_of_name.first[wait->name];
		 l != STUCK_NONE && !way->closed; l = s->leases_of_name.next[l])
		reach_by_lease(way, l, wait, few);
	for (uint32_t u = s->waits_of_name.first[wait->name];
		 u != STUCK_NONE && !way->closed; u = s->waits_of_name.next[u])
	{
		uint32_t	ahead = f->waits[u].waiter;

		if (u == v && wait->in_line)
			break;
		if (!f->waits[u].in_line || !way->stuck[ahead] ||
			ahead == wait->waiter)
			continue;
		way->step.lease = STUCK_NONE;
		way->step.ahead = u;
		if (f->waiters[ahead].owner == owner)
			reach_waiter(way, ahead);
		else
			reach_owner(way, f->waiters[ahead].owner);
	}
}

uint32_t
stuck_find_circle(const stuck_facts *facts, const bool *stuck,
				  uint32_t newcomer, uint32_t *work, stuck_step *steps)
{
	search		s;
	room		given = {.numbers = work};
	path		way = {.s = &s, .stuck = stuck, .newcomer = newcomer};
	uint32_t	length = 1;

	lay_out(&s, facts, &given);
	if (!stuck[newcomer])
		return 0;
	for (uint32_t i = 0; i < facts->nwaiters; i++)
		s.came_from[i] = STUCK_NONE;
	s.came_from[newcomer] = newcomer;
	s.todo[way.ntodo++] = newcomer;
	for (uint32_t i = 0; i < way.ntodo && !way.closed; i++)
	{
		way.at = s.todo[i];
		for (uint32_t v = s.waits_of_waiter.first[way.at];
			 v != STUCK_NONE && !way.closed; v = s.waits_of_waiter.next[v])
			reach_by_wait(&way, v);
	}
	if (!way.closed)
		return 0;

	/* go back from where the circle was closed, to learn its length */
	for (uint32_t w = way.at; w != newcomer; w = s.came_from[w])
		length++;
	steps[length - 1] = way.step;
	for (uint32_t w = way.at, i = length - 1; w != newcomer;
		 w = s.came_from[w])
		steps[--i] = (stuck_step) {s.by_wait[w], s.by_lease[w], s.by_ahead[w]};
	return length;
}
