/*
 * stuck_model.c
 *	  Random crowds of waiters: who is stuck, by stuck.c and by two other ways.
 *
 * One is the definition (stuck_naive.h), for facts of any kind.
 *
 * The other knows no definition: it plays.  It has names with holders and
 * lines, and lets lease_apply() grant.  Each owner that does not wait gives up
 * all that it has; then lines are served, and each owner that is served gives
 * up all in turn, in any order.  Those that still wait when nobody can move any
 * more are stuck.  Here each owner has one connection, since nobody knows what
 * an owner with several will do.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _POSIX_C_SOURCE 200809L

#include "stuck_naive.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAMES_MAX		6
#define OWNERS_MAX		8
#define WAITERS_MAX		10
#define WAITS_MAX		20
#define LEASES_MAX		12
#define GUARDS_MAX		8

/* A run of fewer cases need not meet everything. */
#define COVERAGE_CASES	50000

static uint64_t seed;
static uint64_t random_state;

static stuck_waiter waiters[WAITERS_MAX];
static stuck_wait waits[WAITS_MAX];
static stuck_lease leases[LEASES_MAX];
static stuck_guard guards[GUARDS_MAX];
static stuck_facts facts = {
	.waiters = waiters, .waits = waits, .leases = leases, .guards = guards
};

/* Situations that a run should meet. */
static uint64_t seen_stuck;
static uint64_t seen_free;
static uint64_t seen_behind;	/* stuck, and in no circle of its own */
static uint64_t seen_length[4];	/* circles of 1, 2, 3 and more */
static uint64_t seen_any;		/* stuck for each of several names */
static uint64_t seen_permits;	/* a circle through permits */
static uint64_t seen_guard;		/* a circle through what is only guarded */
static uint64_t seen_own_guard;	/* the same, of the waiter's own owner */
static uint64_t seen_line;		/* a circle through a line */

/* splitmix64 */
static uint64_t
next_random(void)
{
	uint64_t	z = random_state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static uint32_t
below(uint32_t n)
{
	assert(n > 0);
	return (uint32_t) (next_random() % n);
}

static bool
one_in(uint32_t n)
{
	return below(n) == 0;
}

static void
fail(const char *what)
{
	printf("FAILED: %s\n", what);
	for (uint32_t i = 0; i < facts.nleases; i++)
		printf("lease %u: name %u owner %u mode %d held %u%s %d\n", i,
			   leases[i].name, leases[i].owner, leases[i].mode,
			   leases[i].held, leases[i].bound ? " bound to" : "",
			   (int) leases[i].waiter);
	for (uint32_t i = 0; i < facts.nguards; i++)
		printf("guard of lease %u: waiter %d mode %d pinned %u%s\n",
			   guards[i].lease, (int) guards[i].waiter, guards[i].mode,
			   guards[i].pinned, guards[i].bound ? " bound" : "");
	for (uint32_t i = 0; i < facts.nwaiters; i++)
		printf("waiter %u: owner %u acts for %d\n", i, waiters[i].owner,
			   (int) waiters[i].acts_for);
	for (uint32_t i = 0; i < facts.nwaits; i++)
		printf("wait %u: waiter %u name %u mode %d %u of %u%s\n", i,
			   waits[i].waiter, waits[i].name, waits[i].mode,
			   waits[i].permits, waits[i].limit,
			   waits[i].in_line ? " in line" : "");
	printf("again with: stuck_model -s %" PRIu64 " -n 1\n", seed);
	exit(1);
}

/* ----------------------------------------------------------------
 * Held against the definition
 * ----------------------------------------------------------------
 */

static lease_mode
any_mode(void)
{
	return one_in(2) ? LEASE_EXCLUSIVE : (lease_mode) (1 + below(3));
}

/* Draw facts of any kind. */
static void
draw_facts(void)
{
	facts.nnames = 1 + below(NAMES_MAX);
	facts.nowners = 1 + below(OWNERS_MAX);
	facts.nwaiters = 1 + below(WAITERS_MAX);
	facts.nleases = below(LEASES_MAX + 1);
	facts.nguards = facts.nleases == 0 || one_in(2) ? 0 :
		below(GUARDS_MAX + 1);
	facts.nwaits = 0;
	for (uint32_t i = 0; i < facts.nwaiters; i++)
	{
		uint32_t	n = one_in(4) ? 1 + below(3) : 1;

		waiters[i] = (stuck_waiter) {
			below(facts.nowners),
			one_in(8) ? below(facts.nowners) : STUCK_NONE
		};
		for (uint32_t j = 0; j < n && facts.nwaits < WAITS_MAX; j++)
		{
			uint32_t	limit = 1 + below(4);

			waits[facts.nwaits++] = (stuck_wait) {
				i, below(facts.nnames), any_mode(), limit, 1 + below(limit),
				n == 1 && !one_in(4)
			};
		}
	}
	for (uint32_t i = 0; i < facts.nleases; i++)
		leases[i] = (stuck_lease) {
			below(facts.nnames), below(facts.nowners), any_mode(),
			one_in(6) ? 0 : 1 + below(3), one_in(8),
			one_in(3) ? STUCK_NONE : below(facts.nwaiters)
		};
	for (uint32_t i = 0; i < facts.nguards; i++)
		guards[i] = (stuck_guard) {
			below(facts.nleases),
			one_in(3) ? STUCK_NONE : below(facts.nwaiters),
			any_mode(), 1 + below(3), one_in(3)
		};
}

/* Count what kinds of obstacles a circle goes through. */
static void
note_circle(const stuck_step *steps, uint32_t length)
{
	seen_length[length < 4 ? length - 1 : 3]++;
	for (uint32_t i = 0; i < length; i++)
	{
		if (steps[i].lease == STUCK_NONE)
			seen_line++;
		else if (leases[steps[i].lease].held == 0)
			*(leases[steps[i].lease].owner ==
			  waiters[waits[steps[i].wait].waiter].owner ?
			  &seen_own_guard : &seen_guard) += 1;
		else if (waits[steps[i].wait].mode == LEASE_PERMIT &&
				 leases[steps[i].lease].mode == LEASE_PERMIT)
			seen_permits++;
	}
}

/* Count the situations met. */
static void
note(const bool *stuck)
{
	uint32_t   *work = malloc(stuck_work_size(&facts) * sizeof(*work));
	bool		again[WAITERS_MAX];
	stuck_step	steps[WAITERS_MAX];

	if (work == NULL)
		abort();
	stuck_search(&facts, again, work);
	for (uint32_t w = 0; w < facts.nwaiters; w++)
	{
		uint32_t	length = stuck_find_circle(&facts, again, w, work, steps);
		uint32_t	names = 0;

		if (stuck[w] != again[w])
			fail("another search comes to something else");
		for (uint32_t v = 0; v < facts.nwaits; v++)
			names += waits[v].waiter == w;
		if (stuck[w])
			seen_stuck++;
		else
			seen_free++;
		if (stuck[w] && names > 1)
			seen_any++;
		if (length > 0)
			note_circle(steps, length);
		else if (stuck[w])
			seen_behind++;
	}
	free(work);
}

static void
try_definition(void)
{
	bool		stuck[WAITERS_MAX];
	const char *fault;

	draw_facts();
	fault = naive_fault(&facts, stuck);
	if (fault != NULL)
		fail(fault);
	note(stuck);
}

/* ----------------------------------------------------------------
 * Played
 * ----------------------------------------------------------------
 */

/* The holders of each name. */
static lease_holder holders[NAMES_MAX][LEASES_MAX + WAITERS_MAX + 1];
static size_t nholders[NAMES_MAX];
static uint64_t next_token;

/* The request of a waiter, or of an owner that takes its first leases. */
static lease_request
request_of(uint32_t owner, lease_mode mode, uint32_t limit)
{
	static const char letters[] = "abcdefgh";

	return (lease_request) {
		.op = LEASE_ACQUIRE, .owner = {&letters[owner], 1}, .mode = mode,
		.kind = LEASE_PLAIN, .limit = limit, .ttl_us = 1000,
		.next_token = next_token
	};
}

/* Ask for a name; true if it was granted. */
static bool
play(uint32_t name, const lease_request *request)
{
	lease_result result;
	size_t		kept = 0;

	for (size_t i = 0; i < nholders[name]; i++)
		holders[name][i].standing =
			lease_same(holders[name][i].owner, request->owner) ? LEASE_SELF :
			LEASE_STRANGER;
	result = lease_apply(request, holders[name], nholders[name], 0);
	for (size_t i = 0; i < result.count; i++)
		if (holders[name][i].change != LEASE_ENDED)
			holders[name][kept++] = holders[name][i];
	nholders[name] = kept;
	if (result.outcome == LEASE_GRANTED)
		next_token++;
	return result.outcome != LEASE_BUSY;
}

static void
give_up_all(uint32_t owner)
{
	lease_request request = request_of(owner, LEASE_EXCLUSIVE, 1);

	request.op = LEASE_DROP;
	for (uint32_t name = 0; name < facts.nnames; name++)
		(void) play(name, &request);
}

/* Say whether another waiter, still waiting, stands ahead of a wait. */
static bool
is_behind(uint32_t v, const bool *waiting)
{
	for (uint32_t u = 0; u < facts.nwaits; u++)
		if (waits[u].in_line && waiting[waits[u].waiter] &&
			waits[u].name == waits[v].name && (u < v || !waits[v].in_line) &&
			waits[u].waiter != waits[v].waiter)
			return true;
	return false;
}

/* Draw holders, by acquiring, and waiters. */
static void
draw_play(void)
{
	facts.nnames = 1 + below(NAMES_MAX);
	facts.nowners = 2 + below(OWNERS_MAX - 1);
	facts.nwaiters = facts.nwaits = facts.nleases = facts.nguards = 0;
	next_token = 1;
	memset(nholders, 0, sizeof(nholders));
	for (uint32_t i = 1 + below(LEASES_MAX * 2); i > 0; i--)
	{
		lease_request request = request_of(below(facts.nowners), any_mode(),
										   1 + below(4));

		(void) play(below(facts.nnames), &request);
	}
	for (uint32_t name = 0; name < facts.nnames; name++)
		for (size_t i = 0; i < nholders[name]; i++)
		{
			const lease_holder *h = &holders[name][i];

			if (facts.nleases == LEASES_MAX)
			{
				nholders[name] = i;
				break;
			}
			leases[facts.nleases++] = (stuck_lease) {
				name, (uint32_t) (h->owner.data[0] - 'a'), h->mode,
				h->version, false, STUCK_NONE
			};
		}
	for (uint32_t owner = 0; owner < facts.nowners; owner++)
	{
		uint32_t	n = one_in(4) ? 1 + below(3) : 1;
		uint32_t	first = facts.nwaits;

		if (one_in(5))
			continue;
		for (uint32_t j = 0; j < n && facts.nwaits < WAITS_MAX; j++)
		{
			lease_mode	mode = any_mode();
			uint32_t	name = below(facts.nnames);
			bool		wrong = false;

			/* a re-entry, or misuse, is no wait */
			for (uint32_t l = 0; l < facts.nleases; l++)
				wrong |= leases[l].name == name && leases[l].owner == owner &&
					!(mode == LEASE_PERMIT && leases[l].mode == LEASE_PERMIT);
			if (!wrong)
				waits[facts.nwaits++] = (stuck_wait) {
					facts.nwaiters, name, mode, 1 + below(4), 1, n == 1
				};
		}
		if (facts.nwaits > first)
			waiters[facts.nwaiters++] = (stuck_waiter) {owner, STUCK_NONE};
	}
}

/* Let all go on that can, until none can: says which still wait. */
static void
play_on(bool *waiting)
{
	bool		busy[OWNERS_MAX] = {false};
	bool		more = true;

	for (uint32_t w = 0; w < facts.nwaiters; w++)
		waiting[w] = busy[waiters[w].owner] = true;
	for (uint32_t owner = 0; owner < facts.nowners; owner++)
		if (!busy[owner])
			give_up_all(owner);
	while (more)
	{
		uint32_t	from = facts.nwaits > 0 ? below(facts.nwaits) : 0;

		more = false;
		for (uint32_t i = 0; i < facts.nwaits && !more; i++)
		{
			uint32_t	v = (from + i) % facts.nwaits;
			uint32_t	owner = waiters[waits[v].waiter].owner;
			lease_request request = request_of(owner, waits[v].mode,
											   waits[v].limit);

			request.behind = is_behind(v, waiting);
			if (!waiting[waits[v].waiter] || !play(waits[v].name, &request))
				continue;
			waiting[waits[v].waiter] = false;
			give_up_all(owner);
			more = true;
		}
	}
}

static void
try_play(void)
{
	bool		waiting[WAITERS_MAX] = {false};
	bool		stuck[WAITERS_MAX];
	uint32_t   *work;

	draw_play();
	work = malloc((stuck_work_size(&facts) + 1) * sizeof(*work));
	if (work == NULL)
		abort();
	stuck_search(&facts, stuck, work);
	free(work);
	play_on(waiting);
	for (uint32_t w = 0; w < facts.nwaiters; w++)
		if (stuck[w] != waiting[w])
			fail("others wait in the end than are stuck");
}

/* Print how often everything was met, and say whether all of it was. */
static bool
report_coverage(void)
{
	const struct
	{
		const char *what;
		uint64_t	times;
	}			situations[] = {
		{"waiters that are stuck", seen_stuck},
		{"waiters that are not", seen_free},
		{"stuck, in no circle of their own", seen_behind},
		{"stuck for each of several names", seen_any},
		{"circles of one", seen_length[0]},
		{"circles of two", seen_length[1]},
		{"circles of three", seen_length[2]},
		{"longer circles", seen_length[3]},
		{"steps by permits", seen_permits},
		{"steps by a guard that is left", seen_guard},
		{"steps by that of the owner's other transaction", seen_own_guard},
		{"steps by a line", seen_line},
	};
	bool		complete = true;

	for (size_t i = 0; i < sizeof(situations) / sizeof(situations[0]); i++)
	{
		printf("%12" PRIu64 " %s\n", situations[i].times, situations[i].what);
		if (situations[i].times == 0)
			complete = false;
	}
	return complete;
}

int
main(int argc, char **argv)
{
	uint64_t	cases = 100000;
	uint64_t	first;
	int			option;

	first = (uint64_t) time(NULL) * 1000003 + (uint64_t) getpid();
	while ((option = getopt(argc, argv, "s:n:")) != -1)
		switch (option)
		{
			case 's':
				first = strtoull(optarg, NULL, 0);
				break;
			case 'n':
				cases = strtoull(optarg, NULL, 0);
				break;
			default:
				fprintf(stderr, "usage: stuck_model [-s SEED] [-n CASES]\n");
				return 2;
		}
	printf("stuck_model -s %" PRIu64 " -n %" PRIu64 "\n", first, cases);
	fflush(stdout);

	/* each case has a seed of its own, so that one can be repeated alone */
	for (uint64_t i = 0; i < cases; i++)
	{
		random_state = seed = first + i;
		try_definition();
		try_play();
	}
	if (!report_coverage() && cases >= COVERAGE_CASES)
	{
		printf("FAILED: something in the table above never happened\n");
		return 1;
	}
	printf("%" PRIu64 " cases, search and model agree\n", cases);
	return 0;
}
