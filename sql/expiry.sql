-- The deadline: a lease is over when it has passed, whether or not the reaper
-- came by, and what its late owner then does is answered and harmless.
\pset null '<NULL>'
CREATE FUNCTION wait_until_free(name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..3000 LOOP
		IF public.dlock_is_free(name) THEN
			RETURN true;
		END IF;
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN false;
END $$;

-- scenario 2: A's lease ends and B acquires
SELECT dlock_acquire('job', 'a', 60) AS t1, dlock_acquire('job', 'b', 60) AS t2,
	dlock_renew('job', 'a', 0.1) AS ends_soon \gset
SELECT :t1 > 0 AS taken, NOT :{?t2} AS refused;
SELECT wait_until_free('job'), dlock_owner('job');
SELECT count(*) FROM dlock_holders('job') WHERE expires_at > clock_timestamp();
SELECT dlock_acquire('job', 'b', 60) AS t2 \gset
SELECT :t2 > :t1 AS larger;
SELECT owner, version FROM dlock_holders('job');

-- scenario 3: A releases and renews: refused, B is still owner
SELECT dlock_release('job', 'a'), dlock_release('job', 'a', :t1);
SELECT dlock_renew('job', 'a', 60), dlock_renew('job', 'a', 60, :t1);
SELECT dlock_renew_all('a', 60), dlock_release_all('a');
SELECT dlock_owner('job'), version FROM dlock_holders('job');
SELECT dlock_release('job', 'b');

-- with nobody after it, the late owner is told that nobody holds it
SELECT dlock_acquire('job', 'a', 0.1) IS NOT NULL AS taken;
SELECT wait_until_free('job');
SELECT dlock_renew('job', 'a', 60), dlock_release('job', 'a'), dlock_renew_all('a', 60), dlock_release_all('a');

-- the same owner after its deadline starts anew: larger token, one hold
SELECT dlock_acquire('job', 'a', 60, request => 'r') AS t1, dlock_acquire('job', 'a', 60) AS t2,
	dlock_renew('job', 'a', 0.1) AS ends_soon \gset
SELECT :t1 = :t2 AS same_token;
SELECT wait_until_free('job');
SELECT dlock_acquire('job', 'a', 60, request => 'r') > :t1 AS larger;
SELECT version, dlock_release('job', 'a') FROM dlock_holders('job');

-- an expired reader or permit makes room, the others stay
SELECT dlock_acquire_shared('doc', 'a', 60) IS NOT NULL AS long,
	dlock_acquire_shared('doc', 'b', 0.1) IS NOT NULL AS short;
SELECT dlock_acquire_permit('pool', 'a', 60, 2) IS NOT NULL AS long,
	dlock_acquire_permit('pool', 'b', 0.1, 2) IS NOT NULL AS short;
DO $$
BEGIN
	FOR i IN 1..3000 LOOP
		EXIT WHEN dlock_acquire_permit('pool', 'c', 60, 2) IS NOT NULL;
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT owner, version FROM dlock_holders('pool') WHERE expires_at > clock_timestamp() ORDER BY owner;
SELECT owner, version FROM dlock_holders('doc') WHERE expires_at > clock_timestamp() ORDER BY owner;
SELECT dlock_release('doc', 'b'), dlock_release('doc', 'a'), dlock_is_free('doc');
SELECT dlock_release('pool', 'b'), dlock_release('pool', 'a'), dlock_release('pool', 'c'), dlock_is_free('pool');

-- renewing may end it sooner
SELECT dlock_acquire('job', 'a', 600) IS NOT NULL AS taken;
SELECT dlock_renew('job', 'a', 0.1);
SELECT wait_until_free('job'), dlock_release('job', 'a');

-- the shortest ttl there is
SELECT dlock_acquire('job', 'a', 0.000001) IS NOT NULL AS taken;
SELECT wait_until_free('job');

-- the reaper removes what is over, without anybody asking for the name
SELECT count(dlock_acquire('dead/' || i, 'a', 0.1)) FROM generate_series(1, 20) i;
DO $$
BEGIN
	FOR i IN 1..6000 LOOP
		EXIT WHEN NOT EXISTS (SELECT FROM dlock.locks);
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT count(*) FROM dlock.locks;
DROP FUNCTION wait_until_free;
