/*
 * lease_protect.h
 *	  Give back what a call has taken when it fails before it answers.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_PROTECT_H
#define DLOCK_LEASE_PROTECT_H

#include "compat.h"

/* lease_protect.c */
extern void lease_protect(void (*step) (void *context), void *context);
extern void lease_protect_abort(bool whole);
extern bool lease_protect_exit(void);
extern void lease_protect_give_back(void);

/* for the worker */
extern void lease_protect_take_over(Relation rel);

#endif							/* DLOCK_LEASE_PROTECT_H */
