/*
 * journal.h
 *	  The text of the journal: the changes since the table was written.
 *
 * A row of dlock.journal is a JSON array of changes, in their order, each an array
 * of its own, so that SQL can read it (install.sql, view lease_state).  Strings are in
 * hexadecimal.
 *
 *	[1, name, slot, owner, user, host, mode, kind, version, token, request, ttl_us,
 *	 writes, deadline_us, connection_id, acquired_us, expires_us]
 *		the lease as it is from now on; one more element is the run that wrote it, if
 *		that is not the journal's writer
 *	[2, name, token]
 *		it has ended
 *	[3, owner, user, host, at_us, ttl_us, expires_us]
 *		all plain leases of an owner that the journal's writer had written, and that
 *		were not over at that time on its clock, were renewed
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_JOURNAL_H
#define DLOCK_JOURNAL_H

#include "lease_text.h"
#include "row.h"

typedef enum journal_kind
{
	JOURNAL_PUT = 1,
	JOURNAL_REMOVE,
	JOURNAL_RENEW_ALL
} journal_kind;

typedef struct journal_change
{
	journal_kind kind;
	lease_row	row;			/* by kind: all of it; name and token; or owner,
								 * user, host, writer, ttl_us and expires_us */
	int64_t		at_us;			/* JOURNAL_RENEW_ALL: when */
} journal_change;

/* The text to append: as many rows as statements can take. */
typedef struct journal_writer
{
	lease_texts rows;
	size_t		most;			/* bytes of a row, about */
	uint64_t	run;			/* that writes it */
	bool		failed;			/* memory was short */
} journal_writer;

/* The changes that were read, in their order, and the memory that they point to. */
typedef struct journal_changes
{
	journal_change *changes;
	size_t		count;
	size_t		room;
	char	  **buffers;
	size_t		nbuffers;
} journal_changes;

/* journal.c */
extern void journal_begin(journal_writer *writer, uint64_t run,
						  size_t max_packet);
extern void journal_put(journal_writer *writer, const lease_row *row);
extern void journal_remove(journal_writer *writer, lease_bytes name,
						   uint64_t token);
extern void journal_renew_all(journal_writer *writer, const lease_row *row,
							  int64_t at_us);
extern void journal_end(journal_writer *writer);
extern bool journal_is_empty(const journal_writer *writer);
extern size_t journal_bytes(const journal_writer *writer);

typedef enum journal_result
{
	JOURNAL_READ,
	JOURNAL_DAMAGED,
	JOURNAL_NO_MEMORY
} journal_result;

extern journal_result journal_read(journal_changes *changes, const char *data,
								   size_t length, uint64_t writer);
extern journal_result journal_read_old(journal_changes *changes,
									   const char *data, size_t length,
									   uint64_t writer);
extern void journal_skip(journal_changes *changes, size_t n);
extern void journal_drop_removals(journal_changes *changes, uint64_t but_of);
extern void journal_free(journal_changes *changes);

#endif							/* DLOCK_JOURNAL_H */
