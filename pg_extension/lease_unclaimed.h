/*
 * lease_unclaimed.h
 *	  Notes of holds that calls have taken and their callers have not learnt of.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_UNCLAIMED_H
#define DLOCK_LEASE_UNCLAIMED_H

#include "compat.h"
#include "lease.h"

/* What one acquire has taken. */
typedef struct LeaseUnclaimedHold
{
	Oid			database;
	Oid			role;			/* that acquired */
	uint64		token;
	uint32		holds;			/* how many */
	bool		has_request;	/* was asked for with a request id */
	uint8		name_length;
	uint8		owner_length;
	char		name[LEASE_STRING_MAX];
	char		owner[LEASE_STRING_MAX];
} LeaseUnclaimedHold;

/* lease_unclaimed.c */
extern Size lease_unclaimed_size(void);
extern void lease_unclaimed_attach(char *start, bool make);
extern void lease_unclaimed_reserve(int count);
extern void lease_unclaimed_add(lease_bytes name, Oid role,
								const lease_request *request, uint64 token,
								uint32 holds);
extern void lease_unclaimed_claim(void);
extern int	lease_unclaimed_set_aside(void);
extern void lease_unclaimed_restore(int noted);
extern bool lease_unclaimed_any(void);
extern const LeaseUnclaimedHold *lease_unclaimed_strike(void);
extern void lease_unclaimed_hand_over(void);

/* for the worker */
extern void lease_unclaimed_forget(Oid database);
extern bool lease_unclaimed_is_due(void);
extern bool lease_unclaimed_take(LeaseUnclaimedHold *hold);

#endif							/* DLOCK_LEASE_UNCLAIMED_H */
