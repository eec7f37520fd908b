/*
 * image_accounts.c
 *	  The accounts of holders and callers, each once.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "image_accounts.h"

#include <stdlib.h>
#include <string.h>

static hash_table accounts;

/* The account with these halves; NULL if memory is short. */
const image_account *
image_account_get(lease_bytes user, lease_bytes host)
{
	uint64_t	hash = hash_bytes(host, hash_bytes(user, 0));
	image_account *account;
	char	   *data;

	for (hash_link *link = hash_first(&accounts, hash); link != NULL;
		 link = hash_next(link))
	{
		account = hash_object(image_account, link, link);
		if (lease_same(account->user, user) && lease_same(account->host, host))
			return account;
	}
	if (!hash_reserve(&accounts))
		return NULL;
	account = calloc(1, sizeof(image_account) + user.length + host.length + 2);
	if (account == NULL)
		return NULL;
	data = (char *) (account + 1);
	if (user.length > 0)
		memcpy(data, user.data, user.length);
	account->user = (lease_bytes) {data, user.length};
	data += user.length + 1;
	if (host.length > 0)
		memcpy(data, host.data, host.length);
	account->host = (lease_bytes) {data, host.length};
	hash_add(&accounts, &account->link, hash);
	return account;
}
