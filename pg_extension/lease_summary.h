/*
 * lease_summary.h
 *	  What shared memory knows of each bucket: its next deadline and its owners.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_SUMMARY_H
#define DLOCK_LEASE_SUMMARY_H

#include "compat.h"
#include "lease.h"
#include "port/atomics.h"
#include "storage/block.h"

typedef enum LeaseSummaryNote
{
	LEASE_SUMMARY_NOTED,
	LEASE_SUMMARY_STALE			/* call lease_summary_replace() soon */
} LeaseSummaryNote;

/* A summary in the making; filled entry by entry, then put in place. */
typedef struct LeaseSummary
{
	int64		deadline_us;	/* the earliest, or PG_INT64_MAX */
	int			entries;
	uint64		owners[13];		/* a Bloom filter of their owners */
} LeaseSummary;

/*
 * The chunks of a database: a part of its entry in lease_state.c.  Under the
 * lock of lease_summary.c.
 */
typedef struct LeaseSummaries
{
	RelFileNumber file;			/* of the table that they are for */
	BlockNumber chunks;			/* the number of every chunk is below */
	int			first_chunk;
	pg_atomic_uint32 untracked; /* a block without a chunk was met */
} LeaseSummaries;

/* lease_summary.c */
extern Size lease_summary_size(void);
extern void lease_summary_attach(char *start, bool make);
extern void lease_summary_map(void);
extern void lease_summary_begin_database(LeaseSummaries *summaries);
extern void lease_summary_begin(LeaseSummary *summary);
extern void lease_summary_add(LeaseSummary *summary, int64 deadline_us,
							  lease_bytes owner);
extern uint64 lease_summary_owner_hash(lease_bytes owner);
extern bool lease_summary_has_owner(const LeaseSummary *summary, uint64 hash);
extern LeaseSummaryNote lease_summary_note(LeaseSummaries *summaries,
										   Relation rel, BlockNumber block,
										   int64 deadline_us,
										   lease_bytes owner);
extern void lease_summary_replace(LeaseSummaries *summaries, Relation rel,
								  BlockNumber block,
								  const LeaseSummary *summary);
extern bool lease_summary_may_own(LeaseSummaries *summaries, Relation rel,
								  BlockNumber block, lease_bytes owner);
extern void lease_summary_begin_round(LeaseSummaries *summaries);
extern BlockNumber lease_summary_next_due(LeaseSummaries *summaries,
										  Relation rel, BlockNumber from,
										  BlockNumber end, int64 now_us);
extern void lease_summary_forget(LeaseSummaries *summaries);
extern bool lease_summary_is_due(LeaseSummaries *summaries, int64 now_us,
								 bool *held);

#endif							/* DLOCK_LEASE_SUMMARY_H */
