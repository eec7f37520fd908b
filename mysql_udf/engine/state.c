/*
 * state.c
 *	  The image: all leases that are held, in memory, and how changes are undone.
 *
 * The image is the fold of the log, and what the open and the flying buffer do to it.
 * Everything is found by its key: leases by token, by owner and account, by name, and the
 * next deadline by a heap.  A lease takes some 250 bytes, its name included.
 *
 * Copies.  Before a buffer changes a lease for the first time, it takes a copy, or notes
 * that there was none.  A token names its lease, so a copy is of a lease and not of a
 * name: a change of one among thousands of holders costs a copy of one.  If an append
 * fails, state_restore() puts a buffer's copies back, the newest first; the open buffer's
 * come before the flying one's.  Once a buffer is durable state_forget() drops them.
 * While a lease has copies, the oldest is what is durable, and what looks see.
 *
 * Memory.  If there is none, a function answers false or NULL and nothing has changed.
 * Putting copies back takes none.
 *
 * All of it is under the engine's mutex.  A crash takes the image with it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>


static hash_table names;
static hash_table by_token;
static hash_table by_owner;
static hash_table guards;
static heap deadlines;
static heap rows;				/* the oldest first */
static uint64_t shuffles = 0;
static uint64_t live_bytes;		/* of the log, if nothing else were in it */

/* Prepare, before anything is held: false if memory is short. */
bool
state_begin(void)
{
	return hash_reserve(&names) && hash_reserve(&by_token) &&
		hash_reserve(&by_owner) && hash_reserve(&guards);
}

/* How many leases there are. */
size_t
state_count(void)
{
	return by_token.count;
}

/* How many more leases an account may take. */
size_t
state_room_for(const account *account)
{
	return account_share(settings->max_leases, by_token.count, account->leases);
}

/* ----------------------------------------------------------------
 * Names
 * ----------------------------------------------------------------
 */

/* A name, or NULL: nobody holds it or waits for it. */
state_name *
state_find_name(lease_bytes bytes)
{
	for (hash_link *link = hash_first(&names, hash_bytes(bytes, 0));
		 link != NULL; link = hash_next(link))
	{
		state_name *name = hash_object(state_name, by_name, link);

		if (lease_same(state_name_bytes(name), bytes))
			return name;
	}
	return NULL;
}

/* A name, new if need be; NULL if memory is short. */
state_name *
state_get_name(lease_bytes bytes)
{
	state_name *name = state_find_name(bytes);

	if (name != NULL)
		return name;
	name = hash_reserve(&names) ? malloc(sizeof(state_name) + bytes.length) : NULL;
	if (name == NULL)
		return NULL;
	*name = (state_name) {.length = (uint8_t) bytes.length};
	memcpy(name->data, bytes.data, bytes.length);
	hash_add(&names, &name->by_name, hash_bytes(bytes, 0));
	return name;
}

/* Forget a name, if nothing is left of it. */
void
state_drop_name(state_name *name)
{
	if (name->count > 0 || name->copies != NULL || name->queue != NULL)
		return;
	hash_remove(&names, &name->by_name);
	free(name);
}

/* ----------------------------------------------------------------
 * Leases
 * ----------------------------------------------------------------
 */

/* The lease with a token, or NULL. */
held *
state_find(uint64_t token)
{
	for (hash_link *link = hash_first(&by_token, token); link != NULL;
		 link = hash_next(link))
	{
		held	   *h = hash_object(held, by_token, link);

		if (h->token == token)
			return h;
	}
	return NULL;
}

/* Tokens come one after the other, and so do the slots of their table. */
static uint64_t
owner_hash(lease_bytes owner, const account *account)
{
	return hash_bytes(owner, (uint64_t) (uintptr_t) account);
}

/* The first lease of an owner, or the next after one; NULL: there is none. */
held *
state_owned(lease_bytes owner, const account *account, const held *after)
{
	hash_link  *link = after != NULL ? hash_next(&after->by_owner) :
		hash_first(&by_owner, owner_hash(owner, account));

	for (; link != NULL; link = hash_next(link))
	{
		held	   *h = hash_object(held, by_owner, link);

		if (h->account == account && lease_same(held_owner(h), owner))
			return h;
	}
	return NULL;
}

/*
 * How often the leases of an owner may have come into another order.  Otherwise state_owned()
 * gives the newest first.
 */
uint64_t
state_shuffles(void)
{
	return shuffles;
}

/* The lease whose deadline comes first, or NULL. */
held *
state_first_due(void)
{
	heap_item  *first = heap_first(&deadlines);

	return first != NULL ? heap_object(held, due, first) : NULL;
}

/* The lease whose row of the log is the oldest, or NULL. */
held *
state_oldest(void)
{
	heap_item  *first = heap_first(&rows);

	return first != NULL ? heap_object(held, oldest, first) : NULL;
}

/* How many bytes of the log all leases take. */
uint64_t
state_live_bytes(void)
{
	return live_bytes;
}

static void
free_held(held *h)
{
	while (h->guards != NULL)
	{
		guard	   *g = h->guards;

		h->guards = g->next;
		free(g);
	}
	free(h->request);
	free(h);
}

/* Put a lease into the indexes, which have room. */
static void
enter_held(held *h)
{
	hash_add(&by_token, &h->by_token, h->token);
	hash_add(&by_owner, &h->by_owner, owner_hash(held_owner(h), h->account));
	heap_add(&deadlines, &h->due, h->deadline_us);
	heap_add(&rows, &h->oldest, h->oldest.due_us);
	live_bytes += h->bytes;
	account_to_count(h->account)->leases++;
	h->next = h->name->leases;
	h->place = &h->name->leases;
	if (h->next != NULL)
		h->next->place = &h->next;
	h->name->leases = h;
	h->name->count++;
	for (guard *g = h->guards; g != NULL; g = g->next)
		hash_add(&guards, &g->by_number, g->number);
	session_enter(h);
}

/* Take a lease out of the indexes. */
static void
leave_held(held *h)
{
	session_leave(h);
	for (guard *g = h->guards; g != NULL; g = g->next)
		hash_remove(&guards, &g->by_number);
	hash_remove(&by_token, &h->by_token);
	hash_remove(&by_owner, &h->by_owner);
	heap_remove(&deadlines, &h->due);
	heap_remove(&rows, &h->oldest);
	live_bytes -= h->bytes;
	account_to_count(h->account)->leases--;
	*h->place = h->next;
	if (h->next != NULL)
		h->next->place = h->place;
	h->place = NULL;
	h->name->count--;
}

/* Make room in all indexes for one more. */
static bool
reserve_held(void)
{
	return hash_reserve(&by_token) && hash_reserve(&by_owner) &&
		heap_reserve(&deadlines) && heap_reserve(&rows);
}

/* Copies of all guards of a lease for its clone: false if memory is short. */
static bool
clone_guards(const held *h, held *clone)
{
	guard	  **end = &clone->guards;

	clone->guards = NULL;
	for (const guard *g = h->guards; g != NULL; g = g->next)
	{
		*end = malloc(sizeof(guard));
		if (*end == NULL)
			return false;
		**end = *g;
		(*end)->by_number.place = NULL;
		(*end)->lease = clone;
		(*end)->next = NULL;
		end = &(*end)->next;
	}
	return true;
}

/* A lease like another, in no index; NULL if memory is short. */
static held *
clone_held(const held *h)
{
	size_t		size = sizeof(held) + h->owner_length;
	held	   *clone = malloc(size);

	if (clone == NULL)
		return NULL;
	memcpy(clone, h, size);
	clone->place = NULL;
	clone->session_place = NULL;
	clone->request = NULL;
	clone->request_length = 0;
	if (clone_guards(h, clone) && state_set_request(clone, held_request(h)))
		return clone;
	free_held(clone);
	return NULL;
}

/* ----------------------------------------------------------------
 * Copies
 * ----------------------------------------------------------------
 */

/* Add a copy to the open buffer: NULL if memory is short. */
static state_copy *
add_copy(state_copies *open, state_name *name, uint64_t token, held *was)
{
	state_copy *copy = malloc(sizeof(state_copy));

	if (copy == NULL)
		return NULL;
	*copy = (state_copy) {
		.next = open->newest, .name_next = name->copies,
		.name_place = &name->copies, .name = name, .token = token,
		.was = was, .seen = was != NULL ? was->version : 0
	};
	open->newest = copy;
	if (copy->name_next != NULL)
		copy->name_next->name_place = &copy->name_next;
	name->copies = copy;
	return copy;
}

/* Take the newest copy of a buffer out of its lists. */
static state_copy *
pop_copy(state_copies *copies)
{
	state_copy *copy = copies->newest;

	copies->newest = copy->next;
	*copy->name_place = copy->name_next;
	if (copy->name_next != NULL)
		copy->name_next->name_place = copy->name_place;
	return copy;
}

/*
 * A new lease of a name, without holds, which the caller fills in; NULL if memory is
 * short.  Without an open buffer nothing undoes it.
 */
held *
state_add(state_copies *open, state_name *name, const account *account,
		  lease_bytes owner, uint64_t token)
{
	held	   *h = reserve_held() ? malloc(sizeof(held) + owner.length) : NULL;

	if (h == NULL || (open != NULL && add_copy(open, name, token, NULL) == NULL))
	{
		free(h);
		return NULL;
	}
	*h = (held) {
		.name = name, .account = account, .token = token,
		.owner_length = (uint8_t) owner.length,
		.copied_in = open != NULL ? open->number : 0
	};
	memcpy(h->owner, owner.data, owner.length);
	enter_held(h);
	return h;
}

/* A lease is about to change: false if memory is short. */
bool
state_change(state_copies *open, held *h)
{
	held	   *was;

	if (open == NULL || h->copied_in == open->number)
		return true;
	was = clone_held(h);
	if (was == NULL || add_copy(open, h->name, h->token, was) == NULL)
	{
		if (was != NULL)
			free_held(was);
		return false;
	}
	h->copied_in = open->number;
	return true;
}

/* Set the request id of a lease that may be changed: false if memory is short. */
bool
state_set_request(held *h, lease_bytes request)
{
	char	   *data = NULL;

	if (lease_same(held_request(h), request))
		return true;
	if (request.length > 0)
	{
		data = malloc(request.length);
		if (data == NULL)
			return false;
		memcpy(data, request.data, request.length);
	}
	free(h->request);
	h->request = data;
	h->request_length = (uint8_t) request.length;
	return true;
}

/* The same for its deadline. */
void
state_set_deadline(held *h, int64_t deadline_us)
{
	h->deadline_us = deadline_us;
	heap_move(&deadlines, &h->due, deadline_us);
}

/* Let a lease whose deadline has passed be due later; a new deadline counts again. */
void
state_put_off(held *h, int64_t until_us)
{
	heap_move(&deadlines, &h->due, until_us);
}

/*
 * A row of the log has all of the lease, or will have.  The lease may be changed, or is
 * carried, and then its copy, if there is one, keeps the earlier row.
 */
void
state_set_row(held *h, uint64_t row, uint64_t total, size_t bytes)
{
	heap_move(&rows, &h->oldest, (int64_t) row);
	h->total = total;
	live_bytes += bytes - h->bytes;
	h->bytes = (uint16_t) bytes;
}

/* End a lease: false if memory is short. */
bool
state_end(state_copies *open, held *h)
{
	bool		is_copied = open == NULL || h->copied_in == open->number;
	state_name *name = h->name;

	if (!is_copied && add_copy(open, name, h->token, h) == NULL)
		return false;
	leave_held(h);
	if (is_copied)
		free_held(h);
	if (open == NULL)
		state_drop_name(name);
	return true;
}

/* Add a guard to a lease that may be changed; NULL if memory is short. */
guard *
state_add_guard(held *h, uint64_t number, lease_mode mode, uint32_t version)
{
	guard	   *g = hash_reserve(&guards) ? malloc(sizeof(guard)) : NULL;

	if (g == NULL)
		return NULL;
	*g = (guard) {
		.lease = h, .number = number, .mode = (uint8_t) mode, .version = version,
		.next = h->guards, .begun_us = lease_now()
	};
	h->guards = g;
	hash_add(&guards, &g->by_number, number);
	return g;
}

/* Take a guard from a lease that may be changed. */
void
state_remove_guard(guard *g)
{
	guard	  **place = &g->lease->guards;

	while (*place != g)
		place = &(*place)->next;
	*place = g->next;
	hash_remove(&guards, &g->by_number);
	free(g);
}

/* The guard with a number, or NULL. */
guard *
state_find_guard(uint64_t number)
{
	hash_link  *link = hash_first(&guards, number);

	return link != NULL ? hash_object(guard, by_number, link) : NULL;
}

/* Say whether any lease of a name is guarded. */
bool
state_has_guards(lease_bytes bytes)
{
	const state_name *name = guards.count > 0 ? state_find_name(bytes) : NULL;

	for (const held *h = name != NULL ? name->leases : NULL; h != NULL; h = h->next)
		if (h->guards != NULL)
			return true;
	return false;
}

/* Visit all guards, which the visitor must not change. */
void
state_visit_guards(void (*visit) (guard *g, void *context), void *context)
{
	for (size_t i = 0; guards.count > 0 && i < guards.nslots; i++)
		for (hash_link *link = guards.slots[i]; link != NULL; link = link->next)
			visit(hash_object(guard, by_number, link), context);
}

/*
 * A release was answered before it is durable: looks see this version of the lease from
 * now on, in each of its copies; 0: it has ended.
 */
void
state_see(state_name *name, uint64_t token, uint32_t version)
{
	for (state_copy *copy = name->copies; copy != NULL; copy = copy->name_next)
		if (copy->token == token && copy->seen > version)
			copy->seen = version;
}

/* The append of a buffer has failed: put back what was before it. */
void
state_restore(state_copies *copies)
{
	shuffles += copies->newest != NULL;
	while (copies->newest != NULL)
	{
		state_copy *copy = pop_copy(copies);
		held	   *h = state_find(copy->token);

		if (h != NULL)
		{
			leave_held(h);
			free_held(h);
		}
		if (copy->was != NULL)
			enter_held(copy->was);
		state_drop_name(copy->name);
		free(copy);
	}
}

/* A buffer is durable: what was before it is of no use any more. */
void
state_forget(state_copies *copies)
{
	while (copies->newest != NULL)
	{
		state_copy *copy = pop_copy(copies);

		if (copy->was != NULL)
			free_held(copy->was);
		state_drop_name(copy->name);
		free(copy);
	}
}

/*
 * A buffer is in the log, but it is not known whether it is durable.  Nothing undoes its
 * changes any more; looks see what was before them, until "kept" is forgotten.
 */
void
state_keep(state_copies *kept, state_copies *copies)
{
	state_copy **end = &copies->newest;

	while (*end != NULL)
		end = &(*end)->next;
	*end = kept->newest;
	kept->newest = copies->newest;
	copies->newest = NULL;
}

/* The oldest copy of a lease, or NULL. */
static const state_copy *
oldest_copy(const state_name *name, uint64_t token)
{
	const state_copy *oldest = NULL;

	for (const state_copy *copy = name->copies; copy != NULL;
		 copy = copy->name_next)
		if (copy->token == token)
			oldest = copy;
	return oldest;
}

/*
 * Visit the leases of a name as looks see them: what is durable, less what was given back
 * and answered; but of that the guards are left.
 */
void
state_look(const state_name *name,
		   void (*visit) (const held *h, uint32_t version, void *context),
		   void *context)
{
	for (const held *h = name->leases; h != NULL; h = h->next)
	{
		const state_copy *copy = name->copies != NULL ? oldest_copy(name, h->token) : NULL;

		if (copy == NULL || (h->gone && copy->was != NULL && copy->seen == 0))
			visit(h, h->version, context);
	}
	for (const state_copy *copy = name->copies; copy != NULL;
		 copy = copy->name_next)
		if (copy->seen > 0 && oldest_copy(name, copy->token) == copy)
			visit(copy->was, copy->seen, context);
}

/* In how many parts all names are to be looked at, with some "each" leases. */
size_t
state_parts(size_t each)
{
	size_t		parts = 1;

	while (parts < names.nslots && by_token.count / parts > each)
		parts *= 2;
	return parts;
}

/*
 * The same of one part of all names, of as many as state_parts() said at some time.  The
 * parts have the same names whatever comes and goes: by their hash.
 */
void
state_look_part(size_t part, size_t parts,
				void (*visit) (const held *h, uint32_t version, void *context),
				void *context)
{
	for (size_t i = part; i < names.nslots; i += parts)
		for (const hash_link *link = names.slots[i]; link != NULL; link = link->next)
			state_look(hash_object(state_name, by_name, link), visit, context);
}

/* ----------------------------------------------------------------
 * The fold
 * ----------------------------------------------------------------
 */

/* Forget all leases; there are no copies, and names that are waited for stay. */
void
state_clear(void)
{
	heap_item  *first;

	shuffles++;
	while ((first = heap_first(&deadlines)) != NULL)
	{
		held	   *h = heap_object(held, due, first);
		state_name *name = h->name;

		leave_held(h);
		free_held(h);
		state_drop_name(name);
	}
}

/* Bring a lease to what an entry says of it: false if memory is short. */
static bool
set_held(held *h, const log_entry *entry, int64_t now_us)
{
	if (!state_set_request(h, entry->request))
		return false;
	h->version = entry->version;
	h->mode = (uint8_t) entry->mode;
	h->kind = (uint8_t) entry->lifetime;
	h->leaving = entry->leaving;
	h->gone = entry->gone;
	h->repeated = entry->repeated;
	h->ttl_us = entry->ttl_us;
	h->acquired_us = entry->acquired_us;
	h->connection_id = entry->connection_id;
	h->server = entry->server;
	state_set_deadline(h, now_us + entry->left_us);
	return true;
}

/* Put a lease, by an entry that has all of it: NULL if memory is short. */
static held *
put_held(held *h, const log_entry *entry, int64_t now_us)
{
	state_name *name = h != NULL ? h->name : state_get_name(entry->name);
	const account *account = image_account_get(entry->user, entry->host);
	bool		is_new = h == NULL;

	if (name == NULL)
		return NULL;
	if (is_new && account != NULL)
		h = state_add(NULL, name, account, entry->owner, entry->token);
	if (h != NULL && set_held(h, entry, now_us))
	{
		/* a session's lease is put with that session */
		session_leave(h);
		session_enter(h);
		return h;
	}
	if (h != NULL && is_new)
		(void) state_end(NULL, h);
	else
		state_drop_name(name);
	return NULL;
}

/*
 * Apply an entry of a row of the log; there are no copies.  What was left of a time to
 * live counts from now.
 */
state_folded
state_fold(const log_entry *entry, uint64_t row, uint64_t total, int64_t now_us)
{
	held	   *h = entry->kind == LOG_TAKE_OVER ? NULL : state_find(entry->token);
	guard	   *g;

	switch (entry->kind)
	{
		case LOG_TAKE_OVER:
			state_count_anew(now_us);
			break;
		case LOG_PUT:
		case LOG_CARRY:
			if (h == NULL || entry->kind == LOG_PUT)
				h = put_held(h, entry, now_us);
			if (h == NULL)
				return STATE_NO_MEMORY;
			state_set_row(h, row, total, entry->bytes);
			break;
		case LOG_RENEW:
			if (h == NULL)
				return STATE_UNKNOWN;
			h->ttl_us = entry->ttl_us;
			state_set_deadline(h, now_us + entry->left_us);
			break;
		case LOG_END:
			if (h == NULL)
				return STATE_UNKNOWN;
			if (h->guards != NULL)
				h->gone = true;
			else
				(void) state_end(NULL, h);
			break;
		case LOG_GUARD:
			if (h == NULL)
				return STATE_UNKNOWN;
			if (state_find_guard(entry->guard) == NULL &&
				state_add_guard(h, entry->guard, entry->mode, entry->version) == NULL)
				return STATE_NO_MEMORY;
			break;
		case LOG_END_GUARD:
			g = state_find_guard(entry->guard);
			if (g == NULL)
				return STATE_UNKNOWN;
			h = g->lease;
			state_remove_guard(g);
			if (h->gone && h->guards == NULL)
				(void) state_end(NULL, h);
			break;
	}
	return STATE_FOLDED;
}

/* Count the time to live of all leases anew. */
void
state_count_anew(int64_t now_us)
{
	size_t		count = deadlines.count;

	/* each item is added to the part that was read already */
	deadlines.count = 0;
	for (size_t i = 0; i < count; i++)
	{
		held	   *h = heap_object(held, due, deadlines.items[i]);

		h->deadline_us = now_us + h->ttl_us;
		heap_add(&deadlines, &h->due, h->deadline_us);
	}
}

/* The entry that has all of a lease. */
void
state_describe(const held *h, log_kind kind, int64_t now_us, log_entry *entry)
{
	*entry = (log_entry) {
		.kind = kind, .token = h->token,
		.ttl_us = h->ttl_us,
		.left_us = h->deadline_us > now_us ? h->deadline_us - now_us : 0,
		.mode = h->mode, .version = h->version, .lifetime = h->kind,
		.leaving = h->leaving, .gone = h->gone, .repeated = h->repeated,
		.name = state_name_bytes(h->name), .owner = held_owner(h),
		.user = h->account->user, .host = h->account->host,
		.request = held_request(h), .connection_id = h->connection_id,
		.server = h->server, .acquired_us = h->acquired_us
	};
}
