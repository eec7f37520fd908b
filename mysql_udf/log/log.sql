-- The log: each row is a batch of changes of leases.  Only the library writes it, and what
-- the bytes mean is in encode.c.  An entry is never so long that a row leaves its page.

CREATE TABLE IF NOT EXISTS dlock.log (
	number BIGINT UNSIGNED NOT NULL PRIMARY KEY
		COMMENT 'no number is left out',
	writer BIGINT UNSIGNED NOT NULL
		COMMENT 'the run of the library that wrote it',
	entries VARBINARY(7040) NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
	COMMENT='the leases: all changes, in their order';

-- The first row, which says nothing.  (A log without a row is damaged.)
INSERT INTO dlock.log (number, writer, entries)
SELECT 1, 0, x'011394FC030000000000000000000000000000000001000000000000000000000000000000'
FROM DUAL WHERE NOT EXISTS (SELECT * FROM dlock.log);
