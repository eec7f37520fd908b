/*
 * lease_tenure.c
 *	  This run's hold on the tables: whether it has taken them over, has lost a
 *	  commit, may write, and what it has appended to the journal.
 *
 * A module that finds something out notes it here, and all others go by it.  If it may
 * make the image wrong, the image is forgotten here, too: apart from this file only a
 * take-over calls image_forget().
 *
 * All of this is with the engine's mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_tenure.h"

#include "image.h"
#include "lease_moment.h"

/* How large the journal may become, and the bounds of how old it may become. */
#define JOURNAL_ROWS	2000
#define JOURNAL_BYTES	4000000
#define JOURNAL_US		1000000
#define JOURNAL_MAX_US	20000000

/* The journal may become this many times as old as the last checkpoint took. */
#define CHECKPOINTS_PART	200

/*
 * A checkpoint that a caller waits for begins no sooner after the last one than this many
 * times as long as that took: every account may call dlock_settle(), and none may slow
 * others down by more than its share.
 */
#define AWAITED_PART		19

/*
 * After how long a checkpoint that failed, or carried something forward, is tried again;
 * and the longest that a caller waits until one begins.
 */
#define RETRY_US			1000000

static lease_tenure now = {
	.checkpoint_us = INT64_MAX,
	.clustered = true,
};
const lease_tenure *const tenure = &now;

/* ----------------------------------------------------------------
 * What can be done
 * ----------------------------------------------------------------
 */

/*
 * Say whether a commit was lost whose outcome the image does not have: the commit may go
 * on, or this run has not yet taken over since.
 */
bool
lease_is_in_doubt(void)
{
	return now.doubt_us != 0 || (!now.has_taken_over && image_is_valid());
}

/* Say whether nothing can be granted yet, because the clock is behind the tokens. */
bool
lease_is_early(int64_t now_us)
{
	return now_us < now.early_until_us;
}

/* Say whether changes go into the lock table at once. */
bool
lease_is_direct(void)
{
	return now.has_taken_over && now.direct;
}

/* Say whether this run has taken over, and the journal is empty. */
bool
lease_is_settled(void)
{
	return now.has_taken_over && now.journal_rows == 0;
}

/*
 * The newest row of the journal that was applied, and all before it: rows are numbered
 * without a gap.
 */
uint64_t
lease_applied(void)
{
	return now.number - now.journal_rows;
}

/* When the next piece of a checkpoint is due. */
int64_t
lease_checkpoint_due_us(void)
{
	if (!now.has_taken_over || now.journal_rows == 0 || now.doubt_us != 0)
		return INT64_MAX;
	return now.checkpoint_us;
}

/* ----------------------------------------------------------------
 * What is not known any more
 * ----------------------------------------------------------------
 */

/* This run takes over before it decides or writes anything. */
static void
take_over_anew(void)
{
	now.has_taken_over = false;
	now.unapplied |= now.journal_rows > 0;
	now.journal_rows = 0;
	now.journal_bytes = 0;
	now.checkpoint_us = INT64_MAX;
	now.checkpoint.up_to = 0;
}

/* Forget the image, which may be wrong, and take over anew. */
void
lease_forget(void)
{
	image_forget();
	take_over_anew();
}

/* The tables were changed by something else: forget all with the next batch. */
void
lease_reload_soon(void)
{
	now.reload = true;
}

/*
 * Forget all, also what other runs wrote.  Even the leases of releases that were answered
 * may not be there any more.
 */
void
lease_reload(void)
{
	now.reload = false;
	image_forget_all();
	take_over_anew();
	now.is_kept = false;
}

/*
 * The connection was lost in a statement, which may still be committed at any time.  Until
 * it has ended (lease_take_over_lost()), nothing is decided or written.
 */
void
lease_doubt(void)
{
	now.doubt_us = lease_now();
	now.ask_lost_us = 0;
}

/* Say when to ask next whether the statement goes on. */
void
lease_ask_lost_at(int64_t at_us)
{
	now.ask_lost_us = at_us;
}

/*
 * The statement has ended.  The tables say what has become of it, so this run takes over
 * anew.  Until then the image answers looks, refusals and releases.  It is as it was
 * before the commit, of which no caller was told.
 */
void
lease_end_doubt(void)
{
	now.doubt_us = 0;
	take_over_anew();
}

/* ----------------------------------------------------------------
 * Taking over
 * ----------------------------------------------------------------
 */

/* Nothing can be granted until a time: the clock is behind the tokens. */
void
lease_note_clock_behind(int64_t until_us)
{
	now.early_until_us = until_us;
}

/*
 * The tables have been taken over: this run decides and writes.  "direct" says that
 * changes go into the lock table.
 */
void
lease_note_taken_over(bool has_journal, bool direct)
{
	now.has_taken_over = true;
	now.unapplied = false;
	now.has_journal = has_journal;
	now.direct = direct;
	now.is_kept = !direct;
	now.early_until_us = 0;
}

/* ----------------------------------------------------------------
 * What is in the journal
 * ----------------------------------------------------------------
 */

/* How long the last checkpoint took, "part" times; within bounds. */
static int64_t
get_part_us(int64_t part, int64_t least_us, int64_t most_us)
{
	int64_t		us = now.checkpoint_took_us * part;

	return us < least_us ? least_us : us > most_us ? most_us : us;
}

/* How old the journal may become. */
static int64_t
get_age_us(void)
{
	return get_part_us(CHECKPOINTS_PART, JOURNAL_US, JOURNAL_MAX_US);
}

/* Begin the next checkpoint at once if the journal has much. */
static void
hurry_if_much(void)
{
	if (now.journal_rows >= JOURNAL_ROWS || now.journal_bytes >= JOURNAL_BYTES)
		lease_checkpoint_now();
}

/* Rows have been appended. */
void
lease_note_appended(size_t rows, size_t bytes)
{
	if (now.journal_rows == 0)
		now.checkpoint_us = lease_now() + get_age_us();
	now.number += rows;
	now.journal_rows += rows;
	now.journal_bytes += bytes;
	if (now.checkpoint.up_to == 0)
		hurry_if_much();
}

/* A checkpoint begins: it applies all that the journal has now. */
void
lease_begin_checkpoint(void)
{
	now.checkpoint.up_to = now.number;
	now.checkpoint.bytes = now.journal_bytes;
	now.checkpoint.took_us = 0;
	now.checkpoint.carries = false;
}

/* A piece of it was written: note how long that took, since nothing was granted meanwhile. */
void
lease_note_piece(int64_t took_us, bool carries)
{
	now.checkpoint.took_us += took_us;
	now.checkpoint.carries |= carries;
}

/*
 * The checkpoint has ended: the rows of the journal that it has applied are gone.  What is
 * carried forward is tried again soon.
 */
void
lease_note_applied(void)
{
	now.journal_rows = now.number - now.checkpoint.up_to;
	now.journal_bytes -= now.checkpoint.bytes;
	now.checkpoint_took_us = now.checkpoint.took_us;
	now.checkpoint.up_to = 0;
	now.awaited_us = lease_now() + get_part_us(AWAITED_PART, 0, RETRY_US);
	if (now.checkpoint.carries)
		now.checkpoint_us = lease_now() + RETRY_US;
	else
	{
		now.checkpoint_us = lease_now() + get_age_us();
		hurry_if_much();
	}
}

/*
 * The next piece of a checkpoint is due; if one has failed a moment ago, when it may be
 * tried again.
 */
void
lease_checkpoint_now(void)
{
	now.checkpoint_us = now.retry_us;
}

/* A caller waits for a checkpoint: unless one is under way, begin the next one soon. */
void
lease_checkpoint_soon(void)
{
	int64_t		soon_us = now.awaited_us > now.retry_us ? now.awaited_us :
		now.retry_us;

	if (now.checkpoint.up_to == 0 && now.checkpoint_us > soon_us)
		now.checkpoint_us = soon_us;
}

/*
 * A piece has failed, or would: put it off, whoever wants it.  A try may take a second, in
 * which nothing is granted.
 */
void
lease_checkpoint_later(void)
{
	now.retry_us = lease_now() + RETRY_US;
	if (now.checkpoint_us < now.retry_us)
		now.checkpoint_us = now.retry_us;
}

/* ----------------------------------------------------------------
 * The server
 * ----------------------------------------------------------------
 */

/*
 * The server was looked at, at a time: whether others may write the tables as well, and
 * whether it may be written to.
 */
void
lease_note_looked(bool clustered, bool read_only, int64_t at_us)
{
	now.clustered = clustered;
	now.looked_us = at_us;
	if (read_only)
		lease_note_read_only();
	else
		now.read_only = false;
}

/* The server could not be looked at: it counts as in a cluster. */
void
lease_note_not_looked(void)
{
	now.clustered = true;
	lease_forget();
}

/*
 * The server is read-only.  Another server may be written to meanwhile, so this run
 * takes over anew before the next grant.
 */
void
lease_note_read_only(void)
{
	now.read_only = true;
	if (now.has_taken_over || image_is_valid())
		lease_forget();
}

/* The server was written to, so it is writable. */
void
lease_note_written(void)
{
	now.read_only = false;
}
