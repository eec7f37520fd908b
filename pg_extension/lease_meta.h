/*
 * lease_meta.h
 *	  The metapage of the lock table.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_META_H
#define DLOCK_LEASE_META_H

#include "compat.h"
#include "lease_page.h"
#include "storage/buf.h"

/* lease_meta.c */
extern Buffer lease_meta_lock(Relation rel, int mode);
extern void lease_meta_read(Relation rel, LeaseMeta *meta);
extern void lease_meta_adopt(Relation rel, const LeaseMeta *from);

#endif							/* DLOCK_LEASE_META_H */
