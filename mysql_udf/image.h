/*
 * image.h
 *	  What the lock table holds, as this run of the server knows it.
 *
 * The image is in memory, the truth is in InnoDB: the lock table, and the journal
 * of what has changed since.  Calls are decided on the image, so that most need only
 * one commit of the server.  All of it is under the engine's mutex.
 *
 * Invariants; each says which code keeps it, and which tests attack it.
 *
 * 1. For a name that is known, the image is what table and journal hold, less the
 *	  releases that were answered and are yet to be written.  image_know() makes a
 *	  name known, by what was read; image_replace() follows what was committed.
 *	  Code that learns that this may no longer hold calls lease_forget()
 *	  (lease_tenure.c), which makes all names unknown: a new "generation".  Nothing
 *	  forgets a part.
 *	  (t/mysql/journal.pl, take_over.pl, storm.pl)
 * 2. No grant or renewal is answered before its commit: a batch works on drafts
 *	  (lease_name.h), which become the image when they have been committed.
 *	  (crash.pl, slow_commit.pl)
 * 3. A lease is marked "released" in the image when a release that was answered early
 *	  has ended it, until that is written.  A release that leaves some holds is found by
 *	  its lease (lease_calls_owed()).  (late_release.pl, journal.pl, many_holders.pl)
 * 4. A write that the server refused is undone by dropping its drafts.  After a write
 *	  whose outcome is unknown the image stays as it was until the write has ended, and
 *	  then a new generation begins: lease_doubt().  (lost_commit.pl, hung_commit.pl,
 *	  cut_off.c)
 * 5. Looks and early answers see the image, never a draft; so they see what was
 *	  committed.  (slow_commit.pl)
 *
 * What is known.  When the run takes over it reads the table.  If that has not more
 * than IMAGE_LEASES_MAX rows, the image is "complete": a name that is not in it has
 * no leases.  If the table has more, or the image grows beyond that, whole names are
 * dropped: those that no call has used for the longest time, but none that differs from
 * the table.  A filter counts the table's rows, so that most names without leases are
 * known to have none.  If others may write the table at the same time, nothing is known
 * for longer than a batch.
 *
 * Time.  A lease's deadline is on the clock of the run that wrote it.  The time to live
 * of a lease that another run wrote counts from when this run first saw that version.
 * So a forgotten name keeps the leases of other runs, so that their deadlines are found
 * again.
 *
 * Guards.  A transaction may have locked a lease's row.  A name is "unguarded" if
 * its rows were read, and none was locked, since a guard was last announced
 * (lease_guards.h).  Only such a read ends a guard.  A guard pins what its row says.  The
 * lease may change meanwhile, and nothing but the row is left of the guard at a take-over;
 * so no guard is announced as long as its row says less than the lease is.
 * (t/mysql/guards.pl)
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_IMAGE_H
#define DLOCK_IMAGE_H

#include "hash.h"
#include "heap.h"
#include "image_accounts.h"
#include "image_filter.h"
#include "row.h"

/* Most leases of a complete image; each takes some 400 bytes. */
#ifndef IMAGE_LEASES_MAX
#define IMAGE_LEASES_MAX	100000
#endif

/* An object made for a draft, which stays if that is committed. */
typedef struct image_object
{
	struct image_object *next;
	bool		is_new;			/* made in this batch: in a list by "next" */
	bool		is_kept;		/* it is in the image */
} image_object;

/* Bytes of a draft or of the image; they never change. */
typedef struct image_text
{
	image_object object;
	lease_bytes bytes;
	char		data[];
} image_text;

/* The parts of a lease that never change. */
typedef struct image_holder
{
	image_object object;
	hash_link	by_owner;
	hash_link	by_name;		/* and owner */
	hash_link	by_token;		/* and name */
	struct image_name *name;
	size_t		place;			/* among the name's members */
	const image_account *account;
	bool		is_found;		/* for image_know() */
	uint64_t	token;
	uint64_t	connection_id;	/* that took it */
	int64_t		acquired_us;	/* since 1970 */
	lease_bytes owner;
	char		data[];
} image_holder;

/* A lease: in the image as it is committed, or in a draft. */
typedef struct lease_member
{
	image_holder *holder;
	image_text *request;		/* id of the last acquire; NULL: none */
	uint64_t	writes;
	uint64_t	writer;			/* the run that wrote it last */
	int64_t		ttl_us;
	int64_t		written_us;		/* its deadline, on that run's clock */
	int64_t		deadline_us;	/* on our clock */
	uint32_t	version;
	uint32_t	slot;
	uint32_t	guarded;		/* while it is locked: holds that guards pin, */
	lease_mode	guard_mode;		/* and in which mode */
	lease_mode	mode;
	lease_kind	kind;
	lease_life	life;			/* of a draft */
	bool		locked;			/* its row, by a transaction */
	bool		gone;			/* it has ended; in the image: and its row is locked */
	bool		expired;		/* of a draft: because its deadline had come */
	bool		changed;		/* of a draft: to be written */
	bool		renewed;		/* of a draft: with all of its owner's */
	bool		released;		/* its end was answered, and is to be written */
	bool		is_own;			/* of a draft: for add_others() */
} lease_member;

/* A row of the table. */
typedef struct image_row
{
	uint64_t	token;
	uint64_t	writes;
	uint32_t	slot;
	uint32_t	version;
	lease_mode	mode;
	bool		locked;			/* by a transaction, when it was read; or a guard was
								 * announced since */
	bool		stays;			/* see image_note_staying() */
} image_row;

/* A version of a lease that another run has written, and when it is over. */
typedef struct image_seen
{
	uint64_t	token;
	uint64_t	writes;
	uint64_t	writer;
	int64_t		deadline_us;	/* on our clock */
} image_seen;

typedef struct image_name
{
	hash_link	link;
	struct image_name *newer;	/* all names, by when they were used last */
	struct image_name *older;
	uint64_t	generation;		/* in which it is known */
	bool		in_batch;		/* the batch under way has it: it is not dropped */
	bool		only_released;	/* and all that wants it there are releases */
	struct lease_name *draft;	/* the batch's; NULL: none, or not yet */
	lease_member *members;
	size_t		count;
	image_row  *rows;			/* what the table has, in the order of slots */
	size_t		nrows;
	image_seen *seen;			/* other runs' leases, before it was made known last,
								 * in the order of compare_seen() */
	size_t		nseen;
	bool		unguarded;		/* see "Guards" above */
	bool		is_dirty;		/* the journal has changes that the table lacks: */
	uint64_t	dirtied;		/* never falls along the list of these names */
	struct image_name *next_dirty;
	struct image_name *prev_dirty;
	heap_item	due;			/* no deadline comes sooner, see image_due() */
	lease_bytes name;
	char		data[];
} image_name;

/* image.c: what is known */
extern void image_start(uint64_t writer);
extern void image_forget(void);
extern void image_forget_all(void);
extern void image_begin(int64_t now_us, bool kept);
extern void image_end(image_filter *filter);
extern bool image_is_valid(void);
extern bool image_is_known(lease_bytes name);
extern image_name *image_find(lease_bytes name);
extern image_name *image_get(lease_bytes name);
extern const lease_member *image_lease(lease_bytes name, uint64_t token);
extern const lease_member *image_own(const image_name *name, lease_bytes owner,
									 const image_account *account,
									 const lease_member *after);
extern void image_pin(image_name *name, bool releases);
extern void image_release(image_name *name);
extern void image_trim(void);

/* image.c: what was read */
extern bool image_know(image_name *name, const lease_row *rows, size_t n,
					   bool tells_locks, int64_t now_us);
extern int64_t image_see(const lease_row *row, int64_t now_us);
extern bool image_probe(image_name *name, const lease_row *rows, size_t n);
extern bool image_keep_guarded(image_name *name, const lease_row *rows,
							   size_t n, int64_t now_us);
extern bool image_put(const lease_row *row, int64_t now_us);
extern void image_remove(lease_bytes name, uint64_t token);
extern bool image_renew_all(lease_bytes owner, lease_bytes user,
							lease_bytes host, uint64_t writer, int64_t at_us,
							int64_t ttl_us, int64_t now_us);
extern size_t image_settle_name(image_name *name);
extern bool image_settle(size_t *ndropped);

/* image.c: what is to be */
extern image_holder *image_holder_create(image_name *name,
										 const image_account *account,
										 lease_bytes owner, uint64_t token,
										 uint64_t connection_id,
										 int64_t acquired_us);
extern image_text *image_text_create(lease_bytes bytes);
extern void image_replace(image_name *name, lease_member **members,
						  size_t *count, bool in_table);
extern void image_end_batch(void);

/* image.c: what is known before it is written */
extern void image_set_draft(image_name *name, struct lease_name *draft);
extern void image_set_released(const image_holder *holder, bool ends);
extern void lease_member_pin(lease_member *member, lease_mode mode,
							 uint32_t version);
extern void image_note_guard(image_name *name, size_t place);

/* image.c: what the table lacks */
extern size_t image_ndirty(void);
extern image_name *image_first_dirty(void);
extern uint64_t image_last_dirtied(void);
extern void image_hurry(image_name *name);
extern const image_row *image_row_at(const image_name *name, uint32_t slot);
extern bool image_is_in_table(const image_name *name,
							  const lease_member *member);
extern void image_note_staying(image_name *name, const lease_member *members,
							   size_t count);
extern bool image_written(image_name *name);

/* image.c: leases of an owner, and those that are over */
extern image_holder *image_owned(lease_bytes owner,
								 const image_account *account,
								 const image_holder *after);
extern image_name *image_due(int64_t before_us, int64_t again_us);
extern bool image_is_complete(void);

/* image.c: what is to be written */
extern lease_row image_row_of(const image_name *name,
							  const lease_member *member, int64_t now_us,
							  int64_t wall_us);

#endif							/* DLOCK_IMAGE_H */
