/*
 * lease_fuzz.c
 *	  Bytes from libFuzzer, read as requests about one name.
 *
 * The fuzzer finds its way by coverage where the model test rolls dice, and it
 * reaches strings, times and tokens that the model never draws.  There is no
 * model here: every call is held against the invariants of lease.h, and is made
 * twice, with the holders in opposite orders, which must give the same result.
 * Whatever the bytes, the requests keep to what lease.h asks of a caller.
 *
 * The holders are passed in memory of exactly the promised size, and every
 * string has its own allocation, so that the sanitizers see every access out of
 * bounds.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "lease.h"
#include "lease_invariants.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDERS_MAX		24
#define STRINGS_MAX		1024
#define PRINCIPALS		4
#define PLAIN			2

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is left of the input. */
static const uint8_t *input;
static size_t input_left;

/* The strings of this run; the first few are also chosen again. */
static char *strings[STRINGS_MAX];
static size_t string_length[STRINGS_MAX];
static size_t string_count;

/*
 * The name, and which principal each holder belongs to.  A guarded holder that
 * is removed stays as one that is pinned, until the guard ends.
 */
static lease_holder name[HOLDERS_MAX + 1];
static unsigned principal_of[HOLDERS_MAX + 1];
static unsigned session_of[HOLDERS_MAX + 1];	/* PLAIN: of none from the start */
static size_t count;
static int64_t now_us;
static uint64_t last_token;

/* Bit 4 * a + b is set if principal a may act for principal b. */
static unsigned acts_for;

/* Take the next byte of the input; after its end, 0. */
static uint8_t
byte(void)
{
	if (input_left == 0)
		return 0;
	input_left--;
	return *input++;
}

/* Take eight bytes. */
static uint64_t
word(void)
{
	uint64_t	w = 0;

	for (int i = 0; i < 8; i++)
		w = w << 8 | byte();
	return w;
}

/* Take a string of an allowed length: one of this run, or a new one. */
static lease_bytes
string(void)
{
	uint8_t		choice = byte();
	size_t		i = choice & 0x7f;

	if (choice < 0x80 || i >= string_count)
	{
		/* Short ones are likelier to be equal than long ones. */
		size_t		length = choice < 0x70 ? 1 + choice % 4 : byte();

		if (length == 0 || string_count == STRINGS_MAX)
			length = 1;
		i = string_count < STRINGS_MAX ? string_count++ : STRINGS_MAX - 1;
		free(strings[i]);
		strings[i] = malloc(length);
		if (strings[i] == NULL)
			abort();
		string_length[i] = length;
		for (size_t j = 0; j < length; j++)
			strings[i][j] = (char) byte();
	}
	return (lease_bytes) {strings[i], string_length[i]};
}

/* Take a time to live. */
static int64_t
ttl(void)
{
	uint8_t		choice = byte();

	if (choice < 0xf0)
		return 1 + choice % 32;
	if (choice < 0xf8)
		return LEASE_TTL_MAX_US - (choice - 0xf0);
	return 1 + (int64_t) (word() % (uint64_t) LEASE_TTL_MAX_US);
}

/* Let time pass, often exactly up to, before or beyond a deadline. */
static void
pass_time(void)
{
	int64_t		latest = INT64_MAX - LEASE_TTL_MAX_US;
	int64_t		then = now_us;
	uint8_t		choice = byte();

	if (choice < 0x80)
		then += choice % 8;
	else if (count > 0 && name[choice % count].deadline_us < latest &&
			 name[choice % count].deadline_us > INT64_MIN)
		then = name[choice % count].deadline_us - 1 + choice / 32 % 3;
	if (then > now_us && then <= latest)
		now_us = then;
	/* A holder whose session or transaction exists is never over. */
	for (size_t i = 0; i < count; i++)
		if (name[i].life == LEASE_BOUND && name[i].deadline_us <= now_us)
			name[i].deadline_us = now_us + 1;
}

/* Take a number of permits, or of holds. */
static uint32_t
number(void)
{
	uint8_t		choice = byte();

	return choice < 0xf8 ? choice % 5 : LEASE_VERSION_MAX;
}

/* Take a lock delay. */
static int64_t
delay(void)
{
	uint8_t		choice = byte();

	if (choice < 0x80)
		return 0;
	return choice < 0xf8 ? 1 + choice % 32 : LEASE_TTL_MAX_US;
}

/* Take entry i out of the name. */
static void
take_out(size_t i)
{
	count--;
	memmove(&name[i], &name[i + 1], (count - i) * sizeof(name[0]));
	memmove(&principal_of[i], &principal_of[i + 1],
			(count - i) * sizeof(principal_of[0]));
	memmove(&session_of[i], &session_of[i + 1],
			(count - i) * sizeof(session_of[0]));
}

/*
 * Let something happen to a holder that no request does: a guard begins or
 * ends, what it is bound to ends, it has acquired for years.
 */
static void
event(void)
{
	uint8_t		choice = byte();
	size_t		i;
	lease_holder *h;

	if (count == 0)
		return;
	i = (choice >> 2) % count;
	h = &name[i];
	switch (choice & 3)
	{
		case 0:
			/* Only a live holder can be guarded, and by several guards. */
			if (h->deadline_us > now_us && (h->guarded == 0 || choice & 0x80))
				lease_merge_guard(h, h->mode, h->version);
			else
				h->guarded = 0;
			if (h->life == LEASE_PINNED)
				take_out(i);
			break;
		case 1:
		case 2:
			/* The server has restarted, or the connection is lost. */
			if (h->life != LEASE_BOUND)
				break;
			lease_judge(h, (choice & 3) != 1 ? LEASE_BOND_BEFORE :
						h->kind == LEASE_SESSION && choice & 4 ?
						LEASE_BOND_LOST : LEASE_BOND_ENDED, 1 + choice, now_us,
						now_us);
			break;
		case 3:
			if (h->life == LEASE_BOUND && choice & 0x80)
				session_of[i] = choice >> 5 & 1;
			else if (h->life != LEASE_PINNED)
				h->version = LEASE_VERSION_MAX - (choice >> 2 & 1);
			break;
	}
}

/* Take a token to mention: none, one of the holders', or a wrong one. */
static uint64_t
token(void)
{
	uint8_t		choice = byte();

	if (choice < 0x40)
		return 0;
	if (choice < 0xc0 && count > 0)
		return name[choice % count].token;
	if (choice < 0xf0)
		return last_token + 1 - choice % 4;
	return word();
}

/* Take the token that a grant is to hand out. */
static uint64_t
next_token(void)
{
	uint8_t		choice = byte();
	uint64_t	jump;

	if (choice < 0xf0)
		return last_token + 1 + choice % 4;
	if (choice == 0xff)
		return 0;
	if (choice == 0xfe)
		return LEASE_TOKEN_MAX + 1;
	jump = last_token + 1 + (word() & LEASE_TOKEN_MAX);
	return choice == 0xfd && last_token < LEASE_TOKEN_MAX ?
		LEASE_TOKEN_MAX : jump;
}

/* Stop if what must hold does not. */
static void
must(const char *fault)
{
	if (fault != NULL)
	{
		fprintf(stderr, "lease_fuzz: %s\n", fault);
		abort();
	}
}

/* Call with the holders in opposite order, and compare. */
static void
check_order(const lease_request *request, const lease_holder *before,
			const lease_holder *after, const lease_result *result)
{
	lease_holder *mirror = malloc(sizeof(lease_holder) * (count + 1));
	lease_result again;

	if (mirror == NULL)
		abort();
	for (size_t i = 0; i < count; i++)
		mirror[i] = before[count - 1 - i];
	again = lease_apply(request, mirror, count, now_us);
	if (again.outcome != result->outcome || again.token != result->token ||
		again.count != result->count || again.changed != result->changed ||
		again.retry_us != result->retry_us)
		must("the order of the holders decides the result");
	for (size_t i = 0; i < count; i++)
	{
		const lease_holder *a = &after[i];
		const lease_holder *b = &mirror[count - 1 - i];

		if (a->change != b->change || a->version != b->version ||
			a->token != b->token || a->deadline_us != b->deadline_us ||
			a->mode != b->mode || a->kind != b->kind || a->life != b->life ||
			a->repeated != b->repeated ||
			!bytes_equal(a->request, b->request))
			must("the order of the holders decides what becomes of one");
	}
	free(mirror);
}

/* The call must have acted on the holder that lease_find() names. */
static void
check_find(const lease_request *request, const lease_holder *before,
		   const lease_result *result)
{
	size_t		mine = lease_find(request, before, count, now_us);

	if (mine > count)
		must("a holder has been found beyond the array");
	if (mine < count)
	{
		const lease_holder *h = &before[mine];

		if (h->deadline_us <= now_us || !holder_is_own(request, h) ||
			holder_is_taken_over(request, h, now_us) ||
			(request->token != 0 && request->token != h->token))
			must("a holder has been found that is not meant");
		if (result->token != 0 && result->token != h->token)
			must("a holder answered that is not the one found");
		if (result->outcome == LEASE_GRANTED)
			must("a grant to somebody who is a holder already");
		if ((result->outcome == LEASE_NOT_YOURS &&
			 h->version >= holds_in_question(request)) ||
			result->outcome == LEASE_NOT_HELD)
			must("a holder has been found and then denied");
		for (size_t i = 0; i < count; i++)
		{
			const lease_holder *other = &before[i];

			if (other->deadline_us > now_us && holder_is_own(request, other) &&
				!holder_is_taken_over(request, other, now_us) &&
				(request->token == 0 || request->token == other->token) &&
				!(request->unless_repeated && other->repeated) &&
				!(request->op == LEASE_LEAVE && other->kind == LEASE_PLAIN) &&
				(other->standing > h->standing ||
				 (other->standing == h->standing &&
				  (other->elsewhere < h->elsewhere ||
				   (other->elsewhere == h->elsewhere &&
					other->token < h->token)))))
				must("a holder has been found though another comes first");
		}
	}
	else if (result->token != 0 && result->outcome != LEASE_GRANTED)
		must("a holder answered that cannot be found");
}

/* Check what only a history can show, once the result is stored. */
static void
check_name(void)
{
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < i; j++)
			if (!lease_is_over(&name[i], now_us) &&
				!lease_is_over(&name[j], now_us) &&
				name[i].life != LEASE_LEAVING &&
				name[j].life != LEASE_LEAVING &&
				principal_of[i] == principal_of[j] &&
				session_of[i] == PLAIN && session_of[j] == PLAIN &&
				bytes_equal(name[i].owner, name[j].owner))
				must("one owner and principal are two live holders");
}

/* What the name looks like must agree with what a stranger would get. */
static void
check_looks(const lease_holder *holders, int64_t delay_us)
{
	lease_request request = {
		.op = LEASE_ACQUIRE, .mode = LEASE_EXCLUSIVE, .kind = LEASE_PLAIN,
		.delay_us = delay_us,
	};
	size_t		exclusive = lease_find_exclusive(holders, count, now_us);
	uint64_t	youngest = lease_youngest(holders, count, now_us);
	int64_t		next_us;
	bool		blocked = false;

	for (size_t i = 0; i < count; i++)
		blocked |= lease_blocks(&request, &holders[i], now_us);
	if (lease_is_free(holders, count, delay_us, now_us) == blocked)
		must("a name is free with somebody in the way, or the reverse");
	if (blocked != holders_keep_out(&request, holders, count, now_us))
		must("somebody is in the way of a stranger, or is not");
	if (exclusive < count && (holders[exclusive].mode != LEASE_EXCLUSIVE ||
							  holders[exclusive].deadline_us <= now_us))
		must("an exclusive holder that is none");
	if (lease_have_ended(holders, count, youngest, now_us, &next_us) !=
		(youngest == 0) || next_us <= now_us)
		must("the holds that are there have ended, or the reverse");
}

/* Apply one request, check it, and keep what an engine would keep. */
static void
step(const lease_request *request, unsigned principal, unsigned session)
{
	lease_holder before[HOLDERS_MAX] = {0};
	lease_holder *holders = calloc(count + 1, sizeof(lease_holder));
	lease_result result;
	size_t		kept = 0;

	if (holders == NULL)
		abort();
	for (size_t i = 0; i < count; i++)
	{
		unsigned	bit = 4 * principal + principal_of[i];

		if (principal == principal_of[i])
			name[i].standing = LEASE_SELF;
		else
			name[i].standing = acts_for >> bit & 1 ? LEASE_ACTS_FOR :
				LEASE_STRANGER;
		name[i].elsewhere = name[i].kind != LEASE_PLAIN &&
			session_of[i] != session;
		holders[i] = before[i] = name[i];
	}
	check_looks(before, request->delay_us);
	result = lease_apply(request, holders, count, now_us);
	must(lease_step_fault(request, before, count, holders, &result, now_us));
	check_order(request, before, holders, &result);
	if (request->op != LEASE_EVICT && request->op != LEASE_REAP)
		check_find(request, before, &result);

	if (result.outcome == LEASE_GRANTED)
	{
		if (result.token <= last_token)
			must("tokens do not grow");
		last_token = result.token;
		principal_of[count] = principal;
		session_of[count] = request->kind == LEASE_PLAIN ? PLAIN : session;
	}
	for (size_t i = 0; i < result.count; i++)
	{
		bool		pinned = holders[i].guarded > 0 &&
			!change_keeps(holders[i].change);

		if (pinned)
		{
			holders[i].mode = holders[i].guard_mode;
			holders[i].life = LEASE_PINNED;
			holders[i].deadline_us = now_us;
		}
		if (pinned || change_keeps(holders[i].change))
		{
			principal_of[kept] = principal_of[i];
			session_of[kept] = session_of[i];
			name[kept++] = holders[i];
		}
	}
	count = kept;
	free(holders);
	check_name();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const lease_op ops[] = {
		LEASE_ACQUIRE, LEASE_RENEW, LEASE_RELEASE, LEASE_DROP, LEASE_DOWNGRADE,
		LEASE_LEAVE, LEASE_EVICT, LEASE_REAP
	};
	static const int64_t times[] = {
		0, INT64_MIN, -20, INT64_MAX - LEASE_TTL_MAX_US - 100
	};

	input = data;
	input_left = size;
	count = 0;
	last_token = byte() < 0x80 ? 0 : LEASE_TOKEN_MAX - 8;
	now_us = times[byte() % 4];
	acts_for = (unsigned) byte() << 8 | byte();

	while (input_left > 0)
	{
		uint8_t		choice = byte();
		unsigned	session = byte() & 1;
		lease_request request = {.op = ops[choice & 7]};

		/* Bits 0-2 the operation, 3-4 the principal, 5-6 the mode. */
		if (request.op == LEASE_DROP && byte() & 1)
			request.op = LEASE_DROP_AFTER;
		request.mode = (lease_mode) (LEASE_MODE_FIRST + (choice >> 5) % 3);
		pass_time();
		switch (request.op)
		{
			case LEASE_ACQUIRE:
				request.owner = string();
				if (choice & 0x80)
					request.request = string();
				request.kind = (lease_kind) (LEASE_KIND_FIRST + byte() % 3);
				request.behind = byte() >= 0xe0;
				choice = byte();
				request.claim = choice >= 0xc0;
				request.only_repeated = choice >= 0xe0;
				request.permits = number();
				request.delay_us = delay();
				request.limit = 1 + byte() % 8;
				if (request.limit == 8)
					request.limit = LEASE_VERSION_MAX;
				request.ttl_us = ttl();
				request.next_token = next_token();
				break;
			case LEASE_RENEW:
			case LEASE_DROP_AFTER:
				request.owner = string();
				request.ttl_us = ttl();
				request.token = token();
				break;
			case LEASE_RELEASE:
				request.holds = number();
				request.unless_repeated = byte() >= 0xc0;
				request.owner = string();
				request.token = token();
				break;
			case LEASE_DROP:
			case LEASE_DOWNGRADE:
				request.owner = string();
				request.token = token();
				break;
			case LEASE_LEAVE:
				request.owner = string();
				request.token = token();
				request.delay_us = delay();
				break;
			case LEASE_EVICT:
				if (choice & 0x80)
					request.owner = string();
				request.delay_us = delay();
				break;
			case LEASE_REAP:
				request.delay_us = delay();
				break;
		}

		/* An engine has room for any number; this one makes room. */
		if (count == HOLDERS_MAX)
		{
			for (size_t i = count; i-- > 0;)
			{
				name[i].guarded = 0;
				if (name[i].life == LEASE_PINNED)
					take_out(i);
			}
			request = (lease_request) {.op = LEASE_EVICT};
		}
		step(&request, choice >> 3 & 3, session);
		if (count == HOLDERS_MAX)
			step(&(lease_request) {.op = LEASE_REAP}, 0, 0);

		if ((choice & 0xe0) == 0xe0)
			event();
		/* As if a privilege had been granted or revoked. */
		if ((choice & 0xe7) == 0x60)
			acts_for ^= 1u << (byte() & 15);
	}

	while (string_count > 0)
	{
		free(strings[--string_count]);
		strings[string_count] = NULL;
	}
	return 0;
}
