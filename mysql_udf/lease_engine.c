/*
 * lease_engine.c
 *	  The callers' side of the engine: hand a call to the batcher, and wait.
 *
 * One thread, the batcher (lease_batch.c), changes the lock table for all
 * connections of the server, or lends that work to a caller that is alone.  A caller puts
 * its call into a list, and sleeps until the call is answered, its statement is killed,
 * its client is gone or its time is up; it looks for these 20 times a second.  One
 * mutex protects all that is shared (lease_mutex.c).  A caller that has been answered
 * does not need the mutex any more, so all callers that are answered by one commit go on
 * at once.
 *
 * The caller and the engine each have a reference to a call.  A caller that gives up takes
 * the call out of the list or queue that it is in.  If the batcher is just working on the
 * call, it is abandoned: the batcher gives back what it is granted.  A caller that is
 * granted something looks once more, and gives that back itself if it has been killed, or
 * its client has gone, since its last look.  An answered release stays with the engine
 * until it has been written.
 *
 * The batcher lives until the server ends, so the library stays loaded although its
 * functions are dropped.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE				/* sem_clockwait(), strerror_r() and more */
#include "lease_engine.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "connection.h"
#include "lease_batch.h"
#include "lease_call_end.h"
#include "lease_early.h"
#include "lease_guards.h"
#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_owed.h"
#include "lease_pace.h"
#include "lease_settings.h"
#include "lease_stats.h"
#include "lease_tenure.h"
#include "lease_thread.h"
#include "lease_waiters.h"
#include "lease_waiting.h"
#include "lease_watch.h"

static bool started = false;
static atomic_size_t ncallers = 0;	/* in dlock_engine_call() */

/*
 * How long a call that set no time waits for a server that does not answer: as long as
 * the batcher does.
 */
#define PATIENCE_US		(CONNECTION_TIMEOUT * INT64_C(1000000))

/* How long dlock_engine_drain() waits. */
#define DRAIN_US		10000000

/* ----------------------------------------------------------------
 * Starting
 * ----------------------------------------------------------------
 */

/* The error of a call for which there is no memory. */
static bool
no_memory(dlock_answer *answer)
{
	strcpy(answer->sqlstate, "53200");
	strcpy(answer->message, "out of memory");
	return false;
}

/* Start the batcher, if it does not run; the mutex is held. */
static bool
start(dlock_answer *answer)
{
	char		reason[128];
	int			error;

	if (started)
		return true;
	if (!hash_start())
	{
		snprintf(answer->sqlstate, sizeof(answer->sqlstate), "53000");
		snprintf(answer->message, sizeof(answer->message),
				 "could not get random bytes: %s",
				 strerror_r(errno, reason, sizeof(reason)));
		return false;
	}
	if (!lease_owed_begin() || !lease_waiters_begin())
		return no_memory(answer);
	lease_run_begin();
	lease_mutex_begin();
	lease_stats_reset(lease_wall());
	(void) dlock_server_socket();	/* makes its copy in a statement */

	error = lease_thread_start(lease_batch_main, "dlock");
	if (error != 0)
	{
		snprintf(answer->sqlstate, sizeof(answer->sqlstate), "53000");
		snprintf(answer->message, sizeof(answer->message),
				 "could not start a thread: %s",
				 strerror_r(error, reason, sizeof(reason)));
		return false;
	}
	started = true;
	return true;
}

/* ----------------------------------------------------------------
 * Waiting for an answer
 * ----------------------------------------------------------------
 */

/* Sleep until a call has been answered, or a time has come. */
static bool
sleep_until(lease_call *call, int64_t until_us)
{
	struct timespec t = lease_monotonic(until_us);

	while (sem_clockwait(&call->done, CLOCK_MONOTONIC, &t) != 0)
		if (errno != EINTR)
			return false;
	return true;
}

/*
 * Check whether the calling statement was killed, or its client is gone.  That takes a
 * system call, so the mutex is not held.
 */
static bool
is_unwanted(bool *gone)
{
	bool		killed = dlock_thd_killed(dlock_caller_thd());

	*gone = !killed && !dlock_thd_connected(dlock_caller_thd());
	return killed || *gone;
}

/*
 * Check whether a call is still wanted, and give it up if not: true when it has been
 * answered.  If the server does not answer the batcher, a call that looks is answered by
 * what is known.
 */
static bool
look(lease_call *call)
{
	bool		gone;
	bool		unwanted = is_unwanted(&gone);
	bool		over;

	lease_lock();
	if (unwanted)
		lease_call_give_up(call, LEASE_GIVEN_UP, lease_given_up(gone));
	else if (call->place == LEASE_PLACE_LIST &&
			 lease_batch_keeps_waiting(call))
		(void) lease_early_look_blind(call);
	over = call->answered;
	lease_unlock();
	return over;
}

/*
 * When a call has waited for long enough.  A call that does not wait for a lease is made
 * at once; if the server does not answer, it waits for PATIENCE_US, or for a longer
 * lock_timeout.
 */
static int64_t
get_end_us(const dlock_call *request, int64_t start_us)
{
	if (request->wait_us > 0)
		return start_us + request->wait_us;
	if (request->wait_us < 0 || request->kind == DLOCK_CALL_APPLY_ALL)
		return INT64_MAX;
	return start_us + (settings->lock_timeout_us > PATIENCE_US ?
					   settings->lock_timeout_us : PATIENCE_US);
}

/*
 * The time that a call may wait is over: true when it has been answered.  A call that
 * does not stand in line is left to the batcher, which may find the name free.  If the
 * batcher itself has to wait for the server, that is an error, because nobody knows
 * whether the name is free; what may still be granted is given back.  It is also an error
 * for a waiter whose name has come free but cannot be granted.  A call that set no time
 * and is being committed waits for its commit.
 */
static bool
end_wait(lease_call *call)
{
	bool		over;

	lease_lock();
	if (!call->answered && lease_batch_keeps_waiting(call) &&
		(call->wait_us != 0 || call->place == LEASE_PLACE_LIST))
		lease_call_give_up(call, "55P03",
						   "could not decide on the lease in its time: the server does not answer");
	else if (!call->answered && call->place == LEASE_PLACE_LINE)
	{
		(void) lease_call_withdraw(call);
		call->answer.outcome = LEASE_BUSY;
		call->answer.yes = false;
		if (call->kind != DLOCK_CALL_WAIT)
			lease_count(LEASE_COUNT_timed_out, 1);
		call->answered = true;
	}
	over = call->answered;
	lease_unlock();
	return over;
}

/* Sleep until a call has been answered, or withdraw it. */
static void
wait_for_answer(lease_call *call)
{
	int64_t		look_us = call->start_us + LEASE_LOOK_INTERVAL_US;
	int64_t		end_us = call->end_us;

	while (!sleep_until(call, lease_earlier(end_us, look_us)))
	{
		int64_t		now_us = lease_now();

		if (now_us >= end_us)
		{
			if (end_wait(call))
				break;
			end_us = look_us;	/* the batcher is at it */
		}
		if (now_us >= look_us)
		{
			if (look(call))
				break;
			look_us = now_us + LEASE_LOOK_INTERVAL_US;
			end_us = call->end_us;
		}
	}
	if (call->wait_us != 0 && call->waiting_since_us != 0 &&
		call->kind != DLOCK_CALL_WAIT)
	{
		lease_lock();
		lease_count_wait(lease_now() - call->start_us);
		lease_unlock();
	}
}

/*
 * A call has been granted something: check whether it is still wanted, and give the grant
 * back if not.  Otherwise a lease of which nobody knows would keep everybody out.
 */
static void
look_at_grant(lease_call *call)
{
	bool		gone;

	if (!is_unwanted(&gone))
		return;
	lease_lock();
	lease_call_return(call);
	lease_pace_hurry();
	lease_unlock();
	strcpy(call->answer.sqlstate, LEASE_GIVEN_UP);
	strcpy(call->answer.message, lease_given_up(gone));
}

/*
 * Hand a call over and wait for its answer: false if that is an error.  The caller keeps
 * its reference to the call.  "request" is NULL if the call is not about a lease.
 */
static bool
make_call(lease_call *call, const dlock_call *request, dlock_answer *answer)
{
	ncallers++;
	dlock_wait_begin();
	lease_lock();
	if (!start(answer))
		lease_unlock();
	else
	{
		call->references++;
		if (request != NULL)
		{
			call->end_us = get_end_us(request, call->start_us);
			lease_pace_note_caller(call->start_us);
		}
		if (!lease_batch_lend(call))
			lease_pace_submit(call);
		lease_unlock();
		wait_for_answer(call);
		if (call->abandoned)
		{
			/* the batcher may be filling in the rest */
			strcpy(answer->sqlstate, call->answer.sqlstate);
			strcpy(answer->message, call->answer.message);
			answer->outcome = LEASE_BUSY;	/* unless it is an error */
		}
		else
		{
			if (lease_call_is_granted(call))
				look_at_grant(call);
			*answer = call->answer;
			/* the caller's from now on */
			call->answer.holders = NULL;
			call->answer.tokens = NULL;
			call->answer.done = NULL;
			call->answer.unmasked = NULL;
		}
	}
	dlock_wait_end();
	ncallers--;
	return answer->sqlstate[0] == '\0';
}

/* Room for "size" bytes for each of a call's names, all zero; NULL if memory is short. */
static void *
make_room(const lease_call *call, size_t size)
{
	return calloc(call->nnames + 1, size);
}

/*
 * Have the end of the calling connection reported to us (lease_watch()): false with an
 * error in the answer.
 */
static bool
watch_caller(dlock_answer *answer)
{
	const char *problem;
	const char *sqlstate;
	bool		runs;

	lease_lock();
	runs = start(answer);
	lease_unlock();
	if (!runs)
		return false;
	problem = lease_watch(&sqlstate);
	if (problem == NULL)
		return true;
	snprintf(answer->sqlstate, sizeof(answer->sqlstate), "%s", sqlstate);
	snprintf(answer->message, sizeof(answer->message), "%s", problem);
	return false;
}

/* The call of a request, without its times and its caller; NULL if memory is short. */
static lease_call *
create_call(const dlock_call *request)
{
	lease_call *call = lease_call_create(request->nnames);
	bool		done = true;

	if (call == NULL)
		return NULL;
	call->kind = request->kind;
	call->request = request->request;
	lease_call_copy(&call->request.owner, call->owner,
					request->request.owner);
	lease_call_copy(&call->request.request, call->request_id,
					request->request.request);
	for (size_t i = 0; i < request->nnames; i++)
		lease_call_copy(&call->names[i], (char *) call->names[i].data,
						request->names[i]);
	if (lease_call_is_of_several(call))
	{
		call->answer.tokens = make_room(call, sizeof(uint64_t));
		call->outcomes = make_room(call, sizeof(uint8_t));
		done = call->answer.tokens != NULL && call->outcomes != NULL;
	}
	if (request->kind == DLOCK_CALL_APPLY_EACH)
		done &= (call->answer.done = make_room(call, sizeof(bool))) != NULL;
	if (request->tokens != NULL)
	{
		call->match = make_room(call, sizeof(uint64_t));
		done &= call->match != NULL;
		if (call->match != NULL)
			memcpy(call->match, request->tokens,
				   request->nnames * sizeof(uint64_t));
	}
	if (done)
		return call;
	lease_call_unref(call);
	return NULL;
}

bool
dlock_engine_call(const dlock_call *request, dlock_answer *answer)
{
	lease_call *call;
	bool		done = false;

	memset(answer, 0, sizeof(*answer));
	if (request->request.op == LEASE_ACQUIRE &&
		request->request.kind == LEASE_SESSION &&
		request->kind == DLOCK_CALL_APPLY && !watch_caller(answer))
		return false;
	lease_lock();
	/* a connection that does something else is not in the middle of a guard any more */
	if (request->kind != DLOCK_CALL_CHECK_GUARD)
		lease_guards_remove(request->caller->connection_id);
	if (request->kind == DLOCK_CALL_APPLY && request->wait_us == 0)
	{
		lease_pace_note_caller(lease_now());
		done = lease_early_release(request, answer) ||
			lease_early_refuse(request, answer);
	}
	else
		done = lease_early_look(request, answer);
	lease_unlock();
	if (done)
		return true;
	call = create_call(request);
	if (call == NULL)
		return no_memory(answer);
	call->caller = *request->caller;
	call->wait_us = request->wait_us;
	call->wanted = request->wanted;
	call->watches = request->kind == DLOCK_CALL_WAIT ||
		lease_call_is_of_several(call);
	done = make_call(call, request, answer);
	lease_call_unref(call);
	return done;
}

bool
dlock_engine_extend_guard(uint64_t connection_id)
{
	bool		extended;

	lease_lock();
	extended = lease_guards_extend(connection_id, lease_now());
	lease_unlock();
	return extended;
}

void
dlock_engine_end_guard(uint64_t connection_id)
{
	lease_lock();
	lease_guards_remove(connection_id);
	lease_unlock();
}

bool
dlock_engine_drain(void)
{
	int64_t		end_us = lease_now() + DRAIN_US;
	bool		drained;

	dlock_wait_begin();
	while (!(drained = (ncallers == 0)) && lease_now() < end_us &&
		   !dlock_thd_killed(dlock_caller_thd()))
		usleep(LEASE_LOOK_INTERVAL_US);
	dlock_wait_end();
	return drained;
}

/*
 * Have the engine do something that is not about a lease, and wait for it: false with an
 * error in the answer.
 */
static bool
ask_engine(lease_internal what, dlock_answer *answer)
{
	lease_call *call = lease_call_create(0);
	bool		done;

	memset(answer, 0, sizeof(*answer));
	if (call == NULL)
		return no_memory(answer);
	call->internal = what;
	done = make_call(call, NULL, answer);
	lease_call_unref(call);
	return done;
}

bool
dlock_engine_settle(dlock_answer *answer)
{
	bool		is_needed;

	lease_lock();
	/* on a server that has become a replica nothing can be written */
	is_needed = (lease_owed_unwritten() > 0 || !lease_is_settled()) && !tenure->read_only;
	lease_unlock();
	/* that is no error, even if it has become one only now */
	return !is_needed || ask_engine(LEASE_INTERNAL_SETTLE, answer) ||
		strcmp(answer->sqlstate, "25006") == 0;
}

bool
dlock_engine_reload(dlock_answer *answer)
{
	lease_lock();
	lease_reload_soon();
	lease_unlock();
	return ask_engine(LEASE_INTERNAL_SETTLE, answer);
}

int64_t
dlock_engine_max_ttl_us(void)
{
	int64_t		max_us = lease_settings_max_ttl_us();
	dlock_answer answer;

	if (max_us != 0)
		return max_us;
	(void) ask_engine(LEASE_INTERNAL_SETTINGS, &answer);
	max_us = lease_settings_max_ttl_us();
	return max_us != 0 ? max_us : LEASE_MAX_TTL_DEFAULT * INT64_C(1000000);
}

/* ----------------------------------------------------------------
 * Looking
 * ----------------------------------------------------------------
 */

/* Release the mutex, and answer with a text; NULL: memory was short. */
static char *
answer_json(char *json, dlock_answer *answer)
{
	lease_unlock();
	if (json == NULL)
		(void) no_memory(answer);
	return json;
}

char *
dlock_engine_waiters(const dlock_caller *caller, dlock_answer *answer)
{
	lease_lock();
	return answer_json(lease_waiting_json(caller), answer);
}

char *
dlock_engine_unwritten(dlock_answer *answer)
{
	lease_lock();
	return answer_json(lease_owed_json(lease_now()), answer);
}

char *
dlock_engine_stats(dlock_answer *answer)
{
	lease_lock();
	if (!start(answer))
	{
		lease_unlock();
		return NULL;
	}
	return answer_json(lease_stats_json(lease_waiters_connections() +
										lease_calls_visit_served(NULL, NULL), 0),
					   answer);
}

void
dlock_engine_reset_stats(void)
{
	lease_lock();
	lease_stats_reset(lease_wall());
	lease_unlock();
}
