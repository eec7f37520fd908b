/*
 * stuck_naive.h
 *	  Who is stuck, and in which circle, by the definition and not by stuck.c.
 *
 * Looks at all waiters again and again, each against all leases, guards and
 * waits.  Counts nothing ahead, and keeps nothing but who is stuck.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_STUCK_NAIVE_H
#define DLOCK_STUCK_NAIVE_H

#include "stuck.h"

#include <stdlib.h>

#define NAIVE_FAR		UINT32_MAX

static inline bool
naive_owner_is_stuck(const stuck_facts *f, const bool *stuck, uint32_t owner)
{
	for (uint32_t w = 0; w < f->nwaiters; w++)
		if (stuck[w] && f->waiters[w].owner == owner)
			return true;
	return false;
}

/* Say whether a lease counts as a waiter's own. */
static inline bool
naive_is_own(const stuck_facts *f, uint32_t w, const stuck_lease *lease)
{
	return lease->owner == f->waiters[w].owner ||
		lease->owner == f->waiters[w].acts_for;
}

/* Say whether a guard is in the way of a waiter to which its lease is its own. */
static inline bool
naive_is_unseen(const stuck_facts *f, uint32_t w, const stuck_guard *guard)
{
	return guard->bound && guard->waiter != w &&
		naive_is_own(f, w, &f->leases[guard->lease]);
}

/* Say whether waiter "keeper" is one that keeps what a guard pins from w. */
static inline bool
naive_guard_keeps(const stuck_facts *f, uint32_t w, const stuck_guard *guard,
				  uint32_t keeper)
{
	const stuck_lease *lease = &f->leases[guard->lease];

	if (naive_is_own(f, w, lease))
		return naive_is_unseen(f, w, guard) && guard->waiter == keeper;
	return guard->waiter == keeper ||
		lease->owner == f->waiters[keeper].owner;
}

/* Say whether a guard stays in the way of a waiter. */
static inline bool
naive_guard_stays(const stuck_facts *f, const bool *stuck, uint32_t w,
				  const stuck_guard *guard)
{
	if (naive_is_own(f, w, &f->leases[guard->lease]))
		return naive_is_unseen(f, w, guard) && guard->waiter != STUCK_NONE &&
			stuck[guard->waiter];
	return naive_owner_is_stuck(f, stuck, f->leases[guard->lease].owner) ||
		(guard->waiter != STUCK_NONE && stuck[guard->waiter]);
}

/* Say whether the hold of a lease stays in the way of a waiter. */
static inline bool
naive_hold_stays(const stuck_facts *f, const bool *stuck, uint32_t w,
				 const stuck_lease *lease)
{
	return lease->held > 0 && naive_owner_is_stuck(f, stuck, lease->owner) &&
		!(lease->bound && naive_is_own(f, w, lease) &&
		  (lease->waiter == STUCK_NONE || !stuck[lease->waiter]));
}

/* Say whether waiter "keeper" is the one that keeps a lease's hold from w. */
static inline bool
naive_keeps(const stuck_facts *f, uint32_t w, const stuck_lease *lease,
			uint32_t keeper)
{
	return lease->bound && naive_is_own(f, w, lease) ?
		lease->waiter == keeper : lease->owner == f->waiters[keeper].owner;
}

/* How many permits of a name stay in the way of a waiter. */
static inline uint64_t
naive_permits(const stuck_facts *f, const bool *stuck, const stuck_wait *wait)
{
	uint64_t	permits = 0;

	for (uint32_t l = 0; l < f->nleases; l++)
	{
		uint32_t	most = 0;

		if (f->leases[l].name != wait->name)
			continue;
		if (naive_hold_stays(f, stuck, wait->waiter, &f->leases[l]))
			most = f->leases[l].held;
		for (uint32_t g = 0; g < f->nguards; g++)
			if (f->guards[g].lease == l && f->guards[g].pinned > most &&
				naive_guard_stays(f, stuck, wait->waiter, &f->guards[g]))
				most = f->guards[g].pinned;
		permits += most;
	}
	return permits;
}

/* Say whether something in a mode is in the way of a wait, if it stays. */
static inline bool
naive_excludes(const stuck_facts *f, const bool *stuck, lease_mode mode,
			   const stuck_wait *wait)
{
	if (mode == LEASE_PERMIT && wait->mode == LEASE_PERMIT)
		return naive_permits(f, stuck, wait) + wait->permits > wait->limit;
	return mode == LEASE_EXCLUSIVE || wait->mode != mode;
}

/* Say whether wait u stands ahead of wait v, and is another waiter's. */
static inline bool
naive_is_ahead(const stuck_facts *f, uint32_t u, uint32_t v)
{
	return f->waits[u].name == f->waits[v].name && f->waits[u].in_line &&
		(!f->waits[v].in_line || u < v) &&
		f->waits[u].waiter != f->waits[v].waiter;
}

/*
 * Say whether waiter "keeper" is one that keeps wait u, which stands ahead of v,
 * in the line: any of its owner's, or if that is the owner of v, only itself.
 */
static inline bool
naive_keeps_ahead(const stuck_facts *f, uint32_t u, uint32_t v, uint32_t keeper)
{
	uint32_t	ahead = f->waits[u].waiter;

	return f->waiters[ahead].owner == f->waiters[f->waits[v].waiter].owner ?
		ahead == keeper :
		f->waiters[ahead].owner == f->waiters[keeper].owner;
}

/*
 * Find the stuck waiters that keep a wait from ending, through their owner or
 * their transaction: sets to[] for each.  Returns whether there are any.
 */
static inline bool
naive_blockers(const stuck_facts *f, const bool *stuck, uint32_t v, bool *to)
{
	const stuck_wait *wait = &f->waits[v];
	bool		any = false;

	for (uint32_t w = 0; w < f->nwaiters; w++)
	{
		bool		blocks = false;

		for (uint32_t l = 0; l < f->nleases; l++)
		{
			const stuck_lease *lease = &f->leases[l];

			if (lease->name != wait->name)
				continue;
			if (naive_keeps(f, wait->waiter, lease, w) &&
				naive_hold_stays(f, stuck, wait->waiter, lease) &&
				naive_excludes(f, stuck, lease->mode, wait))
				blocks = true;
			for (uint32_t g = 0; g < f->nguards; g++)
				if (f->guards[g].lease == l &&
					naive_guard_keeps(f, wait->waiter, &f->guards[g], w) &&
					naive_guard_stays(f, stuck, wait->waiter, &f->guards[g]) &&
					naive_excludes(f, stuck, f->guards[g].mode, wait))
					blocks = true;
		}
		for (uint32_t u = 0; u < f->nwaits; u++)
			if (naive_is_ahead(f, u, v) && stuck[f->waits[u].waiter] &&
				naive_keeps_ahead(f, u, v, w))
				blocks = true;
		if (!blocks || !stuck[w])
			continue;
		any = true;
		if (to != NULL)
			to[w] = true;
	}
	return any;
}

/* Find out who is stuck. */
static inline void
naive_search(const stuck_facts *f, bool *stuck)
{
	bool		more = true;

	for (uint32_t w = 0; w < f->nwaiters; w++)
		stuck[w] = true;
	while (more)
	{
		more = false;
		for (uint32_t v = 0; v < f->nwaits; v++)
			if (stuck[f->waits[v].waiter] &&
				!naive_blockers(f, stuck, v, NULL) &&
				!(f->waits[v].mode == LEASE_PERMIT &&
				  f->waits[v].permits > f->waits[v].limit))
			{
				stuck[f->waits[v].waiter] = false;
				more = true;
			}
	}
}

/* The length of the shortest circle through a waiter, or 0. */
static inline uint32_t
naive_circle(const stuck_facts *f, const bool *stuck, uint32_t newcomer)
{
	uint32_t   *distance = malloc((f->nwaiters + 1) * sizeof(*distance));
	bool	   *to = malloc(f->nwaiters + 1);
	uint32_t	length = 0;

	if (distance == NULL || to == NULL)
		abort();
	for (uint32_t w = 0; w < f->nwaiters; w++)
		distance[w] = NAIVE_FAR;
	distance[newcomer] = 0;
	for (uint32_t far = 0; stuck[newcomer] && length == 0 && far < f->nwaiters;
		 far++)
	{
		for (uint32_t w = 0; w < f->nwaiters; w++)
			to[w] = false;
		for (uint32_t v = 0; v < f->nwaits; v++)
			if (distance[f->waits[v].waiter] == far)
				(void) naive_blockers(f, stuck, v, to);
		if (to[newcomer])
			length = far + 1;
		for (uint32_t w = 0; w < f->nwaiters; w++)
			if (to[w] && distance[w] == NAIVE_FAR)
				distance[w] = far + 1;
	}
	free(distance);
	free(to);
	return length;
}

/*
 * Say whether a step's obstacle is in the way, and belongs to a waiter's owner
 * or is guarded by its transaction.
 */
static inline bool
naive_step_leads(const stuck_facts *f, const bool *stuck,
				 const stuck_step *step, uint32_t to)
{
	const stuck_wait *wait = &f->waits[step->wait];
	const stuck_lease *lease;

	if (step->lease == STUCK_NONE)
		return naive_is_ahead(f, step->ahead, step->wait) &&
			stuck[f->waits[step->ahead].waiter] &&
			naive_keeps_ahead(f, step->ahead, step->wait, to);
	lease = &f->leases[step->lease];
	if (lease->name != wait->name || step->ahead != STUCK_NONE)
		return false;
	if (naive_keeps(f, wait->waiter, lease, to) &&
		naive_hold_stays(f, stuck, wait->waiter, lease) &&
		naive_excludes(f, stuck, lease->mode, wait))
		return true;
	for (uint32_t g = 0; g < f->nguards; g++)
		if (f->guards[g].lease == step->lease &&
			naive_guard_keeps(f, wait->waiter, &f->guards[g], to) &&
			naive_guard_stays(f, stuck, wait->waiter, &f->guards[g]) &&
			naive_excludes(f, stuck, f->guards[g].mode, wait))
			return true;
	return false;
}

/*
 * Run the search, and hold it against the definition, with each waiter as the
 * newcomer.  Returns what is wrong, or NULL; sets stuck[].
 */
static inline const char *
naive_fault(const stuck_facts *f, bool *stuck)
{
	size_t		size = stuck_work_size(f);
	uint32_t   *work = malloc((size + 1) * sizeof(*work));
	bool	   *expected = malloc(f->nwaiters + 1);
	stuck_step *steps = malloc((f->nwaiters + 1) * sizeof(*steps));
	const char *fault = NULL;

	if (work == NULL || expected == NULL || steps == NULL)
		abort();
	for (size_t i = 0; i <= size; i++)
		work[i] = 0xa5a5a5a5;
	stuck_search(f, stuck, work);
	naive_search(f, expected);
	for (uint32_t w = 0; w < f->nwaiters; w++)
		if (stuck[w] != expected[w])
			fault = "not the same are stuck";
	for (uint32_t w = 0; fault == NULL && w < f->nwaiters; w++)
	{
		uint32_t	length = stuck_find_circle(f, stuck, w, work, steps);

		if (length != naive_circle(f, stuck, w))
			fault = "the circle is not the shortest, or there is none";
		else if (length > 0 && f->waits[steps[0].wait].waiter != w)
			fault = "the circle does not begin with the newcomer";
		for (uint32_t i = 0; fault == NULL && i < length; i++)
			if (!naive_step_leads(f, stuck, &steps[i],
								  f->waits[steps[(i + 1) % length].wait].waiter))
				fault = "a step of the circle does not lead to the next";
	}
	if (fault == NULL && work[size] != 0xa5a5a5a5)
		fault = "more numbers were used than asked for";
	free(work);
	free(expected);
	free(steps);
	return fault;
}

#endif							/* DLOCK_STUCK_NAIVE_H */
