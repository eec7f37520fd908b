/*
 * lease_protect.c
 *	  Give back what a call has taken when it fails before it answers.
 *
 * A call notes what it takes (lease_unclaimed.c).  If notes remain when the
 * call fails, their holds are given back
 *
 * - after an error in lease_protect(), which runs such a step of a call in a
 *   subtransaction.  Rolling that back cleans up after the error as only the
 *   core can (pins, pages that were being read, locks), and leaves a
 *   transaction in which the table can be used;
 * - at the exit of the backend (lease_session.c);
 * - by the worker of the database, which takes the notes over if giving back
 *   has failed, or if somebody has locked the table, since a call that was
 *   cancelled cannot wait for that.
 *
 * A hold with a request id stays if a call has repeated that id meanwhile: that
 * call was answered with the hold.  The row says so.
 *
 * No page is locked when any of this begins.  A crash leaves a hold that was not
 * given back yet until its deadline.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "lease_activate.h"
#include "lease_attempt.h"
#include "lease_protect.h"
#include "lease_relation.h"
#include "lease_unclaimed.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

static bool protecting = false; /* an error will pass through lease_protect() */
static bool leaving = false;	/* giving back follows an abort */

static void
release(Relation rel, const LeaseUnclaimedHold *hold)
{
	lease_request request = {
		.op = LEASE_RELEASE,
		.owner = {hold->owner, hold->owner_length},
		.token = hold->token,
		.holds = hold->holds,
		.unless_repeated = hold->has_request,
	};

	lease_attempt_give_back(rel, (lease_bytes) {
		hold->name, hold->name_length
	}, hold->role, &request);
}

/*
 * Give back what was taken, in a transaction that can do so; nothing if
 * somebody has locked the table, or makes its new file ready.  Each note is struck first.  So if an error
 * leaves open whether the hold was given back, the hold stays until its
 * deadline: to release twice would end another hold of the owner.
 */
void
lease_protect_give_back(void)
{
	const LeaseUnclaimedHold *hold;
	Relation	rel;

	if (!lease_unclaimed_any() ||
		(rel = lease_relation_open_at_exit()) == NULL)
		return;
	while (lease_activate_at_once(rel) != NULL &&
		   (hold = lease_unclaimed_strike()) != NULL)
		release(rel, hold);
	relation_close(rel, RowExclusiveLock);
}

/* Give back in a subtransaction, so that a failure does not abort ours. */
static void
give_back_safely(void)
{
	MemoryContext memory = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	HOLD_INTERRUPTS();
	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		lease_protect_give_back();
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		/* the error has reset the count, from which we take one below */
		HOLD_INTERRUPTS();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(memory);
	CurrentResourceOwner = owner;
	RESUME_INTERRUPTS();
	lease_unclaimed_hand_over();
}

/*
 * Take a step of a call.  If it raises an error, what the call has taken is
 * given back before the error goes on.
 */
void
lease_protect(void (*step) (void *context), void *context)
{
	MemoryContext memory = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(memory);
	protecting = true;
	PG_TRY();
	{
		step(context);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(memory);
		CurrentResourceOwner = owner;
		protecting = false;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(memory);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(memory);
		CurrentResourceOwner = owner;
		protecting = false;
		if (lease_unclaimed_any())
			give_back_safely();
		ReThrowError(error);
	}
	PG_END_TRY();
}

/*
 * A subtransaction, or the whole transaction, has been aborted.  After an error
 * that passed through lease_protect(), giving back follows; any other error
 * leaves that to the worker.
 */
void
lease_protect_abort(bool whole)
{
	if (whole)
		protecting = false;
	if (!protecting && !leaving)
		lease_unclaimed_hand_over();
}

/*
 * This backend exits.  Returns whether there is something to give back, for
 * which the caller starts a transaction, and then hands over what is left.
 */
bool
lease_protect_exit(void)
{
	leaving = true;
	return lease_unclaimed_any();
}

/* Give back what was handed over to this database's worker. */
void
lease_protect_take_over(Relation rel)
{
	LeaseUnclaimedHold hold;

	while (lease_unclaimed_take(&hold))
		release(rel, &hold);
}
