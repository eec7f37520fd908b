-- One name with a thousand holders, more than a page takes.
\pset null '<NULL>'
SET synchronous_commit = off;
CREATE TEMP TABLE owners AS
	SELECT i, CASE WHEN i % 10 = 0 THEN lpad(i::text, 255, 'o') ELSE 'owner ' || i END AS owner
	FROM generate_series(1, 1000) i;
SELECT count(dlock_acquire('neighbour/' || i, 'me', 600)) FROM generate_series(1, 200) i;

-- a thousand readers: each a row, a token and a deadline of its own
CREATE TEMP TABLE readers AS SELECT i, owner, dlock_acquire_shared('doc', owner, 600) AS token FROM owners ORDER BY i;
SELECT count(token), count(DISTINCT token) FROM readers;
SELECT bool_and(token > previous) AS grow
FROM (SELECT token, lag(token) OVER (ORDER BY i) AS previous FROM readers) r WHERE previous IS NOT NULL;
SELECT count(*), count(DISTINCT owner), min(version), max(version) FROM dlock_holders('doc');
SELECT count(*) FROM dlock_holders('doc') JOIN readers USING (owner, token);
SELECT count(*) FROM dlock.locks JOIN readers USING (owner, token) WHERE name = 'doc';
SELECT dlock_acquire('doc', 'writer', 60), dlock_acquire_permit('doc', 'writer', 60, 9999), dlock_owner('doc');

-- first, last and one in the middle are found
SELECT count(*) FROM readers WHERE dlock_acquire_shared('doc', owner, 600) = token;
SELECT count(*) FROM readers WHERE dlock_renew('doc', owner, 900, token);
SELECT count(*) FROM dlock_holders('doc') WHERE version = 2 AND expires_at > clock_timestamp() + '700 s';
SELECT count(*) FROM readers WHERE dlock_release('doc', owner, token);
SELECT dlock_renew('doc', 'owner 1001', 60), dlock_release('doc', 'owner 1001');

-- they leave in any order, and the last one frees the name
SELECT count(*) FROM readers WHERE CASE WHEN i % 3 = 0 THEN dlock_release('doc', owner) END;
SELECT count(*) FROM readers WHERE CASE WHEN i % 3 = 1 THEN dlock_release_all(owner) = 1 END;
SELECT count(*), count(DISTINCT owner) FROM dlock_holders('doc');
SELECT count(*) FROM readers WHERE CASE WHEN i > 2 THEN dlock_release('doc', owner) END;
SELECT owner, dlock_is_free('doc'), dlock_acquire('doc', 'writer', 60) FROM dlock_holders('doc');
SELECT dlock_release('doc', 'owner 2'), dlock_is_free('doc');
SELECT dlock_acquire('doc', 'writer', 60) > max(token) AS larger FROM readers;
SELECT dlock_release('doc', 'writer');

-- a thousand permits of a thousand holders
SELECT count(dlock_acquire_permit('pool', owner, 600, 1000)), count(*) FROM owners;
SELECT dlock_acquire_permit('pool', 'late', 60, 1000), dlock_acquire_permit('pool', 'owner 1', 60, 1000);
SELECT dlock_acquire_permit('pool', 'late', 60, 1001) IS NOT NULL AS raised, dlock_release('pool', 'late');
SELECT dlock_release('pool', 'owner 77'), dlock_acquire_permit('pool', 'late', 60, 1000) IS NOT NULL AS room;
SELECT count(*), sum(version) FROM dlock_holders('pool');
SELECT count(*) FROM dlock.locks WHERE name = 'pool';

-- all at once
SELECT dlock_force_release('pool', 'late'), dlock_force_release('pool');
SELECT dlock_is_free('pool'), (SELECT count(*) FROM dlock_holders('pool')) AS holders;

-- a thousand permits of one holder are one row
SELECT count(DISTINCT dlock_acquire_permit('pool', 'me', 600, 1000)) AS tokens FROM generate_series(1, 1000);
SELECT dlock_acquire_permit('pool', 'me', 600, 1000);
SELECT owner, version FROM dlock_holders('pool');
SELECT count(*) FILTER (WHERE dlock_release('pool', 'me')) FROM generate_series(1, 1000);
SELECT dlock_is_free('pool');

-- many holders survive VACUUM FULL, the space of none is lost
SELECT count(dlock_acquire_shared('doc', owner, 600)) FROM owners;
VACUUM FULL dlock_private.lease_table;
SELECT count(*), count(DISTINCT owner), count(DISTINCT token) FROM dlock_holders('doc');
SELECT pg_relation_size('dlock_private.lease_table') AS size \gset
DO $$ BEGIN
	FOR cycle IN 1..5 LOOP
		PERFORM dlock_force_release('doc');
		PERFORM count(dlock_acquire_shared('doc', owner, 600)) FROM owners;
	END LOOP;
END $$;
SELECT count(*) FROM dlock_holders('doc');
SELECT pg_relation_size('dlock_private.lease_table') <= :size * 1.5 AS bounded;
SELECT dlock_force_release('doc'), dlock_release_all('me');
SELECT count(*) FROM dlock.locks;
DROP TABLE owners, readers;
