/*
 * stuck_test.c
 *	  The search for those who are stuck: a table of cases.
 *
 * A case is written as words, each a fact.  Names and owners are letters.
 *
 *	  a=x		owner a holds x, exclusively; a=x/s shared, a=x/2 two permits,
 *				a=x/b for a connection that does not wait; a=x/b@1 for that of
 *				the second waiter (counted from 0); a=x/bs shared
 *	  a!x		a's lease on x is guarded, by a transaction that does not wait;
 *				a!x@1 by that of the second waiter; modes as above; a!x/b@1 if
 *				the lease is that transaction's own.  Put it after a=x, if there
 *				is that; else only the guard is left
 *	  a>x		a stands in line for x; modes as above, permits a>x/1:3 for one
 *				of three
 *	  a~x		a watches x; a~xyz watches several, any of which will do
 *	  a+b>x		a, who takes b's leases for its own, stands in line for x
 *
 * The last waiter is the newcomer.  "stuck" has a letter for each waiter: S if
 * it is stuck.  "circle" has the steps: a-x-b says that a waits for x, which b
 * holds, and a<x<b that a stands behind b.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "stuck_naive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ROOM	32

typedef struct stuck_case
{
	const char *what;
	const char *facts;
	const char *stuck;
	const char *circle;			/* NULL: none */
} stuck_case;

static const stuck_case cases[] = {
	{"nobody holds it: it is about to be granted", "a>x", "-", NULL},
	{"a holder that does not wait", "a=x b>x", "-", NULL},
	{"two in opposite order", "a=x b=y a>y b>x", "SS", "b-x-a a-y-b"},
	{"three", "a=x b=y c=z a>y b>z c>x", "SSS", "c-x-a a-y-b b-z-c"},
	{"a chain is no circle", "a=x b=y b>x c>y", "--", NULL},
	{"behind a circle, and not in it", "a=x b=y a>y b>x c>x", "SSS", NULL},
	{"the shortest circle", "a=x b=y c=z a>y b>z c>y b>x", "SSSS",
	"b-x-a a-y-b"},

	/* modes */
	{"a reader is in a writer's way", "a=x/s b=y a>y b>x", "SS",
	"b-x-a a-y-b"},
	{"one of two readers is enough", "c=x/s a=x/s b=y a>y b>x", "SS",
	"b-x-a a-y-b"},
	{"readers go together", "a=x/s b=y a>y b>x/s", "--", NULL},
	{"a reader is in a permit's way", "a=x/s b=y a>y b>x/1:9", "SS",
	"b-x-a a-y-b"},
	{"a permit is in a reader's way", "a=x/1 b=y a>y b>x/s", "SS",
	"b-x-a a-y-b"},

	/* permits */
	{"the only permit", "a=x/1 b=y a>y b>x/1:1", "SS", "b-x-a a-y-b"},
	{"another permit comes back", "a=x/1 c=x/1 b=y a>y b>x/1:2", "--", NULL},
	{"neither permit comes back", "a=x/1 c=x/1 b=y a>y b>x/1:2 c>y", "SSS",
	"c-y-b b-x-c"},
	{"two of three come back, and three are wanted",
	"a=x/1 c=x/1 d=x/1 b=y a>y b>x/3:3", "SS", "b-x-a a-y-b"},
	{"two of three come back, and two are wanted",
	"a=x/1 c=x/1 d=x/1 b=y a>y b>x/2:3", "--", NULL},
	{"limits differ", "a=x/2 b=y a>y b>x/1:3", "--", NULL},
	{"a permit of its own", "a=x/1 a>x/1:1", "S", "a-x-a"},
	{"one more of its own", "a=x/1 a>x/1:2", "-", NULL},
	{"a permit of its own is in the way of the other",
	"a=x/1 b=x/1 a>x/2:2", "S", "a-x-a"},
	{"permits that leave room are no step of a circle",
	"k=p/2 n=p/1 k=r v=s w=q k>s v>r u>p/2:3 w>p/1:9 n>q", "SSSSS",
	"n-q-w w<p<u u-p-n"},

	/* lines */
	{"behind somebody in line", "a=x/s d=z b>x d>x/s a>z", "SSS",
	"a-z-d d<x<b b-x-a"},
	{"behind somebody who can go on", "a=x c=y b>x c>x", "--", NULL},
	{"those behind are in nobody's way", "a=x b=y b>x c>x a>z", "---", NULL},
	{"behind its own owner", "a=x b>x b>x", "--", NULL},
	{"behind its own owner's waiter, in a circle of its connections",
	"a=x/bs@2 a=z/b@1 a>x a>x/s a>z", "SSS", "a-z-a a<x<a a-x-a"},
	{"the one ahead can go on, and then it can", "a=x/bs a=z/b@1 a>x a>x/s a>z",
	"---", NULL},
	{"what its own transaction has left is in the way of the one ahead",
	"a!x/b@1 a>x a>x", "SS", "a<x<a a-x-a"},
	{"behind another and its own owner", "a=x/s b=y b>x c>x b>x/s a>y", "SSSS",
	"a-y-b b-x-a"},
	{"who watches is behind the line", "a=x b=y c>x b~x a>y", "SSS",
	"a-y-b b-x-a"},
	{"who watches is in nobody's way", "a=x/s b~x c>x/s a=z c=y b>z",
	"---", NULL},

	/* any of several names */
	{"any: one can be had", "a=x b=y a>y b~xz c=z", "--", NULL},
	{"any: stuck for each", "a=x b=y c=z a>y c>y b~xz", "SSS", "b-x-a a-y-b"},
	{"any: as the first who waits", "a=x b=y c=z b~xz a>y c>y", "SSS",
	"c-y-b b-z-c"},
	{"any: one name is only waited for", "a=x b=y a>y b~xz", "--", NULL},
	{"any: behind the line of one, and nobody of the other",
	"a=x b=y a>y c>x b~xz d=z", "---", NULL},

	/* owners with several connections */
	{"an owner is stuck if one of its waiters is",
	"a=x b=y c=w a>y a>w b>x", "S-S", "b-x-a a-y-b"},
	{"its own session's lease ends with that", "a=x/b a>x", "-", NULL},
	{"and is in the way of others", "a=x/b b=y a>y b>x", "SS",
	"b-x-a a-y-b"},
	{"its own session waits for another's", "a=x/b@1 a=y/b@0 a>x a>y", "SS",
	"a-y-a a-x-a"},
	{"its own session waits for itself", "a=x/b@0 a~x", "S", "a-x-a"},
	{"its own session waits for what it can have", "a=x/b@0 b=y a~xy", "-",
	NULL},
	{"its own session waits for somebody who can go on",
	"a=x/b@0 b=y a>y a>x", "--", NULL},
	{"its own session and its other lease", "a=x/b@0 a=z b=y a>y b>z a>x",
	"SSS", "a-x-a a-y-b b-z-a"},
	{"its own session waits as another owner",
	"a=x/b@0 b=y a=z c>y b>z a>x", "SSS", "a-x-a c-y-b b-z-a"},
	{"its own session is in a circle of others",
	"a=x/b@0 b=y c=z c>y b>z a>x", "SSS", NULL},
	{"its own lease otherwise does not", "a=x a>x", "S", "a-x-a"},
	{"another is in its circle already", "a=x b=y b>x a>x d>y", "SSS", NULL},

	/* guards */
	{"a guard is left of a lease", "a!x b=y a>y b>x", "SS", "b-x-a a-y-b"},
	{"its owner's guard is in nobody's way to whom it belongs", "a!x a>x",
	"-", NULL},
	{"its own guard of a reader", "a!x/s b=x/s a>x", "-", NULL},
	{"its own guard of permits", "a!x/1 b=x/1 a>x/1:1", "-", NULL},
	{"others have to wait for that", "a!x b>x a>x", "SS", "a<x<b b-x-a"},
	{"more are guarded than held", "a=x/1 a!x/2 b=y a>y b>x/1:2", "SS",
	"b-x-a a-y-b"},
	{"fewer are guarded than held", "a=x/2 a!x/1 b=y a>y b>x/1:2", "SS",
	"b-x-a a-y-b"},
	{"the guarded ones are not counted twice",
	"a=x/1 a!x/1 b=y a>y b>x/1:2", "--", NULL},
	{"nor for two who guard them", "a!x/1@0 a!x/1@0 b=y c>y b>x/1:2", "--",
	NULL},
	{"a transaction that waits as another owner", "a=x a!x@0 b=y c>y b>x",
	"SS", "b-x-a c-y-b"},
	{"it is the newcomer", "a=x a!x@1 b=y b>x c>y", "SS", "c-y-b b-x-a"},
	{"a guard is all that is left there", "a!x@0 b=y c>y b>x", "SS",
	"b-x-a c-y-b"},
	{"it waits for what it guards", "a=x a!x@0 b>x", "S", "b-x-a"},
	{"it waits behind somebody for what it guards", "a!x@1 b>x c>x", "SS",
	"c-x-a"},
	{"a transaction's guard is in the way of its owner's other ones",
	"a!x/b@0 a=y/b@1 a>y a>x", "SS", "a-x-a a-y-a"},
	{"and not in its own", "a!x/b@0 b=x b=y a>y a>x", "--", NULL},
	{"its transaction can go on", "a!x/b b=y a>y a>x", "--", NULL},
	{"it takes its own anew", "a!x/b@0 a>x", "-", NULL},
	{"it waits for others there", "a!x/b@0 b=x a>x", "-", NULL},
	{"its transaction waits for others, as they for it",
	"a!x/b@0 b=y a>y b>x", "SS", "b-x-a a-y-b"},
	{"its transaction waits in a circle of others",
	"a!x/b@0 b=y c=z c>y b>z a>x", "SSS", NULL},
	{"a guard keeps its mode", "a=x/s a!x b=y a>y b>x/s", "SS",
	"b-x-a a-y-b"},
	{"an idle transaction of an owner that does not wait", "a!x b=y c>y b>x",
	"--", NULL},
	{"it may take another's leases for its own", "b!x/s@0 c=x/s a+b>x", "-",
	NULL},
	{"others may not", "b!x@0 c=y a+b>y c>x", "SS", "c-x-b a-y-c"},
};

/* The facts of a case. */
static stuck_waiter waiters[ROOM];
static stuck_wait waits[ROOM];
static stuck_lease leases[ROOM];
static stuck_guard guards[ROOM];
static stuck_facts facts;

/* Read a mode: nothing, "/s", or permits, perhaps with a limit; after "/b" too. */
static lease_mode
read_mode(const char *word, uint32_t *permits, uint32_t *limit)
{
	const char *slash = strchr(word, '/');
	unsigned	n = 1;
	unsigned	of = 1;

	*permits = *limit = 1;
	if (slash != NULL && slash[1] == 'b')
		slash++;
	if (slash == NULL || slash[1] == '\0' || slash[1] == '@')
		return LEASE_EXCLUSIVE;
	if (slash[1] == 's')
		return LEASE_SHARED;
	assert_true(sscanf(slash, "/%u:%u", &n, &of) > 0);
	*permits = n;
	*limit = of;
	return LEASE_PERMIT;
}

static uint32_t
number(char letter)
{
	assert_true(letter >= 'a' && letter <= 'z');
	return (uint32_t) (letter - 'a');
}

/* Read "a>x", "a+b>x" or "a~xyz". */
static void
read_wait(const char *word)
{
	bool		acts = word[1] == '+';
	const char *name = word + (acts ? 4 : 2);
	uint32_t	permits;
	uint32_t	limit;
	lease_mode	mode = read_mode(word, &permits, &limit);

	waiters[facts.nwaiters] = (stuck_waiter) {
		number(word[0]), acts ? number(word[2]) : STUCK_NONE
	};
	for (; *name != '\0' && *name != '/'; name++)
		waits[facts.nwaits++] = (stuck_wait) {
			facts.nwaiters, number(*name), mode, limit, permits,
			word[1] != '~'
		};
	facts.nwaiters++;
}

/* Read a waiter: "@1", or nothing. */
static uint32_t
read_waiter(const char *word)
{
	const char *at = strchr(word, '@');

	return at == NULL ? STUCK_NONE : (uint32_t) (at[1] - '0');
}

/* Read "a=x", or make a lease that only guards are left of. */
static void
read_lease(const char *word, bool held)
{
	uint32_t	permits;
	uint32_t	limit;
	lease_mode	mode = read_mode(word, &permits, &limit);

	leases[facts.nleases++] = (stuck_lease) {
		number(word[2]), number(word[0]), mode, held ? permits : 0,
		strstr(word, "/b") != NULL, read_waiter(word)
	};
}

/* Read "a!x@1". */
static void
read_guard(const char *word)
{
	uint32_t	permits;
	uint32_t	limit;
	lease_mode	mode = read_mode(word, &permits, &limit);
	uint32_t	l = 0;

	while (l < facts.nleases && (leases[l].owner != number(word[0]) ||
								 leases[l].name != number(word[2])))
		l++;
	if (l == facts.nleases)
		read_lease(word, false);
	guards[facts.nguards++] = (stuck_guard) {
		l, read_waiter(word), mode, permits, strstr(word, "/b") != NULL
	};
}

static void
read_case(const char *text)
{
	char		copy[256];

	facts = (stuck_facts) {
		.nnames = 26, .nowners = 26, .waiters = waiters, .waits = waits,
		.leases = leases, .guards = guards
	};
	assert_true(strlen(text) < sizeof(copy));
	strcpy(copy, text);
	for (char *word = strtok(copy, " "); word != NULL;
		 word = strtok(NULL, " "))
		switch (word[1])
		{
			case '=':
				read_lease(word, true);
				break;
			case '!':
				read_guard(word);
				break;
			default:
				read_wait(word);
				break;
		}
	for (uint32_t g = 0; g < facts.nguards; g++)
		assert_true(guards[g].waiter == STUCK_NONE ||
					guards[g].waiter < facts.nwaiters);
}

/* Write a circle as the cases do. */
static void
write_circle(const stuck_step *steps, uint32_t length, char *text)
{
	for (uint32_t i = 0; i < length; i++)
	{
		const stuck_wait *wait = &waits[steps[i].wait];
		bool		held = steps[i].lease != STUCK_NONE;
		uint32_t	blocker = held ? leases[steps[i].lease].owner :
			waiters[waits[steps[i].ahead].waiter].owner;

		text += sprintf(text, "%s%c%c%c%c%c", i > 0 ? " " : "",
						'a' + (int) waiters[wait->waiter].owner,
						held ? '-' : '<', 'a' + (int) wait->name,
						held ? '-' : '<', 'a' + (int) blocker);
	}
	*text = '\0';
}

static void
test_case(void **state)
{
	const stuck_case *c = *state;
	uint32_t   *work;
	bool		stuck[ROOM];
	char		letters[ROOM + 1] = "";
	stuck_step	steps[ROOM];
	char		circle[ROOM * 6 + 1];
	const char *fault;

	read_case(c->facts);
	fault = naive_fault(&facts, stuck);
	if (fault != NULL)
		fail_msg("%s", fault);
	for (uint32_t w = 0; w < facts.nwaiters; w++)
		letters[w] = stuck[w] ? 'S' : '-';
	assert_string_equal(letters, c->stuck);

	work = malloc(stuck_work_size(&facts) * sizeof(*work));
	assert_non_null(work);
	stuck_search(&facts, stuck, work);
	write_circle(steps, stuck_find_circle(&facts, stuck, facts.nwaiters - 1,
										  work, steps), circle);
	free(work);
	assert_string_equal(circle, c->circle == NULL ? "" : c->circle);
}

int
main(void)
{
	struct CMUnitTest tests[sizeof(cases) / sizeof(cases[0])];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		tests[i] = (struct CMUnitTest) {
			.name = cases[i].what, .test_func = test_case,
			.initial_state = (void *) (uintptr_t) &cases[i]
		};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
