/*
 * lease_inspect.c
 *	  The SQL functions that look: who holds, who waits, counters.
 *
 * All of them work on a standby.  Owners and clients of other roles are masked.
 *
 * Functions behind a view are called with the privileges of the view's reader,
 * so everybody may call them.  They answer what their view would: a role that
 * may not read it, or a column of it, does not get that from them either.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sql/lease_sql.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(dlock_owner);
PG_FUNCTION_INFO_V1(dlock_is_free);
PG_FUNCTION_INFO_V1(dlock_remaining);
PG_FUNCTION_INFO_V1(dlock_holders);
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
	char	   *name;

	Assert(lease_may_wait());
	name = GetUserNameFromId(role, true);
	return DirectFunctionCall1(namein,
							   CStringGetDatum(name ? name :
											   psprintf("unknown (OID=%u)",
														role)));
}

/* Raise an error unless the library and the table are there. */
static void
check_there(void)
{
	relation_close(lease_relation_open(AccessShareLock), AccessShareLock);
}

Datum
dlock_owner(PG_FUNCTION_ARGS)
{
	LeaseView	view;
	size_t		exclusive;
	lease_bytes owner;

	lease_store_read(get_name(fcinfo), &view);
	exclusive = lease_find_exclusive(view.holders, view.count, view.now_us);
	if (exclusive == view.count)
		PG_RETURN_NULL();
	if (!lease_privilege_may_see(view.entries[exclusive]->role))
		PG_RETURN_TEXT_P(cstring_to_text(LEASE_MASK));
	owner = view.holders[exclusive].owner;
	PG_RETURN_TEXT_P(cstring_to_text_with_len(owner.data, (int) owner.length));
}

Datum
dlock_is_free(PG_FUNCTION_ARGS)
{
	LeaseView	view;

	lease_store_read(get_name(fcinfo), &view);
	PG_RETURN_BOOL(lease_is_free(view.holders, view.count,
								 lease_lock_delay_us(), view.now_us));
}

/*
 * How many seconds are left of the lease that the caller holds as this owner;
 * NULL if it holds none.
 */
Datum
dlock_remaining(PG_FUNCTION_ARGS)
{
	lease_bytes name = get_name(fcinfo);
	lease_request request = {.op = LEASE_RENEW};
	LeaseView	view;
	size_t		mine;

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	request.token = lease_sql_token(fcinfo, 2);
	lease_store_read(name, &view);
	for (size_t i = 0; i < view.count; i++)
	{
		lease_holder *holder = &view.holders[i];
		Oid			role;

		if (view.entries[i] == NULL ||
			!lease_same(holder->owner, request.owner))
			continue;
		role = view.entries[i]->role;
		holder->standing = role == GetUserId() ? LEASE_SELF :
			has_privs_of_role(GetUserId(), role) ? LEASE_ACTS_FOR :
			LEASE_STRANGER;
	}
	mine = lease_find(&request, view.holders, view.count, view.now_us);
	if (mine == view.count)
		PG_RETURN_NULL();
	PG_RETURN_FLOAT8((double) lease_remaining_us(&view.holders[mine],
												 view.now_us) / USECS_PER_SEC);
}

/* The view has all columns of the table but the last, the request id. */
#define LOCKS_COLUMNS	(LEASE_COLUMNS - 1)

/*
 * Raise an error unless the caller may read dlock.locks, and say in "hidden" which
 * of its columns it may not read, if those were granted one by one.
 */
static void
check_may_read_locks(bool *hidden)
{
	/* without USAGE on its schema, the caller cannot read the view */
	Oid			relid = get_relname_relid("locks",
										  LookupExplicitNamespace("dlock", false));
	bool		may_read = false;

	Assert(lease_may_wait());
	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("view \"dlock.locks\" does not exist")));
	memset(hidden, false, LOCKS_COLUMNS * sizeof(bool));
	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK)
		return;
	for (int i = 0; i < LOCKS_COLUMNS; i++)
	{
		hidden[i] = pg_attribute_aclcheck(relid, i + 1, GetUserId(),
										  ACL_SELECT) != ACLCHECK_OK;
		may_read |= !hidden[i];
	}
	if (!may_read)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_VIEW, "locks");
}

/* Answer a row of dlock.locks, given one of the table. */
static void
put_locks_row(ReturnSetInfo *rsinfo, Oid role, const bool *hidden,
			  Datum *values, bool *nulls)
{
	values[LEASE_COLUMN_ROLE] = role_name(role);
	for (int i = 0; i < LOCKS_COLUMNS; i++)
		nulls[i] |= hidden[i];
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* Say whether a look has found a guard of the lease with this token. */
static bool
is_guarded(const LeaseView *view, uint64 token)
{
	for (size_t i = 0; i < view->count; i++)
		if (view->guards[i] != NULL && view->guards[i]->token == token)
			return true;
	return false;
}

/*
 * The rows of dlock.locks with one name; the view's query says the same.
 */
Datum
dlock_holders(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	lease_bytes name = get_name(fcinfo);
	LeaseView	view;
	TimestampTz wall_us;
	bool		hidden[LOCKS_COLUMNS];
	Datum		values[LEASE_COLUMNS];
	bool		nulls[LEASE_COLUMNS];

	lease_store_read(name, &view);
	wall_us = GetCurrentTimestamp();
	InitMaterializedSRF(fcinfo, 0);
	check_may_read_locks(hidden);
	for (size_t i = 0; i < view.count; i++)
	{
		const LeaseEntry *entry = view.entries[i];
		const LeaseGuard *guard = view.guards[i];

		if (entry != NULL)
		{
			lease_am_form_row(entry, lease_privilege_may_see(entry->role),
							  is_guarded(&view, entry->token), view.now_us,
							  wall_us, values, nulls);
			put_locks_row(rsinfo, entry->role, hidden, values, nulls);
		}
		else if (!lease_view_has_row(&view, guard->token))
		{
			lease_am_form_guard(name, guard,
								lease_privilege_may_see(guard->role) &&
								lease_privilege_may_see(guard->guarding_role),
								values, nulls);
			put_locks_row(rsinfo, guard->guarding_role, hidden, values, nulls);
		}
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

/* The rows of dlock.waiters, which only the view can ask for. */
Datum
dlock_read_waiters(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	LeaseWaiterCopy *waiters;
	int			count;

	check_there();
	waiters = lease_queue_copy(MyDatabaseId, &count);
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < count; i++)
	{
		const LeaseWaiter *w = &waiters[i].waiter;
		bool		visible = lease_privilege_may_see(w->role);
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

/* Add a process that acts for a role; 0 in its place if it may not be seen. */
static void
add_pid(PidSet *set, int pid, Oid role)
{
	if (!lease_privilege_may_see(role))
		pid = 0;
	for (int i = 0; i < set->count; i++)
		if (DatumGetInt32(set->pids[i]) == pid)
			return;
	set->pids[set->count++] = Int32GetDatum(pid);
}

/*
 * Say whether a waiter waits for something that a look at its name has found: for
 * its end, or until it is not in the way any more.
 */
static bool
is_waited_for(const LeaseWaiter *waiter, LeaseView *view, size_t i)
{
	lease_request request = lease_rows_request(waiter);
	lease_holder *holder = &view->holders[i];
	const LeaseGuard *guard = view->guards[i];
	Oid			role = guard != NULL ? guard->role : view->entries[i]->role;

	/* it does not wait for its own connection, but for others of its owner */
	holder->elsewhere = guard == NULL || guard->pid != waiter->pid;
	if (waiter->role_in_queue == LEASE_WAIT_WATCH)
		return lease_youngest(holder, 1, view->now_us) > 0;
	if (role == waiter->role || role == waiter->acts_for)
		holder->standing = LEASE_SELF;
	return lease_blocks(&request, holder, view->now_us);
}

/* Add the processes that keep one of "waiters" from its name. */
static void
add_blockers(PidSet *set, const LeaseWaiterCopy *waiters, int count,
			 const LeaseWaiterCopy *waiter)
{
	LeaseView	view;

	lease_store_read((lease_bytes) {
		waiter->key.name, waiter->key.length
	}, &view);
	set->pids = repalloc(set->pids, (set->count + view.count + count) *
						 sizeof(Datum));
	for (size_t i = 0; i < view.count; i++)
	{
		const LeaseEntry *entry = view.entries[i];
		const LeaseGuard *guard = view.guards[i];

		if (!is_waited_for(&waiter->waiter, &view, i))
			continue;
		if (guard != NULL)
			add_pid(set, guard->pid, guard->guarding_role);
		else
			add_pid(set, !lease_entry_is_leaving(entry) &&
					BackendPidGetProc(entry->pid) != NULL ?
					entry->pid : 0, entry->role);
	}
	for (int i = 0; i < count; i++)
		if (waiters[i].position > 0 && &waiters[i] != waiter &&
			memcmp(&waiters[i].key, &waiter->key, sizeof(LeaseQueueKey)) == 0 &&
			waiter->waiter.role_in_queue != LEASE_WAIT_WATCH &&
			(waiter->position == 0 ||
			 waiters[i].position < waiter->position))
			add_pid(set, waiters[i].waiter.pid, waiters[i].waiter.role);
}

/*
 * The processes that a waiter waits for: those that took the leases in its way,
 * or guard them, or wait ahead of it. 0 stands for a process whose connection
 * has ended while the lease goes on, for one that has released the lease with
 * effect later, and for those that the caller may not see.
 * A waiter that it may not see seems not to wait.  One that waits for any of
 * several names waits for those of each.
 */
Datum
dlock_blocking_pids(PG_FUNCTION_ARGS)
{
	int			pid = PG_GETARG_INT32(0);
	PidSet		set = {.pids = palloc(sizeof(Datum))};
	LeaseWaiterCopy *waiters;
	int			count;

	check_there();
	waiters = lease_queue_copy(MyDatabaseId, &count);
	for (int i = 0; i < count; i++)
		if (waiters[i].waiter.pid == pid &&
			lease_privilege_may_see(waiters[i].waiter.role))
			add_blockers(&set, waiters, count, &waiters[i]);
	PG_RETURN_ARRAYTYPE_P(construct_array(set.pids, set.count, INT4OID,
										  sizeof(int32), true, TYPALIGN_INT));
}

/* ----------------------------------------------------------------
 * Counters
 * ----------------------------------------------------------------
 */

/* The columns of dlock.stats: the counters, and five more. */
#define STATS_COLUMNS	(LEASE_COUNTERS + 5)

Datum
dlock_read_stats(PG_FUNCTION_ARGS)
{
	LeaseDatabase *db;
	TupleDesc	desc;
	Datum		values[STATS_COLUMNS];
	bool		nulls[STATS_COLUMNS] = {0};
	Datum		histogram[LEASE_WAIT_BUCKETS];
	int			n = 0;

	check_there();
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	Assert(desc->natts == STATS_COLUMNS);
	db = lease_state_find();
	for (int i = 0; i < LEASE_COUNTERS; i++)
		values[n++] = Int64GetDatum(db == NULL ? 0 :
									(int64) pg_atomic_read_u64(&db->counters[i]));
	values[n++] = Int64GetDatum(db == NULL ? 0 :
								(int64) pg_atomic_read_u64(&db->woken));
	values[n++] = Int64GetDatum((int64) lease_store_count_held());
	values[n++] = Int32GetDatum(db == NULL ? 0 :
								(int32) pg_atomic_read_u32(&db->nwaiters));
	for (int i = 0; i < LEASE_WAIT_BUCKETS; i++)
		histogram[i] =
			Int64GetDatum(db == NULL ? 0 :
						  (int64) pg_atomic_read_u64(&db->waits[i]));
	values[n++] =
		PointerGetDatum(construct_array(histogram, LEASE_WAIT_BUCKETS,
										INT8OID, sizeof(int64),
										FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	values[n++] =
		TimestampTzGetDatum(db == NULL ? PgStartTime :
							(int64) pg_atomic_read_u64(&db->stats_reset));
	Assert(n == STATS_COLUMNS);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}

Datum
dlock_stats_reset(PG_FUNCTION_ARGS)
{
	check_there();
	lease_state_stats_reset(lease_state_database());
	PG_RETURN_VOID();
}
