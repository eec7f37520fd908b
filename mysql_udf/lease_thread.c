/*
 * lease_thread.c
 *	  Start a thread in the server, and let it sleep.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE				/* pthread_setname_np() */
#include "lease_thread.h"

#include <signal.h>
#include <stddef.h>
#include <time.h>

/* Start a thread that lasts as long as the server: an error, or 0. */
int
lease_thread_start(void *(*run) (void *), const char *name)
{
	static const int faults[] = {
		SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS
	};
	pthread_attr_t attributes;
	pthread_t	thread;
	sigset_t	blocked;
	sigset_t	old;
	int			error;

	/*
	 * Signals are the server's business.  Those that a thread brings upon itself stay:
	 * while they are blocked, a crash leaves no trace in the error log.
	 */
	sigfillset(&blocked);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&blocked, faults[i]);
	pthread_sigmask(SIG_BLOCK, &blocked, &old);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &attributes, run, NULL);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error == 0)
		pthread_setname_np(thread, name);
	return error;
}

/*
 * Prepare a condition for a thread that sleeps until a time: by the monotonic clock, which
 * nobody sets.
 */
void
lease_thread_begin_sleep(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}
