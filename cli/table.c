/*
 * table.c
 *	  What the inspecting subcommands print: tables for people, JSON for programs.
 *
 * Other users choose names and owners, which can be any bytes.  Printed as they
 * are, some would move the cursor, change colours or make a terminal answer, so
 * a table shows them escaped.  A program gets them whole.  A JSON string has to
 * be UTF-8, so text that is not has U+FFFD for each byte that is no part of a
 * character, and a second member, its name ending in "_hex", has all its bytes.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "table.h"

#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "command.h"

/* Space between two columns. */
#define GAP		2

enum cell_kind
{
	CELL_NULL,
	CELL_TEXT,
	CELL_NUMBER,
	CELL_SECONDS,
	CELL_BOOLEAN,
	CELL_JSON
};

struct cell
{
	enum cell_kind kind;
	size_t		length;			/* of text */
	union
	{
		char	   *text;		/* CELL_TEXT, CELL_JSON */
		int64_t		number;		/* CELL_NUMBER, CELL_BOOLEAN */
		double		seconds;	/* CELL_SECONDS */
	};
};

struct table
{
	const struct column *columns;
	size_t		column_count;
	struct cell *cells;			/* row by row */
	size_t		cell_count;
	size_t		room;			/* cells that fit */
	size_t		printed;		/* rows that pass_json() has printed and forgotten */
};

static void *
more_memory(void *memory, size_t size)
{
	void	   *more = realloc(memory, size > 0 ? size : 1);

	if (!more)
		end_with(STATUS_SYSTEM, "out of memory");
	return more;
}

void *
get_memory(size_t size)
{
	return more_memory(NULL, size);
}

/*
 * Read the character that begins there; *size is how many bytes it has.  False
 * if these bytes are no character by Unicode's rules: the shortest form only,
 * no surrogates, nothing beyond U+10FFFF.
 */
static bool
read_character(const char *text, size_t length, uint32_t *character, size_t *size)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *bytes = (const unsigned char *) text;
	uint32_t	value;

	if (length == 0)
		return false;
	if (bytes[0] < 0x80)
		*size = 1;
	else if (bytes[0] >= 0xc2 && bytes[0] <= 0xdf)
		*size = 2;
	else if (bytes[0] >= 0xe0 && bytes[0] <= 0xef)
		*size = 3;
	else if (bytes[0] >= 0xf0 && bytes[0] <= 0xf4)
		*size = 4;
	else
		return false;
	if (*size > length)
		return false;
	value = *size == 1 ? bytes[0] : bytes[0] & (0x7fU >> *size);
	for (size_t i = 1; i < *size; i++)
	{
		if ((bytes[i] & 0xc0) != 0x80)
			return false;
		value = value << 6 | (bytes[i] & 0x3f);
	}
	if (value < smallest[*size] || (value >= 0xd800 && value <= 0xdfff) ||
		value > 0x10ffff)
		return false;
	*character = value;
	return true;
}

bool
is_utf8(const char *text, size_t length)
{
	uint32_t	character;
	size_t		size;

	for (size_t i = 0; i < length; i += size)
		if (!read_character(text + i, length - i, &character, &size))
			return false;
	return true;
}

/* Does the terminal take UTF-8?  The program has called setlocale(). */
static bool
terminal_is_utf8(void)
{
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/*
 * How many columns a character takes, or -1 if it must not reach a terminal:
 * control characters, and Unicode's format characters, which could make a name
 * look like another one.
 */
static int
character_width(uint32_t character, bool utf8)
{
	if (character < 0x80)
		return character >= 0x20 && character != 0x7f ? 1 : -1;
	if (!utf8)
		return -1;
	if (character < 0xa0 || character == 0xad || character == 0x61c ||
		(character >= 0x200b && character <= 0x200f) ||
		(character >= 0x2028 && character <= 0x202e) ||
		(character >= 0x2060 && character <= 0x206f) ||
		character == 0xfeff ||
		(character >= 0xfff9 && character <= 0xfffb) ||
		(character >= 0xe0000 && character <= 0xe0fff))
		return -1;
	return wcwidth((wchar_t) character);
}

size_t
print_safe(const char *text, size_t length, FILE *out)
{
	bool		utf8 = terminal_is_utf8();
	size_t		sum = 0;
	size_t		size;

	for (size_t i = 0; i < length; i += size)
	{
		uint32_t	character = 0;
		bool		is_character = read_character(text + i, length - i,
												  &character, &size);
		int			width = is_character ? character_width(character, utf8) : -1;

		if (!is_character)
			size = 1;
		if (width < 0)
		{
			for (size_t byte = 0; byte < size; byte++)
				fprintf(out, "\\x%02X", (unsigned char) text[i + byte]);
			sum += 4 * size;
		}
		else if (character == '\\')
		{
			fputs("\\\\", out);
			sum += 2;
		}
		else
		{
			fwrite(text + i, 1, size, out);
			sum += (size_t) width;
		}
	}
	return sum;
}

char *
safe_text(const char *text, size_t length, size_t *width)
{
	char	   *safe = NULL;
	size_t		size = 0;
	size_t		columns;
	FILE	   *out = open_memstream(&safe, &size);

	if (!out)
		end_with(STATUS_SYSTEM, "out of memory");
	columns = print_safe(text, length, out);
	if (fclose(out) != 0)
		end_with(STATUS_SYSTEM, "out of memory");
	if (width)
		*width = columns;
	return safe;
}

size_t
safe_width(const char *safe, size_t length)
{
	uint32_t	character;
	size_t		size;
	size_t		columns = 0;

	for (size_t i = 0; i < length; i += size)
	{
		if (!read_character(safe + i, length - i, &character, &size))
			break;
		columns += (size_t) character_width(character, true);
	}
	return columns;
}

size_t
cut_safe(const char *safe, size_t width)
{
	size_t		length = strlen(safe);
	size_t		size;
	size_t		end = 0;
	size_t		columns = 0;

	for (size_t i = 0; i < length; i += size)
	{
		uint32_t	character;
		int			its_width;

		if (!read_character(safe + i, length - i, &character, &size))
			break;
		its_width = character_width(character, true);
		columns += its_width > 0 ? (size_t) its_width : 0;
		if (columns > width)
			break;
		end = i + size;
	}
	return end;
}

/* Print a JSON string, or null.  Bytes that are not UTF-8 read U+FFFD. */
static void
print_json_string(const char *text, size_t length, FILE *out)
{
	size_t		size;

	if (!text)
	{
		fputs("null", out);
		return;
	}
	putc('"', out);
	for (size_t i = 0; i < length; i += size)
	{
		uint32_t	character;

		if (!read_character(text + i, length - i, &character, &size))
		{
			fputs("\\ufffd", out);
			size = 1;
		}
		else if (character == '"' || character == '\\')
			fprintf(out, "\\%c", (int) character);
		/* C1 too, which a terminal takes for controls if the output gets there */
		else if (character < 0x20 || (character >= 0x7f && character < 0xa0))
			fprintf(out, "\\u%04x", (unsigned) character);
		else
			fwrite(text + i, 1, size, out);
	}
	putc('"', out);
}

const char *
short_time(double seconds, char buffer[SHORT_TIME_SIZE])
{
	const char *sign = seconds < 0 ? "-" : "";
	double		size = fabs(seconds);
	long long	whole;

	/* 9.96 is 10s and not 10.0s; 59.9 is 1m00s and not 60s */
	if (size < 9.95)
	{
		snprintf(buffer, SHORT_TIME_SIZE, "%s%.1fs", sign, size);
		return buffer;
	}
	if (size >= 1e15)
	{
		snprintf(buffer, SHORT_TIME_SIZE, "%s%.0es", sign, size);
		return buffer;
	}
	whole = (long long) (size < 60 ? round(size) : floor(size));
	if (whole < 60)
		snprintf(buffer, SHORT_TIME_SIZE, "%s%llds", sign, whole);
	else if (whole < 3600)
		snprintf(buffer, SHORT_TIME_SIZE, "%s%lldm%02llds", sign, whole / 60, whole % 60);
	else if (whole < 86400)
		snprintf(buffer, SHORT_TIME_SIZE, "%s%lldh%02lldm", sign, whole / 3600,
				 whole / 60 % 60);
	else
		snprintf(buffer, SHORT_TIME_SIZE, "%s%lldd%02lldh", sign, whole / 86400,
				 whole / 3600 % 24);
	return buffer;
}

struct table *
table_create(const struct column *columns)
{
	struct table *table = get_memory(sizeof(*table));

	memset(table, 0, sizeof(*table));
	table->columns = columns;
	while (columns[table->column_count].key || columns[table->column_count].title)
		table->column_count++;
	return table;
}

/* Forget all rows. */
static void
forget_cells(struct table *table)
{
	for (size_t i = 0; i < table->cell_count; i++)
		if (table->cells[i].kind == CELL_TEXT || table->cells[i].kind == CELL_JSON)
			free(table->cells[i].text);
	table->cell_count = 0;
}

void
table_free(struct table *table)
{
	forget_cells(table);
	free(table->cells);
	free(table);
}

static size_t
table_rows(const struct table *table)
{
	return table->cell_count / table->column_count;
}

static struct cell *
next_cell(struct table *table, enum cell_kind kind)
{
	struct cell *cell;

	if (table->cell_count == table->room)
	{
		table->room = table->room ? 2 * table->room : 64;
		table->cells = more_memory(table->cells, table->room * sizeof(struct cell));
	}
	cell = &table->cells[table->cell_count++];
	memset(cell, 0, sizeof(*cell));
	cell->kind = kind;
	return cell;
}

void
add_text(struct table *table, const char *text, size_t length)
{
	struct cell *cell = next_cell(table, text ? CELL_TEXT : CELL_NULL);

	if (!text)
		return;
	cell->text = get_memory(length + 1);
	memcpy(cell->text, text, length);
	cell->text[length] = '\0';
	cell->length = length;
}

void
add_string(struct table *table, const char *text)
{
	add_text(table, text, text ? strlen(text) : 0);
}

void
add_number(struct table *table, int64_t number)
{
	next_cell(table, CELL_NUMBER)->number = number;
}

void
add_seconds(struct table *table, double seconds)
{
	next_cell(table, CELL_SECONDS)->seconds = seconds;
}

void
add_boolean(struct table *table, bool boolean)
{
	next_cell(table, CELL_BOOLEAN)->number = boolean;
}

void
add_null(struct table *table)
{
	next_cell(table, CELL_NULL);
}

void
add_json(struct table *table, const char *json)
{
	add_string(table, json);
	if (json)
		table->cells[table->cell_count - 1].kind = CELL_JSON;
}

/* A cell as people see it, to be freed. */
static char *
cell_shown(const struct cell *cell, size_t *width)
{
	char		buffer[SHORT_TIME_SIZE] = "-";

	switch (cell->kind)
	{
		case CELL_TEXT:
		case CELL_JSON:
			return safe_text(cell->text, cell->length, width);
		case CELL_NUMBER:
			snprintf(buffer, sizeof(buffer), "%lld", (long long) cell->number);
			break;
		case CELL_SECONDS:
			short_time(cell->seconds, buffer);
			break;
		case CELL_BOOLEAN:
			strcpy(buffer, cell->number ? "yes" : "no");
			break;
		case CELL_NULL:
			break;
	}
	return safe_text(buffer, strlen(buffer), width);
}

/* Print a column's cell, padded up to the next column. */
static void
print_cell(const char *text, size_t width, size_t column_width, bool right,
		   bool last, FILE *out)
{
	if (right)
		fprintf(out, "%*s", (int) (column_width - width), "");
	fputs(text, out);
	if (!last)
		fprintf(out, "%*s", (int) (GAP + (right ? 0 : column_width - width)), "");
}

void
print_table(const struct table *table, FILE *out)
{
	size_t		rows = table_rows(table);
	size_t	   *widths = get_memory(table->column_count * sizeof(size_t));
	size_t	   *cell_widths = get_memory(rows * table->column_count * sizeof(size_t));
	char	  **shown = get_memory(rows * table->column_count * sizeof(char *));
	size_t		last = 0;

	for (size_t column = 0; column < table->column_count; column++)
	{
		if (!table->columns[column].title)
			continue;
		last = column;
		widths[column] = strlen(table->columns[column].title);
		for (size_t row = 0; row < rows; row++)
		{
			size_t		i = row * table->column_count + column;

			shown[i] = cell_shown(&table->cells[i], &cell_widths[i]);
			if (cell_widths[i] > widths[column])
				widths[column] = cell_widths[i];
		}
	}
	for (size_t column = 0; column <= last; column++)
	{
		const char *title = table->columns[column].title;

		if (title)
			print_cell(title, strlen(title), widths[column],
					   table->columns[column].right, column == last, out);
	}
	putc('\n', out);
	for (size_t row = 0; row < rows; row++)
	{
		for (size_t column = 0; column <= last; column++)
		{
			size_t		i = row * table->column_count + column;

			if (!table->columns[column].title)
				continue;
			print_cell(shown[i], cell_widths[i], widths[column],
					   table->columns[column].right, column == last, out);
			free(shown[i]);
		}
		putc('\n', out);
	}
	free(shown);
	free(cell_widths);
	free(widths);
}

static void
print_json_cell(const struct cell *cell, FILE *out)
{
	switch (cell->kind)
	{
		case CELL_NULL:
			fputs("null", out);
			break;
		case CELL_TEXT:
			print_json_string(cell->text, cell->length, out);
			break;
		case CELL_NUMBER:
			fprintf(out, "%lld", (long long) cell->number);
			break;
		case CELL_SECONDS:
			/* JSON has no other numbers */
			if (isfinite(cell->seconds))
				fprintf(out, "%.6f", cell->seconds);
			else
				fputs("null", out);
			break;
		case CELL_BOOLEAN:
			fputs(cell->number ? "true" : "false", out);
			break;
		case CELL_JSON:
			fputs(cell->text, out);
			break;
	}
}

static void
print_json_row(const struct table *table, size_t row, FILE *out)
{
	const char *separator = "";

	putc('{', out);
	for (size_t column = 0; column < table->column_count; column++)
	{
		const struct cell *cell = &table->cells[row * table->column_count + column];
		const char *key = table->columns[column].key;

		if (!key)
			continue;
		fprintf(out, "%s\"%s\": ", separator, key);
		separator = ", ";
		print_json_cell(cell, out);
		if (cell->kind == CELL_TEXT && !is_utf8(cell->text, cell->length))
		{
			fprintf(out, ", \"%s_hex\": \"", key);
			for (size_t i = 0; i < cell->length; i++)
				fprintf(out, "%02x", (unsigned char) cell->text[i]);
			putc('"', out);
		}
	}
	putc('}', out);
}

void
pass_json(struct table *table, FILE *out)
{
	for (size_t row = 0; row < table_rows(table); row++)
	{
		fputs(table->printed++ > 0 ? ",\n " : "[", out);
		print_json_row(table, row, out);
	}
	forget_cells(table);
}

void
end_json(struct table *table, FILE *out)
{
	pass_json(table, out);
	fputs(table->printed > 0 ? "]\n" : "[]\n", out);
}

void
print_json_object(const struct table *table, FILE *out)
{
	print_json_row(table, 0, out);
	putc('\n', out);
}
