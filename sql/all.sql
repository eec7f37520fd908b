-- dlock_renew_all and dlock_release_all: every lease of one owner, and only
-- of that owner, whatever mode and hold count.
\pset null '<NULL>'

SELECT dlock_renew_all('a', 1000), dlock_release_all('a');

-- a has 203 leases with 206 holds in every mode, b shares two names with it
SELECT count(dlock_acquire('a/' || i, 'a', 1000)) FROM generate_series(1, 200) i;
SELECT dlock_acquire('a/1', 'a', 1000) IS NOT NULL AS again;
SELECT count(dlock_acquire_shared('doc', o, 1000)) FROM unnest('{a, a, b}'::text[]) o;
SELECT count(dlock_acquire_permit('pool', o, 1000, 9)) FROM unnest('{a, a, b}'::text[]) o;
SELECT dlock_acquire('last', 'a', 1000) IS NOT NULL AS taken;
SELECT dlock_acquire('b', 'b', 1000) IS NOT NULL AS taken;
SELECT owner, count(*), sum(version) FROM dlock.locks GROUP BY owner ORDER BY owner;

-- renewing counts leases, sets each deadline, later or sooner, and no other's
SELECT dlock_renew_all('a', 10000);
SELECT owner, min(expires_at) > clock_timestamp() + '5000 s' AS renewed
FROM dlock.locks GROUP BY owner ORDER BY owner;
SELECT dlock_renew_all('a', 600);
SELECT owner, max(expires_at) < clock_timestamp() + '601 s' AS renewed
FROM dlock.locks GROUP BY owner ORDER BY owner;
SELECT owner, count(*), sum(version) FROM dlock.locks GROUP BY owner ORDER BY owner;
SELECT dlock_renew_all('A', 1000), dlock_renew_all('a ', 1000), dlock_renew_all('c', 1000);

-- releasing counts leases and drops them whatever their holds
SELECT dlock_release_all('A'), dlock_release_all('a '), dlock_release_all('c');
SELECT dlock_release_all('a');
SELECT name, owner, mode, version FROM dlock.locks ORDER BY name;
SELECT dlock_release_all('a'), dlock_renew_all('a', 1000);
SELECT dlock_is_free('a/1'), dlock_is_free('doc'), dlock_is_free('pool');

-- what was dropped is free for others, with a larger token
SELECT dlock_acquire('one', 'a', 1000) AS t1 \gset
SELECT dlock_release_all(owner => 'a');
SELECT dlock_acquire('one', 'b', 1000) > :t1 AS larger;
SELECT dlock_release_all('b');

SELECT count(*) FROM dlock.locks;
