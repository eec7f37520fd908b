/*
 * doctor_mysql.c
 *	  The checks on a MySQL or MariaDB server.
 *
 * The settings of these servers are in their variables, which every account may
 * see; they are read once.  The two servers, and their versions, differ in what
 * variables they have, so a missing one is no finding.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "doctor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* The library gives up a commit that takes longer than this. */
#define COMMIT_GIVEN_UP_MS	30000

/* The servers' errors for missing privileges and tables. */
#define ER_TABLEACCESS_DENIED	1142
#define ER_SPECIFIC_ACCESS_DENIED	1227
#define ER_PROCACCESS_DENIED	1370
#define ER_BAD_FIELD	1054
#define ER_NO_SUCH_TABLE	1146
#define ER_BAD_DB	1049

/* The variables, or the status variables: names and values. */
struct variables
{
	size_t		count;
	char	  **names;
	char	  **values;
};

struct mysql
{
	struct examination *e;
	bool		mariadb;
	bool		is_there;		/* the library answers */
	bool		may_read;		/* dlock.locks */
	bool		read_only;
	bool		follows;		/* another server, as far as the account may see */
	bool		in_cluster;
	struct variables variables;
	struct variables status;
};

static char *
copy_of(const char *text)
{
	return strcpy(get_memory(strlen(text) + 1), text);
}

static bool
read_variables(struct mysql *m, const char *sql, struct variables *variables)
{
	const dlock_session *session = m->e->session;

	if (!look(m->e, sql))
		return false;
	variables->count = dlock_session_rows(session);
	variables->names = get_memory(variables->count * sizeof(char *));
	variables->values = get_memory(variables->count * sizeof(char *));
	for (size_t row = 0; row < variables->count; row++)
	{
		const char *value = value_of(session, row, 1);

		variables->names[row] = copy_of(value_of(session, row, 0));
		variables->values[row] = copy_of(value ? value : "");
	}
	return true;
}

static void
free_variables(struct variables *variables)
{
	for (size_t i = 0; i < variables->count; i++)
	{
		free(variables->names[i]);
		free(variables->values[i]);
	}
	free(variables->names);
	free(variables->values);
}

/* A variable of that name, or NULL. */
static const char *
value_in(const struct variables *variables, const char *name)
{
	for (size_t i = 0; i < variables->count; i++)
		if (strcasecmp(variables->names[i], name) == 0)
			return variables->values[i];
	return NULL;
}

static const char *
variable(const struct mysql *m, const char *name)
{
	return value_in(&m->variables, name);
}

/* Does the variable exist, and is this its value? */
static bool
is_set(const struct mysql *m, const char *name, const char *wanted)
{
	const char *value = variable(m, name);

	return value && strcasecmp(value, wanted) == 0;
}

static bool
is_on(const struct mysql *m, const char *name)
{
	return is_set(m, name, "ON") || is_set(m, name, "1");
}

static int64_t
number_in(const struct variables *variables, const char *name)
{
	const char *value = value_in(variables, name);

	return value ? strtoll(value, NULL, 10) : 0;
}

static unsigned
error_number(const struct mysql *m)
{
	return dlock_session_error(m->e->session)->number;
}

static void
check_server(struct mysql *m)
{
	struct examination *e = m->e;
	int			major = 0;
	int			minor = 0;
	bool		new_enough;
	bool		tested;
	char		version[64];
	const char *dot;
	struct timespec now;
	double		skew;

	if (!look(e, "SELECT VERSION(), CURRENT_USER(), @@hostname, "
			  "0.000001e0 * TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"))
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(version, sizeof(version), "%s", value_of(e->session, 0, 0));
	m->mariadb = strstr(version, "MariaDB") != NULL;
	major = (int) strtol(version, NULL, 10);
	dot = strchr(version, '.');
	minor = dot ? (int) strtol(dot + 1, NULL, 10) : 0;
	if (m->mariadb)
	{
		new_enough = major > 10 || (major == 10 && minor >= 11);
		tested = (major == 10 && minor == 11) || (major == 11 && minor == 8);
	}
	else
	{
		new_enough = major > 9 || (major == 9 && minor >= 7);
		tested = major == 9 && minor == 7;
	}
	report(e, !new_enough ? FINDING_ERROR : tested ? FINDING_OK : FINDING_NOTE, "server",
		   !new_enough ? "dlock needs MySQL 9.7 or MariaDB 10.11, or later"
		   : tested ? NULL : "dlock is tested with MySQL 9.7 and MariaDB 10.11 and 11.8",
		   "%s%s on %s, account %s", m->mariadb ? "" : "MySQL ", version,
		   value_of(e->session, 0, 2), value_of(e->session, 0, 1));
	skew = seconds_of(e->session, 0, 3) - ((double) now.tv_sec + (double) now.tv_nsec / 1e9);
	if (fabs(skew) > 2)
		report(e, FINDING_NOTE, "system clock",
			   "leases do not go by it, but tokens begin from it: set both clocks by NTP",
			   "%.1f s %s this machine's", fabs(skew), skew < 0 ? "behind" : "ahead of");
	if (variable(m, "version_compile_os") &&
		!strcasestr(variable(m, "version_compile_os"), "linux"))
		report(e, FINDING_ERROR, "operating system", "dlock needs Linux", "%s",
			   variable(m, "version_compile_os"));
}

/* The library, its plugins and its account. */
static void
check_installation(struct mysql *m)
{
	struct examination *e = m->e;
	const char *plugin = m->mariadb ? "unix_socket" : "auth_socket";

	if (!look(e, "SELECT CONVERT(dlock_version() USING utf8mb4)"))
	{
		if (!e->lost)
			report(e, FINDING_ERROR, "library",
				   "put dlock.so where plugin_dir says, and feed install.sql; "
				   "if that was done, restart the server",
				   "not there: %s; plugin_dir is %s", dlock_session_error(e->session)->message,
				   variable(m, "plugin_dir") ? variable(m, "plugin_dir") : "not known");
		return;
	}
	m->is_there = true;
	report(e, FINDING_OK, "library", NULL, "%s", value_of(e->session, 0, 0));
	if (strcmp(value_of(e->session, 0, 0), DLOCK_VERSION) != 0)
		report(e, FINDING_NOTE, "this program", "use the program of the server's version",
			   "%s", DLOCK_VERSION);

	/*
	 * for a look, the library has to log in to its own server and read its
	 * tables
	 */
	if (look(e, "SELECT dlock_is_free('dlock-doctor')"))
		report(e, FINDING_OK, "the library's connection", NULL, "works");
	else if (!e->lost)
	{
		m->is_there = false;
		report(e, FINDING_ERROR, "the library's connection",
			   "doc/mysql.md, \"Troubleshooting\", has the cause for each message", "%s",
			   dlock_session_error(e->session)->message);
	}
	if (look(e, "SELECT PLUGIN_NAME FROM information_schema.PLUGINS WHERE PLUGIN_STATUS = 'ACTIVE' "
			 "AND PLUGIN_NAME IN ('unix_socket', 'auth_socket', 'dlock')"))
	{
		bool		has_socket = false;
		bool		has_dlock = false;

		for (size_t row = 0; row < dlock_session_rows(e->session); row++)
		{
			const char *name = value_of(e->session, row, 0);

			has_socket = has_socket || strcasecmp(name, plugin) == 0;
			has_dlock = has_dlock || strcasecmp(name, "dlock") == 0;
		}
		if (!has_socket)
			report(e, FINDING_ERROR, "log-in by the socket",
				   m->mariadb ? "INSTALL SONAME 'auth_socket'"
				   : "INSTALL PLUGIN auth_socket SONAME 'auth_socket.so'",
				   "plugin %s is not active", plugin);
		if (m->mariadb && !has_dlock)
			report(e, FINDING_WARNING, "plugin dlock",
				   "feed install.sql, or on a replica INSTALL SONAME 'dlock'",
				   "not active: the end of a session is noticed up to a second late, or session leases are refused");
	}
	/* 1.0 has no such column; a newer library works with its views all the same */
	if (!look(e, "SELECT renewals_lost FROM dlock.stats") && !e->lost)
	{
		if (error_number(m) == ER_BAD_FIELD)
			report(e, FINDING_WARNING, "objects of database dlock",
				   "feed the install.sql of this version, when all servers have the library",
				   "those of an older version");
		else if (error_number(m) == ER_NO_SUCH_TABLE || error_number(m) == ER_BAD_DB)
			report(e, FINDING_ERROR, "objects of database dlock", "feed install.sql", "%s",
				   dlock_session_error(e->session)->message);
	}
	if (look(e, "SELECT COUNT(*) FROM information_schema.TABLES "
			 "WHERE TABLE_SCHEMA = 'dlock' AND TABLE_NAME = 'closed_journal_head'") &&
		number_of(e->session, 0, 0) > 0)
		report(e, FINDING_WARNING, "journal", "feed install.sql",
			   "closed: calls are slower");
}

/* What an account may do on the whole server; NULL: nothing. */
#define LIBRARY_PRIVILEGES \
	"GROUP_CONCAT(IF(p.PRIVILEGE_TYPE = 'USAGE', NULL, p.PRIVILEGE_TYPE) " \
	"ORDER BY p.PRIVILEGE_TYPE SEPARATOR ', ') "

/* The account with which the library logs in. */
static void
check_library_account(struct mysql *m)
{
	struct examination *e = m->e;
	bool		is_admin;
	bool		may_log_in;
	const char *privileges;		/* on the whole server */
	bool		has_init_connect = variable(m, "init_connect") && *variable(m, "init_connect");

	if (!m->is_there ||
		!look_if_allowed(e, "the library's account", "SELECT account FROM dlock.library_account"))
		return;
	if (!look_if_allowed(e, "the library's account", m->mariadb
						 ? "SELECT a.account, "
						 "MAX(p.PRIVILEGE_TYPE IN ('SUPER', 'CREATE USER')), "
						 "MAX(p.PRIVILEGE_TYPE = 'CONNECTION ADMIN'), " LIBRARY_PRIVILEGES
						 "FROM dlock.library_account AS a "
						 "LEFT JOIN information_schema.USER_PRIVILEGES AS p ON p.GRANTEE = a.account "
						 "GROUP BY a.account LIMIT 1"
						 : "SELECT a.account, "
						 "MAX(p.PRIVILEGE_TYPE IN ('SUPER', 'CREATE USER')), "
						 "MAX(p.PRIVILEGE_TYPE = 'CONNECTION_ADMIN') OR EXISTS ("
						 "SELECT * FROM mysql.role_edges WHERE FROM_USER = 'dlock_login' "
						 "AND CONCAT(QUOTE(TO_USER), '@', QUOTE(TO_HOST)) = a.account), " LIBRARY_PRIVILEGES
						 "FROM dlock.library_account AS a "
						 "LEFT JOIN information_schema.USER_PRIVILEGES AS p ON p.GRANTEE = a.account "
						 "GROUP BY a.account LIMIT 1"))
		return;
	is_admin = number_of(e->session, 0, 1) != 0;
	may_log_in = number_of(e->session, 0, 2) != 0;
	privileges = value_of(e->session, 0, 3);
	report(e, is_admin ? FINDING_NOTE : FINDING_OK, "the library's account",
		   is_admin ? "doc/mysql.md, \"Accounts\": its other privileges can be revoked" : NULL,
		   "%s%s%s", value_of(e->session, 0, 0),
		   is_admin ? ", which is an administrator's" : privileges ? ", with " : "",
		   is_admin || !privileges ? "" : privileges);
	if (!may_log_in)
		report(e, has_init_connect ? FINDING_WARNING : FINDING_NOTE, "the library's log-in",
			   "feed install.sql as an account that may grant CONNECTION_ADMIN",
			   "init_connect and offline_mode apply to it");
}

/* Settings of the server that lose granted leases. */
static void
check_durability(struct mysql *m)
{
	struct examination *e = m->e;
	const char *flush = variable(m, "innodb_flush_log_at_trx_commit");
	const char *doublewrite = variable(m, "innodb_doublewrite");
	const char *redo = value_in(&m->status, "Innodb_redo_log_enabled");
	bool		log_bin = is_on(m, "log_bin");
	const char *semisync = variable(m, "rpl_semi_sync_source_enabled")
		? "rpl_semi_sync_source_enabled" : "rpl_semi_sync_master_enabled";
	const char *timeout = variable(m, "rpl_semi_sync_source_timeout")
		? "rpl_semi_sync_source_timeout" : "rpl_semi_sync_master_timeout";
	const char *clients = value_in(&m->status, "Rpl_semi_sync_source_clients")
		? "Rpl_semi_sync_source_clients" : "Rpl_semi_sync_master_clients";

	if (flush && strcmp(flush, "1") != 0)
		report(e, FINDING_WARNING, "innodb_flush_log_at_trx_commit", "set it to 1",
			   "%s: a crash of the %s may lose leases that were granted in the last second",
			   flush, strcmp(flush, "0") == 0 ? "server" : "machine");
	else
		report(e, FINDING_OK, "innodb_flush_log_at_trx_commit", NULL, "1");
	if (log_bin && !is_set(m, "sync_binlog", "1"))
		report(e, FINDING_WARNING, "sync_binlog", "set it to 1",
			   "%s: a crash of the machine may lose leases, or have replicas miss them",
			   variable(m, "sync_binlog"));
	else if (log_bin)
		report(e, FINDING_OK, "sync_binlog", NULL, "1");
	if (!log_bin)
		report(e, FINDING_NOTE, "log_bin", "replicas need it", "off: no server can follow this one");
	if (doublewrite &&
		(strcasecmp(doublewrite, "OFF") == 0 || strcasecmp(doublewrite, "DETECT_ONLY") == 0))
		report(e, FINDING_WARNING, "innodb_doublewrite",
			   "turn it on, unless the disk writes a page all or none",
			   "%s: a crash of the machine may damage pages", doublewrite);
	else
		report(e, FINDING_OK, "innodb_doublewrite", NULL, "%s", doublewrite ? doublewrite : "on");
	if (redo && strcasecmp(redo, "OFF") == 0)
		report(e, FINDING_ERROR, "InnoDB's redo log", "ALTER INSTANCE ENABLE INNODB REDO_LOG",
			   "off: a crash loses everything");
	if (variable(m, "innodb_force_recovery") && !is_set(m, "innodb_force_recovery", "0"))
		report(e, FINDING_ERROR, "innodb_force_recovery", "see what is damaged, and set it to 0",
			   "%s", variable(m, "innodb_force_recovery"));
	if (is_set(m, "innodb_checksum_algorithm", "none"))
		report(e, FINDING_WARNING, "innodb_checksum_algorithm", "crc32 or full_crc32",
			   "none: a damaged page is not noticed");
	if (is_set(m, "innodb_flush_method", "nosync") || is_set(m, "innodb_flush_method", "littlesync"))
		report(e, FINDING_ERROR, "innodb_flush_method", "leave it at its default",
			   "%s: a crash of the machine loses leases", variable(m, "innodb_flush_method"));
	if (is_on(m, semisync))
	{
		if (number_in(&m->variables, timeout) >= COMMIT_GIVEN_UP_MS)
			report(e, FINDING_WARNING, timeout, "set it below 30000: the library waits no longer",
				   "%s ms", variable(m, timeout));
		if (number_in(&m->status, clients) == 0)
			report(e, FINDING_WARNING, "semisynchronous replicas", "connect one",
				   "none is connected: commits wait %s ms, then for none", variable(m, timeout) ? variable(m, timeout) : "?");
		else
			report(e, FINDING_OK, "semisynchronous replicas", NULL, "%" PRId64,
				   number_in(&m->status, clients));
	}
}

/* Does a comma-separated list have the word? */
static bool
list_has(const char *list, const char *word)
{
	size_t		length = strlen(word);

	for (const char *next = list; *next;)
	{
		size_t		size = strcspn(next, ",");

		if (size == length && strncmp(next, word, length) == 0)
			return true;
		next += size;
		next += strspn(next, ", ");
	}
	return false;
}

/* Report a filter that keeps database dlock from being replicated. */
static void
report_filter(struct mysql *m, const char *filter, const char *value, bool takes)
{
	/* of tables, or with wildcards: the reader must judge whether they match */
	bool		is_plain = strcasestr(filter, "table") == NULL;
	bool		hurts = takes ? !list_has(value, "dlock") : list_has(value, "dlock");

	if (!*value)
		return;
	if (!is_plain)
		hurts = takes ? strstr(value, "dlock.") == NULL : strstr(value, "dlock.") != NULL;
	report(m->e, hurts ? FINDING_WARNING : FINDING_NOTE, filter,
		   hurts ? "a replica that is to be promoted needs all of database dlock"
		   : "see that all of database dlock goes along", "%s", value);
}

/* Replication: what, where to, and in which form. */
static void
check_replication(struct mysql *m)
{
	struct examination *e = m->e;
	static const struct
	{
		const char *names[2];	/* in SHOW REPLICA STATUS */
		bool		takes;
	}			filters[] = {
		{{"Replicate_Do_DB", "replicate_do_db"}, true},
		{{"Replicate_Ignore_DB", "replicate_ignore_db"}, false},
		{{"Replicate_Do_Table", "replicate_do_table"}, true},
		{{"Replicate_Ignore_Table", "replicate_ignore_table"}, false},
		{{"Replicate_Wild_Do_Table", "replicate_wild_do_table"}, true},
		{{"Replicate_Wild_Ignore_Table", "replicate_wild_ignore_table"}, false}
	};
	static const char *const binlog_filters[] = {"Binlog_Do_DB", "Binlog_Ignore_DB"};
	const char *exec_mode = variable(m, "replica_exec_mode")
		? variable(m, "replica_exec_mode") : variable(m, "slave_exec_mode");

	if (is_on(m, "log_bin") && is_set(m, "binlog_format", "STATEMENT"))
		report(e, FINDING_ERROR, "binlog_format", "ROW or MIXED; or doc/high-availability.md",
			   "STATEMENT: changes of leases are refused");
	else if (is_on(m, "log_bin") && variable(m, "binlog_format"))
		report(e, FINDING_OK, "binlog_format", NULL, "%s", variable(m, "binlog_format"));

	if (look_if_allowed(e, "replication from another server", "SHOW REPLICA STATUS"))
	{
		m->follows = dlock_session_rows(e->session) > 0;
		for (size_t column = 0; m->follows && column < dlock_session_columns(e->session); column++)
			for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++)
				if (strcasecmp(dlock_session_column_name(e->session, column),
							   filters[i].names[0]) == 0 && value_of(e->session, 0, column))
					report_filter(m, filters[i].names[1], value_of(e->session, 0, column),
								  filters[i].takes);
		if (m->follows)
		{
			report(e, m->read_only ? FINDING_OK : FINDING_WARNING, "replica", m->read_only ? NULL
				   : "keep it read_only: two servers may grant the same name before they hear of each other",
				   "this server follows another%s", m->read_only ? ", and is read-only"
				   : ", and can be written");
			if (exec_mode && strcasecmp(exec_mode, "IDEMPOTENT") == 0)
				report(e, FINDING_WARNING, "replica_exec_mode", "STRICT",
					   "IDEMPOTENT: differences from the source are not noticed");
			if (m->mariadb && !is_on(m, "log_slave_updates"))
				report(e, FINDING_NOTE, "log_slave_updates", "on, if it is to be promoted", "off");
		}
	}
	if (is_on(m, "log_bin") &&
		look_if_allowed(e, "filters of the binary log",
						m->mariadb ? "SHOW MASTER STATUS" : "SHOW BINARY LOG STATUS"))
		for (size_t column = 0; column < dlock_session_columns(e->session); column++)
			for (size_t i = 0; i < 2; i++)
				if (strcasecmp(dlock_session_column_name(e->session, column),
							   binlog_filters[i]) == 0 && value_of(e->session, 0, column))
					report_filter(m, binlog_filters[i], value_of(e->session, 0, column), i == 0);
}

static void
check_cluster(struct mysql *m)
{
	struct examination *e = m->e;
	const char *group = variable(m, "group_replication_group_name");

	if (is_on(m, "wsrep_on"))
	{
		const char *ready = value_in(&m->status, "wsrep_ready");
		const char *status = value_in(&m->status, "wsrep_cluster_status");
		int64_t		nodes = number_in(&m->status, "wsrep_cluster_size");

		m->in_cluster = true;
		if ((ready && strcasecmp(ready, "ON") != 0) || (status && strcasecmp(status, "Primary") != 0))
			report(e, FINDING_ERROR, "Galera", "doc/high-availability.md, \"Galera\"",
				   "this node is not ready, or not in the primary component (%s)",
				   status ? status : "?");
		else
			report(e, nodes == 2 ? FINDING_NOTE : FINDING_OK, "Galera",
				   nodes == 2 ? "if one of two is killed, no majority is left: add garbd, or a larger pc.weight"
				   : NULL, "%" PRId64 " node%s", nodes, nodes == 1 ? "" : "s");
		if (!is_set(m, "binlog_format", "ROW"))
			report(e, FINDING_ERROR, "binlog_format", "set it to ROW: Galera needs it", "%s",
				   variable(m, "binlog_format"));
	}
	if (group && *group)
	{
		m->in_cluster = true;
		if (look_if_allowed(e, "Group Replication",
							"SELECT COALESCE(MAX(IF(MEMBER_ID = @@server_uuid, MEMBER_STATE, NULL)), 'OFFLINE'), "
							"COUNT(*) FROM performance_schema.replication_group_members"))
		{
			bool		online = strcmp(value_of(e->session, 0, 0), "ONLINE") == 0;

			report(e, online ? FINDING_OK : FINDING_WARNING, "Group Replication",
				   online ? NULL : "START GROUP_REPLICATION, or see why it does not",
				   "this member is %s, of %s", value_of(e->session, 0, 0), value_of(e->session, 0, 1));
		}
		if (is_set(m, "group_replication_unreachable_majority_timeout", "0"))
			report(e, FINDING_WARNING, "group_replication_unreachable_majority_timeout",
				   "set it, say to 10", "0: a member without a majority waits for ever");
		if (!is_set(m, "group_replication_exit_state_action", "OFFLINE_MODE"))
			report(e, FINDING_NOTE, "group_replication_exit_state_action", "OFFLINE_MODE, so that nobody asks it",
				   "%s", variable(m, "group_replication_exit_state_action"));
	}
}

/* What our account may do. */
static void
check_privileges(struct mysql *m)
{
	struct examination *e = m->e;
	static const char *const views[] = {"locks", "waiters", "stats"};
	static const char *const guard[] = {
		/* arguments that it refuses */
		"CALL dlock.guard('', '', 1)",
		/* which does nothing unless that one has called it */
		"CALL dlock.guard_row('', 1, @dlock_changed)"
	};
	bool		may_guard = true;
	char		missing[64] = "";

	for (size_t i = 0; i < 2; i++)
	{
		look(e, guard[i]);
		if (e->lost)
			return;
		if (error_number(m) == ER_PROCACCESS_DENIED || error_number(m) == ER_TABLEACCESS_DENIED)
			may_guard = false;
	}
	if (!may_guard)
		report(e, FINDING_NOTE, "privileges", "GRANT EXECUTE ON dlock.* if it is to guard",
			   "this account may acquire, renew, release and look, and not guard");
	else
		report(e, FINDING_OK, "privileges", NULL,
			   "this account may acquire, renew, release, look and guard");
	look(e, "SELECT dlock_force_release('')");
	if (!e->lost && error_number(m) == ER_SPECIFIC_ACCESS_DENIED)
		report(e, FINDING_NOTE, "operators' functions",
			   "CONNECTION_ADMIN (MariaDB: CONNECTION ADMIN) for operators only",
			   "this account may not call dlock_force_release, dlock_reload, dlock_stats_reset");
	m->may_read = true;
	for (size_t i = 0; i < 3; i++)
	{
		char		sql[64];

		snprintf(sql, sizeof(sql), "SELECT 1 FROM dlock.%s LIMIT 0", views[i]);
		if (look(e, sql) || e->lost)
			continue;
		if (i == 0)
			m->may_read = false;
		snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), "%s%s",
				 *missing ? ", " : "", views[i]);
	}
	if (*missing)
		report(e, FINDING_NOTE, "views",
			   "GRANT SELECT ON dlock.locks, and so on, if this account is to read them",
			   "this account cannot read %s", missing);
	else
		report(e, FINDING_OK, "views", NULL, "this account may read them");
}

/* dlock's own settings, which administrators may see. */
static void
check_settings(struct mysql *m, double *overdue_s)
{
	struct examination *e = m->e;
	static const struct
	{
		const char *name;
		double		initial;
		double		least;
		double		most;
		bool		is_whole;
	}			known[] = {
		{"lock_delay", 0, 0, 86400, false},
		{"reap_interval", 1, 0.1, 3600, false},
		{"log_expired", 1, 0, 1, true},
		{"lock_timeout", 5, 0.1, 3600, false},
		{"max_ttl", 86400, 1, 1e9, true},
		{"max_waiters", 1000, 0, 1000000, true}
	};
	char	   *changed = NULL;
	size_t		size = 0;
	FILE	   *list;
	double		max_waiters = 1000;
	int64_t		waiters;

	*overdue_s = 10 + 2;
	if (!look_if_allowed(e, "settings", "SELECT name, value FROM dlock.settings ORDER BY name"))
		return;
	list = open_memstream(&changed, &size);
	if (!list)
		end_with(STATUS_SYSTEM, "out of memory");
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
	{
		const char *value = NULL;
		char	   *end;
		double		number = known[i].initial;

		for (size_t row = 0; row < dlock_session_rows(e->session); row++)
			if (strcmp(value_of(e->session, row, 0), known[i].name) == 0)
				value = value_of(e->session, row, 1);
		if (!value)
			report(e, FINDING_WARNING, known[i].name, "insert its row again",
				   "missing from dlock.settings: %g counts", known[i].initial);
		else
		{
			number = strtod(value, &end);
			if (end == value || *end != '\0' || number < known[i].least || number > known[i].most ||
				(known[i].is_whole && number != floor(number)))
			{
				report(e, FINDING_WARNING, known[i].name, "correct it in dlock.settings",
					   "\"%s\" is not a number from %.10g to %.10g: %.10g counts", value,
					   known[i].least, known[i].most, known[i].initial);
				number = known[i].initial;
			}
		}
		if (number != known[i].initial)
			fprintf(list, "%s%s = %.10g", ftell(list) > 0 ? ", " : "", known[i].name, number);
		if (strcmp(known[i].name, "lock_delay") == 0 && number > 0)
			report(e, FINDING_NOTE, "lock_delay", "no action: the setting does this",
				   "a name is free %g s after its lease has expired", number);
		if (strcmp(known[i].name, "reap_interval") == 0 && number > 60)
			report(e, FINDING_WARNING, "reap_interval", "set it to a few seconds",
				   "%g s: expired leases stay for a long time", number);
		if (strcmp(known[i].name, "log_expired") == 0 && number == 0)
			report(e, FINDING_NOTE, "log_expired", "1, unless leases are meant to expire",
				   "0: the log does not say which holders died");
		if (strcmp(known[i].name, "lock_delay") == 0)
			*overdue_s += number;
		if (strcmp(known[i].name, "reap_interval") == 0)
			*overdue_s += 2 * number;
		if (strcmp(known[i].name, "max_waiters") == 0)
			max_waiters = number;
	}
	fclose(list);
	report(e, FINDING_OK, "settings", NULL, "%s", *changed ? changed : "all at their defaults");
	free(changed);
	if (m->may_read && look(e, "SELECT waiters FROM dlock.stats"))
	{
		waiters = number_of(e->session, 0, 0);
		report(e, (double) waiters * 10 >= max_waiters * 8 ? FINDING_WARNING : FINDING_OK,
			   "max_waiters", (double) waiters * 10 >= max_waiters * 8
			   ? "raise it in dlock.settings" : NULL,
			   "%" PRId64 " wait; %.0f can", waiters, max_waiters);
	}
}

/* The server's own settings that are in the way of leases, and how much room is left. */
static void
check_room(struct mysql *m)
{
	struct examination *e = m->e;
	int64_t		connections = number_in(&m->status, "Threads_connected");
	int64_t		max_connections = number_in(&m->variables, "max_connections");
	int64_t		statements = number_in(&m->status, "Prepared_stmt_count");
	int64_t		max_statements = number_in(&m->variables, "max_prepared_stmt_count");
	int64_t		packet = number_in(&m->variables, "max_allowed_packet");
	const char *isolation = variable(m, "transaction_isolation")
		? "transaction_isolation" : "tx_isolation";
	const char *limit = m->mariadb ? "max_statement_time" : "max_execution_time";

	if (m->read_only)
		report(e, FINDING_NOTE, "read_only", "have applications go to a server that can be written",
			   "on: this server grants nothing");
	if (is_on(m, "offline_mode"))
		report(e, FINDING_WARNING, "offline_mode", "SET GLOBAL offline_mode = OFF",
			   "on: only administrators get in");
	report(e, connections * 10 >= max_connections * 9 ? FINDING_WARNING : FINDING_OK,
		   "max_connections", connections * 10 >= max_connections * 9
		   ? "raise it: the library needs one, and each waiter occupies one" : NULL,
		   "%" PRId64 " of %" PRId64 " taken", connections, max_connections);
	if (statements >= max_statements)
		report(e, FINDING_ERROR, "max_prepared_stmt_count", "raise it: the library needs one",
			   "%" PRId64 " of %" PRId64 " taken", statements, max_statements);
	else if (max_statements - statements < 100)
		report(e, FINDING_WARNING, "max_prepared_stmt_count", "raise it: the library needs one",
			   "%" PRId64 " of %" PRId64 " taken", statements, max_statements);
	report(e, packet < 1048576 ? FINDING_WARNING : FINDING_OK, "max_allowed_packet",
		   packet < 1048576 ? "1 MB or more, or many calls at once are written in many pieces" : NULL,
		   "%" PRId64, packet);
	if (is_set(m, isolation, "SERIALIZABLE"))
		report(e, FINDING_WARNING, isolation,
			   "read dlock.locks in another isolation level, or with dlock_holders()",
			   "SERIALIZABLE: a transaction that reads dlock.locks locks all leases");
	if (variable(m, limit) && strtod(variable(m, limit), NULL) > 0)
		report(e, FINDING_NOTE, limit, "let it be longer than any wait, for sessions that wait",
			   "%s: a longer wait for a lease is cancelled", variable(m, limit));
	if (variable(m, "thread_handling") && !is_set(m, "thread_handling", "one-thread-per-connection"))
		report(e, FINDING_NOTE, "thread_handling",
			   "set thread_pool_max_threads above the number of waiters", "%s",
			   variable(m, "thread_handling"));
	if (variable(m, "max_user_connections") &&
		number_in(&m->variables, "max_user_connections") == 1)
		report(e, FINDING_WARNING, "max_user_connections", "2 or more: the library may connect anew", "1");
	if (look_if_allowed(e, "open transactions",
						"SELECT COUNT(*) FROM information_schema.INNODB_TRX "
						"WHERE trx_rows_locked > 0 AND trx_started < NOW() - INTERVAL 60 SECOND") &&
		number_of(e->session, 0, 0) > 0)
		report(e, FINDING_NOTE, "open transactions",
			   "if one of them guards a lease, it keeps others out: information_schema.INNODB_TRX",
			   "%s that have locked rows for over a minute", value_of(e->session, 0, 0));
}

static void
check_leases(struct mysql *m, double overdue_s)
{
	struct examination *e = m->e;
	struct lease_figures figures;
	char		sql[512];

	if (m->may_read)
	{
		snprintf(sql, sizeof(sql), "SELECT COUNT(*), "
				 "COALESCE(SUM(expires_at < NOW(6) - INTERVAL %.6f SECOND), 0), "
				 "COALESCE(MAX(token), 0), TIMESTAMPDIFF(SECOND, '2020-01-01', UTC_TIMESTAMP()) "
				 "FROM dlock.locks", overdue_s);
		if (look_if_allowed(e, "leases", sql))
		{
			figures.leases = number_of(e->session, 0, 0);
			/* a read-only server removes none; another run counts times anew */
			figures.overdue = m->read_only || m->in_cluster ? 0 : number_of(e->session, 0, 1);
			figures.largest_token = number_of(e->session, 0, 2);
			figures.seconds_since_2020 = number_of(e->session, 0, 3);
			report_leases(e, &figures,
						  "a transaction or a lock keeps them, or the server was restarted: look again in a while");
		}
	}
	report_counters(e);
}

void
examine_mysql(struct examination *e)
{
	struct mysql m = {.e = e};
	double		overdue_s;

	if (look(e, "SET time_zone = '+00:00'") &&
		read_variables(&m, "SHOW GLOBAL VARIABLES", &m.variables) &&
		read_variables(&m, "SHOW GLOBAL STATUS", &m.status))
	{
		m.read_only = is_on(&m, "read_only") || is_on(&m, "super_read_only") ||
			is_on(&m, "innodb_read_only");
		check_server(&m);
		check_installation(&m);
		check_library_account(&m);
		check_durability(&m);
		check_replication(&m);
		check_cluster(&m);
		check_room(&m);
		if (m.is_there)
		{
			check_privileges(&m);
			check_settings(&m, &overdue_s);
			check_leases(&m, overdue_s);
			if (m.read_only && e->try_a_lease)
				report(e, FINDING_NOTE, "a lease", "a read-only server grants none", "not tried");
			else
				try_a_lease(e);
		}
	}
	else if (!e->lost)
		report(e, FINDING_ERROR, "server", "see the error", "%s",
			   dlock_session_error(e->session)->message);
	free_variables(&m.variables);
	free_variables(&m.status);
}
