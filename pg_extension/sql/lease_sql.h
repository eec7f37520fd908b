/*
 * lease_sql.h
 *	  The functions and the table as SQL sees them.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_SQL_H
#define DLOCK_SQL_H

#include "access/xact.h"
#include "call/lease_call.h"
#include "compat.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "lease.h"

/* ----------------------------------------------------------------
 * What the SQL functions share.
 * ----------------------------------------------------------------
 */

/* The range of dlock.max_ttl, in seconds; the longest is also the core's. */
#define LEASE_MAX_TTL_DEFAULT	86400
#define LEASE_MAX_TTL_LIMIT		((int) (LEASE_TTL_MAX_US / USECS_PER_SEC))

extern int	lease_max_ttl;		/* dlock.max_ttl, in seconds */

/* lease_sql.c */
extern lease_bytes lease_sql_string(FunctionCallInfo fcinfo, int argument,
									const char *what);
extern uint64 lease_sql_token(FunctionCallInfo fcinfo, int argument);

/* ----------------------------------------------------------------
 * The table access method of the lock table.
 * ----------------------------------------------------------------
 */

/* lease_am.c */
extern void lease_am_form_row(const LeaseEntry *entry, bool visible,
							  bool guarded, int64 now_us,
							  TimestampTz wall_us, Datum *values,
							  bool *nulls);
extern void lease_am_form_guard(lease_bytes name, const LeaseGuard *guard,
								bool visible, Datum *values, bool *nulls);

/* ----------------------------------------------------------------
 * What follows when a transaction has made or dropped the table.
 * ----------------------------------------------------------------
 */

/* lease_commit.c */
extern void lease_commit_tell(XactEvent event, void *arg);
extern void lease_commit_want_worker(void);
extern void lease_commit_look_around(void);
extern void lease_commit_forget(Oid database);

/* ----------------------------------------------------------------
 * Keep the lock table as it is, by hooks on objects and on statements.
 * ----------------------------------------------------------------
 */

extern void lease_hooks_install(void);

#endif							/* DLOCK_SQL_H */
