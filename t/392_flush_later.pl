# A call that need not be durable when it returns is flushed soon after, by the
# launcher, or by the WAL writer if there is no launcher.  In this server nothing else
# would flush it: there is no standby to tell of running transactions, no autovacuum,
# no checkpoint.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('flush');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
max_worker_processes = 16
wal_level = minimal
max_wal_senders = 0
autovacuum = off
checkpoint_timeout = 1d
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

sub launchers
{
	return $node->safe_psql('postgres',
		q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'dlock launcher'}
	);
}

# Where the WAL ends.  The position for the next record is behind the header of its page, of 24
# bytes, or 40 where a segment begins: if the last record has filled a page, nobody flushes
# that before there is another one.
my $wal_end = q{SELECT at - CASE WHEN mod(at - '0/0', segment_size) = 40 THEN 40
	WHEN mod(at - '0/0', block_size) = 24 THEN 24 ELSE 0 END
	FROM pg_current_wal_insert_lsn() AS at,
		(SELECT setting::bigint AS block_size FROM pg_settings WHERE name = 'wal_block_size') AS b,
		(SELECT setting::bigint AS segment_size FROM pg_settings WHERE name = 'wal_segment_size') AS s};

# The end of what a statement has logged, which must have logged something.
sub end_of
{
	my ($statement, $what) = @_;
	my $before = $node->safe_psql('postgres', $wal_end);
	my $after = $node->safe_psql('postgres', "$statement; $wal_end");

	$after =~ s/.*\n//s;
	isnt($after, $before, "$what is logged");
	return $after;
}

sub is_flushed_soon
{
	my ($statement, $what) = @_;
	my $end = end_of($statement, $what);

	ok( $node->poll_query_until(
			'postgres', "SELECT pg_current_wal_flush_lsn() >= '$end'"),
		"$what is flushed without anybody else's doing");
}

sub check
{
	my ($who) = @_;

	# a first call activates the table, which is durable at once
	$node->safe_psql('postgres', q{SELECT dlock_release('job', 'nobody')});
	is_flushed_soon(
		q{SET synchronous_commit = off; SELECT dlock_acquire('job', 'a', 600)},
		"$who: a grant with synchronous_commit = off");
	is_flushed_soon(q{SELECT dlock_release('job', 'a')}, "$who: a release");
	is_flushed_soon(
		q{SET synchronous_commit = off; BEGIN; SELECT dlock_acquire('job', 'b', 600); ROLLBACK},
		"$who: a grant in a transaction that is rolled back");
	is_flushed_soon(
		q{SET synchronous_commit = off; SELECT dlock_acquire('batch-' || i, 'b', 600) FROM generate_series(1, 20000) i},
		"$who: many grants in one statement");
	is_flushed_soon(q{SELECT dlock_release_all('b')}, "$who: many releases");
}

$node->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'dlock launcher'}
) or die 'there is no launcher';
check('a launcher');

# The launcher dies and comes back: who comes meanwhile is not let down.
$node->safe_psql('postgres',
	q{SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE backend_type = 'dlock launcher'}
);
check('a launcher that is gone or has just come back');

# No background worker at all.
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->restart;
is(launchers(), '0', 'there is no launcher');
check('no launcher');

$node->stop;
done_testing();
