/*
 * lease_crowd.h
 *	  What the rows of an overflow page are together.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_CROWD_H
#define DLOCK_LEASE_CROWD_H

#include "compat.h"
#include "lease.h"
#include "lease_summary.h"
#include "storage/buf.h"
#include "storage/off.h"

/* The rows of a page; valid as long as the page is locked. */
typedef struct LeaseCrowd
{
	/* what is described: a page as of its last change */
	RelFileNumber file;			/* InvalidRelFileNumber: nothing */
	BlockNumber block;
	XLogRecPtr	lsn;

	/* a row with the name that all have; InvalidOffsetNumber: no crowd */
	OffsetNumber sample;
	lease_holder holder;		/* see lease_join_crowd() */
	LeaseSummary summary;
} LeaseCrowd;

/* lease_crowd.c */
extern const LeaseCrowd *lease_crowd_of(Relation rel, Buffer buffer,
										lease_bytes name);

#endif							/* DLOCK_LEASE_CROWD_H */
