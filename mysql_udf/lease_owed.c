/*
 * lease_owed.c
 *	  What the table is owed: releases that were answered, and are yet to be written.
 *
 * They are found by their lease, because there may be many releases of other leases.
 * Until a release is written, all later calls find its lease given back.
 *
 * All of it is with the engine's mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_owed.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lease_lists.h"
#include "lease_name.h"
#include "lease_text.h"

static size_t nunwritten = 0;	/* releases that nothing keeps from being written */

static hash_table owed;

/* Make room for the first call: false if memory is short.  More can always be added. */
bool
lease_owed_begin(void)
{
	return hash_reserve(&owed);
}

static uint64_t
hash_lease(uint64_t name_hash, uint64_t token)
{
	return name_hash ^ token * UINT64_C(0x9E3779B97F4A7C15);
}

/* An answered call is to be written from now on, until it is finished. */
void
lease_owe(lease_call *call)
{
	if (call->by_lease.place != NULL)
		return;
	assert(call->nnames == 1);
	(void) hash_reserve(&owed);
	hash_add(&owed, &call->by_lease,
			 hash_lease(hash_bytes(call->names[0], 0), call->request.token));
}

/* The first of these calls for a lease, or the next after one; or NULL. */
lease_call *
lease_calls_owed(const image_name *name, uint64_t token,
				 const lease_call *after)
{
	hash_link  *link = after != NULL ? hash_next(&after->by_lease) :
		owed.count == 0 ? NULL :
		hash_first(&owed, hash_lease(name->link.hash, token));

	for (; link != NULL; link = hash_next(link))
	{
		lease_call *call = hash_object(lease_call, by_lease, link);

		if (call->request.token == token &&
			lease_same(call->names[0], name->name))
			return call;
	}
	return NULL;
}

/*
 * Note whether a call is an answered release that is yet to be written, with nothing in
 * its way.
 */
void
lease_call_set_unwritten(lease_call *call, bool unwritten)
{
	if (unwritten)
		lease_owe(call);
	if (call->unwritten == unwritten)
		return;
	call->unwritten = unwritten;
	nunwritten += unwritten ? 1 : -1;
}

/* A call is not to be written any more. */
void
lease_owe_nothing(lease_call *call)
{
	lease_call_set_unwritten(call, false);
	if (call->by_lease.place != NULL)
		hash_remove(&owed, &call->by_lease);
}

/* How many calls lease_call_set_unwritten() has noted. */
size_t
lease_owed_unwritten(void)
{
	return nunwritten;
}

/*
 * Say whether a release was written by a commit that was lost: its lease is gone, or was
 * written since.
 */
bool
lease_owed_is_written(const lease_call *call, const lease_member *member)
{
	return call->may_be_written &&
		(member == NULL || member->writes > call->seen_writes);
}

/* ----------------------------------------------------------------
 * What was released and a view may still find
 * ----------------------------------------------------------------
 */

/*
 * Releases that have been written lately, oldest first.  A view's statement may have begun
 * before their commit, and read this after it.  On a busy machine that is a long time, and
 * any number may be written in between.
 */
#define WRITTEN_US		1000000

typedef struct written_release
{
	struct written_release *next;
	int64_t		at_us;
	uint64_t	token;
	bool		ended;			/* nothing is left of the lease */
	size_t		length;
	char		name[];
} written_release;

static written_release *written = NULL;
static written_release **written_end = &written;

/* When memory was last too short to remember one: until it is old, no view is right. */
static int64_t forgotten_us = INT64_MIN;

/* Forget the releases that were written too long ago. */
static void
forget_written(int64_t now_us)
{
	while (written != NULL && written->at_us < now_us - WRITTEN_US)
	{
		written_release *old = written;

		written = old->next;
		if (written == NULL)
			written_end = &written;
		free(old);
	}
}

/* The lease of a release, or NULL. */
static const lease_member *
lease_of(const lease_call *call)
{
	const image_account *account = lease_account_of(&call->caller);
	const image_name *name = image_find(call->names[0]);
	const lease_member *own = NULL;

	if (account == NULL || name == NULL)
		return NULL;
	do
		own = image_own(name, call->request.owner, account, own);
	while (own != NULL && own->holder->token != call->request.token);
	return own != NULL && !own->gone ? own : NULL;
}

/*
 * The image was made anew, by what was read: mark the leases that were given back by
 * releases that are yet to be written.
 */
void
lease_owed_mark(void)
{
	const lease_calls *const all[] = {&lists->deferred, &lists->taken, &lists->early};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		for (const lease_call *call = all[i]->head; call != NULL;
			 call = call->next)
		{
			const lease_member *member = call->unwritten ? lease_of(call) :
				NULL;

			if (member != NULL && !lease_owed_is_written(call, member) &&
				(call->request.op == LEASE_DROP ||
				 lease_holds_returned(&call->request) == member->version))
				image_set_released(member->holder, true);
		}
}

/* The releases of the batch have been committed: remember them for the views. */
void
lease_owed_note_written(int64_t now_us)
{
	forget_written(now_us);
	for (const lease_call *call = lists->early.head; call != NULL;
		 call = call->next)
	{
		lease_bytes name = call->names[0];
		written_release *release = malloc(sizeof(written_release) + name.length);

		if (release == NULL)
		{
			forgotten_us = now_us;
			return;
		}
		release->next = NULL;
		release->at_us = now_us;
		release->token = call->request.token;
		release->ended = lease_of(call) == NULL;
		release->length = name.length;
		memcpy(release->name, name.data, name.length);
		*written_end = release;
		written_end = &release->next;
	}
}

/*
 * Add a lease of which holds were given back, and how many holds are left.  "member" is
 * what the image has of it, or NULL; "ended" says that none was left.  If some were left
 * and the image has been forgotten, it is not known how many: then the tables say it.
 */
static void
add_unwritten(lease_text *text, lease_bytes name, uint64_t token,
			  const lease_member *member, bool ended)
{
	int64_t		holds = member == NULL || member->released ? 0 :
		member->version;

	if (!ended && member == NULL && !image_is_known(name))
		return;

	/* less the holds whose release is yet to be written */
	for (const lease_call *call = NULL; holds > 0 &&
		 (call = lease_calls_owed(image_find(name), token, call)) != NULL;)
		if (call->unwritten && !lease_owed_is_written(call, member))
			holds -= lease_holds_returned(&call->request);

	lease_text_put(text, text->length > 1 ? ",[\"" : "[\"",
				   text->length > 1 ? 3 : 2);
	lease_text_put_hex(text, name);
	lease_text_put(text, "\",", 2);
	lease_text_put_unsigned(text, token);
	lease_text_put(text, ",", 1);
	lease_text_put_number(text, holds > 0 ? holds : 0);
	lease_text_put(text, "]", 1);
}

/*
 * The leases of which holds were given back, as JSON: see dlock_engine_unwritten().
 * NULL if memory is short, or was a moment ago.
 */
char *
lease_owed_json(int64_t now_us)
{
	const lease_calls *const all[] = {&lists->deferred, &lists->taken, &lists->early};
	lease_text	text = {0};

	forget_written(now_us);
	if (forgotten_us >= now_us - WRITTEN_US)
		return NULL;
	lease_text_put(&text, "[", 1);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		for (const lease_call *call = all[i]->head; call != NULL;
			 call = call->next)
			if (call->unwritten)
				add_unwritten(&text, call->names[0], call->request.token,
							  lease_of(call), call->ends);
	for (const written_release *release = written; release != NULL;
		 release = release->next)
	{
		lease_bytes name = {release->name, release->length};

		add_unwritten(&text, name, release->token, release->ended ? NULL :
					  image_lease(name, release->token), release->ended);
	}
	lease_text_put(&text, "]", 1);
	if (!text.failed)
		return text.data;
	lease_text_free(&text);
	return NULL;
}
