/*
 * session.h
 *	  One connection to a server, and the differences between the two kinds.
 *
 * session.c has what they share: a call, its deadline, its answer.  A
 * transport, pg.c or mysql.c, talks to a server through its client library,
 * without waiting: each of its functions does what can be done now.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_CLIENT_SESSION_H
#define DLOCK_CLIENT_SESSION_H

#include "dlock.h"
#include "text.h"
#include "url.h"

/* The form of a function's answer. */
typedef enum dlock_shape
{
	DLOCK_SHAPE_PLAIN,			/* one value; of a statement: its rows */
	DLOCK_SHAPE_TOKENS,			/* PostgreSQL: an array; MySQL: JSON */
	DLOCK_SHAPE_ROWS,			/* PostgreSQL: rows; MySQL: JSON */
	/* For a list of names, rows: those for which a call is true.  Else plain. */
	DLOCK_SHAPE_EACH,
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
	void	   *memory;			/* the transport's, kept over connections */
	dlock_phase phase;
	bool		failed;			/* the last call has */
	bool		may_renew;		/* it is DLOCK_LEAVE */
	bool		refused;		/* before there was a connection */
	bool		call_follows;	/* when it is connected */
	int64_t		deadline_us;
	int64_t		hurry_us;		/* the addresses share the time until then */

	/* What the transport waits for; at the latest until wire_until_us. */
	int			fd;
	short		events;
	int64_t		wire_until_us;

	/* The call: the statement, and with PostgreSQL its arguments. */
	const char *function;		/* NULL: a statement of the program */
	dlock_shape shape;
	size_t		nargs;
	dlock_text	sql;
	dlock_text	renewal;		/* MySQL, DLOCK_LEAVE: the statement of a server that cannot */
	bool		cannot_leave;	/* MySQL: it has no dlock_release_after(), as was learned */
	dlock_table arguments;

	dlock_table answer;
	dlock_error error;
};

/*
 * For dlock_session_call(): dlock_release_after(), or where a MySQL or MariaDB does not have
 * it, dlock_renew() or dlock_renew_many() for that time.
 */
#define DLOCK_LEAVE		"dlock_leave"

struct dlock_transport
{
	/*
	 * Make the statement of a call: s->sql, and s->arguments if they are not in
	 * it.  If the program gave a statement, it is in s->sql when this is
	 * called.
	 */
	void		(*prepare) (dlock_session *s, const dlock_arg *args, size_t nargs);

	/* Check s->url as far as possible now; if it is wrong: false and s->error. */
	bool		(*check) (dlock_session *s);

	/* Begin to connect: s->wire, or NULL and s->error. */
	void		(*connect) (dlock_session *s);

	/* Send the call, once connected; an error is found by the next step. */
	void		(*send) (dlock_session *s);

	/*
	 * Go on.  DLOCK_STEP_DONE: connected, or there is an answer in s->answer.
	 * DLOCK_STEP_FAILED: there is an error in s->error; its "disconnected" says
	 * whether the session must close the connection.
	 */
	dlock_step	(*step) (dlock_session *s);

	/* Close, whatever is under way. */
	void		(*close) (dlock_session *s);

	/* Free what is kept over connections. */
	void		(*free) (dlock_session *s);
};

/*
 * Divide the time until then among the addresses of the server, when the session
 * next connects.  Without it, that is the time until the deadline, or the usual
 * attempt's.
 */
extern void dlock_session_hurry(dlock_session *s, int64_t until_us);

/* Room for a host name, or an address as text; NI_MAXHOST is not in POSIX. */
#define DLOCK_HOST_SIZE		1025

/*
 * Look up the addresses of a host, as text: a list that ends with NULL.  Returns
 * how many; 0, and no list, for no host and on any error.  It blocks as long as the resolver does.
 */
extern size_t dlock_addresses(const char *host, char ***addresses);
extern void dlock_addresses_free(char **addresses);

/*
 * Close a connection that somebody has closed while nothing was under way: a proxy,
 * or a server whose patience with idle ones is limited.  Returns whether it did.
 */
extern bool dlock_session_close_if_dead(dlock_session *s);

/*
 * The quoted schema of dlock's functions on PostgreSQL, and whether they are those of
 * plain/dlock.sql, which are by the owner of dlock_private; no row: there are none.
 */
extern const char dlock_pg_schema_query[];

extern const dlock_transport dlock_pg_transport;
extern const dlock_transport dlock_mysql_transport;

#endif							/* DLOCK_CLIENT_SESSION_H */
