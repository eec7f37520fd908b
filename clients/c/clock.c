/*
 * clock.c
 *	  The clock of all deadlines, and durations as people write them.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dlock.h"
#include "keep.h"

/* Without a clock that counts suspension, the next best. */
#ifdef CLOCK_BOOTTIME
#define LEASE_CLOCK	CLOCK_BOOTTIME
#else
#define LEASE_CLOCK	CLOCK_MONOTONIC
#endif

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
	if (left_us > (int64_t) 3600 * 1000 * 1000)
		return 3600 * 1000;
	return (int) ((left_us + 999) / 1000);
}

bool
dlock_parse_duration(const char *text, int64_t *us)
{
	static const struct
	{
		const char *name;
		int64_t		us;
	}			units[] =
	{
		{"", 1000000}, {"us", 1}, {"ms", 1000}, {"s", 1000000},
		{"sec", 1000000}, {"m", 60000000}, {"min", 60000000},
		{"h", 3600000000}, {"d", 86400000000},
	};
	const char *c = text;
	bool		negative = *c == '-';
	bool		digits = false;
	int64_t		whole = 0;
	int64_t		fraction = 0;
	int64_t		scale = 1;
	size_t		unit = 0;

	c += *c == '-' || *c == '+';
	for (; *c >= '0' && *c <= '9'; c++, digits = true)
	{
		if (whole > KEEP_LONGEST_US)
			return false;
		whole = 10 * whole + (*c - '0');
	}
	if (*c == '.')
		for (c++; *c >= '0' && *c <= '9'; c++, digits = true)
			/* digits below a microsecond of a day are cut */
			if (scale < INT64_C(100000000000))
			{
				fraction = 10 * fraction + (*c - '0');
				scale *= 10;
			}
	if (!digits)
		return false;
	while (*c == ' ')
		c++;
	while (unit < sizeof(units) / sizeof(units[0]) &&
		   strcmp(units[unit].name, c) != 0)
		unit++;
	if (unit == sizeof(units) / sizeof(units[0]) ||
		whole > KEEP_LONGEST_US / units[unit].us)
		return false;

	/* the fraction is below 10^11, a unit too: no more than 10^22 as a double */
	*us = whole * units[unit].us +
		(int64_t) ((double) fraction / (double) scale * (double) units[unit].us +
				   0.5);
	if (negative)
		*us = -*us;
	return true;
}
