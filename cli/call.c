/*
 * call.c
 *	  Subcommands that are one call each, for scripts.
 *
 * Only the script renews or releases a lease that was taken here, by further
 * calls under the same owner.  So a script must name its owner, by --owner or
 * DLOCK_OWNER; an owner made up for each process would differ each time.
 *
 * A call is made once.  If its answer is lost, the lease may have been taken: then
 * the caller repeats it with the same request id, or releases.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "inspect.h"
#include "ask.h"
#include "table.h"

/* The options of these subcommands; each has some of them. */
struct call_options
{
	const char *url;
	const char *owner;
	const char *request;
	int64_t		ttl_us;			/* 0: not given */
	int64_t		wait_us;
	int64_t		permits;		/* 0: not given */
	int64_t		token;			/* the same */
	int64_t		timeout_us;
	bool		shared;
	bool		json;
};

/* Options that several have, read by owner_of() and token_of(). */
#define OWNER_OPTION(target) \
	{"owner", 'o', OPTION_NAME, target, "OWNER", \
	"who you are; otherwise DLOCK_OWNER"}
#define TOKEN_OPTION(target) \
	{"token", 0, OPTION_TOKEN, target, "TOKEN", \
	"only the lease with this token; otherwise DLOCK_TOKEN, if DLOCK_NAME is NAME"}

/*
 * The caller's owner: --owner, or DLOCK_OWNER.  "dlock run" sets that for its
 * COMMAND, so that COMMAND can call as the owner for which it works.
 */
static const char *
owner_of(const struct call_options *options)
{
	const char *owner = options->owner;

	if (!owner)
		owner = getenv("DLOCK_OWNER");
	if (!owner || *owner == '\0')
		end_with(STATUS_USAGE, "say who you are: --owner OWNER, or DLOCK_OWNER");
	check_name("the owner", owner);
	return owner;
}

/*
 * The token: --token, or DLOCK_TOKEN if DLOCK_NAME says that it is of this name.
 * Without that, the token of another lease would make this one look lost.
 */
static dlock_arg
token_of(const struct call_options *options, const char *name)
{
	const char *its_name = getenv("DLOCK_NAME");
	const char *token = getenv("DLOCK_TOKEN");
	char	   *end;
	long long	number;

	if (options->token > 0)
		return DLOCK_INTEGER(options->token);
	if (!token || *token == '\0' || !its_name || strcmp(its_name, name) != 0)
		return DLOCK_NULL;
	errno = 0;
	number = strtoll(token, &end, 10);
	if (number < 1 || *end != '\0' || errno != 0)
		end_with(STATUS_USAGE, "DLOCK_TOKEN: \"%s\" is not a token", token);
	return DLOCK_INTEGER(number);
}

/*
 * What is taken is named in UTF-8, so that it is the same name for every client.
 * Those who look and evict may name any bytes: others may have taken it in SQL.
 */
static void
check_text(const char *what, const char *text)
{
	if (!is_utf8(text, strlen(text)))
		end_with(STATUS_USAGE, "%s is not UTF-8", what);
}

/* Time for the server to answer, on top of the time that it may wait. */
static int64_t
patience(const struct call_options *options)
{
	return options->wait_us < 0 ? -1 : options->wait_us + options->timeout_us;
}

/* Say that a name is not free, or the like, in one line. */
static void
say_of(const char *name, const char *what)
{
	char	   *safe = safe_text(name, strlen(name), NULL);

	say("\"%s\" %s", safe, what);
	free(safe);
}

int
acquire_command(int argc, char **argv)
{
	struct call_options options = {.timeout_us = TIMEOUT_DEFAULT_US};
	const struct option_spec specs[] = {
		URL_OPTION(&options.url),
		{"ttl", 't', OPTION_POSITIVE, &options.ttl_us, "TIME",
		"how long it lasts if it is not renewed; must be given"},
		OWNER_OPTION(&options.owner),
		{"wait", 'w', OPTION_WAIT, &options.wait_us, "TIME",
		"how long to wait in line, or \"forever\"; default 0"},
		{"shared", 's', OPTION_FLAG, &options.shared, NULL,
		"take it shared"},
		{"permits", 'p', OPTION_COUNT, &options.permits, "N",
		"take one of N permits"},
		{"request", 'r', OPTION_NAME, &options.request, "ID",
		"request id: repeating the call adds no hold"},
		TIMEOUT_OPTION(&options.timeout_us),
		JSON_OPTION(&options.json),
		{0}
	};
	const struct column columns[] = {{.key = "name"}, {.key = "owner"}, {.key = "token"}, {0}};
	const char *function = "dlock_acquire";
	const char *name;
	const char *owner;
	dlock_session *session;
	dlock_arg	args[6];
	size_t		nargs = 0;
	int64_t		token;

	parse_arguments(argc, argv, specs,
					"acquire --ttl TIME --owner OWNER [OPTION]... NAME\n\n"
					"Take a lease and print its token.", &name, 1, 1);
	if (options.ttl_us == 0)
		end_with(STATUS_USAGE, "say how long the lease is to last: --ttl TIME");
	if (options.shared && options.permits > 0)
		end_with(STATUS_USAGE, "--shared and --permits exclude each other");
	owner = owner_of(&options);
	check_text("the name", name);
	check_text("the owner", owner);
	if (options.request)
		check_text("the request id", options.request);
	args[nargs++] = DLOCK_TEXT(name);
	args[nargs++] = DLOCK_TEXT(owner);
	args[nargs++] = DLOCK_DURATION(options.ttl_us);
	if (options.shared)
		function = "dlock_acquire_shared";
	if (options.permits > 0)
	{
		function = "dlock_acquire_permit";
		args[nargs++] = DLOCK_INTEGER(options.permits);
	}
	args[nargs++] = DLOCK_DURATION(options.wait_us);
	args[nargs++] = DLOCK_TEXT(options.request);

	session = open_session(options.url);
	if (!connect_to(session, options.timeout_us))
		return fail(session);
	if (!call(session, function, args, nargs, patience(&options)))
	{
		const dlock_error *error = dlock_session_error(session);

		/* a read-only server has not even tried */
		if (error->error_class == DLOCK_UNAVAILABLE &&
			!is_read_only(error))
			say_of(name, options.request
				   ? "may have been acquired: repeat the call with the same request id, or release"
				   : "may have been acquired: release it");
		return fail(session);
	}
	token = dlock_session_integer(session);
	if (options.json)
	{
		struct table *table = table_create(columns);

		add_string(table, name);
		add_string(table, owner);
		if (token > 0)
			add_number(table, token);
		else
			add_null(table);
		print_json_object(table, stdout);
		table_free(table);
	}
	else if (token > 0)
		printf("%" PRId64 "\n", token);
	if (token > 0)
		return finish(session, STATUS_OK);
	say_of(name, "is not free");
	return finish(session, STATUS_BUSY);
}

/* Print true, false or null, under this key. */
static void
print_truth(const struct call_options *options, const char *name, const char *key,
			int truth)
{
	const struct column columns[] = {{.key = "name"}, {.key = key}, {0}};

	if (options->json)
	{
		struct table *table = table_create(columns);

		add_string(table, name);
		if (truth < 0)
			add_null(table);
		else
			add_boolean(table, truth > 0);
		print_json_object(table, stdout);
		table_free(table);
	}
	else
		puts(truth < 0 ? "null" : truth > 0 ? "true" : "false");
}

/* Finish a renewal or a release. */
static int
done_or_lost(dlock_session *session, const struct call_options *options,
			 const char *name, const char *key)
{
	int			truth = dlock_session_truth(session);

	print_truth(options, name, key, truth);
	if (truth > 0)
		return finish(session, STATUS_OK);
	say_of(name, truth < 0 ? "is held by nobody: the lease has ended" :
		   "is held, but not by this owner, account and token");
	return finish(session, STATUS_LOST);
}

int
renew_command(int argc, char **argv)
{
	struct call_options options = {.timeout_us = TIMEOUT_DEFAULT_US};
	const struct option_spec specs[] = {
		URL_OPTION(&options.url),
		{"ttl", 't', OPTION_POSITIVE, &options.ttl_us, "TIME",
		"how long it is to last from now; must be given"},
		OWNER_OPTION(&options.owner),
		TOKEN_OPTION(&options.token),
		TIMEOUT_OPTION(&options.timeout_us),
		JSON_OPTION(&options.json),
		{0}
	};
	const char *name;
	dlock_session *session;
	dlock_arg	args[4];

	parse_arguments(argc, argv, specs,
					"renew --ttl TIME --owner OWNER [OPTION]... NAME\n\n"
					"Set the deadline of a lease to TIME from now; print true, false or null.",
					&name, 1, 1);
	if (options.ttl_us == 0)
		end_with(STATUS_USAGE, "say how long the lease is to last from now: --ttl TIME");
	args[0] = DLOCK_TEXT(name);
	args[1] = DLOCK_TEXT(owner_of(&options));
	args[2] = DLOCK_DURATION(options.ttl_us);
	args[3] = token_of(&options, name);
	session = open_session(options.url);
	if (!call(session, "dlock_renew", args, 4, options.timeout_us))
		return fail(session);
	return done_or_lost(session, &options, name, "renewed");
}

int
release_command(int argc, char **argv)
{
	struct call_options options = {.timeout_us = TIMEOUT_DEFAULT_US};
	const struct option_spec specs[] = {
		URL_OPTION(&options.url),
		OWNER_OPTION(&options.owner),
		TOKEN_OPTION(&options.token),
		TIMEOUT_OPTION(&options.timeout_us),
		JSON_OPTION(&options.json),
		{0}
	};
	const char *name;
	dlock_session *session;
	dlock_arg	args[3];

	parse_arguments(argc, argv, specs,
					"release --owner OWNER [OPTION]... NAME\n\n"
					"Give one hold of a lease back; print true, false or null.", &name, 1, 1);
	args[0] = DLOCK_TEXT(name);
	args[1] = DLOCK_TEXT(owner_of(&options));
	args[2] = token_of(&options, name);
	session = open_session(options.url);
	if (!call(session, "dlock_release", args, 3, options.timeout_us))
		return fail(session);
	return done_or_lost(session, &options, name, "released");
}

int
wait_command(int argc, char **argv)
{
	struct call_options options = {
		.wait_us = -1, .timeout_us = TIMEOUT_DEFAULT_US
	};
	const struct option_spec specs[] = {
		URL_OPTION(&options.url),
		{"wait", 'w', OPTION_WAIT, &options.wait_us, "TIME",
		"how long to wait; default \"forever\""},
		TIMEOUT_OPTION(&options.timeout_us),
		JSON_OPTION(&options.json),
		{0}
	};
	const char *name;
	dlock_session *session;
	dlock_arg	args[2];
	int			truth;

	parse_arguments(argc, argv, specs,
					"wait [OPTION]... NAME\n\n"
					"Wait until all present holders of the name are gone; take nothing.",
					&name, 1, 1);
	args[0] = DLOCK_TEXT(name);
	args[1] = DLOCK_DURATION(options.wait_us);
	session = open_session(options.url);
	if (!connect_to(session, options.timeout_us) ||
		!call(session, "dlock_wait", args, 2, patience(&options)))
		return fail(session);
	truth = dlock_session_truth(session);
	print_truth(&options, name, "ended", truth);
	if (truth > 0)
		return finish(session, STATUS_OK);
	say_of(name, "is still held");
	return finish(session, STATUS_BUSY);
}

int
owner_command(int argc, char **argv)
{
	struct call_options options = {.timeout_us = TIMEOUT_DEFAULT_US};
	const struct option_spec specs[] = {
		URL_OPTION(&options.url),
		TIMEOUT_OPTION(&options.timeout_us),
		JSON_OPTION(&options.json),
		{0}
	};
	const struct column columns[] = {{.key = "name"}, {.key = "owner"}, {0}};
	const char *name;
	dlock_session *session;
	dlock_arg	args[1];
	char	   *owner = NULL;
	size_t		length = 0;

	parse_arguments(argc, argv, specs,
					"owner [OPTION]... NAME\n\n"
					"Print the owner that holds the exclusive lease, or nothing.", &name, 1, 1);
	args[0] = DLOCK_TEXT(name);
	session = open_session(options.url);
	if (dlock_session_engine(session) == DLOCK_MYSQL)
	{
		/* an owner may have a byte 0 there, where a string would end */
		if (!ask(session, "SELECT HEX(dlock_owner($1))", args, 1, options.timeout_us))
			return fail(session);
		owner = bytes_of(session, 0, 0, &length);
	}
	else
	{
		const char *value;

		if (!call(session, "dlock_owner", args, 1, options.timeout_us))
			return fail(session);
		value = value_of(session, 0, 0);
		if (value)
		{
			owner = strdup(value);
			length = strlen(value);
		}
	}
	if (options.json)
	{
		struct table *table = table_create(columns);

		add_string(table, name);
		add_text(table, owner, length);
		print_json_object(table, stdout);
		table_free(table);
	}
	else if (owner)
	{
		/* a program gets the bytes, a terminal only what is safe for it */
		if (isatty(STDOUT_FILENO))
			print_safe(owner, length, stdout);
		else
			fwrite(owner, 1, length, stdout);
		putchar('\n');
	}
	free(owner);
	return finish(session, STATUS_OK);
}

int
force_release_command(int argc, char **argv)
{
	struct call_options options = {.timeout_us = TIMEOUT_DEFAULT_US};
	const struct option_spec specs[] = {
		URL_OPTION(&options.url),
		{"owner", 'o', OPTION_NAME, &options.owner, "OWNER",
		"only the holders with this owner, instead of all"},
		TIMEOUT_OPTION(&options.timeout_us),
		JSON_OPTION(&options.json),
		{0}
	};
	const struct column columns[] = {{.key = "name"}, {.key = "evicted"}, {0}};
	const char *name;
	dlock_session *session;
	dlock_arg	args[2];

	parse_arguments(argc, argv, specs,
					"force-release [OPTION]... NAME\n\n"
					"Evict the holders of a name, and print how many; for operators.", &name, 1, 1);
	args[0] = DLOCK_TEXT(name);
	args[1] = DLOCK_TEXT(options.owner);
	session = open_session(options.url);
	if (!call(session, "dlock_force_release", args, options.owner ? 2 : 1,
			  options.timeout_us))
		return fail(session);
	if (options.json)
	{
		struct table *table = table_create(columns);

		add_string(table, name);
		add_number(table, dlock_session_integer(session));
		print_json_object(table, stdout);
		table_free(table);
	}
	else
		printf("%" PRId64 "\n", dlock_session_integer(session));
	return finish(session, STATUS_OK);
}
