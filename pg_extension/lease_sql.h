/*
 * lease_sql.h
 *	  What the SQL functions share.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_SQL_H
#define DLOCK_LEASE_SQL_H

#include "fmgr.h"
#include "lease.h"

/* lease_sql.c */
extern lease_bytes lease_sql_string(FunctionCallInfo fcinfo, int argument,
									const char *what);

#endif							/* DLOCK_LEASE_SQL_H */
