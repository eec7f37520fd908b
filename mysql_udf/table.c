/*
 * table.c
 *	  The SQL: the lock table, its marks, and the journal.
 *
 * Each row to be changed is looked up by its key.  Otherwise the server would go through
 * all rows of a small table, and wait for those that others have locked.
 *
 * The server limits the length of a statement.  Many rows take several statements.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "mysql_compat.h"

/* The columns of a row, in the order in which they are read and written. */
#define COLUMNS \
	"name, slot, owner, account_user, account_host, mode, kind, version, " \
	"token, request, ttl_us, writes, writer, deadline_us, connection_id, " \
	"acquired_us, expires_us"

/*
 * A read-only server still lets some accounts write, the library's own among them on a
 * stock MariaDB.  So each statement by which a run learns whether it may write has this
 * condition.  The value is a number or text.
 */
#define IS_WRITABLE		"CONCAT(@@GLOBAL.read_only) IN ('0', 'OFF')"

/* There is a row with that key already. */
#define SQLSTATE_DUPLICATE	"23000"

/* Bytes of a statement that all servers take, and the most that we ever put into one. */
#define STATEMENT_LEAST	1024
#define STATEMENT_MOST	(1 << 20)

/* After how many bytes a statement gets no more rows; the last row may exceed them. */
static size_t
statement_room(const connection *c)
{
	size_t		most = c->max_packet / 2;

	return most < STATEMENT_LEAST ? STATEMENT_LEAST :
		most > STATEMENT_MOST ? STATEMENT_MOST : most;
}

/* ----------------------------------------------------------------
 * Reading
 * ----------------------------------------------------------------
 */

static uint64_t
number(const char *value)
{
	return value != NULL ? strtoull(value, NULL, 10) : 0;
}

static int64_t
signed_number(const char *value)
{
	return value != NULL ? strtoll(value, NULL, 10) : 0;
}

/* A time to live, within the bounds of ours: deadlines are sums. */
static int64_t
ttl_of(const char *value)
{
	int64_t		ttl_us = signed_number(value);

	return ttl_us < 0 ? 0 : ttl_us > LEASE_TTL_MAX_US ? LEASE_TTL_MAX_US : ttl_us;
}

/* A column of bytes; empty if it is too long to be ours. */
static lease_bytes
bytes_of(const char *value, unsigned long length, size_t most)
{
	return value == NULL || length > most ? (lease_bytes) {"", 0} :
		(lease_bytes) {value, length};
}

/* Longest halves of an account. */
#define USER_MOST		(DLOCK_USER_SIZE - 1)
#define HOST_MOST		(DLOCK_HOST_SIZE - 1)

/* Make a row of COLUMNS. */
static lease_row
read_row(MYSQL_ROW columns, const unsigned long *lengths)
{
	return (lease_row) {
		.name = bytes_of(columns[0], lengths[0], LEASE_STRING_MAX),
		.slot = (uint32_t) number(columns[1]),
		.owner = bytes_of(columns[2], lengths[2], LEASE_STRING_MAX),
		.user = bytes_of(columns[3], lengths[3], USER_MOST),
		.host = bytes_of(columns[4], lengths[4], HOST_MOST),
		.mode = (lease_mode) number(columns[5]),
		.kind = (lease_kind) number(columns[6]),
		.version = (uint32_t) number(columns[7]),
		.token = number(columns[8]),
		.request = bytes_of(columns[9], lengths[9], LEASE_STRING_MAX),
		.ttl_us = ttl_of(columns[10]),
		.writes = number(columns[11]),
		.writer = number(columns[12]),
		.deadline_us = signed_number(columns[13]),
		.connection_id = number(columns[14]),
		.acquired_us = signed_number(columns[15]),
		.expires_us = signed_number(columns[16]),
	};
}

/* The same for a row that another transaction may have locked: see sort_rows(). */
static lease_row
read_locked_row(MYSQL_ROW columns, const unsigned long *lengths)
{
	lease_row	row = read_row(columns, lengths);

	row.locked = true;
	return row;
}

void
table_free_rows(table_rows *rows)
{
	for (size_t i = 0; i < rows->nresults; i++)
		mysql_free_result(rows->results[i]);
	free(rows->results);
	free(rows->rows);
	*rows = (table_rows) {0};
}

/* Make room for more rows, and for one more result: false if memory is short. */
static bool
reserve_rows(table_rows *rows, size_t more)
{
	MYSQL_RES **results = realloc(rows->results,
								  (rows->nresults + 1) * sizeof(MYSQL_RES *));

	if (results == NULL)
		return false;
	rows->results = results;
	return array_reserve(&rows->rows, &rows->room, rows->count + more, sizeof(lease_row));
}

/* Make a row of its key, and of what tells one version of it from another. */
static lease_row
read_key(MYSQL_ROW columns, const unsigned long *lengths)
{
	return (lease_row) {
		.name = {columns[0], lengths[0]},
		.slot = (uint32_t) number(columns[1]),
		.token = number(columns[2]),
		.writes = number(columns[3]),
	};
}

/* Add the rows of a result, which is kept with them. */
static lease_status
add_rows(connection *c, MYSQL_RES *result,
		 lease_row (*read) (MYSQL_ROW, const unsigned long *),
		 table_rows *rows)
{
	MYSQL_ROW	columns;

	if (!reserve_rows(rows, mysql_num_rows(result)))
	{
		mysql_free_result(result);
		return connection_no_memory(c);
	}
	rows->results[rows->nresults++] = result;
	while ((columns = mysql_fetch_row(result)) != NULL)
		rows->rows[rows->count++] = read(columns, mysql_fetch_lengths(result));
	return LEASE_STATUS_OK;
}

/* By name and slot; a row that was read with locks comes before the same without. */
static int
compare_rows(const void *first, const void *second)
{
	const lease_row *a = first;
	const lease_row *b = second;
	int			difference = lease_compare(&a->name, &b->name);

	if (difference == 0)
		difference = (a->slot > b->slot) - (a->slot < b->slot);
	return difference != 0 ? difference : a->locked - b->locked;
}

/*
 * Put rows in order, each once.  A row that was read both with locks and without is not
 * locked by another transaction.
 */
static void
sort_rows(table_rows *rows)
{
	size_t		n = 0;

	if (rows->count > 0)
		qsort(rows->rows, rows->count, sizeof(lease_row), compare_rows);
	for (size_t i = 0; i < rows->count; i++)
		if (n == 0 || rows->rows[n - 1].slot != rows->rows[i].slot ||
			!lease_same(rows->rows[n - 1].name, rows->rows[i].name))
			rows->rows[n++] = rows->rows[i];
	rows->count = n;
}

/* How many of these names go into one statement. */
static size_t
count_some(const connection *c, const lease_bytes *names, size_t n)
{
	size_t		bytes = 0;
	size_t		some = 0;

	while (some < n && (some == 0 || bytes < statement_room(c)))
		bytes += 4 * names[some++].length + 20;
	return some;
}

/* Add a query for columns of the rows of some names. */
static void
add_select(lease_text *query, const char *columns, const lease_bytes *names,
		   size_t n)
{
	lease_text_add(query, "SELECT %s"
				   " FROM dlock.lease_table FORCE INDEX (PRIMARY) WHERE name IN (",
				   columns);
	for (size_t i = 0; i < n; i++)
	{
		if (i > 0)
			lease_text_put(query, ",", 1);
		lease_text_add_bytes(query, names[i]);
	}
	lease_text_add(query, ") ORDER BY name, slot");
}

/*
 * Read the rows of names, in the order of compare_rows(); with "lock" also find out which
 * of them another transaction has locked.  That waits for no row.
 */
static lease_status
read_names(connection *c, const lease_bytes *names, size_t n, bool lock,
		   table_rows *rows)
{
	lease_status status = LEASE_STATUS_OK;
	size_t		some;

	for (size_t i = 0; status == LEASE_STATUS_OK && i < n; i += some)
	{
		lease_text	text = {0};
		MYSQL_RES  *result;

		some = count_some(c, names + i, n - i);
		if (lock)
		{
			add_select(&text, COLUMNS, names + i, some);
			lease_text_add(&text, " FOR UPDATE SKIP LOCKED;");
		}
		add_select(&text, COLUMNS, names + i, some);
		status = connection_query(c, &text, &result);
		if (status == LEASE_STATUS_OK && lock)
		{
			status = add_rows(c, result, read_row, rows);
			if (status == LEASE_STATUS_OK)
				status = connection_next(c, &result);
		}
		if (status == LEASE_STATUS_OK)
			status = add_rows(c, result, lock ? read_locked_row : read_row,
							  rows);
	}
	if (status != LEASE_STATUS_OK)
		c->is_shut = c->is_locked;
	sort_rows(rows);
	return status;
}

/* Locks no row, and waits for none: fails only if no row can be locked. */
#define PROBE	"SELECT slot FROM dlock.lease_table WHERE name = '' FOR UPDATE SKIP LOCKED"

/*
 * With "waits", wait until what the other members of a cluster have committed can be read
 * here; with "begin" then begin a transaction.  A member that a session has locked against
 * writing applies nothing.  So ask first whether a row can be locked; a read-only member
 * cannot tell.  All of it is sent at once.
 */
static lease_status
catch_up(connection *c, bool waits, bool begin)
{
	size_t		probe = c->in_galera ? 0 : 1;
	size_t		done;
	lease_text	text = {0};
	lease_status status;

	if (!c->in_galera)
		lease_text_add(&text, "SET SESSION group_replication_consistency = 'EVENTUAL';");
	if (!c->is_read_only)
		lease_text_add(&text, PROBE ";");
	if (waits)
		lease_text_add(&text, c->in_galera ?
					   "SET STATEMENT wsrep_sync_wait = 15 FOR SELECT 1;" :
					   "SET SESSION group_replication_consistency = 'BEFORE';"
					   "SELECT slot FROM dlock.lease_table WHERE name = '';"
					   "SET SESSION group_replication_consistency = 'EVENTUAL';");
	if (begin)
		lease_text_add(&text, "START TRANSACTION;");
	status = connection_execute_all(c, &text, &done);
	c->in_transaction |= begin && status == LEASE_STATUS_OK;
	if (status != LEASE_STATUS_OK && done == probe && !c->is_read_only)
		c->is_shut = c->is_locked;
	return status;
}

/*
 * In a cluster, see what the other members have committed; fails if a session has locked
 * the table or the server against writing.  For looks: a member that was expelled has nobody
 * to wait for, and shows what it had.
 */
lease_status
table_catch_up(connection *c)
{
	lease_status status = LEASE_STATUS_OK;

	if (connection_is_member(c))
		status = catch_up(c, true, false);
	if (status == LEASE_STATUS_FAILED && c->is_refusal && !c->is_read_only)
	{
		c->is_read_only = true; /* by now */
		status = catch_up(c, true, false);
	}
	if (status == LEASE_STATUS_FAILED && c->is_expelled)
		status = catch_up(c, false, false);
	return status;
}

/* Begin a transaction; in a cluster, see what the other members have committed. */
static lease_status
begin(connection *c)
{
	return connection_is_member(c) ? catch_up(c, true, true) : connection_begin(c);
}

/*
 * Fail if a session has locked the table or the server against writing.  What comes next
 * may wait for rows that another run has locked.
 */
static lease_status
check_shut(connection *c)
{
	lease_text	text = {0};
	size_t		done;
	lease_status status;

	lease_text_add(&text, PROBE);
	status = connection_execute_all(c, &text, &done);
	if (status != LEASE_STATUS_OK)
		c->is_shut = c->is_locked;
	return status;
}

/* Begin a transaction that locks rows. */
static lease_status
begin_locking(connection *c)
{
	lease_status status;

	connection_rollback(c);
	status = connection_refuse_if_read_only(c);
	return status == LEASE_STATUS_OK ? begin(c) : status;
}

/*
 * Read the rows of names.  With "lock" begin a transaction, lock the rows that are free,
 * and mark the others as locked.
 */
lease_status
table_read(connection *c, const lease_bytes *names, size_t n, bool lock,
		   table_rows *rows)
{
	lease_status status = lock ? begin_locking(c) : LEASE_STATUS_OK;

	return status == LEASE_STATUS_OK ? read_names(c, names, n, lock, rows) :
		status;
}

/*
 * Begin a transaction, lock the rows of names, and find out which of them another
 * transaction has locked.  There should be "expected" rows.  If none is locked, only
 * their names, slots, tokens and writes are read.
 */
lease_status
table_probe(connection *c, const lease_bytes *names, size_t n,
			size_t expected, table_rows *rows)
{
	lease_status status = begin_locking(c);
	size_t		some;

	for (size_t i = 0; status == LEASE_STATUS_OK && i < n; i += some)
	{
		lease_text	text = {0};
		MYSQL_RES  *result;

		some = count_some(c, names + i, n - i);
		add_select(&text, "name, slot, token, writes", names + i, some);
		lease_text_add(&text, " FOR UPDATE SKIP LOCKED");
		status = connection_query(c, &text, &result);
		if (status == LEASE_STATUS_OK)
			status = add_rows(c, result, read_key, rows);
	}
	if (status == LEASE_STATUS_OK && rows->count != expected)
	{
		/* some are locked, or the table was edited */
		table_free_rows(rows);
		return read_names(c, names, n, true, rows);
	}
	sort_rows(rows);
	return status;
}

/* Lock the rows of names in the transaction under way, as table_read() does. */
lease_status
table_read_locks(connection *c, const lease_bytes *names, size_t n,
				 table_rows *rows)
{
	return read_names(c, names, n, true, rows);
}

/* Find the rows of a name: where they begin, and how many there are. */
size_t
table_find_rows(const table_rows *rows, lease_bytes name, size_t *count)
{
	lease_row	first = {.name = name};
	size_t		low = 0;
	size_t		high = rows->count;

	while (low < high)
	{
		size_t		middle = low + (high - low) / 2;

		if (compare_rows(&rows->rows[middle], &first) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*count = 0;
	while (low + *count < rows->count &&
		   lease_same(rows->rows[low + *count].name, name))
		++*count;
	return low;
}

/*
 * Read the marks of a result.  True if it has a row that is none: one from the journal, or
 * of a bucket whose mark another run has raised.
 */
static bool
fetch_marks(MYSQL_RES *result, table_marks *marks)
{
	MYSQL_ROW	columns;
	bool		any_more = false;

	while ((columns = mysql_fetch_row(result)) != NULL)
	{
		uint64_t	bucket = number(columns[0]);

		any_more |= bucket == LEASE_BUCKETS;
		if (bucket >= LEASE_BUCKETS)
			continue;
		marks->known[bucket] = true;
		marks->marks[bucket] = number(columns[1]);
	}
	mysql_free_result(result);
	return any_more;
}

static lease_status
lacks_marks(connection *c)
{
	return connection_give_up(c, LEASE_STATUS_FAILED, "XX001",
							  "table dlock.lease_mark lacks rows; run install.sql again");
}

/*
 * Read the marks of names' buckets, where changes go into the table at once.  Fenced off
 * if there is a journal that has rows: another run still appends.  The same if another run
 * than "raiser" has raised the marks, which a take-over does: it may have opened a journal
 * that this run does not know of.  0: any run may raise them.  A missing mark is an error:
 * the tokens of its bucket could shrink.
 */
lease_status
table_read_marks(connection *c, const lease_bytes *names, size_t n,
				 bool has_journal, uint64_t raiser, table_marks *marks)
{
	lease_text	text = {0};
	MYSQL_RES  *result;
	lease_status status;

	if (raiser == 0)
		lease_text_add(&text, "SELECT bucket");
	else
		lease_text_add(&text, "SELECT IF(writer = %" PRIu64 ", bucket, %d)",
					   raiser, LEASE_BUCKETS);
	lease_text_add(&text, ", mark FROM dlock.lease_mark WHERE bucket IN (");
	for (size_t i = 0; i < n; i++)
		lease_text_add(&text, "%s%" PRIu32, i > 0 ? "," : "",
					   lease_bucket(names[i]));
	lease_text_add(&text, ") AND " IS_WRITABLE);
	if (has_journal)
		lease_text_add(&text, " UNION ALL (SELECT %d, writer FROM dlock.journal LIMIT 1)",
					   LEASE_BUCKETS);
	status = connection_query(c, &text, &result);
	if (status != LEASE_STATUS_OK)
		return status;
	if (fetch_marks(result, marks))
		return connection_edited(c);
	for (size_t i = 0; status == LEASE_STATUS_OK && i < n; i++)
		if (!marks->known[lease_bucket(names[i])])
		{
			status = connection_look_refusing(c);
			if (status == LEASE_STATUS_OK)
				status = lacks_marks(c);
		}
	return status;
}

/* Send a query, written by a format of printf(). */
static __attribute__((format(printf, 3, 4))) lease_status
query(connection *c, MYSQL_RES **result, const char *format,...)
{
	lease_text	text = {0};
	va_list		arguments;

	va_start(arguments, format);
	lease_text_add_list(&text, format, arguments);
	va_end(arguments);
	return connection_query(c, &text, result);
}

/* Give up: a journal could not be read. */
static lease_status
not_read(connection *c, journal_result result, const char *table)
{
	char		message[100];

	if (result == JOURNAL_NO_MEMORY)
		return connection_no_memory(c);
	snprintf(message, sizeof(message), "table %s is damaged", table);
	return connection_give_up(c, LEASE_STATUS_FAILED, "XX001", message);
}

/* Read the journal. */
static lease_status
read_journal(connection *c, journal_changes *changes)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;
	journal_result read = JOURNAL_READ;
	lease_status status = query(c, &result,
								"SELECT writer, number, changes"
								" FROM dlock.journal ORDER BY writer, number");

	if (status != LEASE_STATUS_OK)
		return status;
	while (read == JOURNAL_READ &&
		   (columns = mysql_fetch_row(result)) != NULL)
		read = journal_read(changes, columns[2],
							mysql_fetch_lengths(result)[2],
							number(columns[0]));
	mysql_free_result(result);
	return read == JOURNAL_READ ? LEASE_STATUS_OK :
		not_read(c, read, "dlock.journal");
}

/*
 * Find out which of the tables there are.  install.sql makes both tables of the journal at
 * once; if one of them is missing, reading it is an error.  To go back to 1.0, an operator
 * renames the head.  Then no run can append: the take-over writes the journal into the
 * lock table, and from then on all changes go there.
 */
static lease_status
find_tables(connection *c, table_state *state)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;
	bool		has_head = false;
	bool		has_closed_head = false;
	lease_status status = query(c, &result, "SELECT TABLE_NAME FROM"
								" information_schema.TABLES WHERE"
								" TABLE_SCHEMA = 'dlock' AND TABLE_NAME IN"
								" ('lease_table', 'journal', 'journal_head',"
								" 'closed_journal_head', 'lease_journal')");

	if (status != LEASE_STATUS_OK)
		return status;
	while ((columns = mysql_fetch_row(result)) != NULL)
	{
		if (strcmp(columns[0], "lease_table") == 0)
			state->has_leases = true;
		else if (strcmp(columns[0], "lease_journal") == 0)
			state->has_old_journal = true;
		else if (strcmp(columns[0], "journal_head") == 0)
			has_head = true;
		else if (strcmp(columns[0], "closed_journal_head") == 0)
			has_closed_head = true;
		else
			state->has_rows = true;
	}
	mysql_free_result(result);
	state->has_journal = has_head || (state->has_rows && !has_closed_head);
	state->has_rows |= state->has_journal;
	return LEASE_STATUS_OK;
}

/* Read a row of numbers; "exists" says whether there is one. */
static lease_status
read_numbers(connection *c, const char *sql, size_t n, uint64_t *numbers,
			 bool *exists)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;
	lease_status status = query(c, &result, "%s", sql);

	if (status != LEASE_STATUS_OK)
		return status;
	columns = mysql_fetch_row(result);
	*exists = columns != NULL;
	for (size_t i = 0; i < n; i++)
		numbers[i] = *exists ? number(columns[i]) : 0;
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}

/* The query for which run may append. */
#define APPENDER "SELECT writer FROM dlock.journal_head WHERE place = 0"

/* Ask which run may append: fenced off if it is not "writer". */
static lease_status
check_appender(connection *c, const char *sql, uint64_t writer)
{
	bool		exists;
	uint64_t	appender;
	lease_status status = read_numbers(c, sql, 1, &appender, &exists);

	return status != LEASE_STATUS_OK || (exists && appender == writer) ?
		status : connection_edited(c);
}

/*
 * Look whether there is a journal.  Fenced off if the run "writer" may not append to it;
 * 0: that does not matter.  The same if the lock table is gone, which a run that has it in
 * its image may not notice for as long as nothing changes.
 */
lease_status
table_look(connection *c, uint64_t writer, bool *has_journal)
{
	table_state state = {0};
	lease_status status = find_tables(c, &state);

	*has_journal = state.has_journal;
	if (status == LEASE_STATUS_OK && !state.has_leases)
		return connection_edited(c);
	if (status != LEASE_STATUS_OK || !*has_journal || writer == 0)
		return status;
	return check_appender(c, APPENDER, writer);
}

/* Read the journal of 1.0; with "lock" keep other runs from changing it. */
static lease_status
read_old_journal(connection *c, bool lock, table_state *state)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;
	journal_result read = JOURNAL_READ;
	lease_status status = query(c, &result,
								"SELECT writer, leases FROM dlock.lease_journal"
								" WHERE place = 0%s", lock ? " FOR UPDATE" : "");

	if (status != LEASE_STATUS_OK)
		return status;
	columns = mysql_fetch_row(result);
	if (columns != NULL)
	{
		state->old_writer = number(columns[0]);
		read = journal_read_old(&state->changes, columns[1],
								mysql_fetch_lengths(result)[1],
								state->old_writer);
	}
	mysql_free_result(result);
	return read == JOURNAL_READ ? LEASE_STATUS_OK :
		not_read(c, read, "dlock.lease_journal");
}

/* Read which run may append; with "lock" keep others from appending. */
static lease_status
read_head(connection *c, bool lock, table_state *state)
{
	bool		exists;
	lease_status status = read_numbers(c, lock ? APPENDER " FOR UPDATE" :
									   APPENDER, 1, &state->head, &exists);

	return status != LEASE_STATUS_OK || exists ? status :
		connection_give_up(c, LEASE_STATUS_FAILED, "XX001",
						   "table dlock.journal_head lacks its row; run install.sql again");
}

/* Read which runs have raised the marks: the smallest and the largest of their ids. */
static lease_status
read_raisers(connection *c, uint64_t raisers[2])
{
	bool		exists;

	return read_numbers(c, "SELECT MIN(writer), MAX(writer)"
						" FROM dlock.lease_mark", 2, raisers, &exists);
}

/*
 * Read both journals, ours and that of 1.0.
 *
 * Only the run that the head names appends.  If ours has rows of another run, two servers
 * have granted without knowing of each other: a source that was lost is back, say, and
 * follows the server that took over.  What the other run says is not true any more if that
 * server has changed the lease since: there its owner may have renewed a lease that was
 * given back to the other run.  A lease that stays for too long ends at its deadline, but
 * one that is taken away is granted to others.  So what was put counts, and no removal
 * does.
 *
 * A library of 1.0 does not read ours.  If one has taken over since, it may have granted
 * the names in our journal to others.  So what our journal has does not count, except for
 * its tokens.
 */
static lease_status
read_journals(connection *c, bool lock, table_state *state)
{
	lease_status status = LEASE_STATUS_OK;
	uint64_t	raisers[2];
	uint64_t	writer;
	size_t		nours;

	if (state->has_journal)
		status = read_head(c, lock, state);
	if (status == LEASE_STATUS_OK && state->has_rows)
		status = read_journal(c, &state->changes);
	if (state->head != 0)
		journal_drop_removals(&state->changes, state->head);
	if (status != LEASE_STATUS_OK || !state->has_old_journal)
		return status;
	nours = state->changes.count;
	status = read_old_journal(c, lock, state);
	if (status != LEASE_STATUS_OK || nours == 0)
		return status;
	writer = state->has_journal ? state->head :
		state->changes.changes[0].row.writer;
	status = read_raisers(c, raisers);
	if (status != LEASE_STATUS_OK || state->old_writer == writer ||
		raisers[0] != state->old_writer || raisers[1] != state->old_writer)
		return status;
	for (size_t i = 0; i < nours; i++)
		state->last_mark = lease_merge_marks(state->last_mark,
											 state->changes.changes[i].row.token);
	journal_skip(&state->changes, nours);
	return LEASE_STATUS_OK;
}

/* Read both journals, without locks. */
lease_status
table_read_journals(connection *c, journal_changes *changes)
{
	table_state state = {0};
	lease_status status = find_tables(c, &state);

	if (status == LEASE_STATUS_OK)
		status = read_journals(c, false, &state);
	*changes = state.changes;
	return status;
}

/* Read all rows, if there are not more than "most". */
static lease_status
read_all_rows(connection *c, size_t most, table_state *state)
{
	MYSQL_RES  *result;
	lease_status status = query(c, &result, "SELECT " COLUMNS
								" FROM dlock.lease_table FORCE INDEX (PRIMARY)"
								" ORDER BY name, slot LIMIT %zu", most + 1);

	if (status != LEASE_STATUS_OK)
		return status;
	state->is_complete = mysql_num_rows(result) <= most;
	if (state->is_complete)
		return add_rows(c, result, read_row, &state->rows);
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}

/*
 * Begin a transaction that takes over, and read journals and marks, and the rows if there
 * are not more than "most_rows", which may be 0.
 */
lease_status
table_read_state(connection *c, uint64_t writer, size_t most_rows,
				 table_state *state)
{
	MYSQL_RES  *result;
	lease_status status;
	uint64_t	raisers[2] = {0};

	connection_rollback(c);
	status = connection_look_refusing(c);
	if (status == LEASE_STATUS_OK)
		status = find_tables(c, state);
	if (status == LEASE_STATUS_OK)
		status = begin(c);
	if (status == LEASE_STATUS_OK && !connection_is_member(c))
		status = check_shut(c);
	if (status == LEASE_STATUS_OK)
		status = read_journals(c, true, state);
	if (status == LEASE_STATUS_OK)
		status = query(c, &result,
					   "SELECT bucket, mark FROM dlock.lease_mark FOR UPDATE");
	if (status == LEASE_STATUS_OK)
	{
		(void) fetch_marks(result, &state->marks);
		for (size_t i = 0; i < LEASE_BUCKETS; i++)
		{
			if (!state->marks.known[i])
				return lacks_marks(c);
			state->last_mark = lease_merge_marks(state->last_mark,
												 state->marks.marks[i]);
		}
		status = read_raisers(c, raisers);
	}
	state->is_own = raisers[0] == writer && raisers[1] == writer &&
		(state->head == writer || !state->has_journal);
	if (status == LEASE_STATUS_OK && most_rows > 0)
		status = read_all_rows(c, most_rows, state);
	return status;
}

void
table_free_state(table_state *state)
{
	table_free_rows(&state->rows);
	journal_free(&state->changes);
}

/* Visit the names of all rows, one at a time. */
lease_status
table_visit_names(connection *c, table_name_visitor visit, void *context)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;
	bool		whole;

	if (mysql_query(c->mysql, "SELECT name FROM dlock.lease_table") != 0 ||
		(result = mysql_use_result(c->mysql)) == NULL)
		return connection_failed(c);
	while ((columns = mysql_fetch_row(result)) != NULL)
		visit((lease_bytes) {
			columns[0], mysql_fetch_lengths(result)[0]
		}, context);
	whole = mysql_errno(c->mysql) == 0;
	mysql_free_result(result);
	return whole ? LEASE_STATUS_OK : connection_failed(c);
}

/* Read rows outside of any transaction. */
static lease_status
read_rows(connection *c, lease_text *text, table_rows *rows)
{
	MYSQL_RES  *result;
	lease_status status = connection_query(c, text, &result);

	return status == LEASE_STATUS_OK ? add_rows(c, result, read_row, rows) :
		status;
}

/* Read the rows of an owner and account, in the order of names. */
lease_status
table_read_owner(connection *c, lease_bytes owner, lease_bytes user,
				 lease_bytes host, table_rows *rows)
{
	lease_text	text = {0};

	lease_text_add(&text, "SELECT " COLUMNS
				   " FROM dlock.lease_table WHERE owner = ");
	lease_text_add_bytes(&text, owner);
	lease_text_add(&text, " AND account_user = ");
	lease_text_add_bytes(&text, user);
	lease_text_add(&text, " AND account_host = ");
	lease_text_add_bytes(&text, host);
	lease_text_add(&text, " ORDER BY name");
	return read_rows(c, &text, rows);
}

/* Read rows that a run has written and whose deadlines have come. */
lease_status
table_read_due(connection *c, uint64_t writer, int64_t due_us, size_t limit,
			   table_rows *rows)
{
	lease_text	text = {0};

	lease_text_add(&text, "SELECT " COLUMNS
				   " FROM dlock.lease_table WHERE writer = %" PRIu64
				   " AND deadline_us <= %" PRId64
				   " ORDER BY writer, deadline_us LIMIT %zu",
				   writer, due_us, limit);
	return read_rows(c, &text, rows);
}

/* Read rows that other runs have written, in the order of their keys after a given one. */
lease_status
table_read_foreign(connection *c, uint64_t writer, lease_bytes after_name,
				   uint32_t after_slot, size_t limit, table_rows *rows)
{
	lease_text	text = {0};

	lease_text_add(&text, "SELECT " COLUMNS
				   " FROM dlock.lease_table WHERE writer <> %" PRIu64
				   " AND (name > ", writer);
	lease_text_add_bytes(&text, after_name);
	lease_text_add(&text, " OR name = ");
	lease_text_add_bytes(&text, after_name);
	lease_text_add(&text, " AND slot > %" PRIu32
				   ") ORDER BY name, slot LIMIT %zu", after_slot, limit);
	return read_rows(c, &text, rows);
}

/* Visit the settings that have a value. */
lease_status
table_visit_settings(connection *c, table_setting_visitor visit)
{
	MYSQL_RES  *result;
	MYSQL_ROW	columns;
	lease_status status = query(c, &result,
								"SELECT name, value FROM dlock.settings");

	if (status != LEASE_STATUS_OK)
		return status;
	while ((columns = mysql_fetch_row(result)) != NULL)
		if (columns[0] != NULL && columns[1] != NULL)
			visit(columns[0], columns[1]);
	mysql_free_result(result);
	return LEASE_STATUS_OK;
}

/* ----------------------------------------------------------------
 * Writing: what the changes of each kind begin and end with
 * ----------------------------------------------------------------
 */

static const lease_frame frames[TABLE_CHANGES] = {
	/*
	 * Each row is looked up by its key, however many there are.  With a condition
	 * instead, the servers read all rows when it may concern most of them, even if told
	 * to use the index; then they wait for rows that are guarded.
	 */
	[TABLE_DELETE] = {
		"DELETE FROM dlock.lease_table USING JSON_TABLE('[", ",",
		"]', '$[*]' COLUMNS ("
		"name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',"
		"slot INT UNSIGNED PATH '$[1]')) AS gone"
		" STRAIGHT_JOIN dlock.lease_table FORCE INDEX (PRIMARY)"
		" ON lease_table.name = UNHEX(gone.name)"
		" AND lease_table.slot = gone.slot"
	},
	[TABLE_PUT] = {
		"INSERT INTO dlock.lease_table (" COLUMNS ") VALUES ", ",",
		" ON DUPLICATE KEY UPDATE owner = VALUES(owner),"
		"account_user = VALUES(account_user),"
		"account_host = VALUES(account_host),"
		"mode = VALUES(mode), kind = VALUES(kind),"
		"version = VALUES(version), token = VALUES(token),"
		"request = VALUES(request), ttl_us = VALUES(ttl_us),"
		"writes = VALUES(writes), writer = VALUES(writer),"
		"deadline_us = VALUES(deadline_us),"
		"connection_id = VALUES(connection_id),"
		"acquired_us = VALUES(acquired_us),"
		"expires_us = VALUES(expires_us)"
	},
	[TABLE_INSERT] = {
		"INSERT INTO dlock.lease_table (" COLUMNS ") VALUES ", ",", ""
	},
	[TABLE_TOUCH] = {
		"UPDATE dlock.lease_table FORCE INDEX (PRIMARY) SET guards = guards + 1"
		" WHERE slot = 0 AND name IN (", ",", ")"
	},
	/*
	 * A mark that is not what was read becomes NULL, which is an error.  (MySQL does not
	 * let an UPDATE join JSON_TABLE without a default database.)
	 */
	[TABLE_MARK] = {
		"INSERT INTO dlock.lease_mark (bucket, mark)"
		" SELECT bucket, mark FROM JSON_TABLE('[", ",",
		"]', '$[*]' COLUMNS ("
		"bucket SMALLINT UNSIGNED PATH '$[0]',"
		"was BIGINT UNSIGNED PATH '$[1]',"
		"mark BIGINT UNSIGNED PATH '$[2]')) AS raised"
		" ON DUPLICATE KEY UPDATE"
		" mark = IF(lease_mark.mark = raised.was, raised.mark, NULL)"
	},
	[TABLE_RAISE] = {
		"INSERT INTO dlock.lease_mark (bucket, mark) VALUES ", ",",
		" ON DUPLICATE KEY UPDATE mark = GREATEST(mark, VALUES(mark))"
	},
};

/* Begin to collect changes. */
void
table_begin(table_changes *changes, size_t most)
{
	for (size_t k = 0; k < TABLE_CHANGES; k++)
		changes->kinds[k].count = 0;
	changes->expected = 0;
	changes->most = most;
	changes->failed = false;
}

bool
table_is_empty(const table_changes *changes)
{
	for (size_t k = 0; k < TABLE_CHANGES; k++)
		if (changes->kinds[k].count > 0)
			return false;
	return true;
}

/* Get the statement that takes one more change of a kind. */
static lease_text *
begin_change(table_changes *changes, table_change kind)
{
	lease_text *t = lease_texts_next(&changes->kinds[kind], &frames[kind],
									 changes->most);

	changes->failed |= t->failed;
	return t;
}

/* Add that the row of a name in a slot is to be deleted. */
void
table_delete(table_changes *changes, lease_bytes name, uint32_t slot)
{
	lease_text *t = begin_change(changes, TABLE_DELETE);

	lease_text_put(t, "[\"", 2);
	lease_text_put_hex(t, name);
	lease_text_add(t, "\",%" PRIu32 "]", slot);
	changes->expected++;
}

static void
add_values(lease_text *t, const lease_row *row)
{
	const lease_bytes strings[] = {row->owner, row->user, row->host};

	lease_text_put(t, "(", 1);
	lease_text_add_bytes(t, row->name);
	lease_text_add(t, ",%" PRIu32, row->slot);
	for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
	{
		lease_text_put(t, ",", 1);
		lease_text_add_bytes(t, strings[i]);
	}
	lease_text_add(t, ",%d,%d,%" PRIu32 ",%" PRIu64 ",", (int) row->mode,
				   (int) row->kind, row->version, row->token);
	lease_text_add_bytes(t, row->request);
	lease_text_add(t, ",%" PRId64 ",%" PRIu64 ",%" PRIu64 ",%" PRId64
				   ",%" PRIu64 ",%" PRId64 ",%" PRId64 ")", row->ttl_us,
				   row->writes, row->writer, row->deadline_us,
				   row->connection_id, row->acquired_us, row->expires_us);
}

/* Add a row to be inserted or replaced; "replaces" says that there should be one. */
void
table_put(table_changes *changes, const lease_row *row, bool replaces)
{
	add_values(begin_change(changes, TABLE_PUT), row);
	changes->expected += 1 + replaces;
}

/* Add a row to be inserted: a conflict if there is one in its slot. */
void
table_insert(table_changes *changes, const lease_row *row)
{
	add_values(begin_change(changes, TABLE_INSERT), row);
}

/* Add that the row of a name in slot 0 is to be touched. */
void
table_touch(table_changes *changes, lease_bytes name)
{
	lease_text_add_bytes(begin_change(changes, TABLE_TOUCH), name);
}

/* Add that a mark is to be set, which was "from" when it was read. */
void
table_set_mark(table_changes *changes, uint32_t bucket, uint64_t from,
			   uint64_t to)
{
	lease_text_add(begin_change(changes, TABLE_MARK),
				   "[%" PRIu32 ",%" PRIu64 ",%" PRIu64 "]", bucket, from, to);
}

/* Add that a mark is to be raised, unless it is higher. */
void
table_raise_mark(table_changes *changes, uint32_t bucket, uint64_t to)
{
	lease_text_add(begin_change(changes, TABLE_RAISE),
				   "(%" PRIu32 ",%" PRIu64 ")", bucket, to);
}

/*
 * Execute the changes, in the transaction under way.  "as_expected" says afterwards
 * whether as many rows were deleted and put as should be.
 */
lease_status
table_execute(connection *c, table_changes *changes)
{
	uint64_t	affected = 0;

	if (changes->failed)
		return connection_no_memory(c);
	for (size_t k = 0; k < TABLE_CHANGES; k++)
	{
		lease_texts *statements = &changes->kinds[k];

		if (!lease_texts_end(statements, &frames[k]))
			return connection_no_memory(c);
		for (size_t i = 0; i < statements->count; i++)
		{
			lease_status status = connection_execute(c, &statements->texts[i]);

			if (status != LEASE_STATUS_OK)
				return status;
			if (k == TABLE_DELETE || k == TABLE_PUT)
				affected += mysql_affected_rows(c->mysql);
		}
	}
	changes->as_expected = affected == changes->expected;
	return LEASE_STATUS_OK;
}

/* ----------------------------------------------------------------
 * The journal
 * ----------------------------------------------------------------
 */

/*
 * Prepare the statement that appends a row, once: parsing and planning it costs the server
 * about as much as doing it.  False if that fails; the statement has the error.
 *
 * To find rows of other runs, the index is asked for the last row before ours and the
 * first one after: each takes one descent.  A search for any such row would go through
 * our own deleted ones while a snapshot keeps them from being purged; see
 * t/mysql/journal.pl.
 */
static bool
prepare_append(connection *c, uint64_t writer)
{
	char		sql[640];
	int			length = snprintf(sql, sizeof(sql),
								  "INSERT INTO dlock.journal (writer, number, changes)"
								  " SELECT %" PRIu64 ", ?, ? FROM dlock.journal_head"
								  " WHERE place = 0 AND writer = %" PRIu64
								  " AND " IS_WRITABLE
								  " AND (SELECT MAX(j.writer) FROM dlock.journal AS j"
								  " WHERE j.writer < %" PRIu64 ") IS NULL"
								  " AND (SELECT MIN(j.writer) FROM dlock.journal AS j"
								  " WHERE j.writer > %" PRIu64 ") IS NULL LOCK IN SHARE MODE",
								  writer, writer, writer, writer);

	return mysql_stmt_prepare(c->append, sql, (unsigned long) length) == 0;
}

/* A missing table makes the image wrong: the next take-over finds out which there are. */
static lease_status
edited_if_missing(connection *c, lease_status status)
{
	return status == LEASE_STATUS_FAILED && c->is_missing ?
		connection_edited(c) : status;
}

/* What the error of an append means.  The statement is prepared anew for the next. */
static lease_status
append_failed(connection *c)
{
	lease_status status = edited_if_missing(c, connection_append_failed(c));

	/* an append of ours that seemed to fail may have written this number */
	return status == LEASE_STATUS_CONFLICT &&
		strcmp(c->sqlstate, SQLSTATE_DUPLICATE) == 0 ? connection_edited(c) :
		status;
}

/* Give up: the server is read-only, or another run has written. */
static lease_status
may_not_append(connection *c)
{
	lease_status status = connection_look_refusing(c);

	return status == LEASE_STATUS_OK ? connection_edited(c) : status;
}

/* Append a row: fenced off if another run has written. */
static lease_status
append_row(connection *c, uint64_t writer, uint64_t row_number,
		   const lease_text *changes)
{
	MYSQL_BIND	binds[2] = {0};

	if (changes->failed)
		return connection_no_memory(c);
	if (c->mysql == NULL)
		return connection_closed(c);
	if (c->append == NULL)
	{
		c->append = mysql_stmt_init(c->mysql);
		if (c->append == NULL)
			return connection_no_memory(c);
		if (!prepare_append(c, writer))
			return append_failed(c);
	}
	binds[0].buffer_type = MYSQL_TYPE_LONGLONG;
	binds[0].buffer = &row_number;
	binds[0].is_unsigned = 1;
	binds[1].buffer_type = MYSQL_TYPE_STRING;
	binds[1].buffer = changes->data;
	binds[1].buffer_length = changes->length;
	if (mysql_stmt_bind_param(c->append, binds) != 0 ||
		mysql_stmt_execute(c->append) != 0)
		return append_failed(c);
	return mysql_stmt_affected_rows(c->append) == 1 ? LEASE_STATUS_OK :
		may_not_append(c);
}

/* Lock the head until the transaction ends: fenced off if it names another run. */
lease_status
table_check_head(connection *c, uint64_t writer)
{
	lease_status status = check_appender(c, APPENDER " AND " IS_WRITABLE
										 " LOCK IN SHARE MODE", writer);

	return status == LEASE_STATUS_FENCED ? may_not_append(c) :
		edited_if_missing(c, status);
}

/*
 * Append rows to the journal, numbered from "first_number" on: in the transaction under
 * way, or committed together.
 */
lease_status
table_append(connection *c, uint64_t writer, uint64_t first_number,
			 const journal_writer *journal)
{
	lease_status status = LEASE_STATUS_OK;
	bool		begins = journal->rows.count > 1 && !c->in_transaction;

	if (journal->failed)
		return connection_no_memory(c);
	if (begins)
		status = connection_begin(c);
	for (size_t i = 0; status == LEASE_STATUS_OK && i < journal->rows.count; i++)
		status = append_row(c, writer, first_number + i,
							&journal->rows.texts[i]);
	if (status == LEASE_STATUS_OK && begins)
		status = connection_commit(c);
	return status;
}

/* Execute a statement of the transaction, written by a format of printf(). */
static __attribute__((format(printf, 2, 3))) lease_status
execute(connection *c, const char *format,...)
{
	lease_text	text = {0};
	va_list		arguments;
	lease_status status;

	va_start(arguments, format);
	lease_text_add_list(&text, format, arguments);
	va_end(arguments);
	status = connection_execute(c, &text);
	lease_text_free(&text);
	return status;
}

/*
 * Delete the rows of a run up to a number, since they have been applied.  Clear
 * "as_expected" if they are not as many as "rows".
 */
lease_status
table_delete_journal(connection *c, uint64_t writer, uint64_t up_to,
					 uint64_t rows, bool *as_expected)
{
	lease_status status = execute(c, "DELETE FROM dlock.journal WHERE writer = %"
								  PRIu64 " AND number <= %" PRIu64, writer,
								  up_to);

	if (status == LEASE_STATUS_OK)
		*as_expected &= mysql_affected_rows(c->mysql) == rows;
	return status;
}

/*
 * Take over, in the transaction that table_read_state() has begun, and commit.  The
 * journal has been applied: it gets only what is carried forward.  All marks are raised to
 * a floor, unless that is 0.  From now on this run may append.
 */
lease_status
table_take(connection *c, uint64_t writer, const table_state *state,
		   uint64_t floor, uint64_t first_number, const journal_writer *carried)
{
	lease_status status = LEASE_STATUS_OK;

	if (state->has_rows)
		status = execute(c, "DELETE FROM dlock.journal");
	if (status == LEASE_STATUS_OK && state->has_journal)
		status = execute(c, "UPDATE dlock.journal_head SET writer = %" PRIu64
						 " WHERE place = 0", writer);
	if (status == LEASE_STATUS_OK && state->has_old_journal)
		status = execute(c, "UPDATE dlock.lease_journal SET leases = '',"
						 " changes = changes + 1, writer = %" PRIu64
						 " WHERE place = 0", writer);
	if (status == LEASE_STATUS_OK && floor > 0)
		status = execute(c, "UPDATE dlock.lease_mark SET mark ="
						 " GREATEST(mark, %" PRIu64 "), writer = %" PRIu64,
						 floor, writer);
	if (status == LEASE_STATUS_OK)
		status = table_append(c, writer, first_number, carried);
	return status == LEASE_STATUS_OK ? connection_commit(c) : status;
}
