/*
 * lease_event.c
 *	  Tell listeners that a lease has expired or was force-released.
 *
 * Leases change outside of transactions, and NOTIFY belongs to one.  So the
 * backend that ends a lease leaves a note in shared memory, and the worker of
 * the database sends it, within dlock.reap_interval.  There is room for
 * EVENTS_MAX notes; if more come before the worker has sent them, the oldest
 * are lost, and a payload says how many.  So are those that the worker has
 * taken when it dies or its transaction fails, as when the queue of NOTIFY is
 * full: LeaseDatabase counts what nobody was told of.
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
	Oid			database;		/* InvalidOid: nothing, or taken */
	LeaseEventKind kind;
	uint64		token;
	uint8		length;
	char		name[LEASE_STRING_MAX];
} LeaseEvent;

typedef struct EventShared
{
	LWLock		lock;			/* protects all of it, and LeaseDatabase.events */
	uint32		next;			/* where the next goes, modulo EVENTS_MAX */
	LeaseEvent	events[EVENTS_MAX];
} EventShared;

bool		lease_notify = false;

static EventShared *event_shared = NULL;

/* Called by lease_area.c. */
void
lease_event_attach(bool make)
{
	event_shared = lease_area_take(1, sizeof(EventShared));
	if (make)
		lease_area_init_lock(&event_shared->lock);
}

/* Leave a note for this database's worker, if events are asked for. */
void
lease_event_add(LeaseEventKind kind, lease_bytes name, uint64 token)
{
	LeaseDatabase *db = lease_state_find();
	LeaseEvent *event;

	if (!lease_notify || db == NULL)
		return;
	LWLockAcquire(&event_shared->lock, LW_EXCLUSIVE);
	event = &event_shared->events[event_shared->next++ % EVENTS_MAX];
	event->database = MyDatabaseId;
	event->kind = kind;
	event->token = token;
	event->length = LEASE_PUT_STRING(event->name, name);
	db->events++;
	LWLockRelease(&event_shared->lock);
}

/* Take the events of this database, the oldest first, and the count of those lost. */
static List *
take_events(const LeaseDatabase *db, int *lost)
{
	List	   *events = NIL;

	LWLockAcquire(&event_shared->lock, LW_EXCLUSIVE);
	for (uint32 i = 0; i < EVENTS_MAX; i++)
	{
		LeaseEvent *event = &event_shared->events[(event_shared->next + i) % EVENTS_MAX];
		LeaseEvent *copy;

		if (event->database != MyDatabaseId)
			continue;
		copy = palloc(sizeof(LeaseEvent));
		*copy = *event;
		events = lappend(events, copy);
		event->database = InvalidOid;
	}
	/* there may be more, from before the extension was dropped */
	*lost = db->events - Min(db->events, list_length(events));
	LWLockRelease(&event_shared->lock);
	return events;
}

/*
 * Notify listeners of the events of this database, in a transaction; returns of
 * how many.
 */
static int
notify_all(const LeaseDatabase *db)
{
	StringInfoData payload;
	int			lost;
	List	   *events = take_events(db, &lost);
	ListCell   *cell;

	initStringInfo(&payload);
	if (lost > 0)
	{
		appendStringInfo(&payload, "{\"event\": \"lost\", \"count\": %d}", lost);
		Async_Notify(CHANNEL, payload.data);
	}
	foreach(cell, events)
	{
		LeaseEvent *event = lfirst(cell);

		resetStringInfo(&payload);
		appendStringInfo(&payload, "{\"event\": \"%s\", \"name\": ",
						 event->kind == LEASE_EVENT_EXPIRED ? "expired" :
						 "force-released");
		escape_json(&payload, pnstrdup(event->name, event->length));
		appendStringInfo(&payload, ", \"token\": %llu}",
						 (unsigned long long) event->token);
		Async_Notify(CHANNEL, payload.data);
	}
	return list_length(events) + lost;
}

/*
 * Send the events of this database, in a transaction of its own.  If that fails, the
 * log is told once until it succeeds, and the worker goes on: its work must not
 * depend on who listens.
 */
void
lease_event_send(LeaseDatabase *db)
{
	static bool told = false;
	MemoryContext memory = CurrentMemoryContext;

	if (db->events == 0)
		return;
	PG_TRY();
	{
		int			sent;

		StartTransactionCommand();
		sent = notify_all(db);
		CommitTransactionCommand();
		LWLockAcquire(&event_shared->lock, LW_EXCLUSIVE);
		db->events -= Min(db->events, sent);
		LWLockRelease(&event_shared->lock);
		told = false;
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		if (!told)
			EmitErrorReport();
		told = true;
		AbortOutOfAnyTransaction();
		MemoryContextSwitchTo(memory);
		FlushErrorState();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
}
