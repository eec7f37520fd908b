/*
 * lease_call.c
 *	  A call while the engine has it, and lists of calls.
 *
 * The caller and the engine each have a reference to a call.  It is in one list at a
 * time.  Lists, places and answers are under the engine's mutex.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lease_moment.h"

/* Copy bytes to a call, which has room for them. */
void
lease_call_copy(lease_bytes *to, char *room, lease_bytes from)
{
	if (from.length > 0)
		memcpy(room, from.data, from.length);
	*to = (lease_bytes) {room, from.length};
}

/* A call with room for names, and one reference; NULL if there is no memory. */
lease_call *
lease_call_create(size_t nnames)
{
	lease_call *call = calloc(1, sizeof(lease_call));

	if (call == NULL)
		return NULL;
	call->names = calloc(1, nnames * (sizeof(lease_bytes) + LEASE_STRING_MAX) +
						 1);
	if (call->names == NULL)
	{
		free(call);
		return NULL;
	}
	call->nnames = nnames;
	for (size_t i = 0; i < nnames; i++)
		call->names[i].data = (char *) &call->names[nnames] +
			i * LEASE_STRING_MAX;
	sem_init(&call->done, 0, 0);
	atomic_init(&call->references, 1);
	call->request.owner.data = call->owner;
	call->request.request.data = call->request_id;
	call->start_us = lease_now();
	call->end_us = INT64_MAX;
	return call;
}

/*
 * A call that the engine makes itself, about the lease with a token; NULL if there is no
 * memory.
 */
lease_call *
lease_call_create_own(lease_op op, uint64_t token, lease_bytes owner,
					  lease_bytes name, const dlock_caller *caller)
{
	lease_call *call = lease_call_create(1);

	if (call == NULL)
		return NULL;
	call->kind = DLOCK_CALL_APPLY;
	call->request.op = op;
	call->request.token = token;
	lease_call_copy(&call->request.owner, call->owner, owner);
	lease_call_copy(&call->names[0], (char *) call->names[0].data, name);
	call->caller = *caller;
	call->answered = true;
	return call;
}

/* Give a reference back. */
void
lease_call_unref(lease_call *call)
{
	if (atomic_fetch_sub(&call->references, 1) > 1)
		return;
	for (size_t i = 0; call->places != NULL && i < call->nnames; i++)
		lease_call_unref(call->places[i]);
	free(call->places);
	free(call->answer.holders);
	free(call->answer.tokens);
	free(call->answer.done);
	free(call->answer.unmasked);
	free(call->outcomes);
	free(call->match);
	free(call->names);
	sem_destroy(&call->done);
	free(call);
}

/*
 * Answer a call.  The answer has been filled in, and is the caller's from now
 * on.  The mutex is held.
 */
void
lease_call_answer(lease_call *call)
{
	if (call->answered)
		return;
	call->answered = true;
	sem_post(&call->done);
}

/* Answer a call with an error. */
void
lease_call_fail(lease_call *call, const char *sqlstate, const char *format,...)
{
	va_list		arguments;

	if (call->answered)
		return;
	snprintf(call->answer.sqlstate, sizeof(call->answer.sqlstate), "%s",
			 sqlstate);
	va_start(arguments, format);
	vsnprintf(call->answer.message, sizeof(call->answer.message), format,
			  arguments);
	va_end(arguments);
	lease_call_answer(call);
}

/* ----------------------------------------------------------------
 * What a call wants, and has got
 * ----------------------------------------------------------------
 */

/* Say whether a call changes nothing. */
bool
lease_call_is_look(const lease_call *call)
{
	return call->internal == LEASE_INTERNAL_SETTINGS ||
		(call->internal == LEASE_INTERNAL_NONE &&
		 call->kind == DLOCK_CALL_READ);
}

/*
 * Say whether a call is about all leases of an owner, whose names have not been looked
 * up yet.
 */
bool
lease_call_is_of_owner(const lease_call *call)
{
	return call->kind == DLOCK_CALL_APPLY_ALL &&
		call->internal == LEASE_INTERNAL_NONE && call->nnames == 0;
}

/* Say whether a caller wants one lease. */
bool
lease_call_is_acquire(const lease_call *call)
{
	return call->internal == LEASE_INTERNAL_NONE &&
		call->kind == DLOCK_CALL_APPLY && call->request.op == LEASE_ACQUIRE;
}

/* Say whether a caller wants several leases, all or any. */
bool
lease_call_is_of_several(const lease_call *call)
{
	return call->kind == DLOCK_CALL_ACQUIRE_ALL ||
		call->kind == DLOCK_CALL_ACQUIRE_ANY;
}

/* What an acquire, of one name or of several, came to for one of its names. */
lease_outcome
lease_call_outcome(const lease_call *call, size_t i)
{
	return lease_call_is_of_several(call) ?
		(lease_outcome) call->outcomes[i] : call->answer.outcome;
}

/* Say whether a call has acquired what it wanted, by its answer. */
bool
lease_call_is_granted(const lease_call *call)
{
	return (lease_call_is_acquire(call) || lease_call_is_of_several(call)) &&
		call->answer.sqlstate[0] == '\0' &&
		lease_is_granted(call->answer.outcome);
}

/* ----------------------------------------------------------------
 * Lists
 * ----------------------------------------------------------------
 */

/* Put a call at the end of a list, whichever it was in. */
void
lease_calls_append(lease_calls *list, lease_call *call)
{
	lease_calls_remove(call);
	call->list = list;
	call->next = NULL;
	call->prev = list->tail;
	if (list->tail != NULL)
		list->tail->next = call;
	else
		list->head = call;
	list->tail = call;
	list->count++;
}

/* The same, at the beginning. */
void
lease_calls_push(lease_calls *list, lease_call *call)
{
	lease_calls_remove(call);
	call->list = list;
	call->prev = NULL;
	call->next = list->head;
	if (list->head != NULL)
		list->head->prev = call;
	else
		list->tail = call;
	list->head = call;
	list->count++;
}

/* Take a call out of its list, if it is in one. */
void
lease_calls_remove(lease_call *call)
{
	lease_calls *list = call->list;

	if (list == NULL)
		return;
	if (call->prev != NULL)
		call->prev->next = call->next;
	else
		list->head = call->next;
	if (call->next != NULL)
		call->next->prev = call->prev;
	else
		list->tail = call->prev;
	list->count--;
	call->list = NULL;
	call->next = call->prev = NULL;
}

/* Say whether a list has a call for a name. */
bool
lease_calls_concern(const lease_calls *list, lease_bytes name)
{
	for (const lease_call *call = list->head; call != NULL; call = call->next)
		for (size_t i = 0; i < call->nnames; i++)
			if (lease_same(call->names[i], name))
				return true;
	return false;
}
