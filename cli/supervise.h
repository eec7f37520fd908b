/*
 * supervise.h
 *	  A command that runs while a lease is held.  See supervise.c.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_SUPERVISE_H
#define DLOCK_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

#include "dlock.h"

/* What to run, and under which lease. */
struct supervised
{
	const char *url;
	dlock_lease_options lease;
	char	  **argv;			/* COMMAND */
	int64_t		grace_us;		/* from SIGTERM to SIGKILL */
	bool		warn_only;		/* COMMAND may go on when the lease is lost */
	bool		quiet;			/* that the lease is not free is not said */

	/*
	 * Of "elect".  SIGTERM, SIGINT and SIGQUIT are not passed on, but end COMMAND,
	 * and troubles are told from the first on.
	 */
	bool		elects;
	const char *ready_file;		/* exists while COMMAND runs; or NULL */
	const char *on_lose;		/* for the shell, when COMMAND has ended; or NULL */
	/* told when COMMAND begins, with its token, and when it has ended */
	void		(*tell) (bool leads, int64_t token);
};

/* How it has come out. */
struct outcome
{
	enum
	{
		OUTCOME_REFUSED,		/* the lease was not free */
		OUTCOME_FAILED,			/* it could not be acquired: "error" */
		OUTCOME_INTERRUPTED,	/* "signal" came, before COMMAND or to end it */
		OUTCOME_EXITED,			/* COMMAND ended by itself */
		OUTCOME_LOST,			/* the lease was lost, COMMAND was ended */
		OUTCOME_BROKEN			/* the system refused, or the watchdog was killed */
	}			kind;
	int			status;			/* an exit status that says so */
	int			signal_number;
	/*
	 * Ctrl-C ended COMMAND, or the wait: the program should end by SIGINT itself,
	 * or a script that has started it goes on.
	 */
	bool		by_ctrl_c;
	dlock_error error;
	int64_t		ran_us;			/* for how long COMMAND ran */
};

/* What is to be done once, before all else, in the main process. */
extern void supervise_prepare(void);

/*
 * Acquire the lease, run COMMAND, release the lease.  What the user must know has
 * been said, but for an error of an elector.
 */
extern void supervise(const struct supervised *what, struct outcome *outcome);

/*
 * Wait for so long, or until a signal that ends us comes: answers its number, or
 * 0.
 */
extern int	supervise_pause(int64_t pause_us);

/* The grace that goes with a TTL if --grace says nothing; ends if it is too long. */
extern int64_t grace_for(int64_t grace_us, int64_t ttl_us);

#endif							/* DLOCK_SUPERVISE_H */
