/*
 * lease_hooks.c
 *	  Keep the lock table as it is, by hooks on statements and on objects.
 *
 * C code relies on the table's columns and on its access method.  So statements
 * that would change the table are refused.  The same hooks tell when the
 * table, the extension or a database is dropped, and end the session's leases
 * with DISCARD ALL.
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
#include "lease_commit.h"
#include "lease_hooks.h"
#include "lease_queue.h"
#include "lease_session.h"
#include "lease_worker.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/syscache.h"

static object_access_hook_type previous_object_access = NULL;
static ProcessUtility_hook_type previous_utility = NULL;

/*
 * Say whether a relation is dlock_private.lease_table, whatever it is called now.  There
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
	{
		/* the caller may drop it, and has it locked */
		lease_commit_forget(objectId);
		lease_worker_send_away(objectId);
	}
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

	check_statement(pstmt->utilityStmt);
	(previous_utility ? previous_utility : standard_ProcessUtility)
		(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	if (discard)
		lease_session_discard();
}

/* Called once, while the library is preloaded. */
void
lease_hooks_install(void)
{
	previous_object_access = object_access_hook;
	object_access_hook = watch_object_access;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = watch_utility;
}
