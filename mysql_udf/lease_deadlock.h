/*
 * lease_deadlock.h
 *	  Find out whether a waiter closes a circle of owners.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_DEADLOCK_H
#define DLOCK_LEASE_DEADLOCK_H

#include "lease_text.h"
#include "lease_waiters.h"

typedef enum lease_deadlock
{
	LEASE_DEADLOCK_NONE,
	LEASE_DEADLOCK_FOUND,
	LEASE_DEADLOCK_UNKNOWN		/* there was no memory to find out */
} lease_deadlock;

/* lease_deadlock.c */
extern lease_deadlock lease_deadlock_find(const lease_call *newcomer,
										  int64_t now_us,
										  lease_text *message,
										  lease_text *unmasked);

#endif							/* DLOCK_LEASE_DEADLOCK_H */
