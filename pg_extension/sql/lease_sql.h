/*
 * lease_sql.h
 *	  The functions and the table as SQL sees them.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_SQL_H
#define DLOCK_SQL_H

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
extern Datum lease_sql_text(lease_bytes bytes, bool visible);

/* ----------------------------------------------------------------
 * The table access method of the lock table.
 * ----------------------------------------------------------------
 */

/* lease_am.c */
extern TableScanDesc lease_am_begin_name(Relation rel, lease_bytes name);

/* ----------------------------------------------------------------
 * Keep the lock table as it is; what follows when it is made or dropped.
 * ----------------------------------------------------------------
 */

/* lease_hooks.c */
extern void lease_hooks_want_worker(void);
extern void lease_hooks_install(void);

#endif							/* DLOCK_SQL_H */
