/*
 * lease_mutex.c
 *	  The engine's mutex, the batcher's sleep, and its questions to the server.
 *
 * One mutex protects all that the threads of the engine share.  No thread waits for the
 * server or the disk with the mutex held: the batcher, or the caller that borrows its
 * work, releases it by lease_ask(), and takes it again by lease_resume().  Any thread may
 * ask for what is known here, with the mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_mutex.h"

#include <pthread.h>

#include "lease_moment.h"
#include "lease_thread.h"

/* An answer of the server that takes longer is a slow one. */
#define SLOW_US			50000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work;		/* there is something for the batcher */
static int64_t sleeps_until_us = 0; /* 0: it does not */
static int64_t asks_since_us = 0;	/* when the batcher began to wait for the server;
									 * 0: it does not wait */
static int64_t slow_us = 0;		/* when the server last took long, or was lost */

/* Prepare the batcher's sleep, before there is a batcher. */
void
lease_mutex_begin(void)
{
	lease_thread_begin_sleep(&work);
}

void
lease_lock(void)
{
	pthread_mutex_lock(&mutex);
}

void
lease_unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

/*
 * The batcher sleeps until a time, or until it is woken.  The mutex is held, and
 * released meanwhile.
 */
void
lease_sleep_until(int64_t until_us)
{
	struct timespec t = lease_monotonic(until_us);

	sleeps_until_us = until_us;
	pthread_cond_timedwait(&work, &mutex, &t);
	sleeps_until_us = 0;
}

/* Until when the batcher sleeps; 0: it does not. */
int64_t
lease_sleeps_until_us(void)
{
	return sleeps_until_us;
}

/* There is something for the batcher. */
void
lease_wake(void)
{
	pthread_cond_signal(&work);
}

/* The same, at a time: wake the batcher if it would sleep longer. */
void
lease_wake_before(int64_t due_us)
{
	if (sleeps_until_us > due_us)
		lease_wake();
}

/* Release the mutex, to ask the server something. */
void
lease_ask(void)
{
	asks_since_us = lease_now();
	lease_unlock();
}

/* The server has answered: take the mutex again, and say how long that took. */
int64_t
lease_resume(void)
{
	int64_t		now_us = lease_now();
	int64_t		took_us = now_us - asks_since_us;

	lease_lock();
	if (took_us > SLOW_US)
		slow_us = now_us;
	asks_since_us = 0;
	return took_us;
}

/* When the batcher began to wait for the server; 0: it does not wait. */
int64_t
lease_asks_since_us(void)
{
	return asks_since_us;
}

/* The server was lost. */
void
lease_note_slow(void)
{
	slow_us = lease_now();
}

/* When the server last took long, or was lost; 0: never. */
int64_t
lease_slow_us(void)
{
	return slow_us;
}
