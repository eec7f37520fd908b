/*
 * carry.pml
 *	  How the log is cleaned on MySQL and MariaDB: what still lives is carried forward,
 *	  and old rows are deleted.  A model in Promela.
 *
 * Each lease is of a name of its own, so that nothing is refused; append.pml has the
 * rest of the decisions, and why two runs never append the same number.  A lease has a
 * version, which a renewal raises.  (A guard is carried like a lease.)
 *
 * Run		A run of the library: its image, and one buffer of entries.  There are two,
 *			two nodes of a cluster or an old run beside a new one.  It puts, renews and
 *			ends leases; it carries forward, one by one, what lives of the oldest row,
 *			and then says of the next that the log is complete from there; it appends
 *			the buffer, if the log has not grown meanwhile; it deletes what is below
 *			"complete from".
 * Loader	Reads the last row, then the rows from its "complete from" on, one by one.
 * Log		A dump is taken, and some time restored, while all runs go on.
 *
 * The log begins with one lease.  A deleted row is below `first`, and stays in the array
 * for the dump.
 *
 * Properties:
 *
 *   first <= ...       the log has all rows from the last row's "complete from" on
 *   fold == row...     their fold, by the rules of a loader, is the state, whether it
 *                      begins there or with the first row that there is
 *   !mistaken          a loader never takes a valid log for a damaged one
 *   found == row...    what a loader has read row by row is the state at its last row
 *   image == ...       what a run believes is the state at its last row
 *
 *   spin -a carry.pml && cc -O2 -w -DSAFETY -DNOREDUCE -o pan pan.c && ./pan
 *
 * TOKENS, RENEWALS, NUMBERS, DUMPS, to spin, say how many leases, renewals, rows and
 * dumps there are.  Other definitions take something away, and each must be found out;
 * t/454_model.pl sees to that:
 *
 *   REPEAT        a carried entry is appended again after another run has written
 *   KEEP_FROM     "complete from" is not taken back when an append fails
 *   STALE         an entry is carried as it was before the buffer's changes
 *   FROM_NEXT     the log is said to be complete from the next row before all of the
 *                 oldest is carried
 *   DELETE_BLIND  rows are deleted without comparing that the last row is the known one
 *   DELETE_EARLY  rows are deleted before the row is appended that needs them no more
 *   DELETE_ALL    all rows but the last are deleted
 *   HOLES         a loader skips what is not there
 *   STRICT        a loader takes a change of an unknown token for damage in each row
 *                 from "complete from" on
 *
 * SPDX-License-Identifier: PostgreSQL
 */

#ifndef TOKENS
#define TOKENS		2
#endif
#ifndef RENEWALS
#define RENEWALS	1
#endif
#ifndef NUMBERS
#define NUMBERS		4
#endif
#ifndef DUMPS
#define DUMPS		0
#endif
#define ENTRIES		2			/* in a row, at most */

/* An entry: what it does, to which token, and for a carried one the version. */
#define PUT			1
#define END			2
#define RENEW		3
#define CARRY		4
#define ENTRY(k, t, v)	((k) * 16 + (t) * 4 + (v))
#define KIND(e)		((e) / 16)
#define TOKEN(e)	(((e) / 4) & 3)
#define VERSION(e)	((e) & 3)

/*
 * The state is a number: two bits for each token, its version, or 0 for a lease that is
 * not there.
 */
#define SHIFT(t)			((t) * 2 - 2)
#define VERSION_OF(x, t)	(((x) >> SHIFT(t)) & 3)
#define WITH(x, t, v)		(((x) & ~(3 << SHIFT(t))) | ((v) << SHIFT(t)))

typedef Row {
	byte writer;
	byte from;					/* the log is complete from this row on */
	byte entry[ENTRIES];
	byte state;					/* the fold up to here */
};
Row row[NUMBERS + 2];
byte first = 1;
byte last = 1;

typedef Library {
	byte me;
	byte n;						/* the last row that was applied; 0: load anew */
	byte before;				/* who wrote it */
	byte base_from;				/* its "complete from" */
	byte image;					/* the state, with what the buffer has */
	byte from;
	byte place[TOKENS + 1];		/* the last row that has the lease whole */
	byte entry[ENTRIES];		/* the buffer */
	byte length;
};
Library run_[2];

byte writers;
byte tokens;
byte renewals;
byte dumps;
byte dump_first;
byte dump_last;

#define R			run_[s]

/* Apply an entry as one does who follows, or has followed, the log from its begin. */
inline follow(x, e_)
{
	if
	:: KIND(e_) == PUT -> x = WITH(x, TOKEN(e_), 1)
	:: KIND(e_) == END -> x = WITH(x, TOKEN(e_), 0)
	:: KIND(e_) == RENEW -> x = WITH(x, TOKEN(e_), VERSION_OF(x, TOKEN(e_)) + 1)
	:: else
	fi
}

/* ... and as a loader does. */
inline fold_entry(x, e_, strict_)
{
	if
	:: KIND(e_) == CARRY && VERSION_OF(x, TOKEN(e_)) == 0 ->
		x = WITH(x, TOKEN(e_), VERSION(e_))
	:: (KIND(e_) == RENEW || KIND(e_) == END) && VERSION_OF(x, TOKEN(e_)) == 0 ->
		mistaken = mistaken || strict_
	:: KIND(e_) == PUT || ((KIND(e_) == RENEW || KIND(e_) == END) &&
						   VERSION_OF(x, TOKEN(e_)) != 0) ->
		follow(x, e_)
	:: else
	fi
}

/*
 * Whether a change of an unknown token in this row means damage.  Its lease may be in an
 * older row, and be carried in a newer one; but not behind the first row that says that
 * the log is complete from where it is now.
 */
#ifdef STRICT
#define IS_STRICT(r, from_)	((r) >= (from_))
#else
#define IS_STRICT(r, from_)	((r) > (from_) && row[(r) - 1].from == (from_))
#endif

inline fold_row(x, r, from_)
{
	j = 0;
	do
	:: j < ENTRIES ->
		fold_entry(x, row[r].entry[j], IS_STRICT(r, from_));
		j++
	:: else -> break
	od;
	j = 0
}

/* Whoever would load now finds all. */
inline check()
{
	assert(first <= row[last].from);
	fold = 0;
	i = row[last].from;
	do
	:: i <= last ->
		fold_row(fold, i, row[last].from);
		i++
	:: else -> break
	od;
	assert(!mistaken);
	assert(fold == row[last].state);
	fold = 0;
	i = first;
	do
	:: i <= last ->
		fold_row(fold, i, row[last].from);
		i++
	:: else -> break
	od;
	assert(!mistaken);
	assert(fold == row[last].state);
	fold = 0;
	i = 0
}

inline clear_row(r)
{
	row[r].writer = 0;
	row[r].from = 0;
	row[r].state = 0;
	j = 0;
	do
	:: j < ENTRIES ->
		row[r].entry[j] = 0;
		j++
	:: else -> break
	od;
	j = 0
}

inline clear_buffer()
{
	j = 0;
	do
	:: j < ENTRIES ->
		R.entry[j] = 0;
		j++
	:: else -> break
	od;
	R.length = 0;
	j = 0
}

/* Where each lease is, in the rows up to the last that was applied. */
inline find_places()
{
	i = 1;
	do
	:: i <= TOKENS ->
		R.place[i] = 0;
		i++
	:: else -> break
	od;
	i = 1;
	do
	:: i <= R.n ->
		j = 0;
		do
		:: j < ENTRIES ->
			if
			:: KIND(row[i].entry[j]) == PUT || KIND(row[i].entry[j]) == CARRY ->
				R.place[TOKEN(row[i].entry[j])] = i
			:: else
			fi;
			j++
		:: else -> break
		od;
		i++
	:: else -> break
	od;
	i = 1;
	do
	:: i <= TOKENS ->
		if
		:: VERSION_OF(R.image, i) == 0 -> R.place[i] = 0
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	j = 0
}

/* The image is that of the log, and no more. */
inline settle()
{
	R.before = row[R.n].writer;
	R.base_from = row[R.n].from;
	R.image = row[R.n].state;
#ifdef KEEP_FROM
	if
	:: R.from < row[R.n].from -> R.from = row[R.n].from
	:: else
	fi;
#else
	R.from = row[R.n].from;
#endif
	find_places()
}

/* Others have written: what was carried is thrown away, all calls come again. */
inline give_up_buffer()
{
#ifdef REPEAT
	fold = 0;
	i = 0;
	do
	:: i < ENTRIES ->
		if
		:: KIND(R.entry[i]) == CARRY && fold == 0 -> fold = R.entry[i]
		:: else
		fi;
		i++
	:: else -> break
	od;
	clear_buffer();
	if
	:: fold != 0 ->
		R.entry[0] = fold;
		R.length = 1
	:: else
	fi;
	fold = 0;
	i = 0
#else
	clear_buffer()
#endif
}

inline add(e_)
{
	R.entry[R.length] = e_;
	R.length++
}

/* Does the oldest row have a lease still? */
#define LIVES(t)	(R.place[t] == R.from && VERSION_OF(R.image, t) != 0)
#if TOKENS == 2
#define ANY(what)	(what(1) || what(2))
#else
#define ANY(what)	(what(1) || what(2) || what(3))
#endif

/* Of the oldest rows nothing lives: the log is complete from the next. */
inline advance()
{
	do
	:: R.from <= R.n && !ANY(LIVES) -> R.from++
	:: else -> break
	od
}

#ifdef STALE
#define CARRIED(t)	VERSION_OF(row[R.n].state, t)
#define MAY_CARRY(t)	(R.place[t] == R.from && CARRIED(t) != 0)
#else
#define CARRIED(t)	VERSION_OF(R.image, t)
#define MAY_CARRY(t)	LIVES(t)
#endif

#define IS_KNOWN	(R.n >= first && R.n <= last && row[R.n].writer == R.before)

proctype Run(byte s)
{
	byte fold;
	bool mistaken;
	byte t;
	byte i;
	byte j;

end:
	do
	/* load; check() has seen that this can be done */
	:: d_step {
			R.n == 0 ->
			writers++;
			R.me = writers;
			R.n = last;
			R.from = 0;
			settle()
		}

	/* put, renew, end */
	:: d_step {
			R.n != 0 && tokens < TOKENS && R.length < ENTRIES ->
			tokens++;
			add(ENTRY(PUT, tokens, 0));
			R.image = WITH(R.image, tokens, 1);
			R.place[tokens] = R.n + 1
		}
	:: atomic {
			R.n != 0 && R.image != 0 && R.length < ENTRIES ->
			if
			:: VERSION_OF(R.image, 1) != 0 -> t = 1
			:: VERSION_OF(R.image, 2) != 0 -> t = 2
#if TOKENS == 3
			:: VERSION_OF(R.image, 3) != 0 -> t = 3
#endif
			fi;
			if
			:: renewals < RENEWALS ->
				renewals++;
				add(ENTRY(RENEW, t, 0));
				R.image = WITH(R.image, t, VERSION_OF(R.image, t) + 1)
			:: true ->
				add(ENTRY(END, t, 0));
				R.image = WITH(R.image, t, 0);
#ifndef STALE
				R.place[t] = 0;
				advance()
#endif
			fi;
			t = 0
		}

	/* carry a lease of the oldest row */
	:: atomic {
			R.n != 0 && R.length < ENTRIES && R.from <= R.n && ANY(MAY_CARRY) ->
			if
			:: MAY_CARRY(1) -> t = 1
			:: MAY_CARRY(2) -> t = 2
#if TOKENS == 3
			:: MAY_CARRY(3) -> t = 3
#endif
			fi;
			add(ENTRY(CARRY, t, CARRIED(t)));
			R.place[t] = R.n + 1;
#ifdef FROM_NEXT
			R.from++;
#endif
			advance();
			t = 0
		}

	/* append */
	:: d_step {
			R.n != 0 && R.n < NUMBERS && R.length > 0 &&
			IS_KNOWN && R.n == last ->
			last++;
			row[last].writer = R.me;
			row[last].from = R.from;
			row[last].state = row[R.n].state;
			i = 0;
			do
			:: i < ENTRIES ->
				row[last].entry[i] = R.entry[i];
				follow(row[last].state, R.entry[i]);
				i++
			:: else -> break
			od;
			i = 0;
			R.n++;
			R.before = R.me;
			R.base_from = R.from;
			clear_buffer();
			assert(R.image == row[last].state);
			check()
		}

	/* it has failed, or the tail is read: apply the rows of others */
	:: d_step {
			R.n != 0 && IS_KNOWN && R.n < last ->
			R.n = last;
			settle();
			give_up_buffer()
		}

	/* the last row is gone: load anew */
	:: d_step {
			R.n != 0 && !IS_KNOWN ->
			R.n = 0;
			R.before = 0;
			R.base_from = 0;
			R.image = 0;
			R.from = 0;
			i = 1;
			do
			:: i <= TOKENS ->
				R.place[i] = 0;
				i++
			:: else -> break
			od;
			i = 0;
			clear_buffer()
		}

	/* delete what is needed no more */
#if defined(DELETE_EARLY)
#define BELOW		R.from
#elif defined(DELETE_ALL)
#define BELOW		R.n
#else
#define BELOW		R.base_from
#endif
	:: d_step {
			R.n != 0 && first < BELOW &&
#ifndef DELETE_BLIND
			IS_KNOWN &&
#endif
			true ->
			first = BELOW;
			check()
		}
	od
}

active proctype Log()
{
	byte fold;
	bool mistaken;
	byte i;
	byte j;

	atomic {
		writers = 1;
		row[1].writer = 1;
		row[1].from = 1;
		row[1].entry[0] = ENTRY(PUT, 1, 0);
		row[1].state = 1;
		tokens = 1;
		run Run(0);
		run Run(1)
#ifdef LOADER
		;
		run Loader()
#endif
	}

end:
	do
	:: d_step {
			dumps < DUMPS && dump_last == 0 ->
			dump_first = first;
			dump_last = last
		}
	:: d_step {
			dump_last != 0 && last > dump_last ->
			dumps++;
			do
			:: last > dump_last ->
				clear_row(last);
				last--
			:: else -> break
			od;
			first = dump_first;
			dump_first = 0;
			dump_last = 0;
			check()
		}
	od
}

#ifdef LOADER
proctype Loader()
{
	byte found;
	byte n;						/* the last row, as it was at first */
	byte from;
	byte state;
	byte r;
	bool mistaken;
	byte j;

end:
	do
	:: d_step {
			n == 0 ->
			n = last;
			from = row[last].from;
			state = row[last].state;
			r = from
		}
	:: d_step {
			n != 0 && r <= n ->
			if
			:: r >= first && r <= last ->
				fold_row(found, r, from);
				r++
			:: else ->
#ifdef HOLES
				r++
#else
				/* again */
				n = 0;
				found = 0;
				from = 0;
				state = 0;
				r = 0;
				mistaken = false
#endif
			fi
		}
	:: d_step {
			n != 0 && r > n ->
			assert(found == state);
			assert(!mistaken);
			n = 0;
			found = 0;
			from = 0;
			state = 0;
			r = 0
		}
	od
}
#endif
