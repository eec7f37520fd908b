/*
 * cut_off.c
 *	  A server that can be cut off from the network; for the tests of clusters.
 *
 * Preloaded into a server.  While the file that DLOCK_CUT_OFF in the environment
 * names exists, the server's TCP connections are shut down, new ones are refused,
 * both ways, and nothing gets through.  The server goes on running, and its Unix
 * socket works.  Connections of the process to itself stay, as they would if a cable
 * were pulled.  Another file, with ".done" at the end of its name, tells that the
 * server is cut off.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAUSE_US		2000
#define MOST_PORTS		65536

static const char *file = NULL;

static bool
is_cut_off(void)
{
	return file != NULL && access(file, F_OK) == 0;
}

/* The port of an address of TCP/IP; 0 if it is none. */
static int
port_of(const struct sockaddr *address)
{
	switch (address->sa_family)
	{
		case AF_INET:
			return ntohs(((const struct sockaddr_in *) address)->sin_port);
		case AF_INET6:
			return ntohs(((const struct sockaddr_in6 *) address)->sin6_port);
		default:
			return 0;
	}
}

/* The port of one end of a connection: getsockname() asks for ours. */
static int
port_at(int fd, int (*ask) (int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_storage address;
	socklen_t	length = sizeof(address);

	return ask(fd, (struct sockaddr *) &address, &length) == 0 ?
		port_of((struct sockaddr *) &address) : 0;
}

/* Call a function for each of the process's open files. */
static void
visit_files(void (*visit) (int fd, bool *ports), bool *ports)
{
	DIR		   *directory = opendir("/proc/self/fd");
	struct dirent *entry;

	if (directory == NULL)
		abort();
	while ((entry = readdir(directory)) != NULL)
		if (entry->d_name[0] != '.')
			visit(atoi(entry->d_name), ports);
	closedir(directory);
}

static void
note_port(int fd, bool *ports)
{
	ports[port_at(fd, getsockname)] = true;
}

static void
cut(int fd, bool *ports)
{
	int			port = port_at(fd, getpeername);

	if (port != 0 && !ports[port])
		shutdown(fd, SHUT_RDWR);
}

/* Say whether a port is one of this process. */
static bool
is_own_port(int port)
{
	bool	   *ports = calloc(MOST_PORTS, sizeof(bool));
	bool		is_own;

	if (ports == NULL)
		abort();
	visit_files(note_port, ports);
	is_own = ports[port];
	free(ports);
	return is_own;
}

static void *
watch(void *arg)
{
	static bool ports[MOST_PORTS];
	char		done[PATH_MAX];
	bool		said = false;

	snprintf(done, sizeof(done), "%s.done", file);
	for (;; usleep(PAUSE_US))
	{
		if (!is_cut_off())
		{
			if (said)
				unlink(done);
			said = false;
			continue;
		}
		for (int i = 0; i < MOST_PORTS; i++)
			ports[i] = false;
		visit_files(note_port, ports);
		visit_files(cut, ports);
		if (!said)
		{
			int			fd = open(done, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

			if (fd < 0)
				abort();
			close(fd);
			said = true;
		}
	}
	return arg;
}

__attribute__((constructor))
static void
begin(void)
{
	pthread_t	thread;
	sigset_t	all;
	sigset_t	old;

	/* not in the shell that starts it */
	if (getenv("DLOCK_CUT_OFF") == NULL || dlsym(RTLD_DEFAULT, "mysqld_unix_port") == NULL)
		return;
	file = getenv("DLOCK_CUT_OFF");
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	if (pthread_create(&thread, NULL, watch, NULL) != 0)
		abort();
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

int
connect(int fd, const struct sockaddr *address, socklen_t length)
{
	static int	(*real) (int, const struct sockaddr *, socklen_t) = NULL;

	if (real == NULL)
		real = dlsym(RTLD_NEXT, "connect");
	if (port_of(address) != 0 && is_cut_off() && !is_own_port(port_of(address)))
	{
		errno = ECONNREFUSED;
		return -1;
	}
	return real(fd, address, length);
}

int
accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	static int	(*real) (int, struct sockaddr *, socklen_t *, int) = NULL;
	int			accepted;
	int			port;

	if (real == NULL)
		real = dlsym(RTLD_NEXT, "accept4");
	accepted = real(fd, address, length, flags);
	port = accepted >= 0 ? port_at(accepted, getpeername) : 0;
	if (port == 0 || !is_cut_off() || is_own_port(port))
		return accepted;
	close(accepted);
	errno = ECONNABORTED;
	return -1;
}

int
accept(int fd, struct sockaddr *address, socklen_t *length)
{
	return accept4(fd, address, length, 0);
}
