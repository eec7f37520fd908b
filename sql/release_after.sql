-- dlock_release_after: given back with effect later.  Until then the name stays taken,
-- for its former owner too, and nobody's.
\pset null '<NULL>'
SELECT dlock_stats_reset();

-- held by nobody, or by somebody else
SELECT dlock_release_after('job', 'a', 60), dlock_release_after('job', 'a', 60, 1);
SELECT dlock_acquire('job', 'a', 60, request => 'r') AS t1 \gset
SELECT dlock_release_after('job', 'b', 600), dlock_release_after('job', 'b', 600, :t1), dlock_release_after('job', 'a', 600, :t1 + 1);

-- a row that is not leaving, and then is; all its holds go
SELECT dlock_acquire('job', 'a', 60) = :t1 AS again;
SELECT owner, version, guarded, leaving FROM dlock.locks WHERE name = 'job';
SELECT dlock_release_after('job', 'a', 600, :t1);
SELECT owner, version, token = :t1 AS same_token, guarded, leaving, remaining > 500 AS later FROM dlock.locks WHERE name = 'job';
SELECT owner, version, leaving, expires_at - clock_timestamp() BETWEEN '500 s' AND '600.1 s' AS later FROM dlock_holders('job');
SELECT leaving, count(*) FROM dlock_private.lease_table GROUP BY 1;
SELECT dlock_owner('job'), dlock_is_free('job'), dlock_remaining('job', 'a'), dlock_remaining('job', 'a', :t1);

-- repeated with the token it is true and changes nothing; without, it means no lease
SELECT dlock_release_after('job', 'a', 6000, :t1), dlock_release_after('job', 'a', 1, :t1);
SELECT dlock_release_after('job', 'a', 6000), dlock_release_after('job', 'b', 6000, :t1);
SELECT leaving, remaining BETWEEN 500 AND 600 AS unchanged FROM dlock_holders('job');

-- nobody renews, releases, downgrades, guards or enters it again
SELECT dlock_renew('job', 'a', 60, :t1), dlock_renew('job', 'a', 60), dlock_release('job', 'a', :t1), dlock_release('job', 'a'),
	dlock_release('job', 'a', :t1, 2), dlock_downgrade('job', 'a', :t1);
SELECT dlock_acquire('job', 'a', 60), dlock_acquire('job', 'a', 60, request => 'r'), dlock_acquire_shared('job', 'a', 60),
	dlock_acquire_permit('job', 'a', 60, 9), dlock_acquire_all('{free,job}', 'a', 60), dlock_acquire_session('job', 'a', 60);
SELECT * FROM dlock_acquire_any('{job}', 'a', 60, 1, request => 'r');
SELECT dlock_renew_many('{job}', 'a', 60), dlock_release_many('{job}', 'a');
SELECT dlock_renew_all('a', 60), dlock_release_all('a');
SELECT dlock_wait('job');
BEGIN;
SELECT dlock_guard('job', 'a', :t1);
ROLLBACK;
SELECT version, leaving, remaining BETWEEN 500 AND 600 AS unchanged FROM dlock_holders('job');

-- only a force-release ends it sooner
SELECT dlock_force_release('job', 'a'), dlock_is_free('job');

-- with the owner's other leases; sooner than the deadline; the end is a release
SELECT released, expired, reaped, forced FROM dlock.stats;
SELECT dlock_acquire_shared('doc', 'a', 600) AS t2 \gset
SELECT dlock_release_after('doc', 'a', 0.001, :t2), dlock_wait('doc', -1);
SELECT dlock_acquire_shared('doc', 'a', 600) > :t2 AS anew, dlock_release_after('doc', 'a', '600 s');
SELECT dlock_acquire_shared('doc', 'a', 600) > :t2 AS beside, dlock_release('doc', 'a');
SELECT dlock_force_release('doc');
SELECT dlock_acquire_permits('pool', 'a', 600, 5, 3) IS NOT NULL AS taken, dlock_release_after('pool', 'a', interval '10 min');
SELECT dlock_acquire_permits('pool', 'a', 600, 5, 3) IS NULL AS refused, dlock_acquire_permits('pool', 'a', 600, 5, 2) IS NOT NULL AS taken;
SELECT owner, version, leaving FROM dlock_holders('pool') ORDER BY token;
SELECT dlock_release_all('a'), dlock_force_release('pool');
SELECT dlock_acquire('line', 'a', 600) IS NOT NULL AS taken, dlock_release_after('line', 'a', 0.2::real);
SELECT dlock_acquire('line', 'a', 600, wait => '10 min') IS NOT NULL AS taken_anew;
SELECT version, leaving FROM dlock_holders('line');
SELECT dlock_release('line', 'a');
SELECT released, expired, reaped FROM dlock.stats;

-- a guard goes on, and the transaction that guards is the only one to commit
SELECT dlock_acquire('job', 'a', 600) AS t3 \gset
BEGIN;
SELECT dlock_guard('job', 'a', :t3);
SELECT dlock_release_after('job', 'a', 0.001, :t3), dlock_wait('job', -1);
SELECT dlock_acquire('job', 'b', 60);
COMMIT;
SELECT dlock_acquire('job', 'b', 60) > :t3 AS taken, dlock_release('job', 'b');

-- what a session or transaction holds is not released later
SELECT dlock_acquire_session('s', 'a', 60) IS NOT NULL AS taken;
SELECT dlock_release_after('s', 'a', 60);
SELECT leaving FROM dlock_holders('s');
SELECT dlock_release('s', 'a');
BEGIN;
SELECT dlock_acquire_xact('x', 'a', 60) IS NOT NULL AS taken;
SELECT dlock_release_after('x', 'a', 60);
ROLLBACK;
SELECT dlock_acquire('x', 'a', 60) IS NOT NULL AS taken, dlock_release('x', 'a');

-- wrong times
SELECT dlock_release_after('job', 'a', 0);
SELECT dlock_release_after('job', 'a', NULL);
SELECT dlock_release_after('job', 'a', 86401);

SELECT count(*) FROM dlock.locks;
