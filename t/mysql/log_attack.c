/*
 * log_attack.c
 *	  Programs that use log/ on a real server, without a library of loadable functions.
 *
 *	log_attack SOCKET cases
 *		what each way of failing is answered
 *	log_attack SOCKET write JOURNAL SEED
 *		append until SIGTERM, whatever happens to the connection or the server
 *	log_attack SOCKET check JOURNAL...
 *		compare the log with what its writers have noted
 *
 * A writer makes random changes, carries and cleans, and keeps its image, plainly
 * (log_fold.h).  Now and then it compares that with the fold of the table.  It notes in its
 * journal each row before it is sent, and each batch when it is told to be durable.  So the
 * journals of all writers have all rows that ever were in the log, and the one who checks
 * can put them in their order: each says who wrote the one before.
 *
 * The macros of clean.c are small here, so that much is carried and deleted.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "log_fold.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define ROOM		32			/* rows of a batch */
#define PATIENCE_S	600			/* for a server that is away */
#define PENDING_MOST	100
#define AGE_US		((int64_t) CLEAN_AGE_US)

static const char *server_socket;
static volatile sig_atomic_t is_over;
static volatile int wire = -1;	/* the socket to be cut */

static int64_t
now_us(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static void
pause_us(long us)
{
	struct timespec time = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&time, NULL);
}

/* ----------------------------------------------------------------
 * Connections
 * ----------------------------------------------------------------
 */

static void
disconnect(log_connection *c)
{
	log_disconnected(c);
	if (c->mysql != NULL)
		mysql_close(c->mysql);
	c->mysql = NULL;
}

static void
connect_to_server(log_connection *c)
{
	static const char *const settings[] = {
		"SET SESSION sql_mode = 'STRICT_ALL_TABLES'",
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		"SET SESSION character_set_client = latin1, character_set_connection = latin1",
		"SET SESSION innodb_lock_wait_timeout = 1, lock_wait_timeout = 1",
	};
	int64_t		end_us = now_us(CLOCK_MONOTONIC) + PATIENCE_S * INT64_C(1000000);

	for (;;)
	{
		unsigned int timeout = 30;
		bool		ready;

		disconnect(c);
		c->mysql = mysql_init(NULL);
		if (c->mysql == NULL)
			fail("out of memory");
		mysql_options(c->mysql, MYSQL_OPT_READ_TIMEOUT, &timeout);
		ready = mysql_real_connect(c->mysql, NULL, "root", NULL, NULL, 0,
								   server_socket, 0) != NULL;
		for (size_t i = 0; ready && i < sizeof(settings) / sizeof(settings[0]); i++)
			ready = mysql_query(c->mysql, settings[i]) == 0;
		if (ready)
			return;
		if (now_us(CLOCK_MONOTONIC) > end_us)
			fail("could not connect: %s", mysql_error(c->mysql));
		pause_us(20000);
	}
}

static void
sql(log_connection *c, const char *statement)
{
	if (mysql_query(c->mysql, statement) != 0)
		fail("%s: %s", statement, mysql_error(c->mysql));
	mysql_free_result(mysql_store_result(c->mysql));
}

/* Load the log, and be another run. */
static log_result
load(log_connection *c, writer *w, uint64_t last)
{
	log_result	result;

	do
	{
		fold_clear(&w->image);
		result = log_load(c, &w->position, last, fold_visit, &w->image);
	} while (result == LOG_GONE);
	w->me = chance() << 8 | 1;
	return result;
}

/* ----------------------------------------------------------------
 * A writer
 * ----------------------------------------------------------------
 */

static int	journal;
static writer self;
static fold before;
static log_connection own;
static log_connection other;
static log_cleaning cleaning;
static bool taken_over;
static uint64_t pending[PENDING_MOST];	/* batches that are visible */
static size_t npending;
static uint64_t counts[LOG_NO_MEMORY + 1];	/* of the results of appends */
static uint64_t loads;
static uint64_t holes;
static uint64_t compared;
static uint64_t carried;
static uint64_t cleaned;

typedef struct note
{
	char		what;			/* 'S': is sent, with the row behind it; 'A': is durable */
	bool		is_first;		/* of its batch */
	uint32_t	length;
	uint64_t	number;
	uint64_t	writer;
} note;

/* All of it at once, so that whoever kills us leaves all of it or nothing. */
static void
write_note(char what, bool is_first, uint64_t number, const void *data, size_t length)
{
	static char memory[sizeof(note) + LOG_ROW_MOST];
	note		n;

	memset(&n, 0, sizeof(n));
	n.what = what;
	n.is_first = is_first;
	n.length = (uint32_t) length;
	n.number = number;
	n.writer = self.me;
	memcpy(memory, &n, sizeof(n));
	if (length > 0)
		memcpy(memory + sizeof(n), data, length);
	if (write(journal, memory, sizeof(n) + length) != (ssize_t) (sizeof(n) + length))
		fail("could not write the journal");
}

static void
on_term(int number)
{
	is_over = 1;
}

static void
on_alarm(int number)
{
	if (wire >= 0)
		shutdown(wire, SHUT_RDWR);
}

static void
reload(void)
{
	log_result	result;

	while ((result = load(&own, &self, UINT64_MAX)) == LOG_LOST || result == LOG_HOLE)
		if (result == LOG_LOST)
			connect_to_server(&own);
	if (result != LOG_OK)
		fail("a load was answered %d: %s", result, own.error);
	loads++;
	npending = 0;
	taken_over = false;
	self.server = self.me;
}

/* Throw the batch away, and apply the rows of others. */
static void
follow(void)
{
	uint64_t	counter = self.image.counter;
	int64_t		end_us = now_us(CLOCK_MONOTONIC) + PATIENCE_S * INT64_C(1000000);
	log_result	result;

	fold_copy(&self.image, &before);
	self.image.counter = counter;
	for (;;)
	{
		result = log_follow(&own, &self.position, fold_visit, &self.image);
		if (result == LOG_LOST)
			connect_to_server(&own);
		/* a node of a cluster may show a row before the one that it follows */
		else if (result == LOG_HOLE && now_us(CLOCK_MONOTONIC) < end_us)
		{
			holes++;
			pause_us(1000);
		}
		else
			break;
	}
	if (result == LOG_GONE)
		reload();
	else if (result != LOG_OK)
		fail("a look at the tail was answered %d: %s", result, own.error);
}

/* Append, and maybe lose the connection meanwhile. */
static log_result
append(void)
{
	struct itimerval timer = {{0, 0}, {0, 0}};
	log_result	result;

	if (one_in(30))
	{
		wire = (int) own.mysql->net.fd;
		timer.it_value.tv_usec = 1 + (long) below(3000);
		setitimer(ITIMER_REAL, &timer, NULL);
	}
	result = log_append(&own, &self.position, self.me, &self.batch, NULL, 0);
	timer.it_value.tv_usec = 0;
	setitimer(ITIMER_REAL, &timer, NULL);
	wire = -1;
	counts[result]++;
	return result;
}

/* The batch is in the log. */
static void
passed(bool durable)
{
	uint64_t	number = self.position.number + 1;

	self.image.bytes += log_batch_bytes(&self.batch);
	log_passed(&self.position, self.me, &self.batch);
	taken_over = true;
	if (!durable)
	{
		if (npending == PENDING_MOST)
			fail("too many batches are pending");
		pending[npending++] = number;
		return;
	}
	while (npending > 0)
		write_note('A', true, pending[--npending], NULL, 0);
	write_note('A', true, number, NULL, 0);
}

/* Compare the image with the fold of the table, as far as that is known here. */
static void
compare(void)
{
	static writer loader;
	const char *differ;

	if (other.mysql == NULL)
		connect_to_server(&other);
	fold_clear(&loader.image);
	switch (log_load(&other, &loader.position, self.position.number, fold_visit,
					 &loader.image))
	{
		case LOG_OK:
			if (loader.position.number != self.position.number)
				return;			/* rows were lost in a crash */
			break;
		case LOG_LOST:
			disconnect(&other);
			return;
		case LOG_DAMAGED:
			fail("a comparison finds: %s", other.error);
		default:
			return;				/* rows were deleted */
	}
	if (loader.position.writer != self.position.writer)
		return;
	differ = fold_differ(&self.image, &loader.image);
	if (differ != NULL)
		fail("at row %" PRIu64 " the image is not the fold of the table: %s",
			 self.position.number, differ);
	compared++;
}

static void
clean(void)
{
	uint64_t	first = cleaning.first;

	if (other.mysql == NULL)
		connect_to_server(&other);
	if (log_clean(&other, &cleaning, &self.position, now_us(CLOCK_MONOTONIC)) == LOG_LOST)
		disconnect(&other);
	cleaned += first > 0 ? cleaning.first - first : 0;
}

/* Say whether the last row is now this run's. */
static bool
write_batch(void)
{
	log_entry	take_over = {.kind = LOG_TAKE_OVER};
	size_t		many = one_in(50) ? 300 : below(5);
	size_t		bytes;

	fold_copy(&before, &self.image);
	log_begin(&self.batch, now_us(CLOCK_REALTIME));
	if (!taken_over)
	{
		self.image.counter += LEASE_TOKENS_PER_SECOND;
		writer_add(&self, &take_over);
	}
	for (size_t n = 0; n < many && add_any(&self); n++)
		;
	bytes = log_batch_bytes(&self.batch);
	carry(&self, log_carry_most(log_bytes(&self), live_bytes(&self), &self.batch));
	carried += log_batch_bytes(&self.batch) - bytes;
	seal(&self);
	for (size_t i = 0; i < self.batch.count; i++)
		write_note('S', i == 0, self.position.number + 1 + i, self.batch.slots[i].data,
				   self.batch.slots[i].draft.length);
	for (;;)
	{
		switch (append())
		{
			case LOG_APPENDED:
				passed(true);
				return true;
			case LOG_FOUND:
				passed(false);
				return true;
			case LOG_OTHERS:
				follow();
				return false;
			case LOG_GONE:
				reload();
				return false;
			case LOG_NOTHING:
				break;
			case LOG_LOST:
				connect_to_server(&own);
				break;
			default:
				fail("an append was answered otherwise: %s", own.error);
		}
	}
}

static int
write_until_told(const char *path, const char *seed)
{
	static log_slot slots[ROOM];
	struct sigaction action = {.sa_flags = SA_RESTART};

	action.sa_handler = on_term;
	sigaction(SIGTERM, &action, NULL);
	action.sa_handler = on_alarm;
	sigaction(SIGALRM, &action, NULL);
	journal = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
	if (journal < 0)
		fail("could not open %s", path);
	chance_state = (strtoull(seed, NULL, 10) << 20 ^ (uint64_t) now_us(CLOCK_REALTIME) ^
					(uint64_t) getpid() << 40) | 1;
	self.batch = (log_batch) {.slots = slots,.room = ROOM};
	self.batch.row_most = one_in(2) ? 0 : LOG_HEADER + LOG_ENTRY_MOST;
	self.leases_most = 60;
	connect_to_server(&own);
	reload();
	while (!is_over)
	{
		bool		is_known = write_batch();

		if (is_known && one_in(30))
			compare();
		if (is_known && npending == 0 && one_in(20))
			clean();
		if (one_in(200))
			pause_us((long) below(20000));
	}
	disconnect(&own);
	disconnect(&other);
	printf("appended %" PRIu64 " found %" PRIu64 " nothing %" PRIu64 " others %" PRIu64
		   " gone %" PRIu64 " lost %" PRIu64 " loads %" PRIu64 " compared %" PRIu64
		   " carried %" PRIu64 " cleaned %" PRIu64 " holes %" PRIu64 "\n",
		   counts[LOG_APPENDED], counts[LOG_FOUND], counts[LOG_NOTHING],
		   counts[LOG_OTHERS], counts[LOG_GONE], counts[LOG_LOST], loads, compared,
		   carried, cleaned, holes);
	return 0;
}

/* ----------------------------------------------------------------
 * Who checks
 * ----------------------------------------------------------------
 */

typedef struct sent
{
	note		note;
	const unsigned char *data;
	size_t		order;			/* of all */
} sent;

static sent *sents;
static size_t nsents;
static sent *acks;
static size_t nacks;

static void
keep(sent **list, size_t *count, const sent *s)
{
	static size_t rooms[2];
	size_t	   *room = &rooms[list == &acks];

	if (*count == *room)
	{
		*room = *room * 2 + 1000;
		*list = get_memory(*list, *room * sizeof(sent));
	}
	(*list)[(*count)++] = *s;
}

static int
compare_sents(const void *a, const void *b)
{
	const note *one = &((const sent *) a)->note;
	const note *two = &((const sent *) b)->note;

	if (one->number != two->number)
		return one->number < two->number ? -1 : 1;
	return one->writer < two->writer ? -1 : one->writer > two->writer;
}

static int
compare_orders(const void *a, const void *b)
{
	int			result = compare_sents(a, b);

	return result != 0 ? result :
		((const sent *) a)->order < ((const sent *) b)->order ? -1 : 1;
}

/*
 * Of what one run has sent with one number keep the last.  When it sent that, it knew that
 * an earlier batch had not taken place; so that one had begun with another number.
 */
static void
keep_last(void)
{
	size_t		kept = 0;

	qsort(sents, nsents, sizeof(sent), compare_orders);
	for (size_t i = 0; i < nsents; i++)
	{
		sent	   *s = &sents[i];
		sent	   *old = &sents[kept == 0 ? 0 : kept - 1];

		if (kept == 0 || compare_sents(old, s) != 0)
			sents[kept++] = *s;
		else if (old->note.is_first && s->note.is_first)
			fail("one run has sent two batches for row %" PRIu64, s->note.number);
		else
			*old = *s;
	}
	nsents = kept;
}

static void
read_journal(const char *path)
{
	int			file = open(path, O_RDONLY);
	off_t		size = file < 0 ? 0 : lseek(file, 0, SEEK_END);
	char	   *data;
	off_t		at = 0;

	if (file < 0)
		fail("could not open %s", path);
	data = get_memory(NULL, (size_t) size + 1);
	if (pread(file, data, (size_t) size, 0) != size)
		fail("could not read %s", path);
	close(file);
	while (at + (off_t) sizeof(note) <= size)
	{
		sent		s;

		memcpy(&s.note, data + at, sizeof(note));
		at += (off_t) sizeof(note);
		s.data = (unsigned char *) data + at;
		s.order = nsents;
		at += s.note.length;
		if (s.note.what == 'S')
			keep(&sents, &nsents, &s);
		else
			keep(&acks, &nacks, &s);
	}
	if (at != size)
		fail("%s is cut off", path);
}

/* Find what a writer has sent with a number. */
static const sent *
find_sent(uint64_t number, uint64_t writer)
{
	sent		key = {.note = {.number = number,.writer = writer}};

	return bsearch(&key, sents, nsents, sizeof(sent), compare_sents);
}

static int
check(int njournals, char **journals)
{
	static writer loader;
	static fold all;
	log_connection c = {0};
	uint64_t   *writers;
	uint64_t	last;
	uint64_t	highest = 0;
	const char *differ;
	log_result	result;

	for (int i = 0; i < njournals; i++)
		read_journal(journals[i]);
	keep_last();
	connect_to_server(&c);
	result = load(&c, &loader, UINT64_MAX);
	if (result != LOG_OK)
		fail("the load was answered %d: %s", result, c.error);
	last = loader.position.number;

	/* from the last row back */
	writers = get_memory(NULL, (last + 1) * sizeof(uint64_t));
	writers[last] = loader.position.writer;
	for (uint64_t n = last; n > 1; n--)
	{
		const sent *s = find_sent(n, writers[n]);
		log_row		row;

		if (s == NULL)
			fail("row %" PRIu64 " is in no journal", n);
		if (!log_read_row(&row, n, writers[n], s->data, s->note.length))
			fail("row %" PRIu64 " cannot be read", n);
		writers[n - 1] = row.before;
	}
	if (writers[1] != 0)
		fail("the first row is somebody's");

	/* and forward */
	for (uint64_t n = 2; n <= last; n++)
	{
		const sent *s = find_sent(n, writers[n]);
		log_row		row;
		log_reader	reader;
		log_entry	entry;

		log_read_row(&row, n, writers[n], s->data, s->note.length);
		reader = log_read_entries(&row);
		while (log_next(&reader, &entry) == LOG_READ_ENTRY)
		{
			if (entry.kind == LOG_CARRY && fold_find(&all, entry.token) == NULL)
				fail("row %" PRIu64 " carries what is not held", n);
			if (entry.kind == LOG_PUT && fold_find(&all, entry.token) == NULL &&
				entry.token <= highest)
				fail("row %" PRIu64 " grants token %" PRIu64 " again", n, entry.token);
			if (!fold_entry(&all, &entry, n))
				fail("row %" PRIu64 " changes what is not held", n);
			if (entry.token > highest)
				highest = entry.token;
			if (entry.guard > highest)
				highest = entry.guard;
		}
		if (row.counter < all.counter)
			fail("the counter of row %" PRIu64 " is behind", n);
		all.counter = row.counter;
	}
	for (size_t i = 0; i < nacks; i++)
		if (acks[i].note.number > last || writers[acks[i].note.number] != acks[i].note.writer)
			fail("row %" PRIu64 " was acknowledged, and is lost", acks[i].note.number);
	differ = fold_differ(&all, &loader.image);
	if (differ != NULL)
		fail("the fold of the table is not that of all rows: %s", differ);
	free(writers);
	printf("rows %" PRIu64 ", acknowledged batches %zu, leases %zu\n", last, nacks,
		   all.count);
	return 0;
}

/* ----------------------------------------------------------------
 * What each way of failing is answered
 * ----------------------------------------------------------------
 */

static int	ncases;

static void
is_so(bool so, const char *what)
{
	printf("%sok %d - %s\n", so ? "" : "not ", ++ncases, what);
	fflush(stdout);
}

/* Compare an answer, and say which it was. */
static void
is_answered(log_connection *c, log_result is, log_result should, const char *what)
{
	is_so(is == should, what);
	if (is != should)
		printf("# answered %d, not %d: %s\n", is, should, c->error);
}

/* Make a batch of one lease, or of several rows, behind the writer's position. */
static void
make_batch(writer *w, size_t leases)
{
	log_begin(&w->batch, now_us(CLOCK_REALTIME));
	for (size_t i = 0; i < leases; i++)
		add_new(w);
	seal(w);
}

static void
make_one(writer *w)
{
	make_batch(w, 1);
}

/* What a query for a number answers. */
static uint64_t
ask(log_connection *c, const char *query)
{
	MYSQL_RES  *result;
	MYSQL_ROW	row;
	uint64_t	number;

	if (mysql_query(c->mysql, query) != 0)
		fail("%s: %s", query, mysql_error(c->mysql));
	result = mysql_store_result(c->mysql);
	row = mysql_fetch_row(result);
	number = row != NULL && row[0] != NULL ? strtoull(row[0], NULL, 10) : 0;
	mysql_free_result(result);
	return number;
}

/* An append in a thread of its own. */
typedef struct appender
{
	log_connection *c;
	const writer *w;
	log_result	result;
} appender;

static void *
append_alone(void *context)
{
	appender   *a = context;

	a->result = log_append(a->c, &a->w->position, a->w->me, &a->w->batch, NULL, 0);
	return NULL;
}

/*
 * An append stands still between its look at row N and its own row, while somebody else
 * deletes row N; in the end that one cannot, or the append fails.
 */
static void
try_standing_still(log_connection *c, log_connection *admin, writer *w)
{
	appender	a = {.c = c,.w = w};
	log_connection looker = {0};
	pthread_t	thread;
	char		text[200];
	bool		deleted;

	connect_to_server(&looker);
	sql(admin, "START TRANSACTION");
	snprintf(text, sizeof(text), "INSERT INTO dlock.log VALUES (%" PRIu64 ", 9, '')",
			 w->position.number + 1);
	sql(admin, text);
	if (pthread_create(&thread, NULL, append_alone, &a) != 0)
		fail("could not start a thread");
	/*
	 * Or until it has waited for too long.  Servers read the list anew only if nobody has
	 * asked for a tenth of a second.
	 */
	while (ask(&looker, "SELECT COUNT(*) FROM information_schema.INNODB_TRX"
			   " WHERE trx_state = 'LOCK WAIT'") == 0 && a.result != LOG_NOTHING)
		pause_us(120000);
	snprintf(text, sizeof(text), "DELETE FROM dlock.log WHERE number <= %" PRIu64,
			 w->position.number + 1);
	deleted = mysql_query(admin->mysql, text) == 0 &&
		mysql_query(admin->mysql, "COMMIT") == 0;
	if (!deleted)
		sql(admin, "ROLLBACK");
	pthread_join(thread, NULL);
	is_so(a.result == (deleted ? LOG_GONE : LOG_APPENDED) || a.result == LOG_NOTHING,
		  "an append that stands still is not put behind a row that is deleted");
	printf("# answered %d: %s; %s\n", a.result, c->error,
		   deleted ? "deleted" : "not deleted");
	disconnect(&looker);
}

#define ALSO(text)	(lease_bytes) {text, sizeof(text) - 1}

static int
try_cases(void)
{
	static log_slot slots[3][ROOM];
	static writer w[2];
	static writer loader;
	log_connection c = {0};
	log_connection admin = {0};
	log_cleaning cleaner = {0};
	log_position here;
	log_entry	unknown = {.kind = LOG_END,.token = 1};
	const lease_bytes good = ALSO("INSERT INTO dlock.beside VALUES (1)");
	const lease_bytes bad = ALSO("INSERT INTO dlock.nowhere VALUES (1)");
	char		text[200];

	chance_state = 7;
	for (size_t i = 0; i < 2; i++)
	{
		w[i].batch = (log_batch) {.slots = slots[i],.room = ROOM};
		w[i].leases_most = 1000;
	}
	connect_to_server(&c);
	connect_to_server(&admin);
	sql(&admin, "CREATE TABLE dlock.beside (a INT PRIMARY KEY) ENGINE=InnoDB");

	is_answered(&c, load(&c, &w[0], UINT64_MAX), LOG_OK, "a new log is loaded");
	is_so(w[0].position.number == 1 && w[0].image.count == 0, "and says nothing");
	is_answered(&c, load(&c, &w[1], UINT64_MAX), LOG_OK, "another run does");

	make_one(&w[0]);
	here = w[0].position;
	is_answered(&c, log_append(&c, &here, w[0].me, &w[0].batch, NULL, 0), LOG_APPENDED,
				"a batch is appended");
	is_answered(&c, log_append(&c, &here, w[0].me, &w[0].batch, NULL, 0), LOG_FOUND,
				"and once more: it is found");
	log_passed(&w[0].position, w[0].me, &w[0].batch);
	make_one(&w[1]);
	is_answered(&c, log_append(&c, &w[1].position, w[1].me, &w[1].batch, NULL, 0),
				LOG_OTHERS, "who does not know it cannot append");
	fold_clear(&w[1].image);
	is_answered(&c, log_follow(&c, &w[1].position, fold_visit, &w[1].image), LOG_OK,
				"he follows");
	is_so(fold_differ(&w[0].image, &w[1].image) == NULL, "knows the same then");
	is_so(w[1].position.number == 2 && w[1].position.writer == w[0].me, "is there");
	make_batch(&w[1], 200);
	is_so(w[1].batch.count > 2, "has several rows");
	here = w[1].position;
	is_answered(&c, log_append(&c, &here, w[1].me, &w[1].batch, NULL, 0), LOG_APPENDED,
				"and appends them");
	is_answered(&c, log_append(&c, &here, w[1].me, &w[1].batch, NULL, 0), LOG_FOUND,
				"once: they are found");
	log_passed(&w[1].position, w[1].me, &w[1].batch);
	is_answered(&c, log_follow(&c, &w[0].position, fold_visit, &w[0].image), LOG_OK,
				"the first follows");
	is_so(fold_differ(&w[0].image, &w[1].image) == NULL &&
		  w[0].position.number == w[1].position.number, "and knows the same");

	/* what goes with an append */
	make_one(&w[0]);
	is_answered(&c, log_append(&c, &w[0].position, w[0].me, &w[0].batch, &bad, 1),
				LOG_NOTHING, "with a statement that fails nothing is appended");
	is_so(c.code == 1146 && strstr(c.error, "nowhere") != NULL, "the error says why");
	is_answered(&c, log_append(&c, &w[0].position, w[0].me, &w[0].batch, &good, 1),
				LOG_APPENDED, "with another one both are done");
	is_so(ask(&admin, "SELECT COUNT(*) FROM dlock.beside") == 1, "both");
	log_passed(&w[0].position, w[0].me, &w[0].batch);
	make_one(&w[1]);
	sql(&admin, "DELETE FROM dlock.beside");
	is_answered(&c, log_append(&c, &w[1].position, w[1].me, &w[1].batch, &good, 1),
				LOG_OTHERS, "if the append fails");
	is_so(ask(&admin, "SELECT COUNT(*) FROM dlock.beside") == 0, "neither is done");
	make_one(&w[0]);
	sql(&c, "START TRANSACTION");
	c.in_transaction = true;
	sql(&c, "INSERT INTO dlock.beside VALUES (2)");
	is_answered(&c, log_append(&c, &w[0].position, w[0].me, &w[0].batch, NULL, 0),
				LOG_APPENDED, "a transaction under way ends with an append");
	is_so(!c.in_transaction && ask(&admin, "SELECT a FROM dlock.beside") == 2,
		  "and is committed");
	log_passed(&w[0].position, w[0].me, &w[0].batch);

	/* the server and the connection */
	make_one(&w[0]);
	sql(&admin, "SET GLOBAL read_only = ON");
	is_answered(&c, log_append(&c, &w[0].position, w[0].me, &w[0].batch, NULL, 0),
				LOG_NOTHING, "a server that is read-only gets no row");
	is_so(c.error[0] == '\0', "without an error, for who may write all the same");
	sql(&admin, "SET GLOBAL read_only = OFF");
	snprintf(text, sizeof(text), "KILL %lu", mysql_thread_id(c.mysql));
	sql(&admin, text);
	is_answered(&c, log_append(&c, &w[0].position, w[0].me, &w[0].batch, NULL, 0), LOG_LOST,
				"who has lost his connection knows nothing");
	is_so(c.error[0] != '\0', "but the error");
	connect_to_server(&c);
	is_answered(&c, log_append(&c, &w[0].position, w[0].me, &w[0].batch, NULL, 0),
				LOG_APPENDED, "and appends over a new one");
	log_passed(&w[0].position, w[0].me, &w[0].batch);
	sql(&admin, "FLUSH TABLES WITH READ LOCK");
	make_one(&w[0]);
	is_answered(&c, log_append(&c, &w[0].position, w[0].me, &w[0].batch, NULL, 0),
				LOG_NOTHING, "under a read lock nothing is appended");
	is_so(c.code == 1205, "after a while");
	sql(&admin, "UNLOCK TABLES");
	is_answered(&c, log_append(&c, &w[0].position, w[0].me, &w[0].batch, NULL, 0),
				LOG_APPENDED, "but later");
	log_passed(&w[0].position, w[0].me, &w[0].batch);

	/* another log has taken the place of this one */
	is_answered(&c, load(&c, &w[1], UINT64_MAX), LOG_OK, "both know the same");
	make_one(&w[0]);
	if (log_append(&c, &w[0].position, w[0].me, &w[0].batch, NULL, 0) != LOG_APPENDED)
		fail("could not append: %s", c.error);
	log_passed(&w[0].position, w[0].me, &w[0].batch);
	snprintf(text, sizeof(text), "DELETE FROM dlock.log WHERE number = %" PRIu64,
			 w[0].position.number);
	sql(&admin, text);
	make_one(&w[1]);
	is_answered(&c, log_append(&c, &w[1].position, w[1].me, &w[1].batch, NULL, 0),
				LOG_APPENDED, "a row is lost, another has its number");
	make_one(&w[0]);
	is_answered(&c, log_append(&c, &w[0].position, w[0].me, &w[0].batch, NULL, 0), LOG_GONE,
				"who knows the first cannot append");
	is_answered(&c, log_follow(&c, &w[0].position, fold_visit, &w[0].image), LOG_GONE,
				"nor read on");
	is_answered(&c, load(&c, &w[0], UINT64_MAX), LOG_OK, "but load the log");
	is_so(fold_differ(&w[0].image, &w[1].image) == NULL, "and know the second then");

	/* cleaning: all that lives is carried */
	for (int i = 0; i < 60 && w[0].position.from < w[0].position.number; i++)
	{
		log_begin(&w[0].batch, now_us(CLOCK_REALTIME));
		carry(&w[0], 3000);
		seal(&w[0]);
		if (log_append(&c, &w[0].position, w[0].me, &w[0].batch, NULL, 0) != LOG_APPENDED)
			fail("could not carry: %s", c.error);
		log_passed(&w[0].position, w[0].me, &w[0].batch);
	}
	is_so(w[0].position.from > CLEAN_LEAST + 1, "carrying makes old rows needless");
	is_answered(&c, log_clean(&c, &cleaner, &w[0].position, 1), LOG_OK, "cleaning begins");
	is_so(cleaner.first == 1 && ask(&admin, "SELECT MIN(number) FROM dlock.log") == 1,
		  "and deletes nothing that was needed just now");
	is_answered(&c, log_clean(&c, &cleaner, &w[0].position, 2 * AGE_US), LOG_OK,
				"some time later");
	is_so(cleaner.first == 1 && cleaner.from == w[0].position.from, "it knows what");
	is_answered(&c, log_clean(&c, &cleaner, &(log_position) {w[0].position.number, 5, cleaner.from},
							  4 * AGE_US), LOG_GONE, "does not, if the log is another");
	is_so(ask(&admin, "SELECT MIN(number) FROM dlock.log") == 1, "at all");
	cleaner.from = w[0].position.from + 2;
	cleaner.first = w[0].position.from - 1;
	is_answered(&c, log_clean(&c, &cleaner, &w[0].position, CLEAN_AGE_US), LOG_OK,
				"nor what another log did not need");
	is_so(ask(&admin, "SELECT MIN(number) FROM dlock.log") == 1 && cleaner.first == 1 &&
		  cleaner.from == w[0].position.from, "but begins anew");
	is_answered(&c, log_clean(&c, &cleaner, &w[0].position, 6 * AGE_US), LOG_OK,
				"and else does");
	is_so(cleaner.first > 1 && cleaner.first <= w[0].position.from &&
		  ask(&admin, "SELECT MIN(number) FROM dlock.log") == cleaner.first,
		  "so that the log begins later");
	is_answered(&c, load(&c, &loader, UINT64_MAX), LOG_OK, "it can be loaded");
	is_so(fold_differ(&w[0].image, &loader.image) == NULL, "and says the same");
	is_answered(&c, log_append(&c, &(log_position) {1, 0, 1}, 5, &w[0].batch, NULL, 0),
				LOG_GONE, "who stands before its begin is told so");
	is_answered(&c, log_follow(&c, &(log_position) {1, 0, 1}, fold_visit, &loader.image),
				LOG_GONE, "also when he reads");

	/* damage */
	here = w[0].position;
	for (int i = 0; i < 2; i++)
	{
		make_one(&w[0]);
		log_append(&c, &w[0].position, w[0].me, &w[0].batch, NULL, 0);
		log_passed(&w[0].position, w[0].me, &w[0].batch);
	}
	sql(&admin, "CREATE TABLE dlock.copy AS SELECT * FROM dlock.log");
	snprintf(text, sizeof(text), "DELETE FROM dlock.log WHERE number = %" PRIu64,
			 here.number + 1);
	sql(&admin, text);
	is_answered(&c, log_follow(&c, &here, fold_visit, &loader.image), LOG_HOLE,
				"a row is missing");
	is_answered(&c, load(&c, &loader, UINT64_MAX), LOG_HOLE, "for a loader, too");
	is_so(loader.position.number == here.number, "who says up to where there is none");
	is_answered(&c, load(&c, &loader, here.number), LOG_OK, "and loads so much");
	snprintf(text, sizeof(text), "DELETE FROM dlock.log WHERE number = %" PRIu64,
			 here.from);
	sql(&admin, text);
	is_answered(&c, load(&c, &loader, here.number), LOG_HOLE,
				"the first row that is needed is missing");
	sql(&admin, "DELETE FROM dlock.log");
	sql(&admin, "INSERT INTO dlock.log SELECT * FROM dlock.copy");
	is_answered(&c, load(&c, &loader, UINT64_MAX), LOG_OK, "all are there");
	is_so(fold_differ(&w[0].image, &loader.image) == NULL, "again");
	snprintf(text, sizeof(text), "UPDATE dlock.log SET writer = 6 WHERE number = %" PRIu64,
			 here.number + 1);
	sql(&admin, text);
	is_answered(&c, load(&c, &loader, UINT64_MAX), LOG_DAMAGED, "a row was edited");
	snprintf(text, sizeof(text), "row %" PRIu64 " of dlock.log cannot be read",
			 here.number + 1);
	is_so(strcmp(c.error, text) == 0, "the error says which");
	is_answered(&c, log_follow(&c, &here, fold_visit, &loader.image), LOG_DAMAGED,
				"also for who follows");
	sql(&admin, "DELETE FROM dlock.log");
	sql(&admin, "INSERT INTO dlock.log SELECT * FROM dlock.copy");
	log_begin(&w[0].batch, 0);
	log_add(&w[0].batch, &unknown);
	seal(&w[0]);
	is_answered(&c, log_append(&c, &w[0].position, w[0].me, &w[0].batch, NULL, 0),
				LOG_APPENDED, "a row that ends what is not known");
	here = w[0].position;
	log_passed(&w[0].position, w[0].me, &w[0].batch);
	is_answered(&c, log_follow(&c, &here, fold_visit, &loader.image), LOG_DAMAGED,
				"is damaged");
	is_answered(&c, load(&c, &loader, UINT64_MAX), LOG_DAMAGED, "for a loader, too");
	sql(&admin, "DELETE FROM dlock.log");
	is_answered(&c, load(&c, &loader, UINT64_MAX), LOG_EMPTY, "a log without a row is empty");
	make_one(&w[0]);
	is_answered(&c, log_append(&c, &w[0].position, w[0].me, &w[0].batch, NULL, 0),
				LOG_GONE, "and nothing is appended to it");
	sql(&admin, "INSERT INTO dlock.log SELECT * FROM dlock.copy");
	is_answered(&c, load(&c, &w[0], UINT64_MAX), LOG_OK, "the log is there again");
	make_one(&w[0]);
	try_standing_still(&c, &admin, &w[0]);
	disconnect(&c);
	disconnect(&admin);
	printf("1..%d\n", ncases);
	return 0;
}

int
main(int argc, char **argv)
{
	if (argc < 3)
		fail("usage: log_attack SOCKET cases|write|check ...");
	server_socket = argv[1];
	if (strcmp(argv[2], "write") == 0 && argc == 5)
		return write_until_told(argv[3], argv[4]);
	return strcmp(argv[2], "check") == 0 ? check(argc - 3, argv + 3) : try_cases();
}
