/*
 * lease_event.h
 *	  Tell listeners that a lease has expired or was force-released.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_EVENT_H
#define DLOCK_LEASE_EVENT_H

#include "compat.h"
#include "lease.h"

extern bool lease_notify;		/* dlock.notify */

typedef enum LeaseEventKind
{
	LEASE_EVENT_EXPIRED,
	LEASE_EVENT_FORCED
} LeaseEventKind;

/* lease_event.c */
extern Size lease_event_size(void);
extern void lease_event_attach(char *start, bool make);
extern void lease_event_add(LeaseEventKind kind, lease_bytes name,
							uint64 token);
extern bool lease_event_is_due(void);
extern void lease_event_fail(void);
extern void lease_event_send(void);

#endif							/* DLOCK_LEASE_EVENT_H */
