/*
 * lease_page.c
 *	  Entries on the pages of the lock table.
 *
 * Nothing here locks, reads or logs a page: the caller holds the content lock,
 * and passes the change under which a page is modified.  The functions that
 * modify run in a critical section and cannot fail; lease_page_entry() and
 * lease_page_fits() have checked before that they can do their work.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "storage/lease_storage.h"
#include "utils/memutils.h"

/* Make a page of a kind, without entries. */
void
lease_page_init(Page page, LeasePageKind kind, uint32 bucket, uint32 depth)
{
	LeasePageSpecial *special;

	PageInit(page, BLCKSZ, sizeof(LeasePageSpecial));
	special = lease_page_special(page);
	special->bucket = bucket;
	special->next = InvalidBlockNumber;
	special->depth = depth;
	special->kind = kind;
	special->magic = LEASE_PAGE_MAGIC;

	/* Data that is not entries must not look like the hole of a standard page. */
	if (kind == LEASE_PAGE_META)
		((PageHeader) page)->pd_lower = PageGetContents(page) +
			sizeof(LeaseMeta) - (char *) page;
	else if (kind == LEASE_PAGE_DIRECTORY)
		((PageHeader) page)->pd_lower = PageGetContents(page) +
			LEASE_DIRECTORY_ENTRIES * sizeof(BlockNumber) - (char *) page;
}

/* Report that a page is not what it should be. */
void
lease_page_damaged(Relation rel, BlockNumber block)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("block %u of lock table \"%s\" is damaged",
					block, RelationGetRelationName(rel)),
			 errhint("Fail over to a standby or restore a backup, or drop the extension, which ends all leases, and create it again.")));
}

/* Check that a page is one of ours, and return its special area. */
LeasePageSpecial *
lease_page_check(Relation rel, Buffer buffer)
{
	Page		page = BufferGetPage(buffer);
	PageHeader	header = (PageHeader) page;
	LeasePageSpecial *special;

	if (PageIsNew(page) ||
		header->pd_special != BLCKSZ - MAXALIGN(sizeof(LeasePageSpecial)) ||
		header->pd_lower < SizeOfPageHeaderData ||
		header->pd_lower > header->pd_upper ||
		header->pd_upper > header->pd_special ||
		header->pd_upper != MAXALIGN(header->pd_upper))
		lease_page_damaged(rel, BufferGetBlockNumber(buffer));
	special = lease_page_special(page);
	if (special->magic != LEASE_PAGE_MAGIC ||
		special->kind < LEASE_PAGE_META || special->kind > LEASE_PAGE_FREE ||
		special->depth > LEASE_MAX_DEPTH)
		lease_page_damaged(rel, BufferGetBlockNumber(buffer));
	return special;
}

/* The same for a page that must be of one kind. */
LeasePageSpecial *
lease_page_check_kind(Relation rel, Buffer buffer, LeasePageKind kind)
{
	LeasePageSpecial *special = lease_page_check(rel, buffer);

	if (special->kind != kind)
		lease_page_damaged(rel, BufferGetBlockNumber(buffer));
	return special;
}

/*
 * The entry at a line pointer, or NULL where that is unused.
 *
 * The page has passed lease_page_check().  Whatever bytes the page holds, the
 * entry returned lies within it.
 */
LeaseEntry *
lease_page_entry(Relation rel, Buffer buffer, OffsetNumber offset)
{
	Page		page = BufferGetPage(buffer);
	PageHeader	header = (PageHeader) page;
	ItemId		id = PageGetItemId(page, offset);
	LeaseEntry *entry;

	if (!ItemIdIsUsed(id))
		return NULL;
	entry = (LeaseEntry *) (page + ItemIdGetOffset(id));
	if (!ItemIdIsNormal(id) ||
		ItemIdGetOffset(id) < header->pd_upper ||
		ItemIdGetOffset(id) != MAXALIGN(ItemIdGetOffset(id)) ||
		ItemIdGetOffset(id) + ItemIdGetLength(id) > header->pd_special ||
		ItemIdGetLength(id) < MAXALIGN(offsetof(LeaseEntry, data) + 2) ||
		lease_entry_size(entry) != ItemIdGetLength(id) ||
		entry->name_length == 0 || entry->owner_length == 0 ||
		entry->mode < LEASE_MODE_FIRST || entry->mode > LEASE_MODE_LAST ||
		entry->kind < LEASE_KIND_FIRST || entry->kind > LEASE_KIND_LAST ||
		(entry->flags & ~LEASE_ENTRY_FLAGS) != 0 ||
		(lease_entry_is_leaving(entry) && entry->kind != LEASE_PLAIN) ||
		(entry->kind != LEASE_PLAIN &&
		 !lease_check_ttl(lease_entry_binding(entry).ttl_us)) ||
		entry->version == 0 || entry->version > LEASE_VERSION_MAX ||
		entry->token == 0 || entry->token > LEASE_TOKEN_MAX ||
		entry->deadline_us <= 0 || entry->deadline_us > LEASE_DEADLINE_MAX ||
		!IS_VALID_TIMESTAMP(entry->acquired_at))
		lease_page_damaged(rel, BufferGetBlockNumber(buffer));
	return entry;
}

/*
 * Check every entry of a page, and that they do not overlap: together they are
 * no longer than the page.  Needed before entries are moved.
 */
void
lease_page_check_entries(Relation rel, Buffer buffer)
{
	Page		page = BufferGetPage(buffer);
	PageHeader	header = (PageHeader) page;
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	Size		used = header->pd_lower;

	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
		if (lease_page_entry(rel, buffer, offset) != NULL)
			used += ItemIdGetLength(PageGetItemId(page, offset));
	if (used > header->pd_special)
		lease_page_damaged(rel, BufferGetBlockNumber(buffer));
}

/*
 * Bytes that a page would have free after compaction, line pointers included.
 * The page has passed lease_page_check_entries().
 */
Size
lease_page_room(Page page)
{
	PageHeader	header = (PageHeader) page;
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	Size		used = 0;

	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		ItemId		id = PageGetItemId(page, offset);

		if (ItemIdIsUsed(id))
			used += ItemIdGetLength(id) + sizeof(ItemIdData);
	}
	return header->pd_special - SizeOfPageHeaderData - used;
}

/* Find an unused line pointer, or the number of one to add. */
static OffsetNumber
unused_offset(Page page)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	OffsetNumber offset;

	for (offset = FirstOffsetNumber; offset <= last; offset++)
		if (!ItemIdIsUsed(PageGetItemId(page, offset)))
			break;
	return offset;
}

/* Say whether an entry of this size fits a page as it is. */
bool
lease_page_fits(Page page, Size size)
{
	PageHeader	header = (PageHeader) page;
	Size		hole = header->pd_upper - header->pd_lower;

	if (hole >= size + sizeof(ItemIdData))
		return true;
	return hole >= size &&
		unused_offset(page) <= PageGetMaxOffsetNumber(page);
}

/* Note the two ends of the hole, which share a word of the page header. */
static void
note_hole(LeaseChange *change, Page page)
{
	PageHeader	header = (PageHeader) page;

	lease_change_note(change, page, &header->pd_lower,
					  sizeof(header->pd_lower) + sizeof(header->pd_upper));
}

/* Put an entry on a page that it fits. */
void
lease_page_insert(LeaseChange *change, Page page, const LeaseEntry *entry)
{
	PageHeader	header = (PageHeader) page;
	OffsetNumber offset = unused_offset(page);
	ItemId		id = PageGetItemId(page, offset);
	Size		size = lease_entry_size(entry);

	Assert(lease_page_fits(page, size));
	if (offset > PageGetMaxOffsetNumber(page))
		header->pd_lower += sizeof(ItemIdData);
	header->pd_upper -= size;
	ItemIdSetNormal(id, header->pd_upper, size);
	memcpy(page + header->pd_upper, entry, size);

	note_hole(change, page);
	lease_change_note(change, page, id, sizeof(ItemIdData));
	lease_change_note(change, page, page + header->pd_upper, size);
}

/*
 * Take an entry off a page.
 *
 * Frees at once what it can without moving other entries: line pointers at the
 * end, and space next to the hole.  So on a page that is nearly empty, acquire
 * and release in turn find the same place again.
 */
void
lease_page_delete(LeaseChange *change, Page page, OffsetNumber offset)
{
	PageHeader	header = (PageHeader) page;
	LocationIndex lower = header->pd_lower;
	LocationIndex upper = header->pd_upper;
	ItemId		id = PageGetItemId(page, offset);
	bool		at_hole = ItemIdGetOffset(id) == upper;
	OffsetNumber last;

	ItemIdSetUnused(id);
	for (last = PageGetMaxOffsetNumber(page); last >= FirstOffsetNumber; last--)
		if (ItemIdIsUsed(PageGetItemId(page, last)))
			break;
	if (last < offset)
	{
		header->pd_lower = SizeOfPageHeaderData + last * sizeof(ItemIdData);
		memset(page + header->pd_lower, 0, lower - header->pd_lower);
	}
	else
		lease_change_note(change, page, id, sizeof(ItemIdData));

	if (at_hole)
	{
		LocationIndex lowest = header->pd_special;

		for (OffsetNumber i = FirstOffsetNumber; i <= last; i++)
		{
			ItemId		other = PageGetItemId(page, i);

			if (ItemIdIsUsed(other) && ItemIdGetOffset(other) < lowest)
				lowest = ItemIdGetOffset(other);
		}
		/*
		 * On a damaged page there may be others in the hole: only the entry
		 * has been checked.
		 */
		if (lowest > upper)
		{
			header->pd_upper = lowest;
			memset(page + upper, 0, lowest - upper);
		}
	}
	if (header->pd_lower != lower || header->pd_upper != upper)
		note_hole(change, page);
}

/*
 * Replace an entry by one of the same size, noting the bytes that differ; or by
 * a smaller one, when a lease that its session left behind loses its binding.
 */
void
lease_page_overwrite(LeaseChange *change, Page page, OffsetNumber offset,
					 const LeaseEntry *entry)
{
	ItemId		id = PageGetItemId(page, offset);
	char	   *old = (char *) PageGetItem(page, id);
	const char *new = (const char *) entry;
	Size		first = 0;
	Size		end = lease_entry_size(entry);

	Assert(end <= ItemIdGetLength(id));
	if (end < ItemIdGetLength(id))
	{
		ItemIdSetNormal(id, ItemIdGetOffset(id), end);
		lease_change_note(change, page, id, sizeof(ItemIdData));
	}
	while (end > 0 && old[end - 1] == new[end - 1])
		end--;
	while (first < end && old[first] == new[first])
		first++;
	if (first == end)
		return;
	memcpy(old + first, new + first, end - first);
	lease_change_note(change, page, old + first, end - first);
}

/* Gather the free space of a page into the hole; line pointers change. */
void
lease_page_compact(LeaseChange *change, Page page)
{
	PageHeader	header = (PageHeader) page;
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	LocationIndex upper = header->pd_special;
	OffsetNumber used = InvalidOffsetNumber;
	PGAlignedBlock copy;

	memcpy(copy.data, page, BLCKSZ);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		ItemId		id = PageGetItemId(copy.data, offset);

		if (!ItemIdIsUsed(id))
			continue;
		upper -= ItemIdGetLength(id);
		memcpy(page + upper, copy.data + ItemIdGetOffset(id),
			   ItemIdGetLength(id));
		used++;
		ItemIdSetNormal(PageGetItemId(page, used), upper, ItemIdGetLength(id));
	}
	header->pd_lower = SizeOfPageHeaderData + used * sizeof(ItemIdData);
	header->pd_upper = upper;
	memset(page + header->pd_lower, 0, upper - header->pd_lower);
	lease_change_note_whole(change, page);
}
