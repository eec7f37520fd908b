/*
 * watch.h
 *	  What watch.c and the rest of the engine need of each other.  (It cannot include
 *	  engine.h: the client library's header and the server's differ in their types.)
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_WATCH_H
#define DLOCK_WATCH_H

#include "dlock_call.h"

extern void engine_lock(void);
extern void engine_unlock(void);

/* watch.c: without the mutex */
extern bool session_watch(dlock_answer *answer);

/* session.c: under the mutex, but for session_end() and session_set_told() */
extern bool session_is_alive(uint64_t connection_id);
extern bool session_open(uint64_t connection_id);
extern void session_end(uint64_t connection_id);
extern bool session_is_heard(void);
extern void session_set_told(bool told);

/* upkeep.c */
extern void upkeep_hurry(void);

#endif							/* DLOCK_WATCH_H */
