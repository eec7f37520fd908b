/*
 * lease_bond.c
 *	  Whether the session or transaction that a lease is bound to still lives.
 *
 * Such a lease is never renewed: its row carries a stamp, and whoever meets the
 * row compares the stamp with what shared memory says of that backend now.  A
 * backend has two serials, one for its session and one for its transaction;
 * ending either adds 1 to it, and that is all it takes to end its leases, at
 * once and without I/O.  Removing the rows is housekeeping (lease_session.c).
 *
 * Shared memory is lost with the server.  A row whose token is not above what
 * this server started with was bound to something in a server that is gone: its
 * time to live counts from this server's start.  A standby does not know what
 * lives on the primary, and takes all for alive.
 *
 * Serials are 32 bits.  A stamp could be taken for a younger one's only after
 * 2^32 sessions or transactions with leases in the same slot, while its row
 * stays; but a row of an ended session is removed within its time to live.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/xlog.h"
#include "lease_bond.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/proc.h"
#include "storage/shmem.h"

/* One backend. */
typedef struct LeaseBond
{
	pg_atomic_uint32 session;	/* serial of its session */
	pg_atomic_uint32 transaction;	/* serial of its transaction */
	pg_atomic_uint64 lost_us;	/* boot clock: when the last session that had
								 * leases was lost */
} LeaseBond;

static LeaseBond *bonds = NULL;

Size
lease_bond_shmem_size(void)
{
	return mul_size(MaxBackends, sizeof(LeaseBond));
}

/* Set up the shared memory; called under AddinShmemInitLock. */
void
lease_bond_shmem_init(void)
{
	bool		found;
	uint32		first;

	bonds = ShmemInitStruct("dlock sessions", lease_bond_shmem_size(), &found);
	if (found)
		return;

	/* anywhere, in case a stamp is ever held against another server's */
	if (!pg_strong_random(&first, sizeof(first)))
		first = 1;
	for (int i = 0; i < MaxBackends; i++)
	{
		pg_atomic_init_u32(&bonds[i].session, first);
		pg_atomic_init_u32(&bonds[i].transaction, first);
		pg_atomic_init_u64(&bonds[i].lost_us, 0);
	}
}

static pg_atomic_uint32 *
serial_of(lease_kind kind, uint32 slot)
{
	return kind == LEASE_SESSION ? &bonds[slot].session :
		&bonds[slot].transaction;
}

/* The stamp of a lease that this backend takes now. */
LeaseStamp
lease_bond_mine(lease_kind kind)
{
	uint32		slot = (uint32) compat_my_proc_number();

	if (slot >= (uint32) MaxBackends)
		elog(ERROR, "this process cannot hold leases that are bound to it");
	return (LeaseStamp) {slot, pg_atomic_read_u32(serial_of(kind, slot))};
}

/*
 * End all leases that are bound to this backend's session or transaction.
 * "lost": not by a request, so that rows left behind are under the lock delay.
 */
void
lease_bond_end(lease_kind kind, bool lost)
{
	uint32		slot = (uint32) compat_my_proc_number();

	/* first the time, which is read only once the serial has changed */
	if (lost)
		pg_atomic_write_u64(&bonds[slot].lost_us,
							(uint64) lease_clock_boot());
	(void) pg_atomic_fetch_add_u32(serial_of(kind, slot), 1);
}

/* Say whether what a stamp of this server stands for is there. */
static bool
is_alive(lease_kind kind, LeaseStamp stamp)
{
	return stamp.slot < (uint32) MaxBackends &&
		pg_atomic_read_u32(serial_of(kind, stamp.slot)) == stamp.serial;
}

/*
 * How it is told whether an entry is over, and when it is: its deadline on the
 * lease clock.  For one that is bound to something alive that is its time to
 * live from now, which is also when to look at it again.
 */
lease_life
lease_bond_judge(LeaseDatabase *db, const LeaseEntry *entry, int64 now_us,
				 int64 *deadline_us)
{
	LeaseStamp	stamp;

	*deadline_us = entry->deadline_us;
	if (entry->kind == LEASE_PLAIN)
		return LEASE_TIMED;

	*deadline_us = now_us + entry->deadline_us;
	if (db->file == InvalidRelFileNumber || RecoveryInProgress())
		return LEASE_BOUND;
	if (entry->token <= db->start_floor)
	{
		*deadline_us = db->start_us + entry->deadline_us;
		return LEASE_TIMED;
	}
	stamp = lease_entry_stamp(entry);
	if (is_alive(entry->kind, stamp))
		return LEASE_BOUND;
	pg_read_barrier();
	*deadline_us = now_us;
	if (entry->kind == LEASE_TRANSACTION)
		return LEASE_LEFT;
	if (stamp.slot < (uint32) MaxBackends)
		*deadline_us = Min(now_us,
						   (int64) pg_atomic_read_u64(&bonds[stamp.slot].lost_us) +
						   (int64) pg_atomic_read_u64(&db->clock_offset_us));
	return LEASE_TIMED;
}
