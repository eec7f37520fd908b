# dlock_acquire_all() while the table grows under it: no call hangs, all of a
# call's leases or none are there, and a name is never held twice.  A session
# that has not seen the splits locks the right buckets all the same.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('many');
$node->init;
$node->append_conf('postgresql.conf', q{
synchronous_commit = off
});
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION dlock;
	-- a hundred names of a thousand, in any order
	CREATE FUNCTION some_names() RETURNS text[] LANGUAGE sql VOLATILE AS $$
		SELECT array_agg('n' || i) FROM (SELECT i FROM generate_series(1, 1000) i
			ORDER BY random() LIMIT 100) s
	$$;
	-- take them, check whether all are there, and give them back
	CREATE PROCEDURE take_many(who text, calls int) LANGUAGE plpgsql AS $$
	DECLARE
		names text[];
		tokens bigint[];
		held int;
	BEGIN
		FOR i IN 1..calls LOOP
			names := some_names();
			tokens := dlock_acquire_all(names, who, 600, -1);
			COMMIT;
			SELECT count(*) INTO held FROM dlock.locks l
				JOIN unnest(names, tokens) u(name, token) USING (name, token)
				WHERE l.owner = who;
			COMMIT;
			IF held <> 100 OR dlock_release_all(who) <> 100 THEN
				RAISE EXCEPTION '% of 100', held;
			END IF;
			COMMIT;
		END LOOP;
	END $$;
});

# sessions that know the table as it is while it is small
my @clients;
for my $who (1 .. 6)
{
	my ($in, $out, $err) = ('', '', '');
	my $client = { who => $who, out => \$out, err => \$err };
	$client->{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', '-' ],
		'<', \$in, '>', \$out, '2>', \$err,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	$client->{in} = \$in;
	$in .= "SELECT count(dlock_acquire('warm' || i, 'warm', 1)) FROM generate_series(1, 200) i;\n";
	$client->{run}->pump until $out =~ /\n/;
	push @clients, $client;
}
is( $node->safe_psql('postgres', q{
	SELECT count(dlock_acquire('other-' || i, 'me', 3600)) FROM generate_series(1, 30000) i}),
	30000, 'the table grows while they are connected');
my $splits = $node->safe_psql('postgres', q{SELECT pg_relation_size('dlock_private.lease_table') / 8192 > 300});
is($splits, 't', '...by many splits');

${ $_->{in} } .= "CALL take_many('w$_->{who}', 25);\n" for @clients;
for my $client (@clients)
{
	ok($client->{run}->finish, "client $client->{who} took all of its names each time")
		or diag(${ $client->{err} });
}
is( $node->safe_psql('postgres', q{
	SELECT count(*) FROM dlock.locks WHERE name LIKE 'n%'}),
	0, 'nothing is left');
is( $node->safe_psql('postgres', q{
	SELECT acquired >= 6 * 25 * 100 + 30000 + 200, waiters FROM dlock.stats}),
	't|0', 'leases were counted as they were granted');

# One that cannot be had: none is taken.
is( $node->safe_psql('postgres', q{
	SELECT dlock_acquire_all(array_agg('job-' || i) || array['other-7'], 'you', 60) IS NULL
	FROM generate_series(1, 99) i}), 't', 'one busy name of 100 refuses all');
is( $node->safe_psql('postgres', q{SELECT count(*) FROM dlock.locks WHERE owner = 'you'}),
	0, 'and none is held');

# Long rows, more than fit their pages without splits.
is( $node->safe_psql('postgres', q{
	SELECT cardinality(dlock_acquire_all(array_agg(rpad(i::text, 255, 'x')), repeat('o', 255), 60, 0, repeat('r', 255)))
	FROM generate_series(1, 100) i}), 100, 'rows of full length find room');
is( $node->safe_psql('postgres', q{SELECT dlock_release_all(repeat('o', 255))}),
	100, 'and are all there');

$node->stop;
done_testing();
