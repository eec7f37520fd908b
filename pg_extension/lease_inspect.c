/*
 * lease_inspect.c
 *	  The SQL functions that look: who holds, who waits, counters.
 *
 * All of them work on a standby.  Owners and clients of other roles are masked
 * (rule 13).
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lease_am.h"
#include "lease_bond.h"
#include "lease_sql.h"
#include "lease_store.h"
#include "lease_wait.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(dlock_owner);
PG_FUNCTION_INFO_V1(dlock_is_free);
PG_FUNCTION_INFO_V1(dlock_holders);
PG_FUNCTION_INFO_V1(dlock_may_see);
PG_FUNCTION_INFO_V1(dlock_read_stats);
PG_FUNCTION_INFO_V1(dlock_stats_reset);
PG_FUNCTION_INFO_V1(dlock_read_waiters);
PG_FUNCTION_INFO_V1(dlock_blocking_pids);

/* ----------------------------------------------------------------
 * Inspection
 * ----------------------------------------------------------------
 */

/* The name that is asked about. */
static lease_bytes
get_name(FunctionCallInfo fcinfo)
{
	return lease_sql_string(fcinfo, 0, "name");
}

static Datum
role_name(Oid role)
{
	char	   *name = GetUserNameFromId(role, true);

	return DirectFunctionCall1(namein,
							   CStringGetDatum(name ? name :
											   psprintf("unknown (OID=%u)",
														role)));
}

static LeaseDatabase *
counted_database(void)
{
	/* raises an error unless the library and the table are there */
	relation_close(lease_store_open(AccessShareLock), AccessShareLock);
	return lease_state_database();
}

Datum
dlock_may_see(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(lease_wait_may_see(PG_GETARG_OID(0)));
}

/* Show the core what it needs to judge an entry. */
static lease_holder
holder_of(const LeaseEntry *entry, int64 now_us)
{
	lease_holder holder = {.mode = entry->mode};

	holder.life = lease_bond_judge(lease_state_database(), entry, now_us,
								   &holder.deadline_us);
	return holder;
}

Datum
dlock_owner(PG_FUNCTION_ARGS)
{
	int64		now_us;
	List	   *entries = lease_store_read(get_name(fcinfo), &now_us, NULL);
	ListCell   *cell;

	foreach(cell, entries)
	{
		const LeaseEntry *entry = lfirst(cell);
		lease_bytes owner = lease_entry_owner(entry);
		lease_holder holder = holder_of(entry, now_us);

		if (entry->mode != LEASE_EXCLUSIVE || lease_is_over(&holder, now_us))
			continue;
		if (!lease_wait_may_see(entry->role))
			PG_RETURN_TEXT_P(cstring_to_text(LEASE_MASK));
		PG_RETURN_TEXT_P(cstring_to_text_with_len(owner.data,
												  (int) owner.length));
	}
	PG_RETURN_NULL();
}

Datum
dlock_is_free(PG_FUNCTION_ARGS)
{
	bool		guarded;
	int64		now_us;
	List	   *entries = lease_store_read(get_name(fcinfo), &now_us,
										   &guarded);
	ListCell   *cell;

	foreach(cell, entries)
	{
		lease_holder holder = holder_of(lfirst(cell), now_us);

		if (lease_is_in_the_way(&holder, lease_lock_delay_us(), now_us))
			PG_RETURN_BOOL(false);
	}
	PG_RETURN_BOOL(!guarded);
}

/* The rows of dlock.locks with one name; the view's query says the same. */
Datum
dlock_holders(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int64		now_us;
	List	   *entries = lease_store_read(get_name(fcinfo), &now_us, NULL);
	TimestampTz wall_us = GetCurrentTimestamp();
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, entries)
	{
		const LeaseEntry *entry = lfirst(cell);
		Datum		values[LEASE_COLUMNS];
		bool		nulls[LEASE_COLUMNS];
		lease_am_form_row(entry, now_us, wall_us, values, nulls);
		values[LEASE_COLUMN_ROLE] = role_name(entry->role);
		if (!lease_wait_may_see(entry->role))
		{
			values[LEASE_COLUMN_OWNER] = CStringGetTextDatum(LEASE_MASK);
			values[LEASE_COLUMN_APPLICATION_NAME] = CStringGetTextDatum(LEASE_MASK);
			values[LEASE_COLUMN_CLIENT_ADDR] = CStringGetTextDatum(LEASE_MASK);
			nulls[LEASE_COLUMN_CLIENT_ADDR] = false;
			nulls[LEASE_COLUMN_PID] = true;
		}

		/* the view has all columns but the last, the request id */
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ----------------------------------------------------------------
 * Waiters
 * ----------------------------------------------------------------
 */

/* The columns of dlock.waiters. */
enum
{
	WAITER_NAME,
	WAITER_OWNER,
	WAITER_MODE,
	WAITER_POSITION,
	WAITER_SINCE,
	WAITER_ROLE,
	WAITER_PID,
	WAITER_APPLICATION_NAME,
	WAITER_CLIENT_ADDR,
	WAITER_COLUMNS
};

static Datum
masked(bool visible, const char *data, size_t length)
{
	if (!visible)
		return CStringGetTextDatum(LEASE_MASK);
	return PointerGetDatum(cstring_to_text_with_len(data, (int) length));
}

/* The rows of dlock.waiters. */
Datum
dlock_read_waiters(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	LeaseWaiterCopy *waiters;
	int			count;

	(void) counted_database();
	waiters = lease_queue_copy(MyDatabaseId, &count);
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < count; i++)
	{
		const LeaseWaiter *w = &waiters[i].waiter;
		bool		visible = lease_wait_may_see(w->role);
		Datum		values[WAITER_COLUMNS];
		bool		nulls[WAITER_COLUMNS] = {0};

		values[WAITER_NAME] = masked(true, waiters[i].key.name,
									 waiters[i].key.length);
		values[WAITER_OWNER] = masked(visible, w->owner, w->owner_length);
		nulls[WAITER_OWNER] = w->owner_length == 0;
		values[WAITER_MODE] = CStringGetTextDatum(lease_mode_name(w->mode));
		nulls[WAITER_MODE] = w->role_in_queue == LEASE_WAIT_WATCH;
		values[WAITER_POSITION] = Int32GetDatum(waiters[i].position);
		nulls[WAITER_POSITION] = waiters[i].position == 0;
		values[WAITER_SINCE] = TimestampTzGetDatum(w->since);
		values[WAITER_ROLE] = role_name(w->role);
		values[WAITER_PID] = Int32GetDatum(w->pid);
		nulls[WAITER_PID] = !visible;
		values[WAITER_APPLICATION_NAME] = masked(visible, w->application,
												 w->application_length);
		values[WAITER_CLIENT_ADDR] = masked(visible, w->address,
											w->address_length);
		nulls[WAITER_CLIENT_ADDR] = visible && w->address_length == 0;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
							 nulls);
	}
	return (Datum) 0;
}

/* A list of process ids without repetition. */
typedef struct PidSet
{
	Datum	   *pids;
	int			count;
} PidSet;

static void
add_pid(PidSet *set, int pid)
{
	for (int i = 0; i < set->count; i++)
		if (DatumGetInt32(set->pids[i]) == pid)
			return;
	set->pids[set->count++] = Int32GetDatum(pid);
}

/*
 * The processes that a waiter waits for: those that took the leases in its way,
 * or guard them, or wait ahead of it.  0 stands for one whose connection has
 * ended while the lease goes on.
 */
Datum
dlock_blocking_pids(PG_FUNCTION_ARGS)
{
	int			pid = PG_GETARG_INT32(0);
	PidSet		set;
	LeaseWaiterCopy *waiters;
	const LeaseWaiterCopy *waiter = NULL;
	int			count;
	lease_bytes name;
	List	   *guards;
	List	   *entries;
	ListCell   *cell;
	int64		now_us;

	(void) counted_database();
	waiters = lease_queue_copy(MyDatabaseId, &count);
	for (int i = 0; i < count; i++)
		if (waiters[i].waiter.pid == pid)
			waiter = &waiters[i];
	if (waiter == NULL)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(INT4OID));

	name = (lease_bytes) {waiter->key.name, waiter->key.length};
	entries = lease_store_read(name, &now_us, NULL);
	guards = lease_queue_guard_pids(MyDatabaseId, waiter->key.hash, name);
	set.pids = palloc((list_length(entries) + list_length(guards) + count) *
					  sizeof(Datum));
	set.count = 0;
	foreach(cell, entries)
	{
		const LeaseEntry *entry = lfirst(cell);
		lease_holder holder = holder_of(entry, now_us);

		if (!lease_is_in_the_way(&holder, lease_lock_delay_us(), now_us) ||
			(entry->mode == LEASE_SHARED &&
			 waiter->waiter.mode == LEASE_SHARED))
			continue;
		add_pid(&set, BackendPidGetProc(entry->pid) != NULL ? entry->pid : 0);
	}
	foreach(cell, guards)
		add_pid(&set, lfirst_int(cell));
	for (int i = 0; i < count; i++)
		if (waiters[i].position > 0 && &waiters[i] != waiter &&
			memcmp(&waiters[i].key, &waiter->key, sizeof(LeaseQueueKey)) == 0 &&
			waiter->waiter.role_in_queue != LEASE_WAIT_WATCH &&
			(waiter->position == 0 ||
			 waiters[i].position < waiter->position))
			add_pid(&set, waiters[i].waiter.pid);
	PG_RETURN_ARRAYTYPE_P(construct_array(set.pids, set.count, INT4OID,
										  sizeof(int32), true, TYPALIGN_INT));
}

/* ----------------------------------------------------------------
 * Counters
 * ----------------------------------------------------------------
 */

Datum
dlock_read_stats(PG_FUNCTION_ARGS)
{
	LeaseDatabase *db = counted_database();
	TupleDesc	desc;
	Datum		values[LEASE_COUNTERS + 4];
	bool		nulls[LEASE_COUNTERS + 4] = {0};
	Datum		histogram[LEASE_WAIT_BUCKETS];

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	for (int i = 0; i < LEASE_COUNTERS; i++)
		values[i] =
			Int64GetDatum((int64) pg_atomic_read_u64(&db->counters[i]));

	for (int i = 0; i < LEASE_WAIT_BUCKETS; i++)
		histogram[i] =
			Int64GetDatum((int64) pg_atomic_read_u64(&db->waits[i]));
	values[LEASE_COUNTERS] =
		Int64GetDatum((int64) pg_atomic_read_u64(&db->woken));
	values[LEASE_COUNTERS + 1] =
		Int32GetDatum(lease_queue_count(MyDatabaseId));
	values[LEASE_COUNTERS + 2] =
		PointerGetDatum(construct_array(histogram, LEASE_WAIT_BUCKETS,
										INT8OID, sizeof(int64),
										FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	values[LEASE_COUNTERS + 3] =
		TimestampTzGetDatum((int64) pg_atomic_read_u64(&db->stats_reset));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}

Datum
dlock_stats_reset(PG_FUNCTION_ARGS)
{
	lease_state_stats_reset(counted_database());
	PG_RETURN_VOID();
}
