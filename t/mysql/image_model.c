/*
 * image_model.c
 *	  Random changes of the lock table, made to the image and to a naive model.
 *
 * The model has the table, a row for each lease, and the truth: the table with the
 * journal's changes, each applied to an array that is searched from its beginning.
 * The other side is image.c itself, included here so that its lists can be looked at.
 * The code between the two does what the engine does (lease_batch.c,
 * lease_take_over.c, lease_checkpoint.c), without any server: it reads rows, makes drafts,
 * commits or fails, writes the table, takes over, and forgets everything in the middle
 * of all that.
 *
 * After each step all that the image knows is compared with the truth, and its lists,
 * its heap and its indexes with each other.  It runs under AddressSanitizer, with a
 * small limit of leases (IMAGE_LEASES_MAX).
 *
 *	image_model SEED STEPS
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "../../mysql_udf/image.c"

#include <inttypes.h>
#include <stdio.h>

#define NAMES		24
#define OWNERS		3
#define ACCOUNTS	2
#define LEASES		6			/* most of a name */
#define CHANGES		20000		/* most of the journal */
#define BATCH		4			/* names */
#define OURS		77			/* the run */

/* A lease, as a row. */
typedef struct lease
{
	uint64_t	token;
	uint64_t	writes;
	uint64_t	writer;
	int64_t		ttl_us;
	int64_t		written_us;
	uint32_t	slot;
	int			owner;
	int			account;
	int			request;		/* 0: none */
	uint32_t	version;
	lease_kind	kind;
	bool		locked;			/* of a row of the table */
} lease;

typedef struct leases
{
	lease		all[LEASES * 2];
	size_t		count;
} leases;

typedef struct change
{
	enum
	{
		PUT, REMOVE, RENEW
	}			what;
	int			name;
	lease		lease;			/* RENEW: owner, account, writer, ttl */
	int64_t		at_us;
} change;

static leases table[NAMES];
static leases truth[NAMES];
static change journal[CHANGES];
static size_t njournal = 0;
static int64_t now_us = 1000000;
static uint64_t last_token = 1;
static uint64_t step = 0;
static bool taken = false;		/* this run has taken over */
static bool clustered = false;	/* it writes the table at once, as others do */
static uint64_t known = 0;		/* names that were known, of all that were looked at */
static uint64_t seen = 0;
static uint64_t filtered = 0;	/* known by the filter */
static uint64_t pieces = 0;		/* of checkpoints */
static uint64_t checkpoints = 0;
static uint64_t moved = 0;		/* leases whose locked rows are in other slots */
static uint64_t pinned = 0;		/* guards that pin more than is left of their leases */

/* When what another run wrote is over, as was last said. */
static struct
{
	uint64_t	token;
	uint64_t	writes;
	int64_t		deadline_us;
}			over[NAMES][LEASES * 4];

static uint64_t
next_random(void)
{
	static uint64_t state;

	if (state == 0)
		state = step * UINT64_C(0x9E3779B97F4A7C15) + 1;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static size_t
below(size_t n)
{
	return next_random() % n;
}

static void
fail(const char *what, int name)
{
	fprintf(stderr, "step %" PRIu64 ": %s, name %d\n", step, what, name);
	abort();
}

static const char letters[] = "abcdefghijklmnopqrstuvwxyz";

static lease_bytes
name_of(int name)
{
	return (lease_bytes) {letters + name, 1};
}

static int
number_of(lease_bytes name)
{
	return name.data[0] - 'a';
}

static lease_bytes
owner_of(int owner)
{
	return (lease_bytes) {letters + owner, 2};
}

static lease_bytes
request_of(int request)
{
	return (lease_bytes) {letters + request, request > 0 ? 3 : 0};
}

static lease_row
row_of(int name, const lease *l)
{
	return (lease_row) {
		.name = name_of(name),.slot = l->slot,.owner = owner_of(l->owner),
		.user = {letters + l->account, 1},.host = {"h", 1},
		.mode = LEASE_SHARED,.kind = l->kind,.version = l->version,
		.token = l->token,.request = request_of(l->request),
		.ttl_us = l->ttl_us,.writes = l->writes,.writer = l->writer,
		.deadline_us = l->written_us,.locked = l->locked
	};
}

/* ----------------------------------------------------------------
 * The truth
 * ----------------------------------------------------------------
 */

static lease *
find(leases *of, uint64_t token)
{
	for (size_t i = 0; i < of->count; i++)
		if (of->all[i].token == token)
			return &of->all[i];
	return NULL;
}

static void
apply(leases *to, const change *c)
{
	lease	   *l;

	for (int n = 0; c->what == RENEW && n < NAMES; n++)
		for (size_t i = 0; i < to[n].count; i++)
		{
			l = &to[n].all[i];
			if (l->owner != c->lease.owner || l->account != c->lease.account ||
				l->writer != c->lease.writer || l->kind != LEASE_PLAIN ||
				l->written_us <= c->at_us ||
				l->written_us - l->ttl_us >= c->at_us)
				continue;
			l->ttl_us = c->lease.ttl_us;
			l->written_us = c->at_us + c->lease.ttl_us;
			l->writes++;
		}
	if (c->what == RENEW)
		return;
	l = find(&to[c->name], c->lease.token);
	if (c->what == REMOVE && l != NULL)
		*l = to[c->name].all[--to[c->name].count];
	if (c->what == PUT)
	{
		if (l == NULL)
			l = &to[c->name].all[to[c->name].count++];
		*l = c->lease;
		l->locked = false;
	}
}

/* A change has been committed. */
static void
append(change c)
{
	if (njournal == CHANGES)
		fail("the journal is full", c.name);
	journal[njournal++] = c;
	apply(truth, &c);
}

/* ----------------------------------------------------------------
 * Comparing
 * ----------------------------------------------------------------
 */

/* What another run wrote does not last longer than was said before. */
static void
check_deadline(int name, const lease_member *m)
{
	size_t		free = 0;

	if (m->writer == OURS)
	{
		if (m->deadline_us != m->written_us)
			fail("a deadline of our own", name);
		return;
	}
	for (size_t i = 0; i < (size_t) LEASES * 4; i++)
	{
		if (over[name][i].token == m->holder->token &&
			over[name][i].writes == m->writes)
		{
			/* for a dropped name it is not known when that was */
			if (m->deadline_us > over[name][i].deadline_us &&
				IMAGE_LEASES_MAX >= NAMES * LEASES)
				fail("a deadline that was put off", name);
			return;
		}
		if (find(&truth[name], over[name][i].token) == NULL)
			free = i;
	}
	over[name][free].token = m->holder->token;
	over[name][free].writes = m->writes;
	over[name][free].deadline_us = m->deadline_us;
}

static void
forget_deadlines(void)
{
	memset(over, 0, sizeof(over));
}

/* The image has a name as it is. */
static void
compare(int n)
{
	const image_name *name = image_find(name_of(n));
	size_t		count = 0;

	for (size_t i = 0; name != NULL && i < name->count; i++)
	{
		const lease_member *m = &name->members[i];
		const lease *l = find(&truth[n], m->holder->token);

		if (m->gone)
			continue;
		count++;
		if (l == NULL)
			fail("a lease that there is not", n);
		if (l->writes != m->writes || l->writer != m->writer ||
			l->ttl_us != m->ttl_us || l->written_us != m->written_us ||
			l->slot != m->slot || l->kind != m->kind ||
			l->version != m->version)
			fail("a lease is another", n);
		if (!lease_same(m->holder->owner, owner_of(l->owner)) ||
			!lease_same(m->request == NULL ? (lease_bytes) {"", 0} :
						m->request->bytes, request_of(l->request)))
			fail("an owner or a request is another", n);
		check_deadline(n, m);
	}
	if (count != truth[n].count)
		fail("a lease is not there", n);
	for (size_t i = 0; name != NULL && i < name->nrows; i++)
	{
		const lease *l = NULL;

		for (size_t k = 0; k < table[n].count; k++)
			if (table[n].all[k].slot == name->rows[i].slot)
				l = &table[n].all[k];
		if (l == NULL || l->writes != name->rows[i].writes ||
			l->token != name->rows[i].token)
			fail("a row is another", n);
	}
	if (name != NULL && name->nrows != table[n].count)
		fail("there are other rows", n);
}

/* Each locked row pins what it says, and no more, whatever has become of its lease. */
static void
compare_pins(int n)
{
	const image_name *name = image_find(name_of(n));

	for (size_t i = 0; i < table[n].count; i++)
	{
		const lease *l = &table[n].all[i];
		const lease *is = find(&truth[n], l->token);
		uint32_t	says = 0;	/* all locked rows of the lease */
		uint32_t	pins = 0;

		if (!l->locked)
			continue;
		for (size_t k = 0; k < table[n].count; k++)
			if (table[n].all[k].token == l->token &&
				table[n].all[k].locked && table[n].all[k].version > says)
				says = table[n].all[k].version;
		for (size_t k = 0; name != NULL && k < name->count; k++)
			if (name->members[k].holder->token == l->token &&
				name->members[k].locked && name->members[k].guarded > pins)
				pins = name->members[k].guarded;
		if (pins != says)
			fail("a guard pins something else", n);
		pinned += is == NULL || says > is->version;
	}
}

/* The lists, the heap and the indexes agree with each other. */
static void
check(bool between)
{
	size_t		count = 0;
	size_t		nleases = 0;
	size_t		ndirty = 0;

	for (image_name *name = image.newest; name != NULL; name = name->older)
	{
		int64_t		due_us = INT64_MAX;

		count++;
		nleases += name->count;
		ndirty += name->is_dirty;
		if (name->newer == NULL ? image.newest != name :
			name->newer->older != name)
			fail("the list of names", number_of(name->name));
		if (name->older == NULL && image.oldest != name)
			fail("the end of the list", number_of(name->name));
		if (image_find(name->name) != name)
			fail("it is not found", number_of(name->name));
		if (image.due.items[name->due.place] != &name->due)
			fail("its place in the heap", number_of(name->name));
		if (between && (name->in_batch || name->draft != NULL))
			fail("it is in a batch", number_of(name->name));
		if (between && name->count == 0 && !name->is_dirty &&
			(name->nrows == 0 || clustered))
			fail("it says nothing", number_of(name->name));
		for (size_t i = 0; i < name->count; i++)
		{
			const lease_member *m = &name->members[i];
			const image_holder *h = NULL;
			const lease_member *own = NULL;

			if (member_due_us(m) < due_us)
				due_us = member_due_us(m);
			if (m->holder->name != name)
				fail("the name of a holder", number_of(name->name));
			do
				h = image_owned(m->holder->owner, m->holder->account, h);
			while (h != NULL && h != m->holder);
			if (h == NULL)
				fail("an owner does not have its lease", number_of(name->name));
			do
				own = image_own(name, m->holder->owner, m->holder->account, own);
			while (own != NULL && own != m);
			if (own == NULL)
				fail("a name does not have its owner's lease", number_of(name->name));
			own = NULL;
			do
				own = find_member(name, m->holder->token, own);
			while (own != NULL && own != m);
			if (own == NULL)
				fail("a token does not have its lease", number_of(name->name));
			if (!m->holder->object.is_kept || (between && m->holder->object.is_new) ||
				(m->request != NULL && !m->request->object.is_kept))
				fail("something is not kept", number_of(name->name));
		}
		for (size_t i = 1; i < name->nrows; i++)
			if (name->rows[i - 1].slot >= name->rows[i].slot)
				fail("the order of rows", number_of(name->name));
		for (size_t i = 1; i < name->nseen; i++)
			if (compare_seen(&name->seen[i - 1], &name->seen[i]) >= 0)
				fail("the order of what was seen", number_of(name->name));
		/* image_due() puts off what is over */
		if (name->due.due_us > due_us && due_us > now_us)
			fail("it is due sooner", number_of(name->name));
	}
	for (image_name *name = image.first_dirty, *prev = NULL; name != NULL;
		 prev = name, name = name->next_dirty)
	{
		if (!name->is_dirty || name->prev_dirty != prev ||
			(prev != NULL && prev->dirtied > name->dirtied))
			fail("its place among the dirty", number_of(name->name));
		if (name->next_dirty == NULL && image.last_dirty != name)
			fail("the end of the dirty", number_of(name->name));
		ndirty--;
	}
	for (size_t i = 1; i < image.due.count; i++)
		if (image.due.items[(i - 1) / 2]->due_us > image.due.items[i]->due_us)
			fail("the heap", -1);
	if (count != image.due.count || count != image.names.count)
		fail("the number of names", (int) count);
	if (nleases != image.nleases || nleases != image.owners.count ||
		nleases != image.holders.count || nleases != image.tokens.count)
		fail("the number of leases", (int) nleases);
	if (ndirty != 0)
		fail("the list of those that are dirty", (int) ndirty);
	if (between && image.objects != NULL)
		fail("something of a batch is left", -1);
	for (int n = 0; n < NAMES; n++)
	{
		seen++;
		if (!image_is_known(name_of(n)))
			continue;
		known++;
		filtered += image_find(name_of(n)) == NULL && !image_is_complete();
		compare(n);
	}
}

/* ----------------------------------------------------------------
 * What the engine does
 * ----------------------------------------------------------------
 */

/* The rows of a name, in the order of their slots. */
static size_t
read_rows(int n, lease_row *rows)
{
	size_t		count = 0;

	for (uint32_t slot = 0; slot < LEASES * 4; slot++)
		for (size_t i = 0; i < table[n].count; i++)
			if (table[n].all[i].slot == slot)
				rows[count++] = row_of(n, &table[n].all[i]);
	return count;
}

static void
learn_journal(const bool *names)
{
	for (size_t i = 0; i < njournal; i++)
	{
		const change *c = &journal[i];
		lease_row	row = row_of(c->name, &c->lease);

		if (c->what == RENEW)
			image_renew_all(row.owner, row.user, row.host, row.writer, c->at_us,
							row.ttl_us, now_us);
		else if (names != NULL && !names[c->name])
			continue;
		else if (c->what == REMOVE)
			image_remove(row.name, row.token);
		else
			image_put(&row, now_us);
	}
	for (image_name *name = image.newest; name != NULL; name = name->older)
		if (image_settle_name(name) > 0)
			fail("shared leases exclude each other", number_of(name->name));
}

/* The lease of a name that has a slot, and has not ended; NULL: none has. */
static const lease_member *
member_at(const image_name *name, uint32_t slot)
{
	for (size_t i = 0; i < name->count; i++)
		if (name->members[i].slot == slot && !name->members[i].gone)
			return &name->members[i];
	return NULL;
}

/* Drop the first changes of the journal, which have been applied. */
static void
drop_changes(size_t n)
{
	njournal -= n;
	memmove(journal, journal + n, njournal * sizeof(change));
}

/* Write the first names that differ into the table; what needs a locked row stays. */
static void
write_dirty(size_t n, bool takes)
{
	image_name *name = image_first_dirty();

	for (size_t d = 0; d < n; d++, name = name->next_dirty)
	{
		int			number = number_of(name->name);
		leases		rows = {0};
		lease_row	read[LEASES * 2];
		size_t		nread = read_rows(number, read);

		if (name->nrows > 0 && !image_probe(name, read, nread))
			fail("the rows are others", number);
		if (name->nrows > 0 && takes &&
			!image_keep_guarded(name, read, nread, now_us))
			fail("there is memory", number);
		compare_pins(number);
		for (size_t i = 0; i < table[number].count; i++)
		{
			const lease *l = &table[number].all[i];

			if (!l->locked)
				continue;
			rows.all[rows.count++] = *l;
			if (find(&truth[number], l->token) == NULL)
				append((change) {.what = REMOVE,.name = number,.lease = *l});
			else if (member_at(name, l->slot) == NULL ||
					 member_at(name, l->slot)->holder->token != l->token)
				moved++;
		}
		for (size_t m = 0; m < name->count; m++)
		{
			const lease_member *member = &name->members[m];
			const lease *is = find(&truth[number], member->holder->token);
			const image_row *before = image_row_at(name, member->slot);

			if (member->gone)
				continue;
			if (is == NULL)
				fail("it is there, and gone", number);
			if (before == NULL || !before->locked)
			{
				rows.all[rows.count] = *is;
				rows.all[rows.count++].locked = false;
			}
			else if (!image_is_in_table(name, member))
				append((change) {.what = PUT,.name = number,.lease = *is});
		}
		table[number] = rows;
	}
	name = image_first_dirty();
	while (n-- > 0)
	{
		image_name *next = name->next_dirty;

		image_written(name);
		name = next;
	}
}

/* A checkpoint that is under way. */
static struct
{
	bool		is_under_way;
	size_t		nchanges;		/* of the journal, to be applied */
	uint64_t	last_name;
}			checkpoint;

/* Write a piece of a checkpoint; the last one deletes what has been applied. */
static void
write_piece(void)
{
	size_t		most = 1 + below(NAMES / 3);
	size_t		n = 0;
	image_name *name = image_first_dirty();

	if (!checkpoint.is_under_way)
	{
		checkpoint.is_under_way = true;
		checkpoint.nchanges = njournal;
		checkpoint.last_name = image_last_dirtied();
	}
	pieces++;
	for (; name != NULL && name->dirtied <= checkpoint.last_name && n < most;
		 name = name->next_dirty)
		n++;
	write_dirty(n, false);
	if (name != NULL && name->dirtied <= checkpoint.last_name)
		return;
	drop_changes(checkpoint.nchanges);
	checkpoint.is_under_way = false;
	checkpoints++;
}

/* Take over: what is known is forgotten, and all is read. */
static void
take_over(bool to_the_end)
{
	image_filter *filter = NULL;
	size_t		total = 0;
	bool		complete;
	bool		concerned[NAMES] = {false};
	size_t		nchanges;

	for (int n = 0; n < NAMES; n++)
		total += table[n].count;
	complete = total <= IMAGE_LEASES_MAX;
	checkpoint.is_under_way = false;
	image_forget();
	image_begin(now_us, below(2));
	for (size_t i = 0; i < njournal; i++)
		for (int n = 0; n < NAMES; n++)
			concerned[n] |= journal[i].what == RENEW || journal[i].name == n;
	if (!complete)
		filter = image_filter_create();
	for (int n = 0; n < NAMES; n++)
	{
		lease_row	rows[LEASES * 2];
		size_t		count = read_rows(n, rows);

		for (size_t i = 0; i < count && filter != NULL; i++)
			image_filter_add(filter, name_of(n));
		if (count > 0 && (complete || concerned[n]))
			image_know(image_get(name_of(n)), rows, count, false, now_us);
	}
	learn_journal(NULL);
	if (!to_the_end)
	{
		image_filter_free(filter);
		image_forget();
		taken = false;
		return;
	}
	clustered = below(4) == 0;
	if (!clustered)
		image_end(filter);
	nchanges = njournal;
	write_dirty(image_ndirty(), true);
	drop_changes(nchanges);
	taken = !clustered;
	if (!clustered)
		return;
	image_filter_free(filter);
	image_forget();
	memcpy(table, truth, sizeof(table));
	njournal = 0;
}

/* Another lease has a lease's slot. */
static bool
is_used(const leases *of, const lease *l)
{
	for (size_t i = 0; i < of->count; i++)
		if (of->all[i].slot == l->slot && of->all[i].token != l->token)
			return true;
	return false;
}

/* Another run has written, and this one does not know. */
static void
write_elsewhere(void)
{
	for (size_t changes = below(12); changes > 0; changes--)
	{
		int			n = (int) below(NAMES);
		leases	   *rows = &truth[n];
		change		c = {.name = n};
		size_t		at = below(rows->count + 1);

		if (at < rows->count)
		{
			c.lease = rows->all[at];
			c.what = below(2) ? PUT : REMOVE;
			c.lease.version = 1 + (uint32_t) below(3);
			c.lease.writes++;
		}
		else if (rows->count < LEASES)
		{
			last_token++;
			c.lease = (lease) {
				.token = last_token,.writes = 1,.version = 1,
				.owner = (int) below(OWNERS),.account = (int) below(ACCOUNTS),
				.slot = (uint32_t) last_token % (LEASES * 4),
				.kind = below(4) ? LEASE_PLAIN : LEASE_SESSION,
			};
		}
		else
			continue;
		if (is_used(rows, &c.lease) || is_used(&table[n], &c.lease))
			c.what = REMOVE;
		c.lease.writer = 1 + below(2);
		c.lease.ttl_us = 1 + (int64_t) below(100000);
		c.lease.written_us = now_us / 2 + c.lease.ttl_us;
		append(c);
	}
	if (clustered || below(2))
	{
		/* it has had a checkpoint */
		memcpy(table, truth, sizeof(table));
		njournal = 0;
	}
	if (!clustered)
		image_forget();			/* it will find out */
	taken = false;
}

/* A slot that is free in a draft. */
static uint32_t
free_slot(const lease_member *members, size_t count, const image_name *name)
{
	for (uint32_t slot = 0;; slot++)
	{
		bool		used = image_row_at(name, slot) != NULL;

		for (size_t i = 0; i < count; i++)
			used |= members[i].slot == slot;
		if (!used)
			return slot;
	}
}

/* Change a draft: sets what the journal must have. */
static size_t
change_draft(image_name *name, lease_member **members, size_t *count, change *to)
{
	int			n = number_of(name->name);
	size_t		done = 0;

	for (size_t changes = 1 + below(3); changes > 0; changes--)
	{
		size_t		at = below(*count + 1);
		lease_member *m = &(*members)[at];
		change		c = {.name = n,.what = PUT};
		lease	   *is;

		if (at == *count)
		{
			const image_account *account;
			int			request = (int) below(3);

			c.lease = (lease) {
				.token = ++last_token,.owner = (int) below(OWNERS),
				.account = (int) below(ACCOUNTS),.request = request,
				.kind = below(4) ? LEASE_PLAIN : LEASE_SESSION
			};
			account = image_account_get((lease_bytes) {
				letters + c.lease.account, 1
			}, (lease_bytes) {"h", 1});
			if (*count >= LEASES)
			{
				/* one that comes to nothing */
				(void) image_holder_create(name, account, owner_of(0), 1, 1, 1);
				(void) image_text_create(request_of(1));
				continue;
			}
			*m = (lease_member) {
				.holder = image_holder_create(name, account,
											  owner_of(c.lease.owner),
											  c.lease.token, 1, now_us),
				.slot = free_slot(*members, *count, name),
				.mode = LEASE_SHARED,.kind = c.lease.kind
			};
			if (request > 0)
				m->request = image_text_create(request_of(request));
			++*count;
		}
		else if (m->gone)
			continue;
		else if (below(2))
		{
			m->gone = m->changed = true;
			c.what = REMOVE;
			c.lease.token = m->holder->token;
			if (at < name->count)
				to[done++] = c;
			else
				for (size_t i = 0; i < done; i++)
					if (to[i].lease.token == c.lease.token)
						to[i--] = to[--done];
			continue;
		}
		else
		{
			c.lease.token = m->holder->token;
			is = find(&truth[n], c.lease.token);
			if (is == NULL)
				continue;		/* it is new */
			c.lease = *is;
			if (!m->locked && below(3) == 0)
				m->slot = free_slot(*members, *count, name);
			c.lease.request = (int) below(3);
			m->request = c.lease.request == 0 ? NULL :
				image_text_create(request_of(c.lease.request));
		}
		m->ttl_us = 1 + (int64_t) below(100000);
		m->deadline_us = m->written_us = now_us + m->ttl_us;
		m->writer = OURS;
		m->version = 1 + (uint32_t) below(3);
		m->writes++;
		m->changed = true;
		c.lease.writes = m->writes;
		c.lease.writer = OURS;
		c.lease.version = m->version;
		c.lease.slot = m->slot;
		c.lease.ttl_us = m->ttl_us;
		c.lease.written_us = m->written_us;
		to[done++] = c;
	}
	return done;
}

/* A batch: it commits, fails, or something is forgotten meanwhile. */
static void
run_batch(bool looks, bool direct)
{
	image_name *names[BATCH];
	lease_member *members[BATCH];
	size_t		counts[BATCH];
	change		changes[BATCH][8];
	size_t		nchanges[BATCH];
	bool		has[NAMES] = {false};
	size_t		n = 1 + below(BATCH);
	size_t		end = below(8);

	for (size_t i = 0; i < n; i++)
	{
		int			number;

		do
			number = (int) below(NAMES);
		while (has[number]);
		has[number] = true;
		names[i] = image_get(name_of(number));
		image_pin(names[i], false);
	}
	check(false);
	for (size_t i = 0; i < n; i++)
	{
		int			number = number_of(names[i]->name);
		lease_row	rows[LEASES * 2];
		size_t		count = read_rows(number, rows);

		if (!image_is_known(names[i]->name))
			image_know(names[i], rows, count, below(2), now_us);
		else if (!image_probe(names[i], rows, count))
			fail("the rows are others", number);
		members[i] = calloc(names[i]->count + 8, sizeof(lease_member));
	}
	if (!taken)
		learn_journal(has);
	for (size_t i = 0; i < n; i++)
	{
		compare(number_of(names[i]->name));
		compare_pins(number_of(names[i]->name));
		names[i]->draft = (struct lease_name *) names;
		nchanges[i] = 0;
		counts[i] = names[i]->count;
		free(members[i]);
		members[i] = calloc(counts[i] + 8, sizeof(lease_member));
		if (counts[i] > 0)
			memcpy(members[i], names[i]->members,
				   counts[i] * sizeof(lease_member));
		if (!looks)
			nchanges[i] = change_draft(names[i], &members[i], &counts[i],
									   changes[i]);
	}
	check(false);
	if (end == 0)
	{
		image_forget();			/* the commit's outcome is unknown */
		taken = false;
	}
	for (size_t i = 0; i < n && end > 1 && !looks; i++)
	{
		int			number = number_of(names[i]->name);

		for (size_t c = 0; c < nchanges[i]; c++)
			append(changes[i][c]);
		if (direct)
		{
			table[number] = truth[number];
			njournal = 0;
		}
		if (nchanges[i] > 0)
			image_replace(names[i], &members[i], &counts[i], direct);
	}
	if (!direct)
		check(false);
	for (size_t i = 0; i < n; i++)
	{
		free(members[i]);
		image_release(names[i]);
	}
	image_end_batch();
	image_trim();
}

/* All that an owner has is renewed, by one entry. */
static void
renew_all(void)
{
	change		c = {.what = RENEW,.at_us = now_us};
	lease_row	row;

	c.lease.owner = (int) below(OWNERS);
	c.lease.account = (int) below(ACCOUNTS);
	c.lease.writer = OURS;
	c.lease.ttl_us = 1 + (int64_t) below(100000);
	row = row_of(0, &c.lease);
	/* what is not in the image would be read by the index of owners */
	if (!image_is_complete())
		return;
	append(c);
	image_renew_all(row.owner, row.user, row.host, OURS, now_us, row.ttl_us,
					now_us);
}

/* The guard of a lease is announced, if the image knows the name. */
static void
announce(int n, uint64_t token)
{
	image_name *name = image_find(name_of(n));

	for (size_t i = 0; image_is_known(name_of(n)) && i < name->count; i++)
		if (name->members[i].holder->token == token)
			image_note_guard(name, i);
}

/* Transactions lock rows, and end. */
static void
lock_rows(void)
{
	for (int n = 0; n < NAMES; n++)
		for (size_t i = 0; i < table[n].count; i++)
		{
			lease	   *l = &table[n].all[i];

			if (l->locked)
				l->locked = below(2) == 0;
			/* a guard is of a lease that there is, as it is in its row; somebody else
			 * may lock the row of one that has moved */
			else
			{
				const lease *is = find(&truth[n], l->token);

				l->locked = is != NULL && is->version == l->version &&
					below(5) == 0;
			}
			if (l->locked)
				announce(n, l->token);
		}
}

static void
release_early(void)
{
	image_name *name = image_find(name_of((int) below(NAMES)));

	if (name != NULL && name->count > 0)
		name->members[below(name->count)].released ^= true;
}

static void
look_at_due(void)
{
	int64_t		before_us = now_us - (int64_t) below(50000);

	for (int i = 0; i < 5; i++)
	{
		image_name *name = image_due(before_us, now_us + 1000);

		if (name == NULL)
			break;
	}
}

static void
make_step(void)
{
	size_t		what = below(100);

	now_us += 1 + (int64_t) below(20000);
	if (what < 4)
		write_elsewhere();
	else if (what < 6)
		take_over(false);
	else if (what < 12 || (!taken && what < 40))
		take_over(true);
	else if (what < 13)
	{
		image_forget_all();
		forget_deadlines();
		taken = false;
	}
	else if (what < 20)
		lock_rows();
	else if (what < 25)
		release_early();
	else if (what < 30)
		look_at_due();
	else if (what < 35)
		image_trim();
	else if (!taken)
	{
		if (below(2))
		{
			int			n = (int) below(NAMES);

			for (size_t i = 0; i < table[n].count; i++)
			{
				lease_row	row = row_of(n, &table[n].all[i]);

				if (row.writer != OURS)
					(void) image_see(&row, now_us);
			}
		}
		else
			run_batch(!clustered, clustered);
	}
	else if (what < 45)
		renew_all();
	else if (what < 55)
		write_piece();
	else if (what < 57)
	{
		image_name *name = image_find(name_of(below(NAMES)));

		if (name != NULL)
			image_hurry(name);
	}
	else
		run_batch(below(4) == 0, false);
}

int
main(int argc, char **argv)
{
	uint64_t	steps = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000;

	step = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	(void) next_random();
	image_start(OURS);
	for (step = 0; step < steps; step++)
	{
		make_step();
		image_end_batch();
		check(true);
	}
	printf("known %" PRIu64 " of %" PRIu64 ", by the filter %" PRIu64
		   "; %" PRIu64 " checkpoints in %" PRIu64 " pieces; %" PRIu64
		   " guards pin more than there is; %" PRIu64 " rows left behind\n",
		   known, seen, filtered, checkpoints, pieces, pinned, moved);
	return 0;
}
