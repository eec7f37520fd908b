/*
 * histories.h
 *	  The main loop of keep_model.c and many_model.c: many random histories.
 *
 * -s is the seed, -n the number of histories; the same seed gives the same histories on
 * every machine.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_HISTORIES_H
#define DLOCK_HISTORIES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

/*
 * Live through the histories that the arguments ask for, by run(); after each, add()
 * adds what it came to to the kinds of counts.  Each kind must have come about in one
 * history of a hundred.  Returns how many histories there were, and ends the process
 * when something is wrong.
 */
static unsigned long
live_histories(int argc, char **argv, void (*run) (const uint8_t *, size_t),
			   void (*add) (unsigned long *), unsigned long *counts, int kinds)
{
	uint64_t	seed = 1;
	unsigned long histories = 3000;
	int			option;

	while ((option = getopt(argc, argv, "s:n:")) != -1)
		if (option == 's')
			seed = strtoull(optarg, NULL, 10);
		else if (option == 'n')
			histories = strtoul(optarg, NULL, 10);
		else
			exit(2);
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
		run(data, sizeof(data));
		add(counts);
	}
	for (int i = 0; i < kinds; i++)
		if (counts[i] < histories / 100)
		{
			fprintf(stderr, "%s: what is to be tested hardly comes about\n", argv[0]);
			exit(1);
		}
	return histories;
}

#endif							/* DLOCK_HISTORIES_H */
