/*
 * udf.c
 *	  The SQL functions on MySQL and MariaDB: what is asked of the engine.
 *
 * They have the names, the order of arguments, the answers and the errors of
 * the PostgreSQL extension; doc/dlock.md describes them.  The comment at each
 * says what is particular.  What they have in common:
 *
 *	name, owner, request	1 to 255 bytes; text counts in UTF-8, see
 *							udf_arguments.c for what MariaDB does not convert
 *	ttl, wait				seconds, or text as in udf_duration.c; wait may be
 *							left out, 0 tries once, a negative one has no limit
 *	token					an integer, as an acquire answered it
 *
 * Booleans are 1 and 0, lists are JSON arrays.  A NULL where there must be none
 * is error 22004, an argument out of range 22023, a ttl or wait that cannot be
 * read 22007.  All act at once and for good, whatever becomes of the caller's
 * transaction.  The wrong number of arguments is the server's error 1123.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <stdlib.h>

#include "lease_engine.h"
#include "udf_function.h"
#include "udf_messages.h"

/* ----------------------------------------------------------------
 * Calls
 * ----------------------------------------------------------------
 */

/* Start a call that concerns one name. */
static dlock_call
call_for(dlock_call_kind kind, lease_op op)
{
	return (dlock_call) {.kind = kind, .request.op = op};
}

/*
 * Make a call on the caller's behalf: false if an error was raised.  The
 * caller's rights are found out if the call is going to depend on them: for a
 * forced release, and for what a deadlock's error may tell.
 */
static bool
make_call(const char *function, dlock_call *call, dlock_answer *answer)
{
	bool		with_rights = call->wait_us != 0 ||
		call->request.op == LEASE_EVICT;
	dlock_caller caller;
	bool		made;

	if (!dlock_get_caller(function, with_rights, &caller))
		return false;
	call->caller = &caller;
	made = dlock_engine_call(call, answer);
	call->caller = NULL;
	if (!made)
	{
		dlock_raise_answer(answer);
		return false;
	}
	return dlock_check_answer(call, answer);
}

/* ----------------------------------------------------------------
 * Acquire
 * ----------------------------------------------------------------
 */

/*
 * Take a lease on one name.  What is before the argument "wait" depends on the
 * function.
 */
static dlock_value
acquire(const UDF_ARGS *args, const char *function, lease_mode mode,
		lease_kind kind, unsigned int wait_argument)
{
	dlock_call	call = call_for(DLOCK_CALL_APPLY, LEASE_ACQUIRE);
	dlock_answer answer;
	lease_bytes name;

	call.request.mode = mode;
	call.request.kind = kind;
	call.request.permits = 1;
	call.names = &name;
	call.nnames = 1;
	if (!dlock_get_string(args, 0, "name", &name) ||
		!dlock_get_string(args, 1, "owner", &call.request.owner) ||
		!dlock_get_ttl(args, 2, &call.request.ttl_us) ||
		(mode == LEASE_PERMIT &&
		 !dlock_get_number(args, 3, "limit", &call.request.limit)) ||
		(wait_argument > 4 &&
		 !dlock_get_permits(args, 4, call.request.limit,
							&call.request.permits)) ||
		!dlock_get_wait(args, wait_argument, &call.wait_us) ||
		!dlock_get_request(args, wait_argument + 1, &call.request.request) ||
		!make_call(function, &call, &answer))
		return dlock_error();
	if (!lease_is_granted(answer.outcome))
		return dlock_null();
	return dlock_integer((long long) answer.token);
}

/*
 * dlock_acquire(name, owner, ttl [, wait [, request]]) returns integer
 *
 * Take an exclusive lease: its token, or NULL when it was not free within
 * "wait".  Errors: 40P01, 53400, 55000.
 */
DLOCK_INTEGER_FUNCTION(dlock_acquire, 3, 5,
					   "name, owner, ttl [, wait [, request]]")
{
	return acquire(args, function, LEASE_EXCLUSIVE, LEASE_PLAIN, 3);
}

/*
 * dlock_acquire_shared(name, owner, ttl [, wait [, request]]) returns integer
 *
 * Take a shared lease: as dlock_acquire().
 */
DLOCK_INTEGER_FUNCTION(dlock_acquire_shared, 3, 5,
					   "name, owner, ttl [, wait [, request]]")
{
	return acquire(args, function, LEASE_SHARED, LEASE_PLAIN, 3);
}

/*
 * dlock_acquire_permit(name, owner, ttl, limit [, wait [, request]]) returns
 * integer
 *
 * Take one of "limit" permits, 1 to 2^31 - 1: as dlock_acquire().
 */
DLOCK_INTEGER_FUNCTION(dlock_acquire_permit, 4, 6,
					   "name, owner, ttl, limit [, wait [, request]]")
{
	return acquire(args, function, LEASE_PERMIT, LEASE_PLAIN, 4);
}

/*
 * dlock_acquire_permits(name, owner, ttl, limit, permits [, wait [, request]])
 * returns integer
 *
 * Take "permits" of "limit" permits, all or none: as dlock_acquire().
 */
DLOCK_INTEGER_FUNCTION(dlock_acquire_permits, 5, 7,
					   "name, owner, ttl, limit, permits [, wait [, request]]")
{
	return acquire(args, function, LEASE_PERMIT, LEASE_PLAIN, 5);
}

/*
 * dlock_acquire_session(name, owner, ttl [, wait]) returns integer
 *
 * Take an exclusive lease that lives as long as this connection: as
 * dlock_acquire().  The ttl counts when the server has gone.
 */
DLOCK_INTEGER_FUNCTION(dlock_acquire_session, 3, 4,
					   "name, owner, ttl [, wait]")
{
	return acquire(args, function, LEASE_EXCLUSIVE, LEASE_SESSION, 3);
}

/*
 * dlock_acquire_session_shared(name, owner, ttl [, wait]) returns integer
 *
 * Take a shared lease that lives as long as this connection.
 */
DLOCK_INTEGER_FUNCTION(dlock_acquire_session_shared, 3, 4,
					   "name, owner, ttl [, wait]")
{
	return acquire(args, function, LEASE_SHARED, LEASE_SESSION, 3);
}

/* Take exclusive leases on all names, or on none. */
static dlock_value
acquire_all(const UDF_ARGS *args, const char *function,
			const dlock_names *names, dlock_text *text)
{
	dlock_call	call = call_for(DLOCK_CALL_ACQUIRE_ALL, LEASE_ACQUIRE);
	dlock_answer answer = {0};
	dlock_value value = dlock_error();

	call.request.mode = LEASE_EXCLUSIVE;
	call.request.kind = LEASE_PLAIN;
	call.names = names->names;
	call.nnames = names->count;
	if (!dlock_get_string(args, 1, "owner", &call.request.owner) ||
		!dlock_get_ttl(args, 2, &call.request.ttl_us) ||
		!dlock_get_wait(args, 3, &call.wait_us) ||
		!dlock_get_request(args, 4, &call.request.request))
		return value;
	if (make_call(function, &call, &answer))
	{
		value = dlock_null();
		if (lease_is_granted(answer.outcome))
		{
			for (size_t i = 0; i < names->count; i++)
				dlock_text_printf(text, "%s%llu", i == 0 ? "[" : ", ",
								  (unsigned long long) answer.tokens[i]);
			dlock_text_add(text, "]", 1);
			value = dlock_integer(0);
		}
	}
	free(answer.tokens);
	return value;
}

/*
 * dlock_acquire_all(names, owner, ttl [, wait [, request]]) returns text
 *
 * Take exclusive leases on 1 to 100 different names, given as a JSON array of
 * strings, all or none: a JSON array of their tokens in the same order, or NULL
 * when not all were free at one moment within "wait".  Errors: 22023 if it is
 * no such array, 22004 if an element is null, and those of dlock_acquire().
 */
DLOCK_TEXT_FUNCTION(dlock_acquire_all, DLOCK_TEXT_LONG, 3, 5,
					"names, owner, ttl [, wait [, request]]")
{
	dlock_names names;
	dlock_value value = dlock_error();

	if (dlock_get_names(args, 0, 1, DLOCK_MAX_NAMES, &names))
		value = acquire_all(args, function, &names, text);
	dlock_free_names(&names);
	return value;
}

/* Take exclusive leases on those of the names that are free. */
static dlock_value
acquire_any(const UDF_ARGS *args, const char *function,
			const dlock_names *names, dlock_text *text)
{
	dlock_call	call = call_for(DLOCK_CALL_ACQUIRE_ANY, LEASE_ACQUIRE);
	dlock_answer answer = {0};
	dlock_value value = dlock_error();
	size_t		count = 0;

	call.request.mode = LEASE_EXCLUSIVE;
	call.request.kind = LEASE_PLAIN;
	call.request.claim = true;
	call.names = names->names;
	call.nnames = names->count;
	if (!dlock_get_string(args, 1, "owner", &call.request.owner) ||
		!dlock_get_ttl(args, 2, &call.request.ttl_us) ||
		!dlock_get_number(args, 3, "count", &call.wanted) ||
		!dlock_get_wait(args, 4, &call.wait_us) ||
		!dlock_get_request(args, 5, &call.request.request))
		return value;
	if (call.wait_us != 0 && names->count > DLOCK_MAX_NAMES)
	{
		dlock_raise("22023", "cannot wait for more than %d names; there are %zu",
					DLOCK_MAX_NAMES, names->count);
		return value;
	}
	if (names->count == 0 || make_call(function, &call, &answer))
	{
		dlock_text_add(text, "[", 1);
		for (size_t i = 0; i < names->count; i++)
			if (lease_is_granted(answer.outcome) && answer.tokens[i] != 0)
			{
				dlock_text_printf(text, "%s{\"name\": ", count++ > 0 ? ", " : "");
				dlock_text_add_json(text, names->names[i]);
				dlock_text_printf(text, ", \"token\": %llu}",
								  (unsigned long long) answer.tokens[i]);
			}
		dlock_text_add(text, "]", 1);
		value = dlock_integer(0);
	}
	free(answer.tokens);
	return value;
}

/*
 * dlock_acquire_any(names, owner, ttl, count [, wait [, request]]) returns text
 *
 * Take exclusive leases on up to "count" of up to 1,000 different names, a JSON array
 * of strings: those that are free, in their order.  A JSON array of objects, each with
 * "name" and "token"; [] if none was free within "wait", which at most 100 names can
 * have.  Errors: those of dlock_acquire_all() but 55000.
 */
DLOCK_TEXT_FUNCTION(dlock_acquire_any, DLOCK_TEXT_LONG, 4, 6,
					"names, owner, ttl, count [, wait [, request]]")
{
	dlock_names names;
	dlock_value value = dlock_error();

	if (dlock_get_names(args, 0, 0, DLOCK_MAX_MANY, &names))
		value = acquire_any(args, function, &names, text);
	dlock_free_names(&names);
	return value;
}

/*
 * dlock_wait(name [, wait]) returns integer
 *
 * Wait until every hold that is there now has ended: 1, or 0 when "wait" ran
 * out.  Takes nothing.
 */
DLOCK_INTEGER_FUNCTION(dlock_wait, 1, 2, "name [, wait]")
{
	dlock_call	call = call_for(DLOCK_CALL_WAIT, LEASE_ACQUIRE);
	dlock_answer answer;
	lease_bytes name;

	call.names = &name;
	call.nnames = 1;
	if (!dlock_get_string(args, 0, "name", &name) ||
		!dlock_get_wait(args, 1, &call.wait_us) ||
		!make_call(function, &call, &answer))
		return dlock_error();
	return dlock_integer(answer.yes);
}

/* ----------------------------------------------------------------
 * Renew and release
 * ----------------------------------------------------------------
 */

/* 1: done; 0: held, but not by this holder and token; NULL: not held */
static dlock_value
change_held(const char *function, dlock_call *call)
{
	dlock_answer answer;

	if (!make_call(function, call, &answer))
		return dlock_error();
	switch (answer.outcome)
	{
		case LEASE_NOT_HELD:
			return dlock_null();
		case LEASE_NOT_YOURS:
			return dlock_integer(0);
		default:
			return dlock_integer(1);
	}
}

/*
 * dlock_renew(name, owner, ttl [, token]) returns integer
 *
 * Set the deadline to "ttl" from now: 1; 0 if the name is held, but not by this
 * holder and token; NULL if it is held by nobody.  A NULL token is any token.
 */
DLOCK_INTEGER_FUNCTION(dlock_renew, 3, 4, "name, owner, ttl [, token]")
{
	dlock_call	call = call_for(DLOCK_CALL_APPLY, LEASE_RENEW);
	lease_bytes name;

	call.names = &name;
	call.nnames = 1;
	if (!dlock_get_string(args, 0, "name", &name) ||
		!dlock_get_string(args, 1, "owner", &call.request.owner) ||
		!dlock_get_ttl(args, 2, &call.request.ttl_us) ||
		!dlock_get_token(args, 3, &call.request.token))
		return dlock_error();
	return change_held(function, &call);
}

/*
 * dlock_release(name, owner [, token [, holds]]) returns integer
 *
 * Give one hold back, or "holds" of them: 1, 0 and NULL as dlock_renew(); 0 and
 * nothing changes, too, if there are fewer.
 */
DLOCK_INTEGER_FUNCTION(dlock_release, 2, 4, "name, owner [, token [, holds]]")
{
	dlock_call	call = call_for(DLOCK_CALL_APPLY, LEASE_RELEASE);
	lease_bytes name;

	call.request.holds = 1;
	call.names = &name;
	call.nnames = 1;
	if (!dlock_get_string(args, 0, "name", &name) ||
		!dlock_get_string(args, 1, "owner", &call.request.owner) ||
		!dlock_get_token(args, 2, &call.request.token) ||
		(args->arg_count > 3 &&
		 !dlock_get_number(args, 3, "holds", &call.request.holds)))
		return dlock_error();
	return change_held(function, &call);
}

/*
 * dlock_downgrade(name, owner [, token]) returns integer
 *
 * Make the exclusive lease a shared one, with the same token: 1, 0 and NULL as
 * dlock_renew().
 */
DLOCK_INTEGER_FUNCTION(dlock_downgrade, 2, 3, "name, owner [, token]")
{
	dlock_call	call = call_for(DLOCK_CALL_APPLY, LEASE_DOWNGRADE);
	lease_bytes name;

	call.names = &name;
	call.nnames = 1;
	if (!dlock_get_string(args, 0, "name", &name) ||
		!dlock_get_string(args, 1, "owner", &call.request.owner) ||
		!dlock_get_token(args, 2, &call.request.token))
		return dlock_error();
	return change_held(function, &call);
}

/* Make a call for each of its names: those for which it was done. */
static dlock_value
change_each(const char *function, dlock_call *call, const dlock_names *names,
			dlock_text *text)
{
	dlock_answer answer = {0};
	size_t		count = 0;

	call->names = names->names;
	call->nnames = names->count;
	call->tokens = names->tokens;
	if (names->count > 0 && !make_call(function, call, &answer))
	{
		free(answer.done);
		return dlock_error();
	}
	dlock_text_add(text, "[", 1);
	for (size_t i = 0; i < names->count; i++)
		if (answer.done[i])
		{
			if (count++ > 0)
				dlock_text_add(text, ", ", 2);
			dlock_text_add_json(text, names->names[i]);
		}
	dlock_text_add(text, "]", 1);
	free(answer.done);
	return dlock_integer(0);
}

/*
 * dlock_renew_many(names, owner, ttl [, tokens]) returns text
 *
 * Set the deadlines of the leases on up to 1,000 different names, a JSON array of
 * strings, to "ttl" from now: a JSON array of the names for which that was done.
 * "tokens" is a JSON array with a token, or null for any, for each name.
 */
DLOCK_TEXT_FUNCTION(dlock_renew_many, DLOCK_TEXT_LONG, 3, 4,
					"names, owner, ttl [, tokens]")
{
	dlock_call	call = call_for(DLOCK_CALL_APPLY_EACH, LEASE_RENEW);
	dlock_names names;
	dlock_value value = dlock_error();

	if (dlock_get_names(args, 0, 0, DLOCK_MAX_MANY, &names) &&
		dlock_get_string(args, 1, "owner", &call.request.owner) &&
		dlock_get_ttl(args, 2, &call.request.ttl_us) &&
		dlock_get_tokens(args, 3, &names))
		value = change_each(function, &call, &names, text);
	dlock_free_names(&names);
	return value;
}

/*
 * dlock_release_many(names, owner [, tokens]) returns text
 *
 * Give one hold on each of the names back: as dlock_renew_many().
 */
DLOCK_TEXT_FUNCTION(dlock_release_many, DLOCK_TEXT_LONG, 2, 3,
					"names, owner [, tokens]")
{
	dlock_call	call = call_for(DLOCK_CALL_APPLY_EACH, LEASE_RELEASE);
	dlock_names names;
	dlock_value value = dlock_error();

	if (dlock_get_names(args, 0, 0, DLOCK_MAX_MANY, &names) &&
		dlock_get_string(args, 1, "owner", &call.request.owner) &&
		dlock_get_tokens(args, 2, &names))
		value = change_each(function, &call, &names, text);
	dlock_free_names(&names);
	return value;
}

/* Make a call that concerns all leases of its owner: how many. */
static dlock_value
change_all(const char *function, dlock_call *call)
{
	dlock_answer answer;

	if (!make_call(function, call, &answer))
		return dlock_error();
	return dlock_integer((long long) answer.count);
}

/*
 * dlock_renew_all(owner, ttl) returns integer
 *
 * Set the deadlines of all leases of an owner to "ttl" from now: how many.
 */
DLOCK_INTEGER_FUNCTION(dlock_renew_all, 2, 2, "owner, ttl")
{
	dlock_call	call = call_for(DLOCK_CALL_APPLY_ALL, LEASE_RENEW);

	if (!dlock_get_string(args, 0, "owner", &call.request.owner) ||
		!dlock_get_ttl(args, 1, &call.request.ttl_us))
		return dlock_error();
	return change_all(function, &call);
}

/*
 * dlock_release_all(owner) returns integer
 *
 * Drop all leases of an owner, whatever their hold counts: how many.
 */
DLOCK_INTEGER_FUNCTION(dlock_release_all, 1, 1, "owner")
{
	dlock_call	call = call_for(DLOCK_CALL_APPLY_ALL, LEASE_DROP);

	if (!dlock_get_string(args, 0, "owner", &call.request.owner))
		return dlock_error();
	return change_all(function, &call);
}

/*
 * dlock_force_release(name [, owner]) returns integer
 *
 * Evict all holders of a name, or those that one owner is: how many.  For those
 * who have CONNECTION_ADMIN (on MariaDB CONNECTION ADMIN) or SUPER; for others
 * it is error 42501.  A NULL owner is an error and not everybody.
 */
DLOCK_INTEGER_FUNCTION(dlock_force_release, 1, 2, "name [, owner]")
{
	dlock_call	call = call_for(DLOCK_CALL_APPLY, LEASE_EVICT);
	lease_bytes name;

	call.names = &name;
	call.nnames = 1;
	if (!dlock_check_operator(function) ||
		!dlock_get_string(args, 0, "name", &name) ||
		(args->arg_count > 1 &&
		 !dlock_get_string(args, 1, "owner", &call.request.owner)))
		return dlock_error();
	return change_all(function, &call);
}
