/*
 * url.h
 *	  Which server a URL, or the environment, names.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_CLIENT_URL_H
#define DLOCK_CLIENT_URL_H

#include "dlock.h"

/* The parameters that a MySQL URL may have. */
enum
{
	DLOCK_URL_SOCKET,
	DLOCK_URL_SSL_CA,
	DLOCK_URL_SSL_CERT,
	DLOCK_URL_SSL_KEY,
	DLOCK_URL_SSL_VERIFY,
	DLOCK_URL_DEFAULT_FILE,
	DLOCK_URL_PARAMETERS
};

typedef struct dlock_url
{
	dlock_engine engine;
	/* PostgreSQL: all of it, for libpq; "" is libpq's defaults. */
	char	   *conninfo;
	/* MySQL: NULL if not given. */
	char	   *host;
	char	   *user;
	char	   *password;
	char	   *database;
	unsigned int port;			/* 0: not given */
	char	   *parameters[DLOCK_URL_PARAMETERS];
} dlock_url;

/*
 * Read a URL; NULL or "" is for the environment.  Returns false and an error,
 * and nothing to be freed, if it is wrong.  This does not look into what libpq
 * reads.
 */
extern bool dlock_url_parse(const char *text, dlock_url *url, dlock_error *error);

extern void dlock_url_free(dlock_url *url);

#endif							/* DLOCK_CLIENT_URL_H */
