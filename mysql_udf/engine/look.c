/*
 * look.c
 *	  What looks see: the leases of a name, whether it is free, what is left of one.
 *
 * A look is answered by the image, as far as it is durable, less the releases that were
 * answered (state_look()).  It writes nothing and waits for nothing.
 *
 * All of it is under the engine's mutex.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "engine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "udf_text.h"

/* A look at a name: the leases that it sees, as the core's holders. */
typedef struct looking
{
	lease_moment moment;
	party		party;
	lease_holder *holders;
	size_t		room;
	const held **leases;
	size_t		leases_room;
	size_t		count;
	size_t		bytes;			/* of all owners */
	bool		failed;			/* memory was short */
} looking;

/* A lease is seen, with so many holds. */
static void
see(const held *h, uint32_t version, void *context)
{
	looking    *l = context;

	/* nothing but guards was left of it, and these have ended */
	if (h->gone && state_find(h->token) == NULL)
		return;
	if (l->failed || !array_reserve(&l->holders, &l->room, l->count + 1,
									sizeof(lease_holder)) ||
		!array_reserve(&l->leases, &l->leases_room, l->count + 1, sizeof(held *)))
	{
		l->failed = true;
		return;
	}
	decide_describe(h, l->party, &l->moment, &l->holders[l->count]);
	l->holders[l->count].version = version;
	l->leases[l->count++] = h;
	l->bytes += h->owner_length;
}

/* Tell of all leases that were seen. */
static bool
tell(const looking *l, dlock_answer *answer)
{
	dlock_holder_info *info = malloc(l->count * sizeof(*info) + l->bytes + 1);
	char	   *owners = (char *) &info[l->count];

	if (info == NULL)
		return false;
	for (size_t i = 0; i < l->count; i++)
	{
		const held *h = l->leases[i];
		const lease_holder *holder = &l->holders[i];
		const held *now = state_find(h->token);
		bool		live = !lease_is_over(holder, l->moment.now_us);

		memcpy(owners, h->owner, h->owner_length);
		info[i] = (dlock_holder_info) {
			.owner = {owners, h->owner_length},
			.user = h->account->user, .host = h->account->host,
			.mode = h->mode, .kind = h->kind, .version = holder->version,
			.token = h->token, .acquired_at_us = h->acquired_us,
			.expires_at_us = holder->life == LEASE_BOUND || h->gone ? 0 :
				l->moment.wall_us + holder->deadline_us - l->moment.now_us,
			.connection_id = h->connection_id, .live = live,
			.leaving = h->leaving,
			.remaining_us = lease_remaining_us(holder, l->moment.now_us),
			.guarded = now != NULL && now->guards != NULL ?
				DLOCK_GUARDED : DLOCK_NOT_GUARDED
		};
		owners += h->owner_length;
	}
	answer->holders = info;
	answer->nholders = l->count;
	return true;
}

/* Answer a DLOCK_CALL_READ: false if memory is short. */
bool
look_at(const dlock_call *asked, dlock_answer *answer)
{
	const state_name *name = state_find_name(asked->names[0]);
	looking		l = {.moment = lease_moment_now(false)};
	size_t		mine;

	l.party.account = image_account_get(dlock_caller_user(asked->caller),
										dlock_caller_host(asked->caller));
	l.party.connection_id = asked->caller->connection_id;
	if (name != NULL)
		state_look(name, see, &l);
	if (!l.failed)
	{
		answer->yes = lease_is_free(l.holders, l.count, l.moment.delay_us,
									l.moment.now_us);
		mine = lease_find(&asked->request, l.holders, l.count, l.moment.now_us);
		answer->remaining_us = mine == l.count ? -1 :
			lease_remaining_us(&l.holders[mine], l.moment.now_us);
		l.failed = !tell(&l, answer);
	}
	free(l.holders);
	free(l.leases);
	return !l.failed;
}

/* ----------------------------------------------------------------
 * All leases
 *
 * They are looked at page by page, so that no answer is long, and no look stands in the way
 * of calls for long.  A lease that is there all the time is in exactly one page.
 * ----------------------------------------------------------------
 */

/* What look_at_page() is at. */
typedef struct listing
{
	lease_moment moment;
	lease_text	text;
} listing;

/* Add a lease to the page: an array, which the view lease_state takes apart. */
static void
list_lease(const held *h, uint32_t version, void *context)
{
	listing    *l = context;
	lease_text *text = &l->text;
	lease_holder holder;

	if (h->gone)
		return;
	decide_describe(h, (party) {0}, &l->moment, &holder);
	lease_text_put(text, text->length > 1 ? ", [" : "[", text->length > 1 ? 3 : 1);
	dlock_add_json_or_hex(text, state_name_bytes(h->name));
	lease_text_put(text, ", ", 2);
	dlock_add_json_or_hex(text, held_owner(h));
	lease_text_put(text, ", ", 2);
	account_add_json(text, h->account);
	lease_text_add(text, ", %d, %d, %d, %" PRIu32 ", %" PRIu64 ", %" PRId64 ", %" PRIu64
				   ", %" PRId64 ", %" PRId64 "]",
				   h->mode, h->kind, h->leaving, version, h->token, h->ttl_us,
				   h->connection_id, h->acquired_us,
				   l->moment.wall_us + holder.deadline_us - l->moment.now_us);
}

/* One page of "pages", a power of two, as JSON; NULL if memory is short. */
char *
look_at_page(size_t page, size_t pages)
{
	listing		l = {.moment = lease_moment_now(false)};

	lease_text_put(&l.text, "[", 1);
	state_look_part(page, pages, list_lease, &l);
	lease_text_put(&l.text, "]", 1);
	if (l.text.failed)
		lease_text_free(&l.text);
	return l.text.data;
}
