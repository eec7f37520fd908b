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
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "server/lease_server.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

/* ----------------------------------------------------------------
 * What the lock table must look like
 * ----------------------------------------------------------------
 */

static const struct
{
	const char *name;
	Oid			type;
}			columns[] = {
	[LEASE_COLUMN_NAME] = {"name", TEXTOID},
	[LEASE_COLUMN_OWNER] = {"owner", TEXTOID},
	[LEASE_COLUMN_MODE] = {"mode", TEXTOID},
	[LEASE_COLUMN_VERSION] = {"version", INT4OID},
	[LEASE_COLUMN_TOKEN] = {"token", INT8OID},
	[LEASE_COLUMN_ACQUIRED_AT] = {"acquired_at", TIMESTAMPTZOID},
	[LEASE_COLUMN_EXPIRES_AT] = {"expires_at", TIMESTAMPTZOID},
	[LEASE_COLUMN_REMAINING] = {"remaining", FLOAT8OID},
	[LEASE_COLUMN_GUARDED] = {"guarded", BOOLOID},
	[LEASE_COLUMN_LEAVING] = {"leaving", BOOLOID},
	[LEASE_COLUMN_ROLE] = {"role", OIDOID},
	[LEASE_COLUMN_PID] = {"pid", INT4OID},
	[LEASE_COLUMN_APPLICATION_NAME] = {"application_name", TEXTOID},
	[LEASE_COLUMN_CLIENT_ADDR] = {"client_addr", TEXTOID},
	[LEASE_COLUMN_REQUEST] = {"request", TEXTOID},
};

StaticAssertDecl(lengthof(columns) == LEASE_COLUMNS,
				 "every column of the lock table has a type");

/* Say whether a relation has the columns of the lock table. */
bool
lease_relation_has_columns(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	if (desc->natts != LEASE_COLUMNS)
		return false;
	for (int i = 0; i < desc->natts; i++)
		if (TupleDescAttr(desc, i)->atttypid != columns[i].type ||
			TupleDescAttr(desc, i)->attisdropped)
			return false;
	return true;
}

/* Say whether a relation has the storage and the columns of the lock table. */
bool
lease_relation_is_intact(Relation rel)
{
	return rel->rd_tableam == &lease_am_methods &&
		rel->rd_rel->relkind == RELKIND_RELATION &&
		rel->rd_rel->relpersistence == RELPERSISTENCE_PERMANENT &&
		lease_relation_has_columns(rel);
}

/* Raise an error unless it has. */
void
lease_relation_check_intact(Relation rel)
{
	if (!lease_relation_is_intact(rel))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"dlock_private.lease_table\" is not as the extension created it"),
				 errhint("Drop the extension and create it again.")));
}

/*
 * Say whether a relation is all that the extension created: without a default, a
 * constraint, an index, a rule, row security or relatives.  This asks the catalogs.
 */
bool
lease_relation_is_as_created(Relation rel)
{
	Form_pg_class form = rel->rd_rel;
	TupleDesc	desc = RelationGetDescr(rel);

	if (!lease_relation_is_intact(rel) || desc->constr != NULL ||
		form->relhasrules || form->relhassubclass || form->relispartition ||
		form->relrowsecurity || form->relforcerowsecurity)
		return false;
	for (int i = 0; i < LEASE_COLUMNS; i++)
		if (strcmp(NameStr(TupleDescAttr(desc, i)->attname), columns[i].name) != 0)
			return false;
	/* relhasindex stays when CREATE INDEX CONCURRENTLY has failed */
	return RelationGetIndexList(rel) == NIL &&
		!has_superclass(RelationGetRelid(rel)) &&
		RelationGetFKeyList(rel) == NIL;
}

/* ----------------------------------------------------------------
 * Find and open it
 * ----------------------------------------------------------------
 */

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
		lease_relation_check_intact(rel);
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
	lease_relation_check_intact(rel);
	return rel;
}
