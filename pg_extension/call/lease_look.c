/*
 * lease_look.c
 *	  Requests on a name that change no row: look at it, wait for its holders, guard.
 *
 * A guard needs the name's bucket, in any mode, so that it is set while the lease
 * is live.  A look on a standby reads what the primary has logged, and knows of no
 * guards.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "call/lease_call.h"
#include "miscadmin.h"

/* ----------------------------------------------------------------
 * Reading
 * ----------------------------------------------------------------
 */

typedef struct ReadContext
{
	lease_bytes name;
	List	   *entries;		/* of its rows, copies */
} ReadContext;

static void
copy_named(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
		   void *context)
{
	ReadContext *read = context;

	if (lease_same(lease_entry_name(entry), read->name))
		read->entries = lappend(read->entries, lease_rows_copy(entry));
}

/*
 * Look at a name: its rows, over or not, and its guards.  Works on a standby, which
 * knows of no guards.
 */
void
lease_look_read(lease_bytes name, LeaseView *view)
{
	Relation	rel = lease_relation_open(AccessShareLock);
	LeaseDatabase *db;
	ReadContext read = {.name = name};
	List	   *guards = NIL;
	size_t		room;
	ListCell   *cell;

	memset(view, 0, sizeof(*view));
	if (lease_activate_was_done(rel))
	{
		uint32		hash = lease_trie_hash(rel, name);
		Buffer		bucket = lease_trie_lock(rel, hash, BUFFER_LOCK_SHARE);

		lease_trie_visit(rel, bucket, &hash, copy_named, &read);
		view->now_us = lease_clock_read(rel);
		if (lease_queue_is_used(MyDatabaseId, hash))
			guards = lease_queue_copy_guards(MyDatabaseId, hash, name);
		UnlockReleaseBuffer(bucket);
	}
	relation_close(rel, AccessShareLock);

	db = lease_state_find();
	room = list_length(read.entries) + list_length(guards);
	if (room == 0)
		return;
	view->holders = palloc(room * sizeof(lease_holder));
	view->entries = palloc0(room * sizeof(LeaseEntry *));
	view->guards = palloc0(room * sizeof(LeaseGuard *));
	foreach(cell, read.entries)
	{
		view->entries[view->count] = lfirst(cell);
		view->holders[view->count++] =
			lease_bond_holder(db, lfirst(cell), view->now_us);
	}
	foreach(cell, guards)
	{
		view->guards[view->count] = lfirst(cell);
		view->holders[view->count++] = lease_rows_pinned(lfirst(cell),
														 MyProcPid);
	}
}

static void
count_entry(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
			void *context)
{
	(*(uint64 *) context)++;
}

/*
 * How many rows the table has.
 *
 * The first call to ask reads the table.  It leaves in shared memory how many
 * rows it has counted, and how far it has come, in this order.  A call that
 * changes a bucket that has been counted adds the difference; the bucket's lock
 * keeps both from happening at once, and two from counting the same bucket.  So
 * the count is exact, and costs nothing from then on.  If a call leaves the
 * count unfinished, the next goes on with it.
 *
 * Where no count is kept, as on a standby, each call reads the table.
 */
uint64
lease_look_count_held(void)
{
	Relation	rel = lease_relation_open(AccessShareLock);
	LeaseDatabase *db = lease_state_find();
	bool		done = lease_activate_was_done(rel);
	bool		kept = done && db != NULL && db->file == compat_relation_file(rel);
	uint64		cursor = 0;
	uint64		count = 0;

	if (!done)
		cursor = LEASE_POSITION_END;
	else if (kept)
		cursor = pg_atomic_read_u64(&db->held_cursor);
	while (cursor < LEASE_POSITION_END)
	{
		uint64		next = cursor;
		uint64		n = 0;
		Buffer		bucket = lease_trie_lock_at(rel, &next, kept ?
												BUFFER_LOCK_EXCLUSIVE :
												BUFFER_LOCK_SHARE);
		uint64		counted = kept ? pg_atomic_read_u64(&db->held_cursor) : cursor;

		if (counted == cursor)
		{
			lease_trie_visit(rel, bucket, NULL, count_entry, &n);
			if (kept)
			{
				pg_atomic_fetch_add_u64(&db->held, (int64) n);
				pg_atomic_exchange_u64(&db->held_cursor, next);
			}
			count += n;
			cursor = next;
		}
		else
			cursor = counted;	/* another call has counted this one */
		UnlockReleaseBuffer(bucket);
		CHECK_FOR_INTERRUPTS();
	}
	if (kept)
	{
		pg_read_barrier();		/* after the cursor */
		count = pg_atomic_read_u64(&db->held);
	}
	relation_close(rel, AccessShareLock);
	return count;
}

/* ----------------------------------------------------------------
 * Guarding, and waiting for the present holders
 * ----------------------------------------------------------------
 */

/*
 * Pin a lease until the end of this transaction.  Returns whether the caller
 * holds it with this token and it is pinned; if not, there is no place for a
 * guard, "*full", or *holder is a copy of the entry of a live holder, or NULL.
 */
bool
lease_look_guard(lease_bytes name, lease_bytes owner, uint64 token,
					LeaseEntry **holder, bool *full)
{
	lease_request request = {
		.op = LEASE_RENEW, .owner = owner, .token = token
	};
	LeaseCall	call;
	Buffer		bucket;
	size_t		mine;
	bool		held;
	LeaseGuard	guard = {.token = token};

	*full = false;
	lease_call_begin(&call, name, &request);
	for (;;)
	{
		bucket = lease_trie_lock(call.rel, call.hash, BUFFER_LOCK_SHARE);
		if (lease_call_gather(&call, bucket))
			break;
		UnlockReleaseBuffer(bucket);
		lease_rows_resolve_role(&call);
	}
	mine = lease_find(&call.request, call.holders, call.count, call.now_us);
	held = mine < call.count;
	if (held)
	{
		LeaseEntry *entry = lease_rows_entry(&call, bucket, mine);

		guard.role = entry->role;
		guard.acquired_at = entry->acquired_at;
		pfree(entry);
		guard.guarding_role = call.requester.role;
		guard.application_length =
			LEASE_PUT_STRING(guard.application, lease_client_application());
		guard.address_length =
			LEASE_PUT_STRING(guard.address, lease_client_address());
		guard.mode = call.holders[mine].mode;
		guard.is_transactions = call.holders[mine].kind == LEASE_TRANSACTION &&
			!call.holders[mine].elsewhere;
		guard.version = call.holders[mine].version;
		guard.owner_length = LEASE_PUT_STRING(guard.owner, owner);
		held = lease_queue_guard(call.db->database, call.hash, name, &guard);
		*full = !held;
	}
	else
	{
		size_t		i = 0;

		call.request.op = LEASE_REAP;	/* so that all come by themselves */
		(void) lease_call_gather(&call, bucket);
		while (i < call.count && lease_is_over(&call.holders[i], call.now_us))
			i++;
		*holder = i == call.count ? NULL : lease_rows_entry(&call, bucket, i);
	}
	UnlockReleaseBuffer(bucket);
	lease_call_end(&call);
	return held;
}

/*
 * Wait until every hold that a name has now has ended: true; false if wait_us
 * runs out before.
 */
bool
lease_look_wait(lease_bytes name, int64 wait_us)
{
	lease_request request = {.op = LEASE_REAP};
	LeaseWaitTime time;
	uint64		youngest = 0;
	bool		ended = false;

	lease_wait_start(&time, wait_us);
	if (wait_us != 0)
		lease_session_watch();
	for (bool first = true; !ended; first = false)
	{
		LeaseCall	call;
		LeaseWaiter *waiter;
		Buffer		bucket;
		int64		next_us;
		bool		sleeps;

		lease_call_begin(&call, name, &request);
		/* without a wait, no place to wait in is needed */
		waiter = first || wait_us == 0 || lease_wait_is_over(&time) ? NULL :
			lease_waiter_begin(call.db, &call.requester, &call.request,
							   LEASE_WAIT_WATCH, false);
		if (waiter != NULL)
			waiter->since = time.start_time;
		bucket = lease_trie_lock(call.rel, call.hash, BUFFER_LOCK_SHARE);
		/* with the guards: a transaction's lease ends with its guard */
		(void) lease_call_gather(&call, bucket);
		if (first)
			youngest = lease_youngest(call.holders, call.count, call.now_us);
		ended = lease_have_ended(call.holders, call.count, youngest,
								 call.now_us, &next_us);
		/* rows change under the bucket's lock, but a guard may have ended meanwhile */
		sleeps = !ended && waiter != NULL &&
			lease_queue_join(waiter, call.db->database, call.hash, name, 0,
							 call.pokes);
		UnlockReleaseBuffer(bucket);
		lease_call_end(&call);
		if (sleeps)
			lease_wait_watch(call.db, &time, next_us);
		lease_waiter_finish();
		if (waiter == NULL && (!first || wait_us == 0))
			break;
	}
	lease_wait_stop(&time);
	lease_snapshot_take_back();
	return ended;
}
