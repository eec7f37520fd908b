/*
 * lease_stats.c
 *	  What this server has done since it began, or since a reset.
 *
 * Protected by the engine's mutex.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_stats.h"

#include <inttypes.h>
#include <string.h>

#include "lease_text.h"

/*
 * Waits are counted by their length: bucket i has those shorter than
 * 2^i * 100 microseconds that no earlier bucket has; the last has all others.
 */
#define WAIT_BUCKETS	24
#define WAIT_UNIT_US	100

static uint64_t counters[LEASE_NCOUNTERS];
static uint64_t waits[WAIT_BUCKETS];
static int64_t reset_us;

void
lease_count(lease_counter counter, uint64_t n)
{
	counters[counter] += n;
}

void
lease_count_wait(int64_t waited_us)
{
	int			bucket = 0;

	while (bucket < WAIT_BUCKETS - 1 &&
		   waited_us >= (INT64_C(1) << bucket) * WAIT_UNIT_US)
		bucket++;
	waits[bucket]++;
}

/* Begin anew, at a time since 1970. */
void
lease_stats_reset(int64_t wall_us)
{
	memset(counters, 0, sizeof(counters));
	memset(waits, 0, sizeof(waits));
	reset_us = wall_us;
}

/* All of it as a JSON object, to be freed; NULL if memory is short. */
char *
lease_stats_json(size_t waiters, size_t held)
{
	static const char *const names[] = {
#define LEASE_COUNTER(name) #name,
		LEASE_COUNTERS(LEASE_COUNTER)
#undef LEASE_COUNTER
	};
	lease_text	json = {0};

	lease_text_add(&json, "{\"waiters\": %zu, \"held\": %zu, \"stats_reset_us\": %" PRId64,
				   waiters, held, reset_us);
	for (size_t i = 0; i < LEASE_NCOUNTERS; i++)
		lease_text_add(&json, ", \"%s\": %" PRIu64, names[i], counters[i]);
	for (size_t i = 0; i < WAIT_BUCKETS; i++)
		lease_text_add(&json, "%s%" PRIu64,
					   i > 0 ? ", " : ", \"wait_histogram\": [", waits[i]);
	lease_text_add(&json, "]}");
	if (json.failed)
		lease_text_free(&json);
	return json.data;
}
