/*
 * lease_deadlock.c
 *	  Find out whether a waiter closes a circle of owners.
 *
 * core/stuck.c decides.  This file gathers the facts for it: all waiters of the
 * database, and the holders and guards of the names that the newcomer's wait
 * depends on, directly or by way of other owners.
 *
 * A circle is closed by the last of its waiters to join.  Each newcomer looks
 * after it has joined, and newcomers look one after another, under one lock; the
 * one that finds itself in a circle leaves before the next looks.  So every
 * circle has exactly one victim.
 *
 * If others have joined since the newcomer did, they are about to look too.  So
 * it looks at all names for them: if nobody is stuck, none of those that joined
 * before its look has to look any more.
 *
 * The queues are copied partition by partition, and buckets are read one by one,
 * each under its own lock, so that calls go on meanwhile.  Something seen early
 * may be gone by the end.  So if there seems to be a circle, the search looks at
 * everything once more, and leaves out what has gone: a hold keeps its token,
 * and a wait its serial, as long as it lasts.  What is left all existed at one
 * moment between the two looks.  And a true circle has existed since this waiter
 * joined, so both looks see all of it.  Neither look counts holds that are
 * over, or that end by themselves, having been released already.
 *
 * Most newcomers need not search.  If no holder or guard of the name waits, all
 * of them can go on and give it up to the waiters in line, finally to the
 * newcomer.  The newcomer sees this without the deadlock lock, so that it need
 * not wait for another's search.  This misses no circle.  Each waiter joins,
 * counts itself among its owner's places, and then checks whether the holders of
 * the name wait.  In a circle, the last to join finds one that does, and
 * searches.
 *
 * Lock order: the deadlock lock, then a bucket, then a partition.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lease_bond.h"
#include "lease_clock.h"
#include "lease_deadlock.h"
#include "lease_rows.h"
#include "lease_trie.h"
#include "stuck.h"
#include "utils/memutils.h"

/* An owner: the string and the role. */
typedef struct Owner
{
	lease_bytes owner;
	Oid			role;
} Owner;

/* The number of an owner. */
typedef struct OwnerEntry
{
	Owner		key;
	uint32		number;
	uint32		hash;
	char		status;
} OwnerEntry;

static uint32
hash_owner(Owner key)
{
	return hash_combine(hash_bytes((const unsigned char *) key.owner.data,
								   (int) key.owner.length),
						murmurhash32(key.role));
}

#define SH_PREFIX		owners
#define SH_ELEMENT_TYPE	OwnerEntry
#define SH_KEY_TYPE		Owner
#define SH_KEY			key
#define SH_HASH_KEY(table, key)	hash_owner(key)
#define SH_EQUAL(table, a, b)	((a).role == (b).role && \
								 lease_same((a).owner, (b).owner))
#define SH_STORE_HASH
#define SH_GET_HASH(table, entry)	(entry)->hash
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* A name with waiters. */
typedef struct WaitedName
{
	uint32		first;			/* of its waiters */
	uint32		nwaiters;
	bool		reached;		/* its holders count */
	uint32		first_lease;	/* once they have been read */
	uint32		nleases;
} WaitedName;

/* A waiting process, and one of its waits. */
typedef struct Process
{
	int			pid;
	uint32		wait;
} Process;

/*
 * The facts.  A wait has the number of its copy.  A process that waits is one
 * waiter, also if it waits for any of several names; waiters are numbered in
 * the order of their pids, names and owners in the order of arrival.  One extra
 * name is free.
 */
typedef struct Search
{
	LeaseDatabase *db;
	Relation	rel;
	LeaseWaiterCopy *copies;
	int		   *pids;			/* of each waiter, in order */
	WaitedName *names;
	uint32	   *todo;			/* names reached and not read */
	uint32		ntodo;

	owners_hash *owner_numbers;
	Owner	   *owners;
	uint32	   *first_of_owner; /* wait of each owner, or STUCK_NONE */
	uint32		owner_room;
	uint32	   *next_of_owner;	/* wait after each wait */

	stuck_facts facts;
	stuck_waiter *waiters;
	stuck_wait *waits;
	stuck_lease *leases;
	uint64	   *tokens;			/* of each lease */
	uint32		lease_room;
	stuck_guard *guards;
	int		   *guard_pids;		/* of each guard */
	uint32		guard_room;

	/* the second look */
	bool	   *wait_seen;
	uint32	   *held_seen;		/* of each lease */
	uint32	   *pinned_seen;	/* of each guard */
} Search;

/* ----------------------------------------------------------------
 * Owners
 * ----------------------------------------------------------------
 */

/* The number of an owner, or STUCK_NONE if it has none. */
static uint32
find_owner(const Search *search, lease_bytes owner, Oid role)
{
	OwnerEntry *entry = owners_lookup(search->owner_numbers,
									  (Owner) {owner, role});

	return entry == NULL ? STUCK_NONE : entry->number;
}

/* The number of an owner, given now if need be; its string must stay. */
static uint32
number_owner(Search *search, lease_bytes owner, Oid role)
{
	bool		found;
	OwnerEntry *entry = owners_insert(search->owner_numbers,
									  (Owner) {owner, role}, &found);

	if (found)
		return entry->number;
	if (search->facts.nowners == search->owner_room)
	{
		search->owner_room *= 2;
		search->owners = repalloc_huge(search->owners, search->owner_room *
									   sizeof(Owner));
		search->first_of_owner = repalloc_huge(search->first_of_owner,
											   search->owner_room *
											   sizeof(uint32));
	}
	entry->number = search->facts.nowners++;
	search->owners[entry->number] = entry->key;
	search->first_of_owner[entry->number] = STUCK_NONE;
	return entry->number;
}

/* ----------------------------------------------------------------
 * Waiters
 * ----------------------------------------------------------------
 */

static int
compare_processes(const void *a, const void *b)
{
	int			x = ((const Process *) a)->pid;
	int			y = ((const Process *) b)->pid;

	return (x > y) - (x < y);
}

static int
compare_pids(const void *a, const void *b)
{
	int			x = *(const int *) a;
	int			y = *(const int *) b;

	return (x > y) - (x < y);
}

/* The waiter that a process is, or STUCK_NONE. */
static uint32
waiter_of(const Search *search, int pid)
{
	int		   *found = bsearch(&pid, search->pids, search->facts.nwaiters,
								sizeof(int), compare_pids);

	return found == NULL ? STUCK_NONE : (uint32) (found - search->pids);
}

/* Number the waiters, and set the waiter of each wait. */
static void
number_waiters(Search *search, uint32 nwaits)
{
	Process    *processes = palloc((nwaits + 1) * sizeof(Process));
	uint32		n = 0;

	for (uint32 w = 0; w < nwaits; w++)
		processes[w] = (Process) {search->copies[w].waiter.pid, w};
	qsort(processes, nwaits, sizeof(Process), compare_processes);
	for (uint32 i = 0; i < nwaits; i++)
	{
		if (i == 0 || processes[i].pid != processes[i - 1].pid)
			search->pids[n++] = processes[i].pid;
		search->waits[processes[i].wait].waiter = n - 1;
	}
	search->facts.nwaiters = n;
	search->facts.nwaits = nwaits;
	pfree(processes);
}

/* Number a wait's name, which is that of the wait before it or a new one. */
static uint32
number_name(Search *search, uint32 w)
{
	if (w == 0 || memcmp(&search->copies[w].key, &search->copies[w - 1].key,
						 sizeof(LeaseQueueKey)) != 0)
		search->names[search->facts.nnames++] = (WaitedName) {.first = w};
	search->names[search->facts.nnames - 1].nwaiters++;
	return search->facts.nnames - 1;
}

/* Take the facts of a wait and its waiter. */
static void
add_wait(Search *search, uint32 w)
{
	const LeaseWaiterCopy *copy = &search->copies[w];
	const LeaseWaiter *waiter = &copy->waiter;
	lease_bytes owner = {waiter->owner, waiter->owner_length};
	uint32		number = number_owner(search, owner, waiter->role);
	uint32		whose = search->waits[w].waiter;

	search->waiters[whose] = (stuck_waiter) {
		number, OidIsValid(waiter->acts_for) ?
			number_owner(search, owner, waiter->acts_for) : STUCK_NONE
	};
	search->waits[w] = (stuck_wait) {
		.waiter = whose,
		.name = number_name(search, w),
		.mode = waiter->mode,
		.limit = waiter->limit,
		.permits = Max(waiter->permits, 1),
		.in_line = copy->position > 0,
	};
	search->next_of_owner[w] = search->first_of_owner[number];
	search->first_of_owner[number] = w;
}

/*
 * A process that waits for any of several names joins their queues one after
 * the other, and leaves them so.  While some of its waits are missing it is not
 * stuck: point the others to the free name.
 */
static void
excuse_partial(Search *search)
{
	stuck_facts *facts = &search->facts;
	uint32	   *seen = palloc0((facts->nwaiters + 1) * sizeof(uint32));

	search->names[facts->nnames] = (WaitedName) {.reached = true};
	for (uint32 w = 0; w < facts->nwaits; w++)
		seen[search->waits[w].waiter]++;
	for (uint32 w = 0; w < facts->nwaits; w++)
		if (seen[search->waits[w].waiter] < search->copies[w].waiter.places)
		{
			search->waits[w].name = facts->nnames;
			search->waits[w].in_line = false;
		}
	pfree(seen);
}

/* Copy the queues; waiters without an owner do not count. */
static void
copy_queues(Search *search)
{
	int			copied;
	uint32		count = 0;
	Size		room;

	search->copies = lease_queue_copy(search->db->database, &copied);
	for (int i = 0; i < copied; i++)
		if (search->copies[i].waiter.owner_length > 0)
		{
			if (i != (int) count)
				search->copies[count] = search->copies[i];
			count++;
		}

	room = count + 1;
	search->pids = palloc(room * sizeof(int));
	search->names = palloc(room * sizeof(WaitedName));
	search->todo = palloc(room * sizeof(uint32));
	search->owner_numbers = owners_create(CurrentMemoryContext, room, NULL);
	search->owner_room = room;
	search->owners = palloc(room * sizeof(Owner));
	search->first_of_owner = palloc(room * sizeof(uint32));
	search->next_of_owner = palloc(room * sizeof(uint32));
	search->waiters = palloc(room * sizeof(stuck_waiter));
	search->waits = palloc(room * sizeof(stuck_wait));
	search->lease_room = search->guard_room = room;
	search->leases = palloc(room * sizeof(stuck_lease));
	search->tokens = palloc(room * sizeof(uint64));
	search->guards = palloc(room * sizeof(stuck_guard));
	search->guard_pids = palloc(room * sizeof(int));
	number_waiters(search, count);
	for (uint32 w = 0; w < count; w++)
		add_wait(search, w);
	excuse_partial(search);
}

/* ----------------------------------------------------------------
 * What is in their way
 * ----------------------------------------------------------------
 */

/* What a visit to a bucket needs to know. */
typedef struct VisitContext
{
	Search	   *search;
	uint32		number;			/* of the name */
	WaitedName *name;
	lease_bytes text;
	bool		again;			/* this is the second look */
} VisitContext;

/* Note that the name of a wait is to be read. */
static void
reach_wait(Search *search, uint32 w)
{
	uint32		number = search->waits[w].name;

	if (search->names[number].reached)
		return;
	search->names[number].reached = true;
	search->todo[search->ntodo++] = number;
}

/* Note that all names that an owner waits for are to be read. */
static void
reach_owner(Search *search, uint32 owner)
{
	for (uint32 w = search->first_of_owner[owner]; w != STUCK_NONE;
		 w = search->next_of_owner[w])
		reach_wait(search, w);
}

/* The lease of a name that has a token, or STUCK_NONE. */
static uint32
find_lease(const Search *search, const WaitedName *name, uint64 token)
{
	for (uint32 l = name->first_lease; l < name->first_lease + name->nleases;
		 l++)
		if (search->tokens[l] == token)
			return l;
	return STUCK_NONE;
}

/* Add a lease of the name that is read. */
static uint32
add_lease(const VisitContext *visit, stuck_lease lease, uint64 token)
{
	Search	   *search = visit->search;
	uint32		l = search->facts.nleases++;

	if (l == search->lease_room)
	{
		search->lease_room *= 2;
		search->leases = repalloc_huge(search->leases, search->lease_room *
									   sizeof(stuck_lease));
		search->tokens = repalloc_huge(search->tokens, search->lease_room *
									   sizeof(uint64));
	}
	search->leases[l] = lease;
	search->tokens[l] = token;
	visit->name->nleases++;
	return l;
}

/* Look at a row: a lease counts if its owner can end it, and waits. */
static void
visit_row(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
		  void *context)
{
	const VisitContext *visit = context;
	Search	   *search = visit->search;
	int64		now_us = lease_clock_now(search->db);
	lease_holder holder;
	uint32		owner;
	uint32		waiter = STUCK_NONE;
	uint32		l;

	if (!lease_same(lease_entry_name(entry), visit->text))
		return;
	holder = lease_bond_holder(search->db, entry, now_us);
	if (!lease_is_owned(&holder, now_us))
		return;
	if (visit->again)
	{
		l = find_lease(search, visit->name, entry->token);
		if (l != STUCK_NONE)
			search->held_seen[l] = entry->version;
		return;
	}
	owner = find_owner(search, lease_entry_owner(entry), entry->role);
	if (owner == STUCK_NONE)
		return;
	if (holder.life == LEASE_BOUND)
		waiter = waiter_of(search, entry->pid);
	(void) add_lease(visit, (stuck_lease) {
		visit->number, owner, entry->mode, entry->version,
		holder.life == LEASE_BOUND, waiter
	}, entry->token);
	reach_owner(search, owner);
	if (waiter != STUCK_NONE)
		reach_owner(search, search->waiters[waiter].owner);
}

/* Look at a guard: it counts if its owner or its process waits. */
static void
visit_guard(const VisitContext *visit, const LeaseGuard *guard)
{
	Search	   *search = visit->search;
	lease_bytes text = {guard->owner, guard->owner_length};
	uint32		waiter = waiter_of(search, guard->pid);
	uint32		owner = find_owner(search, text, guard->role);
	uint32		l = find_lease(search, visit->name, guard->token);
	uint32		g = search->facts.nguards;

	if (waiter == STUCK_NONE && owner == STUCK_NONE)
		return;
	if (owner == STUCK_NONE)
		owner = number_owner(search, lease_rows_copy_bytes(text),
							 guard->role);
	if (l == STUCK_NONE)
		l = add_lease(visit, (stuck_lease) {
			visit->number, owner, guard->mode, 0, false, STUCK_NONE
		}, guard->token);
	if (g == search->guard_room)
	{
		search->guard_room *= 2;
		search->guards = repalloc_huge(search->guards, search->guard_room *
									   sizeof(stuck_guard));
		search->guard_pids = repalloc_huge(search->guard_pids,
										   search->guard_room * sizeof(int));
	}
	search->guards[g] = (stuck_guard) {
		l, waiter, guard->mode, guard->version, guard->is_transactions
	};
	search->guard_pids[g] = guard->pid;
	search->facts.nguards++;
	reach_owner(search, owner);
	if (waiter != STUCK_NONE)
		reach_owner(search, search->waiters[waiter].owner);
}

/* Note that a guard still exists at the second look. */
static void
visit_guard_again(const VisitContext *visit, const LeaseGuard *guard)
{
	Search	   *search = visit->search;
	uint32		l = find_lease(search, visit->name, guard->token);

	for (uint32 g = 0; g < search->facts.nguards; g++)
		if (search->guards[g].lease == l &&
			search->guard_pids[g] == guard->pid)
			search->pinned_seen[g] = guard->version;
}

/*
 * Note which waiters of a list still wait at the second look, from waiter *next
 * on: their order is the same.
 */
static void
visit_waiters_again(const VisitContext *visit, LeaseLink *list, uint32 *next)
{
	Search	   *search = visit->search;
	uint32		end = visit->name->first + visit->name->nwaiters;

	lease_list_foreach(LeaseWaiter, waiter, list)
	{
		uint32		w = *next;

		while (w < end && search->copies[w].waiter.serial != waiter->serial)
			w++;
		if (w == end)
			continue;
		search->wait_seen[w] = true;
		*next = w + 1;
	}
}

/* Look at a name's holders and guards; "again": also at its waiters. */
static void
visit_name(Search *search, uint32 number, bool again)
{
	WaitedName *name = &search->names[number];
	const LeaseQueueKey *key = &search->copies[name->first].key;
	VisitContext visit = {
		search, number, name, {key->name, key->length}, again
	};
	uint32		hash = key->hash;
	Buffer		bucket = lease_trie_lock(search->rel, hash,
										 BUFFER_LOCK_SHARE);
	LeaseQueue *queue;

	if (!again)
		name->first_lease = search->facts.nleases;
	lease_trie_visit(search->rel, bucket, &hash, visit_row, &visit);
	queue = lease_queue_lock(key->database, hash, visit.text, LW_SHARED);
	if (queue != NULL)
	{
		lease_list_foreach(LeaseGuard, guard, &queue->guards)
		{
			if (again)
				visit_guard_again(&visit, guard);
			else
				visit_guard(&visit, guard);
		}
		if (again)
		{
			uint32		next = name->first;

			visit_waiters_again(&visit, &queue->waiters, &next);
			visit_waiters_again(&visit, &queue->watchers, &next);
		}
	}
	lease_queue_unlock(key->database, hash);
	UnlockReleaseBuffer(bucket);
}

/* Gather all that a newcomer's wait depends on, or that of all. */
static void
gather(Search *search, uint32 newcomer, bool all)
{
	reach_owner(search, search->waiters[newcomer].owner);
	for (uint32 w = 0; all && w < search->facts.nwaits; w++)
		reach_wait(search, w);
	while (search->ntodo > 0)
	{
		uint32		number = search->todo[--search->ntodo];
		WaitedName *name = &search->names[number];

		visit_name(search, number, false);
		for (uint32 w = name->first; w < name->first + name->nwaiters; w++)
			reach_owner(search,
						search->waiters[search->waits[w].waiter].owner);
	}
}

/* Look once more, and leave out what has gone. */
static void
look_again(Search *search)
{
	stuck_facts *facts = &search->facts;
	uint32		nguards = 0;

	search->wait_seen = palloc0((facts->nwaits + 1) * sizeof(bool));
	search->held_seen = palloc0((facts->nleases + 1) * sizeof(uint32));
	search->pinned_seen = palloc0((facts->nguards + 1) * sizeof(uint32));
	for (uint32 number = 0; number < facts->nnames; number++)
		if (search->names[number].reached)
			visit_name(search, number, true);

	/* a waiter that has gone waits for the free name, in nobody's way */
	for (uint32 w = 0; w < facts->nwaits; w++)
		if (!search->wait_seen[w])
		{
			search->waits[w].name = facts->nnames;
			search->waits[w].in_line = false;
		}
	for (uint32 l = 0; l < facts->nleases; l++)
		search->leases[l].held = Min(search->leases[l].held,
									 search->held_seen[l]);
	for (uint32 g = 0; g < facts->nguards; g++)
		if (search->pinned_seen[g] > 0)
		{
			search->guards[nguards] = search->guards[g];
			search->guards[nguards++].pinned = Min(search->guards[g].pinned,
												   search->pinned_seen[g]);
		}
	facts->nguards = nguards;
}

/* ----------------------------------------------------------------
 * Whether to search
 * ----------------------------------------------------------------
 */

/* What a look at the holders of a name needs to know, and finds. */
typedef struct HoldersContext
{
	LeaseDatabase *db;
	lease_bytes name;
	int64		now_us;
	bool		wait;			/* one of them waits */
} HoldersContext;

/* Look at a row: does its owner wait, if that can end it? */
static void
look_at_holder(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
			   void *context)
{
	HoldersContext *holders = context;
	lease_holder holder;

	if (holders->wait || !lease_same(lease_entry_name(entry), holders->name))
		return;
	holder = lease_bond_holder(holders->db, entry, holders->now_us);
	holders->wait = lease_is_owned(&holder, holders->now_us) &&
		lease_queue_owner_waits(holder.owner);
}

/*
 * Say whether a waiter that has joined, and whose transaction guards nothing,
 * can possibly close a circle.  Of several places, "waiter" is the one that
 * joined last: a caller that is not stuck there is not stuck.  The caller has
 * opened the lock table.
 *
 * A guard's connection may be waiting for another owner, so any guard makes it
 * possible.
 */
bool
lease_deadlock_is_possible(LeaseDatabase *db, Relation rel,
						   const LeaseWaiter *waiter)
{
	HoldersContext holders = {.db = db};
	LeaseQueueKey key;
	LeaseQueue *queue;
	Buffer		bucket;
	bool		guarded;

	if (!lease_queue_key_of(waiter, &key))
		return false;
	holders.name = (lease_bytes) {key.name, key.length};
	bucket = lease_trie_lock(rel, key.hash, BUFFER_LOCK_SHARE);
	/* read after the bucket was locked */
	holders.now_us = lease_clock_now(db);
	lease_trie_visit(rel, bucket, &key.hash, look_at_holder, &holders);
	queue = lease_queue_lock(key.database, key.hash, holders.name, LW_SHARED);
	guarded = queue != NULL && !lease_list_is_empty(&queue->guards);
	lease_queue_unlock(key.database, key.hash);
	UnlockReleaseBuffer(bucket);
	return guarded || holders.wait;
}

/* ----------------------------------------------------------------
 * The search
 * ----------------------------------------------------------------
 */

/*
 * Have the core decide; returns the number of steps.  *nstuck is set to how many
 * are stuck.
 */
static uint32
find_circle(Search *search, uint32 newcomer, stuck_step *steps,
			uint32 *nstuck)
{
	stuck_facts facts = search->facts;
	bool	   *stuck = palloc(facts.nwaiters * sizeof(bool));
	uint32	   *work;

	facts.nnames++;				/* the free one */
	facts.waiters = search->waiters;
	facts.waits = search->waits;
	facts.leases = search->leases;
	facts.guards = search->guards;
	work = palloc_extended(stuck_work_size(&facts) * sizeof(uint32),
						   MCXT_ALLOC_HUGE);
	stuck_search(&facts, stuck, work);
	*nstuck = 0;
	for (uint32 w = 0; w < facts.nwaiters; w++)
		*nstuck += stuck[w];
	return stuck_find_circle(&facts, stuck, newcomer, work, steps);
}

/* Copy a step for the error. */
static LeaseCircleStep *
make_step(const Search *search, const stuck_step *step)
{
	const LeaseWaiterCopy *copy = &search->copies[step->wait];
	bool		in_queue = step->lease == STUCK_NONE;
	const Owner *blocker = &search->owners[in_queue ?
										   search->waiters[search->waits[step->ahead].waiter].owner :
										   search->leases[step->lease].owner];
	LeaseCircleStep *made = palloc(sizeof(LeaseCircleStep));

	made->name = pnstrdup(copy->key.name, copy->key.length);
	made->owner = pnstrdup(copy->waiter.owner, copy->waiter.owner_length);
	made->role = copy->waiter.role;
	made->in_queue = in_queue;
	made->blocker = pnstrdup(blocker->owner.data, blocker->owner.length);
	made->blocker_role = blocker->role;
	return made;
}

/* The search, in a memory context of its own. */
static List *
search_circle(LeaseDatabase *db, Relation rel, const LeaseWaiter *waiter)
{
	Search		search = {.db = db, .rel = rel};
	List	   *circle = NIL;
	stuck_step *steps;
	uint64		last_join = lease_queue_last_join();
	bool		all = last_join > waiter->join_number;
	uint32		length;
	uint32		nstuck;
	uint32		newcomer;

	if (waiter->join_number <= db->last_unstuck)
		return NIL;
	copy_queues(&search);
	newcomer = waiter_of(&search, waiter->pid);
	if (newcomer == STUCK_NONE)
		return NIL;				/* it has been served */
	steps = palloc(search.facts.nwaiters * sizeof(stuck_step));
	gather(&search, newcomer, all);
	length = find_circle(&search, newcomer, steps, &nstuck);
	if (all && nstuck == 0)
		db->last_unstuck = last_join;
	if (length == 0)
		return NIL;
	look_again(&search);
	length = find_circle(&search, newcomer, steps, &nstuck);
	for (uint32 i = 0; i < length; i++)
		circle = lappend(circle, make_step(&search, &steps[i]));
	return circle;
}

/*
 * The circle that a waiter that has joined closes: a list of LeaseCircleStep
 * that starts with it; NIL if there is none.  Of several places, "waiter" is the
 * one that joined last.  The caller holds the deadlock lock and no other, and
 * has opened the lock table.
 */
List *
lease_deadlock_find(LeaseDatabase *db, Relation rel,
					const LeaseWaiter *waiter)
{
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext,
												 "dlock deadlock search",
												 ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(memory);
	List	   *circle = search_circle(db, rel, waiter);

	MemoryContextSwitchTo(old);
	if (circle == NIL)
		MemoryContextDelete(memory);
	return circle;
}
