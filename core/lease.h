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
 * is "live".  The holder of a session or transaction lives as long as that
 * session or transaction does: the engine knows whether it still exists, and
 * lease_judge() derives the holder's "life" from that.
 *
 * Two things keep others from a name although its holder is over.  A "guard"
 * pins a lease until a transaction of its holder ends.  A "lock delay" gives a
 * holder that let its lease expire time to notice.  Neither keeps the holder
 * itself out.  A guard keeps the mode in which it was taken, even if its lease
 * is downgraded meanwhile.
 *
 * A holder can be "leaving": it was given back, with effect at its deadline.
 * Until then it keeps everybody out, its former owner too, and belongs to
 * nobody: no request but an eviction changes it.
 *
 * What the caller must ensure:
 * - all holders of the name are passed, live or over, in any order, each by
 *   itself or in a crowd (lease_join_crowd()), under a lock that keeps them from
 *   changing until the result has been stored;
 * - now_us was read from the lease clock after that lock was taken;
 * - request->next_token is larger than every token ever granted on the name;
 * - strings and times to live have passed lease_check_string() and
 *   lease_check_ttl(), the limit is 1 to LEASE_VERSION_MAX, and permits and
 *   holds are not larger than that;
 * - now_us is at most INT64_MAX - LEASE_TTL_MAX_US, and the lock delay at most
 *   LEASE_TTL_MAX_US;
 * - the deadline of a holder whose life is LEASE_BOUND is later than now_us;
 *   that of a LEASE_LEFT, LEASE_LOST or LEASE_PINNED holder is not.
 *
 * Invariants, true of the live holders before and after every call:
 * 1. All have the same mode, and if the mode is exclusive there is one.
 *    The same is true of live and guarded holders together, except among
 *    holders of one owner; a guard counts with its own mode.
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

/*
 * How much the floor of tokens grows in a second of the wall clock, for a
 * server that takes a lock table over.  No name gets as many grants in a
 * second.
 */
#define LEASE_TOKENS_PER_SECOND	(UINT64_C(1) << 20)

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

/* The name of a mode for users. */
static inline const char *
lease_mode_name(lease_mode mode)
{
	switch (mode)
	{
		case LEASE_EXCLUSIVE:
			return "exclusive";
		case LEASE_SHARED:
			return "shared";
		case LEASE_PERMIT:
			return "permit";
	}
	return "?";					/* keep the compiler quiet */
}

/* What ends a lease, besides its deadline and its releases. */
typedef enum lease_kind
{
	LEASE_PLAIN = 1,			/* nothing */
	LEASE_SESSION,				/* the end of the connection that took it */
	LEASE_TRANSACTION			/* the end of the transaction that took it */
} lease_kind;

/* The name of a kind for users. */
static inline const char *
lease_kind_name(lease_kind kind)
{
	switch (kind)
	{
		case LEASE_PLAIN:
			return "plain";
		case LEASE_SESSION:
			return "session";
		case LEASE_TRANSACTION:
			return "transaction";
	}
	return "?";					/* keep the compiler quiet */
}

#define LEASE_KIND_FIRST	LEASE_PLAIN
#define LEASE_KIND_LAST		LEASE_TRANSACTION

/* How to tell whether a holder is over. */
typedef enum lease_life
{
	LEASE_TIMED,				/* by its deadline */
	LEASE_BOUND,				/* it is live: what it is bound to still exists */
	LEASE_STRANDED,				/* by its deadline: what it was bound to was in a
								 * server before this one */
	LEASE_LEFT,					/* it is over: its transaction has ended, or its
								 * session has ended it, which counts as a release */
	LEASE_LOST,					/* it is over: its session is gone */
	LEASE_PINNED,				/* it is gone: only a guard is left; kind
								 * LEASE_TRANSACTION: the guard belongs to the
								 * lease's own transaction, and ends when the
								 * outcome can be seen */
	LEASE_LEAVING				/* by its deadline, which counts as a release: it
								 * was given back with effect then */
} lease_life;

/* What an engine knows of the session or transaction that a lease is bound to. */
typedef enum lease_bond
{
	LEASE_BOND_THERE,			/* it still exists */
	LEASE_BOND_ENDED,			/* it is a transaction that has ended, or a session
								 * that has ended its leases */
	LEASE_BOND_LOST,			/* it is a session that is gone */
	LEASE_BOND_BEFORE			/* it was in a server before this one */
} lease_bond;

/* Bytes in the caller's memory; compared byte for byte, never as text. */
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
	LEASE_UPDATED,				/* anything but owner and token may differ */
	LEASE_ENDED,				/* remove it: its owner gave it up, or what it was
								 * bound to has ended */
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
	bool		elsewhere;		/* bound to another session or transaction than
								 * the requester's */
	bool		repeated;		/* an acquire that repeated its request id was
								 * answered with it; or the engine does not track
								 * this */
	uint32_t	version;		/* holds, or permits */
	uint32_t	guarded;		/* holds that guards pin; 0: no guard */
	lease_mode	guard_mode;		/* the guards' mode: lease_merge_guard() */
	uint64_t	token;
	int64_t		deadline_us;	/* lease clock.  LEASE_BOUND: what a renewal now
								 * would make it; LEASE_LEFT, LEASE_LOST,
								 * LEASE_PINNED: when it was over, at the latest */
	lease_change change;		/* set by lease_apply() */
} lease_holder;

typedef enum lease_op
{
	LEASE_ACQUIRE,
	LEASE_RENEW,
	LEASE_RELEASE,				/* give holds back */
	LEASE_DROP,					/* give all holds of the holder back */
	LEASE_DROP_AFTER,			/* the same, with effect in ttl_us */
	LEASE_DOWNGRADE,			/* make an exclusive holder a shared one */
	LEASE_LEAVE,				/* end a holder whose session is lost, or whose
								 * transaction ends */
	LEASE_EVICT,				/* end holders, whatever their principal */
	LEASE_REAP					/* end what is over */
} lease_op;

typedef struct lease_request
{
	lease_op	op;
	lease_bytes owner;			/* LEASE_EVICT: length 0 evicts all */
	lease_bytes request;		/* LEASE_ACQUIRE; length 0: none */
	lease_mode	mode;			/* LEASE_ACQUIRE */
	lease_kind	kind;			/* LEASE_ACQUIRE */
	bool		behind;			/* LEASE_ACQUIRE: another waiter for the name
								 * comes first */
	bool		claim;			/* LEASE_ACQUIRE: a name that the holder already
								 * has counts as busy, unless the request id is
								 * repeated */
	bool		only_repeated;	/* LEASE_ACQUIRE: busy unless it repeats a
								 * request id */
	bool		unless_repeated;	/* LEASE_RELEASE: a holder that is "repeated" is
									 * not the requester's */
	uint32_t	limit;			/* LEASE_ACQUIRE of permits: at least 1 */
	uint32_t	permits;		/* LEASE_ACQUIRE of permits: how many, all or
								 * none, at most the limit; 0 means 1 */
	uint32_t	holds;			/* LEASE_RELEASE: how many; 0 means 1 */
	int64_t		delay_us;		/* LEASE_ACQUIRE, LEASE_EVICT, LEASE_REAP,
								 * LEASE_LEAVE: the lock delay, 0 for none */
	int64_t		ttl_us;			/* LEASE_ACQUIRE, LEASE_RENEW, LEASE_DROP_AFTER */
	uint64_t	token;			/* all that speak for a holder, except
								 * LEASE_ACQUIRE; 0 for any token */
	uint64_t	next_token;		/* LEASE_ACQUIRE: given to a new holder */
} lease_request;

typedef enum lease_outcome
{
	/* acquire; the token is in the result */
	LEASE_GRANTED,				/* a new holder */
	LEASE_REENTERED,			/* one more hold, or more permits, for a holder */
	LEASE_REPLAYED,				/* same request id: no hold added */
	LEASE_BUSY,					/* not free */

	/* the others */
	LEASE_RENEWED,
	LEASE_RELEASED,				/* given back, dropped, ended, evicted or reaped */
	LEASE_WILL_END,				/* LEASE_DROP_AFTER: it is leaving now, or was
								 * already */
	LEASE_DOWNGRADED,			/* is shared now, or was already */
	LEASE_DELAYED,				/* LEASE_LEAVE: it is over, and the lock delay
								 * keeps others out */
	LEASE_NOT_YOURS,			/* held, but not by this holder and token, or
								 * with fewer holds than are to be given back */
	LEASE_NOT_HELD,				/* held by nobody; LEASE_REAP: nothing was over */

	/* misuse */
	LEASE_UPGRADE,				/* a shared holder asks for exclusive */
	LEASE_MIXED,				/* a holder mixes permits with the rest */
	LEASE_MIXED_KINDS,			/* a holder mixes plain, session, transaction */
	LEASE_IS_PERMIT,			/* a permit cannot be downgraded */
	LEASE_IS_BOUND,				/* only a plain lease can be dropped later */
	LEASE_TOO_MANY_HOLDS,		/* version would pass LEASE_VERSION_MAX */
	LEASE_NO_TOKENS				/* next_token is not 1 to LEASE_TOKEN_MAX */
} lease_outcome;

typedef struct lease_result
{
	lease_outcome outcome;
	uint64_t	token;			/* of the holder that answered; 0: none */
	int64_t		retry_us;		/* LEASE_BUSY: when the end of a lease or of a
								 * lock delay next changes what is in the way;
								 * INT64_MAX: time alone changes nothing */
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
	return lease_is_over(holder, now_us) &&
		(holder->life == LEASE_TIMED || holder->life == LEASE_STRANDED ||
		 holder->life == LEASE_LOST) &&
		holder->deadline_us + delay_us > now_us;
}

/*
 * Say whether holds of two modes can exist beside each other (permits: up to
 * their limit).
 */
static inline bool
lease_modes_are_compatible(lease_mode a, lease_mode b)
{
	return a == b && a != LEASE_EXCLUSIVE;
}

/*
 * Say whether a holder keeps strangers from taking the name in some mode: it is
 * live, guarded or delayed.
 */
static inline bool
lease_is_in_the_way(const lease_holder *holder, int64_t delay_us,
					int64_t now_us)
{
	return !lease_is_over(holder, now_us) || holder->guarded > 0 ||
		lease_is_delayed(holder, delay_us, now_us);
}

/*
 * The time from which this holder, apart from its guards, no longer keeps
 * strangers out; INT64_MAX: only an event ends that.
 */
static inline int64_t
lease_end_us(const lease_holder *holder, int64_t delay_us)
{
	if (holder->life == LEASE_BOUND || holder->life == LEASE_PINNED)
		return INT64_MAX;
	if (holder->life == LEASE_LEFT || holder->life == LEASE_LEAVING)
		return holder->deadline_us;
	return holder->deadline_us > INT64_MAX - delay_us ?
		INT64_MAX : holder->deadline_us + delay_us;
}

/*
 * How much time a holder has left without a renewal; 0: it is over.  For one
 * that is bound to a session or transaction it is the time to live.
 */
static inline int64_t
lease_remaining_us(const lease_holder *holder, int64_t now_us)
{
	return lease_is_over(holder, now_us) ? 0 : holder->deadline_us - now_us;
}

/*
 * Say whether a holder is live, and its owner can end that: who waits for it
 * waits for the owner.
 */
static inline bool
lease_is_owned(const lease_holder *holder, int64_t now_us)
{
	return !lease_is_over(holder, now_us) && holder->life != LEASE_LEAVING;
}

/* Say whether an acquire with this outcome gave, or found, a hold. */
static inline bool
lease_is_granted(lease_outcome outcome)
{
	return outcome == LEASE_GRANTED || outcome == LEASE_REENTERED ||
		outcome == LEASE_REPLAYED;
}

/* How many holds an acquire asks for at once. */
static inline uint32_t
lease_holds_asked(const lease_request *request)
{
	return request->mode == LEASE_PERMIT && request->permits > 0 ?
		request->permits : 1;
}

/* How many holds a release gives back. */
static inline uint32_t
lease_holds_returned(const lease_request *request)
{
	return request->holds > 0 ? request->holds : 1;
}

/*
 * How many holds to give back if the caller of an acquire with this outcome
 * will never get its answer.  With a request id, a hold that was added to
 * earlier ones stays: a retry finds it and does not add another.
 */
static inline uint32_t
lease_holds_added(const lease_request *request, lease_outcome outcome)
{
	return outcome == LEASE_GRANTED ||
		(outcome == LEASE_REENTERED && request->request.length == 0) ?
		lease_holds_asked(request) : 0;
}

/*
 * Say whether an operation must be durable before it is answered.  Losing any
 * other one in a crash only keeps others out a little longer.
 */
static inline bool
lease_must_be_durable(lease_op op)
{
	return op == LEASE_ACQUIRE || op == LEASE_RENEW || op == LEASE_EVICT ||
		op == LEASE_DROP_AFTER;
}

/* Say whether this change removes a holder. */
static inline bool
lease_is_removed(lease_change change)
{
	return change == LEASE_ENDED || change == LEASE_EXPIRED ||
		change == LEASE_EVICTED;
}

/*
 * Tokens.  No token granted on a name is above the name's "mark"; names may
 * share a mark.  The "floor" is one number for all names of a server, raised by
 * lease_take_over().  When names with two marks come to share one, the marks
 * are merged.
 */
static inline uint64_t
lease_merge_marks(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The token of the next grant on a name with this mark; it is the new mark. */
static inline uint64_t
lease_next_token(uint64_t mark, uint64_t floor)
{
	return lease_merge_marks(mark, floor) + 1;
}

/* Say whether a token was granted before a server that started with this floor. */
static inline bool
lease_is_of_before(uint64_t token, uint64_t start_floor)
{
	return token <= start_floor;
}

/*
 * Where a server that takes a lock table over starts its tokens.  Unless it
 * must wait, the server makes "floor" durable before its first grant.
 */
typedef struct lease_takeover
{
	uint64_t	floor;			/* every token of the server is larger */
	int64_t		wait_us;		/* too early: call again after this time; 0:
								 * start now */
	bool		clock_is_behind;	/* the floor is above the clock: a server that
									 * lost this raise may start below it */
} lease_takeover;

/* Longest wait_us: in it the clock passes a second's tokens. */
#define LEASE_TAKEOVER_WAIT_US	INT64_C(1000000)

/*
 * Say where a server that takes over starts its tokens.
 *
 * "last" is the largest floor or mark in the lock table.  Larger tokens, by less
 * than LEASE_TOKENS_PER_SECOND, may have been granted and lost. wall_us is the
 * wall clock, microseconds since 2020-01-01 00:00 UTC.
 *
 * A server that lost another's newest raises starts from its own clock.  So no
 * raise may go beyond the clock; a server whose raise would go beyond it waits.
 * If the clock is so far behind that a wait of LEASE_TAKEOVER_WAIT_US does not
 * help (it was set back), the floor still goes beyond the clock: tokens must
 * never fall below what this table has seen.
 */
extern lease_takeover lease_take_over(uint64_t last, int64_t wall_us);

/* Say whether two strings are the same bytes. */
extern bool lease_same(lease_bytes a, lease_bytes b);

/* An order of lease_bytes, for qsort(): the shorter first, then byte by byte. */
extern int	lease_compare(const void *a, const void *b);

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
 * Set the life of a holder from the state of its session or transaction, and
 * its deadline too.  A plain holder has its deadline already; if it is leaving,
 * the engine says so.
 *
 * ttl_us is its time to live.  What since_us means depends on the bond: for
 * LEASE_BOND_BEFORE, when this server started, from which the time to live
 * counts; for LEASE_BOND_LOST, when the session was lost, or a later time if
 * that is not known; for the others, nothing.
 */
extern void lease_judge(lease_holder *holder, lease_bond bond, int64_t ttl_us,
						int64_t since_us, int64_t now_us);

/*
 * Pin "holds" holds of a holder in a mode for one more guard.  Of several
 * guards the strictest counts.
 */
extern void lease_merge_guard(lease_holder *holder, lease_mode mode,
							  uint32_t holds);

/*
 * Add a holder to a crowd: one holder that stands for many, so that a request
 * on a name with thousands of holders need not be shown each.  A crowd has
 * their mode, the sum of their holds and their earliest deadline, and no owner
 * and no token.  False, and nothing is added, if the holder is of another mode,
 * bound to a session or transaction, leaving, or guarded.  The crowd is empty at first,
 * all zero.
 *
 * lease_apply() and lease_find() answer the same, and change the same holders,
 * when they are shown a crowd in place of its holders, as long as all of these
 * are live, none has the request's owner, and the request is neither
 * LEASE_EVICT nor LEASE_REAP.
 */
extern bool lease_join_crowd(lease_holder *crowd, const lease_holder *holder);

/*
 * Find the holder that a request speaks for.
 *
 * It is live, has the request's owner, a principal that the requester is or may
 * act for, and the request's token if that names one.  It is not leaving, except
 * for a LEASE_DROP_AFTER that names its token, and so is a repetition.  Of
 * several, the requester's own come first; then those bound to its own session
 * or transaction; then the one with the lowest token.  Returns its index, or
 * count when there is none.
 *
 * An acquire for a session or transaction does not find a holder of the same
 * owner that another session or transaction has: that one is in its way like a
 * stranger's.  Nor does it find a stranded one, which it takes over.  What is
 * left of the lease of another transaction is in the way of every acquire of its
 * owner, until the outcome can be seen.
 */
extern size_t lease_find(const lease_request *request,
						 const lease_holder *holders, size_t count,
						 int64_t now_us);

/* Find the live exclusive holder: its index, or count when there is none. */
extern size_t lease_find_exclusive(const lease_holder *holders, size_t count,
								   int64_t now_us);

/* Say whether the name is free: no holder is in the way of a stranger. */
extern bool lease_is_free(const lease_holder *holders, size_t count,
						  int64_t delay_us, int64_t now_us);

/*
 * Say whether a holder, alone or with others, is in the way of an acquire that
 * is not a re-entry.
 */
extern bool lease_blocks(const lease_request *request,
						 const lease_holder *holder, int64_t now_us);

/*
 * Say whether the next waiter in line, of owner "next_owner", may be served
 * right after a request with this outcome; if not, the new holder is in its
 * way.
 */
extern bool lease_leaves_room(const lease_request *served,
							  lease_outcome outcome, lease_bytes next_owner);

/*
 * The youngest token of the live holders; 0: there are none.  To wait until all
 * of them have ended, remember it for lease_have_ended().  The lease of another
 * transaction counts until that transaction's outcome can be seen.
 */
extern uint64_t lease_youngest(const lease_holder *holders, size_t count,
							   int64_t now_us);

/*
 * Say whether all of them have ended.  Tokens grow, so a live holder whose
 * token is not larger than "youngest" is one of them.  If some have not ended,
 * *next_us is when time next ends one; INT64_MAX: time ends none.
 */
extern bool lease_have_ended(const lease_holder *holders, size_t count,
							 uint64_t youngest, int64_t now_us,
							 int64_t *next_us);

/*
 * Apply a request to the holders of one name.
 *
 * "holders" must have room for count + 1 entries.  Sets the change of every
 * entry, updates the fields of those that change, and appends the holder that a
 * grant adds.  Strings taken from the request are not copied.  A holder whose
 * life is LEASE_PINNED never changes.
 *
 * How an end counts.  A lease whose time has run out has expired, unless it was
 * leaving: then it has ended.  A lease that ended with its transaction has ended.  A lease whose session was lost has
 * expired if there is a lock delay, which keeps others out as after a deadline;
 * without one it has ended.  With a lock delay, LEASE_LEAVE makes it a plain
 * lease that is over, so that it is not forgotten with the session.  A session
 * or transaction that takes over what its owner had in an earlier server ends
 * the old holder.  A stranded holder that is renewed, or changed otherwise,
 * becomes a plain one.
 *
 * An engine that walks over many names may pass the holders one at a time to
 * LEASE_REAP, LEASE_RENEW and LEASE_DROP.  Then these act on every holder that
 * matches, even on several of one name.
 */
extern lease_result lease_apply(const lease_request *request,
								lease_holder *holders, size_t count,
								int64_t now_us);

#endif							/* DLOCK_LEASE_H */
