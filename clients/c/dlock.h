/*
 * dlock.h
 *	  The client library of dlock for C: leases that are kept alive, and calls.
 *
 * There are two things here.  A "lease" is what a program wants to hold: the
 * library acquires it, renews it in time, tells when it is lost, and releases
 * it, as clients/CONTRACT.md says.  A "session" is one connection to a
 * PostgreSQL, MySQL or MariaDB server, and calls on it; each lease has its own.
 *
 * Nothing here waits, except the functions whose comments say so.  The program
 * drives a lease or a session in its own loop: it waits for the file
 * descriptor, the events and the time that the library names, in any poll(),
 * and then steps.
 *
 *		while (!dlock_lease_is_done(lease))
 *		{
 *			dlock_event event;
 *
 *			while (dlock_lease_step(lease, &event))
 *				...				see "event" below
 *			if (dlock_lease_is_done(lease))
 *				break;			there is nothing to wait for
 *			struct pollfd p = {dlock_lease_fd(lease), dlock_lease_events(lease), 0};
 *			poll(&p, 1, dlock_timeout_ms(dlock_lease_until_us(lease)));
 *		}
 *
 * Or a thread does that: dlock_heartbeat_start().
 *
 * Two exceptions.  When a connection begins, the servers' client libraries look
 * up host names, and may block for as long as the resolver does.  Name an
 * address if that matters.  And they read certificates and option files.
 *
 * Times are microseconds, as int64_t.  A point in time, such as deadline_us, is
 * a time of dlock_now_us(), which counts the time a machine was suspended, and
 * which nobody can set.
 *
 * Strings end with a NUL, and are UTF-8, whatever the locale and the settings of a
 * server or its client library say.  Names, owners and request ids are 1 to 255
 * bytes.
 *
 * Threads: an object is used by one thread at a time; different objects are
 * independent.  Processes: after fork(), the child must not use an object of the
 * parent, and must not free it; the sockets are closed on exec.  SIGPIPE: a
 * program that links to MariaDB's Connector/C should ignore it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_H
#define DLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DLOCK_API __attribute__((visibility("default")))

/* A time that never comes. */
#define DLOCK_NEVER		INT64_MAX

/* The most names that one lease can have. */
#define DLOCK_NAMES_MAX	100

/* How long an attempt to reach a server may take by default. */
#define DLOCK_CONNECT_TIMEOUT_US	INT64_C(10000000)

/* ------------------------------------------------------------------- time */

/* The time: microseconds of CLOCK_BOOTTIME; on macOS CLOCK_MONOTONIC is the same. */
DLOCK_API int64_t dlock_now_us(void);

/*
 * The timeout for poll() so that it ends at a point in time, or after a second if that is
 * sooner, since poll() does not count the time for which a machine is suspended:
 * milliseconds, rounded up, 0 if the time has come, -1 for DLOCK_NEVER.
 */
DLOCK_API int dlock_timeout_ms(int64_t until_us);

/*
 * Read a duration as the command and the servers do: "30", "0.25", "500ms", "5min" or
 * "5m", "1h30m", "1 day", "-1", "01:30:00", "PT1M30S".  Returns false if the text is no
 * duration, or a longer one than 10^9 seconds.
 */
DLOCK_API bool dlock_parse_duration(const char *text, int64_t *us);

/* ------------------------------------------------------------------ errors */

/* What the program should do about an error; the classes of CONTRACT.md. */
typedef enum dlock_error_class
{
	DLOCK_NO_ERROR = 0,
	DLOCK_BUSY,					/* not free: try later */
	DLOCK_LOST,					/* the lease has ended: acquire again first */
	DLOCK_MISUSE,				/* the program or its account is wrong: do not
								 * try again */
	DLOCK_UNAVAILABLE,			/* no server: try again */
} dlock_error_class;

typedef struct dlock_error
{
	dlock_error_class error_class;
	/* Five characters, or "" if there is none. */
	char		sqlstate[6];
	/* MySQL's and MariaDB's number, also that of their client library; else 0. */
	unsigned int number;
	/* A misuse: a privilege is missing, or the log-in was refused. */
	bool		denied;
	/* The connection is lost, or there never was one. */
	bool		disconnected;
	/* The server's, or the library's; in UTF-8, without a password. */
	char		message[512];
} dlock_error;

/* The class in a word: "busy", "lost", "misuse", "unavailable"; else "none". */
DLOCK_API const char *dlock_error_class_name(dlock_error_class error_class);

/* ---------------------------------------------------------------- sessions */

typedef struct dlock_session dlock_session;

typedef enum dlock_engine
{
	DLOCK_POSTGRESQL = 1,
	DLOCK_MYSQL,				/* MariaDB too */
} dlock_engine;

/*
 * Make a session for the server that a URL names; it connects at its first
 * call.  Returns NULL, and an error of class misuse, if the URL is wrong or
 * there is no memory.
 *
 *	postgresql://..., postgres://...	as libpq reads them
 *	host=... dbname=..., service=...	the same as keywords
 *	mysql://[user[:password]@][host][:port]/[database][?parameter=value&...]
 *	mariadb://...						the same
 *
 * Characters with a special meaning in a URL are percent-encoded.  The
 * parameters are socket, ssl-ca, ssl-cert, ssl-key, ssl-verify (1 or 0) and
 * default-file; any of those for TLS means that TLS must be used.  The server's
 * certificate is verified if ssl-verify is 1, or is not there and ssl-ca is.
 * MySQL's option files are read (their groups client and dlock), or default-file
 * instead; what they say comes after the URL.
 *
 * NULL or "": the variable DLOCK_URL.  If that is not set, and one of PGHOST,
 * PGHOSTADDR, PGSERVICE, PGDATABASE is, libpq uses its own variables.  Else it
 * is an error.
 */
DLOCK_API dlock_session *dlock_session_new(const char *url, dlock_error *error);

/* Free a session and close its connection. */
DLOCK_API void dlock_session_free(dlock_session *session);

/* Which kind of server it is for. */
DLOCK_API dlock_engine dlock_session_engine(const dlock_session *session);

/*
 * An argument of a call.  Make it with one of the macros; the memory that it
 * points to must stay until the call has been started.
 */
typedef enum dlock_arg_type
{
	DLOCK_ARG_NULL = 0,
	DLOCK_ARG_TEXT,
	DLOCK_ARG_INTEGER,
	DLOCK_ARG_DURATION,
	DLOCK_ARG_TEXTS,
	DLOCK_ARG_INTEGERS,
} dlock_arg_type;

typedef struct dlock_arg
{
	dlock_arg_type type;
	const char *text;
	int64_t		integer;		/* a duration: microseconds */
	const char *const *texts;
	const int64_t *integers;
	size_t		count;			/* of a list */
} dlock_arg;

#define DLOCK_NULL \
	((dlock_arg) {DLOCK_ARG_NULL, NULL, 0, NULL, NULL, 0})
#define DLOCK_TEXT(s) /* NULL is NULL */ \
	((dlock_arg) {DLOCK_ARG_TEXT, (s), 0, NULL, NULL, 0})
#define DLOCK_INTEGER(n) \
	((dlock_arg) {DLOCK_ARG_INTEGER, NULL, (n), NULL, NULL, 0})
#define DLOCK_DURATION(us) \
	((dlock_arg) {DLOCK_ARG_DURATION, NULL, (us), NULL, NULL, 0})
#define DLOCK_TEXTS(list, n) \
	((dlock_arg) {DLOCK_ARG_TEXTS, NULL, 0, (list), NULL, (n)})
#define DLOCK_INTEGERS(list, n) \
	((dlock_arg) {DLOCK_ARG_INTEGERS, NULL, 0, NULL, (list), (n)})

/*
 * Start a call of one of dlock's functions, by its name in the manual, for example
 * "dlock_acquire"; "dlock_guard" is the procedure on MySQL.  dlock_release_after
 * takes lists, too, and answers them as dlock_release_many does.  The call is given
 * up at deadline_us, connecting included: then the connection is closed, since
 * the call may still be under way in the server.
 *
 * On PostgreSQL the functions are found in the schema of the extension, whatever
 * the search path is.
 *
 * Returns false if the call is wrong, or another is under way; see
 * dlock_session_error().  If the server cannot be reached, a later step says
 * so.
 */
DLOCK_API bool dlock_session_call(dlock_session *session, const char *function,
								  const dlock_arg *args, size_t nargs,
								  int64_t deadline_us);

/*
 * Start an SQL statement, for example one on the views; its arguments are $1, $2
 * and so on, on MySQL too, where $ followed by a digit must mean nothing else.  A
 * statement outside a transaction is one of its own.
 */
DLOCK_API bool dlock_session_query(dlock_session *session, const char *sql,
								   const dlock_arg *args, size_t nargs,
								   int64_t deadline_us);

/* Start to connect, if the session is not connected. */
DLOCK_API bool dlock_session_connect(dlock_session *session, int64_t deadline_us);

typedef enum dlock_step
{
	DLOCK_STEP_WAIT,			/* wait for fd, events and time, and step again */
	DLOCK_STEP_DONE,			/* there is an answer, or nothing was started */
	DLOCK_STEP_FAILED,			/* there is an error */
} dlock_step;

/* Go on with what was started, as far as is possible without waiting. */
DLOCK_API dlock_step dlock_session_step(dlock_session *session);

/*
 * What to wait for between steps: the file descriptor, -1 for none, and the events
 * of poll().  Both may differ after each step.
 */
DLOCK_API int dlock_session_fd(const dlock_session *session);
DLOCK_API short dlock_session_events(const dlock_session *session);

/* The time at which to step even if nothing has come; DLOCK_NEVER if idle. */
DLOCK_API int64_t dlock_session_until_us(const dlock_session *session);

/*
 * Wait until what was started is done or has failed.  Returns whether it is done.
 * This function waits, until the deadline at most.
 */
DLOCK_API bool dlock_session_finish(dlock_session *session);

/* Give up what is under way, and close the connection. */
DLOCK_API void dlock_session_close(dlock_session *session);

/* Say whether the session is connected, as far as it knows. */
DLOCK_API bool dlock_session_is_connected(const dlock_session *session);

/*
 * The answer of the last call, until the next is started.
 *
 * Every answer is rows of text.  A function with a single answer: one row.  A
 * function that answers a list (dlock_acquire_all, dlock_renew_many,
 * dlock_release_many): a row for each element, and one row with NULL if the
 * answer is NULL. dlock_acquire_any and dlock_holders: their rows.  It is the
 * same on all servers.  Booleans are "1" and "0", in a statement's answer too
 * if the server marks them as booleans.
 *
 * A value is NULL for NULL, and for a row or column that is not there.
 */
DLOCK_API size_t dlock_session_rows(const dlock_session *session);
DLOCK_API size_t dlock_session_columns(const dlock_session *session);
DLOCK_API const char *dlock_session_column_name(const dlock_session *session,
												size_t column);
DLOCK_API const char *dlock_session_value(const dlock_session *session,
										  size_t row, size_t column);

/* The answer as true, false or NULL: 1, 0, -1. */
DLOCK_API int dlock_session_truth(const dlock_session *session);

/* The answer as a token or a count; 0 for NULL. */
DLOCK_API int64_t dlock_session_integer(const dlock_session *session);

/* The error of the last call; error_class is DLOCK_NO_ERROR if there is none. */
DLOCK_API const dlock_error *dlock_session_error(const dlock_session *session);

/* ------------------------------------------------------------------ leases */

typedef struct dlock_lease dlock_lease;

typedef enum dlock_mode
{
	DLOCK_EXCLUSIVE = 0,
	DLOCK_SHARED,
	DLOCK_PERMIT,
} dlock_mode;

/* The options of a lease.  Fill it with zeros, then set what you want. */
typedef struct dlock_lease_options
{
	/* One name; several, up to DLOCK_NAMES_MAX, are taken exclusive, all or none. */
	const char *const *names;
	size_t		nnames;
	dlock_mode	mode;
	/* For permits: the limit, and how many of them; 0 permits means one. */
	int32_t		limit;
	int32_t		permits;
	/* How long it lasts if it is not renewed. */
	int64_t		ttl_us;
	/* How long to wait for it; 0: try once; negative: without limit. */
	int64_t		wait_us;
	/* How long to go on if no server answers; 0: DLOCK_CONNECT_TIMEOUT_US. */
	int64_t		connect_timeout_us;
	/*
	 * If the program releases sooner than this after DLOCK_EVENT_HELD, the
	 * lease is given back with effect at that time; on MySQL it is renewed until
	 * then, and expires.
	 */
	int64_t		keep_at_least_us;
	/*
	 * NULL: one that nobody else has.  Leases with the same owner, and of the
	 * same account, are one holder; they should then have the same ttl, since
	 * either's renewal sets the deadline of both.
	 */
	const char *owner;
	/* NULL: one that nobody else has. */
	const char *request;
} dlock_lease_options;

typedef enum dlock_lease_state
{
	DLOCK_LEASE_NEW,
	DLOCK_LEASE_WAITING,
	DLOCK_LEASE_HELD,
	DLOCK_LEASE_IS_LOST,
	DLOCK_LEASE_ENDED,			/* released, refused or failed */
} dlock_lease_state;

typedef enum dlock_event_kind
{
	/* The lease is held, with the tokens, until the deadline. */
	DLOCK_EVENT_HELD = 1,
	/* It was renewed: deadline_us and lost_at_us have moved. */
	DLOCK_EVENT_RENEWED,
	/*
	 * An attempt has failed, as "error" says; the library tries again.  Only
	 * for programs that want to report it.
	 */
	DLOCK_EVENT_TROUBLE,
	/*
	 * The lease is lost, or may be lost any moment.  Stop what it protects now;
	 * then call dlock_lease_release().
	 */
	DLOCK_EVENT_LOST,
	/* It was not free within the wait, or waiting for it would be a deadlock. */
	DLOCK_EVENT_REFUSED,
	/* It could not be acquired, as "error" says. */
	DLOCK_EVENT_FAILED,
	/*
	 * The release that dlock_lease_release() began has ended. given_back says
	 * whether the server has confirmed that a hold was given back, or, with
	 * keep_at_least_us, that it will be.  If not, and there is an error, the lease
	 * ends at its deadline; without an error it has ended before, or nothing was
	 * held.
	 */
	DLOCK_EVENT_RELEASED,
} dlock_event_kind;

typedef struct dlock_event
{
	dlock_event_kind kind;
	int64_t		deadline_us;
	/* The time at which the lease counts as lost unless it is renewed. */
	int64_t		lost_at_us;
	bool		given_back;
	/* error_class is DLOCK_NO_ERROR if there is none. */
	dlock_error error;
} dlock_event;

/*
 * Make a lease on a server; see dlock_session_new() for the URL.  URL and
 * options are copied.  Nothing is asked yet.  Returns NULL, and an error of
 * class misuse, if something is wrong that can be seen without a server.
 */
DLOCK_API dlock_lease *dlock_lease_new(const char *url,
									   const dlock_lease_options *options,
									   dlock_error *error);

/*
 * Say, before it is started, that a log-in with its URL has worked before, for another
 * lease.  Then one that fails is unavailable, and tried again; else, if it is the first
 * of this lease, it is misuse.
 */
DLOCK_API void dlock_lease_was_logged_in(dlock_lease *lease);

/*
 * Free a lease.  This does not release it: a lease that was not released ends
 * at its deadline.
 */
DLOCK_API void dlock_lease_free(dlock_lease *lease);

/* Begin to acquire, once. */
DLOCK_API void dlock_lease_start(dlock_lease *lease);

/*
 * Go on without waiting.  Returns true, and what has happened, if something
 * has: then call again before waiting.  This reads the clock first, so a
 * process that was stopped for too long gets DLOCK_EVENT_LOST before all else.
 */
DLOCK_API bool dlock_lease_step(dlock_lease *lease, dlock_event *event);

/* What to wait for until the next step, as for a session. */
DLOCK_API int dlock_lease_fd(const dlock_lease *lease);
DLOCK_API short dlock_lease_events(const dlock_lease *lease);
DLOCK_API int64_t dlock_lease_until_us(const dlock_lease *lease);

/*
 * End the lease.  A held one is given back.  A waiting acquire is cancelled,
 * and what it may have been granted meanwhile is given back.  A lost one is
 * given back if that is possible without delay.  It takes steps until
 * dlock_lease_is_done(), for 5 seconds at most, or as long as the lease lasts,
 * if that is shorter.  DLOCK_EVENT_RELEASED is the last event.
 *
 * It is harmless in any state, and may be repeated.
 */
DLOCK_API void dlock_lease_release(dlock_lease *lease);

/*
 * Say whether nothing is left to do: after a release, and after the lease was
 * refused or has failed.  A failed one may have work for some steps: to give
 * back what it may have been granted.  A program need not wait for that.
 */
DLOCK_API bool dlock_lease_is_done(const dlock_lease *lease);

/*
 * Say whether the lease is held, by the clock, now.  "True" is valid until the
 * time that dlock_lease_lost_at_us() had at the call.
 */
DLOCK_API bool dlock_lease_is_held(const dlock_lease *lease);

DLOCK_API dlock_lease_state dlock_lease_state_now(const dlock_lease *lease);

/* The token of a name, by its place in the options; 0 if it was never held. */
DLOCK_API int64_t dlock_lease_token(const dlock_lease *lease, size_t name);

/*
 * The deadline, and the time at which the lease counts as lost; 0 if it was
 * never held.
 */
DLOCK_API int64_t dlock_lease_deadline_us(const dlock_lease *lease);
DLOCK_API int64_t dlock_lease_lost_at_us(const dlock_lease *lease);

DLOCK_API const char *dlock_lease_owner(const dlock_lease *lease);
DLOCK_API const char *dlock_lease_request(const dlock_lease *lease);
DLOCK_API dlock_engine dlock_lease_engine(const dlock_lease *lease);

/*
 * Drive the lease until it is held, has ended or is lost.  Returns whether it is
 * held; if not, the error says why: of class busy if it was refused.  This
 * function waits.
 */
DLOCK_API bool dlock_lease_acquire(dlock_lease *lease, dlock_error *error);

/* Release, and drive the lease until it is done.  This function waits. */
DLOCK_API void dlock_lease_end(dlock_lease *lease);

/* -------------------------------------------------------------- heartbeats */

/*
 * A thread that drives a lease, for programs that have no loop of their own: acquire,
 * start the heartbeat, work, stop it, and end the lease.
 */
typedef struct dlock_heartbeat dlock_heartbeat;

/*
 * Give a lease to a thread.  Until the heartbeat is stopped, the program calls
 * no function of the lease, only those of the heartbeat.  The thread calls
 * "tell", if it is not NULL, with each event and the argument.  "tell" must not
 * wait, since nothing is renewed meanwhile, and must not stop the heartbeat.
 * This does not start a lease that was not started.
 *
 * The thread takes no signals.  Returns NULL, and an error, if it cannot be
 * made.
 */
DLOCK_API dlock_heartbeat *dlock_heartbeat_start(dlock_lease *lease,
												 void (*tell) (const dlock_event *event,
															   void *argument),
												 void *argument,
												 dlock_error *error);

/* Say whether the lease is held, by the clock, now.  Any thread may ask. */
DLOCK_API bool dlock_heartbeat_is_held(dlock_heartbeat *heartbeat);

/*
 * The time at which it counts as lost unless it is renewed; 0 if it is not
 * held.
 */
DLOCK_API int64_t dlock_heartbeat_lost_at_us(dlock_heartbeat *heartbeat);

/*
 * Stop the thread, and free the heartbeat; the program may use the lease again.
 * This does not wait for a call that is under way, but for a "tell".
 */
DLOCK_API void dlock_heartbeat_stop(dlock_heartbeat *heartbeat);

/* ----------------------------------------------------------------- clients */

/*
 * A client keeps many leases with one connection; see "Many leases, one connection" in
 * clients/CONTRACT.md.  They all have its owner, so no two of them can have one name.
 *
 * Each is acquired as every lease is, by dlock_lease_acquire(), or by steps, on a
 * connection of its own.  From DLOCK_EVENT_HELD on the client keeps it, and its events
 * come from the client.  What asks a lease, dlock_lease_release() and _end() work as
 * ever.
 *
 * The client is driven either by the program, in its poll() loop,
 *
 *		while (dlock_client_step(client, &lease, &event))
 *			...
 *		struct pollfd p = {dlock_client_fd(client), dlock_client_events(client), 0};
 *		poll(&p, 1, dlock_timeout_ms(dlock_client_until_us(client)));
 *
 * with the leases that are being acquired beside it; then the client and its leases are
 * used by one thread.  Functions that wait drive it too.  Or by threads,
 * dlock_client_start(): then any thread may call the functions of the client, and
 * each lease is used by one thread at a time.
 */
typedef struct dlock_client dlock_client;

/*
 * Make a client for a server; see dlock_session_new() for the URL.  An owner that is
 * NULL is one that nobody else has.
 */
DLOCK_API dlock_client *dlock_client_new(const char *url, const char *owner,
										 dlock_error *error);

/* Free a client, all of whose leases were freed.  This releases nothing. */
DLOCK_API void dlock_client_free(dlock_client *client);

DLOCK_API const char *dlock_client_owner(const dlock_client *client);
DLOCK_API dlock_engine dlock_client_engine(const dlock_client *client);

/*
 * Make a lease of the client, whose owner it has.  Nothing is asked yet.  Returns NULL,
 * and an error of class misuse, if an option is wrong, if the client is closed, or
 * if another lease of the client has one of the names: from the time at which it is made
 * until it has been released, refused or has failed.  The error is of class busy while
 * such a lease may still be held: if that remained in doubt, for one ttl more; and
 * until the end of keep_at_least_us.
 */
DLOCK_API dlock_lease *dlock_client_lease(dlock_client *client,
										  const dlock_lease_options *options,
										  dlock_error *error);

/*
 * Go on without waiting.  Returns true, what has happened, and to which lease, if
 * something has: then call again before waiting.  With DLOCK_EVENT_TROUBLE, of the
 * connection, "lease" is NULL.
 */
DLOCK_API bool dlock_client_step(dlock_client *client, dlock_lease **lease,
								 dlock_event *event);

/* What to wait for until the next step, as for a session. */
DLOCK_API int dlock_client_fd(const dlock_client *client);
DLOCK_API short dlock_client_events(const dlock_client *client);
DLOCK_API int64_t dlock_client_until_us(const dlock_client *client);

/*
 * Release all leases that are held, and acquire none any more; those that are waiting
 * are cancelled by their next step, which dlock_lease_acquire() takes within a second.
 * It takes steps until dlock_client_is_done(), for 5 seconds at most, and some if there
 * is no answer.
 */
DLOCK_API void dlock_client_close(dlock_client *client);
DLOCK_API bool dlock_client_is_done(dlock_client *client);

/* Close, wait until it is done, and end the connections and the threads. */
DLOCK_API void dlock_client_end(dlock_client *client);

/*
 * Let threads drive the client: one that keeps the leases, and, if "tell" is not NULL,
 * one that calls it with each event.  What "tell" does stops no renewal; it may use and
 * free the lease, but not stop or end the client.  Threads take no signals.  Returns false, and an error, if they cannot
 * be started.
 */
DLOCK_API bool dlock_client_start(dlock_client *client,
								  void (*tell) (dlock_lease *lease,
												const dlock_event *event,
												void *argument),
								  void *argument, dlock_error *error);

/* Stop the threads.  This waits for a "tell", but not for a call that is under way. */
DLOCK_API void dlock_client_stop(dlock_client *client);

#ifdef __cplusplus
}
#endif

#endif							/* DLOCK_H */
