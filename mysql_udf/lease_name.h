/*
 * lease_name.h
 *	  One name in a transaction: its holders, and what becomes of them.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_NAME_H
#define DLOCK_LEASE_NAME_H

#include "lease.h"
#include "lease_engine.h"
#include "lease_table.h"

/* A holder of a name. */
typedef struct lease_member
{
	lease_row	row;
	bool		stored;			/* the table has it, in stored_slot */
	uint32_t	stored_slot;
	bool		changed;		/* the table has it otherwise */
	bool		gone;			/* its lease has ended */
	bool		expired;		/* because its deadline had come */
	lease_life	life;
	int64_t		deadline_us;	/* on our clock */
} lease_member;

typedef struct lease_name
{
	lease_bytes name;			/* points to data */
	char		data[LEASE_STRING_MAX];
	lease_member *members;
	size_t		count;
	size_t		room;
	uint64_t	mark;			/* no token of the name is larger */
	bool		mark_changed;
	bool		has_locked;		/* somebody's transaction has locked a row */
	bool		anchor_locked;	/* that of slot 0 */
	bool		guarding;		/* somebody is about to lock one */
	lease_member *saved;		/* see lease_name_save() */
	size_t		nsaved;
	size_t		saved_room;
	uint64_t	saved_mark;
	bool		saved_mark_changed;
} lease_name;

/* What a request came to. */
typedef struct lease_name_answer
{
	lease_outcome outcome;
	uint64_t	token;
	uint64_t	ended;			/* LEASE_EVICTED */
	uint64_t	expired;		/* LEASE_EXPIRED */
	lease_mode	held_mode;		/* of the requester's holder, if it has one */
	lease_kind	held_kind;
	int64_t		retry_us;		/* LEASE_BUSY: see lease_result */
	uint64_t	seen_writes;	/* of the holder that was changed: before */
	bool		changed;
	bool		cannot_write;	/* the change needs a row that is locked */
} lease_name_answer;

/* What judges and stamps the rows. */
typedef struct lease_moment
{
	int64_t		now_us;			/* our clock */
	int64_t		wall_us;		/* since 1970 */
	int64_t		delay_us;		/* the lock delay */
	uint64_t	writer;			/* this run */
} lease_moment;

/* lease_name.c */
extern void lease_name_init(lease_name *name, lease_bytes bytes);
extern void lease_name_free(lease_name *name);
extern void lease_name_load(lease_name *name, const lease_rows *rows,
							uint64_t mark, const lease_moment *moment);
extern void lease_name_lock(lease_name *name, lease_member *member);
extern lease_name_answer lease_name_apply(lease_name *name,
										  lease_request *request,
										  const dlock_caller *caller,
										  const lease_moment *moment);
extern int64_t lease_name_remaining_us(const lease_name *name,
									   const lease_request *request,
									   const dlock_caller *caller,
									   const lease_moment *moment);
extern int64_t lease_member_remaining_us(const lease_member *member,
										 const dlock_caller *caller,
										 const lease_moment *moment);
extern lease_member *lease_name_find(lease_name *name, uint64_t token);
extern void lease_member_extend(lease_member *member,
								const lease_moment *moment);
extern void lease_member_lose(lease_member *member,
							  const lease_moment *moment);
extern bool lease_name_is_free(const lease_name *name,
							   const lease_moment *moment);
extern bool lease_member_is_live(const lease_member *member,
								 const lease_moment *moment);
extern bool lease_member_is_of(const lease_member *member, lease_bytes owner,
							   const dlock_caller *caller);
extern void lease_name_save(lease_name *name);
extern void lease_name_restore(lease_name *name);
extern bool lease_name_will_write(const lease_name *name);
extern bool lease_name_write(lease_name *name, lease_table *table,
							 bool believed, bool own);
extern bool lease_name_has_rows(const lease_name *name);
extern const lease_row *lease_name_only_row(const lease_name *name);

#endif							/* DLOCK_LEASE_NAME_H */
