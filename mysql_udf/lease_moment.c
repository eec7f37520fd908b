/*
 * lease_moment.c
 *	  The clocks, and what leases are judged by at a moment.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_moment.h"

#include <sys/random.h>

#include "lease_settings.h"

static uint64_t run = 0;

static int64_t
read_clock(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* The clock that deadlines are on: goes on during suspend, never steps. */
int64_t
lease_now(void)
{
	return read_clock(CLOCK_BOOTTIME);
}

/* Microseconds since 1970, to be shown. */
int64_t
lease_wall(void)
{
	return read_clock(CLOCK_REALTIME);
}

/* A time on our clock, as a time on the clock that threads can sleep by. */
struct timespec
lease_monotonic(int64_t at_us)
{
	int64_t		left_us = at_us - lease_now();
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	if (left_us <= 0)
		return t;
	left_us += t.tv_nsec / 1000;
	t.tv_sec += left_us / 1000000;
	t.tv_nsec = left_us % 1000000 * 1000;
	return t;
}

/* Choose the number of this run of the server, before there is another thread. */
void
lease_run_begin(void)
{
	while (run == 0)
		if (getrandom(&run, sizeof(run), 0) != sizeof(run))
			run = 0;
}

/* This run of the server, as a writer of leases; never changes. */
uint64_t
lease_run(void)
{
	return run;
}

/* What leases and requests are judged by now.  The engine's mutex is held. */
lease_moment
lease_moment_now(bool direct)
{
	return (lease_moment) {
		.now_us = lease_now(),
		.wall_us = lease_wall(),
		.delay_us = settings->lock_delay_us,
		.writer = run,
		.direct = direct,
	};
}
