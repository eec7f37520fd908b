/*
 * lease_reaper.h
 *	  Find what is over, and have it removed.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_REAPER_H
#define DLOCK_LEASE_REAPER_H

#include <stdint.h>

/* lease_reaper.c */
extern int64_t lease_reap_due_us(void);
extern void lease_reap_put_off(int64_t now_us);
extern void lease_reap_soon(void);
extern void lease_reap(int64_t now_us);

#endif							/* DLOCK_LEASE_REAPER_H */
