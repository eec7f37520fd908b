/*
 * zookeeper.c
 *	  Locks in ZooKeeper: ephemeral sequential nodes, the recipe without a herd.
 *
 * "Where" is host:port.  A lock is a node, which must exist.  Who wants it
 * creates an ephemeral sequential node below it and has it when no other has a
 * smaller number; else it watches the next smaller one only.  Nodes live as
 * long as their session, so there is nothing to renew; a session that is not
 * closed lasts TTL_SECONDS.  Many locks are requests sent without waiting for
 * each other's answers.
 *
 * A client's callbacks come in threads of the library's; they only store what
 * they are given and post a semaphore, on which the client's own thread waits.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define THREADED
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

#include "load.h"

#define PATH_SIZE		((size_t) 2 * NAME_SIZE)
#define PIPELINE		1000	/* requests without an answer, at most */

typedef struct Connection
{
	zhandle_t  *server;
	sem_t		connected;
	sem_t		woken;			/* the watched node has changed */
	sem_t		answered;		/* once for each asynchronous request */
	struct Place *places;
} Connection;

/* Where a client stands in line for a lock. */
typedef struct Place
{
	Connection *client;
	char		path[PATH_SIZE];	/* its node; empty if it has none */
	int			rc;				/* of the last asynchronous request */
	bool		first;			/* nobody has a smaller number */
} Place;

/* Check what a call has returned. */
static void
check(const char *what, int rc)
{
	if (rc != ZOK)
		fail("%s: %s", what, zerror(rc));
}

static void
on_session(zhandle_t *server, int type, int state, const char *path,
		   void *context)
{
	if (type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE)
		sem_post(&((Connection *) context)->connected);
}

static void
on_change(zhandle_t *server, int type, int state, const char *path,
		  void *context)
{
	if (type != ZOO_SESSION_EVENT)
		sem_post(&((Connection *) context)->woken);
}

static void *
open_connection(const System *system, const char *where, int client)
{
	Connection *c = allocate(sizeof(Connection));

	c->places = allocate(MAX_BATCH * sizeof(Place));
	for (int i = 0; i < MAX_BATCH; i++)
		c->places[i].client = c;
	sem_init(&c->connected, 0, 0);
	sem_init(&c->woken, 0, 0);
	sem_init(&c->answered, 0, 0);
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	c->server = zookeeper_init(where, on_session, TTL_SECONDS * 1000, NULL, c,
							   0);
	if (c->server == NULL)
		fail("connect: out of memory");
	sem_wait(&c->connected);
	return c;
}

static void
close_connection(void *client)
{
	Connection *c = client;

	check("close", zookeeper_close(c->server));
	free(c->places);
	free(c);
}

/* The node of a lock. */
static void
lock_path(char *path, int lock)
{
	path[0] = '/';
	lock_name(path + 1, lock);
}

static void
on_prepared(int rc, const char *path, const void *context)
{
	if (rc != ZNODEEXISTS)
		check("prepare", rc);
	sem_post(&((Connection *) context)->answered);
}

/* Create the locks' nodes, unless the last exists. */
static void
prepare(void *client, int first, int count)
{
	Connection *c = client;
	char		path[PATH_SIZE];
	int			pending = 0;

	lock_path(path, first + count - 1);
	if (zoo_exists(c->server, path, 0, NULL) == ZOK)
		return;
	for (int i = 0; i < count; i++)
	{
		lock_path(path, first + i);
		if (pending == PIPELINE)
			sem_wait(&c->answered);
		else
			pending++;
		check("prepare", zoo_acreate(c->server, path, "", 0,
									 &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT,
									 on_prepared, c));
	}
	while (pending-- > 0)
		sem_wait(&c->answered);
}

/* The number of a sequential node: its last ten digits. */
static const char *
number_of(const char *node)
{
	return node + strlen(node) - 10;
}

/*
 * The greatest of these numbers that is smaller than the place's own; NULL if
 * it is the first.
 */
static const char *
predecessor(const Place *place, const struct String_vector *nodes)
{
	const char *mine = number_of(place->path);
	const char *before = NULL;

	for (int i = 0; i < nodes->count; i++)
		if (strcmp(number_of(nodes->data[i]), mine) < 0 &&
			(before == NULL ||
			 strcmp(number_of(nodes->data[i]), number_of(before)) > 0))
			before = nodes->data[i];
	return before;
}

static void
leave(Connection *c, Place *place)
{
	check("delete", zoo_delete(c->server, place->path, -1));
	place->path[0] = '\0';
}

static bool
acquire(void *client, int lock, bool wait)
{
	Connection *c = client;
	Place	   *place = &c->places[0];
	char		parent[PATH_SIZE];
	char		path[PATH_SIZE + NAME_SIZE];

	lock_path(parent, lock);
	snprintf(path, sizeof(path), "%s/", parent);
	check("create", zoo_create(c->server, path, "", 0, &ZOO_OPEN_ACL_UNSAFE,
							   ZOO_EPHEMERAL_SEQUENTIAL, place->path,
							   PATH_SIZE));
	for (;;)
	{
		struct String_vector nodes;
		const char *before;
		int			len = 0;
		int			rc;

		check("list", zoo_get_children(c->server, parent, 0, &nodes));
		before = predecessor(place, &nodes);
		if (before)
			snprintf(path, sizeof(path), "%s/%s", parent, before);
		deallocate_String_vector(&nodes);
		if (before == NULL)
			return true;
		if (!wait)
		{
			leave(c, place);
			return false;
		}
		/* not zoo_wexists(), which would watch a node that is gone already */
		rc = zoo_wget(c->server, path, on_change, c, NULL, &len, NULL);
		if (rc == ZOK)
			sem_wait(&c->woken);
		else if (rc != ZNONODE)
			check("watch", rc);
	}
}

static void
release(void *client, int lock)
{
	Connection *c = client;

	leave(c, &c->places[0]);
}

static void
on_created(int rc, const char *path, const void *context)
{
	Place	   *place = (Place *) context;

	place->rc = rc;
	if (rc == ZOK)
		snprintf(place->path, PATH_SIZE, "%s", path);
	sem_post(&place->client->answered);
}

static void
on_listed(int rc, const struct String_vector *nodes, const void *context)
{
	Place	   *place = (Place *) context;

	place->rc = rc;
	place->first = rc == ZOK && predecessor(place, nodes) == NULL;
	sem_post(&place->client->answered);
}

static void
on_deleted(int rc, const void *context)
{
	Place	   *place = (Place *) context;

	place->rc = rc;
	place->path[0] = '\0';
	sem_post(&place->client->answered);
}

/* Wait for the answers to "count" requests, which must have been done. */
static void
await_answers(Connection *c, int count)
{
	for (int i = 0; i < count; i++)
		sem_wait(&c->answered);
	for (int i = 0; i < MAX_BATCH; i++)
		check("pipeline", c->places[i].rc);
}

static void
acquire_many(void *client, int first, int count, bool *got)
{
	Connection *c = client;
	char		path[PATH_SIZE];
	int			left = 0;

	for (int i = 0; i < count; i++)
	{
		lock_path(path, first + i);
		strcat(path, "/");
		check("create", zoo_acreate(c->server, path, "", 0,
									&ZOO_OPEN_ACL_UNSAFE,
									ZOO_EPHEMERAL_SEQUENTIAL, on_created,
									&c->places[i]));
	}
	await_answers(c, count);
	for (int i = 0; i < count; i++)
	{
		lock_path(path, first + i);
		check("list", zoo_aget_children(c->server, path, 0, on_listed,
										&c->places[i]));
	}
	await_answers(c, count);
	for (int i = 0; i < count; i++)
	{
		got[i] = c->places[i].first;
		if (got[i])
			continue;
		left++;
		check("delete", zoo_adelete(c->server, c->places[i].path, -1,
									on_deleted, &c->places[i]));
	}
	await_answers(c, left);
}

static int
release_many(void *client, int first, int count)
{
	Connection *c = client;
	int			released = 0;

	for (int i = 0; i < count; i++)
	{
		if (c->places[i].path[0] == '\0')
			continue;
		released++;
		check("delete", zoo_adelete(c->server, c->places[i].path, -1,
									on_deleted, &c->places[i]));
	}
	await_answers(c, released);
	return released;
}

const System zookeeper_systems[] =
{
	{.name = "zookeeper", .open = open_connection, .close = close_connection,
		.prepare = prepare, .acquire = acquire, .release = release,
		.acquire_many = acquire_many, .release_many = release_many},
	{.name = NULL}
};
