/*
 * lease_early.h
 *	  Answer a call by what the image says, without the server.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_EARLY_H
#define DLOCK_LEASE_EARLY_H

#include "lease_call.h"
#include "lease_name.h"

/* lease_early.c */
extern bool lease_early_release(const dlock_call *request,
								dlock_answer *answer);
extern bool lease_early_refuse(const dlock_call *request,
							   dlock_answer *answer);
extern bool lease_early_refuse_call(lease_call *call);
extern bool lease_early_look(const dlock_call *request,
							 dlock_answer *answer);
extern bool lease_early_look_blind(lease_call *call);
extern bool lease_early_is_lendable(const lease_call *call);
extern bool lease_early_could_be_granted(const lease_call *call);
extern bool lease_early_fill(lease_name *name, const lease_request *request,
							 const dlock_caller *caller,
							 const lease_moment *moment, bool is_blind,
							 dlock_answer *answer);
extern bool lease_early_have_ended(image_name *entry, uint64_t youngest,
								   const lease_moment *moment);

#endif							/* DLOCK_LEASE_EARLY_H */
