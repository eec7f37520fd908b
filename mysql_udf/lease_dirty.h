/*
 * lease_dirty.h
 *	  The names that differ from the table, and how they are written.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_DIRTY_H
#define DLOCK_LEASE_DIRTY_H

#include "table.h"

/* lease_dirty.c */
extern lease_bytes *lease_dirty_names(size_t ndirty, size_t *n, size_t *nrows);
extern lease_status lease_dirty_locks(const lease_bytes *names, size_t n,
									  const table_rows *rows, bool takes);
extern void lease_dirty_write(size_t ndirty, bool marks, table_changes *changes,
							  journal_writer *carried);
extern bool lease_dirty_written(size_t ndirty, const journal_writer *carried);

#endif							/* DLOCK_LEASE_DIRTY_H */
