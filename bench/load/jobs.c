/*
 * jobs.c
 *	  A table of jobs in PostgreSQL, from which workers take them.
 *
 * "Where" is a connection string.  One system claims jobs by leases: no row is
 * locked and no transaction is open while a job is being done, and who notes
 * that it is done, in one transaction, guards the leases there.  The other locks
 * the rows of the jobs, in the transaction that lasts until they are done.  All
 * statements are prepared.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libpq-fe.h>

#include "load.h"

/* Room for an array of jobs' names, numbers or tokens. */
#define ARRAY_SIZE		(MAX_BATCH * (NAME_SIZE + 1) + 2)

typedef struct Worker
{
	PGconn	   *server;
	char		owner[NAME_SIZE];
	/* what it has now, as arrays in SQL */
	char		names[ARRAY_SIZE];
	char		numbers[ARRAY_SIZE];
	char		tokens[ARRAY_SIZE];
} Worker;

/* Each is given parameters as the functions that execute it say. */
typedef struct Statement
{
	const char *name;
	const char *text;
} Statement;

static const Statement begin = {"begin", "BEGIN"};
static const Statement commit = {"commit", "COMMIT"};
static const Statement claim = {"claim", "SELECT name, token "
	"FROM dlock_acquire_any(ARRAY(SELECT 'job-' || id FROM job "
	"WHERE done_at IS NULL ORDER BY id LIMIT 1000), $1, 3600, $2::integer)"};
static const Statement look_again = {"look_again", "SELECT name, token "
	"FROM unnest($1::text[], $2::integer[], $3::bigint[]) claimed "
	"(name, id, token) JOIN job USING (id) WHERE done_at IS NULL"};
static const Statement give_back_done = {"give_back_done",
	"SELECT dlock_release_many(ARRAY(SELECT name "
	"FROM unnest($1::text[], $2::integer[]) claimed (name, id) "
	"JOIN job USING (id) WHERE done_at IS NOT NULL), $3)"};
static const Statement guard = {"guard", "SELECT dlock_guard(name, $2, token) "
	"FROM unnest($1::text[], $3::bigint[]) claimed (name, token)"};
static const Statement give_back = {"give_back",
	"SELECT dlock_release_many($1::text[], $2)"};
static const Statement lock_rows = {"lock_rows", "SELECT id FROM job "
	"WHERE done_at IS NULL ORDER BY id LIMIT $1::integer "
	"FOR UPDATE SKIP LOCKED"};
static const Statement note_done = {"note_done", "UPDATE job "
	"SET done_at = clock_timestamp() WHERE id = ANY ($1::integer[])"};

static const Statement *const statements[] = {
	&begin, &commit, &claim, &look_again, &give_back_done, &guard, &give_back,
	&lock_rows, &note_done
};

static void
check(Worker *w, const char *what, const PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		fail("%s: %s", what, PQerrorMessage(w->server));
}

static PGresult *
execute(Worker *w, const Statement *s, int n, const char *const *values)
{
	PGresult   *result = PQexecPrepared(w->server, s->name, n, values, NULL,
										NULL, 0);

	check(w, s->name, result);
	return result;
}

/* Execute a statement; how many rows it answered or changed. */
static int
execute_count(Worker *w, const Statement *s, int n, const char *const *values)
{
	PGresult   *result = execute(w, s, n, values);
	int			rows = PQresultStatus(result) == PGRES_TUPLES_OK ?
		PQntuples(result) : atoi(PQcmdTuples(result));

	PQclear(result);
	return rows;
}

static void *
open_worker(const System *system, const char *where, int client)
{
	Worker	   *w = allocate(sizeof(Worker));

	owner_name(w->owner, client);
	w->server = PQconnectdb(where);
	if (PQstatus(w->server) != CONNECTION_OK)
		fail("connect: %s", PQerrorMessage(w->server));
	for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++)
	{
		PGresult   *result = PQprepare(w->server, statements[i]->name,
									   statements[i]->text, 0, NULL);

		check(w, statements[i]->name, result);
		PQclear(result);
	}
	return w;
}

static void
close_worker(void *client)
{
	Worker	   *w = client;

	PQfinish(w->server);
	free(w);
}

/* Fill the table, which run creates. */
static void
prepare(void *client, int first, int count)
{
	static const char *const texts[] = {
		"TRUNCATE job",
		("INSERT INTO job SELECT i, 'do this and that with number ' || i "
		 "FROM generate_series($1::integer, $2::integer) i"),
		"VACUUM ANALYZE job"
	};
	Worker	   *w = client;
	char		from[NAME_SIZE];
	char		to[NAME_SIZE];
	const char *values[] = {from, to};

	snprintf(from, sizeof(from), "%d", first);
	snprintf(to, sizeof(to), "%d", first + count - 1);
	for (int i = 0; i < 3; i++)
	{
		PGresult   *result = PQexecParams(w->server, texts[i], i == 1 ? 2 : 0,
										  NULL, values, NULL, NULL, 0);

		check(w, texts[i], result);
		PQclear(result);
	}
}

/* Append to an array in SQL, which the first closes. */
static void
append(char *array, const char *element)
{
	size_t		len = strlen(array);

	if (len == 0)
		snprintf(array, ARRAY_SIZE, "{%s}", element);
	else
		snprintf(array + len - 1, ARRAY_SIZE - len + 1, ",%s}", element);
}

/* Note what it has: rows of a name and a token. */
static void
note(Worker *w, const PGresult *rows)
{
	w->names[0] = w->numbers[0] = w->tokens[0] = '\0';
	for (int i = 0; i < PQntuples(rows); i++)
	{
		const char *name = PQgetvalue(rows, i, 0);

		append(w->names, name);
		append(w->numbers, strchr(name, '-') + 1);
		append(w->tokens, PQgetvalue(rows, i, 1));
	}
}

/* Answer the jobs of these rows: a number each, or a name that ends with one. */
static int
answer(PGresult *rows, int *jobs)
{
	int			n = PQntuples(rows);

	for (int i = 0; i < n; i++)
	{
		const char *text = PQgetvalue(rows, i, 0);
		const char *dash = strchr(text, '-');

		jobs[i] = atoi(dash ? dash + 1 : text);
	}
	PQclear(rows);
	return n;
}

/*
 * Somebody else may have done a job, and given it back, after this claim had
 * looked what there is to be done: so it looks again.
 */
static int
claim_jobs(void *client, int count, int *jobs)
{
	Worker	   *w = client;
	char		limit[NAME_SIZE];
	const char *claim_values[] = {w->owner, limit};
	const char *again_values[] = {w->names, w->numbers, w->tokens};
	const char *done_values[] = {w->names, w->numbers, w->owner};
	PGresult   *rows;
	int			claimed;

	snprintf(limit, sizeof(limit), "%d", count);
	do
	{
		rows = execute(w, &claim, 2, claim_values);
		claimed = PQntuples(rows);
		if (claimed == 0)
			return answer(rows, jobs);
		note(w, rows);
		PQclear(rows);
		rows = execute(w, &look_again, 3, again_values);
		if (PQntuples(rows) == claimed)
			return answer(rows, jobs);
		if (execute_count(w, &give_back_done, 3, done_values) !=
			claimed - PQntuples(rows))
			fail("jobs were lost before they were done");
		note(w, rows);
		claimed = answer(rows, jobs);
	} while (claimed == 0);
	return claimed;
}

/* Note that the jobs it has are done. */
static void
update_and_commit(Worker *w, int count)
{
	const char *values[] = {w->numbers};

	if (execute_count(w, &note_done, 1, values) != count)
		fail("some of %d jobs are not there", count);
	execute_count(w, &commit, 0, NULL);
}

static void
finish_claimed(void *client, int count, const int *jobs)
{
	Worker	   *w = client;
	const char *values[] = {w->names, w->owner, w->tokens};

	execute_count(w, &begin, 0, NULL);
	execute_count(w, &guard, 3, values);
	update_and_commit(w, count);
	if (execute_count(w, &give_back, 2, values) != count)
		fail("some of %d jobs were lost", count);
}

static int
lock_jobs(void *client, int count, int *jobs)
{
	Worker	   *w = client;
	char		limit[NAME_SIZE];
	const char *values[] = {limit};

	snprintf(limit, sizeof(limit), "%d", count);
	execute_count(w, &begin, 0, NULL);
	return answer(execute(w, &lock_rows, 1, values), jobs);
}

static void
finish_locked(void *client, int count, const int *jobs)
{
	Worker	   *w = client;

	w->numbers[0] = '\0';
	for (int i = 0; i < count; i++)
	{
		char		number[NAME_SIZE];

		snprintf(number, sizeof(number), "%d", jobs[i]);
		append(w->numbers, number);
	}
	update_and_commit(w, count);
}

#define COMMON \
	.open = open_worker, .close = close_worker, .prepare = prepare

const System jobs_systems[] =
{
	{.name = "pg-jobs-dlock", COMMON, .take_jobs = claim_jobs,
		.finish_jobs = finish_claimed},
	{.name = "pg-jobs-rows", COMMON, .take_jobs = lock_jobs,
		.finish_jobs = finish_locked},
	{.name = NULL}
};
