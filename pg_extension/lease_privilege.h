/*
 * lease_privilege.h
 *	  Which roles may see whose leases, what the others see, and who acts for whom.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_PRIVILEGE_H
#define DLOCK_LEASE_PRIVILEGE_H

/* Shown to roles that may not see an owner or client. */
#define LEASE_MASK	"<insufficient privilege>"

/* lease_privilege.c */
extern bool lease_privilege_may_see(Oid role);
extern bool lease_privilege_may_act(Oid requester, Oid role);
extern char *lease_privilege_role_name(Oid role);
extern const char *lease_privilege_show(const char *owner, Oid role);
extern const char *lease_privilege_show_name(const char *name, Oid role);

#endif							/* DLOCK_LEASE_PRIVILEGE_H */
