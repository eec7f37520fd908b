-- Looking: dlock_owner, dlock_is_free, dlock_holders, dlock.locks, and
-- dlock_force_release, the operator's way out.
\pset null '<NULL>'
SET application_name = 'inspect';

-- nothing held
SELECT dlock_owner('job'), dlock_is_free('job');
SELECT * FROM dlock_holders('job');
SELECT * FROM dlock.locks;

-- one row per holder, with who took it
SELECT clock_timestamp() AS before \gset
SELECT dlock_acquire('job', 'worker-1', 60) AS t1 \gset
SELECT clock_timestamp() AS after \gset
SELECT name, owner, mode, version, token = :t1 AS token, role = current_user AS role,
	pid = pg_backend_pid() AS pid, application_name,
	client_addr IS NOT DISTINCT FROM host(inet_client_addr()) AS client
FROM dlock.locks;
SELECT acquired_at BETWEEN :'before'::timestamptz - interval '0.1 s'
		AND :'after'::timestamptz + interval '0.1 s' AS acquired,
	expires_at BETWEEN :'before'::timestamptz + interval '59.9 s'
		AND :'after'::timestamptz + interval '60.1 s' AS expires
FROM dlock.locks;
SELECT dlock_owner('job'), dlock_is_free('job');

-- the owner is the exclusive one; readers and permits have none
SELECT dlock_acquire_shared('doc', o, 60) IS NOT NULL AS taken FROM unnest('{a, b}'::text[]) o;
SELECT dlock_acquire_permit('pool', o, 60, 5) IS NOT NULL AS taken FROM unnest('{a, b, b}'::text[]) o;
SELECT n, dlock_owner(n), dlock_is_free(n), (SELECT count(*) FROM dlock_holders(n)) AS holders
FROM unnest('{job, doc, pool, none}'::text[]) n;
SELECT name, owner, mode, version FROM dlock.locks ORDER BY name, owner;

-- dlock_holders gives the rows of the view
SELECT n, count(h), count(l), bool_and((h.name, h.owner, h.mode, h.version, h.token, h.role, h.pid, h.application_name)
	= (l.name, l.owner, l.mode, l.version, l.token, l.role, l.pid, l.application_name)) AS same
FROM unnest('{job, doc, pool}'::text[]) n
CROSS JOIN dlock_holders(n) h FULL JOIN dlock.locks l ON (l.name, l.owner) = (h.name, h.owner)
GROUP BY n ORDER BY n;
SELECT h.owner FROM dlock_holders(name => 'doc') h ORDER BY 1;

-- an ordinary relation for joins, prefixes, subqueries, cursors and EXPLAIN
SELECT name FROM dlock.locks WHERE name LIKE 'jo%';
SELECT n, l.mode FROM (VALUES ('job'), ('none')) v (n) LEFT JOIN dlock.locks l ON l.name = n ORDER BY n;
SELECT a.pid = pg_backend_pid() AS me FROM dlock.locks l JOIN pg_stat_activity a USING (pid) WHERE l.name = 'job';
EXPLAIN (COSTS OFF) SELECT * FROM dlock.locks;
EXPLAIN (COSTS OFF) SELECT owner FROM dlock.locks WHERE name = 'job';
EXPLAIN (COSTS OFF) SELECT * FROM dlock_holders('job');

-- the view is no way to change anything
\set VERBOSITY sqlstate
INSERT INTO dlock.locks (name, owner) VALUES ('x', 'y');
UPDATE dlock.locks SET owner = 'y';
DELETE FROM dlock.locks;
\set VERBOSITY default

-- scenario 19: an operator evicts; renewal and release then fail
SELECT dlock_force_release('none'), dlock_force_release('job', 'nobody');
SELECT dlock_owner('job');
SELECT dlock_force_release('job', 'worker-1');
SELECT dlock_renew('job', 'worker-1', 60, :t1), dlock_release('job', 'worker-1', :t1), dlock_is_free('job');
SELECT dlock_acquire('job', 'worker-2', 60) > :t1 AS larger;
SELECT dlock_renew('job', 'worker-1', 60, :t1), dlock_release('job', 'worker-1', :t1);
-- one of several, then all; holders count, not holds
SELECT dlock_force_release('doc', 'a');
SELECT owner FROM dlock_holders('doc');
SELECT dlock_force_release(name => 'pool'), dlock_is_free('pool');
SELECT dlock_force_release('doc'), dlock_force_release('doc'), dlock_force_release('job');

SELECT count(*) FROM dlock.locks;
