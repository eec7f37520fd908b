/*
 * lease_mutex.h
 *	  The engine's mutex, the batcher's sleep, and its questions to the server.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_MUTEX_H
#define DLOCK_LEASE_MUTEX_H

#include <stdint.h>

/* lease_mutex.c */
extern void lease_mutex_begin(void);
extern void lease_lock(void);
extern void lease_unlock(void);
extern void lease_sleep_until(int64_t until_us);
extern int64_t lease_sleeps_until_us(void);
extern void lease_wake(void);
extern void lease_wake_before(int64_t due_us);
extern void lease_ask(void);
extern int64_t lease_resume(void);
extern int64_t lease_asks_since_us(void);
extern void lease_note_slow(void);
extern int64_t lease_slow_us(void);

#endif							/* DLOCK_LEASE_MUTEX_H */
