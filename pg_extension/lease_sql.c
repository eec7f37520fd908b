/*
 * lease_sql.c
 *	  The SQL functions: check arguments, call the store, say what came of it.
 *
 * The SQL signatures, with the meaning of arguments and answers, are in
 * dlock--1.0.0.sql and doc/dlock.md.  Functions are called on NULL so that a
 * NULL argument is an error.  All messages that a lease can lead to are in this
 * file.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lease_am.h"
#include "lease_store.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#define WAIT_HISTOGRAM_BUCKETS	24

PG_FUNCTION_INFO_V1(dlock_acquire);
PG_FUNCTION_INFO_V1(dlock_acquire_shared);
PG_FUNCTION_INFO_V1(dlock_acquire_permit);
PG_FUNCTION_INFO_V1(dlock_renew);
PG_FUNCTION_INFO_V1(dlock_renew_all);
PG_FUNCTION_INFO_V1(dlock_release);
PG_FUNCTION_INFO_V1(dlock_release_all);
PG_FUNCTION_INFO_V1(dlock_owner);
PG_FUNCTION_INFO_V1(dlock_is_free);
PG_FUNCTION_INFO_V1(dlock_holders);
PG_FUNCTION_INFO_V1(dlock_force_release);
PG_FUNCTION_INFO_V1(dlock_may_see);
PG_FUNCTION_INFO_V1(dlock_read_stats);
PG_FUNCTION_INFO_V1(dlock_stats_reset);

/* ----------------------------------------------------------------
 * Arguments
 * ----------------------------------------------------------------
 */

/* Check that an argument is not NULL. */
static void
check_not_null(FunctionCallInfo fcinfo, int argument, const char *what)
{
	if (PG_ARGISNULL(argument))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
}

/* A name, owner or request id that is not NULL. */
static lease_bytes
get_string(FunctionCallInfo fcinfo, int argument, const char *what)
{
	text	   *value;
	lease_bytes result;

	check_not_null(fcinfo, argument, what);
	value = PG_GETARG_TEXT_PP(argument);
	result = (lease_bytes) {VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
	if (!lease_check_string(result.length))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be 1 to %d bytes long", what,
						LEASE_STRING_MAX),
				 errdetail("It is %zu bytes long.", result.length)));
	return result;
}

/* The same, where NULL stands for "not given". */
static lease_bytes
get_optional_string(FunctionCallInfo fcinfo, int argument, const char *what)
{
	if (PG_ARGISNULL(argument))
		return (lease_bytes) {NULL, 0};
	return get_string(fcinfo, argument, what);
}

static int64
get_ttl(FunctionCallInfo fcinfo, int argument)
{
	int64		ttl_us;

	check_not_null(fcinfo, argument, "ttl");
	ttl_us = PG_GETARG_INT64(argument);
	if (!lease_check_ttl(ttl_us))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ttl must be greater than 0 and at most %lld seconds",
						(long long) (LEASE_TTL_MAX_US / USECS_PER_SEC))));
	return ttl_us;
}

/* The token to match, or 0 for any. */
static uint64
get_token(FunctionCallInfo fcinfo, int argument)
{
	int64		token;

	if (PG_ARGISNULL(argument))
		return 0;

	/* What was never a token matches none: UINT64_MAX is not one either. */
	token = PG_GETARG_INT64(argument);
	return token > 0 ? (uint64) token : PG_UINT64_MAX;
}

static uint32
get_limit(FunctionCallInfo fcinfo, int argument)
{
	int32		limit;

	check_not_null(fcinfo, argument, "limit");
	limit = PG_GETARG_INT32(argument);
	if (limit < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("limit must be at least 1")));
	return limit;
}

static void
check_wait(FunctionCallInfo fcinfo, int argument)
{
	check_not_null(fcinfo, argument, "wait");
	if (PG_GETARG_INT64(argument) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("waiting for a lease is not supported yet"),
				 errhint("Leave out \"wait\" and try again later.")));
}

/* Check that this server and this process may change leases. */
static void
check_may_change(const char *function)
{
	PreventCommandDuringRecovery(function);
	PreventCommandIfParallelMode(function);
}

/* ----------------------------------------------------------------
 * Answers
 * ----------------------------------------------------------------
 */

/* Raise an error if a request was misuse. */
static void
check_misuse(lease_bytes name, const lease_request *request,
			 const LeaseAnswer *answer)
{
	char	   *name_text = pnstrdup(name.data, name.length);
	char	   *owner_text = pnstrdup(request->owner.data,
									  request->owner.length);

	if (answer->outcome == LEASE_UPGRADE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("owner \"%s\" holds a shared lease on \"%s\" and cannot make it exclusive",
						owner_text, name_text),
				 errhint("Release the shared lease first.")));
	if (answer->outcome == LEASE_MIXED)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("owner \"%s\" holds \"%s\" in mode %s and cannot also take it in mode %s",
						owner_text, name_text,
						lease_mode_name(answer->held_mode),
						lease_mode_name(request->mode)),
				 errhint("Release it first.")));
	if (answer->outcome == LEASE_TOO_MANY_HOLDS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("owner \"%s\" cannot hold \"%s\" more than %d times",
						owner_text, name_text, LEASE_VERSION_MAX)));
	if (answer->outcome == LEASE_NO_TOKENS)
		ereport(ERROR,
				(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				 errmsg("no tokens are left for \"%s\"", name_text)));
	pfree(name_text);
	pfree(owner_text);
}

/* Take a lease: its token, or NULL when it is not free. */
static Datum
acquire(FunctionCallInfo fcinfo, const char *function, lease_mode mode)
{
	lease_bytes name = get_string(fcinfo, 0, "name");
	lease_request request = {.op = LEASE_ACQUIRE, .mode = mode};
	int			wait_argument = mode == LEASE_PERMIT ? 4 : 3;
	LeaseAnswer answer;

	request.owner = get_string(fcinfo, 1, "owner");
	request.ttl_us = get_ttl(fcinfo, 2);
	if (mode == LEASE_PERMIT)
		request.limit = get_limit(fcinfo, 3);
	check_wait(fcinfo, wait_argument);
	request.request = get_optional_string(fcinfo, wait_argument + 1,
										  "request id");
	check_may_change(function);

	answer = lease_store_apply(name, &request);
	if (answer.outcome == LEASE_GRANTED ||
		answer.outcome == LEASE_REENTERED ||
		answer.outcome == LEASE_REPLAYED)
		PG_RETURN_INT64((int64) answer.token);
	if (answer.outcome != LEASE_BUSY)
		check_misuse(name, &request, &answer);
	PG_RETURN_NULL();
}

Datum
dlock_acquire(PG_FUNCTION_ARGS)
{
	return acquire(fcinfo, "dlock_acquire()", LEASE_EXCLUSIVE);
}

Datum
dlock_acquire_shared(PG_FUNCTION_ARGS)
{
	return acquire(fcinfo, "dlock_acquire_shared()", LEASE_SHARED);
}

Datum
dlock_acquire_permit(PG_FUNCTION_ARGS)
{
	return acquire(fcinfo, "dlock_acquire_permit()", LEASE_PERMIT);
}

/* true: done; false: held, but not by this holder and token; NULL: not held */
static Datum
change_held(FunctionCallInfo fcinfo, lease_bytes name,
			const lease_request *request)
{
	switch (lease_store_apply(name, request).outcome)
	{
		case LEASE_NOT_HELD:
			PG_RETURN_NULL();
		case LEASE_NOT_YOURS:
			PG_RETURN_BOOL(false);
		default:
			PG_RETURN_BOOL(true);
	}
}

Datum
dlock_renew(PG_FUNCTION_ARGS)
{
	lease_bytes name = get_string(fcinfo, 0, "name");
	lease_request request = {.op = LEASE_RENEW};

	request.owner = get_string(fcinfo, 1, "owner");
	request.ttl_us = get_ttl(fcinfo, 2);
	request.token = get_token(fcinfo, 3);
	check_may_change("dlock_renew()");
	return change_held(fcinfo, name, &request);
}

Datum
dlock_release(PG_FUNCTION_ARGS)
{
	lease_bytes name = get_string(fcinfo, 0, "name");
	lease_request request = {.op = LEASE_RELEASE};

	request.owner = get_string(fcinfo, 1, "owner");
	request.token = get_token(fcinfo, 2);
	check_may_change("dlock_release()");
	return change_held(fcinfo, name, &request);
}

Datum
dlock_renew_all(PG_FUNCTION_ARGS)
{
	lease_request request = {.op = LEASE_RENEW};

	request.owner = get_string(fcinfo, 0, "owner");
	request.ttl_us = get_ttl(fcinfo, 1);
	check_may_change("dlock_renew_all()");
	PG_RETURN_INT64((int64) lease_store_apply_all(&request));
}

Datum
dlock_release_all(PG_FUNCTION_ARGS)
{
	lease_request request = {.op = LEASE_DROP};

	request.owner = get_string(fcinfo, 0, "owner");
	check_may_change("dlock_release_all()");
	PG_RETURN_INT64((int64) lease_store_apply_all(&request));
}

Datum
dlock_force_release(PG_FUNCTION_ARGS)
{
	lease_bytes name = get_string(fcinfo, 0, "name");
	lease_request request = {.op = LEASE_EVICT};

	if (PG_NARGS() > 1)
		request.owner = get_string(fcinfo, 1, "owner");
	check_may_change("dlock_force_release()");
	PG_RETURN_INT64((int64) lease_store_apply(name, &request).ended);
}

/* ----------------------------------------------------------------
 * Inspection
 * ----------------------------------------------------------------
 */

/* Say whether the caller may see the owners and clients of a role's leases. */
static bool
may_see(Oid role)
{
	return has_privs_of_role(GetUserId(), role) ||
		has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

Datum
dlock_may_see(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(may_see(PG_GETARG_OID(0)));
}

#define MASK	"<insufficient privilege>"

static bool
entry_is_over(const LeaseEntry *entry, int64 now_us)
{
	lease_holder holder = {.deadline_us = entry->deadline_us};

	return lease_is_over(&holder, now_us);
}

Datum
dlock_owner(PG_FUNCTION_ARGS)
{
	int64		now_us;
	List	   *entries = lease_store_read(get_string(fcinfo, 0, "name"),
										   &now_us);
	ListCell   *cell;

	foreach(cell, entries)
	{
		const LeaseEntry *entry = lfirst(cell);
		lease_bytes owner = lease_entry_owner(entry);

		if (entry->mode != LEASE_EXCLUSIVE || entry_is_over(entry, now_us))
			continue;
		if (!may_see(entry->role))
			PG_RETURN_TEXT_P(cstring_to_text(MASK));
		PG_RETURN_TEXT_P(cstring_to_text_with_len(owner.data,
												  (int) owner.length));
	}
	PG_RETURN_NULL();
}

Datum
dlock_is_free(PG_FUNCTION_ARGS)
{
	int64		now_us;
	List	   *entries = lease_store_read(get_string(fcinfo, 0, "name"),
										   &now_us);
	ListCell   *cell;

	foreach(cell, entries)
	{
		if (!entry_is_over(lfirst(cell), now_us))
			PG_RETURN_BOOL(false);
	}
	PG_RETURN_BOOL(true);
}

/* The rows of dlock.locks with one name; the view's query says the same. */
Datum
dlock_holders(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int64		now_us;
	List	   *entries = lease_store_read(get_string(fcinfo, 0, "name"),
										   &now_us);
	TimestampTz wall_us = GetCurrentTimestamp();
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, entries)
	{
		const LeaseEntry *entry = lfirst(cell);
		Datum		values[LEASE_COLUMNS];
		bool		nulls[LEASE_COLUMNS];
		char	   *role = GetUserNameFromId(entry->role, true);

		lease_am_form_row(entry, now_us, wall_us, values, nulls);
		values[LEASE_COLUMN_ROLE] =
			DirectFunctionCall1(namein, CStringGetDatum(role ? role :
														psprintf("unknown (OID=%u)",
																 entry->role)));
		if (!may_see(entry->role))
		{
			values[LEASE_COLUMN_OWNER] = CStringGetTextDatum(MASK);
			values[LEASE_COLUMN_APPLICATION_NAME] = CStringGetTextDatum(MASK);
			values[LEASE_COLUMN_CLIENT_ADDR] = CStringGetTextDatum(MASK);
			nulls[LEASE_COLUMN_CLIENT_ADDR] = false;
			nulls[LEASE_COLUMN_PID] = true;
		}

		/* the view has all columns but the last, the request id */
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ----------------------------------------------------------------
 * Counters
 * ----------------------------------------------------------------
 */

static LeaseDatabase *
counted_database(void)
{
	/* raises an error unless the library and the table are there */
	relation_close(lease_store_open(AccessShareLock), AccessShareLock);
	return lease_state_database();
}

Datum
dlock_read_stats(PG_FUNCTION_ARGS)
{
	LeaseDatabase *db = counted_database();
	TupleDesc	desc;
	Datum		values[LEASE_COUNTERS + 3];
	bool		nulls[LEASE_COUNTERS + 3] = {0};
	Datum		histogram[WAIT_HISTOGRAM_BUCKETS];

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	for (int i = 0; i < LEASE_COUNTERS; i++)
		values[i] =
			Int64GetDatum((int64) pg_atomic_read_u64(&db->counters[i]));

	/* nobody can wait yet */
	for (int i = 0; i < WAIT_HISTOGRAM_BUCKETS; i++)
		histogram[i] = Int64GetDatum(0);
	values[LEASE_COUNTERS] = Int32GetDatum(0);
	values[LEASE_COUNTERS + 1] =
		PointerGetDatum(construct_array(histogram, WAIT_HISTOGRAM_BUCKETS,
										INT8OID, sizeof(int64),
										FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	values[LEASE_COUNTERS + 2] =
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
