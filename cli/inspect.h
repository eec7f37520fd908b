/*
 * inspect.h
 *	  Subcommands that ask a server something, and their entry points.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_INSPECT_H
#define DLOCK_INSPECT_H

#include "dlock.h"
#include "table.h"

/*
 * A holder; its text belongs to the session's answer, except what is to be
 * freed.
 */
struct lock
{
	char	   *name;
	size_t		name_length;
	char	   *owner;
	size_t		owner_length;
	const char *mode;
	int64_t		holds;
	int64_t		token;
	double		held_for;		/* seconds */
	double		remaining;		/* the same; 0: it is over */
	bool		has_deadline;	/* false: it lives as long as its session */
	int			guarded;		/* -1: not known */
	char	   *who;			/* for people */
};

/* A waiter; the same. */
struct waiter
{
	char	   *name;
	size_t		name_length;
	char	   *owner;			/* NULL: it takes nothing */
	size_t		owner_length;
	const char *mode;
	int64_t		position;		/* 0: none */
	double		waited;			/* seconds */
	char	   *who;
	char	   *blocked_by;		/* processes; NULL: nobody, or not known */
};

/* call.c */
extern int	acquire_command(int argc, char **argv);
extern int	renew_command(int argc, char **argv);
extern int	release_command(int argc, char **argv);
extern int	wait_command(int argc, char **argv);
extern int	owner_command(int argc, char **argv);
extern int	force_release_command(int argc, char **argv);

/* inspect.c */

/* How to sort leases. */
enum lock_order
{
	ORDER_NAME,
	ORDER_OWNER,
	ORDER_AGE,					/* the oldest first */
	ORDER_LEFT					/* the one that ends next first */
};

/*
 * Ask for the leases: of the names of a pattern if that is not NULL, "limit" of
 * them unless that is 0, in this order or reversed.  Or ask for the waiters.
 * Then read the answer, row by row.
 */
extern bool look_at_locks(dlock_session *session, const char *pattern,
						  enum lock_order order, bool turned, int limit,
						  int64_t timeout_us);
extern void read_lock(const dlock_session *session, size_t row, struct lock *lock);
extern void free_lock(struct lock *lock);
extern bool look_at_waiters(dlock_session *session, int64_t timeout_us);
extern void read_waiter(const dlock_session *session, size_t row,
						struct waiter *waiter);
extern void free_waiter(struct waiter *waiter);

/* The time left of a lease, or the word that stands for it, for people. */
extern const char *time_left(const struct lock *lock, char buffer[SHORT_TIME_SIZE]);

extern int	ls_command(int argc, char **argv);
extern int	waiters_command(int argc, char **argv);
extern int	stats_command(int argc, char **argv);

/* doctor.c */
extern int	doctor_command(int argc, char **argv);

/* log.c */
extern int	log_command(int argc, char **argv);

/* top.c */
extern int	top_command(int argc, char **argv);

#endif							/* DLOCK_INSPECT_H */
