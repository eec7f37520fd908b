/*
 * lease_hooks.h
 *	  Keep the lock table as it is, by hooks on objects and on statements.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_HOOKS_H
#define DLOCK_LEASE_HOOKS_H

extern void lease_hooks_install(void);

#endif							/* DLOCK_LEASE_HOOKS_H */
