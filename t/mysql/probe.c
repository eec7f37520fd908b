/*
 * probe.c
 *	  A function that makes mistakes, to see whether the sanitizers notice them.
 *
 * probe() reads behind the end of its memory, computes what is undefined, and
 * forgets what it has allocated.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct UDF_INIT UDF_INIT;
typedef struct UDF_ARGS UDF_ARGS;

extern bool probe_init(UDF_INIT *init, UDF_ARGS *args, char *message);
extern long long probe(UDF_INIT *init, UDF_ARGS *args, unsigned char *is_null,
					   unsigned char *error);

bool
probe_init(UDF_INIT *init, UDF_ARGS *args, char *message)
{
	(void) init, (void) args, (void) message;
	return false;
}

long long
probe(UDF_INIT *init, UDF_ARGS *args, unsigned char *is_null,
	  unsigned char *error)
{
	char	   *volatile memory = NULL;
	volatile int size = 100;
	volatile int sum = INT_MAX;

	(void) init, (void) args, (void) is_null, (void) error;
	/* several, as the last one's address may linger somewhere */
	for (int i = 0; i < 10; i++)
		memory = calloc(1, (size_t) size);
	sum += size;
	return memory[size] == sum;
}
