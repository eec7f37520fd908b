/*
 * lease_summary.c
 *	  A summary of each bucket in shared memory: next deadline and owners.
 *
 * The reaper, renew_all and release_all must find a few leases among millions
 * without reading the table.  For each block that is a bucket, shared memory
 * holds a lower bound of the deadlines in it (overflow pages included) and a
 * Bloom filter of the owners in it: a block that cannot concern the caller is
 * passed over unread.  Nothing is lost with it: a block without a summary, as
 * all are after a start, is simply read, and gets one then.
 *
 * The filter has 832 bits and four of them for an owner.  With 80 different
 * owners in a bucket, about what a full page holds, one lookup in a hundred
 * is a false match.  (64 bits, one for an owner, would match 71 in a hundred.)
 *
 * Summaries lie in chunks of 256 consecutive blocks of one table, which are
 * handed out on demand and never moved; each backend remembers where the
 * chunks of its table are.  A chunk is taken back when its table's file is no
 * longer in use; its key is checked with each use, under the lock below.
 *
 * Locking.  Summaries change only under the exclusive content lock of their
 * bucket, so that they agree with it; a spinlock in each keeps readers, who
 * hold no content lock, from seeing one half written.  Chunks are handed out
 * under summary->lock, the last in the lock order: content lock, then that.
 *
 * Why walking the blocks in order finds every lease that was there when the
 * walk began: a split moves entries only to a page added at the end of the
 * relation, whose summary is unknown at first.
 *
 * A lower bound may be too low, after a release or a renewal.  The reaper then
 * reads the bucket once and finds out.  Owners that have left stay in a filter
 * until it is made anew, which is when as many were added as it had entries.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lease_summary.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/memutils.h"

#define CHUNK_BLOCKS	256
#define MIN_CHUNKS		64
#define FILTER_BITS		(lengthof(((LeaseSummary *) 0)->owners) * 64)
#define FILTER_HASHES	4

/* A filter is made anew after this many more new owners than entries. */
#define STALE_SLACK		64

typedef struct Slot
{
	slock_t		mutex;
	bool		known;			/* the rest is valid */
	uint16		added;			/* owners put in since it was made */
	uint32		entries;		/* that it was made from */
	pg_atomic_uint64 deadline_us;	/* written under mutex, read without */
	uint64		owners[lengthof(((LeaseSummary *) 0)->owners)];
} Slot;

StaticAssertDecl(sizeof(Slot) <= 128, "a slot should take two cache lines");

typedef struct Chunk
{
	/* whose it is; file is InvalidRelFileNumber for nobody's */
	Oid			database;
	RelFileNumber file;
	BlockNumber number;			/* first block / CHUNK_BLOCKS */

	/* lower bound of the slots' deadlines; PG_INT64_MIN if any is unknown */
	pg_atomic_uint64 deadline_us;
} Chunk;

typedef struct SummaryShared
{
	LWLock	   *lock;			/* protects whose a chunk is */
	int			nchunks;
	Chunk	   *chunks;
	Slot	   *slots;			/* CHUNK_BLOCKS for each chunk */
	pg_atomic_uint32 missing;	/* a chunk was wanted once and none was left */
	pg_atomic_uint32 freed;		/* grows with every chunk taken back */
} SummaryShared;

int			lease_summary_pages = -1;

static SummaryShared *summary_shared = NULL;

/* A chunk's index that is not known, or that there was none and none left. */
#define CHUNK_UNKNOWN	(-1)
#define CHUNK_MISSING	(-2)

/*
 * What this backend remembers: the indexes of a table's chunks, by number.  As
 * long as none is taken back, what was missing stays so for everybody.
 */
static struct
{
	RelFileNumber file;
	BlockNumber size;
	int		   *chunks;
	uint32		freed;			/* summary_shared->freed, as of CHUNK_MISSING */
}			known_chunks;

/* How many chunks there are: dlock.tracked_pages, or as shared_buffers. */
static int
chunk_count(void)
{
	int			pages = lease_summary_pages < 0 ? NBuffers :
		lease_summary_pages;

	return Max(MIN_CHUNKS, pages / CHUNK_BLOCKS);
}

Size
lease_summary_shmem_size(void)
{
	Size		size = MAXALIGN(sizeof(SummaryShared));

	size = add_size(size, MAXALIGN(mul_size(chunk_count(), sizeof(Chunk))));
	return add_size(size, mul_size(mul_size(chunk_count(), CHUNK_BLOCKS),
								   sizeof(Slot)));
}

/* Set up the shared memory; called under AddinShmemInitLock. */
void
lease_summary_shmem_init(void)
{
	bool		found;
	char	   *base;

	base = ShmemInitStruct("dlock summaries", lease_summary_shmem_size(),
						   &found);
	summary_shared = (SummaryShared *) base;
	if (found)
		return;

	memset(base, 0, lease_summary_shmem_size());
	summary_shared->lock = &GetNamedLWLockTranche("dlock")[0].lock;
	summary_shared->nchunks = chunk_count();
	pg_atomic_init_u32(&summary_shared->missing, 0);
	pg_atomic_init_u32(&summary_shared->freed, 0);
	base += MAXALIGN(sizeof(SummaryShared));
	summary_shared->chunks = (Chunk *) base;
	base += MAXALIGN(summary_shared->nchunks * sizeof(Chunk));
	summary_shared->slots = (Slot *) base;
	for (int i = 0; i < summary_shared->nchunks; i++)
		pg_atomic_init_u64(&summary_shared->chunks[i].deadline_us, 0);
	for (int i = 0; i < summary_shared->nchunks * CHUNK_BLOCKS; i++)
	{
		SpinLockInit(&summary_shared->slots[i].mutex);
		pg_atomic_init_u64(&summary_shared->slots[i].deadline_us, 0);
	}
}

/* Find a table's chunk by its key, or CHUNK_MISSING.  The lock is held. */
static int
search_chunk(Oid database, RelFileNumber file, BlockNumber number)
{
	for (int i = 0; i < summary_shared->nchunks; i++)
	{
		Chunk	   *chunk = &summary_shared->chunks[i];

		if (chunk->file == file && chunk->number == number &&
			chunk->database == database)
			return i;
	}
	return CHUNK_MISSING;
}

/* Hand out a chunk whose slots are all unknown, or CHUNK_MISSING. */
static int
allocate_chunk(RelFileNumber file, BlockNumber number)
{
	int			index = search_chunk(InvalidOid, InvalidRelFileNumber, 0);
	Chunk	   *chunk;

	if (index < 0)
		return CHUNK_MISSING;
	chunk = &summary_shared->chunks[index];
	for (int i = 0; i < CHUNK_BLOCKS; i++)
		summary_shared->slots[index * CHUNK_BLOCKS + i].known = false;
	pg_atomic_write_u64(&chunk->deadline_us, (uint64) PG_INT64_MIN);
	chunk->database = MyDatabaseId;
	chunk->number = number;
	chunk->file = file;
	return index;
}

/* Forget what this backend remembers. */
static void
reset_known_chunks(RelFileNumber file)
{
	for (BlockNumber i = 0; i < known_chunks.size; i++)
		known_chunks.chunks[i] = CHUNK_UNKNOWN;
	known_chunks.file = file;
	known_chunks.freed = pg_atomic_read_u32(&summary_shared->freed);
}

/* Make room to remember chunk "number" of a table; false: no memory. */
static bool
remember_chunks(RelFileNumber file, BlockNumber number)
{
	BlockNumber size = Max(known_chunks.size, 16);
	int		   *chunks;

	if (known_chunks.file != file ||
		known_chunks.freed != pg_atomic_read_u32(&summary_shared->freed))
		reset_known_chunks(file);
	if (number < known_chunks.size)
		return true;
	while (size <= number)
		size *= 2;
	chunks = MemoryContextAllocExtended(TopMemoryContext,
										size * sizeof(int), MCXT_ALLOC_NO_OOM);
	if (chunks == NULL)
		return false;
	for (BlockNumber i = 0; i < size; i++)
		chunks[i] = i < known_chunks.size ? known_chunks.chunks[i] :
			CHUNK_UNKNOWN;
	if (known_chunks.chunks)
		pfree(known_chunks.chunks);
	known_chunks.chunks = chunks;
	known_chunks.size = size;
	return true;
}

/* Find a chunk in shared memory, or hand one out, or CHUNK_MISSING. */
static int
search_or_allocate(RelFileNumber file, BlockNumber number)
{
	int			index;

	LWLockAcquire(summary_shared->lock, LW_SHARED);
	index = search_chunk(MyDatabaseId, file, number);
	LWLockRelease(summary_shared->lock);
	if (index >= 0)
		return index;

	LWLockAcquire(summary_shared->lock, LW_EXCLUSIVE);
	index = search_chunk(MyDatabaseId, file, number);
	if (index < 0)
		index = allocate_chunk(file, number);
	LWLockRelease(summary_shared->lock);
	return index;
}

/*
 * The chunk that a block belongs to, or NULL when there is none and none is
 * left, or for a table that this transaction is making (VACUUM FULL).  Never
 * fails, since its callers hold content locks over changed pages.
 */
static Chunk *
find_chunk(Relation rel, BlockNumber block)
{
	RelFileNumber file = compat_relation_file(rel);
	BlockNumber number = block / CHUNK_BLOCKS;
	bool		remembered;
	int			index = CHUNK_UNKNOWN;

	if (compat_relation_file_is_new(rel))
		return NULL;
	remembered = remember_chunks(file, number);
	if (remembered)
		index = known_chunks.chunks[number];
	if (index >= 0)
	{
		Chunk	   *chunk = &summary_shared->chunks[index];

		if (chunk->file == file && chunk->number == number &&
			chunk->database == MyDatabaseId)
			return chunk;
		index = CHUNK_UNKNOWN;
	}
	if (index == CHUNK_UNKNOWN)
	{
		index = search_or_allocate(file, number);
		if (remembered)
			known_chunks.chunks[number] = index;
	}
	if (index == CHUNK_MISSING)
	{
		pg_atomic_write_u32(&summary_shared->missing, 1);
		return NULL;
	}
	return &summary_shared->chunks[index];
}

static Slot *
chunk_slot(const Chunk *chunk, BlockNumber block)
{
	return &summary_shared->slots[(chunk - summary_shared->chunks) *
								  CHUNK_BLOCKS + block % CHUNK_BLOCKS];
}

/* Take back the chunks of a database's files other than "keep". */
void
lease_summary_forget(Oid database, RelFileNumber keep)
{
	LWLockAcquire(summary_shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < summary_shared->nchunks; i++)
	{
		Chunk	   *chunk = &summary_shared->chunks[i];

		if (chunk->database != database || chunk->file == keep)
			continue;
		chunk->database = InvalidOid;
		chunk->file = InvalidRelFileNumber;
		chunk->number = 0;
		pg_atomic_fetch_add_u32(&summary_shared->freed, 1);
	}
	LWLockRelease(summary_shared->lock);
}

/* The hash of an owner: 16 bits for each of the filter's. */
static uint64
owner_hash(lease_bytes owner)
{
	StaticAssertStmt(FILTER_HASHES * 16 <= 64, "a hash has too few bits");
	return hash_bytes_extended((const unsigned char *) owner.data,
							   (int) owner.length, 0);
}

/* Put an owner in a filter; return whether it was not there already. */
static bool
filter_add(uint64 *filter, uint64 hash)
{
	bool		added = false;

	for (int i = 0; i < FILTER_HASHES; i++, hash >>= 16)
	{
		uint32		bit = ((hash & 0xffff) * FILTER_BITS) >> 16;
		uint64		mask = UINT64CONST(1) << (bit % 64);

		added |= (filter[bit / 64] & mask) == 0;
		filter[bit / 64] |= mask;
	}
	return added;
}

static bool
filter_has(const uint64 *filter, uint64 hash)
{
	for (int i = 0; i < FILTER_HASHES; i++, hash >>= 16)
	{
		uint32		bit = ((hash & 0xffff) * FILTER_BITS) >> 16;

		if ((filter[bit / 64] & (UINT64CONST(1) << (bit % 64))) == 0)
			return false;
	}
	return true;
}

static int64
read_deadline(pg_atomic_uint64 *deadline_us)
{
	return (int64) pg_atomic_read_u64(deadline_us);
}

/*
 * Lower a chunk's bound.  The barrier and the one in refresh_chunk() make sure
 * that either this sees the bound reset there, or that sees our slot.
 */
static void
lower_chunk(Chunk *chunk, int64 deadline_us)
{
	uint64		old;

	pg_memory_barrier();
	old = pg_atomic_read_u64(&chunk->deadline_us);
	while ((int64) old > deadline_us &&
		   !pg_atomic_compare_exchange_u64(&chunk->deadline_us, &old,
										   (uint64) deadline_us))
		;
}

/* Start an empty summary. */
void
lease_summary_begin(LeaseSummary *summary)
{
	memset(summary, 0, sizeof(*summary));
	summary->deadline_us = PG_INT64_MAX;
}

/* Add an entry to a summary. */
void
lease_summary_add(LeaseSummary *summary, int64 deadline_us, lease_bytes owner)
{
	summary->deadline_us = Min(summary->deadline_us, deadline_us);
	summary->entries++;
	(void) filter_add(summary->owners, owner_hash(owner));
}

/*
 * Tell a bucket's summary of an entry that was added or whose deadline was
 * brought forward.  The caller holds the bucket's exclusive content lock.
 */
LeaseSummaryNote
lease_summary_note(Relation rel, BlockNumber block, int64 deadline_us,
				   lease_bytes owner)
{
	Chunk	   *chunk = find_chunk(rel, block);
	uint64		hash = owner_hash(owner);
	Slot	   *slot;
	bool		stale;

	if (chunk == NULL)
		return LEASE_SUMMARY_NOTED;
	slot = chunk_slot(chunk, block);
	SpinLockAcquire(&slot->mutex);
	if (slot->known)
	{
		if (read_deadline(&slot->deadline_us) > deadline_us)
			pg_atomic_write_u64(&slot->deadline_us, (uint64) deadline_us);
		if (filter_add(slot->owners, hash))
			slot->added++;
		stale = slot->added > slot->entries + STALE_SLACK;
	}
	else
		stale = true;
	SpinLockRelease(&slot->mutex);
	lower_chunk(chunk, deadline_us);
	return stale ? LEASE_SUMMARY_STALE : LEASE_SUMMARY_NOTED;
}

/*
 * Put a summary of all entries of a bucket in place; an empty one for a page
 * that is no bucket.  The caller holds the exclusive content lock since before
 * it read the entries.
 */
void
lease_summary_replace(Relation rel, BlockNumber block,
					  const LeaseSummary *summary)
{
	Chunk	   *chunk = find_chunk(rel, block);
	Slot	   *slot;

	if (chunk == NULL)
		return;
	slot = chunk_slot(chunk, block);
	SpinLockAcquire(&slot->mutex);
	slot->known = true;
	slot->added = 0;
	slot->entries = Min(summary->entries, PG_UINT16_MAX / 2);
	pg_atomic_write_u64(&slot->deadline_us, (uint64) summary->deadline_us);
	memcpy(slot->owners, summary->owners, sizeof(slot->owners));
	SpinLockRelease(&slot->mutex);
	lower_chunk(chunk, summary->deadline_us);
}

/* Say whether a block may hold a lease of this owner. */
bool
lease_summary_may_own(Relation rel, BlockNumber block, lease_bytes owner)
{
	Chunk	   *chunk = find_chunk(rel, block);
	uint64		hash = owner_hash(owner);
	Slot	   *slot;
	bool		result;

	if (chunk == NULL)
		return true;
	slot = chunk_slot(chunk, block);
	SpinLockAcquire(&slot->mutex);
	result = !slot->known || filter_has(slot->owners, hash);
	SpinLockRelease(&slot->mutex);
	return result;
}

static bool
slot_is_known(Slot *slot)
{
	bool		known;

	SpinLockAcquire(&slot->mutex);
	known = slot->known;
	SpinLockRelease(&slot->mutex);
	return known;
}

/* Say whether a slot's block may hold something that is over, or is unknown. */
static bool
slot_is_due(Slot *slot, int64 now_us)
{
	return !slot_is_known(slot) || read_deadline(&slot->deadline_us) <= now_us;
}

/* Raise a chunk's bound to the earliest of its slots; "end" as below. */
static void
refresh_chunk(Chunk *chunk, BlockNumber end)
{
	BlockNumber first = chunk->number * CHUNK_BLOCKS;
	int64		earliest = PG_INT64_MAX;

	pg_atomic_write_u64(&chunk->deadline_us, (uint64) PG_INT64_MAX);
	pg_memory_barrier();
	for (BlockNumber block = first; block < first + CHUNK_BLOCKS; block++)
	{
		Slot	   *slot = chunk_slot(chunk, block);

		/*
		 * Blocks that were added since "end" was read count once they are
		 * known; until then whoever added them has yet to lower the bound.
		 */
		if (slot_is_known(slot))
			earliest = Min(earliest, read_deadline(&slot->deadline_us));
		else if (block < end)
			earliest = PG_INT64_MIN;
	}
	lower_chunk(chunk, earliest);
}

/*
 * The first block from "from" on, below "end", that may hold something that is
 * over, or whose summary is unknown; "end" if there is none.  "end" is the
 * length of the relation.  Only the reaper calls this, block by block; once it
 * is past a chunk, that chunk's bound is brought up to date.
 */
BlockNumber
lease_summary_next_due(Relation rel, BlockNumber from, BlockNumber end,
					   int64 now_us)
{
	BlockNumber block = from;

	while (block < end)
	{
		Chunk	   *chunk = find_chunk(rel, block);

		if (chunk == NULL)
			return block;
		if (read_deadline(&chunk->deadline_us) > now_us)
		{
			block = (block / CHUNK_BLOCKS + 1) * CHUNK_BLOCKS;
			continue;
		}
		do
		{
			if (slot_is_due(chunk_slot(chunk, block), now_us))
				return block;
			block++;
		} while (block < end && block % CHUNK_BLOCKS != 0);
		refresh_chunk(chunk, end);
	}
	return end;
}

/*
 * Say whether the reaper has anything to do in a table, and through "held"
 * whether it may hold any lease.
 */
bool
lease_summary_is_due(Oid database, RelFileNumber file, int64 now_us,
					 bool *held)
{
	bool		due = pg_atomic_read_u32(&summary_shared->missing) != 0;

	*held = due;
	LWLockAcquire(summary_shared->lock, LW_SHARED);
	for (int i = 0; i < summary_shared->nchunks; i++)
	{
		Chunk	   *chunk = &summary_shared->chunks[i];
		int64		deadline_us = read_deadline(&chunk->deadline_us);

		if (chunk->file != file || chunk->database != database)
			continue;
		due |= deadline_us <= now_us;
		*held |= deadline_us != PG_INT64_MAX;
	}
	LWLockRelease(summary_shared->lock);
	return due;
}
