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

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lease_all.h"
#include "lease_am.h"
#include "lease_session.h"
#include "lease_sql.h"
#include "lease_store.h"
#include "lease_wait.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(dlock_acquire);
PG_FUNCTION_INFO_V1(dlock_acquire_shared);
PG_FUNCTION_INFO_V1(dlock_acquire_permit);
PG_FUNCTION_INFO_V1(dlock_acquire_all);
PG_FUNCTION_INFO_V1(dlock_acquire_session);
PG_FUNCTION_INFO_V1(dlock_acquire_xact);
PG_FUNCTION_INFO_V1(dlock_guard);
PG_FUNCTION_INFO_V1(dlock_wait);
PG_FUNCTION_INFO_V1(dlock_renew);
PG_FUNCTION_INFO_V1(dlock_renew_all);
PG_FUNCTION_INFO_V1(dlock_release);
PG_FUNCTION_INFO_V1(dlock_release_all);
PG_FUNCTION_INFO_V1(dlock_force_release);

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

/* Check the length of a name, owner or request id. */
static lease_bytes
check_string(lease_bytes string, const char *what)
{
	if (!lease_check_string(string.length))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be 1 to %d bytes long", what,
						LEASE_STRING_MAX),
				 errdetail("It is %zu bytes long.", string.length)));
	return string;
}

/* A name, owner or request id that is not NULL. */
lease_bytes
lease_sql_string(FunctionCallInfo fcinfo, int argument, const char *what)
{
	text	   *value;

	check_not_null(fcinfo, argument, what);
	value = PG_GETARG_TEXT_PP(argument);
	return check_string((lease_bytes) {
		VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)
	}, what);
}

/* The same, where NULL stands for "not given". */
static lease_bytes
get_optional_string(FunctionCallInfo fcinfo, int argument, const char *what)
{
	if (PG_ARGISNULL(argument))
		return (lease_bytes) {NULL, 0};
	return lease_sql_string(fcinfo, argument, what);
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

/* How long to wait, in microseconds; negative: without limit. */
static int64
get_wait(FunctionCallInfo fcinfo, int argument)
{
	check_not_null(fcinfo, argument, "wait");
	return PG_GETARG_INT64(argument);
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

static const char *
lease_kind_name(lease_kind kind)
{
	switch (kind)
	{
		case LEASE_PLAIN:
			return "plain";
		case LEASE_SESSION:
			return "session";
		case LEASE_TRANSACTION:
			return "transaction";
	}
	return "?";					/* keep the compiler quiet */
}

/* Raise an error if a request was misuse. */
static void
check_misuse(lease_bytes name, const lease_request *request,
			 const LeaseAnswer *answer)
{
	char	   *shown_name = pnstrdup(name.data, name.length);
	char	   *shown_owner = pnstrdup(request->owner.data,
									   request->owner.length);

	if (answer->outcome == LEASE_UPGRADE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("owner \"%s\" holds a shared lease on \"%s\" and cannot make it exclusive",
						shown_owner, shown_name),
				 errhint("Release the shared lease first.")));
	if (answer->outcome == LEASE_MIXED)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("owner \"%s\" holds \"%s\" in mode %s and cannot also take it in mode %s",
						shown_owner, shown_name,
						lease_mode_name(answer->held_mode),
						lease_mode_name(request->mode)),
				 errhint("Release it first.")));
	if (answer->outcome == LEASE_MIXED_KINDS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("owner \"%s\" holds \"%s\" as a %s lease and cannot also take it as a %s lease",
						shown_owner, shown_name,
						lease_kind_name(answer->held_kind),
						lease_kind_name(request->kind)),
				 errhint("Release it first.")));
	if (answer->outcome == LEASE_TOO_MANY_HOLDS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("owner \"%s\" cannot hold \"%s\" more than %d times",
						shown_owner, shown_name, LEASE_VERSION_MAX)));
	if (answer->outcome == LEASE_NO_TOKENS)
		ereport(ERROR,
				(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				 errmsg("no tokens are left for \"%s\"", shown_name)));
	pfree(shown_name);
	pfree(shown_owner);
}

/* Take a lease: its token, or 0 when it is not free within wait_us. */
static uint64
take(lease_bytes name, lease_request *request, int64 wait_us)
{
	LeaseAnswer answer;

	request->op = LEASE_ACQUIRE;
	answer = lease_store_apply(name, request, wait_us);
	if (lease_is_granted(answer.outcome))
		return answer.token;
	if (answer.outcome != LEASE_BUSY)
		check_misuse(name, request, &answer);
	return 0;
}

static Datum
acquire(FunctionCallInfo fcinfo, const char *function, lease_mode mode)
{
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	lease_request request = {.mode = mode, .kind = LEASE_PLAIN};
	int			wait_argument = mode == LEASE_PERMIT ? 4 : 3;
	int64		wait_us;
	uint64		token;

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	request.ttl_us = get_ttl(fcinfo, 2);
	if (mode == LEASE_PERMIT)
		request.limit = get_limit(fcinfo, 3);
	wait_us = get_wait(fcinfo, wait_argument);
	request.request = get_optional_string(fcinfo, wait_argument + 1,
										  "request id");
	check_may_change(function);
	token = take(name, &request, wait_us);
	if (token == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64((int64) token);
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

/*
 * Pin a lease that the caller holds until the transaction's end, or raise an
 * error that says who holds it now, if the caller may know.
 */
static void
guard(lease_bytes name, lease_bytes owner, uint64 token)
{
	LeaseEntry *holder;
	lease_bytes holding_owner;

	if (lease_store_guard(name, owner, token, &holder))
		return;
	if (holder != NULL)
		holding_owner = lease_entry_owner(holder);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("owner \"%s\" no longer holds the lease on \"%s\" with this token",
					pnstrdup(owner.data, owner.length),
					pnstrdup(name.data, name.length)),
			 holder == NULL ? errdetail("Nobody holds it.") :
			 !lease_wait_may_see(holder->role) ?
			 errdetail("Somebody else holds it.") :
			 errdetail("Owner \"%s\" holds it with token %llu.",
					   pnstrdup(holding_owner.data, holding_owner.length),
					   (unsigned long long) holder->token),
			 errhint("Roll back, and acquire the lease again.")));
}

/* Take a lease that ends with the session or the transaction. */
static Datum
acquire_bound(FunctionCallInfo fcinfo, const char *function, lease_kind kind)
{
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	lease_request request = {.mode = LEASE_EXCLUSIVE, .kind = kind};
	int64		wait_us;
	uint64		token;

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	request.ttl_us = get_ttl(fcinfo, 2);
	wait_us = get_wait(fcinfo, 3);
	check_may_change(function);
	lease_session_watch();
	lease_session_use(kind);
	token = take(name, &request, wait_us);
	if (token == 0)
		PG_RETURN_NULL();
	lease_session_took(name, request.owner, kind, token);
	if (kind == LEASE_TRANSACTION)
		guard(name, request.owner, token);
	PG_RETURN_INT64((int64) token);
}

Datum
dlock_acquire_session(PG_FUNCTION_ARGS)
{
	return acquire_bound(fcinfo, "dlock_acquire_session()", LEASE_SESSION);
}

Datum
dlock_acquire_xact(PG_FUNCTION_ARGS)
{
	return acquire_bound(fcinfo, "dlock_acquire_xact()", LEASE_TRANSACTION);
}

Datum
dlock_guard(PG_FUNCTION_ARGS)
{
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	lease_bytes owner = lease_sql_string(fcinfo, 1, "owner");
	uint64		token;

	check_not_null(fcinfo, 2, "token");
	token = get_token(fcinfo, 2);
	check_may_change("dlock_guard()");
	if (!IsTransactionBlock())
		ereport(ERROR,
				(errcode(ERRCODE_NO_ACTIVE_SQL_TRANSACTION),
				 errmsg("dlock_guard() can only be used in transaction blocks"),
				 errdetail("The guard would end at once.")));
	lease_session_watch();
	guard(name, owner, token);
	PG_RETURN_VOID();
}

static int
compare_names(const void *a, const void *b)
{
	const lease_bytes *x = a;
	const lease_bytes *y = b;

	if (x->length != y->length)
		return x->length < y->length ? -1 : 1;
	return memcmp(x->data, y->data, x->length);
}

/* Check that no name is there twice. */
static void
check_distinct(const lease_bytes *names, int count)
{
	lease_bytes sorted[LEASE_ALL_MAX];

	memcpy(sorted, names, count * sizeof(lease_bytes));
	qsort(sorted, count, sizeof(lease_bytes), compare_names);
	for (int i = 1; i < count; i++)
		if (lease_same(sorted[i - 1], sorted[i]))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("names must not contain \"%s\" twice",
							pnstrdup(sorted[i].data, sorted[i].length))));
}

/* The names of dlock_acquire_all(), checked. */
static lease_bytes *
get_names(FunctionCallInfo fcinfo, int argument, int *count)
{
	ArrayType  *array;
	Datum	   *elements;
	bool	   *nulls;
	lease_bytes *names;

	check_not_null(fcinfo, argument, "names");
	array = PG_GETARG_ARRAYTYPE_P(argument);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("names must be a one-dimensional array")));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements,
					  &nulls, count);
	if (*count < 1 || *count > LEASE_ALL_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("names must be 1 to %d names", LEASE_ALL_MAX),
				 errdetail("There are %d.", *count)));
	names = palloc(*count * sizeof(lease_bytes));
	for (int i = 0; i < *count; i++)
	{
		text	   *value;

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("names must not contain nulls")));
		value = DatumGetTextPP(elements[i]);
		names[i] = check_string((lease_bytes) {
			VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)
		}, "name");
	}
	check_distinct(names, *count);
	return names;
}

Datum
dlock_acquire_all(PG_FUNCTION_ARGS)
{
	int			count;
	lease_bytes *names = get_names(fcinfo, 0, &count);
	lease_request request = {
		.op = LEASE_ACQUIRE, .mode = LEASE_EXCLUSIVE, .kind = LEASE_PLAIN
	};
	uint64	   *tokens = palloc(count * sizeof(uint64));
	Datum	   *elements = palloc(count * sizeof(Datum));
	int64		wait_us;
	LeaseAnswer answer;
	int			failed;

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	request.ttl_us = get_ttl(fcinfo, 2);
	wait_us = get_wait(fcinfo, 3);
	request.request = get_optional_string(fcinfo, 4, "request id");
	check_may_change("dlock_acquire_all()");

	answer = lease_all_acquire(names, count, &request, wait_us, tokens,
							   &failed);
	if (answer.outcome == LEASE_BUSY)
		PG_RETURN_NULL();
	if (!lease_is_granted(answer.outcome))
		check_misuse(names[failed], &request, &answer);
	for (int i = 0; i < count; i++)
		elements[i] = Int64GetDatum((int64) tokens[i]);
	PG_RETURN_ARRAYTYPE_P(construct_array(elements, count, INT8OID,
										  sizeof(int64), FLOAT8PASSBYVAL,
										  TYPALIGN_DOUBLE));
}

Datum
dlock_wait(PG_FUNCTION_ARGS)
{
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	int64		wait_us = get_wait(fcinfo, 1);

	check_may_change("dlock_wait()");
	PG_RETURN_BOOL(lease_store_wait(name, wait_us));
}

/* true: done; false: held, but not by this holder and token; NULL: not held */
static Datum
change_held(FunctionCallInfo fcinfo, lease_bytes name,
			const lease_request *request)
{
	LeaseAnswer answer = lease_store_apply(name, request, 0);

	if (answer.gone)
		lease_session_gave(name, answer.token);
	switch (answer.outcome)
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
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	lease_request request = {.op = LEASE_RENEW};

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	request.ttl_us = get_ttl(fcinfo, 2);
	request.token = get_token(fcinfo, 3);
	check_may_change("dlock_renew()");
	return change_held(fcinfo, name, &request);
}

Datum
dlock_release(PG_FUNCTION_ARGS)
{
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	lease_request request = {.op = LEASE_RELEASE};

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	request.token = get_token(fcinfo, 2);
	check_may_change("dlock_release()");
	return change_held(fcinfo, name, &request);
}

Datum
dlock_renew_all(PG_FUNCTION_ARGS)
{
	lease_request request = {.op = LEASE_RENEW};

	request.owner = lease_sql_string(fcinfo, 0, "owner");
	request.ttl_us = get_ttl(fcinfo, 1);
	check_may_change("dlock_renew_all()");
	PG_RETURN_INT64((int64) lease_store_apply_all(&request));
}

Datum
dlock_release_all(PG_FUNCTION_ARGS)
{
	lease_request request = {.op = LEASE_DROP};
	uint64		dropped;

	request.owner = lease_sql_string(fcinfo, 0, "owner");
	check_may_change("dlock_release_all()");
	dropped = lease_store_apply_all(&request);
	lease_session_gave_all(request.owner);
	PG_RETURN_INT64((int64) dropped);
}

Datum
dlock_force_release(PG_FUNCTION_ARGS)
{
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	lease_request request = {.op = LEASE_EVICT};

	if (PG_NARGS() > 1)
		request.owner = lease_sql_string(fcinfo, 1, "owner");
	check_may_change("dlock_force_release()");
	PG_RETURN_INT64((int64) lease_store_apply(name, &request, 0).ended);
}
