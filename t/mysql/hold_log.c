/*
 * hold_log.c
 *	  A server whose error log stands still; for the test of expired leases.
 *
 * Preloaded into a server.  While the file that DLOCK_HOLD_LOG in the environment names
 * exists, what is written to the standard error stream waits.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PAUSE_US		2000

/* Wait, if this is where errors go, as long as the file is there. */
static void
hold(const FILE *file)
{
	const char *path = getenv("DLOCK_HOLD_LOG");

	while (file == stderr && path != NULL && access(path, F_OK) == 0)
		usleep(PAUSE_US);
}

size_t
fwrite(const void *data, size_t size, size_t n, FILE *file)
{
	static size_t (*original) (const void *, size_t, size_t, FILE *);

	if (original == NULL)
		original = (size_t (*) (const void *, size_t, size_t, FILE *)) dlsym(RTLD_NEXT, "fwrite");
	hold(file);
	return original(data, size, n, file);
}

/* MariaDB's way, as its compiler calls it */
int
__fprintf_chk(FILE *file, int flag, const char *format,...)
{
	va_list		arguments;
	int			count;

	(void) flag;
	hold(file);
	va_start(arguments, format);
	count = vfprintf(file, format, arguments);
	va_end(arguments);
	return count;
}
