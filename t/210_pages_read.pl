# With a million live leases, renew_all, release_all and the reaper read only
# the pages that matter: for ten leases less than a twentieth of all.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $leases = 1_000_000;

my $node = PostgreSQL::Test::Cluster->new('pages');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
# the worker is there after a restart, without a call
shared_preload_libraries = 'dlock'
shared_buffers = 512MB
max_wal_size = 4GB
synchronous_commit = off
autovacuum = off
dlock.reap_interval = '50ms'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

# Pages of the lock table, those read so far, and leases reaped so far.
sub state
{
	my ($pages, $read, $reaped) = split /\|/, $node->safe_psql('postgres', q{
		SELECT pg_relation_size(relid) / current_setting('block_size')::int,
			heap_blks_hit + heap_blks_read, reaped
		FROM pg_statio_all_tables, dlock.stats
		WHERE schemaname = 'dlock_private' AND relname = 'lease_table'});

	return { pages => $pages, read => $read, reaped => $reaped };
}

# Wait until the worker has been everywhere and reports no more reading.
sub settle
{
	my $last = -3;

	$node->poll_query_until('postgres',
		q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'dlock worker'})
	  or die 'no worker';

	# A dead lease that is reaped says that a round over the table was made.
	for (1 .. 2)
	{
		$node->safe_psql('postgres', q{SELECT dlock_acquire('settle', 'settle', 0.01)});
		$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM dlock_holders('settle')})
		  or die 'the worker does not reap';
	}
	# each look here, by a session of its own, reads two pages
	while ((my $state = state())->{read} > $last + 2)
	{
		$last = $state->{read};
		$node->safe_psql('postgres', 'SELECT pg_sleep(0.3)');
	}
}

# Check that a statement reads few pages, by its own count.
sub reads_few
{
	my ($call, $answer, $claim) = @_;
	my $pages = state()->{pages};
	my ($plan) = $node->safe_psql('postgres',
		"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM $call AS n WHERE n = $answer");
	my ($hit) = $plan =~ /"Shared Hit Blocks": (\d+)/;
	my ($read) = $plan =~ /"Shared Read Blocks": (\d+)/;
	my ($rows) = $plan =~ /"Actual Rows": (\d+)/;

	is($rows, 1, "$claim: $call is $answer");
	note sprintf '%s: %d of %d pages, %.2f %%', $call, $hit + $read, $pages,
	  100 * ($hit + $read) / $pages;
	cmp_ok($hit + $read, '<', $pages / 20, "$claim: ... and reads few pages");
}

sub reaper_reads_few
{
	my ($claim) = @_;

	settle();
	my $before = state();
	$node->safe_psql('postgres',
		qq{SELECT dlock_acquire('$claim ' || i, 'mayfly ' || i, 0.01) FROM generate_series(1, 10) i});
	my $set_up = state();
	$node->poll_query_until('postgres', "SELECT reaped = $before->{reaped} + 10 FROM dlock.stats")
	  or die 'the worker does not reap';
	settle();
	my $after = state();
	my $read = $after->{read} - $before->{read};

	# includes the acquires, and what settle() does: an upper bound
	note sprintf 'reaper: %d of %d pages, %.2f %%', $read, $after->{pages},
	  100 * $read / $after->{pages};
	cmp_ok($read, '<', $after->{pages} / 20, "$claim: ten expired leases are reaped by reading few pages");
}

# The owner with ten leases, spread about.
sub acquire_ten
{
	$node->safe_psql('postgres',
		q{SELECT count(dlock_acquire('of one ' || i, 'one', 3600)) FROM generate_series(1, 10) i});
}

is( $node->safe_psql('postgres', qq{
	SELECT count(dlock_acquire('name ' || i,
		CASE WHEN i % ($leases / 10) = 0 THEN 'one' ELSE 'owner ' || i END, 36000))
	FROM generate_series(1, $leases) i}),
	$leases, "$leases leases");
settle();
cmp_ok(state()->{pages}, '>', 1000, 'the table is large');
reads_few(q{dlock_renew_all('one', 3600)}, 10, 'full');
reads_few(q{dlock_release_all('one')}, 10, 'full');
reads_few(q{dlock_renew_all('nobody', 3600)}, 0, 'full');
reaper_reads_few('full');

# Churn: the leases go to others, who give them on.
for my $generation (1 .. 2)
{
	$node->safe_psql('postgres', qq{
		SELECT count(dlock_release('name ' || i,
			CASE WHEN $generation > 1 THEN 'owner ' || i || ' in generation ' || $generation - 1
				ELSE 'owner ' || i END)),
			count(dlock_acquire('name ' || i, 'owner ' || i || ' in generation $generation', 36000))
		FROM generate_series(1, $leases) i WHERE i % ($leases / 10) <> 0});
}
acquire_ten();
settle();
reads_few(q{dlock_renew_all('one', 3600)}, 10, 'after churn');
reads_few(q{dlock_release_all('one')}, 10, 'after churn');
reaper_reads_few('after churn');

acquire_ten();
$node->restart;
settle();
reads_few(q{dlock_renew_all('one', 3600)}, 10, 'after a restart');
reads_few(q{dlock_release_all('one')}, 10, 'after a restart');
reaper_reads_few('after a restart');

$node->stop('immediate');
done_testing();
