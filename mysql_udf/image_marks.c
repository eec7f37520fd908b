/*
 * image_marks.c
 *	  The marks of tokens: the table has one for each bucket of names.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "image_marks.h"

#include "row.h"

static struct
{
	uint64_t	granted;		/* no token of the bucket was higher */
	uint64_t	stored;			/* what the table has */
}			marks[LEASE_BUCKETS];

/* The highest token that was granted in a bucket. */
uint64_t
image_mark(uint32_t bucket)
{
	return marks[bucket].granted;
}

/* The mark that the table has, once this run has taken over. */
uint64_t
image_mark_stored(uint32_t bucket)
{
	return marks[bucket].stored;
}

/* A token of the bucket is granted. */
void
image_mark_granted(uint32_t bucket, uint64_t token)
{
	marks[bucket].granted = lease_merge_marks(marks[bucket].granted, token);
}

/* The table has this mark: it was read or written. */
void
image_mark_read(uint32_t bucket, uint64_t mark)
{
	marks[bucket].stored = mark;
	image_mark_granted(bucket, mark);
}
