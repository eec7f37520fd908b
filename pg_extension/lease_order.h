/*
 * lease_order.h
 *	  What a backend may wait for while it has locked a page of the lock table.
 *
 * It may wait for the partitions of the queues, for pages further down the lock
 * order (lease_trie.c), and for the lock that adds a page, which is held only
 * briefly.  It may not wait for what others hold as long as they like:
 * catalogs, heavyweight locks, standbys, a signal.  Such a wait could not be
 * cancelled, nobody would notice a deadlock, and calls for other names of the
 * page would wait too.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_ORDER_H
#define DLOCK_LEASE_ORDER_H

#include "compat.h"

/*
 * Say whether this backend may wait for anything: it has locked no page.  For
 * assertions, at each function that asks a catalog, takes a heavyweight lock or
 * sleeps.
 */
static inline bool
lease_may_wait(void)
{
	return compat_has_locked_no_page();
}

#endif							/* DLOCK_LEASE_ORDER_H */
