/*
 * image_marks.h
 *	  The marks of tokens: the table has one for each bucket of names.
 *
 * table.h says what a mark is.  A token that was granted counts for ever, even if its
 * commit failed: tokens that no caller has got do no harm.
 *
 * All of it is under the engine's mutex.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_IMAGE_MARKS_H
#define DLOCK_IMAGE_MARKS_H

#include <stdint.h>

/* image_marks.c */
extern uint64_t image_mark(uint32_t bucket);
extern uint64_t image_mark_stored(uint32_t bucket);
extern void image_mark_granted(uint32_t bucket, uint64_t token);
extern void image_mark_read(uint32_t bucket, uint64_t mark);

#endif							/* DLOCK_IMAGE_MARKS_H */
