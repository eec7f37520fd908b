/*
 * lease_commit.h
 *	  What follows when a transaction has made or dropped the table.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_COMMIT_H
#define DLOCK_LEASE_COMMIT_H

#include "access/xact.h"

/* lease_commit.c */
extern void lease_commit_tell(XactEvent event, void *arg);
extern void lease_commit_want_worker(void);
extern void lease_commit_look_around(void);
extern void lease_commit_forget(Oid database);

#endif							/* DLOCK_LEASE_COMMIT_H */
