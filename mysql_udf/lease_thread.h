/*
 * lease_thread.h
 *	  Start a thread in the server.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_THREAD_H
#define DLOCK_LEASE_THREAD_H

/* lease_thread.c; the name has 15 bytes at most */
extern int	lease_thread_start(void *(*run) (void *), const char *name);

#endif							/* DLOCK_LEASE_THREAD_H */
