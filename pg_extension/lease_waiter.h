/*
 * lease_waiter.h
 *	  This backend as a waiter: its places in queues.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_WAITER_H
#define DLOCK_LEASE_WAITER_H

#include "compat.h"
#include "lease_queue.h"
#include "lease_rows.h"

/* Most names that one call can watch. */
#define LEASE_WAITER_PLACES_MAX	100

/* lease_waiter.c */
extern LeaseWaiter *lease_waiter_begin(const LeaseCall *call,
									   LeaseWaitRole role_in_queue);
extern LeaseWaiter *lease_waiter_add(const LeaseCall *call,
									 LeaseWaitRole role_in_queue);
extern LeaseWaiter *lease_waiter_mine(void);
extern LeaseWaiter *lease_waiter_last(void);
extern lease_bytes lease_waiter_name(void);
extern bool lease_waiter_leave(void);
extern void lease_waiter_leave_name(uint32 hash, lease_bytes name);
extern void lease_waiter_finish(void);
extern bool lease_waiter_abandon(LeaseWaiter *granted);

#endif							/* DLOCK_LEASE_WAITER_H */
