/*
 * decide.c
 *	  One request on one name: the core decides, the image changes, the log is told.
 *
 * This is the only place where a call changes a lease.  The leases of the name are shown
 * to the core (lease.h) as its holders; what it changes is changed in the image, with a
 * copy in the open buffer, and goes as an entry into that buffer.  What the answer rests
 * on is the caller's business.
 *
 * A name may have thousands of holders.  Those that only matter together are shown as a
 * crowd.
 *
 * If memory is short, the decision has "failed": the name may have been changed in part,
 * and the caller has the open buffer undone.
 *
 * All of it is under the engine's mutex.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "engine.h"

#include <stdlib.h>

#include "array.h"
#include "udf_text.h"

/* The core's holders, and which leases they are; NULL: it is a crowd. */
static struct
{
	lease_holder *holders;
	size_t		room;
	held	  **leases;
	size_t		leases_room;
	size_t		count;
}			work;

/* Make room in "work" for one more than it has: false if memory is short. */
static bool
reserve_work(void)
{
	return array_reserve(&work.holders, &work.room, work.count + 2,
						 sizeof(lease_holder)) &&
		array_reserve(&work.leases, &work.leases_room, work.count + 2,
					  sizeof(held *));
}

/* Say whether it is a session's of another node of a cluster. */
static bool
is_elsewhere(const held *h)
{
	return h->kind == LEASE_SESSION && h->server != lease_run() &&
		buffer_server()->is_member;
}

/* Describe a lease to the core, as a request of a party meets it. */
void
decide_describe(const held *h, party party, const lease_moment *moment,
				lease_holder *holder)
{
	*holder = (lease_holder) {
		.owner = held_owner(h),
		.request = held_request(h),
		.mode = h->mode,
		.kind = h->kind,
		.life = h->leaving ? LEASE_LEAVING : LEASE_TIMED,
		.standing = h->account == party.account ? LEASE_SELF : LEASE_STRANGER,
		.repeated = h->repeated,
		.version = h->version,
		.token = h->token,
		.deadline_us = h->deadline_us,
	};
	for (const guard *g = h->guards; g != NULL; g = g->next)
		lease_merge_guard(holder, g->mode, g->version);
	if (h->gone)
	{
		/* it is in the way until its last guard ends */
		holder->life = LEASE_PINNED;
		holder->deadline_us = 0;
		return;
	}
	if (h->kind != LEASE_SESSION)
		return;
	holder->elsewhere = h->server != lease_run() ||
		h->connection_id != party.connection_id;
	if (is_elsewhere(h))
		/* its server writes that it lives */
		holder->life = h->deadline_us > moment->now_us ? LEASE_BOUND : LEASE_LOST;
	else if (h->server != lease_run())
		holder->life = LEASE_STRANDED;
	else if (session_is_alive(h->connection_id))
	{
		holder->life = LEASE_BOUND;
		holder->deadline_us = moment->now_us + h->ttl_us;
	}
	else
	{
		holder->life = LEASE_LOST;
		holder->deadline_us = lease_earlier(h->deadline_us, moment->now_us);
	}
}

/* Add a lease to "work": false if memory is short. */
static bool
show(held *h, party party, const lease_moment *moment)
{
	if (!reserve_work())
		return false;
	decide_describe(h, party, moment, &work.holders[work.count]);
	work.leases[work.count++] = h;
	return true;
}

/*
 * Fill "work" with the leases of a name, as a request depends on them; the live ones of
 * other owners, of one mode, as one crowd.  False if memory is short.
 */
static bool
show_name(const state_name *name, const lease_request *request, party party,
		  const lease_moment *moment)
{
	lease_holder crowd = {0};
	bool		any = request != NULL && request->op != LEASE_EVICT &&
		request->op != LEASE_REAP;

	work.count = 0;
	if (!reserve_work())
		return false;
	for (held *h = name != NULL ? name->leases : NULL; h != NULL; h = h->next)
	{
		if (!show(h, party, moment))
			return false;
		if (any && name->count > 1 &&
			!lease_is_over(&work.holders[work.count - 1], moment->now_us) &&
			!lease_same(held_owner(h), request->owner) &&
			lease_join_crowd(&crowd, &work.holders[work.count - 1]))
			work.count--;
	}
	if (crowd.version == 0)
		return true;
	if (!reserve_work())
		return false;
	work.holders[work.count] = crowd;
	work.leases[work.count++] = NULL;
	return true;
}

/* ----------------------------------------------------------------
 * Changing
 * ----------------------------------------------------------------
 */

/* Write a lease into the log, whole. */
static bool
put_whole(held *h, const lease_moment *moment)
{
	log_entry	entry;

	state_describe(h, LOG_PUT, moment->now_us, &entry);
	return buffer_put(&entry, h);
}

/* Note that answers about a lease rest on the open buffer. */
static void
touch(held *h)
{
	h->changed_in = h->name->changed_in = buffer_copies()->number;
}

/* Add the lease that was granted. */
static bool
add(lease_bytes bytes, const lease_holder *holder, party party,
	const lease_moment *moment)
{
	state_name *name = state_get_name(bytes);
	held	   *h = name == NULL ? NULL :
		state_add(buffer_copies(), name, party.account, holder->owner,
				  holder->token);

	if (h == NULL)
	{
		if (name != NULL)
			state_drop_name(name);
		return false;
	}
	h->version = holder->version;
	h->mode = (uint8_t) holder->mode;
	h->kind = (uint8_t) holder->kind;
	h->ttl_us = holder->deadline_us - moment->now_us;
	h->acquired_us = moment->wall_us;
	h->connection_id = party.connection_id;
	h->server = holder->kind == LEASE_SESSION ? lease_run() : 0;
	state_set_deadline(h, holder->deadline_us);
	session_enter(h);
	touch(h);
	return state_set_request(h, holder->request) && put_whole(h, moment);
}

/* Bring a lease up to what the core has made of its holder. */
static bool
update(held *h, const lease_holder *holder, lease_op op, bool is_early,
	   const lease_moment *moment)
{
	bool		renews = op == LEASE_RENEW && h->kind == holder->kind;
	int64_t		deadline_us = holder->deadline_us;
	log_entry	entry = {.kind = LOG_RENEW, .token = h->token};

	/* the server of the session counts on the time that it has set */
	if (is_elsewhere(h) && deadline_us < moment->now_us + h->ttl_us)
		deadline_us = moment->now_us + h->ttl_us;

	if (!state_change(buffer_copies(), h))
		return false;
	if (holder->kind != h->kind)
	{
		session_leave(h);
		h->server = 0;
	}
	h->version = holder->version;
	h->mode = (uint8_t) holder->mode;
	h->kind = (uint8_t) holder->kind;
	h->leaving = holder->life == LEASE_LEAVING;
	h->repeated = holder->repeated;
	if (h->deadline_us != deadline_us)
	{
		/* one that is over keeps the time that it had */
		if (deadline_us > moment->now_us)
			h->ttl_us = deadline_us - moment->now_us;
		state_set_deadline(h, deadline_us);
	}
	if (is_early)
		state_see(h->name, h->token, h->version);
	else
		touch(h);
	if (!renews)
		return state_set_request(h, holder->request) && put_whole(h, moment);
	entry.ttl_us = entry.left_us = h->ttl_us;
	return buffer_put(&entry, h);
}

/* A lease has expired: count that, and have a line written to the server's log. */
static void
note_expired(const held *h)
{
	char		name[DLOCK_SHOWN_SIZE];
	char		owner[DLOCK_SHOWN_SIZE];
	char		user[DLOCK_SHOWN_SIZE];
	char		host[DLOCK_SHOWN_SIZE];

	lease_count(LEASE_COUNT_expired, 1);
	if (settings->log_expired)
		upkeep_log("dlock: lease on \"%s\" expired while owner \"%s\" held it; "
				   "token %llu, account '%s'@'%s', connection %llu",
				   dlock_show(name, state_name_bytes(h->name)),
				   dlock_show(owner, held_owner(h)),
				   (unsigned long long) h->token,
				   dlock_show(user, h->account->user),
				   dlock_show(host, h->account->host),
				   (unsigned long long) h->connection_id);
}

/* End a lease. */
static bool
end(held *h, bool is_early)
{
	log_entry	entry = {.kind = LOG_END, .token = h->token};
	state_name *name = h->name;
	uint64_t	token = h->token;

	/* the lease is its own copy, which is as it was */
	if (!is_early)
		name->changed_in = buffer_copies()->number;
	if (!buffer_put(&entry, NULL))
		return false;
	if (h->guards != NULL)
	{
		/* only these are left */
		if (!state_change(buffer_copies(), h))
			return false;
		session_leave(h);
		h->gone = true;
		state_put_off(h, INT64_MAX);
	}
	else if (!state_end(buffer_copies(), h))
		return false;
	if (is_early)
		state_see(name, token, 0);
	return true;
}

/*
 * Change what the core has changed in "work".  A release of a lease whose every change is
 * durable is early.
 */
static void
change(lease_bytes name, const lease_request *request, size_t count, size_t old_count,
	   party party, const lease_moment *moment, decision *d)
{
	for (size_t i = 0; i < count && !d->failed; i++)
	{
		const lease_holder *holder = &work.holders[i];
		held	   *h = i < old_count ? work.leases[i] : NULL;

		switch (holder->change)
		{
			case LEASE_UNCHANGED:
				continue;
			case LEASE_ADDED:
				d->over_us = holder->kind == LEASE_SESSION ? INT64_MAX :
					holder->deadline_us;
				d->failed = !add(name, holder, party, moment);
				break;
			case LEASE_UPDATED:
				d->over_us = holder->life == LEASE_BOUND ? INT64_MAX :
					holder->deadline_us;
				d->is_early = request->op == LEASE_RELEASE && buffer_is_alone() &&
					h->changed_in <= buffer_durable();
				d->failed = !update(h, holder, request->op, d->is_early, moment);
				break;
			case LEASE_ENDED:
				lease_count(LEASE_COUNT_released, h->leaving);
				d->is_early = request->op == LEASE_RELEASE && buffer_is_alone() &&
					h->changed_in <= buffer_durable();
				d->failed = !end(h, d->is_early);
				break;
			case LEASE_EXPIRED:
				d->expired++;
				note_expired(h);
				d->failed = !end(h, false);
				break;
			case LEASE_EVICTED:
				d->ended++;
				d->failed = !end(h, false);
				break;
		}
		d->changed = true;
	}
}

/* Have the core apply a request to "work". */
static decision
apply(lease_bytes name, lease_request *request, party party,
	  const lease_moment *moment, bool only_try)
{
	decision	d = {.retry_us = INT64_MAX};
	size_t		count = work.count;
	size_t		mine;
	held		was = {0};
	lease_result result;

	if (request->op == LEASE_ACQUIRE)
		request->next_token = buffer_next_token();
	request->delay_us = moment->delay_us;
	mine = lease_find(request, work.holders, count, moment->now_us);
	if (mine < count)
	{
		if (work.leases[mine] != NULL)
			was = *work.leases[mine];
		d.held_mode = work.holders[mine].mode;
		d.held_kind = work.holders[mine].kind;
	}
	result = lease_apply(request, work.holders, count, moment->now_us);
	d.outcome = result.outcome;
	d.token = result.token;
	d.retry_us = result.retry_us;
	if (result.changed == 0 || only_try)
		return d;
	change(name, request, result.count, count, party, moment, &d);
	if (d.is_early && !d.failed)
		d.failed = !buffer_owe(&was, lease_holds_returned(request), party);
	return d;
}

/* ----------------------------------------------------------------
 * Requests
 * ----------------------------------------------------------------
 */

/*
 * Decide a request on a name.  "only_try": say what would become of it, and change
 * nothing.
 */
decision
decide(lease_bytes bytes, lease_request *request, party party,
	   const lease_moment *moment, bool only_try)
{
	if (!show_name(state_find_name(bytes), request, party, moment))
		return (decision) {.outcome = LEASE_BUSY, .failed = true};
	return apply(bytes, request, party, moment, only_try);
}

/*
 * The same on one lease alone, for requests that visit many: LEASE_RENEW, LEASE_DROP,
 * LEASE_LEAVE and LEASE_REAP.
 */
decision
decide_one(held *h, lease_request *request, party party,
		   const lease_moment *moment)
{
	lease_holder *holder;

	work.count = 0;
	if (!show(h, party, moment) || !reserve_work())
		return (decision) {.outcome = LEASE_BUSY, .failed = true};
	holder = &work.holders[0];
	if (request->op == LEASE_LEAVE && holder->life == LEASE_LOST)
	{
		/* the session speaks for its lease for the last time */
		holder->life = LEASE_BOUND;
		holder->elsewhere = false;
		holder->deadline_us = moment->now_us + h->ttl_us;
	}
	return apply(state_name_bytes(h->name), request, party, moment, false);
}

/* The live lease that a request speaks for, or NULL. */
held *
decide_find(lease_bytes bytes, lease_request *request, party party,
			const lease_moment *moment)
{
	size_t		mine;

	if (!show_name(state_find_name(bytes), request, party, moment))
		return NULL;
	mine = lease_find(request, work.holders, work.count, moment->now_us);
	return mine < work.count ? work.leases[mine] : NULL;
}

/*
 * Announce a guard of a lease, all of whose holds it pins: its row is made together with
 * the append that says so.  False if memory is short.
 */
bool
decide_guard(held *h, party party, const lease_moment *moment, uint64_t *number)
{
	log_entry	entry = {
		.kind = LOG_GUARD, .token = h->token, .guard = buffer_next_token(),
		.mode = h->mode, .version = h->version
	};
	guard	   *g = state_change(buffer_copies(), h) ?
		state_add_guard(h, entry.guard, h->mode, h->version) : NULL;

	if (g == NULL || !buffer_put(&entry, NULL) ||
		!buffer_also("INSERT INTO dlock.guards (number, token) VALUES (%llu, %llu)",
					 (unsigned long long) g->number, (unsigned long long) h->token))
		return false;
	g->connection_id = party.connection_id;
	*number = g->number;
	touch(h);
	return true;
}

/* A guard has ended: false if memory is short. */
bool
decide_end_guard(guard *g)
{
	held	   *h = g->lease;
	log_entry	entry = {
		.kind = LOG_END_GUARD, .token = h->token, .guard = g->number
	};

	if (!state_change(buffer_copies(), h) || !buffer_put(&entry, NULL) ||
		!buffer_drop_guard(g->number))
		return false;
	state_remove_guard(g);
	return !h->gone || h->guards != NULL || state_end(buffer_copies(), h);
}

/* A session's lease lives: its time begins anew.  False if memory is short. */
bool
decide_extend(held *h, int64_t now_us)
{
	log_entry	entry = {
		.kind = LOG_RENEW, .token = h->token, .ttl_us = h->ttl_us, .left_us = h->ttl_us
	};

	if (!state_change(buffer_copies(), h))
		return false;
	state_set_deadline(h, now_us + h->ttl_us);
	return buffer_put(&entry, h);
}

/* See lease_youngest(). */
uint64_t
decide_youngest(const state_name *name, const lease_moment *moment)
{
	return show_name(name, NULL, (party) {0}, moment) ?
		lease_youngest(work.holders, work.count, moment->now_us) : 0;
}

/* See lease_have_ended(). */
bool
decide_have_ended(const state_name *name, uint64_t youngest,
				  const lease_moment *moment, int64_t *next_us)
{
	*next_us = moment->now_us + 1000000;
	return show_name(name, NULL, (party) {0}, moment) &&
		lease_have_ended(work.holders, work.count, youngest, moment->now_us,
						 next_us);
}
