/*
 * array.h
 *	  Arrays that grow.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_ARRAY_H
#define DLOCK_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* array.c */
extern bool array_reserve(void *array, size_t *room, size_t count, size_t size);

#endif							/* DLOCK_ARRAY_H */
