/*
 * keep.c
 *	  What a client does to acquire a lease, keep it alive and give it back.
 *
 * See keep.h for the contract and its invariants.  Every entry first takes the
 * time, in advance(), where a lease becomes lost by the clock.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "keep.h"

/* Add a duration to a time; an overflow is KEEP_NEVER. */
static int64_t
later(int64_t time_us, int64_t duration_us)
{
	return time_us > KEEP_NEVER - duration_us ? KEEP_NEVER :
		time_us + duration_us;
}

static int64_t
earlier_of(int64_t a_us, int64_t b_us)
{
	return a_us < b_us ? a_us : b_us;
}

int64_t
keep_margin_us(int64_t ttl_us)
{
	return earlier_of(ttl_us / 10, KEEP_MARGIN_MAX_US);
}

int64_t
keep_third_us(int64_t ttl_us)
{
	return ttl_us / 3;
}

bool
keep_check_config(const keep_config *config)
{
	return config->ttl_us >= 1 && config->ttl_us <= KEEP_LONGEST_US &&
		config->wait_us <= KEEP_LONGEST_US &&
		config->connect_timeout_us >= 1 &&
		config->connect_timeout_us <= KEEP_LONGEST_US &&
		config->keep_at_least_us >= 0 &&
		config->keep_at_least_us <= KEEP_LONGEST_US;
}

void
keep_init(keep *k, const keep_config *config)
{
	*k = (keep) {
		.config = *config,
		.state = KEEP_NEW,
	};
}

static void
tell(keep *k, keep_action_kind what)
{
	k->tells |= 1u << what;
}

/* Turn to other work, without a pause. */
static void
turn_to(keep *k, keep_work work)
{
	k->work = work;
	k->pause_us = 0;
	k->pause_until_us = 0;
	k->once = false;
}

/* The lease is lost, now; "rest" says whether the server may still have it. */
static void
lose(keep *k, bool rest)
{
	k->state = KEEP_LOST;
	k->rest = rest;
	k->unwanted = k->asked != KEEP_AWAIT;
	/* do not tell any more that it was renewed */
	k->tells = 0;
	tell(k, KEEP_TELL_LOST);
	turn_to(k, KEEP_WORK_NOTHING);
}

/* Take the time, which never goes back. */
static void
advance(keep *k, int64_t now_us)
{
	if (now_us > k->now_us)
		k->now_us = now_us;
	if (k->state == KEEP_HELD && k->now_us >= k->lost_at_us)
		lose(k, true);
}

bool
keep_is_held(const keep *k, int64_t now_us)
{
	return k->state == KEEP_HELD && now_us < k->lost_at_us &&
		k->now_us < k->lost_at_us;
}

/*
 * When to give up acquiring: after the time that the program allows to reach a
 * server; once a server was reached, that long after the end of the wait.
 */
static int64_t
give_up_us(const keep *k)
{
	int64_t		until_us = later(k->start_us, k->config.connect_timeout_us);

	if (!k->reached)
		return until_us;
	if (k->config.wait_us < 0)
		return KEEP_NEVER;
	return later(until_us, k->config.wait_us);
}

/* When to end the work even if it is not done. */
static int64_t
work_end_us(const keep *k)
{
	switch (k->work)
	{
		case KEEP_WORK_ACQUIRE:
		case KEEP_WORK_GRANTED:
		case KEEP_WORK_CONFIRM:
			return give_up_us(k);
		case KEEP_WORK_RENEW:
			/* advance() has seen to it, unless the program gives the lease back */
			return k->state == KEEP_HELD ? k->lost_at_us : k->work_until_us;
		case KEEP_WORK_FIND:
		case KEEP_WORK_RELEASE:
		case KEEP_WORK_LEAVE:
			return k->work_until_us;
		case KEEP_WORK_NOTHING:
			break;
	}
	return KEEP_NEVER;
}

/* How long an attempt may take, once it has begun. */
static int64_t
attempt_us(const keep *k, keep_action_kind what)
{
	if (k->work == KEEP_WORK_ACQUIRE)
		/* the call itself may wait, up to the end of the work */
		return what == KEEP_CONNECT ?
			keep_third_us(k->config.connect_timeout_us) : KEEP_NEVER;
	if (k->work == KEEP_WORK_CONFIRM || k->work == KEEP_WORK_RENEW)
		return keep_third_us(k->config.ttl_us);
	return keep_third_us(KEEP_RELEASE_US);
}

/* Giving back has ended. */
static void
finish(keep *k)
{
	turn_to(k, KEEP_WORK_NOTHING);
	if (k->releasing)
		tell(k, KEEP_TELL_RELEASED);
}

/* Begin to give back what the acquire may have been granted. */
static void
undo(keep *k)
{
	if (!k->maybe_held)
	{
		finish(k);
		return;
	}
	k->work_until_us = later(k->now_us, KEEP_RELEASE_US);

	/*
	 * Without a token, a release might hit another hold of the owner; an
	 * acquire with the same request id says which is ours, or takes one more.
	 */
	turn_to(k, k->token == 0 && !k->config.owner_is_ours ?
			KEEP_WORK_FIND : KEEP_WORK_RELEASE);
}

/*
 * Tell that the lease could not be acquired, and give back what it may have
 * got.
 */
static void
end_acquire(keep *k, keep_action_kind what)
{
	k->state = KEEP_ENDED;
	tell(k, what);
	undo(k);
}

/*
 * Begin to give back the hold, or to leave it for the time that it is to be
 * kept.
 */
static void
give_back(keep *k)
{
	turn_to(k, k->was_held &&
			k->now_us < later(k->held_us, k->config.keep_at_least_us) ?
			KEEP_WORK_LEAVE : KEEP_WORK_RELEASE);
}

/* End the call under way, without an answer, and with it the connection. */
static keep_action_kind
end_flight(keep *k)
{
	keep_action_kind asked = k->asked;

	if (asked == KEEP_ACQUIRE)
		k->maybe_held = true;
	if (asked == KEEP_RELEASE || asked == KEEP_LEAVE)
		k->maybe_given_back = true;
	k->asked = KEEP_AWAIT;
	k->unwanted = false;
	k->connected = false;
	k->fresh = false;
	return asked;
}

/* The attempt has failed: make another one, after a pause. */
static void
end_attempt(keep *k)
{
	/*
	 * A release that was sent may have been done.  A second one would take
	 * another hold, if others use this owner too.
	 */
	if (end_flight(k) == KEEP_RELEASE && !k->config.owner_is_ours)
	{
		finish(k);
		return;
	}
	if (k->work == KEEP_WORK_RENEW && k->state == KEEP_ENDED)
	{
		/* the release only waited for it */
		give_back(k);
		return;
	}

	/*
	 * The acquire, with the same request id, finds out as well whether the hold
	 * still exists.
	 */
	if (k->work == KEEP_WORK_CONFIRM)
		k->work = KEEP_WORK_ACQUIRE;
	k->pause_us = k->pause_us == 0 ? KEEP_PAUSE_US :
		earlier_of(2 * k->pause_us, KEEP_PAUSE_MAX_US);
	k->pause_until_us = later(k->now_us, k->pause_us);
	if (k->once)
		k->work_until_us = k->now_us;
}

/* The server has granted or renewed because of the request that was sent last. */
static void
move_deadline(keep *k)
{
	k->deadline_us = later(k->sent_us, k->config.ttl_us);
	k->lost_at_us = k->deadline_us - keep_margin_us(k->config.ttl_us);
}

void
keep_start(keep *k, int64_t now_us)
{
	advance(k, now_us);
	if (k->state != KEEP_NEW)
		return;
	k->state = KEEP_WAITING;
	k->start_us = k->now_us;
	turn_to(k, KEEP_WORK_ACQUIRE);
}

void
keep_release(keep *k, int64_t now_us)
{
	keep_state	state;

	advance(k, now_us);
	state = k->state;
	if (state == KEEP_ENDED)
		return;
	k->state = KEEP_ENDED;
	k->releasing = true;
	switch (state)
	{
		case KEEP_WAITING:
			/* a connection that is being made may be useful */
			if (k->asked == KEEP_ACQUIRE)
				k->maybe_held = true;
			undo(k);
			k->unwanted = k->asked != KEEP_AWAIT &&
				(k->asked != KEEP_CONNECT || k->work == KEEP_WORK_NOTHING);
			break;
		case KEEP_HELD:
			k->tells = 0;
			k->work_until_us = earlier_of(k->deadline_us,
										  later(k->now_us, KEEP_RELEASE_US));
			/* one call at a time: a renewal that is under way may have its answer */
			if (k->asked == KEEP_AWAIT)
				give_back(k);
			else
				k->attempt_until_us = earlier_of(k->attempt_until_us,
												 later(k->now_us, KEEP_FINISH_US));
			break;
		case KEEP_LOST:
			k->work_until_us = later(k->now_us, KEEP_RELEASE_LOST_US);
			if (k->rest)
			{
				/* not kept for longer: who lost it cannot say who has it now */
				turn_to(k, KEEP_WORK_RELEASE);
				k->once = true;
			}
			else
				finish(k);
			break;
		case KEEP_NEW:
		case KEEP_ENDED:
			finish(k);
			break;
	}
}

void
keep_connected(keep *k, int64_t now_us)
{
	advance(k, now_us);
	if (k->asked != KEEP_CONNECT)
		return;
	k->asked = KEEP_AWAIT;
	k->unwanted = false;
	k->connected = true;
	k->fresh = true;
	k->reached = true;
	if (k->work == KEEP_WORK_RENEW && k->state == KEEP_ENDED)
		give_back(k);
}

/* Take the answer of an acquire. */
static void
acquire_answered(keep *k, keep_answer answer, int64_t token)
{
	k->maybe_held = answer == KEEP_GRANTED;
	k->token = answer == KEEP_GRANTED ? token : 0;
	if (k->state == KEEP_WAITING)
	{
		if (answer == KEEP_GRANTED)
		{
			move_deadline(k);
			turn_to(k, KEEP_WORK_GRANTED);
		}
		else
			end_acquire(k, KEEP_TELL_REFUSED);
	}
	else if (answer == KEEP_GRANTED)
		turn_to(k, KEEP_WORK_RELEASE);
	else
		finish(k);
}

/* Take the answer of a renewal. */
static void
renew_answered(keep *k, keep_answer answer)
{
	switch (k->state)
	{
		case KEEP_WAITING:
			if (answer == KEEP_TRUE)
			{
				move_deadline(k);
				turn_to(k, KEEP_WORK_GRANTED);
				break;
			}
			/* lost before it was told: go on waiting */
			k->maybe_held = answer == KEEP_PARTLY;
			k->token = 0;
			turn_to(k, KEEP_WORK_ACQUIRE);
			break;
		case KEEP_HELD:
			if (answer == KEEP_TRUE)
			{
				move_deadline(k);
				tell(k, KEEP_TELL_RENEWED);
				turn_to(k, KEEP_WORK_RENEW);
			}
			else
				lose(k, answer == KEEP_PARTLY);
			break;
		case KEEP_LOST:
			if (answer == KEEP_GONE)
				k->rest = false;
			break;
		case KEEP_NEW:
			break;
		case KEEP_ENDED:
			/* a release has waited for this; one of a cancelled acquire has not */
			if (k->work != KEEP_WORK_RENEW)
				break;
			if (answer == KEEP_GONE)
				finish(k);
			else
				give_back(k);
			break;
	}
}

void
keep_answered(keep *k, keep_answer answer, int64_t token, int64_t now_us)
{
	keep_action_kind asked = k->asked;

	advance(k, now_us);
	if (asked == KEEP_AWAIT || asked == KEEP_CONNECT)
		return;
	k->asked = KEEP_AWAIT;
	k->unwanted = false;
	k->fresh = false;
	if (asked == KEEP_ACQUIRE)
		acquire_answered(k, answer, token);
	else if (asked == KEEP_RENEW)
		renew_answered(k, answer);
	else
	{
		/* what a release without an answer has given back is gone now */
		k->given_back = answer == KEEP_TRUE ||
			(answer == KEEP_GONE && k->maybe_given_back);
		k->maybe_held = false;
		finish(k);
	}
}

void
keep_failed(keep *k, keep_fault fault, int64_t now_us)
{
	bool		maybe_held = k->maybe_held;

	advance(k, now_us);
	if (k->asked == KEEP_AWAIT)
	{
		/* a connection that nobody used */
		k->connected = false;
		k->fresh = false;
	}
	else if (k->unwanted)
		end_flight(k);
	else if (k->state == KEEP_WAITING && fault != KEEP_UNAVAILABLE)
	{
		/* these errors change nothing */
		end_flight(k);
		k->maybe_held = maybe_held;
		end_acquire(k, fault == KEEP_DEADLOCK ?
					KEEP_TELL_REFUSED : KEEP_TELL_FAILED);
	}
	else if (k->state == KEEP_ENDED && fault == KEEP_MISUSE &&
			 k->work != KEEP_WORK_RENEW)
	{
		end_flight(k);
		finish(k);
	}
	else
		end_attempt(k);
}

/* Return the first thing that waits to be told. */
static bool
next_tell(keep *k, keep_action *action)
{
	for (unsigned what = KEEP_TELL_HELD; what <= KEEP_TELL_RELEASED; what++)
		if (k->tells & 1u << what)
		{
			k->tells &= ~(1u << what);
			action->kind = (keep_action_kind) what;
			action->given_back = k->given_back;
			return true;
		}
	return false;
}

/* The call that the work needs next. */
static keep_action_kind
call_for(keep_work work)
{
	if (work == KEEP_WORK_ACQUIRE || work == KEEP_WORK_FIND)
		return KEEP_ACQUIRE;
	if (work == KEEP_WORK_CONFIRM || work == KEEP_WORK_RENEW)
		return KEEP_RENEW;
	return work == KEEP_WORK_LEAVE ? KEEP_LEAVE : KEEP_RELEASE;
}

/* How long an acquire that is sent now may wait. */
static int64_t
wait_left_us(const keep *k)
{
	int64_t		end_us;

	if (k->work == KEEP_WORK_FIND)
		return 0;
	if (k->config.wait_us < 0)
		return -1;
	end_us = later(k->start_us, k->config.wait_us);
	return end_us > k->now_us ? end_us - k->now_us : 0;
}

/* Begin an attempt, or go on with one, now that there is a connection. */
static void
attempt(keep *k, keep_action *action)
{
	int64_t		limit_us;

	action->kind = k->connected ? call_for(k->work) : KEEP_CONNECT;
	if (!k->fresh)
		k->began_us = k->now_us;
	limit_us = attempt_us(k, action->kind);
	k->attempt_until_us = earlier_of(limit_us == KEEP_NEVER ? KEEP_NEVER :
									 later(k->began_us, limit_us),
									 work_end_us(k));
	k->asked = action->kind;
	k->sent_us = k->now_us;
	action->until_us = k->attempt_until_us;
	action->wait_us = wait_left_us(k);
	action->leave_us = k->held_us + k->config.keep_at_least_us - k->now_us;
	/* others with this owner may believe for a ttl that they hold it */
	if (!k->config.owner_is_ours && action->leave_us < k->config.ttl_us)
		action->leave_us = k->config.ttl_us;
}

keep_action
keep_next(keep *k, int64_t now_us)
{
	keep_action action = {.kind = KEEP_AWAIT, .until_us = KEEP_NEVER};
	int64_t		end_us;

	advance(k, now_us);
	action.token = k->token;
	if (next_tell(k, &action))
		return action;
	if (k->unwanted)
	{
		end_flight(k);
		action.kind = KEEP_DROP;
		return action;
	}

	if (k->asked != KEEP_AWAIT)
	{
		if (k->now_us >= k->attempt_until_us)
		{
			end_attempt(k);
			action.kind = KEEP_DROP;
		}
		else
			action.until_us = k->state == KEEP_HELD ?
				earlier_of(k->attempt_until_us, k->lost_at_us) :
				k->attempt_until_us;
		return action;
	}

	if (k->work == KEEP_WORK_GRANTED)
	{
		if (k->now_us - k->sent_us <= keep_third_us(k->config.ttl_us))
		{
			k->state = KEEP_HELD;
			k->was_held = true;
			k->held_us = k->now_us;
			turn_to(k, KEEP_WORK_RENEW);
			action.kind = KEEP_TELL_HELD;
			return action;
		}
		/* we do not know when it was granted */
		turn_to(k, KEEP_WORK_CONFIRM);
	}

	if (k->work == KEEP_WORK_NOTHING)
	{
		if (k->state == KEEP_ENDED)
			action.kind = KEEP_DONE;
		return action;
	}

	end_us = work_end_us(k);
	if (k->now_us >= end_us)
	{
		if (k->state == KEEP_WAITING)
			end_acquire(k, KEEP_TELL_FAILED);
		else
			finish(k);
		return keep_next(k, now_us);
	}
	if (k->work == KEEP_WORK_RENEW && k->pause_us == 0 && !k->fresh)
		k->pause_until_us = k->deadline_us - k->config.ttl_us +
			keep_third_us(k->config.ttl_us);
	if (k->now_us < k->pause_until_us)
	{
		action.until_us = earlier_of(k->pause_until_us, end_us);
		return action;
	}
	if (k->work == KEEP_WORK_LEAVE &&
		k->now_us >= later(k->held_us, k->config.keep_at_least_us))
		k->work = KEEP_WORK_RELEASE;
	attempt(k, &action);
	return action;
}
