/*
 * udf_arguments.h
 *	  What the SQL functions are called with, checked.
 *
 * Every argument is taken as a string, whatever its type is in SQL, and read
 * here: the server's own conversions turn nonsense into 0 without a word.
 *
 * The functions that return false have raised an error.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_UDF_ARGUMENTS_H
#define DLOCK_UDF_ARGUMENTS_H

#include "lease_engine.h"
#include "server_abi.h"

/* What a function is called, and with what. */
typedef struct dlock_signature
{
	const char *function;
	const char *parameters;		/* as a user would write them */
	unsigned int least;			/* how many */
	unsigned int most;
} dlock_signature;

/* The names of a call for several, and what else it has of each. */
typedef struct dlock_names
{
	lease_bytes *names;
	size_t		count;
	void	   *memory;			/* where they are; to be freed */
	uint64_t   *tokens;			/* to match, 0 for any; NULL: any; to be freed */
} dlock_names;

extern bool dlock_prepare_arguments(UDF_ARGS *args, char *message,
									const dlock_signature *signature);
extern bool dlock_prepare_result(UDF_INIT *init);

extern bool dlock_get_string(const UDF_ARGS *args, unsigned int argument,
							 const char *what, lease_bytes *string);
extern bool dlock_get_request(const UDF_ARGS *args, unsigned int argument,
							  lease_bytes *request);
extern bool dlock_get_ttl(const UDF_ARGS *args, unsigned int argument,
						  int64_t *ttl_us);
extern bool dlock_get_wait(const UDF_ARGS *args, unsigned int argument,
						   int64_t *wait_us);
extern bool dlock_get_number(const UDF_ARGS *args, unsigned int argument,
							 const char *what, uint32_t *number);
extern bool dlock_get_permits(const UDF_ARGS *args, unsigned int argument,
							  uint32_t limit, uint32_t *permits);
extern bool dlock_get_token(const UDF_ARGS *args, unsigned int argument,
							uint64_t *token);
extern bool dlock_get_given_token(const UDF_ARGS *args, unsigned int argument,
								  uint64_t *token);
extern bool dlock_get_names(const UDF_ARGS *args, unsigned int argument,
							size_t least, size_t most, dlock_names *names);
extern bool dlock_get_tokens(const UDF_ARGS *args, unsigned int argument,
							 dlock_names *names);
extern void dlock_free_names(dlock_names *names);

extern bool dlock_get_caller(const char *function, bool with_rights,
							 dlock_caller *caller);
extern bool dlock_check_operator(const char *function);
extern bool dlock_sees_holder(const dlock_caller *caller,
							  const dlock_holder_info *holder);

#endif							/* DLOCK_UDF_ARGUMENTS_H */
