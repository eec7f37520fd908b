/*
 * plain/uninstall.sql: remove what plain/dlock.sql made
 *
 * Run it as the same role.  It waits until the last lease has ended: whoever holds one
 * cannot renew it any more, is told so, and has stopped at its deadline.  So programs
 * that retry may run on while "CREATE EXTENSION dlock" follows: nobody is granted what
 * somebody still holds, and tokens go on to grow.  Looks work meanwhile.  If you cannot
 * wait, first SELECT dlock_force_release(name) FROM dlock.locks.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
BEGIN;

-- guards have ended when this has been granted
LOCK TABLE dlock_private.lease_table IN EXCLUSIVE MODE;

DO $$
DECLARE
	last double precision;
	dropped record;
BEGIN
	LOOP
		-- the tokens of the extension begin with the clock, too
		SELECT greatest(max(extract(epoch FROM expires_at - clock_timestamp())) FILTER (WHERE expires_at > '-infinity'),
			(SELECT last_value FROM dlock_private.mark) / 1048576.0
				- extract(epoch FROM clock_timestamp() - '2020-01-01 00:00:00+00'::timestamptz)) INTO last
		FROM dlock_private.lease_table;
		EXIT WHEN last <= 0;
		RAISE NOTICE 'waiting % s until the last lease has ended', ceil(last);
		PERFORM pg_sleep(last);
	END LOOP;
	FOR dropped IN
		SELECT p.oid::regprocedure AS routine, p.prokind
		FROM pg_proc p JOIN pg_proc v ON v.pronamespace = p.pronamespace AND v.proowner = p.proowner
		WHERE v.proname = 'dlock_version' AND v.proowner = (SELECT nspowner FROM pg_namespace WHERE nspname = 'dlock_private')
			AND p.proname LIKE 'dlock\_%'
	LOOP
		EXECUTE format('DROP ROUTINE %s', dropped.routine);
	END LOOP;
	FOR dropped IN
		SELECT t.oid::regtype AS name FROM pg_type t JOIN pg_namespace n ON n.nspname = 'dlock_private' AND n.nspowner = t.typowner
		WHERE t.typname = 'dlock_duration' AND t.typtype = 'd'
	LOOP
		EXECUTE format('DROP DOMAIN %s', dropped.name);
	END LOOP;
END $$;

SET LOCAL client_min_messages = warning;
DROP VIEW dlock.locks;
DROP SCHEMA dlock;
DROP SCHEMA dlock_private CASCADE;

COMMIT;
