/*
 * errors.c
 *	  Sort errors into the four classes of clients/CONTRACT.md.
 *
 * PostgreSQL's errors are told apart by SQLSTATE, and MySQL's and MariaDB's too
 * where it says enough.  But MariaDB's follows from the number and often says
 * nothing, and 42000, of both, stands for many things.  There the number
 * decides: the tables are in doc/mysql.md.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LENGTH(array)	(sizeof(array) / sizeof((array)[0]))

const char *
dlock_error_class_name(dlock_error_class error_class)
{
	switch (error_class)
	{
		case DLOCK_BUSY:
			return "busy";
		case DLOCK_LOST:
			return "lost";
		case DLOCK_MISUSE:
			return "misuse";
		case DLOCK_UNAVAILABLE:
			return "unavailable";
		case DLOCK_NO_ERROR:
			break;
	}
	return "none";
}

void
dlock_error_clear(dlock_error *error)
{
	*error = (dlock_error) {.error_class = DLOCK_NO_ERROR};
}

/*
 * Copy a message, each run of white space as one blank, so that it is one line.
 * A message that is too long is cut between characters.
 */
static void
copy_message(dlock_error *error, const char *message)
{
	char	   *to = error->message;
	size_t		length = 0;

	for (const char *c = message; *c != '\0'; c++)
	{
		bool		space = strchr(" \t\r\n", *c) != NULL;

		if (space && (length == 0 || to[length - 1] == ' '))
			continue;
		if (length == sizeof(error->message) - 1)
		{
			if (((unsigned char) *c & 0xc0) != 0x80)
				break;
			while (length > 0 && ((unsigned char) to[length - 1] & 0xc0) == 0x80)
				length--;
			if (length > 0)
				length--;
			break;
		}
		to[length++] = space ? ' ' : *c;
	}
	if (length > 0 && to[length - 1] == ' ')
		length--;
	to[length] = '\0';
}

void
dlock_error_set(dlock_error *error, dlock_error_class error_class,
				const char *format,...)
{
	char		message[2 * sizeof(error->message)];
	va_list		arguments;

	dlock_error_clear(error);
	error->error_class = error_class;
	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	copy_message(error, message);
}

static bool
starts(const char *sqlstate, const char *beginning)
{
	return strncmp(sqlstate, beginning, strlen(beginning)) == 0;
}

static bool
is_one_of(unsigned int number, const unsigned int *numbers, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (numbers[i] == number)
			return true;
	return false;
}

/* The class of an SQLSTATE of PostgreSQL, or of dlock on MySQL. */
static dlock_error_class
class_of_sqlstate(const char *sqlstate)
{
	static const char *const misuse[] = {
		"22", "28", "42", "0A000", "25P01", "3D000", "3F000", "54000", "55000",
	};

	if (strcmp(sqlstate, "40P01") == 0)
		return DLOCK_BUSY;
	if (strcmp(sqlstate, "55L01") == 0)
		return DLOCK_LOST;
	for (size_t i = 0; i < LENGTH(misuse); i++)
		if (starts(sqlstate, misuse[i]))
			return DLOCK_MISUSE;
	return DLOCK_UNAVAILABLE;
}

/* MySQL's numbers for what an account may not do. */
static const unsigned int denied[] = {
	1044, 1045, 1130, 1142, 1143, 1227, 1370, 1410, 1698, 1820, 1862, 3118,
	3955, 4151,
};

/* The class of a number of MySQL or MariaDB. */
static dlock_error_class
class_of_number(unsigned int number, const char *sqlstate, const char *message)
{
	/* dlock's, and those of a server without dlock */
	static const unsigned int misuse[] = {
		1046, 1049, 1122, 1123, 1138, 1234, 1292, 1305, 3037,
	};

	/* a client library's, if a log-in cannot work */
	static const unsigned int client_misuse[] = {2049, 2054, 2059, 2061};

	/* 42000, and no fault of the program's: too many connections or queries */
	static const unsigned int unavailable[] = {1203, 1226};

	if (number == 3058)
		return DLOCK_BUSY;
	if (is_one_of(number, unavailable, LENGTH(unavailable)))
		return DLOCK_UNAVAILABLE;
	if (is_one_of(number, misuse, LENGTH(misuse)) ||
		is_one_of(number, denied, LENGTH(denied)) ||
		is_one_of(number, client_misuse, LENGTH(client_misuse)))
		return DLOCK_MISUSE;

	/* errors with neither a number nor, on MariaDB, an SQLSTATE of their own */
	if (number == 1105 &&
		(starts(message, "dlock.guard() can only be used in transactions") ||
		 strstr(message, " more than 2147483647 times") != NULL))
		return DLOCK_MISUSE;
	return class_of_sqlstate(sqlstate);
}

void
dlock_error_from_server(dlock_error *error, dlock_engine engine,
						const char *sqlstate, unsigned int number,
						const char *message)
{
	dlock_error_clear(error);
	snprintf(error->sqlstate, sizeof(error->sqlstate), "%s",
			 sqlstate != NULL ? sqlstate : "");
	error->number = number;
	copy_message(error, message != NULL && message[0] != '\0' ? message :
				 "the server says nothing");
	if (engine == DLOCK_MYSQL)
	{
		error->error_class = class_of_number(number, error->sqlstate,
											 error->message);
		error->denied = is_one_of(number, denied, LENGTH(denied));
	}
	else
		error->error_class = class_of_sqlstate(error->sqlstate);
	if (starts(error->sqlstate, "28") || strcmp(error->sqlstate, "42501") == 0)
		error->denied = true;
}

bool
dlock_error_is_deadlock(const dlock_error *error)
{
	return error->error_class == DLOCK_BUSY;
}
