-- Bad input is an error with an SQLSTATE, never NULL, and changes nothing.
-- Scenarios 13 and 18.
\pset null '<NULL>'
SELECT dlock_acquire('held', 'a', 600) AS t1 \gset

-- NULL: 22004
SELECT dlock_acquire(NULL, 'a', 60);
\echo :SQLSTATE
SELECT dlock_acquire('n', NULL, 60);
\echo :SQLSTATE
SELECT dlock_acquire('n', 'a', NULL);
\echo :SQLSTATE
SELECT dlock_acquire('n', 'a', 60, NULL);
\echo :SQLSTATE
SELECT dlock_acquire_shared(NULL, 'a', 60);
\echo :SQLSTATE
SELECT dlock_acquire_shared('n', NULL, 60);
\echo :SQLSTATE
SELECT dlock_acquire_shared('n', 'a', NULL);
\echo :SQLSTATE
SELECT dlock_acquire_shared('n', 'a', 60, NULL);
\echo :SQLSTATE
SELECT dlock_acquire_permit(NULL, 'a', 60, 1);
\echo :SQLSTATE
SELECT dlock_acquire_permit('n', NULL, 60, 1);
\echo :SQLSTATE
SELECT dlock_acquire_permit('n', 'a', NULL, 1);
\echo :SQLSTATE
SELECT dlock_acquire_permit('n', 'a', 60, NULL);
\echo :SQLSTATE
SELECT dlock_acquire_permit('n', 'a', 60, 1, NULL);
\echo :SQLSTATE
SELECT dlock_acquire_all(NULL, 'a', 60);
\echo :SQLSTATE
SELECT dlock_acquire_all('{n,NULL}', 'a', 60);
\echo :SQLSTATE
SELECT dlock_acquire_all('{n}', NULL, 60);
\echo :SQLSTATE
SELECT dlock_acquire_all('{n}', 'a', NULL);
\echo :SQLSTATE
SELECT dlock_acquire_all('{n}', 'a', 60, NULL);
\echo :SQLSTATE
SELECT dlock_acquire_session(NULL, 'a', 60);
\echo :SQLSTATE
SELECT dlock_acquire_session('n', 'a', 60, NULL);
\echo :SQLSTATE
SELECT dlock_acquire_xact('n', NULL, 60);
\echo :SQLSTATE
SELECT dlock_acquire_xact('n', 'a', NULL);
\echo :SQLSTATE
SELECT dlock_guard(NULL, 'a', 1);
\echo :SQLSTATE
SELECT dlock_guard('held', NULL, 1);
\echo :SQLSTATE
SELECT dlock_guard('held', 'a', NULL);
\echo :SQLSTATE
SELECT dlock_wait(NULL);
\echo :SQLSTATE
SELECT dlock_wait('held', NULL);
\echo :SQLSTATE
SELECT dlock_renew(NULL, 'a', 60);
\echo :SQLSTATE
SELECT dlock_renew('held', NULL, 60);
\echo :SQLSTATE
SELECT dlock_renew('held', 'a', NULL);
\echo :SQLSTATE
SELECT dlock_renew_all(NULL, 60);
\echo :SQLSTATE
SELECT dlock_renew_all('a', NULL);
\echo :SQLSTATE
SELECT dlock_release(NULL, 'a');
\echo :SQLSTATE
SELECT dlock_release('held', NULL);
\echo :SQLSTATE
SELECT dlock_release_all(NULL);
\echo :SQLSTATE
SELECT dlock_owner(NULL);
\echo :SQLSTATE
SELECT dlock_is_free(NULL);
\echo :SQLSTATE
SELECT * FROM dlock_holders(NULL);
\echo :SQLSTATE
SELECT dlock_force_release(NULL);
\echo :SQLSTATE
-- an owner that happens to be NULL does not evict everybody
SELECT dlock_force_release('held', NULL);
\echo :SQLSTATE

-- names, owners and request ids: 1 to 255 bytes, 22023
SELECT dlock_acquire('', 'a', 60);
\echo :SQLSTATE
SELECT dlock_acquire(repeat('x', 256), 'a', 60);
\echo :SQLSTATE
SELECT dlock_acquire('n', '', 60);
\echo :SQLSTATE
SELECT dlock_acquire('n', repeat('x', 256), 60);
\echo :SQLSTATE
SELECT dlock_acquire('n', 'a', 60, request => '');
\echo :SQLSTATE
SELECT dlock_acquire('n', 'a', 60, request => repeat('x', 1000000));
\echo :SQLSTATE
SELECT dlock_acquire_shared('', 'a', 60);
SELECT dlock_acquire_shared('n', '', 60);
SELECT dlock_acquire_shared('n', 'a', 60, request => '');
SELECT dlock_acquire_permit('', 'a', 60, 1);
SELECT dlock_acquire_permit('n', '', 60, 1);
SELECT dlock_acquire_permit('n', 'a', 60, 1, request => '');
SELECT dlock_acquire_session('', 'a', 60);
SELECT dlock_acquire_xact('n', '', 60);
SELECT dlock_guard('', 'a', 1);
SELECT dlock_guard('held', repeat('x', 256), 1);
SELECT dlock_wait('');
SELECT dlock_renew('', 'a', 60);
SELECT dlock_renew('held', '', 60);
SELECT dlock_renew_all('', 60);
SELECT dlock_release('', 'a');
SELECT dlock_release('held', '');
SELECT dlock_release_all('');
SELECT dlock_release_all(repeat('x', 256));
SELECT dlock_owner('');
SELECT dlock_owner(repeat('x', 256));
SELECT dlock_is_free('');
SELECT * FROM dlock_holders('');
SELECT dlock_force_release('');
SELECT dlock_force_release('held', '');
\echo :SQLSTATE

-- ttl: more than 0, at most dlock.max_ttl, 22023
SELECT dlock_acquire('n', 'a', 0);
\echo :SQLSTATE
SELECT dlock_acquire('n', 'a', -1);
\echo :SQLSTATE
SELECT dlock_acquire('n', 'a', '-1 day');
\echo :SQLSTATE
SELECT dlock_acquire('n', 'a', 0.0000001);
\echo :SQLSTATE
SELECT dlock_acquire('n', 'a', 86401);
\echo :SQLSTATE
SELECT dlock_acquire('n', 'a', 86400.000001);
\echo :SQLSTATE
SELECT dlock_acquire('n', 'a', '40 years');
\echo :SQLSTATE
SELECT dlock_acquire('n', 'a', 'NaN'::float8);
\echo :SQLSTATE
SELECT dlock_acquire('n', 'a', 'infinity'::float8);
\echo :SQLSTATE
SELECT dlock_acquire_shared('n', 'a', 0);
SELECT dlock_acquire_permit('n', 'a', 0, 1);
SELECT dlock_acquire_all('{n}', 'a', 0);
SELECT dlock_acquire_session('n', 'a', -1);
SELECT dlock_acquire_xact('n', 'a', 86401);
SELECT dlock_renew('held', 'a', 0);
SELECT dlock_renew('held', 'a', 86401);
SELECT dlock_renew_all('a', 0);
SELECT dlock_renew_all('a', -0.5);
SELECT dlock_renew_all('a', '1 day 1 s');
-- the bound itself is allowed
SELECT dlock_acquire('long', 'b', '1 day') IS NOT NULL AS taken;
SELECT dlock_renew('long', 'b', 86400), expires_at > clock_timestamp() + '23 h' AS long FROM dlock_holders('long');
-- operators may set the bound, up to a thousand million seconds; it is checked at the call
SET dlock.max_ttl = '10s';
SELECT dlock_renew('long', 'b', 11);
SELECT dlock_renew('long', 'b', 10), dlock_wait('no-name', 10);
SET dlock.max_ttl = 1000000000;
SELECT dlock_renew('long', 'b', 1000000001);
SELECT dlock_renew('long', 'b', 1000000000);
RESET dlock.max_ttl;
SELECT expires_at > clock_timestamp() + '31 years' AS long, dlock_acquire('long', 'b', 1) = token AS again FROM dlock_holders('long');
SELECT expires_at > clock_timestamp() + '31 years' AS long FROM dlock_holders('long');
SELECT dlock_release_all('b');
\set VERBOSITY sqlstate
SET dlock.max_ttl = 0;
SET dlock.max_ttl = 1000000001;
SET ROLE pg_monitor;
SET dlock.max_ttl = 60;
RESET ROLE;
\set VERBOSITY default

-- limit: at least 1, 22023; up to the largest integer
SELECT dlock_acquire_permit('n', 'a', 60, 0);
\echo :SQLSTATE
SELECT dlock_acquire_permit('n', 'a', 60, -1);
\echo :SQLSTATE
SELECT dlock_acquire_permit('n', 'a', 60, -2147483648);
\echo :SQLSTATE
SELECT dlock_acquire_permit('big', 'b', 60, 2147483647) IS NOT NULL AS taken, dlock_release('big', 'b');

-- wait: any span, but not NaN, not beyond range, and not more than dlock.max_ttl, 22023
SELECT dlock_acquire('n', 'a', 60, 'NaN'::float8);
\echo :SQLSTATE
SELECT dlock_acquire('n', 'a', 60, 'infinity');
\echo :SQLSTATE
SELECT dlock_acquire('held', 'b', 60, 1e300::float8);
\echo :SQLSTATE
SELECT dlock_acquire_shared('n', 'a', 60, wait => '-infinity'::float8);
\echo :SQLSTATE
SELECT dlock_acquire_permit('n', 'a', 60, 1, wait => 'NaN'::numeric);
\echo :SQLSTATE
SELECT dlock_wait('held', 86401);
\echo :SQLSTATE
SELECT dlock_acquire_all('{n}', 'a', 60, '2 days');
SELECT dlock_wait('held', 'NaN');
\echo :SQLSTATE
SELECT dlock_wait('held', 'soon');
\echo :SQLSTATE

-- scenario 13: a reader asks to write: told to release first, 55000
SELECT dlock_acquire_shared('doc', 'a', 60) IS NOT NULL AS reading;
SELECT dlock_acquire('doc', 'a', 60);
\echo :SQLSTATE
SELECT dlock_acquire_shared('doc', 'b', 60) IS NOT NULL AS reading;
SELECT dlock_acquire('doc', 'a', 60);
SELECT dlock_acquire_permit('doc', 'a', 60, 9);
\echo :SQLSTATE
SELECT owner, mode, version FROM dlock_holders('doc') ORDER BY owner;
SELECT dlock_release('doc', 'b'), dlock_release('doc', 'a');

-- one holder cannot mix permits with the rest: 55000
SELECT dlock_acquire_permit('held', 'a', 60, 9);
\echo :SQLSTATE
SELECT dlock_acquire_permit('pool', 'a', 60, 9) IS NOT NULL AS taken;
SELECT dlock_acquire('pool', 'a', 60);
\echo :SQLSTATE
SELECT dlock_acquire_shared('pool', 'a', 60);
\echo :SQLSTATE
SELECT owner, mode, version FROM dlock_holders('pool');
SELECT dlock_release('pool', 'a');

-- a name is quoted, not interpreted, in a message
SELECT dlock_acquire_shared('%s %n %d "x"', 'o''"%s', 60) IS NOT NULL AS reading;
SELECT dlock_acquire('%s %n %d "x"', 'o''"%s', 60);
SELECT dlock_release('%s %n %d "x"', 'o''"%s');

-- nothing above changed the one lease there was
SELECT name, owner, mode, version, token = :t1 AS same_token,
	expires_at < clock_timestamp() + '601 s' AS same_deadline FROM dlock.locks;
SELECT dlock_release('held', 'a');
