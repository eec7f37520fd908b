/*
 * lease_snapshot.h
 *	  Wait without the snapshot of the statement.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_SNAPSHOT_H
#define DLOCK_LEASE_SNAPSHOT_H

#include "fmgr.h"

/* lease_snapshot.c */
extern void lease_snapshot_begin(FunctionCallInfo fcinfo, bool may_wait);
extern void lease_snapshot_give_up(void);
extern void lease_snapshot_take_back(void);

#endif							/* DLOCK_LEASE_SNAPSHOT_H */
