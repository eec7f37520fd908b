/*
 * lease_rows.c
 *	  The holders of a name: gather them from a bucket, write them back.
 *
 * All of this happens under the bucket's content lock.  Catalogs cannot be read
 * there.  When a row has the request's owner but another role, and it is not
 * known yet whether the caller may act for that role, "unknown_role" is set:
 * the bucket is to be unlocked, the catalogs asked, and the attempt started
 * over.  The same goes for making room.
 *
 * What a crash does: the grant of a lease, its token and the bucket's mark are
 * one WAL record.  Rows that a grant finds expired are removed by records of
 * their own before it, which changes nothing for anybody.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "common/ip.h"
#include "lease_bond.h"
#include "lease_crash.h"
#include "lease_event.h"
#include "lease_rows.h"
#include "lease_trie.h"
#include "lease_wal.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
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
int			lease_lock_delay = 0;

/* ----------------------------------------------------------------
 * Gathering
 * ----------------------------------------------------------------
 */

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
	call->holders = call->inline_holders;
	call->places = call->inline_places;
	call->capacity = LEASE_ROWS_INLINE;
}

/* Begin what a waiter asked for, on its behalf and on the server's name. */
void
lease_rows_init_waiter(LeaseCall *call, const LeaseCall *server,
					   const LeaseWaiter *waiter)
{
	lease_request request = {
		.op = LEASE_ACQUIRE,
		.owner = {waiter->owner, waiter->owner_length},
		.request = {waiter->request, waiter->request_length},
		.mode = waiter->mode,
		.kind = LEASE_PLAIN,	/* not our own session's */
		.limit = waiter->limit,
		.ttl_us = waiter->ttl_us,
	};

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

/* Ask the catalogs about the role that stopped an attempt. */
void
lease_rows_resolve_role(LeaseCall *call)
{
	RoleVerdict verdict = {
		call->unknown_role,
		has_privs_of_role(call->requester.role, call->unknown_role)
	};

	call->verdicts = call->verdicts == NULL ?
		palloc(sizeof(RoleVerdict)) :
		repalloc(call->verdicts, (call->nverdicts + 1) * sizeof(RoleVerdict));
	call->verdicts[call->nverdicts++] = verdict;
	call->unknown_role = InvalidOid;
}

/*
 * How the requester stands to a role's row of its owner.  For a waiter that is
 * known of the row that it stood for when it joined; others it takes for
 * strangers'.
 */
static lease_standing
find_standing(LeaseCall *call, Oid role)
{
	if (role == call->requester.role)
		return LEASE_SELF;
	if (call->requester.waiter != NULL)
		return role == call->requester.waiter->acts_for ?
			LEASE_ACTS_FOR : LEASE_STRANGER;
	for (int i = 0; i < call->nverdicts; i++)
		if (call->verdicts[i].role == role)
			return call->verdicts[i].acts_for ? LEASE_ACTS_FOR : LEASE_STRANGER;
	call->unknown_role = role;
	return LEASE_STRANGER;
}

/*
 * Say whether a row is bound to a session or transaction that lives and is not
 * the requester's.  Somebody who wants a lease for his own session cannot share
 * that one, even as the same owner.
 */
static bool
is_bound_elsewhere(const LeaseCall *call, const LeaseEntry *entry,
				   lease_life life)
{
	LeaseStamp	stamp;

	if (call->request.op != LEASE_ACQUIRE || life != LEASE_BOUND ||
		entry->kind != call->request.kind)
		return false;
	stamp = lease_entry_stamp(entry);
	return stamp.slot != call->requester.stamp.slot ||
		stamp.serial != call->requester.stamp.serial;
}

/*
 * Say whether a row is bound to something in a server before this one, and the
 * requester's own.  Its time to live keeps others out; the owner's next session
 * takes the lease anew, since what is bound to that must have a token of this
 * server (lease_bond.c).
 */
static bool
is_left_behind(const LeaseCall *call, const LeaseEntry *entry,
			   const lease_holder *holder)
{
	return call->request.op == LEASE_ACQUIRE && entry->kind != LEASE_PLAIN &&
		entry->kind == call->request.kind && holder->life == LEASE_TIMED &&
		holder->standing != LEASE_STRANGER && holder->deadline_us > call->now_us &&
		lease_same(holder->owner, call->request.owner);
}

lease_bytes
lease_rows_copy_bytes(lease_bytes bytes)
{
	char	   *copy = palloc(bytes.length + 1);

	memcpy(copy, bytes.data, bytes.length);
	copy[bytes.length] = '\0';
	return (lease_bytes) {copy, bytes.length};
}

/* Show the core an entry.  Its strings stay on the page. */
static lease_holder
holder_of(LeaseCall *call, const LeaseEntry *entry)
{
	lease_holder holder = {
		.owner = lease_entry_owner(entry),
		.request = lease_entry_request(entry),
		.mode = entry->mode,
		.kind = entry->kind,
		.standing = LEASE_STRANGER,
		.version = entry->version,
		.token = entry->token,
		.change = LEASE_UNCHANGED,
	};

	holder.life = lease_bond_judge(call->db, entry, call->now_us,
								   &holder.deadline_us);
	if (entry->role == call->requester.role ||
		lease_same(holder.owner, call->request.owner))
		holder.standing = find_standing(call, entry->role);
	if (is_bound_elsewhere(call, entry, holder.life))
		holder.standing = LEASE_STRANGER;
	else if (is_left_behind(call, entry, &holder))
		holder.deadline_us = call->now_us;
	return holder;
}

/* See to it that there is room for a row and the spare one. */
static void
reserve_row(LeaseCall *call)
{
	size_t		capacity = call->capacity * 2;
	lease_holder *holders;
	RowPlace   *places;

	if (call->count + 1 < call->capacity)
		return;
	holders = palloc(capacity * sizeof(lease_holder));
	places = palloc(capacity * sizeof(RowPlace));
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
	if (place->block != call->bucket_block)
	{
		/* its page will not stay locked */
		holder->owner = lease_rows_copy_bytes(holder->owner);
		holder->request = lease_rows_copy_bytes(holder->request);
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

/* Add what a guard pins to the rows gathered. */
static void
gather_guard(LeaseCall *call, const LeaseGuard *guard)
{
	lease_holder *holder;

	for (size_t i = 0; i < call->count; i++)
		if (call->holders[i].token == guard->token)
		{
			call->holders[i].guarded = Max(call->holders[i].guarded,
										   guard->version);
			return;
		}

	reserve_row(call);
	holder = &call->holders[call->count];
	*holder = (lease_holder) {
		.owner = lease_rows_copy_bytes((lease_bytes) {
			guard->owner, guard->owner_length
		}),
		.mode = guard->mode,
		.kind = LEASE_PLAIN,
		.life = LEASE_PINNED,
		.standing = LEASE_STRANGER,
		.version = guard->version,
		.guarded = guard->version,
		.token = guard->token,
		.change = LEASE_UNCHANGED,
	};
	if (lease_same(holder->owner, call->request.owner))
		holder->standing = find_standing(call, guard->role);
	call->places[call->count].block = InvalidBlockNumber;
	call->count++;
}

/* Start an attempt on a bucket, which is locked. */
void
lease_rows_start(LeaseCall *call, Buffer bucket)
{
	call->bucket_block = BufferGetBlockNumber(bucket);
	call->count = 0;
	call->now_us = lease_clock_now(call->db);
}

/*
 * Gather the holders of the call's name and the guards of "queue", which may be
 * NULL; its partition is locked.
 */
void
lease_rows_gather(LeaseCall *call, Buffer bucket, LeaseQueue *queue)
{
	dlist_iter	iter;

	lease_rows_start(call, bucket);
	lease_trie_visit(call->rel, bucket, &call->hash, gather_name, call);
	if (queue != NULL)
		dlist_foreach(iter, &queue->guards)
		{
			gather_guard(call, dlist_container(LeaseGuard, link, iter.cur));
		}
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

/* Log the holders that died, and count them.  No locks are held. */
void
lease_rows_report_expired(LeaseCall *call)
{
	ListCell   *cell;

	lease_count(call->db, LEASE_COUNT_EXPIRED, call->nexpired);
	foreach(cell, call->expired)
	{
		ExpiredLease *expired = lfirst(cell);
		char	   *role = GetUserNameFromId(expired->role, true);

		ereport(LOG_SERVER_ONLY,
				(errmsg("lease on \"%s\" expired while owner \"%s\" held it",
						expired->name, expired->owner),
				 errdetail("Token %llu, role \"%s\", process %d, application \"%s\".",
						   (unsigned long long) expired->token,
						   role ? role : "?", expired->pid,
						   expired->application)));
	}
	call->expired = NIL;
	call->nexpired = 0;
}

/* ----------------------------------------------------------------
 * Writing rows
 * ----------------------------------------------------------------
 */

/* The client's address as text, or nothing for a local one. */
lease_bytes
lease_rows_client_address(void)
{
	static char address[NI_MAXHOST];
	static bool known = false;

	if (!known && MyBEEntry != NULL)
	{
		const SockAddr *client = &MyBEEntry->st_clientaddr;

		if ((client->addr.ss_family == AF_INET ||
			 client->addr.ss_family == AF_INET6) &&
			pg_getnameinfo_all(&client->addr, client->salen,
							   address, sizeof(address), NULL, 0,
							   NI_NUMERICHOST | NI_NUMERICSERV) != 0)
			address[0] = '\0';
		known = true;
	}
	return (lease_bytes) {address, Min(strlen(address), LEASE_ADDRESS_MAX)};
}

static char *
put_bytes(char *ptr, lease_bytes bytes)
{
	if (bytes.length > 0)
		memcpy(ptr, bytes.data, bytes.length);
	return ptr + bytes.length;
}

/* Fill in an entry's strings, stamp and padding; its kind is set. */
static void
put_strings(LeaseEntry *entry, lease_bytes name, lease_bytes owner,
			lease_bytes request, lease_bytes application, lease_bytes address,
			LeaseStamp stamp)
{
	char	   *ptr = entry->data;

	entry->name_length = name.length;
	entry->owner_length = owner.length;
	entry->request_length = request.length;
	entry->application_length = application.length;
	entry->address_length = address.length;
	ptr = put_bytes(ptr, name);
	ptr = put_bytes(ptr, owner);
	ptr = put_bytes(ptr, request);
	ptr = put_bytes(ptr, application);
	ptr = put_bytes(ptr, address);
	if (entry->kind != LEASE_PLAIN)
		ptr = put_bytes(ptr, (lease_bytes) {(char *) &stamp, sizeof(stamp)});
	memset(ptr, 0, (char *) entry + lease_entry_size(entry) - ptr);
}

/*
 * What an entry says of a holder's deadline: where something else ends the
 * lease, the time to live instead.
 */
static int64
entry_deadline(const LeaseCall *call, lease_kind kind,
			   const lease_holder *holder)
{
	return kind == LEASE_PLAIN ? holder->deadline_us :
		Max(holder->deadline_us - call->now_us, 1);
}

/* Make the entry of a holder that the core has added. */
static void
make_entry(LeaseCall *call, const lease_holder *holder, LeaseEntry *entry)
{
	const LeaseRequester *requester = &call->requester;
	lease_bytes application = requester->application;
	lease_bytes address = requester->address;

	if (requester->waiter == NULL)
	{
		application = (lease_bytes) {
			application_name, application_name ? strlen(application_name) : 0
		};
		address = lease_rows_client_address();
	}
	entry->hash = call->hash;
	entry->version = holder->version;
	entry->token = holder->token;
	entry->kind = holder->kind;
	entry->deadline_us = entry_deadline(call, entry->kind, holder);
	entry->acquired_at = GetCurrentTimestamp();
	entry->role = requester->role;
	entry->pid = requester->pid;
	entry->mode = holder->mode;
	put_strings(entry, call->name, holder->owner, holder->request,
				application, address, requester->stamp);
}

/*
 * Make the new entry of a holder that the core has updated.  A lease that its
 * session left behind, in a server before this one, becomes a plain one when it
 * is renewed.
 */
static void
update_entry(LeaseCall *call, const LeaseEntry *old,
			 const lease_holder *holder, LeaseEntry *entry)
{
	LeaseStamp	stamp = {0, 0};

	memcpy(entry, old, offsetof(LeaseEntry, data));
	entry->version = holder->version;
	if (entry->kind != LEASE_PLAIN)
	{
		stamp = lease_entry_stamp(old);
		if (call->unbind || holder->life == LEASE_TIMED)
			entry->kind = LEASE_PLAIN;
	}
	entry->deadline_us = entry_deadline(call, entry->kind, holder);
	put_strings(entry, lease_entry_name(old), lease_entry_owner(old),
				holder->request, lease_entry_application(old),
				lease_entry_address(old), stamp);
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
 * Write the rows from index "from" on that lie on one page: take away those
 * removed, and overwrite those updated, whose size must be the same.  Returns
 * the index after them.
 */
static size_t
write_page(LeaseCall *call, Buffer bucket, size_t from)
{
	const RowPlace *first = &call->places[from];
	Buffer		buffer = lock_place(call, bucket, first);
	LeaseChange change;
	Page		page;
	size_t		end;

	for (end = from; end < call->count; end++)
	{
		if (call->places[end].block != first->block)
			break;
		if (call->holders[end].change == LEASE_EXPIRED)
			remember_expired(call, entry_at(buffer, &call->places[end]));
		else if (call->holders[end].change == LEASE_ENDED &&
				 call->holders[end].life == LEASE_LEFT)
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

		if (lease_rows_is_removed(holder))
			lease_page_delete(&change, page, place->offset);
		else if (holder->change == LEASE_UPDATED)
		{
			LeaseEntryBuffer new;

			update_entry(call, entry_at(buffer, place), holder, &new.entry);
			lease_page_overwrite(&change, page, place->offset, &new.entry);
		}
	}
	DLOCK_CRASH_POINT("rows: not logged");
	call->lsn = lease_change_finish(&change);
	DLOCK_CRASH_POINT("rows: logged");
	if (buffer != bucket)
		UnlockReleaseBuffer(buffer);
	return end;
}

/* Write all changed rows but the added; free overflow pages left empty. */
void
lease_rows_write(LeaseCall *call, Buffer bucket)
{
	bool		removed = false;
	size_t		i = 0;

	while (i < call->count)
	{
		if (call->holders[i].change == LEASE_UNCHANGED)
		{
			i++;
			continue;
		}
		i = write_page(call, bucket, i);
	}
	for (i = 0; i < call->count; i++)
		removed |= lease_rows_is_removed(&call->holders[i]) &&
			call->places[i].block != call->bucket_block;
	if (removed)
	{
		DLOCK_CRASH_POINT("rows: overflow left empty");
		lease_trie_free_overflow(call->rel, bucket);
	}
}

/*
 * Insert an entry: a new one, whose token becomes the bucket's mark, or one
 * that replaces the row at "old", being of another size.  False when there is
 * no room.
 *
 * Two overflow pages may be locked here out of their order.  That is safe:
 * whoever waits for one while holding another has the bucket, as we do; and so
 * has redo, because the bucket is the first page of the change (lease_wal.h).
 */
static bool
insert_entry(LeaseCall *call, Buffer bucket, const LeaseEntry *entry,
			 const RowPlace *old)
{
	Buffer		room = lease_trie_find_room(call->rel, bucket, call->hash,
											lease_entry_size(entry));
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
			LeaseEntry *entry)
{
	if (result->count > call->count)
	{
		make_entry(call, &call->holders[call->count], entry);
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
					 entry);
		same = lease_entry_size(entry) ==
			lease_entry_size(entry_at(buffer, &call->places[i]));
		if (buffer != bucket)
			UnlockReleaseBuffer(buffer);
		return same ? result->count : i;
	}
	return result->count;
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
	size_t		insert = find_insert(call, bucket, result, &new.entry);

	if (insert < call->count)
		call->holders[insert].change = LEASE_UNCHANGED;
	lease_rows_write(call, bucket);
	if (insert == result->count ||
		insert_entry(call, bucket, &new.entry,
					 insert < call->count ? &call->places[insert] : NULL))
		return true;
	call->missing_room = lease_entry_size(&new.entry);
	return false;
}

/* Make the room that was missing, and unlock the bucket. */
void
lease_rows_make_room(LeaseCall *call, Buffer bucket)
{
	lease_trie_make_room(call->rel, bucket, call->hash, call->missing_room);
}
