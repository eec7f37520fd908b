/*
 * lease_renewals.c
 *	  Owners whose leases were all renewed at once, since the last checkpoint.
 *
 * With the engine's mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_renewals.h"

/* Of so many owners; others have each lease written. */
#define RENEWALS		256

static struct
{
	uint64_t	hash;			/* of owner and account */
	int64_t		end_us;			/* the deadline of those that were renewed */
}			renewals[RENEWALS];
static size_t nrenewals = 0;

/*
 * Say whether a renewal of all of an owner's leases may be one entry of the journal.
 * The view of the leases (install.sql) takes the first and the last such entry since a
 * lease was written.  So there must not be a time between two when what the first renewed
 * was over.
 */
bool
lease_renewal_may_be_one(const lease_call *call, int64_t now_us)
{
	uint64_t	hash = hash_bytes(call->request.owner, 0);
	size_t		i = 0;

	hash = hash_bytes(dlock_caller_user(&call->caller), hash);
	hash = hash_bytes(dlock_caller_host(&call->caller), hash);
	while (i < nrenewals && renewals[i].hash != hash)
		i++;
	if (i == RENEWALS)
		return false;
	if (i == nrenewals)
	{
		renewals[i].hash = hash;
		nrenewals++;
	}
	else if (renewals[i].end_us <= now_us)
	{
		renewals[i].end_us = INT64_MIN; /* from now on each lease by itself */
		return false;
	}
	renewals[i].end_us = now_us + call->request.ttl_us;
	return true;
}

/* The journal is empty. */
void
lease_renewals_forget(void)
{
	nrenewals = 0;
}
