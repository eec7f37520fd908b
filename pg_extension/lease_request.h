/*
 * lease_request.h
 *	  Requests, each from its SQL function to its answer.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_REQUEST_H
#define DLOCK_LEASE_REQUEST_H

#include "compat.h"
#include "lease.h"
#include "lease_page.h"
#include "lease_queue.h"
#include "lease_waiter.h"

/*
 * Most names that are taken together: a backend can hold 200 lightweight locks,
 * and this needs one for each name and a few more.
 */
#define LEASE_ALL_MAX	100

/*
 * Most names of a call that takes them one after another; one that waits needs a
 * place for each, of LEASE_WAITER_PLACES_MAX.
 */
#define LEASE_MANY_MAX	1000

/* lease_request.c: one name */
extern LeaseAnswer lease_request_apply(lease_bytes name,
									   const lease_request *request,
									   int64 wait_us);
extern bool lease_request_guard(lease_bytes name, lease_bytes owner,
								uint64 token, LeaseEntry **holder, bool *full);
extern bool lease_request_wait(lease_bytes name, int64 wait_us);

/* lease_all.c: many names, all or none */
extern LeaseAnswer lease_all_acquire(const lease_bytes *names, int count,
									 const lease_request *request,
									 int64 wait_us, uint64 *tokens,
									 int *failed);

/* lease_many.c: many names, one after another */
extern LeaseAnswer lease_many_claim(const lease_bytes *names, int count,
									const lease_request *request, int wanted,
									int64 wait_us, uint64 *tokens,
									int *failed);
extern void lease_many_change(const lease_bytes *names, int count,
							  const lease_request *request,
							  const uint64 *tokens, bool *done);

#endif							/* DLOCK_LEASE_REQUEST_H */
