/*
 * ask.h
 *	  What the subcommands that ask a server something have in common.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_ASK_H
#define DLOCK_ASK_H

#include <stdbool.h>
#include <stddef.h>

#include "command.h"
#include "dlock.h"

/* How long a server may take to answer, unless --timeout says otherwise. */
#define TIMEOUT_DEFAULT_US	DLOCK_CONNECT_TIMEOUT_US

#define TIMEOUT_OPTION(value) \
	{ "timeout", 0, OPTION_POSITIVE, value, "TIME", \
		"give up when the server takes longer; default 10 s" }
#define JSON_OPTION(value) \
	{ "json", 'j', OPTION_FLAG, value, NULL, "print JSON" }

/*
 * Read options and arguments in any order, at least "least" arguments and at most
 * "most"; the first "least" of them are names.  Ends the program if there are fewer or more; the missing ones are NULL.
 */
extern void parse_arguments(int argc, char **argv, const struct option_spec *specs,
							const char *usage, const char **arguments, int least,
							int most);

/*
 * Run a statement, or call a function, and wait for the answer, for timeout_us or,
 * if that is negative, without limit.  Returns false if there is none:
 * dlock_session_error() says why.
 */
extern bool ask(dlock_session *session, const char *sql, const dlock_arg *args,
				size_t nargs, int64_t timeout_us);
extern bool call(dlock_session *session, const char *function, const dlock_arg *args,
				 size_t nargs, int64_t timeout_us);

/*
 * While an answer is awaited, also wait for this file, and call "ready" when it can
 * be read; if that returns false, give the question up. -1: no more.
 */
extern void ask_watch(int fd, bool (*ready) (void));

/* Connect, within timeout_us, so that the next question has its whole time. */
extern bool connect_to(dlock_session *session, int64_t timeout_us);

/* Print the last error, free the session, and return the exit status. */
extern int	fail(dlock_session *session);

/* Free the session, and make sure that all output has been written. */
extern int	finish(dlock_session *session, int status);

/*
 * On PostgreSQL, the name of the schema that the functions are in, quoted, to be
 * freed; NULL if the extension is not in the database, or the server cannot be
 * asked, which dlock_session_error() tells apart.
 */
extern char *functions_schema(dlock_session *session, int64_t timeout_us);

/* Cells of the answer. */
extern const char *value_of(const dlock_session *session, size_t row, size_t column);
extern int64_t number_of(const dlock_session *session, size_t row, size_t column);
extern double seconds_of(const dlock_session *session, size_t row, size_t column);

/*
 * Text that the statement has answered as hexadecimal digits, so that none of its
 * bytes is lost, to be freed; NULL for NULL.
 */
extern char *bytes_of(const dlock_session *session, size_t row, size_t column,
					  size_t *length);

#endif							/* DLOCK_ASK_H */
