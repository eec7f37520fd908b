/*
 * lease_table.h
 *	  The InnoDB lock table, over a loopback connection.
 *
 * Everything here belongs to the batcher (lease_batcher.h), but for
 * lease_table_interrupt().  A transaction reads the rows of some names, then writes
 * and commits, or gives up.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_TABLE_H
#define DLOCK_LEASE_TABLE_H

#include "lease.h"
#include "lease_engine.h"

/* Seconds until a server that does not answer counts as gone. */
#define LEASE_TABLE_TIMEOUT	30

/* How many marks there are; which counts for a name: lease_table_bucket(). */
#define LEASE_BUCKETS		256

/* The columns of a row, in the order in which they are read and written. */
#define LEASE_ROW_COLUMNS \
	"name, slot, owner, account_user, account_host, mode, kind, version, " \
	"token, request, ttl_us, writes, writer, deadline_us, connection_id, " \
	"acquired_us, expires_us"

/* One row: a holder of a name. */
typedef struct lease_row
{
	uint32_t	slot;			/* 0 changes, or is touched, with any other */
	uint8_t		owner_length;
	uint8_t		request_length;
	char		owner[LEASE_STRING_MAX];
	char		request[LEASE_STRING_MAX];
	char		user[DLOCK_USER_SIZE];
	char		host[DLOCK_HOST_SIZE];
	lease_mode	mode;
	lease_kind	kind;
	uint32_t	version;
	uint64_t	token;
	int64_t		ttl_us;			/* left when it was written */
	uint64_t	writes;			/* grows with every change of the above */
	uint64_t	writer;			/* the run of a server that wrote it */
	int64_t		deadline_us;	/* on that run's clock */
	uint64_t	connection_id;
	int64_t		acquired_us;	/* since 1970, to be shown */
	int64_t		expires_us;
	bool		locked;			/* some other transaction has locked it */
} lease_row;

typedef struct lease_rows
{
	lease_row  *rows;
	size_t		count;
	size_t		room;
} lease_rows;

/* How an attempt ended. */
typedef enum lease_status
{
	LEASE_STATUS_OK,
	LEASE_STATUS_CONFLICT,		/* rolled back: somebody else was faster, or
								 * holds a lock; try again */
	LEASE_STATUS_EARLY,			/* nothing can be granted before the clock has
								 * come on, see lease_take_over() */
	LEASE_STATUS_LOST,			/* the connection or the transaction is gone, and
								 * nobody knows whether it was committed */
	LEASE_STATUS_FAILED			/* rolled back: the table's error says why */
} lease_status;

typedef struct lease_table lease_table;

/* What to do to the rows of one name. */
typedef enum lease_write_kind
{
	LEASE_WRITE_PUT,			/* insert or replace the row of this slot */
	LEASE_WRITE_GRANT,			/* insert it, or put it into the journal: a
								 * conflict if there is one */
	LEASE_WRITE_INSERT,			/* insert it: a conflict if there is one */
	LEASE_WRITE_DELETE,			/* delete it */
	LEASE_WRITE_DELETE_OWN,		/* delete the one of slot 0, if it is still one
								 * that this run has written, or remove it from
								 * the journal */
	LEASE_WRITE_TOUCH			/* change nothing that counts, so that a
								 * concurrent change of the name conflicts */
} lease_write_kind;

/* lease_table.c */
extern lease_table *lease_table_create(uint64_t writer);
extern lease_status lease_table_connect(lease_table *table);
extern void lease_table_disconnect(lease_table *table);
extern bool lease_table_can_be_interrupted(const lease_table *table);
extern void lease_table_interrupt(const lease_table *table);
extern bool lease_table_is_connected(const lease_table *table);
extern bool lease_table_is_alone(const lease_table *table);
extern bool lease_table_is_read_only(const lease_table *table);
extern const char *lease_table_error(const lease_table *table,
									 const char **sqlstate);
extern bool lease_table_marks_differ(const lease_table *table);
extern lease_status lease_table_look(lease_table *table, bool *read_only,
									 bool *clustered);

extern void lease_table_rollback(lease_table *table);

/*
 * Visit the ids of all connections.  Fails if the account may not see them.
 */
typedef void (*lease_connection_visitor) (uint64_t connection_id,
										  void *context);

extern lease_status lease_table_visit_connections(lease_table *table,
												  lease_connection_visitor visit,
												  void *context);

/* Called with the name and the value of a setting. */
typedef void (*lease_setting_visitor) (const char *name, const char *value,
									   void *context);

extern lease_status lease_table_visit_settings(lease_table *table,
											   lease_setting_visitor visitor,
											   void *context);

/* lease_rows.c */
extern void lease_rows_add(lease_rows *rows, const lease_row *row);
extern uint32_t lease_table_bucket(lease_bytes name);
extern uint64_t lease_hash(lease_bytes bytes, uint64_t number);

/*
 * Read the rows of names, which become rows[0..n-1] in the order of the slots,
 * in a transaction that goes on, and with "marks" the marks of their buckets.
 * With "move", all that the journal has is moved into the lock table first, and
 * has been if the transaction is committed.  Without, or without "lock", the
 * rows can only be looked at; those that are in the journal are among them.
 */
extern lease_status lease_table_read(lease_table *table,
									 const lease_bytes *names, size_t n,
									 lease_rows *rows, uint64_t *marks,
									 bool lock, bool move);

/* Called with the name of a row, and the row; which columns are set is said
 * where it is used. */
typedef void (*lease_row_visitor) (lease_bytes name, const lease_row *row,
								   void *context);

extern lease_status lease_table_visit_owner(lease_table *table,
											lease_bytes owner,
											const dlock_caller *caller,
											lease_row_visitor visit,
											void *context);
extern lease_status lease_table_visit_due(lease_table *table, int64_t due_us,
										  size_t limit,
										  lease_row_visitor visit,
										  void *context);
extern lease_status lease_table_visit_foreign(lease_table *table,
											  lease_bytes after_name,
											  uint32_t after_slot,
											  size_t limit,
											  lease_row_visitor visit,
											  void *context);
/* lease_write.c */
extern void *lease_grow(void *array, size_t *room, size_t size);

/*
 * Collect what to write, then write it and commit.  Names and rows must stay
 * until then.
 */
extern void lease_table_write(lease_table *table, lease_write_kind kind,
							  lease_bytes name, const lease_row *row);
extern void lease_table_advance_mark(lease_table *table, uint32_t bucket,
									 uint64_t from, uint64_t mark);
extern lease_status lease_table_commit(lease_table *table, bool *missed);

/* lease_takeover.c: the journal */
extern bool lease_table_has_moved(const lease_table *table);
extern lease_status lease_table_take_over(lease_table *table,
										  bool others);
extern lease_status lease_table_raise_marks(lease_table *table,
											int64_t wall_us,
											lease_takeover *takeover);
extern bool lease_table_knows_journal(const lease_table *table);
extern bool lease_table_is_journaled(const lease_table *table,
									 lease_bytes name);
extern bool lease_table_is_settled(const lease_table *table);
extern void lease_table_forget_journal(lease_table *table);
extern int64_t lease_table_journal_due_us(const lease_table *table);
extern lease_status lease_table_settle(lease_table *table);
extern lease_status lease_table_find_journal(lease_table *table, bool *any);

#endif							/* DLOCK_LEASE_TABLE_H */
