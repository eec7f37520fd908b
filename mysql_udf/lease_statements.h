/*
 * lease_statements.h
 *	  The statements that most calls need, prepared once for a connection.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_STATEMENTS_H
#define DLOCK_LEASE_STATEMENTS_H

#include <mysql.h>

#include "lease_table.h"

/* Most rows of an INSERT, of which there is one for each number. */
#define LEASE_INSERT_ROWS	16

/* Most names of a DELETE. */
#define LEASE_DELETE_NAMES	128

/* A row to be inserted.  What it points to must stay until it is. */
typedef struct lease_new_row
{
	lease_bytes name;
	const lease_row *row;
} lease_new_row;

typedef struct lease_statements lease_statements;

extern lease_statements *lease_statements_create(MYSQL *connection,
												 uint64_t writer);
extern void lease_statements_free(lease_statements *statements);
extern bool lease_statements_insert(lease_statements *statements,
									const lease_new_row *rows, size_t n,
									bool alone);
extern bool lease_statements_delete(lease_statements *statements,
									const lease_bytes *names, size_t n,
									uint64_t *deleted);
extern bool lease_statements_journal(lease_statements *statements,
									 uint64_t from, const char *leases,
									 size_t length, bool *written);

#endif							/* DLOCK_LEASE_STATEMENTS_H */
