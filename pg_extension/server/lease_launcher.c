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

/* The launcher, which comes back by itself after a crash. */
static const BackgroundWorker the_launcher = {
	.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
	.bgw_start_time = BgWorkerStart_RecoveryFinished,
	.bgw_restart_time = LEASE_RETRY_INTERVAL / 1000,
	.bgw_name = "dlock launcher",
	.bgw_type = "dlock launcher",
	.bgw_library_name = "dlock",
	.bgw_function_name = "dlock_launcher_main",
};

/* Register the launcher; called while the library is preloaded. */
void
lease_launcher_register(void)
{
	BackgroundWorker worker = the_launcher;

	RegisterBackgroundWorker(&worker);
}

/*
 * Note whether workers lack a place, and tell the log that they do; once, until
 * there was one.  The log would handle interrupts, of a waiter that may have been
 * granted its lease.
 */
static void
note_no_place(bool no_place)
{
	if (!lease_state_note_no_place(no_place))
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
 * library.  If that fails, a later call tries again.  Cannot raise an error.
 */
void
lease_launcher_ensure(void)
{
	if (lease_state_lacks_launcher() && IsUnderPostmaster && !IsBinaryUpgrade)
	{
		BackgroundWorker worker = the_launcher;

		if (RegisterDynamicBackgroundWorker(&worker, NULL))
			lease_state_has_launcher();
		else
			note_no_place(true);
	}
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

/* Start a worker in a database; false when there is no place for it. */
static bool
start_worker(Oid database, BackgroundWorkerHandle **handle)
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

	snprintf(worker.bgw_name, BGW_MAXLEN, "dlock worker for database %u",
			 database);
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

/* Wait until a worker has settled in its database or is gone. */
static void
wait_for_worker(Oid database, BackgroundWorkerHandle *handle)
{
	int64		start_us = lease_clock_boot();
	pid_t		pid;

	while (!lease_clock_is_past(start_us, LEASE_RETRY_INTERVAL))
	{
		CHECK_FOR_INTERRUPTS();
		if (lease_state_worker_pid(database) != 0 ||
			GetBackgroundWorkerPid(handle, &pid) == BGWH_STOPPED)
			return;
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 100, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}

/* All databases, and those that allow connections, as OIDs. */
static void
list_databases(List **all, List **connectable)
{
	MemoryContext memory = CurrentMemoryContext;
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

		*all = lappend_oid(*all, form->oid);
		if (form->datallowconn && form->datconnlimit != DATCONNLIMIT_INVALID_DB)
			*connectable = lappend_oid(*connectable, form->oid);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
}

/* A worker that the launcher has started; in TopMemoryContext. */
typedef struct StartedWorker
{
	Oid			database;
	BackgroundWorkerHandle *handle;
} StartedWorker;

static List *started_workers = NIL;

/* Say whether a worker is in a database or on its way there. */
static bool
has_worker(Oid database)
{
	ListCell   *cell;

	if (lease_state_worker_pid(database) != 0)
		return true;
	foreach(cell, started_workers)
	{
		StartedWorker *started = lfirst(cell);
		pid_t		pid;

		if (started->database == database &&
			GetBackgroundWorkerPid(started->handle, &pid) != BGWH_STOPPED)
			return true;
	}
	return false;
}

/* Forget the workers that have ended. */
static void
forget_ended_workers(void)
{
	ListCell   *cell;

	foreach(cell, started_workers)
	{
		StartedWorker *started = lfirst(cell);
		pid_t		pid;

		if (GetBackgroundWorkerPid(started->handle, &pid) != BGWH_STOPPED)
			continue;
		started_workers = foreach_delete_current(started_workers, cell);
		pfree(started->handle);
		pfree(started);
	}
}

/*
 * Start workers where they are wanted, one after another, so that a look into
 * many databases takes one place among the background workers.  "everywhere":
 * look into all databases.  "again": also restart workers that died, which must
 * not be right after they did.  Returns whether there were places for all.
 */
static bool
start_wanted(bool everywhere, bool again)
{
	bool		complete = true;
	List	   *wanted = lease_state_wanted_workers(again);
	List	   *known;
	List	   *all = NIL;
	List	   *connectable = NIL;
	ListCell   *cell;

	forget_ended_workers();
	if (wanted == NIL && !everywhere)
		return true;

	/*
	 * In this order: a database that is known now and does not exist then is
	 * gone.
	 */
	known = lease_state_databases();
	list_databases(&all, &connectable);
	foreach(cell, list_difference_oid(known, all))
		lease_state_forget(lfirst_oid(cell));

	foreach(cell, connectable)
	{
		Oid			database = lfirst_oid(cell);
		StartedWorker *started;
		MemoryContext old;

		if ((!everywhere && !list_member_oid(wanted, database)) ||
			has_worker(database))
			continue;

		old = MemoryContextSwitchTo(TopMemoryContext);
		started = palloc(sizeof(StartedWorker));
		started->database = database;
		complete = start_worker(database, &started->handle);
		if (complete)
			started_workers = lappend(started_workers, started);
		else
			pfree(started);
		MemoryContextSwitchTo(old);
		if (!complete)
			break;
		wait_for_worker(database, started->handle);
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
	if (!lease_state_enter_launcher(MyLatch))
		proc_exit(0);
	before_shmem_exit(lease_state_leave_launcher, (Datum) 0);

	for (;;)
	{
		MemoryContext memory = AllocSetContextCreate(TopMemoryContext,
													 "dlock launcher",
													 ALLOCSET_DEFAULT_SIZES);
		MemoryContext old = MemoryContextSwitchTo(memory);
		bool		again = lease_clock_is_past(last_us, LEASE_RETRY_INTERVAL);

		if (again)
			last_us = lease_clock_boot();
		if (!start_wanted(again && !complete, again))
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
