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
 * row for locked (lease_guards.c): for a moment only, so if it takes longer to the
 * second step, whose caller may be anybody and may call it when he likes, the first is
 * made anew there, for the caller that the ticket names.  Should the row all the same
 * have gone from its slot, because of another server of a cluster, say, that has to be
 * put up with.
 *
 * Whoever guards is to tell a lost lease from all other errors, so it has an SQLSTATE
 * of its own.  MariaDB gives an error of a function the SQLSTATE that goes with its
 * number; so there, and on MySQL in the same way, dlock.guard says once more what has been
 * said, with that SQLSTATE, if dlock_guard_lost() answers that this was it.
 *
 * A ticket that is left behind by an error is good for nothing but the guard of
 * a lease by the connection that held it, as long as it is held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
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
	char		owner[LEASE_STRING_MAX];
	size_t		owner_length;
	dlock_caller caller;
}			ticket;

/* Whether the last step that this thread has made found the lease lost. */
static __thread bool is_lost = false;

/* Raise the error of a guard that comes too late, and say who has the lease. */
static void
raise_lost(dlock_use *use)
{
	is_lost = true;
	use->call.kind = DLOCK_CALL_READ;
	use->call.caller = &use->caller;
	use->caller.is_operator = dlock_caller_is_operator();
	dlock_raise_lost(&use->call, dlock_engine_call(&use->call, &use->answer) ?
					 &use->answer : NULL);
}

/* Check that use->caller holds the lease; else raise an error. */
static bool
check_held(dlock_use *use, dlock_call_kind kind)
{
	use->call.kind = kind;
	if (!dlock_ask_engine(use))
		return false;
	if (use->answer.yes)
		return true;
	raise_lost(use);
	return false;
}

/* The same, and have the ticket say where its row is, which is yet to be locked. */
static bool
begin_guard(dlock_use *use)
{
	if (!check_held(use, DLOCK_CALL_BEGIN_GUARD))
		return false;
	ticket.slot = use->answer.count;
	return true;
}

/*
 * dlock_guard_begin(name, owner, token) returns integer
 *
 * Check that a guard makes sense, and leave a ticket; 1.  Errors: 25P01 outside
 * a transaction, 55L01 if the caller does not hold the lease with this token.
 */
DLOCK_INTEGER_FUNCTION(dlock_guard_begin, DLOCK_ACTS, 3, DLOCK_NAME, DLOCK_OWNER,
					   DLOCK_TOKEN)
{
	lease_bytes name;
	lease_bytes owner;

	use->name = "dlock.guard";
	is_lost = false;
	ticket.connection_id = 0;
	if (!dlock_read(use))
		return dlock_error();
	if (!dlock_caller_in_transaction())
	{
		dlock_raise("25P01", "dlock.guard() can only be used in transactions; the guard would end at once");
		return dlock_error();
	}
	if (!dlock_get_caller(use, false) || !begin_guard(use))
		return dlock_error();
	name = use->call.names[0];
	memcpy(ticket.name, name.data, name.length);
	ticket.name_length = name.length;
	owner = use->call.request.owner;
	memcpy(ticket.owner, owner.data, owner.length);
	ticket.owner_length = owner.length;
	ticket.caller = use->caller;
	ticket.token = use->call.request.token;
	ticket.connection_id = dlock_caller_connection_id();
	return dlock_integer(1);
}

/*
 * dlock_guard_ticket(name, token) returns integer
 *
 * Take the ticket that this connection has left for a lease: the slot of its
 * row, or NULL if there is none.  Error 55L01 if the lease has been lost since.
 */
DLOCK_INTEGER_FUNCTION(dlock_guard_ticket, DLOCK_ACTS, 2, DLOCK_NAME, DLOCK_TOKEN)
{
	bool		valid;

	if (!dlock_read(use))
		return dlock_error();
	valid = ticket.connection_id != 0 &&
		ticket.connection_id == dlock_caller_connection_id() &&
		ticket.token == use->call.request.token &&
		lease_same(use->call.names[0],
				   (lease_bytes) {ticket.name, ticket.name_length});
	ticket.connection_id = 0;
	if (!valid)
		return dlock_null();
	if (!dlock_engine_extend_guard(ticket.caller.connection_id))
	{
		use->name = "dlock.guard";
		use->caller = ticket.caller;
		use->call.request.owner = (lease_bytes) {
			ticket.owner, ticket.owner_length
		};
		if (!begin_guard(use))
			return dlock_error();
	}
	return dlock_integer((long long) ticket.slot);
}

/*
 * dlock_guard_check(name, owner, token, rows) returns integer
 *
 * Check that the guard is there, having changed so many rows; 1.  Error 55L01
 * if there was none, or the lease has ended meanwhile.
 */
DLOCK_INTEGER_FUNCTION(dlock_guard_check, DLOCK_ACTS, 4, DLOCK_NAME, DLOCK_OWNER,
					   DLOCK_TOKEN, DLOCK_ROWS)
{
	const char *rows = use->args->args[3];

	use->name = "dlock.guard";
	if (!dlock_read(use) || !dlock_get_caller(use, false))
		return dlock_error();
	if (rows == NULL || use->args->lengths[3] != 1 || *rows == '0')
		raise_lost(use);
	else if (check_held(use, DLOCK_CALL_CHECK_GUARD))
		return dlock_integer(1);
	return dlock_error();
}

/*
 * dlock_guard_lost() returns integer
 *
 * Say whether the error that has just ended a guard is that its lease is lost: 1 or
 * 0; once.  It locks no row any more.
 */
DLOCK_INTEGER_FUNCTION(dlock_guard_lost, DLOCK_LOOKS, 0)
{
	bool		lost = is_lost;

	is_lost = false;
	dlock_engine_end_guard(dlock_caller_connection_id());
	return dlock_integer(lost);
}
