/*
 * lease_wal.h
 *	  Changing pages of the lock table and logging the change.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_WAL_H
#define DLOCK_LEASE_WAL_H

#include "access/generic_xlog.h"
#include "access/xlogdefs.h"
#include "compat.h"

#define LEASE_CHANGE_RANGES	16

typedef struct LeaseChangedPage
{
	Buffer		buffer;			/* locked exclusively by the caller */
	Page		page;			/* where to make the change */
	bool		whole;			/* log the whole page */
	int			nranges;
	struct
	{
		uint16		offset;
		uint16		end;
	}			ranges[LEASE_CHANGE_RANGES];	/* disjoint, no order */
} LeaseChangedPage;

/*
 * A change to up to four pages that is logged as one record.
 *
 *	lease_change_begin(&change, rel, generic);
 *	page = lease_change_page(&change, buffer, whole);	-- for each
 *	...check everything that can fail...
 *	lease_change_start(&change);
 *	...change the pages and note what was changed; nothing may fail...
 *	lsn = lease_change_finish(&change);
 *
 * Between begin and start the caller may simply abandon the change.
 *
 * Redo locks the pages in the order in which they were added, and keeps them
 * locked until all are changed.  A reader on a standby holds a bucket while it
 * goes on to an overflow page or the metapage.  So that redo and such a reader
 * do not deadlock, a change to more than one of these adds the bucket first,
 * changed or not, and the metapage last.  That also keeps the reader from
 * seeing half of the change.
 */
typedef struct LeaseChange
{
	Relation	rel;
	GenericXLogState *generic;	/* NULL: the small record */
	bool		unimportant;	/* alone, it is no reason to archive */
	int			npages;
	LeaseChangedPage pages[MAX_GENERIC_XLOG_PAGES];
} LeaseChange;

extern bool lease_wal_generic;	/* dlock.generic_wal */

/* lease_wal.c */
extern void lease_change_begin(LeaseChange *change, Relation rel,
							   bool generic);
extern Page lease_change_page(LeaseChange *change, Buffer buffer, bool whole);
extern void lease_change_start(LeaseChange *change);
extern void lease_change_note(LeaseChange *change, Page page,
							  const void *start, Size length);
extern void lease_change_note_whole(LeaseChange *change, Page page);
extern XLogRecPtr lease_change_finish(LeaseChange *change);

/* durability */
extern Size lease_wal_size(void);
extern void lease_wal_attach(char *start, bool make);
extern void lease_wal_flush(XLogRecPtr lsn);
extern void lease_wal_flush_later(XLogRecPtr lsn);
extern void lease_wal_flusher_wait(long timeout_ms);

#endif							/* DLOCK_LEASE_WAL_H */
