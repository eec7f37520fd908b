/*
 * workload.h
 *	  What the clients of a run do, and what was measured of it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "histogram.h"
#include "load.h"

#define MAX_WINDOW_SECONDS	600

/* A client: a thread with a connection of its own.  Only it writes here. */
typedef struct Client
{
	pthread_t	thread;
	int			number;
	uint64_t	random;
	atomic_int	current;		/* first of the locks it is busy with; or -1, and
								 * read by the others */
	bool		astray;			/* these are another client's */
	int			picked;			/* how often it has chosen one of its own */
	uint64_t	due_ns;			/* its next request, if a rate is given */
	void	   *connection;
	uint64_t	done;			/* in the window; what, the workload says */
	uint64_t	granted;		/* in all: how often exclusion was checked */
	uint64_t	refused;		/* in all */
	Histogram	times[2];		/* in the window; what, the workload says */
	uint64_t	by_second[MAX_WINDOW_SECONDS];	/* done in each second */
} Client;

typedef struct Workload
{
	const char *name;			/* of the command line */
	const char *times[2];		/* what is timed */

	/* Whether a system offers what it takes. */
	bool		(*offered) (const System *system);

	/* Take what must be held all the time, before the clock starts; or NULL. */
	void		(*begin) (Client *me);

	/* Do it once.  Without this, there is no window. */
	void		(*turn) (Client *me);

	/* When nobody takes turns any more, give back what begin() took; or NULL. */
	void		(*end) (Client *me);

	/* The clients go without goodbye, lest their locks go with them. */
	bool		keeps;

	/* No lock is chosen twice. */
	bool		fresh;
} Workload;

/* A run, as the command line has it.  Constant once the clients have started. */
typedef struct Run
{
	const System *system;
	const Workload *workload;
	const char *where;
	int			clients;
	int			first;			/* the locks are first .. first + locks - 1 */
	int			locks;
	int			batch;			/* how many at once, where that can be chosen */
	double		work_seconds;	/* what a job takes */
	double		rate;			/* of turns that all make in a second; 0: as many
								 * as they can */
	uint64_t	start_ns;		/* of the window */
	uint64_t	end_ns;
	Client	   *all;			/* the clients */
	atomic_int *holders;		/* of each lock: a client's number + 1, or 0 */
} Run;

extern Run	run;
extern const Workload workloads[];	/* the last one's name is NULL */

extern uint64_t now_ns(void);
extern void sleep_until(uint64_t time_ns);
extern void sleep_seconds(double seconds);

#endif
