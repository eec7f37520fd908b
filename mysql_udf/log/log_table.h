/*
 * log_table.h
 *	  What the files of this room have in common.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LOG_TABLE_H
#define DLOCK_LOG_TABLE_H

#include "log.h"

#define LOG_SELECT		"SELECT number, writer, entries FROM dlock.log "

/*
 * A read-only server still lets some accounts write, the library's own among them on a
 * stock MariaDB.  The value is a number or text.
 */
#define LOG_IS_WRITABLE	"CONCAT(@@GLOBAL.read_only) IN ('0', 'OFF')"

/* A row as the server has it, in the memory of an answer. */
typedef struct log_raw
{
	uint64_t	number;
	uint64_t	writer;
	const char *data;			/* NULL: there is nothing */
	size_t		length;
} log_raw;

/* Say whether a row is that of a position. */
static inline bool
log_is_at(const log_raw *raw, const log_position *position)
{
	return raw->number == position->number && raw->writer == position->writer;
}

/* encode.c */
extern uint64_t log_from_of(const log_slot *slot);

/* append.c */
extern log_result log_damaged(log_connection *c, uint64_t number);
extern bool log_execute(log_connection *c, const char *statement, size_t length);
extern MYSQL_RES *log_query(log_connection *c, const char *query, bool streamed);
extern bool log_fetch(MYSQL_RES *result, log_raw *raw);
extern void log_note_failed(log_connection *c);
extern void log_rollback(log_connection *c);

#define LOG_EXECUTE(c, text)	log_execute(c, text, sizeof(text) - 1)

#endif							/* DLOCK_LOG_TABLE_H */
