/*
 * dlock.c
 *	  Load the library: settings, hooks, the launcher.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "fmgr.h"
#include "lease_crash.h"
#include "miscadmin.h"
#include "sql/lease_sql.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

/* In the order in which they lie in the shared memory. */
const LeaseAreaPart lease_area_parts[] = {
	{lease_state_size, lease_state_attach},
	{lease_clock_size, lease_clock_attach},
	{lease_bond_size, lease_bond_attach},
	{lease_queue_size, lease_queue_attach},
	{lease_event_size, lease_event_attach},
	{lease_wal_size, lease_wal_attach},
};
const int	lease_area_nparts = lengthof(lease_area_parts);

/*
 * None can be of the kind that is set at the server's start: the library may be
 * loaded later.  Those that size the shared memory, and boot_id, are read from the
 * server's files when it is made (lease_area.c).
 */
#define READ_ONCE	"Read when dlock is first used after a start of the server; a change later needs a restart."

static void
define_settings(void)
{
	DefineCustomIntVariable("dlock.reap_interval",
							"How often a worker removes dead leases.",
							"Leases end at their deadlines whatever this is.  "
							"More than 10 s counts as 10 s.",
							&lease_reap_interval, 1000, 10, 3600 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomBoolVariable("dlock.log_expired",
							 "Logs each lease whose holder let it expire.",
							 NULL,
							 &lease_log_expired, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("dlock.generic_wal",
							 "Logs all changes through GenericXLog.",
							 "Slower; a fallback that does not build WAL records by hand.",
							 &lease_wal_generic, false,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dlock.tracked_pages",
							"How many pages of a lock table can have summaries in memory.",
							"120 bytes each, taken as the table grows. Pages beyond are read whenever all are searched.",
							&lease_summary_pages, 1 << 20, 0, INT_MAX / 2,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dlock.max_databases",
							"How many databases can use dlock.",
							READ_ONCE,
							&lease_max_databases, 64, 1, 10000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dlock.lock_delay",
							"How long nobody else is granted a lease that expired or lost its session.",
							"For holders that may still be writing; not after a release.",
							&lease_lock_delay, 0, 0, 24 * 3600 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("dlock.max_ttl",
							"The longest time to live, and to wait, that a call may ask for.",
							"Leases that are held and calls that wait keep what they have.",
							&lease_max_ttl, LEASE_MAX_TTL_DEFAULT, 1,
							LEASE_MAX_TTL_LIMIT,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("dlock.max_waiters",
							"How many sessions can wait for leases at a time.",
							"-1 means as many as can be connected. " READ_ONCE,
							&lease_max_waiters, -1, -1, 1000000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dlock.max_guards",
							"How many leases transactions can guard at a time.",
							"The first of each transaction does not count. " READ_ONCE,
							&lease_max_guards, 1024, 1, 1000000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("dlock.notify",
							 "Sends a notification when a lease expired or was force-released.",
							 "On channel \"dlock\", with a JSON payload.",
							 &lease_notify, false,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("dlock.boot_id",
							   "What tells this boot of the machine from others.",
							   "Empty means the system's own. For tests, and for containers that hide it. "
							   READ_ONCE,
							   &lease_boot_id, "",
							   PGC_SIGHUP, GUC_NOT_IN_SAMPLE,
							   NULL, NULL, NULL);
	DLOCK_CRASH_SETTINGS();
	MarkGUCPrefixReserved("dlock");
}

/*
 * Called when the library is loaded: by the postmaster if it is preloaded, else by
 * the first statement of a session that uses it.
 */
void
_PG_init(void)
{
	static bool defined = false;
	static bool refused = false;

	/* the server would refuse what its own files say, too */
	if (IsInParallelMode())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("dlock cannot be loaded during a parallel operation"),
				 errhint("Call it once in the session before.")));

	/*
	 * What a role's or a client's settings ask for is refused, with a warning, unless
	 * they may.  It hides what the server's files and command line say, and what all
	 * share must not follow the role.
	 */
	if (!defined)
	{
		int			asked = compat_count_client_settings("dlock.");

		define_settings();
		defined = true;
		refused = compat_count_client_settings("dlock.") < asked;
	}
	if (refused)
		ereport(ERROR,
				(errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM),
				 errmsg("this role or client cannot make the settings of dlock that it made"),
				 errhint("Take them out of the connection's options, and of ALTER ROLE and ALTER DATABASE, and connect again.")));
	lease_hooks_install();
	if (process_shared_preload_libraries_in_progress && !IsBinaryUpgrade)
		lease_launcher_register();
}
