/*
 * data_races.c
 *	  The engine without the server around it: called by many threads at once.
 *
 * data_races SOCKET THREADS COUNT SEED: each thread is a connection that makes
 * COUNT calls, of all kinds, to the engine that is linked to this program.  The
 * lock table is that of the server behind SOCKET, which must not be asked for
 * leases meanwhile.  Calls are cancelled, clients are gone, connections end,
 * somebody looks at all that, and the plugin is uninstalled and installed again.
 *
 * Build this with ThreadSanitizer, with which the servers themselves do not start.
 * It finds races between the program's threads, in whatever order they happen to run.
 *
 * data_races: two threads make a mistake on purpose.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <pwd.h>
#include <sanitizer/tsan_interface.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lease_engine.h"
#include "lease_moment.h"
#include "lease_connections.h"
#include "server_abi.h"

#define HOT		3				/* names that all threads want */
#define NAMES	40				/* those, and others */
#define OWNERS	12				/* fewer than there are threads */
#define PATIENCE_US	5000000		/* of a call that does not wait for a lease */

static const char *server_socket;
static long count;
static unsigned int seed;

static atomic_long grants;
static atomic_long refusals;
static atomic_long deadlocks;
static atomic_long cancels;
static atomic_long undecided;	/* the server stood still */

/* A thread: its identity, and how often it is still left alone. */
struct THD
{
	uint64_t	id;
	atomic_int	looks;			/* others look, too */
	atomic_bool loses_client;
};

static _Thread_local struct THD self;

static void
fail(const char *what, const char *why)
{
	fprintf(stderr, "data_races: %s: %s\n", what, why);
	_Exit(1);
}

/* ----------------------------------------------------------------
 * What the engine asks of the server, see mysql_compat.h
 * ----------------------------------------------------------------
 */

/* MariaDB's way to hear of connections that end needs no server. */
dlock_server
dlock_server_kind(void)
{
	return DLOCK_SERVER_MARIADB;
}

const char *
dlock_server_socket(void)
{
	return server_socket;
}

bool
dlock_server_has_data_in(const char *folder)
{
	(void) folder;
	return true;
}

bool
dlock_server_user(char *name, size_t size)
{
	char		room[4096];
	struct passwd entry;
	struct passwd *user = NULL;

	return getpwuid_r(geteuid(), &entry, room, sizeof(room), &user) == 0 &&
		user != NULL && snprintf(name, size, "%s", user->pw_name) < (int) size;
}

bool
dlock_server_is_ending(void)
{
	return false;
}

/* The server of this test follows none. */
const char *
dlock_appliers_query(void)
{
	return "SELECT 'appliers', 0";
}

unsigned long
dlock_read_only_recovery(void)
{
	return 1;
}

uint64_t
dlock_caller_connection_id(void)
{
	return self.id;
}

struct THD *
dlock_caller_thd(void)
{
	return &self;
}

/* The server's sessions are not for us to change; these are. */
bool
dlock_thd_killed(const struct THD *thd)
{
	return !thd->loses_client &&
		atomic_fetch_sub(&((struct THD *) thd)->looks, 1) <= 0;
}

bool
dlock_thd_connected(struct THD *thd)
{
	return !(thd->loses_client && atomic_fetch_sub(&thd->looks, 1) <= 0);
}

void
dlock_wait_begin(void)
{
}

void
dlock_wait_end(void)
{
}

bool
dlock_copy_service(const char *name, void *to, size_t size)
{
	(void) name, (void) to, (void) size;
	return false;
}

bool
dlock_caller_is_event(void)
{
	return false;
}

bool
dlock_thd_account(struct THD *thd, char *user, size_t user_size, char *host, size_t host_size)
{
	(void) thd, (void) user, (void) user_size, (void) host, (void) host_size;
	return false;
}

dlock_rights
dlock_thd_known_rights(struct THD *thd)
{
	(void) thd;
	return (dlock_rights) 0;
}

const char *
dlock_show_state(const char *state)
{
	return state;
}

void
dlock_log(const char *line)
{
	fprintf(stderr, "%s\n", line);
}

/*
 * ThreadSanitizer does not know this way to wait for a semaphore: tell it that
 * what came before a post has come before this.
 */
static int	(*real_sem_clockwait) (sem_t *, clockid_t, const struct timespec *);

int
sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until)
{
	int			result = real_sem_clockwait(sem, clock, until);

	if (result == 0)
		__tsan_acquire(sem);
	return result;
}

/* ----------------------------------------------------------------
 * Calls
 * ----------------------------------------------------------------
 */

static char names[NAMES][16];
static char owners[OWNERS][16];

static lease_bytes
bytes_of(const char *text)
{
	return (lease_bytes) {text, strlen(text)};
}

static lease_bytes
any_name(unsigned int *random)
{
	return bytes_of(names[rand_r(random) % (rand_r(random) % 2 ? HOT : NAMES)]);
}

/*
 * Say whether a call was left undecided by a server that stood still: not before its time
 * was up.
 */
static bool
is_undecided(const dlock_call *call, const dlock_answer *answer, int64_t start_us)
{
	int64_t		least_us = call->wait_us > 0 ? call->wait_us : PATIENCE_US;

	return strcmp(answer->sqlstate, "55P03") == 0 && call->wait_us >= 0 &&
		lease_now() - start_us >= least_us;
}

/* Make a call: check that it gets an answer, or an error that may occur. */
static bool
make(dlock_call *call, dlock_answer *answer, unsigned int *random)
{
	dlock_caller caller = {.user = "tester", .host = "localhost"};
	int64_t		start_us = lease_now();
	bool		made;

	caller.connection_id = self.id;
	call->caller = &caller;
	self.looks = rand_r(random) % 8;
	self.loses_client = rand_r(random) % 2;
	memset(answer, 0, sizeof(*answer));
	made = dlock_engine_call(call, answer);
	call->caller = NULL;
	if (made)
		return true;
	free(answer->unmasked);
	if (strcmp(answer->sqlstate, "70100") == 0)
		cancels++;
	else if (strcmp(answer->sqlstate, "40P01") == 0)
		deadlocks++;
	else if (strstr(answer->message, "cannot be told") != NULL)
		refusals++;				/* the plugin is not installed now */
	else if (is_undecided(call, answer, start_us))
		undecided++;
	else
		fail(answer->sqlstate, answer->message);
	return false;
}

static void
acquire(dlock_call *call, unsigned int *random)
{
	static const int64_t waits_us[] = {0, 2000, 100000, -1};
	int			what = rand_r(random) % 8;

	call->request.op = LEASE_ACQUIRE;
	call->request.mode = LEASE_EXCLUSIVE;
	call->request.kind = LEASE_PLAIN;
	/* so short that nobody has to give anything back */
	call->request.ttl_us = 1000 + rand_r(random) % 100000;
	call->wait_us = waits_us[rand_r(random) % 4];
	if (rand_r(random) % 4 == 0)
		call->request.request = bytes_of("again");
	if (what == 0)
		call->request.kind = LEASE_SESSION;
	else if (what < 3)
		call->request.mode = LEASE_SHARED;
	else if (what < 5)
	{
		call->request.mode = LEASE_PERMIT;
		call->request.limit = 2;
	}
}

/* Do anything that a connection can do. */
static void
do_anything(unsigned int *random)
{
	lease_bytes some[3];
	dlock_call	call = {.names = some, .nnames = 1};
	dlock_answer answer;
	char	   *text;
	int			what = rand_r(random) % 100;

	some[0] = any_name(random);
	call.request.owner = bytes_of(owners[rand_r(random) % OWNERS]);
	if (what < 40)
	{
		uint64_t	token;

		acquire(&call, random);
		if (!make(&call, &answer, random))
			return;
		if (!lease_is_granted(answer.outcome))
		{
			refusals++;
			return;
		}
		grants++;
		token = answer.token;
		if (rand_r(random) % 4 > 0)
		{
			call.request = (lease_request) {
				.op = LEASE_RELEASE, .owner = call.request.owner,
				.token = rand_r(random) % 2 ? token : 0
			};
			call.wait_us = 0;
			(void) make(&call, &answer, random);
		}
	}
	else if (what < 48)
	{
		call.kind = DLOCK_CALL_ACQUIRE_ALL;
		acquire(&call, random);
		call.request.mode = LEASE_EXCLUSIVE;
		call.request.kind = LEASE_PLAIN;
		call.request.limit = 0;
		for (int i = 0; i < 3; i++)
			some[i] = bytes_of(names[(unsigned int) (what + i * 2) % NAMES]);
		call.nnames = 3;
		if (make(&call, &answer, random) && lease_is_granted(answer.outcome))
			grants += 3;
	}
	else if (what < 68)
	{
		static const lease_op ops[] = {
			LEASE_RENEW, LEASE_RELEASE, LEASE_DROP, LEASE_EVICT
		};

		call.request.op = ops[rand_r(random) % 4];
		call.request.ttl_us = 50000;
		(void) make(&call, &answer, random);
	}
	else if (what < 74)
	{
		call.kind = DLOCK_CALL_APPLY_ALL;
		call.nnames = 0;
		call.request.op = rand_r(random) % 2 ? LEASE_RENEW : LEASE_DROP;
		call.request.ttl_us = 50000;
		(void) make(&call, &answer, random);
	}
	else if (what < 80)
	{
		call.kind = DLOCK_CALL_WAIT;
		call.wait_us = rand_r(random) % 50000;
		(void) make(&call, &answer, random);
	}
	else if (what < 86)
	{
		call.kind = DLOCK_CALL_READ;
		if (make(&call, &answer, random))
			free(answer.holders);
	}
	else if (what < 90)
	{
		call.kind = DLOCK_CALL_CHECK_GUARD;
		call.request.token = 1;
		(void) make(&call, &answer, random);
	}
	else if (what < 94)
	{
		dlock_connection_ended(self.id);
		self.id += 1000;
	}
	else if (what < 96)
	{
		self.looks = 100;
		if (!dlock_engine_settle(&answer) &&
			strcmp(answer.sqlstate, "70100") != 0)
			fail("settle", answer.message);
	}
	else
	{
		dlock_caller nobody = {.user = "other", .host = "localhost"};

		text = what < 98 ? dlock_engine_waiters(&nobody, &answer) :
			dlock_engine_stats(&answer);
		if (text == NULL)
			fail("waiters or stats", answer.message);
		free(text);
		if (what == 99)
			dlock_engine_reset_stats();
	}
}

static void *
run_connection(void *arg)
{
	unsigned int random = seed + (unsigned int) (uintptr_t) arg * 7919;

	self.id = (uintptr_t) arg;
	for (long i = 0; i < count; i++)
		do_anything(&random);
	dlock_connection_ended(self.id);
	return NULL;
}

/* ----------------------------------------------------------------
 * A mistake on purpose
 * ----------------------------------------------------------------
 */

static int	mistake;
static atomic_int mistakes;

/*
 * ThreadSanitizer may miss two accesses at the very same moment.  So the threads, each of
 * which gets its number, come one after the other, and neither ends before both are done:
 * relaxed accesses to an atomic put nothing else into order.
 */
static void *
make_mistake(void *arg)
{
	while (atomic_load_explicit(&mistakes, memory_order_relaxed) != *(int *) arg)
		sched_yield();
	mistake++;
	atomic_fetch_add_explicit(&mistakes, 1, memory_order_relaxed);
	while (atomic_load_explicit(&mistakes, memory_order_relaxed) < 2)
		sched_yield();
	return arg;
}

static void
run_mistake(void)
{
	static int	numbers[2] = {0, 1};
	pthread_t	threads[2];

	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, make_mistake, &numbers[i]) != 0)
			fail("pthread_create", "no more threads");
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

int
main(int argc, char **argv)
{
	int			nthreads;
	pthread_t  *threads;
	dlock_answer answer;
	extern mariadb_plugin _maria_plugin_declarations_[];

	if (argc == 1)
	{
		run_mistake();
		return 0;
	}
	if (argc != 5)
		fail("usage", "data_races [SOCKET THREADS COUNT SEED]");
	server_socket = argv[1];
	nthreads = atoi(argv[2]);
	count = atol(argv[3]);
	seed = (unsigned int) strtoul(argv[4], NULL, 10);
	for (int i = 0; i < NAMES; i++)
		snprintf(names[i], sizeof(names[i]), "race-%d", i);
	for (int i = 0; i < OWNERS; i++)
		snprintf(owners[i], sizeof(owners[i]), "owner-%d", i);
	*(void **) &real_sem_clockwait = dlsym(RTLD_NEXT, "sem_clockwait");
	if (real_sem_clockwait == NULL)
		fail("dlsym", dlerror());
	_maria_plugin_declarations_[0].init(NULL);

	threads = calloc((size_t) nthreads, sizeof(pthread_t));
	for (int i = 0; i < nthreads; i++)
		if (pthread_create(&threads[i], NULL, run_connection,
						   (void *) (intptr_t) (i + 1)) != 0)
			fail("pthread_create", "no more threads");
	for (int i = 0; i < 300; i++)
	{
		nanosleep(&(struct timespec) {.tv_nsec = 10000000}, NULL);
		_maria_plugin_declarations_[0].deinit(NULL);
		_maria_plugin_declarations_[0].init(NULL);
	}
	for (int i = 0; i < nthreads; i++)
		pthread_join(threads[i], NULL);
	self.looks = 1000;
	if (!dlock_engine_drain() || !dlock_engine_settle(&answer))
		fail("the end", "there are calls left");
	printf("grants %ld refusals %ld deadlocks %ld cancels %ld undecided %ld\n",
		   (long) grants, (long) refusals, (long) deadlocks, (long) cancels,
		   (long) undecided);
	return 0;
}
