/*
 * lease_all.h
 *	  Acquire many leases at once.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_ALL_H
#define DLOCK_LEASE_ALL_H

#include "compat.h"
#include "lease.h"
#include "lease_queue.h"

/*
 * Most names of one call: a backend can hold 200 lightweight locks, and this
 * needs one for each name and a few more.
 */
#define LEASE_ALL_MAX	100

/* lease_all.c */
extern LeaseAnswer lease_all_acquire(const lease_bytes *names, int count,
									 const lease_request *request,
									 int64 wait_us, uint64 *tokens,
									 int *failed);

#endif							/* DLOCK_LEASE_ALL_H */
