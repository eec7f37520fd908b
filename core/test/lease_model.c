/*
 * lease_model.c
 *	  Random requests, answered by lease_apply() and by a naive model.
 *
 * The model is written from the rules and not from lease.c.  It has no holders
 * with a version: it keeps, for each name, a plain list of single holds in the
 * order in which they were acquired.  A "lease" is the set of holds with one
 * token; whatever is asked of it is found by walking over the list.  It knows
 * which holds are over because it moves them out of the way as soon as the
 * clock moves, whereas lease.c looks at deadlines only when it is asked.
 *
 * The other side, the "table", does what an engine does: it keeps the holders
 * that lease_apply() returned.  After every step the outcome, the token and
 * all that is kept of the name are compared, and the call itself is held
 * against the invariants of lease.h.
 *
 * Owners, principals and names are few and times are short, so that holders
 * meet, and expire while they are wanted, all the time.
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
#define HOLDS_MAX	200			/* of one name; more are given back first */
#define HOLDERS_MAX	64			/* of one name */

/* Fewer steps than this need not have met every outcome. */
#define COVERAGE_OPS 200000

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
	"acquire", "renew", "release", "drop", "evict", "reap"
};
static const char *const mode_name[] = {"-", "exclusive", "shared", "permit"};
static const char *const outcome_name[] = {
	"granted", "re-entered", "replayed", "busy", "renewed", "released",
	"not yours", "not held", "upgrade", "mixed", "too many holds",
	"no tokens"
};

#define OPS			(sizeof(op_name) / sizeof(op_name[0]))
#define OUTCOMES	(sizeof(outcome_name) / sizeof(outcome_name[0]))

/* What is asked, in the numbers that both sides can translate. */
typedef struct question
{
	lease_op	op;
	int			name;
	int			owner;			/* -1, for an eviction: all */
	int			principal;
	lease_mode	mode;
	uint32_t	limit;
	int			id;
	int64_t		ttl_us;
	uint64_t	token;
	uint64_t	next_token;
} question;

typedef struct reply
{
	lease_outcome outcome;
	uint64_t	token;
	int			changed;		/* leases that began, changed or ended */
} reply;

/* The state of the world that is not a holder. */
static uint64_t seed;
static uint64_t step;
static int64_t now_us;
static uint64_t last_token;
static bool acts_for[PRINCIPALS][PRINCIPALS];

static uint64_t seen[OPS][OUTCOMES];

/* Situations that the outcome alone does not tell. */
static uint64_t seen_over_cleared;
static uint64_t seen_over_kept;
static uint64_t seen_acted_for;
static uint64_t seen_choice;
static uint64_t seen_shared_by_exclusive;
static uint64_t seen_replay_at_limit;
static uint64_t seen_renewed_sooner;
static uint64_t seen_limits_differ;
static uint64_t seen_everywhere;

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

/* Let time pass: a hold is over when its deadline has come. */
static void
model_clock(int64_t us)
{
	now_us += us;
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

/* Return the newest hold of a lease. */
static hold *
newest_of(hold_list *list, uint64_t token)
{
	for (int i = list->length - 1; i >= 0; i--)
		if (list->at[i].token == token)
			return &list->at[i];
	return NULL;
}

/*
 * Return the token of the lease that a question speaks for, or 0.
 *
 * First the principal's own, then those it may act for; among several the one
 * with the lowest token.
 */
static uint64_t
lease_meant(const question *q)
{
	uint64_t	own = 0;
	uint64_t	other = 0;

	for (int i = 0; i < live[q->name].length; i++)
	{
		const hold *h = &live[q->name].at[i];
		uint64_t   *slot = h->principal == q->principal ? &own : &other;

		if (h->owner != q->owner)
			continue;
		if (h->principal != q->principal &&
			!acts_for[q->principal][h->principal])
			continue;
		if (q->op != LEASE_ACQUIRE && q->token != 0 && q->token != h->token)
			continue;
		if (*slot == 0 || h->token < *slot)
			*slot = h->token;
	}
	if (own != 0 && other != 0)
		seen_choice++;
	if (own == 0 && other != 0)
		seen_acted_for++;
	return own != 0 ? own : other;
}

/* Acquire once more for the lease that is there already. */
static reply
model_acquire_again(const question *q, uint64_t token)
{
	hold_list  *list = &live[q->name];
	hold	   *last = newest_of(list, token);
	lease_mode	mode = last->mode;
	bool		repeated = q->id != 0 && last->id == q->id;
	bool		later = false;

	if (mode == LEASE_SHARED && q->mode == LEASE_EXCLUSIVE)
		return (reply) {LEASE_UPGRADE, 0, 0};
	if (mode != q->mode && (mode == LEASE_PERMIT || q->mode == LEASE_PERMIT))
		return (reply) {LEASE_MIXED, 0, 0};
	if (mode == LEASE_PERMIT && holds_of(list, 0) >= q->limit)
	{
		if (!repeated)
			return (reply) {LEASE_BUSY, 0, 0};
		seen_replay_at_limit++;
	}
	if (!repeated && holds_of(list, token) == LEASE_VERSION_MAX)
		return (reply) {LEASE_TOO_MANY_HOLDS, 0, 0};
	if (mode != q->mode)
		seen_shared_by_exclusive++;

	/* All holds of a lease end at the same time: the latest promised. */
	for (int i = 0; i < list->length; i++)
		if (list->at[i].token == token &&
			list->at[i].until_us < now_us + q->ttl_us)
		{
			list->at[i].until_us = now_us + q->ttl_us;
			later = true;
		}
	if (repeated)
		return (reply) {LEASE_REPLAYED, token, later ? 1 : 0};
	list->at[list->length] = *newest_of(list, token);
	list->at[list->length].id = q->id;
	list->at[list->length].times = 1;
	list->length++;
	return (reply) {LEASE_REENTERED, token, 1};
}

static reply
model_acquire(const question *q)
{
	hold_list  *list = &live[q->name];
	uint64_t	token = lease_meant(q);
	int			cleared;

	if (token != 0)
		return model_acquire_again(q, token);

	/* Nobody's but others' are left: look for one that is in the way. */
	for (int i = 0; i < list->length; i++)
		switch (q->mode)
		{
			case LEASE_EXCLUSIVE:
				return (reply) {LEASE_BUSY, 0, 0};
			case LEASE_SHARED:
				if (list->at[i].mode != LEASE_SHARED)
					return (reply) {LEASE_BUSY, 0, 0};
				break;
			case LEASE_PERMIT:
				if (list->at[i].mode != LEASE_PERMIT)
					return (reply) {LEASE_BUSY, 0, 0};
				break;
		}
	if (q->mode == LEASE_PERMIT && holds_of(list, 0) >= q->limit)
		return (reply) {LEASE_BUSY, 0, 0};
	if (q->next_token < 1 || q->next_token > LEASE_TOKEN_MAX)
		return (reply) {LEASE_NO_TOKENS, 0, 0};

	cleared = leases_of(&dead[q->name]);
	if (cleared > 0)
		seen_over_cleared++;
	dead[q->name].length = 0;
	list->at[list->length++] = (hold) {
		.owner = q->owner,
		.principal = q->principal,
		.mode = q->mode,
		.id = q->id,
		.token = q->next_token,
		.until_us = now_us + q->ttl_us,
		.times = 1,
	};
	return (reply) {LEASE_GRANTED, q->next_token, cleared + 1};
}

/* Say that nothing was done, and whether somebody holds the name. */
static reply
model_nothing_done(const question *q)
{
	if (live[q->name].length > 0)
		return (reply) {LEASE_NOT_YOURS, 0, 0};
	if (dead[q->name].length > 0)
		seen_over_kept++;
	return (reply) {LEASE_NOT_HELD, 0, 0};
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
	return (reply) {LEASE_RENEWED, token, 1};
}

/*
 * Give back the oldest hold, or all.  The newest stays to the end because it
 * is the one that knows the id of the last acquire.
 */
static reply
model_release(const question *q)
{
	hold_list  *list = &live[q->name];
	uint64_t	token = lease_meant(q);

	if (token == 0)
		return model_nothing_done(q);
	if (q->op == LEASE_DROP)
		take_out_lease(list, token);
	else
		for (int i = 0; i < list->length; i++)
			if (list->at[i].token == token)
			{
				if (--list->at[i].times == 0)
					take_out(list, i);
				break;
			}
	return (reply) {LEASE_RELEASED, token, 1};
}

static reply
model_evict(const question *q)
{
	hold_list  *list = &live[q->name];
	int			before = leases_of(list);
	int			evicted;

	for (int i = list->length - 1; i >= 0; i--)
		if (q->owner < 0 || list->at[i].owner == q->owner)
			take_out(list, i);
	evicted = before - leases_of(list);
	if (evicted == 0)
		return model_nothing_done(q);
	return (reply) {LEASE_RELEASED, 0, evicted};
}

static reply
model_reap(const question *q)
{
	int			reaped = leases_of(&dead[q->name]);

	dead[q->name].length = 0;
	if (reaped == 0)
		return (reply) {LEASE_NOT_HELD, 0, 0};
	return (reply) {LEASE_RELEASED, 0, reaped};
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
} row;

static row	table[NAMES][HOLDERS_MAX + 1];
static int	rows[NAMES];

/* Print a question and both sides of its name, and give up. */
static void
fail(const question *q, const char *what)
{
	printf("FAILED at step %" PRIu64 ": %s\n"
		   "  replay with: lease_model -s %" PRIu64 " -n %" PRIu64 "\n",
		   step, what, seed, step);
	printf("  %s name %d owner %d principal %d mode %s limit %" PRIu32
		   " id %d ttl %" PRId64 " token %" PRIu64 " next %" PRIu64
		   " at %" PRId64 "\n",
		   op_name[q->op], q->name, q->owner, q->principal,
		   mode_name[q->mode], q->limit, q->id, q->ttl_us, q->token,
		   q->next_token, now_us);
	for (int i = 0; i < rows[q->name]; i++)
	{
		const row  *r = &table[q->name][i];

		printf("  table: owner '%.*s' (%zu) principal %d %s version %" PRIu32
			   " token %" PRIu64 " until %" PRId64 " id length %zu\n",
			   (int) r->holder.owner.length, r->holder.owner.data,
			   r->holder.owner.length, r->principal,
			   mode_name[r->holder.mode], r->holder.version,
			   r->holder.token, r->holder.deadline_us,
			   r->holder.request.length);
	}
	for (int pass = 0; pass < 2; pass++)
	{
		const hold_list *list = pass == 0 ? &live[q->name] : &dead[q->name];

		for (int i = 0; i < list->length; i++)
			printf("  model, %s: owner %d principal %d %s times %" PRIu32
				   " token %" PRIu64 " until %" PRId64 " id %d\n",
				   pass == 0 ? "live" : "over", list->at[i].owner,
				   list->at[i].principal, mode_name[list->at[i].mode],
				   list->at[i].times, list->at[i].token,
				   list->at[i].until_us, list->at[i].id);
	}
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
		.limit = q->limit,
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
 * Put the rows of a name in a new order, as the caller may pass any.  Swaps
 * once: over many steps that is a shuffle.
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

/* Apply a request to some rows, check the call, and drop what has ended. */
static lease_result
table_apply(const question *q, const lease_request *request, int from, int n)
{
	lease_holder before[HOLDERS_MAX + 1];
	lease_holder *holders;
	lease_result result;
	const char *fault;
	row		   *r = &table[q->name][from];
	int			kept = 0;

	/* Of exactly the promised size, so that the sanitizer sees its end. */
	holders = malloc(sizeof(lease_holder) * (size_t) (n + 1));
	if (holders == NULL)
		abort();
	for (int i = 0; i < n; i++)
	{
		holders[i] = r[i].holder;
		holders[i].standing = standing_of(q->principal, r[i].principal);
		before[i] = holders[i];
	}
	result = lease_apply(request, holders, (size_t) n, now_us);
	fault = lease_step_fault(request, before, (size_t) n, holders, &result,
							 now_us);
	if (fault != NULL)
		fail(q, fault);

	if (result.outcome == LEASE_GRANTED)
	{
		if (rows[q->name] >= HOLDERS_MAX)
			fail(q, "more holders than there can be");
		r[n].principal = q->principal;
		rows[q->name]++;
	}
	for (int i = 0; i < (int) result.count; i++)
		if (change_keeps(holders[i].change))
		{
			r[kept].holder = holders[i];
			r[kept].principal = r[i].principal;
			kept++;
		}
	memmove(&r[kept], &r[result.count],
			sizeof(row) * (size_t) (rows[q->name] - from -
									(int) result.count));
	rows[q->name] -= (int) result.count - kept;
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
		rows[name] = live[name].length = dead[name].length = 0;
	for (int a = 0; a < PRINCIPALS; a++)
		for (int b = 0; b < PRINCIPALS; b++)
			acts_for[a][b] = one_in(2);
	last_token = tokens[below(3)];
	now_us = times[below(5)];
}

/* Give a free name to somebody who has almost too many holds already. */
static void
place_bundle(int name)
{
	hold		h = {0};
	row		   *r = &table[name][rows[name]];

	h.owner = below(OWNERS);
	h.principal = below(PRINCIPALS);
	h.mode = (lease_mode) (LEASE_MODE_FIRST + below(3));
	h.id = below(IDS);
	h.token = last_token + 1;
	h.until_us = now_us + 1 + below(200);
	h.times = LEASE_VERSION_MAX - (uint32_t) below(3);
	if (live[name].length > 0 || dead[name].length >= HOLDS_MAX / 2 ||
		rows[name] >= HOLDERS_MAX / 2 || h.token > LEASE_TOKEN_MAX)
		return;
	last_token = h.token;
	live[name].at[live[name].length++] = h;
	rows[name]++;
	r->principal = h.principal;
	r->holder = (lease_holder) {
		.owner = {owner_bytes[0][h.owner], owner_length[h.owner]},
		.request = {id_bytes[0][h.id], id_length[h.id]},
		.mode = h.mode,
		.version = h.times,
		.token = h.token,
		.deadline_us = h.until_us,
	};
}

/*
 * Grant or revoke a privilege.  Only so does a principal come to have a holder
 * of its own that is younger than one it may act for.
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

	if (n < 58)
		return LEASE_ACQUIRE;
	if (n < 70)
		return LEASE_RENEW;
	if (n < 86)
		return LEASE_RELEASE;
	if (n < 91)
		return LEASE_DROP;
	if (n < 95)
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

	/* One by one: compilers may draw in any order within an initializer. */
	q.op = choose_op();
	q.name = below(NAMES);
	q.owner = below(OWNERS);
	q.principal = below(PRINCIPALS);
	q.mode = (lease_mode) (LEASE_MODE_FIRST + below(3));
	q.limit = one_in(8) ? LEASE_VERSION_MAX : 1 + (uint32_t) below(5);
	q.id = one_in(2) ? 0 : below(IDS);
	q.ttl_us = one_in(500) ? LEASE_TTL_MAX_US : 1 + below(20);
	q.next_token = last_token + 1 + (uint64_t) (one_in(4) ? below(3) : 0);

	/*
	 * Stay with the mode in use, mostly, or everything would be busy; and
	 * often be somebody who is there already, now and then with its last id.
	 */
	if (live[q.name].length > 0)
	{
		const hold *h = &live[q.name].at[below(live[q.name].length)];

		if (!one_in(4))
			q.mode = h->mode;
		if (one_in(2))
			q.owner = h->owner;
		if (one_in(2))
			q.principal = h->principal;
		if (one_in(3))
			q.id = newest_of(&live[q.name], h->token)->id;
	}
	if (live[q.name].length >= HOLDS_MAX - 1 ||
		dead[q.name].length + live[q.name].length >= HOLDS_MAX - 1)
		q.op = one_in(2) ? LEASE_EVICT : LEASE_REAP;
	if (q.op == LEASE_EVICT && one_in(3))
		q.owner = -1;
	if (q.op != LEASE_ACQUIRE)
		q.token = choose_token(q.name);
	if (one_in(300))
		q.next_token = no_tokens[below(3)];
	return q;
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
	result = table_apply(q, &request, 0, rows[q->name]);
	expected = model_apply(q);
	if (result.outcome != expected.outcome)
	{
		printf("outcome: %s, by the model: %s\n",
			   outcome_name[result.outcome], outcome_name[expected.outcome]);
		fail(q, "the outcome differs");
	}
	if (result.token != expected.token)
		fail(q, "the token differs");
	if ((int) result.changed != expected.changed)
		fail(q, "the number of changes differs");
	compare(q);

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
 * Do what concerns many names (renew all, release all, reap) the way lease.h
 * allows: every holder is passed alone.  The model is asked about one lease
 * after the other.
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
		uint64_t	tokens[HOLDS_MAX];
		int			n = 0;

		for (int i = 0; i < rows[q.name];)
		{
			int			before = rows[q.name];

			changed += (int) table_apply(&q, &request, i, 1).changed;
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
	};
	bool		complete = true;

	printf("%-16s", "outcome");
	for (size_t op = 0; op < OPS; op++)
		printf("%10s", op_name[op]);
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
				printf("%10" PRIu64, seen[op][outcome]);
			else
				printf("%10s", "");
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
	uint64_t	steps = 5000000;
	int			option;

	seed = (uint64_t) time(NULL) * 1000003 + (uint64_t) getpid();
	while ((option = getopt(argc, argv, "s:n:")) != -1)
		switch (option)
		{
			case 's':
				seed = strtoull(optarg, NULL, 0);
				break;
			case 'n':
				steps = strtoull(optarg, NULL, 0);
				break;
			default:
				fprintf(stderr, "usage: lease_model [-s SEED] [-n OPS]\n");
				return 2;
		}
	printf("lease_model -s %" PRIu64 " -n %" PRIu64 "\n", seed, steps);
	fflush(stdout);

	random_state = seed;
	begin_world();
	for (step = 1; step <= steps; step++)
	{
		question	q;

		if (one_in(last_token >= LEASE_TOKEN_MAX ? 50 : 5000))
			begin_world();
		if (one_in(4))
			model_clock(one_in(20) ? below(60) : below(5));
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

	if (!report_coverage() && steps >= COVERAGE_OPS)
	{
		printf("FAILED: something in the table above never happened\n");
		return 1;
	}
	printf("%" PRIu64 " steps, table and model agree\n", steps);
	return 0;
}
