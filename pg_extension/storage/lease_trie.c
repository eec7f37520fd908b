/*
 * lease_trie.c
 *	  The lock table's structure: a hash trie with a lazily filled directory.
 *
 * A bucket of depth d and number b holds the names whose hash ends in the d
 * bits of b.  There is bucket 0 of depth 0 at first, which is split into
 * 2^START_DEPTH at once so that the first leases do not all queue for one
 * content lock.  When a bucket is full it is split by the next bit: it keeps its
 * number and gets depth d + 1, and the entries with that bit set move to a new
 * bucket b + 2^d.  Only the full bucket splits, so a call costs the same with
 * ten leases and ten million.
 *
 * The directory is an array of block numbers by bucket number, on pages of
 * LEASE_DIRECTORY_ENTRIES, which the metapage lists; 0 stands for a bucket
 * that its parent has not split off yet.  To find a name, look for the most of
 * its hash's bits for which there is a block.
 *
 * Entries of the directory are set once and never change, and buckets never
 * merge.  A bucket page says which hashes it is for, so a backend with an
 * outdated view of the directory lands on the parent and notices.  This lets
 * each backend keep a small cache; a call that hits it reads nothing but the
 * bucket.
 *
 * When splitting cannot help, because the names on a full bucket and the new
 * one agree in LEASE_MAX_DEPTH bits (one name with many holders, as a rule),
 * the bucket gets overflow pages for names with these bits, its chain.  Other
 * names stay off the chain, so that it costs them nothing, and when they fill
 * the bucket it is split like any other: the chain goes as a whole to the side
 * that its bits say.  The content lock of a bucket protects its overflow pages:
 * to change one, a backend holds both locks exclusively; to follow the chain,
 * it needs only the bucket's lock.
 *
 * Pages are added at the end of the relation.  Emptied overflow pages go to a
 * free list, which serves overflow and directory pages only: a bucket always
 * gets a page from the end, because walks over the blocks in order rely on
 * entries moving towards the end (lease_summary.c).
 *
 * Lock order: bucket, its overflow pages in order, a new page, metapage, a page
 * from the free list, directory page.  Nobody waits for a lock on a page of the
 * free list while holding one that precedes it, except the backend that takes
 * the page, which holds the metapage.  Readers that look up the directory hold
 * nothing else meanwhile.  Redo takes its locks in the order that lease_storage.h
 * asks for.  Before we lock a block whose number was read from a page, we check
 * that we do not hold it already, so that a damaged page leads to an error and
 * not to a wait for ourselves.
 *
 * Crashes: every step is one WAL record, so a split, an overflow page, a freed
 * page exists whole or not at all.  A page that was added and not used before a
 * crash is all zero; the reaper puts it in the free list.  It does the same
 * with overflow pages that a crash left empty: after a crash it visits every
 * bucket.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lease_crash.h"
#include "miscadmin.h"
#include "storage/lease_storage.h"

/* A new table has this many bits worth of buckets: 64 pages, half a megabyte. */
#define START_DEPTH		6

#define CACHE_SLOTS		4096

/* The cache is searched for buckets of this many depths, the deepest first. */
#define CACHE_LEVELS	4

/*
 * One use of a bucket in so many looks for its buffer in the shared table of
 * buffers, so that eviction sees the page in use.
 */
#define BUFFER_USES		16

/* A bucket that this backend has met, and where. */
typedef struct KnownBucket
{
	uint32		bucket;
	uint16		depth;
	uint16		uses;			/* of the buffer, since it was looked for */
	BlockNumber block;			/* 0: empty */
	Buffer		buffer;			/* the page was in */
} KnownBucket;

/* What this backend knows of the table it used last; parts may be outdated. */
static struct
{
	RelFileNumber file;			/* InvalidRelFileNumber: nothing */
	uint64		seed;
	uint32		depth;			/* from the metapage */
	BlockNumber directory[LEASE_META_DIRECTORIES];	/* the same */
	KnownBucket slots[CACHE_SLOTS]; /* by bucket number */
}			cache;

/* Length of the relation; every page in it has been locked by its maker. */
BlockNumber
lease_trie_blocks(Relation rel)
{
	BlockNumber blocks;

	/* see compat_extend_locked() */
	Assert(lease_may_wait());
	LockRelationForExtension(rel, ExclusiveLock);
	blocks = RelationGetNumberOfBlocks(rel);
	UnlockRelationForExtension(rel, ExclusiveLock);
	return blocks;
}

/* Say whether a page has been written; the block exists. */
static bool
is_written(Relation rel, BlockNumber block)
{
	Buffer		buffer = ReadBuffer(rel, block);
	bool		written;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	written = !PageIsNew(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	return written;
}

/*
 * Say whether the table has been used at all.  A crash may have left it with
 * any number of pages that are all zero, but never with the metapage alone: one
 * record makes that and the root bucket.
 */
bool
lease_trie_exists(Relation rel)
{
	if (cache.file == compat_relation_file(rel))
		return true;
	if (RelationGetNumberOfBlocks(rel) <= LEASE_ROOT_BLOCK)
		return false;
	if (is_written(rel, LEASE_META_BLOCK))
		return true;
	if (is_written(rel, LEASE_ROOT_BLOCK))
		lease_page_damaged(rel, LEASE_META_BLOCK);
	return false;
}

/* Make the metapage and the root bucket; "seed" 0: with a seed of its own. */
static void
create_root(Relation rel, uint64 seed)
{
	Buffer		buffers[2];
	LeaseChange change;
	LeaseMeta  *meta;

	if (seed == 0 && !pg_strong_random(&seed, sizeof(seed)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random number")));

	/* After a crash there may be pages, all zero. */
	for (BlockNumber block = 0; block < lengthof(buffers); block++)
	{
		if (block < RelationGetNumberOfBlocks(rel))
		{
			buffers[block] = ReadBuffer(rel, block);
			LockBuffer(buffers[block], BUFFER_LOCK_EXCLUSIVE);
		}
		else
			buffers[block] = compat_extend_locked(rel);
		DLOCK_CRASH_POINT("root: page added");
		if (BufferGetBlockNumber(buffers[block]) != block ||
			!PageIsNew(BufferGetPage(buffers[block])))
			lease_page_damaged(rel, block);
	}

	lease_change_begin(&change, rel, true);
	for (BlockNumber block = 0; block < lengthof(buffers); block++)
		lease_change_page(&change, buffers[block], true);
	lease_change_start(&change);
	lease_page_init(change.pages[0].page, LEASE_PAGE_META, 0, 0);
	lease_page_init(change.pages[1].page, LEASE_PAGE_BUCKET, 0, 0);
	meta = lease_page_meta(change.pages[0].page);
	meta->magic = LEASE_META_MAGIC;
	meta->format = LEASE_FORMAT;
	meta->database = MyDatabaseId;
	meta->seed = seed;
	meta->free_head = InvalidBlockNumber;
	DLOCK_CRASH_POINT("root: not logged");
	lease_change_finish(&change);
	DLOCK_CRASH_POINT("root: logged");
	UnlockReleaseBuffer(buffers[0]);
	UnlockReleaseBuffer(buffers[1]);
}

/* Make the cache be about this table, which exists. */
static void
attach(Relation rel)
{
	LeaseMeta	meta;

	if (cache.file == compat_relation_file(rel))
		return;
	lease_meta_read(rel, &meta);
	memset(&cache, 0, sizeof(cache));
	cache.seed = meta.seed;
	cache.depth = meta.depth;
	memcpy(cache.directory, meta.directory, sizeof(cache.directory));
	cache.file = compat_relation_file(rel);
}

/* Read again what the metapage says of the directory. */
static void
refresh(Relation rel)
{
	Buffer		buffer = lease_meta_lock(rel, BUFFER_LOCK_SHARE);
	LeaseMeta  *meta = lease_page_meta(BufferGetPage(buffer));

	cache.depth = meta->depth;
	memcpy(cache.directory, meta->directory, sizeof(cache.directory));
	UnlockReleaseBuffer(buffer);
}

/* The hash of a name; seeded, so that nobody can aim at a bucket. */
uint32
lease_trie_hash(Relation rel, lease_bytes name)
{
	attach(rel);
	return (uint32) hash_bytes_extended((const unsigned char *) name.data,
										(int) name.length, cache.seed);
}

/*
 * Look a bucket up in the directory as the cache knows it; 0: not there.  The
 * directory page stays locked, in "held", for the next look.
 */
static BlockNumber
read_directory(Relation rel, uint32 bucket, Buffer *held)
{
	BlockNumber page = cache.directory[bucket / LEASE_DIRECTORY_ENTRIES];
	BlockNumber block;

	if (bucket == 0)
		return LEASE_ROOT_BLOCK;
	if (page == 0)
		return 0;
	if (!BufferIsValid(*held) || BufferGetBlockNumber(*held) != page)
	{
		if (BufferIsValid(*held))
			UnlockReleaseBuffer(*held);
		if (page >= RelationGetNumberOfBlocks(rel))
			lease_page_damaged(rel, LEASE_META_BLOCK);
		*held = ReadBuffer(rel, page);
		LockBuffer(*held, BUFFER_LOCK_SHARE);
		lease_page_check_kind(rel, *held, LEASE_PAGE_DIRECTORY);
	}
	block = lease_page_directory(BufferGetPage(*held))
		[bucket % LEASE_DIRECTORY_ENTRIES];
	if (block != 0 && block >= RelationGetNumberOfBlocks(rel))
		lease_page_damaged(rel, page);
	return block;
}

/*
 * Look a hash up in the directory: a bucket's block, at worst an ancestor's.
 *
 * If a bucket with more of the hash's bits exists, so do all with fewer: it
 * came from them by splits.  So a binary search finds the deepest, and one name
 * that has made its bucket deep costs the others no page for each bit.
 */
static BlockNumber
search_directory(Relation rel, uint32 hash)
{
	BlockNumber found = LEASE_ROOT_BLOCK;
	Buffer		held = InvalidBuffer;
	uint32		low = 0;		/* there is a bucket with so many bits */
	uint32		high = cache.depth; /* and none with more than these */

	while (low < high)
	{
		uint32		d = low + (high - low + 1) / 2;
		BlockNumber block = read_directory(rel, hash & lease_depth_mask(d),
										   &held);

		if (block != 0)
		{
			found = block;
			low = d;
		}
		else
			high = d - 1;
	}
	if (BufferIsValid(held))
		UnlockReleaseBuffer(held);
	return found;
}

/* Look a hash up among the buckets this backend has met; NULL: not there. */
static KnownBucket *
search_cache(uint32 hash)
{
	for (uint32 up = 0; up < CACHE_LEVELS && up <= cache.depth; up++)
	{
		uint32		depth = cache.depth - up;
		uint32		bucket = hash & lease_depth_mask(depth);
		KnownBucket *known = &cache.slots[bucket % CACHE_SLOTS];

		if (known->block != 0 && known->bucket == bucket &&
			known->depth == depth)
			return known;
	}
	return NULL;
}

/* Put a bucket in the cache. */
static void
remember_bucket(const LeasePageSpecial *special, Buffer buffer)
{
	KnownBucket *known = &cache.slots[special->bucket % CACHE_SLOTS];

	known->bucket = special->bucket;
	known->depth = special->depth;
	known->block = BufferGetBlockNumber(buffer);
	known->buffer = buffer;
}

/* Pin the page of a bucket that this backend has met. */
static Buffer
read_known(Relation rel, KnownBucket *known)
{
	if (++known->uses % BUFFER_USES != 0 &&
		compat_read_recent(rel, known->block, known->buffer))
		return known->buffer;
	return ReadBuffer(rel, known->block);
}

/*
 * Lock the bucket for a hash: its page, pinned and locked in the given mode.
 *
 * The cache may send us to an ancestor of the bucket, and so may the directory
 * if the bucket was split since we looked.  A bucket can be split at most
 * LEASE_MAX_DEPTH times, so more attempts than that mean damage.
 */
Buffer
lease_trie_lock(Relation rel, uint32 hash, int mode)
{
	KnownBucket *known;

	attach(rel);
	known = search_cache(hash);
	for (int attempt = 0; attempt <= LEASE_MAX_DEPTH + 2; attempt++)
	{
		Buffer		buffer;
		LeasePageSpecial *special;

		/* only the first lookup may rely on the cache */
		if (attempt > 0)
			refresh(rel);
		buffer = known != NULL ? read_known(rel, known) :
			ReadBuffer(rel, search_directory(rel, hash));
		LockBuffer(buffer, mode);
		special = lease_page_check(rel, buffer);
		if (lease_page_is_bucket_for(special, hash))
		{
			remember_bucket(special, buffer);
			return buffer;
		}
		UnlockReleaseBuffer(buffer);
		known = NULL;
	}
	lease_page_damaged(rel, search_directory(rel, hash));
}

/*
 * Lock one more bucket exclusively, while holding others that come before it in
 * the order of lease_hash_position() and are not for this hash.
 *
 * We must not wait here for a page that we hold already or that comes before
 * one that we hold, as an ancestor of the bucket may.  So we only try to lock
 * what the cache says.  The directory as it is now includes all splits of the
 * buckets we hold.  So it leads to the bucket, or to an ancestor whose range
 * begins after the buckets we hold.
 */
Buffer
lease_trie_lock_more(Relation rel, uint32 hash)
{
	KnownBucket *known;

	attach(rel);
	known = search_cache(hash);
	for (int attempt = 0; attempt <= LEASE_MAX_DEPTH + 2; attempt++)
	{
		Buffer		buffer;
		LeasePageSpecial *special;

		if (known == NULL)
		{
			refresh(rel);
			buffer = ReadBuffer(rel, search_directory(rel, hash));
			LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		}
		else
		{
			buffer = read_known(rel, known);
			known = NULL;
			if (!ConditionalLockBuffer(buffer))
			{
				ReleaseBuffer(buffer);
				continue;
			}
		}
		special = lease_page_check(rel, buffer);
		if (lease_page_is_bucket_for(special, hash))
		{
			remember_bucket(special, buffer);
			return buffer;
		}
		UnlockReleaseBuffer(buffer);
	}
	lease_page_damaged(rel, search_directory(rel, hash));
}

/* A walk along a bucket's overflow pages. */
typedef struct ChainWalk
{
	Relation	rel;
	Buffer		bucket;			/* locked by the caller throughout */
	Buffer		buffer;			/* where the walk is; locked */
	int			mode;			/* to lock overflow pages in */
	BlockNumber steps;			/* guards against a loop */
	BlockNumber blocks;			/* the file has at least so many */
} ChainWalk;

static ChainWalk
begin_chain(Relation rel, Buffer bucket, int mode)
{
	return (ChainWalk) {
		.rel = rel, .bucket = bucket, .buffer = bucket, .mode = mode
	};
}

/* Unlock the page that a walk is at, unless it is the bucket. */
static void
leave_chain(ChainWalk *walk)
{
	if (walk->buffer != walk->bucket)
		UnlockReleaseBuffer(walk->buffer);
}

/*
 * Lock the overflow page after "buffer", which is the bucket or on its chain
 * and locked; InvalidBuffer at the end.
 */
static Buffer
lock_next(ChainWalk *walk, Buffer buffer)
{
	LeasePageSpecial *special =
		lease_page_special(BufferGetPage(walk->bucket));
	BlockNumber block = lease_page_special(BufferGetPage(buffer))->next;
	Buffer		next;

	if (block == InvalidBlockNumber)
		return InvalidBuffer;
	/* to ask is a system call, and a chain may be long */
	walk->steps++;
	if (Max(block, walk->steps) >= walk->blocks)
		walk->blocks = RelationGetNumberOfBlocks(walk->rel);
	if (Max(block, walk->steps) >= walk->blocks ||
		block == BufferGetBlockNumber(walk->bucket) ||
		block == BufferGetBlockNumber(buffer))
		lease_page_damaged(walk->rel, BufferGetBlockNumber(buffer));
	next = ReadBuffer(walk->rel, block);
	LockBuffer(next, walk->mode);
	if (lease_page_check_kind(walk->rel, next, LEASE_PAGE_OVERFLOW)->chain !=
		special->chain)
		lease_page_damaged(walk->rel, block);
	return next;
}

/*
 * Move a walk on to the next page, unlocking the one it was at.  False at the
 * end; then only the bucket is locked.
 */
static bool
next_in_chain(ChainWalk *walk)
{
	Buffer		next = lock_next(walk, walk->buffer);

	leave_chain(walk);
	walk->buffer = BufferIsValid(next) ? next : walk->bucket;
	return BufferIsValid(next);
}

/* Say whether a bucket has a chain, and it is for names of this hash. */
bool
lease_trie_has_chain(Buffer bucket, uint32 hash)
{
	LeasePageSpecial *special = lease_page_special(BufferGetPage(bucket));

	return special->next != InvalidBlockNumber &&
		special->chain == lease_hash_chain(hash);
}

/*
 * Show the entries of a bucket to a visitor: all, or with "hash" those of one
 * hash.  The bucket is locked; overflow pages are locked one at a time, so the
 * visitor must copy what it keeps of entries on a buffer that is not the
 * bucket's.
 */
void
lease_trie_visit(Relation rel, Buffer bucket, const uint32 *hash,
				 LeaseEntryVisitor visitor, void *context)
{
	lease_trie_visit_pages(rel, bucket, hash, NULL, visitor, context);
}

/* Show the entries of the page that a walk is at, likewise. */
static void
visit_page(const ChainWalk *walk, const uint32 *hash,
		   LeaseEntryVisitor visitor, void *context)
{
	Page		page = BufferGetPage(walk->buffer);
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		LeaseEntry *entry;

		if (hash != NULL && !lease_page_may_match(page, offset, *hash))
			continue;
		entry = lease_page_entry(walk->rel, walk->buffer, offset);
		if (entry != NULL)
			visitor(walk->buffer, offset, entry, context);
	}
}

/* The same, with a visitor of pages that may pass over the entries of one. */
void
lease_trie_visit_pages(Relation rel, Buffer bucket, const uint32 *hash,
					   LeasePageVisitor page_visitor,
					   LeaseEntryVisitor visitor, void *context)
{
	ChainWalk	walk = begin_chain(rel, bucket, BUFFER_LOCK_SHARE);

	do
	{
		if (page_visitor == NULL || !page_visitor(walk.buffer, context))
			visit_page(&walk, hash, visitor, context);
	} while ((hash == NULL || lease_trie_has_chain(bucket, *hash)) &&
			 next_in_chain(&walk));
}

/*
 * Show the entries of one hash to a visitor that only looks.  The caller has
 * locked nothing.  A cancel or a termination is answered between two pages of a
 * chain, which may be long: no interrupt is handled while the bucket is locked.
 * If the caller holds cancels, one ends the look, and the caller looks for it.
 */
void
lease_trie_look(Relation rel, uint32 hash, LeaseEntryVisitor visitor,
				void *context)
{
	Buffer		bucket = lease_trie_lock(rel, hash, BUFFER_LOCK_SHARE);
	ChainWalk	walk = begin_chain(rel, bucket, BUFFER_LOCK_SHARE);
	bool		ended = false;

	do
		visit_page(&walk, &hash, visitor, context);
	while (lease_trie_has_chain(bucket, hash) &&
		   !(ended = QueryCancelPending || ProcDiePending) &&
		   next_in_chain(&walk));
	leave_chain(&walk);
	UnlockReleaseBuffer(bucket);
	CHECK_FOR_INTERRUPTS();
	if (ended && QueryCancelHoldoffCount == 0)	/* it did not come */
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("canceling statement due to user request")));
}

/* Put a page that was never used in the free list; it is locked exclusively. */
static void
free_unused_page(Relation rel, Buffer buffer)
{
	Buffer		meta_buffer;
	LeaseChange change;
	Page		page;
	LeaseMeta  *meta;

	/* These two were written in one record: they cannot be zero. */
	if (BufferGetBlockNumber(buffer) <= LEASE_ROOT_BLOCK)
		lease_page_damaged(rel, BufferGetBlockNumber(buffer));
	meta_buffer = lease_meta_lock(rel, BUFFER_LOCK_EXCLUSIVE);
	lease_change_begin(&change, rel, true);
	page = lease_change_page(&change, buffer, true);
	meta = lease_page_meta(lease_change_page(&change, meta_buffer, false));
	lease_change_start(&change);
	lease_page_init(page, LEASE_PAGE_FREE, 0, 0);
	lease_page_special(page)->next = meta->free_head;
	meta->free_head = BufferGetBlockNumber(buffer);
	DLOCK_CRASH_POINT("unused page: not logged");
	lease_change_finish(&change);
	DLOCK_CRASH_POINT("unused page: logged");
	UnlockReleaseBuffer(meta_buffer);
}

/*
 * Move an empty overflow page from the chain of a bucket to the free list.
 * "previous" precedes it, and may be the bucket.  All are locked exclusively.
 */
static void
free_overflow_page(Relation rel, Buffer bucket, Buffer previous,
				   Buffer buffer)
{
	Buffer		meta_buffer = lease_meta_lock(rel, BUFFER_LOCK_EXCLUSIVE);
	BlockNumber next = lease_page_special(BufferGetPage(buffer))->next;
	LeaseChange change;
	Page		previous_page;
	Page		page;
	LeaseMeta  *meta;

	lease_change_begin(&change, rel, true);
	previous_page = lease_change_page(&change, bucket, false);
	if (previous != bucket)
		previous_page = lease_change_page(&change, previous, false);
	page = lease_change_page(&change, buffer, true);
	meta = lease_page_meta(lease_change_page(&change, meta_buffer, false));
	lease_change_start(&change);
	lease_page_special(previous_page)->next = next;
	lease_page_init(page, LEASE_PAGE_FREE, 0, 0);
	lease_page_special(page)->next = meta->free_head;
	meta->free_head = BufferGetBlockNumber(buffer);
	DLOCK_CRASH_POINT("removal: not logged");
	lease_change_finish(&change);
	DLOCK_CRASH_POINT("removal: logged");
	UnlockReleaseBuffer(meta_buffer);
}

/*
 * Get a page for anything but a bucket, locked exclusively: the head of the
 * free list, or a new one.  Returns the metapage locked exclusively; a page
 * that is not new must be taken off the list by the caller's change.  The
 * caller holds "bucket" and no other page.
 */
static Buffer
allocate_page(Relation rel, Buffer bucket, Buffer *meta_buffer)
{
	Buffer		buffer = InvalidBuffer;
	LeaseMeta  *meta;

	/* A new page comes before the metapage in the lock order. */
	*meta_buffer = lease_meta_lock(rel, BUFFER_LOCK_SHARE);
	meta = lease_page_meta(BufferGetPage(*meta_buffer));
	if (meta->free_head == InvalidBlockNumber)
	{
		UnlockReleaseBuffer(*meta_buffer);
		buffer = compat_extend_locked(rel);
		DLOCK_CRASH_POINT("page: added");
		*meta_buffer = lease_meta_lock(rel, BUFFER_LOCK_EXCLUSIVE);
		return buffer;
	}
	UnlockReleaseBuffer(*meta_buffer);

	*meta_buffer = lease_meta_lock(rel, BUFFER_LOCK_EXCLUSIVE);
	meta = lease_page_meta(BufferGetPage(*meta_buffer));
	if (meta->free_head == InvalidBlockNumber)
	{
		/* Another backend was faster. */
		UnlockReleaseBuffer(*meta_buffer);
		return allocate_page(rel, bucket, meta_buffer);
	}
	if (meta->free_head <= LEASE_ROOT_BLOCK ||
		meta->free_head >= RelationGetNumberOfBlocks(rel) ||
		meta->free_head == BufferGetBlockNumber(bucket))
		lease_page_damaged(rel, LEASE_META_BLOCK);
	buffer = ReadBuffer(rel, meta->free_head);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	lease_page_check_kind(rel, buffer, LEASE_PAGE_FREE);
	DLOCK_CRASH_POINT("page: off the free list");
	return buffer;
}

/* The new head of the free list once a page from allocate_page() is used. */
static BlockNumber
free_head_after(const LeaseMeta *meta, Buffer buffer)
{
	return PageIsNew(BufferGetPage(buffer)) ? meta->free_head :
		lease_page_special(BufferGetPage(buffer))->next;
}

/*
 * Lock the bucket that a cursor over the reversed hashes is in, and move the
 * cursor behind it.
 */
Buffer
lease_trie_lock_at(Relation rel, uint64 *cursor, int mode)
{
	Buffer		bucket = lease_trie_lock(rel, lease_hash_position((uint32) *cursor),
										 mode);
	uint64		width = LEASE_POSITION_END >>
		lease_page_special(BufferGetPage(bucket))->depth;

	*cursor = (*cursor / width + 1) * width;
	return bucket;
}

/*
 * Lock a block exclusively for the reaper or a walk, if it is a bucket; else
 * give it an empty summary, put a page that a crash left unused on the free
 * list, and return InvalidBuffer.
 */
Buffer
lease_trie_lock_block(Relation rel, BlockNumber block)
{
	Buffer		buffer = ReadBuffer(rel, block);
	LeaseSummary nothing;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	if (!PageIsNew(BufferGetPage(buffer)) &&
		lease_page_check(rel, buffer)->kind == LEASE_PAGE_BUCKET)
		return buffer;
	if (PageIsNew(BufferGetPage(buffer)))
		free_unused_page(rel, buffer);
	lease_summary_begin(&nothing);
	if (!compat_relation_file_is_new(rel))
		lease_summary_replace(&lease_state_database()->summaries, block,
							  &nothing);
	UnlockReleaseBuffer(buffer);
	return InvalidBuffer;
}

/* The largest mark of all buckets: reads the whole table. */
uint64
lease_trie_largest_mark(Relation rel)
{
	BlockNumber blocks = lease_trie_blocks(rel);
	uint64		mark = 0;

	for (BlockNumber block = 0; block < blocks; block++)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		buffer = ReadBuffer(rel, block);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		if (!PageIsNew(BufferGetPage(buffer)) &&
			lease_page_check(rel, buffer)->kind == LEASE_PAGE_BUCKET)
			mark = lease_merge_marks(mark,
									 lease_page_special(BufferGetPage(buffer))->mark);
		UnlockReleaseBuffer(buffer);
	}
	return mark;
}

/*
 * The block of a directory page, which is made if it does not exist.  "bucket"
 * is to be split, and locked exclusively.
 */
static BlockNumber
get_directory(Relation rel, Buffer bucket, uint32 index)
{
	LeaseMeta  *meta;
	Buffer		meta_buffer = lease_meta_lock(rel, BUFFER_LOCK_SHARE);
	BlockNumber block;
	BlockNumber free_head;
	Buffer		buffer;
	LeaseChange change;

	block = lease_page_meta(BufferGetPage(meta_buffer))->directory[index];
	UnlockReleaseBuffer(meta_buffer);
	if (block != 0)
		return block;

	buffer = allocate_page(rel, bucket, &meta_buffer);
	meta = lease_page_meta(BufferGetPage(meta_buffer));
	block = meta->directory[index];
	if (block == 0)
	{
		Page		page;

		block = BufferGetBlockNumber(buffer);
		free_head = free_head_after(meta, buffer);
		lease_change_begin(&change, rel, true);
		page = lease_change_page(&change, buffer, true);
		meta = lease_page_meta(lease_change_page(&change, meta_buffer, false));
		lease_change_start(&change);
		lease_page_init(page, LEASE_PAGE_DIRECTORY, index, 0);
		meta->directory[index] = block;
		meta->free_head = free_head;
		DLOCK_CRASH_POINT("directory: not logged");
		lease_change_finish(&change);
		DLOCK_CRASH_POINT("directory: logged");
	}
	/* else another was faster; a page we added waits for the reaper */
	UnlockReleaseBuffer(buffer);
	UnlockReleaseBuffer(meta_buffer);
	return block;
}

/* Make the summary of a block anew. */
static void
summarize_block(Relation rel, BlockNumber block)
{
	Buffer		bucket = lease_trie_lock_block(rel, block);

	if (!BufferIsValid(bucket))
		return;
	lease_trie_summarize(rel, bucket);
	UnlockReleaseBuffer(bucket);
}

/* Split a full bucket, which is locked exclusively, and unlock it. */
static void
split_bucket(Relation rel, Buffer bucket)
{
	LeasePageSpecial special = *lease_page_special(BufferGetPage(bucket));
	uint32		number = special.bucket | (UINT32_C(1) << special.depth);
	BlockNumber directory_block =
		get_directory(rel, bucket, number / LEASE_DIRECTORY_ENTRIES);
	OffsetNumber last = PageGetMaxOffsetNumber(BufferGetPage(bucket));
	Buffer		new_buffer;
	Buffer		meta_buffer;
	Buffer		directory;
	LeaseChange change;
	Page		old_page;
	Page		new_page;
	BlockNumber old_block = BufferGetBlockNumber(bucket);
	BlockNumber new_block;
	bool		deeper;

	lease_page_check_entries(rel, bucket);
	new_buffer = compat_extend_locked(rel);
	DLOCK_CRASH_POINT("split: page added");
	new_block = BufferGetBlockNumber(new_buffer);
	meta_buffer = lease_meta_lock(rel, BUFFER_LOCK_EXCLUSIVE);
	deeper = lease_page_meta(BufferGetPage(meta_buffer))->depth <=
		special.depth;
	if (directory_block <= LEASE_ROOT_BLOCK ||
		directory_block >= new_block || directory_block == old_block)
		lease_page_damaged(rel, LEASE_META_BLOCK);
	directory = ReadBuffer(rel, directory_block);
	LockBuffer(directory, BUFFER_LOCK_EXCLUSIVE);
	lease_page_check_kind(rel, directory, LEASE_PAGE_DIRECTORY);

	lease_change_begin(&change, rel, true);
	old_page = lease_change_page(&change, bucket, false);
	new_page = lease_change_page(&change, new_buffer, true);
	lease_change_page(&change, directory, false);
	if (deeper)
		lease_change_page(&change, meta_buffer, false);
	lease_change_start(&change);
	lease_page_init(new_page, LEASE_PAGE_BUCKET, number, special.depth + 1);
	lease_page_special(new_page)->mark = special.mark;
	lease_page_special(old_page)->depth = special.depth + 1;
	if (special.next != InvalidBlockNumber &&
		(special.chain >> special.depth & 1) != 0)
	{
		lease_page_special(new_page)->next = special.next;
		lease_page_special(new_page)->chain = special.chain;
		lease_page_special(old_page)->next = InvalidBlockNumber;
		lease_page_special(old_page)->chain = 0;
	}
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		ItemId		id = PageGetItemId(old_page, offset);
		LeaseEntry *entry;

		if (!ItemIdIsUsed(id))
			continue;
		entry = (LeaseEntry *) PageGetItem(old_page, id);
		if ((entry->hash >> special.depth & 1) == 0)
			continue;
		lease_page_insert(NULL, new_page, entry);
		ItemIdSetUnused(id);
	}
	lease_page_compact(NULL, old_page);
	lease_page_directory(change.pages[2].page)
		[number % LEASE_DIRECTORY_ENTRIES] = new_block;
	if (deeper)
		lease_page_meta(change.pages[3].page)->depth = special.depth + 1;
	DLOCK_CRASH_POINT("split: not logged");
	lease_change_finish(&change);
	if (!compat_relation_file_is_new(rel))
		lease_summary_split(&lease_state_database()->summaries, old_block,
							new_block);
	DLOCK_CRASH_POINT("split: logged");

	UnlockReleaseBuffer(directory);
	UnlockReleaseBuffer(meta_buffer);
	UnlockReleaseBuffer(new_buffer);
	UnlockReleaseBuffer(bucket);

	/*
	 * Until then the new page's summary is unknown, and the old one's covers
	 * too much.  Lock one page at a time: a damaged chain may lead to any
	 * other.
	 */
	summarize_block(rel, new_block);
	DLOCK_CRASH_POINT("split: half summarized");
	summarize_block(rel, old_block);
}

/*
 * Give a bucket one more overflow page for names of this hash, its first, and
 * unlock it.
 */
static void
add_overflow(Relation rel, Buffer bucket, uint32 hash)
{
	Buffer		meta_buffer;
	Buffer		buffer = allocate_page(rel, bucket, &meta_buffer);
	LeasePageSpecial *special = lease_page_special(BufferGetPage(bucket));
	BlockNumber free_head;
	LeaseChange change;
	Page		bucket_page;
	Page		page;
	LeaseMeta  *meta;

	free_head = free_head_after(lease_page_meta(BufferGetPage(meta_buffer)),
								buffer);
	lease_change_begin(&change, rel, true);
	bucket_page = lease_change_page(&change, bucket, false);
	page = lease_change_page(&change, buffer, true);
	meta = lease_page_meta(lease_change_page(&change, meta_buffer, false));
	lease_change_start(&change);
	lease_page_init(page, LEASE_PAGE_OVERFLOW, 0, 0);
	lease_page_special(page)->next = special->next;
	lease_page_special(page)->chain = lease_hash_chain(hash);
	lease_page_special(bucket_page)->next = BufferGetBlockNumber(buffer);
	lease_page_special(bucket_page)->chain = lease_hash_chain(hash);
	meta->free_head = free_head;
	DLOCK_CRASH_POINT("overflow: not logged");
	lease_change_finish(&change);
	DLOCK_CRASH_POINT("overflow: logged");
	UnlockReleaseBuffer(meta_buffer);
	UnlockReleaseBuffer(buffer);
	UnlockReleaseBuffer(bucket);
}

/* Compact one page in a record of its own, if that makes room enough. */
static bool
compact_page(Relation rel, Buffer buffer, Size size)
{
	LeaseChange change;
	Page		page;

	if (lease_page_room(BufferGetPage(buffer)) < size + sizeof(ItemIdData))
		return false;
	lease_page_check_entries(rel, buffer);
	lease_change_begin(&change, rel, false);
	page = lease_change_page(&change, buffer, false);
	lease_change_start(&change);
	lease_page_compact(&change, page);
	DLOCK_CRASH_POINT("compaction: not logged");
	lease_change_finish(&change);
	DLOCK_CRASH_POINT("compaction: logged");
	return true;
}

/*
 * Say whether a split can separate the names on a full bucket, its chain and a
 * new hash.  "others": there are also names that are not there now.
 */
static bool
can_separate(Relation rel, Buffer bucket, uint32 hash, bool others)
{
	Page		page = BufferGetPage(bucket);
	LeasePageSpecial *special = lease_page_special(page);
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	uint32		differ = others ? PG_UINT32_MAX : 0;

	if (special->next != InvalidBlockNumber)
		differ |= special->chain ^ hash;
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		LeaseEntry *entry = lease_page_entry(rel, bucket, offset);

		if (entry != NULL)
			differ |= entry->hash ^ hash;
	}
	return lease_hash_chain(differ) >> special->depth != 0;
}

/*
 * Find a page of a bucket that an entry of this hash fits as it is, locked
 * exclusively like the bucket; it may be the bucket itself.  "roomiest" is the
 * page of the chain with the largest hole, or InvalidBlockNumber: so the chain
 * need not be searched.  InvalidBuffer if there is no such page.
 */
Buffer
lease_trie_find_room(Relation rel, Buffer bucket, uint32 hash, Size size,
					 BlockNumber roomiest)
{
	Buffer		buffer;

	if (lease_page_fits(BufferGetPage(bucket), size))
		return bucket;
	if (roomiest == InvalidBlockNumber)
		return InvalidBuffer;
	buffer = ReadBuffer(rel, roomiest);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	if (!lease_trie_has_chain(bucket, hash) ||
		lease_page_check_kind(rel, buffer, LEASE_PAGE_OVERFLOW)->chain !=
		lease_hash_chain(hash))
		lease_page_damaged(rel, roomiest);
	if (lease_page_fits(BufferGetPage(buffer), size))
		return buffer;
	UnlockReleaseBuffer(buffer);
	return InvalidBuffer;
}

/*
 * Make room for an entry of this hash and size in a bucket, which is locked
 * exclusively, by moving entries on one of its pages.  False if no page has so
 * much.
 */
bool
lease_trie_compact(Relation rel, Buffer bucket, uint32 hash, Size size)
{
	ChainWalk	walk = begin_chain(rel, bucket, BUFFER_LOCK_EXCLUSIVE);

	do
	{
		if (compact_page(rel, walk.buffer, size))
		{
			leave_chain(&walk);
			return true;
		}
	} while (lease_trie_has_chain(bucket, hash) && next_in_chain(&walk));
	return false;
}

/*
 * The same; if need be with one page more, and always for LEASE_PAGE_MORE.
 * Unlocks the bucket.  The caller starts over; it may find room only after
 * several rounds, or another may take the room first.
 */
void
lease_trie_make_room(Relation rel, Buffer bucket, uint32 hash, Size size)
{
	if (lease_trie_compact(rel, bucket, hash, size))
		UnlockReleaseBuffer(bucket);
	else if (can_separate(rel, bucket, hash, size == LEASE_PAGE_MORE))
		split_bucket(rel, bucket);
	else
		add_overflow(rel, bucket, hash);
}

/* Free the overflow pages of a bucket, locked exclusively, that are empty. */
void
lease_trie_free_overflow(Relation rel, Buffer bucket)
{
	ChainWalk	walk = begin_chain(rel, bucket, BUFFER_LOCK_EXCLUSIVE);

	for (;;)
	{
		Buffer		buffer = lock_next(&walk, walk.buffer);

		if (!BufferIsValid(buffer))
			break;
		/* trailing line pointers go with the last entry */
		if (PageGetMaxOffsetNumber(BufferGetPage(buffer)) == 0)
		{
			free_overflow_page(rel, bucket, walk.buffer, buffer);
			UnlockReleaseBuffer(buffer);
			continue;
		}
		leave_chain(&walk);
		walk.buffer = buffer;
	}
	leave_chain(&walk);
}

/* Remove all entries of one page. */
static void
clear_page(Relation rel, Buffer buffer)
{
	LeaseChange change;
	Page		page;

	lease_change_begin(&change, rel, true);
	page = lease_change_page(&change, buffer, false);
	lease_change_start(&change);
	for (OffsetNumber offset = PageGetMaxOffsetNumber(page);
		 offset >= FirstOffsetNumber; offset--)
		ItemIdSetUnused(PageGetItemId(page, offset));
	lease_page_compact(NULL, page);
	DLOCK_CRASH_POINT("purge: not logged");
	lease_change_finish(&change);
	DLOCK_CRASH_POINT("purge: logged");
}

/* Remove all entries of a bucket, which is locked exclusively. */
void
lease_trie_clear(Relation rel, Buffer bucket)
{
	ChainWalk	walk = begin_chain(rel, bucket, BUFFER_LOCK_EXCLUSIVE);

	do
	{
		clear_page(rel, walk.buffer);
	} while (next_in_chain(&walk));
	lease_trie_free_overflow(rel, bucket);
	lease_trie_summarize(rel, bucket);
}

/* What is needed to judge entries for a new summary. */
typedef struct SummaryContext
{
	LeaseDatabase *db;
	int64		now_us;
	LeaseSummary summary;
} SummaryContext;

/* Note an entry, and when to look at it. */
static void
add_to_summary(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
			   void *context)
{
	SummaryContext *making = context;
	lease_holder holder = lease_bond_holder(making->db, entry, making->now_us);

	/* look at a lease that an event ends once in its time to live */
	lease_summary_add(&making->summary, holder.life == LEASE_BOUND ?
					  holder.deadline_us :
					  lease_end_us(&holder, lease_lock_delay_us()),
					  holder.owner);
}

/*
 * Make the summary of a bucket, locked exclusively, anew.  A table that this
 * transaction is making has none, and may be of a database that has no entry
 * yet: to find room for one, the catalogs would be asked.
 */
void
lease_trie_summarize(Relation rel, Buffer bucket)
{
	SummaryContext making;

	if (compat_relation_file_is_new(rel))
		return;
	making.db = lease_state_database();
	making.now_us = lease_clock_now(making.db);
	lease_summary_begin(&making.summary);
	lease_trie_visit(rel, bucket, NULL, add_to_summary, &making);
	lease_summary_replace(&making.db->summaries, BufferGetBlockNumber(bucket),
						  &making.summary);
}

/*
 * Create the pages of an empty table.  The caller makes sure that nobody else
 * does so at the same time.
 */
void
lease_trie_create(Relation rel, uint64 seed)
{
	create_root(rel, seed);
	for (uint32 depth = 0; depth < START_DEPTH; depth++)
		for (uint32 bucket = 0; bucket <= lease_depth_mask(depth); bucket++)
			split_bucket(rel, lease_trie_lock(rel, bucket,
											  BUFFER_LOCK_EXCLUSIVE));
}

/*
 * Tell the summary of a bucket, locked exclusively, of an entry that was added
 * or whose deadline was brought forward.
 */
void
lease_trie_note(Relation rel, Buffer bucket, int64 deadline_us,
				lease_bytes owner)
{
	if (compat_relation_file_is_new(rel))
		return;
	if (lease_summary_note(&lease_state_database()->summaries,
						   BufferGetBlockNumber(bucket), deadline_us, owner))
		lease_trie_summarize(rel, bucket);
}

/* The same as lease_trie_find_room(), with a search of the chain. */
static Buffer
search_room(Relation rel, Buffer bucket, uint32 hash, Size size)
{
	ChainWalk	walk = begin_chain(rel, bucket, BUFFER_LOCK_EXCLUSIVE);

	do
	{
		if (lease_page_fits(BufferGetPage(walk.buffer), size))
			return walk.buffer;
	} while (lease_trie_has_chain(bucket, hash) && next_in_chain(&walk));
	return InvalidBuffer;
}

/*
 * Put a copy of an entry, with the hash for this table, into a table that
 * nobody else can see yet.
 */
void
lease_trie_insert(Relation rel, const LeaseEntry *entry)
{
	LeaseEntryBuffer copy;
	Size		size = lease_entry_size(entry);

	memcpy(copy.bytes, entry, size);
	copy.entry.hash = lease_trie_hash(rel, lease_entry_name(entry));
	for (;;)
	{
		Buffer		bucket = lease_trie_lock(rel, copy.entry.hash,
											 BUFFER_LOCK_EXCLUSIVE);
		Buffer		buffer = search_room(rel, bucket, copy.entry.hash, size);
		LeaseChange change;
		Page		page;

		CHECK_FOR_INTERRUPTS();
		if (!BufferIsValid(buffer))
		{
			lease_trie_make_room(rel, bucket, copy.entry.hash, size);
			continue;
		}
		lease_change_begin(&change, rel, false);
		page = lease_change_page(&change, buffer, false);
		lease_change_start(&change);
		lease_page_insert(&change, page, &copy.entry);
		DLOCK_CRASH_POINT("rewrite: row not logged");
		lease_change_finish(&change);
		DLOCK_CRASH_POINT("rewrite: row logged");
		if (buffer != bucket)
			UnlockReleaseBuffer(buffer);
		lease_trie_note(rel, bucket, entry->deadline_us,
						lease_entry_owner(entry));
		UnlockReleaseBuffer(bucket);
		return;
	}
}
