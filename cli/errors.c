/*
 * errors.c
 *	  How the subcommands report an error: one line, and an exit status.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "command.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long say() waits for standard error to take a line; -1: for ever. */
static int	say_wait_ms = -1;

void
say_only_at_once(void)
{
	/* long enough for a reader that is at work; a renewal can be so late */
	say_wait_ms = 100;
}

/*
 * In one write(), so that the lines of several processes do not mix.  Line ends
 * inside, as servers' messages have them, become spaces.
 */
void
say(const char *format,...)
{
	char		line[2048] = "dlock: ";
	size_t		length = strlen(line);
	struct pollfd output = {.fd = STDERR_FILENO, .events = POLLOUT};
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
	va_end(arguments);
	length = strlen(line);
	while (line[length - 1] == '\n')
		length--;
	for (size_t i = 0; i < length; i++)
		if (line[i] == '\n' || line[i] == '\r')
			line[i] = ' ';
	line[length++] = '\n';
	/* a pipe that can be written to has room for more than a line */
	if (poll(&output, 1, say_wait_ms) == 0 ||
		write(STDERR_FILENO, line, length) < 0)
		return;					/* nobody is left to tell */
}

int
written(int status)
{
	/* a reader that has closed the pipe has read enough */
	if ((fflush(stdout) != 0 || ferror(stdout)) && errno != EPIPE)
	{
		say("could not write the answer: %s", strerror(errno));
		return STATUS_SYSTEM;
	}
	return status;
}

static int	own_status_set;

void
set_own_status(int status)
{
	own_status_set = status;
}

int
own_status(int status)
{
	return own_status_set != 0 ? own_status_set : status;
}

void
end_with(int status, const char *format,...)
{
	char		text[1024];
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	say("%s", text);
	exit(own_status(status));
}

int
status_of(const dlock_error *error)
{
	switch (error->error_class)
	{
		case DLOCK_NO_ERROR:
			return STATUS_OK;
		case DLOCK_BUSY:
			return STATUS_BUSY;
		case DLOCK_LOST:
			return STATUS_LOST;
		case DLOCK_MISUSE:
			return error->denied ? STATUS_NOT_ALLOWED : STATUS_USAGE;
		case DLOCK_UNAVAILABLE:
			return STATUS_NO_SERVER;
	}
	return STATUS_NO_SERVER;
}

bool
is_read_only(const dlock_error *error)
{
	return strcmp(error->sqlstate, "25006") == 0;
}

/*
 * A function, a table or a view is not there.  A library of dlock's that is not
 * there has a message of its own.
 */
static bool
has_no_dlock(const dlock_error *error)
{
	if (error->number != 0)
		return error->number == 1305 || error->number == 1146;
	return strcmp(error->sqlstate, "42883") == 0 ||
		strcmp(error->sqlstate, "42P01") == 0;
}

void
describe_error(const dlock_error *error, char *text, size_t size)
{
	const char *before = "";
	const char *code = error->sqlstate;
	const char *after = "";
	char		number[16];

	/* MySQL's manual lists errors by number; only its errors have one */
	if (error->number != 0)
	{
		snprintf(number, sizeof(number), "%u", error->number);
		code = number;
	}
	if (has_no_dlock(error))
		before = error->number != 0 ?
			"dlock is not installed on this server, or is older than this command: " :
			"dlock is not installed in this database, is older than this command, or is plain/dlock.sql, which lacks this: ";
	if (is_read_only(error))
		after = error->number != 0 ?
			": this server is a replica or read-only; the URL must name the primary" :
			": this server is a standby or read-only; the URL must name the primary, or "
			"all servers and target_session_attrs=read-write";
	snprintf(text, size, "%s%s%s%s%s%s", before, error->message,
			 code[0] ? " (" : "", code, code[0] ? ")" : "", after);
}

int
say_error(const char *what, const dlock_error *error)
{
	char		text[1024];

	describe_error(error, text, sizeof(text));
	say("%s%s%s", what ? what : "", what ? ": " : "", text);
	return status_of(error);
}

dlock_session *
open_session(const char *url)
{
	dlock_error error;
	dlock_session *session = dlock_session_new(url, &error);

	if (session == NULL)
		exit(say_error(NULL, &error));
	return session;
}
