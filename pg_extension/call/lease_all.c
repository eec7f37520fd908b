/*
 * lease_all.c
 *	  Acquire many leases at once, all or none.
 *
 * All buckets concerned are locked together, in the order of the reversed
 * hashes of their names.  In that order each bucket is one contiguous range,
 * and a split cuts a range in two.  So the order is the same for all calls,
 * whatever splits happen meanwhile, and calls cannot deadlock, whatever the
 * order of their names.  No other code locks a bucket while holding another.
 *
 * If every name is free, the call takes all before it unlocks any bucket:
 * nobody sees a part of them.  If one is busy, nothing has changed; to wait,
 * the call watches that one name, holding nothing, and then looks at all of
 * them again.
 *
 * The call makes room beforehand, since that unlocks buckets.  If the room does
 * not suffice after all, the call gives back what it has taken, and only then
 * makes more: that may fail, on a full disk.
 *
 * Buckets that are locked keep interrupts away.  Once all names are taken, the
 * call looks for one before it answers, and gives all back before it lets the
 * interrupt go (lease_request.c).  A page that cannot be read, while a part is
 * taken, leaves that until its deadline; a crash between two of the WAL records
 * does so too.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "call/lease_call.h"
#include "lease_crash.h"
#include "miscadmin.h"

/* How many times to make room before anything is taken. */
#define ROOM_ATTEMPTS	32

/* Most bytes for which room is made in one bucket. */
#define ROOM_MAX		4000

/* One of the names. */
typedef struct AllName
{
	int			index;			/* in the caller's order */
	LeaseCall  *call;
	Buffer		bucket;			/* InvalidBuffer: same as the name before */
	LeaseAnswer answer;
} AllName;

typedef struct AllCall
{
	LeaseCall  *calls;			/* in the caller's order */
	AllName    *names;			/* in the order of locking */
	int			count;
	int			room_attempts;
	const LeaseWaitTime *watch; /* NULL: do not wait */
} AllCall;

static int
compare_names(const void *a, const void *b)
{
	const LeaseCall *x = ((const AllName *) a)->call;
	const LeaseCall *y = ((const AllName *) b)->call;
	uint32		position_x = lease_hash_position(x->hash);
	uint32		position_y = lease_hash_position(y->hash);

	return position_x < position_y ? -1 : position_x > position_y;
}

/* The locked bucket of a name. */
static Buffer
bucket_of(const AllCall *all, int i)
{
	while (!BufferIsValid(all->names[i].bucket))
		i--;
	return all->names[i].bucket;
}

/* Lock the buckets of all names. */
static void
lock_all(AllCall *all)
{
	for (int i = 0; i < all->count; i++)
	{
		LeaseCall  *call = all->names[i].call;

		all->names[i].bucket = InvalidBuffer;
		if (i > 0 && lease_page_is_bucket_for(lease_page_special(BufferGetPage(bucket_of(all, i - 1))),
											  call->hash))
			continue;
		all->names[i].bucket = i == 0 ?
			lease_trie_lock(call->rel, call->hash, BUFFER_LOCK_EXCLUSIVE) :
			lease_trie_lock_more(call->rel, call->hash);
	}
}

/* Unlock them, except one that is unlocked already or is to stay locked. */
static void
unlock_all(AllCall *all, Buffer except)
{
	for (int i = all->count - 1; i >= 0; i--)
	{
		Buffer		bucket = all->names[i].bucket;

		if (BufferIsValid(bucket) && bucket != except)
			UnlockReleaseBuffer(bucket);
		all->names[i].bucket = InvalidBuffer;
	}
}

/*
 * Serve the queues of the names that are due, so that nobody waits for a name
 * that is free.  False: room had to be made, and all is unlocked.
 */
static bool
serve_due(AllCall *all)
{
	for (int i = 0; i < all->count; i++)
	{
		LeaseCall  *call = all->names[i].call;
		Buffer		bucket = bucket_of(all, i);

		if (!lease_queue_is_used(call->db->database, call->hash) ||
			lease_store_serve(call, bucket, true))
			continue;
		unlock_all(all, bucket);
		lease_rows_make_room(call, bucket);
		return false;
	}
	return true;
}

/*
 * Gather the rows of a name.  False: we had to ask the catalogs, and unlocked
 * all for that: somebody may have locked a catalog, and no bucket may stay
 * locked while we wait.
 */
static bool
gather(AllCall *all, int i)
{
	LeaseCall  *call = all->names[i].call;

	if (lease_store_gather(call, bucket_of(all, i)))
		return true;
	unlock_all(all, InvalidBuffer);
	lease_rows_resolve_role(call);
	return false;
}

/*
 * Look whether all names can be taken, changing nothing.  Returns the first
 * that cannot, or count. -1: all is unlocked.
 */
static int
find_busy(AllCall *all)
{
	for (int i = 0; i < all->count; i++)
	{
		AllName    *name = &all->names[i];

		if (!gather(all, i))
			return -1;
		(void) lease_store_decide(name->call, bucket_of(all, i),
								  &name->answer);
		if (!lease_is_granted(name->answer.outcome))
			return i;
	}
	return all->count;
}

/*
 * The size of the row that a call will insert, at most.  A row that replaces
 * another keeps that one's details of the client, which may be of any length.
 */
static Size
row_size(const LeaseCall *call)
{
	Size		client = call->count > 0 ? 2 * PG_UINT8_MAX :
		LEASE_APPLICATION_MAX + LEASE_ADDRESS_MAX;

	return LEASE_ENTRY_SIZE_MAX(call->name.length +
								call->request.owner.length +
								call->request.request.length + client) +
		sizeof(ItemIdData);
}

/*
 * Make room in the buckets for all rows to come, as far as that is easily done.
 * False if room was needed: then all is unlocked.
 */
static bool
have_room(AllCall *all)
{
	Size		needed = 0;

	if (all->room_attempts >= ROOM_ATTEMPTS)
		return true;
	for (int i = 0; i < all->count; i++)
	{
		LeaseCall  *call = all->names[i].call;
		Buffer		bucket = bucket_of(all, i);
		Buffer		room;

		if (BufferIsValid(all->names[i].bucket))
			needed = 0;
		needed += row_size(call);
		if (needed > ROOM_MAX)
			continue;
		room = lease_trie_find_room(call->rel, bucket, call->hash, needed,
									call->roomiest);
		if (BufferIsValid(room))
		{
			if (room != bucket)
				UnlockReleaseBuffer(room);
			continue;
		}
		all->room_attempts++;
		unlock_all(all, bucket);
		lease_trie_make_room(call->rel, bucket, call->hash, needed);
		return false;
	}
	return true;
}

/* Give back what was taken of so many names; nothing is locked. */
static void
give_back(AllCall *all, int count)
{
	HOLD_INTERRUPTS();
	while (--count >= 0)
	{
		LeaseCall  *call = all->names[count].call;

		lease_attempt_undo(call->rel, call->name, call->requester.role,
						   &call->request, &all->names[count].answer);
	}
	RESUME_INTERRUPTS();
}

/*
 * Unlock all, and give back what was taken before a name that could not be.  If there
 * was no room for it, then add a page: the room that has come free is for the
 * names before it.
 */
static void
start_over(AllCall *all, int failed, bool add_page)
{
	LeaseCall  *call = all->names[failed].call;

	unlock_all(all, InvalidBuffer);
	give_back(all, failed);
	if (add_page)
		lease_trie_make_room(call->rel,
							 lease_trie_lock(call->rel, call->hash,
											 BUFFER_LOCK_EXCLUSIVE),
							 call->hash, LEASE_PAGE_MORE);
}

/*
 * Take all names.  Each is decided once more: taking an earlier one may have
 * changed its bucket, and time has passed, in which a lease that was to be
 * re-entered may have ended.  False if not all could be taken, or there was no
 * room after all: all is unlocked, and nothing taken.
 */
static bool
take_all(AllCall *all)
{
	for (int i = 0; i < all->count; i++)
	{
		AllName    *name = &all->names[i];
		LeaseCall  *call = name->call;
		Buffer		bucket = bucket_of(all, i);
		lease_result result;
		bool		granted;

		/* if nobody holds this name, only the mark may have changed */
		if (call->count > 0 || call->roomiest != InvalidBlockNumber)
			(void) lease_store_gather(call, bucket);
		result = lease_store_decide(call, bucket, &name->answer);
		granted = lease_is_granted(result.outcome);
		if (granted && lease_store_write(call, bucket, &result))
		{
			/* at once: if it is given back, that is counted, too */
			lease_store_count(call, &name->answer);
			DLOCK_CRASH_POINT("all: name taken");
		}
		else if (granted && lease_trie_compact(call->rel, bucket, call->hash,
											   call->missing_room))
			i--;				/* once more */
		else
		{
			start_over(all, i, granted);
			return false;
		}
	}
	return true;
}

/*
 * Attempt until all names are taken, or one cannot be: returns its place, or
 * count.  If the call may wait, joins the watchers of the busy name.  No bucket
 * is locked afterwards.
 */
static int
attempt(AllCall *all)
{
	for (;;)
	{
		int			busy;

		CHECK_FOR_INTERRUPTS();
		lock_all(all);
		if (!serve_due(all))
			continue;
		busy = find_busy(all);
		if (busy < 0)
			continue;
		if (busy < all->count)
		{
			LeaseCall  *call = all->names[busy].call;
			bool		current = true;

			if (all->watch != NULL &&
				all->names[busy].answer.outcome == LEASE_BUSY)
			{
				LeaseWaiter *waiter = lease_request_begin_watch(call, LEASE_WAIT_ALL,
															 all->watch);

				DLOCK_CRASH_POINT("all: about to watch");
				current = lease_queue_join(waiter, call->db->database,
										   call->hash, call->name, 0,
										   call->pokes);
			}
			unlock_all(all, InvalidBuffer);
			if (current)
				return busy;
			lease_waiter_finish();
			continue;
		}
		if (!have_room(all))
			continue;
		DLOCK_CRASH_POINT("all: about to take");
		if (!take_all(all))
			continue;
		unlock_all(all, InvalidBuffer);
		return busy;
	}
}

/*
 * Make durable what was taken, and end the call here if an interrupt is to end
 * it, or its client has died while it waited.  An error that ends the wait for a
 * synchronous standby leaves the leases: that standby may have them.
 */
static void
finish(AllCall *all, bool waited)
{
	XLogRecPtr	lsn = InvalidXLogRecPtr;

	DLOCK_CRASH_POINT("all: not flushed");
	for (int i = 0; i < all->count; i++)
		lsn = Max(lsn, all->names[i].call->lsn);
	lease_wal_flush(lsn);
	for (int i = 0; i < all->count; i++)
		lease_rows_report_expired(all->names[i].call);
	if (waited)
		lease_wait_check_client();
	if (lease_wait_must_end())
	{
		give_back(all, all->count);
		lease_wait_raise();
	}
}

/* Open the table and begin a call for each name, in the order of locking. */
static void
begin_all(AllCall *all, const lease_bytes *names, const lease_request *request)
{
	for (int i = 0; i < all->count; i++)
	{
		AllName    *name = &all->names[i];

		memset(name, 0, sizeof(*name));
		name->index = i;
		name->call = &all->calls[i];
		if (i == 0)
			lease_store_begin_call(name->call, request);
		else
			lease_rows_init(name->call, all->calls[0].rel, all->calls[0].db,
							request);
		lease_store_set_name(name->call, names[i]);
	}
	qsort(all->names, all->count, sizeof(AllName), compare_names);
}

/* Close the table, and log what was found dead. */
static void
end_all(AllCall *all)
{
	relation_close(all->calls[0].rel, RowExclusiveLock);
	for (int i = 0; i < all->count; i++)
	{
		AllName    *name = &all->names[i];

		lease_rows_report_expired(name->call);
		lease_rows_end(name->call);
	}
}

/*
 * Count a wait, unless the first attempt was the last, tell the log, and see to
 * the snapshot.
 */
static void
end_wait(LeaseDatabase *db, const LeaseWaitTime *time, bool first)
{
	if (!first)
		lease_count_wait(db, lease_clock_boot() - time->start_us);
	lease_wait_stop(time);
	lease_snapshot_take_back();
}

/*
 * Acquire all names for one owner, or none.  Returns the answer of the last,
 * with the tokens in the caller's order; or that of a name that could not be
 * taken, whose place is then in *failed.  Waits like lease_request_apply().
 */
LeaseAnswer
lease_all_acquire(const lease_bytes *names, int count,
				  const lease_request *request, int64 wait_us,
				  uint64 *tokens, int *failed)
{
	AllCall		all = {.count = count};
	LeaseWaitTime time;
	LeaseAnswer answer;

	all.calls = palloc(count * sizeof(LeaseCall));
	all.names = palloc(count * sizeof(AllName));
	lease_wait_start(&time, wait_us);
	if (wait_us != 0)
		lease_session_watch();
	for (bool waited = false;; waited = true)
	{
		LeaseDatabase *db;
		int			busy;

		all.watch = wait_us != 0 && !lease_wait_is_over(&time) ? &time : NULL;
		begin_all(&all, names, request);
		db = all.names[0].call->db;
		busy = attempt(&all);
		if (busy == count)
			finish(&all, waited);
		end_all(&all);
		if (busy == count)
		{
			for (int i = 0; i < count; i++)
				tokens[all.names[i].index] = all.names[i].answer.token;
			answer = all.names[0].answer;
			end_wait(db, &time, !waited);
			return answer;
		}

		*failed = all.names[busy].index;
		answer = all.names[busy].answer;
		if (answer.outcome != LEASE_BUSY || all.watch == NULL)
		{
			if (answer.outcome == LEASE_BUSY)
				lease_count(db, wait_us == 0 ? LEASE_COUNT_REFUSED :
							LEASE_COUNT_TIMED_OUT, 1);
			end_wait(db, &time, !waited);
			return answer;
		}
		lease_wait_check_deadlock(db);
		lease_wait_watch(db, &time, answer.retry_us);
		lease_waiter_finish();
	}
}
