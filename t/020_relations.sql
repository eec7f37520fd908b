-- The views' columns, the lock table behind them, and the casts.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS dlock;
CREATE EXTENSION IF NOT EXISTS pgtap;
BEGIN;
SELECT plan(14);

CREATE TEMP VIEW columns AS
SELECT attrelid::regclass::text AS relation, attname::text COLLATE "default" || ' ' || format_type(atttypid, atttypmod) AS description, attnum
FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped;

SELECT results_eq(
	$$ SELECT description FROM columns WHERE relation = 'dlock.locks' ORDER BY attnum $$, ARRAY[
	'name text', 'owner text', 'mode text', 'version integer', 'token bigint',
	'acquired_at timestamp with time zone', 'expires_at timestamp with time zone',
	'remaining double precision', 'guarded boolean', 'leaving boolean',
	'role name', 'pid integer', 'application_name text', 'client_addr text'
], 'columns of dlock.locks');
SELECT results_eq(
	$$ SELECT description FROM columns WHERE relation = 'dlock.waiters' ORDER BY attnum $$, ARRAY[
	'name text', 'owner text', 'mode text', 'position integer', 'waiting_since timestamp with time zone',
	'role name', 'pid integer', 'application_name text', 'client_addr text'
], 'columns of dlock.waiters');
SELECT results_eq(
	$$ SELECT description FROM columns WHERE relation = 'dlock.stats' ORDER BY attnum $$, ARRAY[
	'acquired bigint', 'reentered bigint', 'refused bigint', 'timed_out bigint', 'deadlocks bigint',
	'released bigint', 'renewed bigint', 'renewals_lost bigint', 'expired bigint', 'reaped bigint',
	'forced bigint', 'woken bigint', 'held bigint', 'waiters integer', 'wait_histogram bigint[]',
	'stats_reset timestamp with time zone'
], 'columns of dlock.stats');
SELECT results_eq(
	$$ SELECT description FROM columns WHERE relation = 'dlock_private.lease_table' ORDER BY attnum $$, ARRAY[
	'name text', 'owner text', 'mode text', 'version integer', 'token bigint',
	'acquired_at timestamp with time zone', 'expires_at timestamp with time zone',
	'remaining double precision', 'guarded boolean', 'leaving boolean',
	'role oid', 'pid integer', 'application_name text', 'client_addr text', 'request text'
], 'columns of dlock_private.lease_table');

SELECT views_are('dlock', ARRAY['locks', 'stats', 'waiters'], 'views');
SELECT tables_are('dlock', ARRAY[]::text[], 'no tables');
SELECT tables_are('dlock_private', ARRAY['lease_table'], 'tables');
SELECT is(amname, 'dlock', 'the table''s access method')
FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE c.oid = 'dlock_private.lease_table'::regclass;
SELECT row_eq(
	$$ SELECT relpersistence::text, relrowsecurity, relhasindex, relfrozenxid::text, relminmxid::text, reltoastrelid::text
		FROM pg_class WHERE oid = 'dlock_private.lease_table'::regclass $$,
	ROW('p'::text, false, false, '0'::text, '0'::text, '0'::text), 'permanent, never to be frozen, nothing beside it');
SELECT bag_eq(
	$$ SELECT concat_ws(' ', tgname, tgenabled) FROM pg_trigger WHERE tgrelid = 'dlock_private.lease_table'::regclass $$,
	ARRAY['refuse_change A'], 'its trigger fires always');

SELECT bag_eq($$
	SELECT castsource::regtype || ' to ' || casttarget::regtype
		|| CASE castcontext WHEN 'i' THEN ' implicit' WHEN 'a' THEN ' in assignments' ELSE '' END
		|| CASE castmethod WHEN 'i' THEN ' as text' ELSE '' END
	FROM pg_cast
	WHERE 'dlock_duration'::regtype IN (castsource, casttarget)
$$, ARRAY[
	'smallint to dlock_duration implicit as text', 'integer to dlock_duration implicit', 'bigint to dlock_duration implicit',
	'numeric to dlock_duration implicit as text', 'real to dlock_duration implicit', 'double precision to dlock_duration implicit',
	'interval to dlock_duration implicit',
	'text to dlock_duration implicit as text', 'character varying to dlock_duration implicit as text',
	'dlock_duration to interval'
], 'casts');
SELECT row_eq(
	$$ SELECT typlen::int, typbyval, typalign::text, typcategory::text, typispreferred FROM pg_type WHERE oid = 'dlock_duration'::regtype $$,
	ROW(8, true, 'd'::text, 'U'::text, false), 'type dlock_duration');
SELECT row_eq(
	$$ SELECT prorows::int, proretset FROM pg_proc WHERE proname = 'dlock_holders' $$,
	ROW(1, true), 'dlock_holders is planned for one row');
SELECT is_empty(
	$$ SELECT operator::text FROM (SELECT oid::regoperator FROM pg_operator WHERE 'dlock_duration'::regtype IN (oprleft, oprright)) o (operator) $$,
	'no operators that its implicit casts could make ambiguous');

SELECT * FROM finish();
ROLLBACK;
