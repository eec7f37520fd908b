/*
 * lease_owed.h
 *	  What the table is owed: releases that were answered, and are yet to be written.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_OWED_H
#define DLOCK_LEASE_OWED_H

#include "image.h"
#include "lease_call.h"

/* lease_owed.c */
extern bool lease_owed_begin(void);
extern void lease_owe(lease_call *call);
extern void lease_owe_nothing(lease_call *call);
extern lease_call *lease_calls_owed(const image_name *name, uint64_t token,
									const lease_call *after);
extern void lease_call_set_unwritten(lease_call *call, bool unwritten);
extern size_t lease_owed_unwritten(void);
extern bool lease_owed_is_written(const lease_call *call,
								  const lease_member *member);
extern void lease_owed_mark(void);
extern void lease_owed_note_written(int64_t now_us);
extern char *lease_owed_json(int64_t now_us);

#endif							/* DLOCK_LEASE_OWED_H */
