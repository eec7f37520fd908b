/*
 * plain/uninstall.sql: remove what plain/dlock.sql made
 *
 * Run it as the same role, outside a transaction.  From its first statement on nobody is
 * granted a lease, and nobody can extend one (55P03).  It waits until the last lease has
 * ended: whoever held one has released it, or has been told that it could not renew it.
 * So programs that retry may run on while "CREATE EXTENSION dlock" follows: nobody is
 * granted what somebody still holds, and tokens go on to grow.  If you cannot wait, in
 * another session SELECT dlock_force_release(name) FROM dlock.locks.  If you stop it,
 * run it again, or DROP TRIGGER uninstall ON dlock_private.lease_table.  It drops each routine
 * of the role's in the schema that has a name like dlock_%, also one of your own.
 *
 * SPDX-License-Identifier: PostgreSQL
 */
CREATE OR REPLACE FUNCTION dlock_private.uninstall() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
		IF NEW.expires_at OPERATOR(pg_catalog.<=) OLD.expires_at THEN
			RETURN NEW;
		END IF;
	END IF;
	RAISE EXCEPTION 'dlock is being uninstalled' USING ERRCODE = 'lock_not_available';
END $$;
DROP TRIGGER IF EXISTS uninstall ON dlock_private.lease_table;
CREATE TRIGGER uninstall BEFORE INSERT OR UPDATE ON dlock_private.lease_table
	FOR EACH ROW EXECUTE FUNCTION dlock_private.uninstall();

DO $$
DECLARE
	left_s double precision;
BEGIN
	LOOP
		SET LOCAL search_path = pg_catalog, pg_temp;	-- others may be able to create in the schema
		-- the tokens of the extension begin with the clock, too
		SELECT greatest(max(extract(epoch FROM expires_at - clock_timestamp())) FILTER (WHERE expires_at > '-infinity'),
			(SELECT last_value FROM dlock_private.mark) / 1048576.0
				- extract(epoch FROM clock_timestamp() - '2020-01-01 00:00:00+00'::timestamptz)) INTO left_s
		FROM dlock_private.lease_table;
		EXIT WHEN left_s <= 0;
		RAISE NOTICE 'waiting % s until the last lease has ended', ceil(left_s);
		COMMIT;
		PERFORM pg_sleep(least(left_s, 5));
	END LOOP;
END $$;

BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
-- guards have ended when this has been granted, and calls that are under way
LOCK TABLE dlock_private.request IN ACCESS EXCLUSIVE MODE;
DO $$
DECLARE
	dropped record;
BEGIN
	FOR dropped IN
		SELECT p.oid::regprocedure AS routine
		FROM pg_proc p JOIN pg_proc v ON v.pronamespace = p.pronamespace AND v.proowner = p.proowner
		WHERE v.proname = 'dlock_version' AND v.proowner = (SELECT nspowner FROM pg_namespace WHERE nspname = 'dlock_private')
			AND p.proname ~ '^dlock_'
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
