/*
 * lease_status.h
 *	  How an attempt to read or write the tables ended.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_STATUS_H
#define DLOCK_LEASE_STATUS_H

/* How an attempt ended. */
typedef enum lease_status
{
	LEASE_STATUS_OK,
	LEASE_STATUS_CONFLICT,		/* rolled back: another transaction was faster, or holds a
								 * lock; try again */
	LEASE_STATUS_FENCED,		/* rolled back: another run has written, or the tables
								 * were edited; the image is no longer valid */
	LEASE_STATUS_EARLY,			/* nothing can be granted before the clock gets there,
								 * see lease_take_over() */
	LEASE_STATUS_LOST,			/* the connection or the transaction is gone, and
								 * nobody knows whether it was committed */
	LEASE_STATUS_FAILED			/* rolled back: the error says why */
} lease_status;

#endif							/* DLOCK_LEASE_STATUS_H */
