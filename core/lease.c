/*
 * lease.c
 *	  The lease state machine; lease.h states its contract.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease.h"

#include <string.h>

bool
lease_same(lease_bytes a, lease_bytes b)
{
	return a.length == b.length &&
		(a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

size_t
lease_find(const lease_request *request, const lease_holder *holders,
		   size_t count, int64_t now_us)
{
	size_t		best = count;

	for (size_t i = 0; i < count; i++)
	{
		const lease_holder *h = &holders[i];

		if (h->standing == LEASE_STRANGER || lease_is_over(h, now_us) ||
			!lease_same(h->owner, request->owner))
			continue;
		if (request->op != LEASE_ACQUIRE && request->token != 0 &&
			h->token != request->token)
			continue;
		if (best == count ||
			h->standing > holders[best].standing ||
			(h->standing == holders[best].standing &&
			 h->token < holders[best].token))
			best = i;
	}
	return best;
}

/* Say whether any holder is live. */
static bool
is_held(const lease_holder *holders, size_t count, int64_t now_us)
{
	for (size_t i = 0; i < count; i++)
		if (!lease_is_over(&holders[i], now_us))
			return true;
	return false;
}

/* Say whether a holder is the requester, or one that it may act for. */
static bool
is_own(const lease_request *request, const lease_holder *holder)
{
	return holder->standing != LEASE_STRANGER &&
		lease_same(holder->owner, request->owner);
}

/*
 * How many permits a holder takes up, of a request to come.  The requester's
 * own guard takes up none: it would wait for its own transaction.
 */
static uint64_t
permits_of(const lease_request *request, const lease_holder *holder,
		   int64_t now_us)
{
	uint64_t	held = lease_is_over(holder, now_us) &&
		!lease_is_delayed(holder, request->delay_us, now_us) ?
		0 : holder->version;

	return holder->guarded > held && !is_own(request, holder) ?
		holder->guarded : held;
}

/*
 * Say whether the holders that are in the way leave room for one more hold in
 * this mode.  What is over and was the requester's own is not in its way.
 */
static bool
is_compatible(const lease_request *request, const lease_holder *holders,
			  size_t count, int64_t now_us)
{
	uint64_t	permits = 0;	/* cannot overflow: versions are 31 bits */

	for (size_t i = 0; i < count; i++)
	{
		const lease_holder *h = &holders[i];

		if (!lease_is_in_the_way(h, request->delay_us, now_us) ||
			(lease_is_over(h, now_us) && is_own(request, h)))
			continue;
		if (!lease_modes_are_compatible(h->mode, request->mode))
			return false;
		if (h->mode == LEASE_PERMIT)
			permits += permits_of(request, h, now_us);
	}
	return request->mode != LEASE_PERMIT || permits < request->limit;
}

/*
 * When time next changes what is in a request's way.  Holders that are bound to
 * something, and guards, end by an event instead.
 */
static int64_t
next_change(const lease_request *request, const lease_holder *holders,
			size_t count, int64_t now_us)
{
	int64_t		next_us = INT64_MAX;

	for (size_t i = 0; i < count; i++)
	{
		const lease_holder *h = &holders[i];
		int64_t		end_us;

		if (h->life != LEASE_TIMED ||
			(lease_is_over(h, now_us) &&
			 !lease_is_delayed(h, request->delay_us, now_us)))
			continue;
		end_us = h->deadline_us;
		if (!is_own(request, h))
			end_us = end_us > INT64_MAX - request->delay_us ?
				INT64_MAX : end_us + request->delay_us;
		if (end_us > now_us && end_us < next_us)
			next_us = end_us;
	}
	return next_us;
}

/* Give an existing holder one more hold, or replay the one it has. */
static lease_outcome
reenter(const lease_request *request, lease_holder *holders, size_t count,
		lease_holder *mine, int64_t now_us)
{
	int64_t		deadline_us = now_us + request->ttl_us;
	bool		replay = request->request.length > 0 &&
		lease_same(request->request, mine->request);

	if (mine->mode == LEASE_SHARED && request->mode == LEASE_EXCLUSIVE)
		return LEASE_UPGRADE;
	if ((mine->mode == LEASE_PERMIT) != (request->mode == LEASE_PERMIT))
		return LEASE_MIXED;
	if (mine->kind != request->kind)
		return LEASE_MIXED_KINDS;
	if (!replay)
	{
		if (mine->mode == LEASE_PERMIT &&
			(request->behind ||
			 !is_compatible(request, holders, count, now_us)))
			return LEASE_BUSY;
		if (mine->version >= LEASE_VERSION_MAX)
			return LEASE_TOO_MANY_HOLDS;
		mine->version++;
		mine->request = request->request;
		mine->change = LEASE_UPDATED;
	}
	if (deadline_us > mine->deadline_us)
	{
		mine->deadline_us = deadline_us;
		mine->change = LEASE_UPDATED;
	}
	return replay ? LEASE_REPLAYED : LEASE_REENTERED;
}

/* Mark all that is over for removal, but what the lock delay keeps. */
static void
expire(const lease_request *request, lease_holder *holders, size_t count,
	   int64_t now_us)
{
	for (size_t i = 0; i < count; i++)
	{
		lease_holder *h = &holders[i];

		if (h->life == LEASE_LEFT)
			h->change = LEASE_ENDED;
		else if (h->life == LEASE_TIMED && lease_is_over(h, now_us) &&
				 (!lease_is_delayed(h, request->delay_us, now_us) ||
				  (request->op == LEASE_ACQUIRE && is_own(request, h))))
			h->change = LEASE_EXPIRED;
	}
}

static void
acquire(const lease_request *request, lease_holder *holders, size_t count,
		int64_t now_us, lease_result *result)
{
	size_t		mine = lease_find(request, holders, count, now_us);

	if (mine < count)
	{
		result->outcome = reenter(request, holders, count, &holders[mine],
								  now_us);
		if (lease_is_granted(result->outcome))
			result->token = holders[mine].token;
		return;
	}
	if (request->behind || !is_compatible(request, holders, count, now_us))
	{
		result->outcome = LEASE_BUSY;
		return;
	}
	if (request->next_token == 0 || request->next_token > LEASE_TOKEN_MAX)
	{
		result->outcome = LEASE_NO_TOKENS;
		return;
	}

	expire(request, holders, count, now_us);
	holders[count] = (lease_holder) {
		.owner = request->owner,
		.request = request->request,
		.mode = request->mode,
		.kind = request->kind,
		.life = request->kind == LEASE_PLAIN ? LEASE_TIMED : LEASE_BOUND,
		.standing = LEASE_SELF,
		.version = 1,
		.token = request->next_token,
		.deadline_us = now_us + request->ttl_us,
		.change = LEASE_ADDED,
	};
	result->count = count + 1;
	result->token = request->next_token;
	result->outcome = LEASE_GRANTED;
}

/* Renew, release or drop the requester's holder. */
static void
change_mine(const lease_request *request, lease_holder *holders, size_t count,
			int64_t now_us, lease_result *result)
{
	size_t		mine = lease_find(request, holders, count, now_us);
	lease_holder *h = &holders[mine];

	if (mine == count)
	{
		result->outcome = is_held(holders, count, now_us) ?
			LEASE_NOT_YOURS : LEASE_NOT_HELD;
		return;
	}

	result->token = h->token;
	h->change = LEASE_UPDATED;
	if (request->op == LEASE_RENEW)
	{
		h->deadline_us = now_us + request->ttl_us;
		result->outcome = LEASE_RENEWED;
		return;
	}
	if (request->op == LEASE_DROP || h->version == 1)
		h->change = LEASE_ENDED;
	else
		h->version--;
	result->outcome = LEASE_RELEASED;
}

/*
 * End live holders whoever they are, all or those of one owner; and what the
 * lock delay keeps, which is how an operator cuts that short.
 */
static void
evict(const lease_request *request, lease_holder *holders, size_t count,
	  int64_t now_us, lease_result *result)
{
	result->outcome = LEASE_NOT_HELD;
	for (size_t i = 0; i < count; i++)
	{
		if (lease_is_over(&holders[i], now_us) &&
			!lease_is_delayed(&holders[i], request->delay_us, now_us))
			continue;
		if (request->owner.length > 0 &&
			!lease_same(holders[i].owner, request->owner))
		{
			if (result->outcome == LEASE_NOT_HELD)
				result->outcome = LEASE_NOT_YOURS;
			continue;
		}
		holders[i].change = LEASE_EVICTED;
		result->outcome = LEASE_RELEASED;
	}
}

lease_result
lease_apply(const lease_request *request, lease_holder *holders, size_t count,
			int64_t now_us)
{
	lease_result result = {
		.outcome = LEASE_NOT_HELD, .count = count, .retry_us = INT64_MAX
	};

	for (size_t i = 0; i < count; i++)
		holders[i].change = LEASE_UNCHANGED;

	switch (request->op)
	{
		case LEASE_ACQUIRE:
			acquire(request, holders, count, now_us, &result);
			break;
		case LEASE_RENEW:
		case LEASE_RELEASE:
		case LEASE_DROP:
			change_mine(request, holders, count, now_us, &result);
			break;
		case LEASE_EVICT:
			evict(request, holders, count, now_us, &result);
			break;
		case LEASE_REAP:
			expire(request, holders, count, now_us);
			break;
	}

	if (result.outcome == LEASE_BUSY)
		result.retry_us = next_change(request, holders, count, now_us);
	for (size_t i = 0; i < result.count; i++)
		if (holders[i].change != LEASE_UNCHANGED)
			result.changed++;
	if (request->op == LEASE_REAP && result.changed > 0)
		result.outcome = LEASE_RELEASED;
	return result;
}
