/*
 * etcd.c
 *	  Locks in etcd, as its own concurrency package has them, over HTTP.
 *
 * "Where" is the URL of the server, whose gateway takes JSON.  A client has one
 * lease.  For a lock it puts a key of its own under the lock's prefix, with the
 * lease, in the transaction that also asks for the oldest key there; it has
 * the lock when that is its own, else it watches the last key before its own.
 * Many locks are one transaction: all of them or none.
 *
 * Keys are in base64 and numbers are strings.  Answers are searched for what is
 * needed; the gateway's spelling is fixed.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

#define KEY_SIZE		128		/* in base64 */

typedef struct Buffer
{
	char		text[MAX_BATCH * 512];
	size_t		len;
} Buffer;

typedef struct Connection
{
	CURL	   *http;
	CURL	   *watch;			/* ends with each event */
	struct curl_slist *headers;
	const char *url;
	char		lease[24];
	Buffer		request;
	Buffer		answer;
} Connection;

static size_t
receive(char *data, size_t size, size_t n, void *context)
{
	Buffer	   *answer = context;

	if (answer->len + n >= sizeof(answer->text))
		fail("an answer is too long");
	memcpy(answer->text + answer->len, data, n);
	answer->len += n;
	answer->text[answer->len] = '\0';
	return n;
}

/* Of a watch: stop, by taking nothing, when the key has been deleted. */
static size_t
receive_event(char *data, size_t size, size_t n, void *context)
{
	receive(data, size, n, context);
	return strstr(((Buffer *) context)->text, "\"DELETE\"") ? 0 : n;
}

static CURL *
open_http(Connection *c, curl_write_callback receiver)
{
	CURL	   *http = curl_easy_init();

	if (http == NULL)
		fail("out of memory");
	curl_easy_setopt(http, CURLOPT_HTTPHEADER, c->headers);
	curl_easy_setopt(http, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(http, CURLOPT_WRITEFUNCTION, receiver);
	curl_easy_setopt(http, CURLOPT_WRITEDATA, &c->answer);
	curl_easy_setopt(http, CURLOPT_POSTFIELDS, c->request.text);
	return http;
}

/* Add to the request. */
static void __attribute__((format(printf, 2, 3)))
add(Connection *c, const char *format,...)
{
	Buffer	   *request = &c->request;
	size_t		room = sizeof(request->text) - request->len;
	va_list		args;
	int			n;

	va_start(args, format);
	n = vsnprintf(request->text + request->len, room, format, args);
	va_end(args);
	if (n < 0 || (size_t) n >= room)
		fail("a request is too long");
	request->len += (size_t) n;
}

/* Send the request. */
static void
post(Connection *c, CURL *http, const char *path)
{
	char		url[256];
	CURLcode	code;
	long		status;

	snprintf(url, sizeof(url), "%s%s", c->url, path);
	curl_easy_setopt(http, CURLOPT_URL, url);
	curl_easy_setopt(http, CURLOPT_POSTFIELDSIZE, (long) c->request.len);
	c->answer.len = 0;
	code = curl_easy_perform(http);
	if (code != CURLE_OK && !(http == c->watch && code == CURLE_WRITE_ERROR))
		fail("%s: %s", path, curl_easy_strerror(code));
	curl_easy_getinfo(http, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200)
		fail("%s: %s", path, c->answer.text);
	c->request.len = 0;
}

/* What follows a word in the answer, from a place on; NULL if it is not there. */
static const char *
after(const char *text, const char *word)
{
	const char *found = text ? strstr(text, word) : NULL;

	return found ? found + strlen(word) : NULL;
}

/* The number that follows a word in the answer. */
static long
number_after(const char *text, const char *word)
{
	const char *found = after(text, word);

	if (found == NULL)
		fail("no %s in the answer %s", word, text);
	return atol(found);
}

static void
encode(char *base64, const char *text)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	"abcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t		len = strlen(text);

	for (size_t i = 0; i < len; i += 3)
	{
		unsigned	bits = (unsigned char) text[i] << 16;

		if (i + 1 < len)
			bits |= (unsigned) (unsigned char) text[i + 1] << 8;
		if (i + 2 < len)
			bits |= (unsigned char) text[i + 2];
		*base64++ = digits[bits >> 18];
		*base64++ = digits[bits >> 12 & 63];
		*base64++ = i + 1 < len ? digits[bits >> 6 & 63] : '=';
		*base64++ = i + 2 < len ? digits[bits & 63] : '=';
	}
	*base64 = '\0';
}

/* A client's own key of a lock. */
static void
own_key(const Connection *c, char *key, int lock)
{
	char		name[NAME_SIZE];
	char		text[2 * NAME_SIZE];

	lock_name(name, lock);
	snprintf(text, sizeof(text), "%s/%s", name, c->lease);
	encode(key, text);
}

/* All keys of a lock: the range of those that begin with its name and "/". */
static void
add_range(Connection *c, int lock)
{
	char		name[NAME_SIZE];
	char		text[2 * NAME_SIZE];
	char		from[KEY_SIZE];
	char		to[KEY_SIZE];

	lock_name(name, lock);
	snprintf(text, sizeof(text), "%s/", name);
	encode(from, text);
	snprintf(text, sizeof(text), "%s%c", name, '/' + 1);
	encode(to, text);
	add(c, "\"key\":\"%s\",\"range_end\":\"%s\"", from, to);
}

static void *
open_connection(const System *system, const char *where, int client)
{
	Connection *c = allocate(sizeof(Connection));

	c->url = where;
	c->headers = curl_slist_append(NULL, "Content-Type: application/json");
	c->headers = curl_slist_append(c->headers, "Expect:");
	c->http = open_http(c, receive);
	c->watch = open_http(c, receive_event);
	add(c, "{\"TTL\":%d}", TTL_SECONDS);
	post(c, c->http, "/v3/lease/grant");
	snprintf(c->lease, sizeof(c->lease), "%ld",
			 number_after(c->answer.text, "\"ID\":\""));
	return c;
}

static void
close_connection(void *client)
{
	Connection *c = client;

	add(c, "{\"ID\":%s}", c->lease);
	post(c, c->http, "/v3/lease/revoke");
	curl_easy_cleanup(c->http);
	curl_easy_cleanup(c->watch);
	curl_slist_free_all(c->headers);
	free(c);
}

static void
release(void *client, int lock)
{
	Connection *c = client;
	char		key[KEY_SIZE];

	own_key(c, key, lock);
	add(c, "{\"key\":\"%s\"}", key);
	post(c, c->http, "/v3/kv/deleterange");
	if (!after(c->answer.text, "\"deleted\":\"1\""))
		fail("could not release lock %d", lock);
}

/* Wait until the key that was put last before this revision has been deleted. */
static void
wait_for(Connection *c, int lock, long revision)
{
	for (;;)
	{
		const char *key;
		long		now;

		add(c, "{");
		add_range(c, lock);
		add(c, ",\"sort_order\":\"DESCEND\",\"sort_target\":\"CREATE\","
			"\"limit\":1,\"max_create_revision\":%ld}", revision - 1);
		post(c, c->http, "/v3/kv/range");
		key = after(c->answer.text, "\"key\":\"");
		if (key == NULL)
			return;
		now = number_after(c->answer.text, "\"revision\":\"");
		add(c, "{\"create_request\":{\"key\":\"%.*s\","
			"\"start_revision\":%ld,\"filters\":[\"NOPUT\"]}}",
			(int) strcspn(key, "\""), key, now + 1);
		post(c, c->watch, "/v3/watch");
	}
}

static bool
acquire(void *client, int lock, bool wait)
{
	Connection *c = client;
	char		key[KEY_SIZE];
	long		mine;
	const char *oldest;

	own_key(c, key, lock);
	add(c, "{\"compare\":[{\"target\":\"CREATE\",\"key\":\"%s\","
		"\"create_revision\":0}],\"success\":[{\"request_put\":"
		"{\"key\":\"%s\",\"lease\":%s}},{\"request_range\":{",
		key, key, c->lease);
	add_range(c, lock);
	add(c, ",\"sort_order\":\"ASCEND\",\"sort_target\":\"CREATE\","
		"\"limit\":1}}]}");
	post(c, c->http, "/v3/kv/txn");
	if (!after(c->answer.text, "\"succeeded\":true"))
		fail("has lock %d already", lock);
	mine = number_after(c->answer.text, "\"revision\":\"");
	oldest = after(c->answer.text, "\"response_range\"");
	if (number_after(oldest, "\"create_revision\":\"") == mine)
		return true;
	if (!wait)
	{
		release(c, lock);
		return false;
	}
	wait_for(c, lock, mine);
	return true;
}

/* If none of these locks has a key, put one for each. */
static void
acquire_many(void *client, int first, int count, bool *got)
{
	Connection *c = client;
	char		key[KEY_SIZE];
	bool		all;

	add(c, "{\"compare\":[");
	for (int i = 0; i < count; i++)
	{
		add(c, "%s{\"target\":\"CREATE\",\"create_revision\":0,",
			i > 0 ? "," : "");
		add_range(c, first + i);
		add(c, "}");
	}
	add(c, "],\"success\":[");
	for (int i = 0; i < count; i++)
	{
		own_key(c, key, first + i);
		add(c, "%s{\"request_put\":{\"key\":\"%s\",\"lease\":%s}}",
			i > 0 ? "," : "", key, c->lease);
	}
	add(c, "]}");
	post(c, c->http, "/v3/kv/txn");
	all = after(c->answer.text, "\"succeeded\":true") != NULL;
	for (int i = 0; i < count; i++)
		got[i] = all;
}

static int
release_many(void *client, int first, int count)
{
	Connection *c = client;
	char		key[KEY_SIZE];
	int			released = 0;
	const char *deleted;

	add(c, "{\"success\":[");
	for (int i = 0; i < count; i++)
	{
		own_key(c, key, first + i);
		add(c, "%s{\"request_delete_range\":{\"key\":\"%s\"}}",
			i > 0 ? "," : "", key);
	}
	add(c, "]}");
	post(c, c->http, "/v3/kv/txn");
	deleted = c->answer.text;
	while ((deleted = after(deleted, "\"deleted\":\"1\"")) != NULL)
		released++;
	return released;
}

/* One request keeps alive whatever has this lease. */
static int
renew(void *client, int first, int count)
{
	Connection *c = client;

	add(c, "{\"ID\":%s}", c->lease);
	post(c, c->http, "/v3/lease/keepalive");
	if (number_after(c->answer.text, "\"TTL\":\"") <= 0)
		fail("the lease has expired");
	return count;
}

const System etcd_systems[] =
{
	{.name = "etcd", .open = open_connection, .close = close_connection,
		.acquire = acquire, .release = release,
		.acquire_many = acquire_many, .release_many = release_many,
		.renew = renew},
	{.name = NULL}
};
