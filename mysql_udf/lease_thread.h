/*
 * lease_thread.h
 *	  Start a thread in the server, and let it sleep.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_THREAD_H
#define DLOCK_LEASE_THREAD_H

#include <pthread.h>

/* lease_thread.c; the name has 15 bytes at most */
extern int	lease_thread_start(void *(*run) (void *), const char *name);
extern void lease_thread_begin_sleep(pthread_cond_t *condition);

#endif							/* DLOCK_LEASE_THREAD_H */
