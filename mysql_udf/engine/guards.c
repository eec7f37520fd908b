/*
 * guards.c
 *	  Which guards have ended.
 *
 * A guard is a row of dlock.guards that the transaction that guards has locked.  So that
 * row tells whether it goes on, and only this file asks: in a thread, on a connection of
 * its own, without waiting for the lock.  A row that is not locked, or is not there, is
 * that of a guard that has ended.
 *
 * A guard that was announced has not locked its row yet, and may be taken for one that
 * has ended.  It finds out by its last step (make_guard()): the guard must be there.  And
 * that step is noted, so that what was looked at before counts no more.  No guard of a
 * lease that is held is ended before that step, unless it is old.
 *
 * Calls that a guard may be in the way of wait in a list until all guards were looked at.
 * For waiters in line the guards of their names are looked at again and again.
 *
 * All of it is under the engine's mutex, which is released while the server is asked.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "connection.h"
#include "lease_thread.h"

/* How often to look at guards that waiters wait for, and at others. */
#define WANTED_US		20000
#define OTHERS_US		1000000

/* A guard that was not checked for so long has failed. */
#define OLD_US			60000000

/* Most guards to look at in one statement, and bytes of that for each. */
#define PROBE_MOST		1000
#define PROBE_BYTES		32

/* A guard that is looked at. */
typedef struct probe
{
	uint64_t	number;
	uint64_t	checks;			/* when it was read */
	bool		is_locked;
} probe;

static struct
{
	probe	   *probes;
	size_t		room;
	size_t		count;
	size_t		most;
	bool		any_wanted;		/* waiters wait for some */
	int64_t		now_us;
}			turn;

static pthread_cond_t work;
static call_list calls;			/* that wait for a round */
static connection own = {.wire = -1};

/* Prepare the thread's sleep. */
void
guards_begin(void)
{
	lease_thread_begin_sleep(&work);
}

/* Have all guards looked at, and a call made then; one that waits for that goes on waiting. */
void
guards_probe(call *c)
{
	if (c->list != NULL)
		return;
	call_list_append(&calls, c);
	pthread_cond_signal(&work);
}

/* Add a guard to the round, if it may have ended and somebody wants to know. */
static void
add_probe(guard *g, void *context)
{
	const held *h = g->lease;
	bool		is_over = h->gone || h->deadline_us <= turn.now_us;
	bool		is_wanted = h->name->queue != NULL;

	turn.any_wanted |= is_wanted;
	if (turn.count >= turn.most ||
		!(is_over || g->checks > 0 || g->begun_us + OLD_US < turn.now_us) ||
		!array_reserve(&turn.probes, &turn.room, turn.count + 1, sizeof(probe)))
		return;
	turn.probes[turn.count++] = (probe) {g->number, g->checks, false};
}

/* Look which rows are locked; the mutex is not held.  False if that could not be seen. */
static bool
look_at_rows(void)
{
	lease_text	query = {0};
	lease_text	numbers = {0};
	MYSQL_RES  *result;
	MYSQL_ROW	row;
	lease_status status;

	if (own.mysql == NULL && connection_open(&own) != LEASE_STATUS_OK)
		return false;
	for (size_t i = 0; i < turn.count; i++)
	{
		lease_text_put(&numbers, ",", i > 0);
		lease_text_put_unsigned(&numbers, turn.probes[i].number);
	}
	/* those that are there, less those that are not locked */
	for (int locked = 1; locked >= 0; locked--)
	{
		lease_text_add(&query, "SELECT number FROM dlock.guards WHERE number IN (%s)%s",
					   numbers.data, locked ? "" : " FOR UPDATE SKIP LOCKED");
		status = connection_query(&own, &query, &result);
		if (status != LEASE_STATUS_OK)
		{
			lease_text_free(&numbers);
			return false;
		}
		while ((row = mysql_fetch_row(result)) != NULL)
			for (size_t i = 0; i < turn.count; i++)
				if (turn.probes[i].number == strtoull(row[0], NULL, 10))
					turn.probes[i].is_locked = locked;
		mysql_free_result(result);
	}
	lease_text_free(&numbers);
	return true;
}

/* Say whether the end of a guard may be written: for a call that waits for it, say. */
static bool
can_end(const call_list *waiting)
{
	return buffer_can_upkeep(turn.any_wanted || waiting->head != NULL);
}

/* End the guards whose rows were not locked, and make the calls that waited for that. */
static void
end_round(bool seen, call_list *waiting)
{
	call	   *c;

	for (size_t i = 0; seen && i < turn.count && can_end(waiting); i++)
	{
		const probe *p = &turn.probes[i];
		guard	   *g = state_find_guard(p->number);
		char		copy[LEASE_STRING_MAX];
		lease_bytes name;

		if (g == NULL || p->is_locked || g->checks != p->checks)
			continue;
		name = state_name_bytes(g->lease->name);
		memcpy(copy, name.data, name.length);
		name.data = copy;
		if (!decide_end_guard(g))
		{
			buffer_undo(NULL);
			break;
		}
		calls_attend(name, true);
		calls_make_woken();
	}
	while ((c = call_list_take(waiting)) != NULL)
	{
		c->probed = true;
		buffer_take(c);
	}
	buffer_appoint();
}

/* The thread. */
void *
guards_main(void *argument)
{
	engine_lock();
	for (;;)
	{
		static call_list waiting;
		bool		seen = true;
		int64_t		pause_us;

		turn.count = 0;
		turn.most = own.max_packet > 0 && own.max_packet < PROBE_MOST * PROBE_BYTES ?
			own.max_packet / PROBE_BYTES : PROBE_MOST;
		turn.any_wanted = false;
		turn.now_us = lease_now();
		state_visit_guards(add_probe, NULL);
		call_list_move(&calls, &waiting);
		if (turn.count > 0 && can_end(&waiting))
		{
			engine_unlock();
			seen = look_at_rows();
			engine_lock();
		}
		end_round(seen, &waiting);
		if (calls.head != NULL)
			continue;
		pause_us = turn.any_wanted ? WANTED_US : OTHERS_US;
		engine_sleep(&work, lease_now() + pause_us);
	}
	return NULL;
}
