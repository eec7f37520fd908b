/*
 * url.h
 *	  Which server a URL, or the environment, names.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_CLIENT_URL_H
#define DLOCK_CLIENT_URL_H

#include "dlock.h"

/* What a URL of MySQL's may say as parameters. */
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
	/* MySQL: NULL is not said. */
	char	   *host;
	char	   *user;
	char	   *password;
	char	   *database;
	unsigned int port;			/* 0 is not said */
	char	   *parameters[DLOCK_URL_PARAMETERS];
} dlock_url;

/*
 * Read a URL; NULL or "" is for the environment.  Returns false and an error, and
 * nothing to be freed, if it is wrong.  What libpq is to read is not looked into.
 */
extern bool dlock_url_parse(const char *text, dlock_url *url, dlock_error *error);

extern void dlock_url_free(dlock_url *url);

#endif							/* DLOCK_CLIENT_URL_H */
