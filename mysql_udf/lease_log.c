/*
 * lease_log.c
 *	  Lines for the server's error log.
 *
 * The log's disk, or the program that reads the log, may stand still.  So a batch or a
 * checkpoint only notes its lines, with the engine's mutex held, and the batcher writes
 * them afterwards, without it.  Looks and releases go on meanwhile.  Nobody makes a batch
 * then, so no line is added while they are written.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "lease_mutex.h"

/* Room for what one batch may have to tell: some thousands of expired leases. */
static char lines[1 << 20];
static size_t length = 0;
static size_t left_out = 0;		/* lines for which there was no room */

/* Note a line, which ends with a newline. */
void
lease_log(const char *format,...)
{
	size_t		room = sizeof(lines) - length;
	va_list		arguments;
	int			more;

	va_start(arguments, format);
	more = vsnprintf(lines + length, room, format, arguments);
	va_end(arguments);
	if (more < 0 || (size_t) more >= room)
		left_out++;
	else
		length += (size_t) more;
}

/* When lines are to be written: now, or never. */
int64_t
lease_log_due_us(void)
{
	return length > 0 || left_out > 0 ? INT64_MIN : INT64_MAX;
}

/*
 * Write the lines, and how many were left out.  To callers that wait, the log is a part
 * of the server like its tables.  The mutex is held, and released meanwhile.
 */
void
lease_log_write(void)
{
	lease_ask();
	fwrite(lines, 1, length, stderr);
	if (left_out > 0)
		fprintf(stderr, "dlock: %zu more lines were left out here\n", left_out);
	(void) lease_resume();
	length = left_out = 0;
}
