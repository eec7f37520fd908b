/*
 * lease_wait.h
 *	  Sleep until a lease is granted, or a hold has ended.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_WAIT_H
#define DLOCK_LEASE_WAIT_H

#include "compat.h"
#include "fmgr.h"
#include "lease_queue.h"
#include "lease_rows.h"

/* When a wait began and when it is to end, on the boot clock. */
typedef struct LeaseWaitTime
{
	int64		start_us;
	int64		end_us;			/* PG_INT64_MAX: no limit */
	TimestampTz start_time;
	bool		logged;			/* the log has been told that it is long */
} LeaseWaitTime;

/* lease_wait.c */
extern void lease_wait_start(LeaseWaitTime *time, int64 wait_us);
extern bool lease_wait_is_over(const LeaseWaitTime *time);
extern void lease_wait_in_line(LeaseCall *call, int64 wait_us,
							   LeaseAnswer *answer, XLogRecPtr *lsn);
extern LeaseWaiter *lease_wait_begin_watch(const LeaseCall *call,
										   LeaseWaitRole role_in_queue,
										   const LeaseWaitTime *time);
extern void lease_wait_check_deadlock(LeaseDatabase *db);
extern void lease_wait_watch(LeaseDatabase *db, LeaseWaitTime *time,
							 int64 due_us);
extern void lease_wait_stop(const LeaseWaitTime *time);
extern void lease_wait_check_client(void);
extern bool lease_wait_must_end(void);
pg_noreturn extern void lease_wait_raise(void);

/* lease_snapshot.c */
extern void lease_snapshot_begin(FunctionCallInfo fcinfo, bool may_wait);
extern void lease_snapshot_give_up(void);
extern void lease_snapshot_take_back(void);

#endif							/* DLOCK_LEASE_WAIT_H */
