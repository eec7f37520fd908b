/*
 * load.c
 *	  Many clients do what they like with a few leases, and write down every
 *	  call and its answer, to be checked afterwards (History.pm).
 *
 * load CONNECTION CLIENTS NAMES SEED FOLDER: each client is a thread with a
 * connection of its own, and a file of its own in the folder.  One more thread looks
 * at the views of waiters and leases, and one cancels or ends waiters.  All go on
 * until SIGTERM tells them to stop; a client that has lost its connection opens
 * another one.  Each attempt at a lease has an owner of its own, named after the
 * seed, the client and the attempt, so that its answers cannot be taken for
 * another's.
 *
 * One source for PostgreSQL (-DPOSTGRES, libpq; CONNECTION is a connection
 * string), the same with plain/dlock.sql (-DPLAIN_SQL too), and for MySQL and MariaDB (libmariadb; CONNECTION is a socket, or
 * ADDRESS:PORT).
 *
 * Times are microseconds of CLOCK_MONOTONIC: that before the call was sent, and
 * that after the answer was there.  History.pm says what the lines mean.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#ifdef POSTGRES
#include <libpq-fe.h>
#else
#include <errmsg.h>
#include <mysql.h>
#endif
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "clients.h"

#define MAX_NAMES	5			/* of a call for many */
#define MAX_COLUMNS	5

static const char *connection_string;
static const char *folder;
static int	names;
static unsigned int seed;
static volatile sig_atomic_t stopping = 0;

/* How a statement ended. */
typedef enum Status
{
	ANSWERED,
	FAILED,						/* with an error; the connection is good */
	LOST						/* the connection is gone */
} Status;

typedef struct Reply
{
	Status		status;
	char		code[16];		/* of the error */
	int			rows;
	int			columns;
	char		(*value)[MAX_COLUMNS][100];	/* of each row; "-" is NULL */
	int			room;			/* for so many rows */
} Reply;

static void
fail(const char *what, const char *why)
{
	fprintf(stderr, "load: %s: %s\n", what, why);
	exit(1);
}

static void
nap(int64_t us)
{
	nanosleep(&(struct timespec) {.tv_sec = us / 1000000,
			  .tv_nsec = us % 1000000 * 1000}, NULL);
}

/*
 * Call the functions for many names, several permits and holds, and downgrade?
 * Torture.pm may turn this off.
 */
#ifndef HAS_MANY
#define HAS_MANY	true
#endif

/* ----------------------------------------------------------------
 * What differs between the servers
 * ----------------------------------------------------------------
 */

/* Have room for so many rows, at least. */
static void
make_room(Reply *reply, int rows)
{
	size_t		size = sizeof(reply->value[0]);

	if (rows <= reply->room)
		return;
	rows += reply->room;
	reply->value = realloc(reply->value, (size_t) rows * size);
	if (reply->value == NULL)
		fail("an answer", "no memory");
	memset(reply->value[reply->room], 0, (size_t) (rows - reply->room) * size);
	reply->room = rows;
}

static void
put_value(Reply *reply, int row, int column, const char *value)
{
	make_room(reply, row + 1);
	if (column >= MAX_COLUMNS)
		fail("an answer", "has more columns than expected");
	if (snprintf(reply->value[row][column], sizeof(reply->value[0][0]), "%s",
				 value == NULL ? "-" : value) >=
		(int) sizeof(reply->value[0][0]))
		fail("a value is longer than expected", value);
}

#ifdef POSTGRES

typedef PGconn Connection;

#ifdef PLAIN_SQL
#define HAS_TRANSACTIONS	false
#define HAS_SESSIONS	false
#define HAS_DOWNGRADE	false
#define TAKE		"CALL"
#define WAITS \
	"FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid()" \
	" AND query LIKE 'CALL dlock_acquire%%%s%%'"
#define RANDOM_WAITER	"SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep' ORDER BY random() LIMIT 1"
#else
#define HAS_TRANSACTIONS	true	/* their leases */
#define HAS_SESSIONS	true
#define HAS_DOWNGRADE	true
#define TAKE		"SELECT"
#define WAITS		"FROM dlock.waiters WHERE owner = '%s'"
#define RANDOM_WAITER	"SELECT pid FROM dlock.waiters ORDER BY random() LIMIT 1"
#endif
#define HAS_RELEASE_AFTER	true
#define NAME		"%s"
#define NO_TOKEN	"NULL"
#define LIST		"'{%s}'"
#define CLAIM		"SELECT name, token FROM dlock_acquire_any(%s, '%s', %.6f, %d, %.6f%s)"
#define DONE		"%s dlock_%s_many(%s, '%s'%s%s)"
#define BEGIN		"BEGIN"
#define GUARD		"SELECT dlock_guard('%s', '%s', %s)"
#define NOT_HELD	"55L01"
#define YES			"t"
#define LIVE		"expires_at IS NULL OR expires_at > clock_timestamp()"
#define CANCEL		"SELECT pg_cancel_backend(%s)"
#define TERMINATE	"SELECT pg_terminate_backend(%s)"

static Connection *
open_connection(void)
{
	Connection *connection = PQconnectdb(connection_string);

	if (PQstatus(connection) == CONNECTION_OK)
		return connection;
	PQfinish(connection);
	return NULL;
}

static void
close_connection(Connection *connection)
{
	PQfinish(connection);
}

static void
ask(Connection *connection, const char *statement, Reply *reply)
{
	PGresult   *result = PQexec(connection, statement);
	ExecStatusType status = PQresultStatus(result);
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	memset(reply, 0, offsetof(Reply, value));
	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
	{
		/* COMMIT of a transaction that has failed says ROLLBACK */
		if (strcmp(statement, "COMMIT") == 0 &&
			strcmp(PQcmdStatus(result), "COMMIT") != 0)
			fail("COMMIT", PQcmdStatus(result));
		reply->rows = PQntuples(result);
		reply->columns = PQnfields(result);
		for (int r = 0; r < reply->rows; r++)
			for (int c = 0; c < reply->columns; c++)
				put_value(reply, r, c, PQgetisnull(result, r, c) ? NULL :
						  PQgetvalue(result, r, c));
	}
	else
	{
		reply->status = PQstatus(connection) == CONNECTION_OK ? FAILED : LOST;
		snprintf(reply->code, sizeof(reply->code), "%s",
				 code == NULL ? "lost" : code);
	}
	PQclear(result);
}

#else

typedef MYSQL Connection;

#define HAS_TRANSACTIONS	false
#define HAS_SESSIONS	true
#define HAS_DOWNGRADE	true
#define TAKE		"SELECT"
#define WAITS		"FROM dlock.waiters WHERE owner = '%s'"
#define HAS_RELEASE_AFTER	false
#define NAME		"\"%s\""
#define NO_TOKEN	"null"
#define LIST		"'[%s]'"
#define CLAIM \
	"SELECT name, token FROM JSON_TABLE(dlock_acquire_any(%s, '%s', %.6f, %d, %.6f%s)," \
	" '$[*]' COLUMNS (name VARCHAR(9) PATH '$.name', token BIGINT PATH '$.token')) AS j"
#define DONE \
	"%s name FROM JSON_TABLE(dlock_%s_many(%s, '%s'%s%s)," \
	" '$[*]' COLUMNS (name VARCHAR(9) PATH '$')) AS j"
#define BEGIN		"BEGIN"
#define GUARD		"CALL dlock.guard('%s', '%s', %s)"
#define NOT_HELD	"1644"
#define YES			"1"
#define LIVE		"expires_at IS NULL OR expires_at > sysdate(6)"
#define RANDOM_WAITER \
	"SELECT connection_id FROM dlock.waiters ORDER BY rand() LIMIT 1"
#define CANCEL		"KILL QUERY %s"
#define TERMINATE	"KILL CONNECTION %s"

static Connection *
open_connection(void)
{
	Connection *connection = mysql_init(NULL);
	const char *colon = strchr(connection_string, ':');
	char		address[64];

	if (connection == NULL)
		fail("connect", "no memory");
	snprintf(address, sizeof(address), "%.*s",
			 colon == NULL ? 0 : (int) (colon - connection_string),
			 connection_string);
	if (mysql_real_connect(connection, colon == NULL ? NULL : address, "root",
						   NULL, NULL, colon == NULL ? 0 : atoi(colon + 1),
						   colon == NULL ? connection_string : NULL,
						   CLIENT_MULTI_STATEMENTS) != NULL)
		return connection;
	mysql_close(connection);
	return NULL;
}

static void
close_connection(Connection *connection)
{
	mysql_close(connection);
}

/* The statement's own answer. */
static void
ask_once(Connection *connection, const char *statement, Reply *reply)
{
	MYSQL_RES  *result;
	MYSQL_ROW	row;
	int			more = 0;
	unsigned int error;

	memset(reply, 0, offsetof(Reply, value));
	if (mysql_query(connection, statement) == 0)
		do
		{
			result = mysql_store_result(connection);
			if (result == NULL)
				continue;
			reply->columns = (int) mysql_num_fields(result);
			while ((row = mysql_fetch_row(result)) != NULL)
			{
				for (int c = 0; c < reply->columns; c++)
					put_value(reply, reply->rows, c, row[c]);
				reply->rows++;
			}
			mysql_free_result(result);
		} while (mysql_errno(connection) == 0 &&
				 (more = mysql_next_result(connection)) == 0);
	error = mysql_errno(connection);
	if (error == 0 && more <= 0)
		return;
	/* 1927 and 4031: killed, or left alone for too long */
	reply->status = (error >= 2000 && error < 3000) || error == 1927 ||
		error == 4031 || error == 1053 ? LOST : FAILED;
	snprintf(reply->code, sizeof(reply->code), "%u", error);
}

/*
 * Ask, and make sure that the answer is to this statement.
 *
 * KILL CONNECTION makes MySQL close the session's socket from the killer's thread.
 * The number of its descriptor may be given to the next client at once, while the
 * session that was killed still writes an answer to that number: the next client
 * reads it, and each of its own answers comes one late.  (MariaDB only shuts the
 * socket down.)  So each statement is followed by one whose answer nobody else can
 * have; what stands in its place gives the connection up.
 */
static void
ask(Connection *connection, const char *statement, Reply *reply)
{
	static _Atomic uint64_t count = 0;
	static _Thread_local Reply echo;
	char		number[24];
	char		question[40];

	ask_once(connection, statement, reply);
	if (reply->status == LOST)
		return;
	snprintf(number, sizeof(number), "9%" PRIu64, ++count);
	snprintf(question, sizeof(question), "SELECT %s", number);
	ask_once(connection, question, &echo);
	if (echo.status == ANSWERED && echo.rows == 1 && echo.columns == 1 &&
		strcmp(echo.value[0][0], number) == 0)
		return;
	reply->status = LOST;
	snprintf(reply->code, sizeof(reply->code), "%d", CR_SERVER_LOST);
}

#endif

/* ----------------------------------------------------------------
 * Clients
 * ----------------------------------------------------------------
 */

typedef struct Client
{
	int			number;
	unsigned int random;
	FILE	   *file;
	Connection *connection;
	int64_t		attempts;
	Reply		reply;
} Client;

/* How a lease ends. */
typedef enum Kind
{
	PLAIN,						/* at its deadline */
	SESSION,
	TRANSACTION
} Kind;

/* The lease that a client asks for. */
typedef struct Lease
{
	char		name[16];
	char		owner[32];
	char		request[32];	/* "-": none */
	char		token[32];
	Kind		kind;
	char		mode;			/* 'x', 's' or 'p' */
	int			permits;		/* at once; 1 in other modes */
	int64_t		ttl_us;
	int64_t		wait_us;
} Lease;

/* Be connected; false when it is time to stop. */
static bool
connect_client(Client *client)
{
	while (client->connection == NULL && !stopping)
	{
		client->connection = open_connection();
		if (client->connection == NULL)
			nap(10000 + dice(&client->random, 20000));
	}
	return client->connection != NULL;
}

static void
disconnect(Client *client)
{
	if (client->connection == NULL)
		return;
	fprintf(client->file, "D\t%" PRId64 "\t%d\n", now_us(), client->number);
	close_connection(client->connection);
	client->connection = NULL;
}

/* Write a call down. */
static void
note_call(Client *client, const char *op, const Lease *lease, int64_t start_us,
		  int64_t end_us, int limit, int holds, int64_t ttl_us,
		  const char *token, const char *answer)
{
	fprintf(client->file, "C\t%" PRId64 "\t%" PRId64 "\t%d\t%s\t%s\t%s\t%c\t%d\t%"
			PRId64 "\t%" PRId64 "\t%s\t%s\t%s\t%d\n",
			start_us, end_us, client->number, op, lease->name, lease->owner,
			lease->mode, limit, ttl_us, lease->wait_us, lease->request, token,
			answer, holds);
}

/*
 * Make one call, for so many holds, and write it down.  Leaves the answer in
 * client->reply, and gives up a connection that is lost.
 */
static void
call(Client *client, const char *op, const Lease *lease, int holds,
	 int64_t ttl_us, const char *token, const char *statement)
{
	Reply	   *reply = &client->reply;
	int64_t		start_us = now_us();
	int64_t		end_us;
	char		answer[40];

	if (client->connection == NULL)
	{
		reply->status = LOST;
		return;
	}
	ask(client->connection, statement, reply);
	end_us = now_us() + 1;
	if (reply->status != ANSWERED)
		snprintf(answer, sizeof(answer), "?%s", reply->code);
	else if (strcmp(op, "commit") == 0)
		strcpy(answer, "t");
	else if (reply->rows != 1 || reply->columns != 1)
		fail(statement, "is not answered with one value");
	else if (strcmp(op, "renew") == 0 || strcmp(op, "release") == 0 ||
			 strcmp(op, "downgrade") == 0 || strcmp(op, "leave") == 0)
		strcpy(answer, strcmp(reply->value[0][0], "-") == 0 ? "-" :
			   strcmp(reply->value[0][0], YES) == 0 ? "t" : "f");
	else
		strcpy(answer, reply->value[0][0]);
	note_call(client, op, lease, start_us, end_us,
			  lease->mode == 'p' ? PERMITS : 0, holds, ttl_us, token, answer);
	if (reply->status == LOST)
		disconnect(client);
}

static bool
is_answer(const Client *client, const char *answer)
{
	return client->reply.status == ANSWERED &&
		strcmp(client->reply.value[0][0], answer) == 0;
}

/* Acquire: true if granted. */
static bool
acquire(Client *client, Lease *lease)
{
	static const char *const functions[] = {
		"acquire", "acquire_session", "acquire_xact"
	};
	static const char *const ops[] = {"acquire", "session", "xact"};
	char		statement[400];
	char		limit[32] = "";
	char		request[40] = "";

	if (lease->permits > 1)
		snprintf(limit, sizeof(limit), ", %d, %d", PERMITS, lease->permits);
	else if (lease->mode == 'p')
		snprintf(limit, sizeof(limit), ", %d", PERMITS);
	if (lease->request[0] != '-')
		snprintf(request, sizeof(request), ", '%s'", lease->request);
	snprintf(statement, sizeof(statement),
			 TAKE " dlock_%s%s('%s', '%s', %.6f%s, %.6f%s)",
			 functions[lease->kind], lease->mode == 's' ? "_shared" :
			 lease->permits > 1 ? "_permits" : lease->mode == 'p' ? "_permit" : "",
			 lease->name, lease->owner, (double) lease->ttl_us / 1e6, limit,
			 (double) lease->wait_us / 1e6, request);
	call(client, ops[lease->kind], lease, lease->permits, lease->ttl_us, "-",
		 statement);
	if (client->reply.status != ANSWERED || is_answer(client, "-"))
		return false;
	strcpy(lease->token, client->reply.value[0][0]);
	return true;
}

/* Renew; true if it was done. */
static bool
renew(Client *client, const Lease *lease, int64_t ttl_us)
{
	char		statement[300];
	const char *token = dice(&client->random, 2) == 0 ? lease->token : "";

	snprintf(statement, sizeof(statement),
			 TAKE " dlock_renew('%s', '%s', %.6f%s%s)", lease->name, lease->owner,
			 (double) ttl_us / 1e6, token[0] != 0 ? ", " : "", token);
	call(client, "renew", lease, 1, ttl_us, token[0] != 0 ? token : "-", statement);
	return is_answer(client, YES);
}

/* Give so many holds back; true if it was done. */
static bool
release(Client *client, const Lease *lease, int holds)
{
	char		statement[300];
	char		several[16] = "";
	const char *token = dice(&client->random, 2) == 0 ? lease->token : "";

	if (holds > 1)
		snprintf(several, sizeof(several), ", %d", holds);
	snprintf(statement, sizeof(statement), "SELECT dlock_release('%s', '%s'%s%s%s)",
			 lease->name, lease->owner, token[0] != 0 || holds > 1 ? ", " : "",
			 token[0] == 0 && holds > 1 ? "NULL" : token, several);
	call(client, "release", lease, holds, 0, token[0] != 0 ? token : "-", statement);
	return is_answer(client, YES);
}

/* Make an exclusive lease a shared one. */
static void
downgrade(Client *client, Lease *lease)
{
	char		statement[300];
	const char *token = dice(&client->random, 2) == 0 ? lease->token : "";

	snprintf(statement, sizeof(statement), "SELECT dlock_downgrade('%s', '%s'%s%s)",
			 lease->name, lease->owner, token[0] != 0 ? ", " : "", token);
	call(client, "downgrade", lease, 1, 0, token[0] != 0 ? token : "-", statement);
	/* one more shared hold is as good if the lease is still exclusive */
	lease->mode = 's';
}

/*
 * Guard the lease in a transaction that lasts for a while.  One line stands for
 * all of it; in place of the TTL it says when the COMMIT was sent.
 */
static void
guard(Client *client, const Lease *lease, int64_t duration_us)
{
	Reply	   *reply = &client->reply;
	char		statement[300];
	int64_t		start_us = now_us();
	int64_t		commit_us = 0;
	bool		refused = false;
	char		answer[24];

	if (client->connection == NULL)
		return;
	ask(client->connection, BEGIN, reply);
	if (reply->status == ANSWERED)
	{
		snprintf(statement, sizeof(statement), GUARD, lease->name, lease->owner,
				 lease->token);
		ask(client->connection, statement, reply);
		refused = reply->status == FAILED && strcmp(reply->code, NOT_HELD) == 0;
		if (reply->status == ANSWERED)
		{
			nap(duration_us);
			commit_us = now_us();
			ask(client->connection, "COMMIT", reply);
		}
	}
	snprintf(answer, sizeof(answer), "%s%s",
			 reply->status == ANSWERED ? "t" : refused ? "f" : "?",
			 reply->status == ANSWERED || refused ? "" : reply->code);
	note_call(client, "guard", lease, start_us, now_us() + 1, 0, 1, commit_us,
			  lease->token, answer);
	if (reply->status == FAILED)
		ask(client->connection, "ROLLBACK", reply);
	if (reply->status == LOST)
		disconnect(client);
}

/*
 * Connect after a call whose answer was lost, and make sure that the call does not
 * wait any more: an owner that waits twice for a name may wait for itself.
 */
static bool
recover(Client *client, const Lease *lease)
{
	char		statement[200];

	snprintf(statement, sizeof(statement), "SELECT count(*) " WAITS, lease->owner);
	while (connect_client(client))
	{
		ask(client->connection, statement, &client->reply);
		if (is_answer(client, "0"))
			return true;
		if (client->reply.status == LOST)
			disconnect(client);
		nap(5000);
	}
	return false;
}

static const int64_t ttls_us[] = {200000, 500000, 2000000};
static const int64_t waits_us[] = {0, 50000, 500000, 2000000, -1000000};

/* Give the lease back with effect later, by the token or not. */
static void
leave(Client *client, const Lease *lease, const char *token)
{
	int64_t		after_us = ttls_us[dice(&client->random, 3)];
	char		statement[300];

	snprintf(statement, sizeof(statement),
			 TAKE " dlock_release_after('%s', '%s', %.6f%s%s)", lease->name, lease->owner,
			 (double) after_us / 1e6, token[0] != 0 ? ", " : "", token);
	call(client, "leave", lease, 1, after_us, token[0] != 0 ? token : "-", statement);
}

/* Most pauses are brief. */
static int64_t
pause_us(Client *client)
{
	return dice(&client->random, 20) == 0 ? 250000 : dice(&client->random, 5000);
}

/* A lease of a transaction, to its end. */
static void
live_in_transaction(Client *client, Lease *lease)
{
	Reply	   *reply = &client->reply;
	bool		granted;

	lease->kind = TRANSACTION;
	ask(client->connection, BEGIN, reply);
	granted = reply->status == ANSWERED && acquire(client, lease);
	if (granted)
	{
		nap(pause_us(client));
		call(client, "commit", lease, 1, 0, lease->token,
			 dice(&client->random, 4) == 0 ? "ROLLBACK" : "COMMIT");
	}
	if (client->connection == NULL)
		return;
	if (reply->status == LOST)
		disconnect(client);
	else if (!granted || reply->status == FAILED)
		ask(client->connection, "ROLLBACK", reply);
}

/* ----------------------------------------------------------------
 * Many leases at once
 * ----------------------------------------------------------------
 */

/* The leases that one owner claims, and has. */
typedef struct Leases
{
	int			count;
	int			wanted;
	Lease		each[MAX_NAMES];	/* without a token: the owner does not have it */
} Leases;

#define LIST_SIZE	200

/* Write the names into a statement, as a list. */
static void
put_names(char *to, const Leases *leases)
{
	char		text[LIST_SIZE - 8] = "";
	char	   *end = text;

	for (int i = 0; i < leases->count; i++)
		end += sprintf(end, "%s" NAME, i == 0 ? "" : ",", leases->each[i].name);
	sprintf(to, LIST, text);
}

/* The same for their tokens. */
static void
put_tokens(char *to, const Leases *leases)
{
	char		text[LIST_SIZE - 8] = "";
	char	   *end = text;

	for (int i = 0; i < leases->count; i++)
		end += sprintf(end, "%s%s", i == 0 ? "" : ",", leases->each[i].token[0] != 0 ?
					   leases->each[i].token : NO_TOKEN);
	sprintf(to, ", " LIST, text);
}

#ifdef PLAIN_SQL

/* The elements of an array of the answer's only row, each in a row, behind the name. */
static void
unfold(Reply *reply, const Leases *leases)
{
	char		array[sizeof(reply->value[0][0])];
	char	   *rest = array;

	strcpy(array, reply->value[0][0]);
	reply->rows = 0;
	if (array[0] != '{')
		return;
	for (char *item; (item = strtok_r(rest, "{,}", &rest)) != NULL; reply->rows++)
	{
		put_value(reply, reply->rows, 0, item[0] == 'n' ? item : leases->each[reply->rows].name);
		put_value(reply, reply->rows, 1, item);
	}
}

#endif

/*
 * Make a call for many names and write it down: a line for each.  The rows of the
 * answer are names, in the order of the list, and what is in the second column.
 */
static void
call_many(Client *client, const char *op, Leases *leases, int64_t ttl_us,
		  bool with_tokens, const char *statement)
{
	Reply	   *reply = &client->reply;
	bool		claims = strcmp(op, "any") == 0 || strcmp(op, "all") == 0;
	int			row = 0;
	int64_t		start_us = now_us();
	int64_t		end_us;

	if (client->connection == NULL)
	{
		reply->status = LOST;
		return;
	}
	ask(client->connection, statement, reply);
	end_us = now_us() + 1;
#ifdef PLAIN_SQL
	if (reply->status == ANSWERED && strcmp(op, "release") != 0)
		unfold(reply, leases);
#endif
	for (int i = 0; i < leases->count; i++)
	{
		Lease	   *lease = &leases->each[i];
		const char *token = with_tokens && lease->token[0] != 0 ? lease->token : "-";
		const char *answer = claims ? "-" : "f";
		char		unknown[24];

		if (reply->status != ANSWERED)
		{
			snprintf(unknown, sizeof(unknown), "?%s", reply->code);
			answer = unknown;
		}
		else if (row < reply->rows && strcmp(reply->value[row][0], lease->name) == 0)
			answer = claims ? reply->value[row++][1] : (row++, "t");
		note_call(client, op, lease, start_us, end_us, claims ? leases->wanted : 0,
				  1, ttl_us, token, answer);
		if (claims && answer[0] != '?' && answer[0] != '-')
			strcpy(lease->token, answer);
		else if (!claims && answer[0] == 'f')
			lease->token[0] = 0;
	}
	if (reply->status == ANSWERED && row < reply->rows)
		fail(statement, "is answered with a name that is not next in the list");
	if (reply->status == LOST)
		disconnect(client);
}

static void
claim(Client *client, Leases *leases)
{
	const Lease *lease = &leases->each[0];
	char		names_list[LIST_SIZE];
	char		statement[1000];
	char		request[40] = "";

	put_names(names_list, leases);
	if (lease->request[0] != '-')
		snprintf(request, sizeof(request), ", '%s'", lease->request);
#ifdef PLAIN_SQL
	/* it has no claims: all or none */
	snprintf(statement, sizeof(statement), "CALL dlock_acquire_all(%s, '%s', %.6f, %.6f%s)",
			 names_list, lease->owner, (double) lease->ttl_us / 1e6,
			 (double) lease->wait_us / 1e6, request);
	call_many(client, "all", leases, lease->ttl_us, false, statement);
#else
	snprintf(statement, sizeof(statement), CLAIM, names_list,
			 lease->owner, (double) lease->ttl_us / 1e6, leases->wanted,
			 (double) lease->wait_us / 1e6, request);
	call_many(client, "any", leases, lease->ttl_us, false, statement);
#endif
}

/* Renew all, or with no TTL release them. */
static void
renew_or_release_many(Client *client, Leases *leases, int64_t ttl_us)
{
	bool		with_tokens = dice(&client->random, 2) == 0;
	char		names_list[LIST_SIZE];
	char		tokens[LIST_SIZE] = "";
	char		ttl[32] = "";
	char		statement[1000];

	put_names(names_list, leases);
	if (with_tokens)
		put_tokens(tokens, leases);
	if (ttl_us > 0)
		snprintf(ttl, sizeof(ttl), ", %.6f", (double) ttl_us / 1e6);
	snprintf(statement, sizeof(statement), DONE, ttl_us > 0 ? TAKE : "SELECT",
			 ttl_us > 0 ? "renew" : "release", names_list, leases->each[0].owner,
			 ttl, tokens);
	call_many(client, ttl_us > 0 ? "renew" : "release", leases, ttl_us,
			  with_tokens, statement);
}

/* An attempt at some of many names, as in the lease, and what is done with them. */
static void
live_with_many(Client *client, const Lease *like)
{
	Leases		leases = {.count = 2 + dice(&client->random, MAX_NAMES - 1)};
	int			first = dice(&client->random, names);
	int			step = 1 + dice(&client->random, names - 1);

	/* each name once, and in this order or in that */
	if (leases.count > names)
		leases.count = names;
	leases.wanted = 1 + dice(&client->random, leases.count);
	for (int i = 0; i < leases.count; i++)
	{
		bool		is_new = false;

		leases.each[i] = *like;
		while (!is_new)
		{
			snprintf(leases.each[i].name, sizeof(leases.each[i].name), "n%d", first);
			is_new = true;
			for (int j = 0; j < i; j++)
				is_new &= strcmp(leases.each[i].name, leases.each[j].name) != 0;
			first = (first + (is_new ? step : 1)) % names;
		}
	}

	claim(client, &leases);
	for (int i = 0; i < 3 && client->reply.status != ANSWERED &&
		 like->request[0] != '-' && recover(client, like); i++)
		claim(client, &leases);

	for (int i = dice(&client->random, 4); i > 0 && client->connection != NULL; i--)
	{
		Lease	   *one = &leases.each[dice(&client->random, leases.count)];

		switch (dice(&client->random, 5))
		{
			case 0:
				renew_or_release_many(client, &leases, ttls_us[dice(&client->random, 3)]);
				break;
			case 1:
				/* the same call again, or another one that skips what the owner has */
				for (int j = 0; j < leases.count; j++)
				{
					leases.each[j].wait_us = 0;
					if (dice(&client->random, 2) == 0 && j == 0)
						strcpy(leases.each[0].request, "-");
					strcpy(leases.each[j].request, leases.each[0].request);
				}
				claim(client, &leases);
				break;
			case 2:
				if (one->token[0] != 0)
					guard(client, one, pause_us(client));
				break;
			case 3:
				if (release(client, one, 1))
					one->token[0] = 0;
				break;
			case 4:
				nap(pause_us(client));
				break;
		}
	}
	if (dice(&client->random, 16) > 0)
		renew_or_release_many(client, &leases, 0);
}

/* ----------------------------------------------------------------
 * One lease
 * ----------------------------------------------------------------
 */

/* Give a lease back with effect later, and try what its owner cannot do with it then. */
static void
live_on_after(Client *client, Lease *lease)
{
	leave(client, lease, dice(&client->random, 2) == 0 ? lease->token : "");

	/* an answer that was lost: the same call again finds out */
	for (int i = 0; i < 3 && client->reply.status != ANSWERED && recover(client, lease); i++)
		leave(client, lease, lease->token);

	for (int i = dice(&client->random, 4); i > 0 && client->connection != NULL; i--)
	{
		Lease		again = *lease;

		switch (dice(&client->random, 6))
		{
			case 0:
				(void) renew(client, lease, ttls_us[dice(&client->random, 3)]);
				break;
			case 1:
				leave(client, lease, dice(&client->random, 4) > 0 ? lease->token : "");
				break;
			case 2:
				guard(client, lease, pause_us(client));
				break;
			case 3:
				(void) release(client, lease, 1);
				break;
			case 4:
				/* also by the request that took it */
				again.wait_us = 0;
				if (acquire(client, &again))
				{
					while (again.permits-- > 0)
						(void) release(client, &again, 1);
					return;
				}
				break;
			case 5:
				nap(pause_us(client));
				break;
		}
	}
}

/* One attempt at a lease, and what is done with it. */
static void
live(Client *client)
{
	Lease		lease = {.request = "-", .permits = 1};
	int			name = dice(&client->random, names);
	int			kind = dice(&client->random, 20);
	int			holds;
	bool		granted;
	bool		sure;			/* it is known how many holds there are */

	/* some names are mostly semaphores, or there would never be enough permits */
	if (name % 4 == 3 && dice(&client->random, 10) > 0)
		kind = 19;
	client->attempts++;
	snprintf(lease.name, sizeof(lease.name), "n%d", name);
	snprintf(lease.owner, sizeof(lease.owner), "s%u.%d.%" PRId64, seed,
			 client->number, client->attempts);
	lease.kind = HAS_SESSIONS && kind < 2 ? SESSION : PLAIN;
	lease.mode = kind < 12 ? 'x' : kind < 15 ? 's' : 'p';
	lease.ttl_us = ttls_us[dice(&client->random, 3)];
	lease.wait_us = waits_us[dice(&client->random, 5)];
	if (dice(&client->random, 2) == 0 && lease.kind == PLAIN)
		snprintf(lease.request, sizeof(lease.request), "r%" PRId64,
				 client->attempts);
	if (HAS_MANY)
	{
		if (lease.mode == 'p')
			lease.permits = 1 + dice(&client->random, PERMITS);
		else if (lease.kind == SESSION && dice(&client->random, 2) == 0)
			lease.mode = 's';
		else if (lease.kind == PLAIN && dice(&client->random, 6) == 0)
		{
			if (HAS_TRANSACTIONS && lease.request[0] == '-' &&
				dice(&client->random, 2) == 0)
				live_in_transaction(client, &lease);
			else if (names > 1)
			{
				lease.mode = 'x';
				live_with_many(client, &lease);
			}
			return;
		}
	}
	holds = lease.permits;

	granted = acquire(client, &lease);

	/* an answer that was lost: the same call again finds out */
	for (int i = 0; i < 3 && client->reply.status != ANSWERED &&
		 lease.request[0] != '-' && recover(client, &lease); i++)
		granted = acquire(client, &lease);
	sure = client->reply.status == ANSWERED;
	if (!granted)
	{
		/* a refused caller has nothing to give back */
		if (dice(&client->random, 4) == 0 && connect_client(client))
			release(client, &lease, 1);
		if (lease.kind == SESSION && !sure)
			disconnect(client);
		return;
	}

	for (int i = dice(&client->random, 4); i > 0 && client->connection != NULL; i--)
	{
		Lease		again = lease;
		char		statement[100];

		switch (dice(&client->random, HAS_MANY ? 7 : 5))
		{
			case 0:
				renew(client, &lease, ttls_us[dice(&client->random, 3)]);
				break;
			case 1:
				if (lease.mode == 'p')
					break;
				strcpy(again.request, "-");
				again.wait_us = 0;
				if (acquire(client, &again) &&
					strcmp(again.token, lease.token) == 0)
					holds++;
				sure &= client->reply.status == ANSWERED;
				break;
			case 2:
				snprintf(statement, sizeof(statement),
						 "SELECT dlock_owner('%s')", lease.name);
				call(client, "owner", &lease, 1, 0, "-", statement);
				break;
			case 3:
				guard(client, &lease, pause_us(client));
				break;
			case 4:
				nap(pause_us(client));
				break;
			case 5:
				if (HAS_DOWNGRADE && lease.mode == 'x')
					downgrade(client, &lease);
				break;
			case 6:
				/* more than there are: refused, or something is wrong */
				(void) release(client, &lease, holds + 1);
				break;
		}
	}

	/* leave it to its deadline, or to the end of the session, or give back */
	if (dice(&client->random, 16) == 0)
	{
		if (lease.kind == SESSION)
			disconnect(client);
		return;
	}
	if (HAS_RELEASE_AFTER && lease.kind == PLAIN && dice(&client->random, 12) == 0)
	{
		live_on_after(client, &lease);
		return;
	}
	while (holds > 0)
	{
		int			back = HAS_MANY ? 1 + dice(&client->random, holds) : 1;

		sure &= release(client, &lease, back);
		holds -= back;
	}

	/*
	 * A session's lease that was not given back lasts as long as the session.
	 * An error may leave one, and so may a cluster: if another server has taken
	 * the lease, because its time to live was over, and gives it back, who enters
	 * it again gets a new one, and cannot give that back with the old token.  The
	 * next to wait for it without limit may be the session itself, and would wait
	 * for ever when nobody is cancelled any more.
	 */
	if (lease.kind == SESSION && !sure)
		disconnect(client);
}

static FILE *
open_file(int number)
{
	char		path[1000];
	FILE	   *file;

	snprintf(path, sizeof(path), "%s/history.%d", folder, number);
	file = fopen(path, "w");
	if (file == NULL)
		fail(path, "could not be created");
	return file;
}

static Client *
make_client(int number)
{
	Client	   *client = calloc(1, sizeof(Client));

	if (client == NULL)
		fail("client", "no memory");
	client->number = number;
	client->random = seed + (unsigned int) number * 7919;
	client->file = open_file(number);
	make_room(&client->reply, 1);
	return client;
}

static void *
end_client(Client *client)
{
	disconnect(client);
	if (fclose(client->file) != 0)
		fail("history", "could not be written");
	free(client->reply.value);
	free(client);
	return NULL;
}

static void *
run_client(void *arg)
{
	Client	   *client = make_client((int) (intptr_t) arg);

	while (!stopping && connect_client(client))
	{
		live(client);
		nap(dice(&client->random, 10000));
	}
	return end_client(client);
}

/* ----------------------------------------------------------------
 * Those who look on, and disturb
 * ----------------------------------------------------------------
 */

/* Write down what a view shows: all of it in one line. */
static void
look(Client *client, char kind, const char *statement)
{
	Reply	   *reply = &client->reply;
	int64_t		start_us = now_us();

	if (!connect_client(client))
		return;
	ask(client->connection, statement, reply);
	if (reply->status == ANSWERED)
	{
		fprintf(client->file, "%c\t%" PRId64 "\t%" PRId64 "\t%d", kind, start_us,
				now_us() + 1, client->number);
		for (int r = 0; r < reply->rows; r++)
			for (int c = 0; c < reply->columns; c++)
				fprintf(client->file, "%c%s", c == 0 ? '\t' : ' ',
						reply->value[r][c]);
		fputc('\n', client->file);
	}
	if (reply->status == LOST)
		disconnect(client);
}

static void *
run_observer(void *arg)
{
	Client	   *client = make_client((int) (intptr_t) arg);

	while (!stopping)
	{
#ifndef PLAIN_SQL
		look(client, 'W', "SELECT name, owner, position FROM dlock.waiters");
#endif
		if (dice(&client->random, 4) == 0)
			look(client, 'L', "SELECT name, owner, mode, token,"
				 " CASE WHEN " LIVE " THEN 'live' ELSE 'over' END FROM dlock.locks");
		nap(dice(&client->random, 20000));
	}
	return end_client(client);
}

static void *
run_canceller(void *arg)
{
	Client	   *client = make_client((int) (intptr_t) arg);

	while (!stopping && connect_client(client))
	{
		Reply	   *reply = &client->reply;
		char		statement[150];
		bool		terminate = dice(&client->random, 20) == 0;
		int64_t		start_us;

		nap(dice(&client->random, 200000));
		ask(client->connection, RANDOM_WAITER, reply);
		if (reply->status == ANSWERED && reply->rows == 1)
		{
			snprintf(statement, sizeof(statement), terminate ? TERMINATE : CANCEL,
					 reply->value[0][0]);
			start_us = now_us();
			ask(client->connection, statement, reply);
			fprintf(client->file, "X\t%" PRId64 "\t%" PRId64 "\t%s\n", start_us,
					now_us() + 1, terminate ? "terminate" : "cancel");
		}
		if (reply->status == LOST)
			disconnect(client);
	}
	return end_client(client);
}

static void
stop(int signal_number)
{
	(void) signal_number;
	stopping = 1;
}

int
main(int argc, char **argv)
{
	int			clients;
	pthread_t  *threads;

	if (argc != 6)
		fail("usage", "load CONNECTION CLIENTS NAMES SEED FOLDER");
	connection_string = argv[1];
	clients = atoi(argv[2]);
	names = atoi(argv[3]);
	seed = (unsigned int) strtoul(argv[4], NULL, 10);
	folder = argv[5];
	if (clients < 1 || names < 1)
		fail("usage", "there must be clients and names");
#ifndef POSTGRES
	if (mysql_library_init(0, NULL, NULL) != 0)
		fail("mysql_library_init", "failed");
#endif
	signal(SIGTERM, stop);
	/* also when the test that started us dies */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGPIPE, SIG_IGN);
	threads = calloc((size_t) clients + 2, sizeof(pthread_t));
	for (int i = 0; i < clients + 2; i++)
		if (pthread_create(&threads[i], NULL,
						   i < clients ? run_client :
						   i == clients ? run_observer : run_canceller,
						   (void *) (intptr_t) (i + 1)) != 0)
			fail("pthread_create", "no more threads");
	for (int i = 0; i < clients + 2; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	return 0;
}
