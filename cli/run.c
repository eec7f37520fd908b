/*
 * run.c
 *	  dlock run: run a command while a lease is held, or not at all.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "command.h"
#include "supervise.h"

#include <string.h>

static const char usage[] =
	"run [OPTION]... NAME [--] COMMAND [ARGUMENT]...\n"
	"       dlock run --all [OPTION]... NAME... -- COMMAND [ARGUMENT]...\n\n"
	"Run COMMAND while a lease on NAME is held, and end it before the lease can end.\n"
	"COMMAND finds DLOCK_NAME, DLOCK_OWNER and DLOCK_TOKEN in its environment.\n"
	"Options come before NAME; what follows COMMAND is COMMAND's own.\n"
	"A time T is in seconds, or has units: 90, 1.5, 5m, 1h30m.\n"
	"Exit status: COMMAND's (128 and the signal's number if a signal ended it, 126 and\n"
	"127 if it could not be run), or 75 not free, 70 lost, 69 no server, 77 not\n"
	"allowed, 64 wrong usage, 71 the system refused.  With -E N, N instead of these.";

int
run_command(int argc, char **argv)
{
	const char *on_lost = "term";
	bool		all = false;
	bool		shared = false;
	int64_t		permits = 0;
	struct supervised what = {.lease.ttl_us = DEFAULT_TTL_US, .grace_us = -1};
	const struct option_spec specs[] = {
		TAKING_OPTIONS(what, shared),
		{"permits", 'p', OPTION_COUNT, &permits, "N", "let N commands run at a time, this one among them"},
		{"all", 'a', OPTION_FLAG, &all, NULL, "take several names, all or none"},
		{"keep", 'k', OPTION_DURATION, &what.lease.keep_at_least_us, "T", "keep it at least this long, if COMMAND ends sooner"},
		OWN_OWNER_OPTION(what),
		{"on-lost", 0, OPTION_TEXT, &on_lost, "WHAT", "\"term\": end COMMAND in time; \"warn\": only say it"},
		{"grace", 'g', OPTION_DURATION, &what.grace_us, "T", "from SIGTERM to SIGKILL; default a fifth of the TTL, up to 10 s"},
		PATIENCE_OPTION(what),
		{"own-status", 'E', OPTION_STATUS, NULL, "N", "end with N, not 64 to 77, if the status is not COMMAND's"},
		QUIET_OPTION(what),
		URL_OPTION(&what.url),
		{0}
	};
	const char *const *names;
	size_t		nnames = 1;
	int			first = parse_options(argc, argv, specs, usage);

	names = (const char *const *) argv + first;
	if (first >= argc)
		end_with(STATUS_USAGE, "there is no name; see dlock run --help");
	if (!all)
		first = command_after_name(argc, argv, first);
	else
	{
		for (nnames = 0; argv[first] && strcmp(argv[first], "--") != 0; nnames++)
			first++;
		if (argv[first] == NULL)
			end_with(STATUS_USAGE, "--all needs \"--\" between the names and the command");
		first++;
		if (nnames > DLOCK_NAMES_MAX)
			end_with(STATUS_USAGE, "there may be %d names at most", DLOCK_NAMES_MAX);
		if (shared || permits)
			end_with(STATUS_USAGE, "--all takes exclusive leases, not --shared or --permits");
	}
	if (first >= argc)
		end_with(STATUS_USAGE, "there is no command; see dlock run --help");
	if (shared && permits)
		end_with(STATUS_USAGE, "--shared and --permits exclude each other");
	if (strcmp(on_lost, "term") != 0 && strcmp(on_lost, "warn") != 0)
		end_with(STATUS_USAGE, "--on-lost is \"term\" or \"warn\"");

	what.lease.names = names;
	what.lease.nnames = nnames;
	what.lease.mode = shared ? DLOCK_SHARED : permits ? DLOCK_PERMIT : DLOCK_EXCLUSIVE;
	what.lease.limit = (int32_t) permits;
	/* who says how long to try means any server that cannot do it yet */
	what.insists = what.lease.connect_timeout_us > 0;
	what.argv = argv + first;
	what.grace_us = grace_for(what.grace_us, what.lease.ttl_us);
	what.warn_only = strcmp(on_lost, "warn") == 0;
	what.other = -1;
	supervise_prepare();
	return supervise_once(&what);
}
