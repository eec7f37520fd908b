/*
 * lease_event.c
 *	  Tell listeners that a lease has expired or was force-released.
 *
 * Leases change outside of transactions, and NOTIFY belongs to one.  So the
 * backend that ends a lease leaves a note in shared memory, and the worker of
 * the database sends it, within dlock.reap_interval.  There is room for
 * EVENTS_MAX notes; if more come before the worker has sent them, the oldest
 * are lost, and a payload says how many.  So are those with which the worker's
 * transaction fails, as when the queue of NOTIFY is full.
 *
 * Channels are open to every role, so a payload says no more than everybody may
 * read in dlock.locks: the name and the token, by which a holder knows itself.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "server/lease_server.h"
#include "storage/lwlock.h"
#include "utils/json.h"

#define CHANNEL			"dlock"

/* How many notes there is room for, in all databases together. */
#define EVENTS_MAX		1024

typedef struct LeaseEvent
{
	Oid			database;		/* InvalidOid: sent */
	LeaseEventKind kind;
	uint64		token;
	uint8		length;
	char		name[LEASE_STRING_MAX];
} LeaseEvent;

/* A ring: events first to first + count - 1, modulo EVENTS_MAX. */
typedef struct EventShared
{
	LWLock		lock;			/* protects all of it */
	uint32		first;
	uint32		count;
	uint64		lost;			/* since the last payload that said so */
	LeaseEvent	events[EVENTS_MAX];
} EventShared;

bool		lease_notify = false;

static EventShared *shared = NULL;

/* Notes that this worker has taken, and what it has taken with them as lost. */
static uint64 nsending = 0;

Size
lease_event_size(void)
{
	return sizeof(EventShared);
}

/* Called by lease_area.c. */
void
lease_event_attach(char *start, bool make)
{
	shared = (EventShared *) start;
	if (make)
		lease_area_init_lock(&shared->lock);
}

/* Drop events that have been sent from the front of the ring. */
static void
trim(void)
{
	while (shared->count > 0 &&
		   !OidIsValid(shared->events[shared->first].database))
	{
		shared->first = (shared->first + 1) % EVENTS_MAX;
		shared->count--;
	}
}

/* Leave a note for this database's worker, if events are asked for. */
void
lease_event_add(LeaseEventKind kind, lease_bytes name, uint64 token)
{
	LeaseEvent *event;

	if (!lease_notify)
		return;
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	trim();
	if (shared->count == EVENTS_MAX)
	{
		shared->lost++;
		shared->first = (shared->first + 1) % EVENTS_MAX;
		shared->count--;
	}
	event = &shared->events[(shared->first + shared->count) % EVENTS_MAX];
	event->database = MyDatabaseId;
	event->kind = kind;
	event->token = token;
	event->length = LEASE_PUT_STRING(event->name, name);
	shared->count++;
	LWLockRelease(&shared->lock);
}

/* Say whether this database has events to send. */
bool
lease_event_is_due(void)
{
	bool		due = false;

	if (*(volatile uint32 *) &shared->count == 0)
		return false;
	LWLockAcquire(&shared->lock, LW_SHARED);
	for (uint32 i = 0; i < shared->count && !due; i++)
		due = shared->events[(shared->first + i) % EVENTS_MAX].database ==
			MyDatabaseId;
	LWLockRelease(&shared->lock);
	return due;
}

/* Take the oldest event of this database, and the count of those lost. */
static bool
take_event(LeaseEvent *event, uint64 *lost)
{
	bool		found = false;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	*lost = shared->lost;
	shared->lost = 0;
	for (uint32 i = 0; i < shared->count && !found; i++)
	{
		LeaseEvent *next = &shared->events[(shared->first + i) % EVENTS_MAX];

		if (next->database != MyDatabaseId)
			continue;
		*event = *next;
		next->database = InvalidOid;
		found = true;
	}
	trim();
	nsending += *lost + (found ? 1 : 0);
	LWLockRelease(&shared->lock);
	return found;
}

/*
 * What was taken and not committed is lost.  Also called when the worker ends;
 * cannot fail.
 */
void
lease_event_fail(void)
{
	if (nsending == 0)
		return;
	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	shared->lost += nsending;
	nsending = 0;
	LWLockRelease(&shared->lock);
}

/* Notify listeners of the events of this database, in a transaction. */
static void
notify_all(void)
{
	LeaseEvent	event;
	uint64		lost;

	for (;;)
	{
		StringInfoData payload;
		bool		found = take_event(&event, &lost);

		initStringInfo(&payload);
		if (lost > 0)
		{
			appendStringInfo(&payload, "{\"event\": \"lost\", \"count\": %llu}",
							 (unsigned long long) lost);
			Async_Notify(CHANNEL, payload.data);
			resetStringInfo(&payload);
		}
		if (!found)
			break;
		appendStringInfo(&payload, "{\"event\": \"%s\", \"name\": ",
						 event.kind == LEASE_EVENT_EXPIRED ? "expired" :
						 "force-released");
		escape_json(&payload, pnstrdup(event.name, event.length));
		appendStringInfo(&payload, ", \"token\": %llu}",
						 (unsigned long long) event.token);
		Async_Notify(CHANNEL, payload.data);
	}
}

/*
 * Send the events of this database, in a transaction of its own.  If that fails, the
 * log is told once until it succeeds, and the worker goes on: its work must not
 * depend on who listens.
 */
void
lease_event_send(void)
{
	static bool told = false;
	MemoryContext memory = CurrentMemoryContext;

	if (!lease_event_is_due())
		return;
	PG_TRY();
	{
		StartTransactionCommand();
		notify_all();
		CommitTransactionCommand();
		nsending = 0;
		told = false;
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		if (!told)
			EmitErrorReport();
		told = true;
		AbortOutOfAnyTransaction();
		lease_event_fail();
		MemoryContextSwitchTo(memory);
		FlushErrorState();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
}
