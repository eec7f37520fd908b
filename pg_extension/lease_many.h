/*
 * lease_many.h
 *	  One request on many names, one after another: claim, renew, release.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_MANY_H
#define DLOCK_LEASE_MANY_H

#include "compat.h"
#include "lease.h"
#include "lease_queue.h"
#include "lease_waiter.h"

/* Most names of one call. */
#define LEASE_MANY_MAX		1000

/* Most names that one call can wait for; each takes a place to wait in. */
#define LEASE_MANY_WAIT_MAX	LEASE_WAITER_PLACES_MAX

/* lease_many.c */
extern LeaseAnswer lease_many_claim(const lease_bytes *names, int count,
									const lease_request *request, int wanted,
									int64 wait_us, uint64 *tokens,
									int *failed);
extern void lease_many_change(const lease_bytes *names, int count,
							  const lease_request *request,
							  const uint64 *tokens, bool *done);

#endif							/* DLOCK_LEASE_MANY_H */
