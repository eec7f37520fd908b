/*
 * lease_state.h
 *	  What shared memory holds for each database that uses dlock.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_STATE_H
#define DLOCK_LEASE_STATE_H

#include "compat.h"
#include "lease_page.h"
#include "lease_summary.h"
#include "nodes/pg_list.h"
#include "port/atomics.h"
#include "storage/latch.h"

/* How long to wait before a launcher or worker is started again, milliseconds. */
#define LEASE_RETRY_INTERVAL	5000

/* The counters of dlock.stats, in the order of its columns. */
typedef enum LeaseCounter
{
	LEASE_COUNT_ACQUIRED,
	LEASE_COUNT_REENTERED,
	LEASE_COUNT_REFUSED,
	LEASE_COUNT_TIMED_OUT,
	LEASE_COUNT_DEADLOCKS,
	LEASE_COUNT_RELEASED,
	LEASE_COUNT_RENEWED,
	LEASE_COUNT_RENEWALS_LOST,
	LEASE_COUNT_EXPIRED,
	LEASE_COUNT_REAPED,
	LEASE_COUNT_FORCED
} LeaseCounter;

#define LEASE_COUNTERS	(LEASE_COUNT_FORCED + 1)

/*
 * The histogram of waits: element i counts those that took less than 2^i times
 * 100 microseconds and that no earlier element counts; the last counts all
 * others.
 */
#define LEASE_WAIT_BUCKETS	24
#define LEASE_WAIT_UNIT_US	100

/*
 * One database.  lease_activate.c reads a table's state from its metapage, brings
 * it up to date and publishes it by setting "file".
 */
typedef struct LeaseDatabase
{
	/* under the lock of lease_state.c */
	Oid			database;		/* InvalidOid: unused */
	bool		dropped;		/* its extension was dropped: others may take the
								 * entry */
	int			worker_pid;		/* 0: none */
	bool		worker_wanted;	/* start one, if not right after another died */
	bool		worker_requested;	/* start one now */
	Latch	   *worker_latch;

	/* the bucket that the worker is at, 0 for none; only the worker writes */
	volatile BlockNumber reaped_block;

	/* the table's file that the fields below are for */
	volatile RelFileNumber file;
	pg_atomic_uint64 floor;		/* every new token is larger */
	pg_atomic_uint64 clock_offset_us;	/* int64: lease clock less boot clock */
	pg_atomic_uint64 clock_mark_us; /* int64: the mark on the metapage */

	/*
	 * What was true when this server first activated a table here: larger
	 * tokens are its own grants.  Set once, before "file".
	 */
	uint64		start_floor;
	int64		start_us;		/* lease clock */

	/*
	 * How many rows the table's file has in the buckets before held_cursor, in
	 * the order of lease_hash_position(): see lease_store_count_held().
	 * Changes in a bucket that has been counted update the count.
	 */
	pg_atomic_uint64 held;
	pg_atomic_uint64 held_cursor;

	LeaseSummaries summaries;	/* of its table */

	pg_atomic_uint64 stats_reset;	/* TimestampTz */
	pg_atomic_uint64 counters[LEASE_COUNTERS];
	pg_atomic_uint64 woken;		/* waiters woken by other processes */
	pg_atomic_uint64 waits[LEASE_WAIT_BUCKETS];
} LeaseDatabase;

extern int	lease_lock_delay;	/* dlock.lock_delay in milliseconds, as this
								 * process knows it: see lease_lock_delay_us() */

/* lease_state.c */
extern Size lease_state_size(void);
extern void lease_state_attach(char *start, bool make);
extern LeaseDatabase *lease_state_find(void);
extern LeaseDatabase *lease_state_database(void);
extern void lease_state_forget(Oid database);
extern void lease_state_drop(void);
extern void lease_state_tell_lock_delay(void);
extern int64 lease_lock_delay_us(void);
extern void lease_state_stats_reset(LeaseDatabase *db);
extern void lease_count_wait(LeaseDatabase *db, int64 waited_us);

/* workers */
extern bool lease_state_enter_worker(LeaseDatabase *db, Latch *latch);
extern void lease_state_leave_worker(LeaseDatabase *db, bool wanted);
extern bool lease_state_enter_launcher(Latch *latch);
extern void lease_state_leave_launcher(int code, Datum arg);
extern bool lease_state_lacks_launcher(void);
extern void lease_state_has_launcher(void);
extern bool lease_state_note_no_place(bool no_place);
extern void lease_state_want_worker(void);
extern void lease_state_wake_worker(Oid database);
extern List *lease_state_wanted_workers(bool again);
extern int	lease_state_worker_pid(Oid database);
extern List *lease_state_databases(void);

static inline void
lease_count(LeaseDatabase *db, LeaseCounter counter, uint64 n)
{
	if (n > 0)
		pg_atomic_fetch_add_u64(&db->counters[counter], n);
}

/*
 * Note that a bucket has got, or lost, so many rows.  The caller has it locked
 * exclusively, so that nobody counts it meanwhile.
 */
static inline void
lease_count_rows(LeaseDatabase *db, uint32 bucket, int64 n)
{
	if (n != 0 && lease_hash_position(bucket) <
		pg_atomic_read_u64(&db->held_cursor))
		pg_atomic_fetch_add_u64(&db->held, n);
}

#endif							/* DLOCK_LEASE_STATE_H */
