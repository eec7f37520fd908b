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

	/*
	 * In milliseconds, as read from the server's files by the process that read them
	 * last, at lock_delay_read.  Changed under the lock, read without.
	 */
	pg_atomic_uint32 lock_delay;
	TimestampTz lock_delay_read;

	LeaseDatabase databases[FLEXIBLE_ARRAY_MEMBER];
} StateShared;

int			lease_lock_delay = 0;

static StateShared *state_shared = NULL;

/* The entry of MyDatabaseId, unless it has become another's: see is_mine(). */
static LeaseDatabase *my_database = NULL;

/* Called by lease_area.c. */
void
lease_state_attach(bool make)
{
	state_shared = lease_area_take(1, offsetof(StateShared, databases) +
								   lease_area_settings->databases * sizeof(LeaseDatabase));
	if (make)
		lease_area_init_lock(&state_shared->lock);
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
	for (int i = 0; i < lease_area_settings->databases; i++)
		if (state_shared->databases[i].database == database)
			return &state_shared->databases[i];
	return NULL;
}

/*
 * The entry of the database we are connected to, which has the extension; made
 * if need be, or NULL: there is no place.  The lock is held exclusively.
 */
static LeaseDatabase *
take_entry(void)
{
	LeaseDatabase *db = search(MyDatabaseId);

	if (db == NULL && (db = search(InvalidOid)) != NULL)
	{
		memset(db, 0, sizeof(LeaseDatabase));
		lease_state_stats_reset(db);
		db->database = MyDatabaseId;
	}
	if (db != NULL)
		db->dropped = false;
	return db;
}

/* Free an entry, and the database's summaries.  The lock is held. */
static void
free_entry(LeaseDatabase *db)
{
	lease_summary_forget(&db->summaries);
	db->database = InvalidOid;
}

/* The databases that have an entry, as a list of OIDs. */
List *
lease_state_databases(void)
{
	List	   *result = NIL;

	LWLockAcquire(&state_shared->lock, LW_SHARED);
	for (int i = 0; i < lease_area_settings->databases; i++)
		if (OidIsValid(state_shared->databases[i].database))
			result = lappend_oid(result, state_shared->databases[i].database);
	LWLockRelease(&state_shared->lock);
	return result;
}

/*
 * Free the entries of databases that are gone, or that have lost the extension,
 * all waiters and the worker.
 */
static void
forget_dropped(void)
{
	ListCell   *cell;

	foreach(cell, lease_state_databases())
	{
		Oid			database = lfirst_oid(cell);
		LeaseDatabase *db;
		bool		exists;

		Assert(lease_may_wait());
		exists = SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(database));
		LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
		db = search(database);
		if (db != NULL &&
			(!exists || (db->dropped && db->worker_pid == 0 &&
						 pg_atomic_read_u32(&db->nwaiters) == 0)))
			free_entry(db);
		LWLockRelease(&state_shared->lock);
	}
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
		my_database = take_entry();
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
		db->worker_due_us = 0;
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
lease_state_enter_worker(LeaseDatabase *db)
{
	bool		entered;

	LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
	entered = db->worker_pid == 0;
	if (entered)
	{
		db->worker_pid = MyProcPid;
		db->worker_due_us = 0;
	}
	LWLockRelease(&state_shared->lock);
	return entered;
}

/*
 * Stop being a database's worker.  "wanted": start another, though not right
 * after this one's end.  One that was asked for meanwhile is started at once.
 */
void
lease_state_leave_worker(LeaseDatabase *db, bool wanted)
{
	LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
	if (db->worker_pid == MyProcPid)
	{
		db->worker_pid = 0;
		if (wanted && !db->dropped && db->worker_due_us == 0)
			db->worker_due_us = lease_clock_boot() + LEASE_RETRY_INTERVAL * 1000;
	}
	LWLockRelease(&state_shared->lock);
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
	db = take_entry();
	if (db != NULL)
	{
		/* a worker that asks is there; once it has left, nobody may want one */
		if (db->worker_pid != MyProcPid)
			db->worker_due_us = lease_clock_boot();
		if (db->worker_pid == 0)
			lease_wal_wake_flusher();
	}
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
 * The databases for which it is time to start a worker, as a list of OIDs.  If
 * one does not come to enter, it is time again after a while.
 */
List *
lease_state_wanted_workers(void)
{
	List	   *result = NIL;
	int64		now_us = lease_clock_boot();

	LWLockAcquire(&state_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < lease_area_settings->databases; i++)
	{
		LeaseDatabase *db = &state_shared->databases[i];

		if (!OidIsValid(db->database) || db->worker_pid != 0 ||
			db->worker_due_us == 0 || db->worker_due_us > now_us)
			continue;
		result = lappend_oid(result, db->database);
		db->worker_due_us = now_us + LEASE_RETRY_INTERVAL * 1000;
	}
	LWLockRelease(&state_shared->lock);
	return result;
}
