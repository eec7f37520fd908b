/*
 * lease.h
 *	  A lease, as lease.c and client.c know it.
 *
 * lease.c acquires every lease, on a session that it has for itself, as keep.c says.
 * A lease of a client is then handed over to the client, by dlock_client_keep(), and
 * from there on is kept as many.c says.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_CLIENT_LEASE_H
#define DLOCK_CLIENT_LEASE_H

#include "dlock.h"
#include "keep.h"
#include "many.h"
#include "session.h"

/* The servers' limit. */
#define DLOCK_STRING_MAX	255

struct dlock_lease
{
	keep		keep;
	dlock_session *session;
	dlock_mode	mode;
	int32_t		limit;
	int32_t		permits;
	int64_t		ttl_us;
	size_t		nnames;
	char	  **names;
	char	   *owner;
	char	   *request;
	int64_t    *tokens;			/* of the names, of the last grant */
	keep_action_kind asked;		/* what the session does; KEEP_AWAIT: nothing */
	int64_t		until_us;		/* when to step */
	bool		done;
	bool		ended_there;	/* lost because the server said so */
	bool		logged_in;		/* another lease has been, with the same URL */
	/* Of a client's lease; NULL. */
	dlock_client *client;
	bool		kept;			/* by the client: it uses no session of its own */
	many_lease	held;			/* under the client's lock, once it is kept */
	dlock_error error;			/* of the last attempt */
};

/* lease.c */

/* Check a string that is to be sent to a server. */
extern bool dlock_check_string(const char *what, const char *string,
							   dlock_error *error);

/* An owner that nobody else has.  NULL if there are no random numbers. */
extern char *dlock_make_owner(void);

/* Make a lease; a client's has its owner, and no session yet. */
extern dlock_lease *dlock_lease_make(const char *url, dlock_client *client,
									 const dlock_lease_options *options,
									 dlock_error *error);

/* Fill in the error of a lease that is lost. */
extern void dlock_lease_explain_loss(const dlock_lease *lease, bool ended_there,
									 const dlock_error *cause, dlock_error *error);

/* client.c; each takes the client's lock. */

/*
 * A session for an acquire: the kept one, which may have rested for long, or a new one.
 * NULL: no memory.
 */
extern dlock_session *dlock_client_lend(dlock_client *client, bool *rested);

/* Somebody has been logged in; was anybody? */
extern void dlock_client_log_in(dlock_client *client);
extern bool dlock_client_was_logged_in(dlock_client *client);
extern bool dlock_client_is_closing(dlock_client *client);

/* Keep a lease that is held from now on; takes its session. */
extern void dlock_client_keep(dlock_client *client, dlock_lease *lease);

/* An acquire has ended without a lease; takes the session. */
extern void dlock_client_refused(dlock_client *client, dlock_lease *lease);

/* The rest, for a lease that is kept. */
extern void dlock_client_release(dlock_client *client, dlock_lease *lease);
extern many_lease dlock_client_look(dlock_client *client, const dlock_lease *lease);

/* Wait until it is done. */
extern void dlock_client_await(dlock_client *client, const dlock_lease *lease);

/* A lease is about to be freed. */
extern void dlock_client_forget(dlock_client *client, dlock_lease *lease);

/* Let the client go on while a lease of its is acquired, unless a thread does. */
extern void dlock_client_go_on(dlock_client *client);

/* Wait for a lease, and for the client, unless a thread does. */
extern void dlock_client_wait(dlock_client *client, int fd, short events,
							  int64_t until_us);

#endif							/* DLOCK_CLIENT_LEASE_H */
