/*
 * log_fuzz.c
 *	  Bytes from libFuzzer, read as a row of the log.
 *
 * The first byte says whether the rest is a whole row, which then has a wrong sum as a
 * rule, or is put behind a header that is right.  Whatever it is, reading stays within the
 * row, in memory of exactly its size, where the sanitizers see every access out of bounds;
 * and what is read without an error can be written, and is then read as the same.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "../../mysql_udf/log/encode.c"

#include <stdlib.h>

#define NUMBER		7
#define WRITER		UINT64_C(0x1234567890abcdef)
#define COUNTER		(UINT64_C(1) << 50)
#define ENTRIES_MOST	LOG_ENTRIES_MOST
#define ROOM		200

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static log_entry read_entries[2][ENTRIES_MOST];

/* A string is in the row, or empty. */
static void
check_string(const log_row *row, lease_bytes string, size_t least, size_t most)
{
	const unsigned char *data = (const unsigned char *) string.data;

	if (string.length < least || string.length > most || data == NULL)
		abort();
	if (string.length > 0 &&
		(data < row->entries || data + string.length > row->entries + row->length))
		abort();
}

static void
check_entry(const log_row *row, const log_entry *e)
{
	bool		is_lease = e->kind == LOG_PUT || e->kind == LOG_CARRY;

	if (e->kind < LOG_KIND_FIRST || e->kind > LOG_KIND_LAST || e->bytes == 0 ||
		(e->token == 0) != (e->kind == LOG_TAKE_OVER) || e->token > row->counter ||
		e->guard > row->counter || e->ttl_us < 0 || e->ttl_us > LEASE_TTL_MAX_US ||
		e->left_us < 0 || e->left_us > e->ttl_us)
		abort();
	if (is_lease || e->kind == LOG_GUARD)
		if (e->mode < LEASE_MODE_FIRST || e->mode > LEASE_MODE_LAST ||
			e->version == 0 || e->version > LEASE_VERSION_MAX)
			abort();
	if (is_lease && (e->lifetime < LEASE_KIND_FIRST || e->lifetime > LEASE_KIND_LAST))
		abort();
	check_string(row, e->name, is_lease ? 1 : 0, is_lease ? LEASE_STRING_MAX : 0);
	check_string(row, e->owner, is_lease ? 1 : 0, is_lease ? LEASE_STRING_MAX : 0);
	check_string(row, e->user, 0, is_lease ? LOG_USER_MOST : 0);
	check_string(row, e->host, 0, is_lease ? LOG_HOST_MOST : 0);
	check_string(row, e->request, 0, is_lease ? LEASE_STRING_MAX : 0);
}

/* Read a row: how many entries it has before its end, or before it is damaged. */
static size_t
read_all(const log_row *row, log_entry *entries, bool *damaged)
{
	log_reader	reader = log_read_entries(row);
	log_read	how;
	size_t		count = 0;

	while ((how = log_next(&reader, &entries[count])) == LOG_READ_ENTRY)
		check_entry(row, &entries[count++]);
	*damaged = how == LOG_READ_DAMAGED;
	return count;
}

static bool
same(lease_bytes a, lease_bytes b)
{
	return a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
}

static void
check_same(const log_entry *a, const log_entry *b)
{
	if (a->kind != b->kind || a->token != b->token || a->guard != b->guard ||
		a->ttl_us != b->ttl_us || a->left_us != b->left_us || a->mode != b->mode ||
		a->version != b->version || a->lifetime != b->lifetime ||
		a->leaving != b->leaving || a->repeated != b->repeated || a->gone != b->gone ||
		!same(a->name, b->name) || !same(a->owner, b->owner) || !same(a->user, b->user) ||
		!same(a->host, b->host) || !same(a->request, b->request) ||
		a->connection_id != b->connection_id || a->server != b->server ||
		a->acquired_us != b->acquired_us)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static log_slot slots[ROOM];
	log_batch	batch = {.slots = slots,.room = ROOM};
	log_position position = {NUMBER - 1, 3, 1};
	unsigned char *memory;
	size_t		length;
	size_t		count;
	size_t		again = 0;
	bool		damaged;
	log_row		row;

	if (size == 0 || size - 1 > LOG_ENTRIES_MOST)
		return 0;
	length = size - 1 + (data[0] & 1 ? LOG_HEADER : 0);
	memory = malloc(length > 0 ? length : 1);
	if (memory == NULL)
		abort();
	memcpy(memory + length - (size - 1), data + 1, size - 1);
	if (data[0] & 1)
	{
		memset(memory, 0, LOG_HEADER);
		memory[0] = FORMAT;
		write_fixed(memory + AT_COUNTER, COUNTER, 8);
		write_fixed(memory + AT_FROM, NUMBER, 8);
		write_fixed(memory + AT_SUM, sum_of(NUMBER, WRITER, memory, length), 4);
	}
	if (!log_read_row(&row, NUMBER, WRITER, memory, length))
	{
		if (data[0] & 1)
			abort();
		free(memory);
		return 0;
	}
	count = read_all(&row, read_entries[0], &damaged);
	log_begin(&batch, row.wall_us);
	for (size_t i = 0; i < count; i++)
		if (!log_add(&batch, &read_entries[0][i]))
			abort();
	log_seal(&batch, &position, WRITER, row.counter, 1);
	for (size_t i = 0; i < batch.count; i++)
	{
		log_row		written;
		size_t		read;

		if (!log_read_row(&written, NUMBER + i, WRITER, slots[i].data,
						  slots[i].draft.length))
			abort();
		read = read_all(&written, read_entries[1], &damaged);
		if (damaged)
			abort();
		for (size_t j = 0; j < read; j++)
			check_same(&read_entries[0][again++], &read_entries[1][j]);
	}
	if (again != count)
		abort();
	free(memory);
	return 0;
}
