/*
 * redis_batch.c
 *	  Acquire and release locks in Redis, 100 names to a round trip.
 *
 * redis_batch SOCKET CLIENTS NAMES WARM_UP WINDOW prints how many names a
 * second were acquired and released, and how many were in all.  A lock is
 * taken with SET NX PX and given back with the usual script, which deletes it
 * if it still has its owner.  Each client has names of its own, so every reply
 * must be a success; any other ends the program with an error.
 *
 * The commands are written once for each client; only the digits of the names
 * change, so that the two systems compared spend little here.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BATCH		100
#define MAX_CLIENTS	99
#define SHA_LEN		40

/* One command for each name of a batch. */
typedef struct Commands
{
	char		text[BATCH * 160];
	size_t		len;
	size_t		digits[BATCH];	/* where the digits of each name are */
} Commands;

typedef struct Client
{
	pthread_t	thread;
	int			number;
	int			socket;
	unsigned	seed;
	atomic_long done;			/* names acquired and released */
	Commands	acquire;
	Commands	release;
} Client;

static const char release_script[] =
"if redis.call('get', KEYS[1]) == ARGV[1] then "
"return redis.call('del', KEYS[1]) else return 0 end";

static Client clients[MAX_CLIENTS];
static int	nclients;
static int	nnames;
static atomic_bool stop;

/* Report and leave. */
static void
fail(const char *what)
{
	fprintf(stderr, "redis_batch: %s\n", what);
	exit(1);
}

/* Connect to the server's socket. */
static int
connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int			fd = socket(AF_UNIX, SOCK_STREAM, 0);

	if (strlen(path) >= sizeof(address.sun_path))
		fail("socket path too long");
	strcpy(address.sun_path, path);
	if (fd < 0 ||
		connect(fd, (struct sockaddr *) &address, sizeof(address)) != 0)
		fail("could not connect");
	return fd;
}

/* Send all of it. */
static void
send_all(int fd, const char *text, size_t len)
{
	while (len > 0)
	{
		ssize_t		n = write(fd, text, len);

		if (n <= 0)
			fail("could not send");
		text += n;
		len -= n;
	}
}

/* Receive exactly "len" bytes. */
static void
receive_all(int fd, char *text, size_t len)
{
	while (len > 0)
	{
		ssize_t		n = read(fd, text, len);

		if (n <= 0)
			fail("could not receive");
		text += n;
		len -= n;
	}
}

/* Load the release script; "sha" receives what names it. */
static void
load_script(int fd, char *sha)
{
	char		text[512];
	int			len = snprintf(text, sizeof(text),
							   "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n%s\r\n",
							   sizeof(release_script) - 1, release_script);

	send_all(fd, text, len);
	receive_all(fd, text, SHA_LEN + 7);
	if (memcmp(text, "$40\r\n", 5) != 0)
		fail("could not load the script");
	memcpy(sha, text + 5, SHA_LEN);
	sha[SHA_LEN] = '\0';
}

/* Write a batch of commands: "head", a name, "tail". */
static void
write_commands(Commands *commands, const char *head, const char *tail)
{
	for (int i = 0; i < BATCH; i++)
	{
		char	   *text = commands->text + commands->len;
		size_t		room = sizeof(commands->text) - commands->len;
		int			len = snprintf(text, room, "%s$10\r\njob-000000\r\n%s",
								   head, tail);

		if (len < 0 || (size_t) len >= room)
			fail("command too long");
		commands->digits[i] = commands->len + strlen(head) + 9;
		commands->len += len;
	}
}

/* Send a batch for the names from "first" on; every reply must be this one. */
static void
run_batch(Client *client, Commands *commands, int first, const char *reply)
{
	char		replies[BATCH * 8];
	size_t		len = strlen(reply);

	for (int i = 0; i < BATCH; i++)
	{
		char	   *digits = commands->text + commands->digits[i];
		int			n = first + i;

		for (int d = 5; d >= 0; d--, n /= 10)
			digits[d] = '0' + n % 10;
	}
	send_all(client->socket, commands->text, commands->len);
	receive_all(client->socket, replies, BATCH * len);
	for (int i = 0; i < BATCH; i++)
		if (memcmp(replies + i * len, reply, len) != 0)
			fail("a lock was not taken, or not given back");
}

/* What a client does until told to stop. */
static void *
run_client(void *arg)
{
	Client	   *client = arg;
	int			slices = nnames / BATCH / nclients;

	while (!atomic_load(&stop))
	{
		int			slice = rand_r(&client->seed) % slices;
		int			first = BATCH * (client->number + nclients * slice);

		run_batch(client, &client->acquire, first, "+OK\r\n");
		run_batch(client, &client->release, first, ":1\r\n");
		atomic_fetch_add(&client->done, BATCH);
	}
	return NULL;
}

/* How many names all clients have done. */
static long
count_done(void)
{
	long		done = 0;

	for (int i = 0; i < nclients; i++)
		done += atomic_load(&clients[i].done);
	return done;
}

/* Seconds on a clock that only moves forward. */
static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int
main(int argc, char **argv)
{
	char		sha[SHA_LEN + 1];
	char		head[128];
	char		tail[128];
	double		start;
	double		end;
	long		before;
	long		after;

	if (argc != 6)
		fail("usage: redis_batch SOCKET CLIENTS NAMES WARM_UP WINDOW");
	nclients = atoi(argv[2]);
	nnames = atoi(argv[3]);
	if (nclients < 1 || nclients > MAX_CLIENTS || nnames > 1000000 ||
		nnames < BATCH * nclients)
		fail("number of clients or names out of range");

	for (int i = 0; i < nclients; i++)
	{
		Client	   *client = &clients[i];

		client->number = i;
		client->seed = i + 1;
		client->socket = connect_to(argv[1]);
		load_script(client->socket, sha);
		snprintf(tail, sizeof(tail),
				 "$9\r\nworker-%02d\r\n$2\r\nNX\r\n$2\r\nPX\r\n$6\r\n600000\r\n",
				 i);
		write_commands(&client->acquire, "*6\r\n$3\r\nSET\r\n", tail);
		snprintf(head, sizeof(head),
				 "*5\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n1\r\n", sha);
		snprintf(tail, sizeof(tail), "$9\r\nworker-%02d\r\n", i);
		write_commands(&client->release, head, tail);
	}
	for (int i = 0; i < nclients; i++)
		if (pthread_create(&clients[i].thread, NULL, run_client,
						   &clients[i]) != 0)
			fail("could not start a thread");

	usleep(atof(argv[4]) * 1e6);
	start = now();
	before = count_done();
	usleep(atof(argv[5]) * 1e6);
	end = now();
	after = count_done();
	atomic_store(&stop, true);
	for (int i = 0; i < nclients; i++)
		pthread_join(clients[i].thread, NULL);
	printf("%.1f %ld\n", (after - before) / (end - start), count_done());
	return 0;
}
