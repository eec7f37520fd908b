/*
 * lease_engine.h
 *	  What the SQL functions ask of the engine.
 *
 * The functions (udf.c) check their arguments and find out the caller; the engine
 * (lease_engine.c) does the rest: it has the queue of calls, the waiters and the thread
 * that changes the lock table.  Any number of the server's threads may call what is here
 * at once.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_ENGINE_H
#define DLOCK_LEASE_ENGINE_H

#include "dlock_call.h"

/*
 * Make a call and wait for its answer: true, or false with an error in the
 * answer.  Gives up, with an error, soon after the caller's statement is killed
 * or its client is gone.
 */
extern bool dlock_engine_call(const dlock_call *call, dlock_answer *answer);

/*
 * The very next statement of the caller locks the row that DLOCK_CALL_BEGIN_GUARD has
 * answered: false if that answer is too old, so that the row may be gone.
 */
extern bool dlock_engine_extend_guard(uint64_t connection_id);

/* The caller's guard has ended in an error, and locks no row from now on. */
extern void dlock_engine_end_guard(uint64_t connection_id);

/*
 * The waiters and the counters, as JSON: an array of objects with the columns of
 * dlock.waiters, and an object with those of dlock.stats.  To be freed.  NULL with an
 * error in the answer.  Owner and connection of other accounts' waiters are masked,
 * unless the caller is NULL.
 */
extern char *dlock_engine_waiters(const dlock_caller *caller,
								  dlock_answer *answer);
extern char *dlock_engine_stats(dlock_answer *answer);

#ifdef DLOCK_LOG
/*
 * All leases, for the views: in how many pages they are, and one of that many pages, as a
 * JSON array of arrays, to be freed.  False or NULL with an error in the answer.
 */
extern bool dlock_engine_pages(size_t *pages, dlock_answer *answer);
extern char *dlock_engine_page(size_t page, size_t pages, dlock_answer *answer);
#else
/*
 * The leases of which holds were given back that may not be written yet, as JSON: an
 * array of arrays of a name, in hexadecimal, a token, and how many holds are left.  To be
 * freed; NULL with an error in the answer.
 */
extern char *dlock_engine_unwritten(dlock_answer *answer);
#endif

/* Begin to count anew. */
extern void dlock_engine_reset_stats(void);

/*
 * The longest time, to live or to wait, that a call may ask for: the setting
 * "max_ttl".  The first call of a run waits until the settings were read; if they
 * cannot be read, the default counts.
 */
extern int64_t dlock_engine_max_ttl_us(void);

/*
 * Wait until what was answered before has been written to the lock table.
 * False with an error in the answer.
 */
extern bool dlock_engine_settle(dlock_answer *answer);

/*
 * Something other than the library has changed its tables: read them again, and wait
 * until that is done.  False with an error in the answer.
 */
extern bool dlock_engine_reload(dlock_answer *answer);

/*
 * Wait until no call is being made, for some seconds at most, before the functions
 * are dropped.  False if a call is still being made.
 */
extern bool dlock_engine_drain(void);

#endif							/* DLOCK_LEASE_ENGINE_H */
