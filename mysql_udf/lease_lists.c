/*
 * lease_lists.c
 *	  The lists of the calls that the engine has.
 *
 * A caller that gives up can take its call back from the lists "incoming" and "stalled";
 * the others are the batcher's.  A waiter is in the queue of a name (lease_waiters.c).
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_lists.h"

static lease_lists all;
const lease_lists *const lists = &all;

/* Put a call at the end of a list. */
static void
move(lease_calls *list, lease_call *call, lease_place place)
{
	call->place = place;
	lease_calls_append(list, call);
}

/* Put a call at the beginning of a list. */
static void
move_first(lease_calls *list, lease_call *call, lease_place place)
{
	call->place = place;
	lease_calls_push(list, call);
}

/* A call is to be made. */
void
lease_list_incoming(lease_call *call)
{
	move(&all.incoming, call, LEASE_PLACE_LIST);
}

/* A call is to be made before the others. */
void
lease_list_incoming_first(lease_call *call)
{
	move_first(&all.incoming, call, LEASE_PLACE_LIST);
}

/* A call is to be tried again at a time: a transaction is in its way. */
void
lease_list_stalled(lease_call *call, int64_t retry_us)
{
	call->retry_us = retry_us;
	move(&all.stalled, call, LEASE_PLACE_LIST);
}

/* A release was answered, and is to be written at a time; nobody can take it back. */
void
lease_list_deferred(lease_call *call, int64_t until_us)
{
	call->retry_us = until_us;
	move(&all.deferred, call, LEASE_PLACE_BATCH);
}

/* The same, before what was answered since. */
void
lease_list_deferred_first(lease_call *call, int64_t until_us)
{
	call->retry_us = until_us;
	move_first(&all.deferred, call, LEASE_PLACE_BATCH);
}

/* The batch is to make a call. */
void
lease_list_taken(lease_call *call)
{
	move(&all.taken, call, LEASE_PLACE_BATCH);
}

/* A call was made, and is to be answered when that has been committed. */
void
lease_list_at_commit(lease_call *call)
{
	move(&all.at_commit, call, LEASE_PLACE_BATCH);
}

/* A call that was answered, before or now, is to be written by the batch. */
void
lease_list_early(lease_call *call)
{
	move(&all.early, call, LEASE_PLACE_BATCH);
}

/* The batcher has a call, in no list. */
void
lease_list_none(lease_call *call)
{
	lease_calls_remove(call);
	call->place = LEASE_PLACE_BATCH;
}

/* The engine is done with a call. */
void
lease_list_done(lease_call *call)
{
	lease_calls_remove(call);
	call->place = LEASE_PLACE_NONE;
}
