/*
 * duration.c
 *	  A time as text: a number of seconds, or a span as PostgreSQL's interval takes it.
 *
 * MySQL and MariaDB, the command and the client library use this, so that the same text
 * means the same in all of them.  PostgreSQL has more forms.  These are common to all:
 *
 *		30  0.25  -1  1e3				seconds
 *		30s  500 ms  5 minutes  1h 30m  numbers with units, added up
 *		1 day 2:03  01:30:00  0:0:0.5	hours, minutes and seconds, alone or at the end
 *		0 0:01:30						days before such a time, as mysqlclient has it
 *		PT1M30S  P1DT12H				ISO 8601
 *
 * and "ago" at the end reverses the sign.  A day has 24 hours, a month 30 days, a
 * year 12 months.  Case does not matter.  The result is rounded to microseconds, and
 * exact up to 2^53 of them, 285 years.
 *
 * All is ASCII, and nothing depends on the locale: hence no strtod().
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "duration.h"

#include <stdbool.h>

#define SECOND_US	1e6
#define MINUTE_US	(60 * SECOND_US)
#define HOUR_US		(60 * MINUTE_US)
#define DAY_US		(24 * HOUR_US)
#define MONTH_US	(30 * DAY_US)
#define YEAR_US		(12 * MONTH_US)

/* Each kind of unit may be given once. */
enum
{
	GIVEN_MICROSECOND = 1 << 0,
	GIVEN_MILLISECOND = 1 << 1,
	GIVEN_SECOND = 1 << 2,
	GIVEN_MINUTE = 1 << 3,
	GIVEN_HOUR = 1 << 4,
	GIVEN_DAY = 1 << 5,
	GIVEN_WEEK = 1 << 6,
	GIVEN_MONTH = 1 << 7,
	GIVEN_YEAR = 1 << 8,
	GIVEN_TIME = GIVEN_SECOND | GIVEN_MINUTE | GIVEN_HOUR
};

static const struct
{
	int			given;
	double		us;
	char		words[40];		/* with blanks between */
}			units[] =
{
	{GIVEN_MICROSECOND, 1, "us usec usecs microsecond microseconds"},
	{GIVEN_MILLISECOND, 1000, "ms msec msecs millisecond milliseconds"},
	{GIVEN_SECOND, SECOND_US, "s sec secs second seconds"},
	{GIVEN_MINUTE, MINUTE_US, "m min mins minute minutes"},
	{GIVEN_HOUR, HOUR_US, "h hr hrs hour hours"},
	{GIVEN_DAY, DAY_US, "d day days"},
	{GIVEN_WEEK, 7 * DAY_US, "w week weeks"},
	{GIVEN_MONTH, MONTH_US, "mon mons month months"},
	{GIVEN_YEAR, YEAR_US, "y yr yrs year years"},
};

#define UNITS	(sizeof(units) / sizeof(units[0]))

/* The letters of ISO 8601, in their order: of the date, and of the time. */
static const struct
{
	char		letter;
	double		us;
}			designators[] =
{
	{'y', YEAR_US}, {'m', MONTH_US}, {'w', 7 * DAY_US}, {'d', DAY_US},
	{'h', HOUR_US}, {'m', MINUTE_US}, {'s', SECOND_US},
};

#define DATE_DESIGNATORS	4
#define DESIGNATORS			7

typedef struct Reader
{
	const char *at;
	const char *end;
	int			given;
} Reader;

static bool
is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static char
lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char) (c - 'A' + 'a') : c;
}

static void
skip_space(Reader *reader)
{
	while (reader->at < reader->end && is_space(*reader->at))
		reader->at++;
}

/* Say whether this character is next. */
static bool
is_next(const Reader *reader, char wanted)
{
	return reader->at < reader->end && lower(*reader->at) == wanted;
}

/* Read this character, if it is next. */
static bool
take_char(Reader *reader, char wanted)
{
	if (!is_next(reader, wanted))
		return false;
	reader->at++;
	return true;
}

/* Read a sign, if there is one: 1 or -1. */
static int
take_sign(Reader *reader)
{
	if (take_char(reader, '-'))
		return -1;
	(void) take_char(reader, '+');
	return 1;
}

static bool
is_digit(const Reader *reader)
{
	return reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9';
}

static bool
take_digits(Reader *reader, double *value)
{
	const char *start = reader->at;

	for (*value = 0; is_digit(reader); reader->at++)
		*value = *value * 10 + (*reader->at - '0');
	return reader->at > start;
}

/* Read a number without a sign or an exponent. */
static bool
take_number(Reader *reader, double *value)
{
	bool		any = take_digits(reader, value);
	double		fraction = 0;
	double		power = 1;

	if (take_char(reader, '.'))
		for (; is_digit(reader); reader->at++, any = true)
			/* a double does not tell more digits apart */
			if (fraction < 1e30)
			{
				fraction = fraction * 10 + (*reader->at - '0');
				power *= 10;
			}
	*value += fraction / power;
	return any;
}

/* Read an exponent, and multiply; without one, do nothing. */
static bool
take_exponent(Reader *reader, double *value)
{
	double		exponent;
	double		power = 1;
	int			sign;

	if (!take_char(reader, 'e'))
		return true;
	sign = take_sign(reader);
	if (!take_digits(reader, &exponent))
		return false;
	/* a larger power makes every number 0, or out of range */
	while (exponent-- > 0 && power < 1e300)
		power *= 10;
	*value = sign < 0 ? *value / power : *value * power;
	return true;
}

/* Read a word, if it is one of "words", a list separated by blanks. */
static bool
take_word(Reader *reader, const char *words)
{
	const char *start = reader->at;
	size_t		length;

	while (reader->at < reader->end && lower(*reader->at) >= 'a' &&
		   lower(*reader->at) <= 'z')
		reader->at++;
	length = (size_t) (reader->at - start);
	while (*words != '\0')
	{
		size_t		same = 0;

		while (same < length && lower(start[same]) == words[same])
			same++;
		if (same > 0 && same == length &&
			(words[same] == ' ' || words[same] == '\0'))
			return true;
		while (*words != '\0' && *words++ != ' ')
			;
	}
	reader->at = start;
	return false;
}

/* Note that a unit has been given; false if it was before. */
static bool
give(Reader *reader, int given)
{
	if ((reader->given & given) != 0)
		return false;
	reader->given |= given;
	return true;
}

/* Read the rest of a time of day, such as ":30:00.5" after "1". */
static bool
take_time(Reader *reader, double hours, double *value_us)
{
	const char *start;
	double		minutes;
	double		seconds = 0;

	/* hours are whole; a number too large to tell is out of range */
	if ((hours < 1e15 && hours != (double) (int64_t) hours) ||
		!give(reader, GIVEN_TIME) || !take_char(reader, ':'))
		return false;
	start = reader->at;
	if (!take_digits(reader, &minutes))
		return false;
	if (take_char(reader, ':'))
	{
		if (!take_number(reader, &seconds))
			return false;
	}
	else if (is_next(reader, '.'))
	{
		/* with a fraction these are minutes and seconds */
		reader->at = start;
		if (!take_number(reader, &seconds))
			return false;
		minutes = hours;
		hours = 0;
	}
	*value_us = hours * HOUR_US + minutes * MINUTE_US + seconds * SECOND_US;
	return minutes < 60 && seconds <= 60;
}

/* Say whether a time of day comes next. */
static bool
is_before_time(Reader reader)
{
	double		hours;

	return take_digits(&reader, &hours) && take_char(&reader, ':');
}

/* Read a number's unit; none means seconds at the end, and days before a time. */
static bool
take_unit(Reader *reader, double *value_us)
{
	skip_space(reader);
	if (reader->at == reader->end)
	{
		*value_us *= SECOND_US;
		return give(reader, GIVEN_SECOND);
	}
	if (is_before_time(*reader))
	{
		*value_us *= DAY_US;
		return give(reader, GIVEN_DAY);
	}
	for (size_t i = 0; i < UNITS; i++)
		if (take_word(reader, units[i].words))
		{
			*value_us *= units[i].us;
			return give(reader, units[i].given);
		}
	return false;
}

/* Read a list of numbers with units. */
static bool
read_list(Reader *reader, double *total_us)
{
	*total_us = 0;
	for (;;)
	{
		int			sign;
		double		value;

		skip_space(reader);
		if (reader->at == reader->end)
			return reader->given != 0;
		if (reader->given != 0 && take_word(reader, "ago"))
		{
			skip_space(reader);
			*total_us = -*total_us;
			return reader->at == reader->end;
		}
		sign = take_sign(reader);
		if (!take_number(reader, &value))
			return false;
		if (is_next(reader, ':') ? !take_time(reader, value, &value) :
			!take_unit(reader, &value))
			return false;
		*total_us += sign * value;
	}
}

/* Read what follows the P of an ISO 8601 duration. */
static bool
read_iso(Reader *reader, double *total_us)
{
	size_t		next = 0;
	size_t		end = DATE_DESIGNATORS;

	*total_us = 0;
	while (reader->at < reader->end)
	{
		int			sign;
		double		value;

		if (end == DATE_DESIGNATORS && take_char(reader, 't'))
		{
			next = DATE_DESIGNATORS;
			end = DESIGNATORS;
		}
		sign = take_sign(reader);
		if (!take_number(reader, &value))
			return false;
		while (next < end && !is_next(reader, designators[next].letter))
			next++;
		if (next == end)
			return false;
		reader->at++;
		reader->given = 1;
		*total_us += sign * value * designators[next++].us;
	}
	return reader->given != 0;
}

lease_duration
lease_parse_duration(const char *text, size_t length, int64_t *duration_us)
{
	Reader		start = {text, text + length, 0};
	Reader		reader;
	double		total_us;
	int			sign;

	skip_space(&start);
	while (start.end > start.at && is_space(start.end[-1]))
		start.end--;

	reader = start;
	(void) take_sign(&reader);
	if (take_word(&reader, "nan inf infinity") && reader.at == reader.end)
		return LEASE_DURATION_NOT_FINITE;

	/* a number alone */
	reader = start;
	sign = take_sign(&reader);
	if (take_number(&reader, &total_us) &&
		take_exponent(&reader, &total_us) && reader.at == reader.end)
		total_us *= sign * SECOND_US;
	else
	{
		reader = start;
		if (!(take_char(&reader, 'p') ? read_iso(&reader, &total_us) :
			  read_list(&reader, &total_us)))
			return LEASE_DURATION_INVALID;
	}
	if (!(total_us <= (double) LEASE_DURATION_MAX_US &&
		  total_us >= -(double) LEASE_DURATION_MAX_US))	/* it may be NaN */
		return LEASE_DURATION_OUT_OF_RANGE;
	*duration_us = (int64_t) (total_us + (total_us < 0 ? -0.5 : 0.5));
	return LEASE_DURATION_OK;
}
