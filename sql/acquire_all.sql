-- Many leases at once: all or none.  Scenario 15.
\pset null '<NULL>'

-- tokens come in the order of the names, whatever order they are taken in
SELECT dlock_acquire_all(ARRAY['c', 'a', 'b'], 'me', 600) AS tokens \gset
SELECT n.name, h.owner, h.mode, h.version, h.token = n.token AS same
FROM unnest(ARRAY['c', 'a', 'b'], :'tokens'::bigint[]) n (name, token), dlock_holders(n.name) h;
SELECT array_length(:'tokens'::bigint[], 1), array_ndims(:'tokens'::bigint[]), array_lower(:'tokens'::bigint[], 1);
-- each can be renewed and released alone, with its token
SELECT dlock_renew('a', 'me', 600, (:'tokens'::bigint[])[2]), dlock_release('a', 'me', (:'tokens'::bigint[])[2]);
-- a re-entry where held, a new grant where not
SELECT dlock_acquire_all('{a,b,c}', 'me', 600) AS again \gset
SELECT (:'again'::bigint[])[1] > (:'tokens'::bigint[])[2] AS new, (:'again'::bigint[])[2] = (:'tokens'::bigint[])[3] AS b, (:'again'::bigint[])[3] = (:'tokens'::bigint[])[1] AS c;
SELECT name, version FROM dlock.locks ORDER BY name;
SELECT dlock_release_all('me');

-- one busy: none is taken
SELECT dlock_acquire('b', 'other', 600) AS other \gset
SELECT dlock_acquire_all('{a,b,c}', 'me', 600);
SELECT dlock_acquire_all('{a,b,c}', 'me', 600, 0);
SELECT dlock_acquire_all('{a,b,c}', 'me', 600, 0.01);
SELECT dlock_acquire_all('{b}', 'me', 600);
SELECT name, owner, version, token = :other AS same FROM dlock.locks;
-- a busy one that was held before stays as it was
SELECT dlock_acquire('a', 'me', 30) AS mine \gset
SELECT dlock_acquire_all('{a,b,c}', 'me', 600);
SELECT name, owner, version, token = :mine AS same, expires_at < clock_timestamp() + '31 s' AS deadline FROM dlock_holders('a');
SELECT dlock_is_free('c');
SELECT dlock_release('a', 'me'), dlock_release('b', 'other');
-- readers and permits are in the way as well
SELECT dlock_acquire_shared('a', 'reader', 600) IS NOT NULL AS reading, dlock_acquire_permit('b', 'worker', 600, 5) IS NOT NULL AS working;
SELECT dlock_acquire_all('{a,c}', 'me', 600), dlock_acquire_all('{b,c}', 'me', 600), dlock_is_free('c');
SELECT dlock_release_all('reader'), dlock_release_all('worker');

-- an expired one is free; scenario 2
SELECT dlock_acquire('b', 'other', 0.01) IS NOT NULL AS taken;
SELECT array_length(dlock_acquire_all('{a,b,c}', 'me', 600, -1), 1);
SELECT name, owner FROM dlock.locks WHERE expires_at > clock_timestamp() ORDER BY name;
SELECT dlock_release_all('me');

-- scenario 6: the same request id twice: one hold each, the same tokens
SELECT dlock_acquire_all('{x,y,z}', 'me', 600, 0, 'r1') AS first \gset
SELECT dlock_acquire_all('{x,y,z}', 'me', 600, 0, 'r1') = :'first' AS same;
SELECT dlock_acquire_all('{z,y,x}', 'me', 600, -1, 'r1') = ARRAY[(:'first'::bigint[])[3], (:'first'::bigint[])[2], (:'first'::bigint[])[1]] AS same;
SELECT name, version FROM dlock.locks ORDER BY name;
SELECT dlock_acquire_all('{x,y,z}', 'me', 600, 0, 'r2') = :'first' AS same;
SELECT name, version FROM dlock.locks ORDER BY name;
-- some replayed, some not
SELECT (dlock_acquire_all('{x,new}', 'me', 600, 0, 'r2'))[1] = (:'first'::bigint[])[1] AS same;
SELECT name, version FROM dlock.locks ORDER BY name;
SELECT dlock_release_all('me');

-- 1 and 100 names, 255 bytes, odd names
SELECT array_length(dlock_acquire_all('{a}', 'me', 600), 1);
SELECT dlock_release_all('me');
SELECT array_length(dlock_acquire_all(array_agg('n' || i), 'me', 600), 1) FROM generate_series(1, 100) i;
SELECT dlock_renew_all('me', 60), dlock_release_all('me');
SELECT array_length(dlock_acquire_all(ARRAY[repeat('x', 255), 'é', 'É', 'e', 'e ', ' e', '"', '{}', 'NULL'], repeat('o', 255), 600), 1);
SELECT length(name), left(name, 5), length(owner) FROM dlock.locks ORDER BY name COLLATE "C";
SELECT dlock_release_all(repeat('o', 255));
-- other bounds than 1
SELECT array_length(dlock_acquire_all('[0:1]={a,b}', 'me', 600), 1), dlock_release_all('me');
-- an array of another string type
SELECT array_length(dlock_acquire_all(ARRAY['a', 'b']::varchar[], 'me', 600), 1), dlock_release_all('me');
-- a table's column, of names long and short
CREATE TABLE names (list text[]);
INSERT INTO names SELECT array_agg(i || repeat('x', 200)) FROM generate_series(1, 90) i;
SELECT array_length(dlock_acquire_all(list, 'me', 600), 1) FROM names;
SELECT dlock_release_all('me');
DROP TABLE names;

-- bad input: an error, and nothing is taken
SELECT dlock_acquire('held', 'me', 600) AS held \gset
SELECT dlock_acquire_all(NULL, 'me', 600);
\echo :SQLSTATE
SELECT dlock_acquire_all('{}', 'me', 600);
\echo :SQLSTATE
SELECT dlock_acquire_all('{{a,b},{c,d}}', 'me', 600);
\echo :SQLSTATE
SELECT dlock_acquire_all('{{a}}', 'me', 600);
\echo :SQLSTATE
SELECT dlock_acquire_all('{a,NULL,b}', 'me', 600);
\echo :SQLSTATE
SELECT dlock_acquire_all('{NULL}', 'me', 600);
\echo :SQLSTATE
SELECT dlock_acquire_all('{a,b,a}', 'me', 600);
\echo :SQLSTATE
SELECT dlock_acquire_all('{a,""}', 'me', 600);
\echo :SQLSTATE
SELECT dlock_acquire_all(ARRAY['a', repeat('x', 256)], 'me', 600);
\echo :SQLSTATE
SELECT dlock_acquire_all(array_agg('n' || i), 'me', 600) FROM generate_series(1, 101) i;
\echo :SQLSTATE
SELECT dlock_acquire_all(array_agg('n'::text), 'me', 600) FROM generate_series(1, 100000) i;
\echo :SQLSTATE
SELECT dlock_acquire_all('{a,b}', '', 600);
SELECT dlock_acquire_all('{a,b}', 'me', 0);
SELECT dlock_acquire_all('{a,b}', 'me', 600, 'NaN');
SELECT dlock_acquire_all('{a,b}', 'me', 600, 0, '');
\echo :SQLSTATE
-- misuse on the last name: none is taken, and nothing is waited for
SELECT dlock_acquire_shared('doc', 'me', 600) IS NOT NULL AS reading;
SELECT dlock_acquire_all('{a,b,doc}', 'me', 600);
\echo :SQLSTATE
SELECT dlock_acquire_all('{doc,held}', 'me', 600, -1);
\echo :SQLSTATE
SELECT dlock_acquire_permit('pool', 'me', 600, 5) IS NOT NULL AS working;
SELECT dlock_acquire_all('{a,pool}', 'me', 600);
\echo :SQLSTATE
SELECT dlock_acquire_session('session', 'me', 600) IS NOT NULL AS taken;
SELECT dlock_acquire_all('{held,session}', 'me', 600);
\echo :SQLSTATE
SELECT name, mode, version FROM dlock.locks ORDER BY name;
SELECT token = :held AS same FROM dlock_holders('held');
SELECT dlock_release_all('me');
SELECT count(*) FROM dlock.locks WHERE expires_at > clock_timestamp();

-- at once, whatever becomes of the transaction; scenario 17
BEGIN;
SELECT array_length(dlock_acquire_all('{a,b}', 'me', 600), 1);
ROLLBACK;
SELECT dlock_owner('a'), dlock_owner('b'), dlock_release_all('me');
-- another role with the same owner string is another holder
CREATE ROLE regress_dlock_all;
SELECT dlock_acquire('b', 'me', 600) IS NOT NULL AS taken;
SET ROLE regress_dlock_all;
SELECT dlock_acquire_all('{a,b}', 'me', 600), dlock_is_free('a');
RESET ROLE;
SELECT dlock_release('b', 'me');
DROP ROLE regress_dlock_all;
