/*
 * load.h
 *	  What the load generator and its drivers know of each other.
 *
 * A driver knows how one system takes and gives back locks over its own client
 * library; it makes no measurements.  The core knows how to make clients busy
 * and to measure them; it knows no system.  Locks are numbers here.  What a
 * system calls them is its driver's affair, and "job-N" unless it must not be.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>

/* How long a lease lasts: longer than any run. */
#define TTL_SECONDS		3600

/* Room for what lock_name() writes, and for an owner. */
#define NAME_SIZE		32

typedef struct System System;

/*
 * A way to lock.  A client is used by one thread at a time.  What is not what
 * it must be ends the program, by fail(): a driver answers only what a working
 * system may answer.  Functions that are NULL are not offered.
 */
struct System
{
	const char *name;			/* of the command line */
	bool		reentrant;		/* its holder may acquire a lock again */
	bool		floor;			/* it keeps nobody out: acquire() and release() are
								 * the least that any system has to do */
	const void *details;		/* the driver's own */

	/* Connect as client number "client" to the server that is at "where". */
	void	   *(*open) (const System *system, const char *where, int client);
	void		(*close) (void *client);

	/* Create what the locks first .. first + count - 1 need to exist. */
	void		(*prepare) (void *client, int first, int count);

	/* Take a lock; false if it is taken.  With "wait", only once it is had. */
	bool		(*acquire) (void *client, int lock, bool wait);
	void		(*release) (void *client, int lock);

	/*
	 * Take the locks first .. first + count - 1, at most MAX_BATCH, in as few
	 * round trips as the system can; got[i] tells whether first + i was had.
	 */
	void		(*acquire_many) (void *client, int first, int count, bool *got);

	/* Give back those of these locks that it holds; how many they were. */
	int			(*release_many) (void *client, int first, int count);

	/* Keep alive the locks of this range, which are all it holds; how many. */
	int			(*renew) (void *client, int first, int count);

	/* Keep alive one lock that it holds. */
	void		(*renew_one) (void *client, int lock);

	/*
	 * Wait a moment for a lock; true if the answer is that this would last for
	 * ever, because its holder waits for a lock of this client's.
	 */
	bool		(*closes_circle) (void *client, int lock);

	/*
	 * Locks as jobs of a table: find up to "count", at most MAX_BATCH, that are
	 * to be done, and keep others from them; how many.  Then, the same jobs:
	 * note that they are done, and keep nobody from them any more.
	 */
	int			(*take_jobs) (void *client, int count, int *jobs);
	void		(*finish_jobs) (void *client, int count, const int *jobs);

	/* From now on until it is closed, have a transaction with a snapshot open. */
	void		(*snapshot) (void *client);
};

#define MAX_BATCH		100

/* Each driver's systems; the last one's name is NULL. */
extern const System libpq_systems[];
extern const System jobs_systems[];
extern const System mysql_systems[];
extern const System redis_systems[];
extern const System zookeeper_systems[];
extern const System etcd_systems[];

/* load.c */
extern void fail(const char *format,...)
			__attribute__((noreturn, format(printf, 1, 2)));
extern void *allocate(unsigned long size);
extern void lock_name(char *name, int lock);
extern void owner_name(char *owner, int client);
extern void pause_before_retry(void);

#endif
