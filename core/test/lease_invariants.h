/*
 * lease_invariants.h
 *	  What must be true of every single call of lease_apply().
 *
 * The unit tests, the model test and the fuzzer all hand their calls to this
 * check.  It knows nothing of the history of a name: it sees the holders
 * before and after one request, and holds them against the invariants and the
 * comments of lease.h.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef LEASE_INVARIANTS_H
#define LEASE_INVARIANTS_H

#include "lease.h"

#include <stdlib.h>
#include <string.h>

/* Compare without lease_same(), which is itself under test. */
static inline bool
bytes_equal(lease_bytes a, lease_bytes b)
{
	if (a.length != b.length)
		return false;
	for (size_t i = 0; i < a.length; i++)
		if (a.data[i] != b.data[i])
			return false;
	return true;
}

/* Say whether this outcome is a refusal or an error, which change nothing. */
static inline bool
outcome_is_refusal(lease_outcome outcome)
{
	switch (outcome)
	{
		case LEASE_GRANTED:
		case LEASE_REENTERED:
		case LEASE_REPLAYED:
		case LEASE_RENEWED:
		case LEASE_RELEASED:
		case LEASE_WILL_END:
		case LEASE_DOWNGRADED:
		case LEASE_DELAYED:
			return false;
		case LEASE_BUSY:
		case LEASE_NOT_YOURS:
		case LEASE_NOT_HELD:
		case LEASE_UPGRADE:
		case LEASE_MIXED:
		case LEASE_MIXED_KINDS:
		case LEASE_IS_PERMIT:
		case LEASE_IS_BOUND:
		case LEASE_TOO_MANY_HOLDS:
		case LEASE_NO_TOKENS:
			return true;
	}
	return false;
}

/* Say whether an operation may end this way at all. */
static inline bool
outcome_fits_op(lease_op op, lease_outcome outcome)
{
	switch (op)
	{
		case LEASE_ACQUIRE:
			return outcome <= LEASE_BUSY || (outcome >= LEASE_UPGRADE &&
											 outcome != LEASE_IS_PERMIT &&
											 outcome != LEASE_IS_BOUND);
		case LEASE_RENEW:
			return outcome == LEASE_RENEWED || outcome == LEASE_NOT_YOURS ||
				outcome == LEASE_NOT_HELD;
		case LEASE_DROP_AFTER:
			return outcome == LEASE_WILL_END || outcome == LEASE_IS_BOUND ||
				outcome == LEASE_NOT_YOURS || outcome == LEASE_NOT_HELD;
		case LEASE_DOWNGRADE:
			return outcome == LEASE_DOWNGRADED || outcome == LEASE_IS_PERMIT ||
				outcome == LEASE_NOT_YOURS || outcome == LEASE_NOT_HELD;
		case LEASE_LEAVE:
			return outcome == LEASE_RELEASED || outcome == LEASE_DELAYED ||
				outcome == LEASE_NOT_YOURS || outcome == LEASE_NOT_HELD;
		case LEASE_RELEASE:
		case LEASE_DROP:
		case LEASE_EVICT:
			return outcome == LEASE_RELEASED || outcome == LEASE_NOT_YOURS ||
				outcome == LEASE_NOT_HELD;
		case LEASE_REAP:
			return outcome == LEASE_RELEASED || outcome == LEASE_NOT_HELD;
	}
	return false;
}

/* Say whether a holder is still in the lock table after the call. */
static inline bool
change_keeps(lease_change change)
{
	return change == LEASE_UNCHANGED || change == LEASE_ADDED ||
		change == LEASE_UPDATED;
}

/*
 * Say whether a holder is the requester, or one that it may act for.  An
 * acquire for a session or transaction does not own what another session or
 * transaction of its owner has, and none owns what is left of another
 * transaction's lease.  A holder that is leaving is nobody's, but for the
 * repetition that names its token.
 */
static inline bool
holder_is_own(const lease_request *request, const lease_holder *h)
{
	if (request->op == LEASE_ACQUIRE && h->elsewhere &&
		((h->life == LEASE_PINNED && h->kind == LEASE_TRANSACTION) ||
		 (h->life == LEASE_BOUND && h->kind == request->kind)))
		return false;
	if (h->life == LEASE_LEAVING &&
		(request->op != LEASE_DROP_AFTER || request->token == 0))
		return false;
	return h->standing != LEASE_STRANGER &&
		bytes_equal(h->owner, request->owner);
}

/*
 * Say whether a holder's guards are of the requester's owner, or of one that it
 * may act for, and not of another transaction's lease that is not seen to have
 * ended.
 */
static inline bool
holder_guards_are_own(const lease_request *request, const lease_holder *h)
{
	return h->standing != LEASE_STRANGER &&
		bytes_equal(h->owner, request->owner) &&
		!(h->elsewhere && h->kind == LEASE_TRANSACTION &&
		  (h->life == LEASE_PINNED || h->life == LEASE_BOUND));
}

/* Say whether an acquire ends a live holder to take the name anew. */
static inline bool
holder_is_taken_over(const lease_request *request, const lease_holder *h,
					 int64_t now_us)
{
	return request->op == LEASE_ACQUIRE && h->deadline_us > now_us &&
		h->life == LEASE_STRANDED && h->kind == request->kind &&
		holder_is_own(request, h);
}

/*
 * Say whether the lock delay holds for a holder: it expired less than that ago.
 * The difference is unsigned because it may be as large as the clock's whole
 * range.
 */
static inline bool
holder_is_delayed(const lease_request *request, const lease_holder *h,
				  int64_t now_us)
{
	return h->life != LEASE_BOUND && h->life != LEASE_LEFT &&
		h->life != LEASE_LEAVING && h->life != LEASE_PINNED &&
		h->deadline_us <= now_us &&
		(uint64_t) now_us - (uint64_t) h->deadline_us <
		(uint64_t) request->delay_us;
}

/* How many holds a request asks for or gives back. */
static inline uint32_t
holds_in_question(const lease_request *request)
{
	uint32_t	holds = request->op == LEASE_RELEASE ? request->holds :
		request->mode == LEASE_PERMIT ? request->permits : 1;

	return holds == 0 ? 1 : holds;
}

/* Check that an updated holder differs only in what may change. */
static inline const char *
update_fault(const lease_request *request, const lease_holder *was,
			 const lease_holder *is, const lease_result *result,
			 int64_t now_us)
{
	bool		delayed = result->outcome == LEASE_DELAYED;
	bool		loosened = was->life == LEASE_STRANDED || delayed;
	bool		leaves = request->op == LEASE_DROP_AFTER;

	if (was->deadline_us <= now_us)
		return "a holder that was over has been updated";
	if (was->life == LEASE_LEAVING)
		return "a holder that is leaving has been updated";
	if (is->token != result->token)
		return "the updated holder is not the one that answered";
	if (delayed != (is->deadline_us <= now_us))
		return "an updated holder is over, or is not though its session is";
	if (leaves ? is->deadline_us != now_us + request->ttl_us :
		request->op != LEASE_RENEW && !delayed &&
		is->deadline_us < was->deadline_us)
		return "a deadline shrank without a renewal";
	if (is->mode != was->mode &&
		(request->op != LEASE_DOWNGRADE || was->mode != LEASE_EXCLUSIVE ||
		 is->mode != LEASE_SHARED))
		return "a mode changed, but not from exclusive to shared";
	if (leaves ? was->kind != LEASE_PLAIN || is->kind != LEASE_PLAIN ||
		is->life != LEASE_LEAVING :
		loosened ? is->kind != LEASE_PLAIN || is->life != LEASE_TIMED :
		is->kind != was->kind || is->life != was->life)
		return "kind and life are not as they are to be";
	if (is->repeated != was->repeated && result->outcome != LEASE_REPLAYED)
		return "noted as repeated, without a repetition";
	if (result->outcome == LEASE_REENTERED ?
		is->version - was->version != holds_in_question(request) :
		request->op == LEASE_RELEASE ?
		was->version - is->version != holds_in_question(request) :
		is->version != was->version)
		return "the number of holds is not as it is to be";
	return NULL;
}

/* Check one holder that was there before the call. */
static inline const char *
old_holder_fault(const lease_request *request, const lease_holder *was,
				 const lease_holder *is, const lease_result *result,
				 int64_t now_us)
{
	bool		over = was->deadline_us <= now_us;
	bool		delayed = holder_is_delayed(request, was, now_us);
	bool		own = holder_is_own(request, was);
	bool		taken_over = holder_is_taken_over(request, was, now_us);
	bool		clears = result->outcome == LEASE_GRANTED ||
		request->op == LEASE_REAP;
	bool		ends_as_released = was->life == LEASE_LEFT ||
		was->life == LEASE_LEAVING ||
		(was->life == LEASE_LOST && request->delay_us == 0);
	bool		differs = was->version != is->version ||
		was->deadline_us != is->deadline_us || was->mode != is->mode ||
		was->kind != is->kind || was->life != is->life ||
		was->repeated != is->repeated ||
		!bytes_equal(was->request, is->request);

	if (!bytes_equal(was->owner, is->owner) ||
		was->standing != is->standing || was->token != is->token)
		return "owner, standing and token of a holder never change";
	if (was->guarded != is->guarded || was->guard_mode != is->guard_mode ||
		was->elsewhere != is->elsewhere)
		return "the guard of a holder is the engine's to change";
	if (was->life == LEASE_PINNED && is->change != LEASE_UNCHANGED)
		return "a guard of which nothing else is left has changed";
	if (is->change != LEASE_UPDATED && differs)
		return "a holder differs that was not updated";

	switch (is->change)
	{
		case LEASE_UNCHANGED:
			if (clears && over && was->life != LEASE_PINNED && !delayed)
				return "a grant or the reaper left a holder that was over";
			if (result->outcome == LEASE_GRANTED &&
				((delayed && own) || taken_over))
				return "a grant left a holder of the requester's own";
			if (request->op == LEASE_EVICT && (!over || delayed) &&
				(request->owner.length == 0 ||
				 bytes_equal(request->owner, was->owner)))
				return "an eviction left a holder behind";
			break;
		case LEASE_ADDED:
			return "a holder that was there before is marked as added";
		case LEASE_UPDATED:
			if (!differs && request->op != LEASE_RENEW)
				return "an updated holder does not differ";
			return update_fault(request, was, is, result, now_us);
		case LEASE_ENDED:
			if (clears)
			{
				if (!taken_over && !(over && ends_as_released))
					return "an end that does not count as a release";
				break;
			}
			if (over || was->life == LEASE_LEAVING)
				return "a holder that was over or leaving has been given back";
			if (request->op != LEASE_RELEASE && request->op != LEASE_DROP &&
				request->op != LEASE_LEAVE)
				return "only release, drop and leave give back";
			if (request->op == LEASE_RELEASE &&
				was->version != holds_in_question(request))
				return "a holder that has other holds has been given back";
			if (request->op == LEASE_LEAVE &&
				(was->kind == LEASE_PLAIN ||
				 (was->kind == LEASE_SESSION && request->delay_us > 0)))
				return "a holder left without the lock delay";
			break;
		case LEASE_EXPIRED:
			if (!over || was->life == LEASE_BOUND || ends_as_released)
				return "a holder has expired that has not met its deadline";
			if (!clears)
				return "only a grant and the reaper clear away";
			if (delayed && (request->op == LEASE_REAP || !own))
				return "a holder was cleared away before the lock delay";
			break;
		case LEASE_EVICTED:
			if (over && !delayed)
				return "a holder that was over has been evicted";
			if (request->op != LEASE_EVICT)
				return "only an eviction evicts";
			break;
	}
	return NULL;
}

/* Check the holder that a grant added. */
static inline const char *
new_holder_fault(const lease_request *request, const lease_holder *added,
				 const lease_result *result, int64_t now_us)
{
	if (added->change != LEASE_ADDED)
		return "the new holder is not marked as added";
	if (added->owner.data != request->owner.data ||
		added->owner.length != request->owner.length ||
		added->request.data != request->request.data ||
		added->request.length != request->request.length)
		return "the strings of the new holder are not the request's own";
	if (added->kind != request->kind || added->guarded != 0 ||
		added->elsewhere || added->repeated ||
		added->life != (request->kind == LEASE_PLAIN ?
						LEASE_TIMED : LEASE_BOUND))
		return "the new holder has not the kind it was to get";
	if (added->mode != request->mode || added->standing != LEASE_SELF ||
		added->version != holds_in_question(request))
		return "the new holder is not what the request asked for";
	if (added->token != request->next_token || added->token != result->token)
		return "the new holder has not the token it was to get";
	if (added->deadline_us != now_us + request->ttl_us)
		return "the new holder has not the deadline it was to get";
	return NULL;
}

/* Say whether holds in two modes exclude each other. */
static inline bool
modes_clash(lease_mode a, lease_mode b)
{
	return a != b || a == LEASE_EXCLUSIVE;
}

/*
 * Check the holders of a name by themselves: invariants 1, 2 and 3.  A guard
 * outlives the removal of its holder.
 */
static inline const char *
live_set_fault(const lease_holder *holders, size_t count, int64_t now_us)
{
	for (size_t i = 0; i < count; i++)
	{
		const lease_holder *h = &holders[i];
		bool		is_live = change_keeps(h->change) && h->deadline_us > now_us;

		if (is_live && (h->version < 1 || h->version > LEASE_VERSION_MAX))
			return "invariant 2: version out of range";
		if (is_live && (h->token < 1 || h->token > LEASE_TOKEN_MAX))
			return "invariant 2: token out of range";
		for (size_t j = 0; j < i; j++)
		{
			const lease_holder *other = &holders[j];
			bool		other_live = change_keeps(other->change) &&
				other->deadline_us > now_us;

			if (is_live && other_live && other->token == h->token)
				return "invariant 3: two live holders with one token";
			if (is_live && other_live && modes_clash(h->mode, other->mode))
				return "invariant 1: live holders that exclude each other";
			if (bytes_equal(h->owner, other->owner))
				continue;
			if ((h->guarded > 0 && other_live &&
				 modes_clash(h->guard_mode, other->mode)) ||
				(other->guarded > 0 && is_live &&
				 modes_clash(other->guard_mode, h->mode)) ||
				(h->guarded > 0 && other->guarded > 0 &&
				 modes_clash(h->guard_mode, other->guard_mode)))
				return "invariant 1: a guard beside what it excludes";
		}
	}
	return NULL;
}

/*
 * Say whether holders would keep out a request for more holds if nobody waited
 * for the name.
 */
static inline bool
holders_keep_out(const lease_request *request, const lease_holder *holders,
				 size_t count, int64_t now_us)
{
	uint64_t	permits = holds_in_question(request);

	for (size_t i = 0; i < count; i++)
	{
		const lease_holder *h = &holders[i];
		bool		own = holder_is_own(request, h);
		bool		guarded = h->guarded > 0 &&
			!holder_guards_are_own(request, h);
		uint64_t	holds = 0;

		if ((h->deadline_us > now_us &&
			 !holder_is_taken_over(request, h, now_us)) ||
			(!own && holder_is_delayed(request, h, now_us)))
			holds = h->version;
		if (holds > 0 && modes_clash(request->mode, h->mode))
			return true;
		if (guarded && modes_clash(request->mode, h->guard_mode))
			return true;
		if (guarded && h->guarded > holds)
			holds = h->guarded;
		permits += holds;
	}
	return request->mode == LEASE_PERMIT && permits > request->limit;
}

/* Check that a request was refused for a reason, and only then. */
static inline const char *
refusal_fault(const lease_request *request, const lease_holder *holders,
			  size_t count, const lease_result *result, int64_t now_us)
{
	bool		held = false;
	bool		keeps_out = holders_keep_out(request, holders, count, now_us);
	bool		other_kind = false;
	bool		same_kind = false;	/* as the holder that answered */
	bool		mine = false;
	bool		takes_over = false;

	for (size_t i = 0; i < count; i++)
	{
		const lease_holder *h = &holders[i];

		if (h->deadline_us > now_us || (request->op == LEASE_EVICT &&
										holder_is_delayed(request, h, now_us)))
			held = true;
		takes_over |= holder_is_taken_over(request, h, now_us);
		if (h->deadline_us > now_us && holder_is_own(request, h))
		{
			mine = true;
			other_kind |= h->kind != request->kind;
		}
		if (h->deadline_us > now_us && h->token == result->token &&
			h->kind == request->kind)
			same_kind = true;
	}

	switch (result->outcome)
	{
		case LEASE_GRANTED:
			if (keeps_out)
				return "a grant with somebody in the way";
			if (request->behind && !takes_over)
				return "a newcomer overtook the queue";
			break;
		case LEASE_REENTERED:
			if (request->mode == LEASE_PERMIT && keeps_out)
				return "one more permit with somebody in the way";
			if (request->mode == LEASE_PERMIT && request->behind)
				return "one more permit overtook the queue";
			if (!same_kind || request->claim || request->only_repeated)
				return "a re-entry by another kind, or a claim";
			break;
		case LEASE_REPLAYED:
			if (!same_kind)
				return "a repetition by another kind";
			break;
		case LEASE_BUSY:
			if (!keeps_out && !request->behind && !request->only_repeated &&
				!(request->claim && mine))
				return "busy, with nobody in the way";
			break;
		case LEASE_NOT_YOURS:
			if (!held)
				return "not yours, but held by nobody";
			break;
		case LEASE_NOT_HELD:
			if (held && request->op != LEASE_REAP)
				return "not held, but somebody holds it";
			break;
		case LEASE_MIXED_KINDS:
			if (!other_kind)
				return "mixed kinds, with no holder of another";
			break;
		case LEASE_UPGRADE:
		case LEASE_MIXED:
			if (request->claim)
				return "a claim is told of misuse";
			break;
		case LEASE_RENEWED:
		case LEASE_RELEASED:
		case LEASE_WILL_END:
		case LEASE_DOWNGRADED:
		case LEASE_DELAYED:
		case LEASE_IS_PERMIT:
		case LEASE_IS_BOUND:
		case LEASE_TOO_MANY_HOLDS:
		case LEASE_NO_TOKENS:
			break;
	}
	return NULL;
}

/*
 * Check when a refused request is told to come back: at some deadline, with or
 * without the lock delay, and not too late.  For the latter, repeat the request
 * one microsecond before that time.
 */
static inline const char *
retry_fault(const lease_request *request, const lease_holder *before,
			size_t count, const lease_result *result, int64_t now_us)
{
	const int64_t latest_us = INT64_MAX - LEASE_TTL_MAX_US;
	int64_t		probe_us = result->retry_us - 1;
	bool		known = result->retry_us == INT64_MAX;
	lease_holder *then;
	lease_outcome outcome;

	if (result->outcome != LEASE_BUSY)
		return known ? NULL : "only who is refused is told to come back";
	if (result->retry_us <= now_us)
		return "told to come back at once";
	for (size_t i = 0; i < count; i++)
		if (before[i].life != LEASE_BOUND && before[i].life != LEASE_LEFT &&
			before[i].life != LEASE_PINNED &&
			(uint64_t) result->retry_us - (uint64_t) before[i].deadline_us ==
			(uint64_t) (holder_is_own(request, &before[i]) ||
						before[i].life == LEASE_LEAVING ?
						0 : request->delay_us))
			known = true;
	if (!known)
		return "told to come back when nothing happens";

	if (probe_us > latest_us)
		probe_us = latest_us;
	if (probe_us <= now_us)
		return NULL;
	then = malloc(sizeof(lease_holder) * (count + 1));
	if (then == NULL)
		abort();
	for (size_t i = 0; i < count; i++)
	{
		then[i] = before[i];
		/* as the engine would pass it then */
		if (then[i].life == LEASE_BOUND)
			then[i].deadline_us = INT64_MAX;
	}
	outcome = lease_apply(request, then, count, probe_us).outcome;
	free(then);
	return outcome == LEASE_BUSY ? NULL : "told to come back too late";
}

/*
 * Check that a request is answered the same when crowds stand for the holders
 * that it need not tell apart.  Of these, every fourth is left by itself.
 */
static inline const char *
crowd_fault(const lease_request *request, const lease_holder *before,
			size_t count, const lease_result *result, int64_t now_us)
{
	lease_holder crowds[LEASE_MODE_LAST + 1] = {0};
	lease_holder *shown;
	size_t		nshown = 0;
	size_t		alike = 0;
	lease_result by_crowds;

	if (request->op == LEASE_EVICT || request->op == LEASE_REAP)
		return NULL;
	shown = malloc(sizeof(lease_holder) * (count + LEASE_MODE_LAST + 2));
	if (shown == NULL)
		abort();
	for (size_t i = 0; i < count; i++)
	{
		const lease_holder *h = &before[i];

		if (h->deadline_us <= now_us ||
			bytes_equal(h->owner, request->owner) || ++alike % 4 == 0 ||
			!lease_join_crowd(&crowds[h->mode], h))
			shown[nshown++] = *h;
	}
	for (int mode = LEASE_MODE_FIRST; mode <= LEASE_MODE_LAST; mode++)
		if (crowds[mode].version > 0)
			shown[nshown++] = crowds[mode];
	by_crowds = lease_apply(request, shown, nshown, now_us);
	free(shown);
	return by_crowds.outcome == result->outcome && by_crowds.token == result->token &&
		by_crowds.retry_us == result->retry_us &&
		by_crowds.changed == result->changed ? NULL :
		"a crowd is answered otherwise than its holders";
}

/*
 * Check one call: "before" are the count holders that were passed, "after" is
 * the array as lease_apply() left it.  Returns NULL, or what is wrong.
 */
static inline const char *
lease_step_fault(const lease_request *request, const lease_holder *before,
				 size_t count, const lease_holder *after,
				 const lease_result *result, int64_t now_us)
{
	bool		granted = result->outcome == LEASE_GRANTED;
	bool		speaks = !outcome_is_refusal(result->outcome) &&
		request->op != LEASE_EVICT && request->op != LEASE_REAP;
	size_t		changed = 0;
	size_t		touched = 0;	/* of the requester: one at most */
	const char *fault;

	if (!outcome_fits_op(request->op, result->outcome))
		return "an outcome that this operation cannot have";
	if (result->count != count + (granted ? 1 : 0))
		return "only a grant adds an entry";
	if (speaks != (result->token != 0))
		return "there is a token exactly if a holder answered";

	for (size_t i = 0; i < result->count; i++)
	{
		const lease_holder *is = &after[i];

		fault = i < count ?
			old_holder_fault(request, &before[i], is, result, now_us) :
			new_holder_fault(request, is, result, now_us);
		if (fault != NULL)
			return fault;
		if (is->change != LEASE_UNCHANGED)
			changed++;
		if (is->change == LEASE_UPDATED || is->change == LEASE_ADDED ||
			(is->change == LEASE_ENDED && !granted && request->op != LEASE_REAP))
			touched++;
		if (granted && i < count && is->token >= result->token)
			return "invariant 4: a grant's token is not the largest";
	}
	if (changed != result->changed)
		return "the number of changes is wrong";
	if (touched > 1)
		return "a request spoke for more than one holder";
	if (outcome_is_refusal(result->outcome) && changed > 0)
		return "a refusal or an error changed a holder";
	if (!outcome_is_refusal(result->outcome) && changed == 0 &&
		result->outcome != LEASE_REPLAYED && result->outcome != LEASE_WILL_END &&
		result->outcome != LEASE_DOWNGRADED)
		return "a success changed nothing";

	fault = refusal_fault(request, before, count, result, now_us);
	if (fault != NULL)
		return fault;
	fault = retry_fault(request, before, count, result, now_us);
	if (fault != NULL)
		return fault;
	fault = crowd_fault(request, before, count, result, now_us);
	if (fault != NULL)
		return fault;
	return live_set_fault(after, result->count, now_us);
}

#endif							/* LEASE_INVARIANTS_H */
