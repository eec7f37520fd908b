-- dlock.stats counts what happened since dlock_stats_reset().
\pset null '<NULL>'
SELECT dlock_stats_reset();
SELECT acquired, reentered, refused, timed_out, deadlocks, released, renewed, expired, reaped, forced, waiters
FROM dlock.stats;
SELECT stats_reset BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp() AS just_now,
	coalesce((SELECT sum(n) FROM unnest(wait_histogram) n), 0) AS waits
FROM dlock.stats;

-- each call is counted once, as what it was
SELECT dlock_acquire('job', 'a', 60) IS NOT NULL AS acquired;
SELECT acquired, reentered, refused, released, renewed, forced FROM dlock.stats;
SELECT dlock_acquire('job', 'a', 60) IS NOT NULL AS reentered;
SELECT acquired, reentered, refused, released, renewed, forced FROM dlock.stats;
SELECT dlock_acquire('job', 'b', 60) IS NULL AS refused, dlock_acquire_shared('job', 'b', 60) IS NULL AS refused;
SELECT acquired, reentered, refused, released, renewed, forced FROM dlock.stats;
SELECT dlock_renew('job', 'a', 60), dlock_renew('job', 'b', 60), dlock_renew('none', 'a', 60);
SELECT acquired, reentered, refused, released, renewed, forced FROM dlock.stats;
SELECT dlock_release('job', 'a'), dlock_release('job', 'b'), dlock_release('none', 'a'), dlock_release('job', 'a');
SELECT acquired, reentered, refused, released, renewed, forced FROM dlock.stats;

-- readers and permits too; many at once count each; evictions have their own
SELECT count(dlock_acquire_shared('doc', o, 60)) FROM unnest('{a, b, c}'::text[]) o;
SELECT dlock_acquire_permit('pool', 'a', 60, 1) IS NOT NULL AS acquired, dlock_acquire_permit('pool', 'b', 60, 1) IS NULL AS refused;
SELECT acquired, reentered, refused, released, renewed, forced FROM dlock.stats;
SELECT dlock_renew_all('a', 60), dlock_release_all('a');
SELECT acquired, reentered, refused, released, renewed, forced FROM dlock.stats;
SELECT dlock_force_release('doc');
SELECT acquired, reentered, refused, released, renewed, forced FROM dlock.stats;

-- looking and failing count nothing
SELECT dlock_owner('job'), dlock_is_free('job'), (SELECT count(*) FROM dlock_holders('job')) AS holders;
SELECT dlock_acquire('', 'a', 60);
SELECT acquired, reentered, refused, released, renewed, forced FROM dlock.stats;

-- counters are no part of a transaction
BEGIN;
SELECT dlock_acquire('job', 'a', 60) IS NOT NULL AS acquired;
ROLLBACK;
SELECT dlock_release('job', 'a');
SELECT acquired, released FROM dlock.stats;

-- a lease that ran out is counted, by whoever removes it
SELECT expired + reaped AS over FROM dlock.stats \gset
SELECT dlock_acquire('job', 'a', 0.05) IS NOT NULL AS acquired;
DO $$
BEGIN
	FOR i IN 1..3000 LOOP
		EXIT WHEN dlock_acquire('job', 'b', 60) IS NOT NULL;
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT expired + reaped - :over >= 1 AS counted, dlock_release('job', 'b') FROM dlock.stats;

-- renewals that came too late: lost to somebody, or just over; renew_all cannot tell
SELECT dlock_stats_reset();
SELECT dlock_acquire('job', 'a', 3600) AS token \gset
SELECT dlock_renew('job', 'a', 3600), dlock_renew('job', 'a', 60, :token - 1), dlock_renew('job', 'b', 60), dlock_renew('none', 'a', 60), dlock_renew_all('b', 60);
SELECT renewed, renewals_lost FROM dlock.stats;
SELECT dlock_release('job', 'b'), dlock_release('none', 'a');
SELECT renewed, renewals_lost FROM dlock.stats;

-- held: the rows of the table, whatever has become of counters and transactions
SELECT held = (SELECT count(*) FROM dlock_private.lease_table) AS same FROM dlock.stats;
SELECT held AS before FROM dlock.stats \gset
SELECT count(dlock_acquire('held/' || i, 'h', 600)), count(dlock_acquire('held/' || i, 'h', 600)) FROM generate_series(1, 5000) i;
SELECT held - :before AS more, held = (SELECT count(*) FROM dlock_private.lease_table) AS same FROM dlock.stats;
SELECT count(dlock_acquire_shared('held', 'h' || i, 600)) FROM generate_series(1, 500) i;
SELECT dlock_stats_reset();
SELECT held - :before AS more, held = (SELECT count(*) FROM dlock_private.lease_table) AS same FROM dlock.stats;
-- a request id that makes a row longer moves it
SELECT count(dlock_acquire('held/' || i, 'h', 600, request => repeat('r', i % 255 + 1))) FROM generate_series(1, 1000) i;
SELECT held - :before AS more FROM dlock.stats;
VACUUM FULL dlock_private.lease_table;
SELECT held - :before AS more FROM dlock.stats;
SELECT dlock_force_release('held'), dlock_release('held/1', 'h'), dlock_release_all('h');
SELECT held - :before AS more, held = (SELECT count(*) FROM dlock_private.lease_table) AS same FROM dlock.stats;
SELECT dlock_acquire_session('held', 'h', 600) IS NOT NULL AS taken, dlock_acquire_xact('xact', 'h', 600) IS NOT NULL AS taken;
SELECT held - :before AS more FROM dlock.stats;
SELECT dlock_release_all('h'), dlock_release('job', 'a');

SELECT dlock_stats_reset();
SELECT acquired, reentered, refused, released, renewed, expired, reaped, forced, renewals_lost FROM dlock.stats;
SELECT count(*) FROM dlock.locks;
