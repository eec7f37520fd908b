/*
 * table.h
 *	  The SQL: the lock table, its marks, and the journal.
 *
 * dlock.lease_table has the leases at rest: a row is a lease.  (name, slot) is the
 * key; the rows of a name use the smallest slots there are, and slot 0 exists
 * whenever any does, unless a transaction has locked all of them.  Where others may
 * write the table at the same time, every change of a name changes the row of slot 0,
 * or touches it.  So two servers of a cluster that change a name at the same time
 * write the same row, and one of them is refused when it commits.
 *
 * dlock.journal has the changes since, in rows that are numbered for each writer
 * (journal.h).  dlock.journal_head names the run that may append: an append locks it
 * FOR SHARE, and succeeds only if it names this run and no row is of another run.  Only
 * a take-over changes the head.  So a run does not go on with what it remembers after
 * another run has written.  doc/model/journal.pml is a model of this.
 *
 * dlock.lease_mark has a mark for each bucket of names: no token that was granted
 * in the bucket is above it, once the journal has been applied.
 *
 * Everything here belongs to the batcher (lease_server.h).
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_TABLE_H
#define DLOCK_TABLE_H

#include "connection.h"
#include "journal.h"
#include "row.h"

/* Rows that were read, ordered by name and slot. */
typedef struct table_rows
{
	lease_row  *rows;
	size_t		count;
	size_t		room;
	MYSQL_RES **results;		/* which the rows point to */
	size_t		nresults;
} table_rows;

/* The marks that were read. */
typedef struct table_marks
{
	bool		known[LEASE_BUCKETS];
	uint64_t	marks[LEASE_BUCKETS];
} table_marks;

/* What to do to rows. */
typedef enum table_change
{
	TABLE_DELETE,				/* the row of a name in a slot */
	TABLE_PUT,					/* insert or replace it */
	TABLE_INSERT,				/* insert it: a conflict if there is one */
	TABLE_TOUCH,				/* change a counter in the row of slot 0, so that a
								 * concurrent change conflicts */
	TABLE_MARK,					/* set a mark: fenced off if it has changed since
								 * it was read */
	TABLE_RAISE,				/* raise a mark */
	TABLE_CHANGES
} table_change;

/* Statements to be executed. */
typedef struct table_changes
{
	size_t		most;			/* bytes of a statement, about */
	lease_texts kinds[TABLE_CHANGES];	/* the statements of each */
	uint64_t	expected;		/* rows to be deleted and put; one that is replaced
								 * counts twice */
	bool		as_expected;	/* as many were: set by table_execute() */
	bool		failed;			/* memory was short */
} table_changes;

/* What a take-over has read. */
typedef struct table_state
{
	bool		has_leases;		/* dlock.lease_table is there */
	bool		has_journal;	/* install.sql has made the journal's tables */
	bool		has_rows;		/* dlock.journal is there, maybe without its head */
	bool		has_old_journal;	/* that of 1.0 is there, maybe empty */
	uint64_t	head;			/* the run that may append; 0: none */
	uint64_t	old_writer;		/* the run that has the journal of 1.0 */
	bool		is_own;			/* this run was the last to take over */
	uint64_t	last_mark;		/* the largest */
	table_marks marks;
	table_rows	rows;			/* of all names, if there are not too many */
	bool		is_complete;
	journal_changes changes;
} table_state;

/* table.c: reading */
extern lease_status table_catch_up(connection *c);
extern lease_status table_read(connection *c, const lease_bytes *names,
							   size_t n, bool lock, table_rows *rows);
extern lease_status table_probe(connection *c, const lease_bytes *names,
								size_t n, size_t expected, table_rows *rows);
extern lease_status table_read_locks(connection *c, const lease_bytes *names,
									 size_t n, table_rows *rows);
extern lease_status table_read_marks(connection *c, const lease_bytes *names,
									 size_t n, bool has_journal,
									 uint64_t raiser, table_marks *marks);
extern lease_status table_read_journals(connection *c,
										journal_changes *changes);
extern lease_status table_read_state(connection *c, uint64_t writer,
									 size_t most_rows, table_state *state);
extern void table_free_state(table_state *state);
extern void table_free_rows(table_rows *rows);

/* Gets the name of a row.  The engine's mutex is not held. */
typedef void (*table_name_visitor) (lease_bytes name, void *context);

extern lease_status table_visit_names(connection *c,
									  table_name_visitor visit,
									  void *context);
extern lease_status table_read_owner(connection *c, lease_bytes owner,
									 lease_bytes user, lease_bytes host,
									 table_rows *rows);
extern size_t table_find_rows(const table_rows *rows, lease_bytes name,
							  size_t *count);
extern lease_status table_read_due(connection *c, uint64_t writer,
								   int64_t due_us, size_t limit,
								   table_rows *rows);
extern lease_status table_read_foreign(connection *c, uint64_t writer,
									   lease_bytes after_name,
									   uint32_t after_slot, size_t limit,
									   table_rows *rows);

/* Gets the name and the value of a setting.  The engine's mutex is not held. */
typedef void (*table_setting_visitor) (const char *name, const char *value);

extern lease_status table_visit_settings(connection *c,
										 table_setting_visitor visit);
extern lease_status table_look(connection *c, uint64_t writer,
							   bool *has_journal);

/* table.c: writing */
extern void table_begin(table_changes *changes, size_t most);
extern void table_delete(table_changes *changes, lease_bytes name,
						 uint32_t slot);
extern void table_put(table_changes *changes, const lease_row *row,
					  bool replaces);
extern void table_insert(table_changes *changes, const lease_row *row);
extern void table_touch(table_changes *changes, lease_bytes name);
extern void table_set_mark(table_changes *changes, uint32_t bucket,
						   uint64_t from, uint64_t to);
extern void table_raise_mark(table_changes *changes, uint32_t bucket,
							 uint64_t to);
extern bool table_is_empty(const table_changes *changes);
extern lease_status table_execute(connection *c, table_changes *changes);
extern lease_status table_append(connection *c, uint64_t writer,
								 uint64_t number,
								 const journal_writer *journal);
extern lease_status table_check_head(connection *c, uint64_t writer);
extern lease_status table_delete_journal(connection *c, uint64_t writer,
										 uint64_t up_to, uint64_t rows,
										 bool *as_expected);
extern lease_status table_take(connection *c, uint64_t writer,
							   const table_state *state, uint64_t floor,
							   uint64_t first_number,
							   const journal_writer *carried);

#endif							/* DLOCK_TABLE_H */
