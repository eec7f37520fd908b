/*
 * lease_waiter.c
 *	  This backend as a waiter: its places in queues.
 *
 * A call takes a place when it may have to wait, joins a queue with it under the
 * lock of the name's bucket (lease_queue.c), sleeps (lease_wait.c), and gives the
 * place back.  One that watches several names has a place for each.  If an
 * error comes anywhere in between, the end of the transaction or of the backend
 * gives the places back (lease_session.c).  That is why they belong to the
 * backend and not to the call.
 *
 * Leaving a queue takes the lock of its partition and none before it.  A crash
 * ends all waiting.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"
#include "wait/lease_wait.h"

/* This backend's places to wait in. */
static LeaseWaiter *my_waiters[LEASE_WAITER_PLACES_MAX];
static int	nmy_waiters = 0;

/* The name it waits for, or the first of several. */
static char my_name[LEASE_STRING_MAX];
static size_t my_name_length = 0;

/* This backend's place, or the first of several, or NULL. */
LeaseWaiter *
lease_waiter_mine(void)
{
	return nmy_waiters > 0 ? my_waiters[0] : NULL;
}

/* The place that this backend has taken last, or NULL. */
LeaseWaiter *
lease_waiter_last(void)
{
	return nmy_waiters > 0 ? my_waiters[nmy_waiters - 1] : NULL;
}

/* The name that it waits for, or the first of several. */
lease_bytes
lease_waiter_name(void)
{
	return (lease_bytes) {my_name, my_name_length};
}

/*
 * One place more, for a call that watches several names and has begun with
 * lease_waiter_begin(); at most LEASE_WAITER_PLACES_MAX in all.
 */
LeaseWaiter *
lease_waiter_add(LeaseDatabase *db, const LeaseRequester *requester,
				 const lease_request *request, LeaseWaitRole role_in_queue)
{
	LeaseWaiter *waiter;

	Assert(nmy_waiters < LEASE_WAITER_PLACES_MAX);
	waiter = lease_queue_allocate_waiter(requester->role,
										 nmy_waiters > 0);
	my_waiters[nmy_waiters++] = waiter;

	waiter->role_in_queue = role_in_queue;
	waiter->places = 1;
	waiter->latch = MyLatch;
	waiter->db = lease_area_place(db);
	waiter->since = GetCurrentTimestamp();
	waiter->pid = MyProcPid;
	waiter->acts_for = InvalidOid;
	waiter->stamp = requester->stamp;
	waiter->mode = request->mode;
	waiter->kind = request->kind;
	waiter->limit = request->limit;
	waiter->permits = request->permits;
	waiter->ttl_us = request->ttl_us;
	waiter->owner_length = LEASE_PUT_STRING(waiter->owner,
											request->owner);
	waiter->request_length = LEASE_PUT_STRING(waiter->request,
											  request->request);
	waiter->application_length = LEASE_PUT_STRING(waiter->application,
												  lease_client_application());
	waiter->address_length = LEASE_PUT_STRING(waiter->address,
											  lease_client_address());
	return waiter;
}

/*
 * A place to wait in for a call's request, to be given to lease_queue_join().
 * Raises an error if there is none.  lease_waiter_finish() gives it back, at the
 * latest when an error has ended the transaction: for that, the caller has
 * called lease_session_watch().
 */
LeaseWaiter *
lease_waiter_begin(LeaseDatabase *db, lease_bytes name,
				   const LeaseRequester *requester,
				   const lease_request *request, LeaseWaitRole role_in_queue)
{
	lease_waiter_finish();
	my_name_length = LEASE_PUT_STRING(my_name, name);
	return lease_waiter_add(db, requester, request, role_in_queue);
}

/*
 * Leave the queues that were joined, keeping the places.  True if a lease was
 * granted before that.
 */
bool
lease_waiter_leave(void)
{
	bool		answered = false;

	for (int i = 0; i < nmy_waiters; i++)
	{
		LeaseAnswer answer;
		XLogRecPtr	lsn;

		if (my_waiters[i]->joined)
			answered |= lease_queue_leave(my_waiters[i], &answer, &lsn);
	}
	return answered;
}

/*
 * Leave the watchers of a name that this backend has just taken, keeping the
 * place.  The caller holds the name's bucket, so that nobody who finds the hold
 * there still finds the wait.
 */
void
lease_waiter_leave_name(uint32 hash, lease_bytes name)
{
	for (int i = 0; i < nmy_waiters; i++)
	{
		LeaseQueue *queue = lease_queue_of(my_waiters[i]);	/* ours to leave */
		LeaseAnswer answer;
		XLogRecPtr	lsn;

		if (queue == NULL || queue->key.hash != hash ||
			!lease_same(name, (lease_bytes) {
				queue->key.name, queue->key.length
			}))
			continue;
		(void) lease_queue_leave(my_waiters[i], &answer, &lsn);
		return;
	}
}

/* Leave the queues, if there are any, and give the places back. */
void
lease_waiter_finish(void)
{
	(void) lease_waiter_leave();
	while (nmy_waiters > 0)
		lease_queue_free_waiter(my_waiters[--nmy_waiters]);
}

/*
 * The same at the exit of the backend.  True if it was granted a lease that its
 * call has not learnt of: then *granted is a copy of its place, with the answer.
 */
bool
lease_waiter_abandon(LeaseWaiter *granted)
{
	bool		answered = lease_waiter_leave();

	/* only who stands in line is answered, and has one place */
	if (answered)
		*granted = *lease_waiter_mine();
	lease_waiter_finish();
	return answered && lease_is_granted(granted->answer.outcome);
}
