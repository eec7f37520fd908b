/*
 * lease_text.c
 *	  Text that grows: of statements, of the journal, of answers.
 *
 * Statements have values as numbers, as binary strings of harmless ASCII, or as
 * hexadecimal literals.  These mean the same in every character set and SQL mode.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"

/* Make room for more, and a zero byte: false if memory is short. */
static bool
reserve(lease_text *t, size_t more)
{
	if (!t->failed)
		t->failed = !array_reserve(&t->data, &t->room, t->length + more + 1, 1);
	return !t->failed;
}

void
lease_text_free(lease_text *t)
{
	free(t->data);
	*t = (lease_text) {0};
}

/* Add what vprintf() would print. */
void
lease_text_add_list(lease_text *t, const char *format, va_list arguments)
{
	va_list		again;
	int			length;

	va_copy(again, arguments);
	length = vsnprintf(NULL, 0, format, again);
	va_end(again);
	if (length < 0 || !reserve(t, (size_t) length))
		return;
	vsnprintf(t->data + t->length, (size_t) length + 1, format, arguments);
	t->length += (size_t) length;
}

/* Add what printf() would print. */
void
lease_text_add(lease_text *t, const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	lease_text_add_list(t, format, arguments);
	va_end(arguments);
}

/* Add bytes as they are. */
void
lease_text_put(lease_text *t, const char *data, size_t length)
{
	if (!reserve(t, length))
		return;
	if (length > 0)
		memcpy(t->data + t->length, data, length);
	t->length += length;
	t->data[t->length] = '\0';
}

void
lease_text_put_unsigned(lease_text *t, uint64_t number)
{
	char		digits[20];
	size_t		n = sizeof(digits);

	do
		digits[--n] = (char) ('0' + number % 10);
	while ((number /= 10) > 0);
	lease_text_put(t, digits + n, sizeof(digits) - n);
}

void
lease_text_put_number(lease_text *t, int64_t number)
{
	if (number < 0)
		lease_text_put(t, "-", 1);
	lease_text_put_unsigned(t, number < 0 ? 0 - (uint64_t) number :
							(uint64_t) number);
}

/* Add bytes in hexadecimal. */
void
lease_text_put_hex(lease_text *t, lease_bytes bytes)
{
	static const char digits[] = "0123456789abcdef";

	if (!reserve(t, bytes.length * 2))
		return;
	for (size_t i = 0; i < bytes.length; i++)
	{
		t->data[t->length++] = digits[(unsigned char) bytes.data[i] >> 4];
		t->data[t->length++] = digits[(unsigned char) bytes.data[i] & 15];
	}
	t->data[t->length] = '\0';
}

/* Add a member of a JSON object, and a comma: bytes in hexadecimal. */
void
lease_text_add_hex(lease_text *t, const char *key, lease_bytes bytes)
{
	lease_text_add(t, "\"%s\": \"", key);
	lease_text_put_hex(t, bytes);
	lease_text_add(t, "\", ");
}

/*
 * Say whether bytes mean the same in quotes, whatever the server's settings, and
 * end no statement.
 */
static bool
is_plain(lease_bytes bytes)
{
	static const char others[] = "-_./:@# ";

	for (size_t i = 0; i < bytes.length; i++)
	{
		char		c = bytes.data[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
			  (c >= '0' && c <= '9') ||
			  (c != '\0' && strchr(others, c) != NULL)))
			return false;
	}
	return true;
}

/* Add bytes as a literal of a statement, in hexadecimal if they are not plain. */
void
lease_text_add_bytes(lease_text *t, lease_bytes bytes)
{
	if (is_plain(bytes))
	{
		lease_text_put(t, "_binary'", 8);
		lease_text_put(t, bytes.data, bytes.length);
	}
	else
	{
		lease_text_put(t, "x'", 2);
		lease_text_put_hex(t, bytes);
	}
	lease_text_put(t, "'", 1);
}

static void
put(lease_text *t, const char *part)
{
	lease_text_put(t, part, strlen(part));
}

/* The last text of a list that is not empty. */
static lease_text *
last_of(const lease_texts *list)
{
	return &list->texts[list->count - 1];
}

/*
 * The text that takes one more item: the last of a list, or a new one if that has "most"
 * bytes or more.  If memory is short, a text that has failed.
 */
lease_text *
lease_texts_next(lease_texts *list, const lease_frame *frame, size_t most)
{
	static lease_text none = {.failed = true};
	size_t		room = list->room;
	lease_text *text;

	if (list->count > 0 && last_of(list)->length < most)
	{
		put(last_of(list), frame->between);
		return last_of(list);
	}
	if (list->count > 0)
		put(last_of(list), frame->last);
	if (!array_reserve(&list->texts, &list->room, list->count + 1, sizeof(lease_text)))
		return &none;
	memset(&list->texts[room], 0, (list->room - room) * sizeof(lease_text));
	text = &list->texts[list->count++];
	text->length = 0;
	text->failed = false;
	put(text, frame->first);
	return text;
}

/* End the last text, if there is one: false if any has failed. */
bool
lease_texts_end(lease_texts *list, const lease_frame *frame)
{
	bool		failed = false;

	if (list->count > 0)
		put(last_of(list), frame->last);
	for (size_t i = 0; i < list->count; i++)
		failed |= list->texts[i].failed;
	return !failed;
}
