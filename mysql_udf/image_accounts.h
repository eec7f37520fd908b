/*
 * image_accounts.h
 *	  The accounts of holders and callers, each once, so that pointers can be compared.
 *
 * All of it is under the engine's mutex.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_IMAGE_ACCOUNTS_H
#define DLOCK_IMAGE_ACCOUNTS_H

#include "hash.h"

/* An account; never freed, since there are few.  Both halves have an end mark. */
typedef struct image_account
{
	hash_link	link;
	lease_bytes user;
	lease_bytes host;
	uint64_t	listed;			/* the list of callers that had it last: upkeep.c's */
	size_t		leases;			/* what it has of what is bounded: the engine's */
	size_t		waiters;
	size_t		other_places;
} image_account;

/* image_accounts.c */
extern const image_account *image_account_get(lease_bytes user,
											  lease_bytes host);

#endif							/* DLOCK_IMAGE_ACCOUNTS_H */
