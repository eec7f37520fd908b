/*
 * heartbeat.c
 *	  A thread that keeps a lease, for programs that have no loop for it.
 *
 * A lease has one user at a time: from dlock_heartbeat_start() on that is the thread,
 * until dlock_heartbeat_stop() has returned.  Meanwhile the program's questions
 * are answered from one number, the time at which the lease counts as lost,
 * which only the thread writes.  So no lock is needed, and every answer
 * compares that with the clock.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dlock.h"
#include "errors.h"

struct dlock_heartbeat
{
	dlock_lease *lease;
	void		(*tell) (const dlock_event *event, void *argument);
	void	   *argument;
	pthread_t	thread;
	int			wake[2];		/* a pipe, readable once the thread must end */
	_Atomic int64_t lost_at_us; /* 0: not held */
};

static void *
beat(void *pointer)
{
	dlock_heartbeat *h = pointer;

	for (;;)
	{
		struct pollfd fds[2];
		dlock_event event;

		while (dlock_lease_step(h->lease, &event))
		{
			/* before the program is told: it may ask at once */
			atomic_store(&h->lost_at_us,
						 dlock_lease_state_now(h->lease) == DLOCK_LEASE_HELD ?
						 dlock_lease_lost_at_us(h->lease) : 0);
			if (h->tell != NULL)
				h->tell(&event, h->argument);
		}
		fds[0] = (struct pollfd) {.fd = h->wake[0], .events = POLLIN};
		fds[1] = (struct pollfd) {
			.fd = dlock_lease_fd(h->lease), .events = dlock_lease_events(h->lease)
		};
		poll(fds, 2, dlock_timeout_ms(dlock_lease_until_us(h->lease)));
		if (fds[0].revents != 0)
			return NULL;
	}
}

dlock_heartbeat *
dlock_heartbeat_start(dlock_lease *lease,
					  void (*tell) (const dlock_event *event, void *argument),
					  void *argument, dlock_error *error)
{
	dlock_heartbeat *h = calloc(1, sizeof(*h));
	sigset_t	all;
	sigset_t	before;
	int			failed;

	dlock_error_clear(error);
	if (h == NULL)
	{
		dlock_error_set(error, DLOCK_UNAVAILABLE, "out of memory");
		return NULL;
	}
	h->lease = lease;
	h->tell = tell;
	h->argument = argument;
	atomic_init(&h->lost_at_us, dlock_lease_is_held(lease) ?
				dlock_lease_lost_at_us(lease) : 0);

	/* signals are for the program's own threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failed = pipe(h->wake);
	if (failed == 0)
	{
		/* pipe2() with O_CLOEXEC is not everywhere yet */
		fcntl(h->wake[0], F_SETFD, FD_CLOEXEC);
		fcntl(h->wake[1], F_SETFD, FD_CLOEXEC);
		failed = pthread_create(&h->thread, NULL, beat, h);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed == 0)
		return h;
	dlock_error_set(error, DLOCK_UNAVAILABLE, "could not start a thread");
	if (h->wake[0] > 0)
	{
		close(h->wake[0]);
		close(h->wake[1]);
	}
	free(h);
	return NULL;
}

bool
dlock_heartbeat_is_held(dlock_heartbeat *h)
{
	return dlock_now_us() < atomic_load(&h->lost_at_us);
}

int64_t
dlock_heartbeat_lost_at_us(dlock_heartbeat *h)
{
	return atomic_load(&h->lost_at_us);
}

void
dlock_heartbeat_stop(dlock_heartbeat *h)
{
	if (h == NULL)
		return;
	/* an empty pipe has room for it */
	while (write(h->wake[1], "", 1) < 0 && errno == EINTR)
		;
	pthread_join(h->thread, NULL);
	close(h->wake[0]);
	close(h->wake[1]);
	free(h);
}
