/*
 * lease_batch.c
 *	  The batcher: makes the calls of all connections, many in one commit.
 *
 * A batch is some calls and the names they concern.  The batcher reads the rows
 * of the names that are not known, applies the calls in their order, writes what
 * has changed and commits once for all of them; then it answers.  While it
 * waits for the disk, the next calls gather.
 *
 * What is answered when:
 *
 * - what changes nothing (a refusal, a look): as soon as it is known;
 * - a release: as soon as it is known, before it is written.  If no other call
 *   needs a commit, it is put off for a moment, so that several of them go
 *   into one commit.  Until it has been written it comes first in each batch
 *   that concerns its name, so that all later calls find the name free;
 * - all else: when it has been committed.
 *
 * When a commit fails because of a conflict with another server or a lock,
 * everything not yet answered is put back where it came from.  When a session has
 * locked the server against writing, it is an error instead, and what only had to
 * be read is answered.  When the connection is lost in a commit, nobody knows
 * whether it took place: the callers that wait for it are told so, and a release is
 * written again unless it was written already.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_batch.h"

#include <inttypes.h>
#include <mysql.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "image.h"
#include "image_marks.h"
#include "lease_call_end.h"
#include "lease_checkpoint.h"
#include "lease_early.h"
#include "lease_guards.h"
#include "lease_lists.h"
#include "lease_log.h"
#include "lease_make.h"
#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_name.h"
#include "lease_owed.h"
#include "lease_owned.h"
#include "lease_pace.h"
#include "lease_reaper.h"
#include "lease_renewals.h"
#include "lease_replays.h"
#include "lease_server.h"
#include "lease_session.h"
#include "lease_settings.h"
#include "lease_stats.h"
#include "lease_take_over.h"
#include "lease_tenure.h"
#include "lease_upkeep.h"
#include "lease_waiters.h"
#include "mysql_compat.h"
#include "table.h"
#include "udf_text.h"

/*
 * Most names of a call for all leases of an owner that go into one commit: of a renewal
 * that one entry of the journal may stand for, and of one that writes each lease.  The
 * latter are no more than a checkpoint's piece has, since calls for other names wait for
 * them.
 */
#define SLICE_RENEWED	10000
#define SLICE			200

/* What goes into one commit.  Its calls are in lists of their own (lease_lists.h). */
static lease_to_make batch;
static size_t names_room;
static size_t reads_room;		/* of the names to be read, for as many as it has */
static size_t nunanswered;		/* calls that were not answered when taken */
static bool writes_deferred;	/* releases that were put off are to be written now */
static bool is_apart;			/* it has only looks, and reads without locks: a commit
								 * is in doubt, or rows could not be locked */
static bool is_shut;			/* nothing of it can be written: a session has locked the
								 * table or the server against that */
static bool is_short;			/* for want of memory it lacks calls for which nobody
								 * waits, or queues */

/* What has to be read for it. */
static struct
{
	lease_bytes *names;
	size_t		count;
	bool		knows_all;		/* of them, except which rows are still locked */
	table_rows	rows;
	table_marks marks;
	journal_changes changes;	/* that may concern them */
}			reading;

/* What has come of its calls, and what is to be written, to the journal or the table. */
static lease_made made;
static journal_writer journal;
static table_changes table;

static bool looks_wait = false; /* the last batch could not be read, and there are
								 * looks */

/* After how long a server that does not answer counts as stuck. */
#define STUCK_US		1000000

/*
 * While the server is locked against writing, the batcher cannot find out which rows
 * guards have locked.  A try takes a second, in which nothing else is done.  So for looks
 * it does not try again for BLIND_US; rows that may be locked count as locked.  It still
 * tries for other calls, which would otherwise be refused because of a guard that has
 * ended; and in a cluster, where looks are to show what the others do once the lock is
 * gone.
 */
#define BLIND_US		3000000

/* Buckets of the names of the calls that are yet to be made. */
static bool wanted[LEASE_BUCKETS];

static int64_t blind_until_us = 0;

/* Say whether the batch has a name. */
static bool
has_name(lease_bytes bytes)
{
	const image_name *name = image_find(bytes);

	return name != NULL && name->in_batch;
}

/*
 * Add a name to the batch, for a call that "releases" or one that does not: false if
 * memory is short.
 */
static bool
add_name(lease_bytes bytes, bool releases)
{
	image_name *name = image_get(bytes);

	if (name == NULL)
		return false;
	if (!name->in_batch)
	{
		if (!array_reserve(&batch.names, &names_room, batch.nnames + 1, sizeof(image_name *)) ||
			!array_reserve(&reading.names, &reads_room, batch.nnames + 1, sizeof(lease_bytes)))
			return false;
		batch.names[batch.nnames++] = name;
	}
	image_pin(name, releases);
	return true;
}

/* Free the drafts of the batch, and let go of its names.  The mutex is held. */
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
 * Say whether a call waits for a server that does not answer: to be made or written, or
 * in line for a name that may be free.  For any thread, with the mutex held.
 */
bool
lease_batch_keeps_waiting(const lease_call *call)
{
	if (call->place == LEASE_PLACE_LINE)
		return is_stuck() && lease_early_could_be_granted(call);
	return (call->place == LEASE_PLACE_LIST || call->list == &lists->taken ||
			call->list == &lists->at_commit) && is_stuck();
}

/* How many names of a call go into the batch. */
static size_t
get_slice(const lease_call *call)
{
	size_t		left = call->nnames - call->waits_for;

	if (call->kind != DLOCK_CALL_APPLY_ALL)
		return call->nnames;
	if (call->request.op == LEASE_RENEW && call->nnames <= SLICE_RENEWED &&
		!lease_is_direct())
		return left;
	return left < SLICE ? left : SLICE;
}

/* Say whether a caller gives a lease back. */
static bool
is_release(const lease_call *call)
{
	return call->kind == DLOCK_CALL_APPLY &&
		call->internal == LEASE_INTERNAL_NONE &&
		call->request.op == LEASE_RELEASE;
}

/*
 * Take a call into the batch.  False if there is no room, unless it "must" be taken, or
 * no memory; then a call that was not answered gets the error.
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
		if (!add_name(call->names[i], is_release(call)))
		{
			if (call->answered)
				is_short = true;
			else
				lease_call_fail_by_memory(call);
			return false;
		}
	call->slice = slice;
	nunanswered += !call->answered;
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
 * Say whether a call or a waiter wants a name.  Few of the names that were given back are
 * wanted, so collect_releases() has noted the buckets of those that calls want.
 */
static bool
is_wanted(lease_bytes name)
{
	return (wanted[lease_bucket(name)] &&
			(lease_calls_concern(&lists->incoming, name) ||
			 lease_calls_concern(&lists->stalled, name))) ||
		(lease_waiters_count() > 0 && lease_queue_find(name) != NULL);
}

/*
 * Say whether to take a release that was put off, although no call wants its name.  A
 * release that waits for company is taken if "write" says that these are to be written.
 * One whose row was locked is tried again at its time, but not all of these at once.
 */
static bool
is_time(const lease_call *call, bool write, int64_t now_us)
{
	return call->unwritten ? write : call->retry_us <= now_us &&
		batch.nnames < LEASE_BATCH_NAMES / 4;
}

/*
 * Have stalled calls made from the beginning, like new ones, if their names were not
 * looked up yet, or they have none.
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
 * Collect only looks.  They are answered also while nothing can be granted, or the
 * server is locked against writing.
 */
static void
collect_looks(void)
{
	lease_call *next;

	for (lease_call *call = lists->incoming.head; call != NULL; call = next)
	{
		next = call->next;
		if (lease_can_be_early(call))
			(void) take(call, false);
	}
}

/*
 * Collect the releases that were put off and are to be written now.  They come before the
 * calls that were not answered yet.
 */
static void
collect_releases(int64_t now_us)
{
	bool		write = lease_must_write(now_us);
	lease_call *next;

	memset(wanted, false, sizeof(wanted));
	want(&lists->incoming);
	want(&lists->stalled);
	for (lease_call *call = lists->deferred.head; call != NULL; call = next)
	{
		bool		is_first = is_wanted(call->names[0]);

		next = call->next;
		if (!is_first && !is_time(call, write, now_us))
			continue;
		writes_deferred |= write && call->unwritten;
		(void) take(call, is_first);
	}
}

/*
 * Have some of what is to be done about sessions made before the calls that have come,
 * unless the last batch has left some of it.
 */
static void
add_session_calls(int64_t now_us)
{
	const lease_call *first = lists->incoming.head;
	lease_calls calls = {0};

	if (lease_session_due_us() > now_us || lease_is_early(now_us) ||
		lease_is_in_doubt() ||
		(first != NULL && (first->internal == LEASE_INTERNAL_END_SESSION ||
						   first->internal == LEASE_INTERNAL_KEEP)))
		return;
	lease_session_give(now_us, LEASE_BATCH_SESSIONS, &calls);
	while (calls.tail != NULL)
		lease_list_incoming_first(calls.tail);
}

/*
 * Collect the calls and names of a batch.  The mutex is held.
 *
 * However many releases come first, the first call that was not answered is taken with
 * them; otherwise it might never be made.  So are the engine's own calls before it, up to
 * LEASE_BATCH_CALLS; a batch adds at most LEASE_BATCH_SESSIONS.
 */
static void
collect(int64_t now_us)
{
	lease_queue *due[LEASE_BATCH_NAMES / 4];
	size_t		ndue;
	int64_t		next_us;
	size_t		most;
	size_t		count;
	lease_call *next;

	writes_deferred = false;
	batch.read_only = false;
	batch.is_blind = false;
	is_shut = false;
	is_short = false;
	batch.can_grant = !lease_is_early(now_us) && !lease_is_in_doubt();
	is_apart = lease_is_in_doubt() || (looks_wait && batch.can_grant);
	looks_wait = false;
	nunanswered = 0;
	if (!batch.can_grant || is_apart)
	{
		collect_looks();
		batch.can_grant &= lists->taken.head == NULL;
		if (!batch.can_grant)
			return;
		is_apart = false;
	}
	most = lease_most_calls();
	collect_releases(now_us);
	ndue = lease_queue_due(now_us, due, sizeof(due) / sizeof(due[0]),
						   &next_us);
	for (size_t i = 0; i < ndue; i++)
		is_short |= !add_name(due[i]->name, false);
	for (lease_call *call = lists->stalled.head; call != NULL; call = next)
	{
		next = call->next;
		if (call->retry_us <= now_us &&
			(nunanswered >= most ||
			 !take(call, nunanswered == 0)))
			break;
	}
	count = lists->taken.count;
	for (lease_call *call = lists->incoming.head;
		 call != NULL && nunanswered < most &&
		 lists->taken.count < LEASE_BATCH_CALLS + (nunanswered == 0 ? count : 0);
		 call = next)
	{
		next = call->next;
		if (lease_early_refuse_call(call))
			continue;

		/* of a call on all leases of an owner the names come first */
		if (lease_call_is_of_owner(call) || !take(call, nunanswered == 0))
			break;
	}
}

/*
 * Collect the other releases that were put off, too: if something is written anyway, they
 * cost next to nothing.  No call of the batch wants their names.
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
	return !batch.can_grant || lease_waiters_count() == 0;
}

/*
 * Say whether all rows of a name were locked when they were last read with locks, in this
 * generation.  Then the name can be decided by what is known: some rows may be locked no
 * more, but they count as locked until they are read again.
 */
static bool
is_all_locked(const image_name *name)
{
	for (size_t i = 0; i < name->nrows; i++)
		if (!name->rows[i].locked)
			return false;
	return true;
}

/*
 * Note which names have to be read: those that are not known, or whose rows a
 * transaction may have locked; and all, where changes go into the table at once.  What was
 * read for the batch before is forgotten: a batch without names raises no mark.  The mutex
 * is held.
 */
static void
find_reads(void)
{
	reading.count = 0;
	memset(&reading.marks, 0, sizeof(reading.marks));
	batch.direct = lease_is_direct();
	reading.knows_all = !batch.direct;
	for (size_t i = 0; i < batch.nnames; i++)
	{
		const image_name *name = batch.names[i];
		bool		is_known = image_is_known(name->name);

		if (!batch.direct && is_known &&
			(name->unguarded || name->nrows == 0 ||
			 (name->only_released && is_all_locked(name) &&
			  lease_queue_find(name->name) == NULL)))
			continue;			/* a release need not know which rows are still locked */
		reading.names[reading.count++] = name->name;
		reading.knows_all &= is_known && is_all_locked(name);
	}
}

/*
 * Where changes go into the table at once: the run that was the last to raise the marks,
 * if none has taken over since.  0: the members of a cluster all write, and each has
 * raised them.
 */
static uint64_t
get_raiser(const connection *c)
{
	return connection_is_member(c) ? 0 : lease_run();
}

/* Read what was found to be needed; "looks" says that nothing is to be written. */
static lease_status
read_names(bool looks)
{
	connection *c = lease_server_connection();
	bool		locks = !is_apart && !batch.read_only && !is_shut &&
		!(looks && !connection_is_member(c) && lease_now() < blind_until_us);
	lease_status status = LEASE_STATUS_OK;

	/* the journal first: what a checkpoint moves in between is found in the table */
	if (!tenure->has_taken_over)
		status = table_read_journals(c, &reading.changes);
	if (status == LEASE_STATUS_OK && locks)
	{
		status = table_read(c, reading.names, reading.count, true, &reading.rows);
		is_shut = status == LEASE_STATUS_CONFLICT && c->is_shut;
	}
	if (status == LEASE_STATUS_OK && locks && batch.direct)
		status = table_read_marks(c, reading.names, reading.count,
								  tenure->has_journal, get_raiser(c),
								  &reading.marks);
	if (is_shut)
		blind_until_us = lease_now() + BLIND_US;
	batch.read_only |= status == LEASE_STATUS_FAILED && c->is_refusal;
	batch.is_blind = !locks || batch.read_only || is_shut ||
		(looks && status == LEASE_STATUS_CONFLICT);
	if (batch.is_blind)
	{
		/* nobody waits for a lock of the table */
		table_free_rows(&reading.rows);
		status = is_shut ? LEASE_STATUS_OK : table_catch_up(c);
		if (status == LEASE_STATUS_CONFLICT && c->is_shut)
			status = LEASE_STATUS_OK;
		if (status == LEASE_STATUS_OK && batch.direct && tenure->has_journal)
			status = table_read_journals(c, &reading.changes);
		if (status == LEASE_STATUS_OK)
			status = table_read(c, reading.names, reading.count, false,
								&reading.rows);
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

	for (size_t i = 0; i < reading.count; i++)
	{
		image_name *name = image_find(reading.names[i]);
		size_t		count;
		size_t		first = table_find_rows(&reading.rows, name->name, &count);
		lease_row  *rows = reading.rows.rows + first;

		/* a read without locks ends no guard */
		if (batch.is_blind && image_is_known(name->name))
			continue;
		lease_guards_lock(rows, count, now_us);
		if (image_is_known(name->name))
		{
			if (!image_probe(name, rows, count))
				return connection_edited(lease_server_connection());
		}
		else if (!image_know(name, rows, count, !batch.is_blind, now_us))
			return connection_no_memory(lease_server_connection());
	}
	for (size_t i = 0; i < reading.changes.count; i++)
	{
		const journal_change *change = &reading.changes.changes[i];

		if ((change->kind == JOURNAL_RENEW_ALL ||
			 has_name(change->row.name)) &&
			!lease_apply_change(change, now_us))
			return connection_no_memory(lease_server_connection());
	}
	/* as a take-over would */
	if (!tenure->has_taken_over || reading.changes.count > 0)
		for (size_t i = 0; i < reading.count; i++)
			(void) image_settle_name(image_find(reading.names[i]));
	for (uint32_t b = 0; b < LEASE_BUCKETS; b++)
		if (reading.marks.known[b])
			image_mark_read(b, reading.marks.marks[b]);
	return LEASE_STATUS_OK;
}

/* Read what has to be read, and learn it.  The mutex is held, and released meanwhile. */
static lease_status
read_batch(bool looks)
{
	lease_status status = LEASE_STATUS_OK;

	if (lease_server_connection()->mysql == NULL || !lease_settings_are_read() ||
		(!looks && !tenure->has_taken_over))
	{
		lease_ask();
		status = lease_is_in_doubt() ? lease_server_prepare_to_look() :
			lease_server_prepare();
		if (status == LEASE_STATUS_OK && !looks && !tenure->has_taken_over)
			status = lease_take_tables();
		(void) lease_resume();
		if (status == LEASE_STATUS_FAILED && lease_server_connection()->is_refusal)
		{
			/* looks are still answered */
			batch.read_only = true;
			status = LEASE_STATUS_OK;
		}
		if (status == LEASE_STATUS_CONFLICT && lease_server_connection()->is_shut)
		{
			/* nor is a release kept waiting */
			is_shut = true;
			status = LEASE_STATUS_OK;
		}
	}
	find_reads();
	if (status != LEASE_STATUS_OK || reading.count == 0)
		return status;
	if (looks && reading.knows_all && lease_now() < blind_until_us)
	{
		batch.is_blind = true;
		return LEASE_STATUS_OK;
	}
	lease_ask();
	status = read_names(looks);
	(void) lease_resume();
	if (status == LEASE_STATUS_OK)
		status = know_names();
	table_free_rows(&reading.rows);
	journal_free(&reading.changes);
	return status;
}

/* Collect what the drafts have changed, for the journal. */
static void
write_to_journal(void)
{
	journal_begin(&journal, lease_run(), lease_server_connection()->max_packet);
	for (const lease_call *call = lists->at_commit.head; call != NULL;
		 call = call->next)
		if (call->kind == DLOCK_CALL_APPLY_ALL && call->renews_all)
			journal_renew_all(&journal, &(lease_row) {
				.owner = call->request.owner,
				.user = dlock_caller_user(&call->caller),
				.host = dlock_caller_host(&call->caller),
				.ttl_us = call->request.ttl_us,
				.expires_us = made.moment.wall_us + call->request.ttl_us,
			}, made.moment.now_us);
	for (size_t i = 0; i < batch.nnames; i++)
	{
		lease_name *name = batch.names[i]->draft;

		if (!lease_name_will_write(name, &made.moment))
			continue;
		lease_name_assign_slots(name, &made.moment);
		for (size_t m = 0; m < name->count; m++)
		{
			const lease_member *member = &name->members[m];
			lease_row	row;

			if (!member->changed || (member->gone && m >= name->nknown))
				continue;
			row = image_row_of(name->entry, member, made.moment.now_us,
							   made.moment.wall_us);
			if (member->gone)
				journal_remove(&journal, row.name, row.token);
			else
				journal_put(&journal, &row);
		}
	}
	journal_end(&journal);
}

/* The same for the table. */
static void
write_to_table(void)
{
	table_begin(&table, lease_server_connection()->max_packet / 2);
	for (size_t i = 0; i < batch.nnames; i++)
	{
		lease_name *name = batch.names[i]->draft;
		const image_row *anchor;
		bool		writes_anchor = false;

		/* changes that cannot be written are releases, which are put off */
		if (!lease_name_will_write(name, &made.moment))
			continue;
		lease_name_assign_slots(name, &made.moment);
		image_note_staying(name->entry, name->members, name->count);
		for (size_t r = 0; r < name->entry->nrows; r++)
		{
			const image_row *row = &name->entry->rows[r];

			if (!row->stays && !row->locked)
				table_delete(&table, name->name, row->slot);
		}
		for (size_t m = 0; m < name->count; m++)
		{
			const lease_member *member = &name->members[m];
			lease_row	row;

			if (member->gone || member->locked || !member->changed)
				continue;
			writes_anchor |= member->slot == 0;
			row = image_row_of(name->entry, member, made.moment.now_us,
							   made.moment.wall_us);
			if (image_row_at(name->entry, row.slot) != NULL)
				table_put(&table, &row, true);
			else
				table_insert(&table, &row);
		}
		anchor = image_row_at(name->entry, 0);
		if (!writes_anchor && anchor != NULL && anchor->stays)
			table_touch(&table, name->name);
	}
	for (uint32_t b = 0; b < LEASE_BUCKETS; b++)
		if (reading.marks.known[b] && image_mark(b) > reading.marks.marks[b])
			table_set_mark(&table, b, reading.marks.marks[b],
						   image_mark(b));
}

/*
 * Collect what the batch has changed; *changed says whether there is anything.  The
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
	failed = batch.direct ? table.failed : journal.failed;
	for (size_t i = 0; i < batch.nnames; i++)
		failed |= batch.names[i]->draft->failed;
	*changed = !failed && (batch.direct ? !table_is_empty(&table) :
						   !journal_is_empty(&journal));
	return failed ? connection_no_memory(lease_server_connection()) :
		LEASE_STATUS_OK;
}

/* Write what was collected, and commit.  The mutex is not held. */
static lease_status
commit_batch(void)
{
	connection *c = lease_server_connection();
	lease_status status = connection_refuse_if_read_only(c);

	if (status != LEASE_STATUS_OK)
		return status;
	if (!batch.direct)
		return table_append(c, lease_run(), tenure->number + 1,
							&journal);
	status = table_execute(c, &table);
	return status == LEASE_STATUS_OK ? connection_commit(c) : status;
}

/* Bring the image up to what has been committed.  The mutex is held. */
static void
note_committed(void)
{
	if (!batch.direct)
		lease_note_appended(journal.rows.count,
							journal_bytes(&journal));
	for (const lease_call *call = lists->at_commit.head; call != NULL;
		 call = call->next)
		if (call->kind == DLOCK_CALL_APPLY_ALL && call->renews_all)
			lease_renewals_add(call, made.moment.now_us);
	for (size_t i = 0; i < batch.nnames; i++)
	{
		lease_name *name = batch.names[i]->draft;

		if (lease_name_will_write(name, &made.moment))
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

	lease_log("dlock: lease on \"%s\" expired while owner \"%s\" held it; "
			  "token %" PRIu64 ", account '%s'@'%s', connection %" PRIu64 "\n",
			  dlock_show(shown_name, name),
			  dlock_show(shown_owner, holder->owner), holder->token,
			  dlock_show(shown_user, holder->account->user),
			  dlock_show(shown_host, holder->account->host),
			  holder->connection_id);
}

/*
 * After a commit: count and log what has expired, and note which session leases
 * have ended, or live and have been written.
 */
static void
note_ended(void)
{
	uint64_t	expired = 0;

	for (size_t i = 0; i < batch.nnames; i++)
	{
		const lease_name *name = batch.names[i]->draft;

		if (!lease_name_will_write(name, &made.moment))
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
				lease_session_remove(member->holder->connection_id,
									 member->holder->token, name->name);
			if (!member->expired)
				continue;
			expired++;
			if (settings->log_expired)
				log_expired(name->name, member->holder);
		}
	}
	lease_count(LEASE_COUNT_expired, expired);
	lease_count(LEASE_COUNT_reaped, made.reaped);
}

/* Say whether a batch that failed had only one call that could be in the way. */
static bool
is_alone(void)
{
	return nunanswered == 1 && !looks_wait;
}

/* End a batch that failed.  The mutex is held. */
static void
fail_batch(lease_status status, bool in_commit)
{
	/* from the last to the first, since each is put before the others */
	const lease_calls *const all[] = {&lists->taken, &lists->at_commit, &lists->early};
	const connection *c = lease_server_connection();
	lease_failure failure = {.status = status,.in_commit = in_commit};

	/*
	 * No guard is in the way of the journal.  So a session has locked the whole server,
	 * for a backup say, or is about to; or a transaction has locked rows, as a
	 * serializable one does that has read dlock.locks.
	 */
	failure.is_shut = status == LEASE_STATUS_CONFLICT && in_commit &&
		(c->is_shut || (c->is_locked && !lease_is_direct()));
	if (status != LEASE_STATUS_EARLY)
		lease_note_failure(status);

	/* a look need not wait until rows can be locked */
	if (status == LEASE_STATUS_CONFLICT && !in_commit && c->is_locked)
		for (lease_call *call = lists->taken.head, *next; call != NULL;
			 call = next)
		{
			next = call->next;
			if (lease_call_is_look(call) && !lease_early_look_blind(call))
				looks_wait = !is_apart;
		}

	failure.is_alone = is_alone();

	/* one of them may be in the way of all others */
	if (status == LEASE_STATUS_CONFLICT && nunanswered > 1 && !failure.is_shut)
		lease_be_careful(nunanswered);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		while (all[i]->tail != NULL)
			lease_call_after_failure(all[i]->tail, &failure);

	/* calls may wait for what was granted to others and not committed */
	for (size_t i = 0; i < batch.nnames; i++)
	{
		lease_queue *queue = lease_queue_find(batch.names[i]->name);

		if (queue != NULL)
			lease_queue_look_at(queue, status == LEASE_STATUS_CONFLICT ?
								lease_now() + LEASE_CULPRIT_PAUSE_US :
								lease_pause_until_us());
	}

	/* nothing can be granted while the table fails */
	if (status == LEASE_STATUS_FAILED)
		for (size_t i = 0; i < batch.nnames; i++)
			lease_call_fail_waiters(batch.names[i]->name);
}

/*
 * Memory was too short to collect any call.  Those for which nobody waits stay, and so do
 * the queues that are due: they are tried again after a pause.  The calls behind them are
 * not kept waiting for that.
 */
static void
fail_collecting(void)
{
	lease_note_failure(connection_no_memory(lease_server_connection()));
	lease_call_fail_all_by_memory();
	forget_names();
}

/*
 * A call that settles was made, so all that was answered before it is in the journal, or
 * in the table.  Answer it when the journal has been applied up to there.  If this run has
 * not taken over, the server is read-only, and nothing can be applied.
 */
static void
settle(lease_call *call)
{
	if (call->settles == 0)
		call->settles = tenure->number;
	if (!tenure->has_taken_over || lease_applied() >= call->settles)
		lease_call_answer_now(call);
	else
	{
		lease_checkpoint_soon();
		lease_list_stalled(call, lease_now() + LEASE_LOCKED_RETRY_US);
	}
}

/* A piece of a checkpoint was written, or failed: see to the calls that wait for it. */
static void
settle_stalled(lease_status status)
{
	lease_call *next;

	if (status == LEASE_STATUS_OK && !tenure->has_taken_over)
		return;					/* all was forgotten: the calls are made again */
	for (lease_call *call = lists->stalled.head, *last = lists->stalled.tail;
		 call != NULL; call = call == last ? NULL : next)
	{
		next = call->next;
		if (call->internal != LEASE_INTERNAL_SETTLE)
			continue;
		lease_list_none(call);
		if (status == LEASE_STATUS_OK)
			settle(call);
		else
		{
			call->settles = 0;
			lease_call_after_failure(call, &(lease_failure) {
				.status = status,.is_alone = true
			});
		}
	}
}

/*
 * End a batch that was committed, or had nothing to commit.  Returns how many callers were
 * answered now.
 */
static size_t
end_batch(bool committed)
{
	size_t		answered = 0;

	if (committed)
	{
		lease_note_written();
		note_ended();
		note_committed();
		if (made.reaps_more)
			lease_reap_soon();
		lease_owed_note_written(lease_now());
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
		if (call->internal == LEASE_INTERNAL_SETTLE)
		{
			settle(call);
			continue;
		}
		answered += !call->answered;
		lease_call_answer_committed(call);
	}
	return answered;
}

/* Say whether what was made has to be committed now. */
static bool
needs_commit(void)
{
	return made.needs_commit || writes_deferred ||
		lists->at_commit.head != NULL;
}

/* Read, make, write, commit.  The mutex is held, and released meanwhile. */
static void
run_batch(int64_t now_us)
{
	lease_status status;
	bool		looks;
	bool		changed = false;
	int64_t		took_us = 0;	/* the commit */

	if (tenure->reload)
		lease_reload();
	unstall(now_us);
	lease_gather_end(now_us);
	if (!lease_is_early(now_us) && !lease_is_in_doubt() &&
		lists->incoming.head != NULL &&
		lease_call_is_of_owner(lists->incoming.head))
	{
		lease_owned_find(lists->incoming.head);
		return;
	}
	add_session_calls(now_us);
	collect(now_us);
	if (nunanswered > 0 && batch.can_grant)
		collect_deferred();
	if (lists->taken.head == NULL && is_short)
	{
		fail_collecting();
		return;
	}
	if (lists->taken.head == NULL && batch.nnames == 0)
		return;					/* all were refused */
	looks = only_looks();
	status = read_batch(looks);
	if (batch.read_only)
		lease_note_read_only();
	batch.is_stale = is_shut && connection_is_member(lease_server_connection());
	if (status == LEASE_STATUS_OK && !lease_make_batch(&batch, &made))
		status = connection_no_memory(lease_server_connection());
	if (status == LEASE_STATUS_OK && needs_commit() && is_shut)
	{
		/* it is known to fail; and what is not taken over must not be written */
		status = LEASE_STATUS_CONFLICT;
		changed = true;
	}
	else if (status == LEASE_STATUS_OK && needs_commit())
		status = write_batch(&changed);
	else if (status == LEASE_STATUS_OK)
		while (lists->early.head != NULL)
			lease_call_defer(lists->early.head,
							 lists->early.head->retry_us > now_us ?
							 lists->early.head->retry_us :
							 lease_now() + lease_defer_us());
	if (status == LEASE_STATUS_OK &&
		(changed || lease_server_connection()->in_transaction))
	{
		lease_ask();
		if (changed)
			status = commit_batch();
		else
			connection_rollback(lease_server_connection());
		took_us = lease_resume();
	}
	if (status == LEASE_STATUS_OK)
	{
		size_t		answered = end_batch(changed);

		if (changed)
			lease_gather_begin(answered, took_us);
	}
	else
	{
		/* a checkpoint would fail, too, and keep everybody waiting meanwhile */
		if (status == LEASE_STATUS_CONFLICT &&
			lease_server_connection()->is_locked)
			lease_checkpoint_later();
		fail_batch(status, changed);
	}
	lease_pace_note_company(nunanswered > 1 ||
							lists->incoming.head != NULL);
	forget_names();
}

/* When the work is due that no call asks for. */
static int64_t
unasked_us(void)
{
	return lease_earlier(lease_log_due_us(),
						 lease_earlier(lease_reap_due_us(),
									   lease_upkeep_due_us()));
}

/* ----------------------------------------------------------------
 * Lending
 * ----------------------------------------------------------------
 */

static lease_call *lent_to = NULL;	/* its caller makes a batch in its own thread */
static struct THD *borrower = NULL; /* whose thread that is */
static bool cut = false;		/* the connection was, because of that caller */
static int64_t watch_us = 0;	/* when to look at the caller next */

/*
 * Make a call in its caller's own thread: true.  The mutex is held, and released
 * meanwhile.
 *
 * Where few call at a time, most calls find the batcher asleep.  To wake it, and to be
 * woken by it, takes longer than its own work for a call, without the wait for the
 * server.  So an acquire that needs only one commit, and no reading, is made by its
 * caller, with what was put off.  The batcher touches nothing until that is over.  It
 * checks whether the call is still wanted (watch_borrower()), since the caller cannot
 * while it waits for the server.
 *
 * A caller that is given up in a slow commit costs the others the connection.  So nothing
 * is lent for a while after the server was slow.
 *
 * All of this runs on the stack of a session of the server, of which little may be left:
 * it does not connect.  The batcher writes what it has for the error log.
 */
bool
lease_batch_lend(lease_call *call)
{
	int64_t		now_us = lease_now();

	if (!lease_can_lend(now_us, unasked_us()) ||
		!lease_early_is_lendable(call))
		return false;

	/* so that the batcher watches in time */
	lease_wake_before(now_us + LEASE_LOOK_INTERVAL_US);
	lease_list_incoming(call);
	lease_pace_lend(true);
	lent_to = call;
	borrower = dlock_caller_thd();
	cut = false;
	watch_us = now_us + LEASE_LOOK_INTERVAL_US;
	run_batch(now_us);
	lent_to = NULL;
	borrower = NULL;
	lease_pace_lend(false);
	lease_wake_before(lease_next_us(lease_now(), unasked_us()));
	return true;
}

/*
 * While a caller makes a batch: check whether its statement was killed, or its client is
 * gone.  If so, answer the call, and cut the connection, so that the caller goes on.
 * The mutex is held, and released while the batcher sleeps.
 *
 * The mutex is held for the look, so that the session stays.  The servers take no lock
 * for that: they look at a flag, and at the socket.
 */
static void
watch_borrower(void)
{
	int64_t		now_us = lease_now();
	bool		killed;

	if (now_us < watch_us)
	{
		lease_sleep_until(watch_us);
		return;
	}
	watch_us = now_us + LEASE_LOOK_INTERVAL_US;
	killed = dlock_thd_killed(borrower);
	if (!cut && (killed || !dlock_thd_connected(borrower)))
	{
		lease_call_give_up(lent_to, LEASE_GIVEN_UP, lease_given_up(!killed));
		connection_interrupt(lease_server_connection());
		cut = true;
	}
}

/* The batcher: runs until the server ends. */
void *
lease_batch_main(void *arg)
{
	bool		wrote_piece = false;	/* of a checkpoint: now it is the calls' turn */

	mysql_library_init(0, NULL, NULL);
	image_start(lease_run());
	lease_lock();
	lease_settings_begin();
	for (;;)
	{
		int64_t		now_us = lease_now();
		int64_t		next_us;

		if (lent_to != NULL)
		{
			watch_borrower();
			continue;
		}
		next_us = lease_next_us(now_us, unasked_us());
		if (next_us > now_us)
			lease_sleep_until(next_us);
		else if (lease_log_due_us() <= now_us)
			lease_log_write();
		else if (dlock_server_is_ending() &&
				 (lease_upkeep_due_us() <= now_us || lease_reap_due_us() <= now_us))
			lease_upkeep_put_off(now_us);
		else if (lease_upkeep_due_us() <= now_us)
			lease_upkeep();
		else if (lease_is_in_doubt() && tenure->ask_lost_us <= now_us)
			lease_take_over_lost();
		else if (lease_reap_due_us() <= now_us)
			lease_reap(now_us);
		else if (lease_checkpoint_due_us() <= now_us && !wrote_piece)
		{
			lease_status status = lease_checkpoint();

			if (status != LEASE_STATUS_OK)
				lease_note_failure(status);
			settle_stalled(status);
			wrote_piece = status == LEASE_STATUS_OK;
		}
		else
		{
			run_batch(now_us);
			wrote_piece = false;
		}
	}
	return arg;
}
