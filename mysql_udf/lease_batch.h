/*
 * lease_batch.h
 *	  Between the callers' side of the engine and the batcher.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_BATCH_H
#define DLOCK_LEASE_BATCH_H

#include "lease_moment.h"
#include "lease_mutex.h"
#include "lease_settings.h"
#include "lease_tenure.h"
#include "lease_waiters.h"

/* How often to look whether a caller is still wanted. */
#define LEASE_LOOK_INTERVAL_US	50000

/* The engine; all under its mutex, unless said otherwise. */
typedef struct lease_engine
{
	int64_t		called_us;		/* when somebody called last */
} lease_engine;

extern lease_engine engine;

/* lease_engine.c */
extern void lease_call_give_up(lease_call *call, bool gone);
extern void lease_engine_submit(lease_call *call);

/* lease_calls.c */
extern void lease_call_return(lease_call *call);
extern void lease_calls_visit_served(lease_waiters_visitor *visit,
									 void *context);
extern size_t lease_calls_count_served(void);

/* lease_batch.c */
extern void *lease_batch_main(void *arg);
extern bool lease_batch_lend(lease_call *call);
extern bool lease_batch_keeps_waiting(const lease_call *call);
extern void lease_batch_look_soon(void);

/* lease_gather.c */
extern void lease_gather_wake(const lease_call *call);

/* lease_early.c */
extern bool lease_early_release(const dlock_call *request,
								dlock_answer *answer);
extern bool lease_early_refuse(const dlock_call *request,
							   dlock_answer *answer);
extern bool lease_early_look(const dlock_call *request,
							 dlock_answer *answer);
extern bool lease_early_look_blind(lease_call *call);

/* lease_session.c */
extern bool lease_session_add(uint64_t connection_id, const lease_call *call);
extern void lease_session_remove(uint64_t token, lease_bytes name);
extern void lease_session_end(uint64_t connection_id);
extern void lease_session_written(uint64_t connection_id, uint64_t token,
								  lease_bytes name, int64_t ttl_us);
extern void lease_session_unwritten(const lease_call *call);
extern int64_t lease_session_keep_us(void);
extern void lease_session_keep(int64_t now_us);
extern bool lease_session_begin_list(void);
extern void lease_session_list(uint64_t connection_id);
extern void lease_session_end_list(bool could);

#endif							/* DLOCK_LEASE_BATCH_H */
