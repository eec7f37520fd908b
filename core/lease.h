/*
 * lease.h
 *	  The lease state machine: what a request does to the holders of one name.
 *
 * Both engines call this and neither decides anything about leases on its
 * own.  It is a pure function: the holders of one name, a request and the time
 * go in, the changed holders and an outcome come out.  It reads no clock,
 * allocates nothing, does no I/O and keeps no state, so that it can be tested
 * and fuzzed alone.
 *
 * Words.  A "hold" is what one acquire gives.  A "holder" is an owner string
 * together with the principal (SQL role or account) that acquired; it is one
 * row of the lock table and has "version" holds.  A holder is "over" once its
 * deadline has come, whether or not anyone noticed; a holder that is not over
 * is "live".  A session's or a transaction's holder lives as long as that does:
 * the engine knows, and says so in the holder's "life".
 *
 * Two things make the grant of a name wait although a holder is over.  A
 * "guard" pins a lease until a transaction of its holder's ends.  A "lock
 * delay" gives a holder that let its lease expire time to notice.  Neither is
 * in the way of the holder itself.
 *
 * What the caller must see to:
 * - all holders of the name are passed, live or over, in any order, under a
 *   lock that keeps them from changing until the result has been stored;
 * - now_us was read from the lease clock after that lock was taken;
 * - request->next_token is larger than every token ever granted on the name;
 * - strings and times to live have passed lease_check_string() and
 *   lease_check_ttl(), and the limit is 1 to LEASE_VERSION_MAX;
 * - now_us is at most INT64_MAX - LEASE_TTL_MAX_US, and the lock delay at most
 *   LEASE_TTL_MAX_US;
 * - the deadline of a holder whose life is LEASE_BOUND is later than now_us;
 *   that of one that is LEASE_LEFT or LEASE_PINNED is not.
 *
 * Invariants, true of the live holders before and after every call:
 * 1. All have the same mode, and if the mode is exclusive there is one.
 *    The same holds for live and guarded holders together, unless they are of
 *    one owner.
 * 2. version >= 1, and token lies between 1 and LEASE_TOKEN_MAX.
 * 3. No two have the same token.
 * 4. The tokens handed out by grants strictly grow.
 * A request whose outcome is an error or a refusal changes no holder.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_H
#define DLOCK_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest name, owner and request id, in bytes; the shortest is 1. */
#define LEASE_STRING_MAX	255

/* Longest time to live: 10^9 seconds, about 31 years. */
#define LEASE_TTL_MAX_US	INT64_C(1000000000000000)

/*
 * The last token: the largest integer that JSON and a double carry exactly.
 * Grants beyond it are refused rather than wrapped.
 */
#define LEASE_TOKEN_MAX		((UINT64_C(1) << 53) - 1)

/* Most holds that one holder can have, and the largest permit limit. */
#define LEASE_VERSION_MAX	INT32_MAX

typedef enum lease_mode
{
	LEASE_EXCLUSIVE = 1,
	LEASE_SHARED,
	LEASE_PERMIT
} lease_mode;

#define LEASE_MODE_FIRST	LEASE_EXCLUSIVE
#define LEASE_MODE_LAST		LEASE_PERMIT

/* What else than its deadline and its releases ends a lease. */
typedef enum lease_kind
{
	LEASE_PLAIN = 1,			/* nothing */
	LEASE_SESSION,				/* the end of the connection that took it */
	LEASE_TRANSACTION			/* the end of the transaction that took it */
} lease_kind;

#define LEASE_KIND_FIRST	LEASE_PLAIN
#define LEASE_KIND_LAST		LEASE_TRANSACTION

/* How it is told whether a holder is over. */
typedef enum lease_life
{
	LEASE_TIMED,				/* by its deadline */
	LEASE_BOUND,				/* it is live: what it is bound to is there */
	LEASE_LEFT,					/* it is over: its transaction has ended, which
								 * counts as a release */
	LEASE_PINNED				/* it is gone: a guard is all that is left */
} lease_life;

/* Bytes that somebody else owns; compared byte for byte, never as text. */
typedef struct lease_bytes
{
	const char *data;
	size_t		length;
} lease_bytes;

/* How the principal of a request stands to the principal of a holder. */
typedef enum lease_standing
{
	LEASE_STRANGER,				/* may not act for it */
	LEASE_ACTS_FOR,				/* may act for it: has its privileges */
	LEASE_SELF					/* is the same principal */
} lease_standing;

/* What a call did to a holder. */
typedef enum lease_change
{
	LEASE_UNCHANGED,
	LEASE_ADDED,				/* the last of the array, new */
	LEASE_UPDATED,				/* version, deadline or request may differ */
	LEASE_ENDED,				/* remove it: its holder gave it up */
	LEASE_EXPIRED,				/* remove it: its deadline has passed */
	LEASE_EVICTED				/* remove it: an operator ended it */
} lease_change;

typedef struct lease_holder
{
	lease_bytes owner;
	lease_bytes request;		/* id of its last acquire; length 0: none */
	lease_mode	mode;
	lease_kind	kind;
	lease_life	life;
	lease_standing standing;	/* of the request's principal to this one */
	uint32_t	version;		/* holds, or permits */
	uint32_t	guarded;		/* holds that a guard pins; 0: no guard */
	uint64_t	token;
	int64_t		deadline_us;	/* lease clock */
	lease_change change;		/* set by lease_apply() */
} lease_holder;

typedef enum lease_op
{
	LEASE_ACQUIRE,
	LEASE_RENEW,
	LEASE_RELEASE,				/* give one hold back */
	LEASE_DROP,					/* give all holds of the holder back */
	LEASE_EVICT,				/* end holders, whoever they are */
	LEASE_REAP					/* end what is over */
} lease_op;

typedef struct lease_request
{
	lease_op	op;
	lease_bytes owner;			/* LEASE_EVICT: length 0 evicts all */
	lease_bytes request;		/* LEASE_ACQUIRE; length 0: none */
	lease_mode	mode;			/* LEASE_ACQUIRE */
	lease_kind	kind;			/* LEASE_ACQUIRE */
	bool		behind;			/* LEASE_ACQUIRE: somebody else waits for the
								 * name and comes first */
	uint32_t	limit;			/* LEASE_ACQUIRE of a permit: at least 1 */
	int64_t		delay_us;		/* LEASE_ACQUIRE, LEASE_EVICT, LEASE_REAP: the
								 * lock delay, 0 for none */
	int64_t		ttl_us;			/* LEASE_ACQUIRE, LEASE_RENEW */
	uint64_t	token;			/* LEASE_RENEW, LEASE_RELEASE, LEASE_DROP: 0
								 * for whichever the holder has */
	uint64_t	next_token;		/* LEASE_ACQUIRE: given to a new holder */
} lease_request;

typedef enum lease_outcome
{
	/* acquire; the token is in the result */
	LEASE_GRANTED,				/* a new holder */
	LEASE_REENTERED,			/* one more hold or permit for a holder */
	LEASE_REPLAYED,				/* same request id: no hold added */
	LEASE_BUSY,					/* not free */

	/* the others */
	LEASE_RENEWED,
	LEASE_RELEASED,				/* given back, dropped, evicted or reaped */
	LEASE_NOT_YOURS,			/* held, but not by this holder and token */
	LEASE_NOT_HELD,				/* held by nobody; LEASE_REAP: nothing was over */

	/* misuse */
	LEASE_UPGRADE,				/* a shared holder asks for exclusive */
	LEASE_MIXED,				/* a holder mixes permits with the rest */
	LEASE_MIXED_KINDS,			/* a holder mixes plain, session, transaction */
	LEASE_TOO_MANY_HOLDS,		/* version would pass LEASE_VERSION_MAX */
	LEASE_NO_TOKENS				/* next_token is not 1 to LEASE_TOKEN_MAX */
} lease_outcome;

typedef struct lease_result
{
	lease_outcome outcome;
	uint64_t	token;			/* of the holder that answered; 0: none */
	int64_t		retry_us;		/* LEASE_BUSY: when a deadline or the lock delay
								 * next changes what is in the way; INT64_MAX:
								 * time alone changes nothing */
	size_t		count;			/* entries of the array now in use */
	size_t		changed;		/* how many have change != LEASE_UNCHANGED */
} lease_result;

/* Say whether a holder is over. */
static inline bool
lease_is_over(const lease_holder *holder, int64_t now_us)
{
	return holder->deadline_us <= now_us;
}

/* Say whether a holder is over, and the lock delay still keeps others out. */
static inline bool
lease_is_delayed(const lease_holder *holder, int64_t delay_us, int64_t now_us)
{
	return lease_is_over(holder, now_us) && holder->life == LEASE_TIMED &&
		holder->deadline_us + delay_us > now_us;
}

/*
 * Say whether holds of two modes can be beside each other; permits, as far as their
 * limit goes.
 */
static inline bool
lease_modes_are_compatible(lease_mode a, lease_mode b)
{
	return a == b && a != LEASE_EXCLUSIVE;
}

/*
 * Say whether a holder keeps strangers from taking the name in a mode that is not
 * compatible with its own: it is live, guarded or delayed.
 */
static inline bool
lease_is_in_the_way(const lease_holder *holder, int64_t delay_us,
					int64_t now_us)
{
	return !lease_is_over(holder, now_us) || holder->guarded > 0 ||
		lease_is_delayed(holder, delay_us, now_us);
}

/* Say whether an acquire that ended so has given, or found, a hold. */
static inline bool
lease_is_granted(lease_outcome outcome)
{
	return outcome == LEASE_GRANTED || outcome == LEASE_REENTERED ||
		outcome == LEASE_REPLAYED;
}

/* Say whether two strings are the same bytes. */
extern bool lease_same(lease_bytes a, lease_bytes b);

/* Say whether a name, owner or request id has an allowed length. */
static inline bool
lease_check_string(size_t length)
{
	return length >= 1 && length <= LEASE_STRING_MAX;
}

/* Say whether a time to live is in range. */
static inline bool
lease_check_ttl(int64_t ttl_us)
{
	return ttl_us > 0 && ttl_us <= LEASE_TTL_MAX_US;
}

/*
 * Find the holder that a request speaks for.
 *
 * It is live, has the request's owner, a principal that the requester is or
 * may act for, and the request's token if one is asked for.  The requester's own
 * comes before others, then the one with the lowest token.  Returns its index,
 * or count when there is none.
 */
extern size_t lease_find(const lease_request *request,
						 const lease_holder *holders, size_t count,
						 int64_t now_us);

/*
 * Apply a request to the holders of one name.
 *
 * "holders" must have room for count + 1 entries.  Sets the change of every
 * entry, the new version, deadline and request of those updated, and appends
 * the holder that a grant adds.  Strings that come from the request are its
 * own, not copies.  A holder whose life is LEASE_PINNED never changes.
 *
 * An engine that walks over many names may pass the holders one at a time to
 * LEASE_REAP, LEASE_RENEW and LEASE_DROP: that does what they ask to all that
 * match, of a name too.
 */
extern lease_result lease_apply(const lease_request *request,
								lease_holder *holders, size_t count,
								int64_t now_us);

#endif							/* DLOCK_LEASE_H */
