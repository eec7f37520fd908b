/*
 * notify.c
 *	  Messages to the service manager, as sd_notify(3) sends them.
 *
 * A message is one datagram of lines such as READY=1.  If it cannot be sent,
 * that is reported once and otherwise ignored.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "notify.h"
#include "command.h"

#include <errno.h>
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
	unsetenv("NOTIFY_SOCKET");
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
