/*
 * lease_request.h
 *	  One request on one name, from its SQL function to its answer.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_REQUEST_H
#define DLOCK_LEASE_REQUEST_H

#include "compat.h"
#include "lease.h"
#include "lease_page.h"
#include "lease_queue.h"

/* lease_request.c */
extern LeaseAnswer lease_request_apply(lease_bytes name,
									   const lease_request *request,
									   int64 wait_us);
extern bool lease_request_guard(lease_bytes name, lease_bytes owner,
								uint64 token, LeaseEntry **holder, bool *full);
extern bool lease_request_wait(lease_bytes name, int64 wait_us);

#endif							/* DLOCK_LEASE_REQUEST_H */
