/*
 * client.c
 *	  The client library for C, driven by lines, for t/clients/c.pl.
 *
 * Reads commands from standard input, one a line, words separated by blanks, and
 * writes lines, each beginning with the microseconds of the library's clock.  All
 * leases and the commands are driven by one poll().  In a word, %XX is a byte.
 *
 *	new ID KEY=VALUE...		a lease; url=, name= (repeated for several), owner=,
 *							request=, mode=shared|permit, limit=, permits=, and
 *							ttl=, wait=, connect_timeout=, keep_at_least= as
 *							durations, logged_in=1
 *	start ID, release ID, free ID
 *	acquire ID				in a thread of its own, until it is freed: "ID acquired 0|1"
 *	show ID					"ID is STATE held 0|1 owner OWNER request REQUEST"
 *	connect URL				another server for the session
 *	beat ID, unbeat ID		give the lease to a thread, and take it back
 *	client KEY=VALUE...		a client: url=, owner=; "new" with client=1 makes its leases
 *	threads, unthread		let threads drive the client, and stop them
 *	many PREFIX N KEY=VALUE...	acquire N leases of the client, one after the other:
 *							"many N", of those that are held
 *	many-held PREFIX		"many-held N"
 *	many-end PREFIX			release and free them: "many-end N" of those freed
 *	close, end-client, free-client	"closed" after the second
 *	call FUNCTION ARG...	t:TEXT, i:INTEGER, d:DURATION, n, T:A,B,... I:1,2,...
 *	query SQL				the rest of the line
 *	polls					"polls N": how often there was something to do
 *	drop					close the session
 *	end						of the program; end of file too
 *
 * What leases tell is "ID held TOKEN...", "ID renewed", "ID trouble ERROR", and so
 * on; ID done after the last.  A call is answered with "row VALUE..." for each row
 * and "answer", or "error ERROR".  ERROR is class, SQLSTATE, number, "denied" and
 * "disconnected" as 1 or 0, and the message.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE				/* RTLD_NEXT */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dlock.h"

#define LEASES_MAX		1100
#define WORDS_MAX		220
#define ID_SIZE			32

/* How long a call may take: a hang is an error, and no time is asserted on. */
#define PATIENCE_US		INT64_C(180000000)

static struct
{
	char		id[ID_SIZE];
	dlock_lease *lease;
	dlock_heartbeat *heartbeat;
	bool		acquires;		/* in the thread */
	pthread_t	thread;
	size_t		nnames;
	bool		told_done;
}			leases[LEASES_MAX];
static dlock_session *session;
static dlock_client *client;
static bool has_threads;
static unsigned long polls;		/* how often await() has returned */

/*
 * A host that has two addresses, of which the first is silent, and one that has three.
 * The client libraries call this in place of the system's.
 */
int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
			struct addrinfo **result)
{
	static const char *const addresses[] = {"127.0.0.1", "127.0.0.2", "127.0.0.3"};
	int			(*real) (const char *, const char *, const struct addrinfo *,
						 struct addrinfo **);
	struct addrinfo *all = NULL;
	int			n = node == NULL ? 0 : strcmp(node, "two.test") == 0 ? 2 :
		strcmp(node, "three.test") == 0 ? 3 : 0;

	*(void **) &real = dlsym(RTLD_NEXT, "getaddrinfo");
	if (n == 0)
		return real(node, service, hints, result);
	for (int i = 0; i < n; i++)
	{
		struct addrinfo *one;
		int			failed = real(addresses[i], service, hints, &one);

		if (failed != 0)
			return failed;
		for (struct addrinfo *last = one;; last = last->ai_next)
			if (last->ai_next == NULL)
			{
				last->ai_next = all;
				break;
			}
		all = one;
	}
	*result = all;
	return 0;
}

static void __attribute__((format(printf, 1, 2)))
say(const char *format,...)
{
	va_list		arguments;

	/* heartbeats have something to say, too */
	flockfile(stdout);
	printf("%" PRId64 " ", dlock_now_us());
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
	funlockfile(stdout);
}

static void
say_error(const char *what, const dlock_error *error)
{
	say("%s %s %s %u %d %d %s", what, dlock_error_class_name(error->error_class),
		error->sqlstate[0] != '\0' ? error->sqlstate : "-", error->number,
		error->denied, error->disconnected, error->message);
}

/* Decode %XX, in place. */
static void
decode(char *word)
{
	char	   *to = word;

	for (; *word != '\0'; word++)
	{
		unsigned int byte;

		if (*word == '%' && sscanf(word + 1, "%2x", &byte) == 1)
		{
			*to++ = (char) byte;
			word += 2;
		}
		else
			*to++ = *word;
	}
	*to = '\0';
}

static int64_t
duration(const char *text)
{
	int64_t		us;

	if (!dlock_parse_duration(text, &us))
	{
		fprintf(stderr, "client: \"%s\" is not a duration\n", text);
		exit(2);
	}
	return us;
}

/* Find a lease by its id, or a free place. */
static size_t
find(const char *id)
{
	size_t		place = LEASES_MAX;

	if (id == NULL)
	{
		fprintf(stderr, "client: which lease?\n");
		exit(2);
	}
	for (size_t i = LEASES_MAX; i-- > 0;)
		if (strcmp(leases[i].id, id) == 0)
			return i;
		else if (leases[i].id[0] == '\0')
			place = i;
	if (place == LEASES_MAX)
	{
		fprintf(stderr, "client: too many leases\n");
		exit(2);
	}
	return place;
}

static void
new_lease(char **words, size_t n)
{
	const char *names[WORDS_MAX];
	dlock_lease_options o = {.names = names};
	size_t		place = find(words[1]);
	const char *url = NULL;
	bool		is_of_client = false;
	bool		logged_in = false;
	dlock_error error;

	for (size_t i = 2; i < n; i++)
	{
		char	   *value = strchr(words[i], '=');

		if (value == NULL)
			continue;
		*value++ = '\0';
		decode(value);
		if (strcmp(words[i], "url") == 0)
			url = value;
		else if (strcmp(words[i], "client") == 0)
			is_of_client = true;
		else if (strcmp(words[i], "name") == 0)
			names[o.nnames++] = value;
		else if (strcmp(words[i], "owner") == 0)
			o.owner = value;
		else if (strcmp(words[i], "request") == 0)
			o.request = value;
		else if (strcmp(words[i], "mode") == 0)
			o.mode = value[0] == 's' ? DLOCK_SHARED : DLOCK_PERMIT;
		else if (strcmp(words[i], "limit") == 0)
			o.limit = atoi(value);
		else if (strcmp(words[i], "permits") == 0)
			o.permits = atoi(value);
		else if (strcmp(words[i], "ttl") == 0)
			o.ttl_us = duration(value);
		else if (strcmp(words[i], "wait") == 0)
			o.wait_us = duration(value);
		else if (strcmp(words[i], "connect_timeout") == 0)
			o.connect_timeout_us = duration(value);
		else if (strcmp(words[i], "keep_at_least") == 0)
			o.keep_at_least_us = duration(value);
		else if (strcmp(words[i], "logged_in") == 0)
			logged_in = value[0] == '1';
	}
	leases[place].lease = is_of_client ? dlock_client_lease(client, &o, &error) :
		dlock_lease_new(url, &o, &error);
	if (leases[place].lease == NULL)
	{
		say_error("error", &error);
		return;
	}
	if (logged_in)
		dlock_lease_was_logged_in(leases[place].lease);
	snprintf(leases[place].id, ID_SIZE, "%s", words[1]);
	leases[place].nnames = o.nnames;
	leases[place].told_done = false;
}

static void *
acquire(void *pointer)
{
	size_t		place = (size_t) (uintptr_t) pointer;
	dlock_error error;
	bool		is_held = dlock_lease_acquire(leases[place].lease, &error);

	say("%s acquired %d %s", leases[place].id, is_held,
		is_held ? "" : dlock_error_class_name(error.error_class));
	return NULL;
}

static void
start_acquire(size_t place)
{
	leases[place].acquires = true;
	if (pthread_create(&leases[place].thread, NULL, acquire,
					   (void *) (uintptr_t) place) != 0)
	{
		fprintf(stderr, "client: no thread\n");
		exit(2);
	}
}

static void
free_lease(size_t place)
{
	if (leases[place].acquires)
		pthread_join(leases[place].thread, NULL);
	leases[place].acquires = false;
	dlock_heartbeat_stop(leases[place].heartbeat);
	leases[place].heartbeat = NULL;
	dlock_lease_free(leases[place].lease);
	leases[place].lease = NULL;
	leases[place].id[0] = '\0';
}

static void
show(size_t place)
{
	static const char *const states[] = {
		"new", "waiting", "held", "lost", "ended",
	};
	const dlock_lease *lease = leases[place].lease;

	say("%s is %s held %d owner %s request %s lost_at %" PRId64 " deadline %" PRId64,
		leases[place].id, states[dlock_lease_state_now(lease)],
		dlock_lease_is_held(lease), dlock_lease_owner(lease),
		dlock_lease_request(lease), dlock_lease_lost_at_us(lease),
		dlock_lease_deadline_us(lease));
}

/* Say what a lease has told. */
static void
tell(size_t place, const dlock_event *event)
{
	static const char *const kinds[] = {
		[DLOCK_EVENT_HELD] = "held", [DLOCK_EVENT_RENEWED] = "renewed",
		[DLOCK_EVENT_TROUBLE] = "trouble", [DLOCK_EVENT_LOST] = "lost",
		[DLOCK_EVENT_REFUSED] = "refused", [DLOCK_EVENT_FAILED] = "failed",
		[DLOCK_EVENT_RELEASED] = "released",
	};
	char		text[4096];
	int			length = snprintf(text, sizeof(text), "%s %s", leases[place].id,
								  kinds[event->kind]);

	switch (event->kind)
	{
		case DLOCK_EVENT_HELD:
			for (size_t i = 0; i < leases[place].nnames; i++)
				length += snprintf(text + length, sizeof(text) - (size_t) length,
								   " %" PRId64,
								   dlock_lease_token(leases[place].lease, i));
			say("%s", text);
			break;
		case DLOCK_EVENT_RENEWED:
			say("%s lost_at %" PRId64, text, event->lost_at_us);
			break;
		case DLOCK_EVENT_RELEASED:
			snprintf(text + length, sizeof(text) - (size_t) length, " %d",
					 event->given_back);
			say_error(text, &event->error);
			break;
		default:
			say_error(text, &event->error);
			break;
	}
}

/* Say what the thread of a lease has been told. */
static void
tell_beat(const dlock_event *event, void *place)
{
	size_t		i = (size_t) ((char *) place - (char *) leases) / sizeof(leases[0]);

	tell(i, event);
}

/* Say what a client has told. */
static void
tell_client(dlock_lease *lease, const dlock_event *event, void *argument)
{
	(void) argument;
	if (lease == NULL)
		say_error("client trouble", &event->error);
	for (size_t i = 0; i < LEASES_MAX; i++)
		if (lease != NULL && leases[i].lease == lease)
			tell(i, event);
}

static void
new_client(char **words, size_t n)
{
	const char *url = NULL;
	const char *owner = NULL;
	dlock_error error;

	for (size_t i = 1; i < n; i++)
	{
		decode(words[i]);
		if (strncmp(words[i], "url=", 4) == 0)
			url = words[i] + 4;
		else if (strncmp(words[i], "owner=", 6) == 0)
			owner = words[i] + 6;
	}
	client = dlock_client_new(url, owner, &error);
	if (client == NULL)
		say_error("error", &error);
	else
		say("client %s", dlock_client_owner(client));
}

static void
acquire_many(char **words, size_t n)
{
	int			count = atoi(words[2]);
	int			held = 0;

	for (int i = 1; i <= count; i++)
	{
		char		id[ID_SIZE];
		char		name[ID_SIZE + 10];
		char		ttl[ID_SIZE];
		char		of_client[] = "client=1";
		char	   *more[] = {words[0], id, name, of_client, ttl};
		dlock_error error;

		snprintf(id, sizeof(id), "%s%d", words[1], i);
		snprintf(name, sizeof(name), "name=%s%d", words[1], i);
		snprintf(ttl, sizeof(ttl), "%s", n > 3 ? words[3] : "ttl=30");
		new_lease(more, 5);
		if (dlock_lease_acquire(leases[find(id)].lease, &error))
			held++;
		else
			say_error("error", &error);
	}
	say("many %d", held);
}

static void
look_at_many(const char *prefix, bool ends)
{
	int			count = 0;

	for (size_t i = 0; i < LEASES_MAX; i++)
		if (strncmp(leases[i].id, prefix, strlen(prefix)) == 0 && leases[i].lease != NULL)
		{
			count += ends || dlock_lease_is_held(leases[i].lease);
			if (ends)
				dlock_lease_release(leases[i].lease);
		}
	for (size_t i = 0; ends && i < LEASES_MAX; i++)
		if (strncmp(leases[i].id, prefix, strlen(prefix)) == 0 && leases[i].lease != NULL)
		{
			dlock_lease_end(leases[i].lease);
			free_lease(i);
		}
	say("many-%s %d", ends ? "end" : "held", count);
}

/* Do what a line says about the client; false if it says something else. */
static bool
obey_for_client(char **words, size_t n)
{
	dlock_error error;

	if (strcmp(words[0], "client") == 0)
		new_client(words, n);
	else if (strcmp(words[0], "threads") == 0)
	{
		has_threads = dlock_client_start(client, tell_client, NULL, &error);
		if (!has_threads)
			say_error("error", &error);
	}
	else if (strcmp(words[0], "unthread") == 0)
	{
		dlock_client_stop(client);
		has_threads = false;
	}
	else if (strcmp(words[0], "many") == 0 && n > 2)
		acquire_many(words, n);
	else if (strcmp(words[0], "many-held") == 0 && n > 1)
		look_at_many(words[1], false);
	else if (strcmp(words[0], "many-end") == 0 && n > 1)
		look_at_many(words[1], true);
	else if (strcmp(words[0], "close") == 0)
		dlock_client_close(client);
	else if (strcmp(words[0], "end-client") == 0)
	{
		dlock_client_end(client);
		has_threads = false;
		say("closed");
	}
	else if (strcmp(words[0], "free-client") == 0)
	{
		dlock_client_free(client);
		client = NULL;
	}
	else
		return false;
	return true;
}

static void
start_beat(size_t place)
{
	dlock_error error;

	leases[place].heartbeat = dlock_heartbeat_start(leases[place].lease, tell_beat,
													&leases[place], &error);
	if (leases[place].heartbeat == NULL)
		say_error("error", &error);
	else
		say("%s beat %d", leases[place].id,
			dlock_heartbeat_is_held(leases[place].heartbeat));
}

static void
stop_beat(size_t place)
{
	say("%s unbeat %d", leases[place].id,
		dlock_heartbeat_is_held(leases[place].heartbeat));
	dlock_heartbeat_stop(leases[place].heartbeat);
	leases[place].heartbeat = NULL;
}

/* Make an argument of a word; lists go into the arrays that are given. */
static dlock_arg
argument(char *word, const char **texts, int64_t *integers)
{
	size_t		n = 0;
	char	   *rest;

	if (word[0] == 'n')
		return DLOCK_NULL;
	if (word[0] == 'i')
		return DLOCK_INTEGER(strtoll(word + 2, NULL, 10));
	if (word[0] == 'd')
		return DLOCK_DURATION(duration(word + 2));
	if (word[0] == 't')
	{
		decode(word + 2);
		return DLOCK_TEXT(word + 2);
	}
	for (char *element = strtok_r(word + 2, ",", &rest); element != NULL;
		 element = strtok_r(NULL, ",", &rest), n++)
		if (word[0] == 'T')
		{
			decode(element);
			texts[n] = element;
		}
		else
			integers[n] = strtoll(element, NULL, 10);
	return word[0] == 'T' ? DLOCK_TEXTS(texts, n) : DLOCK_INTEGERS(integers, n);
}

/* Say what a call, begun or not, has come to. */
static void
answer(bool begun)
{
	if (!begun || !dlock_session_finish(session))
	{
		say_error("error", dlock_session_error(session));
		return;
	}
	for (size_t row = 0; row < dlock_session_rows(session); row++)
	{
		char		text[8192] = "row";
		size_t		length = 3;

		for (size_t column = 0; column < dlock_session_columns(session); column++)
		{
			const char *value = dlock_session_value(session, row, column);

			length += (size_t) snprintf(text + length, sizeof(text) - length, " %s",
										value == NULL ? "NULL" : value);
		}
		say("%s", text);
	}
	say("answer");
}

static void
call(char **words, size_t n)
{
	const char *texts[WORDS_MAX];
	int64_t		integers[WORDS_MAX];
	dlock_arg	args[WORDS_MAX];
	size_t		nargs = 0;
	size_t		taken = 0;

	for (size_t i = 2; i < n; i++)
	{
		args[nargs] = argument(words[i], texts + taken, integers + taken);
		taken += args[nargs++].count;
	}
	answer(dlock_session_call(session, words[1], args, nargs,
							  dlock_now_us() + PATIENCE_US));
}

static void
connect_to(char *url)
{
	dlock_error error;

	decode(url);
	dlock_session_free(session);
	session = dlock_session_new(url, &error);
	if (session == NULL)
		say_error("error", &error);
	else
		say("url %s", dlock_session_engine(session) == DLOCK_MYSQL ? "mysql" :
			"postgresql");
}

/* Do what a line says; returns false at the end. */
static bool
obey(char *line)
{
	char	   *words[WORDS_MAX] = {0};
	char	   *rest;
	size_t		n = 0;

	if (strncmp(line, "query ", 6) == 0)
	{
		answer(dlock_session_query(session, line + 6, NULL, 0,
								   dlock_now_us() + PATIENCE_US));
		return true;
	}
	for (char *word = strtok_r(line, " ", &rest); word != NULL && n < WORDS_MAX;
		 word = strtok_r(NULL, " ", &rest))
		words[n++] = word;
	if (n == 0)
		return true;
	if (strcmp(words[0], "end") == 0)
		return false;
	if (strcmp(words[0], "drop") == 0)
		dlock_session_close(session);
	else if (strcmp(words[0], "polls") == 0)
		say("polls %lu", polls);
	else if (strcmp(words[0], "new") == 0)
		new_lease(words, n);
	else if (strcmp(words[0], "start") == 0)
		dlock_lease_start(leases[find(words[1])].lease);
	else if (strcmp(words[0], "acquire") == 0)
		start_acquire(find(words[1]));
	else if (strcmp(words[0], "release") == 0)
		dlock_lease_release(leases[find(words[1])].lease);
	else if (strcmp(words[0], "free") == 0)
		free_lease(find(words[1]));
	else if (strcmp(words[0], "beat") == 0)
		start_beat(find(words[1]));
	else if (strcmp(words[0], "unbeat") == 0)
		stop_beat(find(words[1]));
	else if (strcmp(words[0], "show") == 0)
		show(find(words[1]));
	else if (strcmp(words[0], "connect") == 0)
	{
		static char nothing[] = "";

		connect_to(n > 1 ? words[1] : nothing);
	}
	else if (strcmp(words[0], "call") == 0 && n > 1)
		call(words, n);
	else if (!obey_for_client(words, n))
	{
		fprintf(stderr, "client: \"%s\" is no command\n", words[0]);
		exit(2);
	}
	return true;
}

/* Let each lease go on as far as it goes. */
static void
step_all(void)
{
	dlock_lease *lease;
	dlock_event client_event;

	while (client != NULL && !has_threads &&
		   dlock_client_step(client, &lease, &client_event))
		tell_client(lease, &client_event, NULL);
	for (size_t i = 0; i < LEASES_MAX; i++)
	{
		dlock_event event;

		if (leases[i].lease == NULL || leases[i].heartbeat != NULL ||
			leases[i].acquires)
			continue;
		while (dlock_lease_step(leases[i].lease, &event))
			tell(i, &event);
		if (dlock_lease_is_done(leases[i].lease) && !leases[i].told_done)
		{
			leases[i].told_done = true;
			say("%s done", leases[i].id);
		}
	}
}

/* Wait for something to do. */
static bool
await(void)
{
	static struct pollfd fds[LEASES_MAX + 2] = {{.fd = STDIN_FILENO, .events = POLLIN}};
	int64_t		until_us = DLOCK_NEVER;
	nfds_t		n = 1;

	for (size_t i = 0; i < LEASES_MAX; i++)
		if (leases[i].lease != NULL && leases[i].heartbeat == NULL &&
			!leases[i].acquires)
		{
			fds[n++] = (struct pollfd) {
				.fd = dlock_lease_fd(leases[i].lease),
				.events = dlock_lease_events(leases[i].lease)
			};
			if (dlock_lease_until_us(leases[i].lease) < until_us)
				until_us = dlock_lease_until_us(leases[i].lease);
		}
	if (client != NULL && !has_threads)
	{
		fds[n++] = (struct pollfd) {
			.fd = dlock_client_fd(client), .events = dlock_client_events(client)
		};
		if (dlock_client_until_us(client) < until_us)
			until_us = dlock_client_until_us(client);
	}
	if (poll(fds, n, dlock_timeout_ms(until_us)) < 0 && errno != EINTR)
		perror("client: poll");
	polls++;
	return fds[0].revents != 0;
}

int
main(void)
{
	static char input[65536];
	size_t		length = 0;
	bool		going = true;

	while (going)
	{
		char	   *newline;

		step_all();
		if (await())
		{
			ssize_t		got = read(STDIN_FILENO, input + length,
								   sizeof(input) - length);

			if (got <= 0)
				break;
			length += (size_t) got;
		}
		while (going && (newline = memchr(input, '\n', length)) != NULL)
		{
			*newline = '\0';
			going = obey(input);
			length -= (size_t) (newline + 1 - input);
			memmove(input, newline + 1, length);
		}
	}
	for (size_t i = 0; i < LEASES_MAX; i++)
		free_lease(i);
	dlock_client_free(client);
	dlock_session_free(session);
	return 0;
}
