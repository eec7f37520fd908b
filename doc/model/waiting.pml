/*
 * waiting.pml
 *	  How PostgreSQL's backends wait for a lease: a model in Promela.
 *
 * It follows pg_extension/call/lease_attempt.c (try_apply), lease_store.c
 * (lease_store_serve), lease_queue.c (join, leave, answer) and lease_wait.c
 * (sleep_in_line) for one name and exclusive leases, with all ways in which a
 * wait, or a lease, can end.
 * What happens under the lock of the queue's partition is one atomic step; the
 * bucket's lock is a variable, since a waiter leaves the queue without it, and a
 * guard ends without it.
 *
 * Time: a lease is brief, when its deadline may come at any moment, or long,
 * when it comes only after everybody has looked around, which all do once a
 * second.  A second passes only when nothing else can happen.  At that moment
 * nobody may have been forgotten, except by somebody who is stopped:
 *
 *   - nobody sleeps who has been answered;
 *   - the name is not free while somebody waits for it.
 *
 * Further: a lease is granted only when the name is free (exclusion), never to a
 * newcomer while somebody waits, nor out of turn (first come, first served);
 * whoever is told that he has got nothing has nothing; and all clients come to
 * their end, which Spin checks by itself.
 *
 * A variable that nothing will read again is cleared: no two states differ only by it.
 *
 *   spin -a waiting.pml && cc -O2 -w -DSAFETY -o pan pan.c && ./pan -m10000
 *
 * With -DSTOP, to spin, a waiter may stop for ever in its sleep; then the looks
 * around do what its wake-up cannot.  The other definitions take something away,
 * and each of them must be found out; t/454_model.pl sees to that:
 *
 *   NO_WAKE_ANSWERED  whoever is granted the lease is not woken
 *   NO_WAKE_LEAVER    whoever leaves from the head does not wake the next
 *   NO_WAKE_BRIEF     a new head is not told of a deadline that comes soon
 *   NO_SERVE          whoever releases does not serve the queue
 *   NO_GIVE_BACK      who is canceled keeps what he was granted meanwhile
 *   NO_LOOK           nobody looks around (with STOP)
 *   BARGING           a newcomer takes a free name, whoever waits
 *   LAST_FIRST        the queue is a stack
 *   JOIN_NOT_DUE      whoever joined because others waited, or because of a
 *                     guard, all of which have gone meanwhile, sleeps without
 *                     having looked at the name
 *
 * SPDX-License-Identifier: PostgreSQL
 */

#ifndef CLIENTS
#define CLIENTS	3
#endif
#ifndef ROUNDS
#define ROUNDS	1
#endif
#define NOBODY	255
#define GONE	254				/* who left a lease to its deadline: each attempt
								 * is that of another owner */

/* The lease, changed under the bucket's lock; but time passes by itself. */
byte holder = NOBODY;
bool over;						/* its deadline has passed */
bool brief;						/* its deadline may come at any moment */
bool guard;						/* of a lease that is gone */
bool bucket;					/* the bucket's lock */

#define FREE	((holder == NOBODY || over) && !guard)

/* The queue. */
mtype = { NOW, DEADLINE, NEVER };
chan line = [CLIENTS] of { byte };
mtype due = NEVER;				/* when it is to be looked at */

#define DUE		(due == NOW || (due == DEADLINE && over))

/* The waiters. */
bool latch[CLIENTS];
bool answered[CLIENTS];
bool asleep[CLIENTS];
bool timer[CLIENTS];			/* asleep until the deadline */
bool look[CLIENTS];				/* a second has passed */
bool stopped[CLIENTS];
bool somebody_is_stopped;

/* This one has looked at the name, and the head has left, or a guard ended, since. */
bool looked[CLIENTS];
bool changed[CLIENTS];

/* Who waits.  For the assertions only: how many came before, and still wait. */
bool waits[CLIENTS];
byte before[CLIENTS];
byte waiting;

inline begin_waiting(who)
{
	waits[who] = true;
	before[who] = waiting;
	waiting++
}

inline end_waiting(who)
{
	i = 0;
	do
	:: i < CLIENTS ->
		if
		:: waits[i] && before[i] > before[who] -> before[i]--
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	waits[who] = false;
	before[who] = 0;
	waiting--
}

inline end_looking()
{
	looked[me] = false;
	changed[me] = false
}

inline end_sleep()
{
	asleep[me] = false;
	timer[me] = false;
	look[me] = false
}

inline lock_bucket()
{
	atomic { !bucket -> bucket = true }
}

/* All that is done with the lease row; the caller has seen to the rest. */
inline grant(to)
{
	assert(FREE);
	assert(waiting == 0 || (waits[to] && before[to] == 0));
	holder = to;
	over = false;
	if
	:: brief = true
	:: brief = false
	fi
}

/* lease_queue_set_due() for the deadline of the lease as it is. */
inline set_due_deadline()
{
	due = DEADLINE;
#ifndef NO_WAKE_BRIEF
	if
	:: brief && line?[head] -> line?<head>;
		if
		:: head != me -> latch[head] = true
		:: else
		fi
	:: else
	fi
#endif
}

/*
 * lease_store_serve(), under the bucket's lock.  All leases are exclusive, so
 * there is one answer at most.
 */
inline serve(only_if_due)
{
	atomic {
		told = NOBODY;
		if
		:: len(line) == 0 -> due = NEVER
		:: len(line) > 0 && only_if_due && !DUE
		:: len(line) > 0 && !(only_if_due && !DUE) ->
			line?<head>;
			if
			:: FREE ->
				told = head;
				grant(told);
				answered[told] = true;
				end_waiting(told);
				line?head;
				due = NEVER;
				if
				:: len(line) > 0 -> set_due_deadline()
				:: else
				fi
			:: else -> set_due_deadline()
			fi
		fi;
		head = 0
	}
	/* the partition is unlocked by now */
	atomic {
#ifndef NO_WAKE_ANSWERED
		if
		:: told != NOBODY && told != me -> latch[told] = true
		:: else
		fi;
#endif
		told = NOBODY
	}
}

/* Release, if it is still ours. */
inline release()
{
	lock_bucket();
	if
	:: atomic { holder == me && !over -> holder = NOBODY; brief = false };
#ifndef NO_SERVE
		atomic {
			if
			:: len(line) > 0 -> due = NOW
			:: else
			fi
		}
		serve(false)
#endif
	:: else
	fi;
	bucket = false
}

/* Renew, if it is still ours: with another time to live. */
inline renew()
{
	lock_bucket();
	if
	:: atomic {
			holder == me && !over ->
			if
			:: brief = true
			:: brief = false
			fi
		};
		serve(false)
	:: else
	fi;
	bucket = false
}

/* poke(): of the count it matters only to whom it has changed */
inline poke()
{
	i = 0;
	do
	:: i < CLIENTS -> changed[i] = looked[i]; i++
	:: else -> break
	od;
	i = 0;
	if
	:: len(line) > 0 ->
		due = NOW;
		line?<head>;
#ifndef NO_WAKE_LEAVER
		latch[head] = true
#endif
	:: len(line) == 0 -> due = NEVER
	fi
}

/*
 * A transaction's lease goes with its row before the commit, and its guard after
 * that.
 */
inline commit()
{
	lock_bucket();
	if
	:: atomic { holder == me && !over -> holder = NOBODY; brief = false; guard = true };
		atomic {
			if
			:: len(line) > 0 -> due = NOW
			:: else
			fi
		}
		serve(false);
		bucket = false;
		atomic { guard = false; poke(); head = 0 }
	:: else -> bucket = false
	fi
}

/* lease_queue_leave() */
inline leave()
{
	atomic {
		end_sleep();
		if
		:: waits[me] ->
			line?<head>;
			line??eval(me);
			end_waiting(me);
			if
			:: head == me -> poke()
			:: else
			fi;
			assert(holder != me || over)
		:: else
		fi;
		head = 0
	}
}

proctype Client(byte me)
{
	byte round;
	byte i;
	byte head;
	byte told = NOBODY;
	bool behind;
	bool was_free;
	bool patient;
	bool regular;

	do
	:: round == ROUNDS -> break
	:: round < ROUNDS ->
		round++;
		atomic {
			if
			:: patient = true
			:: patient = false
			fi
		}

		/* try_apply(): the queue first, then ourselves */
		lock_bucket();
		serve(true);
		atomic { behind = len(line) > 0; was_free = FREE; looked[me] = true };
		if
#ifdef BARGING
		:: atomic { was_free -> behind = false }
#else
		:: was_free && !behind ->
#endif
			atomic { grant(me); was_free = false; end_looking(); bucket = false };
			goto granted
		:: !(was_free && !behind) ->
			/* trying once */
			atomic { behind = false; was_free = false; end_looking(); bucket = false };
			goto next
		:: !(was_free && !behind) ->
			/* what was in the way may have gone since we saw it */
			atomic {
				if
				:: len(line) > 0
				:: len(line) == 0 && changed[me] ->
#ifdef JOIN_NOT_DUE
					due = NEVER
#else
					due = NOW
#endif
				:: len(line) == 0 && !changed[me] -> due = DEADLINE
				fi;
#ifdef LAST_FIRST
				i = len(line);
				line!me;
				do
				:: i > 0 -> line?head; line!head; i--
				:: else -> break
				od;
				head = 0;
#else
				line!me;
#endif
				begin_waiting(me);
				behind = false;
				was_free = false;
				end_looking();
				bucket = false
			}
		fi;

		/* sleep_in_line() */
look_around:
		atomic {
			if
			:: answered[me] -> goto granted
			:: else
			fi;
			line?<head>;
			if
			:: DUE && (head == me || regular || due == NOW) ->
				head = 0
			:: else ->
				timer[me] = head == me && due == DEADLINE;
				asleep[me] = true;
				regular = false;
				head = 0;
				goto sleep
			fi
		}
		lock_bucket();
		serve(false);
		atomic { bucket = false; regular = false };
		goto look_around;

sleep:
		if
		:: atomic { latch[me] -> latch[me] = false; end_sleep() };
			goto look_around
		:: atomic { timer[me] && over -> end_sleep() };
			goto look_around
		:: atomic { look[me] -> end_sleep(); regular = true };
			goto look_around
		:: !patient ->
			/* time is up: what was granted is kept */
			leave();
			if
			:: answered[me] -> goto granted
			:: else -> goto next
			fi
		:: !patient ->
			/* canceled, terminated, or the client is gone: it is given back */
			leave();
			if
#ifndef NO_GIVE_BACK
			:: answered[me] -> release()
#endif
			:: else
			fi;
			assert(holder != me || over);
			goto next
#ifdef STOP
		:: atomic {
				!somebody_is_stopped ->
				somebody_is_stopped = true;
				stopped[me] = true
			};
			goto end_stopped
#endif
		fi;

granted:
		atomic { end_sleep() };
		if
		:: release()
		:: renew(); release()
		:: commit()
		:: atomic {
				if
				:: holder == me -> holder = GONE
				:: else
				fi
			}
		fi;
next:
		atomic { patient = false; answered[me] = false; latch[me] = false }
	od;
	goto done;

end_stopped:
	false;
done:
	skip
}

/* Deadlines that come at any moment. */
active proctype Clock()
{
end_clock:
	do
	:: atomic { holder != NOBODY && brief && !over -> over = true }
	od
}

/* A second has passed: nothing else can happen. */
active proctype Second()
{
	byte i;
	byte head;
	bool effect;

	atomic {
		i = 0;
		do
		:: i < CLIENTS -> run Client(i); i++
		:: else -> break
		od
	}
end_second:
	do
	:: atomic {
			timeout ->
			effect = false;
			if
			:: len(line) > 0 ->
				line?<head>;
				assert(!FREE || somebody_is_stopped)
			:: else -> head = NOBODY
			fi;
			i = 0;
			do
			:: i < CLIENTS ->
				assert(!asleep[i] || !answered[i] || stopped[i]);
				if
#ifndef NO_LOOK
				:: asleep[i] && !stopped[i] && (DUE || (i == head && due == DEADLINE && !timer[i])) ->
					look[i] = true;
					effect = true
#endif
				:: else
				fi;
				i++
			:: else -> break
			od;
			head = 0;
			i = 0;
			/* long leases end only after all that */
			if
			:: !effect && holder != NOBODY && !over -> over = true
			:: !effect && !(holder != NOBODY && !over) -> break
			:: else
			fi
		}
	od
}
