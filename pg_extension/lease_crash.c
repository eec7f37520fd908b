/*
 * lease_crash.c
 *	  Die, or stop, at a point of the source, in a build for tests; see lease_crash.h.
 *
 * So each step of a change to several pages can be the last one of a process or
 * a server; no signal from outside hits that reliably.  SIGKILL leaves no time
 * for anything: a process takes its page locks and what it has not logged with
 * it, and the server throws away all shared memory.  May be called anywhere,
 * also in a critical section.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include "lease_crash.h"

#ifdef DLOCK_CRASH_POINTS

#include <limits.h>
#include <signal.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "utils/guc.h"

static char *crash_point = NULL;
static int	crash_pass = 1;
static bool crash_server = false;
static bool crash_stop = false;

/* Define the settings that name a point; for anybody, as this is for tests. */
void
lease_crash_define_settings(void)
{
	DefineCustomStringVariable("dlock.crash_point",
							   "At which point of the source to die.",
							   "Empty means not at all. For tests.",
							   &crash_point, "",
							   PGC_USERSET, GUC_NOT_IN_SAMPLE,
							   NULL, NULL, NULL);
	DefineCustomIntVariable("dlock.crash_pass",
							"At which pass of that point to die.",
							NULL,
							&crash_pass, 1, 1, INT_MAX,
							PGC_USERSET, GUC_NOT_IN_SAMPLE,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("dlock.crash_server",
							 "Takes the postmaster along.",
							 "Flushes before what has been logged.",
							 &crash_server, false,
							 PGC_USERSET, GUC_NOT_IN_SAMPLE,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("dlock.crash_stop",
							 "Stops instead, until it is continued.",
							 NULL,
							 &crash_stop, false,
							 PGC_USERSET, GUC_NOT_IN_SAMPLE,
							 NULL, NULL, NULL);
}

/*
 * Where the last record ends.  If that is the start of a page, PostgreSQL
 * instead gives the place behind the page's header, where the next record will
 * begin; that cannot be flushed yet.
 */
static XLogRecPtr
end_of_wal(void)
{
	XLogRecPtr	next = GetXLogInsertRecPtr();

	if (XLogSegmentOffset(next, wal_segment_size) == SizeOfXLogLongPHD)
		return next - SizeOfXLogLongPHD;
	if (next % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		return next - SizeOfXLogShortPHD;
	return next;
}

/* Die, or stop, if this is the point, and the pass. */
void
lease_crash_point(const char *name)
{
	static int	passes = 0;

	if (crash_point == NULL || strcmp(name, crash_point) != 0 ||
		++passes != crash_pass)
		return;
	if (crash_stop)
	{
		kill(MyProcPid, SIGSTOP);
		return;
	}
	write_stderr("dlock dies at \"%s\", pass %d\n", name, passes);
	if (crash_server)
	{
		XLogFlush(end_of_wal());
		kill(PostmasterPid, SIGKILL);
	}
	kill(MyProcPid, SIGKILL);
}

#endif							/* DLOCK_CRASH_POINTS */
