/*
 * compat.h
 *	  All differences between PostgreSQL 15 and 19 that dlock meets.
 *
 * The wrappers carry the newest version's names; each says what changed.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_COMPAT_H
#define DLOCK_COMPAT_H

#include "access/relscan.h"
#include "access/tableam.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "catalog/pg_namespace.h"
#include "datatype/timestamp.h"
#include "pgstat.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/rel.h"

#if PG_VERSION_NUM < 150000
#error "dlock needs PostgreSQL 15 or later"
#endif

/* 16 took the macros for varlena values out of postgres.h */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* 16 renamed relation file nodes to locators */
#if PG_VERSION_NUM < 160000
#include "storage/relfilenode.h"
typedef Oid RelFileNumber;
typedef RelFileNode RelFileLocator;
#define InvalidRelFileNumber InvalidOid
#define relation_set_new_filelocator relation_set_new_filenode
#define rd_locator rd_node
#define relNumber relNode
#define rd_firstRelfilelocatorSubid rd_firstRelfilenodeSubid
#endif

/* The number of the file that a relation is stored in. */
static inline RelFileNumber
compat_relation_file(Relation rel)
{
	return rel->rd_locator.relNumber;
}

/*
 * Say whether the current transaction created the relation or gave it a new
 * file, so that a rollback would discard what is written to it now.
 */
static inline bool
compat_relation_file_is_new(Relation rel)
{
	return rel->rd_createSubid != InvalidSubTransactionId ||
		rel->rd_firstRelfilelocatorSubid != InvalidSubTransactionId;
}

/* Say whether a role may look into a schema. 16 made one function for all objects. */
static inline bool
compat_may_use_schema(Oid schema, Oid role)
{
#if PG_VERSION_NUM < 160000
	return pg_namespace_aclcheck(schema, role, ACL_USAGE) == ACLCHECK_OK;
#else
	return object_aclcheck(NamespaceRelationId, schema, role, ACL_USAGE) == ACLCHECK_OK;
#endif
}

/* What DROP DATABASE leaves when it is interrupted; minor releases added it. */
#ifndef DATCONNLIMIT_INVALID_DB
#define DATCONNLIMIT_INVALID_DB	(-2)
#endif

/*
 * Add a page to a relation and return it locked exclusively.  A backend that
 * learns the relation's length never sees a page that is added and not yet
 * locked: before 16, the extension lock is held for so long; ExtendBufferedRel,
 * which 16 added, locks the page before it lets others read it.
 */
static inline Buffer
compat_extend_locked(Relation rel)
{
#if PG_VERSION_NUM < 160000
	Buffer		buffer;

	LockRelationForExtension(rel, ExclusiveLock);
	buffer = ReadBufferExtended(rel, MAIN_FORKNUM, P_NEW, RBM_NORMAL, NULL);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	UnlockRelationForExtension(rel, ExclusiveLock);
	return buffer;
#else
	return ExtendBufferedRel(BMR_REL(rel), MAIN_FORKNUM, NULL, EB_LOCK_FIRST);
#endif
}

/*
 * Pin a page in the buffer where it last was; false if it is no longer there.
 * Takes no lock of the table of buffers, but does not count as a use of the
 * page either.
 */
static inline bool
compat_read_recent(Relation rel, BlockNumber block, Buffer buffer)
{
	if (!ReadRecentBuffer(rel->rd_locator, MAIN_FORKNUM, block, buffer))
		return false;
	pgstat_count_buffer_read(rel);
	pgstat_count_buffer_hit(rel);
	return true;
}

/* 16 made "update_indexes" of tuple_update an enum */
#if PG_VERSION_NUM < 160000
typedef bool TU_UpdateIndexes;
#endif

/* The parameters of scan_analyze_next_block; 17 gave it a stream of blocks. */
#if PG_VERSION_NUM < 170000
#define COMPAT_ANALYZE_BLOCK_PARAMETERS \
	TableScanDesc scan, BlockNumber block, BufferAccessStrategy strategy
#else
#define COMPAT_ANALYZE_BLOCK_PARAMETERS \
	TableScanDesc scan, ReadStream *stream
#endif

/*
 * The parameters of other functions of a table access method: 19 made options
 * unsigned and has more functions take them, gave others a snapshot, took it from
 * one, and made the parameters of VACUUM constant.
 */
#if PG_VERSION_NUM < 190000
typedef int compat_insert_options;
typedef struct VacuumParams compat_vacuum_params;
#define COMPAT_INDEX_FETCH_PARAMETERS \
	Relation rel
#define COMPAT_DELETE_PARAMETERS \
	Relation rel, ItemPointer tid, CommandId cid, Snapshot snapshot, \
	Snapshot crosscheck, bool wait, TM_FailureData *tmfd, bool changingPart
#define COMPAT_UPDATE_PARAMETERS \
	Relation rel, ItemPointer otid, TupleTableSlot *slot, CommandId cid, \
	Snapshot snapshot, Snapshot crosscheck, bool wait, TM_FailureData *tmfd, \
	LockTupleMode *lockmode, TU_UpdateIndexes *update_indexes
#define COMPAT_COPY_FOR_CLUSTER_PARAMETERS \
	Relation OldTable, Relation NewTable, Relation OldIndex, bool use_sort, \
	TransactionId OldestXmin, TransactionId *xid_cutoff, \
	MultiXactId *multi_cutoff, double *num_tuples, double *tups_vacuumed, \
	double *tups_recently_dead
#define COMPAT_ANALYZE_TUPLE_PARAMETERS \
	TableScanDesc scan, TransactionId OldestXmin, double *liverows, \
	double *deadrows, TupleTableSlot *slot
#else
typedef uint32 compat_insert_options;
typedef const VacuumParams compat_vacuum_params;
#define COMPAT_INDEX_FETCH_PARAMETERS \
	Relation rel, uint32 flags
#define COMPAT_DELETE_PARAMETERS \
	Relation rel, ItemPointer tid, CommandId cid, uint32 options, \
	Snapshot snapshot, Snapshot crosscheck, bool wait, TM_FailureData *tmfd
#define COMPAT_UPDATE_PARAMETERS \
	Relation rel, ItemPointer otid, TupleTableSlot *slot, CommandId cid, \
	uint32 options, Snapshot snapshot, Snapshot crosscheck, bool wait, \
	TM_FailureData *tmfd, LockTupleMode *lockmode, \
	TU_UpdateIndexes *update_indexes
#define COMPAT_COPY_FOR_CLUSTER_PARAMETERS \
	Relation OldTable, Relation NewTable, Relation OldIndex, bool use_sort, \
	TransactionId OldestXmin, Snapshot snapshot, TransactionId *xid_cutoff, \
	MultiXactId *multi_cutoff, double *num_tuples, double *tups_vacuumed, \
	double *tups_recently_dead
#define COMPAT_ANALYZE_TUPLE_PARAMETERS \
	TableScanDesc scan, double *liverows, double *deadrows, \
	TupleTableSlot *slot
#endif

/* Let this process's transactions last as long as they do. 17 added a limit. */
static inline void
compat_unlimited_transactions(void)
{
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#endif
}

/* A new tranche of locks. 19 gives it its name for all processes at once. */
static inline int
compat_new_tranche(const char *name)
{
#if PG_VERSION_NUM < 190000
	return LWLockNewTrancheId();
#else
	return LWLockNewTrancheId(name);
#endif
}

/* Let this process know a tranche's name. */
static inline void
compat_register_tranche(int tranche, const char *name)
{
#if PG_VERSION_NUM < 190000
	LWLockRegisterTranche(tranche, name);
#endif
}

/*
 * Say whether this backend has locked no page.  19 has page locks of its own; only an
 * assertion in the server can tell whether a backend holds one.
 */
static inline bool
compat_has_locked_no_page(void)
{
#if PG_VERSION_NUM < 190000
	return !LWLockAnyHeldByMe(BufferDescriptorGetContentLock(GetBufferDescriptor(0)),
							  NBuffers, sizeof(BufferDescPadded));
#else
	return true;
#endif
}

/*
 * Whether this PostgreSQL is one with which records in the internal format of
 * generic_xlog.c were tried: t/160_wal_modes.pl has passed there, and has to
 * before another is added.
 */
#define COMPAT_SMALL_RECORDS \
	(PG_VERSION_NUM / 10000 == 15 || PG_VERSION_NUM / 10000 == 17 || \
	 PG_VERSION_NUM / 10000 == 18 || PG_VERSION_NUM / 10000 == 19)

/* 18 replaced phs_relid by phs_locator. */
static inline void
compat_parallel_set_relation(ParallelTableScanDesc pscan, Relation rel)
{
#if PG_VERSION_NUM < 180000
	pscan->phs_relid = RelationGetRelid(rel);
#else
	pscan->phs_locator = rel->rd_locator;
#endif
}

/* 17 brought infinite intervals. */
static inline bool
compat_interval_is_finite(const Interval *interval)
{
#if PG_VERSION_NUM < 170000
	return true;
#else
	return !INTERVAL_NOT_FINITE(interval);
#endif
}

/*
 * libpq/libpq.h declares this, but cannot be included without the headers of
 * the Kerberos library that the server was built with.
 */
extern bool pq_check_connection(void);
extern PGDLLIMPORT struct WaitEventSet *FeBeWaitSet;
#define COMPAT_CLIENT_SOCKET	0	/* its place in FeBeWaitSet */
#define COMPAT_CLIENT_EVENTS	3	/* as many as that has */

/* Say whether this transaction has lasted too long.  17 added a limit. */
static inline bool
compat_transaction_timed_out(void)
{
#if PG_VERSION_NUM >= 170000
	return TransactionTimeoutPending && TransactionTimeout > 0;
#else
	return false;
#endif
}

/* This backend's number among all processes; 17 made it a global variable. */
static inline int
compat_my_proc_number(void)
{
#if PG_VERSION_NUM < 170000
	return MyProc->pgprocno;
#else
	return MyProcNumber;
#endif
}

/* The process of the WAL writer, or 0; 18 keeps its number instead of its latch. */
static inline int
compat_wal_writer_pid(void)
{
#if PG_VERSION_NUM < 180000
	Latch	   *latch = ProcGlobal->walwriterLatch;

	return latch == NULL ? 0 : latch->owner_pid;
#else
	ProcNumber	number = ProcGlobal->walwriterProc;

	return number == INVALID_PROC_NUMBER ? 0 : GetPGProcByNumber(number)->pid;
#endif
}

/*
 * How many settings, whose names begin so, have what a role, a database or a client has
 * made of them. 16 counts settings in another way.
 */
static inline int
compat_count_client_settings(const char *prefix)
{
#if PG_VERSION_NUM < 160000
	int			count = GetNumConfigOptions();
	struct config_generic **settings = get_guc_variables();
#else
	int			count;
	struct config_generic **settings = get_guc_variables(&count);
#endif
	int			found = 0;

	for (int i = 0; i < count; i++)
		if (settings[i]->reset_source > PGC_S_ARGV &&
			pg_strncasecmp(settings[i]->name, prefix, strlen(prefix)) == 0)
			found++;
	return found;
}

/*
 * What pg_stat_activity shows of a process that waits for a lease: the type
 * Extension.  17 lets extensions name their wait events.  (The name of a lock
 * tranche would show before, too, but as contention for a lightweight lock.)
 */
static inline uint32
compat_wait_event(const char *name)
{
#if PG_VERSION_NUM < 170000
	return PG_WAIT_EXTENSION;
#else
	return WaitEventExtensionNew(name);
#endif
}

/*
 * After a record that is no part of the caller's transaction, have PostgreSQL see
 * again what it saw before of where the transaction's last record ends.  Before 17,
 * the transaction's end would else wake the WAL writer nearly each time.
 */
static inline void
compat_restore_last_record(XLogRecPtr before)
{
#if PG_VERSION_NUM < 170000
	XactLastRecEnd = before;
#endif
}

/* 18 put pg_noreturn before the declaration */
#if PG_VERSION_NUM < 180000
#define pg_noreturn pg_attribute_noreturn()
#endif

#endif							/* DLOCK_COMPAT_H */
