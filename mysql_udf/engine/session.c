/*
 * session.c
 *	  Connections that have session leases, and their ends.
 *
 * A session lease lives as long as the connection that took it.  watch.c hears of the
 * ends of connections.  Where the server does not tell, upkeep looks at the list of
 * connections instead, once a second: on MariaDB after a reinstallation, while there are
 * connections from before.
 *
 * A connection that has ended is kept until its leases are ended, some at a time, by the
 * writer.  An id may come again: MariaDB ends a session when the connection changes its
 * user, and MySQL's ids have 32 bits.  A lease whose session is not known belongs to the
 * lost ones.
 *
 * All of it is under the engine's mutex, except where a comment says otherwise.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "engine.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Most leases that are ended at once. */
#define END_MOST		1000

/* A connection that is watched. */
typedef struct session
{
	hash_link	by_id;
	uint64_t	connection_id;
	bool		seen;			/* the server's list of connections has it */
	held	   *leases;
} session;

static hash_table sessions;
static held *lost;				/* leases whose connection has ended */

/* MariaDB; both are set without the mutex. */
static atomic_bool is_told = false; /* the plugin is active */
static atomic_bool was_deaf = false;	/* it was not, since the last list was read */
static bool can_list = false;	/* the list of connections can be read */

static session *
find_session(uint64_t connection_id)
{
	hash_link  *link = hash_first(&sessions, connection_id);

	return link != NULL ? hash_object(session, by_id, link) : NULL;
}

/* Say whether a connection is watched, and has not ended. */
bool
session_is_alive(uint64_t connection_id)
{
	return find_session(connection_id) != NULL;
}

static void
put_first(held **list, held *h)
{
	h->session_next = *list;
	h->session_place = list;
	if (h->session_next != NULL)
		h->session_next->session_place = &h->session_next;
	*list = h;
}

/* A lease is in the image: if it is a session's of this server, it is put there. */
void
session_enter(held *h)
{
	session    *s;

	if (h->kind != LEASE_SESSION || h->server != lease_run() ||
		h->session_place != NULL)
		return;
	s = find_session(h->connection_id);
	put_first(s != NULL ? &s->leases : &lost, h);
	if (s == NULL)
		buffer_wake_before(0);
}

/* A lease is not in the image any more. */
void
session_leave(held *h)
{
	if (h->session_place == NULL)
		return;
	*h->session_place = h->session_next;
	if (h->session_next != NULL)
		h->session_next->session_place = h->session_place;
	h->session_place = NULL;
}

/* Watch a connection from now on: false if memory is short. */
bool
session_open(uint64_t connection_id)
{
	session    *s = hash_reserve(&sessions) ? calloc(1, sizeof(session)) : NULL;

	if (s == NULL)
		return false;
	s->connection_id = connection_id;
	s->seen = true;				/* a list that is being read may lack it */
	hash_add(&sessions, &s->by_id, connection_id);
	return true;
}

/* A connection has ended. */
static void
end_session(session *s)
{
	while (s->leases != NULL)
	{
		held	   *h = s->leases;

		session_leave(h);
		put_first(&lost, h);
	}
	hash_remove(&sessions, &s->by_id);
	free(s);
	if (lost != NULL)
		buffer_wake_before(0);
}

/* A connection has ended, or has changed its user; the mutex is not held. */
void
session_end(uint64_t connection_id)
{
	session    *s;

	engine_lock();
	s = find_session(connection_id);
	if (s != NULL)
		end_session(s);
	engine_unlock();
}

/* Say whether leases are to be ended because their connections have. */
bool
session_any_lost(void)
{
	return lost != NULL;
}

/* End some of them. */
void
session_end_lost(void)
{
	lease_moment moment = lease_moment_now(false);
	lease_request request = {.op = LEASE_LEAVE};

	for (int i = 0; i < END_MOST && lost != NULL; i++)
	{
		held	   *h = lost;
		lease_bytes name = state_name_bytes(h->name);
		decision	d;

		request.token = h->token;
		request.owner = held_owner(h);
		d = decide_one(h, &request, (party) {h->account, h->connection_id}, &moment);
		if (d.failed)
		{
			buffer_undo(NULL);
			return;
		}
		if (!d.changed && lost == h)
			session_leave(h);	/* its ttl ends it */
		calls_attend(name, true);
		calls_make_woken();
	}
}

/* ----------------------------------------------------------------
 * The list of connections
 * ----------------------------------------------------------------
 */

/*
 * MariaDB: note whether the plugin tells us of the ends of connections.  When it begins
 * to, the list finds those that have ended before.  The mutex is not needed.
 */
void
session_set_told(bool told)
{
	if (told && !is_told)
		was_deaf = true;
	is_told = told;
}

/* MariaDB: say whether we would learn of the end of a connection. */
bool
session_is_heard(void)
{
	return is_told || can_list;
}

/* Say whether the plugin has to be active: on MariaDB, while there are sessions. */
bool
session_needs_plugin(void)
{
	return dlock_server_kind() != DLOCK_SERVER_MYSQL && sessions.count > 0;
}

/*
 * Say whether the list of connections has to be read; if so, note that no session has been
 * seen in it yet.
 */
bool
session_begin_list(void)
{
	bool		deaf = atomic_exchange(&was_deaf, false);

	if (dlock_server_kind() == DLOCK_SERVER_MYSQL || (is_told && !deaf))
		return false;
	for (size_t i = 0; i < sessions.nslots; i++)
		for (hash_link *link = sessions.slots[i]; link != NULL; link = link->next)
			hash_object(session, by_id, link)->seen = false;
	return !can_list || sessions.count > 0;
}

/* A connection is in the list. */
void
session_list(uint64_t connection_id)
{
	session    *s = find_session(connection_id);

	if (s != NULL)
		s->seen = true;
}

/* The list has been read, if it can be: end the sessions that are not in it. */
void
session_end_list(bool could)
{
	can_list = could;
	if (!could)
		was_deaf = true;
	for (size_t i = 0; could && i < sessions.nslots; i++)
	{
		hash_link  *next;

		for (hash_link *link = sessions.slots[i]; link != NULL; link = next)
		{
			session    *s = hash_object(session, by_id, link);

			next = link->next;
			if (!s->seen)
				end_session(s);
		}
	}
}

