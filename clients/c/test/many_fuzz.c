/*
 * many_fuzz.c
 *	  Histories of a client with many leases that libFuzzer makes up.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "many_sim.h"

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	sim_run(data, size);
	return 0;
}
