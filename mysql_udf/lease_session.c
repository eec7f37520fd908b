/*
 * lease_session.c
 *	  Connections that have session leases, and their ends.
 *
 * A session lease lives as long as the connection that took it.  lease_watch.c hears of
 * the ends of connections; this file keeps the connections and their leases.  What the
 * engine has to do about them becomes calls, which the batcher fetches by
 * lease_session_give(), some for each batch: one connection may have many leases, and
 * the calls of others must not wait for all of them.
 *
 * An id may come again: MariaDB ends a session when the connection changes its user, and
 * MySQL's ids have 32 bits.
 *
 * Other servers of a cluster only see the row and its time to live.  So the rows of
 * living sessions are written again when a third of that time is over.  The other two
 * thirds leave time for the batches that this may take.
 *
 * All under the engine's mutex, except where a comment says otherwise.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_session.h"

#include <stdlib.h>
#include <string.h>

#include "heap.h"
#include "lease_connections.h"
#include "lease_moment.h"
#include "lease_tenure.h"

/* A lease of a session. */
typedef struct session_lease
{
	struct session_lease *next; /* of the same session */
	struct session_lease **place;	/* what points here */
	hash_link	by_lease;
	heap_item	keep;			/* when to write that it lives */
	uint64_t	token;
	int64_t		ttl_us;
	dlock_caller caller;
	size_t		name_length;
	size_t		owner_length;
	char		name[LEASE_STRING_MAX];
	char		owner[LEASE_STRING_MAX];
} session_lease;

/* A connection that is watched, or that has ended and still has leases. */
typedef struct session
{
	struct session *next;
	uint64_t	connection_id;
	bool		seen;			/* the server's list of connections has it */
	session_lease *leases;
} session;

#define SESSION_SLOTS	1024

/*
 * The shortest time after which a row is written again: in a cluster, and where no
 * other server reads it.
 */
#define KEEP_LEAST_US		20000
#define KEEP_ALONE_US		1000000

static session *sessions[SESSION_SLOTS];
static session *ended = NULL;	/* sessions whose leases are to be ended */
static hash_table leases;
static heap keeps;				/* the same leases */

/* The place of a connection in its list, or the end of that list. */
static session **
find_session(uint64_t connection_id)
{
	session   **place = &sessions[connection_id % SESSION_SLOTS];

	while (*place != NULL && (*place)->connection_id != connection_id)
		place = &(*place)->next;
	return place;
}

/* A lease of a connection, or NULL. */
static session_lease *
find_lease(uint64_t connection_id, uint64_t token, lease_bytes name)
{
	/* another name may have the same token */
	for (hash_link *link = hash_first(&leases, hash_bytes(name, token));
		 link != NULL; link = hash_next(link))
	{
		session_lease *lease = hash_object(session_lease, by_lease, link);

		if (lease->token == token &&
			lease->caller.connection_id == connection_id &&
			lease_same(name, (lease_bytes) {lease->name, lease->name_length}))
			return lease;
	}
	return NULL;
}

/* Forget a lease. */
static void
drop_lease(session_lease *lease)
{
	*lease->place = lease->next;
	if (lease->next != NULL)
		lease->next->place = lease->place;
	hash_remove(&leases, &lease->by_lease);
	heap_remove(&keeps, &lease->keep);
	free(lease);
}

/* Say whether a connection is watched, and has not ended. */
bool
lease_session_is_alive(uint64_t connection_id)
{
	return *find_session(connection_id) != NULL;
}

/* Have the engine do something about a lease: add a call to a list. */
static void
add_call(lease_internal what, const session_lease *lease, lease_calls *calls)
{
	lease_call *call = lease_call_create_own(LEASE_DROP, lease->token,
											 (lease_bytes) {
		lease->owner, lease->owner_length
	}, (lease_bytes) {
		lease->name, lease->name_length
	}, &lease->caller);

	if (call == NULL)
		return;					/* its time to live will end it */
	call->internal = what;
	lease_calls_append(calls, call);
}

/* The shortest time after which a row is written again. */
static int64_t
least_pause_us(void)
{
	return tenure->clustered ? KEEP_LEAST_US : KEEP_ALONE_US;
}

/* After how long the row of a lease is written again. */
static int64_t
pause_us(const session_lease *lease)
{
	int64_t		third_us = lease->ttl_us / 3;

	return third_us > least_pause_us() ? third_us : least_pause_us();
}

/* End up to "most" leases of a session that has ended, and say how many. */
static size_t
end_leases(session *s, size_t most, lease_calls *calls)
{
	size_t		n = 0;
	session_lease *next;

	for (session_lease *lease = s->leases; lease != NULL && n < most;
		 lease = next, n++)
	{
		next = lease->next;
		add_call(LEASE_INTERNAL_END_SESSION, lease, calls);
		drop_lease(lease);
	}
	return n;
}

/*
 * Watch a connection from now on: false if memory is short.  If it had a session before
 * whose leases are still to be ended, the list gets the calls for that: all that the new
 * session does comes after them.
 */
bool
lease_session_open(uint64_t connection_id, lease_calls *calls)
{
	session    *s = calloc(1, sizeof(session));

	if (s == NULL)
		return false;
	s->connection_id = connection_id;
	s->seen = true;				/* a list that is being read may lack it */
	*find_session(connection_id) = s;
	for (session *old = ended; old != NULL; old = old->next)
		if (old->connection_id == connection_id)
			(void) end_leases(old, SIZE_MAX, calls);
	return true;
}

/*
 * Note the session lease that a call was granted, before the call is answered: false if
 * memory is short.  If the connection has ended, the list gets a call to end the lease.
 */
bool
lease_session_add(const lease_call *call, lease_calls *calls)
{
	session    *s = *find_session(call->caller.connection_id);
	session_lease *lease;

	if (s != NULL && find_lease(s->connection_id, call->answer.token,
								call->names[0]) != NULL)
		return true;			/* re-entered */
	if (!hash_reserve(&leases) || !heap_reserve(&keeps))
		return false;
	lease = calloc(1, sizeof(session_lease));
	if (lease == NULL)
		return false;
	lease->token = call->answer.token;
	lease->ttl_us = call->request.ttl_us;
	lease->caller = call->caller;
	lease->name_length = call->names[0].length;
	memcpy(lease->name, call->names[0].data, lease->name_length);
	lease->owner_length = call->request.owner.length;
	memcpy(lease->owner, call->request.owner.data, lease->owner_length);
	if (s == NULL)
	{
		/* the connection has ended while the grant was on its way */
		add_call(LEASE_INTERNAL_END_SESSION, lease, calls);
		free(lease);
		return true;
	}
	lease->next = s->leases;
	lease->place = &s->leases;
	if (lease->next != NULL)
		lease->next->place = &lease->next;
	s->leases = lease;
	hash_add(&leases, &lease->by_lease,
			 hash_bytes(call->names[0], lease->token));
	heap_add(&keeps, &lease->keep, lease_now() + pause_us(lease));
	return true;
}

/* The row of a session lease has been written, with a time to live. */
void
lease_session_written(uint64_t connection_id, uint64_t token, lease_bytes name,
					  int64_t ttl_us)
{
	session_lease *lease = find_lease(connection_id, token, name);

	if (lease == NULL)
		return;
	lease->ttl_us = ttl_us;
	heap_move(&keeps, &lease->keep, lease_now() + pause_us(lease));
}

/* The row of a session lease could not be written: try again soon. */
void
lease_session_unwritten(const lease_call *call)
{
	session_lease *lease = find_lease(call->caller.connection_id,
									  call->request.token, call->names[0]);

	if (lease != NULL)
		heap_move(&keeps, &lease->keep, lease_now() + least_pause_us());
}

/* A session lease has ended. */
void
lease_session_remove(uint64_t connection_id, uint64_t token, lease_bytes name)
{
	session_lease *lease = find_lease(connection_id, token, name);

	if (lease != NULL)
		drop_lease(lease);
}

/* A connection has ended, and the leases that it has left are to be ended. */
void
lease_session_end(uint64_t connection_id)
{
	session   **place = find_session(connection_id);
	session    *s = *place;

	if (s == NULL)
		return;
	*place = s->next;
	/* the first now: a session with few leases need not wait for one with many */
	s->next = ended;
	ended = s;
}

/* When lease_session_give() has something to give, at the earliest. */
int64_t
lease_session_due_us(void)
{
	const heap_item *first = heap_first(&keeps);

	return ended != NULL ? INT64_MIN :
		first != NULL ? first->due_us : INT64_MAX;
}

/*
 * Give up to "most" calls: those that end the leases of sessions that have ended, and
 * those that have the rows of living ones written in time, also rows whose time is near.
 * No row is written when the server is being shut down, which ends the sessions.
 */
void
lease_session_give(int64_t now_us, size_t most, lease_calls *calls)
{
	bool		is_ending = dlock_server_is_ending();
	heap_item  *first;

	while (ended != NULL && most > 0)
	{
		session    *s = ended;

		most -= end_leases(s, most, calls);
		if (s->leases != NULL)
			return;
		ended = s->next;
		free(s);
	}
	for (; most > 0 && (first = heap_first(&keeps)) != NULL; most--)
	{
		const session_lease *lease = heap_object(session_lease, keep, first);

		if (first->due_us - pause_us(lease) / 2 > now_us)
			return;
		heap_move(&keeps, first, now_us + pause_us(lease));
		if (!is_ending)
			add_call(LEASE_INTERNAL_KEEP, lease, calls);
	}
}

/* ----------------------------------------------------------------
 * Which connections there are
 * ----------------------------------------------------------------
 */

/* MariaDB; both are set without the mutex. */
static atomic_bool is_told = false; /* the plugin is active */
static atomic_bool was_deaf = false;	/* it was not, since the last list was read */

static bool can_list = false;	/* the list of connections can be read */

/* Say whether the plugin has to be active: on MariaDB, while there are sessions. */
bool
lease_session_needs_plugin(void)
{
	if (dlock_server_kind() == DLOCK_SERVER_MYSQL)
		return false;
	for (size_t i = 0; i < SESSION_SLOTS; i++)
		if (sessions[i] != NULL)
			return true;
	return false;
}

/*
 * Say whether the list of connections has to be read; if so, note that no session
 * has been seen in it yet.
 */
bool
lease_session_begin_list(void)
{
	bool		any = !can_list;
	bool		deaf = atomic_exchange(&was_deaf, false);

	if (dlock_server_kind() == DLOCK_SERVER_MYSQL || (is_told && !deaf))
		return false;
	for (size_t i = 0; i < SESSION_SLOTS; i++)
		for (session *s = sessions[i]; s != NULL; s = s->next)
		{
			s->seen = false;
			any = true;
		}
	return any;
}

/* A connection is in the list. */
void
lease_session_list(uint64_t connection_id)
{
	session    *s = *find_session(connection_id);

	if (s != NULL)
		s->seen = true;
}

/*
 * The list of connections has been read, if it can be: end the sessions that are not in
 * it, as lease_session_end() does.
 */
void
lease_session_end_list(bool could)
{
	can_list = could;
	if (!could)
		was_deaf = true;
	for (size_t i = 0; could && i < SESSION_SLOTS; i++)
	{
		session    *next;

		for (session *s = sessions[i]; s != NULL; s = next)
		{
			next = s->next;
			if (!s->seen)
				lease_session_end(s->connection_id);
		}
	}
}

/*
 * MariaDB: note whether the plugin tells us of the ends of connections.  When it begins
 * to, the list finds those that have ended before.  The mutex is not needed.
 */
void
dlock_connections_told(bool told)
{
	if (told && !is_told)
		was_deaf = true;
	is_told = told;
}

/* MariaDB: say whether we would learn of the end of a connection. */
bool
lease_session_is_heard(void)
{
	return is_told || can_list;
}
