/*
 * watchdog.h
 *	  The process that runs COMMAND and ends it in time.  See watchdog.c.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_WATCHDOG_H
#define DLOCK_WATCHDOG_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "processes.h"

/* Room for the variables for COMMAND: names, owner and tokens. */
#define WATCHDOG_VARIABLES_SIZE		32768

/* Memory that both processes share. */
struct watchdog_shared
{
	/*
	 * When all of COMMAND must be gone, by CLOCK_BOOTTIME.  Only the main process
	 * sets it: before it sends GO, and after each renewal.
	 */
	_Atomic int64_t gone_by_us;

	/*
	 * All that COMMAND has started must end, not only its group.  The main
	 * process sets it before it sends SIGTERM, by which COMMAND may end before
	 * the watchdog has its order.
	 */
	_Atomic bool all_must_end;

	/* COMMAND is being ended.  The process that sets it sends SIGTERM, once. */
	_Atomic bool ending;

	/* When the watchdog found nothing left that would have to end; 0: not yet. */
	_Atomic int64_t gone_at_us;

	/* The watchdog has got through its start.  Only the watchdog sets it. */
	_Atomic bool ready;

	/* COMMAND's process, and process group; 0 until it is made */
	_Atomic pid_t command;

	/* Of the ready file that we have made; 0: there is none. */
	_Atomic ino_t ready_inode;

	/* The other process works under the lease.  Only the stand-in sets it. */
	_Atomic bool other_works;

	/* The folder of its cgroup, or "". */
	char		cgroup[4096];

	/* "NAME=value" strings, each with its NUL, then another NUL. */
	char		variables[WATCHDOG_VARIABLES_SIZE];
};

/* What the watchdog must know. */
struct watchdog_options
{
	char	  **argv;			/* COMMAND */
	int64_t		grace_us;		/* from SIGTERM to SIGKILL */
	bool		may_outlive;	/* COMMAND may go on when the lease has ended */
	bool		asks_priority;	/* try to get real-time priority */
	const char *ready_file;		/* to be removed when COMMAND is ended; or NULL */

	/*
	 * Of "hold": what runs instead of COMMAND, as the process that would become it; it
	 * returns the exit status.  It looks after another process, "other", a pidfd,
	 * which is ended like COMMAND if "ends_other".  Otherwise NULL and -1.
	 */
	int			(*stand_in) (struct watchdog_shared *shared, int other);
	int			other;
	bool		ends_other;

	sigset_t	signal_mask;	/* what COMMAND is to have blocked */
	bool		sigpipe_was_default;
	bool		sigchld_was_ignored;
};

/* What the watchdog reports. */
struct watchdog_report
{
	enum
	{
		WATCHDOG_STARTED = 1,	/* value: the process, which waits for GO */
		WATCHDOG_NOT_STARTED,	/* value: errno */
		WATCHDOG_STOPPED,		/* value: the signal */
		WATCHDOG_EXITED,		/* value: as wait() has it; others may live */
		WATCHDOG_TIMED_OUT,		/* by the clock, it has begun to end COMMAND */
		WATCHDOG_GONE			/* nothing is left that would have to end */
	}			kind;
	int			value;
};

struct watchdog
{
	pid_t		pid;			/* 0: there is none */
	int			socket;
	const struct watchdog_options *options;
	struct watchdog_shared *shared;
};

/* Start a watchdog.  Returns false, and errno, if the system refuses. */
extern bool watchdog_start(struct watchdog *watchdog,
						   const struct watchdog_options *options);

/* Orders of the main process; the watchdog answers by reports. */
extern void watchdog_run(struct watchdog *watchdog);	/* make COMMAND */
extern void watchdog_go(struct watchdog *watchdog); /* let it begin */
extern void watchdog_end(struct watchdog *watchdog);	/* end it, with grace */

/*
 * Fetch a report without waiting: 1, or 0 if there is none, or -1 if the watchdog
 * has ended.
 */
extern int	watchdog_read(struct watchdog *watchdog,
						  struct watchdog_report *report);

/* Say whether somebody has stopped the watchdog. */
extern bool watchdog_is_stopped(const struct watchdog *watchdog);

/*
 * Wait until the watchdog has ended: after WATCHDOG_GONE, or when there is no
 * COMMAND yet.
 */
extern void watchdog_finish(struct watchdog *watchdog);

/*
 * Kill a watchdog that does not do its work, and all of COMMAND with it, and
 * wait until all are gone.  "status" is COMMAND's, as wait() has it; if that
 * cannot be known, SIGKILL's.  Returns the watchdog's own status.
 */
extern int	watchdog_kill(struct watchdog *watchdog, int *status);

/*
 * Remove the ready file, if the one that is there is ours: another elector on this machine
 * may lead by now, with the same path.  Returns false, and errno, if that fails.
 */
extern bool watchdog_remove_ready_file(struct watchdog_shared *shared, const char *path);

/* Which processes the watchdog has started. */
extern struct processes watchdog_processes(const struct watchdog *watchdog);

/* Note which files are open now: those that COMMAND inherits. */
extern void note_inherited_files(void);

/* Close the files that we have inherited ourselves, except standard error. */
extern void close_inherited_files(void);

#endif							/* DLOCK_WATCHDOG_H */
