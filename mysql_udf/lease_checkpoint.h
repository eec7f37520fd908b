/*
 * lease_checkpoint.h
 *	  Take the tables over, and write what the journal has into the lock table.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_CHECKPOINT_H
#define DLOCK_LEASE_CHECKPOINT_H

#include "connection.h"
#include "journal.h"

/* lease_checkpoint.c */
extern bool lease_apply_change(const journal_change *change, int64_t now_us);
extern lease_status lease_take_tables(void);
extern void lease_take_over_lost(void);
extern lease_status lease_checkpoint(void);
extern void lease_checkpoint_put_off(void);

#endif							/* DLOCK_LEASE_CHECKPOINT_H */
