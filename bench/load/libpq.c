/*
 * libpq.c
 *	  Locks in PostgreSQL: dlock, with its library and without, advisory locks, a
 *	  lock table in the heap; and what a durable cycle, or finding a name, costs there at the least.
 *
 * "Where" is a connection string; it says what synchronous_commit is.  The
 * systems differ in their SQL only.  All statements are prepared.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libpq-fe.h>

#include "load.h"

/*
 * Those for one lock are given its name (or its number, if "by_number") and the
 * owner, and answer true, or a token, when they did it, false or nothing when not.  Those
 * for many are given the names and the owner, and answer a row that begins with
 * the name for each that they did it to.  RENEW is given the first and the last
 * number, and the owner, and answers how many it renewed.
 */
typedef enum Statement
{
	ACQUIRE,
	WAIT,						/* where there is none: ask again and again */
	RELEASE,
	WAIT_A_MOMENT,
	RENEW_ONE,
	ACQUIRE_MANY,
	RELEASE_MANY,
	RENEW,
	STATEMENTS
} Statement;

static const char *const statement_names[STATEMENTS] = {
	"acquire", "wait", "release", "wait_a_moment", "renew_one", "acquire_many",
	"release_many", "renew"
};

/* A system's statements; NULL where it has none. */
typedef struct Sql
{
	bool		by_number;
	const char *text[STATEMENTS];
} Sql;

typedef struct Connection
{
	PGconn	   *server;
	const Sql  *sql;
	char		owner[NAME_SIZE];
} Connection;

static const Sql dlock = {
	.text[ACQUIRE] = "SELECT dlock_acquire($1, $2, 3600) IS NOT NULL",
	.text[WAIT] = "SELECT dlock_acquire($1, $2, 3600, -1) IS NOT NULL",
	.text[RELEASE] = "SELECT dlock_release($1, $2)",
	.text[WAIT_A_MOMENT] = "SELECT dlock_acquire($1, $2, 3600, 0.001) "
	"IS NOT NULL",
	.text[RENEW_ONE] = "SELECT dlock_renew($1, $2, 3600)",
	.text[ACQUIRE_MANY] = "SELECT name, token "
	"FROM dlock_acquire_any($1, $2, 3600, cardinality($1))",
	.text[RELEASE_MANY] = "SELECT dlock_release_many($1, $2)",
	.text[RENEW] = "SELECT dlock_renew_all($3, 3600)",
};

/* Of plain/dlock.sql. */
static const Sql plain = {
	.text[ACQUIRE] = "CALL dlock_acquire($1, $2, 3600)",
	.text[RELEASE] = "SELECT dlock_release($1, $2)",
	.text[RENEW_ONE] = "CALL dlock_renew($1, $2, 3600)",
};

/* A call for each name. */
static const Sql dlock_each = {
	.text[ACQUIRE] = "SELECT dlock_acquire($1, $2, 3600) IS NOT NULL",
	.text[RELEASE] = "SELECT dlock_release($1, $2)",
	.text[ACQUIRE_MANY] = "SELECT name, token FROM (SELECT name, "
	"dlock_acquire(name, $2, 3600) AS token FROM unnest($1) name "
	"OFFSET 0) grants WHERE token IS NOT NULL",
	.text[RELEASE_MANY] = "SELECT name FROM unnest($1) name "
	"WHERE dlock_release(name, $2)",
};

/* All names of a call or none. */
static const Sql dlock_all = {
	.text[ACQUIRE] = "SELECT dlock_acquire($1, $2, 3600) IS NOT NULL",
	.text[RELEASE] = "SELECT dlock_release($1, $2)",
	.text[ACQUIRE_MANY] = ("SELECT name, token "
						   "FROM unnest($1, dlock_acquire_all($1, $2, 3600)) "
						   "grants (name, token) WHERE token IS NOT NULL"),
	.text[RELEASE_MANY] = "SELECT dlock_release_many($1, $2)",
};

static const Sql advisory = {
	.by_number = true,
	.text[ACQUIRE] = "SELECT pg_try_advisory_lock($1::bigint)",
	.text[WAIT] = "SELECT true FROM pg_advisory_lock($1::bigint)",
	.text[RELEASE] = "SELECT pg_advisory_unlock($1::bigint)",
};

/*
 * No durable lock can do with less than one statement that commits a small
 * record, and one that does next to nothing.
 */
static const Sql least = {
	.text[ACQUIRE] = "SELECT pg_logical_emit_message(true, $1, $2) IS NOT NULL",
	.text[RELEASE] = "SELECT $1 <> $2",
};

/*
 * The lock table that somebody would write by hand; run creates it.  Its
 * fencing tokens come from a sequence, because its rows do not stay.
 */
#define HEAP_ROW(name, owner) \
	name ", " owner ", nextval('heap_token'), " \
	"clock_timestamp() + interval '3600 s' "
#define HEAP_IF_EXPIRED \
	"ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, " \
	"token = EXCLUDED.token, expires_at = EXCLUDED.expires_at " \
	"WHERE l.expires_at <= clock_timestamp() "

static const Sql heap = {
	.text[ACQUIRE] = "INSERT INTO heap_lock AS l VALUES ("
	HEAP_ROW("$1", "$2") ") " HEAP_IF_EXPIRED "RETURNING true",
	.text[RELEASE] = "DELETE FROM heap_lock WHERE name = $1 AND owner = $2 "
	"RETURNING true",
	.text[RENEW_ONE] = "UPDATE heap_lock "
	"SET expires_at = clock_timestamp() + interval '3600 s' "
	"WHERE name = $1 AND owner = $2 RETURNING true",
	.text[ACQUIRE_MANY] = "INSERT INTO heap_lock "
	"SELECT " HEAP_ROW("name", "$2") "FROM unnest($1) name "
	"ON CONFLICT DO NOTHING RETURNING name, token",
	.text[RELEASE_MANY] = "DELETE FROM heap_lock "
	"WHERE name = ANY ($1) AND owner = $2 RETURNING name",
	.text[RENEW] = "WITH renewed AS (UPDATE heap_lock "
	"SET expires_at = clock_timestamp() + interval '3600 s' "
	"FROM generate_series($1, $2) i "
	"WHERE name = 'job-' || i AND owner = $3 RETURNING 1) "
	"SELECT count(*) FROM renewed",
};

/*
 * One whose holders may acquire again.  Its rows stay, with their tokens; only
 * a row whose holds are gone or whose time is up can change hands.
 */
#define HEAP_HELD	"l.owner = EXCLUDED.owner AND l.holds > 0 " \
	"AND l.expires_at > clock_timestamp()"

static const Sql heap_holds = {
	.text[ACQUIRE] = "INSERT INTO heap_hold AS l VALUES ("
	"$1, $2, 1, 1, clock_timestamp() + interval '3600 s') "
	"ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, "
	"holds = CASE WHEN " HEAP_HELD " THEN l.holds + 1 ELSE 1 END, "
	"token = CASE WHEN " HEAP_HELD " THEN l.token ELSE l.token + 1 END, "
	"expires_at = EXCLUDED.expires_at "
	"WHERE l.owner = EXCLUDED.owner OR l.holds = 0 "
	"OR l.expires_at <= clock_timestamp() RETURNING true",
	.text[RELEASE] = "UPDATE heap_hold SET holds = holds - 1 "
	"WHERE name = $1 AND owner = $2 AND holds > 0 RETURNING true",
};

/* No lock, but what it costs to find a name in a table. */
#define LOOK_UP "SELECT owner <> '' FROM look_up WHERE name = $1 AND $2 <> ''"

static const Sql look_up = {
	.text[ACQUIRE] = LOOK_UP,
	.text[RELEASE] = LOOK_UP,
};

static void
prepare_statements(Connection *c)
{
	static const Oid one[] = {25, 25};	/* text */
	static const Oid many[] = {1009, 25};	/* text[] */
	static const Oid range[] = {23, 23, 25};	/* integer */
	static const struct
	{
		int			n;
		const Oid  *types;
	}			parameters[STATEMENTS] = {
		[ACQUIRE] = {2, one}, [WAIT] = {2, one}, [RELEASE] = {2, one},
		[WAIT_A_MOMENT] = {2, one}, [RENEW_ONE] = {2, one},
		[ACQUIRE_MANY] = {2, many}, [RELEASE_MANY] = {2, many},
		[RENEW] = {3, range}
	};

	for (Statement s = 0; s < STATEMENTS; s++)
	{
		PGresult   *result;

		if (c->sql->text[s] == NULL)
			continue;
		result = PQprepare(c->server, statement_names[s], c->sql->text[s],
						   parameters[s].n, parameters[s].types);
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			fail("%s: %s", statement_names[s], PQerrorMessage(c->server));
		PQclear(result);
	}
}

static void *
open_connection(const System *system, const char *where, int client)
{
	Connection *c = allocate(sizeof(Connection));

	c->sql = system->details;
	owner_name(c->owner, client);
	c->server = PQconnectdb(where);
	if (PQstatus(c->server) != CONNECTION_OK)
		fail("connect: %s", PQerrorMessage(c->server));
	prepare_statements(c);
	return c;
}

static void
close_connection(void *client)
{
	Connection *c = client;

	PQfinish(c->server);
	free(c);
}

/* Whether a result is the error that a wait would last for ever. */
static bool
is_deadlock(const PGresult *result)
{
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return code != NULL && strcmp(code, "40P01") == 0;
}

static PGresult *
execute(Connection *c, Statement s, int n, const char *const *values)
{
	PGresult   *result = PQexecPrepared(c->server, statement_names[s], n,
										values, NULL, NULL, 0);

	if (PQresultStatus(result) != PGRES_TUPLES_OK &&
		!(s == WAIT_A_MOMENT && is_deadlock(result)))
		fail("%s: %s", statement_names[s], PQerrorMessage(c->server));
	return result;
}

/* Execute a statement for one lock. */
static PGresult *
execute_for(Connection *c, Statement s, int lock)
{
	char		name[NAME_SIZE];
	const char *values[] = {name, c->owner};

	if (c->sql->by_number)
		snprintf(name, sizeof(name), "%d", lock);
	else
		lock_name(name, lock);
	return execute(c, s, 2, values);
}

/* The same; whether it did it. */
static bool
execute_one(Connection *c, Statement s, int lock)
{
	PGresult   *result = execute_for(c, s, lock);
	bool		done;

	done = PQntuples(result) == 1 && !PQgetisnull(result, 0, 0) &&
		strcmp(PQgetvalue(result, 0, 0), "f") != 0;
	PQclear(result);
	return done;
}

/* Execute a statement for many. */
static PGresult *
execute_many(Connection *c, Statement s, int first, int count)
{
	char		names[MAX_BATCH * (NAME_SIZE + 1) + 2];
	const char *values[] = {names, c->owner};
	char	   *end = names;

	for (int i = 0; i < count; i++)
	{
		*end++ = i > 0 ? ',' : '{';
		lock_name(end, first + i);
		end += strlen(end);
	}
	*end++ = '}';
	*end = '\0';
	return execute(c, s, 2, values);
}

/* The number in a lock's name. */
static int
lock_number(const char *name)
{
	return atoi(strchr(name, '-') + 1);
}

static bool
acquire(void *client, int lock, bool wait)
{
	Connection *c = client;

	if (wait && c->sql->text[WAIT])
	{
		if (!execute_one(c, WAIT, lock))
			fail("waited for lock %d in vain", lock);
		return true;
	}
	while (!execute_one(c, ACQUIRE, lock))
	{
		if (!wait)
			return false;
		pause_before_retry();
	}
	return true;
}

static void
release(void *client, int lock)
{
	Connection *c = client;

	if (!execute_one(c, RELEASE, lock))
		fail("could not release lock %d", lock);
}

static void
acquire_many(void *client, int first, int count, bool *got)
{
	Connection *c = client;
	PGresult   *result = execute_many(c, ACQUIRE_MANY, first, count);

	for (int i = 0; i < count; i++)
		got[i] = false;
	for (int i = 0; i < PQntuples(result); i++)
		got[lock_number(PQgetvalue(result, i, 0)) - first] = true;
	PQclear(result);
}

static int
release_many(void *client, int first, int count)
{
	Connection *c = client;
	PGresult   *result = execute_many(c, RELEASE_MANY, first, count);
	int			given = PQntuples(result);

	PQclear(result);
	return given;
}

/* The same where there is no statement for many. */
static void
acquire_each(void *client, int first, int count, bool *got)
{
	for (int i = 0; i < count; i++)
		got[i] = acquire(client, first + i, false);
}

static int
release_each(void *client, int first, int count)
{
	for (int i = 0; i < count; i++)
		release(client, first + i);
	return count;
}

static int
renew(void *client, int first, int count)
{
	Connection *c = client;
	char		from[NAME_SIZE];
	char		to[NAME_SIZE];
	const char *values[] = {from, to, c->owner};
	PGresult   *result;
	int			renewed;

	snprintf(from, sizeof(from), "%d", first);
	snprintf(to, sizeof(to), "%d", first + count - 1);
	result = execute(c, RENEW, 3, values);
	renewed = atoi(PQgetvalue(result, 0, 0));
	PQclear(result);
	return renewed;
}

static void
renew_one(void *client, int lock)
{
	Connection *c = client;

	if (!execute_one(c, RENEW_ONE, lock))
		fail("could not renew lock %d", lock);
}

static bool
closes_circle(void *client, int lock)
{
	Connection *c = client;
	PGresult   *result = execute_for(c, WAIT_A_MOMENT, lock);
	bool		answer = is_deadlock(result);

	if (PQntuples(result) == 1 && strcmp(PQgetvalue(result, 0, 0), "t") == 0)
		fail("lock %d, which another holds, was granted", lock);
	PQclear(result);
	return answer;
}

static void
snapshot(void *client)
{
	Connection *c = client;
	PGresult   *result = PQexec(c->server, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		fail("snapshot: %s", PQerrorMessage(c->server));
	PQclear(result);
}

#define COMMON \
	.open = open_connection, .close = close_connection, .snapshot = snapshot, \
	.acquire = acquire, .release = release

const System libpq_systems[] =
{
	{.name = "pg-dlock", .details = &dlock, .reentrant = true, COMMON,
		.acquire_many = acquire_many, .release_many = release_many,
		.renew = renew, .renew_one = renew_one,
		.closes_circle = closes_circle},
	{.name = "pg-plain", .details = &plain, .reentrant = true, COMMON,
		.acquire_many = acquire_each, .release_many = release_each,
		.renew_one = renew_one},
	{.name = "pg-dlock-each", .details = &dlock_each, COMMON,
		.acquire_many = acquire_many, .release_many = release_many},
	{.name = "pg-dlock-all", .details = &dlock_all, COMMON,
		.acquire_many = acquire_many, .release_many = release_many},
	{.name = "pg-advisory", .details = &advisory, .reentrant = true, COMMON},
	{.name = "pg-floor", .details = &least, .floor = true, COMMON},
	{.name = "pg-look-up", .details = &look_up, .floor = true, COMMON},
	{.name = "pg-heap", .details = &heap, COMMON,
		.acquire_many = acquire_many, .release_many = release_many,
		.renew = renew, .renew_one = renew_one},
	{.name = "pg-heap-holds", .details = &heap_holds, .reentrant = true, COMMON},
	{.name = NULL}
};
