/*
 * lease_deadlock.c
 *	  Find out whether a waiter closes a circle of owners.
 *
 * core/stuck.c decides.  This file gathers the facts for it: all waiters of the
 * database, and the holders and guards of the names that the newcomer's wait
 * depends on, directly or by way of other owners.
 *
 * A circle is closed by the last of its waiters to join.  Each newcomer looks
 * after it has joined, and takes no notice of waiters that joined after it, as
 * the numbers they got tell.  So of all waiters in a circle only the last finds
 * it, whoever looks first, and however many look at the same time: every circle
 * has exactly one victim, and searches need no lock between them.  (A newcomer
 * may close its circle through a waiter that is about to leave, being the
 * victim of another circle.  Then each of the two circles has its victim.)
 *
 * The queues are copied partition by partition, and buckets are read one by one,
 * each under its own lock, and between two pages the search can be canceled.
 * Calls go on meanwhile, so something seen early may be gone by the end.  So if
 * there seems to be a circle, the newcomer looks once more, and only what both
 * looks see counts: a hold keeps its token, and a wait its serial, as long as it
 * lasts.  What is left all existed at one moment between the two looks.  And a
 * true circle has existed since this waiter joined, so both looks see all of it.
 * No look counts holds that are over, or that end by themselves, having been
 * released already.
 *
 * Most newcomers need not search.  If no holder or guard of the name waits, all
 * of them can go on and give it up to the waiters in line, finally to the
 * newcomer.  This misses no circle.  Each waiter joins, counts itself among its
 * owner's places, and then checks whether the holders of the name wait.  In a
 * circle, the last to join finds one that does, and searches.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "common/hashfn.h"
#include "lease_crash.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "stuck.h"
#include "utils/memutils.h"

/* What a look gives numbers to. */
typedef enum ThingKind
{
	THING_OWNER,				/* its role and its string */
	THING_PROCESS,				/* its pid */
	THING_WAIT,					/* its serial */
	THING_LEASE,				/* its token and its name */
	THING_GUARD					/* the same, and its process */
} ThingKind;

/* What tells a thing from all others, at all times. */
typedef struct Thing
{
	ThingKind	kind;
	uint32		id;				/* the role or the pid */
	uint64		serial;			/* or the token */
	lease_bytes text;			/* the owner's string, or the name */
} Thing;

typedef struct NumberedThing
{
	Thing		thing;
	uint32		number;
	uint32		hash;
	char		status;
} NumberedThing;

static uint32
hash_thing(Thing thing)
{
	uint32		hash = hash_bytes((const unsigned char *) thing.text.data,
								  (int) thing.text.length);

	hash = hash_combine(hash, murmurhash32(thing.id));
	return hash_combine(hash, murmurhash32((uint32) thing.serial));
}

#define SH_PREFIX		things
#define SH_ELEMENT_TYPE	NumberedThing
#define SH_KEY_TYPE		Thing
#define SH_KEY			thing
#define SH_HASH_KEY(table, key)	hash_thing(key)
#define SH_EQUAL(table, a, b)	((a).kind == (b).kind && (a).id == (b).id && \
								 (a).serial == (b).serial && \
								 lease_same((a).text, (b).text))
#define SH_STORE_HASH
#define SH_GET_HASH(table, entry)	(entry)->hash
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"
#include "wait/lease_wait.h"

/* An owner that waits, or that has what a waiting process guards. */
typedef struct Owner
{
	lease_bytes owner;
	Oid			role;
	uint32		first_wait;		/* or STUCK_NONE */
} Owner;

/* A name with waiters. */
typedef struct WaitedName
{
	uint32		first;			/* of its waiters */
	uint32		nwaiters;
	bool		reached;		/* its holders count */
} WaitedName;

/*
 * A look: the facts, and what follows.  A wait has the number of its copy.  A
 * process that waits is one waiter, also if it waits for any of several names.
 * Name 0 stands for one that is free.
 */
typedef struct Look
{
	LeaseDatabase *db;
	Relation	rel;
	const struct Look *before;	/* NULL, or the look that must have seen it too */
	things_hash *things;
	const LeaseWaiter **copies; /* of each wait */
	WaitedName *names;
	uint32	   *todo;			/* names reached and not read */
	uint32		ntodo;
	uint32		room;			/* that each array has at first, a power of 2 */
	Owner	   *owners;
	uint32	   *next_of_owner;	/* wait after each wait */

	stuck_facts facts;
	stuck_waiter *waiters;
	stuck_wait *waits;
	stuck_lease *leases;
	stuck_guard *guards;

	stuck_step *steps;			/* of the newcomer's circle */
	uint32		nsteps;			/* 0: it is in none */
} Look;

/* ----------------------------------------------------------------
 * Things
 * ----------------------------------------------------------------
 */

/* The number of a thing, or STUCK_NONE if it has none. */
static uint32
find_thing(const Look *look, Thing thing)
{
	NumberedThing *found = things_lookup(look->things, thing);

	return found == NULL ? STUCK_NONE : found->number;
}

/* The number of a thing; a new one gets the next, and its text must stay. */
static uint32
number_thing(Look *look, Thing thing, uint32 *next)
{
	bool		found;
	NumberedThing *entry = things_insert(look->things, thing, &found);

	if (!found)
		entry->number = (*next)++;
	return entry->number;
}

/* An array with room for one element more, doubled whenever it is full. */
static void *
make_room(const Look *look, void *array, uint32 used, Size size)
{
	if (used < look->room || (used & (used - 1)) != 0)
		return array;
	return repalloc_huge(array, (Size) used * 2 * size);
}

static Thing
owner_thing(lease_bytes owner, Oid role)
{
	return (Thing) {THING_OWNER, .id = role, .text = owner};
}

static Thing
process_thing(int pid)
{
	return (Thing) {THING_PROCESS, .id = (uint32) pid};
}

static Thing
wait_thing(const LeaseWaiter *waiter)
{
	return (Thing) {THING_WAIT, .serial = waiter->serial};
}

static uint32
number_owner(Look *look, lease_bytes owner, Oid role)
{
	uint32		next = look->facts.nowners;
	uint32		o = number_thing(look, owner_thing(owner, role),
								 &look->facts.nowners);

	if (o == next)
	{
		look->owners = make_room(look, look->owners, o, sizeof(Owner));
		look->owners[o] = (Owner) {owner, role, STUCK_NONE};
	}
	return o;
}

/* ----------------------------------------------------------------
 * Waiters
 * ----------------------------------------------------------------
 */

/* Number a wait's name, which is that of the wait before it or a new one. */
static uint32
number_name(Look *look, uint32 w)
{
	if (w == 0 || memcmp(&look->copies[w]->key, &look->copies[w - 1]->key,
						 sizeof(LeaseQueueKey)) != 0)
		look->names[look->facts.nnames++] = (WaitedName) {.first = w};
	look->names[look->facts.nnames - 1].nwaiters++;
	return look->facts.nnames - 1;
}

/* Take the facts of a wait, which has been copied, and its waiter. */
static void
add_wait(Look *look, const LeaseWaiter *waiter)
{
	stuck_facts *facts = &look->facts;
	uint32		w = number_thing(look, wait_thing(waiter), &facts->nwaits);
	lease_bytes owner = {waiter->owner, waiter->owner_length};
	uint32		o = number_owner(look, owner, waiter->role);
	uint32		whose = number_thing(look, process_thing(waiter->pid),
									 &facts->nwaiters);

	look->copies[w] = waiter;
	look->waiters[whose] = (stuck_waiter) {
		o, OidIsValid(waiter->acts_for) ?
			number_owner(look, owner, waiter->acts_for) : STUCK_NONE
	};
	look->waits[w] = (stuck_wait) {
		.waiter = whose,
		.name = number_name(look, w),
		.mode = waiter->mode,
		.limit = waiter->limit,
		.permits = Max(waiter->permits, 1),
		.in_line = waiter->role_in_queue == LEASE_WAIT_IN_LINE,
	};
	look->next_of_owner[w] = look->owners[o].first_wait;
	look->owners[o].first_wait = w;
}

/*
 * A process that waits for any of several names joins their queues one after
 * the other, and leaves them so.  While some of its waits are missing it is not
 * stuck: point the others to the free name.
 */
static void
excuse_partial(Look *look)
{
	stuck_facts *facts = &look->facts;
	uint32	   *seen = palloc0((facts->nwaiters + 1) * sizeof(uint32));

	for (uint32 w = 0; w < facts->nwaits; w++)
		seen[look->waits[w].waiter]++;
	for (uint32 w = 0; w < facts->nwaits; w++)
		if (seen[look->waits[w].waiter] < look->copies[w]->places)
		{
			look->waits[w].name = 0;
			look->waits[w].in_line = false;
		}
	pfree(seen);
}

/*
 * Copy the queues: waiters for an owner, which have joined by last_join, and
 * waited at the look before.
 */
static void
copy_queues(Look *look, uint64 last_join)
{
	List	   *copies = lease_queue_copy_waiters(look->db->database);
	Size		room = look->room =
		pg_nextpower2_32((uint32) list_length(copies) + 1);
	ListCell   *cell;

	look->copies = palloc(room * sizeof(LeaseWaiter *));
	look->things = things_create(CurrentMemoryContext, 4 * room, NULL);
	look->names = palloc(room * sizeof(WaitedName));
	look->todo = palloc(room * sizeof(uint32));
	look->owners = palloc(room * sizeof(Owner));
	look->next_of_owner = palloc(room * sizeof(uint32));
	look->waiters = palloc(room * sizeof(stuck_waiter));
	look->waits = palloc(room * sizeof(stuck_wait));
	look->leases = palloc(room * sizeof(stuck_lease));
	look->guards = palloc(room * sizeof(stuck_guard));
	look->names[look->facts.nnames++] = (WaitedName) {.reached = true};
	foreach(cell, copies)
	{
		const LeaseWaiter *waiter = lfirst(cell);

		if (waiter->owner_length > 0 && waiter->join_number <= last_join &&
			(look->before == NULL ||
			 find_thing(look->before, wait_thing(waiter)) != STUCK_NONE))
			add_wait(look, waiter);
	}
	excuse_partial(look);
}

/* ----------------------------------------------------------------
 * What is in their way
 * ----------------------------------------------------------------
 */

/* A name that is read. */
typedef struct ReadName
{
	Look	   *look;
	uint32		number;
	lease_bytes text;
} ReadName;

/* Note that the name of a wait is to be read. */
static void
reach_wait(Look *look, uint32 w)
{
	uint32		name = look->waits[w].name;

	if (look->names[name].reached)
		return;
	look->names[name].reached = true;
	look->todo[look->ntodo++] = name;
}

/* Note that all names that an owner waits for are to be read. */
static void
reach_waits_of(Look *look, uint32 owner)
{
	for (uint32 w = look->owners[owner].first_wait; w != STUCK_NONE;
		 w = look->next_of_owner[w])
		reach_wait(look, w);
}

/* The same for a process, or STUCK_NONE. */
static void
reach_waits_of_process(Look *look, uint32 waiter)
{
	if (waiter != STUCK_NONE)
		reach_waits_of(look, look->waiters[waiter].owner);
}

/*
 * The number of a lease, which is added unless it is there; STUCK_NONE if the
 * look before has not seen it.
 */
static uint32
add_lease(const ReadName *name, stuck_lease lease, uint64 token)
{
	Look	   *look = name->look;
	Thing		thing = {THING_LEASE, .serial = token, .text = name->text};
	uint32		next = look->facts.nleases;
	uint32		l;

	if (look->before != NULL)
	{
		l = find_thing(look->before, thing);
		if (l == STUCK_NONE)
			return STUCK_NONE;
		lease.held = Min(lease.held, look->before->leases[l].held);
	}
	l = number_thing(look, thing, &look->facts.nleases);
	if (l == next)
	{
		look->leases = make_room(look, look->leases, l, sizeof(stuck_lease));
		look->leases[l] = lease;
	}
	return l;
}

/* Look at a row: a lease counts if its owner can end it, and waits. */
static void
see_row(Buffer buffer, OffsetNumber offset, LeaseEntry *entry, void *context)
{
	const ReadName *name = context;
	Look	   *look = name->look;
	int64		now_us = lease_clock_now(look->db);
	lease_holder holder;
	uint32		owner;
	uint32		waiter = STUCK_NONE;

	if (!lease_same(lease_entry_name(entry), name->text))
		return;
	holder = lease_bond_holder(look->db, entry, now_us);
	owner = find_thing(look, owner_thing(holder.owner, entry->role));
	if (owner == STUCK_NONE || !lease_is_owned(&holder, now_us))
		return;
	if (holder.life == LEASE_BOUND)
		waiter = find_thing(look, process_thing(entry->pid));
	(void) add_lease(name, (stuck_lease) {
		name->number, owner, entry->mode, entry->version,
		holder.life == LEASE_BOUND, waiter
	}, entry->token);
	reach_waits_of(look, owner);
	reach_waits_of_process(look, waiter);
}

/* Look at a guard, in our memory: it counts if its owner or process waits. */
static void
see_guard(const ReadName *name, const LeaseGuard *guard)
{
	Look	   *look = name->look;
	lease_bytes text = {guard->owner, guard->owner_length};
	Thing		thing = {
		THING_GUARD, (uint32) guard->pid, guard->token, name->text
	};
	uint32		waiter = find_thing(look, process_thing(guard->pid));
	uint32		pinned = guard->version;
	uint32		owner;
	uint32		g;

	if (waiter == STUCK_NONE &&
		find_thing(look, owner_thing(text, guard->role)) == STUCK_NONE)
		return;
	if (look->before != NULL)
	{
		g = find_thing(look->before, thing);
		if (g == STUCK_NONE)
			return;
		pinned = Min(pinned, look->before->guards[g].pinned);
	}
	owner = number_owner(look, text, guard->role);
	g = number_thing(look, thing, &look->facts.nguards);
	look->guards = make_room(look, look->guards, g, sizeof(stuck_guard));
	look->guards[g] = (stuck_guard) {
		add_lease(name, (stuck_lease) {
			name->number, owner, guard->mode, 0, false, STUCK_NONE
		}, guard->token),
		waiter, guard->mode, pinned, guard->is_transactions
	};
	reach_waits_of(look, owner);
	reach_waits_of_process(look, waiter);
}

/* Look at a name's holders and guards, and note that its waiters count too. */
static void
read_name(Look *look, uint32 number)
{
	const WaitedName *waited = &look->names[number];
	const LeaseQueueKey *key = &look->copies[waited->first]->key;
	ReadName	name = {look, number, {key->name, key->length}};
	ListCell   *cell;

	lease_trie_look(look->rel, key->hash, see_row, &name);
	foreach(cell, lease_queue_copy_guards(key->database, key->hash, name.text))
		see_guard(&name, lfirst(cell));
	for (uint32 w = waited->first; w < waited->first + waited->nwaiters; w++)
		reach_waits_of_process(look, look->waits[w].waiter);
}

/* Have the core decide. */
static void
decide(Look *look, uint32 newcomer)
{
	stuck_facts *facts = &look->facts;
	bool	   *stuck = palloc(facts->nwaiters * sizeof(bool));
	uint32	   *work;

	facts->waiters = look->waiters;
	facts->waits = look->waits;
	facts->leases = look->leases;
	facts->guards = look->guards;
	work = palloc_extended(stuck_work_size(facts) * sizeof(uint32),
						   MCXT_ALLOC_HUGE);
	stuck_search(facts, stuck, work);
	look->steps = palloc(facts->nwaiters * sizeof(stuck_step));
	look->nsteps = stuck_find_circle(facts, stuck, newcomer, work,
									 look->steps);
}

/* Look at all that a newcomer's wait depends on. */
static void
take_look(Look *look, const LeaseWaiter *waiter)
{
	uint32		newcomer;

	copy_queues(look, waiter->join_number);
	newcomer = find_thing(look, process_thing(waiter->pid));
	if (newcomer == STUCK_NONE)
		return;					/* it has been served */
	reach_waits_of_process(look, newcomer);
	while (look->ntodo > 0)
	{
		read_name(look, look->todo[--look->ntodo]);
		DLOCK_CRASH_POINT("deadlock: name read");
		CHECK_FOR_INTERRUPTS();
		if (QueryCancelPending)
			return;				/* with nothing stuck, as far as we know */
	}
	decide(look, newcomer);
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
	bool		wait;			/* one of them waits */
} HoldersContext;

/* Look at a row: does its owner wait, if that can end it? */
static void
look_at_holder(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
			   void *context)
{
	HoldersContext *holders = context;
	int64		now_us;
	lease_holder holder;

	if (holders->wait || !lease_same(lease_entry_name(entry), holders->name))
		return;
	now_us = lease_clock_now(holders->db);
	holder = lease_bond_holder(holders->db, entry, now_us);
	holders->wait = lease_is_owned(&holder, now_us) &&
		lease_queue_owner_waits(holder.owner);
}

/*
 * Say whether a waiter that has joined, and whose transaction guards nothing,
 * can possibly close a circle.  No lock is held.
 *
 * A guard's connection may be waiting for another owner, so any guard makes it
 * possible.  Without one, who waits alone in a line closes none: what the owner has
 * itself is not in its way, if that and what it wants are plain and no permits.  So
 * the holders, who may be very many, need not be looked at.
 */
static bool
is_possible(LeaseDatabase *db, Relation rel, const LeaseWaiter *waiter)
{
	const LeaseQueueKey *key = &waiter->key;
	HoldersContext holders = {
		.db = db, .name = {key->name, key->length}
	};

	if (lease_queue_copy_guards(key->database, key->hash, holders.name) != NIL)
		return true;
	if (pg_atomic_read_u32(&db->nwaiters) <= 1 &&
		waiter->role_in_queue == LEASE_WAIT_IN_LINE &&
		waiter->kind == LEASE_PLAIN && waiter->mode != LEASE_PERMIT)
		return false;
	lease_trie_look(rel, key->hash, look_at_holder, &holders);
	return holders.wait;
}

/* ----------------------------------------------------------------
 * The search
 * ----------------------------------------------------------------
 */

/* The owner that a step's wait waits for. */
static uint32
blocking_owner(const Look *look, const stuck_step *step)
{
	return step->lease == STUCK_NONE ?
		look->waiters[look->waits[step->ahead].waiter].owner :
		look->leases[step->lease].owner;
}

/* An owner, as the caller may see it. */
static const char *
show_owner(const Look *look, uint32 owner)
{
	const Owner *shown = &look->owners[owner];

	return lease_privilege_show(pnstrdup(shown->owner.data,
										 shown->owner.length), shown->role);
}

/* Raise the error of a waiter that closes a circle, having left the queue. */
static void
raise_deadlock(const Look *look)
{
	StringInfoData detail;
	const char *hint;

	lease_count(look->db, LEASE_COUNT_DEADLOCKS, 1);
	initStringInfo(&detail);
	for (uint32 i = 0; i < look->nsteps; i++)
	{
		const stuck_step *step = &look->steps[i];
		const LeaseWaiter *waiter = look->copies[step->wait];

		if (i > 0)
			appendStringInfoChar(&detail, '\n');
		appendStringInfo(&detail, step->lease == STUCK_NONE ?
						 _("Owner \"%s\" waits for \"%s\"; queued behind owner \"%s\".") :
						 _("Owner \"%s\" waits for \"%s\"; held by owner \"%s\"."),
						 show_owner(look, look->waiters[look->waits[step->wait].waiter].owner),
						 lease_privilege_show_name(pnstrdup(waiter->key.name,
															waiter->key.length),
												   waiter->role),
						 show_owner(look, blocking_owner(look, step)));
	}
	if (look->nsteps > 1)
		hint = _("Acquire leases in the same order everywhere, or together with dlock_acquire_all().");
	else if (blocking_owner(look, &look->steps[0]) ==
			 look->waiters[look->waits[look->steps[0].wait].waiter].owner)
		hint = _("The owner holds what it waits for. Release it first.");
	else
		hint = _("This transaction guards what it waits for. End it first.");
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 errmsg("deadlock detected"),
			 errdetail_internal("%s", detail.data),
			 errhint("%s", hint)));
}

/*
 * Raise an error if this backend, which has joined a queue or several, closes a
 * circle.  It asks for the place that joined last: a caller that is not stuck there
 * is not stuck.
 *
 * Cancels are held, since it may be granted what it waits for meanwhile: one ends the
 * search, without a result.
 */
void
lease_deadlock_check(LeaseDatabase *db)
{
	const LeaseWaiter *waiter = lease_waiter_last();
	Relation	rel = lease_relation_open(AccessShareLock);
	Look		first = {.db = db, .rel = rel};
	Look		second = {.db = db, .rel = rel, .before = &first};
	MemoryContext memory = AllocSetContextCreate(CurrentMemoryContext,
												 "dlock deadlock search",
												 ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(memory);
	bool		found;

	HOLD_CANCEL_INTERRUPTS();
	if (lease_queue_has_guards() || is_possible(db, rel, waiter))
		take_look(&first, waiter);
	if (first.nsteps > 0)
		take_look(&second, waiter);
	/* unless it was granted after all */
	found = second.nsteps > 0 && !lease_waiter_leave();
	RESUME_CANCEL_INTERRUPTS();
	relation_close(rel, AccessShareLock);
	if (found)
		raise_deadlock(&second);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(memory);
}
