/*
 * lease_summary.h
 *	  What shared memory knows of each bucket: its next deadline, its owners.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_SUMMARY_H
#define DLOCK_LEASE_SUMMARY_H

#include "compat.h"
#include "lease.h"
#include "storage/block.h"

extern int	lease_summary_pages;	/* dlock.tracked_pages */

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

/* lease_summary.c */
extern Size lease_summary_shmem_size(void);
extern void lease_summary_shmem_init(void);
extern void lease_summary_begin(LeaseSummary *summary);
extern void lease_summary_add(LeaseSummary *summary, int64 deadline_us,
							  lease_bytes owner);
extern LeaseSummaryNote lease_summary_note(Relation rel, BlockNumber block,
										   int64 deadline_us,
										   lease_bytes owner);
extern void lease_summary_replace(Relation rel, BlockNumber block,
								  const LeaseSummary *summary);
extern bool lease_summary_may_own(Relation rel, BlockNumber block,
								  lease_bytes owner);
extern BlockNumber lease_summary_next_due(Relation rel, BlockNumber from,
										  BlockNumber end, int64 now_us);
extern void lease_summary_forget(Oid database, RelFileNumber keep);
extern bool lease_summary_is_due(Oid database, RelFileNumber file,
								 int64 now_us, bool *held);

#endif							/* DLOCK_LEASE_SUMMARY_H */
