/*
 * lease_summary.c
 *	  A summary of each bucket in shared memory: next deadline and owners.
 *
 * The reaper, renew_all and release_all must find a few leases among millions
 * without reading the table.  For each block that is a bucket, shared memory
 * holds a lower bound of the deadlines in it (overflow pages included) and a
 * Bloom filter of the owners in it: a block that cannot concern the caller is
 * passed over unread.  Losing a summary loses nothing: a block without one, as
 * all are after a start, is simply read, and gets one then.
 *
 * The filter has 832 bits and sets four of them for an owner.  With 80
 * different owners in a bucket, about what a full page holds, one lookup in a
 * hundred is a false match.  (64 bits, one for an owner, would match 71 in a
 * hundred.)
 *
 * Summaries lie in chunks of 256 consecutive blocks of one table, which are
 * handed out on demand and never moved; each backend remembers where the
 * chunks of its table are.  A chunk is taken back when its table's file is no
 * longer in use; its key is checked with each use, under the lock below.
 *
 * Memory.  The area of shared memory has room for a few chunks, enough for most
 * servers, and for the heads of all chunks there may ever be.  More room is
 * dynamic shared memory, so that it follows the tables and not the settings:
 * segments, each twice as large as the one before, which stay until the server
 * stops.  The reaper adds a segment when some block was met for which no chunk
 * was left.  A backend maps all segments when it begins a call, while it holds
 * no lock and may fail.  If it later meets a chunk whose segment it has not
 * mapped, it cannot record its change; then it notes in the chunk's head that
 * the whole chunk is to be forgotten.
 *
 * Locking.  Summaries change only under the exclusive content lock of their
 * bucket, so that they agree with it; a spinlock in each keeps readers, who
 * hold no content lock, from seeing one half written.  Chunks are handed out
 * under summary->lock, which comes after content locks and is the last in the
 * lock order.
 *
 * A walk over the blocks in order finds every lease that existed when it began,
 * because a split moves entries only to a page added at the end of the
 * relation, whose summary is unknown at first.
 *
 * A lower bound may be too low, after a release or a renewal.  The reaper then
 * reads the bucket once and finds out.  Owners that have left stay in a filter
 * until it is made anew.  That happens once more owners were added than it had
 * entries, and STALE_SLACK more.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lease_area.h"
#include "lease_summary.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "port/pg_bitutils.h"
#include "storage/dsm.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#define CHUNK_BLOCKS	256
#define MIN_CHUNKS		64

/* The most pages with dlock.tracked_pages = -1: 256 GB of tables. */
#define DEFAULT_PAGES	(1 << 25)

/*
 * Chunks of the first segment, which is in the area of shared memory, and the most
 * segments there can be.
 */
#define BASE_CHUNKS		16
#define MAX_SEGMENTS	24
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

/* The head of a chunk.  Under summary->lock, except the atomics. */
typedef struct Chunk
{
	/* whose chunk it is; file is InvalidRelFileNumber: nobody's */
	Oid			database;
	RelFileNumber file;
	BlockNumber number;			/* first block / CHUNK_BLOCKS */
	int			next;			/* of this table, or of the free ones */

	/* lower bound of the slots' deadlines; PG_INT64_MIN if any is unknown */
	pg_atomic_uint64 deadline_us;

	/*
	 * How many times all slots were to be forgotten, and how many times that
	 * was done; while these differ, nothing is known.
	 */
	pg_atomic_uint32 forget_wanted;
	pg_atomic_uint32 forget_done;
} Chunk;

typedef struct SummaryShared
{
	LWLock		lock;			/* protects the ownership of chunks */
	int			max_chunks;
	int			first_free;		/* a list of chunks; CHUNK_NONE ends it */
	pg_atomic_uint32 nfree;		/* its length */
	pg_atomic_uint32 freed;		/* grows when it gets longer */
	pg_atomic_uint32 nsegments; /* all below this exist, for good */
	pg_atomic_uint32 growing;	/* a process is adding one */
	dsm_handle	segments[MAX_SEGMENTS]; /* but the first */
	Chunk		chunks[FLEXIBLE_ARRAY_MEMBER];
} SummaryShared;

static SummaryShared *summary_shared = NULL;

#define CHUNK_NONE		(-1)

/* A chunk's index if there was none, and none was left. */
#define CHUNK_MISSING	(-2)

/* The segments that this backend has mapped. */
static Slot *mapped_segments[MAX_SEGMENTS];
static uint32 nmapped = 0;

/*
 * What this backend remembers: the indexes of a table's chunks, by number, or
 * CHUNK_NONE.  As long as no chunk becomes free, a missing one stays missing
 * for everybody.
 */
static struct
{
	RelFileNumber file;
	BlockNumber size;
	int		   *chunks;
	uint32		freed;			/* summary_shared->freed, as of CHUNK_MISSING */
}			known_chunks;

/* How many chunks there may be: by dlock.tracked_pages, or by shared_buffers. */
static int
chunk_count(void)
{
	int			pages = lease_area_sizes->tracked_pages < 0 ?
		Min(NBuffers, DEFAULT_PAGES) : lease_area_sizes->tracked_pages;

	return Max(MIN_CHUNKS, pages / CHUNK_BLOCKS);
}

/* The first chunk of a segment. */
static int
segment_start(uint32 segment)
{
	return BASE_CHUNKS * ((1 << segment) - 1);
}

/* How many chunks a segment has; 0: there is no such segment. */
static int
segment_length(uint32 segment)
{
	int			start = segment_start(segment);

	return Max(0, Min(summary_shared->max_chunks - start,
					  BASE_CHUNKS << segment));
}

/* The segment that a chunk is in. */
static uint32
segment_of(int index)
{
	return (uint32) pg_leftmost_one_pos32((uint32) (index / BASE_CHUNKS + 1));
}

/* Where the first segment's slots are. */
static Size
base_start(void)
{
	return MAXALIGN(add_size(offsetof(SummaryShared, chunks),
							 mul_size(chunk_count(), sizeof(Chunk))));
}

Size
lease_summary_size(void)
{
	return add_size(base_start(), BASE_CHUNKS * CHUNK_BLOCKS * sizeof(Slot));
}

/* Make the slots of a segment. */
static void
init_slots(uint32 segment, Slot *slots)
{
	int			count = segment_length(segment) * CHUNK_BLOCKS;

	for (int i = 0; i < count; i++)
	{
		SpinLockInit(&slots[i].mutex);
		slots[i].known = false;
		pg_atomic_init_u64(&slots[i].deadline_us, 0);
	}
}

/* Add the chunks of a new segment to the free list; the lock is held. */
static void
add_segment(uint32 segment)
{
	int			start = segment_start(segment);
	int			length = segment_length(segment);

	for (int i = start + length - 1; i >= start; i--)
	{
		summary_shared->chunks[i].next = summary_shared->first_free;
		summary_shared->first_free = i;
	}
	pg_atomic_fetch_add_u32(&summary_shared->nfree, length);
	pg_atomic_fetch_add_u32(&summary_shared->freed, 1);
	pg_write_barrier();
	pg_atomic_write_u32(&summary_shared->nsegments, segment + 1);
}

/* Called by lease_area.c. */
void
lease_summary_attach(char *start, bool make)
{
	summary_shared = (SummaryShared *) start;
	mapped_segments[0] = (Slot *) (start + base_start());
	nmapped = 1;
	if (make)
	{
		lease_area_init_lock(&summary_shared->lock);
		summary_shared->max_chunks = chunk_count();
		summary_shared->first_free = CHUNK_NONE;
		pg_atomic_init_u32(&summary_shared->nfree, 0);
		pg_atomic_init_u32(&summary_shared->freed, 0);
		pg_atomic_init_u32(&summary_shared->nsegments, 0);
		pg_atomic_init_u32(&summary_shared->growing, 0);
		for (int i = 0; i < summary_shared->max_chunks; i++)
		{
			Chunk	   *chunk = &summary_shared->chunks[i];

			chunk->database = InvalidOid;
			chunk->file = InvalidRelFileNumber;
			pg_atomic_init_u64(&chunk->deadline_us, 0);
			pg_atomic_init_u32(&chunk->forget_wanted, 0);
			pg_atomic_init_u32(&chunk->forget_done, 0);
		}
		init_slots(0, mapped_segments[0]);
		add_segment(0);
	}
}

/*
 * Map the segments that exist.  Called at the beginning of a call, without
 * locks, since this may fail.
 */
void
lease_summary_map(void)
{
	uint32		nsegments = pg_atomic_read_u32(&summary_shared->nsegments);

	if (nmapped == nsegments)
		return;
	pg_read_barrier();
	while (nmapped < nsegments)
	{
		dsm_segment *segment = dsm_attach(summary_shared->segments[nmapped]);

		if (segment == NULL)
			elog(ERROR, "could not map a segment of dlock summaries");
		dsm_pin_mapping(segment);
		mapped_segments[nmapped++] = dsm_segment_address(segment);
	}
}

/*
 * Create the memory of the next segment, or return NULL.  Without memory,
 * blocks are read instead, so that is no error, only a line in the log.
 */
static dsm_segment *
create_segment(uint32 segment)
{
	static bool logged = false;
	MemoryContext memory = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	dsm_segment *volatile created = NULL;
	Size		size = segment_length(segment) * CHUNK_BLOCKS * sizeof(Slot);

	CurrentResourceOwner = NULL;	/* it is not this transaction's */
	PG_TRY();
	{
		HOLD_INTERRUPTS();
		created = dsm_create(size, DSM_CREATE_NULL_IF_MAXSEGMENTS);
		RESUME_INTERRUPTS();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(memory);
		error = CopyErrorData();
		FlushErrorState();
		if (!logged)
			ereport(LOG,
					(errmsg("could not get more memory for summaries of lock tables: %s",
							error->message),
					 errdetail("Calls that search all pages have to read those without a summary.")));
		logged = true;
		FreeErrorData(error);
	}
	PG_END_TRY();
	CurrentResourceOwner = owner;
	if (created != NULL)
		logged = false;
	return created;
}

/* Add a segment, if no chunk is free and there may be one.  Without locks. */
static void
grow(void)
{
	uint32		idle = 0;
	uint32		segment;
	dsm_segment *created;

	if (pg_atomic_read_u32(&summary_shared->nfree) > 0 || !IsUnderPostmaster ||
		!pg_atomic_compare_exchange_u32(&summary_shared->growing, &idle, 1))
		return;
	segment = pg_atomic_read_u32(&summary_shared->nsegments);
	if (segment == nmapped && segment < MAX_SEGMENTS &&
		segment_length(segment) > 0 &&
		(created = create_segment(segment)) != NULL)
	{
		dsm_pin_segment(created);
		mapped_segments[nmapped++] = dsm_segment_address(created);
		init_slots(segment, mapped_segments[segment]);
		LWLockAcquire(&summary_shared->lock, LW_EXCLUSIVE);
		summary_shared->segments[segment] = dsm_segment_handle(created);
		add_segment(segment);
		LWLockRelease(&summary_shared->lock);
	}
	pg_atomic_write_u32(&summary_shared->growing, 0);
}

/* The slots of a chunk, or NULL where this backend has not mapped them. */
static Slot *
chunk_slots(const Chunk *chunk)
{
	int			index = (int) (chunk - summary_shared->chunks);
	uint32		segment = segment_of(index);

	if (segment >= nmapped)
		return NULL;
	return mapped_segments[segment] +
		(index - segment_start(segment)) * CHUNK_BLOCKS;
}

/* Take back all chunks of a database.  The lock is held exclusively. */
static void
take_back(LeaseSummaries *summaries)
{
	while (summaries->first_chunk != CHUNK_NONE)
	{
		int			index = summaries->first_chunk;
		Chunk	   *chunk = &summary_shared->chunks[index];

		summaries->first_chunk = chunk->next;
		chunk->database = InvalidOid;
		chunk->file = InvalidRelFileNumber;
		chunk->next = summary_shared->first_free;
		summary_shared->first_free = index;
		pg_atomic_fetch_add_u32(&summary_shared->nfree, 1);
	}
	summaries->file = InvalidRelFileNumber;
	summaries->chunks = 0;
	pg_atomic_fetch_add_u32(&summary_shared->freed, 1);
}

/* A database's entry has come into use: it has no summaries yet. */
void
lease_summary_begin_database(LeaseSummaries *summaries)
{
	summaries->file = InvalidRelFileNumber;
	summaries->chunks = 0;
	summaries->first_chunk = CHUNK_NONE;
	pg_atomic_write_u32(&summaries->untracked, 0);
}

/* A database is gone: take back its chunks. */
void
lease_summary_forget(LeaseSummaries *summaries)
{
	LWLockAcquire(&summary_shared->lock, LW_EXCLUSIVE);
	take_back(summaries);
	LWLockRelease(&summary_shared->lock);
}

/* Make room to remember chunk "number" of a table; false: no memory. */
static bool
remember_chunks(RelFileNumber file, BlockNumber number)
{
	BlockNumber size = Max(known_chunks.size, 16);
	int		   *chunks;

	if (known_chunks.file != file ||
		known_chunks.freed != pg_atomic_read_u32(&summary_shared->freed))
	{
		for (BlockNumber i = 0; i < known_chunks.size; i++)
			known_chunks.chunks[i] = CHUNK_NONE;
		known_chunks.file = file;
		known_chunks.freed = pg_atomic_read_u32(&summary_shared->freed);
	}
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
			CHUNK_NONE;
	if (known_chunks.chunks)
		pfree(known_chunks.chunks);
	known_chunks.chunks = chunks;
	known_chunks.size = size;
	return true;
}

/*
 * Find a chunk among those of its table, or CHUNK_NONE; remember those met on
 * the way.  The lock is held.
 */
static int
search_chunk(const LeaseSummaries *summaries, RelFileNumber file,
			 BlockNumber number)
{
	int			found = CHUNK_NONE;

	/* mostly the caller wants a new one, at the end of the table */
	if (summaries->file != file || number >= summaries->chunks)
		return CHUNK_NONE;
	for (int i = summaries->first_chunk; i != CHUNK_NONE;
		 i = summary_shared->chunks[i].next)
	{
		BlockNumber met = summary_shared->chunks[i].number;

		if (met == number)
			found = i;
		if (known_chunks.file == file && met < known_chunks.size)
			known_chunks.chunks[met] = i;
	}
	return found;
}

/*
 * Hand out a chunk whose slots are all unknown; CHUNK_MISSING when none is left,
 * and CHUNK_NONE when we cannot reach it.  The lock is held exclusively.
 */
static int
allocate_chunk(LeaseSummaries *summaries, RelFileNumber file,
			   BlockNumber number)
{
	int			index;
	Chunk	   *chunk;
	Slot	   *slots;

	/* a new file: nobody uses the one before any more */
	if (summaries->file != file)
		take_back(summaries);
	index = summary_shared->first_free;
	if (index == CHUNK_NONE)
		return CHUNK_MISSING;
	chunk = &summary_shared->chunks[index];
	slots = chunk_slots(chunk);
	if (slots == NULL)
		return CHUNK_NONE;
	summary_shared->first_free = chunk->next;
	pg_atomic_fetch_sub_u32(&summary_shared->nfree, 1);
	for (int i = 0; i < CHUNK_BLOCKS; i++)
		slots[i].known = false;
	pg_atomic_write_u64(&chunk->deadline_us, (uint64) PG_INT64_MIN);
	pg_atomic_write_u32(&chunk->forget_done,
						pg_atomic_read_u32(&chunk->forget_wanted));
	chunk->database = MyDatabaseId;
	chunk->number = number;
	chunk->file = file;
	chunk->next = summaries->first_chunk;
	summaries->first_chunk = index;
	summaries->file = file;
	summaries->chunks = Max(summaries->chunks, number + 1);
	return index;
}

/* Find a chunk in shared memory, or hand one out; returns as above. */
static int
search_or_allocate(LeaseSummaries *summaries, RelFileNumber file,
				   BlockNumber number)
{
	int			index;

	LWLockAcquire(&summary_shared->lock, LW_SHARED);
	index = search_chunk(summaries, file, number);
	LWLockRelease(&summary_shared->lock);
	if (index != CHUNK_NONE)
		return index;

	LWLockAcquire(&summary_shared->lock, LW_EXCLUSIVE);
	index = search_chunk(summaries, file, number);
	if (index == CHUNK_NONE)
		index = allocate_chunk(summaries, file, number);
	LWLockRelease(&summary_shared->lock);
	return index;
}

/*
 * The chunk that a block belongs to, or NULL when there is none and none is
 * left, or for a table that this transaction is making (VACUUM FULL).  Never
 * fails, since its callers hold content locks over changed pages.
 */
static Chunk *
find_chunk(LeaseSummaries *summaries, Relation rel, BlockNumber block)
{
	RelFileNumber file = compat_relation_file(rel);
	BlockNumber number = block / CHUNK_BLOCKS;
	bool		remembered;
	int			index = CHUNK_NONE;

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
		index = CHUNK_NONE;
	}
	if (index == CHUNK_NONE)
		index = search_or_allocate(summaries, file, number);
	if (remembered)
		known_chunks.chunks[number] = index;
	if (index < 0)
	{
		pg_atomic_write_u32(&summaries->untracked, 1);
		return NULL;
	}
	return &summary_shared->chunks[index];
}

/*
 * The slot of a block.  NULL: there is none, or this backend cannot reach it;
 * in the latter case "*chunk" is set.
 */
static Slot *
find_slot(LeaseSummaries *summaries, Relation rel, BlockNumber block,
		  Chunk **chunk)
{
	Slot	   *slots;

	*chunk = find_chunk(summaries, rel, block);
	if (*chunk == NULL)
		return NULL;
	slots = chunk_slots(*chunk);
	return slots == NULL ? NULL : &slots[block % CHUNK_BLOCKS];
}

/* The hash of an owner: 16 bits for each of the filter's. */
uint64
lease_summary_owner_hash(lease_bytes owner)
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
 * that either we see the bound that it has reset, or it sees our slot.
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

/* Note that all slots of a chunk are to be forgotten, as we can reach none. */
static void
want_forgotten(Chunk *chunk)
{
	pg_atomic_fetch_add_u32(&chunk->forget_wanted, 1);
	lower_chunk(chunk, PG_INT64_MIN);
}

/* Say whether all slots of a chunk are still to be forgotten. */
static bool
is_to_be_forgotten(Chunk *chunk)
{
	return pg_atomic_read_u32(&chunk->forget_wanted) !=
		pg_atomic_read_u32(&chunk->forget_done);
}

/* Forget them; only the reaper calls this. */
static void
forget_slots(Chunk *chunk, Slot *slots)
{
	uint32		wanted = pg_atomic_read_u32(&chunk->forget_wanted);

	pg_memory_barrier();
	for (int i = 0; i < CHUNK_BLOCKS; i++)
	{
		SpinLockAcquire(&slots[i].mutex);
		slots[i].known = false;
		SpinLockRelease(&slots[i].mutex);
	}
	pg_memory_barrier();
	pg_atomic_write_u32(&chunk->forget_done, wanted);
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
	(void) filter_add(summary->owners, lease_summary_owner_hash(owner));
}

/* Say whether an owner, known by its hash, may be among a summary's. */
bool
lease_summary_has_owner(const LeaseSummary *summary, uint64 hash)
{
	return filter_has(summary->owners, hash);
}

/*
 * Tell a bucket's summary of an entry that was added or whose deadline was
 * brought forward.  The caller holds the bucket's exclusive content lock.
 */
LeaseSummaryNote
lease_summary_note(LeaseSummaries *summaries, Relation rel, BlockNumber block,
				   int64 deadline_us, lease_bytes owner)
{
	Chunk	   *chunk;
	Slot	   *slot = find_slot(summaries, rel, block, &chunk);
	uint64		hash = lease_summary_owner_hash(owner);
	bool		stale;

	if (slot == NULL)
	{
		if (chunk != NULL)
			want_forgotten(chunk);
		return LEASE_SUMMARY_NOTED;
	}
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
lease_summary_replace(LeaseSummaries *summaries, Relation rel,
					  BlockNumber block, const LeaseSummary *summary)
{
	Chunk	   *chunk;
	Slot	   *slot = find_slot(summaries, rel, block, &chunk);

	if (slot == NULL)
	{
		if (chunk != NULL)
			want_forgotten(chunk);
		return;
	}
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
lease_summary_may_own(LeaseSummaries *summaries, Relation rel,
					  BlockNumber block, lease_bytes owner)
{
	Chunk	   *chunk;
	Slot	   *slot = find_slot(summaries, rel, block, &chunk);
	uint64		hash = lease_summary_owner_hash(owner);
	bool		result;

	if (slot == NULL || is_to_be_forgotten(chunk))
		return true;
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
refresh_chunk(Chunk *chunk, Slot *slots, BlockNumber end)
{
	BlockNumber first = chunk->number * CHUNK_BLOCKS;
	int64		earliest = PG_INT64_MAX;

	pg_atomic_write_u64(&chunk->deadline_us, (uint64) PG_INT64_MAX);
	pg_memory_barrier();
	for (BlockNumber block = first; block < first + CHUNK_BLOCKS; block++)
	{
		Slot	   *slot = &slots[block % CHUNK_BLOCKS];

		/*
		 * Blocks added since "end" was read count once they are known; before
		 * that, the backend that added them has yet to lower the bound.
		 */
		if (slot_is_known(slot))
			earliest = Min(earliest, read_deadline(&slot->deadline_us));
		else if (block < end)
			earliest = PG_INT64_MIN;
	}
	lower_chunk(chunk, earliest);
}

/*
 * The reaper begins a round over a table: make room for the blocks that had
 * none.  The round meets those that still have none again.  Without locks,
 * before the length of the relation is read; all segments are mapped.
 */
void
lease_summary_begin_round(LeaseSummaries *summaries)
{
	if (pg_atomic_exchange_u32(&summaries->untracked, 0) != 0)
		grow();
}

/*
 * The first block from "from" on, below "end", that may hold something that is
 * over, or whose summary is unknown; "end" if there is none.  "end" is the
 * length of the relation.  Only the reaper calls this, block by block; once it
 * is past a chunk, that chunk's bound is brought up to date.
 */
BlockNumber
lease_summary_next_due(LeaseSummaries *summaries, Relation rel,
					   BlockNumber from, BlockNumber end, int64 now_us)
{
	BlockNumber block = from;

	while (block < end)
	{
		Chunk	   *chunk = find_chunk(summaries, rel, block);
		Slot	   *slots = chunk == NULL ? NULL : chunk_slots(chunk);

		if (slots == NULL)
			return block;
		if (is_to_be_forgotten(chunk))
			forget_slots(chunk, slots);
		if (read_deadline(&chunk->deadline_us) > now_us)
		{
			block = (block / CHUNK_BLOCKS + 1) * CHUNK_BLOCKS;
			continue;
		}
		do
		{
			if (slot_is_due(&slots[block % CHUNK_BLOCKS], now_us))
				return block;
			block++;
		} while (block < end && block % CHUNK_BLOCKS != 0);
		refresh_chunk(chunk, slots, end);
	}
	return end;
}

/*
 * Say whether the reaper has anything to do in a database, and through "held"
 * whether it may hold any lease.
 */
bool
lease_summary_is_due(LeaseSummaries *summaries, int64 now_us, bool *held)
{
	bool		due = pg_atomic_read_u32(&summaries->untracked) != 0;

	*held = due;
	LWLockAcquire(&summary_shared->lock, LW_SHARED);
	for (int i = summaries->first_chunk; i != CHUNK_NONE;
		 i = summary_shared->chunks[i].next)
	{
		Chunk	   *chunk = &summary_shared->chunks[i];
		int64		deadline_us = read_deadline(&chunk->deadline_us);

		due |= deadline_us <= now_us;
		*held |= deadline_us != PG_INT64_MAX;
	}
	LWLockRelease(&summary_shared->lock);
	return due;
}
