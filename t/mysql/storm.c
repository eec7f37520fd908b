/*
 * storm.c
 *	  Many clients at once do what they like with a few leases.
 *
 * storm SOCKET CLIENTS SECONDS|COUNTx SEED: for some seconds, or until each
 * client has tried COUNT times.  Each is a thread with a connection of its own.
 * It acquires one of a few names, in any way there is, with or without waiting,
 * holds it for a moment, renews it or enters again, and gives it back, or ends
 * its connection without a word.  Meanwhile another thread kills statements of
 * waiters.
 *
 * Checked all the time: a name held exclusively has no other holder, shared and
 * permit holders are as many as allowed, and the tokens of a name grow.  Prints what
 * was done, and ends with an error if something was wrong.
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

#define NAMES	4
#define LIMIT	3				/* permits of a name */
#define PATIENCE	5			/* seconds, of a call that does not wait for a lease */

enum
{
	EXCLUSIVE, SHARED, PERMIT, MODES
};

static const char *server_socket;
static double end;				/* unless attempts is set */
static long attempts;			/* of each client, or 0 */
static atomic_bool is_over;		/* no client is left */
static unsigned int seed;

/* The holders of a name, as the clients see them. */
static struct
{
	pthread_mutex_t mutex;
	int			holders[MODES];
	uint64_t	token;			/* the largest that was granted exclusively */
}			names[NAMES];

static atomic_long grants;
static atomic_long refusals;
static atomic_long errors;
static atomic_long deadlocks;
static atomic_long undecided;	/* the server stood still */
static atomic_long kills;
static atomic_long ends;

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
	fprintf(stderr, "storm: %s: %s\n", what, why);
	exit(1);
}

static void
nap(unsigned int us)
{
	nanosleep(&(struct timespec) {.tv_sec = us / 1000000,
			  .tv_nsec = us % 1000000 * 1000L}, NULL);
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

/*
 * Ask for a number: -1 for NULL, -2 for an error, -3 if the connection is gone.  A server
 * that stands still may leave a call undecided, but only after "patience", in seconds, and
 * never if that is negative.
 */
static int64_t
ask_for(MYSQL *connection, const char *statement, double patience)
{
	MYSQL_RES  *result;
	MYSQL_ROW	row;
	double		start = now();
	int64_t		answer = -1;
	unsigned int error;

	if (mysql_query(connection, statement) == 0 &&
		(result = mysql_store_result(connection)) != NULL)
	{
		row = mysql_fetch_row(result);
		if (row != NULL && row[0] != NULL)
			answer = strtoll(row[0], NULL, 10);
		mysql_free_result(result);
		if (mysql_errno(connection) == 0)
			return answer;
	}
	error = mysql_errno(connection);
	if (error == 3058)
		atomic_fetch_add(&deadlocks, 1);
	else if (error >= 2000 && error < 3000)
		return -3;
	else if (error == 3572 && patience >= 0 && now() - start >= patience)
		atomic_fetch_add(&undecided, 1);
	else if (error != 1317 && error != 1053 && error != 1927 && error != 4031)
		fail(statement, mysql_error(connection));
	atomic_fetch_add(&errors, 1);
	return -2;
}

/* The same for what does not wait for a lease. */
static int64_t
ask(MYSQL *connection, const char *statement)
{
	return ask_for(connection, statement, PATIENCE);
}

/* The name has been granted: no holder may exclude another. */
static void
note_grant(int name, int mode, uint64_t token)
{
	pthread_mutex_lock(&names[name].mutex);
	names[name].holders[mode]++;
	for (int i = 0; i < MODES; i++)
		if (i != mode && names[name].holders[i] > 0)
			fail("grant", "the name is held by others");
	if (names[name].holders[EXCLUSIVE] > 1 || names[name].holders[PERMIT] > LIMIT)
		fail("grant", "the name is held by too many");
	if (token <= names[name].token)
		fail("grant", "the token has not grown");
	if (mode == EXCLUSIVE)
		names[name].token = token;
	pthread_mutex_unlock(&names[name].mutex);
}

static void
note_end(int name, int mode)
{
	pthread_mutex_lock(&names[name].mutex);
	names[name].holders[mode]--;
	pthread_mutex_unlock(&names[name].mutex);
	atomic_fetch_add(&ends, 1);
}

/*
 * Ask for something that must be answered so: false if the statement was killed
 * on its way, and nobody knows what it did.
 */
static bool
insist(MYSQL *connection, const char *statement, int64_t wanted)
{
	int64_t		answer = ask(connection, statement);

	if (answer != wanted && answer != -2)
		fail(statement, "was refused");
	return answer == wanted;
}

static void *
run_client(void *arg)
{
	static const char *const functions[] = {
		"dlock_acquire", "dlock_acquire_shared", "dlock_acquire_permit",
		"dlock_acquire_session"
	};
	static const double waits[] = {0, 0.05, 2, -1};
	int			me = (int) (intptr_t) arg;
	int			life = 0;		/* makes another owner of it */
	unsigned int random = seed + (unsigned int) me * 7919;
	MYSQL	   *connection = connect_client();

	for (long done = 0; attempts > 0 ? done < attempts : now() < end; done++)
	{
		char		statement[300];
		char		release[200];
		int			name = rand_r(&random) % NAMES;
		int			function = rand_r(&random) % 8;
		double		wait = waits[rand_r(&random) % 4];
		int			mode;
		int64_t		token;
		bool		is_sure = true;

		function = function > 3 ? 0 : function;
		mode = function == 3 ? EXCLUSIVE : function;
		snprintf(release, sizeof(release),
				 "SELECT dlock_release('storm-%d', 'client-%d.%d')", name, me, life);
		snprintf(statement, sizeof(statement),
				 "SELECT %s('storm-%d', 'client-%d.%d', 600%s, %g)",
				 functions[function], name, me, life, function == 2 ? ", 3" : "",
				 wait);
		token = ask_for(connection, statement, wait == 0 ? PATIENCE : wait);
		if (token == -1)
			atomic_fetch_add(&refusals, 1);
		if (token == -3)
		{
			mysql_close(connection);
			connection = connect_client();
		}
		if (token <= 0)
			continue;
		atomic_fetch_add(&grants, 1);
		note_grant(name, mode, (uint64_t) token);
		nap((unsigned int) rand_r(&random) % 3000);
		if (function == 3 && rand_r(&random) % 2 == 0)
		{
			/* the server will see it, sooner or later */
			note_end(name, mode);
			mysql_close(connection);
			connection = connect_client();
			life++;
			continue;
		}
		if (rand_r(&random) % 4 == 0)
		{
			snprintf(statement, sizeof(statement),
					 "SELECT dlock_renew('storm-%d', 'client-%d.%d', 600)",
					 name, me, life);
			is_sure &= insist(connection, statement, 1);
		}
		if (mode == EXCLUSIVE && is_sure && rand_r(&random) % 4 == 0)
		{
			snprintf(statement, sizeof(statement),
					 "SELECT dlock_acquire%s('storm-%d', 'client-%d.%d', 600)",
					 function == 3 ? "_session" : "", name, me, life);
			is_sure &= insist(connection, statement, token) &&
				insist(connection, release, 1);
		}
		note_end(name, mode);
		if (is_sure && insist(connection, release, 1))
			continue;

		/* whatever there is left */
		snprintf(statement, sizeof(statement),
				 "SELECT dlock_release_all('client-%d.%d')", me, life);
		while (ask(connection, statement) < 0)
			;
	}
	mysql_close(connection);
	return NULL;
}

/* Kill statements of waiters. */
static void *
run_killer(void *arg)
{
	unsigned int random = seed;
	MYSQL	   *connection = connect_client();

	while (!is_over)
	{
		char		statement[100];
		int64_t		id;

		nap(2000 + (unsigned int) rand_r(&random) % 20000);
		id = ask(connection,
				 "SELECT connection_id FROM dlock.waiters ORDER BY rand() LIMIT 1");
		if (id <= 0)
			continue;
		snprintf(statement, sizeof(statement), "KILL QUERY %lld",
				 (long long) id);
		if (mysql_query(connection, statement) == 0)
			atomic_fetch_add(&kills, 1);
	}
	mysql_close(connection);
	return arg;
}

int
main(int argc, char **argv)
{
	int			clients;
	pthread_t  *threads;
	pthread_t	killer;

	if (argc != 5)
		fail("usage", "storm SOCKET CLIENTS SECONDS|COUNTx SEED");
	server_socket = argv[1];
	clients = atoi(argv[2]);
	if (argv[3][strlen(argv[3]) - 1] == 'x')
		attempts = atol(argv[3]);
	end = now() + atof(argv[3]);
	seed = (unsigned int) strtoul(argv[4], NULL, 10);
	if (clients < 1 || mysql_library_init(0, NULL, NULL) != 0)
		fail("usage", "CLIENTS must be at least 1");
	for (int i = 0; i < NAMES; i++)
		pthread_mutex_init(&names[i].mutex, NULL);
	threads = calloc((size_t) clients, sizeof(pthread_t));
	for (int i = 0; i < clients; i++)
		if (pthread_create(&threads[i], NULL, run_client,
						   (void *) (intptr_t) i) != 0)
			fail("pthread_create", "no more threads");
	pthread_create(&killer, NULL, run_killer, NULL);
	for (int i = 0; i < clients; i++)
		pthread_join(threads[i], NULL);
	is_over = true;
	pthread_join(killer, NULL);
	printf("grants %ld refusals %ld errors %ld deadlocks %ld undecided %ld kills %ld"
		   " ends %ld\n", (long) grants, (long) refusals, (long) errors,
		   (long) deadlocks, (long) undecided, (long) kills, (long) ends);
	return 0;
}
