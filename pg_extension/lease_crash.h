/*
 * lease_crash.h
 *	  Points at which a process can be told to die, in a build for tests.
 *
 * In a build with -DDLOCK_CRASH_POINTS, a process that passes the point named
 * by dlock.crash_point for the dlock.crash_pass-th time kills itself with
 * SIGKILL; what has been logged and not flushed is lost.  If dlock.crash_server
 * is on, it flushes that, and kills the postmaster, too.  If dlock.crash_stop is
 * on, it does none of this, but stops until somebody continues it.  In any other build there are no points
 * and no such settings.
 *
 * At a point that ends in "not logged" the pages (or the copies that
 * GenericXLog works on) have been changed, in the critical section.  At one
 * that ends in "logged" that section is over, but the pages are still locked
 * and nobody has flushed.  This list is complete: t/461_crash_points.pl reads
 * it, and compares it with the sources.
 *
 *	"root: page added"				the metapage or the root bucket, all zero
 *	"root: not logged"				both in one record
 *	"root: logged"
 *	"page: added"					for overflow or a directory, all zero
 *	"page: off the free list"		locked for the same purpose
 *	"directory: not logged"			a directory page
 *	"directory: logged"
 *	"split: page added"				for the new bucket, all zero
 *	"split: not logged"				both buckets, the directory, the metapage
 *	"split: logged"
 *	"split: half summarized"		all is unlocked; one side has its summary
 *	"overflow: not logged"			a page more on the chain of a bucket
 *	"overflow: logged"
 *	"freed page: not logged"		to the free list, from a chain or all zero
 *	"freed page: logged"
 *	"compaction: not logged"		of one page
 *	"compaction: logged"
 *	"row: not logged"				one that is new or moves, and the mark
 *	"row: logged"
 *	"rows: not logged"				those that change in place, of one page
 *	"rows: logged"
 *	"rows: overflow left empty"		before such pages leave the chain
 *	"call: not flushed"				its records are written, its pages unlocked
 *	"call: not answered"			but durable, if that was asked for
 *	"all: about to watch"			one of many, which is taken
 *	"all: about to take"			all are free
 *	"all: name taken"				one of many
 *	"many: name taken"				one of those that a claim gets
 *	"many: not flushed"				all that a call for many gets
 *	"many: about to give back"		all of those
 *	"many: name done"				one that is renewed or released
 *	"walk: bucket done"				one of those an owner may be in
 *	"queue: about to join"			because the name is taken, or others wait
 *	"queue: granted, not answered"	on behalf of a waiter
 *	"wait: about to handle interrupts"	none of which has been seen to end it
 *	"deadlock: name read"			one of those a search looks at
 *	"mark: not logged"				of the lease clock
 *	"mark: logged"
 *	"metapage: not logged"			floor and clock, at an activation or rewrite
 *	"metapage: logged"
 *	"activation: purged"			of the leases of another database
 *	"activation: flushed"			before others are told
 *	"purge: not logged"				one page of a copied database
 *	"purge: logged"
 *	"rewrite: row not logged"		by VACUUM FULL, in the new file
 *	"rewrite: row logged"
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_CRASH_H
#define DLOCK_LEASE_CRASH_H

#ifdef DLOCK_CRASH_POINTS

#define DLOCK_CRASH_POINT(name)		lease_crash_point(name)
#define DLOCK_CRASH_SETTINGS()		lease_crash_define_settings()

/* lease_crash.c */
extern void lease_crash_point(const char *name);
extern void lease_crash_define_settings(void);

#else

#define DLOCK_CRASH_POINT(name)		((void) 0)
#define DLOCK_CRASH_SETTINGS()		((void) 0)

#endif

#endif							/* DLOCK_LEASE_CRASH_H */
