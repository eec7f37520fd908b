/*
 * lease_activate.h
 *	  Make the lock table ready for grants.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_ACTIVATE_H
#define DLOCK_LEASE_ACTIVATE_H

#include "compat.h"
#include "lease_state.h"

/* lease_activate.c */
extern LeaseDatabase *lease_activate(Relation rel);
extern LeaseDatabase *lease_activate_at_once(Relation rel);
extern bool lease_activate_was_done(Relation rel);

#endif							/* DLOCK_LEASE_ACTIVATE_H */
