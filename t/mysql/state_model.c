/*
 * state_model.c
 *	  Random changes of leases, with appends that succeed and fail, made to the image of
 *	  the engine of the log (state.c, included here) and to a naive model.
 *
 * The model is arrays of all leases: the image, what it was before the open buffer, what
 * it was before the flying one, and what looks see.  After each step they are compared
 * with the image, and its indexes with each other.  It runs under AddressSanitizer.
 *
 *	state_model SEED STEPS
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "../../mysql_udf/engine/state.c"

#include <inttypes.h>
#include <stdio.h>

#define NAMES		12
#define OWNERS		4
#define TOKENS		4000		/* most in a run; each step uses one at most */

/* The engine's other files. */
static lease_settings standard = {.max_leases = 1000000};
const lease_settings *const settings = &standard;

void
session_enter(held *h)
{
}

void
session_leave(held *h)
{
}

int64_t
lease_now(void)
{
	return 1;
}

typedef struct model_lease
{
	bool		there;
	bool		gone;
	int			name;
	int			owner;
	uint32_t	version;
	int64_t		deadline_us;
	uint64_t	row;
	int			request;
	int			nguards;
	uint64_t	changed_in;		/* but for releases that were answered */
} model_lease;

typedef struct model
{
	model_lease leases[TOKENS];
} model;

static model now;				/* the image */
static model before_open;
static model before_flying;
static model before_visible;
static model looks;				/* what looks see */
static uint64_t last = 0;		/* token */
static uint64_t numbers = 1;	/* of buffers */
static uint64_t durable = 0;
static uint64_t guard_numbers = 0;
static state_copies open_ = {.number = 1};
static state_copies flying_;
static state_copies visible_;	/* in the log, and not known to be durable */
static bool flies = false;
static bool is_visible = false;

/* Releases that were answered: what is left of which lease. */
typedef struct releases
{
	uint64_t	tokens[TOKENS];
	uint32_t	left[TOKENS];
	size_t		count;
} releases;

static releases in_open;
static releases in_flying;
static releases in_visible;
static uint64_t step;
static uint64_t failures = 0;
static uint64_t answered = 0;
static uint64_t outlived = 0;
static uint64_t found = 0;
static uint64_t differed = 0;

static void
check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "step %" PRIu64 ": %s\n", step, what);
	abort();
}

static lease_bytes
text_of(char *room, const char *kind, int i)
{
	int			length = sprintf(room, "%s %d", kind, i);

	return (lease_bytes) {room, (size_t) length};
}

static const account *
account_of(int owner)
{
	char		room[40];

	return image_account_get(text_of(room, "user", owner % 2), (lease_bytes) {"h", 1});
}

/* ----------------------------------------------------------------
 * Comparing
 * ----------------------------------------------------------------
 */

static void
compare_one(const held *h, const model_lease *m, uint32_t version, const char *what)
{
	char		room[40];

	check(m->there && m->version == version && m->deadline_us == h->deadline_us &&
		  m->row == (uint64_t) h->oldest.due_us && m->gone == h->gone, what);
	check(lease_same(state_name_bytes(h->name), text_of(room, "name", m->name)), what);
	check(lease_same(held_owner(h), text_of(room, "owner", m->owner)), what);
	check(h->account == account_of(m->owner), what);
	check(m->request == 0 ? h->request_length == 0 :
		  lease_same(held_request(h), text_of(room, "request", m->request)), what);
}

static size_t nseen;

static void
see(const held *h, uint32_t version, void *context)
{
	compare_one(h, &looks.leases[h->token], version, "a look");
	nseen++;
}

static void
compare(void)
{
	size_t		there = 0;
	size_t		visible = 0;
	size_t		guarded = 0;
	uint64_t	bytes = 0;
	size_t		of_names = 0;
	char		room[40];

	for (uint64_t t = 1; t <= last; t++)
	{
		const held *h = state_find(t);
		size_t		n = 0;

		check((h != NULL) == now.leases[t].there, "the image");
		visible += looks.leases[t].there;
		differed += looks.leases[t].there != now.leases[t].there;
		if (h == NULL)
			continue;
		there++;
		bytes += h->bytes;
		compare_one(h, &now.leases[t], h->version, "a lease of the image");
		for (const guard *g = h->guards; g != NULL; g = g->next, n++)
			check(g->lease == h && state_find_guard(g->number) == g, "a guard");
		check((int) n == now.leases[t].nguards, "guards of a lease");
		guarded += n;
		check(deadlines.items[h->due.place] == &h->due && h->due.due_us == h->deadline_us &&
			  rows.items[h->oldest.place] == &h->oldest, "the heaps");
	}
	check(there == state_count() && there == deadlines.count && there == rows.count &&
		  there == by_owner.count && guarded == guards.count && bytes == live_bytes, "counts");
	check(account_of(0)->leases + account_of(1)->leases == there, "the leases of accounts");
	for (int o = 0; o < OWNERS; o++)
		for (const held *h = NULL; (h = state_owned(text_of(room, "owner", o),
													account_of(o), h)) != NULL;)
			there--;
	check(there == 0, "the leases of owners");
	nseen = 0;
	for (size_t part = 0; part < 8; part++)
		state_look_part(part, 8, see, NULL);
	check(nseen == visible, "how many leases looks see");
	for (size_t i = 0; i < names.nslots; i++)
		for (const hash_link *link = names.slots[i]; link != NULL; link = link->next)
		{
			const state_name *name = hash_object(state_name, by_name, link);

			check(name->count > 0 || name->copies != NULL, "a name without anything");
			of_names += name->count;
		}
	check(of_names == state_count(), "the leases of names");
}

/* ----------------------------------------------------------------
 * Steps
 * ----------------------------------------------------------------
 */

static void
take_off(const releases *r)
{
	for (size_t i = 0; i < r->count; i++)
	{
		model_lease *m = &looks.leases[r->tokens[i]];

		/* its guards are there as long as they are in the image */
		if (m->there && r->left[i] == 0)
			*m = now.leases[r->tokens[i]];
		else if (m->there && r->left[i] < m->version)
			m->version = r->left[i];
	}
}

/* What looks see: what is durable, less the releases that were answered. */
static void
set_looks(void)
{
	looks = is_visible ? before_visible : flies ? before_flying : before_open;
	if (is_visible)
		take_off(&in_visible);
	if (flies)
		take_off(&in_flying);
	take_off(&in_open);
}

/* A lease that has ended, and whose guards have not. */
static void
end_guard(held *h)
{
	model_lease *m = &now.leases[h->token];

	check(state_change(&open_, h), "memory");
	state_remove_guard(h->guards);
	m->changed_in = open_.number;
	if (--m->nguards > 0)
		return;
	m->there = false;
	check(state_end(&open_, h), "memory");
}

static held *
pick(void)
{
	return last == 0 ? NULL : state_find(1 + (uint64_t) (random() % (long) last));
}

static void
grant(void)
{
	int			n = (int) (random() % NAMES);
	int			o = (int) (random() % OWNERS);
	char		room[40];
	state_name *name;
	held	   *h;

	if (last + 1 >= TOKENS)
		return;
	name = state_get_name(text_of(room, "name", n));
	h = state_add(&open_, name, account_of(o), text_of(room, "owner", o), ++last);
	h->version = 1 + (uint32_t) (random() % 3);
	state_set_deadline(h, random() % 1000);
	state_set_row(h, step, 0, 1 + (size_t) (random() % 90));
	now.leases[last] = (model_lease) {
		.there = true, .name = n, .owner = o, .version = h->version,
		.deadline_us = h->deadline_us, .row = step, .changed_in = open_.number
	};
}

static void
change_one(held *h)
{
	const lease_bytes none = {0};
	model_lease *m = &now.leases[h->token];
	char		room[40];

	if (h->gone)
	{
		end_guard(h);
		return;
	}
	check(state_change(&open_, h), "memory");
	h->version = m->version = 1 + (uint32_t) (random() % 5);
	m->deadline_us = random() % 1000;
	state_set_deadline(h, m->deadline_us);
	if (random() % 3 == 0)
	{
		m->request = (int) (random() % 3);
		check(state_set_request(h, m->request == 0 ? none :
								text_of(room, "request", m->request)), "memory");
	}
	if (random() % 2 == 0)
	{
		m->row = step;
		state_set_row(h, step, 0, 1 + (size_t) (random() % 90));
	}
	if (random() % 4 == 0)
	{
		m->nguards++;
		check(state_add_guard(h, ++guard_numbers, LEASE_SHARED, 1) != NULL, "memory");
	}
	else if (h->guards != NULL && random() % 2 == 0)
	{
		m->nguards--;
		state_remove_guard(h->guards);
	}
	m->changed_in = open_.number;
}

/* End a lease; early: or give one hold back, before that is durable. */
static void
end_one(held *h, bool is_early)
{
	model_lease *m = &now.leases[h->token];
	state_name *name = h->name;
	uint64_t	token = h->token;

	if (h->gone || (is_early && m->changed_in > durable))
		return;
	answered += is_early;
	if (is_early)
	{
		in_open.tokens[in_open.count] = token;
		in_open.left[in_open.count++] = m->version - 1;
	}
	else
		m->changed_in = open_.number;
	if (is_early && m->version > 1)
	{
		check(state_change(&open_, h), "memory");
		h->version = --m->version;
		state_see(name, token, h->version);
		return;
	}
	if (m->nguards > 0)
	{
		check(state_change(&open_, h), "memory");
		h->gone = m->gone = true;
	}
	else
	{
		check(state_end(&open_, h), "memory");
		m->there = false;
	}
	if (is_early)
		state_see(name, token, 0);
}

static void
fly(void)
{
	if (flies)
		return;
	flying_ = open_;
	before_flying = before_open;
	before_open = now;
	open_ = (state_copies) {.number = ++numbers};
	flies = true;
	in_flying = in_open;
	in_open.count = 0;
}

static void
land(void)
{
	if (!flies)
		return;
	outlived += open_.newest != NULL;
	state_forget(&visible_);
	state_forget(&flying_);
	is_visible = false;
	durable = flying_.number;
	flies = false;
}

/* The flying buffer is in the log, but may not be durable. */
static void
find(void)
{
	if (!flies)
		return;
	found++;
	if (!is_visible)
	{
		before_visible = before_flying;
		in_visible.count = 0;
	}
	for (size_t i = 0; i < in_flying.count; i++, in_visible.count++)
	{
		in_visible.tokens[in_visible.count] = in_flying.tokens[i];
		in_visible.left[in_visible.count] = in_flying.left[i];
	}
	state_keep(&visible_, &flying_);
	is_visible = true;
	flies = false;
}

static void
fail(bool both)
{
	/* whether a look still sees a release that was undone is not said */
	if (is_visible && (in_open.count > 0 || (flies && in_flying.count > 0)))
		return;
	failures++;
	state_restore(&open_);
	now = before_open;
	if (both && flies)
	{
		state_restore(&flying_);
		now = before_open = before_flying;
		flies = false;
	}
	open_.number = ++numbers;
	in_open.count = 0;
}

int
main(int argc, char **argv)
{
	uint64_t	steps = strtoull(argv[2], NULL, 10);

	srandom((unsigned int) strtoul(argv[1], NULL, 10));
	hash_start();
	state_begin();
	for (step = 1; step <= steps && last + 1 < TOKENS; step++)
	{
		held	   *h = pick();
		long		what = random() % 100;

		if (what < 30)
			grant();
		else if (what < 50 && h != NULL)
			change_one(h);
		else if (what < 60 && h != NULL)
			end_one(h, false);
		else if (what < 80 && h != NULL)
			end_one(h, true);
		else if (what < 88)
			fly();
		else if (what < 94)
			land();
		else if (what < 95)
			find();
		else
			/* a release that was answered is not undone alone */
			fail(what < 98 || in_open.count > 0);
		set_looks();
		compare();
	}
	printf("%" PRIu64 " failures, %" PRIu64 " found, %" PRIu64 " releases answered, %" PRIu64
		   " times the open buffer had copies when the flying one landed, %" PRIu64
		   " differences between looks and the image\n", failures, found, answered,
		   outlived, differed);
	state_forget(&visible_);
	is_visible = false;
	fail(true);
	state_clear();
	check(state_count() == 0 && names.count == 0, "nothing is left");
	return 0;
}
