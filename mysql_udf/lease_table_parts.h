/*
 * lease_table_parts.h
 *	  What the parts of the lock table share.
 *
 * lease_table.c has the connection and what its errors mean, lease_rows.c reads,
 * lease_write.c writes and commits, lease_takeover.c deals with the journal.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_TABLE_PARTS_H
#define DLOCK_LEASE_TABLE_PARTS_H

#include "lease_journal.h"
#include "lease_statements.h"
#include "lease_text.h"

#define SELECT_JOURNAL \
	"SELECT changes, writer, leases FROM dlock.lease_journal WHERE place = 0"

struct lease_table
{
	uint64_t	writer;
	MYSQL	   *connection;
	int			wire;			/* the socket of the last one, another
								 * descriptor; -1: none */
	unsigned long lost_id;		/* a connection that was lost in a statement,
								 * which may go on; 0: none */
	lease_statements *statements;
	bool		in_transaction;
	bool		in_galera;		/* the server is a node of a Galera cluster */
	bool		alone;			/* nobody else can write the table */
	bool		marks_differ;	/* why the last statement failed */
	bool		read_only;		/* the server is not to be written */
	char		sqlstate[6];
	char		error[512];
	lease_text	query;
	lease_text	puts;			/* rows of an INSERT that replaces */
	lease_new_row *inserts;		/* for one that does not */
	size_t		ninserts;
	size_t		inserts_room;
	size_t		ninserted;		/* of these, in this transaction */
	lease_text	deletes;		/* statements; a condition with OR would be
								 * looked up in all rows */
	lease_bytes *owns;			/* names of another, of rows of this run */
	size_t		nowns;
	size_t		owns_room;
	lease_text	touches;		/* conditions of an UPDATE */
	lease_text	advances;		/* cases of an UPDATE, which sets NULL and so
								 * fails where a mark is another than was
								 * believed */
	lease_text	advanced;		/* the buckets concerned */
	lease_bytes *removed;		/* names whose rows "deletes" has */
	size_t		nremoved;
	size_t		removed_room;
	bool		duplicate;		/* an insert of what the journal has */
	lease_journal *journal;
	uint64_t	changes;		/* the number of what it has */
	bool		knows_journal;	/* it is what this run has written last */
	bool		moves_journal;	/* this transaction moves what it has */
	bool		sends_journal;	/* another was sent in this transaction */
};

/* lease_table.c */
extern lease_status lease_table_failed(lease_table *table);
extern lease_status lease_table_fail_for_change(lease_table *table);
extern lease_status lease_table_give_up(lease_table *table,
										lease_status status,
										const char *sqlstate,
										const char *message);
extern lease_status lease_table_refuse(lease_table *table);
extern lease_status lease_table_refuse_if_read_only(lease_table *table);
extern lease_status lease_table_execute(lease_table *table, const char *query,
										size_t length);
extern lease_status lease_table_execute_all(lease_table *table,
											const lease_text *query);
extern lease_status lease_table_begin(lease_table *table);

/* lease_rows.c */
extern lease_status lease_table_fetch_journal(lease_table *table,
											  uint64_t *changes,
											  uint64_t *writer,
											  lease_journal_visitor visit,
											  void *context);

/* lease_write.c */
extern void lease_table_move_journal(lease_table *table);
extern lease_status lease_table_write_new(lease_table *table);
extern lease_status lease_table_write_changes(lease_table *table);
extern void lease_table_forget_changes(lease_table *table);

#endif							/* DLOCK_LEASE_TABLE_PARTS_H */
