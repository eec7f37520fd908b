/*
 * lease_wal.c
 *	  Log changes to the lock table's pages, and make them durable.
 *
 * Two ways to log, replayed by the same core code and to the same pages, so
 * that recovery and standbys need not have this library:
 *
 * GenericXLog works on copies of the pages and finds the changed bytes by
 * comparison.  It is used for what is rare and changes much: splits, overflow,
 * the free list, the metapage.
 *
 * The small record is used for acquire, renew, release and reap.  It has the
 * format that generic_xlog.c writes, a list of (uint16 offset, uint16 length,
 * bytes) for each page, but is built from what the caller says it changed, in
 * place.  The comparison is most of what GenericXLog costs.  It leans on an
 * internal format of PostgreSQL, the same from 15 to 18; dlock.generic_wal
 * turns it off, and a test holds the two against each other.
 *
 * Both leave the space between pd_lower and pd_upper zero, as redo does.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "lease_wal.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"

/* Ranges closer than this are logged as one: a header costs as much. */
#define RANGE_GAP	8

bool		lease_wal_generic = false;

/*
 * Begin a change.  With "generic" it is logged by GenericXLog whatever the
 * setting.
 */
void
lease_change_begin(LeaseChange *change, Relation rel, bool generic)
{
	change->rel = rel;
	change->npages = 0;
	change->generic = generic || lease_wal_generic ?
		GenericXLogStart(rel) : NULL;
}

/*
 * Add a page to a change: the page to work on, which may be a copy.
 *
 * The buffer must be locked exclusively.  "whole" logs all of it, as needed
 * for pages that are new.
 */
Page
lease_change_page(LeaseChange *change, Buffer buffer, bool whole)
{
	LeaseChangedPage *changed;

	Assert(change->npages < MAX_GENERIC_XLOG_PAGES);
	changed = &change->pages[change->npages++];
	changed->buffer = buffer;
	changed->whole = whole;
	changed->nranges = 0;
	if (change->generic)
		changed->page =
			GenericXLogRegisterBuffer(change->generic, buffer,
									  whole ? GENERIC_XLOG_FULL_IMAGE : 0);
	else
		changed->page = BufferGetPage(buffer);
	return changed->page;
}

/* From here on the pages may be changed and nothing may fail. */
void
lease_change_start(LeaseChange *change)
{
	START_CRIT_SECTION();
}

static LeaseChangedPage *
find_page(LeaseChange *change, Page page)
{
	for (int i = 0; i < change->npages; i++)
		if (change->pages[i].page == page)
			return &change->pages[i];
	Assert(false);
	return NULL;
}

/* Note that bytes of a page were changed. */
void
lease_change_note(LeaseChange *change, Page page, const void *start,
				  Size length)
{
	LeaseChangedPage *changed;
	int			offset = (const char *) start - (const char *) page;
	int			end = offset + (int) length;

	if (change == NULL || change->generic)
		return;
	changed = find_page(change, page);
	if (changed->whole)
		return;
	Assert(length > 0 && offset >= 0 && end <= BLCKSZ);

	/* Swallow the ranges that touch this one, or nearly do. */
	for (int i = 0; i < changed->nranges;)
	{
		if (offset <= changed->ranges[i].end + RANGE_GAP &&
			end + RANGE_GAP >= changed->ranges[i].offset)
		{
			offset = Min(offset, changed->ranges[i].offset);
			end = Max(end, changed->ranges[i].end);
			changed->ranges[i] = changed->ranges[--changed->nranges];
			i = 0;
		}
		else
			i++;
	}
	if (changed->nranges == LEASE_CHANGE_RANGES)
	{
		changed->whole = true;
		return;
	}
	changed->ranges[changed->nranges].offset = offset;
	changed->ranges[changed->nranges].end = end;
	changed->nranges++;
}

/* Note that a page was rewritten. */
void
lease_change_note_whole(LeaseChange *change, Page page)
{
	if (change != NULL && !change->generic)
		find_page(change, page)->whole = true;
}

/* Build and insert the small record. */
static XLogRecPtr
log_small_record(LeaseChange *change)
{
	/* ranges are disjoint, and each has a header of four bytes */
	static char fragments[MAX_GENERIC_XLOG_PAGES][BLCKSZ +
												  LEASE_CHANGE_RANGES * 4];
	XLogRecPtr	lsn;

	XLogBeginInsert();
	for (int i = 0; i < change->npages; i++)
	{
		LeaseChangedPage *changed = &change->pages[i];
		char	   *ptr = fragments[i];

		if (changed->whole)
		{
			XLogRegisterBuffer(i, changed->buffer,
							   REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
			continue;
		}
		XLogRegisterBuffer(i, changed->buffer, REGBUF_STANDARD);
		for (int r = 0; r < changed->nranges; r++)
		{
			uint16		offset = changed->ranges[r].offset;
			uint16		length = changed->ranges[r].end - offset;

			memcpy(ptr, &offset, sizeof(offset));
			ptr += sizeof(offset);
			memcpy(ptr, &length, sizeof(length));
			ptr += sizeof(length);
			memcpy(ptr, changed->page + offset, length);
			ptr += length;
		}
		if (ptr > fragments[i])
			XLogRegisterBufData(i, fragments[i], ptr - fragments[i]);
	}
	lsn = XLogInsert(RM_GENERIC_ID, 0);
	for (int i = 0; i < change->npages; i++)
		PageSetLSN(change->pages[i].page, lsn);
	return lsn;
}

/*
 * Log the change and end the critical section.  Returns the end of the record,
 * or InvalidXLogRecPtr where the relation needs no WAL.
 */
XLogRecPtr
lease_change_finish(LeaseChange *change)
{
	XLogRecPtr	lsn = InvalidXLogRecPtr;

	if (change->generic)
		lsn = GenericXLogFinish(change->generic);
	else
	{
		for (int i = 0; i < change->npages; i++)
			MarkBufferDirty(change->pages[i].buffer);
		if (RelationNeedsWAL(change->rel))
			lsn = log_small_record(change);
	}
	END_CRIT_SECTION();
	return lsn;
}

/*
 * Make what was logged up to lsn as durable as the session's
 * synchronous_commit asks, like a commit does.
 *
 * The core ends the wait for a synchronous standby with a mere warning when it
 * is cancelled or the server shuts down.  A lease is not a commit that can be
 * looked up later, so that is an error here: the caller must not take it for
 * granted.
 */
void
lease_wal_flush(XLogRecPtr lsn)
{
	int			mode;
	bool		reached;

	if (XLogRecPtrIsInvalid(lsn))
		return;
	if (synchronous_commit <= SYNCHRONOUS_COMMIT_OFF)
	{
		XLogSetAsyncXactLSN(lsn);
		return;
	}
	XLogFlush(lsn);

	if (!SyncRepRequested())
		return;
	HOLD_INTERRUPTS();
	SyncRepWaitForLSN(lsn, false);
	RESUME_INTERRUPTS();
	if (SyncRepStandbyNames == NULL || SyncRepStandbyNames[0] == '\0')
		return;

	/* For what is no commit the core caps the level at a remote flush. */
	mode = synchronous_commit == SYNCHRONOUS_COMMIT_REMOTE_WRITE ?
		SYNC_REP_WAIT_WRITE : SYNC_REP_WAIT_FLUSH;
	LWLockAcquire(SyncRepLock, LW_SHARED);
	reached = WalSndCtl->lsn[mode] >= lsn;
	LWLockRelease(SyncRepLock);
	if (!reached)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("canceled while waiting for a lease to be replicated"),
				 errdetail("The lease may have been taken or renewed, but may not be on a synchronous standby."),
				 errhint("Retry with the same request id, or release.")));
}

/* Let the WAL writer make what was logged up to lsn durable soon. */
void
lease_wal_flush_later(XLogRecPtr lsn)
{
	if (!XLogRecPtrIsInvalid(lsn))
		XLogSetAsyncXactLSN(lsn);
}
