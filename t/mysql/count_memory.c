/*
 * count_memory.c
 *	  Count the library's memory; for the test of a long life.
 *
 * Linked into the library, whose calls of malloc() and the like, and those of the
 * client library inside, come here (ld --wrap).  The file that DLOCK_COUNT_MEMORY in
 * the environment names, which must exist, gets the number of pieces and of bytes:
 * two int64_t.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "shared_numbers.h"

extern void *__real_malloc(size_t size);
extern void *__real_calloc(size_t n, size_t size);
extern void *__real_realloc(void *piece, size_t size);
extern void __real_free(void *piece);

extern void *__wrap_malloc(size_t size);
extern void *__wrap_calloc(size_t n, size_t size);
extern void *__wrap_realloc(void *piece, size_t size);
extern void __wrap_free(void *piece);
extern char *__wrap_strdup(const char *text);

typedef struct memory
{
	_Atomic int64_t pieces;
	_Atomic int64_t bytes;
} memory;

static memory *has;

__attribute__((constructor)) static void
open_file(void)
{
	has = map_numbers("DLOCK_COUNT_MEMORY", sizeof(*has));
	has->pieces = has->bytes = 0;
}

/* A piece of memory, or none, that is there from now on. */
static void *
add(void *piece)
{
	has->pieces += piece != NULL;
	has->bytes += (int64_t) malloc_usable_size(piece);
	return piece;
}

/* One that is not. */
static void
subtract(void *piece)
{
	has->pieces -= piece != NULL;
	has->bytes -= (int64_t) malloc_usable_size(piece);
}

void *
__wrap_malloc(size_t size)
{
	return add(__real_malloc(size));
}

void *
__wrap_calloc(size_t n, size_t size)
{
	return add(__real_calloc(n, size));
}

void *
__wrap_realloc(void *piece, size_t size)
{
	void	   *other;

	subtract(piece);
	other = __real_realloc(piece, size);
	return add(other != NULL ? other : piece) == other ? other : NULL;
}

void
__wrap_free(void *piece)
{
	subtract(piece);
	__real_free(piece);
}

char *
__wrap_strdup(const char *text)
{
	size_t		size = strlen(text) + 1;
	char	   *copy = __wrap_malloc(size);

	return copy != NULL ? memcpy(copy, text, size) : NULL;
}
