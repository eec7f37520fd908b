/*
 * lease_cache.c
 *	  What the table is believed to hold, to be checked when it is written.
 *
 * The table is the authority; this saves reading it.  The cache has rows that
 * this run has written, there or into the journal, each the only one of its name, and which names have
 * others.  A release may be answered from it, for what this run granted it also
 * sees end.  A grant is written in a way that fails if the cache was wrong: a
 * row is inserted, which it cannot be if there is one, or the journal knows that
 * there is none.  Then everything concerned is forgotten, and the next attempt
 * reads.  A refusal is checked by
 * nothing, and goes by what is a second old at most.
 *
 * A name that is guarded is kept out, because its row may be locked.
 *
 * Protected by the engine's mutex.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_cache.h"

#include <stdlib.h>
#include <string.h>

#include "lease_batch.h"

#define CACHE_SLOTS		4096

/*
 * Enough for what is taken and given back often.  What is held for long makes
 * room for what comes: one entry is looked for among so many slots.
 */
#define CACHE_MAX		8192
#define EVICT_SLOTS		64

static lease_cached *slots[CACHE_SLOTS];
static size_t nrows = 0;

static lease_cached **
place_of(lease_bytes name)
{
	lease_cached **place = &slots[lease_hash(name, 0) % CACHE_SLOTS];

	while (*place != NULL &&
		   !lease_same(name, (lease_bytes) {(*place)->name,
					   (*place)->name_length}))
		place = &(*place)->next;
	return place;
}

/* What is known of a name, or NULL. */
lease_cached *
lease_cache_find(lease_bytes name)
{
	return *place_of(name);
}

static void
drop(lease_cached **place)
{
	lease_cached *cached = *place;

	*place = cached->next;
	free(cached);
	nrows--;
}

/*
 * Forget the row of some name that is held: false if none was found.  Whoever
 * wants it is believed to find it free, which the table will deny.  What is to
 * be deleted stays, and so do names that may be locked.
 */
static bool
evict(void)
{
	static size_t hand = 0;

	for (int i = 0; i < EVICT_SLOTS; i++)
	{
		lease_cached **place = &slots[hand++ % CACHE_SLOTS];

		while (*place != NULL && (!(*place)->has_row || (*place)->released))
			place = &(*place)->next;
		if (*place != NULL)
		{
			drop(place);
			return true;
		}
	}
	return false;
}

/* The entry of a name, made if there is room for one, or it must be. */
static lease_cached *
get(lease_bytes name, bool must)
{
	lease_cached *cached = lease_cache_find(name);

	if (cached == NULL)
	{
		if (nrows >= CACHE_MAX && !evict() && !must)
			return NULL;
		cached = malloc(sizeof(lease_cached));
		if (cached == NULL)
			abort();
		cached->next = NULL;
		cached->name_length = name.length;
		memcpy(cached->name, name.data, name.length);
		*place_of(name) = cached;
		nrows++;
	}
	cached->has_row = false;
	cached->released = false;
	return cached;
}

/* Remember the only row of a name. */
void
lease_cache_put(lease_bytes name, const lease_row *row)
{
	lease_cached *cached = get(name, false);

	if (cached == NULL)
		return;
	cached->has_row = true;
	cached->row = *row;
	cached->seen_us = lease_now();
}

/*
 * Remember that a name has rows other than one of this run.  If one of them is
 * locked, to believe it free would mean to wait for its lock.
 */
void
lease_cache_put_other(lease_bytes name, bool locked)
{
	(void) get(name, locked);
}

/* Forget what is known of a name. */
void
lease_cache_forget(lease_bytes name)
{
	lease_cached **place = place_of(name);

	if (*place != NULL)
		drop(place);
}

/* Forget all names. */
void
lease_cache_forget_all(void)
{
	for (size_t i = 0; i < CACHE_SLOTS; i++)
		while (slots[i] != NULL)
			drop(&slots[i]);
}
