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

#include "lease_guards.h"
#include "lease_owed.h"
#include "lease_replays.h"
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

/* Most names of a call for all leases of an owner that go into one commit. */
#define SLICE			10000
#define SLICE_DIRECT	1000

lease_batch batch;
lease_batcher batcher = {
	.connection = {.wire = -1},
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

/* The draft of a name that the batch has. */
lease_name *
lease_batch_find(lease_bytes bytes)
{
	return image_find(bytes)->draft;
}

/* Say whether the batch has a name. */
static bool
has_name(lease_bytes bytes)
{
	const image_name *name = image_find(bytes);

	return name != NULL && name->in_batch;
}

/* Add a name to the batch: false if memory is short. */
static bool
add_name(lease_bytes bytes)
{
	image_name *name = image_get(bytes);

	if (name == NULL)
		return false;
	if (name->in_batch)
		return true;
	if (batch.nnames == batch.room)
	{
		size_t		room = batch.room > 0 ? batch.room * 2 : LEASE_BATCH_NAMES;
		image_name **names = realloc(batch.names, room * sizeof(*names));
		lease_bytes *reads;

		if (names == NULL)
			return false;
		batch.names = names;
		reads = realloc(batch.reads, room * sizeof(*reads));
		if (reads == NULL)
			return false;
		batch.reads = reads;
		batch.room = room;
	}
	image_pin(name);
	batch.names[batch.nnames++] = name;
	return true;
}

static void
forget_names(void)
{
	for (size_t i = 0; i < batch.nnames; i++)
	{
		lease_name_free(batch.names[i]->draft);
		image_release(batch.names[i]);
	}
	batch.nnames = 0;
	image_end_batch();
	image_trim();
}

/* Say whether nothing can be decided or written: the server does not answer. */
static bool
is_stuck(void)
{
	int64_t		since_us = tenure->doubt_us != 0 ? tenure->doubt_us :
		lease_asks_since_us();

	return since_us != 0 && lease_now() - since_us >= STUCK_US;
}

/*
 * Say whether a call has not been made yet, or not been written, and will not be soon;
 * or whether it stands in line for what it would be granted.  For all, with the mutex.
 */
bool
lease_batch_keeps_waiting(const lease_call *call)
{
	if (call->place == LEASE_PLACE_LINE)
		return is_stuck() && lease_early_could_be_granted(call);
	return (call->place == LEASE_PLACE_LIST || call->list == &lists->taken ||
			call->list == &lists->at_commit) && is_stuck();
}

/* Have the server and its connections looked at.  For all, with the mutex. */
void
lease_batch_look_soon(void)
{
	lease_upkeep_look_soon();
	lease_wake();
}

/* How long an answered release may wait for company. */
int64_t
lease_defer_us(void)
{
	return tenure->clustered ? DEFER_IDLE_US : DEFER_US;
}

/* How many names of a call go into the batch. */
static size_t
get_slice(const lease_call *call)
{
	size_t		most = lease_is_direct() ? SLICE_DIRECT : SLICE;
	size_t		left = call->nnames - call->waits_for;

	if (call->kind != DLOCK_CALL_APPLY_ALL)
		return call->nnames;
	return left < most ? left : most;
}

/*
 * Take a call into the batch: false if there is no room, unless it must be; or no
 * memory, which it is told.
 */
static bool
take(lease_call *call, bool must)
{
	size_t		slice = get_slice(call);
	size_t		first = call->kind == DLOCK_CALL_APPLY_ALL ?
		call->waits_for : 0;
	size_t		more = 0;

	for (size_t i = first; i < first + slice; i++)
		more += !has_name(call->names[i]);
	if (!must && batch.nnames + more > LEASE_BATCH_NAMES)
		return false;
	for (size_t i = first; i < first + slice; i++)
		if (!add_name(call->names[i]))
		{
			if (!call->answered)
			{
				lease_call_fail(call, "53200", "out of memory");
				lease_call_finish(call);
			}
			return false;
		}
	call->slice = slice;
	batch.nunanswered += !call->answered;
	lease_list_taken(call);
	return true;
}

/* Note which buckets the calls of a list want. */
static void
want(const lease_calls *list)
{
	for (const lease_call *call = list->head; call != NULL; call = call->next)
		for (size_t i = 0; i < call->nnames; i++)
			wanted[lease_bucket(call->names[i])] = true;
}

/*
 * Say whether somebody wants a name.  Many are asked for, and few are wanted;
 * collect() has noted their buckets.
 */
static bool
is_wanted(lease_bytes name)
{
	return (wanted[lease_bucket(name)] &&
			(lease_calls_concern(&lists->incoming, name) ||
			 lease_calls_concern(&lists->stalled, name))) ||
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
	if (lease_owed_unwritten() > DEFER_MAX)
		return true;
	for (const lease_call *call = lists->deferred.head; call != NULL;
		 call = call->next)
		if (call->unwritten && lease_due_us(call) <= now_us)
			return true;
	for (const lease_call *call = lists->incoming.head; call != NULL;
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

	for (lease_call *call = lists->stalled.head; call != NULL; call = next)
	{
		next = call->next;
		if (call->nnames > 0 || call->retry_us > now_us)
			continue;
		lease_list_incoming(call);
	}
}

/*
 * Say whether a call can be made although this run has not raised the marks: it
 * looks, and what it looks at was not given back by a release that is yet to be
 * written.
 */
static bool
can_be_early(const lease_call *call)
{
	return call->internal == LEASE_INTERNAL_SETTINGS || (lease_call_is_look(call) &&
		(call->nnames > 0 ? !lease_owed_by_name(call->names[0]) :
		 lease_owed_unwritten() == 0));
}

/*
 * The same as collect(), for as long as that is so, or when the server is locked against
 * writing: who only looks is answered.
 */
static void
collect_looks(void)
{
	lease_call *next;

	for (lease_call *call = lists->incoming.head; call != NULL; call = next)
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
	batch.is_blind = false;
	batch.is_early = lease_is_early(now_us);
	batch.is_apart = lease_is_in_doubt() ||
		(batcher.looks_wait && !batch.is_early);
	batcher.looks_wait = false;
	batch.reaped = 0;
	batch.reaps_more = false;
	batch.nunanswered = 0;
	if (batch.is_early || lease_is_in_doubt())
	{
		collect_looks();
		return;
	}
	if (batch.is_apart)
	{
		collect_looks();
		if (lists->taken.head != NULL)
			return;
		batch.is_apart = false;
	}
	if (careful > 0)
	{
		most = 1;
		careful--;
	}
	memset(wanted, false, sizeof(wanted));
	want(&lists->incoming);
	want(&lists->stalled);
	for (lease_call *call = lists->deferred.head; call != NULL; call = next)
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
		(void) add_name(due[i]->name);
	for (lease_call *call = lists->stalled.head; call != NULL; call = next)
	{
		next = call->next;
		if (call->retry_us <= now_us &&
			(batch.nunanswered >= most ||
			 !take(call, batch.nunanswered == 0)))
			break;
	}
	for (lease_call *call = lists->incoming.head;
		 call != NULL && (batch.nunanswered == 0 ||
						  (batch.nunanswered < most &&
						   lists->taken.count < LEASE_BATCH_CALLS)); call = next)
	{
		next = call->next;
		if (lease_early_refuse_call(call))
			continue;

		/* of a call on all leases of an owner the names come first */
		if (lease_call_is_of_owner(call) || !take(call, batch.nunanswered == 0))
			break;
	}
}

/*
 * Collect the other releases that were put off: if something is written anyway, they
 * cost next to nothing.  Nobody in the batch wants their names.
 */
static void
collect_deferred(void)
{
	lease_call *next;

	for (lease_call *call = lists->deferred.head; call != NULL; call = next)
	{
		next = call->next;
		if (call->unwritten && image_is_known(call->names[0]))
			(void) take(call, false);
	}
}

/* Say whether a batch changes nothing. */
static bool
only_looks(void)
{
	for (const lease_call *call = lists->taken.head; call != NULL;
		 call = call->next)
		if (!lease_call_is_look(call))
			return false;
	return batch.is_early || batch.is_apart || lease_waiters_count() == 0;
}

/*
 * Note which names have to be read: those that are not known, or whose rows somebody
 * may have locked; and where changes go into the table at once, all.  The mutex is
 * held.
 */
static void
find_reads(void)
{
	batch.nreads = 0;
	batch.direct = lease_is_direct();
	for (size_t i = 0; i < batch.nnames; i++)
	{
		const image_name *name = batch.names[i];

		if (batch.direct || !image_is_known(name->name) ||
			(!name->unguarded && name->nrows > 0))
			batch.reads[batch.nreads++] = name->name;
	}
}

/* Read what was found to be needed; "looks" says that nothing is to be written. */
static lease_status
read_names(bool looks)
{
	connection *c = &batcher.connection;
	lease_status status = LEASE_STATUS_OK;

	/* the journal first: what is written in between, is in the table then */
	if (!tenure->has_taken_over)
		status = table_read_journals(c, &batch.changes);
	if (status == LEASE_STATUS_OK && !batch.is_apart)
		status = table_read(c, batch.reads, batch.nreads, true, &batch.rows);
	if (status == LEASE_STATUS_OK && !batch.is_apart && batch.direct)
		status = table_read_marks(c, batch.reads, batch.nreads,
								  tenure->has_journal, &batch.marks);
	batch.read_only = status == LEASE_STATUS_FAILED && c->is_refusal;
	batch.is_blind = batch.read_only || batch.is_apart ||
		(looks && status == LEASE_STATUS_CONFLICT);
	if (batch.is_blind)
	{
		/* nor may who looks be kept from it by who has locked the table */
		table_free_rows(&batch.rows);
		status = LEASE_STATUS_OK;
		if (batch.direct && tenure->has_journal)
			status = table_read_journals(c, &batch.changes);
		if (status == LEASE_STATUS_OK)
			status = table_read(c, batch.reads, batch.nreads, false,
								&batch.rows);
	}
	if (status == LEASE_STATUS_OK && (!batch.direct || looks))
		connection_rollback(c);
	return status;
}

/* Learn what was read.  The mutex is held. */
static lease_status
know_names(void)
{
	int64_t		now_us = lease_now();

	for (size_t i = 0; i < batch.nreads; i++)
	{
		image_name *name = image_find(batch.reads[i]);
		size_t		count;
		size_t		first = table_find_rows(&batch.rows, name->name, &count);
		lease_row  *rows = batch.rows.rows + first;

		/* a read without locks ends no guard */
		if (batch.is_blind && image_is_known(name->name))
			continue;
		lease_guards_lock(rows, count, now_us);
		if (image_is_known(name->name))
		{
			if (!image_probe(name, rows, count))
				return connection_edited(&batcher.connection);
		}
		else if (!image_know(name, rows, count, !batch.is_blind, now_us))
			return connection_no_memory(&batcher.connection);
	}
	for (size_t i = 0; i < batch.changes.count; i++)
	{
		const journal_change *change = &batch.changes.changes[i];

		if ((change->kind == JOURNAL_RENEW_ALL ||
			 has_name(change->row.name)) &&
			!lease_apply_change(change, now_us))
			return connection_no_memory(&batcher.connection);
	}
	for (uint32_t b = 0; b < LEASE_BUCKETS; b++)
		if (batch.marks.known[b])
			image_mark_read(b, batch.marks.marks[b]);
	return LEASE_STATUS_OK;
}

/* Read what has to be read, and learn it.  The mutex is held, and released meanwhile. */
static lease_status
read_batch(bool looks)
{
	lease_status status = LEASE_STATUS_OK;

	if (batcher.connection.mysql == NULL || !lease_settings_are_read() ||
		(!looks && !tenure->has_taken_over))
	{
		lease_ask();
		status = lease_is_in_doubt() ? lease_upkeep_prepare_to_look() :
			lease_upkeep_prepare();
		if (status == LEASE_STATUS_OK && !looks && !tenure->has_taken_over)
			status = lease_take_tables();
		(void) lease_resume();
		if (status == LEASE_STATUS_FAILED && batcher.connection.is_refusal)
			status = LEASE_STATUS_OK;	/* who looks is answered all the same */
	}
	find_reads();
	if (status != LEASE_STATUS_OK || batch.nreads == 0)
		return status;
	memset(&batch.marks, 0, sizeof(batch.marks));
	lease_ask();
	status = read_names(looks);
	(void) lease_resume();
	if (status == LEASE_STATUS_OK)
		status = know_names();
	table_free_rows(&batch.rows);
	journal_free(&batch.changes);
	return status;
}

/* Collect what the drafts have changed, for the journal. */
static void
write_to_journal(void)
{
	journal_begin(&batch.journal, lease_run(),
				  batcher.connection.max_packet / 4);
	for (const lease_call *call = lists->at_commit.head; call != NULL;
		 call = call->next)
		if (call->kind == DLOCK_CALL_APPLY_ALL && call->renews_all)
			journal_renew_all(&batch.journal, &(lease_row) {
				.owner = call->request.owner,
				.user = dlock_caller_user(&call->caller),
				.host = dlock_caller_host(&call->caller),
				.ttl_us = call->request.ttl_us,
				.expires_us = batch.moment.wall_us + call->request.ttl_us,
			}, batch.moment.now_us);
	for (size_t i = 0; i < batch.nnames; i++)
	{
		lease_name *name = batch.names[i]->draft;

		if (!lease_name_will_write(name, &batch.moment))
			continue;
		lease_name_assign_slots(name, &batch.moment);
		for (size_t m = 0; m < name->count; m++)
		{
			const lease_member *member = &name->members[m];
			lease_row	row;

			if (!member->changed || (member->gone && m >= name->nknown))
				continue;
			row = image_row_of(name->entry, member, batch.moment.now_us,
							   batch.moment.wall_us);
			if (member->gone)
				journal_remove(&batch.journal, row.name, row.token);
			else
				journal_put(&batch.journal, &row);
		}
	}
	journal_end(&batch.journal);
}

/* Collect it for the table. */
static void
write_to_table(void)
{
	table_begin(&batch.table, batcher.connection.max_packet / 2);
	for (size_t i = 0; i < batch.nnames; i++)
	{
		lease_name *name = batch.names[i]->draft;
		bool		writes_anchor = false;

		/* what cannot be written is a release that was put off */
		if (!lease_name_will_write(name, &batch.moment))
			continue;
		lease_name_assign_slots(name, &batch.moment);
		for (size_t r = 0; r < name->entry->nrows; r++)
			if (!lease_name_uses_slot(name, name->entry->rows[r].slot))
				table_delete(&batch.table, name->name,
							 name->entry->rows[r].slot);
		for (size_t m = 0; m < name->count; m++)
		{
			const lease_member *member = &name->members[m];
			lease_row	row;

			if (member->gone || member->locked || !member->changed)
				continue;
			writes_anchor |= member->slot == 0;
			row = image_row_of(name->entry, member, batch.moment.now_us,
							   batch.moment.wall_us);
			if (image_row_at(name->entry, row.slot) != NULL)
				table_put(&batch.table, &row, true);
			else
				table_insert(&batch.table, &row);
		}
		if (!writes_anchor && lease_name_uses_slot(name, 0))
			table_touch(&batch.table, name->name);
	}
	for (uint32_t b = 0; b < LEASE_BUCKETS; b++)
		if (batch.marks.known[b] && image_mark(b) > batch.marks.marks[b])
			table_set_mark(&batch.table, b, batch.marks.marks[b],
						   image_mark(b));
}

/*
 * Collect what the batch has changed; "changed" says whether that is anything.  The
 * mutex is held.
 */
static lease_status
write_batch(bool *changed)
{
	bool		failed;

	for (size_t i = 0; i < batch.nnames; i++)
		image_mark_granted(lease_bucket(batch.names[i]->name),
						   batch.names[i]->draft->mark);
	if (batch.direct)
		write_to_table();
	else
		write_to_journal();
	*changed = batch.direct ? !table_is_empty(&batch.table) :
		!journal_is_empty(&batch.journal);
	failed = batch.direct ? batch.table.failed : batch.journal.failed;
	for (size_t i = 0; i < batch.nnames; i++)
		failed |= batch.names[i]->draft->failed;
	return failed ? connection_no_memory(&batcher.connection) :
		LEASE_STATUS_OK;
}

/* Write it, and commit. */
static lease_status
commit_batch(void)
{
	connection *c = &batcher.connection;
	lease_status status;
	bool		as_expected;

	if (c->is_read_only)
		return connection_refuse(c);
	if (!batch.direct)
		return table_append(c, lease_run(), tenure->number + 1,
							&batch.journal);
	status = table_execute(c, &batch.table, &as_expected);
	return status == LEASE_STATUS_OK ? connection_commit(c) : status;
}

/* What has been committed is what there is.  The mutex is held. */
static void
note_committed(void)
{
	if (!batch.direct)
		lease_note_appended(batch.journal.rows.count,
							journal_bytes(&batch.journal));
	for (size_t i = 0; i < batch.nnames; i++)
	{
		lease_name *name = batch.names[i]->draft;

		if (lease_name_will_write(name, &batch.moment))
			image_replace(name->entry, &name->members, &name->count,
						  batch.direct);
	}
}

/* Tell the error log of a lease that has expired: in one line, whatever is in it. */
static void
log_expired(lease_bytes name, const image_holder *holder)
{
	char		shown_name[DLOCK_SHOWN_SIZE];
	char		shown_owner[DLOCK_SHOWN_SIZE];
	char		shown_user[DLOCK_SHOWN_SIZE];
	char		shown_host[DLOCK_SHOWN_SIZE];

	fprintf(stderr, "dlock: lease on \"%s\" expired while owner \"%s\" held it; "
			"token %" PRIu64 ", account '%s'@'%s', connection %" PRIu64 "\n",
			dlock_show(shown_name, name),
			dlock_show(shown_owner, holder->owner), holder->token,
			dlock_show(shown_user, holder->account->user),
			dlock_show(shown_host, holder->account->host),
			holder->connection_id);
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
	{
		const lease_name *name = batch.names[i]->draft;

		if (!lease_name_will_write(name, &batch.moment))
			continue;
		for (size_t m = 0; m < name->count; m++)
		{
			const lease_member *member = &name->members[m];
			bool		is_kept = member->locked && batch.direct;

			if (!member->gone && member->changed && !is_kept &&
				member->life == LEASE_BOUND)
				lease_session_written(member->holder->connection_id,
									  member->holder->token, name->name,
									  member->ttl_us);
			if (!member->gone || !member->changed || is_kept)
				continue;
			if (member->kind == LEASE_SESSION)
				lease_session_remove(member->holder->token, name->name);
			if (!member->expired)
				continue;
			expired++;
			if (settings->log_expired)
				log_expired(name->name, member->holder);
		}
	}
	lease_count(LEASE_COUNT_expired, expired);
	lease_count(LEASE_COUNT_reaped, batch.reaped);
}

/* The server has failed us.  The mutex is held. */
void
lease_batch_note_failure(lease_status status)
{
	pause_until_us = status == LEASE_STATUS_FENCED ? 0 :
		lease_now() + lease_pause_of(status);
	if (status == LEASE_STATUS_LOST)
	{
		lease_note_slow();
		lease_doubt();
	}
	if (status == LEASE_STATUS_FENCED)
		lease_forget();
	if (status == LEASE_STATUS_FAILED && batcher.connection.is_refusal)
		lease_note_read_only();
	if (status == LEASE_STATUS_FAILED && batcher.connection.is_missing)
		lease_forget();
}

/* End a batch that failed.  The mutex is held. */
static void
fail_batch(lease_status status, bool in_commit)
{
	/* from the last to the first, since each is put before the others */
	const lease_calls *const all[] = {&lists->taken, &lists->at_commit, &lists->early};

	if (status != LEASE_STATUS_EARLY)
		lease_batch_note_failure(status);

	/* who looks does not have to wait until rows can be locked */
	if (status == LEASE_STATUS_CONFLICT && !in_commit &&
		batcher.connection.is_locked)
		for (lease_call *call = lists->taken.head, *next; call != NULL;
			 call = next)
		{
			next = call->next;
			if (lease_call_is_look(call) && !lease_early_look_blind(call))
				batcher.looks_wait = !batch.is_apart;
		}

	/* one of them may be in the way of all others */
	if (status == LEASE_STATUS_CONFLICT && batch.nunanswered > 1)
		careful = batch.nunanswered;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		while (all[i]->tail != NULL)
			lease_call_after_failure(all[i]->tail, status, in_commit);

	/* those who joined a queue did so for what did not come true */
	for (size_t i = 0; i < batch.nnames; i++)
	{
		lease_queue *queue = lease_queue_find(batch.names[i]->name);

		if (queue != NULL)
			queue->due_us = status == LEASE_STATUS_CONFLICT ?
				lease_now() + LEASE_CULPRIT_PAUSE_US : pause_until_us;
	}

	/* nobody can be granted anything while the table fails */
	if (status == LEASE_STATUS_FAILED)
		for (size_t i = 0; i < batch.nnames; i++)
			lease_call_fail_waiters(batch.names[i]->name);
}

/* Answer who wanted the journal to be in the table. */
static void
answer_settled(lease_status status)
{
	lease_call *next;

	for (lease_call *call = lists->at_commit.head; call != NULL; call = next)
	{
		next = call->next;
		if (call->internal != LEASE_INTERNAL_SETTLE)
			continue;
		if (status != LEASE_STATUS_OK)
			lease_call_after_failure(call, status, false);
		else
			lease_call_answer_now(call);
	}
}

/* End a batch that was committed, or had nothing to commit. */
static void
end_batch(bool committed)
{
	if (committed)
	{
		lease_note_written();
		note_ended();
		note_committed();
		if (batch.reaps_more)
			lease_upkeep_reap_soon();
		lease_owed_note_written(batch.moment.now_us);
	}
	for (lease_call *call = lists->at_commit.head; call != NULL;
		 call = call->next)
		if (call->abandoned)
			lease_replays_forget(call);
	while (lists->early.head != NULL)
		lease_call_finish(lists->early.head);
	for (lease_call *call = lists->at_commit.head, *next; call != NULL;
		 call = next)
	{
		next = call->next;
		if (call->internal != LEASE_INTERNAL_SETTLE)
			lease_call_answer_committed(call);
	}
}

/* Read, make, write, commit.  The mutex is held, and released meanwhile. */
static void
run_batch(int64_t now_us)
{
	lease_status status;
	bool		looks;
	bool		changed = false;
	bool		in_commit = false;
	int64_t		took_us = 0;	/* the commit */
	uint64_t	answered;

	if (tenure->reload)
		lease_reload();
	unstall(now_us);
	lease_gather_end(now_us);
	if (!lease_is_early(now_us) && !lease_is_in_doubt() &&
		lists->incoming.head != NULL &&
		lease_call_is_of_owner(lists->incoming.head))
	{
		lease_upkeep_find_leases(lists->incoming.head);
		return;
	}
	collect(now_us);
	if (batch.nunanswered > 0 && !batch.is_early && !batch.is_apart)
		collect_deferred();
	if (lists->taken.head == NULL && batch.nnames == 0)
		return;					/* all were refused */
	looks = only_looks();
	status = read_batch(looks);
	if (batch.read_only)
		lease_note_read_only();
	if (status == LEASE_STATUS_OK && !lease_make_batch())
		status = connection_no_memory(&batcher.connection);
	if (status == LEASE_STATUS_OK)
	{
		if (!batch.needs_commit)
			while (lists->early.head != NULL)
				lease_call_defer(lists->early.head,
								 lists->early.head->retry_us > now_us ?
								 lists->early.head->retry_us :
								 lease_now() + lease_defer_us());
		else
			status = write_batch(&changed);
		if (status != LEASE_STATUS_OK)
			changed = false;
		else if (changed || batcher.connection.in_transaction)
		{
			lease_ask();
			in_commit = changed;
			if (changed)
				status = commit_batch();
			else
				connection_rollback(&batcher.connection);
			took_us = lease_resume();
		}
	}
	answered = lease_calls_answered();
	if (status == LEASE_STATUS_OK)
	{
		end_batch(changed);
		if (changed && careful == 0)
			lease_gather_begin(lease_calls_answered() - answered, took_us);
	}
	else
		fail_batch(status, in_commit);
	batch.had_company = batch.nunanswered > 1 || lists->incoming.head != NULL;
	forget_names();
	if (lists->at_commit.head != NULL)
		answer_settled(lease_checkpoint());
}

/* When the batcher has something to do. */
static int64_t
next_work(int64_t now_us)
{
	int64_t		next_us = batcher.reap_us < batcher.sessions_us ?
		batcher.reap_us : batcher.sessions_us;
	int64_t		queue_us;

	if (lease_is_early(now_us) || lease_is_in_doubt())
	{
		int64_t		end_us = lease_is_in_doubt() ? tenure->ask_lost_us :
			tenure->early_until_us;

		for (const lease_call *call = lists->incoming.head; call != NULL;
			 call = call->next)
			if (can_be_early(call))
				return now_us < pause_until_us ? pause_until_us : now_us;
		return end_us < next_us ? end_us : next_us;
	}
	if (lists->incoming.head != NULL && lease_gather_due_us() < next_us)
		next_us = lease_gather_due_us();
	(void) lease_queue_due(now_us, NULL, 0, &queue_us);
	if (queue_us < next_us)
		next_us = queue_us;
	if (lease_session_keep_us() < next_us)
		next_us = lease_session_keep_us();
	if (lease_checkpoint_due_us() < next_us)
		next_us = lease_checkpoint_due_us();

	/* a caller's next release may come soon, and need not wake us then */
	if (engine.called_us + DEFER_IDLE_US > now_us &&
		engine.called_us + DEFER_IDLE_US < next_us)
		next_us = engine.called_us + DEFER_IDLE_US;
	for (const lease_call *call = lists->deferred.head; call != NULL;
		 call = call->next)
		if (lease_due_us(call) < next_us)
			next_us = lease_due_us(call);
	for (const lease_call *call = lists->stalled.head; call != NULL;
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

	if (batcher.lent_to != NULL || lease_sleeps_until_us() == 0 ||
		batch.had_company || lists->incoming.head != NULL ||
		lists->stalled.head != NULL || lease_waiters_count() > 0 ||
		careful > 0 || pause_until_us > now_us ||
		next_work(now_us) <= now_us ||
		(lease_slow_us() != 0 && now_us < lease_slow_us() + LEND_PAUSE_US) ||
		!lease_early_is_lendable(call))
		return false;

	/* for it to watch in time */
	lease_wake_before(now_us + LEASE_LOOK_INTERVAL_US);
	lease_list_incoming(call);
	batcher.lent_to = call;
	batcher.borrower = dlock_caller_thd();
	batcher.cut = false;
	batcher.watch_us = now_us + LEASE_LOOK_INTERVAL_US;
	run_batch(now_us);
	batcher.lent_to = NULL;
	batcher.borrower = NULL;
	lease_wake_before(next_work(lease_now()));
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
	bool		killed;

	if (now_us < batcher.watch_us)
	{
		lease_sleep_until(batcher.watch_us);
		return;
	}
	batcher.watch_us = now_us + LEASE_LOOK_INTERVAL_US;
	killed = dlock_thd_killed(batcher.borrower);
	if (!batcher.cut && (killed || !dlock_thd_connected(batcher.borrower)))
	{
		lease_call_give_up(batcher.lent_to, !killed);
		connection_interrupt(&batcher.connection);
		batcher.cut = true;
	}
}

/* The batcher: runs until the server ends. */
void *
lease_batch_main(void *arg)
{
	mysql_library_init(0, NULL, NULL);
	image_start(lease_run());
	lease_lock();
	lease_settings_begin();
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
		if (next_us > now_us)
			lease_sleep_until(next_us);
		else if (dlock_server_is_ending() &&
				 (batcher.sessions_us <= now_us || batcher.reap_us <= now_us))
			lease_upkeep_put_off(now_us);
		else if (batcher.sessions_us <= now_us)
			lease_upkeep_sessions();
		else if (lease_is_in_doubt() && tenure->ask_lost_us <= now_us)
			lease_upkeep_ask_lost();
		else if (batcher.reap_us <= now_us)
			lease_upkeep_reap(now_us);
		else if (!lease_is_in_doubt() && lease_session_keep_us() <= now_us)
			lease_session_keep(now_us);
		else if (lease_checkpoint_due_us() <= now_us)
		{
			lease_status status = lease_checkpoint();

			if (status != LEASE_STATUS_OK)
				lease_batch_note_failure(status);
		}
		else
			run_batch(now_us);
	}
	return arg;
}
