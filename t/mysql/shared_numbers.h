/*
 * shared_numbers.h
 *	  Numbers that a test shares with what is linked into the library.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef SHARED_NUMBERS_H
#define SHARED_NUMBERS_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The first bytes of the file that the environment calls so, which has as many. */
static inline void *
map_numbers(const char *variable, size_t size)
{
	const char *path = getenv(variable);
	int			fd = path != NULL ? open(path, O_RDWR) : -1;
	void	   *numbers = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (numbers == MAP_FAILED)
		abort();
	close(fd);
	return numbers;
}

#endif							/* SHARED_NUMBERS_H */
