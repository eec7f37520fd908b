/*
 * many_model.c
 *	  Many random histories of a client with many leases.
 *
 * See many_sim.h for what is simulated, and what must hold.  -s is the seed, -n the
 * number of histories; the same seed gives the same histories on every machine.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "many_sim.h"

#include <unistd.h>

#define HISTORY_SIZE	2000

/* Steele, Lea and Flood's SplitMix64. */
static uint64_t
next(uint64_t *state)
{
	uint64_t	z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

int
main(int argc, char **argv)
{
	uint64_t	seed = 1;
	unsigned long histories = 3000;
	unsigned long counts[4] = {0};
	int			option;

	while ((option = getopt(argc, argv, "s:n:")) != -1)
		if (option == 's')
			seed = strtoull(optarg, NULL, 10);
		else if (option == 'n')
			histories = strtoul(optarg, NULL, 10);
		else
			return 2;
	for (unsigned long i = 0; i < histories; i++)
	{
		uint64_t	state = seed + i;
		uint8_t		data[HISTORY_SIZE];
		/* some networks are better than others */
		uint8_t		mild = (uint8_t) (next(&state) % 4);

		for (size_t j = 0; j < sizeof(data); j++)
		{
			uint64_t	number = next(&state);

			data[j] = (uint8_t) number;
			if (mild > 0 && (number >> 8) % 4 < mild)
				data[j] &= 0x3f;
		}
		sim_run(data, sizeof(data));
		counts[0] += sim.renewals;
		counts[1] += sim.losses;
		counts[2] += sim.releases;
		counts[3] += sim.halves;
	}
	for (int i = 0; i < 4; i++)
		if (counts[i] < histories / 100)
		{
			fprintf(stderr, "many_model: what is to be tested hardly comes about\n");
			return 1;
		}
	printf("%lu histories of many leases, with %lu renewals, %lu losses, %lu releases and %lu calls that were halved: client and server agree\n",
		   histories, counts[0], counts[1], counts[2], counts[3]);
	return 0;
}
