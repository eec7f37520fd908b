/*
 * lease_owned.c
 *	  The names of an owner's leases, for a call that concerns all of them.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_owned.h"

#include "lease_call_end.h"
#include "lease_lists.h"
#include "lease_mutex.h"
#include "lease_name.h"
#include "lease_names.h"
#include "lease_pace.h"
#include "lease_server.h"
#include "lease_tenure.h"
#include "table.h"

/* Find the names of an owner's leases in the image. */
static void
find_in_image(const lease_call *call, lease_names *list)
{
	const image_account *account = lease_account_of(&call->caller);
	image_holder *holder = NULL;

	list->failed |= account == NULL;
	while (account != NULL &&
		   (holder = image_owned(call->request.owner, account,
								 holder)) != NULL)
		lease_names_add(list, holder->name->name);
}

/* The same in the table.  The mutex is held, and released meanwhile. */
static lease_status
find_in_table(const lease_call *call, lease_names *list)
{
	table_rows	rows = {0};
	journal_changes changes = {0};
	lease_status status;

	lease_ask();
	status = lease_server_prepare();
	if (status == LEASE_STATUS_OK)
		status = table_catch_up(lease_server_connection());
	if (status == LEASE_STATUS_OK && !tenure->has_taken_over)
		status = table_read_journals(lease_server_connection(), &changes);
	if (status == LEASE_STATUS_OK)
		status = table_read_owner(lease_server_connection(), call->request.owner,
								  dlock_caller_user(&call->caller),
								  dlock_caller_host(&call->caller), &rows);
	(void) lease_resume();
	if (status == LEASE_STATUS_OK && lease_server_connection()->is_read_only)
		lease_note_read_only();
	for (size_t i = 0; status == LEASE_STATUS_OK && i < rows.count; i++)
		lease_names_add(list, rows.rows[i].name);
	for (size_t i = 0; status == LEASE_STATUS_OK && i < changes.count; i++)
		if (changes.changes[i].kind == JOURNAL_PUT &&
			lease_same(changes.changes[i].row.owner, call->request.owner))
			lease_names_add(list, changes.changes[i].row.name);
	journal_free(&changes);
	table_free_rows(&rows);
	return status;
}

/*
 * Look up the names of an owner for a call that concerns all of them.  The call goes back
 * into the list, or is answered if there are none.  The mutex is held, and released
 * meanwhile.
 */
void
lease_owned_find(lease_call *call)
{
	lease_names	list = {0};
	lease_status status = LEASE_STATUS_OK;

	lease_list_none(call);
	if (!image_is_complete())
		status = find_in_table(call, &list);
	if (image_is_valid())
		find_in_image(call, &list);
	lease_names_sort(&list);
	if (status != LEASE_STATUS_OK)
	{
		lease_note_failure(status);
		lease_call_after_failure(call, &(lease_failure) {
			.status = status,.is_alone = true
		});
	}
	else if (list.count == 0 && tenure->read_only)
	{
		lease_call_fail(call, "25006",
						"could not use the lock table: the server is read-only");
		lease_call_finish(call);
	}
	else if (list.count == 0 && !list.failed)
		lease_call_answer_now(call);
	else if (!lease_names_give(&list, list.count, call))
		lease_call_fail_by_memory(call);
	else
		lease_call_put_back(call);
	lease_names_free(&list);
}
