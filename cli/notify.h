/*
 * notify.h
 *	  Messages to the service manager, as sd_notify(3) sends them.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_NOTIFY_H
#define DLOCK_NOTIFY_H

/*
 * Note where the service manager listens (NOTIFY_SOCKET in the environment),
 * and remove that variable: what we start is not the service.
 */
extern void notify_prepare(void);

/* Tell the service manager something, if there is one that listens. */
extern void notify(const char *format,...) __attribute__((format(printf, 1, 2)));

#endif							/* DLOCK_NOTIFY_H */
