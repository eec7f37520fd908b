/*
 * lease_renewals.c
 *	  Owners whose leases were all renewed at once by an entry that the journal has.
 *
 * All of it is with the engine's mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_renewals.h"

/* So many owners can have such an entry; for others each lease is written. */
#define RENEWALS		256

static struct
{
	uint64_t	hash;			/* of owner and account */
	int64_t		end_us;			/* the deadline that the last entry set; INT64_MAX:
								 * there is no entry yet */
	bool		is_old;			/* not renewed since the checkpoint under way began */
}			renewals[RENEWALS];
static size_t nrenewals = 0;

/* An owner's place, made if need be; RENEWALS if there is no room. */
static size_t
find(const lease_call *call)
{
	uint64_t	hash = hash_bytes(call->request.owner, 0);
	size_t		i = 0;

	hash = hash_bytes(dlock_caller_user(&call->caller), hash);
	hash = hash_bytes(dlock_caller_host(&call->caller), hash);
	while (i < nrenewals && renewals[i].hash != hash)
		i++;
	if (i == nrenewals && i < RENEWALS)
	{
		renewals[i].hash = hash;
		renewals[i].end_us = INT64_MAX;
		renewals[i].is_old = true;
		nrenewals++;
	}
	return i;
}

/*
 * Say whether a renewal of all of an owner's leases may be one entry of the journal.
 * The view of the leases (install.sql) goes by the first and the last such entry since a
 * lease was written.  So what an entry has renewed must not be over before the next one.
 */
bool
lease_renewal_may_be_one(const lease_call *call, int64_t now_us)
{
	size_t		i = find(call);

	if (i == RENEWALS)
		return false;
	if (renewals[i].end_us > now_us)
		return true;
	renewals[i].end_us = INT64_MIN; /* from now on each lease is written */
	return false;
}

/* The entry of such a renewal was committed. */
void
lease_renewals_add(const lease_call *call, int64_t now_us)
{
	size_t		i = find(call);

	renewals[i].end_us = now_us + call->request.ttl_us;
	renewals[i].is_old = false;
}

/* A checkpoint begins, which will delete all entries that the journal has now. */
void
lease_renewals_age(void)
{
	for (size_t i = 0; i < nrenewals; i++)
		renewals[i].is_old = true;
}

/* The checkpoint has ended: forget owners whose last entry was there when it began. */
void
lease_renewals_forget_old(void)
{
	size_t		n = 0;

	for (size_t i = 0; i < nrenewals; i++)
		if (!renewals[i].is_old)
			renewals[n++] = renewals[i];
	nrenewals = n;
}

/* The journal has no entry of any owner. */
void
lease_renewals_forget(void)
{
	nrenewals = 0;
}
