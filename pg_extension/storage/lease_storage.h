/*
 * lease_storage.h
 *	  The lock table and what shared memory has of it: pages, WAL, clock.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_STORAGE_H
#define DLOCK_STORAGE_H

#include "access/generic_xlog.h"
#include "access/xlogdefs.h"
#include "compat.h"
#include "datatype/timestamp.h"
#include "lease.h"
#include "nodes/pg_list.h"
#include "port/atomics.h"
#include "port/pg_bswap.h"
#include "storage/block.h"
#include "storage/buf.h"
#include "storage/bufpage.h"
#include "storage/itemid.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/off.h"
#include "utils/timestamp.h"

/* ----------------------------------------------------------------
 * The shared memory of dlock.
 * ----------------------------------------------------------------
 */

/*
 * What tells one form of the area from another.  Whoever changes the form, or what its
 * fields mean, makes this larger: a session whose library has another number gets an
 * error.  Not within a minor version, so that its updates need no restart.
 */
#ifndef LEASE_AREA_LAYOUT
#define LEASE_AREA_LAYOUT	1
#endif

/* A place in the area: the distance from its start.  0: none. */
typedef Size LeasePlace;

/* The boot that this server runs in: boot id and time namespace, hashed. */
typedef struct LeaseBoot
{
	uint64		id[2];
} LeaseBoot;

/* What the server's settings and the boot were when the area was made. */
typedef struct LeaseAreaSettings
{
	int			databases;
	int			waiters;		/* that can wait, in one place each */
	int			guards;			/* but the first of each transaction */
	LeaseBoot	boot;
} LeaseAreaSettings;

/*
 * dlock.c: the modules that have parts of the area, in their order behind
 * LeaseAreaSettings, and NULL.  Each takes its parts; "make": nobody has used them
 * yet.
 */
extern void (*const lease_area_parts[]) (bool make);

/* dlock.c: raise an error if the settings could not be made */
extern void lease_check_settings(void);

/* dlock.max_databases and so on; what counts is lease_area_settings */
extern int	lease_max_databases;
extern int	lease_max_waiters;
extern int	lease_max_guards;

/* this process's; NULL as long as it has not attached */
extern char *lease_area_start;
extern const LeaseAreaSettings *lease_area_settings;

/* PgReloadTime of the settings that this process has told the others; 0: none yet */
extern TimestampTz lease_area_told;

/* lease_area.c */
extern void lease_area_attach_now(void);
extern bool lease_area_map(bool make);
extern void *lease_area_take(Size count, Size size);
extern void lease_area_init_lock(LWLock *lock);

/*
 * Attach to the area, which is made if need be.  Each call does this before it uses any
 * of shared memory or of the settings, with no lock held: it may fail.  If the server's
 * settings were read in this process since the last call, this tells all others.
 */
static inline void
lease_area_attach(void)
{
	if (unlikely(lease_area_start == NULL || lease_area_told != PgReloadTime))
		lease_area_attach_now();
}

static inline void *
lease_area_at(LeasePlace place)
{
	return place == 0 ? NULL : lease_area_start + place;
}

static inline LeasePlace
lease_area_place(const void *address)
{
	return (LeasePlace) ((const char *) address - lease_area_start);
}

/* ----------------------------------------------------------------
 * Doubly linked lists in the area of shared memory.
 *
 * Like lib/ilist.h, but the area is at another address in each process, so a link is a
 * place in the area.  The list is a ring that its head belongs to; an item has its link
 * in a field "link".
 * ----------------------------------------------------------------
 */

typedef struct LeaseLink
{
	LeasePlace	previous;
	LeasePlace	next;
} LeaseLink;

#define lease_list_item(type, place) \
	((type *) ((char *) lease_area_at(place) - offsetof(type, link)))

/* Go through a list, which must not change meanwhile. */
#define lease_list_foreach(type, item, list) \
	for (type *item = lease_list_item(type, (list)->next); \
		 &item->link != (list); \
		 item = lease_list_item(type, item->link.next))

static inline void
lease_list_init(LeaseLink *list)
{
	list->previous = list->next = lease_area_place(list);
}

static inline bool
lease_list_is_empty(const LeaseLink *list)
{
	return list->next == lease_area_place(list);
}

/* Put an item in front of all others; or, given another's link, behind that. */
static inline void
lease_list_push_head(LeaseLink *list, LeaseLink *new_link)
{
	new_link->previous = lease_area_place(list);
	new_link->next = list->next;
	((LeaseLink *) lease_area_at(list->next))->previous =
		lease_area_place(new_link);
	list->next = lease_area_place(new_link);
}

static inline void
lease_list_push_tail(LeaseLink *list, LeaseLink *new_link)
{
	lease_list_push_head(lease_area_at(list->previous), new_link);
}

static inline void
lease_list_delete(LeaseLink *link)
{
	((LeaseLink *) lease_area_at(link->previous))->next = link->next;
	((LeaseLink *) lease_area_at(link->next))->previous = link->previous;
}

/* ----------------------------------------------------------------
 * Changing pages of the lock table and logging the change.
 * ----------------------------------------------------------------
 */

#define LEASE_CHANGE_RANGES	16

typedef struct LeaseChangedPage
{
	Buffer		buffer;			/* locked exclusively by the caller */
	Page		page;			/* where to make the change */
	bool		whole;			/* log the whole page */
	int			nranges;
	struct
	{
		uint16		offset;
		uint16		length;
	}			ranges[LEASE_CHANGE_RANGES];	/* disjoint, no order */
} LeaseChangedPage;

/*
 * A change to up to four pages that is logged as one record.
 *
 *	lease_change_begin(&change, rel, generic);
 *	page = lease_change_page(&change, buffer, whole);	-- for each
 *	...check everything that can fail...
 *	lease_change_start(&change);
 *	...change the pages and note what was changed; nothing may fail...
 *	lsn = lease_change_finish(&change);
 *
 * Between begin and start the caller may simply abandon the change.
 *
 * Redo locks the pages in the order in which they were added, and keeps them
 * locked until all are changed.  A reader on a standby holds a bucket while it
 * goes on to an overflow page or the metapage.  So that redo and such a reader
 * do not deadlock, a change to more than one of these adds the bucket first,
 * changed or not, and the metapage last.  That also keeps the reader from
 * seeing half of the change.
 */
typedef struct LeaseChange
{
	Relation	rel;
	GenericXLogState *generic;	/* NULL: the small record */
	bool		unimportant;	/* alone, it is no reason to archive */
	int			npages;
	LeaseChangedPage pages[MAX_GENERIC_XLOG_PAGES];
} LeaseChange;

extern bool lease_wal_generic;	/* dlock.generic_wal */

/* lease_wal.c */
extern void lease_change_begin(LeaseChange *change, Relation rel,
							   bool generic);
extern Page lease_change_page(LeaseChange *change, Buffer buffer, bool whole);
extern void lease_change_start(LeaseChange *change);
extern void lease_change_note(LeaseChange *change, Page page,
							  const void *start, Size length);
extern XLogRecPtr lease_change_finish(LeaseChange *change);

/* durability */
extern void lease_wal_attach(bool make);
extern void lease_wal_flush(XLogRecPtr lsn);
extern void lease_wal_flush_later(XLogRecPtr lsn);
extern bool lease_wal_enter_flusher(void);
extern void lease_wal_leave_flusher(int code, Datum arg);
extern bool lease_wal_has_flusher(void);
extern void lease_wal_wake_flusher(void);
extern void lease_wal_flusher_wait(long timeout_ms);

/* ----------------------------------------------------------------
 * The pages of the lock table and the entries on them.
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
 * ----------------------------------------------------------------
 */

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

/* The strings of a row. */
typedef enum LeaseEntryString
{
	LEASE_ENTRY_NAME,
	LEASE_ENTRY_OWNER,
	LEASE_ENTRY_REQUEST,
	LEASE_ENTRY_APPLICATION,
	LEASE_ENTRY_ADDRESS
} LeaseEntryString;

#define LEASE_ENTRY_STRINGS	(LEASE_ENTRY_ADDRESS + 1)

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
	uint8		lengths[LEASE_ENTRY_STRINGS];	/* of the strings */
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

/* Functions: the server's macros evaluate a page several times. */
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

static inline lease_bytes
lease_entry_string(const LeaseEntry *entry, LeaseEntryString which)
{
	const char *start = entry->data;

	for (int i = 0; i < (int) which; i++)
		start += entry->lengths[i];
	return (lease_bytes) {start, entry->lengths[which]};
}

#define lease_entry_name(entry)		lease_entry_string((entry), LEASE_ENTRY_NAME)
#define lease_entry_owner(entry)	lease_entry_string((entry), LEASE_ENTRY_OWNER)
#define lease_entry_request(entry)	lease_entry_string((entry), LEASE_ENTRY_REQUEST)
#define lease_entry_application(entry) \
	lease_entry_string((entry), LEASE_ENTRY_APPLICATION)
#define lease_entry_address(entry)	lease_entry_string((entry), LEASE_ENTRY_ADDRESS)

/* Bytes of an entry's strings. */
static inline Size
lease_entry_strings(const LeaseEntry *entry)
{
	lease_bytes last = lease_entry_address(entry);

	return last.data + last.length - entry->data;
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
extern Size lease_page_check_entries(Relation rel, Buffer buffer);
extern bool lease_page_fits(Page page, Size size);
extern void lease_page_insert(LeaseChange *change, Page page,
							  const LeaseEntry *entry);
extern void lease_page_delete(LeaseChange *change, Page page,
							  OffsetNumber offset);
extern void lease_page_overwrite(LeaseChange *change, Page page,
								 OffsetNumber offset,
								 const LeaseEntry *entry);
extern void lease_page_compact(LeaseChange *change, Page page);

/* ----------------------------------------------------------------
 * What shared memory knows of each bucket: its next deadline and its owners.
 * ----------------------------------------------------------------
 */

extern int	lease_summary_pages;	/* dlock.tracked_pages */

/* A summary in the making; filled entry by entry, then put in place. */
typedef struct LeaseSummary
{
	int64		deadline_us;	/* the earliest, or PG_INT64_MAX */
	int			entries;
	uint64		owners[13];		/* a Bloom filter of their owners */
} LeaseSummary;

/* What is known of a table: a part of its database's entry in lease_state.c. */
typedef struct LeaseSummaries
{
	pg_atomic_uint32 array;		/* the segment with the summaries */
	uint64		refused;		/* so many summaries, or more, have no room, if not 0 */

	/* int64: no lease ends before; PG_INT64_MAX: there is none */
	pg_atomic_uint64 due_us;
} LeaseSummaries;

/* lease_summary.c */
extern void lease_summary_forget(LeaseSummaries *summaries);
extern void lease_summary_map(LeaseSummaries *summaries);
extern uint64 lease_summary_owner_hash(lease_bytes owner);
extern bool lease_summary_has_owner(const uint64 *owners, uint64 hash);
extern bool lease_summary_may_own(LeaseSummaries *summaries, BlockNumber block,
								  uint64 owner_hash);
extern void lease_summary_begin(LeaseSummary *summary);
extern void lease_summary_add(LeaseSummary *summary, int64 deadline_us,
							  lease_bytes owner);
extern bool lease_summary_note(LeaseSummaries *summaries, BlockNumber block,
							   int64 deadline_us, lease_bytes owner);
extern void lease_summary_replace(LeaseSummaries *summaries, BlockNumber block,
								  const LeaseSummary *summary);
extern void lease_summary_split(LeaseSummaries *summaries, BlockNumber block);
extern void lease_summary_begin_rounds(LeaseSummaries *summaries);
extern void lease_summary_begin_round(LeaseSummaries *summaries,
									  BlockNumber blocks, int64 now_us);
extern BlockNumber lease_summary_next_due(LeaseSummaries *summaries,
										  BlockNumber from, BlockNumber end,
										  int64 now_us);
extern int64 lease_summary_due(LeaseSummaries *summaries);

/* ----------------------------------------------------------------
 * What shared memory holds for each database that uses dlock.
 * ----------------------------------------------------------------
 */

/* How long to wait before a launcher or worker is started again, milliseconds. */
#define LEASE_RETRY_INTERVAL	5000

/* The counters of dlock.stats, in the order of its columns. */
typedef enum LeaseCounter
{
	LEASE_COUNT_ACQUIRED,
	LEASE_COUNT_REENTERED,
	LEASE_COUNT_REFUSED,
	LEASE_COUNT_TIMED_OUT,
	LEASE_COUNT_DEADLOCKS,
	LEASE_COUNT_RELEASED,
	LEASE_COUNT_RENEWED,
	LEASE_COUNT_RENEWALS_LOST,
	LEASE_COUNT_EXPIRED,
	LEASE_COUNT_REAPED,
	LEASE_COUNT_FORCED
} LeaseCounter;

#define LEASE_COUNTERS	(LEASE_COUNT_FORCED + 1)

/*
 * The histogram of waits: element i counts those that took less than 2^i times
 * 100 microseconds and that no earlier element counts; the last counts all
 * others.
 */
#define LEASE_WAIT_BUCKETS	24
#define LEASE_WAIT_UNIT_US	100

/*
 * One database.  lease_activate.c reads a table's state from its metapage, brings
 * it up to date and publishes it by setting "file".
 */
typedef struct LeaseDatabase
{
	/* under the lock of lease_state.c */
	Oid			database;		/* InvalidOid: unused */
	bool		dropped;		/* its extension was dropped: others may take the
								 * entry */
	int			worker_pid;		/* 0: none */
	int64		worker_due_us;	/* boot clock: when to start one; 0: none is wanted */

	/* the bucket that the worker is at, 0 for none; only the worker writes */
	volatile BlockNumber reaped_block;

	/* the table's file that the fields below are for */
	volatile RelFileNumber file;
	pg_atomic_uint64 floor;		/* every new token is larger */
	pg_atomic_uint64 clock_offset_us;	/* int64: lease clock less boot clock */
	pg_atomic_uint64 clock_mark_us; /* int64: the mark on the metapage */

	/*
	 * What was true when this server first activated a table here: larger
	 * tokens are its own grants.  Set once, before "file".
	 */
	uint64		start_floor;
	int64		start_us;		/* lease clock */

	/*
	 * How many rows the table's file has in the buckets before held_cursor, in
	 * the order of lease_hash_position(): see lease_look_count_held().
	 * Changes in a bucket that has been counted update the count.
	 */
	pg_atomic_uint64 held;
	pg_atomic_uint64 held_cursor;

	LeaseSummaries summaries;	/* of its table */

	int			events;			/* that nobody was told of: see lease_event.c */

	pg_atomic_uint64 stats_reset;	/* TimestampTz */
	/* these keep what each call counts out of what each call only reads */
	pg_atomic_uint64 waits[LEASE_WAIT_BUCKETS];
	pg_atomic_uint64 counters[LEASE_COUNTERS];
	pg_atomic_uint32 nwaiters;	/* calls that wait; their places tell of this entry */
	pg_atomic_uint64 woken;		/* waiters woken by other processes */
} LeaseDatabase;

extern int	lease_lock_delay;	/* dlock.lock_delay in milliseconds, as this
								 * process knows it: see lease_lock_delay_us() */

/* lease_state.c */
extern void lease_state_attach(bool make);
extern LeaseDatabase *lease_state_find(void);
extern LeaseDatabase *lease_state_database(void);
extern void lease_state_forget(Oid database);
extern List *lease_state_databases(void);
extern void lease_state_drop(void);
extern void lease_state_tell_lock_delay(void);
extern int64 lease_lock_delay_us(void);
extern void lease_state_stats_reset(LeaseDatabase *db);
extern void lease_count_wait(LeaseDatabase *db, int64 waited_us);

/* workers */
extern bool lease_state_enter_worker(LeaseDatabase *db);
extern void lease_state_leave_worker(LeaseDatabase *db, bool wanted);
extern void lease_state_want_worker(void);
extern List *lease_state_wanted_workers(void);
extern int	lease_state_worker_pid(Oid database);

static inline void
lease_count(LeaseDatabase *db, LeaseCounter counter, uint64 n)
{
	if (n > 0)
		pg_atomic_fetch_add_u64(&db->counters[counter], n);
}

/*
 * Note that a bucket has got, or lost, so many rows.  The caller has it locked
 * exclusively, so that nobody counts it meanwhile.
 */
static inline void
lease_count_rows(LeaseDatabase *db, uint32 bucket, int64 n)
{
	if (n != 0 && lease_hash_position(bucket) <
		pg_atomic_read_u64(&db->held_cursor))
		pg_atomic_fetch_add_u64(&db->held, n);
}

/* ----------------------------------------------------------------
 * The lease clock of a database, and the boot's clock that carries it.
 * ----------------------------------------------------------------
 */

/* How old the worker lets the clock's mark become while leases are held. */
#define LEASE_MARK_AGE_US	(10 * USECS_PER_SEC)

extern char *lease_boot_id;		/* dlock.boot_id */

/* lease_clock.c */
extern int64 lease_clock_boot(void);
extern bool lease_clock_is_past(int64 start_us, int milliseconds);
extern LeaseBoot lease_clock_identity(void);
extern int64 lease_clock_server_start(void);
extern int64 lease_clock_now(LeaseDatabase *db);
extern int64 lease_clock_read(Relation rel);
extern void lease_clock_mark(Relation rel, LeaseDatabase *db, int64 age_us);

/* ----------------------------------------------------------------
 * What the leases of sessions and transactions are bound to.
 * ----------------------------------------------------------------
 */

/* lease_bond.c */
extern void lease_bond_attach(bool make);
extern bool lease_bond_is_used(lease_kind kind);
extern LeaseStamp lease_bond_mine(lease_kind kind);
extern void lease_bond_end(lease_kind kind, bool lost);
extern lease_holder lease_bond_holder(LeaseDatabase *db,
									  const LeaseEntry *entry, int64 now_us);

/* ----------------------------------------------------------------
 * Find the bucket of a name, and let the lock table grow.
 * ----------------------------------------------------------------
 */

/* A function that is shown every entry of a bucket, overflow included. */
typedef void (*LeaseEntryVisitor) (Buffer buffer, OffsetNumber offset,
								   LeaseEntry *entry, void *context);

/*
 * A function that is shown every page of a bucket before its entries; true: the
 * visitor need not see these.
 */
typedef bool (*LeasePageVisitor) (Buffer buffer, void *context);

/* A walk along a bucket's overflow pages. */
typedef struct LeaseChain
{
	Relation	rel;
	Buffer		bucket;			/* locked by the caller throughout */
	Buffer		buffer;			/* where the walk is; locked */
	int			mode;			/* to lock overflow pages in */
	BlockNumber steps;			/* guards against a loop */
	BlockNumber blocks;			/* the file has at least so many */
} LeaseChain;

/* To lease_trie_make_room(): for several entries, for which no page has room. */
#define LEASE_PAGE_MORE		BLCKSZ

/* lease_trie.c */
extern Buffer lease_meta_lock(Relation rel, int mode);
extern void lease_meta_read(Relation rel, LeaseMeta *meta);
extern XLogRecPtr lease_meta_write(Relation rel, const LeaseMeta *from);
extern bool lease_trie_exists(Relation rel);
extern uint32 lease_trie_hash(Relation rel, lease_bytes name);
extern Buffer lease_trie_lock(Relation rel, uint32 hash, int mode);
extern Buffer lease_trie_lock_more(Relation rel, uint32 hash);
extern Buffer lease_trie_lock_at(Relation rel, uint64 *cursor, int mode);
extern void lease_trie_visit(Relation rel, Buffer bucket, const uint32 *hash,
							 LeaseEntryVisitor visitor, void *context);
extern void lease_trie_visit_pages(Relation rel, Buffer bucket,
								   const uint32 *hash,
								   LeasePageVisitor page_visitor,
								   LeaseEntryVisitor visitor, void *context);
extern void lease_trie_look(Relation rel, uint32 hash,
							LeaseEntryVisitor visitor, void *context);
extern LeaseChain lease_chain_begin(Relation rel, Buffer bucket, int mode);
extern void lease_chain_leave(LeaseChain *walk);
extern Buffer lease_chain_lock_next(LeaseChain *walk, Buffer buffer);
extern bool lease_chain_next(LeaseChain *walk);
extern bool lease_trie_has_chain(Buffer bucket, uint32 hash);
extern void lease_trie_summarize(Relation rel, Buffer bucket);
extern void lease_trie_note(Relation rel, Buffer bucket, int64 deadline_us,
							lease_bytes owner);
extern BlockNumber lease_trie_blocks(Relation rel);
extern uint64 lease_trie_largest_mark(Relation rel);

/* lease_trie_grow.c */
extern void lease_trie_create(Relation rel, uint64 seed);
extern Buffer lease_trie_lock_block(Relation rel, BlockNumber block);
extern Buffer lease_trie_find_room(Relation rel, Buffer bucket, uint32 hash,
								   Size size, BlockNumber roomiest);
extern bool lease_trie_compact(Relation rel, Buffer bucket, uint32 hash,
							   Size size);
extern void lease_trie_make_room(Relation rel, Buffer bucket, uint32 hash,
								 Size size);
extern void lease_trie_clear(Relation rel, Buffer bucket);
extern void lease_trie_free_overflow(Relation rel, Buffer bucket);
extern void lease_trie_insert(Relation rel, const LeaseEntry *entry);

/* ----------------------------------------------------------------
 * What the rows of an overflow page are together.
 * ----------------------------------------------------------------
 */

/* The rows of a page; valid as long as the page is locked. */
typedef struct LeaseCrowd
{
	/* what is described: a page as of its last change */
	RelFileNumber file;			/* InvalidRelFileNumber: nothing */
	BlockNumber block;
	XLogRecPtr	lsn;

	/* a row with the name that all have; InvalidOffsetNumber: no crowd */
	OffsetNumber sample;
	lease_holder holder;		/* see lease_join_crowd() */
	LeaseSummary summary;
} LeaseCrowd;

/* lease_crowd.c */
extern const LeaseCrowd *lease_crowd_of(Relation rel, Buffer buffer,
										lease_bytes name);
extern bool lease_crowd_may_own(Relation rel, Buffer buffer,
								uint64 owner_hash);

/* ----------------------------------------------------------------
 * What a backend may wait for while it has locked a page of the lock table.
 *
 * It may wait for the partitions of the queues, for pages further down the lock
 * order (lease_trie.c), and for the lock that adds a page, which is held only
 * briefly.  It may not wait for what others hold as long as they like:
 * catalogs, heavyweight locks, standbys, a signal.  Such a wait could not be
 * cancelled, nobody would notice a deadlock, and calls for other names of the
 * page would wait too.
 * ----------------------------------------------------------------
 */

/*
 * Say whether this backend may wait for anything: it has locked no page.  For
 * assertions, at each function that asks a catalog, takes a heavyweight lock or
 * sleeps.
 */
#define lease_may_wait()	compat_has_locked_no_page()

#endif							/* DLOCK_STORAGE_H */
