/*
 * connection.h
 *	  The library's connection to its own server.
 *
 * It belongs to the batcher (lease_server.h), except connection_interrupt().
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_CONNECTION_H
#define DLOCK_CONNECTION_H

#include <mysql.h>

#include "lease_status.h"
#include "lease_text.h"

/* Seconds until a server that does not answer counts as gone. */
#define CONNECTION_TIMEOUT	30

typedef struct connection
{
	MYSQL	   *mysql;			/* NULL: there is none */
	MYSQL_STMT *append;			/* table_append()'s statement, once it is prepared */
	int			wire;			/* our own descriptor of the last socket; -1: none */
	unsigned long lost_id;		/* a connection that was lost in a statement,
								 * which may go on; 0: none */
	bool		in_transaction;
	bool		in_galera;		/* the server is a node of a Galera cluster */
	bool		is_clustered;	/* others may write the same tables meanwhile */
	bool		is_following;	/* that is because the server applies the changes
								 * of a source, and no more */
	bool		is_read_only;	/* the server must not be written to */
	size_t		max_packet;		/* bytes of a statement */
	bool		is_refusal;		/* the last error: the server may only be read */
	bool		is_expelled;	/* that was because its group has expelled it */
	bool		is_missing;		/* the last error: a database, table or column
								 * is missing */
	bool		is_full;		/* the last error: a table or disk has no room */
	bool		is_locked;		/* the last error: a lock was waited for in vain */
	bool		is_shut;		/* that was no row's: a session has locked the table, or
								 * the whole server, against writing */
	char		sqlstate[6];
	char		error[512];
} connection;

/* Say whether the server is a member of a cluster, whose others write the same tables. */
static inline bool
connection_is_member(const connection *c)
{
	return c->is_clustered && !c->is_following;
}

/* connection.c */
extern lease_status connection_open(connection *c);
extern lease_status connection_end_lost(connection *c);
extern bool connection_can_be_interrupted(const connection *c);
extern void connection_interrupt(const connection *c);
extern lease_status connection_failed(connection *c);
extern lease_status connection_append_failed(connection *c);
extern lease_status connection_give_up(connection *c, lease_status status,
									   const char *sqlstate,
									   const char *message);
extern lease_status connection_no_memory(connection *c);
extern lease_status connection_edited(connection *c);
extern lease_status connection_closed(connection *c);
extern lease_status connection_look_refusing(connection *c);
extern lease_status connection_refuse_if_read_only(connection *c);
extern lease_status connection_execute(connection *c,
									   const lease_text *statement);
extern lease_status connection_execute_all(connection *c,
										   lease_text *statements,
										   size_t *done);
extern lease_status connection_query(connection *c, lease_text *query,
									 MYSQL_RES **result);
extern lease_status connection_next(connection *c, MYSQL_RES **result);
extern lease_status connection_begin(connection *c);
extern lease_status connection_commit(connection *c);
extern void connection_rollback(connection *c);
extern lease_status connection_look(connection *c);

/* Visit the ids of all connections.  Fails if the account may not see them. */
typedef void (*connection_visitor) (uint64_t connection_id);

extern lease_status connection_visit_all(connection *c,
										 connection_visitor visit);
extern lease_status connection_ask_plugin(connection *c, bool *active);

#endif							/* DLOCK_CONNECTION_H */
