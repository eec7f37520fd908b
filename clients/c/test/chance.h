/*
 * chance.h
 *	  What a simulation (keep_sim.h, many_sim.h) asks for its next decision.
 *
 * A history is a string of bytes; a simulation takes one for each thing that chance
 * decides, and ends when none is left.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_CHANCE_H
#define DLOCK_CHANCE_H

#include <stddef.h>
#include <stdint.h>

static struct
{
	const uint8_t *input;
	size_t		left;
} chance;

/* The next byte of the history; 0 when none is left. */
static uint8_t
sim_byte(void)
{
	if (chance.left == 0)
		return 0;
	chance.left--;
	return *chance.input++;
}

#endif							/* DLOCK_CHANCE_H */
