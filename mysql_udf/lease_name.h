/*
 * lease_name.h
 *	  A draft: one name of a batch, and its leases as they will be.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_NAME_H
#define DLOCK_LEASE_NAME_H

#include "dlock_call.h"
#include "image.h"
#include "lease_moment.h"

typedef struct lease_name
{
	image_name *entry;
	lease_bytes name;			/* the entry's */
	lease_member *members;		/* first those of the image, in their order */
	size_t		count;
	size_t		room;
	size_t		nknown;			/* how many the image has */
	uint64_t	mark;			/* no token of the name is larger */
	bool		has_locked;		/* a transaction has locked a row */
	bool		anchor_locked;	/* the row of slot 0 is */
	bool		failed;			/* memory was short: to be dropped */
	lease_member *saved;		/* as much room: see lease_name_save() */
	size_t		nsaved;
	uint64_t	saved_mark;
} lease_name;

/* The answer to a request. */
typedef struct lease_name_answer
{
	lease_outcome outcome;
	uint64_t	token;
	uint64_t	ended;			/* how many were evicted */
	uint64_t	expired;		/* how many have expired */
	lease_mode	held_mode;		/* of the requester's holder, if it has one */
	lease_kind	held_kind;
	int64_t		retry_us;		/* LEASE_BUSY: see lease_result */
	uint64_t	seen_writes;	/* of the holder that was changed: its writes before */
	bool		changed;
	bool		was_ours;		/* what was changed was this run's, and had not been
								 * changed before in this batch */
	bool		cannot_write;	/* a change needs a row that is locked */
} lease_name_answer;

/* lease_name.c */
extern const image_account *lease_account_of(const dlock_caller *caller);
extern lease_name *lease_name_create(image_name *entry,
									 const lease_moment *moment);
extern lease_name *lease_name_create_part(image_name *entry, size_t room);
extern bool lease_name_add(lease_name *name, const lease_member *member);
extern void lease_name_free(lease_name *name);
extern void lease_name_lock(lease_name *name, lease_member *member);
extern lease_name_answer lease_name_apply(lease_name *name,
										  lease_request *request,
										  const dlock_caller *caller,
										  const lease_moment *moment);
extern int64_t lease_name_remaining_us(lease_name *name,
									   const lease_request *request,
									   const dlock_caller *caller,
									   const lease_moment *moment);
extern void lease_member_judge(lease_member *member,
							   const lease_moment *moment);
extern lease_member *lease_name_find(lease_name *name, uint64_t token);
extern lease_member *lease_name_find_own(lease_name *name, lease_bytes owner,
										 const dlock_caller *caller,
										 uint64_t token);
extern void lease_member_extend(lease_member *member,
								const lease_moment *moment);
extern void lease_member_lose(lease_member *member,
							  const lease_moment *moment);
extern uint64_t lease_name_youngest(lease_name *name,
									const lease_moment *moment);
extern bool lease_name_have_ended(lease_name *name, uint64_t youngest,
								  const lease_moment *moment,
								  int64_t *next_us);
extern bool lease_member_is_bound(const lease_member *member,
								  const lease_moment *moment);
extern bool lease_member_is_in_the_way(const lease_member *member,
									   const lease_moment *moment);
extern bool lease_member_is_live(const lease_member *member,
								 const lease_moment *moment);
extern void lease_name_save(lease_name *name);
extern void lease_name_restore(lease_name *name);
extern bool lease_name_will_write(const lease_name *name,
								  const lease_moment *moment);
extern void lease_name_assign_slots(lease_name *name,
									const lease_moment *moment);

/* Say whether a member has gone, and nothing of it is left. */
static inline bool
lease_member_is_away(const lease_member *member)
{
	return member->gone && !member->locked;
}

#endif							/* DLOCK_LEASE_NAME_H */
