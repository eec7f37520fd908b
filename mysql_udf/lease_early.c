/*
 * lease_early.c
 *	  Answer in the caller's own thread, by what the image says.
 *
 * What the image says has been committed.  So who only looks is answered at once,
 * and so is who tries for a lease that somebody holds.  A release is answered before
 * it is written: it is marked in the image, and put off for a moment, so that it
 * comes with the next commit.  Should it be lost in a crash, others wait for its
 * deadline.
 *
 * None of this waits for the server, whatever a commit or a lock of somebody else's
 * makes the batcher wait for.  What the image cannot say is left to the batcher:
 * which rows a transaction has locked, whose turn it is in a queue, what is being
 * changed just now, and all that changes anything else.
 *
 * All of it is with the engine's mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_batcher.h"

#include <stdlib.h>
#include <string.h>

#include "lease_stats.h"

/* How old the last look at the server may be. */
#define LOOK_MAX_AGE_US	2500000

/* Most leases of a name that are gone through here, for a change; it takes a copy. */
#define EARLY_LEASES	64

/*
 * Say whether the image can be gone by: nobody else writes the tables, as far as is
 * known.  While the batcher waits for the server nobody looks; what was committed by
 * then stays.
 */
static bool
is_valid(void)
{
	return image_is_valid() && !engine.reload &&
		!batcher.clustered && !engine.read_only &&
		(batcher.asks_since_us != 0 ||
		 lease_now() < batcher.looked_us + LOOK_MAX_AGE_US);
}

/* Say whether a name is known, and that nobody has locked its rows. */
static bool
is_plain(lease_bytes bytes)
{
	const image_name *name = image_find(bytes);

	return image_is_known(bytes) &&
		(name == NULL || name->unguarded || name->nrows == 0);
}

/* What was given back of a name, and is to be written. */
typedef enum given_back
{
	GIVEN_WHOLE,				/* nothing, or what is marked in the image */
	GIVEN_PARTS,				/* also some holds of leases that stay */
	GIVEN_UNKNOWN				/* the image cannot say */
} given_back;

/*
 * Find out what was given back of a name.  With a draft, count the holds down that it
 * has.
 */
static given_back
find_given_back(lease_bytes bytes, lease_name *draft)
{
	const lease_calls *lists[] = {&engine.deferred, &batch.calls, &batch.early};
	given_back	given = GIVEN_WHOLE;

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		for (const lease_call *c = lists[i]->head; c != NULL; c = c->next)
		{
			const lease_member *member;
			lease_member *drafted;
			uint32_t	holds = c->request.holds > 0 ? c->request.holds : 1;

			if (c->nnames != 1 || !lease_same(c->names[0], bytes) ||
				(lists[i] != &engine.deferred && !c->unwritten))
				continue;
			member = image_lease(bytes, c->request.token);
			if (member != NULL && member->released)
				continue;
			if (member == NULL || c->may_be_written || !c->unwritten ||
				member->version <= holds)
			{
				if (lists[i] != &engine.deferred)
					continue;	/* as it is committed */
				return GIVEN_UNKNOWN;
			}
			given = GIVEN_PARTS;
			drafted = draft == NULL ? NULL :
				lease_name_find(draft, c->request.token);
			if (drafted == NULL)
				continue;
			if (drafted->version <= holds)
				return GIVEN_UNKNOWN;
			drafted->version -= holds;
		}
	return given;
}

/* Say whether an acquire could be made by what is known. */
static bool
suffices(const lease_call *call)
{
	return call->internal == LEASE_INTERNAL_NONE &&
		call->kind == DLOCK_CALL_APPLY && is_plain(call->names[0]) &&
		lease_queue_find(call->names[0]) == NULL;
}

/*
 * Say whether a call can be made, with all that was put off, in its caller's own
 * thread: it takes one commit, and no reading.  The batcher sleeps.
 */
bool
lease_early_is_lendable(const lease_call *call)
{
	if (!is_valid() || !batcher.has_taken_over || batcher.direct ||
		batcher.connection.mysql == NULL ||
		!connection_can_be_interrupted(&batcher.connection) ||
		!lease_upkeep_has_settings() ||
		!lease_call_is_acquire(call) || !suffices(call))
		return false;
	for (const lease_call *c = engine.deferred.head; c != NULL; c = c->next)
		if (!suffices(c))
			return false;
	return true;
}

/*
 * The draft of a name as those see it who only look: what was given back, and is to be
 * written, has ended.  NULL if memory is short.
 */
static lease_name *
draft_of(image_name *entry, const lease_moment *moment)
{
	lease_name *name = lease_name_create(entry, moment);

	for (size_t i = 0; name != NULL && i < name->count; i++)
		name->members[i].gone |= name->members[i].released;
	return name;
}

/*
 * What a request would come to; the draft is to be freed.  NULL if that is not ours
 * to say.
 */
static lease_name *
decide(lease_bytes bytes, lease_request request, const dlock_caller *caller,
	   const lease_moment *moment, lease_name_answer *answer)
{
	image_name *entry = is_valid() && is_plain(bytes) ? image_find(bytes) :
		NULL;
	lease_name *name;

	if (entry == NULL || entry->in_batch || entry->count > EARLY_LEASES)
		return NULL;
	name = draft_of(entry, moment);
	if (name == NULL)
		return NULL;
	if (find_given_back(bytes, name) != GIVEN_UNKNOWN)
	{
		request.behind = false;
		*answer = lease_name_apply(name, &request, caller, moment);
		if (!name->failed)
			return name;
	}
	lease_name_free(name);
	return NULL;
}

/* Say whether nobody has a lease on a name. */
static bool
is_nobodys(lease_bytes bytes)
{
	return is_valid() && image_is_known(bytes) && image_find(bytes) == NULL &&
		find_given_back(bytes, NULL) == GIVEN_WHOLE;
}

/*
 * Answer a release at once, if it is of a plain lease or changes nothing: true.  If
 * somebody waits for the name, it is written at once, too.
 */
bool
lease_early_release(const dlock_call *request, dlock_answer *answer)
{
	lease_moment moment = lease_moment_now(false);
	lease_name_answer made;
	lease_name *name;
	lease_member *member = NULL;
	bool		ends = false;
	lease_call *call;

	if (request->kind != DLOCK_CALL_APPLY ||
		request->request.op != LEASE_RELEASE)
		return false;
	if (is_nobodys(request->names[0]))
	{
		answer->outcome = LEASE_NOT_HELD;
		return true;
	}
	name = decide(request->names[0], request->request, request->caller,
				  &moment, &made);
	if (name == NULL)
		return false;
	for (size_t i = 0; i < name->count && made.outcome == LEASE_RELEASED; i++)
		if (name->members[i].holder->token == made.token &&
			name->members[i].kind == LEASE_PLAIN)
		{
			member = &name->entry->members[i];
			ends = name->members[i].gone;
		}
	lease_name_free(name);
	if (made.outcome != LEASE_RELEASED && !made.changed)
	{
		answer->outcome = made.outcome;
		answer->held_mode = made.held_mode;
		answer->held_kind = made.held_kind;
		return true;
	}
	call = member == NULL ? NULL :
		lease_call_create_own(LEASE_RELEASE, made.token,
							  request->request.owner, request->names[0],
							  request->caller);
	if (call == NULL)
		return false;
	member->released = ends;
	call->request.holds = request->request.holds;
	call->seen_writes = made.seen_writes;
	lease_call_set_unwritten(call, true);
	lease_call_defer(call, moment.now_us +
					 (lease_queue_find(request->names[0]) == NULL ?
					  lease_defer_us() : 0));
	if (batcher.sleeps_until_us > lease_due_us(call))
		pthread_cond_signal(&engine.work);
	lease_count(LEASE_COUNT_released, 1);
	answer->outcome = LEASE_RELEASED;
	answer->token = made.token;
	return true;
}

/*
 * Refuse an acquire that does not wait, if a lease is in its way: true.  All else is
 * the batcher's to make.
 */
static bool
refuse(dlock_call_kind kind, const lease_bytes *names, lease_request request,
	   int64_t wait_us, const dlock_caller *caller, dlock_answer *answer)
{
	lease_moment moment = lease_moment_now(false);
	lease_name_answer made;
	lease_name *name;

	if (kind != DLOCK_CALL_APPLY || request.op != LEASE_ACQUIRE || wait_us != 0)
		return false;
	if (lease_queue_find(names[0]) != NULL)
		return false;
	name = decide(names[0], request, caller, &moment, &made);
	if (name == NULL)
		return false;
	lease_name_free(name);
	if (made.outcome != LEASE_BUSY)
		return false;
	lease_count(LEASE_COUNT_refused, 1);
	answer->outcome = LEASE_BUSY;
	return true;
}

/* The same for a request. */
bool
lease_early_refuse(const dlock_call *request, dlock_answer *answer)
{
	return refuse(request->kind, request->names, request->request,
				  request->wait_us, request->caller, answer);
}

/*
 * The same for a call that has come to the batcher: the lease may have been
 * granted since the call began.
 */
bool
lease_early_refuse_call(lease_call *call)
{
	if (call->internal != LEASE_INTERNAL_NONE || call->answered ||
		!refuse(call->kind, call->names, call->request, call->wait_us,
				&call->caller, &call->answer))
		return false;
	lease_call_answer_now(call);
	return true;
}

/* ----------------------------------------------------------------
 * Looking
 * ----------------------------------------------------------------
 */

/* Copy bytes, for which there is room, as text. */
static void
copy_text(char *to, lease_bytes from)
{
	memcpy(to, from.data, from.length);
	to[from.length] = '\0';
}

static void
fill_info(dlock_holder_info *h, const lease_member *member,
		  const lease_moment *moment, bool is_blind)
{
	const image_holder *holder = member->holder;

	h->owner_length = holder->owner.length;
	memcpy(h->owner, holder->owner.data, holder->owner.length);
	h->mode = member->mode;
	h->kind = member->kind;
	h->version = member->version;
	h->token = holder->token;
	h->acquired_at_us = holder->acquired_us;
	h->expires_at_us = member->gone || member->life == LEASE_BOUND ? 0 :
		moment->wall_us + member->deadline_us - moment->now_us;
	copy_text(h->user, holder->account->user);
	copy_text(h->host, holder->account->host);
	h->connection_id = holder->connection_id;
	h->live = lease_member_is_live(member, moment);
	h->remaining_us = lease_member_remaining_us(member, moment);
	h->guarded = is_blind ? DLOCK_GUARD_UNKNOWN :
		member->locked ? DLOCK_GUARDED : DLOCK_NOT_GUARDED;
}

/*
 * Answer DLOCK_CALL_READ: false if memory is short.  "is_blind" says that nobody
 * knows which rows are locked.
 */
bool
lease_early_fill(lease_name *name, const lease_request *request,
				 const dlock_caller *caller, const lease_moment *moment,
				 bool is_blind, dlock_answer *answer)
{
	dlock_holder_info *holders = malloc((name->count + 1) *
										sizeof(dlock_holder_info));

	if (holders == NULL)
		return false;
	answer->nholders = 0;
	for (size_t i = 0; i < name->count; i++)
		if (!lease_member_is_away(&name->members[i]))
			fill_info(&holders[answer->nholders++], &name->members[i], moment,
					  is_blind);
	answer->holders = holders;
	answer->yes = lease_name_is_free(name, moment);
	answer->remaining_us = lease_name_remaining_us(name, request, caller,
												   moment);
	return !name->failed;
}

/* A member as those see it who only look: false if there is nothing of it. */
static bool
see(const lease_member *member, const lease_moment *moment, lease_member *seen)
{
	*seen = *member;
	seen->gone |= member->released;
	if (lease_member_is_away(seen))
		return false;
	lease_member_judge(seen, moment);
	return true;
}

/* Say whether something is so of any lease of a name, as they see it. */
static bool
has_any(const image_name *name, const lease_moment *moment,
		bool (*is_so) (const lease_member *member, const lease_moment *moment))
{
	for (size_t i = 0; i < name->count; i++)
	{
		lease_member seen;

		if (see(&name->members[i], moment, &seen) && is_so(&seen, moment))
			return true;
	}
	return false;
}

/*
 * Find the exclusive holder of a name: false if memory is short.  All that are live
 * have one mode, so the first of them tells.
 */
static bool
find_owner(const image_name *name, const lease_moment *moment,
		   dlock_answer *answer)
{
	for (size_t i = 0; i < name->count; i++)
	{
		lease_member seen;

		if (!see(&name->members[i], moment, &seen) ||
			!lease_member_is_live(&seen, moment))
			continue;
		if (seen.mode != LEASE_EXCLUSIVE)
			return true;
		answer->holders = calloc(1, sizeof(dlock_holder_info));
		if (answer->holders == NULL)
			return false;
		answer->nholders = 1;
		fill_info(answer->holders, &seen, moment, false);
		return true;
	}
	return true;
}

/* Find all that there is: false if memory is short, or the image cannot say. */
static bool
find_all(image_name *entry, const lease_request *request,
		 const dlock_caller *caller, const lease_moment *moment,
		 bool is_blind, dlock_answer *answer)
{
	lease_name *name = draft_of(entry, moment);
	bool		done;

	if (name == NULL)
		return false;
	done = find_given_back(entry->name, name) != GIVEN_UNKNOWN &&
		lease_early_fill(name, request, caller, moment, is_blind, answer);
	lease_name_free(name);
	return done;
}

/*
 * Find what is left of the lease that a request speaks for: false if memory is short.
 * There may be very many others.
 */
static bool
find_remaining(image_name *entry, const dlock_call *request,
			   const lease_moment *moment, dlock_answer *answer)
{
	lease_name *name = draft_of(entry, moment);
	bool		done;

	if (name == NULL)
		return false;
	answer->remaining_us = lease_name_remaining_us(name, &request->request,
												   request->caller, moment);
	done = !name->failed;
	lease_name_free(name);
	return done;
}

/*
 * Answer who only looks: true, unless the image cannot say.  Where it is not known
 * which rows are locked, it can say what no guard changes: who has a live lease.
 */
bool
lease_early_look(const dlock_call *request, dlock_answer *answer)
{
	lease_moment moment = lease_moment_now(false);
	image_name *name;
	bool		plain;

	if (request->kind != DLOCK_CALL_READ || !is_valid() ||
		!image_is_known(request->names[0]) ||
		find_given_back(request->names[0], NULL) == GIVEN_UNKNOWN)
		return false;
	plain = is_plain(request->names[0]);
	name = image_find(request->names[0]);
	if (name == NULL)
	{
		answer->yes = true;
		answer->remaining_us = -1;
		return true;
	}
	switch (request->what)
	{
		case DLOCK_READ_FREE:
			if (!plain && !has_any(name, &moment, lease_member_is_live))
				return false;
			answer->yes = !has_any(name, &moment, lease_member_is_in_the_way);
			return true;
		case DLOCK_READ_OWNER:
			return find_owner(name, &moment, answer);
		case DLOCK_READ_REMAINING:
			if (!plain && !has_any(name, &moment, lease_member_is_live))
				return false;
			return find_remaining(name, request, &moment, answer);
		case DLOCK_READ_HOLDERS:
			if (!plain)
				return false;
			break;
	}
	return find_all(name, &request->request, request->caller, &moment, false,
					answer);
}

/*
 * The same for a call that has come to the batcher, which could not find out which rows
 * are locked, because somebody has locked the whole server: that is as it was last
 * known to be.
 */
bool
lease_early_look_blind(lease_call *call)
{
	lease_moment moment = lease_moment_now(false);

	if (call->internal != LEASE_INTERNAL_NONE || call->answered ||
		call->kind != DLOCK_CALL_READ || !image_is_known(call->names[0]) ||
		image_find(call->names[0]) == NULL ||
		!find_all(image_find(call->names[0]), &call->request, &call->caller,
				  &moment, true, &call->answer))
		return false;
	lease_call_answer_now(call);
	return true;
}

/*
 * Say whether the holds that somebody waits for have ended, whatever becomes of the
 * batch that is being made.
 */
bool
lease_early_have_ended(image_name *entry, uint64_t youngest,
					   const lease_moment *moment)
{
	lease_name *name = draft_of(entry, moment);
	int64_t		next_us;
	bool		ended;

	if (name == NULL)
		return false;
	ended = lease_name_have_ended(name, youngest, moment, &next_us);
	lease_name_free(name);
	return ended;
}

/* ----------------------------------------------------------------
 * What was released and a view may still find
 * ----------------------------------------------------------------
 */

/*
 * Releases that have been written lately.  A view's statement may have begun before
 * their commit, and ask us after it.
 */
#define WRITTEN_ROOM	512
#define WRITTEN_US		100000

static struct
{
	int64_t		at_us;
	uint64_t	token;
	size_t		length;
	char		name[LEASE_STRING_MAX];
}			written[WRITTEN_ROOM];
static size_t nwritten = 0;		/* ever */

/* The releases of the batch have been committed. */
void
lease_early_note_written(void)
{
	for (const lease_call *call = batch.early.head; call != NULL;
		 call = call->next)
	{
		size_t		place = nwritten % WRITTEN_ROOM;

		written[place].at_us = batch.moment.now_us;
		written[place].token = call->request.token;
		written[place].length = call->names[0].length;
		memcpy(written[place].name, call->names[0].data,
			   call->names[0].length);
		nwritten++;
	}
}

/* Add a lease of which something was given back: what is left of its holds. */
static void
add_unwritten(lease_text *text, lease_bytes name, uint64_t token)
{
	const lease_member *member = image_lease(name, token);
	int64_t		holds = member == NULL || member->released ? 0 :
		member->version;
	const lease_calls *lists[] = {&engine.deferred, &batch.calls, &batch.early};

	/* those of its holds that are to be written go, too */
	for (size_t i = 0; holds > 0 && i < sizeof(lists) / sizeof(lists[0]); i++)
		for (const lease_call *call = lists[i]->head; call != NULL;
			 call = call->next)
			if (call->unwritten && call->request.token == token &&
				lease_same(call->names[0], name))
				holds -= call->request.holds > 0 ? call->request.holds : 1;

	lease_text_put(text, text->length > 1 ? ",[\"" : "[\"",
				   text->length > 1 ? 3 : 2);
	lease_text_put_hex(text, name);
	lease_text_put(text, "\",", 2);
	lease_text_put_unsigned(text, token);
	lease_text_put(text, ",", 1);
	lease_text_put_number(text, holds > 0 ? holds : 0);
	lease_text_put(text, "]", 1);
}

/* Add the releases of a list. */
static void
add_list(lease_text *text, const lease_calls *list)
{
	for (const lease_call *call = list->head; call != NULL; call = call->next)
		if (call->unwritten)
			add_unwritten(text, call->names[0], call->request.token);
}

char *
dlock_engine_unwritten(dlock_answer *answer)
{
	const lease_calls *lists[] = {&engine.deferred, &batch.calls, &batch.early};
	lease_text	text = {0};
	int64_t		since_us;

	memset(answer, 0, sizeof(*answer));
	lease_text_put(&text, "[", 1);
	pthread_mutex_lock(&engine.mutex);
	since_us = lease_now() - WRITTEN_US;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		add_list(&text, lists[i]);
	for (size_t i = nwritten; i > 0 && i + WRITTEN_ROOM > nwritten; i--)
	{
		size_t		place = (i - 1) % WRITTEN_ROOM;

		if (written[place].at_us < since_us)
			break;
		add_unwritten(&text, (lease_bytes) {
			written[place].name, written[place].length
		}, written[place].token);
	}
	pthread_mutex_unlock(&engine.mutex);
	lease_text_put(&text, "]", 1);
	if (!text.failed)
		return text.data;
	lease_text_free(&text);
	strcpy(answer->sqlstate, "53200");
	strcpy(answer->message, "out of memory");
	return NULL;
}
