/*
 * server.c
 *	  What the server is just now: whether it may be written to, and who else writes.
 *
 * A server may not be written to while it is read-only; while it applies the changes of
 * another server, since a row that is appended here would stop that (unless the settings
 * allow it, for pairs of sources of which one is used at a time); and as a member of a
 * cluster that has no majority, or of a group with one primary that is another member.
 *
 * It is asked each second, and before a take-over.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

#include "connection.h"

/* Answers of the server: names and values. */
#define ASK_VARIABLES \
	"SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'innodb_read_only'," \
	" 'innodb_force_recovery', 'wsrep_provider', 'group_replication_group_name')"
#define ASK_MARIADB \
	"SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_running', 'wsrep_ready'," \
	" 'wsrep_cluster_status', 'wsrep_cluster_conf_id')"
#define ASK_MYSQL	\
	"SELECT what, value FROM dlock.server WHERE member IN ('', @@server_uuid)"

/* What was asked so far. */
typedef struct asking
{
	server_state state;
	bool		is_read_only;
	bool		is_alone;		/* a server that could join a group, and has not */
	bool		is_out;			/* a member that takes no part in its cluster */
	bool		is_secondary;	/* of a group with one primary */
} asking;

static bool
is_on(const char *value)
{
	return strcmp(value, "OFF") != 0 && strcmp(value, "0") != 0;
}

/* The server has said something of itself. */
static void
take(asking *a, const char *name, const char *value)
{
	if (strcmp(name, "read_only") == 0 || strcmp(name, "innodb_read_only") == 0)
		a->is_read_only |= is_on(value);
	else if (strcmp(name, "innodb_force_recovery") == 0)
		a->is_read_only |= strtoul(value, NULL, 10) >= dlock_read_only_recovery();
	else if (strcmp(name, "wsrep_provider") == 0)
		a->state.is_member |= *value != '\0' && strcmp(value, "none") != 0;
	else if (strcmp(name, "wsrep_ready") == 0)
		a->is_out |= !is_on(value);
	else if (strcmp(name, "wsrep_cluster_status") == 0)
		a->is_out |= strcmp(value, "Primary") != 0;
	else if (strcmp(name, "Slaves_running") == 0 || strcmp(name, "appliers") == 0)
		a->state.is_following |= is_on(value);
	else if (strcmp(name, "group_replication_group_name") == 0)
		a->state.is_member = true;	/* others may join at any time */
	else if (strcmp(name, "state") == 0 && strcmp(value, "OFFLINE") == 0)
		a->is_alone = true;
	else if (strcmp(name, "state") == 0)
		a->is_out |= strcmp(value, "ONLINE") != 0;
	else if (strcmp(name, "role") == 0)
		a->is_secondary |= strcmp(value, "SECONDARY") == 0;
	else
		/* wsrep_cluster_conf_id, and a group's: another one with each change of members */
		a->state.view = hash_bytes((lease_bytes) {value, strlen(value)}, a->state.view);
}

/* Ask the server, and take its answers. */
static bool
ask(connection *c, const char *question, asking *a)
{
	lease_text	query = {0};
	MYSQL_RES  *result;
	MYSQL_ROW	row;

	lease_text_add(&query, "%s", question);
	if (connection_query(c, &query, &result) != LEASE_STATUS_OK)
		return false;
	while ((row = mysql_fetch_row(result)) != NULL)
		if (row[0] != NULL && row[1] != NULL)
			take(a, row[0], row[1]);
	mysql_free_result(result);
	return true;
}

/* Find out what the server is: false if it does not tell. */
bool
server_look(connection *c, server_state *state)
{
	bool		is_mysql = dlock_server_kind() == DLOCK_SERVER_MYSQL;
	asking		a = {0};
	bool		is_allowed;

	if (!ask(c, ASK_VARIABLES, &a) || !ask(c, is_mysql ? ASK_MYSQL : ASK_MARIADB, &a))
		return false;
	engine_lock();
	is_allowed = settings->write_on_replicas;
	engine_unlock();
	*state = a.state;
	a.is_alone |= !state->is_member;
	if (a.is_read_only)
		state->refusal = "the server is read-only";
	else if (a.is_out && !a.is_alone)
		state->refusal = "the server takes no part in its cluster now";
	else if (a.is_secondary)
		state->refusal = "the server is not the primary of its group";
	else if (state->is_following && a.is_alone && !is_allowed)
		state->refusal = "the server applies the changes of another one; see \"write_on_replicas\" in dlock.settings";
	return true;
}
