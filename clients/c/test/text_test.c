/*
 * text_test.c
 *	  Text sent to servers and received from them; URLs, durations, errors.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "dlock.h"
#include "errors.h"
#include "text.h"
#include "url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(array)	(sizeof(array) / sizeof((array)[0]))

static void
reads_durations(void **state)
{
	static const struct
	{
		const char *text;
		int64_t		us;
	}			good[] =
	{
		{"30", 30000000}, {"1.5 h", 5400000000}, {"-1", -1000000},
		{"1h30m", 5400000000}, {"1000000000", 1000000000000000},
		{"-1000000000", -1000000000000000},
	};
	static const char *const bad[] = {
		"", "s", "1 2", "nan", "1000000000.000001", "-1000000000.000001", "1e13",
	};
	int64_t		us;

	(void) state;
	for (size_t i = 0; i < LENGTH(good); i++)
	{
		if (!dlock_parse_duration(good[i].text, &us) || us != good[i].us)
			fail_msg("\"%s\" is %lld", good[i].text, (long long) us);
	}
	for (size_t i = 0; i < LENGTH(bad); i++)
		if (dlock_parse_duration(bad[i], &us))
			fail_msg("\"%s\" is %lld", bad[i], (long long) us);
}

static void
tells_utf8(void **state)
{
	static const char *const good[] = {
		"", "a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
		"\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "caf\xc3\xa9 \xe2\x82\xac",
	};
	static const char *const bad[] = {
		"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(", "caf\xe9", "\xe0\x9f\xbf",
		"\xe2\x82", "\xe2\x82(", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf",
		"\xf0\x90\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xfe\xff",
	};

	(void) state;
	for (size_t i = 0; i < LENGTH(good); i++)
		if (!dlock_is_utf8(good[i]))
			fail_msg("case %zu is UTF-8", i);
	for (size_t i = 0; i < LENGTH(bad); i++)
		if (dlock_is_utf8(bad[i]))
			fail_msg("case %zu is not UTF-8", i);
}

static void
writes_durations(void **state)
{
	static const struct
	{
		int64_t		us;
		const char *text;
	}			cases[] =
	{
		{30000000, "30.000000"}, {1, "0.000001"}, {-1000000, "-1.000000"},
		{-1, "-0.000001"}, {INT64_MIN, "-9223372036854.775808"},
	};

	(void) state;
	for (size_t i = 0; i < LENGTH(cases); i++)
	{
		dlock_text	text = {0};

		dlock_text_duration(&text, cases[i].us);
		assert_string_equal(text.data, cases[i].text);
		dlock_text_free(&text);
	}
}

static void
writes_lists(void **state)
{
	const char *const names[] = {"a", "", "b\"c\\d", "x,y}", "\xc3\xa9\n"};
	const int64_t numbers[] = {1, -2, INT64_MAX};
	const dlock_arg texts = DLOCK_TEXTS(names, LENGTH(names));
	const dlock_arg integers = DLOCK_INTEGERS(numbers, LENGTH(numbers));
	const dlock_arg none = DLOCK_TEXTS(NULL, 0);
	dlock_text	text = {0};
	dlock_table table = {0};

	(void) state;
	dlock_text_list(&text, DLOCK_POSTGRESQL, &texts);
	assert_string_equal(text.data,
						"{\"a\",\"\",\"b\\\"c\\\\d\",\"x,y}\",\"\xc3\xa9\n\"}");
	/* reading what was written gives the same */
	assert_true(dlock_table_from_array(&table, text.data));
	for (size_t i = 0; i < LENGTH(names); i++)
		assert_string_equal(table.values[i], names[i]);
	dlock_table_free(&table);

	dlock_text_clear(&text);
	dlock_text_list(&text, DLOCK_MYSQL, &texts);
	assert_string_equal(text.data,
						"[\"a\",\"\",\"b\\\"c\\\\d\",\"x,y}\",\"\xc3\xa9\\u000a\"]");
	assert_true(dlock_table_from_json(&table, text.data));
	for (size_t i = 0; i < LENGTH(names); i++)
		assert_string_equal(table.values[i], names[i]);
	dlock_table_free(&table);

	dlock_text_clear(&text);
	dlock_text_list(&text, DLOCK_MYSQL, &integers);
	assert_string_equal(text.data, "[1,-2,9223372036854775807]");
	dlock_text_clear(&text);
	dlock_text_list(&text, DLOCK_POSTGRESQL, &none);
	assert_string_equal(text.data, "{}");
	dlock_text_free(&text);
}

/* Rows as "a,b|c,NULL|", columns before them as "x,y:". */
static void
compare_rows(dlock_table *table, const char *expected)
{
	char		shown[1000] = "";
	size_t		length = 0;

	for (size_t i = 0; i < table->ncolumns; i++)
		length += (size_t) snprintf(shown + length, sizeof(shown) - length, "%s%s",
									i > 0 ? "," : "", table->names[i]);
	length += (size_t) snprintf(shown + length, sizeof(shown) - length, ":");
	for (size_t i = 0; i < table->nvalues; i++)
		length += (size_t) snprintf(shown + length, sizeof(shown) - length, "%s%s",
									table->values[i] != NULL ? table->values[i] : "NULL",
									table->ncolumns > 0 && (i + 1) % table->ncolumns != 0 ? "," : "|");
	assert_string_equal(shown, expected);
}

static void
reads_lists(void **state)
{
	static const struct
	{
		const char *text;
		const char *rows;		/* NULL: it is none */
		bool		json;
	}			cases[] =
	{
		{"{}", ":", false}, {"{1,2}", ":1|2|", false},
		{"{a,NULL,\"NULL\"}", ":a|NULL|NULL|", false},
		{"{\"a b\",\"c\\\"d\"}", ":a b|c\"d|", false},
		{"", NULL, false}, {"{", NULL, false}, {"{1", NULL, false},
		{"{\"1}", NULL, false}, {"{1}x", NULL, false}, {"{1 2}", ":1 2|", false},
		{"[]", ":", true}, {" [ 1 , 2 ] ", ":1|2|", true},
		{"[\"a\", null, true, false, -1.5e3]", ":a|NULL|1|0|-1.5e3|", true},
		{"[\"\\u00e9\\ud83d\\ude00\\n\\\"\\/\"]", ":\xc3\xa9\xf0\x9f\x98\x80\n\"/|", true},
		{"[{\"name\": \"a\", \"token\": 3}, {\"name\": \"b\", \"token\": null}]",
		"name,token:a,3|b,NULL|", true},
		{"[{}]", ":", true},
		{"", NULL, true}, {"[", NULL, true}, {"[1", NULL, true}, {"[1,]", NULL, true},
		{"[1]x", NULL, true}, {"[\"a]", NULL, true}, {"[\"\\u00g0\"]", NULL, true},
		{"[\"\\x\"]", NULL, true}, {"[{\"a\": 1}, {\"b\": 1}]", NULL, true},
		{"[{\"a\": 1}, {\"a\": 1, \"b\": 2}]", NULL, true},
		{"[{\"a\": 1, }]", NULL, true}, {"[{\"a\" 1}]", NULL, true},
		{"[{\"a\": 1, \"b\": 2}, {\"a\": 1}]", NULL, true},
		{"{\"a\": 1}", NULL, true}, {"[[1]]", NULL, true}, {"[\"\\u12", NULL, true},
	};

	(void) state;
	for (size_t i = 0; i < LENGTH(cases); i++)
	{
		dlock_table table = {0};
		bool		valid = cases[i].json ?
			dlock_table_from_json(&table, cases[i].text) :
			dlock_table_from_array(&table, cases[i].text);

		if (valid != (cases[i].rows != NULL))
			fail_msg("%s is %s", cases[i].text, valid ? "valid" : "none");
		if (valid)
			compare_rows(&table, cases[i].rows);
		dlock_table_free(&table);
	}
}

static void
compare(const char *is, const char *should)
{
	assert_string_equal(is != NULL ? is : "-", should);
}

static void
reads_urls(void **state)
{
	static const struct
	{
		const char *text;
		const char *user;
		const char *password;
		const char *host;
		unsigned int port;
		const char *database;
		const char *socket;
	}			cases[] =
	{
		{"mysql://", "-", "-", "-", 0, "-", "-"},
		{"mysql:///", "-", "-", "-", 0, "-", "-"},
		{"mariadb://h", "-", "-", "h", 0, "-", "-"},
		{"mysql://u@h:3307/d", "u", "-", "h", 3307, "d", "-"},
		{"mysql://u:@h", "u", "", "h", 0, "-", "-"},
		{"mysql://u:p%40%3a%2F%25@h/", "u", "p@:/%", "h", 0, "-", "-"},
		{"mysql://u:a@b@h/", "u", "a@b", "h", 0, "-", "-"},
		{"mysql://[::1]:3306/d", "-", "-", "::1", 3306, "d", "-"},
		{"mysql://u@[::1]", "u", "-", "::1", 0, "-", "-"},
		{"mysql:///d?socket=%2Ftmp%2Fa%20b&ssl-verify=1", "-", "-", "-", 0, "d", "/tmp/a b"},
		{"mysql://u@h?socket=/s&", "u", "-", "h", 0, "-", "/s"},
	};
	static const char *const bad[] = {
		"mysql://h:x/", "mysql://h:70000/", "mysql://h/?nothing=1", "mysql://h/?socket",
		"mysql://u:%zz@h/", "mysql://u:%0@h/", "mysql://u%00@h/", "mysql://[::1/",
		"mysql://h/?ssl-verify=yes", "oracle://h/", "secret", "http://u:secret@h/",
		"mysql:u:secret@h", "mysql://u:secret/x@h/", "mysql://u:sec?ret@h/",
		"postgresql:/secret",
	};
	dlock_url	url;
	dlock_error error;

	(void) state;
	for (size_t i = 0; i < LENGTH(cases); i++)
	{
		if (!dlock_url_parse(cases[i].text, &url, &error))
			fail_msg("%s: %s", cases[i].text, error.message);
		assert_int_equal(url.engine, DLOCK_MYSQL);
		compare(url.user, cases[i].user);
		compare(url.password, cases[i].password);
		compare(url.host, cases[i].host);
		assert_int_equal(url.port, cases[i].port);
		compare(url.database, cases[i].database);
		compare(url.parameters[DLOCK_URL_SOCKET], cases[i].socket);
		dlock_url_free(&url);
	}
	for (size_t i = 0; i < LENGTH(bad); i++)
	{
		if (dlock_url_parse(bad[i], &url, &error))
			fail_msg("%s is no URL", bad[i]);
		assert_int_equal(error.error_class, DLOCK_MISUSE);
		assert_null(strstr(error.message, "sec"));
	}
}

static void
reads_the_environment(void **state)
{
	dlock_url	url;
	dlock_error error;

	(void) state;
	unsetenv("PGHOST");
	unsetenv("PGHOSTADDR");
	unsetenv("PGSERVICE");
	unsetenv("PGDATABASE");
	unsetenv("DLOCK_URL");
	assert_false(dlock_url_parse(NULL, &url, &error));
	assert_int_equal(error.error_class, DLOCK_MISUSE);
	assert_non_null(strstr(error.message, "DLOCK_URL"));
	setenv("PGSERVICE", "x", 1);
	assert_true(dlock_url_parse("", &url, &error));
	assert_int_equal(url.engine, DLOCK_POSTGRESQL);
	assert_string_equal(url.conninfo, "");
	dlock_url_free(&url);
	setenv("DLOCK_URL", "mysql://h/", 1);
	assert_true(dlock_url_parse(NULL, &url, &error));
	assert_int_equal(url.engine, DLOCK_MYSQL);
	dlock_url_free(&url);
	assert_true(dlock_url_parse("host=h password=a://b", &url, &error));
	assert_int_equal(url.engine, DLOCK_POSTGRESQL);
	dlock_url_free(&url);
	assert_true(dlock_url_parse("postgres://u@h/d", &url, &error));
	assert_int_equal(url.engine, DLOCK_POSTGRESQL);
	dlock_url_free(&url);
}

static void
classifies_errors(void **state)
{
	static const struct
	{
		dlock_engine engine;
		const char *sqlstate;
		unsigned int number;
		const char *message;
		dlock_error_class error_class;
		bool		denied;
	}			cases[] =
	{
		{DLOCK_POSTGRESQL, "40P01", 0, "", DLOCK_BUSY, false},
		{DLOCK_POSTGRESQL, "55L01", 0, "", DLOCK_LOST, false},
		{DLOCK_POSTGRESQL, "22023", 0, "", DLOCK_MISUSE, false},
		{DLOCK_POSTGRESQL, "25P01", 0, "", DLOCK_MISUSE, false},
		{DLOCK_POSTGRESQL, "0A000", 0, "", DLOCK_MISUSE, false},
		{DLOCK_POSTGRESQL, "28P01", 0, "", DLOCK_MISUSE, true},
		{DLOCK_POSTGRESQL, "28000", 0, "", DLOCK_MISUSE, true},
		{DLOCK_POSTGRESQL, "42501", 0, "", DLOCK_MISUSE, true},
		{DLOCK_POSTGRESQL, "42883", 0, "", DLOCK_MISUSE, false},
		{DLOCK_POSTGRESQL, "3D000", 0, "", DLOCK_MISUSE, false},
		{DLOCK_POSTGRESQL, "54000", 0, "", DLOCK_MISUSE, false},
		{DLOCK_POSTGRESQL, "55000", 0, "", DLOCK_MISUSE, false},
		{DLOCK_POSTGRESQL, "55P03", 0, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_POSTGRESQL, "25006", 0, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_POSTGRESQL, "53400", 0, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_POSTGRESQL, "57P01", 0, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_POSTGRESQL, "57014", 0, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_POSTGRESQL, "2200H", 0, "", DLOCK_MISUSE, false},
		{DLOCK_POSTGRESQL, NULL, 0, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_MYSQL, "HY000", 3058, "", DLOCK_BUSY, false},
		{DLOCK_MYSQL, "40P01", 3058, "", DLOCK_BUSY, false},
		{DLOCK_MYSQL, "55L01", 1644, "", DLOCK_LOST, false},
		{DLOCK_MYSQL, "45000", 1644, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_MYSQL, "22004", 1138, "", DLOCK_MISUSE, false},
		{DLOCK_MYSQL, "22023", 3037, "", DLOCK_MISUSE, false},
		{DLOCK_MYSQL, "22007", 1292, "", DLOCK_MISUSE, false},
		{DLOCK_MYSQL, "42000", 1234, "", DLOCK_MISUSE, false},
		{DLOCK_MYSQL, "42000", 1227, "", DLOCK_MISUSE, true},
		{DLOCK_MYSQL, "42000", 1370, "", DLOCK_MISUSE, true},
		{DLOCK_MYSQL, "28000", 1045, "", DLOCK_MISUSE, true},
		{DLOCK_MYSQL, "42000", 1044, "", DLOCK_MISUSE, true},
		{DLOCK_MYSQL, "42000", 1305, "", DLOCK_MISUSE, false},
		{DLOCK_MYSQL, "HY000", 1123, "", DLOCK_MISUSE, false},
		{DLOCK_MYSQL, "HY000", 1105, "dlock.guard() can only be used in transactions; the guard would end at once", DLOCK_MISUSE, false},
		{DLOCK_MYSQL, "25P01", 1105, "", DLOCK_MISUSE, false},
		{DLOCK_MYSQL, "HY000", 1105, "could not use the lock table: x", DLOCK_UNAVAILABLE, false},
		{DLOCK_MYSQL, "55P03", 3572, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_MYSQL, "HY000", 3572, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_MYSQL, "HY000", 1637, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_MYSQL, "25006", 1792, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_MYSQL, "HY000", 1290, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_MYSQL, "42000", 1203, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_MYSQL, "08004", 1040, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_MYSQL, "HY000", 2013, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_MYSQL, "70100", 1317, "", DLOCK_UNAVAILABLE, false},
		{DLOCK_MYSQL, "40001", 1213, "", DLOCK_UNAVAILABLE, false},
	};

	(void) state;
	for (size_t i = 0; i < LENGTH(cases); i++)
	{
		dlock_error error;

		dlock_error_from_server(&error, cases[i].engine, cases[i].sqlstate,
								cases[i].number, cases[i].message);
		if (error.error_class != cases[i].error_class ||
			error.denied != cases[i].denied)
			fail_msg("%s %u is %s", cases[i].sqlstate, cases[i].number,
					 dlock_error_class_name(error.error_class));
	}
}

static void
cuts_messages(void **state)
{
	dlock_error error;
	char		message[2000] = "  two\n\tlines \xc3\xa9";

	(void) state;
	dlock_error_set(&error, DLOCK_MISUSE, "%s", message);
	assert_string_equal(error.message, "two lines \xc3\xa9");
	/* a character of two bytes at either place is kept whole, or left out */
	for (size_t begin = 505; begin < 515; begin++)
	{
		size_t		length;

		memset(message, 'x', sizeof(message));
		for (length = begin; length < 1000; length += 2)
			memcpy(message + length, "\xc3\xa9", 2);
		message[1001] = '\0';
		dlock_error_set(&error, DLOCK_MISUSE, "%s", message);
		length = strlen(error.message);
		assert_true(length >= sizeof(error.message) - 2 && length < sizeof(error.message));
		assert_true(length <= begin || (length - begin) % 2 == 0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_durations),
		cmocka_unit_test(tells_utf8),
		cmocka_unit_test(writes_durations),
		cmocka_unit_test(writes_lists),
		cmocka_unit_test(reads_lists),
		cmocka_unit_test(reads_urls),
		cmocka_unit_test(reads_the_environment),
		cmocka_unit_test(classifies_errors),
		cmocka_unit_test(cuts_messages),
	};

	return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
