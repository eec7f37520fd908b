/*
 * lease_state.c
 *	  Shared state of each database: token floor, lease clock, counters.
 *
 * Activation.  Before the first grant after a server start, a promotion or a
 * new file of the lock table, somebody brings the metapage up to date, makes
 * that durable, and publishes the result in shared memory:
 *
 * - The floor of tokens is raised above everything that may have been granted
 *   and not be on this disk: unflushed grants before a crash, grants on a
 *   primary that was lost, on a timeline that was abandoned.  It becomes
 *   max(floor + 2^20, seconds since 2020-01-01 * 2^20); grants at less than
 *   2^20 a second and name never catch up with it.
 * - The lease clock is anchored.  It is CLOCK_BOOTTIME plus an offset, so no
 *   step of the wall clock moves it.  In the boot that the metapage names,
 *   the offset stays: the clock went on while the server was down.  In another
 *   boot or on another machine it resumes from the mark, the last place that
 *   the clock is known to have been at; time down counts as none passed.
 * - Leases that CREATE DATABASE copied from a template are removed.
 *
 * Activation happens under the database's activation lock, which precedes all
 * content locks; other calls wait for it.  A server in recovery does not
 * activate: it estimates the clock from the marks it sees arriving.
 *
 * Everything here is lost with shared memory, and made anew from the metapage.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include <time.h>

#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "common/hashfn.h"
#include "lease_crash.h"
#include "lease_state.h"
#include "lease_summary.h"
#include "lease_trie.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* Tokens that may have been granted since the floor was last durable. */
#define FLOOR_STEP		(UINT64CONST(1) << 20)

/* 2020-01-01 00:00 UTC, as a TimestampTz: 7305 days after 2000-01-01. */
#define FLOOR_EPOCH		(INT64CONST(7305) * USECS_PER_DAY)

/* A wall clock past this part of the tokens (year 2156) is not believed. */
#define FLOOR_SANE		(LEASE_TOKEN_MAX / 2)

#define WANTED_MAX		64

typedef struct StateShared
{
	LWLock	   *lock;			/* protects what follows, and see
								 * LeaseDatabase */
	Latch	   *launcher_latch; /* NULL: not running */
	int			nwanted;
	Oid			wanted[WANTED_MAX]; /* databases that asked for a worker */
	bool		rescan;			/* ...and there was no place left for it */

	uint64		fallback_boot;	/* stands for the boot where it has no id */
	LeaseDatabase databases[FLEXIBLE_ARRAY_MEMBER];
} StateShared;

int			lease_max_databases = 64;
char	   *lease_boot_id = NULL;

static StateShared *state_shared = NULL;

/* The entry of MyDatabaseId; it stays while anybody is connected there. */
static LeaseDatabase *my_database = NULL;

Size
lease_state_shmem_size(void)
{
	return add_size(offsetof(StateShared, databases),
					mul_size(lease_max_databases, sizeof(LeaseDatabase)));
}

/* Set up the shared memory; called under AddinShmemInitLock. */
void
lease_state_shmem_init(void)
{
	bool		found;
	LWLockPadded *locks = GetNamedLWLockTranche("dlock");

	state_shared = ShmemInitStruct("dlock databases",
								   lease_state_shmem_size(), &found);
	if (found)
		return;
	memset(state_shared, 0, lease_state_shmem_size());
	state_shared->lock = &locks[1].lock;
	if (!pg_strong_random(&state_shared->fallback_boot,
						  sizeof(state_shared->fallback_boot)))
		state_shared->fallback_boot = (uint64) GetCurrentTimestamp();
	for (int i = 0; i < lease_max_databases; i++)
	{
		LeaseDatabase *db = &state_shared->databases[i];

		db->activation = &locks[2 + i].lock;
		SpinLockInit(&db->estimate_mutex);
		pg_atomic_init_u64(&db->floor, 0);
		pg_atomic_init_u64(&db->clock_offset_us, 0);
		pg_atomic_init_u64(&db->clock_mark_us, 0);
		pg_atomic_init_u64(&db->stats_reset, 0);
		for (int c = 0; c < LEASE_COUNTERS; c++)
			pg_atomic_init_u64(&db->counters[c], 0);
		pg_atomic_init_u64(&db->woken, 0);
		for (int b = 0; b < LEASE_WAIT_BUCKETS; b++)
			pg_atomic_init_u64(&db->waits[b], 0);
	}
}

/* Check that the library was preloaded, so that there is shared memory. */
void
lease_state_check_loaded(void)
{
	if (state_shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("dlock must be loaded via \"shared_preload_libraries\""),
				 errhint("Add dlock to \"shared_preload_libraries\" and restart the server.")));
}

/* The entry of a database, or NULL.  The lock is held. */
static LeaseDatabase *
search(Oid database)
{
	for (int i = 0; i < lease_max_databases; i++)
		if (state_shared->databases[i].database == database)
			return &state_shared->databases[i];
	return NULL;
}

/* Make an unused entry this database's, or return NULL. */
static LeaseDatabase *
allocate(Oid database)
{
	LeaseDatabase *db = search(InvalidOid);

	if (db == NULL)
		return NULL;
	db->file = InvalidRelFileNumber;
	db->worker_pid = 0;
	db->worker_wanted = false;
	db->worker_requested = false;
	db->worker_latch = NULL;
	db->reaped_block = 0;
	db->estimate_mark_us = PG_INT64_MIN;
	db->estimate_seen_us = 0;
	pg_atomic_write_u64(&db->floor, 0);
	lease_state_stats_reset(db);
	db->database = database;
	return db;
}

/* Free the entries of databases that are gone. */
static void
forget_dropped(void)
{
	List	   *databases = lease_state_databases();
	ListCell   *cell;

	foreach(cell, databases)
	{
		if (!SearchSysCacheExists1(DATABASEOID,
								   ObjectIdGetDatum(lfirst_oid(cell))))
			lease_state_forget(lfirst_oid(cell));
	}
	list_free(databases);
}

/*
 * The entry of the database we are connected to; it is made if need be.  In a
 * transaction, unless it has been asked for before.
 */
LeaseDatabase *
lease_state_database(void)
{
	if (my_database != NULL)
		return my_database;

	for (int attempt = 0; my_database == NULL; attempt++)
	{
		if (attempt == 1)
			forget_dropped();
		else if (attempt == 2)
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("too many databases use dlock"),
					 errhint("Increase \"dlock.max_databases\" and restart the server.")));
		LWLockAcquire(state_shared->lock, LW_EXCLUSIVE);
		my_database = search(MyDatabaseId);
		if (my_database == NULL)
			my_database = allocate(MyDatabaseId);
		LWLockRelease(state_shared->lock);
	}
	return my_database;
}

/* Free the entry of a database that is gone, and its summaries. */
void
lease_state_forget(Oid database)
{
	LeaseDatabase *db;

	LWLockAcquire(state_shared->lock, LW_EXCLUSIVE);
	db = search(database);
	if (db != NULL)
		db->database = InvalidOid;
	LWLockRelease(state_shared->lock);
	lease_summary_forget(database, InvalidRelFileNumber);
}

/* The databases that have an entry, as a list of OIDs. */
List *
lease_state_databases(void)
{
	List	   *result = NIL;
	Oid		   *oids = palloc(lease_max_databases * sizeof(Oid));

	LWLockAcquire(state_shared->lock, LW_SHARED);
	for (int i = 0; i < lease_max_databases; i++)
		oids[i] = state_shared->databases[i].database;
	LWLockRelease(state_shared->lock);
	for (int i = 0; i < lease_max_databases; i++)
		if (OidIsValid(oids[i]))
			result = lappend_oid(result, oids[i]);
	pfree(oids);
	return result;
}

/* Set a database's counters to zero. */
void
lease_state_stats_reset(LeaseDatabase *db)
{
	for (int i = 0; i < LEASE_COUNTERS; i++)
		pg_atomic_write_u64(&db->counters[i], 0);
	pg_atomic_write_u64(&db->woken, 0);
	for (int i = 0; i < LEASE_WAIT_BUCKETS; i++)
		pg_atomic_write_u64(&db->waits[i], 0);
	pg_atomic_write_u64(&db->stats_reset, (uint64) GetCurrentTimestamp());
}

/* Put the length of a wait in the histogram. */
void
lease_count_wait(LeaseDatabase *db, int64 waited_us)
{
	int			bucket = 0;

	while (bucket < LEASE_WAIT_BUCKETS - 1 &&
		   waited_us >= (INT64CONST(1) << bucket) * LEASE_WAIT_UNIT_US)
		bucket++;
	pg_atomic_fetch_add_u64(&db->waits[bucket], 1);
}

/* ----------------------------------------------------------------
 * The lease clock
 * ----------------------------------------------------------------
 */

/*
 * The boot's own clock in microseconds: never steps, and goes on during suspend
 * where the system has that.
 */
int64
lease_clock_boot(void)
{
	struct timespec now;

#ifdef CLOCK_BOOTTIME
	clock_gettime(CLOCK_BOOTTIME, &now);
#else
	clock_gettime(CLOCK_MONOTONIC, &now);
#endif
	return (int64) now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}

/* Append the contents of a small file, if it is there. */
static bool
append_file(StringInfo buf, const char *path)
{
	FILE	   *file = AllocateFile(path, "r");
	char		line[256];

	if (file == NULL)
		return false;
	while (fgets(line, sizeof(line), file) != NULL)
		appendStringInfoString(buf, line);
	FreeFile(file);
	return true;
}

/*
 * What the boot's clock counts from: two servers with the same identity read
 * the same clock.  A container may shift CLOCK_BOOTTIME by a time namespace, so
 * that belongs to it.  Without a boot id each start of the server is taken for
 * another boot.
 */
static LeaseBoot
boot_identity(void)
{
	StringInfoData buf;
	LeaseBoot	boot;

	initStringInfo(&buf);
	if (lease_boot_id != NULL && lease_boot_id[0] != '\0')
		appendStringInfoString(&buf, lease_boot_id);
	else if (append_file(&buf, "/proc/sys/kernel/random/boot_id"))
		(void) append_file(&buf, "/proc/self/timens_offsets");
	else
		appendBinaryStringInfo(&buf, (char *) &state_shared->fallback_boot,
							   sizeof(state_shared->fallback_boot));
	boot.id[0] = hash_bytes_extended((unsigned char *) buf.data, buf.len, 0);
	boot.id[1] = hash_bytes_extended((unsigned char *) buf.data, buf.len, 1);
	pfree(buf.data);
	return boot;
}

/* The lease clock of a database that is activated. */
int64
lease_clock_now(LeaseDatabase *db)
{
	return lease_clock_boot() + (int64) pg_atomic_read_u64(&db->clock_offset_us);
}

/*
 * The lease clock as far as a server can know that has not activated.  It is
 * never ahead of the true clock: in the boot that the metapage names it is
 * exact, and else the last mark plus the time since this server saw it arrive.
 * While leases are held a mark arrives every LEASE_MARK_AGE_US or sooner; when
 * none does, nothing is known of the primary, and the estimate stops.
 */
static int64
estimate_clock(LeaseDatabase *db, const LeaseMeta *meta)
{
	static LeaseBoot boot;
	static bool boot_known = false;
	int64		now_us = lease_clock_boot();
	int64		since_us;

	if (!boot_known)
	{
		boot = boot_identity();
		boot_known = true;
	}
	if (memcmp(&boot, &meta->boot, sizeof(boot)) == 0)
		return now_us + meta->clock_offset_us;

	SpinLockAcquire(&db->estimate_mutex);
	if (meta->clock_mark_us != db->estimate_mark_us)
	{
		db->estimate_mark_us = meta->clock_mark_us;
		db->estimate_seen_us = now_us;
	}
	since_us = now_us - db->estimate_seen_us;
	SpinLockRelease(&db->estimate_mutex);
	return meta->clock_mark_us + Min(since_us, LEASE_MARK_AGE_US);
}

/* The lease clock for somebody who only reads a table that exists. */
int64
lease_clock_read(Relation rel)
{
	LeaseDatabase *db = lease_state_database();
	LeaseMeta	meta;

	if (db->file == compat_relation_file(rel) && !RecoveryInProgress())
	{
		pg_read_barrier();
		return lease_clock_now(db);
	}
	lease_trie_read_meta(rel, &meta);
	return estimate_clock(db, &meta);
}

/*
 * Write the lease clock to the metapage if the last mark is older than age_us.
 * Flushed later: a mark that is lost makes leases end later, and a standby that
 * gets none stops its clock.
 */
void
lease_clock_mark(Relation rel, LeaseDatabase *db, int64 age_us)
{
	int64		now_us = lease_clock_now(db);
	uint64		old = pg_atomic_read_u64(&db->clock_mark_us);
	LeaseChange change;
	LeaseMeta  *meta;
	Buffer		buffer;
	XLogRecPtr	lsn;

	/* One caller wins the right to write this mark. */
	if (now_us - (int64) old <= age_us ||
		!pg_atomic_compare_exchange_u64(&db->clock_mark_us, &old,
										(uint64) now_us))
		return;

	buffer = lease_trie_lock_meta(rel, BUFFER_LOCK_EXCLUSIVE);
	lease_change_begin(&change, rel, false);
	meta = lease_page_meta(lease_change_page(&change, buffer, false));
	lease_change_start(&change);
	if (meta->clock_mark_us < now_us)
	{
		meta->clock_mark_us = now_us;
		lease_change_note(&change, change.pages[0].page,
						  &meta->clock_mark_us, sizeof(int64));
	}
	DLOCK_CRASH_POINT("mark: not logged");
	lsn = lease_change_finish(&change);
	DLOCK_CRASH_POINT("mark: logged");
	UnlockReleaseBuffer(buffer);
	lease_wal_flush_later(lsn);
}

/* ----------------------------------------------------------------
 * Activation
 * ----------------------------------------------------------------
 */

/*
 * The floor to start with, at least "floor".  The seconds are taken with their
 * fraction, so that two servers that start within one of them differ.
 */
static uint64
next_floor(uint64 floor)
{
	int64		since_us = GetCurrentTimestamp() - FLOOR_EPOCH;
	uint64		by_clock = 0;

	if (since_us > 0 &&
		(uint64) since_us / USECS_PER_SEC <= FLOOR_SANE / FLOOR_STEP)
		by_clock = (uint64) since_us / USECS_PER_SEC * FLOOR_STEP +
			(uint64) since_us % USECS_PER_SEC * FLOOR_STEP / USECS_PER_SEC;
	else
		ereport(LOG,
				(errmsg("dlock does not derive tokens from the system clock, which is set to before 2020 or after 2156")));
	return Max(floor, by_clock);
}

/*
 * Say whether a metapage's clock is for the boot we are in.  Where a copied
 * machine shows the same boot id, the mark may tell that it is not.
 */
static bool
is_same_boot(const LeaseMeta *meta, const LeaseBoot *boot, int64 boot_us)
{
	return memcmp(&meta->boot, boot, sizeof(LeaseBoot)) == 0 &&
		meta->clock_mark_us <= boot_us + meta->clock_offset_us;
}

/* Remove every entry, all copied from another database with the files. */
static void
purge_copy(Relation rel)
{
	BlockNumber blocks = lease_trie_blocks(rel);

	for (BlockNumber block = 0; block < blocks; block++)
	{
		Buffer		bucket = lease_trie_lock_block(rel, block);

		if (!BufferIsValid(bucket))
			continue;
		lease_trie_clear(rel, bucket);
		UnlockReleaseBuffer(bucket);
	}
}

/* Bring the metapage up to date, durably, and publish what it says. */
static void
activate(Relation rel, LeaseDatabase *db)
{
	RelFileNumber file = compat_relation_file(rel);
	LeaseMeta	meta;
	LeaseMeta  *new_meta;
	LeaseBoot	boot;
	int64		boot_us;
	uint64		known_floor;
	LeaseChange change;
	Buffer		buffer;
	XLogRecPtr	lsn;

	if (!lease_trie_exists(rel))
		lease_trie_create(rel, 0);
	lease_trie_read_meta(rel, &meta);
	lease_summary_forget(MyDatabaseId, file);
	if (meta.database != MyDatabaseId)
	{
		purge_copy(rel);
		DLOCK_CRASH_POINT("activation: purged");
	}

	/*
	 * When this server has activated the table before, in another file, it has
	 * all grants since.  Otherwise step over those that it may not have: a new
	 * table, over those of one that was dropped just now.
	 */
	known_floor = pg_atomic_read_u64(&db->floor);
	if (known_floor == 0 || meta.floor < known_floor)
		meta.floor = Max(meta.floor, known_floor) + FLOOR_STEP;
	meta.floor = next_floor(meta.floor);
	meta.database = MyDatabaseId;

	/* A new table starts well above 0, which no deadline should be. */
	if (meta.clock_mark_us == 0)
		meta.clock_mark_us = USECS_PER_DAY;
	boot = boot_identity();
	boot_us = lease_clock_boot();
	if (!is_same_boot(&meta, &boot, boot_us))
	{
		meta.boot = boot;
		meta.clock_offset_us = meta.clock_mark_us - boot_us;
	}
	meta.clock_mark_us = boot_us + meta.clock_offset_us;

	buffer = lease_trie_lock_meta(rel, BUFFER_LOCK_EXCLUSIVE);
	lease_change_begin(&change, rel, true);
	new_meta = lease_page_meta(lease_change_page(&change, buffer, false));
	lease_change_start(&change);
	new_meta->database = meta.database;
	new_meta->floor = meta.floor;
	new_meta->boot = meta.boot;
	new_meta->clock_offset_us = meta.clock_offset_us;
	new_meta->clock_mark_us = meta.clock_mark_us;
	DLOCK_CRASH_POINT("activation: not logged");
	lsn = lease_change_finish(&change);
	DLOCK_CRASH_POINT("activation: logged");
	XLogFlush(lsn);
	UnlockReleaseBuffer(buffer);
	DLOCK_CRASH_POINT("activation: flushed");

	pg_atomic_write_u64(&db->floor, meta.floor);
	pg_atomic_write_u64(&db->clock_offset_us, (uint64) meta.clock_offset_us);
	pg_atomic_write_u64(&db->clock_mark_us, (uint64) meta.clock_mark_us);
	if (known_floor == 0)
	{
		db->start_floor = meta.floor;
		db->start_us = meta.clock_mark_us;
	}
	pg_write_barrier();
	db->file = file;
}

/*
 * Make sure that the lock table is ready for grants, and return the entry of
 * its database.  The caller holds RowExclusiveLock on the table, in a server
 * that is not in recovery.
 */
LeaseDatabase *
lease_state_activate(Relation rel)
{
	LeaseDatabase *db = lease_state_database();

	if (db->file != compat_relation_file(rel))
	{
		LWLockAcquire(db->activation, LW_EXCLUSIVE);
		if (db->file != compat_relation_file(rel))
			activate(rel, db);
		LWLockRelease(db->activation);
		lease_state_want_worker(MyDatabaseId);
	}
	pg_read_barrier();
	return db;
}

/* ----------------------------------------------------------------
 * Workers
 * ----------------------------------------------------------------
 */

/* Become a database's worker; false if it has one. */
bool
lease_state_enter_worker(LeaseDatabase *db, Latch *latch)
{
	bool		entered;

	LWLockAcquire(state_shared->lock, LW_EXCLUSIVE);
	entered = db->worker_pid == 0;
	if (entered)
	{
		db->worker_pid = MyProcPid;
		db->worker_latch = latch;
		db->worker_wanted = true;
		db->worker_requested = false;
	}
	LWLockRelease(state_shared->lock);
	return entered;
}

/* Stop being a database's worker; "wanted" says whether to start another. */
void
lease_state_leave_worker(LeaseDatabase *db, bool wanted)
{
	LWLockAcquire(state_shared->lock, LW_EXCLUSIVE);
	if (db->worker_pid == MyProcPid)
	{
		db->worker_pid = 0;
		db->worker_latch = NULL;
		db->worker_wanted = wanted;
	}
	LWLockRelease(state_shared->lock);
}

/* Become the launcher, or with NULL stop being it. */
void
lease_state_enter_launcher(Latch *latch)
{
	LWLockAcquire(state_shared->lock, LW_EXCLUSIVE);
	state_shared->launcher_latch = latch;
	LWLockRelease(state_shared->lock);
}

/* Ask the launcher for a worker; never fails. */
void
lease_state_want_worker(Oid database)
{
	LeaseDatabase *db;

	LWLockAcquire(state_shared->lock, LW_EXCLUSIVE);
	db = search(database);
	if (db != NULL)
		db->worker_wanted = db->worker_requested = true;
	else if (state_shared->nwanted < WANTED_MAX)
		state_shared->wanted[state_shared->nwanted++] = database;
	else
		state_shared->rescan = true;
	if (state_shared->launcher_latch && (db == NULL || db->worker_pid == 0))
		SetLatch(state_shared->launcher_latch);
	LWLockRelease(state_shared->lock);
}

/* Let a database's worker, if there is one, look around at once. */
void
lease_state_wake_worker(Oid database)
{
	LeaseDatabase *db;

	LWLockAcquire(state_shared->lock, LW_SHARED);
	db = search(database);
	if (db != NULL && db->worker_latch != NULL)
		SetLatch(db->worker_latch);
	LWLockRelease(state_shared->lock);
}

/* The worker of a database, or 0. */
int
lease_state_worker_pid(Oid database)
{
	LeaseDatabase *db;
	int			pid;

	LWLockAcquire(state_shared->lock, LW_SHARED);
	db = search(database);
	pid = db != NULL ? db->worker_pid : 0;
	LWLockRelease(state_shared->lock);
	return pid;
}

/* The entries that want a worker, or have requested one, and have none. */
static List *
list_wanted(bool requested)
{
	List	   *result = NIL;
	Oid		   *oids = palloc(lease_max_databases * sizeof(Oid));
	int			noids = 0;

	LWLockAcquire(state_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < lease_max_databases; i++)
	{
		LeaseDatabase *db = &state_shared->databases[i];

		if (!OidIsValid(db->database) || db->worker_pid != 0 ||
			!(requested ? db->worker_requested : db->worker_wanted))
			continue;
		oids[noids++] = db->database;
		db->worker_requested = false;
	}
	LWLockRelease(state_shared->lock);
	for (int i = 0; i < noids; i++)
		result = lappend_oid(result, oids[i]);
	pfree(oids);
	return result;
}

/*
 * The databases that have asked for a worker since the last call and have none,
 * as a list of OIDs.  "*rescan" is set if requests were lost and all databases
 * must be looked at.
 */
List *
lease_state_requested_workers(bool *rescan)
{
	List	   *result = NIL;
	Oid			wanted[WANTED_MAX];
	int			nwanted;

	LWLockAcquire(state_shared->lock, LW_EXCLUSIVE);
	nwanted = state_shared->nwanted;
	memcpy(wanted, state_shared->wanted, sizeof(wanted));
	state_shared->nwanted = 0;
	*rescan = state_shared->rescan;
	state_shared->rescan = false;
	LWLockRelease(state_shared->lock);

	for (int i = 0; i < nwanted; i++)
		result = list_append_unique_oid(result, wanted[i]);
	return list_concat_unique_oid(result, list_wanted(true));
}

/* The databases that should have a worker and have none, as a list of OIDs. */
List *
lease_state_wanted_workers(void)
{
	return list_wanted(false);
}
