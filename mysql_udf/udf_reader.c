/*
 * udf_reader.c
 *	  Who reads a view, and may see what.
 *
 * The views show an owner to some of those who may read them.  They have the
 * rights of their definer, and all that SQL offers inside says that it is the
 * definer who asks: CURRENT_USER(), and every stored function.  Two things are asked
 * for the account that reads the view: a loadable function, and on MySQL a status
 * variable.
 *
 * MySQL's views use the status variable.  A view that names a loadable function
 * cannot be created where there is none, and a logical dump of the server would stop
 * there when it is restored.  Where there is no such variable the table of status
 * variables just lacks a row, and the views mask everything.  MariaDB would ask for
 * the variable as the definer, so there the views call the function; it has no
 * arguments, because a call with arguments is dumped in a way that cannot even be
 * parsed without the function.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "mysql_compat.h"
#include "udf_function.h"

/* Room for the text that says who reads. */
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
 * Say who reads: "1" for who may see everything, or "0", then user and host in
 * hexadecimal digits, with blanks between.
 */
static void
write_reader(char *to, const char *user, const char *host, bool is_operator)
{
	to += sprintf(to, "%d ", is_operator);
	to = add_hex(to, user);
	*to++ = ' ';
	*to = '\0';
	add_hex(to, host);
}

/*
 * dlock_reader() returns text
 *
 * Who reads, for the views.
 */
DLOCK_TEXT_FUNCTION(dlock_reader, READER_SIZE, DLOCK_LOOKS, 0)
{
	const dlock_caller *caller = &use->caller;
	char		reader[READER_SIZE];

	if (!dlock_get_caller(use, true))
		return dlock_error();
	write_reader(reader, caller->user, caller->host, caller->is_operator);
	lease_text_put(&use->text, reader, strlen(reader));
	return dlock_is_text();
}

/*
 * The value of MySQL's status variable: who reads, if it is read in that session's
 * own thread and the account can be told; else it is empty.
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
		write_reader(room, user, host, dlock_caller_is_operator());
	return 0;
}

/*
 * Add the variable when the library is loaded, be it at the start of the server or
 * by the first CREATE FUNCTION: it has to be there for whoever reads a view first.
 */
__attribute__((constructor)) static void
add_reader(void)
{
	static const server_status_variable list[] = {
		{"dlock_reader", (void *) show_reader, SERVER_SHOW_FUNCTION,
		SERVER_SCOPE_SESSION},
		{NULL, NULL, 0, 0}
	};

	if (mysql_add_status_variables != NULL && dlock_server_lacks() == NULL)
		mysql_add_status_variables(list);
}
