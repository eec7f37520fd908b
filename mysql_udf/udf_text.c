/*
 * udf_text.c
 *	  JSON, and bytes that may not be text.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "udf_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Longest name or owner that is shown whole. */
#define SHOWN_WHOLE	160

/*
 * The length of the UTF-8 character at the start of some bytes, or 0 if there
 * is none: they end too early, a form is longer than need be, or the code point
 * is a surrogate or beyond Unicode.
 */
static size_t
character_length(const char *data, size_t length)
{
	const unsigned char *bytes = (const unsigned char *) data;
	size_t		needed;
	uint32_t	code;
	static const uint32_t first_code[] = {0, 0, 0x80, 0x800, 0x10000};

	if (bytes[0] < 0x80)
		return 1;
	if (bytes[0] < 0xC0 || bytes[0] > 0xF7)
		return 0;
	needed = bytes[0] < 0xE0 ? 2 : bytes[0] < 0xF0 ? 3 : 4;
	if (length < needed)
		return 0;
	code = bytes[0] & (0x7FU >> needed);
	for (size_t i = 1; i < needed; i++)
	{
		if ((bytes[i] & 0xC0) != 0x80)
			return 0;
		code = code << 6 | (bytes[i] & 0x3FU);
	}
	if (code < first_code[needed] || code > 0x10FFFF ||
		(code >= 0xD800 && code <= 0xDFFF))
		return 0;
	return needed;
}

/*
 * Append bytes as a JSON string.  Valid UTF-8 stays what it is; each byte that
 * is not part of a valid character becomes U+FFFD, the replacement character.
 */
void
dlock_add_json(lease_text *text, lease_bytes string)
{
	lease_text_put(text, "\"", 1);
	for (size_t i = 0; i < string.length;)
	{
		const char *at = string.data + i;
		size_t		length = character_length(at, string.length - i);

		if (length == 0)
			lease_text_put(text, "\xEF\xBF\xBD", 3);
		else if (*at == '"' || *at == '\\')
			lease_text_add(text, "\\%c", *at);
		else if (length == 1 && ((unsigned char) *at < 0x20 || *at == 0x7F))
			lease_text_add(text, "\\u%04x", (unsigned int) *at);
		else
			lease_text_put(text, at, length);
		i += length == 0 ? 1 : length;
	}
	lease_text_put(text, "\"", 1);
}

/*
 * The same, but if there is anything else than valid UTF-8, all of it is written as 0x and
 * hexadecimal digits.
 */
void
dlock_add_json_or_hex(lease_text *text, lease_bytes string)
{
	size_t		length = 1;

	for (size_t i = 0; i < string.length && length > 0; i += length)
		length = character_length(string.data + i, string.length - i);
	if (length > 0)
	{
		dlock_add_json(text, string);
		return;
	}
	lease_text_put(text, "\"0x", 3);
	for (size_t i = 0; i < string.length; i++)
		lease_text_add(text, "%02X", (unsigned char) string.data[i]);
	lease_text_put(text, "\"", 1);
}

/*
 * Append a time, in microseconds since 1970 UTC, as a JSON string such as
 * "2026-11-21T03:25:28.112233+00:00".
 */
void
dlock_add_json_time(lease_text *text, int64_t time_us)
{
	int64_t		fraction = time_us % 1000000;
	time_t		seconds = (time_t) (time_us / 1000000);
	struct tm	parts;
	char		date[64];

	if (fraction < 0)
	{
		fraction += 1000000;
		seconds--;
	}
	if (gmtime_r(&seconds, &parts) == NULL ||
		strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts) == 0)
		lease_text_add(text, "null");
	else
		lease_text_add(text, "\"%s.%06d+00:00\"", date, (int) fraction);
}

/*
 * Make a name or owner fit for a message.  Bytes that are no characters, control
 * characters, and characters of 4 bytes, at which MariaDB ends a message, are written as
 * \xNN.  A long string is cut, and ends in three dots.  Returns "shown".
 */
const char *
dlock_show(char shown[DLOCK_SHOWN_SIZE], lease_bytes string)
{
	size_t		used = 0;

	for (size_t i = 0; i < string.length;)
	{
		const char *at = string.data + i;
		size_t		length = character_length(at, string.length - i);
		bool		plain = length > 0 && length < 4 &&
			(unsigned char) *at >= 0x20 && *at != 0x7F;

		if (used + (plain ? length : 4) > SHOWN_WHOLE)
		{
			memcpy(shown + used, "...", 3);
			used += 3;
			break;
		}
		if (plain)
		{
			memcpy(shown + used, at, length);
			used += length;
		}
		else
			used += (size_t) snprintf(shown + used, DLOCK_SHOWN_SIZE - used,
									  "\\x%02X", (unsigned char) *at);
		i += plain ? length : 1;
	}
	shown[used] = '\0';
	return shown;
}

/* ----------------------------------------------------------------
 * Reading JSON
 * ----------------------------------------------------------------
 */

typedef struct Reader
{
	const char *at;
	const char *end;
} Reader;

static void
skip_space(Reader *reader)
{
	while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) != NULL &&
		   *reader->at != '\0')
		reader->at++;
}

/* Read a character, if it is the next one after any space. */
static bool
take(Reader *reader, char wanted)
{
	skip_space(reader);
	if (reader->at == reader->end || *reader->at != wanted)
		return false;
	reader->at++;
	return true;
}

/* Read four hexadecimal digits. */
static bool
take_unit(Reader *reader, uint32_t *unit)
{
	*unit = 0;
	if (reader->end - reader->at < 4)
		return false;
	for (int i = 0; i < 4; i++)
	{
		static const char digits[] = "0123456789abcdefABCDEF";
		char		digit = *reader->at++;
		const char *found = digit == '\0' ? NULL : strchr(digits, digit);

		if (found == NULL)
			return false;
		*unit = *unit << 4 |
			(uint32_t) (found - digits - (found - digits > 15 ? 6 : 0));
	}
	return true;
}

/* Read what follows \u: a code point, of which a surrogate pair is one. */
static bool
take_code_point(Reader *reader, uint32_t *code)
{
	uint32_t	low;

	if (!take_unit(reader, code))
		return false;
	if (*code < 0xD800 || *code > 0xDFFF)
		return true;
	if (*code > 0xDBFF || reader->end - reader->at < 2 ||
		reader->at[0] != '\\' || reader->at[1] != 'u')
		return false;
	reader->at += 2;
	if (!take_unit(reader, &low) || low < 0xDC00 || low > 0xDFFF)
		return false;
	*code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
	return true;
}

/* Write a code point in UTF-8; returns the place after it. */
static char *
put_code_point(char *to, uint32_t code)
{
	if (code < 0x80)
		*to++ = (char) code;
	else if (code < 0x800)
	{
		*to++ = (char) (0xC0 | code >> 6);
		*to++ = (char) (0x80 | (code & 0x3F));
	}
	else
	{
		if (code < 0x10000)
			*to++ = (char) (0xE0 | code >> 12);
		else
		{
			*to++ = (char) (0xF0 | code >> 18);
			*to++ = (char) (0x80 | (code >> 12 & 0x3F));
		}
		*to++ = (char) (0x80 | (code >> 6 & 0x3F));
		*to++ = (char) (0x80 | (code & 0x3F));
	}
	return to;
}

/*
 * Read a string after its first quote.  *to is where it goes, and becomes the
 * place after it.  Bytes that are no characters stay what they are.
 */
static bool
take_string(Reader *reader, char **to)
{
	static const char escapes[] = "\"\\/bfnrt";
	static const char escaped[] = "\"\\/\b\f\n\r\t";

	while (reader->at < reader->end)
	{
		char		c = *reader->at++;
		const char *escape;
		uint32_t	code;

		if (c == '"')
			return true;
		if ((unsigned char) c < 0x20)
			return false;
		if (c != '\\')
		{
			*(*to)++ = c;
			continue;
		}
		if (reader->at == reader->end)
			return false;
		c = *reader->at++;
		escape = c == '\0' ? NULL : strchr(escapes, c);
		if (escape != NULL)
			*(*to)++ = escaped[escape - escapes];
		else if (c == 'u' && take_code_point(reader, &code))
			*to = put_code_point(*to, code);
		else
			return false;
	}
	return false;
}

/* Read what may be a number, maybe in quotes, as in SQL: false if there is nothing. */
static bool
take_number(Reader *reader, lease_bytes *number)
{
	static const char digits[] = "+-0123456789.eE";
	bool		quoted = take(reader, '"');
	const char *start = reader->at;

	while (reader->at < reader->end && *reader->at != '\0' &&
		   strchr(digits, *reader->at) != NULL)
		reader->at++;
	*number = (lease_bytes) {start, (size_t) (reader->at - start)};
	if (quoted && (reader->at == reader->end || *reader->at++ != '"'))
		return false;
	return number->length > 0;
}

/*
 * Read an element of an array: a string, put at *to, which becomes the place after
 * it; or what may be a number; or a null, whose data is NULL.
 */
static bool
take_element(Reader *reader, bool numbers, char **to, lease_bytes *element)
{
	char	   *start = *to;

	skip_space(reader);
	if (reader->end - reader->at >= 4 && memcmp(reader->at, "null", 4) == 0)
	{
		*element = (lease_bytes) {NULL, 0};
		reader->at += 4;
		return true;
	}
	if (numbers)
		return take_number(reader, element);
	if (!take(reader, '"') || !take_string(reader, to))
		return false;
	*element = (lease_bytes) {start, (size_t) (*to - start)};
	return true;
}

dlock_json_array
dlock_read_json_array(lease_bytes json, char *memory, bool numbers,
					  lease_bytes *strings, size_t most, size_t *count)
{
	Reader		reader = {json.data, json.data + json.length};
	bool		has_null = false;

	*count = 0;
	if (!take(&reader, '['))
		return DLOCK_JSON_INVALID;
	if (!take(&reader, ']'))
		for (;;)
		{
			lease_bytes element;

			if (!take_element(&reader, numbers, &memory, &element))
				return DLOCK_JSON_INVALID;
			has_null |= element.data == NULL && !numbers;
			if (*count < most)
				strings[*count] = element;
			++*count;
			if (take(&reader, ']'))
				break;
			if (!take(&reader, ','))
				return DLOCK_JSON_INVALID;
		}
	skip_space(&reader);
	if (reader.at != reader.end)
		return DLOCK_JSON_INVALID;
	if (*count > most)
		return DLOCK_JSON_TOO_LONG;
	return has_null ? DLOCK_JSON_NULL_ELEMENT : DLOCK_JSON_ARRAY;
}
