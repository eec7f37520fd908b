/*
 * text.h
 *	  Text that grows, and tables of text, the form of answers.
 *
 * An object remembers that memory ran out, and the caller asks once, at the
 * end: then the text, or the table, must not be used.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_CLIENT_TEXT_H
#define DLOCK_CLIENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "dlock.h"

typedef struct dlock_text
{
	char	   *data;			/* ends with a NUL; NULL if nothing was added */
	size_t		length;
	size_t		room;
	bool		failed;			/* out of memory */
} dlock_text;

extern void dlock_text_add(dlock_text *text, const char *string);
extern void dlock_text_bytes(dlock_text *text, const char *bytes, size_t length);
extern void dlock_text_format(dlock_text *text, const char *format,...)
			__attribute__((format(printf, 2, 3)));
/* Microseconds as seconds, with six digits behind the point. */
extern void dlock_text_duration(dlock_text *text, int64_t us);
extern void dlock_text_clear(dlock_text *text);
extern void dlock_text_free(dlock_text *text);

/* Say whether a string is valid UTF-8. */
extern bool dlock_is_utf8(const char *string);

/* Rows and columns of text, filled row by row. */
typedef struct dlock_table
{
	char	  **names;			/* of the columns */
	char	  **values;			/* NULL is NULL */
	size_t		ncolumns;
	size_t		nvalues;
	size_t		room;
	bool		failed;			/* out of memory */
} dlock_table;

/* Columns are added before the first value; a NULL name is "". */
extern void dlock_table_column(dlock_table *table, const char *name);
extern void dlock_table_value(dlock_table *table, const char *bytes,
							  size_t length);
extern void dlock_table_null(dlock_table *table);
extern void dlock_table_free(dlock_table *table);

/* A list as the servers read it: a PostgreSQL array, or JSON. */
extern void dlock_text_list(dlock_text *text, dlock_engine engine,
							const dlock_arg *list);

/*
 * Make a table of a list that a server has answered: of one column, or, if it is a
 * list of JSON objects, of one for each key of the first.  Returns false if the
 * text is no such list.
 */
extern bool dlock_table_from_array(dlock_table *table, const char *array);
extern bool dlock_table_from_json(dlock_table *table, const char *json);

#endif							/* DLOCK_CLIENT_TEXT_H */
