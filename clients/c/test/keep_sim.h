/*
 * keep_sim.h
 *	  A server, a network and some clients, all of them unlucky.
 *
 * keep_model.c takes chance from a generator, and keep_fuzz.c from libFuzzer.
 * Some clients, each a keep and the driver around it, want one name.  The
 * server grants leases as dlock does, by a clock of its own that may run
 * faster, as much as the margin allows.  Requests and answers are late or lost,
 * or come when nobody listens; requests are carried out long after the client
 * has given them up; connections hang, are refused or cut; clients are stopped,
 * and find the time changed when they go on; an operator ends leases.
 *
 * After every step the history must have kept what keep.h promises.  Above all: a
 * client that believes that it holds the lease has it, by the server's clock, for as
 * long as it will believe so.  The server has one holder, so no two clients
 * believe it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_KEEP_SIM_H
#define DLOCK_KEEP_SIM_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chance.h"
#include "keep.h"

#define SIM_CLIENTS		4
#define SIM_MESSAGES	256
#define SIM_WAITERS		64

typedef enum sim_kind
{
	SIM_NOTHING,
	SIM_REQUEST,				/* comes to the server */
	SIM_ANSWER,					/* comes to the client */
	SIM_FAULT,
	SIM_CONNECTED,
	SIM_CLOSED,					/* the server notices that a connection is gone */
} sim_kind;

typedef struct sim_message
{
	sim_kind	kind;
	int64_t		at_us;
	int			client;
	unsigned	connection;
	unsigned	call;			/* the client's call that it is about */
	keep_action_kind what;
	unsigned	owner;
	unsigned	request;
	int64_t		token;
	int64_t		ttl_us;
	int64_t		wait_us;
	keep_answer answer;
	keep_fault	fault;
	uint8_t		luck;			/* of the answer */
} sim_message;

typedef struct sim_client
{
	keep		k;
	bool		is_there;
	unsigned	owner;
	unsigned	request;
	unsigned	connection;		/* 0: none */
	unsigned	call;			/* the last that was made */
	keep_action_kind asked;
	int64_t		offset_us;		/* of its clock */
	int64_t		wake_us;		/* when it asks again, true time */
	int64_t		stopped_us;		/* until then it does nothing, true time */
	int64_t		failed_us;		/* when an attempt has failed, its time */
	keep_state	failed_in;
	bool		unlucky;		/* something has gone wrong */
	bool		evicted;		/* an operator has ended its lease */
	bool		left;			/* a client with its owner has left it */
	bool		told_held;
	bool		told_lost;
	bool		told_end;
	bool		released;
	keep_state	state;
} sim_client;

/*
 * The whole state; a waiter at the server is its request, with at_us the end of
 * its wait.
 */
static struct
{
	int64_t		now_us;			/* true time */
	int64_t		drift;			/* millionths by which the server's clock is fast */
	sim_client	clients[SIM_CLIENTS];
	sim_message messages[SIM_MESSAGES];
	sim_message waiters[SIM_WAITERS];
	size_t		nwaiters;
	unsigned	last;			/* owner, request, connection */
	int64_t		last_token;
	/* The holder: owner 0 is none. */
	unsigned	owner;
	unsigned	request;
	int64_t		token;
	int64_t		deadline_us;	/* the server's time */
	unsigned	version;
	bool		has_release_after;	/* else it is renewed to be left */
	bool		leaving;		/* by that */
	/* What has happened, to check that it did. */
	unsigned	grants;
	unsigned	losses;
	unsigned	renewals;
	unsigned	refusals;
	unsigned	releases;
	unsigned	failures;
} sim;

static void
sim_must(bool kept, const char *what)
{
	if (!kept)
	{
		fprintf(stderr, "keep_sim: %s, at %" PRId64 "\n", what, sim.now_us);
		abort();
	}
}

/* The server's clock at a true time. */
static int64_t
sim_server_us(int64_t true_us)
{
	return true_us + true_us / 1000000 * sim.drift +
		true_us % 1000000 * sim.drift / 1000000;
}

/* The first true time at which the server's clock shows this time or more. */
static int64_t
sim_true_us(int64_t server_us)
{
	int64_t		low = server_us / 2;
	int64_t		high = 2 * server_us;

	while (low < high)
	{
		int64_t		middle = low + (high - low) / 2;

		if (sim_server_us(middle) >= server_us)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* The contract's margin, computed independently. */
static int64_t
sim_margin_us(int64_t ttl_us)
{
	return ttl_us > 10000000 ? 1000000 : ttl_us / 10;
}

/* A random duration: mostly far below a ttl, sometimes about one, or more. */
static int64_t
sim_delay_us(int64_t ttl_us, uint8_t luck)
{
	if (luck < 0x40)
		return 1 + ttl_us / 100 * (luck & 7) / 8;
	if (luck < 0xc0)
		return 1 + ttl_us / 16 * (luck & 15);
	return 1 + ttl_us / 8 * (luck & 63);
}

static sim_message *
sim_send(sim_kind kind, int client, int64_t delay_us)
{
	for (size_t i = 0; i < SIM_MESSAGES; i++)
		if (sim.messages[i].kind == SIM_NOTHING)
		{
			sim.messages[i] = (sim_message) {
				.kind = kind, .client = client, .at_us = sim.now_us + delay_us,
				.connection = sim.clients[client].connection,
				.call = sim.clients[client].call,
			};
			return &sim.messages[i];
		}
	sim_must(false, "the simulation has no room for messages");
	return NULL;
}

/* The server answers a request, unless the network swallows it. */
static void
sim_answer(const sim_message *request, keep_answer answer, int64_t token)
{
	sim_message *m;
	uint8_t		luck = request->luck;

	if (luck >= 0xf8)
		return;					/* swallowed */
	m = sim_send(luck >= 0xf0 ? SIM_FAULT : SIM_ANSWER, request->client,
				 sim_delay_us(request->ttl_us, luck & 0x3f));
	m->connection = request->connection;
	m->call = request->call;
	m->what = request->what;
	m->answer = answer;
	m->token = token;
	m->fault = KEEP_UNAVAILABLE;
}

/* Forget a holder whose time is over. */
static void
sim_expire(void)
{
	if (sim.owner != 0 && sim.deadline_us <= sim_server_us(sim.now_us))
		sim.owner = 0;
}

static void
sim_take(const sim_message *request)
{
	int64_t		deadline_us = sim_server_us(sim.now_us) + request->ttl_us;

	if (sim.owner == 0)
	{
		sim.owner = request->owner;
		sim.token = sim.last_token += 1 + request->request % 3;
		sim.version = 1;
		sim.leaving = false;
		sim.deadline_us = deadline_us;
	}
	else
	{
		sim.version += sim.request != request->request;
		if (sim.deadline_us < deadline_us)
			sim.deadline_us = deadline_us;
	}
	sim.request = request->request;
	sim_answer(request, KEEP_GRANTED, sim.token);
}

/* Take a waiter out of the line. */
static void
sim_leave(size_t i)
{
	sim.nwaiters--;
	memmove(&sim.waiters[i], &sim.waiters[i + 1],
			(sim.nwaiters - i) * sizeof(sim.waiters[0]));
}

/* The server grants to waiters, or refuses them when their wait ends. */
static void
sim_serve(void)
{
	sim_expire();
	for (size_t i = 0; i < sim.nwaiters;)
	{
		sim_message *w = &sim.waiters[i];

		if (sim.owner == 0 || (sim.owner == w->owner && !sim.leaving))
			sim_take(w);
		else if (w->wait_us >= 0 && w->at_us <= sim_server_us(sim.now_us))
			sim_answer(w, KEEP_REFUSED, 0);
		else
		{
			i++;
			continue;
		}
		sim_leave(i);
	}
}

/* A request has come to the server. */
static void
sim_request(sim_message *m)
{
	bool		mine;

	sim_serve();
	mine = sim.owner == m->owner && (m->token == 0 || m->token == sim.token) &&
		(!sim.leaving || m->what == KEEP_LEAVE);
	switch (m->what)
	{
		case KEEP_ACQUIRE:
			if ((sim.owner == m->owner && !sim.leaving) ||
				(sim.owner == 0 && sim.nwaiters == 0))
				sim_take(m);
			else if (m->wait_us == 0 || sim.nwaiters == SIM_WAITERS)
				sim_answer(m, KEEP_REFUSED, 0);
			else
			{
				m->at_us = sim_server_us(sim.now_us) + m->wait_us;
				sim.waiters[sim.nwaiters++] = *m;
			}
			break;
		case KEEP_RENEW:
		case KEEP_LEAVE:
			if (mine && !sim.leaving)
				sim.deadline_us = sim_server_us(sim.now_us) + m->ttl_us;
			if (mine && m->what == KEEP_LEAVE && sim.has_release_after)
			{
				sim.leaving = true;
				for (int j = 0; j < SIM_CLIENTS; j++)
					sim.clients[j].left |= sim.clients[j].owner == m->owner;
			}
			sim_answer(m, mine ? KEEP_TRUE : KEEP_GONE, 0);
			break;
		default:
			if (mine && --sim.version == 0)
				sim.owner = 0;
			sim_answer(m, mine ? KEEP_TRUE : KEEP_GONE, 0);
			break;
	}
	sim_serve();
}

/* A client's clock. */
static int64_t
sim_client_us(const sim_client *c)
{
	return sim.now_us + c->offset_us;
}

/* The connection is gone for the client; the server notices some time. */
static void
sim_drop(int i)
{
	sim_client *c = &sim.clients[i];

	if (c->connection != 0)
		sim_send(SIM_CLOSED, i, sim_delay_us(1000000, sim_byte() & 0xbf));
	c->connection = 0;
	c->asked = KEEP_AWAIT;
}

/* An attempt has failed. */
static void
sim_note_failure(sim_client *c)
{
	c->failed_us = sim_client_us(c);
	c->failed_in = c->k.state;
}

static void
sim_connect(int i)
{
	sim_client *c = &sim.clients[i];
	uint8_t		luck = sim_byte();

	sim_must(c->failed_us == 0 || c->failed_in != c->k.state ||
			 c->k.state > KEEP_HELD ||
			 sim_client_us(c) >= c->failed_us + KEEP_PAUSE_US,
			 "there was no pause");
	c->connection = ++sim.last;
	c->unlucky |= luck >= 0x40;
	if (luck >= 0xf0)
		return;					/* hangs */
	sim_send(luck >= 0xd0 ? SIM_FAULT : SIM_CONNECTED, i,
			 sim_delay_us(c->k.config.ttl_us, luck & 0x7f))->fault =
		luck >= 0xec ? KEEP_MISUSE : KEEP_UNAVAILABLE;
}

static void
sim_call(int i, const keep_action *action)
{
	sim_client *c = &sim.clients[i];
	uint8_t		luck = sim_byte();
	sim_message *m;

	sim_must(action->kind != KEEP_ACQUIRE || c->k.config.wait_us < 0 ||
			 (action->wait_us >= 0 && action->wait_us <= c->k.config.wait_us),
			 "an acquire waits for longer than is left");
	sim_must(action->kind != KEEP_RENEW || action->token == c->k.token,
			 "a renewal does not name the token");
	sim_must(action->kind != KEEP_LEAVE || action->leave_us > 0,
			 "a lease is left for no time");
	c->call++;
	c->unlucky |= luck >= 0x40;
	if (luck >= 0xf8)
		return;					/* swallowed */
	if (luck >= 0xe0)
	{
		m = sim_send(SIM_FAULT, i, sim_delay_us(c->k.config.ttl_us, luck & 0x3f));
		m->fault = luck >= 0xf4 ? KEEP_DEADLOCK : luck >= 0xf0 ? KEEP_MISUSE :
			KEEP_UNAVAILABLE;
		/* the server may do it all the same, unless it has refused */
		if (m->fault != KEEP_UNAVAILABLE || luck >= 0xe8)
			return;
	}
	m = sim_send(SIM_REQUEST, i, sim_delay_us(c->k.config.ttl_us,
											  luck & 0x40 ? sim_byte() : luck));
	m->what = action->kind;
	m->owner = c->owner;
	m->request = c->request;
	m->token = action->token;
	m->ttl_us = action->kind == KEEP_LEAVE ? action->leave_us :
		c->k.config.ttl_us;
	m->wait_us = action->wait_us;
	m->luck = sim_byte();
	c->unlucky |= m->luck >= 0x40;
}

/* The keep tells the program something. */
static void
sim_tell(sim_client *c, const keep_action *action)
{
	sim_must(!c->told_end, "something is told after the end");
	switch (action->kind)
	{
		case KEEP_TELL_HELD:
			sim_must(!c->told_held, "held is told twice");
			sim_must(keep_is_held(&c->k, sim_client_us(c)), "held, and is not");
			c->told_held = true;
			sim.grants++;
			break;
		case KEEP_TELL_RENEWED:
			sim_must(c->told_held && keep_is_held(&c->k, sim_client_us(c)),
					 "renewed, and not held");
			sim.renewals++;
			break;
		case KEEP_TELL_LOST:
			sim_must(c->told_held && !c->told_lost, "lost, and not held");
			sim_must(c->unlucky || c->evicted || c->left, "lost for no reason");
			c->told_lost = true;
			sim.losses++;
			break;
		default:
			sim_must((action->kind == KEEP_TELL_RELEASED) == c->released,
					 "the end is another one than it should be");
			sim_must(c->released || !c->told_held, "refused or failed when held");
			c->told_end = true;
			sim.refusals += action->kind == KEEP_TELL_REFUSED;
			sim.failures += action->kind == KEEP_TELL_FAILED;
			sim.releases += action->kind == KEEP_TELL_RELEASED;
			break;
	}
}

/* Let a client do what keep_next() says. */
static void
sim_drive(int i)
{
	sim_client *c = &sim.clients[i];

	for (int turns = 0;; turns++)
	{
		keep_action action = keep_next(&c->k, sim_client_us(c));

		sim_must(turns < 100, "a client is busy for ever");
		switch (action.kind)
		{
			case KEEP_AWAIT:
				sim_must(action.until_us > sim_client_us(c),
						 "a client is to ask again at once");
				c->wake_us = action.until_us == KEEP_NEVER ? KEEP_NEVER :
					action.until_us - c->offset_us;
				/* late, a little */
				if (c->wake_us != KEEP_NEVER && sim_byte() >= 0xe0)
				{
					c->wake_us += sim_byte();
					c->unlucky |= c->k.config.ttl_us < 100000;
				}
				return;
			case KEEP_DONE:
				sim_must(c->told_end, "done, and nothing was told");
				sim_drop(i);
				c->is_there = false;
				return;
			case KEEP_DROP:
				sim_must(c->asked != KEEP_AWAIT, "nothing is dropped");
				sim_drop(i);
				sim_note_failure(c);
				continue;
			case KEEP_CONNECT:
			case KEEP_ACQUIRE:
			case KEEP_RENEW:
			case KEEP_RELEASE:
			case KEEP_LEAVE:
				sim_must(c->asked == KEEP_AWAIT, "two attempts at once");
				sim_must((action.kind == KEEP_CONNECT) == (c->connection == 0),
						 "a call without a connection, or one too many");
				c->asked = action.kind;
				if (action.kind == KEEP_CONNECT)
					sim_connect(i);
				else
					sim_call(i, &action);
				continue;
			default:
				sim_tell(c, &action);
				continue;
		}
	}
}

/* Something comes to a client. */
static void
sim_hear(const sim_message *m)
{
	sim_client *c = &sim.clients[m->client];
	int64_t		now_us = sim_client_us(c);

	if (!c->is_there || m->connection != c->connection || m->call != c->call ||
		c->asked == KEEP_AWAIT)
		return;
	if (m->kind == SIM_CONNECTED)
	{
		if (c->asked != KEEP_CONNECT)
			return;
		c->asked = KEEP_AWAIT;
		keep_connected(&c->k, now_us);
	}
	else if (m->kind == SIM_FAULT)
	{
		keep_fault	fault = m->fault;

		if (fault == KEEP_DEADLOCK && c->asked != KEEP_ACQUIRE)
			fault = KEEP_UNAVAILABLE;
		sim_drop(m->client);
		sim_note_failure(c);
		keep_failed(&c->k, fault, now_us);
	}
	else
	{
		bool		ends = c->k.state == KEEP_HELD &&
			(now_us >= c->k.lost_at_us ||
			 (c->asked == KEEP_RENEW && m->answer == KEEP_GONE));

		c->asked = KEEP_AWAIT;
		keep_answered(&c->k, m->answer, m->token, now_us);
		sim_must(!ends || c->k.state == KEEP_LOST,
				 "a lease outlives its time, or the server's word that it is gone");
	}
}

/* Check a client: what it believes must be true. */
static void
sim_check(sim_client *c)
{
	const keep *k = &c->k;

	if (!c->is_there)
		return;
	sim_must(k->state >= c->state, "a state comes again");
	c->state = k->state;
	sim_must(!keep_is_held(k, k->lost_at_us), "held when it is lost");
	if (k->state != KEEP_HELD)
	{
		sim_must(!keep_is_held(k, sim_client_us(c)), "held in another state");
		return;
	}
	sim_must(k->lost_at_us == k->deadline_us - sim_margin_us(k->config.ttl_us),
			 "the margin is wrong");
	if (c->evicted)
		return;
	/*
	 * up to the last moment for which it believes it, even if it is stopped
	 * until then
	 */
	if (k->lost_at_us - c->offset_us > sim.now_us)
		sim_must(sim.owner == c->owner && sim.token == k->token &&
				 sim.deadline_us > sim_server_us(k->lost_at_us - c->offset_us - 1),
				 "a client believes that it holds what it has not");
}

/* A new client. */
static void
sim_enter(int i, int64_t ttl_us, unsigned shared_owner)
{
	static const int64_t waits[] = {0, 0, -1, 1, 3, 10};
	sim_client *c = &sim.clients[i];
	uint8_t		choice = sim_byte();
	keep_config config = {
		.ttl_us = ttl_us,
		.connect_timeout_us = ttl_us / 2 * (1 + (choice & 3)) + 1,
		.owner_is_ours = shared_owner == 0,
	};

	config.wait_us = waits[sim_byte() % 6];
	if (config.wait_us > 0)
		config.wait_us *= ttl_us;
	config.keep_at_least_us = choice >= 0xc0 ? ttl_us / 4 * (choice & 15) : 0;
	sim_must(keep_check_config(&config), "a configuration that is none");
	*c = (sim_client) {
		.is_there = true,
		.owner = shared_owner != 0 ? shared_owner : ++sim.last,
		.offset_us = (int64_t) (choice & 0x30) * 12345678,
		.wake_us = KEEP_NEVER,
	};
	c->request = ++sim.last;
	keep_init(&c->k, &config);
	keep_start(&c->k, sim_client_us(c));
	sim_drive(i);
}

/* When a client goes on. */
static int64_t
sim_wake_us(const sim_client *c)
{
	return c->wake_us > c->stopped_us ? c->wake_us : c->stopped_us;
}

/* Say whether a message waits in the socket of a client that is stopped. */
static bool
sim_is_held_up(const sim_message *m)
{
	return m->kind != SIM_REQUEST && m->kind != SIM_CLOSED &&
		sim.clients[m->client].is_there &&
		sim.clients[m->client].stopped_us > sim.now_us;
}

/* The time of the next thing that happens by itself. */
static int64_t
sim_next_us(void)
{
	int64_t		next_us = KEEP_NEVER;

	for (size_t i = 0; i < SIM_MESSAGES; i++)
		if (sim.messages[i].kind != SIM_NOTHING &&
			!sim_is_held_up(&sim.messages[i]) && sim.messages[i].at_us < next_us)
			next_us = sim.messages[i].at_us;
	for (int i = 0; i < SIM_CLIENTS; i++)
		if (sim.clients[i].is_there && sim_wake_us(&sim.clients[i]) < next_us)
			next_us = sim_wake_us(&sim.clients[i]);
	if (sim.owner != 0 && sim_true_us(sim.deadline_us) < next_us)
		next_us = sim_true_us(sim.deadline_us);
	for (size_t i = 0; i < sim.nwaiters; i++)
		if (sim.waiters[i].wait_us >= 0 &&
			sim_true_us(sim.waiters[i].at_us) < next_us)
			next_us = sim_true_us(sim.waiters[i].at_us);
	return next_us;
}

/* Let everything happen that is due. */
static void
sim_happen(void)
{
	sim_serve();
	for (size_t i = 0; i < SIM_MESSAGES; i++)
	{
		sim_message m = sim.messages[i];
		sim_client *c = &sim.clients[m.client];

		if (m.kind == SIM_NOTHING || m.at_us > sim.now_us || sim_is_held_up(&m))
			continue;
		/* a driver may first look at the time, or at its socket */
		if (c->is_there && m.kind != SIM_REQUEST && m.kind != SIM_CLOSED &&
			sim_byte() >= 0x80)
			sim_drive(m.client);
		sim.messages[i].kind = SIM_NOTHING;
		if (m.kind == SIM_REQUEST)
			sim_request(&m);
		else if (m.kind == SIM_CLOSED)
		{
			for (size_t w = sim.nwaiters; w-- > 0;)
				if (sim.waiters[w].connection == m.connection)
					sim_leave(w);
		}
		else
		{
			sim_hear(&m);
			if (c->is_there)
				c->wake_us = sim.now_us;
		}
	}
	for (int i = 0; i < SIM_CLIENTS; i++)
		if (sim.clients[i].is_there && sim_wake_us(&sim.clients[i]) <= sim.now_us)
			sim_drive(i);
	for (int i = 0; i < SIM_CLIENTS; i++)
		sim_check(&sim.clients[i]);
}

static void
sim_release(int i)
{
	sim_client *c = &sim.clients[i];

	c->released |= c->k.state != KEEP_ENDED;
	keep_release(&c->k, sim_client_us(c));
	sim_check(c);
	sim_drive(i);
}

/* Live through one history. */
static void
sim_run(const uint8_t *data, size_t size)
{
	static const int64_t ttls[] = {30000000, 3000000, 300000, 86400000000, 9, 1000};
	int64_t		ttl_us;
	unsigned	shared_owner = 0;
	uint8_t		choice;

	memset(&sim, 0, sizeof(sim));
	chance.input = data;
	chance.left = size;
	sim.now_us = 1000000;
	choice = sim_byte();
	ttl_us = ttls[choice % 6];
	if (choice & 0x80)
		shared_owner = ++sim.last;
	/* as fast as the margin allows, or slower than the clients' */
	sim.drift = sim_margin_us(ttl_us) * (sim_byte() % 5) / 4 * 1000000 / ttl_us;
	choice = sim_byte();
	if (choice & 0x80)
		sim.drift = -sim.drift;
	sim.has_release_after = choice & 1;

	while (chance.left > 0)
	{
		uint8_t		what = sim_byte();
		int			i = what % SIM_CLIENTS;
		sim_client *c = &sim.clients[i];
		int64_t		next_us = sim_next_us();

		what /= SIM_CLIENTS;
		if (!c->is_there && what >= 32)
			sim_enter(i, ttl_us, i < 2 ? shared_owner : 0);
		else if (c->is_there && what >= 62 && c->stopped_us <= sim.now_us)
			sim_release(i);
		else if (c->is_there && what == 61)
		{
			/* all others go on */
			c->stopped_us = sim.now_us + sim_delay_us(ttl_us, sim_byte() | 0xc0);
			c->unlucky = true;
		}
		else if (what == 60 && sim.owner != 0)
		{
			/* an operator ends the lease, whichever client has it */
			for (int j = 0; j < SIM_CLIENTS; j++)
				sim.clients[j].evicted |= sim.clients[j].owner == sim.owner;
			sim.owner = 0;
			sim_happen();
		}
		else if (what == 59)
		{
			/* all are late: nobody hears answers or notices the time */
			sim.now_us += sim_delay_us(ttl_us, sim_byte());
			for (int j = 0; j < SIM_CLIENTS; j++)
				sim.clients[j].unlucky = true;
			sim_happen();
		}
		else if (next_us != KEEP_NEVER)
		{
			sim.now_us = next_us > sim.now_us ? next_us : sim.now_us;
			sim_happen();
		}
	}

	/* at the end all clients give up, nothing goes wrong, and all must finish */
	for (int i = 0; i < SIM_CLIENTS; i++)
	{
		sim.clients[i].stopped_us = 0;
		if (sim.clients[i].is_there)
			sim_release(i);
	}
	for (int turns = 0;; turns++)
	{
		bool		left = false;

		for (int i = 0; i < SIM_CLIENTS; i++)
			left |= sim.clients[i].is_there;
		if (!left)
			break;
		sim_must(turns < 10000 && sim_next_us() != KEEP_NEVER,
				 "a client does not come to an end");
		if (sim_next_us() > sim.now_us)
			sim.now_us = sim_next_us();
		sim_happen();
	}
}

#endif							/* DLOCK_KEEP_SIM_H */
