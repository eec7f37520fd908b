/*
 * lease_server.h
 *	  PostgreSQL around the lock table: processes, the relation, roles, events.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_SERVER_H
#define DLOCK_SERVER_H

#include "compat.h"
#include "lease.h"
#include "storage/lease_storage.h"

/* ----------------------------------------------------------------
 * The process that starts the workers.
 * ----------------------------------------------------------------
 */

#define LEASE_WORKER_TYPE	"dlock worker"

/* lease_launcher.c */
extern void lease_launcher_register(void);
extern void lease_launcher_ensure(void);
extern void lease_launcher_want_worker(void);
extern void lease_launcher_use_own_settings(void);
extern PGDLLEXPORT void dlock_launcher_main(Datum arg);

/* ----------------------------------------------------------------
 * Find and open dlock_private.lease_table.
 * ----------------------------------------------------------------
 */

/* The columns of dlock_private.lease_table. */
enum
{
	LEASE_COLUMN_NAME,
	LEASE_COLUMN_OWNER,
	LEASE_COLUMN_MODE,
	LEASE_COLUMN_VERSION,
	LEASE_COLUMN_TOKEN,
	LEASE_COLUMN_ACQUIRED_AT,
	LEASE_COLUMN_EXPIRES_AT,
	LEASE_COLUMN_REMAINING,
	LEASE_COLUMN_GUARDED,
	LEASE_COLUMN_LEAVING,
	LEASE_COLUMN_ROLE,
	LEASE_COLUMN_PID,
	LEASE_COLUMN_APPLICATION_NAME,
	LEASE_COLUMN_CLIENT_ADDR,
	LEASE_COLUMN_REQUEST,		/* the last, which dlock.locks leaves out */
	LEASE_COLUMNS
};

/* The access method; lease_am.c, which is above, has it. */
extern const TableAmRoutine lease_am_methods;

/* lease_relation.c */
extern bool lease_relation_has_columns(Relation rel);
extern bool lease_relation_is_intact(Relation rel);
extern void lease_relation_check_intact(Relation rel);
extern bool lease_relation_is_as_created(Relation rel);
extern Oid	lease_relation_find(void);
extern Relation lease_relation_open(LOCKMODE mode);
extern Relation lease_relation_open_at_exit(void);

/* ----------------------------------------------------------------
 * Which roles may see whose leases, what the others see, and who acts for whom.
 * ----------------------------------------------------------------
 */

/* Shown to roles that may not see an owner or client. */
#define LEASE_MASK	"<insufficient privilege>"

/* lease_privilege.c */
extern bool lease_privilege_may_see(Oid role);
extern bool lease_privilege_may_act(Oid requester, Oid role);
extern char *lease_privilege_role_name(Oid role);
extern const char *lease_privilege_show(const char *owner, Oid role);
extern const char *lease_privilege_show_name(const char *name, Oid role);
extern lease_bytes lease_client_application(void);
extern lease_bytes lease_client_address(void);

/* ----------------------------------------------------------------
 * Tell listeners that a lease has expired or was force-released.
 * ----------------------------------------------------------------
 */

extern bool lease_notify;		/* dlock.notify */

typedef enum LeaseEventKind
{
	LEASE_EVENT_EXPIRED,
	LEASE_EVENT_FORCED
} LeaseEventKind;

/* lease_event.c */
extern Size lease_event_size(void);
extern void lease_event_attach(char *start, bool make);
extern void lease_event_add(LeaseEventKind kind, lease_bytes name,
							uint64 token);
extern bool lease_event_is_due(void);
extern void lease_event_fail(void);
extern void lease_event_send(void);

#endif							/* DLOCK_SERVER_H */
