/*
 * lease_batch.c
 *	  The batcher: makes the calls of all connections, many in one commit.
 *
 * A batch is some calls and the names they concern.  The batcher reads the
 * names' rows in one transaction, applies the calls in their order, writes what
 * has changed and commits once for all of them; then it answers.  While it
 * waits for the disk, the next calls gather.
 *
 * What is answered when:
 *
 * - what changes nothing (a refusal, a look): as soon as it is known;
 * - a release: as soon as it is known, before it is written.  Should nobody
 *   else need a commit, it is put off for a moment, so that several of them go
 *   into one commit.  Until it has been written it comes first in each batch
 *   that concerns its name, so that all who come after it find the name free;
 * - all else: when it has been committed.
 *
 * Waiters.  Whoever finds the name taken joins its queue (lease_waiters.c).
 * Each time a name has changed or its queue is due, its waiters are served from
 * the head on, in the same batch.
 *
 * Rows that a transaction has locked, by a guard say, cannot be changed.  A
 * release of such a row is answered and put off until the row is free.  Other
 * calls that would change it are put off unanswered, until lock_timeout.  Calls
 * for other names take no notice.
 *
 * When a commit fails because of a conflict with another server or a lock,
 * everything not yet answered is put back where it came from.  When the
 * connection is lost in a commit, nobody knows whether it took place: those who
 * wait for it are told so, and releases look whether they still have to be
 * written.
 *
 * Nothing here waits for the server or the disk with the mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_batch.h"

#include <inttypes.h>
#include <mysql.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lease_cache.h"
#include "lease_foreign.h"
#include "lease_marks.h"
#include "lease_session.h"
#include "lease_stats.h"

/* Most calls and names in a batch; more wait for the next. */
#define BATCH_CALLS		128
#define BATCH_NAMES		256

/* How long an answered release may wait for company, and for how much. */
#define DEFER_US		5000
#define DEFER_MAX		64

/* How often to look again at a row that a transaction has locked. */
#define LOCKED_RETRY_US 20000

/* After a conflict, after one that a call had all alone, and after an error. */
#define CONFLICT_PAUSE_US	2000
#define CULPRIT_PAUSE_US	200000
#define ERROR_PAUSE_US	100000

/*
 * How often to look at a name that somebody waits for, whatever is known of it:
 * another server may have changed it, or the table may be gone.
 */
#define LOOK_US			1000000

/* How often to see to it that the rows of living sessions stay alive. */
#define SESSIONS_INTERVAL_US	1000000

/* Rows to look at in one round of the reaper. */
#define REAP_ROWS		200
#define FOREIGN_ROWS	1000

/* Tokens: how far marks are raised at a start, and from when they count. */
#define MARK_STEP		(UINT64_C(1) << 20)
#define MARK_EPOCH_S	INT64_C(1577836800) /* 2020-01-01 */

typedef struct batch
{
	lease_calls calls;			/* to be made, in their order */
	lease_calls at_commit;		/* made; to be answered when committed */
	lease_calls early;			/* releases, answered or not, to be written */
	lease_name **names;
	lease_bytes *bytes;			/* of the names */
	lease_rows *rows;			/* of the names */
	uint64_t   *marks;			/* of the names */
	size_t		nnames;
	size_t		room;			/* names[] and so on */
	size_t		rows_room;		/* rows[] that have been initialized */
	lease_moment moment;
	bool		needs_commit;	/* somebody waits for it */
	bool		read_only;		/* the rows were read without locks */
	size_t		nunanswered;	/* calls that were not answered when taken */
	bool		believed;		/* the rows were not read, see lease_cache.c */
	uint64_t	reaped;
} batch;

static lease_table *table = NULL;
static batch b;
static bool has_marks = false;	/* all marks were raised */
static bool must_read = true;	/* what was believed was wrong */
static bool clustered = true;	/* others may write the table at the same time */
static size_t careful = 0;		/* batches to come that have one call each,
								 * after one that had a conflict */
static bool has_settings = false;
static int64_t sleeps_until_us = 0;	/* the batcher */
static int64_t pause_until_us = 0;	/* after a conflict or an error */
static int64_t reap_us = 0;		/* when to reap next */
static int64_t sessions_us = 0; /* when to look after sessions next */

/* Where the reaper's walk over foreign rows is. */
static char foreign_name[LEASE_STRING_MAX];
static size_t foreign_name_length = 0;
static uint32_t foreign_slot = 0;

static void remember(bool committed);
static void fail_with_table_error(lease_call *call);

/* ----------------------------------------------------------------
 * The batch's names
 * ----------------------------------------------------------------
 */

static lease_name *
find_name(lease_bytes bytes)
{
	for (size_t i = 0; i < b.nnames; i++)
		if (lease_same(b.bytes[i], bytes))
			return b.names[i];
	return NULL;
}

static void *
resize(void *array, size_t n, size_t size)
{
	array = realloc(array, n * size);
	if (array == NULL)
		abort();
	return array;
}

static void
add_name(lease_bytes bytes)
{
	lease_name *name;

	if (find_name(bytes) != NULL)
		return;
	if (b.nnames == b.room)
	{
		b.room = b.room ? b.room * 2 : BATCH_NAMES;
		b.names = resize(b.names, b.room, sizeof(*b.names));
		b.bytes = resize(b.bytes, b.room, sizeof(*b.bytes));
		b.rows = resize(b.rows, b.room, sizeof(*b.rows));
		b.marks = resize(b.marks, b.room, sizeof(*b.marks));
		memset(&b.rows[b.rows_room], 0,
			   (b.room - b.rows_room) * sizeof(*b.rows));
		b.rows_room = b.room;
	}
	name = malloc(sizeof(lease_name));
	if (name == NULL)
		abort();
	lease_name_init(name, bytes);
	b.names[b.nnames] = name;
	b.bytes[b.nnames] = name->name;
	b.nnames++;
}

static void
forget_names(void)
{
	for (size_t i = 0; i < b.nnames; i++)
	{
		lease_name_free(b.names[i]);
		free(b.names[i]);
	}
	b.nnames = 0;
}

/* ----------------------------------------------------------------
 * Where calls go
 * ----------------------------------------------------------------
 */

/* The engine is done with a call. */
static void
finish(lease_call *call)
{
	lease_calls_remove(call);
	call->place = LEASE_PLACE_NONE;
	if (call->unwritten)
	{
		call->unwritten = false;
		engine.unwritten--;
	}
	lease_call_unref(call);
}

/* Answer a call that needs no commit. */
static void
answer_now(lease_call *call)
{
	lease_call_answer(call);
	finish(call);
}

/* Answer a call when what it did has been committed. */
static void
answer_at_commit(lease_call *call)
{
	lease_calls_remove(call);
	lease_calls_append(&b.at_commit, call);
	b.needs_commit = true;
}

/* When a call that cannot be made is given up. */
static int64_t
give_up_us(const lease_call *call)
{
	int64_t		us = call->start_us + engine.settings.lock_timeout_us;

	if (call->wait_us < 0)
		return INT64_MAX;
	return call->wait_us > 0 && call->end_us > us ? call->end_us : us;
}

/* Try a call again later, when somebody's transaction may have ended. */
static void
stall(lease_call *call, int64_t pause_us)
{
	int64_t		now_us = lease_now();

	if (call->abandoned)
	{
		finish(call);
		return;
	}
	if (now_us >= give_up_us(call))
	{
		lease_call_fail(call, "55000",
						"could not change the lease on \"%.*s\": a transaction has locked it",
						(int) call->names[call->waits_for].length,
						call->names[call->waits_for].data);
		finish(call);
		return;
	}
	lease_calls_remove(call);
	call->retry_us = now_us + pause_us;
	call->place = LEASE_PLACE_LIST;
	lease_calls_append(&engine.stalled, call);
}

/* Put off a release that was answered. */
static void
defer(lease_call *call, int64_t until_us)
{
	lease_calls_remove(call);
	call->retry_us = until_us;
	call->place = LEASE_PLACE_BATCH;	/* nobody can take it back */
	lease_calls_append(&engine.deferred, call);
}

/* Undo that a call was granted something that nobody will learn of. */
static void
give_back(const lease_call *call, lease_bytes name, uint64_t token)
{
	lease_call *undo = lease_call_create(1);

	undo->internal = LEASE_INTERNAL_GIVE_BACK;
	undo->kind = DLOCK_CALL_APPLY;
	undo->request.op = LEASE_RELEASE;
	undo->request.token = token;
	memcpy(undo->owner, call->request.owner.data, call->request.owner.length);
	undo->request.owner.length = call->request.owner.length;
	memcpy((char *) undo->names[0].data, name.data, name.length);
	undo->names[0].length = name.length;
	undo->caller = call->caller;
	undo->answered = true;

	/* before what its caller may have asked for since */
	undo->place = LEASE_PLACE_LIST;
	lease_calls_push(&engine.incoming, undo);
}

/* ----------------------------------------------------------------
 * Waiters
 * ----------------------------------------------------------------
 */

static void note_outcome(lease_call *call, const lease_name_answer *answer);

/*
 * Serve those who stand in line for a name, from the head on, as far as that is
 * possible now.  Returns when to look again.
 */
static int64_t
serve(lease_name *name, lease_queue *queue)
{
	lease_call *head;

	while ((head = queue->line.head) != NULL)
	{
		lease_name_answer answer;

		if (name->has_locked)
			lease_name_save(name);
		head->request.behind = false;
		answer = lease_name_apply(name, &head->request, &head->caller,
								  &b.moment);
		if (answer.outcome == LEASE_BUSY)
			return name->has_locked &&
				answer.retry_us > b.moment.now_us + LOCKED_RETRY_US ?
				b.moment.now_us + LOCKED_RETRY_US : answer.retry_us;
		if (answer.changed && answer.cannot_write)
		{
			lease_name_restore(name);
			return b.moment.now_us + LOCKED_RETRY_US;
		}
		lease_count(LEASE_COUNT_woken, 1);
		note_outcome(head, &answer);
		lease_waiter_leave(head);
		head->place = LEASE_PLACE_BATCH;
		if (lease_is_granted(answer.outcome))
		{
			head->from_line = true;
			answer_at_commit(head);
		}
		else
			answer_now(head);
		queue = lease_queue_find(name->name);
		if (queue == NULL)
			return INT64_MAX;
	}
	return INT64_MAX;
}

/* Count the holds that a watcher saw and that are still there. */
static size_t
count_seen(const lease_call *call, const lease_name *name, int64_t *next_us)
{
	size_t		n = 0;

	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];

		if (!lease_member_is_live(member, &b.moment))
			continue;
		for (size_t t = 0; t < call->ntokens; t++)
			if (call->tokens[t] == member->row.token)
			{
				n++;
				if (member->life == LEASE_TIMED &&
					member->deadline_us < *next_us)
					*next_us = member->deadline_us;
			}
	}
	return n;
}

/*
 * Let those look who watch a name: those who wait for its holds to end, and
 * those who want it together with others.  Returns when to look again.
 */
static int64_t
tell_watchers(lease_name *name, lease_queue *queue)
{
	int64_t		next_us = INT64_MAX;
	lease_call *next;

	for (lease_call *call = queue->watchers.head; call != NULL; call = next)
	{
		next = call->next;
		if (call->kind == DLOCK_CALL_WAIT)
		{
			if (count_seen(call, name, &next_us) > 0)
				continue;
			lease_count(LEASE_COUNT_woken, 1);
			call->answer.yes = true;
			lease_waiter_leave(call);
			call->place = LEASE_PLACE_BATCH;
			answer_at_commit(call);
		}
		else if (call->retry_us <= b.moment.now_us)
		{
			/* from the beginning, in a batch of its own */
			lease_waiter_leave(call);
			call->place = LEASE_PLACE_LIST;
			lease_calls_append(&engine.incoming, call);
		}
		else if (call->retry_us < next_us)
			next_us = call->retry_us;
		if (lease_queue_find(name->name) == NULL)
			break;
	}
	return next_us;
}

/* After a name has changed, or when its queue is due. */
static void
attend(lease_name *name, bool changed)
{
	lease_queue *queue = lease_queue_find(name->name);
	int64_t		line_us;
	int64_t		watch_us;

	if (queue == NULL)
		return;
	if (changed)
		for (lease_call *call = queue->watchers.head; call != NULL;
			 call = call->next)
			call->retry_us = 0;
	queue->due_us = INT64_MAX;
	line_us = serve(name, queue);
	queue = lease_queue_find(name->name);
	if (queue == NULL)
		return;
	watch_us = tell_watchers(name, queue);
	queue = lease_queue_find(name->name);
	if (queue == NULL)
		return;
	lease_queue_look(queue, name, &b.moment);
	queue->due_us = b.moment.now_us + LOOK_US;
	if (line_us < queue->due_us)
		queue->due_us = line_us;
	if (watch_us < queue->due_us)
		queue->due_us = watch_us;
}

/*
 * After an answered call has changed a name: others that were answered may be
 * yet to come in this batch, and its waiters must not be served before them.
 */
static void
attend_later(const lease_name *name)
{
	lease_queue *queue = lease_queue_find(name->name);

	if (queue == NULL)
		return;
	for (lease_call *call = queue->watchers.head; call != NULL;
		 call = call->next)
		call->retry_us = 0;
	queue->due_us = 0;
}

/*
 * Let a call wait for a name; "retry_us" is when time alone may change
 * something.
 */
static void
wait_in_line(lease_call *call, lease_name *name, int64_t retry_us)
{
	lease_queue *queue;
	char		message[DLOCK_MESSAGE_SIZE];

	if (call->abandoned)
	{
		finish(call);
		return;
	}
	if (lease_waiters_count() >= engine.settings.max_waiters)
	{
		lease_call_fail(call, "53400",
						"too many connections wait for leases; increase \"max_waiters\" in dlock.settings, or try again later");
		finish(call);
		return;
	}
	if (name->has_locked &&
		retry_us > b.moment.now_us + LOCKED_RETRY_US)
		retry_us = b.moment.now_us + LOCKED_RETRY_US;
	if (retry_us > b.moment.now_us + LOOK_US)
		retry_us = b.moment.now_us + LOOK_US;
	lease_calls_remove(call);
	queue = lease_queue_get(name->name);
	call->retry_us = retry_us;
	if (call->waiting_since_us == 0)
		call->waiting_since_us = b.moment.wall_us;
	lease_waiter_join(call, queue);
	lease_queue_look(queue, name, &b.moment);
	if (retry_us < queue->due_us)
		queue->due_us = retry_us;
	if (call->kind != DLOCK_CALL_WAIT &&
		lease_waiter_deadlock(call, b.moment.now_us, message,
							  sizeof(message)))
	{
		lease_count(LEASE_COUNT_deadlocks, 1);
		lease_waiter_leave(call);
		lease_call_fail(call, "40P01", "%s", message);
		finish(call);
	}
}

/* ----------------------------------------------------------------
 * Calls on one name
 * ----------------------------------------------------------------
 */

static void
note_outcome(lease_call *call, const lease_name_answer *answer)
{
	call->answer.outcome = answer->outcome;
	call->answer.token = answer->token;
	call->answer.count = answer->ended;
	call->answer.held_mode = answer->held_mode;
	call->answer.held_kind = answer->held_kind;
}

static bool
has_line(const lease_name *name)
{
	const lease_queue *queue = lease_queue_find(name->name);

	return queue != NULL && queue->line.count > 0;
}

/* An acquire that was not granted: let it wait for a name, if it may. */
static void
wait_or_refuse(lease_call *call, lease_name *name,
			   const lease_name_answer *answer)
{
	if (answer->outcome != LEASE_BUSY)
		answer_now(call);
	else if (call->wait_us == 0 || b.moment.now_us >= call->end_us)
	{
		lease_count(call->wait_us == 0 ? LEASE_COUNT_refused :
					LEASE_COUNT_timed_out, 1);
		answer_now(call);
	}
	else
		wait_in_line(call, name, answer->retry_us);
}

static void
make_acquire(lease_call *call, lease_name *name)
{
	lease_name_answer answer;

	if (has_line(name))
		attend(name, false);
	if (name->has_locked)
		lease_name_save(name);
	call->request.behind = has_line(name);
	answer = lease_name_apply(name, &call->request, &call->caller, &b.moment);
	if (answer.changed && answer.cannot_write)
	{
		lease_name_restore(name);
		if (answer.outcome != LEASE_GRANTED)
		{
			stall(call, LOCKED_RETRY_US);
			return;
		}
		/* it could be granted, but for somebody's transaction: it is busy */
		answer.outcome = LEASE_BUSY;
		answer.retry_us = b.moment.now_us + LOCKED_RETRY_US;
	}
	note_outcome(call, &answer);
	if (lease_is_granted(answer.outcome))
	{
		answer_at_commit(call);
		attend(name, true);
	}
	else
		wait_or_refuse(call, name, &answer);
}

/* A release, answered before or now, that is to be written. */
static void
make_release(lease_call *call, lease_name *name)
{
	lease_name_answer answer;
	lease_member *member = lease_name_find(name, call->request.token);
	bool		was_answered = call->answered;

	if (call->may_be_written &&
		(member == NULL || member->row.writes > call->seen_writes))
	{
		finish(call);
		return;
	}
	call->may_be_written = false;
	answer = lease_name_apply(name, &call->request, &call->caller, &b.moment);
	call->seen_writes = answer.seen_writes;
	if (!call->answered)
	{
		note_outcome(call, &answer);
		if (answer.outcome != LEASE_RELEASED)
		{
			answer_now(call);
			return;
		}
		lease_count(LEASE_COUNT_released, 1);
		call->request.token = answer.token;
		lease_call_answer(call);
	}
	else if (!answer.changed)
	{
		finish(call);			/* somebody else has ended it */
		return;
	}
	if (!b.believed)
		lease_cache_forget(name->name);
	if (!call->unwritten)
	{
		call->unwritten = true;
		engine.unwritten++;
	}
	if (answer.cannot_write)
	{
		/* it is not ours to say when that can be written */
		call->unwritten = false;
		engine.unwritten--;
		defer(call, b.moment.now_us + LOCKED_RETRY_US);
	}
	else
	{
		lease_calls_remove(call);
		lease_calls_append(&b.early, call);
	}
	if (was_answered)
		attend_later(name);
	else
		attend(name, true);
}

/* A renewal or an eviction. */
static void
make_change(lease_call *call, lease_name *name)
{
	lease_name_answer answer;

	if (name->has_locked)
		lease_name_save(name);
	answer = lease_name_apply(name, &call->request, &call->caller, &b.moment);
	if (answer.changed && answer.cannot_write)
	{
		lease_name_restore(name);
		stall(call, LOCKED_RETRY_US);
		return;
	}
	note_outcome(call, &answer);
	if (!answer.changed)
	{
		answer_now(call);
		return;
	}
	answer_at_commit(call);
	attend(name, true);
}

/* The end of a session's lease, or a sign that it lives. */
static void
make_session_change(lease_call *call, lease_name *name)
{
	lease_member *member = lease_name_find(name, call->request.token);
	bool		keep = call->internal == LEASE_INTERNAL_KEEP;

	if (member == NULL || member->row.kind != LEASE_SESSION ||
		member->row.writer != b.moment.writer)
		finish(call);
	else if (member->row.locked)
	{
		if (keep)
			finish(call);		/* next time */
		else
			defer(call, b.moment.now_us + LOCKED_RETRY_US);
	}
	else if (keep)
	{
		if (member->life == LEASE_BOUND)
			lease_member_extend(member, &b.moment);
		lease_calls_remove(call);
		lease_calls_append(&b.early, call);
		b.needs_commit = true;
	}
	else
	{
		/* with a lock delay it expires, else it is given back */
		if (b.moment.delay_us > 0)
			lease_member_lose(member, &b.moment);
		else
		{
			member->gone = true;
			member->changed = true;
		}
		lease_calls_remove(call);
		lease_calls_append(&b.early, call);
		b.needs_commit = true;
		attend_later(name);
	}
}

/* ----------------------------------------------------------------
 * Looking
 * ----------------------------------------------------------------
 */

static int
compare_holders(const void *a, const void *c)
{
	const dlock_holder_info *x = a;
	const dlock_holder_info *y = c;

	return x->token < y->token ? -1 : x->token > y->token;
}

static void
make_read(lease_call *call, lease_name *name)
{
	dlock_holder_info *holders = calloc(name->count + 1,
										sizeof(dlock_holder_info));
	size_t		n = 0;

	if (holders == NULL)
		abort();
	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];
		const lease_row *row = &member->row;
		dlock_holder_info *h = &holders[n];

		if (member->gone)
			continue;
		h->owner_length = row->owner_length;
		memcpy(h->owner, row->owner, row->owner_length);
		h->mode = row->mode;
		h->kind = row->kind;
		h->version = row->version;
		h->token = row->token;
		h->acquired_at_us = row->acquired_us;
		h->expires_at_us = member->life == LEASE_BOUND ? 0 :
			b.moment.wall_us + member->deadline_us - b.moment.now_us;
		strcpy(h->user, row->user);
		strcpy(h->host, row->host);
		h->connection_id = row->connection_id;
		h->live = lease_member_is_live(member, &b.moment);
		n++;
	}
	qsort(holders, n, sizeof(dlock_holder_info), compare_holders);
	call->answer.holders = holders;
	call->answer.nholders = n;
	call->answer.yes = lease_name_is_free(name, &b.moment);
	answer_now(call);
}

static void
make_check_guard(lease_call *call, lease_name *name)
{
	const lease_member *member = lease_name_find(name, call->request.token);

	name->guarding = true;
	call->answer.count = member != NULL ? member->row.slot : 0;
	call->answer.yes = member != NULL &&
		lease_member_is_live(member, &b.moment) &&
		lease_member_is_of(member, call->request.owner, &call->caller);
	answer_now(call);
}

/* Remember the holds that are there, and wait for them to end. */
static void
make_wait(lease_call *call, lease_name *name)
{
	int64_t		next_us = INT64_MAX;

	if (call->tokens == NULL)
	{
		call->tokens = malloc((name->count + 1) * sizeof(uint64_t));
		if (call->tokens == NULL)
			abort();
		for (size_t i = 0; i < name->count; i++)
			if (lease_member_is_live(&name->members[i], &b.moment))
				call->tokens[call->ntokens++] = name->members[i].row.token;
	}
	call->answer.yes = count_seen(call, name, &next_us) == 0;
	if (call->answer.yes)
		answer_at_commit(call); /* of what has ended them */
	else if (call->wait_us == 0)
		answer_now(call);
	else
		wait_in_line(call, name, next_us);
}

/* ----------------------------------------------------------------
 * Calls on many names
 * ----------------------------------------------------------------
 */

/* All names or none. */
static void
make_acquire_all(lease_call *call)
{
	lease_name_answer answer = {.outcome = LEASE_GRANTED};
	size_t		n = 0;

	for (size_t i = 0; i < call->nnames; i++)
	{
		lease_name *name = find_name(call->names[i]);

		if (has_line(name))
			attend(name, false);
	}
	for (; n < call->nnames; n++)
	{
		lease_name *name = find_name(call->names[n]);

		lease_name_save(name);
		call->request.behind = has_line(name);
		answer = lease_name_apply(name, &call->request, &call->caller,
								  &b.moment);
		call->answer.tokens[n] = answer.token;
		call->outcomes[n] = (uint8_t) answer.outcome;
		if (!lease_is_granted(answer.outcome) || answer.cannot_write)
			break;
	}
	if (n == call->nnames)
	{
		note_outcome(call, &answer);
		call->answer.outcome = LEASE_GRANTED;
		answer_at_commit(call);
		for (size_t i = 0; i < call->nnames; i++)
			attend(find_name(call->names[i]), true);
		return;
	}
	for (size_t i = 0; i <= n; i++)
		lease_name_restore(find_name(call->names[i]));
	call->waits_for = n;
	call->answer.failed_name = n;
	if (answer.outcome == LEASE_GRANTED)
	{
		/* but for somebody's transaction */
		answer.outcome = LEASE_BUSY;
		answer.retry_us = b.moment.now_us + LOCKED_RETRY_US;
	}
	note_outcome(call, &answer);
	if (lease_is_granted(answer.outcome))
		stall(call, LOCKED_RETRY_US);
	else
		wait_or_refuse(call, find_name(call->names[n]), &answer);
}

/* How many names of a call go into one batch. */
static size_t
slice_of(const lease_call *call)
{
	size_t		left = call->nnames - call->waits_for;

	if (call->kind != DLOCK_CALL_APPLY_ALL)
		return call->nnames;
	return left < BATCH_NAMES / 2 ? left : BATCH_NAMES / 2;
}

/* Renew or drop what an owner has; the names have been looked up. */
static void
make_apply_all(lease_call *call)
{
	size_t		end = call->waits_for + slice_of(call);
	uint64_t	count = 0;

	for (size_t i = call->waits_for; i < end; i++)
		lease_name_save(find_name(call->names[i]));
	for (size_t i = call->waits_for; i < end; i++)
	{
		lease_name *name = find_name(call->names[i]);
		lease_name_answer answer = lease_name_apply(name, &call->request,
													&call->caller, &b.moment);

		if (answer.changed && answer.cannot_write)
		{
			for (size_t r = call->waits_for; r <= i; r++)
				lease_name_restore(find_name(call->names[r]));
			stall(call, LOCKED_RETRY_US);
			return;
		}
		count += answer.changed;
	}
	call->answer.token = count; /* of this slice, until it is committed */
	answer_at_commit(call);
	for (size_t i = call->waits_for; i < end; i++)
		attend(find_name(call->names[i]), true);
}

static void
make_reap(lease_call *call)
{
	for (size_t i = 0; i < call->nnames; i++)
	{
		lease_name *name = find_name(call->names[i]);
		lease_name_answer answer;

		lease_name_save(name);
		answer = lease_name_apply(name, &call->request, &call->caller,
								  &b.moment);
		if (answer.changed && answer.cannot_write)
			lease_name_restore(name);
		else if (answer.changed)
		{
			b.reaped += answer.expired;
			b.needs_commit = true;
			attend_later(name);
		}
	}
	answer_now(call);
}

/* ----------------------------------------------------------------
 * A batch
 * ----------------------------------------------------------------
 */

/* Make one call. */
static void
make(lease_call *call)
{
	lease_name *name = call->nnames == 1 ? find_name(call->names[0]) : NULL;

	if (b.read_only && !call->answered && call->kind != DLOCK_CALL_READ)
	{
		fail_with_table_error(call);
		return;
	}
	switch ((lease_internal) call->internal)
	{
		case LEASE_INTERNAL_NONE:
			break;
		case LEASE_INTERNAL_GIVE_BACK:
			make_release(call, name);
			return;
		case LEASE_INTERNAL_END_SESSION:
		case LEASE_INTERNAL_KEEP:
			make_session_change(call, name);
			return;
		case LEASE_INTERNAL_REAP:
			make_reap(call);
			return;
		case LEASE_INTERNAL_SETTLE:
			answer_at_commit(call);
			return;
	}
	switch (call->kind)
	{
		case DLOCK_CALL_APPLY:
			if (call->request.op == LEASE_ACQUIRE)
				make_acquire(call, name);
			else if (call->request.op == LEASE_RELEASE)
				make_release(call, name);
			else
				make_change(call, name);
			break;
		case DLOCK_CALL_ACQUIRE_ALL:
			make_acquire_all(call);
			break;
		case DLOCK_CALL_APPLY_ALL:
			make_apply_all(call);
			break;
		case DLOCK_CALL_WAIT:
			make_wait(call, name);
			break;
		case DLOCK_CALL_READ:
			make_read(call, name);
			break;
		case DLOCK_CALL_CHECK_GUARD:
			make_check_guard(call, name);
			break;
	}
}

/* Take a call into the batch; false if there is no room. */
static bool
take(lease_call *call)
{
	size_t		slice = slice_of(call);
	size_t		first = call->kind == DLOCK_CALL_APPLY_ALL ?
		call->waits_for : 0;

	if (b.nnames > 0 && b.nnames + slice > BATCH_NAMES)
		return false;
	for (size_t i = first; i < first + slice; i++)
		add_name(call->names[i]);
	lease_calls_remove(call);
	call->place = LEASE_PLACE_BATCH;
	b.nunanswered += !call->answered;
	lease_calls_append(&b.calls, call);
	return true;
}

/* Say whether a list has a call for a name. */
static bool
concerns(const lease_calls *list, lease_bytes name)
{
	for (const lease_call *call = list->head; call != NULL; call = call->next)
		for (size_t i = 0; i < call->nnames; i++)
			if (lease_same(call->names[i], name))
				return true;
	return false;
}

/*
 * Say whether releases that were put off are to be written now: because it is
 * time for one of them, or there are many, or somebody waits for that.
 */
static bool
must_write(int64_t now_us)
{
	if (engine.unwritten > DEFER_MAX)
		return true;
	for (const lease_call *call = engine.deferred.head; call != NULL;
		 call = call->next)
		if (call->unwritten && call->retry_us <= now_us)
			return true;
	for (const lease_call *call = engine.incoming.head; call != NULL;
		 call = call->next)
		if (call->internal == LEASE_INTERNAL_SETTLE)
			return true;
	return false;
}

/*
 * Say whether a release that was put off has to be in the next batch: because
 * such are to be written, or somebody wants its name.  One whose row is locked
 * is looked at again when it is time, but not all of them at once.
 */
static bool
must_take(const lease_call *call, bool write, int64_t now_us)
{
	return (call->unwritten ? write : call->retry_us <= now_us &&
			b.nnames < BATCH_NAMES / 4) ||
		concerns(&engine.incoming, call->names[0]) ||
		concerns(&engine.stalled, call->names[0]) ||
		lease_queue_find(call->names[0]) != NULL;
}

/* Collect the calls and names of a batch.  The mutex is held. */
static void
collect(int64_t now_us)
{
	lease_queue *due[BATCH_NAMES / 4];
	size_t		ndue;
	int64_t		next_us;
	size_t		most = BATCH_CALLS;
	bool		write = must_write(now_us);
	lease_call *next;

	b.needs_commit = false;
	b.read_only = false;
	b.reaped = 0;
	b.nunanswered = 0;
	if (careful > 0)
	{
		most = 1;
		careful--;
	}
	for (lease_call *call = engine.deferred.head; call != NULL; call = next)
	{
		next = call->next;

		/* they come before what was not answered yet */
		if (!must_take(call, write, now_us))
			continue;
		b.needs_commit |= write && call->unwritten;
		if (!take(call))
		{
			b.needs_commit = true;
			return;
		}
	}
	ndue = lease_queue_due(now_us, due, sizeof(due) / sizeof(due[0]),
						   &next_us);
	for (size_t i = 0; i < ndue; i++)
		add_name(due[i]->name);
	for (lease_call *call = engine.stalled.head; call != NULL; call = next)
	{
		next = call->next;
		if (call->retry_us <= now_us &&
			(b.nunanswered >= most || !take(call)))
			break;
	}
	for (lease_call *call = engine.incoming.head;
		 call != NULL && b.nunanswered < most &&
		 b.calls.count < BATCH_CALLS; call = next)
	{
		next = call->next;

		/* of a call on all leases of an owner the names come first */
		if ((call->kind == DLOCK_CALL_APPLY_ALL && call->internal == 0 &&
			 call->nnames == 0) || !take(call))
			break;
	}
}

/* Make the calls of the batch, whose rows have been read.  The mutex is held. */
static void
make_batch(void)
{
	lease_call *call;

	b.moment = (lease_moment) {
		.now_us = lease_now(),
		.wall_us = lease_wall(),
		.delay_us = engine.settings.lock_delay_us,
		.writer = engine.writer,
	};
	for (size_t i = 0; i < b.nnames; i++)
	{
		if (!b.believed)
			lease_marks_read(b.bytes[i], b.marks[i], !clustered);
		lease_name_load(b.names[i], &b.rows[i],
						lease_marks_granted(b.bytes[i]), &b.moment);

		/* a row of a table that was restored may be above its mark */
		lease_marks_grant(b.bytes[i], b.names[i]->mark);
	}

	/* what was answered comes before all that was not */
	while ((call = b.calls.head) != NULL && call->answered)
		make(call);
	for (size_t i = 0; i < b.nnames; i++)
	{
		lease_queue *queue = lease_queue_find(b.names[i]->name);

		if (queue != NULL && queue->due_us <= b.moment.now_us)
			attend(b.names[i], false);
	}
	while ((call = b.calls.head) != NULL)
		make(call);
}

/* Put a call back where it came from, to be made again. */
static void
put_back(lease_call *call)
{
	lease_calls_remove(call);
	if (call->from_line)
	{
		lease_queue *queue = lease_queue_get(call->names[0]);

		call->from_line = false;
		lease_waiter_join(call, queue);
		lease_calls_remove(call);
		lease_calls_push(&queue->line, call);
		queue->due_us = 0;
	}
	else
	{
		call->place = LEASE_PLACE_LIST;
		lease_calls_push(&engine.incoming, call);
	}
}

/* A call that was granted something: count it, and see to sessions. */
static void
note_grant(lease_call *call)
{
	for (size_t i = 0; i < call->nnames; i++)
		lease_count((call->kind == DLOCK_CALL_ACQUIRE_ALL ?
					 (lease_outcome) call->outcomes[i] :
					 call->answer.outcome) == LEASE_GRANTED ?
					LEASE_COUNT_acquired : LEASE_COUNT_reentered, 1);
	if (call->abandoned)
	{
		bool		all = call->kind == DLOCK_CALL_ACQUIRE_ALL;

		/*
		 * With a request id a hold that was added stays: a retry finds it, and
		 * would not add another.  What was found stays anyway.
		 */
		for (size_t i = 0; i < call->nnames && !call->keeps; i++)
		{
			lease_outcome outcome = all ? (lease_outcome) call->outcomes[i] :
				call->answer.outcome;

			if (outcome == LEASE_GRANTED ||
				(outcome == LEASE_REENTERED &&
				 call->request.request.length == 0))
				give_back(call, call->names[i], all ?
						  call->answer.tokens[i] : call->answer.token);
		}
		return;
	}
	if (call->request.kind == LEASE_SESSION)
		lease_session_add(call->caller.connection_id, call);
}

/* Answer a call whose change has been committed. */
static void
answer_committed(lease_call *call)
{
	if (call->internal == LEASE_INTERNAL_NONE)
		switch (call->kind)
		{
			case DLOCK_CALL_APPLY:
				if (call->request.op == LEASE_ACQUIRE)
					note_grant(call);
				else if (call->request.op == LEASE_RENEW)
					lease_count(LEASE_COUNT_renewed, 1);
				else
					lease_count(LEASE_COUNT_forced, call->answer.count);
				break;
			case DLOCK_CALL_ACQUIRE_ALL:
				note_grant(call);
				break;
			case DLOCK_CALL_APPLY_ALL:
				call->answer.count += call->answer.token;
				lease_count(call->request.op == LEASE_RENEW ?
							LEASE_COUNT_renewed : LEASE_COUNT_released,
							call->answer.token);
				call->waits_for += slice_of(call);
				if (call->waits_for < call->nnames && !call->abandoned)
				{
					put_back(call);
					return;
				}
				break;
			case DLOCK_CALL_WAIT:
			case DLOCK_CALL_READ:
			case DLOCK_CALL_CHECK_GUARD:
				break;
		}
	answer_now(call);
}

/* After a commit: what has expired, and which session leases are no more. */
static void
note_ended(void)
{
	uint64_t	expired = 0;

	for (size_t i = 0; i < b.nnames; i++)
		for (size_t m = 0; m < b.names[i]->count; m++)
		{
			const lease_member *member = &b.names[i]->members[m];

			if (!member->gone || member->row.locked)
				continue;
			if (member->row.kind == LEASE_SESSION)
				lease_session_remove(member->row.token, b.names[i]->name);
			if (!member->expired)
				continue;
			expired++;
			if (!engine.settings.log_expired)
				continue;
			fprintf(stderr, "dlock: lease on \"%.*s\" expired while owner "
					"\"%.*s\" held it; token %" PRIu64 ", account '%s'@'%s', "
					"connection %" PRIu64 "\n",
					(int) b.names[i]->name.length, b.names[i]->name.data,
					(int) member->row.owner_length, member->row.owner,
					member->row.token, member->row.user, member->row.host,
					member->row.connection_id);
		}
	lease_count(LEASE_COUNT_expired, expired);
	lease_count(LEASE_COUNT_reaped, b.reaped);
}

static int64_t
pause_of(lease_status status)
{
	return status == LEASE_STATUS_FAILED ? ERROR_PAUSE_US : CONFLICT_PAUSE_US;
}

/* Say whether the server's error is that it may only be read. */
static bool
is_read_only_error(const char *message)
{
	return strstr(message, "read-only") != NULL ||
		strstr(message, "read only") != NULL;
}

/* Which SQLSTATE to give an error of the server's. */
static const char *
translate(const char *sqlstate, const char *message)
{
	return is_read_only_error(message) ? "25006" : sqlstate;
}

/* Tell a call that the table failed. */
static void
fail_with_table_error(lease_call *call)
{
	const char *sqlstate;
	const char *message = lease_table_error(table, &sqlstate);

	lease_call_fail(call, translate(sqlstate, message), "%s", message);
	finish(call);
}

/* The table could not be read or written: what becomes of a call. */
static void
after_failure(lease_call *call, lease_status status, bool in_commit)
{
	int64_t		now_us = lease_now();

	if (call->abandoned)
		finish(call);
	else if (call->answered)
	{
		call->may_be_written |= in_commit && status == LEASE_STATUS_LOST;
		if (call->internal == LEASE_INTERNAL_KEEP ||
			call->internal == LEASE_INTERNAL_REAP)
			finish(call);
		else
		{
			/* before what was answered since */
			lease_calls_remove(call);
			call->retry_us = now_us + pause_of(status);
			lease_calls_push(&engine.deferred, call);
		}
	}
	else if (status == LEASE_STATUS_LOST && in_commit)
	{
		lease_call_fail(call, "08007",
						"the connection to the lock table was lost; the lease may have been changed; retry with the same request id, or release");
		finish(call);
	}
	else if (status == LEASE_STATUS_FAILED || now_us >= give_up_us(call))
		fail_with_table_error(call);
	else if (b.nunanswered == 1 && !b.believed && !call->from_line)
		stall(call, CULPRIT_PAUSE_US);
	else
		put_back(call);
}

/* End a batch that failed.  The mutex is held. */
static void
fail_batch(lease_status status, bool in_commit)
{
	/* from the last to the first, since each is put before the others */
	lease_calls *lists[] = {&b.calls, &b.at_commit, &b.early};

	/* one of them may be in the way of all others */
	if (status == LEASE_STATUS_CONFLICT && !b.believed && b.nunanswered > 1)
		careful = b.nunanswered;
	pause_until_us = lease_now() + (b.believed ? 0 : pause_of(status));
	must_read = true;
	lease_marks_forget();
	for (size_t i = 0; i < b.nnames; i++)
		lease_cache_forget(b.bytes[i]);
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		while (lists[i]->tail != NULL)
			after_failure(lists[i]->tail, status, in_commit);

	/* those who joined a queue did so for what did not come true */
	for (size_t i = 0; i < b.nnames; i++)
	{
		lease_queue *queue = lease_queue_find(b.names[i]->name);

		if (queue != NULL)
			queue->due_us = status == LEASE_STATUS_CONFLICT && !b.believed ?
				lease_now() + CULPRIT_PAUSE_US : pause_until_us;
	}

	/* nobody can be granted anything while the table fails */
	if (status == LEASE_STATUS_FAILED)
		for (size_t i = 0; i < b.nnames; i++)
		{
			lease_queue *queue = lease_queue_find(b.names[i]->name);

			while (queue != NULL)
			{
				lease_call *call = queue->line.head != NULL ?
					queue->line.head : queue->watchers.head;

				lease_waiter_leave(call);
				fail_with_table_error(call);
				queue = lease_queue_find(b.names[i]->name);
			}
		}
}

/* Say whether a grant has also been found by a call that is not abandoned. */
static bool
is_granted_to_another(const lease_call *call)
{
	for (const lease_call *other = b.at_commit.head; other != NULL;
		 other = other->next)
		if (other != call && !other->abandoned &&
			other->kind == DLOCK_CALL_APPLY &&
			call->kind == DLOCK_CALL_APPLY &&
			other->request.op == LEASE_ACQUIRE &&
			call->request.op == LEASE_ACQUIRE &&
			other->answer.token == call->answer.token &&
			lease_same(other->names[0], call->names[0]))
			return true;
	return false;
}

/* End a batch that was committed, or had nothing to commit. */
static void
end_batch(bool committed, bool missed)
{
	if (committed)
		note_ended();
	remember(committed);
	for (lease_call *call = b.at_commit.head; call != NULL; call = call->next)
		call->keeps = call->abandoned && is_granted_to_another(call);
	while (b.early.head != NULL)
		if (missed)
		{
			/* another server has changed the lease: look what is left of it */
			lease_cache_forget(b.early.head->names[0]);
			must_read = true;
			defer(b.early.head, 0);
		}
		else
			finish(b.early.head);
	while (b.at_commit.head != NULL)
		answer_committed(b.at_commit.head);
}

/* ----------------------------------------------------------------
 * Beginning
 * ----------------------------------------------------------------
 */

/* Read a setting: a number from least to most. */
static bool
read_setting(const char *name, double least, double most, double *value)
{
	char	   *text = lease_table_setting(table, name);
	char	   *end;
	bool		good;

	if (text == NULL)
		return lease_table_is_connected(table);
	*value = strtod(text, &end);
	good = end != text && *end == '\0' && *value >= least && *value <= most;
	if (!good)
		fprintf(stderr, "dlock: setting \"%s\" in dlock.settings must be a "
				"number from %g to %g, and is \"%s\"; using the default\n",
				name, least, most, text);
	free(text);
	return good;
}

/* Read the settings; those that are missing or wrong have their defaults. */
static bool
read_settings(void)
{
	double		delay = 0;
	double		interval = 1;
	double		timeout = 5;
	double		waiters = 1000;
	double		log = 1;
	double		value;

	value = delay;
	if (read_setting("lock_delay", 0, 86400, &value))
		delay = value;
	value = interval;
	if (read_setting("reap_interval", 0.1, 3600, &value))
		interval = value;
	value = timeout;
	if (read_setting("lock_timeout", 0.1, 3600, &value))
		timeout = value;
	value = waiters;
	if (read_setting("max_waiters", 0, 1000000, &value))
		waiters = value;
	value = log;
	if (read_setting("log_expired", 0, 1, &value))
		log = value;
	if (!lease_table_is_connected(table))
		return false;
	pthread_mutex_lock(&engine.mutex);
	engine.settings = (lease_settings) {
		.lock_delay_us = (int64_t) (delay * 1e6),
		.reap_interval_us = (int64_t) (interval * 1e6),
		.lock_timeout_us = (int64_t) (timeout * 1e6),
		.max_waiters = (size_t) waiters,
		.log_expired = log != 0,
	};
	pthread_mutex_unlock(&engine.mutex);
	return true;
}

/* See to it that there is a connection, with all that is done once. */
static lease_status
prepare(void)
{
	if (!lease_table_is_connected(table))
	{
		lease_status status = lease_table_connect(table);

		if (status != LEASE_STATUS_OK)
			return status;
	}
	if (!has_settings)
		has_settings = read_settings();
	return lease_table_is_connected(table) ? LEASE_STATUS_OK :
		LEASE_STATUS_LOST;
}

/* Raise all marks, once, before the first grant of this run. */
static lease_status
raise_marks(void)
{
	lease_status status;
	int64_t		seconds = lease_wall() / 1000000 - MARK_EPOCH_S;

	if (has_marks)
		return LEASE_STATUS_OK;
	status = lease_table_raise_marks(table, seconds > 0 ?
									 (uint64_t) seconds * MARK_STEP : 0,
									 MARK_STEP);
	has_marks = status == LEASE_STATUS_OK;
	return status;
}

/* Say whether a batch may grant something. */
static bool
may_grant(void)
{
	for (const lease_call *call = b.calls.head; call != NULL;
		 call = call->next)
		if (call->request.op == LEASE_ACQUIRE && call->internal == 0 &&
			(call->kind == DLOCK_CALL_APPLY ||
			 call->kind == DLOCK_CALL_ACQUIRE_ALL))
			return true;
	return lease_waiters_count() > 0;
}

/* ----------------------------------------------------------------
 * Reaping, and the names of an owner
 * ----------------------------------------------------------------
 */

typedef struct name_list
{
	lease_bytes *names;
	size_t		count;
	size_t		room;
	int64_t		now_us;
	int64_t		delay_us;
	size_t		visited;
} name_list;

static void
append_name(name_list *list, lease_bytes name)
{
	char	   *copy = malloc(name.length + 1);

	if (list->count == list->room)
	{
		list->room = list->room ? list->room * 2 : 16;
		list->names = resize(list->names, list->room, sizeof(lease_bytes));
	}
	if (copy == NULL)
		abort();
	memcpy(copy, name.data, name.length);
	list->names[list->count++] = (lease_bytes) {copy, name.length};
}

/* The same, unless it is there. */
static void
list_name(name_list *list, lease_bytes name)
{
	for (size_t i = list->count; i-- > 0;)
		if (lease_same(list->names[i], name))
			return;
	append_name(list, name);
}

static void
free_list(name_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free((char *) list->names[i].data);
	free(list->names);
	memset(list, 0, sizeof(*list));
}

static void
visit_owned(lease_bytes name, const lease_row *row, void *context)
{
	name_list  *list = context;

	(void) row;
	if (list->count == 0 ||
		!lease_same(list->names[list->count - 1], name))
		append_name(list, name);
}

static void
visit_due(lease_bytes name, const lease_row *row, void *context)
{
	(void) row;
	list_name(context, name);
}

/* A row of another run: note when we first saw it, and whether it is over. */
static void
visit_foreign(lease_bytes name, const lease_row *row, void *context)
{
	name_list  *list = context;

	list->visited++;
	memcpy(foreign_name, name.data, name.length);
	foreign_name_length = name.length;
	foreign_slot = row->slot;
	if (lease_foreign_deadline(name, row, list->now_us) + list->delay_us <=
		list->now_us)
		list_name(list, name);
}

/* Give a call the names of a list, or the first of them. */
static void
set_names(lease_call *call, const name_list *list, size_t most)
{
	size_t		count = list->count < most ? list->count : most;
	char	   *data;

	free(call->names);
	call->names = calloc(1, count * (sizeof(lease_bytes) +
									 LEASE_STRING_MAX) + 1);
	if (call->names == NULL)
		abort();
	data = (char *) &call->names[count];
	for (size_t i = 0; i < count; i++)
	{
		memcpy(data, list->names[i].data, list->names[i].length);
		call->names[i] = (lease_bytes) {data, list->names[i].length};
		data += LEASE_STRING_MAX;
	}
	call->nnames = count;
}

/*
 * Look up the names of an owner for a call that concerns all of them, which is
 * the first of the list.  The mutex is held, and released meanwhile.
 */
static void
look_up_names(lease_call *call)
{
	name_list	list = {0};
	lease_status status;

	lease_calls_remove(call);
	call->place = LEASE_PLACE_BATCH;
	pthread_mutex_unlock(&engine.mutex);
	status = prepare();
	if (status == LEASE_STATUS_OK)
		status = lease_table_visit_owner(table, call->request.owner,
										 &call->caller, visit_owned, &list);
	pthread_mutex_lock(&engine.mutex);
	if (status != LEASE_STATUS_OK)
		after_failure(call, status, false);
	else if (list.count == 0)
		answer_now(call);
	else
	{
		set_names(call, &list, list.count);
		put_back(call);
	}
	free_list(&list);
}

typedef struct id_list
{
	uint64_t   *ids;
	size_t		count;
	size_t		room;
} id_list;

static void
list_connection(uint64_t connection_id, void *context)
{
	id_list    *list = context;

	if (list->count == list->room)
	{
		list->room = list->room ? list->room * 2 : 64;
		list->ids = resize(list->ids, list->room, sizeof(uint64_t));
	}
	list->ids[list->count++] = connection_id;
}

/*
 * Look which connections have ended, if the server cannot tell us.  The mutex is
 * held, and released meanwhile.
 */
static void
look_for_connections(void)
{
	id_list		list = {0};
	lease_status status;

	if (!lease_session_begin_list())
		return;
	pthread_mutex_unlock(&engine.mutex);
	status = prepare();
	if (status == LEASE_STATUS_OK)
		status = lease_table_visit_connections(table, list_connection, &list);
	pthread_mutex_lock(&engine.mutex);
	for (size_t i = 0; status == LEASE_STATUS_OK && i < list.count; i++)
		lease_session_list(list.ids[i]);
	lease_session_end_list(status == LEASE_STATUS_OK);
	free(list.ids);
}

/*
 * Look whether this server may be written, and is a member of a cluster.  The
 * mutex is held, and released meanwhile.
 *
 * While it could not be written, another one may have been: what was believed
 * is forgotten, and marks are raised again before the next grant.
 */
static void
look_at_server(void)
{
	lease_status status;
	bool		is_read_only = true;
	bool		is_clustered = true;

	pthread_mutex_unlock(&engine.mutex);
	status = prepare();
	if (status == LEASE_STATUS_OK)
		status = lease_table_look(table, &is_read_only, &is_clustered);
	pthread_mutex_lock(&engine.mutex);
	clustered = is_clustered;
	engine.read_only = is_read_only;
	if (is_read_only)
	{
		has_marks = false;
		lease_cache_forget_all();
		lease_marks_forget();
	}
}

/* Look after sessions.  The mutex is held, and released meanwhile. */
static void
look_after_sessions(int64_t now_us)
{
	look_at_server();
	look_for_connections();
	lease_session_keep(now_us);

	/* from now on: the server may have taken its time, and others wait */
	sessions_us = lease_now() + SESSIONS_INTERVAL_US;
}

/* Look for what is over.  The mutex is held, and released meanwhile. */
static void
look_for_dead(int64_t now_us)
{
	name_list	list = {.now_us = now_us,.delay_us =
	engine.settings.lock_delay_us};
	lease_status status;

	pthread_mutex_unlock(&engine.mutex);
	status = prepare();
	if (status == LEASE_STATUS_OK)
		status = lease_table_visit_due(table, now_us - list.delay_us,
									   REAP_ROWS, visit_due, &list);
	if (status == LEASE_STATUS_OK)
	{
		status = lease_table_visit_foreign(table, (lease_bytes) {
			foreign_name, foreign_name_length
		}, foreign_slot, FOREIGN_ROWS, visit_foreign, &list);
		if (list.visited < FOREIGN_ROWS)
		{
			foreign_name_length = 0;
			foreign_slot = 0;
			lease_foreign_forget(now_us - INT64_C(3600) * 1000000);
		}
	}
	pthread_mutex_lock(&engine.mutex);
	reap_us = lease_now() + engine.settings.reap_interval_us;
	if (list.count > 0)
	{
		lease_call *call;

		call = lease_call_create(0);
		set_names(call, &list, BATCH_NAMES / 2);
		call->internal = LEASE_INTERNAL_REAP;
		call->request.op = LEASE_REAP;
		call->answered = true;
		lease_engine_submit(call);
	}
	free_list(&list);
}

/* ----------------------------------------------------------------
 * Believing
 * ----------------------------------------------------------------
 */

/* Say whether a call can be made without reading its name. */
static bool
needs_no_read(const lease_call *call)
{
	const lease_cached *cached;

	if (call->internal == LEASE_INTERNAL_SETTLE)
		return true;
	if (call->internal != LEASE_INTERNAL_NONE ||
		call->kind != DLOCK_CALL_APPLY ||
		lease_queue_find(call->names[0]) != NULL)
		return false;
	cached = lease_cache_find(call->names[0]);
	if (call->request.op == LEASE_RELEASE)
		return call->answered && !call->may_be_written && cached != NULL &&
			cached->has_row && cached->released && cached->row.token == call->request.token;
	return call->request.op == LEASE_ACQUIRE &&
		(cached == NULL || cached->released) &&
		lease_marks_are_known(call->names[0]);
}

/* Say whether the whole batch can be made so.  The mutex is held. */
static bool
can_believe(void)
{
	if (must_read)
	{
		must_read = false;
		return false;
	}
	if (clustered || !has_marks || !lease_table_is_connected(table))
		return false;
	for (size_t i = 0; i < b.nnames; i++)
		if (lease_queue_find(b.bytes[i]) != NULL)
			return false;
	for (const lease_call *call = b.calls.head; call != NULL;
		 call = call->next)
		if (!needs_no_read(call))
			return false;
	return true;
}

/* Take what is believed for what was read. */
static void
load_believed(void)
{
	for (size_t i = 0; i < b.nnames; i++)
	{
		const lease_cached *cached = lease_cache_find(b.bytes[i]);

		b.rows[i].count = 0;
		if (cached != NULL && cached->has_row)
			lease_rows_add(&b.rows[i], &cached->row);
	}
}

/* Hand what the batch has changed to the table.  The mutex is held. */
static bool
write_batch(void)
{
	bool		changed = false;

	for (size_t i = 0; i < b.nnames; i++)
	{
		const lease_name *name = b.names[i];

		changed |= lease_name_write(b.names[i], table, b.believed);
		if (name->mark_changed)
			lease_marks_grant(name->name, name->mark);
	}
	return lease_marks_write(table, !clustered) || changed;
}

/* After a batch: remember what the table holds now.  The mutex is held. */
static void
remember(bool committed)
{
	for (size_t i = 0; i < b.nnames; i++)
	{
		const lease_name *name = b.names[i];
		const lease_row *row = committed ? lease_name_only_row(name) : NULL;
		const lease_cached *cached = lease_cache_find(name->name);

		if (row != NULL && row->writer == engine.writer)
			lease_cache_put(name->name, row);
		else if (committed ? lease_name_has_rows(name) : b.rows[i].count > 0)
		{
			/* what is cached may be the very row that was read */
			if (committed || cached == NULL || name->guarding ||
				b.rows[i].count != 1 || b.rows[i].rows[0].locked ||
				b.rows[i].rows[0].token != cached->row.token ||
				b.rows[i].rows[0].writes != cached->row.writes)
				lease_cache_put_other(name->name);
		}
		else
			lease_cache_forget(name->name);
	}
}

/*
 * Answer a release at once if the cache knows the lease: true.  The batcher
 * writes it with what comes next.  The mutex is held.
 */
bool
lease_batch_release(const dlock_call *request, dlock_answer *answer)
{
	lease_cached *cached;
	lease_call *call;

	if (clustered || engine.read_only || request->kind != DLOCK_CALL_APPLY ||
		request->request.op != LEASE_RELEASE)
		return false;
	cached = lease_cache_find(request->names[0]);
	if (cached == NULL || !cached->has_row || cached->released ||
		cached->row.version != 1 || cached->row.kind != LEASE_PLAIN ||
		cached->row.deadline_us <= lease_now() ||
		!lease_same(request->request.owner, (lease_bytes) {
			cached->row.owner, cached->row.owner_length
		}) ||
		strcmp(cached->row.user, request->caller->user) != 0 ||
		strcmp(cached->row.host, request->caller->host) != 0 ||
		(request->request.token != 0 &&
		 request->request.token != cached->row.token) ||
		lease_queue_find(request->names[0]) != NULL ||
		find_name(request->names[0]) != NULL)
		return false;

	cached->released = true;
	call = lease_call_create(1);
	call->kind = DLOCK_CALL_APPLY;
	call->request.op = LEASE_RELEASE;
	call->request.token = cached->row.token;
	memcpy(call->owner, cached->row.owner, cached->row.owner_length);
	call->request.owner.length = cached->row.owner_length;
	memcpy((char *) call->names[0].data, cached->name, cached->name_length);
	call->names[0].length = cached->name_length;
	call->caller = *request->caller;
	call->seen_writes = cached->row.writes;
	call->answered = true;
	call->unwritten = true;
	engine.unwritten++;
	defer(call, lease_now() + DEFER_US);
	if (sleeps_until_us > call->retry_us)
		pthread_cond_signal(&engine.work);
	lease_count(LEASE_COUNT_released, 1);
	answer->outcome = LEASE_RELEASED;
	answer->token = call->request.token;
	return true;
}

/* ----------------------------------------------------------------
 * The thread
 * ----------------------------------------------------------------
 */

/*
 * Read the rows of the batch.  Where nothing can be written, as on a replica,
 * those who only look are answered all the same.
 */
static lease_status
read_batch(bool grants)
{
	lease_status status = grants ? raise_marks() : LEASE_STATUS_OK;
	const char *sqlstate;

	if (status == LEASE_STATUS_OK && b.nnames > 0)
		status = lease_table_read(table, b.bytes, b.nnames, b.rows, b.marks,
								  true);
	b.read_only = status == LEASE_STATUS_FAILED &&
		is_read_only_error(lease_table_error(table, &sqlstate));
	return b.read_only ? lease_table_read(table, b.bytes, b.nnames, b.rows,
										  b.marks, false) : status;
}

/* Read, make, write, commit.  The mutex is held, and released meanwhile. */
static void
run_batch(int64_t now_us)
{
	lease_status status;
	bool		grants;
	bool		changed = false;
	bool		missed = false;
	bool		in_commit = false;

	if (engine.incoming.head != NULL &&
		engine.incoming.head->kind == DLOCK_CALL_APPLY_ALL &&
		engine.incoming.head->internal == 0 &&
		engine.incoming.head->nnames == 0)
	{
		look_up_names(engine.incoming.head);
		return;
	}
	collect(now_us);
	grants = may_grant();
	b.believed = can_believe();
	if (b.believed)
		load_believed();
	pthread_mutex_unlock(&engine.mutex);
	status = prepare();
	if (status == LEASE_STATUS_OK && !b.believed)
		status = read_batch(grants);
	pthread_mutex_lock(&engine.mutex);

	if (status == LEASE_STATUS_OK)
	{
		make_batch();
		if (!b.needs_commit)
			while (b.early.head != NULL)
				defer(b.early.head, b.early.head->retry_us > now_us ?
					  b.early.head->retry_us : lease_now() + DEFER_US);
		else
			changed = write_batch();
		pthread_mutex_unlock(&engine.mutex);
		if (changed)
		{
			in_commit = true;
			status = lease_table_commit(table, &missed);
		}
		else
			lease_table_rollback(table);
		pthread_mutex_lock(&engine.mutex);
	}
	if (status == LEASE_STATUS_OK)
		end_batch(changed, missed);
	else
		fail_batch(status, in_commit);
	forget_names();
}

/* When the batcher has something to do. */
static int64_t
next_work(int64_t now_us)
{
	int64_t		next_us = reap_us < sessions_us ? reap_us : sessions_us;
	int64_t		queue_us;

	if (engine.incoming.head != NULL)
		next_us = 0;
	(void) lease_queue_due(now_us, NULL, 0, &queue_us);
	if (queue_us < next_us)
		next_us = queue_us;
	for (const lease_call *call = engine.deferred.head; call != NULL;
		 call = call->next)
		if (call->retry_us < next_us)
			next_us = call->retry_us;
	for (const lease_call *call = engine.stalled.head; call != NULL;
		 call = call->next)
		if (call->retry_us < next_us)
			next_us = call->retry_us;
	return next_us < pause_until_us ? pause_until_us : next_us;
}

/* The batcher: runs until the server ends. */
void *
lease_batch_main(void *arg)
{
	mysql_library_init(0, NULL, NULL);
	table = lease_table_create(engine.writer);
	if (table == NULL)
		abort();
	pthread_mutex_lock(&engine.mutex);
	engine.settings = (lease_settings) {
		.reap_interval_us = 1000000, .lock_timeout_us = 5000000,
		.max_waiters = 1000, .log_expired = true
	};
	for (;;)
	{
		int64_t		now_us = lease_now();
		int64_t		next_us = next_work(now_us);

		if (next_us > now_us)
		{
			struct timespec t = lease_monotonic(next_us);

			sleeps_until_us = next_us;
			pthread_cond_timedwait(&engine.work, &engine.mutex, &t);
			sleeps_until_us = 0;
		}
		else if (sessions_us <= now_us)
			look_after_sessions(now_us);
		else if (reap_us <= now_us)
			look_for_dead(now_us);
		else
			run_batch(now_us);
	}
	return arg;
}
