/*
 * lease_name.c
 *	  A draft: one name of a batch, its leases, and what becomes of them.
 *
 * A batch makes drafts of the names that its calls concern, applies requests to
 * them one after the other, and writes what has changed.  The core decides; this
 * file turns leases into the core's holders and back, and gives them their slots.
 * No caller sees a draft before it has been committed: see image.h.
 *
 * A lease whose row a transaction has locked is taken for guarded: it is in the way of
 * all other owners, whatever its deadline.  Where changes go into the table at once, such
 * a row cannot be changed now: a change that needs it is either undone, and tried again
 * later, or kept in the draft and not written.
 *
 * If memory is short, the draft has "failed", and its batch fails.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_name.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "image_marks.h"
#include "lease_guards.h"
#include "lease_session.h"

/* Make room for one more member. */
static bool
reserve(lease_name *name)
{
	if (array_reserve(&name->members, &name->room, name->count + 1, sizeof(lease_member)))
		return true;
	name->failed = true;
	return false;
}

/* Set the life of a lease, and its deadline if it belongs to a session of this server. */
void
lease_member_judge(lease_member *member, const lease_moment *moment)
{
	member->life = LEASE_TIMED;
	if (member->kind != LEASE_SESSION || member->writer != moment->writer)
		return;
	if (lease_session_is_alive(member->holder->connection_id))
	{
		member->life = LEASE_BOUND;
		member->deadline_us = moment->now_us + member->ttl_us;
	}
	else if (member->deadline_us > moment->now_us)
		member->deadline_us = moment->now_us;
}

/*
 * Note that the row of a member is locked, or about to be.  What is pinned stays, whatever
 * becomes of the lease.
 */
void
lease_name_lock(lease_name *name, lease_member *member)
{
	if (!member->locked)
		lease_member_pin(member, member->mode, member->version);
	name->has_locked = true;
	name->anchor_locked |= member->slot == 0;
}

/*
 * A draft with room, and without leases.  lease_name_add() adds those that are enough to
 * try a request.  NULL if memory is short.
 */
lease_name *
lease_name_create_part(image_name *entry, size_t room)
{
	lease_name *name = calloc(1, sizeof(lease_name));

	if (name == NULL)
		return NULL;
	name->entry = entry;
	name->name = entry->name;
	name->mark = image_mark(lease_bucket(entry->name));
	name->room = room;
	name->members = malloc(name->room * sizeof(lease_member));
	if (name->members != NULL)
		return name;
	free(name);
	return NULL;
}

/* The draft of a name that is known; NULL if memory is short. */
lease_name *
lease_name_create(image_name *entry, const lease_moment *moment)
{
	lease_name *name = lease_name_create_part(entry, entry->count + 1);

	if (name == NULL)
		return NULL;
	if (entry->count > 0)
		memcpy(name->members, entry->members,
			   entry->count * sizeof(lease_member));
	name->count = name->nknown = entry->count;
	for (size_t i = 0; i < name->count; i++)
	{
		lease_member *member = &name->members[i];

		lease_member_judge(member, moment);
		if (member->locked ||
			lease_guards_have(name->name, member->slot, moment->now_us))
			lease_name_lock(name, member);
	}
	return name;
}

/* Add a lease, which has been judged, to a part of a draft: false if memory is short. */
bool
lease_name_add(lease_name *name, const lease_member *member)
{
	if (!reserve(name))
		return false;
	name->members[name->count++] = *member;
	return true;
}

void
lease_name_free(lease_name *name)
{
	if (name == NULL)
		return;
	free(name->members);
	free(name->saved);
	free(name);
}

/* Keep the leases as they are, for lease_name_restore(). */
void
lease_name_save(lease_name *name)
{
	lease_member *saved = realloc(name->saved,
								  name->room * sizeof(lease_member));

	if (saved == NULL)
	{
		name->failed = true;
		return;
	}
	name->saved = saved;
	memcpy(name->saved, name->members, name->count * sizeof(lease_member));
	name->nsaved = name->count;
	name->saved_mark = name->mark;
}

/* Undo what was applied since lease_name_save(). */
void
lease_name_restore(lease_name *name)
{
	if (name->failed)
		return;
	memcpy(name->members, name->saved, name->nsaved * sizeof(lease_member));
	name->count = name->nsaved;
	name->mark = name->saved_mark;
}

/* ----------------------------------------------------------------
 * Applying a request
 * ----------------------------------------------------------------
 */

/* The account of a caller; NULL if memory is short. */
const image_account *
lease_account_of(const dlock_caller *caller)
{
	return image_account_get(dlock_caller_user(caller),
							 dlock_caller_host(caller));
}

/* Say whether a member's lease is neither given up nor over. */
bool
lease_member_is_live(const lease_member *member, const lease_moment *moment)
{
	return !member->gone && member->deadline_us > moment->now_us;
}

/* The lease with a token, or NULL. */
lease_member *
lease_name_find(lease_name *name, uint64_t token)
{
	for (size_t i = 0; i < name->count; i++)
		if (!name->members[i].gone && name->members[i].holder->token == token)
			return &name->members[i];
	return NULL;
}

static bool
is_of(const lease_member *member, lease_bytes owner,
	  const image_account *account)
{
	return member->holder->account == account &&
		lease_same(member->holder->owner, owner);
}

/*
 * The first member of an owner, also one that has ended, or the next after one; NULL:
 * there is none.  Members of other owners, which may be many, are not gone through.
 */
static lease_member *
find_own(lease_name *name, lease_bytes owner, const image_account *account,
		 const lease_member *after)
{
	const lease_member *known = NULL;
	size_t		next = name->nknown;

	assert(name->members != NULL);	/* there is always room */
	if (after != NULL && after >= &name->members[next])
		next = (size_t) (after - name->members) + 1;
	else if (name->nknown > 0)
		known = image_own(name->entry, owner, account, after);
	if (known != NULL)
		return &name->members[known->holder->place];
	for (; next < name->count; next++)
		if (is_of(&name->members[next], owner, account))
			return &name->members[next];
	return NULL;
}

/* The lease of an owner with a token, also one that has ended, or NULL. */
lease_member *
lease_name_find_own(lease_name *name, lease_bytes owner,
					const dlock_caller *caller, uint64_t token)
{
	const image_account *account = lease_account_of(caller);
	lease_member *member = NULL;

	name->failed |= account == NULL;
	if (account != NULL)
		do
			member = find_own(name, owner, account, member);
		while (member != NULL && member->holder->token != token);
	return member;
}

/*
 * Say whether a member is a session's lease of another run.  Where others write, that
 * session may live on another server, which writes the lease anew before its deadline.
 * Elsewhere it was a session of this server before its restart.
 */
static bool
is_foreign_session(const lease_member *member, const lease_moment *moment)
{
	return member->kind == LEASE_SESSION && member->writer != moment->writer;
}

/* Describe a member to the core, as a caller's request meets it; NULL: no caller. */
static void
describe(const lease_member *member, const dlock_caller *caller,
		 const lease_moment *moment, lease_holder *holder)
{
	const image_account *account = member->holder->account;

	*holder = (lease_holder) {
		.owner = member->holder->owner,
		.mode = member->mode,
		.kind = member->kind,
		.life = member->life,
		.standing = caller != NULL &&
			dlock_is_caller(caller, account->user, account->host) ?
			LEASE_SELF : LEASE_STRANGER,
		.version = member->version,
		/* where others write, a retry here has to write the lease: was_found_again() */
		.repeated = !moment->direct || member->writer == moment->writer,
		.token = member->holder->token,
		.deadline_us = member->deadline_us,
	};
	if (member->request != NULL)
		holder->request = member->request->bytes;
	if (member->locked)
		lease_merge_guard(holder, member->guard_mode, member->guarded);
	if (member->gone)
	{
		/* its row is locked: it is in the way until its guard ends */
		holder->life = LEASE_PINNED;
		holder->deadline_us = 0;
	}
	else if (is_foreign_session(member, moment))
		holder->life = !moment->direct ? LEASE_STRANDED :
			member->deadline_us > moment->now_us ? LEASE_BOUND : LEASE_LOST;
	holder->elsewhere = member->kind == LEASE_SESSION && caller != NULL &&
		(member->writer != moment->writer ||
		 member->holder->connection_id != caller->connection_id);
}

/* A member has changed: it is this run's from now on. */
static void
stamp(lease_member *member, const lease_moment *moment)
{
	member->ttl_us = member->deadline_us - moment->now_us;
	member->written_us = member->deadline_us;
	member->writer = moment->writer;
	member->writes++;
	member->changed = true;
}

/*
 * Write that a session's lease lives: its time to live, as other servers see
 * it, begins anew.
 */
void
lease_member_extend(lease_member *member, const lease_moment *moment)
{
	member->deadline_us = moment->now_us + member->ttl_us;
	stamp(member, moment);
}

/* End a session's lease as if it had expired now: from now on the lock delay counts. */
void
lease_member_lose(lease_member *member, const lease_moment *moment)
{
	member->kind = LEASE_PLAIN;
	member->life = LEASE_TIMED;
	member->deadline_us = moment->now_us;
	stamp(member, moment);
}

/* The text of a request's id, or NULL. */
static image_text *
make_request(lease_name *name, lease_bytes id)
{
	image_text *text = id.length > 0 ? image_text_create(id) : NULL;

	name->failed |= id.length > 0 && text == NULL;
	return text;
}

/* Bring a member up to what the core has made of its holder. */
static void
update_member(lease_name *name, lease_member *member,
			  const lease_holder *holder, const lease_moment *moment)
{
	bool		is_same = member->request == NULL ?
		holder->request.length == 0 :
		holder->request.data == member->request->data;
	uint64_t	writer = member->writer;
	int64_t		end_us = moment->now_us + member->ttl_us;

	member->version = holder->version;
	member->mode = holder->mode;
	member->kind = holder->kind;
	if (!is_same)
		member->request = make_request(name, holder->request);
	member->deadline_us = holder->deadline_us;
	if (!is_foreign_session(member, moment))
	{
		stamp(member, moment);
		return;
	}

	/* the server of the session goes on writing it, and counts on the time that it has set */
	if (member->deadline_us < end_us)
		member->deadline_us = end_us;
	stamp(member, moment);
	member->writer = writer;
}

/* Add a member for a holder that the core has added. */
static void
add_member(lease_name *name, const lease_holder *holder,
		   const dlock_caller *caller, const lease_moment *moment)
{
	const image_account *account = lease_account_of(caller);
	lease_member member = {
		.version = holder->version,
		.mode = holder->mode,
		.kind = holder->kind,
		.slot = UINT32_MAX,
		.life = holder->kind == LEASE_SESSION ? LEASE_BOUND : LEASE_TIMED,
		.deadline_us = holder->deadline_us,
	};

	if (account != NULL)
		member.holder = image_holder_create(name->entry, account,
											holder->owner, holder->token,
											caller->connection_id,
											moment->wall_us);
	member.request = make_request(name, holder->request);
	if (member.holder == NULL || !reserve(name))
	{
		name->failed = true;
		return;
	}
	stamp(&member, moment);
	name->members[name->count++] = member;
}

/*
 * Say whether nothing of a name can be written, because of slot 0: its row is locked, or
 * the slot would be left empty although the name has rows, which are locked and cannot
 * be moved there.
 */
static bool
is_kept(const lease_name *name, const lease_moment *moment)
{
	bool		any_locked = false;

	if (!moment->direct || name->anchor_locked)
		return moment->direct;
	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];

		if (!member->locked && !member->gone)
			return false;
		any_locked |= member->locked;
	}
	return any_locked;
}

/* The core's holders, and which members they are; for the thread that has the mutex. */
static struct
{
	lease_holder *holders;
	size_t	   *members;
	size_t		count;
	size_t		room;
}			work;

/* Empty "work", and make room for all leases of a name: false if memory is short. */
static bool
reserve_work(lease_name *name)
{
	size_t		room = (name->count + 1) * 2;

	work.count = 0;
	if (work.room >= name->count + 1)
		return true;
	free(work.holders);
	free(work.members);
	work.holders = malloc(room * sizeof(lease_holder));
	work.members = malloc(room * sizeof(size_t));
	work.room = work.holders != NULL && work.members != NULL ? room : 0;
	name->failed |= work.room == 0;
	return work.room > 0;
}

/* Add a member, unless nothing of it is left. */
static void
add_work(const lease_name *name, const lease_member *member,
		 const dlock_caller *caller, const lease_moment *moment)
{
	if (lease_member_is_away(member))
		return;
	describe(member, caller, moment, &work.holders[work.count]);
	work.members[work.count++] = (size_t) (member - name->members);
}

/* Fill "work" with all members: false if memory is short. */
static bool
fill_work(lease_name *name, const dlock_caller *caller,
		  const lease_moment *moment)
{
	if (!reserve_work(name))
		return false;
	for (size_t i = 0; i < name->count; i++)
		add_work(name, &name->members[i], caller, moment);
	return true;
}

/* When time ends a live lease; INT64_MAX: it does not. */
static int64_t
end_of(const lease_member *member)
{
	return member->life == LEASE_BOUND ? INT64_MAX : member->deadline_us;
}

/*
 * Add the leases of other owners on which an acquire, or the reaper, depends: those that
 * are over, and for each mode the live one that ends first.  That one stands for all live
 * ones of its mode: permits are added up.
 */
static void
add_others(lease_name *name, const image_account *account, lease_bytes owner,
		   const dlock_caller *caller, const lease_moment *moment)
{
	const lease_member *first[LEASE_MODE_LAST + 1] = {NULL};
	uint64_t	permits = 0;
	lease_member *mine = NULL;

	while ((mine = find_own(name, owner, account, mine)) != NULL)
		mine->is_own = true;
	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];

		if (member->is_own)
			continue;
		/* an edit of the table may have made up a mode */
		if (!lease_member_is_live(member, moment) ||
			member->mode < LEASE_MODE_FIRST || member->mode > LEASE_MODE_LAST)
		{
			add_work(name, member, caller, moment);
			continue;
		}
		if (member->mode == LEASE_PERMIT)
			permits += member->version;
		if (first[member->mode] == NULL ||
			end_of(member) < end_of(first[member->mode]))
			first[member->mode] = member;
	}
	while ((mine = find_own(name, owner, account, mine)) != NULL)
		mine->is_own = false;
	for (lease_mode mode = LEASE_MODE_FIRST; mode <= LEASE_MODE_LAST; mode++)
		if (first[mode] != NULL)
			add_work(name, first[mode], caller, moment);
	if (first[LEASE_PERMIT] != NULL)
		work.holders[work.count - 1].version = permits < LEASE_VERSION_MAX ?
			(uint32_t) permits : LEASE_VERSION_MAX;
}

/*
 * Fill "work" with what a request can depend on: false if memory is short.  The core
 * decides as it would with all leases of the name, of which there may be thousands.
 */
static bool
fill_work_for(lease_name *name, const lease_request *request,
			  const dlock_caller *caller, const lease_moment *moment)
{
	const image_account *account = lease_account_of(caller);
	lease_member *mine = NULL;

	/* no guard can stand for others */
	if (name->has_locked || request->op == LEASE_EVICT)
		return fill_work(name, caller, moment);
	name->failed |= account == NULL;
	if (account == NULL || !reserve_work(name))
		return false;
	while ((mine = find_own(name, request->owner, account, mine)) != NULL)
		add_work(name, mine, caller, moment);
	if (request->op == LEASE_ACQUIRE || request->op == LEASE_REAP)
	{
		add_others(name, account, request->owner, caller, moment);
		return true;
	}
	/* is it held at all? */
	for (size_t i = 0; i < name->count; i++)
		if (lease_member_is_live(&name->members[i], moment) &&
			!is_of(&name->members[i], request->owner, account))
		{
			add_work(name, &name->members[i], caller, moment);
			break;
		}
	return true;
}

/* Say whether a lease is bound to a session, of this server or of another that writes. */
bool
lease_member_is_bound(const lease_member *member, const lease_moment *moment)
{
	return !member->gone &&
		(member->life == LEASE_BOUND ||
		 (moment->direct && is_foreign_session(member, moment)));
}

/* Say whether a member, of which something is left, keeps other owners from the name. */
bool
lease_member_is_in_the_way(const lease_member *member,
						   const lease_moment *moment)
{
	lease_holder holder;

	describe(member, NULL, moment, &holder);
	return lease_is_in_the_way(&holder, moment->delay_us, moment->now_us);
}

/* See lease_youngest(). */
uint64_t
lease_name_youngest(lease_name *name, const lease_moment *moment)
{
	return fill_work(name, NULL, moment) ?
		lease_youngest(work.holders, work.count, moment->now_us) : 0;
}

/* See lease_have_ended(). */
bool
lease_name_have_ended(lease_name *name, uint64_t youngest,
					  const lease_moment *moment, int64_t *next_us)
{
	return fill_work(name, NULL, moment) &&
		lease_have_ended(work.holders, work.count, youngest, moment->now_us,
						 next_us);
}

/* How much is left of the lease that a caller's request speaks for; -1: it has none. */
int64_t
lease_name_remaining_us(lease_name *name, const lease_request *request,
						const dlock_caller *caller, const lease_moment *moment)
{
	size_t		mine;

	if (!fill_work_for(name, request, caller, moment))
		return -1;
	mine = lease_find(request, work.holders, work.count, moment->now_us);
	return mine < work.count ?
		lease_remaining_us(&work.holders[mine], moment->now_us) : -1;
}

/*
 * Apply a caller's request to the leases of a name.  Fills in what the request needs
 * from the engine: next token and lock delay.
 */
lease_name_answer
lease_name_apply(lease_name *name, lease_request *request,
				 const dlock_caller *caller, const lease_moment *moment)
{
	lease_name_answer answer = {.outcome = LEASE_BUSY,.retry_us = INT64_MAX};
	lease_result result;
	size_t		mine;

	if (!fill_work_for(name, request, caller, moment))
		return answer;
	if (request->op == LEASE_ACQUIRE)
		request->next_token = lease_next_token(name->mark, 0);
	request->delay_us = moment->delay_us;
	mine = lease_find(request, work.holders, work.count, moment->now_us);
	if (mine < work.count)
	{
		answer.held_mode = work.holders[mine].mode;
		answer.held_kind = work.holders[mine].kind;
	}
	result = lease_apply(request, work.holders, work.count, moment->now_us);
	answer.outcome = result.outcome;
	answer.token = result.token;
	answer.retry_us = result.retry_us;
	for (size_t h = 0; h < result.count && result.changed > 0; h++)
	{
		const lease_holder *holder = &work.holders[h];
		lease_member *member = h < work.count ?
			&name->members[work.members[h]] : NULL;

		if (holder->change == LEASE_UNCHANGED)
			continue;
		answer.changed = true;
		if (holder->change == LEASE_ADDED)
		{
			add_member(name, holder, caller, moment);
			name->mark = result.token;
			continue;
		}
		assert(member != NULL);
		answer.cannot_write |= member->locked && moment->direct;
		if (holder->change == LEASE_UPDATED)
		{
			answer.seen_writes = member->writes;
			answer.was_ours = member->writer == moment->writer &&
				!member->changed && !member->renewed;
			update_member(name, member, holder, moment);
			continue;
		}
		if (holder->change == LEASE_ENDED)
			answer.seen_writes = member->writes;
		member->gone = true;
		member->changed = true;
		member->expired = holder->change == LEASE_EXPIRED;
		answer.expired += holder->change == LEASE_EXPIRED;
		answer.ended += holder->change == LEASE_EVICTED;
	}
	/* a guard keeps its mode, and only the row tells which that is */
	if (request->op == LEASE_DOWNGRADE && answer.changed && mine < work.count)
		answer.cannot_write |= name->members[work.members[mine]].locked;
	answer.cannot_write |= answer.changed && is_kept(name, moment);
	return answer;
}

/* ----------------------------------------------------------------
 * Writing
 * ----------------------------------------------------------------
 */

/* Say whether a member has a row when all is written. */
static bool
will_be_stored(const lease_name *name, const lease_member *member)
{
	return !member->gone ||
		(member->locked && member < &name->members[name->nknown]);
}

/* Which slots will be in use; for the thread that has the mutex. */
static struct
{
	bool	   *used;
	size_t		room;
}			slots;

/* Fill "slots" for a name: false if memory is short. */
static bool
fill_slots(lease_name *name)
{
	if (slots.room < name->count + 1)
	{
		free(slots.used);
		slots.room = (name->count + 1) * 2;
		slots.used = malloc(slots.room * sizeof(bool));
		if (slots.used == NULL)
		{
			slots.room = 0;
			name->failed = true;
			return false;
		}
	}
	memset(slots.used, false, (name->count + 1) * sizeof(bool));
	for (size_t i = 0; i < name->count; i++)
		if (will_be_stored(name, &name->members[i]) &&
			name->members[i].slot <= name->count)
			slots.used[name->members[i].slot] = true;
	return true;
}

/* Give slots to new leases, and move a lease to slot 0 if that is empty. */
void
lease_name_assign_slots(lease_name *name, const lease_moment *moment)
{
	lease_member *movable = NULL;
	uint32_t	slot = 0;

	if (!fill_slots(name))
		return;
	for (size_t i = 0; i < name->count; i++)
	{
		lease_member *member = &name->members[i];

		if (!member->gone && !member->locked && movable == NULL)
			movable = member;
		if (member->gone || member->slot != UINT32_MAX)
			continue;
		while (slots.used[slot])
			slot++;
		slots.used[slot] = true;
		member->slot = slot;
	}
	if (slots.used[0] || movable == NULL)
		return;
	movable->slot = 0;

	/*
	 * Nothing else of the lease changes.  Its writer stays: it may belong to a session of
	 * another server.  The journal needs a newer version of it.
	 */
	if (!movable->changed && !moment->direct)
		movable->writes++;
	movable->changed = true;
}

/* Say whether there are changes that can be written now. */
bool
lease_name_will_write(const lease_name *name, const lease_moment *moment)
{
	if (is_kept(name, moment))
		return false;
	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];

		if ((member->changed || member->renewed) && !(member->locked && moment->direct) &&
			(i < name->nknown || !member->gone))
			return true;
	}
	return false;
}
