/*
 * lease_lists.h
 *	  The lists of the calls that the engine has.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_LISTS_H
#define DLOCK_LEASE_LISTS_H

#include "lease_call.h"

/* With the engine's mutex. */
typedef struct lease_lists
{
	lease_calls incoming;		/* to be made, in their order */
	lease_calls stalled;		/* a transaction is in the way */
	lease_calls deferred;		/* releases that were answered, to be written */

	/* of the batch */
	lease_calls taken;			/* to be made, in their order */
	lease_calls at_commit;		/* made; to be answered when committed */
	lease_calls early;			/* answered before the commit; to be written */
} lease_lists;

/* lease_lists.c */
extern const lease_lists *const lists;

extern void lease_list_incoming(lease_call *call);
extern void lease_list_incoming_first(lease_call *call);
extern void lease_list_stalled(lease_call *call, int64_t retry_us);
extern void lease_list_deferred(lease_call *call, int64_t until_us);
extern void lease_list_deferred_first(lease_call *call, int64_t until_us);
extern void lease_list_taken(lease_call *call);
extern void lease_list_at_commit(lease_call *call);
extern void lease_list_early(lease_call *call);
extern void lease_list_none(lease_call *call);
extern void lease_list_done(lease_call *call);

#endif							/* DLOCK_LEASE_LISTS_H */
