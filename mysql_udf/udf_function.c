/*
 * udf_function.c
 *	  The frame of a user-defined function.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "udf_function.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "udf_messages.h"

/* ----------------------------------------------------------------
 * Entry points
 * ----------------------------------------------------------------
 */

/* Lives from the first call of a statement to the last. */
typedef struct Statement
{
	const dlock_function *function;
	int			command;		/* dlock_caller_command() when it began */
	lease_text	answer;			/* the last one; the server reads it until the
								 * next call */
} Statement;

/* Prepare a statement's calls of a function; true, with a message, is failure. */
bool
dlock_begin(UDF_INIT *init, UDF_ARGS *args, char *message,
			const dlock_function *function)
{
	Statement  *statement;
	const char *lacks = dlock_server_lacks();

	init->ptr = NULL;
	if (lacks != NULL)
	{
		snprintf(message, UDF_MESSAGE_SIZE,
				 "dlock cannot work in this server, which lacks \"%s\"; it needs MySQL 9.7 or MariaDB 10.11, or later",
				 lacks);
		return true;
	}
	if (!dlock_server_is_tried())
	{
		strcpy(message, "dlock was not tried in a server of this version, but in MySQL 9.7 and MariaDB 10.11 and 11.8; DLOCK_UNTRIED_SERVER=1 in the server's environment uses it all the same");
		return true;
	}
	init->maybe_null = true;
	init->const_item = false;
	init->max_length = function->longest;
	init->decimals = function->decimals;
	if (function->is_text && dlock_prepare_result(init))
	{
		strcpy(message, "cannot set the character set of the result");
		return true;
	}
	if (dlock_prepare_arguments(args, message, &function->signature))
		return true;
	statement = calloc(1, sizeof(*statement));
	if (statement == NULL)
		return false;			/* dlock_make() raises the error, with our SQLSTATE */
	statement->function = function;
	statement->command = dlock_caller_command();
	init->ptr = (char *) statement;
	return false;
}

/* Free what a statement's calls have left. */
void
dlock_end(UDF_INIT *init)
{
	Statement  *statement = (Statement *) init->ptr;

	if (statement != NULL)
		free(statement->answer.data);
	free(statement);
	init->ptr = NULL;
}

/*
 * Say whether the call comes from an expression of a table, such as a virtual column.
 * MariaDB allows loadable functions there.  It prepares them when it opens the table,
 * under the largest command number, which stands for none, and calls them in the statement
 * that reads the table.  All other functions are called in the statement in which they
 * were prepared.
 */
static bool
is_in_table(const Statement *statement)
{
	return dlock_server_kind() == DLOCK_SERVER_MARIADB &&
		statement->command > dlock_caller_command();
}

/* Make a call, if this is the place for one. */
static dlock_value
call(const Statement *statement, dlock_use *use)
{
	if (use->function->effect == DLOCK_ACTS)
	{
		if (dlock_caller_explains())
			return dlock_null();
		if (is_in_table(statement))
		{
			dlock_raise("0A000", "cannot execute %s() in an expression of a table",
						use->name);
			return dlock_error();
		}
	}
	return use->function->body(use);
}

static void
free_answer(dlock_answer *answer)
{
	free(answer->holders);
	free(answer->tokens);
	free(answer->done);
	free(answer->unmasked);
}

/* Call a function, and leave its text in the statement. */
dlock_value
dlock_make(UDF_INIT *init, const UDF_ARGS *args, unsigned char *is_null,
		   unsigned char *error)
{
	Statement  *statement = (Statement *) init->ptr;
	const dlock_function *function;
	dlock_use	use = {.args = args};
	dlock_value value;

	if (statement == NULL)
	{
		dlock_raise("53200", "out of memory");
		*is_null = *error = 1;
		return dlock_error();
	}
	function = statement->function;
	use.function = function;
	use.name = function->signature.function;
	value = call(statement, &use);
	free(use.names);
	free(use.tokens);
	free_answer(&use.answer);
	free(statement->answer.data);
	statement->answer = use.text;
	if (value.kind == DLOCK_IS_VALUE && function->is_text &&
		(use.text.failed || use.text.data == NULL))
	{
		dlock_raise("53200", "out of memory");
		value = dlock_error();
	}
	*is_null = value.kind != DLOCK_IS_VALUE;
	*error = value.kind == DLOCK_IS_ERROR;
	return value;
}

/* The same for a text function. */
char *
dlock_make_text(UDF_INIT *init, const UDF_ARGS *args, unsigned long *length,
				unsigned char *is_null, unsigned char *error)
{
	const Statement *statement = (const Statement *) init->ptr;

	dlock_make(init, args, is_null, error);
	*length = *is_null ? 0 : statement->answer.length;
	return *is_null ? NULL : statement->answer.data;
}

/* ----------------------------------------------------------------
 * For the bodies
 * ----------------------------------------------------------------
 */

/* Find out which account calls: false if an error was raised. */
bool
dlock_get_caller(dlock_use *use)
{
	dlock_caller *caller = &use->caller;

	if (dlock_caller_is_applier())
		return dlock_raise("25006", "cannot execute %s() while replicating; use row-based replication",
						   use->name);
	if (dlock_caller_is_repeated())
		return dlock_raise("0A000", "cannot execute %s() in a statement that replicas repeat; set binlog_format to ROW or MIXED, or call it in a statement of its own",
						   use->name);
	if (!dlock_caller_account(caller->user, sizeof(caller->user),
							  caller->host, sizeof(caller->host)))
		return dlock_raise("42501", "cannot tell which account calls %s(); a routine whose definer is a role cannot call it",
						   use->name);
	caller->connection_id = dlock_caller_connection_id();
	return true;
}

/* Check that the caller may end other accounts' leases. */
bool
dlock_check_operator(const dlock_use *use)
{
	if (dlock_caller_is_operator())
		return true;
	return dlock_raise("42501", "permission denied for function %s; it takes the privilege CONNECTION_ADMIN (MariaDB: CONNECTION ADMIN) or SUPER",
					   use->name);
}

/*
 * Make the call, on behalf of use->caller.  Whether it is an operator, who may call whatever
 * dlock.callers says, is only found out if the engine refuses it.
 */
bool
dlock_ask_engine(dlock_use *use)
{
	dlock_call *asked = &use->call;
	dlock_answer *answer = &use->answer;

	asked->caller = &use->caller;
	if (dlock_engine_call(asked, answer))
		return dlock_check_answer(asked, answer);
	if (strcmp(answer->sqlstate, "42501") == 0 && !asked->is_operator &&
		dlock_caller_is_operator())
	{
		asked->is_operator = true;
		free_answer(answer);
		return dlock_ask_engine(use);
	}
	return dlock_raise(answer->sqlstate, "%s",
					   answer->unmasked != NULL && dlock_caller_is_operator() ?
					   answer->unmasked : answer->message);
}

/*
 * Say whether use->caller may see the owners and connections of this account.  Whether it
 * is an operator is found out for the first other account: looks at one's own leases, and
 * at free names, do not wait for what dlock_caller_is_operator() waits for.
 */
bool
dlock_sees(dlock_use *use, lease_bytes user, lease_bytes host)
{
	if (dlock_is_caller(&use->caller, user, host))
		return true;
	if (use->rights == DLOCK_RIGHTS_UNKNOWN)
		use->rights = dlock_caller_is_operator() ?
			DLOCK_RIGHTS_OPERATOR : DLOCK_RIGHTS_PLAIN;
	return use->rights == DLOCK_RIGHTS_OPERATOR;
}
