/*
 * guard.pml
 *	  dlock.guard on MySQL and MariaDB, on one server and in a cluster: a model in
 *	  Promela.
 *
 * Somebody holds a lease of a name, and guards it in a transaction.  The lease may be over
 * any time, by the clock of a node, or be ended.  Then the name is granted to another.
 *
 * The guard's row says that somebody guards, and so does the log.  Transactions are put
 * into one sequence, by the server or by certification: one that appends fails if another
 * has appended since it was decided, and one that changes the guard's row fails if another
 * has changed that since it was locked.  A node applies what others have committed some
 * time later.  A lock is known to its own node only.
 *
 * Caller	Guards: a transaction of the library makes the row, and an append says so; then
 *			the caller's transaction changes the row, which locks it; then the library
 *			looks whether the lease is still held.  Later the transaction commits or not.
 * Grantor	On each node: locks the guard's row, if the log knows of one, without waiting.
 *			Later it decides: it grants the name if the lease is over by then, unless the
 *			row was locked, or a guard was made meanwhile.  The transaction that appends
 *			deletes the row.
 * World	The clocks, the end of the lease by a release, and upkeep, which deletes the row
 *			of a lease that has ended.
 *
 * Properties:
 *
 *   !granted           nobody else has been granted the name when the transaction commits
 *   !pinned            ... and on one server, before its outcome is known, at all
 *   is_over            a guard is refused only if the lease is over, or has ended
 *   holds              a guard succeeds only while the lease is held, as its node knows it
 *
 *   spin -a guard.pml && cc -O2 -w -DSAFETY -DNOREDUCE -o pan pan.c && ./pan
 *
 * With CLUSTER, to spin, there are two nodes.  Other definitions take something away, and
 * each must be found out; t/454_model.pl sees to that:
 *
 *   APART         the guard's row is made in a transaction of its own, after the append
 *   NOT_LOGGED    ... and no append says so
 *   LOOK_ONLY     a grantor looks whether the row is locked, and does not lock it
 *   LOCK_ONLY     it locks the row, and does not delete it (with CLUSTER)
 *   SKIP_LOCKED   it takes a row that is locked for one that is not there
 *   NO_SECOND     it does not look for guards that were made since it locked them
 *   NO_CHANGE     the caller's transaction locks the row without a change (with CLUSTER)
 *   NO_ASK        the library does not look again whether the lease is held
 *   DELETE_ALL    upkeep deletes the rows of leases that have not ended, too
 *
 * SPDX-License-Identifier: PostgreSQL
 */

#ifdef CLUSTER
#define NODES		2
#else
#define NODES		1
#endif
#define LENGTH		7			/* of the sequence, at most */

/* What is committed. */
#define MAKE		1			/* append, the guard's row is made */
#define SAY			2			/* append, it is to be made */
#define MAKE_ROW	3			/* the row is made */
#define CHANGE		4			/* the guarding transaction */
#define END			5			/* append, the lease has ended */
#define GRANT		6			/* append, the name is granted, the row deleted */
#define GRANT_KEEP	7			/* ... or not deleted */
#define DELETE		8			/* the row is deleted */
byte sequence[LENGTH + 1];
byte length;
byte appends;					/* how many of these are appends */
byte changes;					/* how many of these change the guard's row */
bool granted;
bool ended;

#define IS_APPEND(x)	((x) == MAKE || (x) == SAY || (x) == END || (x) == GRANT || \
						 (x) == GRANT_KEEP)
#define IS_CHANGE(x)	((x) != SAY && (x) != END && (x) != GRANT_KEEP)

/* What a node has applied, and its locks. */
#define NOBODY		0
#define CALLER		1
#define GRANTOR		2
typedef Node {
	byte applied;
	byte appends;
	byte changes;
	bool row;					/* the guard's row is there, */
	bool guarded;				/* and the log knows of it */
	byte lock;					/* who has locked it */
	bool ended;					/* the lease */
	bool granted;
	bool over;					/* by this node's clock */
};
Node node[2];

bool pinned;					/* a transaction guards */

#define N					node[s]
#define IS_UP_TO_DATE		(N.applied == length)

/* Apply the next transaction. */
inline apply(s_)
{
	node[s_].applied++;
	if
	:: sequence[node[s_].applied] == MAKE ->
		node[s_].row = true;
		node[s_].guarded = true
	:: sequence[node[s_].applied] == SAY -> node[s_].guarded = true
	:: sequence[node[s_].applied] == MAKE_ROW -> node[s_].row = true
	:: sequence[node[s_].applied] == END -> node[s_].ended = true
	:: sequence[node[s_].applied] == GRANT ->
		node[s_].row = false;
		node[s_].guarded = false;
		node[s_].granted = true
	:: sequence[node[s_].applied] == GRANT_KEEP -> node[s_].granted = true
	:: sequence[node[s_].applied] == DELETE ->
		node[s_].row = false;
		node[s_].guarded = false
	:: else
	fi;
	node[s_].appends = node[s_].appends + IS_APPEND(sequence[node[s_].applied]);
	node[s_].changes = node[s_].changes + IS_CHANGE(sequence[node[s_].applied])
}

/* Commit on a node that has applied all that there is. */
inline commit(what_)
{
	length++;
	sequence[length] = what_;
	appends = appends + IS_APPEND(what_);
	changes = changes + IS_CHANGE(what_);
	apply(s)
}

#define HOLDS			(!N.ended && !N.granted && !N.over)

proctype Caller(byte s)
{
	byte locked;				/* how often the row had been changed */

	/* the guard is made, if the lease is held */
	if
	:: d_step { IS_UP_TO_DATE && HOLDS ->
#if defined(APART)
			commit(SAY)
#elif defined(NOT_LOGGED)
			commit(MAKE_ROW)
#else
			commit(MAKE)
#endif
		}
	:: !HOLDS -> goto end
	fi;
#ifdef APART
	d_step { IS_UP_TO_DATE -> commit(MAKE_ROW) }
#endif

	/* the caller's transaction changes it, unless it has gone */
	if
	:: d_step { N.lock == NOBODY && N.row ->
			N.lock = CALLER;
			locked = N.changes
		}
	:: d_step { !N.row -> assert(N.over || N.ended || N.granted) }
		goto end
	fi;

	/* and the library looks again */
	if
#ifdef NO_ASK
	:: d_step { true ->
			assert(HOLDS);
#else
	:: d_step { HOLDS ->
#endif
			pinned = true
		}
	:: d_step { !HOLDS ->
			N.lock = NOBODY;
			locked = 0
		}
		goto end
	fi;

	/* it commits, if that is certified, or not */
	d_step {
		if
#ifdef NO_CHANGE
		:: true ->
			assert(!granted);
#else
		:: changes == locked ->
			assert(!granted);
			length++;
			sequence[length] = CHANGE;
			changes++;
#endif
		:: else
		fi;
		pinned = false;
		N.lock = NOBODY;
		locked = 0
	}
end:
	skip
}

#ifdef SKIP_LOCKED
#define CAN_LOCK		true
#else
#define CAN_LOCK		(N.lock == NOBODY)
#endif

#ifdef NO_SECOND
#define NO_OTHERS		true
#else
#define NO_OTHERS		(!N.guarded || looked)
#endif

proctype Grantor(byte s)
{
	bool looked;				/* the log knew of a guard */
	bool has;					/* ... whose row was there, and not locked */
	byte locked;				/* ... and had been changed that often */
	byte decided;				/* how many appends there were */

end:
	do
	:: atomic {
			!N.granted ->
			looked = N.guarded;
			if
			:: N.guarded && N.row && N.lock == NOBODY ->
				has = true;
				locked = N.changes;
#ifndef LOOK_ONLY
				N.lock = GRANTOR
#endif
			:: N.guarded && N.row && N.lock != NOBODY && CAN_LOCK
			:: N.guarded && N.row && !CAN_LOCK ->
				looked = false;
				goto end
			:: !N.guarded || !N.row
			fi
		}
		atomic {
			if
			:: NO_OTHERS && (N.over || N.ended) -> decided = N.appends + 1
			:: else
			fi
		}
		/* it commits, or fails */
		atomic {
			IS_UP_TO_DATE ->
			if
			:: decided == appends + 1 && !N.granted &&
#ifndef LOOK_ONLY
			   (!has || locked == changes) &&
#endif
			   true ->
#ifndef CLUSTER
				assert(!pinned);
#endif
				granted = true;
				if
#ifdef LOCK_ONLY
				:: has -> commit(GRANT_KEEP)
#else
				:: has -> commit(GRANT)
#endif
				:: else -> commit(GRANT_KEEP)
				fi
			:: else
			fi;
			if
			:: N.lock == GRANTOR -> N.lock = NOBODY
			:: else
			fi;
			looked = false;
			has = false;
			locked = 0;
			decided = 0
		}
	od
}

#ifdef DELETE_ALL
#define MAY_DELETE(s)	true
#else
#define MAY_DELETE(s)	(node[s].ended || node[s].granted)
#endif

proctype Upkeep(byte s)
{
end:
	do
	/* what others have committed */
	:: d_step { N.applied < length -> apply(s) }
	/* the clock */
	:: d_step { !N.over -> N.over = true }
	/* the lease is given back, or taken away */
	:: d_step { IS_UP_TO_DATE && !N.ended && !N.granted -> commit(END) }
	/* the row is deleted, if nobody has locked it here */
	:: d_step {
			IS_UP_TO_DATE && N.row && N.lock == NOBODY && MAY_DELETE(s) ->
			commit(DELETE)
		}
	od
}

active proctype World()
{
	atomic {
		run Caller(0);
		run Grantor(0);
		run Upkeep(0);
#ifdef CLUSTER
		run Grantor(1);
		run Upkeep(1)
#endif
	}
}
