/*
 * lease_dirty.c
 *	  The names that differ from the table, and how they are written.
 *
 * Take-overs and checkpoints write what the journal has into the table.  Rows that a
 * transaction has locked stay as they are, and what is to become of them is carried
 * forward: it is appended to the journal anew.
 *
 * All of it is with the engine's mutex held.  It concerns the first "ndirty" names of the
 * image's list.  The list may grow meanwhile, but only at its end.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_dirty.h"

#include <stdlib.h>

#include "image.h"
#include "image_marks.h"
#include "lease_guards.h"
#include "lease_moment.h"
#include "lease_server.h"
#include "lease_tenure.h"

/*
 * Those of the names that have rows in the table, and how many rows these are; NULL if
 * memory is short.
 */
lease_bytes *
lease_dirty_names(size_t ndirty, size_t *n, size_t *nrows)
{
	lease_bytes *names = malloc((ndirty + 1) * sizeof(lease_bytes));
	const image_name *name = image_first_dirty();

	*n = *nrows = 0;
	for (size_t i = 0; names != NULL && i < ndirty; i++, name = name->next_dirty)
	{
		if (name->nrows > 0)
			names[(*n)++] = name->name;
		*nrows += name->nrows;
	}
	return names;
}

/*
 * Their rows have been read: note which are locked.  At a take-over these may be
 * guarded, although the journal says that their leases have ended.
 */
lease_status
lease_dirty_locks(const lease_bytes *names, size_t n, const table_rows *rows,
				  bool takes)
{
	connection *c = lease_server_connection();
	int64_t		now_us = lease_now();

	for (size_t i = 0; i < n; i++)
	{
		image_name *name = image_find(names[i]);
		size_t		count;
		size_t		first = table_find_rows(rows, names[i], &count);

		lease_guards_lock(rows->rows + first, count, now_us);
		if (!image_probe(name, rows->rows + first, count))
			return connection_edited(c);
		if (takes && !image_keep_guarded(name, rows->rows + first, count,
										 now_us))
			return connection_no_memory(c);
	}
	return LEASE_STATUS_OK;
}

/*
 * A row that is locked is to go: carry that forward if its lease has ended.  If the lease
 * has moved to another slot, the newer of its rows counts.
 */
static void
carry_end(const image_name *name, const image_row *row, journal_writer *carried)
{
	if (image_lease(name->name, row->token) == NULL)
		journal_remove(carried, name->name, row->token);
}

/*
 * Write a name as it is.  What needs a row that is locked is carried forward, if the
 * journal can take it.
 */
static void
write_name(image_name *name, table_changes *changes,
		   journal_writer *carried, int64_t now_us, int64_t wall_us)
{
	image_note_staying(name, name->members, name->count);
	for (size_t i = 0; i < name->nrows; i++)
	{
		const image_row *row = &name->rows[i];

		if (row->stays)
			continue;
		if (row->locked)
			carry_end(name, row, carried);
		else
			table_delete(changes, name->name, row->slot);
	}
	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];
		const image_row *before = image_row_at(name, member->slot);
		lease_row	row;

		if (member->gone || image_is_in_table(name, member))
			continue;
		row = image_row_of(name, member, now_us, wall_us);
		if (before == NULL || !before->locked)
		{
			table_put(changes, &row, before != NULL);
			continue;
		}
		if (before->token != row.token)
			carry_end(name, before, carried);
		journal_put(carried, &row);
	}
}

/*
 * Collect what makes the table equal to the image: changes of rows, with "marks" also of
 * all marks, and what is carried forward.
 */
void
lease_dirty_write(size_t ndirty, bool marks, table_changes *changes,
				  journal_writer *carried)
{
	image_name *name = image_first_dirty();
	size_t		most = lease_server_connection()->max_packet;
	int64_t		now_us = lease_now();
	int64_t		wall_us = lease_wall();

	table_begin(changes, most / 2);
	journal_begin(carried, lease_run(), most);
	for (size_t i = 0; i < ndirty; i++, name = name->next_dirty)
		write_name(name, changes, carried, now_us, wall_us);
	journal_end(carried);
	for (uint32_t i = 0; marks && i < LEASE_BUCKETS; i++)
		if (image_mark(i) > image_mark_stored(i))
			table_raise_mark(changes, i, image_mark(i));
}

/*
 * All that has been committed: false if memory is short.  Names with rows that are locked
 * go to the end of the list.
 */
bool
lease_dirty_written(size_t ndirty, const journal_writer *carried)
{
	image_name *name = image_first_dirty();

	if (!journal_is_empty(carried))
		lease_note_appended(carried->rows.count, journal_bytes(carried));
	for (size_t i = 0; i < ndirty; i++)
	{
		image_name *next = name->next_dirty;

		if (!image_written(name))
			return false;
		name = next;
	}
	return true;
}
