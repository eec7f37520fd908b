/*
 * lease_guards.h
 *	  Rows that guards are about to lock.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_GUARDS_H
#define DLOCK_LEASE_GUARDS_H

#include "row.h"

extern bool lease_guards_add(uint64_t connection_id, lease_bytes name,
							 uint32_t slot, int64_t now_us);
extern bool lease_guards_extend(uint64_t connection_id, int64_t now_us);
extern void lease_guards_remove(uint64_t connection_id);
extern void lease_guards_lock(lease_row *rows, size_t n, int64_t now_us);
extern bool lease_guards_have(lease_bytes name, uint32_t slot, int64_t now_us);

#endif							/* DLOCK_LEASE_GUARDS_H */
