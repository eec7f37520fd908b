/*
 * hash.c
 *	  A hash table of objects that contain their own links.
 *
 * It grows with its objects, and never shrinks.  Then too objects with the same hash stay
 * in their order, the newest first.  If there is no memory to grow, it only
 * becomes slower.  So only the first object can lack room, and hash_reserve() tells.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "hash.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SLOTS_MIN		1024

static struct
{
	uint64_t	first;
	uint64_t	second;
}			key;

/*
 * Choose the key of this run.  Callers choose names and owners.  Without a key, a caller
 * could choose many that have the same hash, and all other calls would go through them.
 * False if the system gives no random bytes.
 */
bool
hash_start(void)
{
	return getrandom(&key, sizeof(key), 0) == sizeof(key);
}

static uint64_t
rotate(uint64_t x, int bits)
{
	return x << bits | x >> (64 - bits);
}

/* A round of SipHash; inline, so that the compiler keeps v[] in registers. */
static inline __attribute__((always_inline)) void
mix(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotate(v[1], 13) ^ v[0];
	v[3] = rotate(v[3], 16) ^ v[2];
	v[0] = rotate(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = rotate(v[1], 17) ^ v[2];
	v[3] = rotate(v[3], 21) ^ v[0];
	v[2] = rotate(v[2], 32);
}

static inline __attribute__((always_inline)) void
mix_word(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	mix(v);
	v[0] ^= word;
}

/*
 * A hash of bytes and a number: SipHash-1-3 (Aumasson and Bernstein), with the number
 * as a part of the key.
 */
uint64_t
hash_bytes(lease_bytes bytes, uint64_t seed)
{
	uint64_t	v[4] = {
		UINT64_C(0x736f6d6570736575) ^ key.first ^ seed,
		UINT64_C(0x646f72616e646f6d) ^ key.second,
		UINT64_C(0x6c7967656e657261) ^ key.first ^ seed,
		UINT64_C(0x7465646279746573) ^ key.second
	};
	size_t		whole = bytes.length / 8 * 8;
	uint64_t	word;

	for (size_t i = 0; i < whole; i += 8)
	{
		memcpy(&word, bytes.data + i, 8);
		mix_word(v, word);
	}
	word = (uint64_t) bytes.length << 56;
	for (size_t i = whole; i < bytes.length; i++)
		word |= (uint64_t) (unsigned char) bytes.data[i] << 8 * (i - whole);
	mix_word(v, word);
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		mix(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
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
	link->place = slot;
	if (link->next != NULL)
		link->next->place = &link->next;
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
	{
		hash_link  *oldest = NULL;
		hash_link  *next;

		for (hash_link *link = table->slots[i]; link != NULL; link = next)
		{
			next = link->next;
			link->next = oldest;
			oldest = link;
		}
		for (; oldest != NULL; oldest = next)
		{
			next = oldest->next;
			put(&larger, oldest);
		}
	}
	larger.count = table->count;
	free(table->slots);
	*table = larger;
	return true;
}

/* Add an object; hash_reserve() has made room for it. */
void
hash_add(hash_table *table, hash_link *link, uint64_t hash)
{
	link->hash = hash;
	put(table, link);
	table->count++;
}

/* Remove an object. */
void
hash_remove(hash_table *table, hash_link *link)
{
	*link->place = link->next;
	if (link->next != NULL)
		link->next->place = link->place;
	link->place = NULL;
	table->count--;
}

static hash_link *
with_hash(hash_link *link, uint64_t hash)
{
	while (link != NULL && link->hash != hash)
		link = link->next;
	return link;
}

/* The first object with a hash, or NULL. */
hash_link *
hash_first(const hash_table *table, uint64_t hash)
{
	return table->nslots == 0 ? NULL : with_hash(*slot_of(table, hash), hash);
}

/* The next object with the same hash, or NULL. */
hash_link *
hash_next(const hash_link *link)
{
	return with_hash(link->next, link->hash);
}
