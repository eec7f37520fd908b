/*
 * lease_journal.c
 *	  Leases that have no row of their own yet.
 *
 * Most leases are given back soon.  To insert a row for each, and to delete it,
 * costs the server several times what all the rest of a grant does.  So where
 * nobody else can write the table, new leases are first written all together
 * into one row of dlock.lease_journal, replaced with each commit.  What has been
 * released until then is simply not written again; what is still held after
 * LEASE_JOURNAL_US gets its row in dlock.lease_table.
 *
 * - A lease is either in the journal or in the lock table, never in both: it
 *	  goes from one to the other in one transaction.
 * - Whoever reads the lock table in order to write moves all leases there
 *	  first.  So guards, views, and every call that is not made by what is
 *	  believed (lease_belief.c) find rows only.  Those who only look are shown
 *	  both, and the reaper comes to what has rows.
 * - The journal is replaced only if it is what this run has written last, which
 *	  "changes" and "writer" tell.  Each run takes over before its first grant:
 *	  it moves what it finds into the lock table, and so changes the journal.
 *	  Hence no run goes on granting by what it remembers after another one has.
 * - That a name is not in the lock table, the INSERT of a row would find out;
 *	  the journal has to be told (lease_present.c).
 *
 * Here is what the journal has, as of the last commit, and what the transaction
 * under way makes of it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_journal.h"

#include <stdlib.h>
#include <string.h>

#include "lease_batch.h"

/* How long a lease may be without a row. */
#define LEASE_JOURNAL_US	100000

/*
 * About how many bytes it may have.  Beyond 8 kB InnoDB keeps them apart from
 * the row, and the column can have 64.
 */
#define LEASE_JOURNAL_BYTES	32000

/* The first line: how the rest is written. */
#define FORMAT			"1\n"

/* What the numbers of a lease need at most, with all the spaces, and usually. */
#define MOST_NUMBERS	(11 * 21 + 6)
#define USUAL_NUMBERS	110

typedef struct entry
{
	uint64_t	hash;			/* of the name */
	size_t		name_length;
	char		name[LEASE_STRING_MAX];
	lease_row	row;
	int64_t		since_us;
	bool		added;			/* by the transaction under way */
	bool		removed;		/* by it */
} entry;

struct lease_journal
{
	entry	  **entries;
	size_t		count;
	size_t		room;
	bool		changed;
	char	   *data;			/* as encoded last */
	size_t		length;
	size_t		data_room;
};

lease_journal *
lease_journal_create(void)
{
	return calloc(1, sizeof(lease_journal));
}

static lease_bytes
name_of(const entry *e)
{
	return (lease_bytes) {e->name, e->name_length};
}

/* A lease of a name that it has had, and will have, or NULL. */
static entry *
find(const lease_journal *journal, lease_bytes name)
{
	uint64_t	hash = lease_hash(name, 0);

	for (size_t i = 0; i < journal->count; i++)
	{
		entry	   *e = journal->entries[i];

		if (e->hash == hash && !e->added && !e->removed &&
			lease_same(name_of(e), name))
			return e;
	}
	return NULL;
}

/* Say whether there is such a lease. */
bool
lease_journal_has(const lease_journal *journal, lease_bytes name)
{
	return find(journal, name) != NULL;
}

void
lease_journal_add(lease_journal *journal, lease_bytes name,
				  const lease_row *row)
{
	entry	   *e = malloc(sizeof(entry));

	if (e == NULL)
		abort();
	*e = (entry) {
		.hash = lease_hash(name, 0),
		.name_length = name.length,
		.row = *row,
		.since_us = lease_now(),
		.added = true,
	};
	memcpy(e->name, name.data, name.length);
	if (journal->count == journal->room)
		journal->entries = lease_grow(journal->entries, &journal->room,
									  sizeof(entry *));
	journal->entries[journal->count++] = e;
	journal->changed = true;
}

/*
 * Remove the lease of a name: false if there is none.  Who removes one has it from
 * the cache, which has no names with several.
 */
bool
lease_journal_remove(lease_journal *journal, lease_bytes name)
{
	entry	   *e = find(journal, name);

	if (e == NULL)
		return false;
	e->removed = true;
	journal->changed = true;
	return true;
}

void
lease_journal_remove_all(lease_journal *journal)
{
	for (size_t i = 0; i < journal->count; i++)
	{
		journal->entries[i]->removed = true;
		journal->changed = true;
	}
}

/* Visit all leases that it will have. */
void
lease_journal_visit(const lease_journal *journal, lease_journal_visitor visit,
					void *context)
{
	for (size_t i = 0; i < journal->count; i++)
		if (!journal->entries[i]->removed)
			visit(name_of(journal->entries[i]), &journal->entries[i]->row,
				  context);
}

/* Say whether the transaction under way makes another of it. */
bool
lease_journal_is_changed(const lease_journal *journal)
{
	return journal->changed;
}

/* When its leases should be moved: the first was there first. */
int64_t
lease_journal_due_us(const lease_journal *journal)
{
	return journal->count > 0 ?
		journal->entries[0]->since_us + LEASE_JOURNAL_US : INT64_MAX;
}

/* ----------------------------------------------------------------
 * What is written
 *
 * A line for the format, then one for each lease: its strings in hexadecimal, and
 * its numbers in decimal, each followed by a space.  It is text because the server
 * shows it with the statement: where that is not text, a MySQL that is asked for
 * all connections, by way of information_schema, answers with an error.
 * ----------------------------------------------------------------
 */

static void
put_number(lease_journal *journal, uint64_t number)
{
	char		digits[20];
	size_t		n = 0;

	do
		digits[n++] = (char) ('0' + number % 10);
	while ((number /= 10) > 0);
	while (n > 0)
		journal->data[journal->length++] = digits[--n];
	journal->data[journal->length++] = ' ';
}

static void
put_bytes(lease_journal *journal, const char *data, size_t length)
{
	static const char hex[] = "0123456789abcdef";

	for (size_t i = 0; i < length; i++)
	{
		unsigned char byte = (unsigned char) data[i];

		journal->data[journal->length++] = hex[byte >> 4];
		journal->data[journal->length++] = hex[byte & 15];
	}
	journal->data[journal->length++] = ' ';
}

/* How long the strings of a lease are. */
static size_t
string_bytes(const entry *e)
{
	return e->name_length + e->row.owner_length + e->row.request_length +
		strlen(e->row.user) + strlen(e->row.host);
}

/* What it will be. */
const char *
lease_journal_encode(lease_journal *journal, size_t *length)
{
	size_t		most = sizeof(FORMAT);

	for (size_t i = 0; i < journal->count; i++)
		most += 2 * string_bytes(journal->entries[i]) + MOST_NUMBERS;
	if (journal->data_room < most)
	{
		free(journal->data);
		journal->data = malloc(most);
		if (journal->data == NULL)
			abort();
		journal->data_room = most;
	}
	journal->length = strlen(FORMAT);
	memcpy(journal->data, FORMAT, journal->length);
	for (size_t i = 0; i < journal->count; i++)
	{
		const entry *e = journal->entries[i];
		const lease_row *row = &e->row;

		if (e->removed)
			continue;
		put_bytes(journal, e->name, e->name_length);
		put_bytes(journal, row->owner, row->owner_length);
		put_bytes(journal, row->request, row->request_length);
		put_bytes(journal, row->user, strlen(row->user));
		put_bytes(journal, row->host, strlen(row->host));
		put_number(journal, row->slot);
		put_number(journal, (uint64_t) row->mode);
		put_number(journal, (uint64_t) row->kind);
		put_number(journal, row->version);
		put_number(journal, row->token);
		put_number(journal, (uint64_t) row->ttl_us);
		put_number(journal, row->writes);
		put_number(journal, (uint64_t) row->deadline_us);
		put_number(journal, row->connection_id);
		put_number(journal, (uint64_t) row->acquired_us);
		put_number(journal, (uint64_t) row->expires_us);
		journal->data[journal->length++] = '\n';
	}
	*length = journal->length;
	return journal->data;
}

/* Say whether it will be too long. */
bool
lease_journal_is_full(const lease_journal *journal)
{
	size_t		length = 0;

	for (size_t i = 0; i < journal->count; i++)
		if (!journal->entries[i]->removed)
			length += 2 * string_bytes(journal->entries[i]) + USUAL_NUMBERS;
	return length > LEASE_JOURNAL_BYTES;
}

/* What is left to be decoded. */
typedef struct input
{
	const char *data;
	const char *end;
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
	in->damaged |= in->data == start || !take(in, ' ');
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

/* Get a string of at most "size" bytes; returns its length. */
static size_t
get_bytes(input *in, char *to, size_t size)
{
	size_t		length = 0;
	int			high;
	int			low;

	while ((high = digit_at(in)) >= 0)
	{
		in->data++;
		low = digit_at(in);
		if (low < 0 || length == size)
		{
			in->damaged = true;
			return 0;
		}
		in->data++;
		to[length++] = (char) (high << 4 | low);
	}
	in->damaged |= !take(in, ' ');
	return length;
}

/* Visit what was encoded, by a writer: false if it is damaged. */
bool
lease_journal_decode(const char *data, size_t length, uint64_t writer,
					 lease_journal_visitor visit, void *context)
{
	input		in = {data, data + length, false};

	if (length == 0)
		return true;			/* nobody has written it yet */
	if (length < strlen(FORMAT) || memcmp(data, FORMAT, strlen(FORMAT)) != 0)
		return false;
	in.data += strlen(FORMAT);
	while (in.data < in.end)
	{
		char		name[LEASE_STRING_MAX];
		size_t		name_length = get_bytes(&in, name, sizeof(name));
		lease_row	row = {.writer = writer};

		row.owner_length = (uint8_t) get_bytes(&in, row.owner,
											   sizeof(row.owner));
		row.request_length = (uint8_t) get_bytes(&in, row.request,
												 sizeof(row.request));
		get_bytes(&in, row.user, sizeof(row.user) - 1);
		get_bytes(&in, row.host, sizeof(row.host) - 1);
		row.slot = (uint32_t) get_number(&in);
		row.mode = (lease_mode) get_number(&in);
		row.kind = (lease_kind) get_number(&in);
		row.version = (uint32_t) get_number(&in);
		row.token = get_number(&in);
		row.ttl_us = (int64_t) get_number(&in);
		row.writes = get_number(&in);
		row.deadline_us = (int64_t) get_number(&in);
		row.connection_id = get_number(&in);
		row.acquired_us = (int64_t) get_number(&in);
		row.expires_us = (int64_t) get_number(&in);
		if (!take(&in, '\n') || in.damaged || name_length == 0 ||
			row.owner_length == 0 ||
			row.mode < LEASE_EXCLUSIVE || row.mode > LEASE_PERMIT ||
			row.kind != LEASE_PLAIN)
			return false;
		visit((lease_bytes) {name, name_length}, &row, context);
	}
	return true;
}

/* ----------------------------------------------------------------
 * The end of the transaction
 * ----------------------------------------------------------------
 */

/* Drop the leases that the transaction has removed, or else has added. */
static void
drop(lease_journal *journal, bool removed)
{
	size_t		n = 0;

	for (size_t i = 0; i < journal->count; i++)
	{
		entry	   *e = journal->entries[i];

		if (removed ? e->removed : e->added)
		{
			free(e);
			continue;
		}
		e->added = e->removed = false;
		journal->entries[n++] = e;
	}
	journal->count = n;
	journal->changed = false;
}

/* It was committed. */
void
lease_journal_keep(lease_journal *journal)
{
	drop(journal, true);
}

/* It was rolled back. */
void
lease_journal_undo(lease_journal *journal)
{
	drop(journal, false);
}

/* Nobody knows, or another run has the journal now. */
void
lease_journal_clear(lease_journal *journal)
{
	lease_journal_remove_all(journal);
	drop(journal, true);
}
