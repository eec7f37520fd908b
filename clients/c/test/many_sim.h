/*
 * many_sim.h
 *	  A client with many leases, a server, and an unlucky network.
 *
 * many_model.c takes chance from a generator, and many_fuzz.c from libFuzzer.  The
 * server holds leases by their deadlines; it carries out requests late, refuses some,
 * has one lease whose every call fails, and loses answers.  Operators end leases.  The
 * program releases and frees leases, and makes others, in the middle of calls.
 *
 * After every step: what the client believes to be held is held, by the server's clock,
 * for as long as it will believe so.  A lease is only lost, or never renewed, for a
 * reason of its own.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_MANY_SIM_H
#define DLOCK_MANY_SIM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chance.h"
#include "many.h"

#define SIM_LEASES		12

typedef struct sim_lease
{
	many_lease	l;
	bool		is_there;
	bool		poison;			/* every call with it fails */
	bool		evicted;
	bool		told_lost;
	bool		told_released;
	int64_t		server_us;		/* its deadline at the server; 0: not held */
	keep_state	state;
} sim_lease;

static struct
{
	int64_t		now_us;
	many		m;
	sim_lease	leases[SIM_LEASES];
	bool		calm;			/* the network has always been good */
	unsigned	renewals;
	unsigned	losses;
	unsigned	releases;
	unsigned	halves;
} sim;

static void
sim_must(bool kept, const char *what)
{
	if (!kept)
	{
		fprintf(stderr, "many_sim: %s, at %lld\n", what, (long long) sim.now_us);
		abort();
	}
}

static sim_lease *
sim_of(many_lease *lease)
{
	return (sim_lease *) ((char *) lease - offsetof(sim_lease, l));
}

/* Check all leases. */
static void
sim_check(void)
{
	for (int i = 0; i < SIM_LEASES; i++)
	{
		sim_lease  *s = &sim.leases[i];

		if (!s->is_there)
			continue;
		sim_must(s->l.state >= s->state, "a state comes again");
		s->state = s->l.state;
		if (s->l.tells & 1u << KEEP_TELL_LOST)
		{
			sim_must(!s->told_lost, "lost is told twice");
			s->told_lost = true;
			sim.losses++;
			sim_must(s->evicted || s->poison || !sim.calm, "lost for no reason");
		}
		if (s->l.tells & 1u << KEEP_TELL_RELEASED)
		{
			sim_must(!s->told_released && s->l.done, "a release is told twice, or too soon");
			s->told_released = true;
			sim.releases++;
			sim_must(!s->l.given_back || s->server_us == 0 || s->l.left_until_us != 0,
					 "given back, and the server has it");
			sim_must(s->server_us <= sim.now_us || s->evicted ||
					 s->l.left_until_us >= s->server_us,
					 "the server has a lease for longer than is known");
		}
		s->l.tells = 0;
		if (s->l.state != KEEP_HELD || s->evicted || s->l.lost_at_us <= sim.now_us)
			continue;
		sim_must(s->server_us >= s->l.deadline_us &&
				 s->l.lost_at_us < s->l.deadline_us,
				 "a client believes that it holds what it has not");
	}
}

/* The server carries out the call, for what is still there. */
static void
sim_serve(const many_action *action, int64_t at_us)
{
	for (size_t i = 0; i < sim.m.ncall; i++)
	{
		sim_lease  *s;
		bool		has;

		if (sim.m.call[i] == NULL)
			continue;
		s = sim_of(sim.m.call[i]);
		has = s->server_us > at_us;
		s->l.answer = has ? KEEP_TRUE : KEEP_GONE;
		if (has)
			s->server_us = action->kind == MANY_RELEASE ? 0 : at_us + action->for_us;
	}
}

static bool
sim_is_poisoned(void)
{
	for (size_t i = 0; i < sim.m.ncall; i++)
		if (sim.m.call[i] != NULL && sim_of(sim.m.call[i])->poison)
			return true;
	return false;
}

/* What the program does, at any moment. */
static void
sim_program(void)
{
	static const int64_t ttls[] = {30000000, 30000000, 9000000, 600000000};
	uint8_t		what = sim_byte();
	sim_lease  *s = &sim.leases[what % SIM_LEASES];

	if (!s->is_there)
	{
		*s = (sim_lease) {
			.is_there = true, .poison = what >= 0xf0,
			.l = {.ttl_us = ttls[sim_byte() % 4], .held_us = sim.now_us, .names = 1 + what % 3},
		};
		s->l.deadline_us = sim.now_us + s->l.ttl_us;
		s->l.alone = what % 5 == 0;
		s->l.keep_at_least_us = what % 7 == 0 ? s->l.ttl_us / 2 : 0;
		s->server_us = s->l.deadline_us + 1;
		many_add(&sim.m, &s->l, sim.now_us);
	}
	else if (what >= 0xe0)
		many_release(&sim.m, &s->l, sim.now_us);
	else if (what >= 0xd0 && s->server_us != 0)
	{
		s->evicted = true;
		s->server_us = 0;
	}
	else if (what >= 0xc8 || (what >= 0xa0 && s->told_released))
	{
		many_forget(&sim.m, &s->l);
		s->is_there = false;
		memset(&s->l, 0xaa, sizeof(s->l));
	}
}

/* An attempt, from its beginning to its end. */
static void
sim_attempt(const many_action *action)
{
	uint8_t		luck = sim.calm ? (uint8_t) (sim_byte() & 0x3f) : sim_byte();
	int64_t		took_us = 1 + luck % 16 * 20000;
	bool		poisoned = sim_is_poisoned();
	unsigned	names = 0;

	for (size_t i = 0; i < sim.m.ncall; i++)
	{
		many_lease *lease = sim.m.call[i];

		names += lease->names;
		sim_must(action->kind == MANY_RELEASE || lease->ttl_us == action->for_us ||
				 action->kind == MANY_LEAVE, "leases of two ttls in one call");
		sim_must(action->kind != MANY_RENEW ||
				 (action->until_us <= sim.now_us + lease->ttl_us / 4 &&
				  action->until_us <= lease->lost_at_us),
				 "a silent connection is not given up in time");
		sim_must(action->kind == MANY_RENEW || lease->state == KEEP_ENDED,
				 "what shortens a hold is asked for in another state");
		sim_must(i == 0 || sim.m.call[i - 1]->lost_at_us <= lease->lost_at_us,
				 "the call is not in the order of deadlines");
		sim_must(!lease->alone || sim.m.ncall == 1 || action->kind == MANY_RENEW,
				 "a release that is a call of its own is not");
	}
	sim_must((action->kind == MANY_CONNECT) == (sim.m.ncall == 0) &&
			 names <= MANY_NAMES_MAX, "a call for too many, or for none");
	sim_must(action->until_us > sim.now_us, "an attempt that is to end at once");

	/* the server is quick, or slow, and the program does something meanwhile */
	if (action->kind != MANY_CONNECT && luck < 0xd0 && !poisoned)
		sim_serve(action, sim.now_us + took_us / 2);
	sim.now_us += took_us;
	if (luck % 4 == 0)
		sim_program();
	if (luck >= 0xc0)
		return;					/* no answer: until it is given up */
	if (action->kind == MANY_CONNECT)
	{
		if (luck >= 0x80)
			many_failed(&sim.m, false, false, false, sim.now_us);
		else
			many_connected(&sim.m, sim.now_us);
	}
	else if (poisoned || luck >= 0xa0)
	{
		sim.halves += sim.m.ncall > 1;
		many_failed(&sim.m, poisoned, poisoned, poisoned, sim.now_us);
	}
	else
	{
		sim.renewals += action->kind == MANY_RENEW;
		many_answered(&sim.m, sim.now_us);
	}
}

/* Live through one history. */
static void
sim_run(const uint8_t *data, size_t size)
{
	memset(&sim, 0, sizeof(sim));
	chance.input = data;
	chance.left = size;
	sim.now_us = 1000000;
	sim.m.owner_is_ours = sim_byte() & 1;
	sim.calm = (sim_byte() & 1) != 0;
	for (int turns = 0; chance.left > 0; turns++)
	{
		many_lease *all[SIM_LEASES];
		size_t		n = 0;
		many_action action;

		for (int i = 0; i < SIM_LEASES; i++)
			if (sim.leases[i].is_there && !sim.leases[i].told_released)
				all[n++] = &sim.leases[i].l;
		action = many_next(&sim.m, all, n, sim.now_us);
		sim_check();
		if (action.kind == MANY_AWAIT)
		{
			uint8_t		luck = sim_byte();

			sim_must(action.until_us > sim.now_us, "the client is to go on at once");
			/* the time that it asks for, or sooner, since something happens */
			if (luck < 0xa0 && action.until_us != KEEP_NEVER)
				sim.now_us = action.until_us;
			else
			{
				sim.now_us += luck * INT64_C(1000);
				if (sim.now_us > action.until_us)
					sim.now_us = action.until_us;
				sim_program();
			}
		}
		else if (action.kind != MANY_DROP)
			sim_attempt(&action);
		sim_check();
	}
}

#endif							/* DLOCK_MANY_SIM_H */
