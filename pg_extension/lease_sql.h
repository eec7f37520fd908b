/*
 * lease_sql.h
 *	  What the SQL functions share.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_SQL_H
#define DLOCK_LEASE_SQL_H

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "lease.h"

/* The range of dlock.max_ttl, in seconds; the longest is also the core's. */
#define LEASE_MAX_TTL_DEFAULT	86400
#define LEASE_MAX_TTL_LIMIT		((int) (LEASE_TTL_MAX_US / USECS_PER_SEC))

extern int	lease_max_ttl;		/* dlock.max_ttl, in seconds */

/* lease_sql.c */
extern lease_bytes lease_sql_string(FunctionCallInfo fcinfo, int argument,
									const char *what);
extern uint64 lease_sql_token(FunctionCallInfo fcinfo, int argument);

#endif							/* DLOCK_LEASE_SQL_H */
