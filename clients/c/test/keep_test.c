/*
 * keep_test.c
 *	  What a client does, step by step: a table of cases.
 *
 * A case is a claim and a script that shows it.  A script plays the driver of a keep
 * whose ttl is 30 s, wait 0, connect_timeout 9 s.  Times are milliseconds from the
 * start.  Words:
 *
 *	ttl N, wait N, least N, named	before anything else: another configuration; the
 *					owner is the program's
 *	start, release	what the program does
 *	at N			the time
 *	connected, granted N, refused, true, gone, partly
 *					what the server answers; the token is N
 *	unavailable, misuse, deadlock	the attempt has failed
 *	> ACTION		keep_next() says so: connect, acquire, renew, release, leave,
 *					drop, await, held, renewed, lost, refused, failed, released,
 *					done.  "until N", "wait N", "token N", "for N", "back" and
 *					"not-back" after it check the rest of the action; 0 is none,
 *					"ever" is never
 *	believes, doubts	keep_is_held() says so
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "keep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(array)	(sizeof(array) / sizeof((array)[0]))
#define START_US		INT64_C(5000000)

/* Words that many scripts begin with. */
#define HELD "start > connect connected > acquire granted 7 > held "

typedef struct script_case
{
	const char *claim;
	const char *script;
} script_case;

static const script_case cases[] = {
	/* the acquire */
	{"nothing is done before the start",
		"> await until ever doubts"},
	{"a grant is told at once, and counts from before the request",
		"start > connect connected at 100 > acquire wait 0 at 5000 granted 7 > held token 7 "
		"believes > await until 10100 at 29099 believes at 29100 doubts"},
	{"a grant that took a third of the ttl is told, a later one confirmed",
		"start > connect connected > acquire at 8999 granted 7 > held"},
	{"a grant that took longer is confirmed, and counts from the renewal",
		"ttl 3000 start > connect connected > acquire at 1001 granted 7 > renew token 7 "
		"doubts at 1100 true > held > await until 2001 at 3700 believes at 3701 doubts"},
	{"a grant that is noticed late is confirmed, though it came early",
		"ttl 3000 start > connect connected > acquire granted 7 at 1001 > renew"},
	{"a confirmation that finds it lost waits on, for what is left",
		"wait 60000 start > connect connected > acquire wait 60000 at 40000 granted 7 "
		"> renew at 40010 gone > acquire wait 19990 at 40020 granted 8 > held token 8"},
	{"a confirmation without an answer is one more acquire",
		"wait 60000 start > connect connected > acquire at 40000 granted 7 > renew "
		"until 50000 at 50000 > drop > await until 50050 at 50050 > connect connected "
		"> acquire wait 9950 granted 7 > held token 7"},
	{"a refusal is told, and that is the end",
		"start > connect connected > acquire refused > refused > done release > done"},
	{"waiting that would be a deadlock is refused",
		"wait -1 start > connect connected > acquire wait -1 deadlock > refused > done"},
	{"misuse is no reason to go on",
		"wait -1 start > connect misuse > failed > done"},
	{"no server: again and again, after pauses that double, and then no more",
		"start > connect unavailable > await until 50 at 50 > connect unavailable "
		"> await until 150 at 150 > connect unavailable > await until 350 at 350 > connect "
		"unavailable > await until 750 at 750 > connect unavailable > await until 1550 "
		"at 1550 > connect unavailable > await until 2550 at 2550 > connect unavailable "
		"> await until 3550 at 8900 > connect unavailable > await until 9000 at 9000 "
		"> failed > done"},
	{"with a wait too, as long as no server was reached",
		"wait -1 start > connect until 3000 at 3000 > drop at 8999 > connect until 9000 "
		"at 9000 > drop > failed > done"},
	{"a connection that is lost: the same again, with what is left of the wait",
		"wait 60000 start > connect connected > acquire wait 60000 until 69000 at 20000 "
		"unavailable at 20050 > connect connected > acquire wait 39950 until 69000 "
		"at 61000 unavailable at 61100 > connect connected > acquire wait 0 refused > refused"},
	{"without an answer for as long as it may take, it has failed, and is taken back",
		"start > connect connected > acquire until 9000 at 9000 > drop > failed > connect "
		"connected > release token 0 true > done"},
	{"an error that says nothing was done leaves nothing to take back",
		"start > connect connected > acquire misuse > failed > done"},
	{"but what was asked before it may have been done",
		"start > connect connected > acquire unavailable at 50 > connect misuse > failed "
		"> connect connected > release token 0 gone > done"},

	/* the heartbeat */
	{"it renews after a third of the ttl, and again",
		HELD "> await until 10000 at 10000 > renew token 7 until 20000 at 10200 true "
		"> renewed > await until 20000 at 20001 > renew until 30001 true > renewed "
		"> await until 30001 at 49000 believes at 49001 doubts"},
	{"an attempt is given up after a third of the ttl, connecting included",
		HELD "at 10000 > renew until 20000 at 19999 > await until 20000 at 20000 > drop "
		"> await until 20050 at 20050 > connect until 29000 at 28000 connected > renew until 29000 "
		"at 28999 > await until 29000 believes at 29000 doubts > lost > drop > await until ever"},
	{"what fails is tried again after a pause, as often as there is time",
		HELD "at 10000 > renew unavailable > await until 10050 at 10050 > connect until 20050 "
		"at 15000 connected > renew until 20050 unavailable > await until 15100 at 15100 "
		"> connect connected > renew true > renewed at 25100 > renew unavailable > await until 25150"},
	{"misuse too: somebody may mend it",
		HELD "at 10000 > renew misuse > await until 10050 at 10050 > connect connected > renew true "
		"> renewed"},
	{"false is the end",
		HELD "at 10000 > renew gone doubts > lost > await until ever release > released not-back > done"},
	{"a part that is gone is the end, but the rest is given back",
		HELD "at 10000 > renew partly > lost release > release token 7 true > released back > done"},
	{"a pause ends when the lease is lost",
		HELD "at 10000 > renew at 28990 unavailable > await until 29000 at 29000 > lost > await until ever"},
	{"the margin is a tenth, and a second at most",
		"ttl 1000 " HELD "at 899 believes at 900 doubts > lost"},
	{"true comes too late: the clock has been first",
		HELD "at 10000 > renew at 29000 true doubts > lost > await until ever"},
	{"who was stopped finds it lost before anything else",
		HELD "at 3600000 doubts > lost > await until ever"},
	{"who was stopped in an attempt, too",
		HELD "at 10000 > renew at 3600000 > lost > drop > await until ever"},
	{"a renewal that is known is not news once the lease is lost",
		HELD "at 10000 > renew true at 39000 > lost > await until ever"},
	{"held is not told of what is lost by then",
		"wait 60000 start > connect connected > acquire granted 7 at 31000 doubts > renew gone > acquire wait 29000"},
	{"an idle connection that breaks is made anew when it is needed",
		HELD "unavailable at 9999 > await until 10000 at 10000 > connect connected > renew true > renewed"},
	{"time does not go back",
		HELD "at 9000 > await until 10000 at 1000 release > release until 10666 true > released"},

	/* the release */
	{"it names the token, and is told",
		HELD "at 100 release doubts > release token 7 until 1766 true > released back > done"},
	{"false or NULL is no error, but said",
		HELD "release > release gone > released not-back > done"},
	{"it is tried again, for five seconds",
		HELD "at 1000 release > release unavailable > await until 1050 at 1050 > connect "
		"connected > release unavailable at 1150 > connect until 2816 at 2817 > drop > await until 3017 at 5990 > connect until 6000 "
		"at 6000 > drop > released not-back > done"},
	{"what is gone at the second try was given back by the first",
		HELD "at 1000 release > release unavailable at 1050 > connect connected > release gone > released back > done"},
	{"it is not tried for longer than the lease lasts",
		"ttl 3000 " HELD "at 900 > await release > release unavailable at 3000 > released not-back > done"},
	{"a release without an answer is the last if others may have the owner",
		"named " HELD "release > release unavailable > released not-back > done"},
	{"but a connection that cannot be made is no release",
		"named " HELD "unavailable release > connect unavailable at 50 > connect connected > release true "
		"> released back"},
	{"misuse is no reason to go on with it",
		HELD "release > release misuse > released not-back > done"},
	{"a renewal that is under way comes to its end first",
		HELD "at 10000 > renew at 10100 release doubts > await until 11100 at 10200 true > release true "
		"> released back > done"},
	{"but is not waited for for long",
		HELD "at 10000 > renew at 10100 release at 11100 > drop > connect connected > release true > released back"},
	{"and if it says that nothing is held, nothing is given back",
		HELD "at 10000 > renew release gone > released not-back > done"},
	{"a connection that is being made is used",
		HELD "unavailable at 10000 > connect release connected > release true > released back"},
	{"a lost lease is given back if that goes at once",
		HELD "at 29000 > lost release > release token 7 until 30000 true > released back > done"},
	{"and not if it does not",
		HELD "at 29000 > lost release > release unavailable > released not-back > done"},
	{"a program that gives back what it does not know is lost is told so",
		HELD "at 29000 release > lost > release true > released back > done"},
	{"one that never began",
		"release > released not-back > done start > done"},
	{"twice is once",
		HELD "release > release release > await true > released back > done release > done"},

	/* cancelling */
	{"what was asked is dropped, and taken back",
		"wait -1 start > connect connected > acquire at 1000 release > drop > connect connected "
		"> release token 0 gone > released not-back > done"},
	{"if the owner is the program's, what is taken back is found out first",
		"named wait -1 start > connect connected > acquire at 1000 release > drop > connect connected "
		"> acquire wait 0 granted 9 > release token 9 true > released back > done"},
	{"and if there is nothing, nothing is",
		"named wait -1 start > connect connected > acquire at 1000 release > drop > connect connected "
		"> acquire wait 0 refused > released not-back > done"},
	{"an answer that comes before it is dropped says what to take back",
		"wait -1 start > connect connected > acquire release granted 7 > release token 7 true > released back"},
	{"or that there is nothing",
		"start > connect connected > acquire release refused > released not-back > done"},
	{"nothing was asked: nothing is taken back",
		"start > connect release > released not-back > drop > done"},
	{"a grant that was not told yet",
		"start > connect connected > acquire granted 7 release > release token 7 true > released back"},
	{"one that was being confirmed",
		"ttl 3000 wait -1 start > connect connected > acquire at 2000 granted 7 > renew release > drop > connect "
		"connected > release token 7 true > released back > done"},

	/* keep at least */
	{"a lease that is given back early is left until then",
		"least 60000 " HELD "at 4000 release > leave token 7 for 56000 true > released back > done"},
	{"one that was kept for long enough is given back",
		"least 6000 " HELD "at 6000 > await release > release true > released back"},
	{"also if that comes about on the way",
		"least 1000 " HELD "unavailable at 900 release > connect at 1100 connected > release true > released back"},
	{"that is repeated, whoever made the owner",
		"named least 60000 " HELD "at 1000 release > leave for 59000 unavailable at 2000 > connect connected "
		"> leave token 7 for 58000 true > released back"},
	{"and is known if an answer to the first was lost",
		"least 1000 " HELD "at 900 release > leave for 100 unavailable at 1100 > connect connected > release gone "
		"> released back"},
	{"it counts from when it was told",
		"least 10000 start > connect connected > acquire at 2000 granted 7 > held at 3000 release > leave for 9000"},
	{"others with the same owner have time to find it lost",
		"named least 6000 " HELD "at 1000 release > leave for 30000 true > released back"},
	{"a lost one is not",
		"least 60000 " HELD "at 29000 > lost release > release token 7 true > released back > done"},
	{"what was cancelled was never kept",
		"least 60000 start > connect connected > acquire granted 7 release > release"},
};

static const struct
{
	const char *word;
	keep_action_kind kind;
}			actions[] =
{
	{"await", KEEP_AWAIT}, {"drop", KEEP_DROP}, {"connect", KEEP_CONNECT},
	{"acquire", KEEP_ACQUIRE}, {"renew", KEEP_RENEW}, {"release", KEEP_RELEASE},
	{"leave", KEEP_LEAVE}, {"held", KEEP_TELL_HELD}, {"renewed", KEEP_TELL_RENEWED},
	{"lost", KEEP_TELL_LOST}, {"refused", KEEP_TELL_REFUSED},
	{"failed", KEEP_TELL_FAILED}, {"released", KEEP_TELL_RELEASED},
	{"done", KEEP_DONE},
};

static const struct
{
	const char *word;
	keep_answer answer;
}			answers[] =
{
	{"granted", KEEP_GRANTED}, {"refused", KEEP_REFUSED}, {"true", KEEP_TRUE},
	{"gone", KEEP_GONE}, {"partly", KEEP_PARTLY},
};

static const struct
{
	const char *word;
	keep_fault	fault;
}			faults[] =
{
	{"unavailable", KEEP_UNAVAILABLE}, {"misuse", KEEP_MISUSE},
	{"deadlock", KEEP_DEADLOCK},
};

/* What is played. */
static struct
{
	keep		k;
	keep_config config;
	keep_action action;
	int64_t		now_us;
	bool		begun;
	const char *rest;			/* of the script */
	char		word[32];
} play;

static bool
next_word(void)
{
	size_t		length;

	play.rest += strspn(play.rest, " ");
	length = strcspn(play.rest, " ");
	if (length == 0 || length >= sizeof(play.word))
		return false;
	memcpy(play.word, play.rest, length);
	play.word[length] = '\0';
	play.rest += length;
	return true;
}

static bool
is(const char *word)
{
	return strcmp(play.word, word) == 0;
}

/* Microseconds of the milliseconds that follow; after another time. */
static int64_t
number(int64_t from_us)
{
	char	   *end;
	long long	ms;

	if (!next_word())
		return -1;
	if (is("ever"))
		return KEEP_NEVER;
	ms = strtoll(play.word, &end, 10);
	assert_int_equal(*end, '\0');
	return from_us + ms * 1000;
}

/* Take a word of the configuration. */
static bool
configured(void)
{
	if (is("ttl"))
		play.config.ttl_us = number(0);
	else if (is("wait"))
		play.config.wait_us = number(0);
	else if (is("least"))
		play.config.keep_at_least_us = number(0);
	else if (is("named"))
		play.config.owner_is_ours = false;
	else
		return false;
	return true;
}

/* Within a millisecond, for thirds. */
static bool
about(int64_t a_us, int64_t b_us)
{
	return a_us == b_us || (a_us < b_us + 1000 && b_us < a_us + 1000);
}

/* Take a word that checks a detail of the last action. */
static bool
checked(bool *right)
{
	if (is("until"))
		*right = about(play.action.until_us, number(START_US));
	else if (is("wait"))
	{
		int64_t		wait_us = number(0);

		*right = wait_us < 0 ? play.action.wait_us < 0 :
			play.action.wait_us == wait_us;
	}
	else if (is("for"))
		*right = play.action.leave_us == number(0);
	else if (is("token"))
		*right = play.action.token == number(0) / 1000;
	else if (is("back"))
		*right = play.action.given_back;
	else if (is("not-back"))
		*right = !play.action.given_back;
	else
		return false;
	return true;
}

/* Take a word that lets something happen. */
static bool
happened(void)
{
	for (size_t i = 0; i < LENGTH(answers); i++)
		if (is(answers[i].word))
		{
			int64_t		token = answers[i].answer == KEEP_GRANTED ?
				number(0) / 1000 : 0;

			keep_answered(&play.k, answers[i].answer, token, play.now_us);
			return true;
		}
	for (size_t i = 0; i < LENGTH(faults); i++)
		if (is(faults[i].word))
		{
			keep_failed(&play.k, faults[i].fault, play.now_us);
			return true;
		}
	if (is("start"))
		keep_start(&play.k, play.now_us);
	else if (is("release"))
		keep_release(&play.k, play.now_us);
	else if (is("connected"))
		keep_connected(&play.k, play.now_us);
	else if (is("at"))
		play.now_us = number(START_US);
	else
		return false;
	return true;
}

/* Take an action that is expected. */
static bool
acted(bool *right)
{
	if (!is(">"))
		return false;
	*right = false;
	if (next_word())
		for (size_t i = 0; i < LENGTH(actions); i++)
			if (is(actions[i].word))
			{
				play.action = keep_next(&play.k, play.now_us);
				*right = play.action.kind == actions[i].kind;
			}
	return true;
}

static void
run_case(void **state)
{
	const script_case *c = *state;

	memset(&play, 0, sizeof(play));
	play.config = (keep_config) {
		.ttl_us = 30000000, .connect_timeout_us = 9000000, .owner_is_ours = true,
	};
	play.now_us = START_US;
	play.rest = c->script;
	while (next_word())
	{
		bool		right = true;

		if (!play.begun && configured())
			continue;
		if (!play.begun)
		{
			assert_true(keep_check_config(&play.config));
			keep_init(&play.k, &play.config);
			play.begun = true;
		}
		if (!acted(&right) && !checked(&right))
		{
			if (is("believes"))
				right = keep_is_held(&play.k, play.now_us);
			else if (is("doubts"))
				right = !keep_is_held(&play.k, play.now_us);
			else
				right = happened();
		}
		if (!right)
			fail_msg("%s: not so before \"%s\"; it is action %d until %lld wait %lld token %lld for %lld",
					 c->claim, play.rest, (int) play.action.kind,
					 play.action.until_us == KEEP_NEVER ? -1LL :
					 (long long) (play.action.until_us - START_US) / 1000,
					 (long long) play.action.wait_us / 1000,
					 (long long) play.action.token,
					 (long long) play.action.leave_us / 1000);
	}
}

static void
checks_configurations(void **state)
{
	const keep_config good = {
		.ttl_us = 1, .connect_timeout_us = 1, .wait_us = INT64_MIN,
	};
	keep_config config;

	(void) state;
	assert_true(keep_check_config(&good));
	config = good;
	config.ttl_us = 0;
	assert_false(keep_check_config(&config));
	config.ttl_us = KEEP_LONGEST_US + 1;
	assert_false(keep_check_config(&config));
	config = good;
	config.wait_us = KEEP_LONGEST_US + 1;
	assert_false(keep_check_config(&config));
	config = good;
	config.connect_timeout_us = 0;
	assert_false(keep_check_config(&config));
	config = good;
	config.keep_at_least_us = -1;
	assert_false(keep_check_config(&config));
}

int
main(void)
{
	struct CMUnitTest tests[LENGTH(cases) + 1];

	for (size_t i = 0; i < LENGTH(cases); i++)
		tests[i] = (struct CMUnitTest) {
			cases[i].claim, run_case, NULL, NULL, (void *) &cases[i]
		};
	tests[LENGTH(cases)] = (struct CMUnitTest)
		cmocka_unit_test(checks_configurations);
	return cmocka_run_group_tests_name("keep", tests, NULL, NULL);
}
