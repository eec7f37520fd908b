/*
 * lease_call_end.h
 *	  How a call ends: answered, put off, put back, failed, or given up.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_CALL_END_H
#define DLOCK_LEASE_CALL_END_H

#include "lease_status.h"
#include "lease_waiters.h"

/* The SQLSTATE of a call that was given up. */
#define LEASE_GIVEN_UP	"70100"

/* How a batch, or a look at the tables, has failed. */
typedef struct lease_failure
{
	lease_status status;
	bool		in_commit;		/* what the calls did may have been committed */
	bool		is_alone;		/* there was no other call that could be in the way */
	bool		is_shut;		/* a session has locked the table or the server, or rows
								 * that no guard does */
} lease_failure;

/* lease_call_end.c */
extern void lease_call_finish(lease_call *call);
extern void lease_call_answer_now(lease_call *call);
extern void lease_call_answer_committed(lease_call *call);
extern void lease_count_renewals(const lease_call *call);

extern void lease_call_fail_by_table(lease_call *call);
extern void lease_call_fail_by_memory(lease_call *call);
extern void lease_call_fail_waiters(lease_bytes name);
extern void lease_call_fail_late(void);
extern void lease_call_fail_all_by_memory(void);
extern void lease_call_after_failure(lease_call *call,
									 const lease_failure *failure);

extern void lease_call_stall(lease_call *call, int64_t pause_us);
extern void lease_call_defer(lease_call *call, int64_t until_us);
extern void lease_call_put_back(lease_call *call);

extern bool lease_call_withdraw(lease_call *call);
extern const char *lease_given_up(bool gone);
extern void lease_call_give_up(lease_call *call, const char *sqlstate,
							   const char *message);
extern void lease_call_return(lease_call *call);

extern size_t lease_calls_visit_served(lease_waiters_visitor *visit,
									   void *context);

#endif							/* DLOCK_LEASE_CALL_END_H */
