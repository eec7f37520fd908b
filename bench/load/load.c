/*
 * load.c
 *	  Keep the clients of one system busy with one workload, and measure them.
 *
 * load [-c CLIENTS] [-f FIRST] [-n LOCKS] [-b BATCH] [-j SECONDS] [-r RATE]
 *		[-w WARM_UP] [-t SECONDS] [-S] SYSTEM WHERE WORKLOAD
 *
 * prints lines "MEASURE,VALUE".  SYSTEM is one of a driver's, and WHERE what
 * that driver takes for an address.  WORKLOAD is explained in workload.c.  The
 * locks are numbers from FIRST on.  -j is what a job takes.  -r is how many turns a second
 * the clients make together, where a workload can do so; without it, as many as they
 * can.  -S holds a snapshot open meanwhile, from a connection that does nothing else.
 *
 *	rate			of what the workload counts, per second of the window
 *	checked			grants, in all, that were checked for another holder
 *	refused			in all
 *	T_n T_p50 T_p99 T_max	of each thing T that is timed: how often, and us
 *	grants_min grants_max grants_cv	per client in the window, where there are
 *					several: the spread of what they were given, and its standard
 *					deviation over its mean
 *	second_N		what was done in the Nth second of the window, from 1 on
 *	elapsed			seconds that a workload without a window took
 *
 * What counts ended in the window.  The first wrong answer ends the program with
 * an error.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "workload.h"

/* How long who cannot wait in line pauses before it asks again. */
#define RETRY_PAUSE_NS	1000000

static const System *const drivers[] = {
	libpq_systems, jobs_systems, mysql_systems, redis_systems, zookeeper_systems,
	etcd_systems
};

Run			run = {.clients = 1, .locks = 100000, .batch = 1};
static double warm_up_seconds = 1;
static double window_seconds = 3;
static bool with_snapshot;
static pthread_barrier_t ready; /* all clients, and main() */
static pthread_barrier_t started;	/* the same, once main() has set the window */
static pthread_barrier_t finished;	/* all clients */

/* Report and leave, whatever the other threads do. */
void
fail(const char *format,...)
{
	va_list		args;

	flockfile(stderr);
	fprintf(stderr, "load: %s: ", run.system ? run.system->name : "usage");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	fflush(stderr);
	_exit(1);
}

/* Allocate zeroed memory. */
void *
allocate(unsigned long size)
{
	void	   *memory = calloc(1, size);

	if (memory == NULL)
		fail("out of memory");
	return memory;
}

/* What a lock is called. */
void
lock_name(char *name, int lock)
{
	snprintf(name, NAME_SIZE, "job-%d", lock);
}

/* What a client calls itself: nobody else, not in another run either. */
void
owner_name(char *owner, int client)
{
	snprintf(owner, NAME_SIZE, "worker-%d-%d", (int) getpid(), client);
}

/* For systems in which nobody is told that a lock is free. */
void
pause_before_retry(void)
{
	nanosleep(&(struct timespec) {.tv_nsec = RETRY_PAUSE_NS}, NULL);
}

void
sleep_seconds(double seconds)
{
	long		whole = (long) seconds;
	struct timespec t = {.tv_sec = whole,
		.tv_nsec = (long) ((seconds - (double) whole) * 1e9)
	};

	nanosleep(&t, NULL);
}

/* Sleep until now_ns() is so much. */
void
sleep_until(uint64_t time_ns)
{
	struct timespec t = {.tv_sec = (time_t) (time_ns / 1000000000),
		.tv_nsec = (long) (time_ns % 1000000000)
	};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

uint64_t
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t) t.tv_sec * 1000000000 + (uint64_t) t.tv_nsec;
}

/* What a client's thread does. */
static void *
run_client(void *arg)
{
	Client	   *me = arg;
	const Workload *workload = run.workload;

	me->connection = run.system->open(run.system, run.where, me->number);
	if (workload->begin)
		workload->begin(me);
	pthread_barrier_wait(&ready);
	pthread_barrier_wait(&started);
	while (workload->turn && now_ns() < run.end_ns)
		workload->turn(me);
	pthread_barrier_wait(&finished);
	if (workload->end)
		workload->end(me);
	if (!workload->keeps)
		run.system->close(me->connection);
	return NULL;
}

/* Print what was done and how long it took. */
static void
report(Client *clients)
{
	static Client sum;
	Client	   *all = &sum;
	uint64_t	least = UINT64_MAX;
	uint64_t	most = 0;
	double		squares = 0;
	double		mean;

	for (int i = 0; i < run.clients; i++)
	{
		Client	   *client = &clients[i];

		all->done += client->done;
		all->granted += client->granted;
		all->refused += client->refused;
		least = client->done < least ? client->done : least;
		most = client->done > most ? client->done : most;
		for (int t = 0; t < 2; t++)
			histogram_merge(&all->times[t], &client->times[t]);
		for (int s = 0; s < MAX_WINDOW_SECONDS; s++)
			all->by_second[s] += client->by_second[s];
	}
	printf("checked,%lu\nrefused,%lu\n", all->granted, all->refused);
	if (run.workload->turn == NULL)
		return;
	printf("rate,%.1f\n", (double) all->done / window_seconds);
	for (int t = 0; t < 2 && run.workload->times[t]; t++)
	{
		const char *what = run.workload->times[t];
		const Histogram *h = &all->times[t];

		printf("%s_n,%lu\n", what, h->count);
		if (h->count == 0)
			continue;
		printf("%s_p50,%.1f\n", what, histogram_percentile_us(h, 50));
		printf("%s_p99,%.1f\n", what, histogram_percentile_us(h, 99));
		printf("%s_max,%.1f\n", what, histogram_percentile_us(h, 100));
	}
	mean = (double) all->done / run.clients;
	for (int i = 0; i < run.clients; i++)
		squares += pow((double) clients[i].done - mean, 2);
	if (run.clients > 1 && all->done > 0)
		printf("grants_min,%lu\ngrants_max,%lu\ngrants_cv,%.3f\n", least, most,
			   sqrt(squares / run.clients) / mean);
	for (int s = 0; s < (int) window_seconds; s++)
		printf("second_%d,%lu\n", s + 1, all->by_second[s]);
}

/* Find what the command line names. */
static void
find(const char *system, const char *workload)
{
	const Workload *found = workloads;

	for (size_t d = 0; d < sizeof(drivers) / sizeof(drivers[0]); d++)
		for (const System *s = drivers[d]; s->name; s++)
			if (strcmp(s->name, system) == 0)
				run.system = s;
	if (run.system == NULL)
		fail("no system \"%s\"", system);
	while (found->name && strcmp(found->name, workload) != 0)
		found++;
	if (found->name == NULL)
		fail("no workload \"%s\"", workload);
	run.workload = found;
	if (!run.workload->offered(run.system))
		fail("does not offer the workload \"%s\"", workload);
}

static void
parse(int argc, char **argv)
{
	int			option;

	while ((option = getopt(argc, argv, "c:f:n:b:j:r:w:t:S")) != -1)
		switch (option)
		{
			case 'c':
				run.clients = atoi(optarg);
				break;
			case 'f':
				run.first = atoi(optarg);
				break;
			case 'n':
				run.locks = atoi(optarg);
				break;
			case 'b':
				run.batch = atoi(optarg);
				break;
			case 'j':
				run.work_seconds = atof(optarg);
				break;
			case 'r':
				run.rate = atof(optarg);
				break;
			case 'w':
				warm_up_seconds = atof(optarg);
				break;
			case 't':
				window_seconds = atof(optarg);
				break;
			case 'S':
				with_snapshot = true;
				break;
			default:
				fail("see load.c");
		}
	if (argc - optind != 3)
		fail("load [OPTION]... SYSTEM WHERE WORKLOAD");
	find(argv[optind], argv[optind + 2]);
	run.where = argv[optind + 1];
	assert(run.system != NULL && run.workload != NULL);
	if (run.batch < 1 || run.batch > MAX_BATCH || run.clients < 1 ||
		window_seconds <= 0 || window_seconds > MAX_WINDOW_SECONDS)
		fail("a number is out of range");
	if (strcmp(run.workload->name, "hot") == 0)
		run.locks = 1;
	else if (run.locks / run.batch < run.clients && run.workload->turn)
		fail("fewer locks than clients");
	if (with_snapshot && run.system->snapshot == NULL)
		fail("has no snapshots");
}

int
main(int argc, char **argv)
{
	Client	   *clients;
	pthread_attr_t attributes;
	void	   *aside;
	uint64_t	begun;

	parse(argc, argv);
	clients = allocate((size_t) run.clients * sizeof(Client));
	run.all = clients;
	run.holders = allocate((size_t) run.locks * sizeof(atomic_int));
	aside = run.system->open(run.system, run.where, run.clients);
	if (run.system->prepare)
		run.system->prepare(aside, run.first, run.locks);
	if (with_snapshot)
		run.system->snapshot(aside);

	pthread_barrier_init(&ready, NULL, (unsigned) run.clients + 1);
	pthread_barrier_init(&started, NULL, (unsigned) run.clients + 1);
	pthread_barrier_init(&finished, NULL, (unsigned) run.clients);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, (size_t) 512 * 1024);
	begun = now_ns();
	for (int i = 0; i < run.clients; i++)
	{
		clients[i].number = i;
		atomic_store(&clients[i].current, -1);
	}
	for (int i = 0; i < run.clients; i++)
	{
		clients[i].random = UINT64_C(0x9E3779B97F4A7C15) * (unsigned) (i + 1);
		if (pthread_create(&clients[i].thread, &attributes, run_client,
						   &clients[i]) != 0)
			fail("no more threads");
	}
	pthread_barrier_wait(&ready);
	if (run.workload->turn == NULL)
		printf("elapsed,%.3f\n", (double) (now_ns() - begun) / 1e9);
	run.start_ns = now_ns() + (uint64_t) (warm_up_seconds * 1e9);
	run.end_ns = run.start_ns + (uint64_t) (window_seconds * 1e9);
	pthread_barrier_wait(&started);
	for (int i = 0; i < run.clients; i++)
		pthread_join(clients[i].thread, NULL);
	run.system->close(aside);
	report(clients);
	return 0;
}
