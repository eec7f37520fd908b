/*
 * udf_duration.c
 *	  How long: a number of seconds, or text as PostgreSQL's interval takes it.
 *
 * So that the same calls work on both.  The forms are
 *
 *		30  0.25  -1  1e3				seconds
 *		30s  500 ms  5 minutes  1h 30m  numbers with units, added up
 *		1 day 2:03  01:30:00  0:0:0.5	hours, minutes and seconds, also last
 *		0 0:01:30						days before such a time, as mysqlclient has it
 *		PT1M30S  P1DT12H				ISO 8601
 *
 * and "ago" at the end turns the sign.  A day has 24 hours, a month 30 days, a
 * year 12 months.  Case does not matter.  It is rounded to microseconds.
 *
 * Everything is ASCII and nothing depends on the server's locale, which is why
 * strtod() and the like are not used.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "udf_duration.h"

#include <math.h>
#include <string.h>

#define SECOND_US	1000000.0L
#define MINUTE_US	(60 * SECOND_US)
#define HOUR_US		(60 * MINUTE_US)
#define DAY_US		(24 * HOUR_US)
#define MONTH_US	(30 * DAY_US)
#define YEAR_US		(12 * MONTH_US)

/* Largest absolute value, as PostgreSQL's dlock_duration has it. */
#define DURATION_MAX_US	1e18L

/* Longest word that means something, with its end mark. */
#define WORD_SIZE	16

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

#define WORDS_OF_UNIT	5

static const struct
{
	int			given;
	long double unit_us;
	const char *words[WORDS_OF_UNIT];
}			units[] =
{
	{GIVEN_MICROSECOND, 1, {"us", "usec", "usecs", "microsecond", "microseconds"}},
	{GIVEN_MILLISECOND, 1000, {"ms", "msec", "msecs", "millisecond", "milliseconds"}},
	{GIVEN_SECOND, SECOND_US, {"s", "sec", "secs", "second", "seconds"}},
	{GIVEN_MINUTE, MINUTE_US, {"m", "min", "mins", "minute", "minutes"}},
	{GIVEN_HOUR, HOUR_US, {"h", "hr", "hrs", "hour", "hours"}},
	{GIVEN_DAY, DAY_US, {"d", "day", "days"}},
	{GIVEN_WEEK, 7 * DAY_US, {"w", "week", "weeks"}},
	{GIVEN_MONTH, MONTH_US, {"mon", "mons", "month", "months"}},
	{GIVEN_YEAR, YEAR_US, {"y", "yr", "yrs", "year", "years"}},
};

typedef struct Reader
{
	const char *at;
	const char *end;
	int			given;
} Reader;

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static char
lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char) (c - 'A' + 'a') : c;
}

static void
skip_space(Reader *reader)
{
	while (reader->at < reader->end &&
		   (*reader->at == ' ' || (*reader->at >= '\t' && *reader->at <= '\r')))
		reader->at++;
}

static bool
at_end(const Reader *reader)
{
	return reader->at == reader->end;
}

/* Read one character, if it is this one. */
static bool
take(Reader *reader, char wanted)
{
	if (at_end(reader) || lower(*reader->at) != wanted)
		return false;
	reader->at++;
	return true;
}

/* Read a sign, if there is one: 1 or -1. */
static int
take_sign(Reader *reader)
{
	if (take(reader, '-'))
		return -1;
	(void) take(reader, '+');
	return 1;
}

/* Read digits; *power is what a digit before them counts. */
static bool
take_digits(Reader *reader, long double *value, long double *power)
{
	const char *start = reader->at;

	*value = 0;
	*power = 1;
	while (!at_end(reader) && is_digit(*reader->at))
	{
		*value = *value * 10 + (*reader->at++ - '0');
		*power *= 10;
	}
	return reader->at > start;
}

/* Read a number without a sign or an exponent. */
static bool
take_number(Reader *reader, long double *value)
{
	long double fraction = 0;
	long double power = 1;
	bool		digits = take_digits(reader, value, &power);

	if (take(reader, '.') && take_digits(reader, &fraction, &power))
	{
		/* too many digits, and both have become infinite */
		if (isfinite(power))
			*value += fraction / power;
		digits = true;
	}
	return digits;
}

/* Read an exponent, and multiply; without one, do nothing. */
static bool
take_exponent(Reader *reader, long double *value)
{
	long double exponent;
	long double unused;
	int			sign;

	if (!take(reader, 'e'))
		return true;
	sign = take_sign(reader);
	if (!take_digits(reader, &exponent, &unused))
		return false;

	/* beyond this every number is as good as none, or out of range */
	if (exponent > 5000)
		exponent = 5000;
	if (*value != 0)
		*value = sign < 0 ? *value / powl(10, exponent) :
			*value * powl(10, exponent);
	return true;
}

/* Read a word of letters, in lower case; false if none or too long. */
static bool
take_word(Reader *reader, char word[WORD_SIZE])
{
	size_t		length = 0;

	while (!at_end(reader) && is_letter(*reader->at))
	{
		if (length == WORD_SIZE - 1)
			return false;
		word[length++] = lower(*reader->at++);
	}
	word[length] = '\0';
	return length > 0;
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
take_time(Reader *reader, long double hours, long double *value_us)
{
	const char *start;
	long double minutes;
	long double seconds = 0;
	long double unused;

	if (hours != floorl(hours) || !give(reader, GIVEN_TIME) ||
		!take(reader, ':'))
		return false;
	start = reader->at;
	if (!take_digits(reader, &minutes, &unused))
		return false;
	if (take(reader, ':'))
	{
		if (!take_number(reader, &seconds))
			return false;
	}
	else if (!at_end(reader) && *reader->at == '.')
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
	long double hours;
	long double unused;

	return take_digits(&reader, &hours, &unused) && take(&reader, ':');
}

/* Read a number's unit; at the end, none means seconds, and before a time days. */
static bool
take_unit(Reader *reader, long double *value_us)
{
	char		word[WORD_SIZE];

	skip_space(reader);
	if (at_end(reader))
	{
		*value_us *= SECOND_US;
		return give(reader, GIVEN_SECOND);
	}
	if (is_before_time(*reader))
	{
		*value_us *= DAY_US;
		return give(reader, GIVEN_DAY);
	}
	if (!take_word(reader, word))
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		for (int j = 0; j < WORDS_OF_UNIT && units[i].words[j] != NULL; j++)
			if (strcmp(units[i].words[j], word) == 0)
			{
				*value_us *= units[i].unit_us;
				return give(reader, units[i].given);
			}
	return false;
}

/* Read a list of numbers with units. */
static bool
read_list(Reader *reader, long double *total_us)
{
	*total_us = 0;
	for (;;)
	{
		int			sign;
		long double value;

		skip_space(reader);
		if (at_end(reader))
			return reader->given != 0;
		if (reader->given != 0 && reader->end - reader->at >= 3 &&
			is_letter(*reader->at))
		{
			char		word[WORD_SIZE];

			if (!take_word(reader, word) || strcmp(word, "ago") != 0)
				return false;
			skip_space(reader);
			*total_us = -*total_us;
			return at_end(reader);
		}
		sign = take_sign(reader);
		if (!take_number(reader, &value))
			return false;
		if (!at_end(reader) && *reader->at == ':' ?
			!take_time(reader, value, &value) : !take_unit(reader, &value))
			return false;
		*total_us += sign * value;
	}
}

/* Read what follows the P of an ISO 8601 duration. */
static bool
read_iso(Reader *reader, long double *total_us)
{
	static const char designators[2][5] = {"ymwd", "hms"};
	static const long double designated_us[2][4] = {
		{YEAR_US, MONTH_US, 7 * DAY_US, DAY_US},
		{HOUR_US, MINUTE_US, SECOND_US}
	};
	int			part = 0;
	const char *next = designators[0];

	*total_us = 0;
	while (!at_end(reader))
	{
		int			sign;
		long double value;
		const char *found;

		if (part == 0 && take(reader, 't'))
		{
			part = 1;
			next = designators[1];
		}
		sign = take_sign(reader);
		if (!take_number(reader, &value) || at_end(reader))
			return false;
		found = strchr(next, lower(*reader->at));
		if (found == NULL || *found == '\0')
			return false;
		reader->at++;
		reader->given = 1;
		next = found + 1;
		*total_us += sign * value *
			designated_us[part][found - designators[part]];
	}
	return reader->given != 0;
}

/* Is the rest of the text this word? */
static bool
is_word(Reader reader, const char *word)
{
	while (*word != '\0')
		if (!take(&reader, *word++))
			return false;
	return at_end(&reader);
}

/* Read a span of time, in microseconds. */
dlock_duration_error
dlock_parse_duration(lease_bytes text, int64_t *duration_us)
{
	Reader		start = {text.data, text.data + text.length, 0};
	Reader		reader;
	long double total_us;
	int			sign;

	skip_space(&start);
	while (start.end > start.at &&
		   (start.end[-1] == ' ' ||
			(start.end[-1] >= '\t' && start.end[-1] <= '\r')))
		start.end--;

	/* a number alone */
	reader = start;
	sign = take_sign(&reader);
	if (is_word(reader, "nan") || is_word(reader, "inf") ||
		is_word(reader, "infinity"))
		return DLOCK_DURATION_NOT_FINITE;
	if (take_number(&reader, &total_us) &&
		take_exponent(&reader, &total_us) && at_end(&reader))
		total_us *= sign * SECOND_US;
	else
	{
		bool		valid;

		reader = start;
		valid = take(&reader, 'p') ? read_iso(&reader, &total_us) :
			read_list(&reader, &total_us);
		if (!valid)
			return DLOCK_DURATION_INVALID;
	}
	if (isnan(total_us) || fabsl(total_us) > DURATION_MAX_US)
		return DLOCK_DURATION_OUT_OF_RANGE;
	*duration_us = (int64_t) rintl(total_us);
	return DLOCK_DURATION_OK;
}
