/*
 * full_log.c
 *	  A server whose binary log finds no room; for the test of a full disk.
 *
 * Preloaded into a server.  While the file that DLOCK_FULL_LOG in the environment names
 * exists, the disk has no room for files whose name has "binlog.0" in it.  A server that
 * waits for somebody to make room looks once a minute, by sleep() (MySQL) or by
 * pthread_cond_timedwait() (MariaDB).  That takes a second here.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* This thread has found no room, and will wait. */
static _Thread_local bool waits = false;

static bool
has_room(int fd)
{
	const char *full = getenv("DLOCK_FULL_LOG");
	char		link[40];
	char		path[PATH_MAX];
	ssize_t		length;

	if (full == NULL || access(full, F_OK) != 0)
		return true;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return true;
	path[length] = '\0';
	return strstr(path, "binlog.0") == NULL;
}

static ssize_t
no_room(void)
{
	waits = true;
	errno = ENOSPC;
	return -1;
}

ssize_t
write(int fd, const void *data, size_t size)
{
	static ssize_t (*original) (int, const void *, size_t);

	if (original == NULL)
		original = (ssize_t (*) (int, const void *, size_t)) dlsym(RTLD_NEXT, "write");
	if (has_room(fd))
		return original(fd, data, size);
	return no_room();
}

ssize_t
pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
	static ssize_t (*original) (int, const void *, size_t, off64_t);

	if (original == NULL)
		original = (ssize_t (*) (int, const void *, size_t, off64_t)) dlsym(RTLD_NEXT, "pwrite64");
	if (has_room(fd))
		return original(fd, data, size, offset);
	return no_room();
}

ssize_t
pwrite(int fd, const void *data, size_t size, off_t offset)
{
	return pwrite64(fd, data, size, offset);
}

unsigned int
sleep(unsigned int seconds)
{
	usleep(waits ? 1000000 / 60 * seconds : 1000000 * seconds);
	return 0;
}

int
pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *end)
{
	static int	(*original) (pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
	struct timespec soon;

	if (original == NULL)
		original = (int (*) (pthread_cond_t *, pthread_mutex_t *, const struct timespec *))
			dlsym(RTLD_NEXT, "pthread_cond_timedwait");
	if (!waits)
		return original(cond, mutex, end);
	waits = false;
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_sec++;
	return original(cond, mutex, &soon);
}
