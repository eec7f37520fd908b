/*
 * lease_session.c
 *	  Connections that have session leases, and their ends.
 *
 * A session lease lives as long as the connection that took it.  lease_watch.c hears of
 * the ends of connections; this file keeps the connections and their leases.  It adds
 * what the engine has to do to a list of calls, which its caller submits to the batcher.
 *
 * The server never uses a connection's id again while it runs.
 *
 * Other servers of a cluster only see the row and its time to live.  So the rows of
 * living sessions are written again before their time to live is over.
 *
 * All under the engine's mutex, except where a comment says otherwise.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_session.h"

#include <stdlib.h>
#include <string.h>

#include "lease_moment.h"
#include "lease_tenure.h"

/* A lease of a session. */
typedef struct session_lease
{
	struct session_lease *next;
	uint64_t	token;
	int64_t		ttl_us;
	int64_t		keep_us;		/* when to write that it lives */
	dlock_caller caller;
	size_t		name_length;
	size_t		owner_length;
	char		name[LEASE_STRING_MAX];
	char		owner[LEASE_STRING_MAX];
} session_lease;

/* A connection that is watched. */
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
static int64_t next_keep_us = INT64_MAX;	/* not later than any keep_us */

/* The place of a connection in its list, or the end of that list. */
static session **
find_session(uint64_t connection_id)
{
	session   **place = &sessions[connection_id % SESSION_SLOTS];

	while (*place != NULL && (*place)->connection_id != connection_id)
		place = &(*place)->next;
	return place;
}

/* The place of a lease in a list, or its end.  Another name may have the same token. */
static session_lease **
find_lease(session_lease **place, uint64_t token, lease_bytes name)
{
	while (*place != NULL &&
		   ((*place)->token != token || !lease_same(name, (lease_bytes) {
			   (*place)->name, (*place)->name_length
		   })))
		place = &(*place)->next;
	return place;
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

static void
keep_at(session_lease *lease, int64_t keep_us)
{
	lease->keep_us = keep_us;
	if (keep_us < next_keep_us)
		next_keep_us = keep_us;
}

/* Watch a connection from now on: false if memory is short. */
bool
lease_session_open(uint64_t connection_id)
{
	session    *s = calloc(1, sizeof(session));

	if (s == NULL)
		return false;
	s->connection_id = connection_id;
	s->seen = true;				/* a list that is being read may lack it */
	*find_session(connection_id) = s;
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

	if (s != NULL &&
		*find_lease(&s->leases, call->answer.token, call->names[0]) != NULL)
		return true;			/* re-entered */
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
	s->leases = lease;
	keep_at(lease, lease_now() + pause_us(lease));
	return true;
}

/* The lease of a session on a name; NULL if it has ended. */
static session_lease *
get_lease(uint64_t connection_id, uint64_t token, lease_bytes name)
{
	session    *s = *find_session(connection_id);

	return s != NULL ? *find_lease(&s->leases, token, name) : NULL;
}

/* The row of a session lease has been written, with a time to live. */
void
lease_session_written(uint64_t connection_id, uint64_t token, lease_bytes name,
					  int64_t ttl_us)
{
	session_lease *lease = get_lease(connection_id, token, name);

	if (lease == NULL)
		return;
	lease->ttl_us = ttl_us;
	keep_at(lease, lease_now() + pause_us(lease));
}

/* The row of a session lease could not be written: try again soon. */
void
lease_session_unwritten(const lease_call *call)
{
	session_lease *lease = get_lease(call->caller.connection_id,
									 call->request.token, call->names[0]);

	if (lease != NULL)
		keep_at(lease, lease_now() + least_pause_us());
}

/* A session lease has ended. */
void
lease_session_remove(uint64_t connection_id, uint64_t token, lease_bytes name)
{
	session    *s = *find_session(connection_id);
	session_lease **place;
	session_lease *lease;

	if (s == NULL)
		return;
	place = find_lease(&s->leases, token, name);
	lease = *place;
	if (lease == NULL)
		return;
	*place = lease->next;
	free(lease);
}

/* A connection has ended: the list gets calls that end its leases. */
void
lease_session_end(uint64_t connection_id, lease_calls *calls)
{
	session   **place = find_session(connection_id);
	session    *s = *place;

	if (s == NULL)
		return;
	*place = s->next;
	while (s->leases != NULL)
	{
		session_lease *lease = s->leases;

		s->leases = lease->next;
		add_call(LEASE_INTERNAL_END_SESSION, lease, calls);
		free(lease);
	}
	free(s);
}

/* When lease_session_keep() has something to do, at the earliest. */
int64_t
lease_session_keep_us(void)
{
	return next_keep_us;
}

/*
 * Have the rows of living sessions written in time: the list gets the calls for that,
 * also for rows whose time is near.  Nothing is written when the server is being shut
 * down, which ends the sessions.
 */
void
lease_session_keep(int64_t now_us, lease_calls *calls)
{
	bool		is_ending = dlock_server_is_ending();

	next_keep_us = INT64_MAX;
	for (size_t i = 0; i < SESSION_SLOTS; i++)
		for (session *s = sessions[i]; s != NULL; s = s->next)
			for (session_lease *lease = s->leases; lease != NULL;
				 lease = lease->next)
			{
				if (lease->keep_us - pause_us(lease) / 2 > now_us)
				{
					keep_at(lease, lease->keep_us);
					continue;
				}
				keep_at(lease, now_us + pause_us(lease));
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
lease_session_end_list(bool could, lease_calls *ended)
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
				lease_session_end(s->connection_id, ended);
		}
	}
}

/*
 * MariaDB: note whether the plugin tells us of the ends of connections.  When it begins
 * to, the list finds those that have ended before.  The mutex is not needed.
 */
void
lease_session_set_told(bool told)
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
