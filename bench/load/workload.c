/*
 * workload.c
 *	  What the clients of a run do.
 *
 * Each workload is a closed loop: a client sends its next request when it has
 * the answer to the last; some can be made at a given rate.  All of them check
 * that a lock has one holder: it is marked from the moment when a client learns
 * of its grant until it asks for the release, and the release of every grant
 * must succeed.  So that the checks can fail, clients, who keep to locks of
 * their own, go astray now and then: they try for locks that another is busy
 * with, and if they get them, keep them a little longer than they need.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <stddef.h>

#include "workload.h"

#define STRAY_EVERY		64

/* Of the lock that all want; its holder's. */
static _Atomic uint64_t handed_over_ns;
static atomic_int last_holder = -1;

/* A number from 0 to limit - 1. */
static int
random_below(Client *me, int limit)
{
	me->random ^= me->random << 13;
	me->random ^= me->random >> 7;
	me->random ^= me->random << 17;
	return (int) ((me->random >> 11) % (uint64_t) limit);
}

/* Any other client. */
static Client *
another(Client *me)
{
	return &run.all[(me->number + 1 + random_below(me, run.clients - 1)) %
					run.clients];
}

/* Whether it is time to go astray. */
static bool
astray(Client *me)
{
	return run.clients > 1 && random_below(me, STRAY_EVERY) == 0;
}

/* The first of "span" locks to try: mostly among the client's own. */
static int
pick(Client *me, int span)
{
	int			spans = run.locks / span;
	int			own = (spans - 1 - me->number) / run.clients + 1;
	int			chosen = -1;

	me->astray = astray(me);
	if (me->astray)
		chosen = atomic_load(&another(me)->current);
	if (chosen < 0)
	{
		int			nth = me->picked++;

		if (!run.workload->fresh)
			nth = random_below(me, own);
		else if (nth >= own)
			fail("client %d has had all its locks", me->number);
		chosen = run.first + span * (me->number + run.clients * nth);
	}
	atomic_store(&me->current, chosen);
	return chosen;
}

/* After going astray: keep what was got for a quarter of the time it took. */
static void
linger(Client *me, uint64_t asked_ns, uint64_t got_ns)
{
	while (me->astray && now_ns() < got_ns + (got_ns - asked_ns) / 4)
		;
}

/* Try for a lock that another client has all the time. */
static void
try_in_vain(Client *me, int lock)
{
	if (run.system->acquire(me->connection, lock, false))
		fail("lock %d, which another holds, was granted to client %d", lock,
			 me->number);
	me->refused++;
}

/*
 * Try for a lock.  A floor keeps nobody out, so here its clients keep each other
 * out: they meet as many refusals as those of the other systems.  Such a lock is
 * marked before it is asked for, as it is in a server that writes before it
 * flushes; a refusal costs the cheaper statement.
 */
static bool
try_for(Client *me, int lock)
{
	int			nobody = 0;

	if (run.system->floor &&
		!atomic_compare_exchange_strong(&run.holders[lock - run.first],
										&nobody, me->number + 1))
	{
		run.system->release(me->connection, lock);
		return false;
	}
	return run.system->acquire(me->connection, lock, false);
}

/* Note that the client has got a lock: nobody else may have it. */
static void
hold(Client *me, int lock)
{
	int			other = atomic_exchange(&run.holders[lock - run.first],
										me->number + 1);

	if (other != 0 && !(run.system->floor && other == me->number + 1))
		fail("lock %d was granted to client %d while client %d held it",
			 lock, me->number, other - 1);
	me->granted++;
}

/* Note that the client is about to give a lock back. */
static void
let_go(Client *me, int lock)
{
	int			other = atomic_exchange(&run.holders[lock - run.first], 0);

	if (other != me->number + 1)
		fail("lock %d was held by client %d, and client %d gives it back",
			 lock, other - 1, me->number);
}

/* Count "n" that are done at this time, if it is in the window; true if so. */
static bool
count(Client *me, uint64_t end_ns, int n)
{
	if (end_ns < run.start_ns || end_ns >= run.end_ns)
		return false;
	me->done += (uint64_t) n;
	me->by_second[(end_ns - run.start_ns) / 1000000000] += (uint64_t) n;
	return true;
}

/* The same, with the two times that it took. */
static void
count_times(Client *me, uint64_t end_ns, int n, uint64_t first_ns,
			uint64_t second_ns)
{
	if (!count(me, end_ns, n))
		return;
	histogram_add(&me->times[0], first_ns);
	histogram_add(&me->times[1], second_ns);
}

static bool
cycle_offered(const System *system)
{
	return system->acquire != NULL;
}

/* What takes more than cycles takes locks. */
static bool
lock_offered(const System *system)
{
	return cycle_offered(system) && !system->floor;
}

/*
 * Wait until the client's next request is due, if they are made at a rate; from
 * when its time counts.  That is from when it was due if the client was busy then,
 * lest a slow answer hide the requests that it kept from being made.
 */
static uint64_t
ask(Client *me)
{
	double		interval_ns;

	if (run.rate == 0)
		return now_ns();
	interval_ns = run.clients * 1e9 / run.rate;
	if (me->due_ns == 0)
		me->due_ns = now_ns() +
			(uint64_t) (interval_ns * me->number / run.clients);
	else
		me->due_ns += (uint64_t) interval_ns;
	if (me->due_ns < now_ns())
		return me->due_ns;
	sleep_until(me->due_ns);
	return now_ns();
}

/* cycle: take a lock that is most likely free, and give it back. */
static void
cycle(Client *me)
{
	const System *system = run.system;
	int			lock = pick(me, 1);
	uint64_t	asked = ask(me);
	uint64_t	got;
	uint64_t	released;
	uint64_t	end;

	if (!try_for(me, lock))
	{
		me->refused++;
		return;
	}
	got = now_ns();
	hold(me, lock);
	linger(me, asked, got);
	let_go(me, lock);
	released = now_ns();
	system->release(me->connection, lock);
	end = now_ns();
	count_times(me, end, 1, got - asked, end - released);
}

/* The nth of the client's own locks, round and round. */
static int
nth_kept(const Client *me, int n)
{
	return run.first + me->number + run.clients * (n % (run.locks / run.clients));
}

/* How many of them it has all the time. */
static int
kept(void)
{
	return run.locks / run.clients / 2;
}

/* Take the next of them. */
static void
keep_next(Client *me)
{
	int			lock = nth_kept(me, me->picked++);

	if (!run.system->acquire(me->connection, lock, false))
		fail("lock %d is not free", lock);
	hold(me, lock);
}

static void
keep_begin(Client *me)
{
	while (me->picked < kept())
		keep_next(me);
}

/*
 * keep: take the next of the client's own locks, and give back the one that was
 * taken half a round before.  Nobody goes astray here.
 */
static void
keep(Client *me)
{
	int			oldest = nth_kept(me, me->picked - kept());
	uint64_t	asked = ask(me);
	uint64_t	got;
	uint64_t	end;

	keep_next(me);
	got = now_ns();
	let_go(me, oldest);
	run.system->release(me->connection, oldest);
	end = now_ns();
	count_times(me, end, 1, got - asked, end - got);
}

static void
keep_end(Client *me)
{
	for (int n = me->picked - kept(); n < me->picked; n++)
	{
		let_go(me, nth_kept(me, n));
		run.system->release(me->connection, nth_kept(me, n));
	}
}

/*
 * hot: wait for the one lock that all want.  What is timed is how long it takes
 * from one holder to another: from the moment before its release is sent to
 * the moment when the next has it.  A holder that gets it again itself has been
 * granted it, but nothing was handed over.
 */
static void
hot(Client *me)
{
	const System *system = run.system;
	uint64_t	got;

	system->acquire(me->connection, run.first, true);
	got = now_ns();
	hold(me, run.first);
	if (count(me, got, 1) && last_holder != -1 && last_holder != me->number)
		histogram_add(&me->times[0], got - handed_over_ns);
	last_holder = me->number;
	let_go(me, run.first);
	handed_over_ns = now_ns();
	system->release(me->connection, run.first);
}

static bool
batch_offered(const System *system)
{
	return system->acquire_many != NULL;
}

/* batch: as cycle, but many locks at once. */
static void
batch(Client *me)
{
	const System *system = run.system;
	int			first = pick(me, run.batch);
	bool		got[MAX_BATCH];
	int			had = 0;
	int			given;
	uint64_t	asked = now_ns();
	uint64_t	granted;
	uint64_t	released;
	uint64_t	end;

	system->acquire_many(me->connection, first, run.batch, got);
	granted = now_ns();
	for (int i = 0; i < run.batch; i++)
		if (got[i])
		{
			hold(me, first + i);
			had++;
		}
	me->refused += (uint64_t) (run.batch - had);
	linger(me, asked, granted);
	for (int i = 0; i < run.batch; i++)
		if (got[i])
			let_go(me, first + i);
	if (had == 0)
		return;
	released = now_ns();
	given = system->release_many(me->connection, first, run.batch);
	end = now_ns();
	if (given != had)
		fail("%d locks were given back, of %d", given, had);
	count_times(me, end, had, granted - asked, end - released);
}

static bool
reentry_offered(const System *system)
{
	return system->reentrant;
}

/* reentry: take a lock that the client has already, and give that back. */
static void
reentry_begin(Client *me)
{
	if (!run.system->acquire(me->connection, run.first + me->number, false))
		fail("lock %d is not free", run.first + me->number);
	hold(me, run.first + me->number);
}

static void
reentry(Client *me)
{
	const System *system = run.system;
	int			lock = run.first + me->number;
	uint64_t	asked;
	uint64_t	got;
	uint64_t	end;

	if (astray(me))
	{
		try_in_vain(me, run.first + another(me)->number);
		return;
	}
	asked = now_ns();
	if (!system->acquire(me->connection, lock, false))
		fail("lock %d was refused to client %d, who has it", lock, me->number);
	got = now_ns();
	me->granted++;
	system->release(me->connection, lock);
	end = now_ns();
	count_times(me, end, 1, got - asked, end - got);
}

static void
reentry_end(Client *me)
{
	let_go(me, run.first + me->number);
	run.system->release(me->connection, run.first + me->number);
}

static bool
renew_offered(const System *system)
{
	return system->renew != NULL;
}

/* Where a client's share of the locks begins. */
static int
share(int number)
{
	return run.first + (int) ((int64_t) run.locks * number / run.clients);
}

/* Take all locks of the client's share, by the batch. */
static void
fill_range(Client *me)
{
	int			end = share(me->number + 1);
	bool		got[MAX_BATCH];

	for (int first = share(me->number); first < end; first += MAX_BATCH)
	{
		int			n = end - first < MAX_BATCH ? end - first : MAX_BATCH;

		run.system->acquire_many(me->connection, first, n, got);
		for (int i = 0; i < n; i++)
		{
			if (!got[i])
				fail("lock %d is not free", first + i);
			hold(me, first + i);
		}
	}
}

/* renew: keep all leases of the client's share alive, again and again. */
static void
renew(Client *me)
{
	int			leases = share(me->number + 1) - share(me->number);
	uint64_t	asked;
	uint64_t	end;
	int			renewed;

	if (astray(me))
		try_in_vain(me, share(another(me)->number));
	asked = ask(me);
	renewed = run.system->renew(me->connection, share(me->number), leases);
	end = now_ns();
	if (renewed != leases)
		fail("%d leases were renewed, of %d", renewed, leases);
	if (count(me, end, leases))
		histogram_add(&me->times[0], end - asked);
}

static bool
renewal_offered(const System *system)
{
	return system->renew_one != NULL;
}

/* renewal: keep one lease of the client's share alive, now this, now that. */
static void
renewal(Client *me)
{
	int			first = share(me->number);
	int			lock = first + random_below(me, share(me->number + 1) - first);
	uint64_t	asked;
	uint64_t	end;

	if (astray(me))
		try_in_vain(me, share(another(me)->number));
	asked = now_ns();
	run.system->renew_one(me->connection, lock);
	end = now_ns();
	if (count(me, end, 1))
		histogram_add(&me->times[0], end - asked);
}

static void
renew_end(Client *me)
{
	int			end = share(me->number + 1);

	for (int first = share(me->number); first < end; first += MAX_BATCH)
	{
		int			n = end - first < MAX_BATCH ? end - first : MAX_BATCH;

		for (int i = 0; i < n; i++)
			let_go(me, first + i);
		if (run.system->release_many(me->connection, first, n) != n)
			fail("locks from %d on were lost", first);
	}
}

static bool
deadlock_offered(const System *system)
{
	return system->closes_circle != NULL;
}

/*
 * deadlock: each client holds a lock, and each but the first waits for the lock
 * of the one before.  The first asks again and again for the lock of the last,
 * and is told each time that this closes a circle of all of them: so the whole
 * line has been gone through.
 */
static void
deadlock_begin(Client *me)
{
	if (!run.system->acquire(me->connection, run.first + me->number, false))
		fail("lock %d is not free", run.first + me->number);
	hold(me, run.first + me->number);
}

/* While the window lasts, ask for the last client's lock. */
static void
search(Client *me)
{
	uint64_t	asked;
	uint64_t	end;

	/* asked for too early, it is the last to come who closes the circle */
	while (now_ns() < run.start_ns)
		pause_before_retry();
	do
	{
		asked = now_ns();
		if (!run.system->closes_circle(me->connection,
									   run.first + run.clients - 1))
			fail("the line has not formed during the warm-up");
		end = now_ns();
		if (count(me, end, 1))
			histogram_add(&me->times[0], end - asked);
	} while (end < run.end_ns);
}

/* Wait for the lock before the client's own; it comes when the window is over. */
static void
stand_in_line(Client *me)
{
	int			before = run.first + me->number - 1;

	run.system->acquire(me->connection, before, true);
	if (now_ns() < run.end_ns)
		fail("lock %d, which another holds, was granted to client %d", before,
			 me->number);
	hold(me, before);
	let_go(me, before);
	run.system->release(me->connection, before);
}

/* Its only turn. */
static void
deadlock(Client *me)
{
	if (me->number == 0)
		search(me);
	else
		stand_in_line(me);
	let_go(me, run.first + me->number);
	run.system->release(me->connection, run.first + me->number);
}

static bool
queue_offered(const System *system)
{
	return system->take_jobs != NULL;
}

/*
 * queue: take jobs that nobody has, do them, which is to sleep, and note that
 * they are done.  Nobody ever lets go of a job here, for none may be done twice.
 */
static void
queue(Client *me)
{
	int			jobs[MAX_BATCH];
	uint64_t	asked = now_ns();
	uint64_t	taken;
	uint64_t	worked;
	uint64_t	end;
	int			n = run.system->take_jobs(me->connection, run.batch, jobs);

	if (n == 0)
		fail("there are no more jobs");
	taken = now_ns();
	for (int i = 0; i < n; i++)
		hold(me, jobs[i]);
	sleep_seconds(n * run.work_seconds);
	worked = now_ns();
	run.system->finish_jobs(me->connection, n, jobs);
	end = now_ns();
	count_times(me, end, n, taken - asked, end - worked);
}

/* once: take the first lock and give it back. */
static void
once(Client *me)
{
	run.system->acquire(me->connection, run.first, true);
	hold(me, run.first);
	let_go(me, run.first);
	run.system->release(me->connection, run.first);
}

/* held: try a thousand of the locks, which somebody must have. */
static void
held(Client *me)
{
	for (int i = 0; i < run.locks; i += run.locks / 1000 + 1)
		if (run.system->acquire(me->connection, run.first + i, false))
			fail("lock %d is not held any more", run.first + i);
}

/* fill: take all locks and keep them.  Like these two it has no turns. */
const Workload workloads[] =
{
	{.name = "cycle", .times = {"acquire", "release"},
		.offered = cycle_offered, .turn = cycle},
	{.name = "fresh", .times = {"acquire", "release"},
		.offered = cycle_offered, .turn = cycle, .fresh = true},
	{.name = "keep", .times = {"acquire", "release"},
		.offered = lock_offered,
		.begin = keep_begin, .turn = keep, .end = keep_end},
	{.name = "hot", .times = {"handover"},
		.offered = lock_offered, .turn = hot},
	{.name = "batch", .times = {"acquire", "release"},
		.offered = batch_offered, .turn = batch},
	{.name = "reentry", .times = {"acquire", "release"},
		.offered = reentry_offered,
		.begin = reentry_begin, .turn = reentry, .end = reentry_end},
	{.name = "renew", .times = {"heartbeat"},
		.offered = renew_offered,
		.begin = fill_range, .turn = renew, .end = renew_end},
	{.name = "renewal", .times = {"renewal"},
		.offered = renewal_offered,
		.begin = fill_range, .turn = renewal, .end = renew_end},
	{.name = "deadlock", .times = {"search"},
		.offered = deadlock_offered,
		.begin = deadlock_begin, .turn = deadlock},
	{.name = "queue", .times = {"take", "finish"},
		.offered = queue_offered, .turn = queue},
	{.name = "once", .offered = lock_offered, .begin = once},
	{.name = "held", .offered = lock_offered, .begin = held},
	{.name = "fill", .offered = batch_offered, .begin = fill_range,
		.keeps = true},
	{.name = NULL}
};
