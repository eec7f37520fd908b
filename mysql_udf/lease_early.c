/*
 * lease_early.c
 *	  Answer a call by what the image says, without the server.
 *
 * What the image says has been committed.  So a look is answered at once, and so is a try
 * for a lease that another owner holds.  A release is answered before it is written: it
 * is marked in the image, and put off for a moment, so that it comes with the next
 * commit.  If it is lost in a crash, others wait for its deadline.
 *
 * None of this waits for the server, whatever commit or lock the batcher has to wait
 * for.  The batcher answers what the image cannot say: which rows a transaction has
 * locked, whose turn it is in a queue, what is being changed just now.  And the batcher
 * makes all other changes.
 *
 * All of it is with the engine's mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_early.h"

#include <stdlib.h>
#include <string.h>

#include "lease_call_end.h"
#include "lease_lists.h"
#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_owed.h"
#include "lease_pace.h"
#include "lease_server.h"
#include "lease_settings.h"
#include "lease_stats.h"
#include "lease_tenure.h"
#include "lease_waiters.h"

/* How old the last look at the server may be. */
#define LOOK_MAX_AGE_US	2500000

/*
 * Say whether calls can be answered by the image: as far as is known, only this run
 * writes the tables.  While the batcher waits for the server, it cannot look at the
 * server's state; what was committed before still counts.
 */
static bool
is_valid(void)
{
	return image_is_valid() && !tenure->reload &&
		!tenure->clustered && !tenure->read_only &&
		(lease_asks_since_us() != 0 ||
		 lease_now() < tenure->looked_us + LOOK_MAX_AGE_US);
}

/*
 * Say whether the image has all there is of a name.  Then *name is its entry; NULL: it
 * has no leases.
 */
static bool
find_known(lease_bytes bytes, image_name **name)
{
	*name = image_find(bytes);
	return is_valid() && image_is_known(bytes);
}

/* Say whether a name is known, and also that none of its rows is locked. */
static bool
is_plain(lease_bytes bytes)
{
	const image_name *name = image_find(bytes);

	return image_is_known(bytes) &&
		(name == NULL || name->unguarded || name->nrows == 0);
}

/*
 * Subtract from a lease, a copy of the image's, the holds that were given back and are
 * yet to be written: false if the image cannot say.
 */
static bool
take_off_given(const image_name *name, lease_member *member)
{
	uint32_t	committed = member->version;

	member->gone |= member->released;
	for (const lease_call *call = NULL; !member->gone &&
		 (call = lease_calls_owed(name, member->holder->token, call)) != NULL;)
	{
		bool		is_deferred = call->list == &lists->deferred;
		uint32_t	holds = lease_holds_returned(&call->request);

		if (lease_owed_is_written(call, member))
			continue;
		if (!call->unwritten || holds >= committed)
		{
			if (is_deferred)
				return false;
			continue;			/* it counts when it is committed */
		}
		if (holds >= member->version)
			return false;
		member->version -= holds;
	}
	return true;
}

/* What a look sees of a lease. */
typedef enum sight
{
	SIGHT_NONE,
	SIGHT_LEASE,
	SIGHT_UNKNOWN				/* the image cannot say */
} sight;

/* A member as a look sees it: without its guard, which may have ended. */
static sight
see(const image_name *name, const lease_member *member,
	const lease_moment *moment, lease_member *seen)
{
	*seen = *member;
	seen->locked = false;
	if (!take_off_given(name, seen))
		return SIGHT_UNKNOWN;
	if (lease_member_is_away(seen))
		return SIGHT_NONE;
	lease_member_judge(seen, moment);
	return SIGHT_LEASE;
}

/* Add the permits of a lease to the one that stands for several. */
static void
add_permits(lease_member *others, const lease_member *member)
{
	if (member->version < LEASE_VERSION_MAX - others->version)
		others->version += member->version;
	else
		others->version = LEASE_VERSION_MAX;
}

/*
 * Add to a part of a draft one lease that stands for all leases of others in the
 * caller's way: a live one, if there is any.  If permits are wanted, it has those of all.
 * False if memory is short, or the image cannot say.
 */
static bool
add_others(lease_name *part, const lease_request *request,
		   const image_account *account, const lease_moment *moment)
{
	const image_name *name = part->entry;
	bool		adds_up = request->op == LEASE_ACQUIRE &&
		request->mode == LEASE_PERMIT;
	bool		known = true;
	bool		any = false;
	lease_member others;

	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];
		lease_member seen;
		sight		what;

		if (member->holder->account == account &&
			lease_same(member->holder->owner, request->owner))
			continue;
		what = see(name, member, moment, &seen);
		known &= what != SIGHT_UNKNOWN;
		if (what != SIGHT_LEASE || !lease_member_is_in_the_way(&seen, moment))
			continue;
		if (any && adds_up && seen.mode == others.mode)
			add_permits(&others, &seen);
		else if (!any || lease_member_is_live(&seen, moment))
			others = seen;
		any = true;
		if (lease_member_is_live(&seen, moment) &&
			!(adds_up && seen.mode == LEASE_PERMIT))
			return lease_name_add(part, &others);
	}
	return known && (!any || lease_name_add(part, &others));
}

/*
 * The part of a draft that decides about a caller's lease, as a look sees it; NULL if
 * memory is short, or the image cannot say.  A name may have thousands of other leases.
 * One of them is enough to refuse a call.  Only the batcher grants.
 */
static lease_name *
create_part(image_name *entry, const lease_request *request,
			const dlock_caller *caller, const lease_moment *moment)
{
	const image_account *account = lease_account_of(caller);
	lease_name *part = account == NULL ? NULL :
		lease_name_create_part(entry, 4);
	const lease_member *own = NULL;
	bool		done = part != NULL;

	while (done &&
		   (own = image_own(entry, request->owner, account, own)) != NULL)
	{
		lease_member seen;
		sight		what = see(entry, own, moment, &seen);

		done = what != SIGHT_UNKNOWN &&
			(what == SIGHT_NONE || lease_name_add(part, &seen));
	}
	if (done && add_others(part, request, account, moment))
		return part;
	lease_name_free(part);
	return NULL;
}

/* Say whether a call needs no reading, and its name has no waiters. */
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
	const connection *c = lease_server_connection();

	if (!is_valid() || !tenure->has_taken_over || tenure->direct ||
		tenure->doubt_us != 0 ||
		c->mysql == NULL || !connection_can_be_interrupted(c) ||
		!lease_settings_are_read() ||
		!lease_call_is_acquire(call) || !suffices(call))
		return false;
	for (const lease_call *late = lists->deferred.head; late != NULL;
		 late = late->next)
		if (!suffices(late))
			return false;
	return true;
}

/*
 * Decide what a request would come to.  Returns the part of a draft, to be freed; NULL
 * if the batcher has to decide.  Guards are left out: they could only add a reason to
 * refuse, and change nothing of a release.
 */
static lease_name *
decide(const dlock_call *asked, const lease_moment *moment,
	   lease_name_answer *answer)
{
	lease_request request = asked->request;
	image_name *entry;
	lease_name *name;

	if (!find_known(asked->names[0], &entry) || entry == NULL ||
		entry->in_batch)
		return NULL;
	name = create_part(entry, &request, asked->caller, moment);
	if (name == NULL)
		return NULL;
	request.behind = false;
	*answer = lease_name_apply(name, &request, asked->caller, moment);
	if (!name->failed)
		return name;
	lease_name_free(name);
	return NULL;
}

/*
 * The release that is to give holds of a lease back; NULL if memory is short.  One
 * release collects all holds that are given back until it is written.  Otherwise there
 * could be as many as holds.
 */
static lease_call *
get_release(const image_name *name, uint64_t token, const dlock_call *request,
			int64_t until_us)
{
	lease_call *call = NULL;

	while ((call = lease_calls_owed(name, token, call)) != NULL)
		if (call->list == &lists->deferred && !call->may_be_written &&
			call->internal == LEASE_INTERNAL_NONE)
		{
			call->request.holds = lease_holds_returned(&call->request) +
				lease_holds_returned(&request->request);
			if (until_us < call->retry_us)
				call->retry_us = until_us;
			return call;
		}
	call = lease_call_create_own(LEASE_RELEASE, token, request->request.owner,
								 request->names[0], request->caller);
	if (call == NULL)
		return NULL;
	call->request.holds = request->request.holds;
	lease_call_set_unwritten(call, true);
	lease_call_defer(call, until_us);
	return call;
}

/*
 * Answer a release at once, if it is of a plain lease or changes nothing: true.  If
 * the name has waiters, it is written at once, too.
 */
bool
lease_early_release(const dlock_call *request, dlock_answer *answer)
{
	lease_moment moment = lease_moment_now(false);
	lease_name_answer made;
	lease_name *name;
	image_name *entry;
	const image_holder *holder = NULL;
	bool		ends = false;
	lease_call *call;

	if (request->kind != DLOCK_CALL_APPLY ||
		request->request.op != LEASE_RELEASE)
		return false;
	if (find_known(request->names[0], &entry) && entry == NULL)
	{
		answer->outcome = LEASE_NOT_HELD;
		return true;
	}
	name = decide(request, &moment, &made);
	if (name == NULL)
		return false;
	for (size_t i = 0; i < name->count && made.outcome == LEASE_RELEASED; i++)
		if (name->members[i].holder->token == made.token &&
			name->members[i].kind == LEASE_PLAIN)
		{
			holder = name->members[i].holder;
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
	call = holder == NULL ? NULL :
		get_release(entry, made.token, request, moment.now_us +
					(lease_queue_find(request->names[0]) == NULL ?
					 lease_defer_us() : 0));
	if (call == NULL)
		return false;
	image_set_released(holder, ends);
	call->ends = ends;
	call->seen_writes = made.seen_writes;
	lease_wake_before(lease_due_us(call));
	lease_count(LEASE_COUNT_released, 1);
	answer->outcome = LEASE_RELEASED;
	answer->token = made.token;
	return true;
}

/*
 * Refuse an acquire that does not wait, if a lease is in its way: true.  Otherwise the
 * batcher makes it.
 */
bool
lease_early_refuse(const dlock_call *request, dlock_answer *answer)
{
	lease_moment moment = lease_moment_now(false);
	lease_name_answer made;
	lease_name *name;

	if (request->kind != DLOCK_CALL_APPLY || request->wait_us != 0 ||
		request->request.op != LEASE_ACQUIRE ||
		lease_queue_find(request->names[0]) != NULL)
		return false;
	name = decide(request, &moment, &made);
	if (name == NULL)
		return false;
	lease_name_free(name);
	if (made.outcome != LEASE_BUSY)
		return false;
	lease_count(LEASE_COUNT_refused, 1);
	answer->outcome = LEASE_BUSY;
	return true;
}

/*
 * The same for a call that has come to the batcher: the lease may have been
 * granted since the call began.
 */
bool
lease_early_refuse_call(lease_call *call)
{
	dlock_call	request = {
		.kind = call->kind,
		.request = call->request,
		.names = call->names,
		.wait_us = call->wait_us,
		.caller = &call->caller,
	};

	if (call->internal != LEASE_INTERNAL_NONE || call->answered ||
		!lease_early_refuse(&request, &call->answer))
		return false;
	lease_call_answer_now(call);
	return true;
}

/* ----------------------------------------------------------------
 * Looking
 * ----------------------------------------------------------------
 */

/*
 * Make room in an answer for leases, and behind them for their owners' bytes, which go to
 * *owners.  False if memory is short.
 */
static bool
make_room(dlock_answer *answer, const lease_member *members, size_t count,
		  char **owners)
{
	size_t		size = count * sizeof(dlock_holder_info);

	for (size_t i = 0; i < count; i++)
		size += members[i].holder->owner.length;
	free(answer->holders);		/* the call may be made again */
	answer->nholders = 0;
	answer->holders = malloc(size + 1);
	if (answer->holders == NULL)
		return false;
	*owners = (char *) &answer->holders[count];
	return true;
}

/* Add a lease to an answer that has room. */
static void
add_holder(dlock_answer *answer, char **owners, const lease_member *member,
		   const lease_moment *moment, bool is_blind)
{
	const image_holder *holder = member->holder;
	dlock_holder_info *h = &answer->holders[answer->nholders++];

	h->owner = (lease_bytes) {*owners, holder->owner.length};
	memcpy(*owners, holder->owner.data, holder->owner.length);
	*owners += holder->owner.length;
	h->user = holder->account->user;
	h->host = holder->account->host;
	h->mode = member->mode;
	h->kind = member->kind;
	h->version = member->version;
	h->token = holder->token;
	h->acquired_at_us = holder->acquired_us;
	h->expires_at_us = member->gone || member->life == LEASE_BOUND ? 0 :
		moment->wall_us + member->deadline_us - moment->now_us;
	h->connection_id = holder->connection_id;
	h->live = lease_member_is_live(member, moment);
	h->remaining_us = h->live ? member->deadline_us - moment->now_us : 0;
	h->guarded = is_blind ? DLOCK_GUARD_UNKNOWN :
		member->locked ? DLOCK_GUARDED : DLOCK_NOT_GUARDED;
}

/*
 * Answer DLOCK_CALL_READ by a draft: false if memory is short.  "is_blind" says that it
 * is not known which rows are locked.
 */
bool
lease_early_fill(lease_name *name, const lease_request *request,
				 const dlock_caller *caller, const lease_moment *moment,
				 bool is_blind, dlock_answer *answer)
{
	char	   *owners;

	if (!make_room(answer, name->members, name->count, &owners))
		return false;
	answer->yes = true;
	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];

		if (lease_member_is_away(member))
			continue;
		add_holder(answer, &owners, member, moment, is_blind);
		answer->yes &= !lease_member_is_in_the_way(member, moment);
	}
	answer->remaining_us = lease_name_remaining_us(name, request, caller,
												   moment);
	return !name->failed;
}

/*
 * Find the first lease of a name of which something is true, as a look sees it.
 * SIGHT_NONE: there is none.
 */
static sight
find_first(const image_name *name, const lease_moment *moment,
		   bool (*is_true) (const lease_member *, const lease_moment *),
		   lease_member *seen)
{
	sight		found = SIGHT_NONE;

	for (size_t i = 0; i < name->count; i++)
	{
		sight		what = see(name, &name->members[i], moment, seen);

		if (what == SIGHT_LEASE && is_true(seen, moment))
			return SIGHT_LEASE;
		if (what == SIGHT_UNKNOWN)
			found = SIGHT_UNKNOWN;
	}
	return found;
}

/*
 * Find the exclusive holder of a name: false if memory is short, or the image cannot say.
 * All live leases have one mode, so it is enough to look at the first.
 */
static bool
find_owner(const image_name *name, const lease_moment *moment,
		   dlock_answer *answer)
{
	lease_member seen;
	sight		what = find_first(name, moment, lease_member_is_live, &seen);
	char	   *owners;

	if (what != SIGHT_LEASE || seen.mode != LEASE_EXCLUSIVE)
		return what != SIGHT_UNKNOWN;
	if (!make_room(answer, &seen, 1, &owners))
		return false;
	add_holder(answer, &owners, &seen, moment, false);
	return true;
}

/* Find the holders of a name: false if memory is short, or the image cannot say. */
static bool
find_holders(const image_name *name, const lease_moment *moment,
			 dlock_answer *answer)
{
	bool		known = true;
	char	   *owners;

	if (!make_room(answer, name->members, name->count, &owners))
		return false;
	for (size_t i = 0; known && i < name->count; i++)
	{
		lease_member seen;
		sight		what = see(name, &name->members[i], moment, &seen);

		known = what != SIGHT_UNKNOWN;
		if (what == SIGHT_LEASE)
			add_holder(answer, &owners, &seen, moment, false);
	}
	if (known)
		return true;
	free(answer->holders);
	answer->holders = NULL;
	answer->nholders = 0;
	return false;
}

/*
 * Find all that there is, without saying what is guarded: false if memory is short, or
 * the image cannot say.
 */
static bool
find_all(image_name *entry, const lease_request *request,
		 const dlock_caller *caller, const lease_moment *moment,
		 dlock_answer *answer)
{
	lease_name *name = lease_name_create(entry, moment);
	bool		done = name != NULL;

	for (size_t i = 0; done && i < name->count; i++)
		done = take_off_given(entry, &name->members[i]);
	done = done && lease_early_fill(name, request, caller, moment, true,
									answer);
	lease_name_free(name);
	return done;
}

/*
 * Find what is left of the lease that a request speaks for: false if memory is short,
 * or the image cannot say.  There may be very many others.
 */
static bool
find_remaining(image_name *entry, const dlock_call *request,
			   const lease_moment *moment, dlock_answer *answer)
{
	lease_name *name = create_part(entry, &request->request, request->caller,
								   moment);
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
 * Answer a look: true, unless the image cannot say.  Where it is not known which rows
 * are locked, the image can say what no guard changes: whose lease is live.
 */
bool
lease_early_look(const dlock_call *request, dlock_answer *answer)
{
	lease_moment moment = lease_moment_now(false);
	lease_member seen;
	image_name *name;
	bool		is_certain;		/* no guard changes the answer */
	sight		what;

	if (request->kind != DLOCK_CALL_READ ||
		!find_known(request->names[0], &name))
		return false;
	if (name == NULL)
	{
		answer->yes = true;
		answer->remaining_us = -1;
		return true;
	}
	is_certain = is_plain(request->names[0]) ||
		find_first(name, &moment, lease_member_is_live, &seen) == SIGHT_LEASE;
	switch (request->what)
	{
		case DLOCK_READ_FREE:
			what = find_first(name, &moment, lease_member_is_in_the_way,
							  &seen);
			answer->yes = what == SIGHT_NONE;
			return is_certain && what != SIGHT_UNKNOWN;
		case DLOCK_READ_OWNER:
			return find_owner(name, &moment, answer);
		case DLOCK_READ_REMAINING:
			return is_certain &&
				find_remaining(name, request, &moment, answer);
		case DLOCK_READ_HOLDERS:
			return is_plain(request->names[0]) &&
				find_holders(name, &moment, answer);
	}
	return false;
}

/*
 * Say whether what a waiter stands in line for may be free: the image says so, or does
 * not know.
 */
bool
lease_early_could_be_granted(const lease_call *call)
{
	lease_moment moment = lease_moment_now(false);
	bool		any = call->kind == DLOCK_CALL_ACQUIRE_ANY;

	if (call->kind == DLOCK_CALL_WAIT)
		return false;
	for (size_t i = any ? 0 : call->waits_for;
		 i <= (any ? call->nnames - 1 : call->waits_for); i++)
	{
		image_name *name;
		lease_member seen;

		if (!find_known(call->names[i], &name) || name == NULL ||
			find_first(name, &moment, lease_member_is_in_the_way,
					   &seen) != SIGHT_LEASE)
			return true;
	}
	return false;
}

/*
 * Answer a look that has come to the batcher: true, unless the image cannot say.  The
 * batcher could not find out which rows are locked, because the whole server is locked.
 * So the rows count as locked that were last known to be.
 */
bool
lease_early_look_blind(lease_call *call)
{
	lease_moment moment = lease_moment_now(false);
	image_name *name;

	if (call->internal != LEASE_INTERNAL_NONE || call->answered ||
		call->kind != DLOCK_CALL_READ || !image_is_known(call->names[0]))
		return false;
	name = image_find(call->names[0]);
	if (name == NULL)
	{
		call->answer.yes = true;
		call->answer.remaining_us = -1;
	}
	else if (!find_all(name, &call->request, &call->caller, &moment,
					   &call->answer))
		return false;
	lease_call_answer_now(call);
	return true;
}

/*
 * Say whether the holds that a call waits for have ended, whether or not the batch that
 * is being made is committed.
 */
bool
lease_early_have_ended(image_name *entry, uint64_t youngest,
					   const lease_moment *moment)
{
	lease_name *name = lease_name_create(entry, moment);
	int64_t		next_us;
	bool		ended;

	if (name == NULL)
		return false;
	for (size_t i = 0; i < name->count; i++)
		name->members[i].gone |= name->members[i].released;
	ended = lease_name_have_ended(name, youngest, moment, &next_us);
	lease_name_free(name);
	return ended;
}
