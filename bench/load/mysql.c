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
 * Send the statement, again if it was the victim of a deadlock; answers the
 * number in its only field, or how many rows it has changed, or -1 if there was
 * such a row.
 */
static long
execute(Connection *c)
{
	MYSQL_RES  *result;
	MYSQL_ROW	row;
	long		answer;
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
	if (error == ER_DUP_ENTRY)
		return -1;
	result = mysql_store_result(c->server);
	if (result == NULL)
		return (long) mysql_affected_rows(c->server);
	row = mysql_fetch_row(result);
	if (row == NULL || row[0] == NULL)
		fail("%.200s: no answer", c->text);
	answer = atol(row[0]);
	mysql_free_result(result);
	return answer;
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

static const Sql dlock = {
	.acquire = "SELECT dlock_acquire('%s', '%s', 3600) IS NOT NULL",
	.wait = "SELECT dlock_acquire('%s', '%s', 3600, -1) IS NOT NULL",
	.release = "SELECT dlock_release('%s', '%s')",
};

/* All of them or none. */
static void
dlock_acquire_many(void *client, int first, int count, bool *got)
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

static int
dlock_release_many(void *client, int first, int count)
{
	Connection *c = client;

	add(c, "SELECT coalesce(sum(dlock_release(name, '%s') = 1), 0) "
		"FROM JSON_TABLE('[", c->owner);
	add_names(c, first, count, '"');
	add(c, "]', '$[*]' COLUMNS (name VARCHAR(255) PATH '$')) AS names");
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
		.acquire_many = dlock_acquire_many, .release_many = dlock_release_many,
		.renew = dlock_renew},
	{.name = "my-get-lock", .details = &get_lock, .reentrant = true, COMMON},
	{.name = "my-table", .details = &table, COMMON,
		.acquire_many = table_acquire_many, .release_many = table_release_many,
		.renew = table_renew},
	{.name = NULL}
};
