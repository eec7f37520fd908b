/*
 * lease_journal.h
 *	  Leases that have no row of their own yet.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_JOURNAL_H
#define DLOCK_LEASE_JOURNAL_H

#include "lease_table.h"

typedef struct lease_journal lease_journal;

/* Called with the name and the row of a lease; they stay until the journal
 * changes. */
typedef void (*lease_journal_visitor) (lease_bytes name, const lease_row *row,
									   void *context);

/* lease_journal.c */
extern lease_journal *lease_journal_create(void);
extern bool lease_journal_has(const lease_journal *journal, lease_bytes name);
extern void lease_journal_add(lease_journal *journal, lease_bytes name,
							  const lease_row *row);
extern bool lease_journal_remove(lease_journal *journal, lease_bytes name);
extern void lease_journal_remove_all(lease_journal *journal);
extern void lease_journal_visit(const lease_journal *journal,
								lease_journal_visitor visit, void *context);
extern bool lease_journal_is_changed(const lease_journal *journal);
extern bool lease_journal_is_full(const lease_journal *journal);
extern int64_t lease_journal_due_us(const lease_journal *journal);
extern const char *lease_journal_encode(lease_journal *journal,
										size_t *length);
extern bool lease_journal_decode(const char *data, size_t length,
								 uint64_t writer,
								 lease_journal_visitor visit, void *context);
extern void lease_journal_keep(lease_journal *journal);
extern void lease_journal_undo(lease_journal *journal);
extern void lease_journal_clear(lease_journal *journal);

#endif							/* DLOCK_LEASE_JOURNAL_H */
