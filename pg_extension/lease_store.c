/*
 * lease_store.c
 *	  Apply requests to the lock table.
 *
 * A request on one name: lock the name's bucket, gather the name's holders,
 * read the clock, let the core decide, write the changed rows back, log, unlock,
 * flush.  Everything happens under the bucket's exclusive content lock, which
 * is what makes concurrent requests on a name take turns.  Nothing waits while
 * it is held but for pages further down the lock order (lease_trie.c).
 *
 * Catalogs cannot be read under a content lock.  When a row has the request's
 * owner but another role, and it is not known yet whether the caller may act
 * for that role, the bucket is unlocked, the catalogs are asked, and the
 * request starts over.  The same goes for making room: split or overflow are
 * separate steps with WAL records of their own, then the request starts over.
 *
 * What a crash does: the grant of a lease, its token and the bucket's mark are
 * one WAL record.  Rows that a grant finds expired are removed by records of
 * their own before it, which changes nothing for anybody.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "commands/extension.h"
#include "common/ip.h"
#include "lease_am.h"
#include "lease_store.h"
#include "lease_summary.h"
#include "lease_trie.h"
#include "lease_wal.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

/* How old the clock's mark may be before a call writes a new one. */
#define MARK_AGE_US		USECS_PER_SEC

/* Holders of a name that need no memory of their own. */
#define ROWS_INLINE		16

/* Where a row is. */
typedef struct RowPlace
{
	BlockNumber block;
	OffsetNumber offset;
	XLogRecPtr	lsn;			/* of its page */
} RowPlace;

/* A role that the caller may or may not act for. */
typedef struct RoleVerdict
{
	Oid			role;
	bool		acts_for;
} RoleVerdict;

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

/* One call of a function, over all its attempts. */
typedef struct LeaseCall
{
	Relation	rel;
	LeaseDatabase *db;
	lease_request request;
	lease_bytes name;
	uint32		hash;			/* of the name */
	Oid			role;			/* who calls */

	RoleVerdict *verdicts;
	int			nverdicts;
	Oid			unknown_role;	/* met by this attempt; InvalidOid: none */

	/* the rows this attempt has gathered; holders[count] is spare */
	BlockNumber bucket_block;
	lease_holder *holders;
	RowPlace   *places;
	size_t		count;
	size_t		capacity;

	List	   *expired;		/* of ExpiredLease */
	uint64		nexpired;
	XLogRecPtr	lsn;			/* the last record of this call, or the one it
								 * depends on */

	/* room for the rows of most calls; not zeroed */
	lease_holder inline_holders[ROWS_INLINE];
	RowPlace	inline_places[ROWS_INLINE];
} LeaseCall;

bool		lease_log_expired = true;

/* The lock table's OID, until a relcache invalidation. */
static Oid	table_oid = InvalidOid;

/* ----------------------------------------------------------------
 * The lock table as a relation
 * ----------------------------------------------------------------
 */

static void
forget_table_oid(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == table_oid)
		table_oid = InvalidOid;
}

/*
 * Open the lock table and check that it is what the extension created.
 *
 * A foreign access method or changed columns would have us write over pages
 * that are not ours.  A table that this transaction has moved would lose what
 * is written to it when the transaction rolls back.
 */
Relation
lease_store_open(LOCKMODE mode)
{
	static bool callback_registered = false;
	Relation	rel = NULL;

	lease_state_check_loaded();
	if (!callback_registered)
	{
		CacheRegisterRelcacheCallback(forget_table_oid, (Datum) 0);
		callback_registered = true;
	}

	/* A remembered OID may turn out to be of a table that was dropped. */
	for (int attempt = 0; rel == NULL; attempt++)
	{
		if (!OidIsValid(table_oid))
		{
			Oid			namespace = get_namespace_oid("dlock", true);

			if (OidIsValid(namespace))
				table_oid = get_relname_relid("lease_table", namespace);
		}
		if (OidIsValid(table_oid))
			rel = try_relation_open(table_oid, mode);
		if (rel == NULL)
			table_oid = InvalidOid;
		if (rel == NULL && attempt > 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("table \"dlock.lease_table\" does not exist"),
					 OidIsValid(get_extension_oid("dlock", true)) ?
					 errhint("If it was renamed, rename it back; else drop the extension and create it again.") :
					 errhint("Create the extension: CREATE EXTENSION dlock.")));
	}

	lease_am_check_intact(rel);
	if (mode > AccessShareLock && compat_relation_file_is_new(rel))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change leases in the transaction that created or moved the lock table"),
				 errhint("Commit first.")));
	return rel;
}

/* Say whether the table has been used, and by this database. */
bool
lease_store_is_readable(Relation rel)
{
	LeaseDatabase *db = lease_state_database();
	LeaseMeta	meta;

	if (db->file == compat_relation_file(rel))
		return true;
	if (!lease_trie_exists(rel))
		return false;
	lease_trie_read_meta(rel, &meta);
	return meta.database == MyDatabaseId;
}

/* ----------------------------------------------------------------
 * Calls and the rows they gather
 * ----------------------------------------------------------------
 */

static void
init_call(LeaseCall *call, const lease_request *request)
{
	memset(call, 0, offsetof(LeaseCall, inline_holders));
	call->request = *request;
	call->holders = call->inline_holders;
	call->places = call->inline_places;
	call->capacity = ROWS_INLINE;
}

/* Open and activate the table for a call by the current role. */
static void
begin_call(LeaseCall *call, const lease_request *request)
{
	init_call(call, request);
	call->role = GetUserId();
	call->rel = lease_store_open(RowExclusiveLock);
	call->db = lease_state_activate(call->rel);
	lease_clock_mark(call->rel, call->db, MARK_AGE_US);
}

/* Ask the catalogs about the role that stopped an attempt. */
static void
resolve_role(LeaseCall *call)
{
	RoleVerdict verdict = {
		call->unknown_role, has_privs_of_role(call->role, call->unknown_role)
	};

	call->verdicts = call->verdicts == NULL ?
		palloc(sizeof(RoleVerdict)) :
		repalloc(call->verdicts, (call->nverdicts + 1) * sizeof(RoleVerdict));
	call->verdicts[call->nverdicts++] = verdict;
	call->unknown_role = InvalidOid;
}

/* How the caller stands to a row's role, if that matters to the request. */
static lease_standing
find_standing(LeaseCall *call, const LeaseEntry *entry)
{
	if (entry->role == call->role)
		return LEASE_SELF;
	if (!lease_same(lease_entry_owner(entry), call->request.owner))
		return LEASE_STRANGER;
	for (int i = 0; i < call->nverdicts; i++)
		if (call->verdicts[i].role == entry->role)
			return call->verdicts[i].acts_for ? LEASE_ACTS_FOR : LEASE_STRANGER;
	call->unknown_role = entry->role;
	return LEASE_STRANGER;
}

static lease_bytes
copy_bytes(lease_bytes bytes)
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
	return (lease_holder) {
		.owner = lease_entry_owner(entry),
		.request = lease_entry_request(entry),
		.mode = entry->mode,
		.standing = find_standing(call, entry),
		.version = entry->version,
		.token = entry->token,
		.deadline_us = entry->deadline_us,
		.change = LEASE_UNCHANGED,
	};
}

/* Keep an entry among the rows of this attempt. */
static lease_holder *
add_row(LeaseCall *call, Buffer buffer, OffsetNumber offset,
		const LeaseEntry *entry)
{
	lease_holder *holder;
	RowPlace   *place;

	if (call->count + 1 >= call->capacity)
	{
		size_t		capacity = call->capacity * 2;
		lease_holder *holders = palloc(capacity * sizeof(lease_holder));
		RowPlace   *places = palloc(capacity * sizeof(RowPlace));

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
		holder->owner = copy_bytes(holder->owner);
		holder->request = copy_bytes(holder->request);
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
		add_row(call, buffer, offset, entry);
}

/* Remember a lease that is about to be removed because it is over. */
static void
remember_expired(LeaseCall *call, const LeaseEntry *entry)
{
	ExpiredLease *expired;

	call->nexpired++;
	if (!lease_log_expired)
		return;
	expired = palloc(sizeof(ExpiredLease));
	expired->token = entry->token;
	expired->role = entry->role;
	expired->pid = entry->pid;
	expired->name = (char *) copy_bytes(lease_entry_name(entry)).data;
	expired->owner = (char *) copy_bytes(lease_entry_owner(entry)).data;
	expired->application =
		(char *) copy_bytes(lease_entry_application(entry)).data;
	call->expired = lappend(call->expired, expired);
}

/* Log the holders that died, and count them.  No locks are held. */
static void
report_expired(LeaseCall *call)
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
static lease_bytes
client_address(void)
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
	memcpy(ptr, bytes.data, bytes.length);
	return ptr + bytes.length;
}

/* Fill in an entry's strings, and its padding. */
static void
put_strings(LeaseEntry *entry, lease_bytes name, lease_bytes owner,
			lease_bytes request, lease_bytes application, lease_bytes address)
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
	memset(ptr, 0, (char *) entry + lease_entry_size(entry) - ptr);
}

/* Make the entry of a holder that the core has added. */
static void
make_entry(LeaseCall *call, const lease_holder *holder, LeaseEntry *entry)
{
	lease_bytes application = {
		application_name, application_name ? strlen(application_name) : 0
	};

	entry->hash = call->hash;
	entry->version = holder->version;
	entry->token = holder->token;
	entry->deadline_us = holder->deadline_us;
	entry->acquired_at = GetCurrentTimestamp();
	entry->role = call->role;
	entry->pid = MyProcPid;
	entry->mode = holder->mode;
	put_strings(entry, call->name, holder->owner, holder->request,
				application, client_address());
}

/* Make the new entry of a holder that the core has updated. */
static void
update_entry(const LeaseEntry *old, const lease_holder *holder,
			 LeaseEntry *entry)
{
	memcpy(entry, old, offsetof(LeaseEntry, data));
	entry->version = holder->version;
	entry->deadline_us = holder->deadline_us;
	put_strings(entry, lease_entry_name(old), lease_entry_owner(old),
				holder->request, lease_entry_application(old),
				lease_entry_address(old));
}

static bool
is_removed(const lease_holder *holder)
{
	return holder->change == LEASE_ENDED || holder->change == LEASE_EXPIRED ||
		holder->change == LEASE_EVICTED;
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
	}

	lease_change_begin(&change, call->rel, false);
	page = lease_change_page(&change, buffer, false);
	lease_change_start(&change);
	for (size_t i = from; i < end; i++)
	{
		const lease_holder *holder = &call->holders[i];
		const RowPlace *place = &call->places[i];

		if (is_removed(holder))
			lease_page_delete(&change, page, place->offset);
		else if (holder->change == LEASE_UPDATED)
		{
			LeaseEntryBuffer new;

			update_entry(entry_at(buffer, place), holder, &new.entry);
			lease_page_overwrite(&change, page, place->offset, &new.entry);
		}
	}
	call->lsn = lease_change_finish(&change);
	if (buffer != bucket)
		UnlockReleaseBuffer(buffer);
	return end;
}

/* Write all changed rows but the added; free overflow pages left empty. */
static void
write_rows(LeaseCall *call, Buffer bucket)
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
		removed |= is_removed(&call->holders[i]) &&
			call->places[i].block != call->bucket_block;
	if (removed)
		lease_trie_free_overflow(call->rel, bucket);
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
	call->lsn = lease_change_finish(&change);

	if (BufferIsValid(old_buffer))
		UnlockReleaseBuffer(old_buffer);
	if (room != bucket)
		UnlockReleaseBuffer(room);
	return true;
}

/* ----------------------------------------------------------------
 * Requests on one name
 * ----------------------------------------------------------------
 */

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
		update_entry(entry_at(buffer, &call->places[i]), &call->holders[i],
					 entry);
		same = lease_entry_size(entry) ==
			lease_entry_size(entry_at(buffer, &call->places[i]));
		if (buffer != bucket)
			UnlockReleaseBuffer(buffer);
		return same ? result->count : i;
	}
	return result->count;
}

/* Write what the core decided; false when the call must start over. */
static bool
store_result(LeaseCall *call, Buffer bucket, const lease_result *result)
{
	LeaseEntryBuffer new;
	size_t		insert = find_insert(call, bucket, result, &new.entry);
	bool		stored = true;

	if (insert < call->count)
		call->holders[insert].change = LEASE_UNCHANGED;
	write_rows(call, bucket);
	if (insert < result->count)
		stored = insert_entry(call, bucket, &new.entry,
							  insert < call->count ?
							  &call->places[insert] : NULL);
	if (!stored)
	{
		lease_trie_make_room(call->rel, bucket, call->hash,
							 lease_entry_size(&new.entry));
		return false;
	}
	return true;
}

/* One attempt at a request on one name; false: start over. */
static bool
try_apply(LeaseCall *call, LeaseAnswer *answer)
{
	Buffer		bucket = lease_trie_lock(call->rel, call->hash,
										 BUFFER_LOCK_EXCLUSIVE);
	LeasePageSpecial *special = lease_page_special(BufferGetPage(bucket));
	lease_result result;
	int64		now_us;
	size_t		mine;

	call->bucket_block = BufferGetBlockNumber(bucket);
	call->count = 0;
	lease_trie_visit(call->rel, bucket, &call->hash, gather_name, call);
	if (OidIsValid(call->unknown_role))
	{
		UnlockReleaseBuffer(bucket);
		resolve_role(call);
		return false;
	}

	now_us = lease_clock_now(call->db);
	call->request.next_token =
		Max(special->mark, pg_atomic_read_u64(&call->db->floor)) + 1;
	mine = lease_find(&call->request, call->holders, call->count, now_us);
	if (mine < call->count)
		answer->held_mode = call->holders[mine].mode;
	result = lease_apply(&call->request, call->holders, call->count, now_us);
	answer->outcome = result.outcome;
	answer->token = result.token;
	answer->ended = 0;
	for (size_t i = 0; i < call->count; i++)
		if (call->holders[i].change == LEASE_EVICTED)
			answer->ended++;

	if (result.changed > 0)
	{
		if (!store_result(call, bucket, &result))
			return false;
		if (result.count > call->count)
			mine = call->count;
		if (mine < result.count && !is_removed(&call->holders[mine]))
			lease_trie_note(call->rel, bucket,
							call->holders[mine].deadline_us,
							call->request.owner);
	}
	else if (result.outcome == LEASE_REPLAYED)
		call->lsn = call->places[mine].lsn;
	UnlockReleaseBuffer(bucket);
	return true;
}

static void
count_outcome(LeaseDatabase *db, const LeaseAnswer *answer)
{
	switch (answer->outcome)
	{
		case LEASE_GRANTED:
			lease_count(db, LEASE_COUNT_ACQUIRED, 1);
			break;
		case LEASE_REENTERED:
		case LEASE_REPLAYED:
			lease_count(db, LEASE_COUNT_REENTERED, 1);
			break;
		case LEASE_BUSY:
			lease_count(db, LEASE_COUNT_REFUSED, 1);
			break;
		case LEASE_RENEWED:
			lease_count(db, LEASE_COUNT_RENEWED, 1);
			break;
		case LEASE_RELEASED:
			lease_count(db, LEASE_COUNT_FORCED, answer->ended);
			if (answer->ended == 0)
				lease_count(db, LEASE_COUNT_RELEASED, 1);
			break;
		case LEASE_NOT_YOURS:
		case LEASE_NOT_HELD:
		case LEASE_UPGRADE:
		case LEASE_MIXED:
		case LEASE_TOO_MANY_HOLDS:
		case LEASE_NO_TOKENS:
			break;
	}
}

/* Say whether an answer must be durable before it is given (rule 7). */
static bool
must_be_durable(lease_op op)
{
	return op == LEASE_ACQUIRE || op == LEASE_RENEW || op == LEASE_EVICT;
}

static void
make_durable(const LeaseCall *call)
{
	if (must_be_durable(call->request.op))
		lease_wal_flush(call->lsn);
	else
		lease_wal_flush_later(call->lsn);
}

/*
 * Apply a request to the holders of one name: what came of it.  The request's
 * strings and times have been checked; its next_token is filled in here.
 */
LeaseAnswer
lease_store_apply(lease_bytes name, const lease_request *request)
{
	LeaseCall	call;
	LeaseAnswer answer = {.held_mode = LEASE_MODE_FIRST};

	begin_call(&call, request);
	call.name = name;
	call.hash = lease_trie_hash(call.rel, name);
	while (!try_apply(&call, &answer))
	{
		report_expired(&call);
		CHECK_FOR_INTERRUPTS();
	}
	relation_close(call.rel, RowExclusiveLock);

	count_outcome(call.db, &answer);
	report_expired(&call);
	make_durable(&call);
	return answer;
}

/* ----------------------------------------------------------------
 * Requests on all names of an owner, and reaping
 * ----------------------------------------------------------------
 */

/* What a walk does to the rows it meets. */
typedef struct WalkContext
{
	LeaseCall  *call;
	int64		now_us;
	int64		target_us;		/* LEASE_RENEW: the new deadline */
	uint64		affected;
} WalkContext;

/* Gather the rows of the walk's owner that its request changes. */
static void
gather_owned(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
			 void *context)
{
	WalkContext *walk = context;
	LeaseCall  *call = walk->call;
	lease_holder *holder;

	if (!lease_same(lease_entry_owner(entry), call->request.owner))
		return;

	/* A split brought a row we have renewed under our eyes again. */
	if (call->request.op == LEASE_RENEW &&
		entry->deadline_us == walk->target_us)
		return;

	holder = add_row(call, buffer, offset, entry);
	if (lease_apply(&call->request, holder, 1, walk->now_us).changed == 0)
		call->count--;
}

/* Gather the rows that are over. */
static void
gather_over(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
			void *context)
{
	WalkContext *walk = context;
	lease_holder *holder = add_row(walk->call, buffer, offset, entry);

	if (lease_apply(&walk->call->request, holder, 1,
					walk->now_us).changed == 0)
		walk->call->count--;
}

/* Apply the walk's request to one bucket; false: try it again. */
static bool
try_apply_block(WalkContext *walk, BlockNumber block,
				LeaseEntryVisitor gather)
{
	LeaseCall  *call = walk->call;
	Buffer		bucket = lease_trie_lock_block(call->rel, block);

	if (!BufferIsValid(bucket))
		return true;
	call->bucket_block = block;
	call->count = 0;
	walk->now_us = lease_clock_now(call->db);
	if (call->request.op == LEASE_RENEW)
		call->request.ttl_us = Max(walk->target_us - walk->now_us, 1);
	lease_trie_visit(call->rel, bucket, NULL, gather, walk);
	if (OidIsValid(call->unknown_role))
	{
		UnlockReleaseBuffer(bucket);
		resolve_role(call);
		return false;
	}
	if (call->count > 0)
		write_rows(call, bucket);
	lease_trie_summarize(call->rel, bucket);
	walk->affected += call->count;
	UnlockReleaseBuffer(bucket);
	return true;
}

/*
 * Renew or drop every lease of an owner: how many.
 *
 * Reads only the buckets whose summary says that the owner may be there.  A
 * lease that was there at the call is met wherever splits move it meanwhile,
 * since they move it towards the end.
 */
uint64
lease_store_apply_all(const lease_request *request)
{
	LeaseCall	call;
	WalkContext walk;
	BlockNumber block = 0;
	BlockNumber blocks;

	begin_call(&call, request);
	walk = (WalkContext) {
		.call = &call,
		.target_us = lease_clock_now(call.db) + request->ttl_us,
	};
	while (block < (blocks = lease_trie_blocks(call.rel)))
	{
		for (; block < blocks; block++)
		{
			CHECK_FOR_INTERRUPTS();
			if (!lease_summary_may_own(call.rel, block, request->owner))
				continue;
			while (!try_apply_block(&walk, block, gather_owned))
				CHECK_FOR_INTERRUPTS();
		}
	}
	relation_close(call.rel, RowExclusiveLock);

	lease_count(call.db, request->op == LEASE_RENEW ?
				LEASE_COUNT_RENEWED : LEASE_COUNT_RELEASED, walk.affected);
	make_durable(&call);
	return walk.affected;
}

/*
 * Remove what is over from at most max_pages buckets, from block *next on.
 * Returns whether the end of the table was reached; else *next says where to
 * go on.  The caller holds RowExclusiveLock on the table, activated.
 */
bool
lease_store_reap(Relation rel, LeaseDatabase *db, BlockNumber *next,
				 int max_pages)
{
	LeaseCall	call;
	lease_request request = {.op = LEASE_REAP};
	BlockNumber blocks = lease_trie_blocks(rel);

	init_call(&call, &request);
	call.rel = rel;
	call.db = db;
	for (int pages = 0; pages < max_pages; pages++)
	{
		WalkContext walk;

		*next = lease_summary_next_due(rel, *next, blocks,
									   lease_clock_now(db));
		if (*next >= blocks)
			break;
		walk = (WalkContext) {.call = &call};
		db->reaped_block = *next;
		(void) try_apply_block(&walk, *next, gather_over);
		db->reaped_block = 0;
		(*next)++;
		lease_count(db, LEASE_COUNT_REAPED, walk.affected);
		report_expired(&call);
		CHECK_FOR_INTERRUPTS();
	}
	lease_wal_flush_later(call.lsn);
	return *next >= blocks;
}

/* ----------------------------------------------------------------
 * Reading
 * ----------------------------------------------------------------
 */

typedef struct ReadContext
{
	lease_bytes name;
	uint32		hash;
	List	   *entries;
} ReadContext;

static void
copy_named(Buffer buffer, OffsetNumber offset, LeaseEntry *entry,
		   void *context)
{
	ReadContext *read = context;
	LeaseEntry *copy;

	if (!lease_same(lease_entry_name(entry), read->name))
		return;
	copy = palloc(lease_entry_size(entry));
	memcpy(copy, entry, lease_entry_size(entry));
	read->entries = lappend(read->entries, copy);
}

/*
 * The holders of a name, as a list of LeaseEntry, over or not, and the time to
 * judge them by.  Works on a standby.
 */
List *
lease_store_read(lease_bytes name, int64 *now_us)
{
	Relation	rel = lease_store_open(AccessShareLock);
	ReadContext read = {.name = name, .entries = NIL};

	*now_us = 0;
	if (lease_store_is_readable(rel))
	{
		Buffer		bucket;

		read.hash = lease_trie_hash(rel, name);
		bucket = lease_trie_lock(rel, read.hash, BUFFER_LOCK_SHARE);
		lease_trie_visit(rel, bucket, &read.hash, copy_named, &read);
		*now_us = lease_clock_read(rel);
		UnlockReleaseBuffer(bucket);
	}
	relation_close(rel, AccessShareLock);
	return read.entries;
}
