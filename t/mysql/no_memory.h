/*
 * no_memory.h
 *	  Included first into a file of the library: its calls of malloc() and the like
 *	  may fail.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#define GNU_SOURCE_IS_OURS
#endif
#include <stdlib.h>
#ifdef GNU_SOURCE_IS_OURS
#undef _GNU_SOURCE
#undef GNU_SOURCE_IS_OURS
#endif

extern void *failing_malloc(size_t size);
extern void *failing_calloc(size_t n, size_t size);
extern void *failing_realloc(void *piece, size_t size);

#define malloc(size) failing_malloc(size)
#define calloc(n, size) failing_calloc(n, size)
#define realloc(piece, size) failing_realloc(piece, size)
