/*
 * udf_arguments.h
 *	  The arguments of the SQL functions: declared, read and checked.
 *
 * Every argument is taken as a string, whatever its type is in SQL, and read here: the
 * server's own conversions silently turn nonsense into 0.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_UDF_ARGUMENTS_H
#define DLOCK_UDF_ARGUMENTS_H

#include "lease_engine.h"
#include "server_abi.h"

/* All parameters.  The comments say where in the dlock_call their arguments go. */
typedef enum dlock_parameter
{
	DLOCK_NO_MORE,
	DLOCK_NAME,					/* names: this one */
	DLOCK_NAMES,				/* names: 1 to DLOCK_MAX_NAMES */
	DLOCK_MANY_NAMES,			/* names: none to DLOCK_MAX_MANY */
	DLOCK_OWNER,				/* request.owner */
	DLOCK_TTL,					/* request.ttl_us */
	DLOCK_AFTER,				/* the same */
	DLOCK_LIMIT,				/* request.limit */
	DLOCK_PERMITS,				/* request.permits; comes after the limit */
	DLOCK_COUNT,				/* wanted */
	DLOCK_WAIT,					/* wait_us */
	DLOCK_REQUEST,				/* request.request */
	DLOCK_TOKEN,				/* request.token */
	DLOCK_TOKENS,				/* tokens; comes after the names */
	DLOCK_HOLDS,				/* request.holds */
	DLOCK_ROWS,					/* the function reads these itself */
	DLOCK_USER,
	DLOCK_HOST,
	DLOCK_PAGE
} dlock_parameter;

#define DLOCK_MAX_PARAMETERS	7

/* The parameters of a function. */
typedef struct dlock_signature
{
	const char *function;
	unsigned int least;			/* how many arguments there have to be */
	dlock_parameter parameters[DLOCK_MAX_PARAMETERS + 1];	/* to DLOCK_NO_MORE */
} dlock_signature;

struct dlock_use;

extern bool dlock_prepare_arguments(UDF_ARGS *args, char *message,
									const dlock_signature *signature);
extern bool dlock_prepare_result(UDF_INIT *init);

extern bool dlock_read(struct dlock_use *use);

#endif							/* DLOCK_UDF_ARGUMENTS_H */
