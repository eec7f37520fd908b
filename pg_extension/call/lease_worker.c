/*
 * lease_worker.c
 *	  Reap dead leases: a worker in each database that has the extension.
 *
 * Leases end at their deadlines whether or not anybody reaps; the workers
 * remove the rows, count them and tell the log that a holder died.  The
 * launcher starts them.
 *
 * A worker must not be in the way of DROP DATABASE and its like, which give
 * other sessions five seconds to leave.  It holds no locks while idle, and
 * twice a second it checks whether it could lock its database.  If another
 * session's lock prevents that, it leaves, and the launcher tries again later.
 * DROP DATABASE WITH (FORCE) waits for nobody: it terminates who is there, which
 * only a superuser may do to a worker.  So a drop asks the worker to leave first.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "call/lease_call.h"
#include "catalog/pg_database.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"

/* How often a worker checks whether it is in somebody's way, milliseconds. */
#define GIVE_WAY_INTERVAL	500

/* How often a worker checks whether the extension still exists. */
#define CHECK_INTERVAL		10000

/* How long DROP DATABASE waits for a worker to leave; others get as much. */
#define LEAVE_TIMEOUT		5000

/* Pages that are reaped in one transaction. */
#define REAP_BATCH			1000

int			lease_reap_interval = 1000;

/* The database whose worker this process is. */
static LeaseDatabase *worked_database = NULL;
static bool worker_wanted_again = true;

/*
 * Summaries say when rows can be removed, and so depend on the lock delay.  When
 * it has become shorter than at the beginning of the last round, the worker looks
 * at all of them once.
 */
static int64 worked_delay_us = 0;
static int64 round_delay_us = 0;

/*
 * Say whether a worker is connected to a database, also one that is still starting.
 * Such a worker is in no entry of lease_state.c yet, so look at the processes.
 */
static bool
is_connected(Oid database)
{
	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		PGPROC	   *proc = &ProcGlobal->allProcs[i];
		int			pid = proc->pid;
		const char *type;

		if (proc->databaseId != database || pid == 0)
			continue;
		type = GetBackgroundWorkerTypeByPid(pid);
		/* the second: a process that has ended may have left its pid here */
		if (type != NULL && strcmp(type, LEASE_WORKER_TYPE) == 0 &&
			BackendPidGetProc(pid) == proc)
			return true;
	}
	return false;
}

/*
 * Let a database's worker leave, and wait until it is gone, for some seconds at
 * most.  The caller has locked the database, so the worker finds itself in the
 * way, and no other comes.
 */
void
lease_worker_send_away(Oid database)
{
	int64		start_us = lease_clock_boot();

	while (is_connected(database) && !lease_clock_is_past(start_us, LEAVE_TIMEOUT))
	{
		lease_state_wake_worker(database);
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 10, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

static void
leave_worker(int code, Datum arg)
{
	lease_event_fail();
	lease_state_leave_worker(worked_database, worker_wanted_again);
}

/* Say whether another session wants this database for itself. */
static bool
is_in_the_way(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, MyDatabaseId, 0);
	if (LockAcquire(&tag, RowExclusiveLock, true, true) ==
		LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(&tag, RowExclusiveLock, true);
	return false;
}

/* Say whether this database has the extension; in a transaction. */
static bool
has_extension(void)
{
	return OidIsValid(get_extension_oid("dlock", true));
}

/*
 * Say whether a table, locked, is the lock table in its proper form.  If not,
 * tell the log once; the worker waits until an operator has mended that.
 */
static bool
is_usable(Oid table)
{
	static bool told = false;
	Relation	rel = OidIsValid(table) ? try_relation_open(table, NoLock) : NULL;
	bool		usable = rel != NULL && lease_relation_is_intact(rel);

	if (!usable && !told)
		ereport(LOG,
				(rel == NULL ?
				 errmsg("table \"dlock_private.lease_table\" does not exist") :
				 errmsg("table \"dlock_private.lease_table\" is not as the extension created it"),
				 errdetail("Expired leases are not removed.")));
	told = !usable;
	if (rel != NULL)
		relation_close(rel, NoLock);
	return usable;
}

/*
 * Check whether the extension still exists, and reap what is due, up to a batch
 * of pages.  Returns whether there is nothing left to do for now; if not,
 * "*next" is where to go on.  Where the table cannot be had, a round that has
 * begun is given up.
 */
static bool
work(BlockNumber *next, bool *exists)
{
	bool		done = true;
	bool		given_up = *next > 0;
	Oid			table;

	if (*next == 0)
		round_delay_us = lease_lock_delay_us();
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	*exists = has_extension();
	table = *exists ? lease_relation_find() : InvalidOid;

	/* Never queue behind a LOCK TABLE or a VACUUM FULL. */
	if (OidIsValid(table) &&
		ConditionalLockRelationOid(table, RowExclusiveLock))
	{
		if (is_usable(table))
		{
			Relation	rel = lease_relation_open(RowExclusiveLock);
			LeaseDatabase *db = lease_activate_at_once(rel);

			if (db != NULL)
			{
				done = lease_walk_reap(rel, db, next, REAP_BATCH,
									   round_delay_us < worked_delay_us);
				given_up = false;
				if (done)
					worked_delay_us = round_delay_us;
				/* the clock must go on while a lease is held */
				if (!done || lease_summary_due(&db->summaries) < PG_INT64_MAX)
					lease_clock_mark(rel, db, LEASE_MARK_AGE_US);
			}
			relation_close(rel, RowExclusiveLock);
		}
		UnlockRelationOid(table, RowExclusiveLock);
	}
	else if (*exists && !OidIsValid(table))
		(void) is_usable(InvalidOid);
	if (given_up)
		lease_summary_begin_rounds(&worked_database->summaries);
	CommitTransactionCommand();
	lease_event_send();
	pgstat_report_stat(true);
	return done;
}

/* Say whether a look into the shared memory finds a reason to work. */
static bool
is_work_due(void)
{
	LeaseDatabase *db = worked_database;
	int64		due_us = lease_summary_due(&db->summaries);

	if (db->file == InvalidRelFileNumber || lease_event_is_due() ||
		lease_lock_delay_us() < worked_delay_us)
		return true;
	if (due_us <= lease_clock_now(db))
		return true;
	return due_us < PG_INT64_MAX && lease_clock_now(db) -
		(int64) pg_atomic_read_u64(&db->clock_mark_us) > LEASE_MARK_AGE_US;
}

/* A worker's entry point; "arg" is its database. */
void
dlock_worker_main(Datum arg)
{
	int64		last_tick_us = 0;
	int64		last_check_us = 0;
	bool		exists;
	BlockNumber next;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(arg),
											  InvalidOid, 0);
	lease_launcher_use_own_settings();
	lease_area_attach();

	StartTransactionCommand();
	exists = has_extension();
	if (exists)
		worked_database = lease_state_database();
	CommitTransactionCommand();
	if (!exists)
		proc_exit(0);
	if (!lease_state_enter_worker(worked_database, MyLatch))
		proc_exit(0);
	before_shmem_exit(leave_worker, (Datum) 0);

	/*
	 * If a worker before us died at a damaged bucket, it has left the bucket's
	 * number: go on behind that, so that the rest of the table is reaped.
	 */
	lease_summary_begin_rounds(&worked_database->summaries);
	worked_delay_us = round_delay_us = lease_lock_delay_us();
	next = worked_database->reaped_block == 0 ? 0 :
		worked_database->reaped_block + 1;
	worked_database->reaped_block = 0;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			lease_area_attach();	/* tells the lock delay */
		}
		if (is_in_the_way())
			proc_exit(0);

		if (next > 0 || lease_clock_is_past(last_check_us, CHECK_INTERVAL) ||
			(lease_clock_is_past(last_tick_us, lease_reap_interval) && is_work_due()))
		{
			if (work(&next, &exists))
				next = 0;
			last_tick_us = last_check_us = lease_clock_boot();
			if (!exists)
			{
				worker_wanted_again = false;
				proc_exit(0);
			}
			if (next > 0)
				continue;
		}

		if (WaitLatch(MyLatch,
					  WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					  Min(GIVE_WAY_INTERVAL, lease_reap_interval),
					  PG_WAIT_EXTENSION) & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			last_check_us = 0;	/* somebody dropped the extension */
		}
	}
}
