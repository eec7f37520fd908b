/*
 * handover.c
 *	  Measure how fast a lock goes from its holder to the next in line.
 *
 * handover SYSTEM CLIENTS WARM_UP SECONDS prints: hand-overs per second, the
 * median and the 99th percentile of their microseconds, how many were made,
 * and for dlock how many wake-ups there were for each.
 *
 * A number of clients, each a thread with a connection of its own (PGHOST and
 * the like say where), acquire one name, waiting without limit, and release it
 * at once; so all but one stand in line.  A hand-over takes from the moment
 * before the release is sent to the moment when the next client has its lock.
 * SYSTEM is "dlock" or "advisory".  The times are kept exactly, not in a
 * histogram.  A client that finds the lock held by another ends the program.
 *
 * SYSTEM "turns" is the same with dlock, but the clients take turns among
 * themselves, so that the name is free whenever one comes and nobody stands in
 * line: what so many connections cost that are used in turn, without a queue.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpq-fe.h>

static bool is_dlock;
static bool takes_turns;
static int	clients;
static sem_t *turns;			/* of each client; only if they take turns */
static double warm_up;
static double seconds;
static double start;			/* of the whole */

/* Of the holder; the lock that is measured protects them. */
static atomic_int holder = -1;
static double released_at;
static double *samples;
static size_t nsamples;
static size_t max_samples;

static atomic_int connected;
static atomic_bool go;

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + t.tv_nsec / 1e9;
}

static void
fail(const char *what, const char *why)
{
	fprintf(stderr, "handover: %s: %s\n", what, why);
	exit(1);
}

static void
prepare(PGconn *connection, const char *name, const char *statement)
{
	PGresult   *result = PQprepare(connection, name, statement, 0, NULL);

	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		fail(name, PQerrorMessage(connection));
	PQclear(result);
}

static PGconn *
connect_client(int client)
{
	PGconn	   *connection = PQconnectdb("");
	char		acquire[200];

	if (PQstatus(connection) != CONNECTION_OK)
		fail("connect", PQerrorMessage(connection));
	PQclear(PQexec(connection, "SET synchronous_commit = off"));
	if (is_dlock)
	{
		snprintf(acquire, sizeof(acquire),
				 "SELECT dlock_acquire('hot', 'client-%d', 600, %d) > 0",
				 client, takes_turns ? 0 : -1);
		prepare(connection, "acquire", acquire);
		snprintf(acquire, sizeof(acquire),
				 "SELECT dlock_release('hot', 'client-%d')", client);
		prepare(connection, "release", acquire);
	}
	else
	{
		prepare(connection, "acquire",
				"SELECT true FROM pg_advisory_lock(4711)");
		prepare(connection, "release", "SELECT pg_advisory_unlock(4711)");
	}
	return connection;
}

static void
execute(PGconn *connection, const char *name)
{
	PGresult   *result = PQexecPrepared(connection, name, 0, NULL, NULL, NULL,
										0);

	if (PQresultStatus(result) != PGRES_TUPLES_OK ||
		strcmp(PQgetvalue(result, 0, 0), "t") != 0)
		fail(name, PQerrorMessage(connection));
	PQclear(result);
}

static void *
run_client(void *arg)
{
	int			me = (int) (intptr_t) arg;
	PGconn	   *connection = connect_client(me);
	bool		last = false;

	atomic_fetch_add(&connected, 1);
	while (!atomic_load(&go))
		nanosleep(&(struct timespec) {.tv_nsec = 1000000}, NULL);
	while (!last)
	{
		double		got_at;

		if (takes_turns)
			sem_wait(&turns[me]);
		execute(connection, "acquire");
		got_at = now();
		if (atomic_exchange(&holder, me) != -1)
			fail("acquire", "somebody else holds the lock");
		if (released_at > start + warm_up &&
			got_at < start + warm_up + seconds)
		{
			if (nsamples == max_samples)
			{
				max_samples = max_samples ? max_samples * 2 : 65536;
				samples = realloc(samples, max_samples * sizeof(double));
				if (samples == NULL)
					fail("realloc", "out of memory");
			}
			samples[nsamples++] = got_at - released_at;
		}
		last = got_at > start + warm_up + seconds;
		atomic_store(&holder, -1);
		released_at = now();
		execute(connection, "release");
		if (takes_turns)
			sem_post(&turns[(me + 1) % clients]);
	}
	PQfinish(connection);
	return NULL;
}

static int
compare(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* How often dlock woke a waiter for each lease it granted. */
static double
wakeups(void)
{
	PGconn	   *connection = PQconnectdb("");
	PGresult   *result = PQexec(connection, "SELECT woken::float8 / greatest(acquired, 1) FROM dlock.stats");
	double		answer;

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		fail("dlock.stats", PQerrorMessage(connection));
	answer = atof(PQgetvalue(result, 0, 0));
	PQclear(result);
	PQfinish(connection);
	return answer;
}

int
main(int argc, char **argv)
{
	pthread_t  *threads;
	pthread_attr_t attributes;

	if (argc != 5)
		fail("usage", "handover SYSTEM CLIENTS WARM_UP SECONDS");
	takes_turns = strcmp(argv[1], "turns") == 0;
	is_dlock = takes_turns || strcmp(argv[1], "dlock") == 0;
	clients = atoi(argv[2]);
	warm_up = atof(argv[3]);
	seconds = atof(argv[4]);
	threads = calloc((size_t) clients, sizeof(pthread_t));
	turns = calloc((size_t) clients, sizeof(sem_t));
	for (int i = 0; i < clients; i++)
		sem_init(&turns[i], 0, i == 0);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 256 * 1024);
	for (int i = 0; i < clients; i++)
		if (pthread_create(&threads[i], &attributes, run_client,
						   (void *) (intptr_t) i) != 0)
			fail("pthread_create", "no more threads");
	while (atomic_load(&connected) < clients)
		nanosleep(&(struct timespec) {.tv_nsec = 1000000}, NULL);
	start = now();
	atomic_store(&go, true);
	for (int i = 0; i < clients; i++)
		pthread_join(threads[i], NULL);
	if (nsamples == 0)
		fail("measure", "no hand-over in time");
	qsort(samples, nsamples, sizeof(double), compare);
	printf("%.1f %.1f %.1f %zu %.3f\n", nsamples / seconds,
		   samples[nsamples / 2] * 1e6,
		   samples[(size_t) (nsamples * 0.99)] * 1e6, nsamples,
		   is_dlock ? wakeups() : 0.0);
	return 0;
}
