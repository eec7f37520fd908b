/*
 * lease_store.h
 *	  What the SQL functions and the reaper do to the lock table.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_STORE_H
#define DLOCK_LEASE_STORE_H

#include "compat.h"
#include "lease.h"
#include "lease_page.h"
#include "lease_queue.h"
#include "lease_rows.h"
#include "lease_state.h"

/* lease_store.c */
extern Relation lease_store_open(LOCKMODE mode);
extern Relation lease_store_open_at_exit(void);
extern LeaseAnswer lease_store_apply(lease_bytes name,
									 const lease_request *request,
									 int64 wait_us);
extern uint64 lease_store_apply_all(const lease_request *request);
extern bool lease_store_guard(lease_bytes name, lease_bytes owner,
							  uint64 token, LeaseEntry **holder);
extern bool lease_store_wait(lease_bytes name, int64 wait_us);
extern List *lease_store_read(lease_bytes name, int64 *now_us,
							  bool *guarded);
extern bool lease_store_is_readable(Relation rel);
extern bool lease_store_reap(Relation rel, LeaseDatabase *db,
							 BlockNumber *next, int max_pages);
extern void lease_store_give_back(Relation rel, lease_bytes name, Oid role,
								  const lease_request *request, bool lost);
extern void lease_store_serve_name(lease_bytes name, uint32 hash);

/* lease_store.c, for requests on many names */
extern void lease_store_begin(LeaseCall *call, lease_bytes name,
							  const lease_request *request);
extern void lease_store_begin_more(LeaseCall *call, lease_bytes name,
								   const LeaseCall *first);
extern void lease_store_end(LeaseCall *call);
extern void lease_store_count(LeaseDatabase *db, const LeaseAnswer *answer);
extern bool lease_store_gather(LeaseCall *call, Buffer bucket);
extern lease_result lease_store_decide(LeaseCall *call, Buffer bucket,
									   LeaseAnswer *answer);
extern bool lease_store_write(LeaseCall *call, Buffer bucket,
							  const lease_result *result);
extern bool lease_store_serve(LeaseCall *call, Buffer bucket,
							  bool only_if_due);

#endif							/* DLOCK_LEASE_STORE_H */
