-- Leases that live as long as the connection.  How a connection can end is
-- tested in t/.
\pset null '<NULL>'
SELECT dlock_acquire_session('job', 'a', 0.01) AS t1 \gset
SELECT owner, mode, version, token = :t1 AS same_token, pid = pg_backend_pid() AS here FROM dlock_holders('job');

-- it does not expire: its time to live counts only after a restart
SELECT pg_sleep(0.05);
SELECT dlock_owner('job'), dlock_is_free('job');
SELECT dlock_acquire('job', 'b', 60), dlock_acquire_session('job', 'b', 60), dlock_acquire('job', 'b', 60, 0.01), dlock_wait('job', 0.01);
SELECT count(*) FROM dlock.locks;
-- re-entry: the same token, counted
SELECT dlock_acquire_session('job', 'a', 0.01) = :t1 AS same, version FROM dlock_holders('job');
SELECT dlock_acquire_session('job', 'a', 60, -1) = :t1 AS same;
SELECT version FROM dlock_holders('job');
SELECT dlock_release('job', 'a'), dlock_release('job', 'a', :t1), dlock_owner('job');
-- renewing changes nothing of that
SELECT dlock_renew('job', 'a', 0.01, :t1);
SELECT pg_sleep(0.05);
SELECT dlock_owner('job');
SELECT dlock_renew_all('a', 0.01);
SELECT pg_sleep(0.05);
SELECT dlock_owner('job'), dlock_release('job', 'a'), dlock_release('job', 'a');
SELECT dlock_is_free('job');

-- its kind does not mix with others, in one holder's hand: 55000
SELECT dlock_acquire_session('job', 'a', 60) IS NOT NULL AS taken;
SELECT dlock_acquire('job', 'a', 60);
\echo :SQLSTATE
SELECT dlock_acquire_shared('job', 'a', 60);
SELECT dlock_acquire_permit('job', 'a', 60, 1);
SELECT dlock_acquire_xact('job', 'a', 60);
\echo :SQLSTATE
SELECT dlock_release('job', 'a');
SELECT dlock_acquire('job', 'a', 60) IS NOT NULL AS taken;
SELECT dlock_acquire_session('job', 'a', 60);
\echo :SQLSTATE
SELECT dlock_release('job', 'a');

-- it outlives transactions, also one that fails
BEGIN;
SELECT dlock_acquire_session('job', 'a', 0.01) IS NOT NULL AS taken;
SELECT 1 / 0;
ROLLBACK;
SELECT pg_sleep(0.05);
SELECT dlock_owner('job');
-- a READ ONLY transaction may take it
BEGIN READ ONLY;
SELECT dlock_acquire_session('other', 'a', 60) IS NOT NULL AS taken;
COMMIT;
SELECT dlock_release_all('a'), dlock_is_free('job'), dlock_is_free('other');

-- DISCARD ALL ends it, and nothing less does; plain leases stay
SELECT count(dlock_acquire_session('s' || i, 'a' || i, 60)) FROM generate_series(1, 20) i;
SELECT dlock_acquire('plain', 'a', 60) IS NOT NULL AS taken;
DISCARD PLANS;
DISCARD TEMP;
DISCARD SEQUENCES;
RESET ALL;
SELECT count(*) FROM dlock.locks;
DISCARD ALL;
SELECT name, owner FROM dlock.locks;
-- and the session can take them again
SELECT dlock_acquire_session('s1', 'a1', 0.01) IS NOT NULL AS taken;
SELECT pg_sleep(0.05);
SELECT dlock_owner('s1');
DISCARD ALL;
SELECT dlock_is_free('s1'), dlock_release('s1', 'a1');
DISCARD ALL;

-- evicted by an operator, like any other; scenario 19
SELECT dlock_acquire_session('job', 'a', 60) AS t2 \gset
SELECT dlock_force_release('job'), dlock_renew('job', 'a', 60, :t2), dlock_release('job', 'a', :t2);
-- another's lease of that name then does not end with this session
SELECT dlock_acquire('job', 'b', 60) IS NOT NULL AS taken;
DISCARD ALL;
SELECT dlock_owner('job'), dlock_release('job', 'b');

-- a new connection finds nothing of the old one's
SELECT dlock_acquire_session('job', 'a', 600) AS t3 \gset
SELECT pg_backend_pid() AS old \gset
\c
DO $$ BEGIN
	WHILE EXISTS (SELECT FROM dlock.locks WHERE name = 'job') LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT dlock_acquire_session('job', 'b', 600, -1) > :t3 AS newer;
SELECT dlock_renew('job', 'a', 600, :t3), dlock_release('job', 'a', :t3);
SELECT dlock_release('job', 'b'), dlock_release('plain', 'a');

-- taken by a role, ended with the session although the role changed
CREATE ROLE regress_dlock_session;
SET ROLE regress_dlock_session;
SELECT dlock_acquire_session('job', 'a', 600) IS NOT NULL AS taken;
RESET ROLE;
DISCARD ALL;
SELECT dlock_is_free('job');
DROP ROLE regress_dlock_session;
