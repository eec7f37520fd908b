/*
 * processes.c
 *	  All processes of COMMAND: signal them and count them.
 *
 * A process can leave its process group, and does so for good reasons: a shell
 * makes a group for each job, a daemon makes a session.  It cannot leave its
 * ancestors: when its parent ends, it becomes a child of the nearest ancestor that
 * is a "subreaper", as both the main process and the watchdog are.  So COMMAND's
 * processes are those of its group and the descendants of the watchdog.  We
 * find them in /proc.  What we find may be out of date at once, since processes
 * make others; so a caller kills again until none is left.
 *
 * Where we may make a cgroup, everything that COMMAND starts is in it, and the
 * kernel kills all of that at once (cgroup.kill, Linux 5.14).
 *
 * Only the effective user's own processes can be killed, unless the user is root.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "processes.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A process as /proc shows it. */
struct process
{
	pid_t		pid;
	pid_t		parent;
	pid_t		group;
	char		state;			/* as ps shows it */
	bool		ended;			/* no thread of it runs any more */
	enum
	{
		UNKNOWN, MEANT, NOT_MEANT
	}			verdict;
};

/* Read a small file; false if it cannot be read. */
static bool
read_file(const char *path, char *text, size_t size)
{
	int			file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t		length;

	if (file < 0)
		return false;
	length = read(file, text, size - 1);
	close(file);
	if (length < 0)
		return false;
	text[length] = '\0';
	return true;
}

static bool
write_file(const char *path, const char *text)
{
	int			file = open(path, O_WRONLY | O_CLOEXEC);
	bool		written;

	if (file < 0)
		return false;
	written = write(file, text, strlen(text)) == (ssize_t) strlen(text);
	close(file);
	return written;
}

/* Read /proc/PID/stat; false if there is no such process any more. */
static bool
read_process(const char *pid, struct process *process)
{
	char		path[64];
	char		text[1024];
	const char *rest;
	char	   *end;
	char	   *before;
	long		threads;

	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	if (!read_file(path, text, sizeof(text)))
		return false;
	/* the program's name, in parentheses, may have any characters in it */
	rest = strrchr(text, ')');
	if (rest == NULL || strlen(rest) < 4)
		return false;
	/* ") STATE PARENT GROUP" */
	process->pid = (pid_t) strtol(pid, NULL, 10);
	process->parent = (pid_t) strtol(rest + 3, &end, 10);
	process->group = (pid_t) strtol(end, &end, 10);
	process->state = rest[2];

	/*
	 * A process whose first thread has ended looks like a zombie, and goes on as
	 * long as another thread does.  A zombie has one thread, itself, or none.
	 * Between the group and the number of threads are 14 other numbers.
	 */
	for (int i = 0; i < 14; i++)
		(void) strtol(end, &end, 10);
	before = end;
	threads = strtol(before, &end, 10);
	if (end == before)
		return false;
	process->ended = threads <= 1 && (process->state == 'Z' || process->state == 'X');
	process->verdict = UNKNOWN;
	return true;
}

/* The same, by number. */
static bool
read_process_of(pid_t pid, struct process *process)
{
	char		name[16];

	snprintf(name, sizeof(name), "%d", (int) pid);
	return read_process(name, process);
}

/*
 * The /proc of another PID namespace shows other processes under our numbers,
 * and shows us under another number, or not at all.
 */
bool
processes_are_shown(void)
{
	struct process self;
	char		number[16];
	ssize_t		length = readlink("/proc/self", number, sizeof(number) - 1);

	if (length <= 0)
		return false;
	number[length] = '\0';
	return strtol(number, NULL, 10) == getpid() &&
		read_process_of(getpid(), &self) && self.parent == getppid();
}

bool
process_is_stopped(pid_t pid)
{
	struct process process;

	return read_process_of(pid, &process) &&
		(process.state == 'T' || process.state == 't');
}

bool
process_signal(int pidfd, int signal_number)
{
	struct pollfd ended = {.fd = pidfd, .events = POLLIN};

	/* a zombie takes signals, too */
	return poll(&ended, 1, 0) == 0 &&
		syscall(SYS_pidfd_send_signal, pidfd, signal_number, NULL, 0) == 0;
}

static int
compare_pids(const void *a, const void *b)
{
	pid_t		pid_a = ((const struct process *) a)->pid;
	pid_t		pid_b = ((const struct process *) b)->pid;

	return (pid_a > pid_b) - (pid_a < pid_b);
}

static struct process *
find_process(struct process *list, size_t count, pid_t pid)
{
	struct process key = {.pid = pid};

	return bsearch(&key, list, count, sizeof(*list), compare_pids);
}

/* All processes, sorted by pid, to be freed; NULL if memory or files run out. */
static struct process *
list_processes(size_t *count)
{
	DIR		   *proc = opendir("/proc");
	struct dirent *entry;
	struct process *list = NULL;
	size_t		room = 0;
	size_t		n = 0;

	if (proc == NULL)
		return NULL;
	while ((entry = readdir(proc)) != NULL)
	{
		if (!isdigit((unsigned char) entry->d_name[0]))
			continue;
		if (n == room)
		{
			struct process *larger;

			room = room ? 2 * room : 256;
			larger = realloc(list, room * sizeof(*list));
			if (larger == NULL)
			{
				free(list);
				closedir(proc);
				return NULL;
			}
			list = larger;
		}
		if (read_process(entry->d_name, &list[n]))
			n++;
	}
	closedir(proc);
	if (list == NULL)
		return NULL;			/* not even ourselves: there is no /proc */
	qsort(list, n, sizeof(*list), compare_pids);
	*count = n;
	return list;
}

/*
 * Decide whether a process is meant: by its group, or else by its parents, up
 * to the ancestor.  The result is noted for all on the way, so that each
 * process is looked at about once.
 */
static void
judge(struct process *list, size_t count, struct process *process,
	  const struct processes *which)
{
	struct process *next = process;
	int			verdict = UNKNOWN;

	/* parents that have changed meanwhile could make a circle */
	for (size_t steps = 0; steps <= count && verdict == UNKNOWN; steps++)
	{
		if (next->verdict != UNKNOWN)
			verdict = next->verdict;
		else if (next->parent == which->ancestor)
			verdict = MEANT;
		else
		{
			next = find_process(list, count, next->parent);
			if (next == NULL)
				verdict = NOT_MEANT;
		}
	}
	if (verdict == UNKNOWN)
		verdict = NOT_MEANT;
	for (next = process; next != NULL && next->verdict == UNKNOWN;
		 next = find_process(list, count, next->parent))
	{
		next->verdict = verdict;
		if (next->parent == which->ancestor)
			break;
	}
}

/* processes_signal() by one list of all processes. */
static int
signal_listed(const struct processes *which, int signal_number)
{
	size_t		count;
	struct process *list = list_processes(&count);
	int			found = 0;

	if (list == NULL)
		return -1;
	for (size_t i = 0; i < count; i++)
	{
		struct process *process = &list[i];

		/* zombies need no signal */
		if (process->ended || process->pid == which->ancestor)
			continue;
		if (process->group != which->group)
		{
			if (which->ancestor == 0)
				continue;
			judge(list, count, process, which);
			if (process->verdict != MEANT)
				continue;
		}
		/* it may fail: the process may just have ended, or be another user's */
		if (signal_number != 0)
			kill(process->pid, signal_number);
		found++;
	}
	free(list);
	return found;
}

int
processes_signal(const struct processes *which, int signal_number)
{
	int			found = signal_listed(which, signal_number);

	/*
	 * A process whose parent ended while the list was made may not have been found
	 * to be a descendant.  By now it is a child of the ancestor.
	 */
	if (found == 0 && which->ancestor != 0)
		found = signal_listed(which, signal_number);
	/*
	 * a process that forks and ends hides its child from us, not from the
	 * kernel
	 */
	if (found == 0 && which->cgroup[0])
	{
		char		path[4200];
		char		text[256];

		snprintf(path, sizeof(path), "%s/cgroup.events", which->cgroup);
		if (read_file(path, text, sizeof(text)) && strstr(text, "populated 1"))
			found = 1;
	}
	if (which->other >= 0 && process_signal(which->other, signal_number))
		found = found < 0 ? found : found + 1;
	return found;
}

int
processes_kill(const struct processes *which)
{
	if (which->cgroup[0])
	{
		char		path[4200];

		snprintf(path, sizeof(path), "%s/cgroup.kill", which->cgroup);
		write_file(path, "1");
	}
	/* whatever else fails; a group that is gone is no error */
	kill(-which->group, SIGKILL);
	return processes_signal(which, SIGKILL);
}

/*
 * The folder of our own cgroup of version 2: what /proc/self/cgroup says, below
 * where that hierarchy is mounted.
 */
static bool
own_cgroup(char *folder, size_t size)
{
	FILE	   *file;
	char	   *line = NULL;
	size_t		room = 0;
	char		own[2048] = "";
	char		root[1024];
	char		mounted[1024];
	bool		found = false;

	file = fopen("/proc/self/cgroup", "re");
	if (file == NULL)
		return false;
	while (getline(&line, &room, file) > 0)
		if (strncmp(line, "0::/", 4) == 0)
			snprintf(own, sizeof(own), "%.*s", (int) strcspn(line + 3, "\n"), line + 3);
	fclose(file);

	file = fopen("/proc/self/mountinfo", "re");
	while (file != NULL && !found && own[0] && getline(&line, &room, file) > 0)
	{
		const char *rest = strstr(line, " - cgroup2 ");
		size_t		length;

		if (rest == NULL ||
			sscanf(line, "%*d %*d %*s %1023s %1023s", root, mounted) != 2)
			continue;
		/* the mount may show only a part of the hierarchy */
		length = strcmp(root, "/") == 0 ? 0 : strlen(root);
		if (strncmp(own, root, length) != 0 ||
			(own[length] != '/' && own[length] != '\0'))
			continue;
		snprintf(folder, size, "%s%s", mounted,
				 strcmp(own + length, "/") == 0 ? "" : own + length);
		found = true;
	}
	if (file != NULL)
		fclose(file);
	free(line);
	return found;
}

void
cgroup_make(pid_t pid, char *folder, size_t size)
{
	char		above[3200];
	char		path[4200];
	char		number[16];

	folder[0] = '\0';
	if (!own_cgroup(above, sizeof(above)))
		return;
	/* mostly it is here that we learn that we may not */
	snprintf(path, sizeof(path), "%s/dlock-%d", above, (int) pid);
	if (strlen(path) + sizeof("/cgroup.kill") > size || mkdir(path, 0755) != 0)
		return;
	memcpy(folder, path, strlen(path) + 1);
	snprintf(number, sizeof(number), "%d", (int) pid);
	strcat(path, "/cgroup.kill");
	if (access(path, W_OK) == 0)
	{
		snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
		if (write_file(path, number))
			return;
	}
	rmdir(folder);
	folder[0] = '\0';
}

/* How deep COMMAND may have made cgroups in its own for us to remove them. */
#define CGROUP_DEPTH_MAX	16

static void remove_cgroup(const char *folder, int depth);

/* Remove the cgroups that COMMAND has made in its own: another dlock, for example. */
static void
remove_cgroups_in(const char *folder, int depth)
{
	DIR		   *all = opendir(folder);
	struct dirent *entry;
	char		path[4200];

	if (all == NULL)
		return;
	while ((entry = readdir(all)) != NULL)
		if (entry->d_type == DT_DIR && strcmp(entry->d_name, ".") != 0 &&
			strcmp(entry->d_name, "..") != 0 &&
			snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) <
			(int) (sizeof(path) - sizeof("/cgroup.procs")))
			remove_cgroup(path, depth);
	closedir(all);
}

static void
remove_cgroup(const char *folder, int depth)
{
	char		path[4200];
	char		above[4200];
	const struct timespec pause = {0, 1000000};

	/*
	 * The kernel may still count processes that have just ended, so try again.
	 * Each try of the top one tries those below again.
	 */
	for (int tries = depth == 0 ? 100 : 1;
		 tries > 0 && rmdir(folder) != 0 && errno == EBUSY; tries--)
	{
		FILE	   *file;
		char		number[16];

		if (depth < CGROUP_DEPTH_MAX)
			remove_cgroups_in(folder, depth + 1);
		snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
		snprintf(above, sizeof(above), "%.*s/cgroup.procs",
				 (int) (strrchr(folder, '/') - folder), folder);
		file = fopen(path, "re");
		while (file != NULL && fgets(number, sizeof(number), file) != NULL)
			write_file(above, number);
		if (file != NULL)
			fclose(file);
		nanosleep(&pause, NULL);
	}
}

void
cgroup_remove(const char *folder)
{
	remove_cgroup(folder, 0);
}
