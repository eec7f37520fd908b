-- Acquiring: who is granted, who is refused, what a hold counts, which token
-- comes back.  Refusal is a NULL answer, never an error.
\pset null '<NULL>'

-- scenario 1: A holds, B tries: refused, and the owner is unchanged
SELECT dlock_acquire('job', 'a', 60) AS t1 \gset
SELECT :t1 > 0 AS token, :t1 < 9007199254740992 AS below_2_to_53;
SELECT dlock_acquire('job', 'b', 60);
SELECT dlock_acquire_shared('job', 'b', 60);
SELECT dlock_acquire_permit('job', 'b', 60, 100);
SELECT dlock_owner('job'), dlock_is_free('job');
SELECT owner, mode, version FROM dlock_holders('job');

-- scenario 4: three holds take three releases; a fourth says not held
SELECT dlock_acquire('job', 'a', 60) = :t1 AS same_token;
SELECT dlock_acquire('job', 'a', 60) = :t1 AS same_token;
SELECT version FROM dlock_holders('job');
SELECT dlock_release('job', 'a'), dlock_owner('job');
SELECT dlock_release('job', 'a'), dlock_owner('job');
SELECT dlock_release('job', 'a'), dlock_owner('job');
SELECT dlock_release('job', 'a'), dlock_is_free('job');

-- scenario 5: a new grant has a larger token, whoever gets it
SELECT dlock_acquire('job', 'b', 60) AS t2 \gset
SELECT :t2 > :t1 AS larger, dlock_release('job', 'b');
SELECT dlock_acquire('job', 'b', 60) AS t3 \gset
SELECT :t3 > :t2 AS larger, dlock_release('job', 'b');

-- re-entry never shortens the deadline, and lengthens it when it is later
SELECT dlock_acquire('job', 'a', 60) AS t4 \gset
SELECT acquired_at AS acquired, expires_at AS expires FROM dlock_holders('job') \gset
SELECT dlock_acquire('job', 'a', 1) = :t4 AS same_token;
SELECT expires_at - :'expires' BETWEEN '-0.1 s' AND '0.1 s' AS kept FROM dlock_holders('job');
SELECT dlock_acquire('job', 'a', 600) = :t4 AS same_token;
SELECT expires_at > :'expires'::timestamptz + '500 s' AS longer,
	acquired_at - :'acquired' BETWEEN '-0.1 s' AND '0.1 s' AS same_start
FROM dlock_holders('job');

-- a shared acquire by the exclusive holder is one more exclusive hold
SELECT dlock_acquire_shared('job', 'a', 60) = :t4 AS same_token;
SELECT owner, mode, version FROM dlock_holders('job');
SELECT dlock_acquire_shared('job', 'b', 60);
SELECT dlock_release_all('a');

-- scenario 12: readers share, a writer or a permit does not fit in
SELECT dlock_acquire_shared('doc', 'a', 60) AS ta \gset
SELECT dlock_acquire_shared('doc', 'b', 60) AS tb \gset
SELECT :tb > :ta AS own_token;
SELECT dlock_acquire_shared('doc', 'a', 60) = :ta AS same_token;
SELECT dlock_acquire('doc', 'c', 60);
SELECT dlock_acquire_permit('doc', 'c', 60, 100);
SELECT owner, mode, version FROM dlock_holders('doc') ORDER BY owner;
SELECT dlock_owner('doc'), dlock_is_free('doc');
SELECT dlock_release('doc', 'a'), dlock_release('doc', 'a'), dlock_release('doc', 'a');
SELECT dlock_acquire('doc', 'c', 60);
SELECT dlock_release('doc', 'b');
SELECT dlock_acquire('doc', 'c', 60) > :tb AS larger, dlock_release('doc', 'c');

-- scenario 14: N permits, the next is refused, a raised limit counts
SELECT dlock_acquire_permit('pool', 'a', 60, 2) AS ta \gset
SELECT dlock_acquire_permit('pool', 'b', 60, 2) AS tb \gset
SELECT :tb > :ta AS own_token;
SELECT dlock_acquire_permit('pool', 'c', 60, 2);
SELECT dlock_acquire_permit('pool', 'c', 60, 1);
SELECT dlock_acquire_permit('pool', 'c', 60, 3) > :tb AS raised;
SELECT dlock_acquire('pool', 'd', 60), dlock_acquire_shared('pool', 'd', 60);
SELECT dlock_owner('pool'), dlock_is_free('pool');
-- a holder takes a second permit like a newcomer, and gives them back singly
SELECT dlock_acquire_permit('pool', 'a', 60, 3);
SELECT dlock_acquire_permit('pool', 'a', 60, 4) = :ta AS same_token;
SELECT owner, mode, version FROM dlock_holders('pool') ORDER BY owner;
SELECT dlock_acquire_permit('pool', 'd', 60, 4);
SELECT dlock_release('pool', 'a');
SELECT dlock_acquire_permit('pool', 'd', 60, 4) IS NOT NULL AS room_again;
SELECT dlock_release_all('a'), dlock_release_all('b'), dlock_release_all('c'), dlock_release_all('d');
-- limit 1 is a mutex that its holder cannot enter twice
SELECT dlock_acquire_permit('pool', 'a', 60, 1) IS NOT NULL AS taken;
SELECT dlock_acquire_permit('pool', 'a', 60, 1);
SELECT version FROM dlock_holders('pool');
SELECT dlock_release('pool', 'a'), dlock_is_free('pool');

-- scenario 6: the same request id twice is one hold
SELECT dlock_acquire('req', 'a', 60, request => 'r1') AS t1 \gset
SELECT dlock_acquire('req', 'a', 60, request => 'r1') = :t1 AS replayed;
SELECT version FROM dlock_holders('req');
-- it extends the deadline as re-entry does: never shorter, longer when later
SELECT expires_at AS expires FROM dlock_holders('req') \gset
SELECT dlock_acquire('req', 'a', 1, request => 'r1') = :t1 AS replayed;
SELECT expires_at - :'expires' BETWEEN '-0.1 s' AND '0.1 s' AS kept FROM dlock_holders('req');
SELECT dlock_acquire('req', 'a', 600, request => 'r1') = :t1 AS replayed;
SELECT expires_at > :'expires'::timestamptz + '500 s' AS longer, version FROM dlock_holders('req');
-- another id is another hold, and only the last one is remembered
SELECT dlock_acquire('req', 'a', 60, request => 'r2') = :t1 AS same_token;
SELECT version FROM dlock_holders('req');
SELECT dlock_acquire('req', 'a', 60, request => 'r2') = :t1 AS replayed;
SELECT version FROM dlock_holders('req');
SELECT dlock_acquire('req', 'a', 60, request => 'r1') = :t1 AS same_token;
SELECT version FROM dlock_holders('req');
SELECT dlock_acquire('req', 'a', 60) = :t1 AS same_token;
SELECT version FROM dlock_holders('req');
-- ids are compared byte for byte, and the longest is 255 bytes
SELECT dlock_acquire('req', 'a', 60, request => repeat('R', 255)) = :t1 AS same_token;
SELECT dlock_acquire('req', 'a', 60, request => repeat('R', 254) || 'r') = :t1 AS same_token;
SELECT version FROM dlock_holders('req');
-- somebody else's id opens nothing
SELECT dlock_acquire('req', 'b', 60, request => repeat('R', 254) || 'r');
SELECT dlock_release_all('a');
-- once released, the same id is a new grant
SELECT dlock_acquire('req', 'a', 60, request => 'r1') > :t1 AS larger, dlock_release('req', 'a');
-- a replayed permit takes no second one, although the pool is full
SELECT dlock_acquire_permit('req', 'a', 60, 1, request => 'p') AS t2 \gset
SELECT dlock_acquire_permit('req', 'a', 60, 1, request => 'p') = :t2 AS replayed;
SELECT dlock_acquire_permit('req', 'a', 60, 1, request => 'q');
SELECT version, dlock_release('req', 'a') FROM dlock_holders('req');
-- a shared one likewise
SELECT dlock_acquire_shared('req', 'a', 60, request => 's') AS t3 \gset
SELECT dlock_acquire_shared('req', 'a', 60, request => 's') = :t3 AS replayed;
SELECT version, dlock_release('req', 'a') FROM dlock_holders('req');

-- names do not know each other
SELECT dlock_acquire('path', 'a', 60) IS NOT NULL AS parent,
	dlock_acquire('path/1', 'b', 60) IS NOT NULL AS child;
SELECT dlock_release('path', 'a'), dlock_release('path/1', 'b');

SELECT count(*) FROM dlock.locks;
