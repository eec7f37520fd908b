/*
 * lease_batcher.h
 *	  What the parts of the batcher share.
 *
 * The batcher is one thread, or the caller that it has lent its work to
 * (lease_batch_lend()), wherever it is spoken of.  lease_batch.c collects calls and
 * makes them come true, lease_gather.c waits for more of them, lease_make.c decides
 * what becomes of each, lease_early.c answers without it, lease_checkpoint.c takes
 * the tables over and writes the journal into the lock table, lease_upkeep.c does
 * what nobody has asked for.  Only the batcher touches what is here, except where
 * said, and the calls and queues themselves only with the engine's mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_BATCHER_H
#define DLOCK_LEASE_BATCHER_H

#include "lease_batch.h"
#include "lease_lists.h"
#include "table.h"

/* Most calls in a batch, and most names; more wait for the next. */
#define LEASE_BATCH_CALLS	128
#define LEASE_BATCH_NAMES	256

/* How many names are reaped at a time. */
#define LEASE_REAP_NAMES	(LEASE_BATCH_NAMES / 2)

/* How often to look again at a row that a transaction has locked. */
#define LEASE_LOCKED_RETRY_US	20000

/* After a conflict, after one that a call had all alone, and after an error. */
#define LEASE_CONFLICT_PAUSE_US	2000
#define LEASE_CULPRIT_PAUSE_US	200000
#define LEASE_ERROR_PAUSE_US	100000

/* The calls that go into one commit, and the names that they concern. */
typedef struct lease_batch
{
	image_name **names;
	size_t		nnames;
	size_t		room;			/* names[] */
	lease_bytes *reads;			/* names that have to be read */
	size_t		nreads;
	table_rows	rows;			/* of these */
	table_marks marks;			/* of these */
	journal_changes changes;	/* that may concern these */
	journal_writer journal;		/* what is to be written, */
	table_changes table;		/* or this */
	lease_moment moment;
	bool		direct;			/* changes go into the table at once */
	bool		needs_commit;	/* somebody waits for it */
	bool		read_only;		/* nothing can be written */
	bool		is_blind;		/* the rows were read without locks: nobody knows
								 * which are guarded */
	bool		is_early;		/* nothing can be granted yet: it has looks */
	bool		is_apart;		/* it has looks, since what others want could not be
								 * read with locks */
	bool		had_company;	/* the last had more than one call, or others had
								 * come when it ended */
	size_t		nunanswered;	/* calls that were not answered when taken */
	uint64_t	reaped;
	bool		reaps_more;		/* there may be more that is over */
} lease_batch;

typedef struct lease_batcher
{
	connection	connection;
	bool		looks_wait;		/* the last batch could not be read, and there are
								 * looks */
	lease_call *lent_to;		/* who makes a batch in his own thread, see
								 * lease_batch_lend(); for all, with the mutex */
	struct THD *borrower;		/* whose thread that is */
	bool		cut;			/* the connection was, because of him */
	int64_t		watch_us;		/* when to look at him next */
	int64_t		reap_us;		/* when to reap next */
	int64_t		sessions_us;	/* when to look after sessions next */
} lease_batcher;

extern lease_batch batch;
extern lease_batcher batcher;

/* lease_batch.c */
extern lease_name *lease_batch_find(lease_bytes name);
extern int64_t lease_defer_us(void);
extern int64_t lease_due_us(const lease_call *call);
extern void lease_batch_note_failure(lease_status status);

/* lease_gather.c */
extern void lease_gather_begin(size_t answered, int64_t commit_us);
extern void lease_gather_end(int64_t now_us);
extern int64_t lease_gather_due_us(void);

/* lease_calls.c */
extern void lease_call_finish(lease_call *call);
extern void lease_call_answer_now(lease_call *call);
extern void lease_call_answer_at_commit(lease_call *call);
extern void lease_call_answer_committed(lease_call *call);
extern void lease_count_renewals(const lease_call *call);
extern void lease_call_stall(lease_call *call, int64_t pause_us);
extern void lease_call_defer(lease_call *call, int64_t until_us);
extern void lease_call_put_back(lease_call *call);
extern void lease_call_fail_by_table(lease_call *call);
extern void lease_call_fail_by_memory(lease_call *call);
extern void lease_call_fail_waiters(lease_bytes name);
extern void lease_call_fail_late(void);
extern void lease_call_after_failure(lease_call *call, lease_status status,
									 bool in_commit);
extern int64_t lease_pause_of(lease_status status);

/* lease_make.c */
extern bool lease_make_batch(void);

/* lease_early.c */
extern bool lease_early_fill(lease_name *name, const lease_request *request,
							 const dlock_caller *caller,
							 const lease_moment *moment, bool is_blind,
							 dlock_answer *answer);
extern bool lease_early_is_lendable(const lease_call *call);
extern bool lease_early_refuse_call(lease_call *call);
extern bool lease_early_could_be_granted(const lease_call *call);
extern bool lease_early_have_ended(image_name *entry, uint64_t youngest,
								   const lease_moment *moment);

/* lease_checkpoint.c */
extern bool lease_apply_change(const journal_change *change, int64_t now_us);
extern lease_status lease_take_tables(void);
extern lease_status lease_checkpoint(void);

/* lease_upkeep.c */
extern lease_status lease_upkeep_prepare(void);
extern lease_status lease_upkeep_prepare_to_look(void);
extern void lease_upkeep_ask_lost(void);
extern void lease_upkeep_find_leases(lease_call *call);
extern void lease_upkeep_sessions(void);
extern void lease_upkeep_reap(int64_t now_us);
extern void lease_upkeep_put_off(int64_t now_us);
extern void lease_upkeep_reap_soon(void);
extern void lease_upkeep_look_soon(void);

#endif							/* DLOCK_LEASE_BATCHER_H */
