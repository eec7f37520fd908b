/*
 * lease_meta.c
 *	  The metapage of the lock table: what holds for the whole table.
 *
 * The directory's pages and the free list are on it for lease_trie.c, which
 * makes the page with the root bucket; the floor and the clock for
 * lease_activate.c and lease_clock.c.  All lock it through this file, so that
 * nobody uses it unchecked.
 *
 * Lock order: after buckets, their overflow pages and a new page, before a page
 * from the free list and directory pages (lease_trie.c).  Each change is one
 * WAL record, so after a crash it is there whole or not at all.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "lease_crash.h"
#include "storage/lease_storage.h"

/* Lock the metapage, which exists, and check it. */
Buffer
lease_meta_lock(Relation rel, int mode)
{
	Buffer		buffer = ReadBuffer(rel, LEASE_META_BLOCK);
	LeaseMeta  *meta;

	LockBuffer(buffer, mode);
	lease_page_check_kind(rel, buffer, LEASE_PAGE_META);
	meta = lease_page_meta(BufferGetPage(buffer));
	if (meta->magic != LEASE_META_MAGIC || meta->depth > LEASE_MAX_DEPTH)
		lease_page_damaged(rel, LEASE_META_BLOCK);
	if (meta->format != LEASE_FORMAT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("lock table \"%s\" has format %u, and this library knows format %u",
						RelationGetRelationName(rel), meta->format,
						LEASE_FORMAT)));
	return buffer;
}

/* Copy the metapage of a table that exists. */
void
lease_meta_read(Relation rel, LeaseMeta *meta)
{
	Buffer		buffer = lease_meta_lock(rel, BUFFER_LOCK_SHARE);

	*meta = *lease_page_meta(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
}

/* Give a table that nobody else can see yet the floor and clock of another. */
void
lease_meta_adopt(Relation rel, const LeaseMeta *from)
{
	Buffer		buffer = lease_meta_lock(rel, BUFFER_LOCK_EXCLUSIVE);
	LeaseChange change;
	LeaseMeta  *meta;

	lease_change_begin(&change, rel, true);
	meta = lease_page_meta(lease_change_page(&change, buffer, false));
	lease_change_start(&change);
	meta->database = from->database;
	meta->floor = from->floor;
	meta->boot = from->boot;
	meta->clock_offset_us = from->clock_offset_us;
	meta->clock_mark_us = from->clock_mark_us;
	DLOCK_CRASH_POINT("rewrite: metapage not logged");
	lease_change_finish(&change);
	DLOCK_CRASH_POINT("rewrite: metapage logged");
	UnlockReleaseBuffer(buffer);
}
