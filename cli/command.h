/*
 * command.h
 *	  What the subcommands of "dlock" have in common.
 *
 * main.c has the table of the subcommands and starts one of them.  A subcommand
 * is a function in a file of its own.  It reads its options by parse_options(),
 * tells the user what matters by say(), in one line, and returns the exit
 * status of the program.
 *
 * What a subcommand prints on standard output is its answer; everything else
 * goes to standard error.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_COMMAND_H
#define DLOCK_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dlock.h"

/*
 * Exit statuses: those of sysexits.h where one fits.  Otherwise, "run" returns
 * COMMAND's own status.
 */
enum
{
	STATUS_OK = 0,
	STATUS_NO = 1,				/* a question was answered "no" */
	STATUS_USAGE = 64,			/* EX_USAGE: the command line is wrong, or the
								 * server refuses an argument */
	STATUS_NO_SERVER = 69,		/* EX_UNAVAILABLE: no server that answers */
	STATUS_LOST = 70,			/* the lease was lost */
	STATUS_SYSTEM = 71,			/* EX_OSERR: the system refuses, as at fork */
	STATUS_BUSY = 75,			/* EX_TEMPFAIL: not free within the wait */
	STATUS_NOT_ALLOWED = 77,	/* EX_NOPERM: the account may not do that */
	STATUS_CANNOT_RUN = 126,	/* COMMAND exists and cannot be run */
	STATUS_NO_COMMAND = 127		/* there is no COMMAND of that name */
};

/* A subcommand. */
struct command
{
	const char *name;
	/* argv[0] is the subcommand's name; returns the exit status */
	int			(*run) (int argc, char **argv);
	const char *help;			/* one line, for "dlock --help" */
};

/* What an option's argument is, and what its value points to. */
enum option_kind
{
	OPTION_FLAG,				/* no argument; bool, set to true */
	OPTION_NOT,					/* no argument; bool, set to false */
	OPTION_TEXT,				/* const char * */
	OPTION_NAME,				/* the same; see check_name() */
	OPTION_COUNT,				/* a whole number from 1 on; int64_t, but an int32_t fits */
	OPTION_TOKEN,				/* the same, and any int64_t */
	OPTION_STATUS,				/* for set_own_status(), at once; no value */
	OPTION_DURATION,			/* int64_t, microseconds; see dlock_parse_duration() */
	OPTION_POSITIVE,			/* the same, above 0 */
	OPTION_WAIT,				/* the same or "forever", which is -1 */
	OPTION_NO_WAIT				/* no argument; int64_t, set to 0 */
};

/* An option; a list of them ends with one that has no name. */
struct option_spec
{
	const char *name;			/* without the dashes */
	char		letter;			/* its short form, or 0 */
	enum option_kind kind;
	void	   *value;
	const char *argument;		/* what usage calls the argument, or NULL */
	const char *help;			/* one line, for "dlock SUBCOMMAND --help" */
};

/* The option of all that talk to a server; value is a const char *. */
#define URL_OPTION(value) \
	{ "url", 'u', OPTION_TEXT, value, "URL", \
		"the server; otherwise DLOCK_URL, or PGHOST and the like" }

/* options.c */

/*
 * Read the options before the first other argument, and return that one's
 * index. --help prints "usage" and the options, and ends the program, as
 * --version does; a mistake is reported, and ends the program with
 * STATUS_USAGE.  "--" ends the options; it is skipped.
 *
 * "usage" is what follows "dlock ", and further lines about the subcommand.
 */
extern int	parse_options(int argc, char **argv,
						  const struct option_spec *specs, const char *usage);

/*
 * Check the length of a name, an owner or a request id; what is wrong ends the
 * program.  "what" is what it is.
 */
extern void check_name(const char *what, const char *text);

/*
 * The index of COMMAND, where argv[first] is NAME: after a "--", if one
 * follows.  Without that, COMMAND must not begin with a dash, which is taken
 * for an option in the wrong place.
 */
extern int	command_after_name(int argc, char **argv, int first);

/* errors.c */

/* Say something on standard error, in one line: "dlock: ...". */
extern void say(const char *format,...) __attribute__((format(printf, 1, 2)));

/*
 * From now on, a line that standard error does not take at once is lost.  Otherwise a
 * terminal that is held by Ctrl-S, or a log whose reader hangs, would stop us, and the
 * lease with us.
 */
extern void say_only_at_once(void);

/*
 * Make sure that all of the output has been written: returns this status, or that of a
 * full disk.
 */
extern int	written(int status);

/* Say what is wrong, and end with an exit status. */
extern void end_with(int status, const char *format,...)
	__attribute__((format(printf, 2, 3), noreturn));

/*
 * From now on the program ends with this status instead of one of its own; see
 * own_status().
 */
extern void set_own_status(int status);

/*
 * The exit status to end with: the one of set_own_status() if there is one, or
 * else this.
 */
extern int	own_status(int status);

/* The exit status that goes with an error; STATUS_OK if there is none. */
extern int	status_of(const dlock_error *error);

/*
 * An error in words, with its code, and with what to do if only that helps: the
 * server is no primary, or has no dlock.
 */
extern void describe_error(const dlock_error *error, char *text, size_t size);

/* Say whether the server that has answered is a standby, or read-only. */
extern bool is_read_only(const dlock_error *error);

/*
 * Print an error, in one line that begins with "what" if that is not NULL, and
 * return its exit status.
 */
extern int	say_error(const char *what, const dlock_error *error);

/*
 * Make a session for the server that --url names; a wrong URL is reported, and
 * ends the program.
 */
extern dlock_session *open_session(const char *url);

/* run.c, hold.c, elect.c */
extern int	run_command(int argc, char **argv);
extern int	hold_command(int argc, char **argv);
extern int	elect_command(int argc, char **argv);

#endif							/* DLOCK_COMMAND_H */
