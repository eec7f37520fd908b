/*
 * dlock.c
 *	  Load the library: settings, shared memory, hooks, the launcher.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_inherits.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "lease_bond.h"
#include "lease_clock.h"
#include "lease_commit.h"
#include "lease_crash.h"
#include "lease_event.h"
#include "lease_queue.h"
#include "lease_rows.h"
#include "lease_session.h"
#include "lease_sql.h"
#include "lease_state.h"
#include "lease_summary.h"
#include "lease_unclaimed.h"
#include "lease_wal.h"
#include "lease_worker.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

static shmem_request_hook_type previous_shmem_request = NULL;
static shmem_startup_hook_type previous_shmem_startup = NULL;
static object_access_hook_type previous_object_access = NULL;
static ProcessUtility_hook_type previous_utility = NULL;

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
							"How many pages of lock tables can have summaries in memory.",
							"120 bytes each, taken as the tables grow; -1 means as many as shared_buffers has. Pages beyond are read whenever all are searched.",
							&lease_summary_pages, -1, -1, INT_MAX / 2,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dlock.max_databases",
							"How many databases can use dlock.",
							NULL,
							&lease_max_databases, 64, 1, 10000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dlock.lock_delay",
							"How long nobody else is granted a lease that expired or lost its session.",
							"For holders that may still be writing; not after a release.",
							&lease_lock_delay, 0, 0, 24 * 3600 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL,
							lease_state_assign_lock_delay, NULL);
	DefineCustomIntVariable("dlock.max_ttl",
							"The longest time to live, and to wait, that a call may ask for.",
							"Leases that are held and calls that wait keep what they have.",
							&lease_max_ttl, LEASE_MAX_TTL_DEFAULT, 1,
							LEASE_MAX_TTL_LIMIT,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("dlock.max_waiters",
							"How many sessions can wait for leases at a time.",
							"-1 means as many as can be connected.",
							&lease_max_waiters, -1, -1, 1000000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dlock.max_guards",
							"How many leases transactions can guard at a time.",
							"The first of each transaction does not count.",
							&lease_max_guards, 1024, 1, 1000000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("dlock.notify",
							 "Sends a notification when a lease expired or was force-released.",
							 "On channel \"dlock\", with a JSON payload.",
							 &lease_notify, false,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("dlock.boot_id",
							   "What tells this boot of the machine from others.",
							   "Empty means the system's own. For tests, and for containers that hide it.",
							   &lease_boot_id, "",
							   PGC_POSTMASTER, GUC_NOT_IN_SAMPLE,
							   NULL, NULL, NULL);
	DLOCK_CRASH_SETTINGS();
	MarkGUCPrefixReserved("dlock");
}

/* Ask for shared memory and locks. */
static void
request_shmem(void)
{
	if (previous_shmem_request)
		previous_shmem_request();
	RequestAddinShmemSpace(lease_state_shmem_size());
	RequestAddinShmemSpace(lease_clock_shmem_size());
	RequestAddinShmemSpace(lease_summary_shmem_size());
	RequestAddinShmemSpace(lease_bond_shmem_size());
	RequestAddinShmemSpace(lease_queue_shmem_size());
	RequestAddinShmemSpace(lease_event_shmem_size());
	RequestAddinShmemSpace(lease_wal_shmem_size());
	RequestAddinShmemSpace(lease_unclaimed_shmem_size());

	/*
	 * summaries, databases, the activation lock of each database, events,
	 * unclaimed holds
	 */
	RequestNamedLWLockTranche("dlock", 4 + lease_max_databases);
	RequestNamedLWLockTranche("DlockLease", lease_queue_lwlocks());
}

static void
start_shmem(void)
{
	if (previous_shmem_startup)
		previous_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	lease_state_shmem_init();
	lease_clock_shmem_init();
	lease_summary_shmem_init();
	lease_bond_shmem_init();
	lease_queue_shmem_init();
	lease_event_shmem_init(&GetNamedLWLockTranche("dlock")[2 + lease_max_databases].lock);
	lease_wal_shmem_init();
	lease_unclaimed_shmem_init(&GetNamedLWLockTranche("dlock")[3 + lease_max_databases].lock);
	LWLockRelease(AddinShmemInitLock);
}

/*
 * Say whether a relation is dlock.lease_table, whatever it is called now.  There
 * is no other table of this access method but the copy that VACUUM FULL makes.  A
 * partitioned table, which any role may create, only names it for its partitions.
 */
static bool
is_lock_table(Oid relid)
{
	Oid			access_method = get_am_oid("dlock", true);
	HeapTuple	tuple = OidIsValid(access_method) ?
		SearchSysCache1(RELOID, ObjectIdGetDatum(relid)) : NULL;
	Form_pg_class form;
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_class) GETSTRUCT(tuple);
	result = form->relam == access_method &&
		form->relkind == RELKIND_RELATION;
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Say whether a subcommand of ALTER TABLE is harmless to the lock table.  Those
 * of columns are not listed here, see watch_object_access().
 */
static bool
is_harmless(AlterTableType subtype)
{
	switch (subtype)
	{
		case AT_ChangeOwner:
		case AT_SetTableSpace:
		case AT_SetRelOptions:
		case AT_ResetRelOptions:
		case AT_ReplaceRelOptions:
		case AT_ReplicaIdentity:
		case AT_EnableTrig:
		case AT_EnableAlwaysTrig:
		case AT_EnableReplicaTrig:
		case AT_EnableTrigAll:
		case AT_EnableTrigUser:
		case AT_DisableTrig:
		case AT_DisableTrigAll:
		case AT_DisableTrigUser:

			/* what undoes changes that 1.0.0 let pass */
		case AT_DropConstraint:
		case AT_DropInherit:
		case AT_DropOf:
		case AT_DisableRowSecurity:
		case AT_NoForceRowSecurity:
			return true;
		default:
			return false;
	}
}

/*
 * Refuse statements that would change what the lock table is, before they leave
 * anything behind.
 */
static void
check_statement(Node *statement)
{
	RangeVar   *relation = NULL;
	bool		harmless = false;
	ListCell   *cell;

	if (IsA(statement, IndexStmt))
		relation = ((IndexStmt *) statement)->relation;
	else if (IsA(statement, RuleStmt))
		relation = ((RuleStmt *) statement)->relation;
	else if (IsA(statement, AlterTableStmt))
	{
		relation = ((AlterTableStmt *) statement)->relation;
		harmless = true;
		foreach(cell, ((AlterTableStmt *) statement)->cmds)
			harmless &= is_harmless(((AlterTableCmd *) lfirst(cell))->subtype);
	}
	if (relation == NULL || harmless || creating_extension || IsBinaryUpgrade ||
		!is_lock_table(RangeVarGetRelid(relation, NoLock, true)))
		return;
	if (IsA(statement, IndexStmt))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot create an index on table \"lease_table\""),
				 errhint("Use the dlock functions.")));
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot make this change to table \"lease_table\""),
			 errhint("Its owner, tablespace, storage parameters, replica identity and triggers can be changed.")));
}

/*
 * Say whether a table that is about to be created comes before this schema in the search
 * path.
 */
static bool
comes_before(RangeVar *created, Oid schema)
{
	Oid			creation = RangeVarGetCreationNamespace(created);
	ListCell   *cell;

	foreach(cell, fetch_search_path(true))
	{
		if (lfirst_oid(cell) == creation)
			return true;
		if (lfirst_oid(cell) == schema)
			return false;
	}
	return false;
}

/* A relation that a statement names and locks. */
typedef struct LockedName
{
	RangeVar   *relation;
	RangeVar   *created;		/* the table that the statement creates, if the name
								 * may mean that; or NULL */
} LockedName;

static List *
add_name(List *names, RangeVar *relation, RangeVar *created)
{
	LockedName *name;

	if (relation == NULL)
		return names;
	name = palloc(sizeof(LockedName));
	name->relation = relation;
	name->created = created;
	return lappend(names, name);
}

/* Add what foreign keys refer to: constraints, or columns that have some. */
static List *
add_referred(List *names, const List *elements, RangeVar *created)
{
	ListCell   *cell;

	foreach(cell, elements)
	{
		Node	   *element = lfirst(cell);

		if (IsA(element, ColumnDef))
			names = add_referred(names, ((ColumnDef *) element)->constraints,
								 created);
		else if (IsA(element, Constraint))
			names = add_name(names, ((Constraint *) element)->pktable, created);
	}
	return names;
}

/*
 * The relations that a statement names and locks before PostgreSQL asks whether its role
 * may do that.
 */
static List *
locked_names(Node *statement)
{
	List	   *names = NIL;
	ListCell   *cell;

	if (IsA(statement, CreateTrigStmt))
		names = add_name(names, ((CreateTrigStmt *) statement)->relation, NULL);
	else if (IsA(statement, RuleStmt))
		names = add_name(names, ((RuleStmt *) statement)->relation, NULL);
	else if (IsA(statement, AlterObjectDependsStmt))
		names = add_name(names, ((AlterObjectDependsStmt *) statement)->relation,
						 NULL);
	else if (IsA(statement, CreateStmt) || IsA(statement, CreateForeignTableStmt))
	{
		/* CreateForeignTableStmt begins with a CreateStmt */
		CreateStmt *create = (CreateStmt *) statement;

		foreach(cell, create->inhRelations)
			names = add_name(names, lfirst_node(RangeVar, cell), NULL);
		names = add_referred(names, create->tableElts, create->relation);
		names = add_referred(names, create->constraints, create->relation);
	}
	else if (IsA(statement, AlterTableStmt))
		foreach(cell, ((AlterTableStmt *) statement)->cmds)
		{
			Node	   *definition = lfirst_node(AlterTableCmd, cell)->def;

			if (definition == NULL)
				continue;
			if (IsA(definition, PartitionCmd))
				names = add_name(names, ((PartitionCmd *) definition)->name, NULL);
			else
				names = add_referred(names, list_make1(definition), NULL);
		}
	return names;
}

/*
 * Refuse a statement that would lock the lock table, or another relation of ours,
 * so that calls wait for it, if its role may not do that.  PostgreSQL asks for the
 * privilege only when it has the lock.  So any role could stop all calls of the
 * database, by waiting for that lock behind a transaction of its own that has read the
 * table.
 *
 * PostgreSQL looks the name up again, also after it has waited for a lock.  Another
 * relation that stood before ours in the search path may be gone by then.  So the
 * schema that was found is written into the name, unless the name may mean the table
 * that the statement creates.
 */
static void
check_may_lock(const LockedName *name)
{
	RangeVar   *relation = name->relation;
	Oid			access_method = get_am_oid("dlock", true);
	Oid			relid = OidIsValid(access_method) ?
		RangeVarGetRelid(relation, NoLock, true) : InvalidOid;

	if (!OidIsValid(relid))
		return;
	if ((is_lock_table(relid) ||
		 get_rel_namespace(relid) == get_namespace_oid("dlock", true)) &&
		pg_class_aclcheck(relid, GetUserId(), ACL_TRIGGER) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV,
					   get_relkind_objtype(get_rel_relkind(relid)),
					   relation->relname);
	if (relation->schemaname == NULL &&
		!(name->created != NULL &&
		  strcmp(relation->relname, name->created->relname) == 0 &&
		  comes_before(name->created, get_rel_namespace(relid))))
		relation->schemaname = get_namespace_name(get_rel_namespace(relid));
}

/*
 * The same for all names of a statement.  Returns the statement, or a copy if it has
 * names and is read-only.
 */
static PlannedStmt *
check_locks(PlannedStmt *pstmt, bool *read_only)
{
	List	   *names = locked_names(pstmt->utilityStmt);
	ListCell   *cell;

	if (names != NIL && *read_only)
	{
		pstmt = copyObject(pstmt);
		*read_only = false;
		names = locked_names(pstmt->utilityStmt);
	}
	foreach(cell, names)
		check_may_lock(lfirst(cell));
	return pstmt;
}

/* Refuse a place in an inheritance tree, as parent or as child. */
static void
check_inheritance(Oid child, Oid parent)
{
	if (is_lock_table(child) || is_lock_table(parent))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"lease_table\" can neither inherit nor be inherited from")));
}

/*
 * The lock table is dropped, and locked against all calls.  A transaction that guards a
 * lease in it relies on the guard until it has ended, and another table would know
 * nothing of the guard.
 */
static void
check_guards(void)
{
	int			pid = lease_queue_other_guard(MyDatabaseId);

	if (pid != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot drop table \"lease_table\" while a transaction guards a lease"),
				 errdetail("Process %d does.", pid),
				 errhint("Try again when its transaction has ended, or end it with pg_terminate_backend().")));
}

/*
 * Keep the columns of the lock table as they are, since C code relies on them,
 * and tell the workers when the table or a database is dropped.
 */
static void
watch_object_access(ObjectAccessType access, Oid classId, Oid objectId,
					int subId, void *arg)
{
	if (previous_object_access)
		previous_object_access(access, classId, objectId, subId, arg);
	if (classId == DatabaseRelationId && access == OAT_DROP)
		lease_commit_forget(objectId);
	if (classId == ExtensionRelationId && access == OAT_DROP &&
		objectId == get_extension_oid("dlock", true))
		lease_commit_look_around();
	if (classId == InheritsRelationId && access == OAT_POST_ALTER)
		check_inheritance(objectId,
						  ((ObjectAccessPostAlter *) arg)->auxiliary_id);
	if (classId != RelationRelationId || creating_extension ||
		(access != OAT_POST_CREATE && access != OAT_POST_ALTER &&
		 access != OAT_DROP) ||
		!is_lock_table(objectId))
		return;
	if (subId != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change the columns of table \"lease_table\"")));
	if (access == OAT_DROP)
	{
		/* VACUUM FULL drops the old file as a table of its own */
		if ((((ObjectAccessDrop *) arg)->dropflags & PERFORM_DELETION_INTERNAL) == 0)
			check_guards();
		lease_commit_look_around();
	}
}

/* Keep the lock table as it is; end the session's leases with DISCARD ALL. */
static void
watch_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			  ProcessUtilityContext context, ParamListInfo params,
			  QueryEnvironment *queryEnv, DestReceiver *dest,
			  QueryCompletion *qc)
{
	bool		discard = IsA(pstmt->utilityStmt, DiscardStmt) &&
		((DiscardStmt *) pstmt->utilityStmt)->target == DISCARD_ALL;

	pstmt = check_locks(pstmt, &readOnlyTree);
	check_statement(pstmt->utilityStmt);
	(previous_utility ? previous_utility : standard_ProcessUtility)
		(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	if (discard)
		lease_session_discard();
}

/* Called when the library is loaded, by the postmaster or by a backend. */
void
_PG_init(void)
{
	/*
	 * A backend may load the library without shared memory, for pg_upgrade's
	 * check or the validation of a function.  The functions then say that the
	 * preload is missing (lease_relation_open).
	 */
	if (!process_shared_preload_libraries_in_progress)
		return;

	define_settings();
	previous_shmem_request = shmem_request_hook;
	shmem_request_hook = request_shmem;
	previous_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = start_shmem;
	previous_object_access = object_access_hook;
	object_access_hook = watch_object_access;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = watch_utility;
	if (!IsBinaryUpgrade)
		lease_worker_register_launcher();
}
