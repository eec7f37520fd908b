/*
 * modes.pml
 *	  Runs of the library on MySQL and MariaDB that write in different ways: into the
 *	  journal, into the lock table at once, or as release 1.0 did.  A model in Promela.
 *
 * The servers, the replication, the journal and what is asserted are those of
 * journal.pml.  A checkpoint is one step here, and the journal's rows are one.  What
 * this model has besides:
 *
 *   - The journal is closed, by renaming its head, and opened, by install.sql.  Who
 *     appends has locked the head, and so keeps it from being renamed.
 *   - A run that takes over is direct if the journal is closed, or if the server follows
 *     another one still.  It reads the name in each transaction, and writes the table.
 *     It is refused if a row or mark that it has read has changed by its commit.  An
 *     append changes neither.  It is refused, too, if the journal has anything, or if
 *     another run has raised the marks since: the "raiser".
 *   - Some time a run looks how it should write, and whether its server is writable; or
 *     not at all.
 *   - A server may have a library of 1.0.  That knows nothing of our journal.  Its own
 *     journal has one lease here.  Who takes over moves that into the table, and raises
 *     the marks.  By these a library of 1.0 notices that another run has taken over.
 *
 * With CLUSTER both servers are writable and have one copy, and all runs are direct.  Who
 * commits what another has changed since is refused.  There 1.0 does the same.
 *
 *   spin -a modes.pml && cc -O2 -w -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan
 *
 * GRANTS, CRASHES, SWITCHES and CHANGES, of the journal, say how many of them there are.
 * Other definitions take something away, and each must be found out; t/454_model.pl sees
 * to that.  Of the library:
 *
 *   NO_FENCE      an append does not look at the head
 *   NO_HEAD       a direct run that takes over leaves the head as it was
 *   NO_RAISER     a direct run does not look who has raised the marks
 *   NO_MARK       it does not care whether what it has read has changed
 *   KEEP          it reads the name only when it takes over
 *   FORGET        a take-over does not apply what it finds in a closed journal
 *   FORGET_OLD    ... or in the journal of 1.0
 *   NO_RAISE      ... or does not raise the marks
 *
 * Of what install.sql does, and of what the manual asks of operators:
 *
 *   AS_IT_WAS     a journal that is opened has the head that it had
 *   NOT_CLOSED    a library of 1.0 is run beside an open journal
 *   NOT_EMPTY     ... or a closed one that was not emptied
 *   OPEN_EARLY    the journal is opened although a server has a library of 1.0
 *
 * PAUSE lets a server be read-only until its run has looked.  That would do in place of
 * the look at the raiser.
 *
 * SPDX-License-Identifier: PostgreSQL
 */

#ifndef GRANTS
#define GRANTS		2
#endif
#ifndef CRASHES
#define CRASHES		1
#endif
#ifndef SWITCHES
#define SWITCHES	2
#endif
#ifndef CHANGES
#define CHANGES		1
#endif

/* A copy of the tables. */
typedef Copy {
	bool open;					/* the journal: its head is there */
	byte head;					/* the run that may append */
	byte raiser;				/* the run that has raised the marks last */
	byte holder;				/* the lock table; 0: nobody */
	byte writer;				/* of what the journal has; 0: it is empty */
	byte released;				/* in the journal: given back, and then */
	byte granted;
	byte old;					/* a lease in the journal of 1.0 */
};

Copy copy[2];
byte source;
bool writable[2];
bool follows[2];				/* writable, and the replication was not stopped */
bool old[2];					/* the library is one of 1.0 */
bool crashed[2];				/* the run is to find out */
bool taken[2];					/* the run has taken over, and nothing has happened since */
bool fresh[2];					/* what a direct transaction has read is still so */

/* What the source has committed, and the other not yet applied. */
mtype = { APPEND, CHECKPOINT, WRITE, TAKE_OVER, OLD_WRITE, OLD_TAKE_OVER, CLOSE, OPEN };
chan log = [1] of { mtype, byte, byte, byte };

/* A transaction whose connection is lost.  It has its locks. */
typedef Flight {
	mtype what;					/* 0: there is none */
	byte writer;
	byte released;
	byte granted;
};
Flight flight[2];

byte runs;						/* numbers them */
byte grants;					/* numbers the leases */
byte crashes;
byte switches;
byte changes;

/* As in journal.pml. */
byte held;
bool unknown[GRANTS + 1];

#ifdef CLUSTER
#define AT(s)			0
#define CAN_COMMIT(s)	true
#define SENT			true
#define IS_DIRECT(s)	true
#define IS_OLD(s)		false		/* in a cluster it is like a direct run */
#else
#define AT(s)			s
#define CAN_COMMIT(s)	(writable[s] && len(log) == 0)
#define SENT			(len(log) == 0)
#define IS_DIRECT(s)	(!copy[s].open || follows[s])
#define IS_OLD(s)		old[s]
#endif
#define IS_FREE(s)		(flight[s].what == 0)

/* Apply to who holds the name what was given back, and then granted. */
inline apply(holder_, released_, granted_)
{
	if
	:: granted_ != 0 -> holder_ = granted_
	:: granted_ == 0 && released_ != 0 && holder_ == released_ -> holder_ = 0
	:: else
	fi
}

/* Empty the journal of a copy. */
inline empty_journal(c_)
{
	copy[c_].writer = 0;
	copy[c_].released = 0;
	copy[c_].granted = 0
}

/* A checkpoint. */
inline apply_journal(c_)
{
	apply(copy[c_].holder, copy[c_].released, copy[c_].granted);
	empty_journal(c_)
}

/* Write what was given back, and then granted: into the journal, the table, or as 1.0. */
inline write(c_, what_, writer_, released_, granted_)
{
	if
	:: what_ == APPEND ->
		if
		/* what the journal had granted */
		:: released_ != 0 && copy[c_].granted == released_ -> copy[c_].granted = 0
		:: released_ != 0 && copy[c_].granted != released_ ->
			copy[c_].released = released_
		:: else
		fi;
		if
		:: granted_ != 0 -> copy[c_].granted = granted_
		:: else
		fi;
		copy[c_].writer = writer_
	:: what_ == WRITE -> apply(copy[c_].holder, released_, granted_)
	:: what_ == OLD_WRITE ->
		apply(copy[c_].holder, released_, 0);
		apply(copy[c_].old, released_, granted_)
	fi
}

/* Take over, as 1.0 does. */
inline old_take_over(c_, writer_)
{
	apply(copy[c_].holder, 0, copy[c_].old);
	copy[c_].old = 0;
	copy[c_].raiser = writer_
}

/* Take over. */
inline take_over(c_, writer_, direct_)
{
#ifdef FORGET
	if
	:: copy[c_].open -> apply_journal(c_)
	:: else -> empty_journal(c_)
	fi;
#else
	apply_journal(c_);
#endif
#ifndef FORGET_OLD
	apply(copy[c_].holder, 0, copy[c_].old);
#endif
	copy[c_].old = 0;
	if
#ifdef NO_HEAD
	:: copy[c_].open && !direct_ -> copy[c_].head = writer_
#else
	:: copy[c_].open -> copy[c_].head = writer_
#endif
	:: else
	fi;
#ifndef NO_RAISE
	copy[c_].raiser = writer_
#endif
}

/* Rename the head, or make a new one. */
inline change_head(c_, open_)
{
	copy[c_].open = open_;
#ifndef AS_IT_WAS
	if
	:: open_ -> copy[c_].head = 0
	:: else
	fi
#endif
}

/* What was committed on a server is sent to the other. */
#ifdef CLUSTER
inline send(s_, what_, writer_, released_, granted_)
{
	fresh[1 - s_] = false
}
#else
inline send(s_, what_, writer_, released_, granted_)
{
	log!what_, writer_, released_, granted_
}
#endif

#ifdef NO_FENCE
#define MAY_APPEND(s)	copy[s].open
#else
#define MAY_APPEND(s)	(copy[s].open && copy[s].head == me && \
						 (copy[s].writer == 0 || copy[s].writer == me))
#endif

#if defined(NO_RAISER) || defined(NO_RAISE) || defined(CLUSTER)
#define HAS_RAISED(s)	true
#else
#define HAS_RAISED(s)	(copy[s].raiser == me)
#endif

/* A direct run may write: no other has taken over, or appends. */
#define MAY_READ(s) \
	(HAS_RAISED(s) && (!has_journal || copy[AT(s)].writer == 0))

#ifdef KEEP
#define KEEPS			true
#else
#define KEEPS			false
#endif

#ifdef NO_MARK
#define IS_FRESH(s)		true
#else
#define IS_FRESH(s)		fresh[s]
#endif

/* What was sent may be committed: its locks are enough, but in a cluster. */
#ifdef CLUSTER
#define IS_CERTIFIED(s)	IS_FRESH(s)
#else
#define IS_CERTIFIED(s)	true
#endif

/* What was decided may be committed. */
#define MAY_COMMIT(s) \
	(IS_OLD(s) -> copy[AT(s)].raiser == me : (direct -> IS_FRESH(s) : MAY_APPEND(s)))

/* A release that was answered stays one, if it was not written. */
inline keep_released()
{
	if
	:: released != 0 && image == released -> image = 0
	:: else -> released = 0
	fi
}

/* Begin a grant, or to write a release. */
inline decide()
{
	if
	:: grants < GRANTS ->
		grants++;
		granted = grants
	:: released != 0 -> granted = 0
	fi
}

#define CAN_DECIDE		(image == 0 && (grants < GRANTS || released != 0))
#define CAN_RELEASE		(image != 0 && released == 0 && (held == image || unknown[image]))

/* Answer that a lease was given back, before that is written. */
inline give_back()
{
	if
	:: held == image -> held = 0
	:: else
	fi;
	released = image;
	image = 0
}

inline forget()
{
	taken[s] = false;
	direct = false;
	has_journal = false;
	image = 0
}

/* The library on a server. */
proctype Library(byte s)
{
	byte me;					/* this run */
	bool direct;				/* it writes the table at once */
	bool has_journal;			/* there was one when it took over */
	byte image;					/* who holds the name, if that is known */
	byte released;				/* answered, and not written */
	byte granted;				/* to be answered once it is committed */
	mtype how;					/* they are written; 0: nothing is */

	do
	:: true ->
	{
		atomic {
			runs++;
			me = runs;
			released = 0;
			granted = 0;
			how = 0;
			forget()
		}

end_idle:
		do
		/* take over, and load */
		:: atomic {
				!taken[s] && CAN_COMMIT(s) && IS_FREE(s) ->
				if
				:: IS_OLD(s) ->
					old_take_over(AT(s), me);
					send(s, OLD_TAKE_OVER, me, 0, 0)
				:: else ->
					direct = IS_DIRECT(s);
					has_journal = copy[AT(s)].open;
					take_over(AT(s), me, direct);
					send(s, TAKE_OVER, me, direct, 0)
				fi;
				taken[s] = true;
				if
				:: !direct || KEEPS ->
					image = copy[AT(s)].holder;
					keep_released()
				:: else
				fi
			}

		/* look whether the mode is to be another, and whether this server is writable */
		:: atomic {
				taken[s] && (!writable[s] ||
						  (!IS_OLD(s) && (has_journal != copy[AT(s)].open ||
										  direct != IS_DIRECT(s)))) ->
				forget()
			}

		/* what is known is given back at once */
		:: atomic { taken[s] && !direct && CAN_RELEASE -> give_back() }

		/* a checkpoint */
		:: atomic {
				taken[s] && !direct && !IS_OLD(s) && copy[AT(s)].writer == me &&
				CAN_COMMIT(s) && MAY_APPEND(s) ->
				apply_journal(AT(s));
				send(s, CHECKPOINT, 0, 0, 0)
			}

		/* begin to write, or first to read */
		:: atomic {
				taken[s] && (direct || CAN_DECIDE) ->
				if
				:: !direct ->
					decide();
					if
					:: !IS_OLD(s) -> how = APPEND
					:: IS_OLD(s) -> how = OLD_WRITE
					:: IS_OLD(s) -> how = WRITE
					fi
				:: direct && (!writable[s] || !MAY_READ(s)) -> forget()
				:: direct && writable[s] && MAY_READ(s) ->
					if
					:: !KEEPS -> image = copy[AT(s)].holder
					:: else
					fi;
					keep_released();
					if
					:: CAN_RELEASE ->
						give_back();
						how = WRITE
					:: CAN_DECIDE ->
						decide();
						how = WRITE
					:: else -> image = 0
					fi;
					fresh[s] = (how != 0)
				fi
			}
			if
			:: how == 0

			/* it commits */
			:: atomic {
					how != 0 && CAN_COMMIT(s) && MAY_COMMIT(s) ->
					write(AT(s), how, me, released, granted);
					send(s, how, me, released, granted);
					how = 0;
					fresh[s] = false;
					released = 0
				}
				if
				:: granted != 0 ->
					/* the other has got it */
					SENT;
					atomic {
						assert(held == 0);
						held = granted;
						if
						:: !direct || KEEPS -> image = granted
						:: else
						fi
					}
				:: else
				fi

			/* it is refused: another was faster, or this run may not write any more */
			:: atomic {
					how != 0 && (!writable[s] || !MAY_COMMIT(s)) ->
					forget();
					how = 0;
					fresh[s] = false
				}

			/* the connection is lost in the commit: wait for its end */
			:: atomic {
					how != 0 && writable[s] && MAY_COMMIT(s) && IS_FREE(s) ->
					flight[s].what = how;
					flight[s].writer = me;
					flight[s].released = released;
					flight[s].granted = granted;
					unknown[granted] = (granted != 0);
					forget();
					how = 0
				}
				IS_FREE(s)
			fi;
			granted = 0
		od
	}
	unless
	{
		atomic {
			crashed[s] -> crashed[s] = false;
			fresh[s] = false;
			if
			:: granted != 0 && granted != held -> unknown[granted] = true
			:: else
			fi
		}
	}
	od
}

inline end_flight(s_)
{
	flight[s_].what = 0;
	flight[s_].writer = 0;
	flight[s_].released = 0;
	flight[s_].granted = 0;
	fresh[s_] = false
}

/* A library of 1.0 may be run. */
#if defined(NOT_CLOSED)
#define MAY_BE_OLD		true
#elif defined(NOT_EMPTY)
#define MAY_BE_OLD		(!copy[source].open && len(log) == 0)
#else
#define MAY_BE_OLD		(!copy[source].open && copy[source].writer == 0 && len(log) == 0)
#endif

/* install.sql may be run. */
#ifdef OPEN_EARLY
#define MAY_OPEN		true
#else
#define MAY_OPEN		(!old[0] && !old[1])
#endif

/* How long a server is read-only. */
#ifdef PAUSE
#define HAS_PAUSED(s)	(!taken[s])
#else
#define HAS_PAUSED(s)	true
#endif

/* Choose a library. */
inline choose(s_)
{
#ifndef CLUSTER
	if
	:: old[s_] = false
	:: MAY_BE_OLD -> old[s_] = true
	fi
#else
	skip
#endif
}

/* A crash, or a restart: of a lost commit nothing is left, nor of the run. */
inline crash(s_)
{
	crashed[s_] = true;
	end_flight(s_);
	follows[s_] = false;
	crashes++
}

/* Replication, what becomes of lost commits, and what operators and accidents do. */
active proctype Environment()
{
	mtype what;
	byte w;
	byte released;
	byte granted;
	byte s;

	atomic {
		writable[0] = true;
#ifdef CLUSTER
		writable[1] = true;
#endif
		if
		:: copy[0].open = true;
			copy[1].open = true
		:: true
		fi;
		choose(0);
		choose(1);
		run Library(0);
		run Library(1)
	}

end:
	do
	/* a lost commit ends, in one way or the other */
	:: atomic {
			!IS_FREE(0) || !IS_FREE(1) ->
			if
			:: !IS_FREE(0) -> s = 0
			:: !IS_FREE(1) -> s = 1
			fi;
			if
			:: CAN_COMMIT(s) && IS_CERTIFIED(s) ->
				write(AT(s), flight[s].what, flight[s].writer, flight[s].released,
					  flight[s].granted);
				send(s, flight[s].what, flight[s].writer, flight[s].released,
					 flight[s].granted)
			:: true
			fi;
			end_flight(s);
			s = 0
		}

	/* a crash and a restart */
	:: atomic {
			crashes < CRASHES && !crashed[0] ->
			crash(0);
			choose(0)
		}
	:: atomic {
			crashes < CRASHES && !crashed[1] ->
			crash(1);
			choose(1)
		}

	/* the journal is closed, when no append goes on, or opened */
	:: atomic {
			changes < CHANGES && CAN_COMMIT(source) && copy[source].open &&
			flight[source].what != APPEND ->
			changes++;
			change_head(source, false);
			send(source, CLOSE, 0, 0, 0)
		}
	:: atomic {
			changes < CHANGES && CAN_COMMIT(source) && !copy[source].open && MAY_OPEN ->
			changes++;
			change_head(source, true);
			send(source, OPEN, 0, 0, 0)
		}

#ifndef CLUSTER
	/* the other server applies what comes next */
	:: d_step {
			len(log) > 0 && IS_FREE(1 - source) ->
			log?what, w, released, granted;
			s = 1 - source;
			/* an append changes no row of the table, nor a mark */
			if
			:: what != APPEND && what != OLD_WRITE -> fresh[s] = false
			:: else
			fi;
			if
			:: what == CHECKPOINT -> apply_journal(s)
			:: what == TAKE_OVER -> take_over(s, w, released)
			:: what == OLD_TAKE_OVER -> old_take_over(s, w)
			:: what == CLOSE -> change_head(s, false)
			:: what == OPEN -> change_head(s, true)
			:: else -> write(s, what, w, released, granted)
			fi;
			what = 0;
			w = 0;
			released = 0;
			granted = 0;
			s = 0
		}

	/* demotion, and promotion of the other when it has got everything */
	:: atomic {
			switches < SWITCHES && writable[source] ->
			writable[source] = false;
			follows[source] = false;
			switches++
		}
	:: atomic {
			!writable[source] && len(log) == 0 && HAS_PAUSED(1 - source) ->
			source = 1 - source;
			writable[source] = true;
			if
			:: copy[source].open && !old[source] -> follows[source] = true
			:: true
			fi
		}
	:: atomic { follows[source] -> follows[source] = false }

	/* a crash, and promotion of the other as it is */
	:: atomic {
			crashes < CRASHES && switches < SWITCHES && writable[source] && !crashed[source] ->
			do
			:: len(log) > 0 -> log?_, _, _, _
			:: else -> break
			od;
			crash(source);
			switches++;
			writable[source] = false;
			copy[source].open = copy[1 - source].open;
			copy[source].head = copy[1 - source].head;
			copy[source].raiser = copy[1 - source].raiser;
			copy[source].holder = copy[1 - source].holder;
			copy[source].writer = copy[1 - source].writer;
			copy[source].released = copy[1 - source].released;
			copy[source].granted = copy[1 - source].granted;
			copy[source].old = copy[1 - source].old;
			source = 1 - source;
			writable[source] = true;
			choose(1 - source)
		}
#endif
	od
}
