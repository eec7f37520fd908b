/*
 * lease_am.h
 *	  The table access method of the lock table.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_AM_H
#define DLOCK_LEASE_AM_H

#include "compat.h"
#include "lease.h"
#include "lease_page.h"
#include "lease_queue.h"

/* The columns of dlock_private.lease_table. */
enum
{
	LEASE_COLUMN_NAME,
	LEASE_COLUMN_OWNER,
	LEASE_COLUMN_MODE,
	LEASE_COLUMN_VERSION,
	LEASE_COLUMN_TOKEN,
	LEASE_COLUMN_ACQUIRED_AT,
	LEASE_COLUMN_EXPIRES_AT,
	LEASE_COLUMN_REMAINING,
	LEASE_COLUMN_GUARDED,
	LEASE_COLUMN_LEAVING,
	LEASE_COLUMN_ROLE,
	LEASE_COLUMN_PID,
	LEASE_COLUMN_APPLICATION_NAME,
	LEASE_COLUMN_CLIENT_ADDR,
	LEASE_COLUMN_REQUEST,		/* the last, which dlock.locks leaves out */
	LEASE_COLUMNS
};

/* lease_am.c */
extern bool lease_am_is_intact(Relation rel);
extern void lease_am_check_intact(Relation rel);
extern bool lease_am_is_as_created(Relation rel);
extern void lease_am_form_row(const LeaseEntry *entry, bool visible,
							  bool guarded, int64 now_us,
							  TimestampTz wall_us, Datum *values,
							  bool *nulls);
extern void lease_am_form_guard(lease_bytes name, const LeaseGuard *guard,
								bool visible, Datum *values, bool *nulls);

#endif							/* DLOCK_LEASE_AM_H */
