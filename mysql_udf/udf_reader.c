/*
 * udf_reader.c
 *	  Which account reads a view, and whether it may see everything.
 *
 * The views show an owner to some of their readers only.  They have the rights of their
 * definer, and inside a view CURRENT_USER() and every stored function name the definer.
 * Only two things know the account that reads: a loadable function, and on MySQL a
 * status variable.
 *
 * But a view that names a loadable function cannot be restored from a logical dump where
 * the library is missing.  So MySQL's views use the status variable; without it the views
 * mask everything.  Its value is made under locks of the server's, so it has only what the
 * session knows of the account's rights.  Where that is not enough the views look up what
 * was granted to the account (install.sql).
 *
 * MariaDB reads the variable as the definer.  So there a stored function calls the loadable
 * one, which says who has logged in on the connection; MariaDB's plugin has heard of that
 * (lease_connections.c).  That is the reader but for a reader in a routine with the rights
 * of its definer, who sees what the login may.  A role that was made active later does not
 * count.  A connection from before the plugin sees everything masked.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lease_connections.h"
#include "mysql_compat.h"
#include "udf_function.h"

/* Room for what write_reader() writes. */
#define READER_SIZE		(2 * (DLOCK_USER_SIZE + DLOCK_HOST_SIZE) + 4)

/* Room for any user name of MySQL's: up to 32 characters of 4 bytes at most. */
#define MYSQL_USER_SIZE	129

static_assert(2 * (MYSQL_USER_SIZE + DLOCK_HOST_SIZE) + 4 <= SERVER_SHOW_SIZE,
			  "any account of MySQL's fits");

/* Append bytes as hexadecimal digits. */
static char *
add_hex(char *to, const char *bytes)
{
	for (; *bytes != '\0'; bytes++)
		to += sprintf(to, "%02X", (unsigned char) *bytes);
	return to;
}

/*
 * Write which account reads: "1" if it may see everything, "0" if not, "?" if that is not
 * known, then user and host in hexadecimal digits, with blanks between.
 */
static void
write_reader(char *to, const char *user, const char *host, dlock_rights rights)
{
	to += sprintf(to, "%c ", rights == DLOCK_RIGHTS_OPERATOR ? '1' :
				  rights == DLOCK_RIGHTS_PLAIN ? '0' : '?');
	to = add_hex(to, user);
	*to++ = ' ';
	*to = '\0';
	add_hex(to, host);
}

/*
 * dlock_reader() returns text
 *
 * Which account reads, for the views: see write_reader().
 */
DLOCK_TEXT_FUNCTION(dlock_reader, READER_SIZE, DLOCK_LOOKS, 0)
{
	dlock_caller *caller = &use->caller;
	char		reader[READER_SIZE];
#ifdef DLOCK_LOG
	bool		is_operator;

	if (!lease_connections_login(dlock_caller_connection_id(), caller, &is_operator))
		return dlock_null();
	write_reader(reader, caller->user, caller->host,
				 is_operator ? DLOCK_RIGHTS_OPERATOR : DLOCK_RIGHTS_PLAIN);
#else

	if (!dlock_get_caller(use))
		return dlock_error();
	write_reader(reader, caller->user, caller->host, dlock_caller_known_rights());
#endif
	lease_text_put(&use->text, reader, strlen(reader));
	return dlock_is_text();
}

/*
 * The value of MySQL's status variable: which account reads.  It is empty if another
 * thread than the session's asks, or if the account is not known.  See server_abi.h for
 * what must not be done here.
 */
static int
show_reader(THD *thd, server_status_variable *shown, char *room)
{
	char		user[MYSQL_USER_SIZE];
	char		host[DLOCK_HOST_SIZE];

	shown->type = SERVER_SHOW_TEXT;
	shown->value = room;
	room[0] = '\0';
	if (thd == dlock_caller_thd() &&
		dlock_caller_account(user, sizeof(user), host, sizeof(host)))
		write_reader(room, user, host, dlock_caller_known_rights());
	return 0;
}

/*
 * Add the variable when the library is loaded, at the start of the server or by the
 * first CREATE FUNCTION, before anybody reads a view.
 */
__attribute__((constructor)) static void
add_reader(void)
{
	static const server_status_variable list[] = {
		{"dlock_reader", (void *) show_reader, SERVER_SHOW_FUNCTION,
		SERVER_SCOPE_SESSION},
		{NULL, NULL, 0, 0}
	};

	if (mysql_add_status_variables != NULL && dlock_server_lacks() == NULL &&
		dlock_server_is_tried())
		mysql_add_status_variables(list);
}
