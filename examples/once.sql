-- once.sql: work that is announced several times is done once.
--
--   psql -f examples/once.sql
--
-- A message may be delivered several times, and to several workers at a time.
-- The lease keeps two workers from doing the same message at the same time;
-- the row in "done", written in the transaction of the work itself, keeps it
-- from being done again later.  The comment after a statement shows its answer.

CREATE TEMPORARY TABLE done (message text PRIMARY KEY);

-- worker-1 is told of message 17.  It takes the lease before its transaction
-- begins, so that the transaction sees all that was done before.
SELECT dlock_acquire('message/17', 'worker-1', 60, request => 'delivery-a');  -- 227953756602369: go

-- The reply was lost, so it asks again with the same request id: the same
-- token, and still one hold, so that one release will do.
SELECT dlock_acquire('message/17', 'worker-1', 60, request => 'delivery-a');  -- 227953756602369
SELECT version FROM dlock_holders('message/17');                              -- 1

-- worker-2 is told of it too, and leaves it alone for now.
SELECT dlock_acquire('message/17', 'worker-2', 60, request => 'delivery-b');  -- NULL

-- worker-1 does the work.
BEGIN;
SELECT count(*) FROM done WHERE message = '17';                               -- 0
-- ... the work ...
INSERT INTO done VALUES ('17');
COMMIT;

-- It releases after the commit: a release takes effect at once, and before the
-- commit nobody else would see that the work is done.
SELECT dlock_release('message/17', 'worker-1');                               -- true

-- Delivered again: worker-2 gets the lease, and finds the work done.
SELECT dlock_acquire('message/17', 'worker-2', 60, request => 'delivery-c');  -- 227953756602370
SELECT count(*) FROM done WHERE message = '17';                               -- 1
SELECT dlock_release('message/17', 'worker-2');                               -- true
