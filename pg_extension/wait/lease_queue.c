/*
 * lease_queue.c
 *	  The waiters of a name, and its guards.
 *
 * Shared memory holds a LeaseQueue for each name that has waiters or guards
 * right now, found by a hash, in partitions, each under a lock of its own.
 * Lock order: the name's bucket, then its partition; then pages further down,
 * the WAL.  Nobody locks a second partition: a look at all queues goes
 * partition by partition, so that calls for other names go on.
 *
 * The rules that keep waiters from being forgotten:
 *
 * - A waiter joins while it holds the name's bucket exclusively, having found
 *   the name taken.  So a call that frees the name afterwards finds the waiter.
 *   But a waiter may leave from the head, or a guard may end, between the look
 *   and the joining.  These events are counted, and a waiter that finds the
 *   count changed when it joins looks again.
 * - A call that ends a hold under the bucket's lock serves the queue before it
 *   unlocks the bucket, or sets the queue due and serves it after.
 * - A backend that leaves from the head, or ends a guard, cannot serve: its
 *   transaction may have failed.  It sets the queue due and wakes the head,
 *   which serves itself.
 * - Every waiter looks at its queue once a second, and serves it if it has been
 *   due for longer than its head should need.  So a head that is stopped holds
 *   up nobody for long.
 *
 * A queue is served (lease_request.c) with the partition locked exclusively, from
 * the last look at the head to its answer.  So a waiter that leaves was either
 * granted the lease, and gives it back, or will never be.
 *
 * Partitions count their waiters and guards.  The count is read without the
 * partition's lock, but under the bucket's: that is exact for the names of the
 * bucket, since joining and guarding need the bucket too.  A call on a name
 * without waiters pays only for this read.
 *
 * Why guards are not locks of the lock manager: a permit's guard keeps others
 * from some of the permits and its own holder from none, which no lock mode
 * expresses.  Guards end in the transaction's callbacks, which come after the
 * transaction's outcome is visible to others (CommitTransaction():
 * ProcArrayEndTransaction() goes before XACT_EVENT_COMMIT, likewise on abort)
 * and cannot fail.
 *
 * A crash loses all of this, and with it all waiting backends.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "port/pg_bitutils.h"
#include "storage/spin.h"
#include "utils/memutils.h"
#include "wait/lease_wait.h"

#define PARTITIONS	32

typedef struct QueuePartition
{
	LWLockPadded lock;
	pg_atomic_uint32 used;		/* waiters and guards */
	pg_atomic_uint32 pokes;		/* changed under the lock */
	LeaseLink	queues;			/* under the lock */
	char		pad[PG_CACHE_LINE_SIZE - 2 * sizeof(pg_atomic_uint32) -
				   sizeof(LeaseLink)];
} QueuePartition;

/*
 * What any caller could use up.  Of each pool, a role gets one more only while more is
 * free than it has already: so it has at most half of what others have left, rounded up.
 */
typedef enum SharedPool
{
	FIRST_PLACES,				/* to wait in, the first of each call */
	FURTHER_PLACES,				/* all others */
	FURTHER_GUARDS,				/* not the first of a transaction */
	SHARED_POOLS
} SharedPool;

/* What a role has of the pools, not nothing. */
typedef struct RoleShare
{
	Oid			role;
	int			taken[SHARED_POOLS];
} RoleShare;

typedef struct QueueShared
{
	slock_t		mutex;			/* protects the free lists, the counts of what is
								 * taken, all shares, and the serial */
	LeaseLink	free_waiters;
	LeaseLink	free_guards;
	LeaseLink	free_queues;
	int			taken[SHARED_POOLS];
	int			nshares;
	uint64		last_serial;
	pg_atomic_uint64 last_join; /* how many have joined so far */
	QueuePartition partitions[PARTITIONS];
} QueueShared;

static QueueShared *queue_shared = NULL;
static pg_atomic_uint32 *owners = NULL; /* places of waiters, by their owner's hash */
static RoleShare *shares = NULL;	/* of queue_shared->nshares roles, in no order */
static LeasePlace *chains = NULL;	/* of queues, by their hash; see find_queue() */

/* The guards of this backend's transaction, in TopMemoryContext. */
static LeaseGuard **my_guards = NULL;
static int	nmy_guards = 0;
static int	max_my_guards = 0;

/* ----------------------------------------------------------------
 * Shared memory
 * ----------------------------------------------------------------
 */

/*
 * How many places there are for the first of each call; and besides, for calls that wait
 * for any of several names: counted apart, so that such calls take none from waiters for
 * one name.  And how many guards besides the first of each transaction, for which
 * there is always room.
 */
static int
pool_size(SharedPool pool)
{
	switch (pool)
	{
		case FIRST_PLACES:
			return lease_area_settings->waiters;
		case FURTHER_PLACES:
			return Max(lease_area_settings->waiters, 1024);
		default:
			return lease_area_settings->guards;
	}
}

static int
max_places(void)
{
	return pool_size(FIRST_PLACES) + pool_size(FURTHER_PLACES);
}

static int
max_guards(void)
{
	return MaxBackends + pool_size(FURTHER_GUARDS);
}

/* How many names can have a queue at a time. */
static int
max_queues(void)
{
	return max_places() + max_guards();
}

/*
 * The size of the array that counts waiters by their owner's hash: large enough
 * that two owners seldom meet in one counter.
 */
static uint32
owner_counters(void)
{
	return pg_nextpower2_32(8 * Max(lease_area_settings->waiters, 1));
}

/*
 * How many chains of queues there are.  A power of two that is not smaller than the
 * number of partitions: so a chain belongs to one partition.
 */
static uint32
chain_count(void)
{
	return pg_nextpower2_32(Max(max_queues(), PARTITIONS));
}

/* Make all lists and locks.  What is not set here begins as zeros. */
static void
make_shared(LeaseWaiter *waiters, LeaseGuard *guards, LeaseQueue *queues)
{
	SpinLockInit(&queue_shared->mutex);
	lease_list_init(&queue_shared->free_waiters);
	lease_list_init(&queue_shared->free_guards);
	lease_list_init(&queue_shared->free_queues);
	pg_atomic_init_u64(&queue_shared->last_join, 0);
	for (int i = 0; i < PARTITIONS; i++)
	{
		pg_atomic_init_u32(&queue_shared->partitions[i].used, 0);
		pg_atomic_init_u32(&queue_shared->partitions[i].pokes, 0);
		lease_list_init(&queue_shared->partitions[i].queues);
		lease_area_init_lock(&queue_shared->partitions[i].lock.lock);
	}
	for (uint32 i = 0; i < owner_counters(); i++)
		pg_atomic_init_u32(&owners[i], 0);
	for (int i = 0; i < max_places(); i++)
		lease_list_push_tail(&queue_shared->free_waiters, &waiters[i].link);
	for (int i = 0; i < max_guards(); i++)
		lease_list_push_tail(&queue_shared->free_guards, &guards[i].link);
	for (int i = 0; i < max_queues(); i++)
		lease_list_push_tail(&queue_shared->free_queues, &queues[i].link);
}

/* Called by lease_area.c. */
void
lease_queue_attach(bool make)
{
	LeaseWaiter *waiters;
	LeaseGuard *guards;
	LeaseQueue *queues;

	queue_shared = lease_area_take(1, sizeof(QueueShared));
	waiters = lease_area_take(max_places(), sizeof(LeaseWaiter));
	guards = lease_area_take(max_guards(), sizeof(LeaseGuard));
	queues = lease_area_take(max_queues(), sizeof(LeaseQueue));
	chains = lease_area_take(chain_count(), sizeof(LeasePlace));
	owners = lease_area_take(owner_counters(), sizeof(pg_atomic_uint32));
	shares = lease_area_take(max_places() + pool_size(FURTHER_GUARDS), sizeof(RoleShare));
	if (make)
		make_shared(waiters, guards, queues);
}

/* ----------------------------------------------------------------
 * Names
 * ----------------------------------------------------------------
 */

/* The hash of a queue's key; its last bits choose the partition. */
static uint32
queue_hash(Oid database, uint32 hash)
{
	return murmurhash32(hash ^ database);
}

static QueuePartition *
partition_of(Oid database, uint32 hash)
{
	return &queue_shared->partitions[queue_hash(database, hash) % PARTITIONS];
}

/* The partition of a queue, or of a waiter that has joined one. */
static QueuePartition *
partition_of_key(const LeaseQueueKey *key)
{
	return partition_of(key->database, key->hash);
}

/*
 * Say whether a name may have a queue.  The caller holds the name's bucket, so
 * that "no" is certain.
 */
bool
lease_queue_is_used(Oid database, uint32 hash)
{
	return pg_atomic_read_u32(&partition_of(database, hash)->used) > 0;
}

/*
 * How many times a waiter has left from the head of a queue, or a guard has
 * ended, among the names of this one's partition.  That takes no bucket, so it
 * may happen between a caller's look at the name and lease_queue_join(), to
 * which the caller passes the count from before the look.
 */
uint32
lease_queue_pokes(Oid database, uint32 hash)
{
	uint32		pokes = pg_atomic_read_u32(&partition_of(database, hash)->pokes);

	pg_read_barrier();
	return pokes;
}

/* The chain that a queue with this key would be in. */
static LeasePlace *
chain_of(Oid database, uint32 hash)
{
	return &chains[queue_hash(database, hash) & (chain_count() - 1)];
}

/* The queue of a name, or NULL; the partition is locked. */
static LeaseQueue *
find_queue(Oid database, uint32 hash, lease_bytes name)
{
	LeaseQueue *queue = lease_area_at(*chain_of(database, hash));

	while (queue != NULL &&
		   (queue->key.hash != hash || queue->key.database != database ||
			!lease_same(name, (lease_bytes) {
				queue->key.name, queue->key.length
			})))
		queue = lease_area_at(queue->chain);
	return queue;
}

/* Lock the partition of a name, and find the name's queue, or NULL. */
LeaseQueue *
lease_queue_lock(Oid database, uint32 hash, lease_bytes name, LWLockMode mode)
{
	LWLockAcquire(&partition_of(database, hash)->lock.lock, mode);
	return find_queue(database, hash, name);
}

void
lease_queue_unlock(Oid database, uint32 hash)
{
	LWLockRelease(&partition_of(database, hash)->lock.lock);
}

/* Take the first of a list of free items; NULL: none.  The mutex is held. */
#define take_free(type, list) \
	((type *) take_free_item(list, offsetof(type, link)))

static char *
take_free_item(LeaseLink *list, Size offset)
{
	LeaseLink  *link = lease_area_at(list->next);

	if (link == list)
		return NULL;
	lease_list_delete(link);
	return (char *) link - offset;
}

/*
 * Lock the partition of a name exclusively, and find the name's queue, or make it.
 * The caller puts a waiter or a guard there, which counts in the partition.
 */
static LeaseQueue *
lock_for_one_more(Oid database, uint32 hash, lease_bytes name)
{
	LeaseQueue *queue = lease_queue_lock(database, hash, name, LW_EXCLUSIVE);
	LeasePlace *chain = chain_of(database, hash);

	pg_atomic_fetch_add_u32(&partition_of(database, hash)->used, 1);
	if (queue != NULL)
		return queue;
	SpinLockAcquire(&queue_shared->mutex);
	queue = take_free(LeaseQueue, &queue_shared->free_queues);
	SpinLockRelease(&queue_shared->mutex);
	Assert(queue != NULL);		/* there is one for each waiter and guard */

	memset(&queue->key, 0, sizeof(queue->key));
	queue->key.database = database;
	queue->key.hash = hash;
	queue->key.length = LEASE_PUT_STRING(queue->key.name, name);
	lease_list_init(&queue->waiters);
	lease_list_init(&queue->watchers);
	lease_list_init(&queue->guards);
	queue->due_us = PG_INT64_MAX;
	lease_list_push_tail(&partition_of(database, hash)->queues, &queue->link);
	queue->chain = *chain;
	*chain = lease_area_place(queue);
	return queue;
}

/* Remove a queue that nobody needs; the partition is locked exclusively. */
static void
drop_if_unused(LeaseQueue *queue)
{
	LeasePlace *chain = chain_of(queue->key.database, queue->key.hash);

	if (!lease_list_is_empty(&queue->waiters) ||
		!lease_list_is_empty(&queue->watchers) ||
		!lease_list_is_empty(&queue->guards))
		return;
	lease_list_delete(&queue->link);
	while (*chain != lease_area_place(queue))
		chain = &((LeaseQueue *) lease_area_at(*chain))->chain;
	*chain = queue->chain;
	SpinLockAcquire(&queue_shared->mutex);
	lease_list_push_head(&queue_shared->free_queues, &queue->link);
	SpinLockRelease(&queue_shared->mutex);
}

/* The entry of the database that a waiter waits in. */
static LeaseDatabase *
database_of(const LeaseWaiter *waiter)
{
	return lease_area_at(waiter->db);
}

/* The first waiter, or NULL. */
LeaseWaiter *
lease_queue_head(LeaseQueue *queue)
{
	if (lease_list_is_empty(&queue->waiters))
		return NULL;
	return lease_list_item(LeaseWaiter, queue->waiters.next);
}

/*
 * Set a name's queue, if it has one, due, so that it is served soon even if we
 * fail before we have served it.
 */
void
lease_queue_make_due(Oid database, uint32 hash, lease_bytes name)
{
	LeaseQueue *queue = lease_queue_lock(database, hash, name, LW_EXCLUSIVE);

	if (queue != NULL)
		queue->due_us = 0;
	lease_queue_unlock(database, hash);
}

/* Wake a waiter, unless it is us; the partition is locked. */
static void
wake(LeaseWaiter *waiter)
{
	if (waiter->latch == MyLatch)
		return;
	pg_atomic_fetch_add_u64(&database_of(waiter)->woken, 1);
	SetLatch(waiter->latch);
}

/*
 * Set when the head must look again.  Wake it if that is before soon_us, since
 * its next look, which comes once a second, may be too late.
 */
void
lease_queue_set_due(LeaseQueue *queue, int64 due_us, int64 soon_us)
{
	LeaseWaiter *head = lease_queue_head(queue);

	if (head != NULL && due_us < soon_us)
		wake(head);
	queue->due_us = due_us;
}

/* Wake the watchers, which wait for a hold to end. */
void
lease_queue_wake_watchers(LeaseQueue *queue)
{
	lease_list_foreach(LeaseWaiter, waiter, &queue->watchers)
		wake(waiter);
}

/* Make the head, the watchers and those about to join look at once. */
static void
poke(LeaseQueue *queue)
{
	LeaseWaiter *head = lease_queue_head(queue);

	pg_atomic_fetch_add_u32(&partition_of_key(&queue->key)->pokes, 1);
	queue->due_us = 0;
	if (head != NULL)
		wake(head);
	lease_queue_wake_watchers(queue);
}

/*
 * A walk over the queues of a database, with one partition locked at a time: it finds
 * all that are there throughout, and perhaps some that come or go meanwhile.
 */
typedef struct QueueWalk
{
	Oid			database;
	LWLockMode	mode;
	int			partition;
	LeaseLink  *at;				/* NULL: the partition is not locked yet */
} QueueWalk;

/* The next queue of a walk; NULL: no more, and no partition is locked. */
static LeaseQueue *
next_queue(QueueWalk *walk)
{
	for (; walk->partition < PARTITIONS; walk->partition++)
	{
		QueuePartition *partition = &queue_shared->partitions[walk->partition];

		if (walk->at == NULL)
		{
			if (pg_atomic_read_u32(&partition->used) == 0)
				continue;
			LWLockAcquire(&partition->lock.lock, walk->mode);
			walk->at = &partition->queues;
		}
		for (;;)
		{
			LeaseQueue *queue = lease_list_item(LeaseQueue, walk->at->next);

			walk->at = &queue->link;
			if (walk->at == &partition->queues)
				break;
			if (queue->key.database == walk->database)
				return queue;
		}
		LWLockRelease(&partition->lock.lock);
		walk->at = NULL;
	}
	return NULL;
}

/* Make all waiters of a database look: its table may be gone. */
void
lease_queue_wake_database(Oid database)
{
	QueueWalk	walk = {.database = database, .mode = LW_EXCLUSIVE};
	LeaseQueue *queue;

	while ((queue = next_queue(&walk)) != NULL)
	{
		queue->due_us = 0;
		lease_list_foreach(LeaseWaiter, waiter, &queue->waiters)
			wake(waiter);
		lease_queue_wake_watchers(queue);
	}
}

/* ----------------------------------------------------------------
 * What a role may have
 * ----------------------------------------------------------------
 */

/* A role's share, or NULL; few roles have one.  The mutex is held. */
static RoleShare *
find_share(Oid role)
{
	for (int i = 0; i < queue_shared->nshares; i++)
		if (shares[i].role == role)
			return &shares[i];
	return NULL;
}

/* Let a role have one more of a pool, or return false.  The mutex is held. */
static bool
take_share(SharedPool pool, Oid role)
{
	RoleShare  *share = find_share(role);
	int			free = pool_size(pool) - queue_shared->taken[pool];

	if (free <= (share == NULL ? 0 : share->taken[pool]))
		return false;
	if (share == NULL)
	{
		share = &shares[queue_shared->nshares++];
		memset(share, 0, sizeof(*share));
		share->role = role;
	}
	share->taken[pool]++;
	queue_shared->taken[pool]++;
	return true;
}

/* A role has one less of a pool.  The mutex is held. */
static void
give_share(SharedPool pool, Oid role)
{
	RoleShare  *share = find_share(role);

	queue_shared->taken[pool]--;
	share->taken[pool]--;
	for (int i = 0; i < SHARED_POOLS; i++)
		if (share->taken[i] > 0)
			return;
	*share = shares[--queue_shared->nshares];
}

/* ----------------------------------------------------------------
 * Waiters
 * ----------------------------------------------------------------
 */

/*
 * A place to wait in for a role, with a serial and nothing else filled in.
 * "further": the call has one already.
 */
LeaseWaiter *
lease_queue_allocate_waiter(Oid role, bool further)
{
	LeaseWaiter *waiter = NULL;

	SpinLockAcquire(&queue_shared->mutex);
	if (take_share(further ? FURTHER_PLACES : FIRST_PLACES, role))
	{
		waiter = take_free(LeaseWaiter, &queue_shared->free_waiters);
		waiter->serial = ++queue_shared->last_serial;
	}
	SpinLockRelease(&queue_shared->mutex);
	if (waiter == NULL && further)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many names are waited for"),
				 errdetail("Calls that wait for any of several names share %d places for all names but the first of each call. A role can have half of what others leave.",
						   pool_size(FURTHER_PLACES)),
				 errhint("Wait for fewer names, or try again later.")));
	if (waiter == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many sessions wait for leases"),
				 errdetail("\"dlock.max_waiters\" allows %d. A role can have half of what others leave.",
						   lease_area_settings->waiters),
				 errhint("Increase \"dlock.max_waiters\" and restart the server, or try again later.")));
	waiter->queue = 0;
	waiter->key.length = 0;
	waiter->role = role;
	waiter->further = further;
	waiter->answered = false;
	return waiter;
}

/* Give a place back; its waiter is in no queue. */
void
lease_queue_free_waiter(LeaseWaiter *waiter)
{
	Assert(waiter->queue == 0);
	SpinLockAcquire(&queue_shared->mutex);
	give_share(waiter->further ? FURTHER_PLACES : FIRST_PLACES, waiter->role);
	lease_list_push_head(&queue_shared->free_waiters, &waiter->link);
	SpinLockRelease(&queue_shared->mutex);
}

/* The counter of waiters' places for owners with the hash of this string. */
static pg_atomic_uint32 *
places_of(const char *owner, int length)
{
	uint32		hash = hash_bytes((const unsigned char *) owner, length);

	return &owners[hash & (owner_counters() - 1)];
}

/*
 * Join the queue of a name, or its watchers.  The caller holds the name's
 * bucket; exclusively to join the queue.  It has found the name taken; before
 * that, lease_queue_pokes() was "pokes". "due_us" is when to look again, if
 * this waiter becomes the head.
 *
 * False: the obstacle may be gone already, and its end could not wake us.  Then
 * the queue is due, or the watcher must look again.
 */
bool
lease_queue_join(LeaseWaiter *waiter, Oid database, uint32 hash,
				 lease_bytes name, int64 due_us, uint32 pokes)
{
	LeaseQueue *queue = lock_for_one_more(database, hash, name);
	bool		current = lease_queue_pokes(database, hash) == pokes;

	if (waiter->role_in_queue == LEASE_WAIT_IN_LINE)
	{
		if (lease_list_is_empty(&queue->waiters))
			queue->due_us = current ? due_us : 0;
		lease_list_push_tail(&queue->waiters, &waiter->link);
	}
	else
		lease_list_push_tail(&queue->watchers, &waiter->link);
	if (waiter->owner_length > 0)
		pg_atomic_fetch_add_u32(places_of(waiter->owner,
										  waiter->owner_length), 1);
	waiter->queue = lease_area_place(queue);
	waiter->key = queue->key;
	if (!waiter->further)
		pg_atomic_fetch_add_u32(&database_of(waiter)->nwaiters, 1);
	waiter->join_number = pg_atomic_add_fetch_u64(&queue_shared->last_join, 1);
	lease_queue_unlock(database, hash);
	return current;
}

/* Take a waiter out of its queue; the partition is locked exclusively. */
static void
unlink_waiter(LeaseWaiter *waiter)
{
	lease_list_delete(&waiter->link);
	if (waiter->owner_length > 0)
		pg_atomic_fetch_sub_u32(places_of(waiter->owner,
										  waiter->owner_length), 1);
	waiter->queue = 0;
	pg_atomic_fetch_sub_u32(&partition_of_key(&waiter->key)->used, 1);
	if (!waiter->further)
		pg_atomic_fetch_sub_u32(&database_of(waiter)->nwaiters, 1);
}

/*
 * Leave, whatever the reason; the waiter has joined.  True if it has been answered;
 * then it may have a lease to give back or to keep.  Only the waiter itself calls this.
 */
bool
lease_queue_leave(LeaseWaiter *waiter)
{
	LWLock	   *lock = &partition_of_key(&waiter->key)->lock.lock;
	LeaseQueue *queue;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	queue = lease_area_at(waiter->queue);
	if (queue != NULL)
	{
		bool		was_head = lease_queue_head(queue) == waiter;

		unlink_waiter(waiter);
		if (was_head)
			poke(queue);
		drop_if_unused(queue);
	}
	LWLockRelease(lock);
	return waiter->answered;
}

/*
 * Answer the head and take it out of its queue, which may be gone after that.
 * The partition is locked exclusively.  "due_us" is when to look at the next
 * one, see lease_queue_set_due().
 *
 * Returns the latch to set once the partition is unlocked, so that the waiter
 * does not wake only to wait for the partition; NULL if it is our own.
 */
Latch *
lease_queue_answer(LeaseQueue *queue, LeaseWaiter *waiter,
				   const LeaseAnswer *answer, XLogRecPtr lsn, int64 due_us,
				   int64 soon_us)
{
	Latch	   *latch = waiter->latch == MyLatch ? NULL : waiter->latch;

	if (latch != NULL)
		pg_atomic_fetch_add_u64(&database_of(waiter)->woken, 1);
	waiter->answer = *answer;
	waiter->lsn = lsn;
	waiter->answered = true;
	unlink_waiter(waiter);
	queue->due_us = PG_INT64_MAX;
	lease_queue_set_due(queue, due_us, soon_us);
	drop_if_unused(queue);
	return latch;
}

/* The one behind the head, or NULL. */
LeaseWaiter *
lease_queue_second(LeaseQueue *queue)
{
	LeaseWaiter *head = lease_queue_head(queue);

	if (head == NULL || queue->waiters.previous == lease_area_place(&head->link))
		return NULL;
	return lease_list_item(LeaseWaiter, head->link.next);
}

/* See how things stand for a waiter that has joined. */
void
lease_queue_look(LeaseWaiter *waiter, LeaseQueueView *view)
{
	LWLock	   *lock = &partition_of_key(&waiter->key)->lock.lock;
	LeaseQueue *queue;

	memset(view, 0, sizeof(*view));
	LWLockAcquire(lock, LW_SHARED);
	queue = lease_area_at(waiter->queue);
	if (queue != NULL)
	{
		view->is_head = lease_queue_head(queue) == waiter;
		view->due_us = queue->due_us;
	}
	view->answered = waiter->answered;
	LWLockRelease(lock);
}

/*
 * Say whether an owner waits, whatever its role.  "No" is exact, except for
 * waiters that join just now; "yes" may be wrong.
 */
bool
lease_queue_owner_waits(lease_bytes owner)
{
	return pg_atomic_read_u32(places_of(owner.data, (int) owner.length)) > 0;
}

/* Add copies of the waiters of a list to another. */
static List *
copy_waiters(List *copies, const LeaseLink *waiters)
{
	lease_list_foreach(LeaseWaiter, waiter, waiters)
	{
		LeaseWaiter *copy = palloc(sizeof(LeaseWaiter));

		*copy = *waiter;
		copies = lappend(copies, copy);
	}
	return copies;
}

/*
 * Copies of all waiters of a database; those of a name come together, in the order
 * of the queue, then its watchers.
 */
List *
lease_queue_copy_waiters(Oid database)
{
	QueueWalk	walk = {.database = database, .mode = LW_SHARED};
	LeaseQueue *queue;
	List	   *copies = NIL;

	while ((queue = next_queue(&walk)) != NULL)
		copies = copy_waiters(copy_waiters(copies, &queue->waiters),
							  &queue->watchers);
	return copies;
}

/* ----------------------------------------------------------------
 * Guards
 * ----------------------------------------------------------------
 */

/* This transaction's guard of a lease, or NULL. */
static LeaseGuard *
find_my_guard(Oid database, lease_bytes name, uint64 token)
{
	for (int i = 0; i < nmy_guards; i++)
	{
		LeaseGuard *guard = my_guards[i];
		const LeaseQueueKey *key =
			&((LeaseQueue *) lease_area_at(guard->queue))->key;

		if (guard->token == token && key->database == database &&
			lease_same(name, (lease_bytes) {key->name, key->length}))
			return guard;
	}
	return NULL;
}

/* Raise the error of a transaction that can have no more guards. */
void
lease_queue_raise_no_guard(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many leases are guarded"),
			 errdetail("\"dlock.max_guards\" allows %d in all transactions, besides the first of each. A role can have half of what others leave.",
					   lease_area_settings->guards),
			 errhint("Increase \"dlock.max_guards\" and restart the server, or try again later.")));
}

/*
 * Pin a lease until this transaction's end.  The caller holds the name's
 * bucket, and has found the lease live.  False: there is no place for the guard.
 */
bool
lease_queue_guard(Oid database, uint32 hash, lease_bytes name,
				  const LeaseGuard *template)
{
	LeaseGuard *guard = find_my_guard(database, name, template->token);
	LeaseQueue *queue;

	if (guard != NULL)
	{
		(void) lease_queue_lock(database, hash, name, LW_EXCLUSIVE);
		guard->version = Max(guard->version, template->version);
		lease_queue_unlock(database, hash);
		return true;
	}
	if (nmy_guards == max_my_guards)
	{
		int			room = Max(8, max_my_guards * 2);

		my_guards = my_guards == NULL ?
			MemoryContextAlloc(TopMemoryContext, room * sizeof(LeaseGuard *)) :
			repalloc(my_guards, room * sizeof(LeaseGuard *));
		max_my_guards = room;
	}
	SpinLockAcquire(&queue_shared->mutex);
	if (nmy_guards == 0 || take_share(FURTHER_GUARDS, template->guarding_role))
		guard = take_free(LeaseGuard, &queue_shared->free_guards);
	SpinLockRelease(&queue_shared->mutex);
	if (guard == NULL)
		return false;

	queue = lock_for_one_more(database, hash, name);
	*guard = *template;
	guard->pid = MyProcPid;
	guard->queue = lease_area_place(queue);
	lease_list_push_tail(&queue->guards, &guard->link);
	my_guards[nmy_guards++] = guard;
	lease_queue_unlock(database, hash);
	return true;
}

/* The guards of a name, as a list of copies. */
List *
lease_queue_copy_guards(Oid database, uint32 hash, lease_bytes name)
{
	List	   *guards = NIL;
	LeaseQueue *queue = lease_queue_lock(database, hash, name, LW_SHARED);

	if (queue != NULL)
		lease_list_foreach(LeaseGuard, guard, &queue->guards)
		{
			LeaseGuard *copy = palloc(sizeof(LeaseGuard));

			*copy = *guard;
			guards = lappend(guards, copy);
		}
	lease_queue_unlock(database, hash);
	return guards;
}

/* The names that are guarded in a database, each once, as a list of LeaseQueueKey. */
List *
lease_queue_guarded_names(Oid database)
{
	QueueWalk	walk = {.database = database, .mode = LW_SHARED};
	LeaseQueue *queue;
	List	   *names = NIL;

	while ((queue = next_queue(&walk)) != NULL)
	{
		LeaseQueueKey *name;

		if (lease_list_is_empty(&queue->guards))
			continue;
		name = palloc(sizeof(LeaseQueueKey));
		*name = queue->key;
		names = lappend(names, name);
	}
	return names;
}

/*
 * The process of another transaction that guards a lease in a database; 0: none does.  The
 * caller has locked the lock table against all calls, so none begins.
 */
int
lease_queue_other_guard(Oid database)
{
	QueueWalk	walk = {.database = database, .mode = LW_SHARED};
	LeaseQueue *queue;
	int			pid = 0;

	if (!lease_area_map(false))
		return 0;
	while ((queue = next_queue(&walk)) != NULL)
		lease_list_foreach(LeaseGuard, guard, &queue->guards)
		{
			if (guard->pid != MyProcPid)
				pid = guard->pid;
		}
	return pid;
}

/* Say whether this transaction has guards. */
bool
lease_queue_has_guards(void)
{
	return nmy_guards > 0;
}

/*
 * End this transaction's guards; its outcome is visible.  Cannot fail.
 */
void
lease_queue_end_guards(void)
{
	while (nmy_guards > 0)
	{
		LeaseGuard *guard = my_guards[--nmy_guards];
		LeaseQueue *queue = lease_area_at(guard->queue);
		QueuePartition *partition = partition_of_key(&queue->key);

		LWLockAcquire(&partition->lock.lock, LW_EXCLUSIVE);
		lease_list_delete(&guard->link);
		pg_atomic_fetch_sub_u32(&partition->used, 1);
		poke(queue);
		drop_if_unused(queue);
		LWLockRelease(&partition->lock.lock);

		SpinLockAcquire(&queue_shared->mutex);
		lease_list_push_head(&queue_shared->free_guards, &guard->link);
		if (nmy_guards > 0)
			give_share(FURTHER_GUARDS, guard->guarding_role);
		SpinLockRelease(&queue_shared->mutex);
	}
}
