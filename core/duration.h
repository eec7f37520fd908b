/*
 * duration.h
 *	  A time as text: a number of seconds, or a span as PostgreSQL's interval takes it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef LEASE_DURATION_H
#define LEASE_DURATION_H

#include <stddef.h>
#include <stdint.h>

/* Largest absolute value, 10^12 seconds: that of PostgreSQL's dlock_duration. */
#define LEASE_DURATION_MAX_US	INT64_C(1000000000000000000)

typedef enum lease_duration
{
	LEASE_DURATION_OK,
	LEASE_DURATION_INVALID,		/* neither a number nor a span of time */
	LEASE_DURATION_NOT_FINITE,
	LEASE_DURATION_OUT_OF_RANGE /* beyond LEASE_DURATION_MAX_US either way */
} lease_duration;

/* Read a time; it is in *duration_us if it is OK. */
extern lease_duration lease_parse_duration(const char *text, size_t length,
										   int64_t *duration_us);

#endif							/* LEASE_DURATION_H */
