/*
 * lease_snapshot.c
 *	  Wait without the snapshot of the statement.
 *
 * A statement has a snapshot while it runs.  One that waits for hours would
 * keep VACUUM from removing all that died since, in the whole database, and
 * CREATE INDEX CONCURRENTLY from ending.  A call that is all that its statement
 * does reads nothing by that snapshot.  So it gives the snapshot up before it
 * first sleeps, and takes a new one when it returns.  At READ COMMITTED, a
 * transaction has no snapshot between two of its statements either.
 *
 * The snapshot of a PORTAL_ONE_SELECT is in three places, and all three are
 * emptied: on the stack of active snapshots (PortalRunSelect() pushes it and
 * pops it afterwards), in the QueryDesc, and in the executor's state; the last
 * two are references of the portal's resource owner.  Nobody else reads by it:
 *
 * - the plan has no node that scans a table, and no subplan;
 * - the arguments were computed before, and are copies;
 * - it is the only active one, so there is no function, no DO, no EXECUTE and
 *   no EXPLAIN around the call: each has one of its own below.  (COPY and
 *   CREATE TABLE AS are no PORTAL_ONE_SELECT.)
 *
 * MyProc->xmin is never written here.  The core computes it from the snapshots
 * that are left, so whatever else has one keeps its rows, such as another
 * portal of the connection that was bound before, or one that somebody else
 * has registered.
 *
 * Nothing is given up
 *
 * - in a transaction block or a subtransaction, nor in an implicit block or
 *   behind another call of a pipeline;
 * - at REPEATABLE READ and SERIALIZABLE, where the snapshot is the
 *   transaction's (also an imported or deferrable one);
 * - for a cursor WITH HOLD, which runs while its transaction commits.
 *
 * While it is given up, only code of this extension runs.  That needs no active
 * snapshot: it reads pages under their locks, and catalogs by the caches, whose
 * snapshot is the core's own and is dropped before the next sleep.  An error
 * leaves the three places empty.  It ends the transaction, since there is no
 * subtransaction; a portal that has failed is not shut down, only its resource
 * owner is released, which has no reference to it any more.  The same goes for
 * the end of the process, and for an error while the new one is being taken.
 *
 * Not every wake takes a new one: CREATE INDEX CONCURRENTLY waits to the end
 * for each transaction that it once sees with an old snapshot.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/execdesc.h"
#include "nodes/execnodes.h"
#include "nodes/plannodes.h"
#include "tcop/pquery.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "wait/lease_wait.h"

/* No subtransaction: where the call begins, and the snapshot was pushed. */
#define TOP_LEVEL	1

static Portal portal = NULL;	/* whose snapshot may be given up; NULL: none's */
static bool given_up = false;

/* Say whether a node makes one row out of nothing. */
static bool
is_bare_result(const Plan *plan)
{
	return IsA(plan, Result) && outerPlan(plan) == NULL &&
		((const Result *) plan)->resconstantqual == NULL;
}

/*
 * Say whether a target list is just the call, or that cast to text, as clients do
 * that have to read an answer in spite of their driver's settings.
 */
static bool
is_call(List *targets, const Node *call)
{
	const Node *target;

	if (list_length(targets) != 1)
		return false;
	target = (const Node *) linitial_node(TargetEntry, targets)->expr;
	if (IsA(target, CoerceViaIO))
		target = (const Node *) ((const CoerceViaIO *) target)->arg;
	return target == call;
}

/* Say whether a target list is just columns. */
static bool
are_columns(List *targets)
{
	ListCell   *cell;

	foreach(cell, targets)
		if (!IsA(lfirst_node(TargetEntry, cell)->expr, Var))
			return false;
	return true;
}

/* Say whether a statement does nothing but call a function, once. */
static bool
is_only_call(const PlannedStmt *statement, const Node *call)
{
	Plan	   *plan = statement->planTree;
	List	   *functions;

	if (call == NULL || statement->subplans != NIL || plan->qual != NIL)
		return false;
	switch (nodeTag(plan))
	{
		case T_Result:			/* SELECT dlock_acquire(...) */
			return is_bare_result(plan) && is_call(plan->targetlist, call);
		case T_ProjectSet:		/* SELECT dlock_acquire_any(...) */
			return is_bare_result(outerPlan(plan)) &&
				is_call(plan->targetlist, call);
		case T_FunctionScan:	/* SELECT ... FROM dlock_acquire_any(...) */
			functions = ((FunctionScan *) plan)->functions;
			return list_length(functions) == 1 &&
				linitial_node(RangeTblFunction, functions)->funcexpr == call &&
				are_columns(plan->targetlist);
		default:
			return false;
	}
}

/*
 * A call begins: forget one that has ended in an error, and find out whether
 * this one, if it may wait, may give up its statement's snapshot.
 */
void
lease_snapshot_begin(FunctionCallInfo fcinfo, bool may_wait)
{
	QueryDesc  *query;

	portal = NULL;
	given_up = false;
	if (!may_wait)
		return;
	if (ActivePortal == NULL || ActivePortal->strategy != PORTAL_ONE_SELECT ||
		(ActivePortal->cursorOptions & CURSOR_OPT_HOLD) != 0 ||
		IsInTransactionBlock(true) || IsolationUsesXactSnapshot())
		return;
	query = ActivePortal->queryDesc;
	if (query == NULL || query->estate == NULL ||
		!is_only_call(query->plannedstmt, fcinfo->flinfo->fn_expr))
		return;
	if (query->crosscheck_snapshot != InvalidSnapshot ||
		query->estate->es_snapshot != query->snapshot ||
		!ActiveSnapshotSet() || GetActiveSnapshot() != query->snapshot)
		return;
	portal = ActivePortal;
}

/*
 * Give up the statement's snapshot, if that may be done and was not yet, and the
 * one that the caches have left.
 */
void
lease_snapshot_give_up(void)
{
	QueryDesc  *query;

	if (portal == NULL)
		return;
	Assert(portal == ActivePortal);
	if (!given_up)
	{
		query = portal->queryDesc;
		PopActiveSnapshot();
		if (ActiveSnapshotSet())
		{
			/* there is a function around us, or the like, which keeps its own */
			PushActiveSnapshotWithLevel(query->snapshot, TOP_LEVEL);
			portal = NULL;
			return;
		}
		UnregisterSnapshotFromOwner(query->estate->es_snapshot,
									portal->resowner);
		query->estate->es_snapshot = InvalidSnapshot;
		UnregisterSnapshotFromOwner(query->snapshot, portal->resowner);
		query->snapshot = InvalidSnapshot;
		given_up = true;
	}
	InvalidateCatalogSnapshotConditionally();
}

/*
 * Take a new snapshot, if the statement's was given up.  A call that returns has
 * done this.  May fail for want of memory.
 */
void
lease_snapshot_take_back(void)
{
	QueryDesc  *query;

	if (!given_up)
		return;
	Assert(portal == ActivePortal && !ActiveSnapshotSet());
	query = portal->queryDesc;
	query->snapshot = RegisterSnapshotOnOwner(GetTransactionSnapshot(),
											  portal->resowner);
	query->estate->es_snapshot = RegisterSnapshotOnOwner(query->snapshot,
														 portal->resowner);
	PushActiveSnapshotWithLevel(query->snapshot, TOP_LEVEL);
	given_up = false;
}
