/*
 * row.h
 *	  A lease as it is written: a row of the lock table, an entry of the journal.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_ROW_H
#define DLOCK_ROW_H

#include "lease.h"

/* How many marks there are; which counts for a name: lease_bucket(). */
#define LEASE_BUCKETS	256

/* The memory that a row points to belongs to the code that made the row. */
typedef struct lease_row
{
	lease_bytes name;
	uint32_t	slot;			/* tells the leases of one name apart */
	lease_bytes owner;
	lease_bytes user;			/* the two halves of the account */
	lease_bytes host;
	lease_mode	mode;
	lease_kind	kind;
	uint32_t	version;
	uint64_t	token;
	lease_bytes request;		/* empty: none */
	int64_t		ttl_us;			/* left when it was written */
	uint64_t	writes;			/* grows with every change of the lease */
	uint64_t	writer;			/* the run of a server that wrote it */
	int64_t		deadline_us;	/* on that run's clock */
	uint64_t	connection_id;
	int64_t		acquired_us;	/* since 1970, to be shown */
	int64_t		expires_us;		/* the same */
	bool		locked;			/* of a row that was read: some other transaction
								 * has locked it */
} lease_row;

/* Which mark counts for a name: FNV-1a, folded. */
static inline uint32_t
lease_bucket(lease_bytes name)
{
	uint32_t	hash = 2166136261u;

	for (size_t i = 0; i < name.length; i++)
		hash = (hash ^ (unsigned char) name.data[i]) * 16777619u;
	return (hash ^ (hash >> 16)) % LEASE_BUCKETS;
}

#endif							/* DLOCK_ROW_H */
