/*
 * keep.h
 *	  What a client does to acquire a lease, keep it alive and give it back.
 *
 * All arithmetic of clients/CONTRACT.md is here and nowhere else: deadlines, when
 * to renew, how long an attempt may take, pauses, margins.  Like core/ it is a
 * pure function of its input: it reads no clock, does no I/O, allocates nothing
 * and keeps nothing outside of the structure.  Time is a parameter,
 * microseconds of a clock that nobody sets, between 0 and INT64_MAX / 4.
 *
 * The driver (lease.c) has one connection and at most one call on it.  It asks
 * keep_next() what to do, does it, and reports the result:
 *
 *		KEEP_CONNECT					keep_connected() or keep_failed()
 *		KEEP_ACQUIRE, _RENEW,
 *		KEEP_RELEASE, _LEAVE			keep_answered() or keep_failed()
 *		KEEP_DROP						nothing: close the connection, and with it
 *										the call or the attempt to connect
 *		KEEP_AWAIT						until until_us, or until there is a report
 *		KEEP_TELL_...					nothing: tell the program
 *
 * A call has to be sent after keep_next() has returned it, never before: the
 * deadline counts from the time that was given to keep_next().
 *
 * Why two clients never hold the lease at once.  Let s be the time at which a
 * request was returned by keep_next(), and g the time at which the server
 * granted or renewed because of it, so s <= g.  The server keeps everybody else
 * out from g to g + ttl.
 *
 * Invariants, before and after every call:
 * 1. deadline_us = s + ttl for an s whose request the server answered with a
 * grant or with true, for the present hold.  So deadline_us <= g + ttl.
 *    Requests that were given up may be carried out later: a renewal or a
 *    repeated acquire only moves the server's deadline to a later time, since g
 *    grows and ttl is always the same, also for others with the same owner.
 *    dlock_release_after() ends their holds, too, but grants the name to nobody
 *    before the deadlines that they know.
 *    Requests that end the hold or shorten it are made only in state
 *    KEEP_ENDED.
 * 2. In state KEEP_HELD, lost_at_us = deadline_us - margin, and the state is left
 *    at the first call with that time or a later one, before anything else is done: an answer
 *    that comes too late changes nothing.  keep_is_held() compares the time first.
 *    So the program believes that it holds at most until g + ttl - margin.
 * 3. States are passed in their order, each once.
 * 4. KEEP_HELD begins at KEEP_TELL_HELD, within a third of the ttl after s.
 *    KEEP_TELL_LOST comes once, and only after that.
 * 5.  At most one attempt is under way.  KEEP_DROP ends it, and leaves its
 * result in doubt.
 * 6.  A driver that asks again at until_us makes at most one failing attempt in
 * 50 ms.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_KEEP_H
#define DLOCK_KEEP_H

#include <stdbool.h>
#include <stdint.h>

/* A time that never comes. */
#define KEEP_NEVER			INT64_MAX

/* The longest of all durations that a caller may name. */
#define KEEP_LONGEST_US		INT64_C(1000000000000000)

/* Pauses after an attempt that failed: the first, and the longest. */
#define KEEP_PAUSE_US		INT64_C(50000)
#define KEEP_PAUSE_MAX_US	INT64_C(1000000)

/* A lease is lost a tenth of its ttl before its deadline, or this much. */
#define KEEP_MARGIN_MAX_US	INT64_C(1000000)

/* How long to try a release; the same for a lease that is lost. */
#define KEEP_RELEASE_US		INT64_C(5000000)
#define KEEP_RELEASE_LOST_US	INT64_C(1000000)

/* How long a release waits for the answer of a renewal that is under way. */
#define KEEP_FINISH_US		INT64_C(1000000)

/* What the program wants.  It does not change after keep_init(). */
typedef struct keep_config
{
	int64_t		ttl_us;			/* 1 to KEEP_LONGEST_US */
	int64_t		wait_us;		/* 0: try once; negative: without limit */
	int64_t		connect_timeout_us; /* 1 to KEEP_LONGEST_US */
	int64_t		keep_at_least_us;	/* 0 to KEEP_LONGEST_US */
	/*
	 * Nobody else has this owner.  Then a release without a token, or a
	 * repeated one, ends only what this lease has.
	 */
	bool		owner_is_ours;
} keep_config;

typedef enum keep_state
{
	KEEP_NEW,
	KEEP_WAITING,
	KEEP_HELD,
	KEEP_LOST,
	KEEP_ENDED,					/* released, refused or failed */
} keep_state;

typedef enum keep_action_kind
{
	KEEP_AWAIT,
	KEEP_DROP,
	KEEP_CONNECT,
	KEEP_ACQUIRE,				/* for ttl, with wait_us and the request id */
	KEEP_RENEW,					/* for ttl, with the token */
	KEEP_RELEASE,				/* with the token, or 0: any token */
	KEEP_LEAVE,					/* give back in leave_us, with the token */
	KEEP_TELL_HELD,
	KEEP_TELL_RENEWED,
	KEEP_TELL_LOST,
	KEEP_TELL_REFUSED,
	KEEP_TELL_FAILED,
	KEEP_TELL_RELEASED,
	KEEP_DONE,					/* nothing will ever be done */
} keep_action_kind;

typedef struct keep_action
{
	keep_action_kind kind;
	/*
	 * For KEEP_AWAIT and for attempts: when to ask again if there is no report
	 * before.
	 */
	int64_t		until_us;
	int64_t		wait_us;		/* KEEP_ACQUIRE: negative is without limit */
	int64_t		leave_us;		/* KEEP_LEAVE: how long it is to last */
	int64_t		token;
	bool		given_back;		/* KEEP_TELL_RELEASED */
} keep_action;

/* What a call has answered. */
typedef enum keep_answer
{
	KEEP_GRANTED,				/* an acquire: a token */
	KEEP_REFUSED,				/* an acquire: NULL */
	KEEP_TRUE,					/* the others: done, for all names */
	KEEP_GONE,					/* false or NULL: none of it is held */
	KEEP_PARTLY,				/* done for some of the names */
} keep_answer;

/* Why an attempt has failed. */
typedef enum keep_fault
{
	KEEP_UNAVAILABLE,			/* no connection, or an error that passes */
	KEEP_MISUSE,				/* an error that stays */
	KEEP_DEADLOCK,				/* waiting would close a circle */
} keep_fault;

/* The work in progress. */
typedef enum keep_work
{
	KEEP_WORK_NOTHING,
	KEEP_WORK_ACQUIRE,
	KEEP_WORK_GRANTED,			/* tell it, unless it is too late for that */
	KEEP_WORK_CONFIRM,			/* renew before telling it */
	KEEP_WORK_RENEW,			/* while it is held; after that, until the
								 * answer */
	KEEP_WORK_FIND,				/* find out what an acquire without an answer
								 * was granted */
	KEEP_WORK_RELEASE,
	KEEP_WORK_LEAVE,
} keep_work;

typedef struct keep
{
	keep_config config;
	keep_state	state;
	keep_work	work;
	/* The attempt under way, from KEEP_CONNECT on; else KEEP_AWAIT. */
	keep_action_kind asked;
	int64_t		now_us;			/* the latest time that it was told */
	int64_t		start_us;
	/* Of the hold; 0 before there is one. */
	int64_t		token;
	int64_t		deadline_us;
	int64_t		lost_at_us;
	int64_t		held_us;		/* when it was told to be held */
	/* Of the attempt that is under way, or of the last. */
	int64_t		began_us;
	int64_t		sent_us;
	int64_t		attempt_until_us;
	/* After an attempt that failed. */
	int64_t		pause_us;
	int64_t		pause_until_us;
	/* When to end the work of giving back. */
	int64_t		work_until_us;
	bool		connected;		/* there is a connection */
	bool		fresh;			/* it was made for the present attempt */
	bool		reached;		/* there was one */
	bool		maybe_held;		/* the server may have a hold for an acquire that has
								 * no answer, or was not given back with one */
	bool		was_held;
	bool		rest;			/* the server may still have some of a lost lease */
	bool		unwanted;		/* the attempt under way is to be dropped */
	bool		once;			/* one attempt, then the work ends */
	bool		releasing;		/* tell its end */
	bool		maybe_given_back;	/* a release, or leaving it, has no answer */
	bool		given_back;
	/* What to tell, in the order of keep_action_kind. */
	unsigned	tells;
} keep;

/* Say whether a configuration is valid. */
extern bool keep_check_config(const keep_config *config);

/* Initialize it.  The configuration must have passed the check. */
extern void keep_init(keep *k, const keep_config *config);

/* Begin to acquire; harmless if it has begun. */
extern void keep_start(keep *k, int64_t now_us);

/* Give back, or cancel; harmless in any state. */
extern void keep_release(keep *k, int64_t now_us);

/* Say what to do next; the action returned counts as done at now_us. */
extern keep_action keep_next(keep *k, int64_t now_us);

/* Report that the connection has been made. */
extern void keep_connected(keep *k, int64_t now_us);

/* Report an answer; the token is that of a grant, else ignored. */
extern void keep_answered(keep *k, keep_answer answer, int64_t token,
						  int64_t now_us);

/* Report that an attempt has failed.  The connection is given up. */
extern void keep_failed(keep *k, keep_fault fault, int64_t now_us);

/* Say whether the lease is held at that time. */
extern bool keep_is_held(const keep *k, int64_t now_us);

/* The contract's times for a ttl. */
extern int64_t keep_margin_us(int64_t ttl_us);
extern int64_t keep_third_us(int64_t ttl_us);

#endif							/* DLOCK_KEEP_H */
