/*
 * journal.c
 *	  The text of the journal: what has changed since the table was written.
 *
 * It is text because the server shows it with the statement that appends it.  If
 * that were not text, MySQL's information_schema would answer a query for all
 * connections with an error.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "journal.h"

#include <stdlib.h>
#include <string.h>

#include "array.h"

/* ----------------------------------------------------------------
 * Writing
 * ----------------------------------------------------------------
 */

static const lease_frame frame = {"[[", ",[", "]"};

/*
 * Most bytes of a row, but for its last change.  A row must fit into its column, a
 * MEDIUMTEXT of 16 MB, whatever the server takes as a statement.
 */
#define ROW_MOST		(1 << 20)

/* Begin to collect changes, for a server that takes statements of so many bytes. */
void
journal_begin(journal_writer *writer, uint64_t run, size_t max_packet)
{
	writer->run = run;
	writer->rows.count = 0;
	writer->most = max_packet / 4 < ROW_MOST ? max_packet / 4 : ROW_MOST;
	writer->failed = false;
}

bool
journal_is_empty(const journal_writer *writer)
{
	return writer->rows.count == 0;
}

/* How many bytes all rows have. */
size_t
journal_bytes(const journal_writer *writer)
{
	size_t		bytes = 0;

	for (size_t i = 0; i < writer->rows.count; i++)
		bytes += writer->rows.texts[i].length;
	return bytes;
}

/* Begin a change, in the row that takes it. */
static lease_text *
begin_change(journal_writer *writer, journal_kind kind)
{
	lease_text *row = lease_texts_next(&writer->rows, &frame, writer->most);

	writer->failed |= row->failed;
	lease_text_put_unsigned(row, kind);
	return row;
}

static void
put_string(lease_text *row, lease_bytes bytes)
{
	lease_text_put(row, ",\"", 2);
	lease_text_put_hex(row, bytes);
	lease_text_put(row, "\"", 1);
}

static void
put_number(lease_text *row, int64_t number)
{
	lease_text_put(row, ",", 1);
	lease_text_put_number(row, number);
}

static void
put_unsigned(lease_text *row, uint64_t number)
{
	lease_text_put(row, ",", 1);
	lease_text_put_unsigned(row, number);
}

/* Add a lease as it is from now on. */
void
journal_put(journal_writer *writer, const lease_row *lease)
{
	lease_text *row = begin_change(writer, JOURNAL_PUT);

	put_string(row, lease->name);
	put_unsigned(row, lease->slot);
	put_string(row, lease->owner);
	put_string(row, lease->user);
	put_string(row, lease->host);
	put_unsigned(row, lease->mode);
	put_unsigned(row, lease->kind);
	put_unsigned(row, lease->version);
	put_unsigned(row, lease->token);
	put_string(row, lease->request);
	put_number(row, lease->ttl_us);
	put_unsigned(row, lease->writes);
	put_number(row, lease->deadline_us);
	put_unsigned(row, lease->connection_id);
	put_number(row, lease->acquired_us);
	put_number(row, lease->expires_us);
	if (lease->writer != writer->run)
		put_unsigned(row, lease->writer);
	lease_text_put(row, "]", 1);
}

/* Add that a lease has ended. */
void
journal_remove(journal_writer *writer, lease_bytes name, uint64_t token)
{
	lease_text *row = begin_change(writer, JOURNAL_REMOVE);

	put_string(row, name);
	put_unsigned(row, token);
	lease_text_put(row, "]", 1);
}

/* Add that all leases of an owner were renewed.  journal.h says which fields count. */
void
journal_renew_all(journal_writer *writer, const lease_row *lease,
				  int64_t at_us)
{
	lease_text *row = begin_change(writer, JOURNAL_RENEW_ALL);

	put_string(row, lease->owner);
	put_string(row, lease->user);
	put_string(row, lease->host);
	put_number(row, at_us);
	put_number(row, lease->ttl_us);
	put_number(row, lease->expires_us);
	lease_text_put(row, "]", 1);
}

/* End the text. */
void
journal_end(journal_writer *writer)
{
	writer->failed |= !lease_texts_end(&writer->rows, &frame);
}

/* ----------------------------------------------------------------
 * Reading
 * ----------------------------------------------------------------
 */

/* What is left to be read. */
typedef struct input
{
	const char *data;
	const char *end;
	char	   *strings;		/* where the next one goes */
	bool		damaged;
} input;

/* Take a character, if it comes next. */
static bool
take(input *in, char c)
{
	if (in->data == in->end || *in->data != c)
		return false;
	in->data++;
	return true;
}

static void
expect(input *in, char c)
{
	in->damaged |= !take(in, c);
}

static uint64_t
get_number(input *in)
{
	uint64_t	number = 0;
	const char *start = in->data;

	while (in->data < in->end && *in->data >= '0' && *in->data <= '9')
	{
		in->damaged |= __builtin_mul_overflow(number, 10, &number) ||
			__builtin_add_overflow(number, *in->data - '0', &number);
		in->data++;
	}
	in->damaged |= in->data == start;
	return number;
}

/* The value of a hexadecimal digit, or -1. */
static int
digit_at(const input *in)
{
	char		c = in->data < in->end ? *in->data : ' ';

	return c >= '0' && c <= '9' ? c - '0' :
		c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Get bytes of at most a length, as far as there are digits. */
static lease_bytes
get_hex(input *in, size_t most)
{
	lease_bytes bytes = {in->strings, 0};
	int			high;
	int			low;

	while ((high = digit_at(in)) >= 0)
	{
		in->data++;
		low = digit_at(in);
		if (low < 0 || bytes.length == most)
		{
			in->damaged = true;
			break;
		}
		in->data++;
		*in->strings++ = (char) (high << 4 | low);
		bytes.length++;
	}
	return bytes;
}

static lease_bytes
get_string(input *in, size_t most)
{
	lease_bytes bytes;

	expect(in, ',');
	expect(in, '"');
	bytes = get_hex(in, most);
	expect(in, '"');
	return bytes;
}

static uint64_t
next_number(input *in)
{
	expect(in, ',');
	return get_number(in);
}

static int64_t
next_signed(input *in)
{
	bool		negative;
	uint64_t	number;

	expect(in, ',');
	negative = take(in, '-');
	number = get_number(in);
	in->damaged |= number > INT64_MAX;
	return negative ? -(int64_t) number : (int64_t) number;
}

/* Longest half of an account. */
#define ACCOUNT_MAX		512

/* Say whether a row that was read can be a lease. */
static bool
is_lease(const lease_row *row)
{
	return row->name.length > 0 && row->owner.length > 0 &&
		row->mode >= LEASE_MODE_FIRST && row->mode <= LEASE_MODE_LAST &&
		row->kind >= LEASE_KIND_FIRST && row->kind <= LEASE_SESSION;
}

/* Read a change: what comes after its "[". */
static void
read_change(input *in, journal_change *change)
{
	lease_row  *row = &change->row;

	change->kind = (journal_kind) get_number(in);
	switch (change->kind)
	{
		case JOURNAL_PUT:
			row->name = get_string(in, LEASE_STRING_MAX);
			row->slot = (uint32_t) next_number(in);
			row->owner = get_string(in, LEASE_STRING_MAX);
			row->user = get_string(in, ACCOUNT_MAX);
			row->host = get_string(in, ACCOUNT_MAX);
			row->mode = (lease_mode) next_number(in);
			row->kind = (lease_kind) next_number(in);
			row->version = (uint32_t) next_number(in);
			row->token = next_number(in);
			row->request = get_string(in, LEASE_STRING_MAX);
			row->ttl_us = next_signed(in);
			row->writes = next_number(in);
			row->deadline_us = next_signed(in);
			row->connection_id = next_number(in);
			row->acquired_us = next_signed(in);
			row->expires_us = next_signed(in);
			if (in->data < in->end && *in->data == ',')
				row->writer = next_number(in);
			in->damaged |= !is_lease(row);
			break;
		case JOURNAL_REMOVE:
			row->name = get_string(in, LEASE_STRING_MAX);
			row->token = next_number(in);
			in->damaged |= row->name.length == 0;
			break;
		case JOURNAL_RENEW_ALL:
			row->owner = get_string(in, LEASE_STRING_MAX);
			row->user = get_string(in, ACCOUNT_MAX);
			row->host = get_string(in, ACCOUNT_MAX);
			change->at_us = next_signed(in);
			row->ttl_us = next_signed(in);
			row->expires_us = next_signed(in);
			in->damaged |= row->owner.length == 0;
			break;
		default:
			in->damaged = true;
	}
}

/* A change to be filled in, with its writer; NULL if memory is short. */
static journal_change *
add_change(journal_changes *changes, uint64_t writer)
{
	journal_change *change;

	if (!array_reserve(&changes->changes, &changes->room, changes->count + 1,
					   sizeof(journal_change)))
		return NULL;
	change = &changes->changes[changes->count++];
	*change = (journal_change) {.row.writer = writer};
	return change;
}

/* Room for the strings of a text: NULL if memory is short. */
static char *
add_buffer(journal_changes *changes, size_t length)
{
	char	  **buffers = realloc(changes->buffers,
								  (changes->nbuffers + 1) * sizeof(char *));

	if (buffers == NULL)
		return NULL;
	changes->buffers = buffers;
	buffers[changes->nbuffers] = malloc(length + 1);
	return buffers[changes->nbuffers] == NULL ? NULL :
		buffers[changes->nbuffers++];
}

/* Read a row of the journal that a run has written. */
journal_result
journal_read(journal_changes *changes, const char *data, size_t length,
			 uint64_t writer)
{
	input		in = {.data = data,.end = data + length};

	in.strings = add_buffer(changes, length / 2);
	if (in.strings == NULL)
		return JOURNAL_NO_MEMORY;
	expect(&in, '[');
	do
	{
		journal_change *change = add_change(changes, writer);

		if (change == NULL)
			return JOURNAL_NO_MEMORY;
		expect(&in, '[');
		read_change(&in, change);
		expect(&in, ']');
	} while (!in.damaged && take(&in, ','));
	expect(&in, ']');
	return in.damaged || in.data != in.end ? JOURNAL_DAMAGED : JOURNAL_READ;
}

/*
 * Read the journal of 1.0: one row with all leases that have none in the table.  A lease
 * is a line, with a space after each string, in hexadecimal, and each number.
 */
journal_result
journal_read_old(journal_changes *changes, const char *data, size_t length,
				 uint64_t writer)
{
	static const char format[] = "1\n";
	input		in = {.data = data,.end = data + length};

	if (length == 0)
		return JOURNAL_READ;
	in.strings = add_buffer(changes, length / 2);
	if (in.strings == NULL)
		return JOURNAL_NO_MEMORY;
	for (const char *c = format; *c != '\0'; c++)
		expect(&in, *c);
	while (!in.damaged && in.data < in.end)
	{
		journal_change *change = add_change(changes, writer);
		lease_row  *row = change != NULL ? &change->row : NULL;
		lease_bytes *strings[] = {&row->name, &row->owner, &row->request,
		&row->user, &row->host};
		uint64_t	numbers[11];

		if (change == NULL)
			return JOURNAL_NO_MEMORY;
		for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
		{
			*strings[i] = get_hex(&in, i < 3 ? LEASE_STRING_MAX : ACCOUNT_MAX);
			expect(&in, ' ');
		}
		for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		{
			numbers[i] = get_number(&in);
			expect(&in, ' ');
		}
		expect(&in, '\n');
		change->kind = JOURNAL_PUT;
		row->slot = (uint32_t) numbers[0];
		row->mode = (lease_mode) numbers[1];
		row->kind = (lease_kind) numbers[2];
		row->version = (uint32_t) numbers[3];
		row->token = numbers[4];
		row->ttl_us = (int64_t) numbers[5];
		row->writes = numbers[6];
		row->deadline_us = (int64_t) numbers[7];
		row->connection_id = numbers[8];
		row->acquired_us = (int64_t) numbers[9];
		row->expires_us = (int64_t) numbers[10];
		in.damaged |= !is_lease(row) || row->kind != LEASE_PLAIN;
	}
	return in.damaged ? JOURNAL_DAMAGED : JOURNAL_READ;
}

/* Drop the first changes. */
void
journal_skip(journal_changes *changes, size_t n)
{
	changes->count -= n;
	memmove(changes->changes, changes->changes + n,
			changes->count * sizeof(journal_change));
}

/* Drop what other runs than one say of leases that have ended. */
void
journal_drop_removals(journal_changes *changes, uint64_t but_of)
{
	size_t		n = 0;

	for (size_t i = 0; i < changes->count; i++)
		if (changes->changes[i].kind != JOURNAL_REMOVE ||
			changes->changes[i].row.writer == but_of)
			changes->changes[n++] = changes->changes[i];
	changes->count = n;
}

void
journal_free(journal_changes *changes)
{
	for (size_t i = 0; i < changes->nbuffers; i++)
		free(changes->buffers[i]);
	free(changes->buffers);
	free(changes->changes);
	*changes = (journal_changes) {0};
}
