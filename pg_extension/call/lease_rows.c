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

/* A lease that was found over and removed, for the log. */
typedef struct ExpiredLease
{
	uint64		token;
	Oid			role;
	int			pid;
	char	   *name;
	char	   *owner;
	char	   *application;
} ExpiredLease;

bool		lease_log_expired = true;

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

/* Forget the rows of the attempt before. */
static void
forget_rows(LeaseCall *call)
{
	call->count = 0;
	call->holders = call->inline_holders;
	call->places = call->inline_places;
	call->capacity = LEASE_ROWS_INLINE;
	call->owners = call->inline_owners;
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
	memset(call, 0, offsetof(LeaseCall, inline_owners));
	call->rel = rel;
	call->db = db;
	call->request = *request;
	call->request.delay_us = lease_lock_delay_us();
	if (call->request.kind == 0)
		call->request.kind = LEASE_PLAIN;
	/* these may concern every holder */
	call->apart = request->op == LEASE_EVICT || request->op == LEASE_REAP;
	call->requester.role = GetUserId();
	call->requester.pid = MyProcPid;
	if (call->request.kind != LEASE_PLAIN)
		call->requester.stamp = lease_bond_mine(call->request.kind);
	forget_rows(call);
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
 * Begin what a waiter asked for, on its behalf, in the call of the backend that
 * serves it.
 */
void
lease_rows_init_waiter(LeaseCall *call, const LeaseCall *server,
					   const LeaseWaiter *waiter)
{
	lease_request request = lease_rows_request(waiter);

	request.kind = LEASE_PLAIN; /* not our own session's */
	lease_rows_init(call, server->rel, server->db, &request);
	call->request.kind = waiter->kind;
	call->name = server->name;
	call->hash = server->hash;
	call->bucket_block = server->bucket_block;
	call->requester = (LeaseRequester) {
		.role = waiter->role,
		.pid = waiter->pid,
		.application = {waiter->application, waiter->application_length},
		.address = {waiter->address, waiter->address_length},
		.stamp = waiter->stamp,
		.waiter = waiter,
	};
}

/*
 * End what was done on a waiter's behalf; the server's call reports what it
 * found expired.
 */
void
lease_rows_end_waiter(LeaseCall *turn, LeaseCall *call)
{
	call->expired = list_concat(call->expired, turn->expired);
	call->nexpired += turn->nexpired;
	list_free(turn->expired);
	lease_rows_end(turn);
}

/* Free what a call needs for its rows and roles. */
void
lease_rows_end(LeaseCall *call)
{
	if (call->memory != NULL)
		MemoryContextDelete(call->memory);
	call->memory = NULL;
	forget_rows(call);
	if (call->verdicts != NULL)
		pfree(call->verdicts);
	call->verdicts = NULL;
	call->nverdicts = 0;
}

/*
 * Ask the catalogs about the role that stopped an attempt.  That may take long:
 * somebody may have locked a catalog.
 */
void
lease_rows_resolve_role(LeaseCall *call)
{
	RoleVerdict verdict = {.role = call->unknown_role};

	Assert(lease_may_wait());
	verdict.acts_for = has_privs_of_role(call->requester.role, verdict.role);
	call->verdicts = call->verdicts == NULL ?
		palloc(sizeof(RoleVerdict)) :
		repalloc(call->verdicts, (call->nverdicts + 1) * sizeof(RoleVerdict));
	call->verdicts[call->nverdicts++] = verdict;
	call->unknown_role = InvalidOid;
}

/*
 * How the requester stands to a role's row of its owner.  A waiter knows only
 * the role that it stood for when it joined; it takes others for strangers.
 */
static lease_standing
find_standing(LeaseCall *call, Oid role)
{
	if (role == call->requester.role)
		return LEASE_SELF;
	if (call->requester.alone)
		return LEASE_STRANGER;
	if (call->requester.waiter != NULL)
		return role == call->requester.waiter->acts_for ?
			LEASE_ACTS_FOR : LEASE_STRANGER;
	for (int i = 0; i < call->nverdicts; i++)
		if (call->verdicts[i].role == role)
			return call->verdicts[i].acts_for ? LEASE_ACTS_FOR : LEASE_STRANGER;
	call->unknown_role = role;
	return LEASE_STRANGER;
}

/* Say whether a row is bound to the session or transaction of a waiter. */
static bool
is_bound_to(const LeaseEntry *entry, const LeaseWaiter *waiter)
{
	LeaseStamp	stamp = lease_entry_binding(entry).stamp;

	return entry->kind == waiter->kind && stamp.slot == waiter->stamp.slot &&
		stamp.serial == waiter->stamp.serial;
}

lease_bytes
lease_rows_copy_bytes(lease_bytes bytes)
{
	char	   *copy = palloc(bytes.length + 1);

	memcpy(copy, bytes.data, bytes.length);
	copy[bytes.length] = '\0';
	return (lease_bytes) {copy, bytes.length};
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

/* Make room for a row and the spare one. */
static void
reserve_row(LeaseCall *call)
{
	size_t		capacity = call->capacity * 2;
	lease_holder *holders;
	RowPlace   *places;

	if (call->count + 1 < call->capacity)
		return;
	holders = MemoryContextAllocHuge(rows_memory(call),
									 capacity * sizeof(lease_holder));
	places = MemoryContextAllocHuge(rows_memory(call),
									capacity * sizeof(RowPlace));
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

/* Keep an entry among the rows of this attempt. */
lease_holder *
lease_rows_add(LeaseCall *call, Buffer buffer, OffsetNumber offset,
			   const LeaseEntry *entry)
{
	lease_holder *holder;
	RowPlace   *place;

	reserve_row(call);
	holder = &call->holders[call->count];
	place = &call->places[call->count];
	call->count++;

	*holder = holder_of(call, entry);
	place->block = BufferGetBlockNumber(buffer);
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

/* Add what a guard pins to the rows gathered. */
static void
gather_guard(LeaseCall *call, const LeaseGuard *guard)
{
	lease_holder pinned =
		lease_rows_pinned(guard, call->requester.waiter != NULL ?
						  call->requester.waiter->pid : MyProcPid);
	lease_holder *holder;

	for (size_t i = 0; i < call->count; i++)
	{
		holder = &call->holders[i];
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

	reserve_row(call);
	holder = &call->holders[call->count];
	*holder = pinned;
	holder->owner = keep_bytes(call, holder->owner);
	if (lease_same(holder->owner, call->request.owner))
		holder->standing = find_standing(call, guard->role);
	call->places[call->count].block = InvalidBlockNumber;
	call->count++;
}

/* Start an attempt on a bucket, which is locked. */
void
lease_rows_start(LeaseCall *call, Buffer bucket)
{
	lease_summary_map(&call->db->summaries);
	forget_rows(call);
	call->bucket_block = BufferGetBlockNumber(bucket);
	call->now_us = lease_clock_now(call->db);
}

/* Have an owner's rows gathered by themselves. */
static void
seek_owner(LeaseCall *call, lease_bytes owner)
{
	/* doubled at each power of two */
	if (call->nowners >= LEASE_ROWS_INLINE &&
		(call->nowners & (call->nowners - 1)) == 0)
	{
		uint64	   *owners = MemoryContextAllocHuge(rows_memory(call),
													2 * call->nowners * sizeof(uint64));

		memcpy(owners, call->owners, call->nowners * sizeof(uint64));
		call->owners = owners;
	}
	call->owners[call->nowners++] = lease_summary_owner_hash(owner);
}

/*
 * Start an attempt at a name.  If its rows may be gathered as crowds, those that
 * have a guard now are not: the guard will look for its row.  "queue" may be
 * NULL; its partition is locked.  Guards may end until the rows are gathered;
 * none is added while the bucket is locked exclusively.
 */
void
lease_rows_seek_guarded(LeaseCall *call, Buffer bucket, LeaseQueue *queue)
{
	lease_rows_start(call, bucket);
	if (call->apart || !lease_trie_has_chain(bucket, call->hash))
		return;
	seek_owner(call, call->request.owner);
	if (queue != NULL)
		lease_list_foreach(LeaseGuard, guard, &queue->guards)
		{
			seek_owner(call, (lease_bytes) {
				guard->owner, guard->owner_length
			});
		}
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
		if (lease_summary_has_owner(&crowd->summary, call->owners[i]))
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
	if (call->apart)
		return false;
	crowd = lease_crowd_of(call->rel, buffer, call->name);
	if (crowd == NULL || lease_is_over(&crowd->holder, call->now_us) ||
		has_sought_owner(call, crowd))
		return false;
	if (call->crowd < call->count &&
		lease_join_crowd(&call->holders[call->crowd], &crowd->holder))
		return true;
	reserve_row(call);
	call->crowd = call->count++;
	call->holders[call->crowd] = crowd->holder;
	call->places[call->crowd].block = InvalidBlockNumber;
	return true;
}

/*
 * Gather the holders of the call's name, after lease_rows_seek_guarded().  No
 * partition need be locked: a name may have very many.
 */
void
lease_rows_gather(LeaseCall *call, Buffer bucket)
{
	lease_trie_visit_pages(call->rel, bucket, &call->hash, gather_crowd,
						   gather_name, call);
}

/*
 * Add to the rows gathered the guards of "queue", which may be NULL; its
 * partition is locked.
 */
void
lease_rows_gather_guards(LeaseCall *call, LeaseQueue *queue)
{
	if (queue != NULL)
		lease_list_foreach(LeaseGuard, guard, &queue->guards)
			gather_guard(call, guard);
}

/* Remember a lease that is about to be removed because it is over. */
static void
remember_expired(LeaseCall *call, const LeaseEntry *entry)
{
	ExpiredLease *expired;

	call->nexpired++;
	lease_event_add(LEASE_EVENT_EXPIRED, lease_entry_name(entry),
					entry->token);
	if (!lease_log_expired)
		return;
	expired = palloc(sizeof(ExpiredLease));
	expired->token = entry->token;
	expired->role = entry->role;
	expired->pid = entry->pid;
	expired->name = (char *) lease_rows_copy_bytes(lease_entry_name(entry)).data;
	expired->owner = (char *) lease_rows_copy_bytes(lease_entry_owner(entry)).data;
	expired->application =
		(char *) lease_rows_copy_bytes(lease_entry_application(entry)).data;
	call->expired = lappend(call->expired, expired);
}

/*
 * Log the holders that died, and count them.  No locks are held.  The log entry
 * hides the statement: it is of a session that happened to find them.
 */
void
lease_rows_report_expired(LeaseCall *call)
{
	ListCell   *cell;

	lease_count(call->db, LEASE_COUNT_EXPIRED, call->nexpired);
	call->nexpired = 0;
	Assert(call->expired == NIL || lease_may_wait());
	HOLD_INTERRUPTS();
	foreach(cell, call->expired)
	{
		ExpiredLease *expired = lfirst(cell);
		char	   *role = lease_privilege_role_name(expired->role);

		ereport(LOG_SERVER_ONLY,
				(errmsg("lease on \"%s\" expired while owner \"%s\" held it",
						expired->name, expired->owner),
				 errdetail("Token %llu, role \"%s\", process %d, application \"%s\".",
						   (unsigned long long) expired->token,
						   role ? role : "?", expired->pid,
						   expired->application),
				 errhidestmt(true), errhidecontext(true)));
		if (role != NULL)
			pfree(role);
		pfree(expired->name);
		pfree(expired->owner);
		pfree(expired->application);
		pfree(expired);
	}
	RESUME_INTERRUPTS();
	list_free(call->expired);
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

/* Fill in an entry's strings, binding and padding; its kind is set. */
static void
put_strings(LeaseEntryBuffer *buffer, lease_bytes name, lease_bytes owner,
			lease_bytes request, lease_bytes application, lease_bytes address,
			LeaseBinding binding)
{
	LeaseEntry *entry = &buffer->entry;
	char	   *ptr = entry->data;

	entry->name_length = append_string(buffer, &ptr, name);
	entry->owner_length = append_string(buffer, &ptr, owner);
	entry->request_length = append_string(buffer, &ptr, request);
	entry->application_length = append_string(buffer, &ptr, application);
	entry->address_length = append_string(buffer, &ptr, address);
	if (entry->kind != LEASE_PLAIN)
		(void) append_string(buffer, &ptr, (lease_bytes) {
			(char *) &binding, sizeof(binding)
		});
	memset(ptr, 0, (char *) entry + lease_entry_size(entry) - ptr);
}

/* What a holder's entry says of its binding, which counts if it is not plain. */
static LeaseBinding
entry_binding(const LeaseCall *call, const lease_holder *holder,
			  LeaseStamp stamp)
{
	return (LeaseBinding) {
		stamp, Max(holder->deadline_us - call->now_us, 1)
	};
}

/* Make the entry of a holder that the core has added. */
static void
make_entry(LeaseCall *call, const lease_holder *holder,
		   LeaseEntryBuffer *buffer)
{
	LeaseEntry *entry = &buffer->entry;
	const LeaseRequester *requester = &call->requester;
	lease_bytes application = requester->application;
	lease_bytes address = requester->address;

	if (requester->waiter == NULL)
	{
		application = lease_client_application();
		address = lease_client_address();
	}
	entry->hash = call->hash;
	entry->version = holder->version;
	entry->token = holder->token;
	entry->kind = holder->kind;
	entry->deadline_us = holder->deadline_us;
	entry->acquired_at = GetCurrentTimestamp();
	entry->role = requester->role;
	entry->pid = requester->pid;
	entry->mode = holder->mode;
	entry->flags = 0;
	put_strings(buffer, call->name, holder->owner, holder->request,
				application, address,
				entry_binding(call, holder, requester->stamp));
}

/* Make the new entry of a holder that the core has updated. */
static void
update_entry(LeaseCall *call, const LeaseEntry *old,
			 const lease_holder *holder, LeaseEntryBuffer *buffer)
{
	LeaseEntry *entry = &buffer->entry;
	LeaseStamp	stamp = {0, 0};

	memcpy(entry, old, offsetof(LeaseEntry, data));
	entry->version = holder->version;
	entry->mode = holder->mode;
	entry->kind = holder->kind;
	if (old->kind != LEASE_PLAIN)
		stamp = lease_entry_binding(old).stamp;
	entry->deadline_us = holder->deadline_us;
	entry->flags = (holder->repeated ? LEASE_ENTRY_REPEATED : 0) |
		(holder->life == LEASE_LEAVING ? LEASE_ENTRY_LEAVING : 0);
	put_strings(buffer, lease_entry_name(old), lease_entry_owner(old),
				holder->request, lease_entry_application(old),
				lease_entry_address(old),
				entry_binding(call, holder, stamp));
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
	LeaseEntry *entry;
	LeaseEntry *copy;

	if (place->block != call->bucket_block)
	{
		buffer = ReadBuffer(call->rel, place->block);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
	}
	entry = entry_at(buffer, place);
	copy = palloc(lease_entry_size(entry));
	memcpy(copy, entry, lease_entry_size(entry));
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
			remember_expired(call, entry_at(buffer, &call->places[end]));
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

			update_entry(call, entry_at(buffer, place), holder, &new);
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
lease_rows_write(LeaseCall *call, Buffer bucket)
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
		make_entry(call, &call->holders[call->count], new);
		return call->count;
	}
	for (size_t i = 0; i < call->count; i++)
	{
		Buffer		buffer;
		bool		same;

		if (call->holders[i].change != LEASE_UPDATED)
			continue;
		buffer = lock_place(call, bucket, &call->places[i]);
		update_entry(call, entry_at(buffer, &call->places[i]), &call->holders[i],
					 new);
		same = lease_entry_size(&new->entry) ==
			lease_entry_size(entry_at(buffer, &call->places[i]));
		if (buffer != bucket)
			UnlockReleaseBuffer(buffer);
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
 * nothing but rows that are over has changed, and after lease_rows_make_room()
 * the attempt starts over.
 */
bool
lease_rows_store(LeaseCall *call, Buffer bucket, const lease_result *result)
{
	LeaseEntryBuffer new;
	size_t		insert = find_insert(call, bucket, result, &new);

	if (result->count <= call->count || !takes_over(call) ||
		has_room(call, bucket, lease_entry_size(&new.entry)))
	{
		if (insert < call->count)
			call->holders[insert].change = LEASE_UNCHANGED;
		lease_rows_write(call, bucket);
		if (insert == result->count ||
			insert_entry(call, bucket, &new.entry,
						 insert < call->count ? &call->places[insert] : NULL))
			return true;
	}
	call->missing_room = lease_entry_size(&new.entry);
	return false;
}

/* Make the room that was missing, and unlock the bucket. */
void
lease_rows_make_room(LeaseCall *call, Buffer bucket)
{
	lease_trie_make_room(call->rel, bucket, call->hash, call->missing_room);
}
