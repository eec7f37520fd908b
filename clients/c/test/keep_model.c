/*
 * keep_model.c
 *	  Many random histories of clients, a server and a network.
 *
 * See keep_sim.h for what is simulated, and what must hold, and histories.h for the
 * arguments.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "keep_sim.h"
#include "histories.h"

static void
add_counts(unsigned long *counts)
{
	counts[0] += sim.grants;
	counts[1] += sim.renewals;
	counts[2] += sim.losses;
	counts[3] += sim.refusals;
	counts[4] += sim.failures;
	counts[5] += sim.releases;
}

int
main(int argc, char **argv)
{
	unsigned long counts[6] = {0};
	unsigned long histories = live_histories(argc, argv, sim_run, add_counts, counts, 6);

	printf("%lu histories of a lease, with %lu grants, %lu renewals, %lu losses, %lu refusals, %lu failures and %lu releases: never two holders, client and server agree\n",
		   histories, counts[0], counts[1], counts[2], counts[3], counts[4], counts[5]);
	return 0;
}
