/*
 * log_model.c
 *	  Rows of the log, written by log/encode.c and read by a slow model of who uses it.
 *
 * The table is an array.  Some writers decide on their images and append, each behind what
 * it knows; the first with a number wins, and the others undo their batch and follow.  They
 * carry, and somebody deletes what is needed no more.  All the time what was added to a
 * batch is compared with what is read from its rows, each writer's image with the fold of
 * the rows from the first one on, and with what a loader gets from those that are left.
 * Rows are damaged, which has to be seen.
 *
 *	log_model SEED STEPS FILE
 *
 * FILE is install.sql, where the first row has to be what the library can read.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "log_fold.h"

#define WRITERS		3
#define ROOM		8			/* rows of a batch */
#define ADDED_MOST	3000

typedef struct stored
{
	uint64_t	writer;
	size_t		length;
	unsigned char *data;
} stored;

static stored *rows;			/* by number, from 1 on */
static uint64_t last;
static uint64_t first = 1;		/* those below are deleted */
static size_t rows_room;

static writer writers[WRITERS];
static fold before[WRITERS];	/* the images without the batches */
static fold followed;			/* all rows */

static uint64_t runs;
static uint64_t conflicts;
static uint64_t carried;
static uint64_t loads;
static uint64_t passed_over;
static uint64_t of_several;
static uint64_t damaged;

/* Get a row of the table. */
static log_row
row_at(uint64_t number)
{
	log_row		row;

	if (!log_read_row(&row, number, rows[number].writer, rows[number].data,
					  rows[number].length))
		fail("row %" PRIu64 " is damaged", number);
	return row;
}

/* A copy in memory of its exact size, for the sanitizer. */
static unsigned char *
copy_of(const void *data, size_t length)
{
	unsigned char *copy = length > 0 ? malloc(length) : NULL;

	if (copy == NULL)
		fail("out of memory");
	memcpy(copy, data, length);
	return copy;
}

static void
store(uint64_t me, const unsigned char *data, size_t length)
{
	if (++last >= rows_room)
	{
		rows_room = rows_room * 2 + 100;
		rows = get_memory(rows, rows_room * sizeof(stored));
	}
	rows[last] = (stored) {me, length, copy_of(data, length)};
}

/* Load the table as load.c does. */
static void
load(fold *f)
{
	uint64_t	from = row_at(last).from;
	uint64_t	said = 0;
	uint64_t	said_from = 0;

	fold_clear(f);
	if (from < first)
		fail("row %" PRIu64 " is needed, and deleted", from);
	if (one_in(3))
		from = first;
	for (uint64_t n = from; n <= last; n++)
	{
		log_row		row = row_at(n);

		switch (fold_visit(f, &row))
		{
			case LOG_VISITED:
				break;
			case LOG_VISIT_UNKNOWN:
				passed_over++;
				if (row.from == row_at(last).from && said_from == row.from && n > said)
					fail("row %" PRIu64 " is mistaken for a damaged one", n);
				break;
			default:
				fail("row %" PRIu64 " cannot be read", n);
		}
		if (row.from != said_from)
			said = n;
		said_from = row.from;
		if (n > from && row.before != rows[n - 1].writer)
			fail("row %" PRIu64 " says that another wrote the one before", n);
	}
	loads++;
}

/* Nothing is taken for granted of rows that were damaged. */
static void
damage(const stored *row, uint64_t number)
{
	unsigned char *data = get_memory(NULL, row->length);	/* and a byte */
	size_t		length = row->length;
	uint64_t	writer = row->writer;
	log_row		read;

	memcpy(data, row->data, length);
	data[length] = 0;
	switch (below(5))
	{
		case 0:
			data[below(length)] ^= (unsigned char) (1 << below(8));
			break;
		case 1:
			length = below(length);
			break;
		case 2:
			length++;
			break;
		case 3:
			number ^= UINT64_C(1) << below(64);
			break;
		case 4:
			writer ^= UINT64_C(1) << below(64);
			break;
	}
	if (log_read_row(&read, number, writer, data, length))
		fail("damage was not seen");
	damaged++;
	free(data);
}

/* What was added to a batch is what is read from it. */
static void
check_entries(void)
{
	static log_slot slots[ROOM];
	static fold_lease added[ADDED_MOST];
	static char memory[NSTRINGS][LOG_USER_MOST];
	log_batch	batch = {
		.slots = slots,.room = ROOM,
		.row_most = one_in(2) ? 0 : LOG_HEADER + LOG_ENTRY_MOST + below(8000)
	};
	log_position position = {any_size(1000) + 1, chance(), 1};
	size_t		count = 0;
	size_t		marked = 0;
	size_t		read = 0;
	log_mark	mark = {0};
	uint64_t	me = chance();
	uint64_t	most = any_size(LEASE_TOKEN_MAX - 1) + 1;

	log_begin(&batch, (int64_t) chance());
	mark = log_end_of(&batch);
	while (count < ADDED_MOST && !one_in(500))
	{
		log_entry	entry = {.kind = LOG_PUT + (log_kind) below(LOG_KIND_LAST)};
		bool		is_lease;

		if (count > 0 && one_in(2))
			entry.kind = added[count - 1].lease.kind;
		is_lease = entry.kind == LOG_PUT || entry.kind == LOG_CARRY;
		if (entry.kind != LOG_TAKE_OVER)
			entry.token = 1 + any_size(most - 1);
		if (is_lease || entry.kind == LOG_RENEW)
			entry.ttl_us = entry.left_us = one_in(2) ? 30000000 :
				(int64_t) any_size(LEASE_TTL_MAX_US);
		if (entry.kind == LOG_GUARD || entry.kind == LOG_END_GUARD)
			entry.guard = 1 + any_size(most - 1);
		if (is_lease || entry.kind == LOG_GUARD)
		{
			entry.mode = LEASE_MODE_FIRST + (lease_mode) below(3);
			entry.version = 1 + (uint32_t) any_size(LEASE_VERSION_MAX - 1);
		}
		if (is_lease)
		{
			entry.left_us = (int64_t) any_size((uint64_t) entry.ttl_us);
			entry.lifetime = LEASE_KIND_FIRST + (lease_kind) below(3);
			entry.server = entry.lifetime == LEASE_SESSION ? chance() : 0;
			entry.leaving = one_in(2);
			entry.repeated = one_in(2);
			entry.gone = entry.kind == LOG_CARRY && one_in(2);
			entry.connection_id = any_size(UINT64_MAX);
			entry.acquired_us = (int64_t) any_size(UINT64_MAX);
			entry.name = any_string(memory[0], 1, LEASE_STRING_MAX);
			if (count > 0 && added[count - 1].lease.owner.length > 0 && one_in(2))
			{
				entry.owner = added[count - 1].lease.owner;
				entry.user = added[count - 1].lease.user;
				entry.host = added[count - 1].lease.host;
			}
			else
			{
				entry.owner = any_string(memory[1], 1, LEASE_STRING_MAX);
				entry.user = any_string(memory[2], 0, LOG_USER_MOST);
				entry.host = any_string(memory[3], 0, LOG_HOST_MOST);
			}
			if (one_in(2))
				entry.request = any_string(memory[4], 1, LEASE_STRING_MAX);
		}
		if (one_in(50))
		{
			mark = log_end_of(&batch);
			marked = count;
		}
		if (one_in(90) && marked <= count)
		{
			log_cut(&batch, &mark);
			count = marked;
		}
		if (!log_add(&batch, &entry))
			break;
		fold_set(&added[count++], &entry);
	}
	log_seal(&batch, &position, me, most, position.number);
	for (size_t i = 0; i < batch.count; i++)
	{
		size_t		length = slots[i].draft.length;
		unsigned char *data = copy_of(slots[i].data, length);
		log_row		row;
		log_reader	reader;
		log_entry	entry;
		log_read	how;
		size_t		bytes = 0;

		if (!log_read_row(&row, position.number + 1 + i, me, data, length) ||
			row.before != (i == 0 ? position.writer : me) || row.counter != most ||
			row.wall_us != batch.wall_us ||
			row.from != (i + 1 == batch.count ? position.number : position.from))
			fail("a header is not what it was");
		reader = log_read_entries(&row);
		while ((how = log_next(&reader, &entry)) == LOG_READ_ENTRY)
		{
			const log_entry *other = &added[read++].lease;

			if (read > count || entry.kind != other->kind || entry.guard != other->guard ||
				entry.left_us != other->left_us || !same_lease(&entry, other) ||
				entry.bytes != other->bytes || entry.bytes == 0)
				fail("entry %zu of %zu is not what was added", read, count);
			bytes += entry.bytes;
		}
		if (how != LOG_READ_END || LOG_HEADER + bytes != length)
			fail("entry %zu of %zu cannot be read", read, count);
		free(data);
	}
	if (read != count)
		fail("%zu of %zu entries were read", read, count);
	of_several += batch.count > 1;
}

/* Throw a writer's batch away, and follow the others' rows. */
static void
follow(size_t i)
{
	writer	   *w = &writers[i];
	const char *differ;

	fold_copy(&w->image, &before[i]);
	if (w->position.number < first)
	{
		load(&w->image);
		w->position = (log_position) {last, rows[last].writer, row_at(last).from};
		w->me = ++runs;
	}
	while (w->position.number < last)
	{
		log_row		row = row_at(w->position.number + 1);

		if (fold_visit(&w->image, &row) != LOG_VISITED)
			fail("row %" PRIu64 " has what a follower does not know", row.number);
		w->position = (log_position) {row.number, row.writer, row.from};
	}
	differ = fold_differ(&w->image, &followed);
	if (differ != NULL)
		fail("a follower's image: %s", differ);
	fold_copy(&before[i], &w->image);
	log_begin(&w->batch, (int64_t) any_size(INT64_MAX));
}

/* A writer adds something to its batch, or appends it, or finds that it cannot. */
static void
step(size_t i)
{
	writer	   *w = &writers[i];
	size_t		many = one_in(20) ? 300 : below(4);
	const char *differ;

	for (size_t n = 0; n < many && add_any(w); n++)
		;
	if (one_in(2))
		return;
	if (w->position.number != last)
	{
		conflicts++;
		follow(i);
		return;
	}
	if (w->batch.count > 0 && !one_in(3))
	{
		size_t		bytes = log_batch_bytes(&w->batch);

		carry(w, any_size(2000));
		carried += log_batch_bytes(&w->batch) > bytes;
	}
	seal(w);
	for (size_t row = 0; row < w->batch.count; row++)
	{
		log_row		stored_row;

		store(w->me, w->batch.slots[row].data, w->batch.slots[row].draft.length);
		stored_row = row_at(last);
		if (fold_visit(&followed, &stored_row) != LOG_VISITED)
			fail("row %" PRIu64 " has what the log does not", last);
	}
	w->image.bytes += log_batch_bytes(&w->batch);
	w->position = (log_position) {last, w->me, row_at(last).from};
	differ = fold_differ(&w->image, &followed);
	if (differ != NULL)
		fail("a writer's image: %s", differ);
	fold_copy(&before[i], &w->image);
	log_begin(&w->batch, (int64_t) any_size(INT64_MAX));
}

/* The first row is in a file of SQL. */
static void
store_first(const char *path)
{
	FILE	   *file = fopen(path, "r");
	char		line[400];
	unsigned char data[LOG_HEADER];
	size_t		length = 0;

	if (file == NULL)
		fail("could not open %s", path);
	while (fgets(line, sizeof(line), file) != NULL)
	{
		const char *hex = strstr(line, "x'");
		unsigned int byte;

		if (hex == NULL)
			continue;
		for (hex += 2; length < sizeof(data) && sscanf(hex, "%2x", &byte) == 1; hex += 2)
			data[length++] = (unsigned char) byte;
	}
	fclose(file);
	store(0, data, length);
}

int
main(int argc, char **argv)
{
	static log_slot slots[WRITERS][ROOM];
	static fold loaded;
	long		steps;
	log_row		row;

	if (argc != 4)
		fail("usage: log_model SEED STEPS FILE");
	chance_state = strtoull(argv[1], NULL, 10) * 2 + 1;
	steps = strtol(argv[2], NULL, 10);
	store_first(argv[3]);
	row = row_at(1);
	if (fold_visit(&followed, &row) != LOG_VISITED || followed.counter != 0 || row.from != 1)
		fail("the first row says something");
	for (size_t i = 0; i < WRITERS; i++)
	{
		writers[i].batch = (log_batch) {.slots = slots[i],.room = ROOM};
		/* one has more rows with fewer entries */
		writers[i].batch.row_most = i == 0 ? LOG_HEADER + LOG_ENTRY_MOST : 0;
		log_begin(&writers[i].batch, 0);
		writers[i].me = ++runs;
		writers[i].server = i + 10;
		writers[i].leases_most = 40;
		writers[i].position = (log_position) {1, 0, 1};
	}
	for (long n = 0; n < steps; n++)
	{
		const char *differ;

		step(below(WRITERS));
		if (one_in(20))
			check_entries();
		damage(&rows[last], last);
		if (!one_in(10))
			continue;
		load(&loaded);
		differ = fold_differ(&loaded, &followed);
		if (differ != NULL)
			fail("a loader at row %" PRIu64 ": %s", last, differ);
		for (uint64_t left = below(row_at(last).from - first + 1); left > 0; left--)
			free(rows[first++].data);
	}
	printf("%" PRIu64 " rows, %" PRIu64 " deleted; %" PRIu64 " conflicts; carried in %"
		   PRIu64 "; %" PRIu64 " batches of several rows; %" PRIu64 " loads; passed over %"
		   PRIu64 "; damaged %" PRIu64 "; %" PRIu64 " runs\n", last, first - 1, conflicts, carried,
		   of_several, loads, passed_over, damaged, runs);
	return 0;
}
