/*
 * lease_privilege.c
 *	  Which roles may see whose leases, and act for whom.
 *
 * The table, the views' functions and the error messages ask here, so that all
 * show the same of other roles' leases.  This asks the catalogs, so
 * the caller must have locked no page and nothing else.  It keeps nothing, and
 * a crash leaves nothing to mend.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "common/ip.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "server/lease_server.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

/* Say whether the caller may see the owners and clients of a role's leases. */
bool
lease_privilege_may_see(Oid role)
{
	Assert(lease_may_wait());
	return has_privs_of_role(GetUserId(), role) ||
		has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

/*
 * Say whether a role may still act for the role whose lease it was given a hold
 * of: while it waited, that right may have been revoked.
 */
bool
lease_privilege_may_act(Oid requester, Oid role)
{
	Assert(lease_may_wait());
	/* a sleeper has not heard yet of what was revoked meanwhile */
	AcceptInvalidationMessages();
	return has_privs_of_role(requester, role);
}

/*
 * A role's name for the log, or NULL: it is gone, or somebody has locked the
 * catalog, for which the log does not wait.
 */
char *
lease_privilege_role_name(Oid role)
{
	char	   *name;

	Assert(lease_may_wait());
	if (!ConditionalLockRelationOid(AuthIdRelationId, AccessShareLock))
		return NULL;
	name = GetUserNameFromId(role, true);
	UnlockRelationOid(AuthIdRelationId, AccessShareLock);
	return name;
}

/* A role's owner, as the caller may see it. */
const char *
lease_privilege_show(const char *owner, Oid role)
{
	return lease_privilege_may_see(role) ? owner : LEASE_MASK;
}

/*
 * A name that a role holds or waits for, as the caller may see it: anybody's, unless
 * an operator keeps the caller from both views that have the names.
 */
const char *
lease_privilege_show_name(const char *name, Oid role)
{
	static const char *const views[] = {"locks", "waiters"};
	Oid			schema = get_namespace_oid("dlock", true);

	if (lease_privilege_may_see(role))
		return name;
	if (!OidIsValid(schema) || !compat_may_use_schema(schema, GetUserId()))
		return LEASE_MASK;
	for (size_t i = 0; i < lengthof(views); i++)
	{
		Oid			relid = get_relname_relid(views[i], schema);

		if (OidIsValid(relid) &&
			pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK)
			return name;
	}
	return LEASE_MASK;
}

/*
 * The name of this backend's application, cut to the length that we keep: 16
 * and later replace non-ASCII bytes after they have cut it, which makes it
 * longer.
 */
lease_bytes
lease_client_application(void)
{
	size_t		length = application_name ? strlen(application_name) : 0;

	if (length > LEASE_APPLICATION_MAX)
		length = pg_mbcliplen(application_name, (int) length,
							  LEASE_APPLICATION_MAX);
	return (lease_bytes) {application_name, length};
}

/* The client's address as text, or nothing for a local one. */
lease_bytes
lease_client_address(void)
{
	static char address[NI_MAXHOST];
	static bool known = false;

	if (!known && MyBEEntry != NULL)
	{
		const SockAddr *client = &MyBEEntry->st_clientaddr;

		if ((client->addr.ss_family == AF_INET ||
			 client->addr.ss_family == AF_INET6) &&
			pg_getnameinfo_all(&client->addr, client->salen,
							   address, sizeof(address), NULL, 0,
							   NI_NUMERICHOST | NI_NUMERICSERV) != 0)
			address[0] = '\0';
		known = true;
	}
	return (lease_bytes) {address, Min(strlen(address), LEASE_ADDRESS_MAX)};
}
