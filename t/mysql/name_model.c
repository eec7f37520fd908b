/*
 * name_model.c
 *	  Random requests to names that many hold: the leases they depend on decide as all
 *	  leases do.
 *
 * A request is given to the core with the few leases that lease_name.c takes to be all
 * that it depends on, and with all that there are.  The outcome must be the same, and
 * change the same leases in the same way.  lease_name.c and image.c are included
 * here; no lease is guarded.
 *
 *	name_model SEED STEPS
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "../../mysql_udf/image.c"
#include "../../mysql_udf/lease_name.c"

#include <inttypes.h>
#include <stdio.h>

#define NAMES		3
#define OWNERS		12
#define CALLERS		4
#define OURS		77			/* the run */
#define BEFORE		66			/* the run before */
#define CHANGES		4096

/* The change of a lease. */
typedef struct change
{
	size_t		place;			/* SIZE_MAX: it is new */
	lease_change change;
	lease_mode	mode;
	lease_kind	kind;
	uint32_t	version;
	int64_t		deadline_us;
	bool		has_request;
} change;

typedef struct changes
{
	lease_result result;
	change		all[CHANGES];
	size_t		count;
} changes;

static const char letters[] = "abcdefghijklmnopqrstuvwxyz";

/* They connect anew now and then: a session that has ended never lives again. */
static dlock_caller callers[CALLERS] = {
	{.user = "u",.host = "h",.connection_id = 0},
	{.user = "u",.host = "h",.connection_id = 1},
	{.user = "v",.host = "h",.connection_id = 2},
	{.user = "",.host = "h",.connection_id = 3},
};
static uint64_t next_connection_id = CALLERS;

static int64_t now_us = 1000000;
static uint64_t step = 0;
static uint64_t state;
static uint64_t compared = 0;
static uint64_t changed = 0;
static uint64_t refused = 0;
static uint64_t largest = 0;

bool
lease_session_is_alive(uint64_t connection_id)
{
	for (size_t i = 0; i < CALLERS; i++)
		if (callers[i].connection_id == connection_id)
			return true;
	return false;
}

bool
lease_guards_have(lease_bytes name, uint32_t slot, int64_t at_us)
{
	return false;
}

static size_t
below(size_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

static void
fail(const char *what)
{
	fprintf(stderr, "step %" PRIu64 ": %s\n", step, what);
	abort();
}

static int
compare_changes(const void *a, const void *b)
{
	const change *x = a;
	const change *y = b;

	return x->place < y->place ? -1 : x->place > y->place;
}

/* Give a request to the core, with the holders that there are in "work". */
static void
apply(const lease_request *request, changes *to)
{
	to->result = lease_apply(request, work.holders, work.count, now_us);
	to->count = 0;
	for (size_t h = 0; h < to->result.count; h++)
	{
		const lease_holder *holder = &work.holders[h];

		if (holder->change != LEASE_UNCHANGED)
			to->all[to->count++] = (change) {
				h < work.count ? work.members[h] : SIZE_MAX, holder->change,
				holder->mode, holder->kind, holder->version,
				holder->deadline_us, holder->request.length > 0
			};
	}
	qsort(to->all, to->count, sizeof(change), compare_changes);
}

/* Both ways. */
static void
compare(lease_name *name, lease_request request, const dlock_caller *caller,
		const lease_moment *moment)
{
	static changes all;
	static changes part;

	request.next_token = lease_next_token(name->mark, 0);
	request.delay_us = moment->delay_us;
	if (!fill_work(name, caller, moment))
		fail("there is memory");
	apply(&request, &all);
	if (!fill_work_for(name, &request, caller, moment))
		fail("there is memory");
	apply(&request, &part);
	if (all.result.outcome != part.result.outcome)
		fail("another outcome");
	if (all.result.token != part.result.token)
		fail("another token");
	if (all.result.retry_us != part.result.retry_us)
		fail("it is to be tried again at another time");
	if (all.result.changed != part.result.changed || all.count != part.count)
		fail("other leases are changed");
	for (size_t i = 0; i < all.count; i++)
	{
		const change *a = &all.all[i];
		const change *p = &part.all[i];

		if (a->place != p->place || a->change != p->change ||
			a->mode != p->mode || a->kind != p->kind ||
			a->version != p->version || a->deadline_us != p->deadline_us ||
			a->has_request != p->has_request)
			fail("a lease is changed in another way");
	}
	for (size_t i = 0; i < name->count; i++)
		if (name->members[i].is_own)
			fail("a mark is left");
	compared++;
	changed += all.count > 0;
	refused += all.result.outcome == LEASE_BUSY &&
		all.result.retry_us != INT64_MAX;
	if (name->count > largest)
		largest = name->count;
}

static lease_request
random_request(const lease_name *name, lease_mode usual)
{
	lease_request request = {
		.op = below(3) ? LEASE_ACQUIRE :
			(lease_op) below(LEASE_REAP + 1),
		.owner = {letters + below(OWNERS), 2},
		.mode = below(8) ? usual :
			(lease_mode) (LEASE_MODE_FIRST + below(LEASE_MODE_LAST)),
		.kind = below(4) ? LEASE_PLAIN : LEASE_SESSION,
		.behind = below(10) == 0,
		.claim = below(12) == 0,
		.limit = 3 + (uint32_t) below(20),
		.permits = (uint32_t) below(4),
		.holds = (uint32_t) below(3),
		.ttl_us = 1 + (int64_t) below(30000),
	};

	if (below(3) == 0)
		request.request = (lease_bytes) {letters + below(3), 1};
	if (request.op == LEASE_REAP)
		request.owner.length = 0;
	if (request.op != LEASE_ACQUIRE && name->count > 0 && below(3) == 0)
		request.token = name->members[below(name->count)].holder->token;
	return request;
}

/* Some time later. */
static lease_moment
next_moment(void)
{
	now_us += (int64_t) below(3000);
	return (lease_moment) {
		.now_us = now_us, .wall_us = now_us,
		.delay_us = step / 5000 % 2 ? 4000 : 0,
		/* what another run has written, is in the image from now and then on */
		.writer = step / 300 % 7 ? OURS : BEFORE,
	};
}

/* Some requests to a draft of a name, which may be committed. */
static void
make_step(void)
{
	static const lease_mode usual[] = {
		LEASE_SHARED, LEASE_PERMIT, LEASE_EXCLUSIVE
	};
	lease_moment moment = next_moment();
	image_name *entry = image_get((lease_bytes) {letters + below(NAMES), 1});
	lease_name *name;

	if (below(20) == 0)
		for (size_t i = 0; i < CALLERS; i++)
			if (below(3) == 0)
				callers[i].connection_id = next_connection_id++;
	image.writer = moment.writer;
	name = lease_name_create(entry, &moment);
	for (size_t requests = 1 + below(4); requests > 0; requests--)
	{
		const dlock_caller *caller = &callers[below(CALLERS)];
		lease_request request = random_request(name,
											   usual[step / 20000 % 3]);

		compare(name, request, caller, &moment);
		(void) lease_name_apply(name, &request, caller, &moment);
	}
	lease_name_assign_slots(name, &moment);
	/* also what was not committed has had its tokens */
	image_mark_granted(lease_bucket(entry->name), name->mark);
	if (below(5) > 0)
		image_replace(entry, &name->members, &name->count, false);
	lease_name_free(name);
	image_end_batch();
}

int
main(int argc, char **argv)
{
	uint64_t	steps = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000;

	state = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) *
		UINT64_C(0x9E3779B97F4A7C15) + 1;
	image_start(OURS);
	image_begin(now_us, true);
	image_end(NULL);
	for (step = 0; step < steps; step++)
		make_step();
	printf("compared %" PRIu64 ", changes %" PRIu64 ", refusals %" PRIu64
		   ", at most %" PRIu64 " leases\n", compared, changed, refused, largest);
	return 0;
}
