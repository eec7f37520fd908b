/*
 * lease_deadlock.c
 *	  Find out whether a waiter closes a cycle of owners.
 *
 * An owner stands for one thread of control.  It cannot go on while one of its
 * connections waits; it can give up a lease only while it can go on.  So we
 * look for waiters that are stuck: start by taking all for stuck, and strike
 * out, again and again, each that could be served if all owners who can go on
 * gave up what they hold.  That counts permits as they are: a waiter for one of
 * three is not stuck if one of three holders can go on.  What remains cannot be
 * resolved but by a deadline.  If the newcomer is among it, there is a way from
 * owner to owner back to it, which is the cycle that the error names.
 *
 * A cycle is closed by the last of its waiters to join, since a lease is only
 * granted to somebody who thereby stops waiting.  Each newcomer looks after it
 * has joined, and newcomers look one after another, under one lock; the one
 * that finds itself stuck leaves before the next looks.  So every cycle has
 * exactly one victim.
 *
 * The queues are copied at one moment, but buckets are read one by one, each
 * under its own lock.  Something seen early may be gone by the end.  So
 * everything is done twice: a hold keeps its token and a wait its serial as long
 * as it lasts, so what was seen in both rounds was there between them, all at
 * the same moment.  Holds that are over count for nothing in either.
 *
 * Lock order: the deadlock lock, then a bucket, then a partition.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lease_bond.h"
#include "lease_deadlock.h"
#include "lease_rows.h"
#include "lease_trie.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* How often to look again when the two rounds disagree. */
#define ROUNDS_MAX		10

/* A holder that keeps others out. */
typedef struct Hold
{
	lease_bytes owner;
	Oid			role;
	lease_mode	mode;
	uint64		permits;
	uint64		token;
	bool		bound;			/* to a session, which may end by itself */
} Hold;

/* A name that somebody waits for. */
typedef struct WaitedName
{
	int			first;			/* of its waiters */
	int			nwaiters;
	bool		reached;
	List	   *holds;			/* of Hold */
} WaitedName;

typedef struct Search
{
	LeaseDatabase *db;
	Relation	rel;
	LeaseWaiterCopy *waiters;
	int			nwaiters;
	WaitedName	   *names;
	int			nnames;
	int		   *name_of;		/* of each waiter */
	uint32	   *owner_hash;		/* of each waiter */
	bool	   *stuck;
	int		   *came_from;		/* in the search for the cycle; -1: not yet */
} Search;

static lease_bytes
owner_of(const LeaseWaiter *waiter)
{
	return (lease_bytes) {waiter->owner, waiter->owner_length};
}

static uint32
hash_owner(lease_bytes owner, Oid role)
{
	return hash_bytes((const unsigned char *) owner.data,
					  (int) owner.length) ^ role;
}

/* Say whether a waiter is of an owner and role. */
static bool
is_of(const Search *search, int w, lease_bytes owner, Oid role, uint32 hash)
{
	const LeaseWaiter *waiter = &search->waiters[w].waiter;

	return search->owner_hash[w] == hash && waiter->role == role &&
		lease_same(owner_of(waiter), owner);
}

/* Say whether two waiters are of one owner. */
static bool
are_one(const Search *search, int a, int b)
{
	return is_of(search, a, owner_of(&search->waiters[b].waiter),
				 search->waiters[b].waiter.role, search->owner_hash[b]);
}

/* Copy the queues and find their names. */
static void
copy_queues(Search *search)
{
	search->waiters = lease_queue_copy(search->db->database,
									   &search->nwaiters);
	search->names = palloc0((search->nwaiters + 1) * sizeof(WaitedName));
	search->name_of = palloc((search->nwaiters + 1) * sizeof(int));
	search->owner_hash = palloc((search->nwaiters + 1) * sizeof(uint32));
	search->stuck = palloc0((search->nwaiters + 1) * sizeof(bool));
	search->came_from = palloc((search->nwaiters + 1) * sizeof(int));
	search->nnames = 0;
	for (int w = 0; w < search->nwaiters; w++)
	{
		const LeaseWaiter *waiter = &search->waiters[w].waiter;

		if (w == 0 || memcmp(&search->waiters[w].key,
							 &search->waiters[w - 1].key,
							 sizeof(LeaseQueueKey)) != 0)
			search->names[search->nnames++].first = w;
		search->names[search->nnames - 1].nwaiters++;
		search->name_of[w] = search->nnames - 1;
		search->owner_hash[w] = hash_owner(owner_of(waiter), waiter->role);
		search->came_from[w] = -1;
	}
}

/* What a visit to a bucket needs to know. */
typedef struct HoldContext
{
	Search	   *search;
	WaitedName	   *name;
	lease_bytes text;
} HoldContext;

static void
add_hold(WaitedName *name, lease_bytes owner, Oid role, lease_mode mode,
		 uint64 permits, uint64 token, bool bound)
{
	Hold	   *hold = palloc(sizeof(Hold));

	*hold = (Hold) {
		lease_rows_copy_bytes(owner), role, mode, permits, token, bound
	};
	name->holds = lappend(name->holds, hold);
}

static void
visit_hold(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
		   void *context)
{
	HoldContext *hold = context;
	int64		now_us = lease_clock_now(hold->search->db);
	int64		deadline_us;
	lease_life	life;

	if (!lease_same(lease_entry_name(entry), hold->text))
		return;
	life = lease_bond_judge(hold->search->db, entry, now_us, &deadline_us);
	if (deadline_us > now_us)
		add_hold(hold->name, lease_entry_owner(entry), entry->role,
				 entry->mode, entry->version, entry->token,
				 life == LEASE_BOUND && entry->kind == LEASE_SESSION);
}

/* Read who holds or guards a name. */
static void
read_holds(Search *search, WaitedName *name)
{
	const LeaseQueueKey *key = &search->waiters[name->first].key;
	HoldContext context = {search, name, {key->name, key->length}};
	uint32		hash = key->hash;
	Buffer		bucket = lease_trie_lock(search->rel, hash,
										 BUFFER_LOCK_SHARE);
	LeaseQueue *queue;
	dlist_iter	iter;

	lease_trie_visit(search->rel, bucket, &hash, visit_hold, &context);
	queue = lease_queue_lock(key->database, hash, context.text, LW_SHARED);
	if (queue != NULL)
		dlist_foreach(iter, &queue->guards)
		{
			LeaseGuard *guard = dlist_container(LeaseGuard, link, iter.cur);
			bool		known = false;
			ListCell   *cell;

			foreach(cell, name->holds)
				known |= ((Hold *) lfirst(cell))->token == guard->token;
			if (!known)
				add_hold(name, (lease_bytes) {
					guard->owner, guard->owner_length
				}, guard->role, guard->mode, guard->version, guard->token,
						 false);
		}
	lease_queue_unlock(key->database, hash);
	UnlockReleaseBuffer(bucket);
	name->reached = true;
}

/* Reach all names that an owner waits for. */
static void
reach_owner(Search *search, lease_bytes owner, Oid role)
{
	uint32		hash = hash_owner(owner, role);

	for (int w = 0; w < search->nwaiters; w++)
	{
		WaitedName	   *name = &search->names[search->name_of[w]];

		if (!name->reached && is_of(search, w, owner, role, hash))
			read_holds(search, name);
	}
}

/* Reach all names that the newcomer's wait depends on. */
static void
reach(Search *search, int newcomer)
{
	bool	   *done = palloc0(search->nnames * sizeof(bool));
	bool		more = true;

	read_holds(search, &search->names[search->name_of[newcomer]]);
	while (more)
	{
		more = false;
		for (int n = 0; n < search->nnames; n++)
		{
			WaitedName	   *name = &search->names[n];
			ListCell   *cell;

			if (!name->reached || done[n])
				continue;
			done[n] = more = true;
			foreach(cell, name->holds)
			{
				Hold	   *hold = lfirst(cell);

				reach_owner(search, hold->owner, hold->role);
			}
			for (int w = name->first; w < name->first + name->nwaiters; w++)
			{
				const LeaseWaiter *waiter = &search->waiters[w].waiter;

				if (waiter->owner_length > 0)
				{
					search->stuck[w] = true;
					reach_owner(search, owner_of(waiter), waiter->role);
				}
			}
		}
	}
	pfree(done);
}

/* Say whether an owner has a connection that is stuck. */
static bool
is_owner_stuck(const Search *search, lease_bytes owner, Oid role)
{
	uint32		hash = hash_owner(owner, role);

	for (int w = 0; w < search->nwaiters; w++)
		if (search->stuck[w] && is_of(search, w, owner, role, hash))
			return true;
	return false;
}

/*
 * Say whether a hold will stay in a waiter's way.  One's own session's lease
 * in another connection ends with that, which nothing keeps from ending.
 */
static bool
is_hold_stuck(const Search *search, int w, const Hold *hold)
{
	if (hold->bound && is_of(search, w, hold->owner, hold->role,
							 hash_owner(hold->owner, hold->role)))
		return false;
	return is_owner_stuck(search, hold->owner, hold->role);
}

/* Say whether a waiter that is ahead in the queue is in another's way. */
static bool
is_ahead(const Search *search, int other, int w)
{
	return other != w && search->waiters[other].position > 0 &&
		(search->waiters[w].position == 0 || other < w) &&
		!are_one(search, other, w);
}

/* Say whether a waiter would be served if all who can go on gave up. */
static bool
could_be_served(const Search *search, int w)
{
	const LeaseWaiter *waiter = &search->waiters[w].waiter;
	const WaitedName *name = &search->names[search->name_of[w]];
	uint64		permits = 0;
	ListCell   *cell;

	for (int other = name->first; other < name->first + name->nwaiters;
		 other++)
		if (search->stuck[other] && is_ahead(search, other, w))
			return false;
	foreach(cell, name->holds)
	{
		const Hold *hold = lfirst(cell);

		if (!is_hold_stuck(search, w, hold))
			continue;
		if (!lease_modes_are_compatible(hold->mode, waiter->mode))
			return false;
		permits += hold->permits;
	}
	return waiter->mode != LEASE_PERMIT || permits < waiter->limit;
}

/* Strike out all that are not stuck. */
static void
reduce(Search *search)
{
	bool		more = true;

	while (more)
	{
		more = false;
		for (int w = 0; w < search->nwaiters; w++)
			if (search->stuck[w] && could_be_served(search, w))
			{
				search->stuck[w] = false;
				more = true;
			}
	}
}

/* Make the step of a cycle from a waiter to what blocks it. */
static LeaseCycleStep *
make_step(const Search *search, int w, bool in_queue, lease_bytes blocker,
		  Oid blocker_role, uint64 blocker_id)
{
	const LeaseWaiterCopy *copy = &search->waiters[w];
	LeaseCycleStep *step = palloc(sizeof(LeaseCycleStep));

	step->name = pnstrdup(copy->key.name, copy->key.length);
	step->owner = pnstrdup(copy->waiter.owner, copy->waiter.owner_length);
	step->role = copy->waiter.role;
	step->serial = copy->waiter.serial;
	step->in_queue = in_queue;
	step->blocker = pnstrdup(blocker.data, blocker.length);
	step->blocker_role = blocker_role;
	step->blocker_id = blocker_id;
	return step;
}

/*
 * Find what keeps waiter w stuck that is of an owner: a step, or NULL.
 */
static LeaseCycleStep *
find_step(const Search *search, int w, lease_bytes owner, Oid role)
{
	const WaitedName *name = &search->names[search->name_of[w]];
	uint32		hash = hash_owner(owner, role);
	ListCell   *cell;

	foreach(cell, name->holds)
	{
		const Hold *hold = lfirst(cell);

		if (hold->role == role && lease_same(hold->owner, owner) &&
			!(hold->mode == LEASE_SHARED &&
			  search->waiters[w].waiter.mode == LEASE_SHARED) &&
			is_hold_stuck(search, w, hold))
			return make_step(search, w, false, owner, role, hold->token);
	}
	for (int other = name->first; other < name->first + name->nwaiters;
		 other++)
		if (search->stuck[other] && is_ahead(search, other, w) &&
			is_of(search, other, owner, role, hash))
			return make_step(search, w, true, owner, role,
							 search->waiters[other].waiter.serial);
	return NULL;
}

/*
 * The shortest cycle through the newcomer, which is stuck, as a list of
 * LeaseCycleStep that starts with it.  NIL if there is none: then it waits for
 * a cycle that is not its own.
 */
static List *
find_cycle(Search *search, int newcomer)
{
	const LeaseWaiter *me = &search->waiters[newcomer].waiter;
	int		   *todo = palloc((search->nwaiters + 1) * sizeof(int));
	int			ntodo = 0;

	todo[ntodo++] = newcomer;
	search->came_from[newcomer] = newcomer;
	for (int i = 0; i < ntodo; i++)
	{
		int			w = todo[i];
		LeaseCycleStep *last = find_step(search, w, owner_of(me), me->role);

		if (last != NULL)
		{
			List	   *cycle = list_make1(last);

			while (w != newcomer)
			{
				int			next = w;
				const LeaseWaiter *waiter = &search->waiters[next].waiter;

				w = search->came_from[w];
				cycle = lcons(find_step(search, w, owner_of(waiter),
										waiter->role), cycle);
			}
			return cycle;
		}
		for (int next = 0; next < search->nwaiters; next++)
		{
			const LeaseWaiter *waiter = &search->waiters[next].waiter;

			if (search->stuck[next] && search->came_from[next] < 0 &&
				find_step(search, w, owner_of(waiter), waiter->role) != NULL)
			{
				search->came_from[next] = w;
				todo[ntodo++] = next;
			}
		}
	}
	return NIL;
}

/* Fold all that is stuck into one number, to compare two rounds by. */
static uint64
sum_up(const Search *search)
{
	uint64		sum = 0;

	for (int w = 0; w < search->nwaiters; w++)
		if (search->stuck[w])
			sum += hash_bytes_uint32_extended((uint32) search->waiters[w].waiter.serial, 1);
	for (int n = 0; n < search->nnames; n++)
	{
		ListCell   *cell;

		foreach(cell, search->names[n].holds)
		{
			const Hold *hold = lfirst(cell);

			if (is_owner_stuck(search, hold->owner, hold->role))
				sum += hash_bytes_extended((const unsigned char *) &hold->token,
										   sizeof(hold->token),
										   hold->permits);
		}
	}
	return sum;
}

/* Look once. */
static List *
look(LeaseDatabase *db, Relation rel, const LeaseWaiter *waiter, uint64 *sum)
{
	Search		search = {.db = db, .rel = rel};

	copy_queues(&search);
	for (int w = 0; w < search.nwaiters; w++)
	{
		if (search.waiters[w].waiter.serial != waiter->serial)
			continue;
		reach(&search, w);
		reduce(&search);
		if (!search.stuck[w])
			return NIL;
		*sum = sum_up(&search);
		return find_cycle(&search, w);
	}
	return NIL;
}

/*
 * The cycle that a waiter, which has joined, closes: a list of LeaseCycleStep
 * that starts with it; NIL if there is none.  The caller holds the deadlock
 * lock and no other, and has opened the lock table.
 */
List *
lease_deadlock_find(LeaseDatabase *db, Relation rel,
					const LeaseWaiter *waiter)
{
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext,
												 "dlock deadlock search",
												 ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(memory);
	List	   *cycle = NIL;
	uint64		last_sum = 0;

	for (int round = 0; round < ROUNDS_MAX; round++)
	{
		uint64		sum = 0;

		cycle = look(db, rel, waiter, &sum);
		if (cycle == NIL || (round > 0 && sum == last_sum))
			break;
		last_sum = sum;
		if (round == ROUNDS_MAX - 1)
			cycle = NIL;
	}
	MemoryContextSwitchTo(old);
	if (cycle == NIL)
		MemoryContextDelete(memory);
	return cycle;
}
