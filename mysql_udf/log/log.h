/*
 * log.h
 *	  The log: the table dlock.log, whose rows are batches of changes of leases.
 *
 * What is held is the fold of the rows.  This room writes rows and reads them; it keeps
 * no leases, takes no lock, and decides nothing.  A row is numbered, has a writer, the
 * number of a run of the library, and is a header with entries behind it (encode.c).
 *
 * Append.  Rows are inserted behind the last one that the run has applied, its
 * "position", by a statement that needs that row to be there as the run knows it
 * (append.c).  So there is one sequence of rows, and each was decided by somebody who
 * knew all before it.  Whatever goes wrong, the tail is read to see what has become of
 * the rows.
 *
 * Numbers are dense, and each row says who wrote the one before.  A reader applies the
 * row behind its position, and nothing else (load.c).
 *
 * Complete from.  Each row says from which number on the log has all that is held: no
 * lease's place is below.  A lease's place is the last row that has it whole, as a LOG_PUT
 * or LOG_CARRY with a LOG_GUARD for each of its guards in the same batch.  (If a lease with
 * guards is put without these, its place stays.)  Rows below are deleted some time
 * (clean.c).  So that the number grows, leases of the oldest rows are "carried": written
 * again, for those who will load the log.
 *
 * What the code above must ensure is in doc/model/append.pml, carry.pml, follow.pml; here
 * is what it comes to:
 *
 * 1. One thread at a time uses a connection; appends of a run go one after the other.
 * 2. A batch whose append was not LOG_APPENDED, LOG_FOUND, LOG_OTHERS or LOG_GONE is
 *	  appended again, as it is, until one of these is answered: its rows may still come.
 * 3. LOG_FOUND: the rows are visible, and durable only after one more append.
 * 4. After LOG_OTHERS or LOG_GONE the batch has not taken place and never will.  What it
 *	  did to the image is undone before log_follow() or log_load(), and carried entries
 *	  are made anew.
 * 5. A run draws a new writer number for each log_load().
 * 6. Entries are added in the order in which they were decided, and an entry that is
 *	  carried is the lease as it is at its place in this order.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LOG_H
#define DLOCK_LOG_H

#include <mysql.h>

#include "lease.h"

/*
 * Bytes of a row's header, and the most of its entries: a row is never longer than what
 * stays in its page.
 */
#define LOG_HEADER			37
#define LOG_ENTRIES_MOST	7000
#define LOG_ROW_MOST		(LOG_HEADER + LOG_ENTRIES_MOST)

/* The longest halves of an account, in bytes. */
#define LOG_USER_MOST		512
#define LOG_HOST_MOST		255

/* No entry is longer. */
#define LOG_ENTRY_MOST		1700

/* ----------------------------------------------------------------
 * Entries
 * ----------------------------------------------------------------
 */

typedef enum log_kind
{
	/*
	 * A lease, as it is from now on, whole: a new one, or a known one (of the same token)
	 * of which more has changed than its time.
	 */
	LOG_PUT = 1,

	/*
	 * The same of a lease that has not changed.  Whoever knows the token ignores it: it
	 * starts no clock.
	 */
	LOG_CARRY,

	LOG_RENEW,					/* the lease's time to live counts from now */

	/*
	 * The lease has ended.  If it has guards, it is "gone", and stays until the last of
	 * these has ended.
	 */
	LOG_END,

	/* A guard pins the lease.  Whoever knows the guard ignores it: these are carried, too. */
	LOG_GUARD,
	LOG_END_GUARD,

	/*
	 * The writer has taken over: the time to live of all leases counts from now.  (The
	 * counter, raised, is in the row's header.)
	 */
	LOG_TAKE_OVER
} log_kind;

#define LOG_KIND_FIRST	LOG_PUT
#define LOG_KIND_LAST	LOG_TAKE_OVER

typedef struct log_entry
{
	log_kind	kind;
	uint64_t	token;			/* of the lease; LOG_TAKE_OVER: 0 */

	/* LOG_PUT, LOG_CARRY, LOG_RENEW */
	int64_t		ttl_us;			/* as the last call set it: a take-over counts it
								 * anew */

	/* LOG_PUT, LOG_CARRY; LOG_RENEW: the ttl */
	int64_t		left_us;		/* of it, when the row was written; 0: it was over */

	/* LOG_GUARD, LOG_END_GUARD */
	uint64_t	guard;			/* the guard's number, drawn from the counter of
								 * tokens */
	/* LOG_GUARD: what it pins, see lease_merge_guard(); LOG_PUT, LOG_CARRY */
	lease_mode	mode;
	uint32_t	version;		/* holds or permits; at least 1 */

	/* LOG_PUT, LOG_CARRY */
	lease_kind	lifetime;		/* what ends it */
	bool		leaving;		/* it was given back with effect when its time is over */
	bool		repeated;		/* an acquire that repeated its request id was answered
								 * with it */
	bool		gone;			/* LOG_CARRY: it has ended, and its guards have not */
	lease_bytes name;
	lease_bytes owner;
	lease_bytes user;			/* the two halves of the account that took it */
	lease_bytes host;
	lease_bytes request;		/* id of the last acquire; empty: none */
	uint64_t	connection_id;	/* that took it */
	uint64_t	server;			/* LEASE_SESSION: a number of the server's life in which
								 * this connection is, the same for all its loads;
								 * else 0 */
	int64_t		acquired_us;	/* wall clock, since 1970 */

	/* set by log_add() and log_next() */
	size_t		bytes;			/* that it takes in its row */
} log_entry;

/* ----------------------------------------------------------------
 * Rows that are written
 * ----------------------------------------------------------------
 */

/* A row that is being made, and what is known of its last entries. */
typedef struct log_draft
{
	size_t		length;			/* with the header */
	uint64_t	token;			/* the last one: others are written as a difference */
	size_t		holder;			/* where the last owner and account are; 0: nowhere, */
	size_t		holder_length;	/* and how long they are */
	size_t		run;			/* where the count of a LOG_RENEW or LOG_END stands that
								 * can take one more token; 0: nowhere */
	uint32_t	run_count;
	log_kind	run_kind;
	int64_t		run_ttl_us;
} log_draft;

typedef struct log_slot
{
	log_draft	draft;
	unsigned char data[LOG_ROW_MOST];
} log_slot;

/*
 * Entries, in the order in which they were added, in as many rows as they take; the rows
 * take place together.  The memory is the caller's, who may move it and give more.  No
 * entry is in two rows.
 */
typedef struct log_batch
{
	log_slot   *slots;
	size_t		room;			/* how many there are, */
	size_t		count;			/* and are in use */
	size_t		row_most;		/* bytes of a row, if the server takes no statement
								 * that is so long; 0: LOG_ROW_MOST */
	int64_t		wall_us;		/* see log_begin() */
} log_batch;

/* The end of a batch at some time, to come back to. */
typedef struct log_mark
{
	size_t		count;
	log_draft	last;
} log_mark;

/* The last row that is known: rows are appended behind it, and read from it on. */
typedef struct log_position
{
	uint64_t	number;
	uint64_t	writer;
	uint64_t	from;			/* the log is complete from this number on, it says */
} log_position;

/* How long a row of a batch can be. */
static inline size_t
log_row_most(const log_batch *batch)
{
	return batch->row_most == 0 || batch->row_most > LOG_ROW_MOST ?
		LOG_ROW_MOST : batch->row_most;
}

/* encode.c */
extern void log_begin(log_batch *batch, int64_t wall_us);
extern bool log_add(log_batch *batch, log_entry *entry);
extern log_mark log_end_of(const log_batch *batch);
extern void log_cut(log_batch *batch, const log_mark *mark);
extern void log_seal(log_batch *batch, const log_position *position,
					 uint64_t me, uint64_t counter, uint64_t from);
extern size_t log_batch_bytes(const log_batch *batch);

/* ----------------------------------------------------------------
 * Rows that were read
 * ----------------------------------------------------------------
 */

typedef struct log_row
{
	uint64_t	number;
	uint64_t	writer;
	uint64_t	before;			/* the writer of the row before */
	uint64_t	counter;		/* no token was larger */
	uint64_t	from;			/* the log is complete from here on */
	int64_t		wall_us;		/* when it was begun; since 1970 */
	const unsigned char *entries;
	size_t		length;
} log_row;

/* An iterator over the entries of a row. */
typedef struct log_reader
{
	const log_row *row;
	size_t		at;
	uint64_t	token;
	uint32_t	run_count;		/* of a LOG_RENEW or LOG_END: tokens still to come, */
	log_kind	run_kind;
	int64_t		run_ttl_us;
	lease_bytes owner;			/* of the last lease */
	lease_bytes user;
	lease_bytes host;
} log_reader;

typedef enum log_read
{
	LOG_READ_ENTRY,
	LOG_READ_END,
	LOG_READ_DAMAGED
} log_read;

/* encode.c */
extern bool log_read_row(log_row *row, uint64_t number, uint64_t writer,
						 const void *data, size_t length);
extern log_reader log_read_entries(const log_row *row);
extern log_read log_next(log_reader *reader, log_entry *entry);

/* ----------------------------------------------------------------
 * The table
 * ----------------------------------------------------------------
 */

/*
 * A connection to the server, which the code above opens and closes: isolation READ
 * COMMITTED, autocommit, short timeouts for locks, and character_set_client latin1, in
 * which all bytes are characters: MySQL shows statements with their parameters to whoever
 * asks for the list of processes, and that query fails if it cannot convert them.
 *
 * (It is not connection.h of the engine of images: what an error means is of no interest
 * here, and that one logs in to no server but the one that has loaded it.  The "mysql" of
 * one that it has opened will do.)
 */
typedef struct log_connection
{
	MYSQL	   *mysql;
	MYSQL_STMT *append;			/* NULL: not prepared yet; see log_disconnected() */
	bool		in_transaction; /* one is under way: the next append ends it */
	unsigned int code;			/* the last error, for users and the log of the server; */
	char		sqlstate[6];
	char		error[512];		/* "": there was none */
} log_connection;

typedef enum log_result
{
	/* log_append() */
	LOG_APPENDED,				/* durable, as far as the server's settings go */
	LOG_FOUND,					/* the rows are there, of an earlier attempt: visible, not
								 * yet known to be durable */
	LOG_NOTHING,				/* nothing is there; log_connection has the error, or none:
								 * then the server is read-only */
	LOG_OTHERS,					/* another run's row is there */

	/* log_lock_guards() */
	LOG_GUARDED,				/* a transaction has locked one of these rows */

	/* log_follow(), log_load(), log_clean() */
	LOG_OK,
	LOG_HOLE,					/* a row is missing, and later ones are there */
	LOG_EMPTY,					/* the table has no row */

	/* all, but log_load() */
	LOG_GONE,					/* the row of the position is not there any more, or is
								 * not that row: load anew */

	/* all */
	LOG_LOST,					/* nobody knows: the tail could not be read;
								 * log_connection has the error */
	LOG_DAMAGED,				/* a row cannot be read; log_connection has its number */
	LOG_NO_MEMORY
} log_result;

/* What a visitor says of a row that it was given. */
typedef enum log_visit
{
	LOG_VISITED,
	LOG_VISIT_UNKNOWN,			/* LOG_RENEW, LOG_END, LOG_GUARD or LOG_END_GUARD of a
								 * token or guard that is not known: was passed over */
	LOG_VISIT_DAMAGED,			/* log_next() said so */
	LOG_VISIT_NO_MEMORY
} log_visit;

/*
 * Apply a row.  Its memory is gone afterwards.
 */
typedef log_visit (*log_visitor) (void *context, const log_row *row);

/* append.c */
extern log_result log_append(log_connection *c, const log_position *position,
							 uint64_t me, const log_batch *batch,
							 const lease_bytes *also, size_t nalso);
extern log_result log_lock_guards(log_connection *c, const char *numbers);
extern void log_passed(log_position *position, uint64_t me,
					   const log_batch *batch);
extern void log_disconnected(log_connection *c);

/* load.c */
extern log_result log_follow(log_connection *c, log_position *position,
							 log_visitor visit, void *context);
extern log_result log_load(log_connection *c, log_position *position,
						   uint64_t last, log_visitor visit, void *context);

/* ----------------------------------------------------------------
 * Cleaning
 * ----------------------------------------------------------------
 */

/* What was deleted, and what is to be. */
typedef struct log_cleaning
{
	uint64_t	first;			/* nothing is below; 0: not known */
	uint64_t	from;			/* the log was complete from here on, */
	int64_t		since_us;		/* at this time */
} log_cleaning;

/* clean.c */
extern size_t log_carry_most(uint64_t log_bytes, uint64_t live_bytes,
							 const log_batch *batch);
extern log_result log_clean(log_connection *c, log_cleaning *cleaning,
							const log_position *position, int64_t now_us);

#endif							/* DLOCK_LOG_H */
