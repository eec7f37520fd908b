/*
 * lease_waiting.c
 *	  The waiters, as JSON.
 *
 * All of it is with the engine's mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_waiting.h"

#include <inttypes.h>
#include <stdio.h>

#include "lease_call_end.h"
#include "lease_waiters.h"
#include "udf_text.h"

typedef struct waiters_text
{
	const dlock_caller *caller;	/* NULL: everything is shown */
	lease_text	json;
} waiters_text;

/* Add a waiter for a name; position 0: NULL. */
static void
add_waiter(const lease_call *call, lease_bytes name, size_t position,
		   void *context)
{
	waiters_text *waiters = context;
	lease_text *text = &waiters->json;
	lease_bytes user = dlock_caller_user(&call->caller);
	lease_bytes host = dlock_caller_host(&call->caller);
	bool		visible = waiters->caller == NULL ||
		dlock_is_caller(waiters->caller, user, host);
	char		account[DLOCK_USER_SIZE + DLOCK_HOST_SIZE];

	lease_text_add(text, text->length > 1 ? ", {" : "{");
	lease_text_add_hex(text, "name_hex", name);
	lease_text_add_hex(text, "user_hex", user);
	lease_text_add_hex(text, "host_hex", host);
	if (call->kind == DLOCK_CALL_WAIT)
		lease_text_add(text, "\"owner_hex\": null, \"mode\": null, ");
	else
	{
		lease_text_add_hex(text, "owner_hex", visible ? call->request.owner :
						   dlock_bytes_of(DLOCK_MASK));
		lease_text_add(text, "\"mode\": \"%s\", ",
					   lease_mode_name(call->request.mode));
	}
	if (position > 0)
		lease_text_add(text, "\"position\": %zu, ", position);
	else
		lease_text_add(text, "\"position\": null, ");
	lease_text_add(text, "\"waiting_since_us\": %" PRId64 ", \"account\": ",
				   call->waiting_since_us);
	snprintf(account, sizeof(account), "%s@%s", call->caller.user,
			 call->caller.host);
	dlock_add_json(text, dlock_bytes_of(account));
	if (visible)
		lease_text_add(text, ", \"connection_id\": %" PRIu64 "}",
					   call->caller.connection_id);
	else
		lease_text_add(text, ", \"connection_id\": null}");
}

/*
 * All waiters, as far as a caller may know of them: see dlock_engine_waiters().  NULL if
 * memory is short.
 */
char *
lease_waiting_json(const dlock_caller *caller)
{
	waiters_text waiters = {.caller = caller};

	lease_text_add(&waiters.json, "[");
	lease_waiters_visit(add_waiter, &waiters);
	(void) lease_calls_visit_served(add_waiter, &waiters);
	lease_text_add(&waiters.json, "]");
	if (!waiters.json.failed)
		return waiters.json.data;
	lease_text_free(&waiters.json);
	return NULL;
}
