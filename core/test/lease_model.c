/*
 * lease_model.c
 *	  Random requests, answered by lease_apply() and by a naive model.
 *
 * The model is written from the rules and not from lease.c.  It has no holders
 * with a version: it keeps, for each name, a plain list of single holds in the
 * order in which they were acquired.  A "lease" is the set of holds with one
 * token; every question about it is answered by walking over the list.  It
 * knows which holds are over because it moves them out of the way as soon as
 * the clock moves, whereas lease.c looks at deadlines only when it is asked.  A
 * guard is a thing of its own, like the engine's heavyweight lock, and stays
 * when the holds it was taken for are gone.
 *
 * The other side, the "table", does what an engine does: it keeps the holders
 * that lease_apply() returned.  After every step the test compares the outcome,
 * the token and all that both keep of the name, and holds the call against the
 * invariants of lease.h.
 *
 * Owners, principals and names are few and times are short, so that holders
 * often meet, and often expire while others want the name.
 *
 * With -p only that is drawn which plain/dlock.sql has, and printed with the
 * model's answers, for t/630_plain_model.pl to ask that the same.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _POSIX_C_SOURCE 200809L

#include "lease.h"
#include "lease_invariants.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAMES		3
#define OWNERS		4
#define PRINCIPALS	3
#define IDS			5			/* 0 stands for no id */
#define SESSIONS	2
#define HOLDS_MAX	200			/* of one name; more are given back first */
#define HOLDERS_MAX	64			/* of one name */
#define GUARDS_MAX	8			/* of one name */

/* A run of fewer steps need not meet every outcome. */
#define COVERAGE_OPS 500000

/*
 * Owners and ids that a careless comparison would take for one another.  There
 * are two copies of the bytes, so that comparing addresses will not do.
 */
static const char owner_bytes[2][OWNERS][4] = {
	{"a", "a\0b", "A", "a "}, {"a", "a\0b", "A", "a "}
};
static const size_t owner_length[OWNERS] = {1, 3, 1, 2};
static const char id_bytes[2][IDS][4] = {
	{"", "r", "r\0", "r\0a", "r\0b"}, {"", "r", "r\0", "r\0a", "r\0b"}
};
static const size_t id_length[IDS] = {0, 1, 2, 3, 3};

static const char *const op_name[] = {
	"acquire", "renew", "release", "drop", "drop after", "downgrade", "leave", "evict", "reap"
};
static const char *const mode_name[] = {"-", "exclusive", "shared", "permit"};
static const char *const kind_name[] = {
	"-", "plain", "session", "transaction"
};
static const char *const outcome_name[] = {
	"granted", "re-entered", "replayed", "busy", "renewed", "released",
	"will end", "downgraded", "delayed", "not yours", "not held", "upgrade",
	"mixed", "mixed kinds", "is permit", "is bound", "too many holds",
	"no tokens"
};

#define OPS			(sizeof(op_name) / sizeof(op_name[0]))
#define OUTCOMES	(sizeof(outcome_name) / sizeof(outcome_name[0]))

/* A question, in numbers that both sides can translate. */
typedef struct question
{
	lease_op	op;
	int			name;
	int			owner;			/* -1, for an eviction: all */
	int			principal;
	int			session;
	lease_mode	mode;
	lease_kind	kind;
	bool		behind;
	bool		claim;
	bool		only_repeated;
	bool		unless_repeated;
	uint32_t	limit;
	uint32_t	permits;
	uint32_t	holds;
	int			id;
	int64_t		delay_us;
	int64_t		ttl_us;
	uint64_t	token;
	uint64_t	next_token;
} question;

typedef struct reply
{
	lease_outcome outcome;
	uint64_t	token;
	int			changed;		/* leases that began, changed or ended */
	int			expired;		/* how many of them expired */
	int64_t		retry_us;		/* busy: when to come back, or INT64_MAX */
} reply;

/* The state of the world that is not a holder. */
static uint64_t seed;
static uint64_t step;
static int64_t now_us;
static int64_t delay_us;		/* as an operator has set it */
static uint64_t last_token;
static bool acts_for[PRINCIPALS][PRINCIPALS];

static bool plain;				/* -p */

static uint64_t seen[OPS][OUTCOMES];

/* Situations that the outcome alone does not show. */
static uint64_t seen_over_cleared;
static uint64_t seen_over_kept;
static uint64_t seen_acted_for;
static uint64_t seen_choice;
static uint64_t seen_shared_by_exclusive;
static uint64_t seen_replay_at_limit;
static uint64_t seen_renewed_sooner;
static uint64_t seen_limits_differ;
static uint64_t seen_everywhere;
static uint64_t seen_queue_alone;
static uint64_t seen_queue_taken_over;
static uint64_t seen_queue_passed;
static uint64_t seen_kept_by_guard;
static uint64_t seen_kept_by_pin;
static uint64_t seen_kept_by_unseen;
static uint64_t seen_own_guard;
static uint64_t seen_guarded_permits;
static uint64_t seen_shared_guard;
static uint64_t seen_own_guarded_permits;
static uint64_t seen_kept_by_delay;
static uint64_t seen_own_delay;
static uint64_t seen_shared_delay;
static uint64_t seen_delay_evicted;
static uint64_t seen_left_cleared;
static uint64_t seen_left_taken;
static uint64_t seen_lost_ended;
static uint64_t seen_lost_expired;
static uint64_t seen_taken_over;
static uint64_t seen_beside_elsewhere;
static uint64_t seen_loosened;
static uint64_t seen_leaving_again;
static uint64_t seen_leaving_ended;
static uint64_t seen_leaving_own;
static uint64_t seen_leaving_sooner;
static uint64_t seen_several_permits;
static uint64_t seen_several_too_many;
static uint64_t seen_several_holds;
static uint64_t seen_holds_too_many;
static uint64_t seen_claim_of_own;
static uint64_t seen_claim_repeated;
static uint64_t seen_repeated_kept;
static uint64_t seen_stricter_guard;
static uint64_t seen_retry_never;
static uint64_t seen_retry_delayed;
static uint64_t seen_retry_deadline;

/*
 * Chance
 */

static uint64_t random_state;

/* Draw 64 bits (splitmix64). */
static uint64_t
draw(void)
{
	uint64_t	z = (random_state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Draw a number from 0 to n - 1. */
static int
below(int n)
{
	return (int) (draw() % (uint64_t) n);
}

/* Say yes in one of n cases. */
static bool
one_in(int n)
{
	return below(n) == 0;
}

/*
 * The model
 */

typedef struct hold
{
	int			owner;
	int			principal;
	lease_mode	mode;
	lease_kind	kind;
	lease_life	life;
	int			session;		/* that took it */
	bool		repeated;		/* a repetition was answered with its lease */
	int			id;				/* of the acquire that gave this hold */
	uint64_t	token;
	int64_t		until_us;
	uint32_t	times;			/* 1; more for holds from before the test */
} hold;

typedef struct hold_list
{
	int			length;
	hold		at[HOLDS_MAX + 1];
} hold_list;

static hold_list live[NAMES];
static hold_list dead[NAMES];	/* over, and not yet cleared away */

/* A transaction under way that must be the only one to commit. */
typedef struct guard
{
	int			owner;
	int			principal;
	lease_mode	mode;
	lease_kind	kind;
	int			session;
	uint64_t	token;
	uint32_t	holds;			/* that it may count on */
} guard;

/* Both sides read this: it is the engine that knows of guards. */
static guard guards[NAMES][GUARDS_MAX];
static int	guard_count[NAMES];

/* Take entry i out of a list, keeping the order of the others. */
static void
take_out(hold_list *list, int i)
{
	list->length--;
	memmove(&list->at[i], &list->at[i + 1],
			(size_t) (list->length - i) * sizeof(hold));
}

/* Take a whole lease out of a list. */
static void
take_out_lease(hold_list *list, uint64_t token)
{
	for (int i = list->length - 1; i >= 0; i--)
		if (list->at[i].token == token)
			take_out(list, i);
}

/* Move the holds that are over out of the way. */
static void
model_sort(void)
{
	for (int name = 0; name < NAMES; name++)
	{
		hold_list  *list = &live[name];

		for (int i = 0; i < list->length;)
		{
			if (list->at[i].until_us > now_us)
			{
				i++;
				continue;
			}
			dead[name].at[dead[name].length++] = list->at[i];
			take_out(list, i);
		}
	}
}

/*
 * Let time pass: a hold is over when its deadline has come.  A hold whose
 * session or transaction exists has no deadline; the next moment stands in for
 * it.
 */
static void
model_clock(int64_t us)
{
	now_us += us;
	for (int name = 0; name < NAMES; name++)
		for (int i = 0; i < live[name].length; i++)
			if (live[name].at[i].life == LEASE_BOUND && live[name].at[i].until_us <= now_us)
				live[name].at[i].until_us = now_us + 1;
	model_sort();
}

/* Say whether an owner and principal are the asker's. */
static bool
is_asker(const question *q, int owner, int principal)
{
	return owner == q->owner &&
		(principal == q->principal || acts_for[q->principal][principal]);
}

/*
 * Say whether a hold is one of the asker's.  An asker for a session or
 * transaction has nothing to do with what other sessions or transactions of its
 * owner have.  What was given back with effect later is nobody's; only who gives
 * it back again, by its token, is told so.
 */
static bool
is_askers(const question *q, const hold *h)
{
	if (q->op == LEASE_ACQUIRE && h->life == LEASE_BOUND &&
		h->kind == q->kind && h->session != q->session)
		return false;
	if (h->life == LEASE_LEAVING &&
		(q->op != LEASE_DROP_AFTER || q->token != h->token))
		return false;
	return is_asker(q, h->owner, h->principal);
}

/* Say whether a session or transaction takes over a hold of an earlier one. */
static bool
is_taken_over(const question *q, const hold *h)
{
	return q->op == LEASE_ACQUIRE && h->life == LEASE_STRANDED &&
		h->until_us > now_us && h->kind == q->kind && is_askers(q, h);
}

/* Say whether the operator's pause goes on for a hold that is over. */
static bool
is_paused(const question *q, const hold *h)
{
	return h->life != LEASE_LEFT && h->life != LEASE_LEAVING &&
		h->until_us + q->delay_us > now_us;
}

/* Count the leases of a list. */
static int
leases_of(const hold_list *list)
{
	int			leases = 0;

	for (int i = 0; i < list->length; i++)
	{
		bool		first = true;

		for (int j = 0; j < i; j++)
			if (list->at[j].token == list->at[i].token)
				first = false;
		if (first)
			leases++;
	}
	return leases;
}

/* Count the holds, or permits, with a token; token 0 counts all. */
static uint64_t
holds_of(const hold_list *list, uint64_t token)
{
	uint64_t	holds = 0;

	for (int i = 0; i < list->length; i++)
		if (token == 0 || list->at[i].token == token)
			holds += list->at[i].times;
	return holds;
}

/* Count the entries of a lease. */
static int
holds_left(const hold_list *list, uint64_t token)
{
	int			n = 0;

	for (int i = 0; i < list->length; i++)
		n += list->at[i].token == token;
	return n;
}

/* Return the newest hold of a lease. */
static hold *
newest_of(hold_list *list, uint64_t token)
{
	for (int i = list->length - 1; i >= 0; i--)
		if (list->at[i].token == token)
			return &list->at[i];
	return NULL;
}

/* How many holds a question is about. */
static uint32_t
holds_asked(const question *q)
{
	uint32_t	n = q->op == LEASE_RELEASE ? q->holds :
		q->op == LEASE_ACQUIRE && q->mode == LEASE_PERMIT ? q->permits : 1;

	return n == 0 ? 1 : n;
}

/*
 * Return the token of the lease that a question speaks for, or 0.
 *
 * The principal's own come first, then those it may act for; of these, those of
 * the asker's session; among several, the one with the lowest token.
 */
static uint64_t
lease_meant(const question *q)
{
	uint64_t	best[4] = {0};

	for (int i = 0; i < live[q->name].length; i++)
	{
		const hold *h = &live[q->name].at[i];
		int			rank = h->principal == q->principal ? 0 : 2;

		if (!is_askers(q, h) || is_taken_over(q, h))
			continue;
		if (q->op != LEASE_ACQUIRE && q->token != 0 && q->token != h->token)
			continue;
		if (q->op == LEASE_RELEASE && q->unless_repeated && h->repeated)
		{
			seen_repeated_kept++;
			continue;
		}
		if (q->op == LEASE_LEAVE && h->kind == LEASE_PLAIN)
			continue;
		if (h->kind != LEASE_PLAIN && h->session != q->session)
			rank++;
		if (best[rank] == 0 || h->token < best[rank])
			best[rank] = h->token;
	}
	if ((best[0] != 0 || best[1] != 0) && (best[2] != 0 || best[3] != 0))
		seen_choice++;
	for (int rank = 0; rank < 4; rank++)
		if (best[rank] != 0)
		{
			if (rank >= 2)
				seen_acted_for++;
			return best[rank];
		}
	return 0;
}

/* Say whether a token's guards are what is left of another transaction's lease. */
static bool
is_unseen(const question *q, uint64_t token)
{
	for (int g = 0; g < guard_count[q->name]; g++)
		if (guards[q->name][g].token == token &&
			guards[q->name][g].kind == LEASE_TRANSACTION &&
			guards[q->name][g].session != q->session)
			return newest_of(&live[q->name], token) == NULL &&
				newest_of(&dead[q->name], token) == NULL;
	return false;
}

/*
 * Say whether a guard is the asker's own, or of one that it may act for; but not
 * of another transaction's lease, as long as that lives or its guard is left.
 */
static bool
is_askers_guard(const question *q, const guard *it)
{
	const hold *h = newest_of(&live[q->name], it->token);

	if (h != NULL)
		return is_asker(q, h->owner, h->principal) &&
			!(h->life == LEASE_BOUND && h->kind == LEASE_TRANSACTION &&
			  h->session != q->session);
	return is_asker(q, it->owner, it->principal) &&
		!(q->op == LEASE_ACQUIRE && is_unseen(q, it->token));
}

/*
 * Rules 1, 11 and 12: say whether there is room on a name for one hold more.
 *
 * Three things take up room: holds, holds that are over but paused, and guards.
 * The latter two do not keep their own owner out.  A guard and its lease count
 * as one, with the room of the larger, but a guard keeps its own mode.
 */
static bool
model_room(const question *q)
{
	const hold_list *lists[2] = {&live[q->name], &dead[q->name]};
	uint64_t	taken = 0;
	uint64_t	taken_by_holds;
	bool		room = true;
	bool		room_but_paused = true;
	bool		room_but_guarded;
	bool		passed_own_pause = false;
	bool		passed_own_guard = false;
	bool		pinned = false;
	bool		unseen = false;

	for (int k = 0; k < 2; k++)
		for (int i = 0; i < lists[k]->length; i++)
		{
			const hold *h = &lists[k]->at[i];

			if (k == 1 ? !is_paused(q, h) : is_taken_over(q, h))
				continue;
			if (k == 1 && is_askers(q, h))
			{
				passed_own_pause = true;
				continue;
			}
			taken += h->times;
			if (q->mode == LEASE_EXCLUSIVE || h->mode != q->mode)
			{
				room = false;
				if (k == 0)
					room_but_paused = false;
			}
		}
	room_but_guarded = room;
	taken_by_holds = taken;
	for (int g = 0; g < guard_count[q->name]; g++)
	{
		const guard *it = &guards[q->name][g];
		uint64_t	holds = 0;
		bool		larger = false;

		if (is_askers_guard(q, it))
		{
			passed_own_guard = true;
			continue;
		}
		/* of several guards of a lease the largest counts */
		for (int other = 0; other < guard_count[q->name]; other++)
			if (guards[q->name][other].token == it->token &&
				(guards[q->name][other].holds > it->holds ||
				 (guards[q->name][other].holds == it->holds && other < g)))
				larger = true;
		for (int k = 0; k < 2; k++)
			for (int i = 0; i < lists[k]->length; i++)
				if (lists[k]->at[i].token == it->token &&
					(k == 0 || is_paused(q, &lists[k]->at[i])))
					holds += lists[k]->at[i].times;
		if (it->holds > holds && !larger)
			taken += it->holds - holds;
		if (q->mode == LEASE_EXCLUSIVE || it->mode != q->mode)
		{
			room = false;
			if (holds > 0 && room_but_guarded)
				seen_stricter_guard++;
			if (holds == 0 && room_but_guarded)
				pinned = holds_of(&dead[q->name], it->token) == 0;
			if (is_asker(q, it->owner, it->principal) &&
				is_unseen(q, it->token))
				unseen = true;
		}
	}
	if (q->mode == LEASE_PERMIT && taken + holds_asked(q) > q->limit)
	{
		if (room && taken_by_holds + holds_asked(q) <= q->limit)
			seen_guarded_permits++;
		if (room && taken < q->limit)
			seen_several_too_many++;
		room = false;
	}

	if (!room && room_but_guarded && q->mode != LEASE_PERMIT)
	{
		seen_kept_by_guard++;
		if (pinned)
			seen_kept_by_pin++;
		if (unseen)
			seen_kept_by_unseen++;
	}
	if (!room_but_guarded && room_but_paused)
		seen_kept_by_delay++;
	if (room && passed_own_pause)
		seen_own_delay++;
	if (room && passed_own_guard)
		seen_own_guard++;
	if (room && q->mode == LEASE_SHARED && guard_count[q->name] > 0 &&
		!passed_own_guard)
		seen_shared_guard++;
	return room;
}

/*
 * Answer that a name is busy, and when time may change that: at a deadline of
 * the asker's own, or at the end of the pause after another's.
 */
static reply
model_busy(const question *q)
{
	const hold_list *lists[2] = {&live[q->name], &dead[q->name]};
	int64_t		soonest_us = -1;	/* from now */
	bool		paused = false;

	for (int k = 0; k < 2; k++)
		for (int i = 0; i < lists[k]->length; i++)
		{
			const hold *h = &lists[k]->at[i];
			bool		own = is_askers(q, h);
			int64_t		wait_us = h->until_us - now_us;

			if (h->life == LEASE_BOUND || is_taken_over(q, h) || (k == 1 && (own || !is_paused(q, h))))
				continue;
			if (!own && h->life != LEASE_LEAVING)
				wait_us += q->delay_us;
			if (h->life == LEASE_LEAVING && q->op == LEASE_ACQUIRE &&
				is_asker(q, h->owner, h->principal))
				seen_leaving_own++;
			if (soonest_us >= 0 && soonest_us <= wait_us)
				continue;
			soonest_us = wait_us;
			paused = k == 1;
		}
	if (soonest_us < 0)
		seen_retry_never++;
	else if (paused)
		seen_retry_delayed++;
	else
		seen_retry_deadline++;
	if (soonest_us < 0 || (now_us > 0 && soonest_us > INT64_MAX - now_us))
		return (reply) {LEASE_BUSY, 0, 0, 0, INT64_MAX};
	return (reply) {LEASE_BUSY, 0, 0, 0, now_us + soonest_us};
}

/* Answer with an outcome other than busy. */
static reply
answer(lease_outcome outcome, uint64_t token, int changed)
{
	return (reply) {outcome, token, changed, 0, INT64_MAX};
}

/* Acquire once more for a lease that exists already. */
static reply
model_acquire_again(const question *q, uint64_t token)
{
	hold_list  *list = &live[q->name];
	hold	   *last = newest_of(list, token);
	lease_mode	mode = last->mode;
	bool		repeated = q->id != 0 && last->id == q->id;
	bool		changed = false;
	uint32_t	n = holds_asked(q);

	if ((q->claim || q->only_repeated) && (!repeated || mode != q->mode || last->kind != q->kind))
	{
		seen_claim_of_own++;
		return model_busy(q);
	}
	if (mode == LEASE_SHARED && q->mode == LEASE_EXCLUSIVE)
		return answer(LEASE_UPGRADE, 0, 0);
	if (mode != q->mode && (mode == LEASE_PERMIT || q->mode == LEASE_PERMIT))
		return answer(LEASE_MIXED, 0, 0);
	if (last->kind != q->kind)
		return answer(LEASE_MIXED_KINDS, 0, 0);
	if (mode == LEASE_PERMIT && !repeated)
	{
		/* One more permit competes like a newcomer's. */
		if (q->behind || !model_room(q))
			return model_busy(q);
		for (int g = 0; g < guard_count[q->name]; g++)
			if (guards[q->name][g].token == token &&
				guards[q->name][g].holds >= q->limit)
				seen_own_guarded_permits++;
	}
	if (mode == LEASE_PERMIT && repeated && holds_of(list, 0) >= q->limit)
		seen_replay_at_limit++;
	if (!repeated && holds_of(list, token) + n > LEASE_VERSION_MAX)
		return answer(LEASE_TOO_MANY_HOLDS, 0, 0);
	if (mode != q->mode)
		seen_shared_by_exclusive++;
	if (q->behind)
		seen_queue_passed++;

	/* All holds of a lease end at the same time: the latest promised. */
	for (int i = 0; i < list->length; i++)
		if (list->at[i].token == token)
		{
			if (list->at[i].until_us < now_us + q->ttl_us)
			{
				list->at[i].until_us = now_us + q->ttl_us;
				changed = true;
			}
			/* it was the only acquire, as far as we can tell */
			if (repeated && !list->at[i].repeated &&
				(mode == LEASE_PERMIT || holds_of(list, token) == 1))
				changed = list->at[i].repeated = true;
		}
	if (repeated)
	{
		if (q->claim)
			seen_claim_repeated++;
		return answer(LEASE_REPLAYED, token, changed ? 1 : 0);
	}
	if (n > 1)
		seen_several_permits++;
	for (hold more = *last; n > 0; n--)
	{
		more.id = q->id;
		more.times = 1;
		more.until_us = newest_of(list, token)->until_us;
		list->at[list->length++] = more;
	}
	return answer(LEASE_REENTERED, token, 1);
}

/*
 * Clear away what is over and not paused; if the asker gets the name, also its
 * own that are paused, and what it takes over.  Returns the number of leases,
 * and in *expired, how many of them ended by time.
 */
static int
model_clear(const question *q, int *expired)
{
	hold_list  *list = &dead[q->name];
	int			before = leases_of(list);
	int			released = 0;
	int			taken_over = 0;

	for (int i = live[q->name].length - 1; i >= 0; i--)
		if (i < live[q->name].length &&
			is_taken_over(q, &live[q->name].at[i]))
		{
			take_out_lease(&live[q->name], live[q->name].at[i].token);
			seen_taken_over++;
			taken_over++;
			i = live[q->name].length;
		}

	for (int i = list->length - 1; i >= 0; i--)
	{
		const hold *h = &list->at[i];

		bool		ended = h->life == LEASE_LEFT || h->life == LEASE_LEAVING ||
			(h->life == LEASE_LOST && q->delay_us == 0);

		if (h->life == LEASE_LEFT)
			seen_left_cleared++;
		if (h->life == LEASE_LEAVING)
			seen_leaving_ended++;
		if (is_paused(q, h) && !(q->op == LEASE_ACQUIRE && is_askers(q, h)))
			continue;
		if (h->life == LEASE_LOST)
			*(ended ? &seen_lost_ended : &seen_lost_expired) += 1;
		/* once for each lease */
		released += ended && newest_of(list, h->token) == h &&
			holds_left(list, h->token) == 1;
		take_out(list, i);
	}
	if (list->length > 0 && q->op == LEASE_ACQUIRE)
		seen_shared_delay++;
	*expired = before - leases_of(list) - released;
	return before - leases_of(list) + taken_over;
}

/* Say whether an acquire takes over a lease of an earlier server: it passes the line. */
static bool
model_takes_over(const question *q)
{
	for (int i = 0; i < live[q->name].length; i++)
		if (is_taken_over(q, &live[q->name].at[i]))
			return true;
	return false;
}

static reply
model_acquire(const question *q)
{
	hold_list  *list = &live[q->name];
	uint64_t	token = lease_meant(q);
	bool		behind = q->behind && !model_takes_over(q);
	bool		room;
	int			cleared;
	reply		granted;

	if (token != 0)
		return model_acquire_again(q, token);

	room = model_room(q);
	if (room && behind)
		seen_queue_alone++;
	if (room && q->behind && !behind)
		seen_queue_taken_over++;
	if (!room || behind || q->only_repeated)
		return model_busy(q);
	if (q->next_token < 1 || q->next_token > LEASE_TOKEN_MAX)
		return answer(LEASE_NO_TOKENS, 0, 0);

	for (int i = 0; i < list->length; i++)
		if (list->at[i].life == LEASE_BOUND && list->at[i].kind == q->kind &&
			list->at[i].owner == q->owner &&
			list->at[i].principal == q->principal)
			seen_beside_elsewhere++;
	for (int i = 0; i < dead[q->name].length; i++)
		if (dead[q->name].at[i].life == LEASE_LEFT && delay_us > 0 &&
			dead[q->name].at[i].until_us + delay_us > now_us &&
			!is_asker(q, dead[q->name].at[i].owner,
					  dead[q->name].at[i].principal))
			seen_left_taken++;
	granted = answer(LEASE_GRANTED, q->next_token, 0);
	cleared = model_clear(q, &granted.expired);
	if (cleared > 0)
		seen_over_cleared++;
	granted.changed = cleared + 1;
	if (holds_asked(q) > 1)
		seen_several_permits++;
	for (uint32_t n = holds_asked(q); n > 0; n--)
		list->at[list->length++] = (hold) {
			.owner = q->owner,
			.principal = q->principal,
			.mode = q->mode,
			.kind = q->kind,
			.life = q->kind == LEASE_PLAIN ? LEASE_TIMED : LEASE_BOUND,
			.session = q->session,
			.id = q->id,
			.token = q->next_token,
			.until_us = now_us + q->ttl_us,
			.times = 1,
		};
	return granted;
}

/* Say that nothing was done, and whether the name is held. */
static reply
model_nothing_done(const question *q)
{
	if (live[q->name].length > 0)
		return answer(LEASE_NOT_YOURS, 0, 0);
	if (dead[q->name].length > 0)
		seen_over_kept++;
	return answer(LEASE_NOT_HELD, 0, 0);
}

/* A lease changed in a later server than its session's is bound to nothing. */
static void
loosen(int name, uint64_t token)
{
	for (int i = 0; i < live[name].length; i++)
		if (live[name].at[i].token == token &&
			live[name].at[i].life == LEASE_STRANDED)
		{
			live[name].at[i].life = LEASE_TIMED;
			live[name].at[i].kind = LEASE_PLAIN;
			seen_loosened++;
		}
}

static reply
model_renew(const question *q)
{
	hold_list  *list = &live[q->name];
	uint64_t	token = lease_meant(q);

	if (token == 0)
		return model_nothing_done(q);
	for (int i = 0; i < list->length; i++)
		if (list->at[i].token == token)
		{
			if (now_us + q->ttl_us < list->at[i].until_us)
				seen_renewed_sooner++;
			list->at[i].until_us = now_us + q->ttl_us;
		}
	loosen(q->name, token);
	return answer(LEASE_RENEWED, token, 1);
}

/*
 * Give back the oldest holds, or all.  The newest stays to the end because it
 * knows the id of the last acquire.
 */
static reply
model_release(const question *q)
{
	hold_list  *list = &live[q->name];
	uint64_t	token = lease_meant(q);
	uint32_t	n = holds_asked(q);

	if (token == 0)
		return model_nothing_done(q);
	if (q->op == LEASE_DROP)
	{
		take_out_lease(list, token);
		return answer(LEASE_RELEASED, token, 1);
	}
	if (n > holds_of(list, token))
	{
		seen_holds_too_many++;
		return answer(LEASE_NOT_YOURS, 0, 0);
	}
	if (n > 1)
		seen_several_holds++;
	for (int i = 0; i < list->length && n > 0;)
	{
		if (list->at[i].token != token)
			i++;
		else if (list->at[i].times > n)
		{
			list->at[i].times -= n;
			n = 0;
		}
		else
		{
			n -= list->at[i].times;
			take_out(list, i);
		}
	}
	loosen(q->name, token);
	return answer(LEASE_RELEASED, token, 1);
}

/* Give a lease back with all its holds, but only when the time has come. */
static reply
model_drop_after(const question *q)
{
	hold_list  *list = &live[q->name];
	uint64_t	token = lease_meant(q);
	int64_t		until_us = now_us + q->ttl_us;

	if (token == 0)
		return model_nothing_done(q);
	if (newest_of(list, token)->kind != LEASE_PLAIN)
		return answer(LEASE_IS_BOUND, 0, 0);
	if (newest_of(list, token)->life == LEASE_LEAVING)
	{
		seen_leaving_again++;
		return answer(LEASE_WILL_END, token, 0);
	}
	for (int i = 0; i < list->length; i++)
		if (list->at[i].token == token)
		{
			if (until_us < list->at[i].until_us)
				seen_leaving_sooner++;
			list->at[i].life = LEASE_LEAVING;
			list->at[i].until_us = until_us;
		}
	return answer(LEASE_WILL_END, token, 1);
}

static reply
model_downgrade(const question *q)
{
	hold_list  *list = &live[q->name];
	uint64_t	token = lease_meant(q);
	int			changed = 0;

	if (token == 0)
		return model_nothing_done(q);
	if (newest_of(list, token)->mode == LEASE_PERMIT)
		return answer(LEASE_IS_PERMIT, 0, 0);
	for (int i = 0; i < list->length; i++)
		if (list->at[i].token == token && list->at[i].mode == LEASE_EXCLUSIVE)
		{
			list->at[i].mode = LEASE_SHARED;
			changed = 1;
		}
	if (changed)
		loosen(q->name, token);
	return answer(LEASE_DOWNGRADED, token, changed);
}

/* A session is lost, or a transaction has ended: its lease ends too. */
static reply
model_leave(const question *q)
{
	hold_list  *list = &live[q->name];
	uint64_t	token = lease_meant(q);

	if (token == 0)
		return model_nothing_done(q);
	if (newest_of(list, token)->kind == LEASE_TRANSACTION || q->delay_us == 0)
	{
		take_out_lease(list, token);
		return answer(LEASE_RELEASED, token, 1);
	}
	for (int i = 0; i < list->length; i++)
		if (list->at[i].token == token)
		{
			list->at[i].kind = LEASE_PLAIN;
			list->at[i].life = LEASE_TIMED;
			list->at[i].until_us = now_us;
		}
	model_sort();
	return answer(LEASE_DELAYED, token, 1);
}

/* Evict what is live, and what is paused, which cuts the pause short. */
static reply
model_evict(const question *q)
{
	hold_list  *lists[2] = {&live[q->name], &dead[q->name]};
	bool		paused = false;
	int			evicted = 0;

	for (int k = 0; k < 2; k++)
	{
		int			before = leases_of(lists[k]);

		for (int i = lists[k]->length - 1; i >= 0; i--)
		{
			const hold *h = &lists[k]->at[i];

			if (k == 1 && !is_paused(q, h))
				continue;
			if (q->owner < 0 || h->owner == q->owner)
				take_out(lists[k], i);
			else if (k == 1)
				paused = true;
		}
		evicted += before - leases_of(lists[k]);
		if (k == 1 && before > leases_of(lists[k]))
			seen_delay_evicted++;
	}
	if (evicted > 0)
		return answer(LEASE_RELEASED, 0, evicted);
	return paused ? answer(LEASE_NOT_YOURS, 0, 0) : model_nothing_done(q);
}

static reply
model_reap(const question *q)
{
	int			expired;
	int			reaped = model_clear(q, &expired);
	reply		r = answer(reaped == 0 ? LEASE_NOT_HELD : LEASE_RELEASED, 0, reaped);

	r.expired = expired;
	return r;
}

static reply
model_apply(const question *q)
{
	switch (q->op)
	{
		case LEASE_ACQUIRE:
			return model_acquire(q);
		case LEASE_RENEW:
			return model_renew(q);
		case LEASE_RELEASE:
		case LEASE_DROP:
			return model_release(q);
		case LEASE_DROP_AFTER:
			return model_drop_after(q);
		case LEASE_DOWNGRADE:
			return model_downgrade(q);
		case LEASE_LEAVE:
			return model_leave(q);
		case LEASE_EVICT:
			return model_evict(q);
		case LEASE_REAP:
			return model_reap(q);
	}
	abort();
}

/*
 * The table: what an engine would store
 */

typedef struct row
{
	lease_holder holder;
	int			principal;
	int			session;
} row;

static row	table[NAMES][HOLDERS_MAX + 1];
static int	rows[NAMES];
static int	table_expired;		/* by the last table_apply() */

/* Print a question and both sides of its name, and give up. */
static void
fail(const question *q, const char *what)
{
	printf("FAILED at step %" PRIu64 ": %s\n"
		   "  replay with: lease_model -s %" PRIu64 " -n %" PRIu64 "\n",
		   step, what, seed, step);
	printf("  %s name %d owner %d principal %d session %d mode %s kind %s%s%s%s"
		   " limit %" PRIu32 " permits %" PRIu32 " holds %" PRIu32 " id %d ttl %" PRId64 " delay %" PRId64 " token %" PRIu64
		   " next %" PRIu64 " at %" PRId64 "\n",
		   op_name[q->op], q->name, q->owner, q->principal, q->session,
		   mode_name[q->mode], kind_name[q->kind], q->behind ? " behind" : "",
		   q->only_repeated ? " again" : q->claim ? " claim" : "",
		   q->unless_repeated ? " unless repeated" : "",
		   q->limit, q->permits, q->holds, q->id, q->ttl_us, q->delay_us, q->token, q->next_token,
		   now_us);
	for (int i = 0; i < rows[q->name]; i++)
	{
		const row  *r = &table[q->name][i];

		printf("  table: owner '%.*s' (%zu) principal %d %s version %" PRIu32
			   " token %" PRIu64 " until %" PRId64
			   " id length %zu %s life %d\n",
			   (int) r->holder.owner.length, r->holder.owner.data,
			   r->holder.owner.length, r->principal,
			   mode_name[r->holder.mode], r->holder.version,
			   r->holder.token, r->holder.deadline_us,
			   r->holder.request.length, kind_name[r->holder.kind],
			   (int) r->holder.life);
	}
	for (int pass = 0; pass < 2; pass++)
	{
		const hold_list *list = pass == 0 ? &live[q->name] : &dead[q->name];

		for (int i = 0; i < list->length; i++)
			printf("  model, %s: owner %d principal %d %s times %" PRIu32
				   " token %" PRIu64 " until %" PRId64 " id %d %s life %d session %d%s\n",
				   pass == 0 ? "live" : "over", list->at[i].owner,
				   list->at[i].principal, mode_name[list->at[i].mode],
				   list->at[i].times, list->at[i].token,
				   list->at[i].until_us, list->at[i].id,
				   kind_name[list->at[i].kind],
				   (int) list->at[i].life, list->at[i].session,
				   list->at[i].repeated ? " repeated" : "");
	}
	for (int g = 0; g < guard_count[q->name]; g++)
		printf("  guard: owner %d principal %d %s token %" PRIu64
			   " holds %" PRIu32 "\n", guards[q->name][g].owner,
			   guards[q->name][g].principal,
			   mode_name[guards[q->name][g].mode],
			   guards[q->name][g].token, guards[q->name][g].holds);
	exit(1);
}

static lease_standing
standing_of(int principal, int to)
{
	if (principal == to)
		return LEASE_SELF;
	return acts_for[principal][to] ? LEASE_ACTS_FOR : LEASE_STRANGER;
}

/* Translate a question into a request. */
static lease_request
request_of(const question *q)
{
	int			copy = below(2);
	lease_request request = {
		.op = q->op,
		.mode = q->mode,
		.kind = q->kind,
		.behind = q->behind,
		.claim = q->claim,
		.only_repeated = q->only_repeated,
		.unless_repeated = q->unless_repeated,
		.limit = q->limit,
		.permits = q->permits,
		.holds = q->holds,
		.delay_us = q->delay_us,
		.ttl_us = q->ttl_us,
		.token = q->token,
		.next_token = q->next_token,
		.request = {id_bytes[copy][q->id], id_length[q->id]},
	};

	if (q->owner >= 0)
		request.owner = (lease_bytes) {
			owner_bytes[copy][q->owner], owner_length[q->owner]
		};
	return request;
}

/*
 * Put the rows of a name in a new order, as the caller may pass any.  One swap
 * a step is a shuffle over many steps.
 */
static void
stir(int name)
{
	if (rows[name] > 1)
	{
		int			i = below(rows[name]);
		int			j = below(rows[name]);
		row			moved = table[name][i];

		table[name][i] = table[name][j];
		table[name][j] = moved;
	}
}

/* Find the row with a token; NULL if there is none. */
static row *
row_of(int name, uint64_t token)
{
	for (int i = 0; i < rows[name]; i++)
		if (table[name][i].holder.token == token)
			return &table[name][i];
	return NULL;
}

/* Tell a holder of the guards with its token. */
static void
add_guards(int name, lease_holder *holder)
{
	holder->guarded = 0;
	holder->guard_mode = LEASE_EXCLUSIVE;	/* without effect */
	for (int g = 0; g < guard_count[name]; g++)
		if (guards[name][g].token == holder->token)
			lease_merge_guard(holder, guards[name][g].mode,
							  guards[name][g].holds);
}

/* Make the holder that stands for guards whose row is gone. */
static lease_holder
pinned_holder(const question *q, const guard *it)
{
	lease_holder holder = {
		.owner = {owner_bytes[0][it->owner], owner_length[it->owner]},
		.mode = it->mode,
		.kind = is_unseen(q, it->token) ? LEASE_TRANSACTION : it->kind,
		.life = LEASE_PINNED,
		.standing = standing_of(q->principal, it->principal),
		/* without effect on other kinds, whatever an engine fills in */
		.elsewhere = is_unseen(q, it->token) ||
			(it->kind != LEASE_TRANSACTION && one_in(2)),
		.version = (uint32_t) below(4),
		.token = it->token,
		.deadline_us = one_in(2) ? now_us : INT64_MIN,
	};

	add_guards(q->name, &holder);
	return holder;
}

/* Say whether an earlier guard has the token of another. */
static bool
is_second_guard(int name, int g)
{
	for (int i = 0; i < g; i++)
		if (guards[name][i].token == guards[name][g].token)
			return true;
	return false;
}

/*
 * Apply a request to some rows, check the call, and drop what has ended.
 * If the request is about the whole name, guards without a row are passed too,
 * somewhere among the rows.
 */
static lease_result
table_apply(const question *q, const lease_request *request, int from, int n,
			bool whole)
{
	lease_holder before[HOLDERS_MAX + GUARDS_MAX + 1];
	int			row_at[HOLDERS_MAX + GUARDS_MAX + 1] = {0};	/* -1: none */
	lease_holder *holders;
	lease_result result;
	const char *fault;
	row		   *r = &table[q->name][from];
	row			moved[HOLDERS_MAX + 1];
	int			kept = 0;
	int			count = 0;

	for (int i = 0; i < n; i++)
	{
		before[count] = r[i].holder;
		before[count].standing = standing_of(q->principal, r[i].principal);
		before[count].elsewhere = r[i].holder.kind != LEASE_PLAIN &&
			r[i].session != q->session;
		add_guards(q->name, &before[count]);
		row_at[count++] = i;
	}
	for (int g = 0; whole && g < guard_count[q->name]; g++)
		if (row_of(q->name, guards[q->name][g].token) == NULL &&
			!is_second_guard(q->name, g))
		{
			int			at = below(count + 1);

			memmove(&before[at + 1], &before[at],
					sizeof(lease_holder) * (size_t) (count - at));
			memmove(&row_at[at + 1], &row_at[at],
					sizeof(int) * (size_t) (count - at));
			before[at] = pinned_holder(q, &guards[q->name][g]);
			row_at[at] = -1;
			count++;
		}

	/* Of exactly the promised size, so that the sanitizer knows its end. */
	holders = calloc((size_t) count + 1, sizeof(lease_holder));
	if (holders == NULL)
		abort();
	memcpy(holders, before, sizeof(lease_holder) * (size_t) count);
	result = lease_apply(request, holders, (size_t) count, now_us);
	fault = lease_step_fault(request, before, (size_t) count, holders, &result,
							 now_us);
	if (fault != NULL)
		fail(q, fault);

	if (result.outcome == LEASE_GRANTED)
	{
		if (rows[q->name] >= HOLDERS_MAX)
			fail(q, "more holders than there can be");
		r[n].principal = q->principal;
		r[n].session = q->session;
		row_at[count] = n;
		rows[q->name]++;
		n++;
	}
	table_expired = 0;
	for (int i = 0; i < (int) result.count; i++)
		table_expired += holders[i].change == LEASE_EXPIRED;
	for (int i = 0; i < (int) result.count; i++)
		if (row_at[i] >= 0 && change_keeps(holders[i].change))
		{
			moved[kept] = r[row_at[i]];
			moved[kept++].holder = holders[i];
		}
	memcpy(r, moved, sizeof(row) * (size_t) kept);
	memmove(&r[kept], &r[n],
			sizeof(row) * (size_t) (rows[q->name] - from - n));
	rows[q->name] -= n - kept;
	free(holders);
	return result;
}

/* Compare one row with the holds that the model has of it. */
static const char *
row_fault(const row *r, hold_list *list)
{
	const hold *last = newest_of(list, r->holder.token);
	lease_bytes owner;
	lease_bytes id;

	if (last == NULL)
		return "a row that the model has not, or not in this state";
	owner = (lease_bytes) {
		owner_bytes[0][last->owner], owner_length[last->owner]
	};
	id = (lease_bytes) {id_bytes[0][last->id], id_length[last->id]};
	if (!bytes_equal(r->holder.owner, owner) ||
		r->principal != last->principal)
		return "the holder differs";
	if (!bytes_equal(r->holder.request, id))
		return "the request id differs";
	if (r->holder.mode != last->mode)
		return "the mode differs";
	if (r->holder.kind != last->kind)
		return "the kind differs";
	if (r->holder.life != last->life)
		return "the life differs";
	if (r->holder.repeated != last->repeated)
		return "that it was repeated differs";
	if (r->holder.deadline_us != last->until_us)
		return "the deadline differs";
	if (r->holder.version != holds_of(list, last->token))
		return "the number of holds differs";
	return NULL;
}

/* Compare all that both sides keep of a name. */
static void
compare(const question *q)
{
	hold_list  *lists[2] = {&dead[q->name], &live[q->name]};
	int			found[2] = {0, 0};

	for (int i = 0; i < rows[q->name]; i++)
	{
		const row  *r = &table[q->name][i];
		int			is_live = r->holder.deadline_us > now_us ? 1 : 0;
		const char *fault = row_fault(r, lists[is_live]);

		if (fault != NULL)
			fail(q, fault);
		found[is_live]++;
	}
	if (found[1] != leases_of(&live[q->name]))
		fail(q, "a live lease is missing from the table");
	if (found[0] != leases_of(&dead[q->name]))
		fail(q, "an expired row is missing from the table");
}

/*
 * The test
 */

/* Forget everything and choose another world. */
static void
begin_world(void)
{
	static const uint64_t tokens[] = {0, 1000, LEASE_TOKEN_MAX - 300};
	static const int64_t times[] = {
		0, -100, INT64_C(1) << 40, INT64_MIN,
		INT64_MAX - LEASE_TTL_MAX_US - 1000000,
	};

	for (int name = 0; name < NAMES; name++)
		rows[name] = live[name].length = dead[name].length =
			guard_count[name] = 0;
	for (int a = 0; a < PRINCIPALS; a++)
		for (int b = 0; b < PRINCIPALS; b++)
			acts_for[a][b] = one_in(2);
	last_token = tokens[below(plain ? 2 : 3)];
	now_us = times[below(5)];
	delay_us = 0;
	if (plain)
	{
		/* memberships of roles: without a circle, and through one another */
		for (int a = 0; a < PRINCIPALS; a++)
			for (int b = a; b < PRINCIPALS; b++)
				acts_for[a][b] = false;
		acts_for[2][0] |= acts_for[2][1] && acts_for[1][0];
		printf("world %d %d %d\n", acts_for[1][0], acts_for[2][0], acts_for[2][1]);
	}
}

/* Set the lock delay, as an operator may at any time. */
static void
change_delay(void)
{
	static const int64_t delays[] = {0, 0, 3, 10, 30};

	delay_us = one_in(20) ? LEASE_TTL_MAX_US - below(2) : delays[below(5)];
}

/* Let the clock go on for both sides. */
static void
pass_time(int64_t us)
{
	model_clock(us);
	for (int name = 0; name < NAMES; name++)
		for (int i = 0; i < rows[name]; i++)
		{
			lease_holder *h = &table[name][i].holder;

			if (h->life == LEASE_BOUND && h->deadline_us <= now_us)
				h->deadline_us = now_us + 1;
		}
}

/*
 * End what a lease is bound to, or the server with it: then the lease is over
 * after a while.
 */
static void
unbind(int name)
{
	hold_list  *list = &live[name];
	lease_bond	bond = LEASE_BOND_BEFORE;
	int64_t		ttl_us = 1 + below(8);
	uint64_t	token;
	lease_holder *holder;

	if (list->length == 0 || list->at[0].life != LEASE_BOUND)
		return;
	token = list->at[0].token;
	holder = &row_of(name, token)->holder;
	if (one_in(2))
		bond = holder->kind == LEASE_SESSION && !one_in(3) ? LEASE_BOND_LOST :
			LEASE_BOND_ENDED;
	lease_judge(holder, bond, ttl_us, now_us, now_us);
	for (int i = 0; i < list->length; i++)
		if (list->at[i].token == token)
		{
			hold	   *h = &list->at[i];

			h->life = bond == LEASE_BOND_BEFORE ? LEASE_STRANDED :
				bond == LEASE_BOND_ENDED ? LEASE_LEFT : LEASE_LOST;
			h->until_us = now_us + (bond == LEASE_BOND_BEFORE ? ttl_us : 0);
		}
	model_sort();
}

/* Guard a lease with all its holds, as its holder may; or let a guard go. */
static void
change_guards(int name)
{
	int			n = guard_count[name];
	const hold *h;

	if (n > 0 && one_in(2))
	{
		int			g = below(n);

		if (plain)
			printf("unguard %d %d\n", name, g);
		guards[name][g] = guards[name][n - 1];
		guard_count[name]--;
		return;
	}
	if (live[name].length == 0)
		return;
	h = &live[name].at[below(live[name].length)];
	if (h->life == LEASE_LEAVING)
		return;
	/* there a guard counts with the permits that its lease still has */
	if (plain && h->mode == LEASE_PERMIT)
		return;
	/* A guard of so many holds would keep a semaphore full as long as it lasts. */
	if (n == GUARDS_MAX || holds_of(&live[name], h->token) > HOLDS_MAX)
		return;
	guards[name][guard_count[name]++] = (guard) {
		.owner = h->owner,
		.principal = h->principal,
		.mode = h->mode,
		.kind = h->kind,
		.session = h->session,
		.token = h->token,
		.holds = (uint32_t) holds_of(&live[name], h->token),
	};
	if (plain)
		printf("guard %d %d %d %" PRIu64 "\n", name, h->owner, h->principal, h->token);
}

/* Give a free name to a holder that has almost too many holds already. */
static void
place_bundle(int name)
{
	hold		h = {0};
	row		   *r = &table[name][rows[name]];

	h.owner = below(OWNERS);
	h.principal = below(PRINCIPALS);
	h.mode = (lease_mode) (LEASE_MODE_FIRST + below(3));
	h.kind = (lease_kind) (LEASE_KIND_FIRST + below(3));
	h.life = h.kind == LEASE_PLAIN ? LEASE_TIMED : LEASE_BOUND;
	h.session = below(SESSIONS);
	h.repeated = one_in(2);
	h.id = below(IDS);
	h.token = last_token + 1;
	h.until_us = now_us + 1 + below(200);
	h.times = LEASE_VERSION_MAX - (uint32_t) below(3);
	if (live[name].length > 0 || guard_count[name] > 0 ||
		dead[name].length >= HOLDS_MAX / 2 ||
		rows[name] >= HOLDERS_MAX / 2 || h.token > LEASE_TOKEN_MAX)
		return;
	last_token = h.token;
	live[name].at[live[name].length++] = h;
	rows[name]++;
	r->principal = h.principal;
	r->session = h.session;
	r->holder = (lease_holder) {
		.owner = {owner_bytes[0][h.owner], owner_length[h.owner]},
		.request = {id_bytes[0][h.id], id_length[h.id]},
		.mode = h.mode,
		.kind = h.kind,
		.life = h.life,
		.repeated = h.repeated,
		.version = h.times,
		.token = h.token,
		.deadline_us = h.until_us,
	};
}

/*
 * Grant or revoke a privilege.  Only this way does a principal get a holder of
 * its own that is younger than one it may act for.
 */
static void
change_privileges(void)
{
	bool	   *may = &acts_for[below(PRINCIPALS)][0];

	may += below(PRINCIPALS);
	*may = !*may;
}

/* Choose a token to mention: none, one of the name, or a wrong one. */
static uint64_t
choose_token(int name)
{
	switch (below(4))
	{
		case 0:
			if (live[name].length > 0)
				return live[name].at[below(live[name].length)].token;
			break;
		case 1:
			if (dead[name].length > 0)
				return dead[name].at[below(dead[name].length)].token;
			break;
		case 2:
			return last_token + 2 - (uint64_t) below(4);
	}
	return 0;
}

static lease_op
choose_op(void)
{
	int			n = below(100);

	if (n < 52)
		return LEASE_ACQUIRE;
	if (n < 56)
		return LEASE_DROP_AFTER;
	if (n < 66)
		return LEASE_RENEW;
	if (n < 80)
		return LEASE_RELEASE;
	if (n < 85)
		return LEASE_DROP;
	if (n < 90)
		return LEASE_DOWNGRADE;
	if (n < 93)
		return LEASE_LEAVE;
	if (n < 96)
		return LEASE_EVICT;
	return LEASE_REAP;
}

/*
 * Choose what to ask.  Fields that the operation does not read are filled in
 * all the same, except that an acquire mentions no token.
 */
static question
choose_question(void)
{
	static const uint64_t no_tokens[] = {0, LEASE_TOKEN_MAX + 1, UINT64_MAX};
	question	q = {0};

	/* One by one: within an initializer, compilers may draw in any order. */
	q.op = choose_op();
	q.name = below(NAMES);
	q.owner = below(OWNERS);
	q.principal = below(PRINCIPALS);
	q.mode = (lease_mode) (LEASE_MODE_FIRST + below(3));
	q.kind = one_in(2) ? LEASE_PLAIN :
		(lease_kind) (LEASE_KIND_FIRST + below(3));
	q.session = below(SESSIONS);
	q.behind = one_in(10);
	q.claim = one_in(10);
	q.only_repeated = one_in(20);
	q.unless_repeated = one_in(8);
	q.permits = one_in(3) ? (uint32_t) below(5) : 0;
	q.holds = one_in(3) ? (uint32_t) below(4) : 0;
	q.delay_us = delay_us;
	q.limit = one_in(8) ? LEASE_VERSION_MAX : 1 + (uint32_t) below(5);
	q.id = one_in(2) ? 0 : below(IDS);
	q.ttl_us = one_in(500) ? LEASE_TTL_MAX_US : 1 + below(20);
	q.next_token = last_token + 1 + (uint64_t) (one_in(4) ? below(3) : 0);

	/*
	 * Mostly use the mode in use, else everything would be busy.  Often be a
	 * holder that exists already, now and then with its last id.
	 */
	if (live[q.name].length > 0)
	{
		const hold *h = &live[q.name].at[below(live[q.name].length)];

		if (!one_in(4))
			q.mode = h->mode;
		if (!one_in(6))
			q.kind = h->kind;
		if (one_in(2))
			q.owner = h->owner;
		if (one_in(2))
			q.principal = h->principal;
		if (one_in(3))
			q.id = newest_of(&live[q.name], h->token)->id;
	}
	/* Or be an earlier holder, which guards and delays do not keep out. */
	else if (guard_count[q.name] > 0 && one_in(2))
	{
		const guard *it = &guards[q.name][below(guard_count[q.name])];

		if (one_in(2))
			q.mode = it->mode;
		q.owner = it->owner;
		q.principal = it->principal;
	}
	else if (dead[q.name].length > 0 && one_in(2))
	{
		const hold *h = &dead[q.name].at[below(dead[q.name].length)];

		q.mode = h->mode;
		if (one_in(2))
			q.owner = h->owner;
		if (one_in(2))
			q.principal = h->principal;
	}
	if (dead[q.name].length + live[q.name].length >= HOLDS_MAX - 5 ||
		rows[q.name] >= HOLDERS_MAX - 1)
		q.op = one_in(2) ? LEASE_EVICT : LEASE_REAP;
	if (q.op == LEASE_EVICT && one_in(3))
		q.owner = -1;
	if (q.op != LEASE_ACQUIRE)
		q.token = choose_token(q.name);
	if (one_in(300))
		q.next_token = no_tokens[below(3)];
	if (plain)
	{
		q.kind = LEASE_PLAIN;
		q.behind = q.claim = q.only_repeated = q.unless_repeated = false;
		q.next_token = last_token + 1;
		q.ttl_us = 1 + below(20);
		if (q.permits > q.limit)
			q.permits = q.limit;
	}
	return q;
}

/* Say whether plain/dlock.sql has an operation. */
static bool
is_plain(lease_op op)
{
	return op == LEASE_ACQUIRE || op == LEASE_RENEW || op == LEASE_RELEASE ||
		op == LEASE_DROP_AFTER || op == LEASE_EVICT;
}

/* Print a question, its answer, and what is live of the name after it. */
static void
print_step(const question *q, const reply *expected)
{
	hold_list  *list = &live[q->name];

	printf("ask %s|%d|%d|%d|%s|%u|%u|%u|%d|%" PRId64 "|%" PRIu64 "|%s|%" PRIu64 "|%d\n",
		   op_name[q->op], q->name, q->owner, q->principal, mode_name[q->mode],
		   q->limit, holds_asked(q), q->holds == 0 ? 1 : q->holds, q->id,
		   q->ttl_us, q->token, outcome_name[expected->outcome],
		   expected->token, expected->changed);
	for (int i = 0; i < list->length; i++)
		if (newest_of(list, list->at[i].token) == &list->at[i])
			printf("live %" PRIu64 "|%d|%d|%s|%" PRIu64 "|%" PRId64 "|%d|%d\n",
				   list->at[i].token, list->at[i].owner, list->at[i].principal,
				   mode_name[list->at[i].mode],
				   holds_of(list, list->at[i].token),
				   list->at[i].until_us - now_us, list->at[i].id,
				   list->at[i].life == LEASE_LEAVING);
	printf("end\n");
}

/* Ask both sides one question about one name. */
static void
ask(const question *q)
{
	lease_request request = request_of(q);
	uint64_t	permits = holds_of(&live[q->name], 0);
	lease_result result;
	reply		expected;

	stir(q->name);
	result = table_apply(q, &request, 0, rows[q->name], true);
	expected = model_apply(q);
	if (result.outcome != expected.outcome)
	{
		printf("outcome: %s, by the model: %s\n",
			   outcome_name[result.outcome], outcome_name[expected.outcome]);
		fail(q, "the outcome differs");
	}
	if (result.token != expected.token)
		fail(q, "the token differs");
	if (result.retry_us != expected.retry_us)
	{
		printf("retry: %" PRId64 ", by the model: %" PRId64 "\n",
			   result.retry_us, expected.retry_us);
		fail(q, "the time to come back differs");
	}
	if ((int) result.changed != expected.changed)
		fail(q, "the number of changes differs");
	if (table_expired != expected.expired)
		fail(q, "the number of leases that expired differs");
	compare(q);
	if (plain)
		print_step(q, &expected);

	if (result.outcome == LEASE_GRANTED)
	{
		if (result.token <= last_token)
			fail(q, "invariant 4: tokens do not grow");
		last_token = result.token;
	}
	if (q->op == LEASE_ACQUIRE && q->mode == LEASE_PERMIT &&
		result.outcome == LEASE_BUSY && live[q->name].length > 0 &&
		live[q->name].at[0].mode == LEASE_PERMIT && permits > q->limit)
		seen_limits_differ++;
	seen[q->op][result.outcome]++;
}

/*
 * Do what concerns many names (renew all, release all, reap) as lease.h allows:
 * pass each holder alone.  Ask the model about one lease after the other.
 */
static void
ask_everywhere(question q)
{
	int			changed = 0;
	int			expected = 0;

	q.token = 0;
	for (q.name = 0; q.name < NAMES; q.name++)
	{
		lease_request request = request_of(&q);
		uint64_t	tokens[HOLDS_MAX] = {0};
		int			n = 0;

		for (int i = 0; i < rows[q.name];)
		{
			int			before = rows[q.name];

			changed += (int) table_apply(&q, &request, i, 1,
										 false).changed;
			if (rows[q.name] == before)
				i++;
		}

		if (q.op == LEASE_REAP)
			expected += model_apply(&q).changed;
		else
		{
			for (int i = 0; i < live[q.name].length; i++)
				tokens[n++] = live[q.name].at[i].token;
			for (int i = 0; i < n; i++)
			{
				question	one = q;

				one.token = tokens[i];
				for (int j = 0; j < i; j++)
					if (tokens[j] == tokens[i])
						one.token = 0;
				if (one.token != 0)
					expected += model_apply(&one).changed;
			}
		}
		compare(&q);
	}
	q.name = 0;
	if (changed != expected)
		fail(&q, "the number of leases concerned differs");
	if (changed > 1)
		seen_everywhere++;
}

/* Print how often everything happened, and say whether all of it did. */
static bool
report_coverage(void)
{
	const struct
	{
		const char *what;
		uint64_t	times;
	}			situations[] = {
		{"grants that cleared away expired rows", seen_over_cleared},
		{"answers that passed over expired rows", seen_over_kept},
		{"requests that acted for another principal", seen_acted_for},
		{"requests that had an own and another's to choose", seen_choice},
		{"shared acquires by the exclusive holder", seen_shared_by_exclusive},
		{"repeated permits without room", seen_replay_at_limit},
		{"renewals to a sooner deadline", seen_renewed_sooner},
		{"permits refused below what others had taken", seen_limits_differ},
		{"walks that changed several leases, one by one", seen_everywhere},
		{"refusals for the queue alone", seen_queue_alone},
		{"leases taken over before the queue", seen_queue_taken_over},
		{"re-entries and repetitions that passed a queue", seen_queue_passed},
		{"refusals for a guard alone", seen_kept_by_guard},
		{"refusals for a guard without a row", seen_kept_by_pin},
		{"refusals for the owner's other transaction, not seen to have ended",
		seen_kept_by_unseen},
		{"permits refused for guarded ones", seen_guarded_permits},
		{"grants past the requester's own guard", seen_own_guard},
		{"more permits below the own guard's number", seen_own_guarded_permits},
		{"shared grants past another's guard", seen_shared_guard},
		{"refusals for the lock delay alone", seen_kept_by_delay},
		{"grants past the requester's own lock delay", seen_own_delay},
		{"grants that left others' rows to the lock delay", seen_shared_delay},
		{"evictions that cut the lock delay short", seen_delay_evicted},
		{"rows of ended transactions cleared away", seen_left_cleared},
		{"rows of lost sessions that count as ended", seen_lost_ended},
		{"rows of lost sessions that count as expired", seen_lost_expired},
		{"grants that took over what a restart had stranded", seen_taken_over},
		{"grants beside another session's of the same owner",
		seen_beside_elsewhere},
		{"stranded leases that became plain ones", seen_loosened},
		{"leases given back later, again", seen_leaving_again},
		{"leases given back later that ended", seen_leaving_ended},
		{"former owners kept out until then", seen_leaving_own},
		{"leases given back later that end sooner than before",
		seen_leaving_sooner},
		{"several permits at once", seen_several_permits},
		{"refusals of several permits where one would do",
		seen_several_too_many},
		{"several holds given back", seen_several_holds},
		{"more holds to give back than there are", seen_holds_too_many},
		{"claims of what the holder has", seen_claim_of_own},
		{"claims that were repeated", seen_claim_repeated},
		{"leases not given back because they were repeated", seen_repeated_kept},
		{"guards stricter than their downgraded leases", seen_stricter_guard},
		{"grants over another's ended transaction, with a delay",
		seen_left_taken},
		{"refusals that only an event can end", seen_retry_never},
		{"refusals that a lock delay ends", seen_retry_delayed},
		{"refusals that a deadline ends", seen_retry_deadline},
	};
	bool		complete = true;

	printf("%-16s", "outcome");
	for (size_t op = 0; op < OPS; op++)
		printf("%11s", op_name[op]);
	printf("%12s\n", "all");
	for (size_t outcome = 0; outcome < OUTCOMES; outcome++)
	{
		uint64_t	all = 0;

		printf("%-16s", outcome_name[outcome]);
		for (size_t op = 0; op < OPS; op++)
		{
			bool		can = outcome_fits_op((lease_op) op,
											  (lease_outcome) outcome);

			all += seen[op][outcome];
			if (can)
				printf("%11" PRIu64, seen[op][outcome]);
			else
				printf("%11s", "");
			if (can && seen[op][outcome] == 0)
				complete = false;
		}
		printf("%12" PRIu64 "\n", all);
	}
	for (size_t i = 0; i < sizeof(situations) / sizeof(situations[0]); i++)
	{
		printf("%12" PRIu64 " %s\n", situations[i].times, situations[i].what);
		if (situations[i].times == 0)
			complete = false;
	}
	return complete;
}

int
main(int argc, char **argv)
{
	/* twice as many as meet everything, with another seed each time */
	uint64_t	steps = 1000000;
	int			option;

	seed = (uint64_t) time(NULL) * 1000003 + (uint64_t) getpid();
	while ((option = getopt(argc, argv, "ps:n:")) != -1)
		switch (option)
		{
			case 'p':
				plain = true;
				break;
			case 's':
				seed = strtoull(optarg, NULL, 0);
				break;
			case 'n':
				steps = strtoull(optarg, NULL, 0);
				break;
			default:
				fprintf(stderr, "usage: lease_model [-p] [-s SEED] [-n OPS]\n");
				return 2;
		}
	printf("lease_model -s %" PRIu64 " -n %" PRIu64 "\n", seed, steps);
	fflush(stdout);

	random_state = seed;
	begin_world();
	for (step = 1; step <= steps; step++)
	{
		question	q;

		if (one_in(last_token >= LEASE_TOKEN_MAX ? 50 : plain ? 500 : 5000))
			begin_world();
		if (one_in(4))
		{
			int			us = one_in(20) ? below(60) : below(5);

			if (plain)
				printf("time %d\n", us);
			pass_time(us);
		}
		if (one_in(10))
			change_guards(below(NAMES));
		if (plain)
		{
			do
				q = choose_question();
			while (!is_plain(q.op));
			ask(&q);
			continue;
		}
		if (one_in(100))
			change_delay();
		if (one_in(15))
			unbind(below(NAMES));
		if (one_in(200))
			place_bundle(below(NAMES));
		if (one_in(100))
			change_privileges();
		q = choose_question();
		if ((q.op == LEASE_RENEW || q.op == LEASE_DROP ||
			 q.op == LEASE_REAP) && one_in(12))
			ask_everywhere(q);
		else
			ask(&q);
	}

	if (!plain && !report_coverage() && steps >= COVERAGE_OPS)
	{
		printf("FAILED: something in the table above never happened\n");
		return 1;
	}
	printf("%" PRIu64 " steps, table and model agree\n", steps);
	return 0;
}
