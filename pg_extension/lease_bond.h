/*
 * lease_bond.h
 *	  What the leases of sessions and transactions are bound to.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_BOND_H
#define DLOCK_LEASE_BOND_H

#include "compat.h"
#include "lease.h"
#include "lease_page.h"
#include "lease_state.h"

/* lease_bond.c */
extern Size lease_bond_size(void);
extern void lease_bond_attach(char *start, bool make);
extern void lease_bond_use(lease_kind kind);
extern bool lease_bond_is_used(lease_kind kind);
extern LeaseStamp lease_bond_mine(lease_kind kind);
extern void lease_bond_end(lease_kind kind, bool lost);
extern lease_holder lease_bond_holder(LeaseDatabase *db,
									  const LeaseEntry *entry, int64 now_us);

#endif							/* DLOCK_LEASE_BOND_H */
