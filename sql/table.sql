-- dlock_private.lease_table is an ordinary relation to read and to maintain, and
-- closed to every other way of changing it.
\pset null '<NULL>'
SELECT count(dlock_acquire('t/' || i, 'me', 600)) FROM generate_series(1, 300) i;
CREATE TEMP TABLE before AS SELECT * FROM dlock_private.lease_table;

-- no DML, not even of zero rows, and by nobody
INSERT INTO dlock_private.lease_table (name) VALUES ('x');
\echo :SQLSTATE
UPDATE dlock_private.lease_table SET owner = 'x';
\echo :SQLSTATE
UPDATE dlock_private.lease_table SET owner = 'x' WHERE false;
DELETE FROM dlock_private.lease_table;
\echo :SQLSTATE
DELETE FROM dlock_private.lease_table WHERE name = 'none';
TRUNCATE dlock_private.lease_table;
\echo :SQLSTATE
INSERT INTO dlock_private.lease_table SELECT * FROM before;
INSERT INTO dlock_private.lease_table (name) VALUES ('x') ON CONFLICT DO NOTHING;
MERGE INTO dlock_private.lease_table l USING before b ON l.name = b.name WHEN MATCHED THEN DELETE;
COPY dlock_private.lease_table FROM stdin;
x	x	exclusive	1	1	2000-01-01	2030-01-01	\N	\N	\N	10	1	x	\N	\N
\.
SET session_replication_role = replica;
INSERT INTO dlock_private.lease_table (name) VALUES ('x');
DELETE FROM dlock_private.lease_table;
TRUNCATE dlock_private.lease_table;
RESET session_replication_role;
-- not even without the trigger
\set VERBOSITY sqlstate
BEGIN;
ALTER TABLE dlock_private.lease_table DISABLE TRIGGER refuse_change;
INSERT INTO dlock_private.lease_table (name) VALUES ('x');
ROLLBACK;
BEGIN;
ALTER TABLE dlock_private.lease_table DISABLE TRIGGER refuse_change;
UPDATE dlock_private.lease_table SET owner = 'x';
ROLLBACK;
BEGIN;
ALTER TABLE dlock_private.lease_table DISABLE TRIGGER refuse_change;
DELETE FROM dlock_private.lease_table;
ROLLBACK;
BEGIN;
ALTER TABLE dlock_private.lease_table DISABLE TRIGGER refuse_change;
COPY dlock_private.lease_table FROM stdin;
x	x	exclusive	1	1	2000-01-01	2030-01-01	\N	\N	\N	10	1	x	\N	\N
\.
ROLLBACK;
BEGIN;
ALTER TABLE dlock_private.lease_table DISABLE TRIGGER refuse_change;
TRUNCATE dlock_private.lease_table;
ROLLBACK;

-- no row locks, no index, no constraint that needs one
SELECT * FROM dlock_private.lease_table FOR UPDATE;
SELECT * FROM dlock_private.lease_table FOR KEY SHARE;
CREATE INDEX ON dlock_private.lease_table (name);
CREATE INDEX CONCURRENTLY ON dlock_private.lease_table (name);
ALTER TABLE dlock_private.lease_table ADD UNIQUE (name);
SELECT count(*) FROM pg_index WHERE indrelid = 'dlock_private.lease_table'::regclass;

-- no other columns, no other kind of table
\set VERBOSITY default
ALTER TABLE dlock_private.lease_table ADD COLUMN note text;
\echo :SQLSTATE
ALTER TABLE dlock_private.lease_table ADD COLUMN note text DEFAULT 'x';
ALTER TABLE dlock_private.lease_table DROP COLUMN request;
\echo :SQLSTATE
ALTER TABLE dlock_private.lease_table ALTER COLUMN request TYPE varchar;
\echo :SQLSTATE
ALTER TABLE dlock_private.lease_table RENAME COLUMN request TO asked;
\echo :SQLSTATE
\set VERBOSITY sqlstate
ALTER TABLE dlock_private.lease_table SET UNLOGGED;

-- no other table is of this kind
\set VERBOSITY default
CREATE TABLE mine (name text) USING dlock;
\echo :SQLSTATE
CREATE TEMP TABLE mine (LIKE dlock_private.lease_table) USING dlock;
CREATE UNLOGGED TABLE mine (name text) USING dlock;
CREATE TABLE mine USING dlock AS SELECT * FROM before;
CREATE MATERIALIZED VIEW mine USING dlock AS SELECT 1;
SET default_table_access_method = dlock;
CREATE TABLE mine (name text);
RESET default_table_access_method;
CREATE TABLE mine (name text);
ALTER TABLE mine SET ACCESS METHOD dlock;
DROP TABLE mine;

-- it stays what it is: no heap, no rules, no row security, no constraints, no
-- family, no other name; harmless changes are made
\set VERBOSITY default
ALTER TABLE dlock_private.lease_table SET ACCESS METHOD heap;
\echo :SQLSTATE
\set VERBOSITY sqlstate
ALTER TABLE dlock_private.lease_table RENAME TO renamed;
ALTER TABLE dlock_private.lease_table SET SCHEMA public;
ALTER TABLE dlock_private.lease_table SET (fillfactor = 50), SET ACCESS METHOD heap;
ALTER TABLE dlock_private.lease_table ADD CHECK (version > 0) NOT VALID;
ALTER TABLE dlock_private.lease_table ALTER COLUMN name SET NOT NULL;
ALTER TABLE dlock_private.lease_table ALTER COLUMN version SET DEFAULT 1;
ALTER TABLE dlock_private.lease_table ENABLE ROW LEVEL SECURITY;
ALTER TABLE dlock_private.lease_table FORCE ROW LEVEL SECURITY;
CREATE RULE instead AS ON INSERT TO dlock_private.lease_table DO INSTEAD NOTHING;
CREATE TABLE child () INHERITS (dlock_private.lease_table);
CREATE TABLE relative (LIKE dlock_private.lease_table);
ALTER TABLE relative INHERIT dlock_private.lease_table;
ALTER TABLE dlock_private.lease_table INHERIT relative;
CREATE TABLE empty ();
ALTER TABLE dlock_private.lease_table INHERIT empty;
CREATE TABLE whole (LIKE dlock_private.lease_table) PARTITION BY LIST (name);
ALTER TABLE whole ATTACH PARTITION dlock_private.lease_table DEFAULT;
CREATE TABLE names (name text PRIMARY KEY);
ALTER TABLE dlock_private.lease_table ADD FOREIGN KEY (name) REFERENCES names NOT VALID;
DROP TABLE relative, empty, whole, names;
-- wherever the change was made, the commit undoes it and all else
CREATE TABLE beside (a integer);
BEGIN;
INSERT INTO beside VALUES (1);
SAVEPOINT s;
ALTER TABLE dlock_private.lease_table RENAME TO renamed;
ALTER TABLE dlock_private.renamed ADD COLUMN note text;
CREATE TABLE dlock_private.lease_table (a integer);
SELECT dlock_is_free('t/1');
ROLLBACK TO s;
SELECT dlock_is_free('t/1');
COMMIT;
BEGIN;
INSERT INTO beside VALUES (2);
DO $$BEGIN EXECUTE 'ALTER TABLE dlock_private.lease_table RENAME TO renamed'; END$$;
ALTER TABLE dlock_private.renamed ADD COLUMN note text;
CREATE TABLE dlock_private.lease_table (a integer);
COMMIT;
BEGIN;
ALTER TABLE dlock_private.lease_table RENAME TO renamed;
ALTER TABLE dlock_private.renamed ADD COLUMN note text;
ALTER TABLE dlock_private.renamed RENAME TO lease_table;
COMMIT;
BEGIN;
ALTER TABLE dlock_private.lease_table ADD COLUMN note text;
PREPARE TRANSACTION 'changed';
BEGIN;
DROP EXTENSION dlock;
CREATE EXTENSION dlock;
ALTER TABLE dlock_private.lease_table ADD COLUMN note text;
COMMIT;
SELECT a, dlock_owner('t/1') AS owner FROM beside;
DROP TABLE beside;
-- there and back is no change
BEGIN;
ALTER TABLE dlock_private.lease_table RENAME TO renamed;
ALTER TABLE dlock_private.renamed RENAME TO lease_table;
ALTER TABLE dlock_private.lease_table RENAME COLUMN owner TO other;
ALTER TABLE dlock_private.lease_table RENAME COLUMN other TO owner;
COMMIT;
CREATE ROLE regress_table_owner;
ALTER TABLE dlock_private.lease_table OWNER TO regress_table_owner;
DROP OWNED BY regress_table_owner;
REASSIGN OWNED BY regress_table_owner TO CURRENT_USER;
DROP ROLE regress_table_owner;
ALTER TABLE dlock_private.lease_table SET (fillfactor = 50), SET TABLESPACE pg_default, REPLICA IDENTITY FULL;
ALTER TABLE dlock_private.lease_table RESET (fillfactor), REPLICA IDENTITY DEFAULT;
CREATE STATISTICS on_leases ON name, owner FROM dlock_private.lease_table;
ANALYZE dlock_private.lease_table;
VACUUM FULL dlock_private.lease_table;
DROP STATISTICS on_leases;
BEGIN;
SAVEPOINT s;
DROP EXTENSION dlock;
ROLLBACK TO s;
SELECT dlock_acquire('t/1', 'me', 60) IS NOT NULL AS again, dlock_release('t/1', 'me');
COMMIT;

-- if it is something else all the same, every function refuses it, until the
-- extension is created again
UPDATE pg_class SET relam = (SELECT oid FROM pg_am WHERE amname = 'heap') WHERE oid = 'dlock_private.lease_table'::regclass;
\set VERBOSITY default
SELECT dlock_renew('t/1', 'me', 60);
SELECT dlock_release('t/1', 'me');
SELECT dlock_release_all('me');
SELECT dlock_renew_all('me', 60);
SELECT dlock_is_free('t/1');
SELECT * FROM dlock_holders('t/1');
SELECT dlock_force_release('t/1');
\echo :SQLSTATE
\set VERBOSITY sqlstate
-- which is nobody's fault who changes something else
CREATE TABLE beside (a integer PRIMARY KEY, CHECK (a > 0));
DROP TABLE beside;
DROP EXTENSION dlock;
CREATE EXTENSION dlock;
\set VERBOSITY default
SELECT dlock_is_free('t/1');

-- what dlock_holders has answered outlives it
DO $$
DECLARE
	held record;
BEGIN
	SELECT h INTO held FROM dlock_acquire('t/1', 'me', 60), dlock_holders('t/1') h;
	DROP EXTENSION dlock;
	CREATE EXTENSION dlock;
	RAISE NOTICE '%', to_jsonb(held.h) -> 'owner';
	RAISE NOTICE '% left', (SELECT count(*) FROM dlock_holders('t/1'));
END
$$;

SELECT count(dlock_acquire('t/' || i, 'me', 600)) FROM generate_series(1, 300) i;
DROP TABLE before;
CREATE TEMP TABLE before AS SELECT * FROM dlock_private.lease_table;
CREATE FUNCTION pg_temp.same() RETURNS boolean LANGUAGE sql AS $$
	SELECT count(*) = 300 AND bool_and((l.name, l.owner, l.mode, l.version, l.token, l.role, l.pid)
		= (b.name, b.owner, b.mode, b.version, b.token, b.role, b.pid))
	FROM dlock_private.lease_table l JOIN before b USING (name)
$$;

-- reading
SELECT count(*), count(DISTINCT name), count(DISTINCT ctid) FROM dlock_private.lease_table;
SELECT DISTINCT tableoid::regclass FROM dlock_private.lease_table;
SELECT count(l::text), count((l).name) FROM dlock_private.lease_table l;
COPY (SELECT count(*) FROM dlock_private.lease_table) TO stdout;
BEGIN;
DECLARE c CURSOR FOR SELECT mode FROM dlock_private.lease_table;
FETCH 2 FROM c;
MOVE 297 IN c;
FETCH 2 FROM c;
COMMIT;
DECLARE held CURSOR WITH HOLD FOR SELECT count(*) OVER () FROM dlock_private.lease_table;
SELECT dlock_release('t/300', 'me'), dlock_acquire('t/300', 'me', 600) IS NOT NULL AS again;
FETCH 1 FROM held;
CLOSE held;
UPDATE before SET token = (SELECT token FROM dlock_holders('t/300')) WHERE name = 't/300';
SELECT pg_temp.same();
-- a scan can start again, but not turn round
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT mode FROM dlock_private.lease_table;
MOVE 299 IN c;
MOVE ABSOLUTE 0 IN c;
MOVE 299 IN c;
FETCH 2 FROM c;
FETCH BACKWARD 1 FROM c;
\echo :SQLSTATE
ROLLBACK;
SELECT count(*) FROM dlock_private.lease_table a, dlock_private.lease_table b WHERE a.name = b.name;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SELECT count(*) FROM dlock_private.lease_table a, dlock_private.lease_table b WHERE a.name = b.name;
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;

-- in parallel, if somebody has the planner try: every row once
ALTER TABLE dlock_private.lease_table RESET (parallel_workers);
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 4;
DO $$
DECLARE
	line text;
BEGIN
	FOR line IN EXPLAIN (COSTS OFF) SELECT count(*) FROM dlock_private.lease_table LOOP
		IF line ~ 'Parallel Seq Scan on lease_table' THEN
			RAISE NOTICE 'a parallel scan';
		END IF;
	END LOOP;
END $$;
SELECT count(*), count(DISTINCT name) FROM dlock_private.lease_table;
SELECT count(*), count(DISTINCT name), count(DISTINCT owner) FROM dlock.locks;
SET parallel_leader_participation = off;
SELECT count(*), count(DISTINCT name) FROM dlock_private.lease_table;
-- the setting's name up to version 15, and since
SELECT set_config(name, 'on', false) AS forced FROM pg_settings
WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \gset
SELECT count(*), sum(version) FROM dlock.locks WHERE dlock_owner(name) = 'me' AND NOT dlock_is_free(name);
RESET ALL;
ALTER TABLE dlock_private.lease_table SET (parallel_workers = 0);

-- what a scan cannot do is an error, not a crash
\set VERBOSITY sqlstate
SELECT xmin FROM dlock_private.lease_table;
SELECT count(*) FROM dlock_private.lease_table TABLESAMPLE SYSTEM (50);
SELECT name FROM dlock_private.lease_table WHERE ctid = '(1,1)';
\set VERBOSITY default

-- maintenance keeps the rows
VACUUM dlock_private.lease_table;
VACUUM (FREEZE, ANALYZE) dlock_private.lease_table;
ANALYZE dlock_private.lease_table;
SELECT pg_temp.same();
VACUUM FULL dlock_private.lease_table;
SELECT pg_temp.same();
VACUUM (FULL, ANALYZE) dlock_private.lease_table;
SELECT pg_temp.same();
REINDEX TABLE dlock_private.lease_table;
\set VERBOSITY sqlstate
CLUSTER dlock_private.lease_table;
\set VERBOSITY default
SELECT relfrozenxid, relminmxid, reltoastrelid FROM pg_class WHERE oid = 'dlock_private.lease_table'::regclass;
SELECT pg_table_size('dlock_private.lease_table') >= pg_relation_size('dlock_private.lease_table')
	AND pg_relation_size('dlock_private.lease_table') > 8192 AS sized;

-- another tablespace: not in a transaction that also takes leases
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE regress_dlock LOCATION '';
BEGIN;
ALTER TABLE dlock_private.lease_table SET TABLESPACE regress_dlock;
SELECT pg_temp.same();
SELECT dlock_acquire('moved', 'me', 60);
\echo :SQLSTATE
ROLLBACK;
SELECT pg_temp.same(), dlock_is_free('moved');
ALTER TABLE dlock_private.lease_table SET TABLESPACE regress_dlock;
SELECT pg_temp.same(), dlock_owner('t/1');
SELECT dlock_acquire('moved', 'me', 60) IS NOT NULL AS taken, dlock_release('moved', 'me');
ALTER TABLE dlock_private.lease_table SET TABLESPACE pg_default;
SELECT pg_temp.same(), dlock_acquire('moved', 'me', 60) IS NOT NULL AS taken, dlock_release('moved', 'me');
DROP TABLESPACE regress_dlock;
RESET allow_in_place_tablespaces;

-- a publication of everything does not stop the calls
SET client_min_messages = error;
CREATE PUBLICATION regress_dlock FOR ALL TABLES;
RESET client_min_messages;
SELECT dlock_acquire('published', 'me', 60) IS NOT NULL AS taken, dlock_renew('published', 'me', 60), dlock_release('published', 'me');
DROP PUBLICATION regress_dlock;

-- only another session's table lock holds calls up
BEGIN;
LOCK TABLE dlock_private.lease_table IN ACCESS EXCLUSIVE MODE;
SELECT dlock_acquire('locked', 'me', 60) IS NOT NULL AS taken, dlock_release('locked', 'me');
COMMIT;

SELECT pg_temp.same(), dlock_release_all('me');
SELECT count(*) FROM dlock_private.lease_table;
DROP TABLE before;
