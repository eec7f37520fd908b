/*
 * lease_replays.c
 *	  Whether a hold was found by its request id since it was granted.
 *
 * If nobody learns of what a call was granted, the grant is given back.  But if a retry
 * with the same request id has found it meanwhile, it belongs to the retry.
 *
 * All of it is with the engine's mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_replays.h"

/*
 * How often holds were found by their request ids, by a hash of name, owner and id; calls
 * that nobody waits for are not counted.  As long as the count is what it was when a call
 * was granted something, no other caller has been told of the grant.
 */
#define REPLAY_SLOTS	4096
static uint64_t replays[REPLAY_SLOTS];

static uint64_t *
replays_of(const lease_call *call, size_t i)
{
	uint64_t	hash = hash_bytes(call->names[i], 0);

	hash = hash_bytes(call->request.owner, hash);
	hash = hash_bytes(call->request.request, hash);
	return &replays[hash % REPLAY_SLOTS];
}

/* The sum of the counts for a call's names. */
static uint64_t
count_replays(const lease_call *call)
{
	uint64_t	sum = 0;

	for (size_t i = 0; i < call->nnames; i++)
		sum += *replays_of(call, i);
	return sum;
}

/* Add "what", 1 or -1, to the counts of the holds that a call has found. */
static void
add(const lease_call *call, int64_t what)
{
	for (size_t i = 0; i < call->nnames; i++)
		if (lease_call_outcome(call, i) == LEASE_REPLAYED)
			*replays_of(call, i) += (uint64_t) what;
}

/* From now on, other calls may find what this call was granted, or is to give back. */
void
lease_replays_note(lease_call *call)
{
	call->replays = count_replays(call);
}

/* Say whether another call may have found it since. */
bool
lease_replays_have(const lease_call *call)
{
	return call->request.request.length > 0 &&
		count_replays(call) != call->replays;
}

/* Nobody waits for a call that was granted something: what it found does not count. */
void
lease_replays_forget(lease_call *call)
{
	uint64_t	before = count_replays(call);

	if (call->request.request.length == 0)
		return;
	add(call, -1);
	call->replays += count_replays(call) - before;
}

/* A call was granted what it wants: count what it has found. */
void
lease_replays_add(lease_call *call)
{
	if (call->request.request.length == 0)
		return;
	add(call, 1);
	lease_replays_note(call);
}
