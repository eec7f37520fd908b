/*
 * table.h
 *	  What the inspecting subcommands print: tables for people, JSON for programs.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_TABLE_H
#define DLOCK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Say whether text is UTF-8 from one end to the other. */
extern bool is_utf8(const char *text, size_t length);

/* A column.  Without a key it is for people only, without a title for programs. */
struct column
{
	const char *key;			/* member of the JSON object */
	const char *title;			/* heading for people */
	bool		right;			/* is aligned to the right */
};

struct table;

/*
 * Make a table with these columns.  The list ends with one that has neither key
 * nor title, and outlives the table.
 */
extern struct table *table_create(const struct column *columns);
extern void table_free(struct table *table);

/*
 * Add the next cell; a row is complete when each of its columns has one.  Text
 * is copied; NULL is no text.
 */
extern void add_text(struct table *table, const char *text, size_t length);
extern void add_string(struct table *table, const char *text);
extern void add_number(struct table *table, int64_t number);
extern void add_seconds(struct table *table, double seconds);
extern void add_boolean(struct table *table, bool boolean);
extern void add_null(struct table *table);

/* Add text that is JSON already. */
extern void add_json(struct table *table, const char *json);

/* Print a line of headings and one for each row. */
extern void print_table(const struct table *table, FILE *out);

/*
 * Print an array with an object for each row. pass_json() prints the rows so
 * far, and forgets them, so that there may be very many; end_json() prints the
 * rest.
 */
extern void pass_json(struct table *table, FILE *out);
extern void end_json(struct table *table, FILE *out);

/* Print the object of the first row alone. */
extern void print_json_object(const struct table *table, FILE *out);

/*
 * Print text in a form that is safe for a terminal.  Some become \xNN for each
 * byte: control characters, characters that are invisible or turn the direction
 * of writing, characters that the terminal's character set lacks, and bytes
 * that are not UTF-8.  A backslash becomes two.  Returns how many columns it
 * takes.
 */
extern size_t print_safe(const char *text, size_t length, FILE *out);

/* The same in memory of its own, to be freed; *width may be NULL. */
extern char *safe_text(const char *text, size_t length, size_t *width);

/* How many columns the beginning of a safe text takes. */
extern size_t safe_width(const char *safe, size_t length);

/* The length of the longest beginning of a safe text that has "width" columns. */
extern size_t cut_safe(const char *safe, size_t width);

#define SHORT_TIME_SIZE		24

/* Write a time for people: 4.2s, 3m10s, 2h05m, 3d04h. */
extern const char *short_time(double seconds, char buffer[SHORT_TIME_SIZE]);

/* Get memory, or print an error and end the program. */
extern void *get_memory(size_t size);

#endif							/* DLOCK_TABLE_H */
