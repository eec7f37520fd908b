/*
 * many_model.c
 *	  Many random histories of a client with many leases.
 *
 * See many_sim.h for what is simulated, and what must hold, and histories.h for the
 * arguments.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "many_sim.h"
#include "histories.h"

static void
add_counts(unsigned long *counts)
{
	counts[0] += sim.renewals;
	counts[1] += sim.losses;
	counts[2] += sim.releases;
	counts[3] += sim.halves;
}

int
main(int argc, char **argv)
{
	unsigned long counts[4] = {0};
	unsigned long histories = live_histories(argc, argv, sim_run, add_counts, counts, 4);

	printf("%lu histories of many leases, with %lu renewals, %lu losses, %lu releases and %lu calls that were halved: client and server agree\n",
		   histories, counts[0], counts[1], counts[2], counts[3]);
	return 0;
}
