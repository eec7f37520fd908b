/*
 * session.h
 *	  One connection to a server, and what the two kinds of servers differ in.
 *
 * session.c has what is the same for all: what a call is, its deadline, its answer.
 * A transport, pg.c or mysql.c, speaks to a server by its client library, without
 * waiting: each of its functions does what can be done now.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_CLIENT_SESSION_H
#define DLOCK_CLIENT_SESSION_H

#include "dlock.h"
#include "text.h"
#include "url.h"

/* What a function answers. */
typedef enum dlock_shape
{
	DLOCK_SHAPE_PLAIN,			/* one value; of a statement: its rows */
	DLOCK_SHAPE_TOKENS,			/* PostgreSQL: an array; MySQL: JSON */
	DLOCK_SHAPE_ROWS,			/* PostgreSQL: rows; MySQL: JSON */
} dlock_shape;

typedef enum dlock_phase
{
	DLOCK_PHASE_IDLE,
	DLOCK_PHASE_CONNECTING,
	DLOCK_PHASE_CALLING,
} dlock_phase;

typedef struct dlock_transport dlock_transport;

struct dlock_session
{
	const dlock_transport *transport;
	dlock_url	url;
	void	   *wire;			/* the transport's; NULL: not connected */
	void	   *memory;			/* the transport's, over connections */
	dlock_phase phase;
	bool		failed;			/* the last call has */
	bool		call_follows;	/* when it is connected */
	int64_t		deadline_us;

	/* What the transport waits for.  wire_until_us: it has a time-out, too. */
	int			fd;
	short		events;
	int64_t		wire_until_us;

	/* The call: the statement, and with PostgreSQL its arguments. */
	const char *function;		/* NULL for a statement of the program's */
	dlock_shape shape;
	size_t		nargs;
	dlock_text	sql;
	dlock_table arguments;

	dlock_table answer;
	dlock_error error;
};

struct dlock_transport
{
	/*
	 * Make a statement of a call: s->sql, and s->arguments if they are not in it.
	 * A statement of the program's is in s->sql when this is called.
	 */
	void		(*prepare) (dlock_session *s, const dlock_arg *args, size_t nargs);

	/* Say what is wrong with s->url, if that can be seen now: false and s->error. */
	bool		(*check) (dlock_session *s);

	/* Begin to connect: s->wire, or NULL and s->error. */
	void		(*connect) (dlock_session *s);

	/* Send the call, once connected; an error is found by the next step. */
	void		(*send) (dlock_session *s);

	/*
	 * Go on.  DLOCK_STEP_DONE is connected, or an answer in s->answer;
	 * DLOCK_STEP_FAILED has s->error, in which "disconnected" says whether the
	 * session is to close the connection.
	 */
	dlock_step	(*step) (dlock_session *s);

	/* Close, whatever is under way. */
	void		(*close) (dlock_session *s);

	/* Free what is kept over connections. */
	void		(*free) (dlock_session *s);
};

extern const dlock_transport dlock_pg_transport;
extern const dlock_transport dlock_mysql_transport;

#endif							/* DLOCK_CLIENT_SESSION_H */
