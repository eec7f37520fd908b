/*
 * lease_tenure.h
 *	  This run's hold on the tables: whether it has taken them over, has lost a
 *	  commit, may write, and what it has appended to the journal.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_TENURE_H
#define DLOCK_LEASE_TENURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* With the engine's mutex. */
typedef struct lease_tenure
{
	bool		has_taken_over; /* and need not do so again */
	bool		has_journal;	/* install.sql has made the journal's tables */
	bool		direct;			/* changes go into the lock table at once, as it
								 * was when this run took over */
	bool		is_kept;		/* since this run took over, only it has written */
	uint64_t	number;			/* of the newest row of the journal */
	size_t		journal_rows;	/* that are not applied, see lease_applied() */
	size_t		journal_bytes;
	bool		unapplied;		/* this run has left rows there, and must take over
								 * before it can apply them */
	int64_t		checkpoint_us;	/* when to write the next piece of a checkpoint */
	int64_t		checkpoint_took_us; /* the last one, all of it */
	int64_t		awaited_us;		/* when the next one may begin for callers that wait
								 * for it */
	int64_t		retry_us;		/* when a piece may be tried: the last try failed */
	struct						/* the one that is under way: */
	{
		uint64_t	up_to;		/* the newest row to be applied; 0: none is */
		size_t		bytes;
		int64_t		took_us;	/* so far */
		bool		carries;	/* something was carried forward */
	}			checkpoint;
	int64_t		early_until_us; /* until then nothing can be granted: the clock is
								 * behind the tokens, see lease_take_over() */
	bool		clustered;		/* others may write the table at the same time */
	bool		read_only;		/* the server may not be written to */
	int64_t		looked_us;		/* when that was seen */
	bool		reload;			/* lease_reload() is to be called: nothing that is
								 * known counts */
	int64_t		doubt_us;		/* when a statement was lost that may still be
								 * committed, see lease_doubt(); 0: none is */
	int64_t		ask_lost_us;	/* when to ask next whether it goes on */
} lease_tenure;

/* lease_tenure.c */
extern const lease_tenure *const tenure;

extern bool lease_is_in_doubt(void);
extern bool lease_is_early(int64_t now_us);
extern bool lease_is_direct(void);
extern bool lease_is_settled(void);
extern uint64_t lease_applied(void);
extern int64_t lease_checkpoint_due_us(void);

extern void lease_forget(void);
extern void lease_reload_soon(void);
extern void lease_reload(void);
extern void lease_doubt(void);
extern void lease_ask_lost_at(int64_t at_us);
extern void lease_end_doubt(void);

extern void lease_note_clock_behind(int64_t until_us);
extern void lease_note_taken_over(bool has_journal, bool direct);

extern void lease_note_appended(size_t rows, size_t bytes);
extern void lease_begin_checkpoint(void);
extern void lease_note_piece(int64_t took_us, bool carries);
extern void lease_note_applied(void);
extern void lease_checkpoint_now(void);
extern void lease_checkpoint_soon(void);
extern void lease_checkpoint_later(void);

extern void lease_note_looked(bool clustered, bool read_only, int64_t at_us);
extern void lease_note_not_looked(void);
extern void lease_note_read_only(void);
extern void lease_note_written(void);

#endif							/* DLOCK_LEASE_TENURE_H */
