/*
 * session.c
 *	  One connection to a server: connecting, calls, and their answers.
 *
 * At most one call is under way.  Giving a call up closes the connection, since
 * nobody knows what becomes of the call in the server, or when.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "session.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "errors.h"

static const struct
{
	const char *name;
	dlock_shape shape;
	bool		postgresql_only;
}			functions[] =
{
	{"dlock_acquire", DLOCK_SHAPE_PLAIN, false},
	{"dlock_acquire_shared", DLOCK_SHAPE_PLAIN, false},
	{"dlock_acquire_permit", DLOCK_SHAPE_PLAIN, false},
	{"dlock_acquire_permits", DLOCK_SHAPE_PLAIN, false},
	{"dlock_acquire_all", DLOCK_SHAPE_TOKENS, false},
	{"dlock_acquire_any", DLOCK_SHAPE_ROWS, false},
	{"dlock_acquire_session", DLOCK_SHAPE_PLAIN, false},
	{"dlock_acquire_session_shared", DLOCK_SHAPE_PLAIN, false},
	{"dlock_acquire_xact", DLOCK_SHAPE_PLAIN, true},
	{"dlock_acquire_xact_shared", DLOCK_SHAPE_PLAIN, true},
	{"dlock_guard", DLOCK_SHAPE_PLAIN, false},
	{"dlock_wait", DLOCK_SHAPE_PLAIN, false},
	{"dlock_renew", DLOCK_SHAPE_PLAIN, false},
	{"dlock_renew_many", DLOCK_SHAPE_ROWS, false},
	{"dlock_renew_all", DLOCK_SHAPE_PLAIN, false},
	{"dlock_downgrade", DLOCK_SHAPE_PLAIN, false},
	{"dlock_release", DLOCK_SHAPE_PLAIN, false},
	{"dlock_release_many", DLOCK_SHAPE_ROWS, false},
	{"dlock_release_all", DLOCK_SHAPE_PLAIN, false},
	{"dlock_release_after", DLOCK_SHAPE_EACH, false},
	{"dlock_owner", DLOCK_SHAPE_PLAIN, false},
	{"dlock_is_free", DLOCK_SHAPE_PLAIN, false},
	{"dlock_remaining", DLOCK_SHAPE_PLAIN, false},
	{"dlock_holders", DLOCK_SHAPE_ROWS, false},
	{"dlock_force_release", DLOCK_SHAPE_PLAIN, false},
	{"dlock_stats_reset", DLOCK_SHAPE_PLAIN, false},
};

dlock_session *
dlock_session_new(const char *url, dlock_error *error)
{
	dlock_session *s = calloc(1, sizeof(*s));

	if (s == NULL)
	{
		dlock_error_set(error, DLOCK_UNAVAILABLE, "out of memory");
		return NULL;
	}
	s->fd = -1;
	s->wire_until_us = DLOCK_NEVER;
	if (dlock_url_parse(url, &s->url, &s->error))
	{
		s->transport = s->url.engine == DLOCK_POSTGRESQL ?
			&dlock_pg_transport : &dlock_mysql_transport;
		if (s->transport->check(s))
			return s;
	}
	*error = s->error;
	dlock_session_free(s);
	return NULL;
}

void
dlock_session_free(dlock_session *s)
{
	if (s == NULL)
		return;
	dlock_session_close(s);
	if (s->transport != NULL)
		s->transport->free(s);
	dlock_url_free(&s->url);
	dlock_text_free(&s->sql);
	dlock_text_free(&s->renewal);
	dlock_table_free(&s->arguments);
	dlock_table_free(&s->answer);
	free(s);
}

dlock_engine
dlock_session_engine(const dlock_session *s)
{
	return s->url.engine;
}

static void
disconnect(dlock_session *s)
{
	if (s->wire != NULL)
		s->transport->close(s);
	s->wire = NULL;
	s->fd = -1;
	s->events = 0;
	s->wire_until_us = DLOCK_NEVER;
	s->hurry_us = 0;
}

void
dlock_session_close(dlock_session *s)
{
	disconnect(s);
	s->phase = DLOCK_PHASE_IDLE;
	s->call_follows = false;
}

void
dlock_session_hurry(dlock_session *s, int64_t until_us)
{
	s->hurry_us = until_us;
}

size_t
dlock_addresses(const char *host, char ***addresses)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *all = NULL;
	size_t		n = 0;

	*addresses = NULL;
	if (host == NULL || getaddrinfo(host, NULL, &hints, &all) != 0)
		return 0;
	for (struct addrinfo *a = all; a != NULL; a = a->ai_next)
		n++;
	*addresses = calloc(n + 1, sizeof(**addresses));
	n = 0;
	for (struct addrinfo *a = all; a != NULL && *addresses != NULL; a = a->ai_next)
	{
		char		text[DLOCK_HOST_SIZE];

		if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof(text), NULL, 0,
						NI_NUMERICHOST) == 0 &&
			((*addresses)[n] = strdup(text)) != NULL)
			n++;
	}
	freeaddrinfo(all);
	if (n == 0)
	{
		free(*addresses);
		*addresses = NULL;
	}
	return n;
}

void
dlock_addresses_free(char **addresses)
{
	for (char **a = addresses; a != NULL && *a != NULL; a++)
		free(*a);
	free(addresses);
}

bool
dlock_session_close_if_dead(dlock_session *s)
{
	struct pollfd p = {.fd = s->fd, .events = POLLIN};

	/* a server has nothing to say to an idle client but good-bye */
	if (s->phase != DLOCK_PHASE_IDLE || s->wire == NULL || s->fd < 0 ||
		poll(&p, 1, 0) <= 0)
		return false;
	dlock_session_close(s);
	return true;
}

bool
dlock_session_is_connected(const dlock_session *s)
{
	return s->wire != NULL && s->phase != DLOCK_PHASE_CONNECTING;
}

/* The call has failed, as s->error says. */
static dlock_step
fail(dlock_session *s)
{
	s->failed = true;
	s->refused = s->phase == DLOCK_PHASE_CONNECTING;
	s->phase = DLOCK_PHASE_IDLE;
	s->call_follows = false;
	if (s->error.disconnected)
		disconnect(s);
	return DLOCK_STEP_FAILED;
}

/* Refuse a call that is wrong. */
static bool
refuse(dlock_session *s, const char *message)
{
	dlock_error_set(&s->error, DLOCK_MISUSE, "%s", message);
	s->failed = true;
	return false;
}

/* Forget the last call; false if one is under way. */
static bool
begin(dlock_session *s, int64_t deadline_us)
{
	/* the call under way goes on, and has its own error */
	if (s->phase != DLOCK_PHASE_IDLE)
		return false;
	dlock_table_free(&s->answer);
	dlock_table_free(&s->arguments);
	dlock_error_clear(&s->error);
	dlock_text_clear(&s->sql);
	dlock_text_clear(&s->renewal);
	s->may_renew = false;
	s->failed = false;
	s->refused = false;
	s->call_follows = false;
	s->function = NULL;
	s->deadline_us = deadline_us;
	return true;
}

/* Begin to connect, or to call if there is a connection. */
static bool
launch(dlock_session *s)
{
	if (s->wire != NULL)
	{
		if (s->call_follows)
		{
			s->phase = DLOCK_PHASE_CALLING;
			s->call_follows = false;
			s->transport->send(s);
		}
		return true;
	}
	/* the next step reports an error */
	s->phase = DLOCK_PHASE_CONNECTING;
	if (s->hurry_us == 0)
		s->hurry_us = dlock_now_us() + DLOCK_CONNECT_TIMEOUT_US / 3;
	if (s->hurry_us > s->deadline_us)
		s->hurry_us = s->deadline_us;
	s->transport->connect(s);
	return true;
}

bool
dlock_session_connect(dlock_session *s, int64_t deadline_us)
{
	return begin(s, deadline_us) && launch(s);
}

/* Make the statement, and begin. */
static bool
start(dlock_session *s, const dlock_arg *args, size_t nargs)
{
	s->nargs = nargs;
	s->transport->prepare(s, args, nargs);
	if (s->failed)
		return false;
	if (s->sql.failed || s->renewal.failed || s->arguments.failed)
	{
		dlock_error_set(&s->error, DLOCK_UNAVAILABLE, "out of memory");
		s->failed = true;
		return false;
	}
	s->call_follows = true;
	return launch(s);
}

bool
dlock_session_call(dlock_session *s, const char *function,
				   const dlock_arg *args, size_t nargs, int64_t deadline_us)
{
	if (!begin(s, deadline_us))
		return false;
	s->may_renew = strcmp(function, DLOCK_LEAVE) == 0;
	if (s->may_renew)
		function = "dlock_release_after";
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (strcmp(functions[i].name, function) == 0)
		{
			if (functions[i].postgresql_only && s->url.engine != DLOCK_POSTGRESQL)
				return refuse(s, "MySQL and MariaDB do not have that function");
			s->function = functions[i].name;
			s->shape = functions[i].shape;
			if (s->shape == DLOCK_SHAPE_EACH &&
				(nargs == 0 || args[0].type != DLOCK_ARG_TEXTS))
				s->shape = DLOCK_SHAPE_PLAIN;
			return start(s, args, nargs);
		}
	return refuse(s, "dlock has no function of that name");
}

bool
dlock_session_query(dlock_session *s, const char *sql, const dlock_arg *args,
					size_t nargs, int64_t deadline_us)
{
	if (!begin(s, deadline_us))
		return false;
	s->shape = DLOCK_SHAPE_PLAIN;
	dlock_text_add(&s->sql, sql);
	return start(s, args, nargs);
}

/* An answer that is a list becomes rows. */
static bool
unfold(dlock_session *s)
{
	bool		is_mysql = s->url.engine == DLOCK_MYSQL;
	dlock_table list = {0};
	bool		valid;

	if (s->function == NULL || s->shape == DLOCK_SHAPE_PLAIN ||
		(s->shape != DLOCK_SHAPE_TOKENS && !is_mysql))
		return true;
	if (s->answer.nvalues != 1)
		return false;
	if (s->answer.values[0] == NULL)
		return true;
	valid = is_mysql ? dlock_table_from_json(&list, s->answer.values[0]) :
		dlock_table_from_array(&list, s->answer.values[0]);
	dlock_table_free(&s->answer);
	s->answer = list;
	return valid && (list.failed ||
					 (list.ncolumns > 0 ? list.nvalues % list.ncolumns == 0 :
					  list.nvalues == 0));
}

/* The call has its answer. */
static dlock_step
answered(dlock_session *s)
{
	s->phase = DLOCK_PHASE_IDLE;
	/* a procedure of MySQL has no answer at all */
	if (s->function != NULL && s->answer.ncolumns == 0)
	{
		dlock_table_column(&s->answer, NULL);
		dlock_table_null(&s->answer);
	}
	if (!unfold(s) && !s->answer.failed)
	{
		dlock_error_set(&s->error, DLOCK_UNAVAILABLE,
						"the server's answer to %s is no list", s->function);
		return fail(s);
	}
	if (s->answer.failed)
	{
		dlock_error_set(&s->error, DLOCK_UNAVAILABLE, "out of memory");
		return fail(s);
	}
	return DLOCK_STEP_DONE;
}

dlock_step
dlock_session_step(dlock_session *s)
{
	dlock_step	step;

	if (s->phase == DLOCK_PHASE_IDLE)
		return s->failed ? DLOCK_STEP_FAILED : DLOCK_STEP_DONE;
	for (;;)
	{
		if (s->wire == NULL)
		{
			s->error.disconnected = true;
			return fail(s);
		}
		step = s->transport->step(s);
		if (step == DLOCK_STEP_FAILED)
			return fail(s);
		if (step == DLOCK_STEP_WAIT)
			break;
		if (s->phase == DLOCK_PHASE_CALLING)
			return answered(s);
		/* connected */
		if (!s->call_follows)
		{
			s->phase = DLOCK_PHASE_IDLE;
			return DLOCK_STEP_DONE;
		}
		launch(s);
	}
	/* an answer that came in time counts, however late we look */
	if (dlock_now_us() >= s->deadline_us)
	{
		dlock_error_set(&s->error, DLOCK_UNAVAILABLE,
						s->phase == DLOCK_PHASE_CONNECTING ?
						"could not connect to the server in time" :
						"the server has not answered in time");
		s->error.disconnected = true;
		return fail(s);
	}
	return DLOCK_STEP_WAIT;
}

int
dlock_session_fd(const dlock_session *s)
{
	return s->phase == DLOCK_PHASE_IDLE ? -1 : s->fd;
}

short
dlock_session_events(const dlock_session *s)
{
	return s->phase == DLOCK_PHASE_IDLE ? 0 : s->events;
}

int64_t
dlock_session_until_us(const dlock_session *s)
{
	if (s->phase == DLOCK_PHASE_IDLE)
		return DLOCK_NEVER;
	/* it failed at once, or there is nothing to wait for */
	if (s->fd < 0)
		return 0;
	return s->wire_until_us < s->deadline_us ? s->wire_until_us : s->deadline_us;
}

bool
dlock_session_finish(dlock_session *s)
{
	dlock_step	step;

	while ((step = dlock_session_step(s)) == DLOCK_STEP_WAIT)
	{
		struct pollfd p = {
			.fd = dlock_session_fd(s), .events = dlock_session_events(s)
		};

		/* an error of poll() other than this one has no cause here */
		if (poll(&p, 1, dlock_timeout_ms(dlock_session_until_us(s))) < 0 &&
			errno != EINTR)
			break;
	}
	return step == DLOCK_STEP_DONE;
}

size_t
dlock_session_rows(const dlock_session *s)
{
	return s->answer.ncolumns == 0 ? 0 : s->answer.nvalues / s->answer.ncolumns;
}

size_t
dlock_session_columns(const dlock_session *s)
{
	return s->answer.ncolumns;
}

const char *
dlock_session_column_name(const dlock_session *s, size_t column)
{
	return column < s->answer.ncolumns ? s->answer.names[column] : NULL;
}

const char *
dlock_session_value(const dlock_session *s, size_t row, size_t column)
{
	if (row >= dlock_session_rows(s) || column >= s->answer.ncolumns)
		return NULL;
	return s->answer.values[row * s->answer.ncolumns + column];
}

int
dlock_session_truth(const dlock_session *s)
{
	const char *value = dlock_session_value(s, 0, 0);

	return value == NULL ? -1 : strcmp(value, "1") == 0;
}

int64_t
dlock_session_integer(const dlock_session *s)
{
	const char *value = dlock_session_value(s, 0, 0);

	return value == NULL ? 0 : strtoll(value, NULL, 10);
}

const dlock_error *
dlock_session_error(const dlock_session *s)
{
	return &s->error;
}
