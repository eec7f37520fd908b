/*
 * lease_present.c
 *	  Which names may have rows in the lock table.
 *
 * A lease goes into the journal only if its name has no row.  Where nobody else
 * can write the lock table this can be known: its rows are counted when the run
 * takes over, and from then on with every commit.  Names share counters, and a
 * counter may be too high, which only means that a row is inserted instead; it
 * is never too low.
 *
 * The counts are as good as the journal is ours: another run that has written
 * the lock table has changed the journal before (lease_journal.c).
 *
 * All of this is the batcher's.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_present.h"

#include <stdlib.h>
#include <string.h>

/* Of a table with so many rows one name in ten has to do with another's. */
#define COUNTERS		(1 << 20)

static uint32_t *counters = NULL;
static bool known = false;

static uint32_t *
counter_of(lease_bytes name)
{
	return &counters[lease_hash(name, 0) % COUNTERS];
}

/* Nothing is known. */
void
lease_present_forget(void)
{
	known = false;
}

/* Begin to count all rows. */
void
lease_present_begin(void)
{
	known = false;
	if (counters == NULL)
		counters = malloc(COUNTERS * sizeof(uint32_t));
	if (counters == NULL)
		abort();
	memset(counters, 0, COUNTERS * sizeof(uint32_t));
}

/* There is a row. */
void
lease_present_count(lease_bytes name)
{
	++*counter_of(name);
}

/* That were all, or not. */
void
lease_present_end(bool complete)
{
	known = complete;
}

/* Say whether it is certain that a name has no row. */
bool
lease_present_is_absent(lease_bytes name)
{
	return known && *counter_of(name) == 0;
}

/* A row was inserted, and committed. */
void
lease_present_added(lease_bytes name)
{
	if (known)
		++*counter_of(name);
}

/* A row that was there was deleted, and committed. */
void
lease_present_removed(lease_bytes name)
{
	if (known && *counter_of(name) > 0)
		--*counter_of(name);
}
