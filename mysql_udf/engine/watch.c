/*
 * watch.c
 *	  How the engine learns that a connection with session leases has ended.
 *
 * Each server tells us in its own way.  MySQL calls the destructor of a value that is kept
 * with the session.  MariaDB has an event for audit plugins; this library is one, too
 * (install.sql activates it).  Both come in the connection's own thread, for a client that
 * quits, is lost or is killed.  MariaDB's event scheduler tells nothing, so what it runs
 * can have no session lease.  MariaDB does not say when such a plugin goes silent: it
 * deactivates it after the last of the connections from before.  So upkeep asks.
 *
 * The mutex is not held here.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "watch.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "lease_moment.h"
#include "server_abi.h"

/* How long a connection's first session lease waits for the list of connections. */
#define LIST_PATIENCE_US	3000000
#define LIST_LOOK_US		50000

/* MySQL: the service that keeps the sessions' ids, and where; NULL: it does not */
static pthread_once_t mysql_once = PTHREAD_ONCE_INIT;
static mysql_thd_store_service mysql_store;
static void *mysql_slot = NULL;

/* ----------------------------------------------------------------
 * Watching
 * ----------------------------------------------------------------
 */

/* MySQL: a session with a value in our slot has ended. */
static int
mysql_session_ended(void *value)
{
	session_end((uint64_t) (uintptr_t) value);
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
static bool
watch_on_mysql(uint64_t connection_id)
{
	pthread_once(&mysql_once, find_mysql_store);
	return mysql_slot != NULL &&
		!mysql_store.set(dlock_caller_thd(), mysql_slot,
						 (void *) (uintptr_t) connection_id);
}

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
	is_kept = is_mysql && connection_id != 0 && watch_on_mysql(connection_id);
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
 * Have session_end() called when the calling connection ends: false with an error in the
 * answer.  The engine has been started, and the mutex is not held.
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

/* ----------------------------------------------------------------
 * MariaDB's plugin
 * ----------------------------------------------------------------
 */

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
		session_end(change->thread_id);
}

static int
mariadb_init(void *plugin)
{
	(void) plugin;
	session_set_told(true);
	return 0;
}

static int
mariadb_deinit(void *plugin)
{
	(void) plugin;
	session_set_told(false);
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
