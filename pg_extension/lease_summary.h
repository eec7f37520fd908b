/*
 * lease_summary.h
 *	  What shared memory knows of each bucket: its next deadline and its owners.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_SUMMARY_H
#define DLOCK_LEASE_SUMMARY_H

#include "lease.h"
#include "port/atomics.h"
#include "storage/block.h"

extern int	lease_summary_pages;	/* dlock.tracked_pages */

/* A summary in the making; filled entry by entry, then put in place. */
typedef struct LeaseSummary
{
	int64		deadline_us;	/* the earliest, or PG_INT64_MAX */
	int			entries;
	uint64		owners[13];		/* a Bloom filter of their owners */
} LeaseSummary;

#define LEASE_SUMMARY_STRIPES	256

/* What is known of a table: a part of its database's entry in lease_state.c. */
typedef struct LeaseSummaries
{
	pg_atomic_uint32 array;		/* the segment with the summaries */
	uint64		refused;		/* so many summaries, or more, have no room */

	/* int64: nothing in a stripe ends before; PG_INT64_MAX: it has no lease */
	pg_atomic_uint64 due_us[LEASE_SUMMARY_STRIPES];
} LeaseSummaries;

/* lease_summary.c */
extern void lease_summary_init(LeaseSummaries *summaries);
extern void lease_summary_forget(LeaseSummaries *summaries);
extern void lease_summary_map(LeaseSummaries *summaries);
extern uint64 lease_summary_owner_hash(lease_bytes owner);
extern bool lease_summary_has_owner(const LeaseSummary *summary, uint64 hash);
extern bool lease_summary_may_own(LeaseSummaries *summaries, BlockNumber block,
								  uint64 owner_hash);
extern void lease_summary_begin(LeaseSummary *summary);
extern void lease_summary_add(LeaseSummary *summary, int64 deadline_us,
							  lease_bytes owner);
extern bool lease_summary_note(LeaseSummaries *summaries, BlockNumber block,
							   int64 deadline_us, lease_bytes owner);
extern void lease_summary_replace(LeaseSummaries *summaries, BlockNumber block,
								  const LeaseSummary *summary);
extern void lease_summary_split(LeaseSummaries *summaries, BlockNumber block,
								BlockNumber new_block);
extern void lease_summary_begin_rounds(LeaseSummaries *summaries);
extern void lease_summary_begin_round(LeaseSummaries *summaries,
									  BlockNumber blocks, int64 now_us);
extern BlockNumber lease_summary_next_due(LeaseSummaries *summaries,
										  BlockNumber from, BlockNumber end,
										  int64 now_us);
extern int64 lease_summary_due(LeaseSummaries *summaries);

#endif							/* DLOCK_LEASE_SUMMARY_H */
