/*
 * lease_owned.h
 *	  The names of an owner's leases, for a call that concerns all of them.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_OWNED_H
#define DLOCK_LEASE_OWNED_H

#include "lease_call.h"

/* lease_owned.c */
extern void lease_owned_find(lease_call *call);

#endif							/* DLOCK_LEASE_OWNED_H */
