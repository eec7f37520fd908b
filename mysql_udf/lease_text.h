/*
 * lease_text.h
 *	  Text of statements.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_TEXT_H
#define DLOCK_LEASE_TEXT_H

#include <stddef.h>

/* Grows as needed; a zero byte follows.  All zero is one that needs clearing. */
typedef struct lease_text
{
	char	   *data;
	size_t		length;
	size_t		room;
} lease_text;

/* lease_text.c */
extern void lease_text_clear(lease_text *t);
extern void lease_text_add(lease_text *t, const char *format,...)
			__attribute__((format(printf, 2, 3)));
extern void lease_text_add_bytes(lease_text *t, const char *data,
								 size_t length);

#endif							/* DLOCK_LEASE_TEXT_H */
