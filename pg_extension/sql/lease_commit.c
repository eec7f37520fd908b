/*
 * lease_commit.c
 *	  What follows when a transaction has made or dropped the table.
 *
 * CREATE EXTENSION wants a worker; DROP EXTENSION and DROP DATABASE leave an
 * entry in shared memory, holds to be given back and sessions that wait.  The
 * hooks and the access method note what there is to do.  It is done once the
 * transaction has committed, and not at all if it is rolled back.
 *
 * The end of a transaction may not fail: what is called there takes short locks
 * of shared memory, one after another, to which the backend has attached before.  A
 * crash in between does no harm: the shared memory is lost with it.
 *
 * COMMIT PREPARED tells us nothing: the sessions that wait would go on waiting for
 * what is gone.  So PREPARE TRANSACTION refuses a DROP.  After a CREATE it may: the
 * first call asks for the worker.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "commands/extension.h"
#include "miscadmin.h"
#include "sql/lease_sql.h"

/* What the end of this transaction is to tell the workers. */
static bool want_at_commit = false;
static bool look_at_commit = false;
static bool extension_dropped = false;
static Oid	dropped_database = InvalidOid;

/* The callback for the ends of transactions, registered by lease_hooks.c. */
void
lease_commit_tell(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_PREPARE && look_at_commit)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has dropped the lock table")));
	/* a DROP may have been rolled back to a savepoint, or followed by CREATE */
	if (event == XACT_EVENT_PRE_COMMIT && look_at_commit)
		extension_dropped = !OidIsValid(get_extension_oid("dlock", true));
	if (event == XACT_EVENT_COMMIT && lease_area_start != NULL)
	{
		if (extension_dropped)
			lease_state_drop();
		if (want_at_commit)
			lease_launcher_want_worker();
		if (look_at_commit)
		{
			lease_state_wake_worker(MyDatabaseId);
			lease_queue_poke_database(MyDatabaseId);
		}
		if (OidIsValid(dropped_database))
			lease_state_forget(dropped_database);
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE)
	{
		want_at_commit = look_at_commit = extension_dropped = false;
		dropped_database = InvalidOid;
	}
}

/* Ask for a worker in this database once this transaction has committed. */
void
lease_commit_want_worker(void)
{
	want_at_commit = true;
}

/* Let this database's worker look around once this transaction has committed. */
void
lease_commit_look_around(void)
{
	(void) lease_area_attach_if_made();
	look_at_commit = true;
}

/*
 * Forget a database once its DROP has committed: another may be created with
 * the same OID.  DROP DATABASE has a transaction of its own.
 */
void
lease_commit_forget(Oid database)
{
	(void) lease_area_attach_if_made();
	dropped_database = database;
}
