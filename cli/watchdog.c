/*
 * watchdog.c
 *	  The process that runs COMMAND and ends it in time.
 *
 * The main process acquires the lease and renews it.  It can be stopped, be
 * killed, or hang in a client library.  Even then COMMAND must not go on beside
 * the next holder.  So a separate process, which does nothing else, makes
 * COMMAND and knows when it must be gone.  It starts before the lease is asked
 * for.
 *
 *		shell - main process - watchdog - COMMAND - ...
 *
 * The watchdog is COMMAND's parent, and the "subreaper" of all that COMMAND starts,
 * so it can find all of that even when the main process is gone: see
 * processes.c.  COMMAND is held at a pipe before exec() until the watchdog
 * knows its process group and the main process has said GO.
 *
 * The deadline is a number in shared memory.  The main process moves it after
 * each renewal and sends no message; a main process that is stopped moves
 * nothing.  When the time comes, less the grace, the watchdog sends SIGTERM,
 * and at the time itself SIGKILL.
 *
 * What happens when one of them is
 *
 *					killed							stopped
 *	main process	the watchdog finds the			the watchdog ends COMMAND
 *					socket closed and kills			at the deadline
 *					COMMAND at once
 *	watchdog		the kernel kills COMMAND		the main process does not see
 *					(PR_SET_PDEATHSIG), the main	the report, kills the watchdog
 *					process all the rest			and what it has started
 *
 * The watchdog has all signals blocked and is in a process group of its own, so
 * that nothing but SIGKILL and SIGSTOP, sent to itself, reaches it.  It has
 * closed all files that COMMAND has, so that a reader of COMMAND's output finds
 * its end.
 *
 * COMMAND's process stays a zombie until all is over, so that nobody else can get
 * the number of its process and its group meanwhile.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "watchdog.h"
#include "command.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What the main process sends: one byte. */
#define ORDER_RUN	'r'
#define ORDER_GO	'g'
#define ORDER_END	'e'

/* So many bytes may be unread for the main process to get one more report of a stop. */
#define UNREAD_MAX	16384

/* How long to wait before counting the processes that must end again. */
#define COUNT_PAUSE_MIN_US	INT64_C(2000)
#define COUNT_PAUSE_MAX_US	INT64_C(100000)

/* The watchdog's own state, in its own process. */
struct state
{
	const struct watchdog_options *options;
	struct watchdog_shared *shared;
	pid_t		main_process;
	int			socket;
	int			timer;
	int			gate;			/* to be written to, for COMMAND to begin; or -1 */
	pid_t		command;		/* 0: there is none yet */
	bool		exited;			/* COMMAND has, and is a zombie */
	bool		ended;			/* all of COMMAND must end, not only its group */
	bool		gone;			/* and all is over */
	int64_t		pause_us;		/* before counting again */
	int64_t		kill_at_us;		/* after SIGTERM; INT64_MAX: not sent */
};

/* Which files were open when the program began. */
static bool *inherited;
static int	inherited_count;

/* Two more that the watchdog keeps. */
static int	kept = -1;
static int	kept_other = -1;

/* ------------------------------------------------------------------ files */

/* Call a function for each open file but the one that is open for this. */
static void
for_each_file(void (*function) (int file))
{
	DIR		   *folder = opendir("/proc/self/fd");
	struct dirent *entry;

	if (folder == NULL)
		return;
	while ((entry = readdir(folder)) != NULL)
	{
		int			file = (int) strtol(entry->d_name, NULL, 10);

		if (entry->d_name[0] != '.' && file != dirfd(folder))
			function(file);
	}
	closedir(folder);
}

static void
note_inherited(int file)
{
	if (file >= inherited_count)
	{
		bool	   *larger = realloc(inherited, (size_t) file + 1);

		if (larger == NULL)
			abort();
		memset(larger + inherited_count, 0, (size_t) (file + 1 - inherited_count));
		inherited = larger;
		inherited_count = file + 1;
	}
	inherited[file] = true;
}

static bool
is_inherited(int file)
{
	return file < inherited_count && inherited[file];
}

/*
 * Opens closed standard files first.  Otherwise a connection of ours could
 * become one, and COMMAND would take it for its standard output.
 */
void
note_inherited_files(void)
{
	int			file;

	do
		file = open("/dev/null", O_RDWR);
	while (file >= 0 && file <= STDERR_FILENO);
	if (file >= 0)
		close(file);
	for_each_file(note_inherited);
}

static void
close_if_inherited(int file)
{
	if (is_inherited(file) && file > STDERR_FILENO)
		close(file);
}

static void
close_if_not_inherited(int file)
{
	if (!is_inherited(file) && file != kept && file != kept_other)
		close(file);
}

static void
close_if_not_standard(int file)
{
	if (file > STDERR_FILENO && file != kept_other)
		close(file);
}

/* Point the standard files from "first" to "last" at nothing. */
static void
close_standard_files(int first, int last)
{
	int			null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int file = first; file <= last && null >= 0; file++)
		dup2(null, file);
	if (null > STDERR_FILENO)
		close(null);
}

void
close_inherited_files(void)
{
	for_each_file(close_if_inherited);
	close_standard_files(STDIN_FILENO, STDOUT_FILENO);
}

/* ------------------------------------------------------- in the watchdog */

static void
report(const struct state *state, int kind, int value)
{
	struct watchdog_report message = {.kind = kind, .value = value};
	int			unread = 0;

	/*
	 * A main process that does not run, while COMMAND is stopped and continued again
	 * and again, leaves no room for the other reports, without which it waits for
	 * ever.  When it goes on it looks at COMMAND itself, so one report of a stop is
	 * as good as many.
	 */
	if (kind == WATCHDOG_STOPPED && ioctl(state->socket, SIOCOUTQ, &unread) == 0 &&
		unread > UNREAD_MAX)
		return;
	/* a main process that is gone is noticed elsewhere */
	(void) !send(state->socket, &message, sizeof(message),
				 MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The other process, if it is to be ended with COMMAND now; or -1. */
static int
other_to_end(const struct watchdog_options *options, struct watchdog_shared *shared)
{
	return options->ends_other && atomic_load(&shared->other_works) ? options->other : -1;
}

/* All that COMMAND has started, or only its process group. */
static struct processes
all_or_group(const struct state *state)
{
	struct processes which = {
		.group = state->command,
		.ancestor = state->ended ? getpid() : 0,
		.cgroup = state->ended ? state->shared->cgroup : "",
		.other = other_to_end(state->options, state->shared)
	};

	return which;
}

bool
watchdog_remove_ready_file(struct watchdog_shared *shared, const char *path)
{
	ino_t		inode = atomic_exchange(&shared->ready_inode, 0);
	struct stat file;

	if (inode == 0 || stat(path, &file) != 0 || file.st_ino != inode)
		return true;
	return unlink(path) == 0 || errno == ENOENT;
}

/* Send SIGTERM, unless it has been sent, and note when SIGKILL is due. */
static void
terminate(struct state *state)
{
	struct processes which = all_or_group(state);

	if (state->kill_at_us == INT64_MAX)
		state->kill_at_us = dlock_now_us() + state->options->grace_us;
	watchdog_remove_ready_file(state->shared, state->options->ready_file);
	if (state->gate >= 0)
	{
		/* it has not begun, and now never will */
		close(state->gate);
		state->gate = -1;
	}
	if (atomic_exchange(&state->shared->ending, true))
		return;
	processes_signal(&which, SIGTERM);
	/* those that are stopped find SIGTERM when they go on */
	processes_signal(&which, SIGCONT);
}

/*
 * A service manager says for which process its variables are: for the one that it has
 * started.  Now they are for COMMAND, which has the sockets that go with them.
 */
static void
take_over_variables(pid_t from)
{
	static const char *const names[] = {"LISTEN_PID", "WATCHDOG_PID"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
	{
		const char *value = getenv(names[i]);
		char		pid[16];

		if (value == NULL || strtol(value, NULL, 10) != from)
			continue;
		snprintf(pid, sizeof(pid), "%d", (int) getpid());
		setenv(names[i], pid, 1);
		/* another way to name the process; without it the number counts */
		unsetenv("LISTEN_PIDFDID");
	}
}

/* Become COMMAND.  Never returns. */
static void
become_command(const struct state *state, int gate, pid_t parent)
{
	const struct watchdog_options *options = state->options;
	char		byte;
	ssize_t		length;
	int			status;

	setpgid(0, 0);
	if (!options->may_outlive)
	{
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(STATUS_SYSTEM);
	}
	for (const char *variable = state->shared->variables; *variable;
		 variable += strlen(variable) + 1)
		putenv((char *) variable);
	take_over_variables(state->main_process);
	if (options->sigpipe_was_default)
		signal(SIGPIPE, SIG_DFL);
	if (options->sigchld_was_ignored)
		signal(SIGCHLD, SIG_IGN);

	/* a watchdog that gives up closes the pipe */
	do
		length = read(gate, &byte, 1);
	while (length < 0 && errno == EINTR);
	if (length != 1)
		_exit(STATUS_LOST);

	if (options->stand_in)
	{
		/* those of the watchdog, and those that the program has left open, are not for it */
		for_each_file(close_if_not_standard);
		_exit(options->stand_in(state->shared, options->other));
	}
	sigprocmask(SIG_SETMASK, &options->signal_mask, NULL);
	execvp(options->argv[0], options->argv);
	status = errno == ENOENT ? STATUS_NO_COMMAND : STATUS_CANNOT_RUN;
	say("could not run \"%s\": %s", options->argv[0], strerror(errno));
	_exit(status);
}

/* Make COMMAND's process, which waits at the gate. */
static void
make_command(struct state *state)
{
	int			gate[2];
	pid_t		watchdog = getpid();
	pid_t		pid;

	if (pipe2(gate, O_CLOEXEC) != 0)
	{
		report(state, WATCHDOG_NOT_STARTED, errno);
		return;
	}
	pid = fork();
	if (pid == 0)
	{
		close(gate[1]);
		become_command(state, gate[0], watchdog);
	}
	if (pid < 0)
	{
		report(state, WATCHDOG_NOT_STARTED, errno);
		close(gate[0]);
		close(gate[1]);
		return;
	}
	close(gate[0]);
	setpgid(pid, pid);
	if (!state->options->may_outlive)
		cgroup_make(pid, state->shared->cgroup, sizeof(state->shared->cgroup));
	state->gate = gate[1];
	state->command = pid;
	atomic_store(&state->shared->command, pid);
	report(state, WATCHDOG_STARTED, pid);

	/* COMMAND has them now */
	for_each_file(close_if_inherited);
	close_standard_files(STDIN_FILENO, STDERR_FILENO);
}

/* See what has become of COMMAND, and reap the orphans that became ours. */
static void
look_after_children(struct state *state)
{
	siginfo_t	info;

	while (!state->exited && state->command != 0)
	{
		info.si_pid = 0;
		if (waitid(P_PID, (id_t) state->command, &info,
				   WEXITED | WSTOPPED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
			break;
		if (info.si_code == CLD_STOPPED || info.si_code == CLD_TRAPPED)
		{
			waitid(P_PID, (id_t) state->command, &info, WSTOPPED | WNOHANG);
			report(state, WATCHDOG_STOPPED, info.si_status);
			continue;
		}
		state->exited = true;
		report(state, WATCHDOG_EXITED, info.si_code == CLD_EXITED ?
			   W_EXITCODE(info.si_status, 0) : W_EXITCODE(0, info.si_status));
	}
	for (;;)
	{
		info.si_pid = 0;
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
			info.si_pid == 0 || info.si_pid == state->command)
			break;
		waitid(P_PID, (id_t) info.si_pid, &info, WEXITED | WNOHANG);
	}
}

/*
 * Do what is due, by the clock and by what has happened.  Returns when to look
 * again.
 */
static int64_t
do_what_is_due(struct state *state)
{
	int64_t		now_us = dlock_now_us();
	int64_t		gone_by_us = state->options->may_outlive ? INT64_MAX :
		atomic_load(&state->shared->gone_by_us);
	struct processes which;

	if (state->command == 0 || state->gone)
		return INT64_MAX;

	/* the main process may have been quicker, and have sent SIGTERM */
	if (!state->ended &&
		(atomic_load(&state->shared->all_must_end) ||
		 (!state->exited && now_us >= gone_by_us - state->options->grace_us)))
	{
		state->ended = true;
		if (!state->exited)
			report(state, WATCHDOG_TIMED_OUT, 0);
		terminate(state);
	}

	/* what COMMAND leaves in its group must not outlive the lease */
	which = all_or_group(state);
	if (state->exited && state->kill_at_us == INT64_MAX &&
		processes_signal(&which, 0) != 0)
		terminate(state);

	if (state->kill_at_us != INT64_MAX &&
		(now_us >= state->kill_at_us || now_us >= gone_by_us))
		processes_kill(&which);

	look_after_children(state);
	if (state->exited)
	{
		int64_t		pause_us = state->pause_us;
		int64_t		next_us;

		if (processes_signal(&which, 0) == 0)
		{
			state->gone = true;
			atomic_store(&state->shared->gone_at_us, dlock_now_us());
			report(state, WATCHDOG_GONE, 0);
			return INT64_MAX;
		}
		if (2 * pause_us <= COUNT_PAUSE_MAX_US)
			state->pause_us = 2 * pause_us;
		/* kill the rest in time, however long the pause has become */
		next_us = now_us + pause_us;
		if (state->kill_at_us > now_us && state->kill_at_us < next_us)
			next_us = state->kill_at_us;
		if (gone_by_us > now_us && gone_by_us < next_us)
			next_us = gone_by_us;
		return next_us;
	}
	if (state->kill_at_us == INT64_MAX)
		return gone_by_us == INT64_MAX ? INT64_MAX :
			gone_by_us - state->options->grace_us;
	if (state->kill_at_us > now_us && gone_by_us > now_us)
		return state->kill_at_us < gone_by_us ? state->kill_at_us : gone_by_us;
	return now_us + COUNT_PAUSE_MIN_US;
}

/* Obey the main process; false if it is gone. */
static bool
obey(struct state *state)
{
	char		order;
	ssize_t		length = recv(state->socket, &order, 1, MSG_DONTWAIT);

	if (length < 0)
		return errno == EAGAIN || errno == EINTR;
	if (length == 0)
		return false;
	switch (order)
	{
		case ORDER_RUN:
			make_command(state);
			break;
		case ORDER_GO:
			/* too late, if the time to end has come */
			if (state->gate < 0)
				break;
			if (!atomic_load(&state->shared->ending) &&
				(state->options->may_outlive ||
				 dlock_now_us() < atomic_load(&state->shared->gone_by_us)))
				(void) !write(state->gate, "", 1);
			close(state->gate);
			state->gate = -1;
			break;
		case ORDER_END:
			state->ended = true;
			if (state->command != 0)
				terminate(state);
			break;
	}
	return true;
}

/* The main process is gone: kill all at once.  Never returns. */
static void
end_alone(struct state *state)
{
	struct processes which;
	const struct timespec pause = {0, COUNT_PAUSE_MIN_US * 1000};

	if (state->command != 0 && !state->gone && !state->options->may_outlive)
	{
		watchdog_remove_ready_file(state->shared, state->options->ready_file);
		state->ended = true;
		which = all_or_group(state);
		while (processes_kill(&which) != 0)
		{
			look_after_children(state);
			nanosleep(&pause, NULL);
		}
	}
	if (state->shared->cgroup[0])
		cgroup_remove(state->shared->cgroup);
	_exit(0);
}

/* The watchdog.  Never returns. */
static void
watch(struct state *state)
{
	sigset_t	all;
	sigset_t	child;
	struct pollfd polled[3];

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	setpgid(0, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_NAME, "dlock-watchdog");

	/*
	 * Before all others, where it may, since on a busy machine it would be late.
	 * A filter for system calls may kill it for that: then the next one does not
	 * ask.
	 */
	if (state->options->asks_priority)
		sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK,
						   &(struct sched_param) {.sched_priority = 1});

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	state->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	polled[0] = (struct pollfd) {.fd = state->socket, .events = POLLIN};
	polled[1] = (struct pollfd) {.fd = state->timer, .events = POLLIN};
	polled[2] = (struct pollfd) {.fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK),
		.events = POLLIN};
	if (polled[1].fd < 0 || polled[2].fd < 0)
		_exit(STATUS_SYSTEM);	/* the main process notices that */
	atomic_store(&state->shared->ready, true);

	for (;;)
	{
		struct signalfd_siginfo caught;
		uint64_t	expirations;
		int64_t		next_us = do_what_is_due(state);
		struct itimerspec when = {0};

		if (next_us != INT64_MAX)
		{
			/* zero would be never */
			if (next_us < 1)
				next_us = 1;
			when.it_value.tv_sec = next_us / 1000000;
			when.it_value.tv_nsec = next_us % 1000000 * 1000;
		}
		timerfd_settime(state->timer, TFD_TIMER_ABSTIME, &when, NULL);
		poll(polled, 3, -1);
		(void) !read(polled[1].fd, &expirations, sizeof(expirations));
		while (read(polled[2].fd, &caught, sizeof(caught)) > 0)
			;
		look_after_children(state);
		if (polled[0].revents != 0 && !obey(state))
			end_alone(state);
	}
}

/* --------------------------------------------------- in the main process */

bool
watchdog_start(struct watchdog *watchdog, const struct watchdog_options *options)
{
	int			sockets[2];
	struct watchdog_shared *shared;
	sigset_t	all;
	sigset_t	before;
	pid_t		main_process = getpid();

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return false;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
	{
		munmap(shared, sizeof(*shared));
		return false;
	}
	/* nothing may reach the watchdog, from its first moment on */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	watchdog->pid = fork();
	if (watchdog->pid == 0)
	{
		static struct state state;

		state = (struct state) {
			.options = options, .shared = shared, .main_process = main_process, .socket = sockets[1],
			.gate = -1, .kill_at_us = INT64_MAX, .pause_us = COUNT_PAUSE_MIN_US
		};
		/*
		 * Above all connections: a server must find ours closed when the main
		 * process is gone.
		 */
		kept = sockets[1];
		kept_other = options->other;
		for_each_file(close_if_not_inherited);
		watch(&state);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	close(sockets[1]);
	if (watchdog->pid < 0)
	{
		watchdog->pid = 0;
		close(sockets[0]);
		munmap(shared, sizeof(*shared));
		return false;
	}
	setpgid(watchdog->pid, watchdog->pid);
	watchdog->socket = sockets[0];
	watchdog->options = options;
	watchdog->shared = shared;
	return true;
}

struct processes
watchdog_processes(const struct watchdog *watchdog)
{
	struct processes which = {
		.group = atomic_load(&watchdog->shared->command),
		.ancestor = watchdog->pid,
		.cgroup = watchdog->shared->cgroup,
		.other = other_to_end(watchdog->options, watchdog->shared)
	};

	return which;
}

/* If the watchdog is gone, watchdog_read() notices it. */
static void
give_order(struct watchdog *watchdog, char order)
{
	(void) !send(watchdog->socket, &order, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void
watchdog_run(struct watchdog *watchdog)
{
	give_order(watchdog, ORDER_RUN);
}

void
watchdog_go(struct watchdog *watchdog)
{
	give_order(watchdog, ORDER_GO);
}

void
watchdog_end(struct watchdog *watchdog)
{
	give_order(watchdog, ORDER_END);
}

int
watchdog_read(struct watchdog *watchdog, struct watchdog_report *report)
{
	ssize_t		length = recv(watchdog->socket, report, sizeof(*report), MSG_DONTWAIT);

	if (length == sizeof(*report))
		return 1;
	return length < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

bool
watchdog_is_stopped(const struct watchdog *watchdog)
{
	return process_is_stopped(watchdog->pid);
}

/* Reap the watchdog, and what it has left, which is ours now. */
static void
clean_up(struct watchdog *watchdog)
{
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	if (watchdog->shared->cgroup[0])
		cgroup_remove(watchdog->shared->cgroup);
	watchdog_remove_ready_file(watchdog->shared, watchdog->options->ready_file);
	close(watchdog->socket);
	munmap(watchdog->shared, sizeof(*watchdog->shared));
	watchdog->pid = 0;
}

/* It has nothing left to do, and ends by itself. */
void
watchdog_finish(struct watchdog *watchdog)
{
	kill(watchdog->pid, SIGKILL);
	waitpid(watchdog->pid, NULL, 0);
	clean_up(watchdog);
}

int
watchdog_kill(struct watchdog *watchdog, int *status)
{
	struct processes which = watchdog_processes(watchdog);
	const struct timespec pause = {0, COUNT_PAUSE_MIN_US * 1000};
	int			watchdog_status = W_EXITCODE(0, SIGKILL);

	/* the watchdog last, since its children then become ours */
	if (which.group != 0)
		processes_kill(&which);
	kill(watchdog->pid, SIGKILL);
	waitpid(watchdog->pid, &watchdog_status, 0);
	*status = W_EXITCODE(0, SIGKILL);
	if (which.group != 0)
	{
		which.ancestor = getpid();
		while (processes_kill(&which) != 0)
			nanosleep(&pause, NULL);
		waitpid(which.group, status, 0);
	}
	clean_up(watchdog);
	return watchdog_status;
}
