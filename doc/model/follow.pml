/*
 * follow.pml
 *	  The log of MySQL and MariaDB on two servers, one of which replicates from the
 *	  other: loss, holes, promotion, tokens and time.  A model in Promela.
 *
 * There is one name, and exclusive leases with one ttl.  Tokens are numbers, and the
 * clock ticks.  Both servers have the same clock.  A row is a take-over, which raises the
 * counter of tokens to the clock; a grant; or a renewal.  Each row has what is held after
 * it, as its writer saw it.
 *
 * Run		The run of the library on a server.  It reads its server's log, row after
 *			row.  Where its server is writable it decides on what it has read, appends
 *			some time, unless row N + 1 is there by then or N is not as it knew it, and
 *			answers.  It lives on while its server is demoted and promoted.
 * World	The clock; the replication, one way, row by row; demotion, and promotion of the
 *			other server when that has got everything; and failures: the other server is
 *			promoted with what it has, and the old source, after a crash or only cut off,
 *			gets a copy of it.
 *
 * With SEMISYNC a row has arrived before it is answered; otherwise what has not arrived is
 * lost in a failure.  With HOLES a row may arrive before the one that it follows.  With
 * CIRCLE both servers are always writable and replicate from each other, and callers
 * use one, the "source", at a time.
 *
 * Properties:
 *
 *   held == 0 || ...   nobody is told that he has a lease while the lease of somebody who
 *                      was told before is not over for him, unless its grant was lost
 *   token > highest    tokens grow, across whatever was lost
 *   holder == row...   what a run has read is what was held when the last row that it has
 *                      applied was written: the fold of a prefix; and it appends only
 *                      behind what it has read
 *   row[...] == 0      nothing is left beyond a take-over
 *   s == source        nothing is appended on a server that is not the source (replication
 *                      would stop)
 *
 *   spin -a follow.pml && cc -O2 -w -DSAFETY -DNOREDUCE -o pan pan.c && ./pan
 *
 * GRANTS, RENEWALS, NUMBERS, TICKS, FAILURES and SWITCHES, to spin, say how many leases,
 * renewals, rows, ticks, failures and planned switches there are.  Other definitions take
 * something away, and each must be found out; t/454_model.pl sees to that:
 *
 *   NO_FLOOR      a take-over does not raise the counter of tokens
 *   SAME_TICK     ... or in the tick in which it begins
 *   FIRST_ONLY    only the first append of a run is a take-over
 *   NO_LOOK       ... and each that follows another run's row, but not the next of a run
 *                 that has seen its server read-only
 *   NO_PAUSE      a server is writable again before its run has seen that it was not
 *   LOOK_BEFORE   an append that was decided before that is answered
 *   LATE          a grant is answered although its ttl has passed
 *   NO_COUNT      a take-over does not count the time of leases anew
 *   COUNT_LIVE    ... but of those only that are not over for this run
 *   JUMP          who reads the log jumps over a hole
 *   NO_DELETE     a take-over leaves the rows beyond a hole
 *   NO_WRITER     an append does not look who wrote row N
 *   EARLY         a grant is answered before it has arrived (with SEMISYNC)
 *   UPKEEP        in a circle a run appends by itself where the last row is its own
 *
 * SPDX-License-Identifier: PostgreSQL
 */

#ifndef GRANTS
#define GRANTS		3
#endif
#ifndef RENEWALS
#define RENEWALS	1
#endif
#ifndef NUMBERS
#define NUMBERS		6
#endif
#ifndef TICKS
#define TICKS		4
#endif
#ifndef FAILURES
#define FAILURES	2
#endif
#ifndef SWITCHES
#define SWITCHES	0
#endif
#define TTL			2
#define RATE		3			/* the counter grows by less in a tick */

#define TAKE_OVER	1
#define GRANT		2
#define RENEW		3
#define REAP		4			/* a lease that is over is ended by the run itself */

typedef Row {
	byte writer;				/* 0: it is not there */
	byte before;				/* the writer of the row before */
	byte what;
	byte holder;				/* the token that holds the name then */
	byte counter;				/* the last token */
};
typedef Copy {
	Row row[NUMBERS + 3];
};
Copy copy[2];

typedef Library {
	byte me;
	bool known;
	byte n;						/* the last row that was applied */
	byte before;				/* who wrote it */
	byte holder;
	byte counter;
	byte deadline;				/* of the holder, by this run */
	bool must;					/* the next append is a take-over, */
	byte begun;					/* ... since a call at that tick; 0: none came */
	byte what;					/* decided, to be appended; 0: nothing */
	byte token;					/* ... the holder then */
	byte raised;				/* ... and the counter */
	byte decided;				/* ... the tick */
	bool appended;				/* to be answered */
};
Library run_[2];

byte now = 1;
byte source;
bool writable[2];
bool looked[2];					/* the run has seen that the server is read-only */
byte writers;
byte grants;
byte renewals;
byte failures;
byte switches;

byte held;						/* the token whose holder was told */
byte until;						/* ... and it is not over for him */
byte highest;					/* the last token of which somebody was told */

#define R			run_[s]
#define ROW(n_)		copy[s].row[n_]

#ifdef CIRCLE
#define APPLIER(s)	true
#else
#define APPLIER(s)	(s != source)
#endif

/* Anybody may call the source, and only that. */
#define CALLED(s)	(writable[s] && s == source)

#if defined(FIRST_ONLY)
#define MUST		(R.must)
#else
#define MUST		(R.must || R.before != R.me)
#endif

#ifdef NO_WRITER
#define N_IS_THERE	(ROW(R.n).writer != 0)
#else
#define N_IS_THERE	(ROW(R.n).writer == R.before)
#endif

#define FOLLOWS(n_)	(ROW(n_).writer != 0 && ROW(n_).before == R.before)

#ifdef SEMISYNC
#ifdef EARLY
#define ARRIVED		true
#else
#define ARRIVED		(copy[1 - s].row[R.n].writer == R.me)
#endif
#else
#define ARRIVED		true
#endif

/* What was decided may be answered. */
#ifdef LOOK_BEFORE
#define IS_SEEN_WRITABLE	true
#else
#define IS_SEEN_WRITABLE	(!R.must)
#endif
#ifdef LATE
#define IS_IN_TIME		true
#else
#define IS_IN_TIME		(now < R.decided + TTL)
#endif

inline forget_batch()
{
	R.what = 0;
	R.token = 0;
	R.raised = 0;
	R.decided = 0;
	R.appended = false
}

inline unload()
{
	R.known = false;
	R.n = 0;
	R.before = 0;
	R.holder = 0;
	R.counter = 0;
	R.deadline = 0;
	R.begun = 0
}

/* Apply the next row, or with a hole the one after it. */
inline apply(step_)
{
	R.n = R.n + step_;
	R.before = ROW(R.n).writer;
	R.counter = ROW(R.n).counter;
	if
	:: ROW(R.n).what == GRANT ->
		R.holder = ROW(R.n).holder;
		R.deadline = now + TTL
	:: ROW(R.n).what == RENEW -> R.deadline = now + TTL
	:: ROW(R.n).what == REAP -> R.holder = 0
	:: else
	fi;
	assert(R.holder == ROW(R.n).holder)
}

inline clear_row(c_, n_)
{
	copy[c_].row[n_].writer = 0;
	copy[c_].row[n_].before = 0;
	copy[c_].row[n_].what = 0;
	copy[c_].row[n_].holder = 0;
	copy[c_].row[n_].counter = 0
}

inline copy_row(c_, n_)
{
	copy[c_].row[n_].writer = copy[1 - (c_)].row[n_].writer;
	copy[c_].row[n_].before = copy[1 - (c_)].row[n_].before;
	copy[c_].row[n_].what = copy[1 - (c_)].row[n_].what;
	copy[c_].row[n_].holder = copy[1 - (c_)].row[n_].holder;
	copy[c_].row[n_].counter = copy[1 - (c_)].row[n_].counter
}

inline decide(what_, token_, counter_)
{
	R.what = what_;
	R.token = token_;
	R.raised = counter_;
	R.decided = now
}

proctype Run(byte s)
{
	byte i;

end:
	do
	/* load: there is no hole, or nobody who would fill it */
	:: d_step {
			!R.known ->
			i = 1;
			do
			:: ROW(i + 1).writer != 0 -> i++
			:: else -> break
			od;
			if
			:: !APPLIER(s) || ROW(i + 2).writer == 0 ->
				writers++;
				R.me = writers;
				R.n = i;
				R.before = ROW(i).writer;
				R.holder = ROW(i).holder;
				R.counter = ROW(i).counter;
				R.deadline = now + TTL;
				R.known = true;
				R.must = true
			:: else
			fi;
			i = 0
		}

	/* read the next row, */
	:: d_step {
			R.known && !R.appended && ROW(R.n).writer == R.before && FOLLOWS(R.n + 1) ->
			apply(1);
			forget_batch()
		}
#ifdef JUMP
	:: d_step {
			R.known && !R.appended && ROW(R.n).writer == R.before &&
			ROW(R.n + 1).writer == 0 && ROW(R.n + 2).writer != 0 ->
			apply(2);
			forget_batch()
		}
#endif
	/* or that the last one is not what it was */
	:: d_step {
			R.known && !N_IS_THERE ->
			unload();
			forget_batch()
		}

	/* look whether the server is writable */
	:: d_step {
			!writable[s] && !looked[s] ->
			looked[s] = true;
#if !defined(NO_LOOK) && !defined(FIRST_ONLY)
			R.must = true;
			R.begun = 0
#endif
		}

	/*
	 * A call comes, and is decided: take over first, once the clock has moved on since
	 * the server was seen to be writable,
	 */
	:: d_step {
			R.known && CALLED(s) && R.what == 0 && MUST && R.begun == 0 ->
			R.begun = now
		}
	:: d_step {
			R.known && CALLED(s) && R.what == 0 && MUST && R.n < NUMBERS &&
			R.begun != 0 &&
#ifndef SAME_TICK
			now > R.begun &&
#endif
			true ->
#ifdef NO_FLOOR
			decide(TAKE_OVER, R.holder, R.counter)
#else
			decide(TAKE_OVER, R.holder, R.counter);
			if
			:: R.raised < now * RATE -> R.raised = now * RATE
			:: else
			fi
#endif
		}
	/* grant, */
	:: d_step {
			R.known && CALLED(s) && R.what == 0 && !MUST && R.n < NUMBERS &&
			grants < GRANTS && (R.holder == 0 || R.deadline <= now) &&
#ifndef NO_FLOOR
			R.counter + 1 < (now + 1) * RATE &&
#endif
			true ->
			grants++;
			decide(GRANT, R.counter + 1, R.counter + 1)
		}
	/* renew */
	:: d_step {
			R.known && CALLED(s) && R.what == 0 && !MUST && R.n < NUMBERS &&
			renewals < RENEWALS && held != 0 && R.holder == held && R.deadline > now ->
			renewals++;
			decide(RENEW, R.holder, R.counter)
		}

#ifdef UPKEEP
	/* end what is over, by itself */
	:: d_step {
			R.known && writable[s] && R.what == 0 && !MUST && R.n < NUMBERS &&
			R.holder != 0 && R.deadline <= now ->
			decide(REAP, 0, R.counter)
		}
#endif

	/* append */
	:: d_step {
			R.what != 0 && !R.appended && writable[s] && N_IS_THERE &&
			ROW(R.n + 1).writer == 0 ->
			assert(s == source);
			assert(R.holder == ROW(R.n).holder);
			R.n++;
			ROW(R.n).writer = R.me;
			ROW(R.n).before = R.before;
			ROW(R.n).what = R.what;
			ROW(R.n).holder = R.token;
			ROW(R.n).counter = R.raised;
			R.before = R.me;
			R.holder = R.token;
			R.counter = R.raised;
			if
			:: R.what == TAKE_OVER ->
#ifndef NO_DELETE
				i = R.n + 1;
				do
				:: i <= NUMBERS ->
					clear_row(s, i);
					i++
				:: else -> break
				od;
				i = 0;
#endif
				assert(ROW(R.n + 1).writer == 0);
				if
#ifdef COUNT_LIVE
				:: R.deadline > now ->
#else
				:: true ->
#endif
#ifdef NO_COUNT
					skip
#else
					R.deadline = R.decided + TTL
#endif
				:: else
				fi;
#ifndef LOOK_BEFORE
				/* the server may have been read-only since it was decided */
				R.must = (R.begun == 0);
#else
				R.must = false;
#endif
				R.begun = 0;
				forget_batch()
			:: R.what == REAP -> forget_batch()
			:: else ->
				R.deadline = R.decided + TTL;
				R.appended = true
			fi
		}

	/* answer */
	:: d_step {
			R.appended && ARRIVED ->
			if
			:: IS_SEEN_WRITABLE && IS_IN_TIME ->
				if
				:: R.what == GRANT ->
					assert(held == 0 || until <= now);
					assert(R.token > highest);
					highest = R.token;
					held = R.token;
					until = R.decided + TTL
				:: R.what == RENEW && held == R.token && until < R.decided + TTL ->
					until = R.decided + TTL
				:: else
				fi
			/* the server was read-only meanwhile, or the lease is over: decide again */
			:: else
			fi;
			forget_batch()
		}
	od
}

/* The old source gets a copy of the new one. */
inline rebuild(c_)
{
	i = 1;
	do
	:: i <= NUMBERS ->
		copy_row(c_, i);
		i++
	:: else -> break
	od;
	i = 0
}

#define MISSING(n_)	(copy[source].row[n_].writer != 0 && \
					 copy[1 - source].row[n_].writer == 0)

/* A row arrives, with what a take-over deletes. */
inline arrive(n_)
{
	copy_row(1 - source, n_);
	if
	:: copy[source].row[n_].what == TAKE_OVER ->
		j = n_ + 1;
		do
		:: j <= NUMBERS ->
			if
			:: copy[source].row[j].writer != copy[1 - source].row[j].writer ->
				clear_row(1 - source, j)
			:: else
			fi;
			j++
		:: else -> break
		od;
		j = 0
	:: else
	fi
}

active proctype World()
{
	byte i;
	byte j;

	atomic {
		writers = 1;
		copy[0].row[1].writer = 1;
		copy[1].row[1].writer = 1;
		writable[0] = true;
#ifdef CIRCLE
		writable[1] = true;
#endif
		run Run(0);
		run Run(1)
	}

end:
	do
	:: d_step {
			now < TICKS ->
			now++;
			if
			:: held != 0 && until <= now ->
				held = 0;
				until = 0
			:: else
			fi
		}

	/* the first row that is missing arrives, */
	:: d_step {
			copy[0].row[NUMBERS].writer != copy[1].row[NUMBERS].writer ||
			true ->
			i = 2;
			do
			:: i <= NUMBERS && !MISSING(i) -> i++
			:: else -> break
			od;
			if
			:: i <= NUMBERS -> arrive(i)
			:: else
			fi;
			i = 0
		}
#ifdef HOLES
	/* or the second */
	:: d_step {
			true ->
			i = 2;
			do
			:: i <= NUMBERS && !MISSING(i) -> i++
			:: else -> break
			od;
			if
			:: i < NUMBERS && MISSING(i + 1) -> arrive(i + 1)
			:: else
			fi;
			i = 0
		}
#endif

	/* demotion, and promotion of the other when it has everything */
#ifndef CIRCLE
	:: d_step {
			switches < SWITCHES && writable[source] ->
			switches++;
			writable[source] = false;
			looked[source] = false
		}
#endif
	:: d_step {
#ifdef CIRCLE
			switches < SWITCHES && !run_[source].appended && run_[source].what == 0 &&
#else
			!writable[source] &&
#ifndef NO_PAUSE
			looked[1 - source] &&
#endif
#endif
			true ->
			i = 2;
			do
			:: i <= NUMBERS && !MISSING(i) -> i++
			:: else -> break
			od;
			if
			:: i > NUMBERS ->
				source = 1 - source;
				writable[source] = true;
#ifdef CIRCLE
				switches++
#else
				looked[source] = false
#endif
			:: else
			fi;
			i = 0
		}

	/* the other is promoted as it is, and the old source gets a copy */
#ifndef CIRCLE
	:: atomic {
			failures < FAILURES && writable[source] &&
#ifndef NO_PAUSE
			looked[1 - source] &&
#endif
			true ->
			failures++;
			writable[source] = false;
			looked[source] = false;
			source = 1 - source;
			writable[source] = true;
			looked[source] = false;
#ifndef SEMISYNC
			/* is the grant lost?  What is beyond a hole is. */
			i = 2;
			do
			:: copy[source].row[i].writer != 0 &&
			   !(copy[source].row[i].what == GRANT &&
				 copy[source].row[i].holder == held) -> i++
			:: else -> break
			od;
			if
			:: copy[source].row[i].writer == 0 ->
				held = 0;
				until = 0
			:: else
			fi;
			/* ... with an answer that is under way */
			i = 1;
			do
			:: copy[source].row[i + 1].writer != 0 -> i++
			:: else -> break
			od;
			if
			:: run_[1 - source].appended && run_[1 - source].n > i ->
				run_[1 - source].what = 0;
				run_[1 - source].token = 0;
				run_[1 - source].raised = 0;
				run_[1 - source].decided = 0;
				run_[1 - source].appended = false
			:: else
			fi;
			i = 0;
#endif
			rebuild(1 - source);
			if
			/* a crash */
			:: true ->
				i = 1 - source;
				run_[i].me = 0;
				run_[i].known = false;
				run_[i].n = 0;
				run_[i].before = 0;
				run_[i].holder = 0;
				run_[i].counter = 0;
				run_[i].deadline = 0;
				run_[i].must = false;
				run_[i].begun = 0;
				run_[i].what = 0;
				run_[i].token = 0;
				run_[i].raised = 0;
				run_[i].decided = 0;
				run_[i].appended = false;
				i = 0
			/* it was only cut off */
			:: true
			fi
		}
#endif
	od
}
