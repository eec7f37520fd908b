/*
 * udf_duration.h
 *	  Durations: a number of seconds, or text as PostgreSQL's interval takes it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_UDF_DURATION_H
#define DLOCK_UDF_DURATION_H

#include "lease.h"

typedef enum dlock_duration_error
{
	DLOCK_DURATION_OK,
	DLOCK_DURATION_INVALID,		/* neither a number nor a span of time */
	DLOCK_DURATION_NOT_FINITE,
	DLOCK_DURATION_OUT_OF_RANGE /* beyond 10^12 seconds either way */
} dlock_duration_error;

extern dlock_duration_error dlock_parse_duration(lease_bytes text,
												 int64_t *duration_us);

#endif							/* DLOCK_UDF_DURATION_H */
