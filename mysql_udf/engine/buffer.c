/*
 * buffer.c
 *	  The log buffer: what is to be appended, what rests on it, and who appends it.
 *
 * Entries go into the open buffer, in the order of decisions.  One append is under way at
 * a time: it takes the open buffer, which is the flying one then, while the next one
 * fills.  A call is answered when the buffer on which its answer rests is durable; each
 * buffer has a list of such calls, in their order.
 *
 * Who appends.  A caller that waits appends itself, in its own thread, which saves two
 * switches between threads; so the server must be quick.  The writer, a thread, appends
 * what no caller waits for, where the server is slow, and does all that is not simply an
 * append that succeeds: it loads the log, and makes good what went wrong.  While it loads no
 * call is decided: calls wait "undecided", and are decided in their order, after those
 * that were decided before and came to nothing.
 *
 * When.  The calls that came during an append could go into the next one at once.  But
 * then two halves of the callers would take turns, each waiting for the other's append,
 * too.  Callers that were just answered may well call again soon.  So the next append
 * waits for nearly all of them, twice as long as the last append took.  If they do not
 * come, the next appends do not wait: the processor is busy, or the callers have something
 * else to do.  A buffer on which nobody waits, with releases that were answered say, waits a
 * moment for one that has callers.
 *
 * What goes wrong.  An append whose outcome is not known is sent again as it is, until
 * the log tells.  If it has come to nothing, the copies of both buffers are put back, the
 * open one's first; then what others have written is applied, if that is why; then all
 * calls of both buffers are decided again.  Releases that were answered are decided
 * again, too, but not behind rows of others: then they are lost as in a crash.
 *
 * An append that hangs.  After HUNG_US nothing is decided but looks, releases, and refusals
 * for what is durable.  Other calls end in their time, with 55P03.
 *
 * All of it is under the engine's mutex, which is released while the server is asked.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#define _GNU_SOURCE				/* strerror_r() */
#include "engine.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "array.h"
#include "connection.h"
#include "lease_thread.h"

/* An append that takes longer hangs; after one that takes longer the server is slow. */
#define HUNG_US			1000000
#define SLOW_US			50000

/* For how long callers do not append after the server was slow. */
#define SLOW_PAUSE_US	2000000

/* How long not to try again after an error, and after a conflict. */
#define ERROR_PAUSE_US	100000
#define CONFLICT_PAUSE_US	2000

/* How long a buffer on which nobody waits waits for company, and if nobody calls. */
#define DEFER_US		20000
#define DEFER_IDLE_US	5000

/*
 * How long an append waits at most for the callers that were just answered.  If they do
 * not come, so many appends do not wait; twice as many the next time, up to the maximum.
 */
#define GATHER_MAX_US	5000
#define GATHER_REST		4
#define GATHER_REST_MAX	256

/* How long what is ended in pieces waits for the next buffer. */
#define PIECE_PAUSE_US	1000

/* A buffer takes calls up to so many rows, and statements besides. */
#define ROWS_MOST		512
#define ALSO_MOST		64

/* Threads to be woken at once without the mutex. */
#define POSTS_MOST		256

/* Group Replication's error of a commit of which it does not know the outcome. */
#define UNKNOWN_OUTCOME	3100

/* An option of the server's forbids it: read_only, or another one. */
#define ERROR_OF_OPTION	1290

/* The client library's error of a connection that was closed before: nothing was sent. */
#define GONE			2006

/* Bytes of the statement that appends a row, besides the row; and of a lease's entry,
 * besides its strings. */
#define STATEMENT_BYTES	100
#define ENTRY_BYTES		100

/* Seconds from 1970 to 2020, where the clock of tokens begins. */
#define TOKEN_EPOCH_US	INT64_C(1577836800000000)

/* A release that was answered: of which lease, by whom. */
typedef struct owed
{
	uint64_t	token;
	uint32_t	holds;
	party		by;
} owed;

typedef struct buffer
{
	state_copies copies;		/* and the buffer's number */
	log_batch	batch;
	call_list	calls;			/* that rest on it, in their order */
	owed	   *owed;
	size_t		nowed;
	size_t		owed_room;
	lease_text *also;			/* statements of the same transaction */
	size_t		nalso;
	size_t		also_room;
	int64_t		first_us;		/* when its first entry came */
	bool		takes_over;
	bool		was_lost;		/* an attempt to append it may still succeed */
} buffer;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work;		/* there is something for the writer */
static sem_t *posts[POSTS_MOST];	/* to be posted without the mutex */
static size_t nposts = 0;

static buffer buffers[2] = {{.copies = {.number = 1}}};
static uint64_t numbers = 1;	/* the number that a buffer was given last */
static buffer *open = &buffers[0];	/* entries go in here */
static buffer *flying = NULL;	/* it is being appended; NULL: nothing is */
static int64_t flying_since_us;
static bool is_led = false;		/* a caller appends */
static call_list undecided;

/* What is in the log, and not known to be durable: calls that rest on it, and copies. */
static call_list visible;
static state_copies visible_copies;


static bool started = false;
static int64_t sleeps_until_us = 0; /* the writer; 0: it does not sleep */
static int64_t called_us = 0;	/* when a caller called last */
static int64_t pause_until_us = 0;	/* no append before */
static int64_t slow_us = 0;		/* when the server was slow last */

/* What is known of the log. */
static log_position position;	/* the last row that was applied */
static uint64_t me;				/* this run, as a writer */
static bool is_known = false;	/* the image is the fold up to there */
static bool must_take_over = false;
static bool reloads = false;	/* it is to be loaded anew */
static bool read_only = false;	/* the server must not be written to; */
static bool clustered = false;	/* others may write the log: as upkeep saw last */
static int64_t take_over_us = 0;	/* not before: the clock of tokens is behind */
static uint64_t counter = 0;	/* of tokens; never goes back */
static uint64_t durable = 0;	/* buffers up to this number are */
static uint64_t floor_number = 0;	/* every answer rests on this buffer, the take-over */
static uint64_t total = 0;		/* bytes of all rows up to the position */
static log_result trouble = LOG_APPENDED;	/* what the writer has to make good */

/* The connection for appends: the appender's, which is one thread at a time. */
static connection own = {.wire = -1};
static log_connection wire;

/* What the next append waits for. */
static struct
{
	size_t		enough;			/* calls in the open buffer; 0: it does not wait */
	int64_t		until_us;		/* when it waits no longer */
	unsigned	rest;			/* appends to come that do not wait */
	unsigned	next_rest;		/* what "rest" becomes if the callers do not come */
}			gathering = {.next_rest = GATHER_REST};

void
engine_lock(void)
{
	pthread_mutex_lock(&mutex);
}

/*
 * Wake a thread when the mutex is released.  One append may answer dozens, and these would
 * wait for the mutex if they were woken before.  A semaphore is never freed.
 */
void
engine_post(sem_t *semaphore)
{
	if (nposts == POSTS_MOST)
		sem_post(semaphore);
	else
		posts[nposts++] = semaphore;
}

/* Release the mutex, and wake who is to be woken. */
void
engine_unlock(void)
{
	sem_t	   *taken[POSTS_MOST];
	size_t		count = nposts;

	if (count > 0)
		memcpy(taken, posts, count * sizeof(*posts));
	nposts = 0;
	pthread_mutex_unlock(&mutex);
	for (size_t i = 0; i < count; i++)
		sem_post(taken[i]);
}

/* Sleep until a condition is signaled, or a time has come; the mutex is held. */
void
engine_sleep(pthread_cond_t *condition, int64_t until_us)
{
	struct timespec t = lease_monotonic(until_us);

	for (size_t i = 0; i < nposts; i++)
		sem_post(posts[i]);
	nposts = 0;
	pthread_cond_timedwait(condition, &mutex, &t);
}

/* ----------------------------------------------------------------
 * What is asked of the buffer
 * ----------------------------------------------------------------
 */

/* The open buffer's copies, and its number. */
state_copies *
buffer_copies(void)
{
	return &open->copies;
}

/* Up to this number buffers are durable. */
uint64_t
buffer_durable(void)
{
	return durable;
}

/* Say whether nobody else writes the log, so that releases can be answered at once. */
bool
buffer_is_alone(void)
{
	return !clustered;
}

/* Say whether the image is there, so that calls can look. */
bool
buffer_is_known(void)
{
	return is_known;
}

/* Say whether the open buffer could be appended. */
static bool
can_append(void)
{
	return is_known && trouble == LOG_APPENDED;
}

/*
 * Say whether calls can be decided on the image: also while nobody knows what has become of
 * an append, as while one hangs.
 */
static bool
is_ready(void)
{
	return is_known && !reloads && (trouble == LOG_APPENDED || trouble == LOG_LOST);
}

/* The token of the next grant. */
uint64_t
buffer_next_token(void)
{
	return lease_next_token(counter, 0);
}

/* How many rows will be before those of the open buffer, and their bytes. */
static uint64_t
rows_before(void)
{
	return position.number + (flying != NULL ? flying->batch.count : 0);
}

static uint64_t
bytes_before(void)
{
	return total + (flying != NULL ? log_batch_bytes(&flying->batch) : 0);
}

/* Give a batch more rows: false if memory is short. */
static bool
add_slots(log_batch *batch)
{
	return array_reserve(&batch->slots, &batch->room, batch->room + 1,
						 sizeof(log_slot));
}

/*
 * Add an entry to the open buffer, which for LOG_PUT and LOG_CARRY has all of a lease:
 * false if memory is short.
 */
bool
buffer_put(log_entry *entry, held *h)
{
	log_batch  *batch = &open->batch;

	if (batch->count == 0)
	{
		if (batch->room == 0 && !add_slots(batch))
			return false;
		log_begin(batch, lease_wall());
		open->first_us = lease_now();
		buffer_wake_before(open->first_us + DEFER_US);
	}
	while (!log_add(batch, entry))
		if (batch->count < batch->room || !add_slots(batch))
			return false;		/* see fits() */
	if (entry->token > counter)
		counter = entry->token;
	if (entry->guard > counter)
		counter = entry->guard;
	if (entry->kind != LOG_PUT && entry->kind != LOG_CARRY)
		return true;
	/* its guards may be in the next row */
	state_set_row(h, rows_before() + batch->count,
				  bytes_before() + log_batch_bytes(batch), entry->bytes);
	for (const guard *g = h->guards; g != NULL; g = g->next)
	{
		log_entry	pin = {
			.kind = LOG_GUARD, .token = h->token, .guard = g->number,
			.mode = g->mode, .version = g->version
		};

		if (!buffer_put(&pin, NULL))
			return false;
	}
	return true;
}

/*
 * Have a statement executed in the transaction that appends the open buffer: false if
 * memory is short.
 */
bool
buffer_also(const char *format,...)
{
	lease_text	statement = {0};
	va_list		arguments;

	va_start(arguments, format);
	lease_text_add_list(&statement, format, arguments);
	va_end(arguments);
	if (statement.failed ||
		!array_reserve(&open->also, &open->also_room, open->nalso + 1,
					   sizeof(lease_text)))
	{
		lease_text_free(&statement);
		return false;
	}
	open->also[open->nalso++] = statement;
	return true;
}

/* A release is answered before it is durable: false if memory is short. */
bool
buffer_owe(uint64_t token, uint32_t holds, party by)
{
	if (!array_reserve(&open->owed, &open->owed_room, open->nowed + 1, sizeof(owed)))
		return false;
	open->owed[open->nowed++] = (owed) {token, holds, by};
	return true;
}

/*
 * Answer a call as soon as the buffer with this number is durable, and this run has taken
 * over; 0: at once.
 */
void
buffer_answer(call *c, uint64_t number)
{
	if (number > 0 && number < floor_number)
		number = floor_number;
	if (number <= durable)
		calls_finish(c);
	else
		call_list_append(flying != NULL && number <= flying->copies.number ?
						 &flying->calls : &open->calls, c);
}

/* ----------------------------------------------------------------
 * Undoing
 * ----------------------------------------------------------------
 */

/* Make a buffer empty. */
static void
empty_buffer(buffer *b)
{
	if (b->batch.room > 0)
		log_begin(&b->batch, 0);
	b->nowed = 0;
	while (b->nalso > 0)
		lease_text_free(&b->also[--b->nalso]);
	b->takes_over = b->was_lost = false;
}

static bool take_over(int64_t now_us);

/* Decide releases again that were answered. */
static void
decide_owed(buffer *releases)
{
	lease_moment moment = lease_moment_now(false);

	if (releases->nowed > 0)
		(void) take_over(moment.now_us);
	for (size_t i = 0; i < releases->nowed; i++)
	{
		const owed *o = &releases->owed[i];
		held	   *h = state_find(o->token);
		lease_request request = {
			.op = LEASE_RELEASE, .token = o->token, .holds = o->holds
		};
		decision	d;

		if (h == NULL)
			continue;
		request.owner = held_owner(h);
		d = decide(state_name_bytes(h->name), &request, o->by, &moment, false);
		if (d.failed)
			buffer_undo(NULL);
	}
	free(releases->owed);
}

/*
 * Memory was short in the middle of a change: nothing of the open buffer takes place, and
 * its calls fail.  So does "c", which may be NULL.  Releases that were answered are decided
 * again; if there is no memory for one, it is lost as in a crash.
 */
void
buffer_undo(call *c)
{
	buffer		releases = {.owed = open->owed, .nowed = open->nowed};

	open->owed = NULL;
	open->owed_room = 0;
	state_restore(&open->copies);
	if (open->takes_over)
		must_take_over = true;
	empty_buffer(open);
	open->copies.number = ++numbers;
	if (c != NULL)
		call_list_append(&open->calls, c);
	while (open->calls.head != NULL)
	{
		call	   *failed = open->calls.head;

		call_list_remove(failed);
		calls_refuse(failed, "53200", "out of memory");
	}
	decide_owed(&releases);
}

/* Move all calls of a list behind those of another. */
static void
move_calls(call_list *from, call_list *to)
{
	while (from->head != NULL)
	{
		call	   *c = from->head;

		call_list_remove(c);
		call_list_append(to, c);
	}
}

/*
 * What waiters were granted in line has come to nothing: they go back into their lines,
 * and who was first is first again.
 */
static void
return_waiters(void)
{
	for (call *c = undecided.tail; c != NULL;)
	{
		call	   *prev = c->prev;

		if (c->from_line)
		{
			call_list_remove(c);
			if (!queue_return(c))
				calls_refuse(c, "53200", "out of memory");
		}
		c = prev;
	}
}

/*
 * Both buffers come to nothing, and their calls are undecided again, before those that
 * were undecided already.  Releases that were answered are moved to "releases", which may
 * be NULL: then they are lost.
 */
static void
undo_both(buffer *releases)
{
	call_list	calls = {0};

	state_restore(&open->copies);
	if (flying != NULL)
	{
		state_restore(&flying->copies);
		must_take_over |= flying->takes_over;
		move_calls(&flying->calls, &calls);
	}
	must_take_over |= open->takes_over;
	move_calls(&open->calls, &calls);
	move_calls(&undecided, &calls);
	move_calls(&calls, &undecided);
	return_waiters();
	for (int i = 0; i < 2 && releases != NULL; i++)
	{
		buffer	   *b = i == 0 ? flying : open;

		for (size_t n = 0; b != NULL && n < b->nowed; n++)
			if (array_reserve(&releases->owed, &releases->owed_room,
							  releases->nowed + 1, sizeof(owed)))
				releases->owed[releases->nowed++] = b->owed[n];
	}
	if (flying != NULL)
		empty_buffer(flying);
	empty_buffer(open);
	open->copies.number = ++numbers;
	flying = NULL;
}

/* ----------------------------------------------------------------
 * Deciding
 * ----------------------------------------------------------------
 */

/*
 * Say whether an append is under way for so long that little more is decided, or nobody
 * knows what has become of it.
 */
static bool
is_hung(int64_t now_us)
{
	return flying != NULL &&
		(trouble != LOG_APPENDED || now_us > flying_since_us + HUNG_US);
}

/*
 * Begin to take over, if that is to be done: false if it is too early.  It is the first
 * entry of the open buffer.
 */
static bool
take_over(int64_t now_us)
{
	lease_takeover start;
	log_entry	entry = {.kind = LOG_TAKE_OVER};

	if (!must_take_over)
		return true;
	if (now_us < take_over_us)
		return false;
	start = lease_take_over(counter, lease_wall() - TOKEN_EPOCH_US);
	if (start.wait_us > 0)
	{
		take_over_us = now_us + start.wait_us;
		buffer_wake_before(take_over_us);
		return false;
	}
	if (!buffer_put(&entry, NULL))
		return false;
	counter = start.floor;
	state_count_anew(now_us);
	must_take_over = false;
	open->takes_over = true;
	floor_number = open->copies.number;
	return true;
}

/* Say whether a call can be decided now. */
static bool
can_decide(call *c, int64_t now_us)
{
	bool		releases = c->request.op == LEASE_RELEASE &&
		c->asked->kind != DLOCK_CALL_WAIT;

	return is_ready() && (releases || !is_hung(now_us) || calls_is_refused(c)) &&
		(flying == NULL || open->batch.count < ROWS_MOST) &&
		open->nalso < ALSO_MOST && take_over(now_us);
}

/* Decide the calls that are undecided, in their order. */
static void
decide_undecided(void)
{
	call	   *c;

	while ((c = undecided.head) != NULL && can_decide(c, lease_now()))
	{
		call_list_remove(c);
		calls_make(c);
		calls_make_woken();
	}
}

/* Say whether the leases that a call asks for fit into the server's packets. */
static bool
fits(const call *c)
{
	size_t		most = log_row_most(&open->batch) - LOG_HEADER;
	size_t		longest = 0;

	if (most >= LOG_ENTRY_MOST || c->request.op != LEASE_ACQUIRE)
		return true;
	for (size_t i = 0; i < c->asked->nnames; i++)
		if (c->asked->names[i].length > longest)
			longest = c->asked->names[i].length;
	return ENTRY_BYTES + longest + c->request.owner.length + c->request.request.length +
		c->account->user.length + c->account->host.length <= most;
}

/* A call has come: decide it, or let it wait until that is possible. */
void
buffer_take(call *c)
{
	int64_t		now_us = lease_now();

	called_us = now_us;
	if (read_only && c->asked->kind != DLOCK_CALL_READ)
	{
		calls_refuse(c, "25006",
					 "could not use the lock table: the server is read-only");
		return;
	}
	if (!fits(c))
	{
		calls_refuse(c, "53400",
					 "could not write the lease: it is longer than the server's \"max_allowed_packet\"");
		return;
	}
	/* those who wait for an append that hangs do not stand in line for this */
	if ((undecided.head == NULL || is_hung(now_us)) && can_decide(c, now_us))
	{
		calls_make(c);
		calls_make_woken();
		return;
	}
	call_list_append(&undecided, c);
	buffer_wake_before(0);
}

/* ----------------------------------------------------------------
 * Appending
 * ----------------------------------------------------------------
 */

/* Carry leases of the oldest rows forward, as much as is worth it. */
static void
carry(void)
{
	held	   *oldest = state_oldest();
	size_t		most;

	if (oldest == NULL || open->batch.count == 0)
		return;
	most = log_carry_most(bytes_before() - oldest->total, state_live_bytes(),
						  &open->batch);
	while (most > 0 && (oldest = state_oldest()) != NULL &&
		   (uint64_t) oldest->oldest.due_us <= rows_before())
	{
		log_entry	entry;

		state_describe(oldest, LOG_CARRY, lease_now(), &entry);
		if (!state_change(&open->copies, oldest) || !buffer_put(&entry, oldest))
			return;
		most -= most < entry.bytes ? most : entry.bytes;
	}
}

/* From which row on the log is complete when the open buffer is in it. */
static uint64_t
complete_from(void)
{
	const held *oldest = state_oldest();
	uint64_t	last = rows_before() + open->batch.count;

	return oldest != NULL && (uint64_t) oldest->oldest.due_us < last ?
		(uint64_t) oldest->oldest.due_us : last;
}

/* Note whether the callers have come for which the append has waited. */
static void
end_gathering(int64_t now_us)
{
	if (gathering.enough == 0)
		return;
	if (open->calls.count >= gathering.enough)
	{
		if (gathering.next_rest > GATHER_REST)
			gathering.next_rest /= 2;
	}
	else if (gathering.until_us <= now_us)
	{
		gathering.rest = gathering.next_rest;
		if (gathering.next_rest < GATHER_REST_MAX)
			gathering.next_rest *= 2;
	}
	gathering.enough = 0;
}

/* An append has answered so many calls: wait for them, at most twice as long as it took. */
static void
begin_gathering(size_t answered, int64_t took_us, int64_t now_us)
{
	size_t		came = open->calls.count;
	size_t		enough = came + answered - answered / 8;

	gathering.enough = 0;
	if (gathering.rest > 0)
	{
		gathering.rest--;
		return;
	}
	gathering.until_us = now_us + lease_earlier(2 * took_us, GATHER_MAX_US);
	if (enough > came && enough > 1)
		gathering.enough = enough;
}

/* Send the flying buffer; the mutex is released meanwhile. */
static log_result
send_flying(void)
{
	log_position at = position;
	uint64_t	writer = me;
	log_result	result;
	lease_bytes also[ALSO_MOST];
	size_t		nalso = flying->nalso;

	for (size_t i = 0; i < nalso; i++)
		also[i] = (lease_bytes) {flying->also[i].data, flying->also[i].length};
	engine_unlock();
	if (wire.mysql == NULL)
		wire.code = GONE;
	result = wire.mysql == NULL ? LOG_LOST :
		log_append(&wire, &at, writer, &flying->batch, also, nalso);
	engine_lock();
	return result;
}

/* The flying buffer's rows are in the log. */
static void
pass(void)
{
	total += log_batch_bytes(&flying->batch);
	log_passed(&position, me, &flying->batch);
}

/* The flying buffer is durable, and all before it. */
static void
finish_flying(void)
{
	buffer	   *b = flying;
	int64_t		now_us = lease_now();
	int64_t		took_us = now_us - flying_since_us;
	call_list	calls = {0};

	pass();
	durable = b->copies.number;
	state_forget(&visible_copies);
	state_forget(&b->copies);
	flying = NULL;
	move_calls(&visible, &calls);
	move_calls(&b->calls, &calls);
	empty_buffer(b);
	if (took_us > SLOW_US)
		slow_us = now_us;
	begin_gathering(calls.count, took_us, now_us);
	while (calls.head != NULL)
	{
		call	   *c = calls.head;

		call_list_remove(c);
		calls_finish(c);
	}
	if (undecided.head != NULL)
		decide_undecided();
}

/* Append the open buffer; the mutex is released meanwhile. */
static void
append(void)
{
	buffer	   *next = open == &buffers[0] ? &buffers[1] : &buffers[0];
	uint64_t	from;
	log_result	result;

	end_gathering(lease_now());
	carry();
	if (open->batch.count == 0)
	{
		/* a row without entries makes visible ones durable */
		if (open->batch.room == 0 && !add_slots(&open->batch))
			return;
		log_begin(&open->batch, lease_wall());
	}
	from = complete_from();
	log_seal(&open->batch, &position, me, counter, from);
	flying = open;
	next->copies.number = ++numbers;
	open = next;
	flying_since_us = lease_now();
	result = send_flying();
	if (result == LOG_APPENDED)
	{
		finish_flying();
		return;
	}
	trouble = result;
	buffer_wake_before(0);
}

/* Say whether the open buffer has anything to append. */
static bool
has_work(void)
{
	return open->batch.count > 0 || open->calls.count > 0;
}

/* When the open buffer is to be appended. */
static int64_t
append_due_us(void)
{
	int64_t		due_us;

	if (flying != NULL || !can_append() || !has_work())
		return INT64_MAX;
	if (open->calls.count > 0)
		due_us = open->calls.count < gathering.enough ? gathering.until_us : 0;
	else
		due_us = lease_earlier(open->first_us + DEFER_US,
							   called_us + DEFER_IDLE_US);
	return due_us < pause_until_us ? pause_until_us : due_us;
}

/* Say whether callers may append. */
static bool
may_lead(int64_t now_us)
{
	return slow_us == 0 || now_us > slow_us + SLOW_PAUSE_US;
}

/*
 * The open buffer has callers that wait: wake the first, to append now or when the time
 * to wait for more is up.
 */
void
buffer_appoint(void)
{
	call	   *c = open->calls.head;

	if (c == NULL || c->lead_us != INT64_MAX || flying != NULL || trouble != LOG_APPENDED)
		return;
	if (!may_lead(lease_now()))
	{
		buffer_wake_before(append_due_us());
		return;
	}
	c->lead_us = append_due_us();
	engine_post(c->woken);
}

/*
 * A call that waits for the open buffer appends it, if that is due and nobody does.  The
 * mutex is released meanwhile.
 */
void
buffer_lead(call *c)
{
	int64_t		now_us = lease_now();
	int64_t		due_us;

	if (c->answered || c->list != &open->calls || flying != NULL)
	{
		c->lead_us = INT64_MAX;
		return;
	}
	due_us = append_due_us();
	if (!may_lead(now_us))
		buffer_wake_before(due_us);
	else if (due_us > now_us)
	{
		if (c->lead_us != INT64_MAX || open->calls.count == 1)
			c->lead_us = due_us;
	}
	else
	{
		c->lead_us = INT64_MAX;
		is_led = true;
		append();
		is_led = false;
		buffer_appoint();
	}
}

/* A call is not made any more: take it out of the lists.  True if it was decided. */
bool
buffer_leave(call *c)
{
	bool		was_decided = c->list == &open->calls || c->list == &visible ||
		(flying != NULL && c->list == &flying->calls);

	call_list_remove(c);
	if (c->lead_us != INT64_MAX && open->calls.head != NULL)
		buffer_appoint();
	return was_decided;
}

/* ----------------------------------------------------------------
 * The writer: loading, and making good
 * ----------------------------------------------------------------
 */

/* Wake the writer if it would sleep longer. */
void
buffer_wake_before(int64_t due_us)
{
	if (sleeps_until_us > due_us)
		pthread_cond_signal(&work);
}

/* Open the connection, if need be; the mutex is not held. */
static bool
connect_wire(void)
{
	if (wire.mysql != NULL)
		return true;
	if (connection_open(&own) != LEASE_STATUS_OK ||
		connection_look(&own) != LEASE_STATUS_OK)
		return false;
	/* entries are bytes; the server shows statements to administrators as text */
	if (mysql_query(own.mysql, "SET SESSION character_set_client = latin1,"
					" character_set_connection = latin1") != 0)
		return false;
	wire.mysql = own.mysql;
	engine_lock();
	for (int i = 0; i < 2; i++)
		buffers[i].batch.row_most = own.max_packet - STATEMENT_BYTES;
	buffer_note_server(own.is_read_only || own.is_following, own.is_clustered);
	engine_unlock();
	return true;
}

/* Forget the connection; the mutex is not held. */
static void
disconnect_wire(void)
{
	log_disconnected(&wire);
	wire.mysql = NULL;
}

/* Apply a row, a log_visitor; the mutex is not held. */
static log_visit
visit_row(void *context, const log_row *row)
{
	log_reader	reader = log_read_entries(row);
	log_entry	entry;
	log_read	read;
	log_visit	visit = LOG_VISITED;
	int64_t		now_us = lease_now();

	engine_lock();
	total += LOG_HEADER + row->length;
	if (row->counter > counter)
		counter = row->counter;
	while (visit != LOG_VISIT_NO_MEMORY &&
		   (read = log_next(&reader, &entry)) == LOG_READ_ENTRY)
		switch (state_fold(&entry, row->number, total, now_us))
		{
			case STATE_FOLDED:
				break;
			case STATE_UNKNOWN:
				visit = LOG_VISIT_UNKNOWN;
				break;
			case STATE_NO_MEMORY:
				visit = LOG_VISIT_NO_MEMORY;
				break;
		}
	if (visit != LOG_VISIT_NO_MEMORY && read == LOG_READ_DAMAGED)
		visit = LOG_VISIT_DAMAGED;
	engine_unlock();
	return visit;
}

/* The error of the connection, for calls; the default if it has none. */
static void
fail_undecided(const char *sqlstate, const char *message)
{
	while (undecided.head != NULL)
	{
		call	   *c = undecided.head;

		call_list_remove(c);
		calls_refuse(c, sqlstate, "%s", message);
	}
}

/* Load the log anew. */
static void
load(void)
{
	log_result	result = LOG_LOST;
	log_position at = {0};
	char		sqlstate[6] = "08001";
	char		message[DLOCK_MESSAGE_SIZE] = "could not read the lock table";

	state_forget(&visible_copies);
	state_clear();
	total = 0;
	if (getrandom(&me, sizeof(me), 0) != sizeof(me))
		me = (uint64_t) lease_wall();
	engine_unlock();
	if (!connect_wire())
	{
		snprintf(sqlstate, sizeof(sqlstate), "%s", own.sqlstate);
		snprintf(message, sizeof(message), "%s", own.error);
	}
	else
	{
		upkeep_read_settings(&own);
		result = log_load(&wire, &at, UINT64_MAX, visit_row, NULL);
		if (wire.error[0] != '\0')
		{
			snprintf(sqlstate, sizeof(sqlstate), "%s", wire.sqlstate);
			snprintf(message, sizeof(message), "could not use the lock table: %.400s", wire.error);
		}
	}
	if (result == LOG_LOST)
		disconnect_wire();
	engine_lock();
	if (result == LOG_OK)
	{
		position = at;
		is_known = must_take_over = true;
		decide_undecided();
		return;
	}
	if (result == LOG_EMPTY)
		snprintf(message, sizeof(message), "could not use the lock table: dlock.log is empty; run install.sql again");
	if (result == LOG_NO_MEMORY)
	{
		strcpy(sqlstate, "53200");
		strcpy(message, "out of memory");
	}
	pause_until_us = lease_now() + (result == LOG_GONE || result == LOG_HOLE ?
									CONFLICT_PAUSE_US : ERROR_PAUSE_US);
	if (result != LOG_GONE && result != LOG_HOLE)
		fail_undecided(sqlstate, message);
}

/* Calls that were granted something in line do not go back there. */
static void
forget_lines(call_list *calls)
{
	for (call *c = calls->head; c != NULL; c = c->next)
		c->from_line = false;
}

/*
 * An append has come to nothing, and the server says why: what was answered stays to be
 * written, and other calls fail; also those that have waited in line, since who locks the
 * server may be waiting for their statements.
 */
static void
fail_append(void)
{
	buffer		releases = {0};
	bool		is_cut = wire.mysql == NULL;
	unsigned int code = is_cut ? 0 : wire.code;
	bool		is_locked = code == 1205;
	bool		is_refused = (!is_cut && wire.error[0] == '\0') || code == ERROR_OF_OPTION || code == 1836 ||
		code == 1792 || code == 1874 || code == 4219;
	char		message[DLOCK_MESSAGE_SIZE];

	forget_lines(&flying->calls);
	forget_lines(&open->calls);
	undo_both(&releases);
	trouble = LOG_APPENDED;
	pause_until_us = lease_now() + ERROR_PAUSE_US;
	if (is_refused)
	{
		must_take_over = true;
		fail_undecided("25006", "could not use the lock table: the server is read-only");
	}
	else if (is_cut)
		fail_undecided(own.sqlstate, own.error);
	else if (is_locked)
		fail_undecided("55P03", "could not write the lease: the server or dlock's tables are locked against writing");
	else
	{
		snprintf(message, sizeof(message), "could not use the lock table: %.400s", wire.error);
		fail_undecided(wire.sqlstate[0] != '\0' ? wire.sqlstate : "HY000", message);
	}
	decide_owed(&releases);
	decide_undecided();
}

/* Say whether an error is one that may not come again. */
static bool
is_conflict(unsigned int code)
{
	return code == 1213 || code == 1020 || code == 1317 || code == 1615 ||
		code == 3101 || code == 1062;
}

/*
 * Make good what has become of an append; the mutex is released meanwhile.
 */
static void
make_good(void)
{
	log_result	result = trouble;
	struct timespec pause = {.tv_nsec = CONFLICT_PAUSE_US * 1000};

	while (result == LOG_LOST ||
		   (result == LOG_NOTHING && (flying->was_lost || is_conflict(wire.code) ||
									  wire.code == UNKNOWN_OUTCOME)))
	{
		bool		connected;

		trouble = LOG_LOST;
		flying->was_lost |= (result == LOG_LOST && wire.code != GONE) ||
			wire.code == UNKNOWN_OUTCOME;
		engine_unlock();
		if (result == LOG_LOST)
			disconnect_wire();
		connected = connect_wire();
		if (!connected)
			pause.tv_nsec = ERROR_PAUSE_US * 1000;
		nanosleep(&pause, NULL);
		engine_lock();
		if (!connected && !flying->was_lost)
		{
			result = LOG_NOTHING;
			break;
		}
		result = send_flying();
	}
	slow_us = lease_now();
	if (result == LOG_NOTHING && wire.mysql != NULL && wire.code == ERROR_OF_OPTION)
	{
		engine_unlock();
		if (connection_look(&own) != LEASE_STATUS_OK)
			disconnect_wire();
		else if (!own.is_read_only)
			wire.code = 0;
		engine_lock();
	}
	switch (result)
	{
		case LOG_APPENDED:
			trouble = LOG_APPENDED;
			finish_flying();
			return;
		case LOG_FOUND:
			/* visible, and durable after one more append */
			pass();
			state_keep(&visible_copies, &flying->copies);
			move_calls(&flying->calls, &visible);
			empty_buffer(flying);
			flying = NULL;
			trouble = LOG_APPENDED;
			append();
			return;
		case LOG_NOTHING:
			fail_append();
			return;
		default:
			break;
	}

	/* others have written, or the log is not what it was */
	undo_both(NULL);
	must_take_over = true;
	is_known = false;
	if (result == LOG_OTHERS)
	{
		engine_unlock();
		result = log_follow(&wire, &position, visit_row, NULL);
		engine_lock();
		is_known = result == LOG_OK;
	}
	trouble = LOG_APPENDED;
	if (is_known)
		decide_undecided();
}

/* Say whether what no caller asks for may be written now. */
bool
buffer_can_upkeep(void)
{
	return is_ready() && !must_take_over && !is_hung(lease_now());
}

/*
 * End leases whose session has ended, and those that are over.  Each buffer gets one piece
 * of that; callers are let in between.  Returns when to do it again.
 */
static int64_t
reap(int64_t now_us)
{
	static int64_t reaped_us = 0;
	static uint64_t piece_in = 0;
	int64_t		due_us = reaped_us + settings->reap_interval_us;
	bool		more = false;

	if (now_us < due_us && !session_any_lost())
		return due_us;
	if (piece_in == open->copies.number && open->batch.count > 0)
		return now_us + PIECE_PAUSE_US;
	piece_in = open->copies.number;
	if (session_any_lost())
	{
		session_end_lost();
		more = session_any_lost();
	}
	if (now_us >= due_us)
	{
		bool		is_due = calls_reap() <= now_us;

		if (!is_due)
			reaped_us = now_us;
		due_us = reaped_us + settings->reap_interval_us;
		more |= is_due;
	}
	return more ? now_us + PIECE_PAUSE_US : due_us;
}

/* Attend the names that are due, and reap what is over.  Returns when to do it again. */
static int64_t
attend_due(int64_t now_us)
{
	int64_t		reap_us;
	queue	   *q;

	if (!is_ready() || is_hung(now_us))
		return INT64_MAX;
	/* a take-over is for a caller that waits, and not for the reaper */
	if (must_take_over && (queue_waiters() == 0 || !take_over(now_us)))
		return queue_waiters() == 0 ? INT64_MAX : take_over_us;
	while ((q = queue_first_due()) != NULL && q->due.due_us <= now_us)
	{
		queue_set_due(q, INT64_MAX);
		calls_attend(state_name_bytes(q->name), false);
		calls_make_woken();
	}
	reap_us = reap(now_us);
	q = queue_first_due();
	return lease_earlier(reap_us, q != NULL ? q->due.due_us : INT64_MAX);
}

/* The writer's thread. */
static void *
writer_main(void *argument)
{
	engine_lock();
	for (;;)
	{
		int64_t		now_us = lease_now();
		int64_t		due_us = attend_due(now_us);

		if (trouble != LOG_APPENDED)
			make_good();
		else if (reloads && flying == NULL && (open->batch.count == 0 || read_only))
		{
			undo_both(NULL);	/* calls that wait for visible rows */
			is_known = reloads = false;
		}
		else if (!is_known && undecided.head != NULL && now_us >= pause_until_us)
			load();
		else if (append_due_us() <= now_us)
		{
			append();
			buffer_appoint();
		}
		else
		{
			if (undecided.head != NULL && flying == NULL && is_known)
				decide_undecided();
			due_us = lease_earlier(due_us, append_due_us());
			if (!is_known && undecided.head != NULL)
				due_us = lease_earlier(due_us, pause_until_us);
			if (must_take_over && undecided.head != NULL)
				due_us = lease_earlier(due_us, take_over_us);
			/* a caller's next release may come soon, and need not wake us then */
			if (called_us + DEFER_IDLE_US > now_us)
				due_us = lease_earlier(due_us, called_us + DEFER_IDLE_US);
			if (due_us <= now_us)
				continue;
			if (due_us == INT64_MAX)
				due_us = now_us + INT64_C(3600000000);
			sleeps_until_us = due_us;
			engine_sleep(&work, due_us);
			sleeps_until_us = 0;
		}
	}
	return NULL;
}

/* Start the engine, if it does not run: false with an error in the answer. */
bool
buffer_start(dlock_answer *answer)
{
	pthread_condattr_t attributes;
	char		reason[128];
	int			error = 0;

	if (started)
		return true;
	if (!hash_start() || !state_begin() || !queue_begin() || !guards_begin())
	{
		strcpy(answer->sqlstate, "53200");
		strcpy(answer->message, "out of memory");
		return false;
	}
	lease_run_begin();
	lease_settings_begin();
	lease_stats_reset(lease_wall());
	(void) dlock_server_socket();	/* makes its copy in a statement */
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&work, &attributes);
	pthread_condattr_destroy(&attributes);
	error = lease_thread_start(writer_main, "dlock");
	if (error == 0)
		error = lease_thread_start(upkeep_main, "dlock upkeep");
	if (error == 0)
		error = lease_thread_start(guards_main, "dlock guards");
	if (error != 0)
	{
		snprintf(answer->sqlstate, sizeof(answer->sqlstate), "53000");
		snprintf(answer->message, sizeof(answer->message),
				 "could not start a thread: %s",
				 strerror_r(error, reason, sizeof(reason)));
		return false;
	}
	started = true;
	return true;
}

/* Where the log is known to be, for cleaning. */
log_position
buffer_position(void)
{
	return position;
}

/* Say whether all that was answered is in the log. */
bool
buffer_is_settled(void)
{
	bool		settled;

	engine_lock();
	settled = flying == NULL && !has_work();
	engine_unlock();
	return settled;
}

/*
 * Something else than the library has changed the log: it is to be loaded anew, when what
 * was decided is in it.
 */
void
buffer_reload(void)
{
	reloads = true;
	buffer_wake_before(0);
}

/* Say whether the image of before has been given up. */
bool
buffer_is_given_up(void)
{
	bool		given_up;

	engine_lock();
	given_up = !reloads;
	engine_unlock();
	return given_up;
}

/*
 * A caller that appends for too long must be able to leave: cut the connection, and the
 * writer goes on.  What the server was told may take place all the same, as after every
 * lost connection.
 */
void
buffer_watch(void)
{
	if (is_led && is_hung(lease_now()))
		connection_interrupt(&own);
}

/*
 * What upkeep has seen of the server.  A server that was not to be written to may have lost
 * what this run knows by the time that it is again: then the run takes over anew.
 */
void
buffer_note_server(bool is_read_only, bool is_clustered)
{
	if (is_read_only)
		must_take_over = true;
	read_only = is_read_only;
	clustered = is_clustered;
}
