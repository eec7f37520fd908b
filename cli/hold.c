/*
 * hold.c
 *	  dlock hold: hold a lease for the program that has started us, which may be in any
 *	  language: it reads lines of JSON, and closes our standard input at the end.
 *
 * It is a run (supervise.c) whose COMMAND is a process of ours, the keeper:
 *
 *		program - main process - watchdog - keeper
 *
 * The keeper talks to the program.  It ends when the program says so, closes our
 * standard input, or ends: we have a pidfd of it, for a process that the program has
 * started may keep the other end of that pipe open for ever.  Then the lease is given
 * back, as when a COMMAND ends.  The keeper gets SIGTERM as a COMMAND does, a grace
 * before the lease can end, also if the main process has been stopped, and tells the
 * program that the lease is lost.
 *
 * With --kill-parent the program counts as a process of COMMAND's from when it is told
 * that the lease is held until it says, or shows, that it does without: whatever ends
 * COMMAND ends the program, too.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "command.h"
#include "ask.h"
#include "supervise.h"
#include "table.h"
#include "watchdog.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
	"hold [OPTION]... NAME\n\n"
	"Hold a lease on NAME for the program that starts this.  Print a line of JSON when it\n"
	"is held, is late to be renewed, is renewed again, or is lost: event, name, owner,\n"
	"token and deadline.  Give it back when standard input ends or says \"release\", or\n"
	"when that program ends.\n"
	"Exit status: 0 given back, or 75 not free, 70 lost, 69 no server, 77 not allowed,\n"
	"64 wrong usage, 71 the system refused.";

/* How often to see whether a renewal that is late has come. */
#define LATE_PAUSE_MS	100

/* Of the lease; the keeper, a fork of ours, has it. */
static int64_t ttl_us;

/*
 * Print a line about the lease.  A program that does not read is not waited for: it may
 * end, and then the lease must be given back.
 */
static void
tell_program(struct watchdog_shared *shared, const char *event)
{
	static const struct column columns[] = {
		{.key = "event"}, {.key = "name"}, {.key = "owner"}, {.key = "token"},
		{.key = "deadline"}, {0}
	};
	struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
	struct table *table = table_create(columns);
	struct timespec now;
	int64_t		deadline_us;
	char		deadline[32];
	char	   *line;
	size_t		length;
	FILE	   *memory = open_memstream(&line, &length);

	/* the boot clock is known to few languages */
	clock_gettime(CLOCK_REALTIME, &now);
	deadline_us = (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000 +
		atomic_load(&shared->gone_by_us) - dlock_now_us();
	snprintf(deadline, sizeof(deadline), "%" PRId64 ".%03d", deadline_us / 1000000,
			 (int) (deadline_us % 1000000 / 1000));
	add_string(table, event);
	add_string(table, getenv("DLOCK_NAME"));
	add_string(table, getenv("DLOCK_OWNER"));
	add_json(table, getenv("DLOCK_TOKEN"));
	add_json(table, deadline);
	if (memory == NULL)
		return;
	print_json_object(table, memory);
	fclose(memory);
	/* a pipe that can be written to has room for more than a line */
	if (poll(&output, 1, 0) == 1)
		(void) !write(STDOUT_FILENO, line, length);
	free(line);
	table_free(table);
}

/* Read what the program says; whether it says "release", or has closed the pipe. */
static bool
release_is_said(void)
{
	static const char word[] = "release";
	static size_t matched;		/* so much of the word; one more: no line that is it */
	char		text[512];
	ssize_t		length = read(STDIN_FILENO, text, sizeof(text));

	if (length <= 0)
		return length == 0 || (errno != EINTR && errno != EAGAIN);
	for (ssize_t i = 0; i < length; i++)
	{
		if (text[i] == '\n')
		{
			if (matched == strlen(word))
				return true;
			matched = 0;
		}
		else if (matched < strlen(word) && text[i] == word[matched])
			matched++;
		else if (text[i] != '\r')
			matched = sizeof(word);
	}
	return false;
}

/* The keeper; returns its exit status. */
static int
keep(struct watchdog_shared *shared, int program)
{
	bool		is_late = false;
	bool		on_terminal = isatty(STDIN_FILENO);
	sigset_t	all;
	sigset_t	heard;
	struct pollfd polled[3] = {
		{.fd = STDIN_FILENO, .events = POLLIN},
		{.fd = program, .events = POLLIN},
		{.events = POLLIN}
	};

	prctl(PR_SET_NAME, "dlock-keeper");

	/*
	 * A terminal or a service manager sends signals to all processes of a job.  The
	 * program may go on for some time then, so the lease has to.
	 */
	sigfillset(&all);
	sigemptyset(&heard);
	sigaddset(&heard, SIGTERM);
	if (on_terminal)
	{
		sigaddset(&heard, SIGINT);
		/* it may be stopped, as any job that reads a terminal */
		sigdelset(&all, SIGTTIN);
		sigdelset(&all, SIGTSTP);
	}
	sigprocmask(SIG_SETMASK, &all, NULL);
	polled[2].fd = signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK);
	if (polled[2].fd < 0)
	{
		say("could not wait for signals: %s", strerror(errno));
		return STATUS_SYSTEM;
	}
	atomic_store(&shared->other_works, true);
	tell_program(shared, "held");
	while (!atomic_load(&shared->ending))
	{
		int64_t		late_at_us = atomic_load(&shared->gone_by_us) - ttl_us / 2;
		struct signalfd_siginfo caught;
		bool		interrupted = false;

		if (is_late != (dlock_now_us() >= late_at_us))
		{
			is_late = !is_late;
			tell_program(shared, is_late ? "late" : "renewed");
		}
		poll(polled, 3, is_late ? LATE_PAUSE_MS : dlock_timeout_ms(late_at_us));
		while (read(polled[2].fd, &caught, sizeof(caught)) == sizeof(caught))
			interrupted = interrupted || caught.ssi_signo == SIGINT;
		if (interrupted || polled[1].revents != 0 ||
			(polled[0].revents != 0 && release_is_said()))
		{
			atomic_store(&shared->other_works, false);
			return STATUS_OK;
		}
	}
	tell_program(shared, "lost");
	return STATUS_LOST;
}

/* A pidfd of the program; -1 if it is outside of our PID namespace. */
static int
open_program(bool is_to_be_killed)
{
	pid_t		parent = getppid();
	int			pidfd = parent == 0 ? -1 : (int) syscall(SYS_pidfd_open, parent, 0);

	if (parent != 0 && (pidfd < 0 || getppid() != parent))
		end_with(STATUS_SYSTEM, "could not watch the process that started this one: %s",
				 pidfd < 0 ? strerror(errno) : "it has ended");
	/* the first process of a PID namespace cannot be killed from within */
	if (is_to_be_killed && (parent <= 1 || !process_signal(pidfd, 0)))
		end_with(STATUS_SYSTEM, "--kill-parent: the parent, process %d, cannot be killed from here",
				 (int) parent);
	return pidfd;
}

int
hold_command(int argc, char **argv)
{
	const char *name;
	bool		shared = false;
	bool		kill_parent = false;
	int64_t		permits = 0;
	struct supervised what = {.lease.ttl_us = DEFAULT_TTL_US, .grace_us = -1};
	const struct option_spec specs[] = {
		TAKING_OPTIONS(what, shared),
		{"permits", 'p', OPTION_COUNT, &permits, "N", "take one of N permits"},
		{"keep", 'k', OPTION_DURATION, &what.lease.keep_at_least_us, "T", "keep it at least this long, if it is given back sooner"},
		OWN_OWNER_OPTION(what),
		{"kill-parent", 0, OPTION_FLAG, &kill_parent, NULL, "end the program before the lease can end"},
		{"grace", 'g', OPTION_DURATION, &what.grace_us, "T", "how long before that it is told, and gets SIGTERM; as for run"},
		PATIENCE_OPTION(what),
		QUIET_OPTION(what),
		URL_OPTION(&what.url),
		{0}
	};

	parse_arguments(argc, argv, specs, usage, &name, 1, 1);
	if (shared && permits)
		end_with(STATUS_USAGE, "--shared and --permits exclude each other");
	what.lease.names = &name;
	what.lease.nnames = 1;
	what.lease.mode = shared ? DLOCK_SHARED : permits ? DLOCK_PERMIT : DLOCK_EXCLUSIVE;
	what.lease.limit = (int32_t) permits;
	what.insists = what.lease.connect_timeout_us > 0;
	ttl_us = what.lease.ttl_us;
	what.grace_us = grace_for(what.grace_us, what.lease.ttl_us);
	what.stand_in = keep;
	what.ends_other = kill_parent;
	what.is_over = release_is_said;
	supervise_prepare();
	/* after that, for it is none of the files that we have inherited */
	what.other = open_program(kill_parent);
	return supervise_once(&what);
}
