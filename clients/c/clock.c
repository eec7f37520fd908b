/*
 * clock.c
 *	  The clock of all deadlines, and durations as people write them.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dlock.h"
#include "duration.h"
#include "keep.h"

/*
 * A clock that nobody sets and that counts suspension.  On a system where we know
 * of none, leases would outlive their deadlines, so the library cannot be built.
 */
#ifdef CLOCK_BOOTTIME
#define LEASE_CLOCK	CLOCK_BOOTTIME
#elif defined(__APPLE__)
#define LEASE_CLOCK	CLOCK_MONOTONIC
#else
#error "no clock is known here that counts the time for which a machine is suspended"
#endif

/*
 * How long to sleep at most.  poll() does not count the time for which a machine is
 * suspended, as our clock does: a program that goes on may have to renew at once.
 */
#define LONGEST_NAP_US	INT64_C(1000000)

int64_t
dlock_now_us(void)
{
	struct timespec now;

	/*
	 * it cannot fail for a clock that exists; without a clock nothing may be
	 * held
	 */
	if (clock_gettime(LEASE_CLOCK, &now) != 0)
		abort();
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int
dlock_timeout_ms(int64_t until_us)
{
	int64_t		left_us;

	if (until_us == DLOCK_NEVER)
		return -1;
	left_us = until_us - dlock_now_us();
	if (left_us <= 0)
		return 0;
	if (left_us > LONGEST_NAP_US)
		left_us = LONGEST_NAP_US;
	return (int) ((left_us + 999) / 1000);
}

bool
dlock_parse_duration(const char *text, int64_t *us)
{
	int64_t		read_us;

	if (lease_parse_duration(text, strlen(text), &read_us) != LEASE_DURATION_OK ||
		read_us > KEEP_LONGEST_US || read_us < -KEEP_LONGEST_US)
		return false;
	*us = read_us;
	return true;
}
