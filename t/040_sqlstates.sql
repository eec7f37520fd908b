-- The SQLSTATE of every misuse, in every function that can meet it, and that
-- contention is an answer, not an error.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS dlock;
CREATE EXTENSION IF NOT EXISTS pgtap;
BEGIN;
SELECT no_plan();

-- one wrong argument at a time
CREATE TEMP TABLE calls (call text);
INSERT INTO calls VALUES
	('SELECT dlock_acquire({name}, {owner}, {ttl}, {wait}, {request})'),
	('SELECT dlock_acquire_shared({name}, {owner}, {ttl}, {wait}, {request})'),
	('SELECT dlock_acquire_permit({name}, {owner}, {ttl}, {limit}, {wait}, {request})'),
	('SELECT dlock_acquire_all(ARRAY[{name}], {owner}, {ttl}, {wait}, {request})'),
	('SELECT dlock_acquire_all(ARRAY[''m'', {name}], {owner}, {ttl}, {wait}, {request})'),
	('SELECT dlock_acquire_all({names}, {owner}, {ttl})'),
	('SELECT dlock_acquire_permits({name}, {owner}, {ttl}, {limit}, {permits}, {wait}, {request})'),
	('SELECT * FROM dlock_acquire_any(ARRAY[''m'', {name}], {owner}, {ttl}, {count}, {wait}, {request})'),
	('SELECT * FROM dlock_acquire_any({any}, {owner}, {ttl}, 1)'),
	('SELECT dlock_acquire_session({name}, {owner}, {ttl}, {wait})'),
	('SELECT dlock_acquire_session_shared({name}, {owner}, {ttl}, {wait})'),
	('SELECT dlock_acquire_xact_shared({name}, {owner}, {ttl}, {wait})'),
	('SELECT dlock_acquire_xact({name}, {owner}, {ttl}, {wait})'),
	('SELECT dlock_guard({name}, {owner}, {token})'),
	('SELECT dlock_wait({name}, {wait})'),
	('SELECT dlock_renew({name}, {owner}, {ttl})'),
	('SELECT dlock_renew_all({owner}, {ttl})'),
	('SELECT dlock_renew_many(ARRAY[{name}], {owner}, {ttl})'),
	('SELECT dlock_renew_many({any}, {owner}, {ttl})'),
	('SELECT dlock_renew_many({any}, {owner}, {ttl}, {tokens})'),
	('SELECT dlock_release({name}, {owner})'),
	('SELECT dlock_release({name}, {owner}, 1, {holds})'),
	('SELECT dlock_release_many(ARRAY[{name}], {owner})'),
	('SELECT dlock_release_many({any}, {owner}, {tokens})'),
	('SELECT dlock_release_after({name}, {owner}, {ttl})'),
	('SELECT dlock_downgrade({name}, {owner})'),
	('SELECT dlock_release_all({owner})'),
	('SELECT dlock_owner({name})'),
	('SELECT dlock_is_free({name})'),
	('SELECT dlock_remaining({name}, {owner})'),
	('SELECT dlock_holders({name})'),
	('SELECT dlock_force_release({name})'),
	('SELECT dlock_force_release({name}, {owner})');
CREATE TEMP TABLE wrong (argument text, value text, state text);
INSERT INTO wrong VALUES
	('{name}', 'NULL', '22004'),
	('{name}', '''''', '22023'),
	('{name}', 'repeat(''x'', 256)', '22023'),
	('{owner}', 'NULL', '22004'),
	('{owner}', '''''', '22023'),
	('{owner}', 'repeat(''x'', 256)', '22023'),
	('{request}', '''''', '22023'),
	('{request}', 'repeat(''x'', 256)', '22023'),
	('{ttl}', 'NULL', '22004'),
	('{ttl}', '0', '22023'),
	('{ttl}', '-1', '22023'),
	('{ttl}', '86401', '22023'),
	('{ttl}', '''NaN''::float8', '22023'),
	('{ttl}', '''infinity''', '22023'),
	('{ttl}', '1e300::float8', '22023'),
	('{ttl}', '''1 parsec''', '22007'),
	('{ttl}', '''178956971 years''', '22008'),
	('{ttl}', 'interval ''170000000 years'' * 1000', '22008'),
	('{wait}', 'NULL', '22004'),
	('{wait}', '86400.000001', '22023'),
	('{wait}', '''NaN''', '22023'),
	('{wait}', '''NaN''::float8', '22023'),
	('{wait}', '''NaN''::numeric', '22023'),
	('{wait}', '''infinity''', '22023'),
	('{wait}', '1e300::float8', '22023'),
	('{wait}', '-1e300::float8', '22023'),
	('{wait}', '''1 parsec''', '22007'),
	('{wait}', '''178956971 years''', '22008'),
	('{token}', 'NULL', '22004'),
	('{token}', '0', '55L01'),
	('{token}', '-1', '55L01'),
	('{token}', '9223372036854775807', '55L01'),
	('{names}', 'NULL', '22004'),
	('{names}', '''{}''', '22023'),
	('{names}', '''{{n,m}}''', '22023'),
	('{names}', '''{m,NULL}''', '22004'),
	('{names}', '''{m,n,m}''', '22023'),
	('{names}', '(SELECT array_agg(i::text) FROM generate_series(1, 101) i)', '22023'),
	('{any}', 'NULL', '22004'),
	('{any}', '''{{n,m}}''', '22023'),
	('{any}', '''{m,NULL}''', '22004'),
	('{any}', '''{m,n,m}''', '22023'),
	('{any}', '(SELECT array_agg(i::text) FROM generate_series(1, 1001) i)', '22023'),
	('{tokens}', '''{1}''', '22023'),
	('{tokens}', '''{{1,2}}''', '22023'),
	('{count}', 'NULL', '22004'),
	('{count}', '0', '22023'),
	('{permits}', 'NULL', '22004'),
	('{permits}', '0', '22023'),
	('{permits}', '2', '22023'),
	('{holds}', 'NULL', '22004'),
	('{holds}', '-1', '22023'),
	('{limit}', 'NULL', '22004'),
	('{limit}', '0', '22023'),
	('{limit}', '-2147483648', '22023');
CREATE FUNCTION pg_temp.filled(call text) RETURNS text LANGUAGE sql AS $$
	SELECT replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(call,
		'{name}', '''n'''), '{names}', '''{m,n}'''), '{token}', '1'), '{owner}', '''o'''), '{ttl}', '60'), '{wait}', '0'),
		'{request}', 'NULL'), '{limit}', '1'), '{any}', '''{m,n}'''), '{tokens}', 'NULL'), '{count}', '1'), '{permits}', '1'), '{holds}', '1')
$$;
SELECT throws_ok(pg_temp.filled(replace(call, argument, value)), state, NULL,
	pg_temp.filled(replace(call, argument, value)) || ' is ' || state)
FROM calls JOIN wrong ON strpos(call, argument) > 0;
SELECT is((SELECT count(*) FROM calls JOIN wrong ON strpos(call, argument) > 0), 533::bigint, 'all were tried');
SELECT is_empty('SELECT name FROM dlock.locks WHERE name IN (''m'', ''n'')', 'and none took a lease');
SELECT is_empty('SELECT name FROM dlock.waiters', 'nor waits');

-- misuse by a holder
SELECT isnt(dlock_acquire_shared('doc', 'o', 60), NULL, 'a reader');
SELECT throws_ok('SELECT dlock_acquire(''doc'', ''o'', 60)', '55000', NULL, 'cannot become the writer');
SELECT throws_ok('SELECT dlock_acquire_permit(''doc'', ''o'', 60, 5)', '55000', NULL, 'nor take a permit');
SELECT isnt(dlock_acquire_permit('pool', 'o', 60, 5), NULL, 'a permit holder');
SELECT throws_ok('SELECT dlock_acquire(''pool'', ''o'', 60)', '55000', NULL, 'cannot take the lock');
SELECT throws_ok('SELECT dlock_acquire_shared(''pool'', ''o'', 60)', '55000', NULL, 'nor read');
SELECT is(dlock_release_all('o'), 2::bigint, 'both still held once');

SELECT isnt(dlock_acquire_permit('pool', 'o', 60, 1), NULL, 'the only permit');
SELECT throws_ok('SELECT dlock_acquire_permit(''pool'', ''o'', 60, 1, -1)', '40P01', NULL, 'a wait for oneself is a deadlock');
SELECT is(dlock_release_all('o'), 1::bigint, 'and takes nothing');

-- leases of different kinds
SELECT isnt(dlock_acquire_session('s', 'o', 60), NULL, 'a session lease');
SELECT isnt(dlock_acquire_xact('x', 'o', 60), NULL, 'a transaction lease');
SELECT isnt(dlock_acquire('p', 'o', 60), NULL, 'a plain lease');
SELECT throws_ok(format('SELECT dlock_release_after(%L, ''o'', 60)', n), '55000', NULL, n || ' is not released later')
FROM (VALUES ('s'), ('x')) v (n);
SELECT throws_ok(format('SELECT %s(%L, ''o'', 60)', f, n), '55000', NULL, f || ' does not mix with ' || n)
FROM (VALUES ('dlock_acquire', 's'), ('dlock_acquire', 'x'), ('dlock_acquire_shared', 's'),
	('dlock_acquire_session', 'x'), ('dlock_acquire_session', 'p'),
	('dlock_acquire_xact', 's'), ('dlock_acquire_xact', 'p')) v (f, n);
SELECT throws_ok('SELECT dlock_acquire_all(''{free,s}'', ''o'', 60)', '55000', NULL, 'nor does dlock_acquire_all');
SELECT is(dlock_is_free('free'), true, 'which takes nothing then');
SELECT throws_ok('SELECT dlock_downgrade(''q'', ''o'')', '55000', NULL, 'a permit cannot be downgraded')
FROM dlock_acquire_permit('q', 'o', 60, 2);
SELECT is(dlock_release_all('o'), 4::bigint, 'all are released alike');

-- contention is an answer
SELECT isnt(dlock_acquire('job', 'o', 3600), NULL, 'held');
SELECT lives_ok('SELECT dlock_acquire(''job'', ''other'', 60)', 'a refused acquire is no error');
SELECT is(dlock_acquire('job', 'other', 60), NULL, 'but NULL');
SELECT is(dlock_acquire_shared('job', 'other', 60), NULL, 'so is a shared one');
SELECT is(dlock_acquire_permit('job', 'other', 60, 9), NULL, 'and a permit');
SELECT is(dlock_acquire_all('{free,job}', 'other', 60), NULL, 'and many at once');
SELECT is(dlock_acquire_permits('job', 'other', 60, 9, 2), NULL, 'and several permits');
SELECT is_empty('SELECT * FROM dlock_acquire_any(''{job}'', ''other'', 60, 1)', 'any of many is no rows');
SELECT is(dlock_acquire_session('job', 'other', 60), NULL, 'a session''s');
SELECT is(dlock_acquire_session_shared('job', 'other', 60), NULL, 'shared or not');
SELECT is(dlock_acquire_xact_shared('job', 'other', 60), NULL, 'as a transaction''s');
SELECT is(dlock_acquire_xact('job', 'other', 60), NULL, 'a transaction''s');
SELECT is(dlock_acquire('job', 'other', 60, 0.01), NULL, 'also after a wait');
SELECT is(dlock_wait('job', 0.01), false, 'a wait that runs out is false');
SELECT is(dlock_renew('job', 'other', 60), false, 'a renewal by another is false');
SELECT is(dlock_release('job', 'other'), false, 'so is a release');
SELECT is(dlock_release('job', 'o'), true, 'by the holder it is true');
SELECT is(dlock_release('job', 'o'), NULL, 'and by nobody NULL');
SELECT is(dlock_renew('job', 'o', 60), NULL, 'a renewal too');

-- the lock table
SELECT throws_ok('INSERT INTO dlock_private.lease_table (name) VALUES (''x'')', '0A000', NULL, 'no INSERT');
SELECT throws_ok('UPDATE dlock_private.lease_table SET name = ''x''', '0A000', NULL, 'no UPDATE');
SELECT throws_ok('DELETE FROM dlock_private.lease_table', '0A000', NULL, 'no DELETE');
SELECT throws_ok('TRUNCATE dlock_private.lease_table', '0A000', NULL, 'no TRUNCATE');
SELECT throws_ok('CREATE INDEX ON dlock_private.lease_table (name)', '0A000', NULL, 'no index');
SELECT throws_ok('CREATE TABLE x (y text) USING dlock', '0A000', NULL, 'no other table of its kind');
-- last: the end of this transaction undoes it
ALTER TABLE dlock_private.lease_table RENAME TO other;
CREATE TABLE dlock_private.lease_table (x text);
SELECT throws_ok('SELECT dlock_acquire(''job'', ''o'', 60)', '55000', NULL, 'no lease in a table that is not as it was created');

SELECT * FROM finish();
ROLLBACK;
