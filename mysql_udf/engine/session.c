/*
 * session.c
 *	  Connections that have session leases, and their ends.
 *
 * A session lease lives as long as the connection that took it.  lease_connections.c
 * hears of the ends of connections.  Where the server does not tell, upkeep looks at the
 * list of connections instead, once a second: on MariaDB after a reinstallation, while
 * there are connections from before.  MariaDB does not say when its audit plugin goes
 * silent: it deactivates it after the last of these connections.  So upkeep asks.
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
#include <string.h>
#include <unistd.h>

#include "lease_connections.h"

/* How long a connection's first session lease waits for the list of connections. */
#define LIST_PATIENCE_US	3000000
#define LIST_LOOK_US		50000

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
static int64_t renew_us = 0;	/* when to write that a lease lives; see session_renew() */

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
	renew_us = 0;
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
static bool
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
dlock_connection_ended(uint64_t connection_id)
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

/*
 * In a cluster the other nodes know no more of a session's lease than its time to live:
 * write that it lives, each third of that.  Returns when to do it again.
 */
int64_t
session_renew(int64_t now_us)
{
	if (now_us < renew_us)
		return renew_us;
	renew_us = INT64_MAX;
	for (size_t i = 0; i < sessions.nslots; i++)
		for (hash_link *link = sessions.slots[i]; link != NULL; link = link->next)
			for (held *h = hash_object(session, by_id, link)->leases; h != NULL;
				 h = h->session_next)
			{
				if (h->deadline_us - now_us < h->ttl_us * 2 / 3 && !decide_extend(h, now_us))
				{
					buffer_undo(NULL);
					return now_us + LIST_LOOK_US;
				}
				renew_us = lease_earlier(renew_us, h->deadline_us - h->ttl_us * 2 / 3);
			}
	return renew_us;
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
dlock_connections_told(bool told)
{
	if (told && !is_told)
		was_deaf = true;
	is_told = told;
}

/* MariaDB: say whether we would learn of the end of a connection. */
static bool
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

/* ----------------------------------------------------------------
 * Watching
 * ----------------------------------------------------------------
 */

/* Have the end of a connection reported to us: false if that cannot be done just now. */
static bool
watch(uint64_t connection_id, bool *failed)
{
	bool		is_mysql = dlock_server_kind() == DLOCK_SERVER_MYSQL;
	bool		is_kept;
	bool		watched;

	engine_lock();
	watched = session_is_alive(connection_id);
	engine_unlock();
	if (watched)
		return true;
	is_kept = is_mysql && connection_id != 0 && lease_connections_keep(connection_id);
	engine_lock();
	watched = is_mysql ? is_kept : connection_id != 0 && session_is_heard();
	if (watched)
		*failed = !session_open(connection_id);
	else
		upkeep_hurry();			/* to read the list of connections */
	engine_unlock();
	return watched;
}

/*
 * Have dlock_connection_ended() called when the calling connection ends: false with an
 * error in the answer.  The engine has been started, and the mutex is not held.
 */
bool
session_watch(dlock_answer *answer)
{
	uint64_t	connection_id = dlock_caller_connection_id();
	int64_t		end_us = lease_now() + LIST_PATIENCE_US;
	bool		failed = false;

	strcpy(answer->sqlstate, "55000");
	/* an event's thread ends without telling audit plugins */
	if (dlock_caller_is_event())
	{
		strcpy(answer->message, "cannot be told when this connection ends; an event cannot take session leases");
		return false;
	}
	while (!watch(connection_id, &failed))
	{
		if (dlock_server_kind() != DLOCK_SERVER_MARIADB ||
			lease_now() >= end_us || dlock_thd_killed(dlock_caller_thd()))
		{
			strcpy(answer->message, "cannot be told when this connection ends; run install.sql again");
			return false;
		}
		dlock_wait_begin();
		usleep(LIST_LOOK_US);
		dlock_wait_end();
	}
	if (failed)
	{
		strcpy(answer->sqlstate, "53200");
		strcpy(answer->message, "out of memory");
		return false;
	}
	answer->sqlstate[0] = '\0';
	return true;
}
