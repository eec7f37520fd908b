/*
 * inspect.c
 *	  Subcommands that show what the views show: ls, waiters, stats.
 *
 * The views differ in a few columns between PostgreSQL and the other two, and
 * so do the objects that --json prints: PostgreSQL has a role and a process,
 * the others an account and a connection.  What users have chosen comes as
 * hexadecimal digits: it may be no text, and contain bytes 0 on MySQL.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "table.h"

/* A time as JSON has it. */
#define POSTGRES_TIME(column) \
	"to_char(" column " AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
#define MYSQL_TIME(column)	"DATE_FORMAT(" column ", '%Y-%m-%dT%H:%i:%s.%fZ')"

/*
 * The bytes of a text in UTF-8; of a database that knows of no encoding, the bytes that
 * it has.
 */
#define POSTGRES_HEX(column) \
	"encode(convert_to(" column "::text, CASE getdatabaseencoding() " \
	"WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END), 'hex')"

/* Seconds since then. */
#define POSTGRES_SINCE(column) \
	"extract(epoch FROM clock_timestamp() - " column ")::float8"
#define MYSQL_SINCE(column) \
	"0.000001e0 * TIMESTAMPDIFF(MICROSECOND, " column ", UTC_TIMESTAMP(6))"

/* The columns of the statements on locks, in this order. */
enum
{
	LOCK_NAME,
	LOCK_OWNER,
	LOCK_MODE,
	LOCK_VERSION,
	LOCK_TOKEN,
	LOCK_ACQUIRED_AT,
	LOCK_HELD_FOR,
	LOCK_EXPIRES_AT,
	LOCK_REMAINING,
	LOCK_GUARDED,
	LOCK_ROLE,					/* or account */
	LOCK_PID,					/* or connection */
	LOCK_APPLICATION,			/* PostgreSQL only, as is the next */
	LOCK_ADDRESS
};

#define POSTGRES_LOCKS \
	"SELECT " POSTGRES_HEX("name") ", " POSTGRES_HEX("owner") ", mode, version, token, " \
	POSTGRES_TIME("acquired_at") ", " \
	POSTGRES_SINCE("acquired_at") ", " POSTGRES_TIME("expires_at") ", remaining, " \
	"guarded, " POSTGRES_HEX("role") ", pid, application_name, client_addr FROM "
#define MYSQL_LOCKS \
	"SELECT HEX(name), HEX(owner), mode, version, token, " \
	MYSQL_TIME("acquired_at") ", " MYSQL_SINCE("acquired_at") ", " \
	MYSQL_TIME("expires_at") ", remaining, guarded, HEX(account), connection_id FROM "

/* One name: finds its holders without reading all the others. */
#define MYSQL_HOLDERS \
	"(SELECT $1 AS name, h.* FROM JSON_TABLE(CONVERT(dlock_holders($1) USING utf8mb4), " \
	"'$[*]' COLUMNS (" \
	"owner VARCHAR(255) CHARACTER SET utf8mb4 PATH '$.owner', " \
	"mode VARCHAR(9) PATH '$.mode', version INT PATH '$.version', " \
	"token BIGINT PATH '$.token', acquired_at DATETIME(6) PATH '$.acquired_at', " \
	"expires_at DATETIME(6) PATH '$.expires_at', remaining DOUBLE PATH '$.remaining', " \
	"guarded INT PATH '$.guarded', " \
	"account VARCHAR(400) CHARACTER SET utf8mb4 PATH '$.account', " \
	"connection_id BIGINT UNSIGNED PATH '$.connection_id')) AS h) AS l"

/* The columns of the statements on waiters. */
enum
{
	WAITER_NAME,
	WAITER_OWNER,
	WAITER_MODE,
	WAITER_POSITION,
	WAITER_SINCE,
	WAITER_WAITED,
	WAITER_ROLE,
	WAITER_PID,
	WAITER_APPLICATION,
	WAITER_ADDRESS,
	WAITER_BLOCKED_BY			/* PostgreSQL only: JSON */
};

/* The options of these subcommands. */
struct inspect_options
{
	const char *url;
	int64_t		timeout_us;
	bool		json;
};

static bool
has_wildcard(const char *pattern)
{
	return strpbrk(pattern, "*?") != NULL;
}

/*
 * Translate a pattern to SQL's LIKE with "|" as the escape character, to be freed.
 */
static char *
like_pattern(const char *pattern)
{
	char	   *like = get_memory(2 * strlen(pattern) + 1);
	char	   *end = like;

	for (; *pattern; pattern++)
	{
		if (*pattern == '*')
			*end++ = '%';
		else if (*pattern == '?')
			*end++ = '_';
		else
		{
			if (strchr("%_|", *pattern))
				*end++ = '|';
			*end++ = *pattern;
		}
	}
	*end = '\0';
	return like;
}

bool
look_at_locks(dlock_session *session, const char *pattern, enum lock_order lock_order,
			  bool turned, int limit, int64_t timeout_us)
{
	static const char *const orders[][2] = {
		{"1, token", "1 DESC, token DESC"},
		{"2, 1, token", "2 DESC, 1 DESC, token DESC"},
		{"acquired_at, 1, token", "acquired_at DESC, 1 DESC, token DESC"},
		{"remaining, 1, token", "remaining DESC, 1 DESC, token DESC"}
	};
	bool		postgres = dlock_session_engine(session) == DLOCK_POSTGRESQL;
	char		order[128];
	char		sql[2048];
	char	   *like = NULL;
	char	   *schema = NULL;
	dlock_arg	arg;
	bool		answered;

	snprintf(order, sizeof(order), " ORDER BY %s", orders[lock_order][turned]);
	if (limit > 0)
		snprintf(order + strlen(order), sizeof(order) - strlen(order), " LIMIT %d", limit);
	/* times are answered in the session's zone */
	if (!postgres && !ask(session, "SET time_zone = '+00:00'", NULL, 0, timeout_us))
		return false;
	if (!pattern)
		snprintf(sql, sizeof(sql), "%sdlock.locks%s",
				 postgres ? POSTGRES_LOCKS : MYSQL_LOCKS, order);
	else if (has_wildcard(pattern))
	{
		like = like_pattern(pattern);
		arg = DLOCK_TEXT(like);
		snprintf(sql, sizeof(sql), "%sdlock.locks WHERE name LIKE $1 ESCAPE '|'%s",
				 postgres ? POSTGRES_LOCKS : MYSQL_LOCKS, order);
	}
	else
	{
		arg = DLOCK_TEXT(pattern);
		if (postgres)
		{
			schema = functions_schema(session, timeout_us);
			if (!schema && dlock_session_error(session)->error_class != DLOCK_NO_ERROR)
				return false;
			snprintf(sql, sizeof(sql), "%s%s.dlock_holders($1)%s", POSTGRES_LOCKS,
					 schema ? schema : "public", order);
		}
		else
			snprintf(sql, sizeof(sql), "%s%s%s", MYSQL_LOCKS, MYSQL_HOLDERS, order);
	}
	answered = ask(session, sql, &arg, pattern ? 1 : 0, timeout_us);
	free(schema);
	free(like);
	return answered;
}

/* The client that took or wants a lease, for people, to be freed. */
static char *
who(const dlock_session *session, size_t row, size_t role_column)
{
	const char *pid = value_of(session, row, role_column + 1);
	const char *application;
	const char *address;
	size_t		length;
	char	   *role = bytes_of(session, row, role_column, &length);
	char	   *who = NULL;
	size_t		size = 0;
	FILE	   *out = open_memstream(&who, &size);

	if (!out)
		end_with(STATUS_SYSTEM, "out of memory");
	fwrite(role ? role : "-", 1, role ? length : 1, out);
	free(role);
	if (dlock_session_engine(session) == DLOCK_POSTGRESQL)
	{
		application = value_of(session, row, role_column + 2);
		address = value_of(session, row, role_column + 3);
		if (address && *address)
			fprintf(out, "@%s", address);
		if (application && *application)
			fprintf(out, " %s", application);
	}
	if (pid)
		fprintf(out, " #%s", pid);
	fclose(out);
	return who;
}

void
read_lock(const dlock_session *session, size_t row, struct lock *lock)
{
	memset(lock, 0, sizeof(*lock));
	lock->name = bytes_of(session, row, LOCK_NAME, &lock->name_length);
	lock->owner = bytes_of(session, row, LOCK_OWNER, &lock->owner_length);
	lock->mode = value_of(session, row, LOCK_MODE);
	lock->holds = number_of(session, row, LOCK_VERSION);
	lock->token = number_of(session, row, LOCK_TOKEN);
	lock->held_for = seconds_of(session, row, LOCK_HELD_FOR);
	lock->remaining = seconds_of(session, row, LOCK_REMAINING);
	lock->has_deadline = value_of(session, row, LOCK_EXPIRES_AT) != NULL;
	lock->guarded = value_of(session, row, LOCK_GUARDED)
		? number_of(session, row, LOCK_GUARDED) != 0 : -1;
	lock->who = who(session, row, LOCK_ROLE);
}

void
free_lock(struct lock *lock)
{
	free(lock->name);
	free(lock->owner);
	free(lock->who);
}

const char *
time_left(const struct lock *lock, char buffer[SHORT_TIME_SIZE])
{
	if (lock->remaining > 0)
		return lock->has_deadline ? short_time(lock->remaining, buffer) : "session";
	return lock->has_deadline ? "over" : "guard";
}

/* Add a number, or NULL. */
static void
add_number_of(struct table *table, const dlock_session *session, size_t row,
			  size_t column)
{
	if (value_of(session, row, column))
		add_number(table, number_of(session, row, column));
	else
		add_null(table);
}

int
ls_command(int argc, char **argv)
{
	struct inspect_options options = {.timeout_us = TIMEOUT_DEFAULT_US};
	const struct option_spec specs[] = {
		URL_OPTION(&options.url),
		TIMEOUT_OPTION(&options.timeout_us),
		JSON_OPTION(&options.json),
		{0}
	};
	static const struct column postgres_columns[] = {
		{"name", "NAME", false},
		{"owner", "OWNER", false},
		{"mode", "MODE", false},
		{"version", "HOLDS", true},
		{"token", "TOKEN", true},
		{"acquired_at", NULL, false},
		{"held_for", "HELD", true},
		{"expires_at", NULL, false},
		{"remaining", NULL, true},
		{NULL, "LEFT", true},
		{"guarded", "GUARDED", false},
		{NULL, "WHO", false},
		{"role", NULL, false},
		{"pid", NULL, false},
		{"application_name", NULL, false},
		{"client_addr", NULL, false},
		{0}
	};
	struct column mysql_columns[sizeof(postgres_columns) / sizeof(postgres_columns[0])];
	const char *pattern;
	dlock_session *session;
	struct table *table;
	bool		postgres;

	parse_arguments(argc, argv, specs,
					"ls [OPTION]... [PATTERN]\n\n"
					"List the leases.  PATTERN picks names: * stands for any characters, ? for one.",
					&pattern, 0, 1);
	session = open_session(options.url);
	postgres = dlock_session_engine(session) == DLOCK_POSTGRESQL;
	memcpy(mysql_columns, postgres_columns, sizeof(mysql_columns));
	mysql_columns[12] = (struct column) {.key = "account"};
	mysql_columns[13] = (struct column) {.key = "connection_id"};
	mysql_columns[14] = (struct column) {0};
	if (!look_at_locks(session, pattern, ORDER_NAME, false, 0, options.timeout_us))
		return fail(session);

	table = table_create(postgres ? postgres_columns : mysql_columns);
	for (size_t row = 0; row < dlock_session_rows(session); row++)
	{
		char		buffer[SHORT_TIME_SIZE];
		struct lock lock;
		char	   *role;
		size_t		length;

		read_lock(session, row, &lock);
		add_text(table, lock.name, lock.name_length);
		add_text(table, lock.owner, lock.owner_length);
		add_string(table, lock.mode);
		add_number(table, lock.holds);
		add_number(table, lock.token);
		add_string(table, value_of(session, row, LOCK_ACQUIRED_AT));
		add_seconds(table, lock.held_for);
		add_string(table, value_of(session, row, LOCK_EXPIRES_AT));
		add_seconds(table, lock.remaining);
		add_string(table, time_left(&lock, buffer));
		if (lock.guarded < 0)
			add_null(table);
		else
			add_boolean(table, lock.guarded);
		add_string(table, lock.who);
		role = bytes_of(session, row, LOCK_ROLE, &length);
		add_text(table, role, length);
		free(role);
		add_number_of(table, session, row, LOCK_PID);
		if (postgres)
		{
			add_string(table, value_of(session, row, LOCK_APPLICATION));
			add_string(table, value_of(session, row, LOCK_ADDRESS));
		}
		free_lock(&lock);
		if (options.json)
			pass_json(table, stdout);
	}
	if (options.json)
		end_json(table, stdout);
	else
		print_table(table, stdout);
	table_free(table);
	return finish(session, STATUS_OK);
}

bool
look_at_waiters(dlock_session *session, int64_t timeout_us)
{
	char		sql[2048];
	char	   *schema;
	bool		answered;

	if (dlock_session_engine(session) == DLOCK_MYSQL)
		return ask(session, "SET time_zone = '+00:00'", NULL, 0, timeout_us) &&
			ask(session, "SELECT HEX(name), HEX(owner), mode, position, "
				MYSQL_TIME("waiting_since") ", " MYSQL_SINCE("waiting_since")
				", HEX(account), connection_id FROM dlock.waiters "
				"ORDER BY 1, position IS NULL, position", NULL, 0, timeout_us);
	schema = functions_schema(session, timeout_us);
	if (!schema && dlock_session_error(session)->error_class != DLOCK_NO_ERROR)
		return false;
	snprintf(sql, sizeof(sql), "SELECT " POSTGRES_HEX("name") ", " POSTGRES_HEX("owner")
			 ", mode, \"position\", "
			 POSTGRES_TIME("waiting_since") ", " POSTGRES_SINCE("waiting_since")
			 ", " POSTGRES_HEX("role") ", pid, application_name, client_addr, "
			 "array_to_json(%s.dlock_blocking_pids(pid)) FROM dlock.waiters "
			 "ORDER BY name, \"position\"", schema ? schema : "public");
	answered = ask(session, sql, NULL, 0, timeout_us);
	free(schema);
	return answered;
}

void
read_waiter(const dlock_session *session, size_t row, struct waiter *waiter)
{
	const char *blocked_by = dlock_session_engine(session) == DLOCK_POSTGRESQL
		? value_of(session, row, WAITER_BLOCKED_BY) : NULL;

	memset(waiter, 0, sizeof(*waiter));
	waiter->name = bytes_of(session, row, WAITER_NAME, &waiter->name_length);
	waiter->owner = bytes_of(session, row, WAITER_OWNER, &waiter->owner_length);
	waiter->mode = value_of(session, row, WAITER_MODE);
	waiter->position = number_of(session, row, WAITER_POSITION);
	waiter->waited = seconds_of(session, row, WAITER_WAITED);
	waiter->who = who(session, row, WAITER_ROLE);
	if (blocked_by && strlen(blocked_by) > 2)
	{
		/* without the brackets */
		size_t		length = strlen(blocked_by) - 2;

		waiter->blocked_by = get_memory(length + 1);
		memcpy(waiter->blocked_by, blocked_by + 1, length);
		waiter->blocked_by[length] = '\0';
	}
}

void
free_waiter(struct waiter *waiter)
{
	free(waiter->name);
	free(waiter->owner);
	free(waiter->who);
	free(waiter->blocked_by);
}

int
waiters_command(int argc, char **argv)
{
	struct inspect_options options = {.timeout_us = TIMEOUT_DEFAULT_US};
	const struct option_spec specs[] = {
		URL_OPTION(&options.url),
		TIMEOUT_OPTION(&options.timeout_us),
		JSON_OPTION(&options.json),
		{0}
	};
	static const struct column postgres_columns[] = {
		{"name", "NAME", false},
		{"position", "POS", true},
		{"owner", "OWNER", false},
		{"mode", "MODE", false},
		{"waiting_since", NULL, false},
		{"waited", "WAITED", true},
		{NULL, "WHO", false},
		{"role", NULL, false},
		{"pid", NULL, false},
		{"application_name", NULL, false},
		{"client_addr", NULL, false},
		{"blocked_by", NULL, false},
		{NULL, "BLOCKED BY", false},
		{0}
	};
	static const struct column mysql_columns[] = {
		{"name", "NAME", false},
		{"position", "POS", true},
		{"owner", "OWNER", false},
		{"mode", "MODE", false},
		{"waiting_since", NULL, false},
		{"waited", "WAITED", true},
		{NULL, "WHO", false},
		{"account", NULL, false},
		{"connection_id", NULL, false},
		{0}
	};
	dlock_session *session;
	struct table *table;
	bool		postgres;

	parse_arguments(argc, argv, specs,
					"waiters [OPTION]...\n\n"
					"List who waits for a lease.", NULL, 0, 0);
	session = open_session(options.url);
	postgres = dlock_session_engine(session) == DLOCK_POSTGRESQL;
	if (!look_at_waiters(session, options.timeout_us))
		return fail(session);

	table = table_create(postgres ? postgres_columns : mysql_columns);
	for (size_t row = 0; row < dlock_session_rows(session); row++)
	{
		struct waiter waiter;
		char	   *role;
		size_t		length;

		read_waiter(session, row, &waiter);
		add_text(table, waiter.name, waiter.name_length);
		add_number_of(table, session, row, WAITER_POSITION);
		add_text(table, waiter.owner, waiter.owner_length);
		add_string(table, waiter.mode);
		add_string(table, value_of(session, row, WAITER_SINCE));
		add_seconds(table, waiter.waited);
		add_string(table, waiter.who);
		role = bytes_of(session, row, WAITER_ROLE, &length);
		add_text(table, role, length);
		free(role);
		add_number_of(table, session, row, WAITER_PID);
		if (postgres)
		{
			add_string(table, value_of(session, row, WAITER_APPLICATION));
			add_string(table, value_of(session, row, WAITER_ADDRESS));
			add_json(table, value_of(session, row, WAITER_BLOCKED_BY));
			add_string(table, waiter.blocked_by);
		}
		free_waiter(&waiter);
	}
	if (options.json)
		end_json(table, stdout);
	else
		print_table(table, stdout);
	table_free(table);
	return finish(session, STATUS_OK);
}

/* The columns of dlock.stats except the histogram and the time. */
static const char *const counters[] = {
	"acquired", "reentered", "refused", "timed_out", "deadlocks", "released",
	"renewed", "renewals_lost", "expired", "reaped", "forced", "woken", "waiters",
	"held"
};

#define COUNTERS	(sizeof(counters) / sizeof(counters[0]))

/* Print those elements of a histogram, a JSON array, that count any wait. */
static void
print_histogram(const char *histogram, FILE *out)
{
	const char *next = histogram ? histogram : "";

	for (int i = 0; i < 63; i++)
	{
		double		below_ms = 0.1 * (double) (INT64_C(1) << i);
		char	   *end;
		long long	waits;

		next += strspn(next, "[, ");
		waits = strtoll(next, &end, 10);
		if (end == next)
			break;
		next = end;
		if (waits == 0)
			continue;
		/* the last one has no end */
		if (next[strspn(next, " ")] == ']')
			fprintf(out, "waited longer     %12lld\n", waits);
		else if (below_ms < 1000)
			fprintf(out, "waited < %6.1fms %12lld\n", below_ms, waits);
		else
			fprintf(out, "waited < %6.1fs  %12lld\n", below_ms / 1000, waits);
	}
}

int
stats_command(int argc, char **argv)
{
	struct inspect_options options = {.timeout_us = TIMEOUT_DEFAULT_US};
	const struct option_spec specs[] = {
		URL_OPTION(&options.url),
		TIMEOUT_OPTION(&options.timeout_us),
		JSON_OPTION(&options.json),
		{0}
	};
	struct column columns[COUNTERS + 3];
	dlock_session *session;
	struct table *table;
	const char *reset;
	const char *histogram;
	char		sql[1024] = "SELECT ";
	bool		postgres;

	parse_arguments(argc, argv, specs,
					"stats [OPTION]...\n\n"
					"Print the counters of dlock.stats.", NULL, 0, 0);
	session = open_session(options.url);
	postgres = dlock_session_engine(session) == DLOCK_POSTGRESQL;
	for (size_t i = 0; i < COUNTERS; i++)
		snprintf(sql + strlen(sql), sizeof(sql) - strlen(sql), "%s, ", counters[i]);
	snprintf(sql + strlen(sql), sizeof(sql) - strlen(sql), "%s FROM dlock.stats", postgres
			 ? "array_to_json(wait_histogram), " POSTGRES_TIME("stats_reset")
			 : "wait_histogram, " MYSQL_TIME("stats_reset"));
	if (!postgres &&
		!ask(session, "SET time_zone = '+00:00'", NULL, 0, options.timeout_us))
		return fail(session);
	if (!ask(session, sql, NULL, 0, options.timeout_us))
		return fail(session);
	histogram = value_of(session, 0, COUNTERS);
	reset = value_of(session, 0, COUNTERS + 1);

	if (!options.json)
	{
		for (size_t i = 0; i < COUNTERS; i++)
			printf("%-17s %12s\n", counters[i], value_of(session, 0, i));
		print_histogram(histogram, stdout);
		printf("since %s\n", reset);
		return finish(session, STATUS_OK);
	}
	for (size_t i = 0; i < COUNTERS; i++)
		columns[i] = (struct column) {.key = counters[i]};
	columns[COUNTERS] = (struct column) {.key = "wait_histogram"};
	columns[COUNTERS + 1] = (struct column) {.key = "stats_reset"};
	columns[COUNTERS + 2] = (struct column) {0};
	table = table_create(columns);
	for (size_t i = 0; i < COUNTERS; i++)
		add_number_of(table, session, 0, i);
	add_json(table, histogram);
	add_string(table, reset);
	print_json_object(table, stdout);
	table_free(table);
	return finish(session, STATUS_OK);
}
