-- fencing.sql: a worker that comes too late is refused by the table it writes.
--
--   psql -f examples/fencing.sql
--
-- A lease cannot stop a process that was suspended past its deadline.  The
-- protected table can: it remembers the largest token it has seen and takes no
-- smaller one.  The comment after a statement shows its answer.

CREATE TEMPORARY TABLE account (
	id integer PRIMARY KEY,
	balance integer NOT NULL,
	token bigint NOT NULL DEFAULT 0     -- of the lease on 'account/1'
);
INSERT INTO account VALUES (1, 100);

-- worker-1 gets the lease, for half a second, and reads the balance: 100.
SELECT dlock_acquire('account/1', 'worker-1', 0.5) AS token1 \gset

-- It is suspended for longer than that.
SELECT pg_sleep(0.6) \g /dev/null

-- worker-2 gets the lease, with a larger token, and takes 30.
SELECT dlock_acquire('account/1', 'worker-2', 30) AS token2 \gset
SELECT :token2 > :token1;                                       -- true
UPDATE account SET balance = balance - 30, token = :token2
	WHERE id = 1 AND token <= :token2 RETURNING balance;        -- 70

-- worker-1 wakes up and writes what it has worked out from the 100 it read.
-- No row matches: it must give up, and start again with a new lease.
WITH written AS (
	UPDATE account SET balance = 100 - 50, token = :token1
		WHERE id = 1 AND token <= :token1 RETURNING 1)
SELECT count(*) FROM written;                                   -- 0
SELECT balance FROM account WHERE id = 1;                       -- 70

SELECT dlock_release('account/1', 'worker-2', :token2);         -- true
