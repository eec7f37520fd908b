/*
 * stuck_fuzz.c
 *	  Bytes from libFuzzer, read as who waits for whom.
 *
 * Whatever the bytes, the facts keep to what stuck.h asks of a caller, in
 * memory of exactly the promised size, and stuck.c must find what the
 * definition says.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "stuck_naive.h"

#include <stdio.h>

#define THINGS_MAX		24

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is left of the input. */
static const uint8_t *input;
static size_t input_left;

/* Take the next byte of the input, as a number below n; after its end, 0. */
static uint32_t
below(uint32_t n)
{
	if (input_left == 0)
		return 0;
	input_left--;
	return *input++ % n;
}

static void *
room(uint32_t count, size_t size)
{
	void	   *p;

	if (count == 0)
		return NULL;
	p = malloc(count * size);
	if (p == NULL)
		abort();
	return p;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	stuck_facts f = {0};
	stuck_waiter *waiters;
	stuck_wait *waits;
	stuck_lease *leases;
	stuck_guard *guards;
	bool	   *stuck;
	const char *fault;

	input = data;
	input_left = size;
	f.nnames = 1 + below(THINGS_MAX);
	f.nowners = 1 + below(THINGS_MAX);
	f.nwaiters = below(THINGS_MAX);
	f.nwaits = f.nwaiters == 0 ? 0 : below(THINGS_MAX);
	f.nleases = below(THINGS_MAX);
	f.nguards = f.nleases == 0 ? 0 : below(THINGS_MAX);
	f.waiters = waiters = room(f.nwaiters, sizeof(*waiters));
	f.waits = waits = room(f.nwaits, sizeof(*waits));
	f.leases = leases = room(f.nleases, sizeof(*leases));
	f.guards = guards = room(f.nguards, sizeof(*guards));
	stuck = room(f.nwaiters, sizeof(*stuck));
	for (uint32_t i = 0; i < f.nwaits; i++)
	{
		waits[i].waiter = below(f.nwaiters);
		waits[i].name = below(f.nnames);
		waits[i].mode = (lease_mode) (LEASE_MODE_FIRST + below(3));
		waits[i].limit = 1 + below(6);
		waits[i].permits = 1 + below(6);
		waits[i].in_line = below(3) > 0;
	}
	for (uint32_t i = 0; i < f.nleases; i++)
	{
		leases[i].name = below(f.nnames);
		leases[i].owner = below(f.nowners);
		leases[i].mode = (lease_mode) (LEASE_MODE_FIRST + below(3));
		leases[i].held = below(4);
		leases[i].bound = below(4) == 0;
		leases[i].waiter = f.nwaiters == 0 || below(3) == 0 ? STUCK_NONE :
			below(f.nwaiters);
	}
	for (uint32_t i = 0; i < f.nwaiters; i++)
	{
		waiters[i].owner = below(f.nowners);
		waiters[i].acts_for = below(4) > 0 ? STUCK_NONE : below(f.nowners);
	}
	for (uint32_t i = 0; i < f.nguards; i++)
	{
		guards[i].lease = below(f.nleases);
		guards[i].waiter = f.nwaiters == 0 || below(3) == 0 ? STUCK_NONE :
			below(f.nwaiters);
		guards[i].mode = (lease_mode) (LEASE_MODE_FIRST + below(3));
		guards[i].pinned = 1 + below(4);
		guards[i].bound = below(3) == 0;
	}
	fault = naive_fault(&f, stuck);
	if (fault != NULL)
	{
		fprintf(stderr, "stuck_fuzz: %s\n", fault);
		abort();
	}
	free(waiters);
	free(waits);
	free(leases);
	free(guards);
	free(stuck);
	return 0;
}
