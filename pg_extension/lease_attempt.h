/*
 * lease_attempt.h
 *	  Attempts at a request on one name.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_ATTEMPT_H
#define DLOCK_LEASE_ATTEMPT_H

#include "compat.h"
#include "lease.h"
#include "lease_queue.h"
#include "lease_rows.h"

/* lease_attempt.c */
extern bool lease_attempt(LeaseCall *call, LeaseAnswer *answer, bool may_wait);
extern bool lease_attempt_once(LeaseCall *call, LeaseAnswer *answer);
extern void lease_attempt_prepare(LeaseCall *call);
extern void lease_attempt_give_back(Relation rel, lease_bytes name, Oid role,
									const lease_request *request);
extern void lease_attempt_undo(Relation rel, lease_bytes name, Oid role,
							   const lease_request *request,
							   const LeaseAnswer *answer);

#endif							/* DLOCK_LEASE_ATTEMPT_H */
