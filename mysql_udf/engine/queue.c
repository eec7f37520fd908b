/*
 * queue.c
 *	  Who waits for which name.
 *
 * A name that is waited for has a queue: a line, whose head is served first, and the
 * watchers, which are in nobody's way: those that wait for holds to end, or for several
 * names.  A waiter has a place in one queue; if it waits for any of several names, one in
 * the queue of each.  Places are found by name, by owner and, as waiters, by connection.  A
 * call that has waited counts as a waiter until it is answered: what it was granted may not
 * be durable yet.
 * A queue says when time may change something: those that are due are attended by the
 * writer.
 *
 * All of it is under the engine's mutex.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "udf_text.h"

/*
 * All calls that wait for any of several names may together have so many places, besides
 * the first of each; or "max_waiters", if that is more.
 */
#define OTHERS_MIN		1024

static heap dues;				/* of all queues */
static hash_table by_owner;		/* places */
static hash_table by_connection;	/* calls that have waited, and are not answered */
static size_t nplaces = 0;
static size_t nother_places = 0;	/* of calls that wait for several names, but the first */

/* Make room for the first waiter: false if memory is short.  More can always be added. */
bool
queue_begin(void)
{
	return hash_reserve(&by_owner) && hash_reserve(&by_connection);
}

/* How many places there are, and how many calls wait, or have waited. */
size_t
queue_places(void)
{
	return nplaces;
}

size_t
queue_waiters(void)
{
	return by_connection.count;
}

/* Say whether the account of a call may have so many places more, besides its first. */
bool
queue_has_places_for(const call *c, size_t others)
{
	size_t		most = settings->max_waiters > OTHERS_MIN ? settings->max_waiters : OTHERS_MIN;

	return account_share(most, nother_places, c->account->other_places) >= others;
}

/* The queue of a name, new if need be; NULL if memory is short. */
static queue *
get_queue(lease_bytes bytes)
{
	state_name *name = state_get_name(bytes);
	queue	   *q;

	if (name == NULL || name->queue != NULL)
		return name != NULL ? name->queue : NULL;
	q = heap_reserve(&dues) ? calloc(1, sizeof(queue)) : NULL;
	name->queue = q;
	if (q == NULL)
	{
		state_drop_name(name);
		return NULL;
	}
	q->name = name;
	heap_add(&dues, &q->due, INT64_MAX);
	return q;
}

static void
drop_if_unused(queue *q)
{
	state_name *name = q->name;

	if (q->line.count > 0 || q->watchers.count > 0)
		return;
	heap_remove(&dues, &q->due);
	name->queue = NULL;
	free(q);
	state_drop_name(name);
}

/* Set when to look at a name, whatever was set before. */
void
queue_set_due(queue *q, int64_t due_us)
{
	heap_move(&dues, &q->due, due_us);
	buffer_wake_before(due_us);
}

/* The queue that is due first, or NULL. */
queue *
queue_first_due(void)
{
	heap_item  *first = heap_first(&dues);

	return first != NULL ? heap_object(queue, due, first) : NULL;
}

/* ----------------------------------------------------------------
 * Places
 * ----------------------------------------------------------------
 */

/* Take a place, at the end of its list or at the head. */
static void
take_place(place *p, queue *q, bool at_head)
{
	call	   *c = p->call;
	place_list *list = c->watches ? &q->watchers : &q->line;

	p->queue = q;
	p->next = at_head ? list->head : NULL;
	p->prev = at_head ? NULL : list->tail;
	*(p->prev != NULL ? &p->prev->next : &list->head) = p;
	*(p->next != NULL ? &p->next->prev : &list->tail) = p;
	list->count++;
	nplaces++;
	if (c->request.owner.length == 0)
		return;
	(void) hash_reserve(&by_owner);
	hash_add(&by_owner, &p->by_owner, hash_bytes(c->request.owner, 0));
}

/* Leave a place; if it was the head of a line, the queue is due. */
static void
leave_place(place *p)
{
	queue	   *q = p->queue;
	place_list *list = p->call->watches ? &q->watchers : &q->line;
	bool		was_head = list == &q->line && p->prev == NULL;

	*(p->prev != NULL ? &p->prev->next : &list->head) = p->next;
	*(p->next != NULL ? &p->next->prev : &list->tail) = p->prev;
	list->count--;
	nplaces--;
	p->queue = NULL;
	if (p->by_owner.place != NULL)
		hash_remove(&by_owner, &p->by_owner);
	if (was_head && p->next != NULL)
		queue_set_due(q, 0);
	drop_if_unused(q);
}

/* A call is a waiter from now on. */
static void
enter(call *c)
{
	if (c->by_connection.place != NULL)
		return;
	(void) hash_reserve(&by_connection);
	hash_add(&by_connection, &c->by_connection, c->asked->caller->connection_id);
	account_to_count(c->account)->waiters++;
}

/* A call has so many places more, or less, besides its first. */
static void
count_others(const call *c, size_t change)
{
	nother_places += change;
	account_to_count(c->account)->other_places += change;
}

/*
 * Let a call wait for its names from the first to before the end, or keep it where it
 * waits for these already; "retry_us" is when time may change something.  False if memory
 * is short, and then it waits for none.
 */
bool
queue_join(call *c, size_t first, size_t end, int64_t retry_us)
{
	bool		is_new = c->nplaces == 0;

	if (is_new && end - first > 1 && c->places == NULL)
		c->places = calloc(end - first, sizeof(place));
	else if (c->places == NULL)
		c->places = &c->one;
	if (c->places == NULL)
		return false;
	for (size_t i = first; i < end; i++)
	{
		place	   *p = &c->places[i - first];
		queue	   *q = get_queue(c->asked->names[i]);

		if (q == NULL)
		{
			queue_leave(c);
			return false;
		}
		if (is_new)
		{
			p->call = c;
			take_place(p, q, false);
			if (c->nplaces++ > 0)
				count_others(c, 1);
		}
		p->retry_us = retry_us;
		if (retry_us < q->due.due_us)
			queue_set_due(q, retry_us);
	}
	c->is_queued = true;
	enter(c);
	return true;
}

/* Take a call out of all queues in which it is. */
void
queue_leave(call *c)
{
	if (c->nplaces == 0)
		return;
	for (size_t i = 0; i < c->nplaces; i++)
		leave_place(&c->places[i]);
	count_others(c, 1 - c->nplaces);
	c->nplaces = 0;
	c->is_queued = false;
}

/* A call is answered, and no waiter any more. */
void
queue_end(call *c)
{
	queue_leave(c);
	if (c->by_connection.place == NULL)
		return;
	hash_remove(&by_connection, &c->by_connection);
	account_to_count(c->account)->waiters--;
}

/*
 * What a call was granted in line has come to nothing: put it back at the head, where it
 * came from.  False if memory is short.
 */
bool
queue_return(call *c)
{
	queue	   *q = get_queue(c->asked->names[0]);

	if (q == NULL)
		return false;
	c->from_line = false;
	take_place(&c->one, q, true);
	c->places = &c->one;
	c->nplaces = 1;
	c->is_queued = true;
	enter(c);
	queue_set_due(q, 0);
	return true;
}

/* All waiters fail. */
void
queue_refuse_all(const char *sqlstate, const char *message)
{
	heap_item  *first;

	while ((first = heap_first(&dues)) != NULL)
	{
		queue	   *q = heap_object(queue, due, first);
		place	   *p = q->line.head != NULL ? q->line.head : q->watchers.head;

		calls_refuse(p->call, sqlstate, "%s", message);
	}
}

/*
 * The first place of an owner, or the next after one; NULL: there is none.
 */
place *
queue_place_of(lease_bytes owner, const account *account, const place *after)
{
	hash_link  *link = after != NULL ? hash_next(&after->by_owner) :
		hash_first(&by_owner, hash_bytes(owner, 0));

	for (; link != NULL; link = hash_next(link))
	{
		place	   *p = hash_object(place, by_owner, link);

		if (p->call->account == account &&
			lease_same(p->call->request.owner, owner))
			return p;
	}
	return NULL;
}

/* The waiter of a connection, if it waits on behalf of an owner, or NULL. */
call *
queue_waiter_of(uint64_t connection_id)
{
	for (hash_link *link = hash_first(&by_connection, connection_id);
		 link != NULL; link = hash_next(link))
	{
		call	   *c = hash_object(call, by_connection, link);

		if (c->asked->kind != DLOCK_CALL_WAIT && c->nplaces > 0)
			return c;
	}
	return NULL;
}

/* ----------------------------------------------------------------
 * The view
 * ----------------------------------------------------------------
 */

/* Add an account as it is shown. */
void
account_add_json(lease_text *text, const account *account)
{
	char		shown[DLOCK_USER_SIZE + DLOCK_HOST_SIZE];

	snprintf(shown, sizeof(shown), "%s@%s", account->user.data, account->host.data);
	dlock_add_json(text, dlock_bytes_of(shown));
}

/* Add a waiter for a name: an array, which the view takes apart; position 0: NULL. */
static void
add_waiter(lease_text *text, const call *c, lease_bytes name, size_t position)
{
	lease_text_add(text, text->length > 1 ? ", [" : "[");
	dlock_add_json_or_hex(text, name);
	lease_text_add(text, ", ");
	if (c->asked->kind == DLOCK_CALL_WAIT)
		lease_text_add(text, "null, null, ");
	else
	{
		dlock_add_json_or_hex(text, c->request.owner);
		lease_text_add(text, ", \"%s\", ", lease_mode_name(c->request.mode));
	}
	if (position > 0)
		lease_text_add(text, "%zu, ", position);
	else
		lease_text_add(text, "null, ");
	lease_text_add(text, "%" PRId64 ", ", c->waiting_since_us);
	account_add_json(text, c->account);
	lease_text_add(text, ", %" PRIu64 "]", c->asked->caller->connection_id);
}

/*
 * All waiters, queue by queue, for the view, which masks what its reader may not see.  NULL
 * if memory is short.
 */
char *
queue_json(void)
{
	lease_text	text = {0};

	lease_text_add(&text, "[");
	for (size_t i = 0; i < dues.count; i++)
	{
		const queue *q = heap_object(queue, due, dues.items[i]);
		size_t		position = 0;

		for (const place *p = q->line.head; p != NULL; p = p->next)
			add_waiter(&text, p->call, state_name_bytes(q->name), ++position);
		for (const place *p = q->watchers.head; p != NULL; p = p->next)
			add_waiter(&text, p->call, state_name_bytes(q->name), 0);
	}
	for (size_t i = 0; i < by_connection.nslots; i++)
		for (const hash_link *link = by_connection.slots[i]; link != NULL; link = link->next)
		{
			const call *c = hash_object(call, by_connection, link);

			if (c->nplaces == 0)
				add_waiter(&text, c, c->asked->names[c->waits_for], 0);
		}
	lease_text_add(&text, "]");
	if (text.failed)
		lease_text_free(&text);
	return text.data;
}
