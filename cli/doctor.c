/*
 * doctor.c
 *	  Subcommand doctor: is the server set up as leases need it?
 *
 * It changes nothing, except that with --try it takes one lease of a name that
 * nobody else has, and gives it back; for --self-test see selftest.c.  If the account may not see something, a
 * note says so.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "inspect.h"

/* Largest token there can be. */
#define TOKEN_MAX	((INT64_C(1) << 53) - 1)

/* A server's tokens begin at the seconds since 2020, times this. */
#define TOKENS_A_SECOND	(INT64_C(1) << 20)

static const char *const finding_names[] = {"ok", "note", "warning", "error"};

void
report(struct examination *e, enum finding finding, const char *what,
	   const char *todo, const char *format,...)
{
	char	   *value = NULL;
	va_list		arguments;
	int			length;

	va_start(arguments, format);
	length = vasprintf(&value, format, arguments);
	va_end(arguments);
	if (length < 0)
		end_with(STATUS_SYSTEM, "out of memory");
	if (finding > e->worst)
		e->worst = finding;
	if (e->json)
	{
		add_string(e->table, finding_names[finding]);
		add_string(e->table, what);
		add_string(e->table, value);
		add_string(e->table, todo);
	}
	else
	{
		printf("%-7s  %s: ", finding_names[finding], what);
		print_safe(value, (size_t) length, stdout);
		if (todo)
			printf("  -- %s", todo);
		putchar('\n');
	}
	free(value);
}

bool
look(struct examination *e, const char *sql)
{
	if (e->lost)
		return false;
	if (ask(e->session, sql, NULL, 0, e->timeout_us))
		return true;
	if (!dlock_session_is_connected(e->session))
	{
		e->lost = true;
		report(e, FINDING_ERROR, "connection",
			   "the remaining checks were not made", "%s",
			   dlock_session_error(e->session)->message);
	}
	return false;
}

bool
look_if_allowed(struct examination *e, const char *what, const char *sql)
{
	if (look(e, sql))
		return true;
	if (!e->lost)
		report(e, FINDING_NOTE, what, "ask an administrator to run this", "not seen: %s",
			   dlock_session_error(e->session)->message);
	return false;
}

void
report_leases(struct examination *e, const struct lease_figures *figures,
			  const char *reaper)
{
	int64_t		clock = figures->seconds_since_2020 * TOKENS_A_SECOND;
	double		used = (double) figures->largest_token / (double) TOKEN_MAX;

	report(e, FINDING_OK, "leases", NULL, "%" PRId64, figures->leases);
	if (figures->overdue > 0)
		report(e, FINDING_WARNING, "leases that are over and still there", reaper,
			   "%" PRId64, figures->overdue);
	if (used > 0.9)
		report(e, FINDING_WARNING, "token space",
			   "at 2^53 no more leases are granted: is the server's clock right?",
			   "%.1f %% used", 100 * used);
	else if (figures->largest_token > 0)
		report(e, FINDING_OK, "token space", NULL, "%.1f %% used", 100 * used);
	/*
	 * a second may have passed, and the server may have waited another for the
	 * clock
	 */
	if (figures->largest_token > clock + 3 * TOKENS_A_SECOND)
		report(e, FINDING_WARNING, "system clock",
			   "set the clock; tokens may not grow over a failover before it has passed them",
			   "%" PRId64 " s behind the tokens that were granted",
			   figures->largest_token / TOKENS_A_SECOND - figures->seconds_since_2020);
}

void
report_counters(struct examination *e)
{
	int64_t		renewals_lost;
	int64_t		renewed;
	int64_t		deadlocks;
	int64_t		expired;
	int64_t		forced;

	if (!look_if_allowed(e, "counters",
						 "SELECT renewals_lost, renewed, deadlocks, expired, forced FROM dlock.stats"))
		return;
	renewals_lost = number_of(e->session, 0, 0);
	renewed = number_of(e->session, 0, 1);
	deadlocks = number_of(e->session, 0, 2);
	expired = number_of(e->session, 0, 3);
	forced = number_of(e->session, 0, 4);
	/* who is evicted renews once in vain */
	report(e, renewals_lost > forced ? FINDING_WARNING : FINDING_OK, "renewals lost",
		   renewals_lost > forced
		   ? "holders were too late: look for the cause, then dlock_stats_reset()"
		   : NULL, "%" PRId64 " of %" PRId64 "; %" PRId64 " holders were evicted", renewals_lost,
		   renewals_lost + renewed, forced);
	if (deadlocks > 0)
		report(e, FINDING_NOTE, "deadlocks",
			   "some application takes leases in different orders", "%" PRId64, deadlocks);
	if (expired > 0)
		report(e, FINDING_NOTE, "leases that ended at their deadline",
			   "their holders died, or pause for longer than their TTL, or meant them to end so",
			   "%" PRId64, expired);
}

void
try_a_lease(struct examination *e)
{
	unsigned char random[12];
	char		name[64] = "dlock-doctor/";
	dlock_arg	args[4];
	int64_t		start_us;
	int64_t		acquired_us;
	int64_t		token;

	if (e->lost || !e->try_a_lease)
		return;
	if (getrandom(random, sizeof(random), 0) != (ssize_t) sizeof(random))
		end_with(STATUS_SYSTEM, "could not get random bytes");
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(name + strlen(name), 3, "%02x", random[i]);
	args[0] = DLOCK_TEXT(name);
	args[1] = DLOCK_TEXT(name);
	args[2] = DLOCK_DURATION(10000000);
	start_us = dlock_now_us();
	if (!call(e->session, "dlock_acquire", args, 3, e->timeout_us))
	{
		report(e, FINDING_ERROR, "a lease", "see the error", "could not be taken: %s",
			   dlock_session_error(e->session)->message);
		return;
	}
	token = dlock_session_integer(e->session);
	acquired_us = dlock_now_us();
	if (token == 0)
	{
		report(e, FINDING_ERROR, "a lease", "nobody else can have it: tell the authors",
			   "was refused");
		return;
	}
	args[2] = DLOCK_INTEGER(token);
	if (!call(e->session, "dlock_release", args, 3, e->timeout_us))
		report(e, FINDING_ERROR, "a lease", "it ends by itself within 10 s",
			   "could not be given back: %s", dlock_session_error(e->session)->message);
	else if (dlock_session_truth(e->session) != 1)
		report(e, FINDING_ERROR, "a lease", "was the server restarted, or its lock table changed?",
			   "was lost before it could be given back");
	else
		report(e, FINDING_OK, "a lease", NULL, "taken in %.1f ms, given back in %.1f ms",
			   (double) (acquired_us - start_us) / 1000,
			   (double) (dlock_now_us() - acquired_us) / 1000);
}

int
doctor_command(int argc, char **argv)
{
	struct examination e = {.timeout_us = TIMEOUT_DEFAULT_US};
	const char *url = NULL;
	const struct option_spec specs[] = {
		URL_OPTION(&url),
		{"try", 0, OPTION_FLAG, &e.try_a_lease, NULL,
		"take a lease of a name of its own, and give it back"},
		{"self-test", 0, OPTION_FLAG, &e.tests, NULL,
		"see whether leases keep their promises here, with names of its own; 15 s"},
		TIMEOUT_OPTION(&e.timeout_us),
		JSON_OPTION(&e.json),
		{0}
	};
	static const struct column columns[] = {
		{.key = "status"}, {.key = "check"}, {.key = "value"}, {.key = "advice"}, {0}
	};
	static const int statuses[] = {STATUS_OK, STATUS_OK, 1, 2};

	parse_arguments(argc, argv, specs,
					"doctor [OPTION]...\n\n"
					"Check whether the server is set up as leases need it, and say what to do.  Changes\n"
					"nothing, unless --try or --self-test is given.  The exit status is 0 if all is well, 1 if there\n"
					"are warnings, 2 if there are errors.", NULL, 0, 0);
	e.session = open_session(url);
	e.table = table_create(columns);
	if (!connect_to(e.session, e.timeout_us))
		report(&e, FINDING_ERROR, "connection", "see the error", "%s",
			   dlock_session_error(e.session)->message);
	else if (dlock_session_engine(e.session) == DLOCK_POSTGRESQL)
		examine_postgres(&e);
	else
		examine_mysql(&e);
	if (e.tests && e.worst < FINDING_ERROR)
		self_test(&e, url);
	else if (e.tests)
		report(&e, FINDING_ERROR, "verdict", "mend the errors above, and try again",
			   "do not trust this server with leases; nothing was tried");
	if (e.json)
		end_json(e.table, stdout);
	table_free(e.table);
	return finish(e.session, statuses[e.worst]);
}
