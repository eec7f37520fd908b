/*
 * errors.h
 *	  Sort errors into the four classes of clients/CONTRACT.md.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_CLIENT_ERRORS_H
#define DLOCK_CLIENT_ERRORS_H

#include "dlock.h"

/* Forget an error. */
extern void dlock_error_clear(dlock_error *error);

/* Fill in an error of the library's own. */
extern void dlock_error_set(dlock_error *error, dlock_error_class error_class,
							const char *format,...)
			__attribute__((format(printf, 3, 4)));

/*
 * Fill in an error of a server: its SQLSTATE or NULL, its number or 0.  Class and
 * "denied" follow from these; the caller sets "disconnected".
 */
extern void dlock_error_from_server(dlock_error *error, dlock_engine engine,
									const char *sqlstate, unsigned int number,
									const char *message);

/* Say whether an error means that waiting would close a circle of owners. */
extern bool dlock_error_is_deadlock(const dlock_error *error);

#endif							/* DLOCK_CLIENT_ERRORS_H */
