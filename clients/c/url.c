/*
 * url.c
 *	  Which server a URL, or the environment, names.
 *
 * No error shows any part of a URL that may belong to a password, even one that
 * was not encoded as it must be.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "url.h"

#include <stdlib.h>
#include <string.h>

#include "errors.h"

static const char *const parameter_names[DLOCK_URL_PARAMETERS] = {
	"socket", "ssl-ca", "ssl-cert", "ssl-key", "ssl-verify", "default-file",
};

/* Overwrite a string, also if nobody reads it any more. */
static void
wipe(char *string)
{
	for (volatile char *c = string; *c != '\0'; c++)
		*c = '\0';
}

void
dlock_url_free(dlock_url *url)
{
	free(url->conninfo);
	free(url->host);
	free(url->user);
	/* it may be a secret */
	if (url->password != NULL)
		wipe(url->password);
	free(url->password);
	free(url->database);
	for (int i = 0; i < DLOCK_URL_PARAMETERS; i++)
		free(url->parameters[i]);
	*url = (dlock_url) {0};
}

static int
hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef0123456789ABCDEF";
	const char *digit = c == '\0' ? NULL : strchr(digits, c);

	/* the capitals' first ten are found among the small ones */
	return digit == NULL ? -1 : (int) ((digit - digits) % 16);
}

/* Decode what is between two places.  NULL if there is an error. */
static char *
decode(const char *from, const char *to, dlock_error *error)
{
	char	   *result = malloc((size_t) (to - from) + 1);
	size_t		length = 0;

	if (result == NULL)
	{
		dlock_error_set(error, DLOCK_UNAVAILABLE, "out of memory");
		return NULL;
	}
	while (from < to)
	{
		int			high;
		int			low;

		if (*from != '%')
		{
			result[length++] = *from++;
			continue;
		}
		high = to - from > 2 ? hex_digit(from[1]) : -1;
		low = high >= 0 ? hex_digit(from[2]) : -1;
		if (low < 0 || high + low == 0)
		{
			dlock_error_set(error, DLOCK_MISUSE,
							"the server's URL has a \"%%\" that two hexadecimal digits do not follow; write %%25 for it");
			free(result);
			return NULL;
		}
		result[length++] = (char) (high << 4 | low);
		from += 3;
	}
	result[length] = '\0';
	return result;
}

/* The same for something that means nothing if it is empty. */
static bool
decode_into(char **result, const char *from, const char *to, dlock_error *error)
{
	if (from == to)
		return true;
	*result = decode(from, to, error);
	return *result != NULL;
}

static bool
parse_port(const char *from, const char *to, dlock_url *url, dlock_error *error)
{
	unsigned int port = 0;

	for (const char *c = from; c < to; c++)
	{
		if (*c < '0' || *c > '9' || (port = 10 * port + (unsigned) (*c - '0')) > 65535)
		{
			dlock_error_set(error, DLOCK_MISUSE,
							"the port in the server's URL is not a number up to 65535; a password's \":\", \"/\", \"?\" and \"@\" are written %%3A, %%2F, %%3F and %%40");
			return false;
		}
	}
	url->port = port;
	return true;
}

/* [user[:password]@][host][:port] */
static bool
parse_authority(const char *from, const char *to, dlock_url *url,
				dlock_error *error)
{
	const char *at = NULL;
	const char *colon;

	for (const char *c = from; c < to; c++)
		if (*c == '@')
			at = c;
	if (at != NULL)
	{
		colon = memchr(from, ':', (size_t) (at - from));
		if (!decode_into(&url->user, from, colon != NULL ? colon : at, error))
			return false;
		if (colon != NULL)
		{
			url->password = decode(colon + 1, at, error);
			if (url->password == NULL)
				return false;
		}
		from = at + 1;
	}
	if (from < to && *from == '[')
	{
		const char *bracket = memchr(from, ']', (size_t) (to - from));

		if (bracket == NULL || (bracket + 1 < to && bracket[1] != ':'))
		{
			dlock_error_set(error, DLOCK_MISUSE,
							"the server's URL has a \"[\" without its \"]\"");
			return false;
		}
		colon = bracket + 1 < to ? bracket + 1 : NULL;
		if (!decode_into(&url->host, from + 1, bracket, error))
			return false;
	}
	else
	{
		colon = memchr(from, ':', (size_t) (to - from));
		if (!decode_into(&url->host, from, colon != NULL ? colon : to, error))
			return false;
	}
	return colon == NULL || parse_port(colon + 1, to, url, error);
}

/* name=value, one of several */
static bool
parse_parameter(const char *from, const char *to, dlock_url *url,
				dlock_error *error)
{
	const char *equals = memchr(from, '=', (size_t) (to - from));

	for (int i = 0; equals != NULL && i < DLOCK_URL_PARAMETERS; i++)
		if (strncmp(parameter_names[i], from, (size_t) (equals - from)) == 0 &&
			parameter_names[i][equals - from] == '\0')
		{
			free(url->parameters[i]);
			url->parameters[i] = decode(equals + 1, to, error);
			return url->parameters[i] != NULL;
		}
	dlock_error_set(error, DLOCK_MISUSE,
					"the server's URL has a parameter that is none of socket, ssl-ca, ssl-cert, ssl-key, ssl-verify and default-file, each with \"=\"");
	return false;
}

/* What follows mysql:// */
static bool
parse_mysql(const char *text, dlock_url *url, dlock_error *error)
{
	const char *slash = text + strcspn(text, "/?");
	const char *question;
	const char *verify;

	if (!parse_authority(text, slash, url, error))
		return false;
	question = slash + strcspn(slash, "?");
	if (*slash == '/' && !decode_into(&url->database, slash + 1, question, error))
		return false;
	while (*question != '\0')
	{
		const char *from = question + 1;

		question = from + strcspn(from, "&");
		if (question > from && !parse_parameter(from, question, url, error))
			return false;
	}
	verify = url->parameters[DLOCK_URL_SSL_VERIFY];
	if (verify != NULL && strcmp(verify, "0") != 0 && strcmp(verify, "1") != 0)
	{
		dlock_error_set(error, DLOCK_MISUSE,
						"ssl-verify in the server's URL is neither 0 nor 1");
		return false;
	}
	return true;
}

/* Say whether a text begins like keyword=value. */
static bool
has_keywords(const char *text)
{
	text += strspn(text, " \t\r\n");
	text += strspn(text, "abcdefghijklmnopqrstuvwxyz_");
	text += strspn(text, " \t\r\n");
	return *text == '=';
}

/* A variable of the environment that is set and not empty, or NULL. */
static const char *
variable(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && value[0] != '\0' ? value : NULL;
}

/* What the environment names, or NULL. */
static const char *
from_environment(void)
{
	static const char *const libpq[] = {
		"PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE",
	};
	if (variable("DLOCK_URL") != NULL)
		return variable("DLOCK_URL");
	for (size_t i = 0; i < sizeof(libpq) / sizeof(libpq[0]); i++)
		if (variable(libpq[i]) != NULL)
			return "";
	return NULL;
}

bool
dlock_url_parse(const char *text, dlock_url *url, dlock_error *error)
{
	static const struct
	{
		const char *scheme;
		dlock_engine engine;
	}			schemes[] =
	{
		{"postgresql://", DLOCK_POSTGRESQL}, {"postgres://", DLOCK_POSTGRESQL},
		{"mysql://", DLOCK_MYSQL}, {"mariadb://", DLOCK_MYSQL},
	};
	size_t		length = 0;

	*url = (dlock_url) {0};
	dlock_error_clear(error);
	if (text == NULL || text[0] == '\0')
		text = from_environment();
	if (text == NULL)
	{
		dlock_error_set(error, DLOCK_MISUSE,
						"nothing says which server to use; set DLOCK_URL, for example to postgresql://host/database or mysql://user@host/, or PGHOST, PGHOSTADDR, PGSERVICE or PGDATABASE");
		return false;
	}
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (strncmp(text, schemes[i].scheme, strlen(schemes[i].scheme)) == 0)
		{
			url->engine = schemes[i].engine;
			length = strlen(schemes[i].scheme);
		}
	/* keywords, or libpq's defaults */
	if (url->engine == 0 && (text[0] == '\0' || has_keywords(text)))
		url->engine = DLOCK_POSTGRESQL;
	if (url->engine == 0)
	{
		dlock_error_set(error, DLOCK_MISUSE,
						"the server's URL begins neither with postgresql:// nor with mysql:// or mariadb://, nor has it libpq's keyword=value");
		return false;
	}
	if (url->engine == DLOCK_MYSQL)
	{
		if (parse_mysql(text + length, url, error))
			return true;
		dlock_url_free(url);
		return false;
	}
	url->conninfo = strdup(text);
	if (url->conninfo == NULL)
	{
		dlock_error_set(error, DLOCK_UNAVAILABLE, "out of memory");
		return false;
	}
	return true;
}
