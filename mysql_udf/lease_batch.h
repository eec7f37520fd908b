/*
 * lease_batch.h
 *	  The batcher: makes the calls of all connections, many in one commit.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_BATCH_H
#define DLOCK_LEASE_BATCH_H

#include "lease_call.h"

/* lease_batch.c */
extern void *lease_batch_main(void *arg);
extern bool lease_batch_lend(lease_call *call);
extern bool lease_batch_keeps_waiting(const lease_call *call);

#endif							/* DLOCK_LEASE_BATCH_H */
