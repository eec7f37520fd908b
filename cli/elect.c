/*
 * elect.c
 *	  dlock elect: run a command on one machine at a time, for ever.
 *
 * Each term is a lease of its own, with a request id of its own: see supervise.c.
 * After each term, however it ended, comes another try; after a pause, unless
 * COMMAND has run for some time and ended by itself.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "command.h"
#include "notify.h"
#include "supervise.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A COMMAND that ends sooner than this counts as ended at once. */
#define SHORT_TERM_US	INT64_C(5000000)

/*
 * After such terms the pause doubles up to a minute; after others it is the
 * first.
 */
#define PAUSE_MIN_US	INT64_C(1000000)
#define PAUSE_MAX_US	INT64_C(60000000)

static const char usage[] =
	"elect [OPTION]... NAME [--] COMMAND [ARGUMENT]...\n\n"
	"Wait for a lease on NAME, run COMMAND as the leader while it is held, and wait\n"
	"again when COMMAND has ended or the lease is lost, until SIGTERM, SIGINT or\n"
	"SIGQUIT: then COMMAND is ended, the lease released, and the exit status is 0.\n"
	"Options come before NAME; what follows COMMAND is COMMAND's own.";

static const char *name;

/* The same for the service manager, for which each line is an assignment. */
static char name_in_line[256];

/* Tell the service manager and the log. */
static void
tell(bool leads, int64_t token)
{
	if (leads)
	{
		say("leader of \"%s\", token %" PRId64, name, token);
		notify("STATUS=Leader, token %" PRId64, token);
	}
	else
	{
		say("not the leader of \"%s\" any more", name);
		notify("STATUS=Waiting for \"%s\"", name_in_line);
	}
}

int
elect_command(int argc, char **argv)
{
	const char *ready_file = NULL;
	const char *on_lose = NULL;
	int64_t		permits = 0;
	int64_t		back_off_us = 0;	/* after COMMANDs that ended at once */
	bool		told_of_server = false;
	bool		was_logged_in = false;
	struct supervised what = {.lease.ttl_us = DEFAULT_TTL_US, .grace_us = -1};
	const struct option_spec specs[] = {
		{"ttl", 't', OPTION_POSITIVE, &what.lease.ttl_us, "T", "how long after a leader's death another leads; default 30 s"},
		{"permits", 'p', OPTION_COUNT, &permits, "N", "let N lead at a time"},
		OWN_OWNER_OPTION(what),
		{"grace", 'g', OPTION_DURATION, &what.grace_us, "T", "from SIGTERM to SIGKILL; default a fifth of the TTL, up to 10 s"},
		{"exec-on-lose", 0, OPTION_TEXT, &on_lose, "CMD", "a shell command for the end of each term"},
		{"ready-file", 0, OPTION_TEXT, &ready_file, "PATH", "a file that exists while this one leads"},
		URL_OPTION(&what.url),
		{0}
	};
	int			first = parse_options(argc, argv, specs, usage);

	if (first >= argc)
		end_with(STATUS_USAGE, "there is no name; see dlock elect --help");
	name = argv[first];
	first = command_after_name(argc, argv, first);
	if (first >= argc)
		end_with(STATUS_USAGE, "there is no command; see dlock elect --help");
	if (ready_file && *ready_file == '\0')
		end_with(STATUS_USAGE, "--ready-file is no path");

	what.lease.names = &name;
	what.lease.nnames = 1;
	what.lease.mode = permits ? DLOCK_PERMIT : DLOCK_EXCLUSIVE;
	what.lease.limit = (int32_t) permits;
	what.lease.wait_us = -1;
	what.argv = argv + first;
	what.grace_us = grace_for(what.grace_us, what.lease.ttl_us);
	what.elects = true;
	what.ready_file = ready_file;
	what.on_lose = on_lose;
	what.tell = tell;
	what.other = -1;
	supervise_prepare();
	notify_prepare();

	/* a process that crashed may have left it */
	if (ready_file && !remove_stale_ready_file(ready_file))
	{
		say("could not remove \"%s\": %s", ready_file, strerror(errno));
		return STATUS_SYSTEM;
	}
	snprintf(name_in_line, sizeof(name_in_line), "%s", name);
	for (char *c = name_in_line; *c; c++)
		if (*c == '\n')
			*c = ' ';
	notify("READY=1\nSTATUS=Waiting for \"%s\"", name_in_line);
	for (;;)
	{
		struct outcome outcome;
		int64_t		pause_us = PAUSE_MIN_US;
		int			stopping;

		supervise(&what, &outcome);
		stopping = outcome.signal_number;
		if (outcome.kind != OUTCOME_FAILED)
			told_of_server = false;
		if (outcome.kind == OUTCOME_EXITED || outcome.kind == OUTCOME_LOST)
			was_logged_in = true;
		if (outcome.kind == OUTCOME_EXITED)
		{
			if (outcome.ran_us >= SHORT_TERM_US)
				back_off_us = 0;
			else if (back_off_us == 0)
				back_off_us = PAUSE_MIN_US;
			else if (back_off_us < PAUSE_MAX_US / 2)
				back_off_us *= 2;
			else
				back_off_us = PAUSE_MAX_US;
			pause_us = back_off_us;
			if (!stopping)
				say("the command ended with status %d after %.1f s%s", outcome.status,
					(double) outcome.ran_us / 1e6,
					pause_us > 0 ? ", and is not run again at once" : "");
		}
		/* the next one could lead */
		if (outcome.kind == OUTCOME_HOPELESS)
			return outcome.status;
		if (outcome.kind == OUTCOME_FAILED)
		{
			/*
			 * Waiting does not mend an error of the user's.  But a log-in that has
			 * worked works again: passwords and directories are sometimes wrong for
			 * a while.
			 */
			bool		ends = outcome.error.error_class == DLOCK_MISUSE &&
				!(was_logged_in && outcome.error.disconnected);

			if (ends || !told_of_server)
				say_error(NULL, &outcome.error);
			told_of_server = true;
			if (ends)
				return outcome.status;
		}
		if (!stopping && pause_us > 0)
			stopping = supervise_pause(pause_us);
		if (stopping)
		{
			notify("STOPPING=1");
			return STATUS_OK;
		}
	}
}
