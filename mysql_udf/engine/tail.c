/*
 * tail.c
 *	  What other servers have appended: in a cluster, and where changes are replicated.
 *
 * An answer that no append of ours has proved, a refusal or a look, may be wrong as soon as
 * others append, too.  So such a call first has the tail of the log looked at.  In a cluster
 * the look is causal: it sees all that was committed on any node before.  One look is made
 * for all calls that came before it began.  A thread does that, on a connection of its own,
 * so that appends go on; if it finds a row that is not known, the writer reads it
 * (buffer_note_tail()).
 *
 * While calls wait for leases, the tail is looked at 20 times a second, so that what another
 * node gives back wakes them; else each second, so that what this run knows is of use when
 * it takes over, and leases are counted from when they were written.
 *
 * Where nothing may be written, calls that would write have the server looked at once more in
 * the same way.
 *
 * A server that somebody locks against writing applies nothing, and a causal look would wait
 * for that.  So ask first.  Looks tell what there was, and all else fails.
 *
 * All of it is under the engine's mutex, which is released while the server is asked.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "connection.h"
#include "lease_thread.h"

#define WAITED_US		50000
#define IDLE_US			1000000

static pthread_cond_t work;
static call_list askers;		/* wait for the next look */
static call_list round;			/* and for the one under way */
static connection own = {.wire = -1};

/* Prepare the thread's sleep. */
void
tail_begin(void)
{
	lease_thread_begin_sleep(&work);
}

/* Have the tail looked at, and a call made then. */
void
tail_ask(call *c)
{
	call_list_append(&askers, c);
	pthread_cond_signal(&work);
}

/* A call waits in a queue now. */
void
tail_wake(void)
{
	pthread_cond_signal(&work);
}

/* Wait until what other nodes have committed can be read here; the mutex is not held. */
static lease_status
wait_for_others(bool may_write)
{
	lease_text	text = {0};
	size_t		done;

	/* locks no row, and fails if no row can be locked */
	if (may_write)
		lease_text_add(&text, "SELECT number FROM dlock.log WHERE number = 0 FOR UPDATE;");
	if (dlock_server_kind() == DLOCK_SERVER_MARIADB)
		lease_text_add(&text, "SET STATEMENT wsrep_sync_wait = 1 FOR SELECT number FROM dlock.log WHERE number = 0");
	else
		lease_text_add(&text, "SET SESSION group_replication_consistency = 'BEFORE';"
					   "SELECT number FROM dlock.log WHERE number = 0;"
					   "SET SESSION group_replication_consistency = 'EVENTUAL'");
	return connection_execute_all(&own, &text, &done);
}

/* Read the number and the writer of the last row; the mutex is not held. */
static lease_status
read_last(uint64_t *number, uint64_t *writer)
{
	lease_text	query = {0};
	MYSQL_RES  *result;
	MYSQL_ROW	row;
	lease_status status;

	lease_text_add(&query, "SELECT number, writer FROM dlock.log ORDER BY number DESC LIMIT 1");
	status = connection_query(&own, &query, &result);
	if (status != LEASE_STATUS_OK)
		return status;
	row = mysql_fetch_row(result);
	*number = row != NULL ? strtoull(row[0], NULL, 10) : 0;
	*writer = row != NULL ? strtoull(row[1], NULL, 10) : 0;
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}

/* What a look has found. */
typedef struct tail_look
{
	bool		is_causal;		/* other nodes are to be waited for */
	bool		may_write;
	bool		has_waited;		/* they were, if that was to be */
	bool		has_read;
	bool		has_looked;		/* at the server, since it may not be written to or they
								 * could not be waited for */
	server_state state;
	uint64_t	number;
	uint64_t	writer;
	char		sqlstate[6];	/* the error, if there was one */
	char		error[DLOCK_MESSAGE_SIZE];
} tail_look;

/* Note the error of the connection. */
static void
note_failed(tail_look *look)
{
	snprintf(look->sqlstate, sizeof(look->sqlstate), "%s",
			 own.sqlstate[0] != '\0' ? own.sqlstate : "08001");
	snprintf(look->error, sizeof(look->error), "%s", own.is_locked ?
			 "could not decide on the lease: the server or dlock's tables are locked against writing" :
			 own.error);
}

/* Look once. */
static void
look_once(tail_look *look)
{
	lease_status status = LEASE_STATUS_LOST;

	if (own.mysql != NULL || connection_open(&own) == LEASE_STATUS_OK)
		status = look->is_causal ? wait_for_others(look->may_write) : LEASE_STATUS_OK;
	look->has_waited = status == LEASE_STATUS_OK;
	if (!look->has_waited)
		note_failed(look);
	if (!look->has_waited && look->is_causal && own.mysql != NULL &&
		dlock_server_kind() != DLOCK_SERVER_MARIADB)
		(void) mysql_query(own.mysql, "SET SESSION group_replication_consistency = 'EVENTUAL'");
	if ((!look->has_waited || !look->may_write) && own.mysql != NULL)
		look->has_looked = server_look(&own, &look->state);
	look->has_read = own.mysql != NULL &&
		read_last(&look->number, &look->writer) == LEASE_STATUS_OK;
	if (!look->has_read && look->has_waited)
		note_failed(look);
}

/* Look; the mutex is not held.  A connection that was lost while it was idle is opened again. */
static void
look_at_tail(tail_look *look)
{
	bool		was_open = own.mysql != NULL;

	look_once(look);
	if (was_open && own.mysql == NULL)
		look_once(look);
}

/* Make the calls for which the tail was looked at. */
static void
end_round(const tail_look *look, const log_position *before)
{
	call	   *c;

	if (look->has_looked)
		buffer_note_server(&look->state);
	if (look->has_read)
		buffer_note_tail(before, look->number, look->writer);
	while ((c = call_list_take(&round)) != NULL)
	{
		c->has_tail = true;
		if (look->has_read && (look->has_waited || c->asked->kind == DLOCK_CALL_READ ||
							   buffer_server()->refusal != NULL))
			buffer_take(c);
		else
			calls_refuse(c, look->sqlstate, "%s", look->error);
	}
	buffer_appoint();
}

/* When to look again without a call that asks for it. */
static int64_t
next_look_us(int64_t last_us)
{
	if (!buffer_reads_tail())
		return INT64_MAX;
	return last_us + (queue_waiters() > 0 ? WAITED_US : IDLE_US);
}

/* The thread. */
void *
tail_main(void *argument)
{
	int64_t		last_us = 0;

	engine_lock();
	for (;;)
	{
		int64_t		due_us = next_look_us(last_us);
		tail_look	look = {0};
		log_position before = buffer_position();

		if (askers.head == NULL && due_us > lease_now())
		{
			engine_sleep(&work, due_us < INT64_MAX ? due_us : lease_now() + IDLE_US);
			continue;
		}
		call_list_move(&askers, &round);
		look.is_causal = round.head != NULL && buffer_server()->is_member;
		look.may_write = buffer_server()->refusal == NULL;
		last_us = lease_now();
		engine_unlock();
		look_at_tail(&look);
		engine_lock();
		end_round(&look, &before);
	}
	return NULL;
}
