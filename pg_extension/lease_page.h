/*
 * lease_page.h
 *	  The pages of the lock table and the entries on them.
 *
 * Every page is a standard page whose special area says what it is:
 *
 *	meta		block 0: what holds for the whole table
 *	directory	block numbers of buckets, see lease_trie.c
 *	bucket		entries of the names whose hash ends in the bucket's number
 *	overflow	more entries of a bucket, of names that no split can part
 *	free		nothing; in the metapage's free list
 *
 * An entry stands for one holder.  Entries have line pointers; releasing a
 * lease marks its line pointer unused, and the space is compacted when needed.
 * Between pd_lower and pd_upper a page is always zero, because the redo of a
 * generic WAL record makes it so.
 *
 * The on-disk format is version LEASE_FORMAT.  It is in the server's byte
 * order, like all of PostgreSQL's pages.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_PAGE_H
#define DLOCK_LEASE_PAGE_H

#include "compat.h"
#include "datatype/timestamp.h"
#include "lease.h"
#include "lease_wal.h"
#include "port/pg_bswap.h"
#include "storage/bufpage.h"
#include "storage/itemid.h"

#define LEASE_FORMAT		2
#define LEASE_META_MAGIC	0x646c6f63	/* "dloc" */
#define LEASE_PAGE_MAGIC	0xd10c

#define LEASE_META_BLOCK	0
#define LEASE_ROOT_BLOCK	1	/* bucket 0, where the trie starts */

/* A bucket at this depth is not split; more directory would not fit. */
#define LEASE_MAX_DEPTH		21

typedef enum LeasePageKind
{
	LEASE_PAGE_META = 1,
	LEASE_PAGE_DIRECTORY,
	LEASE_PAGE_BUCKET,
	LEASE_PAGE_OVERFLOW,
	LEASE_PAGE_FREE
} LeasePageKind;

typedef struct LeasePageSpecial
{
	uint64		mark;			/* bucket: the largest token ever granted here
								 * or on a page this one was split from */
	uint32		bucket;			/* bucket: its number; directory: its index */
	BlockNumber next;			/* bucket, overflow: the next overflow page;
								 * free: the next free page */
	uint32		chain;			/* bucket that has a next page, overflow: the
								 * LEASE_MAX_DEPTH last bits of the hash of
								 * every entry on the overflow pages */
	uint8		depth;			/* bucket: bits of the hash it is chosen by */
	uint8		kind;			/* a LeasePageKind */
	uint16		magic;			/* LEASE_PAGE_MAGIC */
} LeasePageSpecial;

/* The boot that this server runs in: boot id and time namespace, hashed. */
typedef struct LeaseBoot
{
	uint64		id[2];
} LeaseBoot;

#define LEASE_DIRECTORY_ENTRIES		2000
#define LEASE_META_DIRECTORIES \
	((1 << LEASE_MAX_DEPTH) / LEASE_DIRECTORY_ENTRIES + 1)

typedef struct LeaseMeta
{
	uint32		magic;			/* LEASE_META_MAGIC */
	uint32		format;			/* LEASE_FORMAT */
	Oid			database;		/* another one: copied by CREATE DATABASE */
	uint32		depth;			/* of the deepest bucket */
	uint64		seed;			/* of the hash of names; never changes */
	uint64		floor;			/* every new token is larger */
	LeaseBoot	boot;			/* the boot that clock_offset_us is for */
	int64		clock_offset_us;	/* lease clock less the boot's clock */
	int64		clock_mark_us;	/* the lease clock was here once */
	BlockNumber free_head;		/* first free page, or InvalidBlockNumber */
	/* block numbers of the directory pages, 0 for not there yet */
	BlockNumber directory[LEASE_META_DIRECTORIES];
} LeaseMeta;

StaticAssertDecl(MAXALIGN(SizeOfPageHeaderData) + sizeof(LeaseMeta) +
				 MAXALIGN(sizeof(LeasePageSpecial)) <= BLCKSZ,
				 "the metapage must fit a page");
StaticAssertDecl(MAXALIGN(SizeOfPageHeaderData) +
				 LEASE_DIRECTORY_ENTRIES * sizeof(BlockNumber) +
				 MAXALIGN(sizeof(LeasePageSpecial)) <= BLCKSZ,
				 "a directory must fit a page");

/*
 * The session or transaction that a lease ends with.  It is valid only in the
 * server run in which the lease was taken; see lease_bond.c.
 */
typedef struct LeaseStamp
{
	uint32		slot;			/* of the backend, in shared memory */
	uint32		serial;			/* of its session or transaction */
} LeaseStamp;

/* What the row of a lease that ends with its session or transaction says of that. */
typedef struct LeaseBinding
{
	LeaseStamp	stamp;
	int64		ttl_us;			/* the time to live, which counts once the
								 * session or transaction is gone */
} LeaseBinding;

/*
 * One holder.  The strings follow each other in data, without terminators;
 * after them, where the kind is not LEASE_PLAIN, a LeaseBinding, unaligned.
 */
typedef struct LeaseEntry
{
	uint32		hash;			/* of the name */
	uint32		version;		/* holds, or permits */
	uint64		token;
	int64		deadline_us;	/* lease clock; LEASE_SESSION and
								 * LEASE_TRANSACTION: what it would be if
								 * nothing bound the lease, whose time to live
								 * counts only once that is gone */
	TimestampTz acquired_at;	/* wall clock, for show */
	Oid			role;			/* who acquired */
	int32		pid;			/* the backend that acquired, for show */
	uint8		mode;			/* a lease_mode */
	uint8		name_length;
	uint8		owner_length;
	uint8		request_length;
	uint8		application_length;
	uint8		address_length;
	uint8		kind;			/* a lease_kind */
	uint8		flags;			/* of those below; 0 in a new row */
	char		data[FLEXIBLE_ARRAY_MEMBER];
} LeaseEntry;

/*
 * A repeated request id was answered with the row's only hold.  So the call that
 * took the hold, and failed, must not give it back any more.
 */
#define LEASE_ENTRY_REPEATED	0x01

/* A plain lease that was released with effect at its deadline. */
#define LEASE_ENTRY_LEAVING		0x02

#define LEASE_ENTRY_FLAGS		(LEASE_ENTRY_REPEATED | LEASE_ENTRY_LEAVING)

static inline bool
lease_entry_is_leaving(const LeaseEntry *entry)
{
	return (entry->flags & LEASE_ENTRY_LEAVING) != 0;
}

/* No lease clock gets near this, and it can still be shown as a timestamp. */
#define LEASE_DEADLINE_MAX	(INT64CONST(1) << 61)

#define LEASE_ADDRESS_MAX	64	/* an IPv6 address with its zone */
#define LEASE_APPLICATION_MAX	(NAMEDATALEN - 1)	/* the rest is cut off */

/* The size of an entry whose strings have so many bytes, at most. */
#define LEASE_ENTRY_SIZE_MAX(strings) \
	MAXALIGN(offsetof(LeaseEntry, data) + (strings) + sizeof(LeaseBinding))

/*
 * The largest entry that a page can hold, whatever wrote it: the lengths of its
 * strings are bytes.
 */
#define LEASE_ENTRY_STRINGS	5
#define LEASE_ENTRY_MAX \
	LEASE_ENTRY_SIZE_MAX(LEASE_ENTRY_STRINGS * PG_UINT8_MAX)

typedef union LeaseEntryBuffer
{
	LeaseEntry	entry;
	char		bytes[LEASE_ENTRY_MAX];
	double		force_align;
} LeaseEntryBuffer;

/*
 * Copy a string to where there is room for so many bytes, and return its
 * length, which fits a byte.  A string that is too long, which no caller may
 * pass, is an error instead of overwriting the memory behind.
 */
static inline uint8
lease_put_string(char *to, Size room, lease_bytes from)
{
	if (from.length > Min(room, PG_UINT8_MAX))
		elog(ERROR, "string of %zu bytes is too long", from.length);
	if (from.length > 0)
		memcpy(to, from.data, from.length);
	return (uint8) from.length;
}

/* The same for an array. */
#define LEASE_PUT_STRING(array, from) \
	lease_put_string((array), sizeof(array), (from))

static inline LeasePageSpecial *
lease_page_special(Page page)
{
	return (LeasePageSpecial *) PageGetSpecialPointer(page);
}

static inline LeaseMeta *
lease_page_meta(Page page)
{
	return (LeaseMeta *) PageGetContents(page);
}

static inline BlockNumber *
lease_page_directory(Page page)
{
	return (BlockNumber *) PageGetContents(page);
}

/* The bits of a hash that choose a bucket of this depth. */
static inline uint32
lease_depth_mask(uint32 depth)
{
	return (UINT32_C(1) << depth) - 1;
}

/* The bits in which names must agree to share a bucket's overflow pages. */
static inline uint32
lease_hash_chain(uint32 hash)
{
	return hash & lease_depth_mask(LEASE_MAX_DEPTH);
}

/*
 * A hash with its bits reversed.  In this order the hashes of a bucket are one
 * contiguous range, and a split cuts a range in two.
 */
static inline uint32
lease_hash_position(uint32 hash)
{
	hash = (hash & 0x55555555) << 1 | (hash >> 1 & 0x55555555);
	hash = (hash & 0x33333333) << 2 | (hash >> 2 & 0x33333333);
	hash = (hash & 0x0f0f0f0f) << 4 | (hash >> 4 & 0x0f0f0f0f);
	return pg_bswap32(hash);
}

/* Where a cursor over all reversed hashes ends. */
#define LEASE_POSITION_END	(UINT64CONST(1) << 32)

/* Say whether a bucket is the one for a hash. */
static inline bool
lease_page_is_bucket_for(const LeasePageSpecial *special, uint32 hash)
{
	return special->kind == LEASE_PAGE_BUCKET &&
		(hash & lease_depth_mask(special->depth)) == special->bucket;
}

/* Bytes of an entry's strings. */
static inline Size
lease_entry_strings(const LeaseEntry *entry)
{
	return (Size) entry->name_length + entry->owner_length +
		entry->request_length + entry->application_length +
		entry->address_length;
}

/* Bytes of an entry as it lies on a page. */
static inline Size
lease_entry_size(const LeaseEntry *entry)
{
	return MAXALIGN(offsetof(LeaseEntry, data) + lease_entry_strings(entry) +
					(entry->kind == LEASE_PLAIN ? 0 : sizeof(LeaseBinding)));
}

/* What an entry that is not plain is bound to. */
static inline LeaseBinding
lease_entry_binding(const LeaseEntry *entry)
{
	LeaseBinding binding;

	memcpy(&binding, entry->data + lease_entry_strings(entry),
		   sizeof(binding));
	return binding;
}

static inline lease_bytes
lease_entry_name(const LeaseEntry *entry)
{
	return (lease_bytes) {entry->data, entry->name_length};
}

static inline lease_bytes
lease_entry_owner(const LeaseEntry *entry)
{
	return (lease_bytes) {
		entry->data + entry->name_length, entry->owner_length
	};
}

static inline lease_bytes
lease_entry_request(const LeaseEntry *entry)
{
	return (lease_bytes) {
		entry->data + entry->name_length + entry->owner_length,
			entry->request_length
	};
}

static inline lease_bytes
lease_entry_application(const LeaseEntry *entry)
{
	return (lease_bytes) {
		entry->data + entry->name_length + entry->owner_length +
			entry->request_length,
			entry->application_length
	};
}

static inline lease_bytes
lease_entry_address(const LeaseEntry *entry)
{
	return (lease_bytes) {
		entry->data + entry->name_length + entry->owner_length +
			entry->request_length + entry->application_length,
			entry->address_length
	};
}

/*
 * Say whether the entry at a line pointer may have a hash.  Most entries that a
 * search passes do not, so this looks at one word and only checks that it lies
 * on the page; lease_page_entry() checks the rest.  Until then the entry may
 * lie anywhere, also where no LeaseEntry could.
 */
static inline bool
lease_page_may_match(Page page, OffsetNumber offset, uint32 hash)
{
	ItemId		id = PageGetItemId(page, offset);
	uint32		its_hash;

	if (ItemIdGetOffset(id) > BLCKSZ - sizeof(LeaseEntry))
		return true;
	memcpy(&its_hash, page + ItemIdGetOffset(id) + offsetof(LeaseEntry, hash),
		   sizeof(its_hash));
	return ItemIdIsUsed(id) && its_hash == hash;
}

/* lease_page.c */
extern void lease_page_init(Page page, LeasePageKind kind, uint32 bucket,
							uint32 depth);
pg_noreturn extern void lease_page_damaged(Relation rel, BlockNumber block);
extern LeasePageSpecial *lease_page_check(Relation rel, Buffer buffer);
extern LeasePageSpecial *lease_page_check_kind(Relation rel, Buffer buffer,
											   LeasePageKind kind);
extern LeaseEntry *lease_page_entry(Relation rel, Buffer buffer,
									OffsetNumber offset);
extern void lease_page_check_entries(Relation rel, Buffer buffer);
extern Size lease_page_room(Page page);
extern bool lease_page_fits(Page page, Size size);
extern void lease_page_insert(LeaseChange *change, Page page,
							  const LeaseEntry *entry);
extern void lease_page_delete(LeaseChange *change, Page page,
							  OffsetNumber offset);
extern void lease_page_overwrite(LeaseChange *change, Page page,
								 OffsetNumber offset,
								 const LeaseEntry *entry);
extern void lease_page_compact(LeaseChange *change, Page page);

#endif							/* DLOCK_LEASE_PAGE_H */
