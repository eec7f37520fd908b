/*
 * duration_test.c
 *	  Times as text; t/scenarios/times.scn has them for the servers, too.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "duration.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(array)	(sizeof(array) / sizeof((array)[0]))

/* Read a text that ends where its memory does. */
static lease_duration
parse(const char *text, int64_t *us)
{
	size_t		length = strlen(text);
	char	   *exact = malloc(length + (length == 0));
	lease_duration result;

	assert_non_null(exact);
	for (size_t i = 0; i < length; i++)
		exact[i] = text[i];
	result = lease_parse_duration(exact, length, us);
	free(exact);
	return result;
}

static void
reads(void **state)
{
	static const struct
	{
		const char *text;
		int64_t		us;
	}			times[] =
	{
		/* seconds */
		{"30", 30000000}, {"0.25", 250000}, {".5", 500000}, {"2.", 2000000},
		{" 30 ", 30000000}, {"-1", -1000000}, {"+7", 7000000}, {"0", 0},
		{"1e3", 1000000000}, {"1.5E3", 1500000000}, {"25e-2", 250000},
		{"0e400", 0}, {"1e-400", 0}, {"1000000000", 1000000000000000},
		{"999999999.999999", 999999999999999}, {"1000000000000", LEASE_DURATION_MAX_US},
		{"-1000000000000", -LEASE_DURATION_MAX_US},
		/* rounded */
		{"0.0000004", 0}, {"0.0000005", 1}, {"-0.0000006", -1},
		{"0.1234567891", 123457},
		{"0.00000000000000000000000000000000000000000000000000001", 0},
		{"1.99999999999999999999999999999999999999999999999999999", 2000000},
		/* units */
		{"30s", 30000000}, {"500ms", 500000}, {"7us", 7}, {"5min", 300000000},
		{"5m", 300000000}, {"2h", 7200000000}, {"1d", 86400000000},
		{"1.5 h", 5400000000}, {"+3s", 3000000}, {"10 sec", 10000000},
		{"1h30m", 5400000000}, {"1m0.5s", 60500000}, {"30m 1h", 5400000000},
		{"  5   MINUTES ", 300000000}, {"250 milliseconds", 250000},
		{"1 microsecond", 1}, {"1 hour 30", 3630000000},
		{"1 day -1 hour", 82800000000}, {"-1 min ago", 60000000},
		{"30 seconds AGO ", -30000000}, {"1 week", 604800000000},
		{"1 month", 2592000000000}, {"1 year", 31104000000000},
		{"1y2mon3w4d5h6m7s8ms9us", 38466367008009},
		/* hours and minutes */
		{"1:30", 5400000000}, {"00:00:01.5", 1500000}, {"1:1.5", 61500000},
		{"1:59:60", 7200000000}, {"0 0:1:30", 90000000}, {"1 2:03", 93780000000},
		{"-1 25:00", 3600000000}, {"2:03 1 day", 93780000000},
		/* ISO 8601 */
		{"PT1M", 60000000}, {"pt1m30s", 90000000}, {"PT0.5S", 500000},
		{"P1DT12H", 129600000000}, {"P1W", 604800000000},
		{"P1Y2M3DT4H5M6S", 36561906000000}, {"PT-1M", -60000000},
	};
	int64_t		us;

	(void) state;
	for (size_t i = 0; i < LENGTH(times); i++)
		if (parse(times[i].text, &us) != LEASE_DURATION_OK || us != times[i].us)
			fail_msg("\"%s\" is %lld", times[i].text, (long long) us);
}

static void
refuses(void **state)
{
	static const struct
	{
		const char *text;
		lease_duration result;
	}			times[] =
	{
		{"", LEASE_DURATION_INVALID}, {" ", LEASE_DURATION_INVALID},
		{"s", LEASE_DURATION_INVALID}, {"-", LEASE_DURATION_INVALID},
		{".", LEASE_DURATION_INVALID}, {"--1", LEASE_DURATION_INVALID},
		{"1e", LEASE_DURATION_INVALID}, {"1e3 s", LEASE_DURATION_INVALID},
		{"0x10", LEASE_DURATION_INVALID}, {"30,5", LEASE_DURATION_INVALID},
		{"1 2", LEASE_DURATION_INVALID}, {"3x", LEASE_DURATION_INVALID},
		{"3se", LEASE_DURATION_INVALID}, {"3secondss", LEASE_DURATION_INVALID},
		{"30 s 30 s", LEASE_DURATION_INVALID}, {"1 h 1:00", LEASE_DURATION_INVALID},
		{"1 fortnight", LEASE_DURATION_INVALID}, {"1:2:3:4", LEASE_DURATION_INVALID},
		{"1 day 1 2:03", LEASE_DURATION_INVALID}, {"1.5:30", LEASE_DURATION_INVALID},
		{"1:60", LEASE_DURATION_INVALID}, {"ago", LEASE_DURATION_INVALID},
		{"1 s ago 1", LEASE_DURATION_INVALID}, {"P", LEASE_DURATION_INVALID},
		{"PT", LEASE_DURATION_INVALID}, {"P1", LEASE_DURATION_INVALID},
		{"P1D1Y", LEASE_DURATION_INVALID}, {"P1H", LEASE_DURATION_INVALID},
		{"PT1D", LEASE_DURATION_INVALID}, {"nan 1", LEASE_DURATION_INVALID},
		{"inf1", LEASE_DURATION_INVALID}, {"soon", LEASE_DURATION_INVALID},
		{"nan", LEASE_DURATION_NOT_FINITE}, {"-Infinity", LEASE_DURATION_NOT_FINITE},
		{" inf ", LEASE_DURATION_NOT_FINITE},
		{"1000000000001", LEASE_DURATION_OUT_OF_RANGE},
		{"-1000000000001", LEASE_DURATION_OUT_OF_RANGE},
		{"170000000 years", LEASE_DURATION_OUT_OF_RANGE},
		{"1e30", LEASE_DURATION_OUT_OF_RANGE}, {"-1e400", LEASE_DURATION_OUT_OF_RANGE},
		{"99999999999999999999:00", LEASE_DURATION_OUT_OF_RANGE},
	};
	char		huge[1000];
	int64_t		us;

	(void) state;
	for (size_t i = 0; i < LENGTH(times); i++)
		if (parse(times[i].text, &us) != times[i].result)
			fail_msg("\"%s\" is %d", times[i].text, (int) parse(times[i].text, &us));

	/* two numbers beyond all that a double has */
	memset(huge, '9', sizeof(huge));
	huge[400] = 's';
	huge[401] = '-';
	huge[998] = 'm';
	huge[999] = '\0';
	assert_int_equal(parse(huge, &us), LEASE_DURATION_OUT_OF_RANGE);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads),
		cmocka_unit_test(refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
