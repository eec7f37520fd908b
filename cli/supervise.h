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

struct watchdog_shared;

/* The ttl of a lease for which none is given. */
#define DEFAULT_TTL_US	INT64_C(30000000)

/* What to run, and under which lease. */
struct supervised
{
	const char *url;
	dlock_lease_options lease;
	char	  **argv;			/* COMMAND */
	int64_t		grace_us;		/* from SIGTERM to SIGKILL */
	bool		warn_only;		/* COMMAND may go on when the lease is lost */
	bool		quiet;			/* do not say that the lease is not free */
	bool		insists;		/* ask a read-only server again, until the timeout */

	/*
	 * Of "elect".  SIGTERM, SIGINT and SIGQUIT are not passed on, but end
	 * COMMAND, and troubles are reported from the first on.
	 */
	bool		elects;
	const char *ready_file;		/* exists while COMMAND runs; or NULL */
	const char *on_lose;		/* for the shell, when COMMAND has ended; or NULL */
	/* told when COMMAND begins, with its token, and when it has ended */
	void		(*tell) (bool leads, int64_t token);

	/*
	 * Of "hold": see watchdog.h.  Until the stand-in runs, the lease is not wanted any
	 * more when the other process has ended, or when is_over() says so, which is
	 * called when there is something to read on standard input.
	 */
	int			(*stand_in) (struct watchdog_shared *shared, int other);
	int			other;			/* a pidfd; or -1 */
	bool		ends_other;
	bool		(*is_over) (void);
};

/* Options that several subcommands have alike, of the supervised "what"; shared is a bool. */
#define TAKING_OPTIONS(what, shared) \
	{"ttl", 't', OPTION_POSITIVE, &(what).lease.ttl_us, "T", \
	"how long after our death others may have it; default 30 s"}, \
	{"wait", 'w', OPTION_WAIT, &(what).lease.wait_us, "T", \
	"how long to wait in line, or \"forever\""}, \
	{"no-wait", 'n', OPTION_NO_WAIT, &(what).lease.wait_us, NULL, \
	"do not wait, which is the default"}, \
	{"shared", 's', OPTION_FLAG, &(shared), NULL, \
	"share it with others that share it"}
#define OWN_OWNER_OPTION(what) \
	{"owner", 'o', OPTION_NAME, &(what).lease.owner, "OWNER", \
	"the owner; otherwise one that nobody else has"}
#define PATIENCE_OPTION(what) \
	{"timeout", 0, OPTION_POSITIVE, &(what).lease.connect_timeout_us, "T", \
	"give up if no server answers for this long; default 10 s"}
#define QUIET_OPTION(what) \
	{"quiet", 'q', OPTION_FLAG, &(what).quiet, NULL, \
	"do not say that the lease is not free; the status does"}

/* How a run ended. */
struct outcome
{
	enum
	{
		OUTCOME_REFUSED,		/* the lease was not free */
		OUTCOME_FAILED,			/* it could not be acquired: "error" */
		OUTCOME_INTERRUPTED,	/* "signal" came, before COMMAND or to end it */
		OUTCOME_EXITED,			/* COMMAND ended by itself */
		OUTCOME_LOST,			/* the lease was lost, COMMAND was ended */
		OUTCOME_BROKEN,			/* the system refused, or the watchdog was killed */
		OUTCOME_HOPELESS		/* and so is each watchdog: waiting mends nothing */
	}			kind;
	int			status;			/* the exit status for it */
	int			signal_number;
	/*
	 * Ctrl-C ended COMMAND, or the wait.  The program should then end by SIGINT
	 * itself; otherwise a script that started it would go on.
	 */
	bool		by_ctrl_c;
	dlock_error error;
	int64_t		ran_us;			/* for how long COMMAND ran */
};

/* Call this once in the main process, before all else. */
extern void supervise_prepare(void);

/*
 * Acquire the lease, run COMMAND, release the lease.  This tells the user what
 * matters, except for an error of an elector.
 */
extern void supervise(const struct supervised *what, struct outcome *outcome);

/* Do that once, and return the exit status of the program; or end it, by SIGINT. */
extern int	supervise_once(const struct supervised *what);

/*
 * Wait for a time, or until a signal that ends us comes: returns its number, or
 * 0.
 */
extern int	supervise_pause(int64_t pause_us);

/*
 * The grace for a TTL: grace_us, or the default; ends the program if it is too
 * long.
 */
extern int64_t grace_for(int64_t grace_us, int64_t ttl_us);

/*
 * Remove a ready file that a process has left that is gone.  Returns false, and errno, if that
 * fails.
 */
extern bool remove_stale_ready_file(const char *path);

#endif							/* DLOCK_SUPERVISE_H */
