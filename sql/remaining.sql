-- dlock_remaining(): the time left of the caller's own lease.
\pset null '<NULL>'
SELECT dlock_acquire('job', 'a', 600) AS token \gset
SELECT dlock_remaining('job', 'a') BETWEEN 500 AND 600 AS all, dlock_remaining('job', 'a', :token) BETWEEN 500 AND 600 AS all, pg_typeof(dlock_remaining('job', 'a'));
SELECT dlock_remaining(name => 'job', owner => 'a', token => :token) <= 600 AS named;
-- it follows renewals, up and down, and re-entry
SELECT dlock_renew('job', 'a', 60), dlock_remaining('job', 'a') BETWEEN 30 AND 60 AS short;
SELECT dlock_acquire('job', 'a', 900) = :token AS same, dlock_remaining('job', 'a') BETWEEN 800 AND 900 AS long;
SELECT abs(extract(epoch FROM expires_at - clock_timestamp())::float8 - dlock_remaining('job', 'a')) < 1 AS expires, abs(remaining - dlock_remaining('job', 'a')) < 1 AS shown FROM dlock_holders('job');
-- another token, another owner, another name: none
SELECT dlock_remaining('job', 'a', :token - 1), dlock_remaining('job', 'a', 0), dlock_remaining('job', 'a', -1), dlock_remaining('job', 'b'), dlock_remaining('nothing', 'a');
-- one of many, in any mode
SELECT dlock_acquire_shared('doc', 'a', 600) > 0 AS taken, dlock_acquire_shared('doc', 'b', 60) > 0 AS taken, dlock_acquire_permit('pool', 'a', 600, 2) > 0 AS taken;
SELECT dlock_remaining('doc', 'a') > 500 AS a, dlock_remaining('doc', 'b') BETWEEN 30 AND 60 AS b, dlock_remaining('pool', 'a') > 500 AS pool;
-- over: none, whether the row is there or not; and the row shows nothing left
SELECT dlock_acquire('short', 'a', 0.001) > 0 AS taken, dlock_wait('short', 10) AS over;
SELECT dlock_remaining('short', 'a'), (SELECT remaining FROM dlock_holders('short') WHERE remaining > 0);
SELECT dlock_acquire('short', 'a', 60) > 0 AS taken;
-- for a session's or transaction's lease its ttl, which does not run down
SELECT dlock_acquire_session('s', 'a', 77.5) > 0 AS taken;
SELECT dlock_remaining('s', 'a'), remaining, expires_at FROM dlock_holders('s');
SELECT dlock_renew('s', 'a', 33), dlock_remaining('s', 'a');
BEGIN;
SELECT dlock_acquire_xact('x', 'a', 55) > 0 AS taken;
SELECT dlock_remaining('x', 'a'), name, remaining, guarded, expires_at FROM dlock.locks WHERE name = 'x';
COMMIT;
SELECT dlock_remaining('x', 'a'), count(*) FROM dlock_holders('x');
-- a role's own comes first, then that of one whose privileges it has; a stranger has none
CREATE ROLE regress_dlock_mine;
CREATE ROLE regress_dlock_group;
GRANT regress_dlock_group TO regress_dlock_mine;
SET ROLE regress_dlock_group;
SELECT dlock_acquire_shared('ours', 'a', 600) AS theirs \gset
SET ROLE regress_dlock_mine;
SELECT dlock_remaining('ours', 'a') > 500 AS theirs, dlock_remaining('job', 'a') AS none, dlock_remaining('ours', 'b') AS none;
RESET ROLE;
SET ROLE regress_dlock_group;
SELECT dlock_release('ours', 'a');
SET ROLE regress_dlock_mine;
SELECT dlock_acquire_shared('ours', 'a', 60) > 0 AS taken;
SET ROLE regress_dlock_group;
SELECT dlock_acquire_shared('ours', 'a', 600) AS theirs \gset
SET ROLE regress_dlock_mine;
SELECT dlock_remaining('ours', 'a') <= 60 AS own, dlock_remaining('ours', 'a', :theirs) > 500 AS theirs;
SET ROLE regress_dlock_group;
SELECT dlock_remaining('ours', 'a') > 500 AS own;
RESET ROLE;
-- it writes nothing
BEGIN READ ONLY;
SELECT dlock_remaining('job', 'a') > 500 AS looked;
COMMIT;
SELECT dlock_force_release('ours'), dlock_release_all('a'), dlock_release_all('b');
DROP ROLE regress_dlock_mine, regress_dlock_group;
-- misuse
SELECT dlock_remaining(NULL, 'a');
\echo :SQLSTATE
SELECT dlock_remaining('job', NULL);
\echo :SQLSTATE
SELECT dlock_remaining('job', '');
\echo :SQLSTATE
SELECT dlock_remaining(repeat('x', 256), 'a');
\echo :SQLSTATE
