/*
 * lease_trie_grow.c
 *	  Let the lock table grow: make it, split buckets, add and free pages.
 *
 * lease_trie.c has the structure, and the order of the locks.
 *
 * Pages are added at the end of the relation.  Emptied overflow pages go to a
 * free list, which serves overflow and directory pages only: a bucket always
 * gets a page from the end, because walks over the blocks in order rely on
 * entries moving towards the end (lease_summary.c).
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

#include "lease_crash.h"
#include "miscadmin.h"
#include "storage/lease_storage.h"

/* A new table has this many bits worth of buckets: 64 pages, half a megabyte. */
#define START_DEPTH		6

/*
 * With so many overflow pages, a chain gets a bucket of its own, as far as splits go:
 * what is done to its rows takes long, and other names of the bucket have to wait.
 */
#define LONG_CHAIN		8

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

/*
 * Put a page in the free list: an empty overflow page, which comes after
 * "previous" on the chain of a bucket and leaves it; or, without these, a page
 * that was never used.  All are locked exclusively.
 */
static void
free_page(Relation rel, Buffer bucket, Buffer previous, Buffer buffer)
{
	BlockNumber block = BufferGetBlockNumber(buffer);
	Buffer		meta_buffer;
	LeaseChange change;
	Page		previous_page = NULL;
	Page		page;
	LeaseMeta  *meta;

	/* These two were written in one record: they cannot be zero. */
	if (block <= LEASE_ROOT_BLOCK)
		lease_page_damaged(rel, block);
	meta_buffer = lease_meta_lock(rel, BUFFER_LOCK_EXCLUSIVE);
	lease_change_begin(&change, rel, true);
	if (BufferIsValid(bucket))
		previous_page = lease_change_page(&change, bucket, false);
	if (previous != bucket)
		previous_page = lease_change_page(&change, previous, false);
	page = lease_change_page(&change, buffer, true);
	meta = lease_page_meta(lease_change_page(&change, meta_buffer, false));
	lease_change_start(&change);
	if (previous_page != NULL)
		lease_page_special(previous_page)->next = lease_page_special(page)->next;
	lease_page_init(page, LEASE_PAGE_FREE, 0, 0);
	lease_page_special(page)->next = meta->free_head;
	meta->free_head = block;
	DLOCK_CRASH_POINT("freed page: not logged");
	lease_change_finish(&change);
	DLOCK_CRASH_POINT("freed page: logged");
	UnlockReleaseBuffer(meta_buffer);
}

/*
 * Get a page for anything but a bucket, locked exclusively: the head of the
 * free list, or a new one.  Returns the metapage locked exclusively; the
 * caller's change begins with take_off().  The caller holds "bucket" and no
 * other page.
 */
static Buffer
allocate_page(Relation rel, Buffer bucket, Buffer *meta_buffer)
{
	Buffer		buffer;
	BlockNumber block;

	*meta_buffer = lease_meta_lock(rel, BUFFER_LOCK_EXCLUSIVE);
	block = lease_page_meta(BufferGetPage(*meta_buffer))->free_head;
	if (block == InvalidBlockNumber)
	{
		/* A new page comes before the metapage in the lock order. */
		UnlockReleaseBuffer(*meta_buffer);
		buffer = compat_extend_locked(rel);
		DLOCK_CRASH_POINT("page: added");
		*meta_buffer = lease_meta_lock(rel, BUFFER_LOCK_EXCLUSIVE);
		return buffer;
	}
	if (block <= LEASE_ROOT_BLOCK || block >= RelationGetNumberOfBlocks(rel) ||
		block == BufferGetBlockNumber(bucket))
		lease_page_damaged(rel, LEASE_META_BLOCK);
	buffer = ReadBuffer(rel, block);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	lease_page_check_kind(rel, buffer, LEASE_PAGE_FREE);
	DLOCK_CRASH_POINT("page: off the free list");
	return buffer;
}

/* Take a page from allocate_page() off the free list, unless it is new. */
static void
take_off(Page page, LeaseMeta *meta)
{
	if (!PageIsNew(page))
		meta->free_head = lease_page_special(page)->next;
}

/*
 * The block of a directory page, which is made if it does not exist.  "bucket"
 * is to be split, and locked exclusively.
 */
static BlockNumber
get_directory(Relation rel, Buffer bucket, uint32 index)
{
	Buffer		meta_buffer = lease_meta_lock(rel, BUFFER_LOCK_SHARE);
	BlockNumber block = lease_page_meta(BufferGetPage(meta_buffer))->directory[index];
	Buffer		buffer;
	LeaseChange change;
	Page		page;
	LeaseMeta  *meta;

	UnlockReleaseBuffer(meta_buffer);
	if (block != 0)
		return block;

	buffer = allocate_page(rel, bucket, &meta_buffer);
	block = lease_page_meta(BufferGetPage(meta_buffer))->directory[index];
	if (block == 0)
	{
		block = BufferGetBlockNumber(buffer);
		lease_change_begin(&change, rel, true);
		page = lease_change_page(&change, buffer, true);
		meta = lease_page_meta(lease_change_page(&change, meta_buffer, false));
		lease_change_start(&change);
		take_off(page, meta);
		lease_page_init(page, LEASE_PAGE_DIRECTORY, index, 0);
		meta->directory[index] = block;
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

	/*
	 * A table that this transaction is making has no summaries, and may be of a
	 * database that has no entry yet: to find room for one, the catalogs would
	 * be asked.
	 */
	bool		summarized = !compat_relation_file_is_new(rel);

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
	if (summarized)
		lease_summary_split(&lease_state_database()->summaries, old_block);
	DLOCK_CRASH_POINT("split: logged");

	UnlockReleaseBuffer(directory);
	UnlockReleaseBuffer(meta_buffer);
	UnlockReleaseBuffer(new_buffer);
	UnlockReleaseBuffer(bucket);

	if (!summarized)
		return;

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
	LeaseChange change;
	LeasePageSpecial *special;
	Page		page;
	LeaseMeta  *meta;

	lease_change_begin(&change, rel, true);
	special = lease_page_special(lease_change_page(&change, bucket, false));
	page = lease_change_page(&change, buffer, true);
	meta = lease_page_meta(lease_change_page(&change, meta_buffer, false));
	lease_change_start(&change);
	take_off(page, meta);
	lease_page_init(page, LEASE_PAGE_OVERFLOW, 0, 0);
	lease_page_special(page)->next = special->next;
	special->next = BufferGetBlockNumber(buffer);
	lease_page_special(page)->chain = special->chain = lease_hash_chain(hash);
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

	if (lease_page_check_entries(rel, buffer) < size + sizeof(ItemIdData))
		return false;
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
 * new hash.  "others": there are also names that are not there now, or may come.
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
	LeaseChain	walk = lease_chain_begin(rel, bucket, BUFFER_LOCK_EXCLUSIVE);

	do
	{
		if (compact_page(rel, walk.buffer, size))
		{
			lease_chain_leave(&walk);
			return true;
		}
	} while (lease_trie_has_chain(bucket, hash) && lease_chain_next(&walk));
	return false;
}

/* Say whether a bucket, which is locked, has a long chain. */
static bool
has_long_chain(Relation rel, Buffer bucket)
{
	LeaseChain	walk = lease_chain_begin(rel, bucket, BUFFER_LOCK_SHARE);

	while (walk.steps < LONG_CHAIN && lease_chain_next(&walk))
		;
	lease_chain_leave(&walk);
	return walk.steps == LONG_CHAIN;
}

/* Add a page for an entry of this hash to a bucket, locked exclusively; unlock that. */
static void
add_page(Relation rel, Buffer bucket, uint32 hash, Size size)
{
	if (can_separate(rel, bucket, hash, size == LEASE_PAGE_MORE ||
					 has_long_chain(rel, bucket)))
		split_bucket(rel, bucket);
	else
		add_overflow(rel, bucket, hash);
}

/*
 * The same as lease_trie_compact(); if need be with one page more, and always for
 * LEASE_PAGE_MORE.  Unlocks the bucket.  The caller starts over; it may find room
 * only after several rounds, or another may take the room first.
 */
void
lease_trie_make_room(Relation rel, Buffer bucket, uint32 hash, Size size)
{
	if (lease_trie_compact(rel, bucket, hash, size))
		UnlockReleaseBuffer(bucket);
	else
		add_page(rel, bucket, hash, size);
}

/* Free the overflow pages of a bucket, locked exclusively, that are empty. */
void
lease_trie_free_overflow(Relation rel, Buffer bucket)
{
	LeaseChain	walk = lease_chain_begin(rel, bucket, BUFFER_LOCK_EXCLUSIVE);

	for (;;)
	{
		Buffer		buffer = lease_chain_lock_next(&walk, walk.buffer);

		if (!BufferIsValid(buffer))
			break;
		/* trailing line pointers go with the last entry */
		if (PageGetMaxOffsetNumber(BufferGetPage(buffer)) == 0)
		{
			free_page(rel, bucket, walk.buffer, buffer);
			UnlockReleaseBuffer(buffer);
			continue;
		}
		lease_chain_leave(&walk);
		walk.buffer = buffer;
	}
	lease_chain_leave(&walk);
}

/* Remove all entries of a bucket, which is locked exclusively. */
void
lease_trie_clear(Relation rel, Buffer bucket)
{
	LeaseChain	walk = lease_chain_begin(rel, bucket, BUFFER_LOCK_EXCLUSIVE);

	do
	{
		LeasePageSpecial special =
			*lease_page_special(BufferGetPage(walk.buffer));
		LeaseChange change;
		Page		page;

		lease_change_begin(&change, rel, true);
		page = lease_change_page(&change, walk.buffer, false);
		lease_change_start(&change);
		lease_page_init(page, special.kind, 0, 0);
		*lease_page_special(page) = special;
		DLOCK_CRASH_POINT("purge: not logged");
		lease_change_finish(&change);
		DLOCK_CRASH_POINT("purge: logged");
	} while (lease_chain_next(&walk));
	lease_trie_free_overflow(rel, bucket);
	lease_trie_summarize(rel, bucket);
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
		free_page(rel, InvalidBuffer, InvalidBuffer, buffer);
	lease_summary_begin(&nothing);
	lease_summary_replace(&lease_state_database()->summaries, block, &nothing);
	UnlockReleaseBuffer(buffer);
	return InvalidBuffer;
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
 * Put a copy of an entry, with the hash for this table, into a table that
 * nobody else can see yet.  Nothing is deleted there, so nothing is to be
 * compacted, and of a chain only the first page, which was added last, is tried.
 */
void
lease_trie_insert(Relation rel, const LeaseEntry *entry)
{
	LeaseEntryBuffer copy;
	Size		size = lease_entry_size(entry);
	Buffer		bucket;
	Buffer		buffer;
	LeaseChange change;

	memcpy(copy.bytes, entry, size);
	copy.entry.hash = lease_trie_hash(rel, lease_entry_name(entry));
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		bucket = lease_trie_lock(rel, copy.entry.hash, BUFFER_LOCK_EXCLUSIVE);
		buffer = lease_trie_find_room(rel, bucket, copy.entry.hash, size,
									  lease_trie_has_chain(bucket, copy.entry.hash) ?
									  lease_page_special(BufferGetPage(bucket))->next :
									  InvalidBlockNumber);
		if (BufferIsValid(buffer))
			break;
		add_page(rel, bucket, copy.entry.hash, size);
	}
	lease_change_begin(&change, rel, false);
	(void) lease_change_page(&change, buffer, false);
	lease_change_start(&change);
	lease_page_insert(&change, change.pages[0].page, &copy.entry);
	DLOCK_CRASH_POINT("rewrite: row not logged");
	lease_change_finish(&change);
	DLOCK_CRASH_POINT("rewrite: row logged");
	if (buffer != bucket)
		UnlockReleaseBuffer(buffer);
	UnlockReleaseBuffer(bucket);
}
