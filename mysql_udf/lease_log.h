/*
 * lease_log.h
 *	  Lines for the server's error log.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_LOG_H
#define DLOCK_LEASE_LOG_H

#include <stdint.h>

/* lease_log.c */
extern void lease_log(const char *format,...)
			__attribute__((format(printf, 1, 2)));
extern int64_t lease_log_due_us(void);
extern void lease_log_write(void);

#endif							/* DLOCK_LEASE_LOG_H */
