/*
 * lease_guards.c
 *	  Rows that guards are about to lock.
 *
 * A guard learns from the engine where its row is, and then locks it.  If the row went
 * meanwhile, the guard's statement would find nothing, and under REPEATABLE READ InnoDB
 * would lock the gap in which the row was.  Then no row of any name could be inserted
 * there until the caller's transaction ends.  So from the moment that the guard is told,
 * the row counts as locked.  Other servers of a cluster, or a commit of our own that was
 * lost and goes on, can still remove it.
 *
 * The engine's mutex is held for all that is here.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_guards.h"

#include <stdlib.h>
#include <string.h>

#include "lease_moment.h"
#include "lease_settings.h"

/*
 * How long a guard may take from being told to having locked its row.  If its
 * connection ends in between, the name cannot be changed for that long.  So that no
 * call fails for that, it is half of lock_timeout if that is less.
 */
#define GUARD_US		1000000

typedef struct pending_guard
{
	struct pending_guard *next;
	uint64_t	connection_id;
	int64_t		until_us;
	uint32_t	slot;
	size_t		name_length;
	char		name[];
} pending_guard;

static pending_guard *guards = NULL;

/* Until when a row counts as locked that a guard is told of now. */
static int64_t
until(int64_t now_us)
{
	return now_us + lease_earlier(settings->lock_timeout_us / 2, GUARD_US);
}

/* A connection is about to lock a row: false if memory is short. */
bool
lease_guards_add(uint64_t connection_id, lease_bytes name, uint32_t slot,
				 int64_t now_us)
{
	pending_guard *guard = malloc(sizeof(pending_guard) + name.length);

	if (guard == NULL)
		return false;
	guard->connection_id = connection_id;
	guard->until_us = until(now_us);
	guard->slot = slot;
	guard->name_length = name.length;
	memcpy(guard->name, name.data, name.length);
	guard->next = guards;
	guards = guard;
	return true;
}

/*
 * The very next statement of a connection locks its row: false if it was told too long
 * ago where the row is, so that the row may be gone.
 */
bool
lease_guards_extend(uint64_t connection_id, int64_t now_us)
{
	for (pending_guard *guard = guards; guard != NULL; guard = guard->next)
		if (guard->connection_id == connection_id && guard->until_us > now_us)
		{
			guard->until_us = until(now_us);
			return true;
		}
	return false;
}

/* A connection has locked its row, or does something else. */
void
lease_guards_remove(uint64_t connection_id)
{
	for (pending_guard **place = &guards; *place != NULL;)
	{
		pending_guard *guard = *place;

		if (guard->connection_id == connection_id)
		{
			*place = guard->next;
			free(guard);
		}
		else
			place = &guard->next;
	}
}

/*
 * Rows were read: mark those that a guard is about to lock as locked.  Otherwise they
 * would count as free when they are locked a moment later.
 */
void
lease_guards_lock(lease_row *rows, size_t n, int64_t now_us)
{
	for (size_t i = 0; guards != NULL && i < n; i++)
		rows[i].locked |= lease_guards_have(rows[i].name, rows[i].slot,
											now_us);
}

/* Say whether a guard is about to lock a row. */
bool
lease_guards_have(lease_bytes name, uint32_t slot, int64_t now_us)
{
	for (pending_guard **place = &guards; *place != NULL;)
	{
		pending_guard *guard = *place;

		if (guard->until_us <= now_us)
		{
			*place = guard->next;
			free(guard);
			continue;
		}
		if (guard->slot == slot &&
			lease_same((lease_bytes) {guard->name, guard->name_length}, name))
			return true;
		place = &guard->next;
	}
	return false;
}
