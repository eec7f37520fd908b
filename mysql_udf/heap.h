/*
 * heap.h
 *	  What is due, earliest first: a binary heap of objects that contain their own items.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_HEAP_H
#define DLOCK_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct heap_item
{
	int64_t		due_us;
	size_t		place;			/* among the heap's items */
} heap_item;

/* All zero is an empty heap. */
typedef struct heap
{
	heap_item **items;			/* none is due before the one at (place - 1) / 2 */
	size_t		count;
	size_t		room;
} heap;

/* heap.c */
extern bool heap_reserve(heap *heap);
extern void heap_add(heap *heap, heap_item *item, int64_t due_us);
extern void heap_move(heap *heap, heap_item *item, int64_t due_us);
extern void heap_remove(heap *heap, heap_item *item);
extern heap_item *heap_first(const heap *heap);

/* The object that has an item as a member. */
#define heap_object(type, member, item) \
	((type *) ((char *) (item) - offsetof(type, member)))

#endif							/* DLOCK_HEAP_H */
