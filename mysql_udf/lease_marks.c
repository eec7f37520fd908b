/*
 * lease_marks.c
 *	  Which tokens this run has granted, and the table's marks above them.
 *
 * The table has a mark for each bucket of names.  No token that was granted in
 * the bucket is above it, so that whoever goes on from the mark, after a
 * restart or on another server, grants higher ones.  It is written in the
 * transaction of the grant, or before.
 *
 * In a cluster each grant goes on from the mark, and writes it.  Where nobody
 * else can write the table, the mark is raised a way ahead of the tokens, and
 * most grants leave it alone; which was granted last is known here.  Either way
 * it is only written if it is what was read, and a token that it is ahead of is
 * only granted if no other run has raised the marks, as each does before its
 * first grant (lease_statements.c).  Else the whole transaction is a conflict,
 * all marks are forgotten, and the next attempt reads.
 *
 * What was granted is never forgotten, also if its commit failed or the table
 * was made anew: tokens that nobody has got do no harm.
 *
 * Protected by the engine's mutex.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_marks.h"

/* How far ahead of the tokens a mark is raised. */
#define MARK_AHEAD		1024

static struct
{
	bool		known;
	uint64_t	stored;			/* what the table has */
	uint64_t	granted;		/* no token of this run was higher */
}			marks[LEASE_BUCKETS];

/*
 * The mark of a name has been read.  "alone" says that nobody else can have
 * granted what lies between the last token and the mark.
 */
void
lease_marks_read(lease_bytes name, uint64_t stored, bool alone)
{
	uint32_t	bucket = lease_table_bucket(name);
	bool		expected = alone && marks[bucket].known &&
		marks[bucket].stored == stored;

	if (!expected && marks[bucket].granted < stored)
		marks[bucket].granted = stored;
	marks[bucket].stored = stored;
	marks[bucket].known = true;
}

/* Say whether the mark of a name need not be read. */
bool
lease_marks_are_known(lease_bytes name)
{
	return marks[lease_table_bucket(name)].known;
}

/* The highest token that may have been granted for a name. */
uint64_t
lease_marks_granted(lease_bytes name)
{
	return marks[lease_table_bucket(name)].granted;
}

void
lease_marks_grant(lease_bytes name, uint64_t token)
{
	uint32_t	bucket = lease_table_bucket(name);

	if (marks[bucket].granted < token)
		marks[bucket].granted = token;
}

/*
 * How far ahead of the tokens a mark is raised: not above the clock, for that is where
 * a server starts that does not know of it.  Tokens that are beyond it anyway, because
 * it was set back, have nothing to lose.
 */
static uint64_t
mark_ahead(uint64_t granted, int64_t wall_us)
{
	uint64_t	clock = lease_take_over(0, wall_us - LEASE_MARKS_EPOCH_US).floor;

	return granted < clock && clock - granted < MARK_AHEAD ?
		clock - granted : MARK_AHEAD;
}

/*
 * Write the marks that are below what was granted: true if there are any.  wall_us is
 * since 1970.
 */
bool
lease_marks_write(lease_table *table, bool alone, int64_t wall_us)
{
	bool		any = false;

	for (uint32_t bucket = 0; bucket < LEASE_BUCKETS; bucket++)
	{
		uint64_t	mark = marks[bucket].granted;

		if (!marks[bucket].known ||
			marks[bucket].granted <= marks[bucket].stored)
			continue;
		if (alone)
			mark += mark_ahead(mark, wall_us);
		lease_table_advance_mark(table, bucket, marks[bucket].stored, mark);
		marks[bucket].stored = mark;
		any = true;
	}
	return any;
}

/* The table may have other marks: a transaction has failed. */
void
lease_marks_forget(void)
{
	for (uint32_t bucket = 0; bucket < LEASE_BUCKETS; bucket++)
		marks[bucket].known = false;
}
