/*
 * append.pml
 *	  Compare and append: how the runs of the library on one MySQL or MariaDB server
 *	  write the log.  A model in Promela.
 *
 * The log is a table of numbered rows.  There is one name, and exclusive leases
 * without an end but a release.  A row ends one lease, grants one, or both, or says
 * nothing; the log begins with one lease.  What is held is the fold of the rows; here each row has it, which stands
 * for carrying and loading, the subject of carry.pml.
 *
 * Run		A run of the library: its image, an open and a flying buffer.  There are two
 *			runs, since a server may have an old one beside a new one.  Each action of a
 *			run is one step.
 * Thread	What the server does with a statement, one of each run and one that has
 *			lost its connection, a zombie.  It may stand still for long.
 * Server	Flushes the log.  It may crash, which ends what was not flushed and all runs.
 *			Or the table is restored from a dump, while all runs go on.
 *
 * A lease that somebody was told of is given back by its holder, to any run that knows
 * of it, and answered at once.  One of which nobody knows whether he has it may be given
 * back, too.  A holder who has given back may ask again with his request id, and keeps
 * his lease if the run he asks does not know of the release.
 *
 * Properties:
 *
 *   held == 0          nobody is told that he has a lease while somebody else was told
 *                      so and has not given it back: no lease is granted twice, none
 *                      that was answered is lost.  (A restored dump loses what is newer;
 *                      from then on the same holds again.)
 *   row[...] != held   no row ends a lease that somebody was told of and keeps
 *   image == row...    the image of a run, with what its buffers did taken off, is the
 *                      fold of the log up to the last row that it has applied
 *   durable[...]       a refusal rests on a lease that a crash would not undo
 *   answered != ...    ... and not on one whose release this run has answered, unless
 *                      another run, a dump or a crash came between
 *
 *   spin -a append.pml && cc -O2 -w -DSAFETY -DNOREDUCE -o pan pan.c && ./pan
 *
 * GRANTS, AGAIN, NUMBERS, CRASHES, ZOMBIES, RESTORES and CLEANINGS, to spin, say how many
 * leases, requests that are repeated, rows, crashes, lost connections, restored dumps and
 * deletions of old rows there are.  Other definitions take something away, and each must be found out; t/454_model.pl
 * sees to that:
 *
 *   NO_LOCK       a statement does not lock row N
 *   NO_COMPARE    it inserts whatever row N + 1 would follow
 *   NO_WRITER     it does not look who wrote row N
 *   SAME_WRITER   a run that has to load anew goes on under the same number
 *   ONE_COPY      a name that both buffers changed has one copy, from before the first
 *   COPIES_FIRST  if an append fails, the flying buffer's copy comes back first
 *   NO_COPY       if an append fails, what the open buffer did stays
 *   BELIEVE       a row that is found after a lost connection is believed at once
 *   GIVE_UP       a statement with a lost connection is taken for one that failed
 *   ANY_BATCH     ... and any row of one's own for the batch that was sent last
 *   KILL          an append is killed, which is reported as a success
 *   EARLY         a grant is answered before its append
 *   EARLY_REFUSAL a refusal is answered before what it rests on is durable
 *   TRUST_OTHERS  a row of another run is taken for durable when it was read
 *   DECIDE_AGAIN  a release that was answered is decided again after another run has
 *                 written
 *   NO_MORE_SAME  a buffer whose append has come to nothing is forgotten
 *
 * SPDX-License-Identifier: PostgreSQL
 */

#ifndef GRANTS
#define GRANTS		3
#endif
#ifndef AGAIN
#define AGAIN		1
#endif
#ifndef NUMBERS
#define NUMBERS		5
#endif
#ifndef CRASHES
#define CRASHES		1
#endif
#ifndef ZOMBIES
#define ZOMBIES		1
#endif
#ifndef RESTORES
#define RESTORES	0
#endif
#ifndef CLEANINGS
#define CLEANINGS	1
#endif

/* A row of the log; no writer: it is not there. */
typedef Row {
	byte writer;
	byte ended;
	byte granted;
	byte holder;				/* the fold up to here; 0: nobody */
};
Row row[NUMBERS + 2];			/* by number, from 1 on */
byte last = 1;
byte flushed = 1;				/* what has at most this number survives a crash */

/* A statement.  The last one is a zombie. */
#define NONE		0
#define SENT		1
#define SEEN		2			/* row N was there (only with NO_LOCK) */
#define VISIBLE		3
typedef Statement {
	byte state;
	byte number;				/* of the row that is to be there */
	byte before;				/* who wrote that */
	byte writer;
	byte ended;
	byte granted;
};
Statement statement[3];

/* What is to be appended, and who held the name before. */
typedef Buffer {
	bool used;
	byte ended;
	byte granted;
	byte copy;
	bool copied;
};

typedef Library {
	byte me;					/* the number of this run, as a writer */
	bool known;					/* it has loaded the log */
	byte n;						/* the last row that it has applied */
	byte before;				/* who wrote that */
	byte safe;					/* up to this number all is known to be durable */
	byte image;					/* who holds the name, if it is known */
	Buffer open;
	Buffer fly;
	bool sent;					/* the flying buffer's statement is out */
	byte seen;					/* a grant of ours that is visible, and not yet
								 * believed */
	byte answered;				/* the last release that was answered */
};
Library run_[2];

byte writers;					/* numbers the runs */
byte grants;					/* numbers the leases */
byte agains;
byte crashes;
byte zombies;
byte restores;
byte cleanings;

byte held;						/* whose holder was told, and keeps it */
bool given_back[GRANTS + 1];
bool unknown[GRANTS + 1];		/* nobody knows whether he has it */
bool durable[GRANTS + 1];		/* a crash did not undo it, or would not */

#if defined(NO_COMPARE)
#define IS_THERE(i)		true
#elif defined(NO_WRITER)
#define IS_THERE(i)		(row[statement[i].number].writer != 0)
#else
#define IS_THERE(i)		(row[statement[i].number].writer == statement[i].before)
#endif

#define R				run_[s]

/* Somebody asks this run for what is held. */
#define ASKED(s)		(row[last].holder == run_[s].open.granted || \
						 row[last].holder == run_[s].fly.granted || \
						 row[last].holder == run_[s].seen)
#define PENDING(t)		(t == R.open.granted || t == R.fly.granted || t == R.seen)

/* Whatever fails, the row of a lost statement is that of the batch that was sent. */
#ifdef ANY_BATCH
#define IS_OURS			(row[R.n + 1].writer == R.me)
#else
#define IS_OURS			(row[R.n + 1].writer == R.me && \
						 row[R.n + 1].ended == R.fly.ended && \
						 row[R.n + 1].granted == R.fly.granted)
#endif

inline clear_buffer(b)
{
	b.used = false;
	b.ended = 0;
	b.granted = 0;
	b.copy = 0;
	b.copied = false
}

/* Before a change, keep the copy. */
inline before_change()
{
	if
#ifdef ONE_COPY
	:: !R.open.copied && !R.fly.copied ->
#else
	:: !R.open.copied ->
#endif
		R.open.copied = true;
		R.open.copy = R.image
	:: else
	fi;
	R.open.used = true
}

/* Tell a caller that he has the lease. */
inline tell(t_)
{
	if
	:: t_ != 0 ->
		assert(held == 0);
		held = t_;
		given_back[t_] = false
	:: else
	fi
}

/* What the buffers did is undone. */
inline roll_back()
{
#ifdef COPIES_FIRST
	if
	:: R.fly.copied -> R.image = R.fly.copy
	:: else
	fi;
#endif
#ifndef NO_COPY
	if
	:: R.open.copied -> R.image = R.open.copy
	:: else
	fi;
#endif
#ifndef COPIES_FIRST
	if
	:: R.fly.copied -> R.image = R.fly.copy
	:: else
	fi
#endif
}

/*
 * The calls of both buffers decide again.  There is at most one release and one
 * grant.  Here another has written meanwhile, or all was loaded anew: a release that was
 * answered is given up.
 */
inline decide_again()
{
	ended = R.fly.ended + R.open.ended;
	granted = R.fly.granted + R.open.granted;
	if
	:: R.seen != 0 && R.image != R.seen ->
		granted = R.seen;
		R.seen = 0
	:: else
	fi;
	clear_buffer(R.open);
	clear_buffer(R.fly);
#ifdef DECIDE_AGAIN
	if
	:: ended != 0 && R.image == ended ->
		before_change();
		R.open.ended = ended;
		R.image = 0
	:: else
	fi;
#endif
	if
	/* the first time, or with the request id of what is held still */
	:: granted != 0 && (given_back[granted] -> R.image == granted : R.image == 0) ->
		before_change();
		R.open.granted = granted;
		R.image = granted
	/* his own grant, which had taken place */
	:: granted != 0 && !given_back[granted] && R.image == granted -> R.seen = granted
	:: else
	fi;
	ended = 0;
	granted = 0
}

/* Load all anew. */
inline load()
{
#ifdef SAME_WRITER
	if
	:: R.me == 0 ->
#endif
		writers++;
		R.me = writers;
#ifdef SAME_WRITER
	:: else
	fi;
#endif
	R.n = last;
	R.before = row[last].writer;
	R.image = row[last].holder;
	R.safe = 0;
	R.answered = 0;
	R.known = true;
	decide_again()
}

/* Apply the rows of others. */
inline catch_up()
{
	do
	:: row[R.n + 1].writer != 0 ->
		R.n++;
		R.before = row[R.n].writer;
		if
		:: row[R.n].ended != 0 && row[R.n].ended == R.image -> R.image = 0
		:: else
		fi;
		if
		:: row[R.n].granted != 0 -> R.image = row[R.n].granted
		:: else
		fi
	:: else -> break
	od;
	R.answered = 0
}

/*
 * The image, with what the open buffer did taken off, is what the log has.  (Another run
 * may have deleted the row already.)
 */
inline check_image()
{
	assert(row[R.n].writer == 0 ||
		   (R.open.copied -> R.open.copy : R.image) == row[R.n].holder)
}

inline clear_statement(i_)
{
	statement[i_].state = NONE;
	statement[i_].number = 0;
	statement[i_].before = 0;
	statement[i_].writer = 0;
	statement[i_].ended = 0;
	statement[i_].granted = 0
}

/* Send the flying buffer. */
inline send()
{
	statement[s].state = SENT;
	statement[s].number = R.n;
	statement[s].before = R.before;
	statement[s].writer = R.me;
	statement[s].ended = R.fly.ended;
	statement[s].granted = R.fly.granted;
	R.sent = true
}

inline clear_row(n_)
{
	row[n_].writer = 0;
	row[n_].ended = 0;
	row[n_].granted = 0;
	row[n_].holder = 0
}

proctype Run(byte s)
{
	byte ended;
	byte granted;
	byte i;

end:
	do
	:: d_step { !R.known && !R.sent -> load() }

	/* give back, answered at once */
	:: d_step {
			R.known && R.image != 0 && !PENDING(R.image) &&
			(held == R.image || unknown[R.image]) ->
			before_change();
			R.open.ended = R.image;
			given_back[R.image] = true;
			unknown[R.image] = false;
			R.answered = R.image;
			if
			:: held == R.image -> held = 0
			:: else
			fi;
			R.image = 0
		}

	/* grant */
	:: d_step {
			R.known && R.image == 0 && grants < GRANTS ->
			before_change();
			grants++;
			R.open.granted = grants;
			R.image = grants;
#ifdef EARLY
			tell(grants)
#endif
		}

	/* the same request again, and the release is not known here */
	:: d_step {
			R.known && agains < AGAIN && R.image != 0 && given_back[R.image] &&
			!PENDING(R.image) ->
			agains++;
			unknown[R.image] = false;
			before_change();
			R.open.granted = R.image;
#ifdef EARLY
			tell(R.image)
#endif
		}

	/* refuse */
	:: d_step {
			R.known && R.image != 0 &&
#ifndef EARLY_REFUSAL
			!PENDING(R.image) &&
#endif
#ifndef TRUST_OTHERS
			R.n <= R.safe &&
#endif
			true ->
			assert(durable[R.image]);
			assert(R.answered != R.image)
		}

	/* append what there is, or nothing, so that what is visible is durable */
	:: d_step {
			R.known && !R.fly.used && R.n < NUMBERS &&
			(R.open.used || R.safe < R.n) ->
			R.fly.used = true;
			R.fly.ended = R.open.ended;
			R.fly.granted = R.open.granted;
			R.fly.copy = R.open.copy;
			R.fly.copied = R.open.copied;
			clear_buffer(R.open);
			send()
		}

	/* it has succeeded */
	:: d_step {
			R.sent && statement[s].state == VISIBLE && flushed > R.n ->
			R.sent = false;
			clear_statement(s);
			R.n++;
			R.before = R.me;
			R.safe = R.n;
#ifndef ONE_COPY
			check_image();
#endif
			tell(R.seen);
			R.seen = 0;
#ifndef EARLY
			tell(R.fly.granted);
#endif
			clear_buffer(R.fly)
		}

	/* it has failed, of any cause, or its connection is lost */
	:: d_step {
			R.sent && (statement[s].state == SENT || statement[s].state == SEEN) ->
			R.sent = false;
			clear_statement(s)
#ifdef KILL
			;
			R.n++;
			R.before = R.me;
			R.safe = R.n;
			tell(R.fly.granted);
			clear_buffer(R.fly)
#endif
		}
	:: d_step {
			R.sent && statement[s].state == VISIBLE && zombies < ZOMBIES ->
			zombies++;
			R.sent = false;
			clear_statement(s)
		}
	:: d_step {
			R.sent && (statement[s].state == SENT || statement[s].state == SEEN) &&
			statement[2].state == NONE && zombies < ZOMBIES ->
			zombies++;
			R.sent = false;
			statement[2].state = statement[s].state;
			statement[2].number = statement[s].number;
			statement[2].before = statement[s].before;
			statement[2].writer = statement[s].writer;
			statement[2].ended = statement[s].ended;
			statement[2].granted = statement[s].granted;
			clear_statement(s)
		}

	/* in any case, read the tail */
	:: d_step {
			R.known && R.fly.used && !R.sent ->
			if
			:: row[R.n].writer != R.before -> R.known = false
			:: row[R.n].writer == R.before && row[R.n + 1].writer == 0 ->
#if defined(GIVE_UP) || defined(ANY_BATCH)
				roll_back();
				decide_again()
#elif defined(NO_MORE_SAME)
				clear_buffer(R.fly)
#else
				send()
#endif
			:: row[R.n].writer == R.before && row[R.n + 1].writer != 0 && IS_OURS ->
				R.n++;
				R.before = R.me;
				check_image();
#ifdef BELIEVE
				R.safe = R.n;
				tell(R.fly.granted);
#else
				R.seen = R.seen + R.fly.granted;
#endif
				clear_buffer(R.fly)
			:: row[R.n].writer == R.before && row[R.n + 1].writer != 0 && !IS_OURS ->
				roll_back();
				catch_up();
				assert(R.image == row[R.n].holder);
				decide_again()
			fi
		}

	/* delete what is older than the last row */
	:: d_step {
			cleanings < CLEANINGS && R.known && R.safe == R.n &&
			row[R.n].writer == R.before && row[R.n - 1].writer != 0 ->
			cleanings++;
			i = 1;
			do
			:: i < R.n ->
				clear_row(i);
				i++
			:: else -> break
			od;
			i = 0
		}
	od
}

inline forget_grant(t_)
{
	if
	:: t_ != 0 && t_ != held -> unknown[t_] = true
	:: else
	fi
}

/* A run ends; nobody knows what becomes of its calls. */
inline end_run(s_)
{
	forget_grant(run_[s_].open.granted);
	forget_grant(run_[s_].fly.granted);
	forget_grant(run_[s_].seen);
	clear_buffer(run_[s_].open);
	clear_buffer(run_[s_].fly);
	run_[s_].me = 0;
	run_[s_].known = false;
	run_[s_].n = 0;
	run_[s_].before = 0;
	run_[s_].safe = 0;
	run_[s_].image = 0;
	run_[s_].sent = false;
	run_[s_].seen = 0;
	run_[s_].answered = 0;
	clear_statement(s_)
}

/* Rows vanish from the end. */
inline cut(n_)
{
	do
	:: last > n_ ->
		clear_row(last);
		last--
	:: else -> break
	od;
	flushed = n_
}

/* A statement, in the server; the last one is a zombie. */
proctype Thread(byte i)
{
end:
	do
	/*
	 * Row N is there, and is locked; row N + 1 is inserted and committed, if it is not
	 * there.  As N is locked from the first moment to the last, this is one step.
	 */
#ifdef NO_LOCK
	:: d_step { statement[i].state == SENT && IS_THERE(i) -> statement[i].state = SEEN }
	:: d_step {
			(statement[i].state == SENT && !IS_THERE(i)) || statement[i].state == SEEN ->
			if
			:: statement[i].state == SEEN && row[statement[i].number + 1].writer == 0 ->
#else
	:: d_step {
			statement[i].state == SENT ->
			if
			:: IS_THERE(i) && row[statement[i].number + 1].writer == 0 ->
#endif
				assert(held == 0 || row[statement[i].number].holder != held ||
					   (statement[i].ended != held &&
						(statement[i].granted == 0 || statement[i].granted == held)));
				row[statement[i].number + 1].writer = statement[i].writer;
				row[statement[i].number + 1].ended = statement[i].ended;
				row[statement[i].number + 1].granted = statement[i].granted;
				if
				:: statement[i].granted != 0 ->
					row[statement[i].number + 1].holder = statement[i].granted
				:: statement[i].granted == 0 &&
				   row[statement[i].number].holder == statement[i].ended ->
					row[statement[i].number + 1].holder = 0
				:: else ->
					row[statement[i].number + 1].holder = row[statement[i].number].holder
				fi;
				if
				:: last < statement[i].number + 1 -> last = statement[i].number + 1
				:: else
				fi;
				if
				:: i < 2 -> statement[i].state = VISIBLE
				:: else -> clear_statement(i)
				fi
			:: else ->
				if
				:: i < 2 -> run_[i].sent = false
				:: else
				fi;
				clear_statement(i)
			fi
		}
	od
}

active proctype Server()
{
	byte i;

	atomic {
		writers = 1;
		row[1].writer = 1;
		row[1].granted = 1;
		row[1].holder = 1;
		grants = 1;
		held = 1;
		durable[0] = true;
		durable[1] = true;
		run Run(0);
		run Run(1);
		run Thread(0);
		run Thread(1);
		run Thread(2)
	}

end:
	do
	/* the log is flushed */
	:: d_step {
			flushed < last ->
			flushed = last;
			i = 1;
			do
			:: i <= last ->
				durable[row[i].granted] = true;
				i++
			:: else -> break
			od;
			i = 0
		}

	/* a crash and a restart */
	:: d_step {
			crashes < CRASHES ->
			crashes++;
			cut(flushed);
			clear_statement(2);
			end_run(0);
			end_run(1)
		}

	/* the table is restored from a dump that has one row less */
	:: d_step {
			restores < RESTORES && row[last - 1].writer != 0 ->
			restores++;
			/* a repeated request may be what is lost */
			if
			:: row[last].granted == held -> held = 0
			:: else
			fi;
			i = last - 1;
			cut(i);
			i = 0;
			do
			:: i < 2 ->
				if
				:: statement[i].state == VISIBLE ->
					clear_statement(i);
					run_[i].sent = false
				:: else
				fi;
				i++
			:: else -> break
			od;
			i = 0;
			if
			:: row[last].holder != held ->
				held = 0;
				unknown[row[last].holder] =
					(row[last].holder != 0 && !ASKED(0) && !ASKED(1))
			:: else
			fi;
			durable[row[last].holder] = true
		}
	od
}
