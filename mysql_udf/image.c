/*
 * image.c
 *	  What the lock table holds, as this run of the server knows it.
 *
 * image.h says what the image is, and what is true of it.
 *
 * Memory is short at times.  All that a commit needs of it is there before: a name
 * comes with its places in all lists, and a draft with all that it may become.  So
 * image_replace() cannot fail.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "image.h"

#include <stdlib.h>
#include <string.h>

static struct
{
	uint64_t	writer;			/* this run */
	hash_table	names;
	hash_table	owners;			/* of leases */
	hash_table	holders;		/* the same leases, by name and owner */
	image_name *newest;
	image_name *oldest;
	size_t		nleases;
	uint64_t	generation;
	bool		is_ours;		/* nobody else writes the table */
	bool		is_valid;		/* names can be known without being read */
	image_filter *filter;		/* NULL while it is complete */
	int64_t		since_us;		/* when what other runs wrote was first seen */
	image_object *objects;		/* made in this batch */
	image_name **dirty;
	size_t		ndirty;
	image_name **due;			/* a heap by due_us */
	size_t		ndue;
	size_t		room;			/* of each of the two */
}			image = {.generation = 1};

/* The run begins. */
void
image_start(uint64_t writer)
{
	image.writer = writer;
}

/* ----------------------------------------------------------------
 * Names whose first deadline comes next: a binary heap
 * ----------------------------------------------------------------
 */

static void
set_due(size_t place, image_name *name)
{
	image.due[place] = name;
	name->due_place = place;
}

/* Bring a name of the heap to its place. */
static void
sift(image_name *name)
{
	size_t		place = name->due_place;

	while (place > 0 && image.due[(place - 1) / 2]->due_us > name->due_us)
	{
		set_due(place, image.due[(place - 1) / 2]);
		place = (place - 1) / 2;
	}
	for (;;)
	{
		size_t		child = 2 * place + 1;

		if (child + 1 < image.ndue &&
			image.due[child + 1]->due_us < image.due[child]->due_us)
			child++;
		if (child >= image.ndue || image.due[child]->due_us >= name->due_us)
			break;
		set_due(place, image.due[child]);
		place = child;
	}
	set_due(place, name);
}

static void
remove_due(image_name *name)
{
	image_name *last = image.due[--image.ndue];

	if (last == name)
		return;
	set_due(name->due_place, last);
	sift(last);
}

/* When a member is to be looked at, at the latest. */
static int64_t
member_due_us(const lease_member *member)
{
	if (member->gone)
		return INT64_MAX;
	/* the end of its session tells */
	if (member->kind == LEASE_SESSION && member->writer == image.writer)
		return INT64_MAX;
	return member->deadline_us;
}

static void
note_due(image_name *name)
{
	name->due_us = INT64_MAX;
	for (size_t i = 0; i < name->count; i++)
		if (member_due_us(&name->members[i]) < name->due_us)
			name->due_us = member_due_us(&name->members[i]);
	sift(name);
}

/*
 * A name with a lease whose deadline was before a time, or NULL.  It comes again at
 * another time, unless it changes.
 */
image_name *
image_due(int64_t before_us, int64_t again_us)
{
	image_name *name;

	if (image.ndue == 0 || image.due[0]->due_us > before_us)
		return NULL;
	name = image.due[0];
	name->due_us = again_us;
	sift(name);
	return name;
}

/* ----------------------------------------------------------------
 * Names that differ from the table
 * ----------------------------------------------------------------
 */

static void
set_dirty(image_name *name, bool is_dirty)
{
	if (name->is_dirty == is_dirty || (is_dirty && !image.is_ours))
		return;
	name->is_dirty = is_dirty;
	if (is_dirty)
	{
		name->dirty_place = image.ndirty;
		image.dirty[image.ndirty++] = name;
	}
	else
	{
		image_name *last = image.dirty[--image.ndirty];

		image.dirty[name->dirty_place] = last;
		last->dirty_place = name->dirty_place;
	}
}

size_t
image_ndirty(void)
{
	return image.ndirty;
}

image_name *
image_dirty(size_t i)
{
	return image.dirty[i];
}

/* ----------------------------------------------------------------
 * Names
 * ----------------------------------------------------------------
 */

/* The entry of a name, or NULL. */
image_name *
image_find(lease_bytes name)
{
	hash_link  *link = hash_first(&image.names, hash_bytes(name, 0));

	while (link != NULL && !lease_same(((image_name *) link)->name, name))
		link = hash_next(link);
	return (image_name *) link;
}

static void
link_newest(image_name *name)
{
	name->newer = NULL;
	name->older = image.newest;
	if (image.newest != NULL)
		image.newest->newer = name;
	else
		image.oldest = name;
	image.newest = name;
}

static void
unlink_name(image_name *name)
{
	if (name->newer != NULL)
		name->newer->older = name->older;
	else
		image.newest = name->older;
	if (name->older != NULL)
		name->older->newer = name->newer;
	else
		image.oldest = name->newer;
}

/* A name is used now. */
static void
use_name(image_name *name)
{
	if (image.newest == name)
		return;
	unlink_name(name);
	link_newest(name);
}

/* See to it that one more name has a place in all lists. */
static bool
reserve_places(void)
{
	size_t		room = image.room > 0 ? image.room * 2 : 1024;
	image_name **dirty;
	image_name **due;

	if (image.names.count < image.room)
		return true;
	dirty = realloc(image.dirty, room * sizeof(image_name *));
	if (dirty == NULL)
		return false;
	image.dirty = dirty;
	due = realloc(image.due, room * sizeof(image_name *));
	if (due == NULL)
		return false;
	image.due = due;
	image.room = room;
	return true;
}

/* Say whether a name that has no entry is known to have no leases. */
static bool
is_absent(lease_bytes name)
{
	return image.is_valid &&
		(image.filter == NULL || !image_filter_has(image.filter, name));
}

/* Say whether all there is of a name is known. */
bool
image_is_known(lease_bytes bytes)
{
	const image_name *name = image_find(bytes);

	return image.is_valid &&
		(name != NULL ? name->generation == image.generation : is_absent(bytes));
}

/* The entry of a name, made if need be; NULL if memory is short. */
image_name *
image_get(lease_bytes bytes)
{
	image_name *name = image_find(bytes);

	if (name != NULL)
	{
		use_name(name);
		return name;
	}
	if (!hash_reserve(&image.names) || !reserve_places())
		return NULL;
	name = calloc(1, sizeof(image_name) + bytes.length);
	if (name == NULL)
		return NULL;
	memcpy(name->data, bytes.data, bytes.length);
	name->name = (lease_bytes) {name->data, bytes.length};
	name->generation = is_absent(bytes) ? image.generation : 0;
	name->unguarded = true;
	name->due_us = INT64_MAX;
	hash_add(&image.names, &name->link, hash_bytes(bytes, 0));
	link_newest(name);
	name->due_place = image.ndue++;
	image.due[name->due_place] = name;
	sift(name);
	return name;
}

/* Something is not in the image any more.  If it is new, the batch's end frees it. */
static void
drop_object(image_object *object)
{
	object->is_kept = false;
	if (!object->is_new)
		free(object);
}

static void
drop_holder(image_holder *holder)
{
	hash_remove(&image.owners, &holder->by_owner);
	hash_remove(&image.holders, &holder->by_name);
	image.nleases--;
	drop_object(&holder->object);
}

static void
drop_member(const lease_member *member)
{
	if (member->request != NULL)
		drop_object(&member->request->object);
	drop_holder(member->holder);
}

/* Drop members that have gone, but for those whose rows are locked: how many. */
static size_t
drop_gone(image_name *name)
{
	size_t		before = name->count;
	size_t		n = 0;

	for (size_t i = 0; i < before; i++)
	{
		lease_member *member = &name->members[i];

		if (member->gone && !member->locked)
		{
			drop_member(member);
			continue;
		}
		member->holder->place = n;
		name->members[n++] = *member;
	}
	name->count = n;
	if (n < before)
		note_due(name);
	return before - n;
}

static void
drop_name(image_name *name)
{
	set_dirty(name, false);
	remove_due(name);
	unlink_name(name);
	hash_remove(&image.names, &name->link);
	for (size_t i = 0; i < name->count; i++)
		drop_member(&name->members[i]);
	free(name->members);
	free(name->rows);
	free(name->seen);
	free(name);
}

/* Say whether nothing would be lost with an entry. */
static bool
is_droppable(const image_name *name)
{
	if (name->in_batch || name->is_dirty)
		return false;
	for (size_t i = 0; i < name->count; i++)
		if (name->members[i].released)
			return false;
	return true;
}

/* A batch concerns a name. */
void
image_pin(image_name *name)
{
	name->in_batch = true;
}

/* It is done with it: an entry that says nothing goes. */
void
image_release(image_name *name)
{
	name->in_batch = false;
	name->draft = NULL;
	if (name->count == 0 && name->nrows == 0 && is_droppable(name))
		drop_name(name);
}

/*
 * The image is complete and becomes too large: count the table's rows.  If memory is
 * short, it stays complete.
 */
static void
make_filter(void)
{
	image.filter = image_filter_create();
	for (const image_name *name = image.newest;
		 image.filter != NULL && name != NULL; name = name->older)
		for (size_t i = 0; i < name->nrows; i++)
			image_filter_add(image.filter, name->name);
}

/*
 * Drop names that nobody has used for long, if there are too many leases.  Only where
 * names can be known: else they are there for the deadlines of other runs' leases.
 */
void
image_trim(void)
{
	image_name *name = image.oldest;

	if (!image.is_valid || image.nleases <= IMAGE_LEASES_MAX)
		return;
	if (image.filter == NULL)
		make_filter();
	for (int tries = 1000; name != NULL && image.filter != NULL && tries > 0 &&
		 image.nleases > IMAGE_LEASES_MAX; tries--)
	{
		image_name *next = name->newer;

		if (is_droppable(name))
			drop_name(name);
		else
			use_name(name);
		name = next;
	}
}

/*
 * What is known may not be so: all is unknown from now on, and no change is known to
 * be in the journal.  What other runs wrote stays for its deadlines, releases that
 * were answered are with those who write them.
 */
static void
forget(bool keeps_foreign)
{
	image_name *next;

	image.is_ours = false;
	image.is_valid = false;
	image.generation++;
	image_filter_free(image.filter);
	image.filter = NULL;
	while (image.ndirty > 0)
		set_dirty(image.dirty[0], false);
	for (image_name *name = image.newest; name != NULL; name = next)
	{
		bool		any = name->in_batch;

		next = name->older;
		for (size_t i = 0; i < name->count; i++)
		{
			name->members[i].released = false;
			any |= keeps_foreign && name->members[i].writer != image.writer;
		}
		if (!any)
			drop_name(name);
	}
}

void
image_forget(void)
{
	forget(true);
}

/*
 * The same, and what other runs wrote is not known any more either.  No batch is under
 * way.
 */
void
image_forget_all(void)
{
	forget(false);
	image.since_us = 0;
}

/*
 * This run takes over: what is read from now on, until image_forget(), stays known.
 * "kept" says that nobody else has written since it took over last; then what other
 * runs wrote has been there since that time.
 */
void
image_begin(int64_t now_us, bool kept)
{
	image.is_ours = true;
	if (!kept || image.since_us == 0)
		image.since_us = now_us;
}

/* All has been read, if there is no filter; else that has counted it. */
void
image_end(image_filter *filter)
{
	image.is_valid = true;
	image.filter = filter;
}

/* Say whether names can be known without being read. */
bool
image_is_valid(void)
{
	return image.is_valid;
}

bool
image_is_complete(void)
{
	return image.is_valid && image.filter == NULL;
}

/* ----------------------------------------------------------------
 * What leases consist of
 * ----------------------------------------------------------------
 */

static void
note_object(image_object *object)
{
	object->is_kept = false;
	object->is_new = true;
	object->next = image.objects;
	image.objects = object;
}

static uint64_t
hash_owner(lease_bytes owner, const image_account *account)
{
	return hash_bytes(owner, account->link.hash);
}

/* The same of those of one name. */
static uint64_t
hash_holder(const image_name *name, lease_bytes owner,
			const image_account *account)
{
	return hash_bytes(owner, name->link.hash ^ account->link.hash);
}

/* A holder for a draft; NULL if memory is short.  It stays if image_replace() says so. */
image_holder *
image_holder_create(image_name *name, const image_account *account,
					lease_bytes owner, uint64_t token, uint64_t connection_id,
					int64_t acquired_us)
{
	image_holder *holder;

	if (!hash_reserve(&image.owners) || !hash_reserve(&image.holders))
		return NULL;
	holder = malloc(sizeof(image_holder) + owner.length);
	if (holder == NULL)
		return NULL;
	memcpy(holder->data, owner.data, owner.length);
	holder->owner = (lease_bytes) {holder->data, owner.length};
	holder->name = name;
	holder->account = account;
	holder->token = token;
	holder->connection_id = connection_id;
	holder->acquired_us = acquired_us;
	note_object(&holder->object);
	return holder;
}

/* The same for a text. */
image_text *
image_text_create(lease_bytes bytes)
{
	image_text *text = malloc(sizeof(image_text) + bytes.length);

	if (text == NULL)
		return NULL;
	memcpy(text->data, bytes.data, bytes.length);
	text->bytes = (lease_bytes) {text->data, bytes.length};
	note_object(&text->object);
	return text;
}

/* A holder and a text are in the image from now on. */
static void
keep(const lease_member *member)
{
	if (!member->holder->object.is_kept)
	{
		member->holder->object.is_kept = true;
		hash_add(&image.owners, &member->holder->by_owner,
				 hash_owner(member->holder->owner, member->holder->account));
		hash_add(&image.holders, &member->holder->by_name,
				 hash_holder(member->holder->name, member->holder->owner,
							 member->holder->account));
		image.nleases++;
	}
	if (member->request != NULL)
		member->request->object.is_kept = true;
}

/* Free what was made for drafts and has not become part of the image. */
void
image_end_batch(void)
{
	while (image.objects != NULL)
	{
		image_object *object = image.objects;

		image.objects = object->next;
		object->is_new = false;
		if (!object->is_kept)
			free(object);
	}
}

/* ----------------------------------------------------------------
 * What was read
 * ----------------------------------------------------------------
 */

/* The member with a token, which is most likely in a certain place; or NULL. */
static lease_member *
find_member(const image_name *name, uint64_t token, size_t likely)
{
	if (likely < name->count && name->members[likely].holder->token == token)
		return &name->members[likely];
	for (size_t i = 0; i < name->count; i++)
		if (name->members[i].holder->token == token)
			return &name->members[i];
	return NULL;
}

/*
 * The member that is the lease of a row, or NULL.  Two servers that do not know of each
 * other may have granted the same token to different holders.
 */
static lease_member *
find_of_row(const image_name *name, const lease_row *row, size_t likely)
{
	lease_member *member = find_member(name, row->token, likely);

	return member != NULL &&
		lease_same(member->holder->owner, row->owner) &&
		lease_same(member->holder->account->user, row->user) &&
		lease_same(member->holder->account->host, row->host) ? member : NULL;
}

/* Set a member's deadline by what its row says, and what is known of it. */
static void
set_deadline(const image_name *name, lease_member *member,
			 const lease_member *before, int64_t now_us)
{
	member->deadline_us = member->ttl_us +
		(image.is_ours ? image.since_us : now_us);
	if (member->writer == image.writer)
		member->deadline_us = member->written_us;
	else if (before != NULL && before->writes == member->writes &&
			 before->writer == member->writer)
		member->deadline_us = before->deadline_us;
	else
		for (size_t i = 0; i < name->nseen; i++)
			if (name->seen[i].token == member->holder->token &&
				name->seen[i].writes == member->writes &&
				name->seen[i].writer == member->writer)
				member->deadline_us = name->seen[i].deadline_us;
}

/*
 * A name is about to be made known by what is read: keep when it was that what other
 * runs wrote was first seen, also if it is in the journal, which is read after the
 * table.  Should memory be short, that begins anew.
 */
static void
note_seen(image_name *name)
{
	image_seen *all = NULL;
	size_t		n = 0;

	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];

		if (member->writer == image.writer)
			continue;
		if (all == NULL)
			all = malloc(name->count * sizeof(image_seen));
		if (all == NULL)
			break;
		all[n++] = (image_seen) {
			.token = member->holder->token,
			.writes = member->writes,
			.writer = member->writer,
			.deadline_us = member->deadline_us,
		};
	}
	free(name->seen);
	name->seen = all;
	name->nseen = n;
}

/*
 * Make a member of a row: false if memory is short.  "before" is what is known of the
 * lease, or NULL.
 */
static bool
fill_member(lease_member *member, image_name *name, const lease_row *row,
			const lease_member *before, int64_t now_us)
{
	const image_account *account;

	*member = (lease_member) {
		.writes = row->writes,
		.writer = row->writer,
		.ttl_us = row->ttl_us,
		.written_us = row->deadline_us,
		.version = row->version,
		.slot = row->slot,
		.mode = row->mode,
		.kind = row->kind,
		.released = before != NULL && before->released,
	};
	if (before != NULL)
		member->holder = before->holder;
	else
	{
		account = image_account_get(row->user, row->host);
		member->holder = account == NULL ? NULL :
			image_holder_create(name, account, row->owner, row->token,
								row->connection_id, row->acquired_us);
		if (member->holder == NULL)
			return false;
	}
	if (row->request.length > 0)
	{
		member->request = image_text_create(row->request);
		if (member->request == NULL)
			return false;
	}
	set_deadline(name, member, before, now_us);
	return true;
}

/*
 * Replace a name's members by others, which may have some of their holders and
 * texts.
 */
static void
set_members(image_name *name, lease_member *members, size_t count)
{
	lease_member *before = name->members;
	size_t		nbefore = name->count;

	name->members = members;
	name->count = count;

	for (size_t i = 0; i < count; i++)
	{
		keep(&members[i]);
		members[i].holder->place = i;
	}
	for (size_t i = 0; i < nbefore; i++)
	{
		image_holder *holder = before[i].holder;
		bool		stays = holder->place < count &&
			members[holder->place].holder == holder;

		if (before[i].request != NULL &&
			!(stays && members[holder->place].request == before[i].request))
			drop_object(&before[i].request->object);
		if (!stays)
			drop_holder(holder);
	}
	free(before);
	note_due(name);
}

/*
 * Put a member into the place of another one, or behind all if that is NULL: false if
 * memory is short.
 */
static bool
set_member(image_name *name, const lease_member *before,
		   const lease_member *member)
{
	size_t		count = name->count + (before == NULL);
	lease_member *members = malloc(count * sizeof(lease_member));

	if (members == NULL)
		return false;
	if (name->count > 0)
		memcpy(members, name->members, name->count * sizeof(lease_member));
	members[before != NULL ? (size_t) (before - name->members) :
			name->count] = *member;
	set_members(name, members, count);
	return true;
}

/* The lease with a token, or NULL. */
const lease_member *
image_lease(lease_bytes bytes, uint64_t token)
{
	const image_name *name = image_find(bytes);
	const lease_member *member = name == NULL ? NULL :
		find_member(name, token, 0);

	return member != NULL && !member->gone ? member : NULL;
}

/*
 * The first lease that an owner has on a name, also one that has ended and is locked; or
 * the next after one; or NULL.  There may be many of other owners.
 */
const lease_member *
image_own(const image_name *name, lease_bytes owner,
		  const image_account *account, const lease_member *after)
{
	hash_link  *link = after != NULL ? hash_next(&after->holder->by_name) :
		hash_first(&image.holders, hash_holder(name, owner, account));

	for (; link != NULL; link = hash_next(link))
	{
		const image_holder *holder = (image_holder *)
			((char *) link - offsetof(image_holder, by_name));

		if (holder->name == name && holder->account == account &&
			lease_same(holder->owner, owner))
			return &name->members[holder->place];
	}
	return NULL;
}

/*
 * Make a name known: these rows are what the table has.  "tells_locks" says that they
 * were read so that it is known which are locked.  False if memory is short; then it is
 * as it was.  There is no draft.
 */
bool
image_know(image_name *name, const lease_row *rows, size_t n,
		   bool tells_locks, int64_t now_us)
{
	lease_member *members = calloc(n + 1, sizeof(lease_member));
	image_row  *table_rows = calloc(n + 1, sizeof(image_row));
	bool		done = members != NULL && table_rows != NULL;

	for (size_t i = 0; i < name->count; i++)
		name->members[i].holder->is_found = false;
	for (size_t i = 0; done && i < n; i++)
	{
		lease_member *before = find_of_row(name, &rows[i], i);

		/* who has edited the table may have made two of one */
		if (before != NULL && before->holder->is_found)
			before = NULL;
		if (before != NULL)
			before->holder->is_found = true;
		done = fill_member(&members[i], name, &rows[i], before, now_us);
		members[i].locked = rows[i].locked;
		table_rows[i] = (image_row) {
			.token = rows[i].token,
			.writes = rows[i].writes,
			.slot = rows[i].slot,
			.locked = rows[i].locked,
		};
	}
	if (!done)
	{
		free(members);
		free(table_rows);
		return false;
	}
	note_seen(name);
	set_members(name, members, n);
	free(name->rows);
	name->rows = table_rows;
	name->nrows = n;
	set_dirty(name, false);
	name->generation = image.generation;
	name->unguarded = tells_locks || n == 0;
	for (size_t i = 0; i < n; i++)
		name->unguarded &= !members[i].locked;
	return true;
}

/* A name has a lease, or a newer version of it: false if memory is short. */
static bool
put(image_name *name, const lease_row *row, int64_t now_us)
{
	const lease_member *before = find_of_row(name, row, 0);
	lease_member member;

	if (before != NULL && before->writes >= row->writes)
	{
		set_dirty(name, true);	/* the table may have an older one */
		return true;
	}
	if (!fill_member(&member, name, row, before, now_us) ||
		!set_member(name, before, &member))
		return false;
	set_dirty(name, true);
	return true;
}

/*
 * A row of another run was seen, in passing: when it is over, on our clock.  What is
 * not known of it is remembered, where others write; it was there from the beginning
 * else.
 */
int64_t
image_see(const lease_row *row, int64_t now_us)
{
	image_name *name = image_find(row->name);
	lease_member *member = name == NULL ? NULL :
		find_member(name, row->token, 0);

	if (image.is_ours)
		return member != NULL ? member->deadline_us :
			image.since_us + row->ttl_us;
	if (member == NULL || member->writes < row->writes)
	{
		name = image_get(row->name);
		if (name != NULL)
			(void) put(name, row, now_us);
		member = name == NULL ? NULL : find_member(name, row->token, 0);
	}
	return member != NULL ? member->deadline_us : now_us + row->ttl_us;
}

/*
 * Note which rows of a name that is known are locked.  False if these are not the
 * rows that it has: somebody has edited the table.  There is no draft.
 */
bool
image_probe(image_name *name, const lease_row *rows, size_t n)
{
	if (n != name->nrows)
		return false;
	for (size_t i = 0; i < name->count; i++)
		name->members[i].locked = false;
	name->unguarded = true;
	for (size_t i = 0; i < n; i++)
	{
		image_row  *before = &name->rows[i];
		lease_member *member = find_member(name, rows[i].token, i);

		for (size_t r = 0; before->slot != rows[i].slot && r < n; r++)
			before = &name->rows[r];
		if (before->slot != rows[i].slot || before->token != rows[i].token ||
			before->writes != rows[i].writes)
			return false;
		before->locked = rows[i].locked;
		name->unguarded &= !rows[i].locked;
		if (member == NULL)
			continue;
		member->locked = rows[i].locked;
		if (!member->locked)
			member->guarded = 0;
	}

	/* what had ended, and was there only for its guard */
	(void) drop_gone(name);
	return true;
}

/*
 * The journal that another run has left, or this one before it forgot, has ended
 * leases whose rows are locked: these may be guarded, and so are in the way until that
 * ends.  False if memory is short.  There is no draft.
 */
bool
image_keep_guarded(image_name *name, const lease_row *rows, size_t n,
				   int64_t now_us)
{
	for (size_t i = 0; i < n; i++)
	{
		lease_member member;

		if (!rows[i].locked || find_member(name, rows[i].token, i) != NULL)
			continue;
		if (!fill_member(&member, name, &rows[i], NULL, now_us))
			return false;
		member.gone = true;
		member.locked = true;
		if (!set_member(name, NULL, &member))
			return false;
	}
	return true;
}

/* ----------------------------------------------------------------
 * What the journal has, as it is read in its order.  Of a lease that has come to be
 * newer already nothing changes.
 * ----------------------------------------------------------------
 */

/*
 * A lease was put: false if memory is short.  What was known of a name in an earlier
 * generation does not count: the table has nothing of it now, or else it would have
 * been made known.
 */
bool
image_put(const lease_row *row, int64_t now_us)
{
	image_name *name = image_get(row->name);

	return name != NULL &&
		(name->generation == image.generation ||
		 image_know(name, NULL, 0, true, now_us)) &&
		put(name, row, now_us);
}

/* One was removed. */
void
image_remove(lease_bytes bytes, uint64_t token)
{
	image_name *name = image_find(bytes);
	lease_member *member = name == NULL ||
		name->generation != image.generation ? NULL :
		find_member(name, token, 0);

	if (member == NULL)
		return;
	member->gone = true;
	member->locked = false;
	(void) drop_gone(name);
	set_dirty(name, true);
}

/*
 * All leases of an owner were renewed that its run had written before, and that were
 * not over: false if memory is short.
 */
bool
image_renew_all(lease_bytes owner, lease_bytes user, lease_bytes host,
				uint64_t writer, int64_t at_us, int64_t ttl_us, int64_t now_us)
{
	const image_account *account = image_account_get(user, host);
	image_holder *holder = NULL;

	if (account == NULL)
		return false;
	while ((holder = image_owned(owner, account, holder)) != NULL)
	{
		lease_member *member = find_member(holder->name, holder->token, 0);

		if (holder->name->generation != image.generation ||
			member->kind != LEASE_PLAIN || member->writer != writer ||
			member->written_us <= at_us ||
			member->written_us - member->ttl_us >= at_us)
			continue;
		member->ttl_us = ttl_us;
		member->written_us = at_us + ttl_us;
		member->writes++;
		set_deadline(holder->name, member, NULL, now_us);
		note_due(holder->name);
		set_dirty(holder->name, true);
	}
	return true;
}

/* ----------------------------------------------------------------
 * Leases that cannot all be
 *
 * Tables may have changes of two servers that granted without knowing of each other: of
 * a source that was lost with its newest leases and now follows its successor, say, or
 * of two that are written while one follows the other.
 * ----------------------------------------------------------------
 */

/*
 * Drop what the newest lease of a name excludes.  Tokens grow with every grant, so when
 * that was granted the others had ended, or were not known to whoever granted it.  Says
 * how many were dropped.
 */
size_t
image_drop_excluded(image_name *name)
{
	const lease_member *newest = NULL;
	size_t		n;

	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];

		if (!member->gone &&
			(newest == NULL || member->holder->token > newest->holder->token))
			newest = member;
	}
	for (size_t i = 0; i < name->count; i++)
	{
		lease_member *member = &name->members[i];

		if (member->gone || member == newest ||
			lease_modes_are_compatible(member->mode, newest->mode))
			continue;
		member->gone = true;
		member->locked = false;
	}
	n = drop_gone(name);
	if (n > 0)
		set_dirty(name, true);
	return n;
}

/* What part_slots() knows of a lease, or of a slot. */
typedef struct slot_plan
{
	uint32_t	slot;			/* of a lease */
	bool		stays;			/* it does */
	bool		used;			/* the slot that has this number is */
} slot_plan;

static int
compare_slots(const void *first, const void *second)
{
	uint32_t	a = ((const slot_plan *) first)->slot;
	uint32_t	b = ((const slot_plan *) second)->slot;

	return (a > b) - (a < b);
}

/* Say whether each lease of a name has a slot of its own, and one has slot 0. */
static bool
has_own_slots(const image_name *name, slot_plan *plan)
{
	size_t		i = 1;

	for (size_t m = 0; m < name->count; m++)
		plan[m].slot = name->members[m].slot;
	qsort(plan, name->count, sizeof(slot_plan), compare_slots);
	while (i < name->count && plan[i].slot != plan[i - 1].slot)
		i++;
	return plan[0].slot == 0 && i == name->count;
}

/*
 * See to it that it is so.  Leases whose rows the table has stay where they are, as far
 * as that is possible.  False if memory is short.
 */
static bool
part_slots(image_name *name)
{
	size_t		room = name->count + 1;
	slot_plan  *plan = calloc(room, sizeof(slot_plan));
	uint32_t	slot = 0;

	if (plan == NULL)
		return false;
	if (has_own_slots(name, plan))
	{
		free(plan);
		return true;
	}
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < name->count; i++)
		{
			const lease_member *member = &name->members[i];
			const image_row *row = image_row_at(name, member->slot);

			if (member->slot >= room || plan[member->slot].used ||
				(pass == 0 && (row == NULL ||
							   row->token != member->holder->token)))
				continue;
			plan[member->slot].used = true;
			plan[i].stays = true;
		}
	if (!plan[0].used)
		plan[0].stays = false;
	for (size_t i = 0; i < name->count; i++)
	{
		lease_member *member = &name->members[i];

		if (plan[i].stays)
			continue;
		while (plan[slot].used)
			slot++;
		plan[slot].used = true;
		member->slot = slot;
		member->writes++;
		set_dirty(name, true);
	}
	free(plan);
	return true;
}

/*
 * All has been read, table and journal: see to it that the leases of each name can all
 * be.  Says how many were dropped, in "ndropped"; false if memory is short.
 */
bool
image_settle(size_t *ndropped)
{
	*ndropped = 0;
	for (image_name *name = image.newest; name != NULL; name = name->older)
	{
		if (name->generation != image.generation || name->count < 2)
			continue;
		*ndropped += image_drop_excluded(name);
		if (!part_slots(name))
			return false;
	}
	return true;
}

/* ----------------------------------------------------------------
 * What has been committed
 * ----------------------------------------------------------------
 */

/*
 * What a draft has become has been committed.  Its first members are those of the
 * image, in their order.  "in_table" says that the rows are in the table; else the
 * journal has them.  The image gets the draft's array.
 */
void
image_replace(image_name *name, lease_member **members, size_t *count,
			  bool in_table)
{
	lease_member *all = *members;
	size_t		n = 0;

	for (size_t i = 0; i < *count; i++)
	{
		lease_member *member = &all[i];

		if (member->gone && !(member->locked && i < name->count))
			continue;
		/* a draft counts guards that are announced, too */
		member->locked = i < name->count && name->members[i].locked;
		member->guarded = i < name->count ? name->members[i].guarded : 0;
		member->changed = false;
		member->renewed = false;
		member->expired = false;
		all[n++] = *member;
	}
	*members = NULL;
	*count = 0;
	set_members(name, all, n);
	if (in_table)
	{
		name->generation = 0;
		name->nrows = 0;		/* for a name without leases to go */
	}
	else
		set_dirty(name, true);
}

/* What the table has in a slot, or NULL. */
const image_row *
image_row_at(const image_name *name, uint32_t slot)
{
	if (slot < name->nrows && name->rows[slot].slot == slot)
		return &name->rows[slot];
	for (size_t i = 0; i < name->nrows; i++)
		if (name->rows[i].slot == slot)
			return &name->rows[i];
	return NULL;
}

/* Say whether the table has a lease as it is. */
bool
image_is_in_table(const image_name *name, const lease_member *member)
{
	const image_row *row = image_row_at(name, member->slot);

	return !member->gone && row != NULL && row->writes == member->writes &&
		row->token == member->holder->token;
}

/*
 * The table has a name as it is now, but for rows that are locked: false if memory
 * is short.
 */
bool
image_written(image_name *name)
{
	image_row  *rows = calloc(name->count + name->nrows + 1,
							  sizeof(image_row));
	size_t		nlocked = 0;
	size_t		nwritten = 0;	/* of these, that are as they should be */
	size_t		n = 0;

	if (rows == NULL)
		return false;
	for (size_t i = 0; i < name->count; i++)
	{
		const lease_member *member = &name->members[i];
		const image_row *row = image_row_at(name, member->slot);

		if (member->gone)
			continue;
		if (row != NULL && row->locked)
			nwritten += image_is_in_table(name, member);
		else
			rows[n++] = (image_row) {
				.token = member->holder->token,
				.writes = member->writes,
				.slot = member->slot,
			};
	}
	for (size_t i = 0; i < name->nrows; i++)
		if (name->rows[i].locked)
		{
			rows[n++] = name->rows[i];
			nlocked++;
		}
	if (image.filter != NULL)
	{
		for (size_t i = 0; i < n; i++)
			image_filter_add(image.filter, name->name);
		for (size_t i = 0; i < name->nrows; i++)
			image_filter_remove(image.filter, name->name);
	}
	free(name->rows);
	name->rows = rows;
	name->nrows = n;
	set_dirty(name, nwritten < nlocked);
	if (name->count == 0 && is_droppable(name))
		drop_name(name);
	return true;
}

/* ----------------------------------------------------------------
 * Leases of an owner
 * ----------------------------------------------------------------
 */

static image_holder *
of_link(hash_link *link)
{
	return link == NULL ? NULL :
		(image_holder *) ((char *) link - offsetof(image_holder, by_owner));
}

/* The first lease of an owner, or the next after one; or NULL. */
image_holder *
image_owned(lease_bytes owner, const image_account *account,
			const image_holder *after)
{
	hash_link  *link = after != NULL ? hash_next(&after->by_owner) :
		hash_first(&image.owners, hash_owner(owner, account));

	while (link != NULL && (of_link(link)->account != account ||
							!lease_same(of_link(link)->owner, owner)))
		link = hash_next(link);
	return of_link(link);
}

/* ----------------------------------------------------------------
 * What is known before it is written
 * ----------------------------------------------------------------
 */

/* The batch has a draft of a name. */
void
image_set_draft(image_name *name, struct lease_name *draft)
{
	name->draft = draft;
}

/* A release of a lease has been answered: say whether that ends it. */
void
image_set_released(const image_holder *holder, bool ends)
{
	holder->name->members[holder->place].released = ends;
}

/* A guard pins all that a lease is now, or as much as another one does. */
void
lease_member_pin(lease_member *member)
{
	if (member->guarded == 0 || member->mode == LEASE_EXCLUSIVE)
		member->guard_mode = member->mode;
	if (member->guarded < member->version)
		member->guarded = member->version;
}

/*
 * The row of the lease in a place of a name may be locked, until it has been read with
 * locks; "pins" says that a guard is about to do that.
 */
void
image_note_guard(image_name *name, size_t place, bool pins)
{
	name->unguarded = false;
	if (place >= name->count)
		return;					/* it is of a draft */
	name->members[place].locked = true;
	if (pins)
		lease_member_pin(&name->members[place]);
}

/* The row of a lease as it is now. */
lease_row
image_row_of(const image_name *name, const lease_member *member,
			 int64_t now_us, int64_t wall_us)
{
	const image_holder *holder = member->holder;

	return (lease_row) {
		.name = name->name,
		.slot = member->slot,
		.owner = holder->owner,
		.user = holder->account->user,
		.host = holder->account->host,
		.mode = member->mode,
		.kind = member->kind,
		.version = member->version,
		.token = holder->token,
		.request = member->request == NULL ? (lease_bytes) {"", 0} :
			member->request->bytes,
		.ttl_us = member->ttl_us,
		.writes = member->writes,
		.writer = member->writer,
		.deadline_us = member->written_us,
		.connection_id = holder->connection_id,
		.acquired_us = holder->acquired_us,
		.expires_us = wall_us + member->deadline_us - now_us,
	};
}
