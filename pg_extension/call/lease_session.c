/*
 * lease_session.c
 *	  End the leases of a session or transaction with it.
 *
 * What ends such a lease is one step in shared memory (lease_bond.c), which
 * cannot fail.  This file takes that step at the right moment, and then removes
 * the rows; other backends could do that too, only later.  For that a backend
 * remembers the leases it has taken.  They may be ended before, by it or by others,
 * who tell it nothing: so it looks for them now and then, that it need not remember
 * ever more.
 *
 * Session: at the backend's exit, and at DISCARD ALL, which poolers send
 * between clients.  The exit is the loss of a session, after which a lock delay
 * applies: its holder may still be writing.  DISCARD ALL is a release.
 *
 * Transaction: rows are removed just before commit, while the guard still keeps
 * others out; after an abort nothing can be written, and the rows stay until
 * another call meets them.  The lease ends, and then its guard, once the
 * outcome is visible.  Savepoints play no part: what is acquired or guarded
 * after one stays until the whole transaction ends.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "call/lease_call.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/*
 * The key of a lease taken, with zeros behind the strings.  A session may hold
 * a name several times, as several owners or roles.
 */
typedef struct BoundKey
{
	Oid			role;
	uint16		name_length;
	uint16		owner_length;
	char		name[LEASE_STRING_MAX];
	char		owner[LEASE_STRING_MAX];
} BoundKey;

/* A lease that this backend has taken; it may be gone since. */
typedef struct BoundLease
{
	BoundKey	key;
	lease_kind	kind;
	uint64		token;
} BoundLease;

/*
 * How long the rows of leases that end are removed, milliseconds.  A session may have
 * very many, and cannot be ended meanwhile.
 */
#define END_TIMEOUT	1000

/* With fewer leases than this, a backend need not look which are gone. */
#define PRUNE_MIN		64

static HTAB *bound = NULL;
static long prune_at = PRUNE_MIN;	/* look when there are so many */

/* How many there are of either kind. */
static long
count_bound(void)
{
	return bound == NULL ? 0 : hash_get_num_entries(bound);
}

static void
forget(BoundLease *lease)
{
	(void) hash_search(bound, &lease->key, HASH_REMOVE, NULL);
}

/*
 * Remember a lease that ends with this session or transaction; the caller has called
 * lease_session_watch().
 */
void
lease_session_took(lease_bytes name, lease_bytes owner, lease_kind kind,
				   uint64 token)
{
	BoundKey	key;
	BoundLease *lease;

	memset(&key, 0, sizeof(key));
	key.role = GetUserId();
	key.name_length = LEASE_PUT_STRING(key.name, name);
	key.owner_length = LEASE_PUT_STRING(key.owner, owner);
	lease = hash_search(bound, &key, HASH_ENTER, NULL);
	lease->kind = kind;
	lease->token = token;
}

/* Say whether a lease that was taken still has its row. */
static bool
bound_has_row(const BoundLease *lease)
{
	LeaseView	view;

	lease_look_read((lease_bytes) {
		lease->key.name, lease->key.name_length
	}, &view);
	return lease_view_has_row(&view, lease->token);
}

/*
 * Forget leases that were ended, before one more is taken.  This is done once
 * in as many calls as it finds leases, so that a call reads two on average.
 */
void
lease_session_prune(void)
{
	long		count = count_bound();
	HASH_SEQ_STATUS status;
	MemoryContext memory;
	MemoryContext old;
	BoundLease *lease;

	if (count < prune_at)
		return;
	prune_at = 2 * count;		/* if this fails, it is not soon done again */
	memory = AllocSetContextCreate(CurrentMemoryContext, "dlock session's leases",
								   ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(memory);
	hash_seq_init(&status, bound);
	while ((lease = hash_seq_search(&status)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (!bound_has_row(lease))
			forget(lease);
		MemoryContextReset(memory);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(memory);
	prune_at = Max(PRUNE_MIN, 2 * count_bound());
}

/* Say whether this backend may have leases of a kind. */
static bool
has_bound(lease_kind kind)
{
	return lease_bond_is_used(kind) && count_bound() > 0;
}

/*
 * Forget a kind's leases.  With "op", ends their rows by that first, if the table can
 * be opened without waiting, for END_TIMEOUT; LEASE_REAP: leaves that to others.
 */
static void
forget_all(lease_kind kind, lease_op op)
{
	int64		start_us = lease_clock_boot();
	Relation	rel = NULL;
	HASH_SEQ_STATUS status;
	BoundLease *lease;

	if (!has_bound(kind))
		return;
	if (op != LEASE_REAP)
		rel = lease_relation_open_at_exit();
	hash_seq_init(&status, bound);
	while ((lease = hash_seq_search(&status)) != NULL)
	{
		lease_request request = {
			.op = op,
			.owner = {lease->key.owner, lease->key.owner_length},
			.token = lease->token,
		};

		if (lease->kind != kind)
			continue;
		if (rel != NULL && !lease_clock_is_past(start_us, END_TIMEOUT))
			lease_call_give_back(rel, (lease_bytes) {
				lease->key.name, lease->key.name_length
			}, lease->key.role, &request);
		forget(lease);
	}
	if (rel != NULL)
		relation_close(rel, RowExclusiveLock);
}

/* ----------------------------------------------------------------
 * The ends
 * ----------------------------------------------------------------
 */

/*
 * The session's leases end, and their rows too if that is possible without waiting.
 * In a transaction.  "lost": nobody asked for it.
 *
 * The rows go first: a session that lives may drop its own leases.
 */
void
lease_session_end(bool lost)
{
	if (!lease_bond_is_used(LEASE_SESSION))
		return;
	forget_all(LEASE_SESSION, lost ? LEASE_LEAVE : LEASE_DROP);
	lease_bond_end(LEASE_SESSION, lost);
}

/*
 * Before this process leaves shared memory: leave the queue, give back what was
 * granted there, end the session's leases.  Whatever happens here, those are
 * over: if a step raises an error, at_last() still ends them.
 *
 * Other callbacks may have aborted the transaction before, such as the one that
 * drops temporary tables.
 */
static void
at_exit(int code, Datum arg)
{
	LeaseWaiter waiter;
	bool		granted;

	LWLockReleaseAll();
	granted = lease_waiter_abandon(&waiter);
	if (!granted && !has_bound(LEASE_SESSION))
		return;
	AbortOutOfAnyTransaction();
	StartTransactionCommand();
	if (granted)
	{
		lease_request request = lease_rows_request(&waiter);

		lease_call_undo(NULL, (lease_bytes) {
			waiter.key.name, waiter.key.length
		}, waiter.role, &request, &waiter.answer);
	}
	lease_session_end(true);
	CommitTransactionCommand();
}

/* After that: ends the bond even if the rows could not be removed. */
static void
at_last(int code, Datum arg)
{
	if (lease_bond_is_used(LEASE_SESSION))
		lease_bond_end(LEASE_SESSION, true);
}

/* The leases of the transaction are over.  Cannot fail. */
static void
end_transaction_bond(void)
{
	if (lease_bond_is_used(LEASE_TRANSACTION))
		lease_bond_end(LEASE_TRANSACTION, false);
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			/* nobody else gets the names: the guards are still there */
			forget_all(LEASE_TRANSACTION, LEASE_LEAVE);
			break;
		case XACT_EVENT_PRE_PREPARE:
			/* a lease of the transaction's has a guard, or was not granted */
			if (lease_queue_has_guards())
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that has guarded a lease")));
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
			/* the lease first: waiters that the guard's end wakes find it over */
			forget_all(LEASE_TRANSACTION, LEASE_REAP);
			end_transaction_bond();
			lease_queue_end_guards();
			/* what was granted to a process that ends is left to at_exit() */
			if (event == XACT_EVENT_ABORT && !proc_exit_inprogress)
				lease_waiter_finish();
			break;
		case XACT_EVENT_PREPARE:
			/* ends what a call has taken that then failed */
			end_transaction_bond();
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;
	}
}

/* A savepoint is rolled back: the call under way, if any, has failed. */
static void
at_subtransaction_end(SubXactEvent event, SubTransactionId my_subid,
					  SubTransactionId parent_subid, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && !proc_exit_inprogress)
		lease_waiter_finish();
}

/*
 * Register the callbacks for this backend's ends.  Called before it takes
 * anything that must be given back.
 */
void
lease_session_watch(void)
{
	HASHCTL		info = {
		.keysize = sizeof(BoundKey),
		.entrysize = sizeof(BoundLease),
	};
	HTAB	   *table;

	if (bound != NULL)
		return;
	info.hcxt = TopMemoryContext;
	table = hash_create("dlock leases of this session", 16, &info,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	RegisterXactCallback(at_transaction_end, NULL);
	RegisterSubXactCallback(at_subtransaction_end, NULL);
	before_shmem_exit(at_last, (Datum) 0);
	before_shmem_exit(at_exit, (Datum) 0);	/* runs before at_last */
	/* last: after an error all of it is done again, and twice does no harm */
	bound = table;
}
