/*
 * lease_session.c
 *	  Connections that have session leases, and their ends.
 *
 * A session lease lives as long as the connection that took it.  The servers
 * tell us when a connection ends, each in its own way: MySQL by the destructor
 * of a value that is kept with the session, MariaDB by an event for audit
 * plugins, which this library also is (install.sql activates it).  Both come in
 * the connection's own thread, for a client that quits, is lost or is killed.
 * What MariaDB's event scheduler runs ends unheard and can have no session lease.
 *
 * Where the plugin is not active, which is so after a reinstallation while there
 * are connections from before, the batcher looks at the list of connections
 * instead, once a second.  MariaDB does not say when such a plugin goes silent: it
 * ends it when the last of these connections has ended.  So uninstall.sql tells us
 * beforehand (lease_session_unplug()).
 *
 * A connection's id is never used again while the server runs.
 *
 * Other servers of a cluster only see the row and its time to live.  So rows of
 * living sessions are written anew before that is over.
 *
 * All under the engine's mutex, but for lease_session_watch() and what the
 * servers call.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lease_batch.h"
#include "lease_engine.h"
#include "server_abi.h"

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
	bool		seen;			/* in the list of connections */
	session_lease *leases;
} session;

#define SESSION_SLOTS	1024

/*
 * How often a row is written at most: in a cluster, and where no other server
 * reads it.
 */
#define KEEP_LEAST_US		20000
#define KEEP_ALONE_US		1000000

static session *sessions[SESSION_SLOTS];
static int64_t next_keep_us = INT64_MAX;	/* not later than any keep_us */

static session **
find_session(uint64_t connection_id)
{
	session   **place = &sessions[connection_id % SESSION_SLOTS];

	while (*place != NULL && (*place)->connection_id != connection_id)
		place = &(*place)->next;
	return place;
}

/* The lease on a name, or where it would be.  Tokens of other names may be equal. */
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

bool
lease_session_is_alive(uint64_t connection_id)
{
	return *find_session(connection_id) != NULL;
}

/* Ask the engine for something about a lease. */
static void
submit(lease_internal what, const session_lease *lease)
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
	lease_engine_submit(call);
}

/* How often a row is written at most. */
static int64_t
least_pause_us(void)
{
	return tenure->clustered ? KEEP_LEAST_US : KEEP_ALONE_US;
}

/* How often the row of a lease is written. */
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

/*
 * A connection has been granted a session lease, by a call that is about to be
 * answered: false if memory is short.
 */
bool
lease_session_add(uint64_t connection_id, const lease_call *call)
{
	session    *s = *find_session(connection_id);
	session_lease *lease = calloc(1, sizeof(session_lease));

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
		/* it has ended while the grant was on its way */
		submit(LEASE_INTERNAL_END_SESSION, lease);
		free(lease);
		return true;
	}
	if (*find_lease(&s->leases, lease->token, call->names[0]) != NULL)
	{
		free(lease);			/* re-entered */
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

/* It could not be written just now: do not wait for the next time. */
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
lease_session_remove(uint64_t token, lease_bytes name)
{
	for (size_t i = 0; i < SESSION_SLOTS; i++)
		for (session *s = sessions[i]; s != NULL; s = s->next)
		{
			session_lease **place = find_lease(&s->leases, token, name);
			session_lease *lease = *place;

			if (lease == NULL)
				continue;
			*place = lease->next;
			free(lease);
			return;
		}
}

/* A connection has ended, and with it what it has. */
void
lease_session_end(uint64_t connection_id)
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
		submit(LEASE_INTERNAL_END_SESSION, lease);
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
 * Have the rows of living sessions written in time, with them those whose time
 * is near: so they come together.  Not when the server is being shut down, which
 * ends the sessions.
 */
void
lease_session_keep(int64_t now_us)
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
					submit(LEASE_INTERNAL_KEEP, lease);
			}
}

/* ----------------------------------------------------------------
 * Being told
 * ----------------------------------------------------------------
 */

static void *mysql_slot = NULL; /* MySQL: where the session's id is kept */
static atomic_bool audit_active = false;	/* MariaDB: the plugin is installed;
											 * set without the mutex */
static bool can_list = false;	/* the list of connections can be read */

/* How long a connection's first session lease waits for that list. */
#define LIST_PATIENCE_US	3000000

/*
 * Say whether the list of connections has to be read, and note those that are
 * to be found there.
 */
bool
lease_session_begin_list(void)
{
	bool		any = !can_list;

	if (dlock_server_kind() == DLOCK_SERVER_MYSQL || audit_active)
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

/* The list has been read, if it can be: end the sessions that are not in it. */
void
lease_session_end_list(bool could)
{
	can_list = could;
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

/* MySQL: a session with a value in our slot has ended. */
static int
mysql_session_ended(void *value)
{
	dlock_engine_end_connection((uint64_t) (uintptr_t) value);
	return 0;
}

/* MySQL: keep the session's id with it. */
static bool
watch_on_mysql(uint64_t connection_id)
{
	mysql_registry *registry;
	void	   *service;
	bool		done = false;
	THD		   *thd = mysql_current_thd();

	if (thd == NULL || mysql_registry_acquire == NULL ||
		mysql_registry_release == NULL)
		return false;
	registry = mysql_registry_acquire();
	if (registry == NULL)
		return false;
	if (!registry->acquire("mysql_thd_store", &service))
	{
		const mysql_thd_store_service *store = service;

		/* the engine's mutex is held, so that one of us registers */
		if (mysql_slot != NULL ||
			!store->register_slot("dlock", mysql_session_ended, &mysql_slot))
			done = !store->set(thd, mysql_slot,
							   (void *) (uintptr_t) connection_id);
		registry->release(service);
	}
	mysql_registry_release(registry);
	return done;
}

/*
 * See to it that we are told of a connection's end, if we can be just now.  *failed is
 * set if there is no memory for it.
 */
static bool
watch(uint64_t connection_id, bool *failed)
{
	session   **place;
	bool		watched = false;

	lease_lock();
	place = find_session(connection_id);
	if (*place != NULL)
		watched = true;
	else if (connection_id != 0)
	{
		if (dlock_server_kind() == DLOCK_SERVER_MYSQL)
			watched = watch_on_mysql(connection_id);
		else
			watched = audit_active || can_list;
		if (watched)
		{
			session    *s = calloc(1, sizeof(session));

			if (s == NULL)
				*failed = true;
			else
			{
				s->connection_id = connection_id;
				s->seen = true; /* of a list that is being read */
				*place = s;
			}
		}
	}
	if (!watched)
	{
		/* to read the list of connections, if it is needed */
		lease_batch_look_soon();
	}
	lease_unlock();
	return watched;
}

const char *
lease_session_watch(const char **sqlstate)
{
	uint64_t	connection_id = dlock_caller_connection_id();
	int64_t		end_us = lease_now() + LIST_PATIENCE_US;
	bool		failed = false;

	*sqlstate = "55000";
	/* its thread ends without an event for audit plugins */
	if (dlock_caller_is_event())
		return "cannot be told when this connection ends; an event cannot take session leases";
	while (!watch(connection_id, &failed))
	{
		if (dlock_server_kind() != DLOCK_SERVER_MARIADB ||
			lease_now() >= end_us || dlock_thd_killed(dlock_caller_thd()))
			return "cannot be told when this connection ends; run install.sql again";
		dlock_wait_begin();
		usleep(LEASE_LOOK_INTERVAL_US);
		dlock_wait_end();
	}
	if (!failed)
		return NULL;
	*sqlstate = "53200";
	return "out of memory";
}

/* MariaDB: the plugin is about to be uninstalled, and may tell us nothing more. */
void
lease_session_unplug(void)
{
	audit_active = false;
}

/* MariaDB: something happened to a connection. */
static void
mariadb_connection_changed(THD *thd, unsigned int event_class,
						   const void *event)
{
	const mariadb_connection_event *change = event;

	(void) thd;
	if (event_class != MARIADB_AUDIT_CONNECTION_CLASS)
		return;
	if (change->subclass == MARIADB_AUDIT_DISCONNECT ||
		(change->subclass == MARIADB_AUDIT_CHANGE_USER &&
		 change->status == 0))
		dlock_engine_end_connection(change->thread_id);
}

static int
mariadb_init(void *plugin)
{
	(void) plugin;
	audit_active = true;
	return 0;
}

static int
mariadb_deinit(void *plugin)
{
	(void) plugin;
	audit_active = false;
	return 0;
}

static mariadb_audit audit = {
	.interface_version = MARIADB_AUDIT_INTERFACE_VERSION,
	.event_notify = mariadb_connection_changed,
	.class_mask = {1UL << MARIADB_AUDIT_CONNECTION_CLASS},
};

#define EXPORTED	__attribute__((visibility("default")))

extern EXPORTED int _maria_plugin_interface_version_;
extern EXPORTED int _maria_sizeof_struct_st_plugin_;
extern EXPORTED mariadb_plugin _maria_plugin_declarations_[];

int			_maria_plugin_interface_version_ = MARIADB_PLUGIN_INTERFACE_VERSION;
int			_maria_sizeof_struct_st_plugin_ = sizeof(mariadb_plugin);
mariadb_plugin _maria_plugin_declarations_[] = {
	{
		.type = MARIADB_AUDIT_PLUGIN,
		.info = &audit,
		.name = "dlock",
		.author = "dlock",
		.description = "Ends the session leases of connections that end",
		.license = 2,
		.init = mariadb_init,
		.deinit = mariadb_deinit,
		.version = 0x0100,
		.version_text = "1.0",
		.maturity = 5,
	},
	{0}
};
