-- What the benchmark adds to a database that has dlock.

\set ON_ERROR_STOP 1

-- The lock table that somebody would write by hand.  Rows come and go, so the
-- fencing tokens come from a sequence.
CREATE TABLE heap_lock (
	name text PRIMARY KEY,
	owner text NOT NULL,
	token bigint NOT NULL,
	expires_at timestamptz NOT NULL
);
CREATE SEQUENCE heap_token;

-- Acquire and release 1,000 names in turn, one at a time, and count the bytes
-- of WAL of each.  Nothing else may write meanwhile.
CREATE FUNCTION wal_of_cycles(cycles integer,
	OUT acquire_bytes numeric, OUT release_bytes numeric, OUT failed integer)
LANGUAGE plpgsql AS $$
DECLARE
	lock_name text;
	got bigint;
	given boolean;
	start pg_lsn;
	middle pg_lsn;
BEGIN
	acquire_bytes := 0;
	release_bytes := 0;
	failed := 0;
	FOR i IN 1 .. cycles LOOP
		lock_name := 'job-' || i % 1000;
		start := pg_current_wal_insert_lsn();
		got := dlock_acquire(lock_name, 'worker-1', 600);
		middle := pg_current_wal_insert_lsn();
		given := dlock_release(lock_name, 'worker-1', got);
		acquire_bytes := acquire_bytes + (middle - start);
		release_bytes := release_bytes + (pg_current_wal_insert_lsn() - middle);
		IF got IS NULL OR given IS NOT TRUE THEN
			failed := failed + 1;
		END IF;
	END LOOP;
	acquire_bytes := acquire_bytes / cycles;
	release_bytes := release_bytes / cycles;
END $$;
