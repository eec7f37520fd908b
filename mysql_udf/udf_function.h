/*
 * udf_function.h
 *	  The frame of a user-defined function.
 *
 * The server wants three entry points of each function: one before the first call of a
 * statement, the call, and one after the last.  These macros write them, from the
 * function's name, whether it acts, how many arguments it needs, and its parameters;
 * the body of the call follows:
 *
 *		DLOCK_INTEGER_FUNCTION(dlock_renew_all, DLOCK_ACTS, 2, DLOCK_OWNER, DLOCK_TTL)
 *		{
 *			...
 *			return dlock_integer(count);
 *		}
 *
 * DLOCK_REAL_FUNCTION answers dlock_real().  DLOCK_TEXT_FUNCTION puts its answer
 * into use->text and says so by dlock_is_text(); its second argument is the
 * longest answer, in bytes, from which the server makes the type of the column.
 *
 * Every row is a call: nothing lasting happens before it, and no answer is kept for the
 * next row.  A function that acts answers NULL in EXPLAIN, and fails in an expression of
 * a table.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_UDF_FUNCTION_H
#define DLOCK_UDF_FUNCTION_H

#include "server_abi.h"
#include "udf_arguments.h"
#include "udf_text.h"

#define DLOCK_EXPORT	__attribute__((visibility("default")))

/* The result of a call. */
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
dlock_is_text(void)
{
	return (dlock_value) {.kind = DLOCK_IS_VALUE};
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

struct dlock_function;

/*
 * A function at work: its arguments, its caller, and its answer.  All of it is zero at
 * first.
 */
typedef struct dlock_use
{
	const struct dlock_function *function;
	const char *name;			/* by which errors call it */
	const UDF_ARGS *args;
	lease_bytes one_name;		/* the call's names: this one, */
	lease_bytes *names;			/* or these, to be freed */
	uint64_t   *tokens;			/* the call's tokens, to be freed */
	dlock_call	call;			/* to the engine; dlock_read() begins it */
	dlock_caller caller;		/* dlock_get_caller() finds it out */
	dlock_rights rights;		/* of the caller; dlock_sees() finds them out */
	dlock_answer answer;		/* the engine's */
	lease_text	text;
} dlock_use;

/* What the macros say of a function. */
typedef struct dlock_function
{
	dlock_signature signature;
	dlock_value (*body) (dlock_use *use);
	enum
	{
		DLOCK_LOOKS,
		DLOCK_ACTS				/* takes, changes or waits for something */
	}			effect;
	bool		is_text;
	unsigned long longest;		/* answer */
	unsigned int decimals;
} dlock_function;

extern bool dlock_begin(UDF_INIT *init, UDF_ARGS *args, char *message,
						const dlock_function *function);
extern void dlock_end(UDF_INIT *init);
extern dlock_value dlock_make(UDF_INIT *init, const UDF_ARGS *args,
							  unsigned char *is_null, unsigned char *error);
extern char *dlock_make_text(UDF_INIT *init, const UDF_ARGS *args,
							 unsigned long *length, unsigned char *is_null,
							 unsigned char *error);

/* For the bodies, as dlock_read() is.  Those that return false have raised an error. */
extern bool dlock_get_caller(dlock_use *use);
extern bool dlock_check_operator(const dlock_use *use);
extern bool dlock_ask_engine(dlock_use *use);

extern bool dlock_sees(dlock_use *use, lease_bytes user, lease_bytes host);

/* The longest answer for texts of any length: the server's MEDIUMTEXT. */
#define DLOCK_TEXT_LONG	16777215UL

/* The same for short texts.  Where the server counts characters, each takes 4 bytes. */
#define DLOCK_TEXT_SHORT	(4UL * UDF_RESULT_SIZE)

/* As many decimals as there are: the servers' NOT_FIXED_DEC. */
#define DLOCK_ANY_DECIMALS	31

#define DLOCK_FUNCTION(name, acts, text, size, digits, fewest, ...) \
static dlock_value name##_body(dlock_use *use); \
static const dlock_function name##_function = { \
	.signature = {#name, fewest, {__VA_ARGS__}}, .body = name##_body, \
	.effect = acts, .is_text = text, .longest = size, .decimals = digits \
}; \
DLOCK_EXPORT bool \
name##_init(UDF_INIT *init, UDF_ARGS *args, char *message) \
{ \
	return dlock_begin(init, args, message, &name##_function); \
} \
DLOCK_EXPORT void \
name##_deinit(UDF_INIT *init) \
{ \
	dlock_end(init); \
}

#define DLOCK_INTEGER_FUNCTION(name, acts, ...) \
DLOCK_FUNCTION(name, acts, false, 21, 0, __VA_ARGS__) \
DLOCK_EXPORT long long \
name(UDF_INIT *init, UDF_ARGS *args, unsigned char *is_null, \
	 unsigned char *error) \
{ \
	return dlock_make(init, args, is_null, error).integer; \
} \
static dlock_value \
name##_body(dlock_use *use)

#define DLOCK_REAL_FUNCTION(name, acts, ...) \
DLOCK_FUNCTION(name, acts, false, 23, DLOCK_ANY_DECIMALS, __VA_ARGS__) \
DLOCK_EXPORT double \
name(UDF_INIT *init, UDF_ARGS *args, unsigned char *is_null, \
	 unsigned char *error) \
{ \
	return dlock_make(init, args, is_null, error).real; \
} \
static dlock_value \
name##_body(dlock_use *use)

#define DLOCK_TEXT_FUNCTION(name, longest, acts, ...) \
DLOCK_FUNCTION(name, acts, true, longest, 0, __VA_ARGS__) \
DLOCK_EXPORT char * \
name(UDF_INIT *init, UDF_ARGS *args, char *result, unsigned long *length, \
	 unsigned char *is_null, unsigned char *error) \
{ \
	return dlock_make_text(init, args, length, is_null, error); \
} \
static dlock_value \
name##_body(dlock_use *use)

#endif							/* DLOCK_UDF_FUNCTION_H */
