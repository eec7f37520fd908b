/*
 * lease_settings.c
 *	  What DBAs can set in dlock.settings, see install.sql.
 *
 * The batcher reads the settings (lease_server.c).  They are put aside, and count only
 * when all have been read.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease_settings.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dlock_call.h"
#include "udf_text.h"

static lease_settings in_use;
const lease_settings *const settings = &in_use;

static _Atomic int64_t max_ttl_us = 0;	/* one more setting, read without the mutex;
										 * 0: the settings were never read */

enum
{
	LOCK_DELAY, REAP_INTERVAL, LOCK_TIMEOUT, MAX_TTL, MAX_WAITERS, MAX_LEASES, LOG_EXPIRED,
	WRITE_ON_REPLICAS
};

/* As they were last read, or are being read: the batcher's. */
static struct
{
	const char *name;
	double		least;
	double		most;
	double		standard;		/* if the table has none, or a wrong one */
	double		value;
	bool		is_whole;		/* no fractions */
	bool		is_wrong;		/* the error log was told that this value is wrong: */
	char		wrong[40];
}			as_read[] = {
	{.name = "lock_delay",.least = 0,.most = 86400,.standard = 0},
	{.name = "reap_interval",.least = 0.1,.most = 3600,.standard = 1},
	{.name = "lock_timeout",.least = 0.1,.most = 3600,.standard = 5},
	{.name = "max_ttl",.least = 1,.most = LEASE_TTL_MAX_US / 1e6,.standard = LEASE_MAX_TTL_DEFAULT,.is_whole = true},
	{.name = "max_waiters",.least = 0,.most = 1000000,.standard = 1000,.is_whole = true},
	{.name = "max_leases",.least = 0,.most = 1e9,.standard = 1000000,.is_whole = true},
	{.name = "log_expired",.least = 0,.most = 1,.standard = 1,.is_whole = true},
	{.name = "write_on_replicas",.least = 0,.most = 1,.standard = 0,.is_whole = true},
};
#define SETTINGS		(sizeof(as_read) / sizeof(as_read[0]))

/* Read a setting's value: a number from least to most; false if it is none. */
static bool
read_value(size_t setting, const char *text, double *value)
{
	char	   *end;

	*value = strtod(text, &end);
	return end != text && *end == '\0' &&
		*value >= as_read[setting].least && *value <= as_read[setting].most &&
		(!as_read[setting].is_whole || *value == (double) (int64_t) *value);
}

/*
 * A setting was read, a table_setting_visitor.  A wrong value is written to the error log
 * once, and the default counts.  Unknown names may be those of another version.
 */
void
lease_settings_take(const char *name, const char *text)
{
	char		shown[DLOCK_SHOWN_SIZE];
	char		line[DLOCK_SHOWN_SIZE + 256];
	double		value;

	for (size_t i = 0; i < SETTINGS; i++)
	{
		if (strcmp(name, as_read[i].name) != 0)
			continue;
		if (read_value(i, text, &value))
		{
			as_read[i].value = value;
			as_read[i].is_wrong = false;
			continue;
		}
		if (as_read[i].is_wrong &&
			strncmp(as_read[i].wrong, text, sizeof(as_read[i].wrong) - 1) == 0)
			continue;
		as_read[i].is_wrong = true;
		snprintf(as_read[i].wrong, sizeof(as_read[i].wrong), "%s", text);
		snprintf(line, sizeof(line), "dlock: setting \"%s\" in dlock.settings must be a "
				 "%snumber from %.10g to %.10g, and is \"%s\"; using the default",
				 name, as_read[i].is_whole ? "whole " : "", as_read[i].least,
				 as_read[i].most, dlock_show(shown, dlock_bytes_of(text)));
		dlock_log(line);
	}
}

/* What was read counts from now on. */
static void
use(void)
{
	in_use = (lease_settings) {
		.lock_delay_us = (int64_t) (as_read[LOCK_DELAY].value * 1e6),
		.reap_interval_us = (int64_t) (as_read[REAP_INTERVAL].value * 1e6),
		.lock_timeout_us = (int64_t) (as_read[LOCK_TIMEOUT].value * 1e6),
		.max_waiters = (size_t) as_read[MAX_WAITERS].value,
		.max_leases = (size_t) as_read[MAX_LEASES].value,
		.log_expired = as_read[LOG_EXPIRED].value != 0,
		.write_on_replicas = as_read[WRITE_ON_REPLICAS].value != 0,
	};
}

/* The settings are about to be read: those that are missing, or wrong, have their defaults. */
void
lease_settings_forget(void)
{
	for (size_t i = 0; i < SETTINGS; i++)
		as_read[i].value = as_read[i].standard;
}

/* The settings have been read, and count from now on.  The mutex is held. */
void
lease_settings_use(void)
{
	use();
	max_ttl_us = (int64_t) (as_read[MAX_TTL].value * 1e6);
}

/* The batcher begins: until the settings have been read, they have their defaults. */
void
lease_settings_begin(void)
{
	lease_settings_forget();
	use();
}

/* Say whether the settings have been read since the library was loaded. */
bool
lease_settings_are_read(void)
{
	return max_ttl_us != 0;
}

/* The longest time that a call may ask for; 0: never read.  Without the mutex. */
int64_t
lease_settings_max_ttl_us(void)
{
	return max_ttl_us;
}
