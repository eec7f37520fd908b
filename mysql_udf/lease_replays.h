/*
 * lease_replays.h
 *	  Whether a hold was found by its request id since it was granted.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_REPLAYS_H
#define DLOCK_LEASE_REPLAYS_H

#include "lease_call.h"

/* lease_replays.c */
extern void lease_replays_add(lease_call *call);
extern void lease_replays_note(lease_call *call);
extern bool lease_replays_have(const lease_call *call);
extern void lease_replays_forget(lease_call *call);

#endif							/* DLOCK_LEASE_REPLAYS_H */
