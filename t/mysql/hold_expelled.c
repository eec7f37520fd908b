/*
 * hold_expelled.c
 *	  A member of a group that becomes read-only late after it was expelled; for the
 *	  tests of Group Replication.
 *
 * Preloaded into a server.  MySQL sets the state of a member that was expelled to ERROR,
 * tells the log, and makes the server read-only, all within some milliseconds.  While the
 * file that DLOCK_EXPELLED in the environment names exists, the thread that does so waits
 * after that line of the log.  Another file, with ".held" at the end of its name, tells
 * that it does.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAUSE_US		2000

/* "automatically set into read only mode after an error": it is about to be */
#define LINE	"[MY-011712]"

/* this thread has written the line, and holds the mutex of the log */
static __thread bool has_written = false;

static void
hold(void)
{
	const char *file = getenv("DLOCK_EXPELLED");
	char		held[PATH_MAX];
	FILE	   *mark;

	if (file == NULL || access(file, F_OK) != 0)
		return;
	snprintf(held, sizeof(held), "%s.held", file);
	mark = fopen(held, "w");
	if (mark == NULL)
		abort();
	fclose(mark);
	while (access(file, F_OK) == 0)
		usleep(PAUSE_US);
	unlink(held);
}

/* What the server writes its log with: "%.*s\n", a length and a line. */
int
__fprintf_chk(FILE *stream, int flag, const char *format,...)
{
	va_list		arguments;
	int			written;

	(void) flag;
	if (stream == stderr && strcmp(format, "%.*s\n") == 0)
	{
		int			length;
		const char *line;

		va_start(arguments, format);
		length = va_arg(arguments, int);
		line = va_arg(arguments, const char *);
		va_end(arguments);
		has_written = memmem(line, (size_t) length, LINE, strlen(LINE)) != NULL;
	}
	va_start(arguments, format);
	written = vfprintf(stream, format, arguments);
	va_end(arguments);
	return written;
}

/* Others may go on writing the log. */
int
pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	static int	(*real) (pthread_mutex_t *) = NULL;
	int			result;

	if (real == NULL)
		real = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	result = real(mutex);
	if (has_written)
	{
		has_written = false;
		hold();
	}
	return result;
}
