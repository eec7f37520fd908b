/*
 * udf_function.h
 *	  The frame of a user-defined function.
 *
 * The server wants three entry points of each function: what is done before
 * the first call of a statement, the call, and what is done after the last.
 * These macros write them; what follows one is the body of the call, with the
 * checked number of arguments in "args":
 *
 *		DLOCK_INTEGER_FUNCTION(dlock_twice, 1, 1, "number")
 *		{
 *			...
 *			return dlock_integer(2 * number);
 *		}
 *
 * DLOCK_REAL_FUNCTION answers dlock_real().  DLOCK_TEXT_FUNCTION has a dlock_text in "text", empty, to put the answer in;
 * its first number is the longest answer, in bytes, from which the server makes
 * the type of the column.  Both have their own name in "function".
 *
 * Nothing lasting happens before the call, so that EXPLAIN takes nothing; and
 * no answer is kept for the next row, so that every row is a call.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_UDF_FUNCTION_H
#define DLOCK_UDF_FUNCTION_H

#include "server_abi.h"
#include "udf_arguments.h"
#include "udf_text.h"

#define DLOCK_EXPORT	__attribute__((visibility("default")))

/* What came of a call. */
typedef struct dlock_value
{
	enum
	{
		DLOCK_IS_VALUE,
		DLOCK_IS_NULL,
		DLOCK_IS_ERROR			/* which has been raised */
	}			kind;
	long long	integer;		/* of an integer function's value */
	double		real;			/* of a real function's */
} dlock_value;

static inline dlock_value
dlock_integer(long long integer)
{
	return (dlock_value) {.kind = DLOCK_IS_VALUE, .integer = integer};
}

static inline dlock_value
dlock_real(double real)
{
	return (dlock_value) {.kind = DLOCK_IS_VALUE, .real = real};
}

static inline dlock_value
dlock_null(void)
{
	return (dlock_value) {.kind = DLOCK_IS_NULL};
}

static inline dlock_value
dlock_error(void)
{
	return (dlock_value) {.kind = DLOCK_IS_ERROR};
}

extern bool dlock_begin_integer(UDF_INIT *init, UDF_ARGS *args, char *message,
								const dlock_signature *signature);
extern bool dlock_begin_real(UDF_INIT *init, UDF_ARGS *args, char *message,
							 const dlock_signature *signature);
extern bool dlock_begin_text(UDF_INIT *init, UDF_ARGS *args, char *message,
							 const dlock_signature *signature,
							 unsigned long longest);
extern void dlock_end(UDF_INIT *init);
extern long long dlock_answer_integer(dlock_value value, unsigned char *is_null,
									  unsigned char *error);
extern double dlock_answer_real(dlock_value value, unsigned char *is_null,
								unsigned char *error);
extern char *dlock_answer_text(UDF_INIT *init, dlock_value value,
							   dlock_text *text, unsigned long *length,
							   unsigned char *is_null, unsigned char *error);

/* For texts as long as they come: what fits into the server's MEDIUMTEXT. */
#define DLOCK_TEXT_LONG	16777215UL

/*
 * For short texts.  Where the server counts characters it takes each for 4
 * bytes.
 */
#define DLOCK_TEXT_SHORT	(4UL * UDF_RESULT_SIZE)

#define DLOCK_INTEGER_FUNCTION(name, least, most, parameters) \
static dlock_value name##_call(const UDF_ARGS *args, const char *function); \
DLOCK_EXPORT bool \
name##_init(UDF_INIT *init, UDF_ARGS *args, char *message) \
{ \
	static const dlock_signature signature = {#name, parameters, least, most}; \
	return dlock_begin_integer(init, args, message, &signature); \
} \
DLOCK_EXPORT void \
name##_deinit(UDF_INIT *init) \
{ \
	dlock_end(init); \
} \
DLOCK_EXPORT long long \
name(UDF_INIT *init, UDF_ARGS *args, unsigned char *is_null, \
	 unsigned char *error) \
{ \
	return dlock_answer_integer(name##_call(args, #name), is_null, error); \
} \
static dlock_value \
name##_call(const UDF_ARGS *args, const char *function)

#define DLOCK_REAL_FUNCTION(name, least, most, parameters) \
static dlock_value name##_call(const UDF_ARGS *args, const char *function); \
DLOCK_EXPORT bool \
name##_init(UDF_INIT *init, UDF_ARGS *args, char *message) \
{ \
	static const dlock_signature signature = {#name, parameters, least, most}; \
	return dlock_begin_real(init, args, message, &signature); \
} \
DLOCK_EXPORT void \
name##_deinit(UDF_INIT *init) \
{ \
	dlock_end(init); \
} \
DLOCK_EXPORT double \
name(UDF_INIT *init, UDF_ARGS *args, unsigned char *is_null, \
	 unsigned char *error) \
{ \
	return dlock_answer_real(name##_call(args, #name), is_null, error); \
} \
static dlock_value \
name##_call(const UDF_ARGS *args, const char *function)

#define DLOCK_TEXT_FUNCTION(name, longest, least, most, parameters) \
static dlock_value name##_call(const UDF_ARGS *args, const char *function, \
							   dlock_text *text); \
DLOCK_EXPORT bool \
name##_init(UDF_INIT *init, UDF_ARGS *args, char *message) \
{ \
	static const dlock_signature signature = {#name, parameters, least, most}; \
	return dlock_begin_text(init, args, message, &signature, longest); \
} \
DLOCK_EXPORT void \
name##_deinit(UDF_INIT *init) \
{ \
	dlock_end(init); \
} \
DLOCK_EXPORT char * \
name(UDF_INIT *init, UDF_ARGS *args, char *result, unsigned long *length, \
	 unsigned char *is_null, unsigned char *error) \
{ \
	dlock_text text = {0}; \
	dlock_value value = name##_call(args, #name, &text); \
	return dlock_answer_text(init, value, &text, length, is_null, error); \
} \
static dlock_value \
name##_call(const UDF_ARGS *args, const char *function, dlock_text *text)

#endif							/* DLOCK_UDF_FUNCTION_H */
