/*
 * hash.h
 *	  A hash table of objects that contain their own links.
 *
 * Every object in a table has a hash_link as a member.  The table only looks at the
 * hash: a caller that looks something up goes through all objects with it, by
 * hash_first() and hash_next(), and compares.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_HASH_H
#define DLOCK_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lease.h"

typedef struct hash_link
{
	struct hash_link *next;		/* in the same slot */
	struct hash_link **place;	/* what points here, NULL: nothing.  One owner may
								 * have many leases, all with one hash, and each of
								 * them is to be removed without a look at the
								 * others */
	uint64_t	hash;
} hash_link;

/* All zero is an empty table. */
typedef struct hash_table
{
	hash_link **slots;
	size_t		nslots;			/* a power of two, or 0 */
	size_t		count;
} hash_table;

/* hash.c */
extern bool hash_start(void);
extern uint64_t hash_bytes(lease_bytes bytes, uint64_t seed);
extern bool hash_reserve(hash_table *table);
extern void hash_add(hash_table *table, hash_link *link, uint64_t hash);
extern void hash_remove(hash_table *table, hash_link *link);
extern hash_link *hash_first(const hash_table *table, uint64_t hash);
extern hash_link *hash_next(const hash_link *link);

/* The object that has a link as a member. */
#define hash_object(type, member, link) \
	((type *) ((char *) (link) - offsetof(type, member)))

#endif							/* DLOCK_HASH_H */
