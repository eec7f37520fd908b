/*
 * doctor.h
 *	  Is the server set up as leases need it?  The checks and what they find.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_DOCTOR_H
#define DLOCK_DOCTOR_H

#include "ask.h"
#include "table.h"

/* What a check finds, from best to worst. */
enum finding
{
	FINDING_OK,
	FINDING_NOTE,				/* works; something to know */
	FINDING_WARNING,			/* works now, but may fail one day */
	FINDING_ERROR				/* does not work, or may lose leases */
};

struct examination
{
	dlock_session *session;
	int64_t		timeout_us;
	bool		json;
	bool		try_a_lease;
	bool		tests;			/* --self-test */
	struct table *table;		/* what was found, for --json */
	enum finding worst;
	bool		lost;			/* the server does not answer any more */
};

/*
 * Report what a check has found: "value" of "what", and what to do about it, or
 * NULL if there is nothing to do.
 */
extern void report(struct examination *e, enum finding finding, const char *what,
				   const char *todo, const char *value,...)
	__attribute__((format(printf, 5, 6)));

/*
 * Ask the server.  False if there is no answer: then dlock_session_error() says
 * why, and if e->lost is set, more questions are of no use.
 */
extern bool look(struct examination *e, const char *sql);

/* The same, but report a note if the account may not see that. */
extern bool look_if_allowed(struct examination *e, const char *what, const char *sql);

/* The checks that are the same for all servers. */

/* What the answer's first row says of the leases. */
struct lease_figures
{
	int64_t		leases;
	int64_t		overdue;		/* over for longer than the reaper should need */
	int64_t		largest_token;
	int64_t		seconds_since_2020;
};

extern void report_leases(struct examination *e, const struct lease_figures *figures,
						  const char *reaper);
extern void report_counters(struct examination *e);
extern void try_a_lease(struct examination *e);

/* selftest.c: whether the server keeps the promises of leases, and a verdict */
extern void self_test(struct examination *e, const char *url);

/* doctor_postgres.c, doctor_mysql.c */
extern void examine_postgres(struct examination *e);
extern void examine_mysql(struct examination *e);

#endif							/* DLOCK_DOCTOR_H */
