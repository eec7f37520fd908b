/*
 * libpq.c
 *	  Locks in PostgreSQL: dlock, advisory locks, a lock table in the heap.
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
 * owner, and answer true when they did it, false or nothing when not.  Those
 * for many are given the first and the last number, and the owner.
 * ACQUIRE_MANY answers the numbers of those it did not get, the other two how
 * many they did it to.
 */
typedef enum Statement
{
	ACQUIRE,
	WAIT,						/* where there is none: ask again and again */
	RELEASE,
	ACQUIRE_MANY,
	RELEASE_MANY,
	RENEW,
	STATEMENTS
} Statement;

static const char *const statement_names[STATEMENTS] = {
	"acquire", "wait", "release", "acquire_many", "release_many", "renew"
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
	.text[ACQUIRE_MANY] = "SELECT i FROM generate_series($1, $2) i "
	"WHERE dlock_acquire('job-' || i, $3, 3600) IS NULL",
	.text[RELEASE_MANY] = "SELECT count(*) FROM generate_series($1, $2) i "
	"WHERE dlock_release('job-' || i, $3)",
	.text[RENEW] = "SELECT dlock_renew_all($3, 3600)",
};

/* All names of a call or none. */
static const Sql dlock_all = {
	.text[ACQUIRE] = "SELECT dlock_acquire($1, $2, 3600) IS NOT NULL",
	.text[RELEASE] = "SELECT dlock_release($1, $2)",
	.text[ACQUIRE_MANY] = "SELECT i FROM generate_series($1, $2) i WHERE ("
	"SELECT dlock_acquire_all(array_agg('job-' || j), $3, 3600) "
	"FROM generate_series($1, $2) j) IS NULL",
	.text[RELEASE_MANY] = "SELECT count(*) FROM generate_series($1, $2) i "
	"WHERE dlock_release('job-' || i, $3)",
};

static const Sql advisory = {
	.by_number = true,
	.text[ACQUIRE] = "SELECT pg_try_advisory_lock($1::bigint)",
	.text[WAIT] = "SELECT true FROM pg_advisory_lock($1::bigint)",
	.text[RELEASE] = "SELECT pg_advisory_unlock($1::bigint)",
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
	.text[ACQUIRE_MANY] = "WITH acquired AS (INSERT INTO heap_lock AS l "
	"SELECT " HEAP_ROW("'job-' || i", "$3") "FROM generate_series($1, $2) i "
	HEAP_IF_EXPIRED "RETURNING name) SELECT i FROM generate_series($1, $2) i "
	"WHERE 'job-' || i NOT IN (SELECT name FROM acquired)",
	.text[RELEASE_MANY] = "WITH released AS (DELETE FROM heap_lock "
	"USING generate_series($1, $2) i "
	"WHERE name = 'job-' || i AND owner = $3 RETURNING 1) "
	"SELECT count(*) FROM released",
	.text[RENEW] = "WITH renewed AS (UPDATE heap_lock "
	"SET expires_at = clock_timestamp() + interval '3600 s' "
	"FROM generate_series($1, $2) i "
	"WHERE name = 'job-' || i AND owner = $3 RETURNING 1) "
	"SELECT count(*) FROM renewed",
};

static void
prepare_statements(Connection *c)
{
	static const Oid one[] = {25, 25};	/* text */
	static const Oid many[] = {23, 23, 25}; /* integer */

	for (Statement s = 0; s < STATEMENTS; s++)
	{
		bool		is_many = s >= ACQUIRE_MANY;
		PGresult   *result;

		if (c->sql->text[s] == NULL)
			continue;
		result = PQprepare(c->server, statement_names[s], c->sql->text[s],
						   is_many ? 3 : 2, is_many ? many : one);
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

static PGresult *
execute(Connection *c, Statement s, int n, const char *const *values)
{
	PGresult   *result = PQexecPrepared(c->server, statement_names[s], n,
										values, NULL, NULL, 0);

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		fail("%s: %s", statement_names[s], PQerrorMessage(c->server));
	return result;
}

/* Execute a statement for one lock; whether it did it. */
static bool
execute_one(Connection *c, Statement s, int lock)
{
	char		name[NAME_SIZE];
	const char *values[] = {name, c->owner};
	PGresult   *result;
	bool		done;

	if (c->sql->by_number)
		snprintf(name, sizeof(name), "%d", lock);
	else
		lock_name(name, lock);
	result = execute(c, s, 2, values);
	done = PQntuples(result) == 1 && strcmp(PQgetvalue(result, 0, 0), "t") == 0;
	PQclear(result);
	return done;
}

/* Execute a statement for many. */
static PGresult *
execute_many(Connection *c, Statement s, int first, int count)
{
	char		from[NAME_SIZE];
	char		to[NAME_SIZE];
	const char *values[] = {from, to, c->owner};

	snprintf(from, sizeof(from), "%d", first);
	snprintf(to, sizeof(to), "%d", first + count - 1);
	return execute(c, s, 3, values);
}

static int
execute_count(Connection *c, Statement s, int first, int count)
{
	PGresult   *result = execute_many(c, s, first, count);
	int			answer = atoi(PQgetvalue(result, 0, 0));

	PQclear(result);
	return answer;
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
		got[i] = true;
	for (int i = 0; i < PQntuples(result); i++)
		got[atoi(PQgetvalue(result, i, 0)) - first] = false;
	PQclear(result);
}

static int
release_many(void *client, int first, int count)
{
	Connection *c = client;

	return execute_count(c, RELEASE_MANY, first, count);
}

static int
renew(void *client, int first, int count)
{
	Connection *c = client;

	return execute_count(c, RENEW, first, count);
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
		.renew = renew},
	{.name = "pg-dlock-all", .details = &dlock_all, COMMON,
		.acquire_many = acquire_many, .release_many = release_many},
	{.name = "pg-advisory", .details = &advisory, .reentrant = true, COMMON},
	{.name = "pg-heap", .details = &heap, COMMON,
		.acquire_many = acquire_many, .release_many = release_many,
		.renew = renew},
	{.name = NULL}
};
