/*
 * lease.c
 *	  A lease: do what keep.c says on a session.
 *
 * Nothing is decided here.  This file asks keep_next() until it says to wait,
 * makes calls of what it asks for, and reports the answers to it.  Every
 * failure closes the connection.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>			/* getentropy, on some systems in unistd.h */
#include <unistd.h>

#include "errors.h"
#include "lease.h"
#include "text.h"

/* How long an acquire may wait before it looks whether its client is closed. */
#define CLOSING_SEEN_US		INT64_C(1000000)

bool
dlock_check_string(const char *what, const char *string, dlock_error *error)
{
	size_t		length = string == NULL ? 0 : strlen(string);

	if (length < 1 || length > DLOCK_STRING_MAX)
		dlock_error_set(error, DLOCK_MISUSE, "%s is not 1 to %d bytes long", what,
						DLOCK_STRING_MAX);
	else if (!dlock_is_utf8(string))
		dlock_error_set(error, DLOCK_MISUSE, "%s is not UTF-8", what);
	else
		return true;
	return false;
}

/* Check what can be checked without a server. */
static bool
check_options(const dlock_lease_options *o, const keep_config *config,
			  dlock_error *error)
{
	const char *fault = NULL;

	if (o->nnames < 1 || o->nnames > DLOCK_NAMES_MAX)
		fault = "a lease has 1 to 100 names";
	else if (o->nnames > 1 && o->mode != DLOCK_EXCLUSIVE)
		fault = "several names are taken exclusive, or not at all";
	else if (o->mode == DLOCK_PERMIT && o->limit < 1)
		fault = "the limit of permits is less than 1";
	else if (o->mode == DLOCK_PERMIT && (o->permits < 0 || o->permits > o->limit))
		fault = "the number of permits is not between 1 and their limit";
	else if (o->mode != DLOCK_PERMIT && (o->limit != 0 || o->permits != 0))
		fault = "only permits have a limit and a number";
	else if (!keep_check_config(config))
		fault = "ttl, wait, connect_timeout or keep_at_least is out of range";
	else if (o->names == NULL)
		fault = "a lease has names";
	if (fault != NULL)
	{
		dlock_error_set(error, DLOCK_MISUSE, "%s", fault);
		return false;
	}
	for (size_t i = 0; i < o->nnames; i++)
	{
		if (!dlock_check_string("a lease's name", o->names[i], error))
			return false;
		for (size_t j = 0; j < i; j++)
			if (strcmp(o->names[i], o->names[j]) == 0)
			{
				dlock_error_set(error, DLOCK_MISUSE, "\"%s\" is named twice",
								o->names[i]);
				return false;
			}
	}
	return (o->owner == NULL || dlock_check_string("a lease's owner", o->owner, error)) &&
		(o->request == NULL || dlock_check_string("a request id", o->request, error));
}

/* So many random hexadecimal digits; NULL if there are none. */
static char *
random_digits(const char *before, size_t count)
{
	size_t		length = strlen(before);
	char	   *result = malloc(length + count + 1);
	unsigned char bytes[16];

	if (result == NULL || count > 2 * sizeof(bytes) ||
		getentropy(bytes, count / 2) != 0)
	{
		free(result);
		return NULL;
	}
	memcpy(result, before, length + 1);
	for (size_t i = 0; i < count / 2; i++)
		snprintf(result + length + 2 * i, 3, "%02x", bytes[i]);
	return result;
}

/* Host, process, random. */
char *
dlock_make_owner(void)
{
	char		host[65] = "";
	char		before[100];

	if (gethostname(host, sizeof(host) - 1) != 0)
		strcpy(host, "?");
	snprintf(before, sizeof(before), "%s:%ld:", host, (long) getpid());
	return random_digits(before, 16);
}

dlock_lease *
dlock_lease_new(const char *url, const dlock_lease_options *o, dlock_error *error)
{
	return dlock_lease_make(url, NULL, o, error);
}

dlock_lease *
dlock_lease_make(const char *url, dlock_client *client,
				 const dlock_lease_options *o, dlock_error *error)
{
	const char *owner = client != NULL ? dlock_client_owner(client) : o->owner;
	dlock_lease *lease;
	keep_config config = {
		.ttl_us = o->ttl_us,
		.wait_us = o->wait_us,
		.connect_timeout_us = o->connect_timeout_us != 0 ?
			o->connect_timeout_us : DLOCK_CONNECT_TIMEOUT_US,
		.keep_at_least_us = o->keep_at_least_us,
		/* a client gives back by the token */
		.owner_is_ours = owner == NULL,
	};
	char	   *name;

	dlock_error_clear(error);
	if (!check_options(o, &config, error))
		return NULL;
	lease = calloc(1, sizeof(*lease));
	if (lease == NULL)
	{
		dlock_error_set(error, DLOCK_UNAVAILABLE, "out of memory");
		return NULL;
	}
	keep_init(&lease->keep, &config);
	lease->mode = o->mode;
	lease->limit = o->limit;
	lease->permits = o->permits != 0 ? o->permits : 1;
	lease->ttl_us = o->ttl_us;
	lease->until_us = DLOCK_NEVER;
	lease->client = client;
	lease->owner = owner != NULL ? strdup(owner) : dlock_make_owner();
	lease->request = o->request != NULL ? strdup(o->request) :
		random_digits("", 32);
	lease->names = calloc(o->nnames, sizeof(*lease->names));
	lease->tokens = calloc(o->nnames, sizeof(*lease->tokens));
	if (lease->owner != NULL && lease->request != NULL &&
		lease->names != NULL && lease->tokens != NULL)
		while (lease->nnames < o->nnames &&
			   (name = strdup(o->names[lease->nnames])) != NULL)
			lease->names[lease->nnames++] = name;
	if (lease->nnames < o->nnames)
		dlock_error_set(error, DLOCK_UNAVAILABLE,
						"out of memory, or of random numbers");
	else if (client == NULL)
		lease->session = dlock_session_new(url, error);
	if (lease->session != NULL ||
		(client != NULL && error->error_class == DLOCK_NO_ERROR))
		return lease;
	dlock_lease_free(lease);
	return NULL;
}

void
dlock_lease_free(dlock_lease *lease)
{
	if (lease == NULL)
		return;
	if (lease->client != NULL)
		dlock_client_forget(lease->client, lease);
	dlock_session_free(lease->session);
	for (size_t i = 0; i < lease->nnames; i++)
		free(lease->names[i]);
	free(lease->names);
	free(lease->tokens);
	free(lease->owner);
	free(lease->request);
	free(lease);
}

void
dlock_lease_was_logged_in(dlock_lease *lease)
{
	lease->logged_in = true;
}

void
dlock_lease_start(dlock_lease *lease)
{
	keep_start(&lease->keep, dlock_now_us());
	lease->until_us = 0;
}

void
dlock_lease_release(dlock_lease *lease)
{
	if (lease->kept)
	{
		dlock_client_release(lease->client, lease);
		return;
	}
	keep_release(&lease->keep, dlock_now_us());
	lease->until_us = 0;
}

/* Start the call that keep.c wants. */
static bool
call(dlock_lease *lease, const keep_action *action)
{
	const dlock_arg owner = DLOCK_TEXT(lease->owner);
	const dlock_arg name = DLOCK_TEXT(lease->names[0]);
	const dlock_arg names = DLOCK_TEXTS((const char *const *) lease->names,
										lease->nnames);
	const dlock_arg token = action->token != 0 ?
		DLOCK_INTEGER(lease->tokens[0]) : DLOCK_NULL;
	const dlock_arg tokens = action->token != 0 ?
		DLOCK_INTEGERS(lease->tokens, lease->nnames) : DLOCK_NULL;
	bool		many = lease->nnames > 1;
	bool		several = lease->mode == DLOCK_PERMIT && lease->permits > 1;
	const char *function;
	dlock_arg	args[7];
	size_t		n = 0;

	args[n++] = many ? names : name;
	args[n++] = owner;
	if (action->kind == KEEP_ACQUIRE)
	{
		args[n++] = DLOCK_DURATION(lease->ttl_us);
		if (lease->mode == DLOCK_PERMIT)
			args[n++] = DLOCK_INTEGER(lease->limit);
		if (several)
			args[n++] = DLOCK_INTEGER(lease->permits);
		args[n++] = DLOCK_DURATION(action->wait_us < 0 ? -1000000 :
								   action->wait_us);
		args[n++] = DLOCK_TEXT(lease->request);
		if (many)
			function = "dlock_acquire_all";
		else if (several)
			function = "dlock_acquire_permits";
		else if (lease->mode == DLOCK_PERMIT)
			function = "dlock_acquire_permit";
		else if (lease->mode == DLOCK_SHARED)
			function = "dlock_acquire_shared";
		else
			function = "dlock_acquire";
	}
	else if (action->kind == KEEP_RELEASE)
	{
		args[n++] = many ? tokens : token;
		if (several)
			args[n++] = DLOCK_INTEGER(lease->permits);
		function = many ? "dlock_release_many" : "dlock_release";
	}
	else
	{
		args[n++] = DLOCK_DURATION(action->kind == KEEP_LEAVE ?
								   action->leave_us : lease->ttl_us);
		args[n++] = many ? tokens : token;
		function = action->kind == KEEP_LEAVE ? DLOCK_LEAVE :
			many ? "dlock_renew_many" : "dlock_renew";
	}
	/* keep.c knows how long it may take, and says when to drop it */
	return dlock_session_call(lease->session, function, args, n, DLOCK_NEVER);
}

/* Read the tokens granted; false if the answer is no such list. */
static bool
read_grant(dlock_lease *lease, keep_answer *answer)
{
	const dlock_session *s = lease->session;
	size_t		rows = dlock_session_rows(s);

	*answer = KEEP_REFUSED;
	if (rows == 1 && dlock_session_value(s, 0, 0) == NULL)
		return true;
	if (rows != lease->nnames)
		return false;
	for (size_t i = 0; i < rows; i++)
	{
		const char *value = dlock_session_value(s, i, 0);

		lease->tokens[i] = value == NULL ? 0 : strtoll(value, NULL, 10);
		if (lease->tokens[i] <= 0)
			return false;
	}
	*answer = KEEP_GRANTED;
	return true;
}

/* The session has done what was asked of it. */
static void
answered(dlock_lease *lease)
{
	keep_answer answer;

	if (lease->asked == KEEP_CONNECT)
	{
		if (lease->client != NULL)
			dlock_client_log_in(lease->client);
		lease->asked = KEEP_AWAIT;
		keep_connected(&lease->keep, dlock_now_us());
		return;
	}
	dlock_error_clear(&lease->error);
	if (lease->asked == KEEP_ACQUIRE)
	{
		if (!read_grant(lease, &answer))
		{
			dlock_error_set(&lease->error, DLOCK_UNAVAILABLE,
							"the server's answer is not a token");
			dlock_session_close(lease->session);
			lease->asked = KEEP_AWAIT;
			keep_failed(&lease->keep, KEEP_UNAVAILABLE, dlock_now_us());
			return;
		}
		/* asking what a cancelled acquire was granted is no try to acquire */
		if (answer == KEEP_REFUSED && lease->keep.state == KEEP_WAITING)
			dlock_error_set(&lease->error, DLOCK_BUSY,
							lease->nnames > 1 ? "\"%s\" and the other names are not free together" :
							"\"%s\" is not free", lease->names[0]);
	}
	else if (lease->nnames > 1)
	{
		size_t		rows = dlock_session_rows(lease->session);

		answer = rows == lease->nnames ? KEEP_TRUE :
			rows == 0 ? KEEP_GONE : KEEP_PARTLY;
	}
	else
		answer = dlock_session_truth(lease->session) == 1 ? KEEP_TRUE : KEEP_GONE;
	lease->ended_there = answer == KEEP_GONE || answer == KEEP_PARTLY;
	lease->asked = KEEP_AWAIT;
	keep_answered(&lease->keep, answer, lease->tokens[0], dlock_now_us());
}

/* The attempt has failed, as lease->error says; returns whether that is news. */
static bool
attempt_failed(dlock_lease *lease, dlock_event *event)
{
	event->kind = DLOCK_EVENT_TROUBLE;
	event->error = lease->error;
	return lease->keep.state == KEEP_WAITING || lease->keep.state == KEEP_HELD;
}

/* The session could not do what was asked of it. */
static bool
session_failed(dlock_lease *lease, dlock_event *event)
{
	keep_fault	fault = KEEP_UNAVAILABLE;

	lease->error = *dlock_session_error(lease->session);

	/*
	 * A log-in that has worked before will work again: passwords and
	 * directories are sometimes wrong for a while.
	 */
	if (lease->error.error_class == DLOCK_MISUSE && lease->session->refused &&
		(lease->logged_in || lease->keep.reached ||
		 (lease->client != NULL && dlock_client_was_logged_in(lease->client))))
	{
		lease->error.error_class = DLOCK_UNAVAILABLE;
		lease->error.denied = false;
	}
	if (lease->error.error_class == DLOCK_MISUSE)
		fault = KEEP_MISUSE;
	else if (dlock_error_is_deadlock(&lease->error) &&
			 lease->asked == KEEP_ACQUIRE)
		fault = KEEP_DEADLOCK;
	dlock_session_close(lease->session);
	lease->asked = KEEP_AWAIT;
	keep_failed(&lease->keep, fault, dlock_now_us());
	return attempt_failed(lease, event);
}

/*
 * The call has taken too long, or is not wanted any more.  If the server refused what
 * was asked before, and nothing was answered since, that is the reason to tell.
 */
static bool
dropped(dlock_lease *lease, dlock_event *event)
{
	static const char and_before[] = ", and before: ";
	dlock_error cause = lease->error;
	bool		refused = cause.sqlstate[0] != '\0';
	const char *told = strstr(cause.message, and_before);

	dlock_error_set(&lease->error, DLOCK_UNAVAILABLE,
					lease->asked == KEEP_CONNECT ?
					"could not connect to the server in time%s%s" :
					"the server has not answered in time%s%s",
					refused ? and_before : "",
					!refused ? "" :
					told != NULL ? told + strlen(and_before) : cause.message);
	memcpy(lease->error.sqlstate, cause.sqlstate, sizeof(cause.sqlstate));
	lease->error.disconnected = true;
	dlock_session_close(lease->session);
	lease->asked = KEEP_AWAIT;
	return attempt_failed(lease, event);
}

void
dlock_lease_explain_loss(const dlock_lease *lease, bool ended_there,
						 const dlock_error *cause, dlock_error *error)
{
	if (ended_there)
		dlock_error_set(error, DLOCK_LOST,
						"the lease on \"%s\" has ended, or was ended by an operator",
						lease->names[0]);
	else
		dlock_error_set(error, DLOCK_LOST,
						"the lease on \"%s\" could not be renewed in time%s%s",
						lease->names[0], cause->message[0] != '\0' ? ": " : "",
						cause->message);
}

/* Say why it is lost, or could not be acquired. */
static void
explain(dlock_lease *lease, dlock_event *event)
{
	dlock_error cause = lease->error;

	switch (event->kind)
	{
		case DLOCK_EVENT_LOST:
			dlock_lease_explain_loss(lease, lease->ended_there, &cause,
									 &lease->error);
			break;
		case DLOCK_EVENT_FAILED:
			/* the time was up between two attempts, or there was none */
			if (cause.error_class == DLOCK_NO_ERROR)
				dlock_error_set(&lease->error, DLOCK_UNAVAILABLE,
								"the lease on \"%s\" could not be acquired in time",
								lease->names[0]);
			break;
		default:
			break;
	}
	event->error = lease->error;
}

/* Tell the program. */
static void
fill_event(dlock_lease *lease, const keep_action *action, dlock_event *event)
{
	event->given_back = action->given_back;
	switch (action->kind)
	{
		case KEEP_TELL_HELD:
			event->kind = DLOCK_EVENT_HELD;
			break;
		case KEEP_TELL_RENEWED:
			event->kind = DLOCK_EVENT_RENEWED;
			break;
		case KEEP_TELL_LOST:
			event->kind = DLOCK_EVENT_LOST;
			explain(lease, event);
			break;
		case KEEP_TELL_REFUSED:
			event->kind = DLOCK_EVENT_REFUSED;
			explain(lease, event);
			break;
		case KEEP_TELL_FAILED:
			event->kind = DLOCK_EVENT_FAILED;
			explain(lease, event);
			break;
		default:
			event->kind = DLOCK_EVENT_RELEASED;
			if (!action->given_back)
				event->error = lease->error;
			break;
	}
	event->deadline_us = lease->keep.deadline_us;
	event->lost_at_us = lease->keep.lost_at_us;
}

/* Go on with a call under way; true if there is news to tell. */
static bool
go_on(dlock_lease *lease, int64_t until_us, dlock_event *event, bool *again)
{
	int64_t		session_us;

	*again = lease->asked != KEEP_AWAIT;
	if (*again)
		switch (dlock_session_step(lease->session))
		{
			case DLOCK_STEP_WAIT:
				*again = false;
				break;
			case DLOCK_STEP_DONE:
				answered(lease);
				return false;
			case DLOCK_STEP_FAILED:
				return session_failed(lease, event);
		}
	session_us = lease->session != NULL ?
		dlock_session_until_us(lease->session) : DLOCK_NEVER;
	lease->until_us = session_us < until_us ? session_us : until_us;
	return false;
}

bool
dlock_lease_step(dlock_lease *lease, dlock_event *event)
{
	*event = (dlock_event) {.deadline_us = lease->keep.deadline_us};
	if (lease->kept || lease->done)
		return false;
	if (lease->client != NULL && dlock_client_is_closing(lease->client))
		keep_release(&lease->keep, dlock_now_us());
	/* that is no trouble: the next call is made on another connection */
	if (lease->session != NULL && lease->asked == KEEP_AWAIT &&
		dlock_session_close_if_dead(lease->session))
		keep_failed(&lease->keep, KEEP_UNAVAILABLE, dlock_now_us());
	for (;;)
	{
		keep_action action = keep_next(&lease->keep, dlock_now_us());
		bool		started = true;
		bool		rested;
		bool		again;

		switch (action.kind)
		{
			case KEEP_AWAIT:
				if (go_on(lease, action.until_us, event, &again))
					break;
				if (again)
					continue;
				return false;
			case KEEP_DROP:
				if (!dropped(lease, event))
					continue;
				break;
			case KEEP_CONNECT:
				lease->asked = KEEP_CONNECT;
				rested = false;
				if (lease->session == NULL)
					lease->session = dlock_client_lend(lease->client, &rested);
				if (lease->session == NULL)
				{
					dlock_error_set(&lease->error, DLOCK_UNAVAILABLE, "out of memory");
					lease->asked = KEEP_AWAIT;
					keep_failed(&lease->keep, KEEP_UNAVAILABLE, dlock_now_us());
					if (attempt_failed(lease, event))
						break;
					continue;
				}
				dlock_session_hurry(lease->session, action.until_us);
				/* its network may be gone, and an acquire may wait for ever */
				if (rested && dlock_session_is_connected(lease->session))
					started = dlock_session_query(lease->session, "SELECT 1", NULL, 0,
												  DLOCK_NEVER);
				else
					started = dlock_session_connect(lease->session, DLOCK_NEVER);
				if (started || !session_failed(lease, event))
					continue;
				break;
			case KEEP_ACQUIRE:
			case KEEP_RENEW:
			case KEEP_RELEASE:
			case KEEP_LEAVE:
				lease->asked = action.kind;
				started = call(lease, &action);
				if (started || !session_failed(lease, event))
					continue;
				break;
			case KEEP_TELL_HELD:
			case KEEP_TELL_RENEWED:
			case KEEP_TELL_LOST:
			case KEEP_TELL_REFUSED:
			case KEEP_TELL_FAILED:
			case KEEP_TELL_RELEASED:
				fill_event(lease, &action, event);
				if (action.kind == KEEP_TELL_HELD && lease->client != NULL)
					dlock_client_keep(lease->client, lease);
				break;
			case KEEP_DONE:
				if (lease->client != NULL)
					dlock_client_refused(lease->client, lease);
				else
					dlock_session_close(lease->session);
				lease->done = true;
				lease->until_us = DLOCK_NEVER;
				return false;
		}
		event->deadline_us = lease->keep.deadline_us;
		event->lost_at_us = lease->keep.lost_at_us;
		lease->until_us = 0;
		return true;
	}
}

int
dlock_lease_fd(const dlock_lease *lease)
{
	return lease->session == NULL ? -1 : dlock_session_fd(lease->session);
}

short
dlock_lease_events(const dlock_lease *lease)
{
	return lease->session == NULL ? 0 : dlock_session_events(lease->session);
}

int64_t
dlock_lease_until_us(const dlock_lease *lease)
{
	/* what there is to do for a lease that is kept, its client does */
	return lease->kept ? DLOCK_NEVER : lease->until_us;
}

bool
dlock_lease_is_done(const dlock_lease *lease)
{
	return lease->kept ? dlock_client_look(lease->client, lease).done :
		lease->done;
}

bool
dlock_lease_is_held(const dlock_lease *lease)
{
	return lease->kept ? dlock_client_look(lease->client, lease).state == KEEP_HELD :
		keep_is_held(&lease->keep, dlock_now_us());
}

dlock_lease_state
dlock_lease_state_now(const dlock_lease *lease)
{
	switch (lease->kept ? dlock_client_look(lease->client, lease).state :
			lease->keep.state)
	{
		case KEEP_NEW:
			return DLOCK_LEASE_NEW;
		case KEEP_WAITING:
			return DLOCK_LEASE_WAITING;
		case KEEP_HELD:
			return dlock_lease_is_held(lease) ? DLOCK_LEASE_HELD :
				DLOCK_LEASE_IS_LOST;
		case KEEP_LOST:
			return DLOCK_LEASE_IS_LOST;
		case KEEP_ENDED:
			break;
	}
	return DLOCK_LEASE_ENDED;
}

int64_t
dlock_lease_token(const dlock_lease *lease, size_t name)
{
	return name < lease->nnames && lease->keep.was_held ? lease->tokens[name] : 0;
}

int64_t
dlock_lease_deadline_us(const dlock_lease *lease)
{
	if (lease->kept)
		return dlock_client_look(lease->client, lease).deadline_us;
	return lease->keep.was_held ? lease->keep.deadline_us : 0;
}

int64_t
dlock_lease_lost_at_us(const dlock_lease *lease)
{
	if (lease->kept)
		return dlock_client_look(lease->client, lease).lost_at_us;
	return lease->keep.was_held ? lease->keep.lost_at_us : 0;
}

const char *
dlock_lease_owner(const dlock_lease *lease)
{
	return lease->owner;
}

const char *
dlock_lease_request(const dlock_lease *lease)
{
	return lease->request;
}

dlock_engine
dlock_lease_engine(const dlock_lease *lease)
{
	return lease->client != NULL ? dlock_client_engine(lease->client) :
		dlock_session_engine(lease->session);
}

/* Wait until there is something to do for a lease. */
static void
wait_for(const dlock_lease *lease)
{
	struct pollfd p = {
		.fd = dlock_lease_fd(lease), .events = dlock_lease_events(lease)
	};

	if (lease->client != NULL)
	{
		/* another thread may close the client, which the next step notices */
		int64_t		look_us = dlock_now_us() + CLOSING_SEEN_US;

		dlock_client_wait(lease->client, p.fd, p.events,
						  lease->until_us < look_us ? lease->until_us : look_us);
		return;
	}
	poll(&p, 1, dlock_timeout_ms(dlock_lease_until_us(lease)));
}

bool
dlock_lease_acquire(dlock_lease *lease, dlock_error *error)
{
	dlock_error_clear(error);
	dlock_lease_start(lease);
	for (;;)
	{
		dlock_event event;

		while (dlock_lease_step(lease, &event))
			switch (event.kind)
			{
				case DLOCK_EVENT_HELD:
					return true;
				case DLOCK_EVENT_LOST:
				case DLOCK_EVENT_REFUSED:
				case DLOCK_EVENT_FAILED:
					*error = event.error;
					return false;
				default:
					break;
			}
		if (lease->client != NULL)
			dlock_client_go_on(lease->client);
		if (dlock_lease_is_held(lease))
			return true;
		if (lease->done || lease->kept || lease->keep.state > KEEP_HELD)
		{
			dlock_error_set(error, DLOCK_MISUSE, "the lease has ended before");
			return false;
		}
		wait_for(lease);
	}
}

void
dlock_lease_end(dlock_lease *lease)
{
	dlock_lease_release(lease);
	for (;;)
	{
		dlock_event event;

		while (dlock_lease_step(lease, &event))
			;
		if (lease->kept)
			dlock_client_await(lease->client, lease);
		if (lease->kept || lease->done)
			return;
		if (lease->client != NULL)
			dlock_client_go_on(lease->client);
		wait_for(lease);
	}
}
