/*
 * view.pml
 *	  The log of MySQL and MariaDB in a cluster whose nodes all write: refusals, tokens and
 *	  time, also when the cluster's view changes.  A model in Promela.
 *
 * There is one name, and exclusive leases with one ttl.  Tokens are numbers, and the
 * clock ticks.  Rows are put into one sequence by certification: of two with the same
 * number the first is committed.  A node applies what others have committed some time
 * later.  A row is a take-over, which raises the counter of tokens to the clock; a grant,
 * a renewal, an end; or a lease that is carried forward.
 *
 * Run		The run of the library on a node.  It decides on what its node has applied,
 *			appends some time, if nothing was committed meanwhile, and answers, a release
 *			too.  A refusal first waits for what was committed when the call came.  Now and
 *			then the run looks whether the view has changed.
 * World	The clock, and what happens to the cluster: all nodes go down but one that has
 *			not applied everything, and that is told to go on alone.  What it has not got
 *			is lost.  The other joins it, with a new run.
 *
 * Properties:
 *
 *   held == 0 || ...   nobody is told that he has a lease while the lease of somebody who
 *                      was told before is not over for him, unless its grant was lost
 *   token > highest    tokens grow, across whatever was lost
 *   busy               a refused caller asked for a name that was held, by somebody who
 *                      had not been told that he has given it back, when he asked or later
 *   deadline ...       carrying a lease does not make it longer
 *
 *   spin -a view.pml && cc -O2 -w -DSAFETY -DNOREDUCE -o pan pan.c && ./pan
 *
 * GRANTS, RENEWALS, NUMBERS, TICKS and FAILURES, to spin, say how many leases, renewals,
 * rows, ticks and failures there are.  Other definitions take something away, and each must
 * be found out; t/454_model.pl sees to that:
 *
 *   NO_CAUSAL     a refusal does not wait for what has been committed
 *   EARLY         a release is answered before it is committed
 *   NO_CERTIFY    a row is committed though another has its number
 *   NO_FLOOR      a take-over does not raise the counter of tokens
 *   SAME_TICK     ... or in the tick in which it begins
 *   NO_VIEW       only the first append of a run is a take-over, not the first in a view
 *   LOOK_BEFORE   the view is looked at before each decision, and not before the answer
 *   NO_COUNT      a take-over does not count the time of leases anew
 *   CARRY_CLOCK   a carried lease counts from when it was read
 *   NO_CLOCK      what another node has granted or renewed does not count from when it was
 *                 read
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
#define NUMBERS		5
#endif
#ifndef TICKS
#define TICKS		4
#endif
#ifndef FAILURES
#define FAILURES	1
#endif
#ifndef CARRIES
#define CARRIES		0
#endif
#define TTL			2
#define RATE		3			/* the counter grows by less in a tick */

#define TAKE_OVER	1
#define GRANT		2
#define RENEW		3
#define END			4
#define CARRY		5

typedef Row {
	byte writer;
	byte what;
	byte holder;				/* the token that holds the name then */
	byte counter;				/* the last token */
};
Row row[NUMBERS + 2];			/* the sequence */
byte last = 1;

typedef Library {
	byte me;
	byte n;						/* the last row that its node, and it, has applied */
	byte holder;
	byte counter;
	byte deadline;				/* of the holder, by this run */
	byte limit;					/* ... and what it may be at most */
	byte view;					/* the last that it has seen */
	bool must;					/* the next append is a take-over, */
	byte begun;					/* ... since a call at that tick; 0: none came */
	byte what;					/* decided, to be appended; 0: nothing */
	byte token;					/* ... the holder then */
	byte raised;				/* ... and the counter */
	byte decided;				/* ... the tick */
	bool asked;					/* a call waits to be refused */
	byte seen;					/* ... until this row was applied */
	bool busy;					/* ... and the name was held meanwhile */
};
Library run_[2];

byte now = 1;
byte view = 1;
byte writers;
byte grants;
byte renewals;
byte carries;
byte failures;

byte held;						/* the token whose holder was told */
byte until;						/* ... and it is not over for him */
byte highest;					/* the last token of which somebody was told */
byte given_back;				/* the last that was answered */

#define R			run_[s]

/* The name is held, and its holder was not told that he has given it back. */
#define IS_BUSY		(row[last].holder != 0 && row[last].holder != given_back)

inline forget_batch()
{
	R.what = 0;
	R.token = 0;
	R.raised = 0;
	R.decided = 0
}

inline decide(what_, token_, counter_)
{
	R.what = what_;
	R.token = token_;
	R.raised = counter_;
	R.decided = now
}

inline clear_row(n_)
{
	row[n_].writer = 0;
	row[n_].what = 0;
	row[n_].holder = 0;
	row[n_].counter = 0
}

inline note_busy()
{
	run_[0].busy = run_[0].asked && (run_[0].busy || IS_BUSY);
	run_[1].busy = run_[1].asked && (run_[1].busy || IS_BUSY)
}

/* A run begins. */
inline begin(s_)
{
	writers++;
	run_[s_].me = writers;
	run_[s_].n = last;
	run_[s_].holder = row[last].holder;
	run_[s_].counter = row[last].counter;
	run_[s_].deadline = now + TTL;
	run_[s_].limit = now + TTL;
	run_[s_].view = view;
	run_[s_].must = true;
	run_[s_].begun = 0;
	run_[s_].what = 0;
	run_[s_].token = 0;
	run_[s_].raised = 0;
	run_[s_].decided = 0;
	run_[s_].asked = false;
	run_[s_].seen = 0;
	run_[s_].busy = false
}

#ifdef LOOK_BEFORE
#define CAN_DECIDE		(R.what == 0 && R.n < NUMBERS && R.view == view)
#else
#define CAN_DECIDE		(R.what == 0 && R.n < NUMBERS)
#endif

#ifdef NO_CERTIFY
#define IS_CERTIFIED	(last < NUMBERS)
#else
#define IS_CERTIFIED	(R.n == last)
#endif

proctype Run(byte s)
{
	byte i;

end:
	do
	/* the next row of another node: what was decided is decided again */
	:: d_step {
			R.n < last ->
			R.n++;
			R.counter = row[R.n].counter;
			if
			:: row[R.n].what == GRANT || row[R.n].what == RENEW ->
#ifndef NO_CLOCK
				R.deadline = now + TTL;
#endif
				R.limit = now + TTL
			:: row[R.n].what == CARRY ->
#ifdef CARRY_CLOCK
				R.deadline = now + TTL
#else
				skip
#endif
			:: else
			fi;
			R.holder = row[R.n].holder;
			assert(R.deadline <= R.limit);
			forget_batch()
		}

	/* look whether the view has changed */
	:: d_step {
			R.view != view ->
			R.view = view;
#ifndef NO_VIEW
			R.must = true;
			R.begun = 0
#endif
		}

	/*
	 * A call comes, and is decided: take over first, once the clock has moved on since
	 * the view was looked at,
	 */
	:: d_step { CAN_DECIDE && R.must && R.begun == 0 -> R.begun = now }
	:: d_step {
			CAN_DECIDE && R.must && R.begun != 0 &&
#ifndef SAME_TICK
			now > R.begun &&
#endif
			true ->
			decide(TAKE_OVER, R.holder, R.counter);
#ifndef NO_FLOOR
			if
			:: R.raised < now * RATE -> R.raised = now * RATE
			:: else
			fi
#endif
		}
	/* grant, */
	:: d_step {
			CAN_DECIDE && !R.must && grants < GRANTS &&
			(R.holder == 0 || R.deadline <= now) &&
#ifndef NO_FLOOR
			R.counter + 1 < (now + 1) * RATE &&
#endif
			true ->
			grants++;
			decide(GRANT, R.counter + 1, R.counter + 1)
		}
	/* renew, */
	:: d_step {
			CAN_DECIDE && !R.must && renewals < RENEWALS && held != 0 &&
			R.holder == held && R.deadline > now ->
			renewals++;
			decide(RENEW, R.holder, R.counter)
		}
	/* give back, */
	:: d_step {
			CAN_DECIDE && !R.must && held != 0 && R.holder == held && R.deadline > now ->
			decide(END, 0, R.counter);
#ifdef EARLY
			given_back = held;
#endif
			held = 0;
			until = 0
		}
	/* or carry forward what lives */
	:: d_step {
			CAN_DECIDE && !R.must && carries < CARRIES && R.holder != 0 ->
			carries++;
			decide(CARRY, R.holder, R.counter)
		}

	/* append, and answer */
	:: d_step {
			R.what != 0 && IS_CERTIFIED ->
			last++;
			R.n = last;
			row[last].writer = R.me;
			row[last].what = R.what;
			row[last].holder = R.token;
			row[last].counter = R.raised;
			R.counter = R.raised;
			if
			:: R.what == TAKE_OVER ->
#ifndef NO_COUNT
				R.deadline = R.decided + TTL;
				R.limit = R.decided + TTL;
#endif
#ifdef LOOK_BEFORE
				R.must = false;
#else
				R.must = (R.begun == 0 || (R.must && R.view != view));
#endif
				R.begun = 0
			:: R.what == GRANT || R.what == RENEW ->
				R.deadline = R.decided + TTL;
				R.limit = R.decided + TTL
			:: else
			fi;
			R.holder = R.token;
			if
#if !defined(LOOK_BEFORE) && !defined(NO_VIEW)
			/* the view has changed: decide again */
			:: R.must || R.view != view
			:: !R.must && R.view == view && R.what == GRANT ->
#else
			:: R.what == GRANT ->
#endif
				assert(held == 0 || until <= now);
				assert(R.token > highest);
				highest = R.token;
				held = R.token;
				until = R.decided + TTL
#if !defined(LOOK_BEFORE) && !defined(NO_VIEW)
			:: !R.must && R.view == view && R.what == RENEW ->
#else
			:: R.what == RENEW ->
#endif
				if
				:: held == R.token && until < R.decided + TTL -> until = R.decided + TTL
				:: else
				fi
#if !defined(LOOK_BEFORE) && !defined(NO_VIEW)
			:: !R.must && R.view == view && R.what == END ->
#else
			:: R.what == END ->
#endif
#ifdef EARLY
				skip
#else
				given_back = row[last - 1].holder
#endif
			:: else
			fi;
			forget_batch();
			note_busy()
		}

	/* a call that is refused comes, */
	:: d_step {
			!R.asked && R.holder != 0 && R.what == 0 && !R.must ->
			R.asked = true;
			R.busy = IS_BUSY;
#ifndef NO_CAUSAL
			R.seen = last
#endif
		}
	/* and is answered; or it has found the name free */
	:: d_step {
			R.asked && R.n >= R.seen ->
			if
			:: R.holder != 0 && R.view == view && !R.must -> assert(R.busy)
			:: else
			fi;
			R.asked = false;
			R.seen = 0;
			R.busy = false
		}
	od
}

active proctype World()
{
	byte i;
	byte s;

	atomic {
		writers = 1;
		row[1].writer = 1;
		begin(0);
		begin(1);
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

	/* only one node is left, with what it has applied */
	:: atomic {
			failures < FAILURES ->
			failures++;
			if
			:: s = 0
			:: s = 1
			fi;
			view++;
			do
			:: last > R.n ->
				clear_row(last);
				last--
			:: else -> break
			od;
			i = 2;
			do
			:: i <= last && !(row[i].what == GRANT && row[i].holder == held) -> i++
			:: else -> break
			od;
			if
			:: i > last ->
				held = 0;
				until = 0
			:: else
			fi;
			i = 0;
			given_back = 0;
			begin(1 - s);
			note_busy();
			s = 0
		}
	od
}
