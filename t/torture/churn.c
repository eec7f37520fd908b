/*
 * churn.c
 *	  Very many clients of PostgreSQL that come and go: they connect, take a
 *	  lease, do something with it, and leave, some in the middle of a wait.
 *
 * churn NAME=VALUE...
 *
 *	 connection	what the clients connect to
 *	 control	what observers and cancellers connect to; none: there are none
 *	 clients	how many at once
 *	 names		of leases
 *	 seed		of the clients' choices
 *	 history	file to write; History.pm says what its lines mean
 *	 lives		stop after so many connections; 0: not before SIGTERM
 *	 rest		how long clients rest between leases, at most, in microseconds
 *	 backoff	how long they do, at most, if they are served slowly; 0: as always
 *	 gather		nobody hangs up or leaves before so many have been connected at once
 *	 leave		of so many acquires one is left before its answer; 0: none
 *	 sessions	1: session leases too, which a pooler of transactions cannot have
 *	 again		1: holders enter again, so that leases have several holds; several
 *				permits, which are given back together, are as one here
 *
 * A client that was cut off, or left, in the middle of something may come back
 * by another connection and go on with the lease that it had.  Each attempt at
 * a lease has an owner of its own, as in load.c.  Guarded transactions read a row of
 * table "counter" and write it later, so that its numbers tell whether another holder
 * came in between.
 *
 * One thread serves all clients: each waits for its connection or for a moment.  Each
 * second, and at the end, it prints what was done so far, and by then the history has
 * it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "clients.h"

#define SLOW_US	100000			/* less than any lease lasts */

/* Options, all of them numbers but three. */
static const char *connection_string;
static const char *control_string;
static const char *history_path;
static long clients = 1;
static long names = 1;
static long seed = 1;
static long lives = 0;
static long rest_us = 1000;
static long backoff_us = 0;
static long gather = 0;
static long leave = 0;
static long sessions = 0;
static long again = 1;

static FILE *history;
static int	epoll;
static volatile sig_atomic_t stopping = 0;

/* What was done. */
static long begun = 0;			/* connections of clients */
static long connected = 0;		/* of them now */
static long most = 0;			/* at once */
static long crowded = 0;		/* were refused, since there were too many */
static long left = 0;			/* acquires left before their answers */
static long moved = 0;			/* calls that another server process answered */
static long written = 0;		/* guarded transactions that wrote */
static long perhaps = 0;		/* those whose outcome nobody knows */

#define CHOICES		3			/* names of a claim, which wants one of them */

typedef enum Kind
{
	CLIENT,
	OBSERVER,
	CANCELLER
} Kind;

/* What a client has asked for and waits for. */
typedef enum Step
{
	REST,						/* nothing; it goes on when its alarm rings */
	CONNECT,
	ACQUIRE,
	ENTER,
	RENEW,
	DOWNGRADE,
	OWNER,
	GUARD,
	WRITE,
	ROLLBACK,
	RELEASE,
	RECOVER,					/* is its lost call over? */
	LOOK,
	DISTURB,
	DONE
} Step;

typedef enum Status
{
	ANSWERED,
	FAILED,						/* with an error */
	LOST						/* the connection is gone */
} Status;

typedef struct Reply
{
	Status		status;
	char		code[16];		/* of the error */
	char		value[3][32];	/* of the last row; "-" is NULL */
	char		command[32];	/* the last command's tag */
} Reply;

typedef struct Lease
{
	char		name[16];
	bool		claimed;		/* one of the choices, and it is open which */
	char		choices[CHOICES][16];
	char		owner[64];
	char		request[32];	/* "-": none */
	char		token[32];		/* empty: not granted */
	char		pid[32];		/* of the server process that granted it */
	bool		session;
	char		mode;			/* 'x', 's' or 'p' */
	int			permits;		/* taken and given back at once; 1 in other modes */
	int64_t		ttl_us;
	int64_t		wait_us;
} Lease;

typedef struct Client
{
	Kind		kind;
	int			number;
	unsigned int random;
	PGconn	   *connection;
	bool		is_connected;
	Step		step;
	int64_t		alarm_us;		/* when to go on, or to leave; 0: never */
	long		rest_us;		/* at most, between leases */
	int64_t		attempts;
	Reply		reply;

	/* the attempt at a lease */
	Lease		lease;
	bool		in_doubt;		/* an acquire of it was lost */
	int			tries;			/* of such an acquire */
	int			plans;			/* how much is to be done with it */
	int			holds;
	bool		may_repeat;		/* its last acquire had the request id */

	/* the call that waits for its answer */
	int64_t		start_us;
	int64_t		call_ttl_us;
	int64_t		call_wait_us;
	const char *call_request;
	const char *call_token;
	int64_t		commit_us;		/* of a guarded transaction */
	long		counter;		/* that it has read */
	bool		terminates;		/* a canceller */
	char		look;			/* 'W' or 'L': an observer */
} Client;

static void go_on(Client *client);

static void
fail(const char *what, const char *why)
{
	fprintf(stderr, "churn: %s: %s\n", what, why);
	exit(1);
}

/* Do nothing for up to so long, or in the end not for long. */
static void
rest(Client *client, long at_most_us)
{
	if (stopping && at_most_us > 50000)
		at_most_us = 50000;
	client->step = REST;
	client->alarm_us = now_us() + 1 + dice(&client->random, (int) at_most_us + 1);
}

/* ----------------------------------------------------------------
 * Connections
 * ----------------------------------------------------------------
 */

/* Have epoll tell when there is something to read, or room to write. */
static void
watch(Client *client, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = client};
	int			fd = PQsocket(client->connection);

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0 &&
		(errno != EEXIST || epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) != 0))
		fail("epoll_ctl", strerror(errno));
}

static void
ignore_notice(void *arg, const char *message)
{
	(void) arg;
	(void) message;
}

/* End the connection; "without a word": without telling the server. */
static void
hang_up(Client *client, bool without_a_word)
{
	fprintf(history, "D\t%" PRId64 "\t%d\n", now_us(), client->number);
	if (client->is_connected && client->kind == CLIENT)
		connected--;
	if (without_a_word)
		(void) shutdown(PQsocket(client->connection), SHUT_RDWR);
	PQfinish(client->connection);
	client->connection = NULL;
	client->is_connected = false;
}

/* Whether a client may hang up, or leave a call, if it likes: the others have come. */
static bool
may_leave(void)
{
	return most >= gather;
}

/* It could not connect: the server or the pooler may have too many clients. */
static void
not_connected(Client *client)
{
	static const char *const expected[] = {
		"too many clients", "remaining connection slots",
		"no more connections allowed",	/* PgBouncer has not seen some leave */
		"server login has been failing",	/* PgBouncer, for the same reason */
		"Resource temporarily unavailable"	/* a socket's backlog is full */
	};
	const char *message = PQerrorMessage(client->connection);
	bool		is_expected = false;

	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
		if (strstr(message, expected[i]) != NULL)
			is_expected = true;
	if (!is_expected)
		fprintf(stderr, "churn: could not connect: %s", message);
	crowded++;
	PQfinish(client->connection);
	client->connection = NULL;
	rest(client, 100000);
}

static void
go_on_connecting(Client *client)
{
	switch (PQconnectPoll(client->connection))
	{
		case PGRES_POLLING_READING:
			watch(client, EPOLLIN);
			break;
		case PGRES_POLLING_OK:
			watch(client, EPOLLIN);
			PQsetNoticeProcessor(client->connection, ignore_notice, NULL);
			client->is_connected = true;
			if (client->kind == CLIENT)
			{
				begun++;
				if (++connected > most)
					most = connected;
				if (lives > 0 && begun >= lives)
					stopping = 1;
			}
			go_on(client);
			break;
		case PGRES_POLLING_FAILED:
			not_connected(client);
			break;
		default:
			watch(client, EPOLLOUT);
	}
}

static void
begin_connection(Client *client)
{
	client->connection = PQconnectStart(client->kind == CLIENT ?
										connection_string : control_string);
	if (client->connection == NULL)
		fail("connect", "no memory");
	client->step = CONNECT;
	client->alarm_us = 0;
	if (PQstatus(client->connection) == CONNECTION_BAD)
		not_connected(client);
	else
		watch(client, EPOLLOUT);
}

/* ----------------------------------------------------------------
 * Calls
 * ----------------------------------------------------------------
 */

static void lost(Client *client);

/* Send something; what follows is for answered(). */
static void
ask(Client *client, Step step, const char *format,...)
{
	char		statement[600];
	va_list		arguments;

	va_start(arguments, format);
	if (vsnprintf(statement, sizeof(statement), format, arguments) >=
		(int) sizeof(statement))
		fail("a statement is too long", format);
	va_end(arguments);
	memset(&client->reply, 0, sizeof(client->reply));
	client->step = step;
	client->alarm_us = 0;
	client->start_us = now_us();
	if (PQsendQuery(client->connection, statement) == 0)
		lost(client);
}

/* Write down a call, with what it says of a name. */
static void
note_name(Client *client, const char *op, const char *name, const char *answer)
{
	const Lease *lease = &client->lease;

	fprintf(history, "C\t%" PRId64 "\t%" PRId64 "\t%d\t%s\t%s\t%s\t%c\t%d\t%"
			PRId64 "\t%" PRId64 "\t%s\t%s\t%s\t%d\n",
			client->start_us, now_us() + 1, client->number, op, name, lease->owner,
			lease->mode, lease->claimed ? 1 : lease->mode == 'p' ? PERMITS : 0,
			client->call_ttl_us, client->call_wait_us, client->call_request,
			client->call_token, answer, lease->permits);
}

/* Write down a call, with its answer. */
static void
note_call(Client *client, const char *op, const char *answer)
{
	const Lease *lease = &client->lease;

	if (!lease->claimed)
		note_name(client, op, lease->name, answer);
	else
		for (int i = 0; i < CHOICES; i++)
			note_name(client, "any", lease->choices[i],
					  answer[0] == '?' ||
					  strcmp(client->reply.value[2], lease->choices[i]) == 0 ?
					  answer : "-");
}

/* Write down a call, as its reply says. */
static void
note_reply(Client *client, const char *op)
{
	Reply	   *reply = &client->reply;
	char		answer[40];

	if (reply->status != ANSWERED)
		snprintf(answer, sizeof(answer), "?%s", reply->code);
	else
		snprintf(answer, sizeof(answer), "%s", reply->value[0]);
	note_call(client, op, answer);
}

static void
call(Client *client, int64_t ttl_us, int64_t wait_us, const char *request,
	 const char *token)
{
	client->call_ttl_us = ttl_us;
	client->call_wait_us = wait_us;
	client->call_request = request;
	client->call_token = token;
}

static void
acquire(Client *client, Step step, bool with_request, int64_t wait_us)
{
	Lease	   *lease = &client->lease;
	char		limit[32] = "";
	char		request[48] = "";

	if (lease->permits > 1)
		snprintf(limit, sizeof(limit), ", %d, %d", PERMITS, lease->permits);
	else if (lease->mode == 'p')
		snprintf(limit, sizeof(limit), ", %d", PERMITS);
	if (with_request)
		snprintf(request, sizeof(request), ", '%s'", lease->request);
	call(client, lease->ttl_us, wait_us, with_request ? lease->request : "-", "-");
	if (lease->claimed)
		ask(client, step, "SELECT token, pg_backend_pid(), name FROM"
			" dlock_acquire_any('{%s,%s,%s}', '%s', %.6f, 1, %.6f%s)",
			lease->choices[0], lease->choices[1], lease->choices[2], lease->owner,
			(double) lease->ttl_us / 1e6, (double) wait_us / 1e6, request);
	else
		ask(client, step, "SELECT dlock_acquire%s%s('%s', '%s', %.6f%s, %.6f%s),"
			" pg_backend_pid()",
			lease->session ? "_session" : "", lease->mode == 's' ? "_shared" :
			lease->permits > 1 ? "_permits" : lease->mode == 'p' ? "_permit" : "",
			lease->name, lease->owner, (double) lease->ttl_us / 1e6, limit,
			(double) wait_us / 1e6, request);
	if (step == ACQUIRE && client->step == ACQUIRE && leave > 0 && may_leave() &&
		dice(&client->random, (int) leave) == 0)
		client->alarm_us = now_us() + dice(&client->random, 500000);
}

/* An attempt at another lease. */
static void
attempt(Client *client)
{
	static const int64_t ttls_us[] = {200000, 500000, 2000000, 2000000};
	static const int64_t waits_us[] = {0, 0, 20000, 300000, 1000000, -1000000};
	Lease	   *lease = &client->lease;
	int			name = dice(&client->random, (int) names);
	int			kind = dice(&client->random, 20);

	/* some names are mostly semaphores, or there would never be enough permits */
	if (name % 4 == 3 && dice(&client->random, 10) > 0)
		kind = 19;
	client->attempts++;
	client->in_doubt = false;
	client->tries = 0;
	client->holds = 1;
	client->plans = dice(&client->random, 4);
	*lease = (Lease) {.request = "-"};
	snprintf(lease->name, sizeof(lease->name), "n%d", name);
	snprintf(lease->owner, sizeof(lease->owner), "s%ld.%d.%" PRId64, seed,
			 client->number, client->attempts);
	lease->session = sessions && kind < 4;
	lease->mode = kind == 0 || (kind >= 12 && kind < 15) ? 's' : kind < 12 ? 'x' : 'p';
	lease->permits = lease->mode == 'p' ? 1 + dice(&client->random, PERMITS) : 1;
	lease->claimed = !lease->session && kind >= 10 && kind < 12 && names >= CHOICES;
	for (int i = 0; lease->claimed && i < CHOICES; i++)
		snprintf(lease->choices[i], sizeof(lease->choices[i]), "n%ld",
				 (name + i) % names);
	lease->ttl_us = ttls_us[dice(&client->random, 4)];
	lease->wait_us = waits_us[dice(&client->random, 6)];
	if (dice(&client->random, 2) == 0 && !lease->session)
		snprintf(lease->request, sizeof(lease->request), "r%" PRId64,
				 client->attempts);
	acquire(client, ACQUIRE, lease->request[0] != '-', lease->wait_us);
}

/* Make a call that may name the token: the function, and what is before that. */
static void
change(Client *client, Step step, const char *function, int64_t ttl_us)
{
	Lease	   *lease = &client->lease;
	char		ttl[32] = "";
	char		holds[16] = "";
	bool		with_token = dice(&client->random, 2) == 0;

	if (ttl_us > 0)
		snprintf(ttl, sizeof(ttl), ", %.6f", (double) ttl_us / 1e6);
	if (step == RELEASE && lease->permits > 1)
		snprintf(holds, sizeof(holds), ", %d", lease->permits);
	call(client, ttl_us, 0, "-", with_token ? lease->token : "-");
	ask(client, step, "SELECT dlock_%s('%s', '%s'%s%s%s%s), pg_backend_pid()",
		function, lease->name, lease->owner, ttl,
		with_token || holds[0] != 0 ? ", " : "",
		with_token ? lease->token : holds[0] != 0 ? "NULL" : "", holds);
}

/* The attempt is over; another one may have another connection. */
static void
end_attempt(Client *client)
{
	client->lease.token[0] = 0;
	client->in_doubt = false;
	if (client->connection != NULL && may_leave() && dice(&client->random, 2) == 0)
		hang_up(client, dice(&client->random, 2) == 0);
	rest(client, client->rest_us);
}

/* After a step with a lease; sometimes the connection ends. */
static void
keep(Client *client)
{
	if (client->connection != NULL && may_leave() && dice(&client->random, 10) == 0)
		hang_up(client, dice(&client->random, 2) == 0);
	/* a session lease went with its connection */
	if (client->connection == NULL && client->lease.session)
		end_attempt(client);
	else
		rest(client, rest_us / 20);
}

/* Nobody knows whether the acquire was granted; ask again, or give up. */
static void
doubt(Client *client)
{
	if (client->lease.request[0] == '-' || client->tries++ >= 3)
		end_attempt(client);
	else
	{
		client->in_doubt = true;
		rest(client, rest_us / 20);
	}
}

/* Do what comes next with the lease. */
static void
use(Client *client)
{
	Lease	   *lease = &client->lease;

	if (stopping)
		client->plans = 0;
	if (client->plans-- <= 0)
	{
		/* some are left to their deadlines, or to the end of the session */
		if (!stopping && dice(&client->random, 16) == 0)
		{
			if (lease->session)
				hang_up(client, true);
			end_attempt(client);
		}
		else
			change(client, RELEASE, "release", 0);
		return;
	}
	switch (dice(&client->random, 6))
	{
		case 0:
			change(client, RENEW, "renew", 200000 + dice(&client->random, 2000000));
			break;
		case 1:
			if (!again || lease->mode == 'p')
				rest(client, rest_us / 20);
			else
				acquire(client, ENTER, client->may_repeat && dice(&client->random, 2) == 0, 0);
			break;
		case 2:
			call(client, 0, 0, "-", "-");
			ask(client, OWNER, "SELECT dlock_owner('%s'), pg_backend_pid()",
				lease->name);
			break;
		case 3:
			if (lease->mode != 'x')
				rest(client, rest_us / 20);
			else
				ask(client, GUARD, "BEGIN; SELECT dlock_guard('%s', '%s', %s);"
					" SELECT n, pg_backend_pid() FROM counter WHERE name = '%s'",
					lease->name, lease->owner, lease->token, lease->name);
			break;
		case 4:
			rest(client, dice(&client->random, 20) == 0 ? 250000 : 5000);
			break;
		case 5:
			if (lease->mode != 'x')
				rest(client, rest_us / 20);
			else
				change(client, DOWNGRADE, "downgrade", 0);
			break;
	}
}

/* ----------------------------------------------------------------
 * Answers
 * ----------------------------------------------------------------
 */

/* A guarded transaction has ended; one line stands for all of it. */
static void
note_guard(Client *client, int64_t start_us, const char *answer)
{
	client->start_us = start_us;
	call(client, client->commit_us, 0, "-", client->lease.token);
	note_call(client, "guard", answer);
}

/* Whether another server process answered than the one that granted. */
static void
note_process(Client *client)
{
	if (client->reply.status == ANSWERED &&
		strcmp(client->reply.value[1], client->lease.pid) != 0)
		moved++;
}

static void
acquired(Client *client)
{
	Reply	   *reply = &client->reply;
	Lease	   *lease = &client->lease;

	note_reply(client, lease->session ? "session" : "acquire");
	if (reply->status != ANSWERED)
		doubt(client);
	else if (reply->value[0][0] == '-')
	{
		/* a refused client has nothing to give back */
		end_attempt(client);
	}
	else
	{
		strcpy(lease->token, reply->value[0]);
		strcpy(lease->pid, reply->value[1]);
		if (lease->claimed)
			strcpy(lease->name, reply->value[2]);
		lease->claimed = false;
		client->in_doubt = false;
		client->may_repeat = lease->request[0] != '-';
		keep(client);
	}
}

static void
entered(Client *client)
{
	Reply	   *reply = &client->reply;
	Lease	   *lease = &client->lease;
	bool		repeats = client->call_request[0] != '-';

	note_reply(client, lease->session ? "session" : "acquire");
	note_process(client);
	client->may_repeat = client->may_repeat && repeats && reply->status == ANSWERED;
	if (reply->status == ANSWERED && reply->value[0][0] == '-')
	{
		/* it was over, and another owner has it */
		end_attempt(client);
		return;
	}
	if (reply->status == ANSWERED && strcmp(reply->value[0], lease->token) == 0)
		client->holds += repeats ? 0 : 1;
	else if (reply->status == ANSWERED)
	{
		/* it was over, and is another now */
		strcpy(lease->token, reply->value[0]);
		client->holds = 1;
	}
	keep(client);
}

static void
renewed(Client *client)
{
	note_reply(client, "renew");
	note_process(client);
	if (client->reply.status == ANSWERED && client->reply.value[0][0] != 't')
		end_attempt(client);
	else
		keep(client);
}

static void
downgraded(Client *client)
{
	note_reply(client, "downgrade");
	note_process(client);
	/* one more shared hold is as good if the lease is still exclusive */
	client->lease.mode = 's';
	if (client->reply.status == ANSWERED && client->reply.value[0][0] != 't')
		end_attempt(client);
	else
		keep(client);
}

static void
released(Client *client)
{
	note_reply(client, "release");
	note_process(client);
	if (--client->holds <= 0 ||
		(client->reply.status == ANSWERED && client->reply.value[0][0] != 't'))
		end_attempt(client);
	else
		keep(client);
}

static void
guarded(Client *client)
{
	Reply	   *reply = &client->reply;
	char		answer[24];

	client->commit_us = 0;
	if (reply->status == ANSWERED)
	{
		/* WRITE comes when the alarm rings */
		note_process(client);
		client->counter = atol(reply->value[0]);
		client->commit_us = client->start_us;	/* of the transaction */
		client->step = WRITE;
		client->alarm_us = now_us() + 1 +
			dice(&client->random, dice(&client->random, 20) == 0 ? 250000 : 5000);
		return;
	}
	snprintf(answer, sizeof(answer), "?%s", reply->code);
	note_guard(client, client->start_us,
			   strcmp(reply->code, "55L01") == 0 ? "f" : answer);
	if (client->connection != NULL)
		ask(client, ROLLBACK, "ROLLBACK");
	else
		keep(client);
}

/* In a guarded transaction: write what was read a while ago, and one more. */
static void
write_counter(Client *client)
{
	int64_t		begin_us = client->commit_us;

	client->commit_us = now_us();
	ask(client, WRITE, "UPDATE counter SET n = %ld WHERE name = '%s'; COMMIT",
		client->counter + 1, client->lease.name);
	/* the call is the transaction */
	if (client->step == WRITE)
		client->start_us = begin_us;
}

static void
wrote(Client *client)
{
	Reply	   *reply = &client->reply;
	char		answer[24];

	if (reply->status == ANSWERED)
	{
		if (strcmp(reply->command, "COMMIT") != 0)
			fail("COMMIT", reply->command);
		written++;
		note_guard(client, client->start_us, "t");
		keep(client);
		return;
	}
	perhaps++;
	snprintf(answer, sizeof(answer), "?%s", reply->code);
	note_guard(client, client->start_us, answer);
	if (client->connection != NULL)
		ask(client, ROLLBACK, "ROLLBACK");
	else
		keep(client);
}

static void
recovered(Client *client)
{
	if (client->reply.status == ANSWERED &&
		strcmp(client->reply.value[0], "0") == 0)
		acquire(client, ACQUIRE, true, client->lease.wait_us);
	else
		rest(client, 20000);
}

/* An answer for an observer or a canceller. */
static void
watched(Client *client)
{
	if (client->step == DISTURB && client->reply.status == ANSWERED)
		fprintf(history, "X\t%" PRId64 "\t%" PRId64 "\t%s\n", client->start_us,
				now_us() + 1, client->terminates ? "terminate" : "cancel");
	rest(client, client->kind == CANCELLER ? 200000 : 80000);
}

/*
 * A client that is served slowly comes back later.  On any machine enough clients would
 * ask for more than it can do; then the line for a connection is longer than a lease, and
 * holders do nothing with their leases but lose them.
 */
static void
back_off(Client *client)
{
	/* a call that may wait for a lease says nothing */
	if (backoff_us == 0 || client->call_wait_us != 0)
		return;
	if (now_us() - client->start_us < SLOW_US)
		client->rest_us -= client->rest_us / 4;
	else
		client->rest_us *= 2;
	if (client->rest_us > backoff_us)
		client->rest_us = backoff_us;
	if (client->rest_us < rest_us)
		client->rest_us = rest_us;
}

static void
answered(Client *client)
{
	Step		step = client->step;

	back_off(client);
	client->alarm_us = 0;
	if (client->reply.status == LOST)
		hang_up(client, false);
	switch (step)
	{
		case ACQUIRE:
			acquired(client);
			break;
		case ENTER:
			entered(client);
			break;
		case RENEW:
			renewed(client);
			break;
		case DOWNGRADE:
			downgraded(client);
			break;
		case OWNER:
			note_reply(client, "owner");
			keep(client);
			break;
		case GUARD:
			guarded(client);
			break;
		case WRITE:
			wrote(client);
			break;
		case RELEASE:
			released(client);
			break;
		case RECOVER:
			recovered(client);
			break;
		case LOOK:
		case DISTURB:
			watched(client);
			break;
		default:
			keep(client);
	}
}

/* The connection is gone, whatever was asked. */
static void
lost(Client *client)
{
	client->reply.status = LOST;
	if (client->reply.code[0] == 0)
		strcpy(client->reply.code, "lost");
	answered(client);
}

/* Write down what a view shows: all of it in one line. */
static void
note_look(Client *client, const PGresult *result)
{
	fprintf(history, "%c\t%" PRId64 "\t%" PRId64 "\t%d", client->look,
			client->start_us, now_us() + 1, client->number);
	for (int r = 0; r < PQntuples(result); r++)
		for (int c = 0; c < PQnfields(result); c++)
			fprintf(history, "%c%s", c == 0 ? '\t' : ' ',
					PQgetisnull(result, r, c) ? "-" : PQgetvalue(result, r, c));
	fputc('\n', history);
}

static void
put_value(Reply *reply, int column, const char *value)
{
	if (strlen(value) >= sizeof(reply->value[column]))
		fail("a value is longer than expected", value);
	strcpy(reply->value[column], value);
}

static void
collect(Client *client, const PGresult *result)
{
	Reply	   *reply = &client->reply;
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	switch (PQresultStatus(result))
	{
		case PGRES_TUPLES_OK:
			if (client->step == LOOK)
				note_look(client, result);
			else
				for (int c = 0; c < 3 && c < PQnfields(result); c++)
					put_value(reply, c,
							  PQntuples(result) == 0 || PQgetisnull(result, 0, c) ?
							  "-" : PQgetvalue(result, 0, c));
			break;
		case PGRES_COMMAND_OK:
			snprintf(reply->command, sizeof(reply->command), "%s",
					 PQcmdStatus((PGresult *) result));
			break;
		default:
			reply->status = FAILED;
			snprintf(reply->code, sizeof(reply->code), "%s",
					 code == NULL ? "lost" : code);
	}
}

/* Something has come by the connection. */
static void
react(Client *client)
{
	PGresult   *result;

	if (client->connection == NULL)
		return;
	if (client->step == CONNECT)
	{
		go_on_connecting(client);
		return;
	}
	if (PQconsumeInput(client->connection) == 0)
	{
		/* a guarded transaction that rests was never committed */
		if (client->step == WRITE && client->alarm_us != 0)
			client->step = GUARD;
		lost(client);
		return;
	}
	if (PQisBusy(client->connection))
		return;
	if (client->step == REST || (client->step == WRITE && client->alarm_us != 0))
		return;					/* a message that nobody asked for */
	while (!PQisBusy(client->connection))
	{
		result = PQgetResult(client->connection);
		if (result == NULL)
		{
			if (PQstatus(client->connection) == CONNECTION_BAD)
				lost(client);
			else
				answered(client);
			return;
		}
		collect(client, result);
		PQclear(result);
	}
}

/* ----------------------------------------------------------------
 * All of them
 * ----------------------------------------------------------------
 */

static void
go_on_watching(Client *client)
{
	if (client->kind == OBSERVER)
	{
		client->look = dice(&client->random, 5) == 0 ? 'L' : 'W';
		ask(client, LOOK, client->look == 'W' ?
			"SELECT name, owner, position FROM dlock.waiters" :
			"SELECT name, owner, mode, token, CASE WHEN expires_at IS NULL"
			" OR expires_at > clock_timestamp() THEN 'live' ELSE 'over' END"
			" FROM dlock.locks");
	}
	else
	{
		client->terminates = dice(&client->random, 10) == 0;
		ask(client, DISTURB, "SELECT pg_%s_backend(pid) FROM"
			" (SELECT pid FROM dlock.waiters ORDER BY random() LIMIT 1) w",
			client->terminates ? "terminate" : "cancel");
	}
}

/* What comes next. */
static void
go_on(Client *client)
{
	bool		may_hold = client->kind == CLIENT && client->lease.token[0] != 0;

	if (stopping && !may_hold)
	{
		if (client->connection != NULL)
			hang_up(client, dice(&client->random, 2) == 0);
		client->step = DONE;
		client->alarm_us = 0;
	}
	else if (client->connection == NULL)
		begin_connection(client);
	else if (client->kind != CLIENT)
		go_on_watching(client);
	else if (client->in_doubt)
		ask(client, RECOVER,
			"SELECT count(*) FROM dlock.waiters WHERE owner = '%s'",
			client->lease.owner);
	else if (client->lease.token[0] == 0)
		attempt(client);
	else
		use(client);
}

/* The alarm rings: time to go on, or to leave a call that is not answered. */
static void
ring(Client *client)
{
	client->alarm_us = 0;
	if (client->step == REST)
		go_on(client);
	else if (client->step == WRITE)
		write_counter(client);
	else
	{
		left++;
		note_call(client, client->lease.session ? "session" : "acquire", "?left");
		hang_up(client, dice(&client->random, 2) == 0);
		doubt(client);
	}
}

static void
stop(int signal_number)
{
	(void) signal_number;
	stopping = 1;
}

static void
read_option(const char *option)
{
	static const struct
	{
		const char *name;
		const char **text;
		long	   *number;
	}			options[] = {
		{"connection=", &connection_string, NULL},
		{"control=", &control_string, NULL},
		{"history=", &history_path, NULL},
		{"clients=", NULL, &clients},
		{"names=", NULL, &names},
		{"seed=", NULL, &seed},
		{"lives=", NULL, &lives},
		{"rest=", NULL, &rest_us},
		{"backoff=", NULL, &backoff_us},
		{"gather=", NULL, &gather},
		{"leave=", NULL, &leave},
		{"sessions=", NULL, &sessions},
		{"again=", NULL, &again},
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
	{
		size_t		length = strlen(options[i].name);

		if (strncmp(option, options[i].name, length) != 0)
			continue;
		if (options[i].text != NULL)
			*options[i].text = option + length;
		else
			*options[i].number = atol(option + length);
		return;
	}
	fail("there is no such option", option);
}

static Client *
make_clients(long count)
{
	Client	   *all = calloc((size_t) count, sizeof(Client));

	if (all == NULL)
		fail("clients", "no memory");
	for (long i = 0; i < count; i++)
	{
		all[i].kind = i < clients ? CLIENT : i == clients ? OBSERVER : CANCELLER;
		all[i].number = (int) i + 1;
		all[i].rest_us = rest_us;
		all[i].random = (unsigned int) (seed + (i + 1) * 7919);
		rest(&all[i], 100000);
	}
	return all;
}

/* Print what was done so far; of what is printed the last counts. */
static void
report(void)
{
	if (fflush(history) != 0)
		fail("history", "could not be written");
	printf("begun %ld\nmost %ld\ncrowded %ld\nleft %ld\nmoved %ld\nwritten %ld\n"
		   "perhaps %ld\n", begun, most, crowded, left, moved, written, perhaps);
	fflush(stdout);
}

/* Serve all clients until all are done. */
static void
serve(Client *all, long count)
{
	struct epoll_event events[256];
	bool		is_anybody = true;
	bool		is_told = false;	/* to stop */
	int64_t		report_us = 0;

	while (is_anybody)
	{
		int64_t		now = now_us();
		int64_t		next_us = now + 100000;
		bool		is_stopping = stopping;
		int			found;

		for (long i = 0; is_stopping && !is_told && i < count; i++)
			if (all[i].step == REST)
				all[i].alarm_us = now;
		is_told = is_stopping;
		if (now >= report_us)
		{
			report();
			report_us = now + 1000000;
		}
		is_anybody = false;
		for (long i = 0; i < count; i++)
		{
			Client	   *client = &all[i];

			if (client->alarm_us != 0 && client->alarm_us <= now)
				ring(client);
			if (client->alarm_us != 0 && client->alarm_us < next_us)
				next_us = client->alarm_us;
			is_anybody |= client->step != DONE;
		}
		next_us -= now_us();
		found = epoll_wait(epoll, events, 256,
						   next_us <= 0 ? 0 : (int) (next_us / 1000 + 1));
		if (found < 0 && errno != EINTR)
			fail("epoll_wait", strerror(errno));
		for (int i = 0; i < found; i++)
			react(events[i].data.ptr);
	}
}

int
main(int argc, char **argv)
{
	struct rlimit files;
	long		count;

	for (int i = 1; i < argc; i++)
		read_option(argv[i]);
	if (connection_string == NULL || history_path == NULL || clients < 1 || names < 1)
		fail("usage", "churn connection=... history=... NAME=VALUE...");
	count = clients + (control_string != NULL ? 2 : 0);
	if (getrlimit(RLIMIT_NOFILE, &files) != 0)
		fail("getrlimit", strerror(errno));
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur < (rlim_t) count + 20)
		fail("clients", "not enough file descriptors for so many");
	history = fopen(history_path, "w");
	epoll = epoll_create1(0);
	if (history == NULL || epoll < 0)
		fail("files", strerror(errno));
	signal(SIGTERM, stop);
	/* also when the test that started us dies */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGPIPE, SIG_IGN);
	serve(make_clients(count), count);
	report();
	if (fclose(history) != 0)
		fail("history", "could not be written");
	return 0;
}
