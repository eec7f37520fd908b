/*
 * top.c
 *	  Subcommand top: leases, waiters and rates, again and again.
 *
 * It asks the server three questions every few seconds, and draws the answers.
 * The server sorts, and sends only the first TOP_LIMIT leases in the order
 * asked for.  Keys are read while an answer is awaited; those that need the
 * session wait for it.
 *
 * No text that users choose reaches the terminal except through safe_text().
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "inspect.h"

#include <curses.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ask.h"

#define TOP_LIMIT	1000
#define DELAY_LEAST_US	INT64_C(100000)
#define FILTER_SIZE	256
#define KEYS_SIZE	64
#define GAP			2

/* The counters of dlock.stats that are shown as rates. */
static const struct
{
	const char *column;
	const char *title;
}			rates[] = {
	{"acquired", "acquired"}, {"renewed", "renewed"}, {"released", "released"},
	{"refused", "refused"}, {"timed_out", "timed out"}, {"expired", "expired"},
	{"renewals_lost", "renewals lost"}, {"deadlocks", "deadlocks"}
};

#define RATES	(sizeof(rates) / sizeof(rates[0]))

static const char *const order_names[] = {"name", "owner", "age", "time left"};

/* A lease, as it is drawn. */
struct shown_lock
{
	struct lock lock;
	char		mode[16];
	char	   *safe_name;
	char	   *safe_owner;
	char	   *safe_who;
	int64_t		waiters;		/* how many wait for the name */
};

struct shown_waiter
{
	struct waiter waiter;
	char		mode[16];
	char	   *safe_name;
	char	   *safe_owner;
	char	   *safe_who;
	char	   *behind;			/* safe: whom it waits for */
};

static struct
{
	dlock_session *session;
	int64_t		timeout_us;
	int64_t		delay_us;

	enum lock_order order;
	bool		turned;
	char		filter[FILTER_SIZE];

	char	   *server;			/* safe: its kind, version and name */
	char		message[512];	/* safe: the result of the last key */
	char		error[512];		/* safe: why there was no answer the last time */
	struct shown_lock *locks;
	size_t		lock_count;
	struct shown_waiter *waiters;
	size_t		waiter_count;
	int64_t		held;
	int64_t		counted_at_us;	/* 0: never */
	int64_t		counts[RATES];
	double		rates[RATES];	/* negative: not known yet */

	size_t		selected;		/* a lease */
	bool		selects_first;	/* select the first of the next answer */
	size_t		first;			/* the first that is drawn */

	bool		is_over;
	int			keys[KEYS_SIZE];	/* read, and not yet done */
	size_t		key_count;
}			top;

/* ----------------------------------------------------------------- asking */

/* While an answer is awaited: keep keys for later, except q, which ends all. */
static bool
keep_keys(void)
{
	int			key;

	while ((key = getch()) != ERR)
	{
		if (key == 'q')
		{
			top.is_over = true;
			return false;
		}
		if (top.key_count < KEYS_SIZE)
			top.keys[top.key_count++] = key;
	}
	return true;
}

static void
set_text(char *where, size_t size, const char *text)
{
	char	   *safe = safe_text(text, strlen(text), NULL);

	snprintf(where, size, "%s", safe);
	free(safe);
}

static void
set_message(const char *text)
{
	set_text(top.message, sizeof(top.message), text);
}

static char *
safe_or_dash(const char *text, size_t length)
{
	return text ? safe_text(text, length, NULL) : safe_text("-", 1, NULL);
}

static void
forget_locks(void)
{
	for (size_t i = 0; i < top.lock_count; i++)
	{
		struct shown_lock *shown = &top.locks[i];

		free_lock(&shown->lock);
		free(shown->safe_name);
		free(shown->safe_owner);
		free(shown->safe_who);
	}
	free(top.locks);
	top.locks = NULL;
	top.lock_count = 0;
}

static void
forget_waiters(void)
{
	for (size_t i = 0; i < top.waiter_count; i++)
	{
		struct shown_waiter *shown = &top.waiters[i];

		free_waiter(&shown->waiter);
		free(shown->safe_name);
		free(shown->safe_owner);
		free(shown->safe_who);
		free(shown->behind);
	}
	free(top.waiters);
	top.waiters = NULL;
	top.waiter_count = 0;
}

static bool
is_same(const char *a, size_t a_length, const char *b, size_t b_length)
{
	return a && b && a_length == b_length && memcmp(a, b, a_length) == 0;
}

/* Take the leases from the answer; the selected one stays selected. */
static void
take_locks(void)
{
	size_t		count = dlock_session_rows(top.session);
	struct shown_lock *locks = get_memory(count * sizeof(*locks));
	struct lock *selected = top.selected < top.lock_count && !top.selects_first
		? &top.locks[top.selected].lock : NULL;
	size_t		now_selected = count > 0 && top.selected >= count ? count - 1 : top.selected;

	if (top.selects_first)
		now_selected = 0;
	top.selects_first = false;
	for (size_t i = 0; i < count; i++)
	{
		struct shown_lock *shown = &locks[i];
		struct lock *lock = &shown->lock;

		memset(shown, 0, sizeof(*shown));
		read_lock(top.session, i, lock);
		snprintf(shown->mode, sizeof(shown->mode), "%s", lock->mode ? lock->mode : "-");
		shown->safe_name = safe_or_dash(lock->name, lock->name_length);
		shown->safe_owner = safe_or_dash(lock->owner, lock->owner_length);
		shown->safe_who = safe_or_dash(lock->who, strlen(lock->who));
		if (selected && selected->token == lock->token &&
			is_same(selected->name, selected->name_length, lock->name, lock->name_length))
			now_selected = i;
	}
	forget_locks();
	top.locks = locks;
	top.lock_count = count;
	top.selected = now_selected;
}

/*
 * Whom a waiter waits for: the owners that hold the name, and those ahead in
 * line.
 */
static char *
behind_whom(const struct waiter *waiter, size_t place)
{
	char	   *text = NULL;
	size_t		size = 0;
	FILE	   *out = open_memstream(&text, &size);
	const char *separator = "";

	if (!out)
		end_with(STATUS_SYSTEM, "out of memory");
	for (size_t i = 0; i < top.lock_count; i++)
		if (is_same(top.locks[i].lock.name, top.locks[i].lock.name_length,
					waiter->name, waiter->name_length))
		{
			fprintf(out, "%s%s", separator, top.locks[i].safe_owner);
			separator = ", ";
		}
	if (waiter->position > 1)
		for (size_t i = 0; i < place; i++)
			if (top.waiters[i].waiter.position > 0 &&
				is_same(top.waiters[i].waiter.name, top.waiters[i].waiter.name_length,
						waiter->name, waiter->name_length))
			{
				fprintf(out, "%s%s", separator, top.waiters[i].safe_owner);
				separator = ", ";
			}
	/* of a lease that is not shown */
	if (!*separator)
		fprintf(out, "%s%s", waiter->blocked_by ? "#" : "-",
				waiter->blocked_by ? waiter->blocked_by : "");
	fclose(out);
	return text;
}

static void
take_waiters(void)
{
	forget_waiters();
	top.waiter_count = dlock_session_rows(top.session);
	top.waiters = get_memory(top.waiter_count * sizeof(*top.waiters));
	for (size_t i = 0; i < top.waiter_count; i++)
	{
		struct shown_waiter *shown = &top.waiters[i];
		struct waiter *waiter = &shown->waiter;

		memset(shown, 0, sizeof(*shown));
		read_waiter(top.session, i, waiter);
		snprintf(shown->mode, sizeof(shown->mode), "%s", waiter->mode ? waiter->mode : "-");
		shown->safe_name = safe_or_dash(waiter->name, waiter->name_length);
		shown->safe_owner = safe_or_dash(waiter->owner, waiter->owner_length);
		shown->safe_who = safe_or_dash(waiter->who, strlen(waiter->who));
		shown->behind = behind_whom(waiter, i);
		for (size_t j = 0; j < top.lock_count; j++)
			if (is_same(top.locks[j].lock.name, top.locks[j].lock.name_length,
						waiter->name, waiter->name_length))
				top.locks[j].waiters++;
	}
}

static void
take_counts(void)
{
	int64_t		now_us = dlock_now_us();
	double		seconds = (double) (now_us - top.counted_at_us) / 1e6;

	for (size_t i = 0; i < RATES; i++)
	{
		int64_t		count = number_of(top.session, 0, i);

		/* counters restart with the server, and when an operator resets them */
		top.rates[i] = top.counted_at_us > 0 && seconds > 0 && count >= top.counts[i]
			? (double) (count - top.counts[i]) / seconds : -1;
		top.counts[i] = count;
	}
	top.held = number_of(top.session, 0, RATES);
	top.counted_at_us = now_us;
}

/* Look at the server.  False if there is no answer: "error" says why. */
static bool
look_at_server(void)
{
	char		pattern[FILTER_SIZE + 2];
	char		sql[512] = "SELECT ";
	bool		answered;

	/* look for the typed text anywhere in the name */
	snprintf(pattern, sizeof(pattern), "*%s*", top.filter);
	for (size_t i = 0; i < RATES; i++)
		snprintf(sql + strlen(sql), sizeof(sql) - strlen(sql), "%s, ", rates[i].column);
	snprintf(sql + strlen(sql), sizeof(sql) - strlen(sql), "held FROM dlock.stats");

	answered = look_at_locks(top.session, *top.filter ? pattern : NULL, top.order,
							 top.turned, TOP_LIMIT, top.timeout_us);
	if (answered)
		take_locks();
	answered = answered && look_at_waiters(top.session, top.timeout_us);
	if (answered)
		take_waiters();
	answered = answered && ask(top.session, sql, NULL, 0, top.timeout_us);
	*top.error = '\0';
	if (answered)
		take_counts();
	else if (!top.is_over)
		set_text(top.error, sizeof(top.error), dlock_session_error(top.session)->message);
	return answered;
}

/* Find out what server it is, for the first line. */
static bool
ask_what_server(void)
{
	bool		postgres = dlock_session_engine(top.session) == DLOCK_POSTGRESQL;
	const char *text;

	if (!ask(top.session, postgres
			 ? "SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1) "
			 "|| ', database ' || current_database()"
			 : "SELECT CONCAT(IF(VERSION() LIKE '%MariaDB%', 'MariaDB ', 'MySQL '), "
			 "SUBSTRING_INDEX(VERSION(), '-', 1), ', server ', @@hostname)",
			 NULL, 0, top.timeout_us))
		return false;
	text = value_of(top.session, 0, 0);
	top.server = safe_or_dash(text, text ? strlen(text) : 0);
	return true;
}

/* ---------------------------------------------------------------- drawing */

/* Draw safe text in so many columns, cut if need be. */
static void
draw(int y, int x, int width, bool right, const char *safe)
{
	size_t		length;

	if (width <= 0 || y >= LINES || x >= COLS)
		return;
	if (width > COLS - x)
		width = COLS - x;
	length = cut_safe(safe, (size_t) width);
	mvaddnstr(y, right ? x + width - (int) safe_width(safe, length) : x, safe, (int) length);
}

/*
 * Share out the rest of the line among columns of text: each gets what it
 * needs; if that is too much, the largest ones shrink.  The first, the name,
 * gets a third of the line in any case; what then does not fit is cut off on
 * the right.
 */
static void
share(int width, const int *needed, int *given, int count)
{
	int			sum = 0;

	for (int i = 0; i < count; i++)
		sum += given[i] = needed[i];
	while (sum > width && sum > 0)
	{
		int			largest = 0;

		for (int i = 1; i < count; i++)
			if (given[i] > given[largest])
				largest = i;
		if (given[largest] == 0)
			break;
		given[largest]--;
		sum--;
	}
	if (given[0] < COLS / 3)
		given[0] = needed[0] < COLS / 3 ? needed[0] : COLS / 3;
}

static void
need(int *needed, const char *safe)
{
	int			width = (int) safe_width(safe, strlen(safe));

	if (width > *needed)
		*needed = width;
}

/* The upper part: leases, on "height" lines from "y" on, headings included. */
static void
draw_locks(int y, int height)
{
	/* mode, holds, held, left, guarded, waiters, and the gaps of all nine columns */
	static const int fixed = 9 + 5 + 6 + 7 + 1 + 4 + 8 * GAP;
	int			needed[3] = {4, 5, 3};	/* name, owner, who */
	int			given[3];
	int			x;

	if (height < 2)
		return;
	if (top.selected < top.first)
		top.first = top.selected;
	if (top.selected >= top.first + (size_t) height - 1)
		top.first = top.selected - ((size_t) height - 1) + 1;
	for (size_t i = top.first; i < top.lock_count && i < top.first + (size_t) height - 1; i++)
	{
		need(&needed[0], top.locks[i].safe_name);
		need(&needed[1], top.locks[i].safe_owner);
		need(&needed[2], top.locks[i].safe_who);
	}
	share(COLS - fixed, needed, given, 3);

	for (int line = 0; line < height; line++)
	{
		size_t		i = top.first + (size_t) line - 1;
		const struct shown_lock *shown = line > 0 && i < top.lock_count ? &top.locks[i] : NULL;
		char		text[SHORT_TIME_SIZE];
		const char *left;

		if (line > 0 && !shown)
			break;
		if (line == 0)
			attron(A_REVERSE);
		else if (i == top.selected)
			attron(A_BOLD | A_STANDOUT);
		mvhline(y + line, 0, ' ', COLS);
		x = 0;
		draw(y + line, x, given[0], false, shown ? shown->safe_name : "NAME");
		x += given[0] + GAP;
		draw(y + line, x, given[1], false, shown ? shown->safe_owner : "OWNER");
		x += given[1] + GAP;
		draw(y + line, x, 9, false, shown ? shown->mode : "MODE");
		x += 9 + GAP;
		snprintf(text, sizeof(text), "%" PRId64, shown ? shown->lock.holds : 0);
		draw(y + line, x, 5, true, shown ? text : "HOLDS");
		x += 5 + GAP;
		draw(y + line, x, 6, true, shown ? short_time(shown->lock.held_for, text) : "HELD");
		x += 6 + GAP;
		left = shown ? time_left(&shown->lock, text) : "LEFT";
		draw(y + line, x, 7, true, left);
		x += 7 + GAP;
		draw(y + line, x, 1, false, !shown ? "G" : shown->lock.guarded > 0 ? "g" : " ");
		x += 1 + GAP;
		snprintf(text, sizeof(text), "%" PRId64, shown ? shown->waiters : 0);
		draw(y + line, x, 4, true, !shown ? "WAIT" : shown->waiters > 0 ? text : "");
		x += 4 + GAP;
		draw(y + line, x, given[2], false, shown ? shown->safe_who : "WHO");
		attroff(A_REVERSE | A_BOLD | A_STANDOUT);
	}
}

/* The lower part: waiters. */
static void
draw_waiters(int y, int height)
{
	/* position, mode, waited, and the gaps of all seven columns */
	static const int fixed = 3 + 9 + 6 + 6 * GAP;
	int			needed[4] = {7, 5, 3, 7};	/* name, owner, who, behind */
	int			given[4];
	size_t		count = height > 0 ? (size_t) height - 1 : 0;

	if (height < 2)
		return;
	if (count > top.waiter_count)
		count = top.waiter_count;
	for (size_t i = 0; i < count; i++)
	{
		need(&needed[0], top.waiters[i].safe_name);
		need(&needed[1], top.waiters[i].safe_owner);
		need(&needed[2], top.waiters[i].safe_who);
		need(&needed[3], top.waiters[i].behind);
	}
	share(COLS - fixed, needed, given, 4);
	for (int line = 0; line <= (int) count; line++)
	{
		const struct shown_waiter *shown = line > 0 ? &top.waiters[line - 1] : NULL;
		char		text[SHORT_TIME_SIZE];
		int			x = 0;

		if (line == 0)
			attron(A_REVERSE);
		mvhline(y + line, 0, ' ', COLS);
		draw(y + line, x, given[0], false, shown ? shown->safe_name : "WAITING");
		x += given[0] + GAP;
		snprintf(text, sizeof(text), "%" PRId64, shown ? shown->waiter.position : 0);
		draw(y + line, x, 3, true, !shown ? "POS" : shown->waiter.position > 0 ? text : "-");
		x += 3 + GAP;
		draw(y + line, x, given[1], false, shown ? shown->safe_owner : "OWNER");
		x += given[1] + GAP;
		draw(y + line, x, 9, false, shown ? shown->mode : "MODE");
		x += 9 + GAP;
		draw(y + line, x, 6, true, shown ? short_time(shown->waiter.waited, text) : "WAITED");
		x += 6 + GAP;
		draw(y + line, x, given[3], false, shown ? shown->behind : "FOR");
		x += given[3] + GAP;
		draw(y + line, x, given[2], false, shown ? shown->safe_who : "WHO");
		attroff(A_REVERSE);
	}
}

static void
add_rates(char *line, size_t size, size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
	{
		size_t		length = strlen(line);

		if (top.rates[i] < 0)
			snprintf(line + length, size - length, "%s%s -", i > first ? ", " : " ",
					 rates[i].title);
		else
			snprintf(line + length, size - length, "%s%s %.1f", i > first ? ", " : " ",
					 rates[i].title, top.rates[i]);
	}
}

static void
draw_all(void)
{
	char		line[512];
	char		clock[16];
	char		delay[SHORT_TIME_SIZE];
	time_t		now = time(NULL);
	struct tm	broken_down;
	int			for_waiters;

	erase();
	localtime_r(&now, &broken_down);
	strftime(clock, sizeof(clock), "%H:%M:%S", &broken_down);
	snprintf(line, sizeof(line), "dlock top - %s - %s, every %s", top.server, clock,
			 short_time((double) top.delay_us / 1e6, delay));
	draw(0, 0, COLS, false, line);
	snprintf(line, sizeof(line), "%" PRId64 " held, %zu waiting; a second:", top.held,
			 top.waiter_count);
	add_rates(line, sizeof(line), 0, RATES / 2);
	draw(1, 0, COLS, false, line);
	*line = '\0';
	add_rates(line, sizeof(line), RATES / 2, RATES);
	snprintf(line + strlen(line), sizeof(line) - strlen(line), "; by %s%s",
			 order_names[top.order], top.turned ? ", turned" : "");
	if (*top.filter)
	{
		char	   *safe = safe_text(top.filter, strlen(top.filter), NULL);

		snprintf(line + strlen(line), sizeof(line) - strlen(line), ", names with \"%s\"", safe);
		free(safe);
	}
	if (top.lock_count == TOP_LIMIT)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), ", the first %d", TOP_LIMIT);
	draw(2, 0, COLS, false, line);

	for_waiters = top.waiter_count > 0 ? (LINES - 4) / 3 : 0;
	if (for_waiters > (int) top.waiter_count + 1)
		for_waiters = (int) top.waiter_count + 1;
	draw_locks(3, LINES - 4 - for_waiters);
	draw_waiters(LINES - 1 - for_waiters, for_waiters);
	if (*top.error || *top.message)
	{
		attron(A_BOLD);
		draw(LINES - 1, 0, COLS, false, *top.error ? top.error : top.message);
		attroff(A_BOLD);
	}
	else
		draw(LINES - 1, 0, COLS, false,
			 "s sort  S turn  / filter  up, down choose  f force release  space look  q quit");
	refresh();
}

/* ------------------------------------------------------------------- keys */

/* The next key, waiting for it until then; ERR: none came. */
static int
next_key(int64_t until_us)
{
	struct pollfd file = {STDIN_FILENO, POLLIN, 0};
	int			key;

	if (top.key_count > 0)
	{
		key = top.keys[0];
		memmove(top.keys, top.keys + 1, --top.key_count * sizeof(top.keys[0]));
		return key;
	}
	if ((key = getch()) != ERR)
		return key;
	/* a signal that the window has another size ends poll() */
	if (poll(&file, 1, dlock_timeout_ms(until_us)) > 0 && (file.revents & POLLIN) == 0)
		top.is_over = true;		/* the terminal is gone */
	return getch();
}

/* Read a line of text at the bottom; false if the user gives it up. */
static bool
read_line(const char *prompt, char *text, size_t size)
{
	char		typed[FILTER_SIZE] = "";
	size_t		length = 0;

	for (;;)
	{
		char	   *safe = safe_text(typed, length, NULL);
		char		line[FILTER_SIZE * 4 + 32];
		int			key;

		snprintf(line, sizeof(line), "%s%s", prompt, safe);
		free(safe);
		move(LINES - 1, 0);
		clrtoeol();
		draw(LINES - 1, 0, COLS, false, line);
		curs_set(1);
		refresh();
		key = next_key(DLOCK_NEVER);
		curs_set(0);
		if (top.is_over || key == 27)
			return false;
		if (key == '\n' || key == '\r' || key == KEY_ENTER)
			break;
		if (key == KEY_BACKSPACE || key == 127 || key == 8)
		{
			/* a character, with all its bytes */
			while (length > 0 && ((unsigned char) typed[--length] & 0xc0) == 0x80)
				;
			typed[length] = '\0';
		}
		else if (key >= ' ' && key < 256 && length + 1 < sizeof(typed))
		{
			typed[length++] = (char) key;
			typed[length] = '\0';
		}
	}
	snprintf(text, size, "%s", typed);
	return true;
}

/* Evict the holder in the selected line, if the user says so. */
static void
force_release(void)
{
	struct shown_lock *shown;
	dlock_arg	args[2];
	char		question[1536];
	int			key;

	if (top.selected >= top.lock_count)
		return;
	shown = &top.locks[top.selected];
	/* which an argument ends at: it would name another lease */
	if (memchr(shown->lock.name, '\0', shown->lock.name_length) ||
		memchr(shown->lock.owner, '\0', shown->lock.owner_length))
	{
		set_message("a name or owner with a byte 0: call dlock_force_release() in SQL");
		return;
	}
	snprintf(question, sizeof(question), "force the release of \"%s\", held by \"%s\"? y or n",
			 shown->safe_name, shown->safe_owner);
	move(LINES - 1, 0);
	clrtoeol();
	attron(A_BOLD);
	draw(LINES - 1, 0, COLS, false, question);
	attroff(A_BOLD);
	refresh();
	/* forget keys typed before the question: they are no answer */
	top.key_count = 0;
	do
		key = next_key(DLOCK_NEVER);
	while ((key == ERR || key == KEY_RESIZE) && !top.is_over);
	if (key != 'y')
	{
		set_message("not forced");
		return;
	}
	args[0] = DLOCK_TEXT(shown->lock.name);
	args[1] = DLOCK_TEXT(shown->lock.owner);
	if (!call(top.session, "dlock_force_release", args, 2, top.timeout_us))
		set_message(dlock_session_error(top.session)->message);
	else
	{
		char		text[64];

		snprintf(text, sizeof(text), "%" PRId64 " evicted",
				 dlock_session_integer(top.session));
		set_message(text);
	}
}

/* Do what a key says.  Returns whether to look at the server for it. */
static bool
do_key(int key)
{
	size_t		page = LINES > 8 ? (size_t) LINES - 8 : 1;

	switch (key)
	{
		case 'q':
			top.is_over = true;
			return false;
		case 's':
			top.order = top.order == ORDER_LEFT ? ORDER_NAME : top.order + 1;
			top.selects_first = true;
			return true;
		case 'S':
			top.turned = !top.turned;
			top.selects_first = true;
			return true;
		case '/':
			if (!read_line("names with: ", top.filter, sizeof(top.filter)))
				return false;
			top.selects_first = true;
			return true;
		case 'f':
			force_release();
			return true;
		case ' ':
			return true;
		case KEY_UP:
		case 'k':
			top.selected -= top.selected > 0;
			return false;
		case KEY_DOWN:
		case 'j':
			top.selected += top.selected + 1 < top.lock_count;
			return false;
		case KEY_PPAGE:
			top.selected -= top.selected > page ? page : top.selected;
			return false;
		case KEY_NPAGE:
			top.selected += page;
			if (top.selected >= top.lock_count)
				top.selected = top.lock_count > 0 ? top.lock_count - 1 : 0;
			return false;
		default:
			return false;
	}
}

int
top_command(int argc, char **argv)
{
	const char *url = NULL;
	const struct option_spec specs[] = {
		URL_OPTION(&url),
		{"delay", 'd', OPTION_DURATION, &top.delay_us, "TIME", "how often to look; default 2 s"},
		TIMEOUT_OPTION(&top.timeout_us),
		{0}
	};
	SCREEN	   *screen;
	int64_t		look_at_us;

	top.timeout_us = TIMEOUT_DEFAULT_US;
	top.delay_us = 2000000;
	top.order = ORDER_AGE;
	parse_arguments(argc, argv, specs,
					"top [OPTION]...\n\n"
					"Show leases, waiters and rates, again and again.  Keys: s sort, S turn the\n"
					"order, / filter, up and down choose, f force a release, space look, q quit.",
					NULL, 0, 0);
	if (top.delay_us < DELAY_LEAST_US)
		end_with(STATUS_USAGE, "--delay: not more often than every 100ms");
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		end_with(STATUS_USAGE, "top needs a terminal; use ls, waiters and stats");
	top.session = open_session(url);
	/* an error at the start is printed as a line, not on a screen */
	if (!connect_to(top.session, top.timeout_us) || !ask_what_server() || !look_at_server())
		return fail(top.session);

	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		end_with(STATUS_USAGE, "the terminal cannot show this: see TERM");
	cbreak();
	noecho();
	nodelay(stdscr, TRUE);
	keypad(stdscr, TRUE);
	set_escdelay(50);
	curs_set(0);
	ask_watch(STDIN_FILENO, keep_keys);
	look_at_us = dlock_now_us() + top.delay_us;
	while (!top.is_over)
	{
		int			key;
		bool		look = false;

		draw_all();
		key = next_key(look_at_us);
		if (key != ERR && key != KEY_RESIZE)
		{
			*top.message = '\0';
			look = do_key(key);
		}
		if (!top.is_over && (look || dlock_now_us() >= look_at_us))
		{
			look_at_server();
			look_at_us = dlock_now_us() + top.delay_us;
		}
	}
	ask_watch(-1, NULL);
	endwin();
	delscreen(screen);
	forget_locks();
	forget_waiters();
	free(top.server);
	return finish(top.session, STATUS_OK);
}
