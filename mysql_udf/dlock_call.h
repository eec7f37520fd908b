/*
 * dlock_call.h
 *	  A call of an SQL function to the engine, and its answer.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_CALL_H
#define DLOCK_CALL_H

#include <string.h>

#include "lease.h"
#include "mysql_compat.h"

/* Most names of one dlock_acquire_all(), and of a call that waits for any of them. */
#define DLOCK_MAX_NAMES		100

/* Most names that one call for many takes. */
#define DLOCK_MAX_MANY		1000

/* Longest message of an error, with its end mark. */
#define DLOCK_MESSAGE_SIZE	512

/* The caller: an account, and its connection. */
typedef struct dlock_caller
{
	char		user[DLOCK_USER_SIZE];
	char		host[DLOCK_HOST_SIZE];
	uint64_t	connection_id;
} dlock_caller;

/* The bytes of a text. */
static inline lease_bytes
dlock_bytes_of(const char *text)
{
	return (lease_bytes) {text, strlen(text)};
}

/* The halves of a caller's account. */
static inline lease_bytes
dlock_caller_user(const dlock_caller *caller)
{
	return dlock_bytes_of(caller->user);
}

static inline lease_bytes
dlock_caller_host(const dlock_caller *caller)
{
	return dlock_bytes_of(caller->host);
}

/* Is this account the caller's? */
static inline bool
dlock_is_caller(const dlock_caller *caller, lease_bytes user, lease_bytes host)
{
	return lease_same(user, dlock_caller_user(caller)) &&
		lease_same(host, dlock_caller_host(caller));
}

typedef enum dlock_call_kind
{
	DLOCK_CALL_APPLY,			/* the request, to one name */
	DLOCK_CALL_ACQUIRE_ALL,		/* the request, to all names or none */
	DLOCK_CALL_ACQUIRE_ANY,		/* the request, to the names in their order until
								 * it has "wanted" of them */
	DLOCK_CALL_APPLY_EACH,		/* LEASE_RENEW or LEASE_RELEASE, to each of the
								 * names as in a call of its own */
	DLOCK_CALL_APPLY_ALL,		/* LEASE_RENEW or LEASE_DROP, to all leases of
								 * the request's owner; no name */
	DLOCK_CALL_WAIT,			/* until the present holds have ended; only the name and
								 * wait_us count */
	DLOCK_CALL_READ,			/* the holders of the name, whether it is free, and
								 * what is left of the lease that the request's
								 * owner and token speak for */
	DLOCK_CALL_BEGIN_GUARD,		/* say whether the request's owner and token
								 * hold the name, and where its row is, which
								 * the caller is about to lock */
	DLOCK_CALL_CHECK_GUARD		/* say whether they still do, now that the row
								 * is locked */
} dlock_call_kind;

/* What DLOCK_CALL_READ must find out; the answer may have more. */
typedef enum dlock_read_what
{
	DLOCK_READ_HOLDERS,			/* all there is */
	DLOCK_READ_OWNER,			/* the exclusive holder that is live */
	DLOCK_READ_FREE,			/* whether the name is free */
	DLOCK_READ_REMAINING		/* what is left of the lease */
} dlock_read_what;

typedef struct dlock_call
{
	dlock_call_kind kind;
	dlock_read_what what;		/* DLOCK_CALL_READ */
	lease_request request;		/* op, owner, request, mode, kind, claim, limit,
								 * permits, holds, ttl_us, token; the rest is
								 * the engine's */
	const lease_bytes *names;
	size_t		nnames;
	const uint64_t *tokens;		/* DLOCK_CALL_APPLY_EACH: of each name the token
								 * to match, 0 for any; NULL: any */
	uint32_t	wanted;			/* DLOCK_CALL_ACQUIRE_ANY: how many */
	int64_t		wait_us;		/* negative: without limit */
	const dlock_caller *caller;
	bool		is_operator;	/* it may call, whatever dlock.callers says */
} dlock_call;

/*
 * A holder, as DLOCK_CALL_READ answers it.  There may be thousands, which are copied
 * with the mutex held, so each has as little as possible.
 */
typedef struct dlock_holder_info
{
	lease_bytes owner;			/* in the memory of answer->holders */
	lease_bytes user;			/* in an image_account, which is never freed */
	lease_bytes host;
	lease_mode	mode;
	lease_kind	kind;
	uint32_t	version;
	uint64_t	token;
	int64_t		acquired_at_us; /* since 1970, UTC */
	int64_t		expires_at_us;	/* the same; 0: it ends with its session, or only
								 * its guard is left */
	uint64_t	connection_id;
	bool		live;			/* false: over, and not removed yet */
	bool		leaving;		/* it was given back, with effect at its deadline */
	int64_t		remaining_us;	/* 0: it is over */
	enum
	{
		DLOCK_GUARD_UNKNOWN,	/* the rows could not be read with locks */
		DLOCK_NOT_GUARDED,
		DLOCK_GUARDED			/* a transaction has locked the row */
	}			guarded;
} dlock_holder_info;

typedef struct dlock_answer
{
	/* An error, unless sqlstate is empty; then the rest does not count. */
	char		sqlstate[6];
	char		message[DLOCK_MESSAGE_SIZE];

	lease_outcome outcome;		/* DLOCK_CALL_APPLY, _ACQUIRE_ALL, _ACQUIRE_ANY */
	size_t		failed_name;	/* DLOCK_CALL_ACQUIRE_ALL, _ACQUIRE_ANY: index of
								 * the name that a misuse concerns */
	lease_mode	held_mode;		/* of a misuse: as the caller holds it */
	lease_kind	held_kind;
	uint64_t	token;			/* LEASE_GRANTED and the like */
	uint64_t   *tokens;			/* DLOCK_CALL_ACQUIRE_ALL, _ACQUIRE_ANY: of each
								 * name; 0: not taken; free() it */
	char	   *unmasked;		/* an error of a deadlock: the message for operators, if
								 * it is another one; free() it */
	bool	   *done;			/* DLOCK_CALL_APPLY_EACH: of each name whether it
								 * was done; free() it */
	uint64_t	count;			/* LEASE_EVICT, DLOCK_CALL_APPLY_ALL: holders;
								 * DLOCK_CALL_BEGIN_GUARD: the row's slot */
	bool		yes;			/* DLOCK_CALL_WAIT: all have ended;
								 * DLOCK_CALL_READ: nobody's, not guarded, and
								 * under no lock delay;
								 * DLOCK_CALL_BEGIN_GUARD, _CHECK_GUARD: it is
								 * held */
	int64_t		remaining_us;	/* DLOCK_CALL_READ: -1: there is no such lease */
	dlock_holder_info *holders; /* DLOCK_CALL_READ, in no order: free() it */
	size_t		nholders;
} dlock_answer;

#endif							/* DLOCK_CALL_H */
