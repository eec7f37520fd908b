-- guarded.sql: an update that would have been lost, and how a guard saves it.
--
--   psql -f examples/guarded.sql
--
-- Two workers take from the same stock: each reads what is left and writes one
-- less.  A lease keeps them apart, but a lease can end while its holder is
-- suspended.  A guard ties the transaction to the lease.  The comment
-- after a statement shows its answer.

CREATE TEMPORARY TABLE stock (item text PRIMARY KEY, left_over integer NOT NULL);
INSERT INTO stock VALUES ('bolt', 10);

-- Too late.  worker-1 gets the lease, for half a second, reads 10, and is
-- suspended for longer than that.
SELECT dlock_acquire('stock/bolt', 'worker-1', 0.5) AS token1 \gset
SELECT left_over FROM stock WHERE item = 'bolt';                -- 10
SELECT pg_sleep(0.6) \g /dev/null

-- Meanwhile worker-2 gets it, reads 10, and writes 9.
SELECT dlock_acquire('stock/bolt', 'worker-2', 30) AS token2 \gset
BEGIN;
SELECT dlock_guard('stock/bolt', 'worker-2', :token2);
UPDATE stock SET left_over = 10 - 1 WHERE item = 'bolt' RETURNING left_over;  -- 9

-- With a guard, worker-2 may release before it commits, in one round trip: nobody
-- is granted the lease until the commit is visible.
SELECT dlock_release('stock/bolt', 'worker-2', :token2);        -- true
SELECT dlock_acquire('stock/bolt', 'worker-3', 30);             -- NULL
COMMIT;

-- worker-1 wakes up and would write 9 too, as if worker-2 had taken nothing.
-- Its guard says no, and the error keeps the transaction from committing.
BEGIN;
SELECT dlock_guard('stock/bolt', 'worker-1', :token1);          -- ERROR 55L01
ROLLBACK;
SELECT left_over FROM stock WHERE item = 'bolt';                -- 9

-- Just in time.  worker-1 tries again, guards first, and is then suspended, for longer than
-- is left of its lease.
SELECT dlock_acquire('stock/bolt', 'worker-1', 30) AS token1 \gset
BEGIN;
SELECT dlock_guard('stock/bolt', 'worker-1', :token1);
SELECT left_over FROM stock WHERE item = 'bolt';                -- 9
SELECT dlock_renew('stock/bolt', 'worker-1', 0.5);              -- true
SELECT pg_sleep(0.6) \g /dev/null

-- Its lease is over, but nobody else is granted it yet.
SELECT dlock_owner('stock/bolt');                               -- NULL
SELECT dlock_acquire('stock/bolt', 'worker-2', 30);             -- NULL
UPDATE stock SET left_over = 9 - 1 WHERE item = 'bolt' RETURNING left_over;   -- 8
COMMIT;

SELECT dlock_acquire('stock/bolt', 'worker-2', 30) AS token2 \gset
SELECT left_over FROM stock WHERE item = 'bolt';                -- 8
SELECT dlock_release('stock/bolt', 'worker-2', :token2);        -- true
