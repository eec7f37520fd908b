/*
 * lease_relation.c
 *	  Find and open dlock_private.lease_table.
 *
 * Every function that reads or changes leases opens the table here.  This makes
 * sure that it is the extension's (lease_am.c knows its form) and that what is
 * written to it will last.
 *
 * This asks catalogs and locks the table, so the caller must have locked no
 * page.  A backend remembers the table's OID until it is told that this may
 * have changed.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "commands/extension.h"
#include "lease_am.h"
#include "lease_area.h"
#include "lease_order.h"
#include "lease_relation.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

/* What is remembered of the lock table, until a relcache invalidation. */
static Oid	table_oid = InvalidOid;
static bool table_is_intact = false;	/* this was checked */

static void
forget_table(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == table_oid)
		table_oid = InvalidOid;
}

/* The table with the lock table's name, or InvalidOid; it may be another. */
Oid
lease_relation_find(void)
{
	Oid			namespace = get_namespace_oid("dlock_private", true);

	return OidIsValid(namespace) ?
		get_relname_relid("lease_table", namespace) : InvalidOid;
}

/* Lock and open what may be the lock table; NULL: it was dropped. */
static Relation
try_open(Oid oid, LOCKMODE mode)
{
	Relation	rel;

	LockRelationOid(oid, mode);

	/*
	 * Taking the lock brings all invalidations that were sent before.  If none
	 * is of this table, it still exists, and we need not ask the catalog.
	 */
	if (oid == table_oid)
		return relation_open(oid, NoLock);
	rel = try_relation_open(oid, NoLock);
	if (rel == NULL)
		UnlockRelationOid(oid, mode);
	return rel;
}

/*
 * Open the lock table and check that it is what the extension created.
 *
 * With a foreign access method or changed columns, we would write over pages
 * that are not ours.  A table that this transaction has moved would lose our
 * writes if the transaction rolls back.
 */
Relation
lease_relation_open(LOCKMODE mode)
{
	static bool callback_registered = false;
	Relation	rel = NULL;

	Assert(lease_may_wait());
	lease_area_attach();
	if (!callback_registered)
	{
		CacheRegisterRelcacheCallback(forget_table, (Datum) 0);
		callback_registered = true;
	}

	/* A remembered OID may turn out to be of a table that was dropped. */
	for (int attempt = 0; rel == NULL; attempt++)
	{
		if (!OidIsValid(table_oid))
		{
			table_oid = lease_relation_find();
			table_is_intact = false;
		}
		if (OidIsValid(table_oid))
			rel = try_open(table_oid, mode);
		if (rel == NULL)
			table_oid = InvalidOid;
		if (rel == NULL && attempt > 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("table \"dlock_private.lease_table\" does not exist"),
					 OidIsValid(get_extension_oid("dlock", true)) ?
					 errhint("If its schema was renamed, undo that; else drop the extension and create it again.") :
					 errhint("Create the extension: CREATE EXTENSION dlock.")));
	}

	/* if we hear of a change, we begin anew the next time, and check again */
	if (!table_is_intact || !OidIsValid(table_oid))
		lease_am_check_intact(rel);
	table_is_intact = true;
	if (mode > AccessShareLock && compat_relation_file_is_new(rel))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change leases in the transaction that created or moved the lock table"),
				 errhint("Commit first.")));
	return rel;
}

/*
 * Open the table to give back what a call, session or transaction that ends has
 * taken.  NULL if it does not exist, if we would have to wait for its lock, or
 * if it is new in this transaction.
 */
Relation
lease_relation_open_at_exit(void)
{
	Oid			relid = lease_relation_find();
	Relation	rel;

	Assert(lease_may_wait());
	if (!OidIsValid(relid) ||
		!ConditionalLockRelationOid(relid, RowExclusiveLock))
		return NULL;
	rel = try_relation_open(relid, NoLock);
	if (rel == NULL || compat_relation_file_is_new(rel))
	{
		if (rel != NULL)
			relation_close(rel, NoLock);
		UnlockRelationOid(relid, RowExclusiveLock);
		return NULL;
	}
	lease_am_check_intact(rel);
	return rel;
}
