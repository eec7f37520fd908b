/*
 * lease_renewals.h
 *	  Owners whose leases were all renewed at once by an entry that the journal has.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_RENEWALS_H
#define DLOCK_LEASE_RENEWALS_H

#include "lease_call.h"

/* lease_renewals.c */
extern bool lease_renewal_may_be_one(const lease_call *call, int64_t now_us);
extern void lease_renewals_add(const lease_call *call, int64_t now_us);
extern void lease_renewals_age(void);
extern void lease_renewals_forget_old(void);
extern void lease_renewals_forget(void);

#endif							/* DLOCK_LEASE_RENEWALS_H */
