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

int
lease_compare(const void *a, const void *b)
{
	const lease_bytes *x = a;
	const lease_bytes *y = b;

	if (x->length != y->length)
		return x->length < y->length ? -1 : 1;
	return memcmp(x->data, y->data, x->length);
}

/* A wall clock past this part of the tokens (year 2156) is not believed. */
#define TOKENS_BY_CLOCK_MAX		(LEASE_TOKEN_MAX / 2)

#define US_PER_SECOND			INT64_C(1000000)

/* The wall clock as a number of tokens; 0 if the clock is not believed. */
static uint64_t
tokens_by_clock(int64_t wall_us)
{
	uint64_t	seconds;
	uint64_t	fraction_us;

	if (wall_us <= 0)
		return 0;
	seconds = (uint64_t) (wall_us / US_PER_SECOND);
	fraction_us = (uint64_t) (wall_us % US_PER_SECOND);
	if (seconds >= TOKENS_BY_CLOCK_MAX / LEASE_TOKENS_PER_SECOND)
		return 0;
	return seconds * LEASE_TOKENS_PER_SECOND +
		fraction_us * LEASE_TOKENS_PER_SECOND / (uint64_t) US_PER_SECOND;
}

lease_takeover
lease_take_over(uint64_t last, int64_t wall_us)
{
	uint64_t	by_clock = tokens_by_clock(wall_us);
	uint64_t	least = last > LEASE_TOKEN_MAX - LEASE_TOKENS_PER_SECOND ?
		LEASE_TOKEN_MAX : last + LEASE_TOKENS_PER_SECOND;
	lease_takeover result = {.floor = by_clock};

	if (by_clock >= least)
		return result;
	if (least - by_clock <= LEASE_TOKENS_PER_SECOND)
	{
		/* rounded up, so that the clock is there when the wait is over */
		result.wait_us = (int64_t) ((least - by_clock) *
									(uint64_t) US_PER_SECOND /
									LEASE_TOKENS_PER_SECOND) + 1;
		if (result.wait_us > LEASE_TAKEOVER_WAIT_US)
			result.wait_us = LEASE_TAKEOVER_WAIT_US;
	}
	result.floor = least;
	result.clock_is_behind = true;
	return result;
}

void
lease_judge(lease_holder *holder, lease_bond bond, int64_t ttl_us,
			int64_t since_us, int64_t now_us)
{
	holder->life = LEASE_TIMED;
	if (holder->kind == LEASE_PLAIN)
		return;
	switch (bond)
	{
		case LEASE_BOND_THERE:
			holder->life = LEASE_BOUND;
			holder->deadline_us = now_us + ttl_us;
			break;
		case LEASE_BOND_ENDED:
			holder->life = LEASE_LEFT;
			holder->deadline_us = now_us;
			break;
		case LEASE_BOND_LOST:
			holder->life = LEASE_LOST;
			holder->deadline_us = since_us < now_us ? since_us : now_us;
			break;
		case LEASE_BOND_BEFORE:
			holder->life = LEASE_STRANDED;
			holder->deadline_us = since_us + ttl_us;
			break;
	}
}

void
lease_merge_guard(lease_holder *holder, lease_mode mode, uint32_t holds)
{
	if (holder->guarded == 0 || mode == LEASE_EXCLUSIVE)
		holder->guard_mode = mode;
	if (holds > holder->guarded)
		holder->guarded = holds;
}

bool
lease_join_crowd(lease_holder *crowd, const lease_holder *holder)
{
	if (holder->kind != LEASE_PLAIN || holder->life != LEASE_TIMED ||
		holder->guarded > 0)
		return false;
	if (crowd->version == 0)
		*crowd = (lease_holder) {
			.mode = holder->mode,
			.kind = LEASE_PLAIN,
			.life = LEASE_TIMED,
			.standing = LEASE_STRANGER,
			.deadline_us = INT64_MAX,
		};
	else if (crowd->mode != holder->mode)
		return false;
	/* no limit is larger, so that a sum cut off keeps out whom the sum would */
	crowd->version += holder->version > LEASE_VERSION_MAX - crowd->version ?
		LEASE_VERSION_MAX - crowd->version : holder->version;
	if (holder->deadline_us < crowd->deadline_us)
		crowd->deadline_us = holder->deadline_us;
	return true;
}

/*
 * Say whether a holder is what is left of the lease of another transaction, whose
 * outcome cannot be seen yet.
 */
static bool
is_unseen(const lease_holder *holder)
{
	return holder->life == LEASE_PINNED &&
		holder->kind == LEASE_TRANSACTION && holder->elsewhere;
}

/*
 * Say whether a holder has the request's owner, and a principal that the
 * requester is or may act for.
 */
static bool
is_owners(const lease_request *request, const lease_holder *holder)
{
	return holder->standing != LEASE_STRANGER &&
		lease_same(holder->owner, request->owner);
}

/*
 * Say whether a holder is the requester, or one that it may act for.  An
 * acquire for a session or transaction cannot share the lease of another
 * session or transaction, even of the same owner.  Nor does any acquire own what
 * is left of another transaction's lease: it would be granted before it can see
 * what that transaction did.
 */
static bool
is_own(const lease_request *request, const lease_holder *holder)
{
	return is_owners(request, holder) &&
		!(request->op == LEASE_ACQUIRE && holder->elsewhere &&
		  (is_unseen(holder) ||
		   (holder->life == LEASE_BOUND && holder->kind == request->kind)));
}

/* Say whether an acquire takes over what its owner had in an earlier server. */
static bool
inherits(const lease_request *request, const lease_holder *holder)
{
	return request->op == LEASE_ACQUIRE && holder->life == LEASE_STRANDED &&
		holder->kind == request->kind && is_own(request, holder);
}

/* Say whether it takes over any of these holders. */
static bool
takes_any_over(const lease_request *request, const lease_holder *holders,
			   size_t count, int64_t now_us)
{
	for (size_t i = 0; i < count; i++)
		if (!lease_is_over(&holders[i], now_us) &&
			inherits(request, &holders[i]))
			return true;
	return false;
}

/* Say whether a request that speaks for a holder can mean this one. */
static bool
may_mean(const lease_request *request, const lease_holder *holder,
		 int64_t now_us)
{
	if (lease_is_over(holder, now_us) || !is_own(request, holder) ||
		inherits(request, holder))
		return false;
	if (request->op != LEASE_ACQUIRE && request->token != 0 &&
		holder->token != request->token)
		return false;
	if (request->op == LEASE_RELEASE && request->unless_repeated &&
		holder->repeated)
		return false;
	if (holder->life == LEASE_LEAVING &&
		(request->op != LEASE_DROP_AFTER || request->token == 0))
		return false;
	return request->op != LEASE_LEAVE || holder->kind != LEASE_PLAIN;
}

/* Say which of two holders that a request may mean comes first: true for a. */
static bool
comes_first(const lease_holder *a, const lease_holder *b)
{
	if (a->standing != b->standing)
		return a->standing > b->standing;
	if (a->elsewhere != b->elsewhere)
		return b->elsewhere;
	return a->token < b->token;
}

size_t
lease_find(const lease_request *request, const lease_holder *holders,
		   size_t count, int64_t now_us)
{
	size_t		best = count;

	for (size_t i = 0; i < count; i++)
		if (may_mean(request, &holders[i], now_us) &&
			(best == count || comes_first(&holders[i], &holders[best])))
			best = i;
	return best;
}

size_t
lease_find_exclusive(const lease_holder *holders, size_t count,
					 int64_t now_us)
{
	size_t		i = 0;

	while (i < count && (holders[i].mode != LEASE_EXCLUSIVE ||
						 lease_is_over(&holders[i], now_us)))
		i++;
	return i;
}

bool
lease_is_free(const lease_holder *holders, size_t count, int64_t delay_us,
			  int64_t now_us)
{
	for (size_t i = 0; i < count; i++)
		if (lease_is_in_the_way(&holders[i], delay_us, now_us))
			return false;
	return true;
}

/* Say whether a holder has ended for those who wait for that. */
static bool
has_ended(const lease_holder *holder, int64_t now_us)
{
	return lease_is_over(holder, now_us) && !is_unseen(holder);
}

uint64_t
lease_youngest(const lease_holder *holders, size_t count, int64_t now_us)
{
	uint64_t	youngest = 0;

	for (size_t i = 0; i < count; i++)
		if (!has_ended(&holders[i], now_us))
			youngest = lease_merge_marks(youngest, holders[i].token);
	return youngest;
}

bool
lease_have_ended(const lease_holder *holders, size_t count, uint64_t youngest,
				 int64_t now_us, int64_t *next_us)
{
	bool		ended = true;

	*next_us = INT64_MAX;
	for (size_t i = 0; i < count; i++)
	{
		if (has_ended(&holders[i], now_us) || holders[i].token > youngest)
			continue;
		ended = false;
		if (lease_end_us(&holders[i], 0) < *next_us)
			*next_us = lease_end_us(&holders[i], 0);
	}
	return ended;
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

/*
 * Say whether a holder's lease, apart from its guards, takes up room that a
 * request needs.  A lease of the requester's own that is over does not.
 */
static bool
takes_room(const lease_request *request, const lease_holder *holder,
		   int64_t now_us)
{
	if (lease_is_over(holder, now_us))
		return lease_is_delayed(holder, request->delay_us, now_us) &&
			!is_own(request, holder);
	return !inherits(request, holder);
}

/*
 * Say whether a holder's guards take up that room.  The requester's own do not:
 * it would wait for its own transaction.  Those of another transaction's lease
 * do, as long as its outcome cannot be seen.
 */
static bool
guards_take_room(const lease_request *request, const lease_holder *holder)
{
	return holder->guarded > 0 &&
		(!is_owners(request, holder) || is_unseen(holder) ||
		 (holder->elsewhere && holder->life == LEASE_BOUND &&
		  holder->kind == LEASE_TRANSACTION));
}

/* Say whether a holder keeps a request out by the modes alone. */
static bool
excludes(const lease_request *request, const lease_holder *holder,
		 int64_t now_us)
{
	return (takes_room(request, holder, now_us) &&
			!lease_modes_are_compatible(holder->mode, request->mode)) ||
		(guards_take_room(request, holder) &&
		 !lease_modes_are_compatible(holder->guard_mode, request->mode));
}

/*
 * How many permits a holder takes up as a request sees it.  A guard and its
 * lease count as one, with the permits of the larger.
 */
static uint64_t
permits_of(const lease_request *request, const lease_holder *holder,
		   int64_t now_us)
{
	uint32_t	permits = takes_room(request, holder, now_us) ?
		holder->version : 0;

	if (guards_take_room(request, holder) && holder->guarded > permits)
		permits = holder->guarded;
	return permits;
}

bool
lease_blocks(const lease_request *request, const lease_holder *holder,
			 int64_t now_us)
{
	return excludes(request, holder, now_us) ||
		(request->mode == LEASE_PERMIT &&
		 permits_of(request, holder, now_us) > 0);
}

/* Say whether the holders leave room for what a request asks for. */
static bool
leave_room(const lease_request *request, const lease_holder *holders,
		   size_t count, int64_t now_us)
{
	/* cannot overflow: versions are 31 bits */
	uint64_t	permits = lease_holds_asked(request);

	for (size_t i = 0; i < count; i++)
	{
		if (excludes(request, &holders[i], now_us))
			return false;
		if (request->mode == LEASE_PERMIT)
			permits += permits_of(request, &holders[i], now_us);
	}
	return request->mode != LEASE_PERMIT || permits <= request->limit;
}

bool
lease_leaves_room(const lease_request *served, lease_outcome outcome,
				  lease_bytes next_owner)
{
	return outcome != LEASE_GRANTED || served->mode != LEASE_EXCLUSIVE ||
		lease_same(served->owner, next_owner);
}

/*
 * When time next changes what is in a request's way; INT64_MAX: bound holders
 * and guards end only by an event.
 */
static int64_t
next_change(const lease_request *request, const lease_holder *holders,
			size_t count, int64_t now_us)
{
	int64_t		next_us = INT64_MAX;

	for (size_t i = 0; i < count; i++)
	{
		int64_t		end_us = lease_end_us(&holders[i],
										  is_own(request, &holders[i]) ?
										  0 : request->delay_us);

		if (end_us > now_us && end_us < next_us &&
			!inherits(request, &holders[i]))
			next_us = end_us;
	}
	return next_us;
}

/* Say whether an acquire repeats the last one of a holder. */
static bool
repeats(const lease_request *request, const lease_holder *mine)
{
	return request->request.length > 0 &&
		lease_same(request->request, mine->request);
}

/*
 * Answer an acquire with the hold that it repeats.  The call that took the hold
 * may still be about to give it back (LEASE_RELEASE with unless_repeated), so
 * note that another call was answered with the hold.  A call with a request id
 * gives back only a holder that it made.  So if there are several holds,
 * another call took the last one, and nothing need be noted.  Permits do not
 * tell how many calls took them.
 */
static lease_outcome
replay(lease_holder *mine)
{
	if (!mine->repeated &&
		(mine->version == 1 || mine->mode == LEASE_PERMIT))
	{
		mine->repeated = true;
		mine->change = LEASE_UPDATED;
	}
	return LEASE_REPLAYED;
}

/* Give an existing holder more holds, or answer with those it has. */
static lease_outcome
reenter(const lease_request *request, lease_holder *holders, size_t count,
		lease_holder *mine, int64_t now_us)
{
	int64_t		deadline_us = now_us + request->ttl_us;
	uint32_t	asked = lease_holds_asked(request);
	lease_outcome outcome = LEASE_REENTERED;

	if ((request->claim || request->only_repeated) &&
		!(repeats(request, mine) && mine->mode == request->mode &&
		  mine->kind == request->kind))
		return LEASE_BUSY;
	if (mine->mode == LEASE_SHARED && request->mode == LEASE_EXCLUSIVE)
		return LEASE_UPGRADE;
	if ((mine->mode == LEASE_PERMIT) != (request->mode == LEASE_PERMIT))
		return LEASE_MIXED;
	if (mine->kind != request->kind)
		return LEASE_MIXED_KINDS;
	if (repeats(request, mine))
		outcome = replay(mine);
	else
	{
		if (mine->mode == LEASE_PERMIT &&
			(request->behind || !leave_room(request, holders, count, now_us)))
			return LEASE_BUSY;
		if (mine->version > LEASE_VERSION_MAX - asked)
			return LEASE_TOO_MANY_HOLDS;
		mine->version += asked;
		mine->request = request->request;
		mine->change = LEASE_UPDATED;
	}
	if (deadline_us > mine->deadline_us)
	{
		mine->deadline_us = deadline_us;
		mine->change = LEASE_UPDATED;
	}
	return outcome;
}

/*
 * Mark for removal every holder that is over, except those that the lock delay
 * keeps, and every holder that an acquire takes over.
 */
static void
end_what_is_over(const lease_request *request, lease_holder *holders,
				 size_t count, int64_t now_us)
{
	for (size_t i = 0; i < count; i++)
	{
		lease_holder *h = &holders[i];

		if (!lease_is_over(h, now_us))
		{
			if (inherits(request, h))
				h->change = LEASE_ENDED;
			continue;
		}
		if (h->life == LEASE_PINNED ||
			(lease_is_delayed(h, request->delay_us, now_us) &&
			 !(request->op == LEASE_ACQUIRE && is_own(request, h))))
			continue;
		h->change = h->life == LEASE_LEFT || h->life == LEASE_LEAVING ||
			(h->life == LEASE_LOST && request->delay_us == 0) ?
			LEASE_ENDED : LEASE_EXPIRED;
	}
}

static void
apply_acquire(const lease_request *request, lease_holder *holders,
			  size_t count, int64_t now_us, lease_result *result)
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
	if (request->only_repeated ||
		!leave_room(request, holders, count, now_us) ||
		(request->behind && !takes_any_over(request, holders, count, now_us)))
	{
		result->outcome = LEASE_BUSY;
		return;
	}
	if (request->next_token == 0 || request->next_token > LEASE_TOKEN_MAX)
	{
		result->outcome = LEASE_NO_TOKENS;
		return;
	}

	end_what_is_over(request, holders, count, now_us);
	holders[count] = (lease_holder) {
		.owner = request->owner,
		.request = request->request,
		.mode = request->mode,
		.kind = request->kind,
		.life = request->kind == LEASE_PLAIN ? LEASE_TIMED : LEASE_BOUND,
		.standing = LEASE_SELF,
		.version = lease_holds_asked(request),
		.token = request->next_token,
		.deadline_us = now_us + request->ttl_us,
		.change = LEASE_ADDED,
	};
	result->count = count + 1;
	result->token = request->next_token;
	result->outcome = LEASE_GRANTED;
}

/* Give some holds of a holder back. */
static lease_outcome
give_back_holds(lease_holder *h, uint32_t holds)
{
	if (holds > h->version)
		return LEASE_NOT_YOURS;
	if (holds == h->version)
		h->change = LEASE_ENDED;
	else
	{
		h->version -= holds;
		h->change = LEASE_UPDATED;
	}
	return LEASE_RELEASED;
}

/* Give all holds of a holder back, with effect later. */
static lease_outcome
drop_after(const lease_request *request, lease_holder *h, int64_t now_us)
{
	if (h->kind != LEASE_PLAIN)
		return LEASE_IS_BOUND;
	if (h->life != LEASE_LEAVING)
	{
		h->life = LEASE_LEAVING;
		h->deadline_us = now_us + request->ttl_us;
		h->change = LEASE_UPDATED;
	}
	return LEASE_WILL_END;
}

/* End a holder with what it is bound to. */
static lease_outcome
leave(const lease_request *request, lease_holder *h, int64_t now_us)
{
	if (h->kind == LEASE_TRANSACTION || request->delay_us == 0)
		return give_back_holds(h, h->version);
	h->kind = LEASE_PLAIN;
	h->life = LEASE_TIMED;
	h->deadline_us = now_us;
	h->change = LEASE_UPDATED;
	return LEASE_DELAYED;
}

/* Do what a request asks of the requester's holder. */
static lease_outcome
change_holder(const lease_request *request, lease_holder *h, int64_t now_us)
{
	switch (request->op)
	{
		case LEASE_RENEW:
			h->deadline_us = now_us + request->ttl_us;
			h->change = LEASE_UPDATED;
			return LEASE_RENEWED;
		case LEASE_RELEASE:
			return give_back_holds(h, lease_holds_returned(request));
		case LEASE_DROP:
			return give_back_holds(h, h->version);
		case LEASE_DROP_AFTER:
			return drop_after(request, h, now_us);
		case LEASE_DOWNGRADE:
			if (h->mode == LEASE_PERMIT)
				return LEASE_IS_PERMIT;
			if (h->mode == LEASE_EXCLUSIVE)
				h->change = LEASE_UPDATED;
			h->mode = LEASE_SHARED;
			return LEASE_DOWNGRADED;
		case LEASE_LEAVE:
			return leave(request, h, now_us);
		case LEASE_ACQUIRE:
		case LEASE_EVICT:
		case LEASE_REAP:
			break;
	}
	return LEASE_NOT_YOURS;		/* not reached: these speak for no holder */
}

/* Find the requester's holder, and change it. */
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
	result->outcome = change_holder(request, h, now_us);
	if (result->outcome != LEASE_NOT_YOURS &&
		result->outcome != LEASE_IS_PERMIT &&
		result->outcome != LEASE_IS_BOUND)
		result->token = h->token;
	if (h->change == LEASE_UPDATED && h->life == LEASE_STRANDED)
	{
		h->kind = LEASE_PLAIN;
		h->life = LEASE_TIMED;
	}
}

/*
 * End live holders, all or those of one owner, whatever their principal.  This
 * also ends holders that the lock delay keeps: an operator can cut that short.
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
			apply_acquire(request, holders, count, now_us, &result);
			break;
		case LEASE_RENEW:
		case LEASE_RELEASE:
		case LEASE_DROP:
		case LEASE_DROP_AFTER:
		case LEASE_DOWNGRADE:
		case LEASE_LEAVE:
			change_mine(request, holders, count, now_us, &result);
			break;
		case LEASE_EVICT:
			evict(request, holders, count, now_us, &result);
			break;
		case LEASE_REAP:
			end_what_is_over(request, holders, count, now_us);
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
