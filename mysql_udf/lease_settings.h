/*
 * lease_settings.h
 *	  The settings in dlock.settings, see install.sql.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_LEASE_SETTINGS_H
#define DLOCK_LEASE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The values in force; with the engine's mutex. */
typedef struct lease_settings
{
	int64_t		lock_delay_us;
	int64_t		reap_interval_us;
	int64_t		lock_timeout_us;
	size_t		max_waiters;
	size_t		max_leases;
	bool		log_expired;
	bool		write_on_replicas;
} lease_settings;

/* The longest time that a call may ask for, in seconds, by default. */
#define LEASE_MAX_TTL_DEFAULT	86400

/* lease_settings.c */
extern const lease_settings *const settings;
extern void lease_settings_begin(void);
extern void lease_settings_forget(void);
extern void lease_settings_take(const char *name, const char *text);
extern void lease_settings_use(void);
extern bool lease_settings_are_read(void);
extern int64_t lease_settings_max_ttl_us(void);

#endif							/* DLOCK_LEASE_SETTINGS_H */
