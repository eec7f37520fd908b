/*
 * no_memory.c
 *	  Make calls of malloc() and the like fail, to test what becomes of calls.
 *
 * Linked into the library, whose own calls of malloc() and the like come here
 * (Relinked.pm), unlike those of the client library inside.  The file that DLOCK_NO_MEMORY
 * in the environment names, which must exist, says which calls fail, in three int64_t.
 * Each call counts the first down.  The one that makes it 0 fails, and as many after it as
 * the third says.  The second counts the failures.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "shared_numbers.h"

extern void *failing_malloc(size_t size);
extern void *failing_calloc(size_t n, size_t size);
extern void *failing_realloc(void *piece, size_t size);

typedef struct plan
{
	_Atomic int64_t left;
	_Atomic int64_t failed;
	_Atomic int64_t more;
} plan;

static plan *the_plan;

__attribute__((constructor)) static void
open_file(void)
{
	the_plan = map_numbers("DLOCK_NO_MEMORY", sizeof(*the_plan));
}

/* Say whether it is this call's turn to fail. */
static bool
fails(void)
{
	int64_t		left = atomic_fetch_sub(&the_plan->left, 1);

	if (left > 1 || left < 1 - the_plan->more)
		return false;
	atomic_fetch_add(&the_plan->failed, 1);
	return true;
}

void *
failing_malloc(size_t size)
{
	return fails() ? NULL : malloc(size);
}

void *
failing_calloc(size_t n, size_t size)
{
	return fails() ? NULL : calloc(n, size);
}

void *
failing_realloc(void *piece, size_t size)
{
	return fails() ? NULL : realloc(piece, size);
}
