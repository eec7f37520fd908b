/*
 * lease_connections.c
 *	  How the server tells that a connection has ended.
 *
 * Each server has its own way.  MySQL calls the destructor of a value that is kept with
 * the session.  MariaDB has an event for audit plugins; this library is one, too
 * (install.sql activates it).  Both come in the connection's own thread, for a client that
 * quits, is lost or is killed.  MariaDB's event scheduler tells nothing, so what it runs
 * can have no session lease.
 *
 * No mutex is held here.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_connections.h"

#include <pthread.h>
#include <stdlib.h>

#include "hash.h"
#include "mysql_compat.h"
#include "server_abi.h"

/* MySQL: the service that keeps the sessions' ids, and where; NULL: it does not */
static pthread_once_t mysql_once = PTHREAD_ONCE_INIT;
static mysql_thd_store_service mysql_store;
static void *mysql_slot = NULL;

/* MySQL: a session with a value in our slot has ended. */
static int
mysql_session_ended(void *value)
{
	dlock_connection_ended((uint64_t) (uintptr_t) value);
	return 0;
}

/* MySQL: find the service, once.  The mutex is not held: see dlock_copy_service(). */
static void
find_mysql_store(void)
{
	if (dlock_copy_service("mysql_thd_store", &mysql_store, sizeof(mysql_store)) &&
		mysql_store.register_slot("dlock", mysql_session_ended, &mysql_slot))
		mysql_slot = NULL;
}

/*
 * MySQL: keep the session's id with it.  This is done in the session's own thread, so the
 * session does not end before the engine knows it.
 */
bool
lease_connections_keep(uint64_t connection_id)
{
	pthread_once(&mysql_once, find_mysql_store);
	return mysql_slot != NULL &&
		!mysql_store.set(dlock_caller_thd(), mysql_slot,
						 (void *) (uintptr_t) connection_id);
}

#ifdef DLOCK_LOG
/*
 * MariaDB: who has logged in, by connection.  A view's functions cannot tell who reads it.
 */
typedef struct login
{
	hash_link	by_id;
	uint64_t	connection_id;
	bool		is_operator;
	dlock_caller caller;
} login;

static pthread_mutex_t logins_mutex = PTHREAD_MUTEX_INITIALIZER;
static hash_table logins;

/* With the mutex, as the next two. */
static login *
find_login(uint64_t connection_id)
{
	hash_link  *link = hash_first(&logins, connection_id);

	return link != NULL ? hash_object(login, by_id, link) : NULL;
}

static void
forget_login(login *l)
{
	if (l == NULL)
		return;
	hash_remove(&logins, &l->by_id);
	free(l);
}

/* If memory is short, nobody is known to have logged in. */
static void
add_login(THD *thd, uint64_t connection_id)
{
	login	   *l = hash_reserve(&logins) ? calloc(1, sizeof(login)) : NULL;

	if (l == NULL)
		return;
	if (!dlock_thd_account(thd, l->caller.user, sizeof(l->caller.user), l->caller.host,
						   sizeof(l->caller.host)))
	{
		free(l);
		return;
	}
	l->connection_id = l->caller.connection_id = connection_id;
	l->is_operator = dlock_thd_known_rights(thd) == DLOCK_RIGHTS_OPERATOR;
	hash_add(&logins, &l->by_id, connection_id);
}

/* Which account has logged in on a connection: false if that is not known. */
bool
lease_connections_login(uint64_t connection_id, dlock_caller *caller, bool *is_operator)
{
	const login *l;

	pthread_mutex_lock(&logins_mutex);
	l = find_login(connection_id);
	if (l != NULL)
	{
		*caller = l->caller;
		*is_operator = l->is_operator;
	}
	pthread_mutex_unlock(&logins_mutex);
	return l != NULL;
}

/* Note who has logged in, or out. */
static void
note_login(THD *thd, const mariadb_connection_event *change)
{
	pthread_mutex_lock(&logins_mutex);
	if (change->subclass == MARIADB_AUDIT_DISCONNECT || change->status == 0)
		forget_login(find_login(change->thread_id));
	if (change->subclass != MARIADB_AUDIT_DISCONNECT && change->status == 0)
		add_login(thd, change->thread_id);
	pthread_mutex_unlock(&logins_mutex);
}

/* Changes will not be told any more. */
static void
forget_logins(void)
{
	pthread_mutex_lock(&logins_mutex);
	for (size_t i = 0; i < logins.nslots; i++)
		while (logins.slots[i] != NULL)
			forget_login(hash_object(login, by_id, logins.slots[i]));
	pthread_mutex_unlock(&logins_mutex);
}
#else
#define note_login(thd, change)	((void) (thd))
#define forget_logins()			((void) 0)
#endif

/* MariaDB: something happened to a connection. */
static void
mariadb_connection_changed(THD *thd, unsigned int event_class,
						   const void *event)
{
	const mariadb_connection_event *change = event;

	if (event_class != MARIADB_AUDIT_CONNECTION_CLASS)
		return;
	note_login(thd, change);
	if (change->subclass == MARIADB_AUDIT_DISCONNECT ||
		(change->subclass == MARIADB_AUDIT_CHANGE_USER &&
		 change->status == 0))
		dlock_connection_ended(change->thread_id);
}

static int
mariadb_init(void *plugin)
{
	(void) plugin;
	dlock_connections_told(true);
	return 0;
}

static int
mariadb_deinit(void *plugin)
{
	(void) plugin;
	dlock_connections_told(false);
	forget_logins();
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
