/*
 * lease_hooks.c
 *	  Keep the lock table as it is, by hooks on objects and on statements.
 *
 * C code relies on the table's columns and on its access method, and on being
 * the only one that changes it.  So a transaction that may have changed the table
 * looks at it before it commits, and fails if the table is not what the extension
 * created.  The failure undoes the change.
 *
 * The table is in a schema that only its owner may use.  So only its owner and
 * superusers get as far as that, and as far as to lock it.
 *
 * The hook on objects also tells when the table, the extension or a database is
 * dropped.  The hook on statements ends the session's leases with DISCARD ALL.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "sql/lease_sql.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/inval.h"
#include "utils/relcache.h"

static object_access_hook_type previous_object_access = NULL;
static ProcessUtility_hook_type previous_utility = NULL;

/*
 * This transaction may have changed the lock table.  The hook on objects tells of
 * all that can be done to a table but of row security; that, like all the rest,
 * invalidates the table's entry in the relation cache.
 */
static bool objects_changed = false;
static bool relations_changed = false;
static Oid	table_before = InvalidOid;	/* found by the hook, before all changes */

/*
 * Raise an error if this transaction has changed the form or the name of the lock
 * table.
 *
 * Whatever changes a table's form, its rules, constraints, indexes and relatives
 * included, locks the table at least like this until the transaction ends.  So
 * what others have done to it, by writing to the catalogs, is no matter of this
 * transaction's.
 */
static void
check_form(Oid relid)
{
	Relation	rel = OidIsValid(relid) ? RelationIdGetRelation(relid) : NULL;
	bool		changed;

	if (rel == NULL)
		return;
	changed = CheckRelationLockedByMe(rel, ShareUpdateExclusiveLock, true) &&
		(relid != lease_relation_find() || !lease_relation_is_as_created(rel));
	RelationClose(rel);
	if (changed)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot make this change to table \"lease_table\""),
				 errhint("Its owner, tablespace, storage parameters, replica identity and triggers can be changed.")));
}

/*
 * Check the lock table before a transaction commits: the one that was there
 * before, and the one that is now, since the transaction may have renamed a
 * table or created the extension anew.
 */
static void
check_at_commit(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
	{
		/* the launcher of autovacuum has no database to look at */
		if (!OidIsValid(MyDatabaseId))
			return;
		/* see what the last statement has changed */
		CommandCounterIncrement();
		if (objects_changed)
			check_form(table_before);
		if (objects_changed || relations_changed)
			check_form(lease_relation_find());
	}
	else
		objects_changed = relations_changed = false;
}

static void
watch_relation_cache(Datum arg, Oid relid)
{
	relations_changed = true;
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
 * Note that this transaction changes objects, and tell the workers when the
 * table or a database is dropped.
 */
static void
watch_object_access(ObjectAccessType access, Oid classId, Oid objectId,
					int subId, void *arg)
{
	if (previous_object_access)
		previous_object_access(access, classId, objectId, subId, arg);
	if (access != OAT_POST_CREATE && access != OAT_POST_ALTER &&
		access != OAT_DROP)
		return;
	if (!objects_changed)
	{
		objects_changed = true;
		table_before = lease_relation_find();
	}
	if (access != OAT_DROP)
		return;
	if (classId == DatabaseRelationId)
	{
		/* the caller may drop it, and has it locked */
		lease_commit_forget(objectId);
		lease_worker_send_away(objectId);
	}
	if (classId == ExtensionRelationId &&
		objectId == get_extension_oid("dlock", true))
		lease_commit_look_around();
	if (classId == RelationRelationId && subId == 0 &&
		objectId == lease_relation_find())
	{
		check_guards();
		lease_commit_look_around();
	}
}

/* End the session's leases with DISCARD ALL, which nothing else tells of. */
static void
watch_utility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			  ProcessUtilityContext context, ParamListInfo params,
			  QueryEnvironment *queryEnv, DestReceiver *dest,
			  QueryCompletion *qc)
{
	bool		discard = IsA(pstmt->utilityStmt, DiscardStmt) &&
		((DiscardStmt *) pstmt->utilityStmt)->target == DISCARD_ALL;

	(previous_utility ? previous_utility : standard_ProcessUtility)
		(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	if (discard)
		lease_session_end(false);
}

/* Called once, when the library is loaded. */
void
lease_hooks_install(void)
{
	previous_object_access = object_access_hook;
	object_access_hook = watch_object_access;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = watch_utility;
	RegisterXactCallback(check_at_commit, NULL);
	RegisterXactCallback(lease_commit_tell, NULL);
	CacheRegisterRelcacheCallback(watch_relation_cache, (Datum) 0);
}
