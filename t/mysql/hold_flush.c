/*
 * hold_flush.c
 *	  A server whose flushes can be held up; for the test of lost commits.
 *
 * Preloaded into a server.  While the file that DLOCK_HOLD_FLUSH in the environment
 * names exists, writes do not reach the disk: fsync() and fdatasync() wait.  At other
 * times they do nothing, so that no commit is slow because the disk is.  While
 * one waits there is another file, whose name is that one, a dot, and the number of
 * the process.  With DLOCK_HOLD_FLUSH_OF they wait only for files with this in their
 * names.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAUSE_US		2000

typedef int (*flush_function) (int fd);

/* Say whether flushes of a file are held up, while any are. */
static int
is_held(int fd)
{
	const char *part = getenv("DLOCK_HOLD_FLUSH_OF");
	char		link[64];
	char		path[PATH_MAX];
	ssize_t		length;

	if (part == NULL)
		return 1;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return 0;
	path[length] = '\0';
	return strstr(path, part) != NULL;
}

static int
flush(const char *name, int fd)
{
	const char *file = getenv("DLOCK_HOLD_FLUSH");
	flush_function original;

	if (file == NULL)
	{
		original = (flush_function) dlsym(RTLD_NEXT, name);
		return original(fd);
	}
	if (access(file, F_OK) == 0 && is_held(fd))
	{
		char		held[PATH_MAX];

		snprintf(held, sizeof(held), "%s.%d", file, (int) getpid());
		close(open(held, O_WRONLY | O_CREAT, 0600));
		while (access(file, F_OK) == 0)
			usleep(PAUSE_US);
		unlink(held);
	}
	return 0;
}

int
fsync(int fd)
{
	return flush("fsync", fd);
}

int
fdatasync(int fd)
{
	return flush("fdatasync", fd);
}
