/*
 * journal.pml
 *	  How runs of the library on MySQL and MariaDB take turns at one lock table: a
 *	  model in Promela.
 *
 * Two servers have a copy of the lock table each.  The source alone is writable;
 * what it commits is replicated to the other, in order.  It is demoted, and the
 * other promoted once it has everything.  Or it crashes, and starts again; or the
 * other is promoted with what has been replicated by then, and the old source gets
 * a copy.  The replication is semi-synchronous: what was answered has arrived.
 *
 * Each server has a run of the library; a crash makes a new one.  A run knows the
 * table by its image, and writes what it has decided into the journal, which is a
 * list of rows here, and a head that names a run.  Every transaction is one step.
 * There is one name, and exclusive leases without an end but a release.  modes.pml has
 * runs that do not write the journal.
 *
 *   - Take-over: what is in the journal is applied to the table, and the head names
 *     this run.  Then all is unknown, and is loaded.
 *   - Append: it locks the head, and goes on only if that names this run and no row
 *     is another's.  That is the fence.  Otherwise all is unknown.
 *   - Checkpoint: it begins with the rows that there are.  The table is written, with
 *     what has been appended by then.  Later those rows are deleted, and what has been
 *     appended since the beginning stays.
 *   - A release is answered before it is written, with the next append.
 *   - A commit may be lost: nobody knows what becomes of it.  Some time it ends, in
 *     one way or the other; it is gone if the server crashes.  The run waits for
 *     that, and then all is unknown.
 *
 * Nobody is told that he has a lease while somebody else was told so and has not
 * given it back.  So no lease is granted twice, and none is lost.
 *
 * A variable that nothing will read again is set to 0: no two states differ only by it.
 *
 *   spin -a journal.pml && cc -O2 -w -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan
 *
 * GRANTS, CRASHES and SWITCHES, to spin, say how many of them there are.  Other
 * definitions take something away, and each must be found out; t/454_model.pl
 * sees to that:
 *
 *   NO_FENCE      an append does not look at the head
 *   NO_LOCK       it looks, but the head may change before it commits
 *   STALE         who finds the head changed takes over, and keeps its image
 *   LOAD_FIRST    the image is loaded before the take-over
 *   FORGET        a take-over does not apply what it finds in the journal
 *   DELETE_FIRST  a checkpoint deletes the rows before it writes the table
 *   DELETE_ALL    ... or, at its end, all rows that there are by then
 *   NO_WAIT       whose commit was lost does not wait for its end
 *   EARLY         a grant is answered before it is committed
 *   ASYNCHRONOUS  ... or before it is replicated
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

#define ROWS		2			/* of the journal, at most */
#define LOG			2			/* transactions that are not replicated yet */

/* A row of the journal: one lease given back, and then one granted, if not 0. */
typedef Row {
	byte writer;
	byte released;
	byte granted;
};

/* A copy of the tables. */
typedef Copy {
	byte head;					/* the run that may append */
	byte holder;				/* the lock table; 0: nobody */
	Row row[ROWS];
	byte rows;
};

Copy copy[2];
byte source;
bool writable[2];
bool crashed[2];				/* the run is to find out */

/* What the source has committed, and the other not yet applied. */
mtype = { APPEND, TAKE_OVER, WRITE, DELETE };
chan log = [LOG] of { mtype, byte, byte, byte };

/* An append whose connection is lost.  It has the lock on the head. */
typedef Flight {
	bool flies;
	byte writer;
	byte released;
	byte granted;
};
Flight flight[2];

byte runs;						/* numbers them */
byte grants;					/* numbers the leases */
byte crashes;
byte switches;

/*
 * The lease whose holder was told, and keeps it; and those of which nobody was told,
 * and nobody will be: whoever asked was told that nobody knows.
 */
byte held;
bool unknown[GRANTS + 1];

/* Apply a row to who holds the name. */
inline apply(holder_, released_, granted_)
{
	if
	:: released_ != 0 && holder_ == released_ -> holder_ = 0
	:: else
	fi;
	if
	:: granted_ != 0 -> holder_ = granted_
	:: else
	fi
}

/* The same with all rows of a copy. */
inline apply_rows(holder_, c)
{
	i = 0;
	do
	:: i < copy[c].rows ->
		apply(holder_, copy[c].row[i].released, copy[c].row[i].granted);
		i++
	:: else -> break
	od;
	i = 0
}

inline delete_rows(c)
{
	i = 0;
	do
	:: i < ROWS ->
		copy[c].row[i].writer = 0;
		copy[c].row[i].released = 0;
		copy[c].row[i].granted = 0;
		i++
	:: else -> break
	od;
	copy[c].rows = 0;
	i = 0
}

/* Delete the first rows. */
inline delete_first(c, n_)
{
	i = 0;
	do
	:: i < ROWS - n_ ->
		copy[c].row[i].writer = copy[c].row[i + n_].writer;
		copy[c].row[i].released = copy[c].row[i + n_].released;
		copy[c].row[i].granted = copy[c].row[i + n_].granted;
		i++
	:: else -> break
	od;
	do
	:: i < ROWS ->
		copy[c].row[i].writer = 0;
		copy[c].row[i].released = 0;
		copy[c].row[i].granted = 0;
		i++
	:: else -> break
	od;
	copy[c].rows = copy[c].rows - n_;
	i = 0
}

inline append(c, writer_, released_, granted_)
{
	copy[c].row[copy[c].rows].writer = writer_;
	copy[c].row[copy[c].rows].released = released_;
	copy[c].row[copy[c].rows].granted = granted_;
	copy[c].rows++
}

#define FOREIGN(c, w) \
	((copy[c].rows > 0 && copy[c].row[0].writer != w) || \
	 (copy[c].rows > 1 && copy[c].row[1].writer != w))

#ifdef NO_FENCE
#define MAY_APPEND(c, w)	true
#else
#define MAY_APPEND(c, w)	(copy[c].head == w && !FOREIGN(c, w))
#endif

#ifdef NO_LOCK
#define HEAD_IS_FREE(c)		true
#else
#define HEAD_IS_FREE(c)		(!flight[c].flies)
#endif

/* A transaction of the library can commit, and be replicated some time. */
#define CAN_COMMIT(c)	(writable[c] && len(log) < LOG)

/* When a run takes over and when it loads. */
#ifdef LOAD_FIRST
#define MAY_TAKE_OVER	known
#define MAY_LOAD(c)		true
#else
#define MAY_TAKE_OVER	true
#define MAY_LOAD(c)		(copy[c].head == me)
#endif

/* How many rows a checkpoint deletes. */
#ifdef DELETE_ALL
#define APPLIED(c)		copy[c].rows
#else
#define APPLIED(c)		applied
#endif

/* The library on a server. */
proctype Library(byte s)
{
	byte me;					/* this run */
	byte image;					/* who holds the name, if it is known */
	bool known;
	byte released;				/* answered, and not written */
	byte granted;				/* to be answered once it is committed */
	byte applied;				/* rows that a checkpoint is to delete; 0: none is
								 * under way */
	byte i;

	do
	:: true ->
	{
		atomic {
			runs++;
			me = runs;
			image = 0;
			known = false;
			released = 0;
			granted = 0;
			applied = 0;
			i = 0
		}

end_idle:
		do
		/* the head is another's: take over */
		:: atomic {
				CAN_COMMIT(s) && HEAD_IS_FREE(s) && MAY_TAKE_OVER &&
				(copy[s].head != me || FOREIGN(s, me)) ->
#ifndef FORGET
				apply_rows(copy[s].holder, s);
#endif
				delete_rows(s);
				copy[s].head = me;
				log!TAKE_OVER, me, 0, 0;
#ifndef STALE
#ifndef LOAD_FIRST
				known = false;
				image = 0;
				applied = 0
#endif
#endif
			}

		/* load */
		:: atomic {
				writable[s] && !known && MAY_LOAD(s) ->
				image = copy[s].holder;
				apply_rows(image, s);
				/* a release that was answered stays one, if it was not written */
				if
				:: released != 0 && image == released -> image = 0
				:: else -> released = 0
				fi;
				known = true
			}

		/* give back, answered at once */
		:: atomic {
				known && image != 0 && released == 0 &&
				(held == image || unknown[image]) ->
				if
				:: held == image -> held = 0
				:: else
				fi;
				released = image;
				image = 0
			}

		/* grant, or write a release */
		:: atomic {
				known && image == 0 && (grants < GRANTS || released != 0) &&
				copy[s].rows < ROWS ->
				if
				:: grants < GRANTS ->
					grants++;
					granted = grants
				:: released != 0 -> granted = 0
				fi
			}
#ifdef EARLY
			atomic {
				if
				:: granted != 0 ->
					assert(held == 0);
					held = granted
				:: else
				fi
			}
#endif
			if
			/* it commits */
			:: atomic {
					CAN_COMMIT(s) && copy[s].rows < ROWS && MAY_APPEND(s, me) ->
					append(s, me, released, granted);
					log!APPEND, me, released, granted
				}
				released = 0;
				if
				:: granted != 0 ->
					image = granted;
					/* the other has got it */
#ifndef ASYNCHRONOUS
					len(log) == 0;
#endif
#ifndef EARLY
					atomic {
						assert(held == 0);
						held = granted
					}
#endif
				:: else
				fi

			/* it is refused: demoted, the head is another's, or the journal full */
			:: atomic {
					!writable[s] || !MAY_APPEND(s, me) || copy[s].rows == ROWS ->
#ifdef STALE
					skip
#else
					known = false;
					applied = 0
#endif
				}

			/* the connection is lost in the commit */
			:: atomic {
					writable[s] && copy[s].rows < ROWS && MAY_APPEND(s, me) &&
					!flight[s].flies ->
					flight[s].flies = true;
					flight[s].writer = me;
					flight[s].released = released;
					flight[s].granted = granted;
					unknown[granted] = (granted != 0);
					known = false;
					applied = 0
				}
#ifndef NO_WAIT
				!flight[s].flies
#endif
			fi;
			granted = 0

		/* a checkpoint writes the table; some rows are newer than its beginning, */
		:: atomic {
				known && applied == 0 && copy[s].rows > 0 && CAN_COMMIT(s) &&
				MAY_APPEND(s, me) ->
				if
				:: applied = copy[s].rows
				:: applied = 1
				fi;
#ifdef DELETE_FIRST
				log!DELETE, applied, 0, 0;
				delete_first(s, applied)
#else
				apply_rows(copy[s].holder, s);
				log!WRITE, 0, 0, copy[s].holder
#endif
			}

		/* and deletes the others, if they are there */
		:: atomic {
				known && applied != 0 && applied <= copy[s].rows &&
				CAN_COMMIT(s) && MAY_APPEND(s, me) ->
#ifdef DELETE_FIRST
				copy[s].holder = image;
				log!WRITE, 0, 0, copy[s].holder;
#else
				log!DELETE, APPLIED(s), 0, 0;
				delete_first(s, APPLIED(s));
#endif
				applied = 0
			}
		od
	}
	unless
	{
		atomic {
			crashed[s] -> crashed[s] = false;
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
	flight[s_].flies = false;
	flight[s_].writer = 0;
	flight[s_].released = 0;
	flight[s_].granted = 0
}

/* The server crashes: of a lost commit nothing is left, nor of the run. */
inline crash(s_)
{
	crashed[s_] = true;
	end_flight(s_);
	crashes++
}

/* Replication, what becomes of lost commits, and what operators and accidents do. */
active proctype Environment()
{
	mtype what;
	byte w;
	byte released;
	byte granted;
	byte i;
	byte s;

	atomic {
		writable[0] = true;
		run Library(0);
		run Library(1)
	}

end:
	do
	/* the other server applies what comes next */
	:: atomic {
			len(log) > 0 && HEAD_IS_FREE(1 - source) ->
			log?what, w, released, granted;
			s = 1 - source;
			if
			:: what == APPEND -> append(s, w, released, granted)
			:: what == TAKE_OVER ->
#ifndef FORGET
				apply_rows(copy[s].holder, s);
#endif
				delete_rows(s);
				copy[s].head = w
			:: what == WRITE -> copy[s].holder = granted
			:: what == DELETE -> delete_first(s, w)
			fi;
			what = 0;
			w = 0;
			released = 0;
			granted = 0;
			s = 0
		}

	/* a lost commit ends, in one way or the other */
	:: atomic {
			flight[source].flies && CAN_COMMIT(source) &&
			copy[source].rows < ROWS ->
			append(source, flight[source].writer, flight[source].released,
				   flight[source].granted);
			log!APPEND, flight[source].writer, flight[source].released,
				flight[source].granted;
			end_flight(source)
		}
	:: atomic { flight[source].flies -> end_flight(source) }
	:: atomic { flight[1 - source].flies -> end_flight(1 - source) }

	/* demotion, and promotion of the other when it has got everything */
	:: atomic {
			switches < SWITCHES && writable[source] ->
			writable[source] = false;
			switches++
		}
	:: atomic {
			!writable[source] && len(log) == 0 ->
			source = 1 - source;
			writable[source] = true
		}

	/* a crash and a restart */
	:: atomic { crashes < CRASHES -> crash(source) }

	/* a crash, and promotion of the other as it is */
	:: atomic {
			crashes < CRASHES && switches < SWITCHES && writable[source] ->
			crash(source);
			switches++;
			do
			:: len(log) > 0 -> log?_, _, _, _
			:: else -> break
			od;
			writable[source] = false;
			copy[source].head = copy[1 - source].head;
			copy[source].holder = copy[1 - source].holder;
			copy[source].rows = copy[1 - source].rows;
			i = 0;
			do
			:: i < ROWS ->
				copy[source].row[i].writer = copy[1 - source].row[i].writer;
				copy[source].row[i].released = copy[1 - source].row[i].released;
				copy[source].row[i].granted = copy[1 - source].row[i].granted;
				i++
			:: else -> break
			od;
			i = 0;
			source = 1 - source;
			writable[source] = true
		}
	od
}
