/*
 * lease_rows.c
 *	  The holders of a name: gather them from a bucket, write them back.
 *
 * All of this happens under the bucket's content lock.  Catalogs cannot be read
 * there.  If a row has the request's owner but another role, and we do not know
 * yet whether the caller may act for that role, "unknown_role" is set: unlock
 * the bucket, ask the catalogs, and start the attempt over.  The same goes for
 * making room.
 *
 * The next attempt uses the memory of the last one's rows again, so that a call
 * needs no more of it however often it looks.
 *
 * What a crash does: the grant of a lease, its token and the bucket's mark are
 * one WAL record.  Rows that a grant finds expired are removed by records of
 * their own before it; they count for nothing by then.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "call/lease_call.h"
#include "lease_crash.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

bool		lease_log_expired = true;

/* ----------------------------------------------------------------
 * A call
 * ----------------------------------------------------------------
 */

/* Forget the rows of the attempt before. */
static void
forget_rows(LeaseCall *call)
{
	call->count = 0;
	call->holders = call->inline_holders;
	call->places = call->inline_places;
	call->capacity = LEASE_ROWS_INLINE;
	call->nowners = 0;
	call->crowd = SIZE_MAX;
	call->roomiest = InvalidBlockNumber;
	call->hole = 0;
	if (call->memory != NULL)
		MemoryContextReset(call->memory);
}

/*
 * Begin a call by the current role on a table that is open and activated.  The
 * request's strings and times have been checked.
 */
void
lease_rows_init(LeaseCall *call, Relation rel, LeaseDatabase *db,
				const lease_request *request)
{
	memset(call, 0, offsetof(LeaseCall, inline_holders));
	call->rel = rel;
	call->db = db;
	call->request = *request;
	call->request.delay_us = lease_lock_delay_us();
	if (call->request.kind == 0)
		call->request.kind = LEASE_PLAIN;
	call->requester.role = GetUserId();
	call->requester.pid = MyProcPid;
	if (call->request.kind != LEASE_PLAIN)
		call->requester.stamp = lease_bond_mine(call->request.kind);
	forget_rows(call);
}

/* Log the holders that died, and free the memory of a call's rows. */
void
lease_rows_end(LeaseCall *call)
{
	lease_rows_report_expired(call);
	if (call->memory != NULL)
		MemoryContextDelete(call->memory);
	call->memory = NULL;
	/* a call that waits long begins anew each time it looks */
	list_free(call->requester.acts_for);
	list_free(call->requester.strangers);
	call->requester.acts_for = call->requester.strangers = NIL;
}

/* What a waiter has asked for; its strings stay in its place. */
lease_request
lease_rows_request(const LeaseWaiter *waiter)
{
	return (lease_request) {
		.op = LEASE_ACQUIRE,
		.owner = {waiter->owner, waiter->owner_length},
		.request = {waiter->request, waiter->request_length},
		.mode = waiter->mode,
		.kind = waiter->kind,
		.limit = waiter->limit,
		.permits = waiter->permits,
		.delay_us = lease_lock_delay_us(),
		.ttl_us = waiter->ttl_us,
	};
}

/*
 * Ask the catalogs about the role that stopped an attempt.  That may take long:
 * somebody may have locked a catalog.
 */
void
lease_rows_resolve_role(LeaseCall *call)
{
	LeaseRequester *requester = &call->requester;
	Oid			role = call->unknown_role;

	Assert(lease_may_wait());
	if (has_privs_of_role(requester->role, role))
		requester->acts_for = lappend_oid(requester->acts_for, role);
	else
		requester->strangers = lappend_oid(requester->strangers, role);
	call->unknown_role = InvalidOid;
}

/*
 * How the requester stands to a role's row of its owner.  A waiter knows only the role
 * that it acted for when it joined.
 */
static lease_standing
find_standing(LeaseCall *call, Oid role)
{
	const LeaseRequester *requester = &call->requester;

	if (role == requester->role)
		return LEASE_SELF;
	if (list_member_oid(requester->acts_for, role) ||
		(requester->waiter != NULL && role == requester->waiter->acts_for))
		return LEASE_ACTS_FOR;
	if (!requester->alone && !list_member_oid(requester->strangers, role))
		call->unknown_role = role;
	return LEASE_STRANGER;
}

/* ----------------------------------------------------------------
 * Gathering
 * ----------------------------------------------------------------
 */

/* The memory of this attempt's rows. */
static MemoryContext
rows_memory(LeaseCall *call)
{
	if (call->memory == NULL)
		call->memory = AllocSetContextCreate(CurrentMemoryContext,
											 "dlock rows",
											 ALLOCSET_DEFAULT_SIZES);
	return call->memory;
}

/* Copy a string from a page that will not stay locked, or from a queue. */
static lease_bytes
keep_bytes(LeaseCall *call, lease_bytes bytes)
{
	char	   *copy;

	if (bytes.length == 0)
		return bytes;
	copy = MemoryContextAlloc(rows_memory(call), bytes.length);
	memcpy(copy, bytes.data, bytes.length);
	return (lease_bytes) {copy, bytes.length};
}

/* Say whether a row is bound to the session or transaction of a waiter. */
static bool
is_bound_to(const LeaseEntry *entry, const LeaseWaiter *waiter)
{
	LeaseStamp	stamp = lease_entry_binding(entry).stamp;

	return entry->kind == waiter->kind && stamp.slot == waiter->stamp.slot &&
		stamp.serial == waiter->stamp.serial;
}

/* Show the core an entry, as the requester sees it.  Its strings stay on the page. */
static lease_holder
holder_of(LeaseCall *call, const LeaseEntry *entry)
{
	lease_holder holder = lease_bond_holder(call->db, entry, call->now_us);
	const LeaseWaiter *waiter = call->requester.waiter;

	if (entry->role == call->requester.role ||
		lease_same(holder.owner, call->request.owner))
		holder.standing = find_standing(call, entry->role);
	if (waiter != NULL && entry->kind != LEASE_PLAIN)
		holder.elsewhere = !is_bound_to(entry, waiter);
	return holder;
}

/* One row more, and room for the spare one behind it. */
static lease_holder *
append_row(LeaseCall *call, BlockNumber block)
{
	if (call->count + 1 >= call->capacity)
	{
		size_t		capacity = call->capacity * 2;
		MemoryContext memory = rows_memory(call);
		lease_holder *holders =
			MemoryContextAllocHuge(memory, capacity * sizeof(lease_holder));
		RowPlace   *places =
			MemoryContextAllocHuge(memory, capacity * sizeof(RowPlace));

		memcpy(holders, call->holders, call->count * sizeof(lease_holder));
		memcpy(places, call->places, call->count * sizeof(RowPlace));
		if (call->holders != call->inline_holders)
		{
			pfree(call->holders);
			pfree(call->places);
		}
		call->holders = holders;
		call->places = places;
		call->capacity = capacity;
	}
	call->places[call->count].block = block;
	return &call->holders[call->count++];
}

/* Keep an entry among the rows of this attempt. */
lease_holder *
lease_rows_add(LeaseCall *call, Buffer buffer, OffsetNumber offset,
			   const LeaseEntry *entry)
{
	lease_holder *holder = append_row(call, BufferGetBlockNumber(buffer));
	RowPlace   *place = &call->places[call->count - 1];

	*holder = holder_of(call, entry);
	place->offset = offset;
	place->lsn = PageGetLSN(BufferGetPage(buffer));
	place->role = entry->role;
	if (place->block != call->bucket_block)
	{
		holder->owner = keep_bytes(call, holder->owner);
		holder->request = keep_bytes(call, holder->request);
	}
	return holder;
}

/* Gather the holders of the call's name. */
static void
gather_name(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
			void *context)
{
	LeaseCall  *call = context;

	if (lease_same(lease_entry_name(entry), call->name))
		lease_rows_add(call, buffer, offset, entry);
}

/*
 * Show the core a guard without a row, as a stranger's, for a request of the
 * process "pid".
 */
lease_holder
lease_rows_pinned(const LeaseGuard *guard, int pid)
{
	lease_holder holder = {
		.owner = {guard->owner, guard->owner_length},
		.mode = guard->mode,
		.kind = guard->is_transactions ? LEASE_TRANSACTION : LEASE_PLAIN,
		.life = LEASE_PINNED,
		.standing = LEASE_STRANGER,
		.elsewhere = guard->pid != pid,
		.version = guard->version,
		.token = guard->token,
		.change = LEASE_UNCHANGED,
	};

	lease_merge_guard(&holder, guard->mode, guard->version);
	return holder;
}

/* Find rows by their tokens in so many chains, which end with NO_ROW. */
#define TOKEN_CHAINS	256
#define NO_ROW			PG_UINT32_MAX

/* Put a row into the chain of its token. */
static void
chain_row(LeaseCall *call, uint32 *chains, uint32 row)
{
	uint32	   *chain = &chains[call->holders[row].token % TOKEN_CHAINS];

	call->places[row].chain = *chain;
	*chain = row;
}

/* Add what a guard pins to the rows gathered. */
static void
gather_guard(LeaseCall *call, uint32 *chains, const LeaseGuard *guard)
{
	lease_holder pinned = lease_rows_pinned(guard, call->requester.pid);

	for (uint32 i = chains[guard->token % TOKEN_CHAINS]; i != NO_ROW;
		 i = call->places[i].chain)
	{
		lease_holder *holder = &call->holders[i];

		if (holder->token != guard->token)
			continue;
		lease_merge_guard(holder, guard->mode, guard->version);
		/* of several guards the one of the lease's transaction says what is left */
		if (holder->life == LEASE_PINNED && guard->is_transactions)
		{
			holder->kind = pinned.kind;
			holder->elsewhere = pinned.elsewhere;
		}
		return;
	}

	pinned.owner = keep_bytes(call, pinned.owner);
	if (lease_same(pinned.owner, call->request.owner))
		pinned.standing = find_standing(call, guard->role);
	*append_row(call, InvalidBlockNumber) = pinned;
	chain_row(call, chains, (uint32) call->count - 1);
}

/*
 * Add what the guards of a queue pin.  Its partition is locked, in which other names
 * are, and both guards and rows may be many: so no guard looks at all rows.
 */
static void
gather_guards(LeaseCall *call, const LeaseQueue *queue)
{
	uint32		chains[TOKEN_CHAINS];

	memset(chains, 0xff, sizeof(chains));	/* NO_ROW */
	for (uint32 row = 0; row < call->count; row++)
		chain_row(call, chains, row);
	lease_list_foreach(LeaseGuard, guard, &queue->guards)
		gather_guard(call, chains, guard);
}

/* Start an attempt on a bucket, which is locked. */
void
lease_rows_start(LeaseCall *call, Buffer bucket)
{
	lease_summary_map(&call->db->summaries);
	forget_rows(call);
	call->request.behind = false;	/* unless its queue says otherwise */
	call->bucket_block = BufferGetBlockNumber(bucket);
	call->now_us = lease_clock_now(call->db);
}

/*
 * Say whether a request may concern every holder, which so comes by itself, and
 * not in a crowd.
 */
static bool
concerns_each(const LeaseCall *call)
{
	return call->request.op == LEASE_EVICT || call->request.op == LEASE_REAP;
}

/*
 * Have the rows of the request's owner gathered by themselves, and those that have
 * a guard now: the guard will look for its row.
 */
static void
seek_owners(LeaseCall *call, LeaseQueue *queue)
{
	Size		room = 1;

	if (queue != NULL)
		lease_list_foreach(LeaseGuard, guard, &queue->guards)
			room++;
	call->owners = MemoryContextAllocHuge(rows_memory(call),
										  room * sizeof(uint64));
	call->owners[call->nowners++] =
		lease_summary_owner_hash(call->request.owner);
	if (queue != NULL)
		lease_list_foreach(LeaseGuard, guard, &queue->guards)
			call->owners[call->nowners++] =
				lease_summary_owner_hash((lease_bytes) {
					guard->owner, guard->owner_length
				});
}

/* Remember an overflow page if it has the largest hole so far. */
static void
note_room(LeaseCall *call, Buffer buffer)
{
	Size		hole = PageGetExactFreeSpace(BufferGetPage(buffer));

	if (call->roomiest != InvalidBlockNumber && hole <= call->hole)
		return;
	call->roomiest = BufferGetBlockNumber(buffer);
	call->hole = hole;
}

/* Say whether a crowd may have one of the owners that come by themselves. */
static bool
has_sought_owner(const LeaseCall *call, const LeaseCrowd *crowd)
{
	for (int i = 0; i < call->nowners; i++)
		if (lease_summary_has_owner(crowd->summary.owners, call->owners[i]))
			return true;
	return false;
}

/* Gather the rows of a page as a crowd; false: they come by themselves. */
static bool
gather_crowd(Buffer buffer, void *context)
{
	LeaseCall  *call = context;
	const LeaseCrowd *crowd;

	if (BufferGetBlockNumber(buffer) == call->bucket_block)
		return false;
	note_room(call, buffer);
	if (concerns_each(call))
		return false;
	crowd = lease_crowd_of(call->rel, buffer, call->name);
	if (crowd == NULL || lease_is_over(&crowd->holder, call->now_us) ||
		has_sought_owner(call, crowd))
		return false;
	if (call->crowd < call->count &&
		lease_join_crowd(&call->holders[call->crowd], &crowd->holder))
		return true;
	call->crowd = call->count;
	*append_row(call, InvalidBlockNumber) = crowd->holder;
	return true;
}

/*
 * Gather the holders of the call's name, with its guards.  "queue" is the name's,
 * or NULL; its partition is locked in "mode", unless nobody uses it and the name has
 * no overflow pages.  Returns the queue, which may be another by then:
 *
 * Where the name has overflow pages, its rows may be many, and the partition is
 * not locked while they are gathered.  With the bucket locked exclusively, no waiter
 * joins meanwhile, and no guard is added.  But the head may leave, and guards may
 * end: so both are looked at again after.
 *
 * With the bucket shared, a guard may be added whose row is in a crowd; then it comes
 * beside that, as a row of its own.  Who shares the bucket asks for its own owner, or for
 * each, and neither of these is in a crowd.
 */
LeaseQueue *
lease_rows_gather(LeaseCall *call, Buffer bucket, LeaseQueue *queue,
				  LWLockMode mode)
{
	Oid			database = call->db->database;
	bool		many = lease_trie_has_chain(bucket, call->hash);

	lease_rows_start(call, bucket);
	if (many && !concerns_each(call))
		seek_owners(call, queue);
	if (many)
		lease_queue_unlock(database, call->hash);
	lease_trie_visit_pages(call->rel, bucket, &call->hash, gather_crowd,
						   gather_name, call);
	if (many)
		queue = lease_queue_lock(database, call->hash, call->name, mode);
	if (queue != NULL && !lease_list_is_empty(&queue->guards))
		gather_guards(call, queue);
	return queue;
}

/* A copy of an entry. */
LeaseEntry *
lease_rows_copy(const LeaseEntry *entry)
{
	Size		size = lease_entry_size(entry);

	return memcpy(palloc(size), entry, size);
}

/*
 * Count a lease that is about to be removed because it is over, and keep a copy for
 * the log.
 */
static void
note_expired(LeaseCall *call, const LeaseEntry *entry)
{
	lease_count(call->db, LEASE_COUNT_EXPIRED, 1);
	if (call->request.op == LEASE_REAP)
		lease_count(call->db, LEASE_COUNT_REAPED, 1);
	lease_event_add(LEASE_EVENT_EXPIRED, lease_entry_name(entry),
					entry->token);
	if (lease_log_expired)
		call->expired = lappend(call->expired, lease_rows_copy(entry));
}

/*
 * Log the holders that died.  No locks are held.  The log entry hides the
 * statement: it is of a session that happened to find them.
 */
void
lease_rows_report_expired(LeaseCall *call)
{
	ListCell   *cell;

	Assert(call->expired == NIL || lease_may_wait());
	HOLD_INTERRUPTS();
	foreach(cell, call->expired)
	{
		const LeaseEntry *entry = lfirst(cell);
		lease_bytes name = lease_entry_name(entry);
		lease_bytes owner = lease_entry_owner(entry);
		lease_bytes application = lease_entry_application(entry);
		char	   *role = lease_privilege_role_name(entry->role);

		ereport(LOG_SERVER_ONLY,
				(errmsg("lease on \"%.*s\" expired while owner \"%.*s\" held it",
						(int) name.length, name.data,
						(int) owner.length, owner.data),
				 errdetail("Token %llu, role \"%s\", process %d, application \"%.*s\".",
						   (unsigned long long) entry->token,
						   role ? role : "?", entry->pid,
						   (int) application.length, application.data),
				 errhidestmt(true), errhidecontext(true)));
		if (role != NULL)
			pfree(role);
	}
	RESUME_INTERRUPTS();
	list_free_deep(call->expired);
	call->expired = NIL;
}

/* ----------------------------------------------------------------
 * Writing rows
 * ----------------------------------------------------------------
 */

/* Put a string behind others in an entry, and return its length. */
static uint8
append_string(LeaseEntryBuffer *buffer, char **ptr, lease_bytes string)
{
	uint8		length = lease_put_string(*ptr, buffer->bytes + sizeof(*buffer) - *ptr,
										  string);

	*ptr += length;
	return length;
}

/*
 * Make the entry of a holder that the core has added, or of one that it has
 * updated, whose entry is "old" so far.
 */
static void
make_entry(LeaseCall *call, const lease_holder *holder, const LeaseEntry *old,
		   LeaseEntryBuffer *buffer)
{
	LeaseEntry *entry = &buffer->entry;
	const LeaseWaiter *waiter = call->requester.waiter;
	LeaseBinding binding = {
		call->requester.stamp, Max(holder->deadline_us - call->now_us, 1)
	};
	lease_bytes application;
	lease_bytes address;
	char	   *ptr = entry->data;

	if (old != NULL)
	{
		memcpy(entry, old, offsetof(LeaseEntry, data));
		application = lease_entry_application(old);
		address = lease_entry_address(old);
		if (old->kind != LEASE_PLAIN)
			binding.stamp = lease_entry_binding(old).stamp;
	}
	else
	{
		entry->hash = call->hash;
		entry->token = holder->token;
		entry->acquired_at = GetCurrentTimestamp();
		entry->role = call->requester.role;
		entry->pid = call->requester.pid;
		application = waiter == NULL ? lease_client_application() :
			(lease_bytes) {waiter->application, waiter->application_length};
		address = waiter == NULL ? lease_client_address() :
			(lease_bytes) {waiter->address, waiter->address_length};
	}
	entry->version = holder->version;
	entry->mode = holder->mode;
	entry->kind = holder->kind;
	entry->deadline_us = holder->deadline_us;
	entry->flags = (holder->repeated ? LEASE_ENTRY_REPEATED : 0) |
		(holder->life == LEASE_LEAVING ? LEASE_ENTRY_LEAVING : 0);
	entry->lengths[LEASE_ENTRY_NAME] =
		append_string(buffer, &ptr, old != NULL ? lease_entry_name(old) :
					  call->name);
	entry->lengths[LEASE_ENTRY_OWNER] = append_string(buffer, &ptr, holder->owner);
	entry->lengths[LEASE_ENTRY_REQUEST] =
		append_string(buffer, &ptr, holder->request);
	entry->lengths[LEASE_ENTRY_APPLICATION] =
		append_string(buffer, &ptr, application);
	entry->lengths[LEASE_ENTRY_ADDRESS] = append_string(buffer, &ptr, address);
	if (entry->kind != LEASE_PLAIN)
		(void) append_string(buffer, &ptr, (lease_bytes) {
			(char *) &binding, sizeof(binding)
		});
	memset(ptr, 0, (char *) entry + lease_entry_size(entry) - ptr);
}

/* Lock the page of a row, which may be the bucket. */
static Buffer
lock_place(LeaseCall *call, Buffer bucket, const RowPlace *place)
{
	Buffer		buffer;

	if (place->block == call->bucket_block)
		return bucket;
	buffer = ReadBuffer(call->rel, place->block);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	return buffer;
}

static LeaseEntry *
entry_at(Buffer buffer, const RowPlace *place)
{
	Page		page = BufferGetPage(buffer);

	return (LeaseEntry *) PageGetItem(page, PageGetItemId(page, place->offset));
}

/* A copy of a row's entry; the bucket is locked. */
LeaseEntry *
lease_rows_entry(LeaseCall *call, Buffer bucket, size_t row)
{
	const RowPlace *place = &call->places[row];
	Buffer		buffer = bucket;
	LeaseEntry *copy;

	if (place->block != call->bucket_block)
	{
		buffer = ReadBuffer(call->rel, place->block);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
	}
	copy = lease_rows_copy(entry_at(buffer, place));
	if (buffer != bucket)
		UnlockReleaseBuffer(buffer);
	return copy;
}

/*
 * Write the rows from index "from" on that lie on one page: delete those
 * removed, and overwrite those updated, which must not have grown.  Returns the
 * index after them; sets "emptied" if an overflow page is empty now.
 */
static size_t
write_page(LeaseCall *call, Buffer bucket, size_t from, bool *emptied)
{
	const RowPlace *first = &call->places[from];
	Buffer		buffer = lock_place(call, bucket, first);
	LeaseChange change;
	Page		page;
	size_t		end;
	int64		removed = 0;

	for (end = from; end < call->count; end++)
	{
		if (call->places[end].block != first->block)
			break;
		if (call->holders[end].change == LEASE_EXPIRED)
			note_expired(call, entry_at(buffer, &call->places[end]));
		else if (call->holders[end].change == LEASE_ENDED &&
				 (call->request.op == LEASE_ACQUIRE ||
				  call->request.op == LEASE_REAP))
			lease_count(call->db, LEASE_COUNT_RELEASED, 1);
		else if (call->holders[end].change == LEASE_EVICTED)
			lease_event_add(LEASE_EVENT_FORCED, call->name,
							call->holders[end].token);
	}

	lease_change_begin(&change, call->rel, false);
	page = lease_change_page(&change, buffer, false);
	lease_change_start(&change);
	for (size_t i = from; i < end; i++)
	{
		const lease_holder *holder = &call->holders[i];
		const RowPlace *place = &call->places[i];

		if (lease_is_removed(holder->change))
		{
			lease_page_delete(&change, page, place->offset);
			removed++;
		}
		else if (holder->change == LEASE_UPDATED)
		{
			LeaseEntryBuffer new;

			make_entry(call, holder, entry_at(buffer, place), &new);
			lease_page_overwrite(&change, page, place->offset, &new.entry);
		}
	}
	DLOCK_CRASH_POINT("rows: not logged");
	call->lsn = lease_change_finish(&change);
	DLOCK_CRASH_POINT("rows: logged");
	lease_count_rows(call->db,
					 lease_page_special(BufferGetPage(bucket))->bucket,
					 -removed);
	if (buffer != bucket)
	{
		/* trailing line pointers go with the last entry */
		if (PageGetMaxOffsetNumber(BufferGetPage(buffer)) == 0)
			*emptied = true;
		UnlockReleaseBuffer(buffer);
	}
	return end;
}

/* Write all changed rows except added ones; free overflow pages left empty. */
void
lease_rows_update(LeaseCall *call, Buffer bucket)
{
	bool		emptied = false;
	size_t		i = 0;

	while (i < call->count)
	{
		if (call->holders[i].change == LEASE_UNCHANGED)
		{
			i++;
			continue;
		}
		i = write_page(call, bucket, i, &emptied);
	}
	if (emptied)
	{
		DLOCK_CRASH_POINT("rows: overflow left empty");
		lease_trie_free_overflow(call->rel, bucket);
		call->roomiest = InvalidBlockNumber;	/* it may be gone */
	}
}

/*
 * Insert an entry: a new one, whose token becomes the bucket's mark, or one
 * that replaces the row at "old", being of another size.  False when there is
 * no room.
 *
 * Two overflow pages may be locked here out of their order.  That is safe: any
 * backend that waits for one while holding another has the bucket locked, as we
 * do; so has redo, because the bucket is the first page of the change
 * (lease_storage.h).
 */
static bool
insert_entry(LeaseCall *call, Buffer bucket, const LeaseEntry *entry,
			 const RowPlace *old)
{
	Buffer		room = lease_trie_find_room(call->rel, bucket, call->hash,
											lease_entry_size(entry),
											call->roomiest);
	Buffer		old_buffer = InvalidBuffer;
	LeaseChange change;
	Page		bucket_page;
	Page		room_page;
	Page		old_page = NULL;

	if (!BufferIsValid(room))
		return false;

	lease_change_begin(&change, call->rel, false);
	bucket_page = room_page = lease_change_page(&change, bucket, false);
	if (room != bucket)
		room_page = lease_change_page(&change, room, false);
	if (old != NULL)
	{
		if (old->block == call->bucket_block)
			old_page = bucket_page;
		else if (old->block == BufferGetBlockNumber(room))
			old_page = room_page;
		else
		{
			old_buffer = lock_place(call, bucket, old);
			old_page = lease_change_page(&change, old_buffer, false);
		}
	}

	lease_change_start(&change);
	if (old != NULL)
		lease_page_delete(&change, old_page, old->offset);
	else
	{
		LeasePageSpecial *special = lease_page_special(bucket_page);

		special->mark = entry->token;
		lease_change_note(&change, bucket_page, &special->mark,
						  sizeof(special->mark));
	}
	lease_page_insert(&change, room_page, entry);
	DLOCK_CRASH_POINT("row: not logged");
	call->lsn = lease_change_finish(&change);
	DLOCK_CRASH_POINT("row: logged");
	if (old == NULL)
		lease_count_rows(call->db,
						 lease_page_special(BufferGetPage(bucket))->bucket, 1);

	if (BufferIsValid(old_buffer))
		UnlockReleaseBuffer(old_buffer);
	if (room != bucket)
		UnlockReleaseBuffer(room);
	return true;
}

/*
 * The row that the core added, or updated to another size; result->count when
 * every change can be written in place.  There is at most one.
 */
static size_t
find_insert(LeaseCall *call, Buffer bucket, const lease_result *result,
			LeaseEntryBuffer *new)
{
	if (result->count > call->count)
	{
		make_entry(call, &call->holders[call->count], NULL, new);
		return call->count;
	}
	for (size_t i = 0; i < call->count; i++)
	{
		LeaseEntry *old;
		bool		same;

		if (call->holders[i].change != LEASE_UPDATED)
			continue;
		old = lease_rows_entry(call, bucket, i);
		make_entry(call, &call->holders[i], old, new);
		same = lease_entry_size(&new->entry) == lease_entry_size(old);
		pfree(old);
		return same ? result->count : i;
	}
	return result->count;
}

/*
 * Say whether the core removes a row that is not over yet, of a lease that its owner
 * takes over.
 */
static bool
takes_over(const LeaseCall *call)
{
	for (size_t i = 0; i < call->count; i++)
		if (call->holders[i].change == LEASE_ENDED &&
			call->holders[i].life == LEASE_STRANDED)
			return true;
	return false;
}

/* Say whether the bucket has room for an entry without any change. */
static bool
has_room(LeaseCall *call, Buffer bucket, Size size)
{
	Buffer		room = lease_trie_find_room(call->rel, bucket, call->hash, size,
											call->roomiest);

	if (BufferIsValid(room) && room != bucket)
		UnlockReleaseBuffer(room);
	return BufferIsValid(room);
}

/*
 * Write what the core decided.  False when there is no room for a row; then
 * nothing but rows that are over has changed, and the attempt starts over once room
 * was made.
 */
bool
lease_rows_write(LeaseCall *call, Buffer bucket, const lease_result *result)
{
	LeaseEntryBuffer new;
	size_t		insert = find_insert(call, bucket, result, &new);

	if (result->count <= call->count || !takes_over(call) ||
		has_room(call, bucket, lease_entry_size(&new.entry)))
	{
		if (insert < call->count)
			call->holders[insert].change = LEASE_UNCHANGED;
		lease_rows_update(call, bucket);
		if (insert == result->count ||
			insert_entry(call, bucket, &new.entry,
						 insert < call->count ? &call->places[insert] : NULL))
			return true;
	}
	call->missing_room = lease_entry_size(&new.entry);
	return false;
}
