/*
 * lease_session.h
 *	  Connections with session leases, and these leases.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_SESSION_H
#define DLOCK_LEASE_SESSION_H

#include "lease_call.h"

/* lease_session.c */
extern bool lease_session_is_alive(uint64_t connection_id);
extern bool lease_session_open(uint64_t connection_id, lease_calls *calls);
extern bool lease_session_add(const lease_call *call, lease_calls *calls);
extern void lease_session_remove(uint64_t connection_id, uint64_t token,
								 lease_bytes name);
extern void lease_session_end(uint64_t connection_id);
extern void lease_session_written(uint64_t connection_id, uint64_t token,
								  lease_bytes name, int64_t ttl_us);
extern void lease_session_unwritten(const lease_call *call);
extern int64_t lease_session_due_us(void);
extern void lease_session_give(int64_t now_us, size_t most,
							   lease_calls *calls);
extern bool lease_session_needs_plugin(void);
extern bool lease_session_begin_list(void);
extern void lease_session_list(uint64_t connection_id);
extern void lease_session_end_list(bool could);
extern bool lease_session_is_heard(void);

#endif							/* DLOCK_LEASE_SESSION_H */
