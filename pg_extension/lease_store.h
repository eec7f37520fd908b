/*
 * lease_store.h
 *	  The steps of a call on the lock table.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_STORE_H
#define DLOCK_LEASE_STORE_H

#include "compat.h"
#include "lease.h"
#include "lease_queue.h"
#include "lease_rows.h"
#include "lease_state.h"

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

/* lease_store.c */
extern void lease_store_read(lease_bytes name, LeaseView *view);
extern uint64 lease_store_count_held(void);
extern void lease_store_serve_name(lease_bytes name, uint32 hash);

/* the steps of a call */
extern void lease_store_begin_open(LeaseCall *call, Relation rel,
								   LeaseDatabase *db,
								   const lease_request *request);
extern void lease_store_begin_call(LeaseCall *call,
								   const lease_request *request);
extern void lease_store_begin(LeaseCall *call, lease_bytes name,
							  const lease_request *request);
extern void lease_store_set_name(LeaseCall *call, lease_bytes name);
extern void lease_store_end(LeaseCall *call);
extern void lease_store_count(const LeaseCall *call,
							  const LeaseAnswer *answer);
extern void lease_store_make_durable(lease_op op, XLogRecPtr lsn);
extern void lease_store_check_table(const LeaseCall *call, uint32 hash);
extern bool lease_store_gather(LeaseCall *call, Buffer bucket);
extern lease_result lease_store_decide(LeaseCall *call, Buffer bucket,
									   LeaseAnswer *answer);
extern bool lease_store_write(LeaseCall *call, Buffer bucket,
							  const lease_result *result);
extern bool lease_store_serve(LeaseCall *call, Buffer bucket,
							  bool only_if_due);
extern void lease_store_serve_queue(LeaseCall *call, bool make_room);

#endif							/* DLOCK_LEASE_STORE_H */
