/*
 * notify.h
 *	  Messages to the service manager, as sd_notify(3) sends them.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_NOTIFY_H
#define DLOCK_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Note where the service manager listens (NOTIFY_SOCKET in the environment), and
 * whether it wants to hear of us again and again (WATCHDOG_USEC), and remove these
 * variables: what we start is not the service.
 */
extern void notify_prepare(void);

/* Tell the service manager something, if there is one that listens. */
extern void notify(const char *format,...) __attribute__((format(printf, 1, 2)));

/*
 * Call this when notify_due_us() has come; DLOCK_NEVER is never.  It tells the service
 * manager that all is well, or keeps silent.
 */
extern void notify_alive(bool well);
extern int64_t notify_due_us(void);

#endif							/* DLOCK_NOTIFY_H */
