/*
 * lease_stats.h
 *	  What this server has done since it began, or since a reset.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_STATS_H
#define DLOCK_LEASE_STATS_H

#include <stddef.h>
#include <stdint.h>

#define LEASE_COUNTERS(X) \
	X(acquired) X(reentered) X(refused) X(timed_out) X(deadlocks) \
	X(released) X(renewed) X(expired) X(reaped) X(forced) X(woken) \
	X(renewals_lost)

typedef enum lease_counter
{
#define LEASE_COUNTER(name) LEASE_COUNT_##name,
	LEASE_COUNTERS(LEASE_COUNTER)
#undef LEASE_COUNTER
	LEASE_NCOUNTERS
} lease_counter;

/* lease_stats.c */
extern void lease_count(lease_counter counter, uint64_t n);
extern void lease_count_wait(int64_t waited_us);
extern void lease_stats_reset(int64_t wall_us);
extern char *lease_stats_json(size_t waiters, size_t held);

#endif							/* DLOCK_LEASE_STATS_H */
