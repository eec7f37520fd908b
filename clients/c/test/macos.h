/*
 * macos.h
 *	  Included before each file by "make portable": what macOS has and has not.
 *
 * The files are compiled against what POSIX has; this adds what macOS has beyond that
 * and we use, and takes away what of POSIX or Linux it has not.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <time.h>

#undef CLOCK_BOOTTIME
#undef TCP_KEEPIDLE
#undef TCP_USER_TIMEOUT
#define TCP_KEEPALIVE 0x10

#define __APPLE__ 1

extern int	getentropy(void *buffer, size_t size);
