/*
 * doctor_postgres.c
 *	  The checks on a PostgreSQL server.
 *
 * A check that a plain role may not make is made only if the role may, else a
 * note says that it was not.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "doctor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "session.h"

/* Versions that the tests run on. */
static const int tested_versions[] = {15, 17, 18};

/* Findings that later checks need. */
struct postgres
{
	struct examination *e;
	bool		standby;
	bool		sees_all;		/* other roles' processes and owners */
	bool		is_loaded;		/* this session has loaded the library */
	bool		is_preloaded;
	bool		is_plain;		/* plain/dlock.sql is there, and no extension */
	bool		is_created;		/* in this database */
	bool		may_read;		/* dlock.locks */
};

static bool
is(const char *value, const char *wanted)
{
	return value && strcmp(value, wanted) == 0;
}

/* The setting of that name, in the base unit, or "" if there is none. */
static const char *
setting_of(struct postgres *p, const char *name)
{
	const dlock_session *session = p->e->session;

	for (size_t row = 0; row < dlock_session_rows(session); row++)
		if (is(value_of(session, row, 0), name))
			return value_of(session, row, 1);
	return "";
}

static void
check_server(struct postgres *p)
{
	struct examination *e = p->e;
	int			version;
	bool		tested = false;
	double		server_time;
	struct timespec now;
	double		skew;

	if (!look(e, "SELECT current_setting('server_version'), "
			  "current_setting('server_version_num')::int / 10000, current_database(), "
			  "current_user, pg_is_in_recovery()::int, "
			  "pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')::int, "
			  "extract(epoch FROM clock_timestamp())::float8"))
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	version = (int) number_of(e->session, 0, 1);
	p->standby = number_of(e->session, 0, 4) != 0;
	p->sees_all = number_of(e->session, 0, 5) != 0;
	server_time = seconds_of(e->session, 0, 6);
	for (size_t i = 0; i < sizeof(tested_versions) / sizeof(tested_versions[0]); i++)
		tested = tested || tested_versions[i] == version;
	report(e, version < 15 ? FINDING_ERROR : tested ? FINDING_OK : FINDING_NOTE, "server",
		   version < 15 ? "dlock needs PostgreSQL 15 or later"
		   : tested ? NULL : "dlock is tested with 15, 17 and 18",
		   "PostgreSQL %s, database \"%s\", role \"%s\"", value_of(e->session, 0, 0),
		   value_of(e->session, 0, 2), value_of(e->session, 0, 3));
	if (p->standby)
		report(e, FINDING_NOTE, "standby",
			   "it grants nothing before its promotion; have applications go to the primary",
			   "yes");
	skew = server_time - ((double) now.tv_sec + (double) now.tv_nsec / 1e9);
	if (fabs(skew) > 2)
		report(e, FINDING_NOTE, "system clock",
			   "leases do not go by it, but tokens begin from it: set both clocks by NTP",
			   "%.1f s %s this machine's", fabs(skew), skew < 0 ? "behind" : "ahead of");
}

/* Load the library, so that its settings are known, and see whether the server has done that. */
static void
check_library(struct postgres *p)
{
	struct examination *e = p->e;

	/*
	 * Needs no privilege: it opens the table, and with it the access method.  Not
	 * if it would wait for a lock, and hold up others: check_leases() tells of that.
	 */
	if (look(e, "SELECT pg_relation_size(c.oid) FROM pg_class c "
			 "JOIN pg_namespace n ON n.oid = c.relnamespace "
			 "WHERE n.nspname = 'dlock_private' AND c.relname = 'lease_table' "
			 "AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.relation = c.oid "
			 "AND l.database = (SELECT oid FROM pg_database "
			 "WHERE datname = current_database()) AND l.mode = 'AccessExclusiveLock')"))
		p->is_loaded = dlock_session_rows(e->session) > 0;
	else if (!e->lost)
		report(e, FINDING_ERROR, "library", "see that it is installed, and look at pg_locks",
			   "the lock table cannot be opened: %s", dlock_session_error(e->session)->message);
	if (!look(e, "SELECT (setting ~ '(^|[/, ])dlock($|[, ])')::int, pending_restart::int "
			  "FROM pg_settings WHERE name = 'shared_preload_libraries'") ||
		dlock_session_rows(e->session) == 0)
		return;
	p->is_preloaded = number_of(e->session, 0, 0) > 0;
	p->is_loaded |= p->is_preloaded;
	if (p->is_preloaded)
		report(e, FINDING_OK, "preload", NULL, "at the server's start");
	else
		report(e, FINDING_NOTE, "preload", number_of(e->session, 0, 1) > 0 ?
			   "restart the server when it suits" :
			   "shared_preload_libraries = 'dlock' in postgresql.conf, for the next restart",
			   "no: after a start, what has expired stays until the first call");
}

/* Say whether plain/dlock.sql is in this database, and tell what that means. */
static bool
check_plain(struct postgres *p)
{
	struct examination *e = p->e;

	if (!look(e, dlock_pg_schema_query) || !value_of(e->session, 0, 0) ||
		number_of(e->session, 0, 1) == 0)
		return false;
	report(e, FINDING_NOTE, "extension",
		   "where the server can load it: plain/uninstall.sql, then CREATE EXTENSION dlock",
		   "none, but plain/dlock.sql, in schema \"%s\": waiters ask again and again, in no order, nobody looks for "
		   "deadlocks, deadlines are by the wall clock, and each renewal leaves a dead row; see doc/plain.md",
		   value_of(e->session, 0, 0));
	return true;
}

/* The library, the extension, and the lock table. */
static void
check_installation(struct postgres *p)
{
	struct examination *e = p->e;
	char	   *created;
	bool		newer;

	if (!look(e, "SELECT a.default_version, e.extversion, n.nspname, "
			  "(to_regproc('dlock_acquire') IS NOT NULL)::int, "
			  "(a.default_version IS DISTINCT FROM e.extversion)::int "
			  "FROM (SELECT 1) AS one "
			  "LEFT JOIN pg_available_extensions a ON a.name = 'dlock' "
			  "LEFT JOIN pg_extension e ON e.extname = 'dlock' "
			  "LEFT JOIN pg_namespace n ON n.oid = e.extnamespace"))
		return;
	if (!value_of(e->session, 0, 1))
	{
		char	   *available = value_of(e->session, 0, 0) ? strdup(value_of(e->session, 0, 0)) : NULL;

		p->is_plain = check_plain(p);
		if (!p->is_plain && available != NULL)
			report(e, FINDING_ERROR, "extension",
				   "as a superuser, in this database: CREATE EXTENSION dlock",
				   "%s is there, but not created in this database", available);
		else if (!p->is_plain)
			report(e, FINDING_ERROR, "extension",
				   "on the server's machine: make install, with its pg_config",
				   "not installed");
		free(available);
		return;
	}
	p->is_created = true;
	created = strdup(value_of(e->session, 0, 1));
	newer = value_of(e->session, 0, 0) && number_of(e->session, 0, 4) != 0;
	if (!value_of(e->session, 0, 0))
		report(e, FINDING_WARNING, "extension", "install it again: make install",
			   "%s, whose files are gone", created);
	else if (newer)
		report(e, FINDING_WARNING, "extension",
			   "restart the server, then in each database: ALTER EXTENSION dlock UPDATE",
			   "%s, and %s is installed", created, value_of(e->session, 0, 0));
	else
		report(e, FINDING_OK, "extension", NULL, "%s", created);
	if (number_of(e->session, 0, 3) == 0)
		report(e, FINDING_NOTE, "search_path",
			   "applications have to name it, or add it to their search_path",
			   "without schema \"%s\", where the functions are", value_of(e->session, 0, 2));
	if (strcmp(created, DLOCK_VERSION) != 0)
		report(e, FINDING_NOTE, "this program", "use the program of the server's version",
			   "%s", DLOCK_VERSION);
	free(created);
	check_library(p);

	if (!look(e, "SELECT a.amname, n.nspname, c.relname FROM pg_depend d "
			  "JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'dlock' "
			  "JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'r' "
			  "JOIN pg_namespace n ON n.oid = c.relnamespace "
			  "LEFT JOIN pg_am a ON a.oid = c.relam "
			  "WHERE d.classid = 'pg_class'::regclass "
			  "AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'"))
		return;
	if (is(value_of(e->session, 0, 0), "dlock") && is(value_of(e->session, 0, 1), "dlock_private") &&
		is(value_of(e->session, 0, 2), "lease_table"))
		report(e, FINDING_OK, "lock table", NULL, "as the extension created it");
	else
		report(e, FINDING_ERROR, "lock table",
			   "restore its name and schema, or drop and create the extension",
			   "not as the extension created it");
}

static void
check_privileges(struct postgres *p)
{
	struct examination *e = p->e;

	if (!look(e, "WITH functions AS ("
			  "SELECT p.oid::regprocedure::text AS name, "
			  "p.proname IN ('dlock_force_release', 'dlock_stats_reset') AS operators "
			  "FROM pg_depend d "
			  "JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'dlock' "
			  "JOIN pg_proc p ON p.oid = d.objid AND p.pronamespace = e.extnamespace "
			  "WHERE d.classid = 'pg_proc'::regclass "
			  "AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' "
			  "AND NOT has_function_privilege(p.oid, 'EXECUTE')) "
			  "SELECT (SELECT string_agg(name, ', ' ORDER BY name) FROM functions "
			  "WHERE NOT operators), "
			  "(SELECT string_agg(name, ', ' ORDER BY name) FROM functions WHERE operators), "
			  "(SELECT string_agg(c.relname, ', ' ORDER BY c.relname) FROM pg_class c "
			  "JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'dlock' "
			  "WHERE c.relkind = 'v' AND NOT has_table_privilege(c.oid, 'SELECT')), "
			  "(SELECT has_schema_privilege(n.oid, 'USAGE')::int FROM pg_namespace n "
			  "WHERE n.nspname = 'dlock'), "
			  "(SELECT count(*) FROM pg_class c "
			  "JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'dlock' "
			  "WHERE c.relname = 'locks' AND has_table_privilege(c.oid, 'SELECT') "
			  "AND has_schema_privilege(n.oid, 'USAGE')), "
			  "(SELECT quote_ident(n.nspname) FROM pg_extension e "
			  "JOIN pg_namespace n ON n.oid = e.extnamespace "
			  "WHERE e.extname = 'dlock' AND NOT has_schema_privilege(n.oid, 'USAGE'))"))
		return;
	p->may_read = number_of(e->session, 0, 4) > 0;
	if (value_of(e->session, 0, 5))
		report(e, FINDING_WARNING, "privileges",
			   "GRANT USAGE ON SCHEMA ... if it is to call them",
			   "this role may not use schema %s, which has the functions", value_of(e->session, 0, 5));
	else if (value_of(e->session, 0, 0))
		report(e, FINDING_WARNING, "privileges",
			   "GRANT EXECUTE ON FUNCTION ... if it is to call them",
			   "this role may not call %s", value_of(e->session, 0, 0));
	else
		report(e, FINDING_OK, "privileges", NULL,
			   "this role may acquire, renew, release and look");
	if (value_of(e->session, 0, 1))
		report(e, FINDING_NOTE, "operators' functions", "GRANT EXECUTE to operators only",
			   "this role may not call %s", value_of(e->session, 0, 1));
	if (number_of(e->session, 0, 3) == 0)
		report(e, FINDING_NOTE, "views", "GRANT USAGE ON SCHEMA dlock if this role is to read them",
			   "this role may not use schema \"dlock\"");
	else if (value_of(e->session, 0, 2))
		report(e, FINDING_NOTE, "views", "GRANT SELECT if this role is to read them",
			   "this role may not read %s", value_of(e->session, 0, 2));
	else
		report(e, FINDING_OK, "views", NULL, "this role may read them");
	if (!p->sees_all)
		report(e, FINDING_NOTE, "other roles' owners",
			   "GRANT pg_read_all_stats to a role that watches", "are hidden from this role");
}

/* Look again for so long while a worker that has a place is on its way. */
#define STARTING_SECONDS	5

static void
check_workers(struct postgres *p)
{
	struct examination *e = p->e;
	const struct timespec pause = {.tv_nsec = 100L * 1000 * 1000};
	int64_t		launchers = 0;
	int64_t		workers = 0;
	int64_t		taken = 0;
	int64_t		places = 0;

	if (p->standby || !p->is_loaded)
		return;
	if (!p->sees_all)
	{
		report(e, FINDING_NOTE, "workers",
			   "ask an administrator to run this, or GRANT pg_read_all_stats",
			   "not seen by this role");
		return;
	}
	for (int tries = 0; tries < 10 * STARTING_SECONDS; tries++)
	{
		if (tries > 0)
			nanosleep(&pause, NULL);
		if (!look(e, "SELECT count(*) FILTER (WHERE backend_type = 'dlock launcher'), "
				  "count(*) FILTER (WHERE backend_type = 'dlock worker' "
				  "AND datname = current_database()), "
				  "count(*) FILTER (WHERE backend_type NOT IN ('client backend', "
				  "'autovacuum launcher', 'autovacuum worker', 'checkpointer', "
				  "'background writer', 'walwriter', 'walsender', 'walreceiver', 'archiver', "
				  "'startup', 'logger', 'standalone backend', 'slotsync worker', "
				  "'walsummarizer', 'io worker')), "
				  "current_setting('max_worker_processes') FROM pg_stat_activity"))
			return;
		launchers = number_of(e->session, 0, 0);
		workers = number_of(e->session, 0, 1);
		taken = number_of(e->session, 0, 2);
		places = number_of(e->session, 0, 3);
		if (launchers == 0 || workers > 0 || taken >= places)
			break;
	}
	if (launchers == 0 && !p->is_preloaded && taken < places)
		report(e, FINDING_NOTE, "launcher", "take a lease", "starts with the first call");
	else
	{
		report(e, launchers > 0 ? FINDING_OK : FINDING_WARNING, "launcher",
			   launchers > 0 ? NULL : "raise max_worker_processes, and restart the server", "%s",
			   launchers > 0 ? "runs" : "does not run");
		report(e, workers > 0 ? FINDING_OK : FINDING_WARNING, "worker of this database",
			   workers > 0 ? NULL
			   : "raise max_worker_processes; until it runs, what has expired stays until it is acquired",
			   "%s", workers > 0 ? "runs" : "does not run");
	}
	report(e, taken < places ? FINDING_OK : FINDING_WARNING, "max_worker_processes",
		   taken < places ? NULL : "raise it: each database with dlock takes one, parallel queries take some",
		   "%" PRId64 " of %" PRId64 " taken", taken, places);
}

/* Settings of the server that lose granted leases. */
static void
check_durability(struct postgres *p)
{
	struct examination *e = p->e;
	bool		has_standbys;
	char		commit[32];

	if (!look(e, "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', "
			  "'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', "
			  "'zero_damaged_pages', 'ignore_checksum_failure', 'data_checksums')"))
		return;
	has_standbys = *setting_of(p, "synchronous_standby_names") != '\0';
	snprintf(commit, sizeof(commit), "%s", setting_of(p, "synchronous_commit"));
	if (is(setting_of(p, "fsync"), "off"))
		report(e, FINDING_ERROR, "fsync", "fsync = on", "off: a crash of the machine may lose leases and repeat tokens");
	else
		report(e, FINDING_OK, "fsync", NULL, "on");
	if (is(setting_of(p, "full_page_writes"), "off"))
		report(e, FINDING_WARNING, "full_page_writes",
			   "full_page_writes = on, unless the disk writes 8 kB all or none",
			   "off: a crash of the machine may damage pages");
	else
		report(e, FINDING_OK, "full_page_writes", NULL, "on");
	if (is(commit, "off"))
		report(e, FINDING_WARNING, "synchronous_commit",
			   "for this role or in the application: SET synchronous_commit = on",
			   "off: a crash may lose the last moments, and leases that were granted in them");
	else if (is(commit, "local") && has_standbys)
		report(e, FINDING_WARNING, "synchronous_commit",
			   "for this role or in the application: SET synchronous_commit = on",
			   "local: a failover may lose leases, in spite of synchronous_standby_names");
	else
		report(e, FINDING_OK, "synchronous_commit", NULL, "%s", commit);
	if (is(setting_of(p, "zero_damaged_pages"), "on"))
		report(e, FINDING_ERROR, "zero_damaged_pages", "turn it off",
			   "on: a damaged page becomes an empty one, and its leases are granted twice");
	if (is(setting_of(p, "ignore_checksum_failure"), "on"))
		report(e, FINDING_ERROR, "ignore_checksum_failure", "turn it off",
			   "on: a damaged page may be taken for a good one");
	if (is(setting_of(p, "data_checksums"), "off"))
		report(e, FINDING_NOTE, "data_checksums",
			   "pg_checksums --enable, while the server is stopped",
			   "off: not every damage of a page is noticed");
	if (p->standby)
		return;
	if (!has_standbys)
	{
		report(e, FINDING_NOTE, "synchronous_standby_names",
			   "with standbys, name them: doc/high-availability.md",
			   "empty: the loss of this machine loses the latest leases");
		return;
	}
	if (!p->sees_all)
	{
		report(e, FINDING_NOTE, "synchronous standbys",
			   "ask an administrator to run this, or GRANT pg_read_all_stats",
			   "not seen by this role");
		return;
	}
	if (look(e, "SELECT count(*) FROM pg_stat_replication "
			 "WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')"))
	{
		int64_t		standbys = number_of(e->session, 0, 0);

		if (standbys > 0 || is(commit, "local") || is(commit, "off"))
			report(e, FINDING_OK, "synchronous standbys", NULL, "%" PRId64, standbys);
		else
			report(e, FINDING_ERROR, "synchronous standbys",
				   "connect one, or empty synchronous_standby_names",
				   "none is connected: acquires and renewals wait for one");
	}
}

/* The clock that leases are measured by. */
static void
check_clock(struct postgres *p)
{
	struct examination *e = p->e;
	static const char *const quick[] = {
		"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page",
		"hyperv_clocksource", "timebase", "tod"
	};
	char		source[64];
	bool		is_quick = false;

	if (look(e, "SELECT setting FROM pg_settings WHERE name = 'dlock.boot_id'") &&
		value_of(e->session, 0, 0) && *value_of(e->session, 0, 0))
		report(e, FINDING_NOTE, "dlock.boot_id",
			   "set it anew at each boot of the machine, and only then", "\"%s\"",
			   value_of(e->session, 0, 0));
	if (!look(e, "SELECT has_function_privilege("
			  "'pg_read_file(text, bigint, bigint, boolean)', 'EXECUTE')::int") ||
		number_of(e->session, 0, 0) == 0)
	{
		if (!e->lost)
			report(e, FINDING_NOTE, "clock source", "ask an administrator to run this",
				   "not seen by this role");
		return;
	}
	if (!look(e, "SELECT btrim(pg_read_file('/sys/devices/system/clocksource/clocksource0/"
			  "current_clocksource', 0, 60, true), E' \\n')") || !value_of(e->session, 0, 0))
		return;
	snprintf(source, sizeof(source), "%s", value_of(e->session, 0, 0));
	for (size_t i = 0; i < sizeof(quick) / sizeof(quick[0]); i++)
		is_quick = is_quick || is(source, quick[i]);
	report(e, is_quick ? FINDING_OK : FINDING_NOTE, "clock source",
		   is_quick ? NULL : "each look at the clock is a call of the system: see what the machine has",
		   "%s", source);
}

/* dlock's own settings, and how much room is left. */
static void
check_settings(struct postgres *p)
{
	struct examination *e = p->e;
	int64_t		waiters;
	int64_t		places;
	int64_t		connections;
	int64_t		max_connections;

	if (!p->is_loaded)
		return;
	if (look(e, "SELECT string_agg(name || ' = ' || current_setting(name), ', ' ORDER BY name) "
			 "FILTER (WHERE setting <> boot_val) "
			 "FROM pg_settings WHERE name LIKE 'dlock.%' AND name <> 'dlock.boot_id'"))
	{
		report(e, FINDING_OK, "settings", NULL, "%s",
			   value_of(e->session, 0, 0) ? value_of(e->session, 0, 0) : "all at their defaults");
	}
	if (look(e, "SELECT name, setting FROM pg_settings WHERE name LIKE 'dlock.%'"))
	{
		if (strtod(setting_of(p, "dlock.lock_delay"), NULL) > 0)
			report(e, FINDING_NOTE, "dlock.lock_delay", "no action: the setting does this",
				   "a name is free %s ms after its lease has expired",
				   setting_of(p, "dlock.lock_delay"));
		if (is(setting_of(p, "dlock.log_expired"), "off"))
			report(e, FINDING_NOTE, "dlock.log_expired", "on, unless leases are meant to expire",
				   "off: the log does not say which holders died");
		if (strtod(setting_of(p, "dlock.max_ttl"), NULL) >= 30000)
			report(e, FINDING_NOTE, "dlock.max_ttl", "the longest lease and wait that you use, and a little more",
				   "%s s: a driver's 30000, for 30 s in milliseconds, becomes a lease of eight hours",
				   setting_of(p, "dlock.max_ttl"));
		if (is(setting_of(p, "dlock.generic_wal"), "on"))
			report(e, FINDING_NOTE, "dlock.generic_wal", "off is quicker", "on");
	}
	if (look(e, "SELECT name, setting FROM pg_settings WHERE name IN ('statement_timeout', "
			 "'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout', "
			 "'idle_session_timeout')"))
	{
		/* the first is of PostgreSQL 17 and later; a statement is a transaction, too */
		static const char *const limits[][3] = {
			{"transaction_timeout", "let it be longer than any wait, for sessions that wait",
			"a longer wait for a lease ends with its connection, in error 25P04"},
			{"idle_session_timeout", "0, or longer than any pause, for sessions that have session leases",
			"a connection that is idle for longer ends, and with it its session leases"},
			{"statement_timeout", "let it be longer than any wait, for sessions that wait",
			"a longer wait for a lease ends in error 57014"},
			{"lock_timeout", "let it be longer than any wait, for sessions that wait",
			"a longer wait for a lease ends in error 55P03"},
		};

		for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		{
			const char *value = setting_of(p, limits[i][0]);

			if (strtod(value, NULL) > 0)
				report(e, FINDING_NOTE, limits[i][0], limits[i][1], "%s ms: %s", value, limits[i][2]);
		}
		if (is(setting_of(p, "idle_in_transaction_session_timeout"), "0"))
			report(e, FINDING_NOTE, "idle_in_transaction_session_timeout",
				   "set it where guards are used",
				   "0: a transaction left open with a guard keeps others out for ever");
	}
	if (p->may_read &&
		look(e, "SELECT (SELECT count(DISTINCT pid) FROM dlock.waiters), "
			 "CASE current_setting('dlock.max_waiters') WHEN '-1' THEN 0 "
			 "ELSE current_setting('dlock.max_waiters')::int END"))
	{
		waiters = number_of(e->session, 0, 0);
		places = number_of(e->session, 0, 1);
		if (places == 0)
			report(e, FINDING_OK, "dlock.max_waiters", NULL,
				   "%" PRId64 " wait; all connections may", waiters);
		else
			/* a role can have half of them */
			report(e, waiters * 10 >= places * 4 ? FINDING_WARNING : FINDING_OK,
				   "dlock.max_waiters",
				   waiters * 10 >= places * 4 ? "raise it, and restart the server" : NULL,
				   "%" PRId64 " of this database wait; %" PRId64 " of all can", waiters, places);
	}
	if (look(e, "SELECT sum(numbackends), current_setting('max_connections')::int - "
			 "current_setting('superuser_reserved_connections')::int FROM pg_stat_database"))
	{
		connections = number_of(e->session, 0, 0);
		max_connections = number_of(e->session, 0, 1);
		report(e, connections * 10 >= max_connections * 9 ? FINDING_WARNING : FINDING_OK,
			   "max_connections", connections * 10 >= max_connections * 9
			   ? "raise it, or use a pooler: each waiter occupies a connection" : NULL,
			   "%" PRId64 " of %" PRId64 " taken", connections, max_connections);
	}
}

/*
 * Calls that have waited for long, and those of them that keep dead rows from being
 * removed.  Of other roles' sessions only some may see that.
 */
static void
check_waiters(struct postgres *p)
{
	struct examination *e = p->e;

	if (!look(e, "SELECT count(*), string_agg(pid || ' (' || application_name || ')', ', ' "
			  "ORDER BY since) FILTER (WHERE place <= 5) FROM (SELECT a.pid, a.application_name, "
			  "w.since, row_number() OVER (ORDER BY w.since) AS place "
			  "FROM (SELECT pid, min(waiting_since) AS since FROM dlock.waiters GROUP BY pid) w "
			  "JOIN pg_stat_activity a USING (pid) "
			  "WHERE (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) "
			  "AND w.since < clock_timestamp() - interval '10 s') s"))
		return;
	if (number_of(e->session, 0, 0) > 0)
		report(e, FINDING_WARNING, "VACUUM beside waiters",
			   "have the call be all of its statement, outside a transaction block",
			   "removes nothing that died since these %" PRId64 " began to wait: process %s",
			   number_of(e->session, 0, 0), value_of(e->session, 0, 1));
	else
		report(e, FINDING_OK, "VACUUM beside waiters", NULL,
			   p->sees_all ? "no wait holds it up" : "no wait of this role's holds it up");
	if (look(e, "SELECT pid, name, extract(epoch FROM clock_timestamp() - waiting_since)::bigint, "
			 "count(*) OVER () FROM dlock.waiters "
			 "WHERE waiting_since < clock_timestamp() - interval '1 hour' ORDER BY waiting_since LIMIT 1") &&
		dlock_session_rows(e->session) > 0)
		report(e, FINDING_NOTE, "waits for more than an hour",
			   "a leader is waited for so; else see dlock ls, and whether its holder hangs",
			   "%" PRId64 ", the longest since %" PRId64 " s, for \"%s\", process %s",
			   number_of(e->session, 0, 3), number_of(e->session, 0, 2), value_of(e->session, 0, 1),
			   value_of(e->session, 0, 0));
}

/* The state of the lock table, and locks in its way. */
static void
check_leases(struct postgres *p)
{
	struct examination *e = p->e;
	struct lease_figures figures;
	int64_t		guards;
	int64_t		max_guards;
	int64_t		pages;
	int64_t		tracked;
	int64_t		buffers;

	if (look(e, "SELECT l.mode, count(*) FROM pg_locks l "
			 "JOIN pg_class c ON c.oid = l.relation AND c.relname = 'lease_table' "
			 "JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'dlock_private' "
			 "WHERE l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database "
			 "WHERE datname = current_database()) AND l.mode IN ('ShareLock', "
			 "'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') "
			 "GROUP BY l.mode ORDER BY l.mode LIMIT 1") && value_of(e->session, 0, 0))
	{
		report(e, FINDING_WARNING, "lock on the lock table",
			   "end the process that holds it or waits for it; pg_locks names it",
			   "%s: calls wait for its end", value_of(e->session, 0, 0));
		/* our questions would wait too, and hold up others */
		return;
	}
	if (!p->is_loaded)
		return;
	if (!look(e, "SELECT (pg_relation_size(c.oid) / current_setting('block_size')::int), "
			  "current_setting('dlock.tracked_pages')::int, s.setting::int "
			  "FROM pg_settings s, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
			  "WHERE s.name = 'shared_buffers' AND n.nspname = 'dlock_private' AND c.relname = 'lease_table'"))
		return;
	pages = number_of(e->session, 0, 0);
	tracked = number_of(e->session, 0, 1);
	buffers = number_of(e->session, 0, 2);
	if (pages > tracked)
		report(e, FINDING_WARNING, "dlock.tracked_pages", "raise it, and reload the configuration",
			   "%" PRId64 ", and the lock table has %" PRId64 " pages", tracked, pages);
	else if (pages > buffers)
		report(e, FINDING_WARNING, "shared_buffers", "raise it above the lock table's size",
			   "%" PRId64 " pages, and the lock table has %" PRId64, buffers, pages);
	else
		report(e, FINDING_OK, "size of the lock table", NULL, "%" PRId64 " pages", pages);

	/* the reaper should have come by within this time */
	if (!p->may_read ||
		!look_if_allowed(e, "leases",
						 "SELECT count(*), count(*) FILTER (WHERE expires_at < clock_timestamp() "
						 "- interval '10 s' - current_setting('dlock.lock_delay')::interval "
						 "- 2 * least(current_setting('dlock.reap_interval')::interval, interval '10 s')), "
						 "coalesce(max(token), 0), count(*) FILTER (WHERE guarded), "
						 "current_setting('dlock.max_guards'), "
						 "extract(epoch FROM clock_timestamp() - timestamptz '2020-01-01 00:00:00Z')"
						 "::bigint FROM dlock.locks"))
		return;
	figures.leases = number_of(e->session, 0, 0);
	figures.overdue = p->standby ? 0 : number_of(e->session, 0, 1);
	figures.largest_token = number_of(e->session, 0, 2);
	guards = number_of(e->session, 0, 3);
	max_guards = number_of(e->session, 0, 4);
	figures.seconds_since_2020 = number_of(e->session, 0, 5);
	report_leases(e, &figures,
				  "the worker does not run, or somebody locks the lock table: look at pg_locks");
	/* one role can have half of them */
	if (guards * 10 >= max_guards * 4)
		report(e, FINDING_WARNING, "dlock.max_guards", "raise it, and restart the server",
			   "%" PRId64 " leases are guarded, and there is room for %" PRId64
			   " besides the first of each transaction", guards, max_guards);
	report_counters(e);
}

void
examine_postgres(struct examination *e)
{
	struct postgres p = {.e = e};

	check_server(&p);
	check_installation(&p);
	check_workers(&p);
	check_durability(&p);
	check_clock(&p);
	if (p.is_created)
		check_privileges(&p);
	check_settings(&p);
	if (p.is_loaded && p.may_read)
		check_waiters(&p);
	if (p.is_created)
		check_leases(&p);
	if (look(e, "SELECT string_agg(pubname, ', ') FROM pg_publication WHERE puballtables") &&
		value_of(e->session, 0, 0))
		report(e, FINDING_NOTE, "publications FOR ALL TABLES",
			   "a subscriber needs dlock too, or a publication without dlock_private.lease_table",
			   "%s", value_of(e->session, 0, 0));
	if (p.standby && e->try_a_lease)
		report(e, FINDING_NOTE, "a lease", "a standby grants none", "not tried");
	else if (p.is_loaded || p.is_plain)
		try_a_lease(e);
}
