/*
 * lease_crowd.c
 *	  What the rows of an overflow page are together.
 *
 * A name with thousands of holders fills hundreds of overflow pages, and a
 * request on it must know all of its holders.  But of most it matters only
 * whether there is one that excludes others, how many permits they have, when
 * the first of them ends, and that the requester is not among them.  So each
 * backend keeps, for the overflow pages that it has read, a crowd
 * (lease_join_crowd()) and a filter of the owners.  As long as a page is
 * unchanged, a request looks at its crowd instead of its rows.  A call for all leases
 * of an owner looks at the filter: that of the bucket has all owners of the chain.
 *
 * Every change of a page gives it another LSN, which is the end of the change's
 * WAL record.  So an LSN tells whether a crowd is still that of its page; no
 * other backend has to tell us of its changes.  After a change the next look at
 * the page, in each backend, reads its rows.
 *
 * The crowds lie in a table of fixed size, by block: a chain of more pages costs
 * as much as if there were no crowds.  Called with the page locked in any mode.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "storage/bufmgr.h"
#include "storage/lease_storage.h"

#define CROWDS	4096

static LeaseCrowd crowds[CROWDS];

/* Read the rows of a page. */
static void
make_crowd(Relation rel, Buffer buffer, LeaseCrowd *crowd)
{
	Page		page = BufferGetPage(buffer);
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	OffsetNumber sample = InvalidOffsetNumber;
	bool		together = true;
	lease_bytes name = {NULL, 0};

	/* nothing is described until the end: a damaged row is an error */
	crowd->file = InvalidRelFileNumber;
	crowd->block = BufferGetBlockNumber(buffer);
	crowd->lsn = PageGetLSN(page);
	memset(&crowd->holder, 0, sizeof(crowd->holder));
	lease_summary_begin(&crowd->summary);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		const LeaseEntry *entry = lease_page_entry(rel, buffer, offset);
		lease_holder holder;

		if (entry == NULL)
			continue;
		holder = (lease_holder) {
			.mode = entry->mode,
			.kind = entry->kind,
			.life = lease_entry_is_leaving(entry) ? LEASE_LEAVING : LEASE_TIMED,
			.version = entry->version,
			.deadline_us = entry->deadline_us,
		};
		if (sample == InvalidOffsetNumber)
		{
			sample = offset;
			name = lease_entry_name(entry);
		}
		together = together && lease_same(lease_entry_name(entry), name) &&
			lease_join_crowd(&crowd->holder, &holder);
		lease_summary_add(&crowd->summary, entry->deadline_us,
						  lease_entry_owner(entry));
	}
	crowd->sample = together ? sample : InvalidOffsetNumber;
	crowd->file = compat_relation_file(rel);
}

/*
 * What is known of a page, which is locked and has been checked.  NULL: nothing, since
 * without WAL the LSN does not change.
 */
static const LeaseCrowd *
know_page(Relation rel, Buffer buffer)
{
	BlockNumber block = BufferGetBlockNumber(buffer);
	LeaseCrowd *crowd = &crowds[block % CROWDS];

	if (!RelationNeedsWAL(rel))
		return NULL;
	if (crowd->file != compat_relation_file(rel) || crowd->block != block ||
		crowd->lsn != PageGetLSN(BufferGetPage(buffer)))
		make_crowd(rel, buffer, crowd);
	return crowd;
}

/*
 * The crowd of an overflow page; NULL unless all its rows are holders of this name that
 * can be in a crowd.
 */
const LeaseCrowd *
lease_crowd_of(Relation rel, Buffer buffer, lease_bytes name)
{
	const LeaseCrowd *crowd = know_page(rel, buffer);

	if (crowd == NULL || crowd->sample == InvalidOffsetNumber ||
		!lease_same(lease_entry_name(lease_page_entry(rel, buffer,
													  crowd->sample)), name))
		return NULL;
	return crowd;
}

/* Say whether an owner, known by its hash, may have rows on an overflow page. */
bool
lease_crowd_may_own(Relation rel, Buffer buffer, uint64 owner_hash)
{
	const LeaseCrowd *crowd = know_page(rel, buffer);

	return crowd == NULL || lease_summary_has_owner(crowd->summary.owners, owner_hash);
}
