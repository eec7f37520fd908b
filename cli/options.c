/*
 * options.c
 *	  Reading the command line.
 *
 * Options come before all other arguments, as with timeout(1) and flock(1):
 * these may be another command, with options of its own.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "command.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The servers' limit. */
#define NAME_MAX_BYTES	255

static bool
has_argument(const struct option_spec *spec)
{
	return spec->kind != OPTION_FLAG && spec->kind != OPTION_NOT &&
		spec->kind != OPTION_NO_WAIT;
}

static void
print_usage(const struct option_spec *specs, const char *usage)
{
	printf("usage: dlock %s\n\n", usage);
	for (const struct option_spec *spec = specs; spec->name; spec++)
	{
		char		head[64];

		snprintf(head, sizeof(head), "%s%s%s",
				 spec->name, has_argument(spec) ? " " : "",
				 has_argument(spec) ? spec->argument : "");
		if (spec->letter)
			printf("  -%c, --%-18s %s\n", spec->letter, head, spec->help);
		else
			printf("      --%-18s %s\n", head, spec->help);
	}
	printf("      --%-18s %s\n      --%-18s %s\n", "help", "print this",
		   "version", "print the version");
}

void
check_name(const char *what, const char *text)
{
	size_t		length = strlen(text);

	if (length < 1 || length > NAME_MAX_BYTES)
		end_with(STATUS_USAGE, "%s is not 1 to %d bytes long", what, NAME_MAX_BYTES);
}

/* Take an option's value from its argument. */
static void
set_option(const struct option_spec *spec, const char *argument)
{
	char		what[32];
	char	   *end;
	long long	count;

	switch (spec->kind)
	{
		case OPTION_FLAG:
			*(bool *) spec->value = true;
			break;
		case OPTION_NOT:
			*(bool *) spec->value = false;
			break;
		case OPTION_NO_WAIT:
			*(int64_t *) spec->value = 0;
			break;
		case OPTION_TEXT:
			*(const char **) spec->value = argument;
			break;
		case OPTION_NAME:
			snprintf(what, sizeof(what), "--%s", spec->name);
			check_name(what, argument);
			*(const char **) spec->value = argument;
			break;
		case OPTION_COUNT:
		case OPTION_TOKEN:
		case OPTION_STATUS:
			errno = 0;
			count = strtoll(argument, &end, 10);
			if (!isdigit((unsigned char) *argument) || *end != '\0' || count < 1)
				end_with(STATUS_USAGE, "--%s: \"%s\" is not a whole number of at least 1", spec->name,
						 argument);
			if (errno != 0 || (spec->kind == OPTION_COUNT && count > INT32_MAX))
				end_with(STATUS_USAGE, "--%s: the number is too large", spec->name);
			if (spec->kind != OPTION_STATUS)
				*(int64_t *) spec->value = count;
			else if (count > 255)
				end_with(STATUS_USAGE, "--%s must be 1 to 255", spec->name);
			else
				set_own_status((int) count);	/* for what is wrong with later options, too */
			break;
		case OPTION_WAIT:
			if (strcmp(argument, "forever") == 0)
			{
				*(int64_t *) spec->value = -1;
				break;
			}
			/* FALLTHROUGH */
		case OPTION_DURATION:
		case OPTION_POSITIVE:
			if (!dlock_parse_duration(argument, spec->value) ||
				*(int64_t *) spec->value < 0)
				end_with(STATUS_USAGE, "--%s: \"%s\" is not a duration of at most 10^9 seconds, such as 90, 1.5, 5m, 1h30m or 250ms%s",
						 spec->name, argument,
						 spec->kind == OPTION_WAIT ? ", nor \"forever\"" : "");
			if (spec->kind == OPTION_POSITIVE && *(int64_t *) spec->value == 0)
				end_with(STATUS_USAGE, "--%s must be more than 0", spec->name);
			break;
	}
}

int
parse_options(int argc, char **argv, const struct option_spec *specs,
			  const char *usage)
{
	int			i;

	for (i = 1; i < argc && argv[i][0] == '-' && argv[i][1] != '\0'; i++)
	{
		const char *word = argv[i];
		const struct option_spec *spec;

		if (strcmp(word, "--") == 0)
			return i + 1;
		if (word[1] == '-')
		{
			const char *equals = strchr(word, '=');
			size_t		length = equals ? (size_t) (equals - word - 2) : strlen(word + 2);

			if (strcmp(word, "--help") == 0)
			{
				print_usage(specs, usage);
				exit(written(STATUS_OK));
			}
			if (strcmp(word, "--version") == 0)
			{
				printf("dlock %s\n", DLOCK_VERSION);
				exit(written(STATUS_OK));
			}
			for (spec = specs; spec->name; spec++)
				if (strlen(spec->name) == length &&
					memcmp(spec->name, word + 2, length) == 0)
					break;
			if (!spec->name)
				end_with(STATUS_USAGE, "there is no option \"%s\"; see dlock %s --help",
						 word, argv[0]);
			if (!has_argument(spec))
			{
				if (equals)
					end_with(STATUS_USAGE, "--%s takes no argument", spec->name);
				set_option(spec, NULL);
			}
			else if (equals)
				set_option(spec, equals + 1);
			else if (i + 1 < argc)
				set_option(spec, argv[++i]);
			else
				end_with(STATUS_USAGE, "--%s needs an argument", spec->name);
			continue;
		}
		/* short options, which may stand together: "-sw 5" */
		for (const char *letter = word + 1; *letter; letter++)
		{
			for (spec = specs; spec->name; spec++)
				if (spec->letter == *letter)
					break;
			if (!spec->name)
				end_with(STATUS_USAGE, "there is no option \"-%c\"; see dlock %s --help",
						 *letter, argv[0]);
			if (!has_argument(spec))
			{
				set_option(spec, NULL);
				continue;
			}
			if (letter[1] != '\0')
				set_option(spec, letter + 1);
			else if (i + 1 < argc)
				set_option(spec, argv[++i]);
			else
				end_with(STATUS_USAGE, "-%c needs an argument", *letter);
			break;
		}
	}
	return i;
}

int
command_after_name(int argc, char **argv, int first)
{
	first++;
	if (first < argc && strcmp(argv[first], "--") == 0)
		return first + 1;
	if (first < argc && argv[first][0] == '-')
		end_with(STATUS_USAGE, "option \"%s\" must come before \"%s\"", argv[first],
				 argv[first - 1]);
	return first;
}
