/*
 * lease_clock.c
 *	  The clock that leases are measured by.
 *
 * It is CLOCK_BOOTTIME plus an offset, so no step of the wall clock moves it.
 * Activation anchors it (lease_activate.c): in the boot that the metapage
 * names, the offset stays, since the clock went on while the server was down.
 * In another boot or on another machine it resumes from the mark, the last
 * place that the clock is known to have been at; the time that the server was
 * down does not count.  It has resumed when the server came up, whoever was
 * there to see it.
 *
 * Calls and the worker bring the mark up to date.  A server in recovery does not
 * activate: it estimates the clock from the marks that it sees arriving.
 *
 * Anybody may read the clock, under whatever locks; a mark is written under the
 * metapage's lock.  Shared memory only tells which marks were seen, and when; a
 * restart forgets that.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include <time.h>
#include <unistd.h>

#include "access/xlog.h"
#include "common/hashfn.h"
#include "lease_crash.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/lease_storage.h"
#include "storage/spin.h"
#include "utils/timestamp.h"

/*
 * Where a server that cannot activate believes the lease clock of a table to be.
 * These do not belong to a database's entry, which a look does not need.
 * Tables that share one overwrite each other's, which makes their clocks late.
 */
typedef struct LeaseEstimate
{
	slock_t		mutex;			/* protects what follows */
	Oid			database;
	RelFileNumber file;
	int64		mark_us;		/* the last mark seen */
	int64		seen_us;		/* when, on this server's boot clock */
} LeaseEstimate;

#define ESTIMATES		256

typedef struct ClockShared
{
	LeaseBoot	boot;			/* lease_clock_identity(); does not change */
	LeaseEstimate estimates[ESTIMATES];
} ClockShared;

char	   *lease_boot_id = NULL;

static ClockShared *clock_shared = NULL;

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
 * The identity of the boot's clock.  A container may shift CLOCK_BOOTTIME by a time
 * namespace, so that is part of it.  Without a boot id, each start of the server counts
 * as another boot.
 */
static LeaseBoot
find_identity(void)
{
	StringInfoData buf;
	LeaseBoot	boot;

	initStringInfo(&buf);
	if (lease_boot_id != NULL && lease_boot_id[0] != '\0')
		appendStringInfoString(&buf, lease_boot_id);
	else if (append_file(&buf, "/proc/sys/kernel/random/boot_id"))
		(void) append_file(&buf, "/proc/self/timens_offsets");
	else
		appendStringInfo(&buf, "%lld %d", (long long) PgStartTime, PostmasterPid);
	boot.id[0] = hash_bytes_extended((unsigned char *) buf.data, buf.len, 0);
	boot.id[1] = hash_bytes_extended((unsigned char *) buf.data, buf.len, 1);
	pfree(buf.data);
	return boot;
}

Size
lease_clock_size(void)
{
	return sizeof(ClockShared);
}

/* Called by lease_area.c. */
void
lease_clock_attach(char *start, bool make)
{
	clock_shared = (ClockShared *) start;
	if (!make)
		return;
	clock_shared->boot = find_identity();
	for (int i = 0; i < ESTIMATES; i++)
		SpinLockInit(&clock_shared->estimates[i].mutex);
}

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

/* Say whether so many milliseconds have passed, whatever the wall clock does. */
bool
lease_clock_is_past(int64 start_us, int milliseconds)
{
	return lease_clock_boot() - start_us >= (int64) milliseconds * 1000;
}

/* What the boot's clock counts from: two servers with the same identity read the same clock. */
LeaseBoot
lease_clock_identity(void)
{
	return clock_shared->boot;
}

/*
 * Since when this server has been out of recovery, by the boot's clock: the start of the
 * WAL writer, which comes next and stays until the server stops or crashes.  A few
 * hundredths of a second late, or where the system does not tell, now.
 */
int64
lease_clock_server_start(void)
{
	int64		start_us = lease_clock_boot();
#ifdef CLOCK_BOOTTIME
	char		path[64];
	StringInfoData buf;
	char	   *field;

	snprintf(path, sizeof(path), "/proc/%d/stat", compat_wal_writer_pid());
	initStringInfo(&buf);
	field = append_file(&buf, path) ? strrchr(buf.data, ')') : NULL;
	/* the 22nd field; the second ends here */
	for (int i = 2; i < 22 && field != NULL; i++)
		field = strchr(field + 1, ' ');
	if (field != NULL)
	{
		int64		ticks = (int64) strtoll(field + 1, NULL, 10);

		if (ticks > 0)
			start_us = Min(start_us, (ticks + 1) * USECS_PER_SEC / sysconf(_SC_CLK_TCK));
	}
	pfree(buf.data);
#endif
	return start_us;
}

/* The lease clock of a database that is activated. */
int64
lease_clock_now(LeaseDatabase *db)
{
	return lease_clock_boot() + (int64) pg_atomic_read_u64(&db->clock_offset_us);
}

/*
 * The lease clock as far as a server that has not activated can know it.  It is
 * never ahead of the true clock: in the boot that the metapage names it is
 * exact; else it is the last mark plus the time since this server saw it
 * arrive.  While leases are held, a mark arrives every LEASE_MARK_AGE_US or
 * sooner.  If none does, we know nothing of the primary, and the estimate
 * stops.
 */
static int64
estimate_clock(Relation rel, const LeaseMeta *meta)
{
	LeaseBoot	boot = lease_clock_identity();
	RelFileNumber file = compat_relation_file(rel);
	LeaseEstimate *estimate =
		&clock_shared->estimates[hash_uint32(MyDatabaseId ^ file) % ESTIMATES];
	int64		now_us = lease_clock_boot();
	int64		since_us;

	if (memcmp(&boot, &meta->boot, sizeof(boot)) == 0)
		return now_us + meta->clock_offset_us;

	SpinLockAcquire(&estimate->mutex);
	if (estimate->database != MyDatabaseId || estimate->file != file ||
		estimate->mark_us != meta->clock_mark_us)
	{
		estimate->database = MyDatabaseId;
		estimate->file = file;
		estimate->mark_us = meta->clock_mark_us;
		estimate->seen_us = now_us;
	}
	since_us = now_us - estimate->seen_us;
	SpinLockRelease(&estimate->mutex);
	return meta->clock_mark_us + Min(since_us, LEASE_MARK_AGE_US);
}

/* The lease clock for a reader of a table that exists. */
int64
lease_clock_read(Relation rel)
{
	LeaseDatabase *db = lease_state_find();
	LeaseMeta	meta;

	if (db != NULL && db->file == compat_relation_file(rel) &&
		!RecoveryInProgress())
	{
		pg_read_barrier();
		return lease_clock_now(db);
	}
	lease_meta_read(rel, &meta);
	return estimate_clock(rel, &meta);
}

/*
 * Write the lease clock to the metapage if the last mark is older than age_us.
 * Flushed later: a mark that is lost makes leases end later, and a standby that
 * gets none stops its clock.
 *
 * A mark is unimportant WAL: where nothing but marks is written, archive_timeout
 * archives no segment, and a checkpoint is skipped.  Recovery then begins at an
 * older one, and replays them all the same.  GenericXLog cannot say so.
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

	buffer = lease_meta_lock(rel, BUFFER_LOCK_EXCLUSIVE);
	lease_change_begin(&change, rel, false);
	change.unimportant = true;
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

