/*
 * lease_wal.c
 *	  Log changes to the lock table's pages, and make them durable.
 *
 * There are two ways to log.  The same core code replays both, to the same
 * pages, so that recovery and standbys need not have this library:
 *
 * GenericXLog works on copies of the pages and finds the changed bytes by
 * comparison.  It is used for rare changes of many bytes: splits, overflow, the
 * free list, the metapage.
 *
 * The small record is used for acquire, renew, release and reap.  It has the
 * format that generic_xlog.c writes, a list of (uint16 offset, uint16 length,
 * bytes) for each page, but is built from what the caller says it changed, in
 * place.  That saves the comparison, which is most of what GenericXLog costs.
 * It relies on an internal format of PostgreSQL.  So it is used only with the
 * major versions with which it was tried (compat.h); a test compares the two.
 * dlock.generic_wal turns it off.
 *
 * Both leave the space between pd_lower and pd_upper zero, as redo does.
 *
 * Releases, and with synchronous_commit off all changes, need not be durable at
 * once.  They are left to the launcher: every wal_writer_delay it flushes what
 * shared memory notes, and it sleeps when there is nothing.  PostgreSQL's own
 * way, XLogSetAsyncXactLSN(), signals the WAL writer at nearly every call on
 * PostgreSQL 15: one more process to be scheduled, between a release and the
 * waiter that it wakes.  It is used only while there is no launcher.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "postmaster/walwriter.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/latch.h"
#include "storage/lease_storage.h"
#include "utils/wait_event.h"

/* Ranges closer than this are logged as one: a header costs as much. */
#define RANGE_GAP	8

/* With so many bytes to flush, wake the flusher. */
#define FLUSH_AFTER	(1024 * 1024)

/* What the flusher, which is the launcher, does. */
typedef enum FlusherState
{
	FLUSHER_ABSENT,				/* not there, or busy with something else */
	FLUSHER_ASLEEP,				/* until it is woken */
	FLUSHER_NAPPING				/* until wal_writer_delay has passed */
} FlusherState;

typedef struct WalShared
{
	pg_atomic_uint64 wanted;	/* XLogRecPtr: to be flushed soon */
	pg_atomic_uint64 flushed;	/* the flusher has flushed up to here */
	pg_atomic_uint32 flusher;	/* a FlusherState */
	Latch	   *flusher_latch;	/* set before it is not absent */
} WalShared;

bool		lease_wal_generic = false;

static WalShared *wal_shared = NULL;

/* ----------------------------------------------------------------
 * Logging
 * ----------------------------------------------------------------
 */

/*
 * Begin a change.  With "generic" it is logged by GenericXLog whatever the
 * setting.
 */
void
lease_change_begin(LeaseChange *change, Relation rel, bool generic)
{
	change->rel = rel;
	change->npages = 0;
	change->unimportant = false;
	change->generic = generic || lease_wal_generic || !COMPAT_SMALL_RECORDS ?
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

	/* Merge the ranges that touch this one, or nearly do. */
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
	if (change->unimportant)
		XLogSetRecordFlags(XLOG_MARK_UNIMPORTANT);
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
 *
 * The record is no part of the caller's transaction, whose end need not flush it.
 * To have it flushed, call lease_wal_flush() or lease_wal_flush_later().
 */
XLogRecPtr
lease_change_finish(LeaseChange *change)
{
	XLogRecPtr	lsn = InvalidXLogRecPtr;
	XLogRecPtr	transaction_end = XactLastRecEnd;

	if (change->generic)
		lsn = GenericXLogFinish(change->generic);
	else
	{
		for (int i = 0; i < change->npages; i++)
			MarkBufferDirty(change->pages[i].buffer);
		if (RelationNeedsWAL(change->rel))
			lsn = log_small_record(change);
	}
	compat_restore_last_record(transaction_end);
	END_CRIT_SECTION();
	return lsn;
}

/* ----------------------------------------------------------------
 * Durability
 * ----------------------------------------------------------------
 */

Size
lease_wal_size(void)
{
	return sizeof(WalShared);
}

/* Called by lease_area.c. */
void
lease_wal_attach(char *start, bool make)
{
	wal_shared = (WalShared *) start;
	if (!make)
		return;
	pg_atomic_init_u64(&wal_shared->wanted, 0);
	pg_atomic_init_u64(&wal_shared->flushed, 0);
	pg_atomic_init_u32(&wal_shared->flusher, FLUSHER_ABSENT);
}

/*
 * Wait for the synchronous standbys as a commit would: false if an interrupt
 * has ended the wait.
 *
 * PostgreSQL returns in the same way when a standby has confirmed, when nobody
 * asks for a standby, and when the wait was canceled.  On a cancel it clears
 * QueryCancelPending, and leaves InterruptPending, which other interrupts set as
 * well.  So if there may have been a cancel, and standbys are asked for as far as
 * this session has heard, what they have confirmed decides.  An interrupt that has
 * ended no wait stays pending; a caller that can give back what was taken handles
 * it.
 */
static bool
wait_for_standbys(XLogRecPtr lsn)
{
	bool		was_pending;
	bool		was_canceled;
	bool		ended;
	int			mode;
	bool		reached;

	Assert(lease_may_wait());
	HOLD_INTERRUPTS();
	/* in one step: a signal in between would set it in vain */
	was_pending = __atomic_exchange_n(&InterruptPending, false, __ATOMIC_SEQ_CST);
	was_canceled = QueryCancelPending;	/* a later cancel sets it again */
	SyncRepWaitForLSN(lsn, false);
	was_canceled &= !QueryCancelPending;	/* the wait has cleared it */
	ended = was_canceled ||
		(SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0' &&
		 (ProcDiePending || (InterruptPending && !QueryCancelPending)));
	if (was_pending)
		InterruptPending = true;	/* earlier interrupts are still pending */
	RESUME_INTERRUPTS();
	if (!ended)
		return true;

	/*
	 * The interrupt may also have been of another kind, or too late.  For a
	 * record that is no commit PostgreSQL caps the level at a remote flush.
	 */
	mode = synchronous_commit == SYNCHRONOUS_COMMIT_REMOTE_WRITE ?
		SYNC_REP_WAIT_WRITE : SYNC_REP_WAIT_FLUSH;
	LWLockAcquire(SyncRepLock, LW_SHARED);
	reached = WalSndCtl->lsn[mode] >= lsn;
	LWLockRelease(SyncRepLock);
	return reached;
}

/*
 * Make what was logged up to lsn as durable as the session's
 * synchronous_commit asks, like a commit does.
 *
 * When the wait for a synchronous standby is cancelled, or the server shuts
 * down, PostgreSQL ends it with a mere warning.  A lease is not a commit that
 * can be looked up later, so that is an error here: the caller must not rely on
 * the lease.
 */
void
lease_wal_flush(XLogRecPtr lsn)
{
	if (XLogRecPtrIsInvalid(lsn))
		return;
	if (synchronous_commit <= SYNCHRONOUS_COMMIT_OFF)
	{
		lease_wal_flush_later(lsn);
		return;
	}
	XLogFlush(lsn);

	if (SyncRepRequested() && !wait_for_standbys(lsn))
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("canceled while waiting for a lease to be replicated"),
				 errdetail("The lease may have been taken or changed, but may not be on a synchronous standby."),
				 errhint("Retry with the same request id, or release.")));
}

static void
wake_flusher(void)
{
	pg_read_barrier();			/* its state was read before */
	SetLatch(wal_shared->flusher_latch);
}

/*
 * Have what was logged up to lsn made durable soon: within wal_writer_delay, or
 * three times that if the WAL writer does it.
 *
 * The atomic operations are full barriers.  So either we see here the flusher's
 * state as lease_wal_flusher_wait() has set it last, or the flusher sees lsn
 * when it looks afterwards.
 */
void
lease_wal_flush_later(XLogRecPtr lsn)
{
	uint64		wanted;

	if (XLogRecPtrIsInvalid(lsn))
		return;
	wanted = pg_atomic_read_u64(&wal_shared->wanted);
	while (!pg_atomic_compare_exchange_u64(&wal_shared->wanted, &wanted,
										   Max(wanted, lsn)))
		;
	switch ((FlusherState) pg_atomic_read_u32(&wal_shared->flusher))
	{
		case FLUSHER_ABSENT:
			XLogSetAsyncXactLSN(lsn);
			break;
		case FLUSHER_ASLEEP:
			wake_flusher();
			break;
		case FLUSHER_NAPPING:
			if (lsn > pg_atomic_read_u64(&wal_shared->flushed) + FLUSH_AFTER)
				wake_flusher();
			break;
	}
}

/* Change the flusher's state, with a full barrier. */
static void
set_flusher(FlusherState state)
{
	(void) pg_atomic_exchange_u32(&wal_shared->flusher, state);
}

/*
 * The flusher's WaitLatch(): wait until the latch is set, and reset it, or for
 * at most so many milliseconds.  Meanwhile and afterwards it flushes what
 * others want; at other times they do not count on it.
 */
void
lease_wal_flusher_wait(long timeout_ms)
{
	static bool active = false; /* something was flushed the last time */
	uint64		flushed = pg_atomic_read_u64(&wal_shared->flushed);
	uint64		wanted;

	wal_shared->flusher_latch = MyLatch;
	set_flusher(active ? FLUSHER_NAPPING : FLUSHER_ASLEEP);
	if (active)
		timeout_ms = Min(timeout_ms, WalWriterDelay);
	else if (pg_atomic_read_u64(&wal_shared->wanted) > flushed)
		timeout_ms = 0;
	(void) WaitLatch(MyLatch,
					 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 timeout_ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	set_flusher(FLUSHER_ABSENT);

	wanted = pg_atomic_read_u64(&wal_shared->wanted);
	active = wanted > flushed;
	if (active)
	{
		XLogFlush(wanted);
		pg_atomic_write_u64(&wal_shared->flushed, wanted);
	}
}
