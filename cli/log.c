/*
 * log.c
 *	  The subcommand "log": what is held, as the table dlock.log says.
 *
 * On MySQL and MariaDB all leases are in that table, whose rows are changes that only the
 * library can read.  Where the library does not run, this does: it reads the table, or a
 * dump of it, and folds the rows as a library does that loads them.  It takes nothing for
 * granted: a row that is missing or damaged is an error.
 *
 * A row does not say how time passes when no server runs.  So times are those of the
 * clock of the server that wrote the row, and a server that loads the table counts each
 * lease's ttl anew.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "command.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ask.h"
#include "inspect.h"
#include "log.h"
#include "table.h"

/* Rows that are asked for at once. */
#define ROWS_AT_ONCE	500

/* A lease, as the rows read so far have it. */
struct logged
{
	uint64_t	token;			/* first: leases are found by it */
	log_entry	lease;			/* its strings are in "strings" */
	int64_t		deadline_us;	/* since 1970 */
	size_t		guards;
	char		strings[];
};

/* What was read. */
static struct
{
	void	   *leases;			/* a tree */
	size_t		count;
	log_row		last;			/* without its entries; number 0: there was none */
	uint64_t	first;			/* number of the first row */
	uint64_t	said;			/* the first that said what the last does of where the log
								 * is complete */
	uint64_t	unknown;		/* the last with a lease that was not known; 0: none */
}			fold;

static int
compare_tokens(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

static struct logged *
find_logged(uint64_t token)
{
	void	   *found = tfind(&token, &fold.leases, compare_tokens);

	return found ? *(struct logged **) found : NULL;
}

static void
remove_logged(struct logged *l)
{
	tdelete(&l->token, &fold.leases, compare_tokens);
	free(l);
	fold.count--;
}

/* Copy a string of an entry behind those that are there. */
static lease_bytes
keep_string(char **end, lease_bytes string)
{
	lease_bytes kept = {*end, string.length};

	if (string.length > 0)
		memcpy(*end, string.data, string.length);
	*end += string.length;
	return kept;
}

/* A lease is in the row, whole. */
static void
put_logged(const log_entry *entry, const log_row *row)
{
	struct logged *old = find_logged(entry->token);
	struct logged *l = get_memory(sizeof(*l) + entry->name.length + entry->owner.length +
								  entry->user.length + entry->host.length);
	char	   *end = l->strings;

	*l = (struct logged) {.token = entry->token, .lease = *entry, .guards = old ? old->guards : 0,
		.deadline_us = row->wall_us + entry->left_us};
	l->lease.name = keep_string(&end, entry->name);
	l->lease.owner = keep_string(&end, entry->owner);
	l->lease.user = keep_string(&end, entry->user);
	l->lease.host = keep_string(&end, entry->host);
	if (old)
		remove_logged(old);
	if (!tsearch(l, &fold.leases, compare_tokens))
		end_with(STATUS_SYSTEM, "out of memory");
	fold.count++;
}

/* Another run has taken over: it counts the time of all leases anew. */
static int64_t taken_over_us;

static void
count_anew(const void *node, VISIT visit, int depth)
{
	struct logged *l = *(struct logged *const *) node;

	(void) depth;
	if (visit == postorder || visit == leaf)
		l->deadline_us = taken_over_us + l->lease.ttl_us;
}

/* Apply an entry; false if it is about a lease that is not known. */
static bool
apply_entry(const log_entry *entry, const log_row *row)
{
	struct logged *l = find_logged(entry->token);

	switch (entry->kind)
	{
		case LOG_PUT:
			put_logged(entry, row);
			return true;
		case LOG_CARRY:
			if (!l)
				put_logged(entry, row);
			return true;
		case LOG_TAKE_OVER:
			taken_over_us = row->wall_us;
			twalk(fold.leases, count_anew);
			return true;
		case LOG_RENEW:
			if (l)
			{
				l->lease.ttl_us = entry->ttl_us;
				l->deadline_us = row->wall_us + entry->ttl_us;
			}
			break;
		case LOG_END:
			if (l && l->guards > 0)
				l->lease.gone = true;
			else if (l)
				remove_logged(l);
			break;
		case LOG_GUARD:
			if (l)
				l->guards++;
			break;
		case LOG_END_GUARD:
			if (l && l->guards > 0 && --l->guards == 0 && l->lease.gone)
				remove_logged(l);
			break;
	}
	return l != NULL;
}

static void
end_damaged(uint64_t number)
{
	end_with(STATUS_LOST, "row %" PRIu64 " of dlock.log is damaged", number);
}

/* Read a row of the log; they come in their order. */
static void
read_logged_row(uint64_t number, uint64_t writer, const void *data, size_t length)
{
	log_row		row;
	log_reader	reader;
	log_entry	entry;
	log_read	read;

	if (fold.last.number > 0 && number != fold.last.number + 1)
		end_with(STATUS_LOST, "row %" PRIu64 " of dlock.log is missing", fold.last.number + 1);
	if (!log_read_row(&row, number, writer, data, length) ||
		(fold.last.number > 0 && row.before != fold.last.writer))
		end_damaged(number);
	reader = log_read_entries(&row);
	while ((read = log_next(&reader, &entry)) == LOG_READ_ENTRY)
		if (!apply_entry(&entry, &row))
			fold.unknown = number;
	if (read == LOG_READ_DAMAGED)
		end_damaged(number);
	if (fold.last.number == 0)
		fold.first = number;
	if (fold.last.number == 0 || row.from != fold.last.from)
		fold.said = number;
	fold.last = row;
}

/* All rows have been read: check that nothing is missing before the first. */
static void
check_all_rows(void)
{
	if (fold.last.number == 0)
		end_with(STATUS_LOST, "dlock.log has no rows here, and it always has one");
	if (fold.first > fold.last.from)
		end_with(STATUS_LOST, "rows %" PRIu64 " to %" PRIu64 " of dlock.log are missing",
				 fold.last.from, fold.first - 1);
	if (fold.unknown > fold.said)
		end_damaged(fold.unknown);
}

/* ----------------------------------------------------------------
 * The table
 * ----------------------------------------------------------------
 */

/* Read the table of a server: false if that fails. */
static bool
read_table(dlock_session *session, int64_t timeout_us)
{
	char		sql[160];
	size_t		rows;

	if (!ask(session, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", NULL, 0, timeout_us) ||
		!ask(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT", NULL, 0, timeout_us))
		return false;
	do
	{
		snprintf(sql, sizeof(sql), "SELECT number, writer, HEX(entries) FROM dlock.log "
				 "WHERE number > %" PRIu64 " ORDER BY number LIMIT %d", fold.last.number,
				 ROWS_AT_ONCE);
		if (!ask(session, sql, NULL, 0, timeout_us))
			return false;
		rows = dlock_session_rows(session);
		for (size_t row = 0; row < rows; row++)
		{
			size_t		length;
			char	   *entries = bytes_of(session, row, 2, &length);

			read_logged_row(strtoull(value_of(session, row, 0), NULL, 10),
							strtoull(value_of(session, row, 1), NULL, 10), entries, length);
			free(entries);
		}
	} while (rows == ROWS_AT_ONCE);
	return true;
}

/* ----------------------------------------------------------------
 * A dump
 *
 * Of a dump, as mysqldump and mariadb-dump write it, only the INSERTs into the table are
 * read; also with --hex-blob, --complete-insert and the like.
 * ----------------------------------------------------------------
 */

enum token_kind
{
	TOKEN_WORD,					/* also in backticks */
	TOKEN_NUMBER,
	TOKEN_BYTES,				/* a string, or hexadecimal */
	TOKEN_SIGN,					/* any other character */
	TOKEN_END
};

/* The dump, and the last token that was read. */
static struct
{
	FILE	   *file;
	enum token_kind kind;
	char	   *text;			/* with an end mark */
	size_t		length;
	size_t		room;
}			dump;

static void
add_to_token(int c)
{
	if (dump.length + 1 >= dump.room)
	{
		char	   *more = get_memory(2 * dump.room + 64);

		if (dump.length > 0)
			memcpy(more, dump.text, dump.length);
		free(dump.text);
		dump.text = more;
		dump.room = 2 * dump.room + 64;
	}
	dump.text[dump.length++] = (char) c;
	dump.text[dump.length] = '\0';
}

/* Skip a comment up to what ends it. */
static void
skip_comment(char end)
{
	int			c = getc(dump.file);
	int			before = ' ';

	for (; c != EOF && !(end == '\n' ? c == '\n' : before == '*' && c == '/'); c = getc(dump.file))
		before = c;
}

/* Read what is in quotes; a quote that is doubled stands for itself. */
static void
read_quoted(char quote)
{
	static const char escapes[] = "0nrtbZ";
	static const char escaped[] = "\0\n\r\t\b\x1A";

	for (int c = getc(dump.file); c != EOF; c = getc(dump.file))
	{
		const char *escape;

		if (c == quote)
		{
			c = getc(dump.file);
			if (c != quote)
			{
				ungetc(c, dump.file);
				return;
			}
		}
		else if (c == '\\' && quote != '`')
		{
			c = getc(dump.file);
			escape = c != EOF && c != '\0' ? strchr(escapes, c) : NULL;
			c = escape ? escaped[escape - escapes] : c;
		}
		add_to_token(c);
	}
}

/* What was read are hexadecimal digits from here on: make bytes of them. */
static void
take_digits(size_t from)
{
	size_t		length = 0;

	dump.kind = TOKEN_BYTES;
	for (size_t i = from; i + 1 < dump.length; i += 2)
	{
		char		pair[] = {dump.text[i], dump.text[i + 1], '\0'};

		dump.text[length++] = (char) strtoul(pair, NULL, 16);
	}
	dump.length = length;
}

/* Read the next token. */
static enum token_kind
next_token(void)
{
	int			c;
	int			after;

	dump.length = 0;
	for (;;)
	{
		c = getc(dump.file);
		if (c == EOF)
			return dump.kind = TOKEN_END;
		if (isspace(c))
			continue;
		after = c == '-' || c == '/' ? getc(dump.file) : EOF;
		if (c == '#' || (c == '-' && after == '-'))
			skip_comment('\n');
		else if (c == '/' && after == '*')
			skip_comment('/');
		else
			break;
	}
	if (after != EOF)
		ungetc(after, dump.file);
	dump.kind = c == '`' ? TOKEN_WORD : c == '\'' || c == '"' ? TOKEN_BYTES :
		isdigit(c) ? TOKEN_NUMBER : isalpha(c) || c == '_' ? TOKEN_WORD : TOKEN_SIGN;
	if (c == '`' || dump.kind == TOKEN_BYTES)
		read_quoted((char) c);
	else
		add_to_token(c);
	if (c == '`' || (dump.kind != TOKEN_WORD && dump.kind != TOKEN_NUMBER))
		return dump.kind;
	while ((c = getc(dump.file)) != EOF && (isalnum(c) || c == '_'))
		add_to_token(c);
	ungetc(c, dump.file);
	if (strncmp(dump.text, "0x", 2) == 0)
		take_digits(2);
	else if (strcasecmp(dump.text, "x") == 0 && c == '\'')
	{
		dump.length = 0;
		getc(dump.file);
		read_quoted('\'');
		take_digits(0);
	}
	return dump.kind;
}

static bool
is_word(const char *word)
{
	return dump.kind == TOKEN_WORD && strcasecmp(dump.text, word) == 0;
}

static bool
is_sign(char sign)
{
	return dump.kind == TOKEN_SIGN && dump.text[0] == sign;
}

/* Read a number of a row, which is followed by a comma. */
static uint64_t
read_dumped_number(void)
{
	uint64_t	number;

	if (next_token() != TOKEN_NUMBER)
		end_with(STATUS_LOST, "the dump has a row of dlock.log that cannot be read");
	number = strtoull(dump.text, NULL, 10);
	next_token();
	return number;
}

/* Read the rows of an INSERT, behind VALUES. */
static void
read_dumped_rows(void)
{
	while (next_token() != TOKEN_END && !is_sign(';'))
	{
		uint64_t	number;
		uint64_t	writer;

		if (!is_sign('('))
			continue;
		number = read_dumped_number();
		writer = read_dumped_number();
		/* "_binary" may stand before it */
		if (next_token() == TOKEN_WORD)
			next_token();
		if (dump.kind != TOKEN_BYTES)
			end_with(STATUS_LOST, "the dump has a row of dlock.log that cannot be read");
		read_logged_row(number, writer, dump.text, dump.length);
	}
}

/* Read the name of a table after INSERT INTO: say whether it is the log. */
static bool
is_log_table(bool is_here)
{
	bool		is_log;

	next_token();
	is_log = is_here && is_word("log");
	if (is_word("dlock"))
	{
		next_token();
		is_log = is_sign('.') && next_token() == TOKEN_WORD && is_word("log");
	}
	return is_log;
}

/* Read a dump, of the table alone or of everything. */
static void
read_dump(FILE *file)
{
	bool		is_here = true;	/* no other database is in use */

	dump.file = file;
	while (next_token() != TOKEN_END)
	{
		if (is_word("USE"))
		{
			next_token();
			is_here = is_word("dlock");
		}
		else if (is_word("INSERT"))
		{
			while (next_token() == TOKEN_WORD && !is_word("INTO"))
				;
			if (is_word("INTO") && is_log_table(is_here))
			{
				while (dump.kind != TOKEN_END && !is_word("VALUES") && !is_sign(';'))
					next_token();
				if (is_word("VALUES"))
					read_dumped_rows();
			}
		}
		while (dump.kind != TOKEN_END && !is_sign(';'))
			next_token();
	}
	if (ferror(file))
		end_with(STATUS_SYSTEM, "could not read the dump: %s", strerror(errno));
	free(dump.text);
}

/* ----------------------------------------------------------------
 * Printing
 * ----------------------------------------------------------------
 */

/* The leases, to be sorted. */
static struct logged **sorted;
static size_t nsorted;

static void
collect_logged(const void *node, VISIT visit, int depth)
{
	struct logged *l = *(struct logged *const *) node;

	(void) depth;
	if ((visit == postorder || visit == leaf) && !l->lease.gone)
		sorted[nsorted++] = l;
}

/* By name, then by token. */
static int
compare_logged(const void *a, const void *b)
{
	const struct logged *x = *(struct logged *const *) a;
	const struct logged *y = *(struct logged *const *) b;
	size_t		common = x->lease.name.length < y->lease.name.length ?
		x->lease.name.length : y->lease.name.length;
	int			order = memcmp(x->lease.name.data, y->lease.name.data, common);

	if (order == 0 && x->lease.name.length != y->lease.name.length)
		order = x->lease.name.length < y->lease.name.length ? -1 : 1;
	return order != 0 ? order : compare_tokens(x, y);
}

static void
add_wall_time(struct table *table, int64_t time_us)
{
	time_t		seconds = (time_t) (time_us / 1000000);
	struct tm	parts;
	char		date[32] = "";
	char		text[64];

	if (gmtime_r(&seconds, &parts))
		strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
	snprintf(text, sizeof(text), "%s.%06dZ", date, (int) (time_us % 1000000));
	add_string(table, text);
}

static void
print_logged(bool json)
{
	static const struct column columns[] = {
		{"name", "NAME", false},
		{"owner", "OWNER", false},
		{"mode", "MODE", false},
		{"kind", "KIND", false},
		{"version", "HOLDS", true},
		{"token", "TOKEN", true},
		{"acquired_at", NULL, false},
		{"ttl", "TTL", true},
		{"expires_at", "EXPIRES", false},
		{"leaving", NULL, false},
		{"guards", NULL, true},
		{"account", "ACCOUNT", false},
		{"connection_id", NULL, false},
		{0}
	};
	struct table *table = table_create(columns);

	sorted = get_memory((fold.count + 1) * sizeof(*sorted));
	twalk(fold.leases, collect_logged);
	qsort(sorted, nsorted, sizeof(*sorted), compare_logged);
	for (size_t i = 0; i < nsorted; i++)
	{
		const log_entry *lease = &sorted[i]->lease;
		char		account[LOG_USER_MOST + LOG_HOST_MOST + 2];
		int			length = snprintf(account, sizeof(account), "%.*s@%.*s",
									  (int) lease->user.length, lease->user.data,
									  (int) lease->host.length, lease->host.data);

		add_text(table, lease->name.data, lease->name.length);
		add_text(table, lease->owner.data, lease->owner.length);
		add_string(table, lease_mode_name(lease->mode));
		add_string(table, lease->leaving && !json ? "leaving" : lease_kind_name(lease->lifetime));
		add_number(table, lease->version);
		add_number(table, (int64_t) lease->token);
		add_wall_time(table, lease->acquired_us);
		add_seconds(table, (double) lease->ttl_us / 1e6);
		add_wall_time(table, sorted[i]->deadline_us);
		add_boolean(table, lease->leaving);
		add_number(table, (int64_t) sorted[i]->guards);
		add_text(table, account, (size_t) length);
		add_number(table, (int64_t) lease->connection_id);
		if (json)
			pass_json(table, stdout);
	}
	if (json)
		end_json(table, stdout);
	else
		print_table(table, stdout);
	table_free(table);
	free(sorted);
	tdestroy(fold.leases, free);
}

int
log_command(int argc, char **argv)
{
	const char *url = NULL;
	const char *path;
	int64_t		timeout_us = TIMEOUT_DEFAULT_US;
	bool		json = false;
	dlock_session *session;
	FILE	   *file;
	const struct option_spec specs[] = {
		URL_OPTION(&url),
		TIMEOUT_OPTION(&timeout_us),
		JSON_OPTION(&json),
		{0}
	};

	parse_arguments(argc, argv, specs,
					"log [OPTION]... [FILE]\n\n"
					"List what is held as the table dlock.log of a MySQL or MariaDB server says, or\n"
					"FILE, a dump of it; \"-\" is standard input.  The library is not needed.",
					&path, 0, 1);
	if (path)
	{
		file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
		if (!file)
			end_with(STATUS_SYSTEM, "could not open \"%s\": %s", path, strerror(errno));
		read_dump(file);
		if (file != stdin)
			fclose(file);
		check_all_rows();
		print_logged(json);
		return written(STATUS_OK);
	}
	session = open_session(url);
	if (dlock_session_engine(session) != DLOCK_MYSQL)
		end_with(STATUS_USAGE, "PostgreSQL has no dlock.log; see dlock ls");
	if (!read_table(session, timeout_us))
		return fail(session);
	check_all_rows();
	print_logged(json);
	return finish(session, STATUS_OK);
}
