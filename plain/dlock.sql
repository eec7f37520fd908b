/*
 * plain/dlock.sql: leases where no extension can be loaded
 *
 * PostgreSQL 13 or later.  Run it as the owner of the database, for instance by
 * "psql -f dlock.sql": one transaction, no superuser, no extension.  The functions
 * go to the first schema of your search_path.  doc/plain.md says which rules of
 * dlock's are kept here, which are weaker, and which are missing.  Others may be able to
 * create in the same schema, so what is called below, and is no exact match of its
 * arguments, is qualified.
 *
 * What takes or extends a lease is a procedure, which commits by itself:
 *
 *     CALL dlock_acquire('report', 'worker-1', 30);   -- token, or NULL
 *     CALL dlock_renew('report', 'worker-1', 30);     -- true, false, or NULL
 *     SELECT dlock_release('report', 'worker-1');     -- true, false, or NULL
 *
 * An acquire that a rollback can undo is a trap: its caller believes that it holds
 * the lease, and the next one gets it.  So CALL is 2D000 in a transaction block, and
 * SELECT is 42809 with the hint to CALL.  A release that is rolled back does no harm:
 * the lease ends at its deadline.
 *
 * WHO CALLS.  A procedure that commits cannot be SECURITY DEFINER, and what a plain
 * role can execute it can also execute without the procedure, with other arguments.
 * So the functions run with the caller's rights and do one thing: they insert a row
 * into the view dlock_private.request.  Its trigger serve() has rights and does the
 * work, and nobody can execute it in another way.  It learns who calls from a column
 * of the view, whose default is current_user, evaluated as the caller, and into which
 * plain roles may not insert.  It is the OID: an old snapshot may show another role with
 * that name.  A role may insert requests by itself: serve() takes
 * and extends leases only in a transaction that a COMMIT in a procedure has begun,
 * which is one that started after the client's statement did.  If such a procedure is
 * of the caller's making and rolls back, the caller alone has lost what it was granted.
 *
 * LOCKS.  dlock_private.lease_table has a row for each holder.  All locks end with the
 * transaction, and a call waits for one at most two seconds (55P03).
 *
 *   acquire         1. the advisory lock of the name; several names in their order
 *                   2. FOR NO KEY UPDATE: the holder's own rows
 *                   3. FOR UPDATE, which is tried: rows that are over, to delete them
 *   renew, release  FOR NO KEY UPDATE: the holder's own row; several in the names' order
 *   guard           FOR KEY SHARE: the holder's own row, until the caller's transaction ends
 *   force_release   FOR NO KEY UPDATE: the rows of the name
 *
 * All take them in the order of the names, so nobody waits in a circle.  But for
 * force_release nobody waits for a row of somebody else's.  What an acquire does by the
 * way for other names only tries for locks.
 *
 * WHY THERE ARE NO TWO HOLDERS.  Only an acquire adds a row, under the name's advisory
 * lock, which it keeps until its commit can be seen.  Its transaction is READ COMMITTED,
 * whatever the session's default is: the procedure says so, and serve() checks it.  So
 * the statement that looks for room sees every grant of the name.  It counts each row
 * that is left as in its way; a row that is over is out of the way only if the acquire
 * has deleted it, so nobody else had it locked: no renewal is under way, which may have
 * looked at the clock before the deadline, and no guard.  Each reads the clock after it
 * has locked the row.
 *
 * WHY A GUARD PINS.  Until its transaction's outcome can be seen, nobody can delete the
 * row.  Updates of columns that are no key do not wait for FOR KEY SHARE: so a renewal
 * does not wait, and a release that finds the row pinned only marks it (expires_at is
 * -infinity).  A REPEATABLE READ or SERIALIZABLE transaction judges the lease that its
 * snapshot shows.  But it cannot lock a row that has been deleted since (40001), and
 * while the row is there, nobody else has been granted the name.
 *
 * TOKENS.  The clock since 2020 in units of 2^-20 s, or one more than the largest ever
 * if the clock is not above that.  The largest is in the sequence dlock_private.mark,
 * for all names together: nothing is kept for a name that nobody holds.  Like a row, it
 * survives a crash with the grant that raised it; unlike one, it knows no rollback.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
BEGIN;

DO $$
BEGIN
	IF EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'dlock') THEN
		RAISE EXCEPTION 'the extension dlock is there already'
			USING ERRCODE = 'duplicate_object', HINT = 'It has all that is here, and more: use it.';
	END IF;
END $$;

CREATE SCHEMA dlock;
CREATE SCHEMA dlock_private;

----------------------------------------------------------------------
-- The tables
----------------------------------------------------------------------

-- Renewals change no column of an index, and find room on the row's page.
CREATE TABLE dlock_private.lease_table (
	name text COLLATE "C",
	token bigint,
	owner text COLLATE "C" NOT NULL,
	role regrole NOT NULL,		-- its name is in a dump, since another server has other OIDs
	mode text NOT NULL CHECK (mode IN ('exclusive', 'shared', 'permit')),
	version integer NOT NULL,
	acquired_at timestamptz NOT NULL,
	expires_at timestamptz NOT NULL,		-- -infinity: given back, and pinned by a guard
	leaving boolean NOT NULL DEFAULT false,
	request text COLLATE "C",
	pid integer,
	application_name text,
	client_addr text,
	PRIMARY KEY (name, token)
) WITH (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
	autovacuum_vacuum_cost_delay = 0);

CREATE SEQUENCE dlock_private.mark;

-- the owner and the client are masked as the server masks them in pg_stat_activity
CREATE FUNCTION dlock_private.may_see(role oid) RETURNS boolean LANGUAGE sql STABLE AS $$
	SELECT pg_catalog.pg_has_role(role, 'USAGE') OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
$$;
CREATE FUNCTION dlock_private.masked(role oid, value text) RETURNS text LANGUAGE sql STABLE AS $$
	SELECT CASE WHEN dlock_private.may_see(role) THEN value ELSE '<insufficient privilege>' END
$$;
CREATE VIEW dlock.locks AS
SELECT name, dlock_private.masked(role, owner) AS owner, mode, version, token, acquired_at, expires_at,
	greatest(extract(epoch FROM expires_at - clock_timestamp())::double precision, 0) AS remaining,
	NULL::boolean AS guarded, leaving, pg_get_userbyid(role) AS role,
	CASE WHEN dlock_private.may_see(role) THEN pid END AS pid,
	dlock_private.masked(role, application_name) AS application_name,
	dlock_private.masked(role, client_addr) AS client_addr
FROM dlock_private.lease_table WHERE expires_at > '-infinity';

-- What is asked of serve(), and by whom: nobody but the server says that.
CREATE VIEW dlock_private.request AS
SELECT NULL::text AS op, NULL::text AS name, NULL::text AS owner, NULL::text AS ttl, NULL::bigint AS token,
	NULL::integer AS holds, NULL::text AS mode, NULL::integer AS "limit", NULL::integer AS permits,
	NULL::text AS request, NULL::oid AS caller, NULL::bigint AS answer
WHERE false;
ALTER VIEW dlock_private.request ALTER COLUMN caller SET DEFAULT pg_catalog.quote_ident(current_user)::regrole;

----------------------------------------------------------------------
-- Arguments
----------------------------------------------------------------------

-- the longest ttl and wait, in seconds; replace it to have another
CREATE FUNCTION dlock_private.max_ttl() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 86400';

-- a time as text: a number of seconds, or an interval
CREATE DOMAIN dlock_duration AS text;

-- A number has all its digits, whatever the session has set.
CREATE FUNCTION dlock_private.as_text(value anyelement) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS 'SELECT value::text';

CREATE FUNCTION dlock_private.seconds(value text, what text) RETURNS double precision
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	seconds numeric;
BEGIN
	IF value IS NULL THEN
		RAISE EXCEPTION '% must not be null', what USING ERRCODE = 'null_value_not_allowed';
	ELSIF value ~* '^[[:space:]]*[-+]?(nan|inf|infinity)[[:space:]]*$' THEN
		RAISE EXCEPTION 'duration must be a finite number of seconds' USING ERRCODE = 'invalid_parameter_value';
	END IF;
	BEGIN
		seconds := round(CASE
			WHEN value ~ '^[[:space:]]*[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?[[:space:]]*$' THEN value::numeric
			ELSE extract(epoch FROM value::interval)::numeric END, 6);
	EXCEPTION
		WHEN invalid_datetime_format THEN
			RAISE EXCEPTION 'invalid input syntax for type dlock_duration: "%"', value
				USING ERRCODE = 'invalid_datetime_format',
					HINT = 'Give a number of seconds, such as 30 or 0.5, or an interval, such as ''5 minutes''.';
		WHEN numeric_value_out_of_range THEN
			seconds := 1e13;
	END;
	IF abs(seconds) > 1e12 THEN
		RAISE EXCEPTION 'duration is out of range' USING ERRCODE = 'invalid_parameter_value';
	ELSIF seconds > dlock_private.max_ttl() THEN
		RAISE EXCEPTION '% must be at most % seconds', what, dlock_private.max_ttl()
			USING ERRCODE = 'invalid_parameter_value',
				HINT = 'Times are in seconds. The function "dlock_private.max_ttl" says what the longest is.';
	ELSIF what <> 'wait' AND seconds <= 0 THEN
		RAISE EXCEPTION '% must be greater than 0', what USING ERRCODE = 'invalid_parameter_value';
	END IF;
	RETURN seconds;
END $$;

CREATE FUNCTION dlock_private.check_string(value text, what text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF value IS NULL THEN
		RAISE EXCEPTION '% must not be null', what USING ERRCODE = 'null_value_not_allowed';
	ELSIF octet_length(value) NOT BETWEEN 1 AND 255 THEN
		RAISE EXCEPTION '% must be 1 to 255 bytes long', what
			USING ERRCODE = 'invalid_parameter_value', DETAIL = format('It is %s bytes long.', octet_length(value));
	END IF;
	RETURN value;
END $$;

CREATE FUNCTION dlock_private.check_number(value integer, what text) RETURNS integer
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF value IS NULL THEN
		RAISE EXCEPTION '% must not be null', what USING ERRCODE = 'null_value_not_allowed';
	ELSIF value < 1 THEN
		RAISE EXCEPTION '% must be at least 1', what USING ERRCODE = 'invalid_parameter_value';
	END IF;
	RETURN value;
END $$;

-- the names of a call for many, counted from 1
CREATE FUNCTION dlock_private.check_names(names text[], tokens bigint[], fewest integer, most integer) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	twice text;
BEGIN
	IF names IS NULL THEN
		RAISE EXCEPTION 'names must not be null' USING ERRCODE = 'null_value_not_allowed';
	ELSIF array_ndims(names) > 1 OR array_ndims(tokens) > 1 THEN
		RAISE EXCEPTION '% must be a one-dimensional array', CASE WHEN array_ndims(names) > 1 THEN 'names' ELSE 'tokens' END
			USING ERRCODE = 'invalid_parameter_value';
	ELSIF cardinality(names) NOT BETWEEN fewest AND most THEN
		RAISE EXCEPTION 'names must be % to % names', fewest, most
			USING ERRCODE = 'invalid_parameter_value', DETAIL = format('There are %s.', cardinality(names));
	ELSIF array_position(names, NULL) IS NOT NULL THEN
		RAISE EXCEPTION 'names must not contain nulls' USING ERRCODE = 'null_value_not_allowed';
	ELSIF cardinality(tokens) <> cardinality(names) THEN
		RAISE EXCEPTION 'tokens must be as many as names' USING ERRCODE = 'invalid_parameter_value',
			DETAIL = format('There are %s tokens for %s names.', cardinality(tokens), cardinality(names));
	END IF;
	PERFORM dlock_private.check_string(n, 'name') FROM unnest(names) n;
	SELECT n INTO twice FROM unnest(names) n GROUP BY n HAVING count(*) > 1 LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'names must not contain "%" twice', twice USING ERRCODE = 'invalid_parameter_value';
	END IF;
	RETURN ARRAY(SELECT n FROM unnest(names) WITH ORDINALITY AS u (n, place) ORDER BY place);
END $$;

-- the order in which a call for many locks its names: their places, by their bytes
CREATE FUNCTION dlock_private.in_order(names text[]) RETURNS integer[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT ARRAY(SELECT place::integer FROM unnest(names) WITH ORDINALITY AS u (n, place) ORDER BY n COLLATE "C")
$$;

----------------------------------------------------------------------
-- The work, with rights: what serve() and dlock_force_release() call, which set search_path
----------------------------------------------------------------------

CREATE FUNCTION dlock_private.key(name text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
	SELECT hashtextextended(name COLLATE "C", 7236275947)
$$;

-- One at a time, else a slow one would set the mark back.  Nobody else can take this lock, and
-- the exception ends it: the commit is not waited for.
CREATE FUNCTION dlock_private.next_token(of_name text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	clock bigint := floor(extract(epoch FROM clock_timestamp() - '2020-01-01 00:00:00+00'::timestamptz) * 1048576);
	token bigint;
BEGIN
	-- a clock beyond the year 2156 is not believed: it would use the tokens up
	token := greatest(CASE WHEN clock < 4503599627370496 THEN clock END,
		(SELECT max(l.token) + 1 FROM dlock_private.lease_table l WHERE l.name = of_name));
	LOCK TABLE dlock_private.request IN SHARE UPDATE EXCLUSIVE MODE;
	IF token > (SELECT last_value FROM dlock_private.mark) THEN
		PERFORM setval('dlock_private.mark', token);
	ELSE
		token := nextval('dlock_private.mark');
	END IF;
	RAISE EXCEPTION USING ERRCODE = 'DL000';
EXCEPTION WHEN SQLSTATE 'DL000' THEN
	RETURN token;
END $$;

-- Delete the rows of a name, or one of them, that are over and that nobody else has locked.
CREATE FUNCTION dlock_private.clear(of_name text, of_token bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	gone bigint;
BEGIN
	FOR gone IN
		SELECT token FROM dlock_private.lease_table
		WHERE name = of_name AND (of_token IS NULL OR token = of_token) AND expires_at <= clock_timestamp()
		FOR UPDATE SKIP LOCKED
	LOOP
		DELETE FROM dlock_private.lease_table WHERE name = of_name AND token = gone;
	END LOOP;
END $$;

-- Do the rows of a name leave room?  A row that is over and still there is pinned, or is
-- being changed, which "all_rows" asks to count; but not for its own holder.
CREATE FUNCTION dlock_private.has_room(asked dlock_private.request, caller oid, all_rows boolean) RETURNS boolean
LANGUAGE sql AS $$
	SELECT coalesce(bool_and(l.mode = asked.mode AND l.mode <> 'exclusive'), true)
		AND (asked.mode <> 'permit' OR coalesce(sum(l.version), 0) + asked.permits <= asked."limit")
	FROM dlock_private.lease_table l
	WHERE l.name = asked.name AND (l.expires_at > clock_timestamp()
		OR (all_rows AND NOT (l.owner = asked.owner AND pg_has_role(caller, l.role, 'USAGE'))))
$$;

CREATE FUNCTION dlock_private.acquire(asked dlock_private.request, caller oid) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	ttl interval := make_interval(secs => dlock_private.seconds(asked.ttl, 'ttl'));
	mine dlock_private.lease_table;
	other text;
BEGIN
	IF asked.request IS NOT NULL THEN
		PERFORM dlock_private.check_string(asked.request, 'request id');
	END IF;
	IF asked.mode = 'permit' THEN
		PERFORM dlock_private.check_number(asked."limit", 'limit'), dlock_private.check_number(asked.permits, 'permits');
		IF asked.permits > asked."limit" THEN
			RAISE EXCEPTION 'permits must not be greater than limit' USING ERRCODE = 'invalid_parameter_value',
				DETAIL = format('%s permits were asked for, of %s.', asked.permits, asked."limit");
		END IF;
	ELSE
		asked.permits := 1;
	END IF;

	-- who asks again and again for what others have locks nothing
	IF NOT dlock_private.has_room(asked, caller, false) AND NOT EXISTS (
		SELECT FROM dlock_private.lease_table l WHERE l.name = asked.name AND l.owner = asked.owner
			AND pg_has_role(caller, l.role, 'USAGE'))
	THEN
		RETURN NULL;
	END IF;

	PERFORM pg_advisory_xact_lock(dlock_private.key(asked.name));
	PERFORM FROM dlock_private.lease_table l
	WHERE l.name = asked.name AND l.owner = asked.owner AND pg_has_role(caller, l.role, 'USAGE') AND NOT l.leaving
	ORDER BY l.token FOR NO KEY UPDATE;
	PERFORM dlock_private.clear(asked.name);

	SELECT * INTO mine FROM dlock_private.lease_table l
	WHERE l.name = asked.name AND l.owner = asked.owner AND pg_has_role(caller, l.role, 'USAGE') AND NOT l.leaving
		AND l.expires_at > clock_timestamp()
	ORDER BY l.role <> caller, l.token LIMIT 1;
	IF FOUND THEN
		IF mine.mode = 'shared' AND asked.mode = 'exclusive' THEN
			RAISE EXCEPTION 'owner "%" holds a shared lease on "%" and cannot make it exclusive', asked.owner, asked.name
				USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Release the shared lease first.';
		ELSIF (mine.mode = 'permit') <> (asked.mode = 'permit') THEN
			RAISE EXCEPTION 'owner "%" holds "%" in mode % and cannot also take it in mode %',
				asked.owner, asked.name, mine.mode, asked.mode
				USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Release it first.';
		ELSIF mine.request = asked.request THEN
			asked.permits := 0;		-- the same call again: no hold more
		ELSIF mine.mode = 'permit' AND NOT dlock_private.has_room(asked, caller, true) THEN
			RETURN NULL;
		ELSIF mine.version > 2147483647 - asked.permits THEN
			RAISE EXCEPTION 'owner "%" cannot hold "%" more than 2147483647 times', asked.owner, asked.name
				USING ERRCODE = 'program_limit_exceeded';
		END IF;
		UPDATE dlock_private.lease_table l SET version = l.version + asked.permits, request = asked.request,
			expires_at = greatest(l.expires_at, clock_timestamp() + ttl)
		WHERE l.name = mine.name AND l.token = mine.token;
		RETURN mine.token;
	ELSIF NOT dlock_private.has_room(asked, caller, true) THEN
		RETURN NULL;
	END IF;

	mine.token := dlock_private.next_token(asked.name);
	INSERT INTO dlock_private.lease_table VALUES (asked.name, mine.token, asked.owner, caller, asked.mode, asked.permits,
		clock_timestamp(), clock_timestamp() + ttl, false, asked.request,
		pg_backend_pid(), current_setting('application_name'), host(inet_client_addr()));

	-- No process removes what is over.  So each grant looks at the rows next to its own.
	FOR other IN
		SELECT name FROM (
			SELECT l.name, l.expires_at FROM dlock_private.lease_table l WHERE l.name < asked.name
			ORDER BY l.name DESC, l.token DESC LIMIT 3) near
		WHERE expires_at <= clock_timestamp() AND pg_try_advisory_xact_lock(dlock_private.key(name))
	LOOP
		PERFORM dlock_private.clear(other);
	END LOOP;
	RETURN mine.token;
END $$;

-- Renew or release: 1, 0 (held, but not by this holder and token), or NULL (not held).
CREATE FUNCTION dlock_private.change(asked dlock_private.request, caller oid) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	until interval := make_interval(secs => CASE asked.op WHEN 'renew' THEN dlock_private.seconds(asked.ttl, 'ttl')
		WHEN 'release after' THEN dlock_private.seconds(asked.ttl, 'after') ELSE 0 END);
	mine dlock_private.lease_table;
BEGIN
	SELECT * INTO mine FROM dlock_private.lease_table l
	WHERE l.name = asked.name AND l.owner = asked.owner AND pg_has_role(caller, l.role, 'USAGE')
		AND (asked.token IS NULL OR l.token = asked.token) AND l.expires_at > clock_timestamp()
		AND (NOT l.leaving OR (asked.op = 'release after' AND asked.token IS NOT NULL))
	ORDER BY l.role <> caller, l.token LIMIT 1 FOR NO KEY UPDATE;
	IF NOT FOUND OR mine.expires_at <= clock_timestamp() THEN
		RETURN (SELECT 0 FROM dlock_private.lease_table l WHERE l.name = asked.name AND l.expires_at > clock_timestamp() LIMIT 1);
	ELSIF asked.op = 'renew' THEN
		UPDATE dlock_private.lease_table l SET expires_at = clock_timestamp() + until
		WHERE l.name = mine.name AND l.token = mine.token;
	ELSIF asked.op = 'release after' THEN
		UPDATE dlock_private.lease_table l SET expires_at = clock_timestamp() + until, leaving = true
		WHERE l.name = mine.name AND l.token = mine.token AND NOT l.leaving;
	ELSIF asked.holds > mine.version THEN
		RETURN 0;
	ELSIF asked.holds < mine.version THEN
		UPDATE dlock_private.lease_table l SET version = l.version - asked.holds
		WHERE l.name = mine.name AND l.token = mine.token;
	ELSE
		UPDATE dlock_private.lease_table l SET expires_at = '-infinity' WHERE l.name = mine.name AND l.token = mine.token;
		PERFORM dlock_private.clear(mine.name, mine.token);
	END IF;
	RETURN 1;
END $$;

CREATE FUNCTION dlock_private.guard(asked dlock_private.request, caller oid) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	holder dlock_private.lease_table;
BEGIN
	IF asked.token IS NULL THEN
		RAISE EXCEPTION 'token must not be null' USING ERRCODE = 'null_value_not_allowed';
	END IF;
	SELECT * INTO holder FROM dlock_private.lease_table l
	WHERE l.name = asked.name AND l.token = asked.token AND l.owner = asked.owner
		AND pg_has_role(caller, l.role, 'USAGE') AND NOT l.leaving AND l.expires_at > clock_timestamp()
	FOR KEY SHARE;
	IF FOUND AND holder.expires_at > clock_timestamp() THEN
		RETURN;
	END IF;
	SELECT * INTO holder FROM dlock_private.lease_table l
	WHERE l.name = asked.name AND l.expires_at > clock_timestamp() ORDER BY l.token LIMIT 1;
	RAISE EXCEPTION 'owner "%" no longer holds the lease on "%" with this token', asked.owner, asked.name
		USING ERRCODE = '55L01', HINT = 'Roll back, and acquire the lease again.',
			DETAIL = CASE WHEN NOT FOUND THEN 'Nobody holds it.'
				WHEN holder.leaving THEN 'It was released, and stays taken for a while.'
				WHEN NOT pg_has_role(caller, holder.role, 'USAGE')
					AND NOT pg_has_role(caller, 'pg_read_all_stats', 'USAGE') THEN 'Somebody else holds it.'
				ELSE format('Owner "%s" holds it with token %s.', holder.owner, holder.token) END;
END $$;

CREATE FUNCTION dlock_private.serve() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
BEGIN
	-- on another relation anybody might say that he is somebody else
	IF TG_RELID <> 'dlock_private.request'::regclass THEN
		RAISE EXCEPTION 'this is a part of dlock' USING ERRCODE = 'insufficient_privilege';
	END IF;
	PERFORM dlock_private.check_string(NEW.name, 'name'), dlock_private.check_string(NEW.owner, 'owner');
	IF NEW.op IN ('acquire', 'renew', 'release after') AND
		(current_setting('transaction_isolation') <> 'read committed' OR transaction_timestamp() <= statement_timestamp())
	THEN
		RAISE EXCEPTION 'a lease is taken and extended only by a procedure of dlock'
			USING ERRCODE = 'invalid_transaction_termination',
				DETAIL = 'Else a rollback could take it away; or the clock was set back just now.',
				HINT = 'CALL dlock_acquire(...) or dlock_renew(...), outside a transaction block.';
	END IF;
	IF NEW.op = 'acquire' THEN
		NEW.answer := dlock_private.acquire(NEW, NEW.caller);
		IF NEW.answer > 9007199254740991 THEN
			RAISE EXCEPTION 'no tokens are left for "%"', NEW.name USING ERRCODE = 'sequence_generator_limit_exceeded';
		END IF;
	ELSIF NEW.op = 'guard' THEN
		PERFORM dlock_private.guard(NEW, NEW.caller);
		NEW.answer := 1;
	ELSE
		PERFORM dlock_private.check_number(NEW.holds, 'holds');
		NEW.answer := dlock_private.change(NEW, NEW.caller);
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER serve INSTEAD OF INSERT ON dlock_private.request FOR EACH ROW EXECUTE FUNCTION dlock_private.serve();

CREATE FUNCTION dlock_private.evict(of_name text, of_owner text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
	evicted bigint;
BEGIN
	UPDATE dlock_private.lease_table l SET expires_at = '-infinity'
	WHERE l.name = of_name AND (of_owner IS NULL OR l.owner = of_owner) AND l.expires_at > clock_timestamp();
	GET DIAGNOSTICS evicted = ROW_COUNT;
	PERFORM dlock_private.clear(of_name);
	RETURN evicted;
END $$;

----------------------------------------------------------------------
-- Procedures: they run with the caller's rights and search_path, so each name is qualified
----------------------------------------------------------------------

CREATE FUNCTION dlock_private.check_server() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF pg_is_in_recovery() THEN
		RAISE EXCEPTION 'cannot take or extend a lease during recovery' USING ERRCODE = 'read_only_sql_transaction';
	END IF;
END $$;

-- How long to sleep before the next try, in seconds: more from try to try, up to about one,
-- and each caller differently, as the clients do it.  NULL: the time to wait is over.
CREATE FUNCTION dlock_private.pause(began timestamptz, wait double precision, tries integer) RETURNS double precision
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT least(CASE WHEN wait >= 0 THEN time_left END, least(0.02 * 1.5 ^ least(tries, 10), 1) * (0.5 + random()))
	FROM (SELECT wait - extract(epoch FROM clock_timestamp() - began) AS time_left) t
	WHERE wait < 0 OR time_left > 0
$$;

CREATE PROCEDURE dlock_private.take(names text[], owner text, ttl text, mode text, "limit" integer, permits integer,
	wait text, request text, INOUT tokens bigint[])
LANGUAGE plpgsql AS $$
DECLARE
	patience double precision := dlock_private.seconds(wait, 'wait');
	began pg_catalog.timestamptz := pg_catalog.clock_timestamp();
	places integer[] := dlock_private.in_order(names);
	tries integer := 0;
	place integer;
	token bigint;
	pause double precision;
BEGIN
	PERFORM dlock_private.check_server();
	LOOP
		COMMIT;		-- 2D000: a lease is not taken in a transaction, whose rollback would take it away
		SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
		FOREACH place IN ARRAY places LOOP
			INSERT INTO dlock_private.request (op, mode, name, owner, ttl, "limit", permits, request)
			VALUES ('acquire', mode, names[place], owner, ttl, "limit", permits, request)
			RETURNING answer INTO token;
			tokens[place] := token;
			EXIT WHEN token IS NULL;
		END LOOP;
		IF token IS NOT NULL THEN
			COMMIT;
			RETURN;
		END IF;
		ROLLBACK;	-- all of the names or none
		pause := dlock_private.pause(began, patience, tries);
		IF pause IS NULL THEN
			tokens := NULL;
			RETURN;
		END IF;
		PERFORM pg_catalog.pg_sleep(pause);
		tries := tries OPERATOR(pg_catalog.+) 1;
	END LOOP;
END $$;

CREATE PROCEDURE dlock_private.extend(op text, names text[], owner text, ttl text, tokens bigint[], INOUT done boolean[])
LANGUAGE plpgsql AS $$
DECLARE
	place integer;
	answer bigint;
BEGIN
	PERFORM dlock_private.check_server();
	COMMIT;		-- 2D000
	SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
	FOREACH place IN ARRAY dlock_private.in_order(names) LOOP
		INSERT INTO dlock_private.request AS r (op, name, owner, ttl, token, holds)
		VALUES (op, names[place], owner, ttl, tokens[place], 1)
		RETURNING r.answer INTO answer;
		done[place] := answer OPERATOR(pg_catalog.=) 1;
	END LOOP;
	COMMIT;
END $$;

----------------------------------------------------------------------
-- What everybody calls
--
-- "anycompatible" takes a time of any type, and an untyped parameter as text.  A second
-- time has two forms, since an "anyelement" takes no untyped one.
----------------------------------------------------------------------

-- wait and request may be left out; the answer is a row with the column token, or tokens
DO $$
DECLARE
	name text;
	modes text;		-- what take() is told of it
	more text;		-- arguments after ttl
	wait text;
BEGIN
	FOR name, more, modes IN VALUES
		('acquire', '', '''exclusive'', NULL, NULL'),
		('acquire_shared', '', '''shared'', NULL, NULL'),
		('acquire_permit', ', "limit" integer', '''permit'', "limit", 1'),
		('acquire_permits', ', "limit" integer, permits integer', '''permit'', "limit", permits')
	LOOP
		FOREACH wait IN ARRAY ARRAY['text DEFAULT ''0''', 'anyelement'] LOOP
			EXECUTE pg_catalog.format('CREATE PROCEDURE dlock_%s(name text, owner text, ttl anycompatible%s, wait %s,
				request text DEFAULT NULL, INOUT token bigint DEFAULT NULL) LANGUAGE plpgsql AS $create$
				DECLARE
					tokens bigint[];
				BEGIN
					CALL dlock_private.take(ARRAY[name], owner, dlock_private.as_text(ttl), %s, dlock_private.as_text(wait), request, tokens);
					token := tokens[1];
				END $create$', name, more, wait, modes);
		END LOOP;
	END LOOP;
	FOREACH wait IN ARRAY ARRAY['text DEFAULT ''0''', 'anyelement'] LOOP
		EXECUTE pg_catalog.format('CREATE PROCEDURE dlock_acquire_all(names text[], owner text, ttl anycompatible, wait %s,
			request text DEFAULT NULL, INOUT tokens bigint[] DEFAULT NULL) LANGUAGE plpgsql AS $create$
			BEGIN
				names := dlock_private.check_names(names, NULL, 1, 100);
				CALL dlock_private.take(names, owner, dlock_private.as_text(ttl), ''exclusive'', NULL, NULL, dlock_private.as_text(wait),
					request, tokens);
			END $create$', wait);
	END LOOP;
END $$;

CREATE PROCEDURE dlock_renew(name text, owner text, ttl anycompatible, token bigint DEFAULT NULL,
	INOUT renewed boolean DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
	done boolean[];
BEGIN
	CALL dlock_private.extend('renew', ARRAY[name], owner, dlock_private.as_text(ttl), ARRAY[token], done);
	renewed := done[1];
END $$;

-- the names for which it was done, and their places in the list
CREATE PROCEDURE dlock_renew_many(names text[], owner text, ttl anycompatible, tokens bigint[] DEFAULT NULL,
	INOUT renewed text[] DEFAULT NULL, INOUT places integer[] DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
	done boolean[];
BEGIN
	names := dlock_private.check_names(names, tokens, 0, 1000);
	CALL dlock_private.extend('renew', names, owner, dlock_private.as_text(ttl), tokens, done);
	places := coalesce(pg_catalog.array_positions(done, true), '{}');
	renewed := ARRAY(SELECT names[place] FROM pg_catalog.unnest(places) AS place);
END $$;

CREATE PROCEDURE dlock_release_after(name text, owner text, after anycompatible, token bigint DEFAULT NULL,
	INOUT released boolean DEFAULT NULL)
LANGUAGE plpgsql AS $$
DECLARE
	done boolean[];
BEGIN
	CALL dlock_private.extend('release after', ARRAY[name], owner, dlock_private.as_text(after), ARRAY[token], done);
	released := done[1];
END $$;

CREATE FUNCTION dlock_release(name text, owner text, token bigint DEFAULT NULL) RETURNS boolean
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	INSERT INTO dlock_private.request (op, name, owner, token, holds) VALUES ('release', name, owner, token, 1)
	RETURNING answer = 1
$$;
CREATE FUNCTION dlock_release(name text, owner text, token bigint, holds integer) RETURNS boolean
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	INSERT INTO dlock_private.request (op, name, owner, token, holds) VALUES ('release', name, owner, token, holds)
	RETURNING answer = 1
$$;

CREATE FUNCTION dlock_release_many(names text[], owner text, tokens bigint[] DEFAULT NULL) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	done boolean[];
	place integer;
	answer bigint;
BEGIN
	names := dlock_private.check_names(names, tokens, 0, 1000);
	FOREACH place IN ARRAY dlock_private.in_order(names) LOOP
		INSERT INTO dlock_private.request AS r (op, name, owner, token, holds)
		VALUES ('release', names[place], owner, tokens[place], 1)
		RETURNING r.answer INTO answer;
		done[place] := answer = 1;
	END LOOP;
	RETURN QUERY SELECT names[p] FROM unnest(array_positions(done, true)) p;
END $$;

CREATE FUNCTION dlock_guard(name text, owner text, token bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	answer bigint;
BEGIN
	INSERT INTO dlock_private.request AS r (op, name, owner, token) VALUES ('guard', name, owner, token)
	RETURNING r.answer INTO answer;
	IF answer IS NULL THEN
		RAISE EXCEPTION 'a guard does not work where triggers do not' USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Look at the setting "session_replication_role".';
	END IF;
END $$;

CREATE FUNCTION dlock_owner(name text) RETURNS text
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT l.owner FROM dlock.locks l
	WHERE l.name = dlock_private.check_string($1, 'name') AND l.mode = 'exclusive' AND l.expires_at > clock_timestamp()
$$;

CREATE FUNCTION dlock_is_free(name text) RETURNS boolean
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT NOT EXISTS (SELECT FROM dlock.locks l
		WHERE l.name = dlock_private.check_string($1, 'name') AND l.expires_at > clock_timestamp())
$$;

CREATE FUNCTION dlock_holders(name text)
RETURNS TABLE (name text, owner text, mode text, version integer, token bigint, acquired_at timestamptz,
	expires_at timestamptz, remaining double precision, guarded boolean, leaving boolean, role name, pid integer,
	application_name text, client_addr text)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT * FROM dlock.locks l WHERE l.name = dlock_private.check_string($1, 'name')
$$;

-- two functions, so that an owner that happens to be NULL evicts nobody
CREATE FUNCTION dlock_force_release(name text) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
	SELECT dlock_private.evict(dlock_private.check_string(name, 'name'), NULL)
$$;
CREATE FUNCTION dlock_force_release(name text, owner text) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
	SELECT dlock_private.evict(dlock_private.check_string(name, 'name'), dlock_private.check_string(owner, 'owner'))
$$;

CREATE FUNCTION dlock_version() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'plain' $$;

-- What only the extension has.
DO $$
DECLARE
	signature text;
BEGIN
	FOREACH signature IN ARRAY ARRAY[
		'acquire_any(names text[], owner text, ttl anycompatible, count integer, wait %s, request text DEFAULT NULL,
			OUT name text, OUT token bigint) RETURNS SETOF record',
		'acquire_session(name text, owner text, ttl anycompatible, wait %s) RETURNS bigint',
		'acquire_session_shared(name text, owner text, ttl anycompatible, wait %s) RETURNS bigint',
		'acquire_xact(name text, owner text, ttl anycompatible, wait %s) RETURNS bigint',
		'acquire_xact_shared(name text, owner text, ttl anycompatible, wait %s) RETURNS bigint',
		'wait(name text, wait %s) RETURNS boolean',
		'renew_all(owner text, ttl anycompatible) RETURNS bigint',
		'release_all(owner text) RETURNS bigint',
		'downgrade(name text, owner text, token bigint DEFAULT NULL) RETURNS boolean',
		'remaining(name text, owner text, token bigint DEFAULT NULL) RETURNS double precision',
		'blocking_pids(pid integer) RETURNS integer[]',
		'stats_reset() RETURNS void']
	LOOP
		FOR i IN 1 .. CASE WHEN signature LIKE '%wait %%s%' THEN 2 ELSE 1 END LOOP
			EXECUTE pg_catalog.format($create$CREATE FUNCTION dlock_%s LANGUAGE plpgsql AS 'BEGIN
				RAISE EXCEPTION ''dlock_%s() needs the extension dlock'' USING ERRCODE = ''feature_not_supported'',
					HINT = ''plain/dlock.sql has not all that the extension has; doc/plain.md says what.'';
				END'$create$, pg_catalog.format(signature, (ARRAY['text DEFAULT ''0''', 'anyelement'])[i]),
				pg_catalog.split_part(signature, '(', 1));
		END LOOP;
	END LOOP;
END $$;

-- Nobody but the functions gets at what is here, whatever default privileges have given.
DO $$
DECLARE
	given record;
BEGIN
	FOR given IN
		SELECT o.kind, o.object, coalesce(pg_catalog.quote_ident(r.rolname), 'PUBLIC') AS grantee
		FROM (
			SELECT 'SCHEMA' AS kind, n.oid::regnamespace::text AS object, n.nspacl AS acl, n.nspowner AS owner FROM pg_namespace n
			WHERE n.oid IN ('dlock'::regnamespace, 'dlock_private'::regnamespace)
			UNION ALL
			SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text, c.relacl, c.relowner FROM pg_class c
			WHERE c.relnamespace IN ('dlock'::regnamespace, 'dlock_private'::regnamespace)
			UNION ALL
			SELECT 'ROUTINE', p.oid::regprocedure::text, coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner)), p.proowner
			FROM pg_proc p WHERE p.pronamespace = 'dlock_private'::regnamespace::oid
				OR p.oid IN ('dlock_force_release(text)'::regprocedure, 'dlock_force_release(text, text)'::regprocedure)) o
		CROSS JOIN aclexplode(o.acl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
		WHERE a.grantee <> o.owner
	LOOP
		EXECUTE pg_catalog.format('REVOKE ALL ON %s %s FROM %s', given.kind, given.object, given.grantee);
	END LOOP;
END $$;
GRANT USAGE ON SCHEMA dlock, dlock_private TO PUBLIC;
GRANT SELECT ON dlock.locks TO PUBLIC;
GRANT INSERT (op, name, owner, ttl, token, holds, mode, "limit", permits, request), SELECT (answer)
	ON dlock_private.request TO PUBLIC;
GRANT EXECUTE ON PROCEDURE dlock_private.take, dlock_private.extend TO PUBLIC;
GRANT EXECUTE ON FUNCTION dlock_private.as_text, dlock_private.seconds, dlock_private.max_ttl, dlock_private.check_string,
	dlock_private.check_names, dlock_private.in_order, dlock_private.may_see, dlock_private.masked,
	dlock_private.check_server, dlock_private.pause TO PUBLIC;

COMMIT;
