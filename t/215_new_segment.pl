# The summaries of a table that has outgrown them get a new segment while a call is at
# work that has not mapped it.  The leases that the call adds are found all the same by
# walks that skip pages by their summaries.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrashPoints;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('segment', install_path => CrashPoints::build() =~ s{/bin$}{}r);
$node->init;
$node->append_conf(
	'postgresql.conf', q{
dynamic_shared_memory_type = mmap
synchronous_commit = off
dlock.reap_interval = '50ms'
dlock.log_expired = off
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

sub query
{
	my ($query) = @_;
	return $node->safe_psql('postgres', $query);
}

# Wait for the worker.  That it reaps says that it has been everywhere.
sub reaped
{
	my ($leases, $claim) = @_;
	ok($node->poll_query_until('postgres', "SELECT reaped = $leases FROM dlock.stats"), $claim);
	return query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'dlock worker' AND datname = 'postgres'});
}

# The files of the server's dynamic shared memory.
sub segments
{
	return join ' ', sort glob($node->data_dir . '/pg_dynshmem/mmap.*');
}

# While the worker is stopped, the table outgrows the summaries, which nobody else makes.
my $session = $node->background_psql('postgres');
my $pid = $session->query('SELECT pg_backend_pid()');
is(query(q{SELECT dlock_acquire('first', 'first', 0.001) IS NOT NULL}), 't', 'the table is in use');
my $worker = reaped(1, 'the worker works');
Processes::stop_asleep($worker, 'Extension', \&query);
query(q{SELECT count(dlock_acquire(lpad(i::text, 255, 'n'), lpad(i::text, 255, 'o'), 36000,
	request => lpad(i::text, 255, 'r'))) FROM generate_series(1, 8000) i});
is(query(q{SELECT count(dlock_acquire(lpad('short' || i, 255, 's'), 'mayfly', 0.001)) FROM generate_series(1, 500) i}),
	500, 'short leases all over the table');
cmp_ok(query(q{SELECT pg_relation_size('dlock_private.lease_table') / 8192}), '>', 500, '... with more pages than have summaries');

# A call has written the first of its rows.  It has not told the summary of the bucket, which
# is locked, nor come to the others.
$session->query($_) for q{SET dlock.crash_point = 'row: logged'}, 'SET dlock.crash_stop = on';
$session->query_until(qr/begins/, q{\echo begins
SELECT 'has ' || count(*) FROM dlock_acquire_any((SELECT array_agg('late ' || i) FROM generate_series(1, 60) i), 'late', 3600, 60);
});
Processes::until_stopped($pid);

# The worker makes the segment and comes to that bucket; then the call goes on.
my $before = segments();
kill 'CONT', $worker or die 'the worker is gone';
ok($node->poll_query_until('postgres', qq{SELECT wait_event = 'BufferContent' FROM pg_stat_activity WHERE pid = $worker}),
	'the worker comes to the bucket');
isnt(segments(), $before, '... with a new segment');
kill 'CONT', $pid or die 'the call is gone';
like($session->query('SELECT'), qr/^has 60$/m, 'the call goes on');
reaped(501, 'all short leases are reaped');
is(query(q{SELECT dlock_renew_all('late', 3600)}), 60, 'renew_all finds what the call has taken');
is(query(q{SELECT dlock_renew_all('late', 0.001)}), 60, '... again');
reaped(561, 'the worker, too');

$session->quit;
$node->stop('immediate');
done_testing();
