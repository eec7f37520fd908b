/*
 * lease_pace.h
 *	  When the batcher does what: gathering, deferring, lending, pauses.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_PACE_H
#define DLOCK_LEASE_PACE_H

#include "lease_call.h"
#include "lease_status.h"

/* Most calls in a batch, and most names, except what collect() must take. */
#define LEASE_BATCH_CALLS	128
#define LEASE_BATCH_NAMES	256

/* Most calls about sessions that a batch adds to those that have come. */
#define LEASE_BATCH_SESSIONS	(LEASE_BATCH_CALLS / 2)

/* How many names are reaped at a time. */
#define LEASE_REAP_NAMES	(LEASE_BATCH_NAMES / 2)

/* How often to check whether a caller is still wanted. */
#define LEASE_LOOK_INTERVAL_US	50000

/* How often to look again at a row that a transaction has locked. */
#define LEASE_LOCKED_RETRY_US	20000

/* How long a call pauses that failed alone in its batch. */
#define LEASE_CULPRIT_PAUSE_US	200000

/* lease_pace.c: calls that come */
extern void lease_pace_submit(lease_call *call);
extern void lease_pace_submit_all(lease_calls *calls);
extern void lease_pace_hurry(void);
extern void lease_pace_note_caller(int64_t now_us);

/* lease_pace.c: gathering */
extern void lease_gather_begin(size_t answered, int64_t commit_us);
extern void lease_gather_end(int64_t now_us);

/* lease_pace.c: deferring */
extern int64_t lease_defer_us(void);
extern int64_t lease_due_us(const lease_call *call);
extern bool lease_must_write(int64_t now_us);

/* lease_pace.c: pauses */
extern int64_t lease_pause_of(lease_status status);
extern int64_t lease_pause_until_us(void);
extern void lease_note_failure(lease_status status);
extern void lease_be_careful(size_t batches);
extern size_t lease_most_calls(void);

/* lease_pace.c: what is next */
extern bool lease_can_be_early(const lease_call *call);
extern int64_t lease_next_us(int64_t now_us, int64_t unasked_us);

/* lease_pace.c: lending */
extern void lease_pace_note_company(bool had_company);
extern bool lease_can_lend(int64_t now_us, int64_t unasked_us);
extern void lease_pace_lend(bool is_lent);

#endif							/* DLOCK_LEASE_PACE_H */
