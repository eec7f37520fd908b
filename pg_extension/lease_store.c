/*
 * lease_store.c
 *	  Apply requests to the lock table.
 *
 * A request on one name: lock the name's bucket, gather the name's holders,
 * read the clock, let the core decide, write the changed rows back, log, serve
 * those who wait for the name, unlock, flush.  Everything up to the unlocking
 * happens under the bucket's exclusive content lock, which is what makes
 * concurrent requests on a name take turns.  Nothing waits while it is held but
 * for the partition of the name's queue (lease_queue.c) and for pages further
 * down the lock order (lease_trie.c).
 *
 * Whoever makes or finds a name free grants it to the head of the queue, in the
 * waiter's name: its role, its owner, its time to live running from then.  The
 * waiter makes the grant durable for itself when it wakes.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "commands/extension.h"
#include "lease_am.h"
#include "lease_crash.h"
#include "lease_queue.h"
#include "lease_rows.h"
#include "lease_session.h"
#include "lease_store.h"
#include "lease_summary.h"
#include "lease_trie.h"
#include "lease_wait.h"
#include "lease_wal.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

/* How old the clock's mark may be before a call writes a new one. */
#define MARK_AGE_US		USECS_PER_SEC

/* The lock table's OID, until a relcache invalidation. */
static Oid	table_oid = InvalidOid;

/* ----------------------------------------------------------------
 * The lock table as a relation
 * ----------------------------------------------------------------
 */

static void
forget_table_oid(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == table_oid)
		table_oid = InvalidOid;
}

/*
 * Open the lock table and check that it is what the extension created.
 *
 * A foreign access method or changed columns would have us write over pages
 * that are not ours.  A table that this transaction has moved would lose what
 * is written to it when the transaction rolls back.
 */
Relation
lease_store_open(LOCKMODE mode)
{
	static bool callback_registered = false;
	Relation	rel = NULL;

	lease_state_check_loaded();
	if (!callback_registered)
	{
		CacheRegisterRelcacheCallback(forget_table_oid, (Datum) 0);
		callback_registered = true;
	}

	/* A remembered OID may turn out to be of a table that was dropped. */
	for (int attempt = 0; rel == NULL; attempt++)
	{
		if (!OidIsValid(table_oid))
		{
			Oid			namespace = get_namespace_oid("dlock", true);

			if (OidIsValid(namespace))
				table_oid = get_relname_relid("lease_table", namespace);
		}
		if (OidIsValid(table_oid))
			rel = try_relation_open(table_oid, mode);
		if (rel == NULL)
			table_oid = InvalidOid;
		if (rel == NULL && attempt > 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("table \"dlock.lease_table\" does not exist"),
					 OidIsValid(get_extension_oid("dlock", true)) ?
					 errhint("If it was renamed, rename it back; else drop the extension and create it again.") :
					 errhint("Create the extension: CREATE EXTENSION dlock.")));
	}

	lease_am_check_intact(rel);
	if (mode > AccessShareLock && compat_relation_file_is_new(rel))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change leases in the transaction that created or moved the lock table"),
				 errhint("Commit first.")));
	return rel;
}

/*
 * Open the table to give back what a session or transaction that ends has taken,
 * or return NULL if it is not there, or in use so that we would have to wait,
 * or new in this transaction.
 */
Relation
lease_store_open_at_exit(void)
{
	Oid			namespace = get_namespace_oid("dlock", true);
	Oid			relid = OidIsValid(namespace) ?
		get_relname_relid("lease_table", namespace) : InvalidOid;
	Relation	rel;

	if (!OidIsValid(relid) ||
		!ConditionalLockRelationOid(relid, RowExclusiveLock))
		return NULL;
	rel = try_relation_open(relid, NoLock);
	if (rel == NULL || compat_relation_file_is_new(rel))
	{
		if (rel != NULL)
			relation_close(rel, NoLock);
		UnlockRelationOid(relid, RowExclusiveLock);
		return NULL;
	}
	lease_am_check_intact(rel);
	return rel;
}

/* Say whether the table has been used, and by this database. */
bool
lease_store_is_readable(Relation rel)
{
	LeaseDatabase *db = lease_state_database();
	LeaseMeta	meta;

	if (db->file == compat_relation_file(rel))
		return true;
	if (!lease_trie_exists(rel))
		return false;
	lease_trie_read_meta(rel, &meta);
	return meta.database == MyDatabaseId;
}

/* ----------------------------------------------------------------
 * Calls
 * ----------------------------------------------------------------
 */

/* Begin a call on a table that is open: activate it. */
static void
begin_open_call(LeaseCall *call, Relation rel, const lease_request *request)
{
	LeaseDatabase *db = lease_state_activate(rel);

	lease_clock_mark(rel, db, MARK_AGE_US);
	lease_rows_init(call, rel, db, request);
}

/* Open and activate the table for a call by the current role. */
static void
begin_call(LeaseCall *call, const lease_request *request)
{
	begin_open_call(call, lease_store_open(RowExclusiveLock), request);
}

/* The same for a request on one name. */
void
lease_store_begin(LeaseCall *call, lease_bytes name,
				  const lease_request *request)
{
	begin_call(call, request);
	call->name = name;
	call->hash = lease_trie_hash(call->rel, name);
}

/* Begin a call for one more name, on the table that another has opened. */
void
lease_store_begin_more(LeaseCall *call, lease_bytes name,
					   const LeaseCall *first)
{
	lease_rows_init(call, first->rel, first->db, &first->request);
	call->name = name;
	call->hash = lease_trie_hash(call->rel, name);
}

/* Close the table, and log what was found dead. */
void
lease_store_end(LeaseCall *call)
{
	relation_close(call->rel, RowExclusiveLock);
	lease_rows_report_expired(call);
}

/* Count what a request came to. */
void
lease_store_count(LeaseDatabase *db, const LeaseAnswer *answer)
{
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
		case LEASE_UPGRADE:
		case LEASE_MIXED:
		case LEASE_MIXED_KINDS:
		case LEASE_TOO_MANY_HOLDS:
		case LEASE_NO_TOKENS:
			break;
	}
}

/* Say whether an answer must be durable before it is given (rule 7). */
static bool
must_be_durable(lease_op op)
{
	return op == LEASE_ACQUIRE || op == LEASE_RENEW || op == LEASE_EVICT;
}

static void
make_durable(lease_op op, XLogRecPtr lsn)
{
	DLOCK_CRASH_POINT("call: not flushed");
	if (must_be_durable(op))
		lease_wal_flush(lsn);
	else
		lease_wal_flush_later(lsn);
	DLOCK_CRASH_POINT("call: not answered");
}

/* ----------------------------------------------------------------
 * Requests on one name
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
		Max(special->mark, pg_atomic_read_u64(&call->db->floor)) + 1;
	mine = lease_find(&call->request, call->holders, call->count,
					  call->now_us);
	if (mine < call->count)
	{
		answer->held_mode = call->holders[mine].mode;
		answer->held_kind = call->holders[mine].kind;
	}
	result = lease_apply(&call->request, call->holders, call->count,
						 call->now_us);
	answer->outcome = result.outcome;
	answer->token = result.token;
	answer->gone = mine < call->count &&
		lease_rows_is_removed(&call->holders[mine]);
	answer->retry_us = result.retry_us;
	for (size_t i = 0; i < call->count; i++)
	{
		if (call->holders[i].change == LEASE_EVICTED)
			answer->ended++;

		/* its session may end without being able to tell anybody */
		if (call->holders[i].life == LEASE_BOUND)
			answer->retry_us = Min(answer->retry_us,
								   call->now_us + LEASE_LOOK_INTERVAL_US);
	}
	if (result.outcome == LEASE_REPLAYED)
		call->lsn = Max(call->lsn, call->places[mine].lsn);
	return result;
}

/*
 * Write what the core decided, and tell the bucket's summary.  False when there
 * is no room: see lease_rows_store().
 */
bool
lease_store_write(LeaseCall *call, Buffer bucket, const lease_result *result)
{
	if (result->changed == 0)
		return true;
	if (!lease_rows_store(call, bucket, result))
		return false;
	for (size_t i = 0; i < result->count; i++)
		if (call->holders[i].token == result->token &&
			!lease_rows_is_removed(&call->holders[i]) &&
			call->holders[i].life != LEASE_PINNED)
			lease_trie_note(call->rel, bucket, call->holders[i].deadline_us,
							call->request.owner);
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

	if (next == NULL)
		return PG_INT64_MAX;
	if (answer->outcome != LEASE_GRANTED ||
		turn->request.mode != LEASE_EXCLUSIVE ||
		lease_same(turn->request.owner, (lease_bytes) {
			next->owner, next->owner_length
		}))
		return 0;
	return turn->now_us + (turn->request.kind == LEASE_PLAIN ?
						   turn->request.ttl_us + turn->request.delay_us :
						   LEASE_LOOK_INTERVAL_US);
}

/*
 * Answer the waiters of the call's name that can be answered: the head, and
 * those behind it that go with it.  The bucket is locked exclusively.  "only if
 * due" looks whether that is possible at all.
 *
 * False if room is missing for the head's row: it is awake then, and makes the
 * room for itself.  A caller that wants the name unlocks all other buckets,
 * calls lease_rows_make_room() and starts over.  One that has ended a hold
 * leaves it at that: to make room may fail, on a full disk, and that is not its
 * concern.
 */
bool
lease_store_serve(LeaseCall *call, Buffer bucket, bool only_if_due)
{
	Oid			database = call->db->database;

	for (bool first = true;; first = false)
	{
		LeaseQueue *queue = lease_queue_lock(database, call->hash, call->name,
											 LW_EXCLUSIVE);
		LeaseCall	turn;
		LeaseWaiter *head;
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

		lease_rows_init_waiter(&turn, call, head);
		lease_rows_gather(&turn, bucket, queue);
		result = lease_store_decide(&turn, bucket, &answer);
		if (answer.outcome == LEASE_BUSY)
		{
			lease_queue_set_due(queue, answer.retry_us,
								turn.now_us + LEASE_LOOK_INTERVAL_US);
			break;
		}
		if (!lease_store_write(&turn, bucket, &result))
		{
			lease_queue_set_due(queue, 0, turn.now_us);
			lease_queue_unlock(database, call->hash);
			call->missing_room = turn.missing_room;
			call->expired = list_concat(call->expired, turn.expired);
			call->nexpired += turn.nexpired;
			return false;
		}

		DLOCK_CRASH_POINT("queue: granted, not answered");

		/* at once: after an error in between it would be granted again */
		due_us = due_after(&turn, queue, &answer);
		latch = lease_queue_answer(queue, head, &answer, turn.lsn, due_us,
								   due_us == 0 ? 0 :
								   turn.now_us + LEASE_LOOK_INTERVAL_US);
		lease_queue_unlock(database, call->hash);
		if (latch != NULL)
			SetLatch(latch);
		lease_store_count(call->db, &answer);
		call->expired = list_concat(call->expired, turn.expired);
		call->nexpired += turn.nexpired;
		if (due_us > 0)
			return true;
	}
	lease_queue_unlock(database, call->hash);
	return true;
}

/*
 * Serve the queue of the call's name, whose bucket is not locked.  With "make
 * room" whatever is missing is made, else it is left to the head.
 */
static void
serve_name(LeaseCall *call, bool make_room)
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

/* Serve the queue of a name that has a waiter, if its table is still there. */
void
lease_store_serve_name(lease_bytes name, uint32 hash)
{
	lease_request request = {.op = LEASE_REAP};
	LeaseCall	call;

	lease_store_begin(&call, name, &request);
	if (call.hash != hash)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the lock table was replaced while waiting for a lease")));
	serve_name(&call, true);
	lease_store_end(&call);
}

/*
 * Gather the rows of the call's name, whose bucket is locked.  False if the
 * catalogs had to be asked: then the bucket is unlocked, and the caller starts
 * over.
 */
bool
lease_store_gather(LeaseCall *call, Buffer bucket)
{
	Oid			database = call->db->database;

	if (lease_queue_is_used(database, call->hash))
	{
		LeaseQueue *queue = lease_queue_lock(database, call->hash, call->name,
											 LW_SHARED);

		call->request.behind = queue != NULL && lease_queue_head(queue) != NULL;
		lease_rows_gather(call, bucket, queue);
		lease_queue_unlock(database, call->hash);
	}
	else
	{
		call->request.behind = false;
		lease_rows_gather(call, bucket, NULL);
	}
	if (!OidIsValid(call->unknown_role))
		return true;
	UnlockReleaseBuffer(bucket);
	lease_rows_resolve_role(call);
	return false;
}

/* What an attempt at a request came to. */
typedef enum Attempt
{
	ATTEMPT_AGAIN,				/* start over */
	ATTEMPT_ANSWERED,
	ATTEMPT_JOINED				/* the waiter stands in line */
} Attempt;

/* The role of a row that a request stands for without being its role. */
static Oid
find_acts_for(LeaseCall *call)
{
	for (int i = 0; i < call->nverdicts; i++)
		if (call->verdicts[i].acts_for)
			return call->verdicts[i].role;
	return InvalidOid;
}

/*
 * One attempt at a request on one name.  An acquire that may wait and finds the
 * name taken joins the queue.
 */
static Attempt
try_apply(LeaseCall *call, LeaseAnswer *answer, bool may_wait)
{
	Oid			database = call->db->database;
	bool		acquire = call->request.op == LEASE_ACQUIRE;
	Buffer		bucket = lease_trie_lock(call->rel, call->hash,
										 BUFFER_LOCK_EXCLUSIVE);
	bool		used = lease_queue_is_used(database, call->hash);
	bool		serve = false;
	Attempt		attempt = ATTEMPT_ANSWERED;
	lease_result result;

	if (used && acquire && !lease_store_serve(call, bucket, true))
	{
		lease_rows_make_room(call, bucket);
		return ATTEMPT_AGAIN;
	}
	if (!lease_store_gather(call, bucket))
		return ATTEMPT_AGAIN;
	result = lease_store_decide(call, bucket, answer);

	/* If we fail between here and serving, the queue is due. */
	if (used && !acquire && result.changed > 0)
	{
		lease_queue_make_due(database, call->hash, call->name);
		serve = true;
	}
	if (!lease_store_write(call, bucket, &result))
	{
		lease_rows_make_room(call, bucket);
		return ATTEMPT_AGAIN;
	}
	if (may_wait && answer->outcome == LEASE_BUSY)
	{
		LeaseWaiter *waiter = lease_wait_begin(call, LEASE_WAIT_IN_LINE);

		waiter->acts_for = find_acts_for(call);
		DLOCK_CRASH_POINT("queue: about to join");

		/*
		 * Those who stood before us may have left since we looked, and the name
		 * may be free: then we are the head, and have to look again at once.
		 */
		lease_queue_join(waiter, database, call->hash, call->name,
						 call->request.behind ? 0 : answer->retry_us);
		attempt = ATTEMPT_JOINED;
	}
	if (serve)
		(void) lease_store_serve(call, bucket, false);
	UnlockReleaseBuffer(bucket);
	return attempt;
}

/* Attempt until there is an answer, or we have joined the queue: true. */
static bool
apply(LeaseCall *call, LeaseAnswer *answer, bool may_wait)
{
	Attempt		attempt;

	while ((attempt = try_apply(call, answer, may_wait)) == ATTEMPT_AGAIN)
	{
		lease_rows_report_expired(call);
		CHECK_FOR_INTERRUPTS();
	}
	return attempt == ATTEMPT_JOINED;
}

/*
 * Apply a request to the holders of one name: what came of it.  The request's
 * strings and times have been checked; its next_token is filled in here.
 *
 * An acquire waits for wait_us microseconds if need be, without limit if that
 * is negative.
 */
LeaseAnswer
lease_store_apply(lease_bytes name, const lease_request *request,
				  int64 wait_us)
{
	LeaseCall	call;
	LeaseAnswer answer;
	bool		joined;
	XLogRecPtr	lsn;

	if (wait_us != 0)
		lease_session_watch();
	lease_store_begin(&call, name, request);
	joined = apply(&call, &answer, wait_us != 0);
	lsn = call.lsn;
	relation_close(call.rel, RowExclusiveLock);

	/*
	 * Nothing that may fail comes between joining and waiting, which gives back
	 * what was granted meanwhile.  Whoever serves a waiter counts its grant.
	 */
	if (joined)
		lease_wait_in_line(&call, wait_us, &answer, &lsn);
	else
	{
		lease_rows_report_expired(&call);
		lease_store_count(call.db, &answer);
	}
	make_durable(request->op, lsn);
	return answer;
}

/*
 * Give back what a waiter was granted but cannot use, or what a session or
 * transaction that ends has taken.  "role" is whose lease it is.  With "lost"
 * the lease is not released but expires at once, so that a lock delay applies.
 * The table is open; the answer need not be durable.
 */
void
lease_store_give_back(Relation rel, lease_bytes name, Oid role,
					  const lease_request *request, bool lost)
{
	LeaseCall	call;
	LeaseAnswer answer;

	begin_open_call(&call, rel, request);
	call.requester.role = role;
	call.unbind = lost;
	call.name = name;
	call.hash = lease_trie_hash(rel, name);
	(void) apply(&call, &answer, false);
	if (!lost)
		lease_store_count(call.db, &answer);
	lease_rows_report_expired(&call);
	lease_wal_flush_later(call.lsn);
}

/*
 * Pin a lease until the end of this transaction.  Returns whether the caller
 * holds it with this token; if not, *holder is a copy of the entry of a live
 * holder, or NULL.
 */
bool
lease_store_guard(lease_bytes name, lease_bytes owner, uint64 token,
				  LeaseEntry **holder)
{
	lease_request request = {
		.op = LEASE_RENEW, .owner = owner, .token = token
	};
	LeaseCall	call;
	Buffer		bucket;
	size_t		mine;
	LeaseGuard	guard = {.token = token};

	lease_store_begin(&call, name, &request);
	do
	{
		bucket = lease_trie_lock(call.rel, call.hash, BUFFER_LOCK_SHARE);
	} while (!lease_store_gather(&call, bucket));
	mine = lease_find(&call.request, call.holders, call.count, call.now_us);
	if (mine < call.count)
	{
		LeaseEntry *entry = lease_rows_entry(&call, bucket, mine);

		guard.role = entry->role;
		pfree(entry);
		guard.mode = call.holders[mine].mode;
		guard.version = call.holders[mine].version;
		guard.owner_length = (uint8) owner.length;
		memcpy(guard.owner, owner.data, owner.length);
		lease_queue_guard(call.db->database, call.hash, name, &guard);
	}
	else
	{
		*holder = NULL;
		for (size_t i = 0; i < call.count; i++)
			if (!lease_is_over(&call.holders[i], call.now_us) &&
				*holder == NULL)
				*holder = lease_rows_entry(&call, bucket, i);
	}
	UnlockReleaseBuffer(bucket);
	lease_store_end(&call);
	return mine < call.count;
}

/*
 * Wait until every hold on a name that is there now has ended: true; false if
 * wait_us runs out before.
 */
bool
lease_store_wait(lease_bytes name, int64 wait_us)
{
	lease_request request = {.op = LEASE_REAP};
	LeaseWaitTime time;
	uint64	   *tokens = NULL;
	int			ntokens = 0;
	bool		ended = false;

	lease_wait_start(&time, wait_us);
	for (bool first = true; !ended; first = false)
	{
		LeaseCall	call;
		LeaseWaiter *waiter;
		Buffer		bucket;
		int			left = 0;
		int64		next_us = PG_INT64_MAX;

		lease_store_begin(&call, name, &request);
		/* who need not wait needs no place to wait in */
		waiter = first || wait_us == 0 || lease_wait_is_over(&time) ? NULL :
			lease_wait_begin_watch(&call, LEASE_WAIT_WATCH, &time);
		bucket = lease_trie_lock(call.rel, call.hash, BUFFER_LOCK_SHARE);
		lease_rows_gather(&call, bucket, NULL);
		call.unknown_role = InvalidOid;
		if (first)
			tokens = palloc((call.count + 1) * sizeof(uint64));
		for (size_t i = 0; i < call.count; i++)
		{
			const lease_holder *h = &call.holders[i];
			bool		seen = first;

			if (lease_is_over(h, call.now_us))
				continue;
			for (int t = 0; t < ntokens && !first; t++)
				seen |= tokens[t] == h->token;
			if (!seen)
				continue;
			if (first)
				tokens[ntokens++] = h->token;
			left++;
			next_us = Min(next_us, h->deadline_us);
		}
		ended = left == 0;
		if (!ended && waiter != NULL)
			lease_queue_join(waiter, call.db->database, call.hash, name, 0);
		UnlockReleaseBuffer(bucket);
		lease_store_end(&call);
		if (!ended && waiter != NULL)
			lease_wait_watch(call.db, &time, next_us);
		lease_wait_finish();
		if (waiter == NULL && (!first || wait_us == 0))
			break;
	}
	lease_wait_stop(&time);
	return ended;
}

/* ----------------------------------------------------------------
 * Requests on all names of an owner, and reaping
 * ----------------------------------------------------------------
 */

/* What a walk does to the rows it meets. */
typedef struct WalkContext
{
	LeaseCall  *call;
	int64		target_us;		/* LEASE_RENEW: the new deadline */
	BlockNumber first_new_block;	/* where splits during the walk put rows */
	List	   *renewed;		/* tokens of session leases, as uint64 * */
	List	   *unserved;		/* names whose queues are to be served */
	uint64		affected;
} WalkContext;

/*
 * Say whether a walk has renewed an entry that is bound to a session, whose row
 * does not tell.  Only splits after the start can have moved it here.
 */
static bool
is_renewed(WalkContext *walk, Buffer buffer, const LeaseEntry *entry)
{
	ListCell   *cell;

	if (BufferGetBlockNumber(buffer) >= walk->first_new_block)
		foreach(cell, walk->renewed)
		{
			if (*(uint64 *) lfirst(cell) == entry->token)
				return true;
		}
	return false;
}

/* Gather the rows of the walk's owner that its request changes. */
static void
gather_owned(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
			 void *context)
{
	WalkContext *walk = context;
	LeaseCall  *call = walk->call;
	lease_holder *holder;

	if (!lease_same(lease_entry_owner(entry), call->request.owner))
		return;

	/* A split may bring a row that we have renewed under our eyes again. */
	if (call->request.op == LEASE_RENEW && entry->kind == LEASE_PLAIN &&
		entry->deadline_us == walk->target_us)
		return;
	if (call->request.op == LEASE_RENEW && entry->kind != LEASE_PLAIN &&
		is_renewed(walk, buffer, entry))
		return;

	holder = lease_rows_add(call, buffer, offset, entry);
	if (lease_apply(&call->request, holder, 1, walk->call->now_us).changed == 0)
		call->count--;
}

/* Gather the rows that are over. */
static void
gather_over(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
			void *context)
{
	WalkContext *walk = context;
	lease_holder *holder = lease_rows_add(walk->call, buffer, offset, entry);

	if (lease_apply(&walk->call->request, holder, 1,
					walk->call->now_us).changed == 0)
		walk->call->count--;
}

/*
 * Before the rows of a bucket are written, remember what is needed after: the
 * names that somebody waits for, and the session leases renewed.  The queues
 * are set due, should we fail before we serve them.
 */
static void
note_walked(WalkContext *walk, Buffer bucket)
{
	LeaseCall  *call = walk->call;

	for (size_t i = 0; i < call->count; i++)
	{
		LeaseEntry *entry = lease_rows_entry(call, bucket, i);
		bool		renewed = call->request.op == LEASE_RENEW &&
			entry->kind != LEASE_PLAIN;
		bool		awaited = lease_queue_is_used(call->db->database,
												  entry->hash);

		if (renewed)
			walk->renewed = lappend(walk->renewed, &entry->token);
		if (awaited)
		{
			walk->unserved = lappend(walk->unserved, entry);
			lease_queue_make_due(call->db->database, entry->hash,
								 lease_entry_name(entry));
		}
		if (!renewed && !awaited)
			pfree(entry);
	}
}

/* Serve the names whose holds a walk has ended or moved. */
static void
serve_walked(WalkContext *walk)
{
	ListCell   *cell;

	foreach(cell, walk->unserved)
	{
		LeaseEntry *entry = lfirst(cell);

		walk->call->name = lease_entry_name(entry);
		walk->call->hash = entry->hash;
		serve_name(walk->call, false);
	}
	walk->unserved = NIL;
}

/* What counts the rows that a walk changes: at once, as it may be interrupted. */
static LeaseCounter
counter_of_walk(lease_op op)
{
	return op == LEASE_RENEW ? LEASE_COUNT_RENEWED :
		op == LEASE_REAP ? LEASE_COUNT_REAPED : LEASE_COUNT_RELEASED;
}

/* Apply the walk's request to one bucket; false: try it again. */
static bool
try_apply_block(WalkContext *walk, BlockNumber block,
				LeaseEntryVisitor gather)
{
	LeaseCall  *call = walk->call;
	Buffer		bucket = lease_trie_lock_block(call->rel, block);

	if (!BufferIsValid(bucket))
		return true;
	lease_rows_start(call, bucket);
	if (call->request.op == LEASE_RENEW)
		call->request.ttl_us = Max(walk->target_us - call->now_us, 1);
	lease_trie_visit(call->rel, bucket, NULL, gather, walk);
	if (OidIsValid(call->unknown_role))
	{
		UnlockReleaseBuffer(bucket);
		lease_rows_resolve_role(call);
		return false;
	}
	if (call->count > 0)
	{
		note_walked(walk, bucket);
		lease_rows_write(call, bucket);
	}

	/* those that a crash has left empty, or a row that moved */
	lease_trie_free_overflow(call->rel, bucket);
	lease_trie_summarize(call->rel, bucket);
	walk->affected += call->count;
	lease_count(call->db, counter_of_walk(call->request.op), call->count);
	UnlockReleaseBuffer(bucket);
	serve_walked(walk);
	return true;
}

/*
 * Renew or drop every lease of an owner: how many.
 *
 * Reads only the buckets whose summary says that the owner may be there.  A
 * lease that was there at the call is met wherever splits move it meanwhile,
 * since they move it towards the end.
 */
uint64
lease_store_apply_all(const lease_request *request)
{
	LeaseCall	call;
	WalkContext walk;
	BlockNumber block = 0;
	BlockNumber blocks;

	begin_call(&call, request);
	walk = (WalkContext) {
		.call = &call,
		.target_us = lease_clock_now(call.db) + request->ttl_us,
		.first_new_block = lease_trie_blocks(call.rel),
	};
	while (block < (blocks = lease_trie_blocks(call.rel)))
	{
		for (; block < blocks; block++)
		{
			CHECK_FOR_INTERRUPTS();
			if (!lease_summary_may_own(call.rel, block, request->owner))
				continue;
			while (!try_apply_block(&walk, block, gather_owned))
				CHECK_FOR_INTERRUPTS();
			DLOCK_CRASH_POINT("walk: bucket done");
		}
	}
	lease_store_end(&call);
	make_durable(request->op, call.lsn);
	return walk.affected;
}

/*
 * Remove what is over from at most max_pages buckets, from block *next on.
 * Returns whether the end of the table was reached; else *next says where to
 * go on.  The caller holds RowExclusiveLock on the table, activated.
 */
bool
lease_store_reap(Relation rel, LeaseDatabase *db, BlockNumber *next,
				 int max_pages)
{
	LeaseCall	call;
	lease_request request = {.op = LEASE_REAP};
	BlockNumber blocks = lease_trie_blocks(rel);

	lease_rows_init(&call, rel, db, &request);
	for (int pages = 0; pages < max_pages; pages++)
	{
		WalkContext walk;

		*next = lease_summary_next_due(rel, *next, blocks,
									   lease_clock_now(db));
		if (*next >= blocks)
			break;
		walk = (WalkContext) {.call = &call};
		db->reaped_block = *next;
		(void) try_apply_block(&walk, *next, gather_over);
		db->reaped_block = 0;
		(*next)++;
		lease_rows_report_expired(&call);
		CHECK_FOR_INTERRUPTS();
	}
	lease_wal_flush_later(call.lsn);
	return *next >= blocks;
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

/*
 * The holders of a name, as a list of LeaseEntry, over or not, and the time to
 * judge them by.  "guarded", unless NULL, is set to whether the name is guarded.
 * Works on a standby.
 */
List *
lease_store_read(lease_bytes name, int64 *now_us, bool *guarded)
{
	Relation	rel = lease_store_open(AccessShareLock);
	ReadContext read = {.name = name, .entries = NIL};

	*now_us = 0;
	if (guarded != NULL)
		*guarded = false;
	if (lease_store_is_readable(rel))
	{
		Buffer		bucket;

		read.hash = lease_trie_hash(rel, name);
		bucket = lease_trie_lock(rel, read.hash, BUFFER_LOCK_SHARE);
		lease_trie_visit(rel, bucket, &read.hash, copy_named, &read);
		*now_us = lease_clock_read(rel);
		if (guarded != NULL && lease_queue_is_used(MyDatabaseId, read.hash))
			*guarded = lease_queue_guard_pids(MyDatabaseId, read.hash,
											  name) != NIL;
		UnlockReleaseBuffer(bucket);
	}
	relation_close(rel, AccessShareLock);
	return read.entries;
}
