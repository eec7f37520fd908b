/*
 * udf_messages.h
 *	  The messages of the SQL functions for a failed request.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_UDF_MESSAGES_H
#define DLOCK_UDF_MESSAGES_H

#include "udf_function.h"

extern bool dlock_check_answer(const dlock_call *call,
							   const dlock_answer *answer);
extern void dlock_raise_lost(dlock_use *use, bool is_known);

#endif							/* DLOCK_UDF_MESSAGES_H */
