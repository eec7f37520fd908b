/*
 * lease_text.c
 *	  Text of statements.
 *
 * All values are written as numbers, as binary strings of harmless ASCII, or as
 * hexadecimal literals, which mean the same in every character set and SQL mode.
 *
 * When there is no memory, the text becomes a statement that is an error, until it is
 * made empty again: so the server raises it, and whoever sends it need not ask.  As a
 * part of another statement it is no SQL at all.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A statement that is an error. */
static char no_memory[] =
"SIGNAL SQLSTATE '53200' SET MESSAGE_TEXT = 'out of memory'";

/* Make room for so many bytes more, and an end mark. */
static bool
reserve(lease_text *t, size_t more)
{
	size_t		room = (t->length + more + 1) * 2;
	char	   *data;

	if (t->data == no_memory)
		return false;
	if (t->length + more + 1 <= t->room)
		return true;
	data = realloc(t->data, room);
	if (data == NULL)
	{
		free(t->data);
		*t = (lease_text) {no_memory, sizeof(no_memory) - 1, 0};
		return false;
	}
	t->data = data;
	t->room = room;
	return true;
}

/* Make it empty. */
void
lease_text_clear(lease_text *t)
{
	if (t->data == no_memory)
		*t = (lease_text) {0};
	t->length = 0;
	if (reserve(t, 0))
		t->data[0] = '\0';
}

/* Add what printf() would print. */
void
lease_text_add(lease_text *t, const char *format,...)
{
	va_list		arguments;
	int			length;

	if (!reserve(t, 200))
		return;
	va_start(arguments, format);
	length = vsnprintf(t->data + t->length, t->room - t->length, format,
					   arguments);
	va_end(arguments);
	if ((size_t) length >= t->room - t->length)
	{
		if (!reserve(t, (size_t) length))
			return;
		va_start(arguments, format);
		vsnprintf(t->data + t->length, t->room - t->length, format, arguments);
		va_end(arguments);
	}
	t->length += (size_t) length;
}

/*
 * Say whether bytes mean the same in quotes, whatever the server's settings, and
 * end no statement.
 */
static bool
is_plain(const char *data, size_t length)
{
	static const char others[] = "-_./:@# ";

	for (size_t i = 0; i < length; i++)
		if (!((data[i] >= 'a' && data[i] <= 'z') ||
			  (data[i] >= 'A' && data[i] <= 'Z') ||
			  (data[i] >= '0' && data[i] <= '9') ||
			  (data[i] != '\0' && strchr(others, data[i]) != NULL)))
			return false;
	return true;
}

/* Add bytes as a literal, in hexadecimal unless that is needless. */
void
lease_text_add_bytes(lease_text *t, const char *data, size_t length)
{
	static const char digits[] = "0123456789abcdef";

	if (!reserve(t, length * 2 + 10))
		return;
	if (is_plain(data, length))
	{
		t->length += (size_t) sprintf(t->data + t->length, "_binary'%.*s'",
									  (int) length, data);
		return;
	}
	t->data[t->length++] = 'x';
	t->data[t->length++] = '\'';
	for (size_t i = 0; i < length; i++)
	{
		t->data[t->length++] = digits[(unsigned char) data[i] >> 4];
		t->data[t->length++] = digits[(unsigned char) data[i] & 15];
	}
	t->data[t->length++] = '\'';
	t->data[t->length] = '\0';
}
