/*
 * array.c
 *	  Arrays that grow.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "array.h"

#include <stdlib.h>
#include <string.h>

/*
 * Make room in an array for "count" elements of a size.  "array" is the address of the
 * pointer to it, and *room how many it has room for.  False, and nothing has changed, if
 * memory is short.  An array that grows gets room for twice as many, so that elements that
 * are added one by one are not copied each time.
 */
bool
array_reserve(void *array, size_t *room, size_t count, size_t size)
{
	void	   *elements;

	if (count <= *room)
		return true;
	memcpy(&elements, array, sizeof(elements));
	elements = realloc(elements, 2 * count * size);
	if (elements == NULL)
		return false;
	memcpy(array, &elements, sizeof(elements));
	*room = 2 * count;
	return true;
}
