/*
 * clients.h
 *	  What the clients of load.c and churn.c share: the limit of their permits, the
 *	  clock of their histories, and their choices.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_CLIENTS_H
#define DLOCK_CLIENTS_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define PERMITS		3			/* the limit that all use */

/* Microseconds of CLOCK_MONOTONIC. */
static inline int64_t
now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* One of so many numbers, from 0 on. */
static inline int
dice(unsigned int *random, int sides)
{
	return rand_r(random) % sides;
}

#endif							/* DLOCK_CLIENTS_H */
