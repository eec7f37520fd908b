/*
 * lease_launcher.h
 *	  The process that starts the workers.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_LAUNCHER_H
#define DLOCK_LEASE_LAUNCHER_H

#define LEASE_WORKER_TYPE	"dlock worker"

/* lease_launcher.c */
extern void lease_launcher_register(void);
extern void lease_launcher_ensure(void);
extern void lease_launcher_want_worker(void);
extern void lease_launcher_use_own_settings(void);
extern PGDLLEXPORT void dlock_launcher_main(Datum arg);

#endif							/* DLOCK_LEASE_LAUNCHER_H */
