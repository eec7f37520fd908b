/*
 * terminal.c
 *	  The controlling terminal, lent to COMMAND.
 *
 * COMMAND has a process group of its own, so that it can be killed as a whole.
 * The terminal's keys go to the group in the foreground, and any other group
 * that reads from the terminal is stopped.  So we must put COMMAND's group into
 * the foreground, as a shell does for its jobs.
 *
 * If a shell has started us as a job of its own, with the terminal as standard
 * input and output, COMMAND gets the terminal at once: Ctrl-C, Ctrl-Z and the
 * like then reach COMMAND, and only COMMAND.  Otherwise we may share our group,
 * with a script or with the rest of a pipeline, which wants the terminal too:
 * then COMMAND gets it only when it was stopped for lack of it.  Until then the
 * keys reach us, and we pass them on.
 *
 * The process that calls this has SIGTTOU blocked, without which a background
 * process cannot set the foreground.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "terminal.h"

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

static int	terminal = -1;

/* COMMAND's group is in the foreground because we put it there. */
static bool lent;

/* How the terminal was set when it was lent. */
static struct termios modes;
static bool has_modes;

void
terminal_open(void)
{
	terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
}

bool
terminal_is_there(void)
{
	return terminal >= 0;
}

bool
terminal_is_ours(void)
{
	return terminal >= 0 && tcgetpgrp(terminal) == getpgrp();
}

bool
terminal_is_for_command(void)
{
	return terminal_is_ours() && getpgrp() == getpid() &&
		isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

void
terminal_lend(pid_t group)
{
	if (!terminal_is_ours())
		return;
	/* not again after a stop: then they are the shell's */
	if (!has_modes)
		has_modes = tcgetattr(terminal, &modes) == 0;
	if (tcsetpgrp(terminal, group) == 0)
		lent = true;
}

void
terminal_take_back(bool mend)
{
	if (!lent)
		return;
	lent = false;
	tcsetpgrp(terminal, getpgrp());
	if (mend && has_modes)
		tcsetattr(terminal, TCSADRAIN, &modes);
}
