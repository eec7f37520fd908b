/*
 * lease_walk.c
 *	  Walks over the buckets: all leases of an owner, and all leases that are
 *	  over.
 *
 * A walk goes over the blocks in their order and reads those buckets of which
 * the summaries say that they may matter (lease_summary.c).  A split moves
 * entries towards the end, so a walk meets every lease that existed at its
 * start.
 *
 * One bucket is locked at a time, exclusively.  The queues of the names whose
 * holds have ended are set due before it is unlocked, and served after.  If a
 * walk is interrupted, by a crash too, the rest stays as it was, and the next
 * walk meets it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "call/lease_call.h"
#include "lease_crash.h"
#include "miscadmin.h"

/* What a walk does to the rows it meets. */
typedef struct WalkContext
{
	LeaseCall  *call;
	uint64		owner;			/* the hash of its owner */
	int64		target_us;		/* LEASE_RENEW: the new deadline */
	List	   *unserved;		/* names whose queues are to be served */
	uint64		affected;
} WalkContext;

/*
 * Gather the rows that the walk's request changes: of its owner, or, to reap, those
 * that are over.
 */
static void
gather_walked(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
			  void *context)
{
	WalkContext *walk = context;
	LeaseCall  *call = walk->call;
	lease_holder *holder;

	if (call->request.op != LEASE_REAP &&
		!lease_same(lease_entry_owner(entry), call->request.owner))
		return;

	/* A split may bring a row that we have renewed before us again. */
	if (call->request.op == LEASE_RENEW &&
		entry->deadline_us == walk->target_us)
		return;

	holder = lease_rows_add(call, buffer, offset, entry);
	if (lease_apply(&call->request, holder, 1, call->now_us).changed == 0)
		call->count--;
}

/* Pass over an overflow page without rows of the walk's owner. */
static bool
pass_page(Buffer buffer, void *context)
{
	WalkContext *walk = context;
	LeaseCall  *call = walk->call;

	return call->request.op != LEASE_REAP &&
		BufferGetBlockNumber(buffer) != call->bucket_block &&
		!lease_crowd_may_own(call->rel, buffer, walk->owner);
}

/*
 * Before the rows of a bucket are written, remember the names with waiters.  Their
 * queues are set due, in case we fail before we serve them.
 */
static void
note_walked(WalkContext *walk, Buffer bucket)
{
	LeaseCall  *call = walk->call;

	for (size_t i = 0; i < call->count; i++)
	{
		LeaseEntry *entry = lease_rows_entry(call, bucket, i);

		if (!lease_queue_is_used(call->db->database, entry->hash))
		{
			pfree(entry);
			continue;
		}
		walk->unserved = lappend(walk->unserved, entry);
		lease_queue_make_due(call->db->database, entry->hash,
							 lease_entry_name(entry));
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
		lease_call_serve_queue(walk->call, false);
	}
	list_free(walk->unserved);
	walk->unserved = NIL;
}

/*
 * Apply the walk's request to one bucket; false: try it again.  What it has changed
 * is counted at once, as it may be interrupted; reaped rows are counted where they
 * are written.
 */
static bool
try_apply_block(WalkContext *walk, BlockNumber block)
{
	LeaseCall  *call = walk->call;
	Buffer		bucket = lease_trie_lock_block(call->rel, block);

	if (!BufferIsValid(bucket))
		return true;
	lease_rows_start(call, bucket);
	if (call->request.op == LEASE_RENEW)
		call->request.ttl_us = Max(walk->target_us - call->now_us, 1);
	lease_trie_visit_pages(call->rel, bucket, NULL, pass_page, gather_walked, walk);
	if (OidIsValid(call->unknown_role))
	{
		UnlockReleaseBuffer(bucket);
		lease_rows_resolve_role(call);
		return false;
	}
	if (call->count > 0)
	{
		note_walked(walk, bucket);
		lease_rows_update(call, bucket);
	}

	/* pages that a crash left empty, or a row that moved */
	lease_trie_free_overflow(call->rel, bucket);
	/* to read the rows of a chain takes long, and would find what it found before */
	if (call->count > 0 || call->request.op == LEASE_REAP ||
		lease_page_special(BufferGetPage(bucket))->next == InvalidBlockNumber)
		lease_trie_summarize(call->rel, bucket);
	walk->affected += call->count;
	if (call->request.op != LEASE_REAP)
		lease_count(call->db, call->request.op == LEASE_RENEW ?
					LEASE_COUNT_RENEWED : LEASE_COUNT_RELEASED, call->count);
	UnlockReleaseBuffer(bucket);
	serve_walked(walk);
	return true;
}

/*
 * Renew or drop every lease of an owner; returns how many.
 *
 * Reads only the buckets whose summary says that the owner may be there.  Meets
 * every lease that existed at the call, wherever splits move it meanwhile,
 * since they move it towards the end.
 */
uint64
lease_walk_owner(const lease_request *request)
{
	LeaseCall	call;
	WalkContext walk;
	uint64		owner = lease_summary_owner_hash(request->owner);
	BlockNumber block = 0;
	BlockNumber blocks;

	lease_call_begin(&call, (lease_bytes) {NULL, 0}, request);
	walk = (WalkContext) {
		.call = &call,
		.owner = owner,
		.target_us = lease_clock_now(call.db) + request->ttl_us,
	};
	while (block < (blocks = lease_trie_blocks(call.rel)))
	{
		for (; block < blocks; block++)
		{
			CHECK_FOR_INTERRUPTS();
			if (!lease_summary_may_own(&call.db->summaries, block, owner))
				continue;
			while (!try_apply_block(&walk, block))
				CHECK_FOR_INTERRUPTS();
			DLOCK_CRASH_POINT("walk: bucket done");
		}
	}
	lease_call_end(&call);
	lease_call_make_durable(request->op, call.lsn);
	return walk.affected;
}

/*
 * Remove leases that are over from at most max_pages buckets, from block *next
 * on; with "all", throughout a round, also look where the summaries say that
 * nothing can be over yet.  Returns whether the end of the table was reached;
 * else *next says where to go on.  The caller holds RowExclusiveLock on the
 * table, activated.
 */
bool
lease_walk_reap(Relation rel, LeaseDatabase *db, BlockNumber *next,
				int max_pages, bool all)
{
	LeaseCall	call;
	lease_request request = {.op = LEASE_REAP};
	int64		now_us = all ? PG_INT64_MAX - 1 : lease_clock_now(db);
	BlockNumber blocks;

	if (*next == 0)
		lease_summary_begin_round(&db->summaries, lease_trie_blocks(rel),
								  now_us);
	blocks = lease_trie_blocks(rel);
	lease_rows_init(&call, rel, db, &request);
	for (int pages = 0; pages < max_pages; pages++)
	{
		WalkContext walk = {.call = &call};

		*next = lease_summary_next_due(&db->summaries, *next, blocks, now_us);
		if (*next >= blocks)
			break;
		db->reaped_block = *next;
		(void) try_apply_block(&walk, *next);
		db->reaped_block = 0;
		(*next)++;
		lease_rows_report_expired(&call);
		CHECK_FOR_INTERRUPTS();
	}
	lease_rows_end(&call);
	lease_wal_flush_later(call.lsn);
	return *next >= blocks;
}
