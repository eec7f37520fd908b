/*
 * keep_fuzz.c
 *	  Histories of clients, a server and a network that libFuzzer makes up.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "keep_sim.h"

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	sim_run(data, size);
	return 0;
}
