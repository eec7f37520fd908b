/*
 * lease_call.h
 *	  Requests: on one name, on many, on all of an owner, of a session, of nobody.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_CALL_H
#define DLOCK_CALL_H

#include "compat.h"
#include "lease.h"
#include "nodes/pg_list.h"
#include "wait/lease_wait.h"

/* ----------------------------------------------------------------
 * The holders of a name: gather them from a bucket, write them back.
 * ----------------------------------------------------------------
 */

/* Holders of a name that need no memory of their own. */
#define LEASE_ROWS_INLINE	4

extern bool lease_log_expired;	/* dlock.log_expired */

/* Where a row is; an invalid block: a guard or a crowd, and no row. */
typedef struct RowPlace
{
	BlockNumber block;
	OffsetNumber offset;
	XLogRecPtr	lsn;			/* of its page */
	Oid			role;			/* of the holder */
	uint32		chain;			/* the next row with a token like this; see
								 * lease_rows.c */
} RowPlace;

/* One call of a function, over all its attempts. */
typedef struct LeaseCall
{
	Relation	rel;
	LeaseDatabase *db;
	lease_request request;
	LeaseRequester requester;
	lease_bytes name;
	uint32		hash;			/* of the name */

	Oid			unknown_role;	/* met by this attempt; InvalidOid: none */

	/* the rows this attempt has gathered; holders[count] is spare */
	BlockNumber bucket_block;
	int64		now_us;			/* lease clock, read under the bucket's lock */
	uint32		pokes;			/* lease_queue_pokes() before the look */
	MemoryContext memory;		/* of this attempt's rows; NULL: none needed */
	lease_holder *holders;
	RowPlace   *places;
	size_t		count;
	size_t		capacity;

	/* of holders that matter only together, see lease_crowd.c */
	uint64	   *owners;			/* hashes of the owners that come by themselves */
	int			nowners;
	size_t		crowd;			/* the row that stands for the others; count or
								 * above: none */

	BlockNumber roomiest;		/* overflow page with the largest hole, as
								 * gathered; InvalidBlockNumber: none */
	Size		hole;			/* its size */

	Size		missing_room;	/* size of the row that found no room */
	List	   *expired;		/* copies of entries, for the log */
	XLogRecPtr	lsn;			/* the last record of this call, or the one it
								 * depends on */

	/* room for what most calls need; not zeroed */
	lease_holder inline_holders[LEASE_ROWS_INLINE];
	RowPlace	inline_places[LEASE_ROWS_INLINE];
} LeaseCall;

/* lease_rows.c */
extern void lease_rows_init(LeaseCall *call, Relation rel, LeaseDatabase *db,
							const lease_request *request);
extern void lease_rows_end(LeaseCall *call);
extern lease_request lease_rows_request(const LeaseWaiter *waiter);
extern void lease_rows_resolve_role(LeaseCall *call);
extern void lease_rows_start(LeaseCall *call, Buffer bucket);
extern lease_holder *lease_rows_add(LeaseCall *call, Buffer buffer,
									OffsetNumber offset,
									const LeaseEntry *entry);
extern lease_holder lease_rows_pinned(const LeaseGuard *guard, int pid);
extern LeaseQueue *lease_rows_gather(LeaseCall *call, Buffer bucket,
									 LeaseQueue *queue, LWLockMode mode);
extern LeaseEntry *lease_rows_copy(const LeaseEntry *entry);
extern LeaseEntry *lease_rows_entry(LeaseCall *call, Buffer bucket,
									size_t row);
extern void lease_rows_report_expired(LeaseCall *call);
extern void lease_rows_update(LeaseCall *call, Buffer bucket);
extern bool lease_rows_write(LeaseCall *call, Buffer bucket,
							 const lease_result *result);

/* ----------------------------------------------------------------
 * Make the lock table ready for grants.
 * ----------------------------------------------------------------
 */

/* lease_activate.c */
extern LeaseDatabase *lease_activate(Relation rel);
extern LeaseDatabase *lease_activate_at_once(Relation rel);
extern bool lease_activate_was_done(Relation rel);

/* ----------------------------------------------------------------
 * Requests on one name.
 * ----------------------------------------------------------------
 */

/* lease_request.c */
extern void lease_call_begin(LeaseCall *call, lease_bytes name,
							  const lease_request *request);
extern void lease_call_set_name(LeaseCall *call, lease_bytes name);
extern void lease_call_check_table(const LeaseCall *call, uint32 hash);
extern void lease_call_end(LeaseCall *call);
extern void lease_call_count(const LeaseCall *call,
							  const LeaseAnswer *answer);
extern void lease_call_make_durable(lease_op op, XLogRecPtr lsn);
extern bool lease_call_gather(LeaseCall *call, Buffer bucket);
extern lease_result lease_call_decide(LeaseCall *call, Buffer bucket,
									   LeaseAnswer *answer);
extern bool lease_call_write(LeaseCall *call, Buffer bucket,
							  const lease_result *result);
extern bool lease_call_serve(LeaseCall *call, Buffer bucket,
							  bool only_if_due);
extern void lease_call_serve_queue(LeaseCall *call, bool make_room);
extern bool lease_call_attempt(LeaseCall *call, LeaseAnswer *answer, bool may_wait);
extern bool lease_call_attempt_once(LeaseCall *call, LeaseAnswer *answer);
extern void lease_call_prepare(LeaseCall *call);
extern void lease_call_give_back(Relation rel, lease_bytes name, Oid role,
									const lease_request *request);
extern void lease_call_undo(Relation rel, lease_bytes name, Oid role,
							   const lease_request *request,
							   const LeaseAnswer *answer);
extern LeaseAnswer lease_request_apply(lease_bytes name,
									   const lease_request *request,
									   int64 wait_us);

/* ----------------------------------------------------------------
 * Requests on a name that change no row.
 * ----------------------------------------------------------------
 */

/* What a look at a name has found: its rows, then its guards. */
typedef struct LeaseView
{
	int64		now_us;			/* lease clock, to judge by */
	size_t		count;
	lease_holder *holders;		/* of rows without their guards */
	LeaseEntry **entries;		/* of each: its row, or NULL */
	LeaseGuard **guards;		/* of each: its guard, or NULL */
} LeaseView;

/* Say whether a look has found the row of the lease with this token. */
static inline bool
lease_view_has_row(const LeaseView *view, uint64 token)
{
	for (size_t i = 0; i < view->count; i++)
		if (view->entries[i] != NULL && view->entries[i]->token == token)
			return true;
	return false;
}

/* lease_look.c */
extern void lease_look_read(lease_bytes name, LeaseView *view);
extern uint64 lease_look_count_held(void);
extern bool lease_look_guard(lease_bytes name, lease_bytes owner,
								uint64 token, LeaseEntry **holder, bool *full);
extern bool lease_look_wait(lease_bytes name, int64 wait_us);

/* ----------------------------------------------------------------
 * Requests on many names.
 * ----------------------------------------------------------------
 */

/*
 * Most names that are taken together: a backend can hold 200 lightweight locks,
 * and this needs one for each name and a few more.
 */
#define LEASE_ALL_MAX	100

/*
 * Most names of a call that takes them one after another; one that waits needs a
 * place for each, of LEASE_WAITER_PLACES_MAX.
 */
#define LEASE_MANY_MAX	1000

/* lease_many.c */
extern LeaseAnswer lease_many_acquire_all(const lease_bytes *names, int count,
									 const lease_request *request,
									 int64 wait_us, uint64 *tokens,
									 int *failed);
extern LeaseAnswer lease_many_acquire_any(const lease_bytes *names, int count,
									const lease_request *request, int wanted,
									int64 wait_us, uint64 *tokens,
									int *failed);
extern void lease_many_change(const lease_bytes *names, int count,
							  const lease_request *request,
							  const uint64 *tokens, bool *done);

/* ----------------------------------------------------------------
 * Walks over the buckets: all leases of an owner, and all leases that are
 * over.
 * ----------------------------------------------------------------
 */

/* lease_walk.c */
extern uint64 lease_walk_owner(const lease_request *request);
extern bool lease_walk_reap(Relation rel, LeaseDatabase *db,
							BlockNumber *next, int max_pages, bool all);

/* ----------------------------------------------------------------
 * End the leases of a session or transaction with it.
 * ----------------------------------------------------------------
 */

/* lease_session.c */
extern void lease_session_watch(void);
extern void lease_session_prune(void);
extern void lease_session_took(lease_bytes name, lease_bytes owner,
							   lease_kind kind, uint64 token);
extern void lease_session_end(bool lost);

/* ----------------------------------------------------------------
 * The workers that reap dead leases.
 * ----------------------------------------------------------------
 */

extern int	lease_reap_interval;	/* dlock.reap_interval, milliseconds */

/* lease_worker.c */
extern bool lease_worker_wake(Oid database);
extern void lease_worker_send_away(Oid database);
extern PGDLLEXPORT void dlock_worker_main(Datum arg);

#endif							/* DLOCK_CALL_H */
