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

/* A statement that waits for locks ends before; one that takes longer is cut off its caller. */
#define CUT_US			2500000

/* For how long callers do not append after the server was slow. */
#define SLOW_PAUSE_US	2000000

/* How long not to try again after an error, and after a conflict or a hole. */
#define ERROR_PAUSE_US	100000
#define CONFLICT_PAUSE_US	2000

/* See courtesy_us(): others are seen to write for so long, */
#define OTHERS_US		1000000
/* and are let in so often, for at most so long. */
#define COURTESY_EACH_US	100000
#define COURTESY_MOST_US	20000

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

#define DOUBT_MESSAGE \
	"could not learn whether the lease was written: the server may not be written to any more; ask again, or release"

/* Seconds from 1970 to 2020, where the clock of tokens begins. */
#define TOKEN_EPOCH_US	INT64_C(1577836800000000)

/* A release that was answered: of which lease, by whom. */
typedef struct owed
{
	uint64_t	token;
	uint32_t	holds;
	party		by;
	int64_t		deadline_us;	/* as the lease was before */
	uint32_t	version;
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
	lease_text	guards;			/* numbers of guards whose rows it deletes */
	uint64_t	counter;		/* as its last row has it */
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
static call_list lookers;		/* looks that wait until the log has been read */
static buffer kept;				/* releases that were answered, to be decided again */

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
static bool looked = false;		/* the server was, since that is so */
static bool reloads = false;	/* it is to be loaded anew */
static bool behind = false;		/* others have appended, which is to be read first, */
static int64_t read_again_us = 0;	/* not before that; */
static bool has_hole = false;	/* a row was missing, and later ones were there */
static int64_t others_us = 0;	/* when a row of others was read last */
static unsigned conflicts = 0;	/* appends in a row that met rows of others */
static bool shut = false;		/* somebody locks the server, a member of a cluster, and a
								 * release was answered all the same */
static server_state server;		/* as it was seen last */
static int64_t take_over_us = 0;	/* not before: the clock of tokens is behind */
static int64_t append_us = 0;	/* how long an append took last */
static uint64_t counter = 0;	/* of tokens; never goes back */
static uint64_t log_counter = 0;	/* as the log has it */
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
	return server.is_member ? shut && floor_number <= durable : !server.is_following;
}

/* Say whether somebody locks the server, a member, and a release was answered all the same. */
bool
buffer_is_shut(void)
{
	return shut;
}

/* Say whether the image is there, so that calls can look. */
bool
buffer_is_known(void)
{
	return is_known;
}

/* The next append of ours is a take-over, once the server has been looked at again. */
static void
need_take_over(void)
{
	must_take_over = true;
	looked = false;
}

/* A buffer comes to nothing, and with it a take-over, for which the server was looked at. */
static void
take_over_again(const buffer *b)
{
	if (b->takes_over && !must_take_over)
		must_take_over = looked = true;
}

/* Say whether the open buffer could be appended. */
static bool
can_append(void)
{
	return is_known && trouble == LOG_APPENDED && !behind;
}

/*
 * Say whether calls can be decided on the image: also while nobody knows what has become of
 * an append, as while one hangs.
 */
static bool
is_ready(void)
{
	return is_known && !reloads && !behind &&
		(trouble == LOG_APPENDED || trouble == LOG_LOST);
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

/*
 * The guard's row is deleted in the transaction that appends the open buffer: in a cluster
 * either that or the transaction that guards fails.  False if memory is short.
 */
bool
buffer_drop_guard(uint64_t number)
{
	lease_text_put(&open->guards, ",", open->guards.length > 0);
	lease_text_put_unsigned(&open->guards, number);
	return !open->guards.failed;
}

/*
 * A release is answered before it is durable; the lease was as it is given here.  False if
 * memory is short.
 */
bool
buffer_owe(const held *was, uint32_t holds, party by)
{
	if (!array_reserve(&open->owed, &open->owed_room, open->nowed + 1, sizeof(owed)))
		return false;
	open->owed[open->nowed++] = (owed) {
		was->token, holds, by, was->deadline_us, was->version
	};
	return true;
}

/* Say whether a call that changes nothing first has to know what others have appended. */
bool
buffer_needs_tail(const call *c)
{
	return server.is_member && !c->has_tail;
}

/*
 * Answer a call as soon as the buffer with this number is durable, and this run has taken
 * over; 0: at once.  An answer that no append has proved rests on what others had appended
 * when the call came.
 */
void
buffer_answer(call *c, uint64_t number)
{
	if ((number > 0 || server.is_member) && number < floor_number)
		number = floor_number;
	if (number <= durable && buffer_needs_tail(c))
		tail_ask(c);
	else if (number <= durable)
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
	lease_text_free(&b->guards);
	b->takes_over = b->was_lost = false;
}

static void decide_owed(void);

/* Keep the releases of a buffer that were answered: they are to be decided again. */
static void
keep_releases(const buffer *b)
{
	for (size_t n = 0; n < b->nowed; n++)
		if (array_reserve(&kept.owed, &kept.owed_room, kept.nowed + 1, sizeof(owed)))
			kept.owed[kept.nowed++] = b->owed[n];
}

/* All calls of a list fail. */
static void
fail_calls(call_list *calls, const char *sqlstate, const char *message)
{
	call	   *c;

	while ((c = call_list_take(calls)) != NULL)
		calls_refuse(c, sqlstate, "%s", message);
}

/*
 * Memory was short in the middle of a change: nothing of the open buffer takes place, and
 * its calls fail.  So does "c", which may be NULL.  Releases that were answered are decided
 * again; if there is no memory for one, it is lost as in a crash.
 */
void
buffer_undo(call *c)
{
	state_restore(&open->copies);
	keep_releases(open);
	take_over_again(open);
	empty_buffer(open);
	open->copies.number = ++numbers;
	if (c != NULL)
		call_list_append(&open->calls, c);
	fail_calls(&open->calls, "53200", "out of memory");
	decide_owed();
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
 * were undecided already.  Releases that were answered are kept, to be decided again, or
 * they are lost.
 */
static void
undo_both(bool keep)
{
	call_list	calls = {0};

	state_restore(&open->copies);
	if (flying != NULL)
	{
		state_restore(&flying->copies);
		take_over_again(flying);
		call_list_move(&flying->calls, &calls);
	}
	take_over_again(open);
	call_list_move(&open->calls, &calls);
	call_list_move(&undecided, &calls);
	call_list_move(&calls, &undecided);
	return_waiters();
	if (keep && flying != NULL)
		keep_releases(flying);
	if (keep)
		keep_releases(open);
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
 * entry of the open buffer.  The server has been looked at since it became necessary.  If an
 * applier runs, it fills a hole; otherwise the rows beyond were decided on lost ones.
 */
static bool
take_over(int64_t now_us)
{
	static bool warned = false;
	lease_takeover start;
	log_entry	entry = {.kind = LOG_TAKE_OVER};

	if (!must_take_over)
		return true;
	if (has_hole && server.is_following && now_us >= take_over_us)
		take_over_us = now_us + ERROR_PAUSE_US;
	if (!looked || now_us < take_over_us)
		return false;
	start = lease_take_over(log_counter, lease_wall() - TOKEN_EPOCH_US);
	if (start.wait_us > 0)
	{
		take_over_us = now_us + start.wait_us;
		buffer_wake_before(take_over_us);
		return false;
	}
	if (!buffer_put(&entry, NULL))
		return false;
	if (start.clock_is_behind && !warned)
	{
		warned = true;
		upkeep_log("dlock: the system clock is behind the tokens that were granted; "
				   "tokens go on growing, but a server that lost the newest of them may grant "
				   "smaller ones; set the clock of whichever server is wrong");
	}
	if (counter < start.floor)
		counter = start.floor;
	state_count_anew(now_us);
	must_take_over = looked = has_hole = false;
	open->takes_over = true;
	floor_number = open->copies.number;
	return true;
}

/* Say whether calls wait until the clock of tokens is there. */
bool
buffer_waits_for_clock(void)
{
	return is_ready() && must_take_over && lease_now() < take_over_us;
}

/* Say whether a call can be decided now. */
static bool
can_decide(call *c, int64_t now_us)
{
	bool		releases = c->request.op == LEASE_RELEASE &&
		c->asked->kind != DLOCK_CALL_WAIT;

	if (c->asked->kind == DLOCK_CALL_READ)
		return is_known && !behind;
	if (!is_ready() || server.refusal != NULL ||
		(flying != NULL && open->batch.count >= ROWS_MOST) || open->nalso >= ALSO_MOST)
		return false;
	return ((releases || !is_hung(now_us)) && take_over(now_us)) || calls_is_refused(c);
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

/* The log has been read: answer the looks that wait for it. */
static void
decide_lookers(void)
{
	call_list	calls = {0};
	call	   *c;

	call_list_move(&lookers, &calls);
	while ((c = call_list_take(&calls)) != NULL)
		calls_make(c);
}

/* A call has come: decide it, or let it wait until that is possible. */
void
buffer_take(call *c)
{
	int64_t		now_us = lease_now();
	bool		looks = c->asked->kind == DLOCK_CALL_READ;

	called_us = now_us;
	if (server.refusal != NULL && !looks && !c->has_tail)
		tail_ask(c);			/* it may be so no longer */
	else if (server.refusal != NULL && !looks)
		calls_refuse(c, "25006", "could not use the lock table: %s", server.refusal);
	else if (!fits(c))
		calls_refuse(c, "53400",
					 "could not write the lease: it is longer than the server's \"max_allowed_packet\"");
	/* who waits for an append that hangs, or for a take-over, is in nobody's way */
	else if (looks || undecided.head == NULL || is_hung(now_us) ? can_decide(c, now_us) :
			 must_take_over && is_ready() && calls_is_refused(c))
	{
		calls_make(c);
		calls_make_woken();
	}
	else
	{
		call_list_append(looks ? &lookers : &undecided, c);
		buffer_wake_before(0);
	}
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

/*
 * Send the flying buffer; the mutex is released meanwhile.  With it go the statements of its
 * calls; the rows of guards that it ends are deleted; and a take-over deletes the rows that
 * are beyond it, behind a hole, unless others may fill that.
 */
static log_result
send_flying(void)
{
	log_position at = position;
	uint64_t	writer = me;
	log_result	result = LOG_LOST;
	lease_bytes also[ALSO_MOST + 2];
	lease_text	more[2] = {{0}};
	size_t		nalso = flying->nalso;
	const char *guards = flying->guards.data;

	for (size_t i = 0; i < nalso; i++)
		also[i] = (lease_bytes) {flying->also[i].data, flying->also[i].length};
	if (guards != NULL)
		lease_text_add(&more[0], "DELETE FROM dlock.guards WHERE number IN (%s)", guards);
	if (flying->takes_over && !server.is_member && !server.is_following)
		lease_text_add(&more[1], "DELETE FROM dlock.log WHERE number > %llu",
					   (unsigned long long) (at.number + flying->batch.count));
	for (int i = 0; i < 2; i++)
		if (more[i].length > 0)
			also[nalso++] = (lease_bytes) {more[i].data, more[i].length};
	engine_unlock();
	if (wire.mysql == NULL)
		wire.code = GONE;
	else
		result = guards != NULL ? log_lock_guards(&wire, guards) : LOG_OK;
	if (result == LOG_OK)
		result = log_append(&wire, &at, writer, &flying->batch, also, nalso);
	lease_text_free(&more[0]);
	lease_text_free(&more[1]);
	engine_lock();
	return result;
}

/*
 * Calls that were decided fail, though what they were granted is in the log, or may come to be:
 * then it is given back behind that.
 */
static void
give_up_calls(call_list *calls, const char *sqlstate, const char *message)
{
	call	   *c;

	while ((c = call_list_take(calls)) != NULL)
	{
		calls_give_back(c);
		calls_refuse(c, sqlstate, "%s", message);
	}
	calls_make_woken();
}

/*
 * The server has changed since calls were decided: while it was read-only, or by a change of
 * its cluster, the tokens that they were granted may have been lost and granted anew.  What was
 * given back is; all else is decided again, after a take-over, and grants are given back first.
 * Only a guard is not made twice.
 */
static void
decide_again(call_list *calls)
{
	call_list	later = {0};
	call	   *c;

	while ((c = call_list_take(calls)) != NULL)
	{
		lease_op	op = c->request.op;
		bool		is_apply = c->asked->kind == DLOCK_CALL_APPLY ||
			c->asked->kind == DLOCK_CALL_APPLY_EACH ||
			c->asked->kind == DLOCK_CALL_APPLY_ALL;

		if (is_apply && (op == LEASE_RELEASE || op == LEASE_DROP || op == LEASE_EVICT))
			calls_finish(c);
		else if (c->asked->kind == DLOCK_CALL_BEGIN_GUARD)
			calls_refuse(c, "08007", DOUBT_MESSAGE);
		else
		{
			calls_give_back(c);
			call_list_append(&later, c);
		}
	}
	call_list_move(&undecided, &later);
	call_list_move(&later, &undecided);
	calls_make_woken();
}

/* The flying buffer's rows are in the log. */
static void
pass(void)
{
	total += log_batch_bytes(&flying->batch);
	if (flying->counter > log_counter)
		log_counter = flying->counter;
	log_passed(&position, me, &flying->batch);
}

/* A random time below one. */
static int64_t
random_us(int64_t most_us)
{
	static uint64_t drawn;

	drawn = hash_bytes((lease_bytes) {(const char *) &drawn, sizeof(drawn)}, me);
	return (int64_t) (drawn % (uint64_t) (most_us + 1));
}

/*
 * In a cluster, how long to wait before the next append.  Who has appended last knows the log
 * before the others do, and would always be the next; so it lets them in for a moment, now and
 * then, and after each append while they are seen to write.
 */
static int64_t
courtesy_us(int64_t took_us, int64_t now_us)
{
	static int64_t last_us = 0;
	int64_t		most_us = lease_earlier(2 * took_us, COURTESY_MOST_US);

	if (!server.is_member)
		return 0;
	if (now_us < others_us + OTHERS_US)
		return random_us(most_us);
	if (now_us < last_us + COURTESY_EACH_US)
		return 0;
	last_us = now_us;
	return most_us;
}

/* The flying buffer is durable, and all before it. */
static void
finish_flying(void)
{
	buffer	   *b = flying;
	int64_t		now_us = lease_now();
	int64_t		took_us = now_us - flying_since_us;
	call_list	calls = {0};
	call	   *c;

	pass();
	durable = b->copies.number;
	state_forget(&visible_copies);
	state_forget(&b->copies);
	flying = NULL;
	call_list_move(&visible, &calls);
	call_list_move(&b->calls, &calls);
	empty_buffer(b);
	if (took_us > SLOW_US)
		slow_us = now_us;
	append_us = took_us;
	pause_until_us = now_us + courtesy_us(took_us, now_us);
	conflicts = 0;
	shut = false;
	/* what they rest on may not be so any more, if the server has changed since */
	if (must_take_over)
		decide_again(&calls);
	if (behind || server.refusal != NULL)
		buffer_wake_before(0);
	begin_gathering(calls.count, took_us, now_us);
	while ((c = call_list_take(&calls)) != NULL)
		calls_finish(c);
	if (undecided.head != NULL)
		decide_undecided();
}

/*
 * Decide releases again that were answered.  In a cluster another node may have changed the
 * lease meanwhile, and then it is not what was given back.
 */
static void
decide_owed(void)
{
	static bool is_deciding = false;
	lease_moment moment = lease_moment_now(false);

	/* one that failed for want of memory, and has undone others: the loop goes on with these */
	if (is_deciding)
		return;
	is_deciding = true;
	if (kept.nowed > 0)
		(void) take_over(moment.now_us);
	for (size_t i = 0; i < kept.nowed; i++)
	{
		const owed	one = kept.owed[i];	/* the array may grow */
		const owed *o = &one;
		held	   *h = state_find(o->token);
		lease_request request = {
			.op = LEASE_RELEASE, .token = o->token, .holds = o->holds
		};
		held		was;
		decision	d;

		if (h == NULL || (server.is_member &&
						  (h->deadline_us != o->deadline_us || h->version != o->version)))
			continue;
		was = *h;
		request.owner = held_owner(h);
		d = decide(state_name_bytes(h->name), &request, o->by, &moment, false);
		if (d.changed && !d.is_early && !d.failed)
			d.failed = !buffer_owe(&was, o->holds, o->by);
		if (d.failed)
			buffer_undo(NULL);
	}
	kept.nowed = 0;
	is_deciding = false;
}

/* Append the open buffer; the mutex is released meanwhile. */
static void
append(void)
{
	buffer	   *next = open == &buffers[0] ? &buffers[1] : &buffers[0];
	uint64_t	from;
	log_result	result;

	end_gathering(lease_now());
	/* decided before the server was seen to have changed: decide again */
	if (must_take_over && open->calls.head != NULL)
	{
		undo_both(true);
		decide_owed();
		decide_undecided();
		return;
	}
	/* where an applier runs, nothing is appended but for a call */
	if (server.is_following && open->calls.head != NULL)
		(void) calls_reap();
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
	open->counter = counter;
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
	return open->batch.count > 0 || open->calls.count > 0 || visible.count > 0;
}

/* When the open buffer is to be appended. */
static int64_t
append_due_us(void)
{
	int64_t		due_us;

	if (flying != NULL || !can_append() || !has_work() || server.refusal != NULL)
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
	server_state state;

	if (wire.mysql != NULL)
		return true;
	if (connection_open(&own) != LEASE_STATUS_OK || !upkeep_read_settings(&own) ||
		!server_look(&own, &state))
		return false;
	/* entries are bytes; the server shows statements to administrators as text */
	if (mysql_query(own.mysql, "SET SESSION character_set_client = latin1,"
					" character_set_connection = latin1") != 0)
		return false;
	wire.mysql = own.mysql;
	engine_lock();
	for (int i = 0; i < 2; i++)
		buffers[i].batch.row_most = own.max_packet - STATEMENT_BYTES;
	buffer_note_server(&state);
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
	if (row->counter > log_counter)
		log_counter = row->counter;
	if (log_counter > counter)
		counter = log_counter;
	while (visit != LOG_VISIT_NO_MEMORY &&
		   (read = log_next(&reader, &entry)) == LOG_READ_ENTRY)
	{
		const held *h = entry.kind == LOG_TAKE_OVER ? NULL : state_find(entry.token);

		/* whoever waits for it is served by the writer */
		if (h != NULL && h->name->queue != NULL && entry.kind != LOG_CARRY)
		{
			h->name->queue->changed = true;
			queue_set_due(h->name->queue, 0);
		}
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
	}
	if (visit != LOG_VISIT_NO_MEMORY && read == LOG_READ_DAMAGED)
		visit = LOG_VISIT_DAMAGED;
	engine_unlock();
	return visit;
}

/* All that waits for the log to be read fails; without a message, by the connection's error. */
static void
fail_waiting(const char *message)
{
	const char *sqlstate = "XX001";
	char		text[DLOCK_MESSAGE_SIZE] = "could not read the lock table";

	if (message == NULL && wire.error[0] != '\0')
	{
		sqlstate = wire.sqlstate;
		snprintf(text, sizeof(text), "could not use the lock table: %.400s", wire.error);
	}
	else if (message == NULL && own.error[0] != '\0')
	{
		sqlstate = own.sqlstate;
		snprintf(text, sizeof(text), "%s", own.error);
	}
	else if (message != NULL)
		snprintf(text, sizeof(text), "%s", message);
	fail_calls(&undecided, sqlstate, text);
	fail_calls(&lookers, sqlstate, text);
}

/* What was read can be decided on. */
static void
decide_on_read(void)
{
	is_known = true;
	decide_owed();
	decide_lookers();
	decide_undecided();
}

/*
 * Load the log anew.  Up to a hole it can be loaded: an applier may fill that, or a take-over
 * appends there.  (In a cluster it is filled in a moment.)
 */
static void
load(void)
{
	log_result	result = LOG_LOST;
	log_position at = {0};

	state_forget(&visible_copies);
	state_clear();
	total = 0;
	kept.nowed = 0;
	if (getrandom(&me, sizeof(me), 0) != sizeof(me))
		me = (uint64_t) lease_wall();
	engine_unlock();
	wire.error[0] = '\0';
	if (connect_wire())
		result = log_load(&wire, &at, UINT64_MAX, visit_row, NULL);
	engine_lock();
	has_hole = result == LOG_HOLE && at.number > 0 && !server.is_member;
	if (has_hole)
	{
		state_clear();
		total = 0;
		engine_unlock();
		result = log_load(&wire, &at, at.number, visit_row, NULL);
		engine_lock();
	}
	behind = false;
	if (result == LOG_OK)
	{
		position = at;
		need_take_over();
		decide_on_read();
		return;
	}
	pause_until_us = lease_now() + CONFLICT_PAUSE_US;
	if (result == LOG_GONE || (result == LOG_HOLE && at.number > 0))
		return;
	pause_until_us = lease_now() + ERROR_PAUSE_US;
	if (result == LOG_EMPTY)
		fail_waiting("could not use the lock table: dlock.log is empty; run install.sql again");
	else if (result == LOG_HOLE)
		fail_waiting("could not use the lock table: rows of dlock.log are missing");
	else if (result == LOG_NO_MEMORY)
	{
		fail_calls(&undecided, "53200", "out of memory");
		fail_calls(&lookers, "53200", "out of memory");
	}
	else
		fail_waiting(NULL);
	if (result == LOG_LOST)
	{
		engine_unlock();
		disconnect_wire();
		engine_lock();
	}
}

/*
 * Others have appended: apply that, and decide again what was not in the log by then.  A
 * release that was answered is lost as in a crash; but in a cluster nothing was lost, and it
 * may be written if nobody has done anything with the lease meanwhile.
 */
static void
read_tail(void)
{
	log_result	result = LOG_LOST;
	log_position at = position;

	undo_both(server.is_member);
	is_known = false;
	engine_unlock();
	/* once more if the connection was lost, maybe long before */
	for (int i = 0; i < 2 && result == LOG_LOST; i++)
	{
		if (i > 0)
			disconnect_wire();
		wire.error[0] = '\0';
		if (connect_wire())
			result = log_follow(&wire, &at, visit_row, NULL);
	}
	engine_lock();
	if (at.number != position.number)
		others_us = lease_now();
	/* in a cluster, a row of another node is as good as one's own */
	if (at.number != position.number && !server.is_member)
		need_take_over();
	position = at;
	has_hole = result == LOG_HOLE;
	behind = result == LOG_LOST || (has_hole && server.is_member);
	read_again_us = lease_now() + (result == LOG_LOST ? ERROR_PAUSE_US : CONFLICT_PAUSE_US);
	if (result == LOG_OK || (has_hole && !behind))
		decide_on_read();
	else if (behind)
		is_known = true;
	if (result != LOG_LOST)
		return;
	fail_waiting(NULL);
	engine_unlock();
	disconnect_wire();
	engine_lock();
}

/* Look at the server before a take-over. */
static void
look_at_server(void)
{
	server_state state;
	bool		told = false;

	engine_unlock();
	for (int i = 0; i < 2 && !told; i++)
	{
		wire.error[0] = '\0';
		told = connect_wire() && server_look(&own, &state);
		if (!told)
			disconnect_wire();
	}
	engine_lock();
	if (told)
	{
		buffer_note_server(&state);
		looked = true;
		decide_undecided();
		return;
	}
	fail_waiting(NULL);
	pause_until_us = lease_now() + ERROR_PAUSE_US;
}

/* Say whether a call gives back one lease. */
static bool
gives_one_back(const call *c)
{
	return c->asked->kind == DLOCK_CALL_APPLY && c->request.op == LEASE_RELEASE;
}

/*
 * Calls that could not be written, for somebody locks the server, fail.  In a cluster, where
 * no release was answered before it was durable, one that gives back one lease is now.
 */
static void
fail_locked(void)
{
	call_list	calls = {0};
	call	   *c;

	call_list_move(&undecided, &calls);
	while ((c = call_list_take(&calls)) != NULL)
		if (server.is_member && gives_one_back(c))
		{
			shut = true;
			call_list_append(&undecided, c);
		}
		else
			calls_refuse(c, "55P03", LOCKED_MESSAGE);
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
	bool		is_cut = wire.mysql == NULL;
	unsigned int code = is_cut ? 0 : wire.code;
	bool		is_read_only = (!is_cut && wire.error[0] == '\0') || code == ERROR_OF_OPTION;
	bool		is_refused = is_read_only || code == 1836 || code == 1792 || code == 1874 ||
		code == 3989 || code == 4219;
	char		message[DLOCK_MESSAGE_SIZE];

	forget_lines(&flying->calls);
	forget_lines(&open->calls);
	undo_both(true);
	trouble = LOG_APPENDED;
	pause_until_us = lease_now() + ERROR_PAUSE_US;
	snprintf(message, sizeof(message), "could not use the lock table: %.400s",
			 is_read_only ? "the server is read-only" : wire.error);
	if (is_refused)
	{
		need_take_over();
		fail_calls(&undecided, "25006", message);
	}
	else if (is_cut)
		fail_calls(&undecided, own.sqlstate, own.error);
	else if (code == 1205)
		fail_locked();
	else
		fail_calls(&undecided, wire.sqlstate[0] != '\0' ? wire.sqlstate : "HY000", message);
	decide_owed();
	decide_undecided();
}

/* Say whether an error is one that may not come again. */
static bool
is_conflict(unsigned int code)
{
	/* a commit's: another member's change has rolled it back */
	if (code == 1180)
		return strstr(wire.error, "error 149 ") != NULL;
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
	char		message[DLOCK_MESSAGE_SIZE];

	while (result == LOG_LOST || (result == LOG_GUARDED && flying->was_lost) ||
		   (result == LOG_NOTHING && (flying->was_lost || is_conflict(wire.code) ||
									  wire.code == UNKNOWN_OUTCOME)))
	{
		bool		connected;
		bool		goes_on;
		bool		waits_for_lost;

		trouble = LOG_LOST;
		flying->was_lost |= (result == LOG_LOST && wire.code != GONE) ||
			wire.code == UNKNOWN_OUTCOME;
		waits_for_lost = flying->was_lost && !server.is_member;
		engine_unlock();
		if (result == LOG_LOST && wire.mysql != NULL && wire.code != GONE)
			own.lost_id = mysql_thread_id(wire.mysql);
		if (result == LOG_LOST)
			disconnect_wire();
		connected = connect_wire();
		/* as long as the lost one goes on, others would only wait for it, and use up the
		 * server's connections */
		goes_on = connected && waits_for_lost && connection_end_lost(&own) != LEASE_STATUS_OK;
		if (own.mysql == NULL)
			disconnect_wire();
		if (!connected || goes_on)
			pause.tv_nsec = ERROR_PAUSE_US * 1000;
		nanosleep(&pause, NULL);
		engine_lock();
		if (!connected && !flying->was_lost)
		{
			result = LOG_NOTHING;
			break;
		}
		/*
		 * It goes on, but no call waits for it if the server says why it may be in vain.
		 * (A lock may be that of the attempt that was lost.)
		 */
		if (server.refusal != NULL)
			give_up_calls(&flying->calls, "08007", DOUBT_MESSAGE);
		else if (result == LOG_NOTHING && !is_conflict(wire.code) &&
				 wire.code != UNKNOWN_OUTCOME && wire.error[0] != '\0' &&
				 wire.code != 1205)
		{
			snprintf(message, sizeof(message), "could not use the lock table: %.400s", wire.error);
			give_up_calls(&flying->calls, wire.sqlstate, message);
			fail_calls(&undecided, wire.sqlstate, message);
		}
		if (flying->calls.head == NULL)
			pause.tv_nsec = ERROR_PAUSE_US * 1000;
		if (goes_on)
			wire.code = 1205;
		result = goes_on && wire.mysql != NULL ? LOG_NOTHING : send_flying();
	}
	/* who only came second is not slow */
	if (result != LOG_OTHERS || !server.is_member)
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
			call_list_move(&flying->calls, &visible);
			empty_buffer(flying);
			flying = NULL;
			trouble = LOG_APPENDED;
			append();
			return;
		case LOG_NOTHING:
			fail_append();
			return;
		case LOG_GUARDED:
			/* a guard goes on after all, and its lease is in the way */
			undo_both(true);
			trouble = LOG_APPENDED;
			decide_owed();
			decide_undecided();
			return;
		default:
			break;
	}

	/* others have written, or the log is not what it was */
	undo_both(result == LOG_OTHERS && server.is_member);
	trouble = LOG_APPENDED;
	if (result != LOG_OTHERS)
	{
		is_known = false;
		return;
	}
	read_tail();
	/* nodes that all begin again at once would meet again */
	if (server.is_member && ++conflicts > 1)
		pause_until_us = lease_now() + random_us(append_us + CONFLICT_PAUSE_US);
}

/*
 * Say whether what no caller asks for may be written now; or what somebody waits for.  Where
 * an applier runs, it may bring the row that would be appended here.
 */
bool
buffer_can_upkeep(bool is_awaited)
{
	return is_ready() && !must_take_over && server.refusal == NULL &&
		(is_awaited || !server.is_following) && !is_hung(lease_now());
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
	int64_t		renew_us = INT64_MAX;
	queue	   *q;

	if (!is_ready() || is_hung(now_us))
		return INT64_MAX;
	/* a take-over is for a caller that waits, and not for the reaper */
	if (must_take_over && (queue_waiters() == 0 || !take_over(now_us)))
		return queue_waiters() == 0 || !looked ? INT64_MAX : take_over_us;
	while ((q = queue_first_due()) != NULL && q->due.due_us <= now_us)
	{
		bool		changed = q->changed;

		q->changed = false;
		queue_set_due(q, INT64_MAX);
		calls_attend(state_name_bytes(q->name), changed);
		calls_make_woken();
	}
	if (!buffer_can_upkeep(false))
		return (q = queue_first_due()) != NULL ? q->due.due_us : INT64_MAX;
	reap_us = reap(now_us);
	if (server.is_member)
		renew_us = session_renew(now_us);
	q = queue_first_due();
	return lease_earlier(lease_earlier(reap_us, renew_us), q != NULL ? q->due.due_us : INT64_MAX);
}

/* Say whether a call waits for the log to be read. */
static bool
is_awaited(void)
{
	return undecided.head != NULL || lookers.head != NULL;
}

/* Say whether a call waits for a take-over, before which the server is to be looked at. */
static bool
must_look(void)
{
	return is_known && must_take_over && !looked && flying == NULL &&
		(undecided.head != NULL || queue_waiters() > 0);
}

/* The server must not be written to: tell all calls that would have it changed. */
static void
refuse(void)
{
	char		message[DLOCK_MESSAGE_SIZE];

	if (flying == NULL && open->calls.head != NULL)
	{
		undo_both(true);
		decide_owed();
	}
	give_up_calls(&visible, "08007", DOUBT_MESSAGE);
	snprintf(message, sizeof(message), "could not use the lock table: %s", server.refusal);
	fail_calls(&undecided, "25006", message);
	queue_refuse_all("25006", message);
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
		else if (reloads && flying == NULL && (open->batch.count == 0 || server.refusal != NULL))
		{
			undo_both(false);	/* calls that wait for visible rows */
			is_known = reloads = false;
		}
		else if (!is_known && is_awaited() && now_us >= pause_until_us)
			load();
		else if (is_known && behind && flying == NULL && now_us >= read_again_us)
			read_tail();
		else if (server.refusal != NULL && flying == NULL &&
				 (open->calls.head != NULL || visible.head != NULL))
			refuse();
		else if (must_look() && now_us >= pause_until_us)
			look_at_server();
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
			if ((!is_known && is_awaited()) || must_look())
				due_us = lease_earlier(due_us, pause_until_us);
			if (is_known && behind && flying == NULL)
				due_us = lease_earlier(due_us, read_again_us);
			if (must_take_over && looked && undecided.head != NULL && flying == NULL)
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
	char		reason[128];
	int			error = 0;

	if (started)
		return true;
	if (!hash_start() || !state_begin() || !queue_begin())
	{
		strcpy(answer->sqlstate, "53200");
		strcpy(answer->message, "out of memory");
		return false;
	}
	lease_run_begin();
	lease_settings_begin();
	lease_stats_reset(lease_wall());
	(void) dlock_server_socket();	/* makes its copy in a statement */
	lease_thread_begin_sleep(&work);
	guards_begin();
	tail_begin();
	error = lease_thread_start(writer_main, "dlock");
	if (error == 0)
		error = lease_thread_start(upkeep_main, "dlock upkeep");
	if (error == 0)
		error = lease_thread_start(guards_main, "dlock guards");
	if (error == 0)
		error = lease_thread_start(tail_main, "dlock tail");
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
	settled = flying == NULL && (!has_work() || server.refusal != NULL);
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
	if (is_led && flying != NULL && lease_now() > flying_since_us + CUT_US)
		connection_interrupt(&own);
}

/*
 * What the server was seen to be.  One that was not to be written to may have lost what this
 * run knows by the time that it is again, and so may what is left of a cluster: then the run
 * takes over anew.
 */
void
buffer_note_server(const server_state *state)
{
	if (state->refusal != NULL || state->is_member != server.is_member ||
		state->view != server.view)
	{
		need_take_over();
	}
	server = *state;
	if (server.refusal != NULL && started)
		refuse();
}

const server_state *
buffer_server(void)
{
	return &server;
}

/* Say whether others may append, so that looks have to read the tail. */
bool
buffer_reads_tail(void)
{
	return is_known && (server.is_member || server.is_following || server.refusal != NULL);
}

/* Say whether the last row that was applied is this run's, so that it may delete old ones. */
bool
buffer_may_clean(void)
{
	return buffer_can_upkeep(false) && position.writer == me;
}

/*
 * The last row of the log was seen to be this one, after a moment at which "before" was the
 * last that was applied.  If it is another run's, it may be unknown; and if it is not even
 * the one that was known, the log is not what it was.
 */
void
buffer_note_tail(const log_position *before, uint64_t number, uint64_t writer)
{
	if (is_known && !behind &&
		((writer != me && number > position.number) || number < before->number ||
		 (number == before->number && writer != before->writer)))
	{
		behind = true;
		read_again_us = 0;
		buffer_wake_before(0);
	}
}
