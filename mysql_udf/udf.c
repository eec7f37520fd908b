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
 *	ttl, wait				seconds, or text as in core/duration.c; wait may be
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
#include "lease_engine.h"
#include "udf_function.h"

/* Read the arguments, and make a call: false if an error was raised. */
static bool
make_call(dlock_use *use, dlock_call_kind kind, lease_op op)
{
	use->call.kind = kind;
	use->call.request.op = op;
	if (!dlock_read(use))
		return false;
	if (use->names != NULL && use->call.nnames == 0)
		return true;			/* there is nothing to do */
	return dlock_get_caller(use) && dlock_ask_engine(use);
}

/* ----------------------------------------------------------------
 * Acquire
 * ----------------------------------------------------------------
 */

/* Make a call that takes leases: false if an error was raised. */
static bool
take(dlock_use *use, dlock_call_kind kind, lease_mode mode, lease_kind lease)
{
	use->call.request.mode = mode;
	use->call.request.kind = lease;
	return make_call(use, kind, LEASE_ACQUIRE);
}

/* Take a lease on one name: its token. */
static dlock_value
acquire(dlock_use *use, lease_mode mode, lease_kind kind)
{
	if (!take(use, DLOCK_CALL_APPLY, mode, kind))
		return dlock_error();
	return lease_is_granted(use->answer.outcome) ?
		dlock_integer((long long) use->answer.token) : dlock_null();
}

/*
 * dlock_acquire(name, owner, ttl [, wait [, request]]) returns integer
 *
 * Take an exclusive lease: its token, or NULL when it was not free within
 * "wait".  Errors: 40P01, 53400, 55000.
 */
DLOCK_INTEGER_FUNCTION(dlock_acquire, DLOCK_ACTS, 3,
					   DLOCK_NAME, DLOCK_OWNER, DLOCK_TTL, DLOCK_WAIT,
					   DLOCK_REQUEST)
{
	return acquire(use, LEASE_EXCLUSIVE, LEASE_PLAIN);
}

/*
 * dlock_acquire_shared(name, owner, ttl [, wait [, request]]) returns integer
 *
 * Take a shared lease: as dlock_acquire().
 */
DLOCK_INTEGER_FUNCTION(dlock_acquire_shared, DLOCK_ACTS, 3,
					   DLOCK_NAME, DLOCK_OWNER, DLOCK_TTL, DLOCK_WAIT,
					   DLOCK_REQUEST)
{
	return acquire(use, LEASE_SHARED, LEASE_PLAIN);
}

/*
 * dlock_acquire_permit(name, owner, ttl, limit [, wait [, request]]) returns
 * integer
 *
 * Take one of "limit" permits, 1 to 2^31 - 1: as dlock_acquire().
 */
DLOCK_INTEGER_FUNCTION(dlock_acquire_permit, DLOCK_ACTS, 4,
					   DLOCK_NAME, DLOCK_OWNER, DLOCK_TTL, DLOCK_LIMIT,
					   DLOCK_WAIT, DLOCK_REQUEST)
{
	return acquire(use, LEASE_PERMIT, LEASE_PLAIN);
}

/*
 * dlock_acquire_permits(name, owner, ttl, limit, permits [, wait [, request]])
 * returns integer
 *
 * Take "permits" of "limit" permits, all or none: as dlock_acquire().
 */
DLOCK_INTEGER_FUNCTION(dlock_acquire_permits, DLOCK_ACTS, 5,
					   DLOCK_NAME, DLOCK_OWNER, DLOCK_TTL, DLOCK_LIMIT,
					   DLOCK_PERMITS, DLOCK_WAIT, DLOCK_REQUEST)
{
	return acquire(use, LEASE_PERMIT, LEASE_PLAIN);
}

/*
 * dlock_acquire_session(name, owner, ttl [, wait]) returns integer
 *
 * Take an exclusive lease that lives as long as this connection: as
 * dlock_acquire().  Its ttl only counts once the server has gone.
 */
DLOCK_INTEGER_FUNCTION(dlock_acquire_session, DLOCK_ACTS, 3,
					   DLOCK_NAME, DLOCK_OWNER, DLOCK_TTL, DLOCK_WAIT)
{
	return acquire(use, LEASE_EXCLUSIVE, LEASE_SESSION);
}

/*
 * dlock_acquire_session_shared(name, owner, ttl [, wait]) returns integer
 *
 * Take a shared lease that lives as long as this connection.
 */
DLOCK_INTEGER_FUNCTION(dlock_acquire_session_shared, DLOCK_ACTS, 3,
					   DLOCK_NAME, DLOCK_OWNER, DLOCK_TTL, DLOCK_WAIT)
{
	return acquire(use, LEASE_SHARED, LEASE_SESSION);
}

/*
 * dlock_acquire_all(names, owner, ttl [, wait [, request]]) returns text
 *
 * Take exclusive leases on 1 to 100 different names, given as a JSON array of
 * strings, all or none: a JSON array of their tokens in the same order, or NULL
 * when not all were free at one moment within "wait".  Errors: 22023 if it is
 * no such array, 22004 if an element is null, and those of dlock_acquire().
 */
DLOCK_TEXT_FUNCTION(dlock_acquire_all, DLOCK_TEXT_LONG, DLOCK_ACTS, 3,
					DLOCK_NAMES, DLOCK_OWNER, DLOCK_TTL, DLOCK_WAIT,
					DLOCK_REQUEST)
{
	if (!take(use, DLOCK_CALL_ACQUIRE_ALL, LEASE_EXCLUSIVE, LEASE_PLAIN))
		return dlock_error();
	if (!lease_is_granted(use->answer.outcome))
		return dlock_null();
	for (size_t i = 0; i < use->call.nnames; i++)
		lease_text_add(&use->text, "%s%llu", i == 0 ? "[" : ", ",
					   (unsigned long long) use->answer.tokens[i]);
	lease_text_put(&use->text, "]", 1);
	return dlock_is_text();
}

/*
 * dlock_acquire_any(names, owner, ttl, count [, wait [, request]]) returns text
 *
 * Take exclusive leases on up to "count" of up to 1,000 different names, a JSON array
 * of strings: those that are free, in their order.  A JSON array of objects, each with
 * "name" and "token"; [] if none was free within "wait", which is for at most 100
 * names.  Errors: those of dlock_acquire_all() except 55000.
 */
DLOCK_TEXT_FUNCTION(dlock_acquire_any, DLOCK_TEXT_LONG, DLOCK_ACTS, 4,
					DLOCK_MANY_NAMES, DLOCK_OWNER, DLOCK_TTL, DLOCK_COUNT,
					DLOCK_WAIT, DLOCK_REQUEST)
{
	lease_text *text = &use->text;
	const uint64_t *tokens;

	use->call.request.claim = true;
	if (!take(use, DLOCK_CALL_ACQUIRE_ANY, LEASE_EXCLUSIVE, LEASE_PLAIN))
		return dlock_error();
	tokens = lease_is_granted(use->answer.outcome) ? use->answer.tokens : NULL;
	lease_text_put(text, "[", 1);
	for (size_t i = 0; tokens != NULL && i < use->call.nnames; i++)
		if (tokens[i] != 0)
		{
			lease_text_add(text, "%s{\"name\": ", text->length > 1 ? ", " : "");
			dlock_add_json(text, use->call.names[i]);
			lease_text_add(text, ", \"token\": %llu}",
						   (unsigned long long) tokens[i]);
		}
	lease_text_put(text, "]", 1);
	return dlock_is_text();
}

/*
 * dlock_wait(name [, wait]) returns integer
 *
 * Wait until every hold that is there now has ended: 1, or 0 when "wait" ran
 * out.  Takes nothing.
 */
DLOCK_INTEGER_FUNCTION(dlock_wait, DLOCK_ACTS, 1, DLOCK_NAME, DLOCK_WAIT)
{
	if (!make_call(use, DLOCK_CALL_WAIT, LEASE_ACQUIRE))
		return dlock_error();
	return dlock_integer(use->answer.yes);
}

/* ----------------------------------------------------------------
 * Renew and release
 * ----------------------------------------------------------------
 */

/* 1: done; 0: held, but not by this holder and token; NULL: not held */
static dlock_value
change_held(dlock_use *use, lease_op op)
{
	if (!make_call(use, DLOCK_CALL_APPLY, op))
		return dlock_error();
	switch (use->answer.outcome)
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
DLOCK_INTEGER_FUNCTION(dlock_renew, DLOCK_ACTS, 3, DLOCK_NAME, DLOCK_OWNER,
					   DLOCK_TTL, DLOCK_TOKEN)
{
	return change_held(use, LEASE_RENEW);
}

/*
 * dlock_release(name, owner [, token [, holds]]) returns integer
 *
 * Give one hold back, or "holds" of them: 1, 0 and NULL as dlock_renew(); 0 and
 * nothing changes, too, if there are fewer.
 */
DLOCK_INTEGER_FUNCTION(dlock_release, DLOCK_ACTS, 2, DLOCK_NAME, DLOCK_OWNER,
					   DLOCK_TOKEN, DLOCK_HOLDS)
{
	return change_held(use, LEASE_RELEASE);
}

/*
 * dlock_downgrade(name, owner [, token]) returns integer
 *
 * Make the exclusive lease a shared one, with the same token: 1, 0 and NULL as
 * dlock_renew().
 */
DLOCK_INTEGER_FUNCTION(dlock_downgrade, DLOCK_ACTS, 2, DLOCK_NAME, DLOCK_OWNER,
					   DLOCK_TOKEN)
{
	return change_held(use, LEASE_DOWNGRADE);
}

#ifdef DLOCK_LOG
/*
 * dlock_release_after(name, owner, after [, token]) returns integer
 *
 * Give all holds back, with effect "after" from now: 1, 0 and NULL as dlock_renew().
 * Until then the name stays taken, and only a force-release ends it sooner.  Error 55000
 * if it is a session's lease.
 */
DLOCK_INTEGER_FUNCTION(dlock_release_after, DLOCK_ACTS, 3, DLOCK_NAME, DLOCK_OWNER,
					   DLOCK_AFTER, DLOCK_TOKEN)
{
	return change_held(use, LEASE_DROP_AFTER);
}
#endif

/* Make a call for each of its names: the names for which it was done. */
static dlock_value
change_each(dlock_use *use, lease_op op)
{
	lease_text *text = &use->text;

	if (!make_call(use, DLOCK_CALL_APPLY_EACH, op))
		return dlock_error();
	lease_text_put(text, "[", 1);
	for (size_t i = 0; i < use->call.nnames; i++)
		if (use->answer.done[i])
		{
			if (text->length > 1)
				lease_text_put(text, ", ", 2);
			dlock_add_json(text, use->call.names[i]);
		}
	lease_text_put(text, "]", 1);
	return dlock_is_text();
}

/*
 * dlock_renew_many(names, owner, ttl [, tokens]) returns text
 *
 * Set the deadlines of the leases on up to 1,000 different names, a JSON array of
 * strings, to "ttl" from now: a JSON array of the names for which that was done.
 * "tokens" is a JSON array with a token, or null for any, for each name.
 */
DLOCK_TEXT_FUNCTION(dlock_renew_many, DLOCK_TEXT_LONG, DLOCK_ACTS, 3,
					DLOCK_MANY_NAMES, DLOCK_OWNER, DLOCK_TTL, DLOCK_TOKENS)
{
	return change_each(use, LEASE_RENEW);
}

/*
 * dlock_release_many(names, owner [, tokens]) returns text
 *
 * Give one hold on each of the names back: as dlock_renew_many().
 */
DLOCK_TEXT_FUNCTION(dlock_release_many, DLOCK_TEXT_LONG, DLOCK_ACTS, 2,
					DLOCK_MANY_NAMES, DLOCK_OWNER, DLOCK_TOKENS)
{
	return change_each(use, LEASE_RELEASE);
}

/* Make a call that concerns several leases: how many. */
static dlock_value
change_all(dlock_use *use, dlock_call_kind kind, lease_op op)
{
	if (!make_call(use, kind, op))
		return dlock_error();
	return dlock_integer((long long) use->answer.count);
}

/*
 * dlock_renew_all(owner, ttl) returns integer
 *
 * Set the deadlines of all leases of an owner to "ttl" from now: how many.
 */
DLOCK_INTEGER_FUNCTION(dlock_renew_all, DLOCK_ACTS, 2, DLOCK_OWNER, DLOCK_TTL)
{
	return change_all(use, DLOCK_CALL_APPLY_ALL, LEASE_RENEW);
}

/*
 * dlock_release_all(owner) returns integer
 *
 * Drop all leases of an owner, whatever their hold counts: how many.
 */
DLOCK_INTEGER_FUNCTION(dlock_release_all, DLOCK_ACTS, 1, DLOCK_OWNER)
{
	return change_all(use, DLOCK_CALL_APPLY_ALL, LEASE_DROP);
}

/*
 * dlock_force_release(name [, owner]) returns integer
 *
 * Evict all holders of a name, or those of one owner: how many.  It takes the privilege
 * CONNECTION_ADMIN (on MariaDB CONNECTION ADMIN) or SUPER; without it, error 42501.
 * A NULL owner is an error, and does not mean all owners.
 */
DLOCK_INTEGER_FUNCTION(dlock_force_release, DLOCK_ACTS, 1, DLOCK_NAME, DLOCK_OWNER)
{
	if (!dlock_check_operator(use))
		return dlock_error();
	use->call.is_operator = true;
	return change_all(use, DLOCK_CALL_APPLY, LEASE_EVICT);
}
