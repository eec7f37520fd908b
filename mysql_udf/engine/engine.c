/*
 * engine.c
 *	  The callers' side: a call comes in, waits, and leaves.
 *
 * Any number of the server's threads call at once.  A call lives on the stack of its
 * caller's thread, which has it decided (buffer_take()), and then appends the buffer or
 * sleeps until it is answered, its statement is killed, its client is gone or its time is
 * up.  It looks for a kill 20 times a second and at its socket once, without the mutex.
 * Once a call is answered nobody else knows of it, so that all callers who were answered
 * by one append go on at once, without the mutex.
 *
 * A caller that leaves before its answer takes its call out of the lists, and gives back
 * what it may have been granted.  A caller that was granted something looks once more at
 * its client first.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE				/* sem_clockwait() */
#include "engine.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "connection.h"
#include "lease_engine.h"

/* How often a call that waits looks for a kill, and at its socket. */
#define LOOK_US			50000
#define SOCKET_US		1000000

/* How long a call that set no time waits for a server that does not answer. */
#define PATIENCE_US		(CONNECTION_TIMEOUT * INT64_C(1000000))

/* How long dlock_engine_drain() waits. */
#define DRAIN_US		10000000

/* How many leases a page of the views has, more or less. */
#define PAGE_LEASES		256

static atomic_size_t ncallers = 0;

/* Answer with the error of a call for which there is no memory. */
static bool
no_memory(dlock_answer *answer)
{
	strcpy(answer->sqlstate, "53200");
	strcpy(answer->message, "out of memory");
	return false;
}

/* ----------------------------------------------------------------
 * Waiting
 * ----------------------------------------------------------------
 */

/* Sleep until a call is woken: false if a time has come before. */
static bool
sleep_until(call *c, int64_t until_us)
{
	struct timespec t = lease_monotonic(until_us);

	while (sem_clockwait(c->woken, CLOCK_MONOTONIC, &t) != 0)
		if (errno != EINTR)
			return false;
	return true;
}

/* Leave, with an error: take the call out, and give back what it was granted. */
static void
leave(call *c, const char *sqlstate, const char *message)
{
	bool		was_decided = buffer_leave(c);

	calls_refuse(c, sqlstate, "%s", message);
	if (was_decided)
	{
		calls_give_back(c);
		calls_make_woken();
	}
}

/*
 * The time that a call may wait is over.  If it waits in a queue, it has not got its lease.
 * If it waits for the server, nobody knows; and a call that set no time, and is being
 * appended, goes on waiting.
 */
static void
end_wait(call *c)
{
	if (c->nplaces > 0)
	{
		queue_leave(c);
		c->answer->outcome = LEASE_BUSY;
		c->answer->yes = false;
		c->over_us = 0;
		calls_finish(c);
	}
	else if (buffer_waits_for_clock())
		c->limit_us = lease_now() + LOOK_US;	/* that is over soon */
	else
		leave(c, "55P03",
			  "could not decide on the lease in its time: the server does not answer");
}

/* Have the list of processes say what a call waits for. */
static void
show_state(call *c)
{
	const char *before = dlock_show_state(c->is_queued ? "waiting for a lease" :
										  "waiting for the log of leases");

	if (!c->shows_state)
		c->state_before = before;
	c->shows_state = true;
}

/* Look whether a call is still wanted, and leave if not. */
static void
look(call *c, bool at_socket)
{
	bool		killed = dlock_thd_killed(dlock_caller_thd());
	bool		gone = !killed && at_socket && !dlock_thd_connected(dlock_caller_thd());

	if (!killed && !gone)
		return;
	engine_lock();
	if (!c->answered)
		leave(c, "70100", gone ? "canceled because the client is gone" :
			  "canceled while waiting for a lease");
	engine_unlock();
}

/*
 * Wait for the answer, and append if that is this call's part.  A post may be a late one,
 * for an earlier call of this thread.
 */
static void
wait_for_answer(call *c)
{
	int64_t		look_us = c->start_us + LOOK_US;
	int64_t		socket_us = c->start_us + SOCKET_US;
	bool		answered = false;

	while (!answered)
	{
		int64_t		lead_us = c->lead_us;
		bool		was_woken = sleep_until(c, lease_earlier(lease_earlier(c->limit_us, look_us),
															 lead_us));
		int64_t		now_us;

		if (c->answered)
			return;
		now_us = lease_now();
		if (was_woken || now_us >= lead_us || now_us >= c->limit_us)
		{
			engine_lock();
			if (c->continues)
			{
				c->continues = false;
				buffer_take(c);
			}
			buffer_lead(c);
			if (!c->answered && now_us >= c->limit_us)
				end_wait(c);
			buffer_appoint();
			answered = c->answered;
			engine_unlock();
		}
		else
		{
			show_state(c);
			look(c, now_us >= socket_us);
			look_us = now_us + LOOK_US;
			if (now_us >= socket_us)
				socket_us = now_us + SOCKET_US;
		}
	}
}

/*
 * When a call has waited for long enough.  One that does not wait for a lease is made at
 * once; if the server does not answer, it waits for PATIENCE_US, or for a longer
 * lock_timeout.
 */
static int64_t
get_end_us(const dlock_call *asked, int64_t start_us)
{
	if (asked->wait_us > 0)
		return start_us + asked->wait_us;
	if (asked->wait_us < 0 || asked->kind == DLOCK_CALL_APPLY_ALL)
		return INT64_MAX;
	return start_us + (settings->lock_timeout_us > PATIENCE_US ?
					   settings->lock_timeout_us : PATIENCE_US);
}

/* ----------------------------------------------------------------
 * Calling
 * ----------------------------------------------------------------
 */

/* What a thread sleeps by; one that has ended leaves it to another. */
typedef struct waker
{
	sem_t		semaphore;
	struct waker *next;
} waker;

static __thread waker *mine = NULL;
static waker *unused = NULL;
static pthread_mutex_t unused_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t waker_key;
static pthread_once_t waker_once = PTHREAD_ONCE_INIT;

/* A thread ends; its semaphore may still be posted. */
static void
leave_waker(void *waker_of_thread)
{
	waker	   *w = waker_of_thread;

	pthread_mutex_lock(&unused_mutex);
	w->next = unused;
	unused = w;
	pthread_mutex_unlock(&unused_mutex);
}

static void
make_waker_key(void)
{
	(void) pthread_key_create(&waker_key, leave_waker);
}

/* The semaphore of this thread, which is never freed; NULL if memory is short. */
static sem_t *
own_semaphore(void)
{
	if (mine != NULL)
		return &mine->semaphore;
	pthread_once(&waker_once, make_waker_key);
	pthread_mutex_lock(&unused_mutex);
	mine = unused;
	if (mine != NULL)
		unused = mine->next;
	pthread_mutex_unlock(&unused_mutex);
	if (mine == NULL)
	{
		mine = malloc(sizeof(waker));
		if (mine == NULL)
			return NULL;
		sem_init(&mine->semaphore, 0, 0);
	}
	(void) pthread_setspecific(waker_key, mine);
	return &mine->semaphore;
}

/* Give a call its memory: false if memory is short. */
static bool
prepare(call *c)
{
	size_t		n = c->asked->nnames + 1;
	bool		several = c->asked->kind == DLOCK_CALL_ACQUIRE_ALL ||
		c->asked->kind == DLOCK_CALL_ACQUIRE_ANY;

	c->watches = several || c->asked->kind == DLOCK_CALL_WAIT;
	if (several)
	{
		c->answer->tokens = calloc(n, sizeof(uint64_t));
		c->outcomes = calloc(n, sizeof(uint8_t));
		return c->answer->tokens != NULL && c->outcomes != NULL;
	}
	if (c->asked->kind != DLOCK_CALL_APPLY_EACH)
		return true;
	c->answer->done = calloc(n, sizeof(bool));
	return c->answer->done != NULL;
}

/* Say whether a call was granted something. */
static bool
is_granted(const call *c)
{
	return c->over_us != 0 && c->answer->sqlstate[0] == '\0' &&
		lease_is_granted(c->answer->outcome);
}

/*
 * A call was granted something: give that back if nobody would learn of it, because the
 * statement was killed or the client has gone since the last look.
 */
static void
look_at_grant(call *c)
{
	bool		killed = dlock_thd_killed(dlock_caller_thd());

	if (!killed && dlock_thd_connected(dlock_caller_thd()))
		return;
	engine_lock();
	calls_give_back(c);
	calls_make_woken();
	engine_unlock();
	strcpy(c->answer->sqlstate, "70100");
	strcpy(c->answer->message, killed ? "canceled while waiting for a lease" :
		   "canceled because the client is gone");
}

/* Make a call that was prepared, and wait for its answer; the mutex is held. */
static void
make(call *c)
{
	bool		answered;

	dlock_wait_begin();
	buffer_take(c);
	buffer_lead(c);
	answered = c->answered;
	if (answered)
		buffer_appoint();		/* a waiter that was granted what this call gave back */
	engine_unlock();
	if (!answered)
		wait_for_answer(c);
	if (c->shows_state)
		(void) dlock_show_state(c->state_before);
	if (is_granted(c))
		look_at_grant(c);
	dlock_wait_end();
}

/*
 * A call for a session lease: have the end of the connection reported to us.  The mutex is
 * held, and released meanwhile.  False with an error in the answer.
 */
static bool
watch_caller(const dlock_call *asked, dlock_answer *answer)
{
	bool		watched;

	if (asked->request.op != LEASE_ACQUIRE || asked->request.kind != LEASE_SESSION ||
		asked->kind != DLOCK_CALL_APPLY)
		return true;
	engine_unlock();
	watched = session_watch(answer);
	engine_lock();
	return watched;
}

bool
dlock_engine_call(const dlock_call *asked, dlock_answer *answer)
{
	call		c = {
		.asked = asked, .answer = answer, .request = asked->request,
		.start_us = lease_now(), .lead_us = INT64_MAX
	};

	memset(answer, 0, sizeof(*answer));
	if (!prepare(&c) || own_semaphore() == NULL)
	{
		free(c.outcomes);
		return no_memory(answer);
	}
	ncallers++;
	c.woken = own_semaphore();
	engine_lock();
	c.end_us = c.limit_us = get_end_us(asked, c.start_us);
	if (!buffer_start(answer) || !watch_caller(asked, answer))
		engine_unlock();
	else if ((c.account = image_account_get(dlock_caller_user(asked->caller),
											dlock_caller_host(asked->caller))) == NULL)
	{
		engine_unlock();
		(void) no_memory(answer);
	}
	else if (asked->kind == DLOCK_CALL_READ && buffer_is_known() &&
			 !buffer_reads_tail() && !state_has_guards(asked->names[0]))
	{
		if (!calls_refuse_caller(&c) && !look_at(asked, answer))
			(void) no_memory(answer);
		engine_unlock();
	}
	else
		make(&c);
	free(c.outcomes);
	if (c.places != &c.one)
		free(c.places);
	ncallers--;
	return answer->sqlstate[0] == '\0';
}

/* Wait for something that the engine does, polling: false if it did not come in time. */
static bool
poll_until(bool (*has_come) (void), int64_t end_us)
{
	bool		come;

	dlock_wait_begin();
	while (!(come = has_come()) && lease_now() < end_us &&
		   !dlock_thd_killed(dlock_caller_thd()))
		usleep(LOOK_US);
	dlock_wait_end();
	return come;
}

static bool
no_caller(void)
{
	return ncallers == 0;
}

bool
dlock_engine_drain(void)
{
	return poll_until(no_caller, lease_now() + DRAIN_US);
}

int64_t
dlock_engine_max_ttl_us(void)
{
	int64_t		max_us = lease_settings_max_ttl_us();
	dlock_answer answer = {0};

	if (max_us != 0)
		return max_us;
	engine_lock();
	(void) buffer_start(&answer);
	engine_unlock();
	(void) poll_until(lease_settings_are_read, lease_now() + PATIENCE_US);
	max_us = lease_settings_max_ttl_us();
	return max_us != 0 ? max_us : LEASE_MAX_TTL_DEFAULT * INT64_C(1000000);
}

bool
dlock_engine_settle(dlock_answer *answer)
{
	memset(answer, 0, sizeof(*answer));
	dlock_wait_begin();
	while (!buffer_is_settled() && !dlock_thd_killed(dlock_caller_thd()))
		usleep(1000);
	dlock_wait_end();
	return true;
}

/* Wait until the log has been loaded: false with an error in the answer. */
static bool
look_at_nothing(dlock_answer *answer)
{
	static const lease_bytes any = {"-", 1};
	static const dlock_caller nobody;
	const dlock_call question = {
		.kind = DLOCK_CALL_READ, .names = &any, .nnames = 1, .caller = &nobody,
		.request = {.op = LEASE_RENEW}, .is_operator = true
	};
	bool		looked = dlock_engine_call(&question, answer);

	free(answer->holders);
	answer->holders = NULL;
	return looked;
}

bool
dlock_engine_reload(dlock_answer *answer)
{
	bool		started;

	memset(answer, 0, sizeof(*answer));
	engine_lock();
	started = buffer_start(answer);
	buffer_reload();
	engine_unlock();
	if (!started)
		return false;
	(void) poll_until(buffer_is_given_up, INT64_MAX);
	return look_at_nothing(answer);
}

/* ----------------------------------------------------------------
 * Guards
 * ----------------------------------------------------------------
 */

/* A guard that was announced stays announced, and is looked at in the last step. */
bool
dlock_engine_extend_guard(uint64_t connection_id)
{
	return true;
}

/* One that has failed ends as soon as it is in somebody's way. */
void
dlock_engine_end_guard(uint64_t connection_id)
{
}

/* ----------------------------------------------------------------
 * Looking
 * ----------------------------------------------------------------
 */

/* Release the mutex, and answer with a text; NULL: memory was short. */
static char *
answer_json(char *json, dlock_answer *answer)
{
	engine_unlock();
	if (json == NULL)
		(void) no_memory(answer);
	return json;
}

char *
dlock_engine_waiters(const dlock_caller *caller, dlock_answer *answer)
{
	engine_lock();
	return answer_json(queue_json(), answer);
}

bool
dlock_engine_pages(size_t *pages, dlock_answer *answer)
{
	if (!look_at_nothing(answer))
		return false;
	engine_lock();
	*pages = state_parts(PAGE_LEASES);
	engine_unlock();
	return true;
}

char *
dlock_engine_page(size_t page, size_t pages, dlock_answer *answer)
{
	engine_lock();
	return answer_json(look_at_page(page, pages), answer);
}

char *
dlock_engine_stats(dlock_answer *answer)
{
	engine_lock();
	if (!buffer_start(answer))
	{
		engine_unlock();
		return NULL;
	}
	return answer_json(lease_stats_json(queue_waiters(), state_count()), answer);
}

void
dlock_engine_reset_stats(void)
{
	engine_lock();
	lease_stats_reset(lease_wall());
	engine_unlock();
}
