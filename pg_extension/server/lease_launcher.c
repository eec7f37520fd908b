/*
 * lease_launcher.c
 *	  Start a worker in each database that has the extension.
 *
 * One process does this for the server.  If the library is preloaded, it is
 * started with the server, after recovery or promotion; else by the first call,
 * or by CREATE EXTENSION.  It starts a worker in every database to see whether
 * the extension is there, and later in those that ask for one.  While it has
 * nothing else to do, it flushes WAL for others (lease_wal.c).
 *
 * No lease needs any of these processes.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "server/lease_server.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

typedef struct LauncherShared
{
	/*
	 * Boot clock: when a launcher was last asked for; PG_INT64_MAX: one was
	 * registered.  PostgreSQL starts it, and starts it again, until it finds another at
	 * work; a second one would only take one more place.
	 */
	pg_atomic_uint64 asked_us;
	pg_atomic_uint32 no_place;	/* bool: for a worker, as the log was told */
} LauncherShared;

static LauncherShared *launcher_shared = NULL;

/* The launcher, which comes back by itself after a crash. */
static BackgroundWorker the_launcher = {
	.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
	.bgw_start_time = BgWorkerStart_RecoveryFinished,
	.bgw_restart_time = LEASE_RETRY_INTERVAL / 1000,
	.bgw_name = "dlock launcher",
	.bgw_type = "dlock launcher",
	.bgw_library_name = "dlock",
	.bgw_function_name = "dlock_launcher_main",
};

/* Called by lease_area.c. */
void
lease_launcher_attach(bool make)
{
	launcher_shared = lease_area_take(1, sizeof(LauncherShared));
}

/* Register the launcher; called while the library is preloaded. */
void
lease_launcher_register(void)
{
	RegisterBackgroundWorker(&the_launcher);
}

/*
 * Note whether workers lack a place, and tell the log that they do; once, until
 * there was one.  The log would handle interrupts, of a waiter that may have been
 * granted its lease.
 */
static void
note_no_place(bool no_place)
{
	if (pg_atomic_exchange_u32(&launcher_shared->no_place, no_place) || !no_place)
		return;
	HOLD_INTERRUPTS();
	ereport(LOG_SERVER_ONLY,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("could not start a dlock worker"),
			 errdetail("Leases still end at their deadlines, but their rows are not removed."),
			 errhint("Increase \"max_worker_processes\"."),
			 errhidestmt(true), errhidecontext(true)));
	RESUME_INTERRUPTS();
}

/*
 * Start the launcher if there is none, as in a server that does not preload the
 * library.  If that fails, a later call tries again.  Cannot raise an error, and
 * takes no lock if there is one: each call asks.
 */
void
lease_launcher_ensure(void)
{
	uint64		asked_us;

	if (lease_wal_has_flusher() || !IsUnderPostmaster || IsBinaryUpgrade)
		return;
	asked_us = pg_atomic_read_u64(&launcher_shared->asked_us);
	if ((asked_us != 0 &&
		 !lease_clock_is_past((int64) asked_us, LEASE_RETRY_INTERVAL)) ||
		!pg_atomic_compare_exchange_u64(&launcher_shared->asked_us, &asked_us,
										(uint64) lease_clock_boot()))
		return;
	if (RegisterDynamicBackgroundWorker(&the_launcher, NULL))
		pg_atomic_write_u64(&launcher_shared->asked_us, PG_INT64_MAX);
	else
		note_no_place(true);
}

/* Have the launcher start a worker in this database.  Cannot raise an error. */
void
lease_launcher_want_worker(void)
{
	lease_state_want_worker();
	lease_launcher_ensure();
}

/*
 * Called by the launcher and by workers for themselves.  The settings of a server
 * must not make them wait for other transactions, as a serializable, read only,
 * deferrable one does for its snapshot, nor for a standby, as the commit of one
 * that notifies does.  Nor must a limit that is meant for users' transactions end
 * them in the middle of their work.
 */
void
lease_launcher_use_own_settings(void)
{
	compat_unlimited_transactions();
	SetConfigOption("default_transaction_isolation", "read committed",
					PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("synchronous_commit", "local", PGC_SUSET, PGC_S_OVERRIDE);
}

/*
 * The databases that allow connections, as a list of OIDs.  Those that are gone
 * lose their entries.
 */
static List *
list_databases(void)
{
	MemoryContext memory = CurrentMemoryContext;
	List	   *gone = lease_state_databases();	/* if it is not found below */
	List	   *connectable = NIL;
	ListCell   *cell;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext old = MemoryContextSwitchTo(memory);

		gone = list_delete_oid(gone, form->oid);
		if (form->datallowconn && form->datconnlimit != DATCONNLIMIT_INVALID_DB)
			connectable = lappend_oid(connectable, form->oid);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	foreach(cell, gone)
		lease_state_forget(lfirst_oid(cell));
	return connectable;
}

/* A worker that the launcher has started; in TopMemoryContext. */
typedef struct StartedWorker
{
	Oid			database;
	BackgroundWorkerHandle *handle;
} StartedWorker;

static List *started_workers = NIL;

/*
 * Say whether a worker is in a database or on its way there; and forget those
 * that have ended.
 */
static bool
has_worker(Oid database)
{
	bool		found = lease_state_worker_pid(database) != 0;
	ListCell   *cell;

	foreach(cell, started_workers)
	{
		StartedWorker *started = lfirst(cell);
		pid_t		pid;

		if (GetBackgroundWorkerPid(started->handle, &pid) == BGWH_STOPPED)
		{
			started_workers = foreach_delete_current(started_workers, cell);
			pfree(started->handle);
			pfree(started);
		}
		else if (started->database == database)
			found = true;
	}
	return found;
}

/*
 * Start a worker in a database, and wait until it has settled there or is gone.
 * False when there is no place for it.
 */
static bool
start_worker(Oid database)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_type = LEASE_WORKER_TYPE,
		.bgw_library_name = "dlock",
		.bgw_function_name = "dlock_worker_main",
		.bgw_main_arg = ObjectIdGetDatum(database),
		.bgw_notify_pid = MyProcPid,
	};
	int64		start_us = lease_clock_boot();
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	StartedWorker *started = palloc(sizeof(StartedWorker));
	bool		registered;
	pid_t		pid;

	snprintf(worker.bgw_name, BGW_MAXLEN, "dlock worker for database %u",
			 database);
	started->database = database;
	registered = RegisterDynamicBackgroundWorker(&worker, &started->handle);
	if (registered)
		started_workers = lappend(started_workers, started);
	else
		pfree(started);
	MemoryContextSwitchTo(old);

	while (registered && lease_state_worker_pid(database) == 0 &&
		   GetBackgroundWorkerPid(started->handle, &pid) != BGWH_STOPPED &&
		   !lease_clock_is_past(start_us, LEASE_RETRY_INTERVAL))
	{
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 100, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return registered;
}

/*
 * Start workers where they are wanted, one after another, so that a look into
 * many databases takes one place among the background workers.  "everywhere":
 * look into all databases.  Returns whether there were places for all.
 */
static bool
start_wanted(bool everywhere)
{
	bool		complete = true;
	List	   *wanted = lease_state_wanted_workers();
	ListCell   *cell;

	if (wanted == NIL && !everywhere)
		return true;

	foreach(cell, list_databases())
	{
		Oid			database = lfirst_oid(cell);

		if ((!everywhere && !list_member_oid(wanted, database)) ||
			has_worker(database))
			continue;
		complete = start_worker(database);
		if (!complete)
			break;
	}
	note_no_place(!complete);
	return complete;
}

/* The launcher's entry point. */
void
dlock_launcher_main(Datum arg)
{
	bool		complete = false;
	int64		last_us = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	lease_launcher_use_own_settings();
	lease_area_attach();
	if (!lease_wal_enter_flusher())
		proc_exit(0);
	before_shmem_exit(lease_wal_leave_flusher, (Datum) 0);

	for (;;)
	{
		MemoryContext memory = AllocSetContextCreate(TopMemoryContext,
													 "dlock launcher",
													 ALLOCSET_DEFAULT_SIZES);
		MemoryContext old = MemoryContextSwitchTo(memory);
		bool		again = lease_clock_is_past(last_us, LEASE_RETRY_INTERVAL);

		if (again)
			last_us = lease_clock_boot();
		if (!start_wanted(again && !complete))
			complete = false;
		else if (again)
			complete = true;
		MemoryContextSwitchTo(old);
		MemoryContextDelete(memory);

		lease_wal_flusher_wait(LEASE_RETRY_INTERVAL);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			lease_area_attach();	/* tells the lock delay */
		}
	}
}
