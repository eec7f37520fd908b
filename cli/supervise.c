/*
 * supervise.c
 *	  A command that runs while a lease is held: the main process.
 *
 * One loop, in one thread, waits for the lease's connection, the watchdog's
 * reports, COMMAND's end, signals, and the clock.  The watchdog (watchdog.c) is
 * COMMAND's parent and ends it by the deadline that this process writes down for it.
 *
 * A run goes through these phases, and may leave out some:
 *
 *	ACQUIRING	the lease is asked for, or waited for
 *	STARTING	it is held; the watchdog makes COMMAND's process
 *	RUNNING		COMMAND runs, until it ends or has to
 *	ENDING		COMMAND, and what it leaves, has ended or is being ended
 *	LOSING		the command of --exec-on-lose runs
 *	RELEASING	the lease is given back, or what an acquire that failed may have taken
 *
 * The times of a lease, for a TTL of 30 s and a grace of 6 s, counted from before
 * the request that acquired or renewed it was sent:
 *
 *	10 s	it is renewed, again and again if that fails
 *	23 s	COMMAND gets SIGTERM				lost_at - grace
 *	29 s	all that is left gets SIGKILL		lost_at
 *	30 s	the deadline: no server grants it to others before
 *
 * The watchdog sends these signals, and so does this process, in case the
 * watchdog has been stopped.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "supervise.h"
#include "command.h"
#include "notify.h"
#include "terminal.h"
#include "watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long the watchdog may take to report an event before we check on it. */
#define REPORT_US	INT64_C(1000000)

/* How long the release may take if it is not worth the usual five seconds. */
#define HURRY_US	INT64_C(1000000)

/*
 * So many attempts in a row must fail before one is told.  A proxy, or the server, may
 * close a connection that is idle from one renewal to the next: that is no news.
 */
#define TROUBLES_TOLD	2

/* So many watchdogs may end at once before we believe that none can live here. */
#define EARLY_ENDS_MAX	3

/* The grace is by default a fifth of the TTL, but at most this. */
#define GRACE_MAX_US	INT64_C(10000000)

enum phase
{
	ACQUIRING, STARTING, RUNNING, ENDING, LOSING, RELEASING
};

/* One run, from the first request to the release. */
struct run
{
	const struct supervised *what;
	struct outcome *outcome;
	enum phase	phase;
	dlock_lease *lease;
	struct watchdog watchdog;
	struct watchdog_options watchdog_options;
	int			troubles;		/* attempts that failed, since one succeeded */
	char		trouble[1024];	/* the last one */

	pid_t		command;		/* 0: there is none */
	int			pidfd;			/* readable when it has ended; or -1 */
	int			ready_file;		/* locked; or -1 */
	int64_t		started_us;
	bool		exited;			/* it has ended, as "status" says */
	int			status;			/* as wait() has it */
	bool		failed;			/* the lease was not acquired, as "outcome" says */
	bool		lost;			/* the lease was lost before */
	bool		broken;			/* the watchdog was killed before */
	int			early_ends;		/* of watchdogs, before COMMAND was let go */
	int			stopping;		/* a signal that ends us came before; or 0 */
	bool		lends_terminal; /* COMMAND is to have it from the start */
	bool		paused;			/* COMMAND got SIGTSTP from us, to go on with SIGCONT */
	bool		stops;			/* and SIGTSTP is pending, to stop us after COMMAND */
	bool		ctrl_c;			/* SIGINT came from the terminal, to us */
	sigset_t	early;			/* signals for COMMAND that came before it
								 * existed */

	/* when a report of the watchdog is overdue; DLOCK_NEVER: none is expected */
	int64_t		overdue_us;

	/* RELEASING: when to leave the lease to its deadline, if it is still there */
	int64_t		release_until_us;

	pid_t		on_lose;		/* 0: it does not run */
	bool		on_lose_has_lease;	/* it may run only while the lease is held */
	int64_t		on_lose_until_us;
};

/* What "signals" tells of, and what was blocked before. */
static sigset_t awaited;
static sigset_t mask_before;
static bool sigpipe_was_default;
static bool sigchld_was_ignored;
static int	signals = -1;

/* Readable while SIGTSTP is pending, which is not among those of "signals". */
static int	stops = -1;

/* A watchdog may ask for priority: not once one has ended at its start. */
static bool may_ask_priority = true;

/* Passed on to COMMAND, unless the program was started with them ignored. */
static const int passed_on[] = {
	SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT
};

int64_t
grace_for(int64_t grace_us, int64_t ttl_us)
{
	if (grace_us < 0)
		return ttl_us / 5 < GRACE_MAX_US ? ttl_us / 5 : GRACE_MAX_US;
	/* a renewal, due at a third, must come before */
	if (grace_us > ttl_us / 2)
		end_with(STATUS_USAGE, "--grace may be half of --ttl at most");
	return grace_us;
}

void
supervise_prepare(void)
{
	struct sigaction action;
	sigset_t	stop;

	note_inherited_files();
	say_only_at_once();
	if (!processes_are_shown())
		end_with(STATUS_SYSTEM, "/proc does not show our own processes, which \"dlock run\" needs");
	terminal_open();

	/* a connection that breaks must not end us; COMMAND gets it as it was */
	sigaction(SIGPIPE, NULL, &action);
	sigpipe_was_default = action.sa_handler == SIG_DFL;
	signal(SIGPIPE, SIG_IGN);

	/*
	 * while it is ignored the kernel reaps children, and nobody learns their
	 * status
	 */
	sigaction(SIGCHLD, NULL, &action);
	sigchld_was_ignored = action.sa_handler == SIG_IGN;
	signal(SIGCHLD, SIG_DFL);

	sigemptyset(&awaited);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
	{
		/* nohup, for example: COMMAND ignores it too */
		sigaction(passed_on[i], NULL, &action);
		if (action.sa_handler != SIG_IGN)
			sigaddset(&awaited, passed_on[i]);
	}
	sigaddset(&awaited, SIGCHLD);
	sigprocmask(SIG_BLOCK, &awaited, &mask_before);
	sigemptyset(&stop);
	sigaddset(&stop, SIGTSTP);
	stops = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
	sigdelset(&awaited, SIGTSTP);
	signals = signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0 || stops < 0)
		end_with(STATUS_SYSTEM, "could not wait for signals: %s", strerror(errno));
	{
		/* not awaited, but it must not stop us: see terminal.c */
		sigset_t	output;

		sigemptyset(&output);
		sigaddset(&output, SIGTTOU);
		sigprocmask(SIG_BLOCK, &output, NULL);
	}
	/* if the watchdog is killed, what it leaves becomes ours */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* ------------------------------------------------------------------ names */

/* The names, for messages and for COMMAND, separated by commas. */
static void
join_names(const struct supervised *what, char *text, size_t size)
{
	size_t		length = 0;

	text[0] = '\0';
	for (size_t i = 0; i < what->lease.nnames && length < size; i++)
		length += (size_t) snprintf(text + length, size - length, "%s%s",
									i > 0 ? "," : "", what->lease.names[i]);
}

/* The name for a message, shortened. */
static const char *
name_of(const struct supervised *what)
{
	static char text[300];

	join_names(what, text, sizeof(text));
	return text;
}

/* Write the variables for COMMAND, each with its NUL, and then another NUL. */
static void
write_variables(const struct run *run, char *text, size_t size)
{
	char		names[DLOCK_NAMES_MAX * 256];
	size_t		length;

	join_names(run->what, names, sizeof(names));
	length = (size_t) snprintf(text, size, "DLOCK_NAME=%s", names) + 1;
	length += (size_t) snprintf(text + length, size - length, "DLOCK_OWNER=%s",
								dlock_lease_owner(run->lease)) + 1;
	length += (size_t) snprintf(text + length, size - length, "DLOCK_TOKEN=");
	for (size_t i = 0; i < run->what->lease.nnames; i++)
		length += (size_t) snprintf(text + length, size - length, "%s%" PRId64,
									i > 0 ? "," : "",
									dlock_lease_token(run->lease, i));
	text[length + 1] = '\0';
}

/* -------------------------------------------------------------- ready file */

/*
 * It comes complete, in the place of one that another has left.  It is locked for as long as we
 * live, by which the next elector with this path knows that it is in use.
 */
static void
make_ready_file(struct run *run)
{
	const char *path = run->what->ready_file;
	char		made[PATH_MAX];
	struct stat file;

	if (path == NULL)
		return;
	if (snprintf(made, sizeof(made), "%s.%d", path, (int) getpid()) >= (int) sizeof(made))
	{
		say("the path of the ready file is too long");
		return;
	}
	run->ready_file = open(made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (run->ready_file >= 0 && flock(run->ready_file, LOCK_EX) == 0 &&
		dprintf(run->ready_file, "%" PRId64 "\n", dlock_lease_token(run->lease, 0)) > 0 &&
		fstat(run->ready_file, &file) == 0)
	{
		atomic_store(&run->watchdog.shared->ready_inode, file.st_ino);
		if (rename(made, path) == 0)
			return;
	}
	say("could not write \"%s\": %s", path, strerror(errno));
	unlink(made);
}

static void
remove_ready_file(struct run *run)
{
	const char *path = run->what->ready_file;

	/* the end of the watchdog has removed it, too */
	if (path != NULL && run->watchdog.pid != 0 && !watchdog_remove_ready_file(run->watchdog.shared, path))
		say("could not remove \"%s\": %s", path, strerror(errno));
}

bool
remove_stale_ready_file(const char *path)
{
	int			file = open(path, O_RDONLY | O_CLOEXEC);
	bool		is_used = file >= 0 && flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
	bool		removed = is_used || unlink(path) == 0 || errno == ENOENT;

	if (file >= 0)
		close(file);
	return removed;
}

/* ------------------------------------------------------------ --exec-on-lose */

/* Start the command of --exec-on-lose.  Returns whether it runs. */
static bool
start_on_lose(struct run *run)
{
	static char variables[WATCHDOG_VARIABLES_SIZE];
	bool		lost = run->lost || !dlock_lease_is_held(run->lease);
	const char *reason = lost ? "lost" : run->stopping ? "stopped" : "ended";

	write_variables(run, variables, sizeof(variables));
	run->on_lose = fork();
	if (run->on_lose == 0)
	{
		int			null = open("/dev/null", O_RDONLY);

		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (const char *variable = variables; *variable;
			 variable += strlen(variable) + 1)
			putenv((char *) variable);
		setenv("DLOCK_REASON", reason, 1);
		dup2(null, STDIN_FILENO);
		if (sigpipe_was_default)
			signal(SIGPIPE, SIG_DFL);
		if (sigchld_was_ignored)
			signal(SIGCHLD, SIG_IGN);
		sigprocmask(SIG_SETMASK, &mask_before, NULL);
		execl("/bin/sh", "sh", "-c", run->what->on_lose, (char *) NULL);
		_exit(STATUS_NO_COMMAND);
	}
	if (run->on_lose < 0)
	{
		say("could not run \"%s\": %s", run->what->on_lose, strerror(errno));
		run->on_lose = 0;
		return false;
	}
	setpgid(run->on_lose, run->on_lose);
	run->on_lose_has_lease = !lost;
	run->on_lose_until_us = dlock_now_us() + run->what->lease.ttl_us;
	return true;
}

/* See whether it has ended, or end it: after the TTL, or because the lease is lost. */
static bool
on_lose_has_ended(struct run *run)
{
	bool		lost = run->on_lose_has_lease && !dlock_lease_is_held(run->lease);
	int			status;

	if (lost || dlock_now_us() >= run->on_lose_until_us)
	{
		kill(-run->on_lose, SIGKILL);
		say(lost ? "\"%s\" was killed: the lease was lost" :
			"\"%s\" took longer than the TTL and was killed", run->what->on_lose);
		waitpid(run->on_lose, &status, 0);
		return true;
	}
	if (waitpid(run->on_lose, &status, WNOHANG) == 0)
		return false;
	if (status != 0)
		say("\"%s\" failed with status %d", run->what->on_lose,
			WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	return true;
}

/* ----------------------------------------------------------------- phases */

/* Give the lease back, or cancel the request for it. */
static void
begin_release(struct run *run)
{
	dlock_lease_release(run->lease);
	run->phase = RELEASING;
}

/* Wait only a moment for the release. */
static void
hurry_release(struct run *run)
{
	int64_t		until_us = dlock_now_us() + HURRY_US;

	if (until_us < run->release_until_us)
		run->release_until_us = until_us;
}

/* The lease was not acquired.  An acquire without an answer may have taken it. */
static void
fail_acquire(struct run *run)
{
	run->failed = true;
	run->phase = RELEASING;
	hurry_release(run);
}

/*
 * Nothing of COMMAND is left, since "gone_at_us".  If that is past the deadline, COMMAND
 * may have run beside the next holder, which its users have to know.
 */
static void
all_is_gone(struct run *run, int64_t gone_at_us)
{
	const struct supervised *what = run->what;
	bool		killed = WIFSIGNALED(run->status);
	int64_t		late_us = gone_at_us - dlock_lease_deadline_us(run->lease);

	if (late_us > 0 && !what->warn_only)
		say("the command ended up to %.3f s after the deadline of the lease on \"%s\": it was "
			"not killed in time", (double) late_us / 1e6, name_of(what));
	run->overdue_us = DLOCK_NEVER;
	run->outcome->ran_us = dlock_now_us() - run->started_us;
	terminal_take_back(killed);
	if (what->tell)
		what->tell(false, 0);
	if (what->on_lose && start_on_lose(run))
		run->phase = LOSING;
	else
		begin_release(run);
}

/* Kill all, because the watchdog is gone or does not do its work. */
static void
kill_all(struct run *run)
{
	int			status;

	watchdog_kill(&run->watchdog, &status);
	if (!run->exited)
	{
		run->exited = true;
		run->status = status;
	}
	all_is_gone(run, dlock_now_us());
}

/*
 * COMMAND must end: SIGTERM now, SIGKILL after the grace, or when the lease can
 * end, if that is sooner.
 */
static void
end_command(struct run *run)
{
	struct processes which = watchdog_processes(&run->watchdog);
	int64_t		gone_by_us = atomic_load(&run->watchdog.shared->gone_by_us);
	int64_t		kill_at_us = dlock_now_us() + run->what->grace_us;

	remove_ready_file(run);
	if (run->phase == ENDING && run->overdue_us <= kill_at_us)
		return;
	run->phase = ENDING;
	atomic_store(&run->watchdog.shared->all_must_end, true);
	if (which.group != 0 && !atomic_exchange(&run->watchdog.shared->ending, true))
	{
		processes_signal(&which, SIGTERM);
		processes_signal(&which, SIGCONT);
	}
	watchdog_end(&run->watchdog);
	if (!run->what->warn_only && gone_by_us < kill_at_us)
		kill_at_us = gone_by_us;
	/*
	 * from then on we do it ourselves, within the margin, which is 4 times this
	 * or more
	 */
	run->overdue_us = kill_at_us +
		(run->what->lease.ttl_us < 10000000 ? run->what->lease.ttl_us / 40 : 250000);
}

/* The lease is lost, or has to be taken for lost. */
static void
lose(struct run *run, const dlock_error *error)
{
	const struct supervised *what = run->what;
	bool		told = error && error->error_class != DLOCK_NO_ERROR;

	if (run->lost || run->phase > ENDING)
		return;
	if (!run->exited && !run->stopping)
	{
		run->lost = true;
		say("lost the lease on \"%s\": %s%s%s", name_of(what),
			told ? error->message : "it could not be renewed in time",
			!told && run->trouble[0] ? ": " : "", told ? "" : run->trouble);
	}
	if (what->warn_only)
		return;
	end_command(run);
}

/* The lease is held: tell the watchdog to make COMMAND's process. */
static void
order_command(struct run *run)
{
	struct watchdog_shared *shared = run->watchdog.shared;

	atomic_store(&shared->gone_by_us, dlock_lease_lost_at_us(run->lease));
	write_variables(run, shared->variables, sizeof(shared->variables));
	watchdog_run(&run->watchdog);
	run->phase = STARTING;
	run->overdue_us = dlock_now_us() + REPORT_US;
}

/* COMMAND's process is there and waits for us. */
static void
let_command_go(struct run *run, pid_t command)
{
	const struct supervised *what = run->what;

	run->command = command;
	run->pidfd = (int) syscall(SYS_pidfd_open, command, 0);
	run->started_us = dlock_now_us();
	if (run->phase != STARTING)
		return;					/* it must end already */
	run->phase = RUNNING;
	run->overdue_us = DLOCK_NEVER;
	run->lends_terminal = terminal_is_for_command();
	if (run->lends_terminal)
		terminal_lend(command);
	make_ready_file(run);
	watchdog_go(&run->watchdog);
	for (int number = 1; number < NSIG; number++)
		if (sigismember(&run->early, number) == 1)
			kill(command, number);
	if (what->tell)
		what->tell(true, dlock_lease_token(run->lease, 0));
	/* COMMAND's readers and writers must find its end, not ours */
	if (!what->elects)
		close_inherited_files();
}

/* ---------------------------------------------------------- job control */

/* Be stopped by a signal that is pending, unless a SIGCONT has taken it back. */
static void
be_stopped(int number)
{
	sigset_t	one;

	sigemptyset(&one);
	sigaddset(&one, number);
	/* we are stopped within, unless nobody could continue us */
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	sigprocmask(SIG_BLOCK, &one, NULL);
}

/* Stop as a signal says, with those who share our process group. */
static void
stop_the_job(int number)
{
	if (number == SIGSTOP)
	{
		kill(getpid(), SIGSTOP);
		return;
	}
	kill(0, number);
	be_stopped(number);
}

/*
 * SIGTSTP came.  If it came from a terminal, the others of our job have stopped already,
 * and the shell may continue the job before COMMAND has stopped.  So the signal is left
 * pending until then: a SIGCONT takes it back, and the job is not stopped a second time.
 */
static void
stop_came(struct run *run)
{
	struct signalfd_siginfo caught;

	switch (run->phase)
	{
		case ACQUIRING:
			be_stopped(SIGTSTP);
			return;
		case RUNNING:
			kill(-run->command, SIGTSTP);
			run->paused = true;
			run->stops = terminal_is_there();
			if (run->stops)
				return;
			break;
		case STARTING:
			sigaddset(&run->early, SIGTSTP);
			break;
		default:
			break;
	}
	/* it is not to stop us; a SIGCONT may have taken it back already */
	(void) !read(stops, &caught, sizeof(caught));
}

/*
 * COMMAND was stopped.  If it wants the terminal, and we have that, it gets it.
 * Otherwise the whole job stops, until the shell continues it.
 */
static void
command_was_stopped(struct run *run, int number)
{
	int64_t		left_us = dlock_lease_lost_at_us(run->lease) - dlock_now_us();

	if (!terminal_is_there() || run->phase != RUNNING ||
		!process_is_stopped(run->command))	/* it goes on already */
		return;
	if ((number == SIGTTIN || number == SIGTTOU) && terminal_is_ours())
	{
		terminal_lend(run->command);
		kill(-run->command, SIGCONT);
		return;
	}
	terminal_take_back(false);
	if (!run->what->warn_only)
		say("stopped; unless it goes on within %" PRId64 " s, it loses the lease on \"%s\"",
			(left_us - run->what->grace_us) / 1000000, name_of(run->what));
	if (run->stops)
		be_stopped(SIGTSTP);
	else
		stop_the_job(number);
	run->paused = run->stops = false;
	if (run->lends_terminal || number == SIGTTIN || number == SIGTTOU)
		terminal_lend(run->command);
	kill(-run->command, SIGCONT);
}

/* -------------------------------------------------------------- what comes */

/*
 * Say whether the URL, or the environment, can mean one server only.  A service has
 * its hosts in a file.
 */
static bool
names_one_server(const char *url)
{
	const char *hosts = getenv("PGHOST");
	const char *addresses = getenv("PGHOSTADDR");

	if (url == NULL || *url == '\0')
		url = getenv("DLOCK_URL");
	if (url != NULL && (strchr(url, ',') != NULL || strstr(url, "service") != NULL))
		return false;
	if (hosts != NULL && strchr(hosts, ',') != NULL)
		return false;
	if (addresses != NULL && strchr(addresses, ',') != NULL)
		return false;
	return getenv("PGSERVICE") == NULL;
}

/* An attempt has failed, and the library tries again. */
static void
note_trouble(struct run *run, const dlock_error *error)
{
	const struct supervised *what = run->what;

	describe_error(error, run->trouble, sizeof(run->trouble));
	run->troubles++;

	/*
	 * The wrong server is asked no second time if nobody wants to wait, and no
	 * other is named.  It was the first attempt, so there is nothing to give
	 * back.
	 */
	if (run->phase == ACQUIRING && run->troubles == 1 && is_read_only(error) &&
		what->lease.wait_us == 0 && !what->insists && names_one_server(what->url))
	{
		run->outcome->kind = OUTCOME_FAILED;
		run->outcome->status = say_error(NULL, error);
		run->outcome->error = *error;
		fail_acquire(run);
		run->release_until_us = 0;
		return;
	}
	if (run->troubles != TROUBLES_TOLD)
		return;
	if (run->phase == RUNNING)
		say("could not renew the lease on \"%s\", trying again: %s", name_of(what),
			run->trouble);
	else if (run->phase == ACQUIRING && what->lease.wait_us != 0)
		say("could not ask for \"%s\", trying again: %s", name_of(what),
			run->trouble);
}

/*
 * COMMAND has ended, and the lease was not given back: the server could not be asked,
 * or has answered that there was none any more.
 */
static void
not_given_back(struct run *run, const dlock_event *event)
{
	const struct supervised *what = run->what;

	if (event->error.error_class == DLOCK_NO_ERROR)
	{
		/* since the last renewal somebody else may have been granted it */
		run->lost = true;
		say("lost the lease on \"%s\": it had ended before the command did, with status %d",
			name_of(what), WIFEXITED(run->status) ? WEXITSTATUS(run->status) :
			128 + WTERMSIG(run->status));
	}
	else if (what->lease.keep_at_least_us > 0)
		say("could not keep the lease on \"%s\": %s", name_of(what),
			event->error.message);
	else if (event->error.error_class != DLOCK_LOST)
		say("could not give the lease on \"%s\" back, so it ends by its TTL: %s",
			name_of(what), event->error.message);
}

static void
handle_event(struct run *run, const dlock_event *event)
{
	const struct supervised *what = run->what;
	struct outcome *outcome = run->outcome;

	switch (event->kind)
	{
		case DLOCK_EVENT_HELD:
			run->troubles = 0;
			if (run->phase != ACQUIRING)
				break;
			order_command(run);
			break;
		case DLOCK_EVENT_RENEWED:
			if (run->watchdog.pid != 0)
				atomic_store(&run->watchdog.shared->gone_by_us, event->lost_at_us);
			if (run->troubles >= TROUBLES_TOLD && run->phase == RUNNING)
				say("the lease on \"%s\" was renewed", name_of(what));
			run->troubles = 0;
			break;
		case DLOCK_EVENT_TROUBLE:
			note_trouble(run, &event->error);
			break;
		case DLOCK_EVENT_LOST:
			lose(run, &event->error);
			break;
		case DLOCK_EVENT_REFUSED:
			if (run->phase != ACQUIRING)
				break;
			outcome->kind = OUTCOME_REFUSED;
			outcome->status = STATUS_BUSY;
			outcome->error = event->error;
			if (event->error.error_class != DLOCK_NO_ERROR && event->error.sqlstate[0])
				say_error(NULL, &event->error);
			else if (!what->quiet)
				say("\"%s\" is not free", name_of(what));
			fail_acquire(run);
			break;
		case DLOCK_EVENT_FAILED:
			if (run->phase != ACQUIRING)
				break;
			outcome->kind = OUTCOME_FAILED;
			outcome->status = status_of(&event->error);
			outcome->error = event->error;
			if (!what->elects)
				say_error(NULL, &event->error);
			fail_acquire(run);
			break;
		case DLOCK_EVENT_RELEASED:
			if (run->exited && !run->lost && !event->given_back)
				not_given_back(run, event);
			break;				/* dlock_lease_is_done() says so too */
	}
}

static void
handle_report(struct run *run, const struct watchdog_report *report)
{
	int64_t		gone_at_us;

	switch (report->kind)
	{
		case WATCHDOG_STARTED:
			let_command_go(run, report->value);
			break;
		case WATCHDOG_NOT_STARTED:
			say("could not start a process: %s", strerror(report->value));
			run->broken = true;
			begin_release(run);
			break;
		case WATCHDOG_STOPPED:
			command_was_stopped(run, report->value);
			break;
		case WATCHDOG_TIMED_OUT:
			lose(run, NULL);
			break;
		case WATCHDOG_EXITED:
			run->exited = true;
			run->status = report->value;
			remove_ready_file(run);
			if (run->pidfd >= 0)
				close(run->pidfd);
			run->pidfd = -1;
			if (run->phase != ENDING)
			{
				run->phase = ENDING;
				run->overdue_us = dlock_now_us() + run->what->grace_us + REPORT_US;
			}
			break;
		case WATCHDOG_GONE:
			gone_at_us = atomic_load(&run->watchdog.shared->gone_at_us);
			watchdog_finish(&run->watchdog);
			all_is_gone(run, gone_at_us);
			break;
	}
}

/*
 * Start another watchdog instead of one that is gone or stopped, before COMMAND
 * was let go.
 */
static void
replace_watchdog(struct run *run)
{
	int			status;

	watchdog_kill(&run->watchdog, &status);
	run->overdue_us = DLOCK_NEVER;
	if (!watchdog_start(&run->watchdog, &run->watchdog_options))
	{
		say("could not start a process: %s", strerror(errno));
		run->broken = true;
		begin_release(run);
	}
	else if (run->phase == STARTING)
		order_command(run);
}

/*
 * The watchdog has ended before COMMAND was let go.  It may have been killed while
 * it waited: then another one waits instead.  But one that ends at its start, or
 * when it makes COMMAND, is killed by something that will kill the next one too,
 * such as a filter for system calls.
 */
static void
watchdog_ended_early(struct run *run)
{
	bool		started = atomic_load(&run->watchdog.shared->ready);
	int			status;
	int			watchdog_status;

	if (started && run->phase == ACQUIRING)
	{
		replace_watchdog(run);
		return;
	}
	if (!started)
		run->watchdog_options.asks_priority = may_ask_priority = false;
	if (++run->early_ends < EARLY_ENDS_MAX)
	{
		replace_watchdog(run);
		return;
	}
	watchdog_status = watchdog_kill(&run->watchdog, &status);
	run->overdue_us = DLOCK_NEVER;
	say("the watchdog ends at once, by %s %d, %d times in a row, so the command is not run",
		WIFEXITED(watchdog_status) ? "status" : "signal",
		WIFEXITED(watchdog_status) ? WEXITSTATUS(watchdog_status) : WTERMSIG(watchdog_status),
		run->early_ends);
	run->broken = true;
	begin_release(run);
}

/* The watchdog has ended, which it does not do by itself. */
static void
watchdog_is_gone(struct run *run)
{
	int			status;

	if (run->phase == ACQUIRING || run->phase == STARTING)
	{
		watchdog_ended_early(run);
		return;
	}
	if (run->phase == RELEASING)	/* there was no COMMAND */
	{
		watchdog_kill(&run->watchdog, &status);
		return;
	}
	if (!run->exited && !run->lost && !run->stopping)
	{
		run->broken = true;
		say("the watchdog has ended, so the command was killed");
	}
	kill_all(run);
}

/*
 * Reap orphans that became ours, such as daemons of earlier terms; not those
 * for which other code here waits.
 */
static void
bury_orphans(const struct run *run)
{
	siginfo_t	info;

	for (;;)
	{
		info.si_pid = 0;
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
			info.si_pid == 0 || info.si_pid == run->watchdog.pid ||
			info.si_pid == run->on_lose || info.si_pid == run->command)
			return;
		waitid(P_PID, (id_t) info.si_pid, &info, WEXITED | WNOHANG);
	}
}

static bool
ends_us(const struct run *run, int number)
{
	switch (number)
	{
		case SIGTERM:
		case SIGINT:
		case SIGQUIT:
			return true;
		case SIGHUP:
			/* a daemon passes it on; otherwise the terminal is gone */
			return !run->what->elects || terminal_is_there();
		default:
			return false;
	}
}

static void
handle_signal(struct run *run, int number, bool from_terminal)
{
	if (number == SIGCHLD)
	{
		bury_orphans(run);
		return;
	}
	if (number == SIGCONT)
	{
		/* if COMMAND stopped first, command_was_stopped() does it */
		if (run->paused && !run->exited)
			kill(-run->command, SIGCONT);
		run->paused = run->stops = false;
		return;
	}
	if (number == SIGINT && from_terminal)
		run->ctrl_c = true;
	switch (run->phase)
	{
		case ACQUIRING:
			if (ends_us(run, number))
			{
				run->stopping = number;
				begin_release(run);
			}
			break;
		case STARTING:
		case RUNNING:
			if (run->what->elects && ends_us(run, number))
			{
				run->stopping = number;
				end_command(run);
			}
			else if (run->phase == STARTING)
				sigaddset(&run->early, number);
			else
				/* the terminal's keys are for its whole group */
				kill(from_terminal ? -run->command : run->command, number);
			break;
		case ENDING:
		case LOSING:
			if (run->what->elects && ends_us(run, number))
				run->stopping = number;
			/* pass the signal on: COMMAND may be waiting for it */
			if (!run->exited && run->command != 0)
				kill(run->command, number);
			break;
		case RELEASING:
			/* the signal that ended COMMAND may come only now */
			if (ends_us(run, number))
			{
				run->stopping = number;
				hurry_release(run);
			}
			break;
	}
}

/* ------------------------------------------------------------------ the loop */

/* Do what is due by the clock. */
static void
look_at_clock(struct run *run)
{
	int64_t		now_us = dlock_now_us();

	if ((run->phase == STARTING || run->phase == RUNNING) && !run->what->warn_only &&
		now_us >= dlock_lease_lost_at_us(run->lease) - run->what->grace_us)
		lose(run, NULL);
	if (now_us >= run->overdue_us && run->watchdog.pid != 0)
	{
		/* on a busy machine it may be late; it has time while the lease lasts */
		if (!run->lost && !run->stopping && !watchdog_is_stopped(&run->watchdog))
			run->overdue_us = now_us + REPORT_US;
		else if (run->phase == STARTING)
			replace_watchdog(run);
		else
			kill_all(run);
	}
	if (run->phase == LOSING && on_lose_has_ended(run))
	{
		run->on_lose = 0;
		begin_release(run);
	}

	/* of both processes: each ends COMMAND in time if the other cannot */
	if (now_us >= notify_due_us())
		notify_alive(run->watchdog.pid == 0 || !watchdog_is_stopped(&run->watchdog));
}

/* When to look at the clock again. */
static int64_t
next_look_us(const struct run *run)
{
	int64_t		next_us = dlock_lease_until_us(run->lease);
	int64_t		other_us = run->overdue_us;

	if ((run->phase == STARTING || run->phase == RUNNING) && !run->what->warn_only)
	{
		int64_t		end_us = dlock_lease_lost_at_us(run->lease) - run->what->grace_us;

		if (end_us < other_us)
			other_us = end_us;
	}
	if (run->phase == LOSING && run->on_lose_until_us < other_us)
		other_us = run->on_lose_until_us;
	if (run->phase == RELEASING && run->release_until_us < other_us)
		other_us = run->release_until_us;
	if (notify_due_us() < other_us)
		other_us = notify_due_us();
	return other_us < next_us ? other_us : next_us;
}

/* The program that "hold" works for does not want the lease any more, before it is held. */
static void
not_wanted(struct run *run)
{
	if (!run->what->quiet)
		say("the lease on \"%s\" was not held yet when standard input said that it is not wanted, or "
			"the program ended", name_of(run->what));
	run->outcome->kind = OUTCOME_REFUSED;
	run->outcome->status = STATUS_BUSY;
	fail_acquire(run);
}

/* Wait for whatever comes next. */
static void
wait_for_more(struct run *run)
{
	bool		may_be_over = run->what->stand_in != NULL && run->phase == ACQUIRING;
	struct pollfd polled[7] = {
		{.fd = signals, .events = POLLIN},
		{.fd = dlock_lease_fd(run->lease), .events = dlock_lease_events(run->lease)},
		{.fd = run->watchdog.pid != 0 ? run->watchdog.socket : -1, .events = POLLIN},
		/* once it is noticed, the report is waited for */
		{.fd = run->overdue_us == DLOCK_NEVER ? run->pidfd : -1, .events = POLLIN},
		{.fd = run->stops ? -1 : stops, .events = POLLIN},
		{.fd = may_be_over ? run->what->other : -1, .events = POLLIN},
		{.fd = may_be_over ? STDIN_FILENO : -1, .events = POLLIN}
	};

	poll(polled, 7, dlock_timeout_ms(next_look_us(run)));
	if (polled[3].revents != 0)
		run->overdue_us = dlock_now_us() + REPORT_US;
	if (polled[4].revents != 0)
		stop_came(run);
	if (polled[5].revents != 0 || (polled[6].revents != 0 && run->what->is_over()))
		not_wanted(run);
}

static void
drive(struct run *run)
{
	for (;;)
	{
		dlock_event event;
		struct watchdog_report report;
		struct signalfd_siginfo caught;
		int			got = 0;

		while (dlock_lease_step(run->lease, &event))
			handle_event(run, &event);
		/* before the reports: a signal to all of us may have ended COMMAND already */
		while (read(signals, &caught, sizeof(caught)) == sizeof(caught))
			handle_signal(run, (int) caught.ssi_signo, caught.ssi_code == SI_KERNEL);
		while (run->watchdog.pid != 0 &&
			   (got = watchdog_read(&run->watchdog, &report)) != 0)
		{
			if (got > 0)
				handle_report(run, &report);
			else
				watchdog_is_gone(run);
		}
		look_at_clock(run);
		if (run->phase == RELEASING &&
			(dlock_lease_is_done(run->lease) ||
			 dlock_now_us() >= run->release_until_us))
			break;
		wait_for_more(run);
	}
}

/* Set the outcome of a run whose lease was released, or never acquired because of a signal. */
static void
conclude(const struct run *run)
{
	struct outcome *outcome = run->outcome;

	if (run->broken)
	{
		outcome->kind = run->early_ends >= EARLY_ENDS_MAX ?
			OUTCOME_HOPELESS : OUTCOME_BROKEN;
		outcome->status = STATUS_SYSTEM;
	}
	else if (run->lost && !run->what->warn_only)
	{
		outcome->kind = OUTCOME_LOST;
		outcome->status = STATUS_LOST;
	}
	else if (run->exited && !(run->what->elects && run->stopping))
	{
		outcome->kind = OUTCOME_EXITED;
		outcome->status = WIFEXITED(run->status) ? WEXITSTATUS(run->status) :
			128 + WTERMSIG(run->status);
	}
	else
	{
		outcome->kind = OUTCOME_INTERRUPTED;
		outcome->status = 128 + run->stopping;
	}
	outcome->signal_number = run->stopping;
	outcome->by_ctrl_c = outcome->status == 128 + SIGINT &&
		(run->ctrl_c || run->lends_terminal);
}

void
supervise(const struct supervised *what, struct outcome *outcome)
{
	struct run	run = {
		.what = what, .outcome = outcome, .phase = ACQUIRING, .pidfd = -1, .ready_file = -1,
		.overdue_us = DLOCK_NEVER, .release_until_us = DLOCK_NEVER,
		.watchdog_options = {
			.argv = what->argv, .grace_us = what->grace_us,
			.may_outlive = what->warn_only, .asks_priority = may_ask_priority,
			.ready_file = what->ready_file,
			.stand_in = what->stand_in, .other = what->other, .ends_other = what->ends_other,
			.signal_mask = mask_before, .sigpipe_was_default = sigpipe_was_default,
			.sigchld_was_ignored = sigchld_was_ignored
		}
	};

	memset(outcome, 0, sizeof(*outcome));
	sigemptyset(&run.early);
	run.lease = dlock_lease_new(what->url, &what->lease, &outcome->error);
	if (run.lease == NULL)
	{
		outcome->kind = OUTCOME_FAILED;
		outcome->status = status_of(&outcome->error);
		if (!what->elects)
			say_error(NULL, &outcome->error);
		return;
	}
	/* before the lease can be granted */
	if (!watchdog_start(&run.watchdog, &run.watchdog_options))
	{
		say("could not start a process: %s", strerror(errno));
		outcome->kind = OUTCOME_BROKEN;
		outcome->status = STATUS_SYSTEM;
		dlock_lease_free(run.lease);
		return;
	}
	dlock_lease_start(run.lease);
	drive(&run);
	if (!run.failed || run.stopping)
		conclude(&run);
	if (run.watchdog.pid != 0)
		watchdog_finish(&run.watchdog);
	if (run.pidfd >= 0)
		close(run.pidfd);
	if (run.ready_file >= 0)
		close(run.ready_file);
	dlock_lease_free(run.lease);
}

int
supervise_once(const struct supervised *what)
{
	struct outcome outcome;

	supervise(what, &outcome);
	if (outcome.by_ctrl_c)
	{
		sigset_t	interrupt;

		sigemptyset(&interrupt);
		sigaddset(&interrupt, SIGINT);
		signal(SIGINT, SIG_DFL);
		sigprocmask(SIG_UNBLOCK, &interrupt, NULL);
		kill(getpid(), SIGINT);
	}
	if (outcome.kind == OUTCOME_EXITED || outcome.kind == OUTCOME_INTERRUPTED)
		return outcome.status;
	return own_status(outcome.status);
}

int
supervise_pause(int64_t pause_us)
{
	int64_t		end_us = dlock_now_us() + pause_us;
	struct pollfd polled[2] = {
		{.fd = signals, .events = POLLIN}, {.fd = stops, .events = POLLIN}
	};

	while (dlock_now_us() < end_us)
	{
		struct signalfd_siginfo caught;

		notify_alive(true);
		poll(polled, 2, dlock_timeout_ms(end_us < notify_due_us() ? end_us :
										 notify_due_us()));
		if (polled[1].revents != 0)
			be_stopped(SIGTSTP);
		while (read(signals, &caught, sizeof(caught)) == sizeof(caught))
		{
			int			number = (int) caught.ssi_signo;

			if (number == SIGTERM || number == SIGINT || number == SIGQUIT ||
				(number == SIGHUP && terminal_is_there()))
				return number;
			while (number == SIGCHLD && waitpid(-1, NULL, WNOHANG) > 0)
				;
		}
	}
	return 0;
}
