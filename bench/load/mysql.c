/*
 * mysql.c
 *	  Locks in MySQL and MariaDB: dlock, GET_LOCK(), a lock table in InnoDB.
 *
 * "Where" is the server's socket.  Statements are sent as text, as most
 * connectors do.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <mysql.h>
#include <mysqld_error.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

/* Statements for one lock; given its name and the owner, they answer 1 or 0. */
typedef struct Sql
{
	const char *acquire;
	const char *wait;			/* NULL: nobody can, so ask again and again */
	const char *release;
	const char *renew;			/* NULL: there is nothing to renew */
} Sql;

typedef struct Connection
{
	MYSQL	   *server;
	const Sql  *sql;
	char		owner[NAME_SIZE];
	char		text[MAX_BATCH * (NAME_SIZE + 80)]; /* of a statement */
	size_t		len;
} Connection;

static void *
open_connection(const System *system, const char *where, int client)
{
	Connection *c = allocate(sizeof(Connection));

	c->sql = system->details;
	c->server = mysql_init(NULL);
	if (c->server == NULL ||
		mysql_real_connect(c->server, NULL, "root", NULL, NULL, 0, where,
						   0) == NULL)
		fail("connect: %s", c->server ? mysql_error(c->server) : "no memory");
	owner_name(c->owner, client);
	return c;
}

static void
close_connection(void *client)
{
	Connection *c = client;

	mysql_close(c->server);
	mysql_thread_end();
	free(c);
}

/* Add to the statement to be sent. */
static void
add(Connection *c, const char *format,...)
{
	size_t		room = sizeof(c->text) - c->len;
	va_list		args;
	int			n;

	va_start(args, format);
	n = vsnprintf(c->text + c->len, room, format, args);
	va_end(args);
	if (n < 0 || (size_t) n >= room)
		fail("a statement is too long");
	c->len += (size_t) n;
}

/* Add the names of a range of locks, each between quotes of this kind. */
static void
add_names(Connection *c, int first, int count, char quote)
{
	char		name[NAME_SIZE];

	for (int i = 0; i < count; i++)
	{
		lock_name(name, first + i);
		add(c, "%s%c%s%c", i > 0 ? "," : "", quote, name, quote);
	}
}

/*
 * Send the statement, again if it was the victim of a deadlock; false if there
 * was such a row.
 */
static bool
send_statement(Connection *c)
{
	unsigned	error;

	do
	{
		error = 0;
		if (mysql_real_query(c->server, c->text, c->len) != 0)
			error = mysql_errno(c->server);
	} while (error == ER_LOCK_DEADLOCK);
	if (error != 0 && error != ER_DUP_ENTRY)
		fail("%.200s: %s", c->text, mysql_error(c->server));
	c->len = 0;
	return error == 0;
}

/* The only field of a statement's answer. */
static const char *
only_field(Connection *c, MYSQL_RES *result)
{
	MYSQL_ROW	row = result ? mysql_fetch_row(result) : NULL;

	if (row == NULL || row[0] == NULL)
		fail("%.200s: no answer", c->text);
	return row[0];
}

/*
 * Execute the statement; the number in its only field, or how many rows it has
 * changed, or -1 if there was such a row.
 */
static long
execute(Connection *c)
{
	MYSQL_RES  *result;
	long		answer;

	if (!send_statement(c))
		return -1;
	result = mysql_store_result(c->server);
	if (result == NULL)
		return (long) mysql_affected_rows(c->server);
	answer = atol(only_field(c, result));
	mysql_free_result(result);
	return answer;
}

/*
 * Execute a statement whose only field is JSON with names of the locks first ..
 * first + count - 1; mark these in "got", and answer how many they are.
 */
static int
execute_names(Connection *c, int first, int count, bool *got)
{
	MYSQL_RES  *result;
	const char *name;
	int			n = 0;

	send_statement(c);
	memset(got, 0, (size_t) count * sizeof(bool));
	result = mysql_store_result(c->server);
	name = only_field(c, result);
	for (; (name = strstr(name, "\"job-")) != NULL; n++)
	{
		int			lock;

		name += strlen("\"job-");
		lock = atoi(name);
		if (lock < first || lock >= first + count || got[lock - first])
			fail("lock %d was not asked for", lock);
		got[lock - first] = true;
	}
	mysql_free_result(result);
	return n;
}

/* Execute a statement for one lock; whether it did it. */
static bool
execute_one(Connection *c, const char *sql, int lock)
{
	char		name[NAME_SIZE];

	lock_name(name, lock);
	add(c, sql, name, c->owner);
	return execute(c) == 1;
}

static bool
acquire(void *client, int lock, bool wait)
{
	Connection *c = client;

	if (wait && c->sql->wait)
	{
		if (!execute_one(c, c->sql->wait, lock))
			fail("waited for lock %d in vain", lock);
		return true;
	}
	while (!execute_one(c, c->sql->acquire, lock))
	{
		if (!wait)
			return false;
		pause_before_retry();
	}
	return true;
}

static void
release(void *client, int lock)
{
	Connection *c = client;

	if (!execute_one(c, c->sql->release, lock))
		fail("could not release lock %d", lock);
}

static void
renew_one(void *client, int lock)
{
	Connection *c = client;

	if (!execute_one(c, c->sql->renew, lock))
		fail("could not renew lock %d", lock);
}

static const Sql dlock = {
	.acquire = "SELECT dlock_acquire('%s', '%s', 3600) IS NOT NULL",
	.wait = "SELECT dlock_acquire('%s', '%s', 3600, -1) IS NOT NULL",
	.release = "SELECT dlock_release('%s', '%s')",
	.renew = "SELECT dlock_renew('%s', '%s', 3600)",
};

static void
dlock_acquire_any(void *client, int first, int count, bool *got)
{
	Connection *c = client;

	add(c, "SELECT dlock_acquire_any('[");
	add_names(c, first, count, '"');
	add(c, "]', '%s', 3600, %d)", c->owner, count);
	execute_names(c, first, count, got);
}

static int
dlock_release_many(void *client, int first, int count)
{
	Connection *c = client;
	bool		given[MAX_BATCH];

	add(c, "SELECT dlock_release_many('[");
	add_names(c, first, count, '"');
	add(c, "]', '%s')", c->owner);
	return execute_names(c, first, count, given);
}

/* All of them or none. */
static void
dlock_acquire_all(void *client, int first, int count, bool *got)
{
	Connection *c = client;
	bool		all;

	add(c, "SELECT dlock_acquire_all('[");
	add_names(c, first, count, '"');
	add(c, "]', '%s', 3600) IS NOT NULL", c->owner);
	all = execute(c) == 1;
	for (int i = 0; i < count; i++)
		got[i] = all;
}

/* All that the client holds, which is these. */
static int
dlock_release_all(void *client, int first, int count)
{
	Connection *c = client;

	add(c, "SELECT dlock_release_all('%s')", c->owner);
	return (int) execute(c);
}

static int
dlock_renew(void *client, int first, int count)
{
	Connection *c = client;

	add(c, "SELECT dlock_renew_all('%s', 3600)", c->owner);
	return (int) execute(c);
}

static const Sql get_lock = {
	.acquire = "SELECT GET_LOCK('%s', 0)",
	.wait = "SELECT GET_LOCK('%s', 1000)",
	.release = "SELECT RELEASE_LOCK('%s')",
};

/*
 * The lock table that somebody would write by hand; run creates it.  A row that
 * is there is a lock that is held.
 */
#define TABLE_EXPIRES	"NOW(6) + INTERVAL 3600 SECOND"

static const Sql table = {
	.acquire = "INSERT INTO bench.locks VALUES ('%s', '%s', " TABLE_EXPIRES ")",
	.release = "DELETE FROM bench.locks WHERE name = '%s' AND owner = '%s'",
	.renew = "UPDATE bench.locks SET expires_at = " TABLE_EXPIRES
	" WHERE name = '%s' AND owner = '%s'",
};

/* All of them or none. */
static void
table_acquire_many(void *client, int first, int count, bool *got)
{
	Connection *c = client;
	bool		all;

	add(c, "INSERT INTO bench.locks VALUES ");
	for (int i = 0; i < count; i++)
	{
		add(c, "%s(", i > 0 ? "," : "");
		add_names(c, first + i, 1, '\'');
		add(c, ", '%s', " TABLE_EXPIRES ")", c->owner);
	}
	all = execute(c) == count;
	for (int i = 0; i < count; i++)
		got[i] = all;
}

/* Change those of these rows that it has. */
static int
table_change(Connection *c, const char *what, int first, int count)
{
	add(c, "%s WHERE owner = '%s' AND name IN (", what, c->owner);
	add_names(c, first, count, '\'');
	add(c, ")");
	return (int) execute(c);
}

static int
table_release_many(void *client, int first, int count)
{
	return table_change(client, "DELETE FROM bench.locks", first, count);
}

static int
table_renew(void *client, int first, int count)
{
	int			renewed = 0;

	for (int i = 0; i < count; i += MAX_BATCH)
		renewed += table_change(client, "UPDATE bench.locks SET expires_at = "
								TABLE_EXPIRES, first + i,
								count - i < MAX_BATCH ? count - i : MAX_BATCH);
	return renewed;
}

/*
 * One whose holders may acquire again.  Its rows stay; only one whose holds are
 * gone or whose time is up can change hands.
 */
static const Sql table_holds = {
	.acquire = "UPDATE bench.holds SET "
	"holds = IF(owner = '%2$s' AND expires_at > NOW(6), holds + 1, 1), "
	"owner = '%2$s', expires_at = " TABLE_EXPIRES " WHERE name = '%1$s' "
	"AND (owner = '%2$s' OR holds = 0 OR expires_at <= NOW(6))",
	.release = "UPDATE bench.holds SET holds = holds - 1 "
	"WHERE name = '%s' AND owner = '%s' AND holds > 0",
};

static void
table_holds_prepare(void *client, int first, int count)
{
	Connection *c = client;
	char		name[NAME_SIZE];

	for (int i = 0; i < count; i++)
	{
		lock_name(name, first + i);
		add(c, "INSERT IGNORE INTO bench.holds VALUES ('%s', '', 0, NOW(6))",
			name);
		execute(c);
	}
}

static void
snapshot(void *client)
{
	Connection *c = client;

	add(c, "START TRANSACTION WITH CONSISTENT SNAPSHOT");
	execute(c);
	add(c, "SELECT count(*) FROM bench.locks");
	execute(c);
}

#define COMMON \
	.open = open_connection, .close = close_connection, .snapshot = snapshot, \
	.acquire = acquire, .release = release

const System mysql_systems[] =
{
	{.name = "my-dlock", .details = &dlock, .reentrant = true, COMMON,
		.acquire_many = dlock_acquire_any, .release_many = dlock_release_many,
		.renew = dlock_renew, .renew_one = renew_one},
	{.name = "my-dlock-all", .details = &dlock, COMMON,
		.acquire_many = dlock_acquire_all, .release_many = dlock_release_all},
	{.name = "my-get-lock", .details = &get_lock, .reentrant = true, COMMON},
	{.name = "my-table", .details = &table, COMMON,
		.acquire_many = table_acquire_many, .release_many = table_release_many,
		.renew = table_renew, .renew_one = renew_one},
	{.name = "my-table-holds", .details = &table_holds, .reentrant = true,
		COMMON, .prepare = table_holds_prepare},
	{.name = NULL}
};
