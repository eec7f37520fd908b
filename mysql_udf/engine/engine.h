/*
 * engine.h
 *	  The room of the engine: what is held, who waits, and how it gets into the log.
 *
 * A call of an SQL function comes in by ../lease_engine.h, into engine.c.  One mutex
 * protects all that is declared here, except where a comment says otherwise; whoever has
 * it never waits for the server, a disk or another lock.  Order of the files, as a call
 * runs through them:
 *
 *	engine.c	the caller's side: come in, wait, leave
 *	calls.c		what a call of each kind decides
 *	decide.c	one request on one name: the core decides, the image changes
 *	state.c		the image: leases and their indexes, and the copies that undo changes
 *	queue.c		who waits for which name
 *	deadlock.c	whether a waiter closes a circle
 *	buffer.c	the log buffer: what is to be appended, and what rests on it
 *	look.c		what looks see
 *	guards.c	which guards have ended
 *	server.c	whether the server may be written to, and who else writes
 *	tail.c		what other servers have appended
 *	session.c	connections that have session leases
 *	upkeep.c	what happens each second, on a connection of its own
 *
 * Five invariants; the code that keeps each, and the tests that attack it:
 *
 * 1. The image with the open and the flying buffer taken off is the fold of the log up to
 *	  the last row that was applied.  Each change goes through state_add(), state_end()
 *	  or state_change(), which keep a copy in the open buffer, and through buffer_put(),
 *	  which writes the entry.  (state_model.c)
 * 2. No grant, renewal or refusal is answered before what it rests on is durable:
 *	  calls_answer() asks for a position, and only buffer_done() answers what has one.
 *	  (crash.pl, slow_commit.pl)
 * 3. A release that was answered is in the image, and in a buffer until it is in the log:
 *	  a buffer remembers it (buffer_owe()), and decides it again if its append fails;
 *	  if other rows are in the log by then, it is lost as in a crash.  (late_release.pl)
 * 4. An append that failed leaves nothing: the open buffer's copies come back first, then
 *	  the flying one's; each buffer has its own of a lease.  (state_model.c)
 * 5. Looks see what is durable, less the releases that were answered: a copy says which
 *	  version looks see.  (state_model.c, slow_commit.pl)
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_ENGINE_H
#define DLOCK_ENGINE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "dlock_call.h"
#include "hash.h"
#include "heap.h"
#include "image_accounts.h"
#include "lease_moment.h"
#include "lease_settings.h"
#include "lease_stats.h"
#include "lease_text.h"
#include "log/log.h"

/* ----------------------------------------------------------------
 * state.c
 * ----------------------------------------------------------------
 */

typedef struct state_name state_name;
typedef struct state_copies state_copies;

/* The account of a holder or caller: each once, never freed. */
typedef image_account account;

/* An account, to count what it has: nothing else of it changes. */
static inline account *
account_to_count(const account *of)
{
	return (account *) of;
}

/*
 * How many more an account may have of a pool, of which it has "own", and all accounts have
 * "taken": one, while it has fewer than are free.  So it gets at most half of what the others
 * have left, rounded up.
 */
static inline size_t
account_share(size_t most, size_t taken, size_t own)
{
	size_t		free = most > taken ? most - taken : 0;

	return free > own ? (free - own + 1) / 2 : 0;
}

/*
 * A guard of a lease, which has a row of its own in dlock.guards: locked by the
 * transaction that guards, from when it was announced until that ends.
 */
typedef struct guard
{
	hash_link	by_number;		/* while its lease is in the image */
	struct guard *next;			/* of the same lease */
	struct held *lease;
	uint64_t	number;
	uint64_t	connection_id;	/* that guards; 0: not known */
	int64_t		begun_us;
	uint64_t	checks;			/* how often it was found locked by its own
								 * connection */
	uint32_t	version;		/* holds that it pins, */
	uint8_t		mode;			/* in this mode */
} guard;

/*
 * A lease.  It has all its fields from the log, but for the deadline, which is on our own
 * clock: from when this run wrote it, read it, or took over.
 */
typedef struct held
{
	hash_link	by_token;
	hash_link	by_owner;		/* owner and account */
	heap_item	due;			/* the deadline; a session's lease that lives is
								 * looked at then */
	heap_item	oldest;			/* the row of the log that has all of it, */
	uint64_t	total;			/* and how many bytes the rows before that one have */
	struct held *next;			/* of the same name */
	struct held **place;		/* what points here */
	state_name *name;
	const account *account;
	uint64_t	token;
	uint64_t	copied_in;		/* the buffer that has the latest copy */
	uint64_t	changed_in;		/* the buffer with the latest change, but for
								 * releases that were answered at once */
	int64_t		ttl_us;
	int64_t		deadline_us;
	int64_t		acquired_us;	/* since 1970 */
	uint64_t	connection_id;
	uint64_t	server;			/* a session's lease: see log_entry */
	struct held *session_next;	/* of the same session of this run */
	struct held **session_place;
	uint32_t	version;
	uint8_t		mode;
	uint8_t		kind;
	bool		leaving;
	bool		gone;			/* it has ended, and its guards have not */
	bool		repeated;		/* see lease_holder */
	uint16_t	bytes;			/* that it takes in its row */
	uint8_t		owner_length;
	uint8_t		request_length;
	char	   *request;		/* NULL: none */
	guard	   *guards;
	char		owner[];
} held;

/*
 * What a lease was before the first change of a buffer.  "was" is in no index; NULL: there
 * was no such lease.
 */
typedef struct state_copy
{
	struct state_copy *next;	/* of the buffer; the newest first */
	struct state_copy *name_next;	/* of the name; the newest first */
	struct state_copy **name_place;
	state_name *name;
	uint64_t	token;
	held	   *was;
	uint32_t	seen;			/* the version that looks see: less than was->version
								 * after a release that was answered */
} state_copy;

/* A buffer's copies.  Buffers are numbered from 1 on, and never with a hole. */
struct state_copies
{
	uint64_t	number;
	state_copy *newest;
};

/* A name that is held, was held, or is waited for. */
struct state_name
{
	hash_link	by_name;
	held	   *leases;
	size_t		count;			/* of leases */
	state_copy *copies;			/* the newest first */
	uint64_t	changed_in;		/* as in the leases, and those that have ended */
	struct queue *queue;		/* who waits; NULL: nobody */
	uint8_t		length;
	char		data[];
};

static inline lease_bytes
state_name_bytes(const state_name *name)
{
	return (lease_bytes) {name->data, name->length};
}

static inline lease_bytes
held_owner(const held *h)
{
	return (lease_bytes) {h->owner, h->owner_length};
}

static inline lease_bytes
held_request(const held *h)
{
	return (lease_bytes) {h->request, h->request_length};
}

/* What became of an entry that was folded. */
typedef enum state_folded
{
	STATE_FOLDED,
	STATE_UNKNOWN,				/* it is about a lease that is not there */
	STATE_NO_MEMORY
} state_folded;

extern bool state_begin(void);
extern void state_clear(void);
extern size_t state_count(void);
extern size_t state_room_for(const account *account);
extern state_name *state_find_name(lease_bytes name);
extern state_name *state_get_name(lease_bytes name);
extern void state_drop_name(state_name *name);
extern held *state_find(uint64_t token);
extern held *state_owned(lease_bytes owner, const account *account,
						 const held *after);
extern uint64_t state_shuffles(void);
extern held *state_first_due(void);
extern held *state_add(state_copies *open, state_name *name,
					   const account *account, lease_bytes owner,
					   uint64_t token);
extern bool state_change(state_copies *open, held *h);
extern bool state_set_request(held *h, lease_bytes request);
extern void state_set_deadline(held *h, int64_t deadline_us);
extern void state_set_row(held *h, uint64_t row, uint64_t total, size_t bytes);
extern void state_put_off(held *h, int64_t until_us);
extern held *state_oldest(void);
extern uint64_t state_live_bytes(void);
extern bool state_end(state_copies *open, held *h);
extern guard *state_add_guard(held *h, uint64_t number, lease_mode mode,
							  uint32_t version);
extern void state_remove_guard(guard *g);
extern guard *state_find_guard(uint64_t number);
extern bool state_has_guards(lease_bytes name);
extern void state_visit_guards(void (*visit) (guard *g, void *context),
							   void *context);
extern void state_see(state_name *name, uint64_t token, uint32_t version);
extern void state_restore(state_copies *copies);
extern void state_forget(state_copies *copies);
extern void state_keep(state_copies *kept, state_copies *copies);
extern void state_look(const state_name *name,
					   void (*visit) (const held *h, uint32_t version,
									  void *context),
					   void *context);
extern size_t state_parts(size_t each);
extern void state_look_part(size_t part, size_t parts,
							void (*visit) (const held *h, uint32_t version,
										   void *context),
							void *context);
extern state_folded state_fold(const log_entry *entry, uint64_t row,
							   uint64_t total, int64_t now_us);
extern void state_count_anew(int64_t now_us);
extern void state_describe(const held *h, log_kind kind, int64_t now_us,
						   log_entry *entry);

/* ----------------------------------------------------------------
 * Calls
 * ----------------------------------------------------------------
 */

typedef struct call call;

/* Calls in their order. */
typedef struct call_list
{
	call	   *head;
	call	   *tail;
	size_t		count;
} call_list;

/* A place of a waiter in the queue of a name. */
typedef struct place
{
	struct place *next;
	struct place *prev;
	struct queue *queue;		/* NULL: it does not wait there */
	call	   *call;
	int64_t		retry_us;		/* when time alone may change something */
	hash_link	by_owner;		/* while it waits, and not for holds to end */
} place;

/*
 * A call while it is made: on the stack of its caller's thread, which waits for it.  Other
 * threads decide it, too, with the mutex held.
 */
struct call
{
	call	   *next;
	call	   *prev;
	call_list  *list;			/* the undecided ones, or those of a buffer; NULL: it
								 * is in neither */
	const dlock_call *asked;
	dlock_answer *answer;
	lease_request request;		/* a copy, which the engine fills in */
	const account *account;
	int64_t		start_us;
	int64_t		end_us;			/* when it has waited for long enough, */
	int64_t		limit_us;		/* and when its thread looks whether that is so */
	sem_t	   *woken;			/* the thread's own: posted when the call is answered, or
								 * is to append */
	atomic_bool answered;		/* the last that anybody but its thread does to it */
	_Atomic int64_t lead_us;	/* when it appends; INT64_MAX: somebody else does */
	int64_t		over_us;		/* the earliest deadline of what it was granted; 0:
								 * it was granted nothing */
	bool		probed;			/* it is known which guards of its names have ended, */
	bool		has_tail;		/* and what other servers had appended when it came */
	bool		was_late;		/* that had passed when the grant was durable */

	/* DLOCK_CALL_APPLY_ALL: a slice of the leases at a time */
	uint64_t	slice;			/* the first lease of this one; 0: the owner's first, */
	uint64_t	next_slice;		/* and of the next; 0: there is none */
	uint64_t	before;			/* how many were changed by earlier slices */
	uint64_t	shuffles;		/* see state_shuffles() */
	bool		continues;		/* its thread is to take the next slice */

	/* of a waiter */
	bool		watches;		/* it stands in no line: DLOCK_CALL_WAIT, _ACQUIRE_ALL,
								 * _ACQUIRE_ANY */
	bool		from_line;		/* what it was granted, it was granted in line */
	size_t		waits_for;		/* which of its names; _ACQUIRE_ANY: all */
	int64_t		waiting_since_us;	/* since 1970; 0: it has not waited */
	atomic_bool is_queued;		/* it waits; without the mutex */
	bool		shows_state;	/* in the list of processes, which showed this before; */
	const char *state_before;	/* its thread's */
	uint64_t	youngest;		/* DLOCK_CALL_WAIT: see lease_youngest(); 0: not known */
	place		one;
	place	   *places;			/* &one, or as many as names */
	size_t		nplaces;		/* in use: it waits */
	call	   *next_woken;		/* to be made again */
	bool		is_woken;
	hash_link	by_connection;	/* once it has waited */
	uint64_t	search;			/* the last search for deadlocks that has met it */
	uint32_t	number;			/* its number there */
	uint8_t    *outcomes;		/* _ACQUIRE_ALL, _ACQUIRE_ANY: of each name */
};

/* What became of a request on one name. */
typedef struct decision
{
	lease_outcome outcome;
	uint64_t	token;
	uint64_t	ended;			/* how many were evicted */
	uint64_t	expired;
	lease_mode	held_mode;		/* of the requester's holder, if it has one */
	lease_kind	held_kind;
	int64_t		retry_us;		/* LEASE_BUSY: see lease_result */
	int64_t		over_us;		/* the deadline of what was granted */
	bool		changed;
	bool		is_early;		/* a release of what is durable: it can be answered */
	bool		failed;			/* memory was short; the open buffer is to be undone */
} decision;

/* Who asks. */
typedef struct party
{
	const account *account;
	uint64_t	connection_id;
} party;

/* decide.c */
extern decision decide(lease_bytes name, lease_request *request, party party,
					   const lease_moment *moment, bool only_try);
extern decision decide_one(held *h, lease_request *request, party party,
						   const lease_moment *moment);
extern held *decide_find(lease_bytes name, lease_request *request, party party,
						 const lease_moment *moment);
extern bool decide_guard(held *h, party party, const lease_moment *moment,
						 uint64_t *number);
extern bool decide_end_guard(guard *g);
extern bool decide_extend(held *h, int64_t now_us);
extern uint64_t decide_youngest(const state_name *name,
								const lease_moment *moment);
extern bool decide_have_ended(const state_name *name, uint64_t youngest,
							  const lease_moment *moment, int64_t *next_us);
extern void decide_describe(const held *h, party party,
							const lease_moment *moment, lease_holder *holder);

/* calls.c */
extern void calls_make(call *c);
extern bool calls_is_refused(call *c);
extern void calls_make_woken(void);
extern void calls_attend(lease_bytes name, bool changed);
extern void calls_refuse(call *c, const char *sqlstate, const char *format,...)
			__attribute__((format(printf, 3, 4)));
extern bool calls_refuse_caller(call *c);
extern void calls_finish(call *c);
extern void calls_give_back(call *c);
extern int64_t calls_reap(void);
extern void call_list_append(call_list *list, call *c);
extern void call_list_remove(call *c);
extern call *call_list_take(call_list *list);
extern void call_list_move(call_list *from, call_list *to);

/* ----------------------------------------------------------------
 * queue.c
 * ----------------------------------------------------------------
 */

typedef struct place_list
{
	place	   *head;
	place	   *tail;
	size_t		count;
} place_list;

/* Who waits for a name. */
typedef struct queue
{
	state_name *name;
	place_list	line;
	place_list	watchers;		/* in nobody's way */
	heap_item	due;			/* when to look at the name, whatever happens */
	bool		changed;		/* another server has changed the name */
	uint64_t	search;			/* as in a call */
	uint32_t	number;
} queue;

extern bool queue_begin(void);
extern bool queue_join(call *c, size_t first, size_t end, int64_t retry_us);
extern void queue_leave(call *c);
extern void queue_end(call *c);
extern bool queue_return(call *c);
extern void queue_set_due(queue *q, int64_t due_us);
extern queue *queue_first_due(void);
extern size_t queue_places(void);
extern size_t queue_waiters(void);
extern bool queue_has_places_for(const call *c, size_t others);
extern void queue_refuse_all(const char *sqlstate, const char *message);
extern place *queue_place_of(lease_bytes owner, const account *account,
							 const place *after);
extern call *queue_waiter_of(uint64_t connection_id);
extern void account_add_json(lease_text *text, const account *account);
extern char *queue_json(void);

/* deadlock.c: false if memory is short */
extern bool deadlock_find(call *newcomer, const lease_moment *moment,
						  lease_text *message, lease_text *unmasked);

/* ----------------------------------------------------------------
 * server.c, tail.c
 * ----------------------------------------------------------------
 */

struct connection;

/* What the server is. */
typedef struct server_state
{
	const char *refusal;		/* why nothing may be written; NULL: it may */
	bool		is_member;		/* of a cluster: others write the log at any time */
	bool		is_following;	/* it applies the changes of another server */
	uint64_t	view;			/* which members its cluster has: another number after
								 * each change */
} server_state;

extern bool server_look(struct connection *c, server_state *state);

extern void tail_begin(void);
extern void tail_ask(call *c);
extern void tail_wake(void);
extern void *tail_main(void *argument);

/* ----------------------------------------------------------------
 * buffer.c
 * ----------------------------------------------------------------
 */

#define LOCKED_MESSAGE \
	"could not write the lease: the server or dlock's tables are locked against writing"

/* What is known of the log, and whether calls can be decided. */
extern void engine_lock(void);
extern void engine_unlock(void);
extern bool buffer_start(dlock_answer *answer);
extern bool buffer_is_known(void);
extern state_copies *buffer_copies(void);
extern uint64_t buffer_durable(void);
extern bool buffer_is_alone(void);
extern bool buffer_is_shut(void);
extern uint64_t buffer_next_token(void);
extern bool buffer_put(log_entry *entry, held *h);
extern bool buffer_also(const char *format,...)
			__attribute__((format(printf, 1, 2)));
extern bool buffer_can_upkeep(bool is_awaited);
extern bool buffer_drop_guard(uint64_t number);
extern bool buffer_owe(const held *was, uint32_t holds, party party);
extern bool buffer_needs_tail(const call *c);
extern bool buffer_waits_for_clock(void);
extern void buffer_answer(call *c, uint64_t position);
extern void buffer_undo(call *c);
extern void buffer_take(call *c);
extern void buffer_lead(call *c);
extern void buffer_appoint(void);
extern bool buffer_leave(call *c);
extern void buffer_wake_before(int64_t due_us);
extern log_position buffer_position(void);
extern bool buffer_is_settled(void);
extern void buffer_reload(void);
extern bool buffer_is_given_up(void);
extern void buffer_watch(void);
extern void buffer_note_server(const server_state *state);
extern const server_state *buffer_server(void);
extern bool buffer_reads_tail(void);
extern bool buffer_may_clean(void);
extern void buffer_note_tail(const log_position *before, uint64_t number,
							 uint64_t writer);
extern void engine_post(sem_t *semaphore);
extern void engine_sleep(pthread_cond_t *condition, int64_t until_us);

/* ----------------------------------------------------------------
 * session.c
 * ----------------------------------------------------------------
 */

/* under the mutex, but for session_watch(); it has what lease_connections.h asks for, too */
extern bool session_watch(dlock_answer *answer);
extern bool session_is_alive(uint64_t connection_id);
extern void session_enter(held *h);
extern void session_leave(held *h);
extern bool session_any_lost(void);
extern void session_end_lost(void);
extern int64_t session_renew(int64_t now_us);
extern bool session_needs_plugin(void);
extern bool session_begin_list(void);
extern void session_list(uint64_t connection_id);
extern void session_end_list(bool could);

/* guards.c: under the mutex, but for guards_main() */
extern void guards_begin(void);
extern void guards_probe(call *c);
extern void *guards_main(void *argument);

/* look.c: under the mutex */
extern bool look_at(const dlock_call *asked, dlock_answer *answer);
extern char *look_at_page(size_t page, size_t pages);

/* upkeep.c: under the mutex, but for the last two */
extern void upkeep_hurry(void);
extern void upkeep_log(const char *format,...)
			__attribute__((format(printf, 1, 2)));
extern bool upkeep_lists(const account *account);
extern bool upkeep_read_settings(struct connection *c);
extern void *upkeep_main(void *argument);

#endif							/* DLOCK_ENGINE_H */
