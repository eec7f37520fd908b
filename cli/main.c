/*
 * main.c
 *	  The command "dlock": finds the subcommand and starts it.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "command.h"

#include <stdio.h>
#include <string.h>

#include "inspect.h"

/* The subcommands, in the order in which "dlock --help" shows them. */
static const struct command commands[] = {
	{"run", run_command, "run a command while a lease is held"},
	{"hold", hold_command, "hold a lease for the program that starts this"},
	{"elect", elect_command, "run a command on one machine at a time, for ever"},
	{"acquire", acquire_command, "take a lease"},
	{"renew", renew_command, "move the deadline of a lease"},
	{"release", release_command, "give a lease back"},
	{"wait", wait_command, "wait until the present holders of a name are gone"},
	{"owner", owner_command, "print who holds a name"},
	{"force-release", force_release_command, "evict the holders of a name"},
	{"ls", ls_command, "list who holds what"},
	{"waiters", waiters_command, "list who waits for what"},
	{"stats", stats_command, "print the counters"},
	{"top", top_command, "show leases and waiters, again and again"},
	{"log", log_command, "list what is held, from the table or a dump, without the library"},
	{"doctor", doctor_command, "check whether the server is set up as leases need it"},
	{0}
};

static void
print_help(FILE *where)
{
	fprintf(where, "usage: dlock SUBCOMMAND [OPTION]... [ARGUMENT]...\n\n");
	for (const struct command *command = commands; command->name; command++)
		fprintf(where, "  %-14s %s\n", command->name, command->help);
	fprintf(where,
			"\nDLOCK_URL says which server, such as postgresql://user@host/database or\n"
			"mysql://user@host/.  A time is in seconds, or has units: 90, 1.5, 5m, 1h30m.\n"
			"\"dlock SUBCOMMAND --help\" says more, and \"man dlock\" the rest.\n");
}

int
main(int argc, char **argv)
{
	if (argc < 2)
	{
		print_help(stderr);
		return STATUS_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
		strcmp(argv[1], "help") == 0)
	{
		print_help(stdout);
		return written(STATUS_OK);
	}
	if (strcmp(argv[1], "--version") == 0)
	{
		printf("dlock %s\n", DLOCK_VERSION);
		return written(STATUS_OK);
	}
	for (const struct command *command = commands; command->name; command++)
		if (strcmp(argv[1], command->name) == 0)
			return command->run(argc - 1, argv + 1);
	end_with(STATUS_USAGE, "there is no subcommand \"%s\"; see dlock --help", argv[1]);
}
