/*
 * lease_checkpoint.h
 *	  Write what the journal has into the lock table.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_CHECKPOINT_H
#define DLOCK_LEASE_CHECKPOINT_H

#include "lease_status.h"

/* lease_checkpoint.c */
extern lease_status lease_checkpoint(void);

#endif							/* DLOCK_LEASE_CHECKPOINT_H */
