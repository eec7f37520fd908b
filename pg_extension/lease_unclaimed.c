/*
 * lease_unclaimed.c
 *	  Notes of holds that calls have taken and their callers have not learnt of.
 *
 * Between the grant of a hold and its answer much may happen: the call is
 * cancelled, its client dies, a page cannot be read, a second name of several is
 * busy after all.  The caller then gets an error, or nothing, and will not
 * release what it does not know of.  So each call that may fail after a grant
 * notes what it took, and strikes the note when it answers.  Noted holds are
 * given back (lease_protect.c), if need be by the worker of the database, which
 * receives the notes in shared memory.  There is room for HANDED_OVER_MAX
 * holds; beyond that a hold is left to its time to live, and the log says so.
 *
 * The lock of the notes handed over is taken after all others.  A crash loses
 * all notes.  Then holds stay until their deadline, as after any call that was
 * not answered.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "lease_area.h"
#include "lease_page.h"
#include "lease_state.h"
#include "lease_unclaimed.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#define HANDED_OVER_MAX	128

typedef struct UnclaimedShared
{
	LWLock		lock;			/* protects holds; taken after all others */
	volatile int nholds;		/* read without the lock to see whether any are */
	LeaseUnclaimedHold holds[HANDED_OVER_MAX];
} UnclaimedShared;

static UnclaimedShared *shared = NULL;

/* What this backend has taken, in TopMemoryContext. */
static LeaseUnclaimedHold *holds = NULL;
static int	nholds = 0;
static int	max_holds = 0;

Size
lease_unclaimed_size(void)
{
	return sizeof(UnclaimedShared);
}

/* Called by lease_area.c. */
void
lease_unclaimed_attach(char *start, bool make)
{
	shared = (UnclaimedShared *) start;
	if (make)
		lease_area_init_lock(&shared->lock);
}

/* Make room to note so many holds. */
void
lease_unclaimed_reserve(int count)
{
	int			needed = nholds + count;

	if (needed <= max_holds)
		return;
	holds = holds == NULL ?
		MemoryContextAlloc(TopMemoryContext,
						   needed * sizeof(LeaseUnclaimedHold)) :
		repalloc(holds, needed * sizeof(LeaseUnclaimedHold));
	max_holds = needed;
}

/*
 * Note the holds that a request has added to a role's lease; room has been
 * reserved.  Cannot fail.
 */
void
lease_unclaimed_add(lease_bytes name, Oid role, const lease_request *request,
					uint64 token, uint32 taken)
{
	LeaseUnclaimedHold *hold;

	Assert(nholds < max_holds);
	hold = &holds[nholds++];
	hold->database = MyDatabaseId;
	hold->role = role;
	hold->token = token;
	hold->holds = taken;
	hold->has_request = request->request.length > 0;
	hold->name_length = LEASE_PUT_STRING(hold->name, name);
	hold->owner_length = LEASE_PUT_STRING(hold->owner, request->owner);
}

/* The caller is about to learn of all that was taken. */
void
lease_unclaimed_claim(void)
{
	nholds = 0;
}

/*
 * Begin a step whose failure does not give back what was taken; returns the
 * number of notes, for lease_unclaimed_restore() once the step has succeeded.
 * The step makes no note.
 */
int
lease_unclaimed_set_aside(void)
{
	int			noted = nholds;

	nholds = 0;
	return noted;
}

void
lease_unclaimed_restore(int noted)
{
	Assert(nholds == 0 && noted <= max_holds);
	nholds = noted;
}

/* Say whether there is anything that was taken and not claimed. */
bool
lease_unclaimed_any(void)
{
	return nholds > 0;
}

/*
 * Strike the last note and return it, valid until another is made; NULL: there
 * is none.
 */
const LeaseUnclaimedHold *
lease_unclaimed_strike(void)
{
	return nholds == 0 ? NULL : &holds[--nholds];
}

/* Leave to the worker what has not been given back.  Cannot fail. */
void
lease_unclaimed_hand_over(void)
{
	int			left = 0;

	if (nholds == 0)
		return;
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (; nholds > 0; nholds--)
	{
		if (shared->nholds < HANDED_OVER_MAX)
			shared->holds[shared->nholds++] = holds[nholds - 1];
		else
			left++;
	}
	LWLockRelease(&shared->lock);
	if (left > 0)
		ereport(LOG,
				(errmsg("could not give back %d leases, which stay until their deadlines",
						left),
				 errhidestmt(true), errhidecontext(true)));
	lease_state_wake_worker(MyDatabaseId);
}

/* ----------------------------------------------------------------
 * The worker
 * ----------------------------------------------------------------
 */

/* Take one of this database's notes out of those handed over; false: none. */
static bool
take_note(LeaseUnclaimedHold *hold, bool keep)
{
	bool		found = false;

	if (shared->nholds == 0)
		return false;
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nholds && !found; i++)
	{
		if (shared->holds[i].database != MyDatabaseId)
			continue;
		*hold = shared->holds[i];
		found = true;
		if (!keep)
			shared->holds[i] = shared->holds[--shared->nholds];
	}
	LWLockRelease(&shared->lock);
	return found;
}

/* The lock table of a database is gone, and all leases with it.  Cannot fail. */
void
lease_unclaimed_forget(Oid database)
{
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = shared->nholds - 1; i >= 0; i--)
		if (shared->holds[i].database == database)
			shared->holds[i] = shared->holds[--shared->nholds];
	LWLockRelease(&shared->lock);
}

/* Say whether something was handed over to this database's worker. */
bool
lease_unclaimed_is_due(void)
{
	LeaseUnclaimedHold hold;

	return take_note(&hold, true);
}

/* Take over what was handed to this database's worker; false: nothing is left. */
bool
lease_unclaimed_take(LeaseUnclaimedHold *hold)
{
	return take_note(hold, false);
}
