/*
 * udf_arguments.c
 *	  What the SQL functions are called with: declared, read and checked.
 *
 * Character sets.  Names and owners are bytes, and the same text must be the same bytes
 * for every client.  MySQL converts text to utf8mb4 for us, and leaves binary strings
 * alone.  MariaDB does not: there, clients with another character set have to convert
 * what is not ASCII, CONVERT(name USING utf8mb4).
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "udf_function.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "duration.h"
#include "udf_text.h"

#define TEXT_CHARSET	"utf8mb4"
#define TEXT_COLLATION	"utf8mb4_bin"
#define BINARY_CHARSET	"binary"

/* ----------------------------------------------------------------
 * Character sets
 * ----------------------------------------------------------------
 */

static pthread_once_t metadata_once = PTHREAD_ONCE_INIT;
static mysql_udf_metadata_service metadata; /* NULLs if there is none */

/* Find the service, once: that saves each statement the trip to MySQL's registry. */
static void
find_metadata(void)
{
	(void) dlock_copy_service("mysql_udf_metadata", &metadata, sizeof(metadata));
}

/* ----------------------------------------------------------------
 * Reading
 *
 * Each reader takes the text of an argument that is not NULL, and puts what it
 * says into the call; false: an error was raised.
 * ----------------------------------------------------------------
 */

/* Check the length of a name, owner or request id. */
static bool
check_string(lease_bytes string, const char *what)
{
	if (lease_check_string(string.length))
		return true;
	return dlock_raise("22023", "%s must be 1 to %d bytes long; it is %zu bytes long",
					   what, LEASE_STRING_MAX, string.length);
}

static bool
read_name(dlock_use *use, lease_bytes text)
{
	use->one_name = text;
	use->call.names = &use->one_name;
	use->call.nnames = 1;
	return check_string(text, "name");
}

static bool
read_owner(dlock_use *use, lease_bytes text)
{
	use->call.request.owner = text;
	return check_string(text, "owner");
}

static bool
read_request(dlock_use *use, lease_bytes text)
{
	use->call.request.request = text;
	return check_string(text, "request id");
}

/*
 * Read a time.  One that is longer than "max_ttl" is an error, since a driver may have
 * sent milliseconds or nanoseconds.
 */
static bool
read_duration(lease_bytes text, const char *what, int64_t *duration_us)
{
	char		shown[DLOCK_SHOWN_SIZE];
	int64_t		longest_us;

	switch (lease_parse_duration(text.data, text.length, duration_us))
	{
		case LEASE_DURATION_OK:
			longest_us = dlock_engine_max_ttl_us();
			if (*duration_us <= longest_us)
				return true;
			return dlock_raise("22023", "%s must be at most %lld seconds; times are in seconds, and \"max_ttl\" in dlock.settings says what the longest is",
							   what, (long long) (longest_us / 1000000));
		case LEASE_DURATION_NOT_FINITE:
			return dlock_raise("22023", "duration must be a finite number of seconds");
		case LEASE_DURATION_OUT_OF_RANGE:
			return dlock_raise("22023", "duration is out of range");
		case LEASE_DURATION_INVALID:
			break;
	}
	return dlock_raise("22007", "\"%s\" is not a time; give a number of seconds, or a span such as '5 minutes'",
					   dlock_show(shown, text));
}

/* A time from now on; "what" is the argument. */
static bool
read_time_to_end(dlock_use *use, lease_bytes text, const char *what)
{
	int64_t    *ttl_us = &use->call.request.ttl_us;

	if (!read_duration(text, what, ttl_us))
		return false;
	if (lease_check_ttl(*ttl_us))
		return true;
	return dlock_raise("22023", "%s must be greater than 0", what);
}

static bool
read_ttl(dlock_use *use, lease_bytes text)
{
	return read_time_to_end(use, text, "ttl");
}

static bool
read_after(dlock_use *use, lease_bytes text)
{
	return read_time_to_end(use, text, "after");
}

/* How long to wait; negative: without limit. */
static bool
read_wait(dlock_use *use, lease_bytes text)
{
	if (!read_duration(text, "wait", &use->call.wait_us))
		return false;
	if (use->call.wait_us == 0 || use->call.nnames <= DLOCK_MAX_NAMES)
		return true;
	return dlock_raise("22023", "cannot wait for more than %d names; there are %zu",
					   DLOCK_MAX_NAMES, use->call.nnames);
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

/* Raise the error of what should be an integer. */
static bool
fail_integer(const char *what)
{
	return dlock_raise("22023", "%s must be an integer", what);
}

/* Read a number of something: 1 to 2^31 - 1. */
static bool
read_number(lease_bytes text, const char *what, uint32_t *number)
{
	int64_t		value;

	if (!read_integer(text, &value))
		return fail_integer(what);
	if (value < 1)
		return dlock_raise("22023", "%s must be at least 1", what);
	if (value > LEASE_VERSION_MAX)
		return dlock_raise("22023", "%s must be at most %d", what, LEASE_VERSION_MAX);
	*number = (uint32_t) value;
	return true;
}

static bool
read_limit(dlock_use *use, lease_bytes text)
{
	return read_number(text, "limit", &use->call.request.limit);
}

static bool
read_permits(dlock_use *use, lease_bytes text)
{
	const lease_request *request = &use->call.request;

	if (!read_number(text, "permits", &use->call.request.permits))
		return false;
	if (request->permits <= request->limit)
		return true;
	return dlock_raise("22023", "permits must not be greater than limit; %u permits were asked for, of %u",
					   request->permits, request->limit);
}

static bool
read_count(dlock_use *use, lease_bytes text)
{
	return read_number(text, "count", &use->call.wanted);
}

static bool
read_holds(dlock_use *use, lease_bytes text)
{
	return read_number(text, "holds", &use->call.request.holds);
}

/* The token to match.  A number that cannot be a token becomes one that matches none. */
static uint64_t
token_of(int64_t value)
{
	return value > 0 ? (uint64_t) value : UINT64_MAX;
}

static bool
read_token(dlock_use *use, lease_bytes text)
{
	int64_t		value;

	if (!read_integer(text, &value))
		return fail_integer("token");
	use->call.request.token = token_of(value);
	return true;
}

/* Check the names of a call, and that none is there twice. */
static bool
check_names(const lease_bytes *names, size_t count)
{
	char		shown[DLOCK_SHOWN_SIZE];
	lease_bytes *sorted;
	bool		distinct = true;

	for (size_t i = 0; i < count; i++)
		if (!check_string(names[i], "name"))
			return false;
	if (count < 2)
		return true;
	sorted = malloc(count * sizeof(lease_bytes));
	if (sorted == NULL)
		return dlock_raise("53200", "out of memory");
	memcpy(sorted, names, count * sizeof(lease_bytes));
	qsort(sorted, count, sizeof(lease_bytes), lease_compare);
	for (size_t i = 1; i < count && distinct; i++)
		if (lease_same(sorted[i - 1], sorted[i]))
			distinct = dlock_raise("22023", "names must not contain \"%s\" twice",
								   dlock_show(shown, sorted[i]));
	free(sorted);
	return distinct;
}

/* Read "least" to "most" names. */
static bool
read_list(dlock_use *use, lease_bytes text, size_t least, size_t most)
{
	dlock_call *call = &use->call;
	lease_bytes *names = malloc(most * sizeof(lease_bytes) + text.length + 1);

	use->names = names;
	if (names == NULL)
		return dlock_raise("53200", "out of memory");
	call->names = names;
	switch (dlock_read_json_array(text, (char *) (names + most), false,
								  names, most, &call->nnames))
	{
		case DLOCK_JSON_ARRAY:
			if (call->nnames >= least)
				return check_names(names, call->nnames);
			/* FALLTHROUGH */
		case DLOCK_JSON_TOO_LONG:
			return dlock_raise("22023", "names must be %zu to %zu names; there are %zu",
							   least, most, call->nnames);
		case DLOCK_JSON_NULL_ELEMENT:
			return dlock_raise("22004", "names must not contain nulls");
		case DLOCK_JSON_INVALID:
			break;
	}
	return dlock_raise("22023", "names must be a JSON array of strings");
}

static bool
read_names(dlock_use *use, lease_bytes text)
{
	return read_list(use, text, 1, DLOCK_MAX_NAMES);
}

static bool
read_many_names(dlock_use *use, lease_bytes text)
{
	return read_list(use, text, 0, DLOCK_MAX_MANY);
}

/* Read the tokens to match, as many as there are names. */
static bool
read_tokens(dlock_use *use, lease_bytes text)
{
	size_t		wanted = use->call.nnames;
	size_t		count;
	lease_bytes *numbers = malloc((wanted + 1) * sizeof(lease_bytes));
	uint64_t   *tokens = malloc((wanted + 1) * sizeof(uint64_t));
	dlock_json_array kind;
	bool		valid;

	use->tokens = tokens;
	use->call.tokens = tokens;
	if (numbers == NULL || tokens == NULL)
	{
		free(numbers);
		return dlock_raise("53200", "out of memory");
	}
	kind = dlock_read_json_array(text, NULL, true, numbers, wanted, &count);
	valid = kind == DLOCK_JSON_ARRAY && count == wanted;
	for (size_t i = 0; valid && i < count; i++)
	{
		int64_t		value = 0;

		valid = numbers[i].data == NULL || read_integer(numbers[i], &value);
		tokens[i] = numbers[i].data == NULL ? 0 : token_of(value);
	}
	free(numbers);
	if (valid)
		return true;
	if (kind != DLOCK_JSON_INVALID && count != wanted)
		return dlock_raise("22023", "tokens must be as many as names; there are %zu tokens for %zu names",
						   count, wanted);
	return dlock_raise("22023", "tokens must be a JSON array of integers and nulls");
}

/* ----------------------------------------------------------------
 * Parameters
 * ----------------------------------------------------------------
 */

static const struct
{
	const char *what;
	bool		(*read) (dlock_use *use, lease_bytes text);	/* NULL: the function does */
	bool		nullable;		/* where it may be left out, NULL leaves it out */
}			parameters[] =
{
	[DLOCK_NAME] = {"name", read_name, false},
	[DLOCK_NAMES] = {"names", read_names, false},
	[DLOCK_MANY_NAMES] = {"names", read_many_names, false},
	[DLOCK_OWNER] = {"owner", read_owner, false},
	[DLOCK_TTL] = {"ttl", read_ttl, false},
	[DLOCK_AFTER] = {"after", read_after, false},
	[DLOCK_LIMIT] = {"limit", read_limit, false},
	[DLOCK_PERMITS] = {"permits", read_permits, false},
	[DLOCK_COUNT] = {"count", read_count, false},
	[DLOCK_WAIT] = {"wait", read_wait, false},
	[DLOCK_REQUEST] = {"request", read_request, true},
	[DLOCK_TOKEN] = {"token", read_token, true},
	[DLOCK_TOKENS] = {"tokens", read_tokens, true},
	[DLOCK_HOLDS] = {"holds", read_holds, false},
	[DLOCK_ROWS] = {"rows", NULL, false},
	[DLOCK_USER] = {"user", NULL, false},
	[DLOCK_HOST] = {"host", NULL, false},
	[DLOCK_PAGE] = {"page", NULL, false},
};

/* Write how a function is called, such as "call f(name, owner [, token])". */
static void
write_signature(char *message, const dlock_signature *signature)
{
	const dlock_parameter *given = signature->parameters;
	size_t		used = (size_t) sprintf(message, "call %s(", signature->function);
	unsigned int i;

	for (i = 0; given[i] != DLOCK_NO_MORE; i++)
		used += (size_t) sprintf(message + used, "%s%s",
								 i >= signature->least ? " [, " : i > 0 ? ", " : "",
								 parameters[given[i]].what);
	for (; i > signature->least; i--)
		message[used++] = ']';
	strcpy(message + used, ")");
}

/*
 * Check how many arguments there are, and ask the server for strings, in UTF-8.
 * For _init: true, with a message, is failure.
 */
bool
dlock_prepare_arguments(UDF_ARGS *args, char *message,
						const dlock_signature *signature)
{
	unsigned int most = 0;

	while (signature->parameters[most] != DLOCK_NO_MORE)
		most++;
	if (args->arg_count < signature->least || args->arg_count > most)
	{
		write_signature(message, signature);
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
			strcpy(message, "cannot convert an argument to " TEXT_CHARSET);
			return true;
		}
		args->arg_type[i] = STRING_RESULT;
	}
	return false;
}

/*
 * Read the arguments in their order, and put what they say into the call; what is
 * not given stays as it is.  False: an error was raised.
 */
bool
dlock_read(dlock_use *use)
{
	const dlock_signature *signature = &use->function->signature;

	for (unsigned int i = 0; i < use->args->arg_count; i++)
	{
		dlock_parameter parameter = signature->parameters[i];
		lease_bytes text = {use->args->args[i], use->args->lengths[i]};

		if (parameters[parameter].read == NULL ||
			(text.data == NULL && parameters[parameter].nullable &&
			 i >= signature->least))
			continue;
		if (text.data == NULL)
			return dlock_raise("22004", "%s must not be null",
							   parameters[parameter].what);
		if (!parameters[parameter].read(use, text))
			return false;
	}
	return true;
}

/*
 * Say that the result is text.  For _init: true is failure.  Owners are bytes, and MySQL
 * can compare a binary collation with any that is not binary.
 */
bool
dlock_prepare_result(UDF_INIT *init)
{
	pthread_once(&metadata_once, find_metadata);
	return metadata.result_set != NULL &&
		metadata.result_set(init, "collation", (void *) TEXT_COLLATION);
}
