/*
 * udf_arguments.c
 *	  What the SQL functions are called with, checked.
 *
 * Character sets.  Names and owners are bytes, and the same text must be the
 * same bytes for every client.  MySQL is asked to convert text to utf8mb4;
 * binary strings stay what they are.  MariaDB cannot be asked and passes on
 * what it has: there, clients whose character set is not utf8mb4 have to
 * convert what is not ASCII, CONVERT(name USING utf8mb4).
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "udf_arguments.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "udf_duration.h"
#include "udf_text.h"

#define TEXT_CHARSET	"utf8mb4"
#define BINARY_CHARSET	"binary"

/* What the server has room for in _init's message. */
#define INIT_MESSAGE_SIZE	512

/* ----------------------------------------------------------------
 * Before the first call of a statement
 * ----------------------------------------------------------------
 */

static pthread_once_t metadata_once = PTHREAD_ONCE_INIT;
static mysql_udf_metadata_service metadata; /* of NULLs if there is none */

/*
 * Find MySQL's service.  Its functions are the server's own and stay valid
 * after the service has been given back, which saves every statement the trip
 * to the registry.
 */
static void
find_metadata(void)
{
	mysql_registry *registry;
	void	   *service;

	if (mysql_registry_acquire == NULL || mysql_registry_release == NULL)
		return;
	registry = mysql_registry_acquire();
	if (registry == NULL)
		return;
	if (!registry->acquire("mysql_udf_metadata", &service))
	{
		metadata = *(const mysql_udf_metadata_service *) service;
		registry->release(service);
	}
	mysql_registry_release(registry);
}

/*
 * Check how many arguments there are, and say in which form they are wanted.
 * For _init: true, with a message, is failure.
 */
bool
dlock_prepare_arguments(UDF_ARGS *args, char *message,
						const dlock_signature *signature)
{
	if (args->arg_count < signature->least ||
		args->arg_count > signature->most)
	{
		snprintf(message, INIT_MESSAGE_SIZE, "call %s(%s)",
				 signature->function, signature->parameters);
		return true;
	}
	pthread_once(&metadata_once, find_metadata);
	for (unsigned int i = 0; i < args->arg_count; i++)
	{
		void	   *charset = NULL;

		if (metadata.argument_get != NULL &&
			args->arg_type[i] == STRING_RESULT &&
			!metadata.argument_get(args, "charset", i, &charset) &&
			charset != NULL && strcmp(charset, BINARY_CHARSET) != 0 &&
			strcmp(charset, TEXT_CHARSET) != 0 &&
			metadata.argument_set(args, "charset", i, (void *) TEXT_CHARSET))
		{
			snprintf(message, INIT_MESSAGE_SIZE,
					 "cannot convert an argument to %s", TEXT_CHARSET);
			return true;
		}
		args->arg_type[i] = STRING_RESULT;
	}
	return false;
}

/* Say that the result is text.  For _init: true is failure. */
bool
dlock_prepare_result(UDF_INIT *init)
{
	pthread_once(&metadata_once, find_metadata);
	return metadata.result_set != NULL &&
		metadata.result_set(init, "charset", (void *) TEXT_CHARSET);
}

/* ----------------------------------------------------------------
 * Arguments
 * ----------------------------------------------------------------
 */

static bool
is_null(const UDF_ARGS *args, unsigned int argument)
{
	return argument >= args->arg_count || args->args[argument] == NULL;
}

/* Get the text of an argument that is not NULL. */
static lease_bytes
text_of(const UDF_ARGS *args, unsigned int argument)
{
	return (lease_bytes) {args->args[argument], args->lengths[argument]};
}

/* Check that an argument is not NULL. */
static bool
check_not_null(const UDF_ARGS *args, unsigned int argument, const char *what)
{
	if (!is_null(args, argument))
		return true;
	dlock_raise("22004", "%s must not be null", what);
	return false;
}

/* Check the length of a name, owner or request id. */
static bool
check_string(lease_bytes string, const char *what)
{
	if (lease_check_string(string.length))
		return true;
	dlock_raise("22023", "%s must be 1 to %d bytes long; it is %zu bytes long",
				what, LEASE_STRING_MAX, string.length);
	return false;
}

/* Get a name, owner or request id that is not NULL. */
bool
dlock_get_string(const UDF_ARGS *args, unsigned int argument, const char *what,
				 lease_bytes *string)
{
	if (!check_not_null(args, argument, what))
		return false;
	*string = text_of(args, argument);
	return check_string(*string, what);
}

/* Get a request id, where NULL stands for "not given". */
bool
dlock_get_request(const UDF_ARGS *args, unsigned int argument,
				  lease_bytes *request)
{
	*request = (lease_bytes) {NULL, 0};
	return is_null(args, argument) ||
		dlock_get_string(args, argument, "request id", request);
}

static bool
get_duration(const UDF_ARGS *args, unsigned int argument, const char *what,
			 int64_t *duration_us)
{
	char		shown[DLOCK_SHOWN_SIZE];

	if (!check_not_null(args, argument, what))
		return false;
	switch (dlock_parse_duration(text_of(args, argument), duration_us))
	{
		case DLOCK_DURATION_OK:
			return true;
		case DLOCK_DURATION_INVALID:
			dlock_raise("22007",
						"invalid input syntax for type dlock_duration: \"%s\"",
						dlock_show(shown, text_of(args, argument)));
			break;
		case DLOCK_DURATION_NOT_FINITE:
			dlock_raise("22023",
						"duration must be a finite number of seconds");
			break;
		case DLOCK_DURATION_OUT_OF_RANGE:
			dlock_raise("22023", "duration is out of range");
			break;
	}
	return false;
}

/*
 * Refuse a time that is longer than anybody means: a driver may send one in
 * milliseconds or nanoseconds.
 */
static bool
check_longest(int64_t time_us, const char *what)
{
	int64_t		longest_us = dlock_engine_max_ttl_us();

	if (time_us <= longest_us)
		return true;
	dlock_raise("22023", "%s must be at most %lld seconds; times are in seconds, and \"max_ttl\" in dlock.settings says what the longest is",
				what, (long long) (longest_us / 1000000));
	return false;
}

bool
dlock_get_ttl(const UDF_ARGS *args, unsigned int argument, int64_t *ttl_us)
{
	if (!get_duration(args, argument, "ttl", ttl_us) ||
		!check_longest(*ttl_us, "ttl"))
		return false;
	if (lease_check_ttl(*ttl_us))
		return true;
	dlock_raise("22023", "ttl must be greater than 0");
	return false;
}

/* How long to wait; negative: without limit.  Not given: not at all. */
bool
dlock_get_wait(const UDF_ARGS *args, unsigned int argument, int64_t *wait_us)
{
	*wait_us = 0;
	return argument >= args->arg_count ||
		(get_duration(args, argument, "wait", wait_us) &&
		 (*wait_us <= 0 || check_longest(*wait_us, "wait")));
}

/*
 * Read an integer.  Clients may send it as text, or as a number with a fraction of
 * zeros or an exponent.
 */
static bool
read_integer(lease_bytes text, int64_t *value)
{
	char		copy[64];
	char	   *end;
	double		real;

	if (text.length == 0 || text.length >= sizeof(copy))
		return false;
	memcpy(copy, text.data, text.length);
	copy[text.length] = '\0';
	if (strspn(copy, "+-0123456789.eE") != text.length)
		return false;
	*value = strtoll(copy, &end, 10);
	if (end != copy && *end == '.')
		end += 1 + strspn(end + 1, "0");
	if (end != copy && *end == '\0')
		return true;
	real = strtod(copy, &end);
	if (*end != '\0' || fabs(real) > 0x1p62 || real != rint(real))
		return false;
	*value = (int64_t) real;
	return true;
}

/* The same for an argument that is not NULL. */
static bool
get_integer(const UDF_ARGS *args, unsigned int argument, const char *what,
			int64_t *value)
{
	if (read_integer(text_of(args, argument), value))
		return true;
	dlock_raise("22023", "%s must be an integer", what);
	return false;
}

/* Get a number of something: 1 to 2^31 - 1. */
bool
dlock_get_number(const UDF_ARGS *args, unsigned int argument, const char *what,
				 uint32_t *number)
{
	int64_t		value;

	if (!check_not_null(args, argument, what) ||
		!get_integer(args, argument, what, &value))
		return false;
	if (value < 1)
	{
		dlock_raise("22023", "%s must be at least 1", what);
		return false;
	}
	if (value > LEASE_VERSION_MAX)
	{
		dlock_raise("22023", "%s must be at most %d", what, LEASE_VERSION_MAX);
		return false;
	}
	*number = (uint32_t) value;
	return true;
}

/* Get how many permits of a limit are wanted at once. */
bool
dlock_get_permits(const UDF_ARGS *args, unsigned int argument, uint32_t limit,
				  uint32_t *permits)
{
	if (!dlock_get_number(args, argument, "permits", permits))
		return false;
	if (*permits <= limit)
		return true;
	dlock_raise("22023", "permits must not be greater than limit; %u permits were asked for, of %u",
				*permits, limit);
	return false;
}

/* The token to match.  What never was one matches none, as UINT64_MAX does. */
static uint64_t
token_of(int64_t value)
{
	return value > 0 ? (uint64_t) value : UINT64_MAX;
}

/* The same for an argument, 0 for any: not given, or NULL. */
bool
dlock_get_token(const UDF_ARGS *args, unsigned int argument, uint64_t *token)
{
	int64_t		value;

	*token = 0;
	if (is_null(args, argument))
		return true;
	if (!get_integer(args, argument, "token", &value))
		return false;
	*token = token_of(value);
	return true;
}

/* The token to match, which has to be given. */
bool
dlock_get_given_token(const UDF_ARGS *args, unsigned int argument,
					  uint64_t *token)
{
	return check_not_null(args, argument, "token") &&
		dlock_get_token(args, argument, token);
}

static int
compare_names(const void *a, const void *c)
{
	const lease_bytes *x = a;
	const lease_bytes *y = c;

	if (x->length != y->length)
		return x->length < y->length ? -1 : 1;
	return memcmp(x->data, y->data, x->length);
}

/* Check the names of a call, and that none is there twice. */
static bool
check_names(const dlock_names *names)
{
	char		shown[DLOCK_SHOWN_SIZE];
	lease_bytes *sorted;
	bool		distinct = true;

	for (size_t i = 0; i < names->count; i++)
		if (!check_string(names->names[i], "name"))
			return false;
	if (names->count < 2)
		return true;
	sorted = malloc(names->count * sizeof(lease_bytes));
	if (sorted == NULL)
	{
		dlock_raise("53200", "out of memory");
		return false;
	}
	memcpy(sorted, names->names, names->count * sizeof(lease_bytes));
	qsort(sorted, names->count, sizeof(lease_bytes), compare_names);
	for (size_t i = 1; i < names->count && distinct; i++)
		if (lease_same(sorted[i - 1], sorted[i]))
		{
			dlock_raise("22023", "names must not contain \"%s\" twice",
						dlock_show(shown, sorted[i]));
			distinct = false;
		}
	free(sorted);
	return distinct;
}

/*
 * Get the names of a call, "least" to "most" of them; dlock_free_names() in any
 * case.
 */
bool
dlock_get_names(const UDF_ARGS *args, unsigned int argument, size_t least,
				size_t most, dlock_names *names)
{
	lease_bytes json;

	*names = (dlock_names) {0};
	if (!check_not_null(args, argument, "names"))
		return false;
	json = text_of(args, argument);
	names->memory = malloc(most * sizeof(lease_bytes) + json.length + 1);
	if (names->memory == NULL)
	{
		dlock_raise("53200", "out of memory");
		return false;
	}
	names->names = names->memory;
	switch (dlock_read_json_array(json, (char *) (names->names + most), false,
								  names->names, most, &names->count))
	{
		case DLOCK_JSON_ARRAY:
			if (names->count >= least)
				return check_names(names);
			/* FALLTHROUGH */
		case DLOCK_JSON_TOO_LONG:
			dlock_raise("22023", "names must be %zu to %zu names; there are %zu",
						least, most, names->count);
			break;
		case DLOCK_JSON_NULL_ELEMENT:
			dlock_raise("22004", "names must not contain nulls");
			break;
		case DLOCK_JSON_INVALID:
			dlock_raise("22023", "names must be a JSON array of strings");
			break;
	}
	return false;
}

/* Get the tokens to match for the names of a call; not given, or NULL: any. */
bool
dlock_get_tokens(const UDF_ARGS *args, unsigned int argument,
				 dlock_names *names)
{
	lease_bytes *numbers;
	size_t		count;
	bool		valid = true;
	dlock_json_array kind;

	if (is_null(args, argument))
		return true;
	numbers = malloc((names->count + 1) * sizeof(lease_bytes));
	names->tokens = malloc((names->count + 1) * sizeof(uint64_t));
	if (numbers == NULL || names->tokens == NULL)
	{
		free(numbers);
		dlock_raise("53200", "out of memory");
		return false;
	}
	kind = dlock_read_json_array(text_of(args, argument), NULL, true, numbers,
								 names->count, &count);
	if (kind != DLOCK_JSON_INVALID && count != names->count)
	{
		dlock_raise("22023", "tokens must be as many as names; there are %zu tokens for %zu names",
					count, names->count);
		valid = false;
	}
	for (size_t i = 0; valid && kind == DLOCK_JSON_ARRAY && i < count; i++)
	{
		int64_t		value;

		names->tokens[i] = 0;
		if (numbers[i].data == NULL)
			continue;
		if (!read_integer(numbers[i], &value))
			kind = DLOCK_JSON_INVALID;
		else
			names->tokens[i] = token_of(value);
	}
	free(numbers);
	if (valid && kind != DLOCK_JSON_ARRAY)
	{
		dlock_raise("22023", "tokens must be a JSON array of integers and nulls");
		valid = false;
	}
	return valid;
}

/* Free what the names of a call took. */
void
dlock_free_names(dlock_names *names)
{
	free(names->memory);
	free(names->tokens);
}

/* ----------------------------------------------------------------
 * The caller
 * ----------------------------------------------------------------
 */

/*
 * Find out who calls.  What the caller may do beyond its own leases costs a
 * little to find out, so ask only where it matters.
 */
bool
dlock_get_caller(const char *function, bool with_rights, dlock_caller *caller)
{
	if (dlock_caller_is_applier())
	{
		dlock_raise("25006", "cannot execute %s() while replicating; use row-based replication",
					function);
		return false;
	}
	if (!dlock_caller_account(caller->user, sizeof(caller->user),
							  caller->host, sizeof(caller->host)))
	{
		dlock_raise("42501", "cannot tell which account calls %s(); a routine whose definer is a role cannot call it",
					function);
		return false;
	}
	caller->connection_id = dlock_caller_connection_id();
	caller->is_operator = with_rights && dlock_caller_is_operator();
	return true;
}

/* Check that the caller may end other people's leases. */
bool
dlock_check_operator(const char *function)
{
	if (dlock_caller_is_operator())
		return true;
	dlock_raise("42501", "permission denied for function %s; it takes the privilege CONNECTION_ADMIN or SUPER",
				function);
	return false;
}

/* May the caller see the owners and connections of this holder's account? */
bool
dlock_sees_holder(const dlock_caller *caller, const dlock_holder_info *holder)
{
	return caller->is_operator ||
		(strcmp(holder->user, caller->user) == 0 &&
		 strcmp(holder->host, caller->host) == 0);
}
