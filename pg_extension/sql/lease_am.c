/*
 * lease_am.c
 *	  The table access method "dlock": SELECT on the lock table.
 *
 * dlock_private.lease_table is a relation so that the server stores, checkpoints,
 * replicates, backs up, moves and shows it like any other.  Only the functions
 * change it, in place, without transaction ids: for the access method it has no
 * row versions, and a scan sees the entries as they are now.
 *
 * A scan walks over the hashes in the order of their reversed bits, in which a
 * bucket is one contiguous range and a split cuts a range in two.  The cursor
 * is a reversed hash; a bucket is copied under its lock, and entries behind the
 * cursor are dropped.  So a split meanwhile neither hides a row that was there
 * all the time nor shows one twice.  Of a parallel scan one participant reads the
 * whole table; the install script tells the planner that more are no use.
 *
 * Rows are masked here, so that every reader of the table, in whatever way it
 * reads, sees of other roles' leases what the views show and no more.
 *
 * Everything else either has an obvious answer or raises an error.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/multixact.h"
#include "access/relation.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/storage.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replication/logicalworker.h"
#include "sql/lease_sql.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* What we tell the planner of a page's rows: the page is about half full. */
#define ROWS_PER_PAGE	40

typedef struct LeaseParallelScan
{
	ParallelTableScanDescData base;
	pg_atomic_flag taken;		/* by the participant that reads it all */
} LeaseParallelScan;

/* A row of a bucket: a copy of an entry, or of a guard whose lease is gone. */
typedef struct LeaseScanRow
{
	ItemPointerData tid;
	LeaseEntry *entry;			/* NULL: a guard */
	bool		guarded;
	const LeaseGuard *guard;
	lease_bytes name;			/* of the guard */
} LeaseScanRow;

typedef struct LeaseScan
{
	TableScanDescData base;
	lease_bytes name;			/* whose rows are wanted; length 0: all */
	uint32		hash;			/* of that name */
	bool		started;
	bool		readable;		/* else there are no rows */
	int64		now_us;			/* the lease clock and the wall clock at the */
	TimestampTz wall_us;		/* same moment, to show deadlines by */
	uint64		cursor;			/* next reversed hash to look at */
	uint64		end;			/* exclusive */

	/*
	 * The names that were guarded at the start, in the order of the scan, for
	 * guards whose leases are gone.
	 */
	List	   *guarded_names;	/* of LeaseQueueKey */
	int			next_guarded_name;

	/* the rows of a bucket, in memory of their own */
	MemoryContext memory;
	List	   *rows;			/* of LeaseScanRow */
	int			next_row;
} LeaseScan;

PG_FUNCTION_INFO_V1(dlock_table_handler);
PG_FUNCTION_INFO_V1(dlock_refuse_change);

/* ----------------------------------------------------------------
 * Rows
 * ----------------------------------------------------------------
 */

static bool
is_wanted(const LeaseScan *scan, lease_bytes name)
{
	return scan->name.length == 0 || lease_same(name, scan->name);
}

/*
 * Fill in a row of the lock table.  Others than may see the holder's role find its
 * client masked.  A lease that lives as long as its session or transaction has no time
 * at which it expires.
 *
 * Where only a guard is left, role and client are those of the transaction that guards:
 * nothing is left of the lease, and nobody knows when the transaction will end.
 */
static void
form_row(const LeaseScan *scan, const LeaseScanRow *row, Datum *values,
		 bool *nulls)
{
	const LeaseEntry *entry = row->entry;
	const LeaseGuard *guard = row->guard;
	Oid			role = entry ? entry->role : guard->guarding_role;
	bool		visible = lease_privilege_may_see(role) &&
		(entry != NULL || lease_privilege_may_see(guard->role));
	lease_bytes owner;
	lease_bytes application;
	lease_bytes address;
	lease_bytes request = {"", 0};

	memset(nulls, 0, LEASE_COLUMNS * sizeof(bool));
	if (entry != NULL)
	{
		lease_holder holder = lease_bond_holder(lease_state_find(), entry,
												scan->now_us);

		owner = holder.owner;
		request = holder.request;
		application = lease_entry_application(entry);
		address = lease_entry_address(entry);
		values[LEASE_COLUMN_EXPIRES_AT] =
			TimestampTzGetDatum(scan->wall_us + (holder.deadline_us - scan->now_us));
		nulls[LEASE_COLUMN_EXPIRES_AT] = holder.life == LEASE_BOUND;
		values[LEASE_COLUMN_REMAINING] =
			Float8GetDatum((double) lease_remaining_us(&holder, scan->now_us) /
						   USECS_PER_SEC);
		values[LEASE_COLUMN_LEAVING] = BoolGetDatum(lease_entry_is_leaving(entry));
	}
	else
	{
		owner = (lease_bytes) {guard->owner, guard->owner_length};
		application = (lease_bytes) {guard->application, guard->application_length};
		address = (lease_bytes) {guard->address, guard->address_length};
		nulls[LEASE_COLUMN_EXPIRES_AT] = true;
		values[LEASE_COLUMN_REMAINING] = Float8GetDatum(0);
		values[LEASE_COLUMN_LEAVING] = BoolGetDatum(false);
	}
	values[LEASE_COLUMN_NAME] = lease_sql_text(row->name, true);
	values[LEASE_COLUMN_MODE] =
		CStringGetTextDatum(lease_mode_name(entry ? entry->mode : guard->mode));
	values[LEASE_COLUMN_VERSION] =
		Int32GetDatum((int32) (entry ? entry->version : guard->version));
	values[LEASE_COLUMN_TOKEN] =
		Int64GetDatum((int64) (entry ? entry->token : guard->token));
	values[LEASE_COLUMN_ACQUIRED_AT] =
		TimestampTzGetDatum(entry ? entry->acquired_at : guard->acquired_at);
	values[LEASE_COLUMN_GUARDED] = BoolGetDatum(row->guarded);
	values[LEASE_COLUMN_ROLE] = ObjectIdGetDatum(role);
	values[LEASE_COLUMN_PID] = Int32GetDatum(entry ? entry->pid : guard->pid);
	nulls[LEASE_COLUMN_PID] = !visible;
	values[LEASE_COLUMN_OWNER] = lease_sql_text(owner, visible);
	values[LEASE_COLUMN_APPLICATION_NAME] = lease_sql_text(application, visible);
	values[LEASE_COLUMN_CLIENT_ADDR] = lease_sql_text(address, visible);
	nulls[LEASE_COLUMN_CLIENT_ADDR] = visible && address.length == 0;
	values[LEASE_COLUMN_REQUEST] = lease_sql_text(request, visible);
	nulls[LEASE_COLUMN_REQUEST] = request.length == 0 && (visible || entry == NULL);
}

/* ----------------------------------------------------------------
 * Scans
 * ----------------------------------------------------------------
 */

static const TupleTableSlotOps *
lease_slot_callbacks(Relation rel)
{
	return &TTSOpsVirtual;
}

static int
compare_positions(const ListCell *a, const ListCell *b)
{
	uint32		x = lease_hash_position(((LeaseQueueKey *) lfirst(a))->hash);
	uint32		y = lease_hash_position(((LeaseQueueKey *) lfirst(b))->hash);

	return x < y ? -1 : x > y ? 1 : 0;
}

static void
start_scan(LeaseScan *scan)
{
	Relation	rel = scan->base.rs_rd;
	LeaseParallelScan *parallel = (LeaseParallelScan *) scan->base.rs_parallel;
	MemoryContext old;

	lease_area_attach();
	scan->started = true;
	scan->readable = lease_activate_was_done(rel) &&
		(parallel == NULL || pg_atomic_test_set_flag(&parallel->taken));
	scan->rows = NIL;
	scan->next_row = 0;
	if (!scan->readable)
		return;
	scan->now_us = lease_clock_read(rel);
	scan->wall_us = GetCurrentTimestamp();
	scan->cursor = 0;
	scan->end = LEASE_POSITION_END;
	if (scan->name.length == 0)
		pgstat_count_heap_scan(rel);
	else
	{
		scan->hash = lease_trie_hash(rel, scan->name);
		scan->cursor = lease_hash_position(scan->hash);
		scan->end = scan->cursor + 1;
	}

	list_free_deep(scan->guarded_names);
	old = MemoryContextSwitchTo(GetMemoryChunkContext(scan));
	scan->guarded_names = lease_queue_guarded_names(MyDatabaseId);
	list_sort(scan->guarded_names, compare_positions);
	scan->next_guarded_name = 0;
	MemoryContextSwitchTo(old);
}

static TableScanDesc
lease_scan_begin(Relation rel, Snapshot snapshot, int nkeys,
				 struct ScanKeyData *key, ParallelTableScanDesc pscan,
				 uint32 flags)
{
	LeaseScan  *scan = palloc0(sizeof(LeaseScan));

	lease_relation_check_intact(rel);
	RelationIncrementReferenceCount(rel);
	scan->base.rs_rd = rel;
	scan->base.rs_snapshot = snapshot;
	scan->base.rs_nkeys = nkeys;
	scan->base.rs_flags = flags;
	scan->base.rs_parallel = pscan;
	scan->memory = AllocSetContextCreate(CurrentMemoryContext, "dlock scan",
										 ALLOCSET_DEFAULT_SIZES);
	return &scan->base;
}

/* Begin to read the rows of one name, by table_scan_getnextslot(). */
TableScanDesc
lease_am_begin_name(Relation rel, lease_bytes name)
{
	TableScanDesc scan = lease_scan_begin(rel, NULL, 0, NULL, NULL, 0);

	((LeaseScan *) scan)->name = name;
	return scan;
}

static void
lease_scan_end(TableScanDesc sscan)
{
	LeaseScan  *scan = (LeaseScan *) sscan;

	MemoryContextDelete(scan->memory);
	RelationDecrementReferenceCount(sscan->rs_rd);
	if (sscan->rs_flags & SO_TEMP_SNAPSHOT)
		UnregisterSnapshot(sscan->rs_snapshot);
	pfree(scan);
}

static void
lease_scan_rescan(TableScanDesc sscan, struct ScanKeyData *key,
				  bool set_params, bool allow_strat, bool allow_sync,
				  bool allow_pagemode)
{
	((LeaseScan *) sscan)->started = false;
}

/* One more row of a scan, which is all zero. */
static LeaseScanRow *
add_row(LeaseScan *scan)
{
	LeaseScanRow *row = palloc0(sizeof(LeaseScanRow));

	ItemPointerSetInvalid(&row->tid);
	scan->rows = lappend(scan->rows, row);
	return row;
}

/* Keep a copy of an entry that is wanted and not behind the cursor. */
static void
copy_row(Buffer buffer, OffsetNumber offset, LeaseEntry *entry, void *context)
{
	LeaseScan  *scan = context;
	uint32		position = lease_hash_position(entry->hash);
	Size		size = lease_entry_size(entry);
	LeaseScanRow *row;

	if (position < scan->cursor || position >= scan->end ||
		!is_wanted(scan, lease_entry_name(entry)))
		return;
	row = add_row(scan);
	ItemPointerSet(&row->tid, BufferGetBlockNumber(buffer), offset);
	row->entry = palloc(size);
	memcpy(row->entry, entry, size);
	row->name = lease_entry_name(row->entry);
}

/* The guards of a name. */
typedef struct GuardedName
{
	lease_bytes name;
	List	   *guards;
} GuardedName;

/* Mark the row of a guard's lease; false: there is none. */
static bool
mark_guarded(LeaseScan *scan, lease_bytes name, const LeaseGuard *guard)
{
	bool		found = false;
	ListCell   *cell;

	foreach(cell, scan->rows)
	{
		LeaseScanRow *row = lfirst(cell);

		if (row->entry != NULL && row->entry->token == guard->token &&
			lease_same(row->name, name))
			row->guarded = found = true;
	}
	return found;
}

/*
 * The guards of the names, in the bucket at the cursor, that were guarded when the scan
 * began, as a list of GuardedName.  The bucket is locked: a guard without a row here has
 * lost its lease.
 */
static List *
copy_guards(LeaseScan *scan, uint64 next)
{
	List	   *copies = NIL;

	for (; scan->next_guarded_name < list_length(scan->guarded_names);
		 scan->next_guarded_name++)
	{
		const LeaseQueueKey *key = list_nth(scan->guarded_names,
											scan->next_guarded_name);
		uint32		position = lease_hash_position(key->hash);
		lease_bytes name = {key->name, key->length};
		GuardedName *copy;

		if (position >= next)
			break;
		/* a hash may be from a table that was dropped meanwhile */
		if (position < scan->cursor || !is_wanted(scan, name) ||
			lease_trie_hash(scan->base.rs_rd, name) != key->hash)
			continue;
		copy = palloc(sizeof(GuardedName));
		copy->name = name;
		copy->guards = lease_queue_copy_guards(MyDatabaseId, key->hash, name);
		copies = lappend(copies, copy);
	}
	return copies;
}

/* Mark the rows that are guarded, and add one for each guard that has none. */
static void
add_guards(LeaseScan *scan, const GuardedName *guarded)
{
	ListCell   *cell;

	foreach(cell, guarded->guards)
	{
		const LeaseGuard *guard = lfirst(cell);

		if (!mark_guarded(scan, guarded->name, guard))
		{
			LeaseScanRow *row = add_row(scan);

			row->guard = guard;
			row->name = guarded->name;
			row->guarded = true;
		}
	}
}

/* Read the bucket at the cursor and move the cursor behind it. */
static void
read_bucket(LeaseScan *scan)
{
	Relation	rel = scan->base.rs_rd;
	MemoryContext old = MemoryContextSwitchTo(scan->memory);
	uint64		next = scan->cursor;
	Buffer		bucket;
	List	   *guarded;
	ListCell   *cell;

	MemoryContextReset(scan->memory);
	scan->rows = NIL;
	scan->next_row = 0;
	bucket = lease_trie_lock_at(rel, &next, BUFFER_LOCK_SHARE);
	lease_trie_visit(rel, bucket, scan->name.length > 0 ? &scan->hash : NULL,
					 copy_row, scan);
	guarded = copy_guards(scan, Min(next, scan->end));
	UnlockReleaseBuffer(bucket);
	/* both may be many */
	foreach(cell, guarded)
		add_guards(scan, lfirst(cell));
	scan->cursor = next;
	MemoryContextSwitchTo(old);
}

static bool
lease_scan_getnextslot(TableScanDesc sscan, ScanDirection direction,
					   TupleTableSlot *slot)
{
	LeaseScan  *scan = (LeaseScan *) sscan;
	const LeaseScanRow *row;
	MemoryContext old;

	if (ScanDirectionIsBackward(direction))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot scan the lock table backward"),
				 errhint("Add ORDER BY to the cursor's query.")));
	ExecClearTuple(slot);
	if (!scan->started)
		start_scan(scan);
	if (!scan->readable)
		return false;

	while (scan->next_row >= list_length(scan->rows))
	{
		CHECK_FOR_INTERRUPTS();
		if (scan->cursor >= scan->end)
			return false;
		read_bucket(scan);
	}

	row = list_nth(scan->rows, scan->next_row++);
	old = MemoryContextSwitchTo(scan->memory);
	form_row(scan, row, slot->tts_values, slot->tts_isnull);
	MemoryContextSwitchTo(old);
	ExecStoreVirtualTuple(slot);
	slot->tts_tid = row->tid;
	slot->tts_tableOid = RelationGetRelid(sscan->rs_rd);
	if (scan->name.length == 0)
		pgstat_count_heap_getnext(sscan->rs_rd);
	return true;
}

static Size
lease_parallelscan_estimate(Relation rel)
{
	return sizeof(LeaseParallelScan);
}

static Size
lease_parallelscan_initialize(Relation rel, ParallelTableScanDesc pscan)
{
	compat_parallel_set_relation(pscan, rel);
	pscan->phs_syncscan = false;
	pg_atomic_init_flag(&((LeaseParallelScan *) pscan)->taken);
	return sizeof(LeaseParallelScan);
}

static void
lease_parallelscan_reinitialize(Relation rel, ParallelTableScanDesc pscan)
{
	pg_atomic_clear_flag(&((LeaseParallelScan *) pscan)->taken);
}

/* ----------------------------------------------------------------
 * Storage
 * ----------------------------------------------------------------
 */

/*
 * Say whether a relation about to be created is the lock table: made by CREATE
 * EXTENSION or pg_upgrade, or the transient copy that VACUUM FULL makes, which
 * has the lock table locked.
 */
static bool
is_lock_table(Relation rel)
{
	const char *name = RelationGetRelationName(rel);
	char		transient[NAMEDATALEN];
	Oid			original;
	Relation	table;
	bool		result;

	if (!lease_relation_has_columns(rel))
		return false;
	if (creating_extension || IsBinaryUpgrade)
		return strcmp(name, "lease_table") == 0;
	original = get_relname_relid("lease_table",
								 get_namespace_oid("dlock_private", true));
	snprintf(transient, sizeof(transient), "pg_temp_%u", original);
	if (!OidIsValid(original) || strcmp(name, transient) != 0)
		return false;
	/* anybody may have made a table with such a name, and has locked nothing */
	table = RelationIdGetRelation(original);
	if (table == NULL)
		return false;
	result = table->rd_tableam == &lease_am_methods &&
		CheckRelationLockedByMe(table, AccessExclusiveLock, true);
	RelationClose(table);
	return result;
}

static void
lease_relation_set_new_filelocator(Relation rel,
								   const RelFileLocator *locator,
								   char persistence,
								   TransactionId *freezeXid,
								   MultiXactId *minmulti)
{
	SMgrRelation srel;

	lease_area_attach();
	if (!is_lock_table(rel) || persistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"dlock\" is only for dlock_private.lease_table")));

	/* There are no transaction ids to freeze. */
	*freezeXid = InvalidTransactionId;
	*minmulti = InvalidMultiXactId;
	srel = RelationCreateStorage(*locator, persistence, true);
	smgrclose(srel);
	lease_hooks_want_worker();
}

static void
lease_relation_nontransactional_truncate(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot truncate table \"%s\"",
					RelationGetRelationName(rel))));
}

/* SET TABLESPACE: copy the file as it is. */
static void
lease_relation_copy_data(Relation rel, const RelFileLocator *locator)
{
	SMgrRelation destination;

	FlushRelationBuffers(rel);
	destination = RelationCreateStorage(*locator, rel->rd_rel->relpersistence,
										true);
	RelationCopyStorage(RelationGetSmgr(rel), destination, MAIN_FORKNUM,
						rel->rd_rel->relpersistence);
	RelationDropStorage(rel);
	smgrclose(destination);
}

/* Keep a copy of an entry in a list. */
static void
copy_entry(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
		   void *context)
{
	List	  **entries = context;
	LeaseEntry *copy = palloc(lease_entry_size(entry));

	memcpy(copy, entry, lease_entry_size(entry));
	*entries = lappend(*entries, copy);
}

/*
 * VACUUM FULL and CLUSTER: write all entries to a new file, compactly.  The
 * caller holds AccessExclusiveLock on both.  The new table's floor is the
 * maximum of the old one's floor and its buckets' marks, so tokens grow.
 */
static void
lease_relation_copy_for_cluster(COMPAT_COPY_FOR_CLUSTER_PARAMETERS)
{
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext,
												 "dlock copy",
												 ALLOCSET_DEFAULT_SIZES);
	LeaseMeta	meta;
	uint64		cursor = 0;

	*xid_cutoff = InvalidTransactionId;
	*multi_cutoff = InvalidMultiXactId;
	*num_tuples = *tups_vacuumed = *tups_recently_dead = 0;
	lease_relation_check_intact(OldTable);
	if (!lease_activate_was_done(OldTable))
		return;					/* never used, or another database's leases */

	lease_meta_read(OldTable, &meta);

	/* queues and guards know names by their hashes: keep those */
	lease_trie_create(NewTable, meta.seed);

	/* By hash, not by block: a bucket that is damaged must not be skipped. */
	while (cursor < LEASE_POSITION_END)
	{
		MemoryContext old = MemoryContextSwitchTo(memory);
		Buffer		bucket = lease_trie_lock_at(OldTable, &cursor,
												BUFFER_LOCK_SHARE);
		uint64		mark = lease_page_special(BufferGetPage(bucket))->mark;
		List	   *entries = NIL;
		ListCell   *cell;

		meta.floor = Max(meta.floor, mark);
		lease_trie_visit(OldTable, bucket, NULL, copy_entry, &entries);
		UnlockReleaseBuffer(bucket);
		foreach(cell, entries)
			lease_trie_insert(NewTable, lfirst(cell));
		*num_tuples += list_length(entries);
		MemoryContextSwitchTo(old);
		MemoryContextReset(memory);
		CHECK_FOR_INTERRUPTS();
	}
	lease_meta_write(NewTable, &meta);
	MemoryContextDelete(memory);
}

static bool
lease_relation_needs_toast_table(Relation rel)
{
	return false;
}

/* reltuples is no help: ANALYZE samples nothing and sets it to 0. */
static void
lease_relation_estimate_size(Relation rel, int32 *attr_widths,
							 BlockNumber *pages, double *tuples,
							 double *allvisfrac)
{
	*pages = RelationGetNumberOfBlocks(rel);
	*tuples = (double) *pages * ROWS_PER_PAGE;
	*allvisfrac = 0;
}

static void
lease_relation_vacuum(Relation rel, compat_vacuum_params *params,
					  BufferAccessStrategy strategy)
{
	/* Releases and the reaper leave nothing to vacuum. */
}

/* ----------------------------------------------------------------
 * What the table refuses
 * ----------------------------------------------------------------
 */

pg_noreturn static void refuse(const char *message);

static void
refuse(const char *message)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg_internal("%s", message),
			 errhint("Use the dlock functions.")));
}

#define REFUSE_CHANGE	"cannot change table \"lease_table\" directly"
#define REFUSE_ROW		"cannot lock or fetch single rows of table \"lease_table\""
#define REFUSE_INDEX	"cannot create an index on table \"lease_table\""
#define REFUSE_SAMPLE	"cannot sample table \"lease_table\""

/*
 * The trigger on the lock table: refuses a statement even if it would change
 * no row.  Logical replication may pass, since a subscriber to FOR ALL TABLES
 * would otherwise retry its copy for ever; its rows are discarded below.
 */
Datum
dlock_refuse_change(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function was not called by a trigger")));
	if (!IsLogicalWorker())
		refuse(REFUSE_CHANGE);
	return PointerGetDatum(NULL);
}

static void
lease_tuple_insert(Relation rel, TupleTableSlot *slot, CommandId cid,
				   compat_insert_options options,
				   struct BulkInsertStateData *bistate)
{
	/* another server's leases mean nothing here */
	if (!IsLogicalWorker())
		refuse(REFUSE_CHANGE);
}

static void
lease_multi_insert(Relation rel, TupleTableSlot **slots, int nslots,
				   CommandId cid, compat_insert_options options,
				   struct BulkInsertStateData *bistate)
{
	if (!IsLogicalWorker())
		refuse(REFUSE_CHANGE);
}

/* A callback that only raises an error. */
#define REFUSED(type, name, parameters, message) \
static type \
name parameters \
{ \
	refuse(message); \
}

REFUSED(void, lease_tuple_insert_speculative,
		(Relation rel, TupleTableSlot *slot, CommandId cid,
		 compat_insert_options options, struct BulkInsertStateData *bistate,
		 uint32 specToken),
		REFUSE_CHANGE)
REFUSED(void, lease_tuple_complete_speculative,
		(Relation rel, TupleTableSlot *slot, uint32 specToken, bool succeeded),
		REFUSE_CHANGE)
REFUSED(TM_Result, lease_tuple_delete, (COMPAT_DELETE_PARAMETERS),
		REFUSE_CHANGE)
REFUSED(TM_Result, lease_tuple_update, (COMPAT_UPDATE_PARAMETERS),
		REFUSE_CHANGE)

REFUSED(TM_Result, lease_tuple_lock,
		(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot,
		 CommandId cid, LockTupleMode mode, LockWaitPolicy wait_policy,
		 uint8 flags, TM_FailureData *tmfd),
		REFUSE_ROW)
REFUSED(bool, lease_tuple_fetch_row_version,
		(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot),
		REFUSE_ROW)
REFUSED(bool, lease_tuple_tid_valid, (TableScanDesc scan, ItemPointer tid),
		REFUSE_ROW)
REFUSED(void, lease_tuple_get_latest_tid, (TableScanDesc scan, ItemPointer tid),
		REFUSE_ROW)
REFUSED(bool, lease_tuple_satisfies_snapshot,
		(Relation rel, TupleTableSlot *slot, Snapshot snapshot),
		REFUSE_ROW)

REFUSED(struct IndexFetchTableData *, lease_index_fetch_begin,
		(COMPAT_INDEX_FETCH_PARAMETERS),
		REFUSE_INDEX)
REFUSED(void, lease_index_fetch_reset, (struct IndexFetchTableData *data),
		REFUSE_INDEX)
REFUSED(void, lease_index_fetch_end, (struct IndexFetchTableData *data),
		REFUSE_INDEX)
REFUSED(bool, lease_index_fetch_tuple,
		(struct IndexFetchTableData *scan, ItemPointer tid, Snapshot snapshot,
		 TupleTableSlot *slot, bool *call_again, bool *all_dead),
		REFUSE_INDEX)
REFUSED(TransactionId, lease_index_delete_tuples,
		(Relation rel, TM_IndexDeleteOp *delstate),
		REFUSE_INDEX)
REFUSED(double, lease_index_build_range_scan,
		(Relation table_rel, Relation index_rel, struct IndexInfo *index_info,
		 bool allow_sync, bool anyvisible, bool progress,
		 BlockNumber start_blockno, BlockNumber numblocks,
		 IndexBuildCallback callback, void *callback_state, TableScanDesc scan),
		REFUSE_INDEX)
REFUSED(void, lease_index_validate_scan,
		(Relation table_rel, Relation index_rel, struct IndexInfo *index_info,
		 Snapshot snapshot, struct ValidateIndexState *state),
		REFUSE_INDEX)

REFUSED(bool, lease_scan_sample_next_block,
		(TableScanDesc scan, struct SampleScanState *scanstate),
		REFUSE_SAMPLE)
REFUSED(bool, lease_scan_sample_next_tuple,
		(TableScanDesc scan, struct SampleScanState *scanstate,
		 TupleTableSlot *slot),
		REFUSE_SAMPLE)

/* ANALYZE finds nothing to sample; statistics of leases are no use. */
static bool
lease_scan_analyze_next_block(COMPAT_ANALYZE_BLOCK_PARAMETERS)
{
	return false;
}

static bool
lease_scan_analyze_next_tuple(COMPAT_ANALYZE_TUPLE_PARAMETERS)
{
	return false;
}

const TableAmRoutine lease_am_methods = {
	.type = T_TableAmRoutine,
	.slot_callbacks = lease_slot_callbacks,
	.scan_begin = lease_scan_begin,
	.scan_end = lease_scan_end,
	.scan_rescan = lease_scan_rescan,
	.scan_getnextslot = lease_scan_getnextslot,
	.parallelscan_estimate = lease_parallelscan_estimate,
	.parallelscan_initialize = lease_parallelscan_initialize,
	.parallelscan_reinitialize = lease_parallelscan_reinitialize,
	.index_fetch_begin = lease_index_fetch_begin,
	.index_fetch_reset = lease_index_fetch_reset,
	.index_fetch_end = lease_index_fetch_end,
	.index_fetch_tuple = lease_index_fetch_tuple,
	.tuple_fetch_row_version = lease_tuple_fetch_row_version,
	.tuple_tid_valid = lease_tuple_tid_valid,
	.tuple_get_latest_tid = lease_tuple_get_latest_tid,
	.tuple_satisfies_snapshot = lease_tuple_satisfies_snapshot,
	.index_delete_tuples = lease_index_delete_tuples,
	.tuple_insert = lease_tuple_insert,
	.tuple_insert_speculative = lease_tuple_insert_speculative,
	.tuple_complete_speculative = lease_tuple_complete_speculative,
	.multi_insert = lease_multi_insert,
	.tuple_delete = lease_tuple_delete,
	.tuple_update = lease_tuple_update,
	.tuple_lock = lease_tuple_lock,
	.relation_set_new_filelocator = lease_relation_set_new_filelocator,
	.relation_nontransactional_truncate =
		lease_relation_nontransactional_truncate,
	.relation_copy_data = lease_relation_copy_data,
	.relation_copy_for_cluster = lease_relation_copy_for_cluster,
	.relation_vacuum = lease_relation_vacuum,
	.scan_analyze_next_block = lease_scan_analyze_next_block,
	.scan_analyze_next_tuple = lease_scan_analyze_next_tuple,
	.index_build_range_scan = lease_index_build_range_scan,
	.index_validate_scan = lease_index_validate_scan,
	.relation_size = table_block_relation_size,
	.relation_needs_toast_table = lease_relation_needs_toast_table,
	.relation_estimate_size = lease_relation_estimate_size,
	.scan_sample_next_block = lease_scan_sample_next_block,
	.scan_sample_next_tuple = lease_scan_sample_next_tuple,
};

/* The handler of access method "dlock". */
Datum
dlock_table_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&lease_am_methods);
}
