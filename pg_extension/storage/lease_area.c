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
const LeaseAreaSizes *lease_area_sizes = NULL;
TimestampTz lease_area_told = 0;

/* The tranche of the area's locks; known before the area is made. */
static int	tranche = 0;

/* Make a lock of the area. */
void
lease_area_init_lock(LWLock *lock)
{
	LWLockInitialize(lock, tranche);
}

/* The start of a part, or with the number of parts the size of all. */
static Size
part_start(int number)
{
	Size		start = CACHELINEALIGN(sizeof(LeaseAreaSizes));

	for (int i = 0; i < number; i++)
		start = add_size(start, CACHELINEALIGN(lease_area_parts[i].size()));
	return start;
}

/* Let each module know where its part is; "make": nobody has used it yet. */
static void
attach_parts(dsm_segment *segment, bool make)
{
	dsm_pin_mapping(segment);	/* it is not this transaction's */
	lease_area_start = dsm_segment_address(segment);
	lease_area_sizes = (LeaseAreaSizes *) lease_area_start;
	for (int i = 0; i < lease_area_nparts; i++)
		lease_area_parts[i].attach(lease_area_start + part_start(i), make);
}

/* Make the area; the anchor is locked. */
static void
make_area(Anchor *anchor, const LeaseAreaSizes *sizes)
{
	dsm_segment *segment;
	Size		size;

	lease_area_sizes = sizes;
	size = part_start(lease_area_nparts);
	segment = dsm_create(size, 0);
	memset(dsm_segment_address(segment), 0, size);
	*(LeaseAreaSizes *) dsm_segment_address(segment) = *sizes;
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

/* Attach to the area; if there is none, "make" one, or do nothing. */
static void
map_or_make(bool make)
{
	LeaseAreaSizes sizes = {
		.databases = lease_max_databases,
		.waiters = lease_max_waiters < 0 ? MaxBackends : lease_max_waiters,
		.guards = lease_max_guards,
	};
	bool		found;
	Anchor	   *anchor;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	anchor = ShmemInitStruct("dlock", sizeof(Anchor), &found);
	if (!found)
		memset(anchor, 0, sizeof(Anchor));
	PG_TRY();
	{
		if (anchor->layout != 0)
			map_area(anchor);
		else if (make)
			make_area(anchor, &sizes);
	}
	PG_CATCH();
	{
		/* what is not finished is nobody's */
		lease_area_start = NULL;
		lease_area_sizes = NULL;
		PG_RE_THROW();
	}
	PG_END_TRY();
	LWLockRelease(AddinShmemInitLock);
	if (lease_area_start != NULL)
		compat_register_tranche(tranche, TRANCHE_NAME);
}

/* The slow part of lease_area_attach(). */
void
lease_area_attach_now(void)
{
	if (lease_area_start == NULL)
		map_or_make(true);
	lease_area_told = PgReloadTime;
	lease_state_tell_lock_delay();
}

/* Attach to the area, unless there is none: false. */
bool
lease_area_attach_if_made(void)
{
	if (lease_area_start == NULL)
		map_or_make(false);
	return lease_area_start != NULL;
}
