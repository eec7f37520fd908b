/*
 * lease_rows.h
 *	  The holders of a name: gather them from a bucket, write them back.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_ROWS_H
#define DLOCK_LEASE_ROWS_H

#include "compat.h"
#include "lease.h"
#include "lease_page.h"
#include "lease_queue.h"
#include "lease_state.h"
#include "nodes/pg_list.h"

/* Holders of a name, and owners, that need no memory of their own. */
#define LEASE_ROWS_INLINE	4

extern bool lease_log_expired;	/* dlock.log_expired */

/* Where a row is; an invalid block: a guard or a crowd, and no row. */
typedef struct RowPlace
{
	BlockNumber block;
	OffsetNumber offset;
	XLogRecPtr	lsn;			/* of its page */
	Oid			role;			/* of the holder */
} RowPlace;

/* A role that the caller may or may not act for. */
typedef struct RoleVerdict
{
	Oid			role;
	bool		acts_for;
} RoleVerdict;

/* The requester: the calling backend, or a waiter on whose behalf it acts. */
typedef struct LeaseRequester
{
	Oid			role;
	int			pid;
	lease_bytes application;
	lease_bytes address;
	LeaseStamp	stamp;			/* for a request that is not plain */
	bool		alone;			/* acts for no other role */
	const LeaseWaiter *waiter;	/* NULL: the calling backend */
} LeaseRequester;

/* One call of a function, over all its attempts. */
typedef struct LeaseCall
{
	Relation	rel;
	LeaseDatabase *db;
	lease_request request;
	LeaseRequester requester;
	lease_bytes name;
	uint32		hash;			/* of the name */

	RoleVerdict *verdicts;
	int			nverdicts;
	Oid			unknown_role;	/* met by this attempt; InvalidOid: none */

	/* the rows this attempt has gathered; holders[count] is spare */
	BlockNumber bucket_block;
	int64		now_us;			/* lease clock, read under the bucket's lock */
	uint32		pokes;			/* lease_queue_pokes() before the look */
	MemoryContext memory;		/* of this attempt's rows; NULL: none needed */
	lease_holder *holders;
	RowPlace   *places;
	size_t		count;
	size_t		capacity;

	/* of holders that matter only together, see lease_crowd.c */
	bool		apart;			/* there are to be none: all come by themselves */
	uint64	   *owners;			/* hashes of the owners that come by themselves */
	int			nowners;
	size_t		crowd;			/* the row that stands for the others; count or
								 * above: none */

	BlockNumber roomiest;		/* overflow page with the largest hole, as
								 * gathered; InvalidBlockNumber: none */
	Size		hole;			/* its size */

	Size		missing_room;	/* size of the row that found no room */
	List	   *expired;		/* of ExpiredLease */
	uint64		nexpired;
	XLogRecPtr	lsn;			/* the last record of this call, or the one it
								 * depends on */

	/* room for what most calls need; not zeroed */
	uint64		inline_owners[LEASE_ROWS_INLINE];
	lease_holder inline_holders[LEASE_ROWS_INLINE];
	RowPlace	inline_places[LEASE_ROWS_INLINE];
} LeaseCall;

/* lease_rows.c */
extern void lease_rows_init(LeaseCall *call, Relation rel, LeaseDatabase *db,
							const lease_request *request);
extern lease_request lease_rows_request(const LeaseWaiter *waiter);
extern lease_holder lease_rows_pinned(const LeaseGuard *guard, int pid);
extern void lease_rows_init_waiter(LeaseCall *call, const LeaseCall *server,
								   const LeaseWaiter *waiter);
extern void lease_rows_resolve_role(LeaseCall *call);
extern void lease_rows_start(LeaseCall *call, Buffer bucket);
extern lease_holder *lease_rows_add(LeaseCall *call, Buffer buffer,
									OffsetNumber offset,
									const LeaseEntry *entry);
extern void lease_rows_seek_guarded(LeaseCall *call, Buffer bucket,
									LeaseQueue *queue);
extern void lease_rows_gather(LeaseCall *call, Buffer bucket);
extern void lease_rows_gather_guards(LeaseCall *call, LeaseQueue *queue);
extern LeaseEntry *lease_rows_entry(LeaseCall *call, Buffer bucket,
									size_t row);
extern void lease_rows_write(LeaseCall *call, Buffer bucket);
extern bool lease_rows_store(LeaseCall *call, Buffer bucket,
							 const lease_result *result);
extern void lease_rows_make_room(LeaseCall *call, Buffer bucket);
extern void lease_rows_end_waiter(LeaseCall *turn, LeaseCall *call);
extern void lease_rows_end(LeaseCall *call);
extern void lease_rows_report_expired(LeaseCall *call);
extern lease_bytes lease_rows_copy_bytes(lease_bytes bytes);
extern lease_bytes lease_rows_application(void);
extern lease_bytes lease_rows_client_address(void);

#endif							/* DLOCK_LEASE_ROWS_H */
