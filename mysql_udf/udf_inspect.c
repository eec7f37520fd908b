/*
 * udf_inspect.c
 *	  The SQL functions that look: holders, waiters, counters.
 *
 * They take nothing and change nothing.  Owners and connections of other accounts are
 * masked, except for operators; see dlock_sees().
 *
 * Below them are functions for install.sql and its views alone: no part of the interface.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lease_engine.h"
#include "udf_function.h"

/* Raise the engine's error, for a call that ends with it. */
static dlock_value
fail(const dlock_answer *answer)
{
	dlock_raise(answer->sqlstate, "%s", answer->message);
	return dlock_error();
}

/* Look at a name, some of whose holders may be over: false if an error was raised. */
static bool
look(dlock_use *use, dlock_read_what what)
{
	use->call.kind = DLOCK_CALL_READ;
	use->call.what = what;
	use->call.request.op = LEASE_RENEW;
	return dlock_read(use) && dlock_get_caller(use) && dlock_ask_engine(use);
}

/*
 * dlock_owner(name) returns text
 *
 * The owner of the exclusive lease, or NULL.
 */
DLOCK_TEXT_FUNCTION(dlock_owner, DLOCK_TEXT_SHORT, DLOCK_LOOKS, 1, DLOCK_NAME)
{
	if (!look(use, DLOCK_READ_OWNER))
		return dlock_error();
	for (size_t i = 0; i < use->answer.nholders; i++)
	{
		const dlock_holder_info *holder = &use->answer.holders[i];
		lease_bytes owner;

		if (holder->mode != LEASE_EXCLUSIVE || !holder->live)
			continue;
		owner = dlock_sees(use, holder->user, holder->host) ?
			holder->owner : dlock_bytes_of(DLOCK_MASK);
		lease_text_put(&use->text, owner.data, owner.length);
		return dlock_is_text();
	}
	return dlock_null();
}

/*
 * dlock_is_free(name) returns integer
 *
 * Is the name held by nobody, in any mode, nor guarded, nor under a lock delay:
 * 1 or 0.
 */
DLOCK_INTEGER_FUNCTION(dlock_is_free, DLOCK_LOOKS, 1, DLOCK_NAME)
{
	if (!look(use, DLOCK_READ_FREE))
		return dlock_error();
	return dlock_integer(use->answer.yes);
}

/*
 * dlock_remaining(name, owner [, token]) returns real
 *
 * How many seconds are left of the lease that the caller has as this owner; NULL
 * if it has none.  Of a session's lease that lives: its ttl.
 */
DLOCK_REAL_FUNCTION(dlock_remaining, DLOCK_LOOKS, 2, DLOCK_NAME, DLOCK_OWNER,
					DLOCK_TOKEN)
{
	if (!look(use, DLOCK_READ_REMAINING))
		return dlock_error();
	if (use->answer.remaining_us < 0)
		return dlock_null();
	return dlock_real((double) use->answer.remaining_us / 1e6);
}

/* Append a holder as a JSON object, with the columns of dlock.locks. */
static void
add_holder(dlock_use *use, const dlock_holder_info *holder)
{
	lease_text *text = &use->text;
	lease_bytes mask = dlock_bytes_of(DLOCK_MASK);
	char		account[DLOCK_USER_SIZE + DLOCK_HOST_SIZE];
	bool		visible = dlock_sees(use, holder->user, holder->host);
	int			length = snprintf(account, sizeof(account), "%.*s@%.*s",
								  (int) holder->user.length, holder->user.data,
								  (int) holder->host.length, holder->host.data);

	lease_text_add(text, "{\"name\": ");
	dlock_add_json(text, use->call.names[0]);
	lease_text_add(text, ", \"owner\": ");
	dlock_add_json(text, visible ? holder->owner : mask);
	lease_text_add(text, ", \"mode\": \"%s\", \"version\": %lu, \"token\": %llu",
				   lease_mode_name(holder->mode),
				   (unsigned long) holder->version,
				   (unsigned long long) holder->token);
	lease_text_add(text, ", \"acquired_at\": ");
	dlock_add_json_time(text, holder->acquired_at_us);
	lease_text_add(text, ", \"expires_at\": ");
	if (holder->expires_at_us == 0)
		lease_text_add(text, "null");
	else
		dlock_add_json_time(text, holder->expires_at_us);
	lease_text_add(text, ", \"account\": ");
	dlock_add_json(text, (lease_bytes) {account, (size_t) length});
	lease_text_add(text, ", \"connection_id\": ");
	if (visible)
		lease_text_add(text, "%llu",
					   (unsigned long long) holder->connection_id);
	else
		lease_text_add(text, "null");
	lease_text_add(text, ", \"remaining\": %.6f, \"guarded\": %s",
				   (double) holder->remaining_us / 1e6,
				   holder->guarded == DLOCK_GUARD_UNKNOWN ? "null" :
				   holder->guarded == DLOCK_GUARDED ? "1" : "0");
#ifdef DLOCK_LOG
	lease_text_add(text, ", \"leaving\": %d", holder->leaving);
#endif
	lease_text_put(text, "}", 1);
}

/* By token. */
static int
compare_holders(const void *a, const void *c)
{
	const dlock_holder_info *x = a;
	const dlock_holder_info *y = c;

	return x->token < y->token ? -1 : x->token > y->token;
}

/*
 * dlock_holders(name) returns text
 *
 * A JSON array with an object for each holder, its keys being the columns of
 * dlock.locks; as there, a holder that is over shows until it is removed.
 * Times are UTC, as in "2026-11-21T03:25:28.112233+00:00".  expires_at is null for a
 * lease that lives as long as its connection, and for one that was given back and that a
 * transaction still guards.  "guarded" is 1, 0, or null if the server is read-only or
 * locked against writing.  A byte that is not part of a UTF-8 character reads U+FFFD.
 */
DLOCK_TEXT_FUNCTION(dlock_holders, DLOCK_TEXT_LONG, DLOCK_LOOKS, 1, DLOCK_NAME)
{
	lease_text *text = &use->text;
	dlock_holder_info *holders;

	if (!look(use, DLOCK_READ_HOLDERS))
		return dlock_error();
	holders = use->answer.holders;
	if (use->answer.nholders > 1)
		qsort(holders, use->answer.nholders, sizeof(*holders), compare_holders);
	lease_text_put(text, "[", 1);
	for (size_t i = 0; i < use->answer.nholders; i++)
	{
		if (i > 0)
			lease_text_put(text, ", ", 2);
		add_holder(use, &holders[i]);
	}
	lease_text_put(text, "]", 1);
	return dlock_is_text();
}

/*
 * dlock_stats_reset() returns integer
 *
 * Set the counters of dlock.stats to zero; answers NULL.  For operators.
 */
DLOCK_INTEGER_FUNCTION(dlock_stats_reset, DLOCK_ACTS, 0)
{
	if (!dlock_check_operator(use))
		return dlock_error();
	dlock_engine_reset_stats();
	return dlock_null();
}

/*
 * dlock_version() returns text
 *
 * The library's version.
 */
DLOCK_TEXT_FUNCTION(dlock_version, DLOCK_TEXT_SHORT, DLOCK_LOOKS, 0)
{
	lease_text_put(&use->text, DLOCK_VERSION, strlen(DLOCK_VERSION));
	return dlock_is_text();
}

/* ----------------------------------------------------------------
 * For install.sql
 * ----------------------------------------------------------------
 */

/*
 * dlock_os_user() returns text
 *
 * The operating system's user that the server runs as.
 */
DLOCK_TEXT_FUNCTION(dlock_os_user, DLOCK_TEXT_SHORT, DLOCK_LOOKS, 0)
{
	char		user[256];

	if (!dlock_server_user(user, sizeof(user)))
	{
		dlock_raise("HY000", "the server's operating system user, %lu, has no name",
					(unsigned long) geteuid());
		return dlock_error();
	}
	lease_text_put(&use->text, user, strlen(user));
	return dlock_is_text();
}

/*
 * dlock_settle() returns integer
 *
 * Wait until what was answered has been written to the lock table; 1.
 */
DLOCK_INTEGER_FUNCTION(dlock_settle, DLOCK_ACTS, 0)
{
	if (!dlock_engine_settle(&use->answer))
		return fail(&use->answer);
	return dlock_integer(1);
}

/*
 * dlock_reload() returns integer
 *
 * Read the tables in database dlock again, after something else has changed them, for
 * instance a restored dump; 1.  For operators.
 */
DLOCK_INTEGER_FUNCTION(dlock_reload, DLOCK_ACTS, 0)
{
	if (!dlock_check_operator(use))
		return dlock_error();
	if (!dlock_engine_reload(&use->answer))
		return fail(&use->answer);
	return dlock_integer(1);
}

/*
 * dlock_drain() returns integer
 *
 * Wait until no other call is being made, for 10 seconds at most: 1, or 0 if
 * a call still is.  MySQL forgets a function that is created while an old one
 * of its name still runs.
 */
DLOCK_INTEGER_FUNCTION(dlock_drain, DLOCK_ACTS, 0)
{
	return dlock_integer(dlock_engine_drain());
}

/* Answer a string of the engine's, which may be none. */
static dlock_value
answer_string(dlock_use *use, char *string)
{
	if (string == NULL)
		return fail(&use->answer);
	use->text.data = string;
	use->text.length = strlen(string);
	return dlock_is_text();
}

/*
 * Check that one of our views asks.  A view asks by stored functions with the rights of
 * their definer, an account that nobody can log in to.  Everybody can call a loadable
 * function, but not everybody may read the view.
 */
static bool
check_view(dlock_use *use, const char *view)
{
	static const lease_bytes user = {"dlock", 5};
	static const lease_bytes host = {"localhost", 9};

	if (!dlock_get_caller(use))
		return false;
	if (dlock_is_caller(&use->caller, user, host))
		return true;
	return dlock_raise("42501", "permission denied for function %s; read the view %s",
					   use->name, view);
}

/*
 * dlock_view_waiters() returns text
 *
 * All that the rows of dlock.waiters are made of, for that view, which masks
 * what its reader may not see: a JSON array.
 */
DLOCK_TEXT_FUNCTION(dlock_view_waiters, DLOCK_TEXT_LONG, DLOCK_LOOKS, 0)
{
	if (!check_view(use, "dlock.waiters"))
		return dlock_error();
	return answer_string(use, dlock_engine_waiters(NULL, &use->answer));
}

/*
 * dlock_view_stats() returns text
 *
 * The row of dlock.stats, for that view: a JSON object.
 */
DLOCK_TEXT_FUNCTION(dlock_view_stats, DLOCK_TEXT_LONG, DLOCK_LOOKS, 0)
{
	if (!check_view(use, "dlock.stats"))
		return dlock_error();
	return answer_string(use, dlock_engine_stats(&use->answer));
}

#ifdef DLOCK_LOG
/*
 * dlock_view_pages() returns text
 *
 * The pages in which the leases are, for the views: a JSON array of what
 * dlock_view_page() is to be called with.
 */
DLOCK_TEXT_FUNCTION(dlock_view_pages, DLOCK_TEXT_LONG, DLOCK_LOOKS, 0)
{
	size_t		pages;

	if (!check_view(use, "dlock.locks"))
		return dlock_error();
	if (!dlock_engine_pages(&pages, &use->answer))
		return fail(&use->answer);
	for (size_t i = 0; i < pages; i++)
		lease_text_add(&use->text, "%s\"%zu/%zu\"", i == 0 ? "[" : ", ", i, pages);
	lease_text_put(&use->text, "]", 1);
	return dlock_is_text();
}

/*
 * dlock_view_page(page) returns text
 *
 * A page of the leases, as they are now: a JSON array of arrays.
 */
DLOCK_TEXT_FUNCTION(dlock_view_page, DLOCK_TEXT_LONG, DLOCK_LOOKS, 1, DLOCK_PAGE)
{
	char		text[64];
	size_t		page;
	size_t		pages;

	if (!check_view(use, "dlock.locks"))
		return dlock_error();
	snprintf(text, sizeof(text), "%.*s", (int) use->args->lengths[0],
			 use->args->args[0] != NULL ? use->args->args[0] : "");
	if (sscanf(text, "%zu/%zu", &page, &pages) != 2 || page >= pages)
		return dlock_null();
	return answer_string(use, dlock_engine_page(page, pages, &use->answer));
}
#else
/*
 * dlock_unwritten() returns text
 *
 * The releases that have been answered and may not be written yet, for the views: a
 * JSON array of arrays of name, in hexadecimal digits, token, and the holds left.
 */
DLOCK_TEXT_FUNCTION(dlock_unwritten, DLOCK_TEXT_LONG, DLOCK_LOOKS, 0)
{
	if (!check_view(use, "dlock.locks"))
		return dlock_error();
	return answer_string(use, dlock_engine_unwritten(&use->answer));
}

/* ----------------------------------------------------------------
 * For the views of 1.0.0, until install.sql is run again, which drops these
 * ----------------------------------------------------------------
 */

/*
 * dlock_may_see(user, host) returns integer
 *
 * May the caller see the owners and connections of this account: 1 or 0.
 */
DLOCK_INTEGER_FUNCTION(dlock_may_see, DLOCK_LOOKS, 2, DLOCK_USER, DLOCK_HOST)
{
	lease_bytes user = {use->args->args[0], use->args->lengths[0]};
	lease_bytes host = {use->args->args[1], use->args->lengths[1]};

	if (user.data == NULL || host.data == NULL)
		return dlock_integer(0);
	if (!dlock_get_caller(use))
		return dlock_error();
	return dlock_integer(dlock_sees(use, user, host));
}

/*
 * dlock_waiters_json() returns text
 *
 * The rows of dlock.waiters, for that view: a JSON array.
 */
DLOCK_TEXT_FUNCTION(dlock_waiters_json, DLOCK_TEXT_LONG, DLOCK_LOOKS, 0)
{
	if (!dlock_get_caller(use))
		return dlock_error();
	return answer_string(use, dlock_engine_waiters(dlock_caller_is_operator() ?
												   NULL : &use->caller,
												   &use->answer));
}

/*
 * dlock_stats_json() returns text
 *
 * The row of dlock.stats, for that view: a JSON object.
 */
DLOCK_TEXT_FUNCTION(dlock_stats_json, DLOCK_TEXT_LONG, DLOCK_LOOKS, 0)
{
	return answer_string(use, dlock_engine_stats(&use->answer));
}
#endif
