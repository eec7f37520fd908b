/*
 * text.c
 *	  Text that grows, and tables of text.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Make room for so many bytes more, and a NUL. */
static bool
make_room(dlock_text *text, size_t more)
{
	size_t		room = text->room == 0 ? 64 : text->room;
	char	   *data;

	if (text->failed || more > (size_t) -1 / 4 - text->length)
	{
		text->failed = true;
		return false;
	}
	while (room < text->length + more + 1)
		room *= 2;
	if (room == text->room)
		return true;
	data = realloc(text->data, room);
	if (data == NULL)
	{
		text->failed = true;
		return false;
	}
	text->data = data;
	text->room = room;
	return true;
}

void
dlock_text_bytes(dlock_text *text, const char *bytes, size_t length)
{
	if (!make_room(text, length))
		return;
	if (length > 0)
		memcpy(text->data + text->length, bytes, length);
	text->length += length;
	text->data[text->length] = '\0';
}

void
dlock_text_add(dlock_text *text, const char *string)
{
	dlock_text_bytes(text, string, strlen(string));
}

void
dlock_text_format(dlock_text *text, const char *format,...)
{
	va_list		arguments;
	int			length;

	va_start(arguments, format);
	length = vsnprintf(NULL, 0, format, arguments);
	va_end(arguments);
	if (length < 0 || !make_room(text, (size_t) length))
	{
		text->failed = true;
		return;
	}
	va_start(arguments, format);
	vsnprintf(text->data + text->length, (size_t) length + 1, format, arguments);
	va_end(arguments);
	text->length += (size_t) length;
}

void
dlock_text_duration(dlock_text *text, int64_t us)
{
	/* the smallest has no positive counterpart */
	uint64_t	size = us < 0 ? 0 - (uint64_t) us : (uint64_t) us;

	dlock_text_format(text, "%s%" PRIu64 ".%06" PRIu64, us < 0 ? "-" : "",
					  size / 1000000, size % 1000000);
}

/* Make it empty, and forget that memory ran out. */
void
dlock_text_clear(dlock_text *text)
{
	text->length = 0;
	text->failed = false;
	if (text->data != NULL)
		text->data[0] = '\0';
}

void
dlock_text_free(dlock_text *text)
{
	free(text->data);
	*text = (dlock_text) {0};
}

bool
dlock_is_utf8(const char *string)
{
	const unsigned char *c = (const unsigned char *) string;

	while (*c != '\0')
	{
		int			length = *c < 0x80 ? 1 : *c < 0xc2 ? 0 : *c < 0xe0 ? 2 :
			*c < 0xf0 ? 3 : *c < 0xf5 ? 4 : 0;

		/* the first two bytes tell longer forms, surrogates, and what is too large */
		if (length == 0 ||
			(c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] >= 0xa0) ||
			(c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] >= 0x90))
			return false;
		for (int i = 1; i < length; i++)
			if ((c[i] & 0xc0) != 0x80)
				return false;
		c += length;
	}
	return true;
}

static char *
copy(const char *bytes, size_t length)
{
	char	   *result = malloc(length + 1);

	if (result == NULL)
		return NULL;
	if (length > 0)
		memcpy(result, bytes, length);
	result[length] = '\0';
	return result;
}

void
dlock_table_column(dlock_table *table, const char *name)
{
	char	  **names = realloc(table->names,
								(table->ncolumns + 1) * sizeof(*names));

	if (names == NULL)
	{
		table->failed = true;
		return;
	}
	table->names = names;
	names[table->ncolumns] = copy(name != NULL ? name : "",
								  name != NULL ? strlen(name) : 0);
	if (names[table->ncolumns] == NULL)
		table->failed = true;
	else
		table->ncolumns++;
}

/* Add a value that was allocated, or NULL. */
static void
add_value(dlock_table *table, char *value)
{
	if (table->nvalues == table->room)
	{
		size_t		room = table->room == 0 ? 16 : 2 * table->room;
		char	  **values = realloc(table->values, room * sizeof(*values));

		if (values == NULL)
		{
			free(value);
			table->failed = true;
			return;
		}
		table->values = values;
		table->room = room;
	}
	table->values[table->nvalues++] = value;
}

void
dlock_table_value(dlock_table *table, const char *bytes, size_t length)
{
	char	   *value = copy(bytes, length);

	if (value == NULL)
		table->failed = true;
	else
		add_value(table, value);
}

void
dlock_table_null(dlock_table *table)
{
	add_value(table, NULL);
}

void
dlock_table_free(dlock_table *table)
{
	for (size_t i = 0; i < table->ncolumns; i++)
		free(table->names[i]);
	for (size_t i = 0; i < table->nvalues; i++)
		free(table->values[i]);
	free(table->names);
	free(table->values);
	*table = (dlock_table) {0};
}

/* An element of a list: PostgreSQL's arrays and JSON both have it in quotes. */
static void
add_element(dlock_text *text, dlock_engine engine, const char *element)
{
	dlock_text_add(text, "\"");
	for (const char *c = element; *c != '\0'; c++)
	{
		if (*c == '"' || *c == '\\')
			dlock_text_add(text, "\\");
		if (engine == DLOCK_MYSQL && (unsigned char) *c < 0x20)
			dlock_text_format(text, "\\u%04x", (unsigned) (unsigned char) *c);
		else
			dlock_text_bytes(text, c, 1);
	}
	dlock_text_add(text, "\"");
}

void
dlock_text_list(dlock_text *text, dlock_engine engine, const dlock_arg *list)
{
	dlock_text_add(text, engine == DLOCK_MYSQL ? "[" : "{");
	for (size_t i = 0; i < list->count; i++)
	{
		if (i > 0)
			dlock_text_add(text, ",");
		if (list->type == DLOCK_ARG_INTEGERS)
			dlock_text_format(text, "%" PRId64, list->integers[i]);
		else
			add_element(text, engine, list->texts[i]);
	}
	dlock_text_add(text, engine == DLOCK_MYSQL ? "]" : "}");
}

bool
dlock_table_from_array(dlock_table *table, const char *array)
{
	const char *c = array;
	dlock_text	element = {0};
	bool		valid = false;

	dlock_table_column(table, NULL);
	if (*c++ != '{')
		return false;
	if (*c == '}')
		return c[1] == '\0';
	for (;;)
	{
		bool		quoted = *c == '"';

		dlock_text_clear(&element);
		dlock_text_add(&element, "");
		c += quoted;
		while (*c != '\0' && (quoted ? *c != '"' : *c != ',' && *c != '}'))
		{
			if (*c == '\\' && c[1] != '\0')
				c++;
			dlock_text_bytes(&element, c++, 1);
		}
		if (quoted && *c++ != '"')
			break;
		if (element.failed)
			table->failed = true;
		else if (!quoted && strcmp(element.data, "NULL") == 0)
			dlock_table_null(table);
		else
			dlock_table_value(table, element.data, element.length);
		if (*c == '}')
		{
			valid = c[1] == '\0';
			break;
		}
		if (*c++ != ',')
			break;
	}
	dlock_text_free(&element);
	return valid;
}

static const char *
skip_space(const char *c)
{
	return c + strspn(c, " \t\r\n");
}

/* Add a character in UTF-8. */
static void
add_character(dlock_text *text, unsigned long code)
{
	char		bytes[4];
	size_t		length = 0;

	if (code < 0x80)
		bytes[length++] = (char) code;
	else
	{
		if (code < 0x800)
			bytes[length++] = (char) (0xc0 | code >> 6);
		else
		{
			if (code < 0x10000)
				bytes[length++] = (char) (0xe0 | code >> 12);
			else
			{
				bytes[length++] = (char) (0xf0 | code >> 18);
				bytes[length++] = (char) (0x80 | (code >> 12 & 0x3f));
			}
			bytes[length++] = (char) (0x80 | (code >> 6 & 0x3f));
		}
		bytes[length++] = (char) (0x80 | (code & 0x3f));
	}
	dlock_text_bytes(text, bytes, length);
}

/* Read four hexadecimal digits; -1 if there are none. */
static long
read_code(const char *c)
{
	char		digits[5] = "";

	for (int i = 0; i < 4; i++)
	{
		if (strchr("0123456789abcdefABCDEF", c[i]) == NULL || c[i] == '\0')
			return -1;
		digits[i] = c[i];
	}
	return strtol(digits, NULL, 16);
}

/* Read a string, from its quote on; returns what follows, or NULL. */
static const char *
read_string(const char *c, dlock_text *string)
{
	static const char names[] = "\"\\/bfnrt";
	static const char meanings[] = "\"\\/\b\f\n\r\t";

	dlock_text_clear(string);
	dlock_text_add(string, "");
	if (*c++ != '"')
		return NULL;
	while (*c != '"')
	{
		const char *name;
		long		code;

		if (*c == '\0')
			return NULL;
		if (*c != '\\')
		{
			dlock_text_bytes(string, c++, 1);
			continue;
		}
		c++;
		if (*c == 'u')
		{
			code = read_code(++c);
			if (code < 0)
				return NULL;
			c += 4;
			if (code >= 0xd800 && code < 0xdc00 && c[0] == '\\' && c[1] == 'u')
			{
				long		second = read_code(c + 2);

				if (second >= 0xdc00 && second < 0xe000)
				{
					code = 0x10000 + ((code - 0xd800) << 10) + (second - 0xdc00);
					c += 6;
				}
			}
			add_character(string, (unsigned long) code);
			continue;
		}
		if (*c == '\0' || (name = strchr(names, *c)) == NULL)
			return NULL;
		dlock_text_bytes(string, &meanings[name - names], 1);
		c++;
	}
	return c + 1;
}

/* Read a string, a number or a word; *is_null says whether it is null. */
static const char *
read_scalar(const char *c, dlock_text *scalar, bool *is_null)
{
	size_t		length;

	*is_null = false;
	if (*c == '"')
		return read_string(c, scalar);
	length = strspn(c, "+-.0123456789abcdefghijklmnopqrstuvwxyzE");
	if (length == 0)
		return NULL;
	dlock_text_clear(scalar);
	dlock_text_bytes(scalar, c, length);
	if (scalar->failed)
		return NULL;
	*is_null = strcmp(scalar->data, "null") == 0;
	if (strcmp(scalar->data, "true") == 0 || strcmp(scalar->data, "false") == 0)
	{
		bool		is_true = scalar->data[0] == 't';

		dlock_text_clear(scalar);
		dlock_text_add(scalar, is_true ? "1" : "0");
	}
	return c + length;
}

/*
 * Read an object of scalars.  The first has the columns; the others have to have
 * the same keys in the same order.
 */
static const char *
read_object(const char *c, dlock_table *table, bool first)
{
	dlock_text	key = {0};
	dlock_text	value = {0};
	size_t		column = 0;
	bool		is_null;

	c = skip_space(c + 1);
	while (c != NULL && *c != '}')
	{
		c = read_string(c, &key);
		if (c == NULL || *(c = skip_space(c)) != ':')
			c = NULL;
		else
			c = read_scalar(skip_space(c + 1), &value, &is_null);
		if (c == NULL || key.failed || value.failed)
		{
			c = NULL;
			break;
		}
		if (first)
			dlock_table_column(table, key.data);
		else if (column >= table->ncolumns ||
				 strcmp(table->names[column], key.data) != 0)
		{
			c = NULL;
			break;
		}
		column++;
		if (is_null)
			dlock_table_null(table);
		else
			dlock_table_value(table, value.data, value.length);
		c = skip_space(c);
		if (*c == ',')
		{
			c = skip_space(c + 1);
			if (*c != '"')
				c = NULL;
		}
		else if (*c != '}')
			c = NULL;
	}
	dlock_text_free(&key);
	dlock_text_free(&value);
	return c == NULL || column != table->ncolumns ? NULL : c + 1;
}

bool
dlock_table_from_json(dlock_table *table, const char *json)
{
	const char *c = skip_space(json);
	dlock_text	element = {0};
	bool		is_null;

	if (*c != '[')
		return false;
	c = skip_space(c + 1);
	if (*c != '{')
		dlock_table_column(table, NULL);
	if (*c == ']')
		return *skip_space(c + 1) == '\0';
	for (bool first = true;; first = false)
	{
		if (*c == '{')
			c = read_object(c, table, first);
		else
		{
			c = read_scalar(c, &element, &is_null);
			if (c != NULL && is_null)
				dlock_table_null(table);
			else if (c != NULL)
				dlock_table_value(table, element.data, element.length);
		}
		if (c == NULL || table->failed || element.failed)
			break;
		c = skip_space(c);
		if (*c != ',')
			break;
		c = skip_space(c + 1);
	}
	dlock_text_free(&element);
	return c != NULL && *c == ']' && *skip_space(c + 1) == '\0';
}
