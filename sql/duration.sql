-- dlock_duration: seconds as any numeric type, an interval or text, alone and
-- in any mixture, in positional, named and prepared calls.
\pset null '<NULL>'

-- one way of writing it
SELECT 30::dlock_duration AS int, 30.5::dlock_duration AS dec,
	'30s'::dlock_duration AS txt, '5 minutes'::dlock_duration AS minutes,
	'-1'::dlock_duration AS neg, 0.000001::dlock_duration AS usec,
	'1 day'::dlock_duration AS day;

-- every cast gives the same half minute
SELECT i, d::interval = interval '30 s' AS same
FROM (VALUES
	('int2', 30::smallint::dlock_duration),
	('int4', 30::integer::dlock_duration),
	('int8', 30::bigint::dlock_duration),
	('numeric', 30.0::numeric::dlock_duration),
	('float4', 30::real::dlock_duration),
	('float8', 30::double precision::dlock_duration),
	('interval', (interval '0.5 min')::dlock_duration),
	('text', '30'::text::dlock_duration),
	('varchar', '30s'::varchar::dlock_duration),
	('unknown', '00:00:30')) AS v (i, d);

-- text: a number of seconds, or whatever interval takes
SELECT t, t::dlock_duration::interval = v AS same
FROM (VALUES
	('0', interval '0'), ('0.25', '250 ms'), ('1e3', '1000 s'),
	(' 30 ', '30 s'), ('-0.5', '-500 ms'), ('+7', '7 s'), ('.5', '500 ms'),
	('30 s', '30 s'), ('90 seconds', '90 s'), ('1 min 30 s', '90 s'),
	('1:30', '90 min'), ('00:00:01.5', '1500 ms'), ('2 days', '48 hours'),
	('1 week', '168 hours'), ('PT1M', '60 s'), ('30 seconds ago', '-30 s'),
	('250 milliseconds', '250 ms')) AS v (t, v);

-- a day is 24 hours and a month 30 days, as when intervals are compared
SELECT bool_and(i::dlock_duration::interval = i) AS same
FROM unnest('{1 day, 1 month, 1 year, 1 year 2 mons 3 days 04:05:06.789}'::interval[]) i;

-- output reads back as what it was
SELECT bool_and(d::text::dlock_duration::interval = d::interval) AS same
FROM unnest('{0, 1, -1, 0.1, 30.000001, -0.000001, 12345.678901, 1000000000,
	1000000000000, -1000000000000}'::dlock_duration[]) d;

-- rounded to microseconds
SELECT 0.0000004::dlock_duration AS zero, 0.0000006::dlock_duration AS one,
	'0.0000004'::dlock_duration AS zero, '0.0000006'::dlock_duration AS one,
	0.0000004::float8::dlock_duration AS zero,
	(-0.0000006::float8)::dlock_duration AS minus_one;

-- binary form: that of a float8 of seconds, there and back
SELECT bool_and(dlock_duration_send(s::dlock_duration) = float8send(s)) AS same
FROM unnest('{0, 1.5, -2, 0.000001, 86400, 999999999.999999, 1e12, -1e12}'::float8[]) s;
CREATE TEMP TABLE spans (d dlock_duration);
INSERT INTO spans VALUES (1.5), ('-2 s'), (NULL), ('1000000000000');
COPY spans TO PROGRAM 'cat > dlock_duration.tmp' (FORMAT binary);
COPY spans FROM PROGRAM 'cat dlock_duration.tmp; rm dlock_duration.tmp' (FORMAT binary);
SELECT d::text, count(*) FROM spans GROUP BY 1 ORDER BY 1;

-- calls: positional, named, mixed, with and without the optional arguments
SELECT dlock_acquire('d', 'me', 300) IS NOT NULL AS taken;
SELECT dlock_acquire('d', 'me', '300s', 0) IS NOT NULL AS taken;
SELECT dlock_acquire('d', 'me', 300.5, '0', 'id-1') IS NOT NULL AS taken;
SELECT dlock_acquire(name => 'd', owner => 'me', ttl => interval '300 s') IS NOT NULL AS taken;
SELECT dlock_acquire(owner => 'me', ttl => '10 minutes', name => 'd', wait => 0.0) IS NOT NULL AS taken;
SELECT dlock_acquire('d', 'me', ttl => 300, request => 'id-2') IS NOT NULL AS taken;
SELECT dlock_acquire('d', owner := 'me', ttl := 300) IS NOT NULL AS taken;
SELECT dlock_acquire_shared('s', 'me', '300', interval '0') IS NOT NULL AS taken;
SELECT dlock_acquire_shared(name => 's', owner => 'me', ttl => 300::real, request => 'id') IS NOT NULL AS taken;
SELECT dlock_acquire_permit('p', 'me', 300, 9) IS NOT NULL AS taken;
SELECT dlock_acquire_permit('p', 'me', '300 s', 9, 0, 'id') IS NOT NULL AS taken;
SELECT dlock_acquire_permit(name => 'p', owner => 'me', ttl => 300::bigint, "limit" => 9, wait => '0 s') IS NOT NULL AS taken;
SELECT dlock_renew('d', 'me', interval '300 s'), dlock_renew(name => 'd', owner => 'me', ttl => 300.5);
SELECT dlock_renew_all('me', '450 s'), dlock_renew_all(owner => 'me', ttl => 450);
SELECT name, version FROM dlock.locks ORDER BY name;
SELECT dlock_release_all('me');

-- any type of ttl with any type of wait: 13 times 13 calls, one function each
DO $$
DECLARE
	ttls text[] := ARRAY['300', '300::smallint', '300::bigint', '300.0',
		'300::numeric', '300::real', '300::float8', '''300''', '''300 s''',
		'interval ''300 s''', '''300''::text', '''5 min''::text',
		'''300s''::varchar'];
	waits text[] := ARRAY['0', '0::smallint', '0::bigint', '0.0',
		'0::numeric', '0::real', '0::float8', '''0''', '''0 s''',
		'interval ''0 s''', '''0''::text', '''0 min''::text',
		'''0s''::varchar'];
	ttl text;
	wait text;
	calls int := 0;
	began timestamptz;
	looks timestamptz;
	error interval;
	lease dlock.locks;
BEGIN
	FOREACH ttl IN ARRAY ttls LOOP
		FOREACH wait IN ARRAY waits LOOP
			calls := calls + 1;
			began := clock_timestamp();
			EXECUTE format('SELECT dlock_acquire(%L, ''me'', %s, %s)',
				'mix' || calls, ttl, wait);
			looks := clock_timestamp();
			SELECT * INTO lease FROM dlock_holders('mix' || calls);
			-- two clocks are read for the times, one after the other, and need not run alike
			error := clock_timestamp() - looks + interval '1 ms';
			IF (lease.acquired_at BETWEEN began - error AND looks + error AND
				lease.expires_at - interval '300 s' BETWEEN began - error AND looks + error) IS NOT TRUE
			THEN
				RAISE EXCEPTION 'ttl %, wait %: from % to %', ttl, wait, lease.acquired_at, lease.expires_at;
			END IF;
		END LOOP;
	END LOOP;
END $$;
SELECT count(*) FROM dlock.locks WHERE name LIKE 'mix%';
SELECT dlock_release_all('me');

-- parameters without a type, as drivers send them
PREPARE untyped AS SELECT dlock_acquire($1, $2, $3, $4, $5) IS NOT NULL AS taken;
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'untyped';
EXECUTE untyped('u', 'me', 300, 0, NULL);
EXECUTE untyped('u', 'me', '300s', '0', 'id');
EXECUTE untyped('u', 'me', interval '300 s', 0.0, NULL);
PREPARE untyped_renew AS SELECT dlock_renew($1, $2, $3, $4);
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'untyped_renew';
EXECUTE untyped_renew('u', 'me', 300, NULL);
PREPARE typed_text(text, text, text, text) AS SELECT dlock_acquire($1, $2, $3, $4) IS NOT NULL AS taken;
EXECUTE typed_text('u', 'me', '300 s', '0');
PREPARE typed_int(varchar, varchar, int, int) AS SELECT dlock_acquire($1, $2, $3, $4) IS NOT NULL AS taken;
EXECUTE typed_int('u', 'me', 300, 0);
PREPARE typed_mix(text, text, interval, float8) AS SELECT dlock_acquire($1, $2, $3, $4) IS NOT NULL AS taken;
EXECUTE typed_mix('u', 'me', '300 s', 0);
SELECT version, dlock_release_all('me') FROM dlock.locks;
DEALLOCATE ALL;

-- types without a cast are refused by name
\set VERBOSITY sqlstate
SELECT dlock_acquire('d', 'me', true);
SELECT dlock_acquire('d', 'me', now());

-- not finite
\set VERBOSITY default
SELECT 'NaN'::float8::dlock_duration;
\echo :SQLSTATE
SELECT '-infinity'::float4::dlock_duration;
\echo :SQLSTATE
SELECT 'NaN'::numeric::dlock_duration;
\echo :SQLSTATE
SELECT 'infinity'::numeric::dlock_duration;
\echo :SQLSTATE
SELECT 'NaN'::text::dlock_duration;
\echo :SQLSTATE
SELECT dlock_acquire('d', 'me', 'infinity');
\echo :SQLSTATE
-- an interval can be infinite from 17 on
DO $$
DECLARE
	d dlock_duration;
BEGIN
	IF current_setting('server_version_num')::int >= 170000 THEN
		EXECUTE $q$ SELECT interval '-infinity'::dlock_duration $q$ INTO d;
	ELSE
		d := 'NaN'::float8;
	END IF;
EXCEPTION WHEN invalid_parameter_value THEN
	RAISE NOTICE '%', sqlerrm;
END $$;

-- too large
SELECT 1000000000000::dlock_duration AS largest, (-1000000000000)::dlock_duration AS smallest;
SELECT 1000000000001::dlock_duration;
\echo :SQLSTATE
SELECT (-1000000000001)::dlock_duration;
\echo :SQLSTATE
SELECT 9223372036854775807::dlock_duration;
\echo :SQLSTATE
SELECT 1e300::float8::dlock_duration;
\echo :SQLSTATE
SELECT 3e38::float4::dlock_duration;
\echo :SQLSTATE
SELECT 1e1000::numeric::dlock_duration;
\echo :SQLSTATE
SELECT '1e30'::dlock_duration;
\echo :SQLSTATE
SELECT '-1e400'::text::dlock_duration;
\echo :SQLSTATE
SELECT '170000000 years'::dlock_duration;
\echo :SQLSTATE
SELECT interval '170000000 years'::dlock_duration;
\echo :SQLSTATE
-- and in binary: 1.5, then what is too large, infinite, NaN, and not 8 bytes long
COPY spans FROM PROGRAM 'printf "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0\0\1\0\0\0\10\77\370\0\0\0\0\0\0\377\377"' (FORMAT binary);
SELECT count(*) FROM spans WHERE d::text = '1.5';
COPY spans FROM PROGRAM 'printf "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0\0\1\0\0\0\10\177\340\0\0\0\0\0\0\377\377"' (FORMAT binary);
\echo :SQLSTATE
COPY spans FROM PROGRAM 'printf "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0\0\1\0\0\0\10\377\360\0\0\0\0\0\0\377\377"' (FORMAT binary);
\echo :SQLSTATE
COPY spans FROM PROGRAM 'printf "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0\0\1\0\0\0\10\177\370\0\0\0\0\0\0\377\377"' (FORMAT binary);
\echo :SQLSTATE
COPY spans FROM PROGRAM 'printf "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0\0\1\0\0\0\4\0\0\0\36\377\377"' (FORMAT binary);
\echo :SQLSTATE
COPY spans FROM PROGRAM 'printf "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0\0\1\0\0\0\20\0\0\0\0\1\311\303\200\0\0\0\0\0\0\0\0\377\377"' (FORMAT binary);
\echo :SQLSTATE

-- neither an interval nor a number
SELECT 'soon'::dlock_duration;
\echo :SQLSTATE
SELECT ''::text::dlock_duration;
\echo :SQLSTATE
SELECT dlock_acquire('d', 'me', '30 parsecs');
\echo :SQLSTATE
SELECT dlock_acquire('d', 'me', '30; DROP TABLE');
\echo :SQLSTATE
SELECT '1e'::text::dlock_duration;
\echo :SQLSTATE

-- PostgreSQL's own error when an interval overflows: the whole, then a field
\set VERBOSITY sqlstate
SELECT '178956971 years'::dlock_duration;
SELECT dlock_acquire('d', 'me', '178956971 years');
SELECT dlock_acquire('d', 'me', '99999999999 years');
SELECT dlock_acquire('d', 'me', interval '170000000 years' * 1000);

-- none of them took anything
SELECT count(*) FROM dlock.locks;
DROP TABLE spans;

-- whatever a client has numbers shown like
SET extra_float_digits = -5;
SELECT (12.5::real::dlock_duration)::text AS real;
RESET extra_float_digits;
