/*
 * mysql_compat.h
 *	  MySQL and MariaDB under one name: the caller, and how to raise an error.
 *
 * All of this is for the thread that executes the statement, from a UDF's
 * _init function, the function itself, or its _deinit function.
 *
 * The caller is the account whose privileges count at this place, as CURRENT_USER()
 * names it: the login's account, or the definer's inside a stored procedure, function,
 * trigger or event with SQL SECURITY DEFINER and in everything that those call.  A view's
 * definer does not become the caller, although CURRENT_USER() inside the view names it.
 * COM_CHANGE_USER changes the caller, SET ROLE does not.  It is never the name that the
 * client gave: all clients that match an anonymous account are one caller, whose user
 * name is empty.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_MYSQL_COMPAT_H
#define DLOCK_MYSQL_COMPAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum dlock_server
{
	DLOCK_SERVER_UNKNOWN,
	DLOCK_SERVER_MYSQL,
	DLOCK_SERVER_MARIADB
} dlock_server;

/*
 * Room for the two halves of any account: MariaDB's user names have up to 128
 * characters of 4 bytes at most, host names on both 255.
 */
#define DLOCK_USER_SIZE		513
#define DLOCK_HOST_SIZE		256

/* Whether an account may see, and end, the leases of others. */
typedef enum dlock_rights
{
	DLOCK_RIGHTS_UNKNOWN,
	DLOCK_RIGHTS_PLAIN,			/* it may not */
	DLOCK_RIGHTS_OPERATOR
} dlock_rights;

/* A session of the server; opaque. */
struct THD;

extern dlock_server dlock_server_kind(void);
extern const char *dlock_server_lacks(void);
extern bool dlock_server_is_tried(void);
extern const char *dlock_server_socket(void);
extern bool dlock_server_has_data_in(const char *folder);
extern bool dlock_server_user(char *name, size_t size);
extern bool dlock_server_is_ending(void);
extern const char *dlock_appliers_query(void);
extern unsigned long dlock_read_only_recovery(void);
extern bool dlock_copy_service(const char *name, void *to, size_t size);

extern bool dlock_thd_account(struct THD *thd, char *user, size_t user_size,
							  char *host, size_t host_size);
extern dlock_rights dlock_thd_known_rights(struct THD *thd);
extern bool dlock_caller_account(char *user, size_t user_size,
								 char *host, size_t host_size);
extern uint64_t dlock_caller_connection_id(void);
extern struct THD *dlock_caller_thd(void);
extern bool dlock_thd_killed(const struct THD *thd);
extern bool dlock_thd_connected(struct THD *thd);
extern void dlock_wait_begin(void);
extern void dlock_wait_end(void);
extern bool dlock_caller_is_event(void);
extern dlock_rights dlock_caller_known_rights(void);
extern bool dlock_caller_is_operator(void);
extern bool dlock_caller_is_applier(void);
extern bool dlock_caller_in_transaction(void);
extern int	dlock_caller_command(void);
extern bool dlock_caller_explains(void);
extern bool dlock_caller_is_repeated(void);

extern const char *dlock_show_state(const char *state);
extern void dlock_log(const char *line);

extern bool dlock_raise(const char *sqlstate, const char *format,...)
			__attribute__((format(printf, 2, 3)));

#endif							/* DLOCK_MYSQL_COMPAT_H */
