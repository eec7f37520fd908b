/*
 * mysql.c
 *	  The transport to MySQL and MariaDB: MariaDB's Connector/C, without waiting.
 *
 * For each operation the library has a _start function that begins it and a
 * _cont function that goes on with it; the operation keeps a stack of its own
 * in between.  So an operation under way cannot just be forgotten: to close, we
 * shut the socket and let the operation run into its error.
 *
 * If a host has several addresses, the library waits in connect() for all but the
 * first, since only its first socket does not block; and it waits for one that took
 * the connection and is silent.  So we look the host up, and let the library have one
 * address at a time, each for its share of the time.  Only if certificates are
 * verified, which it does by the name, does it get the name.
 *
 * Text goes to the server as literals of bytes.  What they mean depends neither on
 * its sql_mode nor on a character set: see add_bytes().  Answers come in the character
 * set of the last SET NAMES; init_connect or an option file may have made one, so
 * we do, first of all.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include "session.h"

#include <fcntl.h>
#include <inttypes.h>
#include <mysql.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "errors.h"

/* The servers' error of a function that there is not; MySQL's, without a database. */
#define NO_SUCH_FUNCTION	1305
#define NO_DATABASE			1046

typedef enum mysql_operation
{
	MYSQL_NOTHING,
	MYSQL_CONNECT,
	MYSQL_SET_NAMES,
	MYSQL_QUERY,
	MYSQL_STORE,
	MYSQL_NEXT,
} mysql_operation;

typedef struct mysql_wire
{
	MYSQL	   *mysql;
	mysql_operation operation;
	bool		started;
	int			waits;			/* what the operation waits for; 0: it has ended */
	int64_t		timeout_us;		/* when the library wants to hear of it */
	/* Of MYSQL_CONNECT: the addresses of the host, or NULL to go by its name. */
	char	  **addresses;
	size_t		address;		/* the one that is being tried */
	size_t		naddresses;
	int64_t		share_until_us; /* how long */
	/* What operations have returned. */
	MYSQL	   *connected;
	MYSQL_RES  *result;
	int			status;
} mysql_wire;

static pthread_once_t library_once = PTHREAD_ONCE_INIT;

static void
init_library(void)
{
	mysql_library_init(0, NULL, NULL);
}

static bool
mysql_check(dlock_session *s)
{
	(void) s;
	pthread_once(&library_once, init_library);
	return true;
}

static void
mysql_free(dlock_session *s)
{
	(void) s;
}

/*
 * Add a string as a literal of its bytes.  People read the server's list of processes,
 * so it is plain text if all of it is printable ASCII without ' and \.  Nothing then
 * ends the literal or changes a byte in it: no sql_mode (ANSI_QUOTES is about ", and
 * NO_BACKSLASH_ESCAPES about \), and no character set: in all that a client can
 * speak, a character of several bytes begins with one that is not ASCII, and after
 * _binary nothing is converted.  Everything else is hexadecimal.
 */
static void
add_bytes(dlock_text *sql, const char *bytes, size_t length)
{
	static const char digits[] = "0123456789abcdef";
	bool		is_plain = true;

	for (size_t i = 0; i < length; i++)
		if (bytes[i] < ' ' || bytes[i] > '~' || bytes[i] == '\'' ||
			bytes[i] == '\\')
			is_plain = false;
	if (is_plain)
	{
		dlock_text_add(sql, "_binary'");
		dlock_text_bytes(sql, bytes, length);
	}
	else
	{
		dlock_text_add(sql, "x'");
		for (size_t i = 0; i < length; i++)
		{
			unsigned char byte = (unsigned char) bytes[i];
			char		pair[2] = {digits[byte >> 4], digits[byte & 15]};

			dlock_text_bytes(sql, pair, 2);
		}
	}
	dlock_text_add(sql, "'");
}

/* Add an argument as a literal. */
static void
add_literal(dlock_text *sql, const dlock_arg *arg)
{
	dlock_text	list = {0};

	switch (arg->type)
	{
		case DLOCK_ARG_TEXT:
			if (arg->text != NULL)
			{
				add_bytes(sql, arg->text, strlen(arg->text));
				return;
			}
			break;
		case DLOCK_ARG_INTEGER:
			dlock_text_format(sql, "%" PRId64, arg->integer);
			return;
		case DLOCK_ARG_DURATION:
			dlock_text_duration(sql, arg->integer);
			return;
		case DLOCK_ARG_TEXTS:
		case DLOCK_ARG_INTEGERS:
			dlock_text_list(&list, DLOCK_MYSQL, arg);
			if (list.failed)
				sql->failed = true;
			else
				add_bytes(sql, list.data, list.length);
			dlock_text_free(&list);
			return;
		case DLOCK_ARG_NULL:
			break;
	}
	dlock_text_add(sql, "NULL");
}

/* Put the arguments into a statement of the program's, in place of $1 and so on. */
static void
fill_in(dlock_session *s, const dlock_arg *args, size_t nargs)
{
	dlock_text	sql = {0};
	const char *c = s->sql.data;

	while (c != NULL && *c != '\0')
	{
		size_t		length = strcspn(c, "$");
		char	   *end;
		unsigned long number;

		dlock_text_bytes(&sql, c, length);
		c += length;
		if (*c == '\0')
			break;
		if (c[1] < '0' || c[1] > '9')
		{
			dlock_text_bytes(&sql, c++, 1);
			continue;
		}
		number = strtoul(c + 1, &end, 10);
		if (number < 1 || number > nargs)
		{
			dlock_error_set(&s->error, DLOCK_MISUSE,
							"the statement names argument $%lu, and there are %zu",
							number, nargs);
			s->failed = true;
			break;
		}
		add_literal(&sql, &args[number - 1]);
		c = end;
	}
	dlock_text_free(&s->sql);
	s->sql = sql;
}

/* Write a statement that calls a function. */
static void
add_call(dlock_text *sql, const char *call, const dlock_arg *args, size_t nargs)
{
	dlock_text_format(sql, "%s(", call);
	for (size_t i = 0; i < nargs; i++)
	{
		if (i > 0)
			dlock_text_add(sql, ", ");
		add_literal(sql, &args[i]);
	}
	dlock_text_add(sql, ")");
}

/*
 * Write a statement that calls dlock_release_after() for each of several names, the first
 * argument, whose tokens are the last one.
 */
static void
add_call_for_each(dlock_text *sql, const dlock_arg *args)
{
	dlock_text_add(sql, "SELECT COALESCE(CONVERT(JSON_ARRAYAGG(l.name) USING utf8mb4), '[]') "
				   "FROM JSON_TABLE(CONVERT(");
	add_literal(sql, &args[0]);
	dlock_text_add(sql, " USING utf8mb4), '$[*]' COLUMNS (place FOR ORDINALITY, "
				   "name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$')) AS l "
				   "WHERE dlock_release_after(l.name, ");
	add_literal(sql, &args[1]);
	dlock_text_add(sql, ", ");
	add_literal(sql, &args[2]);
	dlock_text_add(sql, ", JSON_EXTRACT(CONVERT(");
	add_literal(sql, &args[3]);
	dlock_text_add(sql, " USING utf8mb4), CONCAT('$[', l.place - 1, ']'))) = 1");
}

static void
mysql_prepare_call(dlock_session *s, const dlock_arg *args, size_t nargs)
{
	char		call[64];

	if (s->function == NULL)
	{
		fill_in(s, args, nargs);
		return;
	}
	if (s->may_renew)
		add_call(s->cannot_leave ? &s->sql : &s->renewal, s->shape == DLOCK_SHAPE_EACH ?
				 "SELECT dlock_renew_many" : "SELECT dlock_renew", args, nargs);
	if (s->sql.length > 0)
		return;
	snprintf(call, sizeof(call), "SELECT %s", s->function);
	if (s->shape == DLOCK_SHAPE_EACH && nargs == 4)
		add_call_for_each(&s->sql, args);
	else
		add_call(&s->sql, strcmp(s->function, "dlock_guard") == 0 ?
				 "CALL dlock.guard" : call, args, nargs);
}

/* Say whether the URL wants certificates to be verified. */
static bool
wants_verification(const dlock_url *url)
{
	const char *verify = url->parameters[DLOCK_URL_SSL_VERIFY];

	return verify != NULL ? verify[0] == '1' :
		url->parameters[DLOCK_URL_SSL_CA] != NULL;
}

static void
set_options(const dlock_url *url, MYSQL *mysql)
{
	static const enum mysql_option options[DLOCK_URL_PARAMETERS] = {
		[DLOCK_URL_SSL_CA] = MYSQL_OPT_SSL_CA,
		[DLOCK_URL_SSL_CERT] = MYSQL_OPT_SSL_CERT,
		[DLOCK_URL_SSL_KEY] = MYSQL_OPT_SSL_KEY,
		[DLOCK_URL_DEFAULT_FILE] = MYSQL_READ_DEFAULT_FILE,
	};
	const char *verify = url->parameters[DLOCK_URL_SSL_VERIFY];
	unsigned int no_files = 0;
	unsigned int tcp = MYSQL_PROTOCOL_TCP;
	my_bool		on = 1;
	my_bool		verified = wants_verification(url);
	bool		tls = verify != NULL;

	mysql_options(mysql, MYSQL_OPT_NONBLOCK, NULL);
	mysql_options(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4");
	mysql_options(mysql, MYSQL_READ_DEFAULT_GROUP, "dlock");
	/* a server must not be able to ask for files of ours */
	mysql_options(mysql, MYSQL_OPT_LOCAL_INFILE, &no_files);
	mysql_options4(mysql, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "dlock");
	/* the library takes the socket of "localhost" whatever the port is */
	if (url->port != 0 && url->parameters[DLOCK_URL_SOCKET] == NULL)
		mysql_options(mysql, MYSQL_OPT_PROTOCOL, &tcp);
	for (int i = 0; i < DLOCK_URL_PARAMETERS; i++)
		if (url->parameters[i] != NULL && i != DLOCK_URL_SOCKET &&
			i != DLOCK_URL_SSL_VERIFY)
		{
			mysql_options(mysql, options[i], url->parameters[i]);
			tls |= i != DLOCK_URL_DEFAULT_FILE;
		}
	if (tls)
		mysql_options(mysql, MYSQL_OPT_SSL_ENFORCE, &on);

	/*
	 * Versions of the library differ in what they do if nobody says.  An option
	 * file is read after this, and may say something else.
	 */
	mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verified);
}

/* Begin the operation, or go on with it; "ready" says what has come. */
static void
run(dlock_session *s, mysql_wire *wire, int ready)
{
	static const char set_names[] = "SET NAMES utf8mb4";
	const dlock_url *url = &s->url;
	bool		start = !wire->started;

	wire->started = true;
	switch (wire->operation)
	{
		case MYSQL_CONNECT:
			wire->waits = !start ?
				mysql_real_connect_cont(&wire->connected, wire->mysql, ready) :
				mysql_real_connect_start(&wire->connected, wire->mysql,
										 wire->addresses != NULL ?
										 wire->addresses[wire->address] : url->host,
										 url->user, url->password, url->database,
										 url->port,
										 url->parameters[DLOCK_URL_SOCKET],
										 CLIENT_MULTI_RESULTS);
			break;
		case MYSQL_SET_NAMES:
			wire->waits = !start ?
				mysql_real_query_cont(&wire->status, wire->mysql, ready) :
				mysql_real_query_start(&wire->status, wire->mysql, set_names,
									   sizeof(set_names) - 1);
			break;
		case MYSQL_QUERY:
			wire->waits = !start ?
				mysql_real_query_cont(&wire->status, wire->mysql, ready) :
				mysql_real_query_start(&wire->status, wire->mysql, s->sql.data,
									   s->sql.length);
			break;
		case MYSQL_STORE:
			wire->waits = !start ?
				mysql_store_result_cont(&wire->result, wire->mysql, ready) :
				mysql_store_result_start(&wire->result, wire->mysql);
			break;
		case MYSQL_NEXT:
			wire->waits = !start ?
				mysql_next_result_cont(&wire->status, wire->mysql, ready) :
				mysql_next_result_start(&wire->status, wire->mysql);
			break;
		case MYSQL_NOTHING:
			wire->waits = 0;
			break;
	}

	s->fd = mysql_get_socket(wire->mysql);
	/* it may be another one for each address that is tried */
	if (wire->operation == MYSQL_CONNECT && s->fd >= 0)
		fcntl(s->fd, F_SETFD, FD_CLOEXEC);
	s->events = 0;
	if ((wire->waits & MYSQL_WAIT_READ) != 0)
		s->events |= POLLIN;
	if ((wire->waits & MYSQL_WAIT_WRITE) != 0)
		s->events |= POLLOUT;
	if ((wire->waits & MYSQL_WAIT_EXCEPT) != 0)
		s->events |= POLLPRI;
	wire->timeout_us = (wire->waits & MYSQL_WAIT_TIMEOUT) == 0 ? DLOCK_NEVER :
		dlock_now_us() + (int64_t) mysql_get_timeout_value_ms(wire->mysql) * 1000;
	/* if it has ended, the next step has something to do */
	s->wire_until_us = wire->waits == 0 ? 0 : wire->timeout_us;
	if (wire->operation == MYSQL_CONNECT && wire->share_until_us < s->wire_until_us)
		s->wire_until_us = wire->share_until_us;
}

/* Begin to connect to the present address. */
static bool
begin(dlock_session *s, mysql_wire *wire)
{
	int64_t		now_us = dlock_now_us();

	wire->mysql = mysql_init(NULL);
	if (wire->mysql == NULL)
		return false;
	set_options(&s->url, wire->mysql);
	wire->operation = MYSQL_CONNECT;
	wire->started = false;
	wire->share_until_us = wire->address + 1 >= wire->naddresses ? DLOCK_NEVER :
		now_us + (s->hurry_us - now_us) /
		(int64_t) (wire->naddresses - wire->address);
	run(s, wire, 0);
	return true;
}

/* End the operation under way, and close the connection. */
static void
abandon(dlock_session *s, mysql_wire *wire)
{
	for (int i = 0; wire->waits != 0 && i < 100; i++)
	{
		int			fd = mysql_get_socket(wire->mysql);

		if (fd >= 0)
			shutdown(fd, SHUT_RDWR);
		run(s, wire, MYSQL_WAIT_TIMEOUT);
	}
	mysql_free_result(wire->result);
	wire->result = NULL;
	mysql_close(wire->mysql);
	wire->mysql = NULL;
}

static void
free_wire(dlock_session *s, mysql_wire *wire)
{
	if (wire != NULL)
		dlock_addresses_free(wire->addresses);
	free(wire);
	s->wire = NULL;
}

/* Say whether the library verifies certificates, as the URL or an option file says. */
static bool
verifies(mysql_wire *wire)
{
	my_bool		verified = 0;

	mysql_get_optionv(wire->mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verified);
	return verified != 0;
}

static void
mysql_connect(dlock_session *s)
{
	const dlock_url *url = &s->url;
	mysql_wire *wire = calloc(1, sizeof(*wire));
	bool		begun = wire != NULL;

	/* without a port, "localhost" is a socket */
	if (begun && url->host != NULL && url->parameters[DLOCK_URL_SOCKET] == NULL &&
		(url->port != 0 || strcmp(url->host, "localhost") != 0) &&
		!wants_verification(url))
		wire->naddresses = dlock_addresses(url->host, &wire->addresses);
	begun = begun && begin(s, wire);
	if (begun && wire->addresses != NULL && verifies(wire))
	{
		/* an option file says so, which has been read only now */
		abandon(s, wire);
		dlock_addresses_free(wire->addresses);
		wire->addresses = NULL;
		wire->naddresses = 0;
		begun = begin(s, wire);
	}
	if (!begun)
	{
		free_wire(s, wire);
		dlock_error_set(&s->error, DLOCK_UNAVAILABLE, "out of memory");
		return;
	}
	s->wire = wire;
}

/* Turn to the next address, if there is one; "silent" if this one has not failed. */
static bool
go_on(dlock_session *s, mysql_wire *wire, bool silent)
{
	if (wire->operation != MYSQL_CONNECT || wire->address + 1 >= wire->naddresses ||
		(silent && dlock_now_us() < wire->share_until_us))
		return false;
	abandon(s, wire);
	wire->address++;
	return begin(s, wire);
}

/* Run the operation as far as it goes; returns whether it has ended. */
static bool
run_on(dlock_session *s, mysql_wire *wire)
{
	if (!wire->started)
		run(s, wire, 0);
	while (wire->waits != 0)
	{
		struct pollfd p = {.fd = s->fd, .events = s->events};
		int			ready = 0;

		if (poll(&p, 1, 0) > 0)
		{
			if ((p.revents & POLLOUT) != 0)
				ready |= MYSQL_WAIT_WRITE;
			if ((p.revents & POLLPRI) != 0)
				ready |= MYSQL_WAIT_EXCEPT;
			/* the read or the write will find the error */
			if ((p.revents & ~(POLLOUT | POLLPRI)) != 0)
				ready |= wire->waits & (MYSQL_WAIT_READ | MYSQL_WAIT_WRITE);
		}
		else if (go_on(s, wire, true))
			continue;
		else if (wire->mysql != NULL && dlock_now_us() >= wire->timeout_us)
			ready = MYSQL_WAIT_TIMEOUT;
		if (ready == 0)
			return false;
		run(s, wire, ready);
	}
	s->wire_until_us = DLOCK_NEVER;
	return true;
}

static void
turn_to(mysql_wire *wire, mysql_operation operation)
{
	wire->operation = operation;
	wire->started = false;
	wire->waits = 0;
}

static void
mysql_close_wire(dlock_session *s)
{
	mysql_wire *wire = s->wire;

	if (wire->mysql != NULL)
		abandon(s, wire);
	free_wire(s, wire);
}

static dlock_step
out_of_memory(dlock_session *s)
{
	dlock_error_set(&s->error, DLOCK_UNAVAILABLE, "out of memory");
	s->error.disconnected = true;
	return DLOCK_STEP_FAILED;
}

/* Take the library's error. */
static dlock_step
failed(dlock_session *s, mysql_wire *wire)
{
	/* errors of the client and the servers for a lost connection */
	static const unsigned int lost[] = {
		1053, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2006, 2013, 2027, 2055,
		3032, 4031,
	};
	unsigned int number = mysql_errno(wire->mysql);

	dlock_error_from_server(&s->error, DLOCK_MYSQL, mysql_sqlstate(wire->mysql),
							number, mysql_error(wire->mysql));
	s->error.disconnected = wire->operation == MYSQL_CONNECT ||
		wire->operation == MYSQL_SET_NAMES;
	for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++)
		if (lost[i] == number)
			s->error.disconnected = true;
	turn_to(wire, MYSQL_NOTHING);
	return DLOCK_STEP_FAILED;
}

/* Make sure that a lost network is noticed within a minute. */
static void
set_keep_alive(int fd)
{
	static const struct
	{
		int			name;
		int			value;
	}			options[] =
	{
#ifdef TCP_KEEPIDLE
		{TCP_KEEPIDLE, 20},
#else							/* macOS */
		{TCP_KEEPALIVE, 20},
#endif
		{TCP_KEEPINTVL, 10}, {TCP_KEEPCNT, 3},
#ifdef TCP_USER_TIMEOUT
		{TCP_USER_TIMEOUT, 30000},
#endif
	};
	int			on = 1;

	/* on a Unix socket they are errors, which do no harm */
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		setsockopt(fd, IPPROTO_TCP, options[i].name, &options[i].value,
				   sizeof(options[i].value));
}

static void
mysql_send(dlock_session *s)
{
	turn_to(s->wire, MYSQL_QUERY);
	run(s, s->wire, 0);
}

/* Take the rows of the first result that has any. */
static void
take_rows(dlock_session *s, mysql_wire *wire)
{
	MYSQL_FIELD *fields = mysql_fetch_fields(wire->result);
	unsigned int columns = mysql_num_fields(wire->result);
	MYSQL_ROW	row;

	if (s->answer.ncolumns == 0)
	{
		for (unsigned int i = 0; i < columns; i++)
			dlock_table_column(&s->answer, fields[i].name);
		while ((row = mysql_fetch_row(wire->result)) != NULL)
		{
			const unsigned long *lengths = mysql_fetch_lengths(wire->result);

			for (unsigned int i = 0; i < columns; i++)
				if (row[i] == NULL)
					dlock_table_null(&s->answer);
				else
					dlock_table_value(&s->answer, row[i], lengths[i]);
		}
	}
	mysql_free_result(wire->result);
	wire->result = NULL;
}

/*
 * The call has failed: if that is because the server does not have dlock_release_after(),
 * and the lease may be renewed instead, do so.
 */
static bool
renews_instead(dlock_session *s, const mysql_wire *wire)
{
	dlock_text	sql = s->sql;
	unsigned int code = mysql_errno(wire->mysql);

	if ((code != NO_SUCH_FUNCTION && code != NO_DATABASE) || s->renewal.length == 0)
		return false;
	s->cannot_leave = true;
	s->sql = s->renewal;
	s->renewal = sql;
	dlock_text_clear(&s->renewal);
	return true;
}

static dlock_step
mysql_step(dlock_session *s)
{
	mysql_wire *wire = s->wire;

	while (wire->mysql != NULL && run_on(s, wire))
		switch (wire->operation)
		{
			case MYSQL_CONNECT:
				/* as the library does, if connect() has failed */
				if (wire->mysql != NULL && wire->connected == NULL &&
					(mysql_errno(wire->mysql) == 2002 ||
					 mysql_errno(wire->mysql) == 2003) && go_on(s, wire, false))
					continue;
				if (wire->mysql == NULL)
					return out_of_memory(s);
				if (wire->connected == NULL)
					return failed(s, wire);
				set_keep_alive(s->fd);
				turn_to(wire, MYSQL_SET_NAMES);
				break;
			case MYSQL_SET_NAMES:
				if (wire->status != 0)
					return failed(s, wire);
				turn_to(wire, MYSQL_NOTHING);
				return DLOCK_STEP_DONE;
			case MYSQL_QUERY:
				if (wire->status != 0 && renews_instead(s, wire))
				{
					turn_to(wire, MYSQL_QUERY);
					break;
				}
				if (wire->status != 0)
					return failed(s, wire);
				turn_to(wire, MYSQL_STORE);
				break;
			case MYSQL_STORE:
				if (wire->result != NULL)
					take_rows(s, wire);
				else if (mysql_errno(wire->mysql) != 0)
					return failed(s, wire);
				turn_to(wire, MYSQL_NEXT);
				break;
			case MYSQL_NEXT:
				/* 0: there is one more; -1: there is none */
				if (wire->status > 0)
					return failed(s, wire);
				turn_to(wire, wire->status == 0 ? MYSQL_STORE : MYSQL_NOTHING);
				if (wire->operation == MYSQL_NOTHING)
					return DLOCK_STEP_DONE;
				break;
			case MYSQL_NOTHING:
				return DLOCK_STEP_DONE;
		}
	if (wire->mysql == NULL)
		return out_of_memory(s);
	return DLOCK_STEP_WAIT;
}

const dlock_transport dlock_mysql_transport = {
	.prepare = mysql_prepare_call,
	.check = mysql_check,
	.connect = mysql_connect,
	.send = mysql_send,
	.step = mysql_step,
	.close = mysql_close_wire,
	.free = mysql_free,
};
