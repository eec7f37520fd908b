-- Renewing and releasing one lease: true when done, false when it is held but
-- not by this holder and token, NULL when nobody holds it.
\pset null '<NULL>'

-- held by nobody
SELECT dlock_renew('job', 'a', 60), dlock_renew('job', 'a', 60, 1);
SELECT dlock_release('job', 'a'), dlock_release('job', 'a', 1);

-- renewing sets the deadline, later or sooner; holds and token stay
SELECT dlock_acquire('job', 'a', 60) AS t1 \gset
SELECT dlock_acquire('job', 'a', 60) = :t1 AS same_token;
SELECT dlock_renew('job', 'a', 600);
SELECT expires_at - clock_timestamp() BETWEEN '500 s' AND '600.1 s' AS later FROM dlock_holders('job');
SELECT dlock_renew('job', 'a', 60);
SELECT expires_at - clock_timestamp() BETWEEN '1 s' AND '60.1 s' AS sooner FROM dlock_holders('job');
SELECT version, token = :t1 AS same_token, acquired_at < expires_at AS sane FROM dlock_holders('job');

-- the token must fit when it is given
SELECT dlock_renew('job', 'a', 60, :t1), dlock_renew('job', 'a', 60, NULL);
SELECT dlock_renew('job', 'a', 600, :t1 + 1), dlock_renew('job', 'a', 600, :t1 - 1);
SELECT dlock_renew('job', 'a', 600, 0), dlock_renew('job', 'a', 600, -1);
SELECT dlock_renew('job', 'a', 600, -9223372036854775808), dlock_renew('job', 'a', 600, 9223372036854775807);
SELECT dlock_release('job', 'a', :t1 + 1), dlock_release('job', 'a', :t1 - 1);
SELECT dlock_release('job', 'a', 0), dlock_release('job', 'a', -1);
SELECT dlock_release('job', 'a', -9223372036854775808), dlock_release('job', 'a', 9223372036854775807);
SELECT version, expires_at - clock_timestamp() < '61 s' AS untouched FROM dlock_holders('job');

-- a stranger is refused, with or without the right token
SELECT dlock_renew('job', 'b', 600), dlock_renew('job', 'b', 600, :t1);
SELECT dlock_release('job', 'b'), dlock_release('job', 'b', :t1);
SELECT dlock_owner('job'), version FROM dlock_holders('job');

-- one hold each, with the token, without it, and with an explicit NULL
SELECT dlock_release('job', 'a', :t1), dlock_owner('job');
SELECT dlock_release(name => 'job', owner => 'a', token => NULL), dlock_is_free('job');
SELECT dlock_release('job', 'a', :t1);

-- a token of an earlier grant fits no more
SELECT dlock_acquire('job', 'a', 60) AS t2 \gset
SELECT dlock_renew('job', 'a', 60, :t1), dlock_release('job', 'a', :t1);
SELECT dlock_renew('job', 'a', 60, :t2), dlock_release('job', 'a', :t2);

-- among readers and permits each has a deadline and a token of its own
SELECT dlock_acquire_shared('doc', 'a', 60) AS ta \gset
SELECT dlock_acquire_shared('doc', 'b', 60) AS tb \gset
SELECT dlock_renew('doc', 'a', 600, :ta), dlock_renew('doc', 'a', 600, :tb), dlock_renew('doc', 'c', 600);
SELECT owner, expires_at > clock_timestamp() + '300 s' AS renewed FROM dlock_holders('doc') ORDER BY owner;
SELECT dlock_release('doc', 'a', :tb), dlock_release('doc', 'c'), dlock_release('doc', 'a', :ta);
SELECT dlock_release('doc', 'a'), dlock_release('doc', 'b'), dlock_release('doc', 'b');

SELECT dlock_acquire_permit('pool', 'a', 60, 3) AS ta \gset
SELECT dlock_acquire_permit('pool', 'a', 60, 3) = :ta AS same_token;
SELECT dlock_acquire_permit('pool', 'b', 60, 3) IS NOT NULL AS taken;
SELECT dlock_renew('pool', 'a', 600, :ta), dlock_renew('pool', 'c', 600);
SELECT owner, version, expires_at > clock_timestamp() + '300 s' AS renewed FROM dlock_holders('pool') ORDER BY owner;
SELECT dlock_release('pool', 'a'), dlock_release('pool', 'a'), dlock_release('pool', 'a');
SELECT dlock_release('pool', 'b'), dlock_is_free('pool');

SELECT count(*) FROM dlock.locks;
