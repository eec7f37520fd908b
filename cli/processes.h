/*
 * processes.h
 *	  All processes of COMMAND: signal them and count them.  See processes.c.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_PROCESSES_H
#define DLOCK_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Which processes are meant. */
struct processes
{
	/* COMMAND's process group */
	pid_t		group;
	/*
	 * the process whose descendants they are, not counting itself; 0: only the
	 * group
	 */
	pid_t		ancestor;
	/* the folder of their cgroup, "" if they have none of their own */
	const char *cgroup;
	/* the pidfd of one more process, which is no descendant; or -1 */
	int			other;
};

/* Say whether the system shows our processes; else nothing here works. */
extern bool processes_are_shown(void);

/*
 * Send a signal, or none if it is 0, to the process of a pidfd.  Returns whether it
 * lives and may be sent signals.
 */
extern bool process_signal(int pidfd, int signal_number);

/* Say whether a process is stopped, by a signal or by a debugger. */
extern bool process_is_stopped(pid_t pid);

/*
 * Send a signal, or none if it is 0, to those that live.  Returns how many they
 * are, -1 if we cannot find out because memory or files have run out.
 */
extern int	processes_signal(const struct processes *which, int signal_number);

/*
 * Kill them with SIGKILL, and return how many there were to kill.  They may
 * have made more meanwhile: call again until there is none.
 */
extern int	processes_kill(const struct processes *which);

/*
 * Make a cgroup of version 2 for "pid", which has no children yet, below our own.
 * Writes the folder's name into "folder", or "" if that cannot be done here.
 */
extern void cgroup_make(pid_t pid, char *folder, size_t size);

/* Remove a cgroup.  Processes still in it go back to the one above. */
extern void cgroup_remove(const char *folder);

#endif							/* DLOCK_PROCESSES_H */
