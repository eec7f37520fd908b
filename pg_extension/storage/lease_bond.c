/*
 * lease_bond.c
 *	  Whether the session or transaction that a lease is bound to still lives.
 *
 * Such a lease is never renewed: its row carries a stamp, and every call that
 * meets the row compares the stamp with what shared memory says of that backend
 * now.  A backend has two serials, one for its session and one for its
 * transaction; the end of either adds 1 to its serial.  That alone ends its
 * leases, at once and without I/O.  Removing the rows is housekeeping
 * (lease_session.c).
 *
 * Shared memory is lost with the server.  A row whose token is not above what
 * this server started with was bound to something in a server that is gone.  A
 * standby does not know what lives on the primary, and takes everything for
 * alive. lease_judge() in core/lease.c decides what this means for the lease.
 *
 * Serials are 32 bits.  A stamp could match a younger session or transaction
 * only after 2^32 of them had leases in the same slot while its row stayed; but
 * a row of an ended session is removed within its time to live.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lease_storage.h"

/* One backend. */
typedef struct LeaseBond
{
	pg_atomic_uint32 serials[LEASE_KIND_LAST + 1];	/* of its session, of its
													 * transaction */
	pg_atomic_uint32 discarded; /* serial of the last session that ended its
								 * leases and lived on */
	pg_atomic_uint64 lost_us;	/* boot clock: when the last session that had
								 * leases was lost */
} LeaseBond;

static LeaseBond *bonds = NULL;

/* Whether this session, or transaction, may have taken leases, gone or not. */
static bool bond_used[LEASE_KIND_LAST + 1];

/* Called by lease_area.c; here and in the others, "make" a new one. */
void
lease_bond_attach(bool make)
{
	uint32		first;

	bonds = lease_area_take(MaxBackends, sizeof(LeaseBond));
	if (!make)
		return;

	/* start anywhere, lest a stamp match one of another server */
	if (!pg_strong_random(&first, sizeof(first)))
		first = 1;
	for (int i = 0; i < MaxBackends; i++)
	{
		pg_atomic_init_u32(&bonds[i].serials[LEASE_SESSION], first);
		pg_atomic_init_u32(&bonds[i].serials[LEASE_TRANSACTION], first);
		pg_atomic_init_u32(&bonds[i].discarded, first - 1);
	}
}

/* Say whether leases may be bound to this backend's session or transaction. */
bool
lease_bond_is_used(lease_kind kind)
{
	return bond_used[kind];
}

/*
 * The stamp of a lease that this backend is about to take.  Called before the
 * grant, so that whatever goes wrong after it ends the lease too.
 */
LeaseStamp
lease_bond_mine(lease_kind kind)
{
	uint32		slot = (uint32) compat_my_proc_number();

	if (slot >= (uint32) MaxBackends)
		elog(ERROR, "this process cannot hold leases that are bound to it");
	bond_used[kind] = true;
	return (LeaseStamp) {slot, pg_atomic_read_u32(&bonds[slot].serials[kind])};
}

/*
 * End all leases that are bound to this backend's session or transaction.
 * "lost": the session is gone, so that the lock delay applies to the rows it
 * leaves; else it was asked to end its leases.
 */
void
lease_bond_end(lease_kind kind, bool lost)
{
	LeaseBond  *bond = &bonds[compat_my_proc_number()];

	/* set this first: readers look at it only once the serial has changed */
	if (lost)
		pg_atomic_write_u64(&bond->lost_us, (uint64) lease_clock_boot());
	else if (kind == LEASE_SESSION)
		pg_atomic_write_u32(&bond->discarded,
							pg_atomic_read_u32(&bond->serials[kind]));
	(void) pg_atomic_fetch_add_u32(&bond->serials[kind], 1);
	bond_used[kind] = false;
}

/* Say whether the session or transaction of a stamp of this server exists. */
static bool
is_alive(lease_kind kind, LeaseStamp stamp)
{
	return stamp.slot < (uint32) MaxBackends &&
		pg_atomic_read_u32(&bonds[stamp.slot].serials[kind]) == stamp.serial;
}

/* The state of what an entry is bound to, and since when. */
static lease_bond
find_bond(LeaseDatabase *db, const LeaseEntry *entry, LeaseStamp stamp,
		  int64 now_us, int64 *since_us)
{
	*since_us = now_us;
	if (db == NULL || db->file == InvalidRelFileNumber || RecoveryInProgress())
		return LEASE_BOND_THERE;
	if (lease_is_of_before(entry->token, db->start_floor))
	{
		*since_us = db->start_us;
		return LEASE_BOND_BEFORE;
	}
	if (is_alive(entry->kind, stamp))
		return LEASE_BOND_THERE;
	if (entry->kind == LEASE_TRANSACTION)
		return LEASE_BOND_ENDED;
	if (stamp.slot >= (uint32) MaxBackends)
		return LEASE_BOND_LOST;
	pg_read_barrier();
	if (pg_atomic_read_u32(&bonds[stamp.slot].discarded) == stamp.serial)
		return LEASE_BOND_ENDED;
	*since_us = (int64) pg_atomic_read_u64(&bonds[stamp.slot].lost_us) +
		(int64) pg_atomic_read_u64(&db->clock_offset_us);
	return LEASE_BOND_LOST;
}

/*
 * Show the core an entry, as a stranger's; its strings stay where they are.
 * "db" is NULL for a look at a table that nobody has used in this server.
 */
lease_holder
lease_bond_holder(LeaseDatabase *db, const LeaseEntry *entry, int64 now_us)
{
	lease_bond	bond = LEASE_BOND_THERE;
	LeaseBinding binding = {{0, 0}, 0};
	int64		since_us = now_us;
	lease_holder holder = {
		.owner = lease_entry_owner(entry),
		.request = lease_entry_request(entry),
		.mode = entry->mode,
		.kind = entry->kind,
		.standing = LEASE_STRANGER,
		.repeated = (entry->flags & LEASE_ENTRY_REPEATED) != 0,
		.version = entry->version,
		.token = entry->token,
		.deadline_us = entry->deadline_us,
		.change = LEASE_UNCHANGED,
	};

	if (entry->kind != LEASE_PLAIN)
	{
		binding = lease_entry_binding(entry);
		bond = find_bond(db, entry, binding.stamp, now_us, &since_us);
		holder.elsewhere =
			binding.stamp.slot != (uint32) compat_my_proc_number() ||
			!is_alive(entry->kind, binding.stamp);
	}
	lease_judge(&holder, bond, binding.ttl_us, since_us, now_us);
	if (lease_entry_is_leaving(entry))
		holder.life = LEASE_LEAVING;
	return holder;
}
