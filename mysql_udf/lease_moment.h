/*
 * lease_moment.h
 *	  The clocks, and everything that leases are judged by at a moment.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_MOMENT_H
#define DLOCK_LEASE_MOMENT_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* What judges and stamps the leases. */
typedef struct lease_moment
{
	int64_t		now_us;			/* our clock */
	int64_t		wall_us;		/* since 1970 */
	int64_t		delay_us;		/* the lock delay */
	uint64_t	writer;			/* this run */
	bool		direct;			/* changes go into the table at once, so that a
								 * locked row cannot be changed */
} lease_moment;

/* lease_moment.c */
extern int64_t lease_now(void);
extern int64_t lease_wall(void);
extern struct timespec lease_monotonic(int64_t at_us);
extern void lease_run_begin(void);
extern uint64_t lease_run(void);
extern lease_moment lease_moment_now(bool direct);

/* The earlier of two times. */
static inline int64_t
lease_earlier(int64_t a_us, int64_t b_us)
{
	return a_us < b_us ? a_us : b_us;
}

#endif							/* DLOCK_LEASE_MOMENT_H */
