/*
 * lease_session.h
 *	  End the leases of a session or transaction with it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_SESSION_H
#define DLOCK_LEASE_SESSION_H

#include "compat.h"
#include "lease.h"

/* lease_session.c */
extern void lease_session_watch(void);
extern void lease_session_prune(void);
extern void lease_session_took(lease_bytes name, lease_bytes owner,
							   lease_kind kind, uint64 token);
extern void lease_session_gave(lease_bytes name, lease_bytes owner, Oid role,
							   uint64 token);
extern void lease_session_gave_all(lease_bytes owner);
extern void lease_session_end(bool lost);

#endif							/* DLOCK_LEASE_SESSION_H */
