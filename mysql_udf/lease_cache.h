/*
 * lease_cache.h
 *	  What the table is believed to hold, to be checked when it is written.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_CACHE_H
#define DLOCK_LEASE_CACHE_H

#include "lease_table.h"

/* What is known of a name that has rows. */
typedef struct lease_cached
{
	struct lease_cached *next;	/* of the same hash */
	bool		has_row;		/* this is its only one, and of this run: */
	lease_row	row;
	bool		released;		/* its release has been answered, and is to be
								 * written */
	int64_t		seen_us;		/* when the table had the row */
	size_t		name_length;
	char		name[LEASE_STRING_MAX];
} lease_cached;

/* lease_cache.c */
extern lease_cached *lease_cache_find(lease_bytes name);
extern void lease_cache_put(lease_bytes name, const lease_row *row);
extern void lease_cache_put_other(lease_bytes name, bool locked);
extern void lease_cache_forget(lease_bytes name);
extern void lease_cache_forget_all(void);

#endif							/* DLOCK_LEASE_CACHE_H */
