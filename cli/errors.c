/*
 * errors.c
 *	  What the subcommands make of an error: one line, and an exit status.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "command.h"

#include <stdio.h>
#include <stdlib.h>

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

	/* the number is what MySQL's manual goes by */
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
