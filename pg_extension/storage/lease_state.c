/*
 * lease_state.c
 *	  What shared memory holds for each database that uses dlock.
 *
 * An entry has what lease_activate.c publishes for the table (floor, clock), the
 * database's summaries, its counters, and its worker.  It is made when a
 * session uses the database, and freed when the database is gone or others need
 * the place.
 *
 * Lock order: the lock of the entries comes after all content locks; only
 * PostgreSQL's lock of dynamic shared memory is taken under it, to give summaries
 * back.  A crash loses all of this with shared memory; it is made anew from the
 * metapage.
 *
 * The lock delay is here too, because all must use the same value: each process
 * reads changed settings at its own time, a waiter only after its call.  So each that
 * has read them tells all others, and the value that was read last counts.  The worker
 * reads them at once.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lease_storage.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

typedef struct StateShared
{
	LWLock		lock;			/* protects what follows, and see
								 * LeaseDatabase */
	Latch	   *volatile launcher_latch;	/* NULL: not running */
	bool		no_place;		/* for a worker, as the log was told */

	/*
	 * In milliseconds, as read from the server's files by the process that read them
	 * last, at lock_delay_read.  Changed under the lock, read without.
	 */
	pg_atomic_uint32 lock_delay;
	TimestampTz lock_delay_read;

	/*
	 * Boot clock: when a launcher was last asked for; PG_INT64_MAX: one was
	 * registered.  Without the lock.
	 */
	pg_atomic_uint64 launcher_asked_us;

	LeaseDatabase databases[FLEXIBLE_ARRAY_MEMBER];
} StateShared;

int			lease_lock_delay = 0;

static StateShared *state_shared = NULL;

/* The entry of MyDatabaseId, unless it has become another's: see is_mine(). */
static LeaseDatabase *my_database = NULL;

Size
lease_state_size(void)
{
	return add_size(offsetof(StateShared, databases),
					mul_size(lease_area_sizes->databases, sizeof(LeaseDatabase)));
}

/* Called by lease_area.c. */
void
lease_state_attach(char *start, bool make)
{
	state_shared = (StateShared *) start;
	if (!make)
		return;
	lease_area_init_lock(&state_shared->lock);
	pg_atomic_init_u32(&state_shared->lock_delay, 0);
	pg_atomic_init_u64(&state_shared->launcher_asked_us, 0);
	for (int i = 0; i < lease_area_sizes->databases; i++)
	{
		LeaseDatabase *db = &state_shared->databases[i];

		lease_summary_init(&db->summaries);
		pg_atomic_init_u64(&db->floor, 0);
		pg_atomic_init_u64(&db->clock_offset_us, 0);
		pg_atomic_init_u64(&db->clock_mark_us, 0);
		pg_atomic_init_u64(&db->held, 0);
		pg_atomic_init_u64(&db->held_cursor, 0);
		pg_atomic_init_u64(&db->stats_reset, 0);
		for (int c = 0; c < LEASE_COUNTERS; c++)
			pg_atomic_init_u64(&db->counters[c], 0);
		pg_atomic_init_u32(&db->nwaiters, 0);
		pg_atomic_init_u64(&db->woken, 0);
		for (int b = 0; b < LEASE_WAIT_BUCKETS; b++)
			pg_atomic_init_u64(&db->waits[b], 0);
	}
}

/* This process has read the server's settings: tell all others the lock delay. */
void
lease_state_tell_lock_delay(void)
{
	LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
	if (PgReloadTime >= state_shared->lock_delay_read)
	{
		state_shared->lock_delay_read = PgReloadTime;
		pg_atomic_write_u32(&state_shared->lock_delay,
							(uint32) lease_lock_delay);
	}
	LWLockRelease(&state_shared->lock);
}

/* The lock delay in microseconds, for everybody from the same moment on. */
int64
lease_lock_delay_us(void)
{
	return pg_atomic_read_u32(&state_shared->lock_delay) * INT64CONST(1000);
}

/* The entry of a database, or NULL.  The lock is held. */
static LeaseDatabase *
search(Oid database)
{
	for (int i = 0; i < lease_area_sizes->databases; i++)
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
	db->dropped = false;
	db->worker_pid = 0;
	db->worker_wanted = false;
	db->worker_requested = false;
	db->worker_latch = NULL;
	db->reaped_block = 0;
	pg_atomic_write_u64(&db->floor, 0);
	lease_state_stats_reset(db);
	db->database = database;
	return db;
}

/* Free an entry, and the database's summaries.  The lock is held. */
static void
free_entry(LeaseDatabase *db)
{
	lease_summary_forget(&db->summaries);
	db->database = InvalidOid;
}

/*
 * Free the entries of databases that are gone, or that have lost the extension,
 * all waiters and the worker.
 */
static void
forget_dropped(void)
{
	List	   *databases = lease_state_databases();
	ListCell   *cell;

	foreach(cell, databases)
	{
		Oid			database = lfirst_oid(cell);

		Assert(lease_may_wait());
		if (!SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database)))
			lease_state_forget(database);
		else
		{
			LeaseDatabase *db;

			LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
			db = search(database);
			if (db != NULL && db->dropped && db->worker_pid == 0 &&
				pg_atomic_read_u32(&db->nwaiters) == 0)
				free_entry(db);
			LWLockRelease(&state_shared->lock);
		}
	}
	list_free(databases);
}

/*
 * Say whether an entry is that of our database.  Without the lock: nobody drops
 * the extension while we have its table open.
 */
static bool
is_mine(const LeaseDatabase *db)
{
	return db != NULL && db->database == MyDatabaseId && !db->dropped;
}

/* The entry of the database we are connected to, or NULL if it has none. */
LeaseDatabase *
lease_state_find(void)
{
	if (is_mine(my_database))
		return my_database;
	LWLockAcquire(&state_shared->lock, LW_SHARED);
	my_database = search(MyDatabaseId);
	LWLockRelease(&state_shared->lock);
	return is_mine(my_database) ? my_database : NULL;
}

/*
 * The entry of the database we are connected to; it is made if need be.  In a
 * transaction, unless there is one.
 */
LeaseDatabase *
lease_state_database(void)
{
	for (int attempt = 0; !is_mine(my_database); attempt++)
	{
		if (attempt == 1)
			forget_dropped();
		else if (attempt == 2)
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("too many databases use dlock"),
					 errhint("Increase \"dlock.max_databases\" and restart the server.")));
		LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
		my_database = search(MyDatabaseId);
		if (my_database == NULL)
			my_database = allocate(MyDatabaseId);
		else
			my_database->dropped = false;
		LWLockRelease(&state_shared->lock);
	}
	return my_database;
}

/*
 * The extension was dropped from the database we are connected to: other
 * databases may take its entry.  Until one does, the entry keeps the floor for
 * a table that may follow.
 */
void
lease_state_drop(void)
{
	LeaseDatabase *db;

	LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
	db = search(MyDatabaseId);
	if (db != NULL)
	{
		db->dropped = true;
		db->worker_wanted = db->worker_requested = false;
	}
	LWLockRelease(&state_shared->lock);
}

/* Free the entry of a database that is gone, and its summaries. */
void
lease_state_forget(Oid database)
{
	LeaseDatabase *db;

	LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
	db = search(database);
	if (db != NULL)
		free_entry(db);
	LWLockRelease(&state_shared->lock);
}

/* The databases that have an entry, as a list of OIDs. */
List *
lease_state_databases(void)
{
	List	   *result = NIL;
	Oid		   *oids = palloc(lease_area_sizes->databases * sizeof(Oid));

	LWLockAcquire(&state_shared->lock, LW_SHARED);
	for (int i = 0; i < lease_area_sizes->databases; i++)
		oids[i] = state_shared->databases[i].database;
	LWLockRelease(&state_shared->lock);
	for (int i = 0; i < lease_area_sizes->databases; i++)
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
 * Workers
 * ----------------------------------------------------------------
 */

/* Become a database's worker; false if it has one. */
bool
lease_state_enter_worker(LeaseDatabase *db, Latch *latch)
{
	bool		entered;

	LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
	entered = db->worker_pid == 0;
	if (entered)
	{
		db->worker_pid = MyProcPid;
		db->worker_latch = latch;
		db->worker_wanted = true;
		db->worker_requested = false;
	}
	LWLockRelease(&state_shared->lock);
	return entered;
}

/* Stop being a database's worker; "wanted" says whether to start another. */
void
lease_state_leave_worker(LeaseDatabase *db, bool wanted)
{
	LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
	if (db->worker_pid == MyProcPid)
	{
		db->worker_pid = 0;
		db->worker_latch = NULL;
		db->worker_wanted = wanted && !db->dropped;
	}
	LWLockRelease(&state_shared->lock);
}

/* Become the launcher; false if there is one. */
bool
lease_state_enter_launcher(Latch *latch)
{
	bool		entered;

	LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
	entered = state_shared->launcher_latch == NULL;
	if (entered)
		state_shared->launcher_latch = latch;
	LWLockRelease(&state_shared->lock);
	return entered;
}

/* Stop being the launcher; a callback of its exit. */
void
lease_state_leave_launcher(int code, Datum arg)
{
	LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
	state_shared->launcher_latch = NULL;
	LWLockRelease(&state_shared->lock);
}

/*
 * Say whether the caller is to start a launcher: there is none, and nobody has
 * been told the same a short time ago.  Takes no lock: each call asks.
 */
bool
lease_state_lacks_launcher(void)
{
	uint64		asked_us;

	if (state_shared->launcher_latch != NULL)
		return false;
	asked_us = pg_atomic_read_u64(&state_shared->launcher_asked_us);
	return (asked_us == 0 ||
			lease_clock_is_past((int64) asked_us, LEASE_RETRY_INTERVAL)) &&
		pg_atomic_compare_exchange_u64(&state_shared->launcher_asked_us,
									   &asked_us,
									   (uint64) lease_clock_boot());
}

/*
 * A launcher was registered.  PostgreSQL starts it, and starts it again, until it finds
 * another at work; a second one would only take one more place.
 */
void
lease_state_has_launcher(void)
{
	pg_atomic_write_u64(&state_shared->launcher_asked_us, PG_INT64_MAX);
}

/* Note whether workers lack a place.  True if the log should be told. */
bool
lease_state_note_no_place(bool no_place)
{
	bool		tell;

	LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
	tell = no_place && !state_shared->no_place;
	state_shared->no_place = no_place;
	LWLockRelease(&state_shared->lock);
	return tell;
}

/*
 * Ask the launcher for a worker in the database we are connected to, which gets an
 * entry for that.  If there is no place for the entry, the first call finds one, or
 * gets an error.  Never fails.
 */
void
lease_state_want_worker(void)
{
	LeaseDatabase *db;

	LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
	db = search(MyDatabaseId);
	if (db == NULL)
		db = allocate(MyDatabaseId);
	if (db != NULL)
	{
		db->worker_wanted = true;
		/* a worker that asks is there; once it has left, nobody may want one */
		db->worker_requested |= db->worker_pid != MyProcPid;
		db->dropped = false;
		if (state_shared->launcher_latch && db->worker_pid == 0)
			SetLatch(state_shared->launcher_latch);
	}
	LWLockRelease(&state_shared->lock);
}

/* Let a database's worker, if there is one, look around at once.  Also without an area. */
void
lease_state_wake_worker(Oid database)
{
	LeaseDatabase *db;

	if (state_shared == NULL)
		return;
	LWLockAcquire(&state_shared->lock, LW_SHARED);
	db = search(database);
	if (db != NULL && db->worker_latch != NULL)
		SetLatch(db->worker_latch);
	LWLockRelease(&state_shared->lock);
}

/* The worker of a database, or 0. */
int
lease_state_worker_pid(Oid database)
{
	LeaseDatabase *db;
	int			pid;

	LWLockAcquire(&state_shared->lock, LW_SHARED);
	db = search(database);
	pid = db != NULL ? db->worker_pid : 0;
	LWLockRelease(&state_shared->lock);
	return pid;
}

/*
 * The databases that have asked for a worker since the last call and have none, as
 * a list of OIDs; "again": also those whose worker has died.
 */
List *
lease_state_wanted_workers(bool again)
{
	List	   *result = NIL;
	Oid		   *oids = palloc(lease_area_sizes->databases * sizeof(Oid));
	int			noids = 0;

	LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < lease_area_sizes->databases; i++)
	{
		LeaseDatabase *db = &state_shared->databases[i];

		if (!OidIsValid(db->database) || db->worker_pid != 0 ||
			!(db->worker_requested || (again && db->worker_wanted)))
			continue;
		oids[noids++] = db->database;
		db->worker_requested = false;
	}
	LWLockRelease(&state_shared->lock);
	for (int i = 0; i < noids; i++)
		result = lappend_oid(result, oids[i]);
	pfree(oids);
	return result;
}
