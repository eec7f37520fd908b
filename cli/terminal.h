/*
 * terminal.h
 *	  The controlling terminal, lent to COMMAND.  See terminal.c.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_TERMINAL_H
#define DLOCK_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

/* Find out whether there is a terminal, once. */
extern void terminal_open(void);

/* Say whether there is one. */
extern bool terminal_is_there(void);

/* Say whether this process is in the terminal's foreground. */
extern bool terminal_is_ours(void);

/*
 * Say whether COMMAND is to have the terminal from the start, and not only when
 * it asks for it.
 */
extern bool terminal_is_for_command(void);

/* Put COMMAND's process group into the foreground, if we are there. */
extern void terminal_lend(pid_t group);

/*
 * Put our own process group back into the foreground, if COMMAND's was there.
 * With "mend" also set the terminal's modes back: COMMAND was killed and could
 * not do so itself.
 */
extern void terminal_take_back(bool mend);

#endif							/* DLOCK_TERMINAL_H */
