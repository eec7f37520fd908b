/*
 * hold_log.c
 *	  A server whose error log stands still; for the test of expired leases.
 *
 * Preloaded into a server.  While the file that DLOCK_HOLD_LOG in the environment names
 * exists, fwrite() to the standard error stream waits.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PAUSE_US		2000

size_t
fwrite(const void *data, size_t size, size_t n, FILE *file)
{
	static size_t (*original) (const void *, size_t, size_t, FILE *);
	const char *hold = getenv("DLOCK_HOLD_LOG");

	if (original == NULL)
		original = (size_t (*) (const void *, size_t, size_t, FILE *)) dlsym(RTLD_NEXT, "fwrite");
	while (file == stderr && hold != NULL && access(hold, F_OK) == 0)
		usleep(PAUSE_US);
	return original(data, size, n, file);
}
