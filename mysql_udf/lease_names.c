/*
 * lease_names.c
 *	  Names that were found, for a call that concerns them.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_names.h"

#include <stdlib.h>
#include <string.h>

#include "array.h"

/* Make room for one name more: false if memory is short. */
static bool
make_room(lease_names *list)
{
	return array_reserve(&list->names, &list->room, list->count + 1, sizeof(lease_bytes));
}

/* Add a copy of a name. */
void
lease_names_add(lease_names *list, lease_bytes name)
{
	char	   *copy = malloc(name.length + 1);

	if (copy == NULL || !make_room(list))
	{
		free(copy);
		list->failed = true;
		return;
	}
	memcpy(copy, name.data, name.length);
	list->names[list->count++] = (lease_bytes) {copy, name.length};
}

void
lease_names_free(lease_names *list)
{
	for (size_t i = 0; i < list->count; i++)
		free((char *) list->names[i].data);
	free(list->names);
	memset(list, 0, sizeof(*list));
}

/* Put the names in order, each once. */
void
lease_names_sort(lease_names *list)
{
	size_t		n = 0;

	if (list->count == 0)
		return;
	qsort(list->names, list->count, sizeof(lease_bytes), lease_compare);
	for (size_t i = 1; i < list->count; i++)
		if (lease_same(list->names[n], list->names[i]))
			free((char *) list->names[i].data);
		else
			list->names[++n] = list->names[i];
	list->count = n + 1;
}

/* Give a call the names of a list, "most" at most: false if memory is or was short. */
bool
lease_names_give(const lease_names *list, size_t most, lease_call *call)
{
	size_t		count = list->count < most ? list->count : most;
	size_t		bytes = 0;
	lease_bytes *names;
	char	   *data;

	for (size_t i = 0; i < count; i++)
		bytes += list->names[i].length;
	names = malloc(count * sizeof(lease_bytes) + bytes + 1);
	if (names == NULL || list->failed)
	{
		free(names);
		return false;
	}
	data = (char *) &names[count];
	for (size_t i = 0; i < count; i++)
	{
		memcpy(data, list->names[i].data, list->names[i].length);
		names[i] = (lease_bytes) {data, list->names[i].length};
		data += list->names[i].length;
	}
	free(call->names);
	call->names = names;
	call->nnames = count;
	return true;
}
