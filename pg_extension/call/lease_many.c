/*
 * lease_many.c
 *	  Requests on many names: acquire all or none, claim any, renew, release.
 *
 * dlock_acquire_all() locks all buckets concerned together, in the order of the
 * reversed hashes of their names.  In that order each bucket is one contiguous
 * range, and a split cuts a range in two.  So the order is the same for all calls,
 * whatever splits happen meanwhile, and calls cannot deadlock, whatever the
 * order of their names.  No other code locks a bucket while holding another.
 *
 * If every name is free, it takes all before it unlocks any bucket: nobody sees a
 * part of them.  If one is busy, nothing has changed; to wait, the call watches
 * that one name, holding nothing, and then looks at all of them again.
 *
 * A name whose rows may be many is looked at alone first: to read them takes long, and
 * keeps others from all buckets that are locked.  With live rows, it is busy as a rule.
 *
 * It makes room beforehand, since that unlocks buckets.  If the room does not
 * suffice after all, the call gives back what it has taken, and only then makes
 * more: that may fail, on a full disk.
 *
 * The others go through the names in the caller's order, with one bucket locked
 * at a time, each as in a call of its own.  They share only the opening of the
 * table and, at the end, one flush.  A worker that takes jobs from a list wants any
 * of them, as many as it can have: dlock_acquire_any(), a claim.
 *
 * A claim that may wait goes through the names once.  If all are taken, it
 * joins the watchers of every name, and goes through them again each time a
 * hold on one of them ends or a deadline comes, until it has one.  It joins
 * before it looks, so no end of a hold escapes it.  A watcher is in nobody's
 * way: the call has no place in any line, and skips names for which others
 * stand in line.
 *
 * An error gives back what was taken.  From the first name that it takes until it
 * answers, a call keeps interrupts away, and looks itself for one that is to end
 * it, after which it gives back and lets the interrupt go (lease_request.c).  A
 * claim also gives back, and starts over, before it makes room or asks the
 * catalogs: the one may fail, on a full disk, the other take long.  Only a page
 * that cannot be read leaves, until their deadlines, the names that were taken
 * before.
 *
 * What a renewal or a release has done before an error stays done.  A crash
 * leaves each name as after a call of its own that was not answered.
 *
 * Lock order: buckets, then a partition, as for any request.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "call/lease_call.h"
#include "lease_crash.h"
#include "miscadmin.h"

/* How many times to make room before anything is taken. */
#define ROOM_ATTEMPTS	32

/* Most bytes for which room is made in one bucket. */
#define ROOM_MAX		4000

/* A call that takes names, over all its rounds. */
typedef struct ManyCall
{
	const lease_bytes *names;	/* in the caller's order, like the answers */
	int			count;
	LeaseCall	call;
	LeaseAnswer *answers;		/* granted: the name is taken, in this round */
	int			taken;			/* how many */
	int			failed;			/* the name with misuse; -1: none */
	int64		retry_us;		/* when time next frees a name */
	int64		wait_us;
	LeaseWaitTime time;
	bool		waited;
} ManyCall;

/* ----------------------------------------------------------------
 * What all that take names share
 * ----------------------------------------------------------------
 */

static void
begin_many(ManyCall *many, const lease_bytes *names, int count, int64 wait_us)
{
	many->names = names;
	many->count = count;
	many->answers = palloc(count * sizeof(LeaseAnswer));
	many->wait_us = wait_us;
	many->waited = false;
	lease_wait_start(&many->time, wait_us);
	if (wait_us != 0)
		lease_session_watch();
}

/* Begin a round: nothing is taken. */
static void
begin_round(ManyCall *many)
{
	for (int i = 0; i < many->count; i++)
		many->answers[i] = (LeaseAnswer) {.outcome = LEASE_BUSY};
	many->taken = 0;
	many->failed = -1;
	many->retry_us = PG_INT64_MAX;
}

/* A name was taken.  Counted at once: if it is given back, that is, too. */
static void
note_taken(ManyCall *many, const LeaseAnswer *answer)
{
	if (many->taken++ == 0)
		HOLD_INTERRUPTS();
	lease_call_count(&many->call, answer);
}

/* A name could not be taken. */
static void
note_refused(ManyCall *many, int i)
{
	if (many->answers[i].outcome == LEASE_BUSY)
		many->retry_us = Min(many->retry_us, many->answers[i].retry_us);
	else
		many->failed = i;
}

/* Give back what was taken, and handle interrupts again. */
static void
give_back_names(ManyCall *many)
{
	LeaseCall  *call = &many->call;

	if (many->taken == 0)
		return;
	DLOCK_CRASH_POINT("many: about to give back");
	for (int i = 0; i < many->count; i++)
		lease_call_undo(call->rel, many->names[i], call->requester.role,
						   &call->request, &many->answers[i]);
	many->taken = 0;
	RESUME_INTERRUPTS();
}

/* If an interrupt is to end the call, give back, and let it. */
static void
look_for_interrupts(ManyCall *many)
{
	if (lease_wait_must_end())
	{
		give_back_names(many);
		lease_wait_raise();
	}
}

/*
 * Make durable what was taken.  The client may have died while the call waited.  An
 * error that ends the wait for a synchronous standby leaves the leases: that standby
 * may have them.
 */
static void
keep_names(ManyCall *many)
{
	DLOCK_CRASH_POINT("many: not flushed");
	lease_wal_flush(many->call.lsn);
	if (many->waited)
		lease_wait_check_client();
	look_for_interrupts(many);
	RESUME_INTERRUPTS();
}

/*
 * The answer: LEASE_GRANTED, with the tokens in the caller's order, 0 for those not
 * taken; LEASE_BUSY; or that of a name whose request was misuse, with its place in
 * *failed: then nothing is taken.
 */
static LeaseAnswer
end_many(ManyCall *many, uint64 *tokens, int *failed)
{
	LeaseDatabase *db = many->call.db;
	LeaseAnswer answer = {
		.outcome = many->taken > 0 ? LEASE_GRANTED : LEASE_BUSY
	};

	lease_waiter_finish();
	if (many->waited)
		lease_count_wait(db, lease_clock_boot() - many->time.start_us);
	lease_wait_stop(&many->time);
	lease_snapshot_take_back();
	if (many->failed >= 0)
	{
		*failed = many->failed;
		return many->answers[many->failed];
	}
	if (many->taken == 0)
		lease_count(db, many->wait_us == 0 ? LEASE_COUNT_REFUSED :
					LEASE_COUNT_TIMED_OUT, 1);
	for (int i = 0; i < many->count; i++)
		tokens[i] = lease_is_granted(many->answers[i].outcome) ?
			many->answers[i].token : 0;
	return answer;
}

/* ----------------------------------------------------------------
 * All or none
 * ----------------------------------------------------------------
 */

/* One of the names, in the order of locking. */
typedef struct AllName
{
	int			index;			/* in the caller's order */
	uint32		hash;
	Buffer		bucket;			/* InvalidBuffer: same as the name before */
	bool		is_held;		/* somebody holds it, or its rows may be many */
	bool		was_alone;		/* it was looked at alone */
} AllName;

static int
compare_all_names(const void *a, const void *b)
{
	uint32		x = lease_hash_position(((const AllName *) a)->hash);
	uint32		y = lease_hash_position(((const AllName *) b)->hash);

	return x < y ? -1 : x > y;
}

/* The look at a name alone, or if that is ALL at all names. */
#define ALL		(-1)

static bool
is_looked_at(int alone, int i)
{
	return alone == ALL || alone == i;
}

/* Lock the buckets of the names that are looked at. */
static void
lock_all(ManyCall *many, AllName *all, int alone)
{
	Relation	rel = many->call.rel;
	Buffer		bucket = InvalidBuffer;

	for (int i = 0; i < many->count; i++)
	{
		all[i].bucket = InvalidBuffer;
		if (!is_looked_at(alone, i))
			continue;
		if (!BufferIsValid(bucket))
			bucket = lease_trie_lock(rel, all[i].hash, BUFFER_LOCK_EXCLUSIVE);
		else if (lease_page_is_bucket_for(lease_page_special(BufferGetPage(bucket)),
										  all[i].hash))
			continue;
		else
			bucket = lease_trie_lock_more(rel, all[i].hash);
		all[i].bucket = bucket;
	}
}

/* Unlock them, except one that is unlocked already or is to stay locked. */
static void
unlock_all(ManyCall *many, AllName *all, Buffer except)
{
	for (int i = many->count - 1; i >= 0; i--)
		if (BufferIsValid(all[i].bucket) && all[i].bucket != except)
			UnlockReleaseBuffer(all[i].bucket);
}

/* Go on with a name.  "bucket" is that of the name before, and then its own. */
static void
go_to_name(ManyCall *many, const AllName *name, Buffer *bucket)
{
	many->call.name = many->names[name->index];
	many->call.hash = name->hash;
	if (BufferIsValid(name->bucket))
		*bucket = name->bucket;
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
 * Look whether all names can be taken, or the one that is looked at alone, taking none.
 * Returns the place of the first that cannot, at which the call is then, or count. -1:
 * all is unlocked, look again; perhaps at another, or ALL.
 *
 * Before that, names whose queues are due are served, so that nobody waits for a
 * name that is free.  Room for all rows to come is made here, as far as that is
 * easily done.
 */
static int
find_busy(ManyCall *many, AllName *all, int *alone, int *room_attempts)
{
	LeaseCall  *call = &many->call;
	Buffer		bucket = InvalidBuffer;
	Size		needed = 0;

	for (int i = 0; i < many->count; i++)
	{
		LeaseAnswer answer;
		Buffer		room;

		if (!is_looked_at(*alone, i))
			continue;
		go_to_name(many, &all[i], &bucket);
		if (!all[i].was_alone && lease_trie_has_chain(bucket, call->hash))
		{
			unlock_all(many, all, InvalidBuffer);
			all[i].was_alone = true;
			*alone = i;
			return -1;
		}
		if (!lease_call_serve(call, bucket, true))
		{
			unlock_all(many, all, bucket);
			lease_trie_make_room(call->rel, bucket, call->hash,
								 call->missing_room);
			return -1;
		}
		if (!lease_call_gather(call, bucket))
		{
			/* somebody may have locked a catalog */
			unlock_all(many, all, InvalidBuffer);
			lease_rows_resolve_role(call);
			return -1;
		}
		(void) lease_call_decide(call, bucket, &answer);
		if (!lease_is_granted(answer.outcome))
		{
			many->answers[all[i].index] = answer;
			note_refused(many, all[i].index);
			return i;
		}

		all[i].is_held = call->count > 0 ||
			call->roomiest != InvalidBlockNumber;
		if (BufferIsValid(all[i].bucket))
			needed = 0;
		needed += row_size(call);
		if (needed > ROOM_MAX || *room_attempts >= ROOM_ATTEMPTS)
			continue;
		room = lease_trie_find_room(call->rel, bucket, call->hash, needed,
									call->roomiest);
		if (!BufferIsValid(room))
		{
			(*room_attempts)++;
			unlock_all(many, all, bucket);
			lease_trie_make_room(call->rel, bucket, call->hash, needed);
			return -1;
		}
		if (room != bucket)
			UnlockReleaseBuffer(room);
	}
	if (*alone == ALL)
		return many->count;
	*alone = ALL;
	unlock_all(many, all, InvalidBuffer);
	return -1;
}

/*
 * Take all names.  Each is decided once more: taking an earlier one may have
 * changed its bucket, and time has passed, in which a lease that was to be
 * re-entered may have ended.  False if not all could be taken, or there was no
 * room after all: nothing is taken.  All is unlocked.
 */
static bool
take_all(ManyCall *many, AllName *all)
{
	LeaseCall  *call = &many->call;
	Buffer		bucket = InvalidBuffer;

	for (int i = 0; i < many->count; i++)
	{
		LeaseAnswer *answer = &many->answers[all[i].index];
		lease_result result;
		bool		granted;

		go_to_name(many, &all[i], &bucket);
		do
		{
			/* if nobody holds this name, only the mark may have changed */
			if (all[i].is_held)
				(void) lease_call_gather(call, bucket);
			else
				lease_rows_start(call, bucket);
			result = lease_call_decide(call, bucket, answer);
			granted = lease_is_granted(result.outcome);
			if (granted && lease_call_write(call, bucket, &result))
			{
				note_taken(many, answer);
				DLOCK_CRASH_POINT("all: name taken");
				break;
			}
		} while (granted && lease_trie_compact(call->rel, bucket, call->hash,
											   call->missing_room));
		if (many->taken > i)
			continue;

		answer->outcome = LEASE_BUSY;	/* it is not ours to give back */
		unlock_all(many, all, InvalidBuffer);
		give_back_names(many);
		/* a page more: what has come free is for the names before this one */
		if (granted)
			lease_trie_make_room(call->rel,
								 lease_trie_lock(call->rel, all[i].hash,
												 BUFFER_LOCK_EXCLUSIVE),
								 all[i].hash, LEASE_PAGE_MORE);
		return false;
	}
	unlock_all(many, all, InvalidBuffer);
	return true;
}

/*
 * Look at all names until they are taken, or one cannot be.  Then the call, if it
 * may wait, has joined the watchers of that one.  No bucket is locked afterwards.
 */
static void
try_all(ManyCall *many, AllName *all, bool may_wait)
{
	LeaseCall  *call = &many->call;
	int			room_attempts = 0;
	int			alone = ALL;
	int			busy;

	for (int i = 0; i < many->count; i++)
		all[i] = (AllName) {
			.index = i, .hash = lease_trie_hash(call->rel, many->names[i])
		};
	qsort(all, many->count, sizeof(AllName), compare_all_names);
	for (;;)
	{
		bool		current = true;

		CHECK_FOR_INTERRUPTS();
		begin_round(many);
		lock_all(many, all, alone);
		busy = find_busy(many, all, &alone, &room_attempts);
		if (busy == many->count)
		{
			DLOCK_CRASH_POINT("all: about to take");
			if (take_all(many, all))
				return;
		}
		if (busy < 0 || busy == many->count)
			continue;
		if (may_wait && many->failed < 0)
		{
			LeaseWaiter *waiter = lease_waiter_begin(call->db, &call->requester,
													 &call->request,
													 LEASE_WAIT_ALL, false);

			waiter->since = many->time.start_time;
			DLOCK_CRASH_POINT("all: about to watch");
			current = lease_queue_join(waiter, call->db->database, call->hash,
									   call->name, 0, call->pokes);
		}
		unlock_all(many, all, InvalidBuffer);
		if (current)
			return;
		lease_waiter_finish();
	}
}

/*
 * Acquire all names for one owner, or none: see end_many().  Waits like
 * lease_request_apply().
 */
LeaseAnswer
lease_many_acquire_all(const lease_bytes *names, int count,
				  const lease_request *request, int64 wait_us,
				  uint64 *tokens, int *failed)
{
	ManyCall	many;
	AllName    *all = palloc(count * sizeof(AllName));

	begin_many(&many, names, count, wait_us);
	for (;; many.waited = true)
	{
		bool		may_wait = wait_us != 0 && !lease_wait_is_over(&many.time);

		lease_call_begin(&many.call, names[0], request);
		try_all(&many, all, may_wait);
		if (many.taken > 0)
			keep_names(&many);
		lease_call_end(&many.call);
		if (many.taken > 0 || many.failed >= 0 || !may_wait)
			return end_many(&many, tokens, failed);
		lease_deadlock_check(many.call.db);
		lease_wait_watch(many.call.db, &many.time, many.retry_us);
		lease_waiter_finish();
	}
}

/* ----------------------------------------------------------------
 * Any of them
 * ----------------------------------------------------------------
 */

/*
 * Take the names that are free, in their order, until there are enough; or only
 * those that were taken under this request id before.  False: start over,
 * nothing is taken.
 */
static bool
claim_names(ManyCall *many, int wanted, bool only_repeated)
{
	LeaseCall  *call = &many->call;

	call->request.only_repeated = only_repeated;
	for (int i = 0; i < many->count && many->taken < wanted; i++)
	{
		LeaseAnswer *answer = &many->answers[i];

		if (lease_is_granted(answer->outcome))
			continue;
		look_for_interrupts(many);
		CHECK_FOR_INTERRUPTS();
		lease_call_set_name(call, many->names[i]);
		if (many->taken == 0)
			(void) lease_call_attempt(call, answer, false);
		else if (!lease_call_attempt_once(call, answer))
		{
			give_back_names(many);
			/* what has come free is for the names before this one */
			call->missing_room = LEASE_PAGE_MORE;
			lease_call_prepare(call);
			return false;
		}
		if (lease_is_granted(answer->outcome))
		{
			note_taken(many, answer);
			DLOCK_CRASH_POINT("many: name taken");
		}
		else
			note_refused(many, i);
		if (many->failed >= 0)
			break;
		lease_rows_report_expired(call);
	}
	return true;
}

/*
 * Take one round through the names, and make durable what was taken; true: it was
 * the last.
 */
static bool
claim_round(ManyCall *many, int wanted)
{
	/* a repeated call answers the same, whatever has come free meanwhile */
	bool		may_repeat = many->call.request.request.length > 0;

	do
		begin_round(many);
	while ((may_repeat && !claim_names(many, wanted, true)) ||
		   (many->failed < 0 && !claim_names(many, wanted, false)));
	if (many->failed >= 0)
		give_back_names(many);
	else if (many->taken > 0)
	{
		lease_waiter_finish();
		keep_names(many);
	}
	return many->failed >= 0 || many->taken > 0;
}

/*
 * Join the watchers of all names; the table is open.  There are no more than
 * LEASE_WAITER_PLACES_MAX.
 */
static void
watch_names(ManyCall *many)
{
	LeaseCall  *call = &many->call;

	for (int i = 0; i < many->count; i++)
	{
		LeaseWaiter *waiter;
		Buffer		bucket;

		lease_call_set_name(call, many->names[i]);
		waiter = lease_waiter_begin(call->db, &call->requester, &call->request,
									LEASE_WAIT_ANY, i > 0);
		waiter->since = many->time.start_time;
		waiter->places = many->count;
		bucket = lease_trie_lock(call->rel, call->hash, BUFFER_LOCK_SHARE);
		/* it looks after it has joined */
		(void) lease_queue_join(waiter, call->db->database, call->hash,
								call->name, 0, 0);
		UnlockReleaseBuffer(bucket);
	}
}

/*
 * Claim up to "wanted" of the names for one owner: see end_many().  Waits like
 * lease_request_apply(), until it has one.
 */
LeaseAnswer
lease_many_acquire_any(const lease_bytes *names, int count,
				 const lease_request *request, int wanted, int64 wait_us,
				 uint64 *tokens, int *failed)
{
	ManyCall	many;
	uint32		hash = 0;
	bool		watching = false;

	begin_many(&many, names, count, wait_us);
	for (;; many.waited = true)
	{
		bool		joins = many.waited && !watching;
		bool		over;

		lease_call_begin(&many.call, names[0], request);
		if (joins)
		{
			hash = many.call.hash;
			watch_names(&many);
			watching = true;
		}
		else if (watching)
			lease_call_check_table(&many.call, hash);
		over = claim_round(&many, wanted);
		lease_call_end(&many.call);
		if (over || wait_us == 0 || lease_wait_is_over(&many.time))
			return end_many(&many, tokens, failed);
		if (!watching)
			continue;
		if (joins)
			lease_deadlock_check(many.call.db);
		lease_wait_watch(many.call.db, &many.time, many.retry_us);
	}
}

/* ----------------------------------------------------------------
 * Renew and release
 * ----------------------------------------------------------------
 */

/*
 * Renew or release the leases of one owner on the names: "done" says for which
 * names it worked.  "tokens", unless NULL, are those to match, 0 for any.
 */
void
lease_many_change(const lease_bytes *names, int count,
				  const lease_request *request, const uint64 *tokens,
				  bool *done)
{
	LeaseCall	call;

	lease_call_begin(&call, names[0], request);
	for (int i = 0; i < count; i++)
	{
		LeaseAnswer answer;

		CHECK_FOR_INTERRUPTS();
		lease_call_set_name(&call, names[i]);
		call.request.token = tokens == NULL ? 0 : tokens[i];
		(void) lease_call_attempt(&call, &answer, false);
		lease_call_count(&call, &answer);
		done[i] = answer.outcome == LEASE_RENEWED ||
			answer.outcome == LEASE_RELEASED;
		lease_rows_report_expired(&call);
		DLOCK_CRASH_POINT("many: name done");
	}
	lease_call_make_durable(request->op, call.lsn);
	lease_call_end(&call);
}
