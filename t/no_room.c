/*
 * no_room.c
 *	  A disk that is full whenever a file says so; for the tests of a lock table
 *	  that cannot grow, and of shared memory that cannot be made.
 *
 * Preloaded into a server.  While the file that DLOCK_NO_ROOM in the environment
 * names exists, no file in its folder, or below that, gets larger.  As on a real
 * disk, there is room for a part of the first write, and then for nothing.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* What the server enlarges files by: half of it has room. */
#define UNIT	8192

typedef ssize_t (*pwrite_function) (int, const void *, size_t, off_t);
typedef ssize_t (*pwritev_function) (int, const struct iovec *, int, off_t);
typedef int (*allocate_function) (int, off_t, off_t);

/* Say whether a file is where nothing gets larger now; *size is how large it is. */
static bool
is_full(int fd, off_t *size)
{
	const char *flag = getenv("DLOCK_NO_ROOM");
	char		link[64];
	char		path[PATH_MAX];
	ssize_t		length;
	size_t		folder;
	struct stat status;

	if (flag == NULL || access(flag, F_OK) != 0)
		return false;
	folder = (size_t) (strrchr(flag, '/') - flag) + 1;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path));
	if (length < (ssize_t) folder || memcmp(path, flag, folder) != 0 ||
		fstat(fd, &status) != 0)
		return false;
	*size = status.st_size;
	return true;
}

/* Write as much of what enlarges a full file as there is room for. */
static ssize_t
write_part(int fd, const void *data, size_t length, off_t offset, off_t size)
{
	pwrite_function original = (pwrite_function) dlsym(RTLD_NEXT, "pwrite");

	if (offset == size && size % UNIT == 0 && length > UNIT / 2)
		return original(fd, data, UNIT / 2, offset);
	errno = ENOSPC;
	return -1;
}

ssize_t
pwrite(int fd, const void *data, size_t length, off_t offset)
{
	pwrite_function original = (pwrite_function) dlsym(RTLD_NEXT, "pwrite");
	off_t		size;

	if (is_full(fd, &size) && offset + (off_t) length > size)
		return write_part(fd, data, length, offset, size);
	return original(fd, data, length, offset);
}

ssize_t
pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
	pwritev_function original = (pwritev_function) dlsym(RTLD_NEXT, "pwritev");
	off_t		end = offset;
	off_t		size;

	for (int i = 0; i < count; i++)
		end += (off_t) parts[i].iov_len;
	if (is_full(fd, &size) && end > size)
		return write_part(fd, parts[0].iov_base, parts[0].iov_len, offset, size);
	return original(fd, parts, count, offset);
}

int
posix_fallocate(int fd, off_t offset, off_t length)
{
	allocate_function original =
		(allocate_function) dlsym(RTLD_NEXT, "posix_fallocate");
	off_t		size;
	struct stat status;

	/* shared memory is made longer first, which takes no room, and then allocated */
	if (is_full(fd, &size) && fstat(fd, &status) == 0 &&
		offset + length > (size < status.st_blocks * 512 ? size : status.st_blocks * 512))
		return ENOSPC;
	return original(fd, offset, length);
}
