/*
 * many.c
 *	  How one connection keeps many leases alive and gives them back.
 *
 * See many.h for the contract and its invariants.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "many.h"

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

static int64_t
later_of(int64_t a_us, int64_t b_us)
{
	return a_us > b_us ? a_us : b_us;
}

/* The pause after the one that was made before. */
static int64_t
longer_pause_us(int64_t pause_us)
{
	return pause_us == 0 ? KEEP_PAUSE_US :
		earlier_of(2 * pause_us, KEEP_PAUSE_MAX_US);
}

static void
take_time(many *m, int64_t now_us)
{
	m->now_us = later_of(m->now_us, now_us);
}

bool
many_is_held(const many_lease *lease, int64_t now_us)
{
	return lease->state == KEEP_HELD && now_us < lease->lost_at_us;
}

static void
move_deadline(many_lease *lease, int64_t sent_us)
{
	lease->deadline_us = later(sent_us, lease->ttl_us);
	lease->lost_at_us = lease->deadline_us - keep_margin_us(lease->ttl_us);
}

static void
lose(many_lease *lease, bool rest)
{
	lease->state = KEEP_LOST;
	lease->rest = rest;
	lease->tells = 1u << KEEP_TELL_LOST;
}

/* Giving back has ended; the server may have the lease for so long. */
static void
finish(const many *m, many_lease *lease, bool given_back, int64_t left_us)
{
	lease->pending = false;
	lease->done = true;
	lease->given_back = given_back;
	lease->left_until_us = left_us == 0 ? 0 : later(m->now_us, left_us);
	lease->tells |= 1u << KEEP_TELL_RELEASED;
}

/* For how long a lease is to be left rather than given back; 0: not. */
static int64_t
leave_us(const many *m, const many_lease *lease)
{
	int64_t		left_us = later(lease->held_us, lease->keep_at_least_us) -
		m->now_us;

	if (lease->once || lease->keep_at_least_us == 0 || left_us <= 0)
		return 0;
	/* others with this owner may believe for a ttl that they hold it */
	return m->owner_is_ours ? left_us : later_of(left_us, lease->ttl_us);
}

/* For how long a lease may be held whose release is in doubt. */
static int64_t
doubt_us(const many *m, const many_lease *lease)
{
	return later_of(lease->ttl_us, leave_us(m, lease));
}

void
many_add(many *m, many_lease *lease, int64_t now_us)
{
	take_time(m, now_us);
	lease->state = KEEP_HELD;
	move_deadline(lease, lease->deadline_us - lease->ttl_us);
}

void
many_release(many *m, many_lease *lease, int64_t now_us)
{
	take_time(m, now_us);
	if (lease->state == KEEP_ENDED)
		return;
	if (lease->state == KEEP_HELD && m->now_us >= lease->lost_at_us)
		lose(lease, true);
	/* a single attempt if it is lost: others may have it */
	lease->once = lease->state == KEEP_LOST;
	lease->work_until_us = lease->once ?
		later(m->now_us, KEEP_RELEASE_LOST_US) :
		earlier_of(lease->deadline_us, later(m->now_us, KEEP_RELEASE_US));
	if (!lease->once)
		lease->tells = 0;
	lease->state = KEEP_ENDED;
	lease->pause_us = 0;
	lease->largest = 0;
	if (lease->once && !lease->rest)
		finish(m, lease, false, 0);
	else
		lease->pending = true;
}

void
many_forget(many *m, const many_lease *lease)
{
	for (size_t i = 0; i < m->ncall; i++)
		if (m->call[i] == lease)
			m->call[i] = NULL;
}

/* Say whether the last call was for the lease alone, and has failed. */
static bool
has_failed(const many_lease *lease)
{
	return lease->pause_us > 0;
}

/* When the next call for a lease is to be sent. */
static int64_t
due_us(const many *m, const many_lease *lease)
{
	int64_t		due = lease->pending ? 0 : lease->deadline_us - lease->ttl_us +
		keep_third_us(lease->ttl_us);

	if (has_failed(lease))
		due = later_of(due, later_of(lease->pause_until_us, m->retry_until_us));
	return due;
}

/*
 * Say whether the call for one lease comes before that for another: those that have
 * failed take turns after all others, so that they keep none from being renewed.
 */
static bool
comes_before(const many_lease *a, const many_lease *b)
{
	if (b == NULL || has_failed(a) != has_failed(b))
		return b == NULL || has_failed(b);
	return has_failed(a) ? a->pause_until_us < b->pause_until_us :
		a->lost_at_us < b->lost_at_us;
}

/* Say whether a lease goes into the call that is made for another. */
static bool
goes_with(const many_lease *lease, const many_lease *first)
{
	return lease == first || (!has_failed(lease) && !has_failed(first));
}

/* End the attempt; returns what it was. */
static many_action_kind
end_attempt(many *m)
{
	many_action_kind asked = m->asked;

	for (size_t i = 0; i < m->ncall; i++)
		if (m->call[i] != NULL)
			m->call[i]->called = false;
	m->asked = MANY_AWAIT;
	return asked;
}

void
many_connected(many *m, int64_t now_us)
{
	take_time(m, now_us);
	end_attempt(m);
	m->connected = true;
}

void
many_answered(many *m, int64_t now_us)
{
	many_action_kind asked = end_attempt(m);

	take_time(m, now_us);
	m->pause_us = 0;
	m->pause_until_us = 0;
	for (size_t i = 0; i < m->ncall; i++)
	{
		many_lease *lease = m->call[i];

		if (lease == NULL)
			continue;
		if (has_failed(lease))
			m->retry_pause_us = 0;
		lease->pause_us = 0;
		lease->largest = 0;
		/* an answer that comes too late changes nothing */
		if (lease->state == KEEP_HELD && m->now_us >= lease->lost_at_us)
			lose(lease, true);
		if (asked != MANY_RENEW)
		{
			bool		done = lease->answer == KEEP_TRUE;

			finish(m, lease, done, done && asked == MANY_LEAVE ? m->for_us : 0);
		}
		else if (lease->state == KEEP_HELD && lease->answer == KEEP_TRUE)
		{
			move_deadline(lease, m->sent_us);
			lease->tells |= 1u << KEEP_TELL_RENEWED;
		}
		else if (lease->state == KEEP_HELD)
		{
			lose(lease, lease->answer == KEEP_PARTLY);
			lease->ended_there = true;
		}
		else if (lease->state == KEEP_LOST && lease->answer == KEEP_GONE)
			lease->rest = false;
	}
	m->ncall = 0;
}

void
many_failed(many *m, bool said, bool misuse, bool connected, int64_t now_us)
{
	many_action_kind asked = end_attempt(m);
	size_t		n = asked == MANY_CONNECT ? 0 : m->ncall;

	take_time(m, now_us);
	m->connected = connected;
	if (!said)
	{
		m->pause_us = longer_pause_us(m->pause_us);
		m->pause_until_us = later(m->now_us, m->pause_us);
	}
	else if (n == 1)
	{
		m->retry_pause_us = longer_pause_us(m->retry_pause_us);
		m->retry_until_us = later(m->now_us, m->retry_pause_us);
		/* a server that refuses all is not to be logged in to for each at once */
		m->pause_until_us = later(m->now_us, KEEP_PAUSE_US);
	}
	for (size_t i = 0; i < n; i++)
	{
		many_lease *lease = m->call[i];

		if (lease == NULL)
			continue;
		/* the next calls are for half as many, and so on */
		lease->largest = (unsigned) (n + 1) / 2;
		if (n == 1)
		{
			lease->pause_us = longer_pause_us(lease->pause_us);
			lease->pause_until_us = later(m->now_us, lease->pause_us);
		}

		/*
		 * A release that was sent may have been done.  A second one would take
		 * another hold, if others use this owner too.
		 */
		if (asked != MANY_RENEW &&
			(lease->once || (n == 1 && misuse) ||
			 (asked == MANY_RELEASE && !said && !m->owner_is_ours)))
			finish(m, lease, false, doubt_us(m, lease));
	}
	m->ncall = 0;
}

/* Put a lease into the call, which is in the order of deadlines. */
static void
put_in(many *m, many_lease *lease)
{
	size_t		at = m->ncall;

	if (at == MANY_NAMES_MAX)
	{
		if (m->call[at - 1]->lost_at_us <= lease->lost_at_us)
			return;
		at--;
	}
	else
		m->ncall++;
	for (; at > 0 && m->call[at - 1]->lost_at_us > lease->lost_at_us; at--)
		m->call[at] = m->call[at - 1];
	m->call[at] = lease;
}

/* Shorten the call to what may go together. */
static void
shorten(many *m)
{
	size_t		largest = MANY_NAMES_MAX;
	unsigned	names = 0;
	size_t		n = 0;

	for (; n < m->ncall && n < largest; n++)
	{
		const many_lease *lease = m->call[n];

		if (names + lease->names > MANY_NAMES_MAX ||
			(lease->largest != 0 && n >= lease->largest))
			break;
		if (lease->largest != 0 && lease->largest < largest)
			largest = lease->largest;
		names += lease->names;
	}
	m->ncall = n;
}

/* Make the call that renews "first" and others of the same ttl. */
static void
make_renewal(many *m, many_lease *const *leases, size_t n,
			 const many_lease *first)
{
	m->ncall = 0;
	m->for_us = first->ttl_us;
	for (size_t i = 0; i < n; i++)
		if (leases[i]->state == KEEP_HELD && leases[i]->ttl_us == first->ttl_us &&
			goes_with(leases[i], first) &&
			due_us(m, leases[i]) <= later(m->now_us, first->ttl_us / 6))
			put_in(m, leases[i]);
	shorten(m);
}

/* Make the call that gives "first" back, and others. */
static many_action_kind
make_release(many *m, many_lease *const *leases, size_t n, many_lease *first)
{
	m->ncall = 0;
	m->for_us = leave_us(m, first);
	if (m->for_us > 0 || first->alone)
	{
		put_in(m, first);
		return m->for_us > 0 ? MANY_LEAVE : MANY_RELEASE;
	}
	for (size_t i = 0; i < n; i++)
		if (leases[i]->pending && !leases[i]->alone &&
			goes_with(leases[i], first) && leave_us(m, leases[i]) == 0)
			put_in(m, leases[i]);
	shorten(m);
	return MANY_RELEASE;
}

many_action
many_next(many *m, many_lease *const *leases, size_t n, int64_t now_us)
{
	many_action action = {.kind = MANY_AWAIT, .until_us = KEEP_NEVER};
	many_lease *to_renew = NULL;
	many_lease *to_release = NULL;
	int64_t		work_us = KEEP_NEVER;	/* when there is something to do */
	int64_t		limit_us = KEEP_RELEASE_US / 3;
	int64_t		least_ttl_us = KEEP_NEVER;

	take_time(m, now_us);
	for (size_t i = 0; i < n; i++)
	{
		many_lease *lease = leases[i];

		if (lease->state == KEEP_HELD && m->now_us >= lease->lost_at_us)
			lose(lease, true);
		if (lease->state == KEEP_HELD)
		{
			least_ttl_us = earlier_of(least_ttl_us, lease->ttl_us);
			action.until_us = earlier_of(action.until_us, lease->lost_at_us);
			work_us = earlier_of(work_us, due_us(m, lease));
			if (due_us(m, lease) <= m->now_us && comes_before(lease, to_renew))
				to_renew = lease;
		}
		else if (lease->pending && !lease->called &&
				 m->now_us >= lease->work_until_us)
			finish(m, lease, false, doubt_us(m, lease));
		else if (lease->pending)
		{
			if (!lease->called)
				action.until_us = earlier_of(action.until_us, lease->work_until_us);
			work_us = earlier_of(work_us, due_us(m, lease));
			if (due_us(m, lease) <= m->now_us && comes_before(lease, to_release))
				to_release = lease;
		}
	}

	if (m->asked != MANY_AWAIT)
	{
		if (m->now_us >= m->attempt_until_us)
		{
			many_failed(m, false, false, false, m->now_us);
			action.kind = MANY_DROP;
		}
		else
			action.until_us = earlier_of(action.until_us, m->attempt_until_us);
		return action;
	}

	work_us = later_of(work_us, m->pause_until_us);
	if (work_us > m->now_us)
	{
		action.until_us = earlier_of(action.until_us, work_us);
		return action;
	}

	/* a connection is given up that is silent for a quarter of the shortest ttl */
	if (least_ttl_us != KEEP_NEVER)
		limit_us = later_of(least_ttl_us / 4, 1);
	m->ncall = 0;
	if (!m->connected)
		action.kind = MANY_CONNECT;
	else if (to_release != NULL && (to_renew == NULL || m->renewed_last))
	{
		action.kind = make_release(m, leases, n, to_release);
		limit_us = earlier_of(limit_us, KEEP_RELEASE_US / 3);
	}
	else if (to_renew != NULL)
	{
		action.kind = MANY_RENEW;
		make_renewal(m, leases, n, to_renew);
	}
	m->renewed_last = action.kind == MANY_RENEW;
	m->asked = action.kind;
	m->sent_us = m->now_us;
	m->attempt_until_us = later(m->now_us, limit_us);
	for (size_t i = 0; i < m->ncall; i++)
	{
		m->call[i]->called = true;
		/* or when the first of the call would be lost */
		if (action.kind == MANY_RENEW)
			m->attempt_until_us = earlier_of(m->attempt_until_us,
											 m->call[i]->lost_at_us);
	}
	action.until_us = m->attempt_until_us;
	action.for_us = m->for_us;
	return action;
}
