/*
 * notify.c
 *	  Messages to the service manager, as sd_notify(3) sends them.
 *
 * A message is one datagram of lines such as READY=1.  If it cannot be sent,
 * that is reported once and otherwise ignored.
 *
 * A service manager that has set WATCHDOG_USEC ends and restarts a service that does
 * not say WATCHDOG=1 in that time.  We say it twice in it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "notify.h"
#include "command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un address;
static socklen_t address_length;
static int	notify_socket = -1;

/* We do not say so more often than this, whatever is asked for. */
#define ALIVE_INTERVAL_MIN_US	INT64_C(10000)

/* How often to say that all is well, and when next; 0 and DLOCK_NEVER: not at all. */
static int64_t alive_interval_us;
static int64_t alive_due_us = DLOCK_NEVER;

/*
 * Read WATCHDOG_USEC, if it is for us: the service manager names the process that it
 * has started.
 */
static void
prepare_alive(void)
{
	const char *pid = getenv("WATCHDOG_PID");
	const char *interval = getenv("WATCHDOG_USEC");

	if (interval == NULL || (pid != NULL && strtoimax(pid, NULL, 10) != getpid()))
		return;
	alive_interval_us = strtoimax(interval, NULL, 10) / 2;
	if (alive_interval_us <= 0)
		return;
	if (alive_interval_us < ALIVE_INTERVAL_MIN_US)
		alive_interval_us = ALIVE_INTERVAL_MIN_US;
	alive_due_us = dlock_now_us();
}

void
notify_prepare(void)
{
	const char *name = getenv("NOTIFY_SOCKET");

	if (name == NULL || (name[0] != '/' && name[0] != '@') ||
		strlen(name) >= sizeof(address.sun_path))
		return;
	address.sun_family = AF_UNIX;
	strcpy(address.sun_path, name);
	address_length = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + strlen(name));
	/* a name in the abstract name space */
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	notify_socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	prepare_alive();
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_PID");
	unsetenv("WATCHDOG_USEC");
}

int64_t
notify_due_us(void)
{
	return alive_due_us;
}

void
notify_alive(bool well)
{
	int64_t		now_us = dlock_now_us();

	if (now_us < alive_due_us)
		return;
	alive_due_us = now_us + alive_interval_us;
	if (well)
		notify("WATCHDOG=1");
}

void
notify(const char *format,...)
{
	static bool failed;
	char		text[1024];
	va_list		arguments;

	if (notify_socket < 0)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (sendto(notify_socket, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
			   (struct sockaddr *) &address, address_length) >= 0)
		failed = false;
	else if (!failed)
	{
		failed = true;
		say("could not tell the service manager: %s", strerror(errno));
	}
}
