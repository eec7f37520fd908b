/*
 * lease_text.h
 *	  Text that grows: of statements, of the journal, of answers.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_TEXT_H
#define DLOCK_LEASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "lease.h"

/*
 * All zero is an empty text.  Additions make it grow, and a zero byte follows.  If
 * memory is short, the text has "failed", and takes nothing more.
 */
typedef struct lease_text
{
	char	   *data;			/* NULL: nothing was ever added */
	size_t		length;
	size_t		room;
	bool		failed;
} lease_text;

/* A list of texts, each of several items; all zero is an empty one. */
typedef struct lease_texts
{
	lease_text *texts;
	size_t		count;			/* in use; the others keep their memory */
	size_t		room;
} lease_texts;

/* The beginning of a text, what is between its items, and its end. */
typedef struct lease_frame
{
	const char *first;
	const char *between;
	const char *last;
} lease_frame;

/* lease_text.c */
extern void lease_text_free(lease_text *t);
extern void lease_text_add_list(lease_text *t, const char *format,
								va_list arguments)
			__attribute__((format(printf, 2, 0)));
extern void lease_text_add(lease_text *t, const char *format,...)
			__attribute__((format(printf, 2, 3)));
extern void lease_text_put(lease_text *t, const char *data, size_t length);
extern void lease_text_put_number(lease_text *t, int64_t number);
extern void lease_text_put_unsigned(lease_text *t, uint64_t number);
extern void lease_text_put_hex(lease_text *t, lease_bytes bytes);
extern void lease_text_add_hex(lease_text *t, const char *key,
							   lease_bytes bytes);
extern void lease_text_add_bytes(lease_text *t, lease_bytes bytes);
extern lease_text *lease_texts_next(lease_texts *list, const lease_frame *frame,
									size_t most);
extern bool lease_texts_end(lease_texts *list, const lease_frame *frame);

#endif							/* DLOCK_LEASE_TEXT_H */
