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
 * names stay off the chain, and when they fill the bucket it is split like any
 * other: the chain goes as a whole to the side that its bits say.  Once a chain is
 * long, its bucket is split until it has all of the chain's bits, since other names
 * would have to wait while the chain is read.  The content lock of a bucket
 * protects its overflow pages: to change one, a backend holds both locks
 * exclusively; to follow the chain, it needs only the bucket's lock.
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
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lease_crash.h"
#include "miscadmin.h"
#include "storage/lease_storage.h"

#define CACHE_SLOTS		4096

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

/* Lock the metapage, which exists, and check it. */
Buffer
lease_meta_lock(Relation rel, int mode)
{
	Buffer		buffer = ReadBuffer(rel, LEASE_META_BLOCK);
	LeaseMeta  *meta;

	LockBuffer(buffer, mode);
	lease_page_check_kind(rel, buffer, LEASE_PAGE_META);
	meta = lease_page_meta(BufferGetPage(buffer));
	if (meta->magic != LEASE_META_MAGIC || meta->depth > LEASE_MAX_DEPTH)
		lease_page_damaged(rel, LEASE_META_BLOCK);
	if (meta->format != LEASE_FORMAT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("lock table \"%s\" has format %u, and this library knows format %u",
						RelationGetRelationName(rel), meta->format,
						LEASE_FORMAT)));
	return buffer;
}

/* Copy the metapage of a table that exists. */
void
lease_meta_read(Relation rel, LeaseMeta *meta)
{
	Buffer		buffer = lease_meta_lock(rel, BUFFER_LOCK_SHARE);

	*meta = *lease_page_meta(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
}

/* Give a table another floor and clock, and a database; returns as lease_change_finish(). */
XLogRecPtr
lease_meta_write(Relation rel, const LeaseMeta *from)
{
	Buffer		buffer = lease_meta_lock(rel, BUFFER_LOCK_EXCLUSIVE);
	LeaseChange change;
	LeaseMeta  *meta;
	XLogRecPtr	lsn;

	lease_change_begin(&change, rel, true);
	meta = lease_page_meta(lease_change_page(&change, buffer, false));
	lease_change_start(&change);
	meta->database = from->database;
	meta->floor = from->floor;
	meta->boot = from->boot;
	meta->clock_offset_us = from->clock_offset_us;
	meta->clock_mark_us = from->clock_mark_us;
	DLOCK_CRASH_POINT("metapage: not logged");
	lsn = lease_change_finish(&change);
	DLOCK_CRASH_POINT("metapage: logged");
	UnlockReleaseBuffer(buffer);
	return lsn;
}

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

/* Read what the metapage of a table, which exists, says of it. */
static void
refresh(Relation rel)
{
	Buffer		buffer = lease_meta_lock(rel, BUFFER_LOCK_SHARE);
	LeaseMeta  *meta = lease_page_meta(BufferGetPage(buffer));

	if (cache.file != compat_relation_file(rel))
		memset(&cache, 0, sizeof(cache));
	cache.file = compat_relation_file(rel);
	cache.seed = meta->seed;
	cache.depth = meta->depth;
	memcpy(cache.directory, meta->directory, sizeof(cache.directory));
	UnlockReleaseBuffer(buffer);
}

/* Make the cache be about this table. */
static void
attach(Relation rel)
{
	if (cache.file != compat_relation_file(rel))
		refresh(rel);
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
	/* the deepest first: an ancestor may have been split since */
	for (int depth = (int) cache.depth; depth >= 0; depth--)
	{
		uint32		bucket = hash & lease_depth_mask(depth);
		KnownBucket *known = &cache.slots[bucket % CACHE_SLOTS];

		if (known->block != 0 && known->bucket == bucket &&
			known->depth == (uint32) depth)
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
 * Lock the bucket for a hash, in the given mode; "more": see
 * lease_trie_lock_more().
 *
 * The cache may send us to an ancestor of the bucket, and so may the directory
 * if the bucket was split since we looked.  A bucket can be split at most
 * LEASE_MAX_DEPTH times, so more attempts than that mean damage.
 */
static Buffer
lock_bucket(Relation rel, uint32 hash, int mode, bool more)
{
	KnownBucket *known;

	attach(rel);
	known = search_cache(hash);
	for (int attempt = 0; attempt <= LEASE_MAX_DEPTH + 2; attempt++)
	{
		Buffer		buffer;
		LeasePageSpecial *special;
		bool		wait = !more || known == NULL;

		/* only the first lookup may rely on the cache */
		if (attempt > 0 || (more && known == NULL))
			refresh(rel);
		buffer = known != NULL ? read_known(rel, known) :
			ReadBuffer(rel, search_directory(rel, hash));
		known = NULL;
		if (wait)
			LockBuffer(buffer, mode);
		else if (!ConditionalLockBuffer(buffer))
		{
			ReleaseBuffer(buffer);
			continue;
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

/* Lock the bucket for a hash: its page, pinned and locked in the given mode. */
Buffer
lease_trie_lock(Relation rel, uint32 hash, int mode)
{
	return lock_bucket(rel, hash, mode, false);
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
	return lock_bucket(rel, hash, BUFFER_LOCK_EXCLUSIVE, true);
}

LeaseChain
lease_chain_begin(Relation rel, Buffer bucket, int mode)
{
	return (LeaseChain) {
		.rel = rel, .bucket = bucket, .buffer = bucket, .mode = mode
	};
}

/* Unlock the page that a walk is at, unless it is the bucket. */
void
lease_chain_leave(LeaseChain *walk)
{
	if (walk->buffer != walk->bucket)
		UnlockReleaseBuffer(walk->buffer);
}

/*
 * Lock the overflow page after "buffer", which is the bucket or on its chain
 * and locked; InvalidBuffer at the end.
 */
Buffer
lease_chain_lock_next(LeaseChain *walk, Buffer buffer)
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
bool
lease_chain_next(LeaseChain *walk)
{
	Buffer		next = lease_chain_lock_next(walk, walk->buffer);

	lease_chain_leave(walk);
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
visit_page(const LeaseChain *walk, const uint32 *hash,
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
	LeaseChain	walk = lease_chain_begin(rel, bucket, BUFFER_LOCK_SHARE);

	do
	{
		if (page_visitor == NULL || !page_visitor(walk.buffer, context))
			visit_page(&walk, hash, visitor, context);
	} while ((hash == NULL || lease_trie_has_chain(bucket, *hash)) &&
			 lease_chain_next(&walk));
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
	LeaseChain	walk = lease_chain_begin(rel, bucket, BUFFER_LOCK_SHARE);
	bool		ended = false;

	do
		visit_page(&walk, &hash, visitor, context);
	while (lease_trie_has_chain(bucket, hash) &&
		   !(ended = QueryCancelPending || ProcDiePending) &&
		   lease_chain_next(&walk));
	lease_chain_leave(&walk);
	UnlockReleaseBuffer(bucket);
	CHECK_FOR_INTERRUPTS();
	if (ended && QueryCancelHoldoffCount == 0)	/* it did not come */
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("canceling statement due to user request")));
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

/* The largest mark of all buckets: reads the whole table. */
uint64
lease_trie_largest_mark(Relation rel)
{
	uint64		cursor = 0;
	uint64		mark = 0;

	while (cursor < LEASE_POSITION_END)
	{
		Buffer		bucket = lease_trie_lock_at(rel, &cursor, BUFFER_LOCK_SHARE);

		mark = lease_merge_marks(mark,
								 lease_page_special(BufferGetPage(bucket))->mark);
		UnlockReleaseBuffer(bucket);
		CHECK_FOR_INTERRUPTS();
	}
	return mark;
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

/* Make the summary of a bucket, locked exclusively, anew. */
void
lease_trie_summarize(Relation rel, Buffer bucket)
{
	SummaryContext making;

	making.db = lease_state_database();
	making.now_us = lease_clock_now(making.db);
	lease_summary_begin(&making.summary);
	lease_trie_visit(rel, bucket, NULL, add_to_summary, &making);
	lease_summary_replace(&making.db->summaries, BufferGetBlockNumber(bucket),
						  &making.summary);
}

/*
 * Tell the summary of a bucket, locked exclusively, of an entry that was added
 * or whose deadline was brought forward.
 */
void
lease_trie_note(Relation rel, Buffer bucket, int64 deadline_us,
				lease_bytes owner)
{
	if (lease_summary_note(&lease_state_database()->summaries,
						   BufferGetBlockNumber(bucket), deadline_us, owner))
		lease_trie_summarize(rel, bucket);
}
