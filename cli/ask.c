/*
 * ask.c
 *	  What the subcommands that ask a server something have in common.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "ask.h"

#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"
#include "table.h"

void
parse_arguments(int argc, char **argv, const struct option_spec *specs,
				const char *usage, const char **arguments, int least, int most)
{
	char	   *subcommand = argv[0];
	bool		options_end = false;
	int			count = 0;

	/* which characters the terminal takes; numbers stay as they are */
	setlocale(LC_CTYPE, "");
	for (int i = 0; i < most; i++)
		arguments[i] = NULL;
	for (;;)
	{
		int			i = 1;

		if (!options_end)
		{
			i = parse_options(argc, argv, specs, usage);
			options_end = i > 1 && i <= argc && strcmp(argv[i - 1], "--") == 0;
		}
		if (i >= argc)
			break;
		if (count == most)
			end_with(STATUS_USAGE, "there are more arguments than %d; see dlock %s --help", most,
					 subcommand);
		arguments[count++] = argv[i];
		/* read the rest as if it were the whole command line */
		argc -= i;
		argv += i;
		argv[0] = subcommand;
	}
	if (count < least)
		end_with(STATUS_USAGE, "an argument is missing; see dlock %s --help", subcommand);
	for (int i = 0; i < least; i++)
		check_name("the name", arguments[i]);
}

static int64_t
deadline_of(int64_t timeout_us)
{
	return timeout_us < 0 ? DLOCK_NEVER : dlock_now_us() + timeout_us;
}

/* What else to wait for; see ask_watch(). */
static int	watched = -1;
static bool (*watched_is_ready) (void);

void
ask_watch(int fd, bool (*ready) (void))
{
	watched = fd;
	watched_is_ready = ready;
}

/*
 * Wait until what was started is done or has failed.  Returns whether it is
 * done.
 */
static bool
await(dlock_session *session)
{
	dlock_step	step;

	if (watched < 0)
		return dlock_session_finish(session);
	while ((step = dlock_session_step(session)) == DLOCK_STEP_WAIT)
	{
		struct pollfd files[] = {
			{watched, POLLIN, 0},
			{dlock_session_fd(session), dlock_session_events(session), 0}
		};

		if (poll(files, 2, dlock_timeout_ms(dlock_session_until_us(session))) > 0 &&
			files[0].revents != 0 && !watched_is_ready())
		{
			dlock_session_close(session);
			return false;
		}
	}
	return step == DLOCK_STEP_DONE;
}

bool
ask(dlock_session *session, const char *sql, const dlock_arg *args, size_t nargs,
	int64_t timeout_us)
{
	return dlock_session_query(session, sql, args, nargs, deadline_of(timeout_us)) &&
		await(session);
}

bool
call(dlock_session *session, const char *function, const dlock_arg *args, size_t nargs,
	 int64_t timeout_us)
{
	return dlock_session_call(session, function, args, nargs, deadline_of(timeout_us)) &&
		await(session);
}

bool
connect_to(dlock_session *session, int64_t timeout_us)
{
	return dlock_session_connect(session, deadline_of(timeout_us)) && await(session);
}

int
finish(dlock_session *session, int status)
{
	dlock_session_free(session);
	return written(status);
}

int
fail(dlock_session *session)
{
	dlock_error error = *dlock_session_error(session);
	char	   *message = safe_text(error.message, strlen(error.message), NULL);
	int			status;

	/* it may quote a name that another user has chosen */
	snprintf(error.message, sizeof(error.message), "%s", message);
	free(message);
	status = say_error(NULL, &error);
	dlock_session_free(session);
	return status;
}

char *
functions_schema(dlock_session *session, int64_t timeout_us)
{
	const char *schema;

	if (!ask(session, dlock_pg_schema_query, NULL, 0, timeout_us))
		return NULL;
	schema = dlock_session_value(session, 0, 0);
	return schema ? strcpy(get_memory(strlen(schema) + 1), schema) : NULL;
}

const char *
value_of(const dlock_session *session, size_t row, size_t column)
{
	return dlock_session_value(session, row, column);
}

int64_t
number_of(const dlock_session *session, size_t row, size_t column)
{
	const char *value = value_of(session, row, column);

	return value ? strtoll(value, NULL, 10) : 0;
}

double
seconds_of(const dlock_session *session, size_t row, size_t column)
{
	const char *value = value_of(session, row, column);

	return value ? strtod(value, NULL) : 0;
}

static int
digit_of(char digit)
{
	const char *digits = "0123456789ABCDEF0123456789abcdef";
	const char *found = strchr(digits, digit);

	return found ? (int) (found - digits) % 16 : 0;
}

char *
bytes_of(const dlock_session *session, size_t row, size_t column, size_t *length)
{
	const char *digits = value_of(session, row, column);
	char	   *bytes;

	*length = 0;
	if (!digits)
		return NULL;
	*length = strlen(digits) / 2;
	bytes = get_memory(*length + 1);
	for (size_t i = 0; i < *length; i++)
		bytes[i] = (char) (digit_of(digits[2 * i]) * 16 + digit_of(digits[2 * i + 1]));
	bytes[*length] = '\0';
	return bytes;
}
