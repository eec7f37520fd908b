/*
 * pg.c
 *	  The transport to PostgreSQL: libpq, without waiting.
 *
 * A connection is made by PQconnectStartParams() and PQconnectPoll().  Then a
 * query asks for the schema of the extension, once in the life of a session, so
 * that no search path decides whose function is called.  A call is one
 * PQsendQueryParams(), a transaction of its own without a prepared statement,
 * so a pooler may stand in between.
 *
 * Without a library.  Where plain/dlock.sql is installed, what takes or extends a lease
 * is a procedure.  The same query tells, and is asked again when a call is refused for
 * that (42809), because the extension has come or gone: the server had not begun it.
 * A wait is ours there: an acquire asks again and again, at random times that become
 * longer, up to a second, until its wait is over.  So what is cancelled, or dies, leaves
 * no wait on the server that could take the lease.
 *
 * Silent hosts.  Without waiting, libpq goes on to the next of several hosts, or to
 * the next address of one, only if one refuses.  So each has a share of the time.
 * When that is over, libpq begins anew, with a list that lacks the silent address:
 * all else stays libpq's business, and names are looked up once more only then.
 * And the next attempt begins with the host after the one at which the last was
 * given up, or that turned out to be a standby, which renews nothing.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "session.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "errors.h"

/* From pg_type.h, which clients do not have. */
#define BOOLEAN_TYPE	16
#define VOID_TYPE		2278

/* To notice a lost network within a minute; in seconds and milliseconds. */
static const char *const defaults[][2] = {
	{"fallback_application_name", "dlock"},
	{"keepalives_idle", "20"},
	{"keepalives_interval", "10"},
	{"keepalives_count", "3"},
	{"tcp_user_timeout", "30000"},
};

#define DEFAULTS	(sizeof(defaults) / sizeof(defaults[0]))

typedef enum pg_phase
{
	PG_CONNECTING,
	PG_ASKING,					/* for the schema */
	PG_READY,
	PG_CALLING,
	PG_RESTING,					/* before the same call again */
} pg_phase;

/* The time between two calls of an acquire that waits: the first, and the longest. */
#define FIRST_AGAIN_US		INT64_C(20000)
#define LONGEST_AGAIN_US	INT64_C(1000000)

typedef struct pg_wire
{
	PGconn	   *connection;
	pg_phase	phase;
	bool		flushed;
	int64_t		share_until_us;
	PGresult   *result;			/* the last that has come */
	bool		asks_again;		/* PG_ASKING, for the call that is to be sent */
	size_t		neach;			/* DLOCK_SHAPE_EACH by CALL: so many were called, */
	dlock_table done;			/* and for these it was done */
	int64_t		wait_until_us;	/* an acquire by CALL is asked again until then */
	int64_t		again_us;		/* about so much later */
	int64_t		rest_until_us;
} pg_wire;

/* The parameters that list the hosts; they have as many elements, or one. */
static const char *const lists[] = {"host", "hostaddr", "port"};

#define LISTS	(sizeof(lists) / sizeof(lists[0]))

/* What outlives a connection. */
typedef struct pg_memory
{
	char	   *schema;			/* of the functions, quoted */
	bool		calls;			/* those that take or extend a lease are procedures */
	bool		was_there;		/* the functions were, at some time */
	char	   *next[LISTS];	/* the lists for the next one; NULL: as given */
	char	   *rest[LISTS];	/* what is not silent, in the present attempt */
} pg_memory;

const char dlock_pg_schema_query[] =
	"SELECT pg_catalog.quote_ident(n.nspname), false FROM pg_catalog.pg_extension e "
	"JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace "
	"WHERE e.extname OPERATOR(pg_catalog.=) 'dlock' UNION ALL "
	"SELECT pg_catalog.quote_ident(n.nspname), true FROM pg_catalog.pg_namespace d "
	"JOIN pg_catalog.pg_proc p ON p.proowner OPERATOR(pg_catalog.=) d.nspowner "
	"JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace "
	"WHERE d.nspname OPERATOR(pg_catalog.=) 'dlock_private' AND p.prokind OPERATOR(pg_catalog.=) 'p' "
	"AND p.proname OPERATOR(pg_catalog.=) 'dlock_renew_many' LIMIT 1";

/* What is a procedure where plain/dlock.sql is installed. */
static const struct procedure
{
	const char *name;
	size_t		wait;			/* which argument is the wait; 0: none */
} procedures[] = {
	{"dlock_acquire", 3}, {"dlock_acquire_shared", 3}, {"dlock_acquire_permit", 4},
	{"dlock_acquire_permits", 5}, {"dlock_acquire_all", 3}, {"dlock_renew", 0},
	{"dlock_renew_many", 0}, {"dlock_release_after", 0}
};

/*
 * Copy a message of libpq without the text that it quotes, which may be a
 * password.
 */
static void
set_parse_error(dlock_error *error, const char *message)
{
	char		shown[256] = "";
	size_t		length = 0;
	bool		quoted = false;

	for (const char *c = message; *c != '\0' && length < sizeof(shown) - 5; c++)
	{
		/* libpq's own quotes are of single characters */
		if (*c == '"' && !quoted && c[1] != '\0' && c[2] == '"')
		{
			memcpy(shown + length, c, 3);
			length += 3;
			c += 2;
			continue;
		}
		if (*c == '"')
		{
			if (!quoted)
			{
				memcpy(shown + length, "\"...", 4);
				length += 4;
			}
			quoted = !quoted;
		}
		if (!quoted)
			shown[length++] = *c;
	}
	shown[length] = '\0';
	dlock_error_set(error, DLOCK_MISUSE,
					"the server's URL cannot be understood: %s", shown);
}

static bool
pg_check(dlock_session *s)
{
	char	   *message = NULL;
	PQconninfoOption *options = PQconninfoParse(s->url.conninfo, &message);
	bool		valid = options != NULL;

	if (!valid && message != NULL)
		set_parse_error(&s->error, message);
	else if (!valid)
		dlock_error_set(&s->error, DLOCK_UNAVAILABLE, "out of memory");
	for (PQconninfoOption *o = options; valid && o->keyword != NULL; o++)
		if (o->val != NULL && strcmp(o->keyword, "host") == 0 &&
			o->val[0] != '@' && o->val[0] != '/' && strchr(o->val, '@') != NULL)
		{
			dlock_error_set(&s->error, DLOCK_MISUSE,
							"the host in the server's URL has an \"@\"; in a password it is written %%40");
			valid = false;
		}
	PQfreemem(message);
	PQconninfoFree(options);
	if (valid)
	{
		s->memory = calloc(1, sizeof(pg_memory));
		if (s->memory == NULL)
			dlock_error_set(&s->error, DLOCK_UNAVAILABLE, "out of memory");
	}
	return s->memory != NULL;
}

static void
pg_free(dlock_session *s)
{
	pg_memory  *memory = s->memory;

	if (memory != NULL)
	{
		free(memory->schema);
		for (size_t i = 0; i < LISTS; i++)
		{
			free(memory->next[i]);
			free(memory->rest[i]);
		}
	}
	free(memory);
	s->memory = NULL;
}

static void
pg_prepare(dlock_session *s, const dlock_arg *args, size_t nargs)
{
	dlock_text	value = {0};

	dlock_table_column(&s->arguments, NULL);
	for (size_t i = 0; i < nargs; i++)
	{
		dlock_text_clear(&value);
		dlock_text_add(&value, "");
		switch (args[i].type)
		{
			case DLOCK_ARG_NULL:
				break;
			case DLOCK_ARG_TEXT:
				if (args[i].text != NULL)
					dlock_text_add(&value, args[i].text);
				break;
			case DLOCK_ARG_INTEGER:
				dlock_text_format(&value, "%" PRId64, args[i].integer);
				break;
			case DLOCK_ARG_DURATION:
				dlock_text_duration(&value, args[i].integer);
				break;
			case DLOCK_ARG_TEXTS:
			case DLOCK_ARG_INTEGERS:
				dlock_text_list(&value, DLOCK_POSTGRESQL, &args[i]);
				break;
		}
		if (value.failed)
			s->arguments.failed = true;
		else if (args[i].type == DLOCK_ARG_NULL ||
				 (args[i].type == DLOCK_ARG_TEXT && args[i].text == NULL))
			dlock_table_null(&s->arguments);
		else
			dlock_table_value(&s->arguments, value.data, value.length);
	}
	dlock_text_free(&value);
}

/* Notices are for people at a terminal. */
static void
ignore_notice(void *argument, const PGresult *result)
{
	(void) argument;
	(void) result;
}

/* The same list, beginning with its second element.  NULL if there is no memory. */
static char *
rotate(const char *list)
{
	const char *comma = strchr(list, ',');
	size_t		length = strlen(list);
	char	   *result;

	if (comma == NULL)
		return strdup(list);
	result = malloc(length + 1);
	if (result != NULL)
		snprintf(result, length + 1, "%s,%.*s", comma + 1,
				 (int) (comma - list), list);
	return result;
}

/*
 * Let the next connection begin with the host after this one's first.  The
 * list may have come from the URL, a service file or the environment.
 */
static void
turn_to_next_host(pg_memory *memory, PGconn *connection)
{
	PQconninfoOption *options = PQconninfo(connection);
	char	   *next[LISTS] = {0};
	bool		complete = options != NULL;

	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
		for (size_t i = 0; i < LISTS; i++)
			if (o->val != NULL && strcmp(o->keyword, lists[i]) == 0)
			{
				next[i] = rotate(o->val);
				complete = complete && next[i] != NULL;
			}
	PQconninfoFree(options);
	for (size_t i = 0; i < LISTS; i++)
	{
		/* only some of them would not fit together */
		free(complete ? memory->next[i] : next[i]);
		if (complete)
			memory->next[i] = next[i];
	}
}

/* A host to try; "" is what was not given. */
typedef struct pg_host
{
	char		text[LISTS][DLOCK_HOST_SIZE];	/* as in "lists" */
} pg_host;

/* Copy an element of a list; the only one is for all. */
static void
get_element(const char *list, size_t i, char *element)
{
	const char *c = list;

	if (list == NULL)
		return;
	while (i-- > 0 && strchr(list, ',') != NULL)
	{
		c = strchr(c, ',');
		if (c == NULL)
			return;
		c++;
	}
	snprintf(element, DLOCK_HOST_SIZE, "%.*s", (int) strcspn(c, ","), c);
}

/* The hosts that a connection tries, in memory to be freed; NULL if there is none. */
static pg_host *
get_hosts(PGconn *connection, size_t *n)
{
	PQconninfoOption *options = PQconninfo(connection);
	const char *given[LISTS] = {0};
	pg_host    *hosts;
	size_t		commas = 0;

	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
		for (size_t i = 0; i < LISTS; i++)
			if (strcmp(o->keyword, lists[i]) == 0)
				given[i] = o->val;
	/* hosts and addresses are as many, if both are given */
	for (const char *c = given[1] != NULL && given[1][0] != '\0' ? given[1] : given[0];
		 c != NULL && *c != '\0'; c++)
		commas += *c == ',';
	*n = commas + 1;
	hosts = calloc(*n, sizeof(*hosts));
	for (size_t i = 0; hosts != NULL && i < *n; i++)
		for (size_t j = 0; j < LISTS; j++)
			get_element(given[j], i, hosts[i].text[j]);
	PQconninfoFree(options);
	return hosts;
}

/* Say whether a host may have several addresses. */
static bool
is_name(const pg_host *host)
{
	return host->text[0][0] != '\0' && strchr("/@", host->text[0][0]) == NULL &&
		host->text[1][0] == '\0';
}

/* The connection has a share of what is left of the time. */
static void
set_share(dlock_session *s, pg_wire *wire)
{
	size_t		n = 0;
	pg_host    *hosts = get_hosts(wire->connection, &n);
	int64_t		now_us = dlock_now_us();

	wire->share_until_us = DLOCK_NEVER;
	/* a name may have more addresses */
	if (hosts != NULL)
		wire->share_until_us = now_us +
			(s->hurry_us - now_us) / (int64_t) (n + is_name(&hosts[0]));
	free(hosts);
}

/*
 * The address that is being tried is silent: set memory->rest to what is left to
 * try.  Returns false if that is nothing.
 */
static bool
leave_out(pg_memory *memory, PGconn *connection)
{
	const char *at[LISTS] = {
		PQhost(connection), PQhostaddr(connection), PQport(connection),
	};
	dlock_text	rest[LISTS] = {0};
	size_t		n = 0;
	pg_host    *hosts = get_hosts(connection, &n);
	size_t		silent = 0;
	size_t		left = 0;
	bool		complete = hosts != NULL;

	for (size_t i = n; hosts != NULL && i-- > 0;)
	{
		const pg_host *h = &hosts[i];

		if ((h->text[0][0] == '\0' || strcmp(h->text[0], at[0]) == 0) &&
			(h->text[1][0] == '\0' || strcmp(h->text[1], at[1]) == 0) &&
			(h->text[2][0] == '\0' || strcmp(h->text[2], at[2]) == 0))
			silent = i;
	}
	for (size_t i = 0; hosts != NULL && i < n; i++)
	{
		char	   *as_given[] = {hosts[i].text[1], NULL};
		char	  **addresses = as_given;

		if (i == silent && (!is_name(&hosts[i]) ||
							dlock_addresses(hosts[i].text[0], &addresses) == 0))
			continue;
		for (char **a = addresses; *a != NULL; a++)
			if (i != silent || strcmp(*a, at[1]) != 0)
			{
				for (size_t j = 0; j < LISTS; j++)
				{
					dlock_text_add(&rest[j], left > 0 ? "," : "");
					dlock_text_add(&rest[j], j == 1 ? *a : hosts[i].text[j]);
				}
				left++;
			}
		if (i == silent)
			dlock_addresses_free(addresses);
	}
	for (size_t j = 0; j < LISTS; j++)
		complete = complete && !rest[j].failed;
	for (size_t j = 0; j < LISTS; j++)
	{
		/* a list of nothing is none */
		bool		empty = rest[j].length < left;

		if (complete && left > 0)
		{
			free(memory->rest[j]);
			memory->rest[j] = empty ? NULL : rest[j].data;
			rest[j].data = empty ? rest[j].data : NULL;
		}
		free(rest[j].data);
	}
	free(hosts);
	return complete && left > 0;
}

/* Whether some hosts were left out in the present attempt. */
static bool
has_rest(const pg_memory *memory)
{
	return memory->rest[0] != NULL || memory->rest[1] != NULL;
}

/* Begin to connect, to all hosts or to the rest of them. */
static void
begin(dlock_session *s)
{
	pg_memory  *memory = s->memory;
	char	  **next = has_rest(memory) ? memory->rest : memory->next;
	const char *keywords[DEFAULTS + 2 + LISTS + 1] = {0};
	const char *values[DEFAULTS + 2 + LISTS + 1] = {0};
	pg_wire    *wire = calloc(1, sizeof(*wire));
	size_t		n = 0;

	if (wire == NULL)
	{
		dlock_error_set(&s->error, DLOCK_UNAVAILABLE, "out of memory");
		return;
	}
	for (size_t i = 0; i < DEFAULTS; i++)
	{
		keywords[n] = defaults[i][0];
		values[n++] = defaults[i][1];
	}
	/* it overrides the parameters before it, and those after override it */
	keywords[n] = "dbname";
	values[n++] = s->url.conninfo;
	/* whatever the URL, the environment, the role and the database say */
	keywords[n] = "client_encoding";
	values[n++] = "UTF8";
	for (size_t i = 0; i < LISTS; i++)
		if (next[i] != NULL)
		{
			keywords[n] = lists[i];
			values[n++] = next[i];
		}

	wire->connection = PQconnectStartParams(keywords, values, 1);
	if (wire->connection == NULL)
	{
		free(wire);
		dlock_error_set(&s->error, DLOCK_UNAVAILABLE, "out of memory");
		return;
	}
	s->wire = wire;
	/* the only way to learn the SQLSTATE of a connection that is refused */
	PQsetErrorVerbosity(wire->connection, PQERRORS_VERBOSE);
	PQsetNoticeReceiver(wire->connection, ignore_notice, NULL);
	s->fd = PQsocket(wire->connection);
	s->events = POLLOUT;
	set_share(s, wire);
	s->wire_until_us = wire->share_until_us;
}

static void
forget_rest(pg_memory *memory)
{
	for (size_t i = 0; i < LISTS; i++)
	{
		free(memory->rest[i]);
		memory->rest[i] = NULL;
	}
}

static void
pg_connect(dlock_session *s)
{
	forget_rest(s->memory);
	begin(s);
}

static void
pg_close(dlock_session *s)
{
	pg_wire    *wire = s->wire;
	pg_memory  *memory = s->memory;

	/* once some were left out, all have been tried */
	if (!has_rest(memory) &&
		((wire->phase == PG_CONNECTING &&
		  PQstatus(wire->connection) != CONNECTION_BAD) ||
		 (s->failed && strcmp(s->error.sqlstate, "25006") == 0)))
		turn_to_next_host(memory, wire->connection);
	PQclear(wire->result);
	dlock_table_free(&wire->done);
	/* says no good-bye if the socket takes none: libpq does not block here */
	PQfinish(wire->connection);
	free(wire);
	s->wire = NULL;
}

/* Set the error of a connection that could not be made. */
static dlock_step
refused(dlock_session *s, pg_wire *wire)
{
	const char *message = PQerrorMessage(wire->connection);
	char		sqlstate[6] = "";
	dlock_text	shown = {0};

	/* lines of "...FATAL:  SQLSTATE: ...", and of where in the source */
	for (const char *line = message; *line != '\0';)
	{
		size_t		length = strcspn(line, "\n");
		const char *end = line + length;
		const char *c = line;

		if (strncmp(line, "LOCATION:", 9) != 0)
		{
			while (c + 10 <= end &&
				   !(memcmp(c, ":  ", 3) == 0 && c[8] == ':' && c[9] == ' ' &&
					 strspn(c + 3, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5))
				c++;
			if (c + 10 <= end)
			{
				memcpy(sqlstate, c + 3, 5);
				dlock_text_bytes(&shown, line, (size_t) (c - line) + 2);
				dlock_text_bytes(&shown, c + 10, (size_t) (end - c) - 10);
			}
			else
				dlock_text_bytes(&shown, line, length);
			dlock_text_add(&shown, "\n");
		}
		line = end + (*end != '\0');
	}
	if (PQconnectionNeedsPassword(wire->connection))
		strcpy(sqlstate, "28P01");
	dlock_error_from_server(&s->error, DLOCK_POSTGRESQL, sqlstate, 0,
							shown.data);
	s->error.disconnected = true;
	dlock_text_free(&shown);
	return DLOCK_STEP_FAILED;
}

/* The connection has broken. */
static dlock_step
broken(dlock_session *s, pg_wire *wire)
{
	dlock_error_from_server(&s->error, DLOCK_POSTGRESQL, NULL, 0,
							PQerrorMessage(wire->connection));
	s->error.disconnected = true;
	return DLOCK_STEP_FAILED;
}

static void
send_query(dlock_session *s, pg_wire *wire, const char *sql,
		   const char *const *values, size_t nvalues)
{
	int			sent = PQsendQueryParams(wire->connection, sql, (int) nvalues, NULL,
										 values, NULL, NULL, 0);

	wire->flushed = false;
	s->fd = PQsocket(wire->connection);
	s->events = POLLIN | POLLOUT;
	/* if it could not be sent, the next step finds no result */
	s->wire_until_us = sent ? DLOCK_NEVER : 0;
}

/* The function of the call if it is a procedure here, else NULL. */
static const struct procedure *
procedure_of(const dlock_session *s)
{
	const pg_memory *memory = s->memory;

	for (size_t i = 0; memory->calls && s->function != NULL &&
		 i < sizeof(procedures) / sizeof(procedures[0]); i++)
		if (strcmp(procedures[i].name, s->function) == 0)
			return &procedures[i];
	return NULL;
}

/*
 * Call a procedure.  Of a list of names, for each of which it is to be called, the next
 * one; its arguments are the first and the fourth.
 */
static void
send_call(dlock_session *s, pg_wire *wire)
{
	const struct procedure *procedure = procedure_of(s);
	const char *values[8];
	dlock_table arrays[2] = {0};

	dlock_text_clear(&s->sql);
	dlock_text_format(&s->sql, "CALL %s.%s(", ((pg_memory *) s->memory)->schema,
					  s->function);
	for (size_t i = 0; i < s->nargs && i < sizeof(values) / sizeof(values[0]); i++)
	{
		values[i] = s->arguments.values[i];
		if (s->shape == DLOCK_SHAPE_EACH && (i == 0 || i == 3))
		{
			dlock_table *array = &arrays[i == 3];

			values[i] = dlock_table_from_array(array, values[i]) &&
				wire->neach < array->nvalues ? array->values[wire->neach] : NULL;
		}
		else if (i == procedure->wait && wire->wait_until_us > 0)
			values[i] = "0";
		dlock_text_format(&s->sql, "%s$%zu", i > 0 ? ", " : "", i + 1);
	}
	dlock_text_add(&s->sql, ")");
	if (s->sql.failed || arrays[0].failed || arrays[1].failed)
		s->wire_until_us = 0;
	else
		send_query(s, wire, s->sql.data, values, s->nargs);
	dlock_table_free(&arrays[0]);
	dlock_table_free(&arrays[1]);
}

static void
pg_send(dlock_session *s)
{
	pg_wire    *wire = s->wire;
	pg_memory  *memory = s->memory;
	const struct procedure *procedure = procedure_of(s);
	size_t		wait = procedure != NULL ? procedure->wait : 0;
	int64_t		wait_us = 0;

	wire->phase = PG_CALLING;
	wire->neach = 0;
	wire->wait_until_us = 0;
	wire->again_us = FIRST_AGAIN_US;
	dlock_table_free(&wire->done);
	if (memory->schema != NULL && procedure != NULL)
	{
		/* what is no time is the server's to refuse */
		if (wait > 0 && wait < s->nargs && s->arguments.values[wait] != NULL &&
			dlock_parse_duration(s->arguments.values[wait], &wait_us) && wait_us != 0)
			wire->wait_until_us = wait_us < 0 ? DLOCK_NEVER : dlock_now_us() + wait_us;
		send_call(s, wire);
		return;
	}
	if (s->function != NULL && memory->schema != NULL)
	{
		bool		each = s->shape == DLOCK_SHAPE_EACH;

		dlock_text_clear(&s->sql);
		dlock_text_format(&s->sql, "SELECT %s%s.%s(",
						  s->shape == DLOCK_SHAPE_ROWS ? "* FROM " : each ?
						  "name FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), "
						  "pg_catalog.unnest($4::pg_catalog.int8[])) AS lease(name, token) WHERE " : "",
						  memory->schema, s->function);
		for (size_t i = 1; i <= s->nargs; i++)
			if (each && (i == 1 || i == 4))
				dlock_text_add(&s->sql, i == 1 ? "name" : ", token");
			else
				dlock_text_format(&s->sql, "%s$%zu", i > 1 ? ", " : "", i);
		dlock_text_add(&s->sql, ")");
	}
	if (s->sql.failed || (s->function != NULL && memory->schema == NULL))
	{
		s->wire_until_us = 0;
		return;
	}
	send_query(s, wire, s->sql.data, (const char *const *) s->arguments.values,
			   s->nargs);
}

/* Go on with connecting. */
static dlock_step
step_connecting(dlock_session *s, pg_wire *wire)
{
	struct pollfd p = {.fd = s->fd, .events = s->events};
	pg_memory  *memory = s->memory;

	if (PQstatus(wire->connection) == CONNECTION_BAD)
		return refused(s, wire);
	/* libpq expects that we have waited for its socket */
	if (poll(&p, 1, 0) <= 0)
	{
		if (dlock_now_us() < wire->share_until_us)
			return DLOCK_STEP_WAIT;
		wire->share_until_us = DLOCK_NEVER;
		s->wire_until_us = DLOCK_NEVER;
		if (!leave_out(memory, wire->connection))
			return DLOCK_STEP_WAIT;
		PQfinish(wire->connection);
		free(wire);
		s->wire = NULL;
		s->fd = -1;
		begin(s);
		/* if it could not, the next step says so */
		return DLOCK_STEP_WAIT;
	}
	switch (PQconnectPoll(wire->connection))
	{
		case PGRES_POLLING_READING:
			s->events = POLLIN;
			break;
		case PGRES_POLLING_WRITING:
			s->events = POLLOUT;
			break;
		case PGRES_POLLING_OK:
			s->fd = PQsocket(wire->connection);
			s->wire_until_us = DLOCK_NEVER;
			if (PQsetnonblocking(wire->connection, 1) != 0)
				return broken(s, wire);
			if (memory->schema != NULL)
			{
				wire->phase = PG_READY;
				return DLOCK_STEP_DONE;
			}
			wire->phase = PG_ASKING;
			send_query(s, wire, dlock_pg_schema_query, NULL, 0);
			return DLOCK_STEP_DONE;
		default:
			return refused(s, wire);
	}
	s->fd = PQsocket(wire->connection);
	return DLOCK_STEP_WAIT;
}

/* Read what has come; DLOCK_STEP_DONE if that is the whole answer. */
static dlock_step
step_result(dlock_session *s, pg_wire *wire)
{
	PGresult   *result;

	if (PQconsumeInput(wire->connection) == 0)
	{
		/* the server may have said why, before it hung up */
		result = PQisBusy(wire->connection) ? NULL : PQgetResult(wire->connection);
		if (result == NULL)
			return broken(s, wire);
		PQclear(wire->result);
		wire->result = result;
		return DLOCK_STEP_DONE;
	}
	if (!wire->flushed)
	{
		int			left = PQflush(wire->connection);

		if (left < 0)
			return broken(s, wire);
		wire->flushed = left == 0;
	}
	s->events = wire->flushed ? POLLIN : POLLIN | POLLOUT;
	while (!PQisBusy(wire->connection))
	{
		result = PQgetResult(wire->connection);
		if (result == NULL)
			return wire->result == NULL ? broken(s, wire) : DLOCK_STEP_DONE;
		PQclear(wire->result);
		wire->result = result;
		switch (PQresultStatus(result))
		{
			case PGRES_COPY_IN:
			case PGRES_COPY_OUT:
			case PGRES_COPY_BOTH:
				dlock_error_set(&s->error, DLOCK_MISUSE,
								"COPY cannot be used here");
				s->error.disconnected = true;
				return DLOCK_STEP_FAILED;
			default:
				break;
		}
	}
	return DLOCK_STEP_WAIT;
}

/* Turn a result into the answer, or the error. */
static dlock_step
take_result(dlock_session *s, pg_wire *wire)
{
	PGresult   *result = wire->result;
	ExecStatusType status = PQresultStatus(result);
	bool		failed = status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK &&
		status != PGRES_EMPTY_QUERY;

	wire->result = NULL;
	if (failed)
	{
		const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
		const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
		const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
		const char *severity =
			PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
		dlock_text	message = {0};

		dlock_text_format(&message, "%s%s%s%s%s", primary != NULL ? primary :
						  PQresultErrorMessage(result),
						  detail != NULL ? ": " : "", detail != NULL ? detail : "",
						  hint != NULL ? "; " : "", hint != NULL ? hint : "");
		dlock_error_from_server(&s->error, DLOCK_POSTGRESQL,
								PQresultErrorField(result, PG_DIAG_SQLSTATE), 0,
								message.data);
		dlock_text_free(&message);
		s->error.disconnected = PQstatus(wire->connection) == CONNECTION_BAD ||
			(severity != NULL && strcmp(severity, "ERROR") != 0);
		PQclear(result);
		return DLOCK_STEP_FAILED;
	}
	for (int column = 0; column < PQnfields(result); column++)
		dlock_table_column(&s->answer, PQfname(result, column));
	for (int row = 0; row < PQntuples(result); row++)
		for (int column = 0; column < PQnfields(result); column++)
		{
			const char *value = PQgetvalue(result, row, column);
			size_t		length = (size_t) PQgetlength(result, row, column);

			if (PQgetisnull(result, row, column) ||
				PQftype(result, column) == VOID_TYPE)
				dlock_table_null(&s->answer);
			else if (PQftype(result, column) == BOOLEAN_TYPE)
				dlock_table_value(&s->answer, value[0] == 't' ? "1" : "0", 1);
			else
				dlock_table_value(&s->answer, value, length);
		}
	PQclear(result);
	return DLOCK_STEP_DONE;
}

/* Take the schema of the functions, if they exist. */
static dlock_step
take_schema(dlock_session *s, pg_wire *wire)
{
	pg_memory  *memory = s->memory;
	dlock_step	step = take_result(s, wire);
	const char *schema = dlock_session_value(s, 0, 0);

	if (step == DLOCK_STEP_FAILED)
	{
		s->error.disconnected = true;
		return step;
	}
	if (schema != NULL)
	{
		memory->calls = strcmp(dlock_session_value(s, 0, 1), "1") == 0;
		memory->was_there = true;
		memory->schema = strdup(schema);
		if (memory->schema == NULL)
			s->answer.failed = true;
	}
	dlock_table_free(&s->answer);
	wire->phase = PG_READY;
	return DLOCK_STEP_DONE;
}

/* Forget the schema: the extension may have moved, come or gone. */
static void
forget_schema(pg_memory *memory)
{
	free(memory->schema);
	memory->schema = NULL;
}

/*
 * Say whether an error may mean that the functions are not what they were: a procedure,
 * or none any more; gone, with what plain/dlock.sql keeps in dlock_private; or that schema
 * is the extension's, which lets nobody in.
 */
static bool
may_have_changed(const pg_memory *memory, const char *sqlstate)
{
	return strcmp(sqlstate, "42809") == 0 || strcmp(sqlstate, "42883") == 0 ||
		strcmp(sqlstate, "3F000") == 0 ||
		(memory->calls && (strcmp(sqlstate, "42P01") == 0 || strcmp(sqlstate, "42501") == 0));
}

/* An acquire was refused, and its wait is not over: rest before the next call. */
static void
pause_before_asking(dlock_session *s, pg_wire *wire, int64_t now_us)
{
	/* each caller at another time: 32 bits that are as good as random */
	uint64_t	random = (uint64_t) (now_us ^ getpid()) * UINT64_C(0x9E3779B97F4A7C15) >> 32;
	int64_t		until_us = now_us + wire->again_us / 2 +
		(int64_t) (random * (uint64_t) wire->again_us >> 32);

	wire->again_us += wire->again_us / 2;
	if (wire->again_us > LONGEST_AGAIN_US)
		wire->again_us = LONGEST_AGAIN_US;
	wire->rest_until_us = until_us < wire->wait_until_us ? until_us : wire->wait_until_us;
	wire->phase = PG_RESTING;
	dlock_table_free(&s->answer);
	s->events = POLLIN;
	s->wire_until_us = wire->rest_until_us;
}

/*
 * A procedure has answered: let the answer be as a function's.  DLOCK_STEP_WAIT: it is to
 * be called again, or for the next name.
 */
static dlock_step
take_call(dlock_session *s, pg_wire *wire)
{
	dlock_table list = {0};
	int64_t		now_us = dlock_now_us();

	if (now_us < wire->wait_until_us && dlock_session_value(s, 0, 0) == NULL)
	{
		pause_before_asking(s, wire, now_us);
		return DLOCK_STEP_WAIT;
	}
	if (s->shape == DLOCK_SHAPE_ROWS)
	{
		/* a list of the names, and one of their places */
		if (s->answer.nvalues != 2 || s->answer.values[0] == NULL ||
			!dlock_table_from_array(&list, s->answer.values[0]))
			s->answer.failed = true;
		else
		{
			dlock_table_free(&s->answer);
			s->answer = list;
		}
		return DLOCK_STEP_DONE;
	}
	if (s->shape != DLOCK_SHAPE_EACH)
		return DLOCK_STEP_DONE;
	if (!dlock_table_from_array(&list, s->arguments.values[0]) || list.failed)
		s->answer.failed = true;
	else
	{
		const char *value = dlock_session_value(s, 0, 0);

		if (wire->neach == 0)
			dlock_table_column(&wire->done, "name");
		if (value != NULL && strcmp(value, "1") == 0)
			dlock_table_value(&wire->done, list.values[wire->neach],
							  strlen(list.values[wire->neach]));
		wire->neach++;
	}
	if (!s->answer.failed && wire->neach < list.nvalues)
	{
		dlock_table_free(&list);
		dlock_table_free(&s->answer);
		wire->phase = PG_CALLING;
		send_call(s, wire);
		return DLOCK_STEP_WAIT;
	}
	dlock_table_free(&list);
	if (!s->answer.failed)
	{
		dlock_table_free(&s->answer);
		s->answer = wire->done;
		memset(&wire->done, 0, sizeof(wire->done));
	}
	return DLOCK_STEP_DONE;
}

static dlock_step
pg_step(dlock_session *s)
{
	pg_wire    *wire = s->wire;
	pg_memory  *memory = s->memory;
	dlock_step	step;

	if (wire->phase == PG_CONNECTING)
	{
		step = step_connecting(s, wire);
		if (step != DLOCK_STEP_DONE || wire->phase == PG_READY)
			return step;
	}
	if (wire->phase == PG_CALLING && s->sql.failed)
	{
		wire->phase = PG_READY;
		dlock_error_set(&s->error, DLOCK_UNAVAILABLE, "out of memory");
		return DLOCK_STEP_FAILED;
	}
	if (wire->phase == PG_CALLING && s->function != NULL && memory->schema == NULL)
	{
		wire->phase = PG_READY;
		dlock_error_from_server(&s->error, DLOCK_POSTGRESQL, "42883", 0,
								"the extension dlock is not in this database");
		/* somebody replaces it, or plain/dlock.sql by it */
		if (memory->was_there)
			s->error.error_class = DLOCK_UNAVAILABLE;
		/* it may be created later, so a new connection looks again */
		s->error.disconnected = true;
		return DLOCK_STEP_FAILED;
	}
	if (wire->phase == PG_RESTING)
	{
		if (PQconsumeInput(wire->connection) == 0)
			return broken(s, wire);
		if (dlock_now_us() >= wire->rest_until_us)
		{
			wire->phase = PG_CALLING;
			send_call(s, wire);
		}
		return DLOCK_STEP_WAIT;
	}
	step = step_result(s, wire);
	if (step != DLOCK_STEP_DONE)
		return step;
	if (wire->phase == PG_ASKING)
	{
		step = take_schema(s, wire);
		if (step != DLOCK_STEP_DONE || !wire->asks_again)
			return step;
		pg_send(s);
		return DLOCK_STEP_WAIT;
	}
	wire->phase = PG_READY;
	step = take_result(s, wire);
	if (step == DLOCK_STEP_FAILED && s->function != NULL && !wire->asks_again &&
		may_have_changed(memory, s->error.sqlstate))
	{
		forget_schema(memory);
		dlock_error_clear(&s->error);
		wire->asks_again = true;
		wire->phase = PG_ASKING;
		send_query(s, wire, dlock_pg_schema_query, NULL, 0);
		return DLOCK_STEP_WAIT;
	}
	wire->asks_again = false;
	if (step == DLOCK_STEP_FAILED && s->function != NULL &&
		(strcmp(s->error.sqlstate, "42883") == 0 ||
		 strcmp(s->error.sqlstate, "3F000") == 0))
	{
		forget_schema(memory);
		s->error.disconnected = true;
	}
	return step == DLOCK_STEP_DONE && procedure_of(s) != NULL ? take_call(s, wire) : step;
}

const dlock_transport dlock_pg_transport = {
	.prepare = pg_prepare,
	.check = pg_check,
	.connect = pg_connect,
	.send = pg_send,
	.step = pg_step,
	.close = pg_close,
	.free = pg_free,
};
