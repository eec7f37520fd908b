/*
 * lease_sql.c
 *	  The SQL functions: check arguments, call the store, return the answer.
 *
 * The SQL signatures, with the meaning of arguments and answers, are in the
 * install script and doc/dlock.md.  Functions are called on NULL so that a NULL
 * argument is an error.  All messages that the core's outcomes can lead to are
 * in this file.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sql/lease_sql.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(dlock_acquire);
PG_FUNCTION_INFO_V1(dlock_acquire_shared);
PG_FUNCTION_INFO_V1(dlock_acquire_permit);
PG_FUNCTION_INFO_V1(dlock_acquire_permits);
PG_FUNCTION_INFO_V1(dlock_acquire_all);
PG_FUNCTION_INFO_V1(dlock_acquire_any);
PG_FUNCTION_INFO_V1(dlock_acquire_session);
PG_FUNCTION_INFO_V1(dlock_acquire_session_shared);
PG_FUNCTION_INFO_V1(dlock_acquire_xact);
PG_FUNCTION_INFO_V1(dlock_acquire_xact_shared);
PG_FUNCTION_INFO_V1(dlock_guard);
PG_FUNCTION_INFO_V1(dlock_wait);
PG_FUNCTION_INFO_V1(dlock_renew);
PG_FUNCTION_INFO_V1(dlock_renew_all);
PG_FUNCTION_INFO_V1(dlock_renew_many);
PG_FUNCTION_INFO_V1(dlock_release);
PG_FUNCTION_INFO_V1(dlock_release_after);
PG_FUNCTION_INFO_V1(dlock_release_all);
PG_FUNCTION_INFO_V1(dlock_release_many);
PG_FUNCTION_INFO_V1(dlock_downgrade);
PG_FUNCTION_INFO_V1(dlock_force_release);

/* A guard found the lease lost; nothing else has this code. */
#define ERRCODE_LEASE_LOST	MAKE_SQLSTATE('5', '5', 'L', '0', '1')

int			lease_max_ttl = LEASE_MAX_TTL_DEFAULT;

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

/*
 * Refuse a time that is longer than anybody can mean: a driver may send one in
 * milliseconds or nanoseconds.
 */
static int64
check_longest(int64 time_us, const char *what)
{
	if (time_us > lease_max_ttl * USECS_PER_SEC)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be at most %d seconds", what, lease_max_ttl),
				 errhint("Times are in seconds. \"dlock.max_ttl\" says what the longest is.")));
	return time_us;
}

/* A time from now at which a lease is to end, in microseconds. */
static int64
get_time_to_end(FunctionCallInfo fcinfo, int argument, const char *what)
{
	int64		time_us;

	check_not_null(fcinfo, argument, what);
	time_us = check_longest(PG_GETARG_INT64(argument), what);
	if (!lease_check_ttl(time_us))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be greater than 0", what)));
	return time_us;
}

static int64
get_ttl(FunctionCallInfo fcinfo, int argument)
{
	return get_time_to_end(fcinfo, argument, "ttl");
}

/* The token to match.  UINT64_MAX stands for no valid token; it matches none. */
static uint64
token_of(int64 token)
{
	return token > 0 ? (uint64) token : PG_UINT64_MAX;
}

/* The same for an argument, 0 for any. */
uint64
lease_sql_token(FunctionCallInfo fcinfo, int argument)
{
	return PG_ARGISNULL(argument) ? 0 : token_of(PG_GETARG_INT64(argument));
}

/* A number of something, which is at least 1. */
static uint32
get_number(FunctionCallInfo fcinfo, int argument, const char *what)
{
	int32		number;

	check_not_null(fcinfo, argument, what);
	number = PG_GETARG_INT32(argument);
	if (number < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be at least 1", what)));
	return number;
}

/*
 * How long to wait, in microseconds; negative: without limit.  All that wait ask
 * here, and so wait without a snapshot where that can be done.
 */
static int64
get_wait(FunctionCallInfo fcinfo, int argument)
{
	int64		wait_us;

	check_not_null(fcinfo, argument, "wait");
	wait_us = check_longest(PG_GETARG_INT64(argument), "wait");
	lease_snapshot_begin(fcinfo, wait_us != 0);
	return wait_us;
}

/*
 * Check that this server and this process may change leases, before the call
 * leaves anything that the end of the transaction would look at.
 */
static void
check_may_change(const char *function)
{
	lease_area_attach();
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
	if (answer->outcome == LEASE_IS_PERMIT)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("owner \"%s\" holds permits of \"%s\", which cannot be downgraded",
						shown_owner, shown_name),
				 errhint("Release permits instead.")));
	if (answer->outcome == LEASE_IS_BOUND)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("owner \"%s\" holds \"%s\" as a %s lease, which cannot be released later",
						shown_owner, shown_name,
						lease_kind_name(answer->held_kind)),
				 errhint("Release it at once.")));
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

/* Take a lease; false when it is not free within wait_us. */
static bool
take(lease_bytes name, lease_request *request, int64 wait_us,
	 LeaseAnswer *answer)
{
	request->op = LEASE_ACQUIRE;
	*answer = lease_request_apply(name, request, wait_us);
	if (lease_is_granted(answer->outcome))
		return true;
	if (answer->outcome != LEASE_BUSY)
		check_misuse(name, request, answer);
	return false;
}

/* How many permits at once. */
static uint32
get_permits(FunctionCallInfo fcinfo, int argument, uint32 limit)
{
	uint32		permits = get_number(fcinfo, argument, "permits");

	if (permits > limit)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("permits must not be greater than limit"),
				 errdetail("%u permits were asked for, of %u.", permits, limit)));
	return permits;
}

/*
 * Take a lease in one of the modes.  The arguments before "wait" depend on the
 * function.
 */
static Datum
acquire(FunctionCallInfo fcinfo, const char *function, lease_mode mode,
		int wait_argument)
{
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	lease_request request = {.mode = mode, .kind = LEASE_PLAIN, .permits = 1};
	int64		wait_us;
	LeaseAnswer answer;

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	request.ttl_us = get_ttl(fcinfo, 2);
	if (mode == LEASE_PERMIT)
		request.limit = get_number(fcinfo, 3, "limit");
	if (wait_argument > 4)
		request.permits = get_permits(fcinfo, 4, request.limit);
	wait_us = get_wait(fcinfo, wait_argument);
	request.request = get_optional_string(fcinfo, wait_argument + 1,
										  "request id");
	check_may_change(function);
	if (!take(name, &request, wait_us, &answer))
		PG_RETURN_NULL();
	PG_RETURN_INT64((int64) answer.token);
}

Datum
dlock_acquire(PG_FUNCTION_ARGS)
{
	return acquire(fcinfo, "dlock_acquire()", LEASE_EXCLUSIVE, 3);
}

Datum
dlock_acquire_shared(PG_FUNCTION_ARGS)
{
	return acquire(fcinfo, "dlock_acquire_shared()", LEASE_SHARED, 3);
}

Datum
dlock_acquire_permit(PG_FUNCTION_ARGS)
{
	return acquire(fcinfo, "dlock_acquire_permit()", LEASE_PERMIT, 4);
}

Datum
dlock_acquire_permits(PG_FUNCTION_ARGS)
{
	return acquire(fcinfo, "dlock_acquire_permits()", LEASE_PERMIT, 5);
}

/*
 * Pin a lease that the caller holds until the transaction's end, or raise an
 * error that names the present holder, if the caller may know it.  "taken",
 * unless NULL, is the request that has just taken the lease, and "answer" its
 * answer: if there is no place for a guard, the lease is given back.
 *
 * Any other error, as of a wait for the lock table, leaves the lease; it ends
 * with the transaction.
 */
static void
guard(lease_bytes name, lease_bytes owner, uint64 token,
	  const lease_request *taken, const LeaseAnswer *answer)
{
	LeaseEntry *holder;
	lease_bytes holding_owner;
	bool		full;

	if (lease_request_guard(name, owner, token, &holder, &full))
		return;
	if (full && taken != NULL)
		lease_attempt_undo(NULL, name, GetUserId(), taken, answer);
	if (full)
		lease_queue_raise_no_guard();
	if (holder != NULL)
		holding_owner = lease_entry_owner(holder);
	ereport(ERROR,
			(errcode(ERRCODE_LEASE_LOST),
			 errmsg("owner \"%s\" no longer holds the lease on \"%s\" with this token",
					pnstrdup(owner.data, owner.length),
					pnstrdup(name.data, name.length)),
			 holder == NULL ? errdetail("Nobody holds it.") :
			 lease_entry_is_leaving(holder) ?
			 errdetail("It was released, and stays taken for a while.") :
			 !lease_privilege_may_see(holder->role) ?
			 errdetail("Somebody else holds it.") :
			 errdetail("Owner \"%s\" holds it with token %llu.",
					   pnstrdup(holding_owner.data, holding_owner.length),
					   (unsigned long long) holder->token),
			 errhint("Roll back, and acquire the lease again.")));
}

/* Take a lease that ends with the session or the transaction. */
static Datum
acquire_bound(FunctionCallInfo fcinfo, const char *function, lease_mode mode,
			  lease_kind kind)
{
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	lease_request request = {.mode = mode, .kind = kind};
	int64		wait_us;
	LeaseAnswer answer;

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	request.ttl_us = get_ttl(fcinfo, 2);
	wait_us = get_wait(fcinfo, 3);
	check_may_change(function);
	lease_session_watch();
	lease_session_prune();
	lease_bond_use(kind);
	if (!take(name, &request, wait_us, &answer))
		PG_RETURN_NULL();
	if (kind == LEASE_TRANSACTION)
		guard(name, request.owner, answer.token, &request, &answer);
	lease_session_took(name, request.owner, kind, answer.token);
	PG_RETURN_INT64((int64) answer.token);
}

Datum
dlock_acquire_session(PG_FUNCTION_ARGS)
{
	return acquire_bound(fcinfo, "dlock_acquire_session()", LEASE_EXCLUSIVE,
						 LEASE_SESSION);
}

Datum
dlock_acquire_session_shared(PG_FUNCTION_ARGS)
{
	return acquire_bound(fcinfo, "dlock_acquire_session_shared()",
						 LEASE_SHARED, LEASE_SESSION);
}

Datum
dlock_acquire_xact(PG_FUNCTION_ARGS)
{
	return acquire_bound(fcinfo, "dlock_acquire_xact()", LEASE_EXCLUSIVE,
						 LEASE_TRANSACTION);
}

Datum
dlock_acquire_xact_shared(PG_FUNCTION_ARGS)
{
	return acquire_bound(fcinfo, "dlock_acquire_xact_shared()", LEASE_SHARED,
						 LEASE_TRANSACTION);
}

Datum
dlock_guard(PG_FUNCTION_ARGS)
{
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	lease_bytes owner = lease_sql_string(fcinfo, 1, "owner");
	uint64		token;

	check_not_null(fcinfo, 2, "token");
	token = lease_sql_token(fcinfo, 2);
	check_may_change("dlock_guard()");
	if (!IsTransactionBlock())
		ereport(ERROR,
				(errcode(ERRCODE_NO_ACTIVE_SQL_TRANSACTION),
				 errmsg("dlock_guard() can only be used in transaction blocks"),
				 errdetail("The guard would end at once.")));
	lease_session_watch();
	guard(name, owner, token, NULL, NULL);
	PG_RETURN_VOID();
}

/* Check that no name is there twice. */
static void
check_distinct(const lease_bytes *names, int count)
{
	lease_bytes *sorted = palloc(count * sizeof(lease_bytes));

	memcpy(sorted, names, count * sizeof(lease_bytes));
	qsort(sorted, count, sizeof(lease_bytes), lease_compare);
	for (int i = 1; i < count; i++)
		if (lease_same(sorted[i - 1], sorted[i]))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("names must not contain \"%s\" twice",
							pnstrdup(sorted[i].data, sorted[i].length))));
	pfree(sorted);
}

/* The names of a call for many, checked: "least" to "most" of them. */
static lease_bytes *
get_names(FunctionCallInfo fcinfo, int argument, int least, int most,
		  int *count)
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
	if (*count < least || *count > most)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("names must be %d to %d names", least, most),
				 errdetail("There are %d.", *count)));
	names = palloc((*count + 1) * sizeof(lease_bytes));
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
	lease_bytes *names = get_names(fcinfo, 0, 1, LEASE_ALL_MAX, &count);
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

/*
 * The tokens to match for so many names, 0 for any; NULL if none were given.
 */
static uint64 *
get_tokens(FunctionCallInfo fcinfo, int argument, int count)
{
	ArrayType  *array;
	Datum	   *elements;
	bool	   *nulls;
	int			ntokens;
	uint64	   *tokens;

	if (PG_ARGISNULL(argument))
		return NULL;
	array = PG_GETARG_ARRAYTYPE_P(argument);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tokens must be a one-dimensional array")));
	deconstruct_array(array, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
					  TYPALIGN_DOUBLE, &elements, &nulls, &ntokens);
	if (ntokens != count)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("tokens must be as many as names"),
				 errdetail("There are %d tokens for %d names.", ntokens,
						   count)));
	tokens = palloc((count + 1) * sizeof(uint64));
	for (int i = 0; i < count; i++)
		tokens[i] = nulls[i] ? 0 : token_of(DatumGetInt64(elements[i]));
	return tokens;
}

/* Memory for the rows of dlock_acquire_any(), in kilobytes. */
#define CLAIMED_KB		1024

StaticAssertDecl(LEASE_MANY_MAX * (LEASE_STRING_MAX + 256) < CLAIMED_KB * 1024,
				 "CLAIMED_KB is too small");

/*
 * Make room for the rows of dlock_acquire_any(), all in memory, whatever work_mem
 * is: a temporary file might find no room on the disk, with the names taken.
 */
static void
begin_claimed(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	MemoryContext old;

	InitMaterializedSRF(fcinfo, 0);
	tuplestore_end(rsinfo->setResult);
	old = MemoryContextSwitchTo(rsinfo->econtext->ecxt_per_query_memory);
	rsinfo->setResult =
		tuplestore_begin_heap((rsinfo->allowedModes & SFRM_Materialize_Random) != 0,
							  false, Max(work_mem, CLAIMED_KB));
	MemoryContextSwitchTo(old);
}

/* Make the row of a name that was taken. */
static void
put_claimed(FunctionCallInfo fcinfo, lease_bytes name, uint64 token)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		values[2];
	bool		nulls[2] = {0};

	values[0] = PointerGetDatum(cstring_to_text_with_len(name.data,
														 (int) name.length));
	values[1] = Int64GetDatum((int64) token);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
dlock_acquire_any(PG_FUNCTION_ARGS)
{
	int			count;
	lease_bytes *names = get_names(fcinfo, 0, 0, LEASE_MANY_MAX, &count);
	lease_request request = {
		.op = LEASE_ACQUIRE, .mode = LEASE_EXCLUSIVE, .kind = LEASE_PLAIN,
		.claim = true
	};
	uint64	   *tokens = palloc0((count + 1) * sizeof(uint64));
	uint32		wanted;
	int64		wait_us;

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	request.ttl_us = get_ttl(fcinfo, 2);
	wanted = get_number(fcinfo, 3, "count");
	wait_us = get_wait(fcinfo, 4);
	request.request = get_optional_string(fcinfo, 5, "request id");
	if (wait_us != 0 && count > LEASE_WAITER_PLACES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot wait for more than %d names",
						LEASE_WAITER_PLACES_MAX),
				 errdetail("There are %d.", count)));
	check_may_change("dlock_acquire_any()");

	begin_claimed(fcinfo);
	if (count > 0)
	{
		int			failed;
		LeaseAnswer answer = lease_many_claim(names, count, &request,
											  (int) Min(wanted, INT_MAX),
											  wait_us, tokens, &failed);

		if (answer.outcome != LEASE_BUSY && !lease_is_granted(answer.outcome))
			check_misuse(names[failed], &request, &answer);
		lease_snapshot_take_back();
		for (int i = 0; i < count; i++)
			if (tokens[i] != 0)
				put_claimed(fcinfo, names[i], tokens[i]);
	}
	return (Datum) 0;
}

/* Renew or release many leases: the names for which that was done. */
static Datum
change_many(FunctionCallInfo fcinfo, const char *function,
			lease_request *request, int tokens_argument)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int			count;
	lease_bytes *names = get_names(fcinfo, 0, 0, LEASE_MANY_MAX, &count);
	uint64	   *tokens = get_tokens(fcinfo, tokens_argument, count);
	bool	   *done = palloc0((count + 1) * sizeof(bool));

	check_may_change(function);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (count > 0)
		lease_many_change(names, count, request, tokens, done);
	for (int i = 0; i < count; i++)
	{
		Datum		value;
		bool		null = false;

		if (!done[i])
			continue;
		value = PointerGetDatum(cstring_to_text_with_len(names[i].data,
														 (int) names[i].length));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value, &null);
	}
	return (Datum) 0;
}

Datum
dlock_renew_many(PG_FUNCTION_ARGS)
{
	lease_request request = {.op = LEASE_RENEW};

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	request.ttl_us = get_ttl(fcinfo, 2);
	return change_many(fcinfo, "dlock_renew_many()", &request, 3);
}

Datum
dlock_release_many(PG_FUNCTION_ARGS)
{
	lease_request request = {.op = LEASE_RELEASE, .holds = 1};

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	return change_many(fcinfo, "dlock_release_many()", &request, 2);
}

Datum
dlock_wait(PG_FUNCTION_ARGS)
{
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	int64		wait_us = get_wait(fcinfo, 1);

	check_may_change("dlock_wait()");
	PG_RETURN_BOOL(lease_request_wait(name, wait_us));
}

/* true: done; false: held, but not by this holder and token; NULL: not held */
static Datum
change_held(FunctionCallInfo fcinfo, lease_bytes name,
			const lease_request *request)
{
	LeaseAnswer answer = lease_request_apply(name, request, 0);

	if (answer.gone)
		lease_session_gave(name, request->owner, answer.role, answer.token);
	switch (answer.outcome)
	{
		case LEASE_NOT_HELD:
			PG_RETURN_NULL();
		case LEASE_NOT_YOURS:
			PG_RETURN_BOOL(false);
		case LEASE_IS_PERMIT:
		case LEASE_IS_BOUND:
			check_misuse(name, request, &answer);
			pg_unreachable();
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
	request.token = lease_sql_token(fcinfo, 3);
	check_may_change("dlock_renew()");
	return change_held(fcinfo, name, &request);
}

Datum
dlock_release(PG_FUNCTION_ARGS)
{
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	lease_request request = {.op = LEASE_RELEASE, .holds = 1};

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	request.token = lease_sql_token(fcinfo, 2);
	if (PG_NARGS() > 3)
		request.holds = get_number(fcinfo, 3, "holds");
	check_may_change("dlock_release()");
	return change_held(fcinfo, name, &request);
}

Datum
dlock_release_after(PG_FUNCTION_ARGS)
{
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	lease_request request = {.op = LEASE_DROP_AFTER};

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	request.ttl_us = get_time_to_end(fcinfo, 2, "after");
	request.token = lease_sql_token(fcinfo, 3);
	check_may_change("dlock_release_after()");
	return change_held(fcinfo, name, &request);
}

Datum
dlock_downgrade(PG_FUNCTION_ARGS)
{
	lease_bytes name = lease_sql_string(fcinfo, 0, "name");
	lease_request request = {.op = LEASE_DOWNGRADE};

	request.owner = lease_sql_string(fcinfo, 1, "owner");
	request.token = lease_sql_token(fcinfo, 2);
	check_may_change("dlock_downgrade()");
	return change_held(fcinfo, name, &request);
}

Datum
dlock_renew_all(PG_FUNCTION_ARGS)
{
	lease_request request = {.op = LEASE_RENEW};

	request.owner = lease_sql_string(fcinfo, 0, "owner");
	request.ttl_us = get_ttl(fcinfo, 1);
	check_may_change("dlock_renew_all()");
	PG_RETURN_INT64((int64) lease_walk_owner(&request));
}

Datum
dlock_release_all(PG_FUNCTION_ARGS)
{
	lease_request request = {.op = LEASE_DROP};
	uint64		dropped;

	request.owner = lease_sql_string(fcinfo, 0, "owner");
	check_may_change("dlock_release_all()");
	dropped = lease_walk_owner(&request);
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
	PG_RETURN_INT64((int64) lease_request_apply(name, &request, 0).ended);
}
