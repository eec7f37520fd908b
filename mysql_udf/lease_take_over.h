/*
 * lease_take_over.h
 *	  Take the tables over, before anything is granted.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_TAKE_OVER_H
#define DLOCK_LEASE_TAKE_OVER_H

#include "journal.h"
#include "lease_status.h"

/* lease_take_over.c */
extern bool lease_apply_change(const journal_change *change, int64_t now_us);
extern lease_status lease_take_tables(void);
extern lease_status lease_take_over_unasked(void);
extern void lease_take_over_lost(void);

#endif							/* DLOCK_LEASE_TAKE_OVER_H */
