/*
 * lease_names.h
 *	  Names that were found, for a call that concerns them.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_NAMES_H
#define DLOCK_LEASE_NAMES_H

#include "lease_call.h"

/* All zero is an empty list. */
typedef struct lease_names
{
	lease_bytes *names;			/* copies */
	size_t		count;
	size_t		room;
	bool		failed;			/* memory was short */
} lease_names;

/* lease_names.c */
extern void lease_names_add(lease_names *list, lease_bytes name);
extern void lease_names_sort(lease_names *list);
extern bool lease_names_give(const lease_names *list, size_t most,
							 lease_call *call);
extern void lease_names_free(lease_names *list);

#endif							/* DLOCK_LEASE_NAMES_H */
