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
#include "lease_batcher.h"

#include <inttypes.h>
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lease_cache.h"
#include "lease_marks.h"
#include "lease_session.h"
#include "lease_stats.h"
#include "mysql_compat.h"
#include "udf_text.h"

/*
 * How many answered releases wait for company before they come with the next
 * batch, and how long; and how long if nobody calls, or in a cluster, where
 * others may be waiting for them.
 */
#define DEFER_MAX		96
#define DEFER_US		20000
#define DEFER_IDLE_US	5000

lease_batch batch;
lease_batcher batcher = {
	.must_read = true,
	.clustered = true,
};

/* For how long no work is lent to callers after the server was slow. */
#define LEND_PAUSE_US	2000000

/* From when on a server that does not answer is not just busy. */
#define STUCK_US		1000000

/* Buckets of the names of the calls that are yet to be made. */
static bool wanted[LEASE_BUCKETS];

static size_t careful = 0;		/* batches to come that have one call each,
								 * after one that had a conflict */
static int64_t pause_until_us = 0;	/* after a conflict or an error */

static void *
resize(void *array, size_t n, size_t size)
{
	array = realloc(array, n * size);
	if (array == NULL)
		abort();
	return array;
}

lease_name *
lease_batch_find(lease_bytes bytes)
{
	uint64_t	hash = lease_hash(bytes, 0);

	for (size_t i = 0; i < batch.nnames; i++)
		if (batch.hashes[i] == hash && lease_same(batch.bytes[i], bytes))
			return batch.names[i];
	return NULL;
}

static void
add_name(lease_bytes bytes)
{
	lease_name *name;

	if (lease_batch_find(bytes) != NULL)
		return;
	if (batch.nnames == batch.room)
	{
		size_t		old = batch.room;

		batch.room = old ? old * 2 : LEASE_BATCH_NAMES;
		batch.names = resize(batch.names, batch.room, sizeof(*batch.names));
		batch.bytes = resize(batch.bytes, batch.room, sizeof(*batch.bytes));
		batch.hashes = resize(batch.hashes, batch.room, sizeof(*batch.hashes));
		batch.rows = resize(batch.rows, batch.room, sizeof(*batch.rows));
		batch.marks = resize(batch.marks, batch.room, sizeof(*batch.marks));
		memset(&batch.rows[old], 0,
			   (batch.room - old) * sizeof(*batch.rows));
	}
	name = malloc(sizeof(lease_name));
	if (name == NULL)
		abort();
	lease_name_init(name, bytes);
	batch.names[batch.nnames] = name;
	batch.bytes[batch.nnames] = name->name;
	batch.hashes[batch.nnames] = lease_hash(bytes, 0);
	batch.nnames++;
}

static void
forget_names(void)
{
	for (size_t i = 0; i < batch.nnames; i++)
	{
		lease_name_free(batch.names[i]);
		free(batch.names[i]);
	}
	batch.nnames = 0;
}

/* Release the mutex, to ask the server something. */
void
lease_batch_ask(void)
{
	batcher.asks_since_us = lease_now();
	pthread_mutex_unlock(&engine.mutex);
}

/* The server has answered: take the mutex again, and say how long that took. */
int64_t
lease_batch_resume(void)
{
	int64_t		now_us = lease_now();
	int64_t		took_us = now_us - batcher.asks_since_us;

	pthread_mutex_lock(&engine.mutex);
	if (took_us > LEASE_LOOK_INTERVAL_US)
		batcher.slow_us = now_us;
	batcher.asks_since_us = 0;
	return took_us;
}

/*
 * Say whether a call has not been made yet, and will not be soon: the server does
 * not answer.  For all, with the mutex.
 */
bool
lease_batch_keeps_waiting(const lease_call *call)
{
	return (call->place == LEASE_PLACE_LIST || call->list == &batch.calls) &&
		batcher.asks_since_us != 0 &&
		lease_now() - batcher.asks_since_us >= STUCK_US;
}

/* How long an answered release may wait for company. */
int64_t
lease_defer_us(void)
{
	return batcher.clustered ? DEFER_IDLE_US : DEFER_US;
}

/* Take a call into the batch: false if there is no room, unless it must be. */
static bool
take(lease_call *call, bool must)
{
	size_t		slice = lease_call_slice(call);
	size_t		first = call->kind == DLOCK_CALL_APPLY_ALL ?
		call->waits_for : 0;
	size_t		more = 0;

	for (size_t i = first; i < first + slice; i++)
		more += lease_batch_find(call->names[i]) == NULL;
	if (!must && batch.nnames + more > LEASE_BATCH_NAMES)
		return false;
	for (size_t i = first; i < first + slice; i++)
		add_name(call->names[i]);
	lease_calls_remove(call);
	call->place = LEASE_PLACE_BATCH;
	batch.nunanswered += !call->answered;
	lease_calls_append(&batch.calls, call);
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

/* Note which buckets the calls of a list want. */
static void
want(const lease_calls *list)
{
	for (const lease_call *call = list->head; call != NULL; call = call->next)
		for (size_t i = 0; i < call->nnames; i++)
			wanted[lease_table_bucket(call->names[i])] = true;
}

/*
 * Say whether somebody wants a name.  Many are asked for, and few are wanted;
 * collect() has noted their buckets.
 */
static bool
is_wanted(lease_bytes name)
{
	return (wanted[lease_table_bucket(name)] &&
			(concerns(&engine.incoming, name) ||
			 concerns(&engine.stalled, name))) ||
		(lease_waiters_count() > 0 && lease_queue_find(name) != NULL);
}

/* When a release that was put off is to be tried. */
int64_t
lease_due_us(const lease_call *call)
{
	int64_t		idle_us = engine.called_us + DEFER_IDLE_US;

	return call->unwritten && idle_us < call->retry_us ? idle_us :
		call->retry_us;
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
		if (call->unwritten && lease_due_us(call) <= now_us)
			return true;
	for (const lease_call *call = engine.incoming.head; call != NULL;
		 call = call->next)
		if (call->internal == LEASE_INTERNAL_SETTLE)
			return true;
	return false;
}

/*
 * Say whether it is time for a release that was put off, although nobody wants
 * its name: because such are to be written.  One whose row is locked is looked
 * at again when it is time, but not all of them at once.
 */
static bool
is_time(const lease_call *call, bool write, int64_t now_us)
{
	return call->unwritten ? write : call->retry_us <= now_us &&
		batch.nnames < LEASE_BATCH_NAMES / 4;
}

/*
 * A call that was stalled before its names were looked up, or that has none, is
 * made from the beginning, like a new one.
 */
static void
unstall(int64_t now_us)
{
	lease_call *next;

	for (lease_call *call = engine.stalled.head; call != NULL; call = next)
	{
		next = call->next;
		if (call->nnames > 0 || call->retry_us > now_us)
			continue;
		lease_calls_remove(call);
		lease_calls_append(&engine.incoming, call);
	}
}

/* Say whether a call changes nothing. */
static bool
is_look(const lease_call *call)
{
	return call->internal == LEASE_INTERNAL_SETTLE ||
		call->internal == LEASE_INTERNAL_SETTINGS ||
		(call->internal == LEASE_INTERNAL_NONE &&
		 call->kind == DLOCK_CALL_READ);
}

/*
 * Say whether a call can be made although this run has not raised the marks: it
 * looks, and what it looks at was not given back by a release that is yet to be
 * written.
 */
static bool
can_be_early(const lease_call *call)
{
	return call->internal == LEASE_INTERNAL_SETTINGS || (is_look(call) &&
		(call->nnames > 0 ? !concerns(&engine.deferred, call->names[0]) :
		 engine.unwritten == 0));
}

/* Say whether nothing can be granted yet, because the clock has to come on first. */
static bool
is_early(int64_t now_us)
{
	return now_us < batcher.early_until_us;
}

/* The same as collect(), for as long as that is so: who only looks is answered. */
static void
collect_looks(void)
{
	lease_call *next;

	for (lease_call *call = engine.incoming.head; call != NULL; call = next)
	{
		next = call->next;
		if (can_be_early(call))
			(void) take(call, false);
	}
}

/*
 * Collect the calls and names of a batch.  The mutex is held.
 *
 * However many releases come first, the first call that was not answered comes
 * with them, for else it might never.
 */
static void
collect(int64_t now_us)
{
	lease_queue *due[LEASE_BATCH_NAMES / 4];
	size_t		ndue;
	int64_t		next_us;
	size_t		most = LEASE_BATCH_CALLS;
	bool		write = must_write(now_us);
	lease_call *next;

	batch.needs_commit = false;
	batch.read_only = false;
	batch.is_early = is_early(now_us);
	batch.reaped = 0;
	batch.nunanswered = 0;
	if (batch.is_early)
	{
		collect_looks();
		return;
	}
	if (careful > 0)
	{
		most = 1;
		careful--;
	}
	memset(wanted, false, sizeof(wanted));
	want(&engine.incoming);
	want(&engine.stalled);
	for (lease_call *call = engine.deferred.head; call != NULL; call = next)
	{
		bool		is_first = is_wanted(call->names[0]);

		next = call->next;
		/* they come before what was not answered yet */
		if (!is_first && !is_time(call, write, now_us))
			continue;
		batch.needs_commit |= write && call->unwritten;
		(void) take(call, is_first);
	}
	ndue = lease_queue_due(now_us, due, sizeof(due) / sizeof(due[0]),
						   &next_us);
	for (size_t i = 0; i < ndue; i++)
		add_name(due[i]->name);
	for (lease_call *call = engine.stalled.head; call != NULL; call = next)
	{
		next = call->next;
		if (call->retry_us <= now_us &&
			(batch.nunanswered >= most ||
			 !take(call, batch.nunanswered == 0)))
			break;
	}
	for (lease_call *call = engine.incoming.head;
		 call != NULL && (batch.nunanswered == 0 ||
						  (batch.nunanswered < most &&
						   batch.calls.count < LEASE_BATCH_CALLS)); call = next)
	{
		next = call->next;
		if (lease_belief_refuse_call(call))
			continue;

		/* of a call on all leases of an owner the names come first */
		if ((call->kind == DLOCK_CALL_APPLY_ALL && call->internal == 0 &&
			 call->nnames == 0) || !take(call, batch.nunanswered == 0))
			break;
	}
}

/*
 * Collect the releases that were put off and whose leases are in the journal: if
 * it is written anyway, that costs less than to write them once more.  Nobody in
 * the batch wants their names.
 */
static void
collect_journaled(void)
{
	lease_call *next;

	for (lease_call *call = engine.deferred.head; call != NULL; call = next)
	{
		next = call->next;
		if (call->unwritten && lease_belief_suffices(call) &&
			lease_table_is_journaled(batcher.table, call->names[0]))
			(void) take(call, true);
	}
}

/*
 * Say whether somebody is about to read the lock table himself, or to lock a row:
 * when he is answered, what he looks for must have been committed there.
 */
static bool
must_show(void)
{
	for (const lease_call *call = batch.calls.head; call != NULL;
		 call = call->next)
		if (call->internal == LEASE_INTERNAL_SETTLE ||
			(call->internal == LEASE_INTERNAL_NONE &&
			 call->kind == DLOCK_CALL_BEGIN_GUARD))
			return true;
	return false;
}

/* Say whether a batch changes nothing. */
static bool
only_looks(void)
{
	for (const lease_call *call = batch.calls.head; call != NULL;
		 call = call->next)
		if (!is_look(call))
			return false;
	return batch.is_early || lease_waiters_count() == 0;
}

/*
 * Read the rows of the batch.  Where nothing can be written, as on a replica,
 * those who only look are answered all the same.
 */
static lease_status
read_batch(bool looks)
{
	lease_status status = looks ? LEASE_STATUS_OK : lease_upkeep_take_over();
	const char *sqlstate;

	if (status == LEASE_STATUS_OK && batch.nnames > 0)
		status = lease_table_read(batcher.table, batch.bytes, batch.nnames,
								  batch.rows, batch.marks, true, !looks);
	batch.read_only = status == LEASE_STATUS_FAILED &&
		lease_is_read_only_error(lease_table_error(batcher.table, &sqlstate));
	return batch.read_only ?
		lease_table_read(batcher.table, batch.bytes, batch.nnames, batch.rows,
						 batch.marks, false, false) : status;
}

/* Hand what the batch has changed to the table.  The mutex is held. */
static bool
write_batch(void)
{
	bool		changed = false;

	for (size_t i = 0; i < batch.nnames; i++)
	{
		const lease_name *name = batch.names[i];
		const lease_rows *rows = &batch.rows[i];
		bool		own = rows->count == 1 && rows->rows[0].slot == 0 &&
			rows->rows[0].writer == engine.writer;

		changed |= lease_name_write(batch.names[i], batcher.table,
									batch.believed, own);
		if (name->mark_changed)
			lease_marks_grant(name->name, name->mark);
	}
	return lease_marks_write(batcher.table, !batcher.clustered,
							 batch.moment.wall_us) || changed;
}

/* Tell the error log of a lease that has expired: in one line, whatever is in it. */
static void
log_expired(lease_bytes name, const lease_row *row)
{
	char		shown_name[DLOCK_SHOWN_SIZE];
	char		shown_owner[DLOCK_SHOWN_SIZE];
	char		shown_user[DLOCK_SHOWN_SIZE];
	char		shown_host[DLOCK_SHOWN_SIZE];

	fprintf(stderr, "dlock: lease on \"%s\" expired while owner \"%s\" held it; "
			"token %" PRIu64 ", account '%s'@'%s', connection %" PRIu64 "\n",
			dlock_show(shown_name, name),
			dlock_show(shown_owner, (lease_bytes) {
				row->owner, row->owner_length
			}), row->token,
			dlock_show(shown_user, (lease_bytes) {
				row->user, strlen(row->user)
			}),
			dlock_show(shown_host, (lease_bytes) {
				row->host, strlen(row->host)
			}), row->connection_id);
}

/*
 * After a commit: what has expired, and which session leases are no more, or
 * live and have been written.
 */
static void
note_ended(void)
{
	uint64_t	expired = 0;

	for (size_t i = 0; i < batch.nnames; i++)
		for (size_t m = 0; m < batch.names[i]->count; m++)
		{
			const lease_member *member = &batch.names[i]->members[m];

			if (!member->gone && member->changed && !member->row.locked &&
				member->life == LEASE_BOUND)
				lease_session_written(member->row.connection_id,
									  member->row.token, batch.names[i]->name,
									  member->row.ttl_us);
			if (!member->gone || member->row.locked)
				continue;
			if (member->row.kind == LEASE_SESSION)
				lease_session_remove(member->row.token, batch.names[i]->name);
			if (!member->expired)
				continue;
			expired++;
			if (engine.settings.log_expired)
				log_expired(batch.names[i]->name, &member->row);
		}
	lease_count(LEASE_COUNT_expired, expired);
	lease_count(LEASE_COUNT_reaped, batch.reaped);
}

/* The table failed, or was not what was believed.  The mutex is held. */
void
lease_batch_note_failure(lease_status status)
{
	const char *sqlstate;

	pause_until_us = lease_now() + lease_pause_of(status);
	batcher.must_read = true;
	if (status == LEASE_STATUS_LOST)
		batcher.slow_us = lease_now();
	lease_marks_forget();
	if (status == LEASE_STATUS_FAILED &&
		lease_is_read_only_error(lease_table_error(batcher.table, &sqlstate)))
		lease_upkeep_note_read_only();

	/* alone, as it seemed: raise them again, to be above what others granted */
	if (lease_table_marks_differ(batcher.table))
	{
		batcher.has_marks &= batcher.clustered;
		batcher.sessions_us = 0;	/* is it still alone? */
	}
}

/* End a batch that failed.  The mutex is held. */
static void
fail_batch(lease_status status, bool in_commit)
{
	/* from the last to the first, since each is put before the others */
	lease_calls *lists[] = {&batch.calls, &batch.at_commit, &batch.early};

	if (status == LEASE_STATUS_EARLY)
		batcher.must_read = true;
	else
		lease_batch_note_failure(status);

	/* one of them may be in the way of all others */
	if (status == LEASE_STATUS_CONFLICT && !batch.believed &&
		batch.nunanswered > 1)
		careful = batch.nunanswered;
	if (status == LEASE_STATUS_LOST)
		batcher.lost_commit_us = in_commit ? lease_now() : 0;
	if (batch.believed)
		pause_until_us = 0;		/* that was but a belief */
	for (size_t i = 0; i < batch.nnames; i++)
		lease_cache_forget(batch.bytes[i]);
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		while (lists[i]->tail != NULL)
			lease_call_after_failure(lists[i]->tail, status, in_commit);

	/* those who joined a queue did so for what did not come true */
	for (size_t i = 0; i < batch.nnames; i++)
	{
		lease_queue *queue = lease_queue_find(batch.names[i]->name);

		if (queue != NULL)
			queue->due_us = status == LEASE_STATUS_CONFLICT && !batch.believed ?
				lease_now() + LEASE_CULPRIT_PAUSE_US : pause_until_us;
	}

	/* nobody can be granted anything while the table fails */
	if (status == LEASE_STATUS_FAILED)
		for (size_t i = 0; i < batch.nnames; i++)
			lease_call_fail_waiters(batch.names[i]->name);
}

/* End a batch that was committed, or had nothing to commit. */
static void
end_batch(bool committed, bool missed)
{
	if (committed)
	{
		engine.read_only = false;	/* it is writable again */
		batcher.lost_commit_us = 0;
		note_ended();
	}
	lease_belief_remember(committed);
	for (lease_call *call = batch.at_commit.head; call != NULL;
		 call = call->next)
		if (call->abandoned)
			lease_make_forget_replays(call);
	while (batch.early.head != NULL)
		if (missed)
		{
			/* another server has changed the lease: look what is left of it */
			lease_cache_forget(batch.early.head->names[0]);
			batcher.must_read = true;
			lease_call_defer(batch.early.head, 0);
		}
		else
			lease_call_finish(batch.early.head);
	while (batch.at_commit.head != NULL)
		lease_call_answer_committed(batch.at_commit.head);
}

/* Read, make, write, commit.  The mutex is held, and released meanwhile. */
static void
run_batch(int64_t now_us)
{
	lease_status status;
	bool		looks;
	bool		shows;
	bool		changed = false;
	bool		missed = false;
	bool		in_commit = false;
	int64_t		took_us = 0;	/* the commit */
	uint64_t	answered;

	unstall(now_us);
	lease_gather_end(now_us);
	if (!is_early(now_us) && engine.incoming.head != NULL &&
		engine.incoming.head->kind == DLOCK_CALL_APPLY_ALL &&
		engine.incoming.head->internal == 0 &&
		engine.incoming.head->nnames == 0)
	{
		lease_upkeep_find_leases(engine.incoming.head);
		return;
	}
	collect(now_us);
	if (batch.calls.head == NULL && batch.nnames == 0)
		return;					/* all were refused */
	looks = only_looks();
	shows = must_show();
	batch.believed = lease_belief_holds();
	if (batch.believed)
	{
		if (batch.nunanswered > 0)
			collect_journaled();
		lease_belief_load();
	}
	lease_batch_ask();
	status = lease_upkeep_prepare();
	if (status == LEASE_STATUS_OK && shows)
		status = lease_upkeep_show();
	if (status == LEASE_STATUS_OK && !batch.believed)
		status = read_batch(looks);
	(void) lease_batch_resume();

	if (batch.read_only)
		lease_upkeep_note_read_only();
	if (status == LEASE_STATUS_OK)
	{
		lease_make_batch();
		if (!batch.needs_commit)
			while (batch.early.head != NULL)
				lease_call_defer(batch.early.head,
								 batch.early.head->retry_us > now_us ?
								 batch.early.head->retry_us :
								 lease_now() + lease_defer_us());
		else
			changed = write_batch();
		lease_batch_ask();
		if (changed || lease_table_has_moved(batcher.table))
		{
			in_commit = true;
			status = lease_table_commit(batcher.table, &missed);
		}
		else
			lease_table_rollback(batcher.table);
		took_us = lease_batch_resume();
	}
	answered = engine.answered;
	if (status == LEASE_STATUS_OK)
	{
		end_batch(changed, missed);
		if (changed && careful == 0)
			lease_gather_begin(engine.answered - answered, took_us);
	}
	else
		fail_batch(status, in_commit);
	batch.had_company = batch.nunanswered > 1 || engine.incoming.head != NULL;
	forget_names();
}

/* When the batcher has something to do. */
static int64_t
next_work(int64_t now_us)
{
	int64_t		next_us = batcher.reap_us < batcher.sessions_us ?
		batcher.reap_us : batcher.sessions_us;
	int64_t		queue_us;

	if (is_early(now_us))
	{
		for (const lease_call *call = engine.incoming.head; call != NULL;
			 call = call->next)
			if (can_be_early(call))
				return now_us < pause_until_us ? pause_until_us : now_us;
		return batcher.early_until_us < next_us ? batcher.early_until_us :
			next_us;
	}
	if (engine.incoming.head != NULL && lease_gather_due_us() < next_us)
		next_us = lease_gather_due_us();
	(void) lease_queue_due(now_us, NULL, 0, &queue_us);
	if (queue_us < next_us)
		next_us = queue_us;
	if (lease_session_keep_us() < next_us)
		next_us = lease_session_keep_us();
	if (lease_table_journal_due_us(batcher.table) < next_us)
		next_us = lease_table_journal_due_us(batcher.table);

	/* a caller's next release may come soon, and need not wake us then */
	if (engine.called_us + DEFER_IDLE_US > now_us &&
		engine.called_us + DEFER_IDLE_US < next_us)
		next_us = engine.called_us + DEFER_IDLE_US;
	for (const lease_call *call = engine.deferred.head; call != NULL;
		 call = call->next)
		if (lease_due_us(call) < next_us)
			next_us = lease_due_us(call);
	for (const lease_call *call = engine.stalled.head; call != NULL;
		 call = call->next)
		if (call->retry_us < next_us)
			next_us = call->retry_us;
	return next_us < pause_until_us ? pause_until_us : next_us;
}

/* ----------------------------------------------------------------
 * Lending
 * ----------------------------------------------------------------
 */

/*
 * Make a call in its caller's own thread: true.  The mutex is held, and released
 * meanwhile.
 *
 * Where few call at a time, most find the batcher asleep.  To wake it, and to be
 * woken by it, takes longer than all that it does for a call but to wait for the
 * server.  So an acquire that needs only one commit, no reading, is made by whoever
 * asks for it, with what was put off.  The batcher touches nothing until that is
 * over, and looks whether the caller is still wanted (watch_borrower()), who cannot
 * while he waits for the server.
 *
 * Whoever is given up in a slow commit costs the others the connection; so there is
 * none of this for a while after the server was slow.
 *
 * All that runs here runs on the stack of a session of the server's, of which little
 * may be left: nothing is printed, and nobody connects.  Only leases that were given
 * back are there, none that note_ended() would have to tell of.
 */
bool
lease_batch_lend(lease_call *call)
{
	int64_t		now_us = lease_now();

	if (batcher.lent_to != NULL || batcher.sleeps_until_us == 0 ||
		batch.had_company || engine.incoming.head != NULL ||
		engine.stalled.head != NULL || lease_waiters_count() > 0 ||
		careful > 0 || pause_until_us > now_us ||
		next_work(now_us) <= now_us ||
		(batcher.slow_us != 0 && now_us < batcher.slow_us + LEND_PAUSE_US) ||
		!lease_belief_is_lendable(call))
		return false;

	/* for it to watch in time */
	if (batcher.sleeps_until_us > now_us + LEASE_LOOK_INTERVAL_US)
		pthread_cond_signal(&engine.work);
	call->place = LEASE_PLACE_LIST;
	lease_calls_append(&engine.incoming, call);
	batcher.lent_to = call;
	batcher.borrower = dlock_caller_thd();
	batcher.cut = false;
	batcher.watch_us = now_us + LEASE_LOOK_INTERVAL_US;
	run_batch(now_us);
	batcher.lent_to = NULL;
	batcher.borrower = NULL;

	/* before somebody else who was just answered can ask */
	engine.settled = lease_table_is_settled(batcher.table);
	if (next_work(lease_now()) < batcher.sleeps_until_us)
		pthread_cond_signal(&engine.work);
	return true;
}

/*
 * While a caller makes a batch: look whether he is killed, or his client gone.  If
 * so, answer the call, and cut the connection, for him to learn of it.  The mutex is
 * held, and released meanwhile.
 *
 * It is held for the look, too, so that the session stays.  For that the servers
 * take no lock: they look at a flag, and at the socket.
 */
static void
watch_borrower(void)
{
	int64_t		now_us = lease_now();
	struct timespec t;
	bool		killed;

	if (now_us < batcher.watch_us)
	{
		batcher.sleeps_until_us = batcher.watch_us;
		t = lease_monotonic(batcher.watch_us);
		pthread_cond_timedwait(&engine.work, &engine.mutex, &t);
		batcher.sleeps_until_us = 0;
		return;
	}
	batcher.watch_us = now_us + LEASE_LOOK_INTERVAL_US;
	killed = dlock_thd_killed(batcher.borrower);
	if (!batcher.cut && (killed || !dlock_thd_connected(batcher.borrower)))
	{
		lease_call_give_up(batcher.lent_to, !killed);
		lease_table_interrupt(batcher.table);
		batcher.cut = true;
	}
}

/* The batcher: runs until the server ends. */
void *
lease_batch_main(void *arg)
{
	mysql_library_init(0, NULL, NULL);
	batcher.table = lease_table_create(engine.writer);
	if (batcher.table == NULL)
		abort();
	pthread_mutex_lock(&engine.mutex);
	engine.settings = (lease_settings) {
		.reap_interval_us = 1000000, .lock_timeout_us = 5000000,
		.max_waiters = 1000, .log_expired = true
	};
	for (;;)
	{
		int64_t		now_us = lease_now();
		int64_t		next_us;

		if (batcher.lent_to != NULL)
		{
			watch_borrower();
			continue;
		}
		next_us = next_work(now_us);

		/* before anybody who was just answered can ask */
		engine.settled = lease_table_is_settled(batcher.table);
		if (next_us > now_us)
		{
			struct timespec t = lease_monotonic(next_us);

			batcher.sleeps_until_us = next_us;
			pthread_cond_timedwait(&engine.work, &engine.mutex, &t);
			batcher.sleeps_until_us = 0;
		}
		else if (dlock_server_is_ending() &&
				 (batcher.sessions_us <= now_us || batcher.reap_us <= now_us))
			lease_upkeep_put_off(now_us);
		else if (batcher.sessions_us <= now_us)
			lease_upkeep_sessions();
		else if (batcher.reap_us <= now_us)
			lease_upkeep_reap(now_us);
		else if (lease_session_keep_us() <= now_us)
			lease_session_keep(now_us);
		else if (lease_table_journal_due_us(batcher.table) <= now_us)
			lease_upkeep_move();
		else
			run_batch(now_us);
	}
	return arg;
}
