/*
 * lease_waiting.c
 *	  Those who wait, as JSON.
 *
 * With the engine's mutex held.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_waiting.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lease_calls.h"
#include "lease_waiters.h"
#include "udf_text.h"

typedef struct waiters_text
{
	const dlock_caller *caller;
	lease_text	json;
} waiters_text;

static void
add_string(lease_text *text, const char *string)
{
	lease_text_put(text, string, strlen(string));
}

/* Add text, which is UTF-8, to a JSON string. */
static void
add_escaped(lease_text *text, const char *value)
{
	for (; *value != '\0'; value++)
		if (*value == '"' || *value == '\\')
			lease_text_add(text, "\\%c", *value);
		else if ((unsigned char) *value < ' ')
			lease_text_add(text, "\\u%04x", (unsigned char) *value);
		else
			lease_text_put(text, value, 1);
}

/* Add who waits for a name; position 0: NULL. */
static void
add_waiter(const lease_call *call, lease_bytes name, size_t position,
		   void *context)
{
	waiters_text *waiters = context;
	lease_text *text = &waiters->json;
	bool		visible = dlock_sees(waiters->caller,
									 dlock_caller_user(&call->caller),
									 dlock_caller_host(&call->caller));

	add_string(text, text->length > 1 ? ", {\"name_hex\": \"" :
			   "{\"name_hex\": \"");
	lease_text_put_hex(text, name);
	add_string(text, "\", \"user_hex\": \"");
	lease_text_put_hex(text, dlock_caller_user(&call->caller));
	add_string(text, "\", \"host_hex\": \"");
	lease_text_put_hex(text, dlock_caller_host(&call->caller));
	add_string(text, "\", \"owner_hex\": ");
	if (call->kind == DLOCK_CALL_WAIT)
		add_string(text, "null, \"mode\": null");
	else
	{
		add_string(text, "\"");
		if (visible)
			lease_text_put_hex(text, call->request.owner);
		else
			lease_text_put_hex(text, dlock_bytes_of(DLOCK_MASK));
		lease_text_add(text, "\", \"mode\": \"%s\"",
						  lease_mode_name(call->request.mode));
	}
	if (position > 0)
		lease_text_add(text, ", \"position\": %zu", position);
	else
		add_string(text, ", \"position\": null");
	lease_text_add(text, ", \"waiting_since_us\": %" PRId64
					  ", \"account\": \"", call->waiting_since_us);
	add_escaped(text, call->caller.user);
	add_string(text, "@");
	add_escaped(text, call->caller.host);
	if (visible)
		lease_text_add(text, "\", \"connection_id\": %" PRIu64 "}",
						  call->caller.connection_id);
	else
		add_string(text, "\", \"connection_id\": null}");
}

/*
 * All who wait, as far as a caller may know of them: see dlock_engine_waiters().  NULL if
 * memory is short.
 */
char *
lease_waiting_json(const dlock_caller *caller)
{
	waiters_text waiters = {.caller = caller};

	add_string(&waiters.json, "[");
	lease_waiters_visit(add_waiter, &waiters);
	(void) lease_calls_visit_served(add_waiter, &waiters);
	add_string(&waiters.json, "]");
	if (!waiters.json.failed)
		return waiters.json.data;
	lease_text_free(&waiters.json);
	return NULL;
}
