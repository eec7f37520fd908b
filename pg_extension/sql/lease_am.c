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
 * all the time nor shows one twice.  A parallel scan gives each participant
 * one slice of the hashes after another.
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

/* Slices of a parallel scan: enough to even out the participants' load. */
#define SLICE_BITS		6
#define SLICES			(1 << SLICE_BITS)

/* What we tell the planner of a page's rows: the page is about half full. */
#define ROWS_PER_PAGE	40

typedef struct LeaseParallelScan
{
	ParallelTableScanDescData base;
	pg_atomic_uint32 next_slice;
} LeaseParallelScan;

typedef struct LeaseScanRow
{
	ItemPointerData tid;
	LeaseEntry *entry;			/* NULL: a guard whose lease is gone */
	bool		guarded;
	const LeaseQueueKey *name;	/* of the guard */
	const LeaseGuard *guard;
} LeaseScanRow;

/* How many roles a scan remembers; of several in one place, the last one. */
#define SEEN_ROLES		64

typedef struct LeaseScan
{
	TableScanDescData base;
	bool		started;
	bool		readable;		/* else there are no rows */
	int64		now_us;			/* the lease clock and the wall clock at the */
	TimestampTz wall_us;		/* same moment, to show deadlines by */
	uint64		cursor;			/* next reversed hash to look at */
	uint64		end;			/* of the slice, exclusive */

	/* which roles' owners and clients the reader may see */
	Oid			reader;
	Oid			seen_roles[SEEN_ROLES];
	bool		visible[SEEN_ROLES];

	/*
	 * The names that were guarded at the start, in the order of the scan, for
	 * guards whose leases are gone.  NULL: none.
	 */
	LeaseQueueKey *guarded_names;
	int			nguarded_names;
	int			next_guarded_name;

	/* copies of a bucket's entries, in memory of their own */
	MemoryContext memory;
	LeaseScanRow *rows;
	int			nrows;
	int			maxrows;
	int			next_row;
} LeaseScan;

PG_FUNCTION_INFO_V1(dlock_table_handler);
PG_FUNCTION_INFO_V1(dlock_refuse_change);

static Datum
text_datum(lease_bytes bytes)
{
	return PointerGetDatum(cstring_to_text_with_len(bytes.data,
													(int) bytes.length));
}

/*
 * Fill in a row of the lock table, for a moment when the lease clock stood at
 * now_us and the wall clock at wall_us.  Unless "visible", the holder's role
 * and client are masked.  A lease that lives as long as its session or
 * transaction has no time at which it expires.
 */
void
lease_am_form_row(const LeaseEntry *entry, bool visible, bool guarded,
				  int64 now_us, TimestampTz wall_us, Datum *values,
				  bool *nulls)
{
	lease_bytes request = lease_entry_request(entry);
	lease_bytes address = lease_entry_address(entry);
	lease_holder holder = lease_bond_holder(lease_state_find(), entry, now_us);

	memset(nulls, 0, LEASE_COLUMNS * sizeof(bool));
	values[LEASE_COLUMN_NAME] = text_datum(lease_entry_name(entry));
	values[LEASE_COLUMN_MODE] = CStringGetTextDatum(lease_mode_name(entry->mode));
	values[LEASE_COLUMN_VERSION] = Int32GetDatum((int32) entry->version);
	values[LEASE_COLUMN_TOKEN] = Int64GetDatum((int64) entry->token);
	values[LEASE_COLUMN_ACQUIRED_AT] = TimestampTzGetDatum(entry->acquired_at);
	values[LEASE_COLUMN_EXPIRES_AT] =
		TimestampTzGetDatum(wall_us + (holder.deadline_us - now_us));
	nulls[LEASE_COLUMN_EXPIRES_AT] = holder.life == LEASE_BOUND;
	values[LEASE_COLUMN_ROLE] = ObjectIdGetDatum(entry->role);
	values[LEASE_COLUMN_PID] = Int32GetDatum(entry->pid);
	nulls[LEASE_COLUMN_PID] = !visible;
	values[LEASE_COLUMN_REMAINING] =
		Float8GetDatum((double) lease_remaining_us(&holder, now_us) /
					   USECS_PER_SEC);
	values[LEASE_COLUMN_GUARDED] = BoolGetDatum(guarded);
	values[LEASE_COLUMN_LEAVING] = BoolGetDatum(lease_entry_is_leaving(entry));
	if (!visible)
	{
		values[LEASE_COLUMN_OWNER] = values[LEASE_COLUMN_APPLICATION_NAME] =
			values[LEASE_COLUMN_CLIENT_ADDR] = values[LEASE_COLUMN_REQUEST] =
			CStringGetTextDatum(LEASE_MASK);
		return;
	}
	values[LEASE_COLUMN_OWNER] = text_datum(lease_entry_owner(entry));
	values[LEASE_COLUMN_APPLICATION_NAME] =
		text_datum(lease_entry_application(entry));
	values[LEASE_COLUMN_CLIENT_ADDR] = text_datum(address);
	nulls[LEASE_COLUMN_CLIENT_ADDR] = address.length == 0;
	values[LEASE_COLUMN_REQUEST] = text_datum(request);
	nulls[LEASE_COLUMN_REQUEST] = request.length == 0;
}

/*
 * Fill in a row of the lock table for a guard whose lease is gone: role and
 * client are those of the transaction that guards.  Nothing is left of the
 * lease, and nobody knows when the transaction will end.
 */
void
lease_am_form_guard(lease_bytes name, const LeaseGuard *guard, bool visible,
					Datum *values, bool *nulls)
{
	memset(nulls, 0, LEASE_COLUMNS * sizeof(bool));
	values[LEASE_COLUMN_NAME] = text_datum(name);
	values[LEASE_COLUMN_MODE] = CStringGetTextDatum(lease_mode_name(guard->mode));
	values[LEASE_COLUMN_VERSION] = Int32GetDatum((int32) guard->version);
	values[LEASE_COLUMN_TOKEN] = Int64GetDatum((int64) guard->token);
	values[LEASE_COLUMN_ACQUIRED_AT] = TimestampTzGetDatum(guard->acquired_at);
	nulls[LEASE_COLUMN_EXPIRES_AT] = true;
	values[LEASE_COLUMN_ROLE] = ObjectIdGetDatum(guard->guarding_role);
	values[LEASE_COLUMN_PID] = Int32GetDatum(guard->pid);
	nulls[LEASE_COLUMN_PID] = !visible;
	nulls[LEASE_COLUMN_REQUEST] = true;
	values[LEASE_COLUMN_REMAINING] = Float8GetDatum(0);
	values[LEASE_COLUMN_GUARDED] = BoolGetDatum(true);
	values[LEASE_COLUMN_LEAVING] = BoolGetDatum(false);
	if (!visible)
	{
		values[LEASE_COLUMN_OWNER] = values[LEASE_COLUMN_APPLICATION_NAME] =
			values[LEASE_COLUMN_CLIENT_ADDR] = CStringGetTextDatum(LEASE_MASK);
		return;
	}
	values[LEASE_COLUMN_OWNER] = text_datum((lease_bytes) {
		guard->owner, guard->owner_length
	});
	values[LEASE_COLUMN_APPLICATION_NAME] = text_datum((lease_bytes) {
		guard->application, guard->application_length
	});
	values[LEASE_COLUMN_CLIENT_ADDR] = text_datum((lease_bytes) {
		guard->address, guard->address_length
	});
	nulls[LEASE_COLUMN_CLIENT_ADDR] = guard->address_length == 0;
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
compare_positions(const void *a, const void *b)
{
	uint32		x = lease_hash_position(((const LeaseQueueKey *) a)->hash);
	uint32		y = lease_hash_position(((const LeaseQueueKey *) b)->hash);

	return x < y ? -1 : x > y ? 1 : 0;
}

/*
 * Note which names are guarded.  Names whose hash does not match belong to a
 * table that was dropped meanwhile.
 */
static void
find_guarded_names(LeaseScan *scan)
{
	Relation	rel = scan->base.rs_rd;
	MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(scan));
	int			count;

	if (scan->guarded_names != NULL)
		pfree(scan->guarded_names);
	scan->nguarded_names = scan->next_guarded_name = 0;
	scan->guarded_names = lease_queue_guarded_names(MyDatabaseId, &count);
	for (int i = 0; i < count; i++)
	{
		LeaseQueueKey *key = &scan->guarded_names[i];

		if (lease_trie_hash(rel, (lease_bytes) {
				key->name, key->length
			}) == key->hash)
			scan->guarded_names[scan->nguarded_names++] = *key;
	}
	if (scan->nguarded_names > 1)
		qsort(scan->guarded_names, scan->nguarded_names,
			  sizeof(LeaseQueueKey), compare_positions);
	MemoryContextSwitchTo(old);
}

static void
start_scan(LeaseScan *scan)
{
	lease_area_attach();
	scan->started = true;
	scan->wall_us = GetCurrentTimestamp();
	scan->readable = lease_activate_was_done(scan->base.rs_rd);
	scan->cursor = scan->end = 0;
	scan->nrows = scan->next_row = 0;
	if (!scan->readable)
		return;
	scan->now_us = lease_clock_read(scan->base.rs_rd);
	if (scan->base.rs_parallel == NULL)
		scan->end = LEASE_POSITION_END;
	find_guarded_names(scan);
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
	pgstat_count_heap_scan(rel);
	return &scan->base;
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

/* One more row of a scan, all zero. */
static LeaseScanRow *
add_row(LeaseScan *scan)
{
	LeaseScanRow *row;

	if (scan->nrows == scan->maxrows)
	{
		scan->maxrows = Max(128, scan->maxrows * 2);
		scan->rows = scan->rows == NULL ?
			palloc(scan->maxrows * sizeof(LeaseScanRow)) :
			repalloc_huge(scan->rows, scan->maxrows * sizeof(LeaseScanRow));
	}
	row = &scan->rows[scan->nrows++];
	memset(row, 0, sizeof(*row));
	return row;
}

/* Keep a copy of an entry that is not behind the cursor. */
static void
copy_row(Buffer buffer, OffsetNumber offset, LeaseEntry *entry, void *context)
{
	LeaseScan  *scan = context;
	uint32		position = lease_hash_position(entry->hash);
	Size		size = lease_entry_size(entry);
	LeaseScanRow *row;

	if (position < scan->cursor || position >= scan->end)
		return;
	row = add_row(scan);
	ItemPointerSet(&row->tid, BufferGetBlockNumber(buffer), offset);
	row->entry = palloc(size);
	memcpy(row->entry, entry, size);
}

/*
 * Mark the bucket's rows that are guarded, and add a row for each guard that
 * has none, of the names that were guarded when the scan began.  The bucket is
 * locked: a guard without a row here has lost its lease.
 */
static void
add_guards(LeaseScan *scan, uint64 next)
{
	int			nentries = scan->nrows;

	while (scan->next_guarded_name < scan->nguarded_names)
	{
		const LeaseQueueKey *key =
			&scan->guarded_names[scan->next_guarded_name];
		uint32		position = lease_hash_position(key->hash);
		lease_bytes name = {key->name, key->length};
		List	   *guards;
		ListCell   *cell;

		if (position >= next)
			break;
		scan->next_guarded_name++;
		if (position < scan->cursor)
			continue;			/* in another participant's slice */
		guards = lease_queue_copy_guards(MyDatabaseId, key->hash, name);
		foreach(cell, guards)
		{
			const LeaseGuard *guard = lfirst(cell);
			bool		has_row = false;

			for (int i = 0; i < nentries; i++)
			{
				LeaseScanRow *row = &scan->rows[i];

				if (row->entry->token == guard->token &&
					lease_same(lease_entry_name(row->entry), name))
					row->guarded = has_row = true;
			}
			if (!has_row)
			{
				LeaseScanRow *row = add_row(scan);

				ItemPointerSetInvalid(&row->tid);
				row->name = key;
				row->guard = guard;
			}
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

	MemoryContextReset(scan->memory);
	scan->rows = NULL;
	scan->nrows = scan->maxrows = scan->next_row = 0;

	bucket = lease_trie_lock_at(rel, &next, BUFFER_LOCK_SHARE);
	lease_trie_visit(rel, bucket, NULL, copy_row, scan);
	add_guards(scan, Min(next, scan->end));
	UnlockReleaseBuffer(bucket);
	scan->cursor = next;
	MemoryContextSwitchTo(old);
}

/*
 * Say whether the reader may see the owners and clients of a role's leases.  No
 * bucket is locked: this asks the catalogs.
 */
static bool
may_see(LeaseScan *scan, Oid role)
{
	uint32		place = role % SEEN_ROLES;

	/* a cursor may be read by one role after another */
	if (scan->reader != GetUserId())
	{
		scan->reader = GetUserId();
		memset(scan->seen_roles, 0, sizeof(scan->seen_roles));
	}
	if (scan->seen_roles[place] != role)
	{
		scan->visible[place] = lease_privilege_may_see(role);
		scan->seen_roles[place] = role;
	}
	return scan->visible[place];
}

/* Move on to a slice that no participant has taken; false: none is left. */
static bool
next_slice(LeaseScan *scan)
{
	LeaseParallelScan *parallel =
		(LeaseParallelScan *) scan->base.rs_parallel;
	uint32		slice;

	if (parallel == NULL)
		return false;
	slice = pg_atomic_fetch_add_u32(&parallel->next_slice, 1);
	if (slice >= SLICES)
	{
		/* keep the counter from wrapping around */
		pg_atomic_write_u32(&parallel->next_slice, SLICES);
		return false;
	}
	scan->cursor = (uint64) slice << (32 - SLICE_BITS);
	scan->end = (uint64) (slice + 1) << (32 - SLICE_BITS);
	return true;
}

static bool
lease_scan_getnextslot(TableScanDesc sscan, ScanDirection direction,
					   TupleTableSlot *slot)
{
	LeaseScan  *scan = (LeaseScan *) sscan;
	LeaseScanRow *row;
	bool		visible;
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

	while (scan->next_row >= scan->nrows)
	{
		CHECK_FOR_INTERRUPTS();
		if (scan->cursor >= scan->end && !next_slice(scan))
			return false;
		read_bucket(scan);
	}

	row = &scan->rows[scan->next_row++];
	visible = row->entry != NULL ? may_see(scan, row->entry->role) :
		may_see(scan, row->guard->role) &&
		may_see(scan, row->guard->guarding_role);
	old = MemoryContextSwitchTo(scan->memory);
	if (row->entry != NULL)
		lease_am_form_row(row->entry, visible, row->guarded, scan->now_us,
						  scan->wall_us, slot->tts_values, slot->tts_isnull);
	else
		lease_am_form_guard((lease_bytes) {row->name->name, row->name->length},
							row->guard, visible, slot->tts_values,
							slot->tts_isnull);
	MemoryContextSwitchTo(old);
	ExecStoreVirtualTuple(slot);
	slot->tts_tid = row->tid;
	slot->tts_tableOid = RelationGetRelid(sscan->rs_rd);
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
	LeaseParallelScan *parallel = (LeaseParallelScan *) pscan;

	compat_parallel_set_relation(pscan, rel);
	pscan->phs_syncscan = false;
	pg_atomic_init_u32(&parallel->next_slice, 0);
	return sizeof(LeaseParallelScan);
}

static void
lease_parallelscan_reinitialize(Relation rel, ParallelTableScanDesc pscan)
{
	pg_atomic_write_u32(&((LeaseParallelScan *) pscan)->next_slice, 0);
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
	table = relation_open(original, NoLock);
	result = table->rd_tableam == &lease_am_methods &&
		CheckRelationLockedByMe(table, AccessExclusiveLock, true);
	relation_close(table, NoLock);
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
	lease_commit_want_worker();
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
	lease_meta_adopt(NewTable, &meta);
	MemoryContextDelete(memory);
}

static uint64
lease_relation_size(Relation rel, ForkNumber fork)
{
	return table_block_relation_size(rel, fork);
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

static void
lease_tuple_insert_speculative(Relation rel, TupleTableSlot *slot,
							   CommandId cid, compat_insert_options options,
							   struct BulkInsertStateData *bistate,
							   uint32 specToken)
{
	refuse(REFUSE_CHANGE);
}

static void
lease_tuple_complete_speculative(Relation rel, TupleTableSlot *slot,
								 uint32 specToken, bool succeeded)
{
	refuse(REFUSE_CHANGE);
}

static TM_Result
lease_tuple_delete(COMPAT_DELETE_PARAMETERS)
{
	refuse(REFUSE_CHANGE);
}

static TM_Result
lease_tuple_update(COMPAT_UPDATE_PARAMETERS)
{
	refuse(REFUSE_CHANGE);
}

static TM_Result
lease_tuple_lock(Relation rel, ItemPointer tid, Snapshot snapshot,
				 TupleTableSlot *slot, CommandId cid, LockTupleMode mode,
				 LockWaitPolicy wait_policy, uint8 flags,
				 TM_FailureData *tmfd)
{
	refuse(REFUSE_ROW);
}

static bool
lease_tuple_fetch_row_version(Relation rel, ItemPointer tid,
							  Snapshot snapshot, TupleTableSlot *slot)
{
	refuse(REFUSE_ROW);
}

static bool
lease_tuple_tid_valid(TableScanDesc scan, ItemPointer tid)
{
	refuse(REFUSE_ROW);
}

static void
lease_tuple_get_latest_tid(TableScanDesc scan, ItemPointer tid)
{
	refuse(REFUSE_ROW);
}

static bool
lease_tuple_satisfies_snapshot(Relation rel, TupleTableSlot *slot,
							   Snapshot snapshot)
{
	refuse(REFUSE_ROW);
}

static struct IndexFetchTableData *
lease_index_fetch_begin(COMPAT_INDEX_FETCH_PARAMETERS)
{
	refuse(REFUSE_INDEX);
}

static void
lease_index_fetch_reset(struct IndexFetchTableData *data)
{
	refuse(REFUSE_INDEX);
}

static void
lease_index_fetch_end(struct IndexFetchTableData *data)
{
	refuse(REFUSE_INDEX);
}

static bool
lease_index_fetch_tuple(struct IndexFetchTableData *scan, ItemPointer tid,
						Snapshot snapshot, TupleTableSlot *slot,
						bool *call_again, bool *all_dead)
{
	refuse(REFUSE_INDEX);
}

static TransactionId
lease_index_delete_tuples(Relation rel, TM_IndexDeleteOp *delstate)
{
	refuse(REFUSE_INDEX);
}

static double
lease_index_build_range_scan(Relation table_rel, Relation index_rel,
							 struct IndexInfo *index_info, bool allow_sync,
							 bool anyvisible, bool progress,
							 BlockNumber start_blockno, BlockNumber numblocks,
							 IndexBuildCallback callback, void *callback_state,
							 TableScanDesc scan)
{
	refuse(REFUSE_INDEX);
}

static void
lease_index_validate_scan(Relation table_rel, Relation index_rel,
						  struct IndexInfo *index_info, Snapshot snapshot,
						  struct ValidateIndexState *state)
{
	refuse(REFUSE_INDEX);
}

static bool
lease_scan_sample_next_block(TableScanDesc scan,
							 struct SampleScanState *scanstate)
{
	refuse(REFUSE_SAMPLE);
}

static bool
lease_scan_sample_next_tuple(TableScanDesc scan,
							 struct SampleScanState *scanstate,
							 TupleTableSlot *slot)
{
	refuse(REFUSE_SAMPLE);
}

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
	.relation_size = lease_relation_size,
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
