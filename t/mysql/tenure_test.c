/*
 * tenure_test.c
 *	  When a checkpoint is due: by the journal's size and age, by the time that checkpoints
 *	  take, and by those who wait for one.
 *
 * lease_tenure.c is included here, with a clock and an image of the test's own.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "../../mysql_udf/lease_tenure.c"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define SECOND	INT64_C(1000000)

static int64_t clock_us;

int64_t
lease_now(void)
{
	return clock_us;
}

bool
image_is_valid(void)
{
	return true;
}

void
image_forget(void)
{
}

void
image_forget_all(void)
{
}

/* How long it is until the next piece is due. */
static int64_t
due_in(void)
{
	return lease_checkpoint_due_us() - clock_us;
}

/* A run that has taken over, with nothing in its journal; its last checkpoint took long. */
static void
begin(int64_t took_us)
{
	memset(&now, 0, sizeof(now));
	clock_us = 1000 * SECOND;
	now.checkpoint_us = INT64_MAX;
	lease_note_taken_over(true, false);
	now.checkpoint_took_us = took_us;
}

/* A checkpoint of all that is in the journal, in two pieces. */
static void
checkpoint(int64_t took_us, bool carries)
{
	lease_begin_checkpoint();
	for (int i = 0; i < 2; i++)
	{
		lease_checkpoint_now();
		clock_us += took_us / 2;
		lease_note_piece(took_us / 2, carries && i == 0);
	}
	lease_note_applied();
}

static void
is_due_by_age(void **state)
{
	(void) state;
	begin(0);
	assert_int_equal(lease_checkpoint_due_us(), INT64_MAX);
	lease_note_appended(1, 100);
	assert_int_equal(due_in(), SECOND);
	clock_us += 300000;
	lease_note_appended(1, 100);
	assert_int_equal(due_in(), 700000);

	/* they take at most a 200th of the time, and the journal is never older than 20 s */
	begin(25000);
	lease_note_appended(1, 100);
	assert_int_equal(due_in(), 5 * SECOND);
	begin(SECOND);
	lease_note_appended(1, 100);
	assert_int_equal(due_in(), 20 * SECOND);
}

static void
is_due_by_size(void **state)
{
	(void) state;
	begin(SECOND);
	lease_note_appended(1999, 100);
	assert_int_equal(due_in(), 20 * SECOND);
	lease_note_appended(1, 100);
	assert_true(due_in() <= 0);
	begin(SECOND);
	lease_note_appended(1, 3999999);
	assert_int_equal(due_in(), 20 * SECOND);
	lease_note_appended(1, 1);
	assert_true(due_in() <= 0);
}

/* What comes while a checkpoint is under way waits for the next one. */
static void
is_due_after_another(void **state)
{
	(void) state;
	begin(0);
	lease_note_appended(10, 1000);
	lease_begin_checkpoint();
	lease_checkpoint_now();
	lease_note_appended(1, 100);
	lease_note_piece(2000, false);
	assert_true(due_in() <= 0);
	lease_note_applied();
	assert_false(lease_is_settled());
	assert_int_equal(lease_applied(), 10);
	assert_int_equal(due_in(), SECOND);

	lease_begin_checkpoint();
	lease_note_appended(2000, 1000);
	lease_note_piece(2000, false);
	lease_note_applied();
	assert_true(due_in() <= 0);

	/* what is carried forward is tried again after a second, however much it is */
	begin(0);
	lease_note_appended(2000, 1000);
	lease_begin_checkpoint();
	lease_note_piece(2000, true);
	lease_note_appended(2000, 1000);
	lease_note_applied();
	assert_int_equal(due_in(), SECOND);
}

/* Callers who wait for checkpoints have at most a twentieth of the time of them. */
static void
is_due_for_callers(void **state)
{
	(void) state;
	begin(0);
	lease_note_appended(1, 100);
	lease_checkpoint_soon();
	assert_true(due_in() <= 0);
	checkpoint(10000, false);
	assert_int_equal(lease_checkpoint_due_us(), INT64_MAX);
	lease_note_appended(1, 100);
	lease_checkpoint_soon();
	assert_int_equal(due_in(), 190000);
	clock_us += 30000;
	lease_checkpoint_soon();
	assert_int_equal(due_in(), 160000);

	/* but none waits for longer than a second */
	checkpoint(5 * SECOND, false);
	lease_note_appended(1, 100);
	assert_int_equal(due_in(), 20 * SECOND);
	lease_checkpoint_soon();
	assert_int_equal(due_in(), SECOND);

	/* nor after the time at which it was due without them */
	lease_note_appended(2000, 100);
	lease_checkpoint_soon();
	assert_true(due_in() <= 0);

	/* one that is under way goes on */
	checkpoint(10000, false);
	lease_note_appended(1, 100);
	lease_begin_checkpoint();
	lease_checkpoint_now();
	lease_checkpoint_soon();
	assert_true(due_in() <= 0);
}

/* Nobody is answered while a piece is tried: one that failed is tried after a second. */
static void
is_due_after_failure(void **state)
{
	(void) state;
	begin(0);
	lease_note_appended(1, 100);
	lease_begin_checkpoint();
	lease_checkpoint_now();
	lease_checkpoint_later();
	assert_int_equal(due_in(), SECOND);
	for (int i = 0; i < 10; i++)
	{
		clock_us += 50000;
		lease_checkpoint_soon();
		lease_checkpoint_now();
		lease_note_appended(1000, 100);
	}
	assert_int_equal(due_in(), SECOND / 2);

	/* the same if it was found out before one began */
	begin(0);
	lease_note_appended(1, 100);
	clock_us += 900000;
	lease_checkpoint_later();
	lease_checkpoint_soon();
	assert_int_equal(due_in(), SECOND);

	/* nor does a journal that becomes large bring it forward */
	lease_note_appended(2000, 100);
	assert_int_equal(due_in(), SECOND);
	clock_us += SECOND;
	lease_checkpoint_now();
	assert_true(due_in() <= 0);
}

static void
is_not_due(void **state)
{
	(void) state;
	begin(0);
	lease_note_appended(2000, 100);
	lease_doubt();
	assert_int_equal(lease_checkpoint_due_us(), INT64_MAX);
	lease_end_doubt();
	assert_int_equal(lease_checkpoint_due_us(), INT64_MAX);
	lease_note_taken_over(true, false);
	assert_int_equal(lease_checkpoint_due_us(), INT64_MAX);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_due_by_age),
		cmocka_unit_test(is_due_by_size),
		cmocka_unit_test(is_due_after_another),
		cmocka_unit_test(is_due_for_callers),
		cmocka_unit_test(is_due_after_failure),
		cmocka_unit_test(is_not_due),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("tenure", tests, NULL, NULL);
}
