/*
 * lease_foreign.c
 *	  Deadlines of rows that another run of a server has written.
 *
 * A row's deadline is on the clock of the run that wrote it: this server before
 * it was restarted, or another server of a cluster.  That clock says nothing
 * here.  So the time to live that the row was written with counts from when
 * this run first read that version of the row.  A lease may end later that way
 * than where it was taken, never earlier.
 *
 * The versions are kept in a hash table, by name and token.  Only the batcher
 * uses it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_foreign.h"

#include <stdlib.h>
#include <string.h>

typedef struct foreign_row
{
	struct foreign_row *next;
	uint64_t	token;
	uint64_t	writes;
	uint64_t	writer;
	int64_t		deadline_us;	/* on our clock */
	uint8_t		length;
	char		name[];
} foreign_row;

#define FOREIGN_SLOTS_MIN	1024

static foreign_row **slots = NULL;
static size_t nslots = 0;
static size_t nrows = 0;

/* Make the table larger when it is full. */
static void
grow(void)
{
	size_t		n = nslots ? nslots * 2 : FOREIGN_SLOTS_MIN;
	foreign_row **larger;

	if (nrows < nslots)
		return;
	larger = calloc(n, sizeof(foreign_row *));
	if (larger == NULL)
		abort();
	for (size_t i = 0; i < nslots; i++)
		while (slots[i] != NULL)
		{
			foreign_row *row = slots[i];
			size_t		to = lease_hash((lease_bytes) {
				row->name, row->length
			}, row->token) % n;

			slots[i] = row->next;
			row->next = larger[to];
			larger[to] = row;
		}
	free(slots);
	slots = larger;
	nslots = n;
}

/* When a row that was just read is over, on our clock. */
int64_t
lease_foreign_deadline(lease_bytes name, const lease_row *row, int64_t now_us)
{
	foreign_row **place;
	foreign_row *known;
	bool		is_new = false;

	grow();
	place = &slots[lease_hash(name, row->token) % nslots];
	for (known = *place; known != NULL; known = known->next)
		if (known->token == row->token && known->length == name.length &&
			memcmp(known->name, name.data, name.length) == 0)
			break;
	if (known == NULL)
	{
		known = malloc(sizeof(foreign_row) + name.length);
		if (known == NULL)
			abort();
		known->token = row->token;
		known->length = (uint8_t) name.length;
		memcpy(known->name, name.data, name.length);
		is_new = true;
		known->next = *place;
		*place = known;
		nrows++;
	}
	if (is_new || known->writes != row->writes ||
		known->writer != row->writer)
	{
		known->writes = row->writes;
		known->writer = row->writer;
		known->deadline_us = now_us + row->ttl_us;
	}
	return known->deadline_us;
}

/* Forget rows whose deadline was before a time: they have been removed. */
void
lease_foreign_forget(int64_t before_us)
{
	for (size_t i = 0; i < nslots; i++)
	{
		foreign_row **place = &slots[i];

		while (*place != NULL)
		{
			foreign_row *row = *place;

			if (row->deadline_us < before_us)
			{
				*place = row->next;
				free(row);
				nrows--;
			}
			else
				place = &row->next;
		}
	}
}
