/*
 * lease_present.h
 *	  Which names may have rows in the lock table.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_PRESENT_H
#define DLOCK_LEASE_PRESENT_H

#include "lease_table.h"

/* lease_present.c */
extern void lease_present_begin(void);
extern void lease_present_count(lease_bytes name);
extern void lease_present_end(bool complete);
extern void lease_present_forget(void);
extern bool lease_present_is_absent(lease_bytes name);
extern void lease_present_added(lease_bytes name);
extern void lease_present_removed(lease_bytes name);

#endif							/* DLOCK_LEASE_PRESENT_H */
