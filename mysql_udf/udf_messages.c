/*
 * udf_messages.c
 *	  What the SQL functions say when a request has failed.
 *
 * All messages that the core's outcomes can lead to are in this file, in the
 * words of pg_extension/sql/lease_sql.c.  An error has one text here: a detail or hint
 * of PostgreSQL follows after a semicolon.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "udf_messages.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "udf_text.h"

/* Check that a request was no misuse; else raise an error and return false. */
bool
dlock_check_answer(const dlock_call *call, const dlock_answer *answer)
{
	const lease_request *request = &call->request;
	char		shown_name[DLOCK_SHOWN_SIZE];
	char		shown_owner[DLOCK_SHOWN_SIZE];
	const char *name = "";
	const char *owner = dlock_show(shown_owner, request->owner);

	if (answer->failed_name < call->nnames)
		name = dlock_show(shown_name, call->names[answer->failed_name]);
	switch (answer->outcome)
	{
		case LEASE_UPGRADE:
			return dlock_raise("55000",
							   "owner \"%s\" holds a shared lease on \"%s\" and cannot make it exclusive; release the shared lease first",
							   owner, name);
		case LEASE_MIXED:
			return dlock_raise("55000",
							   "owner \"%s\" holds \"%s\" in mode %s and cannot also take it in mode %s; release it first",
							   owner, name, lease_mode_name(answer->held_mode),
							   lease_mode_name(request->mode));
		case LEASE_MIXED_KINDS:
			return dlock_raise("55000",
							   "owner \"%s\" holds \"%s\" as a %s lease and cannot also take it as a %s lease; release it first",
							   owner, name, lease_kind_name(answer->held_kind),
							   lease_kind_name(request->kind));
		case LEASE_IS_PERMIT:
			return dlock_raise("55000",
							   "owner \"%s\" holds permits of \"%s\", which cannot be downgraded; release permits instead",
							   owner, name);
		case LEASE_IS_BOUND:
			return dlock_raise("55000",
							   "owner \"%s\" holds \"%s\" as a %s lease, which cannot be released later; release it at once",
							   owner, name, lease_kind_name(answer->held_kind));
		case LEASE_TOO_MANY_HOLDS:
			return dlock_raise("54000",
							   "owner \"%s\" cannot hold \"%s\" more than %d times",
							   owner, name, LEASE_VERSION_MAX);
		case LEASE_NO_TOKENS:
			return dlock_raise("2200H", "no tokens are left for \"%s\"", name);
		default:
			return true;
	}
}

/*
 * Raise the error of a guard whose lease is lost.  The message ends, where a long one is
 * cut, with the owner that holds the lease now, if the caller may know it.  The holders
 * are in use->answer, if they are known.
 */
void
dlock_raise_lost(dlock_use *use, bool is_known)
{
	const dlock_call *call = &use->call;
	const dlock_answer *now = &use->answer;
	char		shown_name[DLOCK_SHOWN_SIZE];
	char		shown_owner[DLOCK_SHOWN_SIZE];
	char		shown_holder[DLOCK_SHOWN_SIZE];
	char		who[DLOCK_SHOWN_SIZE + 64] = "";
	const dlock_holder_info *holder = NULL;

	for (size_t i = 0; is_known && i < now->nholders && holder == NULL; i++)
		if (now->holders[i].live)
			holder = &now->holders[i];
	if (holder != NULL && dlock_sees(use, holder->user, holder->host))
		snprintf(who, sizeof(who), "; owner \"%s\" holds it with token %" PRIu64,
				 dlock_show(shown_holder, holder->owner), holder->token);
	else if (holder != NULL)
		strcpy(who, "; somebody else holds it");
	else if (is_known)
		strcpy(who, "; nobody holds it");
	dlock_raise("55L01",
				"owner \"%s\" no longer holds the lease on \"%s\" with this token; roll back, and acquire the lease again%s",
				dlock_show(shown_owner, call->request.owner),
				dlock_show(shown_name, call->names[0]), who);
}
