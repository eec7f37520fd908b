/*
 * selftest.c
 *	  doctor --self-test: play on a server what leases promise, and watch.
 *
 * For a server, or a version of it, that nobody has tried: it needs no more than an
 * account that may call.  Some sessions, all of this process, take and give back
 * leases.  Names and owners begin with a prefix and random digits that nobody else
 * has.  What is left behind, if this program is killed, ends by itself within
 * LONG_US.
 *
 * Nothing here is judged by how long it took, except that a lease must not end before
 * its time: on a slow machine the program only takes longer.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "doctor.h"

#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "session.h"

#define LONG_US		INT64_C(30000000)
#define SHORT_US	INT64_C(500000)

/* How long an answer may take, and a wait for something that must come. */
#define PATIENCE_US	INT64_C(90000000)

/* For how long all sessions do as they please, with how many names, for this ttl. */
#define LOAD_US		INT64_C(5000000)
#define LOAD_NAMES	3
#define LOAD_TTL_US	INT64_C(5000000)

enum
{
	ANN, BOB, CAT, DAN, ACTORS
};

struct trial
{
	dlock_session *actors[ACTORS];
	int			lives[ACTORS];	/* an owner's number; see load() */
	char		prefix[64];
	const char *title;			/* of the check that is played */
	int64_t		calls;
	bool		fails;			/* this check does, */
	bool		skipped;		/* or could not be made, */
	char		why[700];		/* for this reason */
};

static void
set_reason(struct trial *t, bool skipped, const char *format,...)
{
	va_list		arguments;

	/* what follows from the first is of no interest */
	if (t->fails || t->skipped)
		return;
	t->fails = !skipped;
	t->skipped = skipped;
	va_start(arguments, format);
	vsnprintf(t->why, sizeof(t->why), format, arguments);
	va_end(arguments);
}

/* In a check: end it, with what is wrong, unless something is true. */
#define MUST(condition, ...) \
	do { \
		if (!(condition)) \
		{ \
			set_reason(t, false, __VA_ARGS__); \
			return; \
		} \
	} while (0)

static void
pause_us(int64_t us)
{
	const struct timespec time = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&time, NULL);
}

/* In memory that the next such call uses again, as that of the next function's does. */
static const char *
name_of(const struct trial *t, const char *name)
{
	static char text[255];

	snprintf(text, sizeof(text), "%s/%s/%s", t->prefix, t->title, name);
	return text;
}

static const char *
owner_of(const struct trial *t, int who)
{
	static char text[255];

	snprintf(text, sizeof(text), "%s/%c%d", t->prefix, "abcd"[who], t->lives[who]);
	return text;
}

/* Start a call of name and owner, and what more it takes. */
static bool
begin(struct trial *t, int who, const char *function, const char *name,
	  const dlock_arg *more, size_t nmore)
{
	dlock_arg	args[8] = {DLOCK_TEXT(name_of(t, name)), DLOCK_TEXT(owner_of(t, who))};

	for (size_t i = 0; i < nmore; i++)
		args[2 + i] = more[i];
	t->calls++;
	return dlock_session_call(t->actors[who], function, args, 2 + nmore,
							  dlock_now_us() + PATIENCE_US);
}

/*
 * Make of an error that this check fails; or that it cannot be made, if the account may not
 * call, or the server is a standby.
 */
static void
note_error(struct trial *t, const char *function, const dlock_error *error)
{
	set_reason(t, error->denied || is_read_only(error), "%s: %s (%s)", function,
			   error->message, error->sqlstate);
}

/*
 * Make a call until it is answered: a server that cannot decide now says so, and then the
 * call is to be repeated.  So each acquire here has a request id.  Returns the error, NULL
 * for none.
 */
static const dlock_error *
attempt(struct trial *t, int who, const char *function, const char *name,
		const dlock_arg *more, size_t nmore)
{
	int64_t		until_us = dlock_now_us() + PATIENCE_US;

	for (;;)
	{
		const dlock_error *error;

		if (begin(t, who, function, name, more, nmore) &&
			dlock_session_finish(t->actors[who]))
			return NULL;
		error = dlock_session_error(t->actors[who]);
		if (error->error_class != DLOCK_UNAVAILABLE || is_read_only(error) ||
			dlock_now_us() > until_us)
			return error;
		pause_us(50000);
	}
}

static dlock_arg
request_of(struct trial *t)
{
	static char text[32];

	snprintf(text, sizeof(text), "%" PRId64, t->calls);
	return DLOCK_TEXT(text);
}

/* The token, 0 if it was refused, -1 if there was an error, which is noted. */
static int64_t
acquire_as(struct trial *t, int who, const char *function, const char *name,
		   int64_t ttl_us, int64_t wait_us)
{
	const dlock_arg more[] = {DLOCK_DURATION(ttl_us), DLOCK_DURATION(wait_us), request_of(t)};
	const dlock_error *error = attempt(t, who, function, name, more, 3);

	if (error == NULL)
		return dlock_session_integer(t->actors[who]);
	note_error(t, function, error);
	return -1;
}

static int64_t
acquire(struct trial *t, int who, const char *name, int64_t ttl_us, int64_t wait_us)
{
	return acquire_as(t, who, "dlock_acquire", name, ttl_us, wait_us);
}

/* 1, 0, or -1 for NULL; -2 if there was an error, which is noted. */
static int
truth(struct trial *t, int who, const char *function, const char *name,
	  const dlock_arg *more, size_t nmore)
{
	const dlock_error *error = attempt(t, who, function, name, more, nmore);

	if (error == NULL)
		return dlock_session_truth(t->actors[who]);
	note_error(t, function, error);
	return -2;
}

static int
renew(struct trial *t, int who, const char *name, int64_t token)
{
	const dlock_arg more[] = {DLOCK_DURATION(LONG_US), DLOCK_INTEGER(token)};

	return truth(t, who, "dlock_renew", name, more, 2);
}

static int
release(struct trial *t, int who, const char *name, int64_t token)
{
	const dlock_arg more[] = {DLOCK_INTEGER(token)};

	return truth(t, who, "dlock_release", name, more, 1);
}

/* Is the name free, as somebody sees who has nothing to do with it? */
static int
is_free(struct trial *t, const char *name)
{
	const dlock_arg arg = DLOCK_TEXT(name_of(t, name));

	t->calls++;
	if (call(t->actors[DAN], "dlock_is_free", &arg, 1, PATIENCE_US))
		return dlock_session_truth(t->actors[DAN]);
	note_error(t, "dlock_is_free", dlock_session_error(t->actors[DAN]));
	return -2;
}

static bool
run(struct trial *t, int who, const char *sql)
{
	if (ask(t->actors[who], sql, NULL, 0, PATIENCE_US))
		return true;
	note_error(t, sql, dlock_session_error(t->actors[who]));
	return false;
}

/* Start to wait for a name. */
static void
begin_to_wait(struct trial *t, int who, const char *name)
{
	const dlock_arg more[] = {DLOCK_DURATION(LONG_US), DLOCK_DURATION(PATIENCE_US / 2), request_of(t)};

	if (!begin(t, who, "dlock_acquire", name, more, 3))
		note_error(t, "dlock_acquire", dlock_session_error(t->actors[who]));
}

/* The token of one that waits; 0 if it was refused, -1 if there was an error. */
static int64_t
token_of_waiter(struct trial *t, int who)
{
	if (dlock_session_finish(t->actors[who]))
		return dlock_session_integer(t->actors[who]);
	note_error(t, "a wait", dlock_session_error(t->actors[who]));
	return -1;
}

/* Wait until so many stand in line; the sessions that wait need not be asked meanwhile. */
static bool
stand_in_line(struct trial *t, const char *name, int64_t count)
{
	const dlock_arg arg = DLOCK_TEXT(name_of(t, name));
	int64_t		until_us = dlock_now_us() + PATIENCE_US / 3;

	do
	{
		for (int who = 0; who < DAN; who++)
			dlock_session_step(t->actors[who]);
		if (!ask(t->actors[DAN], "SELECT count(*) FROM dlock.waiters WHERE name = $1",
				 &arg, 1, PATIENCE_US))
		{
			/* the views have privileges of their own, and a plain table has no line */
			set_reason(t, true, "this account cannot see who waits");
			return false;
		}
		if (number_of(t->actors[DAN], 0, 0) == count)
			return true;
		pause_us(20000);
	} while (dlock_now_us() < until_us);
	set_reason(t, false, "a waiter is not in dlock.waiters");
	return false;
}

/* ------------------------------------------------------------------ checks */

static void
exclusion(struct trial *t)
{
	int64_t		token = acquire(t, ANN, "n", LONG_US, 0);
	int64_t		next;

	MUST(token > 0, "a free name was refused");
	MUST(acquire(t, BOB, "n", LONG_US, 0) == 0, "a name that is held was granted to another owner");
	MUST(renew(t, BOB, "n", token) != 1, "another owner could renew the lease");
	MUST(release(t, BOB, "n", token) != 1, "another owner could release the lease");
	MUST(renew(t, ANN, "n", token) == 1, "its holder could not renew it");
	MUST(is_free(t, "n") == 0, "a name that is held is called free");
	MUST(release(t, ANN, "n", token) == 1, "its holder could not release it");
	MUST(is_free(t, "n") == 1, "a name that was released is not called free");
	next = acquire(t, BOB, "n", LONG_US, 0);
	MUST(next > token, "a token did not grow: %" PRId64 " after %" PRId64, next, token);
	MUST(release(t, ANN, "n", token) != 1, "a lease could be released by the token of the one before");
	MUST(release(t, BOB, "n", next) == 1, "the second holder could not release it");
}

static void
expiry(struct trial *t)
{
	int64_t		start_us = dlock_now_us();
	int64_t		token = acquire(t, ANN, "n", SHORT_US, 0);
	int64_t		next;

	MUST(token > 0, "a free name was refused");
	next = acquire(t, BOB, "n", LONG_US, PATIENCE_US / 2);
	MUST(next > 0, "a name whose lease was over was refused");
	/* the server counted from later than this */
	MUST(dlock_now_us() - start_us >= SHORT_US, "a lease ended before its time");
	MUST(next > token, "a token did not grow: %" PRId64 " after %" PRId64, next, token);
	MUST(renew(t, ANN, "n", token) != 1, "a lease that was over could be renewed");
	MUST(release(t, ANN, "n", token) != 1, "a lease that was over could be released");
	MUST(renew(t, BOB, "n", next) == 1, "the next holder lost it by that");
	MUST(release(t, BOB, "n", next) == 1, "the next holder could not release it");
}

static void
retries(struct trial *t)
{
	const dlock_arg more[] = {DLOCK_DURATION(LONG_US), DLOCK_DURATION(0), DLOCK_TEXT("request")};
	int64_t		tokens[3];

	for (int i = 0; i < 3; i++)
	{
		const dlock_error *error = attempt(t, ANN, "dlock_acquire", "n", more, i < 2 ? 3 : 2);

		if (error != NULL)
		{
			note_error(t, "dlock_acquire", error);
			return;
		}
		tokens[i] = dlock_session_integer(t->actors[ANN]);
	}
	MUST(tokens[0] > 0 && tokens[0] == tokens[1] && tokens[1] == tokens[2],
		 "the same holder got several tokens");
	/* the first two are one hold */
	MUST(release(t, ANN, "n", tokens[0]) == 1, "the holder could not release it");
	MUST(is_free(t, "n") == 0, "two holds were one");
	MUST(release(t, ANN, "n", tokens[0]) == 1, "the holder could not release its second hold");
	MUST(is_free(t, "n") == 1, "a repeated request was a hold of its own");
}

static void
modes(struct trial *t)
{
	const dlock_arg limit[] = {DLOCK_DURATION(LONG_US), DLOCK_INTEGER(2), DLOCK_DURATION(0), DLOCK_TEXT("p")};

	MUST(acquire_as(t, ANN, "dlock_acquire_shared", "n", LONG_US, 0) > 0 &&
		 acquire_as(t, BOB, "dlock_acquire_shared", "n", LONG_US, 0) > 0, "two could not share a name");
	MUST(acquire(t, CAT, "n", LONG_US, 0) == 0, "a name that is shared was granted exclusively");
	for (int who = ANN; who <= CAT; who++)
	{
		const dlock_error *error = attempt(t, who, "dlock_acquire_permit", "p", limit, 4);

		if (error != NULL)
		{
			note_error(t, "dlock_acquire_permit", error);
			return;
		}
		MUST((dlock_session_integer(t->actors[who]) > 0) == (who != CAT),
			 "of two permits %s", who == CAT ? "three were granted" : "one was refused");
	}
}

static void
all_or_none(struct trial *t)
{
	char		x[255];
	char		y[255];
	char		owner[255];
	const char *const names[] = {x, y};
	const dlock_arg args[] = {
		DLOCK_TEXTS(names, 2), DLOCK_TEXT(owner), DLOCK_DURATION(LONG_US),
		DLOCK_DURATION(0), DLOCK_TEXT("all")
	};
	int64_t		token = acquire(t, BOB, "y", LONG_US, 0);

	strcpy(owner, owner_of(t, ANN));
	strcpy(x, name_of(t, "x"));
	strcpy(y, name_of(t, "y"));
	MUST(token > 0, "a free name was refused");
	for (int last = 0; last <= 1; last++)
	{
		if (!call(t->actors[ANN], "dlock_acquire_all", args, 5, PATIENCE_US))
		{
			note_error(t, "dlock_acquire_all", dlock_session_error(t->actors[ANN]));
			return;
		}
		t->calls++;
		MUST((value_of(t->actors[ANN], 0, 0) != NULL) == last,
			 last ? "two free names were refused" : "two names were granted of which one was held");
		MUST(is_free(t, "x") == !last, last ? "one of two names is free" : "one of two names was taken alone");
		if (!last)
			MUST(release(t, BOB, "y", token) == 1, "its holder could not release it");
	}
}

static void
order(struct trial *t)
{
	int64_t		token = acquire(t, ANN, "n", LONG_US, 0);
	int64_t		of_bob;

	MUST(token > 0, "a free name was refused");
	begin_to_wait(t, BOB, "n");
	if (!stand_in_line(t, "n", 1))
		return;
	begin_to_wait(t, CAT, "n");
	if (!stand_in_line(t, "n", 2))
		return;
	MUST(release(t, ANN, "n", token) == 1, "its holder could not release it");
	of_bob = token_of_waiter(t, BOB);
	MUST(of_bob > token, "the first that waited was refused");
	MUST(dlock_session_step(t->actors[CAT]) == DLOCK_STEP_WAIT, "the second that waited did not wait for the first");
	MUST(acquire(t, ANN, "n", LONG_US, 0) == 0, "a newcomer came before one that waits");
	MUST(release(t, BOB, "n", of_bob) == 1, "the first that waited could not release it");
	MUST(token_of_waiter(t, CAT) > of_bob, "the second that waited was refused");
}

static void
lost_waiter(struct trial *t)
{
	int64_t		token = acquire(t, ANN, "n", LONG_US, 0);

	MUST(token > 0, "a free name was refused");
	begin_to_wait(t, BOB, "n");
	/* it is a waiter, if this account may see that; else it is one soon, or never was */
	if (!stand_in_line(t, "n", 1))
	{
		if (t->fails)
			return;
		t->skipped = false;
	}
	dlock_session_close(t->actors[BOB]);
	MUST(release(t, ANN, "n", token) == 1, "its holder could not release it");
	MUST(acquire(t, CAT, "n", LONG_US, PATIENCE_US / 2) > token, "a waiter whose client was gone kept the name");
}

static void
deadlock(struct trial *t)
{
	const dlock_arg more[] = {DLOCK_DURATION(LONG_US), DLOCK_DURATION(PATIENCE_US / 2)};
	const dlock_error *error;

	MUST(acquire(t, ANN, "x", LONG_US, 0) > 0 && acquire(t, BOB, "y", LONG_US, 0) > 0, "a free name was refused");
	begin_to_wait(t, ANN, "y");
	if (!stand_in_line(t, "y", 1))
		return;
	error = attempt(t, BOB, "dlock_acquire", "x", more, 2);
	MUST(error != NULL && error->error_class == DLOCK_BUSY, "two that wait for each other: %s",
		 error != NULL ? error->message : "neither was told");
}

static void
rollback(struct trial *t)
{
	int64_t		token;

	if (!run(t, ANN, "BEGIN"))
		return;
	token = acquire(t, ANN, "n", LONG_US, 0);
	MUST(token > 0, "a free name was refused");
	if (!run(t, ANN, "ROLLBACK"))
		return;
	MUST(acquire(t, BOB, "n", LONG_US, 0) == 0, "a rollback gave a lease back");
	MUST(release(t, ANN, "n", token) == 1, "its holder could not release it after a rollback");
}

static void
session_lease(struct trial *t)
{
	const dlock_arg more[] = {DLOCK_DURATION(SHORT_US)};
	const dlock_error *error = attempt(t, ANN, "dlock_acquire_session", "n", more, 1);

	if (error != NULL)
	{
		note_error(t, "dlock_acquire_session", error);
		return;
	}
	pause_us(3 * SHORT_US);
	MUST(acquire(t, BOB, "n", LONG_US, 0) == 0, "a lease ended before its connection");
	dlock_session_close(t->actors[ANN]);
	MUST(acquire(t, BOB, "n", LONG_US, PATIENCE_US / 2) > 0, "a lease did not end with its connection");
}

/*
 * A transaction that guards pins the lease beyond its deadline, and one whose lease is lost
 * is told.  The ttl grows until the guard came before the deadline.
 */
static void
guard(struct trial *t)
{
	const dlock_error *error = NULL;
	char		refusal[512];
	int64_t		token = 0;
	int64_t		until_us = 0;
	int64_t		next;
	dlock_arg	arg;

	for (int64_t ttl_us = SHORT_US; ttl_us < LONG_US; ttl_us *= 4)
	{
		token = acquire(t, ANN, "n", ttl_us, PATIENCE_US / 2);
		/* the deadline is not later than this */
		until_us = dlock_now_us() + ttl_us;
		MUST(token > 0, "a free name was refused");
		if (!run(t, ANN, "BEGIN"))
			return;
		arg = DLOCK_INTEGER(token);
		begin(t, ANN, "dlock_guard", "n", &arg, 1);
		error = dlock_session_finish(t->actors[ANN]) ? NULL : dlock_session_error(t->actors[ANN]);
		if (error == NULL)
			break;
		/* too late, or the server was too busy to decide: again, with more time */
		if (error->error_class == DLOCK_MISUSE)
			note_error(t, "dlock_guard", error);
		snprintf(refusal, sizeof(refusal), "%s", error->message);
		run(t, ANN, "ROLLBACK");
		if (t->fails || t->skipped)
			return;
	}
	MUST(error == NULL, "a guard was refused while the lease was held: %s", refusal);
	begin_to_wait(t, BOB, "n");
	/* a fault would show soon; that there is none yet proves only so much */
	while (dlock_now_us() < until_us + SHORT_US)
	{
		if (dlock_session_step(t->actors[BOB]) == DLOCK_STEP_DONE)
			MUST(dlock_session_integer(t->actors[BOB]) == 0, "a name was granted to another while a transaction guarded it");
		pause_us(20000);
	}
	MUST(dlock_session_step(t->actors[BOB]) != DLOCK_STEP_DONE || dlock_session_integer(t->actors[BOB]) == 0,
		 "a name was granted to another while a transaction guarded it");
	if (!run(t, ANN, "COMMIT"))
		return;
	/* the one that waited may have been told that it could not be decided */
	next = dlock_session_finish(t->actors[BOB]) ? dlock_session_integer(t->actors[BOB]) :
		acquire(t, BOB, "n", LONG_US, PATIENCE_US / 2);
	MUST(next > token, "a name was refused after its guard had ended");

	if (!run(t, ANN, "BEGIN"))
		return;
	begin(t, ANN, "dlock_guard", "n", &arg, 1);
	error = dlock_session_finish(t->actors[ANN]) ? NULL : dlock_session_error(t->actors[ANN]);
	MUST(error != NULL, "a guard was granted of a lease that was lost");
	if (error->error_class != DLOCK_LOST)
		note_error(t, "dlock_guard", error);
	run(t, ANN, "ROLLBACK");
}

/* What a session does in load(). */
struct actor
{
	enum
	{
		IDLE, ACQUIRES, RENEWS, HOLDS, RELEASES
	}			state;
	int			name;
	int64_t		sent_us;
	int64_t		floor;			/* the name's largest token when it was sent */
	int64_t		token;
};

/* The last grant of a name: until when it surely holds, unless it is given back. */
struct last_grant
{
	int			holder;			/* -1: nobody */
	int64_t		until_us;
	int64_t		token;
};

static int
any_of(unsigned int n)
{
	static unsigned int state = 1;

	return (int) ((unsigned int) rand_r(&state) % n);
}

static void
take_answer(struct trial *t, int who, struct actor *a, struct last_grant *g)
{
	dlock_session *s = t->actors[who];
	int64_t		now_us = dlock_now_us();

	switch (a->state)
	{
		case ACQUIRES:
			a->token = dlock_session_integer(s);
			a->state = a->token > 0 ? HOLDS : IDLE;
			if (a->token == 0)
				return;
			MUST(g->holder < 0 || now_us >= g->until_us, "a name was granted to two at a time");
			MUST(a->token > a->floor, "a token did not grow: %" PRId64 " after %" PRId64, a->token, a->floor);
			*g = (struct last_grant) {who, a->sent_us + LOAD_TTL_US, a->token};
			return;
		case RENEWS:
			a->state = HOLDS;
			MUST(dlock_session_truth(s) == 1 || now_us >= g->until_us, "a lease was lost before its time");
			if (dlock_session_truth(s) == 1)
				g->until_us = a->sent_us + LOAD_TTL_US;
			else
				a->state = IDLE;
			return;
		case RELEASES:
			a->state = IDLE;
			MUST(dlock_session_truth(s) == 1 || now_us >= g->until_us, "a lease was lost before its time");
			return;
		case IDLE:
		case HOLDS:
			return;
	}
}

/* Start a call: an acquire of any name, or a renewal or a release of what is held. */
static void
start(struct trial *t, int who, const char *const *names, struct actor *a,
	  struct last_grant *grants)
{
	dlock_arg	more[3] = {DLOCK_DURATION(LOAD_TTL_US)};

	a->sent_us = dlock_now_us();
	if (a->state == IDLE)
	{
		a->state = ACQUIRES;
		a->name = any_of(LOAD_NAMES);
		a->floor = grants[a->name].token;
		more[1] = DLOCK_DURATION(any_of(3) * 200000);
		more[2] = request_of(t);
		begin(t, who, "dlock_acquire", names[a->name], more, 3);
	}
	else if (any_of(2) == 0)
	{
		a->state = RENEWS;
		more[1] = DLOCK_INTEGER(a->token);
		begin(t, who, "dlock_renew", names[a->name], more, 2);
	}
	else
	{
		a->state = RELEASES;
		/* from now on others may have it */
		if (grants[a->name].holder == who)
			grants[a->name].holder = -1;
		more[0] = DLOCK_INTEGER(a->token);
		begin(t, who, "dlock_release", names[a->name], more, 1);
	}
}

/*
 * All sessions acquire, renew and release the same few names, as dice fall.  One that closes its
 * connection in the middle of a call, or is told of an error, goes on as a new owner, since it
 * cannot know what it has.
 */
static void
load(struct trial *t)
{
	static const char *const names[LOAD_NAMES] = {"x", "y", "z"};
	struct actor actors[ACTORS] = {0};
	struct last_grant grants[LOAD_NAMES] = {{-1, 0, 0}, {-1, 0, 0}, {-1, 0, 0}};
	int64_t		end_us = dlock_now_us() + LOAD_US;

	while (dlock_now_us() < end_us)
	{
		struct pollfd files[ACTORS];
		int64_t		until_us = end_us;

		for (int who = 0; who < ACTORS; who++)
		{
			dlock_session *s = t->actors[who];
			struct actor *a = &actors[who];
			bool		closes = false;
			dlock_step	step;

			if (a->state == IDLE || a->state == HOLDS)
			{
				closes = any_of(200) == 0;
				start(t, who, names, a, grants);
			}
			step = dlock_session_step(s);
			if (step == DLOCK_STEP_FAILED && (is_read_only(dlock_session_error(s)) ||
											  dlock_session_error(s)->error_class == DLOCK_MISUSE))
				note_error(t, "a call", dlock_session_error(s));
			if (step == DLOCK_STEP_DONE)
				take_answer(t, who, a, &grants[a->name]);
			if (t->fails || t->skipped)
				return;
			if (step == DLOCK_STEP_FAILED || closes)
			{
				dlock_session_close(s);
				if (grants[a->name].holder == who)
					grants[a->name].holder = -1;
				t->lives[who]++;
				a->state = IDLE;
			}
			files[who] = (struct pollfd) {dlock_session_fd(s), dlock_session_events(s), 0};
			if (a->state == IDLE || a->state == HOLDS)
				until_us = 0;		/* the next call is started at once */
			else if (dlock_session_until_us(s) < until_us)
				until_us = dlock_session_until_us(s);
		}
		if (until_us > 0)
			poll(files, ACTORS, dlock_timeout_ms(until_us));
	}
	for (int name = 0; name < LOAD_NAMES; name++)
		if (grants[name].token > 0)
			return;
	set_reason(t, false, "nothing was granted");
}

static const struct
{
	const char *title;
	void		(*play) (struct trial *t);
	bool		plain;			/* plain/dlock.sql promises it, too */
}			checks[] =
{
	{"exclusion", exclusion, true},
	{"expiry", expiry, true},
	{"retries", retries, true},
	{"shared leases and permits", modes, true},
	{"all or none", all_or_none, true},
	{"order of waiters", order, false},
	{"a waiter that is gone", lost_waiter, true},
	{"deadlocks", deadlock, false},
	{"rollback", rollback, false},
	{"session leases", session_lease, false},
	{"guards", guard, true},
	{"load", load, true},
};

/* Give back what the actors have of this check, also as owners of before. */
static void
clean_up(struct trial *t)
{
	static const char *const names[] = {"n", "p", "x", "y", "z"};
	char		all[5][255];
	const char *list[5];

	for (int i = 0; i < 5; i++)
		list[i] = strcpy(all[i], name_of(t, names[i]));
	for (int who = 0; who < ACTORS; who++)
	{
		int			last = t->lives[who];

		for (t->lives[who] = 0; t->lives[who] <= last; t->lives[who]++)
		{
			const dlock_arg args[] = {DLOCK_TEXTS(list, 5), DLOCK_TEXT(owner_of(t, who))};

			call(t->actors[who], "dlock_release_many", args, 2, PATIENCE_US);
		}
		t->lives[who] = last;
	}
}

void
self_test(struct examination *e, const char *url)
{
	struct trial t = {.prefix = "dlock-self-test/"};
	unsigned char random[8];
	dlock_text	skipped = {0};
	bool		is_plain = false;
	int			kept = 0;
	dlock_error error;

	if (e->lost)
		return;
	if (getrandom(random, sizeof(random), 0) != (ssize_t) sizeof(random))
		end_with(STATUS_SYSTEM, "could not get random bytes");
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(t.prefix + strlen(t.prefix), 3, "%02x", random[i]);
	for (int who = 0; who < ACTORS; who++)
		if ((t.actors[who] = dlock_session_new(url, &error)) == NULL)
			exit(say_error(NULL, &error));
	if (dlock_session_engine(e->session) == DLOCK_POSTGRESQL && look(e, dlock_pg_schema_query))
		is_plain = number_of(e->session, 0, 1) != 0;
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
	{
		t.title = checks[i].title;
		t.fails = false;
		t.skipped = is_plain && !checks[i].plain;
		if (!t.skipped)
			checks[i].play(&t);
		/* sessions that have a call under way, or a transaction, begin anew */
		for (int who = 0; who < ACTORS; who++)
			dlock_session_close(t.actors[who]);
		clean_up(&t);
		if (t.fails)
			report(e, FINDING_ERROR, checks[i].title, "tell the authors, with the server's version", "%s", t.why);
		else if (t.skipped)
			dlock_text_format(&skipped, ", %s%s%s%s", checks[i].title,
							  t.why[0] ? " (" : "", t.why, t.why[0] ? ")" : "");
		else
		{
			kept++;
			report(e, FINDING_OK, checks[i].title, NULL, "as promised");
		}
		t.why[0] = '\0';
	}
	for (int who = 0; who < ACTORS; who++)
		dlock_session_free(t.actors[who]);
	report(e, FINDING_NOTE, "not tried",
		   "doc/reliability.md: how the versions that are tested are tried",
		   "a crash, a power cut, a failover, other nodes of a cluster, a full disk, a clock that is set%s", skipped.data ? skipped.data : "");
	dlock_text_free(&skipped);
	if (e->worst == FINDING_ERROR)
		report(e, FINDING_ERROR, "verdict", "mend the errors above", "do not trust this server with leases");
	else if (kept == 0)
		report(e, FINDING_WARNING, "verdict", "see \"not tried\"", "nothing could be tried");
	else
		report(e, FINDING_OK, "verdict", NULL,
			   "as far as it was tried, by %" PRId64 " calls, this server can be trusted with leases%s",
			   t.calls, e->worst == FINDING_WARNING ? "; mind the warnings above" : "");
}
