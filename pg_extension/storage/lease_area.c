/*
 * lease_area.c
 *	  The shared memory of dlock: find it, or make it.
 *
 * It is not asked for at the server's start, when the library need not be loaded, but
 * made by the first process that needs it.  An anchor of fixed size in the main shared
 * memory, which has that much to spare, tells where it is: a segment of dynamic shared
 * memory, which stays until the server stops or crashes.  Each process maps it once, at
 * any address.  So nothing in it is a pointer, except to what the main shared memory
 * has, such as latches.
 *
 * How large it is follows the server's settings at that moment, which are kept in the area
 * for those who come later.
 *
 * A package may replace the library under a running server.  New sessions then have
 * another library than old ones, and share the area only if both give it the same
 * layout.  The anchor is the same in all versions.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/dsm.h"
#include "storage/lease_storage.h"
#include "storage/shmem.h"

#define TRANCHE_NAME	"DlockLease"

/* Under AddinShmemInitLock. */
typedef struct Anchor
{
	uint32		layout;			/* of the area; 0: there is none */
	dsm_handle	segment;
	int			tranche;		/* of its locks */
	char		unused[116];
} Anchor;

StaticAssertDecl(sizeof(Anchor) == 128, "the anchor has a fixed size");

int			lease_max_databases = 64;
int			lease_max_waiters = -1;
int			lease_max_guards = 1024;

char	   *lease_area_start = NULL;
const LeaseAreaSettings *lease_area_settings = NULL;
TimestampTz lease_area_told = 0;

/* The distance of the next part that lease_area_take() gives. */
static Size next_part;

/* The tranche of the area's locks; known before the area is made. */
static int	tranche = 0;

/* Make a lock of the area. */
void
lease_area_init_lock(LWLock *lock)
{
	LWLockInitialize(lock, tranche);
}

/*
 * The next part of the area, for so many of a size.  A new one is zeros: what
 * pg_atomic_init_u64() and its like make of a 0, too.
 */
void *
lease_area_take(Size count, Size size)
{
	void	   *part = lease_area_start == NULL ? NULL : lease_area_start + next_part;

	next_part = add_size(next_part, CACHELINEALIGN(mul_size(count, size)));
	return part;
}

/*
 * Let each module take its parts; "make": nobody has used them yet.  Without an
 * area, this finds out how large one has to be.
 */
static void
attach_parts(dsm_segment *segment, bool make)
{
	if (segment != NULL)
	{
		dsm_pin_mapping(segment);	/* it is not this transaction's */
		lease_area_start = dsm_segment_address(segment);
		lease_area_settings = (LeaseAreaSettings *) lease_area_start;
	}
	next_part = CACHELINEALIGN(sizeof(LeaseAreaSettings));
	for (int i = 0; lease_area_parts[i] != NULL; i++)
		lease_area_parts[i] (make);
}

/* Make the area; the anchor is locked. */
static void
make_area(Anchor *anchor)
{
	static LeaseAreaSettings sizes;
	dsm_segment *segment;

	sizes = (LeaseAreaSettings) {
		.databases = lease_max_databases,
		/* of twice as many a role can have the half: as many as can be connected */
		.waiters = lease_max_waiters < 0 ? 2 * MaxBackends : lease_max_waiters,
		.guards = lease_max_guards,
		.boot = lease_clock_identity(),
	};
	lease_area_settings = &sizes;
	attach_parts(NULL, false);
	segment = dsm_create(next_part, 0);
	memset(dsm_segment_address(segment), 0, next_part);
	*(LeaseAreaSettings *) dsm_segment_address(segment) = sizes;
	anchor->tranche = tranche = compat_new_tranche(TRANCHE_NAME);
	attach_parts(segment, true);
	dsm_pin_segment(segment);
	anchor->segment = dsm_segment_handle(segment);
	anchor->layout = LEASE_AREA_LAYOUT;
}

/* Map the area; the anchor is locked. */
static void
map_area(const Anchor *anchor)
{
	dsm_segment *segment;

	if (anchor->layout != LEASE_AREA_LAYOUT)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the dlock library of this session cannot be used with this server's shared memory"),
				 errdetail("The library was replaced while the server was running: the shared memory has layout %u, the library %u.",
						   anchor->layout, LEASE_AREA_LAYOUT),
				 anchor->layout > LEASE_AREA_LAYOUT ?
				 errhint("Connect again.") :
				 errhint("Restart the server. Sessions from before go on.")));
	segment = dsm_attach(anchor->segment);
	if (segment == NULL)
		elog(ERROR, "could not map the shared memory of dlock");
	tranche = anchor->tranche;
	attach_parts(segment, false);
}

/*
 * Attach to the area, if this process has not.  If there is none, "make" one, or
 * return false.
 */
bool
lease_area_map(bool make)
{
	bool		found;
	Anchor	   *anchor;

	if (lease_area_start != NULL)
		return true;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	anchor = ShmemInitStruct("dlock", sizeof(Anchor), &found);
	if (!found)
		memset(anchor, 0, sizeof(Anchor));
	/* what fails here does so before lease_area_start is set */
	if (anchor->layout != 0)
		map_area(anchor);
	else if (make)
		make_area(anchor);
	LWLockRelease(AddinShmemInitLock);
	if (lease_area_start != NULL)
		compat_register_tranche(tranche, TRANCHE_NAME);
	return lease_area_start != NULL;
}

/* The slow part of lease_area_attach(). */
void
lease_area_attach_now(void)
{
	lease_check_settings();
	(void) lease_area_map(true);
	lease_area_told = PgReloadTime;
	lease_state_tell_lock_delay();
}
