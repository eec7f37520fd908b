/*
 * udf_text.h
 *	  JSON, and bytes that may not be text.
 *
 * Names and owners are bytes, mostly UTF-8.  The comments at the functions say what
 * becomes of other bytes where they are shown.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_UDF_TEXT_H
#define DLOCK_UDF_TEXT_H

#include "lease_text.h"

/* Shown instead of owners and clients that the caller may not see. */
#define DLOCK_MASK	"<insufficient privilege>"

extern void dlock_add_json(lease_text *text, lease_bytes string);
extern void dlock_add_json_or_hex(lease_text *text, lease_bytes string);
extern void dlock_add_json_time(lease_text *text, int64_t time_us);

/* Room for what dlock_show() makes of a string of any length. */
#define DLOCK_SHOWN_SIZE	176

extern const char *dlock_show(char shown[DLOCK_SHOWN_SIZE], lease_bytes string);

/*
 * Read a JSON array of strings, or of numbers and nulls.  The strings are put into
 * "memory", which must be as long as the text.  A number stays as it is written, without
 * quotes; the caller checks that it is a number.  A null among numbers has no data.
 * "strings" has room for "most" elements; *count says how many there are.
 */
typedef enum dlock_json_array
{
	DLOCK_JSON_ARRAY,			/* done */
	DLOCK_JSON_NULL_ELEMENT,	/* an element is null, and must not be */
	DLOCK_JSON_TOO_LONG,		/* there are more than "most" */
	DLOCK_JSON_INVALID			/* this is not such an array */
} dlock_json_array;

extern dlock_json_array dlock_read_json_array(lease_bytes json, char *memory,
											  bool numbers,
											  lease_bytes *strings,
											  size_t most, size_t *count);

#endif							/* DLOCK_UDF_TEXT_H */
