/*
 * lease_store.c
 *	  The steps of a call on the lock table.
 *
 * A request on one name (lease_attempt.c) goes: lock the name's bucket, gather
 * the name's holders, read the clock, let the core decide, write the changed
 * rows back, log, serve the name's waiters, unlock, flush.  Requests on many
 * names take the same steps, with several buckets locked (lease_all.c) or one
 * after another (lease_walk.c).
 *
 * Every change to a name happens under its bucket's exclusive content lock,
 * which makes concurrent requests on the name take turns.  While a backend
 * holds that, it waits for nothing but the partition of the name's queue
 * (lease_queue.c) and pages further down the lock order (lease_trie.c).
 *
 * A call that makes or finds a name free grants it to the head of the queue, on
 * the waiter's behalf: with its role, its owner, and its time to live from then
 * on.  The waiter makes the grant durable for itself when it wakes.
 *
 * After a crash, each record's change was made or not.  A caller that had its
 * answer finds it made; one that had none asks again.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "call/lease_call.h"
#include "lease_crash.h"
#include "miscadmin.h"

/* How many waiters one call serves; the next one serves the others. */
#define SERVE_MAX		64

/* How old the clock's mark may be before a call writes a new one. */
#define MARK_AGE_US		USECS_PER_SEC

/* ----------------------------------------------------------------
 * Calls
 * ----------------------------------------------------------------
 */

/* Begin a call on a table that is open and activated. */
void
lease_store_begin_open(LeaseCall *call, Relation rel, LeaseDatabase *db,
					   const lease_request *request)
{
	lease_clock_mark(rel, db, MARK_AGE_US);
	lease_rows_init(call, rel, db, request);
}

/* Open and activate the table for a call by the current role. */
void
lease_store_begin_call(LeaseCall *call, const lease_request *request)
{
	Relation	rel = lease_relation_open(RowExclusiveLock);

	lease_store_begin_open(call, rel, lease_activate(rel), request);
}

/* The same for a request on one name. */
void
lease_store_begin(LeaseCall *call, lease_bytes name,
				  const lease_request *request)
{
	lease_store_begin_call(call, request);
	lease_store_set_name(call, name);
}

/* Go on with another name. */
void
lease_store_set_name(LeaseCall *call, lease_bytes name)
{
	call->name = name;
	call->hash = lease_trie_hash(call->rel, name);
}

/* Close the table, and log what was found dead. */
void
lease_store_end(LeaseCall *call)
{
	relation_close(call->rel, RowExclusiveLock);
	lease_rows_report_expired(call);
	lease_rows_end(call);
}

/* Count the outcome of a request. */
void
lease_store_count(const LeaseCall *call, const LeaseAnswer *answer)
{
	LeaseDatabase *db = call->db;

	switch (answer->outcome)
	{
		case LEASE_GRANTED:
			lease_count(db, LEASE_COUNT_ACQUIRED, 1);
			break;
		case LEASE_REENTERED:
		case LEASE_REPLAYED:
			lease_count(db, LEASE_COUNT_REENTERED, 1);
			break;
		case LEASE_BUSY:
			lease_count(db, LEASE_COUNT_REFUSED, 1);
			break;
		case LEASE_RENEWED:
			lease_count(db, LEASE_COUNT_RENEWED, 1);
			break;
		case LEASE_RELEASED:
			lease_count(db, LEASE_COUNT_FORCED, answer->ended);
			if (answer->ended == 0)
				lease_count(db, LEASE_COUNT_RELEASED, 1);
			break;
		case LEASE_NOT_YOURS:
		case LEASE_NOT_HELD:
			if (call->request.op == LEASE_RENEW)
				lease_count(db, LEASE_COUNT_RENEWALS_LOST, 1);
			break;
		case LEASE_DELAYED:		/* these count when they are removed */
		case LEASE_WILL_END:
		case LEASE_DOWNGRADED:
		case LEASE_UPGRADE:
		case LEASE_MIXED:
		case LEASE_MIXED_KINDS:
		case LEASE_IS_PERMIT:
		case LEASE_IS_BOUND:
		case LEASE_TOO_MANY_HOLDS:
		case LEASE_NO_TOKENS:
			break;
	}
}

/* Make a call's changes durable, at once or soon, as its operation needs. */
void
lease_store_make_durable(lease_op op, XLogRecPtr lsn)
{
	DLOCK_CRASH_POINT("call: not flushed");
	if (lease_must_be_durable(op))
		lease_wal_flush(lsn);
	else
		lease_wal_flush_later(lsn);
	DLOCK_CRASH_POINT("call: not answered");
}

/* ----------------------------------------------------------------
 * Under the lock of the bucket
 * ----------------------------------------------------------------
 */

/*
 * Let the core decide on the rows gathered from a bucket, which is locked
 * exclusively.
 */
lease_result
lease_store_decide(LeaseCall *call, Buffer bucket, LeaseAnswer *answer)
{
	LeasePageSpecial *special = lease_page_special(BufferGetPage(bucket));
	lease_result result;
	size_t		mine;

	memset(answer, 0, sizeof(*answer));
	call->request.next_token =
		lease_next_token(special->mark, pg_atomic_read_u64(&call->db->floor));
	mine = lease_find(&call->request, call->holders, call->count,
					  call->now_us);
	if (mine < call->count)
	{
		answer->held_mode = call->holders[mine].mode;
		answer->held_kind = call->holders[mine].kind;
		answer->role = call->places[mine].role;
	}
	result = lease_apply(&call->request, call->holders, call->count,
						 call->now_us);
	answer->outcome = result.outcome;
	answer->token = result.token;
	answer->gone = mine < call->count &&
		lease_is_removed(call->holders[mine].change);
	answer->ended = call->request.op == LEASE_EVICT ? result.changed : 0;
	answer->retry_us = result.retry_us;

	/* a session may end and be unable to wake the waiters */
	for (size_t i = 0; i < call->count; i++)
		if (call->holders[i].life == LEASE_BOUND)
			answer->retry_us = Min(answer->retry_us,
								   call->now_us + LEASE_LOOK_INTERVAL_US);
	/* a repetition is answered when what it repeats is durable */
	if (result.outcome == LEASE_REPLAYED || result.outcome == LEASE_WILL_END)
		call->lsn = Max(call->lsn, call->places[mine].lsn);
	return result;
}

/*
 * Tell the bucket's summary of what was written.  It may be made anew, for which all
 * of the bucket's rows are read: that may fail.
 */
static void
tell_summary(LeaseCall *call, Buffer bucket, const lease_result *result)
{
	if (result->changed == 0)
		return;
	for (size_t i = 0; i < result->count; i++)
		if (call->holders[i].token == result->token &&
			!lease_is_removed(call->holders[i].change) &&
			call->holders[i].life != LEASE_PINNED)
			lease_trie_note(call->rel, bucket, call->holders[i].deadline_us,
							call->request.owner);
}

/*
 * Write what the core decided, and tell the bucket's summary.  False when there
 * is no room: see lease_rows_store().
 */
bool
lease_store_write(LeaseCall *call, Buffer bucket, const lease_result *result)
{
	if (result->changed > 0 && !lease_rows_store(call, bucket, result))
		return false;
	tell_summary(call, bucket, result);
	return true;
}

/*
 * When to look at the waiter behind the head, which has been answered: 0, at
 * once, unless the head now keeps everybody else out until its deadline.
 */
static int64
due_after(const LeaseCall *turn, LeaseQueue *queue, const LeaseAnswer *answer)
{
	LeaseWaiter *next = lease_queue_second(queue);
	int64		end_us;

	if (next == NULL)
		return PG_INT64_MAX;
	if (lease_leaves_room(&turn->request, answer->outcome, (lease_bytes) {
			next->owner, next->owner_length
		}))
		return 0;
	end_us = lease_end_us(&turn->holders[turn->count], turn->request.delay_us);
	return end_us < PG_INT64_MAX ? end_us :
		turn->now_us + LEASE_LOOK_INTERVAL_US;
}

/*
 * Answer the waiters of the call's name that can be answered: the head, and
 * those behind it that can be granted together with it.  The bucket is locked
 * exclusively.  "only_if_due": do nothing unless the queue is due.
 *
 * Where the name has overflow pages, its rows may be many, and the partition is
 * not locked while they are gathered.  No waiter joins meanwhile, and no guard
 * is added, as both need the bucket.  But the head may leave, and guards may
 * end: so both are looked at again after.
 *
 * False if room is missing for the head's row: the head is awake then, and
 * makes the room itself.  A caller that wants the name unlocks all other
 * buckets, calls lease_rows_make_room() and starts over.  A caller that has
 * ended a hold does no more: making room may fail, on a full disk, and that is
 * not its concern.
 */
bool
lease_store_serve(LeaseCall *call, Buffer bucket, bool only_if_due)
{
	Oid			database = call->db->database;
	bool		many = lease_trie_has_chain(bucket, call->hash);
	int			served = 0;

	for (bool first = true;; first = false)
	{
		LeaseQueue *queue = lease_queue_lock(database, call->hash, call->name,
											 LW_EXCLUSIVE);
		LeaseCall	turn;
		LeaseWaiter *head;
		LeaseWaiter waiter;
		LeaseAnswer answer;
		lease_result result;
		int64		due_us;
		Latch	   *latch;

		if (queue == NULL ||
			(first && only_if_due &&
			 queue->due_us > lease_clock_now(call->db)))
			break;
		if (first && !only_if_due)
			lease_queue_wake_watchers(queue);
		head = lease_queue_head(queue);
		if (head == NULL)
		{
			queue->due_us = PG_INT64_MAX;
			break;
		}

		/* a copy: once it is answered, or leaves, the place may be another's */
		waiter = *head;
		lease_rows_init_waiter(&turn, call, &waiter);
		lease_rows_seek_guarded(&turn, bucket, queue);
		if (many)
			lease_queue_unlock(database, call->hash);
		lease_rows_gather(&turn, bucket);
		if (many)
		{
			queue = lease_queue_lock(database, call->hash, call->name,
									 LW_EXCLUSIVE);
			head = queue == NULL ? NULL : lease_queue_head(queue);
		}
		if (head == NULL || head->serial != waiter.serial)
		{
			lease_queue_unlock(database, call->hash);
			lease_rows_end_waiter(&turn, call);
			continue;
		}
		lease_rows_gather_guards(&turn, queue);
		result = lease_store_decide(&turn, bucket, &answer);
		if (answer.outcome == LEASE_BUSY)
		{
			lease_queue_set_due(queue, answer.retry_us,
								turn.now_us + LEASE_LOOK_INTERVAL_US);
			lease_rows_end_waiter(&turn, call);
			break;
		}
		if (result.changed > 0 && !lease_rows_store(&turn, bucket, &result))
		{
			lease_queue_set_due(queue, 0, turn.now_us);
			lease_queue_unlock(database, call->hash);
			call->missing_room = turn.missing_room;
			lease_rows_end_waiter(&turn, call);
			return false;
		}

		DLOCK_CRASH_POINT("queue: granted, not answered");

		/*
		 * At once, and before the summary: after an error in between it would be
		 * granted again.
		 */
		due_us = due_after(&turn, queue, &answer);
		served++;
		latch = lease_queue_answer(queue, head, &answer, turn.lsn, due_us,
								   due_us == 0 && served < SERVE_MAX ? 0 :
								   turn.now_us + LEASE_LOOK_INTERVAL_US);
		lease_queue_unlock(database, call->hash);
		if (latch != NULL)
			SetLatch(latch);
		lease_store_count(&turn, &answer);
		tell_summary(&turn, bucket, &result);
		lease_rows_end_waiter(&turn, call);
		if (due_us > 0 || served == SERVE_MAX)
			return true;
	}
	lease_queue_unlock(database, call->hash);
	return true;
}

/*
 * Serve the queue of the call's name, whose bucket is not locked.  With
 * "make_room", makes the room that is missing, else leaves that to the head.
 */
void
lease_store_serve_queue(LeaseCall *call, bool make_room)
{
	for (;;)
	{
		Buffer		bucket = lease_trie_lock(call->rel, call->hash,
											 BUFFER_LOCK_EXCLUSIVE);

		if (!lease_queue_is_used(call->db->database, call->hash) ||
			lease_store_serve(call, bucket, false) || !make_room)
		{
			UnlockReleaseBuffer(bucket);
			return;
		}
		lease_rows_make_room(call, bucket);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Raise an error unless a call still uses the table that it has begun to wait in:
 * "hash" is what a name had there.
 */
void
lease_store_check_table(const LeaseCall *call, uint32 hash)
{
	if (call->hash != hash)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the lock table was replaced while waiting for a lease")));
}

/* Serve the queue of a name that has a waiter, if its table is still there. */
void
lease_store_serve_name(lease_bytes name, uint32 hash)
{
	lease_request request = {.op = LEASE_REAP};
	LeaseCall	call;

	lease_store_begin(&call, name, &request);
	lease_store_check_table(&call, hash);
	HOLD_CANCEL_INTERRUPTS();	/* it may be granted what it waits for */
	lease_store_serve_queue(&call, true);
	lease_store_end(&call);
	RESUME_CANCEL_INTERRUPTS();
}

/*
 * Gather the rows of the call's name, whose bucket is locked.  False if the
 * catalogs must be asked: the caller unlocks all that it has locked, calls
 * lease_rows_resolve_role() and starts over.
 */
bool
lease_store_gather(LeaseCall *call, Buffer bucket)
{
	Oid			database = call->db->database;
	LeaseQueue *queue;

	call->pokes = lease_queue_pokes(database, call->hash);
	call->request.behind = false;
	if (lease_queue_is_used(database, call->hash) &&
		lease_trie_has_chain(bucket, call->hash))
	{
		queue = lease_queue_lock(database, call->hash, call->name, LW_SHARED);
		lease_rows_seek_guarded(call, bucket, queue);
		lease_queue_unlock(database, call->hash);
	}
	else
		lease_rows_seek_guarded(call, bucket, NULL);
	lease_rows_gather(call, bucket);
	if (lease_queue_is_used(database, call->hash))
	{
		queue = lease_queue_lock(database, call->hash, call->name, LW_SHARED);
		call->request.behind = queue != NULL && lease_queue_head(queue) != NULL;
		lease_rows_gather_guards(call, queue);
		lease_queue_unlock(database, call->hash);
	}
	return !OidIsValid(call->unknown_role);
}

/* ----------------------------------------------------------------
 * Reading
 * ----------------------------------------------------------------
 */

typedef struct ReadContext
{
	lease_bytes name;
	uint32		hash;
	List	   *entries;
} ReadContext;

static void
copy_named(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
		   void *context)
{
	ReadContext *read = context;
	LeaseEntry *copy;

	if (!lease_same(lease_entry_name(entry), read->name))
		return;
	copy = palloc(lease_entry_size(entry));
	memcpy(copy, entry, lease_entry_size(entry));
	read->entries = lappend(read->entries, copy);
}

/* Show the core copies of rows and guards. */
static void
make_view(LeaseView *view, List *entries, List *guards)
{
	size_t		room = list_length(entries) + list_length(guards);
	LeaseDatabase *db = lease_state_find();
	ListCell   *cell;

	view->count = 0;
	if (room == 0)
		return;
	view->holders = palloc(room * sizeof(lease_holder));
	view->entries = palloc0(room * sizeof(LeaseEntry *));
	view->guards = palloc0(room * sizeof(LeaseGuard *));
	foreach(cell, entries)
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

/*
 * Look at a name: its rows, over or not, and its guards.  Works on a standby, which
 * knows of no guards.
 */
void
lease_store_read(lease_bytes name, LeaseView *view)
{
	Relation	rel = lease_relation_open(AccessShareLock);
	ReadContext read = {.name = name, .entries = NIL};
	List	   *guards = NIL;

	view->now_us = 0;
	if (lease_activate_was_done(rel))
	{
		Buffer		bucket;

		read.hash = lease_trie_hash(rel, name);
		bucket = lease_trie_lock(rel, read.hash, BUFFER_LOCK_SHARE);
		lease_trie_visit(rel, bucket, &read.hash, copy_named, &read);
		view->now_us = lease_clock_read(rel);
		if (lease_queue_is_used(MyDatabaseId, read.hash))
			guards = lease_queue_copy_guards(MyDatabaseId, read.hash, name);
		UnlockReleaseBuffer(bucket);
	}
	relation_close(rel, AccessShareLock);
	make_view(view, read.entries, guards);
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
lease_store_count_held(void)
{
	Relation	rel = lease_relation_open(AccessShareLock);
	LeaseDatabase *db = lease_state_find();
	bool		kept = db != NULL && db->file == compat_relation_file(rel);
	uint64		cursor = 0;
	uint64		count = 0;

	if (!lease_activate_was_done(rel))
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
