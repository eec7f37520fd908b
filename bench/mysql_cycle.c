/*
 * mysql_cycle.c
 *	  Measure acquire and release on MySQL or MariaDB.
 *
 * mysql_cycle SYSTEM CLIENTS WARM_UP SECONDS SOCKET prints cycles per second,
 * the median and the 99th percentile of a cycle's microseconds, and how many
 * cycles were counted.
 *
 * Each client is a thread with a connection of its own, and acquires and
 * releases names of its own in turn.  SYSTEM is "dlock", "table" (INSERT and
 * DELETE in a lock table bench.locks, each a transaction) or "get_lock".
 * An acquire or release that does not do what it must ends the program.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <mysql.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAMES	1000			/* of a client */

static enum
{
	DLOCK, TABLE, GET_LOCK
}			lock_system;
static const char *server_socket;
static double warm_up;
static double seconds;
static double start;
static atomic_int connected;
static atomic_bool go;

typedef struct client
{
	pthread_t	thread;
	int			number;
	float	   *samples;
	size_t		count;
	size_t		room;
} client;

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
	fprintf(stderr, "mysql_cycle: %s: %s\n", what, why);
	exit(1);
}

/* Execute a statement; what it must answer, or how many rows it must change. */
static void
execute(MYSQL *connection, const char *statement)
{
	MYSQL_RES  *result;
	MYSQL_ROW	row;

	if (mysql_query(connection, statement) != 0)
		fail(statement, mysql_error(connection));
	result = mysql_store_result(connection);
	if (result == NULL)
	{
		if (mysql_affected_rows(connection) != 1)
			fail(statement, "did not change one row");
		return;
	}
	row = mysql_fetch_row(result);
	if (row == NULL || row[0] == NULL || strcmp(row[0], "0") == 0)
		fail(statement, "was refused");
	mysql_free_result(result);
}

static MYSQL *
connect_client(void)
{
	MYSQL	   *connection = mysql_init(NULL);

	if (connection == NULL ||
		mysql_real_connect(connection, NULL, "root", NULL, NULL, 0,
						   server_socket, 0) == NULL)
		fail("connect", connection ? mysql_error(connection) : "no memory");
	return connection;
}

static void *
run_client(void *arg)
{
	client	   *me = arg;
	MYSQL	   *connection = connect_client();
	char		acquire[200];
	char		release[200];
	double		at;

	atomic_fetch_add(&connected, 1);
	while (!atomic_load(&go))
		nanosleep(&(struct timespec) {.tv_nsec = 1000000}, NULL);
	for (int i = 0; (at = now()) < start + warm_up + seconds; i++)
	{
		int			name = me->number * NAMES + i % NAMES;
		double		end;

		switch (lock_system)
		{
			case DLOCK:
				snprintf(acquire, sizeof(acquire),
						 "SELECT dlock_acquire('name-%d', 'client-%d', 600) > 0",
						 name, me->number);
				snprintf(release, sizeof(release),
						 "SELECT dlock_release('name-%d', 'client-%d')",
						 name, me->number);
				break;
			case TABLE:
				snprintf(acquire, sizeof(acquire),
						 "INSERT INTO bench.locks VALUES ('name-%d', 'client-%d', NOW(6) + INTERVAL 600 SECOND)",
						 name, me->number);
				snprintf(release, sizeof(release),
						 "DELETE FROM bench.locks WHERE name = 'name-%d' AND owner = 'client-%d'",
						 name, me->number);
				break;
			case GET_LOCK:
				snprintf(acquire, sizeof(acquire),
						 "SELECT GET_LOCK('name-%d', 0)", name);
				snprintf(release, sizeof(release),
						 "SELECT RELEASE_LOCK('name-%d')", name);
				break;
		}
		execute(connection, acquire);
		execute(connection, release);
		end = now();
		if (at < start + warm_up || end > start + warm_up + seconds)
			continue;
		if (me->count == me->room)
		{
			me->room = me->room ? me->room * 2 : 4096;
			me->samples = realloc(me->samples, me->room * sizeof(float));
			if (me->samples == NULL)
				fail("realloc", "out of memory");
		}
		me->samples[me->count++] = (float) ((end - at) * 1e6);
	}
	mysql_close(connection);
	return NULL;
}

static int
compare(const void *a, const void *b)
{
	float		x = *(const float *) a;
	float		y = *(const float *) b;

	return x < y ? -1 : x > y;
}

int
main(int argc, char **argv)
{
	int			n;
	client	   *clients;
	float	   *all;
	size_t		count = 0;

	if (argc != 6)
		fail("usage", "mysql_cycle SYSTEM CLIENTS WARM_UP SECONDS SOCKET");
	lock_system = strcmp(argv[1], "table") == 0 ? TABLE :
		strcmp(argv[1], "get_lock") == 0 ? GET_LOCK : DLOCK;
	n = atoi(argv[2]);
	warm_up = atof(argv[3]);
	seconds = atof(argv[4]);
	server_socket = argv[5];
	if (n < 1 || mysql_library_init(0, NULL, NULL) != 0)
		fail("usage", "CLIENTS must be at least 1");
	clients = calloc((size_t) n, sizeof(client));
	for (int i = 0; i < n; i++)
	{
		clients[i].number = i;
		if (pthread_create(&clients[i].thread, NULL, run_client,
						   &clients[i]) != 0)
			fail("pthread_create", "no more threads");
	}
	while (atomic_load(&connected) < n)
		nanosleep(&(struct timespec) {.tv_nsec = 1000000}, NULL);
	start = now();
	atomic_store(&go, true);
	for (int i = 0; i < n; i++)
	{
		pthread_join(clients[i].thread, NULL);
		count += clients[i].count;
	}
	if (count == 0)
		fail("measure", "no cycle in time");
	all = malloc(count * sizeof(float));
	count = 0;
	for (int i = 0; i < n; i++)
	{
		memcpy(all + count, clients[i].samples,
			   clients[i].count * sizeof(float));
		count += clients[i].count;
	}
	qsort(all, count, sizeof(float), compare);
	printf("%.1f %.1f %.1f %zu\n", (double) count / seconds,
		   (double) all[count / 2], (double) all[(size_t) (count * 0.99)],
		   count);
	return 0;
}
