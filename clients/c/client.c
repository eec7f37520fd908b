/*
 * client.c
 *	  A client: many leases, and one connection that keeps them.
 *
 * Each lease is acquired by lease.c, on a session that it borrows here.  From its
 * grant on it is kept as many.c says: this file makes the calls that many_next() asks
 * for, on the session "heart", and reports the answers.
 *
 * Threads.  One lock is for everything in the client, and for "held" of each lease.
 * It is not held while a session connects or waits; "heart" is used by one thread at
 * a time, the beater or, if there is none, the program's.  A second thread, the
 * teller, calls the program's function, which so stops no renewal.  What it has to
 * tell are bits of each lease, so there is no queue that could grow.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "errors.h"
#include "lease.h"

/* A session that was kept for longer is tried before it is used. */
#define PROBED_AFTER_US		INT64_C(1000000)

/* A name that may still be held for a lease that was freed. */
typedef struct busy_name
{
	char	   *name;
	int64_t		until_us;
} busy_name;

struct dlock_client
{
	char	   *url;
	char	   *owner;
	dlock_engine engine;
	pthread_mutex_t lock;
	pthread_cond_t changed;		/* a lease is done, or there is something to tell */
	many		many;
	dlock_session *heart;		/* NULL before there is a lease */
	dlock_session *spare;		/* for the next acquire, or NULL */
	int64_t		spare_since_us; /* when it was last used */
	dlock_lease **leases;		/* all that were not freed */
	many_lease **held;			/* those of them that are kept */
	size_t		nleases;
	size_t		nheld;
	size_t		room;			/* of both */
	busy_name  *busy;
	size_t		nbusy;
	int64_t		until_us;		/* when to go on */
	bool		logged_in;
	bool		closing;
	dlock_error error;			/* of the last attempt */
	dlock_error trouble;		/* it is to be told, unless it is none */
	/* Of the call that is being made. */
	const char *names[MANY_NAMES_MAX];
	int64_t		tokens[MANY_NAMES_MAX];

	bool		beats;			/* there are threads */
	bool		stopping;
	pthread_t	beater;
	pthread_t	teller;
	int			wake[2];		/* a pipe, readable when the beater must look */
	const dlock_lease *telling;
	void		(*tell) (dlock_lease *lease, const dlock_event *event,
						 void *argument);
	void	   *argument;
};

/* The lease that a many_lease is part of. */
static dlock_lease *
lease_of(many_lease *held)
{
	return (dlock_lease *) ((char *) held - offsetof(dlock_lease, held));
}

static void
lock(dlock_client *c)
{
	pthread_mutex_lock(&c->lock);
}

static void
unlock(dlock_client *c)
{
	pthread_mutex_unlock(&c->lock);
}

dlock_client *
dlock_client_new(const char *url, const char *owner, dlock_error *error)
{
	dlock_client *c;

	dlock_error_clear(error);
	if (owner != NULL && !dlock_check_string("a client's owner", owner, error))
		return NULL;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
	{
		dlock_error_set(error, DLOCK_UNAVAILABLE, "out of memory");
		return NULL;
	}
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	c->until_us = DLOCK_NEVER;
	c->many.owner_is_ours = owner == NULL;
	c->owner = owner != NULL ? strdup(owner) : dlock_make_owner();
	c->url = strdup(url != NULL ? url : "");
	if (c->owner == NULL || c->url == NULL)
		dlock_error_set(error, DLOCK_UNAVAILABLE,
						"out of memory, or of random numbers");
	else
		/* it shows what is wrong with the URL, and the first acquire uses it */
		c->spare = dlock_session_new(c->url, error);
	if (c->spare == NULL)
	{
		dlock_client_free(c);
		return NULL;
	}
	c->engine = dlock_session_engine(c->spare);
	return c;
}

void
dlock_client_free(dlock_client *c)
{
	if (c == NULL)
		return;
	dlock_client_stop(c);
	dlock_session_free(c->heart);
	dlock_session_free(c->spare);
	for (size_t i = 0; i < c->nbusy; i++)
		free(c->busy[i].name);
	free(c->busy);
	free(c->leases);
	free(c->held);
	free(c->url);
	free(c->owner);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

const char *
dlock_client_owner(const dlock_client *c)
{
	return c->owner;
}

dlock_engine
dlock_client_engine(const dlock_client *c)
{
	return c->engine;
}

/* Let whoever drives the client look again. */
static void
wake(dlock_client *c)
{
	c->until_us = 0;
	/* if the pipe is full, there is enough in it */
	if (c->beats && write(c->wake[1], "", 1) < 0 && errno != EAGAIN)
		return;
}

/* ------------------------------------------------------------------- names */

/* Say whether a lease has a name. */
static bool
has_name(const dlock_lease *lease, const char *name)
{
	for (size_t i = 0; i < lease->nnames; i++)
		if (strcmp(lease->names[i], name) == 0)
			return true;
	return false;
}

/*
 * Check that a name is free: another lease that has it is a mistake of the program's, and
 * what is left of one that is over will pass.
 */
static bool
check_is_free(dlock_client *c, const char *name, int64_t now_us, dlock_error *error)
{
	bool		is_left = false;

	for (size_t i = 0; i < c->nleases; i++)
	{
		const dlock_lease *lease = c->leases[i];

		if (lease->held.done && now_us >= lease->held.left_until_us)
			continue;
		if (!has_name(lease, name))
			continue;
		if (!lease->held.done)
		{
			dlock_error_set(error, DLOCK_MISUSE,
							"another lease of this client has \"%s\"", name);
			return false;
		}
		is_left = true;
	}
	for (size_t i = 0; i < c->nbusy;)
		if (c->busy[i].until_us <= now_us)
		{
			free(c->busy[i].name);
			c->busy[i] = c->busy[--c->nbusy];
		}
		else if (strcmp(c->busy[i++].name, name) == 0)
			is_left = true;
	if (is_left)
		dlock_error_set(error, DLOCK_BUSY,
						"a lease of this client that is over may still have \"%s\"",
						name);
	return !is_left;
}

/* Make room for one more lease, and for its names when it is freed. */
static bool
make_room(dlock_client *c, size_t nnames)
{
	busy_name  *busy;

	if (c->nleases == c->room)
	{
		size_t		room = c->room == 0 ? 16 : 2 * c->room;
		dlock_lease **leases = realloc(c->leases, room * sizeof(*leases));
		many_lease **held;

		if (leases == NULL)
			return false;
		c->leases = leases;
		held = realloc(c->held, room * sizeof(*held));
		if (held == NULL)
			return false;
		c->held = held;
		c->room = room;
	}
	for (size_t i = 0; i < c->nleases; i++)
		nnames += c->leases[i]->nnames;
	busy = realloc(c->busy, (c->nbusy + nnames) * sizeof(*busy));
	if (busy != NULL)
		c->busy = busy;
	return busy != NULL;
}

dlock_lease *
dlock_client_lease(dlock_client *c, const dlock_lease_options *options,
				   dlock_error *error)
{
	dlock_lease *lease;
	int64_t		now_us = dlock_now_us();

	if (options->owner != NULL)
	{
		dlock_error_set(error, DLOCK_MISUSE,
						"a client's leases have the owner of the client");
		return NULL;
	}
	lease = dlock_lease_make(NULL, c, options, error);
	if (lease == NULL)
		return NULL;
	lock(c);
	if (c->closing)
		dlock_error_set(error, DLOCK_MISUSE, "the client is closed");
	for (size_t i = 0; i < lease->nnames && error->error_class == DLOCK_NO_ERROR; i++)
		check_is_free(c, lease->names[i], now_us, error);
	if (error->error_class == DLOCK_NO_ERROR && !make_room(c, lease->nnames))
		dlock_error_set(error, DLOCK_UNAVAILABLE, "out of memory");
	if (error->error_class == DLOCK_NO_ERROR)
		c->leases[c->nleases++] = lease;
	unlock(c);
	if (error->error_class == DLOCK_NO_ERROR)
		return lease;
	dlock_lease_free(lease);
	return NULL;
}

void
dlock_client_forget(dlock_client *c, dlock_lease *lease)
{
	int64_t		now_us = dlock_now_us();
	int64_t		until_us = lease->held.left_until_us;

	lock(c);
	/* the function of the program that is told of it may free it */
	while (c->telling == lease && !pthread_equal(pthread_self(), c->teller))
		pthread_cond_wait(&c->changed, &c->lock);
	many_forget(&c->many, &lease->held);
	for (size_t i = 0; i < c->nheld; i++)
		if (c->held[i] == &lease->held)
			c->held[i--] = c->held[--c->nheld];
	if (!lease->held.done && lease->keep.state != KEEP_NEW)
		until_us = now_us + lease->ttl_us;
	for (size_t i = 0; i < c->nleases; i++)
		if (c->leases[i] == lease)
		{
			c->leases[i] = c->leases[--c->nleases];
			/* the names go where there is room for them */
			for (size_t j = 0; until_us > now_us && j < lease->nnames; j++)
			{
				c->busy[c->nbusy++] = (busy_name) {lease->names[j], until_us};
				lease->names[j] = NULL;
			}
			break;
		}
	unlock(c);
}

/* ---------------------------------------------------------------- acquires */

dlock_session *
dlock_client_lend(dlock_client *c, bool *rested)
{
	dlock_session *session;
	dlock_error error;

	lock(c);
	session = c->spare;
	c->spare = NULL;
	*rested = dlock_now_us() - c->spare_since_us > PROBED_AFTER_US;
	unlock(c);
	if (session == NULL)
		return dlock_session_new(c->url, &error);
	dlock_session_close_if_dead(session);
	return session;
}

/* Take a session back: as the heart, or for the next acquire. */
static void
take_back(dlock_client *c, dlock_lease *lease)
{
	dlock_session *session = lease->session;

	lease->session = NULL;
	if (session == NULL)
		return;
	if (c->heart == NULL && lease->kept)
	{
		c->heart = session;
		c->many.connected = dlock_session_is_connected(session);
	}
	else if (c->spare == NULL && !c->closing)
	{
		c->spare = session;
		c->spare_since_us = dlock_now_us();
	}
	else
		dlock_session_free(session);
}

void
dlock_client_log_in(dlock_client *c)
{
	lock(c);
	c->logged_in = true;
	unlock(c);
}

bool
dlock_client_was_logged_in(dlock_client *c)
{
	bool		was;

	lock(c);
	was = c->logged_in;
	unlock(c);
	return was;
}

bool
dlock_client_is_closing(dlock_client *c)
{
	bool		is;

	lock(c);
	is = c->closing;
	unlock(c);
	return is;
}

void
dlock_client_keep(dlock_client *c, dlock_lease *lease)
{
	int64_t		now_us = dlock_now_us();

	lock(c);
	lease->kept = true;
	lease->held = (many_lease) {
		.ttl_us = lease->ttl_us,
		.keep_at_least_us = lease->keep.config.keep_at_least_us,
		.deadline_us = lease->keep.deadline_us,
		.held_us = lease->keep.held_us,
		.names = (unsigned) lease->nnames,
		/* dlock_release_many() gives one hold of each back */
		.alone = lease->mode == DLOCK_PERMIT && lease->permits > 1,
	};
	many_add(&c->many, &lease->held, now_us);
	c->held[c->nheld++] = &lease->held;
	take_back(c, lease);
	if (c->closing)
		many_release(&c->many, &lease->held, now_us);
	wake(c);
	unlock(c);
}

void
dlock_client_refused(dlock_client *c, dlock_lease *lease)
{
	lock(c);
	take_back(c, lease);
	lease->held.done = true;
	lease->held.left_until_us = lease->keep.maybe_held ?
		dlock_now_us() + lease->ttl_us : 0;
	unlock(c);
}

/* --------------------------------------------------------- the heart's work */

/* Start the call that many.c wants, for the leases that are in it. */
static bool
call(dlock_client *c, const many_action *action)
{
	dlock_arg	args[4];
	size_t		nargs = 0;
	size_t		n = 0;
	const char *function;

	for (size_t i = 0; i < c->many.ncall; i++)
	{
		const dlock_lease *lease = lease_of(c->many.call[i]);

		for (size_t j = 0; j < lease->nnames; j++, n++)
		{
			c->names[n] = lease->names[j];
			c->tokens[n] = lease->tokens[j];
		}
	}
	if (action->kind == MANY_RELEASE && c->many.call[0]->alone)
	{
		args[nargs++] = DLOCK_TEXT(c->names[0]);
		args[nargs++] = DLOCK_TEXT(c->owner);
		args[nargs++] = DLOCK_INTEGER(c->tokens[0]);
		args[nargs++] = DLOCK_INTEGER(lease_of(c->many.call[0])->permits);
		function = "dlock_release";
	}
	else
	{
		args[nargs++] = DLOCK_TEXTS(c->names, n);
		args[nargs++] = DLOCK_TEXT(c->owner);
		if (action->kind != MANY_RELEASE)
			args[nargs++] = DLOCK_DURATION(action->for_us);
		args[nargs++] = DLOCK_INTEGERS(c->tokens, n);
		function = action->kind == MANY_RELEASE ? "dlock_release_many" :
			action->kind == MANY_LEAVE ? DLOCK_LEAVE : "dlock_renew_many";
	}
	return dlock_session_call(c->heart, function, args, nargs, DLOCK_NEVER);
}

/* Say whether the answer has a name; it most often is the one at "place". */
static bool
is_in_answer(const dlock_session *s, const char *name, size_t *place)
{
	size_t		rows = dlock_session_rows(s);

	for (size_t i = 0; i < rows; i++)
	{
		size_t		row = (*place + i) % rows;
		const char *value = dlock_session_value(s, row, 0);

		if (value != NULL && strcmp(value, name) == 0)
		{
			*place = row + 1;
			return true;
		}
	}
	return false;
}

/* The heart has done what was asked of it. */
static void
answered(dlock_client *c)
{
	size_t		place = 0;

	if (c->many.asked == MANY_CONNECT)
	{
		c->logged_in = true;
		many_connected(&c->many, dlock_now_us());
		return;
	}
	dlock_error_clear(&c->error);
	/* a lease keeps its names and tokens, so they are those of the request */
	for (size_t i = 0; i < c->many.ncall; i++)
	{
		many_lease *held = c->many.call[i];
		const dlock_lease *lease;
		size_t		done = 0;

		if (held == NULL)
			continue;
		lease = lease_of(held);
		if (c->many.asked == MANY_RELEASE && held->alone)
			done = dlock_session_truth(c->heart) == 1;
		else
			for (size_t j = 0; j < lease->nnames; j++)
				done += is_in_answer(c->heart, lease->names[j], &place);
		held->answer = done == lease->nnames ? KEEP_TRUE :
			done == 0 ? KEEP_GONE : KEEP_PARTLY;
	}
	many_answered(&c->many, dlock_now_us());
}

/* The heart could not do what was asked of it. */
static void
failed(dlock_client *c)
{
	bool		said;
	bool		misuse;
	bool		goes_on;

	c->error = *dlock_session_error(c->heart);
	said = !c->error.disconnected;
	misuse = c->error.error_class == DLOCK_MISUSE && said;
	/* somebody has been logged in, or there would be no lease */
	if (c->heart->refused && c->error.error_class == DLOCK_MISUSE)
	{
		c->error.error_class = DLOCK_UNAVAILABLE;
		c->error.denied = false;
	}
	c->trouble = c->error;
	/* with one lease alone, another server may be able to do it, or another connection */
	goes_on = said && c->many.ncall > 1;
	if (!goes_on)
		dlock_session_close(c->heart);
	many_failed(&c->many, said, misuse, goes_on, dlock_now_us());
}

/* Go on as far as is possible without waiting; with the lock. */
static void
drive(dlock_client *c)
{
	for (;;)
	{
		many_action action;
		dlock_step	step = DLOCK_STEP_WAIT;
		bool		started = true;

		/* that is no trouble: the next call is made on another connection */
		if (c->many.asked == MANY_AWAIT && c->many.connected &&
			dlock_session_close_if_dead(c->heart))
			c->many.connected = false;
		action = many_next(&c->many, c->held, c->nheld, dlock_now_us());
		c->until_us = action.until_us;
		switch (action.kind)
		{
			case MANY_AWAIT:
				if (c->many.asked != MANY_AWAIT)
				{
					int64_t		until_us;

					unlock(c);
					step = dlock_session_step(c->heart);
					until_us = dlock_session_until_us(c->heart);
					lock(c);
					if (until_us < c->until_us)
						c->until_us = until_us;
				}
				if (step == DLOCK_STEP_DONE)
					answered(c);
				else if (step == DLOCK_STEP_FAILED)
					failed(c);
				else
				{
					pthread_cond_broadcast(&c->changed);
					return;
				}
				break;
			case MANY_DROP:
				dlock_error_set(&c->error, DLOCK_UNAVAILABLE,
								dlock_session_is_connected(c->heart) ?
								"the server has not answered in time" :
								"could not connect to the server in time");
				c->error.disconnected = true;
				c->trouble = c->error;
				dlock_session_close(c->heart);
				break;
			case MANY_CONNECT:
				unlock(c);
				dlock_session_hurry(c->heart, action.until_us);
				started = dlock_session_connect(c->heart, DLOCK_NEVER);
				lock(c);
				break;
			case MANY_RENEW:
			case MANY_RELEASE:
			case MANY_LEAVE:
				started = call(c, &action);
				break;
		}
		if (!started)
			failed(c);
	}
}

/* Take what is to be told next, of a lease or, with no lease, of the connection. */
static bool
next_event(dlock_client *c, dlock_lease **lease, dlock_event *event)
{
	static const struct
	{
		keep_action_kind tell;
		dlock_event_kind kind;
	}			kinds[] =
	{
		{KEEP_TELL_RENEWED, DLOCK_EVENT_RENEWED}, {KEEP_TELL_LOST, DLOCK_EVENT_LOST},
		{KEEP_TELL_RELEASED, DLOCK_EVENT_RELEASED},
	};

	*event = (dlock_event) {0};
	*lease = NULL;
	if (c->trouble.error_class != DLOCK_NO_ERROR)
	{
		event->kind = DLOCK_EVENT_TROUBLE;
		event->error = c->trouble;
		dlock_error_clear(&c->trouble);
		return true;
	}
	for (size_t i = 0; i < c->nheld; i++)
		for (size_t k = 0; k < 3; k++)
		{
			many_lease *held = c->held[i];

			if ((held->tells & 1u << kinds[k].tell) == 0)
				continue;
			held->tells &= ~(1u << kinds[k].tell);
			*lease = lease_of(held);
			event->kind = kinds[k].kind;
			event->deadline_us = held->deadline_us;
			event->lost_at_us = held->lost_at_us;
			event->given_back = held->given_back;
			if (event->kind == DLOCK_EVENT_LOST)
				dlock_lease_explain_loss(*lease, held->ended_there, &c->error,
										 &event->error);
			else if (event->kind == DLOCK_EVENT_RELEASED)
			{
				if (!held->given_back)
					event->error = c->error;
				c->held[i] = c->held[--c->nheld];
			}
			return true;
		}
	return false;
}

bool
dlock_client_step(dlock_client *c, dlock_lease **lease, dlock_event *event)
{
	bool		is_news;

	lock(c);
	drive(c);
	is_news = next_event(c, lease, event);
	if (is_news)
		c->until_us = 0;
	unlock(c);
	return is_news;
}

int
dlock_client_fd(const dlock_client *c)
{
	return c->heart == NULL ? -1 : dlock_session_fd(c->heart);
}

short
dlock_client_events(const dlock_client *c)
{
	return c->heart == NULL ? 0 : dlock_session_events(c->heart);
}

int64_t
dlock_client_until_us(const dlock_client *c)
{
	return c->until_us;
}

/* ----------------------------------------------------------- leases of ours */

void
dlock_client_release(dlock_client *c, dlock_lease *lease)
{
	lock(c);
	many_release(&c->many, &lease->held, dlock_now_us());
	wake(c);
	unlock(c);
}

many_lease
dlock_client_look(dlock_client *c, const dlock_lease *lease)
{
	many_lease	held;

	lock(c);
	held = lease->held;
	unlock(c);
	/* whoever asks is answered by the clock */
	if (held.state == KEEP_HELD && !many_is_held(&held, dlock_now_us()))
		held.state = KEEP_LOST;
	return held;
}

void
dlock_client_go_on(dlock_client *c)
{
	lock(c);
	if (!c->beats)
		drive(c);
	unlock(c);
}

void
dlock_client_wait(dlock_client *c, int fd, short events, int64_t until_us)
{
	struct pollfd fds[2] = {{.fd = fd, .events = events}, {.fd = -1}};

	if (!c->beats)
	{
		fds[1].fd = dlock_client_fd(c);
		fds[1].events = dlock_client_events(c);
		if (c->until_us < until_us)
			until_us = c->until_us;
	}
	poll(fds, 2, dlock_timeout_ms(until_us));
}

/* Say whether a lease, or each lease that was held, is done. */
static bool
is_done(const dlock_client *c, const dlock_lease *lease)
{
	if (lease != NULL)
		return lease->held.done;
	for (size_t i = 0; i < c->nheld; i++)
		if (!c->held[i]->done)
			return false;
	return true;
}

void
dlock_client_await(dlock_client *c, const dlock_lease *lease)
{
	lock(c);
	for (;;)
	{
		if (!c->beats)
			drive(c);
		if (is_done(c, lease))
			break;
		if (c->beats)
			pthread_cond_wait(&c->changed, &c->lock);
		else
		{
			unlock(c);
			dlock_client_wait(c, -1, 0, DLOCK_NEVER);
			lock(c);
		}
	}
	unlock(c);
}

void
dlock_client_close(dlock_client *c)
{
	lock(c);
	c->closing = true;
	for (size_t i = 0; i < c->nheld; i++)
		many_release(&c->many, c->held[i], dlock_now_us());
	wake(c);
	unlock(c);
}

bool
dlock_client_is_done(dlock_client *c)
{
	bool		done;

	lock(c);
	done = c->closing && is_done(c, NULL);
	unlock(c);
	return done;
}

void
dlock_client_end(dlock_client *c)
{
	dlock_client_close(c);
	dlock_client_await(c, NULL);
	dlock_client_stop(c);
	if (c->heart != NULL)
		dlock_session_close(c->heart);
	if (c->spare != NULL)
		dlock_session_close(c->spare);
}

/* ----------------------------------------------------------------- threads */

static void *
beat(void *pointer)
{
	dlock_client *c = pointer;

	lock(c);
	while (!c->stopping)
	{
		struct pollfd fds[2];
		int			timeout;
		char		bytes[64];

		drive(c);
		fds[0] = (struct pollfd) {.fd = c->wake[0], .events = POLLIN};
		fds[1] = (struct pollfd) {
			.fd = dlock_client_fd(c), .events = dlock_client_events(c)
		};
		timeout = dlock_timeout_ms(c->until_us);
		unlock(c);
		if (poll(fds, 2, timeout) > 0 && fds[0].revents != 0)
			while (read(c->wake[0], bytes, sizeof(bytes)) == sizeof(bytes))
				;
		lock(c);
	}
	unlock(c);
	return NULL;
}

static void *
tell_all(void *pointer)
{
	dlock_client *c = pointer;

	lock(c);
	for (;;)
	{
		dlock_event event;
		dlock_lease *lease;

		if (!next_event(c, &lease, &event))
		{
			if (c->stopping)
				break;
			pthread_cond_wait(&c->changed, &c->lock);
			continue;
		}
		c->telling = lease;
		unlock(c);
		c->tell(lease, &event, c->argument);
		lock(c);
		c->telling = NULL;
		pthread_cond_broadcast(&c->changed);
	}
	unlock(c);
	return NULL;
}

/* End the threads; the teller only if there is one. */
static void
end_threads(dlock_client *c, bool teller)
{
	lock(c);
	c->stopping = true;
	wake(c);
	pthread_cond_broadcast(&c->changed);
	unlock(c);
	pthread_join(c->beater, NULL);
	if (teller)
		pthread_join(c->teller, NULL);
	c->beats = false;
	close(c->wake[0]);
	close(c->wake[1]);
}

bool
dlock_client_start(dlock_client *c,
				   void (*tell) (dlock_lease *lease, const dlock_event *event,
								 void *argument),
				   void *argument, dlock_error *error)
{
	sigset_t	all;
	sigset_t	before;
	bool		beats = false;
	bool		tells = false;

	dlock_error_clear(error);
	if (c->beats)
	{
		dlock_error_set(error, DLOCK_MISUSE, "the client has its threads already");
		return false;
	}
	c->tell = tell;
	c->argument = argument;
	c->stopping = false;
	/* signals are for the program's own threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pipe(c->wake) == 0)
	{
		for (int i = 0; i < 2; i++)
		{
			fcntl(c->wake[i], F_SETFD, FD_CLOEXEC);
			fcntl(c->wake[i], F_SETFL, O_NONBLOCK);
		}
		c->beats = true;
		beats = pthread_create(&c->beater, NULL, beat, c) == 0;
		tells = beats && tell != NULL &&
			pthread_create(&c->teller, NULL, tell_all, c) == 0;
		if (!beats)
		{
			c->beats = false;
			close(c->wake[0]);
			close(c->wake[1]);
		}
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (beats && (tells || tell == NULL))
		return true;
	if (beats)
		end_threads(c, false);
	dlock_error_set(error, DLOCK_UNAVAILABLE, "could not start a thread");
	return false;
}

void
dlock_client_stop(dlock_client *c)
{
	if (c->beats)
		end_threads(c, c->tell != NULL);
}
