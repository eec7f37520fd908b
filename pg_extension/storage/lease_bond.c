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
	pg_atomic_uint32 session;	/* serial of its session */
	pg_atomic_uint32 transaction;	/* serial of its transaction */
	pg_atomic_uint32 discarded; /* serial of the last session that ended its
								 * leases and lived on */
	pg_atomic_uint64 lost_us;	/* boot clock: when the last session that had
								 * leases was lost */
} LeaseBond;

static LeaseBond *bonds = NULL;

/* Whether this session, or transaction, may have taken leases, gone or not. */
static bool session_used = false;
static bool transaction_used = false;

Size
lease_bond_size(void)
{
	return mul_size(MaxBackends, sizeof(LeaseBond));
}

/* Called by lease_area.c; here and in the others, "make" a new one. */
void
lease_bond_attach(char *start, bool make)
{
	uint32		first;

	bonds = (LeaseBond *) start;
	if (!make)
		return;

	/* start anywhere, lest a stamp match one of another server */
	if (!pg_strong_random(&first, sizeof(first)))
		first = 1;
	for (int i = 0; i < MaxBackends; i++)
	{
		pg_atomic_init_u32(&bonds[i].session, first);
		pg_atomic_init_u32(&bonds[i].transaction, first);
		pg_atomic_init_u32(&bonds[i].discarded, first - 1);
		pg_atomic_init_u64(&bonds[i].lost_us, 0);
	}
}

static pg_atomic_uint32 *
serial_of(lease_kind kind, uint32 slot)
{
	return kind == LEASE_SESSION ? &bonds[slot].session :
		&bonds[slot].transaction;
}

static bool *
used_flag(lease_kind kind)
{
	return kind == LEASE_SESSION ? &session_used : &transaction_used;
}

/*
 * This backend is about to take a lease that ends with its session or
 * transaction.  Called before the grant, so that whatever goes wrong after it
 * ends the lease too.
 */
void
lease_bond_use(lease_kind kind)
{
	*used_flag(kind) = true;
}

/* Say whether leases may be bound to this backend's session or transaction. */
bool
lease_bond_is_used(lease_kind kind)
{
	return *used_flag(kind);
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
 * "lost": the session is gone, so that the lock delay applies to the rows it
 * leaves; else it was asked to end its leases.
 */
void
lease_bond_end(lease_kind kind, bool lost)
{
	uint32		slot = (uint32) compat_my_proc_number();

	/* set this first: readers look at it only once the serial has changed */
	if (lost)
		pg_atomic_write_u64(&bonds[slot].lost_us,
							(uint64) lease_clock_boot());
	else if (kind == LEASE_SESSION)
		pg_atomic_write_u32(&bonds[slot].discarded,
							pg_atomic_read_u32(&bonds[slot].session));
	(void) pg_atomic_fetch_add_u32(serial_of(kind, slot), 1);
	*used_flag(kind) = false;
}

/* Say whether the session or transaction of a stamp of this server exists. */
static bool
is_alive(lease_kind kind, LeaseStamp stamp)
{
	return stamp.slot < (uint32) MaxBackends &&
		pg_atomic_read_u32(serial_of(kind, stamp.slot)) == stamp.serial;
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

/* Say whether a stamp is that of this backend's session or transaction. */
static bool
is_my_stamp(lease_kind kind, LeaseStamp stamp)
{
	return stamp.slot == (uint32) compat_my_proc_number() &&
		is_alive(kind, stamp);
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
		holder.elsewhere = !is_my_stamp(entry->kind, binding.stamp);
	}
	lease_judge(&holder, bond, binding.ttl_us, since_us, now_us);
	if (lease_entry_is_leaving(entry))
		holder.life = LEASE_LEAVING;
	return holder;
}
