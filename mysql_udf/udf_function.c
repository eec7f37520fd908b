/*
 * udf_function.c
 *	  The frame of a user-defined function.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "udf_function.h"

#include <stdlib.h>
#include <string.h>

/* Prepare a statement's calls of an integer function; true is failure. */
bool
dlock_begin_integer(UDF_INIT *init, UDF_ARGS *args, char *message,
					const dlock_signature *signature)
{
	init->ptr = NULL;
	init->maybe_null = true;
	init->const_item = false;
	init->decimals = 0;
	init->max_length = 21;
	return dlock_prepare_arguments(args, message, signature);
}

/* As many decimals as there are: the servers' NOT_FIXED_DEC. */
#define ANY_DECIMALS	31

/* The same for a real function. */
bool
dlock_begin_real(UDF_INIT *init, UDF_ARGS *args, char *message,
				 const dlock_signature *signature)
{
	init->ptr = NULL;
	init->maybe_null = true;
	init->const_item = false;
	init->decimals = ANY_DECIMALS;
	init->max_length = 23;
	return dlock_prepare_arguments(args, message, signature);
}

/* The same for a text function. */
bool
dlock_begin_text(UDF_INIT *init, UDF_ARGS *args, char *message,
				 const dlock_signature *signature, unsigned long longest)
{
	init->ptr = NULL;
	init->maybe_null = true;
	init->const_item = false;
	init->max_length = longest;
	if (dlock_prepare_result(init))
	{
		strcpy(message, "cannot set the character set of the result");
		return true;
	}
	return dlock_prepare_arguments(args, message, signature);
}

/* Free what a statement's calls have left. */
void
dlock_end(UDF_INIT *init)
{
	free(init->ptr);
	init->ptr = NULL;
}

static void
set_flags(dlock_value value, unsigned char *is_null, unsigned char *error)
{
	*is_null = value.kind != DLOCK_IS_VALUE;
	*error = value.kind == DLOCK_IS_ERROR;
}

/* Hand an integer function's answer to the server. */
long long
dlock_answer_integer(dlock_value value, unsigned char *is_null,
					 unsigned char *error)
{
	set_flags(value, is_null, error);
	return value.integer;
}

/* Hand a real function's answer to the server. */
double
dlock_answer_real(dlock_value value, unsigned char *is_null,
				  unsigned char *error)
{
	set_flags(value, is_null, error);
	return value.real;
}

/*
 * Hand a text function's answer to the server, which reads it until the next
 * call of the same statement.
 */
char *
dlock_answer_text(UDF_INIT *init, dlock_value value, dlock_text *text,
				  unsigned long *length, unsigned char *is_null,
				  unsigned char *error)
{
	free(init->ptr);
	init->ptr = text->data;
	if (value.kind == DLOCK_IS_VALUE && (text->failed || text->data == NULL))
	{
		dlock_raise("53200", "out of memory");
		value = dlock_error();
	}
	set_flags(value, is_null, error);
	if (value.kind != DLOCK_IS_VALUE)
		return NULL;
	*length = text->length;
	return text->data;
}
