/*
 * encode.c
 *	  What a row of the log says: bytes from entries, and entries from bytes.
 *
 * Pure: no allocation, no clock, no I/O.  Whatever the bytes of a row are, reading them
 * stays within them; what this file did not write is damaged, and never guessed at.
 *
 *	row		format (1 byte), sum (4), writer of the row before (8), counter (8),
 *			complete from (8), wall clock (8), entries
 *	entry	kind (1 byte; SAME_HOLDER), and by kind
 *	  PUT, CARRY		flags (1 byte), token, version, ttl, ttl - left, connection,
 *						acquired, server (8, of a session), name, holder, request
 *	  RENEW				ttl, count (2), tokens
 *	  END				count (2), tokens
 *	  GUARD				token, guard, mode (1), version
 *	  END_GUARD			token, guard
 *	  TAKE_OVER			nothing
 *
 * Where no size stands a number is written in groups of seven bits, the lowest first; a
 * string is its length and its bytes.  Fixed numbers have their lowest byte first.  A token
 * is written as the difference to the one before in the row, a guard as that to its token,
 * a lease's wall clock as that to the row's; a difference's lowest bit is its sign.  A
 * holder is owner, user and host; a lease of the same holder as the one before in the row
 * does not repeat it.
 *
 * The sum is over the row's number, its writer, and all that is behind the sum.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "log_table.h"

#include <string.h>

#define FORMAT			1

/* Where the parts of a header are. */
#define AT_SUM			1
#define AT_BEFORE		5
#define AT_COUNTER		13
#define AT_FROM			21
#define AT_WALL			29

/* In an entry's first byte, beside the kind. */
#define SAME_HOLDER		0x80

/* The flags of a lease: its mode, four times its lifetime, and these. */
#define IS_LEAVING		0x10
#define IS_REPEATED		0x20
#define IS_GONE			0x40
#define HAS_REQUEST		0x80

#define RUN_MOST		UINT16_MAX

/* A lease: two bytes, six numbers and the server, and the strings with their lengths. */
_Static_assert(2 + 6 * 10 + 8 + 3 * (2 + LEASE_STRING_MAX) + 2 + LOG_USER_MOST +
			   2 + LOG_HOST_MOST <= LOG_ENTRY_MOST, "an entry may be longer");

static uint64_t
read_fixed(const unsigned char *data, int size)
{
	uint64_t	number = 0;

	for (int i = 0; i < size; i++)
		number |= (uint64_t) data[i] << (8 * i);
	return number;
}

static void
write_fixed(unsigned char *data, uint64_t number, int size)
{
	for (int i = 0; i < size; i++)
		data[i] = (unsigned char) (number >> (8 * i));
}

/*
 * The sum of a row.  It has to find what an editor, a dump or a disk did to a row, not what
 * a forger does.
 */
static uint32_t
sum_of(uint64_t number, uint64_t writer, const unsigned char *data, size_t length)
{
	uint64_t	sum = length;

#define MIX(word) \
	(sum = (sum ^ (word)) * UINT64_C(0x9e3779b97f4a7c15), sum ^= sum >> 29)
	MIX(number);
	MIX(writer);
	data += AT_BEFORE;
	length -= AT_BEFORE;
	for (; length >= 8; data += 8, length -= 8)
		MIX(read_fixed(data, 8));
	MIX(read_fixed(data, (int) length));
#undef MIX
	return (uint32_t) (sum ^ sum >> 32);
}

/* A difference as a number that is small if it is. */
static uint64_t
fold_sign(uint64_t difference)
{
	return difference << 1 ^ (difference >> 63 ? UINT64_MAX : 0);
}

static uint64_t
unfold_sign(uint64_t number)
{
	return number >> 1 ^ (number & 1 ? UINT64_MAX : 0);
}

/* ----------------------------------------------------------------
 * Writing
 * ----------------------------------------------------------------
 */

/* Where the next byte goes; beyond "end" there is no room, and none is written. */
typedef struct log_pen
{
	unsigned char *at;
	unsigned char *end;
	bool		full;
} log_pen;

static void
put_bytes(log_pen *pen, const void *data, size_t length)
{
	if (pen->full || (size_t) (pen->end - pen->at) < length)
	{
		pen->full = true;
		return;
	}
	if (length > 0)
		memcpy(pen->at, data, length);
	pen->at += length;
}

static void
put_byte(log_pen *pen, unsigned int byte)
{
	unsigned char c = (unsigned char) byte;

	put_bytes(pen, &c, 1);
}

static void
put_fixed(log_pen *pen, uint64_t number, int size)
{
	unsigned char bytes[8];

	write_fixed(bytes, number, size);
	put_bytes(pen, bytes, (size_t) size);
}

static void
put_number(log_pen *pen, uint64_t number)
{
	for (; number >= 0x80; number >>= 7)
		put_byte(pen, (number & 0x7f) | 0x80);
	put_byte(pen, (unsigned int) number);
}

static void
put_difference(log_pen *pen, uint64_t number, uint64_t to)
{
	put_number(pen, fold_sign(number - to));
}

static void
put_string(log_pen *pen, lease_bytes string)
{
	put_number(pen, string.length);
	put_bytes(pen, string.data, string.length);
}

/* Write a lease: LOG_PUT or LOG_CARRY. */
static void
put_lease(log_pen *pen, log_slot *slot, const log_entry *entry, int64_t wall_us)
{
	log_draft  *draft = &slot->draft;
	unsigned char *first = pen->at;
	unsigned char *holder;
	size_t		length;

	put_byte(pen, entry->kind);
	put_byte(pen, entry->mode | (unsigned int) entry->lifetime << 2 |
			 (entry->leaving ? IS_LEAVING : 0) |
			 (entry->repeated ? IS_REPEATED : 0) |
			 (entry->gone ? IS_GONE : 0) |
			 (entry->request.length > 0 ? HAS_REQUEST : 0));
	put_difference(pen, entry->token, draft->token);
	put_number(pen, entry->version);
	put_number(pen, (uint64_t) entry->ttl_us);
	put_number(pen, (uint64_t) (entry->ttl_us - entry->left_us));
	put_number(pen, entry->connection_id);
	put_difference(pen, (uint64_t) entry->acquired_us, (uint64_t) wall_us);
	if (entry->lifetime == LEASE_SESSION)
		put_fixed(pen, entry->server, 8);
	put_string(pen, entry->name);

	holder = pen->at;
	put_string(pen, entry->owner);
	put_string(pen, entry->user);
	put_string(pen, entry->host);
	length = (size_t) (pen->at - holder);
	if (!pen->full && draft->holder > 0 && draft->holder_length == length &&
		memcmp(slot->data + draft->holder, holder, length) == 0)
	{
		pen->at = holder;
		*first |= SAME_HOLDER;
	}
	else
	{
		draft->holder = (size_t) (holder - slot->data);
		draft->holder_length = length;
	}
	if (entry->request.length > 0)
		put_string(pen, entry->request);
}

/* Write a token that needs nothing said but what is to be done to it: begin a run of these. */
static void
begin_run(log_pen *pen, log_slot *slot, const log_entry *entry)
{
	log_draft  *draft = &slot->draft;

	put_byte(pen, entry->kind);
	if (entry->kind == LOG_RENEW)
		put_number(pen, (uint64_t) entry->ttl_us);
	draft->run = (size_t) (pen->at - slot->data);
	draft->run_kind = entry->kind;
	draft->run_count = 1;
	draft->run_ttl_us = entry->ttl_us;
	put_fixed(pen, 1, 2);
	put_difference(pen, entry->token, draft->token);
}

/* Say whether the entry can be one more of the run at the end of a row. */
static bool
continues_run(const log_draft *draft, const log_entry *entry)
{
	return draft->run > 0 && draft->run_kind == entry->kind &&
		draft->run_count < RUN_MOST &&
		(entry->kind == LOG_END || draft->run_ttl_us == entry->ttl_us);
}

/* Add an entry to the last row of a batch.  False, and nothing has changed: no room. */
static bool
add_to_last(log_batch *batch, log_entry *entry)
{
	log_slot   *slot = &batch->slots[batch->count - 1];
	log_draft	before = slot->draft;
	log_draft  *draft = &slot->draft;
	log_pen		pen = {slot->data + draft->length, slot->data + log_row_most(batch), false};

	if (continues_run(draft, entry))
	{
		draft->run_count++;
		put_difference(&pen, entry->token, draft->token);
		if (!pen.full)
			write_fixed(slot->data + draft->run, draft->run_count, 2);
	}
	else
	{
		draft->run = 0;
		switch (entry->kind)
		{
			case LOG_PUT:
			case LOG_CARRY:
				put_lease(&pen, slot, entry, batch->wall_us);
				break;
			case LOG_RENEW:
			case LOG_END:
				begin_run(&pen, slot, entry);
				break;
			case LOG_GUARD:
			case LOG_END_GUARD:
				put_byte(&pen, entry->kind);
				put_difference(&pen, entry->token, draft->token);
				put_difference(&pen, entry->guard, entry->token);
				if (entry->kind == LOG_GUARD)
				{
					put_byte(&pen, entry->mode);
					put_number(&pen, entry->version);
				}
				break;
			case LOG_TAKE_OVER:
				put_byte(&pen, entry->kind);
				break;
		}
	}
	if (pen.full)
	{
		*draft = before;
		return false;
	}
	if (entry->kind != LOG_TAKE_OVER)
		draft->token = entry->token;
	entry->bytes = (size_t) (pen.at - slot->data) - draft->length;
	draft->length += entry->bytes;
	return true;
}

/* Begin one more row of a batch: false if there is no room. */
static bool
begin_slot(log_batch *batch)
{
	if (batch->count == batch->room)
		return false;
	batch->slots[batch->count++].draft = (log_draft) {.length = LOG_HEADER};
	return true;
}

/* Empty a batch; its rows will be of this time. */
void
log_begin(log_batch *batch, int64_t wall_us)
{
	batch->count = 0;
	batch->wall_us = wall_us;
}

/*
 * Add an entry to the end of a batch.  False, and nothing has changed, if there is no room
 * for one more row, or the entry is too long for any.
 */
bool
log_add(log_batch *batch, log_entry *entry)
{
	if (batch->count > 0 && add_to_last(batch, entry))
		return true;
	if (!begin_slot(batch))
		return false;
	if (add_to_last(batch, entry))
		return true;
	batch->count--;
	return false;
}

/* The end of a batch as it is now. */
log_mark
log_end_of(const log_batch *batch)
{
	log_mark	mark = {.count = batch->count};

	if (batch->count > 0)
		mark.last = batch->slots[batch->count - 1].draft;
	return mark;
}

/* Take away what was added behind a mark. */
void
log_cut(log_batch *batch, const log_mark *mark)
{
	log_slot   *slot;

	batch->count = mark->count;
	if (mark->count == 0)
		return;
	slot = &batch->slots[mark->count - 1];
	slot->draft = mark->last;
	if (slot->draft.run > 0)
		write_fixed(slot->data + slot->draft.run, slot->draft.run_count, 2);
}

/*
 * Finish the rows of a batch, as the run "me" will append them behind a position; one row,
 * if it has no entry, for which there must be room.  "counter" is the last token by then.
 * All that is held will be in the rows from number "from" on; of several rows only the last
 * says so, since a reader expects that behind a row that does no lease is unknown.
 */
void
log_seal(log_batch *batch, const log_position *position, uint64_t me,
		 uint64_t counter, uint64_t from)
{
	if (batch->count == 0)
		begin_slot(batch);
	for (size_t i = 0; i < batch->count; i++)
	{
		unsigned char *data = batch->slots[i].data;

		data[0] = FORMAT;
		write_fixed(data + AT_BEFORE, i == 0 ? position->writer : me, 8);
		write_fixed(data + AT_COUNTER, counter, 8);
		write_fixed(data + AT_FROM,
					i + 1 < batch->count ? position->from : from, 8);
		write_fixed(data + AT_WALL, (uint64_t) batch->wall_us, 8);
		write_fixed(data + AT_SUM,
					sum_of(position->number + 1 + i, me, data,
						   batch->slots[i].draft.length), 4);
	}
}

/* From which number on a sealed row says that the log is complete. */
uint64_t
log_from_of(const log_slot *slot)
{
	return read_fixed(slot->data + AT_FROM, 8);
}

/* How many bytes the rows of a batch have. */
size_t
log_batch_bytes(const log_batch *batch)
{
	size_t		bytes = 0;

	for (size_t i = 0; i < batch->count; i++)
		bytes += batch->slots[i].draft.length;
	return bytes;
}

/* ----------------------------------------------------------------
 * Reading
 * ----------------------------------------------------------------
 */

/* What is still to be read; "bad" if it was not what it should be. */
typedef struct log_eye
{
	const unsigned char *at;
	const unsigned char *end;
	bool		bad;
} log_eye;

/* Get that many bytes; NULL if there are not. */
static const unsigned char *
get_bytes(log_eye *eye, size_t length)
{
	const unsigned char *data = eye->at;

	if (eye->bad || (size_t) (eye->end - eye->at) < length)
	{
		eye->bad = true;
		return NULL;
	}
	eye->at += length;
	return data;
}

static unsigned int
get_byte(log_eye *eye)
{
	const unsigned char *data = get_bytes(eye, 1);

	return data != NULL ? *data : 0;
}

static uint64_t
get_fixed(log_eye *eye, int size)
{
	const unsigned char *data = get_bytes(eye, (size_t) size);

	return data != NULL ? read_fixed(data, size) : 0;
}

/* A number, as short as it can be. */
static uint64_t
get_number(log_eye *eye)
{
	uint64_t	number = 0;

	for (int shift = 0; shift < 64; shift += 7)
	{
		unsigned int byte = get_byte(eye);

		number |= (uint64_t) (byte & 0x7f) << shift;
		if (byte >= 0x80)
			continue;
		eye->bad |= (byte == 0 && shift > 0) || (shift == 63 && byte > 1);
		return number;
	}
	eye->bad = true;
	return 0;
}

/* A number within bounds, even if what was read is bad. */
static uint64_t
get_within(log_eye *eye, uint64_t least, uint64_t most)
{
	uint64_t	number = get_number(eye);

	eye->bad |= number < least || number > most;
	return eye->bad ? least : number;
}

static uint64_t
get_difference(log_eye *eye, uint64_t to)
{
	return to + unfold_sign(get_number(eye));
}

/* A token, or a guard's number; none is above the row's counter. */
static uint64_t
get_token(log_eye *eye, const log_row *row, uint64_t to)
{
	uint64_t	token = get_difference(eye, to);

	eye->bad |= token == 0 || token > row->counter;
	return token;
}

static lease_bytes
get_string(log_eye *eye, size_t least, size_t most)
{
	size_t		length = (size_t) get_within(eye, least, most);
	const unsigned char *data = get_bytes(eye, length);

	return data != NULL ? (lease_bytes) {(const char *) data, length} :
		(lease_bytes) {"", 0};
}

static lease_mode
get_mode(log_eye *eye, unsigned int byte)
{
	eye->bad |= byte < LEASE_MODE_FIRST || byte > LEASE_MODE_LAST;
	return eye->bad ? LEASE_MODE_FIRST : (lease_mode) byte;
}

/* Read a lease: LOG_PUT or LOG_CARRY. */
static void
get_lease(log_eye *eye, log_reader *reader, log_entry *entry, bool same_holder)
{
	unsigned int flags = get_byte(eye);
	unsigned int lifetime = flags >> 2 & 3;

	entry->mode = get_mode(eye, flags & 3);
	eye->bad |= lifetime < LEASE_KIND_FIRST;
	entry->lifetime = lifetime < LEASE_KIND_FIRST ? LEASE_KIND_FIRST :
		(lease_kind) lifetime;
	entry->leaving = (flags & IS_LEAVING) != 0;
	entry->repeated = (flags & IS_REPEATED) != 0;
	entry->gone = (flags & IS_GONE) != 0;
	eye->bad |= entry->gone && entry->kind == LOG_PUT;
	entry->token = get_token(eye, reader->row, reader->token);
	entry->version = (uint32_t) get_within(eye, 1, LEASE_VERSION_MAX);
	entry->ttl_us = (int64_t) get_within(eye, 0, LEASE_TTL_MAX_US);
	entry->left_us = entry->ttl_us -
		(int64_t) get_within(eye, 0, (uint64_t) entry->ttl_us);
	entry->connection_id = get_number(eye);
	entry->acquired_us = (int64_t) get_difference(eye,
												  (uint64_t) reader->row->wall_us);
	if (entry->lifetime == LEASE_SESSION)
		entry->server = get_fixed(eye, 8);
	entry->name = get_string(eye, 1, LEASE_STRING_MAX);
	if (!same_holder)
	{
		reader->owner = get_string(eye, 1, LEASE_STRING_MAX);
		reader->user = get_string(eye, 0, LOG_USER_MOST);
		reader->host = get_string(eye, 0, LOG_HOST_MOST);
	}
	eye->bad |= reader->owner.length == 0;
	entry->owner = reader->owner;
	entry->user = reader->user;
	entry->host = reader->host;
	if (flags & HAS_REQUEST)
		entry->request = get_string(eye, 1, LEASE_STRING_MAX);
}

/* Read the next token of a run of LOG_RENEW or LOG_END. */
static void
get_of_run(log_eye *eye, log_reader *reader, log_entry *entry)
{
	reader->run_count--;
	entry->kind = reader->run_kind;
	entry->token = get_token(eye, reader->row, reader->token);
	entry->ttl_us = entry->left_us = reader->run_ttl_us;
}

/* Read the next entry, from its first byte on. */
static void
get_entry(log_eye *eye, log_reader *reader, log_entry *entry)
{
	unsigned int byte = get_byte(eye);
	unsigned int kind = byte & ~(unsigned int) SAME_HOLDER;

	if (kind < LOG_KIND_FIRST || kind > LOG_KIND_LAST ||
		(byte != kind && kind > LOG_CARRY))
	{
		eye->bad = true;
		return;
	}
	entry->kind = (log_kind) kind;
	switch (entry->kind)
	{
		case LOG_PUT:
		case LOG_CARRY:
			get_lease(eye, reader, entry, byte != kind);
			break;
		case LOG_RENEW:
		case LOG_END:
			reader->run_kind = entry->kind;
			reader->run_ttl_us = entry->kind == LOG_RENEW ?
				(int64_t) get_within(eye, 0, LEASE_TTL_MAX_US) : 0;
			reader->run_count = (uint32_t) get_fixed(eye, 2);
			eye->bad |= reader->run_count == 0;
			if (!eye->bad)
				get_of_run(eye, reader, entry);
			break;
		case LOG_GUARD:
		case LOG_END_GUARD:
			entry->token = get_token(eye, reader->row, reader->token);
			entry->guard = get_token(eye, reader->row, entry->token);
			if (entry->kind == LOG_GUARD)
			{
				entry->mode = get_mode(eye, get_byte(eye));
				entry->version = (uint32_t) get_within(eye, 1, LEASE_VERSION_MAX);
			}
			break;
		case LOG_TAKE_OVER:
			break;
	}
}

/*
 * Read the header of a row with this number and writer.  False: it is damaged.  The row
 * points to the data.
 */
bool
log_read_row(log_row *row, uint64_t number, uint64_t writer, const void *data,
			 size_t length)
{
	const unsigned char *bytes = data;

	if (length < LOG_HEADER || length > LOG_ROW_MOST || bytes[0] != FORMAT ||
		read_fixed(bytes + AT_SUM, 4) != sum_of(number, writer, bytes, length))
		return false;
	*row = (log_row) {
		.number = number,
		.writer = writer,
		.before = read_fixed(bytes + AT_BEFORE, 8),
		.counter = read_fixed(bytes + AT_COUNTER, 8),
		.from = read_fixed(bytes + AT_FROM, 8),
		.wall_us = (int64_t) read_fixed(bytes + AT_WALL, 8),
		.entries = bytes + LOG_HEADER,
		.length = length - LOG_HEADER,
	};
	return row->from >= 1 && row->from <= number &&
		row->counter <= LEASE_TOKEN_MAX;
}

/* Begin to read the entries of a row. */
log_reader
log_read_entries(const log_row *row)
{
	return (log_reader) {
		.row = row,
		.owner = {"", 0}, .user = {"", 0}, .host = {"", 0},
	};
}

/* Read the next entry of a row; its strings are in the row's memory. */
log_read
log_next(log_reader *reader, log_entry *entry)
{
	const unsigned char *entries = reader->row->entries;
	log_eye		eye = {entries + reader->at, entries + reader->row->length, false};

	if (eye.at == eye.end && reader->run_count == 0)
		return LOG_READ_END;
	*entry = (log_entry) {
		.name = {"", 0}, .owner = {"", 0}, .user = {"", 0}, .host = {"", 0},
		.request = {"", 0},
	};
	if (reader->run_count > 0)
		get_of_run(&eye, reader, entry);
	else
		get_entry(&eye, reader, entry);
	if (eye.bad)
		return LOG_READ_DAMAGED;
	if (entry->kind != LOG_TAKE_OVER)
		reader->token = entry->token;
	entry->bytes = (size_t) (eye.at - entries) - reader->at;
	reader->at += entry->bytes;
	return LOG_READ_ENTRY;
}
