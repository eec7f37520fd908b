/*
 * redis.c
 *	  Locks in Redis: SET NX PX with a script to delete, and Redisson's way.
 *
 * "Where" is the server's socket.  A lock is a key: a string with its owner,
 * or, as Redisson has it, a hash of its owner with a count of holds.  Scripts
 * are loaded once and called by their digests.  Many locks are a pipeline.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

#define TTL_MS			"3600000"

/* Whether a reply says that it was done. */
typedef bool (*Check) (const redisReply *reply);

typedef struct Way
{
	const char *acquire_script; /* NULL: SET key owner NX PX ms */
	const char *release_script;
	const char *renew_script;
	Check		acquired;
	bool		publishes;		/* a release tells those who wait */
} Way;

typedef struct Connection
{
	redisContext *server;
	redisContext *listener;		/* hears of releases; NULL until needed */
	const char *where;
	const Way  *way;
	char		owner[NAME_SIZE];
	char		acquire_sha[41];
	char		release_sha[41];
	char		renew_sha[41];
} Connection;

static bool
is_ok(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_STATUS;
}

static bool
is_nil(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_NIL;
}

static bool
is_one(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
}

static const Way set_nx = {
	.release_script =
	"if redis.call('get', KEYS[1]) == ARGV[1] "
	"then return redis.call('del', KEYS[1]) end return 0",
	.renew_script =
	"if redis.call('get', KEYS[1]) == ARGV[1] "
	"then return redis.call('pexpire', KEYS[1], " TTL_MS ") end return 0",
	.acquired = is_ok,
};

/*
 * What Redisson's lock does, in our words: an acquire by the holder counts one
 * more hold; one by another answers how long it may take; the release of the
 * last hold tells all who have subscribed, on the channel of the lock's name.
 */
static const Way redisson = {
	.acquire_script =
	"local mine = redis.call('hexists', KEYS[1], ARGV[1]) == 1 "
	"if mine or redis.call('exists', KEYS[1]) == 0 then "
	"redis.call('hincrby', KEYS[1], ARGV[1], 1) "
	"redis.call('pexpire', KEYS[1], " TTL_MS ") "
	"return nil end "
	"return redis.call('pttl', KEYS[1])",
	.release_script =
	"if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end "
	"if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then "
	"redis.call('pexpire', KEYS[1], " TTL_MS ") "
	"else redis.call('del', KEYS[1]) "
	"redis.call('publish', KEYS[1], 'freed') end "
	"return 1",
	.renew_script =
	"if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end "
	"return redis.call('pexpire', KEYS[1], " TTL_MS ")",
	.acquired = is_nil,
	.publishes = true,
};

static redisContext *
connect_to(const char *where)
{
	redisContext *server = redisConnectUnix(where);

	if (server == NULL || server->err)
		fail("connect: %s", server ? server->errstr : "no memory");
	return server;
}

/* A reply that is no error. */
static redisReply *
checked(redisContext *server, redisReply *reply)
{
	if (reply == NULL)
		fail("%s", server->errstr);
	if (reply->type == REDIS_REPLY_ERROR)
		fail("%s", reply->str);
	return reply;
}

static redisReply *
next_reply(redisContext *server)
{
	void	   *reply = NULL;

	if (redisGetReply(server, &reply) != REDIS_OK)
		fail("%s", server->errstr);
	return checked(server, reply);
}

static void
load_script(redisContext *server, const char *script, char *sha)
{
	redisReply *reply;

	if (script == NULL)
		return;
	reply = checked(server, redisCommand(server, "SCRIPT LOAD %s", script));
	snprintf(sha, 41, "%s", reply->str);
	freeReplyObject(reply);
}

static void *
open_connection(const System *system, const char *where, int client)
{
	Connection *c = allocate(sizeof(Connection));

	c->where = where;
	c->way = system->details;
	owner_name(c->owner, client);
	c->server = connect_to(where);
	load_script(c->server, c->way->acquire_script, c->acquire_sha);
	load_script(c->server, c->way->release_script, c->release_sha);
	load_script(c->server, c->way->renew_script, c->renew_sha);
	return c;
}

static void
close_connection(void *client)
{
	Connection *c = client;

	redisFree(c->server);
	if (c->listener)
		redisFree(c->listener);
	free(c);
}

/* Put a request for a lock into the pipeline: a script, or else SET. */
static void
append(Connection *c, const char *sha, int lock)
{
	char		name[NAME_SIZE];

	lock_name(name, lock);
	if (sha[0] == '\0')
		redisAppendCommand(c->server, "SET %s %s NX PX " TTL_MS, name,
						   c->owner);
	else
		redisAppendCommand(c->server, "EVALSHA %s 1 %s %s", sha, name,
						   c->owner);
}

/* Take the next reply; whether it says that it was done. */
static bool
take(Connection *c, Check check)
{
	redisReply *reply = next_reply(c->server);
	bool		done = check(reply);

	freeReplyObject(reply);
	return done;
}

/* Wait for a lock that is taken: try again whenever it has been freed. */
static void
acquire_listening(Connection *c, int lock)
{
	char		name[NAME_SIZE];
	bool		listening = true;

	lock_name(name, lock);
	if (c->listener == NULL)
		c->listener = connect_to(c->where);
	redisAppendCommand(c->listener, "SUBSCRIBE %s", name);
	do
	{
		/* first that it has subscribed: the lock may just have been freed */
		freeReplyObject(next_reply(c->listener));
		append(c, c->acquire_sha, lock);
	} while (!take(c, c->way->acquired));
	redisAppendCommand(c->listener, "UNSUBSCRIBE %s", name);
	while (listening)
	{
		redisReply *reply = next_reply(c->listener);

		listening = strcmp(reply->element[0]->str, "unsubscribe") != 0;
		freeReplyObject(reply);
	}
}

static bool
acquire(void *client, int lock, bool wait)
{
	Connection *c = client;

	for (;;)
	{
		append(c, c->acquire_sha, lock);
		if (take(c, c->way->acquired))
			return true;
		if (!wait)
			return false;
		if (c->way->publishes)
		{
			acquire_listening(c, lock);
			return true;
		}
		pause_before_retry();
	}
}

static void
release(void *client, int lock)
{
	Connection *c = client;

	append(c, c->release_sha, lock);
	if (!take(c, is_one))
		fail("could not release lock %d", lock);
}

static void
acquire_many(void *client, int first, int count, bool *got)
{
	Connection *c = client;

	for (int i = 0; i < count; i++)
		append(c, c->acquire_sha, first + i);
	for (int i = 0; i < count; i++)
		got[i] = take(c, c->way->acquired);
}

/* Send a script for each lock of a range; how many say that it was done. */
static int
do_many(Connection *c, const char *sha, int first, int count)
{
	int			done = 0;

	for (int i = 0; i < count; i++)
		append(c, sha, first + i);
	for (int i = 0; i < count; i++)
		done += take(c, is_one);
	return done;
}

static int
release_many(void *client, int first, int count)
{
	Connection *c = client;

	return do_many(c, c->release_sha, first, count);
}

static int
renew(void *client, int first, int count)
{
	Connection *c = client;
	int			renewed = 0;

	for (int i = 0; i < count; i += MAX_BATCH)
		renewed += do_many(c, c->renew_sha, first + i,
						   count - i < MAX_BATCH ? count - i : MAX_BATCH);
	return renewed;
}

#define COMMON \
	.open = open_connection, .close = close_connection, \
	.acquire = acquire, .release = release, \
	.acquire_many = acquire_many, .release_many = release_many, .renew = renew

const System redis_systems[] =
{
	{.name = "redis-set-nx", .details = &set_nx, COMMON},
	{.name = "redisson", .details = &redisson, .reentrant = true, COMMON},
	{.name = NULL}
};
