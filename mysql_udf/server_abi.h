/*
 * server_abi.h
 *	  What the library takes from the server that loads it.
 *
 * One library serves MySQL 9.7, MariaDB 10.11 and 11.8.  Their headers disagree on the same
 * names, and MariaDB's lack some fields that MySQL passes, so neither is used:
 * everything is declared here, once, by its name in the server's dynamic symbol table.
 * All symbols are weak, and NULL in a server that lacks them.  The comment at each says
 * which server exports it.  mysql_compat.c tells the two servers apart.  Only that file,
 * lease_connections.c (ends of connections), udf_reader.c (a status variable) and
 * udf_arguments.c (character sets) should use more of this than the UDF structures.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
#ifndef DLOCK_SERVER_ABI_H
#define DLOCK_SERVER_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ----------------------------------------------------------------
 * User-defined functions: the same on both
 *
 * MariaDB leaves UDF_ARGS.extension and UDF_INIT.extension alone.
 * ----------------------------------------------------------------
 */

enum Item_result
{
	STRING_RESULT,
	REAL_RESULT,
	INT_RESULT,
	ROW_RESULT,
	DECIMAL_RESULT
};

typedef struct UDF_INIT
{
	bool		maybe_null;		/* can the function return NULL? */
	unsigned int decimals;		/* of a real result */
	unsigned long max_length;	/* of a string result */
	char	   *ptr;			/* the function's own */
	bool		const_item;		/* may the server call it only once? */
	void	   *extension;		/* MySQL: for the service mysql_udf_metadata */
} UDF_INIT;

typedef struct UDF_ARGS
{
	unsigned int arg_count;
	enum Item_result *arg_type; /* may be set in _init, to have it converted */
	char	  **args;			/* NULL where the argument is NULL */
	unsigned long *lengths;		/* of strings, which have no end mark */
	char	   *maybe_null;
	char	  **attributes;		/* the text of the argument's expression */
	unsigned long *attribute_lengths;
	void	   *extension;		/* MySQL: for the service mysql_udf_metadata */
} UDF_ARGS;

/* Bytes that a string function may return without memory of its own. */
#define UDF_RESULT_SIZE		255

/* The room for what an _init function says of its failure. */
#define UDF_MESSAGE_SIZE	512

/* ----------------------------------------------------------------
 * Symbols
 * ----------------------------------------------------------------
 */

#define SERVER_SYMBOL(name)		__asm__(name) __attribute__((weak))

typedef struct THD THD;			/* a session; opaque */

/* A string of the server's, on both. */
typedef struct SERVER_STRING
{
	const char *str;
	size_t		length;
} SERVER_STRING;

/* MySQL: the calling session */
extern THD *mysql_current_thd(void)
			SERVER_SYMBOL("_Z19thd_get_current_thdv");

/* MariaDB: the calling session */
extern THD *mariadb_current_thd(void)
			SERVER_SYMBOL("_current_thd");

/* both: the connection id; 32 bits on MySQL, the rest of the word is noise */
extern unsigned long server_thread_id(THD *thd)
			SERVER_SYMBOL("thd_get_thread_id");

/*
 * both: which of these options a session has.  The bits have been the same for
 * as long as there has been InnoDB.
 */
extern int	server_test_options(const THD *thd, long long options)
			SERVER_SYMBOL("thd_test_options");

#define SERVER_NOT_AUTOCOMMIT	(1LL << 19)
#define SERVER_BEGIN			(1LL << 20)

/*
 * both: the number of the command that a session executes, SQLCOM_..., which differs
 * between them; and whether a command of this number changes data
 */
extern int	server_sql_command(const THD *thd)
			SERVER_SYMBOL("thd_sql_command");
extern bool server_is_update(int sql_command)
			SERVER_SYMBOL("_Z15is_update_query16enum_sql_command");

/*
 * MySQL, MariaDB: the text of the statement that the calling session executes.  For an
 * expression that a routine evaluates by itself, it is the text of the caller's statement.
 */
extern SERVER_STRING mysql_query(THD *thd)
			SERVER_SYMBOL("_Z16thd_query_unsafeP3THD");
extern const SERVER_STRING *mariadb_query(const THD *thd)
			SERVER_SYMBOL("thd_query_string");

/* MySQL, MariaDB: the format in which the session's changes are logged, if they are */
extern int	mysql_binlog_format(const THD *thd)
			SERVER_SYMBOL("_Z17thd_binlog_formatPK3THD");
extern int	mariadb_binlog_format(const THD *thd)
			SERVER_SYMBOL("thd_binlog_format");

#define SERVER_BINLOG_STATEMENT	1

/* both: KILL and MySQL's MAX_EXECUTION_TIME, not MariaDB's max_statement_time */
extern int	server_thd_killed(const THD *thd)
			SERVER_SYMBOL("thd_killed");

/* MariaDB: the same and max_statement_time; 0 is not killed */
extern int	mariadb_kill_level(const THD *thd)
			SERVER_SYMBOL("thd_kill_level");

/*
 * MariaDB, MySQL: the calling session begins to wait, and has waited; with a pool
 * of threads another one takes over its work meanwhile.  Not to be nested.
 */
extern void mariadb_wait_begin(THD *thd, int what)
			SERVER_SYMBOL("thd_wait_begin");
extern void mariadb_wait_end(THD *thd)
			SERVER_SYMBOL("thd_wait_end");
extern void mysql_wait_begin(THD *thd, int what)
			SERVER_SYMBOL("_Z14thd_wait_beginP3THDi");
extern void mysql_wait_end(THD *thd)
			SERVER_SYMBOL("_Z12thd_wait_endP3THD");

#define SERVER_WAIT_USER_LOCK	7	/* on both, as GET_LOCK() does */

/*
 * MySQL: is the client still there?  "cached" allows an old answer.  The second is its
 * form before that argument came, as in 8.4.0; a server has one of them.
 */
extern bool mysql_is_connected(THD *thd, bool cached)
			SERVER_SYMBOL("_ZN3THD12is_connectedEb");
extern bool mysql_is_connected_now(THD *thd)
			SERVER_SYMBOL("_ZN3THD12is_connectedEv");

/* MySQL: the session's socket, if it has one */
extern bool mysql_is_classic(const THD *thd)
			SERVER_SYMBOL("_ZNK3THD19is_classic_protocolEv");
extern int	mysql_vio_type(const THD *thd)
			SERVER_SYMBOL("_ZNK3THD12get_vio_typeEv");
extern int	mysql_socket_of(THD *thd)
			SERVER_SYMBOL("_Z10thd_get_fdP3THD");

#define SERVER_VIO_TCP		1
#define SERVER_VIO_SOCKET	2
#define SERVER_VIO_SSL		4

/* MariaDB: is the client still there? */
extern int	mariadb_is_connected(THD *thd)
			SERVER_SYMBOL("thd_is_connected");

/* MariaDB: does the session have a client, and is it not killed? */
extern bool mariadb_is_connection_alive(THD *thd)
			SERVER_SYMBOL("_Z23thd_is_connection_aliveP3THD");

/* MySQL: does the replication applier call? */
extern bool mysql_is_applier(THD *thd)
			SERVER_SYMBOL("_Z31thd_is_replication_slave_threadP3THD");

/* MariaDB: does the replication applier call? */
extern bool mariadb_is_applier(const THD *thd)
			SERVER_SYMBOL("thd_is_slave");

/*
 * MariaDB: the account whose privileges count here, see mysql_compat.h.  The
 * strings are the server's and may go with the statement: copy them.
 */
extern const char *mariadb_priv_user(THD *thd, size_t *length)
			SERVER_SYMBOL("thd_priv_user");
extern const char *mariadb_priv_host(THD *thd, size_t *length)
			SERVER_SYMBOL("thd_priv_host");

/*
 * MySQL: the same by way of the session's security context.  The properties
 * "priv_user" and "priv_host" are a SERVER_STRING, "privilege_super" is a
 * bool.  Both functions return false for success.  The services
 * "mysql_thd_security_context" and "mysql_security_context_options" are the
 * same functions, but cost a trip to the registry.
 */
extern bool mysql_security_context(THD *thd, void **context)
			SERVER_SYMBOL("_Z24thd_get_security_contextP3THDPP16Security_context");
extern bool mysql_security_option(void *context, const char *name, void *value)
			SERVER_SYMBOL("_Z27security_context_get_optionP16Security_contextPKcPv");

/*
 * MySQL: does a security context have a dynamic privilege?  With an active role the
 * context itself knows.  Without one the server looks the account up, under the lock of
 * the privileges' cache.  A change of accounts has that until it is committed.
 */
typedef struct mysql_grant
{
	bool		granted;
	bool		with_option;
} mysql_grant;

extern mysql_grant mysql_has_global_grant(void *context, const char *privilege,
										  size_t length)
			SERVER_SYMBOL("_ZN16Security_context16has_global_grantEPKcm");
extern size_t mysql_active_roles(const void *context)
			SERVER_SYMBOL("_ZNK16Security_context20get_num_active_rolesEv");

/* MariaDB: true if that account, with its role, lacks a global privilege */
extern bool mariadb_lacks_privilege(THD *thd, unsigned long long privilege,
									bool no_error)
			SERVER_SYMBOL("_Z19check_global_accessP3THD11privilege_tb");

#define MARIADB_SUPER				(1ULL << 15)
#define MARIADB_CONNECTION_ADMIN	(1ULL << 32)

/* both: what the list of processes shows of a session; answers what it showed before */
extern const char *server_show_state(THD *thd, const char *state,
									 const char *function, const char *file,
									 unsigned int line)
			SERVER_SYMBOL("set_thd_proc_info");

/*
 * MySQL, MariaDB: a line for the error log.  On MySQL it is a list of items, each its
 * kind and its value, of which the text is the last.
 */
extern int	mysql_log_message(int log,...)
			SERVER_SYMBOL("_Z11log_messageiz");
extern void mariadb_log_warning(const char *format,...)
			SERVER_SYMBOL("_Z17sql_print_warningPKcz");

#define MYSQL_ERROR_LOG		1
#define MYSQL_LOG_SEVERITY	(1 << 16)
#define MYSQL_LOG_TEXT		(1 << 18)
#define MYSQL_LOG_WARNING	2

/* MySQL: raise an error with any number and SQLSTATE; "level" 2 is an error */
extern void *mysql_raise_condition(THD *thd, unsigned int number,
								   const char *sqlstate, int level,
								   const char *message, bool fatal)
			SERVER_SYMBOL("_ZN3THD15raise_conditionEjPKcN13Sql_condition19enum_severity_levelES1_b");

#define MYSQL_LEVEL_ERROR	2

/* MariaDB: raise an error with the SQLSTATE that belongs to the number */
extern void mariadb_printf_error(unsigned int number, const char *format,
								 unsigned long flags,...)
			SERVER_SYMBOL("my_printf_error");

/*
 * MySQL: add status variables, up to one without a name; the list is copied, the
 * names are not.  There is no need to take them away: the library stays.  A variable of
 * type SERVER_SHOW_FUNCTION has a function as its value.  The server calls it whenever a
 * session reads the variable or all of them, with room for SERVER_SHOW_SIZE bytes; the
 * function describes the value in "shown".  It may be called for the session of another
 * thread.  The server holds LOCK_status meanwhile, which each session takes at its end, and
 * LOCK_thd_data of the session, which KILL takes: so it must not wait, nor take a lock.
 */
typedef struct server_status_variable
{
	const char *name;
	void	   *value;
	int			type;
	int			scope;
} server_status_variable;

#define SERVER_SHOW_TEXT		5
#define SERVER_SHOW_FUNCTION	8
#define SERVER_SHOW_SIZE		1024
#define SERVER_SCOPE_SESSION	2

extern void mysql_add_status_variables(const server_status_variable *list)
			SERVER_SYMBOL("_Z15add_status_varsPK8SHOW_VAR");

/* both: the socket that the server listens on */
extern char *server_unix_port
			SERVER_SYMBOL("mysqld_unix_port");

/* both: the data directory, as @@datadir shows it */
extern char server_data_folder[]
			SERVER_SYMBOL("mysql_real_data_home");

/* both: the version, as VERSION() shows it */
extern char server_version[]
			SERVER_SYMBOL("server_version");

/* MySQL: not 0 once the server is being shut down */
extern volatile int32_t mysql_is_ending
			SERVER_SYMBOL("connection_events_loop_aborted_flag");

/* ----------------------------------------------------------------
 * MySQL: services.  MariaDB has no registry.
 *
 * A service is a structure of functions, found by its name.  Each function
 * returns false for success, unless said otherwise.  Release a service soon: if
 * one is held when the server stops, the server logs an error.
 * ----------------------------------------------------------------
 */

typedef struct mysql_registry
{
	bool		(*acquire) (const char *name, void **service);
	bool		(*acquire_related) (const char *name, void *service,
									void **other);
	bool		(*release) (void *service);
} mysql_registry;

/* MySQL: the registry; a reference, to be given back */
extern mysql_registry *mysql_registry_acquire(void)
			SERVER_SYMBOL("_Z29mysql_plugin_registry_acquirev");
extern int	mysql_registry_release(mysql_registry *registry)
			SERVER_SYMBOL("_Z29mysql_plugin_registry_releasePK16s_mysql_registry");

/*
 * The start of "mysql_thd_store": a pointer per session.  When the session ends, and only
 * then, "at_end" is called with it, in the session's thread; not for a NULL.
 * COM_CHANGE_USER and COM_RESET_CONNECTION leave it as it is.
 */
typedef struct mysql_thd_store_service
{
	bool		(*register_slot) (const char *name, int (*at_end) (void *value),
								  void **slot);
	bool		(*unregister_slot) (void *slot);
	bool		(*set) (THD *thd, void *slot, void *value);
} mysql_thd_store_service;

/*
 * "mysql_udf_metadata": the character set of arguments and result.  For the
 * attribute "charset" a value is a name such as "utf8mb4".  Setting it in
 * _init has the server convert the argument.
 */
typedef struct mysql_udf_metadata_service
{
	bool		(*argument_get) (UDF_ARGS *args, const char *attribute,
								 unsigned int index, void **value);
	bool		(*result_get) (UDF_INIT *init, const char *attribute,
							   void **value);
	bool		(*argument_set) (UDF_ARGS *args, const char *attribute,
								 unsigned int index, void *value);
	bool		(*result_set) (UDF_INIT *init, const char *attribute,
							   void *value);
} mysql_udf_metadata_service;

/* ----------------------------------------------------------------
 * MariaDB: an audit plugin, to be told when connections end.  It may live in
 * the same library as the functions; INSTALL SONAME activates it.
 * ----------------------------------------------------------------
 */

#define MARIADB_PLUGIN_INTERFACE_VERSION	0x010e
#define MARIADB_AUDIT_PLUGIN				5
#define MARIADB_AUDIT_INTERFACE_VERSION		0x0302
#define MARIADB_AUDIT_CONNECTION_CLASS		1
#define MARIADB_AUDIT_DISCONNECT			1
#define MARIADB_AUDIT_CHANGE_USER			2

/* The start of what comes with MARIADB_AUDIT_CONNECTION_CLASS. */
typedef struct mariadb_connection_event
{
	unsigned int subclass;
	int			status;			/* error number, for a refused change of user */
	unsigned long thread_id;
} mariadb_connection_event;

typedef struct mariadb_audit
{
	int			interface_version;
	void		(*release_thd) (THD *thd);
	void		(*event_notify) (THD *thd, unsigned int event_class,
								 const void *event);
	unsigned long class_mask[1];	/* bit n for class n */
} mariadb_audit;

/*
 * What a library exports as _maria_plugin_declarations_[], with a last element
 * of zeros, next to int _maria_plugin_interface_version_ and
 * int _maria_sizeof_struct_st_plugin_.
 */
typedef struct mariadb_plugin
{
	int			type;
	void	   *info;			/* a mariadb_audit */
	const char *name;
	const char *author;
	const char *description;
	int			license;		/* 1 is GPL, 0 proprietary, 2 BSD */
	int			(*init) (void *plugin);
	int			(*deinit) (void *plugin);
	unsigned int version;
	void	   *status_variables;
	void	   *system_variables;
	const char *version_text;
	unsigned int maturity;		/* 5 is stable */
} mariadb_plugin;

#endif							/* DLOCK_SERVER_ABI_H */
