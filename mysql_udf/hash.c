/*
 * hash.c
 *	  A hash table of things that bring their links along.
 *
 * It grows as things come, and never shrinks.  If there is no memory to grow, it
 * only becomes slower; so only the first thing can fail to find room, and
 * hash_reserve() says so beforehand.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "hash.h"

#include <stdlib.h>

#define SLOTS_MIN		1024

/* A hash of bytes and a number: FNV-1a of 64 bits, folded. */
uint64_t
hash_bytes(lease_bytes bytes, uint64_t seed)
{
	uint64_t	hash = UINT64_C(14695981039346656037) ^ seed;

	for (size_t i = 0; i < bytes.length; i++)
		hash = (hash ^ (unsigned char) bytes.data[i]) *
			UINT64_C(1099511628211);
	return hash ^ (hash >> 32);
}

static hash_link **
slot_of(const hash_table *table, uint64_t hash)
{
	return &table->slots[hash & (table->nslots - 1)];
}

static void
put(hash_table *table, hash_link *link)
{
	hash_link **slot = slot_of(table, link->hash);

	link->next = *slot;
	*slot = link;
}

/* Make room for one more: false if there is no memory for any. */
bool
hash_reserve(hash_table *table)
{
	hash_table	larger = {.nslots = table->nslots ? table->nslots * 2 : SLOTS_MIN};

	if (table->count < table->nslots)
		return true;
	larger.slots = calloc(larger.nslots, sizeof(hash_link *));
	if (larger.slots == NULL)
		return table->nslots > 0;
	for (size_t i = 0; i < table->nslots; i++)
		while (table->slots[i] != NULL)
		{
			hash_link  *link = table->slots[i];

			table->slots[i] = link->next;
			put(&larger, link);
		}
	larger.count = table->count;
	free(table->slots);
	*table = larger;
	return true;
}

/* Add something, for which there is room: hash_reserve(). */
void
hash_add(hash_table *table, hash_link *link, uint64_t hash)
{
	link->hash = hash;
	put(table, link);
	table->count++;
}

/* Remove something that is there. */
void
hash_remove(hash_table *table, hash_link *link)
{
	hash_link **place = slot_of(table, link->hash);

	while (*place != link)
		place = &(*place)->next;
	*place = link->next;
	table->count--;
}

static hash_link *
with_hash(hash_link *link, uint64_t hash)
{
	while (link != NULL && link->hash != hash)
		link = link->next;
	return link;
}

/* The first of those with a hash, or NULL. */
hash_link *
hash_first(const hash_table *table, uint64_t hash)
{
	return table->nslots == 0 ? NULL : with_hash(*slot_of(table, hash), hash);
}

/* The next that has the same, or NULL. */
hash_link *
hash_next(const hash_link *link)
{
	return with_hash(link->next, link->hash);
}
