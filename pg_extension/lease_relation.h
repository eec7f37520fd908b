/*
 * lease_relation.h
 *	  Find and open dlock_private.lease_table.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_RELATION_H
#define DLOCK_LEASE_RELATION_H

#include "compat.h"

/* lease_relation.c */
extern Oid	lease_relation_find(void);
extern Relation lease_relation_open(LOCKMODE mode);
extern Relation lease_relation_open_at_exit(void);

#endif							/* DLOCK_LEASE_RELATION_H */
