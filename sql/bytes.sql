-- Names, owners and request ids are bytes: case, trailing spaces and accents
-- count, and nothing in them is interpreted.  Scenario 18.
-- (Equality of text is equality of bytes, so = and DISTINCT may check it.)
\pset null '<NULL>'

-- each of these is a name of its own, and an owner of its own
CREATE TEMP TABLE strings (s text);
INSERT INTO strings VALUES
	('job'), ('Job'), ('JOB'), ('job '), (' job'), ('job  '), (E'job\t'), (E'job\n'), (E'job\r'),
	(E'caf\xc3\xa9'), (E'cafe\xcc\x81'), ('cafe'), (E'CAF\xc3\x89'),		-- composed, combining, plain, upper
	(E'\xc3\x9f'), ('ss'), ('SS'), (E'\xc4\xb0'), ('i'), ('I'), (E'\xc4\xb1'),	-- sharp s, dotted and dotless i
	(E'\xe2\x80\x8b'), (E'\xc2\xa0'), (' '), ('  '), (E'\xef\xbb\xbf'),	-- blanks of all widths
	(E'\xd0\xb0'), ('a'), ('A'), (E'\xef\xbc\xa1'), (E'\xf0\x9f\x94\x92'),	-- a in other scripts, a padlock
	(E'\x01'), (E'\x7f'), (E'\x1b[31m'), (E'\b'),
	(''''), (''''''), ('"'), ('\'), ('\\'), (E'\\x00'), ('%'), ('%%'), ('_'), ('%s%n%x'), ('$1'), ('$$'), (':x'), ('?'),
	(''' OR ''1''=''1'), ('x''); DROP TABLE dlock_private.lease_table; --'), ('/*'), ('--'), (';'),
	('*'), ('.'), ('..'), ('/'), ('a/b'), ('a/'), ('{}'), ('[]'), ('null'), ('NULL'), ('<insufficient privilege>'),
	('0'), ('00'), ('1e0'), ('1'), (repeat('x', 254)), (repeat('x', 255)), (repeat(' ', 255)),
	(repeat(E'\xc3\xa9', 127)), (repeat(E'\xf0\x9f\x94\x92', 63));
SELECT count(*), count(DISTINCT s) FROM strings;

SELECT count(dlock_acquire(s, 'me', 60)) FROM strings;
SELECT count(*) FROM strings WHERE dlock_owner(s) = 'me' AND NOT dlock_is_free(s)
	AND (SELECT count(*) FROM dlock_holders(s) h WHERE h.name = s) = 1;
SELECT count(*) FROM strings JOIN dlock.locks ON name = s AND version = 1;
SELECT count(*) FROM strings WHERE dlock_acquire(s, 'you', 60) IS NULL;
SELECT count(*) FROM strings WHERE dlock_release(s, 'me');
SELECT count(*) FROM dlock.locks;

SELECT count(dlock_acquire_shared('shared', s, 60)) FROM strings;
SELECT count(*), bool_and(version = 1) AS one_each FROM dlock_holders('shared');
SELECT count(*) FROM strings JOIN dlock_holders('shared') ON owner = s;
SELECT count(*) FROM strings WHERE dlock_renew_all(s, 60) = 1;
SELECT count(*) FROM strings WHERE dlock_force_release('shared', s) = 1;

-- every string is a request id that differs from the one before it
SELECT count(dlock_acquire('job', 'me', 60, request => s)) FROM strings;
SELECT version = (SELECT count(*) FROM strings) AS all_differ FROM dlock_holders('job');
SELECT dlock_release_all('me');

-- 255 is counted in bytes, not characters
SELECT dlock_acquire(repeat(E'\xc3\xa9', 128), 'me', 60);
SELECT dlock_acquire(repeat(E'\xf0\x9f\x94\x92', 63) || 'xyz', 'me', 60) IS NOT NULL AS taken;
SELECT dlock_acquire(repeat(E'\xf0\x9f\x94\x92', 64), 'me', 60);
SELECT dlock_release_all('me');

-- compressed and out-of-line values are the same bytes
CREATE TEMP TABLE stored (s text, big text);
ALTER TABLE stored ALTER big SET STORAGE EXTERNAL;
INSERT INTO stored VALUES (repeat('x', 255), repeat('y', 100000));
SELECT dlock_acquire(s, 'me', 60) IS NOT NULL AS taken FROM stored;
SELECT dlock_owner(repeat('x', 255));
SELECT dlock_acquire(big, 'me', 60) FROM stored;
SELECT dlock_acquire(substr(big, 1, 255), 'me', 60) IS NOT NULL AS taken FROM stored;
SELECT dlock_release_all('me');
DROP TABLE strings, stored;
