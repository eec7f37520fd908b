/*
 * lease_foreign.h
 *	  Deadlines of rows that another run of a server has written.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_FOREIGN_H
#define DLOCK_LEASE_FOREIGN_H

#include "lease_table.h"

extern int64_t lease_foreign_deadline(lease_bytes name, const lease_row *row,
									  int64_t now_us);
extern void lease_foreign_forget(int64_t before_us);

#endif							/* DLOCK_LEASE_FOREIGN_H */
