/*
 * log_fold.h
 *	  For tests of the log: what its rows come to, slowly and plainly, and random changes.
 *
 * A fold is an array of leases that is searched from its beginning.  It is what a reader
 * gets by applying rows; and the image of a writer, who applies each entry as he adds it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LOG_FOLD_H
#define DLOCK_LOG_FOLD_H

#include "log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARDS_MOST		6		/* of a lease */

typedef struct fold_guard
{
	uint64_t	guard;
	lease_mode	mode;
	uint32_t	version;
} fold_guard;

typedef struct fold_lease
{
	log_entry	lease;			/* its strings are in "strings" */
	char		strings[3 * LEASE_STRING_MAX + LOG_USER_MOST + LOG_HOST_MOST];
	fold_guard	guards[GUARDS_MOST];
	size_t		nguards;
	uint64_t	place;			/* the row that has it whole */
	uint64_t	at;				/* how many bytes all rows had before it */
} fold_lease;

typedef struct fold
{
	fold_lease *leases;
	size_t		count;
	size_t		room;
	uint64_t	counter;
	uint64_t	take_overs;
	uint64_t	bytes;			/* of all rows */
} fold;

__attribute__((format(printf, 1, 2), noreturn))
static void
fail(const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

/* Get so much memory, and a byte more. */
static inline void *
get_memory(void *old, size_t size)
{
	void	   *memory = realloc(old, size + 1);

	if (memory == NULL)
		fail("out of memory");
	return memory;
}

/* ----------------------------------------------------------------
 * The fold
 * ----------------------------------------------------------------
 */

static inline fold_lease *
fold_find(fold *f, uint64_t token)
{
	for (size_t i = 0; i < f->count; i++)
		if (f->leases[i].lease.token == token)
			return &f->leases[i];
	return NULL;
}

/* A lease's strings. */
#define NSTRINGS	5

static inline void
strings_of(log_entry *entry, lease_bytes **strings)
{
	strings[0] = &entry->name;
	strings[1] = &entry->owner;
	strings[2] = &entry->user;
	strings[3] = &entry->host;
	strings[4] = &entry->request;
}

/* A lease was moved in memory, with its strings. */
static inline void
fold_moved(fold_lease *l)
{
	lease_bytes *strings[NSTRINGS];
	size_t		used = 0;

	strings_of(&l->lease, strings);
	for (size_t i = 0; i < NSTRINGS; i++)
	{
		strings[i]->data = l->strings + used;
		used += strings[i]->length;
	}
}

/* Set a lease to an entry; its strings are copied. */
static inline void
fold_set(fold_lease *l, const log_entry *entry)
{
	lease_bytes *strings[NSTRINGS];
	char		copy[sizeof(l->strings)];	/* they may be the lease's own */
	size_t		used = 0;

	l->lease = *entry;
	strings_of(&l->lease, strings);
	for (size_t i = 0; i < NSTRINGS; i++)
	{
		if (strings[i]->length > 0)
			memcpy(copy + used, strings[i]->data, strings[i]->length);
		used += strings[i]->length;
	}
	memcpy(l->strings, copy, used);
	fold_moved(l);
}

static inline fold_lease *
fold_new(fold *f)
{
	if (f->count == f->room)
	{
		f->room = f->room * 2 + 16;
		f->leases = get_memory(f->leases, f->room * sizeof(fold_lease));
		for (size_t i = 0; i < f->count; i++)
			fold_moved(&f->leases[i]);
	}
	memset(&f->leases[f->count], 0, sizeof(fold_lease));
	return &f->leases[f->count++];
}

static inline void
fold_remove(fold *f, fold_lease *l)
{
	*l = f->leases[--f->count];
	fold_moved(l);
}

/* Make one fold a copy of another. */
static inline void
fold_copy(fold *to, const fold *from)
{
	fold		old = *to;

	*to = *from;
	to->leases = old.leases;
	to->room = old.room;
	if (to->room < from->count)
	{
		to->room = from->count * 2;
		to->leases = get_memory(to->leases, to->room * sizeof(fold_lease));
	}
	for (size_t i = 0; i < from->count; i++)
	{
		to->leases[i] = from->leases[i];
		fold_moved(&to->leases[i]);
	}
}

static inline void
fold_clear(fold *f)
{
	f->count = 0;
	f->counter = f->take_overs = f->bytes = 0;
}

static inline void
fold_place(const fold *f, fold_lease *l, uint64_t place)
{
	l->place = place;
	l->at = f->bytes;
}

/* Apply an entry of a row.  False: its lease, or guard, is not known. */
static inline bool
fold_entry(fold *f, const log_entry *entry, uint64_t place)
{
	fold_lease *l = entry->kind == LOG_TAKE_OVER ? NULL : fold_find(f, entry->token);
	size_t		g;

	if (entry->token > f->counter)
		f->counter = entry->token;
	if (entry->guard > f->counter)
		f->counter = entry->guard;
	switch (entry->kind)
	{
		case LOG_PUT:
		case LOG_CARRY:
			/* without its guards, the lease is not whole there */
			if (l == NULL || l->nguards == 0 || entry->kind == LOG_CARRY)
			{
				if (l != NULL)
					fold_place(f, l, place);
				else
				{
					l = fold_new(f);
					fold_set(l, entry);
					fold_place(f, l, place);
				}
			}
			if (entry->kind == LOG_PUT)
				fold_set(l, entry);
			return true;
		case LOG_RENEW:
			if (l != NULL)
				l->lease.ttl_us = l->lease.left_us = entry->ttl_us;
			return l != NULL;
		case LOG_END:
			if (l == NULL || l->lease.gone)
				return false;
			l->lease.gone = true;
			if (l->nguards == 0)
				fold_remove(f, l);
			return true;
		case LOG_GUARD:
		case LOG_END_GUARD:
			if (l == NULL)
				return false;
			for (g = 0; g < l->nguards && l->guards[g].guard != entry->guard; g++)
				;
			if (entry->kind == LOG_END_GUARD)
			{
				if (g == l->nguards)
					return false;
				l->guards[g] = l->guards[--l->nguards];
				if (l->nguards == 0 && l->lease.gone)
					fold_remove(f, l);
			}
			else if (g == l->nguards)
			{
				if (g == GUARDS_MOST)
					fail("too many guards");
				l->guards[l->nguards++] =
					(fold_guard) {entry->guard, entry->mode, entry->version};
			}
			return true;
		case LOG_TAKE_OVER:
			f->take_overs++;
			return true;
	}
	return false;
}

/* Apply a row: a log_visitor. */
static inline log_visit
fold_visit(void *context, const log_row *row)
{
	fold	   *f = context;
	log_reader	reader = log_read_entries(row);
	log_entry	entry;
	log_read	read;
	bool		unknown = false;

	while ((read = log_next(&reader, &entry)) == LOG_READ_ENTRY)
		unknown |= !fold_entry(f, &entry, row->number);
	if (read == LOG_READ_DAMAGED)
		return LOG_VISIT_DAMAGED;
	if (row->counter > f->counter)
		f->counter = row->counter;
	f->bytes += LOG_HEADER + row->length;
	return unknown ? LOG_VISIT_UNKNOWN : LOG_VISITED;
}

static inline bool
same_bytes(lease_bytes a, lease_bytes b)
{
	return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

/* Are all parts of two entries the same, but for how much time is left, and the bytes? */
static inline bool
same_lease(const log_entry *a, const log_entry *b)
{
	return a->token == b->token && a->ttl_us == b->ttl_us && a->mode == b->mode &&
		a->version == b->version && a->lifetime == b->lifetime &&
		a->leaving == b->leaving && a->repeated == b->repeated && a->gone == b->gone &&
		same_bytes(a->name, b->name) && same_bytes(a->owner, b->owner) &&
		same_bytes(a->user, b->user) && same_bytes(a->host, b->host) &&
		same_bytes(a->request, b->request) &&
		a->connection_id == b->connection_id && a->server == b->server &&
		a->acquired_us == b->acquired_us;
}

/* Say how two folds differ, or NULL. */
static inline const char *
fold_differ(fold *a, fold *b)
{
	static char what[200];

	for (size_t i = 0; i < a->count; i++)
	{
		fold_lease *one = &a->leases[i];
		fold_lease *match = fold_find(b, one->lease.token);

		if (match == NULL || !same_lease(&one->lease, &match->lease) ||
			one->nguards != match->nguards)
		{
			snprintf(what, sizeof(what), "token %" PRIu64 " %s", one->lease.token,
					 match == NULL ? "is in one alone" : "differs");
			return what;
		}
		for (size_t g = 0; g < one->nguards; g++)
		{
			size_t		h = 0;

			while (h < match->nguards && (one->guards[g].guard != match->guards[h].guard ||
										  one->guards[g].mode != match->guards[h].mode ||
										  one->guards[g].version != match->guards[h].version))
				h++;
			if (h == match->nguards)
			{
				snprintf(what, sizeof(what), "a guard of token %" PRIu64 " differs",
						 one->lease.token);
				return what;
			}
		}
	}
	if (a->count != b->count)
	{
		snprintf(what, sizeof(what), "%zu leases and %zu", a->count, b->count);
		return what;
	}
	return a->counter != b->counter ? "the counters differ" : NULL;
}

/* ----------------------------------------------------------------
 * Chance
 * ----------------------------------------------------------------
 */

static uint64_t chance_state = 1;

static inline uint64_t
chance(void)
{
	chance_state ^= chance_state << 13;
	chance_state ^= chance_state >> 7;
	chance_state ^= chance_state << 17;
	return chance_state * UINT64_C(0x2545f4914f6cdd1d) >> 8;
}

/* A number from 0 to n - 1. */
static inline uint64_t
below(uint64_t n)
{
	return chance() % n;
}

/* A number of any size, at most "most". */
static inline uint64_t
any_size(uint64_t most)
{
	uint64_t	number = (chance() << 20 ^ chance()) >> below(64);

	return most == UINT64_MAX ? number : number % (most + 1);
}

static inline bool
one_in(uint64_t n)
{
	return below(n) == 0;
}

/* A string of that length at most, in memory that lasts until the next call with it. */
static inline lease_bytes
any_string(char *memory, size_t least, size_t most)
{
	size_t		length = one_in(8) ? least + below(most - least + 1) :
		least + below(12) % (most - least + 1);

	for (size_t i = 0; i < length; i++)
		memory[i] = (char) (one_in(10) ? chance() : 'a' + below(4));
	return (lease_bytes) {memory, length};
}

/* ----------------------------------------------------------------
 * A writer: his image, and a batch
 * ----------------------------------------------------------------
 */

typedef struct writer
{
	fold		image;
	log_batch	batch;
	log_position position;		/* the batch will be behind it */
	uint64_t	me;
	uint64_t	server;
	size_t		leases_most;	/* above it leases are ended */
	char		memory[NSTRINGS][LOG_USER_MOST];
} writer;

/* Add an entry to the batch, and to the image.  False: the batch has no room. */
static inline bool
writer_add(writer *w, log_entry *entry)
{
	if (!log_add(&w->batch, entry))
		return false;
	if (!fold_entry(&w->image, entry, w->position.number + w->batch.count))
		fail("a change of what is not known");
	return true;
}

/* Set the parts of a lease that a call may change. */
static inline void
draw_lease(writer *w, log_entry *entry)
{
	entry->ttl_us = (int64_t) any_size(LEASE_TTL_MAX_US);
	entry->left_us = one_in(2) ? entry->ttl_us :
		(int64_t) any_size((uint64_t) entry->ttl_us);
	entry->mode = LEASE_MODE_FIRST + (lease_mode) below(3);
	entry->version = 1 + (uint32_t) any_size(LEASE_VERSION_MAX - 1);
	entry->leaving = one_in(8);
	entry->repeated = one_in(8);
	entry->request = one_in(3) ? any_string(w->memory[4], 1, LEASE_STRING_MAX) :
		(lease_bytes) {"", 0};
}

/* Add a new lease. */
static inline bool
add_new(writer *w)
{
	static const char *const owners[] = {"worker", "w2", "somebody else"};
	const char *owner = owners[below(3)];
	log_entry	entry = {.kind = LOG_PUT};

	entry.token = w->image.counter + 1 + any_size(1000);
	draw_lease(w, &entry);
	entry.lifetime = one_in(4) ? LEASE_SESSION : LEASE_PLAIN;
	if (entry.lifetime == LEASE_SESSION)
		entry.server = w->server;
	entry.name = any_string(w->memory[0], 1, LEASE_STRING_MAX);
	entry.owner = (lease_bytes) {owner, strlen(owner)};
	entry.user = (lease_bytes) {"tester", 6};
	entry.host = (lease_bytes) {"localhost", 9};
	if (one_in(5))
	{
		entry.owner = any_string(w->memory[1], 1, LEASE_STRING_MAX);
		entry.user = any_string(w->memory[2], 0, LOG_USER_MOST);
		entry.host = any_string(w->memory[3], 0, LOG_HOST_MOST);
	}
	entry.connection_id = any_size(UINT64_MAX);
	entry.acquired_us = w->batch.wall_us;
	return writer_add(w, &entry);
}

/* Add what there is of a lease's guards, so that it is whole in this row. */
static inline bool
add_guards(writer *w, uint64_t token)
{
	fold_lease *l = fold_find(&w->image, token);

	for (size_t i = 0; i < l->nguards; i++)
	{
		log_entry	entry = {
			.kind = LOG_GUARD,.token = token,.guard = l->guards[i].guard,
			.mode = l->guards[i].mode,.version = l->guards[i].version
		};

		if (!writer_add(w, &entry))
			return false;
	}
	return true;
}

/* Add some change of a lease that is there. */
static inline bool
add_change(writer *w)
{
	fold_lease *l = &w->image.leases[below(w->image.count)];
	log_entry	entry = l->lease;

	if (l->nguards > 0 && one_in(2))
	{
		entry = (log_entry) {
			.kind = LOG_END_GUARD,.token = l->lease.token,
			.guard = l->guards[below(l->nguards)].guard
		};
		return writer_add(w, &entry);
	}
	if (l->lease.gone)
		return true;
	if (w->image.count > w->leases_most || one_in(3))
		entry.kind = LOG_END;
	else if (one_in(2))
	{
		entry.kind = LOG_RENEW;
		entry.ttl_us = (int64_t) any_size(LEASE_TTL_MAX_US);
	}
	else if (one_in(3) && l->nguards < GUARDS_MOST)
	{
		entry.kind = LOG_GUARD;
		entry.guard = w->image.counter + 1;
		entry.mode = l->lease.mode;
		entry.version = l->lease.version;
	}
	else
	{
		entry.kind = LOG_PUT;
		draw_lease(w, &entry);
	}
	if (entry.kind != LOG_PUT)
		entry.name = entry.owner = entry.user = entry.host = entry.request =
			(lease_bytes) {"", 0};
	return writer_add(w, &entry);
}

/* Add some change. */
static inline bool
add_any(writer *w)
{
	log_entry	take_over = {.kind = LOG_TAKE_OVER};

	if (one_in(40))
		return writer_add(w, &take_over);
	return w->image.count == 0 || (w->image.count < w->leases_most && one_in(2)) ?
		add_new(w) : add_change(w);
}

/* The lease that is in the oldest row, or NULL. */
static inline fold_lease *
oldest(writer *w)
{
	fold_lease *found = NULL;

	for (size_t i = 0; i < w->image.count; i++)
		if (found == NULL || w->image.leases[i].place < found->place)
			found = &w->image.leases[i];
	return found;
}

/* Carry so many bytes of the oldest leases. */
static inline void
carry(writer *w, size_t most)
{
	fold_lease *l;

	for (size_t bytes = 0; bytes < most && (l = oldest(w)) != NULL &&
		 l->place <= w->position.number;)
	{
		log_entry	entry = l->lease;
		uint64_t	place = l->place;
		uint64_t	at = l->at;
		log_mark	mark = log_end_of(&w->batch);

		entry.kind = LOG_CARRY;
		entry.left_us = (int64_t) any_size((uint64_t) entry.ttl_us);
		if (!writer_add(w, &entry) || !add_guards(w, entry.token))
		{
			log_cut(&w->batch, &mark);
			l->place = place;
			l->at = at;
			return;
		}
		bytes += entry.bytes;
	}
}

/* The bytes of leases that live, about. */
static inline uint64_t
live_bytes(const writer *w)
{
	uint64_t	bytes = 0;

	for (size_t i = 0; i < w->image.count; i++)
		bytes += w->image.leases[i].lease.bytes;
	return bytes;
}

/* The bytes of rows from the oldest lease on. */
static inline uint64_t
log_bytes(writer *w)
{
	const fold_lease *l = oldest(w);

	return l == NULL ? 0 : w->image.bytes - l->at;
}

/* Finish the batch. */
static inline void
seal(writer *w)
{
	const fold_lease *l = oldest(w);
	uint64_t	number = w->position.number + (w->batch.count > 0 ? w->batch.count : 1);

	log_seal(&w->batch, &w->position, w->me, w->image.counter,
			 l != NULL && l->place < number ? l->place : number);
}

#endif							/* DLOCK_LOG_FOLD_H */
