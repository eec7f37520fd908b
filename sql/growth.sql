-- Growth: many leases, many holders of one name, and space that is used again.
\pset null '<NULL>'
SET synchronous_commit = off;

-- tokens of names held and not held while the table grows under them
CREATE TEMP TABLE first AS
	SELECT 'early/' || i AS name, dlock_acquire('early/' || i, 'me', 600) AS token FROM generate_series(1, 200) i;
SELECT count(*) FROM first WHERE CASE WHEN substr(name, 7)::int % 2 = 0 THEN dlock_release(name, 'me') END;
SELECT pg_relation_size('dlock_private.lease_table') AS size \gset
SELECT count(dlock_acquire('g/' || i, 'me', 600)) FROM generate_series(1, 20000) i;
SELECT pg_relation_size('dlock_private.lease_table') > :size AS grown;

-- no row lost, none twice, each found by its name
SELECT count(*), count(DISTINCT name), count(DISTINCT ctid) FROM dlock_private.lease_table;
SELECT count(*) FROM generate_series(1, 20000) i
WHERE dlock_owner('g/' || i) IS DISTINCT FROM 'me' OR dlock_is_free('g/' || i);
SELECT count(*) FROM generate_series(1, 20000) i WHERE NOT EXISTS (SELECT FROM dlock.locks WHERE name = 'g/' || i);
SELECT count(*) FROM generate_series(1, 20000) i WHERE dlock_acquire('g/' || i, 'you', 60) IS NOT NULL;

-- scenario 5 over splits: held ones keep theirs, new grants have larger ones
SELECT count(*) FROM first f, dlock_holders(f.name) h WHERE h.token = f.token;
SELECT count(*) FROM first WHERE dlock_release(name, 'me', token);
SELECT count(*) FROM first WHERE dlock_acquire(name, 'me', 600) > token;
SELECT count(*) FROM first WHERE dlock_release(name, 'me');

-- releasing every other one while scanning, and the rest by owner
SELECT count(*) FROM dlock_private.lease_table WHERE CASE WHEN substr(name, 3)::int % 2 = 0 THEN dlock_release(name, owner) END;
SELECT count(*), count(*) FILTER (WHERE dlock_is_free('g/' || i)) AS free FROM generate_series(1, 20000) i;
SELECT count(*), count(DISTINCT name) FROM dlock_private.lease_table;
SELECT dlock_renew_all('me', 300), dlock_release_all('me');
SELECT count(*) FROM dlock_private.lease_table;

-- the same names again and again: the size stays what it was
VACUUM FULL dlock_private.lease_table;
DO $$
DECLARE
	size bigint;
BEGIN
	FOR cycle IN 1..20 LOOP
		PERFORM count(dlock_acquire('g/' || i, 'me', 600)) FROM generate_series(1, 2000) i;
		PERFORM dlock_release_all('me');
		IF cycle = 1 THEN
			size := pg_relation_size('dlock_private.lease_table');
		ELSIF pg_relation_size('dlock_private.lease_table') > size THEN
			RAISE 'cycle %: % bytes, were %', cycle, pg_relation_size('dlock_private.lease_table'), size;
		END IF;
	END LOOP;
END $$;
-- other names each time fall elsewhere, but need not much more
DO $$
DECLARE
	size bigint;
BEGIN
	FOR cycle IN 1..20 LOOP
		PERFORM count(dlock_acquire(cycle || '/' || i, 'me', 600)) FROM generate_series(1, 2000) i;
		PERFORM dlock_release_all('me');
		size := coalesce(size, pg_relation_size('dlock_private.lease_table'));
		IF pg_relation_size('dlock_private.lease_table') > size * 2 THEN
			RAISE 'cycle %: % bytes, were %', cycle, pg_relation_size('dlock_private.lease_table'), size;
		END IF;
	END LOOP;
END $$;

-- VACUUM FULL shrinks, keeps the rows and every name's tokens
CREATE TEMP TABLE tokens AS
	SELECT 'g/' || i AS name, dlock_acquire('g/' || i, 'me', 600) AS token FROM generate_series(1, 20000) i;
SELECT count(*) FROM tokens WHERE CASE WHEN substr(name, 3)::int > 10 THEN dlock_release(name, 'me') END;
SELECT pg_relation_size('dlock_private.lease_table') AS size \gset
VACUUM FULL dlock_private.lease_table;
SELECT pg_relation_size('dlock_private.lease_table') < :size / 2 AS shrunk;
SELECT count(*) FROM dlock_private.lease_table JOIN tokens USING (name, token);
SELECT count(*) FROM tokens WHERE CASE WHEN substr(name, 3)::int > 10 THEN dlock_acquire(name, 'me', 600) > token END;
SELECT count(*), count(DISTINCT name) FROM dlock_private.lease_table;
SELECT dlock_release_all('me');

-- a lease is found by its owner wherever splits and VACUUM FULL have put it
SELECT count(dlock_acquire('own/' || i, 'owner ' || i, 600)) FROM generate_series(1, 3000) i;
SELECT count(*) FROM generate_series(1, 3000) i WHERE dlock_renew_all('owner ' || i, 600) = 1;
VACUUM FULL dlock_private.lease_table;
SELECT count(*) FROM generate_series(1, 3000) i WHERE dlock_renew_all('owner ' || i, 600) = 1;
VACUUM FULL dlock_private.lease_table;
SELECT count(*) FROM generate_series(1, 3000) i WHERE dlock_release_all('owner ' || i) = 1;
SELECT count(*) FROM dlock.locks;

-- and so is one that runs out, by the reaper
SELECT count(dlock_acquire('long/' || i, 'me', 600)) FROM generate_series(1, 3000) i;
SELECT count(dlock_acquire('short/' || i, 'me', 1)) FROM generate_series(1, 100) i;
VACUUM FULL dlock_private.lease_table;
DO $$
BEGIN
	FOR i IN 1..3000 LOOP
		EXIT WHEN NOT EXISTS (SELECT FROM dlock.locks WHERE name LIKE 'short/%');
		PERFORM pg_sleep(0.02);
	END LOOP;
END $$;
SELECT count(*), count(*) FILTER (WHERE name LIKE 'short/%') AS short FROM dlock.locks;
SELECT dlock_release_all('me');
