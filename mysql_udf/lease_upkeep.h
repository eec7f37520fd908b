/*
 * lease_upkeep.h
 *	  What the batcher does every second by itself.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_UPKEEP_H
#define DLOCK_LEASE_UPKEEP_H

#include <stdint.h>

/* lease_upkeep.c */
extern int64_t lease_upkeep_due_us(void);
extern void lease_upkeep_look_soon(void);
extern void lease_upkeep_put_off(int64_t now_us);
extern void lease_upkeep(void);

#endif							/* DLOCK_LEASE_UPKEEP_H */
