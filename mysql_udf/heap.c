/*
 * heap.c
 *	  What is due, earliest first: a binary heap of objects that contain their own items.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "heap.h"

#include "array.h"

static void
put(heap *heap, size_t place, heap_item *item)
{
	heap->items[place] = item;
	item->place = place;
}

/* Make room for one more item: false if memory is short. */
bool
heap_reserve(heap *heap)
{
	return array_reserve(&heap->items, &heap->room, heap->count + 1, sizeof(heap_item *));
}

/* Add an item; heap_reserve() has made room for it. */
void
heap_add(heap *heap, heap_item *item, int64_t due_us)
{
	put(heap, heap->count++, item);
	heap_move(heap, item, due_us);
}

/* Set when an item is due, and bring it to its place. */
void
heap_move(heap *heap, heap_item *item, int64_t due_us)
{
	size_t		place = item->place;

	item->due_us = due_us;
	while (place > 0 && heap->items[(place - 1) / 2]->due_us > due_us)
	{
		put(heap, place, heap->items[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	for (;;)
	{
		size_t		child = 2 * place + 1;

		if (child + 1 < heap->count &&
			heap->items[child + 1]->due_us < heap->items[child]->due_us)
			child++;
		if (child >= heap->count || heap->items[child]->due_us >= due_us)
			break;
		put(heap, place, heap->items[child]);
		place = child;
	}
	put(heap, place, item);
}

/* Take an item out. */
void
heap_remove(heap *heap, heap_item *item)
{
	heap_item  *last = heap->items[--heap->count];

	if (last == item)
		return;
	put(heap, item->place, last);
	heap_move(heap, last, last->due_us);
}

/* The item that is due first, or NULL. */
heap_item *
heap_first(const heap *heap)
{
	return heap->count > 0 ? heap->items[0] : NULL;
}
