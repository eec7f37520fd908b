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
			return false;
		case LEASE_BUSY:
		case LEASE_NOT_YOURS:
		case LEASE_NOT_HELD:
		case LEASE_UPGRADE:
		case LEASE_MIXED:
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
			return outcome <= LEASE_BUSY || outcome >= LEASE_UPGRADE;
		case LEASE_RENEW:
			return outcome == LEASE_RENEWED || outcome == LEASE_NOT_YOURS ||
				outcome == LEASE_NOT_HELD;
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

/* Check one holder that was there before the call. */
static inline const char *
old_holder_fault(const lease_request *request, const lease_holder *was,
				 const lease_holder *is, const lease_result *result,
				 int64_t now_us)
{
	bool		over = was->deadline_us <= now_us;
	bool		differs = was->version != is->version ||
		was->deadline_us != is->deadline_us ||
		!bytes_equal(was->request, is->request);

	if (!bytes_equal(was->owner, is->owner) || was->mode != is->mode ||
		was->standing != is->standing || was->token != is->token)
		return "owner, mode, standing and token of a holder never change";

	switch (is->change)
	{
		case LEASE_UNCHANGED:
			if (differs)
				return "an unchanged holder differs";
			if (result->outcome == LEASE_GRANTED && over)
				return "a grant left behind a holder that was over";
			break;
		case LEASE_ADDED:
			return "a holder that was there before is marked as added";
		case LEASE_UPDATED:
			if (over)
				return "a holder that was over has been updated";
			if (!differs && request->op != LEASE_RENEW)
				return "an updated holder does not differ";
			if (is->token != result->token)
				return "the updated holder is not the one that answered";
			if (is->deadline_us <= now_us)
				return "the updated holder is over";
			if (request->op != LEASE_RENEW &&
				is->deadline_us < was->deadline_us)
				return "a deadline shrank without a renewal";
			break;
		case LEASE_ENDED:
			if (over)
				return "a holder that was over has been given back";
			if (request->op != LEASE_RELEASE && request->op != LEASE_DROP)
				return "only release and drop give back";
			break;
		case LEASE_EXPIRED:
			if (!over)
				return "a live holder is marked as expired";
			if (request->op != LEASE_ACQUIRE && request->op != LEASE_REAP)
				return "only a grant and the reaper clear away";
			break;
		case LEASE_EVICTED:
			if (over)
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
	if (added->mode != request->mode || added->standing != LEASE_SELF ||
		added->version != 1)
		return "the new holder is not what the request asked for";
	if (added->token != request->next_token || added->token != result->token)
		return "the new holder has not the token it was to get";
	if (added->deadline_us != now_us + request->ttl_us)
		return "the new holder has not the deadline it was to get";
	return NULL;
}

/* Check the holders of a name by themselves: invariants 1, 2 and 3. */
static inline const char *
live_set_fault(const lease_holder *holders, size_t count, int64_t now_us)
{
	const lease_holder *first = NULL;

	for (size_t i = 0; i < count; i++)
	{
		const lease_holder *h = &holders[i];

		if (!change_keeps(h->change) || h->deadline_us <= now_us)
			continue;
		if (h->version < 1 || h->version > LEASE_VERSION_MAX)
			return "invariant 2: version out of range";
		if (h->token < 1 || h->token > LEASE_TOKEN_MAX)
			return "invariant 2: token out of range";
		if (first == NULL)
			first = h;
		else if (h->mode != first->mode)
			return "invariant 1: live holders in different modes";
		else if (h->mode == LEASE_EXCLUSIVE)
			return "invariant 1: two live exclusive holders";
		for (size_t j = 0; j < i; j++)
			if (change_keeps(holders[j].change) &&
				holders[j].deadline_us > now_us &&
				holders[j].token == h->token)
				return "invariant 3: two live holders with one token";
	}
	return NULL;
}

/* Add up the permits, or holds, of the live holders. */
static inline uint64_t
live_holds(const lease_holder *holders, size_t count, int64_t now_us)
{
	uint64_t	sum = 0;

	for (size_t i = 0; i < count; i++)
		if (change_keeps(holders[i].change) &&
			holders[i].deadline_us > now_us)
			sum += holders[i].version;
	return sum;
}

/* Check that whoever was turned away had somebody in the way. */
static inline const char *
refusal_fault(const lease_request *request, const lease_holder *holders,
			  size_t count, const lease_result *result, int64_t now_us)
{
	bool		held = false;
	bool		in_the_way = false;

	for (size_t i = 0; i < count; i++)
		if (holders[i].deadline_us > now_us)
		{
			held = true;
			if (request->mode == LEASE_EXCLUSIVE ||
				request->mode != holders[i].mode)
				in_the_way = true;
		}
	if (request->mode == LEASE_PERMIT &&
		live_holds(holders, count, now_us) >= request->limit)
		in_the_way = true;

	if (result->outcome == LEASE_BUSY && !in_the_way)
		return "busy, with nobody in the way";
	if (result->outcome == LEASE_NOT_YOURS && !held)
		return "not yours, but held by nobody";
	if (result->outcome == LEASE_NOT_HELD && held &&
		request->op != LEASE_REAP)
		return "not held, but somebody holds it";
	return NULL;
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
		if (is->change == LEASE_UPDATED || is->change == LEASE_ENDED ||
			is->change == LEASE_ADDED)
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
		result->outcome != LEASE_REPLAYED)
		return "a success changed nothing";

	if (request->mode == LEASE_PERMIT && request->op == LEASE_ACQUIRE &&
		(granted || result->outcome == LEASE_REENTERED) &&
		live_holds(after, result->count, now_us) > request->limit)
		return "more permits than the limit of the caller";

	fault = refusal_fault(request, after, count, result, now_us);
	if (fault != NULL)
		return fault;
	return live_set_fault(after, result->count, now_us);
}

#endif							/* LEASE_INVARIANTS_H */
