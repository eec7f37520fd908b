/*
 * lease_test.c
 *	  The contract of the lease state machine, one test for each claim.
 *
 * Every test plays with the holders of one name, kept in the array "name".
 * apply() stands in for an engine: it calls lease_apply() on the array, checks
 * what must be true of any call, then removes what has ended, but for a guard
 * that it leaves behind.  Tests that look at the marks themselves call
 * lease_apply() directly.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease.h"
#include "lease_invariants.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ROOM	16

/* The bytes of a string literal, NUL bytes inside included. */
#define BYTES(literal)	((lease_bytes) {(literal), sizeof(literal) - 1})
#define NO_BYTES		((lease_bytes) {NULL, 0})

static lease_holder name[ROOM + 1];
static size_t count;
static int64_t now_us;
static uint64_t last_token;

/* The lock delay that the engine passes with its requests. */
static int64_t delay_us;

/* What the latest apply() answered. */
static lease_result answer;

/* Begin every test with a free name at a time that is not zero. */
static int
set_up(void **state)
{
	(void) state;
	count = 0;
	now_us = 1000;
	last_token = 100;
	delay_us = 0;
	return 0;
}

/* Fail unless two arrays of holders agree in everything but the marks. */
static void
assert_same_holders(const lease_holder *a, const lease_holder *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
	{
		assert_true(bytes_equal(a[i].owner, b[i].owner));
		assert_true(bytes_equal(a[i].request, b[i].request));
		assert_int_equal(a[i].mode, b[i].mode);
		assert_int_equal(a[i].kind, b[i].kind);
		assert_int_equal(a[i].life, b[i].life);
		assert_int_equal(a[i].standing, b[i].standing);
		assert_int_equal(a[i].guarded, b[i].guarded);
		assert_int_equal(a[i].version, b[i].version);
		assert_int_equal(a[i].token, b[i].token);
		assert_int_equal(a[i].deadline_us, b[i].deadline_us);
	}
}

/* Do a request as an engine does, and return its outcome. */
static lease_outcome
apply(lease_request request)
{
	lease_holder before[ROOM + 1];
	const char *fault;
	size_t		kept = 0;

	assert_true(count < ROOM);
	memcpy(before, name, sizeof(before));
	answer = lease_apply(&request, name, count, now_us);
	fault = lease_step_fault(&request, before, count, name, &answer, now_us);
	if (fault != NULL)
		fail_msg("%s", fault);
	if (outcome_is_refusal(answer.outcome))
		assert_same_holders(before, name, count);

	for (size_t i = 0; i < answer.count; i++)
	{
		if (!change_keeps(name[i].change))
		{
			if (name[i].guarded == 0)
				continue;
			name[i].life = LEASE_PINNED;
			name[i].deadline_us = now_us;
		}
		name[kept++] = name[i];
	}
	count = kept;
	if (answer.outcome == LEASE_GRANTED)
		last_token = answer.token;
	return answer.outcome;
}

/* The request that acquires with all there is to say. */
static lease_request
acquire_request(lease_bytes owner, lease_mode mode, uint32_t limit,
				int64_t ttl_us, lease_bytes id)
{
	return (lease_request) {
		.op = LEASE_ACQUIRE,
		.owner = owner,
		.mode = mode,
		.kind = LEASE_PLAIN,
		.limit = limit,
		.delay_us = delay_us,
		.ttl_us = ttl_us,
		.request = id,
		.next_token = last_token + 1,
	};
}

static lease_outcome
exclusive(const char *owner, int64_t ttl_us)
{
	return apply(acquire_request((lease_bytes) {owner, strlen(owner)},
								 LEASE_EXCLUSIVE, 0, ttl_us, NO_BYTES));
}

static lease_outcome
shared(const char *owner, int64_t ttl_us)
{
	return apply(acquire_request((lease_bytes) {owner, strlen(owner)},
								 LEASE_SHARED, 0, ttl_us, NO_BYTES));
}

static lease_outcome
permit(const char *owner, uint32_t limit, int64_t ttl_us)
{
	return apply(acquire_request((lease_bytes) {owner, strlen(owner)},
								 LEASE_PERMIT, limit, ttl_us, NO_BYTES));
}

/* Acquire exclusively with a request id. */
static lease_outcome
exclusive_id(const char *owner, int64_t ttl_us, lease_bytes id)
{
	return apply(acquire_request((lease_bytes) {owner, strlen(owner)},
								 LEASE_EXCLUSIVE, 0, ttl_us, id));
}

/* Acquire a permit with a request id. */
static lease_outcome
permit_id(const char *owner, uint32_t limit, int64_t ttl_us, lease_bytes id)
{
	return apply(acquire_request((lease_bytes) {owner, strlen(owner)},
								 LEASE_PERMIT, limit, ttl_us, id));
}

/* Acquire as a session or a transaction does, or as neither. */
static lease_outcome
acquire_kind(const char *owner, lease_mode mode, lease_kind kind,
			 lease_bytes id)
{
	lease_bytes bytes = {owner, strlen(owner)};
	lease_request request = acquire_request(bytes, mode, 5, 10, id);

	request.kind = kind;
	return apply(request);
}

/* Acquire while somebody else waits for the name. */
static lease_outcome
acquire_behind(const char *owner, lease_mode mode, uint32_t limit,
			   lease_bytes id)
{
	lease_bytes bytes = {owner, strlen(owner)};
	lease_request request = acquire_request(bytes, mode, limit, 10, id);

	request.behind = true;
	return apply(request);
}

static lease_outcome
renew(const char *owner, int64_t ttl_us, uint64_t token)
{
	return apply((lease_request) {
		.op = LEASE_RENEW,
		.owner = {owner, strlen(owner)},
		.ttl_us = ttl_us,
		.token = token,
	});
}

static lease_outcome
release(const char *owner, uint64_t token)
{
	return apply((lease_request) {
		.op = LEASE_RELEASE,
		.owner = {owner, strlen(owner)},
		.token = token,
	});
}

static lease_outcome
drop(const char *owner, uint64_t token)
{
	return apply((lease_request) {
		.op = LEASE_DROP,
		.owner = {owner, strlen(owner)},
		.token = token,
	});
}

/* Evict the holders of an owner, or all if owner is empty. */
static lease_outcome
evict(const char *owner)
{
	return apply((lease_request) {
		.op = LEASE_EVICT,
		.owner = {owner, strlen(owner)},
		.delay_us = delay_us,
	});
}

static lease_outcome
reap(void)
{
	return apply((lease_request) {.op = LEASE_REAP, .delay_us = delay_us});
}

/* Put a holder on the name that no request of the test has made. */
static lease_holder *
place(const char *owner, lease_mode mode, lease_standing standing,
	  int64_t deadline_us)
{
	lease_holder *h = &name[count++];

	assert_true(count < ROOM);
	*h = (lease_holder) {
		.owner = {owner, strlen(owner)},
		.mode = mode,
		.kind = LEASE_PLAIN,
		.standing = standing,
		.version = 1,
		.token = ++last_token,
		.deadline_us = deadline_us,
	};
	return h;
}

/* Put a holder on the name that lives as long as something else does. */
static lease_holder *
place_bound(const char *owner, lease_mode mode, lease_kind kind)
{
	lease_holder *h = place(owner, mode, LEASE_SELF, INT64_MAX);

	h->kind = kind;
	h->life = LEASE_BOUND;
	return h;
}

/* Put on the name what is left of a guarded holder: some guarded holds. */
static lease_holder *
place_pinned(const char *owner, lease_mode mode, lease_standing standing,
			 uint32_t guarded)
{
	lease_holder *h = place(owner, mode, standing, now_us);

	h->life = LEASE_PINNED;
	h->guarded = guarded;
	return h;
}

/* The holder of an owner; NULL if there is none. */
static lease_holder *
holder_of(const char *owner)
{
	for (size_t i = 0; i < count; i++)
		if (bytes_equal(name[i].owner, (lease_bytes) {owner, strlen(owner)}))
			return &name[i];
	return NULL;
}

/*
 * Ranges and bytes
 */

static void
strings_are_1_to_255_bytes(void **state)
{
	(void) state;
	assert_int_equal(LEASE_STRING_MAX, 255);
	assert_false(lease_check_string(0));
	assert_true(lease_check_string(1));
	assert_true(lease_check_string(255));
	assert_false(lease_check_string(256));
	assert_false(lease_check_string(SIZE_MAX));
}

static void
ttl_is_above_zero_and_at_most_a_billion_seconds(void **state)
{
	(void) state;
	assert_int_equal(LEASE_TTL_MAX_US, INT64_C(1000000000) * 1000000);
	assert_false(lease_check_ttl(INT64_MIN));
	assert_false(lease_check_ttl(-1));
	assert_false(lease_check_ttl(0));
	assert_true(lease_check_ttl(1));
	assert_true(lease_check_ttl(LEASE_TTL_MAX_US));
	assert_false(lease_check_ttl(LEASE_TTL_MAX_US + 1));
	assert_false(lease_check_ttl(INT64_MAX));
}

static void
strings_are_the_same_byte_for_byte(void **state)
{
	char		copy[] = "worker";

	(void) state;
	assert_true(lease_same(BYTES("worker"), (lease_bytes) {copy, 6}));
	assert_false(lease_same(BYTES("worker"), BYTES("Worker")));
	assert_false(lease_same(BYTES("worker"), BYTES("worker ")));
	assert_false(lease_same(BYTES("worker"), BYTES("worke")));
	assert_false(lease_same(BYTES("worker"), BYTES("workes")));
	assert_false(lease_same(BYTES("caf\xc3\xa9"), BYTES("cafe\xcc\x81")));
}

static void
nul_bytes_count(void **state)
{
	(void) state;
	assert_true(lease_same(BYTES("a\0b"), BYTES("a\0b")));
	assert_false(lease_same(BYTES("a\0b"), BYTES("a\0c")));
	assert_false(lease_same(BYTES("a\0"), BYTES("a")));
	assert_false(lease_same(BYTES("\0"), BYTES("\0\0")));
}

static void
empty_strings_need_no_data(void **state)
{
	(void) state;
	assert_true(lease_same(NO_BYTES, NO_BYTES));
	assert_true(lease_same(NO_BYTES, BYTES("")));
	assert_false(lease_same(NO_BYTES, BYTES("a")));
	assert_false(lease_same(BYTES("a"), NO_BYTES));
}

static void
owners_that_differ_after_a_nul_are_different_holders(void **state)
{
	lease_bytes one = BYTES("a\0one");
	lease_bytes two = BYTES("a\0two");

	(void) state;
	assert_int_equal(apply(acquire_request(one, LEASE_EXCLUSIVE, 0, 10,
										   NO_BYTES)), LEASE_GRANTED);
	assert_int_equal(apply(acquire_request(two, LEASE_EXCLUSIVE, 0, 10,
										   NO_BYTES)), LEASE_BUSY);
	assert_int_equal(exclusive("a", 10), LEASE_BUSY);
	assert_int_equal(apply(acquire_request(one, LEASE_EXCLUSIVE, 0, 10,
										   NO_BYTES)), LEASE_REENTERED);
	assert_int_equal(evict("a"), LEASE_NOT_YOURS);
}

static void
owners_of_255_bytes_are_compared_to_the_last(void **state)
{
	char		one[LEASE_STRING_MAX];
	char		two[LEASE_STRING_MAX];

	(void) state;
	memset(one, 'x', sizeof(one));
	memset(two, 'x', sizeof(two));
	two[LEASE_STRING_MAX - 1] = 'y';
	assert_int_equal(apply(acquire_request((lease_bytes) {one, sizeof(one)},
										   LEASE_EXCLUSIVE, 0, 10, NO_BYTES)),
					 LEASE_GRANTED);
	assert_int_equal(apply(acquire_request((lease_bytes) {two, sizeof(two)},
										   LEASE_EXCLUSIVE, 0, 10, NO_BYTES)),
					 LEASE_BUSY);
	two[LEASE_STRING_MAX - 1] = 'x';
	assert_int_equal(apply(acquire_request((lease_bytes) {two, sizeof(two)},
										   LEASE_EXCLUSIVE, 0, 10, NO_BYTES)),
					 LEASE_REENTERED);
}

/*
 * Rule 1: exclusion
 */

static void
a_free_name_is_granted_in_any_mode(void **state)
{
	(void) state;
	for (int mode = LEASE_MODE_FIRST; mode <= LEASE_MODE_LAST; mode++)
	{
		count = 0;
		assert_int_equal(apply(acquire_request(BYTES("a"), (lease_mode) mode,
											   1, 10, BYTES("id"))),
						 LEASE_GRANTED);
		assert_int_equal(count, 1);
		assert_int_equal(name[0].mode, mode);
		assert_int_equal(name[0].version, 1);
		assert_int_equal(name[0].deadline_us, now_us + 10);
		assert_int_equal(name[0].standing, LEASE_SELF);
		assert_true(bytes_equal(name[0].owner, BYTES("a")));
		assert_true(bytes_equal(name[0].request, BYTES("id")));
	}
}

static void
an_exclusive_holder_excludes_everybody_else(void **state)
{
	(void) state;
	exclusive("a", 10);
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(shared("b", 10), LEASE_BUSY);
	assert_int_equal(permit("b", 100, 10), LEASE_BUSY);
	assert_int_equal(answer.token, 0);
	assert_int_equal(count, 1);
}

static void
shared_holders_admit_one_another(void **state)
{
	(void) state;
	assert_int_equal(shared("a", 10), LEASE_GRANTED);
	assert_int_equal(shared("b", 10), LEASE_GRANTED);
	assert_int_equal(shared("c", 10), LEASE_GRANTED);
	assert_int_equal(count, 3);
}

static void
shared_holders_exclude_exclusive_and_permits(void **state)
{
	(void) state;
	shared("a", 10);
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(permit("b", 100, 10), LEASE_BUSY);
	shared("c", 10);
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(permit("b", 100, 10), LEASE_BUSY);
}

static void
permits_exclude_exclusive_and_shared(void **state)
{
	(void) state;
	permit("a", 100, 10);
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(shared("b", 10), LEASE_BUSY);
}

static void
permits_are_granted_below_the_limit(void **state)
{
	(void) state;
	assert_int_equal(permit("a", 3, 10), LEASE_GRANTED);
	assert_int_equal(permit("b", 3, 10), LEASE_GRANTED);
	assert_int_equal(permit("c", 3, 10), LEASE_GRANTED);
	assert_int_equal(permit("d", 3, 10), LEASE_BUSY);
	assert_int_equal(release("b", 0), LEASE_RELEASED);
	assert_int_equal(permit("d", 3, 10), LEASE_GRANTED);
}

static void
each_caller_is_judged_by_its_own_limit(void **state)
{
	(void) state;
	assert_int_equal(permit("a", 1, 10), LEASE_GRANTED);
	assert_int_equal(permit("b", 1, 10), LEASE_BUSY);
	assert_int_equal(permit("b", 2, 10), LEASE_GRANTED);
	assert_int_equal(permit("c", 2, 10), LEASE_BUSY);
	assert_int_equal(permit("c", 5, 10), LEASE_GRANTED);
	/* A smaller limit does not take back what was granted. */
	assert_int_equal(permit("d", 1, 10), LEASE_BUSY);
	assert_int_equal(count, 3);
}

static void
every_permit_of_a_holder_counts(void **state)
{
	(void) state;
	permit("a", 3, 10);
	permit("a", 3, 10);
	assert_int_equal(permit("b", 2, 10), LEASE_BUSY);
	assert_int_equal(permit("b", 3, 10), LEASE_GRANTED);
	assert_int_equal(permit("c", 3, 10), LEASE_BUSY);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(permit("c", 3, 10), LEASE_GRANTED);
}

static void
expired_permits_do_not_count(void **state)
{
	(void) state;
	permit("a", 2, 10);
	permit("b", 2, 20);
	now_us += 10;
	assert_int_equal(permit("c", 2, 10), LEASE_GRANTED);
	assert_int_equal(permit("d", 2, 10), LEASE_BUSY);
}

static void
a_sum_of_permits_does_not_wrap(void **state)
{
	(void) state;
	for (int i = 0; i < 2; i++)
		place(i == 0 ? "a" : "b", LEASE_PERMIT, LEASE_STRANGER,
			  now_us + 10)->version = LEASE_VERSION_MAX;
	place("c", LEASE_PERMIT, LEASE_STRANGER, now_us + 10)->version = 2;
	assert_int_equal(permit("d", LEASE_VERSION_MAX, 10), LEASE_BUSY);
	assert_int_equal(permit("d", 1, 10), LEASE_BUSY);
}

/*
 * Rule 2: lease
 */

static void
a_hold_lasts_to_the_last_microsecond(void **state)
{
	(void) state;
	exclusive("a", 10);
	now_us += 9;
	assert_false(lease_is_over(&name[0], now_us));
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(renew("a", 1, 0), LEASE_RENEWED);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
}

static void
a_hold_is_over_once_its_deadline_has_come(void **state)
{
	(void) state;
	exclusive("a", 10);
	now_us += 10;
	assert_true(lease_is_over(&name[0], now_us));
	assert_int_equal(exclusive("b", 10), LEASE_GRANTED);
	assert_int_equal(count, 1);
	assert_true(bytes_equal(name[0].owner, BYTES("b")));
}

static void
renewing_or_releasing_afterwards_does_nothing_and_says_so(void **state)
{
	uint64_t	token;

	(void) state;
	exclusive("a", 10);
	token = answer.token;
	now_us += 10;
	assert_int_equal(renew("a", 10, 0), LEASE_NOT_HELD);
	assert_int_equal(renew("a", 10, token), LEASE_NOT_HELD);
	assert_int_equal(release("a", 0), LEASE_NOT_HELD);
	assert_int_equal(release("a", token), LEASE_NOT_HELD);
	assert_int_equal(drop("a", 0), LEASE_NOT_HELD);
	assert_int_equal(drop("a", token), LEASE_NOT_HELD);
	assert_int_equal(count, 1);
}

static void
afterwards_a_name_held_by_another_is_not_yours(void **state)
{
	uint64_t	token;

	(void) state;
	shared("a", 10);
	token = answer.token;
	shared("b", 20);
	now_us += 10;
	assert_int_equal(renew("a", 10, token), LEASE_NOT_YOURS);
	assert_int_equal(release("a", token), LEASE_NOT_YOURS);
	assert_int_equal(drop("a", token), LEASE_NOT_YOURS);
	assert_int_equal(answer.token, 0);
}

static void
a_name_never_held_is_held_by_nobody(void **state)
{
	(void) state;
	assert_int_equal(renew("a", 10, 0), LEASE_NOT_HELD);
	assert_int_equal(release("a", 0), LEASE_NOT_HELD);
	assert_int_equal(drop("a", 0), LEASE_NOT_HELD);
	assert_int_equal(evict(""), LEASE_NOT_HELD);
	assert_int_equal(evict("a"), LEASE_NOT_HELD);
	assert_int_equal(reap(), LEASE_NOT_HELD);
}

static void
an_over_holder_acquires_anew(void **state)
{
	uint64_t	token;

	(void) state;
	exclusive_id("a", 10, BYTES("id"));
	token = answer.token;
	exclusive("a", 10);
	now_us += 10;
	assert_int_equal(exclusive_id("a", 10, BYTES("id")), LEASE_GRANTED);
	assert_true(answer.token > token);
	assert_int_equal(count, 1);
	assert_int_equal(name[0].version, 1);
}

static void
a_grant_clears_away_all_that_is_over_and_nothing_else(void **state)
{
	lease_request request;
	lease_result result;

	(void) state;
	shared("a", 10);
	shared("b", 20);
	shared("c", 10);
	now_us += 10;
	request = acquire_request(BYTES("d"), LEASE_SHARED, 0, 10, NO_BYTES);
	result = lease_apply(&request, name, count, now_us);
	assert_int_equal(result.outcome, LEASE_GRANTED);
	assert_int_equal(result.count, 4);
	assert_int_equal(result.changed, 3);
	assert_int_equal(name[0].change, LEASE_EXPIRED);
	assert_int_equal(name[1].change, LEASE_UNCHANGED);
	assert_int_equal(name[2].change, LEASE_EXPIRED);
	assert_int_equal(name[3].change, LEASE_ADDED);
}

static void
a_refusal_leaves_what_is_over_alone(void **state)
{
	(void) state;
	shared("a", 10);
	shared("b", 20);
	now_us += 10;
	assert_int_equal(exclusive("c", 10), LEASE_BUSY);
	assert_int_equal(answer.changed, 0);
	assert_int_equal(count, 2);
}

static void
marks_left_by_the_last_call_are_forgotten(void **state)
{
	lease_request request;
	lease_result result;

	(void) state;
	shared("a", 10);
	shared("b", 10);
	name[0].change = LEASE_EXPIRED;
	name[1].change = LEASE_EVICTED;
	request = acquire_request(BYTES("c"), LEASE_EXCLUSIVE, 0, 10, NO_BYTES);
	result = lease_apply(&request, name, count, now_us);
	assert_int_equal(result.changed, 0);
	assert_int_equal(name[0].change, LEASE_UNCHANGED);
	assert_int_equal(name[1].change, LEASE_UNCHANGED);
}

static void
the_longest_ttl_is_granted_to_the_microsecond(void **state)
{
	(void) state;
	now_us = INT64_MAX - LEASE_TTL_MAX_US;
	assert_int_equal(exclusive("a", LEASE_TTL_MAX_US), LEASE_GRANTED);
	assert_int_equal(name[0].deadline_us, INT64_MAX);
	assert_int_equal(exclusive("a", LEASE_TTL_MAX_US), LEASE_REENTERED);
	assert_int_equal(renew("a", LEASE_TTL_MAX_US, 0), LEASE_RENEWED);
	now_us = INT64_MAX - 1;
	assert_int_equal(exclusive("b", 1), LEASE_BUSY);
}

/*
 * Rule 3: re-entry
 */

static void
acquiring_again_adds_a_hold_and_keeps_the_token(void **state)
{
	uint64_t	token;

	(void) state;
	exclusive("a", 10);
	token = answer.token;
	assert_int_equal(exclusive("a", 10), LEASE_REENTERED);
	assert_int_equal(answer.token, token);
	assert_int_equal(count, 1);
	assert_int_equal(name[0].version, 2);
	assert_int_equal(name[0].token, token);

	count = 0;
	shared("b", 10);
	shared("a", 10);
	token = answer.token;
	assert_int_equal(shared("a", 10), LEASE_REENTERED);
	assert_int_equal(answer.token, token);
	assert_int_equal(name[1].version, 2);
	assert_int_equal(name[0].version, 1);
}

static void
re_entry_extends_the_deadline(void **state)
{
	(void) state;
	exclusive("a", 10);
	now_us += 5;
	assert_int_equal(exclusive("a", 10), LEASE_REENTERED);
	assert_int_equal(name[0].deadline_us, now_us + 10);
}

static void
re_entry_never_shrinks_the_deadline(void **state)
{
	int64_t		deadline_us = now_us + 10;

	(void) state;
	exclusive("a", 10);
	assert_int_equal(exclusive("a", 3), LEASE_REENTERED);
	assert_int_equal(name[0].deadline_us, deadline_us);
	assert_int_equal(answer.changed, 1);
}

static void
each_release_gives_one_hold_back(void **state)
{
	uint64_t	token;

	(void) state;
	exclusive("a", 10);
	token = answer.token;
	exclusive("a", 10);
	exclusive("a", 10);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(answer.token, token);
	assert_int_equal(name[0].version, 2);
	assert_int_equal(release("a", token), LEASE_RELEASED);
	assert_int_equal(name[0].version, 1);
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(answer.token, token);
	assert_int_equal(count, 0);
	assert_int_equal(release("a", 0), LEASE_NOT_HELD);
	assert_int_equal(exclusive("b", 10), LEASE_GRANTED);
}

static void
a_release_leaves_the_deadline(void **state)
{
	int64_t		deadline_us = now_us + 10;

	(void) state;
	exclusive("a", 10);
	exclusive("a", 10);
	now_us += 5;
	release("a", 0);
	assert_int_equal(name[0].deadline_us, deadline_us);
}

static void
re_entry_leaves_other_holders_alone(void **state)
{
	(void) state;
	shared("a", 5);
	shared("b", 10);
	now_us += 5;
	assert_int_equal(shared("b", 10), LEASE_REENTERED);
	assert_int_equal(answer.changed, 1);
	assert_int_equal(count, 2);
}

static void
a_permit_holder_takes_one_more_permit(void **state)
{
	uint64_t	token;

	(void) state;
	permit("a", 3, 10);
	token = answer.token;
	now_us += 5;
	assert_int_equal(permit("a", 3, 10), LEASE_REENTERED);
	assert_int_equal(answer.token, token);
	assert_int_equal(name[0].version, 2);
	assert_int_equal(name[0].deadline_us, now_us + 10);
	assert_int_equal(permit("b", 3, 10), LEASE_GRANTED);
	assert_int_equal(permit("a", 3, 20), LEASE_BUSY);
	assert_int_equal(answer.token, 0);
	assert_int_equal(permit("a", 4, 1), LEASE_REENTERED);
	assert_int_equal(name[0].version, 3);
	assert_int_equal(name[0].deadline_us, now_us + 10);
}

static void
a_permit_of_limit_1_is_a_mutex_without_re_entry(void **state)
{
	(void) state;
	assert_int_equal(permit("a", 1, 10), LEASE_GRANTED);
	assert_int_equal(permit("a", 1, 10), LEASE_BUSY);
	assert_int_equal(permit("b", 1, 10), LEASE_BUSY);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(permit("b", 1, 10), LEASE_GRANTED);
}

static void
a_shared_acquire_by_the_exclusive_holder_is_a_re_entry(void **state)
{
	uint64_t	token;

	(void) state;
	exclusive("a", 10);
	token = answer.token;
	assert_int_equal(shared("a", 10), LEASE_REENTERED);
	assert_int_equal(answer.token, token);
	assert_int_equal(name[0].version, 2);
	/* It stays exclusive, also when the first hold has been given back. */
	assert_int_equal(name[0].mode, LEASE_EXCLUSIVE);
	release("a", 0);
	assert_int_equal(name[0].mode, LEASE_EXCLUSIVE);
	assert_int_equal(shared("b", 10), LEASE_BUSY);
}

static void
an_exclusive_acquire_by_a_shared_holder_is_misuse(void **state)
{
	(void) state;
	shared("a", 10);
	assert_int_equal(exclusive("a", 10), LEASE_UPGRADE);
	assert_int_equal(answer.token, 0);
	shared("b", 10);
	assert_int_equal(exclusive("a", 10), LEASE_UPGRADE);
	assert_int_equal(exclusive("c", 10), LEASE_BUSY);
}

static void
permits_and_the_rest_do_not_mix_in_one_holder(void **state)
{
	(void) state;
	exclusive("a", 10);
	assert_int_equal(permit("a", 100, 10), LEASE_MIXED);
	assert_int_equal(answer.token, 0);
	drop("a", 0);
	shared("a", 10);
	assert_int_equal(permit("a", 100, 10), LEASE_MIXED);
	drop("a", 0);
	permit("a", 100, 10);
	assert_int_equal(exclusive("a", 10), LEASE_MIXED);
	assert_int_equal(shared("a", 10), LEASE_MIXED);
}

static void
no_misuse_after_the_deadline(void **state)
{
	(void) state;
	shared("a", 10);
	now_us += 10;
	assert_int_equal(exclusive("a", 10), LEASE_GRANTED);
	now_us += 10;
	assert_int_equal(permit("a", 1, 10), LEASE_GRANTED);
	now_us += 10;
	assert_int_equal(shared("a", 10), LEASE_GRANTED);
	assert_int_equal(count, 1);
}

static void
holds_end_at_version_max(void **state)
{
	(void) state;
	place("a", LEASE_EXCLUSIVE, LEASE_SELF,
		  now_us + 10)->version = LEASE_VERSION_MAX - 1;
	assert_int_equal(exclusive("a", 10), LEASE_REENTERED);
	assert_int_equal(name[0].version, LEASE_VERSION_MAX);
	assert_int_equal(exclusive("a", 20), LEASE_TOO_MANY_HOLDS);
	assert_int_equal(answer.token, 0);
	assert_int_equal(shared("a", 20), LEASE_TOO_MANY_HOLDS);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(exclusive("a", 20), LEASE_REENTERED);
}

static void
permits_end_at_version_max(void **state)
{
	(void) state;
	place("a", LEASE_PERMIT, LEASE_SELF,
		  now_us + 10)->version = LEASE_VERSION_MAX - 1;
	assert_int_equal(permit("a", LEASE_VERSION_MAX, 10), LEASE_REENTERED);
	assert_int_equal(name[0].version, LEASE_VERSION_MAX);
	assert_int_equal(permit("a", LEASE_VERSION_MAX, 10), LEASE_BUSY);
}

static void
the_longest_count_of_holds_drops_at_once(void **state)
{
	(void) state;
	place("a", LEASE_SHARED, LEASE_SELF,
		  now_us + 10)->version = LEASE_VERSION_MAX;
	assert_int_equal(drop("a", 0), LEASE_RELEASED);
	assert_int_equal(count, 0);
}

/*
 * Rule 4: request id
 */

static void
a_repeated_request_id_adds_no_hold(void **state)
{
	uint64_t	token;

	(void) state;
	exclusive_id("a", 10, BYTES("id"));
	token = answer.token;
	assert_int_equal(exclusive_id("a", 10, BYTES("id")), LEASE_REPLAYED);
	assert_int_equal(answer.token, token);
	assert_int_equal(answer.changed, 0);
	assert_int_equal(name[0].version, 1);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(count, 0);
}

static void
a_repeated_request_id_extends_the_deadline(void **state)
{
	int64_t		deadline_us;

	(void) state;
	exclusive_id("a", 10, BYTES("id"));
	now_us += 5;
	assert_int_equal(exclusive_id("a", 10, BYTES("id")), LEASE_REPLAYED);
	assert_int_equal(answer.changed, 1);
	deadline_us = now_us + 10;
	assert_int_equal(name[0].deadline_us, deadline_us);
	assert_int_equal(exclusive_id("a", 3, BYTES("id")), LEASE_REPLAYED);
	assert_int_equal(name[0].deadline_us, deadline_us);
}

static void
only_the_id_of_the_last_acquire_counts(void **state)
{
	(void) state;
	exclusive_id("a", 10, BYTES("one"));
	assert_int_equal(exclusive_id("a", 10, BYTES("two")), LEASE_REENTERED);
	assert_int_equal(exclusive_id("a", 10, BYTES("two")), LEASE_REPLAYED);
	assert_int_equal(exclusive_id("a", 10, BYTES("one")), LEASE_REENTERED);
	assert_int_equal(name[0].version, 3);
}

static void
an_acquire_without_id_is_never_a_repetition(void **state)
{
	(void) state;
	exclusive("a", 10);
	assert_int_equal(exclusive("a", 10), LEASE_REENTERED);
	assert_int_equal(name[0].version, 2);
	/* An id of no bytes is no id, wherever its data may point. */
	assert_int_equal(exclusive_id("a", 10, BYTES("")), LEASE_REENTERED);
	assert_int_equal(name[0].version, 3);
}

static void
an_acquire_without_id_is_the_last_acquire_too(void **state)
{
	(void) state;
	exclusive_id("a", 10, BYTES("id"));
	assert_int_equal(exclusive("a", 10), LEASE_REENTERED);
	assert_int_equal(exclusive_id("a", 10, BYTES("id")), LEASE_REENTERED);
	assert_int_equal(name[0].version, 3);
}

static void
a_refused_acquire_leaves_the_id(void **state)
{
	(void) state;
	permit_id("a", 1, 10, BYTES("one"));
	assert_int_equal(permit_id("a", 1, 10, BYTES("two")), LEASE_BUSY);
	assert_int_equal(permit_id("a", 1, 10, BYTES("one")), LEASE_REPLAYED);
}

static void
release_and_renewal_leave_the_id(void **state)
{
	(void) state;
	exclusive_id("a", 10, BYTES("one"));
	exclusive_id("a", 10, BYTES("two"));
	release("a", 0);
	renew("a", 20, 0);
	assert_int_equal(exclusive_id("a", 10, BYTES("two")), LEASE_REPLAYED);
	assert_int_equal(name[0].version, 1);
}

static void
request_ids_are_compared_byte_for_byte(void **state)
{
	char		copy[] = "i\0d";

	(void) state;
	exclusive_id("a", 10, BYTES("i\0d"));
	assert_int_equal(exclusive_id("a", 10, (lease_bytes) {copy, 3}),
					 LEASE_REPLAYED);
	assert_int_equal(exclusive_id("a", 10, BYTES("i\0e")), LEASE_REENTERED);
	assert_int_equal(exclusive_id("a", 10, BYTES("i")), LEASE_REENTERED);
	assert_int_equal(exclusive_id("a", 10, BYTES("I")), LEASE_REENTERED);
	assert_int_equal(name[0].version, 4);
}

static void
the_request_id_of_another_owner_is_no_repetition(void **state)
{
	(void) state;
	permit_id("a", 3, 10, BYTES("id"));
	assert_int_equal(permit_id("b", 3, 10, BYTES("id")), LEASE_GRANTED);
	assert_int_equal(exclusive_id("c", 10, BYTES("id")), LEASE_BUSY);
}

static void
a_repeated_permit_needs_no_room(void **state)
{
	(void) state;
	permit_id("a", 2, 10, BYTES("id"));
	permit("b", 2, 10);
	assert_int_equal(permit_id("a", 2, 10, BYTES("id")), LEASE_REPLAYED);
	assert_int_equal(permit_id("a", 1, 10, BYTES("id")), LEASE_REPLAYED);
	assert_int_equal(name[0].version, 1);
}

static void
a_repetition_at_version_max_is_answered(void **state)
{
	lease_holder *h = place("a", LEASE_EXCLUSIVE, LEASE_SELF, now_us + 10);

	(void) state;
	h->version = LEASE_VERSION_MAX;
	h->request = BYTES("id");
	assert_int_equal(exclusive_id("a", 20, BYTES("id")), LEASE_REPLAYED);
	assert_int_equal(name[0].version, LEASE_VERSION_MAX);
	assert_int_equal(name[0].deadline_us, now_us + 20);
}

static void
a_request_id_does_not_excuse_misuse(void **state)
{
	(void) state;
	apply(acquire_request(BYTES("a"), LEASE_SHARED, 0, 10, BYTES("id")));
	assert_int_equal(exclusive_id("a", 10, BYTES("id")), LEASE_UPGRADE);
	assert_int_equal(permit_id("a", 9, 10, BYTES("id")), LEASE_MIXED);
}

/*
 * Rule 5: token
 */

static void
a_grant_hands_out_the_next_token(void **state)
{
	(void) state;
	assert_int_equal(shared("a", 10), LEASE_GRANTED);
	assert_int_equal(answer.token, 101);
	assert_int_equal(shared("b", 10), LEASE_GRANTED);
	assert_int_equal(answer.token, 102);
	assert_int_equal(name[0].token, 101);
	assert_int_equal(name[1].token, 102);
}

static void
the_last_token_is_granted(void **state)
{
	(void) state;
	assert_true(LEASE_TOKEN_MAX == UINT64_C(9007199254740991));
	last_token = LEASE_TOKEN_MAX - 1;
	assert_int_equal(exclusive("a", 10), LEASE_GRANTED);
	assert_true(answer.token == LEASE_TOKEN_MAX);
}

static void
grants_beyond_the_last_token_are_refused(void **state)
{
	static const uint64_t beyond[] = {LEASE_TOKEN_MAX + 1, UINT64_MAX, 0};

	(void) state;
	exclusive("a", 10);
	now_us += 10;
	for (size_t i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++)
	{
		lease_request request = acquire_request(BYTES("b"), LEASE_EXCLUSIVE,
												0, 10, NO_BYTES);

		/* 0 is the successor of UINT64_MAX, and no token. */
		request.next_token = beyond[i];
		assert_int_equal(apply(request), LEASE_NO_TOKENS);
		assert_int_equal(answer.token, 0);
		assert_int_equal(answer.changed, 0);
		assert_int_equal(count, 1);
	}
}

static void
a_holder_goes_on_when_tokens_have_run_out(void **state)
{
	(void) state;
	last_token = LEASE_TOKEN_MAX - 1;
	exclusive_id("a", 10, BYTES("id"));
	assert_int_equal(exclusive_id("a", 10, BYTES("id")), LEASE_REPLAYED);
	assert_int_equal(exclusive("a", 10), LEASE_REENTERED);
	assert_int_equal(renew("a", 10, LEASE_TOKEN_MAX), LEASE_RENEWED);
	assert_int_equal(release("a", LEASE_TOKEN_MAX), LEASE_RELEASED);
	assert_int_equal(release("a", LEASE_TOKEN_MAX), LEASE_RELEASED);
	assert_int_equal(exclusive("a", 10), LEASE_NO_TOKENS);
}

static void
the_right_token_or_none_finds_the_holder(void **state)
{
	uint64_t	token;

	(void) state;
	exclusive("a", 10);
	token = answer.token;
	assert_int_equal(renew("a", 10, token), LEASE_RENEWED);
	assert_int_equal(answer.token, token);
	assert_int_equal(renew("a", 10, 0), LEASE_RENEWED);
	assert_int_equal(answer.token, token);
	assert_int_equal(release("a", token), LEASE_RELEASED);
	exclusive("a", 10);
	assert_int_equal(drop("a", answer.token), LEASE_RELEASED);
}

static void
a_wrong_token_is_not_yours(void **state)
{
	uint64_t	token;

	(void) state;
	exclusive("a", 10);
	token = answer.token;
	assert_int_equal(renew("a", 20, token + 1), LEASE_NOT_YOURS);
	assert_int_equal(renew("a", 20, token - 1), LEASE_NOT_YOURS);
	assert_int_equal(renew("a", 20, UINT64_MAX), LEASE_NOT_YOURS);
	assert_int_equal(release("a", token + 1), LEASE_NOT_YOURS);
	assert_int_equal(drop("a", token - 1), LEASE_NOT_YOURS);
	assert_int_equal(answer.token, 0);
}

static void
a_token_of_an_earlier_lease_is_not_yours(void **state)
{
	uint64_t	token;

	(void) state;
	exclusive("a", 10);
	token = answer.token;
	now_us += 10;
	exclusive("a", 10);
	assert_int_equal(renew("a", 20, token), LEASE_NOT_YOURS);
	assert_int_equal(release("a", token), LEASE_NOT_YOURS);
	assert_int_equal(drop("a", token), LEASE_NOT_YOURS);
}

static void
the_token_of_another_owner_is_not_yours(void **state)
{
	uint64_t	token;

	(void) state;
	shared("a", 10);
	token = answer.token;
	shared("b", 10);
	assert_int_equal(renew("b", 10, token), LEASE_NOT_YOURS);
	assert_int_equal(release("b", token), LEASE_NOT_YOURS);
	assert_int_equal(drop("b", token), LEASE_NOT_YOURS);
	assert_int_equal(release("c", token), LEASE_NOT_YOURS);
}

/*
 * Renewal and drop
 */

static void
renewal_sets_the_deadline_sooner_or_later(void **state)
{
	(void) state;
	exclusive("a", 10);
	assert_int_equal(renew("a", 100, 0), LEASE_RENEWED);
	assert_int_equal(name[0].deadline_us, now_us + 100);
	assert_int_equal(renew("a", 1, 0), LEASE_RENEWED);
	assert_int_equal(name[0].deadline_us, now_us + 1);
	assert_int_equal(renew("a", 1, 0), LEASE_RENEWED);
	assert_int_equal(name[0].deadline_us, now_us + 1);
	now_us += 1;
	assert_int_equal(renew("a", 10, 0), LEASE_NOT_HELD);
}

static void
renewal_leaves_holds_token_and_mode(void **state)
{
	(void) state;
	shared("a", 10);
	shared("a", 10);
	shared("b", 10);
	assert_int_equal(renew("a", 20, 0), LEASE_RENEWED);
	assert_int_equal(name[0].version, 2);
	assert_int_equal(name[0].token, 101);
	assert_int_equal(name[0].mode, LEASE_SHARED);
	assert_int_equal(name[1].deadline_us, now_us + 10);
}

static void
drop_gives_all_holds_of_one_holder_back(void **state)
{
	(void) state;
	permit("a", 5, 10);
	permit("a", 5, 10);
	permit("a", 5, 10);
	permit("b", 5, 10);
	assert_int_equal(drop("a", 0), LEASE_RELEASED);
	assert_int_equal(answer.token, 101);
	assert_int_equal(answer.changed, 1);
	assert_int_equal(count, 1);
	assert_true(bytes_equal(name[0].owner, BYTES("b")));
	assert_int_equal(drop("a", 0), LEASE_NOT_YOURS);
}

/*
 * Principals
 */

static void
a_stranger_with_the_same_owner_is_another_holder(void **state)
{
	uint64_t	token = place("a", LEASE_SHARED, LEASE_STRANGER,
							  now_us + 10)->token;

	(void) state;
	assert_int_equal(renew("a", 10, 0), LEASE_NOT_YOURS);
	assert_int_equal(renew("a", 10, token), LEASE_NOT_YOURS);
	assert_int_equal(release("a", token), LEASE_NOT_YOURS);
	assert_int_equal(drop("a", token), LEASE_NOT_YOURS);
	assert_int_equal(exclusive("a", 10), LEASE_BUSY);
	assert_int_equal(permit("a", 9, 10), LEASE_BUSY);
	assert_int_equal(shared("a", 10), LEASE_GRANTED);
	assert_int_equal(count, 2);
}

static void
a_principal_acts_for_one_whose_privileges_it_has(void **state)
{
	uint64_t	token = place("a", LEASE_EXCLUSIVE, LEASE_ACTS_FOR,
							  now_us + 10)->token;

	(void) state;
	assert_int_equal(exclusive("a", 10), LEASE_REENTERED);
	assert_int_equal(answer.token, token);
	assert_int_equal(renew("a", 10, token), LEASE_RENEWED);
	assert_int_equal(release("a", token), LEASE_RELEASED);
	assert_int_equal(drop("a", 0), LEASE_RELEASED);
	assert_int_equal(count, 0);
}

static void
acting_for_another_still_takes_the_same_owner(void **state)
{
	(void) state;
	place("a", LEASE_EXCLUSIVE, LEASE_ACTS_FOR, now_us + 10);
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(release("b", 0), LEASE_NOT_YOURS);
}

/* Find the holder of "a" for a request that says this token. */
static size_t
find(uint64_t token)
{
	lease_request request = {.op = LEASE_RENEW, .owner = BYTES("a"),
	.token = token};

	return lease_find(&request, name, count, now_us);
}

static void
its_own_holder_comes_first(void **state)
{
	(void) state;
	place("a", LEASE_SHARED, LEASE_ACTS_FOR, now_us + 10);
	place("a", LEASE_SHARED, LEASE_STRANGER, now_us + 10);
	place("a", LEASE_SHARED, LEASE_SELF, now_us + 10);
	place("a", LEASE_SHARED, LEASE_ACTS_FOR, now_us + 10);
	assert_int_equal(find(0), 2);
	assert_int_equal(shared("a", 10), LEASE_REENTERED);
	assert_int_equal(name[2].version, 2);
	assert_int_equal(drop("a", 0), LEASE_RELEASED);
	assert_int_equal(answer.token, 103);
}

static void
then_comes_the_lowest_token(void **state)
{
	(void) state;
	place("a", LEASE_SHARED, LEASE_ACTS_FOR, now_us + 10)->token = 7;
	place("a", LEASE_SHARED, LEASE_ACTS_FOR, now_us + 10)->token = 5;
	place("a", LEASE_SHARED, LEASE_ACTS_FOR, now_us + 10)->token = 6;
	place("a", LEASE_SHARED, LEASE_STRANGER, now_us + 10)->token = 4;
	assert_int_equal(find(0), 1);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(answer.token, 5);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(answer.token, 6);
}

static void
a_token_overrides_the_preference(void **state)
{
	(void) state;
	place("a", LEASE_SHARED, LEASE_ACTS_FOR, now_us + 10);
	place("a", LEASE_SHARED, LEASE_SELF, now_us + 10);
	place("a", LEASE_SHARED, LEASE_ACTS_FOR, now_us + 10);
	assert_int_equal(find(103), 2);
	assert_int_equal(find(104), count);
	assert_int_equal(release("a", 103), LEASE_RELEASED);
	assert_int_equal(answer.token, 103);
}

static void
a_holder_that_is_over_is_not_found(void **state)
{
	(void) state;
	place("a", LEASE_SHARED, LEASE_SELF, now_us);
	place("a", LEASE_SHARED, LEASE_ACTS_FOR, now_us + 1);
	assert_int_equal(find(0), 1);
	assert_int_equal(find(101), count);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(answer.token, 102);
	assert_int_equal(find(0), count);
}

static void
nothing_is_found_among_none(void **state)
{
	(void) state;
	assert_int_equal(find(0), 0);
}

static void
misuse_is_judged_by_the_holder_acted_for(void **state)
{
	(void) state;
	place("a", LEASE_SHARED, LEASE_ACTS_FOR, now_us + 10);
	assert_int_equal(exclusive("a", 10), LEASE_UPGRADE);
	assert_int_equal(permit("a", 9, 10), LEASE_MIXED);
}

/*
 * Eviction and the reaper
 */

static void
eviction_ends_all_live_holders_whoever_they_are(void **state)
{
	lease_request request = {.op = LEASE_EVICT};
	lease_result result;

	(void) state;
	place("a", LEASE_SHARED, LEASE_STRANGER, now_us + 10);
	place("b", LEASE_SHARED, LEASE_SELF, now_us + 10)->version = 3;
	place("c", LEASE_SHARED, LEASE_ACTS_FOR, now_us + 10);
	place("d", LEASE_SHARED, LEASE_STRANGER, now_us);
	result = lease_apply(&request, name, count, now_us);
	assert_int_equal(result.outcome, LEASE_RELEASED);
	assert_int_equal(result.token, 0);
	assert_int_equal(result.count, 4);
	assert_int_equal(result.changed, 3);
	assert_int_equal(name[0].change, LEASE_EVICTED);
	assert_int_equal(name[1].change, LEASE_EVICTED);
	assert_int_equal(name[2].change, LEASE_EVICTED);
	assert_int_equal(name[3].change, LEASE_UNCHANGED);
}

static void
eviction_of_an_owner_ends_all_its_holders(void **state)
{
	(void) state;
	place("a", LEASE_SHARED, LEASE_STRANGER, now_us + 10);
	place("b", LEASE_SHARED, LEASE_STRANGER, now_us + 10);
	place("a", LEASE_SHARED, LEASE_ACTS_FOR, now_us + 10);
	place("b", LEASE_SHARED, LEASE_STRANGER, now_us + 10);
	assert_int_equal(evict("a"), LEASE_RELEASED);
	assert_int_equal(answer.changed, 2);
	assert_int_equal(count, 2);
	assert_int_equal(evict("a"), LEASE_NOT_YOURS);
	assert_int_equal(evict("b"), LEASE_RELEASED);
	assert_int_equal(evict("b"), LEASE_NOT_HELD);
}

static void
nobody_is_evicted_after_the_deadline(void **state)
{
	(void) state;
	exclusive("a", 10);
	now_us += 10;
	assert_int_equal(evict(""), LEASE_NOT_HELD);
	assert_int_equal(evict("a"), LEASE_NOT_HELD);
	assert_int_equal(count, 1);
}

static void
an_evicted_holder_has_nothing_left(void **state)
{
	(void) state;
	exclusive("a", 10);
	assert_int_equal(evict(""), LEASE_RELEASED);
	assert_int_equal(release("a", 0), LEASE_NOT_HELD);
	assert_int_equal(exclusive("b", 10), LEASE_GRANTED);
	assert_int_equal(release("a", 0), LEASE_NOT_YOURS);
}

static void
the_reaper_ends_exactly_what_is_over(void **state)
{
	lease_request request = {.op = LEASE_REAP};
	lease_result result;

	(void) state;
	place("a", LEASE_SHARED, LEASE_STRANGER, now_us - 1);
	place("b", LEASE_SHARED, LEASE_SELF, now_us);
	place("c", LEASE_SHARED, LEASE_STRANGER, now_us + 1);
	place("d", LEASE_SHARED, LEASE_ACTS_FOR, INT64_MIN);
	result = lease_apply(&request, name, count, now_us);
	assert_int_equal(result.outcome, LEASE_RELEASED);
	assert_int_equal(result.token, 0);
	assert_int_equal(result.changed, 3);
	assert_int_equal(name[0].change, LEASE_EXPIRED);
	assert_int_equal(name[1].change, LEASE_EXPIRED);
	assert_int_equal(name[2].change, LEASE_UNCHANGED);
	assert_int_equal(name[3].change, LEASE_EXPIRED);
}

static void
the_reaper_says_when_there_is_nothing_to_reap(void **state)
{
	(void) state;
	exclusive("a", 10);
	assert_int_equal(reap(), LEASE_NOT_HELD);
	assert_int_equal(answer.changed, 0);
	assert_int_equal(count, 1);
}

/*
 * Rule 3: kinds
 */

static void
a_lease_is_of_the_kind_that_was_asked_for(void **state)
{
	for (int kind = LEASE_KIND_FIRST; kind <= LEASE_KIND_LAST; kind++)
	{
		set_up(state);
		assert_int_equal(acquire_kind("a", LEASE_SHARED, (lease_kind) kind,
									  NO_BYTES), LEASE_GRANTED);
		assert_int_equal(name[0].kind, kind);
		assert_int_equal(name[0].life, kind == LEASE_PLAIN ?
						 LEASE_TIMED : LEASE_BOUND);
		assert_int_equal(name[0].guarded, 0);
		assert_int_equal(name[0].deadline_us, now_us + 10);
		assert_int_equal(acquire_kind("a", LEASE_SHARED, (lease_kind) kind,
									  NO_BYTES), LEASE_REENTERED);
		assert_int_equal(name[0].version, 2);
	}
}

static void
kinds_do_not_mix_in_one_holder(void **state)
{
	for (int mode = LEASE_MODE_FIRST; mode <= LEASE_MODE_LAST; mode++)
		for (int has = LEASE_KIND_FIRST; has <= LEASE_KIND_LAST; has++)
			for (int asks = LEASE_KIND_FIRST; asks <= LEASE_KIND_LAST; asks++)
			{
				set_up(state);
				acquire_kind("a", (lease_mode) mode, (lease_kind) has,
							 NO_BYTES);
				/* apply() sees to it that a refusal changes nothing. */
				assert_int_equal(acquire_kind("a", (lease_mode) mode,
											  (lease_kind) asks, NO_BYTES),
								 has == asks ?
								 LEASE_REENTERED : LEASE_MIXED_KINDS);
				if (has != asks)
				{
					assert_int_equal(answer.token, 0);
					assert_int_equal(answer.changed, 0);
				}
			}
}

static void
a_request_id_does_not_excuse_mixing_kinds(void **state)
{
	(void) state;
	acquire_kind("a", LEASE_EXCLUSIVE, LEASE_SESSION, BYTES("id"));
	assert_int_equal(acquire_kind("a", LEASE_EXCLUSIVE, LEASE_PLAIN,
								  BYTES("id")), LEASE_MIXED_KINDS);
	assert_int_equal(acquire_kind("a", LEASE_EXCLUSIVE, LEASE_SESSION,
								  BYTES("id")), LEASE_REPLAYED);
}

static void
mixing_kinds_is_misuse_whoever_waits_and_however_full(void **state)
{
	lease_request request;

	(void) state;
	acquire_kind("a", LEASE_PERMIT, LEASE_SESSION, NO_BYTES);
	assert_int_equal(acquire_behind("a", LEASE_PERMIT, 1, NO_BYTES),
					 LEASE_MIXED_KINDS);
	request = acquire_request(BYTES("a"), LEASE_PERMIT, 1, 10, NO_BYTES);
	assert_int_equal(apply(request), LEASE_MIXED_KINDS);
}

static void
kinds_mix_among_holders(void **state)
{
	(void) state;
	assert_int_equal(acquire_kind("a", LEASE_SHARED, LEASE_PLAIN, NO_BYTES),
					 LEASE_GRANTED);
	assert_int_equal(acquire_kind("b", LEASE_SHARED, LEASE_SESSION, NO_BYTES),
					 LEASE_GRANTED);
	assert_int_equal(acquire_kind("c", LEASE_SHARED, LEASE_TRANSACTION,
								  NO_BYTES), LEASE_GRANTED);
	/* A stranger's holder is another one, whatever its owner. */
	name[0].standing = LEASE_STRANGER;
	assert_int_equal(acquire_kind("a", LEASE_SHARED, LEASE_SESSION, NO_BYTES),
					 LEASE_GRANTED);
}

static void
kinds_are_judged_by_the_holder_acted_for(void **state)
{
	(void) state;
	place_bound("a", LEASE_SHARED, LEASE_SESSION)->standing = LEASE_ACTS_FOR;
	assert_int_equal(shared("a", 10), LEASE_MIXED_KINDS);
}

static void
a_lease_that_is_over_has_no_kind_to_mix_with(void **state)
{
	(void) state;
	exclusive("a", 10);
	now_us += 10;
	assert_int_equal(acquire_kind("a", LEASE_EXCLUSIVE, LEASE_SESSION,
								  NO_BYTES), LEASE_GRANTED);
	assert_int_equal(count, 1);
	name[0].life = LEASE_TIMED;
	name[0].deadline_us = now_us;
	assert_int_equal(acquire_kind("a", LEASE_EXCLUSIVE, LEASE_TRANSACTION,
								  NO_BYTES), LEASE_GRANTED);
	assert_int_equal(count, 1);
	name[0].life = LEASE_LEFT;
	name[0].deadline_us = now_us;
	assert_int_equal(exclusive("a", 10), LEASE_GRANTED);
	assert_int_equal(count, 1);
}

/*
 * Lives
 */

static void
a_bound_holder_is_renewed_released_and_evicted_as_any(void **state)
{
	(void) state;
	acquire_kind("a", LEASE_EXCLUSIVE, LEASE_SESSION, NO_BYTES);
	acquire_kind("a", LEASE_EXCLUSIVE, LEASE_SESSION, NO_BYTES);
	assert_int_equal(reap(), LEASE_NOT_HELD);
	assert_int_equal(renew("a", 3, 0), LEASE_RENEWED);
	assert_int_equal(name[0].deadline_us, now_us + 3);
	assert_int_equal(name[0].life, LEASE_BOUND);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(name[0].version, 1);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(count, 0);
	acquire_kind("a", LEASE_EXCLUSIVE, LEASE_TRANSACTION, NO_BYTES);
	assert_int_equal(evict(""), LEASE_RELEASED);
	assert_int_equal(count, 0);
}

static void
a_bound_holder_outlives_any_ttl(void **state)
{
	(void) state;
	place_bound("a", LEASE_EXCLUSIVE, LEASE_SESSION);
	now_us = INT64_MAX - LEASE_TTL_MAX_US;
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(reap(), LEASE_NOT_HELD);
	assert_int_equal(acquire_kind("a", LEASE_EXCLUSIVE, LEASE_SESSION,
								  NO_BYTES), LEASE_REENTERED);
	assert_int_equal(name[0].deadline_us, INT64_MAX);
}

/* Put the holder of a transaction that has ended on the name. */
static lease_holder *
place_left(const char *owner, lease_mode mode, lease_standing standing)
{
	lease_holder *h = place(owner, mode, standing, now_us);

	h->kind = LEASE_TRANSACTION;
	h->life = LEASE_LEFT;
	return h;
}

static void
the_end_of_a_transaction_counts_as_a_release(void **state)
{
	lease_request request;
	lease_result result;

	(void) state;
	delay_us = 100;
	place_left("a", LEASE_EXCLUSIVE, LEASE_STRANGER);
	request = acquire_request(BYTES("b"), LEASE_EXCLUSIVE, 0, 10, NO_BYTES);
	result = lease_apply(&request, name, count, now_us);
	assert_int_equal(result.outcome, LEASE_GRANTED);
	assert_int_equal(result.changed, 2);
	assert_int_equal(name[0].change, LEASE_ENDED);

	request = (lease_request) {.op = LEASE_REAP, .delay_us = delay_us};
	result = lease_apply(&request, name, count, now_us);
	assert_int_equal(result.outcome, LEASE_RELEASED);
	assert_int_equal(result.changed, 1);
	assert_int_equal(name[0].change, LEASE_ENDED);
}

static void
nothing_speaks_for_a_transaction_that_has_ended(void **state)
{
	uint64_t	token = place_left("a", LEASE_EXCLUSIVE, LEASE_SELF)->token;

	(void) state;
	delay_us = 100;
	assert_int_equal(renew("a", 10, token), LEASE_NOT_HELD);
	assert_int_equal(release("a", token), LEASE_NOT_HELD);
	assert_int_equal(drop("a", 0), LEASE_NOT_HELD);
	assert_int_equal(evict("a"), LEASE_NOT_HELD);
	assert_int_equal(count, 1);
	assert_int_equal(acquire_kind("a", LEASE_EXCLUSIVE, LEASE_TRANSACTION,
								  NO_BYTES), LEASE_GRANTED);
	assert_true(answer.token > token);
	assert_int_equal(count, 1);
}

static void
a_guard_outlives_the_transaction_that_took_the_lease(void **state)
{
	(void) state;
	place_left("a", LEASE_EXCLUSIVE, LEASE_SELF)->guarded = 1;
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, INT64_MAX);
	assert_int_equal(reap(), LEASE_RELEASED);
	assert_int_equal(name[0].life, LEASE_PINNED);
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
}

/*
 * Rule 8: queue
 */

static void
a_newcomer_does_not_overtake_the_queue(void **state)
{
	for (int mode = LEASE_MODE_FIRST; mode <= LEASE_MODE_LAST; mode++)
	{
		set_up(state);
		assert_int_equal(acquire_behind("a", (lease_mode) mode, 5, NO_BYTES),
						 LEASE_BUSY);
		assert_int_equal(answer.retry_us, INT64_MAX);
		assert_int_equal(count, 0);
	}
	shared("a", 10);
	assert_int_equal(acquire_behind("b", LEASE_SHARED, 0, NO_BYTES),
					 LEASE_BUSY);
	assert_int_equal(shared("b", 10), LEASE_GRANTED);
}

static void
who_was_a_holder_queues_like_a_newcomer(void **state)
{
	(void) state;
	exclusive_id("a", 10, BYTES("id"));
	now_us += 10;
	assert_int_equal(acquire_behind("a", LEASE_EXCLUSIVE, 0, BYTES("id")),
					 LEASE_BUSY);
	assert_int_equal(count, 1);
}

static void
re_entry_never_queues(void **state)
{
	(void) state;
	exclusive("a", 10);
	assert_int_equal(acquire_behind("a", LEASE_EXCLUSIVE, 0, NO_BYTES),
					 LEASE_REENTERED);
	assert_int_equal(acquire_behind("a", LEASE_SHARED, 0, NO_BYTES),
					 LEASE_REENTERED);
	set_up(state);
	shared("a", 10);
	shared("b", 10);
	assert_int_equal(acquire_behind("a", LEASE_SHARED, 0, NO_BYTES),
					 LEASE_REENTERED);
}

static void
one_more_permit_queues(void **state)
{
	(void) state;
	permit_id("a", 5, 10, BYTES("id"));
	assert_int_equal(acquire_behind("a", LEASE_PERMIT, 5, NO_BYTES),
					 LEASE_BUSY);
	assert_int_equal(acquire_behind("a", LEASE_PERMIT, 5, BYTES("other")),
					 LEASE_BUSY);
	assert_int_equal(name[0].version, 1);
	assert_int_equal(permit("a", 5, 10), LEASE_REENTERED);
}

static void
a_repetition_never_queues(void **state)
{
	(void) state;
	permit_id("a", 5, 10, BYTES("id"));
	assert_int_equal(acquire_behind("a", LEASE_PERMIT, 1, BYTES("id")),
					 LEASE_REPLAYED);
	set_up(state);
	exclusive_id("a", 10, BYTES("id"));
	assert_int_equal(acquire_behind("a", LEASE_EXCLUSIVE, 0, BYTES("id")),
					 LEASE_REPLAYED);
}

static void
misuse_does_not_queue(void **state)
{
	(void) state;
	shared("a", 10);
	assert_int_equal(acquire_behind("a", LEASE_EXCLUSIVE, 0, NO_BYTES),
					 LEASE_UPGRADE);
	assert_int_equal(acquire_behind("a", LEASE_PERMIT, 5, NO_BYTES),
					 LEASE_MIXED);
}

static void
the_queue_is_nothing_to_renewal_and_release(void **state)
{
	lease_request request = {
		.owner = BYTES("a"), .behind = true, .ttl_us = 20
	};

	(void) state;
	exclusive("a", 10);
	request.op = LEASE_RENEW;
	assert_int_equal(apply(request), LEASE_RENEWED);
	request.op = LEASE_RELEASE;
	assert_int_equal(apply(request), LEASE_RELEASED);
}

/*
 * Rule 11: guard
 */

static void
a_guard_keeps_strangers_out_after_the_deadline(void **state)
{
	(void) state;
	exclusive("a", 10);
	name[0].guarded = 1;
	now_us += 1000;
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(shared("b", 10), LEASE_BUSY);
	assert_int_equal(permit("b", 9, 10), LEASE_BUSY);
	name[0].guarded = 0;
	assert_int_equal(exclusive("b", 10), LEASE_GRANTED);
}

static void
a_guard_does_not_make_a_lease_live(void **state)
{
	uint64_t	token;

	(void) state;
	exclusive("a", 10);
	token = answer.token;
	name[0].guarded = 1;
	now_us += 10;
	assert_int_equal(renew("a", 10, token), LEASE_NOT_HELD);
	assert_int_equal(release("a", token), LEASE_NOT_HELD);
	assert_int_equal(evict(""), LEASE_NOT_HELD);
	assert_int_equal(renew("b", 10, 0), LEASE_NOT_HELD);
}

static void
a_guard_keeps_strangers_out_after_release_eviction_and_reaping(void **state)
{
	for (int end = 0; end < 4; end++)
	{
		set_up(state);
		delay_us = end == 3 ? 100 : 0;
		exclusive("a", 10);
		name[0].guarded = 1;
		if (end == 0)
			assert_int_equal(release("a", 0), LEASE_RELEASED);
		else if (end == 1)
			assert_int_equal(evict(""), LEASE_RELEASED);
		else
		{
			now_us += 10 + delay_us;
			assert_int_equal(reap(), LEASE_RELEASED);
		}
		assert_int_equal(count, 1);
		assert_int_equal(name[0].life, LEASE_PINNED);
		assert_int_equal(exclusive("b", 10), LEASE_BUSY);
		assert_int_equal(shared("b", 10), LEASE_BUSY);
		assert_int_equal(permit("b", 9, 10), LEASE_BUSY);
		/* Nothing is held, though. */
		assert_int_equal(renew("a", 10, 0), LEASE_NOT_HELD);
	}
}

static void
a_guard_does_not_keep_its_own_holder_out(void **state)
{
	for (int mode = LEASE_MODE_FIRST; mode <= LEASE_MODE_LAST; mode++)
		for (int acts = 0; acts < 2; acts++)
		{
			lease_standing standing = acts ? LEASE_ACTS_FOR : LEASE_SELF;

			set_up(state);
			place("a", LEASE_EXCLUSIVE, standing, now_us)->guarded = 1;
			assert_int_equal(apply(acquire_request(BYTES("a"),
												   (lease_mode) mode, 1, 10,
												   NO_BYTES)), LEASE_GRANTED);
			/* The guard is still there for the others. */
			assert_int_equal(count, 2);
			assert_int_equal(name[0].life, LEASE_PINNED);
			assert_int_equal(shared("b", 10), LEASE_BUSY);
			assert_int_equal(drop("a", 0), LEASE_RELEASED);
			assert_int_equal(shared("b", 10), LEASE_BUSY);

			set_up(state);
			place_pinned("a", LEASE_EXCLUSIVE, standing, 1);
			assert_int_equal(apply(acquire_request(BYTES("a"),
												   (lease_mode) mode, 1, 10,
												   NO_BYTES)), LEASE_GRANTED);
			assert_int_equal(shared("b", 10), LEASE_BUSY);
		}
}

static void
the_guard_of_a_stranger_with_the_same_owner_keeps_out(void **state)
{
	(void) state;
	place("a", LEASE_EXCLUSIVE, LEASE_STRANGER, now_us)->guarded = 1;
	assert_int_equal(shared("a", 10), LEASE_BUSY);
	set_up(state);
	place_pinned("a", LEASE_EXCLUSIVE, LEASE_STRANGER, 1);
	assert_int_equal(shared("a", 10), LEASE_BUSY);
}

static void
a_shared_guard_does_not_keep_shared_newcomers_out(void **state)
{
	for (int pinned = 0; pinned < 2; pinned++)
	{
		set_up(state);
		place("a", LEASE_SHARED, LEASE_STRANGER, now_us)->guarded = 1;
		if (pinned)
			name[0].life = LEASE_PINNED;
		assert_int_equal(exclusive("b", 10), LEASE_BUSY);
		assert_int_equal(permit("b", 9, 10), LEASE_BUSY);
		assert_int_equal(shared("b", 10), LEASE_GRANTED);
		assert_int_equal(count, 2);
		/* Its row is cleared away, if there was one; the guard stays. */
		assert_int_equal(name[0].change, pinned ?
						 LEASE_UNCHANGED : LEASE_EXPIRED);
		assert_int_equal(name[0].life, LEASE_PINNED);
		assert_int_equal(release("b", 0), LEASE_RELEASED);
		assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	}
}

static void
guarded_permits_count_though_they_are_over(void **state)
{
	for (int pinned = 0; pinned < 2; pinned++)
	{
		set_up(state);
		place("a", LEASE_PERMIT, LEASE_STRANGER, now_us)->guarded = 2;
		name[0].version = 7;
		if (pinned)
			name[0].life = LEASE_PINNED;
		assert_int_equal(exclusive("b", 10), LEASE_BUSY);
		assert_int_equal(shared("b", 10), LEASE_BUSY);
		assert_int_equal(permit("b", 2, 10), LEASE_BUSY);
		assert_int_equal(permit("b", 3, 10), LEASE_GRANTED);
		assert_int_equal(permit("b", 3, 10), LEASE_BUSY);
		assert_int_equal(permit("b", 4, 10), LEASE_REENTERED);
		assert_int_equal(permit("c", 4, 10), LEASE_BUSY);
	}
}

static void
a_permit_holder_counts_by_its_holds_or_its_guard(void **state)
{
	(void) state;
	permit("a", 9, 10);
	permit("a", 9, 10);
	permit("a", 9, 10);
	name[0].guarded = 3;
	/* Released permits that are guarded are not free yet. */
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(name[0].version, 1);
	assert_int_equal(permit("b", 3, 10), LEASE_BUSY);
	assert_int_equal(permit("b", 4, 10), LEASE_GRANTED);
	/* Nor are those taken after the guard. */
	set_up(state);
	permit("a", 9, 10);
	name[0].guarded = 1;
	permit("a", 9, 10);
	permit("a", 9, 10);
	assert_int_equal(permit("b", 3, 10), LEASE_BUSY);
	assert_int_equal(permit("b", 4, 10), LEASE_GRANTED);
}

static void
its_own_guard_takes_no_permit_from_a_holder(void **state)
{
	(void) state;
	permit("a", 2, 10);
	permit("a", 2, 10);
	name[0].guarded = 2;
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	/* To wait here would be to wait for one's own transaction. */
	assert_int_equal(permit("a", 2, 10), LEASE_REENTERED);
	assert_int_equal(permit("a", 2, 10), LEASE_BUSY);
	assert_int_equal(permit("b", 2, 10), LEASE_BUSY);
	/* The same when nothing but the guard is left. */
	assert_int_equal(drop("a", 0), LEASE_RELEASED);
	assert_int_equal(name[0].life, LEASE_PINNED);
	assert_int_equal(permit("b", 2, 10), LEASE_BUSY);
	assert_int_equal(permit("a", 2, 10), LEASE_GRANTED);
	assert_int_equal(permit("a", 2, 10), LEASE_REENTERED);
	assert_int_equal(permit("a", 2, 10), LEASE_BUSY);
}

static void
sums_with_guarded_permits_do_not_wrap(void **state)
{
	(void) state;
	for (int i = 0; i < 3; i++)
		place_pinned("a", LEASE_PERMIT, LEASE_STRANGER, LEASE_VERSION_MAX);
	assert_int_equal(permit("b", LEASE_VERSION_MAX, 10), LEASE_BUSY);
}

static void
a_pinned_holder_never_changes(void **state)
{
	uint64_t	token = place_pinned("a", LEASE_SHARED, LEASE_SELF, 1)->token;
	lease_holder was = name[0];

	(void) state;
	delay_us = 100;
	assert_int_equal(renew("a", 10, token), LEASE_NOT_HELD);
	assert_int_equal(release("a", token), LEASE_NOT_HELD);
	assert_int_equal(drop("a", 0), LEASE_NOT_HELD);
	assert_int_equal(evict("a"), LEASE_NOT_HELD);
	assert_int_equal(evict(""), LEASE_NOT_HELD);
	assert_int_equal(reap(), LEASE_NOT_HELD);
	assert_int_equal(shared("b", 10), LEASE_GRANTED);
	assert_int_equal(name[0].change, LEASE_UNCHANGED);
	assert_int_equal(shared("a", 10), LEASE_GRANTED);
	assert_int_equal(name[0].change, LEASE_UNCHANGED);
	assert_int_equal(count, 3);
	assert_int_equal(evict(""), LEASE_RELEASED);
	assert_int_equal(answer.changed, 2);
	assert_int_equal(count, 1);
	assert_same_holders(&was, name, 1);
}

static void
a_live_holder_is_guarded_without_a_difference(void **state)
{
	(void) state;
	exclusive("a", 10);
	name[0].guarded = 1;
	assert_int_equal(exclusive("a", 20), LEASE_REENTERED);
	assert_int_equal(renew("a", 30, 0), LEASE_RENEWED);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(name[0].guarded, 1);
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
}

/*
 * Rule 12: lock delay
 */

static void
the_lock_delay_keeps_strangers_out_to_its_last_microsecond(void **state)
{
	(void) state;
	delay_us = 5;
	exclusive("a", 10);
	now_us += 10;
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(shared("b", 10), LEASE_BUSY);
	assert_int_equal(permit("b", 9, 10), LEASE_BUSY);
	now_us += 4;
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	now_us += 1;
	assert_int_equal(exclusive("b", 10), LEASE_GRANTED);
	assert_int_equal(count, 1);
}

static void
the_lock_delay_does_not_make_a_lease_live(void **state)
{
	uint64_t	token;

	(void) state;
	delay_us = 100;
	exclusive("a", 10);
	token = answer.token;
	now_us += 10;
	assert_int_equal(renew("a", 10, token), LEASE_NOT_HELD);
	assert_int_equal(release("a", token), LEASE_NOT_HELD);
	assert_int_equal(drop("a", 0), LEASE_NOT_HELD);
	assert_int_equal(release("b", 0), LEASE_NOT_HELD);
	assert_int_equal(count, 1);
}

static void
the_lock_delay_is_nothing_to_its_own_holder(void **state)
{
	for (int acts = 0; acts < 2; acts++)
		for (int mode = LEASE_MODE_FIRST; mode <= LEASE_MODE_LAST; mode++)
		{
			set_up(state);
			delay_us = 100;
			place("a", LEASE_EXCLUSIVE, acts ? LEASE_ACTS_FOR : LEASE_SELF,
				  now_us - 1);
			assert_int_equal(apply(acquire_request(BYTES("a"),
												   (lease_mode) mode, 1, 10,
												   NO_BYTES)), LEASE_GRANTED);
			assert_int_equal(answer.token, 102);
			assert_int_equal(answer.changed, 2);
			assert_int_equal(count, 1);
		}
	set_up(state);
	delay_us = 100;
	place("a", LEASE_EXCLUSIVE, LEASE_STRANGER, now_us - 1);
	assert_int_equal(exclusive("a", 10), LEASE_BUSY);
}

static void
others_rows_stay_for_the_lock_delay_when_a_name_is_granted(void **state)
{
	(void) state;
	delay_us = 5;
	shared("a", 10);
	shared("b", 12);
	now_us += 14;
	/* That of "a" is 4 over, that of "b" 2. */
	assert_int_equal(shared("c", 10), LEASE_GRANTED);
	assert_int_equal(count, 3);
	now_us += 1;
	assert_int_equal(shared("d", 10), LEASE_GRANTED);
	assert_null(holder_of("a"));
	assert_non_null(holder_of("b"));
	/* The own goes at once. */
	assert_int_equal(shared("b", 10), LEASE_GRANTED);
	assert_int_equal(answer.changed, 2);
	assert_int_equal(count, 3);
}

static void
permits_count_for_the_lock_delay(void **state)
{
	(void) state;
	delay_us = 5;
	permit("a", 9, 10);
	permit("a", 9, 10);
	name[0].guarded = 1;
	now_us += 10;
	assert_int_equal(permit("b", 2, 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, now_us + 5);
	assert_int_equal(permit("a", 1, 10), LEASE_GRANTED);
	set_up(state);
	delay_us = 5;
	permit("a", 9, 10);
	permit("a", 9, 10);
	name[0].guarded = 1;
	now_us += 15;
	/* From then on the guard alone counts. */
	assert_int_equal(permit("b", 1, 10), LEASE_BUSY);
	assert_int_equal(permit("b", 2, 10), LEASE_GRANTED);
}

static void
the_reaper_leaves_rows_for_the_lock_delay(void **state)
{
	(void) state;
	delay_us = 5;
	exclusive("a", 10);
	now_us += 14;
	assert_int_equal(reap(), LEASE_NOT_HELD);
	assert_int_equal(count, 1);
	now_us += 1;
	assert_int_equal(reap(), LEASE_RELEASED);
	assert_int_equal(count, 0);
	/* Not even the rows of the owner that a request happens to name. */
	exclusive("a", 10);
	now_us += 10;
	assert_int_equal(apply((lease_request) {
		.op = LEASE_REAP, .owner = BYTES("a"), .delay_us = delay_us,
	}), LEASE_NOT_HELD);
}

static void
eviction_cuts_the_lock_delay_short(void **state)
{
	(void) state;
	delay_us = 5;
	shared("a", 10);
	shared("b", 10);
	now_us += 14;
	assert_int_equal(evict("c"), LEASE_NOT_YOURS);
	assert_int_equal(evict("b"), LEASE_RELEASED);
	assert_int_equal(answer.changed, 1);
	assert_int_equal(exclusive("c", 10), LEASE_BUSY);
	assert_int_equal(evict(""), LEASE_RELEASED);
	assert_int_equal(count, 0);
	assert_int_equal(exclusive("c", 10), LEASE_GRANTED);
	/* What is over and not delayed is the reaper's. */
	now_us += 15;
	assert_int_equal(evict(""), LEASE_NOT_HELD);
	assert_int_equal(count, 1);
}

static void
release_and_eviction_leave_no_delay(void **state)
{
	(void) state;
	delay_us = 100;
	exclusive("a", 10);
	assert_int_equal(release("a", 0), LEASE_RELEASED);
	assert_int_equal(exclusive("b", 10), LEASE_GRANTED);
	assert_int_equal(drop("b", 0), LEASE_RELEASED);
	assert_int_equal(exclusive("a", 10), LEASE_GRANTED);
	assert_int_equal(evict("a"), LEASE_RELEASED);
	assert_int_equal(exclusive("b", 10), LEASE_GRANTED);
}

static void
the_loss_of_a_session_is_followed_by_the_delay(void **state)
{
	(void) state;
	delay_us = 5;
	acquire_kind("a", LEASE_EXCLUSIVE, LEASE_SESSION, NO_BYTES);
	name[0].life = LEASE_TIMED;
	name[0].deadline_us = now_us;
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, now_us + 5);
	now_us += 5;
	assert_int_equal(exclusive("b", 10), LEASE_GRANTED);
}

static void
the_lock_delay_may_be_changed_at_any_time(void **state)
{
	(void) state;
	exclusive("a", 10);
	now_us += 20;
	delay_us = 11;
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	delay_us = 10;
	assert_int_equal(exclusive("b", 10), LEASE_GRANTED);
}

static void
the_longest_lock_delay_fits_any_time(void **state)
{
	(void) state;
	delay_us = LEASE_TTL_MAX_US;
	now_us = INT64_MIN;
	place("a", LEASE_EXCLUSIVE, LEASE_STRANGER, INT64_MIN);
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, INT64_MIN + LEASE_TTL_MAX_US);
	now_us = answer.retry_us;
	assert_int_equal(exclusive("b", 10), LEASE_GRANTED);
	set_up(state);
	delay_us = LEASE_TTL_MAX_US;
	now_us = INT64_MAX - LEASE_TTL_MAX_US;
	assert_int_equal(exclusive("a", LEASE_TTL_MAX_US), LEASE_GRANTED);
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, INT64_MAX);
}

/*
 * When to come back
 */

static void
busy_says_when_the_first_deadline_changes_something(void **state)
{
	(void) state;
	shared("a", 30);
	shared("b", 10);
	shared("c", 20);
	assert_int_equal(exclusive("d", 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, now_us + 10);
	now_us += 10;
	assert_int_equal(exclusive("d", 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, now_us + 10);
}

static void
busy_says_when_the_lock_delay_has_gone_by(void **state)
{
	(void) state;
	delay_us = 5;
	exclusive("a", 10);
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, now_us + 15);
	now_us += 12;
	assert_int_equal(exclusive("b", 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, now_us + 3);
}

static void
no_delay_is_waited_for_after_an_own_deadline(void **state)
{
	(void) state;
	delay_us = 5;
	permit("a", 2, 10);
	permit("b", 2, 100);
	assert_int_equal(permit("a", 2, 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, now_us + 10);
	assert_int_equal(permit("c", 2, 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, now_us + 15);
	assert_int_equal(permit("b", 2, 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, now_us + 15);
}

static void
an_own_delay_is_no_time_to_come_back_at(void **state)
{
	(void) state;
	delay_us = 5;
	shared("a", 10);
	shared("b", 100);
	now_us += 12;
	assert_int_equal(exclusive("a", 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, now_us + 93);
	assert_int_equal(exclusive("c", 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, now_us + 3);
}

static void
who_waits_for_an_event_is_told_no_time(void **state)
{
	(void) state;
	delay_us = 5;
	place_bound("a", LEASE_SHARED, LEASE_SESSION);
	place_bound("b", LEASE_SHARED, LEASE_TRANSACTION)->deadline_us = now_us + 1;
	place("c", LEASE_SHARED, LEASE_STRANGER, now_us - 10)->guarded = 1;
	place_pinned("d", LEASE_SHARED, LEASE_STRANGER, 1);
	assert_int_equal(exclusive("e", 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, INT64_MAX);
	place("f", LEASE_SHARED, LEASE_STRANGER, now_us + 7);
	assert_int_equal(exclusive("e", 10), LEASE_BUSY);
	assert_int_equal(answer.retry_us, now_us + 12);
}

static void
only_busy_says_when_to_come_back(void **state)
{
	(void) state;
	assert_int_equal(shared("a", 10), LEASE_GRANTED);
	assert_int_equal(answer.retry_us, INT64_MAX);
	assert_int_equal(exclusive("a", 10), LEASE_UPGRADE);
	assert_int_equal(answer.retry_us, INT64_MAX);
	assert_int_equal(release("b", 0), LEASE_NOT_YOURS);
	assert_int_equal(answer.retry_us, INT64_MAX);
}

/*
 * The array
 */

static void
holders_may_come_in_any_order(void **state)
{
	/* All orders of: own, acted for, a stranger's, and one that is over. */
	for (int order = 0; order < 24; order++)
	{
		int			digits = order;

		set_up(state);
		place("a", LEASE_PERMIT, LEASE_SELF, now_us + 10)->version = 2;
		place("a", LEASE_PERMIT, LEASE_ACTS_FOR, now_us + 10);
		place("b", LEASE_PERMIT, LEASE_STRANGER, now_us + 10);
		place("c", LEASE_PERMIT, LEASE_STRANGER, now_us)->version = 9;
		for (int i = 4; i > 1; i--)
		{
			lease_holder moved = name[digits % i];

			name[digits % i] = name[i - 1];
			name[i - 1] = moved;
			digits /= i;
		}
		assert_int_equal(permit("a", 4, 10), LEASE_BUSY);
		assert_int_equal(permit("d", 4, 10), LEASE_BUSY);
		assert_int_equal(permit("a", 5, 10), LEASE_REENTERED);
		assert_int_equal(answer.token, 101);
		assert_int_equal(permit("d", 6, 10), LEASE_GRANTED);
		assert_int_equal(answer.changed, 2);
		assert_int_equal(drop("a", 0), LEASE_RELEASED);
		assert_int_equal(answer.token, 101);
		assert_int_equal(drop("a", 0), LEASE_RELEASED);
		assert_int_equal(answer.token, 102);
		assert_int_equal(count, 2);
	}
}

/*
 * Pass the holders one at a time, which lease.h allows for these operations,
 * and return how many of them changed.
 */
static size_t
walk(lease_request request)
{
	size_t		changed = 0;

	for (size_t i = 0; i < count; i++)
		changed += lease_apply(&request, &name[i], 1, now_us).changed;
	return changed;
}

static void
holders_may_be_passed_one_at_a_time(void **state)
{
	(void) state;
	place("a", LEASE_SHARED, LEASE_SELF, now_us + 10)->version = 3;
	place("a", LEASE_SHARED, LEASE_ACTS_FOR, now_us + 10);
	place("a", LEASE_SHARED, LEASE_STRANGER, now_us + 10);
	place("b", LEASE_SHARED, LEASE_SELF, now_us + 10);
	place("a", LEASE_SHARED, LEASE_SELF, now_us);
	assert_int_equal(walk((lease_request) {
		.op = LEASE_RENEW, .owner = BYTES("a"), .ttl_us = 5,
	}), 2);
	assert_int_equal(name[0].deadline_us, now_us + 5);
	assert_int_equal(name[1].deadline_us, now_us + 5);
	assert_int_equal(name[2].deadline_us, now_us + 10);
	assert_int_equal(walk((lease_request) {.op = LEASE_REAP}), 1);
	assert_int_equal(name[4].change, LEASE_EXPIRED);
	assert_int_equal(walk((lease_request) {
		.op = LEASE_DROP, .owner = BYTES("a"),
	}), 2);
	assert_int_equal(name[0].change, LEASE_ENDED);
	assert_int_equal(name[1].change, LEASE_ENDED);
	assert_int_equal(name[2].change, LEASE_UNCHANGED);
}

#define TEST(function)	cmocka_unit_test_setup(function, set_up)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		/* ranges and bytes */
		TEST(strings_are_1_to_255_bytes),
		TEST(ttl_is_above_zero_and_at_most_a_billion_seconds),
		TEST(strings_are_the_same_byte_for_byte),
		TEST(nul_bytes_count),
		TEST(empty_strings_need_no_data),
		TEST(owners_that_differ_after_a_nul_are_different_holders),
		TEST(owners_of_255_bytes_are_compared_to_the_last),
		/* rule 1: exclusion */
		TEST(a_free_name_is_granted_in_any_mode),
		TEST(an_exclusive_holder_excludes_everybody_else),
		TEST(shared_holders_admit_one_another),
		TEST(shared_holders_exclude_exclusive_and_permits),
		TEST(permits_exclude_exclusive_and_shared),
		TEST(permits_are_granted_below_the_limit),
		TEST(each_caller_is_judged_by_its_own_limit),
		TEST(every_permit_of_a_holder_counts),
		TEST(expired_permits_do_not_count),
		TEST(a_sum_of_permits_does_not_wrap),
		/* rule 2: lease */
		TEST(a_hold_lasts_to_the_last_microsecond),
		TEST(a_hold_is_over_once_its_deadline_has_come),
		TEST(renewing_or_releasing_afterwards_does_nothing_and_says_so),
		TEST(afterwards_a_name_held_by_another_is_not_yours),
		TEST(a_name_never_held_is_held_by_nobody),
		TEST(an_over_holder_acquires_anew),
		TEST(a_grant_clears_away_all_that_is_over_and_nothing_else),
		TEST(a_refusal_leaves_what_is_over_alone),
		TEST(marks_left_by_the_last_call_are_forgotten),
		TEST(the_longest_ttl_is_granted_to_the_microsecond),
		/* rule 3: re-entry */
		TEST(acquiring_again_adds_a_hold_and_keeps_the_token),
		TEST(re_entry_extends_the_deadline),
		TEST(re_entry_never_shrinks_the_deadline),
		TEST(each_release_gives_one_hold_back),
		TEST(a_release_leaves_the_deadline),
		TEST(re_entry_leaves_other_holders_alone),
		TEST(a_permit_holder_takes_one_more_permit),
		TEST(a_permit_of_limit_1_is_a_mutex_without_re_entry),
		TEST(a_shared_acquire_by_the_exclusive_holder_is_a_re_entry),
		TEST(an_exclusive_acquire_by_a_shared_holder_is_misuse),
		TEST(permits_and_the_rest_do_not_mix_in_one_holder),
		TEST(no_misuse_after_the_deadline),
		TEST(holds_end_at_version_max),
		TEST(permits_end_at_version_max),
		TEST(the_longest_count_of_holds_drops_at_once),
		/* rule 4: request id */
		TEST(a_repeated_request_id_adds_no_hold),
		TEST(a_repeated_request_id_extends_the_deadline),
		TEST(only_the_id_of_the_last_acquire_counts),
		TEST(an_acquire_without_id_is_never_a_repetition),
		TEST(an_acquire_without_id_is_the_last_acquire_too),
		TEST(a_refused_acquire_leaves_the_id),
		TEST(release_and_renewal_leave_the_id),
		TEST(request_ids_are_compared_byte_for_byte),
		TEST(the_request_id_of_another_owner_is_no_repetition),
		TEST(a_repeated_permit_needs_no_room),
		TEST(a_repetition_at_version_max_is_answered),
		TEST(a_request_id_does_not_excuse_misuse),
		/* rule 5: token */
		TEST(a_grant_hands_out_the_next_token),
		TEST(the_last_token_is_granted),
		TEST(grants_beyond_the_last_token_are_refused),
		TEST(a_holder_goes_on_when_tokens_have_run_out),
		TEST(the_right_token_or_none_finds_the_holder),
		TEST(a_wrong_token_is_not_yours),
		TEST(a_token_of_an_earlier_lease_is_not_yours),
		TEST(the_token_of_another_owner_is_not_yours),
		/* renewal and drop */
		TEST(renewal_sets_the_deadline_sooner_or_later),
		TEST(renewal_leaves_holds_token_and_mode),
		TEST(drop_gives_all_holds_of_one_holder_back),
		/* principals */
		TEST(a_stranger_with_the_same_owner_is_another_holder),
		TEST(a_principal_acts_for_one_whose_privileges_it_has),
		TEST(acting_for_another_still_takes_the_same_owner),
		TEST(its_own_holder_comes_first),
		TEST(then_comes_the_lowest_token),
		TEST(a_token_overrides_the_preference),
		TEST(a_holder_that_is_over_is_not_found),
		TEST(nothing_is_found_among_none),
		TEST(misuse_is_judged_by_the_holder_acted_for),
		/* eviction and the reaper */
		TEST(eviction_ends_all_live_holders_whoever_they_are),
		TEST(eviction_of_an_owner_ends_all_its_holders),
		TEST(nobody_is_evicted_after_the_deadline),
		TEST(an_evicted_holder_has_nothing_left),
		TEST(the_reaper_ends_exactly_what_is_over),
		TEST(the_reaper_says_when_there_is_nothing_to_reap),
		/* rule 3: kinds */
		TEST(a_lease_is_of_the_kind_that_was_asked_for),
		TEST(kinds_do_not_mix_in_one_holder),
		TEST(a_request_id_does_not_excuse_mixing_kinds),
		TEST(mixing_kinds_is_misuse_whoever_waits_and_however_full),
		TEST(kinds_mix_among_holders),
		TEST(kinds_are_judged_by_the_holder_acted_for),
		TEST(a_lease_that_is_over_has_no_kind_to_mix_with),
		/* lives */
		TEST(a_bound_holder_is_renewed_released_and_evicted_as_any),
		TEST(a_bound_holder_outlives_any_ttl),
		TEST(the_end_of_a_transaction_counts_as_a_release),
		TEST(nothing_speaks_for_a_transaction_that_has_ended),
		TEST(a_guard_outlives_the_transaction_that_took_the_lease),
		/* rule 8: queue */
		TEST(a_newcomer_does_not_overtake_the_queue),
		TEST(who_was_a_holder_queues_like_a_newcomer),
		TEST(re_entry_never_queues),
		TEST(one_more_permit_queues),
		TEST(a_repetition_never_queues),
		TEST(misuse_does_not_queue),
		TEST(the_queue_is_nothing_to_renewal_and_release),
		/* rule 11: guard */
		TEST(a_guard_keeps_strangers_out_after_the_deadline),
		TEST(a_guard_does_not_make_a_lease_live),
		TEST(a_guard_keeps_strangers_out_after_release_eviction_and_reaping),
		TEST(a_guard_does_not_keep_its_own_holder_out),
		TEST(the_guard_of_a_stranger_with_the_same_owner_keeps_out),
		TEST(a_shared_guard_does_not_keep_shared_newcomers_out),
		TEST(guarded_permits_count_though_they_are_over),
		TEST(a_permit_holder_counts_by_its_holds_or_its_guard),
		TEST(its_own_guard_takes_no_permit_from_a_holder),
		TEST(sums_with_guarded_permits_do_not_wrap),
		TEST(a_pinned_holder_never_changes),
		TEST(a_live_holder_is_guarded_without_a_difference),
		/* rule 12: lock delay */
		TEST(the_lock_delay_keeps_strangers_out_to_its_last_microsecond),
		TEST(the_lock_delay_does_not_make_a_lease_live),
		TEST(the_lock_delay_is_nothing_to_its_own_holder),
		TEST(others_rows_stay_for_the_lock_delay_when_a_name_is_granted),
		TEST(permits_count_for_the_lock_delay),
		TEST(the_reaper_leaves_rows_for_the_lock_delay),
		TEST(eviction_cuts_the_lock_delay_short),
		TEST(release_and_eviction_leave_no_delay),
		TEST(the_loss_of_a_session_is_followed_by_the_delay),
		TEST(the_lock_delay_may_be_changed_at_any_time),
		TEST(the_longest_lock_delay_fits_any_time),
		/* when to come back */
		TEST(busy_says_when_the_first_deadline_changes_something),
		TEST(busy_says_when_the_lock_delay_has_gone_by),
		TEST(no_delay_is_waited_for_after_an_own_deadline),
		TEST(an_own_delay_is_no_time_to_come_back_at),
		TEST(who_waits_for_an_event_is_told_no_time),
		TEST(only_busy_says_when_to_come_back),
		/* the array */
		TEST(holders_may_come_in_any_order),
		TEST(holders_may_be_passed_one_at_a_time),
	};

	return cmocka_run_group_tests_name("core/lease", tests, NULL, NULL);
}
