/*
 * lease_activate.c
 *	  Make the lock table ready for grants, once in each server.
 *
 * Before the first grant after a server start, a promotion or a new file of the
 * lock table, a call brings the metapage up to date, makes that durable, and
 * publishes the result in shared memory:
 *
 * - The floor of tokens is raised above every grant that may be missing from
 *   this disk: unflushed grants before a crash, grants on a primary that was
 *   lost, grants on a timeline that was abandoned.  The core says how far
 *   (lease_take_over()).  It may first ask for a short wait for the system
 *   clock; no lock is held meanwhile, and a caller that cannot wait does
 *   without the table.
 * - The lease clock is anchored (lease_clock.c).
 * - Leases that CREATE DATABASE copied from a template are removed.
 *
 * One backend activates at a time, and other calls wait for it.  The pages that it
 * reads and the flush may take long, so the lock is one of the lock manager's: who
 * waits for it can be canceled.  Nobody else takes that lock, and with it nothing
 * is waited for but the disk.  A server in recovery does not activate.  After a
 * crash or a cancel in the middle it begins anew.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/xlog.h"
#include "call/lease_call.h"
#include "catalog/pg_class.h"
#include "lease_crash.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* 2020-01-01 00:00 UTC, as a TimestampTz: 7305 days after 2000-01-01. */
#define TOKEN_EPOCH		(INT64CONST(7305) * USECS_PER_DAY)

/*
 * Say whether the table has been activated in this database, by this server or
 * one before it.  If not, none of its entries is this database's.
 *
 * A process looks into the file once, also if shared memory knows it: the database may
 * be a new one, with the OID and the files of one that was dropped.
 */
bool
lease_activate_was_done(Relation rel)
{
	static RelFileNumber known = InvalidRelFileNumber;
	LeaseMeta	meta;

	if (known == compat_relation_file(rel))
		return true;
	if (!lease_trie_exists(rel))
		return false;
	lease_meta_read(rel, &meta);
	if (meta.database != MyDatabaseId)
		return false;
	known = compat_relation_file(rel);
	return true;
}

/* Say whether this server has activated the table's file. */
static bool
is_active(Relation rel, const LeaseDatabase *db)
{
	return db->file == compat_relation_file(rel) && lease_activate_was_done(rel);
}

/* The wall clock, as lease_take_over() wants it. */
static int64
wall_clock(void)
{
	return GetCurrentTimestamp() - TOKEN_EPOCH;
}

/*
 * Raise the floor in a metapage, if need be.  Returns 0, or how long to wait
 * for the clock before the next attempt; then nothing has changed.  "waited": we
 * have waited long enough.
 */
static int64
raise_floor(Relation rel, LeaseDatabase *db, uint64 *floor, bool waited)
{
	uint64		known_floor = pg_atomic_read_u64(&db->floor);
	lease_takeover start;

	/*
	 * If this server has activated the table before, in another file, it has
	 * all grants since.  Otherwise step over those that it may lack; with a new
	 * table these are the grants of an earlier one that was dropped.
	 */
	if (known_floor != 0 && *floor >= known_floor)
		return 0;
	*floor = Max(*floor, known_floor);
	start = lease_take_over(*floor, wall_clock());
	if (start.wait_us > 0 && !waited)
		return start.wait_us;
	if (start.clock_is_behind)
	{
		/* it does not say what was granted: use the marks on disk */
		start = lease_take_over(lease_merge_marks(*floor, lease_trie_largest_mark(rel)),
								wall_clock());
		ereport(LOG,
				(errmsg("the system clock is behind the tokens of dlock"),
				 errdetail("Tokens go on growing on this server. One that takes over without its newest changes may grant smaller ones."),
				 errhint("Set the clock."),
				 errhidestmt(true), errhidecontext(true)));
	}
	*floor = start.floor;
	return 0;
}

/*
 * Say whether a metapage's clock is for the boot we are in.  Where a copied
 * machine shows the same boot id, the mark may tell that it is not.
 */
static bool
is_same_boot(const LeaseMeta *meta, int64 boot_us)
{
	return memcmp(&meta->boot, &lease_area_settings->boot, sizeof(LeaseBoot)) == 0 &&
		meta->clock_mark_us <= boot_us + meta->clock_offset_us;
}

/* Remove every entry, all copied from another database with the files. */
static void
purge_copy(Relation rel)
{
	BlockNumber blocks = lease_trie_blocks(rel);

	for (BlockNumber block = 0; block < blocks; block++)
	{
		Buffer		bucket;

		CHECK_FOR_INTERRUPTS();
		bucket = lease_trie_lock_block(rel, block);
		if (!BufferIsValid(bucket))
			continue;
		lease_trie_clear(rel, bucket);
		UnlockReleaseBuffer(bucket);
	}
}

/*
 * Bring the metapage up to date, durably, and publish what it says.  Returns 0,
 * or how long to wait before that; "waited" as above.
 */
static int64
activate(Relation rel, LeaseDatabase *db, bool waited)
{
	RelFileNumber file = compat_relation_file(rel);
	LeaseMeta	meta;
	int64		boot_us;
	int64		wait_us;

	lease_summary_forget(&db->summaries);
	if (!lease_trie_exists(rel))
		lease_trie_create(rel, 0);
	lease_meta_read(rel, &meta);
	wait_us = raise_floor(rel, db, &meta.floor, waited);
	if (wait_us > 0)
		return wait_us;
	if (meta.database != MyDatabaseId)
	{
		purge_copy(rel);
		DLOCK_CRASH_POINT("activation: purged");
	}

	meta.database = MyDatabaseId;

	/* A new table starts well above 0, which no deadline should be. */
	if (meta.clock_mark_us == 0)
		meta.clock_mark_us = USECS_PER_DAY;
	boot_us = lease_clock_boot();
	if (!is_same_boot(&meta, boot_us))
	{
		meta.boot = lease_area_settings->boot;
		meta.clock_offset_us = meta.clock_mark_us - lease_clock_server_start();
	}
	meta.clock_mark_us = boot_us + meta.clock_offset_us;

	/* with the page unlocked: a look reads it, and should not wait for the disk */
	XLogFlush(lease_meta_write(rel, &meta));
	DLOCK_CRASH_POINT("activation: flushed");

	if (pg_atomic_read_u64(&db->floor) == 0)
	{
		db->start_floor = meta.floor;
		db->start_us = meta.clock_mark_us;
	}
	pg_atomic_write_u64(&db->floor, meta.floor);
	pg_atomic_write_u64(&db->clock_offset_us, (uint64) meta.clock_offset_us);
	pg_atomic_write_u64(&db->clock_mark_us, (uint64) meta.clock_mark_us);
	pg_atomic_write_u64(&db->held, 0);
	pg_atomic_write_u64(&db->held_cursor, 0);
	pg_write_barrier();
	db->file = file;
	return 0;
}

/*
 * Activate the table if that is still to be done; returns as above.  "at_once": also
 * without success if somebody else is about it.
 */
static int64
activate_if_needed(Relation rel, LeaseDatabase *db, bool waited, bool at_once)
{
	int64		wait_us = 0;

	if (!is_active(rel, db))
	{
		LOCKTAG		tag;

		Assert(lease_may_wait());
		SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationRelationId,
						   RelationGetRelid(rel), 0);
		if (LockAcquire(&tag, ExclusiveLock, false, at_once) ==
			LOCKACQUIRE_NOT_AVAIL)
			return LEASE_TAKEOVER_WAIT_US;
		if (!is_active(rel, db))
			wait_us = activate(rel, db, waited);
		LockRelease(&tag, ExclusiveLock, false);
		if (wait_us == 0)
			lease_launcher_want_worker();
	}
	pg_read_barrier();
	return wait_us;
}

/*
 * Make the lock table ready for grants, and return the entry of its database.
 * The caller holds RowExclusiveLock on the table and no LWLock, in a server
 * that is not in recovery.  May wait: for the disk, and for a second at most.  Can
 * be canceled.
 */
LeaseDatabase *
lease_activate(Relation rel)
{
	LeaseDatabase *db = lease_state_database();
	int64		end_us = 0;		/* when we will have waited long enough */
	int64		wait_us;

	while ((wait_us = activate_if_needed(rel, db, end_us != 0 &&
										 lease_clock_boot() >= end_us,
										 false)) > 0)
	{
		if (end_us == 0)
			end_us = lease_clock_boot() + LEASE_TAKEOVER_WAIT_US;
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) ((wait_us + 999) / 1000), PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	lease_launcher_ensure();
	return db;
}

/*
 * The same for a caller that must not wait: NULL if it would have to.  Then
 * nobody has used the table's file in this server.
 */
LeaseDatabase *
lease_activate_at_once(Relation rel)
{
	LeaseDatabase *db = lease_state_database();

	return activate_if_needed(rel, db, false, true) == 0 ? db : NULL;
}
