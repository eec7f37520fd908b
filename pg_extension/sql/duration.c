/*
 * duration.c
 *	  The type dlock_duration: a span of time, kept in microseconds.
 *
 * One type takes every form in which a client may state a duration, so that
 * each function has one signature: a number of seconds of any numeric type, an
 * interval, text that is either, or an untyped parameter.  A month counts as 30
 * days and a day as 24 hours.  Numbers of the types that few clients send become text
 * first.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "postgres.h"

#include <ctype.h>
#include <math.h>

#include "fmgr.h"
#include "libpq/pqformat.h"
#include "sql/lease_sql.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* Largest absolute value: 10^12 seconds, so that sums cannot overflow. */
#define DURATION_MAX_US		INT64CONST(1000000000000000000)

PG_FUNCTION_INFO_V1(dlock_duration_in);
PG_FUNCTION_INFO_V1(dlock_duration_out);
PG_FUNCTION_INFO_V1(dlock_duration_recv);
PG_FUNCTION_INFO_V1(dlock_duration_send);
PG_FUNCTION_INFO_V1(dlock_duration_from_int4);
PG_FUNCTION_INFO_V1(dlock_duration_from_int8);
PG_FUNCTION_INFO_V1(dlock_duration_from_float4);
PG_FUNCTION_INFO_V1(dlock_duration_from_float8);
PG_FUNCTION_INFO_V1(dlock_duration_from_interval);
PG_FUNCTION_INFO_V1(dlock_duration_to_interval);

static void
raise_range(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("duration is out of range")));
}

static void
raise_not_finite(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("duration must be a finite number of seconds")));
}

/* Check the range of a duration. */
static int64
check_range(int64 duration_us)
{
	if (duration_us > DURATION_MAX_US || duration_us < -DURATION_MAX_US)
		raise_range();
	return duration_us;
}

static int64
from_seconds(int64 seconds)
{
	if (seconds > DURATION_MAX_US / USECS_PER_SEC ||
		seconds < -DURATION_MAX_US / USECS_PER_SEC)
		raise_range();
	return seconds * USECS_PER_SEC;
}

/* Round a number of seconds to microseconds. */
static int64
from_float(double seconds)
{
	if (isnan(seconds) || isinf(seconds))
		raise_not_finite();
	if (fabs(seconds) > (double) DURATION_MAX_US / USECS_PER_SEC)
		raise_range();
	return (int64) rint(seconds * USECS_PER_SEC);
}

static int64
from_interval(const Interval *interval)
{
	int64		days = (int64) interval->month * DAYS_PER_MONTH +
		interval->day;

	if (!compat_interval_is_finite(interval))
		raise_not_finite();
	/* at most 7 * 10^10 days, so nothing here overflows before it is checked */
	if (days > DURATION_MAX_US / USECS_PER_DAY ||
		days < -DURATION_MAX_US / USECS_PER_DAY)
		raise_range();
	return check_range(days * USECS_PER_DAY + check_range(interval->time));
}

/*
 * Read a duration: a number is seconds, anything else an interval.
 *
 * strtod() knows more forms of numbers than SQL does (hexadecimal, "infinity",
 * "nan(...)").  Here a number has decimal digits, or is a name of a value that
 * is not finite.
 */
Datum
dlock_duration_in(PG_FUNCTION_ARGS)
{
	const char *text = PG_GETARG_CSTRING(0);
	const char *start = text;
	char	   *end;
	Interval   *interval;

	while (isspace((unsigned char) *start))
		start++;
	if (strspn(start, "+-.0123456789eE \t\r\n\f\v") == strlen(start) ||
		pg_strcasecmp(start, "nan") == 0 ||
		pg_strcasecmp(start, "inf") == 0 ||
		pg_strcasecmp(start, "-inf") == 0 ||
		pg_strcasecmp(start, "infinity") == 0 ||
		pg_strcasecmp(start, "-infinity") == 0)
	{
		double		seconds;

		errno = 0;
		seconds = strtod(start, &end);
		if (end > start && strspn(end, " \t\r\n\f\v") == strlen(end))
		{
			/* beyond a double's range is beyond ours too */
			if (errno == ERANGE && isinf(seconds))
				raise_range();
			PG_RETURN_INT64(from_float(seconds));
		}
	}

	/* The core's message would speak of an interval. */
	PG_TRY();
	{
		interval = DatumGetIntervalP(DirectFunctionCall3(interval_in,
														 CStringGetDatum(text),
														 ObjectIdGetDatum(InvalidOid),
														 Int32GetDatum(-1)));
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_INVALID_DATETIME_FORMAT)
			PG_RE_THROW();
		FlushErrorState();
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_DATETIME_FORMAT),
				 errmsg("invalid input syntax for type dlock_duration: \"%s\"",
						text),
				 errhint("Give a number of seconds, such as 30 or 0.5, or an interval, such as '5 minutes'.")));
	}
	PG_END_TRY();
	PG_RETURN_INT64(from_interval(interval));
}

/* Write a duration as seconds, without needless digits. */
Datum
dlock_duration_out(PG_FUNCTION_ARGS)
{
	int64		duration_us = PG_GETARG_INT64(0);
	uint64		absolute = duration_us < 0 ? -(uint64) duration_us :
		(uint64) duration_us;
	char	   *text = psprintf("%s%llu.%06llu", duration_us < 0 ? "-" : "",
								(unsigned long long) (absolute / USECS_PER_SEC),
								(unsigned long long) (absolute % USECS_PER_SEC));
	char	   *end = text + strlen(text);

	while (end[-1] == '0')
		end--;
	if (end[-1] == '.')
		end--;
	*end = '\0';
	PG_RETURN_CSTRING(text);
}

/*
 * Binary form: seconds, as a float8, which drivers send for a parameter whose
 * type they guess from a number.  Beyond 2^53 microseconds, 285 years, it is not
 * exact.
 */
Datum
dlock_duration_recv(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(from_float(pq_getmsgfloat8((StringInfo)
											   PG_GETARG_POINTER(0))));
}

Datum
dlock_duration_send(PG_FUNCTION_ARGS)
{
	StringInfoData buf;

	pq_begintypsend(&buf);
	pq_sendfloat8(&buf, PG_GETARG_INT64(0) / (double) USECS_PER_SEC);
	PG_RETURN_BYTEA_P(pq_endtypsend(&buf));
}

Datum
dlock_duration_from_int4(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(from_seconds(PG_GETARG_INT32(0)));
}

Datum
dlock_duration_from_int8(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(from_seconds(PG_GETARG_INT64(0)));
}

/* Not by way of text, of which extra_float_digits may leave one digit. */
Datum
dlock_duration_from_float4(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(from_float(PG_GETARG_FLOAT4(0)));
}

Datum
dlock_duration_from_float8(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(from_float(PG_GETARG_FLOAT8(0)));
}

Datum
dlock_duration_from_interval(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(from_interval(PG_GETARG_INTERVAL_P(0)));
}

Datum
dlock_duration_to_interval(PG_FUNCTION_ARGS)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = PG_GETARG_INT64(0);
	PG_RETURN_INTERVAL_P(interval);
}
