# dlock.stats.held is the number of rows of the lock table, even when they are counted
# for the first time while leases come, go, expire and move to new buckets.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $rounds = 3;
my $node = PostgreSQL::Test::Cluster->new('held');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
max_worker_processes = 16
synchronous_commit = off
dlock.log_expired = off
dlock.reap_interval = '10ms'
log_statement = none
});
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION dlock;
	-- leases come and go, and the table grows
	CREATE PROCEDURE churn(who text, rounds int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1..rounds LOOP
			PERFORM dlock_acquire(who || i, who, 3600);
			PERFORM dlock_acquire_shared('many', who || i, 3600);
			PERFORM dlock_acquire('short' || who || i, who, 0.02);
			PERFORM dlock_acquire(who || i, who, 3600, request => repeat('r', i % 200 + 1));
			PERFORM dlock_release('many', who || i - 3), dlock_force_release(who || i - 5) WHERE i % 4 <> 0;
			COMMIT;
		END LOOP;
	END $$;
	-- look all the time until the others are done; a count is never far off
	CREATE FUNCTION watch() RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE
		looks bigint := 0;
	BEGIN
		WHILE EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'churn') OR looks = 0 LOOP
			IF (SELECT held < 20000 OR held > 60000 FROM dlock.stats) THEN
				RAISE 'held is %', (SELECT held FROM dlock.stats);
			END IF;
			PERFORM pg_stat_clear_snapshot();
			looks := looks + 1;
		END LOOP;
		RETURN looks;
	END $$;
	SELECT count(dlock_acquire('old' || i, 'old', 3600)) FROM generate_series(1, 20000) i});
is($node->safe_psql('postgres', 'SELECT held FROM dlock.stats'), 20000, 'counted');

for my $round (1 .. $rounds)
{
	$node->restart;
	my @clients;
	for my $who (map { "r$round w$_ " } 1 .. 3)
	{
		my ($in, $out, $err) = ("SET application_name = churn; CALL churn('$who', 400);\n", '', '');
		push @clients, [ IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', '-' ],
			'<', \$in, '>', \$out, '2>', \$err), \$out, \$err, 'churn' ];
	}
	for (1 .. 2)
	{
		my ($in, $out, $err) = ("SELECT watch() > 0;\n", '', '');
		push @clients, [ IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', '-' ],
			'<', \$in, '>', \$out, '2>', \$err), \$out, \$err, 'watch' ];
	}
	for (@clients)
	{
		my ($handle, undef, $err, $what) = @$_;
		ok($handle->finish, "round $round: a $what goes well") or diag($$err);
	}
	# what is over is removed, and the worker, which counts it a moment later, is done
	$node->poll_query_until('postgres', q{SELECT (SELECT count(*) = 0 FROM dlock.locks WHERE remaining = 0) AND EXISTS (SELECT
		FROM pg_stat_activity WHERE backend_type = 'dlock worker' AND datname = 'postgres' AND wait_event = 'Extension')})
	  or die 'the worker does nothing';
	is($node->safe_psql('postgres', q{SELECT held - (SELECT count(*) FROM dlock.locks) FROM dlock.stats}), 0, "round $round: and the count is right");
}

# a look that is cancelled leaves the rest to the next
$node->restart;
my $held = $node->safe_psql('postgres', 'SELECT count(*) FROM dlock.locks');
for (1 .. 20)
{
	$node->psql('postgres', q{SET statement_timeout = '1ms'; SELECT held FROM dlock.stats});
}
is($node->safe_psql('postgres', 'SELECT held FROM dlock.stats'), $held, 'counted in several turns');
$node->safe_psql('postgres', 'VACUUM FULL dlock_private.lease_table');
is($node->safe_psql('postgres', 'SELECT held FROM dlock.stats'), $held, 'VACUUM FULL leaves as many');
is($node->safe_psql('postgres', q{SELECT dlock_release_all('old')}), 20000, 'some are released');
is($node->safe_psql('postgres', 'SELECT held FROM dlock.stats'), $held - 20000, '... and no longer held');

# Another database has a count of its own, also one that was copied with leases.
$node->safe_psql('postgres', 'CREATE DATABASE other TEMPLATE template0');
$node->safe_psql('other', 'CREATE EXTENSION dlock');
is($node->safe_psql('other', 'SELECT held FROM dlock.stats'), 0, 'a new table has none');
$node->safe_psql('other', q{SELECT count(dlock_acquire('n' || i, 'me', 60)) FROM generate_series(1, 100) i});
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE other');
is($node->safe_psql('other', 'SELECT held FROM dlock.stats'), 100, 'some are taken');
is($node->safe_psql('copy', 'SELECT held FROM dlock.stats'), 0, 'a copied database has none');
$node->safe_psql('copy', q{SELECT dlock_acquire('n', 'me', 60)});
is($node->safe_psql('copy', 'SELECT held FROM dlock.stats'), 1, '... but its own');

# A database that another has left its OID to, and its file's number: both are copies of
# one template.  Its own leases are not those of the template, which shared memory knew of.
my $oid = $node->safe_psql('postgres', q{SELECT oid FROM pg_database WHERE datname = 'copy'});
$node->safe_psql('postgres', qq{DROP DATABASE copy; CREATE DATABASE copy TEMPLATE other OID = $oid});
is($node->safe_psql('copy', q{SELECT dlock_is_free('n1'), count(*), (SELECT held FROM dlock.stats) FROM dlock.locks}),
	't|0|0', 'a database with the OID of one that was dropped has none');
like($node->safe_psql('copy', q{SELECT dlock_acquire('n1', 'you', 60)}), qr/^\d+$/, '... and its names are free');
is($node->safe_psql('copy', q{SELECT count(*), (SELECT held FROM dlock.stats) FROM dlock.locks}), '1|1', '... for its own leases');

$node->stop;
done_testing();
