/*
 * image_filter.c
 *	  Counts the rows of each name of a table that is too large to be known.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "image_filter.h"

#include <stdlib.h>

#include "hash.h"

/* Counters.  At a million rows, one absent name in 17 shares a counter with another. */
#ifndef FILTER_SIZE
#define FILTER_SIZE		(1 << 24)
#endif

struct image_filter
{
	uint8_t		counters[FILTER_SIZE];	/* UINT8_MAX: it is not counted down */
};

/* A filter of an empty table; NULL if memory is short. */
image_filter *
image_filter_create(void)
{
	return calloc(1, sizeof(image_filter));
}

/* Free it, if there is one. */
void
image_filter_free(image_filter *filter)
{
	free(filter);
}

static size_t
place_of(lease_bytes name)
{
	return hash_bytes(name, 1) % FILTER_SIZE;
}

/* The table has one more row of a name. */
void
image_filter_add(image_filter *filter, lease_bytes name)
{
	uint8_t    *counter = &filter->counters[place_of(name)];

	if (*counter < UINT8_MAX)
		++*counter;
}

/* The table has one row of a name less. */
void
image_filter_remove(image_filter *filter, lease_bytes name)
{
	uint8_t    *counter = &filter->counters[place_of(name)];

	if (*counter > 0 && *counter < UINT8_MAX)
		--*counter;
}

/* Say whether the table may have a row of a name. */
bool
image_filter_has(const image_filter *filter, lease_bytes name)
{
	return filter->counters[place_of(name)] > 0;
}
