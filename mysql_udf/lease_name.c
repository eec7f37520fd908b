/*
 * lease_name.c
 *	  One name in a transaction: its holders, and what becomes of them.
 *
 * The batcher reads the rows of a name, applies requests to them one after
 * the other, and writes what has changed.  The core decides; this file turns
 * rows into holders and back, and gives rows their slots.
 *
 * A row that is locked by somebody's transaction is taken for guarded: it is in
 * the way of whoever else wants the name, whatever its deadline, and cannot be
 * changed now.  A change that needs it is either undone, and tried again later,
 * or kept here and not written.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_name.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lease_foreign.h"
#include "lease_guards.h"
#include "lease_session.h"

void
lease_name_init(lease_name *name, lease_bytes bytes)
{
	memset(name, 0, sizeof(*name));
	memcpy(name->data, bytes.data, bytes.length);
	name->name = (lease_bytes) {name->data, bytes.length};
}

void
lease_name_free(lease_name *name)
{
	free(name->members);
	free(name->saved);
}

static lease_member *
add_member(lease_name *name)
{
	if (name->count == name->room)
	{
		name->room = name->room ? name->room * 2 : 2;
		name->members = realloc(name->members,
								name->room * sizeof(lease_member));
		if (name->members == NULL)
			abort();
	}
	return memset(&name->members[name->count++], 0, sizeof(lease_member));
}

/* Say how it is told whether a row is over, and when that is. */
static void
judge(lease_member *member, lease_bytes name, const lease_moment *moment)
{
	const lease_row *row = &member->row;

	member->life = LEASE_TIMED;
	if (row->writer != moment->writer)
		member->deadline_us = lease_foreign_deadline(name, row,
													 moment->now_us);
	else if (row->kind == LEASE_SESSION &&
			 lease_session_is_alive(row->connection_id))
	{
		member->life = LEASE_BOUND;
		member->deadline_us = moment->now_us + row->ttl_us;
	}
	else if (row->kind == LEASE_SESSION && row->deadline_us > moment->now_us)
		member->deadline_us = moment->now_us;
	else
		member->deadline_us = row->deadline_us;
}

/* The row of a member is locked, or about to be. */
void
lease_name_lock(lease_name *name, lease_member *member)
{
	member->row.locked = true;
	name->has_locked = true;
	name->anchor_locked |= member->row.slot == 0;
}

/* Take over the rows that have been read. */
void
lease_name_load(lease_name *name, const lease_rows *rows, uint64_t mark,
				const lease_moment *moment)
{
	name->count = 0;
	name->mark = mark;
	name->mark_changed = false;
	name->has_locked = false;
	name->anchor_locked = false;
	name->guarding = false;
	for (size_t i = 0; i < rows->count; i++)
	{
		lease_member *member = add_member(name);

		member->row = rows->rows[i];
		member->stored = true;
		member->stored_slot = member->row.slot;
		judge(member, name->name, moment);
		if (member->row.locked ||
			lease_guards_have(name->name, member->row.slot, moment->now_us))
			lease_name_lock(name, member);

		/* the mark of a table that was restored from elsewhere may be old */
		if (member->row.token > name->mark)
			name->mark = member->row.token;
	}
}

/* Keep the holders as they are, for lease_name_restore(). */
void
lease_name_save(lease_name *name)
{
	if (name->count > name->saved_room)
	{
		name->saved_room = name->room;
		name->saved = realloc(name->saved,
							  name->saved_room * sizeof(lease_member));
		if (name->saved == NULL)
			abort();
	}
	if (name->count > 0)
		memcpy(name->saved, name->members, name->count * sizeof(lease_member));
	name->nsaved = name->count;
	name->saved_mark = name->mark;
	name->saved_mark_changed = name->mark_changed;
}

/* Undo what was applied since lease_name_save(). */
void
lease_name_restore(lease_name *name)
{
	if (name->nsaved > 0)
		memcpy(name->members, name->saved, name->nsaved * sizeof(lease_member));
	name->count = name->nsaved;
	name->mark = name->saved_mark;
	name->mark_changed = name->saved_mark_changed;
}

/* ----------------------------------------------------------------
 * Applying a request
 * ----------------------------------------------------------------
 */

static bool
is_account(const lease_row *row, const dlock_caller *caller)
{
	return strcmp(row->user, caller->user) == 0 &&
		strcmp(row->host, caller->host) == 0;
}

/* Say whether a member is of an owner and an account. */
bool
lease_member_is_of(const lease_member *member, lease_bytes owner,
				   const dlock_caller *caller)
{
	return is_account(&member->row, caller) &&
		lease_same((lease_bytes) {member->row.owner, member->row.owner_length},
				   owner);
}

/* Say whether a member's lease is neither given up nor over. */
bool
lease_member_is_live(const lease_member *member, const lease_moment *moment)
{
	return !member->gone && member->deadline_us > moment->now_us;
}

/* Say whether anybody could have the name. */
bool
lease_name_is_free(const lease_name *name, const lease_moment *moment)
{
	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];

		if (lease_member_is_live(member, moment) || member->row.locked ||
			(!member->gone &&
			 member->deadline_us + moment->delay_us > moment->now_us))
			return false;
	}
	return true;
}

/* The lease with a token, or NULL. */
lease_member *
lease_name_find(lease_name *name, uint64_t token)
{
	for (size_t i = 0; i < name->count; i++)
		if (!name->members[i].gone && name->members[i].row.token == token)
			return &name->members[i];
	return NULL;
}

static void
fill_holder(lease_holder *holder, const lease_member *member,
			const dlock_caller *caller, const lease_moment *moment)
{
	const lease_row *row = &member->row;

	*holder = (lease_holder) {
		.owner = {row->owner, row->owner_length},
		.request = {row->request, row->request_length},
		.mode = row->mode,
		.kind = row->kind,
		.life = member->life,
		.standing = is_account(row, caller) ? LEASE_SELF : LEASE_STRANGER,
		.version = row->version,
		.guarded = row->locked ? row->version : 0,
		.guard_mode = row->mode,
		.repeated = true,		/* lease_make.c sees to that */
		.token = row->token,
		.deadline_us = member->deadline_us,
	};
	if (member->gone)
	{
		/* of a locked row: it is in the way until its guard ends */
		holder->life = LEASE_PINNED;
		holder->deadline_us = 0;
	}
	else if (row->kind == LEASE_SESSION && row->writer != moment->writer)
		holder->life = LEASE_STRANDED;
	holder->elsewhere = row->kind == LEASE_SESSION &&
		row->connection_id != caller->connection_id;
}

/* Write a member's state of now into its row. */
static void
stamp(lease_member *member, const lease_moment *moment)
{
	lease_row  *row = &member->row;

	row->ttl_us = member->deadline_us - moment->now_us;
	row->deadline_us = member->deadline_us;
	row->expires_us = moment->wall_us + row->ttl_us;
	row->writer = moment->writer;
	row->writes++;
	member->changed = true;
}

/*
 * Write that a session's lease lives: its time to live, as other servers see
 * it, begins anew.
 */
void
lease_member_extend(lease_member *member, const lease_moment *moment)
{
	member->deadline_us = moment->now_us + member->row.ttl_us;
	stamp(member, moment);
}

/* Let a session's lease be over, for the lock delay to count from now. */
void
lease_member_lose(lease_member *member, const lease_moment *moment)
{
	member->row.kind = LEASE_PLAIN;
	member->life = LEASE_TIMED;
	member->deadline_us = moment->now_us;
	stamp(member, moment);
}

static void
update_member(lease_member *member, const lease_holder *holder,
			  const lease_moment *moment)
{
	lease_row  *row = &member->row;

	row->version = holder->version;
	row->mode = holder->mode;
	if (holder->request.data != row->request)
	{
		row->request_length = (uint8_t) holder->request.length;
		memcpy(row->request, holder->request.data, holder->request.length);
	}
	member->deadline_us = holder->deadline_us;

	/* of another run, and so of no session here: its time to live counts */
	if (row->kind == LEASE_SESSION && row->writer != moment->writer)
	{
		row->ttl_us = member->deadline_us - moment->now_us;
		row->expires_us = moment->wall_us + row->ttl_us;
		row->writes++;
		member->changed = true;
		return;
	}
	stamp(member, moment);
}

static void
fill_member(lease_member *member, const lease_holder *holder,
			const dlock_caller *caller, const lease_moment *moment)
{
	lease_row  *row = &member->row;

	row->owner_length = (uint8_t) holder->owner.length;
	memcpy(row->owner, holder->owner.data, holder->owner.length);
	row->request_length = (uint8_t) holder->request.length;
	memcpy(row->request, holder->request.data, holder->request.length);
	strcpy(row->user, caller->user);
	strcpy(row->host, caller->host);
	row->mode = holder->mode;
	row->kind = holder->kind;
	row->version = holder->version;
	row->token = holder->token;
	row->connection_id = caller->connection_id;
	row->acquired_us = moment->wall_us;
	member->life = row->kind == LEASE_SESSION ? LEASE_BOUND : LEASE_TIMED;
	member->deadline_us = holder->deadline_us;
	stamp(member, moment);
}

/*
 * Say whether slot 0 would be left empty although the name has rows, because
 * they are locked and cannot be moved there.
 */
static bool
would_lose_anchor(const lease_name *name)
{
	bool		any_locked = false;

	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];

		if (member->row.locked)
		{
			any_locked = true;
			if (member->row.slot == 0)
				return false;
		}
		else if (!member->gone)
			return false;
	}
	return any_locked;
}

/* Room for holders, of whoever has the mutex. */
static lease_holder *
holders_for(size_t count)
{
	static lease_holder *holders = NULL;
	static size_t room = 0;

	if (room < count)
	{
		room = count * 2;
		holders = realloc(holders, room * sizeof(lease_holder));
		if (holders == NULL)
			abort();
	}
	return holders;
}

/* How much is left of a member's lease if nobody renews it. */
int64_t
lease_member_remaining_us(const lease_member *member,
						  const dlock_caller *caller,
						  const lease_moment *moment)
{
	lease_holder holder;

	fill_holder(&holder, member, caller, moment);
	return lease_remaining_us(&holder, moment->now_us);
}

/*
 * The same of the lease that a request of a caller's speaks for; -1: there is none.
 */
int64_t
lease_name_remaining_us(const lease_name *name, const lease_request *request,
						const dlock_caller *caller, const lease_moment *moment)
{
	lease_holder *holders = holders_for(name->count + 1);
	size_t		mine;

	for (size_t i = 0; i < name->count; i++)
		fill_holder(&holders[i], &name->members[i], caller, moment);
	mine = lease_find(request, holders, name->count, moment->now_us);
	return mine < name->count ?
		lease_remaining_us(&holders[mine], moment->now_us) : -1;
}

/*
 * Apply a request of a caller's to the holders of a name.  Fills in what the
 * request needs of the engine: next token and lock delay.
 */
lease_name_answer
lease_name_apply(lease_name *name, lease_request *request,
				 const dlock_caller *caller, const lease_moment *moment)
{
	lease_holder *holders = holders_for(name->count + 1);
	lease_name_answer answer = {0};
	lease_result result;
	size_t		count = name->count;
	size_t		mine;

	/* what has ended here and is not locked, is not there any more */
	for (size_t i = 0; i < count;)
		if (name->members[i].gone && !name->members[i].row.locked &&
			!name->members[i].stored)
			name->members[i] = name->members[--count];
		else
			i++;
	name->count = count;
	if (request->op == LEASE_ACQUIRE)
		request->next_token = name->mark + 1;
	request->delay_us = moment->delay_us;

	/* holders[n] is of the member that position[n] says */
	{
		size_t		n = 0;
		size_t		position[count + 1];

		for (size_t i = 0; i < count; i++)
		{
			if (name->members[i].gone && !name->members[i].row.locked)
				continue;
			fill_holder(&holders[n], &name->members[i], caller, moment);
			position[n++] = i;
		}
		mine = lease_find(request, holders, n, moment->now_us);
		if (mine < n)
		{
			answer.held_mode = holders[mine].mode;
			answer.held_kind = holders[mine].kind;
		}
		result = lease_apply(request, holders, n, moment->now_us);
		answer.outcome = result.outcome;
		answer.token = result.token;
		answer.retry_us = result.retry_us;
		for (size_t h = 0; h < result.count; h++)
		{
			lease_member *member;

			assert(h < n || holders[h].change == LEASE_ADDED);
			switch (holders[h].change)
			{
				case LEASE_UNCHANGED:
					continue;
				case LEASE_ADDED:
					member = add_member(name);
					fill_member(member, &holders[h], caller, moment);
					name->mark = result.token;
					name->mark_changed = true;
					break;
				case LEASE_UPDATED:
					member = &name->members[position[h]];
					answer.seen_writes = member->row.writes;
					update_member(member, &holders[h], moment);
					break;
				case LEASE_ENDED:
				case LEASE_EXPIRED:
				case LEASE_EVICTED:
				default:
					member = &name->members[position[h]];
					if (holders[h].change == LEASE_ENDED)
						answer.seen_writes = member->row.writes;
					member->gone = true;
					member->changed = true;
					member->expired = holders[h].change == LEASE_EXPIRED;
					answer.expired += holders[h].change == LEASE_EXPIRED;
					answer.ended += holders[h].change == LEASE_EVICTED;
					break;
			}
			answer.changed = true;
			answer.cannot_write |= member->row.locked;
		}
	}
	answer.cannot_write |= answer.changed &&
		(name->anchor_locked || would_lose_anchor(name));
	return answer;
}

/* ----------------------------------------------------------------
 * Writing
 * ----------------------------------------------------------------
 */

/* Say whether a member has a row when all is written. */
static bool
will_be_stored(const lease_member *member)
{
	return !member->gone || (member->row.locked && member->stored);
}

/* Say whether a slot will be in use. */
static bool
is_slot_used(const lease_name *name, uint32_t slot, size_t but)
{
	for (size_t i = 0; i < name->count; i++)
		if (i != but && will_be_stored(&name->members[i]) &&
			name->members[i].row.slot == slot)
			return true;
	return false;
}

/* Say whether the table has a row in a slot, as far as was read. */
static bool
is_slot_stored(const lease_name *name, uint32_t slot)
{
	for (size_t i = 0; i < name->count; i++)
		if (name->members[i].stored && name->members[i].stored_slot == slot)
			return true;
	return false;
}

/* Give slots to new rows, and see to it that slot 0 is in use. */
static void
assign_slots(lease_name *name)
{
	lease_member *movable = NULL;
	bool		anchored = false;

	for (size_t i = 0; i < name->count; i++)
		if (!name->members[i].stored && !name->members[i].gone)
			name->members[i].row.slot = UINT32_MAX;
	for (size_t i = 0; i < name->count; i++)
	{
		lease_member *member = &name->members[i];
		uint32_t	slot = 0;

		if (member->gone || member->row.slot != UINT32_MAX)
			continue;
		while (is_slot_used(name, slot, i))
			slot++;
		member->row.slot = slot;
	}
	for (size_t i = 0; i < name->count; i++)
	{
		lease_member *member = &name->members[i];

		if (!will_be_stored(member))
			continue;
		anchored |= member->row.slot == 0;
		if (!member->row.locked && movable == NULL)
			movable = member;
	}
	if (!anchored && movable != NULL)
	{
		movable->row.slot = 0;
		movable->changed = true;
	}
}

/* Say whether anything can and must be written. */
static bool
has_changes(const lease_name *name)
{
	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];

		if (member->changed && !member->row.locked &&
			(member->stored || !member->gone))
			return true;
	}
	return false;
}

/* Say whether there are changes, and they will be written as things are. */
bool
lease_name_will_write(const lease_name *name)
{
	return has_changes(name) && !name->anchor_locked &&
		!would_lose_anchor(name);
}

/*
 * Hand what has changed to the table: true if anything has.  "believed" says
 * that the rows were not read but are believed to be so: then all there is are
 * rows to delete and to insert.  "own" says that there is one row in the table,
 * in slot 0, which this run has written: many such are deleted at once.  The
 * mark is the caller's to write.
 */
bool
lease_name_write(lease_name *name, lease_table *table, bool believed, bool own)
{
	/* what cannot be written is a release that was put off */
	if (!lease_name_will_write(name))
		return name->mark_changed;
	assign_slots(name);
	for (size_t i = 0; i < name->count; i++)
	{
		lease_member *member = &name->members[i];
		lease_row	old = member->row;
		bool		moved = member->stored &&
			(member->gone || member->row.slot != member->stored_slot);

		if (member->row.locked)
			continue;
		old.slot = member->stored_slot;
		if (moved &&
			(believed || !is_slot_used(name, member->stored_slot, i)))
			lease_table_write(table,
							  own ? LEASE_WRITE_DELETE_OWN : LEASE_WRITE_DELETE,
							  name->name, &old);
		if (!member->gone && member->changed)
			lease_table_write(table, believed ? LEASE_WRITE_GRANT :
							  is_slot_stored(name, member->row.slot) ?
							  LEASE_WRITE_PUT : LEASE_WRITE_INSERT,
							  name->name, &member->row);
		else if (!member->gone && member->row.slot == 0)
			lease_table_write(table, LEASE_WRITE_TOUCH, name->name,
							  &member->row);
	}
	return true;
}

/* Say whether a name has rows, when all is written. */
bool
lease_name_has_rows(const lease_name *name)
{
	for (size_t i = 0; i < name->count; i++)
		if (will_be_stored(&name->members[i]))
			return true;
	return false;
}

/*
 * The row of a name that has just one, when all is written; NULL if there are
 * none or more, or somebody has locked it.
 */
const lease_row *
lease_name_only_row(const lease_name *name)
{
	const lease_row *row = NULL;

	if (name->has_locked || name->guarding)
		return NULL;
	for (size_t i = 0; i < name->count; i++)
	{
		if (name->members[i].gone)
			continue;
		if (row != NULL)
			return NULL;
		row = &name->members[i].row;
	}
	return row != NULL && row->slot == 0 ? row : NULL;
}
