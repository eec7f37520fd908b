/*
 * lease_waiting.h
 *	  The waiters, as JSON.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_WAITING_H
#define DLOCK_LEASE_WAITING_H

#include "dlock_call.h"

/* lease_waiting.c */
extern char *lease_waiting_json(const dlock_caller *caller);

#endif							/* DLOCK_LEASE_WAITING_H */
