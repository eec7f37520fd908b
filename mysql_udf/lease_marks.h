/*
 * lease_marks.h
 *	  Which tokens this run has granted, and the table's marks above them.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_MARKS_H
#define DLOCK_LEASE_MARKS_H

#include "lease_table.h"

/* Tokens count from 2020-01-01 00:00 UTC, if they are taken from the clock. */
#define LEASE_MARKS_EPOCH_US	INT64_C(1577836800000000)

extern void lease_marks_read(lease_bytes name, uint64_t stored, bool alone);
extern bool lease_marks_are_known(lease_bytes name);
extern uint64_t lease_marks_granted(lease_bytes name);
extern void lease_marks_grant(lease_bytes name, uint64_t token);
extern bool lease_marks_write(lease_table *table, bool alone,
							  int64_t wall_us);
extern void lease_marks_forget(void);

#endif							/* DLOCK_LEASE_MARKS_H */
