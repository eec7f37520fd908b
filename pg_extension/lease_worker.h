/*
 * lease_worker.h
 *	  The workers that reap dead leases.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_WORKER_H
#define DLOCK_LEASE_WORKER_H

extern int	lease_reap_interval;	/* dlock.reap_interval, milliseconds */

/* lease_worker.c */
extern void lease_worker_send_away(Oid database);
extern PGDLLEXPORT void dlock_worker_main(Datum arg);

#endif							/* DLOCK_LEASE_WORKER_H */
