/*
 * udf_guard.c
 *	  The parts of CALL dlock.guard(name, owner, token).
 *
 * A guard changes the lease's row in the caller's own transaction.  The row stays
 * locked until that transaction ends, and in a cluster the change is certified with the
 * rest.  Callers have no privilege on the lock table, so a procedure with the rights of
 * its definer makes the change, and inside it nothing tells the caller's account.  Hence
 * three steps, in one statement and so in one thread:
 *
 * 1. dlock.guard, as the caller: dlock_guard_begin() checks that there is a
 *	  transaction and that the caller holds the lease, and leaves a ticket.
 * 2. dlock.guard_row, as its definer: dlock_guard_ticket() takes the ticket,
 *	  and the row is changed.  Without a ticket nothing is.
 * 3. dlock.guard again: dlock_guard_check() looks once more, now that the row
 *	  can be given to nobody else.
 *
 * InnoDB locks the row alone if the procedure finds it by its full key; else it locks
 * gaps, too, which delays other names.  So the ticket names the slot, and from the first
 * step on the engine takes the row for locked (lease_guards.c), for a moment.  Any
 * account can call the second step, at any time.  If the moment is over by then, that
 * step repeats the first one, for the caller that the ticket names.  The row may still
 * leave its slot, for instance by another server of a cluster; then gaps are locked.
 *
 * A lost lease has an SQLSTATE of its own, so that a program can tell it from all other
 * errors.  MariaDB takes a function's SQLSTATE from its error number.  So dlock.guard, on
 * both servers, signals the message again, with that SQLSTATE, if dlock_guard_lost()
 * answers 1.
 *
 * An error may leave a ticket behind.  It is only good for the same connection to guard
 * the same lease, as long as it is held.
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

/* This thread's last step has found the lease lost. */
static __thread bool is_lost = false;

/* Raise the error of a lost lease, which says who holds the name now. */
static void
raise_lost(dlock_use *use)
{
	is_lost = true;
	use->call.kind = DLOCK_CALL_READ;
	use->call.caller = &use->caller;
	dlock_raise_lost(use, dlock_engine_call(&use->call, &use->answer));
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

/* The same, and note in the ticket where the row is, which is yet to be locked. */
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
	if (!dlock_get_caller(use) || !begin_guard(use))
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
 * if it changed none, or the lease has ended meanwhile.
 */
DLOCK_INTEGER_FUNCTION(dlock_guard_check, DLOCK_ACTS, 4, DLOCK_NAME, DLOCK_OWNER,
					   DLOCK_TOKEN, DLOCK_ROWS)
{
	const char *rows = use->args->args[3];

	use->name = "dlock.guard";
	if (!dlock_read(use) || !dlock_get_caller(use))
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
 * Say whether the error that has just ended a guard is a lost lease, 1 or 0, and forget
 * that.  The guard will lock no row.
 */
DLOCK_INTEGER_FUNCTION(dlock_guard_lost, DLOCK_LOOKS, 0)
{
	bool		lost = is_lost;

	is_lost = false;
	dlock_engine_end_guard(dlock_caller_connection_id());
	return dlock_integer(lost);
}
