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
 * Memory.  The summaries of a table are one array, by block, in a segment of
 * dynamic shared memory: so they follow the table and not the settings, and a
 * backend, which has one database, maps one segment at most.  The database's
 * worker makes it, and makes a larger one, empty, when the table has outgrown
 * it.
 *
 * Who writes has locked the bucket exclusively, so that its summary agrees with
 * it, and has mapped the array of that moment before changing anything
 * (lease_summary_map()).  If another array takes its place after that, the new
 * one has no summary of this bucket, and gets none before the bucket is
 * unlocked: there is nothing to keep up to date.
 *
 * Who reads has locked nothing.  The filter may be half replaced then, but the
 * bits of an owner who was in the bucket before and still is are in both halves.
 *
 * Apart from the array, whether there is one or not, blocks make up stripes,
 * each with a lower bound of the deadlines in all its blocks.  Who writes lowers
 * it before the bucket is unlocked.  Only the worker raises it: at the beginning
 * of a round over the stripe, to PG_INT64_MAX, and each block that the round
 * comes to lowers it again.  The barriers in lower_stripe() and
 * lease_summary_begin_round() make sure that either the writer finds it raised,
 * or the worker finds what was written.  It is complete when the round has come
 * to its end; nobody but the worker reads it.
 *
 * A walk over the blocks in order finds every lease that existed when it began,
 * because a split moves entries only to a page added at the end of the
 * relation, whose summary is unknown at first.
 *
 * A lower bound may be too low, after a release or a renewal.  The reaper then
 * reads the bucket once and finds out.  Owners that have left stay in a filter
 * until it is made anew.  That happens once more owners were added than it had
 * entries, and more than STALE_OWNERS.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "storage/dsm.h"
#include "storage/lease_storage.h"

#define FILTER_BITS		(lengthof(((LeaseSummary *) 0)->owners) * 64)
#define FILTER_HASHES	4

/* A filter is made anew after so many new owners, or as many as entries. */
#define STALE_OWNERS	64

/* The smallest array. */
#define MIN_SLOTS		256

/* So many consecutive blocks are in the same stripe. */
#define RUN_BLOCKS		64

/* A lower bound of anything. */
#define UNKNOWN			((uint64) PG_INT64_MIN)

/* A bucket's summary; nothing but the bound is valid while that is UNKNOWN. */
typedef struct Slot
{
	pg_atomic_uint64 deadline_us;	/* int64 */
	int			room;			/* until so many more owners are added */
	uint64		owners[lengthof(((LeaseSummary *) 0)->owners)];
} Slot;

StaticAssertDecl(sizeof(Slot) <= 128, "a slot should take two cache lines");

int			lease_summary_pages = 1 << 20;

/* The array that this backend has mapped. */
static dsm_segment *mapped_segment = NULL;
static dsm_handle mapped_array = DSM_HANDLE_INVALID;
static Slot *mapped_slots = NULL;
static BlockNumber nmapped = 0;

/* The stripes that the worker's round leaves out. */
static bool left_out[LEASE_SUMMARY_STRIPES];

/* ----------------------------------------------------------------
 * The array and the stripes
 * ----------------------------------------------------------------
 */

void
lease_summary_init(LeaseSummaries *summaries)
{
	pg_atomic_init_u32(&summaries->array, DSM_HANDLE_INVALID);
	summaries->refused = PG_UINT64_MAX;
	for (int i = 0; i < LEASE_SUMMARY_STRIPES; i++)
		pg_atomic_init_u64(&summaries->due_us[i], UNKNOWN);
}

/* Let another array, or none, be that of the table. */
static void
publish(LeaseSummaries *summaries, dsm_handle array)
{
	dsm_handle	old = pg_atomic_exchange_u32(&summaries->array, array);

	if (old != DSM_HANDLE_INVALID)
		dsm_unpin_segment(old);
}

/*
 * Rounds begin anew, perhaps after one that did not come to its end: no stripe's
 * bound is complete.
 */
void
lease_summary_begin_rounds(LeaseSummaries *summaries)
{
	for (int i = 0; i < LEASE_SUMMARY_STRIPES; i++)
		pg_atomic_write_u64(&summaries->due_us[i], UNKNOWN);
}

/* The table is new, or gone. */
void
lease_summary_forget(LeaseSummaries *summaries)
{
	publish(summaries, DSM_HANDLE_INVALID);
	summaries->refused = PG_UINT64_MAX;
	lease_summary_begin_rounds(summaries);
}

/* Use this segment from now on, or none. */
static void
use_segment(dsm_segment *segment)
{
	if (mapped_segment != NULL)
		dsm_detach(mapped_segment);
	mapped_segment = segment;
	mapped_array = DSM_HANDLE_INVALID;
	nmapped = 0;
	if (segment == NULL)
		return;
	dsm_pin_mapping(segment);
	mapped_array = dsm_segment_handle(segment);
	mapped_slots = dsm_segment_address(segment);
	nmapped = dsm_segment_map_length(segment) / sizeof(Slot);
}

/*
 * Map the array.  Called by walks, and with a bucket locked before that is
 * changed, since this may fail.
 */
void
lease_summary_map(LeaseSummaries *summaries)
{
	dsm_handle	array = pg_atomic_read_u32(&summaries->array);

	if (array == mapped_array)
		return;
	use_segment(NULL);
	/* NULL if another has taken its place just now */
	if (array != DSM_HANDLE_INVALID)
		use_segment(dsm_attach(array));
}

/*
 * Make a larger array if the table has outgrown it.  If there is no memory for
 * it, that is an error once; the next worker does without.
 */
static void
grow(LeaseSummaries *summaries, BlockNumber blocks)
{
	uint64		limit = (uint64) lease_summary_pages;
	uint64		wanted = Min(limit, Max(MIN_SLOTS, 2 * (uint64) blocks));
	dsm_segment *segment;

	if (nmapped >= Min(limit, blocks) || wanted >= summaries->refused)
		return;
	summaries->refused = wanted;
	segment = dsm_create(wanted * sizeof(Slot), 0);
	use_segment(segment);
	for (BlockNumber i = 0; i < nmapped; i++)
		pg_atomic_init_u64(&mapped_slots[i].deadline_us, UNKNOWN);
	dsm_pin_segment(segment);
	publish(summaries, mapped_array);
	summaries->refused = PG_UINT64_MAX;
	/* no call should have to fill it */
	lease_summary_begin_rounds(summaries);
}

/* The slot of a block, or NULL where it has none in the array of this moment. */
static Slot *
find_slot(LeaseSummaries *summaries, BlockNumber block)
{
	if (block >= nmapped ||
		pg_atomic_read_u32(&summaries->array) != mapped_array)
		return NULL;
	return &mapped_slots[block];
}

/* The bound of a slot, which may be NULL. */
static int64
slot_deadline(Slot *slot)
{
	return (int64) (slot == NULL ? UNKNOWN :
					pg_atomic_read_u64(&slot->deadline_us));
}

static int
stripe_of(BlockNumber block)
{
	return block / RUN_BLOCKS % LEASE_SUMMARY_STRIPES;
}

/* Lower the bound of a block's stripe, after its slot's. */
static void
lower_stripe(LeaseSummaries *summaries, BlockNumber block, int64 deadline_us)
{
	pg_atomic_uint64 *due_us = &summaries->due_us[stripe_of(block)];
	uint64		old;

	pg_memory_barrier();
	old = pg_atomic_read_u64(due_us);
	while ((int64) old > deadline_us &&
		   !pg_atomic_compare_exchange_u64(due_us, &old,
										   (uint64) deadline_us))
		;
}

/* ----------------------------------------------------------------
 * Owners
 * ----------------------------------------------------------------
 */

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

/* Say whether an owner, known by its hash, may be among a summary's. */
bool
lease_summary_has_owner(const LeaseSummary *summary, uint64 hash)
{
	return filter_has(summary->owners, hash);
}

/* Say whether a block may hold a lease of this owner.  Without locks. */
bool
lease_summary_may_own(LeaseSummaries *summaries, BlockNumber block,
					  uint64 owner_hash)
{
	Slot	   *slot;

	lease_summary_map(summaries);
	slot = find_slot(summaries, block);
	if (slot_deadline(slot) == PG_INT64_MIN)
		return true;
	pg_read_barrier();
	return filter_has(slot->owners, owner_hash);
}

/* ----------------------------------------------------------------
 * Under the exclusive content lock of the bucket
 * ----------------------------------------------------------------
 */

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

/*
 * Tell a bucket's summary of an entry that was added or whose deadline was
 * brought forward.  True: it is to be made anew.
 */
bool
lease_summary_note(LeaseSummaries *summaries, BlockNumber block,
				   int64 deadline_us, lease_bytes owner)
{
	Slot	   *slot = find_slot(summaries, block);
	int64		known_us = slot_deadline(slot);

	if (known_us != PG_INT64_MIN &&
		filter_add(slot->owners, lease_summary_owner_hash(owner)))
		slot->room--;
	if (known_us > deadline_us)
		pg_atomic_write_u64(&slot->deadline_us, (uint64) deadline_us);
	lower_stripe(summaries, block, deadline_us);
	return slot != NULL && (known_us == PG_INT64_MIN || slot->room < 0);
}

/*
 * Put a summary of all entries of a bucket in place; an empty one for a page
 * that is no bucket.  It is locked since before the entries were read.
 */
void
lease_summary_replace(LeaseSummaries *summaries, BlockNumber block,
					  const LeaseSummary *summary)
{
	Slot	   *slot = find_slot(summaries, block);

	if (slot != NULL)
	{
		slot->room = Max(summary->entries, STALE_OWNERS);
		memcpy(slot->owners, summary->owners, sizeof(slot->owners));
		pg_write_barrier();
		pg_atomic_write_u64(&slot->deadline_us, (uint64) summary->deadline_us);
	}
	lower_stripe(summaries, block, summary->deadline_us);
}

/* Entries of a bucket were moved to a new one, which is locked, too. */
void
lease_summary_split(LeaseSummaries *summaries, BlockNumber block,
					BlockNumber new_block)
{
	lower_stripe(summaries, new_block, slot_deadline(find_slot(summaries, block)));
}

/* ----------------------------------------------------------------
 * The worker
 * ----------------------------------------------------------------
 */

/*
 * Begin a round over the stripes that are due.  Without locks, before the length
 * of the relation is read for the round; "blocks" is what it was shortly ago.
 */
void
lease_summary_begin_round(LeaseSummaries *summaries, BlockNumber blocks,
						  int64 now_us)
{
	lease_summary_map(summaries);
	grow(summaries, blocks);
	for (int i = 0; i < LEASE_SUMMARY_STRIPES; i++)
	{
		pg_atomic_uint64 *due_us = &summaries->due_us[i];

		left_out[i] = (int64) pg_atomic_read_u64(due_us) > now_us;
		if (!left_out[i])
			pg_atomic_write_u64(due_us, (uint64) PG_INT64_MAX);
	}
	pg_memory_barrier();
}

/*
 * The first block of the round from "from" on, below "end", that may hold
 * something that is over, or whose summary is unknown; "end" if there is none.
 * The caller goes there, and replaces its summary.
 */
BlockNumber
lease_summary_next_due(LeaseSummaries *summaries, BlockNumber from,
					   BlockNumber end, int64 now_us)
{
	BlockNumber block = from;

	while (block < end)
	{
		BlockNumber first = block;
		BlockNumber run_end = Min(end, (block / RUN_BLOCKS + 1) * RUN_BLOCKS);
		int64		earliest_us = PG_INT64_MAX;
		int64		due_us;

		if (left_out[stripe_of(block)])
			block = run_end;
		for (; block < run_end; block++)
		{
			due_us = slot_deadline(find_slot(summaries, block));
			if (due_us <= now_us)
				break;
			earliest_us = Min(earliest_us, due_us);
		}
		lower_stripe(summaries, first, earliest_us);
		if (block < run_end)
			return block;
	}
	return end;
}

/*
 * The lower bound of all deadlines in a database, or PG_INT64_MAX when it holds
 * no lease.  Only for its worker, and not in the middle of a round.
 */
int64
lease_summary_due(LeaseSummaries *summaries)
{
	int64		due_us = PG_INT64_MAX;

	for (int i = 0; i < LEASE_SUMMARY_STRIPES; i++)
		due_us = Min(due_us,
					 (int64) pg_atomic_read_u64(&summaries->due_us[i]));
	return due_us;
}
