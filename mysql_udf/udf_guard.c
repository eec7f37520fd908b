/*
 * udf_guard.c
 *	  The parts of CALL dlock.guard(name, owner, token) (rule 11).
 *
 * A guard is a change of the lease's row in the caller's own transaction: the
 * row stays locked until that ends, and in a cluster the change is certified
 * with the rest.  Callers have no privilege on the lock table, so the change is
 * made by a procedure with the rights of its definer; and in there the caller
 * cannot be told.  Hence three steps, one after the other in one statement and
 * so in one thread:
 *
 * 1. dlock.guard, as the caller: dlock_guard_begin() checks that there is a
 *	  transaction and that the caller holds the lease, and leaves a ticket.
 * 2. dlock.guard_row, as its definer: dlock_guard_ticket() takes the ticket,
 *	  and the row is changed.  Without a ticket nothing is.
 * 3. dlock.guard again: dlock_guard_check() looks once more, now that the row
 *	  can be given to nobody else.
 *
 * The row is found by its full key, for which InnoDB locks that row alone; with
 * less, or without a row, it locks the gaps around it and so delays other names.
 * Hence the ticket names the slot, and from the first step on the engine takes the
 * row for locked (lease_guards.c).  Should it all the same have gone from its slot,
 * because of another server of a cluster, say, that has to be put up with.
 *
 * Whoever guards is to tell a lost lease from all other errors, so it has an SQLSTATE
 * of its own.  MariaDB gives an error of a function the SQLSTATE that goes with its
 * number; so there, and on MySQL in the same way, dlock.guard says once more what has been
 * said, with that SQLSTATE, if dlock_guard_lost() answers that this was it.
 *
 * A ticket that is left behind by an error is good for nothing but the guard of
 * a lease by the connection that held it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <stdlib.h>
#include <string.h>

#include "lease_engine.h"
#include "udf_function.h"
#include "udf_messages.h"

/* What dlock_guard_begin() leaves for dlock_guard_ticket(). */
static __thread struct
{
	uint64_t	connection_id;	/* 0: no ticket */
	uint64_t	token;
	uint64_t	slot;
	char		name[LEASE_STRING_MAX];
	size_t		name_length;
}			ticket;

/* Whether the last step that this thread has made found the lease lost. */
static __thread bool is_lost = false;

/* What is guarded. */
typedef struct Guard
{
	lease_bytes name;
	lease_bytes owner;
	uint64_t	token;
} Guard;

static bool
get_guard(const UDF_ARGS *args, Guard *guard)
{
	return dlock_get_string(args, 0, "name", &guard->name) &&
		dlock_get_string(args, 1, "owner", &guard->owner) &&
		dlock_get_given_token(args, 2, &guard->token);
}

/* Raise the error of a guard that comes too late, and say who has the lease. */
static void
raise_lost(const Guard *guard, dlock_caller *caller)
{
	dlock_call	call = {
		.kind = DLOCK_CALL_READ, .names = &guard->name, .nnames = 1,
		.caller = caller
	};
	dlock_answer now = {0};

	is_lost = true;
	caller->is_operator = dlock_caller_is_operator();
	dlock_raise_lost(guard->name, guard->owner, caller,
					 dlock_engine_call(&call, &now) ? &now : NULL);
	free(now.holders);
}

/*
 * Check that the caller holds the lease, and get the slot of its row, if it is yet
 * to be locked; else raise an error.
 */
static bool
check_held(dlock_call_kind kind, const Guard *guard, uint64_t *slot)
{
	dlock_call	call = {.kind = kind};
	dlock_answer answer = {0};
	dlock_caller caller;

	if (!dlock_get_caller("dlock.guard", false, &caller))
		return false;
	call.names = &guard->name;
	call.nnames = 1;
	call.request.owner = guard->owner;
	call.request.token = guard->token;
	call.caller = &caller;
	if (!dlock_engine_call(&call, &answer))
	{
		dlock_raise_answer(&answer);
		return false;
	}
	if (!answer.yes)
		raise_lost(guard, &caller);
	*slot = answer.count;
	return answer.yes;
}

/*
 * dlock_guard_begin(name, owner, token) returns integer
 *
 * Check that a guard makes sense, and leave a ticket; 1.  Errors: 25P01 outside
 * a transaction, 55L01 if the caller does not hold the lease with this token.
 */
DLOCK_INTEGER_FUNCTION(dlock_guard_begin, 3, 3, "name, owner, token")
{
	Guard		guard;

	is_lost = false;
	ticket.connection_id = 0;
	if (!get_guard(args, &guard))
		return dlock_error();
	if (!dlock_caller_in_transaction())
	{
		dlock_raise("25P01", "dlock.guard() can only be used in transactions; the guard would end at once");
		return dlock_error();
	}
	if (!check_held(DLOCK_CALL_BEGIN_GUARD, &guard, &ticket.slot))
		return dlock_error();
	memcpy(ticket.name, guard.name.data, guard.name.length);
	ticket.name_length = guard.name.length;
	ticket.token = guard.token;
	ticket.connection_id = dlock_caller_connection_id();
	return dlock_integer(1);
}

/*
 * dlock_guard_ticket(name, token) returns integer
 *
 * Take the ticket that this connection has left for a lease: the slot of its
 * row, or NULL if there is none.
 */
DLOCK_INTEGER_FUNCTION(dlock_guard_ticket, 2, 2, "name, token")
{
	lease_bytes name;
	uint64_t	token;
	bool		valid;

	if (!dlock_get_string(args, 0, "name", &name) ||
		!dlock_get_given_token(args, 1, &token))
		return dlock_error();
	valid = ticket.connection_id != 0 &&
		ticket.connection_id == dlock_caller_connection_id() &&
		ticket.token == token &&
		lease_same(name, (lease_bytes) {ticket.name, ticket.name_length});
	ticket.connection_id = 0;
	return valid ? dlock_integer((long long) ticket.slot) : dlock_null();
}

/*
 * dlock_guard_check(name, owner, token, rows) returns integer
 *
 * Check that the guard is there, having changed so many rows; 1.  Error 55L01
 * if there was none, or the lease has ended meanwhile.
 */
DLOCK_INTEGER_FUNCTION(dlock_guard_check, 4, 4, "name, owner, token, rows")
{
	Guard		guard;
	uint64_t	slot;

	if (!get_guard(args, &guard))
		return dlock_error();
	if (args->args[3] == NULL || args->lengths[3] != 1 || *args->args[3] == '0')
	{
		dlock_caller caller;

		if (dlock_get_caller("dlock.guard", false, &caller))
			raise_lost(&guard, &caller);
		return dlock_error();
	}
	return check_held(DLOCK_CALL_CHECK_GUARD, &guard, &slot) ? dlock_integer(1) :
		dlock_error();
}

/*
 * dlock_guard_lost() returns integer
 *
 * Say whether the error that has just ended a guard is that its lease is lost: 1 or
 * 0; once.
 */
DLOCK_INTEGER_FUNCTION(dlock_guard_lost, 0, 0, "")
{
	bool		lost = is_lost;

	is_lost = false;
	return dlock_integer(lost);
}
