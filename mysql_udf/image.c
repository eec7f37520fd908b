/*
 * image.c
 *	  What the lock table holds, as this run of the server knows it.
 *
 * image.h says what the image is, and what is true of it.
 *
 * Memory may be short.  All that a commit needs is allocated before it: a name with its
 * places in all lists, a draft with all that it may become.  So image_replace() cannot
 * fail.
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
	hash_table	tokens;			/* the same, by name and token */
	image_name *newest;
	image_name *oldest;
	size_t		nleases;
	uint64_t	generation;
	bool		is_ours;		/* nobody else writes the table */
	bool		is_valid;		/* names can be known without being read */
	image_filter *filter;		/* NULL while it is complete */
	int64_t		since_us;		/* when what other runs wrote was first seen */
	image_object *objects;		/* made in this batch */
	image_name *first_dirty;	/* in the order in which they are written */
	image_name *last_dirty;
	size_t		ndirty;
	uint64_t	dirtied;		/* numbers them */
	heap		due;			/* the names, by their first deadline */
}			image = {.generation = 1};

/* The run begins. */
void
image_start(uint64_t writer)
{
	image.writer = writer;
}

/* ----------------------------------------------------------------
 * Names whose first deadline comes next
 * ----------------------------------------------------------------
 */

/* When a member is to be looked at, at the latest. */
static int64_t
member_due_us(const lease_member *member)
{
	if (member->gone)
		return INT64_MAX;
	/* we are told when its session ends */
	if (member->kind == LEASE_SESSION && member->writer == image.writer)
		return INT64_MAX;
	return member->deadline_us;
}

/* Note the first deadline of a name. */
static void
note_due(image_name *name)
{
	int64_t		due_us = INT64_MAX;

	for (size_t i = 0; i < name->count; i++)
		if (member_due_us(&name->members[i]) < due_us)
			due_us = member_due_us(&name->members[i]);
	heap_move(&image.due, &name->due, due_us);
}

/*
 * A member has changed: the name is due no later than it.  The others, of which there may
 * be thousands, are not gone through.
 */
static void
bring_forward(image_name *name, const lease_member *member)
{
	if (member_due_us(member) < name->due.due_us)
		heap_move(&image.due, &name->due, member_due_us(member));
}

/*
 * A name with a lease whose deadline has come by a time, or NULL.  The name is due again
 * at "again_us", or when a change of it says so.
 */
image_name *
image_due(int64_t before_us, int64_t again_us)
{
	heap_item  *first;
	image_name *name;

	do
	{
		first = heap_first(&image.due);
		if (first == NULL || first->due_us > before_us)
			return NULL;
		name = heap_object(image_name, due, first);
		note_due(name);			/* it may have been brought forward in vain */
	} while (name->due.due_us > before_us);
	heap_move(&image.due, &name->due, again_us);
	return name;
}

/* ----------------------------------------------------------------
 * Names that differ from the table
 * ----------------------------------------------------------------
 */

/* Put a name into the list before another, or at its end. */
static void
link_dirty(image_name *name, image_name *next)
{
	image_name *prev = next != NULL ? next->prev_dirty : image.last_dirty;

	name->next_dirty = next;
	name->prev_dirty = prev;
	if (prev != NULL)
		prev->next_dirty = name;
	else
		image.first_dirty = name;
	if (next != NULL)
		next->prev_dirty = name;
	else
		image.last_dirty = name;
}

static void
unlink_dirty(image_name *name)
{
	if (name->prev_dirty != NULL)
		name->prev_dirty->next_dirty = name->next_dirty;
	else
		image.first_dirty = name->next_dirty;
	if (name->next_dirty != NULL)
		name->next_dirty->prev_dirty = name->prev_dirty;
	else
		image.last_dirty = name->prev_dirty;
}

/* Note whether a name differs from the table: none does where others write it. */
static void
set_dirty(image_name *name, bool is_dirty)
{
	if (name->is_dirty == is_dirty || (is_dirty && !image.is_ours))
		return;
	name->is_dirty = is_dirty;
	if (is_dirty)
	{
		name->dirtied = ++image.dirtied;
		image.ndirty++;
		link_dirty(name, NULL);
	}
	else
	{
		image.ndirty--;
		unlink_dirty(name);
	}
}

size_t
image_ndirty(void)
{
	return image.ndirty;
}

/* The name that is to be written first; the others follow by "next_dirty". */
image_name *
image_first_dirty(void)
{
	return image.first_dirty;
}

/* The number of the last name that has come to differ from the table. */
uint64_t
image_last_dirtied(void)
{
	return image.dirtied;
}

/* Have a name written before the others, if it differs. */
void
image_hurry(image_name *name)
{
	image_name *first = image.first_dirty;

	if (!name->is_dirty || name == first)
		return;
	name->dirtied = first->dirtied; /* numbers do not shrink along the list */
	unlink_dirty(name);
	link_dirty(name, first);
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

	for (; link != NULL; link = hash_next(link))
	{
		image_name *entry = hash_object(image_name, link, link);

		if (lease_same(entry->name, name))
			return entry;
	}
	return NULL;
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

/* Move a name to those that were used last. */
static void
use_name(image_name *name)
{
	if (image.newest == name)
		return;
	unlink_name(name);
	link_newest(name);
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
	if (!hash_reserve(&image.names) || !heap_reserve(&image.due))
		return NULL;
	name = calloc(1, sizeof(image_name) + bytes.length);
	if (name == NULL)
		return NULL;
	memcpy(name->data, bytes.data, bytes.length);
	name->name = (lease_bytes) {name->data, bytes.length};
	name->generation = is_absent(bytes) ? image.generation : 0;
	name->unguarded = true;
	hash_add(&image.names, &name->link, hash_bytes(bytes, 0));
	link_newest(name);
	heap_add(&image.due, &name->due, INT64_MAX);
	return name;
}

/* Take an object out of the image.  If it is new, the end of the batch frees it. */
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
	hash_remove(&image.tokens, &holder->by_token);
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
	heap_remove(&image.due, &name->due);
	unlink_name(name);
	hash_remove(&image.names, &name->link);
	for (size_t i = 0; i < name->count; i++)
		drop_member(&name->members[i]);
	free(name->members);
	free(name->rows);
	free(name->seen);
	free(name);
}

/* Say whether an entry can be dropped, and nothing would be lost. */
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

/* A batch has a name for a call that "releases", or for another reason. */
void
image_pin(image_name *name, bool releases)
{
	name->only_released = releases && (name->only_released || !name->in_batch);
	name->in_batch = true;
}

/* The batch is done with a name.  Drop the entry if it says nothing. */
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
 * short, the image stays complete.
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
 * If there are too many leases, drop names that nobody has used for long.  But not where
 * others write: there the entries keep the deadlines of other runs' leases.
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

/* See image_forget(); "keeps_foreign" is false for image_forget_all(). */
static void
forget(bool keeps_foreign)
{
	image_name *next;

	image.is_ours = false;
	image.is_valid = false;
	image.generation++;
	image_filter_free(image.filter);
	image.filter = NULL;
	while (image.first_dirty != NULL)
		set_dirty(image.first_dirty, false);
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

/*
 * What is known may be wrong: begin a new generation, in which all is unknown.  Leases of
 * other runs stay, for their deadlines.  The calls themselves keep the releases that were
 * answered.
 */
void
image_forget(void)
{
	forget(true);
}

/* The same, and forget what other runs wrote.  No batch is under way. */
void
image_forget_all(void)
{
	forget(false);
	image.since_us = 0;
}

/*
 * This run takes over: what is read from now on stays known until image_forget().  "kept"
 * says that nobody else has written since this run took over last; then what other runs
 * wrote has been there since that time.
 */
void
image_begin(int64_t now_us, bool kept)
{
	image.is_ours = true;
	if (!kept || image.since_us == 0)
		image.since_us = now_us;
}

/* All rows have been read, or counted by a filter. */
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

/* Say whether the image has all leases. */
bool
image_is_complete(void)
{
	return image.is_valid && image.filter == NULL;
}

/* ----------------------------------------------------------------
 * What leases consist of
 * ----------------------------------------------------------------
 */

/* List a new object: image_end_batch() frees it, unless it is kept by then. */
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

/* The same within a name. */
static uint64_t
hash_holder(const image_name *name, lease_bytes owner,
			const image_account *account)
{
	return hash_bytes(owner, name->link.hash ^ account->link.hash);
}

/* Of a lease, within a name: tokens are different anyway. */
static uint64_t
hash_token(const image_name *name, uint64_t token)
{
	return name->link.hash ^ token;
}

/* Make a holder for a draft; NULL if memory is short.  image_replace() may keep it. */
image_holder *
image_holder_create(image_name *name, const image_account *account,
					lease_bytes owner, uint64_t token, uint64_t connection_id,
					int64_t acquired_us)
{
	image_holder *holder;

	if (!hash_reserve(&image.owners) || !hash_reserve(&image.holders) ||
		!hash_reserve(&image.tokens))
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

/* Make a text for a draft; NULL if memory is short.  image_replace() may keep it. */
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

/* Keep a holder and its text in the image from now on. */
static void
keep(const lease_member *member)
{
	image_holder *holder = member->holder;

	if (!holder->object.is_kept)
	{
		holder->object.is_kept = true;
		hash_add(&image.owners, &holder->by_owner,
				 hash_owner(holder->owner, holder->account));
		hash_add(&image.holders, &holder->by_name,
				 hash_holder(holder->name, holder->owner, holder->account));
		hash_add(&image.tokens, &holder->by_token,
				 hash_token(holder->name, holder->token));
		image.nleases++;
	}
	if (member->request != NULL)
		member->request->object.is_kept = true;
}

/* Free what was made for drafts and is not in the image. */
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

static int
compare_rows(const void *first, const void *second)
{
	const image_row *a = first;
	const image_row *b = second;

	return (a->slot > b->slot) - (a->slot < b->slot);
}

/* The table's row in a slot, or NULL. */
static image_row *
find_row(const image_name *name, uint32_t slot)
{
	image_row	row = {.slot = slot};

	return name->nrows == 0 ? NULL :
		bsearch(&row, name->rows, name->nrows, sizeof(image_row), compare_rows);
}

/*
 * A lease's row is locked: a guard may pin what it says.  Of several rows of a lease, see
 * drop_older_twins(), the strictest counts.
 */
void
lease_member_pin(lease_member *member, lease_mode mode, uint32_t version)
{
	if (!member->locked || mode == LEASE_EXCLUSIVE)
		member->guard_mode = mode;
	if (!member->locked || version > member->guarded)
		member->guarded = version;
	member->locked = true;
}

/*
 * The first member with a token, or the next after one; or NULL.  Two servers that do not
 * know of each other may have granted the same token to different holders.
 */
static lease_member *
find_member(const image_name *name, uint64_t token, const lease_member *after)
{
	hash_link  *link = after != NULL ? hash_next(&after->holder->by_token) :
		hash_first(&image.tokens, hash_token(name, token));

	for (; link != NULL; link = hash_next(link))
	{
		const image_holder *holder = hash_object(image_holder, by_token, link);

		if (holder->name == name && holder->token == token)
			return &name->members[holder->place];
	}
	return NULL;
}

/* The same, but not one that has ended. */
static lease_member *
find_lease(const image_name *name, uint64_t token)
{
	lease_member *member = NULL;

	do
		member = find_member(name, token, member);
	while (member != NULL && member->gone);
	return member;
}

/* The member that is the lease of a row, or is left of it; or NULL. */
static lease_member *
find_of_row(const image_name *name, const lease_row *row)
{
	lease_member *member = NULL;
	lease_member *found = NULL;

	while ((found == NULL || found->gone) &&
		   (member = find_member(name, row->token, member)) != NULL)
		if (lease_same(member->holder->owner, row->owner) &&
			lease_same(member->holder->account->user, row->user) &&
			lease_same(member->holder->account->host, row->host))
			found = member;
	return found;
}

static int
compare_seen(const void *first, const void *second)
{
	const image_seen *a = first;
	const image_seen *b = second;

	if (a->token != b->token)
		return (a->token > b->token) - (a->token < b->token);
	if (a->writes != b->writes)
		return (a->writes > b->writes) - (a->writes < b->writes);
	return (a->writer > b->writer) - (a->writer < b->writer);
}

/* Set a member's deadline by what its row says, and what is known of it. */
static void
set_deadline(const image_name *name, lease_member *member,
			 const lease_member *before, int64_t now_us)
{
	const image_seen version = {
		.token = member->holder->token,
		.writes = member->writes,
		.writer = member->writer,
	};
	const image_seen *earlier;

	if (member->writer == image.writer)
		member->deadline_us = member->written_us;
	else if (before != NULL && before->writes == member->writes &&
			 before->writer == member->writer)
		member->deadline_us = before->deadline_us;
	else
	{
		earlier = name->nseen == 0 ? NULL :
			bsearch(&version, name->seen, name->nseen, sizeof(image_seen),
					compare_seen);
		member->deadline_us = earlier != NULL ? earlier->deadline_us :
			member->ttl_us + (image.is_ours ? image.since_us : now_us);
	}
}

/*
 * A name is about to be made known by the table: note the deadlines of what other runs
 * wrote, for versions that only the journal has, and for a second row of a lease.  The
 * journal is read after the table.  If memory is short, their time to live begins anew.
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
	if (n > 0)
		qsort(all, n, sizeof(image_seen), compare_seen);
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

/* Replace a name's members.  The new ones may have holders and texts of the old. */
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
 * Replace a member, or add one if "before" is NULL: false if memory is short.  The new one
 * has a text of its own.  The journal may have thousands of changes of a name with
 * thousands of members, so the others are not gone through.
 */
static bool
set_member(image_name *name, lease_member *before, const lease_member *member)
{
	image_text *text = before != NULL ? before->request : NULL;

	if (before == NULL)
	{
		lease_member *members = realloc(name->members, (name->count + 1) *
										sizeof(lease_member));

		if (members == NULL)
			return false;
		name->members = members;
		before = &members[name->count];
		member->holder->place = name->count++;
	}
	*before = *member;
	keep(before);
	if (text != NULL)
		drop_object(&text->object);
	bring_forward(name, before);
	return true;
}

/* The lease with a token, or NULL. */
const lease_member *
image_lease(lease_bytes bytes, uint64_t token)
{
	const image_name *name = image_find(bytes);

	return name == NULL ? NULL : find_lease(name, token);
}

/*
 * The first lease of an owner on a name, or the next after one; or NULL.  It may have
 * ended and be locked.  Leases of other owners, which may be many, are not looked at.
 */
const lease_member *
image_own(const image_name *name, lease_bytes owner,
		  const image_account *account, const lease_member *after)
{
	hash_link  *link = after != NULL ? hash_next(&after->holder->by_name) :
		hash_first(&image.holders, hash_holder(name, owner, account));

	for (; link != NULL; link = hash_next(link))
	{
		const image_holder *holder = hash_object(image_holder, by_name, link);

		if (holder->name == name && holder->account == account &&
			lease_same(holder->owner, owner))
			return &name->members[holder->place];
	}
	return NULL;
}

/*
 * The table may have two rows of one lease: the lease has moved to another slot while its
 * row was locked, or somebody has edited the table.  The newest counts.  Says whether
 * there are such rows.
 */
static bool
drop_older_twins(image_name *name)
{
	bool		any = false;

	for (size_t i = 0; i < name->count; i++)
	{
		lease_member *member = &name->members[i];
		const lease_member *twin = NULL;

		while ((twin = find_member(name, member->holder->token, twin)) != NULL)
			member->gone |= twin != member && !twin->gone &&
				twin->writes >= member->writes &&
				twin->holder->account == member->holder->account &&
				lease_same(twin->holder->owner, member->holder->owner);
		any |= member->gone;
	}
	(void) drop_gone(name);
	return any;
}

/*
 * Make a name known: these rows are what the table has, in the order of slots.
 * "tells_locks" says that the rows tell which of them are locked.  False if memory is
 * short; then nothing has changed.  There is no draft.
 */
bool
image_know(image_name *name, const lease_row *rows, size_t n,
		   bool tells_locks, int64_t now_us)
{
	lease_member *members = calloc(n + 1, sizeof(lease_member));
	image_row  *table_rows = calloc(n + 1, sizeof(image_row));
	bool		done = members != NULL && table_rows != NULL;

	note_seen(name);
	for (size_t i = 0; i < name->count; i++)
		name->members[i].holder->is_found = false;
	for (size_t i = 0; done && i < n; i++)
	{
		lease_member *before = find_of_row(name, &rows[i]);

		/* see drop_older_twins() */
		if (before != NULL && before->holder->is_found)
			before = NULL;
		if (before != NULL)
			before->holder->is_found = true;
		done = fill_member(&members[i], name, &rows[i], before, now_us);
		table_rows[i] = (image_row) {
			.token = rows[i].token,
			.writes = rows[i].writes,
			.slot = rows[i].slot,
			.version = rows[i].version,
			.mode = rows[i].mode,
			.locked = rows[i].locked,
		};
		if (rows[i].locked)
			lease_member_pin(&members[i], rows[i].mode, rows[i].version);
	}
	if (!done)
	{
		free(members);
		free(table_rows);
		return false;
	}
	set_members(name, members, n);
	free(name->rows);
	name->rows = table_rows;
	name->nrows = n;
	set_dirty(name, false);
	name->generation = image.generation;
	name->unguarded = tells_locks || n == 0;
	for (size_t i = 0; i < n; i++)
		name->unguarded &= !rows[i].locked;
	if (drop_older_twins(name))
		set_dirty(name, true);
	return true;
}

/* Put a lease, or a newer version of one: false if memory is short. */
static bool
put(image_name *name, const lease_row *row, int64_t now_us)
{
	lease_member *before = find_of_row(name, row);
	lease_member member;

	if (before != NULL && !before->gone && before->writes >= row->writes)
	{
		set_dirty(name, true);	/* the table may have an older one */
		return true;
	}
	if (!fill_member(&member, name, row, before, now_us))
		return false;
	if (before != NULL && before->locked)
		lease_member_pin(&member, before->guard_mode, before->guarded);
	if (!set_member(name, before, &member))
		return false;
	set_dirty(name, true);
	return true;
}

/*
 * The reaper has seen a row of another run: say when its lease is over, on our clock.
 * Where others write, remember the row if it is new.  Elsewhere it was there when this
 * run took over.
 */
int64_t
image_see(const lease_row *row, int64_t now_us)
{
	image_name *name = image_find(row->name);
	lease_member *member = name == NULL ? NULL :
		find_member(name, row->token, NULL);

	if (image.is_ours)
		return member != NULL ? member->deadline_us :
			image.since_us + row->ttl_us;
	if (member == NULL || member->writes < row->writes)
	{
		name = image_get(row->name);
		if (name != NULL)
			(void) put(name, row, now_us);
		member = name == NULL ? NULL : find_member(name, row->token, NULL);
	}
	return member != NULL ? member->deadline_us : now_us + row->ttl_us;
}

/*
 * Rows of a name that is known were read, in the order of slots: note which are locked.
 * False if the name should have other rows: the table has been edited.  There is no draft.
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
		lease_member *member = NULL;

		if (before->slot != rows[i].slot || before->token != rows[i].token ||
			before->writes != rows[i].writes)
			return false;
		before->locked = rows[i].locked;
		name->unguarded &= !rows[i].locked;
		while (before->locked &&
			   (member = find_member(name, before->token, member)) != NULL)
			lease_member_pin(member, before->mode, before->version);
	}

	/* leases that had ended stayed only for their guards */
	(void) drop_gone(name);
	return true;
}

/*
 * Keep leases that have ended by the journal, but whose rows are locked: guards may pin
 * them, so they are in the way until the rows are free.  False if memory is short.  There
 * is no draft.
 */
bool
image_keep_guarded(image_name *name, const lease_row *rows, size_t n,
				   int64_t now_us)
{
	for (size_t i = 0; i < n; i++)
	{
		lease_member member;

		if (!rows[i].locked || find_of_row(name, &rows[i]) != NULL)
			continue;
		if (!fill_member(&member, name, &rows[i], NULL, now_us))
			return false;
		member.gone = true;
		lease_member_pin(&member, member.mode, member.version);
		if (!set_member(name, NULL, &member))
			return false;
	}
	return true;
}

/* ----------------------------------------------------------------
 * What the journal has, in its order.  A lease that is newer already does not change.
 * ----------------------------------------------------------------
 */

/*
 * A lease was put: false if memory is short.  If the name is not known in this generation,
 * the table has no row of it.
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

/* A lease was removed: image_settle_name() drops it. */
void
image_remove(lease_bytes bytes, uint64_t token)
{
	image_name *name = image_find(bytes);
	lease_member *member = name == NULL ||
		name->generation != image.generation ? NULL : find_lease(name, token);

	if (member == NULL)
		return;
	member->gone = true;
	set_dirty(name, true);
}

/*
 * A run has renewed all leases of an owner that it had written and that were not over:
 * false if memory is short.
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
		lease_member *member = &holder->name->members[holder->place];

		if (holder->name->generation != image.generation || member->gone ||
			member->kind != LEASE_PLAIN || member->writer != writer ||
			member->written_us <= at_us ||
			member->written_us - member->ttl_us >= at_us)
			continue;
		member->ttl_us = ttl_us;
		member->written_us = at_us + ttl_us;
		member->writes++;
		set_deadline(holder->name, member, NULL, now_us);
		bring_forward(holder->name, member);
		set_dirty(holder->name, true);
	}
	return true;
}

/* ----------------------------------------------------------------
 * Leases that exclude each other
 *
 * The tables may have changes of two servers that granted without knowing of each other.
 * For example, a source was lost with its newest leases, and now follows its successor.
 * Or two servers are written while one follows the other.
 * ----------------------------------------------------------------
 */

/*
 * Mark the leases as gone that the newest lease of a name excludes: how many.  Tokens grow
 * with every grant.  So when it was granted, the others had ended, or the server that
 * granted it did not know of them.
 */
static size_t
exclude(image_name *name)
{
	const lease_member *newest = NULL;
	size_t		n = 0;

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
		n++;
	}
	if (n > 0)
		set_dirty(name, true);
	return n;
}

/*
 * All that table and journal have of a name was applied: drop leases that have ended, and
 * those that newer ones exclude.  Returns how many these are.
 */
size_t
image_settle_name(image_name *name)
{
	size_t		n = exclude(name);

	(void) drop_gone(name);
	return n;
}

/* A lease, and the slot that it had. */
typedef struct slot_user
{
	uint32_t	slot;
	lease_member *member;
} slot_user;

/* Say whether the table has a lease in its slot, in whatever version. */
static bool
is_at_home(const lease_member *member)
{
	const image_row *row = image_row_at(member->holder->name, member->slot);

	return row != NULL && row->token == member->holder->token;
}

/* By slot; the lease that the table has there comes first. */
static int
compare_slots(const void *first, const void *second)
{
	const slot_user *a = first;
	const slot_user *b = second;

	return a->slot != b->slot ? (a->slot > b->slot) - (a->slot < b->slot) :
		is_at_home(b->member) - is_at_home(a->member);
}

/*
 * Give each lease of a name a slot of its own, and slot 0 to one of them; the others stay
 * where they are.  No lease gets the slot of a row that the table has: a guard may have
 * locked that row, though its lease has ended, and another lease in its slot could not be
 * guarded until then.  If that is slot 0, the next change of the name fills it.  False if
 * memory is short.
 */
static bool
part_slots(image_name *name)
{
	slot_user  *users = malloc(name->count * sizeof(slot_user));
	size_t		passed = 0;		/* users of slots before the next */
	uint32_t	next = 0;		/* the smallest slot that may be free */

	if (users == NULL)
		return false;
	for (size_t i = 0; i < name->count; i++)
		users[i] = (slot_user) {name->members[i].slot, &name->members[i]};
	qsort(users, name->count, sizeof(slot_user), compare_slots);
	for (size_t i = 0; i < name->count; i++)
	{
		if (i == 0 ? users[i].slot == 0 || find_row(name, 0) != NULL :
			users[i].slot != users[i - 1].slot)
			continue;
		for (;;)
		{
			for (; passed < name->count && users[passed].slot <= next; passed++)
				next += users[passed].slot == next;
			if (find_row(name, next) == NULL)
				break;
			next++;
		}
		users[i].member->slot = next++;
		users[i].member->writes++;
		set_dirty(name, true);
	}
	free(users);
	return true;
}

/*
 * Table and journal have been read: settle each name, and give each lease its slot.
 * "ndropped" says how many leases were dropped for newer ones.  False if memory is short.
 */
bool
image_settle(size_t *ndropped)
{
	*ndropped = 0;
	for (image_name *name = image.newest; name != NULL; name = name->older)
	{
		if (name->generation != image.generation)
			continue;
		*ndropped += image_settle_name(name);
		if (name->count > 1 && !part_slots(name))
			return false;
	}
	return true;
}

/* ----------------------------------------------------------------
 * What has been committed
 * ----------------------------------------------------------------
 */

/*
 * A draft was committed: the image takes its array of members, the first of which are the
 * image's, in their order.  "in_table" says that the table has the changes; else the
 * journal has them.
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
		member->locked = false;
		if (i < name->count && name->members[i].locked)
			lease_member_pin(member, name->members[i].guard_mode, name->members[i].guarded);
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
		name->nrows = 0;		/* so that image_release() can drop the name */
	}
	else
		set_dirty(name, true);
}

/* The table's row in a slot, or NULL. */
const image_row *
image_row_at(const image_name *name, uint32_t slot)
{
	return find_row(name, slot);
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
 * Note which rows of a name are to stay, since one of these members, the name's own or
 * those of its draft, is to be in their slot.
 */
void
image_note_staying(image_name *name, const lease_member *members, size_t count)
{
	for (size_t i = 0; i < name->nrows; i++)
		name->rows[i].stays = false;
	for (size_t i = 0; i < count; i++)
	{
		image_row  *row = members[i].gone ? NULL :
			find_row(name, members[i].slot);

		if (row != NULL)
			row->stays = true;
	}
}

/*
 * The table was written: it has a name as it is now, except for rows that are locked.
 * False if memory is short.
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
				.version = member->version,
				.mode = member->mode,
			};
	}
	for (size_t i = 0; i < name->nrows; i++)
		if (name->rows[i].locked)
		{
			rows[n++] = name->rows[i];
			nlocked++;
		}
	if (n > 0)
		qsort(rows, n, sizeof(image_row), compare_rows);
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
	set_dirty(name, false);
	set_dirty(name, nwritten < nlocked);	/* at the end of the list */
	if (name->count == 0 && is_droppable(name))
		drop_name(name);
	return true;
}

/* ----------------------------------------------------------------
 * Leases of an owner
 * ----------------------------------------------------------------
 */

/* The first lease of an owner, or the next after one; or NULL. */
image_holder *
image_owned(lease_bytes owner, const image_account *account,
			const image_holder *after)
{
	hash_link  *link = after != NULL ? hash_next(&after->by_owner) :
		hash_first(&image.owners, hash_owner(owner, account));

	for (; link != NULL; link = hash_next(link))
	{
		image_holder *holder = hash_object(image_holder, by_owner, link);

		if (holder->account == account && lease_same(holder->owner, owner))
			return holder;
	}
	return NULL;
}

/* ----------------------------------------------------------------
 * What is known before it is written
 * ----------------------------------------------------------------
 */

/* Note the draft that the batch has of a name. */
void
image_set_draft(image_name *name, struct lease_name *draft)
{
	name->draft = draft;
}

/* A release of a lease has been answered; "ends" says whether that ends it. */
void
image_set_released(const image_holder *holder, bool ends)
{
	holder->name->members[holder->place].released = ends;
}

/*
 * The row of the lease in a place of a name may be locked, until it is read with locks
 * again.
 */
void
image_note_guard(image_name *name, size_t place)
{
	lease_member *member;
	image_row  *row;

	name->unguarded = false;
	if (place >= name->count)
		return;					/* only a draft has it */
	member = &name->members[place];
	row = find_row(name, member->slot);
	if (row != NULL && row->token == member->holder->token)
	{
		row->locked = true;
		lease_member_pin(member, row->mode, row->version);
	}
	else						/* another server has moved it */
		lease_member_pin(member, member->mode, member->version);
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
