/*
 * mysql_compat.c
 *	  MySQL and MariaDB under one name: the caller, and how to raise an error.
 *
 * Both servers tell the same facts, each in its own way: by what they offer to plugins,
 * and where that does not suffice by other symbols that they export.  See server_abi.h.
 *
 * Nothing here takes a lock of ours, and nothing waits, unless a function's comment says
 * so.  A server that lacks what "needs" lists is refused (dlock_server_lacks()) before any
 * other function here is called, unless a function's comment says otherwise.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE				/* POLLRDHUP, memmem */
#include "mysql_compat.h"

#include <ctype.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>
#include <unistd.h>

#include "server_abi.h"

/* Room for the entry of an operating system's user. */
#define PASSWD_SIZE		16384

/* Longest message; the servers cut longer ones. */
#define MESSAGE_SIZE	512

/*
 * The error number for an SQLSTATE.
 *
 * On MySQL an error carries the SQLSTATE that we give.  MariaDB takes the SQLSTATE from
 * its own table of numbers, the last column here, so the numbers are chosen for that.  A
 * number must not say something that did not happen: 1213, for one, says that the
 * transaction is gone.
 */
static const struct
{
	const char *sqlstate;
	unsigned int number;
}			error_numbers[] =
{
	{"0A000", 1235},			/* ER_NOT_SUPPORTED_YET; 42000 */
	{"22004", 1138},			/* ER_INVALID_USE_OF_NULL; 22004 */
	{"22007", 1292},			/* ER_TRUNCATED_WRONG_VALUE; 22007 */
	{"22023", 3037},			/* ER_GIS_INVALID_DATA; 22023 */
	{"25006", 1792},			/* ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION;
								 * 25006 */
	{"40P01", 3058},			/* ER_USER_LOCK_DEADLOCK; HY000 */
	{"42501", 1227},			/* ER_SPECIFIC_ACCESS_DENIED_ERROR; 42000 */
	{"53400", 1637},			/* ER_TOO_MANY_CONCURRENT_TRXS; HY000 */
	{"55000", 1234},			/* ER_CANT_USE_OPTION_HERE; 42000, so that no driver
								 * tries again */
	{"55P03", 3572},			/* ER_LOCK_NOWAIT, which MariaDB does not know; HY000.
								 * 1205 rolls back, with some settings */
	{"55L01", 1644},			/* ER_SIGNAL_EXCEPTION: dlock.guard() signals it */
	{"70100", 1317},			/* ER_QUERY_INTERRUPTED; 70100 */
};

#define OTHER_ERROR		1105	/* ER_UNKNOWN_ERROR; HY000 */

static bool
is_mysql(void)
{
	return mysql_current_thd != NULL;
}

/* Say which server has loaded the library. */
dlock_server
dlock_server_kind(void)
{
	if (is_mysql())
		return DLOCK_SERVER_MYSQL;
	if (mariadb_current_thd != NULL)
		return DLOCK_SERVER_MARIADB;
	return DLOCK_SERVER_UNKNOWN;
}

/* What calls need, by server.  In a server that lacks any of it every call is refused. */
static const struct
{
	dlock_server server;		/* DLOCK_SERVER_UNKNOWN: both */
	const void *address;
	const char *what;
}			needs[] =
{
	{DLOCK_SERVER_UNKNOWN, (const void *) server_thread_id, "thd_get_thread_id"},
	{DLOCK_SERVER_UNKNOWN, (const void *) server_test_options, "thd_test_options"},
	{DLOCK_SERVER_UNKNOWN, (const void *) server_sql_command, "thd_sql_command"},
	{DLOCK_SERVER_UNKNOWN, (const void *) server_is_update, "is_update_query"},
	{DLOCK_SERVER_UNKNOWN, (const void *) server_thd_killed, "thd_killed"},
	{DLOCK_SERVER_UNKNOWN, &server_unix_port, "mysqld_unix_port"},
	{DLOCK_SERVER_UNKNOWN, server_data_folder, "mysql_real_data_home"},
	{DLOCK_SERVER_UNKNOWN, server_version, "server_version"},
	{DLOCK_SERVER_MYSQL, (const void *) mysql_query, "thd_query_unsafe"},
	{DLOCK_SERVER_MYSQL, (const void *) mysql_binlog_format, "thd_binlog_format"},
	{DLOCK_SERVER_MYSQL, (const void *) mysql_wait_begin, "thd_wait_begin"},
	{DLOCK_SERVER_MYSQL, (const void *) mysql_wait_end, "thd_wait_end"},
	{DLOCK_SERVER_MYSQL, (const void *) mysql_is_applier, "thd_is_replication_slave_thread"},
	{DLOCK_SERVER_MYSQL, (const void *) mysql_security_context, "thd_get_security_context"},
	{DLOCK_SERVER_MYSQL, (const void *) mysql_security_option, "security_context_get_option"},
	{DLOCK_SERVER_MYSQL, (const void *) mysql_has_global_grant, "Security_context::has_global_grant"},
	{DLOCK_SERVER_MYSQL, (const void *) mysql_active_roles, "Security_context::get_num_active_roles"},
	{DLOCK_SERVER_MYSQL, (const void *) mysql_raise_condition, "THD::raise_condition"},
	{DLOCK_SERVER_MYSQL, (const void *) mysql_add_status_variables, "add_status_vars"},
	{DLOCK_SERVER_MYSQL, (const void *) mysql_registry_acquire, "mysql_plugin_registry_acquire"},
	{DLOCK_SERVER_MYSQL, (const void *) mysql_registry_release, "mysql_plugin_registry_release"},
	{DLOCK_SERVER_MYSQL, (const void *) &mysql_is_ending, "connection_events_loop_aborted_flag"},
	{DLOCK_SERVER_MARIADB, (const void *) mariadb_query, "thd_query_string"},
	{DLOCK_SERVER_MARIADB, (const void *) mariadb_binlog_format, "thd_binlog_format"},
	{DLOCK_SERVER_MARIADB, (const void *) mariadb_kill_level, "thd_kill_level"},
	{DLOCK_SERVER_MARIADB, (const void *) mariadb_wait_begin, "thd_wait_begin"},
	{DLOCK_SERVER_MARIADB, (const void *) mariadb_wait_end, "thd_wait_end"},
	{DLOCK_SERVER_MARIADB, (const void *) mariadb_is_connected, "thd_is_connected"},
	{DLOCK_SERVER_MARIADB, (const void *) mariadb_is_connection_alive, "thd_is_connection_alive"},
	{DLOCK_SERVER_MARIADB, (const void *) mariadb_is_applier, "thd_is_slave"},
	{DLOCK_SERVER_MARIADB, (const void *) mariadb_priv_user, "thd_priv_user"},
	{DLOCK_SERVER_MARIADB, (const void *) mariadb_priv_host, "thd_priv_host"},
	{DLOCK_SERVER_MARIADB, (const void *) mariadb_lacks_privilege, "check_global_access"},
	{DLOCK_SERVER_MARIADB, (const void *) mariadb_printf_error, "my_printf_error"},
};

/*
 * The first symbol that calls need and this server lacks; NULL if the library can work
 * here.  May be called at any time, in any server.
 */
const char *
dlock_server_lacks(void)
{
	dlock_server server = dlock_server_kind();

	if (server == DLOCK_SERVER_UNKNOWN)
		return "thd_get_current_thd";
	for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
		if (needs[i].address == NULL &&
			(needs[i].server == DLOCK_SERVER_UNKNOWN || needs[i].server == server))
			return needs[i].what;
	if (server == DLOCK_SERVER_MYSQL && mysql_is_connected == NULL &&
		mysql_is_connected_now == NULL)
		return "THD::is_connected";
	return NULL;
}

/* The series with which the library was tried. */
static const struct
{
	dlock_server server;
	int			major;
	int			minor;
}			tried[] =
{
	{DLOCK_SERVER_MYSQL, 9, 7},
	{DLOCK_SERVER_MARIADB, 10, 11},
	{DLOCK_SERVER_MARIADB, 11, 8},
};

/*
 * Say whether this server is of a series with which the library was tried; or whoever
 * runs it wants to try it.  The names of symbols say nothing of what functions return, and
 * how structures are.  The server lacks nothing.
 */
bool
dlock_server_is_tried(void)
{
	int			major = 0;
	int			minor = 0;

	(void) sscanf(server_version, "%d.%d", &major, &minor);
	for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]); i++)
		if (tried[i].server == dlock_server_kind() && tried[i].major == major &&
			tried[i].minor == minor)
			return true;
	return getenv("DLOCK_UNTRIED_SERVER") != NULL;
}

static pthread_once_t socket_once = PTHREAD_ONCE_INIT;
static char socket_path[sizeof(((struct sockaddr_un *) NULL)->sun_path) + 1];

static void
copy_socket_path(void)
{
	if (&server_unix_port == NULL || server_unix_port == NULL)
		return;
	/* the system cannot connect to a longer path */
	snprintf(socket_path, sizeof(socket_path), "%s", server_unix_port);
}

/*
 * The path of the socket that the server listens on; NULL if there is none.  A server that
 * stops frees the path while threads of ours may still connect, so the first call makes a
 * copy.  That call has to come from a statement.
 */
const char *
dlock_server_socket(void)
{
	pthread_once(&socket_once, copy_socket_path);
	return socket_path[0] != '\0' ? socket_path : NULL;
}

/* Say whether this is the server's data directory, as @@datadir shows it. */
bool
dlock_server_has_data_in(const char *folder)
{
	return strcmp(folder, server_data_folder) == 0;
}

/*
 * The operating system's user that the server runs as: false if the user has no name, or
 * there is no room for the name.
 */
bool
dlock_server_user(char *name, size_t size)
{
	char		room[PASSWD_SIZE];
	struct passwd entry;
	struct passwd *found = NULL;

	if (getpwuid_r(geteuid(), &entry, room, sizeof(room), &found) != 0 ||
		found == NULL)
		return false;
	return snprintf(name, size, "%s", found->pw_name) < (int) size;
}

/* Say whether the server is being shut down; MariaDB does not say. */
bool
dlock_server_is_ending(void)
{
	return &mysql_is_ending != NULL && mysql_is_ending != 0;
}

/*
 * A query whose second column is how many sources the server follows.  On MySQL that
 * takes a privilege, which the definer of the view has (install.sql).
 */
const char *
dlock_appliers_query(void)
{
	return dlock_server_kind() == DLOCK_SERVER_MARIADB ?
		"SHOW GLOBAL STATUS LIKE 'Slaves_running'" :
		"SELECT what, appliers FROM dlock.appliers";
}

/*
 * The lowest innodb_force_recovery at which InnoDB refuses to change rows.
 */
unsigned long
dlock_read_only_recovery(void)
{
	return dlock_server_kind() == DLOCK_SERVER_MARIADB ? 5 : 1;
}

/*
 * The calling session; NULL in a thread of our own.  Another thread may ask whether the
 * session was killed or is connected, as long as it is in a function of ours.
 */
THD *
dlock_caller_thd(void)
{
	return is_mysql() ? mysql_current_thd() : mariadb_current_thd();
}

/*
 * Copy a service of MySQL's, a structure of functions: false if there is none.  The
 * functions are the server's own, and stay valid after the service has been given back.
 * This waits while a component is installed or uninstalled, which may take other locks of
 * the server's meanwhile.  So copy a service once, where no lock is held, neither ours nor
 * a mutex of the server's: in a function's _init, or in the function.
 */
bool
dlock_copy_service(const char *name, void *to, size_t size)
{
	mysql_registry *registry;
	void	   *service;
	bool		found;

	if (!is_mysql())
		return false;
	registry = mysql_registry_acquire();
	if (registry == NULL)
		return false;
	found = !registry->acquire(name, &service);
	if (found)
	{
		memcpy(to, service, size);
		registry->release(service);
	}
	mysql_registry_release(registry);
	return found;
}

/* Copy a string of the server's; false if it is missing or does not fit. */
static bool
copy_string(char *to, size_t size, const char *from, size_t length)
{
	if (from == NULL || length >= size || memchr(from, '\0', length) != NULL)
		return false;
	memcpy(to, from, length);
	to[length] = '\0';
	return true;
}

/* Copy a string property of MySQL's security context. */
static bool
copy_option(char *to, size_t size, void *context, const char *name)
{
	SERVER_STRING value = {NULL, 0};

	return !mysql_security_option(context, name, &value) &&
		copy_string(to, size, value.str, value.length);
}

/*
 * Get the account of a session of this thread, in UTF-8.  False if the server does not
 * name it, as in a MariaDB routine whose definer is a role; then the caller has to be
 * refused.
 */
bool
dlock_thd_account(THD *thd, char *user, size_t user_size, char *host, size_t host_size)
{
	const char *name;
	size_t		length;
	void	   *context;

	if (is_mysql())
		return !mysql_security_context(thd, &context) &&
			copy_option(user, user_size, context, "priv_user") &&
			copy_option(host, host_size, context, "priv_host");
	name = mariadb_priv_user(thd, &length);
	if (!copy_string(user, user_size, name, length))
		return false;
	name = mariadb_priv_host(thd, &length);

	/* in a routine whose definer is a role, both halves are empty */
	return copy_string(host, host_size, name, length) && length > 0;
}

/* The same of the caller. */
bool
dlock_caller_account(char *user, size_t user_size, char *host, size_t host_size)
{
	return dlock_thd_account(dlock_caller_thd(), user, user_size, host, host_size);
}

/* Get the id of the calling connection, as in CONNECTION_ID(). */
uint64_t
dlock_caller_connection_id(void)
{
	unsigned long id = server_thread_id(dlock_caller_thd());

	return is_mysql() ? (uint32_t) id : id;
}

/* Say whether a session's statement has been killed, or has run out of time. */
bool
dlock_thd_killed(const THD *thd)
{
	return is_mysql() ? server_thd_killed(thd) != 0 : mariadb_kill_level(thd) != 0;
}

/*
 * Say whether a session's client has closed its end of the socket.  MySQL takes a client
 * to be there if there is something to read, but a client sends a last command before it
 * closes.  MariaDB does the same, and does not tell plugins the socket.
 */
static bool
has_hung_up(THD *thd)
{
	struct pollfd end = {.events = POLLRDHUP};
	int			type;

	if (mysql_is_classic == NULL || mysql_vio_type == NULL ||
		mysql_socket_of == NULL || !mysql_is_classic(thd))
		return false;
	type = mysql_vio_type(thd);
	if (type != SERVER_VIO_TCP && type != SERVER_VIO_SOCKET &&
		type != SERVER_VIO_SSL)
		return false;
	end.fd = mysql_socket_of(thd);
	return poll(&end, 1, 0) > 0 && (end.revents & (POLLRDHUP | POLLHUP)) != 0;
}

/* Say whether a session's client is still there. */
bool
dlock_thd_connected(THD *thd)
{
	if (!is_mysql())
		return mariadb_is_connected(thd) != 0;
	return (mysql_is_connected != NULL ? mysql_is_connected(thd, false) :
			mysql_is_connected_now(thd)) && !has_hung_up(thd);
}

/*
 * dlock_wait_begin(): the caller is about to sleep, or to ask the server something on
 * another connection; dlock_wait_end(): it has done so.  A server with a pool of threads
 * runs another connection meanwhile.  Otherwise a few waiters would stop all other
 * connections, the library's own among them.  Each begin has its end; no nesting.
 */
void
dlock_wait_begin(void)
{
	(is_mysql() ? mysql_wait_begin : mariadb_wait_begin) (dlock_caller_thd(),
														  SERVER_WAIT_USER_LOCK);
}

void
dlock_wait_end(void)
{
	(is_mysql() ? mysql_wait_end : mariadb_wait_end) (dlock_caller_thd());
}

/*
 * Have the list of processes show what the caller does; the text stays.  Answers what was
 * shown before.
 */
const char *
dlock_show_state(const char *state)
{
	return server_show_state == NULL ? NULL :
		server_show_state(dlock_caller_thd(), state, __func__, __FILE__, __LINE__);
}

/*
 * Write a line to the server's error log, as a warning; from any thread.  This waits for
 * the log's disk, or whoever reads the log, and a lock of the server's that those have who
 * write to the log, too.
 */
void
dlock_log(const char *line)
{
	if (is_mysql() && mysql_log_message != NULL)
		(void) mysql_log_message(MYSQL_ERROR_LOG,
								 MYSQL_LOG_SEVERITY, (long long) MYSQL_LOG_WARNING,
								 MYSQL_LOG_TEXT, line);
	else if (mariadb_log_warning != NULL)
		mariadb_log_warning("%s", line);
	else
		fprintf(stderr, "%s\n", line);
}

/*
 * Say whether the caller is an event of MariaDB's.  The threads of events count as
 * connected, and have no client.  MySQL's events need not be told apart.
 */
bool
dlock_caller_is_event(void)
{
	THD		   *thd = dlock_caller_thd();

	return !is_mysql() && !dlock_thd_killed(thd) && dlock_thd_connected(thd) &&
		!mariadb_is_connection_alive(thd);
}

static bool
has_connection_admin(void *context)
{
	static const char privilege[] = "CONNECTION_ADMIN";

	return mysql_has_global_grant(context, privilege, strlen(privilege)).granted;
}

/*
 * What can be told at once, without a lock, of the caller's rights: see
 * dlock_caller_is_operator().  Unknown: a privilege of the account itself would count.
 */
dlock_rights
dlock_thd_known_rights(THD *thd)
{
	void	   *context;
	bool		super = false;

	if (!is_mysql())
		return mariadb_lacks_privilege(thd, MARIADB_CONNECTION_ADMIN, true) &&
			mariadb_lacks_privilege(thd, MARIADB_SUPER, true) ?
			DLOCK_RIGHTS_PLAIN : DLOCK_RIGHTS_OPERATOR;
	if (mysql_security_context(thd, &context))
		return DLOCK_RIGHTS_PLAIN;
	if (!mysql_security_option(context, "privilege_super", &super) && super)
		return DLOCK_RIGHTS_OPERATOR;
	if (mysql_active_roles(context) == 0)
		return DLOCK_RIGHTS_UNKNOWN;
	return has_connection_admin(context) ?
		DLOCK_RIGHTS_OPERATOR : DLOCK_RIGHTS_PLAIN;
}

/* The same of the caller. */
dlock_rights
dlock_caller_known_rights(void)
{
	return dlock_thd_known_rights(dlock_caller_thd());
}

/*
 * Say whether the caller may end other accounts' leases.  It may if it may end their
 * connections: by CONNECTION_ADMIN or SUPER, also of an active role.  On MySQL this waits
 * while a change of accounts is being committed, so ask only if it matters.
 */
bool
dlock_caller_is_operator(void)
{
	dlock_rights rights = dlock_caller_known_rights();
	void	   *context;

	if (rights != DLOCK_RIGHTS_UNKNOWN)
		return rights == DLOCK_RIGHTS_OPERATOR;
	return !mysql_security_context(dlock_caller_thd(), &context) &&
		has_connection_admin(context);
}

/* Say whether the caller is a replica that repeats a statement of its source. */
bool
dlock_caller_is_applier(void)
{
	THD		   *thd = dlock_caller_thd();

	return is_mysql() ? mysql_is_applier(thd) : mariadb_is_applier(thd);
}

/* Say whether the caller is in a transaction that goes on after this statement. */
bool
dlock_caller_in_transaction(void)
{
	return server_test_options(dlock_caller_thd(),
							   SERVER_NOT_AUTOCOMMIT | SERVER_BEGIN) != 0;
}

/* The number of the command that the calling session executes; only to be compared. */
int
dlock_caller_command(void)
{
	return server_sql_command(dlock_caller_thd());
}

/*
 * Say whether the server logs the caller's statement as text, so that replicas repeat it.
 * In a trigger or a stored function it logs the statement that called these, which
 * plugins are not told.
 */
bool
dlock_caller_is_repeated(void)
{
	THD		   *thd = dlock_caller_thd();
	int			format = is_mysql() ? mysql_binlog_format(thd) :
		mariadb_binlog_format(thd);

	return format == SERVER_BINLOG_STATEMENT &&
		server_is_update(dlock_caller_command());
}

/* The server's version as executable comments have it: 90704 is 9.7.4. */
static unsigned long
version_number(void)
{
	unsigned long number = 0;
	const char *at = server_version;

	for (int part = 0; part < 3; part++)
	{
		char	   *end;

		number = number * 100 + strtoul(at, &end, 10);
		at = *end == '.' ? end + 1 : end;
	}
	return number;
}

/*
 * A text begins with a comment: the length of the opening of an executable one, up to and
 * with the "!", or on MariaDB also "M!"; 0 if it is another comment.
 */
static size_t
mark_length(SERVER_STRING text)
{
	if (text.length >= 3 && text.str[2] == '!')
		return 3;
	if (!is_mysql() && text.length >= 4 && memcmp(text.str + 2, "M!", 2) == 0)
		return 4;
	return 0;
}

/*
 * The same with the version from which a server executes it, if there is one; 0 if this
 * server skips it.  With "!" alone MariaDB skips the versions from MySQL 5.7 to 9.  A
 * version has five digits or six, on MySQL six only if white space follows.
 */
static size_t
opening_length(SERVER_STRING text)
{
	size_t		mark = mark_length(text);
	const char *digits = text.str + mark;
	size_t		left = text.length - mark;
	size_t		count = 0;
	unsigned long version = 0;

	while (count < 6 && count < left && isdigit((unsigned char) digits[count]))
		count++;
	if (mark == 0 || count < 5)
		return mark;
	if (count == 6 && is_mysql() &&
		(left == 6 || !isspace((unsigned char) digits[6])))
		count = 5;
	for (size_t i = 0; i < count; i++)
		version = version * 10 + (unsigned long) (digits[i] - '0');
	if (version > version_number() ||
		(!is_mysql() && mark == 3 && version >= 50700 && version <= 99999))
		return 0;
	return mark + count;
}

/*
 * Find the end of a comment that the server skips, with which a text begins; NULL if it
 * has none.  If only its version keeps it from being executed, another may be inside.
 */
static const char *
comment_end(SERVER_STRING text)
{
	const char *end = text.str + text.length;
	bool		nests = mark_length(text) > 0;

	for (const char *at = text.str + 2; at != NULL && end - at >= 2;)
		if (memcmp(at, "*/", 2) == 0)
			return at + 2;
		else if (nests && memcmp(at, "/*", 2) == 0)
		{
			at = memmem(at + 2, (size_t) (end - at - 2), "*/", 2);
			if (at != NULL)
				at += 2;
		}
		else
			at++;
	return NULL;
}

/*
 * Skip white space and comments, and of an executable comment what opens and closes it.
 * What closes it can stand nowhere else.
 */
static SERVER_STRING
skip_blank(SERVER_STRING text)
{
	const char *end = text.str + text.length;
	const char *at = text.str;

	while (at < end)
	{
		size_t		left = (size_t) (end - at);
		const char *after = NULL;

		if (strchr(" \t\n\v\f\r", *at) != NULL && *at != '\0')
			after = at + 1;
		else if (*at == '#' || (left >= 3 && memcmp(at, "--", 2) == 0))
			after = memchr(at, '\n', left);
		else if (left >= 2 && memcmp(at, "*/", 2) == 0)
			after = at + 2;
		else if (left >= 2 && memcmp(at, "/*", 2) == 0)
		{
			SERVER_STRING comment = {at, left};
			size_t		opening = opening_length(comment);

			after = opening > 0 ? at + opening : comment_end(comment);
		}
		if (after == NULL)
			break;
		at = after;
	}
	return (SERVER_STRING) {at, (size_t) (end - at)};
}

/* If a text begins with this word, in capitals or not, go on behind it: true. */
static bool
take_word(SERVER_STRING *text, const char *word)
{
	size_t		length = strlen(word);

	if (text->length <= length || strncasecmp(text->str, word, length) != 0 ||
		isalnum((unsigned char) text->str[length]) || text->str[length] == '_')
		return false;
	text->str += length;
	text->length -= length;
	*text = skip_blank(*text);
	return true;
}

/*
 * Say whether the caller's statement is only explained.  To find its plan, the servers
 * may execute a part of it, such as a derived table.  Only the text of the statement
 * tells plugins.
 */
bool
dlock_caller_explains(void)
{
	THD		   *thd = dlock_caller_thd();
	SERVER_STRING text = is_mysql() ? mysql_query(thd) : *mariadb_query(thd);

	if (text.str == NULL)
		return false;
	text = skip_blank(text);
	return (take_word(&text, "EXPLAIN") || take_word(&text, "DESCRIBE") ||
			take_word(&text, "DESC")) &&
		!take_word(&text, "ANALYZE");
}

/* Find the error number for an SQLSTATE. */
static unsigned int
error_number(const char *sqlstate)
{
	for (size_t i = 0; i < sizeof(error_numbers) / sizeof(error_numbers[0]); i++)
		if (strcmp(error_numbers[i].sqlstate, sqlstate) == 0)
			return error_numbers[i].number;
	return OTHER_ERROR;
}

/*
 * Make the caller's statement fail.  This returns; the SQL function then has to set its
 * *error and return.  An error that is pending already stays.  Always false, so that
 * callers can return it.
 */
bool
dlock_raise(const char *sqlstate, const char *format,...)
{
	unsigned int number = error_number(sqlstate);
	char		message[MESSAGE_SIZE];
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);

	if (is_mysql())
		mysql_raise_condition(dlock_caller_thd(), number, sqlstate,
							  MYSQL_LEVEL_ERROR, message, false);
	else
		mariadb_printf_error(number, "%s", 0, message);
	return false;
}
