/*
 * errors.c
 *	  How the subcommands report an error: one line, and an exit status.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * In one write(), so that the lines of several processes do not mix.  Line ends
 * inside, as servers' messages have them, become spaces.
 */
void
say(const char *format,...)
{
	char		line[2048] = "dlock: ";
	size_t		length = strlen(line);
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
	if (write(STDERR_FILENO, line, length) < 0)
		return;					/* nobody is left to tell */
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
	exit(status);
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

int
say_error(const char *what, const dlock_error *error)
{
	const char *code = error->sqlstate;
	char		number[16];

	/* MySQL's manual lists errors by number */
	if (error->number != 0)
	{
		snprintf(number, sizeof(number), "%u", error->number);
		code = number;
	}
	say("%s%s%s%s%s%s", what ? what : "", what ? ": " : "", error->message,
		code[0] ? " (" : "", code, code[0] ? ")" : "");
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
